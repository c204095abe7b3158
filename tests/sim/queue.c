/* queue.c: the door of the waiting queue: who enters, who makes room, who is refused.
 *
 * Says beforehand, from the rule of engine/README.md alone, what engine_submit must do with a
 * request: the simulator submits one at a time. Then the law: a tenant below its share is neither
 * refused nor made to make room while another one has more than its own. One thread.
 */
#include "tests/sim/sim.h"

#include "engine/base/util.h"

#include <string.h>

static track_t *dropped[SIM_REQUESTS_MAX]; /* by the request that is being submitted */
static int num_dropped;
static uint64_t num_submitted;

typedef struct amount {
  int64_t requests, tokens;
} amount_t;

static amount_t amounts[SIM_TENANTS + 1]; /* of the tracks that wait, by tenant */

/* Every change of track_t.waits is made here, so that the amounts are those of all tracks. */
static void set_waits(track_t *k, bool waits) {
  amount_t *amount = &amounts[k->script->tenant];
  if (k->waits == waits) return;
  amount->requests += waits ? 1 : -1;
  amount->tokens += waits ? k->num_prompt : -k->num_prompt;
  k->waits = waits;
}

/* Nobody waits. */
static void clear(void) {
  for (int i = 0; i < sim.scenario->count; i++) sim.tracks[i].waits = false;
  memset(amounts, 0, sizeof amounts);
}

static amount_t amount_of(uint64_t tenant) {
  return amounts[tenant];
}

static amount_t amount_of_all(void) {
  amount_t sum = {0, 0};
  for (uint64_t tenant = 0; tenant <= SIM_TENANTS; tenant++) {
    sum.requests += amounts[tenant].requests;
    sum.tokens += amounts[tenant].tokens;
  }
  return sum;
}

/* Above 0: others must make room for so many requests, or tokens. */
static int64_t lacking(const request_t *request, bool tokens) {
  const engine_options_t *o = &sim.scenario->options;
  amount_t all = amount_of_all();
  if (!tokens) return all.requests + 1 - o->max_queue_requests;
  return all.requests > 0 ? all.tokens + request->num_prompt_tokens - o->max_queue_tokens : 0;
}

static int64_t part(amount_t amount, bool tokens) {
  return tokens ? amount.tokens : amount.requests;
}

/* What its tenant will have with it. */
static int64_t level_of(const request_t *request, bool tokens) {
  return part(amount_of(request->tenant), tokens) + (tokens ? request->num_prompt_tokens : 1);
}

/* Whether others have enough above that. */
static bool may_enter(const request_t *request, bool tokens) {
  int64_t needed = lacking(request, tokens), level = level_of(request, tokens);
  for (uint64_t tenant = 0; tenant <= SIM_TENANTS && needed > 0; tenant++) {
    int64_t above = part(amount_of(tenant), tokens) - level;
    if (above > 0) needed -= above;
  }
  return needed <= 0;
}

/* The newest of the tenant that has most; of equal tenants, of the one with the newest. */
static track_t *find_victim(bool tokens) {
  track_t *found = NULL;
  int64_t most = 0;
  for (int i = 0; i < sim.scenario->count; i++) {
    track_t *k = &sim.tracks[i];
    if (!k->waits) continue;
    int64_t has = part(amount_of(k->script->tenant), tokens);
    if (has < most || (has == most && k->number < found->number)) continue;
    most = has;
    found = k;
  }
  return found;
}

/* The law, for the places: of n tenants that wait, each may have 1/n of them. */
static void check_law(uint64_t loser, int64_t has, const char *fate) {
  int64_t limit = sim.scenario->options.max_queue_requests, tenants = 0, most = 0;
  for (uint64_t tenant = 0; tenant <= SIM_TENANTS; tenant++) {
    amount_t amount = amount_of(tenant);
    tenants += tenant == loser || amount.requests > 0;
    if (tenant != loser && amount.requests > most) most = amount.requests;
  }
  REQUIRE(has * tenants > limit || most * tenants <= limit,
          "tenant %lld is %s with %lld of %lld places, another has %lld", (long long)loser, fate,
          (long long)has, (long long)limit, (long long)most);
}

void queue_begin(void) {
  clear();
}

bool queue_expect(const request_t *request) {
  num_dropped = 0;
  bool enters = may_enter(request, false) && may_enter(request, true);
  if (!enters) return false;
  for (int tokens = 0; tokens < 2; tokens++) {
    while (lacking(request, tokens) > 0) {
      track_t *victim = find_victim(tokens);
      if (!tokens) {
        uint64_t tenant = victim->script->tenant;
        check_law(tenant, amount_of(tenant).requests, "made to make room");
      }
      set_waits(victim, false);
      dropped[num_dropped++] = victim;
    }
  }
  return true;
}

void queue_check_submitted(track_t *track, const request_t *request, int code) {
  const engine_t *e = sim.engine;
  track->sent = request;
  track->number = ++num_submitted;
  /* A loop that is late has not given the slots back of requests that have ended. */
  bool has_slots = e->loop_live < e->num_groups;
  if (code == ERR_QUEUE_FULL && has_slots && lacking(request, true) <= 0) {
    check_law(request->tenant, amount_of(request->tenant).requests + 1, "refused");
  }
  for (int i = 0; i < num_dropped; i++) {
    set_waits(dropped[i], code != 0);
    dropped[i]->dropped = code == 0;
    dropped[i]->dropped_iteration = sim.iteration;
  }
  set_waits(track, code == 0);
  for (int i = 0; i < sim.scenario->count; i++) {
    const track_t *k = &sim.tracks[i];
    if (!k->waits && !(k->dropped && k->dropped_iteration == sim.iteration)) continue;
    REQUIRE(share_is_dropped(e->share, k->sent->slot) == k->dropped, "request %d %s for request %d",
            k->index, k->dropped ? "must make room" : "may not make room", track->index);
  }
}

/* Blocks of the beginning of its prompt that somebody holds who ran at the step before. */
int32_t queue_num_held(const scheduler_t *s, const group_t *waiting) {
  const track_t *wanted = check_track(&waiting->sequence);
  int32_t bs = s->pool->block_size, best = 0;
  int32_t most = MIN((wanted->num_prompt - 1) / bs, s->options.slice_blocks);
  bool matches = s->pool->caching && s->pool->num_sides == 0 && !s->options.has_states &&
                 !scenario_has(sim.scenario, SIM_POOLS) &&
                 waiting->request->params.num_prompt_logprobs < 0;
  if (!matches) return 0;
  for (const group_t *g = s->running.head; g; g = g->next) {
    const track_t *k = check_track(&g->sequence);
    const uint64_t *hash = k->streams[0].hash, *wants = wanted->streams[0].hash;
    for (const sequence_t *q = &g->sequence; check_run(g)->runs && q; q = q->next) {
      int32_t i = 0, end = MIN(MIN(most, k->num_prompt / bs), q->num_blocks);
      for (; i < end && hash[i * bs + bs - 1] == wants[i * bs + bs - 1]; i++) {
        const block_identity_t *id = &s->pool->blocks[q->blocks[i]].identity;
        if (!id->keyed || id->num_valid < bs) break;
      }
      best = MAX(best, i);
    }
  }
  return best;
}

/* Who did not fit lacks no more than it would now, unless it is to be looked at again. */
static void check_told(const scheduler_t *s, const group_t *g) {
  const track_t *k = check_track(&g->sequence);
  int32_t total = DIV_UP(sequence_num_tokens(&g->sequence), s->pool->block_size);
  int32_t held = queue_num_held(s, g), most = total - held + s->options.watermark_blocks;
  bool is_told = !g->unfit.is_known || g->unfit.num_claims != s->num_claims;
  REQUIRE(is_told || held == 0 || check_width(g) > 1 || g->num_preemptions > 0 ||
              g->unfit.num_blocks <= most,
          "I3: request %d is not looked at although it lacks %d blocks and not %d", k->index, most,
          g->unfit.num_blocks);
}

void queue_check_step(const engine_t *e) {
  enum { LOOKED_AT = 3 }; /* groups */
  const scheduler_t *s = e->scheduler;
  size_t ends = (size_t)e->num_live * e->done_bytes_max;
  REQUIRE(mailbox_room(e->mailbox) >= e->step_bytes_max + ends,
          "a step is launched, and its events may find no room");
  const group_t *g = s->waiting.queue.head;
  for (int i = 0; g != NULL && i < LOOKED_AT; i++, g = g->next) check_told(s, g);
}

void queue_check(const engine_t *e) {
  const scheduler_t *s = e->scheduler;
  const group_queue_t *queues[] = {&s->waiting.queue, &s->running, &s->swapped};
  clear();
  for (int i = 0; i < 3; i++) {
    for (const group_t *g = queues[i]->head; g != NULL; g = g->next) {
      track_t *k = check_track(&g->sequence);
      set_waits(k, !k->was_landed);
      REQUIRE(!k->dropped, "request %d is still there after it made room", k->index);
    }
  }
  amount_t all = amount_of_all();
  REQUIRE(all.requests <= sim.scenario->options.max_queue_requests, "%lld requests wait, of %d",
          (long long)all.requests, sim.scenario->options.max_queue_requests);
}
