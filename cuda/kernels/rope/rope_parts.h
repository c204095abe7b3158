/* rope_parts.h: what the kernels that rotate and store share: the rotation of a pair, the slot.
 *
 * Device functions of rope_store.cu and gemm_qkv.cu, which agree about every bit: each product and
 * each sum is rounded once.
 */
#ifndef INFERD_CUDA_KERNELS_ROPE_PARTS_H
#define INFERD_CUDA_KERNELS_ROPE_PARTS_H

#include "cuda/device_code/kv_layout.h"
#include "cuda/kernels/kernels.h"

/* The first and the second of a pair, rotated; `angle` is (cos, sin). */
GPU_FN float rotate_first(float first, float second, float2 angle) {
  return add_rn(mul_rn(first, angle.x), -mul_rn(second, angle.y));
}
GPU_FN float rotate_second(float first, float second, float2 angle) {
  return add_rn(mul_rn(second, angle.x), mul_rn(first, angle.y));
}

/* Offset of a 16-byte chunk of a slot among the slots of a head. */
GPU_FN int slot_chunk_at(const gpu_kv_t &kv, int slot, int chunk) {
  const int bytes = kv_slot_bytes(kv);
  return bytes == 64    ? kv_chunk_at<64>(kv.block_size, slot, chunk)
         : bytes == 128 ? kv_chunk_at<128>(kv.block_size, slot, chunk)
                        : kv_chunk_at<256>(kv.block_size, slot, chunk);
}

/* What is stored of a value when the cache is fp8. */
GPU_FN uint8_t stored_e4m3(float value, float scale) {
  return float_to_e4m3(value / scale);
}

inline bool rope_store_supported(const gpu_kv_t &kv, const gpu_rope_store_t &args) {
  if (!kv_supported(kv) || args.tokens < 0 || args.num_heads <= 0) return false;
  if (args.layer < 0 || args.layer >= kv.num_layers) return false;
  return args.dims >= 0 && args.dims <= kv.head_dim && args.dims % 2 == 0;
}

#endif
