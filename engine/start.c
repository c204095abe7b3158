/* start.c: from a model directory to an engine that can step: load, plan memory, take memory.
 *
 * Runs once on the engine thread while the server already answers 503. Everything that the engine
 * will ever need is allocated here; nothing is allocated after READY.
 */
#include "engine/internal.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

static const double GIB = 1024.0 * 1024.0 * 1024.0;
/* Host memory is shared: unless told otherwise, be modest. */
static const size_t HOST_KV_BYTES_DEFAULT = (size_t)4 << 30;
static const int32_t HOST_KV_TOKENS_DEFAULT = 131072;

__attribute__((format(printf, 2, 3))) static void say(engine_t *e, const char *format, ...) {
  if (!e->options.log) return;
  char line[256];
  va_list args;
  va_start(args, format);
  vsnprintf(line, sizeof line, format, args);
  va_end(args);
  e->options.log(e->options.context, line);
}

static const char *dtype_name(dtype_t dtype) {
  return dtype == DTYPE_F32 ? "float32" : dtype == DTYPE_F16 ? "float16" : "bfloat16";
}

static int parse_dtype(const char *name, int32_t *out, error_t *error) {
  static const char *const names[] = {"float32", "float16", "bfloat16"};
  static const dtype_t types[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16};
  *out = -1;
  if (!name || strcmp(name, "auto") == 0) return 0;
  for (int i = 0; i < 3; i++) {
    if (strcmp(name, names[i]) == 0) {
      *out = (int32_t)types[i];
      return 0;
    }
  }
  return error_set(error, ERR_CONFIGURATION, "dtype",
                   "dtype is \"%s\"; supported: auto, float32, float16, bfloat16", name);
}

static int open_device(engine_t *e, error_t *error) {
  const engine_options_t *o = &e->options;
  device_options_t device = {.num_threads = o->num_threads, .isa = o->isa};
  const char *backend = o->backend ? o->backend : "auto";
  e->ops = o->ops;
  if (!e->ops && strcmp(backend, "cpu") == 0) e->ops = &ops_cpu;
  if (!e->ops && strcmp(backend, "cuda") == 0) e->ops = &ops_cuda;
  if (!e->ops && strcmp(backend, "auto") == 0) {
    if (ops_cuda.open(&device, &e->device, error) == 0) {
      e->ops = &ops_cuda;
      return 0;
    }
    e->ops = &ops_cpu;
  }
  if (!e->ops) {
    return error_set(error, ERR_CONFIGURATION, "backend",
                     "backend is \"%s\"; supported: auto, cpu, cuda", backend);
  }
  return e->ops->open(&device, &e->device, error);
}

typedef struct memory_plan {
  kv_cache_desc_t kv;
  step_limits_t limits;
  size_t weight_bytes, workspace_bytes, kv_bytes, free_bytes;
  int32_t max_model_len;
} memory_plan_t;

static bool is_on_host(const engine_t *e) {
  return strcmp(e->ops->name, "cuda") != 0;
}

/* Bytes that the KV pool may take: asked for, or a share of what is free after everything else. */
static size_t kv_budget(const engine_t *e, const memory_plan_t *plan) {
  if (e->options.kv_cache_bytes > 0) return (size_t)e->options.kv_cache_bytes;
  double left = (double)plan->free_bytes * e->options.memory_fraction - (double)plan->weight_bytes -
                (double)plan->workspace_bytes;
  size_t budget = left > 0 ? (size_t)left : 0;
  return is_on_host(e) && budget > HOST_KV_BYTES_DEFAULT ? HOST_KV_BYTES_DEFAULT : budget;
}

/* Without a word from the operator: no more than every sequence at full context can use; on a host
 * enough for 131,072 tokens or two contexts. */
static size_t blocks_useful(const engine_t *e, const memory_plan_t *plan) {
  size_t context = (size_t)(plan->max_model_len / plan->kv.block_size + 2);
  size_t useful = (size_t)e->options.max_num_seqs * context;
  size_t modest = (size_t)(HOST_KV_TOKENS_DEFAULT / plan->kv.block_size);
  if (modest < 2 * context) modest = 2 * context;
  return 2 + (is_on_host(e) && modest < useful ? modest : useful);
}

static int32_t blocks_from_budget(const engine_t *e, const memory_plan_t *plan) {
  size_t one = e->ops->kv_bytes(&plan->kv, 1);
  size_t blocks = kv_budget(e, plan) / (one ? one : 1);
  size_t useful = blocks_useful(e, plan);
  if (e->options.kv_cache_bytes == 0 && blocks > useful) blocks = useful;
  return blocks > INT32_MAX / 2 ? INT32_MAX / 2 : (int32_t)blocks;
}

/* One sequence alone must always be able to finish: N - 1 >= ceil(M / bs) + 1. */
static int fit_context(engine_t *e, memory_plan_t *plan, error_t *error) {
  int32_t bs = plan->kv.block_size;
  int64_t longest = ((int64_t)plan->kv.num_blocks - 2) * bs;
  if (longest >= plan->max_model_len) return 0;
  if (longest < bs || e->options.max_model_len > 0) {
    return error_set(error, ERR_CONFIGURATION, "max_model_len",
                     "a context of %d tokens needs %.2f GiB of KV cache, %.2f GiB are there; "
                     "lower --max-model-len to %lld, or raise --kv-cache-bytes or --memory",
                     plan->max_model_len,
                     (double)e->ops->kv_bytes(&plan->kv, plan->max_model_len / bs + 3) / GIB,
                     (double)e->ops->kv_bytes(&plan->kv, plan->kv.num_blocks) / GIB,
                     (long long)(longest > 0 ? longest : 0));
  }
  say(e, "warning: context reduced from %d to %lld tokens to fit the KV cache", plan->max_model_len,
      (long long)longest);
  plan->max_model_len = (int32_t)longest;
  return 0;
}

static int choose_context(engine_t *e, memory_plan_t *plan, error_t *error) {
  int64_t asked = e->options.max_model_len;
  if (asked > e->blueprint.max_model_len) {
    return error_set(error, ERR_CONFIGURATION, "max_model_len",
                     "max_model_len is %lld; the model goes to %d", (long long)asked,
                     e->blueprint.max_model_len);
  }
  plan->max_model_len = asked > 0 ? (int32_t)asked : e->blueprint.max_model_len;
  return 0;
}

static int check_weights_fit(const memory_plan_t *plan, error_t *error) {
  size_t need = plan->weight_bytes + plan->workspace_bytes;
  if (need < plan->free_bytes) return 0;
  return error_set(error, ERR_NO_MEMORY, NULL,
                   "the model needs %.2f GiB for weights and %.2f GiB for work; %.2f GiB of memory "
                   "are free",
                   (double)plan->weight_bytes / GIB, (double)plan->workspace_bytes / GIB,
                   (double)plan->free_bytes / GIB);
}

static int plan_memory(engine_t *e, memory_plan_t *plan, error_t *error) {
  const engine_options_t *o = &e->options;
  const blueprint_t *bp = &e->blueprint;
  int code = choose_context(e, plan, error);
  if (code) return code;
  plan->kv = (kv_cache_desc_t){
      .num_layers = bp->num_layers,
      .num_kv_heads = bp->num_kv_heads,
      .head_dim = bp->head_dim,
      .block_size = o->block_size,
      .dtype = bp->dtype,
  };
  int32_t rows = o->max_num_seqs < 64 ? o->max_num_seqs : 64;
  e->logits_rows_max = rows;
  plan->limits = (step_limits_t){
      .tokens_max = o->max_num_batched_tokens,
      .reqs_max = o->max_num_seqs,
      .logits_rows_max = rows,
      .max_model_len = plan->max_model_len,
  };
  model_limits(bp, &plan->limits);
  plan->weight_bytes = model_weight_bytes(bp);
  plan->workspace_bytes =
      (size_t)plan->limits.tokens_max * (size_t)plan->limits.hidden_max * sizeof(float) * 6 +
      (size_t)rows * (size_t)bp->vocab_size * sizeof(float) * 2;
  plan->free_bytes = e->ops->memory_free(e->device);
  code = check_weights_fit(plan, error);
  if (code) return code;
  plan->kv.num_blocks = o->num_blocks > 0 ? o->num_blocks : blocks_from_budget(e, plan);
  code = fit_context(e, plan, error);
  if (code) return code;
  plan->limits.max_model_len = plan->max_model_len;
  plan->kv_bytes = e->ops->kv_bytes(&plan->kv, plan->kv.num_blocks);
  say(e, "%s %s, %d layers, hidden %d, heads %d/%d x %d, vocabulary %d, %s", bp->architecture,
      bp->family, bp->num_layers, bp->hidden_size, bp->num_heads, bp->num_kv_heads, bp->head_dim,
      bp->vocab_size, dtype_name(bp->dtype));
  say(e, "memory    free %.2f GiB: weights %.2f, workspace %.2f, kv cache %.2f (%d blocks of %d)",
      (double)plan->free_bytes / GIB, (double)plan->weight_bytes / GIB,
      (double)plan->workspace_bytes / GIB, (double)plan->kv_bytes / GIB, plan->kv.num_blocks,
      plan->kv.block_size);
  return 0;
}

static void on_progress(void *context, double fraction) {
  engine_t *e = context;
  atomic_store(&e->progress_permille, (int)(fraction * 1000.0));
}

static int load_model(engine_t *e, const memory_plan_t *plan, int32_t dtype, error_t *error) {
  model_options_t options = {
      .dir = e->options.model_dir,
      .dummy = e->options.dummy_weights,
      .dummy_seed = e->options.seed,
      .dtype = dtype,
      .progress = on_progress,
      .progress_context = e,
  };
  int code =
      model_load(e->ops, e->device, &e->blueprint, plan->max_model_len, &options, &e->model, error);
  if (!code) code = e->ops->kv_cache(e->device, &plan->kv, error);
  if (!code) code = e->ops->prepare(e->device, &plan->limits, error);
  if (!code) code = model_prepare(e->model, &plan->limits, error);
  return code;
}

static int draw_secret(const engine_t *e, uint64_t secret[2], error_t *error) {
  if (e->options.seed) {
    secret[0] = e->options.seed;
    secret[1] = ~e->options.seed;
    return 0;
  }
  if (getrandom(secret, 2 * sizeof *secret, 0) == (ssize_t)(2 * sizeof *secret)) return 0;
  return error_set(error, ERR_IO, NULL, "the system gives no random numbers");
}

/* Scheduler, block pool, batch, rows and the groups behind the queue. */
static int make_tables(engine_t *e, const memory_plan_t *plan, error_t *error) {
  const engine_options_t *o = &e->options;
  uint64_t secret[2];
  int code = draw_secret(e, secret, error);
  if (code) return code;
  code = block_pool_new(plan->kv.num_blocks, plan->kv.block_size, o->enable_prefix_caching, secret,
                        &e->pool, error);
  if (code) return code;
  scheduler_options_t options = {
      .max_num_seqs = o->max_num_seqs,
      .max_num_batched_tokens = o->max_num_batched_tokens,
      .max_model_len = plan->max_model_len,
      .long_prefill_token_threshold = o->long_prefill_token_threshold,
      .watermark_blocks = (int32_t)(o->watermark * (plan->kv.num_blocks - 1)),
      .reserve_full = true,
      .chunked_prefill = o->enable_chunked_prefill,
      .priority_policy = o->priority_policy,
  };
  code = scheduler_new(&options, e->pool, &e->scheduler, error);
  if (code) return code;
  size_t rows = (size_t)o->max_num_batched_tokens;
  if (batch_new(o->max_num_batched_tokens, o->max_num_seqs, plan->kv.block_size,
                e->scheduler->table_stride, &e->batch) != 0) {
    return error_set(error, ERR_NO_MEMORY, NULL, "no memory for a batch of %zu tokens", rows);
  }
  e->sample_rows = calloc(rows, sizeof *e->sample_rows);
  e->sample_results = calloc(rows, sizeof *e->sample_results);
  e->suppressed_ids = calloc((size_t)o->max_num_seqs * SUPPRESSED_MAX, sizeof(int32_t));
  /* Any stop set may be used with this tokenizer: plan for the longest held text. */
  e->text_max = detokenizer_out_max(e->tokenizer, NULL) + 2 * STOP_STRING_BYTES_MAX;
  e->text = malloc(e->text_max);
  if (!e->sample_rows || !e->sample_results || !e->suppressed_ids || !e->text) {
    return error_set(error, ERR_NO_MEMORY, NULL, "no memory for %zu sampling rows", rows);
  }
  return 0;
}

/* The ring holds two steps at their worst, and the end of everything that can be alive. */
static int make_mailbox(engine_t *e, error_t *error) {
  size_t seqs = (size_t)e->options.max_num_seqs, rows = (size_t)e->options.max_num_batched_tokens;
  int32_t top = LOGPROBS_MAX + LOGPROB_TOKEN_IDS_MAX;
  e->done_bytes_max = mailbox_event_bytes(STOP_STRING_BYTES_MAX + 8, 0);
  size_t largest = mailbox_event_bytes((uint32_t)e->text_max, top);
  e->step_bytes_max = seqs * largest + rows * mailbox_event_bytes(0, top) + largest;
  size_t bytes = 2 * e->step_bytes_max + ((size_t)e->num_groups + 1) * e->done_bytes_max;
  return mailbox_new((uint32_t)e->num_groups, bytes, &e->mailbox, error);
}

static void fill_info(engine_t *e, const memory_plan_t *plan) {
  const blueprint_t *bp = &e->blueprint;
  int32_t num_stop_ids = 0;
  for (int32_t i = 0; i < bp->num_eos; i++) {
    if (bp->eos_ids[i] != bp->primary_eos) e->stop_ids[num_stop_ids++] = bp->eos_ids[i];
  }
  e->info = (engine_info_t){
      .max_model_len = plan->max_model_len,
      .vocab_size = bp->vocab_size,
      .block_size = plan->kv.block_size,
      .num_blocks = plan->kv.num_blocks,
      .max_num_seqs = e->options.max_num_seqs,
      .max_num_batched_tokens = e->options.max_num_batched_tokens,
      .primary_eos = bp->primary_eos,
      .num_stop_ids = num_stop_ids,
      .stop_ids = e->stop_ids,
      .temperature = bp->temperature,
      .top_p = bp->top_p,
      .min_p = bp->min_p,
      .repetition_penalty = bp->repetition_penalty,
      .top_k = bp->top_k,
      .max_new_tokens = bp->max_new_tokens,
      .weights_hash = model_hash(e->model),
      .backend = e->ops->name,
      .device = e->ops->describe(e->device),
      .dtype = dtype_name(bp->dtype),
      .architecture = bp->architecture,
  };
}

static int check_directory(const char *dir, error_t *error) {
  struct stat status;
  if (stat(dir, &status) == 0 && S_ISDIR(status.st_mode)) return 0;
  return error_set(error, ERR_MODEL_MISSING, "model",
                   "%.400s is not a directory; a model is a directory with config.json, "
                   "tokenizer.json and *.safetensors",
                   dir);
}

int engine_start(engine_t *e, error_t *error) {
  int32_t dtype;
  memory_plan_t plan = {0};
  int code = parse_dtype(e->options.dtype, &dtype, error);
  if (!code) code = check_directory(e->options.model_dir, error);
  if (!code) code = tokenizer_load(e->options.model_dir, &e->tokenizer, error);
  if (!code) {
    code = blueprint_read(e->options.model_dir, tokenizer_model_max_length(e->tokenizer),
                          tokenizer_eos_id(e->tokenizer), &e->blueprint, error);
  }
  if (code) return code;
  if (dtype >= 0) e->blueprint.dtype = (dtype_t)dtype;
  code = open_device(e, error);
  if (!code) code = plan_memory(e, &plan, error);
  if (!code) code = load_model(e, &plan, dtype, error);
  if (!code) code = make_tables(e, &plan, error);
  if (!code) code = make_mailbox(e, error);
  if (!code) fill_info(e, &plan);
  return code;
}

void engine_release(engine_t *e) {
  mailbox_free(e->mailbox);
  batch_free(e->batch);
  scheduler_free(e->scheduler);
  block_pool_free(e->pool);
  model_free(e->model);
  if (e->device) e->ops->close(e->device);
  blueprint_free(&e->blueprint);
  tokenizer_free(e->tokenizer);
  free(e->sample_rows);
  free(e->sample_results);
  free(e->suppressed_ids);
  free(e->text);
}
