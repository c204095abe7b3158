/* latent_ops.h: the part of the back end interface that is latent attention (DeepSeek-AI 2024,
 * DeepSeek-V2, section 2.1).
 *
 * A token leaves one row in the cache: its latent vector, from which K and V of every head follow,
 * and a rotated part of the keys that all heads share. The products with K and V are absorbed: a
 * query is brought into the space of the latent row, and the sum of latent rows is brought out of
 * it. That is done for prompts too, so that the bits of a row do not depend on the chunking; a
 * prompt costs more products than with K and V written out. The promises are those of ops.h.
 * Symbols: T tokens, Hq heads, R rank, r rotated dimensions, n others of a head, v of its values.
 */
#ifndef INFERD_ENGINE_DEVICE_LATENT_OPS_H
#define INFERD_ENGINE_DEVICE_LATENT_OPS_H

#include "engine/device/op_types.h"

struct device;

typedef struct latent {
  int32_t layer, num_heads, rank, rope_dim, nope_dim, value_dim; /* Hq, R, r, n, v */
  float scale;                                                   /* of q.k */
  float norm_eps;
  const vector_t *norm;  /* [R] RMSNorm of the latent vector */
  const rope_t *rope;    /* of the r dimensions */
  const weight_t *key;   /* Hq x [R, n]: brings queries into the latent space */
  const weight_t *value; /* Hq x [v, R]: brings sums out of it */
  int32_t top;           /* keys that a token attends to at most; 0 = all, and no indexer */
} latent_t;

/* What chooses the keys of a token (DeepSeek-AI 2025, DeepSeek-V3.2, section 2.1): every token has
 * a further key of d numbers behind its latent row, in layers that choose. The score of a key is
 * the sum over Hi heads of weight . relu(q . k) / sqrt(Hi d); of two keys with one score the
 * earlier one is the better. A token that sees no more than `top` keys attends to all of them. */
typedef struct indexer {
  int32_t num_heads, dim; /* Hi, d; the first r dimensions are rotated */
  float norm_eps;
  const vector_t *norm, *norm_bias; /* [d] LayerNorm of the keys */
} indexer_t;

/* The KV pool has num_kv_heads 1, head_dim R + r, or R + r + d, and `latent`. */
typedef struct latent_ops {
  /* rows[T, R + r]: norm of the first R columns, rope of the others, in place; stores the rows. */
  void (*store)(struct device *device, act_t *rows, const latent_t *latent);
  /* out[T, Hq v] = attention of q[T, Hq (n + r)], whose last r columns of a head are rotated first.
   * queries[T, Hq (R + r)] and sums[T, Hq R] are scratch. */
  void (*attend)(struct device *device, act_t *out, const act_t *q, act_t *queries, act_t *sums,
                 const latent_t *latent);
  /* With `top`; NULL = the back end knows no indexers. */
  /* keys[T, d]: norm, rope, in place; stores them. */
  void (*store_keys)(struct device *device, act_t *keys, const latent_t *latent,
                     const indexer_t *indexer);
  /* chosen[T, INDEX_WIDTH(top)] = the keys that each token attends to, which only the next function
   * reads. q[T, Hi d] is scratch afterwards; weights[T, Hi]. */
  void (*choose)(struct device *device, act_t *chosen, act_t *q, const act_t *weights,
                 const latent_t *latent, const indexer_t *indexer);
  /* As `attend`, to the keys that were chosen, in this layer or in one before it. */
  void (*attend_chosen)(struct device *device, act_t *out, const act_t *q, act_t *queries,
                        act_t *sums, const act_t *chosen, const latent_t *latent);
} latent_ops_t;

/* Columns of what was chosen. */
#define INDEX_WIDTH(top) (2 * (top))

#endif
