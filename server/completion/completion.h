/* completion.h: one HTTP request for completions or chat, from its body to its last byte.
 *
 * A completion_t has three users one after another or at once: the HTTP exchange, a job in the
 * lanes (server/lanes), and the engine (one request_t per prompt). It is freed when all three have
 * finished: the exchange was answered or its client left, no job runs, and EVENT_DONE of every
 * submitted request came back. Only the loop thread uses it, except while a job runs: then only the
 * job uses it.
 */
#ifndef INFERD_SERVER_COMPLETION_COMPLETION_H
#define INFERD_SERVER_COMPLETION_COMPLETION_H

#include "engine/base/arena.h"
#include "server/completion/intake.h"
#include "server/completion/live.h"
#include "server/completion/logprobs.h"
#include "server/completion/pictures.h"
#include "server/fields/params.h"
#include "server/keys/api_key.h"
#include "server/parser/output.h"
#include "server/server.h"
#include "server/tally/tally.h"

enum {
  POOL_BODY_BYTES = 64 * 1024, /* larger bodies are parsed in the pool */
  TOKENIZE_IDS_MAX = 1 << 20   /* tokens that one request may have counted */
};

typedef struct input input_t;
typedef struct dialect dialect_t; /* dialect.h */

/* One choice of one prompt: what it has produced so far. */
struct choice {
  input_t *input;
  int32_t index;           /* in the response: prompt x n + sample */
  buffer_t text;           /* not streamed: everything; streamed: what has no chunk yet */
  buffer_t reasoning;      /* chat: reasoning, in the same span */
  buffer_t tool_calls;     /* chat: elements of the array, the same span */
  output_parser_t *parser; /* chat: NULL if the text needs no parsing */
  int32_t num_calls;       /* chat: tool calls begun */
  bool call_open; /* chat: the arguments of the last element of tool_calls are still open */
  bool call_cut;  /* chat: the text was cut inside the last call */
  int32_t num_reasoning_tokens;
  buffer_t token_ids;      /* "1,2,3", the same span; only with return_token_ids */
  logprob_text_t logprobs; /* the same span */
  text_offset_t offset;    /* where the next token's text begins */
  size_t held;             /* bytes of its buffers, as the ledger was told */
  int32_t num_tokens;      /* generated so far */
  int32_t unsent_tokens;   /* streamed: tokens since the last chunk */
  bool role_sent;          /* streamed chat */
  bool sent_any, done, dirty;
  struct choice *next_dirty;
  finish_reason_t finish;
  int32_t stop_token_id, stop_string;
  uint64_t first_token_ns, last_token_ns; /* seen by the loop thread; exact after DONE */
};

/* One prompt: the engine's request, and the choices it makes. What a response repeats in every
 * choice is printed once, here. */
struct input {
  completion_t *completion;
  request_t request;          /* the engine's from submit to EVENT_DONE */
  prompt_rows_t rows;         /* request.rows, of a prompt of rows */
  void *row_memory;           /* malloc'ed: what `rows` points to */
  encoder_source_t source;    /* request.source, where an encoder stands before the model */
  int32_t num_forced;         /* ids that its decoder is made to begin with, behind the start */
  int32_t *ids;               /* malloc'ed by the tokenizer; NULL when the ids live in the arena */
  struct token_place *places; /* of the ids, where the answer names parts of the text; or NULL */
  held_t keys;                /* request.prompt_keys of a long prompt */
  size_t held;                /* bytes of `ids`, of what the request lends, of `scores` */
  score_rows_t scores;        /* of many alternatives, printed when they are sent */
  buffer_t prompt_ids;        /* "[1,2,3]"; only with return_token_ids */
  buffer_t prompt_logprobs, prompt_gaps; /* "null,{...},..."; gap_t in it */
  buffer_t echo;                /* the prompt as the body of a JSON string, if it is echoed */
  buffer_t echo_text;           /* the same not escaped, while logprobs of it are expected */
  logprob_text_t echo_logprobs; /* of the tokens of the prompt */
  text_offset_t offset;         /* behind the last of them */
  size_t held_output;           /* bytes of these buffers, as the ledger was told */
  choice_t *choices;            /* [num_choices], the completion's */
  int32_t num_choices;
  int32_t num_cached_tokens, num_floor_tokens;
  bool prompt_counted, done; /* counted: in the use of the key */
  bool held_back;            /* its first request is not submitted yet; `again` of another does */
  bool waits;                /* a request of it is submitted at the end of the turn */
  uint64_t scheduled_ns;     /* by the engine's stamp, once DONE; 0 = never */
};

struct completion {
  server_t *server;
  exchange_t *exchange;          /* NULL = answered, or the client disconnected */
  completion_t *previous, *next; /* in the list of all completions */
  /* input */
  const dialect_t *dialect;
  void *dialect_state; /* the dialect's own, in the arena; or NULL */
  bool renames;        /* names in errors are those of chat: the dialect changes them */
  intake_t *intake;    /* NULL once the engine has the requests */
  arena_t arena;
  params_t params; /* its pointers into the document are NULL then */
  const engine_info_t *info;
  const tokenizer_t *tokenizer;
  stop_set_t *stops;
  const tool_format_t *tool_format; /* chat: NULL = calls are content */
  const reasoning_format_t *reasoning_format;
  bool in_reasoning;       /* chat: the prompt ends inside a reasoning block */
  bool in_text;            /* chat: the prompt ends behind the mark that begins the content */
  grammar_t *grammar;      /* the constraint on the output; one reference for all inputs, or NULL */
  struct lora_entry *lora; /* the adapter of all prompts; this completion is a user; or NULL */
  bool begun;              /* the engine has drawn a token of it */
  uint64_t tenant, source; /* exchange_t: whose cache domain it is in, whose shares it uses */
  api_key_t *key;          /* of the API key; this completion is a user; or NULL */
  tally_row_t *tally;      /* where its tokens are counted; NULL = nowhere, or not yet */
  pictures_t pictures;     /* of the one prompt of a chat */
  held_t lent;             /* what the engine reads of the dialect until it has done all inputs */
  charge_t ids;            /* of the arena and of what the inputs hold */
  charge_t output;         /* of the buffers of inputs and choices */
  bool working, replying;  /* its job waits or runs; the transport prints `reply` */
  bool settling;           /* a job of the dialect's `settle` reads the output */
  bool released;           /* it has left the list of completions */
  atomic_bool cancelled;   /* the job stops early */
  /* the engine's side */
  input_t *inputs;
  int32_t num_inputs, num_described; /* num_described: by `describe` and `describe_next` */
  choice_t *choices;                 /* of all inputs, in the order of the response */
  int32_t num_choices;
  int32_t outstanding; /* inputs submitted and not DONE */
  bool admitted;
  uint64_t arrival_ns, queued_ns;
  uint64_t seed;    /* of a request that gives none; 0 = draw one */
  bool best_effort; /* of the exchange */
  int64_t created;  /* unix seconds */
  /* output */
  const char *head; /* "id":…,"object":…,"created":…,"model":…, in the arena */
  size_t head_length;
  cord_t reply; /* of a request that does not stream; with in_pieces the frames of a stream, which
                 * are printed when the transport takes them */
  size_t held_frames;        /* bytes of `reply` then, as the ledger was told */
  const char *reply_type;    /* Content-Type of `reply`; NULL = JSON */
  completion_t *next_again;  /* in the list of those with inputs that wait */
  bool goes_again;           /* it is in that list */
  bool lacks_room;           /* inputs that wait are submitted when a request of it has ended */
  bool in_pieces, streaming; /* streaming: the status line was sent */
  uint64_t last_write_ns;
  span_t call_id;       /* chat: that the model gave the call that begins now; NULL = none */
  uint32_t obfuscation; /* state of the generator of padding */
};

/* prompt.c: the steps from the body to the engine; loop thread or a job of the lanes. */
int completion_read(completion_t *completion); /* JSON -> params, model, rules between fields */
bool completion_has_text(const completion_t *completion); /* tokenising is needed */
int completion_build(completion_t *completion);           /* tokenise, lengths, request_t */
/* source.c: what the encoder before a model reads, and how its decoder begins; refuses fields of
 * such models elsewhere. Returns 0, or an error in the intake. */
int completion_take_sources(completion_t *completion, tokenizer_scratch_t *scratch);
/* rows.c: the rows of a prompt of rows. Returns 0, or an error in the intake. */
int completion_take_rows(completion_t *completion, input_t *input, const prompt_t *prompt);
int32_t input_prompt_tokens(const input_t *input); /* with those of its source */
/* The rest: the constraint, and the beginning of the output. `may_compile` as below. */
int completion_finish(completion_t *completion, bool may_compile);
int completion_encode(completion_t *completion, tokenizer_scratch_t *scratch, const char *text,
                      size_t length, const tokenize_options_t *options, int32_t **ids,
                      size_t *count);
/* The most tokens of prompt and output together: what the model takes and the KV cache holds. */
int64_t completion_context(const completion_t *completion);
/* Returns 0, or ERR_CONTEXT_LENGTH. `at_least`: the prompt has that many tokens or more. */
int completion_check_length(const input_t *input, int64_t tokens, bool at_least);

/* suffix.c: puts prompts and suffix into the layout of the model. Pool. */
int completion_fill_in(completion_t *completion, tokenizer_scratch_t *scratch);
/* Whether the vocabulary has the tokens for it. Any thread. */
bool completion_can_fill_in(const tokenizer_t *tokenizer);
/* constraint.c: finds or compiles the grammar of the output, if the request has a constraint. Pool.
 * `may_compile` false: if the grammar is not in the cache, sets intake->needs_heavy and returns 0;
 * the caller calls again with true. */
int completion_constrain(completion_t *completion, bool may_compile);
/* completion.c: the domain of the prefix cache: of client, cache_salt and adapter, or NULL. Any
 * thread. */
uint64_t completion_cache_domain(const completion_t *completion, const struct lora_entry *lora);
/* build_requests.c: sampling parameters and limits -> request_t of the inputs. */
int completion_build_requests(completion_t *completion, tokenizer_scratch_t *scratch);

#endif
