/* attention_plan.cu: cuts the step's attention into work, on the device.
 *
 * query_start_loc, seq_lens (R) -> decode items and prefill tiles (kernels.h). One block; R of some
 * hundreds and a few thousand items are written. It runs inside the captured graph, so a replay
 * plans from the lengths of its own step. A row's first cut begins where its keys do and may have
 * many pieces (pieces.h), every later one has one: so the pieces are folded in order whatever the
 * cuts. A decode row of several queries has an item for each cut and tile of queries. Bound by
 * latency. Measured: not yet.
 */
#include "cuda/device_code/kv_layout.h"
#include "cuda/device_code/lanes.h"
#include "cuda/device_code/pieces.h"
#include "cuda/device_code/softmax.h"
#include "cuda/kernels/attention.h"

enum { PLAN_THREADS = 256, ROW_ITEMS_MAX = 512 /* more than any row has pieces */ };

typedef struct plan_args {
  gpu_plan_t plan;
  const int32_t *seq_lens, *query_start_loc;
  int32_t rows, window, tile;
  int32_t queries_max, tile_queries; /* of a decode row; of it in one tile of the decode kernel */
} plan_args_t;

/* What a row adds to the lists. */
typedef struct plan_sums {
  int items, slots, tiles;
} plan_sums_t;

GPU_FN plan_sums_t add_sums(const plan_sums_t &left, const plan_sums_t &right) {
  return {left.items + right.items, left.slots + right.slots, left.tiles + right.tiles};
}

/* Sums over the block; every thread gets the sum of those before it, and the total. */
GPU_FN void block_prefix(const plan_sums_t &mine, plan_sums_t *before, plan_sums_t *total) {
  SHARED(sums, plan_sums_t[PLAN_THREADS / WARP]);
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
  plan_sums_t scan = mine;
  for (int offset = 1; offset < WARP; offset *= 2) {
    const plan_sums_t lower = {__shfl_up_sync(FULL_WARP, scan.items, offset),
                               __shfl_up_sync(FULL_WARP, scan.slots, offset),
                               __shfl_up_sync(FULL_WARP, scan.tiles, offset)};
    if (lane >= offset) scan = add_sums(scan, lower);
  }
  if (lane == WARP - 1) sums[warp] = scan;
  __syncthreads();
  *total = {0, 0, 0};
  *before = {scan.items - mine.items, scan.slots - mine.slots, scan.tiles - mine.tiles};
  for (int w = 0; w < PLAN_THREADS / WARP; w++) {
    if (w < warp) *before = add_sums(*before, sums[w]);
    *total = add_sums(*total, sums[w]);
  }
  __syncthreads(); /* the next call writes sums */
}

GPU_FN int query_len(const plan_args_t &args, int row) {
  return args.query_start_loc[row + 1] - args.query_start_loc[row];
}

/* First key that a decode row sees: that of its first query. */
GPU_FN int first_key(const plan_args_t &args, int row) {
  const int low = args.seq_lens[row] - query_len(args, row) + 1 - args.window;
  return args.window > 0 && low > 0 ? low : 0;
}

/* Cuts of a row that may have `limit` of them; 0 when it is no decode. */
GPU_FN int row_cuts(const plan_args_t &args, int row, int limit) {
  if (row >= args.rows || args.seq_lens[row] <= 0) return 0;
  const int queries = query_len(args, row);
  if (queries < 1 || queries > args.queries_max) return 0;
  const int pieces = piece_of(args.seq_lens[row] - 1) - piece_of(first_key(args, row)) + 1;
  return pieces < limit ? pieces : limit;
}

/* What a row adds; a row beyond the last adds nothing. */
GPU_FN plan_sums_t row_sums(const plan_args_t &args, int row, int limit) {
  if (row >= args.rows) return {0, 0, 0};
  const int cuts = row_cuts(args, row, limit), queries = query_len(args, row);
  const int shares = (queries + args.tile_queries - 1) / args.tile_queries;
  const int tiles = queries > args.queries_max ? (queries + args.tile - 1) / args.tile : 0;
  return {cuts * shares, cuts * queries, tiles};
}

/* The largest power of two such that all rows' slots fit, and so their items; 1 always does. */
GPU_FN int choose_limit(const plan_args_t &args) {
  int limit = ROW_ITEMS_MAX;
  for (;; limit /= 2) {
    plan_sums_t mine = {0, 0, 0}, before, total;
    for (int row = threadIdx.x; row < args.rows; row += PLAN_THREADS)
      mine = add_sums(mine, row_sums(args, row, limit));
    block_prefix(mine, &before, &total);
    if (total.slots <= args.plan.items_max || limit == 1) return limit;
  }
}

/* The items of a decode row: its cuts, in each of them its queries, tile by tile. */
GPU_FN void write_items(const plan_args_t &args, int row, int cuts, const plan_sums_t &at) {
  const int low = first_key(args, row), high = args.seq_lens[row], queries = query_len(args, row);
  const int single = cuts > 0 ? piece_of(high - 1) + 1 - cuts : 0; /* + i: the last of cut i */
  int next = at.items;
  for (int i = 0; i < cuts; i++) {
    const int first = i == 0 ? low : piece_begin(single + i), last = piece_begin(single + i + 1);
    for (int q = 0; q < queries && next < args.plan.items_max; q += args.tile_queries, next++) {
      const int left = queries - q, count = left < args.tile_queries ? left : args.tile_queries;
      const int slot = at.slots + i * queries + q, position = high - queries + q;
      const gpu_decode_item_t item = {
          row, first, last < high ? last : high, cuts == 1, q, count, position, slot};
      args.plan.items[next] = item;
    }
  }
}

GPU_FN void write_row(const plan_args_t &args, int row, int cuts, int tiles,
                      const plan_sums_t &at) {
  args.plan.row_items[2 * row] = at.slots;
  args.plan.row_items[2 * row + 1] = cuts;
  write_items(args, row, cuts, at);
  for (int i = 0; i < tiles && at.tiles + i < args.plan.tiles_max; i++) {
    args.plan.tiles[2 * (at.tiles + i)] = row;
    args.plan.tiles[2 * (at.tiles + i) + 1] = i * args.tile;
  }
}

__global__ void __launch_bounds__(PLAN_THREADS) plan_kernel(const plan_args_t args) {
  grid_dependency_begin();
  const int limit = choose_limit(args);
  plan_sums_t done = {0, 0, 0};
  for (int strip = 0; strip < args.rows; strip += PLAN_THREADS) {
    const int row = strip + threadIdx.x;
    const plan_sums_t mine = row_sums(args, row, limit);
    plan_sums_t before, total;
    block_prefix(mine, &before, &total);
    if (row < args.rows)
      write_row(args, row, row_cuts(args, row, limit), mine.tiles, add_sums(done, before));
    done = add_sums(done, total);
  }
  if (threadIdx.x > 0) return;
  args.plan.counts[0] = done.items < args.plan.items_max ? done.items : args.plan.items_max;
  args.plan.counts[1] = done.tiles < args.plan.tiles_max ? done.tiles : args.plan.tiles_max;
  args.plan.counts[2] = limit;
  args.plan.counts[3] = 0;
}

int32_t gpu_decode_items(int32_t len) {
  return len > 0 ? piece_of(len - 1) + 1 : 0;
}

int gpu_attention_plan(const gpu_attention_t *args, gpu_stream_t stream) {
  if (!kv_supported(args->kv) || args->rows < 0) return cudaErrorInvalidValue;
  if (args->plan.items_max < args->rows || args->decode_queries < 1) return cudaErrorInvalidValue;
  if (args->decode_queries > GPU_DECODE_QUERIES_MAX) return cudaErrorInvalidValue;
  if (args->num_heads <= 0 || args->num_heads % args->kv.num_kv_heads != 0)
    return cudaErrorInvalidValue;
  const int32_t group = args->num_heads / args->kv.num_kv_heads;
  const plan_args_t plan = {args->plan,
                            args->seq_lens,
                            args->query_start_loc,
                            args->rows,
                            args->window,
                            gpu_prefill_tile(args->kv.head_dim),
                            args->decode_queries,
                            group < MMA_ROWS ? MMA_ROWS / group : 1};
  return LAUNCH_OVERLAPPED(plan_kernel, (1), (PLAN_THREADS), 0, stream, plan);
}
