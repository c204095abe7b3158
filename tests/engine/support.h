/* support.h: requests and schedulers for the tests of the engine's core, without model or server.
 */
#ifndef INFERD_TESTS_ENGINE_SUPPORT_H
#define INFERD_TESTS_ENGINE_SUPPORT_H

#include "engine/device/batch.h"
#include "engine/schedule/scheduler.h"

enum { SUPPORT_GROUPS = 64, SUPPORT_TOKENS = 4096 };

/* A scheduler, its pool and a batch; groups are taken from a small array. */
typedef struct rig {
  block_pool_t *pool;
  scheduler_t *scheduler;
  batch_t *batch;
  request_t requests[SUPPORT_GROUPS];
  group_t groups[SUPPORT_GROUPS];
  int32_t ids[SUPPORT_GROUPS][SUPPORT_TOKENS];
  int count;
} rig_t;

scheduler_options_t rig_options(int32_t max_num_seqs, int32_t budget, int32_t max_model_len);
rig_t *rig_new(const scheduler_options_t *options, int32_t num_blocks, int32_t block_size,
               bool caching);
void rig_free(rig_t *rig);
/* Adds a waiting group whose prompt ids are seed * 1000 + position. */
group_t *rig_add(rig_t *rig, int32_t prompt_tokens, int32_t max_tokens, int32_t seed);
group_t *rig_add_several(rig_t *rig, int32_t prompt_tokens, int32_t max_tokens, int32_t seed,
                         int32_t n);
/* Plans and builds the batch; returns the number of rows. */
int32_t rig_step(rig_t *rig);
/* What the engine does after a forward: publishes, forks, and appends `id` + its index to every
 * sequence that draws. */
void rig_commit(rig_t *rig, int32_t id);

#endif
