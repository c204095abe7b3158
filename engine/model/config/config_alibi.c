/* config_alibi.c: scores that fall with the distance (ALiBi), or have a number for it (MPNet).
 *
 * Any thread, no state. Reference: transformers 5.
 */
#include "engine/base/util.h"
#include "engine/model/config/config.h"

enum { BUCKETS = 32, DISTANCE_MAX = 128, ALIBI_MAX = 8 };

static void need_number(config_reader_t *reader, const char *key, int64_t number) {
  if (config_int(reader, KEYS(key), number, INT32_MIN, INT32_MAX) != number)
    config_refuse(reader, key, config_get(reader, key), "%lld", (long long)number);
}

/* MPT: the keys of its attn_config. */
static void read_mpt(config_reader_t *reader, blueprint_t *bp) {
  static const char *const must_be_off[] = {"prefix_lm", "qk_ln", "attn_uses_sequence_id"};
  config_reader_t inner = *reader;
  inner.outer = NULL;
  inner.root = config_get(reader, "attn_config");
  if (!json_is_given(inner.root)) return;
  for (size_t i = 0; i < ARRAY_LEN(must_be_off); i++)
    if (config_bool(&inner, KEYS(must_be_off[i]), false))
      config_refuse(&inner, must_be_off[i], config_get(&inner, must_be_off[i]), "false");
  const json_t *type = config_get(&inner, "attn_type");
  if (json_is_given(type) && !json_equals(type, "multihead_attention"))
    config_refuse(&inner, "attn_type", type, "multihead_attention");
  if (!config_bool(&inner, KEYS("alibi"), true))
    config_refuse(&inner, "alibi", config_get(&inner, "alibi"), "true");
  need_number(&inner, "alibi_bias_max", ALIBI_MAX); /* the reference takes 8 */
  if (json_is_given(config_get(&inner, "clip_qkv")))
    bp->qkv_limit = config_double(&inner, KEYS("clip_qkv"), 0, 0, 1e6, false);
  if (json_is_given(config_get(&inner, "softmax_scale")))
    bp->attn_scale = config_double(&inner, KEYS("softmax_scale"), 0, 0, 1e6, true);
  reader->code = inner.code;
}

void config_read_distances(config_reader_t *reader, const family_t *family, blueprint_t *bp) {
  if (family->alibi) bp->alibi_max = ALIBI_MAX;
  for (int32_t i = 0; family->alibi && i < bp->num_layers; i++) bp->layer_flags[i] |= LAYER_NO_ROPE;
  if (family->mpt_keys) read_mpt(reader, bp);
  bp->distance_buckets = family->distances ? BUCKETS : 0;
  if (family->distances) need_number(reader, "relative_attention_num_buckets", BUCKETS);
  if (family->distances) need_number(reader, "relative_attention_max_distance", DISTANCE_MAX);
}
