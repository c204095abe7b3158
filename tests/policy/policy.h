/* policy.h: schedulers under drawn traces, in virtual time: who gets its tokens in time.
 *
 * A trace is a list of requests drawn from a seed (trace.c). A policy serves it: the scheduler of
 * the product with its pool and cache (inferd.c), or a plain model of another server's (lpm.c).
 * What a step takes is computed from its work and from coefficients in a file; no model runs. The
 * world keeps the clock, brings requests, and notes what each of them got (world.c). One thread.
 */
#ifndef INFERD_TESTS_POLICY_POLICY_H
#define INFERD_TESTS_POLICY_POLICY_H

#include "engine/schedule/scheduler.h"

/* In time: the first token within a second, in more for a prompt above 8,192 tokens; and 50 ms for
 * each further one, on average. */
enum { FIRST_MS = 1000, TOKEN_MS = 50, LONG_TOKENS = 8192 };
enum { BLOCK_SIZE = 16, POOL_TOKENS = 440000, CONTEXT = 65536, TENANTS = 16, SYSTEMS = 64 };

typedef struct job {
  double due_s;           /* when it comes; of a later turn: how long after the end of the first */
  uint64_t system, text;  /* ids below num_system are a function of `system`, others of `text` */
  int32_t num_system;     /* tokens */
  int32_t prompt, output; /* tokens; prompt includes num_system */
  int32_t num_before;     /* leading tokens that the turn before had, with its answer */
  int32_t tenant;         /* 0 .. TENANTS - 1 */
  struct job *next_turn;  /* comes when this one has ended; NULL = none */
  int32_t *ids;           /* [prompt + output]; while it is served */
  block_key_t *keys;      /* [(prompt + output) / BLOCK_SIZE]; while it is served */
  struct job *later;      /* in the list of those that come later */
  /* what it got; times since the start, 0 = never */
  double came_s, first_s, last_s;
  double forecast_s; /* of the first token, when it came; 0 = none */
  int32_t num_tokens, num_cached;
  bool refused;
} job_t;

typedef struct trace {
  job_t *jobs; /* sorted by due_s; further turns behind them */
  int count, num_first_turns;
} trace_t;

/* What is drawn: `name` of a kind (trace.c), requests or sessions a second, seconds. */
typedef struct load {
  const char *kind;
  double rate, seconds;
} load_t;

/* ns: of a step, a token, a key read by a decode, a pair of query and key of a chunk, a block that
 * comes from the host. */
typedef struct coefficients {
  double step, token, key, pair, block;
} coefficients_t;

enum { GAP_BINS = 20000 }; /* of 0.1 ms; the last has all that are longer */

typedef struct world {
  trace_t trace;
  coefficients_t coefficients;
  double now_s, end_s;                  /* nothing is served behind end_s */
  int next;                             /* index of the job that comes next */
  job_t *later;                         /* further turns whose time is known, sorted */
  block_pool_t *pool;                   /* of the policy: makes the keys of a prompt */
  uint64_t gaps[GAP_BINS];              /* between tokens of one request */
  double busy_s;                        /* in steps */
  int64_t prompt_tokens, cached_tokens; /* of requests that were begun */
  int64_t best_tokens;                  /* of these, what a cache without bounds would have had */
  bool system_was_seen[SYSTEMS + 1];
} world_t;

/* ---- trace.c ---- */

/* Draws a trace. Returns false if there is no such kind. The caller frees trace->jobs. */
bool trace_make(const load_t *load, uint64_t seed, trace_t *trace);

/* ---- world.c ---- */

void world_begin(world_t *world, const load_t *load, uint64_t seed,
                 const coefficients_t *coefficients);
void world_end(world_t *world);
/* The next request that has come by now, with ids and keys; NULL = none. */
job_t *world_arrival(world_t *world);
/* Nothing can run: moves the clock to the next arrival. Returns false if the trace is over. */
bool world_wait(world_t *world);
/* Whether the time of the trace is over. */
bool world_is_over(const world_t *world);
/* A step has ended: moves the clock by what it takes, and returns that, in ns. */
double world_step(world_t *world, double tokens, double keys, double pairs);
/* Blocks come from the host before a step. Returns what that takes, in ns. */
double world_copy(world_t *world, int32_t num_blocks);
/* A request was begun; a token came; it has ended; or it was refused or ended for its wait. */
void world_note_begun(world_t *world, job_t *job, int32_t num_cached);
void world_note_token(world_t *world, job_t *job);
void world_note_end(world_t *world, job_t *job, bool refused);

/* In seconds: how long the first token may take. */
double world_first_limit_s(const job_t *job);

typedef struct result {
  double
      load; /* device time that the requests ask for, of each second; without what every step has */
  double good;                     /* share of the requests with all tokens in time */
  double good_short, good_long;    /* of those whose prompt has up to LONG_TOKENS, or more */
  double first_p50_s, first_p99_s; /* time to the first token, of those that got one */
  double token_s;                  /* time of an output token, mean over requests */
  double gap_p99_s;
  double hits, best_hits;  /* share of the prompt tokens from the cache; without bounds */
  double longest_wait_s;   /* for the first token, or for the refusal */
  double off_p50, off_p90; /* forecasts of waits of half a second or more: relative errors */
  double smallest;         /* share in time of the client with the fewest requests */
  double fairness;         /* Jain's index of the tenants' shares in time */
  int count, num_long, refused;
} result_t;

result_t world_result(const world_t *world);

/* ---- bound.c ---- */

/* The largest share of the requests of a trace that any order of serving may have in time, even if
 * it knows all lengths beforehand; 1 for conversations, whose later turns come when others end. */
double world_bound(const world_t *world);

/* ---- policies ---- */

typedef struct policy {
  const char *name;
  void (*serve)(world_t *world, const struct policy *policy);
  scheduler_options_t options; /* inferd.c */
  double queue_s;              /* inferd.c: max_queue_time; 0 = none */
  int32_t queue_max;           /* inferd.c: requests that may wait; 0 = any number */
  int32_t floor_times; /* inferd.c: the floor of the cache, in sizes of the pool; 0 = none */
} policy_t;

/* inferd.c: the scheduler of the product. */
void serve_inferd(world_t *world, const policy_t *policy);
/* lpm.c: a plain model of SGLang's scheduler: prompts before decodes, longest cached prefix first.
 */
void serve_lpm(world_t *world, const policy_t *policy);

#endif
