/* test_plan.c: the bytes of the weights that are planned from headers, and those really taken.
 *
 * Every reference model is planned and loaded on the CPU back end: 16-bit and float32 files, GGUF
 * blocks, quantised safetensors, stacks of experts, random weights.
 */
#include "engine/cpu/cpu.h"
#include "engine/model/model.h"
#include "engine/model/source/safetensors.h"
#include "tests/engine/model/maker.h"
#include "tests/engine/model/vectors.h"
#include "tests/expect.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A vector's description and what rounding to 64 bytes adds; the plan leaves both out. */
enum { VECTOR_BYTES = 128 };

static int64_t num_vectors;

static int counted_vector(device_t *device, const float *values, int64_t count, vector_t **out,
                          inferd_error_t *error) {
  num_vectors++;
  return cpu_vector(device, values, count, out, error);
}

static size_t bytes_taken(const device_t *device) {
  size_t bytes = 0;
  for (const device_arena_t *arena = device->arenas; arena != NULL; arena = arena->next)
    bytes += arena->used;
  return bytes;
}

/* Plans a model, loads it, and compares. Returns the planned bytes. */
static size_t check_model(const char *name, const model_options_t *options) {
  ops_t ops = ops_cpu;
  ops.vector = counted_vector;
  inferd_error_t error = {0};
  device_options_t one = {.num_threads = 1, .isa = "auto"};
  blueprint_t blueprint;
  device_t *device;
  model_t *model;
  size_t planned = 0;
  int code = blueprint_read(options->dir, 0, -1, &blueprint, &error);
  ASSERT_EQ_FOR(code, 0, "%s: %s", name, error.message);
  if (options->dtype >= 0) blueprint.dtype = (dtype_t)options->dtype;
  code = model_weight_bytes(&ops, &blueprint, options, &planned, &error);
  ASSERT_EQ_FOR(code, 0, "%s: %s", name, error.message);
  code = ops.open(&one, &device, &error);
  ASSERT_EQ_FOR(code, 0, "%s", error.message);
  size_t before = bytes_taken(device);
  num_vectors = 0;
  code = model_load(&ops, device, &blueprint, blueprint.max_model_len, options, &model, &error);
  ASSERT_EQ_FOR(code, 0, "%s: %s", name, error.message);
  size_t taken = bytes_taken(device) - before;
  cr_assert(taken >= planned && taken <= planned + (size_t)num_vectors * VECTOR_BYTES,
            "%s: %zu bytes are planned and %zu taken, with %lld vectors", name, planned, taken,
            (long long)num_vectors);
  model_free(model);
  ops.close(device);
  blueprint_free(&blueprint);
  return planned;
}

/* Every model in its own type and in bfloat16, where quantised layers stay as they are, and with
 * 16-bit matrices rounded to Q8_0. */
static void check_all(const char *prefix, int32_t least) {
  vector_list_t list = vectors_open(prefix);
  for (int32_t i = 0; i < list.count; i++) {
    vector_case_t c;
    vectors_read(&list, i, &c);
    model_options_t options = {
        .dir = c.dir, .dummy = !c.has_files, .dummy_seed = c.seed, .dtype = -1};
    check_model(c.name, &options);
    options.dtype = DTYPE_BF16;
    size_t plain = check_model(c.name, &options);
    options.quantise_q8 = true;
    size_t rounded = check_model(c.name, &options);
    ASSERT_LE_FOR(rounded, plain, "%s", c.name);
    vectors_free(&c);
  }
  ASSERT_GE(list.count, least);
  vectors_close(&list);
}

Test(plan, gguf_files) {
  check_all("gguf-", 20);
}

Test(plan, quantised_safetensors) {
  check_all("packed-", 19);
}

Test(plan, files_of_numbers) {
  check_all("files-", 20);
}

Test(plan, experts) {
  check_all("moe-", 6);
  check_all("gpt-oss", 3);
  check_all("gemma4-", 8);
}

Test(plan, transposed_tied_and_random_weights) {
  check_all("gpt2", 2);
  check_all("llama-tied", 2);
  check_all("opt", 5);
}

static uint32_t formats_seen;

static size_t seen_bytes(const weight_source_t *source) {
  formats_seen |= 1U << source->format;
  return cpu_weight_bytes(source);
}

/* Codes of 4 bits stay in 4 bits, floats too. */
Test(plan, no_layer_is_widened) {
  static const struct {
    const char *dir;
    weight_format_t format;
  } cases[] = {{"tests/vectors/models/packed-nvfp4", WEIGHT_GROUPED_FP4},
               {"tests/vectors/models/packed-mxfp4-moe", WEIGHT_GROUPED_FP4},
               {"tests/vectors/models/packed-awq", WEIGHT_GROUPED_4},
               {"tests/vectors/models/packed-w8a8", WEIGHT_GROUPED}};
  ops_t ops = ops_cpu;
  ops.weight_bytes = seen_bytes;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    model_options_t options = {.dir = cases[i].dir, .dtype = DTYPE_BF16};
    inferd_error_t error = {0};
    blueprint_t blueprint;
    size_t bytes;
    formats_seen = 0;
    int code = blueprint_read(cases[i].dir, 0, -1, &blueprint, &error);
    if (code == 0) code = model_weight_bytes(&ops, &blueprint, &options, &bytes, &error);
    ASSERT_EQ_FOR(code, 0, "%s", error.message);
    ASSERT_EQ_FOR(formats_seen, 1U << WEIGHT_PLAIN | 1U << cases[i].format, "%s", cases[i].dir);
    blueprint_free(&blueprint);
  }
}

/* Without a formula of the back end the numbers count, 17 bytes for a block of MXFP4. */
Test(plan, elements_where_a_back_end_says_nothing) {
  static const char config[] =
      "{\"architectures\":[\"GptOssForCausalLM\"],\"torch_dtype\":\"bfloat16\","
      "\"vocab_size\":512,\"hidden_size\":64,\"intermediate_size\":96,\"num_hidden_layers\":2,"
      "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":16,"
      "\"num_local_experts\":4,\"num_experts_per_tok\":2,\"tie_word_embeddings\":false,"
      "\"quantization_config\":{\"quant_method\":\"mxfp4\"}}";
  const size_t experts = 2 * 4 * (2 * 96 * 64 + 64 * 96);
  maker_t maker;
  inferd_error_t error = {0};
  blueprint_t blueprint;
  size_t blocks = 0, numbers = 0;
  maker_open(&maker);
  maker_write_file(&maker, "config.json", config, strlen(config));
  model_options_t options = {.dir = maker.dir, .dummy = true, .dtype = -1};
  int code = blueprint_read(maker.dir, 0, -1, &blueprint, &error);
  ASSERT_EQ_FOR(code, 0, "%s", error.message);
  ops_t ops = ops_cpu;
  ops.weight_bytes = NULL;
  code = model_weight_bytes(&ops, &blueprint, &options, &blocks, &error);
  ASSERT_EQ_FOR(code, 0, "%s", error.message);
  ops.weight_formats = 0;
  code = model_weight_bytes(&ops, &blueprint, &options, &numbers, &error);
  ASSERT_EQ_FOR(code, 0, "%s", error.message);
  ASSERT_EQ(numbers - blocks, experts * 2 - experts / 32 * 17);
  blueprint_free(&blueprint);
  maker_close(&maker);
}

/* A file that model_load refuses is refused by the plan, with the same words. */
Test(plan, a_broken_file_is_refused) {
  maker_t maker;
  inferd_error_t error = {0}, loaded = {0};
  blueprint_t blueprint;
  size_t bytes;
  maker_open(&maker);
  maker_remove(&maker, "model.norm.weight");
  maker_write(&maker);
  ASSERT_EQ(blueprint_read(maker.dir, 0, -1, &blueprint, &error), 0);
  model_options_t options = {.dir = maker.dir, .dtype = -1};
  int code = model_weight_bytes(&ops_cpu, &blueprint, &options, &bytes, &error);
  ASSERT_EQ(code, ERR_MODEL_MALFORMED);
  ASSERT_EQ(maker_load(&maker, -1, &loaded), ERR_MODEL_MALFORMED);
  cr_assert_str_eq(error.message, loaded.message);
  blueprint_free(&blueprint);
  maker_close(&maker);
}

typedef struct survey {
  char text[2048];
  double bytes;
  int32_t numbers;
} survey_t;

/* Adds up "F32 12.5 KiB" of the lines about tensors. */
static void add_line(void *context, const char *line) {
  survey_t *survey = context;
  if (strncmp(line, "tensors ", 8) != 0) return;
  strncat(survey->text, line, sizeof survey->text - strlen(survey->text) - 1);
  for (const char *unit = line; (unit = strpbrk(unit, "KM")) != NULL; unit++) {
    if (strncmp(unit + 1, "iB", 2) != 0) continue;
    const char *number = unit - 2;
    while (number[-1] != ' ') number--;
    survey->bytes += strtod(number, NULL) * (*unit == 'K' ? 1024 : 1048576);
    survey->numbers++;
  }
}

static bool ends_in(const char *name, const char *tail) {
  size_t length = strlen(name), tail_length = strlen(tail);
  return length >= tail_length && strcmp(name + length - tail_length, tail) == 0;
}

/* `check` names what the layers are stored as, and its bytes are those of the files, but for
 * tensors that end in `unused`, and those that say nothing about weights: input scales, zeros. */
static void check_survey(const char *name, const char *type, const char *unused) {
  char dir[256];
  survey_t survey = {0};
  inferd_error_t error = {0};
  blueprint_t blueprint;
  weight_files_t *files;
  size_t stored = 0;
  snprintf(dir, sizeof dir, "tests/vectors/models/%s", name);
  model_options_t options = {.dir = dir, .dtype = -1, .log = add_line, .log_context = &survey};
  int code = blueprint_read(dir, 0, -1, &blueprint, &error);
  if (code == 0) code = model_survey(&ops_cpu, &blueprint, &options, &error);
  if (code == 0) code = weight_files_open(dir, &files, &error);
  ASSERT_EQ_FOR(code, 0, "%s: %s", name, error.message);
  for (size_t i = 0; i < weight_files_count(files); i++) {
    const stored_tensor_t *tensor = weight_files_at(files, i);
    bool used = !ends_in(tensor->name, unused) && !ends_in(tensor->name, "weight_shape");
    used = used && !ends_in(tensor->name, "global_scale") && !ends_in(tensor->name, "input_scale");
    if (used) stored += tensor->bytes;
  }
  cr_assert_not_null(strstr(survey.text, type), "%s: %s", name, survey.text);
  double difference = fabs((double)stored - survey.bytes);
  cr_assert(difference <= survey.numbers * 52, "%s: %zu bytes, said: %.0f; %s", name, stored,
            survey.bytes, survey.text);
  weight_files_close(files);
  blueprint_free(&blueprint);
}

Test(survey, says_what_the_files_hold) {
  check_survey("packed-awq", "attention: AWQ 4 bits", "?");
  check_survey("packed-gptq-8-bits", "mlp: GPTQ 8 bits", ".g_idx");
  check_survey("packed-gptq-v2-desc-act", "mlp: GPTQ 4 bits", "?");
  check_survey("packed-w4a16-asym", "attention: int 4 bits", "?");
  check_survey("packed-w8a8", "attention: int 8 bits", "?");
  check_survey("packed-fp8-blocks", "mlp: FP8", "?");
  check_survey("packed-nvfp4", "mlp: NVFP4", "?");
  check_survey("packed-mxfp4", "mlp: MXFP4", "?");
  check_survey("files-gpt-oss-mxfp4", "experts: BF16", "?");
  check_survey("gguf-llama-k", "Q4_K", "?");
}
