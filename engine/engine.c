/* engine.c: the engine thread.
 *
 * An iteration is six calls: receive, plan, prepare, forward, sample, commit. Requests enter in
 * receive and leave in commit; each stage between them is described in its own file. The engine
 * thread allocates nothing after engine_start. It never waits for the loop thread, except for room
 * in the event ring.
 */
#include "engine/internal.h"

#include "engine/base/check.h"
#include "engine/base/clock.h"
#include "engine/base/fault.h"
#include "engine/base/util.h"
#include "engine/defaults.h"
#include "engine/device/pages.h"
#include "engine/kv_events/kv_events.h"
#include "engine/ranks/follow.h"
#include "engine/ranks/turns.h"
#include "engine/sample/choices.h"
#include "engine/sample/scores.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { IDLE_SLEEP_MS = 1000, ROOM_SLEEP_MS = 1, HELPED_SLEEP_MS = 10, QUEUE_CHECK_MS = 100 };
/* Requests that made room for others keep their slots until the loop has read their ends: so many
 * may end in one iteration. */
enum { DROPPED_SLOTS_MAX = 16384 };
/* Tokens of a prompt in one step, if the host sorts a row for each, 1.2 ms for 152,064 tokens. */
enum { SORTED_ROWS_MAX = 8 };
enum { SEQS_DEFAULT = 64, TOKENS_DEFAULT = 512 }; /* of a back end that names none */

void engine_options_default(engine_options_t *options) {
  *options = (engine_options_t){
      .num_replicas = 1,
      .device = DEFAULT_DEVICE,
      .isa = DEFAULT_ISA,
      .dtype = DEFAULT_DTYPE,
      .draft = {.match_min = DEFAULT_MATCH_MIN, .match_max = DEFAULT_MATCH_MAX},
      .enable_chunked_prefill = DEFAULT_CHUNKED_PREFILL,
      .enable_prefix_caching = DEFAULT_PREFIX_CACHING,
      .short_prompts_pass = DEFAULT_SHORT_PROMPTS_PASS,
      .max_step_ms = -1,
      .mask_threads = -1,
      .fair_share = DEFAULT_FAIR_SHARE,
      .watermark = 0.01,
      .max_skips = DEFAULT_MAX_SKIPS,
      .max_preemptions = DEFAULT_MAX_PREEMPTIONS,
      .swap_space_bytes = -1,
      .prefix_cache_bytes = -1,
      .max_logprobs = LOGPROBS_MAX,
      .max_queue_requests = DEFAULT_MAX_QUEUE_REQUESTS,
      .max_queue_time_s = DEFAULT_MAX_QUEUE_TIME_S,
      .queue_time_tokens = DEFAULT_QUEUE_TIME_TOKENS,
      .image_max_tokens = DEFAULT_IMAGE_MAX_TOKENS,
  };
}

/* ---- statistics ---- */

static void publish_stats(engine_t *engine) {
  engine_stats_t *stats = &engine->stats;
  const scheduler_t *scheduler = engine->scheduler;
  const block_pool_t *pool = engine->pool;
  stats->num_running = scheduler->running.count;
  stats->num_waiting = scheduler->waiting.queue.count;
  stats->num_swapped = scheduler->swapped.count;
  stats->num_held = scheduler->waiting.num_held;
  stats->blocks_cached = pool->num_cached;
  stats->blocks_free = pool->num_free - pool->num_cached;
  stats->blocks_used = pool->num_blocks - 1 - pool->num_free;
  stats->host_blocks_free = scheduler->swap.num_free;
  stats->host_blocks_used = scheduler->options.swap.num_blocks - scheduler->swap.num_free;
  if (pool->floor != NULL) {
    const floor_t *floor = pool->floor;
    stats->floor_out_blocks = floor->num_stored;
    stats->floor_in_blocks = floor->num_brought;
    stats->floor_damaged_blocks = floor->num_damaged;
  }
  stats->waiting_tokens = atomic_load(&engine->queued_tokens);
  stats->preemptions = scheduler->num_preemptions;
  stats->preemptions_swap = scheduler->swap.num_groups_out;
  stats->swapped_out_blocks = scheduler->swap.num_blocks_out;
  stats->swapped_in_blocks = scheduler->swap.num_blocks_in;
  stats->recomputed_tokens = scheduler->num_recomputed_tokens;
  stats->prefix_queries_tokens = scheduler->prefix_queries_tokens;
  stats->prefix_hits_tokens = scheduler->prefix_hits_tokens;
  stats->sat_out = scheduler->num_sat_out;
  stats->drafts_paused = scheduler->drafts.num_paused;
  stats->drafts_slow = scheduler->drafts.num_slow;
  stats->queue_visits = scheduler->waiting.num_visited;
  for (int t = 0; t < COST_TERMS; t++) stats->step_cost_ns[t] = scheduler->cost.ns[t];
  if (engine->options.comm != NULL) {
    stats->exchanges = engine->options.comm->num_calls;
    stats->exchanged_bytes = engine->options.comm->num_bytes;
  }
  stats->busy = engine->num_live > 0;
  /* Sequence lock: the words are copied as relaxed atomics, so a concurrent read is not a data
   * race, and the reader detects a torn copy by the version. */
  atomic_uint *version = &engine->stats_version;
  unsigned v = atomic_load_explicit(version, memory_order_relaxed);
  atomic_store_explicit(version, v + 1, memory_order_relaxed);
  atomic_thread_fence(memory_order_release);
  const uint64_t *from = (const uint64_t *)(const void *)stats;
  for (size_t i = 0; i < STATS_WORDS; i++) {
    atomic_store_explicit(&engine->stats_shared[i], from[i], memory_order_relaxed);
  }
  atomic_store_explicit(version, v + 2, memory_order_release);
}

static void read_stats(const engine_t *engine, engine_stats_t *out) {
  uint64_t *to = (uint64_t *)(void *)out;
  for (;;) {
    unsigned before = atomic_load_explicit(&engine->stats_version, memory_order_acquire);
    for (size_t i = 0; i < STATS_WORDS; i++) {
      to[i] = atomic_load_explicit(&engine->stats_shared[i], memory_order_relaxed);
    }
    atomic_thread_fence(memory_order_acquire);
    unsigned after = atomic_load_explicit(&engine->stats_version, memory_order_relaxed);
    if (before == after && before % 2 == 0) return;
  }
}

void engine_stats_of(const engine_t *engine, int32_t replica, engine_stats_t *out) {
  read_stats(engine->replicas.all[replica], out);
}

/* Adds up what is a number of requests, blocks, tokens or a time. Two numbers of 32 bits in a word
 * do not meet: none is negative. The caller divides learned costs. */
static void add_stats(engine_stats_t *sum, const engine_stats_t *one) {
  const size_t costs = offsetof(engine_stats_t, step_cost_ns) / sizeof(uint64_t);
  uint64_t *words = (uint64_t *)(void *)sum;
  const uint64_t *more = (const uint64_t *)(const void *)one;
  for (size_t i = 0; i < costs; i++) words[i] += more[i];
  for (int t = 0; t < COST_TERMS; t++) sum->step_cost_ns[t] += one->step_cost_ns[t];
  sum->exchanges += one->exchanges;
  sum->exchanged_bytes += one->exchanged_bytes;
  sum->busy |= one->busy;
}

/* Of several replicas the last step is that of the busy one that has waited longest for its own;
 * if all are idle, the latest. */
void engine_stats(const engine_t *engine, engine_stats_t *out) {
  const int32_t count = engine->replicas.count;
  uint64_t oldest_ns = UINT64_MAX, latest_ns = 0;
  read_stats(engine, out);
  for (int32_t i = 0; count > 1 && i < count; i++) {
    const engine_t *one = engine->replicas.all[i];
    engine_stats_t stats;
    read_stats(one, &stats);
    if (i > 0) add_stats(out, &stats);
    uint64_t since_ns = atomic_load(&one->replicas.busy_since_ns);
    latest_ns = MAX(latest_ns, stats.last_step_ns);
    if (since_ns > 0) oldest_ns = MIN(oldest_ns, MAX(since_ns, stats.last_step_ns));
  }
  if (count == 1) return;
  out->last_step_ns = oldest_ns < UINT64_MAX ? oldest_ns : latest_ns;
  for (int t = 0; t < COST_TERMS; t++) out->step_cost_ns[t] /= count;
}

void engine_activity(const engine_t *engine, engine_activity_t *out) {
  const activity_t *activity = &replicas_slowest(engine)->activity;
  out->phase = (engine_phase_t)atomic_load_explicit(&activity->phase, memory_order_acquire);
  out->since_ns = atomic_load_explicit(&activity->since_ns, memory_order_relaxed);
  out->worked_ns = atomic_load_explicit(&activity->worked_ns, memory_order_relaxed);
  out->work = atomic_load_explicit(&activity->work, memory_order_relaxed);
  out->request_id = atomic_load_explicit(&activity->request_id, memory_order_relaxed);
}

static void publish_forecast(engine_t *engine) {
  int requests = atomic_load(&engine->queued_requests);
  double mean = (double)atomic_load(&engine->queued_tokens) / MAX(requests, 1);
  forecast_t forecast = scheduler_forecast(engine->scheduler, mean);
  atomic_store(&engine->wait_token_ns, (long long)fmin(forecast.token_ns, 1e15));
  atomic_store(&engine->wait_base_us, (long long)fmin(forecast.base_ns / 1e3, 1e15));
}

/* Updates the smoothed rate of finished requests, over windows of at least a second, from which
 * Retry-After is computed. */
static void update_rate(engine_t *engine, uint64_t now_ns) {
  uint64_t window_ns = now_ns - engine->rate_window_ns;
  if (window_ns < 1000000000u) return;
  double rate = engine->rate_window_count * 1e12 / (double)window_ns;
  int old = atomic_load(&engine->finish_rate_milli);
  double smooth = old ? 0.5 * old + 0.5 * rate : rate;
  atomic_store(&engine->finish_rate_milli, (int)fmin(smooth, 1e9));
  engine->rate_window_ns = now_ns;
  engine->rate_window_count = 0;
}

/* ---- the engine thread ---- */

static void accept_request(engine_t *engine, request_t *request) {
  group_t *group = &engine->groups[request->slot];
  group_init(group, request, engine->next_arrival);
  engine->next_arrival += (uint64_t)params_num_sequences(&request->params);
  group->trace = engine->trace;
  bool scores_many = scores_are_many(engine, scores_of_prompt(engine, &request->params));
  if (engine->ops->logprobs_max > 0 && scores_many) group->chunk_max = SORTED_ROWS_MAX;
  group->reports_many =
      scores_many || scores_are_many(engine, scores_of_output(engine, &request->params));
  engine->num_reporting += group->reports_many;
  sequence_t *seq = &group->sequence;
  detokenizer_init(&seq->detokenizer, engine->tokenizer, request->stops,
                   request->skip_special_tokens, request->include_stop_string, NULL);
  seq->detokenizer.shown_ids = request->shown_ids;
  seq->detokenizer.num_shown_ids = request->num_shown_ids;
  engine->num_live++;
  lane_request(engine->lane, request);
  activity_for(&engine->activity, request->id);
  constrain_arrives(engine, request);
  scheduler_add(engine->scheduler, group);
}

static void accept_posted(engine_t *engine) {
  for (request_t *request = mailbox_receive(engine->mailbox); request != NULL;
       request = mailbox_receive(engine->mailbox)) {
    accept_request(engine, request);
  }
}

/* Ends the requests that were cancelled, or dropped to make room for others. A slot may serve a
 * later request by now: its own state decides. Returns how many ended. */
static int end_cancelled(engine_t *engine, uint64_t now_ns) {
  int count = 0;
  for (int32_t slot = mailbox_cancelled(engine->mailbox); slot >= 0;
       slot = mailbox_cancelled(engine->mailbox)) {
    accept_posted(engine); /* the request was posted before its cancel */
    group_t *group = &engine->groups[slot];
    if (!group->in_use) continue;
    bool cancelled = atomic_load_explicit(&group->request->cancelled, memory_order_acquire);
    bool dropped = share_is_dropped(engine->share, replicas_share_slot(engine, slot));
    if (!cancelled && !dropped) continue;
    int code = cancelled ? 0 : ERR_QUEUE_FULL;
    lane_cancel(engine->lane, group->request, code);
    engine_finish(engine, group, SEQUENCE_FINISHED_ABORTED, code, now_ns);
    count++;
  }
  return count;
}

/* Ends the requests that have waited too long (scheduler_find_late). They are looked at in the
 * order in which they reached the engine, so a request whose text took long to prepare may end a
 * little later than its own limit. */
static int expire_waiting(engine_t *engine, uint64_t now_ns) {
  double limit_ns = engine->options.max_queue_time_s * 1e9;
  uint64_t every_ns = engine->options.slo_policy ? 0 : QUEUE_CHECK_MS * 1000000u;
  if (limit_ns <= 0 || now_ns - engine->queue_check_ns < every_ns) return 0;
  engine->queue_check_ns = now_ns;
  int count = 0;
  for (group_t *group; (group = scheduler_find_late(engine->scheduler, now_ns, limit_ns)) != NULL;
       count++) {
    lane_cancel(engine->lane, group->request, ERR_QUEUE_TIMEOUT);
    engine_finish(engine, group, SEQUENCE_FINISHED_ABORTED, ERR_QUEUE_TIMEOUT, now_ns);
  }
  return count;
}

void engine_keep_adapter(engine_t *engine, int32_t slot, adapter_t *adapter) {
  adapter_t **kept = &engine->kept_adapters[slot - 1];
  adapter_free(*kept);
  *kept = adapter_stays(adapter) ? adapter : NULL;
  if (*kept == NULL) adapter_free(adapter);
}

/* Takes the adapters that the loop has set since the last iteration. The loop sets an adapter
 * before it posts a request that uses it. So receive() calls this after it has taken the requests
 * and before any of them runs. */
static void receive_adapters(engine_t *engine) {
  unsigned epoch = atomic_load(&engine->adapter_epoch);
  if (epoch == engine->adapter_epoch_seen) return;
  engine->adapter_epoch_seen = epoch;
  for (int32_t i = 0; i < engine->options.max_loras; i++) {
    adapter_t *adapter = atomic_exchange(&engine->adapters[i], NULL);
    if (adapter == NULL) continue;
    engine_share_adapter(engine, i + 1, adapter);
    engine_keep_adapter(engine, i + 1, adapter);
  }
}

static void end_all(engine_t *engine, const group_queue_t *queue, sequence_status_t status,
                    int error_code) {
  uint64_t now_ns = clock_now_ns();
  while (queue->head != NULL) engine_finish(engine, queue->head, status, error_code, now_ns);
}

static void abort_all(engine_t *engine, int error_code) {
  const scheduler_t *scheduler = engine->scheduler;
  end_all(engine, &scheduler->running, SEQUENCE_FINISHED_ABORTED, error_code);
  end_all(engine, &scheduler->waiting.queue, SEQUENCE_FINISHED_ABORTED, error_code);
  end_all(engine, &scheduler->swapped, SEQUENCE_FINISHED_ABORTED, error_code);
}

/* Publishes the events that were emitted. Wakes the loop thread if there are any, or `anyway`, and
 * the reader of what the prefix cache holds. */
static void wake_loop(const engine_t *engine, bool anyway) {
  kv_events_wake(engine->options.kv_events);
  bool published = engine->mailbox != NULL && mailbox_publish(engine->mailbox);
  if ((published || anyway) && engine->options.wake != NULL)
    engine->options.wake(engine->options.context);
}

/* Returns true if the event ring has space for a step at its worst and the end of every request. */
static bool has_room(const engine_t *engine) {
  size_t ends_bytes = (size_t)engine->num_live * engine->done_bytes_max;
  return mailbox_room(engine->mailbox) >= engine->step_bytes_max + ends_bytes;
}

/* False while the device sleeps. Requests for which it could not be woken end. */
static bool is_up(engine_t *engine) {
  const bool adapts = atomic_load(&engine->adapter_epoch) != engine->adapter_epoch_seen;
  int code = 0;
  if (engine->options.sleep_space_bytes == 0) return true;
  if (asleep_turn(engine, adapts || engine->num_live > 0, &code)) return true;
  if (code != 0) abort_all(engine, ERR_OVERLOADED);
  publish_stats(engine);
  wake_loop(engine, false);
  return false;
}

/* Takes requests, adapters and cancellations from the loop. Requests that end here get their events
 * before the next step, not after it. Returns false if the loop must read events before that, or
 * the device sleeps. */
static bool receive(engine_t *engine, uint64_t now_ns) {
  activity_enter(&engine->activity, ENGINE_RECEIVES);
  accept_posted(engine);
  int events = end_cancelled(engine, now_ns);
  if (!is_up(engine)) return false;
  receive_adapters(engine);
  events += expire_waiting(engine, now_ns);
  bool room = has_room(engine);
  if (!room) mailbox_want_room(engine->mailbox);
  if (events > 0 || !room) publish_stats(engine);
  if (events > 0) wake_loop(engine, false);
  return room;
}

/* The engine is FAILED from now on. Other ranks hear of it; what waits for them on the device ends
 * when that is closed. */
static void fail(engine_t *engine, const inferd_error_t *error) {
  if (engine->options.comm != NULL) comm_abandon(engine->options.comm, error->message);
  engine->failure = *error;
  atomic_store(&engine->state, ENGINE_FAILED);
}

/* Counts a step in the bucket of its number of tokens. */
static void count_step(uint64_t counts[STEP_TOKEN_BUCKETS], uint64_t num_tokens) {
  static const uint64_t bounds[STEP_TOKEN_BUCKETS - 1] = {STEP_TOKEN_BOUNDS};
  int i = 0;
  while (i < STEP_TOKEN_BUCKETS - 1 && num_tokens > bounds[i]) i++;
  counts[i]++;
}

/* Tokens of prompts that were computed to their end, and generated ones. */
static uint64_t count_results(const engine_stats_t *stats) {
  return stats->prompt_tokens - stats->prompt_tokens_cached + stats->generation_tokens;
}

/* Completes the oldest in-flight step: its results become tokens, ends and events. If the device is
 * lost, every request ends. */
static void commit(engine_t *engine) {
  inferd_error_t error = {0};
  engine_stats_t *stats = &engine->stats;
  uint64_t results_before = count_results(stats), num_tokens = 0;
  constrain_next_step(engine);
  engine->lap_ns = clock_now_ns();
  activity_enter(&engine->activity, ENGINE_WAITS);
  const step_t *step = engine_complete(engine, &error);
  activity_enter(&engine->activity, ENGINE_COMMITS);
  engine_lap(engine, &stats->device_ns);
  if (step != NULL && step->is_left) {
    publish_stats(engine);
    wake_loop(engine, false);
    return;
  }
  if (step != NULL) {
    num_tokens = (uint64_t)step->plan.num_tokens;
    engine_commit(engine, step, engine->lap_ns);
    predictor_follow(engine, step);
    stats->scheduled_tokens += num_tokens;
  } else {
    fail(engine, &error);
    engine_complete_all(engine);
    abort_all(engine, ERR_DEVICE_FAILED);
  }
  engine_lap(engine, &stats->overhead_ns);
  stats->steps++;
  count_step(stats->steps_by_tokens, num_tokens);
  count_step(stats->steps_by_results, count_results(stats) - results_before);
  stats->last_step_ns = engine->lap_ns;
  update_rate(engine, engine->lap_ns);
  publish_forecast(engine);
  publish_stats(engine);
  wake_loop(engine, false);
}

/* Beside the step: masks that groups wait for, and the ends of what can never run. Returns whether
 * a group waits for a mask. */
static bool work_beside_step(engine_t *engine, uint64_t now_ns) {
  activity_enter(&engine->activity, ENGINE_MAKES_MASKS);
  bool waits = constrain_continue(engine, now_ns);
  end_all(engine, &engine->scheduler->ignored, SEQUENCE_FINISHED_IGNORED, ERR_CONTEXT_LENGTH);
  wake_loop(engine, false);
  return waits;
}

/* When no step is in flight: returns for how many milliseconds there is nothing to do. */
static int idle_time_ms(engine_t *engine, bool waits_for_mask) {
  const scheduler_t *scheduler = engine->scheduler;
  const floor_t *floor = engine->pool->floor;
  publish_stats(engine);
  constrain_next_step(engine);
  if (scheduler->slices.num_open > 0) return 0; /* an admission goes on */
  /* the plan preempted a group for one that then was preempted itself, and has no entry; the next
   * one has fewer groups */
  if (scheduler->plan.num_preempted > 0 && scheduler->running.head != NULL) return 0;
  if (floor != NULL && floor->num_leaving > 0) return 0; /* blocks leave */
  /* masks are still being made, here or by threads that wake this one, or are ready to be used */
  if (waits_for_mask) return engine->constrain.rests ? HELPED_SLEEP_MS : 0;
  if (scheduler->swapped.head != NULL) return 0; /* the next plan may swap it in */
  return scheduler->waiting.queue.head != NULL ? QUEUE_CHECK_MS : IDLE_SLEEP_MS;
}

/* Whether this iteration commits a step. In stages a turn goes before, if none was launched. */
static bool ends_step(engine_t *engine, bool launched) {
  if (!engine_has_stages(engine)) return !launched || engine->num_steps == engine->steps_most;
  return launched ? engine_oldest_step(engine)->is_drawn : engine_run_turn(engine);
}

/* Some work of what stands before the model, for requests that run: towers, encoders. */
static bool work_ahead(engine_t *engine) {
  return engine->num_live > 0 && (sight_work(engine) || encoding_work(engine));
}

/* One step: receive, plan, prepare, forward, sample, commit. If two steps may be in flight, the
 * step that is committed is the one before. Returns the milliseconds that the thread may sleep. */
static int run_step(engine_t *engine) {
  uint64_t now_ns = clock_now_ns();
  if (!receive(engine, now_ns))
    return atomic_load(&engine->asleep.sleeps) ? IDLE_SLEEP_MS : ROOM_SLEEP_MS;
  const bool worked = work_ahead(engine);
  step_t *step = engine_plan(engine, now_ns);
  if (step != NULL) {
    engine_prepare(engine, step);
    engine_forward(engine, step);
    if (!engine_has_stages(engine) && !step->is_left) engine_sample(engine, step); /* else a turn */
  }
  bool waits_for_mask = work_beside_step(engine, now_ns);
  if (engine->num_steps == 0) {
    const int idle_ms = idle_time_ms(engine, waits_for_mask);
    /* the plan may have let in one for which there is such work */
    return idle_ms == 0 || worked || work_ahead(engine) ? 0 : idle_ms;
  }
  if (ends_step(engine, step != NULL)) commit(engine);
  return 0;
}

/* After a lost device, or at the end: finishes every request, posted ones included. */
static void refuse_rest(engine_t *engine, int error_code) {
  accept_posted(engine);
  abort_all(engine, error_code);
  publish_stats(engine);
  wake_loop(engine, false);
}

void engine_load(engine_t *engine) {
  inferd_error_t error = {0};
  if (engine_start(engine, &error) != 0) {
    fail(engine, &error);
    wake_loop(engine, true);
    return;
  }
  engine->rate_window_ns = clock_now_ns();
  publish_stats(engine);
  int loading = ENGINE_LOADING;
  atomic_compare_exchange_strong(&engine->state, &loading, ENGINE_READY);
  wake_loop(engine, true);
}

int engine_iterate(engine_t *engine) {
  inferd_error_t error = {0};
  if (atomic_load(&engine->state) != ENGINE_FAILED) {
    int idle_ms = run_step(engine);
    if (idle_ms == 0 || engine_send_idle(engine, &error) == 0)
      return engine_idle_ms(engine, idle_ms);
    fail(engine, &error);
  }
  refuse_rest(engine, ERR_DEVICE_FAILED);
  return IDLE_SLEEP_MS;
}

void engine_end(engine_t *engine) {
  engine_complete_all(engine);
  refuse_rest(engine, 0);
  lane_end(engine->lane);
  if (atomic_load(&engine->state) == ENGINE_READY) engine_flush_floor(engine);
  engine_send_stop(engine);
}

static void *engine_main(void *context) {
  engine_t *engine = context;
  fault_stack_use();
  replicas_take_processors(engine);
  engine_load(engine);
  if (atomic_load(&engine->state) == ENGINE_FAILED)
    return NULL; /* the load failed: no requests exist */
  while (!atomic_load(&engine->stop)) {
    int idle_ms = engine_iterate(engine);
    if (idle_ms == 0) continue;
    activity_enter(&engine->activity, ENGINE_SLEEPS);
    mailbox_sleep(engine->mailbox, idle_ms);
  }
  engine_end(engine);
  return NULL;
}

/* ---- life cycle ---- */

/* Sizes of a step that were not given: those of the back end that will be opened. */
static void choose_step_size(engine_options_t *options, const ops_t *ops) {
  int32_t num_seqs = ops->seqs_default > 0 ? ops->seqs_default : SEQS_DEFAULT;
  int32_t num_tokens = ops->tokens_default > 0 ? ops->tokens_default : TOKENS_DEFAULT;
  int32_t asked = options->max_num_batched_tokens;
  if (asked > 0 && asked < num_seqs) num_seqs = asked; /* each wants a token in every step */
  if (options->max_num_seqs == 0) options->max_num_seqs = num_seqs;
  if (asked > 0) return;
  if (num_tokens < options->max_num_seqs) num_tokens = options->max_num_seqs;
  options->max_num_batched_tokens = num_tokens;
}

/* A test's own back end, or the one that the options name. */
static int choose_backend(const engine_options_t *options, backend_choice_t *out,
                          inferd_error_t *error) {
  if (options->ops == NULL) return backend_choose(options->device, out, error);
  *out = (backend_choice_t){.ops = {options->ops}, .expected = options->ops};
  return 0;
}

static int check_options(const engine_options_t *options, inferd_error_t *error) {
  int32_t block_size = options->block_size;
  if (options->model_dir == NULL)
    return error_set(error, ERR_USAGE, "model", "model is not set; it must be the path of a model");
  if (block_size < 0 || block_size > 1024 || (block_size & (block_size - 1))) {
    return error_set(error, ERR_CONFIGURATION, "block_size",
                     "block_size is %d; it must be a power of two from 1 to 1024, or 0",
                     block_size);
  }
  if (options->max_num_seqs < 1 || options->max_num_seqs > 65536) {
    return error_set(error, ERR_CONFIGURATION, "max_num_seqs",
                     "max_num_seqs is %d; it must be 1 to 65536", options->max_num_seqs);
  }
  if (options->max_num_batched_tokens < options->max_num_seqs ||
      options->max_num_batched_tokens > 1 << 20) {
    return error_set(error, ERR_CONFIGURATION, "max_num_batched_tokens",
                     "max_num_batched_tokens is %d; it must be max_num_seqs (%d) to 1048576",
                     options->max_num_batched_tokens, options->max_num_seqs);
  }
  if (options->num_replicas < 0 || options->num_replicas > REPLICAS_MAX)
    return error_set(error, ERR_CONFIGURATION, "data_parallel_size",
                     "data_parallel_size is %d; it must be 1 to %d", options->num_replicas,
                     REPLICAS_MAX);
  if (options->max_queue_requests < 1 || options->max_queue_requests > 1 << 20) {
    return error_set(error, ERR_CONFIGURATION, "max_queue_requests",
                     "max_queue_requests is %d; it must be 1 to 1048576",
                     options->max_queue_requests);
  }
  if (options->mask_threads < -1 || options->mask_threads > MASK_THREADS_MAX) {
    return error_set(error, ERR_CONFIGURATION, "mask_threads",
                     "mask_threads is %d; it must be 0 to %d, or -1 for a number by processors",
                     options->mask_threads, MASK_THREADS_MAX);
  }
  if (options->max_loras < 0 || options->max_loras > LORAS_MAX ||
      options->num_lora_dirs > options->max_loras) {
    return error_set(error, ERR_CONFIGURATION, "max_loras",
                     "max_loras is %d; it must be %d (those loaded at start) to %d",
                     options->max_loras, options->num_lora_dirs, LORAS_MAX);
  }
  if (options->max_loras > 0 &&
      (options->max_lora_rank < 1 || options->max_lora_rank > ADAPTER_RANK_MAX)) {
    return error_set(error, ERR_CONFIGURATION, "max_lora_rank",
                     "max_lora_rank is %d; it must be 1 to %d", options->max_lora_rank,
                     ADAPTER_RANK_MAX);
  }
  if (!(options->memory_fraction >= 0 && options->memory_fraction <= 1) ||
      !(options->watermark >= 0 && options->watermark < 1)) {
    return error_set(error, ERR_CONFIGURATION, "memory",
                     "memory is %g and watermark is %g; each must be 0 to 1",
                     options->memory_fraction, options->watermark);
  }
  return 0;
}

/* Replaces the strings of the options by copies, which the engine owns. Returns false without
 * memory: NULL would mean the default. */
static bool copy_strings(engine_t *engine) {
  engine_options_t *to = &engine->options;
  const char **strings[] = {&to->model_dir, &to->draft_model_dir,   &to->isa,
                            &to->dtype,     &to->prefix_cache_file, &to->mmproj};
  bool complete = true;
  _Static_assert(ARRAY_LEN(strings) == ARRAY_LEN(engine->strings), "a copy of each");
  for (size_t i = 0; i < ARRAY_LEN(strings); i++) {
    const char *given = *strings[i];
    engine->strings[i] = given != NULL ? strdup(given) : NULL;
    complete = complete && (given == NULL || engine->strings[i] != NULL);
    *strings[i] = engine->strings[i];
  }
  return complete;
}

static size_t groups_bytes(const engine_t *engine) {
  return (size_t)engine->num_groups * sizeof *engine->groups;
}

int engine_new(const engine_options_t *given, engine_t **out, inferd_error_t *error) {
  engine_options_t chosen = *given;
  const engine_options_t *options = &chosen;
  backend_choice_t backend;
  int code = choose_backend(given, &backend, error);
  if (code) return code;
  choose_step_size(&chosen, backend.expected);
  code = check_options(options, error);
  if (code) return code;
  engine_t *engine = calloc(1, sizeof *engine);
  if (engine == NULL) return error_set(error, ERR_NO_MEMORY, NULL, "no memory for the engine");
  engine->options = *options;
  engine->options.device = NULL; /* the caller's text, which nothing reads from here on */
  engine->backend = backend;
  engine->replicas.all[0] = engine;
  engine->replicas.count = 1;
  bool copied = copy_strings(engine);
  /* a group for each request that can wait, run, be preempted, or make room */
  engine->num_groups = options->max_queue_requests + 2 * options->max_num_seqs +
                       MIN(options->max_queue_requests, DROPPED_SLOTS_MAX);
  engine->groups = pages_map(groups_bytes(engine));
  pages_want_huge(engine->groups, groups_bytes(engine));
  int traced = options->trace ? trace_new(&engine->trace, NULL) : 0;
  engine->free_slots = calloc((size_t)engine->num_groups, sizeof *engine->free_slots);
  int shared = share_new(engine->num_groups * replicas_planned(engine), &engine->share, NULL);
  if (engine->groups == NULL || engine->free_slots == NULL || !copied || traced != 0 ||
      shared != 0) {
    int32_t count = engine->num_groups;
    engine_destroy(engine);
    return error_set(error, ERR_NO_MEMORY, NULL, "no memory for %d requests", count);
  }
  for (int32_t i = 0; i < engine->num_groups; i++)
    engine->free_slots[i] = engine->num_groups - 1 - i;
  *out = engine;
  return 0;
}

static int start_thread(engine_t *engine, inferd_error_t *error) {
  int number = pthread_create(&engine->thread, NULL, engine_main, engine);
  if (number != 0)
    return error_set(error, ERR_NO_MEMORY, NULL, "the engine's thread does not start: %s",
                     strerror(number));
  pthread_setname_np(engine->thread, "engine");
  engine->thread_started = true;
  return 0;
}

int engine_make_replicas(engine_t *leader, const engine_options_t *given, inferd_error_t *error) {
  replicas_t *replicas = &leader->replicas;
  engine_options_t options = *given;
  options.num_replicas = 1;
  options.log = NULL; /* they would say what the leader says */
  options.kv_events = NULL;
  for (int32_t i = 1; i < given->num_replicas; i++) {
    int code = engine_new(&options, &replicas->all[i], error);
    if (code != 0) return code;
    engine_t *engine = replicas->all[i];
    engine->replicas.index = i;
    engine->replicas.leader = leader;
    share_free(engine->share);
    engine->share = leader->share;
    replicas->count = i + 1;
  }
  return 0;
}

int engine_create(const engine_options_t *options, engine_t **out, inferd_error_t *error) {
  engine_t *engine = NULL;
  int code = engine_new(options, &engine, error);
  if (code) return code;
  code = engine_make_replicas(engine, options, error);
  for (int32_t i = 0; i < engine->replicas.count && !code; i++)
    code = start_thread(engine->replicas.all[i], error);
  if (code) {
    engine_destroy(engine);
    return code;
  }
  *out = engine;
  return 0;
}

static void stop_thread(engine_t *engine) {
  if (!engine->thread_started) return;
  pthread_join(engine->thread, NULL);
  engine->thread_started = false;
}

void engine_stop(engine_t *engine) {
  const replicas_t *replicas = &engine->replicas;
  for (int32_t i = 0; i < replicas->count; i++) {
    engine_t *one = replicas->all[i];
    if (!one->thread_started) continue;
    atomic_store(&one->stop, true);
    /* A thread that is LOADING will read `stop` later; afterwards it may be asleep. */
    if (atomic_load(&one->state) != ENGINE_LOADING && one->mailbox != NULL)
      mailbox_wake(one->mailbox);
  }
  for (int32_t i = 0; i < replicas->count; i++) stop_thread(replicas->all[i]);
}

void engine_destroy(engine_t *engine) {
  if (engine == NULL) return;
  engine_stop(engine);
  for (int32_t i = engine->replicas.count - 1; i > 0; i--) engine_destroy(engine->replicas.all[i]);
  engine_release(engine);
  for (int32_t i = 0; i < LORAS_MAX; i++) {
    adapter_free(atomic_load(&engine->adapters[i]));
    adapter_free(engine->kept_adapters[i]);
    free(engine->invocations[i].ids);
  }
  trace_free(engine->trace);
  replicas_free(engine);
  share_free(engine->share);
  pages_unmap(engine->groups, groups_bytes(engine));
  free(engine->free_slots);
  for (size_t i = 0; i < ARRAY_LEN(engine->strings); i++) free(engine->strings[i]);
  free(engine);
}
