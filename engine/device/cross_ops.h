/* cross_ops.h: the part of the back end interface for decoders that see the rows of an encoder.
 *
 * The first two functions run between two steps. K and V of an encoder's rows lie in blocks of the
 * K/V pool that no sequence has; attention_t.crosses reads them. A back end that has these takes
 * such attentions, and tower_attention_t.distances; it has towers, too. Without them (ops_t.cross
 * is NULL) models with an encoder before their decoder do not run. The promises are those of ops.h.
 */
#ifndef INFERD_ENGINE_DEVICE_CROSS_OPS_H
#define INFERD_ENGINE_DEVICE_CROSS_OPS_H

#include "engine/device/op_types.h"

struct device;

typedef struct cross_lookup {
  const weight_t *table;  /* [V, h]; NULL = the rows stay as they are */
  const int32_t *ids;     /* [rows] of the table, host memory */
  float scale;            /* factor of these */
  const weight_t *places; /* [positions, h] that are added from `first` on; NULL = none */
  int32_t first;
} cross_lookup_t;

typedef struct cross_ops {
  /* out[rows, h] = scale * table[ids] + places[first + row] */
  void (*look_up)(struct device *device, act_t *out, const cross_lookup_t *lookup, int32_t rows);
  /* Stores kv[rows, 2 Hk D], columns k|v, as positions [first, first + rows) of `blocks`. */
  void (*store)(struct device *device, const act_t *kv, const attention_t *attention,
                const int32_t *blocks, int32_t first, int32_t rows);
  /* In a step, of q[T, Hq D] of a layer of the decoder, counted from 0: what its heads give to
   * batch_t.cross_weights. NULL = requests that ask for weights are refused. */
  void (*weigh)(struct device *device, const act_t *q, const attention_t *attention, int32_t layer);
} cross_ops_t;

#endif
