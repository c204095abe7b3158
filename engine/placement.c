/* placement.c: which experts of a model lie in host memory; see placement.h.
 *
 * Reads headers of files alone. The layers are the first ones, so that a number says which: those
 * behind stay on the device whatever the files hold.
 */
#include "engine/placement.h"

#include "engine/device/topology.h"
#include "engine/internal.h"

#include <stdlib.h>

static const double GIB = 1024.0 * 1024.0 * 1024.0;

static int contradicts(const char *option, const char *why, inferd_error_t *error) {
  return error_set(error, ERR_CONFIGURATION, "cpu_experts",
                   "cpu_experts is set, and so is %s, %s; leave one of them out", option, why);
}

int placement_check(engine_t *engine, inferd_error_t *error) {
  engine_options_t *options = &engine->options;
  const blueprint_t *bp = &engine->blueprint;
  const bool asked = options->host_experts != 0 && options->host_experts != HOST_EXPERTS_AUTO;
  if (options->host_experts == 0) return 0;
  if (bp->num_experts == 0 && asked)
    return error_set(error, ERR_CONFIGURATION, "cpu_experts",
                     "cpu_experts is set, and the model (%s) has no experts; it must be 0 or auto",
                     bp->architecture);
  if (bp->num_experts > 0 && engine->ops->host == NULL)
    engine_say(engine, "experts   with device %s all of them are computed on the CPU",
               engine->ops->name);
  if (bp->num_experts == 0 || engine->ops->host == NULL) {
    options->host_experts = 0;
    return 0;
  }
  if (options->comm != NULL || options->planned_ranks > 1)
    return contradicts("tensor_parallel_size", "whose ranks compute experts on their devices",
                       error);
  if (options->sleep_space_bytes > 0)
    return contradicts("sleep_space", "with which a model leaves its device as a whole", error);
  return 0;
}

/* Adds what layer i changes, if its experts are in host memory, or leaves it on the device. */
static void count_layer(const expert_bytes_t *layer, bool on_host, placement_t *out) {
  if (layer->device == 0) return;
  out->layers_all++;
  if (!on_host) {
    out->device_unread += layer->device - layer->device_read;
    return;
  }
  out->layers++;
  out->host_bytes += layer->host;
  out->host_read += layer->host_read;
  out->device_spared += layer->device;
}

static placement_t place_layers(const engine_t *engine, const expert_bytes_t *layers,
                                int32_t count) {
  placement_t out = {0};
  for (int32_t i = 0; i < engine->blueprint.num_layers; i++)
    count_layer(&layers[i], out.layers < count, &out);
  return out;
}

/* Linux would overcommit, and the OOM killer would end the process while weights are read. */
static int check_host(const placement_t *placement, inferd_error_t *error) {
  const memory_room_t room = topology_memory_room("");
  const size_t need = placement->host_bytes + placement->host_work;
  if (placement->layers == 0 || need <= room.bytes) return 0;
  return error_set(error, ERR_NO_MEMORY, "cpu_experts",
                   "the experts of %d of %d layers need %.2f GiB of host memory and %.2f GiB for "
                   "work; %.2f GiB are free (%s), %.2f GiB too few",
                   placement->layers, placement->layers_all, (double)placement->host_bytes / GIB,
                   (double)placement->host_work / GIB, (double)room.bytes / GIB, room.limit,
                   (double)(need - room.bytes) / GIB);
}

int placement_plan(engine_t *engine, const model_options_t *model, const step_limits_t *limits,
                   size_t weight_bytes, size_t room, placement_t *out, inferd_error_t *error) {
  const int32_t wanted = engine->options.host_experts;
  *out = (placement_t){0};
  if (wanted == 0) return 0;
  expert_bytes_t *layers = calloc((size_t)engine->blueprint.num_layers, sizeof *layers);
  if (layers == NULL) return error_set(error, ERR_NO_MEMORY, NULL, "no memory for a plan");
  int code = model_expert_bytes(engine->ops, &engine->blueprint, model, layers, error);
  int32_t count = wanted == HOST_EXPERTS_AUTO ? 0 : wanted;
  if (code == 0) *out = place_layers(engine, layers, count);
  while (code == 0 && wanted == HOST_EXPERTS_AUTO && out->layers < out->layers_all &&
         weight_bytes - out->device_spared > room)
    *out = place_layers(engine, layers, ++count);
  free(layers);
  if (code != 0) return code;
  if (wanted > out->layers_all && wanted != HOST_EXPERTS_ALL)
    return error_set(error, ERR_CONFIGURATION, "cpu_experts",
                     "cpu_experts is %d; the model (%s) has %d layers with experts: it must be 0 "
                     "to %d, all or auto",
                     wanted, engine->blueprint.architecture, out->layers_all, out->layers_all);
  if (out->layers > 0) out->host_work = engine->ops->host->workspace_bytes(limits);
  engine->options.host_experts = out->layers;
  return check_host(out, error);
}

void placement_say(const engine_t *engine, const placement_t *placement, size_t weight_bytes) {
  if (placement->layers_all == 0) return;
  engine_say(engine,
             "experts   of %d of %d layers in host memory: %.2f GiB, and %.2f for work. A token "
             "reads %.2f GiB there, and at most %.2f of the device",
             placement->layers, placement->layers_all, (double)placement->host_bytes / GIB,
             (double)placement->host_work / GIB, (double)placement->host_read / GIB,
             (double)(weight_bytes - placement->device_unread) / GIB);
}
