/* altup_ops.h: the part of the back end interface for Gemma 3n, whose residual stream is several of
 * which a layer computes one (alternating updates, Baykal et al. 2023), and whose first MLPs keep
 * the largest values alone.
 *
 * A back end has all functions or none (ops_t.altup is NULL). The promises are those of ops.h, and
 * its symbols; N streams, each [T, h]. The formulae are those of transformers' Gemma3nTextAltUp.
 */
#ifndef INFERD_ENGINE_DEVICE_ALTUP_OPS_H
#define INFERD_ENGINE_DEVICE_ALTUP_OPS_H

#include "engine/device/op_types.h"

struct device;

enum { ALTUP_STREAMS_MAX = 8 };

/* Of a layer. Stream 0 is the one that it computes. m[N] of a row x is
 * tanh(router . x / sqrt(mean of x^2 + eps)). */
typedef struct altup {
  int32_t num_streams; /* N, at least 2 */
  int32_t width;       /* h */
  float eps;
  const vector_t *router;     /* [N, h], with the weights of the norm in it, divided by h */
  const vector_t *prediction; /* [N N, N] */
  const vector_t *correction; /* [N, N] */
  const vector_t *scale;      /* [h]; NULL = all 1 */
} altup_t;

typedef struct altup_ops {
  /* As ops_t.embed, but a token whose id is behind the table's last row has its first. */
  void (*embed)(struct device *device, act_t *out, const weight_t *table, float scale);
  /* With m of stream 0 and c = prediction . m: stream n += sum over k of c[n N + k] stream k. */
  void (*predict)(struct device *device, act_t *const *streams, const altup_t *altup, int32_t rows);
  /* With m of `computed` and c = correction . m: stream n += (1 + c[n]) (computed - stream 0), of
   * stream 0 as it was; then out = scale * stream 0. */
  void (*correct)(struct device *device, act_t *const *streams, act_t *out, const act_t *computed,
                  const altup_t *altup, int32_t rows);
  /* Rows of x[rows, width] become as long as those of `like`: x sqrt(mean of like^2) /
   * sqrt(mean of x^2), which is 1e-5 at least under the root. */
  void (*match)(struct device *device, act_t *x, const act_t *like, int32_t width, int32_t rows);
  /* out[rows, width] = factor * (parts[0] + ... + parts[count - 1]); may be one of these. */
  void (*sum)(struct device *device, act_t *out, act_t *const *parts, int32_t count, float factor,
              int32_t width, int32_t rows);
  /* Of the first `width` columns of x[rows, stride]: max(0, x - mean - deviations * standard
   * deviation), both of the row. */
  void (*keep_largest)(struct device *device, act_t *x, float deviations, int32_t width,
                       int32_t stride, int32_t rows);
} altup_ops_t;

#endif
