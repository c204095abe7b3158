/* test_bad_quantised.c: a good checkpoint of every quantised format, and one mistake in each copy.
 *
 * The layer is q_proj of the maker's model, of 160 rows and columns: more than a block of fp8, and
 * groups of 32. A mistake must be named with the file, the tensor or the key, and what was found.
 * test_bad_packed.c has the same for a layer of 8 columns.
 */
#include "engine/file/gguf.h"
#include "tests/engine/model/maker.h"
#include "tests/expect.h"
#include "tests/heap.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define Q "model.layers.0.self_attn.q_proj"
#define METHOD(name, rest) "{\"quant_method\": \"" name "\"" rest "}"
#define GPTQ(rest) METHOD("gptq", rest)
#define AWQ(rest) METHOD("awq", rest)
#define FP8(rest) METHOD("fp8", rest)
#define COMPRESSED(format, weights)                                                                \
  METHOD("compressed-tensors", ", \"format\": \"" format "\", \"config_groups\": {\"group_0\": "   \
                               "{\"targets\": [\"Linear\"], \"weights\": {" weights "}}}")
#define INT4 "\"num_bits\": 4, \"type\": \"int\", \"strategy\": \"group\", \"group_size\": 32"
#define FP8_OF(strategy) "\"num_bits\": 8, \"type\": \"float\", \"strategy\": \"" strategy "\""

/* The files have 200 to 350 KB; the model in fp32 has 400. */
enum { SIZE = 160, HEAP_BYTES_MAX = 1 << 20 };

/* A tensor of the layer; rank -1: it is left out, name NULL: the end of a list. */
typedef struct part {
  const char *name, *type;
  int rank;
  int64_t rows, cols;
  double poison;
  int64_t base, per; /* as in maker_tensor_t */
} part_t;

typedef struct form {
  const char *name, *config;
  part_t parts[6];
} form_t;

#define QZEROS                                                                                     \
  { "qzeros", "I32", 2, 5, 20, 0, 0, 0 }
#define SCALES                                                                                     \
  { "scales", "F16", 2, 5, SIZE, 0, 0, 0 }
#define F8_WEIGHT                                                                                  \
  { "weight", "F8_E4M3", 2, SIZE, SIZE, 0, 0, 0 }
#define NIBBLES(name)                                                                              \
  { name, "U8", 2, SIZE, SIZE / 2, 0, 0, 0 }

static const form_t forms[] = {
    {"gptq",
     GPTQ(", \"bits\": 4, \"group_size\": 32"),
     {{"qweight", "I32", 2, 20, SIZE, 0, 0, 0},
      QZEROS,
      SCALES,
      {"g_idx", "I32", 1, SIZE, 0, 0, 0, 32}}},
    {"gptq 8",
     GPTQ(", \"bits\": 8, \"group_size\": 32"),
     {{"qweight", "I32", 2, 40, SIZE, 0, 0, 0}, {"qzeros", "I32", 2, 5, 40, 0, 0, 0}, SCALES}},
    {"gptq of rows",
     GPTQ(", \"bits\": 4, \"group_size\": -1"),
     {{"qweight", "I32", 2, 20, SIZE, 0, 0, 0},
      {"qzeros", "I32", 2, 1, 20, 0, 0, 0},
      {"scales", "F16", 2, 1, SIZE, 0, 0, 0}}},
    {"gptq mixed", /* layers may differ from the first numbers */
     GPTQ(", \"bits\": 8, \"group_size\": 64, \"dynamic\": {\"+:.*q_proj\": {\"bits\": 4}}"),
     {{"qweight", "I32", 2, 20, SIZE, 0, 0, 0}, QZEROS, SCALES}},
    {"awq",
     AWQ(", \"bits\": 4, \"group_size\": 32"),
     {{"qweight", "I32", 2, SIZE, 20, 0, 0, 0}, QZEROS, SCALES}},
    {"fp8 blocks",
     FP8(", \"weight_block_size\": [128, 128]"),
     {F8_WEIGHT, {"weight_scale_inv", "F32", 2, 2, 2, 0, 0, 0}}},
    {"fp8 channel",
     COMPRESSED("float-quantized", FP8_OF("channel")),
     {F8_WEIGHT, {"weight_scale", "F32", 2, SIZE, 1, 0, 0, 0}}},
    {"fp8 tensor",
     COMPRESSED("float-quantized", FP8_OF("tensor")),
     {F8_WEIGHT, {"weight_scale", "F32", 1, 1, 0, 2, 0, 0}}},
    {"w8a8",
     COMPRESSED("int-quantized", "\"num_bits\": 8, \"type\": \"int\", \"strategy\": \"channel\""),
     {{"weight", "I8", 2, SIZE, SIZE, 0, 0, 0}, {"weight_scale", "F32", 2, SIZE, 1, 0, 0, 0}}},
    {"w4a16",
     COMPRESSED("pack-quantized", INT4),
     {{"weight_packed", "I32", 2, SIZE, 20, 0, 0, 0},
      {"weight_scale", "F16", 2, SIZE, 5, 0, 0, 0},
      {"weight_shape", "I64", 1, 2, 0, 0, SIZE, 2}}},
    {"w4a16 zeros",
     COMPRESSED("pack-quantized", INT4 ", \"symmetric\": false"),
     {{"weight_packed", "I32", 2, SIZE, 20, 0, 0, 0},
      {"weight_scale", "F16", 2, SIZE, 5, 0, 0, 0},
      {"weight_zero_point", "I32", 2, 20, 5, 0, 0, 0},
      {"weight_shape", "I32", 1, 2, 0, 0, SIZE, 2}}},
    {"nvfp4",
     COMPRESSED("nvfp4-pack-quantized", "\"num_bits\": 4, \"type\": \"float\", \"group_size\": 16, "
                                        "\"strategy\": \"tensor_group\""),
     {NIBBLES("weight_packed"),
      {"weight_scale", "F8_E4M3", 2, SIZE, 10, 0, 0, 0},
      {"weight_global_scale", "F32", 1, 1, 0, 2, 0, 0}}},
    {"mxfp4",
     COMPRESSED("mxfp4-pack-quantized", "\"num_bits\": 4, \"type\": \"float\", \"group_size\": 32, "
                                        "\"strategy\": \"group\""),
     {NIBBLES("weight_packed"), {"weight_scale", "U8", 2, SIZE, 5, 0, 0, 0}}},
    {"modelopt fp8",
     METHOD("modelopt", ", \"quant_algo\": \"FP8\""),
     {F8_WEIGHT, {"weight_scale", "F32", 0, 0, 0, 2, 0, 0}}},
    {"modelopt nvfp4",
     METHOD("modelopt", ", \"quant_algo\": \"NVFP4\""),
     {NIBBLES("weight"),
      {"weight_scale", "F8_E4M3", 2, SIZE, 10, 0, 0, 0},
      {"weight_scale_2", "F32", 0, 0, 0, 2, 0, 0}}},
    {"mixed", /* as the tensors say */
     METHOD("compressed-tensors",
            ", \"format\": \"mixed-precision\", \"ignore\": [\"lm_head\", \"re:.*gate$\"], "
            "\"config_groups\": {\"a\": {\"weights\": {" INT4 "}}, \"b\": {\"weights\": "
            "{" FP8_OF("channel") "}}}"),
     {F8_WEIGHT, {"weight_scale", "F32", 2, SIZE, 1, 0, 0, 0}}},
};

static const form_t *form_by_name(const char *name) {
  for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
    if (strcmp(forms[i].name, name) == 0) return &forms[i];
  cr_assert_fail("no form %s", name);
  return NULL;
}

static void add_part(maker_t *maker, const part_t *part) {
  char name[96];
  snprintf(name, sizeof name, Q ".%s", part->name);
  for (int i = maker->num_tensors - 1; i >= 0; i--)
    if (strcmp(maker->tensors[i].name, name) == 0) maker_remove(maker, name);
  if (part->rank < 0) return;
  maker_tensor_t *tensor = maker_add(maker, name, part->type, part->rank, part->rows, part->cols);
  tensor->poison = part->poison;
  tensor->base = part->base;
  tensor->per = part->per;
}

static void open_form(maker_t *maker, const form_t *form) {
  static const struct {
    const char *name;
    int64_t rows, cols;
  } sizes[] = {{"model.embed_tokens.weight", 8, SIZE},
               {"model.layers.0.self_attn.k_proj.weight", SIZE / 2, SIZE},
               {"model.layers.0.self_attn.v_proj.weight", SIZE / 2, SIZE},
               {"model.layers.0.self_attn.o_proj.weight", SIZE, SIZE},
               {"model.layers.0.mlp.gate_proj.weight", 12, SIZE},
               {"model.layers.0.mlp.up_proj.weight", 12, SIZE},
               {"model.layers.0.mlp.down_proj.weight", SIZE, 12},
               {"lm_head.weight", 8, SIZE}};
  maker_open(maker);
  maker_set(maker, "hidden_size", "160");
  for (int i = 0; i < maker->num_tensors; i++)
    if (maker->tensors[i].rank == 1) maker_reshape(&maker->tensors[i], "F32", 1, SIZE, 0);
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    maker_reshape(maker_tensor(maker, sizes[i].name), "BF16", 2, sizes[i].rows, sizes[i].cols);
  maker_remove(maker, Q ".weight");
  maker_set(maker, "quantization_config", form->config);
  for (const part_t *part = form->parts; part->name != NULL; part++) add_part(maker, part);
}

Test(bad_quantised, the_good_ones_load) {
  for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
    maker_t maker;
    inferd_error_t error;
    open_form(&maker, &forms[i]);
    maker_write(&maker);
    ASSERT_EQ_FOR(maker_load(&maker, -1, &error), 0, "%s: %s", forms[i].name, error.message);
    ASSERT_EQ_FOR(maker_load_on_cpu(&maker, DTYPE_BF16, &error), 0, "%s: %s", forms[i].name,
                  error.message);
    maker_close(&maker);
  }
}

/* Entries that are no tensors: what is kept of each is made when it is read, not when it is
 * counted. */
Test(bad_quantised, a_header_of_entries_without_a_tensor) {
  static char header[480 << 10];
  size_t used = (size_t)snprintf(header, sizeof header, "{");
  maker_t maker;
  inferd_error_t error;
  for (int i = 0; used < sizeof header - 16; i++)
    used += (size_t)snprintf(header + used, 16, "%s\"%x\":{}", i > 0 ? "," : "", (unsigned)i);
  snprintf(header + used, 2, "}");
  open_form(&maker, &forms[0]);
  maker.header = header;
  maker.num_tensors = 0;
  maker_write(&maker);
  heap_restart();
  ASSERT_EQ(maker_load(&maker, -1, &error), ERR_MODEL_MALFORMED);
  cr_assert_not_null(strstr(error.message, "tensor 0: needs dtype"), "%s", error.message);
  ASSERT_LE(heap_asked(), 24 * sizeof header);
  maker_close(&maker);
}

/* As many layers and experts as a config.json may say, of a file that has none of them. */
Test(bad_quantised, counts_of_tensors_that_are_not_there) {
  maker_t maker;
  inferd_error_t error;
  open_form(&maker, form_by_name("fp8 blocks"));
  maker_set(&maker, "architectures", "[\"Qwen3MoeForCausalLM\"]");
  maker_set(&maker, "model_type", "\"qwen3_moe\"");
  maker_set(&maker, "num_experts", "1024");
  maker_set(&maker, "num_experts_per_tok", "8");
  maker_set(&maker, "moe_intermediate_size", "16");
  maker_set(&maker, "num_hidden_layers", "128");
  maker_write(&maker);
  heap_restart();
  ASSERT_EQ(maker_load(&maker, -1, &error), ERR_MODEL_MALFORMED);
  cr_assert_not_null(strstr(error.message, "is missing"), "%s", error.message);
  ASSERT_LE(heap_asked(), (size_t)320 << 20);
  maker_close(&maker);
}

/* One mistake: a part in place of the good one, or another configuration, or both. */
typedef struct mistake {
  const char *form, *config;
  part_t part;
  const char *message; /* which must be in the error */
} mistake_t;

static void check(const mistake_t *c, size_t number) {
  maker_t maker;
  inferd_error_t error;
  open_form(&maker, form_by_name(c->form));
  if (c->config != NULL) maker_set(&maker, "quantization_config", c->config);
  if (c->part.name != NULL) add_part(&maker, &c->part);
  maker_write(&maker);
  for (int i = 0; i < 2; i++) {
    heap_restart();
    int code =
        i == 0 ? maker_load(&maker, -1, &error) : maker_load_on_cpu(&maker, DTYPE_BF16, &error);
    ASSERT_LE_FOR(heap_asked(), (size_t)HEAP_BYTES_MAX, "%s, mistake %zu", c->form, number);
    ASSERT_EQ_FOR(code, ERR_MODEL_MALFORMED, "%s, mistake %zu (%s): %s", c->form, number,
                  c->message, error.message);
    cr_assert_not_null(strstr(error.message, c->message),
                       "%s, mistake %zu: \"%s\" is not in \"%s\"", c->form, number, c->message,
                       error.message);
    cr_assert_not_null(strstr(error.message, maker.dir), "%s", error.message);
  }
  maker_close(&maker);
}

#define MISTAKES(name, ...)                                                                        \
  Test(bad_quantised, name) {                                                                      \
    static const mistake_t mistakes[] = {__VA_ARGS__};                                             \
    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) check(&mistakes[i], i);        \
  }

#define PART(...)                                                                                  \
  { __VA_ARGS__ }
#define WITHOUT(name)                                                                              \
  { name, "", -1, 0, 0, 0, 0, 0 }
#define NO_PART                                                                                    \
  { NULL, NULL, 0, 0, 0, 0, 0, 0 }
#define FILE_OF(part) "/model.safetensors: tensor " Q "." part ": "

MISTAKES(
    shapes, {"gptq", NULL, PART("qweight", "I32", 2, 19, SIZE), FILE_OF("qweight") "I32 [19, 160]"},
    {"gptq", NULL, PART("qweight", "I32", 2, 20, 152), FILE_OF("qweight") "I32 [20, 152]"},
    {"gptq", NULL, PART("qweight", "I32", 1, 3200, 0), FILE_OF("qweight") "I32 [3200]"},
    {"gptq", NULL, PART("qweight", "I32", 2, SIZE, 20), FILE_OF("qweight") "I32 [160, 20]"},
    {"gptq", NULL, PART("qzeros", "I32", 2, 5, 19), FILE_OF("qzeros") "I32 [5, 19]"},
    {"gptq", NULL, PART("qzeros", "I32", 2, 20, 5), FILE_OF("qzeros") "I32 [20, 5]"},
    {"gptq", NULL, PART("scales", "F16", 2, SIZE, 5), FILE_OF("scales") "F16 [160, 5]"},
    {"gptq", NULL, PART("g_idx", "I32", 1, 159, 0, 0, 0, 32), FILE_OF("g_idx") "I32 [159]"},
    {"gptq", NULL, PART("g_idx", "I32", 2, SIZE, 1, 0, 0, 32), FILE_OF("g_idx") "I32 [160, 1]"},
    {"awq", NULL, PART("qweight", "I32", 2, 20, SIZE), FILE_OF("qweight") "I32 [20, 160]"},
    {"awq", NULL, PART("qweight", "I32", 2, SIZE, 40), FILE_OF("qweight") "I32 [160, 40]"},
    {"awq", NULL, PART("qzeros", "I32", 2, 5, 40), FILE_OF("qzeros") "I32 [5, 40]"},
    {"awq", NULL, PART("scales", "F16", 1, 800, 0), FILE_OF("scales") "F16 [800]"},
    {"fp8 blocks", NULL, PART("weight", "F8_E4M3", 2, SIZE, 128),
     FILE_OF("weight") "F8_E4M3 [160, 128]"},
    {"fp8 blocks", NULL, PART("weight_scale_inv", "F32", 2, 2, 3),
     FILE_OF("weight_scale_inv") "F32 [2, 3]"},
    {"fp8 blocks", NULL, PART("weight_scale_inv", "F32", 1, 4, 0),
     FILE_OF("weight_scale_inv") "F32 [4]"},
    {"fp8 channel", NULL, PART("weight_scale", "F32", 2, SIZE, 2),
     FILE_OF("weight_scale") "F32 [160, 2]"},
    {"fp8 channel", NULL, PART("weight_scale", "F32", 2, 1, SIZE),
     FILE_OF("weight_scale") "F32 [1, 160]"},
    {"fp8 tensor", NULL, PART("weight_scale", "F32", 1, 2, 0), FILE_OF("weight_scale") "F32 [2]"},
    {"w8a8", NULL, PART("weight", "I8", 1, SIZE *SIZE, 0), FILE_OF("weight") "I8 [25600]"},
    {"w4a16", NULL, PART("weight_packed", "I32", 2, SIZE, 21),
     FILE_OF("weight_packed") "I32 [160, 21]"},
    {"w4a16", NULL, PART("weight_packed", "I32", 2, SIZE, 15),
     FILE_OF("weight_packed") "I32 [160, 15]"},
    {"w4a16", NULL, PART("weight_scale", "F16", 2, 80, 10), FILE_OF("weight_scale") "F16 [80, 10]"},
    {"w4a16", NULL, PART("weight_shape", "I64", 1, 2, 0, 0, 159, 2),
     FILE_OF("weight_shape") "says [159, 159]"},
    {"w4a16", NULL, PART("weight_shape", "I64", 1, 2, 0, 0, -1, 2),
     FILE_OF("weight_shape") "says [-1, -1]"},
    {"w4a16", NULL, PART("weight_shape", "I64", 1, 3, 0, 0, SIZE, 3),
     FILE_OF("weight_shape") "I64 [3]"},
    {"w4a16 zeros", NULL, PART("weight_zero_point", "I32", 2, SIZE, 5),
     FILE_OF("weight_zero_point") "I32 [160, 5]"},
    {"nvfp4", NULL, PART("weight_packed", "U8", 2, SIZE, SIZE),
     FILE_OF("weight_packed") "U8 [160, 160]"},
    {"nvfp4", NULL, PART("weight_scale", "F8_E4M3", 2, SIZE, 5),
     FILE_OF("weight_scale") "F8_E4M3 [160, 5]"},
    {"nvfp4", NULL, PART("weight_scale", "F8_E4M3", 2, SIZE, 20),
     FILE_OF("weight_scale") "F8_E4M3 [160, 20]"},
    {"mxfp4", NULL, PART("weight_scale", "U8", 2, SIZE, 10),
     FILE_OF("weight_scale") "U8 [160, 10]"},
    {"modelopt nvfp4", NULL, PART("weight_scale", "F8_E4M3", 1, 1600, 0),
     FILE_OF("weight_scale") "F8_E4M3 [1600]"},
    {"modelopt fp8", NULL, PART("weight_scale", "F32", 2, 3, 3),
     FILE_OF("weight_scale") "F32 [3, 3]"})

/* Groups that do not divide, or not those that config.json gives for every layer. */
MISTAKES(
    groups, {"gptq", NULL, PART("scales", "F16", 2, 3, SIZE), FILE_OF("scales") "F16 [3, 160]"},
    {"gptq", NULL, PART("scales", "F16", 2, 10, SIZE),
     "5 groups of 32 columns, as quantization_config says"},
    {"gptq", GPTQ(", \"bits\": 4, \"group_size\": 64"), NO_PART, "3 groups of 64 columns"},
    {"gptq", GPTQ(", \"bits\": 4, \"group_size\": -1"), NO_PART, "one group of all columns"},
    {"gptq", GPTQ(", \"bits\": 4"), NO_PART, "2 groups of 128 columns"},
    {"gptq of rows", GPTQ(", \"bits\": 4, \"group_size\": 80"), NO_PART, "2 groups of 80 columns"},
    {"awq", AWQ(", \"group_size\": 16"), NO_PART, FILE_OF("scales") "F16 [5, 160]"},
    {"w4a16", NULL, PART("weight_scale", "F16", 2, SIZE, 3),
     FILE_OF("weight_scale") "F16 [160, 3]"},
    {"w4a16", NULL, PART("weight_scale", "F16", 2, SIZE, 1), "5 groups of 32 columns"},
    {"w4a16",
     COMPRESSED("pack-quantized", "\"num_bits\": 4, \"type\": \"int\", \"strategy\": \"channel\""),
     NO_PART, "one group of all columns"},
    {"gptq mixed", NULL, PART("scales", "F16", 2, 7, SIZE), "a number of groups that divides"},
    {"fp8 blocks", NULL, PART("weight_scale_inv", "F32", 1, 1, 0),
     "a scale for each block of 128 x 128"},
    {"fp8 blocks", NULL, PART("weight_scale_inv", "F32", 2, SIZE, 1),
     "a scale for each block of 128 x 128"},
    {"fp8 blocks", FP8(", \"weight_block_size\": [64, 64]"), NO_PART,
     "\"weight_block_size\" is an array, supported: [128, 128]"},
    {"fp8 blocks", FP8(", \"weight_block_size\": [128]"), NO_PART, "\"weight_block_size\""},
    {"fp8 blocks", FP8(", \"weight_block_size\": 128"), NO_PART, "\"weight_block_size\" is 128"},
    {"fp8 channel", COMPRESSED("float-quantized", FP8_OF("tensor")), NO_PART,
     "one scale of the tensor"},
    {"fp8 channel", COMPRESSED("float-quantized", FP8_OF("block")), NO_PART,
     "a scale for each block of 128 x 128"},
    {"fp8 tensor", COMPRESSED("float-quantized", FP8_OF("channel")), NO_PART,
     "a scale for each row"})

MISTAKES(what_is_missing, {"gptq", NULL, WITHOUT("qweight"), Q ".weight is missing"},
         {"gptq", NULL, WITHOUT("qzeros"), Q ".qzeros is missing"},
         {"awq", NULL, WITHOUT("scales"), Q ".scales is missing"},
         {"fp8 blocks", NULL, WITHOUT("weight_scale_inv"), Q ".weight_scale is missing"},
         {"fp8 channel", NULL, WITHOUT("weight"), Q ".weight is missing"},
         {"w8a8", NULL, WITHOUT("weight_scale"), Q ".weight_scale is missing"},
         {"w4a16", NULL, WITHOUT("weight_packed"), Q ".weight is missing"},
         {"w4a16 zeros", NULL, WITHOUT("weight_zero_point"), Q ".weight_zero_point is missing"},
         {"nvfp4", NULL, WITHOUT("weight_global_scale"), Q ".weight_global_scale is missing"},
         {"mxfp4", NULL, WITHOUT("weight_scale"), Q ".weight_scale is missing"},
         {"modelopt nvfp4", NULL, WITHOUT("weight_scale_2"), Q ".weight_scale_2 is missing"})

MISTAKES(types, {"gptq", NULL, PART("qweight", "F32", 2, 20, SIZE), FILE_OF("qweight") "F32"},
         {"gptq", NULL, PART("qzeros", "F32", 2, 5, 20), FILE_OF("qzeros") "F32"},
         {"gptq", NULL, PART("scales", "I8", 2, 5, SIZE), FILE_OF("scales") "I8"},
         {"gptq", NULL, PART("g_idx", "I64", 1, SIZE, 0, 0, 0, 32), FILE_OF("g_idx") "I64"},
         {"awq", NULL, PART("qweight", "U8", 2, SIZE, 20), FILE_OF("qweight") "U8"},
         {"fp8 blocks", NULL, PART("weight", "F8_E5M2", 2, SIZE, SIZE),
          "dtype F8_E5M2 is not supported"},
         {"fp8 blocks", NULL, PART("weight_scale_inv", "I32", 2, 2, 2),
          FILE_OF("weight_scale_inv") "I32"},
         {"fp8 channel", NULL, PART("weight_scale", "U8", 2, SIZE, 1),
          FILE_OF("weight_scale") "U8"},
         {"w8a8", NULL, PART("weight", "I16", 2, SIZE, SIZE), "dtype I16 is not supported"},
         {"w4a16", NULL, PART("weight_packed", "I64", 2, SIZE, 10), FILE_OF("weight_packed") "I64"},
         {"w4a16", NULL, PART("weight_scale", "F8_E4M3", 2, SIZE, 5),
          FILE_OF("weight_scale") "F8_E4M3"},
         {"w4a16", NULL, PART("weight_shape", "F32", 1, 2, 0), FILE_OF("weight_shape") "F32"},
         {"w4a16 zeros", NULL, PART("weight_zero_point", "I8", 2, 20, 5),
          FILE_OF("weight_zero_point") "I8"},
         {"nvfp4", NULL, PART("weight_scale", "F16", 2, SIZE, 10), FILE_OF("weight_scale") "F16"},
         {"nvfp4", NULL, PART("weight_global_scale", "BF16", 1, 1, 0, 2),
          FILE_OF("weight_global_scale") "BF16"},
         {"modelopt nvfp4", NULL, PART("weight_scale_2", "F32", 1, 2, 0),
          FILE_OF("weight_scale_2") "F32 [2]"})

MISTAKES(
    values,
    {"gptq", NULL, PART("g_idx", "I32", 1, SIZE, 0, 5, 0, 32),
     FILE_OF("g_idx") "column 80 is of group 5, of 5"},
    {"gptq", NULL, PART("g_idx", "I32", 1, SIZE, 0, -1, 0, 32), "column 80 is of group -1, of 5"},
    {"gptq", NULL, PART("g_idx", "I32", 1, SIZE, 0, 0, 2147483647, 32),
     "column 0 is of group 2147483647"},
    {"gptq", NULL, PART("scales", "F16", 2, 5, SIZE, 1e9), FILE_OF("scales") "element 400 is inf"},
    {"gptq of rows", NULL, PART("scales", "F32", 2, 1, SIZE, NAN),
     FILE_OF("scales") "element 80 is nan"},
    {"awq", NULL, PART("scales", "BF16", 2, 5, SIZE, NAN), FILE_OF("scales") "element 400 is nan"},
    {"awq", NULL, PART("scales", "F32", 2, 5, SIZE, 3e38),
     FILE_OF("qweight") "with its scales holds a number"},
    {"fp8 blocks", NULL, PART("weight", "F8_E4M3", 2, SIZE, SIZE, 0x7f),
     FILE_OF("weight") "element 12800 is nan"},
    {"fp8 blocks", NULL, PART("weight", "F8_E4M3", 2, SIZE, SIZE, 0xff),
     FILE_OF("weight") "element 12800 is -nan"},
    {"fp8 blocks", NULL, PART("weight_scale_inv", "F32", 2, 2, 2, INFINITY),
     FILE_OF("weight_scale_inv") "element 2 is inf"},
    {"fp8 channel", NULL, PART("weight_scale", "F8_E8M0", 2, SIZE, 1, 255),
     FILE_OF("weight_scale") "element 80 is nan"},
    {"fp8 tensor", NULL, PART("weight_scale", "F32", 1, 1, 0, -INFINITY),
     FILE_OF("weight_scale") "element 0 is -inf"},
    {"w8a8", NULL, PART("weight_scale", "F32", 2, SIZE, 1, NAN),
     FILE_OF("weight_scale") "element 80 is nan"},
    {"w4a16", NULL, PART("weight_scale", "F16", 2, SIZE, 5, INFINITY),
     FILE_OF("weight_scale") "element 400 is inf"},
    {"nvfp4", NULL, PART("weight_scale", "F8_E4M3", 2, SIZE, 10, 0x7f),
     FILE_OF("weight_scale") "element 800 is nan"},
    {"nvfp4", NULL, PART("weight_global_scale", "F32", 1, 1, 0, -1),
     FILE_OF("weight_global_scale") "is -1"},
    {"nvfp4", NULL, PART("weight_global_scale", "F32", 1, 1, 0, 1e-40),
     FILE_OF("weight_global_scale") "is 9.99995e-41"},
    {"mxfp4", NULL, PART("weight_scale", "U8", 2, SIZE, 5, 255),
     FILE_OF("weight_scale") "element 400 is nan"},
    {"modelopt nvfp4", NULL, PART("weight_scale_2", "F32", 0, 0, 0, NAN),
     FILE_OF("weight_scale_2") "is nan"})

/* Tensors that are there and say something else than config.json. */
MISTAKES(
    contradictions,
    {"gptq", GPTQ(", \"bits\": 8, \"group_size\": 32"), NO_PART,
     FILE_OF("qweight") "has codes of 4 bits, but quantization_config says 8"},
    {"gptq 8", GPTQ(", \"bits\": 2, \"group_size\": 32"), NO_PART,
     "codes of 8 bits, but quantization_config says 2"},
    {"w4a16",
     COMPRESSED("pack-quantized",
                "\"num_bits\": 8, \"type\": \"int\", \"strategy\": \"group\", \"group_size\": 32"),
     NO_PART, "codes of 4 bits, but quantization_config says 8"},
    {"w4a16", COMPRESSED("pack-quantized", INT4 ", \"symmetric\": false"), NO_PART,
     Q ".weight_zero_point is missing"},
    {"w4a16 zeros", COMPRESSED("pack-quantized", INT4), NO_PART,
     FILE_OF("weight_zero_point") "I32 [20, 5]"},
    {"gptq", AWQ(", \"group_size\": 32"), NO_PART, FILE_OF("qweight") "I32 [20, 160]"},
    {"gptq", FP8(""), NO_PART,
     FILE_OF("qweight") "has GPTQ or AWQ weights, but quantization_config says fp8"},
    {"awq", COMPRESSED("pack-quantized", INT4), NO_PART,
     "has GPTQ or AWQ weights, but quantization_config says compressed-tensors"},
    {"w4a16", GPTQ(", \"bits\": 4, \"group_size\": 32"), NO_PART,
     FILE_OF("weight_packed") "has packed integers, but quantization_config says gptq"},
    {"fp8 channel", GPTQ(", \"bits\": 4"), NO_PART,
     FILE_OF("weight") "has fp8 weights, but quantization_config says gptq"},
    {"w8a8", FP8(""), NO_PART,
     FILE_OF("weight") "has int8 weights, but quantization_config says fp8"},
    {"nvfp4", METHOD("modelopt", ", \"quant_algo\": \"FP8\""), NO_PART,
     "has 4-bit floats, but quantization_config says modelopt"},
    {"fp8 channel", COMPRESSED("pack-quantized", INT4), NO_PART,
     "has fp8 weights, but quantization_config says compressed-tensors with pack-quantized"},
    {"w4a16", COMPRESSED("float-quantized", FP8_OF("channel")), NO_PART,
     "has packed integers, but quantization_config says compressed-tensors with float-quantized"},
    {"nvfp4", COMPRESSED("mxfp4-pack-quantized", "\"num_bits\": 4"), NO_PART,
     FILE_OF("weight_scale") "F8_E4M3 [160, 10]"},
    {"mxfp4", COMPRESSED("nvfp4-pack-quantized", "\"num_bits\": 4"), NO_PART,
     FILE_OF("weight_scale") "U8 [160, 5]"},
    {"gptq", NULL, PART("weight", "F32", 2, SIZE, SIZE),
     "stored twice, as " Q ".weight and as " Q ".qweight"},
    {"w4a16", NULL, PART("weight", "BF16", 2, SIZE, SIZE), "stored twice"},
    {"awq", NULL, PART("weight_packed", "I32", 2, SIZE, 20),
     "has packed integers, but quantization_config says awq"},
    {"fp8 blocks", NULL, PART("weight_scale", "F32", 1, 1, 0),
     "unexpected tensor, first: " Q ".weight_scale"},
    {"gptq", "null", NO_PART,
     Q ".weight is missing; " Q ".qweight is there, but config.json has no quantization_config"},
    {"w4a16", "null", NO_PART,
     Q ".weight_packed is there, but config.json has no quantization_config"},
    {"fp8 channel", "null", NO_PART, "dtype F8_E4M3 is not supported"},
    {"w4a16", METHOD("compressed-tensors", ", \"ignore\": [\"lm_head\", \"" Q "\"]"), NO_PART,
     "\"ignore\" of quantization_config has " Q ", which is stored quantised, as " Q
     ".weight_packed"},
    {"fp8 blocks", FP8(", \"modules_to_not_convert\": [\"" Q "\"]"), NO_PART,
     "\"modules_to_not_convert\" of quantization_config has " Q},
    {"fp8 blocks", FP8(", \"ignored_layers\": [\"" Q "\"]"), NO_PART,
     "\"ignored_layers\" of quantization_config has " Q},
    {"awq", AWQ(", \"group_size\": 32, \"modules_to_not_convert\": [\"" Q "\"]"), NO_PART,
     "stored quantised, as " Q ".qweight"},
    {"modelopt fp8", METHOD("modelopt", ", \"exclude_modules\": [\"" Q "\"]"), NO_PART,
     "\"exclude_modules\" of quantization_config has"})

/* A quantization_config that says nothing that can be read. */
MISTAKES(configurations, {"gptq", "7", NO_PART, "quant_method"},
         {"gptq", "\"gptq\"", NO_PART, "quant_method"}, {"gptq", "[]", NO_PART, "quant_method"},
         {"gptq", "{\"quant_method\": 4}", NO_PART, "\"quant_method\" is 4"},
         {"gptq", GPTQ(", \"bits\": \"four\""), NO_PART, "\"bits\" is \"four\""},
         {"gptq", GPTQ(", \"bits\": 1e300"), NO_PART, "\"bits\" is 1e300"},
         {"gptq", GPTQ(", \"bits\": 4, \"group_size\": 1099511627776"), NO_PART,
          "\"group_size\" is 1099511627776"},
         {"gptq", GPTQ(", \"bits\": 4, \"group_size\": -2"), NO_PART, "\"group_size\" is -2"},
         {"gptq", GPTQ(", \"bits\": 4, \"group_size\": 0"), NO_PART, "\"group_size\" is 0"},
         {"awq", AWQ(", \"bits\": 3"), NO_PART, "\"bits\" is 3, supported: 4"},
         {"awq", AWQ(", \"w_bit\": 8"), NO_PART, "\"w_bit\" is 8, supported: 4"},
         {"w4a16", COMPRESSED("pack-quantized", "\"num_bits\": 3, \"type\": \"int\""), NO_PART,
          "\"num_bits\" is 3, supported: 4 or 8"},
         {"w4a16", COMPRESSED("pack-quantized", INT4 ", \"symmetric\": 1"), NO_PART,
          "\"symmetric\" is 1"},
         {"w4a16",
          COMPRESSED("pack-quantized",
                     "\"num_bits\": 4, \"strategy\": \"group\", \"group_size\": 0"),
          NO_PART, "\"group_size\" is 0"},
         {"w4a16", COMPRESSED("pack-quantized", "\"num_bits\": 4, \"strategy\": \"rows\""), NO_PART,
          "\"strategy\" is \"rows\""},
         {"fp8 channel",
          COMPRESSED("float-quantized", FP8_OF("block") ", \"block_structure\": [64, 128]"),
          NO_PART, "\"block_structure\""},
         {"w4a16", METHOD("compressed-tensors", ", \"config_groups\": [1]"), NO_PART,
          "\"config_groups\""},
         {"w4a16", METHOD("compressed-tensors", ", \"config_groups\": {\"group_0\": 4}"), NO_PART,
          "\"group_0\" is 4"},
         {"w4a16", METHOD("compressed-tensors", ", \"ignore\": \"lm_head\""), NO_PART,
          "\"ignore\" is \"lm_head\""},
         {"w4a16", METHOD("compressed-tensors", ", \"ignore\": [\"lm_head\", 4]"), NO_PART,
          "\"ignore\" is an array, supported: a list of names"})

/* ---- factors beside the NVFP4 blocks of a GGUF file ---- */

#define FACTORS "blk.0.ffn_up_exps.scale"

/* Loads a copy of the file with `length` bytes at `at` replaced. Returns the error. */
static int load_changed(const uint8_t *good, size_t bytes, size_t at, const void *with,
                        size_t length, inferd_error_t *error) {
  static uint8_t copy[1 << 17];
  maker_t maker;
  maker_open(&maker);
  memcpy(copy, good, bytes);
  memcpy(copy + at, with, length);
  maker_write_file(&maker, "model.gguf", copy, bytes);
  int code = maker_load_on_cpu(&maker, DTYPE_BF16, error);
  maker_finish(&maker);
  return code;
}

/* Where the name of the factors stands in the file. */
static size_t find_name(const uint8_t *bytes, size_t count) {
  size_t at = 0, length = strlen(FACTORS);
  while (at + length < count && memcmp(bytes + at, FACTORS, length) != 0) at++;
  ASSERT_LT(at + length, count);
  return at;
}

Test(bad_quantised, factors_of_nvfp4_blocks) {
  static const char path[] = "tests/vectors/models/gguf-converted-nvfp4-moe/model.gguf";
  static uint8_t good[1 << 17];
  inferd_error_t error = {0};
  gguf_t *gguf;
  ASSERT_EQ(gguf_open(path, false, &gguf, &error), 0);
  const gguf_tensor_t *factors = gguf_tensor(gguf, FACTORS);
  cr_assert_not_null(factors);
  const size_t begin = factors->begin;
  FILE *file = fopen(path, "rb");
  cr_assert_not_null(file);
  const size_t bytes = fread(good, 1, sizeof(good), file), name = find_name(good, bytes);
  const struct {
    size_t at;
    const void *with;
    size_t length;
    const char *message; /* NULL = a good file */
  } cases[] = {
      {begin, good + begin, 4, NULL},
      {begin + 4, &(float){NAN}, 4, FACTORS ": is not 4 finite numbers of F32, factors of blk.0"},
      {begin, &(float){INFINITY}, 4, "is not 4 finite numbers"},
      {begin, &(float){3e38f}, 4, "blk.0.ffn_up_exps.weight: holds NaN or infinity"},
      {name + strlen(FACTORS) + 4, &(uint64_t){3}, 8, "is not 4 finite numbers"},
      {name, "blk.0.ffn_op_exps.scale", 23, "1 unexpected tensor, first: blk.0.ffn_op_exps.scale"},
  };
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
    int code = load_changed(good, bytes, cases[i].at, cases[i].with, cases[i].length, &error);
    ASSERT_EQ_FOR(code, (cases[i].message == NULL ? 0 : ERR_MODEL_MALFORMED), "case %zu: %s", i,
                  error.message);
    cr_assert(code == 0 || strstr(error.message, cases[i].message) != NULL,
              "case %zu: \"%s\" is not in \"%s\"", i, cases[i].message, error.message);
  }
  fclose(file);
  gguf_close(gguf);
}
