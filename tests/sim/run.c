/* run.c: one simulation: the loop thread's part, the clock, and what comes back.
 *
 * Plays one scenario from a fresh engine to an empty one. Between two iterations of the engine it
 * submits what is due, cancels what has to go, and drains events, each of which is compared with
 * what the oracle says. The clock stands still but for the device's steps and for idle times.
 */
#include "tests/sim/followers.h"
#include "tests/sim/jumps.h"
#include "tests/sim/kv_listener.h"
#include "tests/sim/mask_units.h"
#include "tests/sim/oracle.h"
#include "tests/sim/pools.h"
#include "tests/sim/sees.h"
#include "tests/sim/web.h"

#include "engine/base/clock.h"

#include <stdlib.h>
#include <string.h>

sim_t sim;
static track_t *tracks;

/* Linked in front of engine/base/clock.c. */
uint64_t clock_now_ns(void) {
  return sim.now_ns;
}

uint64_t clock_thread_ns(void) {
  return sim.now_ns;
}

static long long name_of(const track_t *k) {
  return k->index;
}

/* What the loop side owns of a request, once the engine has given it back. */
static void forget(track_t *k) {
  stop_set_free(k->stops);
  free(k->request.room);
  grammar_unref(k->request.grammar);
  k->request.grammar = NULL;
  k->stops = NULL;
  k->request.room = NULL;
}

/* ---- events ---- */

static void on_text(const track_t *owner, stream_t *k, const event_t *event) {
  REQUIRE(k->num_bytes + event->text_length <= k->text_length &&
              memcmp(k->text + k->num_bytes, event->text, event->text_length) == 0,
          "I9: request %lld: its text is \"%.*s\" and \"%.*s\" came at byte %zu", name_of(owner),
          (int)k->text_length, k->text, (int)event->text_length, event->text, k->num_bytes);
  k->num_bytes += event->text_length;
}

static void on_logprob(const track_t *k, const event_t *event, uint64_t hash, int32_t num_top) {
  token_logprob_t best[SIM_SCORES_MAX];
  REQUIRE(event->has_logprob == (num_top >= 0), "request %lld: a logprob is missing", name_of(k));
  if (num_top < 0) return;
  bool beams = k->script->params.beam_width > 0 && event->kind == EVENT_TOKEN;
  if (beams) num_top = oracle_top(sim.scenario, hash, num_top, best);
  REQUIRE(event->logprob == oracle_logprob(hash, event->token_id) && event->num_top == num_top,
          "request %lld: a wrong logprob for id %d", name_of(k), event->token_id);
  for (int32_t i = 0; i < num_top; i++) {
    int32_t id = beams ? best[i].id : i;
    REQUIRE(event->top[i].id == id && event->top[i].logprob == oracle_logprob(hash, id),
            "request %lld: a wrong alternative", name_of(k));
  }
}

static void on_token(track_t *owner, stream_t *k, const event_t *event) {
  int32_t at = owner->num_prompt + k->num_tokens;
  REQUIRE(k->num_tokens < k->num_expected, "I9: request %lld: a token after its end",
          name_of(owner));
  REQUIRE(event->position == k->num_tokens && event->token_id == k->ids[at],
          "I4: request %lld: token %d at position %d, it must be %d at %d", name_of(owner),
          event->token_id, event->position, k->ids[at], k->num_tokens);
  on_logprob(owner, event, k->hash[at - 1], owner->script->params.num_logprobs);
  on_text(owner, k, event);
  k->num_tokens++;
  owner->num_tokens++;
}

static void on_score(track_t *k, const event_t *event) {
  int32_t at = ++k->num_scores;
  const stream_t *first = &k->streams[0];
  REQUIRE(at < k->num_prompt && event->position == at && event->token_id == first->ids[at],
          "request %lld: score of position %d, it must be %d", name_of(k), event->position, at);
  on_logprob(k, event, first->hash[at - 1], k->script->params.num_prompt_logprobs);
}

/* The end of a choice that the oracle has said, complete in every part. */
static void check_choice_end(const track_t *owner, stream_t *k, const event_t *event) {
  REQUIRE(!k->done, "I5: request %lld: a choice ends twice", name_of(owner));
  REQUIRE(event->finish == k->finish && event->error_code == 0 &&
              event->stop_token_id == k->stop_token_id && event->stop_string == k->stop_string,
          "request %lld ends by %d (error %d, id %d, string %d), it must be %d (0, %d, %d)",
          name_of(owner), (int)event->finish, event->error_code, event->stop_token_id,
          event->stop_string, (int)k->finish, k->stop_token_id, k->stop_string);
  REQUIRE(k->num_tokens == k->num_expected, "I5: request %lld ends after %d of %d tokens",
          name_of(owner), k->num_tokens, k->num_expected);
  REQUIRE(k->num_bytes == k->text_length, "request %lld ends with %zu of %zu bytes", name_of(owner),
          k->num_bytes, k->text_length);
  k->done = true;
}

static void on_choice_done(track_t *owner, stream_t *k, const event_t *event) {
  REQUIRE(params_multiple(&owner->script->params), "request %lld has one choice", name_of(owner));
  on_text(owner, k, event);
  check_choice_end(owner, k, event);
  REQUIRE(event->num_output_tokens == k->num_tokens, "I5: request %lld: usage of a choice",
          name_of(owner));
  REQUIRE(!params_collect(&owner->script->params) || event->cumulative_logprob == k->cumulative,
          "request %lld: a choice of the sum %f, it must be %f", name_of(owner),
          event->cumulative_logprob, k->cumulative);
  owner->num_done++;
}

/* The end that the oracle has said. */
static void check_natural_end(track_t *k, const event_t *event) {
  stream_t *first = &k->streams[k->best[0]];
  if (k->error_code) {
    int32_t expected = k->num_streams > 1 ? 0 : first->num_expected;
    /* Draft tokens that were right in the very step that failed are lost with it. */
    bool all = k->num_tokens == expected ||
               (scenario_has(sim.scenario, SIM_DRAFTS) && k->num_tokens < expected);
    REQUIRE(event->finish == FINISH_ERROR && event->error_code == k->error_code && all,
            "request %lld ends by %d (error %d), it must be error %d", name_of(k),
            (int)event->finish, event->error_code, k->error_code);
    return;
  }
  if (params_multiple(&k->script->params)) {
    REQUIRE(k->num_done == k->num_choices && event->finish == first->finish,
            "I5: request %lld ends with %d of %d choices", name_of(k), k->num_done, k->num_choices);
  } else {
    check_choice_end(k, first, event);
  }
  if (scenario_has(sim.scenario, SIM_POOLS)) pools_check(sim.scenario, k);
  bool scores = k->script->params.num_prompt_logprobs >= 0;
  REQUIRE(k->num_scores == (scores ? k->num_prompt - 1 : 0), "request %lld: %d scores", name_of(k),
          k->num_scores);
  REQUIRE(event->num_cached_tokens >= k->first_cached &&
              (!k->preempted || event->num_cached_tokens >= k->first_cached),
          "I5: request %lld: %d tokens cached, its first row began at %d", name_of(k),
          event->num_cached_tokens, k->first_cached);
  REQUIRE(k->preempted || event->num_cached_tokens + k->num_computed == k->num_prompt,
          "I5: request %lld: %d tokens cached, %d computed of %d", name_of(k),
          event->num_cached_tokens, k->num_computed, k->num_prompt);
}

/* Steps before its time in which the policy slo may end a request that will be late. */
enum { LATE_STEPS = 4 };

static void check_end(track_t *k, const event_t *event) {
  const scenario_t *c = sim.scenario;
  if (event->finish == FINISH_ABORT) {
    bool stopped = c->stop_at > 0 && sim.iteration >= (uint64_t)c->stop_at;
    REQUIRE(k->cancelled_iteration || stopped, "request %lld is aborted without a cause",
            name_of(k));
  } else if (event->finish == FINISH_ERROR && event->error_code == ERR_DEVICE_FAILED) {
    REQUIRE(sim.lost, "request %lld: the device is not lost", name_of(k));
  } else if (event->finish == FINISH_ERROR && event->error_code == ERR_QUEUE_FULL) {
    REQUIRE(k->dropped && k->num_tokens + k->num_scores == 0,
            "request %lld makes room without a cause, or after its first token", name_of(k));
  } else if (event->finish == FINISH_ERROR && event->error_code == ERR_QUEUE_TIMEOUT) {
    double limit_s = c->options.max_queue_time_s;
    bool may_run =
        c->options.slo_policy && k->num_tokens == 0 && cost_is_known(&sim.engine->scheduler->cost);
    double ahead_s = c->options.slo_policy ? LATE_STEPS * 1e-3 * c->options.max_step_ms : 0;
    REQUIRE(limit_s > 0 && (!k->runs[0].was_planned || may_run) &&
                (double)(sim.now_ns - k->submitted_ns) >= (limit_s - ahead_s) * 1e9,
            "request %lld: its time in the queue is not over", name_of(k));
  } else {
    REQUIRE(!k->dropped, "request %lld goes on after it made room", name_of(k));
    check_natural_end(k, event);
    REQUIRE(event->num_output_tokens == k->num_tokens || k->error_code,
            "I5: request %lld: usage %d for %d tokens", name_of(k), event->num_output_tokens,
            k->num_tokens);
  }
  REQUIRE(event->num_cached_tokens >= 0 && event->num_cached_tokens < k->num_prompt,
          "I5: request %lld: %d of %d tokens cached", name_of(k), event->num_cached_tokens,
          k->num_prompt);
  bool began = k->num_tokens > 0;
  REQUIRE((!began || event->first_token_ns != 0) &&
              (!event->first_token_ns || event->first_scheduled_ns <= event->first_token_ns) &&
              event->first_token_ns <= event->finished_ns && event->finished_ns <= sim.now_ns,
          "request %lld: its times are out of order", name_of(k));
  /* A late loop, an answer that comes at its end, and a mask that was late hide the step. */
  bool is_known = began && c->drain_every == 1 && k->script->language < 0 &&
                  k->script->params.beam_width == 0 && !params_collect(&k->script->params);
  REQUIRE(!is_known || event->first_token_ns == k->first_ns,
          "request %lld: its first token came at another time", name_of(k));
}

static void on_event(const event_t *event) {
  track_t *k = check_track_of(event->request);
  REQUIRE(k->submitted && !k->done, "I5: an event for request %lld after its end", name_of(k));
  REQUIRE(event->choice >= 0 && event->choice < k->num_choices, "request %lld has no choice %d",
          name_of(k), event->choice);
  stream_t *stream = &k->streams[k->best[event->choice]];
  if (event->kind == EVENT_TOKEN) {
    if (k->first_ns == 0) k->first_ns = sim.landed_ns;
    on_token(k, stream, event);
  } else if (event->kind == EVENT_PROMPT_LOGPROB) {
    on_score(k, event);
  } else if (event->kind == EVENT_CHOICE_DONE) {
    on_choice_done(k, stream, event);
  } else {
    on_text(k, stream, event);
    check_end(k, event);
    k->done = true;
    k->num_cached = event->num_cached_tokens;
    k->ended_by = event->error_code;
    sim.num_live--;
    forget(k);
  }
}

/* ---- the loop thread ---- */

/* Side blocks of a group at its worst: what each sequence sees, its token, and the chunks of a
 * step, of several sequences twice: while they are admitted, too. */
/* Sequences of it that must run at once. */
static int32_t width_of(const track_t *k) {
  return k->script->params.beam_width > 0 ? k->num_streams : 1;
}

static int32_t windows_most(const track_t *k, int32_t blocks) {
  const scheduler_t *s = sim.engine->scheduler;
  int32_t bs = s->pool->block_size, chunks = (s->options.window.in_flight + bs - 1) / bs;
  int32_t seen = (s->options.window.tokens + bs - 2) / bs + 1, all = width_of(k) * blocks;
  if (s->pool->num_sides == 0) return 0;
  int32_t most = width_of(k) == 1 ? seen + (bs + s->options.window.in_flight - 2) / bs
                                  : width_of(k) * (seen + 1) + 2 * chunks;
  if (width_of(k) > 1 && blocks < seen) most -= width_of(k) * (seen - blocks);
  return s->pool->num_sides * (most < all ? most : all);
}

/* Blocks of a group at its worst: shared prompt blocks once, the rest for every sequence. With
 * states all of them: a preempted sequence computes every token again. */
static bool pool_can_hold(const track_t *k) {
  const engine_options_t *o = &sim.scenario->options;
  int32_t bs = o->block_size, shared = k->num_prompt / bs;
  if (scenario_has(sim.scenario, SIM_STATES)) shared = 0;
  int32_t most = (k->num_prompt + k->script->params.max_tokens + bs - 1) / bs;
  return shared + width_of(k) * (most - shared) + windows_most(k, most) <= o->num_blocks - 1;
}

static void check_refusal(const track_t *k, int code, bool enters) {
  if (code == ERR_ENGINE_FAILED) {
    REQUIRE(sim.lost, "request %lld is refused: device", name_of(k));
  } else if (code == ERR_CONTEXT_LENGTH) {
    REQUIRE(!pool_can_hold(k), "request %lld is refused as too long", name_of(k));
  } else if (code == ERR_RATE_LIMITED) {
    REQUIRE(check_quota_lacks(k), "request %lld is refused by limits that it keeps", name_of(k));
  } else {
    bool is_short =
        scenario_has(sim.scenario, SIM_QUEUE_LIMIT) || scenario_has(sim.scenario, SIM_HOSTILE);
    REQUIRE(code == ERR_QUEUE_FULL && is_short, "request %lld is refused by %d", name_of(k), code);
    /* Slots of requests that made room are free when a late loop has read their ends. */
    bool slots = sim.engine->loop_live < sim.engine->num_groups;
    REQUIRE(!enters || !slots, "request %lld is refused and has a place", name_of(k));
  }
}

/* Everything enters here, whether run.c or the API submits it. */
int __real_engine_submit(engine_t *e, request_t *const *requests, int count, inferd_error_t *error);
int __wrap_engine_submit(engine_t *e, request_t *const *requests, int count, inferd_error_t *error);

int __wrap_engine_submit(engine_t *e, request_t *const *requests, int count,
                         inferd_error_t *error) {
  if (sim.torture) return __real_engine_submit(e, requests, count, error);
  request_t *request = requests[0];
  bool api = scenario_has(sim.scenario, SIM_API);
  int index = api ? web_index(request) : (int)request->id - 1;
  track_t *k = &tracks[index];
  REQUIRE(count == 1 && request->id < SIM_IDS, "%d requests at once", count);
  sim.index_of[request->id] = (uint8_t)index;
  if (api) {
    REQUIRE(!web_draining(), "I12: request %d is submitted while draining", index);
    oracle_prepare(sim.scenario, index, e->tokenizer, request->prompt_ids,
                   request->num_prompt_tokens, k);
    web_check_salt(k->script, request);
  }
  k->submitted_ns = request->arrival_ns;
  REQUIRE(request->adapter == k->script->adapter, "request %d names another adapter", index);
  if (scenario_has(sim.scenario, SIM_QUOTAS)) {
    request->quota = &sim.scenario->quotas[k->script->tenant];
  }
  bool lacks = check_quota_lacks(k);
  bool enters = queue_expect(request);
  k->refusal = __real_engine_submit(e, requests, count, error);
  queue_check_submitted(k, request, k->refusal);
  if (k->refusal) {
    check_refusal(k, k->refusal, enters);
    k->done = true;
  } else {
    REQUIRE(enters, "request %d enters a full queue", index);
    REQUIRE(pool_can_hold(k), "request %d is admitted and can never run", index);
    REQUIRE(!lacks, "request %d passes the limits of its key", index);
    k->submitted = true;
    check_submitted(k, request);
    sim.num_live++;
  }
  return k->refusal;
}

typedef struct tap {
  void (*handle)(void *context, const event_t *event);
  void *context;
} tap_t;

static void on_tapped(void *context, const event_t *event) {
  const tap_t *tap = context;
  on_event(event);
  if (tap->handle) tap->handle(tap->context, event);
}

/* Every event passes here first. */
int __real_engine_drain(engine_t *e, void (*handle)(void *context, const event_t *event),
                        void *context);
int __wrap_engine_drain(engine_t *e, void (*handle)(void *context, const event_t *event),
                        void *context);

int __wrap_engine_drain(engine_t *e, void (*handle)(void *context, const event_t *event),
                        void *context) {
  if (sim.torture) return __real_engine_drain(e, handle, context);
  tap_t tap = {handle, context};
  return __real_engine_drain(e, on_tapped, &tap);
}

/* Every record of the trace passes here: it is of a request that was submitted, follows what may
 * come before it, and FINISHED is the last one. */
static void on_record(const trace_record_t *record) {
  REQUIRE(record->request_id > 0 && record->request_id < SIM_IDS, "a record of request %llu",
          (unsigned long long)record->request_id);
  track_t *k = &sim.tracks[sim.index_of[record->request_id]];
  REQUIRE(k->submitted, "a record of request %d, which was not submitted", k->index);
  REQUIRE(k->trace != 1 + (int)TRACE_FINISHED, "request %d has record %d after its end", k->index,
          (int)record->kind);
  REQUIRE(record->time_ns >= record->arrival_ns && record->time_ns <= sim.now_ns,
          "request %d has a record of another time", k->index);
  bool was_admitted = k->trace > 0 || sim.trace_lost;
  REQUIRE(was_admitted || record->kind == TRACE_ADMITTED || record->kind == TRACE_FINISHED,
          "request %d has record %d before it was admitted", k->index, (int)record->kind);
  k->trace = 1 + (int)record->kind;
}

typedef struct trace_tap {
  void (*handle)(void *context, const trace_record_t *record);
  void *context;
} trace_tap_t;

static void on_tapped_record(void *context, const trace_record_t *record) {
  const trace_tap_t *tap = context;
  on_record(record);
  if (tap->handle != NULL) tap->handle(tap->context, record);
}

uint64_t __real_engine_trace(engine_t *e,
                             void (*handle)(void *context, const trace_record_t *record),
                             void *context);
uint64_t __wrap_engine_trace(engine_t *e,
                             void (*handle)(void *context, const trace_record_t *record),
                             void *context);

/* After engine_drain: every request whose end was drained has its FINISHED record. */
uint64_t __wrap_engine_trace(engine_t *e,
                             void (*handle)(void *context, const trace_record_t *record),
                             void *context) {
  if (sim.torture) return __real_engine_trace(e, handle, context);
  trace_tap_t tap = {handle, context};
  uint64_t dropped = __real_engine_trace(e, on_tapped_record, &tap);
  sim.trace_lost = sim.trace_lost || dropped > 0;
  for (int i = 0; scenario_has(sim.scenario, SIM_TRACE) && i < sim.scenario->count; i++) {
    const track_t *k = &sim.tracks[i];
    REQUIRE(!k->submitted || !k->done || sim.trace_lost || k->trace == 1 + (int)TRACE_FINISHED,
            "request %d has ended without a record", k->index);
  }
  return dropped;
}

static void make_stops(track_t *k) {
  const char *strings[SIM_STOPS_MAX];
  size_t lengths[SIM_STOPS_MAX];
  for (int i = 0; i < k->script->num_stops; i++) {
    strings[i] = k->script->stops[i];
    lengths[i] = strlen(strings[i]);
  }
  int code = stop_set_new(strings, lengths, k->script->num_stops, &k->stops, NULL);
  REQUIRE(code == 0, "no stop set");
}

/* Straight to the engine, without the API. */
static void submit(int index) {
  static int32_t prompt[SIM_CONTEXT_MAX];
  track_t *k = &tracks[index];
  const script_t *r = &sim.scenario->scripts[index];
  scenario_prompt(sim.scenario, index, prompt);
  oracle_prepare(sim.scenario, index, sim.engine->tokenizer, prompt, r->num_prompt, k);
  make_stops(k);
  k->request = (request_t){.id = (uint64_t)index + 1,
                           .prompt_ids = k->streams[0].ids,
                           .num_prompt_tokens = k->num_prompt,
                           .params = r->params,
                           .stops = k->stops,
                           .skip_special_tokens = r->skip_special,
                           .include_stop_string = r->include_stop,
                           .priority = r->priority,
                           .best_effort = r->best_effort,
                           .tenant = r->tenant,
                           .salt = r->domain,
                           .adapter = r->adapter,
                           .adapter_from = r->adapter_from,
                           .base_salt = r->base_domain,
                           .images = sees_images(index, r),
                           .num_images = r->num_images,
                           .rows = sees_rows(index, r, k->streams[0].ids),
                           .arrival_ns = sim.now_ns};
  if (r->language >= 0) k->request.grammar = language_grammar(r->language);
  if (scenario_has(sim.scenario, SIM_POOLS)) {
    k->request.pooling = sim.scenario->options.embedding.pooling;
    k->request.pooled = pools_room(index);
  }
  if (params_collect(&r->params)) {
    k->request.room = calloc(1, engine_room_bytes(&r->params));
    REQUIRE(k->request.room, "no memory");
  }
  request_t *request = &k->request;
  inferd_error_t error;
  if (index % 2 == 0 && engine_hash_prompt(sim.engine, request, k->keys) > 0)
    request->prompt_keys = k->keys;
  if (engine_submit(sim.engine, &request, 1, &error) == 0) return;
  forget(k);
}

void web_cancelled(int index) {
  track_t *k = &tracks[index];
  if (!k->submitted || k->done || k->cancelled_iteration) return;
  k->cancelled_iteration = sim.iteration + 1;
}

static bool wants_cancel(const track_t *k) {
  const script_t *r = k->script;
  if (r->cancel_after_tokens >= 0 && k->num_tokens >= r->cancel_after_tokens) return true;
  return r->cancel_after_ns && sim.now_ns >= k->submitted_ns + r->cancel_after_ns;
}

static void cancel(int first, int end) {
  bool api = scenario_has(sim.scenario, SIM_API);
  for (int i = first; i < end; i++) {
    track_t *k = &tracks[i];
    if (!k->submitted || k->done || k->cancelled_iteration || !wants_cancel(k)) continue;
    k->cancelled_iteration = sim.iteration + 1;
    if (!api) {
      engine_cancel(sim.engine, &k->request);
    } else if (!web_hang_up(i)) {
      k->cancelled_iteration = 0; /* its last bytes were faster */
    }
  }
}

/* ---- the run ---- */

/* As if a step could have as many events as the ring has room for: it must be empty for a step. */
static void fill_ring(engine_t *e) {
  e->step_bytes_max = mailbox_room(e->mailbox) - ((size_t)e->num_groups + 1) * e->done_bytes_max;
}

/* False when a rank fails while the ranks start. */
static bool start(scenario_t *c) {
  inferd_error_t error = {0};
  memset(&sim, 0, sizeof sim);
  sim.scenario = c;
  sim.now_ns = 1000000000u;
  if (!tracks) tracks = calloc(SIM_REQUESTS_MAX, sizeof *tracks);
  REQUIRE(tracks, "no memory");
  sim.tracks = tracks;
  for (int i = 0; i < c->count; i++) {
    memset(&tracks[i], 0, offsetof(track_t, streams));
    memset(&tracks[i].num_tokens, 0, sizeof tracks[i] - offsetof(track_t, num_tokens));
    tracks[i].index = i;
  }
  ops_sim.pipeline_depth = c->pipeline_depth;
  ops_sim.client_step_ms = c->client_step_ms;
  ops_sim.bounds_admission = scenario_has(c, SIM_SEATS);
  c->options.ops = &ops_sim;
  c->options.kv_events = kv_listener_begin();
  followers_begin(c);
  int code = engine_new(&c->options, &sim.engine, &error);
  REQUIRE(code == 0, "the engine refuses its options: %s", error.message);
  engine_load(sim.engine);
  if (engine_state(sim.engine) == ENGINE_FAILED) engine_failure(sim.engine, &error);
  if (engine_state(sim.engine) == ENGINE_FAILED && followers_failed_start()) return false;
  REQUIRE(engine_state(sim.engine) == ENGINE_READY, "the engine does not start: %s", error.message);
  if (c->awaited_one_in > 0) sim.engine->awaited_one_in = c->awaited_one_in;
  if (c->fills_ring) fill_ring(sim.engine);
  REQUIRE((c->window > 0) == (sim.engine->pool->num_sides > 0), "the window frees no blocks");
  if (c->window > 0) sim.engine->scheduler->options.window.tokens = c->window;
  sim.engine->scheduler->options.pace.reads = c->reads; /* as if nobody had said how long */
  if (c->slice_blocks > 0) sim.engine->scheduler->options.slice_blocks = c->slice_blocks;
  sim.engine->scheduler->options.snapshot_blocks = c->snapshot_blocks;
  sim.engine->scheduler->waiting.tenants.span = (uint64_t)c->fair_span * SERVED_TOKEN;
  if (sim.engine->pool->floor != NULL)
    sim.engine->pool->floor->options.step_blocks = c->floor_step_blocks;
  language_load(engine_grammar_vocabulary(sim.engine));
  mask_units_load();
  sees_begin(c);
  jumps_learn(c, &sim.engine->scheduler->cost);
  check_begin();
  if (scenario_has(c, SIM_API)) web_start();
  return true;
}

enum { SLEEP_BESIDE_MS = 10 };

static uint64_t turns_max(const scenario_t *c) {
  uint64_t tokens = 0;
  for (int i = 0; i < c->count; i++) {
    tokens += (uint64_t)(c->scripts[i].num_prompt + c->scripts[i].params.max_tokens);
  }
  return (64 * tokens + 10000) * (uint64_t)c->drain_every;
}

/* While a request runs the thread sleeps for what others make, for no longer: masks, room in the
 * ring. Nobody wakes it for what it has to do itself. */
static void check_sleep(int idle_ms) {
  const group_t *runs = sim.engine->scheduler->running.head;
  REQUIRE(idle_ms <= SLEEP_BESIDE_MS || runs == NULL || engine_state(sim.engine) != ENGINE_READY,
          "I7: sleeps for %d ms while request %d runs", idle_ms,
          check_track(&runs->sequence)->index);
}

/* One iteration of the engine, checked. Returns for how long it would sleep. */
static int iterate(void) {
  sim.iteration++;
  uint64_t heap = alloc_calls() - followers_heap_calls();
  int idle_ms = engine_iterate(sim.engine);
  REQUIRE(alloc_calls() - followers_heap_calls() == heap,
          "I7: the engine thread has used the heap");
  check_iteration();
  followers_check();
  kv_listener_check(sim.engine, false);
  check_sleep(idle_ms);
  return idle_ms;
}

/* Nothing to do: the clock goes to the next event. False when there is none. */
static bool pass_time(const scenario_t *c, int index, int idle_ms) {
  uint64_t until = sim.now_ns + (uint64_t)idle_ms * 1000000u;
  if (sim.num_live == 0 && index == c->count) return false;
  uint64_t due = index < c->count ? 1000000000u + c->scripts[index].due_ns : until;
  const bool skips =
      sim.num_live == 0 && !scenario_has(c, SIM_RANKS); /* ranks want signs of life */
  if (due > sim.now_ns && (due < until || skips)) until = due;
  sim.now_ns = until;
  return true;
}

/* One iteration of the loop thread: what the engine has said. */
static void drain(void) {
  if (scenario_has(sim.scenario, SIM_API)) {
    web_iterate();
  } else {
    engine_drain(sim.engine, NULL, NULL);
    engine_trace(sim.engine, NULL, NULL);
  }
}

static void end(void) {
  engine_end(sim.engine);
  drain();
  check_iteration();
  kv_listener_check(sim.engine, true);
  check_idle();
  if (scenario_has(sim.scenario, SIM_API)) web_stop();
}

/* The process of rank 0 ends, and so do the others. True when a rank has failed. */
static bool finish(void) {
  engine_destroy(sim.engine);
  sim.engine = NULL;
  kv_listener_end();
  sim.scenario->options.kv_events = NULL;
  return followers_end();
}

/* Requests that are due by now. */
static int send_due(const scenario_t *c, int index) {
  for (; index < c->count && 1000000000u + c->scripts[index].due_ns <= sim.now_ns; index++) {
    if (c->dropped[index]) {
      tracks[index].done = true;
    } else if (scenario_has(c, SIM_API)) {
      web_send(index);
    } else {
      submit(index);
    }
  }
  return index;
}

/* True when the run ends here. A server drains: what is in flight goes on to its end. */
static bool stops_now(const scenario_t *c) {
  if (!c->stop_at || sim.iteration < (uint64_t)c->stop_at) return false;
  if (!scenario_has(c, SIM_API)) return true;
  web_drain();
  return false;
}

static void play(const scenario_t *c) {
  uint64_t limit = turns_max(c);
  int index = 0, oldest = 0;
  bool api = scenario_has(c, SIM_API);
  for (;;) {
    index = send_due(c, index);
    while (oldest < index && tracks[oldest].done) oldest++;
    cancel(oldest, index);
    int idle_ms = iterate();
    if (sim.iteration % (uint64_t)c->drain_every == 0 || idle_ms > 0) drain();
    if (stops_now(c)) break;
    bool busy = api && web_busy();
    if (idle_ms > 0 && !pass_time(c, index, idle_ms) && !busy) break;
    REQUIRE(sim.iteration < limit, "I3: no end after %llu iterations, %d requests live",
            (unsigned long long)sim.iteration, sim.num_live);
  }
}

/* From a fresh engine to an empty one. True when a rank has failed. */
static bool run_life(scenario_t *c) {
  static bool warm; /* the first run that starts leaves the tracks and the tokenizer behind */
  int64_t heap = alloc_live();
  bool api = scenario_has(c, SIM_API);
  const bool starts = start(c);
  if (starts) {
    play(c);
    end();
  }
  bool failed = finish();
  /* Libraries allocate for the API what is freed here; there the sanitizer counts. */
  REQUIRE(alloc_live() == heap || !warm || api, "I2: %lld heap blocks are left",
          (long long)(alloc_live() - heap));
  warm = warm || starts;
  return failed;
}

/* When a rank has failed, all start again, and who got no answer asks again. */
static void restart(scenario_t *c) {
  bool dropped[SIM_REQUESTS_MAX];
  const rank_fault_t fault = c->rank_fault;
  memcpy(dropped, c->dropped, sizeof dropped);
  for (int i = 0; i < c->count; i++) {
    const track_t *k = &tracks[i];
    const bool lost = k->refusal == ERR_ENGINE_FAILED || k->ended_by == ERR_DEVICE_FAILED;
    c->dropped[i] = c->dropped[i] || (k->done && !lost);
  }
  c->rank_fault = RANK_IS_WELL;
  (void)run_life(c);
  c->rank_fault = fault;
  memcpy(c->dropped, dropped, sizeof dropped);
}

uint64_t sim_run(scenario_t *c) {
  const bool failed = run_life(c);
  const uint64_t steps = sim.steps;
  if (!failed) return steps;
  restart(c);
  return steps + sim.steps;
}
