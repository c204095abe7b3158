/* sim.h: the deterministic simulator: the real engine, one thread, a virtual clock and device.
 *
 * run.c plays every other thread: it submits, cancels and drains between the iterations of the
 * engine. oracle.c says beforehand what each request must get. device.c is the back end, with a
 * shadow of the KV store. check.c looks at the engine's state after every iteration. All of it is a
 * function of the scenario, so a seed that fails once fails always. One simulation at a time in a
 * process; a broken promise ends the process (sim_fail), so main.c runs simulations in children.
 */
#ifndef INFERD_TESTS_SIM_SIM_H
#define INFERD_TESTS_SIM_SIM_H

#include "engine/internal.h"
#include "tests/sim/scenario.h"

enum {
  SIM_TEXT_MAX = SIM_CONTEXT_MAX * 16,
  SIM_IDS = SIM_REQUESTS_MAX + 1,
  SIM_VOCAB = 384 /* of tests/fixtures/tiny */
};

/* One sequence of a request: what it must get (oracle.c), and what came of it (run.c). */
typedef struct stream {
  int32_t num_expected;               /* output tokens */
  int32_t ids[SIM_CONTEXT_MAX + 1];   /* prompt, then output */
  uint64_t hash[SIM_CONTEXT_MAX + 1]; /* [p] of the domain and ids[0..p]: content of p's slot */
  finish_reason_t finish;
  int32_t stop_token_id, stop_string;
  char text[SIM_TEXT_MAX];
  size_t text_length;
  double cumulative; /* sum of raw logprobs */
  /* what came */
  int32_t num_tokens;
  size_t num_bytes;
  int32_t num_computed; /* with what is planned, after the step before */
  bool done, in_plan;   /* its choice is complete; it has a row in the step being launched */
} stream_t;

/* What the checks keep of a group: an independent choice, or all beams of a search. */
typedef struct run {
  int32_t num_skips, num_preemptions; /* when the last iteration ended */
  uint64_t num_plans;                 /* the scheduler's then */
  bool was_planned;                   /* it had a row in a step that was launched */
  bool in_plan, is_new;               /* of the step being launched; its first one */
  bool runs;                          /* was in running at the step before */
  bool waited;                        /* for a block of another, after the iteration before */
  bool was_there;                     /* in a queue at an iteration before */
  bool was_swapped;                   /* an iteration ago */
  int32_t sat_out;                    /* steps in a row */
} run_t;

/* One request. */
typedef struct track {
  int index;         /* of the script */
  request_t request; /* unless the API makes it */
  const script_t *script;
  stop_set_t *stops;
  bool submitted, done;
  int refusal;           /* ERR_ number that engine_submit answered with */
  const request_t *sent; /* what was submitted: `request`, or the API's */
  bool waits, dropped;   /* in the queue, by queue.c; it made room for another there */
  uint64_t number;       /* among those submitted, from 1 */
  uint64_t dropped_iteration;
  /* what must come */
  int32_t num_prompt, error_code;
  int32_t num_streams, num_choices;
  int32_t best[SIM_STREAMS_MAX]; /* [choice] stream that it is, in the order of the answer */
  /* By index. Of beams the second half is what must come, by choice; the first is room for
   * oracle_beam. */
  stream_t streams[2 * SIM_STREAMS_MAX];
  /* [output tokens][index] what a beam's sequence must hold then; 0 = no beam lives there */
  uint64_t beams[SIM_CONTEXT_MAX][SIM_STREAMS_MAX];
  block_key_t keys[SIM_CONTEXT_MAX]; /* of its prompt, for half of the requests */
  /* what came */
  int32_t num_tokens, num_scores, num_done; /* tokens and ends over all choices */
  int32_t num_cached, ended_by;             /* ended_by: ERR_ number of its end */
  uint64_t cancelled_iteration;             /* the one that must end it; 0 = not cancelled */
  uint64_t submitted_ns, first_ns; /* first: the step ended that its first token came from */
  bool is_met;                     /* in a walk over the queues */
  bool was_landed;                 /* it had a row in a step that has ended */
  run_t runs[SIM_STREAMS_MAX];     /* of its groups, by the index of their first sequence */
  /* Of the group that computes the prompt, which is that of index 0: */
  int32_t first_cached; /* tokens that its first row found computed */
  int32_t computed_to;  /* end of the last of its prompt tokens that were computed */
  int32_t num_computed; /* prompt tokens that its own rows computed, until preempted */
  int32_t computed_to_before, num_computed_before; /* the step in flight */
  bool preempted;                                  /* since then num_computed says nothing */
  int trace; /* its last record, 1 + trace_kind_t; 0 = none yet */
} track_t;

typedef struct sim {
  scenario_t *scenario;
  engine_t *engine;
  track_t *tracks;                              /* [SIM_REQUESTS_MAX] */
  uint8_t index_of[SIM_IDS];                    /* request id -> track */
  uint64_t now_ns, landed_ns, iteration, steps; /* landed: the last step ended */
  int num_live;                                 /* submitted and not DONE by the loop's count */
  bool lost, trace_lost;                        /* the device is gone; a record was dropped */
  bool left, was_left;                          /* the step in flight is left; the one before was */
  bool torture;    /* torture.c drives: the device draws without looking, nothing is compared */
  uint64_t tokens; /* of the steps that have ended */
} sim_t;

extern sim_t sim;

/* A broken promise: says which, and ends the process. */
_Noreturn void sim_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
#define REQUIRE(condition, ...)                                                                    \
  do {                                                                                             \
    if (!(condition)) sim_fail(__VA_ARGS__);                                                       \
  } while (false)

/* device.c */
extern ops_t ops_sim;                       /* run.c sets pipeline_depth */
const uint64_t *device_rows(int32_t block); /* of the shadow store; 0 = never written */
uint64_t device_reads(void);                /* slots that attention has verified so far */
uint64_t *device_slots(device_t *device, int32_t block); /* those of a block */

/* host_pool.c: swap space of a device, and its checks */
typedef struct sim_host {
  uint64_t *slots; /* [num_blocks, block_size] */
  int32_t num_blocks, block_size;
} sim_host_t;
sim_host_t *device_host(device_t *device); /* NULL = of the one that holds the large model */
extern const swap_ops_t sim_swap_ops;
void host_pool_check_step(const scheduler_t *scheduler); /* a step is launched */
void host_pool_check(const engine_t *engine);            /* after every iteration */

/* check.c: I1-I3, I6-I8, I11 and the list of a step. */
void check_begin(void);                /* a fresh engine */
void check_step(const batch_t *batch); /* a step is launched: its plan and its batch */
void check_left(void);                 /* the step in flight is left: nothing comes of it */
void check_iteration(void);            /* after every iteration of the engine */
void check_idle(void);                 /* I2: nothing is left */
int32_t check_num_sequences(const scheduler_t *scheduler); /* that run */
run_t *check_run(const group_t *group);
int32_t check_width(const group_t *group); /* sequences that it may have */
track_t *check_track(const sequence_t *sequence);
/* Whether some sequence of a group that runs could have a row in the step, and has none; *decodes:
 * all lacked their last token only. Or whether it has a chunk of what it computes (again). */
bool check_is_left_out(const group_t *group, bool *decodes);
bool check_has_chunk(const scheduler_t *scheduler, const group_t *group);
bool check_is_awaited(const group_t *group); /* its next token depends on one in flight */
track_t *check_track_of(const request_t *request);
void check_submitted(track_t *track, const request_t *request); /* at the door of the engine */
/* Whether one more request of its tenant would be beyond the tenant's limits. */
bool check_quota_lacks(const track_t *track);
stream_t *check_stream(const sequence_t *sequence);
/* queue.c: who waits, who makes room, who is refused at the door. */
void queue_begin(void);                      /* a fresh engine */
bool queue_expect(const request_t *request); /* before submit; true = it enters */
void queue_check_submitted(track_t *track, const request_t *request, int code);
int32_t queue_num_held(const scheduler_t *s, const group_t *waiting);
void queue_check_step(const engine_t *engine);     /* a step is launched */
void queue_check(const engine_t *engine);          /* after every iteration */
void check_pool(const engine_t *engine, bool all); /* I1 and I8; all: what nobody holds, too */
void check_pool_begin(void);
bool check_walks(void); /* whether all is looked at after this iteration */

/* run.c: one scenario from start to end; returns the steps taken. */
uint64_t sim_run(scenario_t *scenario);
/* torture.c: every fallible call of every case fails once. Returns how many calls failed. */
uint64_t torture_run(void);

/* load.c: many requests on one engine: nothing leaks, memory stays flat; then far too many. */
void load_soak(uint64_t requests);
void load_overload(void);
uint64_t alloc_calls(void); /* alloc.c: calls of the program to the heap so far */
int64_t alloc_live(void);   /* blocks that are not freed */

#endif
