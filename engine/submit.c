/* submit.c: the calls that the loop thread makes: requests in, events out, cancels, adapters.
 *
 * Stage 3 of 9: requests -> waiting queue, within the limits of share.h and quota.h. Loop thread,
 * unless engine.h says otherwise; never waits for the engine thread. Allocates nothing. Next:
 * engine/mailbox.c.
 */
#include "engine/internal.h"

#include "engine/base/check.h"
#include "engine/base/clock.h"
#include "engine/base/util.h"
#include "engine/quota.h"
#include "engine/sample/choices.h"
#include "engine/sample/scores.h"
#include "engine/schedule/window/window.h"

#include <math.h>

enum { RETRY_AFTER_MAX_S = 120 };

double engine_progress(const engine_t *engine) {
  return atomic_load(&engine->progress_permille) / 1000.0;
}

void engine_failure(const engine_t *engine, inferd_error_t *out) {
  const replicas_t *replicas = &engine->replicas;
  int32_t i = 0;
  while (i < replicas->count - 1 && engine_own_state(replicas->all[i]) != ENGINE_FAILED) i++;
  *out = replicas->all[i]->failure;
}

const engine_info_t *engine_info(const engine_t *engine) {
  return engine_state(engine) == ENGINE_LOADING || engine->info.block_size == 0 ? NULL
                                                                                : &engine->info;
}

const tokenizer_t *engine_tokenizer(const engine_t *engine) {
  return engine_state(engine) == ENGINE_LOADING ? NULL : engine->tokenizer;
}

static int check_state(const engine_t *engine, inferd_error_t *error) {
  switch (engine_state(engine)) {
  case ENGINE_READY: return 0;
  case ENGINE_LOADING: return error_set(error, ERR_MODEL_LOADING, NULL, "The model is loading.");
  default: return error_set(error, ERR_ENGINE_FAILED, NULL, "The engine has failed.");
  }
}

/* Beams share the full blocks of the prompt and no others. With states none: a group that was
 * preempted finds no common blocks again. */
static int64_t count_shared(const engine_t *engine, int64_t prompt_tokens) {
  return engine->scheduler->options.has_states ? 0 : prompt_tokens / engine->info.block_size;
}

/* Blocks of the window groups (sides.h) of `count` sequences of so many tokens. Several that were
 * preempted compute again together, and their chunks come from one step. */
static int64_t count_sides(const engine_t *engine, int32_t count, int64_t tokens) {
  const scheduler_options_t *options = &engine->scheduler->options;
  int32_t block_size = engine->info.block_size;
  if (engine->pool->num_sides == 0) return 0;
  int64_t each = window_blocks(block_size, options->window.tokens, tokens,
                               count > 1 ? 1 : options->window.in_flight);
  int64_t most = count * (int64_t)DIV_UP(tokens, block_size), all = count * each;
  if (count > 1) all += count + 2 * (int64_t)DIV_UP(options->window.in_flight, block_size);
  return engine->pool->num_sides * MIN(all, most);
}

/* Blocks of what runs at once of a request in the worst case: one choice, or all beams. */
static int64_t count_blocks(const engine_t *engine, const request_t *request, int64_t max_tokens) {
  int32_t count = params_width(&request->params);
  int64_t shared = count_shared(engine, request->num_prompt_tokens);
  int64_t tokens = request->num_prompt_tokens + max_tokens;
  int64_t all = DIV_UP(tokens, engine->info.block_size);
  return shared + count * (all - shared) + count_sides(engine, count, tokens);
}

/* By halving: with window groups the blocks grow with the tokens as long as the window lasts. */
static int64_t most_tokens(const engine_t *engine, const request_t *request) {
  int64_t low = 0, high = MAX(engine->info.max_model_len - request->num_prompt_tokens, 0);
  while (low < high) {
    int64_t middle = low + (high - low + 1) / 2;
    if (count_blocks(engine, request, middle) <= engine->info.num_blocks - 1) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

int64_t engine_max_tokens(const engine_t *engine, const request_t *request) {
  if (engine->pool->num_sides > 0) return most_tokens(engine, request);
  int64_t shared = count_shared(engine, request->num_prompt_tokens);
  int64_t unshared = engine->info.num_blocks - 1 - shared;
  int64_t each = unshared / params_width(&request->params);
  int64_t held = (shared + each) * engine->info.block_size;
  return MAX(MIN(held, engine->info.max_model_len) - request->num_prompt_tokens, 0);
}

/* A prompt must fit in `max_model_len`, minus one token if at least one is to be generated. A
 * request that needs more blocks than the pool has would wait for ever, so it is refused. */
static int check_fits(const engine_t *engine, const request_t *request, inferd_error_t *error) {
  int64_t tokens = (int64_t)request->num_prompt_tokens + request->params.max_tokens;
  int64_t shared = count_shared(engine, request->num_prompt_tokens);
  int64_t all = DIV_UP(tokens, engine->info.block_size);
  int32_t count = params_width(&request->params);
  int64_t sides = count_sides(engine, count, tokens);
  int64_t need = shared + count * (all - shared) + sides;
  if (request->num_prompt_tokens + (request->params.max_tokens > 0) > engine->info.max_model_len) {
    return error_set(
        error, ERR_CONTEXT_LENGTH, "prompt",
        "This model's maximum context length is %d tokens. However, the prompt has %d.",
        engine->info.max_model_len, request->num_prompt_tokens);
  }
  if (need <= engine->info.num_blocks - 1) return 0;
  if (count > 1 && sides == 0) {
    return error_set(error, ERR_CONTEXT_LENGTH, "prompt",
                     "%lld tokens in %d beams take %lld + %d x %lld = %lld KV blocks of %d; "
                     "this server has %d.",
                     (long long)tokens, count, (long long)shared, count, (long long)(all - shared),
                     (long long)need, engine->info.block_size, engine->info.num_blocks - 1);
  }
  return error_set(error, ERR_CONTEXT_LENGTH, "prompt",
                   "This model's maximum context length is %d tokens. However, you requested %lld "
                   "tokens, which take %lld KV blocks of %d; there are %d.",
                   engine->info.max_model_len, (long long)tokens, (long long)need,
                   engine->info.block_size, engine->info.num_blocks - 1);
}

size_t engine_room_bytes(const sampling_params_t *params) {
  return choices_bytes(params);
}

size_t engine_scores_bytes(const engine_t *engine, const sampling_params_t *params,
                           int32_t num_prompt_tokens) {
  return scores_bytes(engine, params, num_prompt_tokens);
}

static int check_choices(const engine_t *engine, const request_t *request, inferd_error_t *error) {
  const sampling_params_t *params = &request->params;
  int32_t count = params_num_sequences(params), width = params_width(params);
  int32_t most = MIN(engine->info.max_num_seqs, BEAM_SEQUENCES_MAX);
  const char *field =
      params->best_of > params->n || params->beam_width > params->n ? "best_of" : "n";
  if (width > most) {
    return error_set(error, ERR_BAD_REQUEST, field,
                     "%s asks for %d beams at once; this server runs at most %d.", field, width,
                     most);
  }
  if (params_collect(params) && request->room == NULL) {
    return error_set(error, ERR_INTERNAL, field, "no room was lent for %d sequences", count);
  }
  if (request->scores == NULL && scores_bytes(engine, params, request->num_prompt_tokens) > 0) {
    return error_set(error, ERR_INTERNAL, "logprobs", "no room was lent for its rows");
  }
  return 0;
}

size_t engine_hash_prompt(const engine_t *engine, const request_t *request, void *out) {
  const block_pool_t *pool = engine->pool;
  if (!pool->caching) return 0;
  int32_t count = request->num_prompt_tokens / pool->block_size;
  if (out != NULL) prefix_request_keys(pool, request, count, out);
  return (size_t)count * sizeof(block_key_t);
}

/* An engine either generates or embeds, by one way of pooling. */
static int check_task(const engine_t *engine, const request_t *request, inferd_error_t *error) {
  pooling_t pooling = engine->embeds ? engine->embedding.pooling : POOLING_NONE;
  if (request->pooling != pooling) {
    return error_set(error, ERR_UNSUPPORTED_ENDPOINT, NULL,
                     engine->embeds ? "The model makes vectors; it does not generate."
                                    : "The model generates; it makes no vectors.");
  }
  if (pooling == POOLING_NONE || (request->pooled != NULL && request->params.max_tokens == 0))
    return 0;
  return error_set(error, ERR_INTERNAL, NULL, "a request to embed has no room, or max_tokens");
}

/* Takes what one replica has said about requests that wait no longer. */
static void note_left(engine_t *engine) {
  for (int32_t slot = mailbox_left(engine->mailbox); slot >= 0;
       slot = mailbox_left(engine->mailbox)) {
    share_left(engine->share, replicas_share_slot(engine, slot));
    replicas_left(engine, slot);
  }
}

/* Ends a request that made room for another, which wakes its own replica only. */
static void drop(void *context, int32_t slot) {
  const engine_t *leader = context;
  engine_t *engine = replicas_of_share_slot(leader, &slot);
  mailbox_cancel(engine->mailbox, slot);
  if (leader->replicas.count > 1) mailbox_wake(engine->mailbox);
}

/* Each replica has a slot for all the requests: which of them gets one is not chosen yet. */
static bool has_slots(const engine_t *engine, int32_t count) {
  const replicas_t *replicas = &engine->replicas;
  for (int32_t i = 0; i < replicas->count; i++)
    if (replicas->all[i]->loop_live + count > replicas->all[i]->num_groups) return false;
  return true;
}

/* Makes room in the queue. Returns ERR_QUEUE_FULL if the client itself has most of what waits. */
static int make_room(engine_t *engine, const share_ask_t *ask, inferd_error_t *error) {
  int64_t tokens = engine->options.max_queue_tokens;
  if (tokens <= 0) tokens = 4 * engine->info.kv_tokens * engine->replicas.count;
  share_limits_t limits = {.num_requests = engine->options.max_queue_requests,
                           .num_tokens = tokens};
  for (int32_t i = 0; i < engine->replicas.count; i++) note_left(engine->replicas.all[i]);
  bool fits = has_slots(engine, ask->num_requests) && share_has_room(engine->share, ask, &limits) &&
              share_make_room(engine->share, ask, &limits, drop, engine);
  if (fits) return 0;
  share_count_t count = share_count(engine->share);
  return error_set(error, ERR_QUEUE_FULL, NULL,
                   "The server is busy: %d requests with %lld prompt tokens are waiting; at most "
                   "%d with %lld may wait.",
                   count.num_requests, (long long)count.num_tokens, limits.num_requests,
                   (long long)limits.num_tokens);
}

void engine_set_queue(engine_t *engine, int32_t requests, int64_t tokens) {
  engine->options.max_queue_requests = requests;
  engine->options.max_queue_tokens = tokens;
}

/* Gives a request a slot of its replica. Returns its number in share_t. */
static int32_t take_slot(engine_t *engine, request_t *request) {
  if (engine->loop_live == 0) atomic_store(&engine->replicas.busy_since_ns, clock_now_ns());
  request->slot = engine->free_slots[engine->num_groups - ++engine->loop_live];
  atomic_fetch_add(&engine->queued_requests, 1);
  atomic_fetch_add(&engine->queued_tokens, request->num_prompt_tokens);
  quota_wait(request->quota, request->num_prompt_tokens);
  replicas_wait(engine, request);
  return replicas_share_slot(engine, request->slot);
}

/* Posts the requests: each gets a slot, and all of them together are one bundle. */
static void post(engine_t *engine, request_t *const *requests, int count) {
  const replicas_t *replicas = &engine->replicas;
  int32_t slots[SUBMIT_MAX] = {0}, tokens[SUBMIT_MAX] = {0};
  bool posted[REPLICAS_MAX] = {false};
  for (int i = 0; i < count; i++) {
    slots[i] = take_slot(replicas->all[requests[i]->replica], requests[i]);
    tokens[i] = requests[i]->num_prompt_tokens;
  }
  share_add(engine->share, requests[0]->tenant, slots, tokens, count);
  for (int i = 0; i < count; i++) {
    mailbox_post(replicas->all[requests[i]->replica]->mailbox, requests[i]);
    posted[requests[i]->replica] = true;
  }
  for (int32_t i = 0; i < replicas->count; i++)
    if (posted[i]) mailbox_wake(replicas->all[i]->mailbox);
}

/* Finds out where the adapter of a request begins, before the blocks of its prompt get keys. */
static void find_adapter(const engine_t *engine, request_t *request) {
  const invocation_t *invocation = &engine->invocations[MAX(request->adapter, 1) - 1];
  if (request->adapter == 0 || invocation->count == 0) return;
  if (request->rows != NULL) { /* which are no tokens */
    request->adapter_from = INT32_MAX;
    return;
  }
  request->adapter_from =
      invocation_find(invocation, request->prompt_ids, request->num_prompt_tokens);
}

int engine_submit(engine_t *engine, request_t *const *requests, int count, inferd_error_t *error) {
  int code = check_state(engine, error);
  share_ask_t ask = {.client = requests[0]->tenant, .num_requests = count};
  CHECK_RANGE(count, 1, SUBMIT_MAX + 1);
  for (int i = 0; i < count && !code; i++) {
    code = check_fits(engine, requests[i], error);
    if (!code) code = check_choices(engine, requests[i], error);
    if (!code) code = check_task(engine, requests[i], error);
    if (!code) code = sight_check(engine, requests[i], error);
    if (!code) code = encoding_check(engine, requests[i], error);
    if (!code) code = rows_check(engine, requests[i], error);
    ask.num_tokens += requests[i]->num_prompt_tokens;
  }
  if (!code) code = quota_check(requests[0]->quota, count, ask.num_tokens, error);
  if (!code) code = make_room(engine, &ask, error);
  if (code) return code;
  for (int i = 0; i < count; i++) find_adapter(engine, requests[i]);
  replicas_choose(engine, requests, count);
  post(engine, requests, count);
  return 0;
}

/* Until what waits now has begun: by the rate at which requests end, which says how fast seats
 * become free, and by the costs of their prompts, which are known before any has ended. */
static int own_retry_after_s(const engine_t *engine) {
  int rate = atomic_load(&engine->finish_rate_milli);
  double prompts_us = (double)atomic_load(&engine->queued_tokens) *
                      (double)atomic_load(&engine->wait_token_ns) / 1e3;
  double wait_s = (prompts_us + (double)atomic_load(&engine->wait_base_us)) / 1e6;
  if (rate > 0) wait_s = fmax(wait_s, (atomic_load(&engine->queued_requests) + 1) * 1000.0 / rate);
  return wait_s < 1 ? 1 : wait_s > RETRY_AFTER_MAX_S ? RETRY_AFTER_MAX_S : (int)ceil(wait_s);
}

/* Of several replicas the first one that has room. */
int engine_retry_after_s(const engine_t *engine) {
  int least_s = own_retry_after_s(engine);
  for (int32_t i = 1; i < engine->replicas.count; i++)
    least_s = MIN(least_s, own_retry_after_s(engine->replicas.all[i]));
  return least_s;
}

void engine_cancel(engine_t *engine, request_t *request) {
  mailbox_t *mailbox = engine->replicas.all[request->replica]->mailbox;
  atomic_store_explicit(&request->cancelled, true, memory_order_release);
  mailbox_cancel(mailbox, request->slot);
  mailbox_wake(mailbox);
}

typedef struct drain_context {
  engine_t *engine;
  void (*handle)(void *context, const event_t *event);
  void *context;
} drain_context_t;

static void count_done(void *context, const event_t *event) {
  drain_context_t *drain = context;
  if (event->kind == EVENT_DONE) {
    engine_t *engine = drain->engine;
    bool complete = event->finish == FINISH_STOP || event->finish == FINISH_LENGTH;
    if (complete && params_collect(&event->request->params)) {
      choices_replay(event, engine->tokenizer, engine->replay_text, engine->replay_held,
                     drain->handle, drain->context);
    }
    note_left(engine); /* it was told before the event was published */
    share_give_back(engine->share, replicas_share_slot(engine, event->request->slot));
    engine->free_slots[engine->num_groups - engine->loop_live--] = event->request->slot;
    if (engine->loop_live == 0) atomic_store(&engine->replicas.busy_since_ns, 0);
  }
  drain->handle(drain->context, event);
}

int engine_drain(engine_t *engine, void (*handle)(void *context, const event_t *event),
                 void *context) {
  int count = 0;
  for (int32_t i = 0; i < engine->replicas.count; i++) {
    engine_t *one = engine->replicas.all[i];
    /* the engine thread makes the mailbox while it loads */
    if (engine_own_state(one) == ENGINE_LOADING || one->mailbox == NULL) continue;
    note_left(one);
    drain_context_t drain = {.engine = one, .handle = handle, .context = context};
    count += mailbox_drain(one->mailbox, count_done, &drain);
  }
  return count;
}

uint64_t engine_trace(engine_t *engine, void (*handle)(void *context, const trace_record_t *record),
                      void *context) {
  uint64_t dropped = 0;
  for (int32_t i = 0; engine->trace != NULL && i < engine->replicas.count; i++)
    dropped += trace_drain(engine->replicas.all[i]->trace, handle, context);
  return dropped;
}

/* ---- adapters ---- */

int engine_adapter_read(const engine_t *engine, const char *dir, struct adapter **out,
                        inferd_error_t *error) {
  const model_options_t model = {.dir = engine->options.model_dir,
                                 .dummy = engine->options.dummy_weights,
                                 .dummy_seed = engine->options.seed,
                                 .dtype = (int32_t)engine->blueprint.dtype};
  const adapter_base_t base = {.blueprint = &engine->blueprint,
                               .ops = engine->ops,
                               .model = &model,
                               .rank_max = engine->options.max_lora_rank};
  return adapter_read(&base, dir, out, error);
}

void engine_adapter_free(struct adapter *adapter) {
  adapter_free(adapter);
}

void engine_adapter_set(engine_t *engine, int32_t slot, struct adapter *adapter) {
  CHECK_GE(slot, 1);
  CHECK_LE(slot, engine->options.max_loras);
  CHECK(adapter != NULL);
  adapter_take_invocation(adapter, &engine->invocations[slot - 1]);
  adapter_hold(adapter, engine->replicas.count - 1);
  for (int32_t i = 0; i < engine->replicas.count; i++) {
    engine_t *one = engine->replicas.all[i];
    adapter_free(atomic_exchange(&one->adapters[slot - 1], adapter));
    atomic_fetch_add(&one->adapter_epoch, 1);
  }
}
