/* test_weights.c: numbers on their way to the device: conversions, dummy weights, the fingerprint.
 */
#include "engine/model/weights/convert.h"
#include "engine/model/weights/dummy.h"
#include "tests/engine/model/maker.h"
#include "tests/engine/model/naive_numbers.h"
#include "tests/engine/model/naive_ops.h"
#include "tests/expect.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

Test(convert, finds_one_bad_element_anywhere) {
  static const int64_t lengths[] = {1, 2, 63, 64, 127, 128, 129, 255, 256, 257, 1000};
  for (size_t n = 0; n < sizeof(lengths) / sizeof(lengths[0]); n++) {
    int64_t count = lengths[n];
    float *row = calloc((size_t)count, sizeof(float)), scratch[1000];
    cr_assert_not_null(row);
    for (int64_t i = 0; i < count; i++) row[i] = (float)i * 0.1F - 3;
    for (int type = 0; type < 3; type++) {
      convert_row(scratch, (dtype_t)type, row, DTYPE_F32, count);
      cr_assert(convert_finite(scratch, (dtype_t)type, count));
    }
    for (int64_t i = 0; i < count; i += count / 17 + 1) {
      float kept = row[i];
      row[i] = i % 2 ? NAN : -INFINITY;
      for (int type = 0; type < 3; type++) {
        convert_row(scratch, (dtype_t)type, row, DTYPE_F32, count);
        cr_assert(!convert_finite(scratch, (dtype_t)type, count));
      }
      row[i] = kept;
    }
    free(row);
  }
}

static const expected_tensor_t some = {
    .name = "layers.3.mlp.up_proj.weight", .role = ROLE_UP, .layer = 3, .rows = 64, .cols = 900};

/* Numbers from the recipe in dummy.h, made by numpy. */
Test(dummy, golden_values) {
  static const float expected[] = {0x1.3dc6aap-6F, 0x1.5b562ap-5F, -0x1.435192p-5F, 0x1.065998p-6F};
  dummy_t dummy = dummy_tensor(&some, 7);
  float found[4];
  dummy_fill(&dummy, found, DTYPE_F32, 0, 4);
  cr_assert_arr_eq(found, expected, sizeof(expected));
  dummy_fill(&dummy, found, DTYPE_F32, 57599, 1);
  ASSERT_EQ(found[0], 0x1.0a0b88p-6F);
}

Test(dummy, any_split_gives_the_same) {
  dummy_t dummy = dummy_tensor(&some, 7);
  static float whole[5000], parts[5000];
  dummy_fill(&dummy, whole, DTYPE_F32, 0, 5000);
  int64_t at = 0;
  for (int64_t step = 1; at < 5000; step = (step * 7 + 3) % 601 + 1) {
    int64_t n = step < 5000 - at ? step : 5000 - at;
    dummy_fill(&dummy, parts + at, DTYPE_F32, at, n);
    at += n;
  }
  cr_assert_arr_eq(parts, whole, sizeof(whole));
}

Test(dummy, looks_like_weights) {
  enum { COUNT = 1 << 16 };
  float *values = calloc(COUNT, sizeof(float));
  cr_assert_not_null(values);
  dummy_t dummy = dummy_tensor(&some, 1);
  dummy_fill(&dummy, values, DTYPE_F32, 0, COUNT);
  double sum = 0, squares = 0, neighbours = 0;
  for (int i = 0; i < COUNT; i++) {
    sum += values[i];
    squares += (double)values[i] * values[i];
    if (i > 0) neighbours += (double)values[i] * values[i - 1];
  }
  double deviation = sqrt(squares / COUNT);
  ASSERT_LT(fabs(sum / COUNT), 4 * deviation / 256);
  cr_assert_float_eq(deviation, 1 / 30.0, 0.001);
  ASSERT_LT(fabs(neighbours / squares), 0.02);
  free(values);
}

Test(dummy, depends_on_seed_and_name) {
  expected_tensor_t other = some;
  other.name[7] = '4';
  uint64_t key = dummy_tensor(&some, 7).key;
  ASSERT_EQ_FOR(key, 0xd4a3d3ef4a9bf75eu, "%#llx", (unsigned long long)key);
  ASSERT_NE(key, dummy_tensor(&some, 8).key);
  ASSERT_NE(key, dummy_tensor(&other, 7).key);
}

static char said[512];

static void keep_line(void *context, const char *line) {
  (void)context;
  size_t used = strlen(said);
  snprintf(said + used, sizeof said - used, "%s\n", line);
}

static uint64_t hash_of(maker_t *maker) {
  blueprint_t blueprint;
  inferd_error_t error = {0};
  device_t *device;
  model_t *model;
  model_options_t options = {.dir = maker->dir, .dtype = -1, .log = keep_line};
  maker_write(maker);
  ASSERT_EQ_FOR(blueprint_read(maker->dir, 0, -1, &blueprint, &error), 0, "%s", error.message);
  ASSERT_EQ(ops_naive.open(NULL, &device, &error), 0);
  ASSERT_EQ_FOR(model_load(&ops_naive, device, &blueprint, 32, &options, &model, &error), 0, "%s",
                error.message);
  uint64_t hash = model_hash(model);
  model_free(model);
  ops_naive.close(device);
  blueprint_free(&blueprint);
  return hash;
}

Test(hash, is_stable_and_sees_changes) {
  maker_t maker;
  maker_open(&maker);
  uint64_t first = hash_of(&maker); /* a part of the fingerprint that clients see */
  ASSERT_EQ_FOR(first, 0x9d80193bda015293u, "%#llx", (unsigned long long)first);
  ASSERT_EQ(hash_of(&maker), first);
  maker_set(&maker, "rms_norm_eps", "1e-6"); /* not a weight */
  ASSERT_EQ(hash_of(&maker), first);
  maker_tensor(&maker, "model.norm.weight")->poison = 0.5;
  uint64_t changed = hash_of(&maker);
  ASSERT_NE(changed, first);
  maker_tensor_t *up = maker_tensor(&maker, "model.layers.0.mlp.up_proj.weight");
  maker_reshape(up, "BF16", 2, 12, 8);
  ASSERT_NE(hash_of(&maker), changed);
  maker_close(&maker);
}

Test(load, names_the_parts_that_text_needs_not) {
  maker_t maker;
  maker_open(&maker);
  uint64_t plain = hash_of(&maker);
  ASSERT_STR_EQ(said, "");
  maker_add(&maker, "model.visual.patch.weight", "F32", 2, 64, 256);
  maker_add(&maker, "visual.merger.weight", "BF16", 2, 64, 256);
  maker_add(&maker, "mtp.norm.weight", "F32", 1, 8, 0);
  maker_add(&maker, "model.layers.1.mlp.up_proj.weight", "F32", 2, 160, 256);
  ASSERT_EQ(hash_of(&maker), plain);
  ASSERT_STR_EQ(said, "skipped   mtp.* (1 tensors, 0.0 MiB), visual.* (2 tensors, 0.1 MiB), layers "
                      "from 1 (1 tensors, 0.2 MiB)\n");
  maker_close(&maker);
}

static double last_progress;
static int num_progress;

static void on_progress(void *context, double fraction) {
  (void)context;
  ASSERT_GE(fraction, last_progress);
  last_progress = fraction;
  num_progress++;
}

Test(load, reports_progress_up_to_one) {
  maker_t maker;
  inferd_error_t error = {0};
  blueprint_t blueprint;
  device_t *device;
  model_t *model;
  maker_open(&maker);
  maker_write(&maker);
  model_options_t options = {.dir = maker.dir, .dtype = -1, .progress = on_progress};
  ASSERT_EQ(blueprint_read(maker.dir, 0, -1, &blueprint, &error), 0);
  ASSERT_EQ(ops_naive.open(NULL, &device, &error), 0);
  ASSERT_EQ(model_load(&ops_naive, device, &blueprint, 32, &options, &model, &error), 0);
  ASSERT_EQ(last_progress, 1.0);
  ASSERT_GE(num_progress, 8);
  model_free(model);
  ops_naive.close(device);
  blueprint_free(&blueprint);
  maker_close(&maker);
}

Test(load, refuses_a_length_above_the_models) {
  maker_t maker;
  inferd_error_t error = {0};
  blueprint_t blueprint;
  device_t *device;
  model_t *model;
  maker_open(&maker);
  maker_write(&maker);
  model_options_t options = {.dir = maker.dir, .dtype = -1};
  ASSERT_EQ(blueprint_read(maker.dir, 0, -1, &blueprint, &error), 0);
  ASSERT_EQ(ops_naive.open(NULL, &device, &error), 0);
  int status = model_load(&ops_naive, device, &blueprint, 33, &options, &model, &error);
  ASSERT_EQ(status, ERR_CONFIGURATION);
  cr_assert_not_null(strstr(error.message, "max_model_len is 33; the model allows 1 to 32"));
  ops_naive.close(device);
  blueprint_free(&blueprint);
  maker_close(&maker);
}
