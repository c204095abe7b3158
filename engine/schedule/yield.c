/* yield.c: a client that runs less than its share gets room at once; the contract is in plan.h.
 *
 * 1. The share of a tenant is its weight's part of what all have (shares.c).
 * 2. Who receives room has no more than its share with it.
 * 3. First those give room who keep their share without it: groups of the tenant that is most above
 *    its share, the youngest first. They cannot take it back until others come or end.
 * 4. If none of these is left, the tenant that is most above its share gives a group that is more
 *    than what it has too much: beams, a sequence of many blocks, maybe all it has.
 * 5. Who gives has got a token since it gave before, so it ends although others come all the time;
 *    and it was not let in by this very plan.
 * 6. Either all of them suffice or nobody gives.
 * 7. Nobody gives whose token is awaited before it can go on (masks, drafts, beams). If all would
 *    suffice with those, they all pause for the steps that are in flight, and give then.
 *
 * 8. Groups by best effort have no share beside others: they give first, to whoever lacks room, and
 *    take from their like alone.
 *
 * What is computed twice is bounded by the tenants and requests that come. Engine thread only;
 * allocates nothing.
 */
#include "engine/base/util.h"
#include "engine/schedule/plan.h"
#include "engine/schedule/window/sides.h"

enum {
  YIELDS_MAX = 256,     /* groups that one admission may preempt */
  PAUSE_PLANS_MIN = 4,  /* from one pause to the next, at least */
  WEIGHED_MAX = 1 << 18 /* looks at running groups in one plan, whoever waits */
};

static int32_t count_output(const group_t *group) {
  int32_t most = 0;
  for (const sequence_t *seq = &group->sequence; seq != NULL; seq = seq->next)
    most = MAX(most, seq->num_output_tokens);
  return most;
}

/* Whether the group has got a token since it made room last, so that it ends although others come
 * all the time. */
static bool has_got_on(const group_t *group) {
  return group->yield.count == 0 || group->max_tokens == 0 ||
         count_output(group) > group->yield.num_output;
}

/* By which of the two a tenant is above its share; whether those may be chosen whose token is
 * awaited; and whether only those by best effort may. */
typedef struct preference {
  bool blocks, awaited, best_effort;
} preference_t;

/* Whether the plan may weigh all running groups once more: how often it does is up to those who
 * wait. */
static bool may_weigh(scheduler_t *scheduler) {
  if (scheduler->weighed_in != scheduler->num_plans) scheduler->num_weighed = 0;
  scheduler->weighed_in = scheduler->num_plans;
  scheduler->num_weighed += scheduler->running.count;
  return scheduler->num_weighed <= WEIGHED_MAX;
}

/* Whether the group can make room for the requester, whatever the shares. */
static bool may_give(const scheduler_t *scheduler, const group_t *group, const group_t *requester,
                     preference_t by) {
  const bool is_lower = group->best_effort && !requester->best_effort;
  if (group->yield.is_chosen || (scheduler_awaits(group) && !by.awaited) ||
      group->yield.let_in == scheduler->num_plans)
    return false;
  if (is_lower) return true;
  return !by.best_effort && group->best_effort == requester->best_effort &&
         group->tenant != requester->tenant && has_got_on(group) &&
         !(scheduler->options.priority_policy &&
           group->request->priority < requester->request->priority);
}

/* The youngest group by best effort, if the requester is none; else the youngest, by admission, of
 * the tenant that is most above its share: one without which that tenant keeps it, or (below) any.
 */
static group_t *choose(scheduler_t *scheduler, const group_t *requester, preference_t by,
                       bool below) {
  group_t *chosen = NULL;
  const bool blocks = by.blocks;
  int64_t most = below ? 0 : -1;
  if (!may_weigh(scheduler)) return NULL;
  for (group_t *group = scheduler->running.tail; group != NULL; group = group->prev) {
    if (!may_give(scheduler, group, requester, by)) continue;
    if (group->best_effort && !requester->best_effort) return group;
    int64_t excess = shares_excess(scheduler, shares_counted(scheduler, group), blocks);
    int64_t loses = blocks ? shares_blocks(scheduler, group) : group->width;
    if (excess <= most || (!below && excess < loses * scheduler->weights)) continue;
    chosen = group;
    most = excess;
  }
  return chosen;
}

/* Blocks that become free if the group leaves, and those with it whose blocks were counted before:
 * those that nobody else holds. */
static int32_t count_freed(const scheduler_t *scheduler, const group_t *group) {
  int32_t count = 0;
  for (const sequence_t *seq = &group->sequence; seq != NULL; seq = seq->next) {
    count += seq->slices.promised;
    for (int32_t i = 0; sequence_is_live(seq) && i < seq->num_blocks; i++) {
      block_t *block = &scheduler->pool->blocks[seq->blocks[i]];
      count += ++block->mark == block->ref_count && block->pins == 0;
    }
    count += sides_count_freed(scheduler, seq);
  }
  return count;
}

static void forget_freed(const scheduler_t *scheduler, const group_t *group) {
  for (const sequence_t *seq = &group->sequence; seq != NULL; seq = seq->next) {
    for (int32_t i = 0; sequence_is_live(seq) && i < seq->num_blocks; i++)
      scheduler->pool->blocks[seq->blocks[i]].mark = 0;
    sides_forget_freed(scheduler, seq);
  }
}

/* Those who give, in the order in which they were chosen. */
typedef struct givers {
  int32_t count;
  group_t *all[YIELDS_MAX];
} givers_t;

/* Chooses those who give what is lacking. Their counts are without them then. Returns whether they
 * suffice. */
static bool choose_all(scheduler_t *scheduler, const group_t *group, lack_t lack, preference_t by,
                       givers_t *givers) {
  givers->count = 0;
  while (lack.num_seqs > 0 || lack.num_blocks > 0) {
    by.blocks = lack.num_seqs <= 0;
    group_t *giver = givers->count < YIELDS_MAX ? choose(scheduler, group, by, false) : NULL;
    if (giver == NULL && givers->count < YIELDS_MAX) giver = choose(scheduler, group, by, true);
    if (giver == NULL) break;
    lack.num_seqs -= giver->width;
    lack.num_blocks -= count_freed(scheduler, giver);
    plan_count_group(scheduler, giver, -1);
    giver->yield.is_chosen = true;
    givers->all[givers->count++] = giver;
  }
  for (int32_t i = 0; i < givers->count; i++) forget_freed(scheduler, givers->all[i]);
  for (int32_t i = 0; i < givers->count; i++) givers->all[i]->yield.is_chosen = false;
  return lack.num_seqs <= 0 && lack.num_blocks <= 0;
}

static void keep_all(scheduler_t *scheduler, const givers_t *givers) {
  for (int32_t i = 0; i < givers->count; i++) plan_count_group(scheduler, givers->all[i], 1);
}

static void give(scheduler_t *scheduler, group_t *group) {
  group->yield.num_output = count_output(group);
  plan_preempt(scheduler, group, false);
  group->yield.count++;
  group->yield.plan = scheduler->num_plans;
  scheduler->num_yields++;
}

bool plan_has_pause(const scheduler_t *scheduler) {
  const uint64_t steps = (uint64_t)MAX(scheduler->options.num_stages, 2); /* in flight */
  return scheduler->pause != 0 && scheduler->num_plans - scheduler->pause <= steps;
}

bool plan_pauses(const scheduler_t *scheduler, const group_t *group) {
  return group->yield.pause != 0 && group->yield.pause == scheduler->pause &&
         plan_has_pause(scheduler);
}

bool plan_ends_pause(scheduler_t *scheduler) {
  bool any = false, in_flight = false;
  for (group_t *group = scheduler->running.head; group != NULL; group = group->next) {
    any = any || plan_pauses(scheduler, group);
    in_flight = in_flight || plan_is_in_flight(group);
  }
  if (!any || in_flight) return false;
  for (group_t *group = scheduler->running.head; group != NULL; group = group->next)
    group->yield.pause = 0;
  return true;
}

static bool any_awaits(const scheduler_t *scheduler) {
  for (const group_t *group = scheduler->running.head; group != NULL; group = group->next)
    if (scheduler_awaits(group)) return true;
  return false;
}

/* Lets all pause who would give together, if some of them cannot give now. */
static void begin_pause(scheduler_t *scheduler, const group_t *group, lack_t lack,
                        preference_t by) {
  givers_t givers;
  if (!any_awaits(scheduler)) return;
  if (scheduler->pause != 0 && scheduler->num_plans - scheduler->pause < PAUSE_PLANS_MIN) return;
  by.awaited = true;
  if (choose_all(scheduler, group, lack, by, &givers)) {
    scheduler->pause = scheduler->num_plans;
    for (int32_t i = 0; i < givers.count; i++) givers.all[i]->yield.pause = scheduler->pause;
  }
  keep_all(scheduler, &givers);
}

bool plan_make_way(scheduler_t *scheduler, group_t *group, lack_t lack) {
  givers_t givers;
  const preference_t by = {.best_effort = !plan_is_entitled(scheduler, group, lack.num_blocks > 0)};
  if (by.best_effort && (group->best_effort || scheduler->waiting.num_best_effort == 0))
    return false;
  if (choose_all(scheduler, group, lack, by, &givers)) {
    for (int32_t i = 0; i < givers.count; i++) give(scheduler, givers.all[i]);
    return true;
  }
  keep_all(scheduler, &givers);
  begin_pause(scheduler, group, lack, by);
  return false;
}
