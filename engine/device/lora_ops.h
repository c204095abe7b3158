/* lora_ops.h: the operations of adapters: what some tokens of a step have in the place of a layer.
 *
 * A part of ops_t (ops.h), whose rules hold here: engine thread, step functions only launch. `set`
 * comes between two steps. A token t of a step has the adapter in slot batch->adapters[t], 0 =
 * none: its row is not touched, and its bits do not depend on the other tokens.
 */
#ifndef INFERD_ENGINE_DEVICE_LORA_OPS_H
#define INFERD_ENGINE_DEVICE_LORA_OPS_H

#include "engine/base/error.h"
#include "engine/device/op_types.h"
#include "engine/device/weight_source.h"

struct device;

/* The adapters of one matrix [N, K], a slot each. */
typedef struct lora lora_t;

/* Of which an embedding [V, E] has V columns and E rows. */
typedef enum lora_kind { LORA_LINEAR, LORA_EMBED, LORA_HEAD } lora_kind_t;

/* What one adapter makes of a matrix W [N, K]: W x becomes (1 + factors) * W x + B (A x) + offsets
 * (Hu et al. 2021, low-rank adapters; Liu et al. 2024, DoRA). */
typedef struct lora_values {
  int32_t rank;         /* 0 = no pair */
  const float *a, *b;   /* [rank, K], [N, rank] (scaled) */
  const float *factors; /* [N] or NULL */
  const float *offsets; /* [N] or NULL */
  /* Of an embedding or a head, without a pair and factors: a table [V, E] in the place of its own,
   * in host memory that stays until the slot is set again; or NULL. */
  const void *whole;
  dtype_t whole_type;
} lora_values_t;

typedef struct lora_ops {
  bool has_vectors; /* factors and offsets of lora_values_t */
  bool has_wholes;  /* `whole` of it */
  bool has_softcap; /* of `logits`; else it gets 0 */
  /* Makes empty slots 1..`slots` of a matrix: A [rank_max, cols], B [rows, rank_max]. */
  int (*make)(struct device *device, lora_kind_t kind, int64_t rows, int64_t cols, int32_t slots,
              int32_t rank_max, lora_t **out, inferd_error_t *error);
  /* Copies all but `whole` to a slot that no step uses; all NULL and 0 empties it. */
  void (*set)(struct device *device, lora_t *lora, int32_t slot, const lora_values_t *values);
  /* out[t, column .. column + N), of `width` columns, gets what the adapter adds, in fp32; `plain`
   * has W in[t] in the same columns, and is NULL if no adapter of the step has factors. */
  void (*add)(struct device *device, act_t *out, const act_t *in, const act_t *plain,
              const lora_t *lora, int32_t column, int32_t width);
  /* The same for out[T, E], embeddings of the batch times `scale`; NULL = none of embeddings. */
  void (*embed)(struct device *device, act_t *out, const lora_t *lora, float scale);
  /* The same for the logits of the last `logits` call, of the same hidden rows and bias, which had
   * no softcap: all rows get it here. NULL = none of heads. */
  void (*logits)(struct device *device, const act_t *hidden, const vector_t *bias,
                 const lora_t *lora, float softcap, int32_t first, int32_t rows);
} lora_ops_t;

#endif
