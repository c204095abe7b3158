/* mtp.h: a layer that predicts the token after the next one (multi-token prediction, MTP).
 *
 * Checkpoints of DeepSeek V3 and its kin have one behind the last layer, those of Qwen3-Next and
 * Qwen3.5 one apart. With the row h_p that leaves the last norm of the model, and the embedding e
 * of token p + 1:
 *
 *   x = W [norm(e); norm(h_p)]        MTP_BEHIND: e = 0 at position 0
 *   y = decoder layer(x), at position p; MTP_APART: with attention, whatever the others have
 *   logits of token p + 2 = head(norm(y))
 *
 * For the token after that y takes the place of h_p, MTP_APART: norm(y); as in deepseek_mtp and
 * qwen3_next_mtp of vLLM. Embedding and head are the model's; K and V of the layer are one more
 * layer of its cache. Engine thread.
 */
#ifndef INFERD_ENGINE_MODEL_FORWARD_MTP_H
#define INFERD_ENGINE_MODEL_FORWARD_MTP_H

#include "engine/model/model.h"

/* Of a loaded model, or of a head (eagle.h), which has not all of it. */
typedef struct mtp {
  norm_t embed_norm, hidden_norm, norm; /* of h columns */
  const weight_t *join;                 /* W [h, 2 h] */
  act_t *joined;                        /* [T, 2 h]; of a head [T, 3 h] of the target, too */
  float *rows;                          /* [T, h] of the last forward; owned, as those below */
  float *embedded, *inputs;             /* [T, h], [T, 2 h] */
} mtp_t;

/* Marks the predicting layer as one that is loaded and has a place in the cache. Before anything
 * is made of the blueprint. ERR_CONFIGURATION: why this model has none that runs. */
int mtp_choose(const ops_t *ops, blueprint_t *blueprint, inferd_error_t *error);
/* Part of model_prepare and model_free. -1: no memory. */
int mtp_prepare(model_t *model, int64_t rows);
void mtp_free(mtp_t *mtp);

/* The rows of the last model_forward behind its last norm, [num_tokens, h], until the next one. */
const float *mtp_rows(const model_t *model);
/* Runs the layer over a batch whose ids are those of the next tokens, with one row of `rows`,
 * [num_tokens, h], for each; writes what leaves the layer at the selected rows to out [S, h]. The
 * batch is that of ops->begin. */
void mtp_forward(model_t *model, const batch_t *batch, const float *rows, float *out);
/* The next model_logits are of these rows [count, h] that left the layer. */
void mtp_head(model_t *model, const float *rows, int32_t count);

#endif
