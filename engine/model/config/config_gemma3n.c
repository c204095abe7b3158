/* config_gemma3n.c: the keys that Gemma 3n alone has: residual streams, what stands beside
 * attention, MLPs that keep the largest values.
 *
 * Any thread, no state.
 */
#include "engine/model/config/config.h"

#include <math.h>

enum { STREAMS = 4, LAUREL_RANK = 64, SHARED_LAYERS = 15, SPARSE_LAYERS = 10 }; /* class defaults */
enum { LAUREL_RANK_MAX = 1 << 16 };
static const double SPARSITY = 0.95; /* class default, of models of more than SPARSE_LAYERS */

/* The share of values of a gate that a layer makes 0; of all layers the same, or none. */
static void read_sparsity(config_reader_t *reader, blueprint_t *bp) {
  const json_t *list = config_get(reader, "activation_sparsity_pattern");
  int32_t layer = 0;
  double each = 0;
  if (!json_is_given(list)) {
    bp->mlp_sparsity = bp->num_layers > SPARSE_LAYERS ? SPARSITY : 0;
    for (; bp->mlp_sparsity > 0 && layer < SPARSE_LAYERS; layer++)
      bp->layer_flags[layer] |= LAYER_SPARSE;
    return;
  }
  bool good = list->type == JSON_ARRAY && list->count == (uint32_t)bp->num_layers;
  JSON_EACH(item, good ? list : NULL) {
    good = good && json_double(item, &each) && each >= 0 && each < 1 &&
           (each == 0 || bp->mlp_sparsity == 0 || each == bp->mlp_sparsity);
    if (!good || each == 0) {
      layer++;
      continue;
    }
    bp->mlp_sparsity = each;
    bp->layer_flags[layer++] |= LAYER_SPARSE;
  }
  if (!good)
    config_refuse(reader, "activation_sparsity_pattern", NULL,
                  "supported: %d numbers from 0 to below 1, of which those above 0 are the same",
                  bp->num_layers);
}

void config_read_gemma3n(config_reader_t *reader, const family_t *family, blueprint_t *bp) {
  if (!family->gemma3n_keys) return;
  bp->embed_scale = sqrt((double)bp->hidden_size);
  bp->embed_rounds = true;
  bp->v_norm = true;
  bp->num_streams =
      (int32_t)config_int(reader, KEYS("altup_num_inputs"), STREAMS, 2, ALTUP_STREAMS_MAX);
  bp->stream_scale = config_bool(reader, KEYS("altup_correct_scale"), true);
  bp->laurel_rank =
      (int32_t)config_int(reader, KEYS("laurel_rank"), LAUREL_RANK, 1, LAUREL_RANK_MAX);
  (void)config_int(reader, KEYS("altup_active_idx"), 0, 0, 0);
  read_sparsity(reader, bp);
  config_read_sharing(reader, SHARED_LAYERS, bp);
  config_read_layer_embeddings(reader, family, bp);
  if (bp->per_layer_size == 0)
    config_refuse(reader, "hidden_size_per_layer_input", NULL, "is 0, supported: 1 and more");
}
