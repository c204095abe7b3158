/* skinny_parts.h: a block's share of a linear layer of at most 32 rows, weights streamed once.
 *
 * Device functions of gemm_skinny.cu, gemm_qkv.cu, gemm_packed.cu and moe.cu: 256 threads, eight
 * warps that take spans of K in turn (linear_parts.h); a lane loads 16 bytes of W straight to
 * registers. blockIdx.x is the group of weight tiles, blockIdx.y the part of the spans.
 */
#ifndef INFERD_CUDA_KERNELS_SKINNY_PARTS_H
#define INFERD_CUDA_KERNELS_SKINNY_PARTS_H

#include "cuda/device_code/row_square.h"
#include "cuda/kernels/skinny_sums.h"

enum { IN_FLIGHT = 4 };

/* Weights of IN_FLIGHT steps: a lane's pieces of rows lane / 4 and + 8 of each tile. */
template <int TILES> struct weights_t { uint4 piece[IN_FLIGHT][TILES][2]; };

/* Args: gpu_skinny_t, or what begins with it and has a weight_row of its own. */
template <class T, int TILES, class Args>
GPU_FN void load_weights(const Args &args, int column, int end, weights_t<TILES> &weights) {
  const int lane = threadIdx.x % WARP;
  UNROLL
  for (int i = 0; i < IN_FLIGHT; i++) {
    const int at = column + i * STEP_K + lane % 4 * VECTOR;
    UNROLL
    for (int r = 0; r < TILES; r++) {
      for (int h = 0; h < 2; h++) {
        const int row = weight_row(args, blockIdx.x * TILES + r, lane / 4 + 8 * h);
        weights.piece[i][r][h] = make_uint4(0, 0, 0, 0);
        if (row >= 0 && at < end)
          weights.piece[i][r][h] =
              load_16_stream((const T *)args.weight + (size_t)row * args.k + at);
      }
    }
  }
}

/* Where the warp goes on behind its first batch of steps, in its span or its next; or -1. */
GPU_FN int second_batch(const gpu_skinny_t &args, int begin, int spans_left) {
  const int columns = span_columns(args.k), batch = IN_FLIGHT * STEP_K;
  if (batch < columns && begin + batch < args.k) return begin + batch;
  const int next = begin + SKINNY_WARPS * columns;
  return spans_left > SKINNY_WARPS && next < args.k ? next : -1;
}

/* Asks for the weights of a batch of steps in L2: they are on their way while the kernel before
 * still runs, and take no registers. A lane for each 128 bytes. */
template <class T, int TILES, class Args>
GPU_FN void prefetch_weights(const Args &args, int column) {
  const int lane = threadIdx.x % WARP, at = column + lane % 2 * (IN_FLIGHT * STEP_K / 2);
  for (int r = 0; r < TILES && column >= 0; r++) {
    const int row = weight_row(args, blockIdx.x * TILES + r, lane / 2);
    if (row >= 0 && at < args.k) prefetch_l2((const T *)args.weight + (size_t)row * args.k + at);
  }
}

/* Eight inputs of a token, normed when `inverse` is not 0. */
template <class T, bool NORM>
GPU_FN uint4 load_input(const gpu_skinny_t &args, int token, int at, int end, float inverse) {
  if (token >= args.rows || at >= end) return make_uint4(0, 0, 0, 0);
  const T *from = input_row<T>(args, token) + at;
  if (!NORM) return load_16(from);
  float x[VECTOR];
  load_8(x, from);
  for (int j = 0; j < VECTOR; j++) x[j] = mul_rn(x[j], inverse);
  if (args.norm_weight != nullptr) {
    float weight[VECTOR];
    load_8_floats(weight, args.norm_weight + at);
    for (int j = 0; j < VECTOR; j++) x[j] = mul_rn(x[j], weight[j]);
  }
  return make_uint4(pack<T>(x[0], x[1]), pack<T>(x[2], x[3]), pack<T>(x[4], x[5]),
                    pack<T>(x[6], x[7]));
}

template <class T, int TOKENS, int TILES, bool NORM>
GPU_FN void multiply_weights(const gpu_skinny_t &args, int column, int end,
                             const weights_t<TILES> &weights, const float *inverse,
                             float (&acc)[TILES][TOKENS][4]) {
  const int lane = threadIdx.x % WARP;
  UNROLL
  for (int i = 0; i < IN_FLIGHT; i++) {
    const int at = column + i * STEP_K + lane % 4 * VECTOR;
    UNROLL
    for (int m = 0; m < TOKENS; m++) {
      const int token = m * 8 + lane / 4;
      const uint4 x = load_input<T, NORM>(args, token, at, end, NORM ? inverse[token] : 0.0f);
      UNROLL
      for (int r = 0; r < TILES; r++)
        multiply<T>(acc[r][m], weights.piece[i][r][0], weights.piece[i][r][1], x);
    }
  }
}

/* inverse[TOKENS * 8] = 1 / rms of each row. */
template <class T, int TOKENS> GPU_FN void norm_rows(const gpu_skinny_t &args, float *inverse) {
  for (int token = threadIdx.x / WARP; token < args.rows; token += SKINNY_WARPS) {
    const float sum = warp_row_squares(input_row<T>(args, token), args.k);
    if (threadIdx.x % WARP == 0) inverse[token] = inverse_rms(sum, args.k, args.norm_eps);
  }
  for (int token = args.rows + threadIdx.x; token < TOKENS * 8; token += SKINNY_THREADS)
    inverse[token] = 0.0f;
  __syncthreads();
}

/* Multiplies the spans of this block: part blockIdx.y of all spans. */
template <class T, int TOKENS, int TILES, bool NORM, class Args>
GPU_FN void stream_spans(const Args &args, skinny_shared_t<TOKENS, TILES> &shared) {
  const int warp = threadIdx.x / WARP, columns = span_columns(args.k);
  const int mine = SPANS / gridDim.y, first = blockIdx.y * mine, batch = IN_FLIGHT * STEP_K;
  float acc[TILES][TOKENS][4] = {};
  weights_t<TILES> weights;
  const int begin = (first + warp) * columns,
            stop = begin + columns < args.k ? begin + columns : args.k;
  if (warp < mine) load_weights<T, TILES>(args, begin, stop, weights);
  if (warp < mine) prefetch_weights<T, TILES>(args, second_batch(args, begin, mine - warp));
  grid_dependency_begin();
  if (NORM) norm_rows<T, TOKENS>(args, shared.inverse);
  for (int span = first + warp; span < first + mine; span += SKINNY_WARPS) {
    const int low = span * columns, high = low + columns < args.k ? low + columns : args.k;
    for (int column = low; column < high; column += batch) {
      if (span != first + warp || column != low)
        load_weights<T, TILES>(args, column, high, weights);
      multiply_weights<T, TOKENS, TILES, NORM>(args, column, high, weights, shared.inverse, acc);
    }
    leave_sums<TOKENS, TILES>(acc, shared.sums[span]);
  }
  __syncthreads();
}

#endif
