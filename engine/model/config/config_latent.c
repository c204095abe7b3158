/* config_latent.c: the ranks and heads of latent attention.
 *
 * Any thread, no state.
 */
#include "engine/model/config/config.h"

#include "engine/base/util.h"

#include <math.h>

enum {
  INDEX_HEADS_MAX = 1024,
  INDEX_TOP_MAX = 1 << 20,
  RANK_MAX = 1 << 16,
  PART_MAX = 512,
  ROW_MAX = 1024
};

/* A key that must say what follows from others anyway. */
static void need_same(config_reader_t *reader, const char *key, int64_t number) {
  const json_t *value = config_get(reader, key);
  int64_t found;
  if (!json_is_given(value) || (json_int64(value, &found) && found == number)) return;
  config_refuse(reader, key, value, "%lld", (long long)number);
}

/* GLM-5: which layers have an indexer of their own; the first one has. */
static void read_shared(config_reader_t *reader, blueprint_t *bp) {
  const json_t *types = config_get(reader, "indexer_types");
  const char *key = "indexer_types";
  const int64_t often = config_int_or_null(reader, KEYS("index_topk_freq"), 1, 1, 1, INT32_MAX);
  const int64_t skipped =
      config_int_or_null(reader, KEYS("index_skip_topk_offset"), 2, 2, 0, INT32_MAX);
  if (!json_is_given(types)) types = config_get(reader, key = "index_topk_pattern");
  const bool text = json_is_given(types) && types->type == JSON_STRING;
  if (json_is_given(types) && !text && types->type != JSON_ARRAY) {
    config_refuse(reader, key, types, "a list of full and shared");
    return;
  }
  if (json_is_given(types) && (text ? types->length : types->count) != (uint32_t)bp->num_layers) {
    config_refuse(reader, key, NULL, "has %u layers, but num_hidden_layers is %d",
                  text ? (unsigned)types->length : types->count, bp->num_layers);
    return;
  }
  const json_t *type = json_is_given(types) && !text ? json_first(types) : NULL;
  for (int32_t i = 0; i < bp->num_layers; i++) {
    bool own = (MAX(i - skipped + 1, 0) % often) == 0, known = true;
    if (text) {
      own = types->text[i] == 'F';
      known = own || types->text[i] == 'S';
    } else if (type != NULL) {
      own = json_equals(type, "full");
      known = own || json_equals(type, "shared");
      if (known) type = json_next(type);
    }
    if (!known || (i == 0 && !own)) {
      config_refuse(reader, key, type, "full, shared, the first of them full (layer %d)", i);
      return;
    }
    bp->layer_flags[i] |= own ? 0 : LAYER_CHOSEN;
  }
}

/* What chooses the keys that a token attends to. Before the flags of layers are set by others. */
void config_read_indexer(config_reader_t *reader, const family_t *family, blueprint_t *bp) {
  if (family->index_top == 0) return;
  bp->index_heads =
      (int32_t)config_int(reader, KEYS("index_n_heads"), family->index_heads, 1, INDEX_HEADS_MAX);
  bp->index_dim =
      (int32_t)config_int(reader, KEYS("index_head_dim"), family->index_dim, 2, PART_MAX);
  bp->index_top =
      (int32_t)config_int(reader, KEYS("index_topk"), family->index_top, 1, INDEX_TOP_MAX);
  bp->index_pairs = family->index_pairs;
  if (bp->q_rank == 0)
    config_refuse(reader, "q_lora_rank", NULL, "is null, which %s cannot have",
                  family->architecture);
  if (bp->index_dim < bp->rope_dim || bp->kv_rank + bp->rope_dim + bp->index_dim > ROW_MAX)
    config_refuse(reader, "index_head_dim", NULL,
                  "is %d, supported: from qk_rope_head_dim, %d, and with kv_lora_rank and that up "
                  "to %d",
                  bp->index_dim, bp->rope_dim, ROW_MAX);
  if (family->index_shared) read_shared(reader, bp);
}

void config_read_latent(config_reader_t *reader, const family_t *family, blueprint_t *bp) {
  bp->kv_rank = (int32_t)config_int(reader, KEYS("kv_lora_rank"), family->kv_rank, 2, ROW_MAX);
  bp->q_rank =
      (int32_t)config_int_or_null(reader, KEYS("q_lora_rank"), family->q_rank, 0, 1, RANK_MAX);
  bp->rope_dim =
      (int32_t)config_int(reader, KEYS("qk_rope_head_dim"), family->rope_dim, 2, PART_MAX);
  int32_t nope =
      (int32_t)config_int(reader, KEYS("qk_nope_head_dim"), family->nope_dim, 1, PART_MAX);
  bp->value_dim = (int32_t)config_int(reader, KEYS("v_head_dim"), family->value_dim, 1, PART_MAX);
  bp->head_dim = nope + bp->rope_dim;
  need_same(reader, "num_key_value_heads", bp->num_heads);
  need_same(reader, "head_dim", family->whole_factor ? bp->head_dim : bp->rope_dim);
  if (config_bool(reader, KEYS("mlp_bias"), false))
    config_refuse(reader, "mlp_bias", config_get(reader, "mlp_bias"), "false for %s",
                  family->architecture);
  if (bp->kv_rank % 2 != 0 || bp->rope_dim % 2 != 0 || bp->kv_rank + bp->rope_dim > ROW_MAX) {
    config_refuse(reader, "kv_lora_rank", NULL,
                  "is %d and qk_rope_head_dim %d, supported: even numbers, together up to %d",
                  bp->kv_rank, bp->rope_dim, ROW_MAX);
  }
}

/* Where yarn stretches the context, scores grow by the square of mscale. */
void config_scale_latent(blueprint_t *bp) {
  const rope_config_t *rope = &bp->rope;
  double mscale = 1.0;
  if (rope->type == ROPE_YARN && rope->mscale_all_dim > 0 && rope->factor > 1)
    mscale = 0.1 * rope->mscale_all_dim * log(rope->factor) + 1.0;
  bp->attn_scale = mscale * mscale / sqrt((double)bp->head_dim);
}
