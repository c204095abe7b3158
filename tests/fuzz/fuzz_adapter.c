/* fuzz_adapter.c: a directory with a low-rank adapter, read for a small model and put into a slot.
 *
 * adapter_config.json, a 0xFF byte, the JSON of the header of adapter_model.safetensors. The data
 * behind it are numbers of our own, as many as the largest offset in the header needs; a first byte
 * of 0x01 in the header is dropped and makes them infinities, which must be refused. A first byte
 * below MODELS in the config is dropped and chooses the model.
 */
#include "engine/base/util.h"
#include "engine/model/adapter/adapter.h"
#include "engine/model/forward/internal.h"
#include "tests/fuzz/targets.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { RANK_MAX = 16, DATA_BYTES_MAX = 65536, SLOT = 1, MODELS = 5 };

#define SIZES(kv_heads)                                                                            \
  "\"vocab_size\":12,\"hidden_size\":8,\"intermediate_size\":12,\"num_hidden_layers\":2,"          \
  "\"num_attention_heads\":2,\"num_key_value_heads\":" #kv_heads ",\"torch_dtype\":\"bfloat16\","  \
  "\"max_position_embeddings\":64,\"tie_word_embeddings\":true}"

/* Rows as they come, rows in another order, and two that take no adapters. The last is the first on
 * a device without them. */
static const char *const config_texts[MODELS] = {
    "{\"architectures\":[\"LlamaForCausalLM\"]," SIZES(1),
    "{\"architectures\":[\"Ernie4_5ForCausalLM\"],\"head_dim\":4," SIZES(1),
    "{\"architectures\":[\"DeepseekV2ForCausalLM\"],\"kv_lora_rank\":4,\"qk_rope_head_dim\":4,"
    "\"qk_nope_head_dim\":4,\"v_head_dim\":4,\"first_k_dense_replace\":2,\"num_experts_per_tok\":"
    "2," SIZES(2),
    "{\"architectures\":[\"Gemma4ForCausalLM\"],\"attention_k_eq_v\":true,"
    "\"vocab_size_per_layer_input\":12," SIZES(1),
    "{\"architectures\":[\"LlamaForCausalLM\"]," SIZES(1)};

struct lora {
  int64_t rows, cols;
};

static model_t models[MODELS];
static bool takes_adapters[MODELS];

static int new_lora(device_t *device, lora_kind_t kind, int64_t rows, int64_t cols, int32_t slots,
                    int32_t rank_max, lora_t **out, inferd_error_t *error) {
  (void)device, (void)kind, (void)error;
  if (rows < 1 || cols < 1 || slots != SLOT || rank_max != RANK_MAX) abort();
  *out = malloc(sizeof **out);
  if (*out == NULL) abort();
  **out = (lora_t){rows, cols};
  return 0;
}

/* Reads every number: the matrices have the sizes of the contract and nothing that is no number. */
static void expect_finite(const float *values, int64_t count) {
  for (int64_t i = 0; values != NULL && i < count; i++)
    if (!isfinite(values[i])) abort();
}

static void set_lora(device_t *device, lora_t *lora, int32_t slot, const lora_values_t *values) {
  (void)device;
  const int32_t rank = values->rank;
  if (slot != SLOT || rank < 0 || rank > RANK_MAX) abort();
  if ((rank > 0) != (values->a != NULL) || (rank > 0) != (values->b != NULL)) abort();
  expect_finite(values->a, rank * lora->cols);
  expect_finite(values->b, rank * lora->rows);
  expect_finite(values->factors, lora->rows);
  expect_finite(values->offsets, lora->rows);
  const uint8_t *whole = values->whole; /* read to its end: it is as large as the table */
  const size_t bytes = (size_t)(lora->rows * lora->cols) * dtype_size(values->whole_type);
  uint8_t sum = 0;
  for (size_t i = 0; whole != NULL && i < bytes; i++) sum ^= whole[i];
  volatile uint8_t sink = sum;
  (void)sink;
}

static void no_add(device_t *device, act_t *out, const act_t *in, const act_t *plain,
                   const lora_t *lora, int32_t column, int32_t width) {
  (void)device, (void)out, (void)in, (void)plain, (void)lora, (void)column, (void)width;
}

static void no_embed(device_t *device, act_t *out, const lora_t *lora, float scale) {
  (void)device, (void)out, (void)lora, (void)scale;
}

static void no_logits(device_t *device, const act_t *hidden, const vector_t *bias,
                      const lora_t *lora, float softcap, int32_t first, int32_t rows) {
  (void)device, (void)hidden, (void)bias, (void)lora, (void)softcap, (void)first, (void)rows;
}

static model_t *make_once(int which) {
  static const lora_ops_t lora = {.has_vectors = true,
                                  .has_wholes = true,
                                  .has_softcap = true,
                                  .make = new_lora,
                                  .set = set_lora,
                                  .add = no_add,
                                  .embed = no_embed,
                                  .logits = no_logits};
  static const ops_t with = {.name = "fuzz", .lora = &lora};
  static const ops_t without = {.name = "fuzz"};
  model_t *model = &models[which];
  inferd_error_t error = {0};
  if (model->ops != NULL) return model;
  model->ops = which == MODELS - 1 ? &without : &with;
  fuzz_write("config.json", (const uint8_t *)config_texts[which], strlen(config_texts[which]));
  if (blueprint_read(fuzz_directory(), 0, -1, &model->blueprint, &error) != 0) abort();
  fuzz_remove("config.json");
  model->layers = calloc((size_t)model->blueprint.num_layers, sizeof *model->layers);
  if (model->layers == NULL) abort();
  takes_adapters[which] = model_adapters(model, SLOT, RANK_MAX, &error) == 0;
  if (takes_adapters[which] != (which < 2)) abort();
  if (model_adapter_bytes(&with, &model->blueprint, SLOT, RANK_MAX) == 0) abort();
  return model;
}

/* The largest number in the text, as far as the data may be long. */
static size_t data_bytes(const uint8_t *header, size_t length) {
  size_t largest = 0, number = 0;
  for (size_t i = 0; i < length; i++) {
    bool digit = header[i] >= '0' && header[i] <= '9';
    number = digit && number <= DATA_BYTES_MAX ? number * 10 + (size_t)(header[i] - '0') : 0;
    if (number <= DATA_BYTES_MAX && number > largest) largest = number;
  }
  return largest;
}

/* Writes the file: the length of the header, the header, the data. */
static void write_tensors(const uint8_t *header, size_t length) {
  bool infinite = length > 0 && header[0] == 0x01;
  if (infinite) header++, length--;
  size_t total = 8 + length + data_bytes(header, length);
  uint8_t *file = malloc(total);
  if (file == NULL) abort();
  memset(file, infinite ? 0xFF : 0x3C, total);
  for (int i = 0; i < 8; i++) file[i] = (uint8_t)((uint64_t)length >> (8 * i));
  if (length > 0) memcpy(file + 8, header, length);
  fuzz_write("adapter_model.safetensors", file, total);
  free(file);
}

void fuzz_adapter(const uint8_t *data, size_t size) {
  adapter_t *adapter = NULL;
  inferd_error_t error = {0};
  size_t length;
  int which = 0;
  const uint8_t *config = fuzz_part(&data, &size, 0xFF, &length);
  if (length > 0 && config[0] < MODELS) which = *config++, length--;
  bool infinite = size > 0 && data[0] == 0x01;
  model_t *model = make_once(which);
  if (length > 0) fuzz_write("adapter_config.json", config, length);
  write_tensors(data, size);
  const model_options_t own = {.dir = "/", .dummy = true, .dtype = -1};
  const adapter_base_t base = {&model->blueprint, model->ops, &own, RANK_MAX};
  int code = adapter_read(&base, fuzz_directory(), &adapter, &error);
  if ((code == 0) != (adapter != NULL) || (code != 0) != (error.message[0] != '\0')) abort();
  if (code == 0 && infinite) abort(); /* an adapter has tensors, and these hold NaN */
  if (code == 0 && takes_adapters[which]) {
    model_set_adapter(model, SLOT, adapter);
    model_set_adapter(model, SLOT, NULL);
  }
  adapter_free(adapter);
  fuzz_remove("adapter_config.json");
  fuzz_remove("adapter_model.safetensors");
}
