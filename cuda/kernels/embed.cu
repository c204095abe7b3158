/* embed.cu: token embeddings and learned positions.
 *
 * x (T, width) = table (rows, width)[ids] * scale, and x += table[positions + offset]. One block a
 * token. Moves 2 rows of width * 2 bytes a token (3 when adding); bound by memory latency at the
 * sizes of a step. The product is rounded once to the activation type. Measured: not yet.
 */
#include "cuda/device_code/lanes.h"
#include "cuda/kernels/kernels.h"

template <class T>
__global__ void embed_kernel(T *out, const T *__restrict__ table, const int32_t *ids, float scale,
                             int32_t first, int32_t table_rows, int32_t width) {
  grid_dependency_begin();
  const int32_t id = ids[blockIdx.x] < first ? -1 : ids[blockIdx.x] - first;
  const bool valid = id >= 0 && id < table_rows;
  const T *from = table + (size_t)(valid ? id : 0) * width;
  T *to = out + (size_t)blockIdx.x * width;
  for (int i = threadIdx.x * VECTOR; i < width; i += blockDim.x * VECTOR) {
    float v[VECTOR] = {};
    if (valid) load_8(v, from + i);
    for (int j = 0; j < VECTOR; j++) v[j] *= scale;
    store_8(to + i, v);
  }
}

template <class T>
__global__ void embed_positions_kernel(T *out, const T *__restrict__ table,
                                       const int32_t *positions, int32_t offset, int32_t table_rows,
                                       int32_t width) {
  grid_dependency_begin();
  const int64_t row = (int64_t)positions[blockIdx.x] + offset;
  if (row < 0 || row >= table_rows) return;
  const T *from = table + (size_t)row * width;
  T *to = out + (size_t)blockIdx.x * width;
  for (int i = threadIdx.x * VECTOR; i < width; i += blockDim.x * VECTOR) {
    float left[VECTOR], right[VECTOR];
    load_8(left, to + i);
    load_8(right, from + i);
    for (int j = 0; j < VECTOR; j++) left[j] += right[j];
    store_8(to + i, left);
  }
}

template <class T>
static cudaError_t embed(void *out, const gpu_table_t &table, const int32_t *ids, float scale,
                         int32_t tokens, gpu_stream_t stream) {
  return LAUNCH_OVERLAPPED(embed_kernel<T>, ((unsigned)tokens), (row_threads(table.width)), 0,
                           stream, (T *)out, (const T *)table.values, ids, scale, table.first,
                           table.rows, table.width);
}

template <class T>
static cudaError_t embed_positions(void *out, const gpu_table_t &table, const int32_t *positions,
                                   int32_t offset, int32_t tokens, gpu_stream_t stream) {
  return LAUNCH_OVERLAPPED(embed_positions_kernel<T>, ((unsigned)tokens),
                           (row_threads(table.width)), 0, stream, (T *)out, (const T *)table.values,
                           positions, offset, table.rows, table.width);
}

int gpu_embed(dtype_t dtype, void *out, const gpu_table_t *table, const int32_t *ids, float scale,
              int32_t tokens, gpu_stream_t stream) {
  const int32_t width = table->width;
  if (width % GPU_ROW_ALIGN != 0 || width <= 0 || tokens < 0) return cudaErrorInvalidValue;
  if (tokens == 0) return cudaSuccess;
  const gpu_packed_rows_t rows = {ids, -table->first, tokens, scale, 0};
  if (table->packed.codes != GPU_CODES_PLAIN)
    return gpu_packed_embed(dtype, out, table, &rows, stream);
  return FOR_DTYPE(dtype, embed, out, *table, ids, scale, tokens, stream);
}

int gpu_embed_positions(dtype_t dtype, void *out, const gpu_table_t *table,
                        const int32_t *positions, int32_t offset, int32_t tokens,
                        gpu_stream_t stream) {
  const int32_t width = table->width;
  if (width % GPU_ROW_ALIGN != 0 || width <= 0 || tokens < 0) return cudaErrorInvalidValue;
  if (tokens == 0) return cudaSuccess;
  const gpu_packed_rows_t rows = {positions, offset, tokens, 1.0f, 1};
  if (table->packed.codes != GPU_CODES_PLAIN)
    return gpu_packed_embed(dtype, out, table, &rows, stream);
  return FOR_DTYPE(dtype, embed_positions, out, *table, positions, offset, tokens, stream);
}
