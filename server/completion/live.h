/* live.h: what all completions of a server share: the list of them, names, scratches.
 *
 * One completions_t hangs on the server (server->live). The loop thread owns it; the pool's threads
 * only take scratches, under their lock, and read the model names, which are constant.
 */
#ifndef INFERD_SERVER_COMPLETION_LIVE_H
#define INFERD_SERVER_COMPLETION_LIVE_H

#include "engine/base/buffer.h"
#include "server/server.h"

#include "engine/base/json.h"
#include "engine/grammar/cache.h"
#include "engine/template/chat/chat_template.h"

enum { MODEL_NAMES_MAX = 64 };

typedef struct completion completion_t; /* completion.h */
typedef struct choice choice_t;

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
  grammar_cache_t *grammars; /* compiled constraints; any thread */
  struct loras *loras;       /* server/completion/lora_table.c; NULL = adapters are off */
  /* chat; constant once the model is loaded (chat_model.c) */
  chat_templates_t *templates; /* NULL = the model's files could not be read */
  bool chat_is_ready;
  const struct tool_format *tool_format;           /* NULL = calls are not read */
  const struct reasoning_format *reasoning_format; /* NULL = thoughts are content */
  uint64_t next_request_id;
  uint64_t now_ns;         /* of the walk in progress */
  uint64_t busy_since_ns;  /* when the engine last got work while it had none */
  int32_t engine_requests; /* submitted and not DONE, all completions */
} completions_t;

/* model_names.c: the names this server answers to. 0 or ERR_NO_MEMORY. */
int model_names_set(completions_t *live, const config_t *config);
bool model_name_known(const completions_t *live, const char *name, size_t length);
/* 0 or ERR_MODEL_NOT_FOUND; NULL and "" are the base model. Any thread. */
int model_check(const completions_t *live, bool any, const json_t *name, error_t *error);
/* ERR_MODEL_NOT_FOUND with its message; returns it. */
int model_fail_unknown(error_t *error, const char *name, size_t length);

/* A scratch of the free list (or a new one, NULL without memory), and back. Any thread. */
tokenizer_scratch_t *scratch_take(completions_t *live, const tokenizer_t *tokenizer);
void scratch_give(completions_t *live, tokenizer_scratch_t *scratch);

void completions_enter(completions_t *live);
void completions_leave(completions_t *live); /* frees what has died meanwhile */

#endif
