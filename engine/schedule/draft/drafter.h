/* drafter.h: the draft model: a small model with the same vocabulary that makes draft tokens.
 *
 * The draft model runs on a device of its own, with a KV pool of the same block numbers. It repeats
 * every step of the large model (drafter_mirror), so its KV cache covers the same tokens, also in
 * shared, copied and forked blocks. Before a step it draws up to `num_drafts` tokens for each
 * sequence that has lookahead slots in the plan. It uses the random stream of the sequence, so
 * drafts fit sampled text as well as greedy text. Engine thread; allocates in drafter_read,
 * drafter_load and drafter_swap_pool only. Every function does nothing if no draft model is set.
 * If options.draft_model_dir has a head of EAGLE-3 it is loaded here, and predict.h runs it.
 */
#ifndef INFERD_ENGINE_SCHEDULE_DRAFTER_H
#define INFERD_ENGINE_SCHEDULE_DRAFTER_H

#include "engine/device/ops.h"

struct engine;
struct step;
struct plan_entry;
struct model;
typedef struct drafter drafter_t;

/* Reads the configuration in options.draft_model_dir and checks that both models have the same
 * tokens, and that the device runs it; logs what drafts may change. Returns 0, ERR_CONFIGURATION
 * (the message says what differs), ERR_NO_MEMORY, or an error of tokenizer_load or blueprint_read.
 */
int drafter_read(struct engine *engine, inferd_error_t *error);
/* Bytes of the weights (*out; returns 0 or the errors of model_weight_bytes), of the work of steps
 * within the limits of the large model, and of a KV pool of num_blocks blocks, for the memory plan;
 * 0 without a draft model. */
int drafter_weight_bytes(const struct engine *engine, size_t *out, inferd_error_t *error);
size_t drafter_workspace_bytes(const struct engine *engine, const step_limits_t *limits);
size_t drafter_kv_bytes(const struct engine *engine, const kv_cache_desc_t *kv, int32_t num_blocks);
/* Opens the device and loads the weights. `kv` and `limits` are those of the large model. Returns
 * 0, ERR_CONFIGURATION if the draft model's context is too short, ERR_NO_MEMORY, or an error of the
 * device or of model_load. */
int drafter_load(struct engine *engine, const kv_cache_desc_t *kv, const step_limits_t *limits,
                 inferd_error_t *error);
/* Makes the host pool of the draft model: a swap moves the blocks of both models. Returns 0 or an
 * error of the device. */
int drafter_swap_pool(struct engine *engine, int32_t num_blocks, inferd_error_t *error);
void drafter_free(struct engine *engine);

/* Whether a head is there in the place of a draft model. If so, drafter_head returns what was
 * loaded of it and its device. */
bool drafter_is_head(const struct engine *engine);
struct model *drafter_head(const struct engine *engine, struct device **device);
/* The device whose pool of KV blocks holds what the large model's holds; NULL = there is none. */
struct device *drafter_device(const struct engine *engine);
/* What runs on it, or NULL. */
struct model *drafter_model(const struct engine *engine);
/* The row that draws draft token number `index` of an entry. */
sample_row_t drafter_row(const struct plan_entry *entry, int32_t index, sample_result_t *result);
/* Between plan and batch: draws the draft tokens of the step's plan and writes them into the
 * `tokens` of the sequences. Waits for the draft model's device. */
void drafter_propose(struct engine *engine, struct step *step);
/* After the large model's step was launched: launches the same step on the draft model, and waits
 * if the device computes in the call. If the step before still draws some of its ids, that is left
 * to drafter_mirror_late, before the commit of `before`, when it has ended. */
void drafter_mirror(struct engine *engine, const struct step *step);
void drafter_mirror_late(struct engine *engine, const struct step *before);

#endif
