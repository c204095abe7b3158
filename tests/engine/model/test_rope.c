/* test_rope.c: rotary frequencies against numbers computed apart from this program, in fp64. */
#include "engine/model/forward/rope.h"
#include "tests/expect.h"

#include <math.h>

static double frequencies[128];
static double scale;

static void compute(rope_config_t rope, int32_t max_model_len) {
  rope_frequencies(&rope, max_model_len, frequencies, &scale);
}

static void near(double found, double expected, double relative, const char *what) {
  ASSERT_LE_FOR(fabs(found - expected), relative * fabs(expected), "%s: %.12g, expected %.12g",
                what, found, expected);
}

/* f'_i / f_i. */
static double ratio(const rope_config_t *rope, int i) {
  return frequencies[i] / pow(rope->theta, -2.0 * i / rope->dims);
}

static void check_ratios(const rope_config_t *rope, const double *expected, int first, int count) {
  for (int i = 0; i < count; i++) {
    cr_assert_float_eq(ratio(rope, first + i), expected[i], 5e-7, "ratio %d: %.9f, expected %.9f",
                       first + i, ratio(rope, first + i), expected[i]);
  }
}

static void check_flat(const rope_config_t *rope, int first, int last, double expected) {
  for (int i = first; i <= last; i++) cr_assert_float_eq(ratio(rope, i), expected, 1e-12);
}

Test(rope, default_type) {
  rope_config_t rope = {.type = ROPE_DEFAULT, .theta = 1e4, .factor = 1, .dims = 128};
  compute(rope, 4096);
  ASSERT_EQ(scale, 1.0);
  near(frequencies[0], 1.0, 0, "f_0");
  near(frequencies[63], 1.154781984689e-4, 1e-9, "f_63");
}

Test(rope, linear_divides_every_frequency) {
  rope_config_t rope = {.type = ROPE_LINEAR, .theta = 1e4, .factor = 4, .dims = 64};
  compute(rope, 4096);
  check_flat(&rope, 0, 31, 0.25);
}

Test(rope, llama3_of_llama_3_1) {
  static const double middle[] = {0.828168, 0.643743, 0.493507, 0.371122, 0.271425, 0.190211};
  rope_config_t rope = {.type = ROPE_LLAMA3,
                        .theta = 5e5,
                        .factor = 8,
                        .low_freq_factor = 1,
                        .high_freq_factor = 4,
                        .original_max = 8192,
                        .dims = 128};
  compute(rope, 131072);
  check_flat(&rope, 0, 28, 1.0);
  check_ratios(&rope, middle, 29, 6);
  check_flat(&rope, 35, 63, 0.125);
  near(frequencies[1], 8.146172339e-1, 1e-9, "f_1");
  near(frequencies[32], 5.248461610e-4, 1e-9, "f_32");
  near(frequencies[63], 3.068925989e-7, 1e-9, "f_63");
}

Test(rope, llama3_of_llama_3_2) {
  static const double middle[] = {0.605573, 0.303743, 0.103448};
  rope_config_t rope = {.type = ROPE_LLAMA3,
                        .theta = 5e5,
                        .factor = 32,
                        .low_freq_factor = 1,
                        .high_freq_factor = 4,
                        .original_max = 8192,
                        .dims = 64};
  compute(rope, 131072);
  check_flat(&rope, 0, 14, 1.0);
  check_ratios(&rope, middle, 15, 3);
  check_flat(&rope, 18, 31, 0.03125);
}

Test(rope, llama3_with_equal_factors_has_no_middle) {
  rope_config_t rope = {.type = ROPE_LLAMA3,
                        .theta = 5e5,
                        .factor = 8,
                        .low_freq_factor = 2,
                        .high_freq_factor = 2,
                        .original_max = 8192,
                        .dims = 128};
  compute(rope, 8192);
  for (int i = 0; i < 64; i++) {
    cr_assert(fabs(ratio(&rope, i) - 1) < 1e-12 || fabs(ratio(&rope, i) - 0.125) < 1e-12);
  }
}

Test(rope, yarn_of_gpt_oss) {
  rope_config_t rope = {.type = ROPE_YARN,
                        .theta = 150000,
                        .factor = 32,
                        .beta_fast = 32,
                        .beta_slow = 1,
                        .original_max = 4096,
                        .dims = 64,
                        .truncate = false};
  compute(rope, 131072);
  check_flat(&rope, 0, 8, 1.0);
  check_ratios(&rope, (const double[]){0.905551, 0.801443}, 9, 2);
  check_ratios(&rope, (const double[]){0.489119}, 13, 1);
  check_ratios(&rope, (const double[]){0.072688}, 17, 1);
  check_flat(&rope, 18, 31, 0.03125);
  near(scale, 1.346573590, 1e-9, "scale");
}

Test(rope, yarn_of_qwen_2_5) {
  rope_config_t rope = {.type = ROPE_YARN,
                        .theta = 1e6,
                        .factor = 4,
                        .beta_fast = 32,
                        .beta_slow = 1,
                        .original_max = 32768,
                        .dims = 128,
                        .truncate = true};
  compute(rope, 131072);
  check_flat(&rope, 0, 23, 1.0);
  check_ratios(&rope, (const double[]){0.955882}, 24, 1);
  check_ratios(&rope, (const double[]){0.691176}, 30, 1);
  check_ratios(&rope, (const double[]){0.294118}, 39, 1);
  check_flat(&rope, 40, 63, 0.25);
  near(scale, 1.138629436, 1e-9, "scale");
}

Test(rope, yarn_takes_a_given_attention_factor) {
  rope_config_t rope = {.type = ROPE_YARN,
                        .theta = 1e6,
                        .factor = 4,
                        .beta_fast = 32,
                        .beta_slow = 1,
                        .attention_factor = 1.5,
                        .original_max = 32768,
                        .dims = 128};
  compute(rope, 32768);
  ASSERT_EQ(scale, 1.5);
}

Test(rope, dynamic_is_fixed_by_the_runtime_length) {
  rope_config_t rope = {
      .type = ROPE_DYNAMIC, .theta = 1e4, .factor = 2, .original_max = 4096, .dims = 128};
  compute(rope, 8192);
  near(pow(frequencies[1], -128.0 / 2), 30527.7367, 1e-8, "theta'");
  compute(rope, 4096);
  near(pow(frequencies[1], -128.0 / 2), 1e4, 1e-12, "theta of the trained length");
  compute(rope, 100);
  near(pow(frequencies[1], -128.0 / 2), 1e4, 1e-12, "theta below the trained length");
}

static void check_axes(const rope_config_t *rope, const char *expected) {
  uint8_t axes[64];
  rope_axes(rope, axes);
  for (int32_t i = 0; i < rope->dims / 2; i++)
    ASSERT_EQ_FOR("thw"[axes[i]], expected[i], "pair %d of %s", i, expected);
}

/* What recomposition_frequencies of transformers takes, of Qwen2-VL and of Qwen3-VL. */
Test(rope, pairs_turn_by_time_line_and_column) {
  const rope_config_t parts = {.dims = 12, .mrope = MROPE_PARTS, .sections = {1, 3, 2}};
  check_axes(&parts, "thhhww");
  const rope_config_t none = {.dims = 8, .mrope = MROPE_PARTS, .sections = {0, 4, 0}};
  check_axes(&none, "hhhh");
  const rope_config_t turns = {.dims = 18, .mrope = MROPE_INTERLEAVED, .sections = {5, 2, 2}};
  check_axes(&turns, "thwthwttt");
  const rope_config_t uneven = {.dims = 18, .mrope = MROPE_INTERLEAVED, .sections = {3, 3, 1}};
  check_axes(&uneven, "thwthttht");
}
