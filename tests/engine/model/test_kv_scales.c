/* test_kv_scales.c: the scales of an fp8 KV cache that a checkpoint carries: every spelling, shape
 * and type; and each way in which they may be wrong, refused by name.
 */
#include "tests/engine/model/maker.h"
#include "tests/engine/model/naive_ops.h"
#include "tests/expect.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* A model of two layers. */
static void open_two_layers(maker_t *maker) {
  maker_open(maker);
  maker_set(maker, "num_hidden_layers", "2");
  for (int i = 0, count = maker->num_tensors; i < count; i++) {
    const maker_tensor_t *t = &maker->tensors[i];
    const char *rest = strstr(t->name, "layers.0.");
    if (rest == NULL) continue;
    char name[96];
    snprintf(name, sizeof(name), "model.layers.1.%.60s", rest + strlen("layers.0."));
    maker_add(maker, name, t->type, t->rank, t->shape[0], t->shape[1]);
  }
}

static void add_scale(maker_t *maker, int layer, const char *spelling, const char *type, int rank,
                      double value) {
  char name[96];
  snprintf(name, sizeof(name), "model.layers.%d.self_attn.%s", layer, spelling);
  maker_add(maker, name, type, rank, 1, 0)->poison = value;
}

/* Loads, and compares with `expected` [2 layers][K, V]; NULL = none. */
static uint64_t check_scales(maker_t *maker, const float *expected) {
  blueprint_t blueprint;
  inferd_error_t error = {0};
  device_t *device;
  model_t *model = NULL;
  model_options_t options = {.dir = maker->dir, .dtype = -1};
  maker_write(maker);
  ASSERT_EQ_FOR(blueprint_read(maker->dir, 0, -1, &blueprint, &error), 0, "%s", error.message);
  ASSERT_EQ(ops_naive.open(NULL, &device, &error), 0);
  ASSERT_EQ_FOR(model_load(&ops_naive, device, &blueprint, 32, &options, &model, &error), 0, "%s",
                error.message);
  const float *scales = model_kv_scales(model);
  ASSERT_EQ(scales == NULL, expected == NULL);
  for (int i = 0; i < 4 && expected != NULL; i++) {
    ASSERT_EQ_FOR(scales[i], expected[i], "scale %d is %g, expected %g", i, (double)scales[i],
                  (double)expected[i]);
  }
  uint64_t hash = model_hash(model);
  model_free(model);
  ops_naive.close(device);
  blueprint_free(&blueprint);
  maker_close(maker);
  return hash;
}

Test(kv_scales, every_spelling_type_and_shape) {
  static const char *const names[][2] = {{"k_scale", "v_scale"},
                                         {"attn.k_scale", "attn.v_scale"},
                                         {"k_proj.k_scale", "v_proj.v_scale"},
                                         {"qkv_proj.k_scale", "qkv_proj.v_scale"},
                                         {"k_proj.output_scale", "v_proj.output_scale"}};
  static const char *const types[] = {"F32", "F16", "BF16"};
  static const float values[] = {0.0625F, 3.0F, 0.0302734375F, 1.0F}; /* exact in every type */
  for (size_t spelling = 0; spelling < sizeof(names) / sizeof(names[0]); spelling++) {
    for (int type = 0; type < 3; type++) {
      maker_t maker;
      open_two_layers(&maker);
      for (int i = 0; i < 4; i++) {
        add_scale(&maker, i / 2, names[spelling][i % 2], types[type], (i + type) % 2,
                  (double)values[i]);
      }
      check_scales(&maker, values);
    }
  }
}

Test(kv_scales, one_for_keys_and_values) {
  static const float expected[] = {0.5F, 0.5F, 0.125F, 0.125F};
  maker_t maker;
  open_two_layers(&maker);
  add_scale(&maker, 0, "kv_scale", "F32", 1, 0.5);
  add_scale(&maker, 1, "kv_scale", "F32", 0, 0.125);
  check_scales(&maker, expected);
}

/* As compressed-tensors and ModelOpt write it when they calibrate the cache alone. */
Test(kv_scales, beside_a_quantization_of_the_cache_alone) {
  static const char *const configs[] = {
      "{\"config_groups\": {}, \"format\": \"dense\", \"ignore\": [], \"kv_cache_scheme\": "
      "{\"dynamic\": false, \"num_bits\": 8, \"strategy\": \"tensor\", \"symmetric\": true, "
      "\"type\": \"float\"}, \"quant_method\": \"compressed-tensors\"}",
      "{\"quant_method\": \"modelopt\", \"quant_algo\": null, \"kv_cache_scheme\": {\"num_bits\": "
      "8, "
      "\"type\": \"float\"}}",
  };
  static const float expected[] = {0.5F, 0.25F, 0.125F, 2.0F};
  for (int config = 0; config < 2; config++) {
    maker_t maker;
    open_two_layers(&maker);
    maker_set(&maker, "quantization_config", configs[config]);
    for (int i = 0; i < 4; i++) {
      add_scale(&maker, i / 2, i % 2 ? "v_scale" : "k_scale", "F32", 0, (double)expected[i]);
    }
    check_scales(&maker, expected);
  }
}

Test(kv_scales, none_and_the_fingerprint) {
  uint64_t hashes[3];
  for (int i = 0; i < 3; i++) {
    const float expected[] = {1, 1, (float)i, 1};
    maker_t maker;
    open_two_layers(&maker);
    for (int k = 0; k < 4 && i > 0; k++) {
      add_scale(&maker, k / 2, k % 2 ? "v_scale" : "k_scale", "F32", 1, (double)expected[k]);
    }
    hashes[i] = check_scales(&maker, i > 0 ? expected : NULL);
  }
  ASSERT_NE(hashes[0], hashes[1]);
  ASSERT_NE(hashes[1], hashes[2]);
  ASSERT_NE(hashes[0], hashes[2]);
}

#define LAST "model.layers.1.self_attn.v_scale"

/* Three good scales of two layers, and `name`. */
static void expect_refusal(const char *name, const char *type, int rank, int64_t rows, double value,
                           const char *part) {
  maker_t maker;
  inferd_error_t error;
  open_two_layers(&maker);
  for (int i = 0; i < 3; i++) add_scale(&maker, i / 2, i % 2 ? "v_scale" : "k_scale", "F32", 1, 2);
  maker_add(&maker, name, type, rank, rows, 1)->poison = value;
  maker_write(&maker);
  ASSERT_EQ_FOR(maker_load(&maker, -1, &error), ERR_MODEL_MALFORMED, "%s", error.message);
  cr_assert_not_null(strstr(error.message, part), "\"%s\" is not in \"%s\"", part, error.message);
  maker_close(&maker);
}

Test(kv_scales, values_that_are_no_scales) {
  expect_refusal(LAST, "F32", 1, 1, -0.5, "tensor " LAST ": is -0.5; the scale of a KV cache is");
  expect_refusal(LAST, "F16", 0, 1, 1e-30, "tensor " LAST ": is 0;"); /* rounds to nothing */
  expect_refusal(LAST, "BF16", 1, 1, INFINITY, "tensor " LAST ": is inf;");
  expect_refusal(LAST, "F32", 0, 1, NAN, "tensor " LAST ": is ");
  expect_refusal(LAST, "F32", 0, 1, -INFINITY, "tensor " LAST ": is -inf;");
}

Test(kv_scales, shapes_and_types) {
  expect_refusal(LAST, "F32", 1, 2, 0.5, "tensor " LAST ": shape [2], expected [] or [1]");
  expect_refusal(LAST, "F32", 2, 1, 0.5, "tensor " LAST ": shape [1, 1], expected [] or [1]");
  expect_refusal(LAST, "I32", 1, 1, 0.5, "tensor " LAST ": dtype I32 is not supported");
}

Test(kv_scales, in_some_places_only) {
  expect_refusal("model.layers.2.self_attn.v_scale", "F32", 1, 1, 2,
                 "tensor " LAST " is missing; 3 of 4 scales of the KV cache are there");
}

Test(kv_scales, twice) {
  maker_t maker;
  inferd_error_t error;
  open_two_layers(&maker);
  for (int i = 0; i < 4; i++) add_scale(&maker, i / 2, i % 2 ? "v_scale" : "k_scale", "F32", 1, 2);
  add_scale(&maker, 0, "attn.k_scale", "F32", 1, 2);
  maker_write(&maker);
  ASSERT_EQ_FOR(maker_load(&maker, -1, &error), ERR_MODEL_MALFORMED, "%s", error.message);
  cr_assert_not_null(strstr(error.message, "1 unexpected tensor, first: model.layers.0.self_attn."),
                     "%s", error.message);
  maker_close(&maker);
}
