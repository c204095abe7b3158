/* api_completion.h: one HTTP request for completions, from its body to its last byte.
 *
 * A completion_t has three users one after another or at once: the HTTP exchange, a job in libuv's
 * pool, and the engine (one request_t per prompt). It is freed when all three are through: the
 * exchange was answered or has gone, no job runs, and EVENT_DONE of every submitted request came
 * back. Only the loop thread touches it, but for the job, which has it alone while it runs.
 */
#ifndef INFERD_SERVER_API_COMPLETION_H
#define INFERD_SERVER_API_COMPLETION_H

#include "server/api_logprobs.h"
#include "server/arena.h"
#include "server/buffer.h"
#include "server/params.h"
#include "server/server.h"

enum {
  POOL_BODY_BYTES = 64 * 1024, /* larger bodies are parsed in the pool */
  PROMPT_LOGPROBS_BYTES_MAX = 64 * 1024 * 1024,
  PROMPT_LOGPROB_BYTES = 64, /* rendered size that one alternative of one position is charged */
  MODEL_NAMES_MAX = 64
};

typedef struct completion completion_t;

/* One choice of one prompt: an engine request and what it has produced so far. */
typedef struct choice {
  completion_t *completion;
  request_t request;        /* the engine's from submit to EVENT_DONE */
  int32_t index;            /* in the response: prompt x n + sample */
  int32_t *ids;             /* malloc'ed by the tokenizer; NULL when the ids live in the arena */
  char *decoded;            /* malloc'ed: the prompt's text when ids are echoed */
  size_t echo_length;       /* bytes of prompt in front of `text`, until the first chunk has left */
  buffer_t text;            /* not streamed: everything; streamed: what has no chunk yet */
  buffer_t token_ids;       /* "1,2,3", the same span; only with return_token_ids */
  logprob_text_t logprobs;  /* the same span */
  buffer_t prompt_logprobs; /* "null,{...},..." */
  text_offset_t offset;     /* where the next token's text begins */
  int32_t num_tokens;       /* generated so far */
  int32_t unsent_tokens;    /* streamed: tokens since the last chunk */
  bool sent_any, done, dirty;
  struct choice *next_dirty;
  finish_reason_t finish;
  int32_t stop_token_id, stop_string;
  int32_t num_cached_tokens;
  uint64_t scheduled_ns;                  /* by the engine's stamp, once DONE; 0 = never */
  uint64_t first_token_ns, last_token_ns; /* as this thread saw them; exact once DONE */
} choice_t;

struct completion {
  server_t *server;
  exchange_t *exchange;          /* NULL = answered, or the client has gone */
  completion_t *previous, *next; /* of all that live */
  /* input */
  char *body;
  size_t body_length;
  json_doc_t *doc;
  arena_t arena;
  params_t params;
  field_limits_t limits;
  params_defaults_t defaults;
  const engine_info_t *info;
  const tokenizer_t *tokenizer;
  stop_set_t *stops;
  uint64_t tenant;
  int num_ignored;
  char ignored[IGNORED_NAMES_MAX];
  /* the job in the pool */
  uv_work_t work;
  bool working, was_read, counted, released;
  atomic_bool cancelled; /* the job stops early */
  int code;              /* 0 or an ERR_ number: what reading and tokenising came to */
  error_t error;
  uint64_t tokenize_ns, tokenize_bytes;
  /* the engine's side */
  choice_t *choices;
  int32_t num_choices;
  int32_t outstanding; /* submitted and not DONE */
  bool admitted;
  uint64_t arrival_ns, queued_ns;
  int64_t created; /* unix seconds */
  /* output */
  const char *head; /* "id":…,"object":…,"created":…,"model":…, in the arena */
  size_t head_length;
  bool streaming; /* the status line has left */
  uint64_t last_write_ns;
  uint32_t obfuscation; /* state of the padding's generator */
};

/* All completions of a server; server->live. */
typedef struct completions {
  server_t *server;
  completion_t *first;
  int count;
  int jobs;                           /* of /tokenize and /detokenize, in the pool */
  int depth;                          /* > 0: inside a walk, finished completions wait on `dead` */
  completion_t *dead;                 /* linked by next */
  choice_t *dirty;                    /* choices with tokens that have no chunk yet */
  buffer_t scratch;                   /* one frame; reused */
  const char *names[MODEL_NAMES_MAX]; /* served model names, the first is the one in responses */
  int num_names;
  char *default_name; /* malloc'ed: base name of the model directory */
  uv_mutex_t scratch_lock;
  tokenizer_scratch_t *scratches[16]; /* free list of the pool's threads */
  int num_scratches;
  uint64_t salt_key[2];
  uint64_t next_request_id;
  uint64_t now_ns;         /* of the walk in progress */
  uint64_t busy_since_ns;  /* when the engine last got work while it had none; 0 = it has none */
  int32_t engine_requests; /* submitted and not DONE, all completions */
} completions_t;

/* api_completion_prompt.c: everything between the body and the admission; loop thread or pool. */
int completion_read(completion_t *completion); /* JSON -> params, model, rules between fields */
bool completion_has_text(const completion_t *completion); /* tokenising is needed */
int completion_build(completion_t *completion);           /* tokenise, lengths, request_t */

/* api_models.c: the names this server answers to. 0 or ERR_NO_MEMORY. */
int model_names_set(completions_t *live, const config_t *config);
bool model_name_known(const completions_t *live, const char *name, size_t length);
/* 0 or ERR_MODEL_NOT_FOUND; NULL and "" are the base model. Any thread. */
int model_check(const completions_t *live, bool any, const json_t *name, error_t *error);

/* A scratch of the free list (or a new one, NULL without memory), and back. Any thread. */
tokenizer_scratch_t *scratch_take(completions_t *live, const tokenizer_t *tokenizer);
void scratch_give(completions_t *live, tokenizer_scratch_t *scratch);

/* api_completion_life.c: the ends of a completion's life; loop thread. */
/* Answers with an error if the client is there, and cancels what is left. */
void completion_fail(completion_t *completion, const error_t *error);
/* The exchange, for the last call on it (NULL = gone); fills what the access line says. */
exchange_t *completion_take_exchange(completion_t *completion);
/* Counts the terminal event of an admitted request. */
void completion_count_end(completion_t *completion, int status, finish_reason_t finish);
void completion_gone(exchange_t *exchange, const char *cause); /* on_gone of its exchange */
void completion_cancel(completion_t *completion);              /* tells the engine and the job */
void completion_release(completion_t *completion);             /* frees it once nobody uses it */
void completions_enter(completions_t *live);
void completions_leave(completions_t *live); /* frees what has died meanwhile */

#endif
