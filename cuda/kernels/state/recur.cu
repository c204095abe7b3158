/* recur.cu: the recurrences of gated DeltaNet (Yang et al. 2024) and Mamba-2 (Dao and Gu 2024).
 *
 * A block takes 32 columns of one head's S [key_dim, value_dim] through the tokens of one row. Four
 * threads share a column, each with a fourth of the key rows in registers, so a decode reads and
 * writes S once, by whole sectors. The tokens come in chunks of 16 through shared memory: q and k
 * (in a DeltaNet divided by their lengths), v, and the factors of the head. Between two chunks the
 * state stays in registers, and it goes from token to token in one order, so that a prefill has the
 * bits of decodes, however it is cut. Moves 8 key_dim value_dim bytes of state a row and head; a
 * decode is bound by that. A prefill is bound by the latency of a token, about 4 key_dim / 4
 * operations a thread and its sums over four threads; heads * value_dim / 32 blocks run beside each
 * other. Measured: not yet.
 */
#include "cuda/kernels/state/rows.h"

enum { RECUR_THREADS = 128, RECUR_PARTS = 4, RECUR_TOKENS = 16 };
enum { RECUR_COLUMNS = RECUR_THREADS / RECUR_PARTS, RECUR_WARPS = RECUR_THREADS / WARP };

/* What the tokens of a chunk bring to the columns of a block. */
template <int DIM> struct alignas(16) recur_chunk {
  float q[RECUR_TOKENS][DIM], k[RECUR_TOKENS][DIM];
  float v[RECUR_TOKENS][RECUR_COLUMNS], out[RECUR_TOKENS][RECUR_COLUMNS];
  float decay[RECUR_TOKENS], rate[RECUR_TOKENS];
};

/* Where a block works. */
typedef struct recur_place {
  int head, column;     /* the first of its columns */
  int64_t start, state; /* its first token; its numbers within S of the layer */
} recur_place_t;

GPU_FN float softplus(float value) {
  return value > 20.0f ? value : log1pf(expf(value));
}

/* Factors of a token: S = decay S + k (rate ...)^T. */
template <class T, int DIM>
GPU_FN void load_factors(recur_chunk<DIM> &chunk, const gpu_recur_t &args, const T *row, int head,
                         int token) {
  float step = softplus(to_float(row[args.step + head]) + args.bias[head]);
  if (!args.corrects) step = fminf(fmaxf(step, args.step_min), args.step_max);
  chunk.decay[token] = expf(mul_rn(args.decay[head], step));
  chunk.rate[token] =
      args.corrects ? args.rate_most / (1.0f + expf(-to_float(row[args.rate + head]))) : step;
}

/* q or k of a token, by a warp. */
template <class T, int DIM>
GPU_FN void load_key(float *to, const gpu_recur_t &args, const T *from, float scale) {
  const int lane = threadIdx.x % WARP;
  float x[DIM / WARP], sum = 0.0f;
  UNROLL for (int i = 0; i < DIM / WARP; i++) {
    x[i] = lane + i * WARP < args.key_dim ? to_float(from[lane + i * WARP]) : 0.0f;
    sum = fma_rn(x[i], x[i], sum);
  }
  if (args.corrects) {
    scale = scale / sqrtf(warp_sum(sum) + 1e-6f);
    UNROLL for (int i = 0; i < DIM / WARP; i++) x[i] = mul_rn(x[i], scale);
  }
  UNROLL for (int i = 0; i < DIM / WARP; i++) to[lane + i * WARP] = x[i];
}

/* Tokens [first, first + count) of a row. All threads call it. */
template <class T, int DIM>
GPU_FN void load_chunk(recur_chunk<DIM> &chunk, const gpu_recur_t &args, const recur_place_t &at,
                       int first, int count) {
  const T *rows = (const T *)args.in + (at.start + first) * args.width;
  const int group = args.tiled ? at.head % args.groups : at.head / (args.heads / args.groups);
  const float q_scale = 1.0f / sqrtf((float)args.key_dim);
  for (int i = threadIdx.x / WARP; i < 2 * count; i += RECUR_WARPS) {
    const T *row = rows + (int64_t)(i / 2) * args.width + group * args.key_dim;
    if (i % 2 == 0)
      load_key<T, DIM>(chunk.q[i / 2], args, row + args.q, q_scale);
    else
      load_key<T, DIM>(chunk.k[i / 2], args, row + args.k, 1.0f);
  }
  for (int i = threadIdx.x; i < count * RECUR_COLUMNS; i += RECUR_THREADS) {
    const int token = i / RECUR_COLUMNS, column = i % RECUR_COLUMNS, of = at.column + column;
    const T *row = rows + (int64_t)token * args.width + args.v + at.head * args.value_dim;
    chunk.v[token][column] = of < args.value_dim ? to_float(row[of]) : 0.0f;
  }
  if ((int)threadIdx.x < count)
    load_factors(chunk, args, rows + (int64_t)threadIdx.x * args.width, at.head, threadIdx.x);
}

template <class T, int DIM>
GPU_FN void store_chunk(const recur_chunk<DIM> &chunk, const gpu_recur_t &args,
                        const recur_place_t &at, int first, int count) {
  for (int i = threadIdx.x; i < count * RECUR_COLUMNS; i += RECUR_THREADS) {
    const int token = i / RECUR_COLUMNS, column = i % RECUR_COLUMNS, of = at.column + column;
    T *row = (T *)args.out + ((at.start + first + token) * args.heads + at.head) * args.value_dim;
    if (of < args.value_dim) row[of] = from_float<T>(chunk.out[token][column]);
  }
}

/* Key row `j` of vector `i` of a thread is row (i * RECUR_PARTS + part) * 4 + j of S. */
template <int VECTORS>
GPU_FN void load_state(float (&state)[VECTORS][4], const float *from, bool fresh) {
  UNROLL for (int i = 0; i < VECTORS; i++) {
    float4 x = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (!fresh) x = ((const float4 *)from)[i * RECUR_THREADS + threadIdx.x];
    state[i][0] = x.x, state[i][1] = x.y, state[i][2] = x.z, state[i][3] = x.w;
  }
}

template <int VECTORS> GPU_FN void store_state(float *to, const float (&state)[VECTORS][4]) {
  UNROLL for (int i = 0; i < VECTORS; i++)((float4 *)to)[i * RECUR_THREADS + threadIdx.x] =
      make_float4(state[i][0], state[i][1], state[i][2], state[i][3]);
}

/* The sum over the threads of a column, to each of them. */
GPU_FN float column_sum(const float (&part)[4]) {
  float sum = add_rn(add_rn(part[0], part[1]), add_rn(part[2], part[3]));
  for (int offset = 1; offset < RECUR_PARTS; offset *= 2)
    sum = add_rn(sum, __shfl_xor_sync(FULL_WARP, sum, offset));
  return sum;
}

/* Takes the state over a token; returns S^T q of the thread's column. */
template <int VECTORS>
GPU_FN float next_token(float (&state)[VECTORS][4], const recur_chunk<VECTORS * 16> &chunk,
                        int token, float v, bool corrects) {
  const int part = threadIdx.x % RECUR_PARTS;
  const float4 *k = (const float4 *)chunk.k[token] + part;
  const float4 *q = (const float4 *)chunk.q[token] + part;
  const float decay = chunk.decay[token], rate = chunk.rate[token];
  if (corrects) {
    float seen[4] = {};
    UNROLL for (int i = 0; i < VECTORS; i++) {
      const float4 x = k[i * RECUR_PARTS];
      const float key[4] = {x.x, x.y, x.z, x.w};
      UNROLL for (int j = 0; j < 4; j++) seen[j] = fma_rn(key[j], state[i][j], seen[j]);
    }
    v = fma_rn(-decay, column_sum(seen), v);
  }
  const float add = mul_rn(rate, v);
  float sum[4] = {};
  UNROLL for (int i = 0; i < VECTORS; i++) {
    const float4 x = k[i * RECUR_PARTS], y = q[i * RECUR_PARTS];
    const float key[4] = {x.x, x.y, x.z, x.w}, query[4] = {y.x, y.y, y.z, y.w};
    UNROLL for (int j = 0; j < 4; j++) {
      state[i][j] = fma_rn(key[j], add, mul_rn(decay, state[i][j]));
      sum[j] = fma_rn(query[j], state[i][j], sum[j]);
    }
  }
  return column_sum(sum);
}

/* VECTORS: of four key rows, that a thread has. */
template <class T, int VECTORS>
__global__ void __launch_bounds__(RECUR_THREADS) recur_kernel(const gpu_recur_t args) {
  const int DIM = VECTORS * 4 * RECUR_PARTS;
  SHARED(chunk, recur_chunk<DIM>);
  state_row_t row = state_row(args.states, blockIdx.z);
  if (row.tokens == 0) return;
  const recur_place_t at = {(int)blockIdx.y, (int)blockIdx.x * RECUR_COLUMNS, row.start,
                            ((int64_t)blockIdx.y * gridDim.x + blockIdx.x) * DIM * RECUR_COLUMNS};
  const int column = threadIdx.x / RECUR_PARTS;
  const float skip = args.skip != nullptr ? args.skip[at.head] : 0.0f;
  float state[VECTORS][4];
  float *const own = row.state != nullptr ? row.state + at.state : nullptr;
  load_state(state, own, row.fresh);
  for (int first = 0; first < row.tokens; first += RECUR_TOKENS) {
    const int count = row.tokens - first < RECUR_TOKENS ? row.tokens - first : RECUR_TOKENS;
    load_chunk<T, DIM>(chunk, args, at, first, count);
    __syncthreads();
    for (int t = 0; t < count; t++) {
      const float v = chunk.v[t][column];
      const float sum = next_token<VECTORS>(state, chunk, t, v, args.corrects != 0);
      if (threadIdx.x % RECUR_PARTS == 0) chunk.out[t][column] = fma_rn(skip, v, sum);
      for (int i = 0; i < STATE_SAVES_OF_TOKEN; i++) {
        float *to = state_save(args.states, row, first + t + 1);
        if (to != nullptr) store_state(to + at.state, state);
      }
    }
    __syncthreads();
    store_chunk<T, DIM>(chunk, args, at, first, count);
  }
  if (own != nullptr) store_state(own, state);
}

static int32_t recur_dim(int32_t key_dim) {
  return key_dim <= 64 ? 64 : key_dim <= 128 ? 128 : GPU_KEY_DIM_MAX;
}
static int32_t recur_tiles(int32_t value_dim) {
  return (value_dim + RECUR_COLUMNS - 1) / RECUR_COLUMNS;
}

template <class T> static cudaError_t recur(const gpu_recur_t &args, gpu_stream_t stream) {
  const dim3 grid((unsigned)recur_tiles(args.value_dim), (unsigned)args.heads,
                  (unsigned)args.states.reqs);
  switch (recur_dim(args.key_dim)) {
  case 64: return LAUNCH((recur_kernel<T, 4>), (grid), (RECUR_THREADS), 0, stream, args);
  case 128: return LAUNCH((recur_kernel<T, 8>), (grid), (RECUR_THREADS), 0, stream, args);
  default: return LAUNCH((recur_kernel<T, 16>), (grid), (RECUR_THREADS), 0, stream, args);
  }
}

int64_t gpu_recur_values(int32_t heads, int32_t key_dim, int32_t value_dim) {
  if (key_dim > GPU_KEY_DIM_MAX) return -1;
  return (int64_t)heads * recur_dim(key_dim) * recur_tiles(value_dim) * RECUR_COLUMNS;
}

int gpu_recur(dtype_t dtype, const gpu_recur_t *args, gpu_stream_t stream) {
  if (args->key_dim < 1 || args->key_dim > GPU_KEY_DIM_MAX || args->value_dim < 1 ||
      args->groups < 1 || args->heads % args->groups != 0 || args->states.reqs < 0 ||
      args->states.stride % GPU_STATE_ALIGN != 0)
    return cudaErrorInvalidValue;
  if (args->states.reqs == 0 || args->states.tokens == 0) return cudaSuccess;
  return FOR_DTYPE(dtype, recur, *args, stream);
}
