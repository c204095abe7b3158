/* per_layer_ops.h: the part of the back end interface for Gemma 4, whose layers have embeddings, a
 * scalar and kinds of their own.
 *
 * A back end has all functions or none (ops_t.per_layer is NULL). One that has them also takes KV
 * pools with layers of two kinds (kv_desc.h; with ops_t.kv_groups also window_heads),
 * attention_t.v_norm and reads_only, and moe_t.router_in and share_factors. The promises are those
 * of ops.h.
 */
#ifndef INFERD_ENGINE_DEVICE_PER_LAYER_OPS_H
#define INFERD_ENGINE_DEVICE_PER_LAYER_OPS_H

#include "engine/device/op_types.h"

struct device;

/* out[i] = act(in[i]) * factors[column + i] */
typedef struct input_gate {
  activation_t activation; /* a gated one */
  int32_t width;           /* columns of `in` and `out` */
  int32_t factors_width;   /* columns of rows of the factors, of which [column, column + width) */
  int32_t column;
} input_gate_t;

typedef struct per_layer_ops {
  /* Of the tokens with rows of pictures (batch_t.embedded_rows): out[T, width] = table[id] * scale.
   */
  void (*embed_pictures)(struct device *device, act_t *out, const weight_t *table, int32_t id,
                         float scale);
  /* out[rows, width]; may be `in`. */
  void (*gate)(struct device *device, act_t *out, const act_t *in, const act_t *factors,
               const input_gate_t *gate, int32_t rows);
  /* x[rows, width] *= factor[0] */
  void (*scale)(struct device *device, act_t *x, const vector_t *factor, int32_t width,
                int32_t rows);
} per_layer_ops_t;

#endif
