/* tenants.c: clients, what they were served, and whose turn it is; the contract is in tenants.h. */
#include "engine/schedule/tenants.h"

#include "engine/base/check.h"
#include "engine/base/random.h"
#include "engine/base/util.h"

/* ---- the table ---- */

static int32_t *bucket_of(tenants_t *tenants, uint64_t name) {
  return &tenants->buckets[random_mix(name) % ARRAY_LEN(tenants->buckets)];
}

static int32_t find(tenants_t *tenants, uint64_t name) {
  int32_t index = *bucket_of(tenants, name);
  while (index != 0 && tenants->all[index].name != name) index = tenants->all[index].chain;
  return index;
}

/* Takes a tenant without groups from the list of these. */
static void unlist(tenants_t *tenants, const tenant_t *tenant) {
  *(tenant->older != 0 ? &tenants->all[tenant->older].newer : &tenants->oldest_idle) =
      tenant->newer;
  *(tenant->newer != 0 ? &tenants->all[tenant->newer].older : &tenants->newest_idle) =
      tenant->older;
}

/* A place for a new tenant: an unused one, else that of the tenant which has had no group for the
 * longest time; 0 = every tenant has one. */
static int32_t free_place(tenants_t *tenants) {
  if (tenants->num_used < TENANTS_MAX) return ++tenants->num_used;
  int32_t index = tenants->oldest_idle;
  if (index == 0) return 0;
  unlist(tenants, &tenants->all[index]);
  int32_t *link = bucket_of(tenants, tenants->all[index].name);
  while (*link != index) link = &tenants->all[*link].chain;
  *link = tenants->all[index].chain;
  return index;
}

int32_t tenants_take(tenants_t *tenants, uint64_t name) {
  int32_t index = find(tenants, name);
  if (index != 0) {
    if (tenants->all[index].num_groups == 0) unlist(tenants, &tenants->all[index]);
  } else if ((index = free_place(tenants)) != 0) {
    int32_t *bucket = bucket_of(tenants, name);
    tenants->all[index] = (tenant_t){.name = name, .chain = *bucket};
    *bucket = index;
  }
  tenants->all[index].num_groups++;
  return index;
}

void tenants_give(tenants_t *tenants, int32_t index) {
  tenant_t *tenant = &tenants->all[index];
  CHECK_GT(tenant->num_groups, 0);
  if (--tenant->num_groups > 0 || index == 0) return;
  tenant->older = tenants->newest_idle;
  tenant->newer = 0;
  *(tenant->older != 0 ? &tenants->all[tenant->older].newer : &tenants->oldest_idle) = index;
  tenants->newest_idle = index;
}

/* ---- the heap ---- */

/* The group that the tenant offers; NULL = none. */
static group_t *offer_of(const tenant_t *tenant) {
  if (tenant->held) return NULL;
  return tenant->walked ? tenant->offered : tenant->first;
}

bool tenants_precedes(const tenants_t *tenants, const group_t *left, const group_t *right) {
  if (left->best_effort != right->best_effort) return !left->best_effort;
  if (tenants->priority_policy && left->request->priority != right->request->priority)
    return left->request->priority < right->request->priority;
  if (left->key != right->key) return left->key < right->key;
  return left->arrival < right->arrival;
}

static uint64_t span_of(const tenants_t *tenants, const tenant_t *tenant) {
  return tenant->served / MAX(tenants->span, 1);
}

static bool precedes(const tenants_t *tenants, const tenant_t *left, const tenant_t *right) {
  const group_t *one = offer_of(left), *other = offer_of(right);
  if (one->best_effort != other->best_effort) return !one->best_effort;
  if (tenants->priority_policy && one->request->priority != other->request->priority)
    return one->request->priority < other->request->priority;
  uint64_t one_span = span_of(tenants, left), other_span = span_of(tenants, right);
  if (one_span != other_span) return one_span < other_span;
  return tenants_precedes(tenants, one, other);
}

static bool precedes_at(const tenants_t *tenants, int32_t left, int32_t right) {
  return precedes(tenants, &tenants->all[tenants->heap[left]], &tenants->all[tenants->heap[right]]);
}

static void set_place(tenants_t *tenants, int32_t at, int32_t index) {
  tenants->heap[at] = index;
  tenants->all[index].place = 1 + at;
}

static void swap_places(tenants_t *tenants, int32_t at, int32_t other) {
  int32_t index = tenants->heap[at];
  set_place(tenants, at, tenants->heap[other]);
  set_place(tenants, other, index);
}

static void settle(tenants_t *tenants, int32_t at) {
  for (; at > 0 && precedes_at(tenants, at, (at - 1) / 2); at = (at - 1) / 2)
    swap_places(tenants, at, (at - 1) / 2);
  for (int32_t child; (child = 2 * at + 1) < tenants->num_offers; at = child) {
    if (child + 1 < tenants->num_offers && precedes_at(tenants, child + 1, child)) child++;
    if (!precedes_at(tenants, child, at)) return;
    swap_places(tenants, at, child);
  }
}

static void set_lower(tenants_t *tenants, tenant_t *tenant, bool is_lower) {
  tenants->num_lower += is_lower - tenant->is_lower;
  tenant->is_lower = is_lower;
}

/* The tenant offers nothing now, so it must not be compared any more. */
static void leave(tenants_t *tenants, tenant_t *tenant) {
  int32_t at = tenant->place - 1, last = --tenants->num_offers;
  tenant->place = 0;
  set_lower(tenants, tenant, false);
  if (at == last) return;
  set_place(tenants, at, tenants->heap[last]);
  settle(tenants, at);
}

void tenants_update(tenants_t *tenants, tenant_t *tenant) {
  if (offer_of(tenant) == NULL) {
    if (tenant->place != 0) leave(tenants, tenant);
    return;
  }
  if (tenant->place == 0)
    set_place(tenants, tenants->num_offers++, (int32_t)(tenant - tenants->all));
  set_lower(tenants, tenant, offer_of(tenant)->best_effort);
  settle(tenants, tenant->place - 1);
}

tenant_t *tenants_next(tenants_t *tenants) {
  return tenants->num_offers > 0 ? &tenants->all[tenants->heap[0]] : NULL;
}
