/* waiting.c: the waiting queue, sorted; the contract is in waiting.h. */
#include "engine/schedule/waiting.h"

#include "engine/base/random.h"
#include "engine/base/util.h"
#include "engine/quota.h"

static bool stands_before(const waiting_t *waiting, const group_t *left, const group_t *right) {
  if (left->tenant != right->tenant) return left->tenant < right->tenant;
  return tenants_precedes(&waiting->tenants, left, right);
}

/* ---- the skip list ---- */

/* Level l + 1 holds a quarter of the groups of level l; all groups are in the list itself, below
 * level 0. */
static int32_t num_levels(const group_t *group) {
  uint64_t bits = random_mix(group->arrival);
  int32_t levels = 0;
  for (; levels < WAITING_LEVELS && (bits & 3) == 0; bits >>= 2) levels++;
  return levels;
}

static group_t *next_in(const waiting_t *waiting, const group_t *group, int32_t level) {
  return group != NULL ? group->skip[level] : waiting->first[level];
}

static void set_next(waiting_t *waiting, group_t *group, int32_t level, group_t *next) {
  if (group != NULL) {
    group->skip[level] = next;
  } else {
    waiting->first[level] = next;
  }
}

/* before[l]: the last group of level l that stands before `group`; NULL = none does. Returns the
 * last group of the whole list that does. */
static group_t *find_place(waiting_t *waiting, const group_t *group,
                           group_t *before[WAITING_LEVELS]) {
  group_t *last = NULL;
  for (int32_t level = WAITING_LEVELS - 1; level >= 0; level--) {
    for (group_t *next = next_in(waiting, last, level);
         next != NULL && stands_before(waiting, next, group);
         next = next_in(waiting, last, level)) {
      last = next;
      waiting->num_visited++;
    }
    before[level] = last;
  }
  for (group_t *next = last != NULL ? last->next : waiting->queue.head;
       next != NULL && stands_before(waiting, next, group); next = next->next) {
    last = next;
    waiting->num_visited++;
  }
  return last;
}

/* The group behind this one, if it is of the same tenant. */
static group_t *next_of_tenant(const group_t *group) {
  return group->next != NULL && group->next->tenant == group->tenant ? group->next : NULL;
}

void waiting_insert(waiting_t *waiting, group_t *group) {
  group_t *before[WAITING_LEVELS];
  group_t *last = find_place(waiting, group, before);
  queue_insert_before(&waiting->queue, last != NULL ? last->next : waiting->queue.head, group);
  for (int32_t level = 0, levels = num_levels(group); level < levels; level++) {
    group->skip[level] = next_in(waiting, before[level], level);
    set_next(waiting, before[level], level, group);
  }
  tenant_t *tenant = waiting_tenant(waiting, group);
  tenant->num_waiting++;
  waiting->num_held += tenant->held;
  if (tenant->first == NULL) waiting->weights += tenant->weight;
  if (tenant->first == NULL || stands_before(waiting, group, tenant->first)) tenant->first = group;
  tenants_update(&waiting->tenants, tenant);
}

void waiting_remove(waiting_t *waiting, group_t *group) {
  group_t *before[WAITING_LEVELS];
  int32_t levels = num_levels(group);
  if (levels > 0) find_place(waiting, group, before);
  for (int32_t level = 0; level < levels; level++)
    set_next(waiting, before[level], level, group->skip[level]);
  tenant_t *tenant = waiting_tenant(waiting, group);
  tenant->num_waiting--;
  waiting->num_held -= tenant->held;
  if (tenant->first == group) tenant->first = next_of_tenant(group);
  if (tenant->first == NULL) waiting->weights -= tenant->weight;
  if (tenant->walked && tenant->offered == group) tenant->offered = next_of_tenant(group);
  if (waiting->current == group) waiting->current = NULL;
  queue_remove(&waiting->queue, group);
  tenants_update(&waiting->tenants, tenant);
}

/* ---- a walk ---- */

static void mark_walked(waiting_t *waiting, tenant_t *tenant) {
  if (tenant->walked) return;
  tenant->walked = true;
  tenant->num_looked = 0;
  tenant->offered = tenant->first;
  tenant->next_walked = waiting->walked;
  waiting->walked = 1 + (int32_t)(tenant - waiting->tenants.all);
}

group_t *waiting_first(waiting_t *waiting) {
  waiting->current = NULL;
  return waiting_next(waiting);
}

group_t *waiting_next(waiting_t *waiting) {
  if (waiting->current != NULL) { /* it stays: its tenant offers the next one */
    tenant_t *tenant = waiting_tenant(waiting, waiting->current);
    tenant->offered = next_of_tenant(waiting->current);
    tenants_update(&waiting->tenants, tenant);
  }
  tenant_t *next = tenants_next(&waiting->tenants);
  waiting->current = NULL;
  if (next == NULL) return NULL;
  mark_walked(waiting, next);
  waiting->current = next->offered;
  return next->offered;
}

void waiting_stop(waiting_t *waiting) {
  waiting->current = NULL;
  while (waiting->walked != 0) {
    tenant_t *tenant = &waiting->tenants.all[waiting->walked - 1];
    waiting->walked = tenant->next_walked;
    tenant->walked = false;
    tenants_update(&waiting->tenants, tenant);
  }
}

static void set_held(waiting_t *waiting, tenant_t *tenant, bool held) {
  if (held != tenant->held) waiting->num_held += held ? tenant->num_waiting : -tenant->num_waiting;
  tenant->held = held;
}

void waiting_leave_out(waiting_t *waiting, const group_t *group) {
  tenant_t *tenant = waiting_tenant(waiting, group);
  tenant->offered = NULL;
  waiting->current = NULL;
  tenants_update(&waiting->tenants, tenant);
}

void waiting_hold(waiting_t *waiting, const group_t *group) {
  tenant_t *tenant = waiting_tenant(waiting, group);
  set_held(waiting, tenant, group == tenant->first);
  waiting_leave_out(waiting, group);
}

void waiting_release(waiting_t *waiting, const group_t *group) {
  tenant_t *tenant = waiting_tenant(waiting, group);
  if (!tenant->held) return;
  set_held(waiting, tenant, false);
  tenants_update(&waiting->tenants, tenant);
}

/* ---- fair shares ---- */

void waiting_charge(waiting_t *waiting, const group_t *group, int32_t num_tokens) {
  if (!waiting->fair_share || num_tokens == 0) return;
  tenant_t *tenant = waiting_tenant(waiting, group);
  tenant->served += (uint64_t)((int64_t)num_tokens * (SERVED_TOKEN / (int64_t)tenant->weight));
  if (tenant->place != 0) tenants_update(&waiting->tenants, tenant);
}

static void lift(waiting_t *waiting, tenant_t *tenant) {
  const tenant_t *next = tenants_next(&waiting->tenants);
  uint64_t least = next != NULL ? next->served - next->served % MAX(waiting->tenants.span, 1)
                                : waiting->tenants.most_served;
  if (tenant->served < least) tenant->served = least;
}

/* ---- arrivals ---- */

static void count(waiting_t *waiting, const group_t *group, int32_t sign) {
  waiting->num_groups += sign;
  waiting->num_best_effort += sign * group->best_effort;
}

void waiting_add(waiting_t *waiting, group_t *group) {
  count(waiting, group, 1);
  group->tenant = tenants_take(&waiting->tenants, group->request->tenant);
  tenant_t *tenant = waiting_tenant(waiting, group);
  uint32_t weight = group->tenant != 0 ? quota_weight(group->request->quota) : 1;
  if (tenant->first != NULL) waiting->weights += (int64_t)weight - tenant->weight;
  tenant->weight = weight;
  if (waiting->fair_share && tenant->first == NULL) lift(waiting, tenant);
  waiting_insert(waiting, group);
  group->is_new = true;
  group->older = waiting->newest;
  if (waiting->newest != NULL) {
    waiting->newest->newer = group;
  } else {
    waiting->oldest = group;
  }
  waiting->newest = group;
}

void waiting_add_choice(waiting_t *waiting, group_t *group) {
  count(waiting, group, 1);
  group->tenant = tenants_take(&waiting->tenants, group->request->tenant);
  waiting_insert(waiting, group);
  tenant_t *tenant = waiting_tenant(waiting, group);
  bool comes_next = tenant->offered == NULL || stands_before(waiting, group, tenant->offered);
  if (!tenant->walked || !comes_next) return;
  tenant->offered = group;
  tenants_update(&waiting->tenants, tenant);
}

void waiting_begun(waiting_t *waiting, group_t *group) {
  if (!group->is_new) return;
  group->is_new = false;
  if (group->older != NULL) {
    group->older->newer = group->newer;
  } else {
    waiting->oldest = group->newer;
  }
  if (group->newer != NULL) {
    group->newer->older = group->older;
  } else {
    waiting->newest = group->older;
  }
  group->older = group->newer = NULL;
}

void waiting_end(waiting_t *waiting, group_t *group) {
  waiting_begun(waiting, group);
  waiting_release(waiting, group);
  count(waiting, group, -1);
  tenants_give(&waiting->tenants, group->tenant);
}
