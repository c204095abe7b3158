/* attention_decode.cu: paged attention of requests with few query tokens, split over their keys.
 *
 * q (T, Hq, D), cache (kernels.h) -> out (T, Hq, D). The query heads of one KV head, times as many
 * query tokens as fit, are the 16 rows of an mma tile, so K and V are read once per KV head and
 * tile: sum(len) * 2 * Hk * D elements, which bounds it (decode is a read stream; Dao et al. 2023,
 * flash-decoding); further tiles of a row read the same keys at the same time. A persistent grid of
 * warps, each by itself with its own cp.async ring, walks items x KV heads; an item is a row's
 * pieces (pieces.h) from the first one on, or one later piece. Items leave fp32 partial results,
 * which the last of a row's warps folds in order: the same bits for every plan. Measured: not yet.
 */
#include "cuda/device_code/tiles.h"
#include "cuda/kernels/attention.h"

enum { SLAB = MMA_KEYS };

/* 96 KB of ring for a block, which every device from sm_80 has. */
template <class S, int D> struct decode_t {
  static constexpr int SLOT = D * (int)sizeof(S), WARPS = SLOT <= 256 ? 4 : 2;
  static constexpr int FIT = 96 * 1024 / (WARPS * 2 * SLAB * SLOT), STAGES = FIT < 6 ? FIT : 6;
  struct shared_t {
    uint8_t ring[WARPS][STAGES][2][SLAB * SLOT];
  };
};

/* The work of a warp: keys of one item for the query heads [head, head + heads) of a KV head. Row i
 * of its tile is head i % heads of query i / heads. */
typedef struct decode_work {
  gpu_decode_item_t item;
  const int32_t *blocks; /* block table of the request */
  size_t token;          /* row of the first query */
  const void *query;     /* its first head */
  float scale;           /* of logits */
  int32_t first_slab, count;
  int32_t kv_head, head, heads;
} decode_work_t;

/* A row of a warp's tile: where its query begins, counted from that of the first row, -1 = there is
 * no such row; and the keys [first, first + count) that it sees. In shared memory, because large
 * heads take all registers. */
typedef struct tile_row {
  int32_t query, first;
  uint32_t count;
} tile_row_t;

/* The rows of the tile; all lanes call it. */
GPU_FN void describe_rows(const gpu_attention_t &args, const decode_work_t &work,
                          tile_row_t *rows) {
  const int row = threadIdx.x % WARP, dim = args.kv.head_dim;
  const int width = (args.num_heads + 2 * args.kv.num_kv_heads) * dim;
  if (row < MMA_ROWS) {
    const int query = row / work.heads, end = work.item.position + query + 1; /* causal */
    const int low = args.window > 0 ? end - args.window : 0;
    const int first = low > work.item.first ? low : work.item.first;
    const int last = end < work.item.last ? end : work.item.last;
    rows[row].query = query < work.item.queries ? query * width + row % work.heads * dim : -1;
    rows[row].first = first;
    rows[row].count = last > first ? (uint32_t)(last - first) : 0;
  }
  __syncwarp();
}

/* Starts the copy of slab i of the item; all lanes call it, also past the end (an empty group).
 * `block` of lane l is the block of slab l of the current 32. */
template <class S, int D>
GPU_FN void load_slab(const gpu_attention_t &args, const decode_work_t &work, int i, int *block,
                      typename decode_t<S, D>::shared_t *shared) {
  typedef decode_t<S, D> shape;
  constexpr int ROW = shape::SLOT < KV_ROW_MAX ? shape::SLOT : KV_ROW_MAX;
  constexpr int CHUNKS = SLAB * shape::SLOT / KV_CHUNK, PART_CHUNKS = SLAB * ROW / KV_CHUNK;
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, size = args.kv.block_size;
  if (i % WARP == 0 && i < work.count) {
    const int key = (work.first_slab + i + lane) * SLAB;
    *block = i + lane < work.count ? work.blocks[key / size] : 0;
  }
  const int id = __shfl_sync(FULL_WARP, *block, i % WARP);
  if (i < work.count) {
    const int key = (work.first_slab + i) * SLAB, rows = key % size * ROW;
    const uint8_t *k = kv_head_at(args.kv, args.layer, id, 0, work.kv_head) + rows;
    const uint8_t *v = kv_head_at(args.kv, args.layer, id, 1, work.kv_head) + rows;
    auto &to = shared->ring[warp][i % shape::STAGES];
    UNROLL
    for (int j = 0; j < CHUNKS / WARP; j++) {
      const int chunk = j * WARP + lane, part = chunk / PART_CHUNKS, in_part = chunk % PART_CHUNKS;
      const int at = key + in_part / (ROW / KV_CHUNK);
      const bool valid = at >= work.item.first && at < work.item.last;
      const size_t from = (size_t)part * size * ROW + in_part * KV_CHUNK;
      cp_async_16(to[0] + chunk * KV_CHUNK, k + from, valid ? KV_CHUNK : 0);
      cp_async_16(to[1] + chunk * KV_CHUNK, v + from, valid ? KV_CHUNK : 0);
    }
  }
  cp_async_commit();
}

/* The queries of a warp: kept in registers, but for large heads, where the sums take all of them.
 */
template <class T, int D> struct query_t {
  static constexpr bool KEPT = D <= 128;
  const decode_work_t &work;
  const tile_row_t *rows;
  int dim;
  uint32_t fragment[KEPT ? D / 16 : 1][4];
};

/* The queries of the rows lane / 4 and + 8; NULL = there is no such row. */
template <class T> struct lane_queries_t { const T *row[2]; };
template <class T>
GPU_FN lane_queries_t<T> find_queries(const decode_work_t &work, const tile_row_t *rows) {
  lane_queries_t<T> found;
  for (int i = 0; i < 2; i++) {
    const int first = rows[threadIdx.x % WARP / 4 + i * 8].query;
    found.row[i] = first >= 0 ? (const T *)work.query + first : nullptr;
  }
  return found;
}

/* Query fragment k straight from memory: zero beyond the rows of the tile and the head. */
template <class T, class S, int D>
GPU_FN void load_query(const query_t<T, D> &query, const lane_queries_t<T> &lane_queries, int k,
                       uint32_t (&fragment)[4]) {
  const int lane = threadIdx.x % WARP;
  for (int i = 0; i < 2; i++) {
    const int step = sizeof(S) == 2 ? 8 : 2;
    const int column = k * 16 + lane % 4 * (sizeof(S) == 2 ? 2 : 4);
    const T *from = lane_queries.row[i];
    uint32_t words[2] = {0, 0};
    if (from != nullptr && column < query.dim) words[0] = *(const uint32_t *)(from + column);
    if (from != nullptr && column + step < query.dim)
      words[1] = *(const uint32_t *)(from + column + step);
    if (sizeof(S) == 2)
      fragment[i] = words[0], fragment[2 + i] = words[1];
    else
      even_odd(words[0], words[1], fragment[i], fragment[2 + i]);
  }
}

/* logits += q . keys of the slab. */
template <class T, class S, int D>
GPU_FN void score_slab(const query_t<T, D> &query, const uint8_t *keys, float (&logits)[2][4]) {
  constexpr int FRAGMENTS = score_t<S, D>::FRAGMENTS;
  const lane_queries_t<T> lane_queries = find_queries<T>(query.work, query.rows);
  UNROLL
  for (int k = 0; k < score_t<S, D>::STEPS; k++) {
    if constexpr (query_t<T, D>::KEPT) {
      score_step<T, S, D, SLAB>(logits[0], logits[1], &query.fragment[k * FRAGMENTS], keys, 0, k);
    } else {
      uint32_t fragment[FRAGMENTS][4];
      for (int i = 0; i < FRAGMENTS; i++)
        load_query<T, S, D>(query, lane_queries, k * FRAGMENTS + i, fragment[i]);
      score_step<T, S, D, SLAB>(logits[0], logits[1], fragment, keys, 0, k);
    }
  }
}

template <class T, class S, int D>
GPU_FN void attend_slab(const gpu_attention_t &args, int slab, int stage,
                        const query_t<T, D> &query, const typename decode_t<S, D>::shared_t *shared,
                        attention_rows_t<D> &rows) {
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
  const auto &tile = shared->ring[warp][stage];
  const int key = slab * SLAB;
  const logit_rule_t rule = {query.work.scale, args.softcap};
  float logits[2][4] = {};
  score_slab<T, S, D>(query, tile[0], logits);
  UNROLL
  for (int n = 0; n < 2; n++) {
    for (int j = 0; j < 4; j++) {
      const int at = key + n * 8 + lane % 4 * 2 + (j & 1);
      const tile_row_t &row = query.rows[lane / 4 + j / 2 * 8];
      const bool visible = (uint32_t)(at - row.first) < row.count;
      logits[n][j] = visible ? score_logit(logits[n][j], rule) : -INFINITY;
    }
  }
  softmax_step<D>(rows, logits[0], logits[1]);
  uint32_t weights[4];
  pack_weights<T>(weights, logits[0], logits[1]);
  add_values<T, S, D, SLAB, D>(rows, weights, tile[1], 0, 0);
}

/* The item's state while its pieces are folded; their outputs wait in the partial results, where a
 * lane reads only elements that it wrote itself. */
typedef struct item_state {
  float max[2], sum[2];
  bool begun;
} item_state_t;

/* Folds the piece that ended into the item; the last one is written as the row's output when the
 * item is all of the row. */
template <class T, class S, int D>
GPU_FN void fold_piece(const gpu_attention_t &args, const decode_work_t &work, bool last,
                       item_state_t &state, attention_rows_t<D> &rows) {
  const int lane = threadIdx.x % WARP, dim = args.kv.head_dim;
  const bool finish = last && work.item.whole;
  softmax_finish<D>(rows);
  UNROLL
  for (int h = 0; h < 2; h++) {
    const int row = lane / 4 + h * 8;
    const fold_t fold = fold_state(state.max[h], state.sum[h], rows.max[h], rows.sum[h]);
    if (row >= work.heads * work.item.queries) continue;
    const int query = row / work.heads, head = work.head + row % work.heads;
    const float scale = kv_scale(args.kv, args.layer, 1, work.kv_head);
    const float inverse = inverse_sum(state.max[h], state.sum[h], args.sinks, head, scale);
    T *out = (T *)args.out + ((work.token + query) * args.num_heads + head) * dim;
    const size_t place = (size_t)(work.item.slot + query) * args.num_heads + head;
    float *partial = args.partial + place * dim;
    UNROLL
    for (int p = 0; p < D / 8; p++) {
      const int column = pair_column<S>(p);
      if (column >= dim) continue;
      float2 *at = (float2 *)(partial + column);
      const float2 before = state.begun ? *at : make_float2(0.0f, 0.0f);
      const float low = fold_value(fold, before.x, pair_low<S, D>(rows, p, h));
      const float high = fold_value(fold, before.y, pair_high<S, D>(rows, p, h));
      if (finish)
        *(uint32_t *)(out + column) = pack<T>(mul_rn(low, inverse), mul_rn(high, inverse));
      else
        *at = make_float2(low, high);
    }
    if (last && !finish && lane % 4 == 0)
      ((float2 *)args.partial_state)[place] = make_float2(state.max[h], state.sum[h]);
  }
  state.begun = true;
  rows_reset<D>(rows);
}

template <class T, class S, int D>
GPU_FN void attend_item(const gpu_attention_t &args, const decode_work_t &work,
                        const tile_row_t *tile_rows, typename decode_t<S, D>::shared_t *shared) {
  constexpr int STAGES = decode_t<S, D>::STAGES;
  int block = 0;
  for (int i = 0; i < STAGES - 1; i++) load_slab<S, D>(args, work, i, &block, shared);
  query_t<T, D> query = {work, tile_rows, args.kv.head_dim, {}};
  if constexpr (query_t<T, D>::KEPT) {
    const lane_queries_t<T> lane_queries = find_queries<T>(work, tile_rows);
    UNROLL
    for (int k = 0; k < D / 16; k++) load_query<T, S, D>(query, lane_queries, k, query.fragment[k]);
  }
  attention_rows_t<D> rows;
  rows_reset<D>(rows);
  item_state_t state = {{-INFINITY, -INFINITY}, {0.0f, 0.0f}, false};
  int end = piece_end(work.first_slab * SLAB);
  for (int i = 0; i < work.count; i++) {
    load_slab<S, D>(args, work, i + STAGES - 1, &block, shared);
    cp_async_wait<STAGES - 1>();
    __syncwarp(); /* all lanes' copies of slab i are complete */
    attend_slab<T, S, D>(args, work.first_slab + i, i % STAGES, query, shared, rows);
    __syncwarp(); /* all lanes have read slab i before its stage is written again */
    const int next = (work.first_slab + i + 1) * SLAB;
    const bool last = i + 1 == work.count;
    if (next != end && !last) continue;
    fold_piece<T, S, D>(args, work, last, state, rows);
    end = piece_end(next);
  }
  cp_async_wait<0>();
}

/* ---- rows that were cut ---- */

enum { FOLD_VECTORS = 4, FOLD_CUTS = 4 /* that a lane has under way together */ };

/* Folds what the cuts of a tile's rows left, in the order of their keys, and writes the outputs.
 * __ldcg: other multiprocessors wrote most of it. */
template <class T>
GPU_FN void combine_cuts(const gpu_attention_t &args, const decode_work_t &work, int base,
                         int cuts) {
  const int row = work.item.row, dim = args.kv.head_dim, vectors = dim / 4;
  const int queries = args.query_start_loc[row + 1] - args.query_start_loc[row];
  const int count = work.heads * work.item.queries * vectors;
  const size_t step = (size_t)queries * args.num_heads; /* from a cut's results to the next */
  const float scale = kv_scale(args.kv, args.layer, 1, work.kv_head);
  for (int first = threadIdx.x % WARP; first < count; first += WARP * FOLD_VECTORS) {
    float4 acc[FOLD_VECTORS];
    float max[FOLD_VECTORS], sum[FOLD_VECTORS];
    size_t place[FOLD_VECTORS];
    UNROLL
    for (int v = 0; v < FOLD_VECTORS; v++) {
      const int at = first + v * WARP < count ? first + v * WARP : first;
      const int query = at / vectors / work.heads, head = at / vectors % work.heads;
      place[v] = (size_t)(base + query) * args.num_heads + work.head + head;
      acc[v] = make_float4(0.0f, 0.0f, 0.0f, 0.0f), max[v] = -INFINITY, sum[v] = 0.0f;
    }
    for (int cut = 0; cut < cuts; cut += FOLD_CUTS) {
      float4 value[FOLD_CUTS][FOLD_VECTORS];
      float2 state[FOLD_CUTS][FOLD_VECTORS];
      UNROLL
      for (int c = 0; c < FOLD_CUTS; c++) {
        UNROLL
        for (int v = 0; v < FOLD_VECTORS; v++) {
          const int at = first + v * WARP < count ? first + v * WARP : first;
          const size_t from = place[v] + (cut + c < cuts ? cut + c : cut) * step;
          value[c][v] = __ldcg((const float4 *)(args.partial + from * dim) + at % vectors);
          state[c][v] = __ldcg((const float2 *)args.partial_state + from);
        }
      }
      UNROLL
      for (int c = 0; c < FOLD_CUTS; c++) {
        if (cut + c >= cuts) break;
        UNROLL
        for (int v = 0; v < FOLD_VECTORS; v++) {
          const fold_t fold = fold_state(max[v], sum[v], state[c][v].x, state[c][v].y);
          acc[v].x = fold_value(fold, acc[v].x, value[c][v].x);
          acc[v].y = fold_value(fold, acc[v].y, value[c][v].y);
          acc[v].z = fold_value(fold, acc[v].z, value[c][v].z);
          acc[v].w = fold_value(fold, acc[v].w, value[c][v].w);
        }
      }
    }
    UNROLL
    for (int v = 0; v < FOLD_VECTORS; v++) {
      const int at = first + v * WARP, query = at / vectors / work.heads;
      const int head = work.head + at / vectors % work.heads;
      if (at >= count) continue;
      const float inverse = inverse_sum(max[v], sum[v], args.sinks, head, scale);
      T *out = (T *)args.out + ((work.token + query) * args.num_heads + head) * dim;
      *(uint2 *)(out + at % vectors * 4) =
          make_uint2(pack<T>(mul_rn(acc[v].x, inverse), mul_rn(acc[v].y, inverse)),
                     pack<T>(mul_rn(acc[v].z, inverse), mul_rn(acc[v].w, inverse)));
    }
  }
}

/* Counts this cut of the tile; the warp that is the last combines all of them. No bits depend on
 * which warp that is. */
template <class T> GPU_FN void meet_cuts(const gpu_attention_t &args, const decode_work_t &work) {
  const int base = args.plan.row_items[2 * work.item.row] + work.item.query;
  const int cuts = args.plan.row_items[2 * work.item.row + 1];
  unsigned before = 0;
  __threadfence(); /* the partial results are visible before the ticket is */
  __syncwarp();
  if (threadIdx.x % WARP == 0) { /* the last makes it 0 again, as the next launch expects it */
    uint32_t *ticket = args.tickets + (size_t)base * args.num_heads + work.head;
    before = atomicInc(ticket, (unsigned)cuts - 1);
  }
  if (__shfl_sync(FULL_WARP, before, 0) + 1 < (unsigned)cuts) return;
  __syncwarp(); /* what the one lane's ticket was handed is the others' too */
  __threadfence();
  combine_cuts<T>(args, work, base, cuts);
}

/* How the units of a launch, (item, KV head, tile of query heads), are counted: query heads of a KV
 * head, their tiles, units of an item, all units; and the unit that the warp is at. It lies in
 * shared memory, because large heads take all registers. */
typedef struct decode_units {
  int group, tiles, heads, count;
  int at; /* read by all lanes before the barrier behind find_work, written before the next one */
  decode_work_t work; /* of that unit */
  tile_row_t rows[MMA_ROWS];
} decode_units_t;

/* The work of the unit that the warp is at; one lane calls it. */
template <class T>
GPU_FN void find_work(const gpu_attention_t &args, const decode_units_t &units,
                      decode_work_t *work) {
  const int dim = args.kv.head_dim, width = (args.num_heads + 2 * args.kv.num_kv_heads) * dim;
  const int unit = units.at, skipped = unit % units.tiles * MMA_ROWS, left = units.group - skipped;
  work->item = args.plan.items[unit / units.heads];
  work->kv_head = unit % units.heads / units.tiles;
  work->head = work->kv_head * units.group + skipped;
  work->heads = left < MMA_ROWS ? left : MMA_ROWS;
  work->blocks = args.block_table + (size_t)work->item.row * args.block_table_stride;
  work->token = (size_t)(args.query_start_loc[work->item.row] + work->item.query);
  work->query = (const T *)args.qkv + work->token * width + (size_t)work->head * dim;
  work->scale = mul_rn(args.scale, kv_scale(args.kv, args.layer, 0, work->kv_head));
  work->first_slab = work->item.first / SLAB;
  work->count = (work->item.last + SLAB - 1) / SLAB - work->first_slab;
}

template <class T, class S, int D>
GPU_FN void attend_unit(const gpu_attention_t &args, const decode_work_t &work, tile_row_t *rows,
                        typename decode_t<S, D>::shared_t *shared) {
  describe_rows(args, work, rows);
  attend_item<T, S, D>(args, work, rows, shared);
  if (!work.item.whole) meet_cuts<T>(args, work);
}

template <class T, class S, int D>
__global__ void __launch_bounds__(decode_t<S, D>::WARPS *WARP, 2)
    decode_kernel(const gpu_attention_t args) {
  typedef decode_t<S, D> shape;
  typedef typename shape::shared_t shared_t;
  DYN_SMEM(shared_t, shared);
  SHARED(all_units, decode_units_t[shape::WARPS]);
  grid_dependency_begin();
  decode_units_t &units = all_units[threadIdx.x / WARP];
  if (threadIdx.x % WARP == 0) {
    const int group = args.num_heads / args.kv.num_kv_heads;
    const int tiles = (group + MMA_ROWS - 1) / MMA_ROWS, heads = args.kv.num_kv_heads * tiles;
    /* Few units go to as many blocks: unit u to block u % blocks. */
    units.group = group, units.tiles = tiles, units.heads = heads;
    units.count = args.plan.counts[0] * heads;
    units.at = (int)(blockIdx.x + gridDim.x * (threadIdx.x / WARP));
  }
  __syncwarp();
  while (units.at < units.count) {
    if (threadIdx.x % WARP == 0) find_work<T>(args, units, &units.work);
    __syncwarp();
    if constexpr (query_t<T, D>::KEPT) {
      const decode_work_t work = units.work; /* in registers */
      attend_unit<T, S, D>(args, work, units.rows, shared);
    } else {
      attend_unit<T, S, D>(args, units.work, units.rows, shared);
    }
    if (threadIdx.x % WARP == 0) units.at += gridDim.x * shape::WARPS;
    __syncwarp();
  }
}

template <class T, class S, int D>
static cudaError_t decode(const gpu_attention_t &args, int32_t workers, gpu_stream_t stream) {
  typedef decode_t<S, D> shape;
  const size_t bytes = sizeof(typename shape::shared_t);
  const cudaError_t status =
      cudaFuncSetAttribute((const void *)decode_kernel<T, S, D>,
                           cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
  if (status != cudaSuccess) return status;
  return LAUNCH_OVERLAPPED((decode_kernel<T, S, D>), ((unsigned)workers), (shape::WARPS * WARP),
                           bytes, stream, args);
}

int gpu_attention_decode(const gpu_attention_t *args, int32_t workers, gpu_stream_t stream) {
  if (!kv_supported(args->kv) || args->rows < 0 || workers <= 0) return cudaErrorInvalidValue;
  if (args->num_heads <= 0 || args->num_heads % args->kv.num_kv_heads != 0)
    return cudaErrorInvalidValue;
  if (args->rows == 0) return cudaSuccess;
  return FOR_KV(args->kv, decode, *args, workers, stream);
}
