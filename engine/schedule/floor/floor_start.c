/* floor_start.c: the floor of an engine, at its start; the contract is in floor_start.h. */
#include "engine/schedule/floor/floor_start.h"

#include "engine/base/hash.h"
#include "engine/base/util.h"
#include "engine/internal.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

static const double GIB = 1024.0 * 1024.0 * 1024.0;
static const int64_t FILE_BYTES_DEFAULT = (int64_t)4 << 30;

static bool has_file(const engine_t *engine) {
  return engine->options.prefix_cache_file != NULL;
}

static int64_t space(const engine_t *engine) {
  int64_t bytes = engine->options.prefix_cache_bytes;
  return bytes >= 0 ? bytes : has_file(engine) ? FILE_BYTES_DEFAULT : 0;
}

bool floor_wanted(const engine_t *engine) {
  return space(engine) > 0;
}

static int refuse(const engine_t *engine, const char *why, inferd_error_t *error) {
  const char *option = has_file(engine) ? "prefix_cache_file" : "prefix_cache_space";
  return error_set(error, ERR_CONFIGURATION, option, "%s is set, but %s", option, why);
}

int floor_check(const engine_t *engine, inferd_error_t *error) {
  const swap_ops_t *swap = engine->ops->swap;
  char why[160];
  if (!floor_wanted(engine)) return 0;
  if (!engine->options.enable_prefix_caching || engine->blueprint.encoder.bidirectional)
    return refuse(engine, "there is no prefix cache", error);
  if (engine->blueprint.mixer.kind != MIXER_NONE) {
    snprintf(why, sizeof why, "the model (%s) has layers with a state, which is not copied",
             engine->blueprint.architecture);
    return refuse(engine, why, error);
  }
  if (has_file(engine) && engine->options.draft_model_dir != NULL)
    return refuse(engine, "the blocks of a draft model are not kept in a file", error);
  if (swap != NULL && swap->is_lent == has_file(engine)) return 0;
  snprintf(why, sizeof why, "%s %s", engine->ops->name,
           has_file(engine) ? "keeps no blocks in a file; it does with --device cpu"
                            : "has all blocks in host memory: raise --kv-cache-bytes instead, or "
                              "give --prefix-cache-file");
  return refuse(engine, why, error);
}

/* A hash of config.json: what it says of positions decides bits of K, and the hash of the weights
 * does not have it. 0 if there is none: then it is in the file of the weights. */
static uint64_t hash_config(const engine_t *engine) {
  char path[PATH_MAX], bytes[4096];
  snprintf(path, sizeof path, "%s/config.json", engine->options.model_dir);
  FILE *file = fopen(path, "re");
  if (file == NULL) return 0;
  uint64_t hash = FNV_64_BASIS;
  for (size_t n; (n = fread(bytes, 1, sizeof bytes, file)) > 0;) hash = fnv_64(hash, bytes, n);
  fclose(file);
  return hash;
}

/* All that decides the bits of K and V of a prompt. The description of the device is its
 * instruction set behind the number of threads, on which no bit depends. */
static void identify(const engine_t *engine, int32_t max_model_len, floor_shape_t *shape) {
  const engine_options_t *options = &engine->options;
  const blueprint_t *bp = &engine->blueprint;
  const char *isa = strrchr(engine->ops->describe(engine->device), ',');
  snprintf(shape->identity, sizeof shape->identity,
           "inferd %s %s, model %016llx %016llx %.64s, type %d, q8 %d, cache %d %d, block %d of "
           "%zu, layers %d, context %d, %s%s",
           INFERD_VERSION, INFERD_COMMIT,
           (unsigned long long)(sight_weights_hash(engine) + encoding_hash(engine)),
           (unsigned long long)hash_config(engine), bp->architecture, (int)bp->dtype,
           options->quantise_q8, options->kv_fp8, options->kv_int8, shape->block_size,
           shape->content_bytes, bp->num_layers, max_model_len, engine->ops->name,
           isa != NULL ? isa : "");
}

static int open_file(engine_t *engine, int32_t block_size, int32_t max_model_len,
                     floor_plan_t *plan, inferd_error_t *error) {
  const char *path = engine->options.prefix_cache_file;
  char why[128] = "";
  floor_shape_t shape = {
      .num_places = plan->num_places, .block_size = block_size, .content_bytes = plan->block_bytes};
  identify(engine, max_model_len, &shape);
  int verdict =
      floor_file_open(path, &shape, plan->secret, &engine->floor_file, &plan->memory, why, error);
  if (verdict < 0) return verdict;
  if (verdict == FLOOR_EMPTIED)
    engine_say(engine, "warning: %.120s: %s; what it held is ignored", path, why);
  if (verdict == FLOOR_LEFT) {
    engine_say(engine, "warning: %.120s: %s; no file of cached blocks is used", path, why);
    plan->num_places = 0;
  }
  return 0;
}

int floor_plan(engine_t *engine, int32_t block_size, int32_t max_model_len, floor_plan_t *plan,
               inferd_error_t *error) {
  int64_t bytes = space(engine), count = bytes / (int64_t)plan->block_bytes;
  if (bytes == 0) return 0;
  plan->num_places = (int32_t)MIN(count, INT32_MAX / 4);
  if (count == 0)
    return error_set(
        error, ERR_CONFIGURATION, "prefix_cache_space",
        "prefix_cache_space is %lld bytes; it must be 0, or hold a block of %d tokens, %zu bytes",
        (long long)bytes, block_size, plan->block_bytes);
  return has_file(engine) ? open_file(engine, block_size, max_model_len, plan, error) : 0;
}

int floor_start(engine_t *engine, const floor_plan_t *plan, int32_t first_host,
                inferd_error_t *error) {
  if (plan->num_places == 0) return 0;
  floor_options_t options = {.num_places = plan->num_places,
                             .first_host = first_host,
                             .block_size = engine->pool->block_size,
                             .num_blocks = engine->pool->num_blocks,
                             .persists = has_file(engine),
                             .memory = plan->memory};
  int code = floor_new(&options, &engine->pool->floor, error);
  if (code != 0) return code;
  double size = (double)plan->block_bytes * (double)plan->num_places / GIB;
  if (!options.persists) {
    engine_say(engine, "cache     %.2f GiB of host memory behind it (%d blocks)", size,
               (int)plan->num_places);
  } else {
    engine_say(engine, "cache     %.2f GiB in a file (%d blocks, %d with content)", size,
               (int)plan->num_places, (int)engine->pool->floor->num_used);
  }
  return 0;
}

void floor_end(engine_t *engine) {
  if (engine->pool != NULL) floor_free(engine->pool->floor);
  floor_file_close(&engine->floor_file);
}
