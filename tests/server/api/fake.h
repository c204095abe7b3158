/* fake.h: a server without a transport and without an engine, for the tests of the API's handlers.
 *
 * The handlers, the parameter table, the renderers and the metrics are the real ones; exchange_*,
 * engine_* and tokenizer_* are replaced by fakes that record what they are told. One server at a
 * time; everything runs on the test's thread but for libuv's pool.
 *
 * The fake tokenizer: an id below 256 is that byte; 256 is a special "<s>" that add_special_tokens
 * puts in front, 257 a special "</s>", 258 " the", 259 is unused, 260.. up to 299 are "tNNN"
 * but for FAKE_MARKS_MAX ids, which may be marks of a format.
 */
#ifndef INFERD_TESTS_SERVER_API_FAKE_H
#define INFERD_TESTS_SERVER_API_FAKE_H

#include "engine/base/json.h"
#include "server/completion/chat.h"
#include "server/server.h"

#include <criterion/criterion.h>

enum { FAKE_VOCAB = 300, FAKE_CONTEXT = 128, FAKE_BOS = 256, FAKE_EOS = 257, FAKE_THE = 258 };
enum { FAKE_MARKS = 270, FAKE_MARKS_MAX = 10 };
enum { FAKE_PICTURE = 0x16 }; /* the id of its placeholder, and the template's mark */
enum { FAKE_BEYOND = 300 };   /* of byte 0x7f: an id that the tokenizer knows, but not the model */

/* ---- the server under test ---- */

extern server_t server;
extern config_t config;
void fake_start(void); /* defaults of options.def, model directory /models/tiny */
void fake_stop(void);  /* checks that nothing is left */
void fake_option(const char *name, const char *value); /* before the request it matters to */
void fake_run(void);                                   /* until the pool is through */

/* ---- exchanges ---- */

typedef struct fake_exchange {
  exchange_t public; /* first */
  bool answered, streaming, ended, gone;
  int status;
  inferd_error_t error;                /* when exchange_error answered */
  char content_type[96], headers[512]; /* "name: value\n" */
  char *body; /* of a reply, or all bytes of the stream so far; NUL behind */
  size_t body_length, body_capacity;
  int writes;
  size_t largest_write;
  pieces_t pieces;                /* of a stream that is printed when it is taken */
  bool refuse_writes;             /* the client is too slow */
  char request_headers[2][2][64]; /* name, value */
} fake_exchange_t;

/* Makes an exchange and hands it to `handle`; the pool has run when it returns. */
fake_exchange_t *fake_call(void (*handle)(exchange_t *), const char *body);
fake_exchange_t *fake_call_path(void (*handle)(exchange_t *), const char *path_tail);
fake_exchange_t *fake_exchange_new(const char *body, size_t length);
/* The body, in which every "created", which changes from second to second, becomes 1. */
const char *fake_steady_body(fake_exchange_t *exchange);
/* The client of a stream takes what is printed when it is taken; else it does at the end. */
void fake_pull(fake_exchange_t *exchange);
/* Bytes that the owner of a reply holds; if set, the most of it is found in fake_held_max. */
extern size_t (*fake_held)(const void *owner);
extern size_t fake_held_max;
void fake_exchange_gone(fake_exchange_t *exchange, const char *cause);
void fake_exchange_free(fake_exchange_t *exchange);
/* The whole body as JSON; free with json_free. Fails the test when it is none. */
json_doc_t *fake_json(const fake_exchange_t *exchange);

/* ---- the chat template ---- */

typedef struct fake_template {
  bool none, broken, tools; /* no template; it does not parse; it takes tools */
  const char *knows;        /* one more name that it mentions */
  const char *format_words; /* what it says about tool calls */
  const char *const *marks; /* tokens from FAKE_MARKS on; NULL ends them; NULL = there are none */
  bool blind;               /* it has no place for pictures */
  bool fim;                 /* the vocabulary has tokens for filling in: 290, 291, 292 */
} fake_template_t;

extern fake_template_t fake_template;
void fake_template_reset(void); /* called by fake_start: a template is there, calls as of Hermes */

/* ---- the engine ---- */

typedef struct fake_engine {
  engine_state_t state;
  engine_info_t info;
  engine_stats_t stats;
  engine_activity_t activity;
  double progress;
  size_t keys_per_token; /* bytes that engine_hash_prompt asks for */
  size_t scores_bytes;   /* engine_scores_bytes of every request */
  int refuse;            /* an ERR_ number that engine_submit answers with; 0 = admits */
  request_t *requests[256];
  int num_requests; /* submitted and not DONE */
  int num_cancelled;
} fake_engine_t;

extern fake_engine_t fake_engine;
void fake_engine_reset(void); /* called by fake_start */
/* Queue events; they reach the server with fake_deliver. */
void fake_token(request_t *request, int32_t id, const char *text);
void fake_token_logprob(request_t *request, int32_t id, const char *text, float logprob,
                        const token_logprob_t *top, int32_t num_top);
void fake_prompt_logprob(request_t *request, int32_t position, float logprob, int32_t rank,
                         const token_logprob_t *top, int32_t num_top);
/* The same of one choice of several. */
void fake_choice_token(request_t *request, int32_t choice, int32_t id, const char *text);
void fake_choice_token_logprob(request_t *request, int32_t choice, int32_t id, const char *text,
                               float logprob, const token_logprob_t *top, int32_t num_top);
void fake_choice_done(request_t *request, int32_t choice, finish_reason_t finish, const char *text);
void fake_done(request_t *request, finish_reason_t finish, const char *text);
void fake_done_stop(request_t *request, int32_t token_id, int32_t stop_string);
void fake_fail(request_t *request, int error_code);
void fake_deliver(void);
void fake_finish_all(void); /* ends every request that the engine has */

#endif
