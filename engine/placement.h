/* placement.h: which experts of a model lie in host memory, beside a device that has its own.
 *
 * Engine thread, at start.
 */
#ifndef INFERD_ENGINE_PLACEMENT_H
#define INFERD_ENGINE_PLACEMENT_H

#include "engine/model/model.h"

struct engine;

/* All 0 where no layer was asked for. */
typedef struct placement {
  int32_t layers, layers_all; /* whose experts lie in host memory; that have experts */
  size_t host_bytes;          /* that these take there */
  size_t host_work;           /* and what computes them */
  size_t host_read;           /* by a token */
  size_t device_spared;       /* bytes of the device that they would have taken */
  size_t device_unread;       /* of the experts there, those that a token does not read */
} placement_t;

/* Before a plan is made: ERR_CONFIGURATION if options contradict host_experts, or the model has no
 * experts. On a device without `host` the option becomes 0, which the log says. */
int placement_check(struct engine *engine, inferd_error_t *error);
/* Chooses the fewest layers with which what remains of `weight_bytes` is at most `room`, or takes
 * the number asked for, which options.host_experts is afterwards. 0; ERR_CONFIGURATION where the
 * model has fewer layers with experts; or ERR_NO_MEMORY of the host. */
int placement_plan(struct engine *engine, const model_options_t *model, const step_limits_t *limits,
                   size_t weight_bytes, size_t room, placement_t *out, inferd_error_t *error);
/* A line for the log. `weight_bytes`: of the device, as planned. */
void placement_say(const struct engine *engine, const placement_t *placement, size_t weight_bytes);

#endif
