/* gemm_qkv.cu: q, k and v of few rows, rotated and stored by the kernel that computes them.
 *
 * out (M, N) = norm(in) (M, K) . W (N, K)^T (+ bias), N = (Hq + 2 Hk) D, and then what
 * rope_store.cu does, with the bits of the two kernels one after the other. The weights are
 * streamed as in gemm_skinny.cu, M <= 32; N K 2 bytes, which bounds it. A tile of 16 weight rows
 * has eight columns of a head and the eight that they are rotated with, so that a thread has both
 * sums of a pair. Where a sum goes is asked for before the sums are added. Measured: not yet.
 */
#include "cuda/kernels/rope/qkv.h"
#include "cuda/kernels/rope/rope_parts.h"
#include "cuda/kernels/split_parts.h"

struct qkv_args_t : gpu_skinny_t {
  gpu_kv_t kv;
  gpu_rope_store_t store;
};

/* Column in its head of row `row` (0..15) of the head's tile `part`. */
GPU_FN int head_column(const qkv_args_t &args, int part, int row) {
  if (part * 16 >= args.store.dims) return part * 16 + row; /* beyond what is rotated */
  return part * 8 + row % 8 + (row < 8 ? 0 : args.store.dims / 2);
}

/* As weight_row of linear_parts.h. */
GPU_FN int weight_row(const qkv_args_t &args, int tile, int row) {
  const int parts = args.kv.head_dim / 16, head = tile / parts;
  const int n = head * args.kv.head_dim + head_column(args, tile % parts, row);
  return n < args.n ? n : -1;
}

/* Where the two sums of a thread go. */
struct qkv_place_t {
  int first, second;  /* columns of the head */
  int out;            /* the head's first column */
  bool is_rotated;    /* by `angle` */
  float2 angle;       /* cos, sin */
  int64_t slot;       /* -1 = not stored */
  int value, kv_head; /* 0 = K, 1 = V */
  float scale;
};

GPU_FN qkv_place_t place_of(const qkv_args_t &args, int token, int tile, int row) {
  const int dim = args.kv.head_dim, parts = dim / 16, head = tile / parts, part = tile % parts;
  const int key = head - args.store.num_heads;
  qkv_place_t place;
  place.first = head_column(args, part, row), place.second = head_column(args, part, row + 8);
  place.out = head * dim;
  place.value = key >= args.kv.num_kv_heads ? 1 : 0;
  place.kv_head = key - (place.value ? args.kv.num_kv_heads : 0);
  place.is_rotated = !place.value && args.store.table != nullptr && part * 16 < args.store.dims;
  if (place.is_rotated)
    place.angle =
        ((const float2 *)args.store.table)[(size_t)token * (args.store.dims / 2) + place.first];
  place.slot = key >= 0 ? args.store.slots[token] : -1;
  if (key >= 0) place.scale = kv_scale(args.kv, args.store.layer, place.value, place.kv_head);
  return place;
}

/* Column `column` of a head to its slot. The columns of a narrow head also write zeros, `head_dim`
 * apart, to where the slot is padded. */
template <class T>
GPU_FN void store_column(const gpu_kv_t &kv, uint8_t *head, int slot, float scale, int column,
                         float value) {
  for (int i = column; i < kv_padded(kv.head_dim); i += kv.head_dim) {
    const float kept = i == column ? value : 0.0f;
    const int byte = i * kv_element_bytes(kv);
    uint8_t *to = head + slot_chunk_at(kv, slot, byte / KV_CHUNK) + byte % KV_CHUNK;
    if (kv.fp8)
      *to = stored_e4m3(kept, scale);
    else
      *(T *)to = from_float<T>(kept);
  }
}

/* Rounds the sums as the linear layer does, rotates and writes them. */
template <class T>
GPU_FN void write_place(const qkv_args_t &args, int token, const qkv_place_t &place, float2 sums) {
  const int low = place.out + place.first, high = place.out + place.second;
  if (args.bias != nullptr) {
    sums.x = add_rn(sums.x, args.bias[low]);
    sums.y = add_rn(sums.y, args.bias[high]);
  }
  float x = to_float(from_float<T>(sums.x)), y = to_float(from_float<T>(sums.y));
  if (place.is_rotated) {
    const float first = x;
    x = rotate_first(first, y, place.angle);
    y = rotate_second(first, y, place.angle);
  }
  T *out = (T *)args.out + (size_t)token * args.n;
  out[low] = from_float<T>(x);
  out[high] = from_float<T>(y);
  if (place.slot < 0) return;
  const int size = args.kv.block_size, shift = size == 16 ? 4 : size == 32 ? 5 : 6;
  uint8_t *head =
      kv_head_at(args.kv, args.store.layer, (int)(place.slot >> shift), place.value, place.kv_head);
  const int slot = (int)place.slot & (size - 1);
  store_column<T>(args.kv, head, slot, place.scale, place.first, x);
  store_column<T>(args.kv, head, slot, place.scale, place.second, y);
}

template <class T, int TOKENS, int TILES, bool NORM>
__global__ void __launch_bounds__(SKINNY_THREADS, TOKENS == 1 ? 3 : 1)
    qkv_skinny_kernel(const qkv_args_t args) {
  typedef skinny_shared_t<TOKENS, TILES> shared_t;
  DYN_SMEM(shared_t, memory);
  shared_t &shared = *memory;
  stream_spans<T, TOKENS, TILES, NORM>(args, shared);
  const bool is_split = gridDim.y > 1;
  if (is_split && !meet_blocks(args, shared)) return;
  for (int i = threadIdx.x; i < TILES * 8 * TOKENS * 8; i += SKINNY_THREADS) {
    const int row = i % 8, tile = i / 8 % TILES, token = i / (8 * TILES);
    const int at = blockIdx.x * TILES + tile;
    if (token >= args.rows || at >= weight_tiles(args)) continue;
    const qkv_place_t place = place_of(args, token, at, row);
    write_place<T>(args, token, place,
                   is_split ? add_partials(args, at, row, token)
                            : add_spans(shared, tile, row, token));
  }
}

template <class T, int TOKENS, int TILES, bool NORM>
static cudaError_t launch(const qkv_args_t &args, gpu_stream_t stream) {
  const size_t bytes = sizeof(skinny_shared_t<TOKENS, TILES>);
  const unsigned blocks = (unsigned)((weight_tiles(args) + TILES - 1) / TILES);
  const cudaError_t status =
      cudaFuncSetAttribute((const void *)qkv_skinny_kernel<T, TOKENS, TILES, NORM>,
                           cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
  if (status != cudaSuccess) return status;
  return LAUNCH_OVERLAPPED((qkv_skinny_kernel<T, TOKENS, TILES, NORM>),
                           (blocks, split_of(args, blocks)), (SKINNY_THREADS), bytes, stream, args);
}

/* The sizes of gemm_skinny.cu. */
template <class T> static cudaError_t qkv_skinny(const qkv_args_t &args, gpu_stream_t stream) {
  if (args.norm) return launch<T, 1, 1, true>(args, stream);
  if (args.rows <= 8) return launch<T, 1, 1, false>(args, stream);
  if (args.rows <= 16) return launch<T, 2, 2, false>(args, stream);
  return launch<T, 4, 2, false>(args, stream);
}

int gpu_qkv_fits(const gpu_kv_t *kv, const gpu_skinny_t *layer, const gpu_rope_store_t *store) {
  const int32_t rows_max = layer->norm ? (int32_t)GPU_NORM_ROWS_MAX : (int32_t)GPU_SKINNY_ROWS_MAX;
  if (layer->rows > rows_max || layer->packed.codes != GPU_CODES_PLAIN) return 0;
  if (layer->residual != NULL || layer->activate || layer->logits) return 0;
  if (store->q_norm != NULL || store->k_norm != NULL) return 0;
  return kv->head_dim % 16 == 0 && store->dims % 16 == 0;
}

int gpu_qkv(const gpu_kv_t *kv, const gpu_skinny_t *layer, const gpu_rope_store_t *store,
            gpu_stream_t stream) {
  if (!linear_supported(*layer) || !rope_store_supported(*kv, *store)) return cudaErrorInvalidValue;
  if (!gpu_qkv_fits(kv, layer, store)) return cudaErrorInvalidValue;
  const int64_t width = ((int64_t)store->num_heads + 2 * (int64_t)kv->num_kv_heads) * kv->head_dim;
  if (layer->n != width || layer->rows != store->tokens || layer->out != store->qkv)
    return cudaErrorInvalidValue;
  if (layer->rows == 0) return cudaSuccess;
  qkv_args_t args;
  (gpu_skinny_t &)args = *layer, args.kv = *kv, args.store = *store;
  return FOR_DTYPE(kv->dtype, qkv_skinny, args, stream);
}
