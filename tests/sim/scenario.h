/* scenario.h: what one simulated run does, drawn from its seed.
 *
 * A scenario is a configuration of the engine, a load, and a list of requests. Everything in it is
 * a function of (seed, features, dropped): request i is the same whatever else the run contains, so
 * that a failing run can be made smaller by leaving out features and requests. One thread.
 *
 * A new feature of the engine enters here: a row in SIM_FEATURES (features.h), its fields in the
 * structs below, and the lines in scenario.c that draw them when the row is on.
 */
#ifndef INFERD_TESTS_SIM_SCENARIO_H
#define INFERD_TESTS_SIM_SCENARIO_H

#include "engine/engine.h"
#include "engine/quota.h"
#include "tests/sim/features.h"

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
  SIM_STREAMS_MAX = 8, /* sequences of one request */
  SIM_CHOICES_MAX = 4, /* without SHAPES */
  SIM_HOST_BLOCKS_MAX = 256,
  SIM_SCORES_MAX = 4, /* alternatives per position that the simulator asks for */
  SIM_RANKS_MAX = 4,
  SIM_IMAGES_MAX = 2, /* of a prompt */
  SIM_KEYS = 6,       /* pictures that there are */
  JUMP_MOST = 100,    /* times that a step may take longer than it would */
  SIM_PAD = 383       /* the last id of tests/fixtures/tiny: the placeholder of pictures */
};

/* Prompts have SIM_PAD at [first, end). */
typedef struct sim_image {
  int32_t first, end, key;
} sim_image_t;

/* What happens to one rank of several. */
typedef enum rank_fault {
  RANK_IS_WELL,
  RANK_DIES,
  RANK_HANGS, /* until it is killed */
  RANK_LAGS,  /* once, for longer than the limit */
  RANK_BREAKS /* its device fails at the end of a step */
} rank_fault_t;

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
  bool best_effort;
  uint64_t salt, tenant;
  int32_t adapter;             /* 0 = none */
  int32_t adapter_from;        /* it changes no token before this one */
  uint64_t base_domain;        /* who may share these: as `domain`, without adapter */
  uint64_t domain;             /* who may share blocks: of salt, adapter, through the API tenant */
  int32_t language;            /* of its output, -1 = free */
  int32_t cancel_after_tokens; /* cancelled when so many tokens were seen; -1 = not so */
  uint64_t cancel_after_ns;    /* cancelled this long after it came; 0 = not so */
  sim_image_t images[SIM_IMAGES_MAX];
  int32_t num_images;
  bool rows; /* the prompt is rows, each of what its id would be */
  bool fault;
  int32_t nan_at; /* the row of this output position (POOLS: of the prompt) is NaN; -1 = none */
} script_t;

typedef struct scenario {
  uint64_t seed;
  /* bit sets of sim_feature_t; forced: by the command line; removed: shrinking took them away */
  uint64_t features, forced, removed;
  bool dropped[SIM_REQUESTS_MAX];
  engine_options_t options;
  uint64_t step_ns, token_ns; /* virtual duration of a step */
  int32_t client_step_ms;     /* SIM_PACE: of ops_t */
  double reads;               /* the same: of pace_options_t */
  int32_t jitter;             /* SIM_PACE: steps take up to so many times as long, or as short */
  int32_t jump_steps;         /* SIM_JUMPS: of a regime */
  bool jump_taught;           /* what was learned before is of another machine */
  int32_t pipeline_depth;
  int32_t lose_device_at, lose_drafter_at; /* step; 0 = never */
  int32_t awaited_one_in;                  /* SIM_AWAITED: of engine_t; 0 = as it is */
  int32_t slice_blocks, snapshot_blocks, floor_step_blocks; /* of the options; 0 = as it is */
  int32_t fair_span;           /* of scheduler_options_t, in tokens; 0 = exact turns */
  int32_t window;              /* SIM_WINDOWS: of scheduler_options_t; 0 = none */
  double swap_rate;            /* bytes per second */
  int32_t num_ranks;           /* SIM_RANKS */
  bool adds_ranks, ranks_tell; /* fast; ranks hear at once when another one fails */
  rank_fault_t rank_fault;
  int32_t fault_rank, fault_call;      /* before that call of the rank's comm_t, from 0 */
  uint64_t rank_limit_ns, rank_lag_ns; /* of a call, 0 = none; of a rank that lags a little */
  quota_t quotas[SIM_TENANTS + 1];     /* SIM_QUOTAS: limits, by tenant */
  bool pictures_whole;                 /* SIM_PICTURES: a token of a picture sees all of it */
  int64_t tower_work, tower_rate;      /* of a token; in a nanosecond */
  /* the model */
  int32_t first_id, num_ids; /* drawn ids are first_id .. first_id + num_ids - 1 */
  uint32_t eos_one_in;       /* 0 = never */
  /* the load */
  int32_t drain_every; /* iterations */
  bool fills_ring;     /* a step wants all the room that the ring has for events */
  int32_t stop_at;     /* iteration; 0 = when all is done */
  int count;
  script_t scripts[SIM_REQUESTS_MAX];
} scenario_t;

/* Draws the scenario of a seed; `forced`, `removed` and `dropped` are taken from *scenario. */
void scenario_make(scenario_t *scenario, uint64_t seed);
/* Writes the prompt of request `index`. */
void scenario_prompt(const scenario_t *scenario, int index, int32_t *ids);
uint64_t scenario_longest_step_ns(const scenario_t *scenario);
const char *scenario_feature_name(int feature); /* "caching" */
int scenario_feature(const char *name);         /* -1 = none of that name */

static inline bool scenario_has(const scenario_t *s, sim_feature_t feature) {
  return (s->features >> feature & 1) != 0;
}

#endif
