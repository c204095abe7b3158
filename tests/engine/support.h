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
  uint64_t now_ns; /* of the plans; 1 at first */
} rig_t;

scheduler_options_t rig_options(int32_t max_num_seqs, int32_t budget, int32_t max_model_len);
rig_t *rig_new(const scheduler_options_t *options, int32_t num_blocks, int32_t block_size,
               bool caching);
void rig_free(rig_t *rig);
/* Adds a waiting group whose prompt ids are seed * 1000 + position. */
group_t *rig_add(rig_t *rig, int32_t prompt_tokens, int32_t max_tokens, int32_t seed);
/* The same of n beams, in one group. */
group_t *rig_add_several(rig_t *rig, int32_t prompt_tokens, int32_t max_tokens, int32_t seed,
                         int32_t n);
/* The same of n independent choices: the group of the first. */
group_t *rig_add_choices(rig_t *rig, int32_t prompt_tokens, int32_t max_tokens, int32_t seed,
                         int32_t n);
/* The group of a choice that has begun, and has not ended; NULL = none. */
group_t *rig_choice(group_t *lead, int32_t index);
/* Ends one of several beams. */
void rig_end_sequence(rig_t *rig, sequence_t *seq, sequence_status_t status);
/* Plans and builds the batch; returns the number of rows. */
int32_t rig_step(rig_t *rig);
/* What the engine does after a forward: publishes, forks beams, appends `id` + its index to every
 * sequence that draws, and begins the choices behind one that has its first token. */
void rig_commit(rig_t *rig, int32_t id);

/* ---- comparisons that print what was there and what was expected ---- */

typedef struct expected_chunk {
  const char *name;
  const group_t *group;
  int32_t num_tokens;
} expected_chunk_t;

/* Tokens that the plan computes of the group's first sequence. */
int32_t rig_chunk(const rig_t *rig, const group_t *group);
/* NULL, or "plan is a 12, b 4; expected a 10, b 6". The text is valid until the next call. */
const char *plan_difference(const rig_t *rig, const expected_chunk_t *expected, int count);
/* NULL, or where the ids differ first and what stands there. */
const char *ids_difference(const int32_t *got, const int32_t *expected, int32_t count);

/* ASSERT_PLAN(rig, CHUNK(a, 10), CHUNK(b, 6)): what the plan computes of these groups. */
#define CHUNK(group, num_tokens)                                                                   \
  { #group, group, num_tokens }
#define ASSERT_PLAN(rig, ...)                                                                      \
  do {                                                                                             \
    const expected_chunk_t chunks[] = {__VA_ARGS__};                                               \
    ASSERT_SAME(plan_difference(rig, chunks, (int)(sizeof chunks / sizeof *chunks)));              \
  } while (false)
#define ASSERT_IDS_EQ(got, expected, count) ASSERT_SAME(ids_difference(got, expected, count))
#define ASSERT_SAME(difference)                                                                    \
  do {                                                                                             \
    const char *const found = (difference);                                                        \
    if (found != NULL) cr_assert_fail("%s", found);                                                \
  } while (false)

#endif
