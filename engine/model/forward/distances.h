/* distances.h: vectors of the distances of tokens, of which DeBERTa's attention has keys and
 * queries.
 *
 * A distance is p - j, of a query and a key; entry e of 2 span vectors stands for some of them. Any
 * thread, no state. Reference: He et al. 2021, and transformers 5.
 */
#ifndef INFERD_ENGINE_MODEL_FORWARD_DISTANCES_H
#define INFERD_ENGINE_MODEL_FORWARD_DISTANCES_H

#include <stdint.h>

/* Entries of a table, with those that fill the last sixteen; 0 for a span of 0. */
int32_t distance_entries(int32_t span);
/* The entry of a distance. Entries rise with the distance: by 1 each up to span / 2, from there on
 * by its logarithm, the last one at `longest`; with `longest` 0 by 1 throughout. */
int32_t distance_entry(int32_t distance, int32_t span, int32_t longest);
/* LayerNorm of each of rows[count, width], in place. */
void distance_norm(float *rows, const float *weight, const float *bias, float eps, int32_t count,
                   int32_t width);
/* out[width, entries of count / 2] = rows[count, width] turned; the rest stays as it is. */
void distance_turn(float *out, const float *rows, int32_t count, int32_t width);
/* out[width / head_dim, entries / 16, head_dim, 16] = weight[width, width] . turned[width, entries]
 * + bias[width]. */
void distance_table(float *out, const float *turned, const float *weight, const float *bias,
                    int32_t width, int32_t head_dim, int32_t entries);

#endif
