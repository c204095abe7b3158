/* ranks.cu: rows between what one device of several has and what all have together.
 *
 * One block a row, 16 bytes a thread and access, but for fp32 columns, whose cuts may be anywhere.
 * Each kernel reads and writes every byte once; bound by latency for the rows of a decode. The
 * order of a sum is that of the ranks. Measured: not yet.
 */
#include "cuda/device_code/lanes.h"
#include "cuda/kernels/ranks/ranks.h"

/* One block a row; `V` is what a thread moves, and the cuts count such. */
template <class V>
__global__ void rank_spread_kernel(V *__restrict__ out, const V *__restrict__ parts,
                                   const gpu_cuts_t cuts) {
  const size_t rows = gridDim.x, row = blockIdx.x;
  V *to = out + row * cuts.at[cuts.size];
  for (int r = 0; r < cuts.size; r++) {
    const int begin = cuts.at[r], width = cuts.at[r + 1] - begin;
    const V *from = parts + rows * begin + row * width;
    for (int i = threadIdx.x; i < width; i += blockDim.x) to[begin + i] = from[i];
  }
}

__global__ void rank_split_kernel(uint4 *__restrict__ parts, const uint4 *__restrict__ in,
                                  const gpu_cuts_t cuts) {
  const size_t rows = gridDim.x, row = blockIdx.x;
  const uint4 *from = in + row * cuts.at[cuts.size];
  for (int r = 0; r < cuts.size; r++) {
    const int begin = cuts.at[r], width = cuts.at[r + 1] - begin;
    uint4 *to = parts + rows * begin + row * width;
    for (int i = threadIdx.x; i < width; i += blockDim.x) to[i] = from[begin + i];
  }
}

__global__ void rank_take_kernel(uint4 *__restrict__ own, const uint4 *__restrict__ in,
                                 int32_t first, int32_t width, int32_t stride) {
  const uint4 *from = in + (size_t)blockIdx.x * stride + first;
  uint4 *to = own + (size_t)blockIdx.x * width;
  for (int i = threadIdx.x; i < width; i += blockDim.x) to[i] = from[i];
}

template <class T>
__global__ void rank_add_kernel(T *out, const T *__restrict__ parts, const T *residual,
                                int32_t ranks, int32_t width) {
  const size_t all = (size_t)gridDim.x * width, at = (size_t)blockIdx.x * width;
  for (int i = threadIdx.x * VECTOR; i < width; i += blockDim.x * VECTOR) {
    float sum[VECTOR], x[VECTOR];
    load_8(sum, parts + at + i);
    for (int r = 1; r < ranks; r++) {
      load_8(x, parts + r * all + at + i);
      for (int j = 0; j < VECTOR; j++) sum[j] = add_rn(sum[j], x[j]);
    }
    if (residual != nullptr) {
      load_8(x, residual + at + i);
      for (int j = 0; j < VECTOR; j++) sum[j] = add_rn(sum[j], x[j]);
    }
    store_8(out + at + i, sum);
  }
}

__global__ void rank_pick_kernel(uint4 *__restrict__ out, const uint4 *__restrict__ parts,
                                 const int32_t *__restrict__ ids, const gpu_cuts_t cuts,
                                 int32_t width) {
  const int32_t id = ids[blockIdx.x];
  int owner = 0;
  while (owner < cuts.size && id >= cuts.at[owner + 1]) owner++;
  const bool valid = id >= 0 && owner < cuts.size;
  const size_t at = (size_t)blockIdx.x * width;
  const uint4 *from = parts + (valid ? owner : 0) * (size_t)gridDim.x * width + at;
  for (int i = threadIdx.x; i < width; i += blockDim.x)
    out[at + i] = valid ? from[i] : make_uint4(0, 0, 0, 0);
}

/* Cuts in units of GPU_ROW_ALIGN columns; false if one is no multiple. */
static bool in_vectors(const gpu_cuts_t &cuts, gpu_cuts_t *out) {
  out->size = cuts.size;
  for (int32_t r = 0; r <= cuts.size; r++) {
    if (cuts.at[r] % GPU_ROW_ALIGN != 0) return false;
    out->at[r] = cuts.at[r] / GPU_ROW_ALIGN;
  }
  return true;
}

int gpu_rank_take(void *own, const void *in, int32_t first, int32_t width, int32_t stride,
                  int32_t rows, gpu_stream_t stream) {
  if ((first | width | stride) % GPU_ROW_ALIGN != 0 || rows < 0) return cudaErrorInvalidValue;
  if (rows == 0 || width == 0) return cudaSuccess;
  return LAUNCH(rank_take_kernel, ((unsigned)rows), (row_threads(width)), 0, stream, (uint4 *)own,
                (const uint4 *)in, first / GPU_ROW_ALIGN, width / GPU_ROW_ALIGN,
                stride / GPU_ROW_ALIGN);
}

int gpu_rank_spread(void *out, const void *parts, const gpu_cuts_t *cuts, int32_t rows,
                    gpu_stream_t stream) {
  gpu_cuts_t vectors;
  if (!in_vectors(*cuts, &vectors) || rows < 0) return cudaErrorInvalidValue;
  if (rows == 0) return cudaSuccess;
  return LAUNCH(rank_spread_kernel<uint4>, ((unsigned)rows), (row_threads(cuts->at[1])), 0, stream,
                (uint4 *)out, (const uint4 *)parts, vectors);
}

int gpu_rank_split(void *parts, const void *in, const gpu_cuts_t *cuts, int32_t rows,
                   gpu_stream_t stream) {
  gpu_cuts_t vectors;
  if (!in_vectors(*cuts, &vectors) || rows < 0) return cudaErrorInvalidValue;
  if (rows == 0) return cudaSuccess;
  return LAUNCH(rank_split_kernel, ((unsigned)rows), (row_threads(cuts->at[1])), 0, stream,
                (uint4 *)parts, (const uint4 *)in, vectors);
}

int gpu_rank_spread_floats(float *out, const float *parts, const gpu_cuts_t *cuts, int32_t rows,
                           gpu_stream_t stream) {
  if (rows <= 0) return rows < 0 ? cudaErrorInvalidValue : cudaSuccess;
  return LAUNCH(rank_spread_kernel<float>, ((unsigned)rows), (row_threads(cuts->at[1])), 0, stream,
                out, parts, *cuts);
}

template <class T>
static cudaError_t add(void *out, const void *parts, const void *residual, int32_t ranks,
                       int32_t width, int32_t rows, gpu_stream_t stream) {
  return LAUNCH(rank_add_kernel<T>, ((unsigned)rows), (row_threads(width)), 0, stream, (T *)out,
                (const T *)parts, (const T *)residual, ranks, width);
}

int gpu_rank_add(dtype_t dtype, void *out, const void *parts, const void *residual, int32_t ranks,
                 int32_t width, int32_t rows, gpu_stream_t stream) {
  if (width % GPU_ROW_ALIGN != 0 || width <= 0 || rows < 0 || ranks < 1)
    return cudaErrorInvalidValue;
  if (rows == 0) return cudaSuccess;
  return FOR_DTYPE(dtype, add, out, parts, residual, ranks, width, rows, stream);
}

int gpu_rank_pick(void *out, const void *parts, const int32_t *ids, const gpu_cuts_t *cuts,
                  int32_t width, int32_t tokens, gpu_stream_t stream) {
  if (width % GPU_ROW_ALIGN != 0 || width <= 0 || tokens < 0) return cudaErrorInvalidValue;
  if (tokens == 0) return cudaSuccess;
  return LAUNCH(rank_pick_kernel, ((unsigned)tokens), (row_threads(width)), 0, stream, (uint4 *)out,
                (const uint4 *)parts, ids, *cuts, width / GPU_ROW_ALIGN);
}
