/* attention_prefill.cu: paged attention of chunks: several query tokens of a request, with any
 * number of cached keys before them.
 *
 * q (T, Hq, D) of all requests packed, cache (kernels.h) -> out (T, Hq, D). Grid (tiles of the
 * plan, Hq): a block takes 128 query tokens of one head (64 at D = 256), a warp 16 of them (at
 * D = 256 two warps, each half of the output), and walks the keys in tiles of 64, aligned to key 0,
 * from the first that its window shows to the last that causality shows: FlashAttention-2 (Dao
 * 2023) on mma.sync. V of this tile is in flight during its scores, K of the next one during its
 * values: one buffer each, and two barriers a tile.
 * Bound by the tensor cores: 4 * D flop per query, key and head. A query's bits depend on its own
 * keys only, not on the tile or chunk it came in, and are those that attention_decode.cu gives it
 * (softmax.h). Measured: not yet.
 */
#include "cuda/device_code/tiles.h"
#include "cuda/kernels/prefill_parts.h"

enum { KEYS = 64 };

/* D = 256 has room for half the queries in 99 KB, and a warp for the sums of half the columns: two
 * warps have the same rows, PARTS of OUT columns. */
template <int D> struct prefill_t {
  static constexpr int WARPS = 8, THREADS = WARPS * WARP, PARTS = D <= 128 ? 1 : 2, OUT = D / PARTS;
  static constexpr int ROW_WARPS = WARPS / PARTS, ROWS = ROW_WARPS * MMA_ROWS;
};

/* First row of this warp in the tile, and its part of the columns. */
template <int D> GPU_FN int warp_row() {
  return threadIdx.x / WARP % prefill_t<D>::ROW_WARPS * MMA_ROWS;
}
template <int D> GPU_FN int warp_part() {
  return threadIdx.x / WARP / prefill_t<D>::ROW_WARPS;
}

template <class S, int D> struct prefill_shared_t { /* all [part][row][128 bytes], mixed */
  static constexpr int SLOT = D * (int)sizeof(S);
  uint8_t query[prefill_t<D>::ROWS * D * 2];
  uint8_t keys[KEYS * SLOT], values[KEYS * SLOT];
};

/* Starts the copy of 64 keys (value 0) or values (1); rows past the end are zeros. A thread has one
 * chunk of every 128 bytes of some rows, and looks up the block of a row once. */
template <class S, int D>
GPU_FN void load_tile(const gpu_attention_t &args, const prefill_work_t &work, int tile, int value,
                      uint8_t *to) {
  constexpr int SLOT = D * (int)sizeof(S), ROW = SLOT < KV_ROW_MAX ? SLOT : KV_ROW_MAX;
  constexpr int CHUNKS = ROW / KV_CHUNK, ROWS = prefill_t<D>::THREADS / CHUNKS;
  const int size = args.kv.block_size, shift = size == 16 ? 4 : size == 32 ? 5 : 6;
  const int chunk = threadIdx.x % CHUNKS;
  const uint8_t *head = kv_head_at(args.kv, args.layer, 0, value, work.kv_head);
  UNROLL
  for (int i = 0; i < KEYS; i += ROWS) {
    const int row = i + threadIdx.x / CHUNKS, key = tile * KEYS + row;
    const bool valid = key < work.len;
    const int block = valid ? work.blocks[key >> shift] : 0;
    const uint8_t *from =
        head + block * kv_block_bytes(args.kv) + ((key & (size - 1)) * CHUNKS + chunk) * KV_CHUNK;
    UNROLL
    for (int part = 0; part < SLOT / ROW; part++)
      cp_async_16(to + ((part * KEYS + row) * CHUNKS + chunk) * KV_CHUNK, from + part * size * ROW,
                  valid ? KV_CHUNK : 0);
  }
}

/* Fragment k of this warp's 16 rows of queries. */
template <class S, int D>
GPU_FN void query_fragment(const uint8_t *query, int k, uint32_t (&fragment)[4]) {
  constexpr int ROWS = prefill_t<D>::ROWS, SLOT = D * 2;
  const int lane = threadIdx.x % WARP, matrix = lane / 8;
  if constexpr (sizeof(S) == 2) {
    const int row = warp_row<D>() + (matrix & 1) * 8 + lane % 8;
    ldmatrix_x4(fragment, query + kv_chunk_at<SLOT>(ROWS, row, k * 2 + (matrix >> 1)));
  } else {
    UNROLL
    for (int i = 0; i < 2; i++) { /* four neighbours: half of a chunk */
      const int row = warp_row<D>() + lane / 4 + i * 8;
      const int chunk = kv_chunk_at<SLOT>(ROWS, row, k * 2 + lane % 4 / 2);
      const uint32_t *words = (const uint32_t *)(query + chunk + lane % 2 * 8);
      even_odd(words[0], words[1], fragment[i], fragment[2 + i]);
    }
  }
}

/* The queries of this warp's rows: kept in registers where there is room, else read again for each
 * tile. */
template <class S, int D> struct warp_queries_t {
  static constexpr bool KEPT = D <= 128;
  uint32_t fragment[KEPT ? D / 16 : 1][4];
};
template <class S, int D>
GPU_FN void keep_queries(const uint8_t *from, warp_queries_t<S, D> &queries) {
  if constexpr (warp_queries_t<S, D>::KEPT) {
    UNROLL
    for (int k = 0; k < D / 16; k++) query_fragment<S, D>(from, k, queries.fragment[k]);
  }
}

/* Fragment k of them. */
template <class S, int D>
GPU_FN void take_query(const prefill_shared_t<S, D> &shared, const warp_queries_t<S, D> &queries,
                       int k, uint32_t (&fragment)[4]) {
  if constexpr (warp_queries_t<S, D>::KEPT)
    for (int i = 0; i < 4; i++) fragment[i] = queries.fragment[k][i];
  else
    query_fragment<S, D>(shared.query, k, fragment);
}

/* logits += q . keys of the tile. */
template <class T, class S, int D>
GPU_FN void score_tile(const prefill_shared_t<S, D> &shared, const warp_queries_t<S, D> &queries,
                       float (&logits)[KEYS / 8][4]) {
  constexpr int FRAGMENTS = score_t<S, D>::FRAGMENTS;
  UNROLL
  for (int k = 0; k < score_t<S, D>::STEPS; k++) {
    uint32_t query[FRAGMENTS][4];
    UNROLL
    for (int i = 0; i < FRAGMENTS; i++)
      take_query<S, D>(shared, queries, k * FRAGMENTS + i, query[i]);
    UNROLL
    for (int n = 0; n < KEYS / 16; n++)
      score_step<T, S, D, KEYS>(logits[2 * n], logits[2 * n + 1], query, shared.keys, n * 16, k);
  }
}

/* Scores -> base-2 logits. */
GPU_FN void scale_logits(const logit_rule_t &rule, float (&logits)[KEYS / 8][4]) {
  const logit_rule_t linear = {rule.scale, 0.0f};
  if (rule.softcap != 0.0f) {
    for (int n = 0; n < KEYS / 8; n++) {
      UNROLL
      for (int i = 0; i < 4; i++) logits[n][i] = score_logit(logits[n][i], rule);
    }
    return;
  }
  UNROLL
  for (int n = 0; n < KEYS / 8; n++) {
    for (int i = 0; i < 4; i++) logits[n][i] = score_logit(logits[n][i], linear);
  }
}

/* Logits of what a query does not see become -infinity. `first` is the position of the warp's first
 * row. Most tiles lie whole before it, and whole in its window. */
GPU_FN void mask_logits(const gpu_attention_t &args, const prefill_work_t &work, int tile,
                        int first, float (&logits)[KEYS / 8][4]) {
  const int lane = threadIdx.x % WARP, low = tile * KEYS, high = low + KEYS;
  const bool cut = args.window > 0 && low <= first + MMA_ROWS - 1 - args.window;
  if (high - 1 <= first && high <= work.len && !cut) return;
  UNROLL
  for (int n = 0; n < KEYS / 8; n++) {
    for (int i = 0; i < 4; i++) {
      const int key = low + n * 8 + lane % 4 * 2 + (i & 1), position = first + lane / 4 + i / 2 * 8;
      bool visible = key <= position && key < work.len;
      if (args.window > 0) visible = visible && key > position - args.window;
      if (!visible) logits[n][i] = -INFINITY;
    }
  }
}

/* Adds the piece that ended to the pieces before it. */
template <int D> GPU_FN void fold_rows(attention_rows_t<D> &total, attention_rows_t<D> &piece) {
  softmax_finish<D>(piece);
  UNROLL
  for (int h = 0; h < 2; h++) {
    const fold_t fold = fold_state(total.max[h], total.sum[h], piece.max[h], piece.sum[h]);
    UNROLL
    for (int j = 0; j < D / 8; j++)
      for (int i = 2 * h; i < 2 * h + 2; i++)
        total.acc[j][i] = fold_value(fold, total.acc[j][i], piece.acc[j][i]);
  }
  rows_reset<D>(piece);
}

/* Walks the key tiles [first, last). */
template <class T, class S, int D>
GPU_FN void attend_tiles(const gpu_attention_t &args, const prefill_work_t &work, int first,
                         int last, prefill_shared_t<S, D> *shared,
                         attention_rows_t<prefill_t<D>::OUT> &total) {
  constexpr int OUT = prefill_t<D>::OUT;
  const logit_rule_t rule = {mul_rn(args.scale, kv_scale(args.kv, args.layer, 0, work.kv_head)),
                             args.softcap};
  load_queries<T, D, prefill_t<D>::ROWS>(args, work, 0, threadIdx.x, prefill_t<D>::THREADS,
                                         shared->query);
  load_tile<S, D>(args, work, first, 0, shared->keys);
  cp_async_commit();
  warp_queries_t<S, D> queries;
  attention_rows_t<OUT> piece;
  rows_reset<OUT>(piece);
  rows_reset<OUT>(total);
  int end = piece_end(first * KEYS);
  for (int tile = first; tile < last; tile++) {
    cp_async_wait<0>();
    __syncthreads(); /* keys, before the first also queries, are there; values have been read */
    if (tile == first) keep_queries<S, D>(shared->query, queries);
    load_tile<S, D>(args, work, tile, 1, shared->values);
    cp_async_commit();
    float logits[KEYS / 8][4] = {};
    score_tile<T, S, D>(*shared, queries, logits);
    cp_async_wait<0>();
    __syncthreads(); /* this tile's values are complete; the keys have been read */
    if (tile + 1 < last) load_tile<S, D>(args, work, tile + 1, 0, shared->keys);
    cp_async_commit();
    scale_logits(rule, logits);
    mask_logits(args, work, tile, work.position + warp_row<D>(), logits);
    UNROLL
    for (int n = 0; n < KEYS / 16; n++) {
      uint32_t weights[4];
      softmax_step<OUT>(piece, logits[2 * n], logits[2 * n + 1]);
      pack_weights<T>(weights, logits[2 * n], logits[2 * n + 1]);
      add_values<T, S, D, KEYS, OUT>(piece, weights, shared->values, n * 16, warp_part<D>());
    }
    if ((tile + 1) * KEYS != end && tile + 1 != last) continue;
    fold_rows<OUT>(total, piece);
    end = piece_end((tile + 1) * KEYS);
  }
  cp_async_wait<0>();
}

template <class T, class S, int D>
GPU_FN void write_rows(const gpu_attention_t &args, const prefill_work_t &work,
                       attention_rows_t<prefill_t<D>::OUT> &rows) {
  constexpr int OUT = prefill_t<D>::OUT;
  const int lane = threadIdx.x % WARP, dim = args.kv.head_dim;
  const float scale = kv_scale(args.kv, args.layer, 1, work.kv_head);
  UNROLL
  for (int h = 0; h < 2; h++) {
    const int row = warp_row<D>() + lane / 4 + h * 8;
    if (row >= work.queries) continue;
    const float inverse = inverse_sum(rows.max[h], rows.sum[h], args.sinks, work.head, scale);
    T *out = (T *)args.out + ((work.token + row) * args.num_heads + work.head) * dim;
    UNROLL
    for (int p = 0; p < OUT / 8; p++) {
      const int column = warp_part<D>() * OUT + pair_column<S>(p);
      if (column >= dim) continue;
      *(uint32_t *)(out + column) = pack<T>(mul_rn(pair_low<S, OUT>(rows, p, h), inverse),
                                            mul_rn(pair_high<S, OUT>(rows, p, h), inverse));
    }
  }
}

template <class T, class S, int D>
__global__ void __launch_bounds__(prefill_t<D>::THREADS)
    prefill_kernel(const gpu_attention_t args) {
  typedef prefill_shared_t<S, D> shared_t;
  DYN_SMEM(shared_t, shared);
  const int tiles = args.plan.counts[1];
  if ((int)blockIdx.x >= tiles) return;
  const int index = tiles - 1 - blockIdx.x; /* the last tiles of a request have the most keys */
  const prefill_work_t work = prefill_work(args, index, blockIdx.y, prefill_t<D>::ROWS);
  const int last = (work.position + work.queries + KEYS - 1) / KEYS;
  attention_rows_t<prefill_t<D>::OUT> rows;
  attend_tiles<T, S, D>(args, work, prefill_low(args, work) / KEYS, last, shared, rows);
  write_rows<T, S, D>(args, work, rows);
}

template <class T, class S, int D>
static cudaError_t prefill(const gpu_attention_t &args, int32_t tiles, gpu_stream_t stream) {
  const size_t bytes = sizeof(prefill_shared_t<S, D>);
  const cudaError_t status =
      cudaFuncSetAttribute((const void *)prefill_kernel<T, S, D>,
                           cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
  if (status != cudaSuccess) return status;
  return LAUNCH((prefill_kernel<T, S, D>), ((unsigned)tiles, (unsigned)args.num_heads),
                (prefill_t<D>::THREADS), bytes, stream, args);
}

int32_t gpu_prefill_tile(int32_t head_dim) {
  return kv_padded(head_dim) <= 128 ? prefill_t<128>::ROWS : prefill_t<256>::ROWS;
}

int gpu_attention_prefill(const gpu_attention_t *args, int32_t tiles, gpu_stream_t stream) {
  if (!kv_supported(args->kv) || tiles < 0) return cudaErrorInvalidValue;
  if (args->num_heads <= 0 || args->num_heads % args->kv.num_kv_heads != 0)
    return cudaErrorInvalidValue;
  if (tiles == 0) return cudaSuccess;
  return FOR_KV(args->kv, prefill, *args, tiles, stream);
}
