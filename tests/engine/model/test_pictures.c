/* test_pictures.c: prompts with pictures beside transformers (scripts/vectors/towers.py): rows in
 * the place of embeddings, behind the first layers too, and tokens that are rotated by line and
 * column. The bits are the same whatever the chunks.
 */
#include "engine/base/util.h"
#include "engine/model/source/safetensors.h"
#include "engine/model/towers/towers.h"
#include "tests/engine/model/naive_ops.h"
#include "tests/engine/model/rig.h"
#include "tests/expect.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VECTORS "tests/vectors/towers"

/* A case: its prompt, the rows of its images, and what the reference answers. */
typedef struct prompt {
  char dir[256];
  weight_files_t *files;
  int32_t count, vocab, hidden;
  int32_t *ids, *positions; /* [count], [3, count] */
  int32_t *seen;            /* [count] of models whose pictures are seen whole, or NULL */
  float *rows;              /* [images' rows, 1 + num_deep, hidden] */
  const float **places;     /* [count] */
  rig_sight_t sight;
} prompt_t;

static const float *find(const prompt_t *prompt, const char *name, int64_t *count) {
  const stored_tensor_t *stored = weight_files_find(prompt->files, name);
  ASSERT_EQ_FOR(stored != NULL, true, "%s: no tensor %s", prompt->dir, name);
  if (count != NULL) *count = (int64_t)(stored->bytes / sizeof(float));
  return (const float *)(const void *)stored->data;
}

static int32_t *integers(const prompt_t *prompt, const char *name, int64_t *count) {
  const float *values = find(prompt, name, count);
  int32_t *made = calloc((size_t)*count, sizeof *made);
  for (int64_t i = 0; i < *count; i++) made[i] = (int32_t)values[i];
  return made;
}

/* The rows of the reference: test_towers.c compares those of our towers with them. */
static void prompt_open(prompt_t *prompt, const char *name, int32_t placeholder) {
  inferd_error_t error = {0};
  tower_plan_t plan;
  int64_t count, all;
  *prompt = (prompt_t){0};
  snprintf(prompt->dir, sizeof prompt->dir, "%s/%s", VECTORS, name);
  ASSERT_EQ_FOR(tower_plan_read(prompt->dir, &plan, &error), 0, "%s", error.message);
  ASSERT_EQ(weight_files_open_file(prompt->dir, "expected.safetensors", &prompt->files, &error), 0);
  prompt->ids = integers(prompt, "ids", &count);
  prompt->positions = integers(prompt, "positions", &all);
  ASSERT_EQ(all, 3 * count);
  prompt->count = (int32_t)count;
  prompt->hidden = plan.out_size;
  const bool packs = weight_files_find(prompt->files, "packed") != NULL;
  const char *const first = packs ? "packed" : "rows";
  find(prompt, first, &all);
  const size_t h = (size_t)plan.out_size, rows = (size_t)all / h,
               planes = 1 + (size_t)plan.num_deep;
  prompt->rows = calloc(rows * planes * h, sizeof *prompt->rows);
  for (size_t plane = 0; plane < planes; plane++) {
    char deep[32];
    snprintf(deep, sizeof deep, "%s", first);
    if (plane > 0) snprintf(deep, sizeof deep, "deep.%zu", plane - 1);
    const float *from = find(prompt, deep, NULL);
    for (size_t i = 0; i < rows; i++)
      memcpy(prompt->rows + (i * planes + plane) * h, from + i * h, h * sizeof *from);
  }
  prompt->places = calloc((size_t)count, sizeof *prompt->places);
  size_t seen = 0;
  for (int64_t i = 0; i < count; i++)
    if (prompt->ids[i] == placeholder) prompt->places[i] = prompt->rows + seen++ * planes * h;
  ASSERT_EQ(seen, rows);
  if (strstr(name, "gemma3") != NULL || strstr(name, "large") != NULL)
    prompt->seen = calloc((size_t)count, sizeof *prompt->seen);
  for (int64_t i = count - 1; prompt->seen != NULL && i >= 0; i--) {
    if (prompt->places[i] == NULL) continue;
    const bool is_last = i + 1 == count || prompt->places[i + 1] == NULL;
    prompt->seen[i] = is_last ? (int32_t)i + 1 : prompt->seen[i + 1];
  }
  prompt->sight = (rig_sight_t){.count = prompt->count,
                                .num_deep = plan.num_deep,
                                .rows = prompt->places,
                                .rope_positions = prompt->positions,
                                .seen_until = prompt->seen};
}

static void prompt_close(prompt_t *prompt) {
  weight_files_close(prompt->files);
  free(prompt->ids), free(prompt->positions), free(prompt->rows), free(prompt->places);
  free(prompt->seen);
}

/* A chunk, or one that ends behind the picture in which that would end. */
static int32_t chunk_end(const prompt_t *prompt, int32_t end) {
  end = MIN(end, prompt->count);
  return prompt->seen != NULL && end > 0 ? MAX(end, prompt->seen[end - 1]) : end;
}

/* [count, vocab] in chunks of so many tokens, with the prompt's first `beside` tokens as another
 * sequence; free() it. */
static float *run_beside(prompt_t *prompt, const ops_t *ops, dtype_t dtype, int32_t chunk,
                         const rig_sight_t *sight, int32_t beside) {
  rig_options_t options = {.ops = ops, .dir = prompt->dir, .dtype = dtype, .num_threads = 2};
  inferd_error_t error = {0};
  rig_t rig;
  ASSERT_EQ_FOR(rig_open(&options, &rig, &error), 0, "%s", error.message);
  prompt->vocab = rig.blueprint.vocab_size;
  rig.sight = sight;
  rig.prompt = prompt->ids;
  rig.beside = chunk_end(prompt, beside);
  float *logits = calloc((size_t)prompt->count * (size_t)prompt->vocab, sizeof *logits);
  for (int32_t at = 0, count; at < prompt->count; at += count) {
    count = chunk_end(prompt, at + chunk) - at;
    ASSERT_EQ(rig_run(&rig, prompt->ids + at, count, at, count,
                      logits + (int64_t)at * prompt->vocab, &error),
              0);
  }
  rig_close(&rig);
  return logits;
}

static float *run(prompt_t *prompt, const ops_t *ops, dtype_t dtype, int32_t chunk,
                  const rig_sight_t *sight) {
  return run_beside(prompt, ops, dtype, chunk, sight, 0);
}

static double distance(const prompt_t *prompt, const float *logits) {
  int64_t count;
  double most = 0;
  const float *expected = find(prompt, "logits", &count);
  ASSERT_EQ(count, (int64_t)prompt->count * prompt->vocab);
  for (int64_t i = 0; i < count; i++) {
    double difference = fabs((double)logits[i] - expected[i]);
    if (!(difference <= most)) most = difference; /* a NaN stays */
  }
  return most;
}

static const char *const exact_cases[] = {
    "qwen2-vl",     "qwen2-5-vl",      "qwen3-vl",   "qwen3-vl-wide", "qwen3-5",     "mistral3",
    "pixtral",      "smolvlm",         "idefics3",   "internvl",      "gemma3",      "gemma4",
    "gemma4-large", "llava-onevision", "llava-clip", "llava-next",    "qwen2-audio", "voxtral",
    "qwen3-asr",    "audioflamingo3",  "glmasr"};
enum { PLACEHOLDER = 30 };

Test(pictures, logits_are_those_of_transformers) {
  static const ops_t *const backs[] = {&ops_naive, &ops_cpu};
  for (size_t c = 0; c < 2 * ARRAY_LEN(exact_cases); c++) {
    const ops_t *ops = backs[c % 2];
    prompt_t prompt;
    prompt_open(&prompt, exact_cases[c / 2], PLACEHOLDER);
    float *logits = run(&prompt, ops, DTYPE_F32, prompt.count, &prompt.sight);
    ASSERT_LE_FOR(distance(&prompt, logits), 1e-4, "%s, %s", prompt.dir, ops->name);
    free(logits);
    prompt_close(&prompt);
  }
}

Test(pictures, logits_in_16_bits_are_as_near_as_those_of_transformers) {
  static const char *const names[] = {
      "qwen2-5-vl-bf16",      "qwen3-vl-bf16",       "mistral3-bf16",    "smolvlm-bf16",
      "internvl-bf16",        "gemma3-bf16",         "gemma4-bf16",      "qwen2-vl-bf16",
      "llava-onevision-bf16", "llava-clip-bf16",     "qwen2-audio-bf16", "voxtral-bf16",
      "qwen3-asr-bf16",       "audioflamingo3-bf16", "glmasr-bf16"};
  for (size_t c = 0; c < ARRAY_LEN(names); c++) {
    prompt_t prompt;
    prompt_open(&prompt, names[c], PLACEHOLDER);
    float *logits = run(&prompt, &ops_cpu, DTYPE_BF16, prompt.count, &prompt.sight);
    ASSERT_LE_FOR(distance(&prompt, logits), 2.0 * find(&prompt, "logits.error", NULL)[0], "%s",
                  prompt.dir);
    free(logits);
    prompt_close(&prompt);
  }
}

/* Chunks of 1 end behind each token of a picture; 7 and 64 within them. */
Test(pictures, chunks_change_no_bit) {
  static const int32_t chunks[] = {1, 7, 64};
  for (size_t c = 0; c < ARRAY_LEN(exact_cases); c++) {
    prompt_t prompt;
    prompt_open(&prompt, exact_cases[c], PLACEHOLDER);
    float *whole = run(&prompt, &ops_cpu, DTYPE_F32, prompt.count, &prompt.sight);
    size_t bytes = (size_t)prompt.count * (size_t)prompt.vocab * sizeof *whole;
    for (size_t i = 0; i < ARRAY_LEN(chunks); i++) {
      float *parts = run(&prompt, &ops_cpu, DTYPE_F32, chunks[i], &prompt.sight);
      ASSERT_EQ_FOR(memcmp(whole, parts, bytes), 0, "%s in chunks of %d", prompt.dir, chunks[i]);
      free(parts);
    }
    free(whole);
    prompt_close(&prompt);
  }
}

/* The other one has pictures, too, and ends within one. */
Test(pictures, another_sequence_changes_no_bit) {
  static const int32_t besides[] = {1, 31, 60};
  for (size_t c = 0; c < ARRAY_LEN(exact_cases); c++) {
    prompt_t prompt;
    prompt_open(&prompt, exact_cases[c], PLACEHOLDER);
    float *alone = run(&prompt, &ops_cpu, DTYPE_F32, prompt.count, &prompt.sight);
    size_t bytes = (size_t)prompt.count * (size_t)prompt.vocab * sizeof *alone;
    for (size_t i = 0; i < ARRAY_LEN(besides); i++) {
      float *both = run_beside(&prompt, &ops_cpu, DTYPE_F32, 50, &prompt.sight, besides[i]);
      ASSERT_EQ_FOR(memcmp(alone, both, bytes), 0, "%s beside %d", prompt.dir, besides[i]);
      free(both);
    }
    free(alone);
    prompt_close(&prompt);
  }
}

/* Three positions that are all the same are the one position. */
Test(pictures, text_has_its_bits_beside_pictures) {
  for (size_t c = 0; c < ARRAY_LEN(exact_cases); c++) {
    prompt_t prompt;
    prompt_open(&prompt, exact_cases[c], PLACEHOLDER);
    prompt.sight.seen_until = NULL;
    for (int32_t i = 0; i < 3 * prompt.count; i++) prompt.positions[i] = i % prompt.count;
    memset(prompt.places, 0, (size_t)prompt.count * sizeof *prompt.places);
    float *plain = run(&prompt, &ops_cpu, DTYPE_F32, prompt.count, NULL);
    float *beside = run(&prompt, &ops_cpu, DTYPE_F32, prompt.count, &prompt.sight);
    size_t bytes = (size_t)prompt.count * (size_t)prompt.vocab * sizeof *plain;
    ASSERT_EQ_FOR(memcmp(plain, beside, bytes), 0, "%s", prompt.dir);
    free(plain), free(beside);
    prompt_close(&prompt);
  }
}

/* Of a GGUF file, which scripts/vectors/gguf_file.py wrote. */
static void check_sections(const char *name, mrope_t mrope) {
  char dir[256];
  blueprint_t bp;
  inferd_error_t error = {0};
  snprintf(dir, sizeof dir, "tests/vectors/models/%s", name);
  ASSERT_EQ_FOR(blueprint_read(dir, 0, -1, &bp, &error), 0, "%s", error.message);
  ASSERT_EQ_FOR(bp.rope.mrope, mrope, "%s", name);
  ASSERT_EQ_FOR(bp.rope.sections[0], bp.rope.dims / 2 - 4, "%s", name);
  ASSERT_EQ_FOR(bp.rope.sections[1], 2, "%s", name);
  ASSERT_EQ_FOR(bp.rope.sections[2], 2, "%s", name);
  blueprint_free(&bp);
}

Test(pictures, gguf_files_say_how_positions_turn) {
  check_sections("gguf-qwen2vl", MROPE_PARTS);
  check_sections("gguf-qwen3vl", MROPE_INTERLEAVED);
  check_sections("gguf-qwen3vl-moe", MROPE_INTERLEAVED);
}
