/* config_deberta.c: keys of DeBERTa V2 and V3: what scores have for distances.
 *
 * Any thread, no state. Reference: transformers 5.
 */
#include "engine/base/util.h"
#include "engine/model/config/config.h"

#include <math.h>
#include <string.h>

enum { DISTANCES_MAX = 1 << 15, TYPES_MAX = 1024 };

/* Whether "c2p|p2c", or a list, names one of the two. */
static bool names_part(const json_t *value, const char *part) {
  if (value == NULL) return false;
  if (value->type == JSON_STRING)
    return memmem(value->text, value->length, part, strlen(part)) != NULL;
  if (value->type != JSON_ARRAY) return false;
  JSON_EACH(each, value) {
    if (json_equals(each, part)) return true;
  }
  return false;
}

static void need_hidden(config_reader_t *reader, const char *key, int64_t right) {
  if (config_int_or_null(reader, KEYS(key), right, right, 1, INT32_MAX) != right)
    config_refuse(reader, key, config_get(reader, key), "%lld", (long long)right);
}

/* Keys of other models of the family, with the one value that is served. */
static void refuse_others(config_reader_t *reader, const blueprint_t *bp) {
  need_hidden(reader, "embedding_size", bp->hidden_size);
  need_hidden(reader, "attention_head_size", bp->head_dim);
  need_hidden(reader, "pooler_hidden_size", bp->hidden_size);
  if (config_int_or_null(reader, KEYS("conv_kernel_size"), 0, 0, 0, INT32_MAX) != 0)
    config_refuse(reader, "conv_kernel_size", config_get(reader, "conv_kernel_size"),
                  "0 (V2 XLarge and XXLarge have a convolution behind the first layer)");
  const json_t *act = config_get(reader, "pooler_hidden_act");
  if (json_is_given(act) && !json_equals(act, "gelu"))
    config_refuse(reader, "pooler_hidden_act", act, "gelu");
}

void config_read_deberta(config_reader_t *reader, const family_t *family, blueprint_t *bp) {
  encoder_t *encoder = &bp->encoder;
  if (!family->deberta_keys) return;
  refuse_others(reader, bp);
  encoder->token_types = (int32_t)config_int(reader, KEYS("type_vocab_size"), 0, 0, TYPES_MAX);
  if (!config_bool(reader, KEYS("position_biased_input"), true)) bp->num_positions = 0;
  const json_t *parts = config_get(reader, "pos_att_type");
  const bool keys = names_part(parts, "c2p"), queries = names_part(parts, "p2c");
  bp->attn_scale = 1.0 / sqrt((double)bp->head_dim * (1 + keys + queries));
  if (!config_bool(reader, KEYS("relative_attention"), false)) return;
  const int64_t positions =
      config_int(reader, KEYS("max_position_embeddings"), family->max_positions, 1, DISTANCES_MAX);
  int64_t longest =
      config_int(reader, KEYS("max_relative_positions"), -1, INT32_MIN, DISTANCES_MAX);
  const int64_t buckets =
      config_int(reader, KEYS("position_buckets"), -1, INT32_MIN, DISTANCES_MAX);
  if (longest < 1) longest = positions;
  encoder->distance_keys = keys;
  encoder->distance_queries = queries;
  encoder->distance_span = (int32_t)(buckets > 0 ? buckets : longest);
  encoder->distance_longest = buckets > 0 ? (int32_t)longest : 0;
  /* Below that the logarithm leaves entries out, and a block of keys has too many of them. */
  if (encoder->distance_span < 4 || (buckets > 0 && longest <= buckets))
    config_refuse(reader, "position_buckets", config_get(reader, "position_buckets"),
                  "4 or more, and below max_relative_positions, %lld", (long long)longest);
  const json_t *norm = config_get(reader, "norm_rel_ebd");
  encoder->distance_norm = json_is_given(norm) && !json_equals(norm, "none");
  if (encoder->distance_norm && !json_equals(norm, "layer_norm"))
    config_refuse(reader, "norm_rel_ebd", norm, "none, layer_norm");
  if ((keys || queries) && !config_bool(reader, KEYS("share_att_key"), false))
    config_refuse(reader, "share_att_key", config_get(reader, "share_att_key"),
                  "true (keys of distances have no projections of their own)");
}
