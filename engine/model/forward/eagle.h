/* eagle.h: a head of EAGLE-3, a layer in files of its own that drafts for a model, its target.
 *
 * With g_p = fc [rows of position p before three layers of the target], and the target's embedding
 * e of token p + 1:
 *
 *   a = [input_layernorm(e); hidden_norm(g_p)]     r = g_p, or with norm_residual hidden_norm(g_p)
 *   z = r + o(attention of q, k, v of a), at position p
 *   y = z + mlp(post_attention_layernorm(z))
 *   logits of token p + 2 = lm_head(norm(y)), of a vocabulary of its own: i is the target's
 *                           token i + d2t[i]
 *
 * For the token after that y takes the place of g_p, as in llama_eagle3 of vLLM and SGLang. The
 * head is a model_t with a device and a cache of its own. Engine thread.
 */
#ifndef INFERD_ENGINE_MODEL_FORWARD_EAGLE_H
#define INFERD_ENGINE_MODEL_FORWARD_EAGLE_H

#include "engine/model/forward/mtp.h"

/* Of a target, or of a head. */
typedef struct eagle {
  int32_t layers[EAGLE_LAYERS]; /* of the target */
  float *rows;                  /* [T, 3 h] of its last forward; NULL = no head reads them; owned */
  float *read;                  /* [T, h] */
  int32_t *ids;                 /* [V] of a head: tokens of the target; NULL = the same; owned */
} eagle_t;

/* True if config.json of the directory is that of a head. */
bool eagle_is_head(const char *dir);
/* ERR_CONFIGURATION: why the head of `dir` does not draft for the target; or what eagle_attach says
 * of its d2t. */
int eagle_check(const ops_t *ops, const blueprint_t *head, const blueprint_t *target,
                const char *dir, inferd_error_t *error);
/* Both are loaded and prepared, for steps of so many rows. The target keeps rows from now on, the
 * head embeds as it does; d2t is read from the files of `dir`. ERR_MODEL_MALFORMED, ERR_NO_MEMORY
 * or an error of weight_files_open. */
int eagle_attach(model_t *head, model_t *target, const char *dir, int64_t rows,
                 inferd_error_t *error);
/* Part of model_free. */
void eagle_free(eagle_t *eagle);

/* Part of model_forward: keeps hidden[T, h] before layer `layer` if a head reads it. */
void eagle_keep(model_t *target, int32_t layer, const act_t *hidden, int32_t rows);
/* Rows [T, 3 h] of the target's last forward, until the next one. */
const float *eagle_rows(const model_t *target);
/* Runs the head over a batch whose ids are those of the next tokens, with one row for each: of the
 * target, [T, 3 h], or those that left the head, [T, h]. Writes what leaves it at the selected rows
 * to out [S, h]. The batch is that of ops->begin, of the head's device. */
void eagle_forward(model_t *head, const batch_t *batch, const float *rows, bool of_target,
                   float *out);
/* The next model_logits are of these rows [count, h] that left the head. */
void eagle_head(model_t *head, const float *rows, int32_t count);
/* Part of model_logits: the last logits become those of the target's vocabulary. */
void eagle_spread(model_t *head, int32_t rows);

#endif
