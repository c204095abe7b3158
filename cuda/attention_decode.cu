/* attention_decode.cu: paged attention of requests with one query token, split over their keys.
 *
 * q (R, Hq, D), cache (kernels.h) -> out (R, Hq, D). The query heads of one KV head, up to 16, are
 * the 16 rows of an mma tile, so K and V are read once per KV head: sum(len) * 2 * Hk * D * 2
 * bytes, which bounds it (decode is a read stream; Dao et al. 2023, flash-decoding). A persistent
 * grid walks items x KV heads. In a block four warps take slabs of 16 keys in turn, each with its
 * own cp.async ring and its own softmax state, and are merged in order at the end of the item; rows
 * cut into several items leave fp32 partials, which combine_kernel sums in order: no atomics, the
 * same bits every time. Measured: not yet.
 */
#include "cuda/attention.h"
#include "cuda/softmax.h"

enum { DECODE_WARPS = 4, DECODE_THREADS = DECODE_WARPS * WARP, SLAB = 16 };

template <int D> struct ring_t { static constexpr int STAGES = D <= 128 ? 3 : 2; };

template <int D> struct decode_merge_t {
  float acc[DECODE_WARPS][MMA_ROWS][D + 8]; /* + 8: no bank conflicts for pairs */
  float max[DECODE_WARPS][MMA_ROWS], sum[DECODE_WARPS][MMA_ROWS];
  float factor[DECODE_WARPS][MMA_ROWS];
  float total_max[MMA_ROWS], total_sum[MMA_ROWS];
};

template <class T, int D> union decode_shared_t {
  uint16_t ring[DECODE_WARPS][ring_t<D>::STAGES][2][SLAB * D];
  decode_merge_t<D> merge;
};

/* One item's keys for one KV head, as a warp walks them: its slab number i is first + 4 i. */
typedef struct slab_walk {
  const int32_t *blocks; /* block table of the request */
  int32_t first_slab, count;
  int32_t first_key, last_key;
  int32_t kv_head;
} slab_walk_t;

/* Starts the copy of own slab i; all lanes call it, also past the end (an empty group). `block` of
 * lane l is the block of own slab l of the current 32. */
template <class T, int D>
GPU_FN void load_slab(const gpu_attention_t &a, const slab_walk_t &walk, int i, int *block,
                      decode_shared_t<T, D> *shared) {
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
  const int size = a.kv.block_size;
  if (i % WARP == 0 && i < walk.count) {
    const int key = (walk.first_slab + (i + lane) * DECODE_WARPS) * SLAB;
    *block = i + lane < walk.count ? walk.blocks[key / size] : 0;
  }
  const int id = __shfl_sync(FULL_WARP, *block, i % WARP);
  if (i < walk.count) {
    const int key = (walk.first_slab + i * DECODE_WARPS) * SLAB;
    const size_t rows = (size_t)(key % size) * GPU_KV_LANE;
    const T *k = (const T *)a.kv.base + kv_head_at(a.kv, a.layer, id, 0, walk.kv_head) + rows;
    const T *v = (const T *)a.kv.base + kv_head_at(a.kv, a.layer, id, 1, walk.kv_head) + rows;
    uint16_t(&to)[2][SLAB * D] = shared->ring[warp][i % ring_t<D>::STAGES];
    UNROLL
    for (int j = 0; j < SLAB * D / VECTOR / WARP; j++) {
      const int chunk = j * WARP + lane, part = chunk / (SLAB * 8), row = chunk / 8 % SLAB;
      const bool valid = key + row >= walk.first_key && key + row < walk.last_key;
      const size_t from = (size_t)part * size * GPU_KV_LANE + chunk % (SLAB * 8) * VECTOR;
      cp_async_16(to[0] + chunk * VECTOR, k + from, valid ? 16 : 0);
      cp_async_16(to[1] + chunk * VECTOR, v + from, valid ? 16 : 0);
    }
  }
  cp_async_commit();
}

/* Query fragments straight from memory: 16 rows of heads, zero beyond the group and the head. */
template <class T, int D>
GPU_FN void load_query(const T *query, int rows, int dim, uint32_t (&fragment)[D / 16][4]) {
  const int lane = threadIdx.x % WARP;
  UNROLL
  for (int k = 0; k < D / 16; k++) {
    for (int i = 0; i < 4; i++) {
      const int row = lane / 4 + (i & 1) * 8, column = k * 16 + (i >> 1) * 8 + lane % 4 * 2;
      const bool valid = row < rows && column < dim;
      fragment[k][i] = 0;
      if (valid) fragment[k][i] = *(const uint32_t *)(query + (size_t)row * dim + column);
    }
  }
}

template <class T, int D>
GPU_FN void attend_slab(const gpu_attention_t &a, const slab_walk_t &walk, int i,
                        const uint32_t (&query)[D / 16][4], const decode_shared_t<T, D> *shared,
                        attention_rows_t<D> &rows) {
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
  const uint16_t(&tile)[2][SLAB * D] = shared->ring[warp][i % ring_t<D>::STAGES];
  const int key = (walk.first_slab + i * DECODE_WARPS) * SLAB;
  float logits[2][4] = {};
  score_keys<T, D, SLAB>(logits[0], logits[1], query, (const T *)tile[0], 0);
  for (int n = 0; n < 2; n++) {
    for (int j = 0; j < 4; j++) {
      const int at = key + n * 8 + lane % 4 * 2 + (j & 1);
      const bool visible = at >= walk.first_key && at < walk.last_key;
      logits[n][j] = visible ? score_logit(logits[n][j], a.scale, a.softcap) : -INFINITY;
    }
  }
  softmax_step<D, 2>(rows, logits);
  uint32_t weights[4];
  pack_weights<T>(weights, logits[0], logits[1]);
  add_values<T, D, SLAB>(rows, weights, (const T *)tile[1], 0);
}

/* This warp's share of an item. */
template <class T, int D>
GPU_FN void attend_item(const gpu_attention_t &a, const slab_walk_t &walk, const T *query,
                        int heads, decode_shared_t<T, D> *shared, attention_rows_t<D> &rows) {
  constexpr int STAGES = ring_t<D>::STAGES;
  int block = 0;
  for (int i = 0; i < STAGES - 1; i++) load_slab<T, D>(a, walk, i, &block, shared);
  uint32_t fragment[D / 16][4];
  load_query<T, D>(query, heads, a.kv.head_dim, fragment);
  for (int i = 0; i < walk.count; i++) {
    load_slab<T, D>(a, walk, i + STAGES - 1, &block, shared);
    cp_async_wait<STAGES - 1>();
    __syncwarp(); /* all lanes' copies of slab i have landed */
    attend_slab<T, D>(a, walk, i, fragment, shared, rows);
    __syncwarp(); /* all lanes have read slab i before its stage is written again */
  }
  cp_async_wait<0>();
  softmax_finish<D>(rows);
}

/* The four warps' states into shared memory, and each row's factors; barriers inside. */
template <int D>
GPU_FN void merge_warps(const attention_rows_t<D> &rows, decode_merge_t<D> *merge) {
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
  __syncthreads(); /* every warp is done with the ring, which is the same memory */
  for (int h = 0; h < 2; h++) {
    const int row = lane / 4 + h * 8;
    UNROLL
    for (int j = 0; j < D / 8; j++)
      *(float2 *)&merge->acc[warp][row][j * 8 + lane % 4 * 2] =
          make_float2(rows.acc[j][2 * h], rows.acc[j][2 * h + 1]);
    if (lane % 4 == 0) {
      merge->max[warp][row] = rows.max[h];
      merge->sum[warp][row] = rows.sum[h];
    }
  }
  __syncthreads();
  if (threadIdx.x < MMA_ROWS) {
    const int row = threadIdx.x;
    float max = -INFINITY, sum = 0.0f;
    for (int w = 0; w < DECODE_WARPS; w++) max = fmaxf(max, merge->max[w][row]);
    for (int w = 0; w < DECODE_WARPS; w++) {
      merge->factor[w][row] = exp2f(merge->max[w][row] - max);
      sum += merge->factor[w][row] * merge->sum[w][row];
    }
    merge->total_max[row] = max;
    merge->total_sum[row] = sum;
  }
  __syncthreads();
}

/* Writes the output of a whole row, or the partial result of an item. `head`: first of `heads`. */
template <class T, int D>
GPU_FN void write_item(const gpu_attention_t &a, int index, const gpu_decode_item_t &item, int head,
                       int heads, const decode_merge_t<D> *merge) {
  const int dim = a.kv.head_dim;
  T *out = (T *)a.out + ((size_t)a.query_start_loc[item.row] * a.num_heads + head) * dim;
  const size_t slot = (size_t)index * a.num_heads + head;
  for (int i = threadIdx.x; i < heads * dim; i += DECODE_THREADS) {
    const int row = i / dim, column = i % dim;
    float sum = 0.0f;
    for (int w = 0; w < DECODE_WARPS; w++)
      sum += merge->factor[w][row] * merge->acc[w][row][column];
    const float max = merge->total_max[row], total = merge->total_sum[row];
    if (item.whole) {
      out[i] = from_float<T>(sum * inverse_sum(max, total, a.sinks, head + row));
      continue;
    }
    a.partial[slot * dim + i] = sum;
    if (column == 0) ((float2 *)a.partial_state)[slot + row] = make_float2(max, total);
  }
  __syncthreads(); /* the next item's copies overwrite merge */
}

template <class T, int D>
__global__ void __launch_bounds__(DECODE_THREADS) decode_kernel(const gpu_attention_t a) {
  typedef decode_shared_t<T, D> shared_t;
  DYN_SMEM(shared_t, shared);
  const int group = a.num_heads / a.kv.num_kv_heads, warp = threadIdx.x / WARP;
  const int tiles = (group + MMA_ROWS - 1) / MMA_ROWS, heads_units = a.kv.num_kv_heads * tiles;
  const int64_t units = (int64_t)a.plan.counts[0] * heads_units;
  const size_t width = (size_t)(a.num_heads + 2 * a.kv.num_kv_heads) * a.kv.head_dim;
  for (int64_t unit = blockIdx.x; unit < units; unit += gridDim.x) {
    const int index = (int)(unit / heads_units), kv_head = (int)(unit % heads_units) / tiles;
    const int skipped = (int)(unit % tiles) * MMA_ROWS, head = kv_head * group + skipped;
    const int heads = group - skipped < MMA_ROWS ? group - skipped : MMA_ROWS;
    const gpu_decode_item_t item = a.plan.items[index];
    const int slabs = (item.last + SLAB - 1) / SLAB, first = item.first / SLAB + warp;
    const int count = first < slabs ? (slabs - first + DECODE_WARPS - 1) / DECODE_WARPS : 0;
    const slab_walk_t walk = {a.block_table + (size_t)item.row * a.block_table_stride,
                              first,
                              count,
                              item.first,
                              item.last,
                              kv_head};
    const T *query = (const T *)a.qkv + (size_t)a.query_start_loc[item.row] * width +
                     (size_t)head * a.kv.head_dim;
    attention_rows_t<D> rows;
    rows_reset<D>(rows);
    attend_item<T, D>(a, walk, query, heads, shared, rows);
    merge_warps<D>(rows, &shared->merge);
    write_item<T, D>(a, index, item, head, heads, &shared->merge);
  }
}

/* Grid (R, Hq): sums the partial results of rows that were cut, in the order of their keys. */
template <class T> __global__ void combine_kernel(const gpu_attention_t a) {
  const int row = blockIdx.x, head = blockIdx.y, dim = a.kv.head_dim;
  const int first = a.plan.row_items[2 * row], count = a.plan.row_items[2 * row + 1];
  if (count <= 1) return;
  const float2 *state = (const float2 *)a.partial_state;
  float max = -INFINITY, sum = 0.0f;
  for (int i = 0; i < count; i++)
    max = fmaxf(max, state[(size_t)(first + i) * a.num_heads + head].x);
  for (int i = 0; i < count; i++) {
    const float2 s = state[(size_t)(first + i) * a.num_heads + head];
    sum += exp2f(s.x - max) * s.y;
  }
  const float inverse = inverse_sum(max, sum, a.sinks, head);
  T *out = (T *)a.out + ((size_t)a.query_start_loc[row] * a.num_heads + head) * dim;
  for (int d = threadIdx.x; d < dim; d += blockDim.x) {
    float acc = 0.0f;
    for (int i = 0; i < count; i++) {
      const size_t slot = (size_t)(first + i) * a.num_heads + head;
      acc += exp2f(state[slot].x - max) * a.partial[slot * dim + d];
    }
    out[d] = from_float<T>(acc * inverse);
  }
}

template <class T, int D>
static cudaError_t decode(const gpu_attention_t &a, int32_t workers, gpu_stream_t stream) {
  const size_t bytes = sizeof(decode_shared_t<T, D>);
  cudaError_t status = cudaFuncSetAttribute(
      (const void *)decode_kernel<T, D>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
  if (status != cudaSuccess) return status;
  status = LAUNCH((decode_kernel<T, D>), ((unsigned)workers), (DECODE_THREADS), bytes, stream, a);
  if (status != cudaSuccess) return status;
  return LAUNCH(combine_kernel<T>, ((unsigned)a.rows, (unsigned)a.num_heads), (128), 0, stream, a);
}

template <class T>
static cudaError_t decode_size(const gpu_attention_t &a, int32_t workers, gpu_stream_t stream) {
  switch (kv_padded(a.kv.head_dim)) {
  case 64: return decode<T, 64>(a, workers, stream);
  case 128: return decode<T, 128>(a, workers, stream);
  case 256: return decode<T, 256>(a, workers, stream);
  }
  return cudaErrorInvalidValue;
}

int gpu_attention_decode(const gpu_attention_t *args, int32_t workers, gpu_stream_t stream) {
  if (!kv_supported(args->kv) || args->rows < 0 || workers <= 0) return cudaErrorInvalidValue;
  if (args->num_heads <= 0 || args->num_heads % args->kv.num_kv_heads != 0)
    return cudaErrorInvalidValue;
  if (args->rows == 0) return cudaSuccess;
  return FOR_DTYPE(args->kv.dtype, decode_size, *args, workers, stream);
}
