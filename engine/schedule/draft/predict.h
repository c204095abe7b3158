/* predict.h: draft tokens by the layer of the model itself that predicts (mtp.h), or by a head of
 * EAGLE-3 (eagle.h), which has files, a device and a cache of its own, and reads rows between the
 * model's layers.
 *
 * After each step the layer runs over the same tokens, with what the model made of them and the
 * token that follows each: its K and V are then as complete as the model's, in the same blocks. Of
 * beams, and of a sequence that has ended with the step, these are the tokens of the prompt, which
 * others may find in the prefix cache. What leaves it behind the last known token is kept for the
 * sequence. Before a step the draft tokens are drawn from there, one after another, by running the
 * layer again on the token before. It uses the random stream of the sequence, so drafts fit
 * sampled text as well as greedy text.
 *
 * The last row of a block depends on the token behind the block. So a request that finds the block
 * in the prefix cache, or shares it, may read K and V there of another continuation: its first
 * drafts may be worse, and no token changes. A token that a fork draws first has no row of its own;
 * a fork drafts from its second token on. Engine thread; allocates in predictor_new only. Every
 * function does nothing if no layer predicts.
 */
#ifndef INFERD_ENGINE_SCHEDULE_PREDICT_H
#define INFERD_ENGINE_SCHEDULE_PREDICT_H

#include "engine/device/ops.h"

struct engine;
struct step;
typedef struct predictor predictor_t;

/* Once the blueprint and the device are there: chooses the layer if the options ask for it. Returns
 * 0 or ERR_CONFIGURATION with what the model or another option lacks. */
int predictor_read(struct engine *engine, inferd_error_t *error);
/* Takes the memory, for steps of these limits. 0 or ERR_NO_MEMORY. */
int predictor_new(struct engine *engine, const step_limits_t *limits, int32_t block_size,
                  inferd_error_t *error);
void predictor_free(struct engine *engine);

/* Between plan and batch: draws the draft tokens of the step's plan and writes them into the
 * `tokens` of the sequences. */
void predictor_propose(struct engine *engine, struct step *step);
/* After the commit of a step, before the next plan: runs the layer over its tokens, without the
 * draft tokens that were wrong. */
void predictor_follow(struct engine *engine, const struct step *step);

#endif
