/* kv_plan.c: groups of layers and the contexts that a pool holds; the contract is in kv_plan.h. */
#include "engine/schedule/window/kv_plan.h"

#include "engine/base/util.h"
#include "engine/internal.h"
#include "engine/schedule/floor/floor_start.h"
#include "engine/schedule/window/window.h"

#include <stdio.h>

/* Other processes use host memory too: without options the KV pool stays within this. */
static const int32_t HOST_KV_TOKENS_DEFAULT = 131072;
/* Blocks that hold no K and V, only ids: 30 MB of them. */
static const int32_t IDS_TOKENS_DEFAULT = 1 << 20;

const char *kv_choose_groups(engine_t *engine, int32_t max_model_len) {
  const engine_options_t *options = &engine->options;
  blueprint_t *bp = &engine->blueprint;
  int32_t groups = bp->window < max_model_len ? model_window_groups(bp) : 0;
  if (groups == 0) return NULL;
  if (engine->drafter != NULL) return "a draft model";
  if (bp->shard.num_stages > 1) return "stages of a pipeline";
  if (engine->options.draft.predicts) return "a layer that predicts";
  if (options->kv_fp8) return "an fp8 cache";
  if (options->swap_space_bytes > 0) return "swap space";
  if (floor_wanted(engine)) return "a floor of the prefix cache";
  if (!engine->ops->kv_groups) return engine->ops->name;
  bp->window_groups = groups;
  return NULL;
}

/* Blocks of a sequence of num_tokens tokens, at most in_flight of which are in flight: those of the
 * layers that see everything, and those of each window group. */
static int64_t context_blocks(const blueprint_t *bp, int32_t block_size, int64_t num_tokens,
                              int32_t in_flight) {
  int64_t blocks = DIV_UP(num_tokens, block_size);
  if (bp->window_groups == 0) return blocks;
  return blocks +
         bp->window_groups * (int64_t)window_blocks(block_size, bp->window, num_tokens, in_flight);
}

/* The longest context of a sequence that runs alone, beside the null block and a spare one. */
static int64_t longest_context(const blueprint_t *bp, const kv_cache_desc_t *kv,
                               int32_t in_flight) {
  int32_t groups = bp->window_groups;
  int64_t usable = (int64_t)kv->num_blocks - 2;
  if (groups == 0) return usable * kv->block_size;
  int32_t most = window_blocks(kv->block_size, bp->window, INT32_MAX, in_flight);
  int64_t within = MIN(usable / (1 + groups), most); /* all its blocks are within the window */
  return MAX(within, usable - (int64_t)groups * most) * kv->block_size;
}

double kv_concurrency(const engine_t *engine, const kv_cache_desc_t *kv, int32_t num_tokens) {
  const blueprint_t *bp = &engine->blueprint;
  double blocks = (double)num_tokens / kv->block_size;
  if (bp->window_groups > 0) blocks = (double)context_blocks(bp, kv->block_size, num_tokens, 1);
  return (kv->num_blocks - 1) / blocks;
}

size_t kv_blocks_useful(const engine_t *engine, const kv_cache_desc_t *kv, int32_t max_model_len,
                        int32_t in_flight) {
  const blueprint_t *bp = &engine->blueprint;
  const engine_options_t *options = &engine->options;
  size_t context = (size_t)context_blocks(bp, kv->block_size, max_model_len, in_flight) + 2;
  if (bp->encoder.bidirectional) /* those of one step */
    return (size_t)(DIV_UP(options->max_num_batched_tokens, kv->block_size) +
                    options->max_num_seqs + 2);
  size_t useful = (size_t)options->max_num_seqs * context;
  const int32_t tokens = kv->num_layers > 0 ? HOST_KV_TOKENS_DEFAULT : IDS_TOKENS_DEFAULT;
  size_t modest = (size_t)(tokens / kv->block_size) * (size_t)(1 + bp->window_groups);
  if (modest < 2 * context) modest = 2 * context;
  return 2 + (engine->ops->separate_memory || useful < modest ? useful : modest);
}

int kv_fit_context(const engine_t *engine, const kv_cache_desc_t *kv, int32_t in_flight,
                   int32_t *max_model_len, inferd_error_t *error) {
  const blueprint_t *bp = &engine->blueprint;
  int64_t longest = longest_context(bp, kv, in_flight);
  if (longest >= *max_model_len) return 0;
  int32_t needed = (int32_t)context_blocks(bp, kv->block_size, *max_model_len, in_flight) + 2;
  if (longest < kv->block_size || engine->options.max_model_len > 0) {
    char lower[64] = "";
    if (longest >= kv->block_size) {
      snprintf(lower, sizeof lower, "lower --max-model-len to %lld, or ", (long long)longest);
    }
    return error_set(
        error, ERR_CONFIGURATION, "max_model_len",
        "max_model_len is %d, which needs %d KV blocks of %d (%.2f GiB), but %d are there; "
        "%sraise %s",
        *max_model_len, needed, kv->block_size,
        (double)engine->ops->kv_bytes(kv, needed) / (1 << 30), kv->num_blocks, lower,
        engine->options.num_blocks > 0 ? "--num-blocks" : "--kv-cache-bytes or --memory");
  }
  engine_say(engine, "warning: context reduced from %d to %lld tokens to fit the KV cache",
             *max_model_len, (long long)longest);
  *max_model_len = (int32_t)longest;
  return 0;
}

void kv_say_windows(const engine_t *engine, const kv_cache_desc_t *kv, int32_t max_model_len) {
  const blueprint_t *bp = &engine->blueprint;
  if (bp->window_groups == 0) return;
  int64_t all = context_blocks(bp, kv->block_size, max_model_len, 1);
  const bool by_heads = kv->window_heads > 0;
  engine_say(
      engine,
      "windows   %d groups of %d %s keep %d tokens: a full context takes %lld blocks, %lld of "
      "them in windows",
      bp->window_groups, by_heads ? kv->window_heads : kv->num_layers,
      by_heads ? "heads" : "layers", bp->window, (long long)all,
      (long long)(all - DIV_UP(max_model_len, kv->block_size)));
}

void kv_say_scales(const engine_t *engine, const float *scales, int32_t count) {
  if (scales == NULL) {
    engine_say(engine, "kv cache  e4m3 by scale 1: the checkpoint has no k_scale and v_scale");
    return;
  }
  float least = scales[0], most = scales[0];
  for (int32_t i = 1; i < count; i++) {
    if (scales[i] < least) least = scales[i];
    if (scales[i] > most) most = scales[i];
  }
  engine_say(engine, "kv cache  e4m3 by the checkpoint's scales, %g to %g", (double)least,
             (double)most);
}
