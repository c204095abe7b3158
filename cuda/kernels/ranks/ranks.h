/* ranks.h: the launchers of what several devices that run one model do between their exchanges;
 * see kernels.h for the rules.
 *
 * `parts` is what the ranks have exchanged: the part of rank 0, then that of rank 1, and so on.
 * Engine thread; callable from C.
 */
#ifndef INFERD_CUDA_KERNELS_RANKS_RANKS_H
#define INFERD_CUDA_KERNELS_RANKS_RANKS_H

#include "cuda/kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { GPU_RANKS_MAX = 64 };

/* Rank r has columns, or rows of a table, [at[r], at[r + 1]). */
typedef struct gpu_cuts {
  int32_t size; /* of ranks */
  int32_t at[GPU_RANKS_MAX + 1];
} gpu_cuts_t;
static inline gpu_cuts_t gpu_cuts_of(int32_t size, const int32_t *cuts) {
  gpu_cuts_t out;
  out.size = size;
  for (int32_t r = 0; r <= size; r++) out.at[r] = cuts[r];
  return out;
}

/* own[rows, width] = in[rows, first .. first + width) of rows of `stride` elements. */
int gpu_rank_take(void *own, const void *in, int32_t first, int32_t width, int32_t stride,
                  int32_t rows, gpu_stream_t stream);
/* out[rows, all columns]: parts has rows x the columns of one rank behind those of another. Columns
 * of two bytes, cuts in multiples of 8. */
int gpu_rank_spread(void *out, const void *parts, const gpu_cuts_t *cuts, int32_t rows,
                    gpu_stream_t stream);
/* parts = the columns of each rank, one rank's behind another's, of in[rows, all columns]. */
int gpu_rank_split(void *parts, const void *in, const gpu_cuts_t *cuts, int32_t rows,
                   gpu_stream_t stream);
/* gpu_rank_spread for fp32, and any cuts. */
int gpu_rank_spread_floats(float *out, const float *parts, const gpu_cuts_t *cuts, int32_t rows,
                           gpu_stream_t stream);
/* out[rows, width] = the sum of parts[ranks][rows, width], in fp32 and in their order (+ residual,
 * which may be out), rounded once. */
int gpu_rank_add(dtype_t dtype, void *out, const void *parts, const void *residual, int32_t ranks,
                 int32_t width, int32_t rows, gpu_stream_t stream);
/* out[T, width] = row t of the part parts[ranks][T, width] of the rank that has ids[t]; an id that
 * no rank has gives a row of zeros. */
int gpu_rank_pick(void *out, const void *parts, const int32_t *ids, const gpu_cuts_t *cuts,
                  int32_t width, int32_t tokens, gpu_stream_t stream);

#ifdef __cplusplus
}
#endif

#endif
