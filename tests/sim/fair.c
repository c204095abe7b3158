/* fair.c: fair shares: what each tenant was served, whose turn is next. Who makes room: law.c.
 *
 * An account beside the engine's, made from the submissions and from the plans alone: a tenant is
 * charged for each token of each of its sequences once, when it is computed first. One thread.
 */
#include "tests/sim/fair.h"
#include "tests/sim/oracle.h"
#include "tests/sim/pace.h"

#include <string.h>

enum { TOKEN = 1000000 }; /* of the contract: what a token counts at weight 1 */

static uint64_t served[SIM_TENANTS + 1], most_served;
/* Leading tokens that are charged already: of each stream, of each beam. */
static int32_t charged[SIM_REQUESTS_MAX][SIM_STREAMS_MAX], beams_charged[SIM_REQUESTS_MAX];
static const track_t *arrivals[SIM_REQUESTS_MAX]; /* submitted since the last iteration */
static int num_arrivals;

void fair_begin(void) {
  memset(served, 0, sizeof served);
  memset(charged, 0, sizeof charged);
  memset(beams_charged, 0, sizeof beams_charged);
  most_served = 0;
  num_arrivals = 0;
}

static uint64_t weight_of(uint64_t tenant) {
  uint64_t weight = (uint64_t)atomic_load(&sim.scenario->quotas[tenant].weight);
  return scenario_has(sim.scenario, SIM_QUOTAS) && weight > 0 ? weight : 1;
}

static uint64_t tenant_of(const group_t *g) {
  return check_track(&g->sequence)->script->tenant;
}

/* Whether it, or one of the same key that stands before it, would be too many beside those. */
static bool is_beyond(const group_t *g, int32_t runs, int32_t limit) {
  for (; g && runs > 0 && limit > 0; g = g->prev && g->prev->tenant == g->tenant ? g->prev : NULL) {
    if (runs + check_width(g) > limit) return true;
  }
  return false;
}

/* Whether its key may not run it now, or one of the same key that stands before it. */
bool fair_held(const scheduler_t *s, const group_t *g) {
  int32_t limit = quota_max_running(g->request->quota), runs = 0;
  bool is_held = s->waiting.tenants.all[g->tenant].held;
  REQUIRE(!is_held || limit > 0, "I3: request %d waits for a limit that its key does not have",
          check_track(&g->sequence)->index);
  if (is_held) return true;
  for (const group_t *r = s->running.head; r && limit > 0; r = r->next)
    runs += r->tenant == g->tenant ? check_width(r) : 0;
  return is_beyond(g, runs, limit);
}

bool fair_was_held(const scheduler_t *s, const group_t *g) {
  const group_queue_t *queues[] = {&s->running, &s->waiting.queue, &s->swapped};
  int32_t limit = quota_max_running(g->request->quota), ran = 0;
  for (int i = 0; i < 3; i++) {
    for (const group_t *r = queues[i]->head; r; r = r->next)
      ran += r->tenant == g->tenant && check_run(r)->runs ? check_width(r) : 0;
  }
  return is_beyond(g, ran, limit);
}

static bool is_held_tenant(const scheduler_t *s, uint64_t name) {
  for (int32_t i = 1; i <= s->waiting.tenants.num_used; i++) {
    if (s->waiting.tenants.all[i].name == name) return s->waiting.tenants.all[i].held;
  }
  return false;
}

/* A place in the order of a tenant. */
typedef struct turn {
  uint64_t tenant, key, id; /* key: 0 while the engine has not received the request */
  int64_t priority;
  bool best_effort;
  int32_t index;
} turn_t;

static turn_t turn_of_request(const track_t *k) {
  return (turn_t){.tenant = k->script->tenant,
                  .id = k->sent->id,
                  .priority = k->script->priority,
                  .best_effort = k->script->best_effort};
}

static turn_t turn_of(const group_t *g) {
  turn_t turn = turn_of_request(check_track(&g->sequence));
  turn.key = g->key;
  turn.index = g->sequence.index;
  return turn;
}

/* What is served within one multiple of it counts as equal. */
static uint64_t span(void) {
  return sim.scenario->fair_span > 0 ? (uint64_t)sim.scenario->fair_span * TOKEN : 1;
}

static bool turns_before(turn_t a, turn_t b) {
  if (a.best_effort != b.best_effort) return b.best_effort;
  if (sim.scenario->options.priority_policy && a.priority != b.priority)
    return a.priority < b.priority;
  uint64_t one = served[a.tenant] / span(), other = served[b.tenant] / span();
  if (one != other) return one < other;
  if (a.key != b.key) return a.key < b.key;
  return a.id != b.id ? a.id < b.id : a.index < b.index; /* submitted in the order of their ids */
}

/* A tenant of whom nobody waits is lifted to the one whose turn is next. */
void fair_submitted(track_t *k) {
  const scheduler_t *s = sim.engine->scheduler;
  turn_t next = {0};
  bool waits = false, any = false;
  for (const group_t *g = s->waiting.queue.head; g; g = g->next) {
    turn_t turn = turn_of(g);
    waits = waits || turn.tenant == k->script->tenant;
    if (is_held_tenant(s, turn.tenant) || (any && !turns_before(turn, next))) continue;
    next = turn;
    any = true;
  }
  for (int i = 0; i < num_arrivals; i++) {
    turn_t turn = turn_of_request(arrivals[i]);
    waits = waits || turn.tenant == k->script->tenant;
    if (is_held_tenant(s, turn.tenant) || (any && !turns_before(turn, next))) continue;
    next = turn;
    any = true;
  }
  arrivals[num_arrivals++] = k;
  if (waits || !sim.scenario->options.fair_share) return;
  uint64_t least = any ? served[next.tenant] / span() * span() : most_served;
  if (served[k->script->tenant] < least) served[k->script->tenant] = least;
}

const group_t *fair_next(const scheduler_t *s) {
  const group_t *next = NULL;
  for (const group_t *g = s->waiting.queue.head; g; g = g->next) {
    if (fair_held(s, g)) continue;
    if (!next || turns_before(turn_of(g), turn_of(next))) next = g;
  }
  return next;
}

bool fair_passed(const scheduler_t *s) {
  for (const group_t *g = s->waiting.queue.head; g; g = g->next) {
    if (g->num_skips > check_run(g)->num_skips) return true;
  }
  return false;
}

/* Tokens of the entry that count: those behind all that was computed of its sequence before. */
static int32_t charge_of(const plan_entry_t *entry) {
  const track_t *k = check_track(entry->sequence);
  int32_t *mark = &charged[k->index][entry->sequence->index];
  bool beams = k->script->params.beam_width > 0;
  int32_t end = entry->num_computed + entry->num_tokens + entry->num_cut; /* as it was planned */
  int32_t from = beams ? beams_charged[k->index] : *mark;
  if (from < entry->num_computed) from = entry->num_computed;
  if (!beams && end > from) *mark = end;
  return end > from ? end - from : 0;
}

/* Beams draw together, so each of them has the mark that the group had before the step. */
static void note_beams(const plan_t *plan) {
  for (int32_t i = 0; i < plan->num_entries; i++) {
    const plan_entry_t *entry = &plan->entries[i];
    int32_t *mark = &beams_charged[check_track(entry->sequence)->index];
    int32_t end = entry->num_computed + entry->num_tokens;
    if (end > *mark) *mark = end;
  }
}

/* I3: a group is let in when no other one's turn is before it; one that was passed is counted. */
static void check_turn(const scheduler_t *s, const group_t *in) {
  for (const group_t *g = s->waiting.queue.head; g; g = g->next) {
    /* A choice begins to wait when the one before it is let in, in this plan maybe. */
    if (g->sequence.index > 0 && !check_run(g)->was_there) continue;
    if (s->options.fair_share && g->tenant != in->tenant) continue; /* the law: law.c */
    bool counted = g->num_skips > check_run(g)->num_skips || fair_held(s, g) || pace_is_out(s, g) ||
                   pace_was_out(s, g) || check_left_running(s, g);
    bool alone = s->running.head == in;
    REQUIRE(counted || alone || !turns_before(turn_of(g), turn_of(in)),
            "I3: request %d is let in, it is the turn of request %d",
            check_track(&in->sequence)->index, check_track(&g->sequence)->index);
  }
}

static void check_served(const scheduler_t *s) {
  for (int32_t i = 1; i <= s->waiting.tenants.num_used; i++) {
    const tenant_t *tenant = &s->waiting.tenants.all[i];
    REQUIRE(tenant->served == served[tenant->name],
            "I3: tenant %llu was served %llu, the account says %llu",
            (unsigned long long)tenant->name, (unsigned long long)tenant->served,
            (unsigned long long)served[tenant->name]);
  }
}

/* No key runs more than it may, but for one request of many sequences alone. */
static void check_limits(const scheduler_t *s) {
  for (const group_t *g = s->running.head; g; g = g->next) {
    int32_t limit = quota_max_running(g->request->quota);
    if (limit == 0) continue;
    int64_t runs = 0;
    for (const group_t *r = s->running.head; r; r = r->next)
      runs += r->tenant == g->tenant ? check_width(r) : 0;
    REQUIRE(runs <= limit || runs == check_width(g) || s->swap.num_groups_out > 0,
            "tenant %llu runs %lld sequences, it may run %d", (unsigned long long)tenant_of(g),
            (long long)runs, limit);
  }
}

void fair_saw(const track_t *k, int64_t tokens) {
  if (sim.scenario->options.fair_share)
    served[k->script->tenant] += (uint64_t)tokens * (TOKEN / weight_of(k->script->tenant));
}

/* ---- the laws, after every step ---- */

void fair_step(void) {
  const scheduler_t *s = sim.engine->scheduler;
  const plan_t *plan = &s->plan;
  for (int32_t i = 0; i < plan->num_entries; i++) {
    const plan_entry_t *entry = &plan->entries[i];
    const track_t *k = check_track(entry->sequence);
    const group_t *g = entry->sequence->group;
    const run_t *run = check_run(g);
    bool first = i == 0 || plan->entries[i - 1].sequence->group != g;
    if (first && !run->runs && !run->was_swapped && plan->num_preempted == 0) check_turn(s, g);
    if (s->options.fair_share)
      served[k->script->tenant] +=
          (uint64_t)charge_of(entry) * (TOKEN / weight_of(k->script->tenant));
  }
  note_beams(plan);
  for (int32_t i = 0; i < plan->num_entries; i++) {
    uint64_t has = served[check_track(plan->entries[i].sequence)->script->tenant];
    if (has > most_served) most_served = has;
  }
  check_served(s);
  check_limits(s);
}

void fair_iteration(void) {
  const scheduler_t *s = sim.engine->scheduler;
  num_arrivals = 0;
  for (const group_t *g = s->waiting.queue.head; g; g = g->next) {
    run_t *run = check_run(g);
    run->num_skips = g->num_skips;
    run->was_there = true;
    run->was_swapped = false;
  }
  for (const group_t *g = s->running.head; g; g = g->next) check_run(g)->was_swapped = false;
  for (const group_t *g = s->swapped.head; g; g = g->next) check_run(g)->was_swapped = true;
}
