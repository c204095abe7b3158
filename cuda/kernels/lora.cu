/* lora.cu: low-rank adapters, see lora.h: a shrink to the rank and an expansion, for eight tokens
 * at a time.
 *
 * Shrink: a warp makes one r of eight tokens, so A is read once for neighbours with one adapter:
 * rank * K * 4 bytes for each eight tokens, and their inputs, which the warps share in L1. Expand:
 * a thread makes two columns of eight tokens, N * rank * 4 bytes. In a decode step both are a few
 * thousandths of the layer's own weights and bound by latency. Measured: not yet.
 */
#include "cuda/kernels/lora.h"

#include "cuda/device_code/lanes.h"

enum { TILE = 8, SHRINK_WARPS = 8, EXPAND_THREADS = 128, CHUNK = GPU_LORA_RANK_ALIGN };

/* Adapters and ranks of a tile's tokens; slot 0 where there is nothing to do. */
typedef struct tile {
  int32_t slot[TILE], rank[TILE], rank_max;
  bool changes;
} tile_t;

GPU_FN tile_t load_tile(const gpu_lora_t &lora, int first) {
  tile_t tile = {};
  UNROLL
  for (int i = 0; i < TILE; i++) {
    int token = first + i < lora.tokens ? first + i : -1;
    if (token >= 0 && lora.selected != nullptr) token = lora.selected[token];
    const int32_t slot = token >= 0 ? lora.adapters[token] : 0;
    if (lora.changes[slot] != 0) tile.slot[i] = slot;
    tile.rank[i] = lora.ranks[tile.slot[i]];
    if (tile.rank[i] > tile.rank_max) tile.rank_max = tile.rank[i];
    tile.changes = tile.changes || tile.slot[i] > 0;
  }
  return tile;
}

/* Adds in[t, at .. at + 8) * A[rank_row, the same] for the tokens whose rank reaches rank_row. */
template <class T>
GPU_FN void shrink_step(const gpu_lora_t &lora, const tile_t &tile, int first, int rank_row, int at,
                        float (&sums)[TILE]) {
  float weights[VECTOR], x[VECTOR];
  int32_t loaded = 0;
  UNROLL
  for (int i = 0; i < TILE; i++) {
    if (rank_row >= tile.rank[i]) continue;
    if (tile.slot[i] != loaded) {
      loaded = tile.slot[i];
      /* Rows are numbered in 32 bits: in 64 the registers would cost the fourth block. */
      const int number = (loaded - 1) * lora.stride + rank_row;
      const float *row = lora.a + (size_t)number * lora.cols + at;
      const float4 low = *(const float4 *)row, high = *(const float4 *)(row + 4);
      weights[0] = low.x, weights[1] = low.y, weights[2] = low.z, weights[3] = low.w;
      weights[4] = high.x, weights[5] = high.y, weights[6] = high.z, weights[7] = high.w;
    }
    load_8(x, (const T *)lora.in + (size_t)(first + i) * lora.cols + at);
    UNROLL
    for (int j = 0; j < VECTOR; j++) sums[i] = fma_rn(x[j], weights[j], sums[i]);
  }
}

/* An embedding's input has one 1: its product is an element of A. */
GPU_FN void pick(const gpu_lora_t &lora, const tile_t &tile, int first, int rank_row, int lane) {
  UNROLL
  for (int i = 0; i < TILE; i++) {
    if (lane != i || rank_row >= tile.rank[i]) continue;
    const int32_t id = lora.ids[first + i];
    const size_t row = (size_t)(tile.slot[i] - 1) * lora.stride + rank_row;
    lora.low[(size_t)(first + i) * lora.stride + rank_row] =
        id >= 0 && id < lora.cols ? lora.a[row * lora.cols + id] * lora.scale : 0.0f;
  }
}

template <class T>
__global__ void __launch_bounds__(SHRINK_WARPS *WARP) shrink_kernel(const gpu_lora_t lora) {
  const int first = blockIdx.x * TILE, r = blockIdx.y * SHRINK_WARPS + threadIdx.x / WARP;
  const int lane = threadIdx.x % WARP;
  const tile_t tile = load_tile(lora, first);
  if (r >= tile.rank_max) return;
  if (lora.ids != nullptr) {
    pick(lora, tile, first, r, lane);
    return;
  }
  float sums[TILE] = {};
  for (int at = lane * VECTOR; at < lora.cols; at += WARP * VECTOR)
    shrink_step<T>(lora, tile, first, r, at, sums);
  UNROLL
  for (int i = 0; i < TILE; i++) {
    const float sum = warp_sum(sums[i]);
    if (lane == 0 && r < tile.rank[i]) lora.low[(size_t)(first + i) * lora.stride + r] = sum;
  }
}

typedef struct expand_shared {
  float low[TILE][GPU_LORA_RANK_MAX];
} expand_shared_t;

/* The tile's rows of `low`, with zeroes up to a whole chunk behind each rank. */
GPU_FN void load_low(const gpu_lora_t &lora, const tile_t &tile, int first,
                     expand_shared_t *shared) {
  UNROLL
  for (int i = 0; i < TILE; i++)
    for (int r = threadIdx.x; r < (tile.rank[i] + CHUNK - 1) / CHUNK * CHUNK; r += EXPAND_THREADS)
      shared->low[i][r] = r < tile.rank[i] ? lora.low[(size_t)(first + i) * lora.stride + r] : 0.0f;
  __syncthreads();
}

/* Adds low[t, rank_row .. rank_row + 4) * B[n, the same] of the columns n and n + 1. */
GPU_FN void expand_step(const gpu_lora_t &lora, const tile_t &tile, const expand_shared_t *shared,
                        int n, int rank_row, float (&sums)[TILE][2]) {
  float4 weights[2] = {};
  int32_t loaded = 0;
  UNROLL
  for (int i = 0; i < TILE; i++) {
    if (rank_row >= tile.rank[i]) continue;
    if (tile.slot[i] != loaded) {
      loaded = tile.slot[i];
      const float *row = lora.b + ((size_t)(loaded - 1) * lora.rows + n) * lora.stride + rank_row;
      weights[0] = *(const float4 *)row, weights[1] = *(const float4 *)(row + lora.stride);
    }
    const float *low = &shared->low[i][rank_row];
    UNROLL
    for (int h = 0; h < 2; h++) {
      sums[i][h] = fma_rn(low[0], weights[h].x, sums[i][h]);
      sums[i][h] = fma_rn(low[1], weights[h].y, sums[i][h]);
      sums[i][h] = fma_rn(low[2], weights[h].z, sums[i][h]);
      sums[i][h] = fma_rn(low[3], weights[h].w, sums[i][h]);
    }
  }
}

/* Adds two columns of a token to its logits. */
GPU_FN void add_logits(const gpu_lora_t &lora, int slot, int row, int n, const float (&sums)[2]) {
  float *out = (float *)lora.out + (size_t)row * lora.rows + n;
  const size_t at = (size_t)(slot - 1) * lora.rows + n;
  UNROLL
  for (int h = 0; h < 2; h++) {
    if (n + h >= lora.rows) continue;
    const float plain = out[h] - (lora.bias != nullptr ? lora.bias[n + h] : 0.0f);
    out[h] += fma_rn(lora.factors[at + h], plain, sums[h]) + lora.offsets[at + h];
  }
}

/* The same to the output of a layer. */
template <class T>
GPU_FN void add_columns(const gpu_lora_t &lora, int slot, size_t at, int n, float (&sums)[2]) {
  const float *factors = lora.factors + (size_t)(slot - 1) * lora.rows + n;
  const float *offsets = lora.offsets + (size_t)(slot - 1) * lora.rows + n;
  uint32_t *out = (uint32_t *)((T *)lora.out + at);
  if (lora.plain != nullptr) {
    const float2 plain = unpack<T>(*(const uint32_t *)((const T *)lora.plain + at));
    sums[0] = fma_rn(factors[0], plain.x, sums[0]);
    sums[1] = fma_rn(factors[1], plain.y, sums[1]);
  }
  const float2 before = unpack<T>(*out);
  *out = pack<T>(before.x + (sums[0] + offsets[0]), before.y + (sums[1] + offsets[1]));
}

template <class T>
__global__ void __launch_bounds__(EXPAND_THREADS) expand_kernel(const gpu_lora_t lora) {
  DYN_SMEM(expand_shared_t, shared);
  const int first = blockIdx.x * TILE, n = (blockIdx.y * EXPAND_THREADS + threadIdx.x) * 2;
  const tile_t tile = load_tile(lora, first);
  if (!tile.changes) return;
  load_low(lora, tile, first, shared);
  if (n >= lora.rows) return;
  float sums[TILE][2] = {};
  for (int r = 0; r < tile.rank_max; r += CHUNK) expand_step(lora, tile, shared, n, r, sums);
  UNROLL
  for (int i = 0; i < TILE; i++) {
    if (tile.slot[i] == 0) continue;
    if (lora.logits)
      add_logits(lora, tile.slot[i], first + i, n, sums[i]);
    else
      add_columns<T>(lora, tile.slot[i], (size_t)(first + i) * lora.width + lora.column + n, n,
                     sums[i]);
  }
}

template <class T> static cudaError_t lora(const gpu_lora_t &lora, gpu_stream_t stream) {
  const unsigned tiles = ((unsigned)lora.tokens + TILE - 1) / TILE;
  const unsigned ranks = ((unsigned)lora.stride + SHRINK_WARPS - 1) / SHRINK_WARPS;
  const unsigned columns = (((unsigned)lora.rows + 1) / 2 + EXPAND_THREADS - 1) / EXPAND_THREADS;
  cudaError_t error =
      LAUNCH(shrink_kernel<T>, (tiles, ranks), (SHRINK_WARPS * WARP), 0, stream, lora);
  if (error) return error;
  return LAUNCH(expand_kernel<T>, (tiles, columns), (EXPAND_THREADS), sizeof(expand_shared_t),
                stream, lora);
}

int gpu_lora(dtype_t dtype, const gpu_lora_t *args, gpu_stream_t stream) {
  const bool in_pairs = args->rows % 2 == 0 && args->column % 2 == 0 && args->width % 2 == 0;
  if (args->cols <= 0 || args->rows <= 0 || args->column < 0 || args->tokens < 0 ||
      (args->ids == nullptr && args->cols % GPU_ROW_ALIGN != 0) ||
      (!args->logits && (!in_pairs || args->column + args->rows > args->width)))
    return cudaErrorInvalidValue;
  if (args->stride <= 0 || args->stride > GPU_LORA_RANK_MAX ||
      args->stride % GPU_LORA_RANK_ALIGN != 0)
    return cudaErrorInvalidValue;
  if (args->tokens == 0) return cudaSuccess;
  return FOR_DTYPE(dtype, lora, *args, stream);
}
