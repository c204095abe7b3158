/* replicas.c: what replicas know of each other, and which one gets a request; see replicas.h. */
#include "engine/replicas/replicas.h"

#include "engine/base/random.h"
#include "engine/base/util.h"
#include "engine/device/topology.h"
#include "engine/internal.h"
#include "engine/quota.h"
#include "engine/replicas/routes.h"

#include <stdlib.h>
#include <time.h>

enum {
  AWAIT_NS = 5000000,
  /* Of a longer prompt the first blocks decide. Prompts of 1,024 tokens and more come hashed. */
  ROUTED_BLOCKS_MAX = 1024,
  /* What a request that has not ended is taken to have left, in tokens. */
  TOKENS_LEFT = 64
};

/* ---- start and end ---- */

void replicas_free(engine_t *engine) {
  for (int32_t i = 0; i < REPLICAS_MAX; i++) routes_free(engine->replicas.routes[i]);
  free(engine->replicas.uncached);
  if (engine->replicas.leader != NULL) engine->share = NULL;
}

int32_t replicas_planned(const engine_t *engine) {
  return MAX(engine->options.num_replicas, 1); /* all but the leader count themselves */
}

/* The replicas of the leader's options: not all may be made yet. */
static int32_t count_all(const engine_t *engine) {
  const engine_t *leader = engine->replicas.leader;
  return replicas_planned(leader != NULL ? leader : engine);
}

void replicas_take_processors(engine_t *engine) {
  const int32_t count = count_all(engine), index = engine->replicas.index;
  if (count == 1) return;
  const int total = topology_num_cpus(); /* a cgroup may allow less than the mask */
  if (engine->options.num_threads == 0)
    engine->options.num_threads = MAX(total * (index + 1) / count - total * index / count, 1);
  topology_take_share(index, count);
  if (index == 0)
    engine_say(engine, "replicas  %d of one model, each with a share of %d processors", count,
               total);
}

int replicas_check(const engine_t *engine, inferd_error_t *error) {
  const engine_options_t *options = &engine->options;
  const int32_t count = count_all(engine);
  const struct {
    bool refused;
    const char *option, *what;
  } rows[] = {
      {!engine->ops->lends_weights, "device", "replicas run on a CPU only, not on this device"},
      {options->comm != NULL || options->planned_ranks > 1, "tensor_parallel_size",
       "with several ranks (tensor_parallel_size, pipeline_parallel_size) a model has no replicas"},
      {options->draft_model_dir != NULL, "speculative_model",
       "with a speculative_model there are no replicas"},
      {options->prefix_cache_file != NULL, "prefix_cache_file",
       "a prefix_cache_file cannot be written by several replicas"}};
  for (size_t i = 0; count > 1 && i < ARRAY_LEN(rows); i++) {
    if (!rows[i].refused) continue;
    return error_set(error, ERR_CONFIGURATION, rows[i].option,
                     "data_parallel_size is %d, but %s; use data_parallel_size 1", count,
                     rows[i].what);
  }
  return 0;
}

int replicas_await(engine_t *engine, inferd_error_t *error) {
  const engine_t *leader = engine->replicas.leader;
  const struct timespec pause = {.tv_nsec = AWAIT_NS};
  engine_options_t *options = &engine->options;
  if (leader == NULL) return 0;
  while (atomic_load(&leader->state) == ENGINE_LOADING) nanosleep(&pause, NULL);
  if (atomic_load(&leader->state) != ENGINE_READY) {
    *error = leader->failure;
    return error->code;
  }
  engine->replicas.device = leader->device;
  options->max_model_len = leader->info.max_model_len;
  options->num_blocks = leader->info.num_blocks;
  options->num_snapshots = leader->scheduler->options.num_snapshots;
  options->enable_prefix_caching = leader->options.enable_prefix_caching;
  return 0;
}

/* ---- the choice ---- */

typedef struct load {
  int64_t tokens;   /* of prompts that wait, without what is cached */
  int32_t requests; /* that have not ended */
} load_t;

/* The keys of the first blocks of a prompt: those that came with it, or made in `room`. */
static const block_key_t *keys_of(const engine_t *leader, const request_t *request,
                                  block_key_t *room, int32_t *count) {
  const block_pool_t *pool = leader->pool;
  *count = MIN(request->num_prompt_tokens / pool->block_size, ROUTED_BLOCKS_MAX);
  if (!pool->caching) *count = 0;
  if (request->prompt_keys != NULL) return request->prompt_keys;
  prefix_request_keys(pool, request, *count, room);
  return room;
}

/* What speaks against a replica, the weightiest first. */
typedef struct burden {
  bool full;
  int64_t work;   /* tokens */
  uint64_t noted; /* blocks that were sent there: an idle one with an emptier cache is better */
} burden_t;

static bool is_less(const burden_t *left, const burden_t *right) {
  if (left->full != right->full) return right->full;
  if (left->work != right->work) return left->work < right->work;
  return left->noted < right->noted;
}

/* Sets what the request would compute in its replica. */
static void choose(const engine_t *leader, request_t *request, const load_t *loads,
                   const block_key_t *keys, int32_t num_keys) {
  const replicas_t *replicas = &leader->replicas;
  const bool bound = quota_max_running(request->quota) > 0; /* a limit that one replica counts */
  const int32_t own = (int32_t)(random_mix(request->tenant) % (uint64_t)replicas->count);
  burden_t least = {0};
  bool found = false;
  for (int32_t i = 0; i < replicas->count; i++) {
    const routes_t *routes = replicas->routes[i];
    if (bound && i != own) continue;
    const int32_t uncached =
        request->num_prompt_tokens - routes_match(routes, keys, num_keys) * leader->info.block_size;
    const burden_t burden = {.full = loads[i].requests >= leader->info.max_num_seqs,
                             .work = loads[i].tokens + (int64_t)TOKENS_LEFT * loads[i].requests +
                                     uncached,
                             .noted = routes_noted(routes)};
    if (found && !is_less(&burden, &least)) continue;
    found = true;
    least = burden;
    request->replica = i;
    request->num_uncached = uncached;
  }
}

void replicas_choose(engine_t *leader, request_t *const *requests, int count) {
  replicas_t *replicas = &leader->replicas;
  block_key_t room[ROUTED_BLOCKS_MAX];
  load_t loads[REPLICAS_MAX];
  for (int i = 0; i < count; i++) requests[i]->replica = 0;
  if (replicas->count == 1) return;
  for (int32_t i = 0; i < replicas->count; i++) {
    engine_t *engine = replicas->all[i];
    replicas_t *own = &engine->replicas;
    loads[i] = (load_t){own->num_uncached, engine->loop_live};
    if (replicas->routes[i] == NULL) replicas->routes[i] = routes_new(engine->info.num_blocks);
    if (own->uncached == NULL)
      own->uncached = calloc((size_t)engine->num_groups, sizeof *own->uncached);
  }
  for (int i = 0; i < count; i++) {
    request_t *request = requests[i];
    int32_t num_keys;
    const block_key_t *keys = keys_of(leader, request, room, &num_keys);
    choose(leader, request, loads, keys, num_keys);
    loads[request->replica].tokens += request->num_uncached;
    loads[request->replica].requests++;
    routes_note(replicas->routes[request->replica], keys, num_keys);
  }
}

void replicas_wait(engine_t *engine, const request_t *request) {
  replicas_t *own = &engine->replicas;
  if (own->uncached == NULL) return;
  own->uncached[request->slot] = request->num_uncached;
  own->num_uncached += request->num_uncached;
}

void replicas_left(engine_t *engine, int32_t slot) {
  replicas_t *own = &engine->replicas;
  if (own->uncached == NULL) return;
  own->num_uncached -= own->uncached[slot];
  own->uncached[slot] = 0;
}

int32_t replicas_share_slot(const engine_t *engine, int32_t slot) {
  return engine->replicas.index * engine->num_groups + slot;
}

engine_t *replicas_of_share_slot(const engine_t *leader, int32_t *slot) {
  engine_t *engine = leader->replicas.all[*slot / leader->num_groups];
  *slot %= leader->num_groups;
  return engine;
}

/* No lock: signal handlers call this. */
const engine_t *replicas_slowest(const engine_t *leader) {
  const engine_t *slowest = leader;
  uint64_t least = UINT64_MAX;
  for (int32_t i = 0; i < leader->replicas.count; i++) {
    const engine_t *engine = leader->replicas.all[i];
    uint64_t worked_ns = atomic_load(&engine->activity.worked_ns);
    if (atomic_load(&engine->replicas.busy_since_ns) == 0 || worked_ns >= least) continue;
    least = worked_ns;
    slowest = engine;
  }
  return slowest;
}
