/* attention_prefill_sm90.cu: paged attention of chunks on Hopper, by wgmma and bulk copies.
 *
 * Takes and gives what attention_prefill.cu does, for caches of 16 bits and heads of up to 128.
 * Grid (tiles of the plan, Hq): two warpgroups with 64 query rows each, and a third of which one
 * warp copies tiles of 128 keys and values, two of each in flight; a page's share of a tile lies in
 * memory as wgmma reads it. The walk is FlashAttention-3's (Shah et al. 2024): a warpgroup's scores
 * of the next tile and its output of this one are one run of the tensor cores; while its softmax
 * runs, the other warpgroup has them, by turns. Bound by the tensor cores: 4 * D flop per query,
 * key and head. Measured: not yet.
 *
 * A query's bits depend on its own keys only, not on its tile or chunk: tiles begin at key 0, and
 * keys that are not seen change nothing. But 128 keys share one step of the softmax, so these are
 * not the bits of attention_decode.cu: with --batch-invariant attention_prefill.cu runs instead.
 */
#include "cuda/device_code/gpu_wgmma.h"
#include "cuda/device_code/softmax.h"
#include "cuda/kernels/prefill_parts.h"

enum {
  KEYS = 128,
  STAGES = 2,
  GROUPS = 2, /* warpgroups that compute; the next one copies */
  THREADS = (GROUPS + 1) * WARPGROUP,
  ROWS = GROUPS * WGMMA_ROWS,
  GROUP_WARPS = WARPGROUP / WARP,
  COMPUTE_REGISTERS = 232,
  COPY_REGISTERS = 40,
  BARRIER_QUERIES = 1,                    /* + warpgroup */
  BARRIER_TURN = BARRIER_QUERIES + GROUPS /* + warpgroup whose turn it is */
};

template <int D> struct hopper_shared_t { /* tiles are [part][row][128 bytes], mixed */
  uint8_t query[GROUPS][WGMMA_ROWS * D * 2];
  uint8_t keys[STAGES][KEYS * D * 2], values[STAGES][KEYS * D * 2];
  uint64_t keys_full[STAGES], keys_free[STAGES];
  uint64_t values_full[STAGES], values_free[STAGES];
};

#if GPU_HAS_WGMMA

/* The i-th tile of the walk: its stage, and the parity of that stage's turn. */
GPU_FN int stage_of(int i) {
  return i % STAGES;
}
GPU_FN unsigned parity_of(int i) {
  return i / STAGES & 1;
}

/* ---- The warp that copies ---- */

/* Block of the cache that has this lane's share of a tile, a part of a page; 0 past the end. */
template <int D>
GPU_FN int lane_block(const gpu_attention_t &args, const prefill_work_t &work, int tile) {
  constexpr int PARTS = D * 2 / KV_ROW_MAX;
  const int key = tile * KEYS + (int)threadIdx.x % WARP / PARTS * args.kv.block_size;
  return key < work.len ? work.blocks[key / args.kv.block_size] : 0;
}

/* Starts the copy of a tile of keys (value 0) or values (1), all 32 lanes; rows past the end become
 * zeros. Every lane arrives at `full`, with the bytes that it copies. */
template <int D>
GPU_FN void hopper_load(const gpu_attention_t &args, const prefill_work_t &work, int tile,
                        int value, int block, uint8_t *to, uint64_t *full) {
  constexpr int PARTS = D * 2 / KV_ROW_MAX, CHUNKS = KV_ROW_MAX / KV_CHUNK;
  const int lane = threadIdx.x % WARP, size = args.kv.block_size, left = work.len - tile * KEYS;
  const int part = lane % PARTS, first = lane / PARTS * size;
  for (int i = left * CHUNKS + lane; i < KEYS * CHUNKS; i += WARP)
    for (int p = 0; p < PARTS; p++)
      store_16(to + p * KEYS * KV_ROW_MAX + i * KV_CHUNK, make_uint4(0, 0, 0, 0));
  if (left < KEYS) fence_proxy_async(); /* wgmma will read the zeros */
  const int rows = first >= KEYS ? 0 : left - first < size ? left - first : size;
  if (rows <= 0) return mbarrier_arrive(full);
  const uint8_t *head = kv_head_at(args.kv, args.layer, block, value, work.kv_head);
  const unsigned bytes = (unsigned)rows * KV_ROW_MAX;
  mbarrier_arrive_expect(full, bytes);
  bulk_copy_to_shared(to + (part * KEYS + first) * KV_ROW_MAX,
                      head + (size_t)part * size * KV_ROW_MAX, bytes, full);
}

/* Copies the key tiles [first, last) and their values. */
template <int D>
GPU_FN void hopper_copy(const gpu_attention_t &args, const prefill_work_t &work, int first,
                        int last, hopper_shared_t<D> *shared) {
  int block = lane_block<D>(args, work, first);
  for (int tile = first; tile < last; tile++) {
    const int i = tile - first, stage = stage_of(i);
    const int next = lane_block<D>(args, work, tile + 1);
    mbarrier_wait(&shared->keys_free[stage], parity_of(i) ^ 1);
    hopper_load<D>(args, work, tile, 0, block, shared->keys[stage], &shared->keys_full[stage]);
    mbarrier_wait(&shared->values_free[stage], parity_of(i) ^ 1);
    hopper_load<D>(args, work, tile, 1, block, shared->values[stage], &shared->values_full[stage]);
    block = next;
  }
}

/* ---- The warpgroups that compute ---- */

/* A thread's share of 64 rows: rows lane / 4 and + 8 of its warp's 16. */
template <int D> struct hopper_rows_t {
  float acc[D / 8][4];
  float max[2], sum[2]; /* base-2 maximum; sum is this lane's share */
};

/* How scores become base-2 logits: capped if there is a cap, then times `step`. */
typedef struct score_rule {
  float scale, softcap, step;
} score_rule_t;

/* scores = q . k of the tile; issued, not awaited. */
template <class T, int D>
GPU_FN void issue_scores(float (&scores)[KEYS / 8][4], const uint8_t *query, const uint8_t *keys) {
  const uint64_t left = wgmma_operand(query, 0, SWIZZLE_ROWS_BYTES);
  const uint64_t right = wgmma_operand(keys, 0, SWIZZLE_ROWS_BYTES);
  wgmma_fence();
  UNROLL
  for (int k = 0; k < D / WGMMA_DEPTH; k++) {
    const int part = k * WGMMA_DEPTH * 2 / KV_ROW_MAX, byte = k * WGMMA_DEPTH * 2 % KV_ROW_MAX;
    wgmma_shared<T>(scores, wgmma_advance(left, part * WGMMA_ROWS * KV_ROW_MAX + byte),
                    wgmma_advance(right, part * KEYS * KV_ROW_MAX + byte), k > 0);
  }
  wgmma_commit();
}

/* acc += weights . v of the tile; issued, not awaited. */
template <class T, int D>
GPU_FN void issue_values(hopper_rows_t<D> &rows, const uint32_t (&weights)[KEYS / 16][4],
                         const uint8_t *values) {
  const uint64_t b = wgmma_operand(values, KEYS * KV_ROW_MAX, SWIZZLE_ROWS_BYTES);
  wgmma_fence();
  UNROLL
  for (int k = 0; k < KEYS / WGMMA_DEPTH; k++)
    wgmma_registers<T>(rows.acc, weights[k], wgmma_advance(b, k * WGMMA_DEPTH * KV_ROW_MAX), 1);
  wgmma_commit();
}

/* Scores of keys that a row does not see become -infinity. */
GPU_FN void hide_scores(const gpu_attention_t &args, const prefill_work_t &work, int group,
                        int tile, float (&scores)[KEYS / 8][4]) {
  const int from = work.position + group * WGMMA_ROWS, first = tile * KEYS, end = first + KEYS;
  if (end - 1 <= from && (args.window <= 0 || first > from + WGMMA_ROWS - 1 - args.window)) return;
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP % GROUP_WARPS;
  UNROLL
  for (int i = 0; i < 4; i++) {
    const int high = from + warp * MMA_ROWS + lane / 4 + i / 2 * 8 - first - lane % 4 * 2 - (i & 1);
    const int low = args.window > 0 ? high - args.window : -1;
    UNROLL
    for (int j = 0; j < KEYS / 8; j++)
      if (j * 8 > high || j * 8 <= low) scores[j][i] = -INFINITY;
  }
}

/* tanh by two approximate instructions: off by about 2^-22 of 1. */
GPU_FN void cap_scores(const score_rule_t &rule, float (&scores)[KEYS / 8][4]) {
  const float step = 2 * LOG2_E * rule.scale / rule.softcap;
  UNROLL
  for (int j = 0; j < KEYS / 8; j++)
    for (int i = 0; i < 4; i++)
      scores[j][i] = 1.0f - 2.0f * reciprocal_approx(1.0f + exp2_approx(scores[j][i] * step));
}

/* Scores -> probabilities relative to the new maximum; `factor` is what the rows' old share of the
 * output now counts. A row that saw no key yet stays all zeros. */
template <int D>
GPU_FN void hopper_softmax(hopper_rows_t<D> &rows, const score_rule_t &rule,
                           float (&scores)[KEYS / 8][4], float (&factor)[2]) {
  UNROLL
  for (int h = 0; h < 2; h++) {
    float top = -INFINITY, sum = 0.0f;
    UNROLL
    for (int j = 0; j < KEYS / 8; j++)
      top = fmaxf(top, fmaxf(scores[j][2 * h], scores[j][2 * h + 1]));
    top = fmaxf(top, __shfl_xor_sync(FULL_WARP, top, 1));
    top = fmaxf(top, __shfl_xor_sync(FULL_WARP, top, 2));
    top = fmaxf(rows.max[h], mul_rn(top, rule.step));
    const float base = top == -INFINITY ? 0.0f : top;
    factor[h] = exp2_approx(rows.max[h] - base); /* 1 where no key was seen or none is larger */
    rows.max[h] = top;
    UNROLL
    for (int j = 0; j < KEYS / 8; j++)
      for (int i = 2 * h; i < 2 * h + 2; i++) {
        scores[j][i] = exp2_approx(fma_rn(scores[j][i], rule.step, -base));
        sum += scores[j][i];
      }
    rows.sum[h] = fma_rn(rows.sum[h], factor[h], sum);
  }
}

/* The rows' output so far is scaled, the tile's probabilities become operands. */
template <class T, int D>
GPU_FN void take_weights(hopper_rows_t<D> &rows, const float (&factor)[2],
                         const float (&scores)[KEYS / 8][4], uint32_t (&weights)[KEYS / 16][4]) {
  UNROLL
  for (int j = 0; j < D / 8; j++)
    for (int i = 0; i < 4; i++) rows.acc[j][i] *= factor[i / 2];
  UNROLL
  for (int j = 0; j < KEYS / 8; j++)
    for (int h = 0; h < 2; h++)
      weights[j / 2][j % 2 * 2 + h] = pack<T>(scores[j][2 * h], scores[j][2 * h + 1]);
}

/* Says that this warp has read a stage. */
GPU_FN void free_stage(uint64_t *bar) {
  if (threadIdx.x % WARP == 0) mbarrier_arrive(bar);
}

/* This warpgroup's 64 queries, to where its products read them. */
template <class T, int D>
GPU_FN void hopper_queries(const gpu_attention_t &args, const prefill_work_t &work, int group,
                           uint8_t *to) {
  load_queries<T, D, WGMMA_ROWS>(args, work, group * WGMMA_ROWS, threadIdx.x % WARPGROUP, WARPGROUP,
                                 to);
  cp_async_commit();
  cp_async_wait<0>();
  fence_proxy_async();
  bar_sync(BARRIER_QUERIES + group, WARPGROUP); /* all threads' queries are complete */
}

/* Scores of a tile, which are there, -> probabilities and what the output so far now counts. */
template <int D>
GPU_FN void hopper_step(const gpu_attention_t &args, const prefill_work_t &work, int group,
                        int tile, hopper_rows_t<D> &rows, float (&scores)[KEYS / 8][4],
                        float (&factor)[2]) {
  const score_rule_t rule = {args.scale, args.softcap,
                             LOG2_E * (args.softcap != 0.0f ? args.softcap : args.scale)};
  if (args.softcap != 0.0f) cap_scores(rule, scores);
  hide_scores(args, work, group, tile, scores);
  hopper_softmax<D>(rows, rule, scores, factor);
}

/* Waits for the keys of the i-th tile of `tiles`, if there is one. */
template <int D> GPU_FN void await_keys(hopper_shared_t<D> *shared, int i, int tiles) {
  if (i < tiles) mbarrier_wait(&shared->keys_full[stage_of(i)], parity_of(i));
}

/* Walks the key tiles [first, last): 64 rows of one warpgroup. The keys of the next tile are waited
 * for behind the softmax, because ptxas moves a softmax past wgmma_wait<0>, but not past the loop
 * of a wait: so it runs while the tensor cores have the output. */
template <class T, int D>
GPU_FN void hopper_attend(const gpu_attention_t &args, const prefill_work_t &work, int group,
                          int first, int last, hopper_shared_t<D> *shared, hopper_rows_t<D> &rows) {
  float scores[KEYS / 8][4], factor[2];
  uint32_t weights[KEYS / WGMMA_DEPTH][4];
  const uint8_t *query = shared->query[group];
  const int tiles = last - first;
  await_keys<D>(shared, 0, tiles);
  issue_scores<T, D>(scores, query, shared->keys[0]);
  wgmma_wait<0>();
  wgmma_pin(scores);
  free_stage(&shared->keys_free[0]);
  hopper_step<D>(args, work, group, first, rows, scores, factor);
  take_weights<T, D>(rows, factor, scores, weights);
  await_keys<D>(shared, 1, tiles);
  if (group == 1 && tiles > 1) bar_arrive(BARRIER_TURN, THREADS - WARPGROUP); /* 0 begins */
  for (int i = 1; i < tiles; i++) {
    const int stage = stage_of(i), before = stage_of(i - 1);
    bar_sync(BARRIER_TURN + group, THREADS - WARPGROUP);
    wgmma_pin(rows.acc);
    wgmma_pin(weights);
    issue_scores<T, D>(scores, query, shared->keys[stage]);
    mbarrier_wait(&shared->values_full[before], parity_of(i - 1));
    issue_values<T, D>(rows, weights, shared->values[before]);
    if (group == 0 || i + 1 < tiles) bar_arrive(BARRIER_TURN + 1 - group, THREADS - WARPGROUP);
    wgmma_wait<1>();
    wgmma_pin(scores);
    free_stage(&shared->keys_free[stage]);
    hopper_step<D>(args, work, group, first + i, rows, scores, factor);
    await_keys<D>(shared, i + 1, tiles);
    wgmma_wait<0>();
    wgmma_pin(rows.acc);
    wgmma_pin(weights);
    free_stage(&shared->values_free[before]);
    take_weights<T, D>(rows, factor, scores, weights);
  }
  mbarrier_wait(&shared->values_full[stage_of(tiles - 1)], parity_of(tiles - 1));
  wgmma_pin(rows.acc);
  wgmma_pin(weights);
  issue_values<T, D>(rows, weights, shared->values[stage_of(tiles - 1)]);
  wgmma_wait<0>();
  wgmma_pin(rows.acc);
}

template <class T, int D>
GPU_FN void hopper_write(const gpu_attention_t &args, const prefill_work_t &work,
                         const hopper_rows_t<D> &rows) {
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, dim = args.kv.head_dim;
  UNROLL
  for (int h = 0; h < 2; h++) {
    float sum = rows.sum[h];
    sum += __shfl_xor_sync(FULL_WARP, sum, 1);
    sum += __shfl_xor_sync(FULL_WARP, sum, 2);
    const int row = warp * MMA_ROWS + lane / 4 + h * 8;
    if (row >= work.queries) continue;
    const float inverse = inverse_sum(rows.max[h], sum, args.sinks, work.head, 1.0f);
    T *out = (T *)args.out + ((work.token + row) * args.num_heads + work.head) * dim;
    UNROLL
    for (int j = 0; j < D / 8; j++) {
      const int column = j * 8 + lane % 4 * 2;
      if (column >= dim) continue;
      *(uint32_t *)(out + column) =
          pack<T>(rows.acc[j][2 * h] * inverse, rows.acc[j][2 * h + 1] * inverse);
    }
  }
}

template <int D> GPU_FN void hopper_barriers(hopper_shared_t<D> *shared) {
  for (int i = 0; i < STAGES; i++) {
    mbarrier_init(&shared->keys_full[i], WARP);
    mbarrier_init(&shared->values_full[i], WARP);
    mbarrier_init(&shared->keys_free[i], GROUPS * GROUP_WARPS);
    mbarrier_init(&shared->values_free[i], GROUPS * GROUP_WARPS);
  }
  mbarrier_fence_init();
}

#endif

/* Compiled for a GPU without wgmma, the kernel has no body and allows one warp only. So
 * gpu_attention_prefill_sm90_fits sees that it is empty, and a launch by mistake fails. */
template <class T, int D>
__global__ void __launch_bounds__(GPU_HAS_WGMMA ? THREADS : WARP, 1)
    hopper_prefill_kernel(const gpu_attention_t args) {
#if GPU_HAS_WGMMA
  typedef hopper_shared_t<D> shared_t;
  DYN_SMEM(shared_t, shared);
  const int tiles = args.plan.counts[1];
  if ((int)blockIdx.x >= tiles) return;
  const int index = tiles - 1 - blockIdx.x; /* the last tiles of a request have the most keys */
  const prefill_work_t work = prefill_work(args, index, blockIdx.y, ROWS);
  const int first = prefill_low(args, work) / KEYS;
  const int last = (work.position + work.queries + KEYS - 1) / KEYS;
  if (threadIdx.x == 0) hopper_barriers<D>(shared);
  __syncthreads(); /* the mbarriers are there */
  const int group = __shfl_sync(FULL_WARP, (int)threadIdx.x / WARPGROUP, 0);
  if (group == GROUPS) {
    registers_lower<COPY_REGISTERS>();
    if (threadIdx.x / WARP == GROUPS * GROUP_WARPS) hopper_copy<D>(args, work, first, last, shared);
  } else {
    registers_raise<COMPUTE_REGISTERS>();
    hopper_queries<T, D>(args, work, group, shared->query[group]);
    hopper_rows_t<D> rows = {{}, {-INFINITY, -INFINITY}, {}};
    hopper_attend<T, D>(args, work, group, first, last, shared, rows);
    hopper_write<T, D>(args, work, rows);
  }
#endif
}

template <class T, int D>
static cudaError_t hopper(const gpu_attention_t &args, int32_t tiles, gpu_stream_t stream) {
  const size_t bytes = sizeof(hopper_shared_t<D>);
  const cudaError_t status =
      cudaFuncSetAttribute((const void *)hopper_prefill_kernel<T, D>,
                           cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
  if (status != cudaSuccess) return status;
  return LAUNCH((hopper_prefill_kernel<T, D>), ((unsigned)tiles, (unsigned)args.num_heads),
                (THREADS), bytes, stream, args);
}

int gpu_attention_prefill_sm90_fits(const gpu_kv_t *kv) {
  struct cudaFuncAttributes loaded;
  if (!kv_supported(*kv) || kv->fp8 || kv_padded(kv->head_dim) > 128) return 0;
  if (cudaFuncGetAttributes(&loaded, (const void *)hopper_prefill_kernel<bf16_t, 128>) != 0) {
    (void)cudaGetLastError();
    return 0;
  }
  return loaded.binaryVersion == 90 && loaded.maxThreadsPerBlock >= THREADS;
}

int gpu_attention_prefill_sm90(const gpu_attention_t *args, int32_t tiles, gpu_stream_t stream) {
  if (!kv_supported(args->kv) || args->kv.fp8 || tiles < 0) return cudaErrorInvalidValue;
  if (args->num_heads <= 0 || args->num_heads % args->kv.num_kv_heads != 0)
    return cudaErrorInvalidValue;
  if (kv_padded(args->kv.head_dim) > 128 || !(args->scale > 0.0f)) return cudaErrorInvalidValue;
  if (gpu_prefill_tile(args->kv.head_dim) != ROWS) return cudaErrorInvalidValue;
  if (tiles == 0) return cudaSuccess;
  const bool bf16 = args->kv.dtype == DTYPE_BF16, narrow = kv_padded(args->kv.head_dim) == 64;
  if (bf16)
    return narrow ? hopper<bf16_t, 64>(*args, tiles, stream)
                  : hopper<bf16_t, 128>(*args, tiles, stream);
  return narrow ? hopper<f16_t, 64>(*args, tiles, stream)
                : hopper<f16_t, 128>(*args, tiles, stream);
}
