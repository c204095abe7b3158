/* shard.c: the arithmetic of the cuts, and sources that have some rows or columns of another.
 *
 * Engine thread while a model loads, and the back end's threads in row(). Reads nothing itself.
 */
#include "engine/model/weights/shard.h"

#include "engine/base/check.h"
#include "engine/base/util.h"
#include "engine/model/sizes.h"
#include "engine/quant/quant.h"

#include <string.h>

/* A cut at a multiple of it fills whole panels on every back end; a smaller unit where there are
 * few columns for the ranks, as long as it holds whole blocks of weights. `least` is the smallest
 * that the back end takes. */
enum { CUT_UNIT = 256, GGUF_COLS = 256, GROUP_COLS = 128 };

static void cut(int64_t total, int32_t size, int64_t block, int64_t least, int32_t *cuts) {
  int64_t unit = CUT_UNIT;
  if (total % least != 0) least = 1; /* the back end will refuse the width */
  while (unit > least && (total % unit != 0 || total / unit < size ||
                          (unit > block && total / unit < 4 * (int64_t)size)))
    unit /= 2;
  for (int32_t r = 0; r <= size; r++) cuts[r] = (int32_t)(total / unit * r / size * unit);
}

/* Columns that should stay together where a matrix is cut by columns. */
static int64_t block_cols(const blueprint_t *bp) {
  if (!bp->shard.sums) return 1;
  if (bp->gguf) return GGUF_COLS;
  return bp->scheme.kind != SCHEME_PLAIN ? GROUP_COLS : 1;
}

/* The KV heads of a rank: [*first, *first + *count). */
static void cut_kv_heads(const blueprint_t *bp, int32_t rank, int32_t *first, int32_t *count) {
  const int32_t heads = bp->num_kv_heads, size = bp->shard.size;
  *first = (int32_t)((int64_t)heads * rank / size);
  *count = heads >= size ? (int32_t)((int64_t)heads * (rank + 1) / size) - *first : 1;
}

/* The first query head of a rank. Those of a KV head that several ranks have are shared out. */
static int32_t first_head(const blueprint_t *bp, int32_t rank) {
  const int32_t heads = bp->num_kv_heads, size = bp->shard.size, group = bp->num_heads / heads;
  if (heads >= size) return (int32_t)((int64_t)heads * rank / size) * group;
  const int32_t kv = (int32_t)((int64_t)heads * rank / size);
  const int32_t from = DIV_UP(kv * size, heads), to = DIV_UP((kv + 1) * size, heads);
  return kv * group + group * (rank - from) / (to - from);
}

int32_t shard_heads(const blueprint_t *bp) {
  if (shard_is_whole(bp)) return bp->num_heads;
  const int32_t rank = bp->shard.rank;
  const int32_t end = rank + 1 < bp->shard.size ? first_head(bp, rank + 1) : bp->num_heads;
  return end - first_head(bp, rank);
}

int32_t shard_kv_heads(const blueprint_t *bp, int32_t kv_heads) {
  int32_t first, count;
  if (shard_is_whole(bp)) return kv_heads;
  cut_kv_heads(bp, bp->shard.rank, &first, &count);
  return count;
}

void shard_cut(const blueprint_t *bp, shard_cuts_t *out) {
  const int32_t size = bp->shard.size;
  const int64_t block = block_cols(bp);
  const int64_t least = MAX(bp->shard.cut_cols, 1);
  cut(bp->hidden_size, size, 1, least, out->hidden);
  cut(bp->intermediate_size, size, block, least, out->mlp);
  cut(bp->shared_size, size, block, least, out->shared);
  cut(bp->vocab_size, size, 1, 1, out->vocab);
  const bool has_mixer = bp->mixer.kind != MIXER_NONE;
  cut(has_mixer ? mixer_width(&bp->mixer, bp->hidden_size) : 0, size, 1, least, out->mixer);
  for (int32_t r = 0; r < size; r++) {
    out->heads[r] = first_head(bp, r) * bp->head_dim;
    out->experts[r] = (int32_t)((int64_t)bp->num_experts * r / size);
  }
  out->heads[size] = bp->num_heads * bp->head_dim;
  out->experts[size] = bp->num_experts;
}

int32_t shard_own_width(const blueprint_t *bp, const shard_cuts_t *cuts) {
  const int32_t rank = bp->shard.rank;
  int32_t width = cuts->hidden[rank + 1] - cuts->hidden[rank];
  if (shard_is_whole(bp)) return 0;
  width = MAX(width, cuts->mixer[rank + 1] - cuts->mixer[rank]);
  if (bp->shard.sums) return MAX(width, bp->hidden_size);
  width = MAX(width, cuts->mlp[rank + 1] - cuts->mlp[rank]);
  width = MAX(width, cuts->shared[rank + 1] - cuts->shared[rank]);
  return MAX(width, cuts->heads[rank + 1] - cuts->heads[rank]);
}

int32_t stage_begin(const blueprint_t *bp, int32_t stage) {
  const int32_t count = MAX(bp->shard.num_stages, 1), layers = bp->num_layers;
  if (stage == 0 || stage == count) return stage == 0 ? 0 : layers;
  const double table = (double)bp->vocab_size * bp->embed_size,
               rest = (double)bp->num_parameters - (bp->tied ? table : 2 * table),
               head = table * layers / MAX(rest, 1.0);
  const int32_t fair = (int32_t)((layers + head) / count - head + 0.5),
                last = MIN(MAX(fair, 1), layers - count + 1);
  return (int32_t)((int64_t)(layers - last) * stage / (count - 1));
}

int stages_check(const ops_t *ops, const blueprint_t *bp, inferd_error_t *error) {
  const int32_t count = bp->shard.num_stages;
  const char *what = NULL;
  if (count <= 1) return 0;
  if (ops->ranks == NULL || ops->ranks->pass == NULL)
    return error_set(error, ERR_CONFIGURATION, "pipeline_parallel_size",
                     "pipeline_parallel_size is %d; %s runs all layers on one rank: use 1, or "
                     "--device cpu",
                     count, ops->name);
  if (count > bp->num_layers)
    return error_set(error, ERR_CONFIGURATION, "pipeline_parallel_size",
                     "pipeline_parallel_size is %d; the model has %d layers, so it must be at most "
                     "that",
                     count, bp->num_layers);
  if (bp->mixer.kind != MIXER_NONE) what = "layers with a state";
  for (int32_t i = 0; i < bp->num_layers; i++)
    if (bp->layer_flags[i] & LAYER_CHOSEN) what = "layers that share what an indexer chooses";
  if (bp->full_head_dim > 0 || bp->layer_scalars || bp->num_streams > 0)
    what = "layers of two kinds";
  if (bp->encoder.bidirectional) what = "encoders";
  if (what == NULL) return 0;
  return error_set(error, ERR_CONFIGURATION, "pipeline_parallel_size",
                   "pipeline_parallel_size is %d; %s of %s run on one rank only: use 1", count,
                   what, bp->architecture);
}

static int refuse(const blueprint_t *bp, const char *what, inferd_error_t *error) {
  return error_set(error, ERR_CONFIGURATION, "tensor_parallel_size",
                   "tensor_parallel_size is %d; %s of %s run on one rank only: use 1",
                   bp->shard.size, what, bp->architecture);
}

static int too_many(const blueprint_t *bp, const char *what, int32_t most, inferd_error_t *error) {
  return error_set(error, ERR_CONFIGURATION, "tensor_parallel_size",
                   "tensor_parallel_size is %d; the model has %d %s, so it must be at most %d",
                   bp->shard.size, most, what, most);
}

/* The largest number of ranks of which each has a query head. */
static int32_t ranks_most(const blueprint_t *bp) {
  blueprint_t trial = *bp;
  for (trial.shard.size = bp->num_heads; trial.shard.size > 1; trial.shard.size--) {
    bool all = true;
    for (trial.shard.rank = 0; trial.shard.rank < trial.shard.size; trial.shard.rank++)
      all = all && shard_heads(&trial) > 0;
    if (all) break;
  }
  return MAX(trial.shard.size, 1);
}

int shard_check(const ops_t *ops, const blueprint_t *bp, inferd_error_t *error) {
  const int32_t size = bp->shard.size, unit = MAX(bp->shard.cut_cols, 1);
  const char *columns = unit > 1 ? "groups of 8 columns" : "columns";
  if (shard_is_whole(bp)) return 0;
  if (ops->ranks == NULL)
    return error_set(error, ERR_CONFIGURATION, "tensor_parallel_size",
                     "tensor_parallel_size is %d; %s runs a model on one rank only: use 1, or "
                     "--device cpu",
                     size, ops->name);
  if (ops->separate_memory && bp->mixer.kind != MIXER_NONE)
    return refuse(bp, "layers with a state", error);
  if (!model_attends(bp)) return refuse(bp, "layers without attention", error);
  if (ops->separate_memory && bp->kv_rank > 0)
    return refuse(bp, "layers of latent attention", error);
  if (bp->full_head_dim > 0 || bp->layer_scalars || bp->num_streams > 0)
    return refuse(bp, "layers of two kinds", error);
  if (bp->alibi_max > 0 || bp->distance_buckets > 0 || bp->encoder.distance_span > 0)
    return refuse(bp, "scores by distance", error);
  if (bp->expert_in > 0) return refuse(bp, "experts of a smaller vector", error);
  if (bp->qk_norm_whole) return refuse(bp, "norms over all heads together", error);
  if (bp->kv_rank == 0 && size > ranks_most(bp)) {
    const int32_t most = ranks_most(bp);
    return error_set(error, ERR_CONFIGURATION, "tensor_parallel_size",
                     "tensor_parallel_size is %d; the model has %d query and %d KV heads, so it "
                     "must be at most %d",
                     size, bp->num_heads, bp->num_kv_heads, most);
  }
  if (bp->intermediate_size > 0 && size > bp->intermediate_size / unit)
    return too_many(bp, columns, bp->intermediate_size / unit, error);
  if (size > bp->hidden_size / unit) return too_many(bp, columns, bp->hidden_size / unit, error);
  if (bp->num_experts > 0 && size > bp->num_experts)
    return too_many(bp, "experts", bp->num_experts, error);
  if (bp->shared_size > 0 && size > bp->shared_size / unit)
    return too_many(
        bp, unit > 1 ? "groups of 8 columns of shared experts" : "columns of shared experts",
        bp->shared_size / unit, error);
  return 0;
}

/* ---- rows of a tensor ---- */

static void add_piece(shard_rows_t *rows, int64_t first, int64_t count) {
  rows->first[rows->num_pieces] = first;
  rows->count[rows->num_pieces++] = count;
}

/* Of a matrix that reads what the ranks have in parts: its rows, or the columns of that part. Its
 * rows alone where `in_cuts` is NULL: each rank has all that it reads. */
static void add_reader(const blueprint_t *bp, const int32_t *out_cuts, const int32_t *in_cuts,
                       shard_rows_t *rows) {
  const int32_t rank = bp->shard.rank;
  if (!bp->shard.sums || in_cuts == NULL) {
    add_piece(rows, out_cuts[rank], out_cuts[rank + 1] - out_cuts[rank]);
    return;
  }
  rows->first_col = in_cuts[rank];
  rows->num_cols = in_cuts[rank + 1] - in_cuts[rank];
}

/* Rows of q, then of k, then of v. */
static void add_heads(const blueprint_t *bp, shard_rows_t *rows) {
  const int64_t dim = bp->head_dim, heads = bp->num_heads;
  int32_t first, count;
  cut_kv_heads(bp, bp->shard.rank, &first, &count);
  add_piece(rows, first_head(bp, bp->shard.rank) * dim, shard_heads(bp) * dim);
  add_piece(rows, (heads + first) * dim, count * dim);
  add_piece(rows, (heads + bp->num_kv_heads + first) * dim, count * dim);
}

/* Rows of gate, then of up; or of one matrix. */
static void add_columns(const blueprint_t *bp, const int32_t *cuts, int64_t rows_all,
                        shard_rows_t *rows) {
  const int32_t rank = bp->shard.rank;
  const int64_t count = cuts[rank + 1] - cuts[rank], width = cuts[bp->shard.size];
  add_piece(rows, cuts[rank], count);
  if (rows_all == 2 * width) add_piece(rows, width + cuts[rank], count);
}

static void add_stack(const blueprint_t *bp, const int32_t *cuts, int64_t rows_all,
                      shard_rows_t *rows) {
  const int32_t rank = bp->shard.rank;
  const int64_t each = rows_all / bp->num_experts;
  rows->stack = cuts[rank + 1] - cuts[rank];
  add_piece(rows, cuts[rank] * each, rows->stack * each);
}

shard_rows_t shard_rows_of(const blueprint_t *bp, tensor_role_t role, int64_t all) {
  shard_rows_t rows = {0};
  shard_cuts_t cuts;
  int32_t first, count;
  if (shard_is_whole(bp)) return rows;
  shard_cut(bp, &cuts);
  switch (role) {
  case ROLE_EMBED:
  case ROLE_HEAD: add_columns(bp, cuts.vocab, 0, &rows); break;
  case ROLE_Q:
  case ROLE_QKV:
    if (bp->kv_rank == 0) add_heads(bp, &rows);
    break;
  case ROLE_ATTN_GATE:
    if (bp->attn_gate_by_head)
      add_piece(&rows, first_head(bp, bp->shard.rank), shard_heads(bp));
    else
      add_columns(bp, cuts.heads, 0, &rows);
    break;
  case ROLE_O: add_reader(bp, cuts.hidden, bp->kv_rank > 0 ? NULL : cuts.heads, &rows); break;
  case ROLE_MIX_IN: add_columns(bp, cuts.mixer, 0, &rows); break;
  case ROLE_MIX_OUT: add_reader(bp, cuts.hidden, NULL, &rows); break;
  case ROLE_DOWN: add_reader(bp, cuts.hidden, cuts.mlp, &rows); break;
  case ROLE_SHARED_DOWN: add_reader(bp, cuts.hidden, cuts.shared, &rows); break;
  case ROLE_GATE: add_columns(bp, cuts.mlp, all, &rows); break;
  case ROLE_SHARED_GATE: add_columns(bp, cuts.shared, all, &rows); break;
  case ROLE_EXPERT_GATE:
  case ROLE_EXPERT_DOWN: add_stack(bp, cuts.experts, all, &rows); break;
  case ROLE_SINKS: add_piece(&rows, first_head(bp, bp->shard.rank), shard_heads(bp)); break;
  case ROLE_Q_NORM: /* of each head its own */
    if (bp->qk_norm_each) add_columns(bp, cuts.heads, 0, &rows);
    break;
  case ROLE_K_NORM:
    cut_kv_heads(bp, bp->shard.rank, &first, &count);
    if (bp->qk_norm_each)
      add_piece(&rows, (int64_t)first * bp->head_dim, (int64_t)count * bp->head_dim);
    break;
  default: break;
  }
  return rows;
}

shard_rows_t shard_adapter_part(const blueprint_t *bp, tensor_role_t role) {
  const int32_t rank = bp->shard.rank;
  shard_rows_t part = {0};
  shard_cuts_t cuts;
  int32_t first, count;
  if (shard_is_whole(bp)) return part;
  shard_cut(bp, &cuts);
  cut_kv_heads(bp, rank, &first, &count);
  switch (role) {
  case ROLE_Q: add_columns(bp, cuts.heads, 0, &part); break;
  case ROLE_K:
  case ROLE_V:
    add_piece(&part, (int64_t)first * bp->head_dim, (int64_t)count * bp->head_dim);
    break;
  case ROLE_QKV: add_heads(bp, &part); break;
  case ROLE_GATE:
  case ROLE_UP: add_columns(bp, cuts.mlp, 0, &part); break;
  case ROLE_GATE_UP: add_columns(bp, cuts.mlp, 2 * (int64_t)bp->intermediate_size, &part); break;
  case ROLE_HEAD: add_columns(bp, cuts.vocab, 0, &part); break;
  case ROLE_O:
    if (bp->shard.sums) add_reader(bp, cuts.hidden, cuts.heads, &part);
    break;
  case ROLE_DOWN:
    if (bp->shard.sums) add_reader(bp, cuts.hidden, cuts.mlp, &part);
    break;
  default: break;
  }
  return part;
}

int64_t shard_rows_count(const shard_rows_t *rows) {
  int64_t count = 0;
  for (int32_t i = 0; i < rows->num_pieces; i++) count += rows->count[i];
  return count;
}

/* ---- sources ---- */

static int64_t whole_row(const shard_rows_t *rows, int64_t row) {
  int32_t i = 0;
  if (rows->num_pieces == 0) return row;
  while (row >= rows->count[i]) row -= rows->count[i++];
  return rows->first[i] + row;
}

static const void *part_of_row(void *context, int64_t row, void *scratch) {
  const shard_source_t *part = context;
  return part->whole.row(part->whole.context, whole_row(&part->rows, row), scratch);
}

static weight_format_t part_of_format(void *context, int64_t row) {
  const shard_source_t *part = context;
  return part->whole.row_format(part->whole.context, whole_row(&part->rows, row));
}

static weight_format_t format_of_row(const weight_source_t *source, int64_t row) {
  return source->row_format != NULL ? source->row_format(source->context, row) : source->format;
}

/* WEIGHT_GROUPED and what follows it: codes of a byte, then scales and minima of groups. */
static bool is_grouped(weight_format_t format) {
  return format >= WEIGHT_GROUPED;
}

/* Moves the groups of some columns to the front of a row: codes, then scales, then minima. */
static void move_groups(const shard_source_t *part, const uint8_t *from, uint8_t *to) {
  const int64_t all = part->whole.cols, some = part->rows.num_cols, group = part->whole.group;
  const size_t num_all = (size_t)DIV_UP(all, group), count = (size_t)DIV_UP(some, group);
  const size_t first = (size_t)(part->rows.first_col / group) * sizeof(float);
  const uint8_t *scales = from + ROUND_UP((size_t)all, sizeof(float)) + first;
  memmove(to, from + part->rows.first_col, (size_t)some);
  to += ROUND_UP((size_t)some, sizeof(float));
  for (int i = 0; i < 2; i++)
    memmove(to + (size_t)i * count * sizeof(float), scales + (size_t)i * num_all * sizeof(float),
            count * sizeof(float));
}

static const void *columns_of_row(void *context, int64_t row, void *scratch) {
  const shard_source_t *part = context;
  const weight_source_t *whole = &part->whole;
  const int64_t first = part->rows.first_col, count = part->rows.num_cols;
  const weight_format_t format = format_of_row(whole, row);
  const quant_format_t *quant = quant_format(format);
  const uint8_t *data = whole->row(whole->context, row, scratch);
  if (data == NULL) return NULL;
  if (is_grouped(format)) {
    move_groups(part, data, scratch);
    return scratch;
  }
  size_t before = (size_t)first * dtype_size(whole->dtype);
  size_t bytes = (size_t)count * dtype_size(whole->dtype);
  if (format == WEIGHT_MXFP4) {
    before = (size_t)(first / MXFP4_COLS) * MXFP4_BYTES;
    bytes = (size_t)(count / MXFP4_COLS) * MXFP4_BYTES;
  } else if (quant != NULL) {
    before = first > 0 ? quant_row_bytes(quant, 0, first) : 0;
    bytes = quant_row_bytes(quant, 0, count);
  }
  if (data != scratch) return data + before;
  return memmove(scratch, data + before, bytes);
}

/* Columns of a block, or of a group with one scale, of any row. */
static int64_t block_of(const weight_source_t *source) {
  int64_t most = 1;
  for (int64_t row = 0; row < (source->row_format != NULL ? source->rows : 1); row++) {
    const weight_format_t format = format_of_row(source, row);
    const quant_format_t *quant = quant_format(format);
    if (format == WEIGHT_MXFP4) most = MXFP4_COLS;
    if (quant != NULL) most = MAX(most, quant->block_cols);
    if (is_grouped(format) && source->group < source->cols) most = MAX(most, source->group);
  }
  return most;
}

static int cut_columns(const shard_rows_t *rows, shard_source_t *space, weight_source_t *source,
                       inferd_error_t *error) {
  const int64_t block = block_of(source), end = rows->first_col + rows->num_cols;
  space->whole = *source;
  space->rows = *rows;
  CHECK_LE(end, source->cols);
  if (rows->first_col % block != 0 || (end % block != 0 && end != source->cols))
    return error_set(error, ERR_CONFIGURATION, "tensor_parallel_mode",
                     "tensor_parallel_mode is fast; %s would be cut at its columns %lld to %lld, "
                     "inside of a quantised block of %lld: use exact",
                     source->name, (long long)rows->first_col, (long long)end, (long long)block);
  source->cols = rows->num_cols;
  source->whole_cols = space->whole.cols;
  source->row = columns_of_row;
  if (source->row_format != NULL) source->row_format = part_of_format;
  source->context = space;
  return 0;
}

/* True when formats change inside of a panel. */
static bool mixes(const weight_source_t *source, int32_t panel_rows) {
  if (source->row_format == NULL) return false;
  weight_format_t before = source->row_format(source->context, 0);
  for (int64_t row = 1; row < source->rows; row++) {
    weight_format_t format = source->row_format(source->context, row);
    if (format != before && row % panel_rows != 0) return true;
    before = format;
  }
  return false;
}

int shard_source_cut(const shard_rows_t *rows, int32_t panel_rows, shard_source_t *space,
                     weight_source_t *source, inferd_error_t *error) {
  if (rows->num_cols > 0) return cut_columns(rows, space, source, error);
  if (rows->num_pieces == 0) return 0;
  const bool mixed = source->stack <= 1 && mixes(source, panel_rows);
  space->whole = *source;
  space->rows = *rows;
  source->rows = shard_rows_count(rows);
  if (rows->stack > 0) source->stack = rows->stack;
  source->row = part_of_row;
  if (source->row_format != NULL) source->row_format = part_of_format;
  source->context = space;
  if (!mixed && (source->stack > 1 || !mixes(source, panel_rows))) return 0;
  return error_set(error, ERR_CONFIGURATION, "tensor_parallel_size",
                   "%s: its rows are of several quantised formats, which change inside of %d rows; "
                   "several ranks would not have the same bits: use tensor_parallel_size 1",
                   source->name, panel_rows);
}

int64_t shard_vector_cut(const shard_rows_t *rows, int64_t count, float *values) {
  int64_t kept = 0;
  if (rows->num_pieces == 0) return count;
  for (int32_t i = 0; i < rows->num_pieces; i++) {
    CHECK_LE(rows->first[i] + rows->count[i], count);
    memmove(values + kept, values + rows->first[i], (size_t)rows->count[i] * sizeof *values);
    kept += rows->count[i];
  }
  return kept;
}
