/* wrappers.c: models that see images or hear sound around a text model of any family.
 *
 * Such a model has the keys of the text model in text_config; its model_type names the family. The
 * tensors stand behind a prefix that the layouts know. Constant data and no state; any thread.
 */
#include "engine/base/util.h"
#include "engine/model/config/config.h"

#include <string.h>

static const wrapper_t wrappers[] = {
    {.architecture = "Exaone4_5_ForConditionalGeneration", .text_type = "exaone4"},
    {.architecture = "Glm46VForConditionalGeneration",
     .text_type = "glm4v_text",
     .text_ties = true},
    {.architecture = "Idefics3ForConditionalGeneration", .text_type = "llama"},
    {.architecture = "InternVLForConditionalGeneration", .text_type = "qwen2", .tied = true},
    {.architecture = "KimiK25ForConditionalGeneration", .text_type = "deepseek_v3", .tied = true},
    {.architecture = "Kimi_K25ForConditionalGeneration", .text_type = "deepseek_v3", .tied = true},
    {.architecture = "Lfm2VlForConditionalGeneration", .text_type = "lfm2", .tied = true},
    {.architecture = "LlavaForConditionalGeneration", .text_type = "llama", .text_ties = true},
    {.architecture = "LlavaNextForConditionalGeneration", .text_type = "llama", .text_ties = true},
    {.architecture = "LlavaOnevisionForConditionalGeneration",
     .text_type = "qwen2",
     .text_ties = true},
    {.architecture = "SmolVLMForConditionalGeneration", .text_type = "llama"},
};

/* Names in text_config that stand for a family of another name. */
static const struct {
  const char *type, *family;
} aliases[] = {{"kimi_k2", "deepseek_v3"}, {"exaone4_5_text", "exaone4"}};

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

const family_t *config_enter_wrapper(config_reader_t *reader, const wrapper_t *wrapper) {
  const json_t *text = json_get(reader->root, "text_config");
  if (text == NULL || text->type != JSON_OBJECT) {
    config_refuse(reader, "text_config", text, text == NULL ? "is missing" : "an object");
    return NULL;
  }
  const json_t *type = json_get(text, "model_type");
  const char *name = wrapper->text_type;
  size_t length = strlen(name);
  if (type != NULL && type->type == JSON_STRING) {
    name = type->text;
    length = type->length;
  }
  for (size_t i = 0; i < ARRAY_LEN(aliases); i++) {
    if (!json_equals(type, aliases[i].type)) continue;
    name = aliases[i].family;
    length = strlen(name);
  }
  reader->outer = reader->root;
  reader->root = text;
  const family_t *family = family_by_text_type(name, length);
  if (family == NULL || family->encoder || scales_logits(family)) {
    config_refuse(reader, "model_type", type, "a family of docs/models.md for the text of %s",
                  wrapper->architecture);
    return NULL;
  }
  return family;
}

bool config_wrapper_ties(config_reader_t *reader, const wrapper_t *wrapper, bool text_default) {
  config_reader_t outer = *reader, inner = *reader;
  outer.root = reader->outer;
  outer.outer = inner.outer = NULL;
  bool tied = config_bool(&outer, KEYS("tie_embedding", "tie_word_embeddings"), wrapper->tied);
  if (!tied && wrapper->text_ties)
    tied = config_bool(&inner, KEYS("tie_word_embeddings"), text_default);
  if (outer.code != 0) reader->code = outer.code;
  if (inner.code != 0) reader->code = inner.code;
  return tied;
}
