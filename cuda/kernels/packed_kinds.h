/* packed_kinds.h: the kinds of packed weights for which there are kernels, as constants.
 *
 * Host functions. A kind that packed_form (cuda/packed.h) makes and that is not here is refused by
 * the launch.
 */
#ifndef INFERD_CUDA_KERNELS_PACKED_KINDS_H
#define INFERD_CUDA_KERNELS_PACKED_KINDS_H

#include "cuda/device_code/kernel_types.h"

#include <cuda_runtime_api.h>

template <gpu_codes_t CODES_, gpu_scales_t SCALES_> struct packed_kind_t {
  enum { CODES = CODES_, SCALES = SCALES_ };
};

/* Each calls launch(packed_kind_t of the matrix): codes of 4 bits; of 8 bits and e4m3; all. */
template <class F> cudaError_t for_packed_4(const gpu_packed_t &packed, const F &launch) {
  switch (packed.scales) {
  case GPU_SCALES_F32: return launch(packed_kind_t<GPU_CODES_4, GPU_SCALES_F32>());
  case GPU_SCALES_F16: return launch(packed_kind_t<GPU_CODES_4, GPU_SCALES_F16>());
  case GPU_SCALES_TWO_LEVEL: return launch(packed_kind_t<GPU_CODES_4, GPU_SCALES_TWO_LEVEL>());
  default: return launch(packed_kind_t<GPU_CODES_4, GPU_SCALES_EXPONENT>());
  }
}

template <class F> cudaError_t for_packed_8(const gpu_packed_t &packed, const F &launch) {
  const bool is_e4m3 = packed.codes == GPU_CODES_E4M3;
  if (is_e4m3 && packed.scales == GPU_SCALES_F32)
    return launch(packed_kind_t<GPU_CODES_E4M3, GPU_SCALES_F32>());
  if (is_e4m3) return cudaErrorInvalidValue;
  switch (packed.scales) {
  case GPU_SCALES_F32: return launch(packed_kind_t<GPU_CODES_8, GPU_SCALES_F32>());
  case GPU_SCALES_F16: return launch(packed_kind_t<GPU_CODES_8, GPU_SCALES_F16>());
  case GPU_SCALES_TWO_LEVEL: return launch(packed_kind_t<GPU_CODES_8, GPU_SCALES_TWO_LEVEL>());
  default: return cudaErrorInvalidValue;
  }
}

template <class F> cudaError_t for_packed_kind(const gpu_packed_t &packed, const F &launch) {
  return packed.codes == GPU_CODES_4 ? for_packed_4(packed, launch) : for_packed_8(packed, launch);
}

#endif
