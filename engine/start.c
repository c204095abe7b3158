/* start.c: from a model directory to an engine that can step: load, plan memory, take memory.
 *
 * Runs once on the engine thread, while the server already answers requests with 503. It allocates
 * all memory that the engine needs; nothing is allocated after READY.
 */
#include "engine/base/check.h"
#include "engine/base/util.h"
#include "engine/device/topology.h"
#include "engine/file/mapping.h"
#include "engine/internal.h"
#include "engine/kv_events/kv_events.h"
#include "engine/model/source/model_file.h"
#include "engine/placement.h"
#include "engine/ranks/follow.h"
#include "engine/ranks/ranks.h"
#include "engine/replicas/lend.h"
#include "engine/schedule/floor/floor_start.h"
#include "engine/schedule/window/kv_plan.h"
#include "engine/schedule/window/side_blocks.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

static const double GIB = 1024.0 * 1024.0 * 1024.0;
/* Other processes use host memory too: without options the KV pool stays within these limits. */
static const size_t HOST_KV_BYTES_DEFAULT = (size_t)4 << 30;
static const int32_t BLOCK_SIZE_DEFAULT = 16;
/* About 1 ms when none of what the blocks touch is in a cache of the processor. */
static const int32_t SLICE_BLOCKS = 512;
/* Of bench-policy's traces: less orders too little, more helps no further. 20 tokens a second. */
static const double SLO_AGEING = 200, SLO_STEP_MS = 49.5, SLO_FAIR_SPAN = 8192;
/* A row that is left out loses a step; the others gain what the host takes, some per cent of it. */
static const int32_t AWAITED_ONE_IN = 8;
static const int64_t SWAP_SPACE_DEFAULT = (int64_t)4 << 30;
static const double HOST_MEMORY_FRACTION = 0.7, GPU_MEMORY_FRACTION = 0.9;

static const char *dtype_name(dtype_t dtype) {
  return dtype == DTYPE_F32 ? "float32" : dtype == DTYPE_F16 ? "float16" : "bfloat16";
}

static int parse_dtype(const char *name, int32_t *out, inferd_error_t *error) {
  static const char *const names[] = {"float32", "float16", "bfloat16"};
  static const dtype_t types[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16};
  *out = -1;
  if (name == NULL || strcmp(name, "auto") == 0) return 0;
  for (int i = 0; i < 3; i++) {
    if (strcmp(name, names[i]) == 0) {
      *out = (int32_t)types[i];
      return 0;
    }
  }
  return error_set(error, ERR_CONFIGURATION, "dtype",
                   "dtype is \"%s\"; supported: auto, float32, float16, bfloat16", name);
}

/* Opens the first back end of the choice that can be used; the log says which, or why not. */
static int open_device(engine_t *engine, inferd_error_t *error) {
  const engine_options_t *options = &engine->options;
  const backend_choice_t *choice = &engine->backend;
  device_options_t device = {.num_threads = options->num_threads,
                             .isa = options->isa,
                             .comm = options->comm,
                             .lender = engine->replicas.device,
                             .device_index = choice->device_index,
                             .sleeps = options->sleep_space_bytes > 0,
                             .batch_invariant = options->batch_invariant};
  engine->ops = choice->ops[0];
  int code = engine->ops->open(&device, &engine->device, error);
  if (choice->ops[1] == NULL) return code;
  if (code == 0) {
    engine_say(engine, "backend   %s: %.200s", engine->ops->name,
               engine->ops->describe(engine->device));
    return 0;
  }
  engine->ops = choice->ops[1];
  engine_say(engine, "backend   %s: %.200s", engine->ops->name, error->message);
  return engine->ops->open(&device, &engine->device, error);
}

/* Chooses the type of the computation: the requested type, else the type of the checkpoint. If the
 * back end does not have a type that was not requested, bfloat16 replaces it. */
static int choose_dtype(engine_t *engine, int32_t *dtype, inferd_error_t *error) {
  const uint32_t has = engine->ops->dtypes;
  dtype_t wanted = *dtype >= 0 ? (dtype_t)*dtype : engine->blueprint.dtype;
  if (has == 0 || (has & 1u << wanted) != 0) {
    engine->blueprint.dtype = wanted;
    return 0;
  }
  if (*dtype >= 0) {
    return error_set(error, ERR_CONFIGURATION, "dtype",
                     "dtype is %s, which does not run on %s; supported: auto, float16, bfloat16",
                     dtype_name(wanted), engine->ops->name);
  }
  engine_say(engine, "the checkpoint is %s; %s runs it as bfloat16", dtype_name(wanted),
             engine->ops->name);
  *dtype = DTYPE_BF16;
  engine->blueprint.dtype = DTYPE_BF16;
  return 0;
}

/* Refuses a model or KV type that the back end cannot run; the message names it. */
static int check_model(const engine_t *engine, inferd_error_t *error) {
  const blueprint_t *bp = &engine->blueprint;
  const char *what = NULL;
  int code = engine_check_ranks(engine, error);
  if (!code) code = replicas_check(engine, error);
  if (code) return code;
  if (bp->num_experts > 0 && engine->ops->moe == NULL) what = "a mixture of experts";
  if (bp->encoder.bidirectional && !engine->ops->bidirectional)
    what = "attention in both directions";
  bool fp8 = engine->options.kv_fp8, int8 = engine->options.kv_int8, latent = model_kv(bp).latent;
  if ((fp8 && !engine->ops->kv_fp8) || (int8 && (!engine->ops->kv_int8 || latent))) {
    return error_set(error, ERR_CONFIGURATION, "kv_cache_dtype",
                     "kv_cache_dtype is %s, which does not run on %s%s; auto%s",
                     fp8 ? "fp8" : "int8", engine->ops->name,
                     int8 && latent ? " with latent attention" : "",
                     fp8 && engine->ops->kv_int8 ? " and int8 do" : " does");
  }
  if (engine->options.quantise_q8 && !(engine->ops->weight_formats & 1U << WEIGHT_Q8_0)) {
    return error_set(error, ERR_CONFIGURATION, "quantization",
                     "quantization is q8, which does not run on %s; it does with --device cpu",
                     engine->ops->name);
  }
  if (what == NULL) return 0;
  return error_set(error, ERR_CONFIGURATION, "device",
                   "the model (%s) has %s, which does not run on device %s yet; it does with "
                   "--device cpu",
                   bp->architecture, what, engine->ops->name);
}

static int32_t choose_block_size(const engine_t *engine) {
  if (engine->options.block_size > 0) return engine->options.block_size;
  return engine->ops->block_size > 0 ? engine->ops->block_size : BLOCK_SIZE_DEFAULT;
}

typedef struct memory_plan {
  kv_cache_desc_t kv;
  state_desc_t states;
  int32_t num_host_blocks, num_snapshots;
  step_limits_t limits;
  int32_t cross_blocks; /* of K and V of sources, behind kv.num_blocks */
  size_t weight_bytes, workspace_bytes, kv_bytes, state_bytes, free_bytes;
  placement_t placement; /* of experts: weight_bytes are without those in host memory */
  char limit[192];       /* what leaves no more than free_bytes */
  size_t addresses;      /* of which weights and the files that they are read from may take */
  int32_t max_model_len;
  int32_t in_flight; /* most tokens of a sequence, with window groups */
  floor_plan_t floor;
} memory_plan_t;

/* Bytes of host memory for the blocks of swapped requests. If the KV pool is in host memory, there
 * is no default swap space; nor on several ranks, of which each has blocks of its own. */
static int64_t swap_space(const engine_t *engine) {
  if (engine->options.swap_space_bytes >= 0) return engine->options.swap_space_bytes;
  if (engine->blueprint.window_groups > 0 || engine->options.comm != NULL) return 0;
  bool useful = engine->ops->swap != NULL && engine->ops->separate_memory &&
                engine->options.preemption_mode != PREEMPT_RECOMPUTE;
  return useful ? SWAP_SPACE_DEFAULT : 0;
}

static int check_swap(const engine_t *engine, inferd_error_t *error) {
  bool swaps = engine->ops->swap != NULL && !engine->ops->swap->is_lent;
  if (swap_space(engine) > 0 && !swaps) {
    return error_set(error, ERR_CONFIGURATION, "swap_space",
                     "swap_space is %g GiB; it must be 0, because %s cannot swap",
                     (double)swap_space(engine) / GIB, engine->ops->name);
  }
  if (swap_space(engine) > 0 || engine->options.preemption_mode != PREEMPT_SWAP) return 0;
  return error_set(
      error, ERR_CONFIGURATION, "preemption_mode",
      "preemption_mode is swap and swap_space is 0 on %s; it must be recompute or auto",
      engine->ops->name);
}

static int check_logprobs(const engine_t *engine, inferd_error_t *error) {
  int32_t most = engine->blueprint.vocab_size;
  if (engine->options.max_logprobs <= MAX(most, LOGPROBS_MAX)) return 0;
  return error_set(error, ERR_CONFIGURATION, "max_logprobs",
                   "max_logprobs is %d; it must be at most %d, the tokens of the model, or -1",
                   engine->options.max_logprobs, most);
}

/* Share of the free memory to use. Other processes use host memory, but rarely a GPU's. */
static double memory_fraction(const engine_t *engine) {
  if (engine->options.memory_fraction > 0) return engine->options.memory_fraction;
  return engine->ops->separate_memory ? GPU_MEMORY_FRACTION : HOST_MEMORY_FRACTION;
}

/* Bytes that the KV pool may take: the requested size, or the share of the free memory that weights
 * and workspace leave. */
static size_t kv_budget(const engine_t *engine, const memory_plan_t *plan) {
  if (engine->options.kv_cache_bytes > 0) return (size_t)engine->options.kv_cache_bytes;
  const int32_t replicas = replicas_planned(engine);
  double left = (double)plan->free_bytes * memory_fraction(engine) - (double)plan->weight_bytes;
  left = left / replicas - (double)plan->workspace_bytes - (double)plan->state_bytes;
  size_t budget = (size_t)fmax(left, 0);
  return engine->ops->separate_memory ? budget
                                      : MIN(budget, HOST_KV_BYTES_DEFAULT / (size_t)replicas);
}

static int32_t blocks_from_budget(const engine_t *engine, const memory_plan_t *plan) {
  size_t one = engine->ops->kv_bytes(&plan->kv, 1) + drafter_kv_bytes(engine, &plan->kv, 1);
  size_t blocks = kv_budget(engine, plan) / (one ? one : 1);
  blocks -= MIN(blocks, (size_t)plan->cross_blocks);
  size_t useful = kv_blocks_useful(engine, &plan->kv, plan->max_model_len, plan->in_flight);
  if (one == 0 || (engine->options.kv_cache_bytes == 0 && blocks > useful)) blocks = useful;
  return blocks > INT32_MAX / 2 ? INT32_MAX / 2 : (int32_t)blocks;
}

/* Blocks of the pool. Those for the sources of an encoder are taken first, of the same memory. */
static void choose_blocks(const engine_t *engine, memory_plan_t *plan) {
  const size_t one = engine->ops->kv_bytes(&plan->kv, 1);
  const int32_t asked = engine->options.num_blocks;
  const int64_t all =
      asked > 0 ? 2 * (int64_t)asked : (int64_t)(kv_budget(engine, plan) / (one ? one : 1));
  plan->cross_blocks = encoding_choose_blocks(engine, all, plan->kv.block_size);
  plan->kv.num_blocks = asked > 0 ? asked : blocks_from_budget(engine, plan);
}

static int choose_context(engine_t *engine, memory_plan_t *plan, inferd_error_t *error) {
  int64_t asked = engine->options.max_model_len;
  if (asked > engine->blueprint.max_model_len) {
    return error_set(error, ERR_CONFIGURATION, "max_model_len",
                     "max_model_len is %lld; the model allows 1 to %d", (long long)asked,
                     engine->blueprint.max_model_len);
  }
  const rope_config_t *rope = &engine->blueprint.rope;
  const bool grows = rope->query_growth > 0 && engine->ops->values == NULL;
  plan->max_model_len = asked > 0 ? (int32_t)asked : engine->blueprint.default_model_len;
  if (!grows || plan->max_model_len <= rope->original_max) return 0;
  if (asked > 0)
    return error_set(error, ERR_CONFIGURATION, "max_model_len",
                     "max_model_len is %lld; device %s allows %d, from where on queries of %s grow",
                     (long long)asked, engine->ops->name, rope->original_max,
                     engine->blueprint.architecture);
  plan->max_model_len = rope->original_max;
  return 0;
}

static int check_weights_fit(const engine_t *engine, const memory_plan_t *plan,
                             inferd_error_t *error) {
  size_t each = plan->workspace_bytes + plan->state_bytes;
  size_t need = plan->weight_bytes + (size_t)replicas_planned(engine) * each;
  char states[64] = "";
  if (need < plan->free_bytes) return 0;
  if (plan->state_bytes > 0)
    snprintf(states, sizeof states, " and %.2f GiB for states", (double)plan->state_bytes / GIB);
  return error_set(
      error, ERR_NO_MEMORY, NULL,
      "the model needs %.2f GiB for weights and %.2f GiB for work%s; %.2f GiB of "
      "memory are free (%s), %.2f GiB too few. Lower --max-num-batched-tokens (%d) and "
      "--max-num-seqs (%d) to lower what work needs",
      (double)plan->weight_bytes / GIB, (double)plan->workspace_bytes / GIB, states,
      (double)plan->free_bytes / GIB, plan->limit, (double)(need - plan->free_bytes) / GIB,
      engine->options.max_num_batched_tokens, engine->options.max_num_seqs);
}

/* While weights are read, their files stand beside them in the address space. */
static int check_files_fit(const memory_plan_t *plan, inferd_error_t *error) {
  const size_t files = mapping_most(), need = plan->weight_bytes + files;
  if (need <= plan->addresses) return 0;
  return error_set(error, ERR_NO_MEMORY, NULL,
                   "the model needs %.2f GiB for weights and %.2f GiB for the files that they are "
                   "read from; ulimit -v leaves %.2f GiB of addresses, %.2f GiB too few",
                   (double)plan->weight_bytes / GIB, (double)files / GIB,
                   (double)plan->addresses / GIB, (double)(need - plan->addresses) / GIB);
}

/* A KV size that was requested may exceed the memory of the machine. Linux overcommits memory, so
 * the allocation would succeed, and the OOM killer would end the process later, during requests. */
static int check_kv_fits(const engine_t *engine, const memory_plan_t *plan, inferd_error_t *error) {
  size_t all = (size_t)replicas_planned(engine) * (plan->kv_bytes + plan->state_bytes);
  if (all + plan->weight_bytes <= plan->free_bytes) return 0;
  return error_set(error, ERR_NO_MEMORY, NULL,
                   "the KV cache takes %.2f GiB and the weights %.2f; %.2f GiB of memory are free "
                   "(%s). Lower %s",
                   (double)all / GIB, (double)plan->weight_bytes / GIB,
                   (double)plan->free_bytes / GIB, plan->limit,
                   engine->options.num_blocks > 0 ? "--num-blocks" : "--kv-cache-bytes");
}

static model_options_t model_options(const engine_t *engine, int32_t dtype) {
  return (model_options_t){.dir = engine->options.model_dir,
                           .dummy = engine->options.dummy_weights,
                           .dummy_seed = engine->options.seed,
                           .dtype = dtype,
                           .sees = sight_vision(engine) != NULL,
                           .hears = sight_hearing(engine) != NULL,
                           .quantise_q8 = engine->options.quantise_q8,
                           .host_experts = engine->options.host_experts,
                           .dense = engine->dense,
                           .num_dense = engine->num_dense,
                           .log = engine->options.log,
                           .log_context = engine->options.context};
}

/* Bytes of the model, unless it is the leader's, of the draft model and of all adapter slots. */
static int plan_weights(const engine_t *engine, int32_t dtype, size_t *out, inferd_error_t *error) {
  const blueprint_t *bp = &engine->blueprint;
  model_options_t options = model_options(engine, dtype);
  const int32_t slots = engine->options.max_loras * replicas_planned(engine);
  size_t draft_bytes = 0;
  int code = 0;
  options.host_experts = 0; /* all on the device: plan_placement subtracts */
  *out = 0;
  if (engine->replicas.leader == NULL)
    code = model_weight_bytes(engine->ops, bp, &options, out, error);
  if (!code) code = drafter_weight_bytes(engine, &draft_bytes, error);
  if (code) return code;
  *out += draft_bytes + model_adapter_bytes(engine->ops, bp, slots, engine->options.max_lora_rank);
  return 0;
}

/* Six bits of the number: what a kernel counts as used moves by some pages from start to start, and
 * the plan shall not. */
static size_t round_room(size_t bytes) {
  int shift = 0;
  while (bytes >> shift >= 128) shift++;
  return bytes >> shift << shift;
}

/* A limit of addresses counts what grammars will map, too, whether they touch it or not. */
static void find_room(const engine_t *engine, memory_plan_t *plan) {
  plan->free_bytes = engine->ops->memory_free(engine->device);
  plan->addresses = SIZE_MAX;
  snprintf(plan->limit, sizeof plan->limit, "memory of the device");
  if (engine->ops->memory_limit != NULL) { /* it is the host's memory */
    engine->ops->memory_limit(engine->device, plan->limit, sizeof plan->limit);
    const memory_room_t room = topology_memory_room("");
    const size_t grammars = room.counts_mappings ? constrain_bytes(engine) : 0;
    plan->addresses = room.addresses;
    plan->free_bytes = round_room(plan->free_bytes - MIN(plan->free_bytes, grammars));
  }
  plan->free_bytes /= engine_local_ranks(engine);
}

/* Bytes of the K/V pool beside which `auto` chooses a placement: those asked for, else of one whole
 * context, but of the context that the model has by itself no more than a quarter of the memory. */
static size_t kv_wanted(const engine_t *engine, const memory_plan_t *plan) {
  const engine_options_t *options = &engine->options;
  const size_t one = engine->ops->kv_bytes(&plan->kv, 1) + drafter_kv_bytes(engine, &plan->kv, 1);
  if (options->num_blocks > 0) return (size_t)options->num_blocks * one;
  if (options->kv_cache_bytes > 0) return (size_t)options->kv_cache_bytes;
  const size_t all = kv_blocks_useful(engine, &plan->kv, plan->max_model_len, plan->in_flight);
  const size_t context = (all / (size_t)options->max_num_seqs + 1) * one;
  if (options->max_model_len > 0) return context;
  return MIN(context, (size_t)((double)plan->free_bytes * memory_fraction(engine) / 4));
}

/* Which experts lie in host memory; the other weights stay on the device. */
static int plan_placement(engine_t *engine, int32_t dtype, memory_plan_t *plan,
                          inferd_error_t *error) {
  if (engine->options.host_experts == 0) return 0;
  const model_options_t options = model_options(engine, dtype);
  const state_desc_t *states = &plan->states;
  size_t others = plan->workspace_bytes + kv_wanted(engine, plan);
  if (states->num_layers > 0) /* as many snapshots as slots */
    others += 2 * engine->ops->state->bytes(states, states->num_slots);
  const double all = (double)plan->free_bytes * memory_fraction(engine) - (double)others;
  int code = placement_plan(engine, &options, &plan->limits, plan->weight_bytes,
                            (size_t)fmax(all, 0), &plan->placement, error);
  if (code == 0) plan->weight_bytes -= plan->placement.device_spared;
  return code;
}

static void say_model(const engine_t *engine, const kv_cache_desc_t *kv) {
  const blueprint_t *bp = &engine->blueprint;
  char heads[64] = "no attention";
  if (kv->num_layers > 0)
    snprintf(heads, sizeof heads, "heads %d/%d x %d", bp->num_heads, bp->num_kv_heads,
             bp->head_dim);
  engine_say(engine, "%s %s, %d layers, hidden %d, %s, vocabulary %d, %s", bp->architecture,
             bp->family, bp->num_layers, bp->hidden_size, heads, bp->vocab_size,
             dtype_name(bp->dtype));
}

static void say_memory(const engine_t *engine, const memory_plan_t *plan) {
  /* Block 0 is the null block: requests have the others. */
  engine_say(
      engine,
      "memory    free %.2f GiB (%s): weights %.2f, workspace %.2f, kv cache %.2f (%d blocks of %d)",
      (double)plan->free_bytes / GIB, plan->limit, (double)plan->weight_bytes / GIB,
      (double)plan->workspace_bytes / GIB, (double)plan->kv_bytes / GIB, plan->kv.num_blocks - 1,
      plan->kv.block_size);
  placement_say(engine, &plan->placement, plan->weight_bytes);
}

static int plan_memory(engine_t *engine, int32_t dtype, memory_plan_t *plan,
                       inferd_error_t *error) {
  const engine_options_t *options = &engine->options;
  const blueprint_t *bp = &engine->blueprint;
  int code = choose_context(engine, plan, error);
  if (code) return code;
  engine_take_whole_prompts(engine, plan->max_model_len);
  const char *keeps = kv_choose_groups(engine, plan->max_model_len);
  if (keeps != NULL) engine_say(engine, "windows   with %s all layers keep all tokens", keeps);
  plan->in_flight = (engine->ops->pipeline_depth < 2 ? 1 : STEPS_IN_FLIGHT_MAX) *
                    MIN(options->max_num_batched_tokens, plan->max_model_len);
  plan->kv = model_kv(bp);
  plan->kv.block_size = choose_block_size(engine);
  plan->kv.fp8 = options->kv_fp8;
  plan->kv.int8 = options->kv_int8;
  engine->logits_rows_max = MIN(options->max_num_seqs, 64);
  plan->limits = (step_limits_t){
      /* each draw is a selected row, and several draws may come from one row of logits */
      .tokens_max = options->max_num_batched_tokens + options->max_num_seqs,
      .drafts_max = options->draft.tokens_max,
      .drafts_all_max = options->draft.tokens_max > 0 ? DRAFTS_IN_FLIGHT_MAX : 0,
      .reqs_max = options->max_num_seqs,
      .ranks = bp->shard.size,
      .logits_rows_max = engine->logits_rows_max,
      .max_model_len = plan->max_model_len,
      .adapter_rank_max = options->max_loras > 0 ? options->max_lora_rank : 0};
  model_limits(bp, &plan->limits);
  code = plan_weights(engine, dtype, &plan->weight_bytes, error);
  if (!code) code = sight_read(engine, plan->max_model_len, error);
  if (!code) code = hearing_read(engine, error);
  if (!code) code = encoding_read(engine, dtype, error);
  if (code) return code;
  plan->weight_bytes += sight_weight_bytes(engine) + encoding_weight_bytes(engine);
  plan->workspace_bytes = model_workspace_bytes(engine->ops, bp, &plan->limits) +
                          drafter_workspace_bytes(engine, &plan->limits) +
                          sight_work_bytes(engine) + encoding_work_bytes(engine);
  find_room(engine, plan);
  code = plan_placement(engine, dtype, plan, error);
  if (code) return code;
  size_t left = plan->free_bytes > plan->weight_bytes ? plan->free_bytes - plan->weight_bytes : 0;
  plan->state_bytes =
      engine_plan_snapshots(engine, plan->workspace_bytes, left / (size_t)replicas_planned(engine),
                            &plan->states, &plan->num_snapshots);
  code = check_weights_fit(engine, plan, error);
  if (!code) code = check_files_fit(plan, error);
  if (code) return code;
  choose_blocks(engine, plan);
  code = ranks_least(engine->options.comm, &plan->kv.num_blocks, error);
  if (code) return code;
  code = kv_fit_context(engine, &plan->kv, plan->in_flight, &plan->max_model_len, error);
  if (code) return code;
  plan->limits.max_model_len = plan->max_model_len;
  plan->kv_bytes = engine->ops->kv_bytes(&plan->kv, plan->kv.num_blocks + plan->cross_blocks) +
                   drafter_kv_bytes(engine, &plan->kv, plan->kv.num_blocks);
  code = check_kv_fits(engine, plan, error);
  if (code) return code;
  engine_say_ranks(engine);
  say_model(engine, &plan->kv);
  say_memory(engine, plan);
  kv_say_windows(engine, &plan->kv, plan->max_model_len);
  sight_say(engine);
  encoding_say(engine, plan->cross_blocks);
  return 0;
}

static void on_progress(void *context, double fraction) {
  engine_t *engine = context;
  atomic_store(&engine->progress_permille, (int)(fraction * 1000.0));
}

/* Makes the adapter slots, and loads the adapters of lora_dirs into the first of them. */
static int load_adapters(engine_t *engine, inferd_error_t *error) {
  const engine_options_t *options = &engine->options;
  int code = model_adapters(engine->model, options->max_loras, options->max_lora_rank, error);
  for (int32_t i = 0; i < options->num_lora_dirs && code == 0; i++) {
    adapter_t *adapter;
    code = engine_adapter_read(engine, options->lora_dirs[i], &adapter, error);
    if (code) break;
    model_set_adapter(engine->model, i + 1, adapter);
    adapter_take_invocation(adapter, &engine->invocations[i]);
    engine_keep_adapter(engine, i + 1, adapter);
    engine_say(engine, "adapter   %s in slot %d", options->lora_dirs[i], i + 1);
  }
  return code;
}

/* Behind the blocks of sequences lie those of an encoder's sources. */
static int make_kv_cache(engine_t *engine, kv_cache_desc_t kv, int32_t cross_blocks,
                         inferd_error_t *error) {
  kv.num_blocks += cross_blocks;
  kv.scales = model_kv_scales(engine->model);
  if (kv.fp8) kv_say_scales(engine, kv.scales, 2 * kv.num_layers);
  if (kv.int8) engine_say(engine, "kv cache  8 bits, a scale for each head of a token");
  return engine->ops->kv_cache(engine->device, &kv, error);
}

static int load_model(engine_t *engine, const memory_plan_t *plan, int32_t dtype,
                      inferd_error_t *error) {
  model_options_t options = model_options(engine, dtype);
  options.progress = on_progress;
  options.progress_context = engine;
  if (options.quantise_q8) engine_say(engine, "weights   16-bit matrices are rounded to Q8_0");
  const engine_t *leader = engine->replicas.leader;
  int code = leader != NULL ? model_lend(leader->model, engine->device, &engine->model, error)
                            : model_load(engine->ops, engine->device, &engine->blueprint,
                                         plan->max_model_len, &options, &engine->model, error);
  if (!code) on_progress(engine, 1);
  if (!code && engine->options.max_loras > 0) code = load_adapters(engine, error);
  if (!code) code = make_kv_cache(engine, plan->kv, plan->cross_blocks, error);
  if (!code && plan->states.num_layers > 0)
    code = engine->ops->state->make(engine->device, &plan->states, error);
  if (!code) code = sight_load(engine, error);
  if (!code) code = encoding_load(engine, dtype, error);
  if (!code) code = engine->ops->prepare(engine->device, &plan->limits, error);
  if (!code) code = model_prepare(engine->model, &plan->limits, error);
  if (!code) code = sight_prepare(engine, error);
  if (!code)
    code = encoding_prepare(engine, plan->kv.num_blocks, plan->cross_blocks, plan->kv.block_size,
                            error);
  if (!code) code = drafter_load(engine, &plan->kv, &plan->limits, error);
  if (!code) code = predictor_new(engine, &plan->limits, plan->kv.block_size, error);
  return code;
}

static int draw_secret(const engine_t *engine, uint64_t secret[2], inferd_error_t *error) {
  if (engine->replicas.leader != NULL) {
    memcpy(secret, engine->replicas.leader->pool->secret, 2 * sizeof *secret);
    return 0;
  }
  if (engine->options.seed) {
    secret[0] = engine->options.seed;
    secret[1] = ~engine->options.seed;
    return 0;
  }
  if (getrandom(secret, 2 * sizeof *secret, 0) == (ssize_t)(2 * sizeof *secret)) return 0;
  return error_set(error, ERR_IO, NULL, "getrandom gives no random numbers: %s", strerror(errno));
}

/* Host blocks for preempted requests. */
static int plan_swap_space(const engine_t *engine, const memory_plan_t *plan, size_t one,
                           int32_t *out, inferd_error_t *error) {
  /* without attention there is nothing to swap */
  int64_t bytes = swap_space(engine), count = one > 0 ? bytes / (int64_t)one : 0;
  bool asked = engine->options.swap_space_bytes > 0;
  if (!asked && count > plan->kv.num_blocks) count = plan->kv.num_blocks;
  *out = (int32_t)MIN(count, INT32_MAX / 4);
  if (count > 0 || bytes == 0) return 0;
  return error_set(
      error, ERR_CONFIGURATION, "swap_space",
      "swap_space is %lld bytes; it must be 0, or hold a block of %d tokens, %zu bytes",
      (long long)bytes, plan->kv.block_size, one);
}

/* Makes the host pool: blocks of preempted requests, and behind them the floor of the prefix cache.
 * If the user asked for neither, failing to allocate the default pool is not an error. */
static int make_swap_space(engine_t *engine, memory_plan_t *plan, inferd_error_t *error) {
  size_t one = engine->ops->kv_bytes(&plan->kv, 1) + drafter_kv_bytes(engine, &plan->kv, 1);
  floor_plan_t *floor = &plan->floor;
  bool asked = engine->options.swap_space_bytes > 0 || floor_wanted(engine);
  int32_t count = 0;
  floor->block_bytes = one;
  int code = plan_swap_space(engine, plan, one, &count, error);
  if (!code) code = draw_secret(engine, floor->secret, error);
  if (!code) code = floor_plan(engine, plan->kv.block_size, plan->max_model_len, floor, error);
  int32_t all = count + floor->num_places;
  if (code != 0 || all == 0) return code;
  void *memory = (void *)(uintptr_t)floor->memory.content;
  code = engine->ops->swap->pool(engine->device, all, memory, error);
  if (!code) code = drafter_swap_pool(engine, all, error);
  if (code == ERR_NO_MEMORY && !asked) {
    engine_say(engine, "warning: no host memory to swap to: %s", error->message);
    return 0;
  }
  if (code != 0 || count == 0) return code;
  plan->num_host_blocks = count;
  engine->host_block_bytes = (double)one;
  engine_say(engine, "swap      %.2f GiB of host memory (%d blocks), %.1f GB/s",
             (double)one * (double)count / GIB, (int)count,
             engine->ops->swap->rate(engine->device) / 1e9);
  return 0;
}

/* By so much at most may what one client asks for delay a token of another, on any back end. */
enum { CLIENT_STEP_MS_MAX = 10 };

/* Where nobody has said how long a step may take, it takes twice as long as reading the weights, if
 * that is more: with less most of the time of prompts beside tokens would go into reading them. */
static const double READS = 2;

/* Bounds of the time of a step: those of the back end, unless told. Without the first there is no
 * second; nor with slo where admission is bounded, which keeps the mean of all tokens. A token
 * takes a turn of each stage: so a turn has a part of both. */
static pace_options_t choose_pace(const engine_t *engine) {
  double step_ms = engine->options.max_step_ms, own_ms = engine->ops->step_ms;
  if (step_ms < 0) step_ms = engine->options.slo_policy ? MAX(own_ms, SLO_STEP_MS) : own_ms;
  const double part_ns = 1e6 / MAX(engine->blueprint.shard.num_stages, 1); /* a turn's */
  const bool by_mean = engine->options.slo_policy && engine->ops->bounds_admission;
  const bool is_shared = step_ms > 0 && !by_mean;
  CHECK_LE(engine->ops->client_step_ms, CLIENT_STEP_MS_MAX);
  const bool is_told = engine->options.max_step_ms >= 0 || engine->options.slo_policy;
  return (pace_options_t){.step_ns = step_ms * part_ns,
                          .reads = is_told ? 0 : READS,
                          .client_ns = is_shared ? engine->ops->client_step_ms * part_ns : 0,
                          .bounds_admission = engine->ops->bounds_admission};
}

static scheduler_options_t scheduler_options(const engine_t *engine, const memory_plan_t *plan) {
  const engine_options_t *given = &engine->options;
  return (scheduler_options_t){
      .max_num_seqs = given->max_num_seqs,
      .max_num_batched_tokens = given->max_num_batched_tokens,
      .max_requests = engine->num_groups,
      .max_model_len = plan->max_model_len,
      .long_prefill_token_threshold = given->long_prefill_token_threshold,
      .short_prompts_pass = given->short_prompts_pass,
      .pace = choose_pace(engine),
      .watermark_blocks = engine->blueprint.encoder.bidirectional
                              ? 0
                              : (int32_t)(given->watermark * (plan->kv.num_blocks - 1)),
      .reserve_full = true,
      .slice_blocks = SLICE_BLOCKS,
      .num_stages = engine->blueprint.shard.num_stages > 1 ? engine_depth(engine) : 0,
      .chunked_prefill = given->enable_chunked_prefill,
      .draft = given->draft,
      .draft_model = engine->drafter != NULL || engine->predictor != NULL,
      .history_on_device = engine->ops->history_on_device,
      .priority_policy = given->priority_policy,
      .fair_share = given->fair_share,
      .ageing = given->slo_policy ? SLO_AGEING : 0,
      .fair_span = given->slo_policy ? (int32_t)SLO_FAIR_SPAN : 0,
      .queue_time_tokens = given->queue_time_tokens,
      .max_skips = given->max_skips,
      .max_preemptions = given->max_preemptions,
      .swap = {.num_blocks = plan->num_host_blocks, .mode = given->preemption_mode},
      .window = {.tokens = engine->blueprint.window_groups > 0 ? engine->blueprint.window : 0,
                 .in_flight = plan->in_flight},
      .leaves_steps = engine_depth(engine) == 1 && given->comm == NULL &&
                      engine->encoding == NULL && engine->drafter == NULL &&
                      engine->predictor == NULL && plan->states.num_layers == 0,
      .has_states = plan->states.num_layers > 0,
      .num_snapshots = plan->num_snapshots,
      .snapshot_blocks = DIV_UP(SNAPSHOT_TOKENS_DEFAULT, plan->kv.block_size),
  };
}

/* Makes the block pool, the scheduler, the grammars' memory, the in-flight steps and the text
 * buffers. */
static int make_tables(engine_t *engine, const memory_plan_t *plan, inferd_error_t *error) {
  const engine_options_t *given = &engine->options;
  int code = block_pool_new(plan->kv.num_blocks, plan->kv.block_size, given->enable_prefix_caching,
                            plan->floor.secret, &engine->pool, error);
  if (!code) code = block_pool_add_sides(engine->pool, engine->blueprint.window_groups, error);
  if (!code) code = floor_start(engine, &plan->floor, plan->num_host_blocks, error);
  if (code) return code;
  if (given->kv_events != NULL && given->enable_prefix_caching) {
    code = kv_events_start(given->kv_events, plan->kv.block_size, error);
    if (code) return code;
    engine->pool->events = given->kv_events;
  }
  const scheduler_options_t options = scheduler_options(engine, plan);
  code = scheduler_new(&options, engine->pool, &engine->scheduler, error);
  if (code == 0) engine->scheduler->activity = &engine->activity;
  if (code) return code;
  uint64_t trie_ns;
  code = constrain_new(engine, &trie_ns, error);
  if (code) return code;
  engine_say(engine, "grammars  trie of %d tokens made in %.1f ms",
             tokenizer_vocab_size(engine->tokenizer), (double)trie_ns / 1e6);
  engine->awaited_one_in = AWAITED_ONE_IN;
  engine->steps_most = engine_depth(engine);
  for (int32_t i = 0; i < engine->steps_most; i++) {
    step_t *step = &engine->steps[i];
    if (step_new(engine, step) == 0 && sight_join(engine, step) == 0 &&
        encoding_join(engine, step) == 0 && rows_join(engine, step) == 0)
      continue;
    return error_set(error, ERR_NO_MEMORY, NULL,
                     "no memory for a step of %d tokens; lower --max-num-batched-tokens",
                     given->max_num_batched_tokens);
  }
  /* A request may bring any stop set: the buffer must hold the longest text that one can hold back.
   */
  engine->text_max = detokenizer_out_max(engine->tokenizer, NULL) + 2 * STOP_STRING_BYTES_MAX;
  engine->text = malloc(engine->text_max);
  engine->replay_text = malloc(engine->text_max);
  if (engine->text == NULL || engine->replay_text == NULL) {
    return error_set(error, ERR_NO_MEMORY, NULL, "no memory for %zu bytes of text",
                     engine->text_max);
  }
  return 0;
}

/* The event ring holds the largest events of two steps, and the end of every live request. */
static int make_mailbox(engine_t *engine, inferd_error_t *error) {
  size_t seqs = (size_t)engine->options.max_num_seqs,
         rows = (size_t)engine->options.max_num_batched_tokens;
  size_t drafts = engine->options.draft.tokens_max > 0 ? DRAFTS_IN_FLIGHT_MAX : 0;
  engine->done_bytes_max = mailbox_event_bytes(STOP_STRING_BYTES_MAX + 8, 0);
  size_t largest = mailbox_event_bytes((uint32_t)engine->text_max, SAMPLE_TOP_MAX);
  engine->step_bytes_max = seqs * (largest + engine->done_bytes_max) + (drafts + 1) * largest +
                           rows * mailbox_event_bytes(0, SAMPLE_TOP_MAX);
  size_t bytes =
      2 * engine->step_bytes_max + ((size_t)engine->num_groups + 1) * engine->done_bytes_max;
  return mailbox_new((uint32_t)engine->num_groups, bytes, &engine->mailbox, error);
}

static void fill_info(engine_t *engine, const memory_plan_t *plan) {
  const blueprint_t *bp = &engine->blueprint;
  int32_t num_stop_ids = 0;
  for (int32_t i = 0; i < bp->num_eos; i++) {
    if (bp->eos_ids[i] != bp->primary_eos) engine->stop_ids[num_stop_ids++] = bp->eos_ids[i];
  }
  engine->info = (engine_info_t){
      .max_model_len = plan->max_model_len,
      .vocab_size = bp->vocab_size,
      .block_size = plan->kv.block_size,
      .num_blocks = plan->kv.num_blocks,
      .kv_tokens =
          (int64_t)(kv_concurrency(engine, &plan->kv, plan->max_model_len) * plan->max_model_len +
                    0.5),
      .num_host_blocks = plan->num_host_blocks,
      .num_floor_blocks = plan->floor.num_places,
      .max_num_seqs = engine->options.max_num_seqs,
      .max_num_batched_tokens = engine->options.max_num_batched_tokens,
      .num_ranks = MAX(MAX(bp->shard.size, bp->shard.num_stages), 1),
      .num_replicas = engine->replicas.count,
      .primary_eos = bp->primary_eos,
      .num_stop_ids = num_stop_ids,
      .stop_ids = engine->stop_ids,
      .temperature = bp->temperature,
      .top_p = bp->top_p,
      .min_p = bp->min_p,
      .repetition_penalty = bp->repetition_penalty,
      .top_k = bp->top_k,
      .max_new_tokens = bp->max_new_tokens,
      .weights_hash = sight_weights_hash(engine) + encoding_hash(engine),
      .backend = engine->ops->name,
      .device = engine->ops->describe(engine->device),
      .dtype = dtype_name(bp->dtype),
      .architecture = bp->architecture,
      .embedding = engine->embeds ? &engine->embedding : NULL,
      .vision = sight_vision(engine),
      .hearing = sight_hearing(engine),
      .speech = engine->speech,
      .source = encoding_info(engine),
      .rows = rows_info(engine),
  };
}

static void say_notes(engine_t *engine) {
  for (const char *line = engine->blueprint.notes; *line != '\0';) {
    size_t length = strcspn(line, "\n");
    engine_say(engine, "%.*s", (int)length, line);
    line += length + (line[length] != '\0');
  }
}

/* From the directory to a plan of the memory; reads no weights. */
static int plan_model(engine_t *engine, int32_t *dtype, memory_plan_t *plan,
                      inferd_error_t *error) {
  int code = parse_dtype(engine->options.dtype, dtype, error);
  if (!code) code = model_directory_check(engine->options.model_dir, error);
  if (!code) code = blueprint_check_family(engine->options.model_dir, error);
  if (!code && engine->replicas.leader != NULL) {
    engine->tokenizer = engine->replicas.leader->tokenizer;
  } else if (!code && engine->options.skip_tokenizer) {
    code = tokenizer_none(&engine->tokenizer, error);
    engine_say(engine, "tokenizer none: prompts and answers are token ids");
  } else if (!code) {
    code = tokenizer_load(engine->options.model_dir, &engine->tokenizer, error);
    if (!code && tokenizer_interprets_patterns(engine->tokenizer))
      engine_say(
          engine,
          "tokenizer: PCRE2 interprets a split pattern that has no scanner, which is slower");
  }
  if (!code) {
    code = blueprint_read(engine->options.model_dir, tokenizer_model_max_length(engine->tokenizer),
                          tokenizer_eos_id(engine->tokenizer), &engine->blueprint, error);
  }
  if (code) return code;
  say_notes(engine);
  code = asleep_check_options(engine, error);
  if (!code) code = open_device(engine, error);
  if (!code) engine_take_part(engine);
  if (!code) code = engine_choose_task(engine, error);
  if (!code) code = check_model(engine, error);
  if (!code) code = placement_check(engine, error);
  if (!code) code = engine_plan_states(engine, &plan->states, error);
  if (!code) code = check_swap(engine, error);
  if (!code) code = floor_check(engine, error);
  if (!code) code = check_logprobs(engine, error);
  if (!code) code = choose_dtype(engine, dtype, error);
  if (!code) code = drafter_read(engine, error);
  if (!code) code = predictor_read(engine, error);
  if (!code) code = plan_memory(engine, *dtype, plan, error);
  if (!code) code = asleep_check(engine, (int64_t)plan->weight_bytes, error);
  return code ? code : rows_plan(engine, error);
}

/* Reads the adapters of lora_dirs as a start does, and keeps none. */
static int check_adapters(const engine_t *engine, inferd_error_t *error) {
  const engine_options_t *options = &engine->options;
  int code = 0;
  for (int32_t i = 0; i < options->num_lora_dirs && code == 0; i++) {
    adapter_t *adapter = NULL;
    code = engine_adapter_read(engine, options->lora_dirs[i], &adapter, error);
    adapter_free(adapter);
  }
  return code;
}

int engine_check_room(inferd_error_t *error) {
  const memory_room_t room = topology_memory_room("");
  if (!room.counts_mappings || room.bytes > 0) return 0;
  return error_set(error, ERR_NO_MEMORY, NULL,
                   "%s leaves no memory for a model: the program and its threads take %d MiB",
                   room.limit, TOPOLOGY_PROCESS_MIB);
}

static void fill_survey(const engine_t *engine, const memory_plan_t *plan, engine_survey_t *out) {
  const ops_t *ops = engine->ops;
  const blueprint_t *bp = &engine->blueprint;
  *out = (engine_survey_t){
      .weights = (int64_t)plan->weight_bytes,
      .host_weights = (int64_t)(plan->placement.host_bytes + plan->placement.host_work),
      .workspace = (int64_t)plan->workspace_bytes,
      .kv_cache = (int64_t)plan->kv_bytes,
      .states = (int64_t)plan->state_bytes,
      .swap =
          plan->num_host_blocks > 0 ? (int64_t)ops->kv_bytes(&plan->kv, plan->num_host_blocks) : 0,
      .free = (int64_t)plan->free_bytes,
      .host_free = (int64_t)topology_memory_free(),
      .context = plan->max_model_len,
      .contexts = kv_concurrency(engine, &plan->kv, plan->max_model_len),
      .on_host = strcmp(ops->name, "cpu") == 0,
      .sees = sight_vision(engine) != NULL,
      .hears = sight_hearing(engine) != NULL,
      .task = engine->embeds ? engine->embedding.task : TASK_GENERATE,
      .info = {.max_model_len = plan->max_model_len,
               .temperature = bp->temperature,
               .top_p = bp->top_p,
               .min_p = bp->min_p,
               .repetition_penalty = bp->repetition_penalty,
               .top_k = bp->top_k}};
  snprintf(out->architecture, sizeof out->architecture, "%s", engine->blueprint.architecture);
}

int engine_survey(const engine_options_t *options, engine_survey_t *out, inferd_error_t *error) {
  engine_t *engine = NULL;
  memory_plan_t plan = {0};
  int32_t dtype;
  int code = engine_new(options, &engine, error);
  if (code) return code;
  code = plan_model(engine, &dtype, &plan, error);
  model_options_t model = model_options(engine, dtype);
  if (!code) code = model_survey(engine->ops, &engine->blueprint, &model, error);
  if (!code) code = encoding_survey(engine, dtype, error);
  if (!code) code = check_adapters(engine, error);
  if (!code && out != NULL) fill_survey(engine, &plan, out);
  if (!code) {
    engine_say(engine, "context   %d tokens; sequences at full context: %.1f", plan.max_model_len,
               kv_concurrency(engine, &plan.kv, plan.max_model_len));
    engine_say(engine, "device    %s, %s", engine->ops->name,
               engine->ops->describe(engine->device));
  }
  engine_destroy(engine);
  return code;
}

int engine_start(engine_t *engine, inferd_error_t *error) {
  int32_t dtype;
  memory_plan_t plan = {0};
  int code = replicas_await(engine, error);
  if (!code) code = plan_model(engine, &dtype, &plan, error);
  if (!code) code = load_model(engine, &plan, dtype, error);
  if (!code) code = make_swap_space(engine, &plan, error);
  const bool follows = engine_follows(engine); /* it needs the model alone */
  if (!code && !follows) code = make_tables(engine, &plan, error);
  if (!code) code = engine_join_ranks(engine, &plan.kv, plan.max_model_len, error);
  if (!code) code = engine_warm_up(engine, error);
  if (code || follows) return code;
  if (!code && engine->ops->report != NULL && engine->options.log != NULL) {
    engine->ops->report(engine->device, engine->options.log, engine->options.context);
  }
  if (!code) code = make_mailbox(engine, error);
  if (!code) fill_info(engine, &plan);
  if (!code) code = lane_new(engine, &engine->lane, error);
  return code;
}

void engine_release(engine_t *engine) {
  constrain_free(engine); /* its threads wake the mailbox */
  mailbox_free(engine->mailbox);
  for (int i = 0; i < STAGE_STEPS_MAX; i++) step_free(&engine->steps[i]);
  scheduler_free(engine->scheduler);
  floor_end(engine);
  block_pool_free(engine->pool);
  free(engine->labels);
  drafter_free(engine);
  predictor_free(engine);
  model_free(engine->model);
  sight_free(engine);
  hearing_free(engine);
  encoding_free(engine);
  packets_free(&engine->packets);
  if (engine->device != NULL) engine->ops->close(engine->device);
  blueprint_free(&engine->blueprint);
  if (engine->replicas.leader == NULL) tokenizer_free(engine->tokenizer);
  free(engine->text);
  free(engine->replay_text);
  lane_free(engine->lane);
}

bool engine_memory_pressure(double *some_s, double *full_s) {
  memory_pressure_t pressure;
  if (!topology_memory_pressure("", &pressure)) return false;
  *some_s = pressure.some_s;
  *full_s = pressure.full_s;
  return true;
}
