/* attention_decode.cu: paged attention of requests with one query token, split over their keys.
 *
 * q (R, Hq, D), cache (kernels.h) -> out (R, Hq, D). The query heads of one KV head, up to 16, are
 * the 16 rows of an mma tile, so K and V are read once per KV head: sum(len) * 2 * Hk * D elements,
 * which bounds it (decode is a read stream; Dao et al. 2023, flash-decoding). A persistent grid of
 * warps, each by itself with its own cp.async ring, walks items x KV heads; an item is a row's
 * pieces (pieces.h) from the first one on, or one later piece. Items leave fp32 partial results,
 * which combine_kernel folds in order: no atomics, and the same bits for every plan. Measured:
 * not yet.
 */
#include "cuda/device_code/tiles.h"
#include "cuda/kernels/attention.h"

enum { SLAB = MMA_KEYS };

/* 96 KB of ring for a block, which every device from sm_80 has. */
template <class S, int D> struct decode_t {
  static constexpr int SLOT = D * (int)sizeof(S), WARPS = SLOT <= 256 ? 4 : 2;
  static constexpr int FIT = 96 * 1024 / (WARPS * 2 * SLAB * SLOT), STAGES = FIT < 6 ? FIT : 6;
  struct shared_t {
    uint8_t ring[WARPS][STAGES][2][SLAB * SLOT];
  };
};

/* The work of a warp: keys of one item for the query heads [head, head + heads) of a KV head. */
typedef struct decode_work {
  gpu_decode_item_t item;
  const int32_t *blocks; /* block table of the request */
  size_t token, partial; /* row of the query; first row of the item's partial results */
  int32_t first_slab, count;
  int32_t kv_head, head, heads;
} decode_work_t;

/* Starts the copy of slab i of the item; all lanes call it, also past the end (an empty group).
 * `block` of lane l is the block of slab l of the current 32. */
template <class S, int D>
GPU_FN void load_slab(const gpu_attention_t &args, const decode_work_t &work, int i, int *block,
                      typename decode_t<S, D>::shared_t *shared) {
  typedef decode_t<S, D> shape;
  constexpr int ROW = shape::SLOT < KV_ROW_MAX ? shape::SLOT : KV_ROW_MAX;
  constexpr int CHUNKS = SLAB * shape::SLOT / KV_CHUNK, PART_CHUNKS = SLAB * ROW / KV_CHUNK;
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, size = args.kv.block_size;
  if (i % WARP == 0 && i < work.count) {
    const int key = (work.first_slab + i + lane) * SLAB;
    *block = i + lane < work.count ? work.blocks[key / size] : 0;
  }
  const int id = __shfl_sync(FULL_WARP, *block, i % WARP);
  if (i < work.count) {
    const int key = (work.first_slab + i) * SLAB, rows = key % size * ROW;
    const uint8_t *k = kv_head_at(args.kv, args.layer, id, 0, work.kv_head) + rows;
    const uint8_t *v = kv_head_at(args.kv, args.layer, id, 1, work.kv_head) + rows;
    auto &to = shared->ring[warp][i % shape::STAGES];
    UNROLL
    for (int j = 0; j < CHUNKS / WARP; j++) {
      const int chunk = j * WARP + lane, part = chunk / PART_CHUNKS, in_part = chunk % PART_CHUNKS;
      const int at = key + in_part / (ROW / KV_CHUNK);
      const bool valid = at >= work.item.first && at < work.item.last;
      const size_t from = (size_t)part * size * ROW + in_part * KV_CHUNK;
      cp_async_16(to[0] + chunk * KV_CHUNK, k + from, valid ? KV_CHUNK : 0);
      cp_async_16(to[1] + chunk * KV_CHUNK, v + from, valid ? KV_CHUNK : 0);
    }
  }
  cp_async_commit();
}

/* The queries of a warp: kept in registers, but for large heads, where the sums take all of them.
 */
template <class T, int D> struct query_t {
  static constexpr bool KEPT = D <= 128;
  const T *from; /* [rows][dim] */
  int rows, dim;
  uint32_t fragment[KEPT ? D / 16 : 1][4];
};

/* Query fragment k straight from memory: 16 rows of heads, zero beyond the group and the head. */
template <class T, class S, int D>
GPU_FN void load_query(const query_t<T, D> &query, int k, uint32_t (&fragment)[4]) {
  const int lane = threadIdx.x % WARP;
  for (int i = 0; i < 2; i++) {
    const int row = lane / 4 + i * 8;
    const int step = sizeof(S) == 2 ? 8 : 2;
    const int column = k * 16 + lane % 4 * (sizeof(S) == 2 ? 2 : 4);
    const T *from = query.from + (size_t)row * query.dim + column;
    uint32_t words[2] = {0, 0};
    if (row < query.rows && column < query.dim) words[0] = *(const uint32_t *)from;
    if (row < query.rows && column + step < query.dim) words[1] = *(const uint32_t *)(from + step);
    if (sizeof(S) == 2)
      fragment[i] = words[0], fragment[2 + i] = words[1];
    else
      even_odd(words[0], words[1], fragment[i], fragment[2 + i]);
  }
}

/* logits += q . keys of the slab. */
template <class T, class S, int D>
GPU_FN void score_slab(const query_t<T, D> &query, const uint8_t *keys, float (&logits)[2][4]) {
  constexpr int FRAGMENTS = score_t<S, D>::FRAGMENTS;
  UNROLL
  for (int k = 0; k < score_t<S, D>::STEPS; k++) {
    if constexpr (query_t<T, D>::KEPT) {
      score_step<T, S, D, SLAB>(logits[0], logits[1], &query.fragment[k * FRAGMENTS], keys, 0, k);
    } else {
      uint32_t fragment[FRAGMENTS][4];
      for (int i = 0; i < FRAGMENTS; i++)
        load_query<T, S, D>(query, k * FRAGMENTS + i, fragment[i]);
      score_step<T, S, D, SLAB>(logits[0], logits[1], fragment, keys, 0, k);
    }
  }
}

template <class T, class S, int D>
GPU_FN void attend_slab(const decode_work_t &work, int i, const logit_rule_t &rule,
                        const query_t<T, D> &query, const typename decode_t<S, D>::shared_t *shared,
                        attention_rows_t<D> &rows) {
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
  const auto &tile = shared->ring[warp][i % decode_t<S, D>::STAGES];
  const int key = (work.first_slab + i) * SLAB;
  float logits[2][4] = {};
  score_slab<T, S, D>(query, tile[0], logits);
  UNROLL
  for (int n = 0; n < 2; n++) {
    for (int j = 0; j < 4; j++) {
      const int at = key + n * 8 + lane % 4 * 2 + (j & 1);
      const bool visible = at >= work.item.first && at < work.item.last;
      logits[n][j] = visible ? score_logit(logits[n][j], rule) : -INFINITY;
    }
  }
  softmax_step<D>(rows, logits[0], logits[1]);
  uint32_t weights[4];
  pack_weights<T>(weights, logits[0], logits[1]);
  add_values<T, S, D, SLAB, D>(rows, weights, tile[1], 0, 0);
}

/* The item's state while its pieces are folded; their outputs wait in the partial results, where a
 * lane reads only elements that it wrote itself. */
typedef struct item_state {
  float max[2], sum[2];
  bool begun;
} item_state_t;

/* Folds the piece that ended into the item; the last one is written as the row's output when the
 * item is all of the row. */
template <class T, class S, int D>
GPU_FN void fold_piece(const gpu_attention_t &args, const decode_work_t &work, bool last,
                       item_state_t &state, attention_rows_t<D> &rows) {
  const int lane = threadIdx.x % WARP, dim = args.kv.head_dim;
  const bool finish = last && work.item.whole;
  softmax_finish<D>(rows);
  UNROLL
  for (int h = 0; h < 2; h++) {
    const int row = lane / 4 + h * 8;
    const fold_t fold = fold_state(state.max[h], state.sum[h], rows.max[h], rows.sum[h]);
    if (row >= work.heads) continue;
    const float scale = kv_scale(args.kv, args.layer, 1, work.kv_head);
    const float inverse =
        inverse_sum(state.max[h], state.sum[h], args.sinks, work.head + row, scale);
    T *out = (T *)args.out + (work.token * args.num_heads + work.head + row) * dim;
    float *partial = args.partial + (work.partial + row) * dim;
    UNROLL
    for (int p = 0; p < D / 8; p++) {
      const int column = pair_column<S>(p);
      if (column >= dim) continue;
      float2 *at = (float2 *)(partial + column);
      const float2 before = state.begun ? *at : make_float2(0.0f, 0.0f);
      const float low = fold_value(fold, before.x, pair_low<S, D>(rows, p, h));
      const float high = fold_value(fold, before.y, pair_high<S, D>(rows, p, h));
      if (finish)
        *(uint32_t *)(out + column) = pack<T>(mul_rn(low, inverse), mul_rn(high, inverse));
      else
        *at = make_float2(low, high);
    }
    if (last && !finish && lane % 4 == 0)
      ((float2 *)args.partial_state)[work.partial + row] = make_float2(state.max[h], state.sum[h]);
  }
  state.begun = true;
  rows_reset<D>(rows);
}

template <class T, class S, int D>
GPU_FN void attend_item(const gpu_attention_t &args, const decode_work_t &work, const T *from,
                        typename decode_t<S, D>::shared_t *shared) {
  constexpr int STAGES = decode_t<S, D>::STAGES;
  const logit_rule_t rule = {mul_rn(args.scale, kv_scale(args.kv, args.layer, 0, work.kv_head)),
                             args.softcap};
  int block = 0;
  for (int i = 0; i < STAGES - 1; i++) load_slab<S, D>(args, work, i, &block, shared);
  query_t<T, D> query = {from, work.heads, args.kv.head_dim, {}};
  if constexpr (query_t<T, D>::KEPT) {
    UNROLL
    for (int k = 0; k < D / 16; k++) load_query<T, S, D>(query, k, query.fragment[k]);
  }
  attention_rows_t<D> rows;
  rows_reset<D>(rows);
  item_state_t state = {{-INFINITY, -INFINITY}, {0.0f, 0.0f}, false};
  int end = piece_end(work.first_slab * SLAB);
  for (int i = 0; i < work.count; i++) {
    load_slab<S, D>(args, work, i + STAGES - 1, &block, shared);
    cp_async_wait<STAGES - 1>();
    __syncwarp(); /* all lanes' copies of slab i are complete */
    attend_slab<T, S, D>(work, i, rule, query, shared, rows);
    __syncwarp(); /* all lanes have read slab i before its stage is written again */
    const int next = (work.first_slab + i + 1) * SLAB;
    const bool last = i + 1 == work.count;
    if (next != end && !last) continue;
    fold_piece<T, S, D>(args, work, last, state, rows);
    end = piece_end(next);
  }
  cp_async_wait<0>();
}

/* How the units of a launch, (item, KV head, tile of query heads), are counted: query heads of a KV
 * head, their tiles, units of an item, all units; and the unit that the warp is at. It lies in
 * shared memory, because large heads take all registers. */
typedef struct decode_units {
  int group, tiles, heads, count, at;
} decode_units_t;

template <class T, class S, int D>
__global__ void __launch_bounds__(decode_t<S, D>::WARPS *WARP, 2)
    decode_kernel(const gpu_attention_t args) {
  typedef decode_t<S, D> shape;
  typedef typename shape::shared_t shared_t;
  DYN_SMEM(shared_t, shared);
  SHARED(all_units, decode_units_t[shape::WARPS]);
  grid_dependency_wait();
  decode_units_t &units = all_units[threadIdx.x / WARP];
  if (threadIdx.x % WARP == 0) {
    const int group = args.num_heads / args.kv.num_kv_heads;
    const int tiles = (group + MMA_ROWS - 1) / MMA_ROWS, heads = args.kv.num_kv_heads * tiles;
    /* Few units go to as many blocks: unit u to block u % blocks. */
    units = {group, tiles, heads, args.plan.counts[0] * heads,
             (int)(blockIdx.x + gridDim.x * (threadIdx.x / WARP))};
  }
  __syncwarp();
  while (units.at < units.count) {
    const size_t width = (size_t)(args.num_heads + 2 * args.kv.num_kv_heads) * args.kv.head_dim;
    const int unit = units.at, index = unit / units.heads, skipped = unit % units.tiles * MMA_ROWS;
    const int group = units.group;
    decode_work_t work;
    work.item = args.plan.items[index];
    work.kv_head = unit % units.heads / units.tiles;
    work.head = work.kv_head * group + skipped;
    work.heads = group - skipped < MMA_ROWS ? group - skipped : MMA_ROWS;
    work.blocks = args.block_table + (size_t)work.item.row * args.block_table_stride;
    work.token = (size_t)args.query_start_loc[work.item.row];
    work.partial = (size_t)index * args.num_heads + work.head;
    work.first_slab = work.item.first / SLAB;
    work.count = (work.item.last + SLAB - 1) / SLAB - work.first_slab;
    const T *query =
        (const T *)args.qkv + work.token * width + (size_t)work.head * args.kv.head_dim;
    attend_item<T, S, D>(args, work, query, shared);
    __syncwarp();
    if (threadIdx.x % WARP == 0) units.at += gridDim.x * shape::WARPS;
    __syncwarp();
  }
  grid_launch_dependents();
}

/* Grid (R, Hq): folds the partial results of rows that were cut, in the order of their keys. */
template <class T> __global__ void combine_kernel(const gpu_attention_t args) {
  grid_dependency_wait();
  const int row = blockIdx.x, head = blockIdx.y, dim = args.kv.head_dim;
  const int first = args.plan.row_items[2 * row], count = args.plan.row_items[2 * row + 1];
  if (count <= 1) return;
  const float2 *state = (const float2 *)args.partial_state;
  T *out = (T *)args.out + ((size_t)args.query_start_loc[row] * args.num_heads + head) * dim;
  const float scale =
      kv_scale(args.kv, args.layer, 1, head / (args.num_heads / args.kv.num_kv_heads));
  for (int d = threadIdx.x; d < dim; d += blockDim.x) {
    float max = -INFINITY, sum = 0.0f, acc = 0.0f;
    for (int i = 0; i < count; i++) {
      const size_t slot = (size_t)(first + i) * args.num_heads + head;
      const fold_t fold = fold_state(max, sum, state[slot].x, state[slot].y);
      acc = fold_value(fold, acc, args.partial[slot * dim + d]);
    }
    out[d] = from_float<T>(mul_rn(acc, inverse_sum(max, sum, args.sinks, head, scale)));
  }
}

template <class T, class S, int D>
static cudaError_t decode(const gpu_attention_t &args, int32_t workers, gpu_stream_t stream) {
  typedef decode_t<S, D> shape;
  const size_t bytes = sizeof(typename shape::shared_t);
  launch_options_t overlap = {};
  overlap.may_overlap = true;
  cudaError_t status =
      cudaFuncSetAttribute((const void *)decode_kernel<T, S, D>,
                           cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
  if (status != cudaSuccess) return status;
  status = LAUNCH_WITH(overlap, (decode_kernel<T, S, D>), ((unsigned)workers),
                       (shape::WARPS * WARP), bytes, stream, args);
  if (status != cudaSuccess) return status;
  return LAUNCH_WITH(overlap, combine_kernel<T>, ((unsigned)args.rows, (unsigned)args.num_heads),
                     (128), 0, stream, args);
}

int gpu_attention_decode(const gpu_attention_t *args, int32_t workers, gpu_stream_t stream) {
  if (!kv_supported(args->kv) || args->rows < 0 || workers <= 0) return cudaErrorInvalidValue;
  if (args->num_heads <= 0 || args->num_heads % args->kv.num_kv_heads != 0)
    return cudaErrorInvalidValue;
  if (args->rows == 0) return cudaSuccess;
  return FOR_KV(args->kv, decode, *args, workers, stream);
}
