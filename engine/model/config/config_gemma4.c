/* config_gemma4.c: the keys that Gemma 4 alone has: layers of two kinds, K and V that layers share,
 * embeddings of every layer, experts beside the MLP.
 *
 * Any thread, no state.
 */
#include "engine/base/util.h"
#include "engine/model/config/config.h"
#include "engine/model/sizes.h"

#include <math.h>
#include <stdio.h>

enum { HEADS_MAX = 1024, HEAD_DIM_MAX = 512, PER_LAYER_MAX = 8192, EXPERT_SIZE_MAX = 1 << 20 };
enum { EXPERTS_MAX = 1024, EXPERTS_TOP_MAX = 64 };
static const int64_t GLOBAL_HEAD_DIM = 512; /* class default */

/* The number that is the name of a member, "5" or, since transformers 5.23, "05"; `count` if it is
 * none of a layer. */
static int32_t listed_layer(const json_t *item, int32_t count) {
  int32_t layer = 0;
  for (uint32_t i = 0; i < item->key_length; i++) {
    const char c = item->key[i];
    if (c < '0' || c > '9' || layer >= count) return count;
    layer = 10 * layer + (c - '0');
  }
  return item->key_length > 0 && layer < count ? layer : count;
}

/* Files of transformers since 5.20 list what the full layers have of their own, layer by layer. */
static void read_listed_heads(config_reader_t *reader, const json_t *list, blueprint_t *bp) {
  if (list->type != JSON_OBJECT) {
    config_refuse(reader, "per_layer_config", list, "an object");
    return;
  }
  int32_t listed = 0, full = 0;
  for (int32_t i = 0; i < bp->num_layers; i++) full += layer_is_full(bp, i);
  JSON_EACH(item, list) {
    const int32_t layer = listed_layer(item, bp->num_layers);
    config_reader_t inner = *reader;
    inner.root = item;
    inner.outer = NULL;
    int64_t dim = config_int(&inner, KEYS("head_dim"), bp->head_dim, 2, HEAD_DIM_MAX);
    int64_t heads = config_int(&inner, KEYS("num_key_value_heads"), bp->num_kv_heads, 1, HEADS_MAX);
    reader->code = inner.code;
    if (reader->code != 0) return;
    bool fits = layer < bp->num_layers && layer_is_full(bp, layer) &&
                (listed == 0 || (bp->full_head_dim == dim && bp->full_kv_heads == heads));
    bool plain = dim == bp->head_dim && heads == bp->num_kv_heads;
    if (!fits && !plain) {
      config_refuse(reader, "per_layer_config", item,
                    "the same head_dim and num_key_value_heads for every full_attention layer, and "
                    "none for the others");
      return;
    }
    if (!fits) continue;
    bp->full_head_dim = (int32_t)dim;
    bp->full_kv_heads = (int32_t)heads;
    listed++;
  }
  if (listed > 0 && listed != full)
    config_refuse(reader, "per_layer_config", NULL, "has %d of the %d full_attention layers",
                  listed, full);
}

static void read_full_heads(config_reader_t *reader, blueprint_t *bp) {
  const json_t *list = config_get(reader, "per_layer_config");
  bp->full_k_is_v = config_bool(reader, KEYS("attention_k_eq_v"), false);
  if (json_is_given(list)) {
    read_listed_heads(reader, list, bp);
  } else {
    bp->full_head_dim =
        (int32_t)config_int(reader, KEYS("global_head_dim"), GLOBAL_HEAD_DIM, 2, HEAD_DIM_MAX);
    bp->full_kv_heads =
        (int32_t)config_int_or_null(reader, KEYS("num_global_key_value_heads"), bp->num_kv_heads,
                                    bp->num_kv_heads, 1, HEADS_MAX);
    if (!bp->full_k_is_v) bp->full_kv_heads = bp->num_kv_heads; /* the key goes with the other */
  }
  if (reader->code != 0) return;
  if (bp->full_head_dim % 2 != 0)
    config_refuse(reader, "global_head_dim", NULL, "is %d, supported: even", bp->full_head_dim);
  if (bp->full_kv_heads > 0 && bp->num_heads % bp->full_kv_heads != 0)
    config_refuse(reader, "num_global_key_value_heads", NULL,
                  "is %d, which does not divide num_attention_heads, %d", bp->full_kv_heads,
                  bp->num_heads);
}

/* Layers that share K and V need one of their kind before them that stores these. */
void config_read_sharing(config_reader_t *reader, int32_t absent, blueprint_t *bp) {
  bp->num_kv_shared = (int32_t)config_int(reader, KEYS("num_kv_shared_layers"), absent, 0,
                                          bp->num_layers > 1 ? bp->num_layers - 1 : 0);
  bp->kv_shared_wide = config_bool(reader, KEYS("use_double_wide_mlp"), false);
  if (bp->num_kv_shared == 0 || reader->code != 0) return;
  bool stores[2] = {false, false};
  for (int32_t i = 0; i < bp->num_layers; i++) {
    bool full = layer_is_full(bp, i);
    if (!layer_reads_only(bp, i)) stores[full] = true;
    if (stores[full]) continue;
    config_refuse(reader, "num_kv_shared_layers", NULL,
                  "is %d, but layer %d has no %s_attention layer before these to share with",
                  bp->num_kv_shared, i, full ? "full" : "sliding");
    return;
  }
}

void config_read_layer_embeddings(config_reader_t *reader, const family_t *family,
                                  blueprint_t *bp) {
  bp->per_layer_size = (int32_t)config_int_or_null(reader, KEYS("hidden_size_per_layer_input"),
                                                   family->per_layer_size, 0, 0, PER_LAYER_MAX);
  int64_t rows = config_int(reader, KEYS("vocab_size_per_layer_input"), 262144, 1, INT32_MAX);
  bp->layer_vocab = (int32_t)rows;
  if (bp->per_layer_size > 0 && rows != bp->vocab_size && !family->gemma3n_keys)
    config_refuse(reader, "vocab_size_per_layer_input", NULL,
                  "is %lld, supported: vocab_size, which is %d", (long long)rows, bp->vocab_size);
  bp->picture_id =
      (int32_t)config_int(reader, KEYS("pad_token_id"), 0, 0, MAX(bp->vocab_size - 1, 0));
}

void config_read_gemma4(config_reader_t *reader, const family_t *family, blueprint_t *bp) {
  if (!family->gemma4_keys) return;
  const json_t *both = config_get(reader, "use_bidirectional_attention");
  if (json_is_given(both) && !json_equals(both, "vision")) /* which is not for text */
    config_refuse(reader, "use_bidirectional_attention", both, "null or \"vision\"");
  bp->picture_mask = json_is_given(both) ? PICTURES_WHOLE_WHERE_SLIDING : PICTURES_CAUSAL;
  bp->layer_flags[bp->num_layers - 1] &= (uint8_t)~LAYER_SLIDES; /* as transformers forces it */
  bp->embed_scale = sqrt((double)bp->hidden_size);
  bp->embed_rounds = true;
  bp->attn_scale = 1.0;
  bp->v_norm = bp->layer_scalars = true;
  const json_t *cap = config_get(reader, "final_logit_softcapping");
  if (json_is_given(cap))
    bp->final_softcap = config_double(reader, KEYS("final_logit_softcapping"), 0, 0, 1e6, true);
  read_full_heads(reader, bp);
  if (reader->code == 0) config_read_sharing(reader, 0, bp);
  config_read_layer_embeddings(reader, family, bp);
}

void config_read_beside(config_reader_t *reader, blueprint_t *bp) {
  if (!config_bool(reader, KEYS("enable_moe_block"), false)) return;
  static const char *const needed[] = {"num_experts", "top_k_experts", "moe_intermediate_size"};
  for (int i = 0; i < 3; i++) {
    if (!json_is_given(config_get(reader, needed[i])))
      config_refuse(reader, needed[i], NULL, "is missing beside enable_moe_block");
  }
  bp->num_experts = (int32_t)config_int(reader, KEYS("num_experts"), 1, 1, EXPERTS_MAX);
  bp->experts_top = (int32_t)config_int(reader, KEYS("top_k_experts"), 1, 1, EXPERTS_TOP_MAX);
  bp->expert_size =
      (int32_t)config_int(reader, KEYS("moe_intermediate_size"), 1, 1, EXPERT_SIZE_MAX);
  if (bp->experts_top > bp->num_experts)
    config_refuse(reader, "top_k_experts", NULL, "is %d, more than the %d experts", bp->experts_top,
                  bp->num_experts);
  bp->experts_beside = bp->experts_normalise = true;
  for (int32_t i = 0; i < bp->num_layers; i++) bp->layer_flags[i] |= LAYER_EXPERTS;
}
