/* kv_plan.h: how the layers of a model share the blocks of the K/V pool, and how long a context the
 * pool holds. Engine thread, at start.
 */
#ifndef INFERD_ENGINE_SCHEDULE_WINDOW_KV_PLAN_H
#define INFERD_ENGINE_SCHEDULE_WINDOW_KV_PLAN_H

#include "engine/device/op_types.h"

#include "engine/base/error.h"

#include <stddef.h>

struct engine;

/* Layers with a window get blocks of their own (blueprint.window_groups), if the back end knows
 * such groups and a context of max_model_len tokens goes beyond the window. Returns NULL, or for
 * the log what prevents it: then all layers share their blocks, and each block is kept. A draft
 * model has K/V in blocks of the same numbers, the scales of an fp8 cache go by the layers of a
 * block, and swapping knows one block table. */
const char *kv_choose_groups(struct engine *engine, int32_t max_model_len);

/* Sequences of num_tokens tokens that the pool holds while they decode. */
double kv_concurrency(const struct engine *engine, const kv_cache_desc_t *kv, int32_t num_tokens);

/* Upper limit of the blocks if no KV size was requested: enough for max_num_seqs sequences of full
 * context; on a host at most 131,072 tokens or, if that is more, two contexts. */
size_t kv_blocks_useful(const struct engine *engine, const kv_cache_desc_t *kv,
                        int32_t max_model_len, int32_t in_flight);
/* A sequence that runs alone must always be able to finish: the pool must hold a
 * context of *max_model_len, beside the null block and a spare one. Lowers *max_model_len if it was
 * not requested, else fails. */
int kv_fit_context(const struct engine *engine, const kv_cache_desc_t *kv, int32_t in_flight,
                   int32_t *max_model_len, inferd_error_t *error);
/* A line for the log, if there are window groups. */
void kv_say_windows(const struct engine *engine, const kv_cache_desc_t *kv, int32_t max_model_len);
/* A line for the log: which scales an fp8 cache has. `scales` NULL = none of its own. */
void kv_say_scales(const struct engine *engine, const float *scales, int32_t count);

#endif
