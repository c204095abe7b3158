/* maker.c: writes small model directories for the tests of the loader. One thread. */
#include "tests/engine/model/maker.h"

#include "engine/base/half.h"
#include "tests/engine/model/naive_ops.h"
#include "tests/expect.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char GOOD_CONFIG[] = "{\n"
                                  "\"architectures\": [\"LlamaForCausalLM\"],\n"
                                  "\"model_type\": \"llama\",\n"
                                  "\"vocab_size\": 8,\n"
                                  "\"hidden_size\": 8,\n"
                                  "\"intermediate_size\": 12,\n"
                                  "\"num_hidden_layers\": 1,\n"
                                  "\"num_attention_heads\": 2,\n"
                                  "\"num_key_value_heads\": 1,\n"
                                  "\"max_position_embeddings\": 32,\n"
                                  "\"hidden_act\": \"silu\",\n"
                                  "\"rms_norm_eps\": 1e-05,\n"
                                  "\"rope_theta\": 10000.0,\n"
                                  "\"tie_word_embeddings\": false,\n"
                                  "\"torch_dtype\": \"float32\",\n"
                                  "\"bos_token_id\": 1,\n"
                                  "\"eos_token_id\": 2\n"
                                  "}\n";

#define LAYER "model.layers.0."

void maker_open(maker_t *maker) {
  *maker = (maker_t){.dir = "/tmp/inferd-model-XXXXXX"};
  cr_assert_not_null(mkdtemp(maker->dir));
  snprintf(maker->config, sizeof(maker->config), "%s", GOOD_CONFIG);
  maker_add(maker, "model.embed_tokens.weight", "F32", 2, 8, 8);
  maker_add(maker, LAYER "input_layernorm.weight", "F32", 1, 8, 0);
  maker_add(maker, LAYER "self_attn.q_proj.weight", "F32", 2, 8, 8);
  maker_add(maker, LAYER "self_attn.k_proj.weight", "F32", 2, 4, 8);
  maker_add(maker, LAYER "self_attn.v_proj.weight", "F32", 2, 4, 8);
  maker_add(maker, LAYER "self_attn.o_proj.weight", "F32", 2, 8, 8);
  maker_add(maker, LAYER "post_attention_layernorm.weight", "F32", 1, 8, 0);
  maker_add(maker, LAYER "mlp.gate_proj.weight", "F32", 2, 12, 8);
  maker_add(maker, LAYER "mlp.up_proj.weight", "F32", 2, 12, 8);
  maker_add(maker, LAYER "mlp.down_proj.weight", "F32", 2, 8, 12);
  maker_add(maker, "model.norm.weight", "F32", 1, 8, 0);
  maker_add(maker, "lm_head.weight", "F32", 2, 8, 8);
}

void maker_close(maker_t *maker) {
  DIR *dir = opendir(maker->dir);
  if (dir == NULL) return;
  for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
    if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
    if (unlinkat(dirfd(dir), entry->d_name, 0) != 0) {
      unlinkat(dirfd(dir), entry->d_name, AT_REMOVEDIR);
    }
  }
  closedir(dir);
  rmdir(maker->dir);
}

void maker_set(maker_t *maker, const char *key, const char *value) {
  char pattern[96], rest[sizeof(maker->config)];
  snprintf(pattern, sizeof(pattern), "\"%s\":", key);
  char *line = strstr(maker->config, pattern);
  if (line != NULL) { /* one key a line: drop it */
    snprintf(rest, sizeof(rest), "%s", strchr(line, '\n') + 1);
    snprintf(line, sizeof(rest) - (size_t)(line - maker->config), "%s", rest);
    char *end = strstr(maker->config, ",\n}");
    if (end != NULL) snprintf(end, 4, "\n}\n");
  }
  if (value == NULL) return;
  snprintf(rest, sizeof(rest), "%s", maker->config + 1);
  int n = snprintf(maker->config, sizeof(maker->config), "{\n%s %s,%s", pattern, value, rest);
  ASSERT_LT(n, (int)sizeof(maker->config));
}

void maker_reshape(maker_tensor_t *tensor, const char *type, int rank, int64_t rows, int64_t cols) {
  snprintf(tensor->type, sizeof(tensor->type), "%s", type);
  tensor->rank = rank;
  tensor->shape[0] = rows;
  tensor->shape[1] = cols;
  tensor->elements = rank == 0 ? 1 : rank == 1 ? rows : rows * cols;
  bool is_byte = strcmp(type, "I8") == 0 || strcmp(type, "U8") == 0 || strncmp(type, "F8", 2) == 0;
  tensor->element_size = is_byte                      ? 1
                         : strstr(type, "16") != NULL ? 2
                         : strstr(type, "64") != NULL ? 8
                                                      : 4;
}

maker_tensor_t *maker_add(maker_t *maker, const char *name, const char *type, int rank,
                          int64_t rows, int64_t cols) {
  ASSERT_LT(maker->num_tensors, MAKER_TENSORS_MAX);
  maker_tensor_t *tensor = &maker->tensors[maker->num_tensors++];
  *tensor = (maker_tensor_t){.rank = 0};
  snprintf(tensor->name, sizeof(tensor->name), "%s", name);
  maker_reshape(tensor, type, rank, rows, cols);
  return tensor;
}

maker_tensor_t *maker_tensor(maker_t *maker, const char *name) {
  for (int i = 0; i < maker->num_tensors; i++) {
    if (strcmp(maker->tensors[i].name, name) == 0) return &maker->tensors[i];
  }
  cr_assert_fail("the maker has no tensor %s", name);
  return NULL;
}

void maker_remove(maker_t *maker, const char *name) {
  maker_tensor_t *tensor = maker_tensor(maker, name);
  *tensor = maker->tensors[--maker->num_tensors];
}

void maker_write_file(const maker_t *maker, const char *name, const void *bytes, size_t length) {
  char path[256];
  snprintf(path, sizeof(path), "%s/%s", maker->dir, name);
  FILE *file = fopen(path, "wb");
  cr_assert_not_null(file);
  ASSERT_EQ(fwrite(bytes, 1, length, file), length);
  ASSERT_EQ(fclose(file), 0);
}

void maker_write_config(const maker_t *maker) {
  maker_write_file(maker, "config.json", maker->config, strlen(maker->config));
  if (maker->generation[0] == '\0') return;
  maker_write_file(maker, "generation_config.json", maker->generation, strlen(maker->generation));
}

static size_t write_header(const maker_t *maker, int first, int count, char *out, size_t capacity) {
  size_t used = (size_t)snprintf(out, capacity, "{");
  int64_t at = 0;
  for (int i = first; i < first + count; i++) {
    const maker_tensor_t *t = &maker->tensors[i];
    used += (size_t)snprintf(out + used, capacity - used, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[",
                             i > first ? "," : "", t->name, t->type);
    for (int d = 0; d < t->rank; d++) {
      used += (size_t)snprintf(out + used, capacity - used, "%s%lld", d ? "," : "",
                               (long long)t->shape[d]);
    }
    int64_t end = at + t->elements * t->element_size;
    used += (size_t)snprintf(out + used, capacity - used, "],\"data_offsets\":[%lld,%lld]}",
                             (long long)at, (long long)end);
    at = end;
  }
  const char *extra = maker->extra_entry != NULL ? maker->extra_entry : "";
  used += (size_t)snprintf(out + used, capacity - used, "%s}", extra);
  ASSERT_LT(used, capacity);
  return used;
}

/* Bytes are 56, which is 1 as F8_E4M3 and small as an exponent. */
static void write_element(const maker_tensor_t *t, int64_t k, uint8_t *out) {
  const bool poisoned = t->poison != 0 && k == t->elements / 2;
  const float value = poisoned ? (float)t->poison : 0.01F * (float)(k % 17 - 8);
  uint16_t half = strcmp(t->type, "F16") == 0 ? f16_from_float(value) : bf16_from_float(value);
  int64_t integer = poisoned ? (int64_t)t->poison : t->per > 0 ? t->base + k / t->per : 56;
  if (t->element_size == 1 || t->element_size == 8 || t->per > 0)
    memcpy(out, &integer, (size_t)t->element_size);
  else if (t->element_size == 2)
    memcpy(out, &half, 2);
  else
    memcpy(out, &value, 4);
}

static size_t write_data(const maker_t *maker, int first, int count, uint8_t *out) {
  size_t used = 0;
  for (int i = first; i < first + count; i++) {
    const maker_tensor_t *t = &maker->tensors[i];
    for (int64_t k = 0; k < t->elements; k++) {
      write_element(t, k, out + used);
      used += (size_t)t->element_size;
    }
  }
  return used;
}

void maker_write_tensors(const maker_t *maker, const char *name, int first, int count) {
  static char header[16384];
  static uint8_t bytes[1 << 19];
  size_t length = write_header(maker, first, count, header, sizeof(header));
  const char *text = header;
  if (maker->header != NULL) {
    text = maker->header;
    length = strlen(text);
  }
  uint64_t number = maker->header_length != 0 ? maker->header_length : length;
  for (int i = 0; i < 8; i++) bytes[i] = (uint8_t)(number >> 8 * i);
  memcpy(bytes + 8, text, length);
  size_t used = 8 + length + write_data(maker, first, count, bytes + 8 + length);
  maker_write_file(maker, name, bytes, (size_t)((int64_t)used + maker->data_change));
}

void maker_write(const maker_t *maker) {
  maker_write_config(maker);
  maker_write_tensors(maker, "model.safetensors", 0, maker->num_tensors);
}

static int load_on(const ops_t *ops, const maker_t *maker, int32_t dtype, inferd_error_t *error) {
  blueprint_t blueprint;
  *error = (inferd_error_t){0};
  int status = blueprint_read(maker->dir, 0, -1, &blueprint, error);
  if (status != 0) return status;
  device_t *device = NULL;
  model_t *model = NULL;
  model_options_t options = {.dir = maker->dir, .dtype = dtype};
  device_options_t device_options = {.num_threads = 1, .isa = "auto"};
  ASSERT_EQ(ops->open(&device_options, &device, error), 0);
  status = model_load(ops, device, &blueprint, blueprint.max_model_len, &options, &model, error);
  model_free(model);
  ops->close(device);
  blueprint_free(&blueprint);
  return status;
}

int maker_load(const maker_t *maker, int32_t dtype, inferd_error_t *error) {
  return load_on(&ops_naive, maker, dtype, error);
}

int maker_load_on_cpu(const maker_t *maker, int32_t dtype, inferd_error_t *error) {
  return load_on(&ops_cpu, maker, dtype, error);
}

void maker_finish(maker_t *maker) {
  maker_close(maker);
  maker_t good;
  inferd_error_t error;
  maker_open(&good);
  maker_write(&good);
  ASSERT_EQ_FOR(maker_load(&good, -1, &error), 0, "%s", error.message);
  maker_close(&good);
}
