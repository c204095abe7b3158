/* config_gguf_rope.c: what the keys and tensors of a GGUF file say about rotary settings.
 *
 * Any thread, no state.
 */
#include "engine/model/blueprint.h"
#include "engine/model/config/metadata.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* A list of the divisors of the angles. */
static void write_factors(metadata_t *writer, const char *key, const gguf_tensor_t *tensor) {
  if (tensor->type != GGUF_TYPE_F32 || tensor->rank != 1 || tensor->shape[0] > ROPE_FACTORS_MAX) {
    metadata_refuse(writer, tensor->name,
                    "is %s of %" PRId64 " elements, supported: F32, a vector of at "
                    "most %d",
                    gguf_type_name(tensor->type), tensor->shape[0], ROPE_FACTORS_MAX);
    return;
  }
  metadata_name(writer, key);
  buffer_char(writer->json, '[');
  for (int64_t i = 0; i < tensor->shape[0]; i++) {
    float factor;
    memcpy(&factor, tensor->data + 4 * i, sizeof(factor));
    if (i > 0) buffer_char(writer->json, ',');
    metadata_plain_double(writer, (double)factor); /* 0 for NaN, which the reader refuses */
  }
  buffer_char(writer->json, ']');
}

/* `scaled`: divisors of every angle, whatever the length: rope_freqs.weight of Llama 3. */
static void write_longrope(metadata_t *writer, const gguf_tensor_t *short_one,
                           const gguf_tensor_t *long_one, bool scaled) {
  double factor = 1;
  metadata_put_text(writer, "rope_type", "longrope");
  write_factors(writer, "short_factor", short_one);
  write_factors(writer, "long_factor", long_one);
  if (scaled && !metadata_take_double(writer, "%.rope.scaling.attn_factor", &factor)) return;
  metadata_put_double(writer, "attention_factor", factor);
}

static void write_yarn(metadata_t *writer) {
  double multiplier;
  metadata_put_text(writer, "rope_type", "yarn");
  metadata_copy_double(writer, "factor", "%.rope.scaling.factor");
  metadata_copy_int(writer, "original_max_position_embeddings",
                    "%.rope.scaling.original_context_length");
  metadata_copy_double(writer, "attn_factor", "%.rope.scaling.attn_factor");
  metadata_copy_double(writer, "beta_fast", "%.rope.scaling.yarn_beta_fast");
  metadata_copy_double(writer, "beta_slow", "%.rope.scaling.yarn_beta_slow");
  if (writer->needs & QUERY_GROWTH) {
    /* One number for mscale and mscale_all_dim, which are the same; 0 stands for neither. */
    metadata_copy_double(writer, "mscale", "%.rope.scaling.yarn_log_multiplier");
    metadata_copy_double(writer, "mscale_all_dim", "%.rope.scaling.yarn_log_multiplier");
    metadata_copy_double(writer, "llama_4_scaling_beta", "%.attention.temperature_scale");
  }
  if (writer->needs & LATENT &&
      metadata_take_double(writer, "%.rope.scaling.yarn_log_multiplier", &multiplier)) {
    metadata_put_double(writer, "mscale", 10 * multiplier); /* a tenth of it is in the file */
    metadata_put_double(writer, "mscale_all_dim", 10 * multiplier);
  }
  if (writer->needs & YARN_IS_EXACT) metadata_put_bool(writer, "truncate", false);
}

/* The kind of scaling, "none" when there is no such key. */
static void scaling_type(metadata_t *writer, char *out, size_t capacity) {
  char key[KEY_TEXT_MAX];
  const gguf_value_t *value = metadata_find(writer, "%.rope.scaling.type", key);
  const char *text = "none";
  size_t at = 0, length = 4;
  if (value != NULL && !gguf_next_string(value, &at, &text, &length)) {
    text = "none", length = 4;
    metadata_refuse(writer, key, "is no text");
  }
  error_quote(out, (unsigned)capacity, text, length);
}

/* How many pairs turn by time, line and column; a fourth number is 0. */
static void write_sections(metadata_t *writer) {
  char key[KEY_TEXT_MAX];
  const gguf_value_t *value = metadata_find(writer, "%.rope.dimension_sections", key);
  int64_t pairs[4] = {0};
  bool known = value != NULL && (value->count == 3 || value->count == 4);
  if (value == NULL || !(writer->needs & SECTIONS)) return;
  for (uint32_t i = 0; known && i < value->count; i++) known = gguf_int(value, i, &pairs[i]);
  if (!known || pairs[3] != 0) {
    metadata_refuse(writer, key, "is no list of three numbers and a 0");
    return;
  }
  metadata_name(writer, "mrope_section");
  for (int i = 0; i < 3; i++) {
    buffer_char(writer->json, i == 0 ? '[' : ',');
    buffer_int(writer->json, pairs[i]);
  }
  buffer_char(writer->json, ']');
  if (writer->needs & BY_TURNS) metadata_put_bool(writer, "mrope_interleaved", true);
}

void metadata_write_rope(metadata_t *writer) {
  const gguf_tensor_t *freqs = gguf_tensor(writer->gguf, "rope_freqs.weight");
  const gguf_tensor_t *short_one = gguf_tensor(writer->gguf, "rope_factors_short.weight");
  const gguf_tensor_t *long_one = gguf_tensor(writer->gguf, "rope_factors_long.weight");
  char type[32];
  double theta = 1e4, factor = 1;
  if (writer->needs & POSITION_TABLE) return;
  metadata_take_double(writer, "%.rope.freq_base", &theta);
  metadata_put_double(writer, "rope_theta", theta);
  if (writer->needs & TWO_ROPES)
    metadata_copy_double(writer, "rope_local_base_freq", "%.rope.freq_base_swa");
  scaling_type(writer, type, sizeof(type));
  metadata_name(writer, "rope_scaling");
  buffer_char(writer->json, '{');
  buffer_text(writer->json, "\"rope_theta\":");
  metadata_plain_double(writer, theta);
  write_sections(writer);
  if (short_one != NULL && long_one != NULL) {
    write_longrope(writer, short_one, long_one, true);
  } else if (strcmp(type, "yarn") == 0) {
    write_yarn(writer);
  } else if (freqs != NULL) {
    write_longrope(writer, freqs, freqs, false);
    metadata_copy_int(writer, "original_max_position_embeddings", "%.context_length");
  } else if (strcmp(type, "linear") == 0) {
    metadata_put_text(writer, "rope_type", "linear");
    metadata_copy_double(writer, "factor", "%.rope.scaling.factor");
  } else if (metadata_take_double(writer, "%.rope.scale_linear", &factor) && factor > 1) {
    metadata_put_text(writer, "rope_type", "linear"); /* as files were written before 2024 */
    metadata_put_double(writer, "factor", factor);
  } else if (strcmp(type, "none") != 0) {
    char key[KEY_TEXT_MAX];
    metadata_refuse(writer, metadata_key(writer->arch, "%.rope.scaling.type", key, sizeof(key)),
                    "is \"%s\", supported: none, linear, yarn, and longrope with its factors",
                    type);
  }
  buffer_char(writer->json, '}');
  if (short_one != NULL)
    metadata_copy_int(writer, "original_max_position_embeddings",
                      "%.rope.scaling.original_context_length");
}
