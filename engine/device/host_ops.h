/* host_ops.h: the part of the back end interface by which experts lie in host memory, beside a
 * device with a memory of its own, and are computed there by another back end.
 *
 * A back end has it or not (ops_t.host is NULL). Set-up, on the engine thread, before `prepare`.
 * Weights and vectors of such experts are made by `ops` for the device that `open` gives; `moe` is
 * then called as for other experts, with moe_t.host_width set, and is ordered with the other
 * operations of a step, in steps that are recorded too. A row has the bits that `ops` gives it: of
 * the same activations, widened, and rounded to those of this back end once, with the residual.
 */
#ifndef INFERD_ENGINE_DEVICE_HOST_OPS_H
#define INFERD_ENGINE_DEVICE_HOST_OPS_H

#include "engine/base/error.h"
#include "engine/device/step_limits.h"

#include <stddef.h>

struct device;
struct ops;

typedef struct host_ops {
  const struct ops *ops; /* of the other back end, whose activations are fp32 */
  /* *out = its device, which the first call opens, and which ends with `device`. 0 or an error. */
  int (*open)(struct device *device, struct device **out, inferd_error_t *error);
  /* Bytes of host memory that `prepare` takes for a model with experts there. */
  size_t (*workspace_bytes)(const step_limits_t *limits);
} host_ops_t;

#endif
