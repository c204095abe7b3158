/* test_tied_head.c: a checkpoint whose configuration ties the head to the embedding, and whose
 * files hold a head as well: transformers 5 uses what is stored if it differs, and so does the
 * loader.
 */
#include "tests/engine/model/maker.h"
#include "tests/engine/model/naive_ops.h"
#include "tests/engine/model/rig.h"
#include "tests/expect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of 64 rows not all are among the samples that are compared first; the middle one is not. */
enum { VOCAB = 64, WIDTH = 8, EMBED_VALUES = VOCAB * WIDTH };

#define EMBED "model.embed_tokens.weight"
#define HEAD "lm_head.weight"

typedef struct outcome {
  bool tied;
  char notes[512];
  float logits[VOCAB];
} outcome_t;

/* A good model with `type` for both matrices; the head is the last tensor of the file. */
static void open_with(maker_t *maker, const char *type) {
  maker_open(maker);
  maker_set(maker, "vocab_size", "64");
  maker_set(maker, "tie_word_embeddings", "true");
  maker_reshape(maker_tensor(maker, EMBED), type, 2, VOCAB, WIDTH);
  maker_reshape(maker_tensor(maker, HEAD), type, 2, VOCAB, WIDTH);
}

static void run_written(const maker_t *maker, outcome_t *out) {
  static const int32_t ids[] = {1, 33, 5};
  inferd_error_t error = {0};
  rig_t rig;
  rig_options_t options = {.ops = &ops_naive, .dir = maker->dir, .dtype = -1, .num_threads = 1};
  ASSERT_EQ_FOR(rig_open(&options, &rig, &error), 0, "%s", error.message);
  out->tied = rig.blueprint.tied;
  snprintf(out->notes, sizeof out->notes, "%s", rig.blueprint.notes);
  ASSERT_EQ(rig_run(&rig, ids, 3, 0, 1, out->logits, &error), 0);
  rig_close(&rig);
}

static void run(const maker_t *maker, outcome_t *out) {
  maker_write(maker);
  run_written(maker, out);
}

Test(tied_head, one_that_differs_in_one_number_is_used) {
  maker_t maker;
  outcome_t stored, untied, tied;
  open_with(&maker, "F32");
  maker_tensor(&maker, HEAD)->poison = 0.5;
  run(&maker, &stored);
  cr_assert(!stored.tied);
  cr_assert_not_null(strstr(stored.notes, "lm_head.weight differs"), "%s", stored.notes);
  maker_set(&maker, "tie_word_embeddings", "false");
  run(&maker, &untied);
  cr_assert_arr_eq(stored.logits, untied.logits, sizeof stored.logits);
  maker_set(&maker, "tie_word_embeddings", "true");
  maker_remove(&maker, HEAD);
  run(&maker, &tied);
  cr_assert(tied.tied);
  ASSERT_STR_EQ(tied.notes, "");
  for (int i = 0; i < VOCAB; i++) /* row 32 has the other number, in its first column */
    ASSERT_EQ_FOR(stored.logits[i] == tied.logits[i], i != VOCAB / 2, "row %d", i);
  maker_close(&maker);
}

Test(tied_head, an_equal_one_is_left_aside) {
  static const char *const types[] = {"F32", "F16", "BF16"};
  for (int i = 0; i < 3; i++) {
    maker_t maker;
    outcome_t found;
    open_with(&maker, types[i]);
    run(&maker, &found);
    cr_assert(found.tied, "%s", types[i]);
    ASSERT_STR_EQ(found.notes, "");
    maker_close(&maker);
  }
}

/* Writes the numbers of the embedding, which is bf16 and first in the file, into the head, which is
 * float32 and last. */
static void widen_into_head(const maker_t *maker) {
  static uint8_t bytes[1 << 16];
  char path[128];
  snprintf(path, sizeof path, "%s/model.safetensors", maker->dir);
  FILE *file = fopen(path, "rb");
  cr_assert_not_null(file);
  size_t length = fread(bytes, 1, sizeof bytes, file), head = length - 4 * EMBED_VALUES;
  fclose(file);
  ASSERT_LT(length, sizeof bytes);
  size_t embed = 8 + bytes[0] + ((size_t)bytes[1] << 8);
  for (size_t k = 0; k < EMBED_VALUES; k++) {
    memset(bytes + head + 4 * k, 0, 2);
    memcpy(bytes + head + 4 * k + 2, bytes + embed + 2 * k, 2);
  }
  maker_write_file(maker, "model.safetensors", bytes, length);
}

Test(tied_head, types_are_compared_by_their_numbers) {
  maker_t maker;
  outcome_t found;
  open_with(&maker, "BF16");
  maker_reshape(maker_tensor(&maker, HEAD), "F32", 2, VOCAB, WIDTH);
  run(&maker, &found); /* hundredths, of which bf16 has rounded most */
  cr_assert(!found.tied);
  widen_into_head(&maker);
  run_written(&maker, &found);
  cr_assert(found.tied);
  ASSERT_STR_EQ(found.notes, "");
  maker_close(&maker);
}
