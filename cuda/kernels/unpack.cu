/* unpack.cu: rows of packed weights as numbers of the type of the activations.
 *
 * (rows, K) packed -> (count, K): for products of so many rows that the time of unpacking once is
 * little beside that of a kernel which unpacks while it multiplies. A warp has eight rows of a unit
 * of 128 columns: it loads 512 bytes side by side, and writes 64 of a row at a time. Moves K / 2 or
 * K bytes of a row in and 2 K out, which bounds it. The numbers are those of the packed kernels.
 * Measured: not yet.
 */
#include "cuda/device_code/packed.h"
#include "cuda/kernels/kernels.h"

enum { UNPACK_WARPS = 8 };

template <class T, int CODES>
__global__ void __launch_bounds__(UNPACK_WARPS *WARP)
    unpack_kernel(T *out, const gpu_packed_t packed, const void *base,
                  const gpu_unpack_rows_t rows) {
  const int units = (rows.cols + GPU_UNIT_COLS - 1) / GPU_UNIT_COLS, lane = threadIdx.x % WARP;
  const int item = blockIdx.x * UNPACK_WARPS + threadIdx.x / WARP, unit = item % units;
  const int row = item / units * GPU_PANEL_ROWS + lane / ROW_LANES;
  if (row >= rows.count) return;
  const packed_place_t place =
      packed_place<CODES, ANY_SCALES>(packed, base, rows.first + row, lane % ROW_LANES);
  const uint8_t *from = place.codes + (size_t)unit * packed.unit_bytes;
  T *to = out + (size_t)row * rows.cols;
  UNROLL
  for (int b = 0; b < unit_of<CODES>::BLOCKS; b++) {
    const uint4 codes = load_16_stream(from + b * GPU_BLOCK_BYTES);
    UNROLL
    for (int s = 0; s < unit_of<CODES>::STEPS; s++) {
      const int step = b * unit_of<CODES>::STEPS + s;
      const int column = unit * GPU_UNIT_COLS + step * STEP_COLS + lane % ROW_LANES * VECTOR;
      if (column >= rows.cols) continue;
      const raw_scale_t scale = load_scale<ANY_SCALES>(packed, place, unit, step);
      store_16(to + column, unpack_8<T, CODES, ANY_SCALES, GPU_UNPACK_STEPS>(
                                packed, codes_of_step<CODES>(codes, s), scale));
    }
  }
}

/* ---- launches ---- */

template <class T, int CODES>
static cudaError_t unpack_of(void *out, const gpu_packed_t &packed, const void *base,
                             const gpu_unpack_rows_t &rows, gpu_stream_t stream) {
  const size_t units = ((size_t)rows.cols + GPU_UNIT_COLS - 1) / GPU_UNIT_COLS;
  const size_t items = ((size_t)rows.count + GPU_PANEL_ROWS - 1) / GPU_PANEL_ROWS * units;
  return LAUNCH((unpack_kernel<T, CODES>), ((unsigned)((items + UNPACK_WARPS - 1) / UNPACK_WARPS)),
                (UNPACK_WARPS * WARP), 0, stream, (T *)out, packed, base, rows);
}

template <class T>
static cudaError_t unpack_rows(void *out, const gpu_packed_t &packed, const void *base,
                               const gpu_unpack_rows_t &rows, gpu_stream_t stream) {
  switch (packed.codes) {
  case GPU_CODES_4: return unpack_of<T, GPU_CODES_4>(out, packed, base, rows, stream);
  case GPU_CODES_8: return unpack_of<T, GPU_CODES_8>(out, packed, base, rows, stream);
  case GPU_CODES_TABLE: return unpack_of<T, GPU_CODES_TABLE>(out, packed, base, rows, stream);
  case GPU_CODES_E2M1: return unpack_of<T, GPU_CODES_E2M1>(out, packed, base, rows, stream);
  case GPU_CODES_E4M3: return unpack_of<T, GPU_CODES_E4M3>(out, packed, base, rows, stream);
  default: return cudaErrorInvalidValue;
  }
}

int gpu_unpack(dtype_t dtype, void *out, const gpu_packed_t *packed, const void *base,
               const gpu_unpack_rows_t *rows, gpu_stream_t stream) {
  if (rows->first < 0 || rows->count < 0 || rows->cols <= 0 || rows->cols % GPU_ROW_ALIGN != 0)
    return cudaErrorInvalidValue;
  if (rows->count == 0) return cudaSuccess;
  return FOR_DTYPE(dtype, unpack_rows, out, *packed, base, *rows, stream);
}
