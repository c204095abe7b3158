/* scenario.h: what one simulated run does, drawn from its seed.
 *
 * A scenario is a configuration of the engine, a load, and a list of requests. Everything in it is
 * a function of (seed, features, dropped): request i is the same whatever else the run contains, so
 * that a failing run can be made smaller by leaving out features and requests. One thread.
 *
 * A new feature of the engine enters here: a row in SIM_FEATURES, its fields in the structs below,
 * and the lines in scenario.c that draw them when the row is on.
 */
#ifndef INFERD_TESTS_SIM_SCENARIO_H
#define INFERD_TESTS_SIM_SCENARIO_H

#include "engine/engine.h"
#include "engine/quota.h"

enum {
  SIM_REQUESTS_MAX = 96,
  SIM_CONTEXT_MAX = 192, /* max_model_len at most */
  SIM_STOPS_MAX = 3,
  SIM_STOP_IDS_MAX = 3,
  SIM_SALTS_MAX = 4,
  SIM_ADAPTERS_MAX = 2, /* slots */
  SIM_TENANTS = 3,
  SIM_DOMAINS_MAX = SIM_SALTS_MAX * (SIM_ADAPTERS_MAX + 1) * (SIM_TENANTS + 1),
  SIM_LANGUAGES = 16,  /* of constrained output: language.c */
  SIM_STREAMS_MAX = 4, /* sequences of one request */
  SIM_HOST_BLOCKS_MAX = 256,
  SIM_SCORES_MAX = 4 /* alternatives per position that the simulator asks for */
};

/* X(name, chance that a seed has it in 1/16, what it does) */
#define SIM_FEATURES(X)                                                                            \
  X(CACHING, 12, "prefix caching is on")                                                           \
  X(SHARED, 12, "prompts share documents")                                                         \
  X(SALTS, 4, "requests come from several cache domains")                                          \
  X(TIGHT, 10, "the pool holds little more than one context")                                      \
  X(WHOLE, 3, "chunked prefill is off")                                                            \
  X(THRESHOLD, 5, "a prompt's chunk per step is bounded")                                          \
  X(WATERMARK, 5, "admission keeps blocks free")                                                   \
  X(PRIORITY, 5, "requests have priorities")                                                       \
  X(EOS, 10, "the model ends some sequences")                                                      \
  X(STOP_IDS, 5, "requests have stop ids")                                                         \
  X(STOPS, 6, "requests have stop strings")                                                        \
  X(MIN_TOKENS, 5, "requests have min_tokens")                                                     \
  X(BYTES, 6, "tokens are parts of UTF-8 characters")                                              \
  X(SAMPLED, 6, "requests are drawn at random, with seeds")                                        \
  X(LOGPROBS, 3, "requests want logprobs")                                                         \
  X(SCORES, 4, "requests want prompt logprobs, or nothing but these")                              \
  X(CANCELS, 9, "clients go away")                                                                 \
  X(FAULTS, 4, "single requests fail in the engine")                                               \
  X(NANS, 4, "the model returns NaN for single rows")                                              \
  X(DEVICE_LOSS, 1, "the device is lost")                                                          \
  X(QUEUE_LIMIT, 5, "the waiting queue is short")                                                  \
  X(QUEUE_TIME, 4, "waiting has a deadline")                                                       \
  X(ASYNC, 8, "two steps are in flight")                                                           \
  X(DRAFTS, 5, "decodes draft tokens ahead")                                                       \
  X(CHOICES, 6, "requests want several choices, or the best of several")                           \
  X(API, 3, "requests come as JSON bodies through the API")                                        \
  X(BURSTS, 6, "requests come in bursts")                                                          \
  X(SLOW_LOOP, 4, "the loop thread is late")                                                       \
  X(SHUTDOWN, 2, "the engine is stopped while requests run")                                       \
  X(FAIR, 4, "tenants have fair shares")                                                           \
  X(ADAPTERS, 4, "requests name low-rank adapters")                                                \
  X(DRAFT_MODEL, 3, "a small model drafts tokens")                                                 \
  X(GRAMMARS, 4, "requests have a constraint on their output")                                     \
  X(BEAMS, 4, "requests search with beams")                                                        \
  X(SWAP, 7, "preempted requests may go to the host")                                              \
  X(PASSING, 11, "short prompts pass a long one that is in progress")                              \
  X(TRACE, 6, "the engine traces what happens to requests")                                        \
  X(HOSTILE, 4, "one tenant floods a short queue: bursts, cancels, prompts that do not fit")       \
  X(QUOTAS, 5, "keys have limits of their own")                                                    \
  X(SLICES, 8, "an admission takes few blocks a step")                                             \
  X(PACE, 7, "steps, and what a client has in them, are bounded in time")                          \
  X(AWAITED, 8, "steps overlap although tokens are awaited")                                       \
  X(STATES, 5, "the model keeps a state per sequence")                                             \
  X(SEATS, 6, "with PACE: admission stops before decodes alone take a step")                       \
  X(SLO, 5, "short prompts go first, and first tokens have a deadline")                            \
  X(WINDOWS, 6, "layers with a window free their blocks")                                          \
  X(POOLS, 3, "prompts become vectors, and nothing is generated")                                  \
  X(FLOOR, 7, "blocks that leave the prefix cache go to the host")                                 \
  X(LONGEST, 8, "drafts are as long as they may be, whatever they cost")                           \
  X(MTP, 4, "a layer of the model predicts tokens, and drafts them")

typedef enum sim_feature {
#define X(name, chance, text) SIM_##name,
  SIM_FEATURES(X)
#undef X
      SIM_FEATURE_COUNT
} sim_feature_t;

/* One request as it will be made. */
typedef struct script {
  uint64_t due_ns;  /* not submitted before this virtual time */
  int32_t document; /* shared beginning of the prompt, -1 = none */
  int32_t shared_tokens, num_prompt;
  sampling_params_t params; /* pointers lead into this struct */
  int32_t stop_ids[SIM_STOP_IDS_MAX];
  int num_stops;
  char stops[SIM_STOPS_MAX][8];
  bool skip_special, include_stop;
  bool stream, usage, return_ids, as_text; /* SIM_API: how it is asked and answered */
  int32_t slow_after; /* SIM_API: the client stops reading behind so many bytes; 0 = never */
  int64_t priority;
  uint64_t salt, tenant;
  int32_t adapter;             /* 0 = none */
  uint64_t domain;             /* who may share blocks: of salt, adapter, through the API tenant */
  int32_t language;            /* of its output, -1 = free */
  int32_t cancel_after_tokens; /* cancelled when so many tokens were seen; -1 = not so */
  uint64_t cancel_after_ns;    /* cancelled this long after it came; 0 = not so */
  bool fault;
  int32_t nan_at; /* the row of this output position (POOLS: of the prompt) is NaN; -1 = none */
} script_t;

typedef struct scenario {
  uint64_t seed;
  uint64_t features, removed; /* bit sets of sim_feature_t; removed: shrinking took them away */
  bool dropped[SIM_REQUESTS_MAX];
  engine_options_t options;
  uint64_t step_ns, token_ns; /* virtual duration of a step */
  int32_t client_step_ms;     /* SIM_PACE: of ops_t */
  int32_t jitter;             /* SIM_PACE: steps take up to so many times as long, or as short */
  int32_t pipeline_depth;
  int32_t lose_device_at, lose_drafter_at; /* step; 0 = never */
  int32_t awaited_one_in;                  /* SIM_AWAITED: of engine_t; 0 = as it is */
  int32_t slice_blocks, snapshot_blocks, floor_step_blocks; /* of the options; 0 = as it is */
  int32_t window;                  /* SIM_WINDOWS: of scheduler_options_t; 0 = none */
  double swap_rate;                /* bytes per second */
  quota_t quotas[SIM_TENANTS + 1]; /* SIM_QUOTAS: limits, by tenant */
  /* the model */
  int32_t first_id, num_ids; /* drawn ids are first_id .. first_id + num_ids - 1 */
  uint32_t eos_one_in;       /* 0 = never */
  /* the load */
  int32_t drain_every; /* iterations */
  int32_t stop_at;     /* iteration; 0 = when all is done */
  int count;
  script_t scripts[SIM_REQUESTS_MAX];
} scenario_t;

/* Draws the scenario of a seed; `removed` and `dropped` are taken from *scenario. */
void scenario_make(scenario_t *scenario, uint64_t seed);
/* Writes the prompt of request `index`. */
void scenario_prompt(const scenario_t *scenario, int index, int32_t *ids);
const char *scenario_feature_name(int feature); /* "caching" */
int scenario_feature(const char *name);         /* -1 = none of that name */

static inline bool scenario_has(const scenario_t *s, sim_feature_t feature) {
  return (s->features >> feature & 1) != 0;
}

#endif
