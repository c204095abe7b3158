/* draft_case.c: reads a reference case of what drafts, and compares with it; see draft_case.h. */
#include "tests/engine/model/draft_case.h"

#include "engine/base/json.h"
#include "engine/model/source/model_file.h"
#include "tests/engine/model/vectors.h"
#include "tests/expect.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* fp32 sums in another order, on logits of about 1. */
static const double TOLERANCE = 1e-4;

static void read_ids(const json_t *list, int32_t *out, int32_t count) {
  int32_t i = 0;
  ASSERT_EQ((int32_t)list->count, count);
  JSON_EACH(item, list) {
    int64_t id;
    cr_assert(json_int64(item, &id));
    out[i++] = (int32_t)id;
  }
}

static int32_t read_number(const json_t *item) {
  int64_t number = 0;
  cr_assert(json_int64(item, &number));
  return (int32_t)number;
}

static void read_row(const json_t *list, double *out) {
  ASSERT_EQ(list->count, (uint32_t)DRAFT_VOCAB);
  JSON_EACH(item, list) {
    *out = -INFINITY;
    cr_assert(item->type == JSON_NULL || json_double(item, out));
    out++;
  }
}

draft_case_t *draft_case_read(const char *dir) {
  draft_case_t *c = calloc(1, sizeof *c);
  model_file_t file;
  inferd_error_t error = {0};
  int32_t i = 0;
  cr_assert_not_null(c);
  ASSERT_EQ(model_file_read(dir, "expected.json", 1 << 20, &json_limits_request, &file, &error), 0);
  const json_t *root = json_root(file.doc), *first = json_get(root, "first");
  ASSERT_EQ((int32_t)first->count, (int32_t)DRAFT_POSITIONS);
  read_ids(json_get(root, "prompt"), c->prompt, DRAFT_PROMPT);
  read_ids(json_get(root, "positions"), c->positions, DRAFT_POSITIONS);
  JSON_EACH(row, first) read_row(row, c->first[i++]);
  read_row(json_get(root, "second"), c->second);
  c->drafted = read_number(json_get(root, "drafted"));
  c->seed = read_number(json_get(root, "seed"));
  model_file_free(&file);
  return c;
}

static void expect_row(const char *name, const char *where, const float *got, const double *want) {
  for (int32_t i = 0; i < DRAFT_VOCAB; i++) {
    const bool same =
        isinf(want[i]) ? (double)got[i] == want[i] : fabs(got[i] - want[i]) <= TOLERANCE;
    cr_assert(same, "%s, %s: logit %d is %g, expected %g", name, where, i, (double)got[i], want[i]);
  }
}

void draft_case_expect_first(const char *name, const draft_case_t *c, const float *logits) {
  for (int i = 0; i < DRAFT_POSITIONS; i++) {
    char where[32];
    snprintf(where, sizeof where, "position %d", c->positions[i]);
    expect_row(name, where, logits + (size_t)c->positions[i] * DRAFT_VOCAB, c->first[i]);
  }
  const float *last = logits + (size_t)(DRAFT_PROMPT - 2) * DRAFT_VOCAB;
  ASSERT_EQ(vectors_largest(last, DRAFT_VOCAB), c->drafted);
}

void draft_case_expect_second(const char *name, const draft_case_t *c, const float *logits) {
  expect_row(name, "behind the draft", logits, c->second);
}

void draft_config_make(char *dir, const char *of, const char *from, const char *to) {
  char path[128], text[4096];
  snprintf(path, sizeof path, "%s/config.json", of);
  FILE *file = fopen(path, "r");
  cr_assert_not_null(file);
  text[fread(text, 1, sizeof text - 1, file)] = '\0';
  fclose(file);
  const char *at = strstr(text, from);
  cr_assert(at != NULL && mkdtemp(dir) != NULL);
  snprintf(path, sizeof path, "%s/config.json", dir);
  file = fopen(path, "w");
  cr_assert_not_null(file);
  fprintf(file, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
  fclose(file);
}

void draft_config_remove(const char *dir) {
  char path[128];
  snprintf(path, sizeof path, "%s/config.json", dir);
  remove(path);
  remove(dir);
}
