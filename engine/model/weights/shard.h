/* shard.h: which rows and columns of which tensor a rank has, of a model that several ranks run
 * together.
 *
 * Exact: every linear layer is cut by its rows, so a rank computes whole sums: their bits are those
 * of one rank. Fast (model_part_t.sums): what reads the output of attention or the inner values of
 * an MLP is cut by its columns, and the ranks add up their sums. Attention is cut by heads, a
 * mixture by experts, embedding and head by the vocabulary. Of a layer with a state both
 * projections are cut by rows, of latent attention the one behind it, always. Norms, routers and
 * what is small stand in every rank, and so do states and the cache of latent attention. All
 * follows from the blueprint, whose `shard` says which part; engine thread.
 */
#ifndef INFERD_ENGINE_MODEL_WEIGHTS_SHARD_H
#define INFERD_ENGINE_MODEL_WEIGHTS_SHARD_H

#include "engine/model/blueprint.h"
#include "engine/model/roles.h"

/* Columns of outputs, rows of tables, heads and experts: [cuts[r], cuts[r + 1]) are of rank r. */
typedef struct shard_cuts {
  int32_t hidden[RANKS_MAX + 1], mlp[RANKS_MAX + 1], shared[RANKS_MAX + 1];
  int32_t heads[RANKS_MAX + 1]; /* columns of the output of attention */
  int32_t vocab[RANKS_MAX + 1], experts[RANKS_MAX + 1];
  int32_t mixer[RANKS_MAX + 1]; /* columns of the projection of a layer with a state */
} shard_cuts_t;

/* The rows of a matrix or vector that this rank has, as it uses them, one piece behind another; or
 * some columns of all rows. */
enum { SHARD_PIECES_MAX = 3 };
typedef struct shard_rows {
  int64_t first[SHARD_PIECES_MAX], count[SHARD_PIECES_MAX];
  int32_t num_pieces;          /* 0 = all rows */
  int32_t stack;               /* of the experts that it has */
  int64_t first_col, num_cols; /* num_cols 0 = all columns */
} shard_rows_t;

static inline bool shard_is_whole(const blueprint_t *bp) {
  return bp->shard.size <= 1;
}

/* Stages of a pipeline (model_part_t): stage s has layers [stage_begin(s), stage_begin(s + 1)), the
 * first one the embedding, the last one the last norm and the head. The head counts as so many
 * layers as have its numbers, so that all read about the same. Without stages one has all. */
static inline bool stage_is_first(const blueprint_t *bp) {
  return bp->shard.stage == 0;
}
static inline bool stage_is_last(const blueprint_t *bp) {
  return bp->shard.num_stages <= 1 || bp->shard.stage == bp->shard.num_stages - 1;
}
int32_t stage_begin(const blueprint_t *blueprint, int32_t stage);
static inline bool stage_has(const blueprint_t *bp, int32_t layer) {
  return layer >= stage_begin(bp, bp->shard.stage) && layer < stage_begin(bp, bp->shard.stage + 1);
}
/* Refuses by name what does not run in stages. 0 or ERR_CONFIGURATION. */
int stages_check(const ops_t *ops, const blueprint_t *blueprint, inferd_error_t *error);
/* Columns of the widest part that this rank computes, 0 = it has all. Parts of sums are as wide as
 * the sums. */
int32_t shard_own_width(const blueprint_t *blueprint, const shard_cuts_t *cuts);
/* Refuses by name what does not run on several ranks, or on this back end. 0 or ERR_CONFIGURATION.
 */
int shard_check(const ops_t *ops, const blueprint_t *blueprint, inferd_error_t *error);
/* Heads of this rank. With more ranks than KV heads some have the same one. */
int32_t shard_heads(const blueprint_t *blueprint);
int32_t shard_kv_heads(const blueprint_t *blueprint, int32_t kv_heads);
void shard_cut(const blueprint_t *blueprint, shard_cuts_t *out);
/* Of the tensor, or the fused ones, that begin with `role`, `rows` in all. */
shard_rows_t shard_rows_of(const blueprint_t *blueprint, tensor_role_t role, int64_t rows);
int64_t shard_rows_count(const shard_rows_t *rows);
/* What this rank has of an adapter of the tensor `role`, fused with no other: rows of B, columns of
 * A. Nothing is cut of what reads or writes all columns. */
shard_rows_t shard_adapter_part(const blueprint_t *blueprint, tensor_role_t role);

/* What this rank has of `whole`, as a source of its own. *whole must stay. */
typedef struct shard_source {
  weight_source_t whole;
  shard_rows_t rows;
} shard_source_t;
/* *source becomes a part of itself; `space` keeps what it was. Rows of several formats are refused
 * unless panels of `panel_rows` stay as they are, and columns that begin or end inside of a block.
 * 0 or ERR_CONFIGURATION. */
int shard_source_cut(const shard_rows_t *rows, int32_t panel_rows, shard_source_t *space,
                     weight_source_t *source, inferd_error_t *error);
/* Moves the elements of this rank to the front. Returns how many. */
int64_t shard_vector_cut(const shard_rows_t *rows, int64_t count, float *values);

#endif
