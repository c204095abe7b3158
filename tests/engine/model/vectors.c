/* vectors.c: reads reference models for the tests. One thread. */
#include "tests/engine/model/vectors.h"

#include "engine/base/json.h"
#include "engine/model/source/model_file.h"
#include "tests/expect.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char ROOT[] = "tests/vectors/models";

static int by_text(const void *a, const void *b) {
  return strcmp(*(char *const *)a, *(char *const *)b);
}

vector_list_t vectors_open(const char *prefix) {
  vector_list_t list = {.count = 0};
  DIR *dir = opendir(ROOT);
  cr_assert_not_null(dir, "%s: run the tests in the root of the repository", ROOT);
  for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
    if (entry->d_name[0] == '.' || strncmp(entry->d_name, prefix, strlen(prefix)) != 0) continue;
    ASSERT_LT(list.count, VECTOR_CASES_MAX);
    list.names[list.count++] = strdup(entry->d_name);
  }
  closedir(dir);
  qsort(list.names, (size_t)list.count, sizeof(list.names[0]), by_text);
  return list;
}

void vectors_close(vector_list_t *list) {
  for (int32_t i = 0; i < list->count; i++) free(list->names[i]);
  list->count = 0;
}

static const json_t *need(const vector_case_t *c, const json_t *object, const char *key) {
  const json_t *value = json_get(object, key);
  cr_assert_not_null(value, "%s: expected.json has no %s", c->name, key);
  return value;
}

static int64_t number(const vector_case_t *c, const json_t *value) {
  int64_t out;
  cr_assert(json_int64(value, &out), "%s: not an integer in expected.json", c->name);
  return out;
}

static double real(const vector_case_t *c, const json_t *value) {
  double out;
  cr_assert(json_double(value, &out), "%s: not a number in expected.json", c->name);
  return out;
}

static int32_t read_ids(const vector_case_t *c, const json_t *list, int32_t *out, int32_t max) {
  int32_t count = 0;
  JSON_EACH(id, list) {
    ASSERT_LT(count, max);
    out[count++] = (int32_t)number(c, id);
  }
  return count;
}

static double *read_row(vector_case_t *c, const json_t *row) {
  double *out = calloc(row->count, sizeof(double));
  cr_assert_not_null(out);
  c->vocab = (int32_t)row->count;
  size_t i = 0;
  JSON_EACH(value, row) out[i++] = real(c, value);
  return out;
}

void vectors_read(const vector_list_t *list, int32_t index, vector_case_t *c) {
  static const char *const types[] = {"float32", "float16", "bfloat16"};
  *c = (vector_case_t){.name = list->names[index]};
  snprintf(c->dir, sizeof(c->dir), "%s/%s", ROOT, c->name);
  inferd_error_t error = {0};
  model_file_t file;
  int status =
      model_file_read(c->dir, "expected.json", 1 << 20, &json_limits_request, &file, &error);
  ASSERT_EQ_FOR(status, 0, "%s", error.message);
  cr_assert_not_null(file.doc, "%s: no expected.json", c->dir);
  const json_t *root = json_root(file.doc);
  json_bool(json_get(root, "weights"), &c->has_files);
  int n = snprintf(c->adapter, sizeof(c->adapter), "%s/adapter", c->dir);
  if (n >= (int)sizeof(c->adapter) || access(c->adapter, F_OK) != 0) c->adapter[0] = '\0';
  c->seed = (uint64_t)number(c, need(c, root, "seed"));
  c->max_model_len = (int32_t)number(c, need(c, root, "max_model_len"));
  c->error = real(c, need(c, root, "error"));
  for (int i = 0; i < 3; i++) {
    if (json_equals(need(c, root, "dtype"), types[i])) c->dtype = (dtype_t)i;
  }
  c->num_prompt = read_ids(c, need(c, root, "prompt"), c->ids, VECTOR_IDS_MAX);
  c->num_greedy =
      read_ids(c, need(c, root, "greedy"), c->ids + c->num_prompt, VECTOR_IDS_MAX - c->num_prompt);
  int32_t gaps = 0;
  JSON_EACH(gap, need(c, root, "gap")) c->gap[gaps++ % VECTOR_IDS_MAX] = real(c, gap);
  ASSERT_EQ_FOR(gaps, c->num_greedy, "%s: one gap per step", c->name);
  c->num_positions = read_ids(c, need(c, root, "positions"), c->positions, VECTOR_POSITIONS_MAX);
  int32_t rows = 0;
  JSON_EACH(row, need(c, root, "logits")) {
    ASSERT_LT(rows, c->num_positions);
    c->logits[rows++] = read_row(c, row);
  }
  ASSERT_EQ_FOR(rows, c->num_positions, "%s: one row of logits per position", c->name);
  model_file_free(&file);
}

void vectors_free(vector_case_t *c) {
  for (int32_t i = 0; i < c->num_positions; i++) free(c->logits[i]);
  c->num_positions = 0;
}

int32_t vectors_largest(const float *row, int32_t count) {
  int32_t best = 0;
  for (int32_t i = 1; i < count; i++) {
    if (row[i] > row[best]) best = i;
  }
  return best;
}

double vectors_distance(const float *row, const double *expected, int32_t count) {
  double most = 0;
  for (int32_t i = 0; i < count; i++) {
    double difference = fabs(row[i] - expected[i]);
    if (isnan(difference)) return INFINITY;
    most = fmax(most, difference);
  }
  return most;
}
