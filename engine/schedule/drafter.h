/* drafter.h: a small model of the same vocabulary that guesses for the large one.
 *
 * It runs on a device of its own with a KV pool of the same blocks: every step of the large model
 * is repeated by it (mirror), so that its cache holds what the large one's holds, for shared,
 * copied and forked blocks too. Before a step it draws up to `num_drafts` tokens for each sequence
 * that the plan gives lookahead slots, with the sequence's own random stream, so that sampled text
 * is guessed as well as greedy text. Engine thread; allocates in drafter_read and drafter_load
 * only.
 */
#ifndef INFERD_ENGINE_SCHEDULE_DRAFTER_H
#define INFERD_ENGINE_SCHEDULE_DRAFTER_H

#include "engine/device/ops.h"

struct engine;
struct flight;
typedef struct drafter drafter_t;

/* Reads the configuration of options.draft_model_dir and checks that both models speak the same
 * tokens; does nothing when there is none. ERR_CONFIGURATION says what differs. */
int drafter_read(struct engine *engine, error_t *error);
/* For the memory plan: 0 without a drafter. */
size_t drafter_weight_bytes(const struct engine *engine);
size_t drafter_kv_bytes(const struct engine *engine, const kv_cache_desc_t *kv, int32_t num_blocks);
/* Loads it beside the large model, whose pool and limits are given. */
int drafter_load(struct engine *engine, const kv_cache_desc_t *kv, const step_limits_t *limits,
                 error_t *error);
/* Its own host pool: a swapped block of the large model is one of the drafter too. */
int drafter_swap_pool(struct engine *engine, int32_t num_blocks, error_t *error);
void drafter_free(struct engine *engine);

/* The swaps of the plan that was just made, on its own pools. */
void drafter_swap(struct engine *engine);
/* Between plan and batch: draws the guesses of the flight's plan into the sequences' tokens. */
void drafter_guess(struct engine *engine, struct flight *flight);
/* After the large model's step was launched: the same step. */
void drafter_mirror(struct engine *engine, const struct flight *flight);

#endif
