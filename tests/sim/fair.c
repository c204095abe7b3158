/* fair.c: fair shares: what each tenant was served, whose turn is next, who makes room for whom.
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
static uint64_t yields_before;

void fair_begin(void) {
  memset(served, 0, sizeof served);
  memset(charged, 0, sizeof charged);
  memset(beams_charged, 0, sizeof beams_charged);
  most_served = yields_before = 0;
  num_arrivals = 0;
}

static uint64_t weight_of(uint64_t tenant) {
  uint64_t weight = (uint64_t)atomic_load(&sim.scenario->quotas[tenant].weight);
  return scenario_has(sim.scenario, SIM_QUOTAS) && weight > 0 ? weight : 1;
}

static uint64_t tenant_of(const group_t *g) {
  return check_track(&g->sequence)->script->tenant;
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
  for (; g && runs > 0 && limit > 0; g = g->prev && g->prev->tenant == g->tenant ? g->prev : NULL) {
    if (runs + check_width(g) > limit) return true;
  }
  return false;
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
  int32_t index;
} turn_t;

static turn_t turn_of_request(const track_t *k) {
  return (turn_t){.tenant = k->script->tenant, .id = k->sent->id, .priority = k->script->priority};
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

/* ---- who makes room ---- */

typedef struct use {
  int64_t sequences, blocks, weights; /* weights: of all that run or wait */
} use_t;

static use_t use_of(const scheduler_t *s, uint64_t tenant) {
  use_t use = {0};
  bool there[SIM_TENANTS + 1] = {false};
  for (const group_t *g = s->waiting.queue.head; g; g = g->next) there[tenant_of(g)] = true;
  for (const group_t *g = s->running.head; g; g = g->next) {
    there[tenant_of(g)] = true;
    if (tenant_of(g) != tenant) continue;
    use.sequences += check_width(g);
    for (const sequence_t *q = &g->sequence; q; q = q->next) {
      int32_t blocks = q->slices.total > 0 ? q->slices.total : q->num_blocks;
      blocks += (q->sides.end - q->sides.first) * s->pool->num_sides;
      use.blocks += sequence_is_live(q) ? blocks : 0;
    }
  }
  for (uint64_t t = 0; t <= SIM_TENANTS; t++) use.weights += there[t] ? (int64_t)weight_of(t) : 0;
  return use;
}

/* Times the weights of all: the share of the tenant among `limit`, one at least. */
static int64_t share_of(use_t use, uint64_t tenant, int64_t limit) {
  int64_t share = limit * (int64_t)weight_of(tenant);
  return share > use.weights ? share : use.weights;
}

/* Whether the request was let in by this plan, or waits with room made for it, and its tenant runs
 * no more than its share with it. Those of its tenant that were let in behind it do not count. */
static bool is_entitled(const scheduler_t *s, const group_t *g) {
  bool is_in = g->queue == &s->running;
  if (is_in ? check_run(g)->was_running : !g->yield.was_granted) return false;
  use_t use = use_of(s, tenant_of(g));
  if (!is_in) use.sequences += check_width(g);
  for (const group_t *r = is_in ? g->next : NULL; r; r = r->next) {
    bool is_new = !check_run(r)->was_running;
    if (is_new && r->tenant == g->tenant) use.sequences -= check_width(r);
  }
  return use.sequences * use.weights <= share_of(use, tenant_of(g), s->options.max_num_seqs);
}

/* Whether there is somebody of another tenant for whom this one may have made room. */
static bool has_receiver(const scheduler_t *s, const group_t *giver) {
  const group_queue_t *queues[] = {&s->running, &s->waiting.queue};
  for (int i = 0; i < 2; i++) {
    for (const group_t *g = queues[i]->head; g; g = g->next) {
      if (g->tenant != giver->tenant && is_entitled(s, g)) return true;
    }
  }
  return false;
}

/* No thrash: who made room has its share still, so it cannot take back what it gave; and it did so
 * for somebody who has no more than its share. */
static void check_yields(const scheduler_t *s) {
  int64_t blocks = s->pool->num_blocks - 1;
  for (const group_t *g = s->waiting.queue.head; g; g = g->next) {
    if (g->yield.count == 0 || g->yield.plan != s->num_plans) continue;
    uint64_t tenant = tenant_of(g);
    use_t use = use_of(s, tenant);
    REQUIRE(sim.scenario->options.fair_share, "request %d makes room without fair shares",
            check_track(&g->sequence)->index);
    REQUIRE(use.sequences * use.weights >= share_of(use, tenant, s->options.max_num_seqs) ||
                use.blocks * use.weights >= share_of(use, tenant, blocks),
            "request %d makes room, its tenant has %lld sequences and %lld blocks left",
            check_track(&g->sequence)->index, (long long)use.sequences, (long long)use.blocks);
    REQUIRE(has_receiver(s, g), "request %d makes room for nobody who is within its share",
            check_track(&g->sequence)->index);
  }
}

/* The law: whose turn is next, and who runs less than its share with it, does not wait for
 * sequences of others that run more than theirs. */
static void check_share(const scheduler_t *s) {
  const plan_t *plan = &s->plan;
  const group_t *next = fair_next(s);
  int32_t most = s->options.max_num_seqs;
  if (!next || pace_is_out(s, next) || s->swapped.head || plan->num_preempted > 0 ||
      plan->num_swap_in > 0 || plan->num_tokens == s->options.max_num_batched_tokens ||
      next->yield.was_granted || next->sequence.row >= 0 || s->num_free_rows < check_width(next) ||
      !s->options.chunked_prefill)
    return;
  int32_t bs = s->pool->block_size, needs = check_width(next);
  if (needs > 1 || fair_passed(s)) return; /* the youngest that make room may be too few */
  int32_t tokens = sequence_num_tokens(&next->sequence);
  int32_t blocks = (tokens + bs - 1) / bs + check_most_sides(s, tokens);
  if (blocks + s->options.watermark_blocks > s->pool->num_free - s->slices.promised) return;
  uint64_t tenant = tenant_of(next);
  use_t use = use_of(s, tenant);
  if ((use.sequences + needs) * use.weights > share_of(use, tenant, most)) return;
  for (const group_t *g = s->running.head; g; g = g->next) {
    if (tenant_of(g) == tenant || check_is_awaited(g) ||
        (s->options.priority_policy && g->request->priority < next->request->priority))
      continue;
    use_t other = use_of(s, tenant_of(g));
    REQUIRE((other.sequences - check_width(g)) * other.weights <
                share_of(other, tenant_of(g), most),
            "I3: request %d waits, and request %d could make room",
            check_track(&next->sequence)->index, check_track(&g->sequence)->index);
  }
}

/* No key runs more than it may, but for one request of many sequences alone. */
static void check_limits(const scheduler_t *s) {
  for (const group_t *g = s->running.head; g; g = g->next) {
    int32_t limit = quota_max_running(g->request->quota);
    if (limit == 0) continue;
    int64_t runs = use_of(s, tenant_of(g)).sequences;
    REQUIRE(runs <= limit || runs == check_width(g) || s->swap.num_groups_out > 0,
            "tenant %llu runs %lld sequences, it may run %d", (unsigned long long)tenant_of(g),
            (long long)runs, limit);
  }
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
  if (s->num_yields > yields_before) check_yields(s);
  if (s->options.fair_share) check_share(s);
  yields_before = s->num_yields;
}

void fair_iteration(void) {
  const scheduler_t *s = sim.engine->scheduler;
  num_arrivals = 0;
  for (const group_t *g = s->waiting.queue.head; g; g = g->next) {
    run_t *run = check_run(g);
    run->num_skips = g->num_skips;
    run->was_there = true;
    run->was_running = run->was_swapped = false;
  }
  for (const group_t *g = s->running.head; g; g = g->next) {
    check_run(g)->was_running = true;
    check_run(g)->was_swapped = false;
  }
  for (const group_t *g = s->swapped.head; g; g = g->next) {
    check_run(g)->was_swapped = true;
    check_run(g)->was_running = false;
  }
}
