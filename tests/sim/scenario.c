/* scenario.c: see scenario.h. Draws; never looks at the engine. */
#include "tests/sim/scenario.h"

#include "engine/base/random.h"
#include "engine/base/util.h"
#include "engine/schedule/window/window.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* Independent streams of random numbers: one for each purpose, so that none moves another. */
typedef struct source {
  uint64_t state;
} source_t;

enum {
  STREAM_FEATURES = 1,
  STREAM_ENGINE,
  STREAM_LOAD,
  STREAM_REQUEST,
  STREAM_PROMPT,
  STREAM_HOSTILE,
  STREAM_RETURNS,
  STREAM_BROKEN_OFF,
  STREAM_SHAPES,
  STREAM_PICTURES,
  STREAM_BEST_EFFORT,
  STREAM_JUMPS,
  STREAM_ROWS
};

static source_t source_of(uint64_t seed, uint64_t stream, uint64_t index) {
  return (source_t){random_mix(random_mix(seed + stream * RANDOM_GAMMA) + index)};
}

static uint64_t next(source_t *s) {
  return random_mix(s->state += RANDOM_GAMMA);
}

/* Uniform in low .. high. */
static int32_t between(source_t *s, int32_t low, int32_t high) {
  return low + (int32_t)(next(s) % (uint64_t)(high - low + 1));
}

static bool chance(source_t *s, int32_t percent) {
  return between(s, 0, 99) < percent;
}

static const char *const names[] = {
#define X(name, chance, text) #name,
    SIM_FEATURES(X)
#undef X
};

const char *scenario_feature_name(int feature) {
  static char text[32];
  size_t i = 0;
  for (; names[feature][i] && i + 1 < sizeof text; i++) {
    text[i] = (char)tolower((unsigned char)names[feature][i]);
  }
  text[i] = '\0';
  return text;
}

int scenario_feature(const char *name) {
  for (int f = 0; f < SIM_FEATURE_COUNT; f++) {
    if (strcmp(scenario_feature_name(f), name) == 0) return f;
  }
  return -1;
}

/* Whether blocks come back from a floor often. */
static bool returns(const scenario_t *c) {
  return scenario_has(c, SIM_FLOOR) && scenario_has(c, SIM_RETURNS);
}

static void draw_features(scenario_t *c) {
  static const int32_t chances[] = {
#define X(name, chance, text) chance,
      SIM_FEATURES(X)
#undef X
  };
  source_t s = source_of(c->seed, STREAM_FEATURES, 0);
  c->features = 0;
  for (int f = 0; f < SIM_FEATURE_COUNT; f++) {
    source_t own = source_of(c->seed, STREAM_JUMPS, 0); /* it came last, and moves nothing */
    if (between(f == SIM_JUMPS ? &own : &s, 1, 16) <= chances[f]) c->features |= UINT64_C(1) << f;
  }
  c->features = (c->features | c->forced) & ~c->removed;
  static const int with_crowded[] = {SIM_CHOICES, SIM_ASYNC, SIM_PRIORITY, SIM_TIGHT};
  static const int no_crowded[] = {SIM_DRAFT_MODEL, SIM_MTP, SIM_RANKS, SIM_POOLS, SIM_STATES};
  for (size_t i = 0; scenario_has(c, SIM_CROWDED) && i < 4; i++)
    c->features |= UINT64_C(1) << with_crowded[i] & ~c->removed;
  for (size_t i = 0; scenario_has(c, SIM_CROWDED) && i < 5; i++)
    c->features &= ~(UINT64_C(1) << no_crowded[i]) | c->forced;
  static const int with_broken_off[] = {SIM_CACHING, SIM_SHARED, SIM_THRESHOLD};
  for (size_t i = 0; scenario_has(c, SIM_BROKEN_OFF) && i < 3; i++)
    c->features |= UINT64_C(1) << with_broken_off[i] & ~c->removed;
  static const int with_shapes[] = {SIM_FAIR, SIM_CHOICES, SIM_BEAMS};
  for (size_t i = 0; scenario_has(c, SIM_SHAPES) && i < 3; i++)
    c->features |= UINT64_C(1) << with_shapes[i] & ~c->removed;
  /* What the engine refuses to such a model, or turns off. */
  static const int no_states[] = {SIM_ADAPTERS, SIM_SWAP, SIM_FLOOR};
  static const int no_windows[] = {SIM_STATES, SIM_DRAFT_MODEL, SIM_SWAP, SIM_FLOOR};
  static const int no_pools[] = {SIM_DRAFTS,   SIM_DRAFT_MODEL, SIM_CHOICES, SIM_BEAMS,
                                 SIM_GRAMMARS, SIM_LOGPROBS,    SIM_SCORES,  SIM_API};
  for (size_t i = 0; scenario_has(c, SIM_WINDOWS) && i < sizeof no_windows / sizeof *no_windows;
       i++)
    c->features &= ~(UINT64_C(1) << no_windows[i]);
  static const int no_ranks[] = {SIM_SWAP, SIM_FLOOR, SIM_MTP};
  for (size_t i = 0; scenario_has(c, SIM_RANKS) && i < sizeof no_ranks / sizeof *no_ranks; i++)
    c->features &= ~(UINT64_C(1) << no_ranks[i]);
  if (!scenario_has(c, SIM_CACHING)) c->features &= ~(UINT64_C(1) << SIM_FLOOR);
  /* One domain for all: else little comes back. */
  static const int no_returns[] = {SIM_SALTS, SIM_ADAPTERS};
  for (size_t i = 0; returns(c) && i < 2; i++) c->features &= ~(UINT64_C(1) << no_returns[i]);
  /* Half of these are swapped out meanwhile, also between two slices. */
  static const int with_returns[] = {SIM_SWAP, SIM_SLICES};
  bool leaves = between(&s, 1, 2) == 1 && returns(c);
  for (size_t i = 0; leaves && i < 2; i++)
    c->features |= UINT64_C(1) << with_returns[i] & ~c->removed;
  static const int no_mtp[] = {SIM_WINDOWS, SIM_POOLS, SIM_DRAFT_MODEL, SIM_ADAPTERS};
  for (size_t i = 0; i < sizeof no_mtp / sizeof *no_mtp; i++) {
    if (scenario_has(c, (sim_feature_t)no_mtp[i])) c->features &= ~(UINT64_C(1) << SIM_MTP);
  }
  /* Nobody sees there, or asks for it by other ways. */
  static const int blind[] = {SIM_API, SIM_RANKS, SIM_DRAFT_MODEL, SIM_MTP, SIM_POOLS, SIM_STATES};
  const bool must_see = (c->forced >> SIM_PICTURES & 1) != 0;
  for (size_t i = 0; i < sizeof blind / sizeof *blind; i++) {
    if (!scenario_has(c, (sim_feature_t)blind[i])) continue;
    c->features &= ~(UINT64_C(1) << (must_see ? blind[i] : (int)SIM_PICTURES));
  }
  /* What takes no rows, or knows their ids alone. */
  static const int no_rows[] = {SIM_API, SIM_RANKS, SIM_DRAFT_MODEL,
                                SIM_MTP, SIM_POOLS, SIM_STATES};
  for (size_t i = 0; i < sizeof no_rows / sizeof *no_rows; i++)
    if (scenario_has(c, (sim_feature_t)no_rows[i])) c->features &= ~(UINT64_C(1) << SIM_ROWS);
  for (size_t i = 0; scenario_has(c, SIM_STATES) && i < sizeof no_states / sizeof *no_states; i++)
    c->features &= ~(UINT64_C(1) << no_states[i]);
  for (size_t i = 0; scenario_has(c, SIM_POOLS) && i < sizeof no_pools / sizeof *no_pools; i++)
    c->features &= ~(UINT64_C(1) << no_pools[i]);
}

/* Models with groups of layers that have a window; a smaller window is drawn. */
static const struct {
  const char *dir;
  int32_t window, groups;
} WINDOW_MODELS[] = {
    {"tests/fixtures/windows", 24, 2}, /* a block of any group has one layer */
    {"tests/fixtures/gemma4", 37, 4},  /* a layer that sees everything, or three heads of four */
};
enum { WINDOW = 24, SHAPES_BLOCKS_MAX = 800 /* of the pool, for several long choices */ };

static void draw_window(scenario_t *c, source_t *s) {
  engine_options_t *o = &c->options;
  c->window = 0;
  int32_t window = between(s, 1, WINDOW), context = (int32_t)o->max_model_len;
  bool by_heads = chance(s, 50);
  if (!scenario_has(c, SIM_WINDOWS) || context <= WINDOW) return;
  by_heads = by_heads && context > WINDOW_MODELS[1].window && !scenario_has(c, SIM_ADAPTERS) &&
             !scenario_has(c, SIM_RANKS);
  int32_t tokens = MIN(o->max_num_batched_tokens, context) * c->pipeline_depth;
  o->model_dir = WINDOW_MODELS[by_heads].dir;
  o->num_blocks += WINDOW_MODELS[by_heads].groups *
                   window_blocks(o->block_size, WINDOW_MODELS[by_heads].window, context, tokens);
  c->window = window;
}

/* Half of the models see pictures whole, but where steps are bounded in time: what is saved for
 * them there is counted in tests/engine/schedule alone. */
static void draw_tower(scenario_t *c) {
  source_t s = source_of(c->seed, STREAM_PICTURES, 0);
  engine_options_t *o = &c->options;
  bool whole = chance(&s, 50);
  c->tower_work = 1 + (int64_t)(next(&s) % 50000000);
  c->tower_rate = between(&s, 1, 20);
  c->pictures_whole = scenario_has(c, SIM_PICTURES) && whole && !scenario_has(c, SIM_PACE);
  int32_t least = o->max_num_seqs + 2 + 5 * SIM_KEYS;
  if (c->pictures_whole) o->max_num_batched_tokens = MAX(o->max_num_batched_tokens, least);
}

/* Every value is drawn whether its feature is on or not, so that taking a feature away leaves the
 * rest as it was. */
static void draw_engine(scenario_t *c) {
  source_t s = source_of(c->seed, STREAM_ENGINE, 0);
  engine_options_t *o = &c->options;
  engine_options_default(o);
  o->mask_threads = 0; /* a run is a function of its seed */
  o->model_dir = scenario_has(c, SIM_STATES)    ? "tests/fixtures/states"
                 : scenario_has(c, SIM_WINDOWS) ? "tests/fixtures/windows"
                                                : "tests/fixtures/tiny";
  o->dummy_weights = true;
  o->seed = 1 + next(&s) % 1000;
  o->block_size = 1 << between(&s, 0, 4);
  if (returns(c)) o->block_size = MIN(o->block_size, 4);
  o->max_model_len = between(&s, 16, SIM_CONTEXT_MAX);
  o->max_num_seqs = between(&s, 1, 8);
  int32_t context_blocks = ((int32_t)o->max_model_len + o->block_size - 1) / o->block_size;
  int32_t tight = between(&s, 0, context_blocks), wide = between(&s, 1, 3) * context_blocks;
  o->num_blocks = 2 + context_blocks + (scenario_has(c, SIM_TIGHT) ? tight : wide);
  if (scenario_has(c, SIM_SHAPES))
    o->num_blocks = MIN(o->num_blocks + wide * (o->max_num_seqs / 2), SHAPES_BLOCKS_MAX);
  int32_t spare = chance(&s, 30) ? 0 : between(&s, 0, 96);
  o->enable_chunked_prefill = !scenario_has(c, SIM_WHOLE);
  o->max_num_batched_tokens = o->max_num_seqs + spare;
  if (!o->enable_chunked_prefill && o->max_num_batched_tokens < o->max_model_len) {
    o->max_num_batched_tokens = (int32_t)o->max_model_len;
  }
  o->enable_prefix_caching = scenario_has(c, SIM_CACHING);
  int32_t threshold = between(&s, 1, 24);
  o->long_prefill_token_threshold = scenario_has(c, SIM_THRESHOLD) ? threshold : 0;
  double watermark = between(&s, 1, 30) * 0.01;
  o->watermark = scenario_has(c, SIM_WATERMARK) ? watermark : 0;
  int32_t drafts = between(&s, 1, 4), match = between(&s, 1, 2);
  if (scenario_has(c, SIM_DRAFTS)) {
    o->draft = (draft_options_t){.tokens_max = drafts, .match_min = 1, .match_max = match};
  }
  o->priority_policy = scenario_has(c, SIM_PRIORITY);
  int32_t queue = between(&s, 1, 12);
  bool is_short = scenario_has(c, SIM_QUEUE_LIMIT) || scenario_has(c, SIM_HOSTILE);
  o->max_queue_requests = is_short ? queue : SIM_REQUESTS_MAX;
  int32_t tokens = between(&s, 1, 600);
  o->max_queue_tokens = scenario_has(c, SIM_QUEUE_LIMIT) && chance(&s, 50) ? tokens : 1 << 30;
  int32_t wait = between(&s, 1, 400); /* some wait for a few steps only */
  double wait_s = wait * (wait % 4 == 0 ? 0.0005 : 0.01);
  o->max_queue_time_s = scenario_has(c, SIM_QUEUE_TIME) ? wait_s : 0;
  c->step_ns = (uint64_t)between(&s, 1, 20000) * 1000;
  c->token_ns = (uint64_t)between(&s, 0, 200) * 1000;
  c->pipeline_depth = scenario_has(c, SIM_ASYNC) && !scenario_has(c, SIM_RANKS) ? 2 : 1;
  int32_t lost = between(&s, 1, 300);
  c->lose_device_at = scenario_has(c, SIM_DEVICE_LOSS) ? lost : 0;
  o->fair_share = scenario_has(c, SIM_FAIR);
  o->slo_policy = scenario_has(c, SIM_SLO);
  o->short_prompts_pass = scenario_has(c, SIM_PASSING);
  o->trace = scenario_has(c, SIM_TRACE);
  if (scenario_has(c, SIM_ADAPTERS)) o->max_loras = SIM_ADAPTERS_MAX;
  o->max_lora_rank = 4;
  int32_t ahead = between(&s, 1, 5), drafter = between(&s, 1, 400);
  draw_tower(c);
  draw_window(c, &s);
  o->draft.longest = scenario_has(c, SIM_LONGEST);
  if (scenario_has(c, SIM_MTP)) {
    o->model_dir = scenario_has(c, SIM_STATES) ? "tests/fixtures/delta" : "tests/fixtures/predicts";
    o->draft.predicts = true;
    o->draft.tokens_max = drafts;
    c->pipeline_depth = 1; /* a CPU alone runs that layer */
  }
  if (!scenario_has(c, SIM_DRAFT_MODEL)) return;
  o->draft.tokens_max = ahead;
  o->draft.match_min = o->draft.match_max = 1;
  o->draft_model_dir = "tests/fixtures/tiny"; /* it keeps no state */
  c->lose_drafter_at = drafter;
}

/* A host pool from one block to three contexts, and a link that is at times slower than the model.
 */
static void draw_swap(scenario_t *c) {
  source_t s = source_of(c->seed, STREAM_ENGINE, 1);
  engine_options_t *o = &c->options;
  int32_t blocks = between(&s, 1, chance(&s, 50) ? 8 : SIM_HOST_BLOCKS_MAX);
  int32_t mode = between(&s, 0, 3), models = scenario_has(c, SIM_DRAFT_MODEL) ? 2 : 1;
  o->swap_space_bytes = 0;
  if (!scenario_has(c, SIM_SWAP)) return;
  if (returns(c) && scenario_has(c, SIM_SLICES)) { /* all that are preempted go */
    blocks = SIM_HOST_BLOCKS_MAX;
    mode = 0;
  }
  o->swap_space_bytes = (int64_t)blocks * models * o->block_size * (int64_t)sizeof(uint64_t);
  o->preemption_mode = mode == 3 ? PREEMPT_RECOMPUTE : mode == 2 ? PREEMPT_AUTO : PREEMPT_SWAP;
  c->swap_rate = between(&s, 1, 1000) * 1e4;
}

/* A floor from one block on, which is mostly smaller than a prompt, and of which few blocks leave
 * at once: then what is evicted for a block that comes back finds no place but the one of this
 * block.
 */
static void draw_floor(scenario_t *c) {
  source_t s = source_of(c->seed, STREAM_ENGINE, 14);
  engine_options_t *o = &c->options;
  int32_t blocks = between(&s, 1, chance(&s, 60) ? 4 : SIM_HOST_BLOCKS_MAX);
  int32_t models = scenario_has(c, SIM_DRAFT_MODEL) ? 2 : 1;
  int32_t few = between(&s, 1, 4);
  c->floor_step_blocks = chance(&s, 70) ? few : 0;
  o->prefix_cache_bytes = 0;
  int32_t context = DIV_UP((int32_t)o->max_model_len, o->block_size);
  int32_t enough = between(&s, 1, 3 * context), spare = between(&s, 0, context / 2);
  bool is_small = chance(&s, 30);
  if (!scenario_has(c, SIM_FLOOR)) return;
  if (returns(c)) {
    if (!is_small) blocks = MIN(enough, SIM_HOST_BLOCKS_MAX);
    o->num_blocks = 2 + context + spare;
  }
  o->prefix_cache_bytes = (int64_t)blocks * models * o->block_size * (int64_t)sizeof(uint64_t);
}

/* Work for masks so small that many are late. */
static void draw_masks(scenario_t *c) {
  source_t s = source_of(c->seed, STREAM_ENGINE, 2);
  int32_t units = between(&s, 400, chance(&s, 50) ? 2000 : 20000);
  c->options.mask_units = chance(&s, 50) ? units : 0;
}

/* Admissions of so few blocks a plan that many take several plans. */
static void draw_slices(scenario_t *c) {
  source_t s = source_of(c->seed, STREAM_ENGINE, 8);
  int32_t blocks = between(&s, 1, chance(&s, 50) ? 2 : 12);
  c->slice_blocks = scenario_has(c, SIM_SLICES) ? blocks : 0;
}

/* So few snapshots that they are taken from each other, or none; at each block, or rarely. */
static void draw_snapshots(scenario_t *c) {
  source_t s = source_of(c->seed, STREAM_ENGINE, 12);
  int32_t few = between(&s, 0, 4), many = between(&s, 4, 40), blocks = between(&s, 1, 4);
  c->options.num_snapshots = chance(&s, 50) ? few : many;
  c->snapshot_blocks = blocks;
}

/* An engine that makes vectors has one way of pooling for all requests. */
static void draw_pooling(scenario_t *c) {
  source_t s = source_of(c->seed, STREAM_ENGINE, 13);
  int32_t pooling = between(&s, POOLING_LAST, POOLING_SQRT);
  if (!scenario_has(c, SIM_POOLS)) return;
  c->options.embedding.task = TASK_EMBED;
  c->options.embedding.pooling = (pooling_t)pooling;
}

/* From one awaited row of all to one of ten. */
static void draw_awaited(scenario_t *c) {
  source_t s = source_of(c->seed, STREAM_ENGINE, 11);
  int32_t one_in = chance(&s, 50) ? 1 : between(&s, 1, 10);
  c->awaited_one_in = scenario_has(c, SIM_AWAITED) ? one_in : 0;
}

/* Some tenants have no limit, of others little may wait. */
static void draw_quotas(scenario_t *c) {
  source_t s = source_of(c->seed, STREAM_ENGINE, 3);
  memset(c->quotas, 0, sizeof c->quotas);
  for (int t = 0; t <= SIM_TENANTS; t++) {
    int32_t waiting = between(&s, 1, 6), tokens = between(&s, 1, 200);
    int32_t weight = between(&s, 0, 4);
    atomic_store(&c->quotas[t].weight, weight);
    if (chance(&s, 60)) c->quotas[t].max_waiting = waiting;
    if (chance(&s, 40)) c->quotas[t].max_tokens_waiting = tokens;
    source_t limit = source_of(c->seed, STREAM_ENGINE, 4 + (uint64_t)t);
    int32_t running = between(&limit, 1, 6);
    atomic_store(&c->quotas[t].max_running, chance(&limit, 30) ? running : 0);
  }
}

/* Less than what a tenant is served in a few steps, in the policy that has a span. */
static void draw_fair_span(scenario_t *c) {
  source_t s = source_of(c->seed, STREAM_ENGINE, 16);
  int32_t tokens = between(&s, 1, chance(&s, 50) ? 20 : 200);
  c->fair_span = scenario_has(c, SIM_SLO) ? tokens : 0;
  c->options.queue_time_tokens = chance(&s, 70) ? between(&s, 1, 100) : 0;
}

/* Bounds that many steps reach, and a device whose times say little about the next step's. */
static void draw_pace(scenario_t *c) {
  source_t s = source_of(c->seed, STREAM_ENGINE, 9);
  int32_t step_ms = between(&s, 1, chance(&s, 50) ? 10 : 60), client_ms = between(&s, 1, 10);
  bool bounds_clients = chance(&s, 70);
  int32_t jitter = between(&s, 1, 16);
  bool varies = chance(&s, 50), reads = chance(&s, 30);
  bool on = scenario_has(c, SIM_PACE);
  c->options.max_step_ms = on ? step_ms : 0;
  c->client_step_ms = on && bounds_clients ? client_ms : 0;
  c->jitter = on && varies ? jitter : 1;
  c->reads = on && reads && !scenario_has(c, SIM_SLO) ? 2 : 0;
}

/* Regimes of a few steps, or longer than a run. */
static void draw_jumps(scenario_t *c) {
  source_t s = source_of(c->seed, STREAM_JUMPS, 1);
  c->jump_steps = between(&s, 1, chance(&s, 50) ? 30 : 400);
  c->jump_taught = chance(&s, 50);
}

uint64_t scenario_longest_step_ns(const scenario_t *c) {
  const uint64_t tokens = (uint64_t)c->options.max_num_batched_tokens;
  const uint64_t most = scenario_has(c, SIM_JUMPS) ? JUMP_MOST : 1;
  return most * (uint64_t)MAX(c->jitter, 1) * (c->step_ns + c->token_ns * tokens);
}

/* Two to four ranks. A fault strikes while they start, or anywhere in some hundreds of steps. */
static void draw_ranks(scenario_t *c) {
  enum { CALLS_AT_START = 3 };
  source_t s = source_of(c->seed, STREAM_ENGINE, 15);
  const int32_t kind = between(&s, RANK_DIES, RANK_BREAKS), wide = 1 << between(&s, 0, 13);
  const uint64_t limit_ms = (uint64_t)between(&s, 100, chance(&s, 50) ? 600 : 4000);
  const int32_t lag_us = between(&s, 0, 400);
  const bool fails = chance(&s, 60), has_limit = chance(&s, 80);
  c->num_ranks = between(&s, 2, SIM_RANKS_MAX);
  c->adds_ranks = chance(&s, 50);
  c->ranks_tell = chance(&s, 60);
  c->fault_rank = between(&s, 0, c->num_ranks - 1);
  c->fault_call = between(&s, 0, wide);
  c->rank_limit_ns = has_limit ? limit_ms * 1000000 + 2 * scenario_longest_step_ns(c) : 0;
  c->rank_lag_ns = (uint64_t)lag_us * 1000;
  c->rank_fault = fails ? (rank_fault_t)kind : RANK_IS_WELL;
  if (c->rank_fault != RANK_HANGS && c->rank_fault != RANK_LAGS) return;
  if (!has_limit) c->rank_fault = RANK_DIES; /* without a limit the others wait for it */
  if (c->fault_call < CALLS_AT_START) c->fault_call = CALLS_AT_START; /* no limit holds before */
}

static void draw_load(scenario_t *c) {
  source_t s = source_of(c->seed, STREAM_LOAD, 0);
  c->first_id = scenario_has(c, SIM_BYTES) ? 2 : 66;
  c->num_ids = chance(&s, 50) || scenario_has(c, SIM_DRAFTS) ? 3
               : scenario_has(c, SIM_BYTES)                  ? 256
                                                             : 26;
  if (scenario_has(c, SIM_BYTES)) c->num_ids = 256;
  uint32_t eos = (uint32_t)between(&s, 2, 60);
  c->eos_one_in = scenario_has(c, SIM_EOS) ? eos : 0;
  int32_t late = between(&s, 2, 40);
  c->drain_every = scenario_has(c, SIM_SLOW_LOOP) ? late : 1;
  c->fills_ring = scenario_has(c, SIM_SLOW_LOOP) && late % 2 == 0;
  int32_t stop = between(&s, 1, 400);
  c->stop_at = scenario_has(c, SIM_SHUTDOWN) ? stop : 0;
  c->count = between(&s, 1, SIM_REQUESTS_MAX);
}

static void draw_stops(const scenario_t *c, source_t *s, script_t *r) {
  int32_t num_ids = between(s, 1, SIM_STOP_IDS_MAX);
  /* One id is never a stop id: something is left to draw before min_tokens. */
  for (int i = 0; i < num_ids; i++) r->stop_ids[i] = c->first_id + between(s, 0, c->num_ids - 2);
  if (scenario_has(c, SIM_STOP_IDS) && chance(s, 50)) r->params.num_stop_token_ids = num_ids;
  int32_t num_stops = between(s, 1, SIM_STOPS_MAX);
  for (int i = 0; i < num_stops; i++) {
    int32_t length = between(s, 1, 3);
    for (int32_t j = 0; j < length; j++) r->stops[i][j] = (char)('a' + between(s, 0, 2));
  }
  if (scenario_has(c, SIM_STOPS) && chance(s, 60)) r->num_stops = num_stops;
  r->include_stop = chance(s, 30);
  r->skip_special = chance(s, 70);
}

/* Long prompts that begin alike and go on alike or not, and little output. */
static void draw_returns(const scenario_t *c, int index, script_t *r) {
  source_t s = source_of(c->seed, STREAM_RETURNS, (uint64_t)index);
  int32_t context = (int32_t)c->options.max_model_len, num_prompt = between(&s, 1, context - 1);
  int32_t most = MIN(context - num_prompt, 6), max_tokens = between(&s, 1, most);
  int32_t document = between(&s, 0, 2), shared = between(&s, 1, num_prompt);
  bool goes_on_alike = chance(&s, 60), leaves_out = chance(&s, 15);
  if (!returns(c) || leaves_out) return;
  r->num_prompt = num_prompt;
  r->document = document;
  r->shared_tokens = goes_on_alike ? num_prompt : shared;
  r->params.max_tokens = max_tokens;
  r->params.min_tokens = MIN(r->params.min_tokens, max_tokens);
}

static void draw_lengths(const scenario_t *c, source_t *s, script_t *r) {
  int32_t context = (int32_t)c->options.max_model_len;
  int32_t prompt_max = chance(s, 25) ? context - 1 : context / 3;
  r->num_prompt = between(s, 1, prompt_max < 1 ? 1 : prompt_max);
  int32_t output_max = context - r->num_prompt;
  if (output_max > 40 && chance(s, 80)) output_max = 40;
  r->params.max_tokens = between(s, 1, output_max);
  int32_t least = between(s, 0, r->params.max_tokens);
  if (scenario_has(c, SIM_MIN_TOKENS) && chance(s, 60)) r->params.min_tokens = least;
  r->document = between(s, -1, 2);
  r->shared_tokens = between(s, 1, r->num_prompt);
  if (chance(s, 30)) r->shared_tokens = r->num_prompt;
  if (!scenario_has(c, SIM_SHARED)) r->document = -1;
}

static void draw_ends(const scenario_t *c, source_t *s, script_t *r) {
  int32_t kind = between(s, 0, 9), after = between(s, 0, r->params.max_tokens);
  uint64_t delay = 1 + next(s) % (60 * c->step_ns);
  r->cancel_after_tokens = -1;
  if (scenario_has(c, SIM_CANCELS) && kind < 2) r->cancel_after_tokens = after;
  if (scenario_has(c, SIM_CANCELS) && kind == 3) r->cancel_after_ns = delay;
  bool fault = chance(s, 10), nan = chance(s, 10);
  int32_t nan_at = between(s, 0, r->params.max_tokens);
  r->fault = scenario_has(c, SIM_FAULTS) && fault;
  r->nan_at = scenario_has(c, SIM_NANS) && nan ? nan_at : -1;
}

/* A third goes within a few steps, in the middle of a block. */
static void draw_broken_off(const scenario_t *c, int index, script_t *r) {
  source_t s = source_of(c->seed, STREAM_BROKEN_OFF, (uint64_t)index);
  bool goes = chance(&s, 33);
  uint64_t delay = 1 + next(&s) % (8 * c->step_ns);
  if (scenario_has(c, SIM_BROKEN_OFF) && goes) r->cancel_after_ns = delay;
}

/* No body of the API can ask for it. */
static void draw_best_effort(const scenario_t *c, int index, script_t *r) {
  source_t s = source_of(c->seed, STREAM_BEST_EFFORT, (uint64_t)index);
  r->best_effort = chance(&s, 40) && scenario_has(c, SIM_BEST_EFFORT) && !scenario_has(c, SIM_API);
}

/* Several sequences of one prompt, at most as many as run at once. */
static void draw_choices(const scenario_t *c, source_t *s, script_t *r) {
  int32_t most =
      c->options.max_num_seqs < SIM_CHOICES_MAX ? c->options.max_num_seqs : SIM_CHOICES_MAX;
  int32_t n = between(s, 1, most), best_of = between(s, n, most);
  bool several = chance(s, 50), best = chance(s, 40);
  if (!scenario_has(c, SIM_CHOICES) || !several) return;
  r->params.n = n;
  r->params.best_of = best ? best_of : 0;
  if (params_collect(&r->params)) r->stream = false;
  if (params_num_sequences(&r->params) > 1) r->nan_at = -1; /* whose row would it be? */
}

/* Beams leave no room for other ways of drawing. */
static void draw_beams(const scenario_t *c, source_t *s, script_t *r) {
  static const float penalties[] = {0, 0.5f, 1, 2};
  int32_t most =
      c->options.max_num_seqs < SIM_CHOICES_MAX ? c->options.max_num_seqs : SIM_CHOICES_MAX;
  int32_t width = between(s, 1, most), n = between(s, 1, width);
  float penalty = penalties[between(s, 0, 3)];
  early_stopping_t stopping = (early_stopping_t)between(s, 0, 2);
  if (!scenario_has(c, SIM_BEAMS) || !chance(s, 50)) return;
  r->params.n = n;
  r->params.best_of = 0;
  r->params.beam_width = width;
  r->params.length_penalty = penalty;
  r->params.early_stopping = stopping;
  r->params.temperature = 0;
  r->stream = false;
  r->nan_at = -1;
  r->language = -1;
}

/* Who asks, of which model, for what kind of text. */
static void draw_kind(const scenario_t *c, source_t *s, script_t *r) {
  int32_t domain = between(s, 1, 3), tenant = between(s, 0, 5);
  r->salt = scenario_has(c, SIM_SALTS) ? (uint64_t)domain : 1;
  int32_t adapter = between(s, 0, SIM_ADAPTERS_MAX), language = between(s, 0, SIM_LANGUAGES - 1);
  bool constrained = chance(s, 60);
  /* the first tenant asks for most */
  bool several = scenario_has(c, SIM_FAIR) || scenario_has(c, SIM_QUOTAS);
  r->tenant = !several ? 0 : tenant < 4 ? 1 : (uint64_t)tenant - 2;
  r->adapter = scenario_has(c, SIM_ADAPTERS) ? adapter : 0;
  r->language =
      scenario_has(c, SIM_GRAMMARS) && constrained && r->params.max_tokens > 0 ? language : -1;
  if (r->language >= 0) r->params.num_stop_token_ids = 0; /* no letter is both text and end */
  r->domain = r->salt + SIM_SALTS_MAX * (uint64_t)r->adapter;
  r->base_domain = r->salt;
}

/* Three of four requests are of the first tenant: many long ones, which rarely fit, and many whose
 * client leaves soon. The other tenants are honest. */
static void draw_hostile(const scenario_t *c, int index, script_t *r) {
  source_t s = source_of(c->seed, STREAM_HOSTILE, (uint64_t)index);
  int32_t tenant = between(&s, 0, 7), context = (int32_t)c->options.max_model_len;
  bool is_long = chance(&s, 50), leaves = chance(&s, 40);
  uint64_t delay = 1 + next(&s) % (8 * c->step_ns);
  if (!scenario_has(c, SIM_HOSTILE)) return;
  r->tenant = tenant < 6 ? 1 : (uint64_t)tenant - 4;
  if (tenant >= 6) return;
  int32_t longest = context - (r->params.max_tokens > 0 ? r->params.max_tokens : 1);
  if (is_long && longest > r->num_prompt) r->num_prompt = longest;
  if (leaves) r->cancel_after_ns = delay;
}

/* Blocks of beams, or of one choice, at their worst; with states nothing is shared. */
static int32_t shape_blocks(const scenario_t *c, const script_t *r) {
  int32_t bs = c->options.block_size, n = MAX(r->params.beam_width, 1);
  int32_t shared = scenario_has(c, SIM_STATES) ? 0 : r->num_prompt / bs;
  return shared + n * (DIV_UP(r->num_prompt + r->params.max_tokens, bs) - shared);
}

/* What a client has asked for: one thing at all times, or something else each time. */
typedef enum shape {
  SHAPE_AS_DRAWN,
  SHAPE_ALL_PLACES, /* as many choices as sequences run at once */
  SHAPE_CHOICES,    /* some, maybe more than there are places */
  SHAPE_BEAMS,
  SHAPE_WHOLE_POOL, /* one sequence of as many tokens as there may be */
  SHAPE_LIST,       /* short prompts, sent together with the ones before: draw_arrivals */
  SHAPE_SHORT,      /* an honest chat */
  SHAPES
} shape_t;

static shape_t shape_of(const scenario_t *c, const script_t *r, int index) {
  source_t client = source_of(c->seed, STREAM_SHAPES, r->tenant);
  source_t own = source_of(c->seed, STREAM_SHAPES, 100 + (uint64_t)index);
  int32_t always = between(&client, 0, SHAPES - 1), once = between(&own, 0, SHAPES - 1);
  bool varies = chance(&own, 20);
  return (shape_t)(varies ? once : always);
}

static void draw_shapes(const scenario_t *c, int index, script_t *r) {
  source_t s = source_of(c->seed, STREAM_SHAPES, 1000 + (uint64_t)index);
  int32_t context = (int32_t)c->options.max_model_len, seqs = c->options.max_num_seqs;
  int32_t some = between(&s, 1, seqs), tokens = between(&s, 1, context / 2), few = MIN(context, 4);
  int32_t prompt = between(&s, 1, MIN(context - 1, 8)), longest = context - r->num_prompt;
  int32_t choices = between(&s, 1, SIM_STREAMS_MAX);
  bool goes_on = chance(&s, 60);
  shape_t shape = shape_of(c, r, index);
  if (!scenario_has(c, SIM_SHAPES) || scenario_has(c, SIM_POOLS)) return;
  if (shape == SHAPE_AS_DRAWN) return;
  r->params.n = 1;
  r->params.best_of = r->params.beam_width = 0;
  if (shape == SHAPE_ALL_PLACES) r->params.n = seqs;
  if (shape == SHAPE_CHOICES) r->params.n = choices;
  if (shape == SHAPE_BEAMS) r->params.beam_width = some;
  if (shape == SHAPE_BEAMS) r->params.temperature = 0;
  if (shape == SHAPE_BEAMS) r->language = -1;
  if (shape == SHAPE_BEAMS) r->stream = false;
  if (shape == SHAPE_WHOLE_POOL) r->num_prompt = MAX(1, context - MIN(tokens, 16));
  if (shape >= SHAPE_LIST || r->params.n > 1) r->num_prompt = prompt;
  if (shape < SHAPE_LIST && goes_on) tokens = longest;
  r->params.max_tokens = MAX(1, MIN(shape == SHAPE_SHORT ? few : tokens, context - r->num_prompt));
  while (r->params.max_tokens > 1 && shape_blocks(c, r) > c->options.num_blocks - 1)
    r->params.max_tokens--;
  r->params.min_tokens = MIN(r->params.min_tokens, r->params.max_tokens);
  r->shared_tokens = MIN(r->shared_tokens, r->num_prompt);
  if (goes_on && shape < SHAPE_LIST) r->params.ignore_eos = true;
  if (params_multiple(&r->params)) r->nan_at = -1;
}

/* Nothing is generated: one row is broken anywhere in the prompt, and clients go by time alone. */
static void draw_pooled(const scenario_t *c, source_t *s, script_t *r) {
  int32_t broken = between(s, 0, r->num_prompt - 1);
  if (!scenario_has(c, SIM_POOLS)) return;
  r->params.max_tokens = r->params.min_tokens = 0;
  if (r->nan_at >= 0) r->nan_at = broken;
  r->cancel_after_tokens = -1;
}

/* How the request travels through the API; nothing of it matters without. */
static void draw_client(const scenario_t *c, source_t *s, script_t *r) {
  r->stream = chance(s, 70);
  r->usage = chance(s, 50);
  r->return_ids = chance(s, 50);
  bool text = chance(s, 20), slow = chance(s, 10);
  r->as_text = scenario_has(c, SIM_API) && text;
  int32_t bytes = between(s, 1, 4000);
  r->slow_after = scenario_has(c, SIM_CANCELS) && r->stream && slow ? bytes : 0;
}

static void draw_request(scenario_t *c, int index) {
  source_t s = source_of(c->seed, STREAM_REQUEST, (uint64_t)index);
  script_t *r = &c->scripts[index];
  memset(r, 0, sizeof *r);
  r->params = (sampling_params_t){.top_p = 1,
                                  .repetition_penalty = 1,
                                  .seed = next(&s) >> 1,
                                  .num_logprobs = -1,
                                  .num_prompt_logprobs = -1,
                                  .stop_token_ids = r->stop_ids};
  draw_lengths(c, &s, r);
  draw_returns(c, index, r);
  draw_stops(c, &s, r);
  draw_ends(c, &s, r);
  draw_broken_off(c, index, r);
  draw_best_effort(c, index, r);
  draw_client(c, &s, r);
  draw_choices(c, &s, r);
  r->params.ignore_eos = chance(&s, 25);
  bool sampled = chance(&s, 60);
  r->params.temperature = scenario_has(c, SIM_SAMPLED) && sampled ? 1.0f : 0.0f;
  int32_t top = between(&s, 0, SIM_SCORES_MAX), kind = between(&s, 0, 9);
  if (scenario_has(c, SIM_LOGPROBS) && kind < 5) r->params.num_logprobs = top;
  if (scenario_has(c, SIM_SCORES) && kind >= 7) r->params.num_prompt_logprobs = top;
  if (scenario_has(c, SIM_SCORES) && kind == 9 && !scenario_has(c, SIM_API)) {
    r->params.max_tokens = r->params.min_tokens = 0;
    r->nan_at = -1;
  }
  if (scenario_has(c, SIM_API) && r->params.num_prompt_logprobs >= 0) r->stream = false;
  int32_t priority = between(&s, -2, 2);
  r->priority = scenario_has(c, SIM_PRIORITY) ? priority : 0;
  draw_kind(c, &s, r);
  draw_hostile(c, index, r);
  if (scenario_has(c, SIM_API)) r->domain += SIM_SALTS_MAX * (SIM_ADAPTERS_MAX + 1) * r->tenant;
  draw_beams(c, &s, r);
  draw_shapes(c, index, r);
  draw_pooled(c, &s, r);
  int32_t from = between(&s, 0, 1) == 0 ? 0 : between(&s, 1, 60);
  if (r->adapter > 0 && !scenario_has(c, SIM_API))
    r->adapter_from = from < r->num_prompt ? from : INT32_MAX; /* not in the prompt: never */
}

/* Those of a document are the same in all of its prompts. */
static void draw_pictures(scenario_t *c, int index) {
  script_t *r = &c->scripts[index];
  source_t document = source_of(c->seed, STREAM_PICTURES, (uint64_t)(r->document + 1000));
  source_t own = source_of(c->seed, STREAM_PICTURES, (uint64_t)index + 2000);
  int32_t at = 1;
  for (int i = 0; i < SIM_IMAGES_MAX && scenario_has(c, SIM_PICTURES); i++) {
    source_t *s = i == 0 && r->document >= 0 ? &document : &own;
    int32_t key = between(s, 1, SIM_KEYS), first = at + between(s, 0, 20);
    bool is_there = chance(s, 60);
    int32_t end = first + 2 + 5 * key;
    if (!is_there || end >= r->num_prompt) continue;
    r->images[r->num_images++] = (sim_image_t){first, end, key};
    at = end + 1;
  }
}

/* A prompt that is scored, or has pictures, is ids. */
static void draw_rows(scenario_t *c, int index) {
  script_t *r = &c->scripts[index];
  source_t s = source_of(c->seed, STREAM_ROWS, (uint64_t)index);
  r->rows = chance(&s, 50) && scenario_has(c, SIM_ROWS) && r->num_images == 0 &&
            r->params.num_prompt_logprobs < 0;
}

/* Arrivals are a load between half and three times what the engine can do, roughly. */
static void draw_arrivals(scenario_t *c) {
  source_t s = source_of(c->seed, STREAM_LOAD, 1);
  uint64_t pace = c->step_ns * (uint64_t)between(&s, 1, 16);
  uint64_t now = 0;
  int32_t burst = 0;
  for (int i = 0; i < c->count; i++) {
    uint64_t gap = next(&s) % (2 * pace);
    int32_t size = between(&s, 2, 24);
    if (!scenario_has(c, SIM_BURSTS)) {
      now += gap;
    } else if (burst-- <= 0) {
      burst = size;
      now += gap * (uint64_t)size;
    }
    bool floods = scenario_has(c, SIM_HOSTILE) && c->scripts[i].tenant == 1 && i % 16 > 0;
    floods = floods || (scenario_has(c, SIM_SHAPES) && i % 8 > 0 &&
                        shape_of(c, &c->scripts[i], i) == SHAPE_LIST);
    if (floods) now = c->scripts[i - 1].due_ns; /* together with the one before */
    c->scripts[i].due_ns = now;
  }
}

void scenario_make(scenario_t *c, uint64_t seed) {
  c->seed = seed;
  draw_features(c);
  draw_engine(c);
  draw_swap(c);
  draw_floor(c);
  draw_masks(c);
  draw_quotas(c);
  draw_slices(c);
  draw_snapshots(c);
  draw_awaited(c);
  draw_pooling(c);
  draw_pace(c);
  draw_jumps(c);
  draw_ranks(c);
  draw_fair_span(c);
  draw_load(c);
  for (int i = 0; i < c->count; i++) {
    draw_request(c, i);
    draw_pictures(c, i);
    draw_rows(c, i);
  }
  draw_arrivals(c);
}

void scenario_prompt(const scenario_t *c, int index, int32_t *ids) {
  const script_t *r = &c->scripts[index];
  source_t document = source_of(c->seed, STREAM_PROMPT, (uint64_t)(r->document + 1000));
  source_t own = source_of(c->seed, STREAM_PROMPT, (uint64_t)index + 2000);
  int32_t shared = r->document < 0 ? 0 : r->shared_tokens;
  for (int32_t i = 0; i < r->num_prompt; i++) {
    source_t *s = i < shared ? &document : &own;
    ids[i] = c->first_id + (int32_t)(next(s) % (uint64_t)c->num_ids);
  }
  for (int32_t i = 0; i < r->num_images; i++)
    for (int32_t p = r->images[i].first; p < r->images[i].end; p++) ids[p] = SIM_PAD;
}
