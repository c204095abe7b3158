/* config_generation.c: end-of-sequence ids and the sampling defaults of generation_config.json.
 *
 * Values pass the same ranges as the fields of a request. Keys without a meaning for a server
 * (do_sample, num_beams, ...) are ignored. Any thread, no state.
 */
#include "engine/model/config/config.h"
#include "engine/model/source/model_file.h"

#include <math.h>
#include <stddef.h>

enum { GENERATION_BYTES_MAX = 1 << 20 };

static void add_eos(config_reader_t *reader, const json_t *value, blueprint_t *blueprint) {
  int64_t id;
  if (!json_int64(value, &id) || id < 0) {
    config_refuse(reader, "eos_token_id", value, "ids of 0..%d (vocab_size)",
                  blueprint->vocab_size - 1);
    return;
  }
  if (id >= blueprint->vocab_size) { /* the model can never give it */
    blueprint_note(blueprint,
                   "warning: %s: eos_token_id %lld is dropped, the vocabulary ends at %d",
                   reader->file, (long long)id, blueprint->vocab_size - 1);
    return;
  }
  for (int32_t i = 0; i < blueprint->num_eos; i++) {
    if (blueprint->eos_ids[i] == id) return;
  }
  if (blueprint->num_eos == MODEL_EOS_MAX) {
    config_refuse(reader, "eos_token_id", NULL, "has more than %d ids", MODEL_EOS_MAX);
    return;
  }
  blueprint->eos_ids[blueprint->num_eos++] = (int32_t)id;
}

void config_read_eos(config_reader_t *reader, blueprint_t *blueprint) {
  const json_t *value = config_get(reader, "eos_token_id");
  if (!json_is_given(value)) return;
  if (value->type != JSON_ARRAY) {
    add_eos(reader, value, blueprint);
    return;
  }
  JSON_EACH(id, value) add_eos(reader, id, blueprint);
}

/* A number, or NaN when the key is absent or null. */
static float sampling_number(config_reader_t *reader, const char *key, double min, double max,
                             bool open) {
  const json_t *value = json_get(reader->root, key);
  if (!json_is_given(value)) return NAN;
  return (float)config_double(reader, KEYS(key), 0.0, min, max, open);
}

int config_read_generation(const char *dir, blueprint_t *blueprint, inferd_error_t *error) {
  static const json_limits_t limits = {
      .depth_max = 32, .values_max = 100000, .key_bytes_max = 1024, .allow_nul = true};
  model_file_t file;
  int code =
      model_file_read(dir, "generation_config.json", GENERATION_BYTES_MAX, &limits, &file, error);
  if (code != 0 || file.doc == NULL) return code;
  config_reader_t reader = {
      .file = "generation_config.json", .root = json_root(file.doc), .error = error};
  blueprint->temperature = sampling_number(&reader, "temperature", 0, 2, false);
  blueprint->top_p = sampling_number(&reader, "top_p", 0, 1, true);
  blueprint->min_p = sampling_number(&reader, "min_p", 0, 1, false);
  blueprint->repetition_penalty = sampling_number(&reader, "repetition_penalty", 0, 10, true);
  blueprint->top_k = (int32_t)config_int_or_null(&reader, KEYS("top_k"), -1, -1, -1, INT32_MAX);
  blueprint->max_new_tokens =
      (int32_t)config_int_or_null(&reader, KEYS("max_new_tokens"), -1, -1, 1, INT32_MAX);
  config_read_eos(&reader, blueprint);
  config_read_cross_defaults(&reader, blueprint);
  model_file_free(&file);
  return reader.code;
}
