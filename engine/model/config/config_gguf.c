/* config_gguf.c: the metadata of a GGUF file, written as the config.json that they replace.
 *
 * The reader of config.json then makes the blueprint, so that a family has one set of rules. What
 * the metadata leave to a reader's knowledge of the architecture is filled in here, as llama.cpp
 * does. What only the tensors tell (biases, experts, a tied head) is taken from their list. Any
 * thread; reads no weights.
 */
#include "engine/model/config/config_gguf.h"

#include "engine/base/util.h"
#include "engine/model/config/metadata.h"
#include "engine/model/families/family.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* The parts of the heads of latent attention. Older files have them as lengths of a key and of a
 * value, where younger ones have the lengths of what the cache holds. */
static void write_latent(metadata_t *writer) {
  int64_t heads = 1, turned = 0, key = 0, value = 0;
  metadata_need_int(writer, "%.attention.head_count", &heads);
  metadata_put_int(writer, "num_key_value_heads", heads);
  metadata_copy_int(writer, "kv_lora_rank", "%.attention.kv_lora_rank");
  metadata_name(writer, "q_lora_rank");
  int64_t rank = 0;
  if (metadata_take_int(writer, "%.attention.q_lora_rank", &rank))
    buffer_int(writer->json, rank);
  else
    buffer_text(writer->json, "null");
  metadata_need_int(writer, "%.rope.dimension_count", &turned);
  if (!metadata_take_int(writer, "%.attention.key_length_mla", &key))
    metadata_need_int(writer, "%.attention.key_length", &key);
  if (!metadata_take_int(writer, "%.attention.value_length_mla", &value))
    metadata_need_int(writer, "%.attention.value_length", &value);
  metadata_put_int(writer, "qk_rope_head_dim", turned);
  /* A negative number is refused as it is. */
  metadata_put_int(writer, "qk_nope_head_dim", key < 0 || turned < 0 ? key : key - turned);
  metadata_put_int(writer, "v_head_dim", value);
}

static void write_sizes(metadata_t *writer) {
  int64_t hidden = 0, heads = 1, kv_heads, head_dim = 0, values, rotated;
  const gguf_tensor_t *embed = gguf_tensor(writer->gguf, "token_embd.weight");
  if (embed == NULL || embed->rank != 2) {
    metadata_refuse(writer, "token_embd.weight", embed == NULL ? "is missing" : "is no matrix");
    return;
  }
  metadata_put_int(writer, "vocab_size", embed->shape[0]);
  metadata_need_int(writer, "%.embedding_length", &hidden);
  metadata_need_int(writer, "%.attention.head_count", &heads);
  if (writer->code != 0) return;
  metadata_put_int(writer, "hidden_size", hidden);
  metadata_put_int(writer, "num_attention_heads", heads);
  metadata_copy_int(writer, "max_position_embeddings", "%.context_length");
  if (writer->needs & LATENT) {
    write_latent(writer);
    return;
  }
  if (writer->needs & STATES)
    kv_heads = metadata_take_most(writer, "%.attention.head_count_kv", heads);
  else if (!metadata_take_int(writer, "%.attention.head_count_kv", &kv_heads))
    kv_heads = heads;
  metadata_put_int(writer, "num_key_value_heads", kv_heads);
  metadata_put_bool(writer, "multi_query", kv_heads == 1);
  if (!metadata_take_int(writer, "%.attention.key_length", &head_dim) && heads > 0)
    head_dim = hidden / heads;
  metadata_put_int(writer, "head_dim", head_dim);
  if (metadata_take_int(writer, "%.attention.value_length", &values) && values != head_dim) {
    char key[KEY_TEXT_MAX];
    metadata_refuse(writer,
                    metadata_key(writer->arch, "%.attention.value_length", key, sizeof(key)),
                    "is %" PRId64 ", supported: as the key's, %" PRId64, values, head_dim);
  }
  bool partial = metadata_take_int(writer, "%.rope.dimension_count", &rotated) && head_dim > 0;
  if (!(writer->needs & (POSITION_TABLE | NO_ROPE))) {
    double factor = partial ? (double)rotated / (double)head_dim : 1.0;
    metadata_put_double(writer, "partial_rotary_factor", factor);
    metadata_put_int(writer, "rotary_dim", partial ? rotated : head_dim);
  }
}

/* The tensors say which norms a layer has; a key says whether two norms are those of a parallel
 * block. */
static void write_blocks(metadata_t *writer) {
  char key[KEY_TEXT_MAX];
  bool parallel = metadata_layer_tensor(writer, 0, "ffn_norm.weight") == NULL;
  if (strcmp(writer->arch, "gptneox") == 0) {
    parallel = true;
    gguf_bool(metadata_find(writer, "%.use_parallel_residual", key), 0, &parallel);
  }
  metadata_put_bool(writer, "use_parallel_residual", parallel);
  metadata_put_bool(writer, "new_decoder_architecture",
                    true); /* the number of K/V heads is the key's */
  metadata_put_int(writer, "num_ln_in_parallel_attn",
                   metadata_layer_tensor(writer, 0, "attn_norm_2.weight") != NULL ? 2 : 1);
}

static void write_norms(metadata_t *writer) {
  const bool layer_norms = writer->needs & LAYER_NORMS;
  const char *source =
      layer_norms ? "%.attention.layer_norm_epsilon" : "%.attention.layer_norm_rms_epsilon";
  char key[KEY_TEXT_MAX];
  /* EXAONE 3 calls the epsilon of its RMSNorm layer_norm_epsilon, and so do its files. */
  if (!layer_norms && metadata_find(writer, source, key) == NULL &&
      metadata_copy_double(writer, "rms_norm_eps", "%.attention.layer_norm_epsilon"))
    return;
  /* ModernBERT calls that of its LayerNorms norm_eps, which files may have as an RMSNorm's. */
  if (layer_norms && metadata_find(writer, source, key) == NULL &&
      metadata_copy_double(writer, "layer_norm_epsilon", "%.attention.layer_norm_rms_epsilon"))
    return;
  if (metadata_copy_double(writer, layer_norms ? "layer_norm_epsilon" : "rms_norm_eps", source))
    return;
  metadata_refuse(writer, metadata_key(writer->arch, source, key, sizeof(key)), "is missing");
}

/* Writes the sliding window; 0 means none. Its pattern is one flag for each layer, or a number N:
 * every N-th layer sees the whole context. */
static void write_window(metadata_t *writer) {
  char key[KEY_TEXT_MAX];
  int64_t window, every;
  const gguf_value_t *pattern = metadata_find(writer, "%.attention.sliding_window_pattern", key);
  bool given = metadata_take_int(writer, "%.attention.sliding_window", &window);
  if (!given && !(writer->needs & (TWO_ROPES | WINDOW_OR_NONE))) return; /* the family's default */
  metadata_name(writer, "sliding_window");
  if (given && window > 0)
    buffer_int(writer->json, window);
  else
    buffer_text(writer->json, "null");
  if (!given || window <= 0 || pattern == NULL) return;
  if (pattern->kind != GGUF_ARRAY && gguf_int(pattern, 0, &every)) {
    metadata_put_int(writer, "sliding_window_pattern", every);
    return;
  }
  metadata_name(writer, "layer_types");
  buffer_char(writer->json, '[');
  for (uint32_t i = 0; i < pattern->count && i < MODEL_LAYERS_MAX; i++) {
    bool slides = false;
    int64_t number = 0;
    if (!gguf_bool(pattern, i, &slides) && !gguf_int(pattern, i, &number))
      metadata_refuse(writer, key, "is no list of flags");
    if (i > 0) buffer_char(writer->json, ',');
    buffer_text(writer->json,
                slides || number != 0 ? "\"sliding_attention\"" : "\"full_attention\"");
  }
  buffer_char(writer->json, ']');
}

/* The scale of the scores, and other factors. Absent keys of Gemma follow from its sizes. */
static void write_scales(metadata_t *writer, bool is_granite) {
  int64_t layers = 0, hidden = 0, heads = 1, head_dim = 0;
  double scale = 0;
  metadata_copy_double(writer, "attn_logit_softcapping", "%.attn_logit_softcapping");
  metadata_copy_double(writer, "final_logit_softcapping", "%.final_logit_softcapping");
  bool given = metadata_take_double(writer, "%.attention.scale", &scale) && scale > 0;
  metadata_take_int(writer, "%.block_count", &layers);
  metadata_take_int(writer, "%.embedding_length", &hidden);
  metadata_take_int(writer, "%.attention.head_count", &heads);
  if (heads < 1) return; /* refused with the sizes */
  if (!metadata_take_int(writer, "%.attention.key_length", &head_dim)) head_dim = hidden / heads;
  if (writer->needs & GEMMA_SCALE) {
    int64_t divided = layers == writer->wide_layers ? hidden / heads : head_dim;
    metadata_put_double(writer, "query_pre_attn_scalar",
                        given ? 1 / (scale * scale) : (double)divided);
  }
  if (writer->needs & LOGIT_SCALE) metadata_copy_double(writer, "logit_scale", "%.logit_scale");
  if (!is_granite) return;
  metadata_put_double(writer, "attention_multiplier", given ? scale : 1 / sqrt((double)head_dim));
  metadata_copy_double(writer, "embedding_multiplier", "%.embedding_scale");
  metadata_copy_double(writer, "residual_multiplier", "%.residual_scale");
  metadata_copy_double(writer, "logits_scaling", "%.logit_scale");
}

/* Returns true for a token that ends a generation although no key names it: older files name only
 * one such token. */
static bool ends_by_spelling(const metadata_t *writer, const char *text, size_t length) {
  static const char *const of_all[] = {"<|eot_id|>",   "<|eom_id|>",    "<|im_end|>",
                                       "<|end|>",      "<|endoftext|>", "<|end_of_text|>",
                                       "<end_of_turn>"};
  static const char *const of_oss[] = {"<|return|>", "<|call|>", "<|endoftext|>"};
  const bool is_oss = strcmp(writer->arch, "gpt-oss") == 0;
  const char *const *list = is_oss ? of_oss : of_all;
  size_t count = is_oss ? ARRAY_LEN(of_oss) : ARRAY_LEN(of_all);
  for (size_t i = 0; i < count; i++) {
    if (strlen(list[i]) == length && memcmp(list[i], text, length) == 0) return true;
  }
  return false;
}

static void write_ids(metadata_t *writer) {
  static const char *const keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                     "tokenizer.ggml.eom_token_id"};
  const gguf_value_t *tokens = gguf_get(writer->gguf, "tokenizer.ggml.tokens");
  const gguf_value_t *types = gguf_get(writer->gguf, "tokenizer.ggml.token_type");
  const gguf_tensor_t *embed = gguf_tensor(writer->gguf, "token_embd.weight");
  const char *comma = "", *text;
  int64_t id, kind, rows = embed != NULL && embed->rank == 2 ? embed->shape[0] : 0;
  size_t at = 0, length;
  if (gguf_int(gguf_get(writer->gguf, "tokenizer.ggml.bos_token_id"), 0, &id) && id >= 0 &&
      id < rows)
    metadata_put_int(writer, "bos_token_id", id);
  metadata_name(writer, "eos_token_id");
  buffer_char(writer->json, '[');
  for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
    /* An id past the embedding matrix cannot be sampled. */
    if (!gguf_int(gguf_get(writer->gguf, keys[i]), 0, &id) || id < 0 || id >= rows) continue;
    buffer_text(writer->json, comma);
    buffer_int(writer->json, id);
    comma = ",";
  }
  int found = 0;
  for (uint32_t i = 0; i < rows && gguf_next_string(tokens, &at, &text, &length); i++) {
    bool control = gguf_int(types, i, &kind) && (kind == 3 || kind == 4);
    if (!control || !ends_by_spelling(writer, text, length) || found++ == 8) continue;
    buffer_text(writer->json, comma);
    buffer_int(writer->json, i);
    comma = ",";
  }
  buffer_char(writer->json, ']');
}

static const char *type_of_weights(const gguf_t *gguf, bool is_gemma) {
  const gguf_tensor_t *embed = gguf_tensor(gguf, "token_embd.weight");
  const gguf_tensor_t *inner = gguf_tensor(gguf, "blk.0.ffn_down.weight");
  uint32_t type = inner != NULL ? inner->type : embed != NULL ? embed->type : GGUF_TYPE_BF16;
  if (type == GGUF_TYPE_F32) return "float32";
  /* Gemma overflows in float16. */
  return type == GGUF_TYPE_F16 && !is_gemma ? "float16" : "bfloat16";
}

static bool find_architecture(metadata_t *writer, const char **architecture) {
  const gguf_value_t *value = gguf_get(writer->gguf, "general.architecture");
  const char *text;
  size_t at = 0, length;
  char quoted[64] = "", list[512] = "";
  if (!gguf_next_string(value, &at, &text, &length)) {
    metadata_refuse(writer, "general.architecture", "is missing or no text");
    return false;
  }
  const gguf_name_t *row;
  for (size_t i = 0; (row = family_gguf(i)) != NULL; i++) {
    size_t used = strlen(list);
    snprintf(list + used, sizeof(list) - used, "%s%s", i > 0 ? ", " : "", row->name);
    if (strlen(row->name) != length || memcmp(row->name, text, length) != 0) continue;
    writer->arch = row->name;
    writer->needs = row->needs;
    writer->wide_layers = row->wide_layers;
    *architecture = row->architecture;
    return true;
  }
  metadata_refuse(writer, "general.architecture", "is \"%s\", supported: %s",
                  error_quote(quoted, sizeof(quoted), text, length), list);
  return false;
}

/* Sizes, angles, experts and states. */
static void write_architecture(metadata_t *writer, int64_t experts) {
  if (writer->needs & STATES)
    metadata_write_mlp(writer, experts);
  else if (experts == 0 || writer->needs & SCORED_EXPERTS)
    metadata_copy_int(writer, "intermediate_size", "%.feed_forward_length");
  write_sizes(writer);
  if (writer->needs & PARALLEL) write_blocks(writer);
  metadata_write_rope(writer);
  if (writer->needs & SCORED_EXPERTS)
    metadata_write_router(writer, experts);
  else if (experts != 0)
    metadata_write_experts(writer, experts);
  if (writer->needs & STATES) metadata_write_states(writer, experts);
}

int config_from_gguf(const gguf_t *gguf, const char **arch, buffer_t *json, inferd_error_t *error) {
  metadata_t writer = {.gguf = gguf, .json = json, .error = error};
  const char *architecture;
  int64_t experts = 0, number;
  if (!find_architecture(&writer, &architecture)) return writer.code;
  *arch = writer.arch;
  /* Two names stand for two families each: llama with experts is Mixtral, olmo2 with a window is
   * OLMo 3. */
  metadata_take_int(&writer, "%.expert_count", &experts);
  if (experts > 0 && strcmp(writer.arch, "llama") == 0) architecture = "MixtralForCausalLM";
  if (strcmp(writer.arch, "olmo2") == 0 &&
      metadata_take_int(&writer, "%.attention.sliding_window", &number)) {
    architecture = "Olmo3ForCausalLM";
    writer.needs |= WINDOWED;
  }
  if (strcmp(writer.arch, "deepseek2") == 0 && !metadata_scores_by_sigmoid(&writer))
    architecture = "DeepseekV2ForCausalLM";
  if (writer.needs & ENCODER) architecture = metadata_encoder(&writer, architecture);
  buffer_char(json, '{');
  metadata_name(&writer, "architectures");
  buffer_char(json, '[');
  buffer_quote(json, architecture, strlen(architecture));
  buffer_char(json, ']');
  metadata_put_text(&writer, "torch_dtype",
                    type_of_weights(gguf, writer.needs & (GEMMA_SCALE | GEMMA4 | GEMMA3N)));
  number = metadata_layers(&writer);
  if (writer.code == 0) metadata_put_int(&writer, "num_hidden_layers", number);
  if (writer.needs & GEMMA4)
    metadata_write_gemma4(&writer, experts);
  else if (writer.needs & GEMMA3N)
    metadata_write_gemma3n(&writer);
  else
    write_architecture(&writer, experts);
  write_norms(&writer);
  if (writer.needs & WINDOWED) write_window(&writer);
  write_scales(&writer, strncmp(writer.arch, "granite", strlen("granite")) == 0);
  if (writer.needs & ENCODER) metadata_write_encoder(&writer);
  if (metadata_judges(&writer)) metadata_put_bool(&writer, "is_original_qwen3_reranker", true);
  write_ids(&writer);
  metadata_put_bool(&writer, "tie_word_embeddings", gguf_tensor(gguf, "output.weight") == NULL);
  buffer_char(json, '}');
  if (writer.code == 0 && json->failed)
    writer.code = error_set(error, ERR_NO_MEMORY, NULL, "%s: no memory", gguf_path(gguf, 0));
  return writer.code;
}

static bool has(const gguf_t *gguf, int32_t layer, const char *part) {
  char name[GGUF_NAME_MAX];
  snprintf(name, sizeof(name), "blk.%d.%s", layer, part);
  return gguf_tensor(gguf, name) != NULL;
}

void config_from_gguf_tensors(const gguf_t *gguf, blueprint_t *blueprint) {
  int32_t first = 0; /* layer with attention */
  while (first + 1 < blueprint->num_layers && blueprint->layer_flags[first] & LAYER_NO_ATTENTION)
    first++;
  int32_t mlp = 0; /* layer with an MLP */
  while (mlp + 1 < blueprint->num_layers && blueprint->layer_flags[mlp] & LAYER_NO_MLP) mlp++;
  blueprint->qkv_bias = has(gguf, first, "attn_q.bias") || has(gguf, first, "attn_qkv.bias") ||
                        has(gguf, first, "attn_kv_a_mqa.bias");
  blueprint->latent_split = has(gguf, first, "attn_k_b.weight");
  blueprint->qkv_fused = has(gguf, first, "attn_qkv.weight");
  blueprint->o_bias = has(gguf, first, "attn_output.bias");
  blueprint->mlp_bias = has(gguf, mlp, "ffn_up.bias");
  if (blueprint->mixer.kind == MIXER_DELTA) {
    blueprint->mixer.z_apart = blueprint->mixer.by_group;
    blueprint->mixer.tiled = !blueprint->mixer.by_group; /* Qwen3.5, for ggml's broadcasts */
  }
  blueprint->qk_norm = has(gguf, first, "attn_q_norm.weight");
  blueprint->encoder.answer_rows =
      blueprint->encoder.judges && gguf_tensor(gguf, "output.weight") == NULL;
}

static void take_float(const gguf_t *gguf, const char *key, double most, float *out) {
  double number;
  if (gguf_double(gguf_get(gguf, key), 0, &number) && number >= 0 && number <= most)
    *out = (float)number;
}

void config_from_gguf_sampling(const gguf_t *gguf, blueprint_t *blueprint) {
  int64_t top_k;
  take_float(gguf, "general.sampling.temp", 2, &blueprint->temperature);
  take_float(gguf, "general.sampling.min_p", 1, &blueprint->min_p);
  take_float(gguf, "general.sampling.top_p", 1, &blueprint->top_p);
  take_float(gguf, "general.sampling.penalty_repeat", 10, &blueprint->repetition_penalty);
  if (blueprint->top_p <= 0) blueprint->top_p = NAN; /* more than 0 is needed */
  if (blueprint->repetition_penalty <= 0) blueprint->repetition_penalty = NAN;
  if (gguf_int(gguf_get(gguf, "general.sampling.top_k"), 0, &top_k) && top_k >= -1 &&
      top_k <= INT32_MAX)
    blueprint->top_k = (int32_t)top_k;
}

void config_from_gguf_note(const gguf_t *gguf, const char *arch, blueprint_t *blueprint) {
  enum { TYPES = 64 };
  size_t counts[TYPES] = {0}, used = 0;
  char types[160] = "";
  for (size_t i = 0; i < gguf_num_tensors(gguf); i++) {
    uint32_t type = gguf_tensor_at(gguf, i)->type;
    if (type < TYPES) counts[type]++;
  }
  for (uint32_t i = 0; i < TYPES && used < sizeof(types); i++) {
    if (counts[i] == 0) continue;
    int n = snprintf(types + used, sizeof(types) - used, "%s%zu %s", used > 0 ? ", " : "",
                     counts[i], gguf_type_name(i));
    used += n > 0 ? (size_t)n : 0;
  }
  const char *path = gguf_path(gguf, 0), *slash = strrchr(path, '/');
  char quoted[120];
  error_quote(quoted, sizeof(quoted), slash != NULL ? slash + 1 : path,
              strlen(slash != NULL ? slash + 1 : path));
  blueprint_note(blueprint, "gguf      %s, %d file%s: architecture %s, tensors: %s", quoted,
                 gguf_num_files(gguf), gguf_num_files(gguf) == 1 ? "" : "s", arch, types);
}
