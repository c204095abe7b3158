/* config_latent.c: the ranks and heads of latent attention.
 *
 * Any thread, no state.
 */
#include "engine/model/config/config.h"

#include <math.h>

enum { RANK_MAX = 1 << 16, PART_MAX = 512, ROW_MAX = 1024 };

/* A key that must say what follows from others anyway. */
static void need_same(config_reader_t *reader, const char *key, int64_t number) {
  const json_t *value = config_get(reader, key);
  int64_t found;
  if (!json_is_given(value) || (json_int64(value, &found) && found == number)) return;
  config_refuse(reader, key, value, "%lld", (long long)number);
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
