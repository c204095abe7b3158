/* shares.c: what each client has of sequences and blocks, and its share; the contract is in plan.h.
 *
 * The share of a tenant is its weight's part of max_num_seqs sequences, at least one, and of all
 * blocks, among the tenants that run or wait now. Engine thread only; allocates nothing.
 */
#include "engine/base/util.h"
#include "engine/schedule/plan.h"

int32_t shares_blocks(const scheduler_t *scheduler, const group_t *group) {
  int32_t count = 0;
  for (const sequence_t *seq = &group->sequence; seq != NULL; seq = seq->next) {
    if (!sequence_is_live(seq)) continue;
    count += MAX(seq->num_blocks, seq->slices.total) +
             (seq->sides.end - seq->sides.first) * scheduler->pool->num_sides;
  }
  return count;
}

/* Counts made before are those of another plan: they are 0 now. */
tenant_t *shares_counted(scheduler_t *scheduler, const group_t *group) {
  tenant_t *tenant = waiting_tenant(&scheduler->waiting, group);
  if (tenant->counted_in == scheduler->num_counts) return tenant;
  tenant->counted_in = scheduler->num_counts;
  tenant->num_running = tenant->num_blocks = 0;
  return tenant;
}

void plan_count_group(scheduler_t *scheduler, const group_t *group, int32_t sign) {
  tenant_t *tenant = shares_counted(scheduler, group);
  tenant->num_running += sign * group->width;
  tenant->num_blocks += sign * shares_blocks(scheduler, group);
}

int32_t plan_count_of(scheduler_t *scheduler, const group_t *group) {
  return shares_counted(scheduler, group)->num_running;
}

int32_t plan_count_tenants(scheduler_t *scheduler) {
  int32_t count = 0;
  scheduler->num_counts++;
  scheduler->weights = scheduler->waiting.weights;
  for (const group_t *group = scheduler->running.head; group != NULL; group = group->next) {
    const tenant_t *tenant = waiting_tenant(&scheduler->waiting, group);
    bool known = tenant->counted_in == scheduler->num_counts || tenant->first != NULL;
    if (!known) scheduler->weights += tenant->weight; /* those that wait are counted already */
    plan_count_group(scheduler, group, 1);
    count += group->width;
  }
  return count;
}

/* The share of a tenant, times the weights of all, so that it is a whole number. */
static int64_t share_of(const scheduler_t *scheduler, const tenant_t *tenant, int64_t limit) {
  return MAX(limit * tenant->weight, scheduler->weights);
}

int64_t shares_excess(const scheduler_t *scheduler, const tenant_t *tenant, bool blocks) {
  int64_t limit = blocks ? scheduler->pool->num_blocks - 1 : scheduler->options.max_num_seqs;
  int64_t has = blocks ? tenant->num_blocks : tenant->num_running;
  return has * scheduler->weights - share_of(scheduler, tenant, limit);
}

bool plan_blocks_beyond(scheduler_t *scheduler, const group_t *group) {
  tenant_t with = *shares_counted(scheduler, group);
  with.num_blocks += plan_blocks_wanted(scheduler, group);
  return shares_excess(scheduler, &with, true) > 0;
}

bool plan_is_entitled(scheduler_t *scheduler, const group_t *group, bool blocks) {
  tenant_t with = *shares_counted(scheduler, group);
  with.num_running += group->width;
  return shares_excess(scheduler, &with, false) <= 0 &&
         (!blocks || !plan_blocks_beyond(scheduler, group));
}
