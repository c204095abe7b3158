/* test_bad_packed.c: quantised layers whose tensors do not fit together.
 *
 * Each must fail with a message that names the tensor and what is expected of it. The layer is
 * q_proj of the maker's model: 8 rows and 8 columns. test_parity.c has the good ones.
 */
#include "tests/engine/model/maker.h"
#include "tests/expect.h"

#include <stdio.h>
#include <string.h>

#define Q "model.layers.0.self_attn.q_proj."

/* One tensor of a quantised layer; rank 0 ends the list. */
typedef struct part {
  const char *name, *type;
  int rank;
  int64_t rows, cols;
} part_t;

typedef struct packed_case {
  const char *scheme; /* value of quantization_config */
  part_t parts[6];
  const char *message;
} packed_case_t;

#define GPTQ "{\"quant_method\": \"gptq\", \"bits\": 4, \"group_size\": 4}"
#define AWQ "{\"quant_method\": \"awq\", \"group_size\": 4}"
#define FP8 "{\"quant_method\": \"fp8\"}"
#define COMPRESSED "{\"quant_method\": \"compressed-tensors\"}"

#define WORDS                                                                                      \
  { "qweight", "I32", 2, 1, 8 }
#define ZEROS                                                                                      \
  { "qzeros", "I32", 2, 2, 1 }
#define SCALES                                                                                     \
  { "scales", "F16", 2, 2, 8 }

static const packed_case_t cases[] = {
    {GPTQ, {WORDS}, "q_proj.qzeros is missing"},
    {GPTQ, {WORDS, ZEROS}, "q_proj.scales is missing"},
    {GPTQ, {{"qweight", "I32", 2, 3, 8}, ZEROS, SCALES}, "2, 4 or 8 bits"},
    {GPTQ, {{"qweight", "I32", 2, 1, 7}, ZEROS, SCALES}, "does not fit a layer of 8 rows and 8"},
    {GPTQ, {{"qweight", "F32", 2, 1, 8}, ZEROS, SCALES}, "q_proj.qweight: F32 [1, 8] does not fit"},
    {GPTQ, {{"qweight", "I32", 1, 8, 1}, ZEROS, SCALES}, "2, 4 or 8 bits"},
    {GPTQ, {WORDS, ZEROS, {"scales", "F16", 2, 3, 8}}, "2 groups of 4 columns"},
    {GPTQ, {WORDS, ZEROS, {"scales", "F16", 2, 2, 9}}, "numbers [groups, rows]"},
    {GPTQ, {WORDS, ZEROS, {"scales", "I32", 2, 2, 8}}, "numbers [groups, rows]"},
    {GPTQ, {WORDS, {"qzeros", "I32", 2, 2, 2}, SCALES}, "I32 [groups, rows * bits / 32]"},
    {GPTQ, {WORDS, ZEROS, SCALES, {"g_idx", "I32", 1, 7, 1}}, "I32 [columns]"},
    {GPTQ,
     {WORDS, ZEROS, SCALES, {"g_idx", "I32", 1, 8, 1}},
     "column 0 is of group -1113336054, of 2"},
    {GPTQ, {WORDS, ZEROS, SCALES, {"bias", "F32", 1, 8, 1}}, "unexpected tensor"},
    {AWQ, {{"qweight", "I32", 2, 8, 2}, ZEROS, SCALES}, "I32 [columns, rows / 8]"},
    {AWQ, {{"qweight", "I32", 2, 8, 1}, ZEROS}, "q_proj.scales is missing"},
    {FP8, {{"weight", "F8_E4M3", 2, 8, 8}}, "q_proj.weight_scale is missing"},
    {FP8, {{"weight", "F8_E4M3", 2, 8, 7}, {"weight_scale", "F32", 1, 1, 1}}, "these rows and"},
    {FP8, {{"weight", "F8_E4M3", 2, 8, 8}, {"weight_scale", "F32", 1, 5, 1}}, "[rows, 1]"},
    {FP8, {{"weight", "F8_E4M3", 2, 8, 8}, {"weight_scale_inv", "I32", 2, 1, 1}}, "F32, F16 or"},
    {COMPRESSED, {{"weight_packed", "I32", 2, 8, 1}}, "q_proj.weight_scale is missing"},
    {COMPRESSED,
     {{"weight_packed", "I32", 2, 7, 1}, {"weight_scale", "F32", 2, 8, 2}},
     "with 4 or 8 bits"},
    {COMPRESSED,
     {{"weight_packed", "I32", 2, 8, 1}, {"weight_scale", "F32", 2, 8, 3}},
     "a number of groups that divides"},
    {COMPRESSED,
     {{"weight_packed", "I32", 2, 8, 1},
      {"weight_scale", "F32", 2, 8, 2},
      {"weight_zero_point", "I32", 2, 2, 2}},
     "I32 [rows * bits / 32, groups]"},
    {COMPRESSED,
     {{"weight_packed", "U8", 2, 8, 4}, {"weight_scale", "F8_E4M3", 2, 8, 1}},
     "F8_E4M3 [rows, columns / 16]"},
    {COMPRESSED,
     {{"weight_packed", "U8", 2, 8, 4}, {"weight_scale", "F32", 2, 8, 1}},
     "U8 [rows, columns / 32]"},
    {COMPRESSED,
     {{"weight", "I8", 2, 8, 8},
      {"weight_scale", "F32", 2, 8, 1},
      {"weight_zero_point", "I8", 2, 8, 1}},
     "no zero points: symmetric weights"},
};

Test(bad_packed, layers) {
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
    const packed_case_t *c = &cases[i];
    maker_t maker;
    inferd_error_t error = {0};
    maker_open(&maker);
    maker_set(&maker, "quantization_config", c->scheme);
    maker_remove(&maker, Q "weight");
    for (const part_t *part = c->parts; part->rank > 0; part++) {
      char name[96];
      snprintf(name, sizeof(name), Q "%s", part->name);
      maker_add(&maker, name, part->type, part->rank, part->rows, part->cols);
    }
    maker_write(&maker);
    int code = maker_load(&maker, -1, &error);
    ASSERT_EQ_FOR(code, ERR_MODEL_MALFORMED, "case %zu (%s)", i, c->message);
    cr_assert_not_null(strstr(error.message, c->message), "case %zu: \"%s\" is not in \"%s\"", i,
                       c->message, error.message);
    maker_close(&maker);
  }
}

/* Files whose weights are plain although config.json names a method: neither served silently as
 * they are, nor taken for quantised. */
Test(bad_packed, plain_weights) {
  static const char *const schemes[] = {GPTQ, AWQ};
  for (size_t i = 0; i < sizeof(schemes) / sizeof(schemes[0]); i++) {
    maker_t maker;
    inferd_error_t error = {0};
    maker_open(&maker);
    maker_set(&maker, "quantization_config", schemes[i]);
    maker_write(&maker);
    ASSERT_EQ(maker_load(&maker, -1, &error), ERR_MODEL_MALFORMED);
    cr_assert_not_null(strstr(error.message, "no layer is stored quantised"), "%s", error.message);
    ASSERT_STR_EQ(error.param, "quantization_config");
    maker_close(&maker);
  }
}
