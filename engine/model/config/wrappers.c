/* wrappers.c: models that see images or hear sound around a text model of any family.
 *
 * Such a model has the keys of the text model in text_config, or where its row says; its model_type
 * names the family. The tensors stand behind a prefix that the layouts know. Constant data and no
 * state; any thread.
 */
#include "engine/base/util.h"
#include "engine/model/config/config.h"

#include <string.h>

#define WRAPPER(name, type, ...)                                                                   \
  { .architecture = name, .text_type = type, __VA_ARGS__ }
/* What remote code and the hub call llm_config is a model of its own, which ties itself. */
#define CHAT(name, type) WRAPPER(name, type, .text_key = "llm_config", .ties_inside = true)

static const wrapper_t wrappers[] = {
    WRAPPER("AudioFlamingo3ForConditionalGeneration", "qwen2", .ties_inside = true),
    WRAPPER("DeepseekVLForConditionalGeneration", "llama", .tied = true),
    WRAPPER("DotsOCRForCausalLM", "qwen2", .text_key = ""),
    WRAPPER("Exaone4_5_ForConditionalGeneration", "exaone4", .tied = false),
    WRAPPER("Glm46VForConditionalGeneration", "glm4v_text", .text_ties = true),
    WRAPPER("GlmAsrForConditionalGeneration", "llama", .tied = true),
    WRAPPER("GotOcr2ForConditionalGeneration", "qwen2", .tied = true),
    WRAPPER("Idefics2ForConditionalGeneration", "mistral", .tied = false),
    WRAPPER("Idefics3ForConditionalGeneration", "llama", .tied = false),
    CHAT("InternVLChatModel", "qwen2"),
    WRAPPER("InternVLForConditionalGeneration", "qwen2", .tied = true),
    WRAPPER("JanusForConditionalGeneration", "llama", .tied = true),
    WRAPPER("KimiK25ForConditionalGeneration", "deepseek_v3", .tied = true),
    WRAPPER("KimiVLForConditionalGeneration", "deepseek_v3", .ties_inside = true),
    WRAPPER("Kimi_K25ForConditionalGeneration", "deepseek_v3", .tied = true),
    WRAPPER("Lfm2VlForConditionalGeneration", "lfm2", .tied = true),
    WRAPPER("Lfm3VlForConditionalGeneration", "lfm3", .tied = true),
    WRAPPER("LightOnOcrForConditionalGeneration", "qwen3", .tied = true),
    CHAT("Llama_Nemotron_Nano_VL", "llama"),
    WRAPPER("LlavaForConditionalGeneration", "llama", .text_ties = true),
    WRAPPER("LlavaNextForConditionalGeneration", "llama", .text_ties = true),
    WRAPPER("LlavaNextVideoForConditionalGeneration", "llama", .text_ties = true),
    WRAPPER("LlavaOnevisionForConditionalGeneration", "qwen2", .text_ties = true),
    WRAPPER("MiniCPMOcrForConditionalGeneration", "qwen3_5_text", .tied = true),
    WRAPPER("MiniCPMV4_6ForConditionalGeneration", "qwen3_5_text", .tied = false),
    WRAPPER("MiniCPMV4_7ForConditionalGeneration", "qwen3_5_text", .tied = false),
    CHAT("NemotronH_Nano_VL_V2", "nemotron_h"),
    CHAT("Ovis", "qwen2"),
    CHAT("Ovis2_5", "qwen3"),
    WRAPPER("Ovis2ForConditionalGeneration", "qwen2", .tied = true),
    WRAPPER("Phi3VForCausalLM", "phi3", .text_key = ""),
    WRAPPER("QianfanOCRForConditionalGeneration", "qwen3", .tied = false),
    WRAPPER("Qwen2AudioForConditionalGeneration", "qwen2", .ties_inside = true),
    WRAPPER("Qwen2_5OmniForConditionalGeneration", "qwen2_5_omni_text", .within = "thinker_config"),
    WRAPPER("Qwen2_5OmniModel", "qwen2_5_omni_text", .within = "thinker_config"),
    WRAPPER("Qwen2_5OmniThinkerForConditionalGeneration", "qwen2_5_omni_text", .tied = false),
    WRAPPER("Qwen3ASRForConditionalGeneration", "qwen3", .tied = true, .own = "thinker_config"),
    WRAPPER("Qwen3OmniMoeForConditionalGeneration", "qwen3_omni_moe_text",
            .within = "thinker_config"),
    WRAPPER("Qwen3OmniMoeThinkerForConditionalGeneration", "qwen3_omni_moe_text", .tied = false),
    WRAPPER("SmolVLMForConditionalGeneration", "llama", .tied = false),
    WRAPPER("VideoLlama3ForConditionalGeneration", "qwen2", .text_ties = true),
    WRAPPER("VideoLlavaForConditionalGeneration", "llama", .tied = false),
    WRAPPER("VipLlavaForConditionalGeneration", "llama", .tied = false),
    WRAPPER("VoxtralForConditionalGeneration", "llama", .ties_inside = true),
};

/* Names in text_config that stand for a family of another name. */
static const struct {
  const char *type, *family;
} aliases[] = {
    {"kimi_k2", "deepseek_v3"}, {"exaone4_5_text", "exaone4"}, {"qwen3_asr_text", "qwen3"}};

/* The reference of a wrapper leaves out the factor or cap of the logits that the text model has
 * when it stands alone, other programs do not; so it is unknown which of them a file means. */
static bool scales_logits(const family_t *family) {
  return family->granite_keys || family->logit_scale != 0 || family->gemma_keys ||
         family->gemma4_keys || family->mixer_keys == MIXERS_GRANITE ||
         family->mixer_keys == MIXERS_FALCON;
}

const wrapper_t *family_wrapper(const char *architecture, size_t length) {
  for (size_t i = 0; i < ARRAY_LEN(wrappers); i++) {
    const char *name = wrappers[i].architecture;
    if (strlen(name) == length && memcmp(name, architecture, length) == 0) return &wrappers[i];
  }
  return NULL;
}

/* The object that has the keys of the text model, or NULL. reader->outer becomes what is around. */
static const json_t *find_text(config_reader_t *reader, const wrapper_t *wrapper) {
  const char *const key = wrapper->text_key != NULL ? wrapper->text_key : "text_config";
  reader->is_own = wrapper->own != NULL && json_get(reader->root, wrapper->own) != NULL;
  const char *const path[] = {reader->is_own ? wrapper->own : wrapper->within, key};
  const json_t *place = reader->root;
  for (size_t i = 0; i < ARRAY_LEN(path); i++) {
    if (path[i] == NULL) continue;
    reader->outer = place;
    if (path[i][0] == '\0') return place;
    const json_t *inner = json_get(place, path[i]);
    if (inner == NULL || inner->type != JSON_OBJECT) {
      config_refuse(reader, path[i], inner, inner == NULL ? "is missing" : "an object");
      return NULL;
    }
    place = inner;
  }
  return place;
}

const family_t *config_enter_wrapper(config_reader_t *reader, const wrapper_t *wrapper) {
  const json_t *text = find_text(reader, wrapper);
  if (text == NULL) return NULL;
  const json_t *type = text != reader->outer ? json_get(text, "model_type") : NULL;
  const char *name = wrapper->text_type;
  size_t length = strlen(name);
  if (type != NULL && type->type == JSON_STRING) {
    name = type->text;
    length = type->length;
  }
  for (size_t i = 0; i < ARRAY_LEN(aliases); i++) {
    if (strlen(aliases[i].type) != length || memcmp(aliases[i].type, name, length) != 0) continue;
    name = aliases[i].family;
    length = strlen(name);
  }
  reader->root = text;
  const family_t *family = family_by_text(wrapper->architecture, name, length);
  if (family == NULL) family = family_by_text_type(name, length);
  if (family == NULL || family->encoder || scales_logits(family)) {
    config_refuse(reader, "model_type", type, "a family of docs/models.md for the text of %s",
                  wrapper->architecture);
    return NULL;
  }
  return family;
}

bool config_ties(config_reader_t *reader, const wrapper_t *wrapper, const family_t *family) {
  const wrapper_t own = {.tied = family->tied, .text_ties = family->text_ties};
  config_reader_t outer = *reader, inner = *reader;
  if (reader->outer == NULL) return config_bool(reader, KEYS("tie_word_embeddings"), family->tied);
  if (wrapper == NULL) wrapper = &own; /* the family is nested */
  outer.root = reader->outer;
  outer.outer = inner.outer = NULL;
  bool tied = false;
  const bool inside = wrapper->ties_inside || reader->is_own;
  if (!inside)
    tied = config_bool(&outer, KEYS("tie_embedding", "tie_word_embeddings"), wrapper->tied);
  if (!tied && (wrapper->text_ties || inside))
    tied = config_bool(&inner, KEYS("tie_word_embeddings"), family->tied);
  if (outer.code != 0) reader->code = outer.code;
  if (inner.code != 0) reader->code = inner.code;
  return tied;
}
