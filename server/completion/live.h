/* live.h: the state that all completions of a server share: their list, model names, scratches.
 *
 * And how a completion ends. A server has one completions_t (server->live). The loop thread owns
 * it. Threads of libuv's pool only take scratches, under a lock, and read the model names.
 */
#ifndef INFERD_SERVER_COMPLETION_LIVE_H
#define INFERD_SERVER_COMPLETION_LIVE_H

#include "server/fields/history.h"
#include "server/ledger/cord.h"
#include "server/server.h"

#include "engine/base/json.h"
#include "engine/grammar/cache.h"
#include "engine/template/chat/chat_template.h"

enum { MODEL_NAMES_MAX = 64 };

/* Served model names; the first is the one in responses. Constant: a reload makes new ones, and the
 * old ones stay until the end, because threads of the pool may still read them. */
typedef struct model_names {
  char *name[MODEL_NAMES_MAX]; /* malloc'ed */
  int count;
  struct model_names *older;
} model_names_t;

typedef struct completion completion_t; /* completion.h */
typedef struct choice choice_t;

/* All completions of a server; server->live. */
typedef struct completions {
  server_t *server;
  completion_t *first;
  int count;
  int jobs;  /* jobs of /tokenize, /detokenize and /v1/schema/check in the pool */
  int depth; /* > 0: a walk over the list is in progress, so finished completions wait on `dead` */
  completion_t *dead;  /* linked by next */
  completion_t *again; /* linked by next_again: they have further requests */
  choice_t *dirty;     /* choices with tokens that have no chunk yet */
  cord_t frame;        /* flat: one frame of a stream; reused */
  _Atomic(model_names_t *) names;
  uv_mutex_t scratch_lock;
  tokenizer_scratch_t *scratches[16]; /* free list, for the threads of the pool */
  int num_scratches;
  uint64_t salt_key[2];
  grammar_cache_t *grammars; /* compiled constraints; any thread */
  struct loras *loras;       /* server/completion/lora_table.c; NULL = adapters are off */
  /* chat; constant once the model is loaded (chat_model.c) */
  chat_templates_t *templates; /* NULL = the model's files could not be read */
  struct model_card *card;     /* what the files say of the model; NULL until somebody has asked */
  buffer_t tokenizer_info;     /* the answer of /tokenizer_info; empty = it is not served */
  bool chat_is_ready;
  history_rules_t rules;                           /* what the template takes of conversations */
  const struct tool_format *tool_format;           /* NULL = tool calls are not parsed */
  const struct reasoning_format *reasoning_format; /* NULL = reasoning is content */
  uint64_t next_request_id;
  uint64_t now_ns;         /* of the walk in progress */
  uint64_t busy_since_ns;  /* when the idle engine last got work; see server.h */
  int32_t engine_requests; /* submitted and not DONE, all completions */
} completions_t;

/* model_names.c: sets the served model names, at start and in a reload; main thread. An empty list
 * stands for the name of `model`, the path of the model. Returns 0 or ERR_NO_MEMORY. */
int model_names_set(completions_t *live, const config_list_t *names, const char *model);
void model_names_free(completions_t *live);
const model_names_t *model_names(const completions_t *live); /* any thread; until the end */
const char *model_name(const completions_t *live);           /* the first of them */
bool model_name_known(const completions_t *live, const char *name, size_t length);
/* Checks a model name. NULL and "" mean the base model. Returns 0 or ERR_MODEL_NOT_FOUND. Any
 * thread. */
int model_check(const completions_t *live, bool any, const json_t *name, inferd_error_t *error);
/* ERR_MODEL_NOT_FOUND with its message, which has a name that is known; returns it. Any thread. */
int model_fail_unknown(const completions_t *live, const char *name, size_t length,
                       inferd_error_t *error);

/* Takes a scratch from the free list, or makes one (NULL if memory is short); gives one back. Any
 * thread. */
tokenizer_scratch_t *scratch_take(completions_t *live, const tokenizer_t *tokenizer);
void scratch_give(completions_t *live, tokenizer_scratch_t *scratch);

/* life.c: the ends of a completion's life; loop thread. */
/* Frees the intake, if there is one. */
void completion_forget_input(completion_t *completion);
/* Returns the model name for answers: the adapter's, or the first served name. */
const char *completion_model_name(const completion_t *completion);
/* Answers with completion->reply, which is complete. */
void completion_reply(completion_t *completion);
/* Begins the stream whose frames are in completion->reply, or says that there are more. */
void completion_send_frames(completion_t *completion);
/* Answers with an error if the client is still connected, and cancels the rest of the work. */
void completion_fail(completion_t *completion, const inferd_error_t *error);
/* Returns the exchange for the last call on it, or NULL. Fills in the access line. */
exchange_t *completion_take_exchange(completion_t *completion);
/* Counts the terminal event of an admitted request. */
void completion_count_end(completion_t *completion, int status, finish_reason_t finish);
void completion_gone(exchange_t *exchange, const char *cause); /* on_gone of its exchange */
void completion_aborted(exchange_t *exchange, const inferd_error_t *error); /* on_abort */
void completion_release(completion_t *completion); /* frees it if nothing uses it any more */
/* Gives the tokens of an input that has not begun, and never will, back to its key. */
struct input;
void completion_give_back(const struct input *input);

void completions_enter(completions_t *live);
void completions_leave(completions_t *live); /* ends a walk; frees what finished during it */

#endif
