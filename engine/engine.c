/* engine.c: the engine thread and the calls that the loop thread makes.
 *
 * A step is six calls: receive, plan, prepare, forward, sample, commit. Requests enter in receive
 * and leave in commit; what happens between is described by the file of each stage. The engine
 * thread allocates nothing after engine_start and never waits for the loop, but for room in the
 * event ring.
 */
#include "engine/internal.h"

#include "engine/base/clock.h"
#include "engine/sample/choices.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { IDLE_SLEEP_MS = 1000, ROOM_SLEEP_MS = 1, QUEUE_CHECK_MS = 100, RETRY_AFTER_MAX_S = 120 };
enum {
  HOST_SEQS_DEFAULT = 64,
  HOST_TOKENS_DEFAULT = 512,
  GPU_SEQS_DEFAULT = 256,
  GPU_TOKENS_DEFAULT = 4096
};

void engine_options_default(engine_options_t *o) {
  *o = (engine_options_t){
      .backend = "auto",
      .isa = "auto",
      .dtype = "auto",
      .enable_chunked_prefill = true,
      .enable_prefix_caching = true,
      .short_prompts_pass = true,
      .watermark = 0.01,
      .max_skips = 4,
      .max_preemptions = 3,
      .swap_space_bytes = -1,
      .max_queue_requests = 1024,
      .max_queue_time_s = 30.0,
  };
}

/* ---- statistics ---- */

static void publish_stats(engine_t *e) {
  engine_stats_t *s = &e->stats;
  const scheduler_t *scheduler = e->scheduler;
  const block_pool_t *pool = e->pool;
  s->num_running = scheduler->running.count;
  s->num_waiting = scheduler->waiting.count;
  s->num_swapped = scheduler->swapped.count;
  s->blocks_cached = pool->num_cached;
  s->blocks_free = pool->num_free - pool->num_cached;
  s->blocks_used = pool->num_blocks - 1 - pool->num_free;
  s->host_blocks_free = scheduler->swap.num_free;
  s->host_blocks_used = scheduler->options.swap.num_blocks - scheduler->swap.num_free;
  s->waiting_tokens = atomic_load(&e->queued_tokens);
  s->preemptions = scheduler->num_preemptions;
  s->preemptions_swap = scheduler->swap.num_groups_out;
  s->swapped_out_blocks = scheduler->swap.num_blocks_out;
  s->swapped_in_blocks = scheduler->swap.num_blocks_in;
  s->recomputed_tokens = scheduler->num_recomputed_tokens;
  s->prefix_queries_tokens = scheduler->prefix_queries_tokens;
  s->prefix_hits_tokens = scheduler->prefix_hits_tokens;
  s->busy = e->num_live > 0;
  /* Sequence lock: the copy is made of relaxed atomic words, so that a torn read is seen by the
   * version and is no data race. */
  atomic_uint *version = &e->stats_version;
  unsigned v = atomic_load_explicit(version, memory_order_relaxed);
  atomic_store_explicit(version, v + 1, memory_order_relaxed);
  atomic_thread_fence(memory_order_release);
  const uint64_t *from = (const uint64_t *)(const void *)s;
  for (size_t i = 0; i < STATS_WORDS; i++) {
    atomic_store_explicit(&e->stats_shared[i], from[i], memory_order_relaxed);
  }
  atomic_store_explicit(version, v + 2, memory_order_release);
}

void engine_stats(const engine_t *e, engine_stats_t *out) {
  uint64_t *to = (uint64_t *)(void *)out;
  for (;;) {
    unsigned before = atomic_load_explicit(&e->stats_version, memory_order_acquire);
    for (size_t i = 0; i < STATS_WORDS; i++) {
      to[i] = atomic_load_explicit(&e->stats_shared[i], memory_order_relaxed);
    }
    atomic_thread_fence(memory_order_acquire);
    unsigned after = atomic_load_explicit(&e->stats_version, memory_order_relaxed);
    if (before == after && before % 2 == 0) return;
  }
}

/* Finished requests per second over windows of at least a second: for Retry-After. */
static void update_rate(engine_t *e, uint64_t now_ns) {
  uint64_t window_ns = now_ns - e->rate_window_ns;
  if (window_ns < 1000000000u) return;
  double rate = e->rate_window_count * 1e12 / (double)window_ns;
  int old = atomic_load(&e->finish_rate_milli);
  double smooth = old ? 0.5 * old + 0.5 * rate : rate;
  atomic_store(&e->finish_rate_milli, (int)fmin(smooth, 1e9));
  e->rate_window_ns = now_ns;
  e->rate_window_count = 0;
}

/* ---- the engine thread ---- */

static void accept_request(engine_t *e, request_t *request) {
  group_t *group = e->free_groups;
  CHECK(group); /* engine_submit counts */
  e->free_groups = group->free_next;
  group_init(group, request, e->next_arrival++);
  sequence_t *q = &group->sequence;
  detokenizer_init(&q->detokenizer, e->tokenizer, request->stops, request->skip_special_tokens,
                   request->include_stop_string, NULL);
  q->detokenizer.shown_ids = request->shown_ids;
  q->detokenizer.num_shown_ids = request->num_shown_ids;
  request->engine_sequence = q;
  e->num_live++;
  scheduler_add(e->scheduler, group);
}

static int abort_cancelled(engine_t *e, group_queue_t *queue, uint64_t now_ns) {
  int count = 0;
  for (group_t *g = queue->head, *next; g != NULL; g = next) {
    next = g->next;
    if (!atomic_load_explicit(&g->request->cancelled, memory_order_acquire)) continue;
    engine_finish(e, g, SEQUENCE_FINISHED_ABORTED, 0, now_ns);
    count++;
  }
  return count;
}

static int expire_waiting(engine_t *e, uint64_t now_ns) {
  double limit_s = e->options.max_queue_time_s;
  if (limit_s <= 0 || now_ns - e->queue_check_ns < QUEUE_CHECK_MS * 1000000u) return 0;
  e->queue_check_ns = now_ns;
  int count = 0;
  for (group_t *g = e->scheduler->waiting.head, *next; g != NULL; g = next) {
    next = g->next;
    if (g->was_admitted || g->num_preemptions > 0) continue; /* it has been let in once */
    uint64_t arrival_ns = g->request->arrival_ns; /* may be later: posted since the turn began */
    if (now_ns < arrival_ns || (double)(now_ns - arrival_ns) < limit_s * 1e9) continue;
    engine_finish(e, g, SEQUENCE_FINISHED_ABORTED, ERR_QUEUE_TIMEOUT, now_ns);
    count++;
  }
  return count;
}

/* After the requests, none of which has run: an adapter is set before the first that uses it is
 * posted. What is freed here was allocated elsewhere. */
static void receive_adapters(engine_t *e) {
  unsigned epoch = atomic_load(&e->adapter_epoch);
  if (epoch == e->adapter_epoch_seen) return;
  e->adapter_epoch_seen = epoch;
  for (int32_t i = 0; i < e->options.max_loras; i++) {
    adapter_t *adapter = atomic_exchange(&e->adapters[i], NULL);
    if (adapter != NULL) model_set_adapter(e->model, i + 1, adapter);
    adapter_free(adapter);
  }
}

/* Takes in what the loop has posted. Returns events made. */
static int receive(engine_t *e, uint64_t now_ns) {
  int events = 0;
  for (request_t *r = mailbox_receive(e->mailbox); r != NULL; r = mailbox_receive(e->mailbox)) {
    accept_request(e, r);
  }
  receive_adapters(e);
  unsigned epoch = atomic_load(&e->cancel_epoch);
  if (epoch != e->cancel_epoch_seen) {
    e->cancel_epoch_seen = epoch;
    events += abort_cancelled(e, &e->scheduler->running, now_ns);
    events += abort_cancelled(e, &e->scheduler->waiting, now_ns);
    events += abort_cancelled(e, &e->scheduler->swapped, now_ns);
  }
  return events + expire_waiting(e, now_ns);
}

static int end_all(engine_t *e, const group_queue_t *queue, sequence_status_t status,
                   int error_code) {
  int events = 0;
  uint64_t now_ns = clock_now_ns();
  for (; queue->head != NULL; events++) engine_finish(e, queue->head, status, error_code, now_ns);
  return events;
}

static int abort_all(engine_t *e, int error_code) {
  const scheduler_t *s = e->scheduler;
  return end_all(e, &s->running, SEQUENCE_FINISHED_ABORTED, error_code) +
         end_all(e, &s->waiting, SEQUENCE_FINISHED_ABORTED, error_code) +
         end_all(e, &s->swapped, SEQUENCE_FINISHED_ABORTED, error_code);
}

static void wake_loop(const engine_t *e, int events) {
  if (e->mailbox != NULL) mailbox_publish(e->mailbox);
  if (events && e->options.wake != NULL) e->options.wake(e->options.context);
}

static void fail(engine_t *e, const error_t *error) {
  e->failure = *error;
  atomic_store(&e->state, ENGINE_FAILED);
}

/* One step. Returns for how many milliseconds nothing else is to be done, 0 after a step. */
static int step(engine_t *e) {
  uint64_t t0 = clock_now_ns();
  int events = receive(e, t0);
  if (events) { /* who has left need not wait for the step that comes */
    publish_stats(e);
    wake_loop(e, events);
  }
  if (mailbox_room(e->mailbox) < e->step_bytes_max + (size_t)e->num_live * e->done_bytes_max) {
    mailbox_want_room(e->mailbox); /* the loop is behind: let it read before more is made */
    publish_stats(e);
    return ROOM_SLEEP_MS;
  }
  bool launched = engine_launch(e, t0);
  events = end_all(e, &e->scheduler->ignored, SEQUENCE_FINISHED_IGNORED, ERR_CONTEXT_LENGTH);
  if (events) wake_loop(e, events);
  uint64_t t1 = clock_now_ns();
  if (e->num_flights == 0) {
    publish_stats(e);
    if (e->scheduler->swapped.head != NULL) return 0; /* the next plan may let it in */
    return e->scheduler->waiting.head != NULL ? QUEUE_CHECK_MS : IDLE_SLEEP_MS;
  }
  if (launched && e->num_flights < e->flights_most) return 0;
  error_t error = {0};
  const flight_t *flight = engine_land(e, &error);
  uint64_t t2 = clock_now_ns();
  if (flight != NULL) {
    events = engine_commit(e, flight, t2);
    e->stats.scheduled_tokens += (uint64_t)flight->plan.num_tokens;
  } else {
    fail(e, &error);
    engine_land_all(e);
    events = abort_all(e, ERR_DEVICE_FAILED);
  }
  uint64_t t3 = clock_now_ns();
  e->stats.steps++;
  e->stats.overhead_ns += t3 - t2;
  e->stats.device_ns += t2 - t1;
  e->stats.last_step_ns = t3;
  update_rate(e, t3);
  publish_stats(e);
  wake_loop(e, events);
  return 0;
}

/* After a lost device, or at the end: every request that still comes is answered. */
static void refuse_rest(engine_t *e, int error_code) {
  int events = 0;
  for (request_t *r = mailbox_receive(e->mailbox); r != NULL; r = mailbox_receive(e->mailbox)) {
    accept_request(e, r);
  }
  events += abort_all(e, error_code);
  publish_stats(e);
  wake_loop(e, events);
}

void engine_load(engine_t *e) {
  error_t error = {0};
  if (engine_start(e, &error) != 0) {
    fail(e, &error);
    wake_loop(e, 1);
    return;
  }
  e->rate_window_ns = clock_now_ns();
  publish_stats(e);
  int loading = ENGINE_LOADING;
  atomic_compare_exchange_strong(&e->state, &loading, ENGINE_READY);
  wake_loop(e, 1);
}

int engine_turn(engine_t *e) {
  if (atomic_load(&e->state) != ENGINE_FAILED) return step(e);
  refuse_rest(e, ERR_DEVICE_FAILED);
  return IDLE_SLEEP_MS;
}

void engine_end(engine_t *e) {
  engine_land_all(e);
  refuse_rest(e, 0);
}

static void *engine_main(void *context) {
  engine_t *e = context;
  engine_load(e);
  if (engine_state(e) == ENGINE_FAILED) return NULL; /* the load: nothing can be submitted */
  while (!atomic_load(&e->stop)) {
    int idle_ms = engine_turn(e);
    if (idle_ms > 0) mailbox_sleep(e->mailbox, idle_ms);
  }
  engine_end(e);
  return NULL;
}

/* ---- life cycle ---- */

/* Sizes of a step that nobody chose: a GPU wants more at once. */
static void choose_step_size(engine_options_t *o) {
  const char *backend = o->backend != NULL ? o->backend : "auto";
  bool gpu = o->ops == NULL && strcmp(backend, "cuda") == 0;
  if (o->ops == NULL && strcmp(backend, "auto") == 0 && ops_cuda.available != NULL)
    gpu = ops_cuda.available(o->device_index);
  int32_t seqs = gpu ? GPU_SEQS_DEFAULT : HOST_SEQS_DEFAULT, asked = o->max_num_batched_tokens;
  if (asked > 0 && asked < seqs) seqs = asked; /* each of them wants a token in every step */
  if (o->max_num_seqs == 0) o->max_num_seqs = seqs;
  if (asked > 0) return;
  o->max_num_batched_tokens = gpu ? GPU_TOKENS_DEFAULT : HOST_TOKENS_DEFAULT;
  if (o->max_num_batched_tokens < o->max_num_seqs) o->max_num_batched_tokens = o->max_num_seqs;
}

static int check_options(const engine_options_t *o, error_t *error) {
  int32_t bs = o->block_size;
  if (o->model_dir == NULL)
    return error_set(error, ERR_USAGE, "model", "no model directory was given");
  if (bs < 0 || bs > 1024 || (bs & (bs - 1))) {
    return error_set(error, ERR_CONFIGURATION, "block_size",
                     "block_size is %d; it must be a power of two from 1 to 1024, or 0", bs);
  }
  if (o->max_num_seqs < 1 || o->max_num_seqs > 65536) {
    return error_set(error, ERR_CONFIGURATION, "max_num_seqs",
                     "max_num_seqs is %d; it must be 1 to 65536", o->max_num_seqs);
  }
  if (o->max_num_batched_tokens < o->max_num_seqs || o->max_num_batched_tokens > 1 << 20) {
    return error_set(error, ERR_CONFIGURATION, "max_num_batched_tokens",
                     "max_num_batched_tokens is %d; it must be max_num_seqs (%d) to 1048576",
                     o->max_num_batched_tokens, o->max_num_seqs);
  }
  if (o->max_queue_requests < 1 || o->max_queue_requests > 1 << 20) {
    return error_set(error, ERR_CONFIGURATION, "max_queue_requests",
                     "max_queue_requests is %d; it must be 1 to 1048576", o->max_queue_requests);
  }
  if (o->max_loras < 0 || o->max_loras > LORAS_MAX || o->num_lora_dirs > o->max_loras) {
    return error_set(error, ERR_CONFIGURATION, "max_loras",
                     "max_loras is %d; it must be %d (those loaded at start) to %d", o->max_loras,
                     o->num_lora_dirs, LORAS_MAX);
  }
  if (o->max_loras > 0 && (o->max_lora_rank < 1 || o->max_lora_rank > ADAPTER_RANK_MAX)) {
    return error_set(error, ERR_CONFIGURATION, "max_lora_rank",
                     "max_lora_rank is %d; it must be 1 to %d", o->max_lora_rank, ADAPTER_RANK_MAX);
  }
  if (!(o->memory_fraction >= 0 && o->memory_fraction <= 1) ||
      !(o->watermark >= 0 && o->watermark < 1)) {
    return error_set(error, ERR_CONFIGURATION, "memory", "memory must be in [0, 1]");
  }
  return 0;
}

/* Own copies of the strings. False without memory: the option must not turn into its default. */
static bool copy_strings(engine_options_t *to) {
  const char **strings[] = {&to->model_dir, &to->draft_model_dir, &to->backend, &to->isa,
                            &to->dtype};
  bool complete = true;
  for (size_t i = 0; i < sizeof strings / sizeof strings[0]; i++) {
    const char *given = *strings[i];
    *strings[i] = given != NULL ? strdup(given) : NULL;
    complete = complete && (given == NULL || *strings[i] != NULL);
  }
  return complete;
}

int engine_new(const engine_options_t *given, engine_t **out, error_t *error) {
  engine_options_t chosen = *given;
  const engine_options_t *options = &chosen;
  choose_step_size(&chosen);
  int code = check_options(options, error);
  if (code) return code;
  engine_t *e = calloc(1, sizeof *e);
  if (e == NULL) return error_set(error, ERR_NO_MEMORY, NULL, "no memory for the engine");
  e->options = *options;
  bool copied = copy_strings(&e->options);
  /* waiting ones, running ones, and preempted ones that wait again */
  e->num_groups = options->max_queue_requests + 2 * options->max_num_seqs;
  e->groups = calloc((size_t)e->num_groups, sizeof *e->groups);
  if (e->groups == NULL || !copied) {
    int32_t count = e->num_groups;
    engine_destroy(e);
    return error_set(error, ERR_NO_MEMORY, NULL, "no memory for %d requests", count);
  }
  for (int32_t i = e->num_groups - 1; i >= 0; i--) {
    e->groups[i].free_next = e->free_groups;
    e->free_groups = &e->groups[i];
  }
  *out = e;
  return 0;
}

int engine_create(const engine_options_t *options, engine_t **out, error_t *error) {
  engine_t *e = NULL;
  int code = engine_new(options, &e, error);
  if (code) return code;
  if (pthread_create(&e->thread, NULL, engine_main, e) != 0) {
    engine_destroy(e);
    return error_set(error, ERR_NO_MEMORY, NULL, "the system refuses another thread");
  }
  e->thread_started = true;
  *out = e;
  return 0;
}

void engine_stop(engine_t *e) {
  if (!e->thread_started) return;
  atomic_store(&e->stop, true);
  /* While LOADING the thread has yet to look at `stop`; afterwards it may be asleep. */
  if (atomic_load(&e->state) != ENGINE_LOADING && e->mailbox != NULL) mailbox_wake(e->mailbox);
  pthread_join(e->thread, NULL);
  e->thread_started = false;
}

void engine_destroy(engine_t *e) {
  if (e == NULL) return;
  engine_stop(e);
  engine_release(e);
  for (int32_t i = 0; i < LORAS_MAX; i++) adapter_free(atomic_load(&e->adapters[i]));
  free(e->groups);
  free((char *)(uintptr_t)e->options.model_dir);
  free((char *)(uintptr_t)e->options.draft_model_dir);
  free((char *)(uintptr_t)e->options.backend);
  free((char *)(uintptr_t)e->options.isa);
  free((char *)(uintptr_t)e->options.dtype);
  free(e);
}

/* ---- the loop thread's side ---- */

engine_state_t engine_state(const engine_t *e) {
  return (engine_state_t)atomic_load(&e->state);
}

double engine_progress(const engine_t *e) {
  return atomic_load(&e->progress_permille) / 1000.0;
}

void engine_failure(const engine_t *e, error_t *out) {
  *out = e->failure;
}

const engine_info_t *engine_info(const engine_t *e) {
  return engine_state(e) == ENGINE_LOADING || e->info.block_size == 0 ? NULL : &e->info;
}

const tokenizer_t *engine_tokenizer(const engine_t *e) {
  return engine_state(e) == ENGINE_LOADING ? NULL : e->tokenizer;
}

static int check_state(const engine_t *e, error_t *error) {
  switch (engine_state(e)) {
  case ENGINE_READY: return 0;
  case ENGINE_LOADING: return error_set(error, ERR_MODEL_LOADING, NULL, "The model is loading.");
  default: return error_set(error, ERR_ENGINE_FAILED, NULL, "The engine has failed.");
  }
}

/* A prompt has a row of the context's length, with room for a first token, if one is to come. A
 * request that the pool can never hold would wait for ever: full blocks of the prompt are shared
 * by all its sequences, the rest is not. */
static int check_fits(const engine_t *e, const request_t *r, error_t *error) {
  int64_t tokens = (int64_t)r->num_prompt_tokens + r->params.max_tokens;
  int64_t shared = r->num_prompt_tokens / e->info.block_size;
  int64_t all = (tokens + e->info.block_size - 1) / e->info.block_size;
  int32_t count = params_num_sequences(&r->params);
  int64_t need = shared + count * (all - shared);
  if (r->num_prompt_tokens + (r->params.max_tokens > 0) > e->info.max_model_len) {
    return error_set(
        error, ERR_CONTEXT_LENGTH, "prompt",
        "This model's maximum context length is %d tokens. However, the prompt has %d.",
        e->info.max_model_len, r->num_prompt_tokens);
  }
  if (need <= e->info.num_blocks - 1) return 0;
  if (count > 1) {
    return error_set(error, ERR_CONTEXT_LENGTH, "prompt",
                     "%lld tokens in %d sequences take %lld + %d x %lld = %lld KV blocks of %d; "
                     "this server has %d.",
                     (long long)tokens, count, (long long)shared, count, (long long)(all - shared),
                     (long long)need, e->info.block_size, e->info.num_blocks - 1);
  }
  return error_set(error, ERR_CONTEXT_LENGTH, "prompt",
                   "This model's maximum context length is %d tokens. However, you requested %lld "
                   "tokens, which take %lld KV blocks of %d; there are %d.",
                   e->info.max_model_len, (long long)tokens, (long long)need, e->info.block_size,
                   e->info.num_blocks - 1);
}

size_t engine_room_bytes(const sampling_params_t *p) {
  return choices_bytes(p);
}

static int check_choices(const engine_t *e, const request_t *r, error_t *error) {
  const sampling_params_t *p = &r->params;
  int32_t count = params_num_sequences(p);
  const char *field = p->best_of > p->n || p->beam_width > p->n ? "best_of" : "n";
  int32_t most = e->info.max_num_seqs;
  if (p->beam_width > 0 && most > BEAM_SEQUENCES_MAX) most = BEAM_SEQUENCES_MAX;
  if (count > most) {
    return error_set(error, ERR_BAD_REQUEST, field,
                     "%s asks for %d sequences at once; this server runs at most %d.", field, count,
                     most);
  }
  if (params_collect(p) && r->room == NULL) {
    return error_set(error, ERR_INTERNAL, field, "no room was lent for %d sequences", count);
  }
  return 0;
}

int engine_submit(engine_t *e, request_t *const *requests, int count, error_t *error) {
  int code = check_state(e, error);
  int64_t tokens = 0;
  for (int i = 0; i < count && !code; i++) {
    code = check_fits(e, requests[i], error);
    if (!code) code = check_choices(e, requests[i], error);
    tokens += requests[i]->num_prompt_tokens;
  }
  if (code) return code;
  int64_t limit = e->options.max_queue_tokens > 0
                      ? e->options.max_queue_tokens
                      : 4 * (int64_t)e->info.block_size * (e->info.num_blocks - 1);
  int64_t waiting_tokens = atomic_load(&e->queued_tokens);
  int32_t waiting = atomic_load(&e->queued_requests);
  /* A request that finds the queue empty is always taken, however long it is. */
  bool full = waiting > 0 && waiting_tokens + tokens > limit;
  full = full || waiting + count > e->options.max_queue_requests;
  if (full || e->loop_live + count > e->num_groups) {
    return error_set(error, ERR_QUEUE_FULL, NULL,
                     "The server is busy: %d requests with %lld prompt tokens are waiting.",
                     waiting, (long long)waiting_tokens);
  }
  e->loop_live += count;
  atomic_fetch_add(&e->queued_requests, count);
  atomic_fetch_add(&e->queued_tokens, tokens);
  for (int i = 0; i < count; i++) mailbox_post(e->mailbox, requests[i]);
  mailbox_wake(e->mailbox);
  return 0;
}

int engine_retry_after_s(const engine_t *e) {
  int rate = atomic_load(&e->finish_rate_milli);
  if (rate <= 0) return 1;
  double wait_s = (atomic_load(&e->queued_requests) + 1) * 1000.0 / rate;
  return wait_s < 1 ? 1 : wait_s > RETRY_AFTER_MAX_S ? RETRY_AFTER_MAX_S : (int)ceil(wait_s);
}

void engine_cancel(engine_t *e, request_t *request) {
  atomic_store_explicit(&request->cancelled, true, memory_order_release);
  atomic_fetch_add(&e->cancel_epoch, 1);
  mailbox_wake(e->mailbox);
}

typedef struct drain_context {
  engine_t *engine;
  void (*handle)(void *context, const event_t *event);
  void *context;
} drain_context_t;

static void count_done(void *context, const event_t *event) {
  drain_context_t *d = context;
  if (event->kind == EVENT_DONE) {
    engine_t *e = d->engine;
    bool complete = event->finish == FINISH_STOP || event->finish == FINISH_LENGTH;
    if (complete && params_collect(&event->request->params)) {
      choices_replay(event, e->tokenizer, e->replay_text, e->replay_held, d->handle, d->context);
    }
    e->loop_live--;
  }
  d->handle(d->context, event);
}

int engine_drain(engine_t *e, void (*handle)(void *context, const event_t *event), void *context) {
  if (e->mailbox == NULL || engine_state(e) == ENGINE_LOADING) return 0;
  drain_context_t d = {.engine = e, .handle = handle, .context = context};
  return mailbox_drain(e->mailbox, count_done, &d);
}

/* ---- adapters ---- */

int engine_adapter_read(const engine_t *e, const char *dir, struct adapter **out, error_t *error) {
  return adapter_read(&e->blueprint, dir, e->options.max_lora_rank, out, error);
}

void engine_adapter_free(struct adapter *adapter) {
  adapter_free(adapter);
}

void engine_adapter_set(engine_t *e, int32_t slot, struct adapter *adapter) {
  CHECK(slot >= 1 && slot <= e->options.max_loras && adapter != NULL);
  adapter_free(atomic_exchange(&e->adapters[slot - 1], adapter));
  atomic_fetch_add(&e->adapter_epoch, 1);
}
