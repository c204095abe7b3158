/* fuzz_adapter.c: a directory with a low-rank adapter, read for a small model.
 *
 * adapter_config.json, a 0xFF byte, the JSON of the header of adapter_model.safetensors. The data
 * behind it are numbers of our own, as many as the largest offset in the header needs; a first byte
 * of 0x01 in the header is dropped and makes them infinities, which must be refused.
 */
#include "engine/model/adapter.h"
#include "tests/fuzz/targets.h"

#include <stdlib.h>
#include <string.h>

enum { RANK_MAX = 16, DATA_BYTES_MAX = 65536 };

static const char config_text[] =
    "{\"architectures\":[\"LlamaForCausalLM\"],\"vocab_size\":12,\"hidden_size\":8,"
    "\"intermediate_size\":12,\"num_hidden_layers\":2,\"num_attention_heads\":2,"
    "\"num_key_value_heads\":1,\"max_position_embeddings\":64,\"torch_dtype\":\"bfloat16\","
    "\"tie_word_embeddings\":true}";

static blueprint_t blueprint;

static void make_once(void) {
  static bool made;
  inferd_error_t error = {0};
  if (made) return;
  made = true;
  fuzz_write("config.json", (const uint8_t *)config_text, sizeof config_text - 1);
  if (blueprint_read(fuzz_directory(), 0, -1, &blueprint, &error) != 0) abort();
  fuzz_remove("config.json");
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
  make_once();
  const uint8_t *config = fuzz_part(&data, &size, 0xFF, &length);
  bool infinite = size > 0 && data[0] == 0x01;
  fuzz_write("adapter_config.json", config, length);
  write_tensors(data, size);
  int code = adapter_read(&blueprint, fuzz_directory(), RANK_MAX, &adapter, &error);
  if ((code == 0) != (adapter != NULL) || (code != 0) != (error.message[0] != '\0')) abort();
  if (code == 0 && infinite) abort(); /* an adapter has tensors, and these hold NaN */
  adapter_free(adapter);
  fuzz_remove("adapter_config.json");
  fuzz_remove("adapter_model.safetensors");
}
