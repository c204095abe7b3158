/* api_completion.c: the life of a completion request: read, tokenise, admit, cancel, free.
 *
 * Stage 2 of 9: body -> admitted requests. Loop thread; the heavy half of reading runs in libuv's
 * pool through api_completion_prompt.c. Nothing of a 200 is written before the engine has admitted
 * every prompt of the request. Next: engine/mailbox.c; the events come back in
 * api_completion_events.c.
 */
#include "server/api_completion.h"

#include "engine/clock.h"
#include "server/metrics.h"
#include "server/sse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* ---- the set of all completions ---- */

int completions_new(server_t *server) {
  completions_t *live = calloc(1, sizeof *live);
  if (live == NULL) return ERR_NO_MEMORY;
  live->server = server;
  uv_mutex_init(&live->scratch_lock);
  server->live = live;
  if (getrandom(live->salt_key, sizeof live->salt_key, 0) != (ssize_t)sizeof live->salt_key ||
      model_names_set(live, server->config) != 0) {
    completions_free(server);
    return ERR_NO_MEMORY;
  }
  return 0;
}

void completions_free(server_t *server) {
  completions_t *live = server->live;
  if (live == NULL) return;
  CHECK(live->count == 0);
  for (int i = 0; i < live->num_scratches; i++) tokenizer_scratch_free(live->scratches[i]);
  uv_mutex_destroy(&live->scratch_lock);
  buffer_free(&live->scratch);
  free(live->default_name);
  free(live);
  server->live = NULL;
}

int completions_live(const server_t *server) {
  return server->live != NULL ? server->live->count + server->live->jobs : 0;
}

tokenizer_scratch_t *scratch_take(completions_t *live, const tokenizer_t *tokenizer) {
  tokenizer_scratch_t *scratch = NULL;
  uv_mutex_lock(&live->scratch_lock);
  if (live->num_scratches > 0) scratch = live->scratches[--live->num_scratches];
  uv_mutex_unlock(&live->scratch_lock);
  return scratch != NULL ? scratch : tokenizer_scratch_new(tokenizer);
}

void scratch_give(completions_t *live, tokenizer_scratch_t *scratch) {
  int room = (int)(sizeof live->scratches / sizeof live->scratches[0]);
  if (scratch == NULL) return;
  uv_mutex_lock(&live->scratch_lock);
  if (live->num_scratches < room) {
    live->scratches[live->num_scratches++] = scratch;
    scratch = NULL;
  }
  uv_mutex_unlock(&live->scratch_lock);
  tokenizer_scratch_free(scratch);
}

/* ---- birth and death ---- */

static void destroy(completion_t *completion) {
  for (int32_t i = 0; i < completion->num_choices; i++) {
    choice_t *choice = &completion->choices[i];
    free(choice->ids);
    free(choice->decoded);
    buffer_free(&choice->text);
    buffer_free(&choice->token_ids);
    buffer_free(&choice->prompt_logprobs);
    logprob_text_free(&choice->logprobs);
  }
  stop_set_free(completion->stops);
  json_free(completion->doc);
  arena_free(&completion->arena);
  free(completion->body);
  free(completion);
}

void completions_enter(completions_t *live) {
  live->depth++;
}

void completions_leave(completions_t *live) {
  if (--live->depth > 0) return;
  while (live->dead != NULL) {
    completion_t *completion = live->dead;
    live->dead = completion->next;
    destroy(completion);
  }
}

/* Takes it out of the living once exchange, job and engine are through; completions_leave frees. */
void completion_release(completion_t *completion) {
  completions_t *live = completion->server->live;
  if (completion->exchange != NULL || completion->working || completion->outstanding > 0) return;
  if (completion->released) return;
  completion->released = true;
  if (completion->previous != NULL) completion->previous->next = completion->next;
  if (live->first == completion) live->first = completion->next;
  if (completion->next != NULL) completion->next->previous = completion->previous;
  live->count--;
  completion->next = live->dead;
  live->dead = completion;
}

void completion_cancel(completion_t *completion) {
  atomic_store(&completion->cancelled, true);
  if (completion->outstanding == 0) return;
  for (int32_t i = 0; i < completion->num_choices; i++) {
    choice_t *choice = &completion->choices[i];
    if (!choice->done) engine_cancel(completion->server->engine, &choice->request);
  }
}

static void add_ignored_header(completion_t *completion) {
  if (completion->num_ignored == 0 || completion->counted) return;
  completion->counted = true;
  exchange_header(completion->exchange, "x-inferd-ignored-params", completion->ignored);
  metrics_ignored_params(completion->server->metrics);
}

void completion_count_end(completion_t *completion, int status, finish_reason_t finish) {
  int32_t longest = 0;
  for (int32_t i = 0; i < completion->num_choices; i++) {
    if (completion->choices[i].num_tokens > longest) longest = completion->choices[i].num_tokens;
  }
  metrics_request_done(completion->server->metrics, status, finish, (int32_t)completion->params.n,
                       longest);
}

static double milliseconds(uint64_t from_ns, uint64_t to_ns) {
  return from_ns == 0 || to_ns < from_ns ? -1 : (double)(to_ns - from_ns) * 1e-6;
}

/* What the access line says: sums over the prompts, times of the first one. */
static void fill_log(completion_t *completion) {
  static const char *const finish[] = {NULL, "stop", "length", "abort", "error"};
  exchange_log_t *log = &completion->exchange->log;
  log->model = completion->server->live->names[0];
  if (!completion->admitted) return;
  const choice_t *first = &completion->choices[0];
  log->finish = finish[first->finish];
  log->prompt_tokens = log->cached_tokens = log->generated_tokens = 0;
  for (int32_t i = 0; i < completion->num_choices; i++) {
    log->prompt_tokens += completion->choices[i].request.num_prompt_tokens;
    log->cached_tokens += completion->choices[i].num_cached_tokens;
    log->generated_tokens += completion->choices[i].num_tokens;
  }
  log->queue_ms = milliseconds(completion->queued_ns, first->scheduled_ns);
  log->ttft_ms = milliseconds(completion->arrival_ns, first->first_token_ns);
  if (first->num_tokens > 1) {
    double decode_ms = milliseconds(first->first_token_ns, first->last_token_ns);
    log->itl_ms = decode_ms / (first->num_tokens - 1);
  }
}

exchange_t *completion_take_exchange(completion_t *completion) {
  exchange_t *exchange = completion->exchange;
  if (exchange != NULL) fill_log(completion);
  completion->exchange = NULL;
  return exchange;
}

/* The one way in which a completion ends badly while its client is still there. */
void completion_fail(completion_t *completion, const error_t *error) {
  metrics_t *metrics = completion->server->metrics;
  exchange_t *exchange;
  if (completion->exchange == NULL) return;
  if (completion->admitted) {
    completion_count_end(completion, error_http_status(error->code), FINISH_ERROR);
    if (error->code == ERR_QUEUE_TIMEOUT) metrics_aborted(metrics, "queue_timeout");
  } else {
    metrics_rejected(metrics, error->code);
  }
  if (completion->streaming) {
    sse_error(completion, error);
    exchange = completion_take_exchange(completion);
    if (exchange != NULL) exchange_end(exchange);
  } else {
    if (error_http_status(error->code) == 503) metrics_own_unavailable(metrics);
    exchange_error(completion_take_exchange(completion), error);
  }
  completion_cancel(completion);
  completion_release(completion);
}

static void on_gone(exchange_t *exchange, const char *cause) {
  completion_t *completion = exchange->user;
  completions_t *live = completion->server->live;
  completions_enter(live);
  completion_take_exchange(completion);
  if (completion->admitted) {
    completion_count_end(completion, 499, FINISH_ABORT);
    metrics_aborted(completion->server->metrics, cause);
  }
  completion_cancel(completion);
  completion_release(completion);
  completions_leave(live);
}

/* ---- admission ---- */

static uint64_t rotate(uint64_t x, int bits) {
  return (x << bits) | (x >> (64 - bits));
}

static void sip_round(uint64_t v[4]) {
  v[0] += v[1], v[2] += v[3];
  v[1] = rotate(v[1], 13) ^ v[0], v[3] = rotate(v[3], 16) ^ v[2];
  v[0] = rotate(v[0], 32);
  v[2] += v[1], v[0] += v[3];
  v[1] = rotate(v[1], 17) ^ v[2], v[3] = rotate(v[3], 21) ^ v[0];
  v[2] = rotate(v[2], 32);
}

static void sip_word(uint64_t v[4], uint64_t word) {
  v[3] ^= word;
  sip_round(v);
  sip_round(v);
  v[0] ^= word;
}

/* SipHash-2-4 (Aumasson, Bernstein 2012) over the tenant, then the salt: nobody can choose a salt
 * that falls into another one's domain. */
uint64_t salt_hash(const uint64_t key[2], uint64_t tenant, const char *salt, size_t length) {
  uint64_t v[4] = {key[0] ^ 0x736f6d6570736575u, key[1] ^ 0x646f72616e646f6du,
                   key[0] ^ 0x6c7967656e657261u, key[1] ^ 0x7465646279746573u};
  sip_word(v, tenant);
  uint64_t word = 0;
  for (size_t i = 0; i < length; i++) {
    word |= (uint64_t)(uint8_t)salt[i] << (8 * (i % 8));
    if (i % 8 == 7) {
      sip_word(v, word);
      word = 0;
    }
  }
  sip_word(v, word | (uint64_t)(length + 8) << 56);
  v[2] ^= 0xff;
  for (int i = 0; i < 4; i++) sip_round(v);
  return v[0] ^ v[1] ^ v[2] ^ v[3];
}

static uint64_t cache_domain(const completion_t *completion) {
  const json_t *salt = completion->params.cache_salt;
  const char *share = completion->server->config->prefix_share;
  uint64_t tenant = strcmp(share, "global") == 0 ? 0 : completion->tenant;
  if (salt == NULL) return tenant;
  return salt_hash(completion->server->live->salt_key, tenant, salt->text, salt->length);
}

/* The body's request_id counts when no header gave one. */
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
  for (int32_t i = 0; i < completion->num_choices; i++) {
    completion->choices[i].request.priority = priority;
  }
}

/* What was sent is not needed once the engine has its requests: a long prompt would otherwise stay
 * in memory as text for as long as its answer takes. */
static void forget_input(completion_t *completion) {
  json_free(completion->doc);
  free(completion->body);
  completion->doc = NULL;
  completion->body = NULL;
  completion->params.model = completion->params.cache_salt = completion->params.request_id = NULL;
}

static void admit(completion_t *completion) {
  server_t *server = completion->server;
  completions_t *live = server->live;
  request_t *requests[PROMPTS_MAX];
  error_t error = {0};
  uint64_t domain = cache_domain(completion);
  take_request_id(completion);
  header_priority(completion);
  for (int32_t i = 0; i < completion->num_choices; i++) {
    request_t *request = &completion->choices[i].request;
    request->id = ++live->next_request_id;
    request->salt = domain;
    request->arrival_ns = completion->arrival_ns;
    requests[i] = request;
  }
  int code = 0;
  completion->queued_ns = clock_now_ns();
  if (server->draining) {
    code = error_set(&error, ERR_DRAINING, NULL, "The server is shutting down.");
  } else if (!sse_prepare(completion)) {
    code = error_set(&error, ERR_INTERNAL, NULL, "Out of memory.");
  } else {
    code = engine_submit(server->engine, requests, completion->num_choices, &error);
  }
  if (code != 0) {
    if (code == ERR_CONTEXT_LENGTH && error.param[0] == '\0') {
      snprintf(error.param, sizeof error.param, "prompt");
    }
    completion_fail(completion, &error);
    return;
  }
  completion->admitted = true;
  completion->outstanding = completion->num_choices;
  if (live->engine_requests == 0) live->busy_since_ns = completion->queued_ns;
  live->engine_requests += completion->num_choices;
  forget_input(completion);
  metrics_admitted(server->metrics, completion->queued_ns - completion->arrival_ns);
}

/* ---- reading ---- */

/* What reading has come to, on the loop thread again. */
static void after_reading(completion_t *completion) {
  if (completion->tokenize_bytes > 0) {
    metrics_tokenize(completion->server->metrics, completion->tokenize_bytes,
                     completion->tokenize_ns);
  }
  if (completion->exchange == NULL) {
    completion_release(completion);
    return;
  }
  add_ignored_header(completion);
  if (completion->code != 0) {
    completion_fail(completion, &completion->error);
  } else {
    admit(completion);
  }
}

static void work_in_pool(uv_work_t *work) {
  completion_t *completion = work->data;
  if (!completion->was_read) completion->code = completion_read(completion);
  if (completion->code == 0) completion->code = completion_build(completion);
}

static void after_work(uv_work_t *work, int status) {
  completion_t *completion = work->data;
  completions_t *live = completion->server->live;
  completions_enter(live);
  completion->working = false;
  if (status != 0 && completion->code == 0) {
    completion->code =
        error_set(&completion->error, ERR_INTERNAL, NULL, "The request was dropped.");
  }
  after_reading(completion);
  completions_leave(live);
}

static completion_t *completion_new(exchange_t *exchange, const engine_info_t *info) {
  server_t *server = exchange->server;
  const config_t *config = server->config;
  completion_t *completion = calloc(1, sizeof *completion);
  if (completion == NULL) return NULL;
  /* A copy: the client may go, and its body with it, while the pool still reads. */
  completion->body = malloc(exchange->body_length + 1);
  if (completion->body == NULL) {
    free(completion);
    return NULL;
  }
  memcpy(completion->body, exchange->body, exchange->body_length);
  completion->body[exchange->body_length] = '\0';
  completion->body_length = exchange->body_length;
  completion->server = server;
  completion->exchange = exchange;
  completion->info = info;
  completion->tokenizer = engine_tokenizer(server->engine);
  completion->tenant = exchange->tenant;
  completion->arrival_ns = exchange->arrival_ns;
  completion->limits = (field_limits_t){.vocab_size = info->vocab_size,
                                        .max_logprobs = (int32_t)config->max_logprobs,
                                        .strict = config->strict_params,
                                        .deny_special_ids = config->deny_special_ids,
                                        .tokenizer = completion->tokenizer};
  bool model_defaults = strcmp(config->generation_config, "none") != 0;
  completion->defaults = (params_defaults_t){.model = model_defaults ? info : NULL,
                                             .stream_interval = config->stream_interval,
                                             .tokens_as_ids = config->return_tokens_as_token_ids,
                                             .force_include_usage = config->force_include_usage};
  completion->work.data = completion;
  return completion;
}

void api_completions(exchange_t *exchange) {
  server_t *server = exchange->server;
  completions_t *live = server->live;
  error_t error;
  const engine_info_t *info = engine_info(server->engine);
  if (info == NULL) {
    error_set(&error, ERR_MODEL_LOADING, NULL, "The model is still loading.");
    metrics_rejected(server->metrics, error.code);
    metrics_own_unavailable(server->metrics);
    exchange_error(exchange, &error);
    return;
  }
  completion_t *completion = completion_new(exchange, info);
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
  exchange->on_gone = on_gone;
  if (completion->body_length <= POOL_BODY_BYTES) {
    completion->code = completion_read(completion);
    completion->was_read = true;
  }
  bool heavy = !completion->was_read || (completion->code == 0 && completion_has_text(completion));
  if (heavy && uv_queue_work(server->loop, &completion->work, work_in_pool, after_work) == 0) {
    completion->working = true;
  } else {
    if (!completion->was_read) completion->code = completion_read(completion);
    if (completion->code == 0) completion->code = completion_build(completion);
    after_reading(completion);
  }
  completions_leave(live);
}
