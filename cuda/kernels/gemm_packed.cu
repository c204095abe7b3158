/* gemm_packed.cu: linear layers and embeddings whose weights are packed: 4 or 8 bits, or e4m3.
 *
 * Up to PACKED_CHUNKED_ROWS_MAX rows as gemm_skinny.cu, in launches of 32 (packed_chunks.h), beyond
 * as gemm_tiled.cu, with their sums: the bits are those of the weights unpacked to the type of the
 * activations. Measured: not yet.
 */
#include "cuda/kernels/packed_chunks.h"
#include "cuda/kernels/packed_tiled_parts.h"

template <class T, int CODES>
__global__ void __launch_bounds__(TILED_THREADS) packed_tiled_kernel(const gpu_skinny_t args) {
  DYN_SMEM(tiled_shared_t, shared);
  packed_block<T, CODES>(args, blockIdx.y * SIDE, shared);
}

template <class T, int CODES>
__global__ void packed_embed_kernel(T *out, const gpu_table_t table, const gpu_packed_rows_t rows) {
  const int64_t id = (int64_t)rows.ids[blockIdx.x] + rows.offset;
  const bool valid = id >= 0 && id < table.rows;
  if (rows.adds && !valid) return;
  T *to = out + (size_t)blockIdx.x * table.width;
  for (int i = threadIdx.x * VECTOR; i < table.width; i += blockDim.x * VECTOR) {
    alignas(16) T w[VECTOR] = {};
    float v[VECTOR] = {}, left[VECTOR] = {};
    if (valid) {
      uint2 codes;
      raw_scale_t scale;
      load_packed_8<CODES>(table.packed, table.values, (int)id, i, &codes, &scale);
      store_16(w, unpack_8<T, CODES, ANY_SCALES, GPU_UNPACK_STEPS>(table.packed, codes, scale));
    }
    if (rows.adds) load_8(left, to + i);
    for (int j = 0; j < VECTOR; j++) {
      v[j] = mul_rn(to_float(w[j]), rows.scale);
      if (rows.adds) v[j] = add_rn(left[j], v[j]);
    }
    store_8(to + i, v);
  }
}

/* ---- launches ---- */

template <class T, int CODES>
static cudaError_t tiled(const gpu_skinny_t &args, gpu_stream_t stream) {
  const size_t bytes = sizeof(tiled_shared_t);
  const cudaError_t status =
      cudaFuncSetAttribute((const void *)packed_tiled_kernel<T, CODES>,
                           cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
  if (status != cudaSuccess) return status;
  const unsigned columns = (unsigned)((weight_tiles(args) + SIDE / 16 - 1) / (SIDE / 16));
  return LAUNCH((packed_tiled_kernel<T, CODES>),
                (columns, (unsigned)((args.rows + SIDE - 1) / SIDE)), (TILED_THREADS), bytes,
                stream, args);
}

template <class T> static cudaError_t linear(const gpu_skinny_t &args, gpu_stream_t stream) {
  switch (args.packed.codes) {
  case GPU_CODES_4: return tiled<T, GPU_CODES_4>(args, stream);
  case GPU_CODES_8: return tiled<T, GPU_CODES_8>(args, stream);
  case GPU_CODES_TABLE: return tiled<T, GPU_CODES_TABLE>(args, stream);
  case GPU_CODES_E2M1: return tiled<T, GPU_CODES_E2M1>(args, stream);
  default: return tiled<T, GPU_CODES_E4M3>(args, stream);
  }
}

int gpu_packed_linear(dtype_t dtype, const gpu_skinny_t *args, gpu_stream_t stream) {
  const bool normed = !args->norm || gpu_packed_norm_fits(args->rows, args->k);
  if (!linear_supported(*args) || !normed) return cudaErrorInvalidValue;
  if (args->rows == 0) return cudaSuccess;
  if (args->rows > PACKED_CHUNKED_ROWS_MAX) return FOR_DTYPE(dtype, linear, *args, stream);
  const bool is_8 = args->packed.codes == GPU_CODES_8 || args->packed.codes == GPU_CODES_E4M3;
  return is_8 ? packed_chunks_8(dtype, *args, stream) : packed_chunks_4(dtype, *args, stream);
}

template <class T, int CODES>
static cudaError_t embed_of(void *out, const gpu_table_t &table, const gpu_packed_rows_t &rows,
                            gpu_stream_t stream) {
  return LAUNCH((packed_embed_kernel<T, CODES>), ((unsigned)rows.tokens),
                (row_threads(table.width)), 0, stream, (T *)out, table, rows);
}

template <class T>
static cudaError_t embed(void *out, const gpu_table_t &table, const gpu_packed_rows_t &rows,
                         gpu_stream_t stream) {
  switch (table.packed.codes) {
  case GPU_CODES_4: return embed_of<T, GPU_CODES_4>(out, table, rows, stream);
  case GPU_CODES_8: return embed_of<T, GPU_CODES_8>(out, table, rows, stream);
  case GPU_CODES_TABLE: return embed_of<T, GPU_CODES_TABLE>(out, table, rows, stream);
  case GPU_CODES_E2M1: return embed_of<T, GPU_CODES_E2M1>(out, table, rows, stream);
  default: return embed_of<T, GPU_CODES_E4M3>(out, table, rows, stream);
  }
}

int gpu_packed_embed(dtype_t dtype, void *out, const gpu_table_t *table,
                     const gpu_packed_rows_t *rows, gpu_stream_t stream) {
  return FOR_DTYPE(dtype, embed, out, *table, *rows, stream);
}
