/* vectors.h: the reference models under tests/vectors/models (scripts/vectors/models.py).
 *
 * Functions assert: a missing or broken file fails the test that asked for it.
 */
#ifndef INFERD_TESTS_ENGINE_MODEL_VECTORS_H
#define INFERD_TESTS_ENGINE_MODEL_VECTORS_H

#include "engine/device/ops.h"

enum { VECTOR_IDS_MAX = 512, VECTOR_POSITIONS_MAX = 16, VECTOR_CASES_MAX = 600 };

typedef struct vector_list {
  char *names[VECTOR_CASES_MAX]; /* sorted, owned */
  int32_t count;
} vector_list_t;

typedef struct vector_case {
  const char *name; /* of the list */
  char dir[256];
  bool has_files;
  char adapter[256]; /* directory of a low-rank adapter, "" = none */
  uint64_t seed;
  dtype_t dtype;
  int32_t max_model_len, vocab;
  int32_t num_prompt, num_greedy;
  int32_t ids[VECTOR_IDS_MAX]; /* prompt, then greedy */
  double gap[VECTOR_IDS_MAX];  /* [num_greedy] */
  double error;
  int32_t num_positions;
  int32_t positions[VECTOR_POSITIONS_MAX];
  double *logits[VECTOR_POSITIONS_MAX]; /* [vocab] each, owned */
} vector_case_t;

/* Those whose name begins with `prefix`. */
vector_list_t vectors_open(const char *prefix);
void vectors_close(vector_list_t *list);
void vectors_read(const vector_list_t *list, int32_t index, vector_case_t *out);
void vectors_free(vector_case_t *c);

/* Index of the largest of `count` logits; the lowest on ties. */
int32_t vectors_largest(const float *row, int32_t count);
/* Largest difference of `count` logits from the expected ones; INFINITY if one is a NaN. */
double vectors_distance(const float *row, const double *expected, int32_t count);

#endif
