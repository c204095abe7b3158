/* gemm_skinny.cu: linear layers of few rows, M <= 32: the weights are streamed once.
 *
 * out (M, N) = in (M, K) . W (N, K)^T (+ bias) (+ residual); N * K * 2 bytes, which bounds it. A
 * block owns 16 rows of W, the rows of mma's A; tokens are its columns, 8 an instruction. Eight
 * warps take 32 columns of K in turn and are summed in order at the end. A lane loads 16 bytes of W
 * straight to registers: k is permuted so that a lane's eight neighbours are exactly its fragments
 * of two instructions, for W and for the tokens alike, and no shuffle is needed. The permutation
 * and the order of sums depend on K alone, so a token's bits do not depend on M. Measured: not yet.
 */
#include "cuda/softmax.h"

enum { SKINNY_WARPS = 8, SKINNY_THREADS = SKINNY_WARPS * WARP, TILE_N = 16, TILE_K = 32 };
enum { SKINNY_STEP = SKINNY_WARPS * TILE_K, IN_FLIGHT = 4 };

/* Eight elements at column `k` of a row, zeros beyond the end or when the row is none. */
template <class T, bool STREAM> GPU_FN uint4 load_piece(const T *row, int k, int columns) {
  if (row == nullptr || k >= columns) return make_uint4(0, 0, 0, 0);
  return STREAM ? load_16_stream(row + k) : load_16(row + k);
}

template <class T>
GPU_FN void multiply(float (&acc)[4], const uint4 &low, const uint4 &high, const uint4 &x) {
  const uint32_t first[4] = {low.x, high.x, low.y, high.y};
  const uint32_t second[4] = {low.z, high.z, low.w, high.w};
  mma_16816<T>(acc, first, x.x, x.y);
  mma_16816<T>(acc, second, x.z, x.w);
}

/* acc (tokens 8 m + ..) over this warp's share of K. */
template <class T, int TOKENS>
GPU_FN void stream_weights(const gpu_skinny_t &a, float (&acc)[TOKENS][4]) {
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
  const int low = blockIdx.x * TILE_N + lane / 4, high = low + 8, k = a.k;
  const T *weight = (const T *)a.weight;
  const T *low_row = low < a.n ? weight + (size_t)low * k : nullptr;
  const T *high_row = high < a.n ? weight + (size_t)high * k : nullptr;
  const T *in[TOKENS];
  UNROLL
  for (int m = 0; m < TOKENS; m++) {
    const int token = m * 8 + lane / 4;
    in[m] = token < a.rows ? (const T *)a.in + (size_t)token * k : nullptr;
  }
  for (int base = warp * TILE_K; base < k; base += IN_FLIGHT * SKINNY_STEP) {
    uint4 weights[IN_FLIGHT][2];
    UNROLL
    for (int i = 0; i < IN_FLIGHT; i++) {
      const int at = base + i * SKINNY_STEP + lane % 4 * VECTOR;
      weights[i][0] = load_piece<T, true>(low_row, at, k);
      weights[i][1] = load_piece<T, true>(high_row, at, k);
    }
    UNROLL
    for (int i = 0; i < IN_FLIGHT; i++) {
      const int at = base + i * SKINNY_STEP + lane % 4 * VECTOR;
      UNROLL
      for (int m = 0; m < TOKENS; m++)
        multiply<T>(acc[m], weights[i][0], weights[i][1], load_piece<T, false>(in[m], at, k));
    }
  }
}

template <class T> GPU_FN void write_output(const gpu_skinny_t &a, int token, int n, float sum) {
  const size_t at = (size_t)token * a.n + n;
  if (a.bias) sum += a.bias[n];
  if (a.residual) sum += to_float(((const T *)a.residual)[at]);
  if (!a.logits) {
    ((T *)a.out)[at] = from_float<T>(sum);
    return;
  }
  ((float *)a.out)[at] = a.softcap != 0.0f ? a.softcap * tanhf(sum / a.softcap) : sum;
}

template <class T, int TOKENS>
__global__ void __launch_bounds__(SKINNY_THREADS) skinny_kernel(const gpu_skinny_t a) {
  SHARED(sums, float[SKINNY_WARPS][TILE_N][TOKENS * 8 + 1]);
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
  float acc[TOKENS][4] = {};
  stream_weights<T, TOKENS>(a, acc);
  UNROLL
  for (int m = 0; m < TOKENS; m++)
    for (int i = 0; i < 4; i++)
      sums[warp][lane / 4 + i / 2 * 8][m * 8 + lane % 4 * 2 + i % 2] = acc[m][i];
  __syncthreads();
  for (int i = threadIdx.x; i < TILE_N * TOKENS * 8; i += SKINNY_THREADS) {
    const int row = i % TILE_N, token = i / TILE_N, n = blockIdx.x * TILE_N + row;
    if (n >= a.n || token >= a.rows) continue;
    float sum = 0.0f;
    for (int w = 0; w < SKINNY_WARPS; w++) sum += sums[w][row][token];
    write_output<T>(a, token, n, sum);
  }
}

template <class T, int TOKENS>
static cudaError_t launch(const gpu_skinny_t &args, gpu_stream_t stream) {
  const unsigned blocks = (unsigned)((args.n + TILE_N - 1) / TILE_N);
  return LAUNCH((skinny_kernel<T, TOKENS>), (blocks), (SKINNY_THREADS), 0, stream, args);
}

template <class T> static cudaError_t skinny(const gpu_skinny_t &args, gpu_stream_t stream) {
  if (args.rows <= 8) return launch<T, 1>(args, stream);
  if (args.rows <= 16) return launch<T, 2>(args, stream);
  return launch<T, 4>(args, stream);
}

int gpu_skinny(dtype_t dtype, const gpu_skinny_t *args, gpu_stream_t stream) {
  if (args->rows < 0 || args->rows > GPU_SKINNY_ROWS_MAX || args->n <= 0 || args->k <= 0)
    return cudaErrorInvalidValue;
  if (args->k % GPU_ROW_ALIGN != 0) return cudaErrorInvalidValue;
  if (args->rows == 0) return cudaSuccess;
  return FOR_DTYPE(dtype, skinny, *args, stream);
}
