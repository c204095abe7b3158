/* conv.cu: causal convolutions along the tokens of each row, each channel by itself.
 *
 * out[t, c] = sum over k of weight[k, c] * x[t - (K - 1) + k, c] (+ bias[c]), with x = in (*
 * before), then silu or * after. The sum has no memory but the last K - 1 inputs: a long row is cut
 * into pieces that run beside each other with the bits of one. A thread takes eight channels
 * through the tokens of a piece. `out` may be `in`, so a kernel before it copies what stands before
 * each piece of a row that has several. Moves 4 (in LFM2 8) bytes a token and channel, and in a
 * decode 8 (K - 1) of state; bound by bandwidth from some hundred rows on. Measured: not yet.
 */
#include "cuda/device_code/act.h"
#include "cuda/kernels/state/rows.h"

enum { CONV_THREADS = 128, PIECES_MAX = 64, PIECE_MIN = 32 };

/* Tokens of a row that one block takes. */
typedef struct conv_piece {
  int32_t first, last; /* of the tokens of the row */
  int64_t border;      /* its place in `borders`; -1 = the state stands before it */
} conv_piece_t;

GPU_BOTH_FN int32_t conv_piece_tokens(const gpu_states_t &states) {
  const int32_t even = (states.tokens + PIECES_MAX - 1) / PIECES_MAX;
  return even > PIECE_MIN ? even : PIECE_MIN;
}

/* The row of a block of the grid. Row r has the units from start[r] / size + r on, which are at
 * least as many as its pieces. */
GPU_FN int row_of(const gpu_states_t &states, int unit, int32_t size) {
  if (states.decodes) return unit;
  int low = 0, high = states.reqs - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (states.query_start_loc[middle] / size + middle <= unit)
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

GPU_FN conv_piece_t piece_of(const gpu_states_t &states, const state_row_t &row, int index,
                             int32_t size) {
  if (states.decodes) size = 1;
  const int32_t start = (int32_t)row.start;
  const int piece = states.decodes ? 0 : blockIdx.x - start / size - index;
  conv_piece_t made;
  made.first = piece * size;
  made.last = made.first + size < row.tokens ? made.first + size : row.tokens;
  made.border = row.tokens > size ? 2 * (start / size) + piece : -1;
  return made;
}

/* x of a token; `at` is the first channel. */
template <class T, int N>
GPU_FN void load_input(float (&x)[N], const gpu_conv_t &args, int64_t token, int at) {
  const T *from = (const T *)args.in + token * args.in_width + at;
  load_some(x, from + args.in_column);
  if (args.before < 0) return;
  float factor[N];
  load_some(factor, from + args.before);
  for (int j = 0; j < N; j++) x[j] = mul_rn(x[j], factor[j]);
}

/* What stands before every piece of the rows that have several. */
template <class T, int N>
__global__ void __launch_bounds__(CONV_THREADS) conv_borders_kernel(const gpu_conv_t args) {
  const int32_t size = conv_piece_tokens(args.states),
                at = (blockIdx.y * CONV_THREADS + threadIdx.x) * N;
  const int index = row_of(args.states, blockIdx.x, size), last = args.taps - 1;
  const state_row_t row = state_row(args.states, index);
  const conv_piece_t piece = piece_of(args.states, row, index, size);
  if (at >= args.channels || piece.first >= row.tokens || piece.border < 0) return;
  float *to = args.borders + piece.border * last * args.channels + at;
  for (int k = 0; k < last; k++) {
    const int32_t token = piece.first - last + k;
    float x[N] = {};
    if (token >= 0)
      load_input<T, N>(x, args, row.start + token, at);
    else if (!row.fresh)
      for (int j = 0; j < N; j++)
        x[j] = row.state[(int64_t)(k + piece.first) * args.channels + at + j];
    for (int j = 0; j < N; j++) to[(int64_t)k * args.channels + j] = x[j];
  }
}

/* The last taps - 1 inputs of some channels; `window` holds TAPS, of which the last is no state. */
template <int TAPS, int N>
GPU_FN void store_window(float *to, const float (&window)[TAPS][N], const gpu_conv_t &args,
                         int at) {
  UNROLL for (int k = 0; k < TAPS - 1; k++) {
    if (k >= args.taps - 1) continue;
    for (int j = 0; j < N; j++) to[(int64_t)k * args.channels + at + j] = window[k][j];
  }
}

/* TAPS is args.taps, or at least that. */
template <class T, int TAPS, int N>
GPU_FN void convolve(const gpu_conv_t &args, state_row_t &row, const conv_piece_t &piece, int at) {
  const int last = TAPS < GPU_CONV_TAPS_MAX ? TAPS - 1 : args.taps - 1;
  float window[TAPS][N], weight[TAPS][N], bias[N], next[N];
  const float *before =
      piece.border < 0 ? row.state : args.borders + piece.border * last * args.channels;
  const bool empty = piece.border < 0 && row.fresh;
  UNROLL for (int k = 0; k < TAPS; k++) {
    for (int j = 0; j < N; j++) {
      const int64_t from = (int64_t)k * args.channels + at + j;
      weight[k][j] = k <= last ? args.weight[from] : 0.0f;
      window[k][j] = k < last && !empty ? before[from] : 0.0f;
    }
  }
  for (int j = 0; j < N; j++) bias[j] = args.bias != nullptr ? args.bias[at + j] : 0.0f;
  load_input<T, N>(next, args, row.start + piece.first, at);
  for (int32_t t = piece.first; t < piece.last; t++) {
    float sum[N];
    UNROLL for (int k = 0; k < TAPS; k++) if (k == last) for (int j = 0; j < N; j++) window[k][j] =
        next[j];
    if (t + 1 < piece.last) load_input<T, N>(next, args, row.start + t + 1, at);
    for (int j = 0; j < N; j++) sum[j] = bias[j];
    UNROLL for (int k = 0; k < TAPS; k++) if (k <= last) for (int j = 0; j < N; j++) sum[j] =
        fma_rn(weight[k][j], window[k][j], sum[j]);
    UNROLL for (int k = 0; k + 1 < TAPS; k++) for (int j = 0; j < N; j++) window[k][j] =
        window[k + 1][j];
    if (args.silu)
      for (int j = 0; j < N; j++) sum[j] = act<GPU_SILU_MUL>(sum[j]);
    if (args.after >= 0) {
      float factor[N];
      load_some(factor, (const T *)args.in + (row.start + t) * args.in_width + args.after + at);
      for (int j = 0; j < N; j++) sum[j] = mul_rn(sum[j], factor[j]);
    }
    store_some((T *)args.out + (row.start + t) * args.out_width + args.out_column + at, sum);
    for (int i = 0; i < STATE_SAVES_OF_TOKEN; i++) {
      float *to = state_save(args.states, row, t + 1);
      if (to != nullptr) store_window<TAPS, N>(to, window, args, at);
    }
  }
  if (piece.last == row.tokens && row.state != nullptr)
    store_window<TAPS, N>(row.state, window, args, at);
}

template <class T, int TAPS, int N>
__global__ void __launch_bounds__(CONV_THREADS) conv_kernel(const gpu_conv_t args) {
  const int32_t size = conv_piece_tokens(args.states),
                at = (blockIdx.y * CONV_THREADS + threadIdx.x) * N;
  const int index = row_of(args.states, blockIdx.x, size);
  state_row_t row = state_row(args.states, index);
  const conv_piece_t piece = piece_of(args.states, row, index, size);
  if (at >= args.channels || piece.first >= row.tokens) return;
  while (row.save < row.last_save && args.states.saves[row.save].behind <= piece.first) row.save++;
  convolve<T, TAPS, N>(args, row, piece, at);
}

template <class T, int N> static cudaError_t conv(const gpu_conv_t &args, gpu_stream_t stream) {
  const gpu_states_t &states = args.states;
  const int32_t size = conv_piece_tokens(states), lanes = CONV_THREADS * N;
  const dim3 grid((unsigned)(states.decodes ? states.reqs : states.tokens / size + states.reqs),
                  (unsigned)((args.channels + lanes - 1) / lanes));
  if (!states.decodes && states.tokens > size) {
    const cudaError_t status =
        (cudaError_t)LAUNCH((conv_borders_kernel<T, N>), (grid), (CONV_THREADS), 0, stream, args);
    if (status != cudaSuccess) return status;
  }
  if (args.taps == 4)
    return LAUNCH((conv_kernel<T, 4, N>), (grid), (CONV_THREADS), 0, stream, args);
  if (args.taps == 3)
    return LAUNCH((conv_kernel<T, 3, N>), (grid), (CONV_THREADS), 0, stream, args);
  return LAUNCH((conv_kernel<T, GPU_CONV_TAPS_MAX, N>), (grid), (CONV_THREADS), 0, stream, args);
}

/* Eight channels a thread where all columns allow 16-byte accesses. */
template <class T> static cudaError_t conv_any(const gpu_conv_t &args, gpu_stream_t stream) {
  const int32_t all = args.channels | args.in_width | args.in_column | args.out_width |
                      args.out_column | (args.before < 0 ? 0 : args.before) |
                      (args.after < 0 ? 0 : args.after);
  return all % VECTOR == 0 ? conv<T, VECTOR>(args, stream) : conv<T, 1>(args, stream);
}

int32_t gpu_conv_borders(void) {
  return 2 * PIECES_MAX + 2;
}

int gpu_conv(dtype_t dtype, const gpu_conv_t *args, gpu_stream_t stream) {
  if (args->taps < 1 || args->taps > GPU_CONV_TAPS_MAX || args->channels <= 0 ||
      args->states.reqs < 0 || args->states.stride % GPU_STATE_ALIGN != 0)
    return cudaErrorInvalidValue;
  if (args->states.reqs == 0 || args->states.tokens == 0) return cudaSuccess;
  return FOR_DTYPE(dtype, conv_any, *args, stream);
}
