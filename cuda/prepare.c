/* prepare.c: allocates the KV pool and every workspace of a step, once.
 *
 * Engine thread, before READY. All sizes are functions of step_limits_t; a step never allocates.
 */
#include "cuda/blas.h"
#include "cuda/host.h"
#include "cuda/operations.h"
#include "cuda/ranks/exchange.h"
#include "cuda/sleep.h"
#include "engine/base/check.h"
#include "engine/base/util.h"

#include <stdlib.h>
#include <string.h>

enum {
  WORKERS_PER_MULTIPROCESSOR = 2, /* blocks of the decode grid */
  ITEMS_PER_WORKER = 4,
  TILE_ROWS_MAX = 32, /* weight rows of a block of gpu_skinny */
  /* for the plan, before the device is asked */
  TOKEN_BYTES = 64,
  BLOCK_SIZE_MIN = 16,
  ITEMS_PLENTY = 1200
};

static gpu_kv_t kv_of(const kv_cache_desc_t *desc) {
  return (gpu_kv_t){.num_layers = desc->num_layers,
                    .num_blocks = desc->num_blocks > 0 ? desc->num_blocks : 1,
                    .block_size = desc->block_size,
                    .num_kv_heads = desc->num_kv_heads,
                    .head_dim = desc->head_dim,
                    .dtype = desc->dtype,
                    .fp8 = desc->fp8};
}

size_t cuda_kv_bytes(const kv_cache_desc_t *desc, int32_t num_blocks) {
  gpu_kv_t kv = kv_of(desc);
  size_t block = gpu_kv_block_bytes(&kv), history = (size_t)desc->block_size * sizeof(int32_t);
  if (block == 0 || desc->num_layers < 0 || num_blocks < 0) return SIZE_MAX;
  size_t layers = device_product(block, (size_t)desc->num_layers, 1);
  if (layers > SIZE_MAX / 2) return SIZE_MAX;
  return device_product(layers + history, (size_t)num_blocks, 1);
}

/* Copies the scales of an fp8 cache to the device; all heads of a layer have the same scale. */
static int take_scales(device_t *device, const kv_cache_desc_t *desc, gpu_kv_t *kv,
                       inferd_error_t *error) {
  if (!desc->fp8 || desc->scales == NULL) return 0;
  const size_t heads = (size_t)desc->num_kv_heads, pairs = 2 * (size_t)desc->num_layers;
  const size_t bytes = device_product(pairs, heads, sizeof(float));
  void *scales;
  float *values;
  int code = sleep_take(device, SLEEP_KEEPS, &scales, bytes, "the KV cache", error);
  if (!code) code = device_take_heap(device, (void **)&values, bytes, "the KV cache", error);
  if (code) return code;
  for (size_t i = 0; i < pairs * heads; i++) values[i] = desc->scales[i / heads];
  kv->scales = scales;
  int status = (int)cudaMemcpyAsync(scales, values, bytes, cudaMemcpyHostToDevice, device->stream);
  return status ? device_error(status, "the scales of the KV cache", error) : 0;
}

int cuda_kv_cache(device_t *device, const kv_cache_desc_t *desc, inferd_error_t *error) {
  gpu_kv_t kv = kv_of(desc);
  size_t block = gpu_kv_block_bytes(&kv);
  if (desc->dtype == DTYPE_F32 || (device->has_dtype && desc->dtype != device->dtype)) {
    return error_set(error, ERR_CONFIGURATION, "dtype",
                     "the KV cache of cuda has the type of the weights, float16 or bfloat16");
  }
  if (block == 0) {
    return error_set(error, ERR_CONFIGURATION, "block_size",
                     "cuda takes blocks of 16, 32 or 64 slots and heads of 8 to %d values in "
                     "multiples of 8; block_size is %d, head_dim %d",
                     GPU_HEAD_DIM_MAX, desc->block_size, desc->head_dim);
  }
  size_t blocks = (size_t)desc->num_blocks;
  size_t bytes = device_product(block, (size_t)desc->num_layers, blocks);
  device->taken_by_weights = device->taken;
  int code = sleep_take(device, SLEEP_DROPS, &kv.base, bytes, "the KV cache", error);
  if (code) return code;
  size_t slots = device_product(blocks, (size_t)desc->block_size, sizeof(int32_t));
  code = sleep_take(device, SLEEP_DROPS, (void **)&device->inputs.history, slots, "the KV cache",
                    error);
  if (!code) code = take_scales(device, desc, &kv, error);
  device->taken_by_kv = device->taken - device->taken_by_weights;
  if (code) return code;
  device->kv = kv;
  device->has_hopper_prefill = !device->is_batch_invariant && gpu_attention_prefill_sm90_fits(&kv);
  return 0;
}

act_t *cuda_buffer(device_t *device, int64_t rows, int64_t width) {
  void *buffer = NULL;
  if (rows <= 0 || width <= 0) return NULL;
  size_t bytes = device_product((size_t)rows, (size_t)width, sizeof(uint16_t));
  return sleep_take(device, SLEEP_DROPS, &buffer, bytes, "activations", NULL) == 0 ? buffer : NULL;
}

/* One allocation: pointer, number of bytes, kind of memory. */
typedef struct need {
  void **out;
  size_t bytes;
} need_t;

static int take_all(device_t *device, const need_t *needs, size_t count, const char *what,
                    inferd_error_t *error) {
  int code = 0;
  for (size_t i = 0; i < count && !code; i++) {
    code = device_take(device, needs[i].out, needs[i].bytes, what, error);
  }
  return code;
}

/* Of large buffers in which nothing stays from step to step. */
static int take_work(device_t *device, const need_t *needs, size_t count, const char *what,
                     inferd_error_t *error) {
  int code = 0;
  for (size_t i = 0; i < count && !code; i++) {
    code = sleep_take(device, SLEEP_DROPS, needs[i].out, needs[i].bytes, what, error);
  }
  return code;
}

/* Rows of a step that draw, each with arrays of its own: those of draft tokens, too. */
static size_t drawn_rows(const step_limits_t *limits) {
  const int64_t drafts = (int64_t)limits->reqs_max * limits->drafts_max;
  return (size_t)(limits->reqs_max + MIN(drafts, limits->drafts_all_max));
}

/* Bytes of the largest packet: header, sampler rows, inputs, every table entry, copies, and the
 * arrays to which sampled rows point. */
static size_t largest_packet(const device_t *device) {
  const step_limits_t *limits = &device->limits;
  size_t tokens = (size_t)limits->tokens_max, reqs = (size_t)limits->reqs_max;
  size_t table = device_product(reqs, (size_t)device->block_table_stride, sizeof(gpu_update_t));
  size_t rows = device_product(tokens, sizeof(gpu_sample_row_t) + 4 * 4 + 8 + PACKET_ALIGN, 1);
  size_t payload = device_product(drawn_rows(limits), device->payload_max, 1);
  size_t copies = device_product(reqs, 8 + sizeof(block_copy_t), 1);
  size_t states = reqs * (2 * sizeof(int32_t) + sizeof(gpu_state_copy_t)) +
                  (size_t)device->state.num_slots * sizeof(gpu_save_t);
  if (table > INT32_MAX || rows > INT32_MAX || payload > INT32_MAX) return SIZE_MAX;
  size_t bytes =
      sizeof(gpu_packet_t) + table + rows + payload + copies + states + 64 * PACKET_ALIGN;
  bytes = DIV_UP(bytes, PACKET_ALIGN) * PACKET_ALIGN;
  return bytes > INT32_MAX ? SIZE_MAX : bytes; /* offsets in a packet are int32 */
}

static int take_inputs(device_t *device, inferd_error_t *error) {
  const step_limits_t *limits = &device->limits;
  size_t tokens = (size_t)limits->tokens_max, reqs = (size_t)limits->reqs_max;
  size_t stride = (size_t)device->block_table_stride;
  const char *what = "inputs of a step";
  gpu_inputs_t *in = &device->inputs;
  const need_t needs[] = {
      {(void **)&device->packet, device->packet_max},
      {(void **)&in->turn, 2 * sizeof(int32_t)},
      {(void **)&in->input_ids, device_product(tokens, sizeof(int32_t), 1)},
      {(void **)&in->positions, device_product(tokens, sizeof(int32_t), 1)},
      {(void **)&in->slots, device_product(tokens, sizeof(int64_t), 1)},
      {(void **)&in->query_start_loc, device_product(reqs + 1, sizeof(int32_t), 1)},
      {(void **)&in->seq_lens, device_product(reqs, sizeof(int32_t), 1)},
      {(void **)&in->selected, device_product(tokens, sizeof(int32_t), 1)},
      {(void **)&in->block_table, device_product(reqs, stride, sizeof(int32_t))},
      {(void **)&device->results, device_product(tokens, sizeof(gpu_sample_result_t), 1)},
      {(void **)&device->tops, device_product(tokens, sizeof(gpu_sample_top_t), 1)},
  };
  int code = take_all(device, needs, ARRAY_LEN(needs), what, error);
  for (int i = 0; i < GPU_PACKETS && !code; i++)
    code = device_take_pinned(device, (void **)&device->host_packets[i], device->packet_max, what,
                              error);
  if (code) return code;
  in->packet = (gpu_packet_t *)(void *)device->packet;
  in->drawn = device->results;
  return device_take_heap(device, (void **)&device->block_table_mirror,
                          device_product(reqs, stride, sizeof(int32_t)), "the block table", error);
}

static int take_steps(device_t *device, inferd_error_t *error) {
  size_t tokens = (size_t)device->limits.tokens_max;
  for (int i = 0; i < STEPS_IN_FLIGHT_MAX; i++) {
    cuda_step_t *step = &device->steps[i];
    const char *what = "steps in flight";
    int code = device_take_pinned(device, (void **)&step->results,
                                  device_product(tokens, sizeof *step->results, 1), what, error);
    if (!code)
      code = device_take_pinned(device, (void **)&step->tops,
                                device_product(tokens, sizeof *step->tops, 1), what, error);
    if (!code)
      code = device_take_heap(device, (void **)&step->targets,
                              device_product(tokens, sizeof(sample_result_t *), 1), what, error);
    if (!code)
      code = device_take_heap(device, (void **)&step->num_sorted,
                              device_product(tokens, sizeof(int32_t), 1), what, error);
    if (code) return code;
    int status = (int)cudaEventCreateWithFlags(&step->done, cudaEventDisableTiming);
    if (status) return device_error(status, what, error);
  }
  return 0;
}

/* Query tokens of the decodes of a step: the decode kernel has room for so many. */
static size_t decode_tokens(const step_limits_t *limits) {
  return (size_t)MAX(limits->reqs_max, graph_tokens_max(limits));
}

/* Returns the number of decode items of a step. Rows are cut as finely as allowed until the grid
 * has enough items; further rows are cut less, which changes no bits. */
static size_t items_max(const device_t *device) {
  size_t tokens = decode_tokens(&device->limits),
         plenty = (size_t)device->workers * ITEMS_PER_WORKER;
  size_t finest = tokens * (size_t)gpu_decode_items(device->limits.max_model_len);
  return tokens + MIN(finest, plenty);
}

static int take_attention(device_t *device, inferd_error_t *error) {
  const step_limits_t *limits = &device->limits;
  size_t tokens = (size_t)limits->tokens_max, reqs = (size_t)limits->reqs_max,
         items = items_max(device);
  size_t tile = (size_t)gpu_prefill_tile(limits->head_dim_max), tiles = tokens / tile + reqs;
  size_t heads = (size_t)limits->heads_max, half = (size_t)limits->head_dim_max / 2;
  int code = 0;
  for (int i = 0; i < WINDOWS_MAX && !code; i++) {
    gpu_plan_t *plan = &device->windows[i].plan;
    const need_t needs[] = {
        {(void **)&plan->counts, 4 * sizeof(int32_t)},
        {(void **)&plan->items, device_product(items, sizeof(gpu_decode_item_t), 1)},
        {(void **)&plan->row_items, device_product(reqs, 2, sizeof(int32_t))},
        {(void **)&plan->tiles, device_product(tiles, 2, sizeof(int32_t))},
    };
    device->windows[i].window = -1;
    plan->items_max = (int32_t)items;
    plan->tiles_max = (int32_t)tiles;
    code = take_all(device, needs, ARRAY_LEN(needs), "attention", error);
  }
  for (int i = 0; i < ROPES_MAX && !code; i++) {
    const need_t needs[] = {
        {(void **)&device->ropes[i].inv_freq, device_product(half, sizeof(float), 1)},
        {(void **)&device->ropes[i].table, device_product(tokens, half, 2 * sizeof(float))},
    };
    code = take_all(device, needs, ARRAY_LEN(needs), "rotary tables", error);
    if (!code)
      code = device_take_heap(device, (void **)&device->ropes[i].host_freq,
                              device_product(half, sizeof(float), 1), "rotary tables", error);
  }
  const need_t needs[] = {
      {(void **)&device->partial,
       device_product(items, heads, (size_t)limits->head_dim_max * sizeof(float))},
      {(void **)&device->partial_state, device_product(items, heads, 2 * sizeof(float))},
      {(void **)&device->attention_tickets, device_product(items, heads, sizeof(int32_t))},
  };
  if (!code) code = take_work(device, needs, ARRAY_LEN(needs), "attention", error);
  return code;
}

static int take_linear(device_t *device, inferd_error_t *error) {
  const int32_t n = device->shared_rows_max = device->multiprocessors * TILE_ROWS_MAX;
  const need_t needs[] = {
      {(void **)&device->linear_partial, gpu_skinny_partial_bytes(GPU_SKINNY_ROWS_MAX, n)},
      {(void **)&device->tickets, ((size_t)n / 8 + 1) * sizeof(int32_t)},
  };
  return take_work(device, needs, 2, "linear layers", error);
}

static int take_sampler(device_t *device, inferd_error_t *error) {
  size_t rows = (size_t)device->limits.logits_rows_max, vocab = (size_t)device->limits.vocab_size;
  const need_t needs[] = {
      {(void **)&device->logits, device_product(rows, vocab, sizeof(float))},
      {&device->scratch,
       device_product(rows, gpu_sample_scratch_bytes(device->limits.vocab_size), 1)},
  };
  int code = take_work(device, needs, 2, "logits", error);
  if (!code)
    code = device_take_pinned(device, (void **)&device->host_logits,
                              device_product(vocab, sizeof(float), 1), "logits", error);
  if (code) return code;
  return device_take_heap(device, (void **)&device->host_ids,
                          device_product(vocab, 2, sizeof(int32_t)), "logits", error);
}

size_t cuda_workspace_bytes(const step_limits_t *limits) {
  size_t tokens = (size_t)limits->tokens_max, reqs = (size_t)limits->reqs_max;
  size_t rows = (size_t)limits->logits_rows_max, vocab = (size_t)limits->vocab_size;
  const size_t rank = (size_t)limits->adapter_rank_max;
  size_t token = sizeof(gpu_sample_row_t) + sizeof(gpu_sample_result_t) + sizeof(gpu_sample_top_t) +
                 (size_t)limits->head_dim_max * ROPES_MAX * sizeof(float) + TOKEN_BYTES +
                 (rank > 0 ? sizeof(int32_t) + rank * sizeof(float) : 0);
  size_t req = (size_t)limits->max_model_len / BLOCK_SIZE_MIN * (sizeof(gpu_update_t) + 4);
  size_t items = decode_tokens(limits) + ITEMS_PLENTY;
  return tokens * token + reqs * req + drawn_rows(limits) * draw_payload_max(limits->vocab_size) +
         items * (size_t)limits->heads_max * ((size_t)limits->head_dim_max + 3) * sizeof(float) +
         rows * (vocab * sizeof(float) + gpu_sample_scratch_bytes(limits->vocab_size)) +
         BLAS_WORKSPACE + unpacked_bytes(limits) + graph_bytes(limits) +
         (size_t)gpu_conv_borders() * (size_t)limits->conv_values_max * sizeof(float) +
         experts_bytes(limits) + exchange_bytes(limits);
}

int cuda_prepare(device_t *device, const step_limits_t *limits, inferd_error_t *error) {
  CHECK_GT(limits->tokens_max, 0);
  CHECK_GT(limits->reqs_max, 0);
  CHECK_GT(limits->logits_rows_max, 0);
  CHECK_GT(limits->vocab_size, 0);
  CHECK_GT(limits->head_dim_max, 0);
  CHECK_GT(limits->heads_max, 0);
  CHECK_GT(device->kv.block_size, 0);
  device->limits = *limits;
  device->block_table_stride = DIV_UP(limits->max_model_len, device->kv.block_size);
  device->workers = device->multiprocessors * WORKERS_PER_MULTIPROCESSOR;
  device->payload_max = draw_payload_max(limits->vocab_size);
  device->packet_max = largest_packet(device);
  int status = weight_staging_release(device);
  if (status) return device_error(status, "loading weights", error);
  int code = take_inputs(device, error);
  if (!code) code = take_steps(device, error);
  if (!code) code = states_prepare(device, error);
  if (!code) code = take_attention(device, error);
  if (!code) code = take_linear(device, error);
  if (!code) code = unpacked_prepare(device, error);
  if (!code) code = experts_prepare(device, error);
  if (!code) code = host_prepare(device, error);
  if (!code) code = cuda_lora_prepare(device, error);
  if (!code) code = take_sampler(device, error);
  if (!code) code = exchange_open(device, error);
  if (!code) code = blas_open(device, error);
  if (code) return code;
  status = (int)cudaStreamSynchronize(device->stream);
  if (status) return device_error(status, "preparing the device", error);
  device->is_prepared = true;
  return 0;
}
