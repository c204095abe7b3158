/* rank_ops.h: the part of the back end interface for a model that several ranks run together.
 *
 * A back end has all functions or none (ops_t.ranks is NULL). A rank has some rows of a weight, so
 * it computes some columns of an output, its own; or some columns, so it computes a part of each
 * sum. The functions exchange these over the comm_t of device_options_t. They are step functions: a
 * rank that fails is reported by `end`. `cuts` [ranks + 1]: rank r has columns, or rows of a table,
 * [cuts[r], cuts[r + 1]).
 */
#ifndef INFERD_ENGINE_DEVICE_RANK_OPS_H
#define INFERD_ENGINE_DEVICE_RANK_OPS_H

#include "engine/device/comm.h"
#include "engine/device/op_types.h"

/* Which part of a model this process has. */
typedef struct model_part {
  int32_t rank, size; /* size 0 or 1 = all of it */
  bool sums; /* what reads heads, inner values or experts is cut by columns: ranks add up sums */
  int32_t cut_cols; /* rank_ops_t */
  /* Pipeline stages: each rank has some of the layers, whole; `size` is 0. num_stages 0 = none. */
  int32_t stage, num_stages;
} model_part_t;

typedef struct rank_ops {
  /* Rows of a weight of which one panel is made: where formats of rows mix, a cut at a multiple of
   * it leaves every panel as it is without cuts. */
  int32_t panel_rows;
  int32_t cut_cols; /* columns of activations are cut at multiples of it; 0 means 1 */
  /* own[rows, own columns] = those columns of in[rows, width]. NULL = `gather` takes a residual */
  void (*take)(struct device *device, act_t *own, const act_t *in, const int32_t *cuts,
               int32_t rows);
  /* out[rows, width] = own[rows, own columns] of every rank (+ residual[rows, width]; may be out),
   * bit for bit what one `linear` with the whole weight writes. With `take` the residual is NULL:
   * that of a linear layer is added before its sums are rounded. */
  void (*gather)(struct device *device, act_t *out, const act_t *own, const act_t *residual,
                 const int32_t *cuts, int32_t rows);
  /* out[rows, width] = sums[rows, width] of every rank, added in the order of the ranks
   * (+ residual[rows, width]; may be out). `sums` is overwritten. */
  void (*reduce)(struct device *device, act_t *out, act_t *sums, const act_t *residual,
                 int32_t width, int32_t rows);
  /* As ops_t.embed, of a table that has the rows of this rank. */
  void (*embed)(struct device *device, act_t *out, const weight_t *table, float scale,
                const int32_t *cuts);
  /* Behind ops_t.logits of a head with the rows of this rank: rank 0 gets the logits of all. */
  void (*logits)(struct device *device, const int32_t *cuts, int32_t rows);
  /* Stages. All ranks call these; NULL = layers are not cut over ranks. Rank from + 1 gets
   * hidden[rows, width] of rank `from`; rank 0 gets the [rows, V] logits of rank `from`. */
  void (*pass)(struct device *device, act_t *hidden, int32_t width, int32_t rows, int32_t from);
  void (*pass_logits)(struct device *device, int32_t from, int32_t vocab_size, int32_t rows);
  /* Steps in flight at most, of a prepared device. NULL means 1. */
  int32_t (*depth)(const struct device *device);
  /* Behind the last `sample` of a step of rank 0, and the last `logits` of others: what is drawn
   * goes to all, so that the next step may refer to it. The step is then launched whole: its batch
   * is read no more. NULL = one step in flight, whose ids the batch has. */
  void (*pass_drawn)(struct device *device);
} rank_ops_t;

#endif
