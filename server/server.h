/* server.h: the context of the loop thread: configuration, engine, event loop, transport.
 *
 * serve.c owns it. It leads to all state of the loop thread. The engine thread never uses it.
 */
#ifndef INFERD_SERVER_SERVER_H
#define INFERD_SERVER_SERVER_H

#include "config/config.h"
#include "engine/base/buffer.h"
#include "engine/engine.h"
#include "server/http/http.h"

#include <uv.h>

/* How far the end of the process is. Loop thread; the phase only grows. */
typedef enum server_phase {
  SERVER_SERVING,
  SERVER_LEAVING,  /* not ready any more, so that routers look elsewhere; requests are admitted */
  SERVER_DRAINING, /* requests in flight finish; new ones get 503 */
} server_phase_t;

typedef struct server {
  config_t *config;
  uv_loop_t *loop;
  engine_t *engine;
  http_t *http;
  struct auth *auth;              /* server/http/auth.c: API keys */
  struct metrics *metrics;        /* server/observe/metrics.c */
  struct completions *live;       /* server/completion/live.h: requests in flight; of the parent of
                                   * several models NULL */
  struct lanes *lanes;            /* server/lanes/lanes.h: their work outside the loop thread */
  struct ledger *ledger;          /* server/ledger/ledger.h: their memory */
  struct kv_publisher *publisher; /* server/kv_events: of --kv-events-endpoint; NULL = none */
  struct kv_events *kv_events;    /* what it publishes */
  struct answer_store *store;     /* server/store/store.h: of --store; NULL = nothing is kept */
  buffer_t engine_text;           /* engine/journal/head.h, for recipes; empty without a store */
  struct tally *tally;            /* server/tally/tally.h; NULL without a store */
  struct journal *journal;        /* engine/journal/journal.h: of --journal; NULL = none */
  struct background *background;  /* server/responses/background.h; NULL without a store */
  struct local *local;            /* server/batches/local.h: of `inferd batch`; NULL = a daemon */
  struct runner *runner;          /* server/batches/runner.h; NULL without a store */
  struct helper *pictures;        /* engine/picture/work.h; NULL = the model sees none */
  struct helper *sounds;          /* engine/audio/work.h; NULL = the model hears none */
  struct media *media;            /* server/media/media.h: of --allowed-media-hosts; NULL = none */
  struct tracer *tracer;          /* server/trace/trace.h; NULL = requests get no spans */
  struct models *models;          /* server/models/models.h: of the parent of several; else NULL */
  struct sleep_wait *sleep_waits; /* server/api/sleep.h: clients that wait for it; NULL = none */
  bool behind;                    /* a parent has checked the keys of requests: x-inferd-client */
  uv_async_t engine_wake;         /* engine -> loop, once per step */
  bool starting; /* what serve.c does when the engine is ready is not done yet; loop thread */
  server_phase_t phase;
  /* What the program does, by serve.c or parent.c; NULL = nothing: */
  void (*drained)(struct server *server);   /* everything in flight has ended while draining */
  void (*succeeded)(struct server *server); /* the next process accepts connections */
  void (*finished)(struct server *server);  /* `inferd batch` has nothing left to do */
  config_t asked;                           /* as read at start, before the model was located */
  int64_t queue_requests_max;               /* for which the engine has tables */
  uint64_t start_ns;                        /* monotonic */
  int64_t start_time;                       /* unix seconds: `created` of the model cards */
  char system_fingerprint[48];
} server_t;

/* Flags of a route. If the server has keys, routes need one: all but ROUTE_OPEN and ROUTE_PAGE. */
typedef enum route_flag {
  ROUTE_OPEN = 1,        /* no key: /livez, /readyz, /health, /ping */
  ROUTE_PREFIX = 2,      /* the path continues: path_tail */
  ROUTE_JSON = 4,        /* needs a JSON body: Content-Type and size are checked */
  ROUTE_ENGINE = 8,      /* needs a READY engine that is not draining: else 503 */
  ROUTE_METRICS = 16,    /* key by --metrics-auth */
  ROUTE_ADMIN = 32,      /* an admin key; if the server has none, a UNIX socket */
  ROUTE_SMALL = 64,      /* a body of at most 64 KiB: it is parsed on the loop thread */
  ROUTE_KEY_ALONE = 128, /* takes the key in x-api-key too, where Authorization is absent */
  ROUTE_MESSAGES = 256,  /* Anthropic's: errors and headers are theirs */
  ROUTE_PAGE = 512,      /* the web page: no key; absent with --web-page off */
  ROUTE_STORE = 1024,    /* absent without --store */
  ROUTE_PARENT = 2048,   /* with several models: their parent answers, and passes nothing on */
  ROUTE_QUERY = 4096,    /* but it does if the query has a `model` */
  ROUTE_AUDIO = 8192     /* a form with a file of --max-audio-bytes */
} route_flag_t;

typedef struct route {
  const char *method; /* a route for GET also answers HEAD */
  const char *path;
  unsigned flags;
  const char *label; /* for metrics and the access log: canonical path */
  void (*handle)(exchange_t *exchange);
} route_t;

/* route.c: finds the route of a path. Doubled and trailing slashes and the query are ignored.
 * Routes with a flag of `absent` do not exist. Returns NULL if there is none: then *allow is NULL
 * (404), or the list of methods that the path has (405). For a route with ROUTE_PREFIX *tail is the
 * percent-decoded rest of the path, malloc'ed, which the caller frees; else NULL. */
const route_t *route_find(const char *method, const char *path, unsigned absent, const char **allow,
                          char **tail);
/* Whose words a path speaks; `route` NULL: that has no route for this method, or none at all. */
wire_t route_wire(const route_t *route, const char *path);

/* Sets the error (404) if the path belongs to an API that inferd refuses by name (unserved.def).
 * Returns it, or 0. */
int route_refuse(const char *path, inferd_error_t *error);

/* Handlers, one file each (server/api and server/completion). */
void api_completions(exchange_t *exchange);
void api_render_completion(exchange_t *exchange);
void api_render_chat(exchange_t *exchange);
void api_tokenizer_info(exchange_t *exchange);
void api_chat_completions(exchange_t *exchange);
void api_responses(exchange_t *exchange);
void api_responses_input_tokens(exchange_t *exchange);
void api_stored_response(exchange_t *exchange); /* server/responses/stored.c */
void api_delete_response(exchange_t *exchange);
void api_cancel_response(exchange_t *exchange);
void api_conversations(exchange_t *exchange); /* server/responses/conversations.c */
void api_get_conversation(exchange_t *exchange);
void api_post_conversation(exchange_t *exchange);
void api_delete_conversation(exchange_t *exchange);
void api_upload_file(exchange_t *exchange); /* server/batches, and those below */
void api_files(exchange_t *exchange);
void api_file(exchange_t *exchange);
void api_delete_file(exchange_t *exchange);
void api_create_batch(exchange_t *exchange);
void api_batches(exchange_t *exchange);
void api_batch(exchange_t *exchange);
void api_cancel_batch(exchange_t *exchange);
void api_usage(exchange_t *exchange);
void api_transcriptions(exchange_t *exchange); /* server/audio, and that below */
void api_translations(exchange_t *exchange);
void api_models(exchange_t *exchange);
void api_load_model(exchange_t *exchange); /* server/models, and that below */
void api_unload_model(exchange_t *exchange);
void api_sleep(exchange_t *exchange);
void api_wake_up(exchange_t *exchange);
void api_is_sleeping(exchange_t *exchange);
void api_model(exchange_t *exchange);
void api_tokenize(exchange_t *exchange);
void api_detokenize(exchange_t *exchange);
void api_check_schema(exchange_t *exchange);
void api_livez(exchange_t *exchange);
void api_readyz(exchange_t *exchange); /* also /health and /ping */
void api_version(exchange_t *exchange);
void api_openapi(exchange_t *exchange);
void api_metrics(exchange_t *exchange);
void api_page(exchange_t *exchange);
void api_load_lora(exchange_t *exchange);
void api_unload_lora(exchange_t *exchange);
void api_messages(exchange_t *exchange);       /* server/messages */
void api_count_tokens(exchange_t *exchange);   /* server/messages */
void api_apply_template(exchange_t *exchange); /* server/llama, and those below */
void api_props(exchange_t *exchange);
void api_slots(exchange_t *exchange);
void api_llama_completion(exchange_t *exchange);
void api_llama_infill(exchange_t *exchange);
void api_ollama_chat(exchange_t *exchange); /* server/ollama, and those below */
void api_ollama_generate(exchange_t *exchange);
void api_ollama_embed(exchange_t *exchange);
void api_ollama_embeddings(exchange_t *exchange);
void api_ollama_tags(exchange_t *exchange);
void api_ollama_ps(exchange_t *exchange);
void api_ollama_show(exchange_t *exchange);
void api_ollama_pull(exchange_t *exchange);
void api_ollama_version(exchange_t *exchange);
void api_embeddings(exchange_t *exchange); /* server/embeddings, and those below */
void api_pooling(exchange_t *exchange);
void api_classify(exchange_t *exchange);
void api_score(exchange_t *exchange);
void api_rerank(exchange_t *exchange);
void api_rerank_v2(exchange_t *exchange); /* Cohere's answer */

/* server/models: the parent of several models answers a request of any route; whether all that must
 * be in memory is; the numbers of a model, false = there is none of this index. */
void models_handle(exchange_t *exchange);
bool models_ready(const server_t *server);
/* A request that the parent sends itself, an errand of a batch, to this path. */
void models_errand(exchange_t *exchange, const char *path);
typedef struct model_line {
  const char *name, *state;
  char *const *names, *const *adapters; /* names[0] is `name` */
  int num_names, num_adapters;
  bool answers;                  /* its process takes requests, or ends what it has */
  bool is_adapter;               /* models_named: the name is of an adapter of the model */
  const struct model_card *card; /* zeros before its files have been read */
  const char *shown;             /* the answer of /api/show, from its files; NULL: not read yet */
  int64_t context;               /* tokens; 0 = not known yet */
  int64_t ends;                  /* seconds since 1970: when it goes unless asked; 0 = never */
  int64_t bytes, device_bytes;   /* in memory, on host and device; on the device alone */
  int32_t waiting, running;
  uint64_t loads, failures, requests, prompt_tokens, generation_tokens;
} model_line_t;
bool models_line(const server_t *server, int index, model_line_t *out);
bool models_named(const server_t *server, const char *name, model_line_t *out);
void models_list(exchange_t *exchange);  /* /v1/models, and one of them */
void models_sleep(exchange_t *exchange); /* /sleep and its like, with `model` in the query */
void models_wake(exchange_t *exchange);
void models_is_sleeping(exchange_t *exchange);

/* access.c: warns of routes that are open to more clients than most operators want, and of an
 * option that has no effect because no client may use its routes. After http_start. */
void server_warn_of_access(const server_t *server);

/* keep.c: opens --store, if it is given: server->store. Returns 0 or an error of store_open. */
int server_open_store(server_t *server, inferd_error_t *error);

/* publish.c: with --kv-events-endpoint: starts what publishes events of the prefix cache, and makes
 * the engine tell it; ends it, once the thread of the engine has ended. Returns 0 or an error of
 * kv_publisher_new. */
int publish_start(server_t *server, engine_options_t *engine, inferd_error_t *error);
void publish_stop(server_t *server);

/* lora_handler.c: loads and unloads adapters until the table has those of --lora-modules; the log
 * says which could not be loaded. Those that clients have loaded stay. */
void loras_reload(server_t *server);

/* background.c: answers that are made later; they do nothing without a store. new: before the loop
 * runs, because it reads what the store has waiting; start: the engine is ready, so it may run.
 * stop: they end, and stay in the store for the next process. free: after the last turn of the
 * loop and store_close, before completions_free. */
int background_new(server_t *server, inferd_error_t *error);
void background_start(server_t *server);
void background_tick(server_t *server);
void background_stop(server_t *server);
void background_free(server_t *server);
void background_counts(const server_t *server, int32_t *waiting, int32_t *running);

typedef struct runner_counts {
  int32_t waiting, running;         /* batches that have not ended: some of each key run */
  int32_t in_flight;                /* lines that the engine has */
  uint64_t answered, failed, again; /* lines, since start; again: that found a full server */
} runner_counts_t;

/* runner.c: batches; the same life. */
int runner_new(server_t *server, inferd_error_t *error);
void runner_tick(server_t *server);
void runner_stop(server_t *server);
void runner_free(server_t *server);
runner_counts_t runner_counts(const server_t *server);

/* life.c: the set of all completions. */
int completions_new(server_t *server);        /* fills server->live; 0 or ERR_NO_MEMORY */
void completions_free(server_t *server);      /* all completions have ended before */
int completions_live(const server_t *server); /* HTTP requests in flight */
/* Monotonic time at which the idle engine got work; 0 = the engine is idle now. */
uint64_t completions_busy_since_ns(const server_t *server);
/* The id of the HTTP request that request_t.id belongs to; "?" if its client is gone. */
const char *completions_request_id(const server_t *server, uint64_t id);

/* events.c: delivers the events of the engine and of the clock to the completions. */
void completions_drain_events(server_t *server); /* called from engine_wake, once per step */
void completions_tick(server_t *server, uint64_t now_ns); /* SSE pings; every 250 ms */

/* metrics.c: counters of the loop thread; the /metrics page adds those of engine_stats. `model` is
 * the name in the labels; it is copied. Returns NULL if memory is short. */
struct metrics *metrics_new(server_t *server, const char *model);
void metrics_free(struct metrics *metrics);
void metrics_http(server_t *server, const char *route, const char *method, int status,
                  uint64_t duration_ns);

#endif
