/* attention_plan.cu: cuts the step's attention into work, on the device.
 *
 * query_start_loc, seq_lens (R) -> decode items and prefill tiles (kernels.h). One block; R of some
 * hundreds and a few thousand items are written. It runs inside the captured graph, so a replay
 * plans from the lengths of its own step. A row's first item begins where its keys do and may have
 * many pieces (pieces.h), every later one has one: so the pieces are folded in order whatever the
 * cuts. Bound by latency. Measured: not yet.
 */
#include "cuda/device_code/kv_layout.h"
#include "cuda/device_code/lanes.h"
#include "cuda/device_code/pieces.h"
#include "cuda/kernels/attention.h"

enum { PLAN_THREADS = 256, ROW_ITEMS_MAX = 512 /* more than any row has pieces */ };

typedef struct plan_args {
  gpu_plan_t plan;
  const int32_t *seq_lens, *query_start_loc;
  int32_t rows, window, tile;
} plan_args_t;

/* Sums two counts over the block; every thread gets its exclusive prefix and the totals. */
GPU_FN void block_prefix(int2 mine, int2 *before, int2 *total) {
  SHARED(sums, int2[PLAN_THREADS / WARP]);
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
  int2 scan = mine;
  for (int offset = 1; offset < WARP; offset *= 2) {
    const int x = __shfl_up_sync(FULL_WARP, scan.x, offset);
    const int y = __shfl_up_sync(FULL_WARP, scan.y, offset);
    if (lane >= offset) scan = make_int2(scan.x + x, scan.y + y);
  }
  if (lane == WARP - 1) sums[warp] = scan;
  __syncthreads();
  *total = make_int2(0, 0);
  *before = make_int2(scan.x - mine.x, scan.y - mine.y);
  for (int w = 0; w < PLAN_THREADS / WARP; w++) {
    if (w < warp) *before = make_int2(before->x + sums[w].x, before->y + sums[w].y);
    *total = make_int2(total->x + sums[w].x, total->y + sums[w].y);
  }
  __syncthreads(); /* the next call writes sums */
}

GPU_FN int query_len(const plan_args_t &args, int row) {
  return args.query_start_loc[row + 1] - args.query_start_loc[row];
}

/* First key that a decode row sees. */
GPU_FN int first_key(const plan_args_t &args, int row) {
  const int len = args.seq_lens[row];
  return args.window > 0 && len > args.window ? len - args.window : 0;
}

/* Items of a row that may have `limit` of them; 0 when it is no decode. */
GPU_FN int row_items(const plan_args_t &args, int row, int limit) {
  if (row >= args.rows || query_len(args, row) != 1 || args.seq_lens[row] <= 0) return 0;
  const int pieces = piece_of(args.seq_lens[row] - 1) - piece_of(first_key(args, row)) + 1;
  return pieces < limit ? pieces : limit;
}

/* The largest power of two such that all rows' items fit; 1 always does. */
GPU_FN int choose_limit(const plan_args_t &args) {
  int limit = ROW_ITEMS_MAX;
  for (;; limit /= 2) {
    int mine = 0;
    for (int row = threadIdx.x; row < args.rows; row += PLAN_THREADS)
      mine += row_items(args, row, limit);
    int2 before, total;
    block_prefix(make_int2(mine, 0), &before, &total);
    if (total.x <= args.plan.items_max || limit == 1) return limit;
  }
}

GPU_FN void write_row(const plan_args_t &args, int row, int items, int item, int tiles, int tile) {
  args.plan.row_items[2 * row] = item;
  args.plan.row_items[2 * row + 1] = items;
  const int low = first_key(args, row), high = args.seq_lens[row];
  const int single = items > 0 ? piece_of(high - 1) + 1 - items : 0; /* + i: the last of item i */
  for (int i = 0; i < items && item + i < args.plan.items_max; i++) {
    const int first = i == 0 ? low : piece_begin(single + i), last = piece_begin(single + i + 1);
    const gpu_decode_item_t piece = {row, first, last < high ? last : high, items == 1};
    args.plan.items[item + i] = piece;
  }
  for (int i = 0; i < tiles && tile + i < args.plan.tiles_max; i++) {
    args.plan.tiles[2 * (tile + i)] = row;
    args.plan.tiles[2 * (tile + i) + 1] = i * args.tile;
  }
}

__global__ void __launch_bounds__(PLAN_THREADS) plan_kernel(const plan_args_t args) {
  const int limit = choose_limit(args);
  int2 done = make_int2(0, 0);
  for (int strip = 0; strip < args.rows; strip += PLAN_THREADS) {
    const int row = strip + threadIdx.x;
    const int items = row_items(args, row, limit);
    const int queries = row < args.rows ? query_len(args, row) : 0;
    const int tiles = queries > 1 ? (queries + args.tile - 1) / args.tile : 0;
    int2 before, total;
    block_prefix(make_int2(items, tiles), &before, &total);
    if (row < args.rows) write_row(args, row, items, done.x + before.x, tiles, done.y + before.y);
    done = make_int2(done.x + total.x, done.y + total.y);
  }
  if (threadIdx.x > 0) return;
  args.plan.counts[0] = done.x < args.plan.items_max ? done.x : args.plan.items_max;
  args.plan.counts[1] = done.y < args.plan.tiles_max ? done.y : args.plan.tiles_max;
  args.plan.counts[2] = limit;
  args.plan.counts[3] = 0;
}

int32_t gpu_decode_items(int32_t len) {
  return len > 0 ? piece_of(len - 1) + 1 : 0;
}

int gpu_attention_plan(const gpu_attention_t *args, gpu_stream_t stream) {
  if (!kv_supported(args->kv) || args->rows < 0) return cudaErrorInvalidValue;
  if (args->plan.items_max < args->rows) return cudaErrorInvalidValue;
  const plan_args_t plan = {args->plan, args->seq_lens, args->query_start_loc,
                            args->rows, args->window,   gpu_prefill_tile(args->kv.head_dim)};
  return LAUNCH(plan_kernel, (1), (PLAN_THREADS), 0, stream, plan);
}
