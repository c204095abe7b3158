/* rope_store.cu: q/k norm, rotary embedding and the write of K and V to their slots, in one pass.
 *
 * qkv (T, (Hq + 2 Hk) D): q and k heads are normed and rotated in place, k and v heads go to the
 * cache (kernels.h). One warp a (token, head). Moves T (Hq + 2 Hk) D * 2 bytes twice and
 * 2 T Hk D * 2 bytes once; bound by latency at decode. RMSNorm over the head as Qwen3, rotation of
 * halves as Su et al. 2021 in the GPT-NeoX order; angles as engine/device/ops.h. fp32 inside,
 * rounded once for qkv and, from the same value, for the cache, as e4m3 over the head's scale if it
 * is fp8. Measured: not yet.
 */
#include "cuda/device_code/lanes.h"
#include "cuda/kernels/rope/rope_parts.h"

enum { STORE_WARPS = 4, TABLE_THREADS = 64, PARTNERS = GPU_HEAD_DIM_MAX * (VECTOR + 1) / VECTOR };

__global__ void rope_table_kernel(float2 *table, const int32_t *positions,
                                  const float *__restrict__ inv_freq, float scale, int32_t half) {
  grid_dependency_begin();
  const float position = (float)positions[blockIdx.x];
  for (int i = threadIdx.x; i < half; i += blockDim.x) {
    const float angle = position * inv_freq[i];
    table[(size_t)blockIdx.x * half + i] = make_float2(cosf(angle) * scale, sinf(angle) * scale);
  }
}

/* values *= weight / rms(values), values being the lane's eight elements of a head (zeros beyond
 * its end); their mean is subtracted first if they are `centred`. */
GPU_FN void norm_head(float (&values)[VECTOR], const float *weight, float eps, int dim,
                      bool centred) {
  const int at = (threadIdx.x % WARP) * VECTOR;
  float sum = 0.0f;
  if (centred) {
    for (int j = 0; j < VECTOR; j++) sum += values[j];
    const float mean = warp_sum(sum) / (float)dim;
    for (int j = 0; j < VECTOR && at < dim; j++) values[j] -= mean;
    sum = 0.0f;
  }
  for (int j = 0; j < VECTOR; j++) sum += values[j] * values[j];
  const float inverse = 1.0f / sqrtf(warp_sum(sum) / (float)dim + eps);
  if (at >= dim) return;
  for (int j = 0; j < VECTOR; j++) values[j] = values[j] * inverse * weight[at + j];
}

/* Place of an element of a head: a lane's eight lie nine apart from the next lane's, so that lanes
 * meet in no bank. */
GPU_FN int partner_at(int i) {
  return i + i / VECTOR;
}

/* Rotates the lane's eight elements; the partners come through `head`, the warp's own memory. */
GPU_FN void rotate_head(float (&values)[VECTOR], float *head, const float2 *angles, int half) {
  const int at = (threadIdx.x % WARP) * VECTOR;
  for (int j = 0; j < VECTOR; j++) head[partner_at(at + j)] = values[j];
  __syncwarp();
  for (int j = 0; j < VECTOR; j++) {
    const int i = at + j;
    if (i >= 2 * half) break;
    const float2 angle = angles[i < half ? i : i - half];
    const float partner = head[partner_at(i < half ? i + half : i - half)];
    values[j] = i < half ? rotate_first(values[j], partner, angle)
                         : rotate_second(partner, values[j], angle);
  }
}

/* The lane's eight elements of a head to their slot, from the same fp32 values as qkv. */
template <class T>
GPU_FN void store_slot(const gpu_kv_t &kv, uint8_t *head, int slot, float scale,
                       const float (&values)[VECTOR]) {
  const int lane = threadIdx.x % WARP, at = slot_chunk_at(kv, slot, kv.fp8 ? lane / 2 : lane);
  if (!kv.fp8) {
    store_8((T *)(head + at), values);
    return;
  }
  uint2 words = make_uint2(0, 0);
  for (int j = 0; j < VECTOR; j++) {
    const uint32_t bits = stored_e4m3(values[j], scale);
    (j < 4 ? words.x : words.y) |= bits << 8 * (j % 4);
  }
  *(uint2 *)(head + at + lane % 2 * 8) = words;
}

template <class T>
__global__ void __launch_bounds__(STORE_WARPS *WARP)
    rope_store_kernel(const gpu_kv_t kv, const gpu_rope_store_t args) {
  SHARED(heads, float[STORE_WARPS][PARTNERS]);
  grid_dependency_begin();
  const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, dim = kv.head_dim;
  const int num_heads = args.num_heads + 2 * kv.num_kv_heads;
  const int head = blockIdx.y * STORE_WARPS + warp, token = blockIdx.x, at = lane * VECTOR;
  if (head >= num_heads) return; /* whole warps, and no block barrier follows */
  T *row = (T *)args.qkv + ((size_t)token * num_heads + head) * dim;
  float x[VECTOR] = {};
  if (at < dim) load_8(x, row + at);
  const bool is_query = head < args.num_heads;
  const bool is_value = head >= args.num_heads + kv.num_kv_heads;
  const float *weight = is_value ? nullptr : is_query ? args.q_norm : args.k_norm;
  if (weight != nullptr && args.norm_each)
    weight += (size_t)(is_query ? head : head - args.num_heads) * dim;
  if (weight != nullptr && !args.norm_late)
    norm_head(x, weight, args.norm_eps, dim, args.norm_each);
  if (!is_value && args.table != nullptr) {
    const int half = args.dims / 2;
    rotate_head(x, heads[warp], (const float2 *)args.table + (size_t)token * half, half);
  }
  if (weight != nullptr && args.norm_late) norm_head(x, weight, args.norm_eps, dim, args.norm_each);
  if (!is_value && at < dim) store_8(row + at, x);
  const int64_t slot = args.slots[token];
  if (is_query || slot < 0 || at >= kv_padded(dim)) return;
  const int kv_head = head - args.num_heads - (is_value ? kv.num_kv_heads : 0);
  const int block = (int)(slot / kv.block_size), value = is_value ? 1 : 0;
  store_slot<T>(kv, kv_head_at(kv, args.layer, block, value, kv_head), (int)(slot % kv.block_size),
                kv_scale(kv, args.layer, value, kv_head), x);
}

int gpu_rope_table(float *table, const int32_t *positions, const float *inv_freq, float scale,
                   int32_t dims, int32_t tokens, gpu_stream_t stream) {
  if (dims <= 0 || dims % 2 != 0 || tokens < 0) return cudaErrorInvalidValue;
  if (tokens == 0) return cudaSuccess;
  return LAUNCH_OVERLAPPED(rope_table_kernel, ((unsigned)tokens), (TABLE_THREADS), 0, stream,
                           (float2 *)table, positions, inv_freq, scale, dims / 2);
}

/* The norms over all heads of a token; rounded to the type of qkv, as models do between the two. */
static int norm_tokens(const gpu_kv_t &kv, const gpu_rope_store_t &args, gpu_stream_t stream) {
  const int32_t query = args.num_heads * kv.head_dim, key = kv.num_kv_heads * kv.head_dim;
  const int64_t stride = (int64_t)query + 2 * key;
  uint16_t *const keys = (uint16_t *)args.qkv + query;
  int status = 0;
  if (args.q_norm != nullptr)
    status = gpu_norm_columns(kv.dtype, args.qkv, stride, args.q_norm, args.norm_eps, query,
                              args.tokens, stream);
  if (status == 0 && args.k_norm != nullptr)
    status = gpu_norm_columns(kv.dtype, keys, stride, args.k_norm, args.norm_eps, key, args.tokens,
                              stream);
  return status;
}

template <class T>
static cudaError_t rope_store(const gpu_kv_t &kv, const gpu_rope_store_t &args,
                              gpu_stream_t stream) {
  const unsigned heads = (unsigned)(args.num_heads + 2 * kv.num_kv_heads);
  return LAUNCH_OVERLAPPED(rope_store_kernel<T>,
                           ((unsigned)args.tokens, (heads + STORE_WARPS - 1) / STORE_WARPS),
                           (STORE_WARPS * WARP), 0, stream, kv, args);
}

int gpu_rope_store(const gpu_kv_t *kv, const gpu_rope_store_t *args, gpu_stream_t stream) {
  if (!rope_store_supported(*kv, *args)) return cudaErrorInvalidValue;
  if (args->tokens == 0) return cudaSuccess;
  gpu_rope_store_t stored = *args;
  if (args->norm_whole) {
    const int status = norm_tokens(*kv, *args, stream);
    if (status != 0) return status;
    stored.q_norm = stored.k_norm = nullptr;
  }
  return FOR_DTYPE(kv->dtype, rope_store, *kv, stored, stream);
}
