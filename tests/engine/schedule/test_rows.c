/* test_rows.c: prompts of rows in the scheduler: what the prefix cache shares of them, and which
 * tokens of a step are rows, whatever chunks, preemption and choices make of the prompt.
 */
#include "tests/engine/schedule/block_check.h"
#include "tests/engine/support.h"
#include "tests/expect.h"

#include <string.h>

enum { BLOCK = 4, PROMPT = 26, WIDTH = 3 };

/* Rows of which values and key are made of a number. */
typedef struct test_rows {
  prompt_rows_t rows;
  float values[PROMPT * WIDTH];
  row_key_t keys[PROMPT];
} test_rows_t;

static void set_row(test_rows_t *test, int32_t row, int32_t number) {
  for (int32_t c = 0; c < WIDTH; c++) test->values[row * WIDTH + c] = (float)number;
  memset(&test->keys[row], 0, sizeof test->keys[row]);
  memcpy(test->keys[row].bytes, &number, sizeof number);
}

/* A group whose prompt is the rows first, first + 1, .. All have the same ids. */
static group_t *add(rig_t *rig, test_rows_t *test, int32_t first) {
  group_t *group = rig_add(rig, PROMPT, 1, 0);
  for (int32_t i = 0; i < PROMPT; i++) rig->ids[rig->count - 1][i] = PROMPT_ROW_ID;
  for (int32_t i = 0; i < PROMPT; i++) set_row(test, i, first + i);
  test->rows = (prompt_rows_t){.values = test->values, .keys = test->keys, .width = WIDTH};
  group->request->rows = &test->rows;
  group->is_plain = group->is_terse = false;
  return group;
}

static rig_t *make(const scheduler_options_t *options) {
  rig_t *rig = rig_new(options, 65, BLOCK, true);
  ASSERT_EQ(batch_embed(rig->batch, options->max_num_batched_tokens), 0);
  return rig;
}

/* Tokens that it takes from the cache. */
static int32_t run(rig_t *rig, group_t *group) {
  while (group->sequence.num_output_tokens == 0) {
    rig_step(rig);
    rig_commit(rig, 9);
    block_pool_check(rig->pool);
  }
  const int32_t cached = group->sequence.num_cached_tokens;
  scheduler_finish(rig->scheduler, group, SEQUENCE_FINISHED_STOPPED);
  return cached;
}

Test(rows, equal_rows_share_and_no_others) {
  const scheduler_options_t options = rig_options(2, 64, 64);
  rig_t *rig = make(&options);
  test_rows_t tests[4];
  ASSERT_EQ(run(rig, add(rig, &tests[0], 100)), 0);
  ASSERT_EQ(run(rig, add(rig, &tests[1], 100)), PROMPT - 1);
  ASSERT_EQ(run(rig, add(rig, &tests[2], 101)), 0);
  ASSERT_EQ(run(rig, add(rig, &tests[3], 101)), PROMPT - 1);
  rig_free(rig);
}

/* One row differs: what is shared ends before its block, wherever it stands in it. */
Test(rows, one_other_row_ends_what_is_shared) {
  for (int32_t other = BLOCK - 1; other <= 2 * BLOCK; other++) {
    const scheduler_options_t options = rig_options(2, 64, 64);
    rig_t *rig = make(&options);
    test_rows_t tests[2];
    ASSERT_EQ(run(rig, add(rig, &tests[0], 100)), 0);
    group_t *group = add(rig, &tests[1], 100);
    set_row(&tests[1], other, 7);
    ASSERT_EQ_FOR(run(rig, group), other / BLOCK * BLOCK, "%d", other);
    rig_free(rig);
  }
}

Test(rows, text_of_the_same_ids_is_no_hit) {
  const scheduler_options_t options = rig_options(2, 64, 64);
  rig_t *rig = make(&options);
  test_rows_t test;
  group_t *text = rig_add(rig, PROMPT, 1, 0);
  for (int32_t i = 0; i < PROMPT; i++) rig->ids[0][i] = PROMPT_ROW_ID;
  ASSERT_EQ(run(rig, text), 0);
  ASSERT_EQ(run(rig, add(rig, &test, 100)), 0);
  text = rig_add(rig, PROMPT, 1, 0);
  for (int32_t i = 0; i < PROMPT; i++) rig->ids[2][i] = PROMPT_ROW_ID;
  ASSERT_EQ(run(rig, text), PROMPT - 1);
  rig_free(rig);
}

/* All tokens of the prompt are rows and no other is, in chunks of every size. */
Test(rows, every_chunk_has_its_rows) {
  for (int32_t budget = 1; budget <= PROMPT + 1; budget++) {
    const scheduler_options_t options = rig_options(1, budget, 64);
    rig_t *rig = make(&options);
    test_rows_t test;
    group_t *group = add(rig, &test, 100);
    group->request->params.max_tokens = group->max_tokens = 3;
    int32_t at = 0;
    while (group->sequence.num_output_tokens < 3) {
      rig_step(rig);
      const batch_t *batch = rig->batch;
      ASSERT_EQ(batch->num_embedded, at < PROMPT ? batch->num_tokens : 0);
      ASSERT_EQ(batch->rope_positions == NULL, true);
      for (int32_t i = 0; i < batch->num_embedded; i++) {
        ASSERT_EQ(batch->embedded_tokens[i], i);
        ASSERT_EQ((int)batch->embedded_rows[i][WIDTH - 1], 100 + batch->positions[i]);
      }
      at += batch->num_tokens;
      rig_commit(rig, 9);
    }
    rig_free(rig);
  }
}

/* Beside a prompt of ids the rows are those of their own tokens. */
Test(rows, stand_beside_ids) {
  const scheduler_options_t options = rig_options(2, 64, 64);
  rig_t *rig = make(&options);
  test_rows_t test;
  rig_add(rig, 5, 1, 3);
  add(rig, &test, 100);
  rig_step(rig);
  ASSERT_EQ(rig->batch->num_tokens, 5 + PROMPT);
  ASSERT_EQ(rig->batch->num_embedded, PROMPT);
  for (int32_t i = 0; i < PROMPT; i++) ASSERT_EQ(rig->batch->embedded_tokens[i], 5 + i);
  rig_free(rig);
}
