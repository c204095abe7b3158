/* device.c: the CPU as a back end: open, plan, workspaces, and the table ops_cpu.
 *
 * Owns device_t. Engine thread only. Set-up functions allocate and may fail; step functions never
 * allocate. An operation returns when its work is done, so `end` does not wait.
 */
#include "engine/base/check.h"
#include "engine/cpu/cpu.h"
#include "engine/cpu/lora.h"
#include "engine/cpu/probe.h"
#include "engine/cpu/ranks.h"

#include "engine/base/util.h"
#include "engine/cpu/isa/attend.h"
#include "engine/cpu/state.h"
#include "engine/device/topology.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void cpu_close(device_t *device) {
  if (device == NULL) return;
  pool_free(device->pool);
  populate_stop(&device->kv_populate);
  memory_unmap(device->kv_base, device->kv_mapped);
  memory_unmap(device->states, device->states_mapped);
  memory_release(device);
  free(device);
}

static int cpu_open(const device_options_t *options, device_t **out, inferd_error_t *error) {
  *out = NULL;
  const kernels_t *kernels = kernels_find(options->isa, error);
  if (kernels == NULL) return ERR_CONFIGURATION;
  if (options->num_threads < 0 || options->num_threads > POOL_THREADS_MAX)
    return error_set(error, ERR_CONFIGURATION, "threads", "threads is %d; it must be 0 to %d",
                     options->num_threads, POOL_THREADS_MAX);
  int threads = options->num_threads > 0 ? options->num_threads : topology_num_cpus();
  if (threads > POOL_THREADS_MAX) threads = POOL_THREADS_MAX;
  device_t *device = calloc(1, sizeof *device);
  if (device == NULL) return no_memory(error, "a device", sizeof *device);
  device->kernels = kernels;
  device->comm = options->comm;
  if (options->lender != NULL) {
    device->cols_max = options->lender->cols_max;
    device->unpacked_depth = options->lender->unpacked_depth;
    memcpy(device->ahead, options->lender->ahead, sizeof device->ahead);
  }
  device->pool = pool_new(threads);
  if (device->pool == NULL) {
    cpu_close(device);
    return error_set(error, ERR_NO_MEMORY, "threads",
                     "%d threads cannot be started; lower --threads", threads);
  }
  snprintf(device->description, sizeof device->description, "%d thread%s, %s", threads,
           threads == 1 ? "" : "s", kernels->name);
  *out = device;
  return 0;
}

static const char *cpu_describe(const device_t *device) {
  return device->description;
}

static size_t cpu_memory_free(const device_t *device) {
  (void)device;
  return topology_memory_free();
}

static void cpu_memory_limit(const device_t *device, char *out, size_t capacity) {
  (void)device;
  snprintf(out, capacity, "%s", topology_memory_room("").limit);
}

/* Allocates memory at set-up; the error message names the piece (`what`). */
static void *take(device_t *device, const char *what, size_t first, size_t second, size_t third,
                  inferd_error_t *error) {
  size_t bytes = SIZE_MAX;
  void *taken = size_product(&bytes, first, second, third) ? memory_take(device, bytes) : NULL;
  if (taken == NULL) no_memory(error, what, bytes);
  return taken;
}

static int prepare_attention(device_t *device, inferd_error_t *error) {
  const step_limits_t *limits = &device->limits;
  size_t threads = (size_t)pool_num_threads(device->pool), tokens = (size_t)limits->tokens_max;
  int32_t tile = device->kernels->attend != NULL ? ATTEND_ROWS : ATTENTION_ROWS;
  size_t rows = (size_t)MAX(limits->heads_max, tile);
  size_t dims = ROUND_UP((size_t)limits->head_dim_max, HEAD_ALIGN);
  for (int i = 0; i < ROPE_TABLES; i++) {
    rope_table_t *table = &device->rope_tables[i];
    table->rope = NULL;
    table->cosine = take(device, "rotary tables", tokens, dims, sizeof(float), error);
    if (table->cosine == NULL) return ERR_NO_MEMORY;
    table->sine = table->cosine + tokens * (dims / 2);
  }
  device->items = take(device, "attention", tokens + PARTIAL_ROWS, sizeof(item_t), 1, error);
  device->split_items = take(device, "attention", PARTIAL_ROWS, sizeof(item_t), 1, error);
  device->partial_stride = (int64_t)dims + 2;
  device->partials = take(device, "attention", PARTIAL_ROWS, dims + 2, sizeof(float), error);
  device->attention = take(device, "attention", threads, sizeof *device->attention, 1, error);
  if (device->items == NULL || device->split_items == NULL || device->partials == NULL ||
      device->attention == NULL)
    return ERR_NO_MEMORY;
  size_t scores = MAX(rows * SCORE_STRIDE * sizeof(float), attend_bytes(dims));
  for (size_t i = 0; i < threads; i++) {
    attention_scratch_t *scratch = &device->attention[i];
    scratch->q = take(device, "attention", rows, 3 * dims, sizeof(float), error);
    scratch->scores = take(device, "attention", scores, 1, 1, error);
    scratch->max = take(device, "attention", rows, 4, sizeof(float), error);
    scratch->seen = take(device, "attention", rows, sizeof *scratch->seen, 1, error);
    scratch->by_entry =
        take(device, "attention", DISTANCE_KEYS, SCORE_STRIDE, sizeof(float), error);
    if (scratch->q == NULL || scratch->scores == NULL || scratch->max == NULL ||
        scratch->seen == NULL || scratch->by_entry == NULL)
      return ERR_NO_MEMORY;
    scratch->acc = scratch->q + rows * dims;
    scratch->total = scratch->acc + rows * dims;
    scratch->sum = scratch->max + rows;
    scratch->total_max = scratch->sum + rows;
    scratch->total_sum = scratch->total_max + rows;
  }
  return 0;
}

static int cpu_prepare(device_t *device, const step_limits_t *limits, inferd_error_t *error) {
  CHECK_GT(limits->tokens_max, 0);
  CHECK_GT(limits->logits_rows_max, 0);
  CHECK_GT(limits->vocab_size, 0);
  CHECK_GT(limits->hidden_max, 0);
  CHECK_GT(limits->head_dim_max, 0);
  CHECK_GT(limits->heads_max, 0);
  device->limits = *limits;
  int64_t cols = MAX(limits->hidden_max, device->cols_max);
  cols = ROUND_UP(cols, DEPTH_ALIGN);
  device->staged_cols = cols;
  device->staged =
      take(device, "staged rows", ROW_BLOCK, (size_t)cols + DEPTH_ALIGN, sizeof(float), error);
  device->logits_stride = ROUND_UP(limits->vocab_size, PANEL_COLS);
  device->logits = take(device, "logits", (size_t)limits->logits_rows_max,
                        (size_t)device->logits_stride, sizeof(float), error);
  size_t threads = (size_t)pool_num_threads(device->pool);
  device->sample_scratch = take(device, "sampling", threads, sizeof(void *), 1, error);
  if (device->staged == NULL || device->logits == NULL || device->sample_scratch == NULL)
    return ERR_NO_MEMORY;
  size_t scratch = sample_scratch_bytes(limits->vocab_size);
  for (size_t i = 0; i < threads; i++) {
    device->sample_scratch[i] = take(device, "sampling", scratch, 1, 1, error);
    if (device->sample_scratch[i] == NULL) return ERR_NO_MEMORY;
  }
  if (device->unpacked_depth > 0) {
    device->unpacked = take(device, "unpacked weights", threads, (size_t)device->unpacked_depth,
                            PANEL_COLS * sizeof(uint16_t), error);
    if (device->unpacked == NULL) return ERR_NO_MEMORY;
  }
  int code = prepare_attention(device, error);
  if (code == 0) code = moe_prepare(device, error);
  if (code == 0) code = ranks_prepare(device, error);
  if (code == 0) code = lora_prepare(device, error);
  if (code == 0) probe_products(device);
  device->prepared = code == 0;
  return code;
}

static act_t *cpu_buffer(device_t *device, int64_t rows, int64_t width) {
  size_t bytes;
  if (rows <= 0 || width <= 0 || !size_product(&bytes, (size_t)rows, (size_t)width, sizeof(float)))
    return NULL;
  void *buffer = memory_take(device, bytes);
  if (buffer != NULL) memset(buffer, 0, bytes); /* touch the pages now, not in the first step */
  return buffer;
}

static void cpu_begin(device_t *device, const batch_t *batch) {
  CHECK(device->prepared);
  CHECK_LE(batch->num_tokens, device->limits.tokens_max);
  CHECK(device->kv_base == NULL || batch->block_size == device->kv.block_size);
  device->batch = batch;
  atomic_store_explicit(&device->kv_populate.busy, true, memory_order_relaxed);
  for (int i = 0; i < ROPE_TABLES; i++) device->rope_tables[i].rope = NULL;
  kv_copy_blocks(device, batch);
  state_copy_slots(device, batch);
}

/* Without other ranks nothing can fail. */
static int cpu_end(device_t *device, inferd_error_t *error) {
  atomic_store_explicit(&device->kv_populate.busy, false, memory_order_relaxed);
  if (device->comm == NULL || device->comm->error.code == 0) return 0;
  *error = device->comm->error;
  return ERR_DEVICE_FAILED;
}

static const cross_ops_t cross_ops = {
    .look_up = cpu_cross_look_up, .store = cpu_cross_store, .weigh = cpu_cross_weigh};

const ops_t ops_cpu = {
    .name = "cpu",
    .step_ms = 60,
    .client_step_ms = 4,
    .bidirectional = true,
    .kv_int8 = true,
    .kv_groups = true,
    .lends_weights = true,
    .weight_formats = (2U << WEIGHT_GROUPED_FP8) - 2, /* all but WEIGHT_PLAIN, which is no bit */
    .state = &cpu_state_ops,
    .swap = &cpu_swap_ops,
    .open = cpu_open,
    .close = cpu_close,
    .describe = cpu_describe,
    .memory_free = cpu_memory_free,
    .memory_limit = cpu_memory_limit,
    .weight = cpu_weight,
    .weight_bytes = cpu_weight_bytes,
    .vector = cpu_vector,
    .kv_bytes = cpu_kv_bytes,
    .kv_cache = cpu_kv_cache,
    .prepare = cpu_prepare,
    .buffer = cpu_buffer,
    .begin = cpu_begin,
    .embed = cpu_embed,
    .embed_positions = cpu_embed_positions,
    .embed_types = cpu_embed_types,
    .embed_pictures = cpu_embed_pictures,
    .norm = cpu_norm,
    .linear = cpu_linear,
    .fused_linear = cpu_fused_linear,
    .rope_store = cpu_rope_store,
    .attention = cpu_attention,
    .activation = cpu_activation,
    .gated_add = cpu_gated_add,
    .moe = cpu_moe,
    .lora = &cpu_lora_ops,
    .gather = cpu_gather,
    .logits = cpu_logits,
    .sample = cpu_sample,
    .read_rows = cpu_read_rows,
    .write_rows = cpu_write_rows,
    .end = cpu_end,
    .read_logits = cpu_read_logits,
    .latent = &cpu_latent_ops,
    .per_layer = &cpu_per_layer_ops,
    .altup = &cpu_altup_ops,
    .values = &cpu_value_ops,
    .drafts = &cpu_draft_ops,
    .tower = &cpu_tower_ops,
    .cross = &cross_ops,
    .ranks = &cpu_rank_ops,
};
