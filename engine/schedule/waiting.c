/* waiting.c: the waiting queue, sorted; the contract is in waiting.h. */
#include "engine/schedule/waiting.h"

#include "engine/base/random.h"
#include "engine/base/util.h"
#include "engine/quota.h"

#include <string.h>

bool waiting_precedes(const waiting_t *waiting, const group_t *left, const group_t *right) {
  if (waiting->priority_policy && left->request->priority != right->request->priority) {
    return left->request->priority < right->request->priority;
  }
  if (left->fair_start != right->fair_start) return left->fair_start < right->fair_start;
  return left->arrival < right->arrival;
}

/* ---- fair shares ---- */

static uint32_t home_of(uint64_t tenant) {
  return (uint32_t)(random_mix(tenant) % FAIR_PLACES);
}

/* Inserts a tenant that is not in the table, which has room for it. */
static void put_tenant(waiting_t *waiting, fair_tenant_t tenant) {
  uint32_t i = home_of(tenant.tenant);
  while (waiting->tenants[i].end != 0) i = (i + 1) % FAIR_PLACES;
  waiting->tenants[i] = tenant;
  waiting->num_tenants++;
}

/* Removes the tenants whose next request may start at once: the table need not know them. */
static void forget_tenants(waiting_t *waiting) {
  fair_tenant_t kept[FAIR_TENANTS_MAX];
  int32_t count = 0;
  for (int32_t i = 0; i < FAIR_PLACES; i++) {
    if (waiting->tenants[i].end > waiting->fair_now) kept[count++] = waiting->tenants[i];
  }
  memset(waiting->tenants, 0, sizeof waiting->tenants);
  waiting->num_tenants = 0;
  for (int32_t i = 0; i < count; i++) put_tenant(waiting, kept[i]);
}

static fair_tenant_t *find_tenant(waiting_t *waiting, uint64_t tenant) {
  for (uint32_t i = home_of(tenant); waiting->tenants[i].end != 0; i = (i + 1) % FAIR_PLACES) {
    if (waiting->tenants[i].tenant == tenant) return &waiting->tenants[i];
  }
  return NULL;
}

/* Start-time fair queueing (Goyal, Vin, Cheng 1996), counted in tokens: a request starts where the
 * previous request of the same tenant ends, but not before the latest start that was admitted. So a
 * tenant with many requests queues behind itself, and a tenant with few requests overtakes it. A
 * tenant that finds the table full is treated as one that was away. */
static void set_fair_start(waiting_t *waiting, group_t *group) {
  const request_t *request = group->request;
  uint64_t tokens = (uint64_t)request->num_prompt_tokens;
  tokens += (uint64_t)request->params.max_tokens * (uint64_t)params_num_sequences(&request->params);
  fair_tenant_t *tenant = find_tenant(waiting, request->tenant);
  group->fair_start = waiting->fair_now;
  if (tenant != NULL && tenant->end > group->fair_start) group->fair_start = tenant->end;
  /* Of a tenant with a weight each token counts for a part of one: weighted fair queueing. */
  uint64_t share = DIV_UP(tokens, quota_weight(request->quota));
  uint64_t end = group->fair_start + share; /* > 0: a prompt has at least one token */
  if (tenant != NULL) {
    tenant->end = end;
    return;
  }
  if (waiting->num_tenants == FAIR_TENANTS_MAX) forget_tenants(waiting);
  if (waiting->num_tenants < FAIR_TENANTS_MAX)
    put_tenant(waiting, (fair_tenant_t){.tenant = request->tenant, .end = end});
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

/* before[l]: the last group of level l that precedes `group`; NULL = none does. Returns the last
 * group of the whole list that does. */
static group_t *find_place(waiting_t *waiting, const group_t *group,
                           group_t *before[WAITING_LEVELS]) {
  group_t *last = NULL;
  for (int32_t level = WAITING_LEVELS - 1; level >= 0; level--) {
    for (group_t *next = next_in(waiting, last, level);
         next != NULL && waiting_precedes(waiting, next, group);
         next = next_in(waiting, last, level)) {
      last = next;
      waiting->num_visited++;
    }
    before[level] = last;
  }
  for (group_t *next = last != NULL ? last->next : waiting->queue.head;
       next != NULL && waiting_precedes(waiting, next, group); next = next->next) {
    last = next;
    waiting->num_visited++;
  }
  return last;
}

void waiting_insert(waiting_t *waiting, group_t *group) {
  group_t *before[WAITING_LEVELS];
  group_t *last = find_place(waiting, group, before);
  queue_insert_before(&waiting->queue, last != NULL ? last->next : waiting->queue.head, group);
  for (int32_t level = 0, levels = num_levels(group); level < levels; level++) {
    group->skip[level] = next_in(waiting, before[level], level);
    set_next(waiting, before[level], level, group);
  }
}

void waiting_remove(waiting_t *waiting, group_t *group) {
  group_t *before[WAITING_LEVELS];
  int32_t levels = num_levels(group);
  if (levels > 0) find_place(waiting, group, before);
  for (int32_t level = 0; level < levels; level++)
    set_next(waiting, before[level], level, group->skip[level]);
  queue_remove(&waiting->queue, group);
}

/* ---- arrivals ---- */

void waiting_add(waiting_t *waiting, group_t *group) {
  if (waiting->fair_share) set_fair_start(waiting, group);
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

void waiting_forget(waiting_t *waiting, group_t *group) {
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

void waiting_admitted(waiting_t *waiting, group_t *group) {
  waiting_forget(waiting, group);
  if (group->fair_start > waiting->fair_now) waiting->fair_now = group->fair_start;
}
