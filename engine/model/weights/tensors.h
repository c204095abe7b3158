/* tensors.h: the list of tensors that a blueprint expects, by name and shape.
 *
 * The same list drives the check of a checkpoint, the dummy weights and the memory formula, so the
 * three cannot disagree. Plain data, immutable once made; any thread may read it.
 */
#ifndef INFERD_ENGINE_MODEL_WEIGHTS_TENSORS_H
#define INFERD_ENGINE_MODEL_WEIGHTS_TENSORS_H

#include "engine/model/families/family.h"

enum { EXPECTED_NAME_MAX = 96, EXPECTED_RANK_MAX = 4, SEGMENTS_MAX = 8 };

/* Stored rows that stand in groups, each of the same segments, and are used segment by segment,
 * with all groups of the first segment first: those of segments [first, first + count). */
typedef struct segment_order {
  int64_t groups;                 /* 0 = as stored */
  int64_t segments[SEGMENTS_MAX]; /* rows of each in a group */
  int32_t num_segments, first, count;
} segment_order_t;

/* Where the rows of heads are stored that stand otherwise in the file. */
typedef struct head_order {
  int32_t head_dim;     /* 0 = the rows stand as they are used */
  int32_t zipped;       /* dims of a head whose halves are zipped: 0, n / 2, 1, n / 2 + 1 ... */
  int32_t first;        /* of these dims */
  int32_t zipped_heads; /* the first heads of the tensor */
  int32_t num_heads;    /* of queries, in fused q, k, v: */
  int32_t group;        /* so many heads of q, their head of k, that of v; 0 = q, then k, then v */
} head_order_t;

typedef struct expected_tensor {
  char name[EXPECTED_NAME_MAX]; /* without the file's prefix, with ".weight" or ".bias" */
  bool absolute;                /* the name takes no prefix */
  const char *other;            /* what may stand there for the part before ".weight", or NULL */
  tensor_role_t role;
  int32_t layer; /* -1 outside layers */
  bool bias;
  bool around_zero; /* norm weights w of (1 + w) */
  form_t form;
  int64_t rows, cols; /* of the matrix in use, of each expert; cols = 0: a vector of `rows` */
  head_order_t order;
  segment_order_t segments;
  bool interleaved;       /* gate and up rows of a stack alternate */
  int64_t stack;          /* matrices in the tensor: experts, else 1 */
  int32_t copies;         /* tensors of this role, one behind the other: experts, heads, else 1 */
  dim_t row_dim, col_dim; /* where the sizes come from, for messages */
  int rank;               /* as stored */
  int64_t shape[EXPECTED_RANK_MAX];
} expected_tensor_t;

typedef struct tensor_list {
  expected_tensor_t *tensors; /* owned */
  int32_t count;
  int32_t *first; /* [num_layers + 1] index of a layer's first tensor; owned */
  int32_t num_layers;
} tensor_list_t;

/* 0 or ERR_NO_MEMORY. Free with tensors_free. */
int tensors_expect(const blueprint_t *blueprint, tensor_list_t *out, inferd_error_t *error);
void tensors_free(tensor_list_t *list);
/* The tensor of a role, or NULL when the blueprint has none. `layer` is ignored outside layers. For
 * a role with one tensor per expert or head it is the first; the others follow it. */
const expected_tensor_t *tensors_get(const tensor_list_t *list, tensor_role_t role, int32_t layer,
                                     bool bias);
/* True when one tensor of the file holds all experts. */
static inline bool tensor_is_stack(const expected_tensor_t *tensor) {
  return tensor->form >= FORM_STACK;
}

/* Returns the number of elements of a tensor. It cannot overflow: dimensions are bounded. */
static inline int64_t tensor_elements(const expected_tensor_t *tensor) {
  if (tensor->form == FORM_STACK_SCALES) return 0;
  return tensor->stack * tensor->rows * (tensor->cols == 0 ? 1 : tensor->cols);
}
/* Where row `row` of a matrix or vector is stored. */
int64_t tensor_stored_row(const expected_tensor_t *tensor, int64_t row);
/* Returns the name of the config key of a dimension, such as "intermediate_size". */
const char *tensor_dim_name(dim_t dim);
int tensors_count_parameters(const blueprint_t *blueprint, int64_t *out, inferd_error_t *error);

#endif
