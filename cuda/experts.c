/* experts.c: mixtures of experts, and the gate of the shared expert.
 *
 * Engine thread; only launches, but for experts_prepare, which takes the workspace before READY.
 */
#include "cuda/host.h"
#include "cuda/kernels/moe.h"
#include "cuda/operations.h"
#include "cuda/ranks/exchange.h"
#include "cuda/sleep.h"
#include "engine/base/check.h"
#include "engine/base/util.h"

size_t experts_bytes(const step_limits_t *limits) {
  const int32_t hidden = ROUND_UP(limits->hidden_max, GPU_ROW_ALIGN); /* may be of another layer */
  return gpu_moe_workspace_bytes(hidden, limits->expert_width_max, limits->experts_max,
                                 limits->experts_top_max);
}

int experts_prepare(device_t *device, inferd_error_t *error) {
  const step_limits_t *limits = &device->limits;
  if (limits->experts_max == 0) return 0;
  size_t bytes = experts_bytes(limits);
  if (bytes == 0) {
    return error_set(error, ERR_CONFIGURATION, NULL,
                     "%d experts of width %d, %d a row, do not run on cuda: at most %d and %d a "
                     "row, widths in multiples of %d",
                     limits->experts_max, limits->expert_width_max, limits->experts_top_max,
                     GPU_EXPERTS_MAX, GPU_EXPERTS_TOP_MAX, GPU_ROW_ALIGN);
  }
  return sleep_take(device, SLEEP_DROPS, &device->experts, bytes, "experts", error);
}

void cuda_gated_add(device_t *device, act_t *out, const act_t *in, const act_t *gate,
                    const act_t *residual, int32_t width, int32_t rows) {
  if (!device_is_live(device)) return;
  device_note(device,
              gpu_gated_add(device->dtype, out, in, gate, residual, width, rows, device->stream),
              "gated_add");
}

static gpu_routing_t routing_of(routing_t routing) {
  switch (routing) {
  case ROUTING_SOFTMAX: return GPU_ROUTING_SOFTMAX;
  case ROUTING_SIGMOID: return GPU_ROUTING_SIGMOID;
  default: return GPU_ROUTING_LOGITS;
  }
}

/* The ranks exchange what every expert gives for each row, so that the sum is that of one rank. */
static void mix_of_ranks(device_t *device, const gpu_moe_t *all) {
  const comm_t *comm = device->exchange->comm;
  const size_t row = (size_t)all->hidden * sizeof(uint16_t), pairs = row * (size_t)all->top_k;
  const size_t fitting = device->exchange->bytes / (pairs * (size_t)comm->size);
  const int32_t most = (int32_t)MIN(fitting, (size_t)GPU_MOE_ROWS);
  for (int32_t first = 0; first < all->rows && device_is_live(device); first += most) {
    size_t cuts[RANKS_MAX + 1];
    gpu_moe_t args = *all;
    args.rows = MIN(all->rows - first, most);
    args.in = (const uint8_t *)all->in + (size_t)first * row;
    args.out = (uint8_t *)all->out + (size_t)first * row;
    if (all->residual != NULL) args.residual = (const uint8_t *)all->residual + (size_t)first * row;
    for (int32_t r = 0; r <= comm->size; r++) cuts[r] = (size_t)(r * args.rows) * pairs;
    uint8_t *own = device->exchange->parts + cuts[comm->rank];
    device_note(device, gpu_moe_pairs(device->dtype, &args, own, device->stream), "moe");
    exchange_gather(device, own, cuts, -1);
    if (device_is_live(device))
      device_note(device,
                  gpu_moe_mix(device->dtype, &args, device->exchange->parts, device->stream),
                  "moe");
  }
}

void cuda_moe(device_t *device, act_t *out, const act_t *in, const act_t *residual,
              const moe_t *moe, int32_t rows) {
  CHECK_LE(moe->num_experts, device->limits.experts_max);
  CHECK_LE(moe->width, device->limits.expert_width_max);
  CHECK_LE(moe->top_k, device->limits.experts_top_max);
  if (moe->host_width > 0) { /* its weights are none of this back end */
    host_moe(device, out, in, residual, moe, rows);
    return;
  }
  CHECK_LE(moe->up->cols, device->limits.hidden_max);
  if (!device_is_live(device)) return;
  gpu_moe_t args = {
      .in = in,
      .residual = residual,
      .out = out,
      .router = moe->router->data,
      .router_bias = moe->router_bias != NULL ? moe->router_bias->values : NULL,
      .up = moe->up->data,
      .down = moe->down->data,
      .up_packed = moe->up->packed,
      .down_packed = moe->down->packed,
      .up_bias = moe->up_bias != NULL ? moe->up_bias->values : NULL,
      .down_bias = moe->down_bias != NULL ? moe->down_bias->values : NULL,
      .rows = rows,
      .hidden = (int32_t)moe->up->cols,
      .width = moe->width,
      .num_experts = moe->num_experts,
      .top_k = moe->top_k,
      .normalise = moe->normalise,
      .routing = routing_of(moe->routing),
      .choice_bias = moe->choice_bias != NULL ? moe->choice_bias->values : NULL,
      .num_groups = moe->num_groups,
      .groups_top = moe->groups_top,
      .group_pairs = moe->group_pairs,
      .share_floor = moe->share_floor,
      .share_factor = moe->share_factor,
      .share_more = moe->share_more,
      .activation = activation_of(moe->activation),
      .workspace = device->experts,
  };
  if (moe->cuts != NULL) {
    args.experts = gpu_cuts_of(device->exchange->comm->size, moe->cuts);
    args.rank = device->exchange->comm->rank;
  }
  if (moe->cuts != NULL && !moe->sums_own)
    mix_of_ranks(device, &args);
  else
    device_note(device, gpu_moe(device->dtype, &args, device->stream), "moe");
}
