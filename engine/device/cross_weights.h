/* cross_weights.h: the weights that cross attention gives to the rows of an encoder, for requests
 * that ask for them.
 *
 * Plain data. The server makes a cross_weights_t and lends it with its request; the engine fills
 * `out` while it computes the prompt, until EVENT_DONE. From them follows when in a sound a token
 * was said.
 */
#ifndef INFERD_ENGINE_DEVICE_CROSS_WEIGHTS_H
#define INFERD_ENGINE_DEVICE_CROSS_WEIGHTS_H

#include <stdint.h>

typedef struct cross_head {
  int32_t layer, head; /* of the decoder */
} cross_head_t;

typedef struct cross_weights {
  const cross_head_t *heads; /* [num_heads] */
  int32_t num_heads;         /* at least 1 */
  int32_t first, count;      /* of these tokens of the prompt: [first, first + count) */
  int32_t columns;           /* kept of the weights of a token: 1..encoder_source_t.length */
  /* [num_heads, count, columns]: of the weights of a token, which add up to 1, the first ones */
  float *out;
} cross_weights_t;

#endif
