/* attend.c: rotation, the write to the cache, and attention; keeps what the layers of a step share.
 *
 * Engine thread; only launches. cos and sin of the positions of the step are computed
 * once per rotary setting. The plan of attention is made once per window, on the device, from the
 * lengths of the step.
 */
#include "cuda/operations.h"
#include "engine/base/check.h"

#include <string.h>

/* Returns the table of a rotary setting for this step. The frequencies are copied to the device
 * when the setting is first seen, in a step before READY, from memory of the device's own: the
 * model may be freed before the copy is made. */
static const float *rope_table(device_t *device, const rope_t *rope) {
  rope_slot_t *slot = device->ropes;
  while (slot < device->ropes + ROPES_MAX && slot->rope != NULL && slot->rope != rope) slot++;
  CHECK_LT(slot, device->ropes + ROPES_MAX);
  CHECK_LE(rope->dims, device->limits.head_dim_max);
  if (slot->rope == NULL) {
    const size_t bytes = (size_t)rope->dims / 2 * sizeof(float);
    slot->rope = rope;
    memcpy(slot->host_freq, rope->inv_freq, bytes);
    device_note(device,
                (int)cudaMemcpyAsync(slot->inv_freq, slot->host_freq, bytes, cudaMemcpyHostToDevice,
                                     device->stream),
                "rotary frequencies");
  }
  if (slot->is_filled) return slot->table;
  slot->is_filled = true;
  device_note(device,
              gpu_rope_table(slot->table, device->inputs.positions, slot->inv_freq, rope->scale,
                             rope->dims, device->batch->num_tokens, device->stream),
              "rope_table");
  return slot->table;
}

gpu_rope_store_t rope_store_of(device_t *device, act_t *qkv, const attention_t *attention) {
  return (gpu_rope_store_t){
      .qkv = qkv,
      .slots = device->inputs.slots,
      .table = attention->rope != NULL ? rope_table(device, attention->rope) : NULL,
      .q_norm = attention->q_norm != NULL ? attention->q_norm->values : NULL,
      .k_norm = attention->k_norm != NULL ? attention->k_norm->values : NULL,
      .norm_eps = attention->norm_eps,
      .dims = attention->rope != NULL ? attention->rope->dims : 0,
      .num_heads = attention->num_heads,
      .tokens = device->batch->num_tokens,
      .layer = attention->layer,
      .norm_whole = attention->norm_whole,
      .norm_each = attention->norm_each,
      .norm_late = attention->norm_late,
  };
}

void cuda_rope_store(device_t *device, act_t *qkv, const attention_t *attention) {
  if (!device_is_live(device)) return;
  const gpu_rope_store_t args = rope_store_of(device, qkv, attention);
  if (!device_is_live(device)) return;
  device_note(device, gpu_rope_store(&device->kv, &args, device->stream), "rope_store");
}

/* Puts the plan of this step, window and group of heads into `args`; the first call of a step makes
 * the plan. */
static void use_plan(device_t *device, gpu_attention_t *args) {
  const int32_t group = args->num_heads / args->kv.num_kv_heads;
  window_slot_t *slot = device->windows;
  while (slot < device->windows + WINDOWS_MAX && slot->window >= 0 &&
         (slot->window != args->window || slot->group != group))
    slot++;
  CHECK_LT(slot, device->windows + WINDOWS_MAX);
  slot->window = args->window;
  slot->group = group;
  args->plan = slot->plan;
  if (slot->is_filled) return;
  slot->is_filled = true;
  device_note(device, gpu_attention_plan(args, device->stream), "attention_plan");
}

void cuda_attention(device_t *device, act_t *out, const act_t *qkv, const attention_t *attention) {
  if (!device_is_live(device)) return;
  gpu_attention_t args = {
      .kv = device->kv,
      .qkv = qkv,
      .out = out,
      .block_table = device->inputs.block_table,
      .seq_lens = device->inputs.seq_lens,
      .query_start_loc = device->inputs.query_start_loc,
      .sinks = attention->sinks != NULL ? attention->sinks->values : NULL,
      .partial = device->partial,
      .partial_state = device->partial_state,
      .tickets = device->attention_tickets,
      .decode_queries = device->decode_queries,
      .block_table_stride = device->block_table_stride,
      .rows = device->batch->num_reqs,
      .layer = attention->layer,
      .num_heads = attention->num_heads,
      .window = attention->window,
      .scale = attention->scale,
      .softcap = attention->softcap,
  };
  use_plan(device, &args);
  if (device->has_decodes && device_is_live(device))
    device_note(device, gpu_attention_decode(&args, device->workers, device->stream),
                "attention_decode");
  if (device->num_prefill_tiles == 0 || !device_is_live(device)) return;
  int (*prefill)(const gpu_attention_t *, int32_t, gpu_stream_t) =
      device->has_hopper_prefill && args.scale > 0.0f ? gpu_attention_prefill_sm90
                                                      : gpu_attention_prefill;
  device_note(device, prefill(&args, device->num_prefill_tiles, device->stream),
              "attention_prefill");
}
