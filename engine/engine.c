/* engine.c: the engine thread and the calls that the loop thread makes.
 *
 * A step is six calls: receive, plan, prepare, forward, sample, commit. Requests enter in receive
 * and leave in commit; what happens between is described by the file of each stage. The engine
 * thread allocates nothing after engine_start and never waits for the loop, but for room in the
 * event ring.
 */
#include "engine/internal.h"

#include "engine/clock.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { IDLE_SLEEP_MS = 1000, ROOM_SLEEP_MS = 1, QUEUE_CHECK_MS = 100, RETRY_AFTER_MAX_S = 120 };

void engine_options_default(engine_options_t *o) {
  *o = (engine_options_t){
      .backend = "auto",
      .isa = "auto",
      .dtype = "auto",
      .memory_fraction = 0.7,
      .block_size = 16,
      .max_num_seqs = 64,
      .max_num_batched_tokens = 512,
      .enable_chunked_prefill = true,
      .enable_prefix_caching = true,
      .watermark = 0.01,
      .max_queue_requests = 1024,
      .max_queue_time_s = 30.0,
  };
}

/* -- statistics ------------------------------------------------------------------------------- */

static void publish_stats(engine_t *e) {
  engine_stats_t *s = &e->stats;
  const scheduler_t *scheduler = e->scheduler;
  const block_pool_t *pool = e->pool;
  s->num_running = scheduler->running.count;
  s->num_waiting = scheduler->waiting.count;
  s->blocks_cached = pool->num_cached;
  s->blocks_free = pool->num_free - pool->num_cached;
  s->blocks_used = pool->num_blocks - 1 - pool->num_free;
  s->waiting_tokens = atomic_load(&e->queued_tokens);
  s->preemptions = scheduler->num_preemptions;
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

/* -- the engine thread ------------------------------------------------------------------------ */

static void accept_request(engine_t *e, request_t *request) {
  group_t *group = e->free_groups;
  CHECK(group); /* engine_submit counts */
  e->free_groups = group->free_next;
  group_init(group, request, e->next_arrival++);
  sequence_t *q = &group->sequence;
  detokenizer_init(&q->detokenizer, e->tokenizer, request->stops, request->skip_special_tokens,
                   request->include_stop_string, NULL);
  request->engine_sequence = q;
  e->num_live++;
  scheduler_add(e->scheduler, group);
}

static int abort_cancelled(engine_t *e, group_queue_t *queue, uint64_t now_ns) {
  int count = 0;
  for (group_t *g = queue->head, *next; g; g = next) {
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
  for (group_t *g = e->scheduler->waiting.head, *next; g; g = next) {
    next = g->next;
    if (g->was_admitted || (double)(now_ns - g->request->arrival_ns) < limit_s * 1e9) continue;
    engine_finish(e, g, SEQUENCE_FINISHED_ABORTED, ERR_QUEUE_TIMEOUT, now_ns);
    count++;
  }
  return count;
}

/* Takes in what the loop has posted. Returns events made. */
static int receive(engine_t *e, uint64_t now_ns) {
  int events = 0;
  for (request_t *r = mailbox_receive(e->mailbox); r; r = mailbox_receive(e->mailbox)) {
    accept_request(e, r);
  }
  unsigned epoch = atomic_load(&e->cancel_epoch);
  if (epoch != e->cancel_epoch_seen) {
    e->cancel_epoch_seen = epoch;
    events += abort_cancelled(e, &e->scheduler->running, now_ns);
    events += abort_cancelled(e, &e->scheduler->waiting, now_ns);
  }
  return events + expire_waiting(e, now_ns);
}

static int abort_all(engine_t *e, int error_code) {
  int events = 0;
  uint64_t now_ns = clock_now_ns();
  group_queue_t *queues[] = {&e->scheduler->running, &e->scheduler->waiting};
  for (int i = 0; i < 2; i++) {
    while (queues[i]->head) {
      engine_finish(e, queues[i]->head, SEQUENCE_FINISHED_ABORTED, error_code, now_ns);
      events++;
    }
  }
  return events;
}

static void wake_loop(const engine_t *e, int events) {
  if (e->mailbox) mailbox_publish(e->mailbox);
  if (events && e->options.wake) e->options.wake(e->options.context);
}

static void fail(engine_t *e, const error_t *error) {
  e->failure = *error;
  atomic_store(&e->state, ENGINE_FAILED);
}

/* One step. False = nothing to run. */
static bool step(engine_t *e) {
  uint64_t t0 = clock_now_ns();
  int events = receive(e, t0);
  if (mailbox_room(e->mailbox) < e->step_bytes_max + (size_t)e->num_live * e->done_bytes_max) {
    wake_loop(e, events); /* the loop is behind: let it read before more is made */
    publish_stats(e);
    mailbox_sleep(e->mailbox, ROOM_SLEEP_MS);
    return true;
  }
  if (scheduler_plan(e->scheduler, t0) == 0) {
    wake_loop(e, events);
    publish_stats(e);
    return false;
  }
  batch_build(e->batch, &e->scheduler->plan);
  uint64_t t1 = clock_now_ns();
  e->ops->begin(e->device, e->batch);
  model_forward(e->model, e->batch);
  engine_sample(e);
  error_t error = {0};
  int code = e->ops->end(e->device, &error);
  uint64_t t2 = clock_now_ns();
  if (code) {
    fail(e, &error);
    events += abort_all(e, ERR_DEVICE_FAILED);
  } else {
    events += engine_commit(e, t2);
  }
  uint64_t t3 = clock_now_ns();
  e->stats.steps++;
  e->stats.scheduled_tokens += (uint64_t)e->scheduler->plan.num_tokens;
  e->stats.overhead_ns += (t1 - t0) + (t3 - t2);
  e->stats.device_ns += t2 - t1;
  e->stats.last_step_ns = t3;
  update_rate(e, t3);
  publish_stats(e);
  wake_loop(e, events);
  return true;
}

/* After a lost device, or at the end: every request that still comes is answered. */
static void refuse_rest(engine_t *e, int error_code) {
  int events = 0;
  for (request_t *r = mailbox_receive(e->mailbox); r; r = mailbox_receive(e->mailbox)) {
    accept_request(e, r);
  }
  events += abort_all(e, error_code);
  publish_stats(e);
  wake_loop(e, events);
}

static void *engine_main(void *context) {
  engine_t *e = context;
  error_t error = {0};
  if (engine_start(e, &error) != 0) {
    fail(e, &error);
    wake_loop(e, 1);
    return NULL;
  }
  e->rate_window_ns = clock_now_ns();
  publish_stats(e);
  int loading = ENGINE_LOADING;
  atomic_compare_exchange_strong(&e->state, &loading, ENGINE_READY);
  wake_loop(e, 1);
  while (!atomic_load(&e->stop)) {
    if (atomic_load(&e->state) == ENGINE_FAILED) {
      refuse_rest(e, ERR_DEVICE_FAILED);
      mailbox_sleep(e->mailbox, IDLE_SLEEP_MS);
    } else if (!step(e)) {
      bool queued = e->scheduler->waiting.head != NULL;
      mailbox_sleep(e->mailbox, queued ? QUEUE_CHECK_MS : IDLE_SLEEP_MS);
    }
  }
  refuse_rest(e, 0);
  return NULL;
}

/* -- life cycle ------------------------------------------------------------------------------- */

static int check_options(const engine_options_t *o, error_t *error) {
  int32_t bs = o->block_size;
  if (!o->model_dir) return error_set(error, ERR_USAGE, "model", "no model directory was given");
  if (bs < 1 || bs > 1024 || (bs & (bs - 1))) {
    return error_set(error, ERR_CONFIGURATION, "block_size",
                     "block_size is %d; it must be a power of two from 1 to 1024", bs);
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
  if (!(o->memory_fraction > 0 && o->memory_fraction <= 1) ||
      !(o->watermark >= 0 && o->watermark < 1)) {
    return error_set(error, ERR_CONFIGURATION, "memory", "memory must be in (0, 1]");
  }
  return 0;
}

static char *copy_string(const char *text) {
  return text ? strdup(text) : NULL;
}

int engine_create(const engine_options_t *options, engine_t **out, error_t *error) {
  int code = check_options(options, error);
  if (code) return code;
  engine_t *e = calloc(1, sizeof *e);
  if (!e) return error_set(error, ERR_NO_MEMORY, NULL, "no memory for the engine");
  e->options = *options;
  e->options.model_dir = copy_string(options->model_dir);
  e->options.backend = copy_string(options->backend);
  e->options.isa = copy_string(options->isa);
  e->options.dtype = copy_string(options->dtype);
  /* waiting ones, running ones, and preempted ones that wait again */
  e->num_groups = options->max_queue_requests + 2 * options->max_num_seqs;
  e->groups = calloc((size_t)e->num_groups, sizeof *e->groups);
  if (!e->groups) {
    engine_destroy(e);
    return error_set(error, ERR_NO_MEMORY, NULL, "no memory for %d requests", e->num_groups);
  }
  for (int32_t i = e->num_groups - 1; i >= 0; i--) {
    e->groups[i].free_next = e->free_groups;
    e->free_groups = &e->groups[i];
  }
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
  if (atomic_load(&e->state) != ENGINE_LOADING && e->mailbox) mailbox_wake(e->mailbox);
  pthread_join(e->thread, NULL);
  e->thread_started = false;
}

void engine_destroy(engine_t *e) {
  if (!e) return;
  engine_stop(e);
  engine_release(e);
  free(e->groups);
  free((char *)(uintptr_t)e->options.model_dir);
  free((char *)(uintptr_t)e->options.backend);
  free((char *)(uintptr_t)e->options.isa);
  free((char *)(uintptr_t)e->options.dtype);
  free(e);
}

/* -- the loop thread's side ------------------------------------------------------------------- */

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
  default: return error_set(error, ERR_DEVICE_FAILED, NULL, "The engine has failed.");
  }
}

/* A request that the pool can never hold would wait for ever. */
static int check_fits(const engine_t *e, const request_t *r, error_t *error) {
  int64_t tokens = (int64_t)r->num_prompt_tokens + r->params.max_tokens;
  int64_t need = (tokens + e->info.block_size - 1) / e->info.block_size;
  if (need <= e->info.num_blocks - 1) return 0;
  return error_set(error, ERR_CONTEXT_LENGTH, "prompt",
                   "This model's maximum context length is %d tokens. However, you requested %lld "
                   "tokens, which take %lld KV blocks of %d; there are %d.",
                   e->info.max_model_len, (long long)tokens, (long long)need, e->info.block_size,
                   e->info.num_blocks - 1);
}

int engine_submit(engine_t *e, request_t *const *requests, int count, error_t *error) {
  int code = check_state(e, error);
  int64_t tokens = 0;
  for (int i = 0; i < count && !code; i++) {
    code = check_fits(e, requests[i], error);
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
  if (event->kind == EVENT_DONE) d->engine->loop_live--;
  d->handle(d->context, event);
}

int engine_drain(engine_t *e, void (*handle)(void *context, const event_t *event), void *context) {
  if (!e->mailbox || engine_state(e) == ENGINE_LOADING) return 0;
  drain_context_t d = {.engine = e, .handle = handle, .context = context};
  return mailbox_drain(e->mailbox, count_done, &d);
}
