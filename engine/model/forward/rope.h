/* rope.h: rotary frequencies of every supported scaling type.
 *
 * Pure arithmetic on a checked rope_config_t, computed once at load in double precision. Formulas:
 * Su et al. 2021 (RoFormer); the scaled forms as in transformers modeling_rope_utils.py.
 */
#ifndef INFERD_ENGINE_MODEL_FORWARD_ROPE_H
#define INFERD_ENGINE_MODEL_FORWARD_ROPE_H

#include "engine/model/model.h"

/* Fills inv_freq[dims / 2] (radians per position) and the factor of cos and sin. `max_model_len`
 * matters to ROPE_DYNAMIC and ROPE_LONGROPE: a cache cannot follow frequencies that change while a
 * sequence grows, so they are fixed at load for the longest sequence. */
void rope_frequencies(const rope_config_t *rope, int32_t max_model_len, double *inv_freq,
                      double *scale);
/* Fills axes[dims / 2] of rope_t; `mrope` of the config is not MROPE_NONE. */
void rope_axes(const rope_config_t *rope, uint8_t *axes);

#endif
