/* completion.c: a completion request from its body to its admission.
 *
 * Stage 2 of 9: body -> admitted requests. Loop thread; the heavy half of reading runs as a job
 * of the lanes through prompt.c. No byte of a 200 is written before the engine has accepted
 * every prompt of the request. life.c ends a completion. Next: engine/submit.c; the events of the
 * engine come back in events.c.
 */
#include "server/completion/chat.h"
#include "server/completion/dialect.h"

#include "engine/base/clock.h"
#include "server/completion/lora_table.h"
#include "server/completion/salt.h"
#include "server/completion/stage_log.h"
#include "server/observe/metrics.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* The first chunk of the arena: holds a short request, with what its answer needs. */
enum { ARENA_BYTES_FIRST = 1536 };

/* ---- admission ---- */

uint64_t completion_cache_domain(const completion_t *completion, const lora_entry_t *lora) {
  const json_t *salt = completion->params.cache_salt;
  const char *share = completion->server->config->prefix_share;
  uint64_t tenant = strcmp(share, "global") == 0 ? 0 : completion->tenant;
  const uint64_t *key = completion->server->live->salt_key;
  if (salt != NULL) tenant = salt_hash(key, tenant, salt->text, salt->length);
  if (lora == NULL) return tenant;
  char unique[32]; /* the prefix cache of an adapter must not be shared */
  int n = snprintf(unique, sizeof unique, "adapter %llu", (unsigned long long)lora->unique);
  return salt_hash(key, ~tenant, unique, (size_t)n);
}

/* Finds the adapter that the request names as its model. ERR_MODEL_NOT_FOUND: the adapter was
 * unloaded while the request was read. */
static int find_adapter(completion_t *completion, inferd_error_t *error) {
  completions_t *live = completion->server->live;
  const json_t *name = completion->params.model;
  if (name == NULL || model_name_known(live, name->text, name->length)) return 0;
  completion->lora = lora_use(live, name->text, name->length);
  if (completion->lora != NULL) return 0;
  return model_check(live, completion->server->config->any_model, name, error);
}

/* Takes the request_id of the body if no header gave one. */
static void take_request_id(completion_t *completion) {
  exchange_t *exchange = completion->exchange;
  const json_t *id = completion->params.request_id;
  if (id == NULL || id->length > REQUEST_ID_MAX) return;
  const char *names[] = {"X-Request-Id", "X-Client-Request-Id"};
  for (int i = 0; i < 2; i++) {
    const char *header = exchange_request_header(exchange, names[i]);
    if (header != NULL && request_id_valid(header, strlen(header))) return;
  }
  memcpy(exchange->request_id, id->text, id->length);
  exchange->request_id[id->length] = '\0';
}

static void header_priority(completion_t *completion) {
  const char *text = exchange_request_header(completion->exchange, "X-Vllm-Priority");
  if (text == NULL || *text == '\0' || strlen(text) > 19) return;
  char *end;
  long long priority = strtoll(text, &end, 10);
  if (*end != '\0') return;
  for (int32_t i = 0; i < completion->num_inputs; i++) {
    completion->inputs[i].request.priority = priority;
  }
}

_Static_assert((int)PROMPTS_MAX <= (int)EMBEDDING_INPUTS_MAX, "the bound of all routes");
_Static_assert((int)EMBEDDING_INPUTS_MAX <= (int)SUBMIT_MAX, "the engine takes all at once");

/* Submits the requests. The prompt tokens of all inputs count for the rate and the quotas of the
 * key, those of inputs that are held back, too. */
static int submit(completion_t *completion, request_t *const *requests, int count,
                  inferd_error_t *error) {
  const server_t *server = completion->server;
  api_key_t *key = completion->key;
  int64_t tokens = 0, now_s = (int64_t)time(NULL);
  for (int32_t i = 0; i < completion->num_inputs; i++)
    tokens += input_prompt_tokens(&completion->inputs[i]);
  int code = 0;
  if (key != NULL) {
    int *wait_s = &completion->exchange->retry_after_s;
    code = api_key_check_tokens(key, tokens, completion->queued_ns, wait_s, error);
    if (code == 0) code = tally_check(server->tally, key, tokens, now_s, wait_s, error);
  }
  if (code == 0) code = engine_submit(server->engine, requests, count, error);
  if (code != 0) return code;
  api_key_take_tokens(key, tokens, completion->queued_ns);
  completion->tally = tally_row(server->tally, key, completion_model_name(completion));
  tally_reserve(completion->tally, tokens);
  tally_add(completion->tally, now_s, 1, 0, 0, 0);
  return 0;
}

/* The id by which a journal names the request; it outlives the exchange. NULL without memory. */
static const char *request_name(completion_t *completion) {
  const exchange_t *exchange = completion->exchange;
  if (completion->server->journal == NULL || exchange == NULL) return NULL;
  return arena_copy(&completion->arena, exchange->request_id, strlen(exchange->request_id));
}

static void admit(completion_t *completion) {
  server_t *server = completion->server;
  completions_t *live = server->live;
  request_t *requests[EMBEDDING_INPUTS_MAX];
  int count = 0;
  inferd_error_t error = {0};
  int code = find_adapter(completion, &error);
  uint64_t domain = completion_cache_domain(completion, completion->lora);
  uint64_t base_domain = completion_cache_domain(completion, NULL);
  take_request_id(completion);
  header_priority(completion);
  /* Hours of sound are decoded for longer than a request may wait in the queue. */
  const uint64_t arrival_ns = completion->dialect->hears ? clock_now_ns() : completion->arrival_ns;
  const char *name = request_name(completion);
  for (int32_t i = 0; i < completion->num_inputs; i++) {
    request_t *request = &completion->inputs[i].request;
    request->id = ++live->next_request_id;
    if (request->salt != domain) request->prompt_keys = NULL; /* they are of another domain */
    request->salt = domain;
    request->base_salt = base_domain;
    request->adapter = completion->lora != NULL ? completion->lora->slot : 0;
    request->adapter_dir = completion->lora != NULL ? completion->lora->path : NULL;
    request->name = name;
    request->tenant = completion->source;
    request->best_effort = completion->best_effort;
    request->quota = completion->key != NULL ? &completion->key->quota : NULL;
    request->arrival_ns = arrival_ns;
    if (!completion->inputs[i].held_back) requests[count++] = request;
  }
  stage_log_checked(completion);
  completion->queued_ns = clock_now_ns();
  if (code == 0 && server->phase >= SERVER_DRAINING) {
    code = error_set(&error, ERR_DRAINING, NULL, "The server is shutting down.");
  } else if (code == 0 && !completion->dialect->prepare(completion)) {
    code = error_set(&error, ERR_INTERNAL, NULL, "Out of memory.");
  } else if (code == 0) {
    code = submit(completion, requests, count, &error);
  }
  if (code != 0) {
    if (code == ERR_CONTEXT_LENGTH && error.param[0] == '\0') {
      snprintf(error.param, sizeof error.param, "%s", params_prompt_name(&completion->params));
    }
    completion_fail(completion, &error);
    return;
  }
  completion->admitted = true;
  stage_log_queued(completion);
  completion->outstanding = count;
  if (live->engine_requests == 0) live->busy_since_ns = completion->queued_ns;
  live->engine_requests += count;
  completion_forget_input(completion);
  metrics_admitted(server->metrics, completion->queued_ns - completion->arrival_ns);
}

/* ---- reading ---- */

/* Answers a request that is not run. */
static void describe(completion_t *completion) {
  inferd_error_t error;
  if (completion->dialect->describe(completion) && !cord_failed(&completion->reply)) {
    completion_reply(completion);
    return;
  }
  error_set(&error, ERR_INTERNAL, NULL, "Out of memory.");
  completion_fail(completion, &error);
}

/* Continues on the loop thread when the request was read: submits it, or answers with the error. */
static void after_reading(completion_t *completion) {
  const intake_t *intake = completion->intake;
  metrics_t *metrics = completion->server->metrics;
  if (intake->tokenize_bytes > 0) {
    metrics_tokenize(metrics, intake->tokenize_bytes, intake->tokenize_ns);
  }
  if (completion->exchange == NULL) {
    completion_release(completion);
    return;
  }
  if (intake->ignored[0] != '\0') {
    exchange_header(completion->exchange, "x-inferd-ignored-params", intake->ignored);
    metrics_ignored_params(metrics);
  }
  if (intake->mended[0] != '\0') {
    exchange_header(completion->exchange, "x-inferd-mended", intake->mended);
  }
  if (completion->grammar != NULL && grammar_ignored(completion->grammar)[0] != '\0') {
    exchange_header(completion->exchange, "x-inferd-ignored-keywords",
                    grammar_ignored(completion->grammar));
  }
  if (intake->code != 0) {
    completion_fail(completion, &intake->error);
  } else if (completion->dialect->describe != NULL) {
    describe(completion);
  } else if (completion->dialect->take_over != NULL) {
    completion->dialect->take_over(completion);
  } else {
    admit(completion);
  }
}

/* Whether pictures are to be fetched before the request can be built. */
static bool waits_for_media(completion_t *completion) {
  intake_t *intake = completion->intake;
  const chat_params_t *chat = &completion->params.chat;
  if (intake->code != 0 || chat->num_images == 0) return false;
  intake->code = pictures_ask(&completion->pictures, completion->server->media, chat->messages,
                              chat->num_images, &intake->error);
  return intake->code == 0 && media_job_waits(completion->pictures.remote);
}

/* Reads the request and builds the inputs; skips what was done before. A light job does not
 * compile, and reads no pictures; no job waits for those of other hosts. */
static void read_and_build(completion_t *completion, bool may_compile) {
  intake_t *intake = completion->intake;
  intake->needs_heavy = false;
  if (!intake->was_read) intake->code = completion_read(completion);
  intake->was_read = true;
  const bool waits = waits_for_media(completion);
  intake->needs_heavy = intake->code == 0 && completion->params.chat.num_images > 0 && !may_compile;
  if (waits || intake->needs_heavy) return;
  if (intake->code == 0 && !intake->was_built) intake->code = completion_build(completion);
  intake->was_built = true;
  bool runs = completion->dialect->describe == NULL;
  if (intake->code == 0 && runs) intake->code = completion_finish(completion, may_compile);
}

static void run_job(lane_job_t *job) {
  completion_t *completion = ((intake_t *)job)->completion;
  if (atomic_load(&completion->cancelled)) return; /* the client has disconnected */
  read_and_build(completion, job->kind == LANE_HEAVY);
}

/* The pictures of other hosts have come, or will not. */
static void on_media(void *owner) {
  completion_t *completion = owner;
  lanes_submit(completion->server->lanes, &completion->intake->job);
}

static void job_done(lane_job_t *job) {
  completion_t *completion = ((intake_t *)job)->completion;
  completions_t *live = completion->server->live;
  const bool waits = media_job_waits(completion->pictures.remote);
  completions_enter(live);
  if ((waits || completion->intake->needs_heavy) && completion->exchange != NULL) {
    job->kind = LANE_HEAVY;
    if (waits)
      media_job_begin(completion->pictures.remote, on_media, completion);
    else
      lanes_submit(completion->server->lanes, job);
  } else {
    completion->working = false;
    after_reading(completion);
  }
  completions_leave(live);
}

static intake_t *intake_new(exchange_t *exchange, const engine_info_t *info) {
  const config_t *config = exchange->server->config;
  intake_t *intake = calloc(1, sizeof *intake);
  if (intake == NULL) return NULL;
  if (!exchange_take_body(exchange, &intake->body)) {
    free(intake);
    return NULL;
  }
  const api_key_t *key = exchange->key;
  bool closed_by_key = key != NULL && key->limits.grammar_off;
  unsigned closed = closed_kinds(config->disable_grammar.items, config->disable_grammar.count);
  intake->limits = (field_limits_t){
      .vocab_size = info->vocab_size,
      .max_logprobs = config->max_logprobs < 0 ? info->vocab_size : (int32_t)config->max_logprobs,
      .inputs_max = (int32_t)MIN(config->max_queue_requests, (int64_t)EMBEDDING_INPUTS_MAX),
      .strict = config->strict_params,
      .lenient = config->lenient_history,
      .stores = exchange->server->store != NULL,
      .makes_later = !exchange->server->behind,
      .sees = info->vision != NULL,
      .hears = info->hearing != NULL,
      .images_max = (int32_t)config->limit_images,
      .sounds_max = (int32_t)config->limit_audio,
      .media = exchange->server->media,
      .deny_special_ids = config->deny_special_ids,
      .closed = closed_by_key ? CLOSED_ALL : closed,
      .closed_by_key = closed_by_key,
      .tokenizer = engine_tokenizer(exchange->server->engine),
      .model = info};
  bool no_text = tokenizer_is_none(engine_tokenizer(exchange->server->engine));
  bool model_defaults = strcmp(config->generation_config, "none") != 0;
  intake->defaults =
      (params_defaults_t){.model = model_defaults ? info : NULL,
                          .stream_interval = config->stream_interval,
                          .tokens_as_ids = config->return_tokens_as_token_ids || no_text,
                          .return_token_ids = no_text,
                          .force_include_usage = config->force_include_usage};
  return intake;
}

static completion_t *completion_new(exchange_t *exchange, const engine_info_t *info,
                                    const dialect_t *dialect) {
  completion_t *completion = calloc(1, sizeof *completion);
  if (completion == NULL) return NULL;
  completion->intake = intake_new(exchange, info);
  if (completion->intake == NULL) {
    free(completion);
    return NULL;
  }
  completion->intake->completion = completion;
  completion->intake->job =
      (lane_job_t){.run = run_job, .done = job_done, .client = exchange->source};
  completion->server = exchange->server;
  completion->arena.chunk_size = ARENA_BYTES_FIRST / 2;
  completion->dialect = dialect;
  completion->exchange = exchange;
  completion->info = info;
  completion->tokenizer = engine_tokenizer(exchange->server->engine);
  completion->tenant = exchange->tenant;
  completion->source = exchange->source;
  completion->key = api_key_use(exchange->key);
  completion->ids = charge_open(exchange->server->ledger, exchange->source, LEDGER_ids);
  completion->pictures = pictures_open(exchange->server, exchange->source);
  completion->output = charge_open(exchange->server->ledger, exchange->source, LEDGER_output);
  completion->intake->values =
      charge_open(exchange->server->ledger, exchange->source, LEDGER_values);
  completion->arrival_ns = exchange->arrival_ns;
  completion->seed = exchange->seed;
  completion->best_effort = exchange->best_effort;
  return completion;
}

/* Counts the request for its key, and refuses it before its body is read if the key has no place
 * left in the queue, or has used up its rate. The engine checks the queue again when the number of
 * prompts is known. */
static bool refuse_early(exchange_t *exchange) {
  inferd_error_t error;
  api_key_t *key = exchange->key;
  metrics_t *metrics = exchange->server->metrics;
  /* An errand, also one of the parent, was counted when it came. */
  if (key == NULL || exchange->is_errand || exchange->best_effort) return false;
  exchange->shows_rates = true;
  metrics_key_request(metrics, key);
  int code = quota_check(&key->quota, 1, 0, &error);
  if (code == 0) {
    code = tally_check(exchange->server->tally, key, 1, (int64_t)time(NULL),
                       &exchange->retry_after_s, &error);
  }
  if (code == 0) {
    code = api_key_take_request(key, clock_now_ns(), &exchange->retry_after_s, &error);
  }
  if (code == 0) return false;
  metrics_rejected(metrics, error.code);
  metrics_key_refused(metrics, key, error.code);
  exchange_error(exchange, &error);
  return true;
}

/* A model has one task: refuses a route of another, and names the task. */
static bool refuse_task(exchange_t *exchange, const dialect_t *dialect, const engine_info_t *info) {
  static const char *const served[] = {
      [TASK_GENERATE] = "generates and makes no embeddings or scores (--task embed makes a server "
                        "of embeddings of it). Use /v1/completions or /v1/chat/completions.",
      [TASK_EMBED] = "makes embeddings and does not generate or classify. Use /v1/embeddings; "
                     "/rerank and /score compare them.",
      [TASK_CLASSIFY] = "classifies texts (task classify). Use /classify or /pooling.",
      [TASK_RERANK] = "scores pairs of texts (task rerank). Use /rerank or /score.",
      [TASK_TAG] = "classifies each token (task token_classify). Use /classify or /pooling."};
  inferd_error_t error;
  engine_task_t task = info->embedding != NULL ? info->embedding->task : TASK_GENERATE;
  unsigned tasks = dialect->table != NULL ? dialect->tasks : 1U << TASK_GENERATE;
  const bool hears = info->speech != NULL;
  const char *what = served[task];
  if (info->source != NULL)
    what = "has an encoder and a decoder: it makes one text of another and holds no conversation. "
           "Use /v1/completions.";
  if (hears) what = "writes down speech. Use /v1/audio/transcriptions or /v1/audio/translations.";
  const bool other = info->source != NULL && (dialect->is_chat || dialect->table != NULL);
  if (dialect->hears && !hears)
    error_set(&error, ERR_UNSUPPORTED_ENDPOINT, NULL, "The served model does not hear: it %s",
              what);
  else if (!other &&
           (dialect->describe != NULL || ((tasks & 1U << task) != 0 && dialect->hears == hears)))
    return false;
  else
    error_set(&error, ERR_UNSUPPORTED_ENDPOINT, NULL, "The served model %s", what);
  metrics_rejected(exchange->server->metrics, error.code);
  exchange_error(exchange, &error);
  return true;
}

void completion_start(exchange_t *exchange, const dialect_t *dialect) {
  server_t *server = exchange->server;
  completions_t *live = server->live;
  inferd_error_t error;
  const engine_info_t *info = engine_info(server->engine);
  if (info == NULL) {
    error_set(&error, ERR_MODEL_LOADING, NULL, "The model is still loading.");
    metrics_rejected(server->metrics, error.code);
    metrics_own_unavailable(server->metrics);
    exchange_error(exchange, &error);
    return;
  }
  if (refuse_task(exchange, dialect, info)) return;
  if (dialect->describe == NULL && refuse_early(exchange)) return;
  if (dialect->is_chat) chat_model_ready(live, server->config, engine_tokenizer(server->engine));
  completion_t *completion = completion_new(exchange, info, dialect);
  if (completion == NULL) {
    error_set(&error, ERR_INTERNAL, NULL, "Out of memory.");
    exchange_error(exchange, &error);
    return;
  }
  completions_enter(live);
  completion->next = live->first;
  if (live->first != NULL) live->first->previous = completion;
  live->first = completion;
  live->count++;
  exchange->user = completion;
  exchange->on_gone = completion_gone;
  exchange->on_abort = completion_aborted;
  intake_t *intake = completion->intake;
  bool is_small = intake->body.length <= POOL_BODY_BYTES && dialect->unpack == NULL;
  if (dialect->open != NULL && !dialect->open(completion)) {
    error_set(&error, ERR_INTERNAL, NULL, "Out of memory.");
    completion_fail(completion, &error);
    completions_leave(live);
    return;
  }
  if (is_small && (dialect->waits == NULL || !dialect->waits(completion))) {
    intake->code = completion_read(completion);
    intake->was_read = true;
  }
  const bool is_work = completion->params.num_row_prompts > 0 || completion_has_text(completion);
  if (!intake->was_read || (intake->code == 0 && is_work)) {
    intake->job.kind = is_small ? LANE_LIGHT : LANE_HEAVY;
    completion->working = true;
    lanes_submit(server->lanes, &intake->job);
  } else {
    read_and_build(completion, true);
    after_reading(completion);
  }
  completions_leave(live);
}

void api_completions(exchange_t *exchange) {
  completion_start(exchange, &text_dialect);
}

void api_chat_completions(exchange_t *exchange) {
  completion_start(exchange, &chat_dialect);
}
