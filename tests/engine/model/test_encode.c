/* test_encode.c: encoders and the decoders behind them beside transformers
 * (scripts/vectors/crossed.py), and their bits: whatever the parts, the runs and the threads.
 */
#include "engine/base/util.h"
#include "engine/device/cross_weights.h"
#include "engine/model/forward/encode.h"
#include "engine/model/sizes.h"
#include "engine/model/source/model_file.h"
#include "tests/expect.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VECTORS "tests/vectors/crossed"
enum {
  BLOCK = 16,
  BLOCKS = 64,
  LENGTH_MAX = 96,
  TOKENS_MAX = 64,
  SOURCE_BLOCKS = LENGTH_MAX / BLOCK
};
static const double TOLERANCE = 1e-4; /* of fp32 sums in another order */

typedef struct crossed {
  char dir[256];
  model_file_t expected;
  const json_t *root;
  blueprint_t encoder_print, decoder_print;
  device_t *device;
  model_t *encoder, *decoder;
  encode_runs_t *encode;
  int32_t ids[LENGTH_MAX], length;  /* the first source */
  int32_t blocks[2][SOURCE_BLOCKS]; /* of the two runs, out of order */
} crossed_t;

static void load(crossed_t *crossed, int32_t dtype) {
  inferd_error_t error = {0};
  model_options_t options = {.dir = crossed->dir, .dtype = dtype};
  ASSERT_EQ_FOR(blueprint_read(crossed->dir, 0, -1, &crossed->decoder_print, &error), 0, "%s",
                error.message);
  ASSERT_EQ_FOR(blueprint_read_encoder(crossed->dir, 0, &crossed->encoder_print, &error), 0, "%s",
                error.message);
  ASSERT_EQ_FOR(model_load(&ops_cpu, crossed->device, &crossed->decoder_print, TOKENS_MAX, &options,
                           &crossed->decoder, &error),
                0, "%s", error.message);
  options.lacks_embed = true;
  options.embeds = crossed->decoder;
  ASSERT_EQ_FOR(model_load(&ops_cpu, crossed->device, &crossed->encoder_print, LENGTH_MAX, &options,
                           &crossed->encoder, &error),
                0, "%s", error.message);
}

static void crossed_open(crossed_t *crossed, const char *name, int threads, int32_t dtype) {
  inferd_error_t error = {0};
  const device_options_t options = {.isa = "auto", .num_threads = threads};
  step_limits_t limits = {.tokens_max = TOKENS_MAX,
                          .reqs_max = 2,
                          .logits_rows_max = TOKENS_MAX,
                          .max_model_len = TOKENS_MAX};
  *crossed = (crossed_t){0};
  snprintf(crossed->dir, sizeof crossed->dir, "%s/%s", VECTORS, name);
  ASSERT_EQ(model_file_read(crossed->dir, "expected.json", 1 << 24, &json_limits_model,
                            &crossed->expected, &error),
            0);
  crossed->root = json_root(crossed->expected.doc);
  JSON_EACH(id, json_first(json_get(crossed->root, "sources"))) {
    int64_t value;
    cr_assert(json_int64(id, &value));
    crossed->ids[crossed->length++] = (int32_t)value;
  }
  ASSERT_EQ(ops_cpu.open(&options, &crossed->device, &error), 0);
  load(crossed, dtype);
  kv_cache_desc_t kv = model_kv(&crossed->decoder_print);
  kv.num_blocks = BLOCKS;
  kv.block_size = BLOCK;
  model_limits(&crossed->decoder_print, &limits);
  ASSERT_EQ(ops_cpu.kv_cache(crossed->device, &kv, &error), 0);
  ASSERT_EQ(ops_cpu.prepare(crossed->device, &limits, &error), 0);
  ASSERT_EQ(model_prepare(crossed->decoder, &limits, &error), 0);
  ASSERT_EQ(encode_new(crossed->encoder, crossed->decoder,
                       (const int32_t[]){LENGTH_MAX, LENGTH_MAX}, 2, &crossed->encode, &error),
            0);
  for (int32_t i = 0; i < SOURCE_BLOCKS; i++) {
    crossed->blocks[0][i] = BLOCKS - 1 - 2 * i;
    crossed->blocks[1][i] = BLOCKS - 2 - 2 * i;
  }
}

static void crossed_close(crossed_t *crossed) {
  encode_free(crossed->encode);
  model_free(crossed->encoder);
  model_free(crossed->decoder);
  blueprint_free(&crossed->encoder_print);
  blueprint_free(&crossed->decoder_print);
  ops_cpu.close(crossed->device);
  model_file_free(&crossed->expected);
}

/* Rows of the source in run `run`, in parts of so much work; free() it. */
static float *encode(crossed_t *crossed, int32_t run, int64_t work) {
  const encode_input_t input = {
      .ids = crossed->ids, .length = crossed->length, .blocks = crossed->blocks[run]};
  float *rows =
      calloc((size_t)crossed->length * (size_t)crossed->encoder_print.hidden_size, sizeof *rows);
  encode_choose(crossed->encode, run);
  encode_begin(crossed->encode, &input);
  while (!encode_advance(crossed->encode, work)) {
  }
  ASSERT_EQ(encode_work_done(crossed->encode),
            encode_work(&crossed->encoder_print, &crossed->decoder_print, crossed->length));
  encode_read(crossed->encode, rows);
  return rows;
}

/* Logits of the decoder for ids[0 .. count) that stand behind `done` ones, of which all are
 * computed in one step behind the source of run `run`, and what is asked of the weights; free() it.
 */
static float *decode_behind(crossed_t *crossed, int32_t run, const int32_t *ids, int32_t done,
                            int32_t count, const cross_weights_t *weights) {
  int32_t positions[TOKENS_MAX], zeros[TOKENS_MAX] = {0}, all[TOKENS_MAX], blocks[TOKENS_MAX];
  int64_t slots[TOKENS_MAX];
  int32_t starts[] = {0, count}, computed[] = {done}, lens[] = {done + count},
          sources[] = {crossed->length};
  const int32_t *table[] = {blocks}, *cross[] = {crossed->blocks[run]};
  const cross_weights_t *asked[] = {weights};
  inferd_error_t error = {0};
  for (int32_t i = 0; i < count; i++) {
    positions[i] = done + i;
    all[i] = i;
    slots[i] = (int64_t)(1 + (done + i) / BLOCK) * BLOCK + (done + i) % BLOCK;
  }
  for (int32_t i = 0; i < TOKENS_MAX; i++) blocks[i] = 1 + i;
  const batch_t batch = {.num_tokens = count,
                         .num_reqs = 1,
                         .max_query_len = count,
                         .max_seq_len = done + count,
                         .block_size = BLOCK,
                         .input_ids = (int32_t *)(uintptr_t)ids,
                         .positions = positions,
                         .request_row = zeros,
                         .token_types = zeros,
                         .slot_mapping = slots,
                         .slots_stride = TOKENS_MAX,
                         .adapters = zeros,
                         .query_start_loc = starts,
                         .num_computed_tokens = computed,
                         .seq_lens = lens,
                         .block_table = table,
                         .block_table_stride = TOKENS_MAX,
                         .num_groups = 1,
                         .cross_table = cross,
                         .cross_lens = sources,
                         .cross_weights = asked,
                         .num_weighed = weights != NULL,
                         .num_selected = count,
                         .selected_token_indices = all};
  const size_t vocab = (size_t)crossed->decoder_print.vocab_size;
  float *logits = calloc((size_t)count * vocab, sizeof *logits);
  ops_cpu.begin(crossed->device, &batch);
  model_forward(crossed->decoder, &batch);
  model_logits(crossed->decoder, 0, count);
  ASSERT_EQ(ops_cpu.end(crossed->device, &error), 0);
  ops_cpu.read_logits(crossed->device, logits, count);
  return logits;
}

static float *decode_weighed(crossed_t *crossed, int32_t run, const int32_t *ids, int32_t count,
                             const cross_weights_t *weights) {
  return decode_behind(crossed, run, ids, 0, count, weights);
}

static float *decode(crossed_t *crossed, int32_t run, const int32_t *ids, int32_t count) {
  return decode_weighed(crossed, run, ids, count, NULL);
}

static double logprob(const float *logits, int32_t vocab, int32_t id) {
  double most = -INFINITY, sum = 0;
  for (int32_t i = 0; i < vocab; i++) most = fmax(most, (double)logits[i]);
  for (int32_t i = 0; i < vocab; i++) sum += exp((double)logits[i] - most);
  return (double)logits[id] - most - log(sum);
}

/* start, then the greedy ids of the first source. Returns how many; *first: those of start. */
static int32_t take_ids(const crossed_t *crossed, int32_t *out, int32_t *first) {
  const json_t *parts[] = {json_get(crossed->root, "start"),
                           json_get(json_first(json_get(crossed->root, "greedy")), "ids")};
  int32_t count = 0;
  for (int p = 0; p < 2; p++) {
    JSON_EACH(id, parts[p]) {
      int64_t value;
      cr_assert(json_int64(id, &value));
      out[count++] = (int32_t)value;
    }
    if (p == 0) *first = count;
  }
  return count;
}

static void check_rows(crossed_t *crossed, const float *rows) {
  int32_t at = 0;
  JSON_EACH(row, json_get(crossed->root, "rows")) {
    JSON_EACH(number, row) {
      double value;
      cr_assert(json_double(number, &value));
      cr_assert(fabs(value - (double)rows[at]) <= TOLERANCE * (1 + fabs(value)),
                "%s: value %d of the encoder is %g, expected %g", crossed->dir, at,
                (double)rows[at], value);
      at++;
    }
  }
  ASSERT_EQ(at, crossed->length * crossed->encoder_print.hidden_size);
}

static void check_case(const char *name) {
  crossed_t crossed;
  int32_t ids[TOKENS_MAX], first, i = 0;
  crossed_open(&crossed, name, 2, -1);
  float *rows = encode(&crossed, 1, INT64_MAX);
  check_rows(&crossed, rows);
  const int32_t count = take_ids(&crossed, ids, &first), vocab = crossed.decoder_print.vocab_size;
  float *logits = decode(&crossed, 1, ids, count);
  JSON_EACH(number, json_get(json_first(json_get(crossed.root, "greedy")), "logprobs")) {
    double value;
    cr_assert(json_double(number, &value));
    const double made = logprob(logits + (int64_t)(first - 1 + i) * vocab, vocab, ids[first + i]);
    cr_assert(fabs(made - value) <= TOLERANCE * (1 + fabs(value)),
              "%s: token %d has %g, expected %g", name, i, made, value);
    i++;
  }
  ASSERT_EQ(first + i, count);
  free(rows), free(logits);
  crossed_close(&crossed);
}

Test(encode, every_case_is_within_rounding_of_transformers) {
  int count = 0;
  DIR *dir = opendir(VECTORS);
  cr_assert_not_null(dir);
  for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
    if (entry->d_name[0] == '.') continue;
    check_case(entry->d_name);
    count++;
  }
  closedir(dir);
  ASSERT_GE(count, 8);
}

/* The same bits in parts of a few rows, in another run whose blocks lie elsewhere, and by other
 * threads; also of the logits. */
Test(encode, bits_depend_on_the_source_alone) {
  static const char *const names[] = {"t5", "bart", "m2m100"};
  for (size_t n = 0; n < ARRAY_LEN(names); n++) {
    crossed_t one, other;
    int32_t ids[TOKENS_MAX], first;
    crossed_open(&one, names[n], 1, -1);
    crossed_open(&other, names[n], 3, -1);
    const int32_t count = take_ids(&one, ids, &first);
    float *whole = encode(&one, 0, INT64_MAX), *parts = encode(&other, 1, 1);
    const size_t bytes = (size_t)one.length * (size_t)one.encoder_print.hidden_size * sizeof *whole;
    ASSERT_EQ(memcmp(whole, parts, bytes), 0);
    float *left = decode(&one, 0, ids, count), *right = decode(&other, 1, ids, count);
    const size_t vocab = (size_t)one.decoder_print.vocab_size;
    ASSERT_EQ(memcmp(left, right, (size_t)count * vocab * sizeof *left), 0);
    /* the first token alone, as a step of one row */
    float *alone = decode(&other, 1, ids, 1);
    ASSERT_EQ(memcmp(left, alone, vocab * sizeof *left), 0);
    free(whole), free(parts), free(left), free(right), free(alone);
    crossed_close(&one);
    crossed_close(&other);
  }
}

/* Two sources whose parts take turns. */
Test(encode, runs_do_not_touch_each_other) {
  crossed_t crossed;
  crossed_open(&crossed, "mbart", 2, -1);
  float *alone = encode(&crossed, 0, INT64_MAX);
  int32_t others[LENGTH_MAX];
  for (int32_t i = 0; i < LENGTH_MAX; i++) others[i] = 3 + i;
  const encode_input_t inputs[] = {
      {.ids = crossed.ids, .length = crossed.length, .blocks = crossed.blocks[0]},
      {.ids = others, .length = LENGTH_MAX, .blocks = crossed.blocks[1]}};
  bool done[2] = {false};
  for (int32_t run = 0; run < 2; run++) {
    encode_choose(crossed.encode, run);
    encode_begin(crossed.encode, &inputs[run]);
  }
  while (!done[0] || !done[1]) {
    for (int32_t run = 0; run < 2; run++) {
      encode_choose(crossed.encode, run);
      if (!done[run]) done[run] = encode_advance(crossed.encode, 1);
    }
  }
  float *beside = calloc((size_t)crossed.length * 32, sizeof *beside);
  ASSERT_EQ(crossed.encoder_print.hidden_size, 32);
  encode_choose(crossed.encode, 0);
  encode_read(crossed.encode, beside);
  ASSERT_EQ(memcmp(alone, beside, (size_t)crossed.length * 32 * sizeof *alone), 0);
  free(alone), free(beside);
  crossed_close(&crossed);
}

/* 16-bit weights and cache. */
Test(encode, bf16_is_near) {
  crossed_t crossed;
  int32_t ids[TOKENS_MAX], first;
  crossed_open(&crossed, "t5-gated-untied", 2, DTYPE_BF16);
  float *rows = encode(&crossed, 0, 1000000);
  const int32_t count = take_ids(&crossed, ids, &first);
  float *logits = decode(&crossed, 0, ids, count);
  for (int64_t i = 0; i < (int64_t)count * crossed.decoder_print.vocab_size; i++)
    cr_assert(isfinite(logits[i]));
  free(rows), free(logits);
  crossed_close(&crossed);
}

/* Rows whose attention may be rounded: near those of fp32, and the same whatever the parts. */
Test(encode, rounded_rows_are_near) {
  crossed_t exact, rounded;
  double worst = 0;
  crossed_open(&exact, "mbart", 2, -1);
  crossed_open(&rounded, "mbart", 2, DTYPE_BF16);
  float *expected = encode(&exact, 0, INT64_MAX);
  float *rows = encode(&rounded, 0, INT64_MAX), *parts = encode(&rounded, 0, 1);
  const int64_t count = (int64_t)exact.length * exact.encoder_print.hidden_size;
  for (int64_t i = 0; i < count; i++) worst = fmax(worst, fabs((double)rows[i] - expected[i]));
  ASSERT_LE(worst, 0.1);
  ASSERT_EQ(memcmp(rows, parts, (size_t)count * sizeof *rows), 0);
  free(expected), free(rows), free(parts);
  crossed_close(&exact);
  crossed_close(&rounded);
}

/* Tokens in one step and one by one, which may take other ways through their cross attention. */
Test(encode, bits_do_not_depend_on_steps) {
  static const int32_t types[] = {-1, DTYPE_BF16};
  for (size_t t = 0; t < ARRAY_LEN(types); t++) {
    crossed_t crossed;
    int32_t ids[TOKENS_MAX], first;
    crossed_open(&crossed, "mbart", 2, types[t]);
    free(encode(&crossed, 0, INT64_MAX));
    const int32_t count = take_ids(&crossed, ids, &first);
    const size_t vocab = (size_t)crossed.decoder_print.vocab_size;
    float *all = decode(&crossed, 0, ids, count);
    for (int32_t i = 0; i < count; i++) {
      float *one = decode_behind(&crossed, 0, ids + i, i, 1, NULL);
      ASSERT_EQ_FOR(memcmp(one, all + (size_t)i * vocab, vocab * sizeof *one), 0, "token %d", i);
      free(one);
    }
    free(all);
    crossed_close(&crossed);
  }
}

/* Weights of tokens that were asked for add up to 1 and are those of fewer columns and tokens, too;
 * to ask changes no logit. tests/parity/parity_speech.py compares them with transformers'. */
Test(encode, weights_of_cross_attention_are_told) {
  crossed_t crossed;
  int32_t ids[TOKENS_MAX], first;
  crossed_open(&crossed, "bart", 2, -1);
  free(encode(&crossed, 0, INT64_MAX));
  const int32_t count = take_ids(&crossed, ids, &first), length = crossed.length;
  const int32_t layer = crossed.decoder_print.num_layers - 1;
  const cross_head_t heads[] = {{0, 0}, {layer, crossed.decoder_print.num_heads - 1}};
  float *all = calloc((size_t)(2 * count * length), sizeof *all), *some = calloc((size_t)length, 4);
  cross_weights_t asked = {
      .heads = heads, .num_heads = 2, .count = count, .columns = length, .out = all};
  float *plain = decode(&crossed, 0, ids, count);
  float *weighed = decode_weighed(&crossed, 0, ids, count, &asked);
  ASSERT_EQ(memcmp(plain, weighed,
                   (size_t)count * (size_t)crossed.decoder_print.vocab_size * sizeof *plain),
            0);
  for (int32_t row = 0; row < 2 * count; row++) {
    double sum = 0;
    for (int32_t i = 0; i < length; i++) sum += (double)all[row * length + i];
    cr_assert(fabs(sum - 1) < 1e-5, "row %d: %g", row, sum);
  }
  cr_assert(memcmp(all, all + count * length, (size_t)length * sizeof *all) != 0);
  asked = (cross_weights_t){.heads = heads + 1,
                            .num_heads = 1,
                            .first = count - 1,
                            .count = 1,
                            .columns = length - 1,
                            .out = some};
  free(decode_weighed(&crossed, 0, ids, count, &asked));
  ASSERT_EQ(memcmp(some, all + (2 * count - 1) * length, (size_t)(length - 1) * sizeof *all), 0);
  ASSERT_EQ(some[length - 1], 0);
  free(plain), free(weighed), free(all), free(some);
  crossed_close(&crossed);
}
