/* state_ops.h: the part of the back end interface for layers that keep a state of fixed size per
 * sequence beside the KV blocks: short convolutions, gated DeltaNet, Mamba-2, Mamba-1.
 *
 * A back end has all functions or none (ops_t.state is NULL). A slot holds the states of all such
 * layers of one sequence, in fp32; slot 0 is the null slot, for rows that store nothing. Row r of a
 * batch reads and writes slot state_slots[r]. It starts from a state of zeros if
 * num_computed_tokens is 0, whatever the slot holds; else the slot holds the state behind that many
 * tokens. `begin` runs the copies of slots, in their order, before the forward. Each of state_saves
 * stores the state that a row has behind some token of its chunk in a slot that no row has.
 *
 * `conv`, `recur` and `select` are recurrences that go from token to token in one fixed order. So
 * their bits depend neither on the batch nor on how a sequence is cut into chunks, and tokens that
 * were decoded may be computed again by a prefill. Symbols: T tokens, C channels, K taps, H heads,
 * G groups of heads that share q and k, Dk and Dv their dimensions.
 */
#ifndef INFERD_ENGINE_DEVICE_STATE_OPS_H
#define INFERD_ENGINE_DEVICE_STATE_OPS_H

#include "engine/base/error.h"
#include "engine/device/op_types.h"

struct device;

enum { CONV_TAPS_MAX = 8, GATE_REPEATS_MAX = 512, SELECT_ROWS_MAX = 256 };

typedef struct state_desc {
  int32_t num_slots; /* with the null slot */
  int32_t num_layers;
  int64_t values; /* fp32 numbers of a layer in a slot */
} state_desc_t;

/* A causal convolution along the tokens, each channel by itself:
 *   out[t, c] = sum over k of weight[k, c] * x[t - (K - 1) + k, c] (+ bias[c])
 * with x = in, or in * before; then silu, or * after. The state is x of the last K - 1 tokens. */
typedef struct conv {
  int32_t layer; /* of the states */
  int32_t channels, taps;
  int32_t in_width, in_column; /* x stands in columns [in_column, in_column + C) of rows of `in` */
  int32_t before, after;       /* first columns of factors in `in`; -1 = none */
  int32_t out_width, out_column;
  bool silu;
  const vector_t *weight; /* [K, C] */
  const vector_t *bias;   /* [C] or NULL */
} conv_t;

typedef enum recurrence_kind {
  RECURRENCE_DELTA, /* gated DeltaNet (Yang et al. 2024) */
  RECURRENCE_SCAN   /* Mamba-2 (Dao and Gu 2024): q is C, k is B */
} recurrence_kind_t;

/* A state S [Dk, Dv] per head, from token to token. With a = exp(A softplus(step + bias)):
 *   DELTA: S = a S;  S += k (f sigmoid(rate) (v - S^T k))^T;  out = S^T q;  f is 1, or 2
 *          where q and k are first divided by their lengths, and q by the root of Dk
 *   SCAN:  d = softplus(step + bias) within [step_min, step_max], a = exp(A d);
 *          S = a S + k (d v)^T;  out = S^T q + skip v */
typedef struct recurrence {
  recurrence_kind_t kind;
  int32_t layer;  /* of the states */
  int64_t offset; /* of S in the layer's state: the numbers of the convolution before it */
  int32_t num_heads, num_groups, key_dim, value_dim; /* H, G, Dk, Dv */
  bool doubles;                                      /* DELTA: f is 2 */
  bool tiled;               /* head h is of group h mod G; else neighbours share a group */
  int32_t width;            /* columns of `in` */
  int32_t q, k, v;          /* first columns: G Dk, G Dk, H Dv */
  int32_t rate, step;       /* first columns: H each; no `rate` in a SCAN */
  float step_min, step_max; /* SCAN */
  const vector_t *decay;    /* [H] A, below 0 */
  const vector_t *bias;     /* [H] */
  const vector_t *skip;     /* [H], SCAN; NULL = 0 */
} recurrence_t;

/* The group of a head. */
static inline int32_t recurrence_group(const recurrence_t *of, int32_t head) {
  return of->tiled ? head % of->num_groups : head / (of->num_heads / of->num_groups);
}

/* A state S [N, C], a column for each channel (Mamba; Gu and Dao 2023). With x and step of the
 * channel and d = softplus(step + bias), for every row n:
 *   S[n] = exp(A[n] d) S[n] + key[n] d x;  out = sum over n of query[n] S[n] + skip x
 * The paper calls the keys B and the queries C; all channels have the same ones. */
typedef struct selective_scan {
  int32_t layer;         /* of the states */
  int64_t offset;        /* of S in the layer's state, which has the numbers of values(1, N, C) */
  int32_t channels;      /* C */
  int32_t rows;          /* N, at most SELECT_ROWS_MAX */
  const vector_t *decay; /* [N, C] A, below 0 */
  const vector_t *bias;  /* [C] of the steps */
  const vector_t *skip;  /* [C] */
} selective_scan_t;

/* out = norm(in) act(gate), or, with gate_first, norm(in act(gate)). */
typedef struct gating {
  int32_t width;                   /* columns of `in` and `out` */
  int32_t gate_width, gate_column; /* the gate: columns of rows of another buffer */
  int32_t gate_repeats;            /* columns of `in` that share one of the gate, without a norm; at
                                    * most GATE_REPEATS_MAX, a divisor of width; 0 = 1 */
  bool sigmoid;                    /* act is sigmoid, else silu */
  bool gate_first;
  int32_t group; /* columns that share a mean square; 0 = no norm */
  float eps;
  const vector_t *weight; /* [width], of the norm; or [group], the same for every group */
  bool weight_repeats;
} gating_t;

typedef struct state_ops {
  int32_t key_dim_max; /* of recurrences */
  /* Set-up. Numbers of S in the state of a layer: a back end may pad them. */
  int64_t (*values)(int32_t num_heads, int32_t key_dim, int32_t value_dim);
  size_t (*bytes)(const state_desc_t *desc, int32_t num_slots);
  int (*make)(struct device *device, const state_desc_t *desc, inferd_error_t *error);
  /* Step. out[T, out_width]; `out` may be `in` if the columns are the same. */
  void (*conv)(struct device *device, act_t *out, const act_t *in, const conv_t *conv);
  bool recur_has_scratch; /* else a model has no memory for it, and it is NULL */
  /* out[T, H Dv]; q and k of `in` may be overwritten. `scratch` has [T, 2 H]. */
  void (*recur)(struct device *device, act_t *out, act_t *in, act_t *scratch,
                const recurrence_t *recurrence);
  /* in (x), steps and out[T, C]; keys and queries[T, N]. `out` may be `in`. NULL: no such layers.
   */
  void (*select)(struct device *device, act_t *out, const act_t *in, const act_t *steps,
                 const act_t *keys, const act_t *queries, const selective_scan_t *selection);
  /* out[rows, width]; may be `in`. */
  void (*gate)(struct device *device, act_t *out, const act_t *in, const act_t *gate,
               const gating_t *gating, int32_t rows);
  /* x[rows, width] *= factors[width] (Falcon-H1). */
  void (*scale)(struct device *device, act_t *x, const vector_t *factors, int32_t width,
                int32_t rows);
} state_ops_t;

#endif
