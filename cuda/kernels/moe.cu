/* moe.cu: a mixture of experts: routing, the products of the chosen experts, their sum.
 *
 * in (M, h) -> out (M, h). A (row, expert) that was chosen is a pair; pairs are placed by expert,
 * so that an expert's rows are one product with its weights: a list of (expert, first pair) is made
 * on the device, and a block takes a tile of weights of one entry. Few rows an expert: streamed as
 * in gemm_skinny.cu; many: as in gemm_tiled.cu, with the same bits. Moves the weights of every
 * expert that any row chose, which bounds it until some hundred rows share an expert. The router's
 * logits are a product of their own, spread over experts as well as rows: one row has all
 * multiprocessors. Measured: not yet.
 */
#include "cuda/kernels/moe.h"
#include "cuda/kernels/packed_kinds.h"
#include "cuda/kernels/packed_skinny_parts.h"
#include "cuda/kernels/packed_tiled_parts.h"

enum {
  ROUTE_WARPS = 4 /* of a block, an expert each */,
  ROUTE_ROWS = 8 /* of a block */,
  ROUTE_ROWS_FEW = 2,
  ROUTE_FEW = 32,
  CHOOSE_WARPS = 8 /* of a block of choose_kernel, a row each */,
  CHOOSE_BYTES = 48 << 10 /* that place_kernel may have to choose in */,
  PLACE_THREADS = GPU_EXPERTS_MAX,
  FEW_ROWS = 32,
  LINE = 128 / sizeof(float) /* floats of a line of L2 */
};

/* Workspace of one call; pairs = rows * top_k. */
typedef struct gpu_moe_space {
  float *logits;                   /* [rows][experts] of the router */
  int32_t *chosen, *place, *token; /* [pairs]: expert of a pair; its place; row at a place */
  float *shares;                   /* [pairs] */
  int32_t *first;                  /* [E + 1] first place of each expert */
  int32_t *list, *count;           /* [entries][2] expert, first of its rows; entries */
  void *act, *sums;                /* [pairs, width], [pairs, hidden] by place */
  int32_t begin, end;              /* the experts whose weights are here */
} gpu_moe_space_t;

/* ---- routing ---- */

/* Logits of some rows for one expert, by one warp; the order of sums does not depend on the rows.
 */
template <class T, int ROWS>
GPU_FN void expert_logits(const gpu_moe_t &args, int first, int expert, float (&sum)[ROWS]) {
  const float *router = args.router + (size_t)expert * args.hidden;
  for (int r = 0; r < ROWS; r++) sum[r] = 0.0f;
  for (int i = threadIdx.x % WARP * VECTOR; i < args.hidden; i += WARP * VECTOR) {
    float weight[VECTOR];
    load_8_floats(weight, router + i);
    UNROLL
    for (int r = 0; r < ROWS; r++) {
      float x[VECTOR];
      if (first + r >= args.rows) continue;
      load_8(x, (const T *)args.in + (size_t)(first + r) * args.hidden + i);
      for (int j = 0; j < VECTOR; j++) sum[r] = fma_rn(x[j], weight[j], sum[r]);
    }
  }
  for (int r = 0; r < ROWS; r++) {
    sum[r] = warp_sum(sum[r]);
    if (args.router_bias != nullptr) sum[r] = add_rn(sum[r], args.router_bias[expert]);
  }
}

/* The expert that follows (logit, expert) in the order of falling logits, rising numbers; NaN
 * counts as the smallest. Every lane gets it. */
GPU_FN int next_expert(const float *logits, int experts, float *logit, int expert) {
  float best = -INFINITY;
  int found = INT32_MAX;
  for (int e = threadIdx.x % WARP; e < experts; e += WARP) {
    const float l = logits[e] == logits[e] ? logits[e] : -INFINITY;
    const bool later = l < *logit || (l == *logit && e > expert);
    if (later && (l > best || found == INT32_MAX)) best = l, found = e;
  }
  for (int offset = WARP / 2; offset > 0; offset /= 2) {
    const float l = __shfl_xor_sync(FULL_WARP, best, offset);
    const int e = __shfl_xor_sync(FULL_WARP, found, offset);
    const bool better =
        e != INT32_MAX && (found == INT32_MAX || l > best || (l == best && e < found));
    if (better) best = l, found = e;
  }
  *logit = best;
  return found;
}

/* Logits of a row become scores. */
GPU_FN void score_experts(const gpu_moe_t &args, float *logits) {
  const int lane = threadIdx.x % WARP;
  float highest = -INFINITY, total = 0.0f;
  if (args.routing == GPU_ROUTING_SIGMOID) {
    for (int e = lane; e < args.num_experts; e += WARP)
      logits[e] = 1.0f / (1.0f + expf(-logits[e]));
    return;
  }
  for (int e = lane; e < args.num_experts; e += WARP) highest = fmaxf(highest, logits[e]);
  for (int offset = WARP / 2; offset > 0; offset /= 2)
    highest = fmaxf(highest, __shfl_xor_sync(FULL_WARP, highest, offset));
  for (int e = lane; e < args.num_experts; e += WARP)
    total += logits[e] = expf(logits[e] - highest);
  total = warp_sum(total);
  for (int e = lane; e < args.num_experts; e += WARP) logits[e] /= total;
}

/* Takes the experts out of the choice that are not in the best groups; a lane has one group. */
GPU_FN void mask_groups(const gpu_moe_t &args, float *choice) {
  const int lane = threadIdx.x % WARP, size = args.num_experts / args.num_groups;
  float first = -INFINITY, second = -INFINITY;
  int before = 0;
  for (int i = 0; i < size && lane < args.num_groups; i++) {
    const float value = choice[lane * size + i];
    second = fmaxf(second, fminf(first, value));
    first = fmaxf(first, value);
  }
  const float rank = args.group_pairs ? add_rn(first, second) : first;
  for (int g = 0; g < args.num_groups; g++) {
    const float other = __shfl_sync(FULL_WARP, rank, g);
    before += other > rank || (other == rank && g < lane);
  }
  if (lane >= args.num_groups || before < args.groups_top) return;
  for (int i = 0; i < size; i++) choice[lane * size + i] = -INFINITY;
}

/* A warp chooses the k experts of one row with the largest values. */
GPU_FN void choose_experts(const gpu_moe_t &args, const float *values, int *chosen) {
  float value = INFINITY;
  int expert = -1;
  for (int j = 0; j < args.top_k; j++) {
    expert = next_expert(values, args.num_experts, &value, expert);
    if (threadIdx.x % WARP == 0) chosen[j] = expert;
  }
  __syncwarp();
}

/* Lists the experts of a row, ascending. */
GPU_FN void list_experts(const gpu_moe_t &args, const gpu_moe_space_t &space, int row,
                         const int *chosen, float highest, float total, const float *values) {
  const int k = args.top_k;
  for (int j = threadIdx.x % WARP; j < k; j += WARP) {
    int rank = 0;
    for (int i = 0; i < k; i++) rank += chosen[i] < chosen[j];
    const float value = values[chosen[j]];
    space.chosen[(size_t)row * k + rank] = chosen[j];
    space.shares[(size_t)row * k + rank] = args.routing == GPU_ROUTING_LOGITS
                                               ? expf(value - highest) / total
                                               : value / total * args.share_factor;
  }
}

/* A warp routes one row by scores; `choice` and `chosen` are the warp's own memory. */
GPU_FN void route_by_scores(const gpu_moe_t &args, const gpu_moe_space_t &space, int row,
                            float *scores, float *choice, int *chosen) {
  float total = 0.0f;
  score_experts(args, scores);
  for (int e = threadIdx.x % WARP; e < args.num_experts; e += WARP)
    choice[e] = args.choice_bias != nullptr ? add_rn(scores[e], args.choice_bias[e]) : scores[e];
  __syncwarp();
  if (args.groups_top < args.num_groups) mask_groups(args, choice);
  __syncwarp();
  choose_experts(args, choice, chosen);
  for (int j = 0; j < args.top_k; j++) total += scores[chosen[j]];
  total =
      args.normalise ? fmaxf(total, args.share_floor) + GPU_SHARE_EPSILON + args.share_more : 1.0f;
  list_experts(args, space, row, chosen, 0.0f, total, scores);
}

/* The same by the logits alone. */
GPU_FN void route_by_logits(const gpu_moe_t &args, const gpu_moe_space_t &space, int row,
                            const float *logits, int *chosen) {
  const int lane = threadIdx.x % WARP, k = args.top_k;
  float total = 0.0f;
  choose_experts(args, logits, chosen);
  const float highest = logits[chosen[0]];
  if (!args.normalise) {
    for (int e = lane; e < args.num_experts; e += WARP) total += expf(logits[e] - highest);
    total = warp_sum(total);
  } else {
    for (int j = 0; j < k; j++) total += expf(logits[chosen[j]] - highest);
  }
  list_experts(args, space, row, chosen, highest, total, logits);
}

/* The router's logits: a warp has one expert and some rows. */
template <class T, int ROWS>
__global__ void __launch_bounds__(ROUTE_WARPS *WARP)
    route_kernel(const gpu_moe_t args, const gpu_moe_space_t space) {
  const int expert = blockIdx.x * ROUTE_WARPS + threadIdx.x / WARP, first = blockIdx.y * ROWS;
  for (int i = threadIdx.x % WARP * LINE; i < args.hidden && expert < args.num_experts;
       i += WARP * LINE)
    prefetch_l2(args.router + (size_t)expert * args.hidden + i);
  grid_dependency_begin();
  if (expert >= args.num_experts) return;
  float sum[ROWS];
  expert_logits<T, ROWS>(args, first, expert, sum);
  if (threadIdx.x % WARP != 0) return;
  for (int r = 0; r < ROWS && first + r < args.rows; r++)
    space.logits[(size_t)(first + r) * args.num_experts + expert] = sum[r];
}

/* Values of a row that is routed: its logits, or its scores and what experts are chosen by. */
GPU_BOTH_FN int row_values(const gpu_moe_t &args) {
  return args.routing == GPU_ROUTING_LOGITS ? args.num_experts : 2 * args.num_experts;
}

/* A warp routes one row; `values` [row_values] and `chosen` are its own memory. A lane reads the
 * values that it wrote itself, until the experts are chosen or scores are masked by groups. */
GPU_FN void route_row(const gpu_moe_t &args, const gpu_moe_space_t &space, int row, float *values,
                      int *chosen) {
  const float *logits = space.logits + (size_t)row * args.num_experts;
  for (int e = threadIdx.x % WARP; e < args.num_experts; e += WARP) values[e] = logits[e];
  if (args.routing == GPU_ROUTING_LOGITS)
    route_by_logits(args, space, row, values, chosen);
  else
    route_by_scores(args, space, row, values, values + args.num_experts, chosen);
}

/* Routes rows that are too many for place_kernel. */
__global__ void __launch_bounds__(CHOOSE_WARPS *WARP)
    choose_kernel(const gpu_moe_t args, const gpu_moe_space_t space) {
  DYN_SMEM(float, values); /* [CHOOSE_WARPS][row_values] */
  SHARED(chosen, int[CHOOSE_WARPS][GPU_EXPERTS_TOP_MAX]);
  grid_dependency_begin();
  const int warp = threadIdx.x / WARP, row = blockIdx.x * CHOOSE_WARPS + warp;
  if (row < args.rows) route_row(args, space, row, values + warp * row_values(args), chosen[warp]);
}

/* ---- places ---- */

/* Sums over the threads before; every thread has one expert. */
GPU_FN int2 experts_before(int2 mine) {
  SHARED(sums, int2[PLACE_THREADS]);
  const int me = threadIdx.x;
  int2 sum = mine;
  for (int offset = 1; offset < PLACE_THREADS; offset *= 2) {
    sums[me] = sum;
    __syncthreads();
    if (me >= offset) sum = make_int2(sum.x + sums[me - offset].x, sum.y + sums[me - offset].y);
    __syncthreads();
  }
  return make_int2(sum.x - mine.x, sum.y - mine.y);
}

/* One block: the places of all pairs, by expert, and the list of entries of `group` rows. Places
 * within an expert may come in any order: no bits depend on them. It routes the rows first, a warp
 * each, when they are few. */
__global__ void __launch_bounds__(PLACE_THREADS)
    place_kernel(const gpu_moe_t args, const gpu_moe_space_t space, int32_t group, bool routes) {
  DYN_SMEM(float, values); /* [rows][row_values] if it routes */
  SHARED(chosen, int[PLACE_THREADS / WARP][GPU_EXPERTS_TOP_MAX]);
  SHARED(next, int[PLACE_THREADS]);
  grid_dependency_begin();
  const int me = threadIdx.x, row = threadIdx.x / WARP;
  const int top_k = args.top_k, pairs = args.rows * top_k, experts = args.num_experts;
  if (routes && row < args.rows)
    route_row(args, space, row, values + row * row_values(args), chosen[row]);
  next[me] = 0;
  __syncthreads();
  for (int i = me; i < pairs; i += PLACE_THREADS) atomicAdd(&next[space.chosen[i]], 1);
  __syncthreads();
  const bool here = me >= space.begin && me < space.end;
  const int rows = next[me], entries = here ? (rows + group - 1) / group : 0;
  const int2 before = experts_before(make_int2(rows, entries));
  if (me < experts) space.first[me] = before.x;
  if (me == experts - 1) {
    space.first[experts] = before.x + rows;
    *space.count = before.y + entries;
  }
  for (int i = 0; i < entries; i++) {
    space.list[2 * (before.y + i)] = me;
    space.list[2 * (before.y + i) + 1] = i * group;
  }
  next[me] = before.x;
  __syncthreads();
  for (int i = me; i < pairs; i += PLACE_THREADS) {
    const int place = atomicAdd(&next[space.chosen[i]], 1);
    space.place[i] = place;
    space.token[place] = i / top_k;
  }
}

/* ---- products ---- */

/* Rows of an expert against its weights: from pair `at` on; the expert's number here. */
typedef struct expert_entry {
  int rows, at, index;
} expert_entry_t;

/* The block's entry. False beyond the list. */
GPU_FN bool find_entry(const gpu_moe_space_t &space, int group, expert_entry_t *entry) {
  if ((int)blockIdx.z >= *space.count) return false;
  const int expert = space.list[2 * blockIdx.z], skipped = space.list[2 * blockIdx.z + 1];
  const int left = space.first[expert + 1] - space.first[expert] - skipped;
  entry->at = space.first[expert] + skipped;
  entry->rows = left < group ? left : group;
  entry->index = expert - space.begin;
  return true;
}

/* Rows of an expert's weights. */
GPU_FN size_t expert_stack(const gpu_skinny_t &all) {
  return (size_t)all.n * (is_gated(all) ? 2 : 1);
}

/* The layer of one entry, without where it writes. */
template <class T>
GPU_FN void entry_inputs(const gpu_skinny_t &all, const gpu_moe_space_t &space,
                         const expert_entry_t &entry, bool is_up, gpu_skinny_t *layer) {
  const size_t skipped = entry.index * expert_stack(all);
  *layer = all;
  layer->rows = entry.rows;
  if (all.packed.codes != GPU_CODES_PLAIN)
    layer->packed.first_row += (int64_t)skipped;
  else
    layer->weight = (const T *)all.weight + skipped * all.k;
  layer->row_map = is_up ? space.token + entry.at : nullptr;
  layer->in = is_up ? all.in : (const T *)all.in + (size_t)entry.at * all.k;
}

/* Where it writes: computed behind the products, which leave few registers. */
template <class T>
GPU_FN void entry_outputs(const gpu_skinny_t &all, const expert_entry_t &entry,
                          gpu_skinny_t *layer) {
  layer->bias = all.bias != nullptr ? all.bias + entry.index * expert_stack(all) : nullptr;
  layer->out = (T *)all.out + (size_t)entry.at * all.n;
}

/* Where an entry waits that would take registers from the products of codes of 8 bits. */
template <int CODES> struct waits_of {
  enum { WAITS = CODES == GPU_CODES_8 };
};

template <class T, int CODES, int SCALES, int UNPACK, int TOKENS>
GPU_FN void expert_rows(const gpu_skinny_t &all, const expert_entry_t &entry, gpu_skinny_t &layer,
                        skinny_shared_t<TOKENS, 1> &shared) {
  if constexpr (CODES == GPU_CODES_PLAIN)
    stream_spans<T, TOKENS, 1, false>(layer, shared);
  else
    stream_packed<T, CODES, SCALES, UNPACK, TOKENS, 1, false>(layer, shared, (T *)nullptr);
  if constexpr (waits_of<CODES>::WAITS) {
    layer.rows = entry.rows;
    entry_outputs<T>(all, entry, &layer);
  }
  write_spans<T>(layer, shared);
}

template <class T, int CODES, int SCALES, int UNPACK>
__global__ void __launch_bounds__(SKINNY_THREADS)
    expert_skinny_kernel(const gpu_skinny_t all, const gpu_moe_space_t space, bool is_up) {
  typedef skinny_shared_t<4, 1> many_t;
  typedef skinny_shared_t<1, 1> few_t;
  DYN_SMEM(many_t, shared);
  expert_entry_t entry;
  gpu_skinny_t layer;
  grid_dependency_wait();
  if (!find_entry(space, FEW_ROWS, &entry)) return;
  entry_inputs<T>(all, space, entry, is_up, &layer);
  if constexpr (waits_of<CODES>::WAITS) {
    SHARED(kept, expert_entry_t);
    if (threadIdx.x == 0) kept = entry;
    if (layer.rows <= 8)
      expert_rows<T, CODES, SCALES, UNPACK, 1>(all, kept, layer, *(few_t *)shared);
    else
      expert_rows<T, CODES, SCALES, UNPACK, 4>(all, kept, layer, *shared);
  } else {
    entry_outputs<T>(all, entry, &layer);
    if (layer.rows <= 8)
      expert_rows<T, CODES, SCALES, UNPACK, 1>(all, entry, layer, *(few_t *)shared);
    else
      expert_rows<T, CODES, SCALES, UNPACK, 4>(all, entry, layer, *shared);
  }
}

template <class T, int CODES>
__global__ void __launch_bounds__(TILED_THREADS)
    expert_tiled_kernel(const gpu_skinny_t all, const gpu_moe_space_t space, bool is_up) {
  DYN_SMEM(tiled_shared_t, shared);
  expert_entry_t entry;
  gpu_skinny_t layer;
  grid_dependency_wait();
  if (!find_entry(space, SIDE, &entry)) return;
  entry_inputs<T>(all, space, entry, is_up, &layer);
  entry_outputs<T>(all, entry, &layer);
  if constexpr (CODES == GPU_CODES_PLAIN)
    tiled_block<T>(layer, 0, shared);
  else
    packed_block<T, CODES>(layer, 0, shared);
}

/* Row of a pair: in the sums of this rank, NULL for an expert of another; or in the parts of all.
 */
template <class T>
GPU_FN const T *pair_row(const gpu_moe_t &args, const gpu_moe_space_t &space, const void *parts,
                         size_t pair) {
  const int expert = space.chosen[pair];
  size_t at = pair;
  if (parts == nullptr && (expert < space.begin || expert >= space.end)) return nullptr;
  if (parts == nullptr) return (const T *)space.sums + (size_t)space.place[pair] * args.hidden;
  for (int r = 1; r < args.experts.size && expert >= args.experts.at[r]; r++)
    at += (size_t)gridDim.x * args.top_k;
  return (const T *)parts + at * args.hidden;
}

/* out = residual + sum of share * expert, by ascending expert. One block a row. */
template <class T>
__global__ void mix_kernel(const gpu_moe_t args, const gpu_moe_space_t space, const void *parts) {
  grid_dependency_begin();
  const size_t row = blockIdx.x;
  for (int i = threadIdx.x * VECTOR; i < args.hidden; i += blockDim.x * VECTOR) {
    float sum[VECTOR] = {}, x[VECTOR];
    if (args.residual != nullptr) load_8(sum, (const T *)args.residual + row * args.hidden + i);
    for (int j = 0; j < args.top_k; j++) {
      const size_t pair = row * args.top_k + j;
      const float share = space.shares[pair];
      const T *from = pair_row<T>(args, space, parts, pair);
      if (from == nullptr) continue;
      load_8(x, from + i);
      for (int v = 0; v < VECTOR; v++) sum[v] = fma_rn(share, x[v], sum[v]);
    }
    store_8((T *)args.out + row * args.hidden + i, sum);
  }
}

/* What experts of this rank give, to the places of their pairs. One block a pair. */
template <class T>
__global__ void pairs_kernel(const gpu_moe_t args, const gpu_moe_space_t space,
                             T *__restrict__ pairs) {
  const size_t pair = blockIdx.x;
  const T *from = pair_row<T>(args, space, nullptr, pair);
  if (from == nullptr) return;
  for (int i = threadIdx.x * VECTOR; i < args.hidden; i += blockDim.x * VECTOR)
    store_16(pairs + pair * args.hidden + i, load_16(from + i));
}

/* ---- launches ---- */

static size_t moe_take(uint8_t *base, size_t *used, size_t bytes, void **out) {
  if (out != nullptr) *out = base != nullptr ? base + *used : nullptr;
  *used += (bytes + 255) / 256 * 256;
  return *used;
}

/* Lays the workspace out at `base`, or only counts it. */
static size_t moe_space_at(uint8_t *base, const gpu_moe_t &args, gpu_moe_space_t *space) {
  const size_t pairs = (size_t)GPU_MOE_ROWS * (size_t)args.top_k;
  const size_t entries = pairs / FEW_ROWS + (size_t)args.num_experts;
  size_t used = 0;
  const bool some = args.experts.size > 1;
  space->begin = some ? args.experts.at[args.rank] : 0;
  space->end = some ? args.experts.at[args.rank + 1] : args.num_experts;
  moe_take(base, &used, (size_t)GPU_MOE_ROWS * (size_t)args.num_experts * sizeof(float),
           (void **)&space->logits);
  moe_take(base, &used, pairs * sizeof(int32_t), (void **)&space->chosen);
  moe_take(base, &used, pairs * sizeof(int32_t), (void **)&space->place);
  moe_take(base, &used, pairs * sizeof(int32_t), (void **)&space->token);
  moe_take(base, &used, pairs * sizeof(float), (void **)&space->shares);
  moe_take(base, &used, ((size_t)args.num_experts + 1) * sizeof(int32_t), (void **)&space->first);
  moe_take(base, &used, 2 * entries * sizeof(int32_t), (void **)&space->list);
  moe_take(base, &used, sizeof(int32_t), (void **)&space->count);
  moe_take(base, &used, pairs * (size_t)args.width * sizeof(uint16_t), &space->act);
  moe_take(base, &used, pairs * (size_t)args.hidden * sizeof(uint16_t), &space->sums);
  return used;
}

static bool moe_supported(const gpu_moe_t &args) {
  if (args.num_experts < 1 || args.num_experts > GPU_EXPERTS_MAX || args.rows < 0) return false;
  if (args.top_k < 1 || args.top_k > GPU_EXPERTS_TOP_MAX || args.top_k > args.num_experts)
    return false;
  if (args.hidden <= 0 || args.width <= 0) return false;
  if (args.routing != GPU_ROUTING_LOGITS &&
      (args.num_groups < 1 || args.num_groups > GPU_GROUPS_MAX || args.groups_top < 1 ||
       args.num_experts % args.num_groups != 0))
    return false;
  return args.hidden % GPU_ROW_ALIGN == 0 && args.width % GPU_ROW_ALIGN == 0;
}

/* Rows of a list entry: few experts' worth of rows are streamed, many are tiled. */
static int32_t group_of(int32_t pairs, int32_t experts) {
  return pairs / experts <= (int32_t)FEW_ROWS ? (int32_t)FEW_ROWS : (int32_t)SIDE;
}

/* Weights that are not packed, in the form of packed_kind_t. */
struct plain_kind_t {
  enum { CODES = GPU_CODES_PLAIN, SCALES = 0, UNPACK = 0 };
};

template <class T, class KIND>
static cudaError_t expert_launch(KIND, const gpu_skinny_t &layer, const gpu_moe_space_t &space,
                                 int32_t pairs, int32_t experts, bool is_up, gpu_stream_t stream) {
  const bool few = group_of(pairs, experts) == FEW_ROWS;
  const int32_t group = group_of(pairs, experts), tiles = few ? 1 : SIDE / 16;
  const unsigned columns = (unsigned)((weight_tiles(layer) + tiles - 1) / tiles);
  const int32_t bound = pairs / group + (experts < pairs ? experts : pairs);
  const size_t bytes = few ? sizeof(skinny_shared_t<4, 1>) : sizeof(tiled_shared_t);
  const void *kernel =
      few ? (const void *)expert_skinny_kernel<T, KIND::CODES, KIND::SCALES, KIND::UNPACK>
          : (const void *)expert_tiled_kernel<T, KIND::CODES>;
  const cudaError_t status =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
  if (status != cudaSuccess) return status;
  if (few)
    return LAUNCH_OVERLAPPED((expert_skinny_kernel<T, KIND::CODES, KIND::SCALES, KIND::UNPACK>),
                             (columns, 1, (unsigned)bound), (SKINNY_THREADS), bytes, stream, layer,
                             space, is_up);
  return LAUNCH_OVERLAPPED((expert_tiled_kernel<T, KIND::CODES>), (columns, 1, (unsigned)bound),
                           (TILED_THREADS), bytes, stream, layer, space, is_up);
}

template <class T>
static cudaError_t expert_layer(const gpu_skinny_t &layer, const gpu_moe_space_t &space,
                                int32_t pairs, int32_t experts, bool is_up, gpu_stream_t stream) {
  if (layer.packed.codes == GPU_CODES_PLAIN)
    return expert_launch<T>(plain_kind_t(), layer, space, pairs, experts, is_up, stream);
  return for_packed_kind(layer.packed, [&](auto kind) {
    return expert_launch<T>(kind, layer, space, pairs, experts, is_up, stream);
  });
}

template <class T, int ROWS>
static cudaError_t route_logits(const gpu_moe_t &args, const gpu_moe_space_t &space,
                                gpu_stream_t stream) {
  const unsigned experts = (unsigned)(args.num_experts + ROUTE_WARPS - 1) / ROUTE_WARPS;
  return LAUNCH_OVERLAPPED((route_kernel<T, ROWS>),
                           (experts, (unsigned)((args.rows + ROWS - 1) / ROWS)),
                           (ROUTE_WARPS * WARP), 0, stream, args, space);
}

static cudaError_t choose(const gpu_moe_t &args, const gpu_moe_space_t &space,
                          gpu_stream_t stream) {
  const size_t bytes = CHOOSE_WARPS * (size_t)row_values(args) * sizeof(float);
  const cudaError_t status = cudaFuncSetAttribute(
      (const void *)choose_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
  if (status != cudaSuccess) return status;
  return LAUNCH_OVERLAPPED(choose_kernel, ((unsigned)(args.rows + CHOOSE_WARPS - 1) / CHOOSE_WARPS),
                           (CHOOSE_WARPS * WARP), bytes, stream, args, space);
}

static cudaError_t place(const gpu_moe_t &args, const gpu_moe_space_t &space, int32_t group,
                         bool routes, gpu_stream_t stream) {
  const size_t bytes = routes ? (size_t)(args.rows * row_values(args)) * sizeof(float) : 0;
  const cudaError_t status = cudaFuncSetAttribute(
      (const void *)place_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, CHOOSE_BYTES);
  if (status != cudaSuccess) return status;
  return LAUNCH_OVERLAPPED(place_kernel, (1), (PLACE_THREADS), bytes, stream, args, space, group,
                           routes);
}

/* A block has two rows while they are few, else eight, which share what is read of the router. No
 * bits depend on it, nor on which kernel chooses. */
template <class T>
static cudaError_t route_rows(const gpu_moe_t &args, const gpu_moe_space_t &space, int32_t group,
                              gpu_stream_t stream) {
  const bool few = args.rows <= PLACE_THREADS / WARP &&
                   (size_t)(args.rows * row_values(args)) * sizeof(float) <= CHOOSE_BYTES;
  cudaError_t status = args.rows <= ROUTE_FEW ? route_logits<T, ROUTE_ROWS_FEW>(args, space, stream)
                                              : route_logits<T, ROUTE_ROWS>(args, space, stream);
  if (status == cudaSuccess && !few) status = choose(args, space, stream);
  return status == cudaSuccess ? place(args, space, group, few, stream) : status;
}

/* The sums of the experts here, by place. */
template <class T>
static cudaError_t sum_experts(const gpu_moe_t &args, const gpu_moe_space_t &space,
                               gpu_stream_t stream) {
  const int32_t pairs = args.rows * args.top_k, experts = args.num_experts;
  const int32_t group = group_of(pairs, experts);
  gpu_skinny_t up = {}, down = {};
  up.in = args.in, up.weight = args.up, up.bias = args.up_bias, up.out = space.act;
  up.packed = args.up_packed, down.packed = args.down_packed;
  up.n = args.width, up.k = args.hidden, up.activate = 1, up.activation = args.activation;
  down.in = space.act, down.weight = args.down, down.bias = args.down_bias, down.out = space.sums;
  down.n = args.hidden, down.k = args.width;
  cudaError_t status = route_rows<T>(args, space, group, stream);
  if (status == cudaSuccess) status = expert_layer<T>(up, space, pairs, experts, true, stream);
  if (status != cudaSuccess) return status;
  return expert_layer<T>(down, space, pairs, experts, false, stream);
}

template <class T>
static cudaError_t mix_parts(const gpu_moe_t &args, const void *parts, gpu_stream_t stream) {
  gpu_moe_space_t space;
  moe_space_at((uint8_t *)args.workspace, args, &space);
  return LAUNCH_OVERLAPPED(mix_kernel<T>, ((unsigned)args.rows), (row_threads(args.hidden)), 0,
                           stream, args, space, parts);
}

template <class T> static cudaError_t mix_rows(const gpu_moe_t &args, gpu_stream_t stream) {
  gpu_moe_space_t space;
  moe_space_at((uint8_t *)args.workspace, args, &space);
  const cudaError_t status = sum_experts<T>(args, space, stream);
  return status == cudaSuccess ? mix_parts<T>(args, nullptr, stream) : status;
}

template <class T>
static cudaError_t pair_rows(const gpu_moe_t &args, void *pairs, gpu_stream_t stream) {
  gpu_moe_space_t space;
  moe_space_at((uint8_t *)args.workspace, args, &space);
  const cudaError_t status = sum_experts<T>(args, space, stream);
  if (status != cudaSuccess) return status;
  return LAUNCH(pairs_kernel<T>, ((unsigned)(args.rows * args.top_k)), (row_threads(args.hidden)),
                0, stream, args, space, (T *)pairs);
}

template <class T> static cudaError_t mix(const gpu_moe_t &all, gpu_stream_t stream) {
  for (int32_t row = 0; row < all.rows; row += GPU_MOE_ROWS) {
    const size_t at = (size_t)row * (size_t)all.hidden;
    gpu_moe_t args = all;
    args.rows = all.rows - row < GPU_MOE_ROWS ? all.rows - row : GPU_MOE_ROWS;
    args.in = (const T *)all.in + at;
    args.residual = all.residual != nullptr ? (const T *)all.residual + at : nullptr;
    args.out = (T *)all.out + at;
    const cudaError_t status = mix_rows<T>(args, stream);
    if (status != cudaSuccess) return status;
  }
  return cudaSuccess;
}

size_t gpu_moe_workspace_bytes(int32_t hidden, int32_t width, int32_t num_experts, int32_t top_k) {
  gpu_moe_t args = {};
  gpu_moe_space_t space;
  args.hidden = hidden, args.width = width, args.num_experts = num_experts, args.top_k = top_k;
  return moe_supported(args) ? moe_space_at(nullptr, args, &space) : 0;
}

int gpu_moe(dtype_t dtype, const gpu_moe_t *args, gpu_stream_t stream) {
  if (!moe_supported(*args)) return cudaErrorInvalidValue;
  return FOR_DTYPE(dtype, mix, *args, stream);
}

int gpu_moe_pairs(dtype_t dtype, const gpu_moe_t *args, void *pairs, gpu_stream_t stream) {
  if (!moe_supported(*args) || args->rows > GPU_MOE_ROWS) return cudaErrorInvalidValue;
  if (args->rows == 0) return cudaSuccess;
  return FOR_DTYPE(dtype, pair_rows, *args, pairs, stream);
}

int gpu_moe_mix(dtype_t dtype, const gpu_moe_t *args, const void *parts, gpu_stream_t stream) {
  if (!moe_supported(*args) || args->rows > GPU_MOE_ROWS) return cudaErrorInvalidValue;
  if (args->rows == 0) return cudaSuccess;
  return FOR_DTYPE(dtype, mix_parts, *args, parts, stream);
}
