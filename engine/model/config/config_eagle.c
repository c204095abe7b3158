/* config_eagle.c: what config.json says of a head of EAGLE-3; eagle.h has the formula.
 *
 * Layers of the target are counted in two ways: eagle_aux_hidden_state_layer_ids of vLLM are layers
 * before which the head reads, those in eagle_config (SGLang, ModelOpt) are layers behind which it
 * does. Any thread.
 */
#include "engine/base/util.h"
#include "engine/model/config/config.h"

static void read_layers(config_reader_t *reader, const json_t *list, int32_t shift,
                        eagle_config_t *out) {
  static const char *const key = "eagle_aux_hidden_state_layer_ids";
  int32_t count = 0;
  int64_t layer;
  if (!json_is_given(list)) return;
  bool good = list->type == JSON_ARRAY && list->count == EAGLE_LAYERS;
  if (good) {
    JSON_EACH(item, list) {
      good = good && json_int64(item, &layer) && layer >= 0 && layer < MODEL_LAYERS_MAX;
      out->layers[count++] = good ? (int32_t)layer + shift : 0;
    }
  }
  if (!good) config_refuse(reader, key, list, "a list of %d layers of the target", EAGLE_LAYERS);
  out->has_layers = true;
}

/* Keys of other heads: each changes the formula. */
static void refuse_variants(config_reader_t *reader, const json_t *inner) {
  static const char *const off[] = {"norm_before_fc", "fc_norm", "norm_output", "parallel_drafting",
                                    "bias"};
  for (size_t i = 0; i < ARRAY_LEN(off); i++) {
    const json_t *value = config_get(reader, off[i]);
    if (json_is_given(value) && value->type != JSON_FALSE)
      config_refuse(reader, off[i], value, "absent or false in a head that drafts");
  }
  const json_t *aux = inner != NULL ? json_get(inner, "use_aux_hidden_state") : NULL;
  if (json_is_given(aux) && aux->type != JSON_TRUE)
    config_refuse(reader, "use_aux_hidden_state", aux, "true: rows of three layers of the target");
}

void config_read_eagle(config_reader_t *reader, const family_t *family, blueprint_t *bp) {
  if (!family->eagle) return;
  const json_t *inner = config_get(reader, "eagle_config");
  if (inner != NULL && inner->type != JSON_OBJECT) inner = NULL;
  const json_t *layers = config_get(reader, "eagle_aux_hidden_state_layer_ids");
  bp->eagle.target_size = (int32_t)config_int_or_null(
      reader, KEYS("target_hidden_size"), bp->hidden_size, bp->hidden_size, 1, INT32_MAX / 8);
  bp->eagle.target_vocab = bp->vocab_size;
  bp->eagle.norm_residual = config_bool(reader, KEYS("norm_before_residual"), false);
  bp->vocab_size = (int32_t)config_int_or_null(reader, KEYS("draft_vocab_size"), bp->vocab_size,
                                               bp->vocab_size, 1, bp->vocab_size);
  if (bp->num_layers != 1)
    config_refuse(reader, "num_hidden_layers", NULL, "is %d, a head that drafts has 1",
                  bp->num_layers);
  if (bp->tied)
    config_refuse(reader, "tie_word_embeddings", NULL,
                  "is true: a head that drafts has a projection to logits of its own");
  read_layers(reader, layers, 0, &bp->eagle);
  if (!bp->eagle.has_layers && inner != NULL)
    read_layers(reader, json_get(inner, "eagle_aux_hidden_state_layer_ids"), 1, &bp->eagle);
  refuse_variants(reader, inner);
}
