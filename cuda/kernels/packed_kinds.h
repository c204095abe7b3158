/* packed_kinds.h: the kinds of packed weights for which there are kernels, as constants.
 *
 * Host functions. packed_form (cuda/packed.h) makes no other kind; a launch refuses it.
 */
#ifndef INFERD_CUDA_KERNELS_PACKED_KINDS_H
#define INFERD_CUDA_KERNELS_PACKED_KINDS_H

#include "cuda/device_code/kernel_types.h"

#include <cuda_runtime_api.h>

template <gpu_codes_t CODES_, gpu_scales_t SCALES_, gpu_unpack_t UNPACK_> struct packed_kind_t {
  enum { CODES = CODES_, SCALES = SCALES_, UNPACK = UNPACK_ };
};

/* Whether the matrix is of this kind, and what lies in it what its kernels take for granted. */
template <class KIND> bool is_of_kind(KIND, const gpu_packed_t &packed) {
  const bool all_min = packed.unpack == GPU_UNPACK_PRODUCT, f16 = packed.scales == GPU_SCALES_F16;
  const int shift = packed.group_shift, f32 = packed.scales == GPU_SCALES_F32;
  const bool wide = packed.scales == GPU_SCALES_F32_WIDE || packed.scales == GPU_SCALES_F16_ZERO;
  return packed.codes == (gpu_codes_t)KIND::CODES && packed.scales == (gpu_scales_t)KIND::SCALES &&
         packed.unpack == (gpu_unpack_t)KIND::UNPACK && shift >= (wide ? 7 : 4) &&
         (wide || shift <= (f32 ? 6 : 5)) && !(f16 && all_min != !!packed.has_min);
}

/* The first of the kinds that the matrix is: launch(kind). */
template <class F> cudaError_t for_kind_of(const gpu_packed_t &, const F &) {
  return cudaErrorInvalidValue;
}
template <class F, class KIND, class... KINDS>
cudaError_t for_kind_of(const gpu_packed_t &packed, const F &launch, KIND kind, KINDS... others) {
  return is_of_kind(kind, packed) ? launch(kind) : for_kind_of(packed, launch, others...);
}

/* Codes of 4 bits; of 8 bits and e4m3; all. */
template <class F> cudaError_t for_packed_4(const gpu_packed_t &packed, const F &launch) {
  return for_kind_of(packed, launch,
                     packed_kind_t<GPU_CODES_4, GPU_SCALES_F16_ZERO, GPU_UNPACK_FUSED>(),
                     packed_kind_t<GPU_CODES_4, GPU_SCALES_F32_WIDE, GPU_UNPACK_FUSED>(),
                     packed_kind_t<GPU_CODES_4, GPU_SCALES_F32_WIDE, GPU_UNPACK_STEPS>(),
                     packed_kind_t<GPU_CODES_4, GPU_SCALES_F32, GPU_UNPACK_FUSED>(),
                     packed_kind_t<GPU_CODES_4, GPU_SCALES_F32, GPU_UNPACK_STEPS>(),
                     packed_kind_t<GPU_CODES_4, GPU_SCALES_F16, GPU_UNPACK_FUSED>(),
                     packed_kind_t<GPU_CODES_4, GPU_SCALES_F16, GPU_UNPACK_PRODUCT>(),
                     packed_kind_t<GPU_CODES_4, GPU_SCALES_TWO_LEVEL, GPU_UNPACK_PRODUCT>(),
                     packed_kind_t<GPU_CODES_TABLE, GPU_SCALES_F32_WIDE, GPU_UNPACK_STEPS>(),
                     packed_kind_t<GPU_CODES_TABLE, GPU_SCALES_F32, GPU_UNPACK_STEPS>(),
                     packed_kind_t<GPU_CODES_TABLE, GPU_SCALES_F16, GPU_UNPACK_FUSED>(),
                     packed_kind_t<GPU_CODES_TABLE, GPU_SCALES_TWO_LEVEL, GPU_UNPACK_STEPS>(),
                     packed_kind_t<GPU_CODES_E2M1, GPU_SCALES_EXPONENT, GPU_UNPACK_FUSED>());
}

template <class F> cudaError_t for_packed_8(const gpu_packed_t &packed, const F &launch) {
  return for_kind_of(packed, launch,
                     packed_kind_t<GPU_CODES_8, GPU_SCALES_F32_WIDE, GPU_UNPACK_STEPS>(),
                     packed_kind_t<GPU_CODES_8, GPU_SCALES_F32, GPU_UNPACK_STEPS>(),
                     packed_kind_t<GPU_CODES_8, GPU_SCALES_F16, GPU_UNPACK_FUSED>(),
                     packed_kind_t<GPU_CODES_8, GPU_SCALES_F16, GPU_UNPACK_PRODUCT>(),
                     packed_kind_t<GPU_CODES_8, GPU_SCALES_TWO_LEVEL, GPU_UNPACK_STEPS>(),
                     packed_kind_t<GPU_CODES_E4M3, GPU_SCALES_F32_WIDE, GPU_UNPACK_STEPS>(),
                     packed_kind_t<GPU_CODES_E4M3, GPU_SCALES_F32, GPU_UNPACK_STEPS>());
}

template <class F> cudaError_t for_packed_kind(const gpu_packed_t &packed, const F &launch) {
  const bool is_8 = packed.codes == GPU_CODES_8 || packed.codes == GPU_CODES_E4M3;
  return is_8 ? for_packed_8(packed, launch) : for_packed_4(packed, launch);
}

#endif
