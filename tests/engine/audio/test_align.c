/* test_align.c: when tokens were said, against transformers (tests/vectors/speech_align.jsonl,
 * which scripts/vectors/speech.py wrote), and what holds of every path. */
#include "engine/audio/align.h"
#include "engine/base/json.h"
#include "engine/base/util.h"
#include "tests/expect.h"
#include "tests/random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { VALUES_MAX = 4 * 16 * 64 };

/* Heads of weights[heads, count, columns] come `part` at a time. */
static void align(float *weights, int32_t heads, int32_t part, int32_t count, int32_t columns,
                  int32_t width, int32_t *rows) {
  void *memory = malloc(align_bytes(count, columns));
  align_t made = align_begin(count, columns, width, memory);
  for (int32_t h = 0; h < heads; h += part)
    align_add(&made, weights + (int64_t)h * count * columns, MIN(part, heads - h));
  align_find(&made, rows);
  free(memory);
}

static void compare(const json_t *row, int number) {
  float weights[VALUES_MAX];
  int32_t rows[16], heads = 0, count = 0, n = 0, i = 0;
  int64_t width = 0, expected;
  cr_assert(json_int64(json_get(row, "width"), &width));
  JSON_EACH(head, json_get(row, "weights")) {
    heads++;
    count = (int32_t)head->count;
    JSON_EACH(token, head) JSON_EACH(value, token) {
      double weight = 0;
      cr_assert(json_double(value, &weight) && n < VALUES_MAX);
      weights[n++] = (float)weight;
    }
  }
  align(weights, heads, 1 + number % 3, count, n / heads / count, (int32_t)width, rows);
  JSON_EACH(at, json_get(row, "rows")) {
    cr_assert(json_int64(at, &expected));
    ASSERT_EQ_FOR(rows[i], expected, "line %d, token %d", number, i);
    i++;
  }
  ASSERT_EQ(i, count);
}

Test(align, tokens_begin_where_transformers_lets_them) {
  FILE *vectors = fopen("tests/vectors/speech_align.jsonl", "r");
  char *text = NULL;
  size_t capacity = 0;
  int count = 0;
  cr_assert_not_null(vectors);
  for (ssize_t length; (length = getline(&text, &capacity, vectors)) > 0; count++) {
    json_doc_t *doc = NULL;
    inferd_error_t error = {0};
    ASSERT_EQ_FOR(json_parse(text, (size_t)length, &json_limits_request, &doc, &error), 0, "%s",
                  error.message);
    compare(json_root(doc), count);
    json_free(doc);
  }
  fclose(vectors);
  free(text);
  ASSERT_LE(100, count);
}

/* Numbers of every kind: rows never fall and lie within the sound. */
Test(align, rows_never_fall) {
  uint64_t random = 9;
  for (int round = 0; round < 300; round++) {
    const int32_t heads = 1 + (int32_t)(next_random(&random) % 3);
    const int32_t count = 1 + (int32_t)(next_random(&random) % 20);
    const int32_t columns = 1 + (int32_t)(next_random(&random) % 100);
    const int32_t values = heads * count * columns;
    float *weights = malloc((size_t)values * sizeof *weights);
    int32_t *rows = malloc((size_t)count * sizeof *rows);
    for (int32_t i = 0; i < values; i++) {
      const uint64_t drawn = next_random(&random);
      weights[i] = round % 3 == 0   ? 1.0f / (float)columns
                   : drawn % 9 == 0 ? (float)NAN
                                    : (float)(drawn % 1000) / 1000;
    }
    align(weights, heads, heads, count, columns, 7, rows);
    for (int32_t i = 0; i < count; i++) {
      ASSERT_LE(-1, rows[i]);
      ASSERT_LT(rows[i], columns);
      if (i > 0) ASSERT_LE(rows[i - 1], rows[i]);
    }
    free(weights);
    free(rows);
  }
}
