/* followers.c: the ranks of a simulated model but the first: they lag, die, hang, and start again.
 *
 * Each follower is the real engine_follow on a stack of its own, a coroutine of the one thread. The
 * comm_t between the ranks is a double of shared.c: who must wait gives way, and rank 0 runs the
 * others while it waits. Each rank has a clock, that of rank 0 is the clock of the engine. A call
 * passes when the ranks that it waits for have entered it, on the clock of the last of them. If
 * nobody can go on, time passes until the first limit of a waiting rank; without one they would
 * wait for ever, which no rank may. Ranks either hear that another has failed, as over shared
 * memory, or find out at their limit, as over MPI, whose launcher ends all when one has ended.
 *
 * A stack is entered once by its ucontext_t. From then on _longjmp leads from one to another, as
 * swapcontext asks the system for the signal mask each time, which was a quarter of a run's time.
 */
#undef _FORTIFY_SOURCE /* its longjmp takes the jump to another stack for a mistake */
#include "tests/sim/followers.h"

#include "engine/base/random.h"
#include "engine/base/util.h"
#include "engine/ranks/ranks.h"

#include <setjmp.h>
#include <string.h>
#include <ucontext.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

enum {
  STACK_BYTES = 1 << 20,
  SLOT_BYTES = 1 << 18,
  SLOTS = 2,
  LAGS_ONE_IN = 32,
  CALLS_AT_START = 3
};
static const uint64_t SLACK_NS = 2000000000; /* of a limit: idle ranks exchange signs of life */

typedef enum call_kind { CALL_GATHER, CALL_BROADCAST, CALL_REDUCE, CALL_BARRIER } call_kind_t;

/* What all ranks must agree on in a call. */
typedef struct call {
  call_kind_t kind;
  int32_t root;
  uint64_t bytes;
} call_t;

typedef struct member {
  comm_t comm; /* first */
  ucontext_t beginning;
  jmp_buf place; /* where it goes on, once it has begun */
  bool has_begun;
  engine_options_t options;
  inferd_error_t error;
  int code;                   /* what engine_follow returned */
  bool ended, gone;           /* has returned; its process is killed, and tells nobody */
  bool hangs;                 /* stands still */
  bool passed;                /* its limit has passed while nobody could go on */
  uint64_t entered;           /* calls */
  const struct member *other; /* for whose call `call` it waits; NULL = for nobody */
  uint64_t call;
  uint64_t clock_ns;    /* unless it is rank 0 */
  uint64_t deadline_ns; /* while it waits; UINT64_MAX = without a limit */
  uint64_t entry_ns[SLOTS];
  call_t calls[SLOTS];
  void *fake_stack; /* of AddressSanitizer */
  uint8_t slots[SLOTS][SLOT_BYTES];
} member_t;

static member_t members[SIM_RANKS_MAX];
static _Alignas(64) uint8_t stacks[SIM_RANKS_MAX][STACK_BYTES];
static struct {
  const scenario_t *scenario; /* NULL = one rank */
  int32_t size;
  const member_t *failed; /* the first one that said so */
  bool struck, lost;      /* the fault has struck; rank 0 knows that a rank has failed */
  uint64_t struck_ns, lost_tokens;
  uint64_t moves, turns; /* whatever lets another go on; rounds */
  jmp_buf main;
  uint64_t heap_calls; /* of the others */
} crew;
static followers_count_t counts;

const followers_count_t *followers_count(void) {
  return &counts;
}

static uint64_t *clock_of(member_t *own) {
  return own == &members[0] ? &sim.now_ns : &own->clock_ns;
}

/* ---- coroutines ---- */

#ifdef __SANITIZE_ADDRESS__
static const void *main_stack;
static size_t main_bytes;
static void *main_fake_stack;

static void enter_coroutine(const member_t *to) {
  const uint8_t *stack = stacks[to->comm.rank];
  __sanitizer_start_switch_fiber(&main_fake_stack, stack, STACK_BYTES);
}
static void enter_main(member_t *from) {
  __sanitizer_start_switch_fiber(from->ended ? NULL : &from->fake_stack, main_stack, main_bytes);
}
static void in_coroutine(const member_t *own) {
  __sanitizer_finish_switch_fiber(own->fake_stack, &main_stack, &main_bytes);
}
static void in_main(void) {
  __sanitizer_finish_switch_fiber(main_fake_stack, NULL, NULL);
}
#else
static void enter_coroutine(const member_t *to) {
  (void)to;
}
static void enter_main(member_t *from) {
  (void)from;
}
static void in_coroutine(const member_t *own) {
  (void)own;
}
static void in_main(void) {}
#endif

static void follow(int rank) {
  member_t *own = &members[rank];
  in_coroutine(own);
  own->code = engine_follow(&own->options, &own->error);
  own->ended = true;
  crew.moves++;
  enter_main(own);
  _longjmp(crew.main, 1);
}

/* Goes on at `to`, and returns when somebody goes on at `from`. */
static __attribute__((noinline)) void leave(jmp_buf from, jmp_buf to) {
  if (_setjmp(from) == 0) _longjmp(to, 1);
}

static __attribute__((noinline)) void begin_coroutine(member_t *own) {
  own->has_begun = true;
  if (_setjmp(crew.main) == 0) setcontext(&own->beginning);
}

static void run(member_t *own) {
  const uint64_t heap = alloc_calls(), entered = own->entered;
  enter_coroutine(own);
  if (own->has_begun) {
    leave(crew.main, own->place);
  } else {
    begin_coroutine(own);
  }
  in_main();
  const uint64_t calls = alloc_calls() - heap;
  REQUIRE(calls == 0 || entered <= CALLS_AT_START, "I7: rank %d has used the heap", own->comm.rank);
  crew.heap_calls += calls;
}

/* Whether it would only find that nothing has changed since it gave way. */
static bool is_blocked(const member_t *own) {
  if (own->hangs) return !own->gone;
  const member_t *other = own->other;
  return other != NULL && !own->gone && !own->passed && crew.failed == NULL &&
         other->entered < own->call && !other->ended && !other->gone;
}

/* Nobody can go on: the limit passes of the rank that waits with the earliest one. */
static void pass_limit(void) {
  member_t *first = NULL;
  for (int32_t r = 0; r < crew.size; r++) {
    member_t *own = &members[r];
    if (own->ended || own->hangs || own->deadline_ns == UINT64_MAX) continue;
    if (first == NULL || own->deadline_ns < first->deadline_ns) first = own;
  }
  REQUIRE(first != NULL, "the ranks wait for each other for ever");
  first->passed = true;
}

/* A turn of all others, one of whom may be slow. Rank 0 waits, or has ended. */
static void run_others(void) {
  const uint64_t moves = crew.moves;
  const uint64_t bits = random_mix(crew.scenario->seed + crew.turns++);
  const int32_t others = crew.size - 1, first = (int32_t)(bits % 97);
  bool all = true;
  for (int32_t i = 0; i < others; i++) {
    member_t *own = &members[1 + (first + i) % others];
    const bool sleeps = (bits >> (16 + i) & 3) == 0;
    all = all && !sleeps;
    if (!own->ended && !sleeps && !is_blocked(own)) run(own);
  }
  if (all && crew.moves == moves) pass_limit();
}

static void give_way(member_t *own) {
  if (own == &members[0]) {
    run_others();
    return;
  }
  enter_main(own);
  leave(own->place, crew.main);
  in_coroutine(own);
}

/* ---- faults ---- */

/* Whoever finds out does so in time. When the device of rank 0 itself is lost, all end with it. */
static void check_in_time(const member_t *own, uint64_t now_ns) {
  const uint64_t limit_ns = crew.scenario->rank_limit_ns + SLACK_NS;
  const bool by_rank_0 = sim.lost && !crew.lost;
  if (!crew.struck || own->gone || by_rank_0 || now_ns < crew.struck_ns) return;
  REQUIRE(now_ns - crew.struck_ns <= limit_ns + scenario_longest_step_ns(crew.scenario),
          "rank %d finds out after %llu ns, its limit is %llu ns", own->comm.rank,
          (unsigned long long)(now_ns - crew.struck_ns),
          (unsigned long long)crew.scenario->rank_limit_ns);
}

static int fail(member_t *own, const member_t *other, const char *what) {
  crew.moves++;
  own->deadline_ns = UINT64_MAX;
  REQUIRE(crew.struck || members[0].ended, "rank %d fails: rank %d %s, and nothing has happened",
          own->comm.rank, other->comm.rank, what);
  check_in_time(own, *clock_of(own));
  if (own == &members[0]) {
    crew.lost = sim.lost = true;
    crew.lost_tokens = sim.engine != NULL ? sim.engine->stats.generation_tokens : 0;
  }
  return error_set(&own->comm.error, ERR_DEVICE_FAILED, NULL, "rank %d of %d: rank %d %s",
                   own->comm.rank, crew.size, other->comm.rank, what);
}

static void strike(member_t *own) {
  crew.struck = true;
  crew.struck_ns = *clock_of(own);
}

static bool is_struck_now(const member_t *own) {
  const scenario_t *c = crew.scenario;
  return !crew.struck && c->rank_fault != RANK_IS_WELL && c->fault_rank == own->comm.rank &&
         own->entered >= (uint64_t)c->fault_call;
}

bool followers_breaks(const comm_t *comm) {
  member_t *own = &members[comm->rank];
  if (crew.scenario->rank_fault != RANK_BREAKS || !is_struck_now(own)) return false;
  strike(own);
  return true;
}

/* What happens to a rank that is about to enter a call. 0, or it does not enter. */
static int meet_fate(member_t *own) {
  const scenario_t *c = crew.scenario;
  if (own->gone) return fail(own, own, "is killed");
  const uint64_t bits =
      random_mix(c->seed + own->entered * SIM_RANKS_MAX + (uint64_t)own->comm.rank);
  if (bits % LAGS_ONE_IN == 0) *clock_of(own) += bits / LAGS_ONE_IN % (1 + c->rank_lag_ns);
  if (c->rank_fault == RANK_BREAKS || !is_struck_now(own)) return 0;
  strike(own);
  if (c->rank_fault == RANK_DIES) {
    own->gone = true;
    return fail(own, own, "is killed");
  }
  /* A rank 0 that hangs is one that lags: somebody has to run the others. */
  if (c->rank_fault == RANK_LAGS || own == &members[0]) {
    *clock_of(own) += c->rank_limit_ns + 1;
    return 0;
  }
  own->hangs = true;
  crew.moves++; /* rank 0 may kill it */
  while (!own->gone) give_way(own);
  own->hangs = false;
  return fail(own, own, "is killed");
}

/* ---- the comm_t ---- */

/* Waits until the other has entered the call. */
static int await(member_t *own, member_t *other, uint64_t call, uint64_t began_ns) {
  const uint64_t limit_ns = own->comm.limit_ns > 0 ? began_ns + own->comm.limit_ns : UINT64_MAX;
  uint64_t *clock_ns = clock_of(own);
  for (;;) {
    if (own->gone) return fail(own, own, "is killed");
    if (crew.failed != NULL) return fail(own, crew.failed, "has failed");
    const bool late = other->entered >= call && other->entry_ns[call % SLOTS] > limit_ns;
    if (own->passed || late) {
      own->passed = false;
      *clock_ns = MAX(*clock_ns, limit_ns);
      return fail(own, other, "does not answer");
    }
    if (other->entered >= call) {
      own->deadline_ns = UINT64_MAX;
      *clock_ns = MAX(*clock_ns, other->entry_ns[call % SLOTS]);
      return 0;
    }
    if (other->ended || other->gone) {
      own->gone = !crew.scenario->ranks_tell; /* the launcher ends it, too */
      return fail(own, other, "has ended");
    }
    own->deadline_ns = limit_ns;
    own->other = other;
    own->call = call;
    give_way(own);
    own->other = NULL;
  }
}

static int await_all(member_t *own, uint64_t call, uint64_t began_ns) {
  int code = 0;
  for (int32_t r = 0; r < crew.size && code == 0; r++)
    if (&members[r] != own) code = await(own, &members[r], call, began_ns);
  return code;
}

/* The next call of this rank: all have entered the one before, so a slot is free. */
static int begin(member_t *own, call_t call, uint64_t *began_ns) {
  int code = meet_fate(own);
  *began_ns = *clock_of(own);
  if (code == 0) code = await_all(own, own->entered, *began_ns);
  if (code != 0) return code;
  REQUIRE(call.bytes <= SLOT_BYTES, "a call of %llu bytes", (unsigned long long)call.bytes);
  for (int32_t r = 0; r < crew.size; r++) {
    const member_t *other = &members[r];
    const call_t *same = &other->calls[(own->entered + 1) % SLOTS];
    if (other->entered <= own->entered) continue;
    REQUIRE(same->kind == call.kind && same->root == call.root && same->bytes == call.bytes,
            "call %llu: kind %d of %llu bytes on rank %d, kind %d of %llu bytes on rank %d",
            (unsigned long long)own->entered, (int)call.kind, (unsigned long long)call.bytes,
            own->comm.rank, (int)same->kind, (unsigned long long)same->bytes, r);
  }
  return 0;
}

/* The slot of the call is written: the others may read it. */
static void enter(member_t *own, call_t call) {
  own->entered++;
  own->calls[own->entered % SLOTS] = call;
  own->entry_ns[own->entered % SLOTS] = *clock_of(own);
  crew.moves++;
}

static int sim_gather(comm_t *comm, void *data, const size_t *cuts, int32_t root) {
  member_t *own = (member_t *)comm;
  const int32_t rank = comm->rank;
  const call_t call = {CALL_GATHER, root, cuts[comm->size]};
  uint64_t began_ns;
  uint8_t *bytes = data;
  int code = begin(own, call, &began_ns);
  if (code != 0) return code;
  memcpy(own->slots[(own->entered + 1) % SLOTS], bytes + cuts[rank], cuts[rank + 1] - cuts[rank]);
  enter(own, call);
  for (int32_t r = 0; r < comm->size && code == 0 && (root < 0 || root == rank); r++) {
    if (r == rank) continue;
    code = await(own, &members[r], own->entered, began_ns);
    if (code == 0)
      memcpy(bytes + cuts[r], members[r].slots[own->entered % SLOTS], cuts[r + 1] - cuts[r]);
  }
  return code;
}

static int sim_broadcast(comm_t *comm, void *data, size_t bytes, int32_t root) {
  member_t *own = (member_t *)comm;
  const call_t call = {CALL_BROADCAST, root, bytes};
  uint64_t began_ns;
  int code = begin(own, call, &began_ns);
  if (code != 0) return code;
  if (comm->rank == root) memcpy(own->slots[(own->entered + 1) % SLOTS], data, bytes);
  enter(own, call);
  if (comm->rank == root) return 0;
  code = await(own, &members[root], own->entered, began_ns);
  if (code == 0) memcpy(data, members[root].slots[own->entered % SLOTS], bytes);
  return code;
}

static int sim_reduce(comm_t *comm, float *values, size_t count) {
  member_t *own = (member_t *)comm;
  const call_t call = {CALL_REDUCE, -1, count * sizeof *values};
  uint64_t began_ns;
  int code = begin(own, call, &began_ns);
  if (code != 0) return code;
  memcpy(own->slots[(own->entered + 1) % SLOTS], values, call.bytes);
  enter(own, call);
  for (int32_t r = 0; r < comm->size && code == 0; r++) {
    if (r != comm->rank) code = await(own, &members[r], own->entered, began_ns);
    const float *part = (const void *)members[r].slots[own->entered % SLOTS];
    for (size_t i = 0; code == 0 && i < count; i++) values[i] = (r > 0 ? values[i] : 0) + part[i];
  }
  return code;
}

static int sim_barrier(comm_t *comm) {
  const size_t cuts[SIM_RANKS_MAX + 1] = {0};
  return sim_gather(comm, NULL, cuts, -1);
}

static void sim_abandon(comm_t *comm) {
  member_t *own = (member_t *)comm;
  if (own->gone || !crew.scenario->ranks_tell || crew.failed != NULL) return;
  crew.failed = own;
  crew.moves++;
}

static void sim_close(comm_t *comm) {
  (void)comm;
}

static const comm_ops_t sim_comm_ops = {.name = "coroutines",
                                        .gather = sim_gather,
                                        .broadcast = sim_broadcast,
                                        .reduce = sim_reduce,
                                        .barrier = sim_barrier,
                                        .abandon = sim_abandon,
                                        .close = sim_close};

/* ---- a run ---- */

static void start(member_t *own, int32_t rank) {
  memset(own, 0, offsetof(member_t, slots));
  own->comm =
      (comm_t){.ops = &sim_comm_ops, .rank = rank, .size = crew.size, .local_size = crew.size};
  own->clock_ns = sim.now_ns;
  own->deadline_ns = UINT64_MAX;
  if (rank == 0) return;
  own->options = crew.scenario->options;
  own->options.comm = &own->comm;
  own->options.kv_events = NULL;
  own->options.num_blocks += rank; /* of more memory: rank 0 has least */
  getcontext(&own->beginning);
  own->beginning.uc_stack.ss_sp = stacks[rank];
  own->beginning.uc_stack.ss_size = STACK_BYTES;
  own->beginning.uc_link = NULL;
  makecontext(&own->beginning, (void (*)(void))follow, 1, rank);
}

void followers_begin(scenario_t *c) {
  memset(&crew, 0, sizeof crew);
  c->options.comm = NULL;
  if (!scenario_has(c, SIM_RANKS)) return;
  crew.scenario = c;
  crew.size = c->num_ranks;
  c->options.add_ranks = c->adds_ranks;
  c->options.rank_limit_ns = c->rank_limit_ns;
  for (int32_t r = 0; r < crew.size; r++) start(&members[r], r);
  c->options.comm = &members[0].comm;
  counts.runs++;
}

bool followers_failed_start(void) {
  return crew.scenario != NULL && crew.struck && members[0].comm.error.code != 0;
}

uint64_t followers_heap_calls(void) {
  return crew.heap_calls;
}

void followers_check(void) {
  if (!crew.lost || sim.engine == NULL) return;
  REQUIRE(engine_state(sim.engine) == ENGINE_FAILED, "rank 0 goes on without the others");
  REQUIRE(sim.engine->stats.generation_tokens == crew.lost_tokens, "a token after a rank was lost");
}

bool followers_end(void) {
  if (crew.scenario == NULL) return false;
  members[0].ended = true;
  crew.moves++;
  for (bool all = false; !all;) {
    all = true;
    for (int32_t r = 1; r < crew.size; r++) {
      member_t *own = &members[r];
      if (own->hangs) own->gone = true; /* rank 0 kills what it has started and does not end */
      all = all && own->ended;
    }
    if (!all) run_others();
  }
  const bool hit = crew.struck && crew.scenario->rank_fault != RANK_LAGS; /* which may be in time */
  for (int32_t r = 1; r < crew.size; r++) {
    const member_t *own = &members[r];
    REQUIRE(!hit || r != crew.scenario->fault_rank || own->code != 0, "rank %d fails and ends well",
            r);
    REQUIRE(own->code == 0 || crew.struck || sim.lost, "rank %d ends by %d: %s", r, own->code,
            own->error.message);
    REQUIRE(own->code != 0 || !crew.lost, "rank %d ends well, and rank 0 does not", r);
  }
  const bool struck = crew.struck;
  counts.restarts += struck;
  crew.scenario = NULL;
  return struck;
}
