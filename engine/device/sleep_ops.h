/* sleep_ops.h: the part of the back end interface by which a device gives its memory back and gets
 * it again, while the process goes on.
 *
 * A back end has both functions or none (ops_t.sleep is NULL). They are called on the engine
 * thread, for a device that was opened with `sleeps`, behind `prepare`, when no step is in flight.
 * Between the two calls no other function is called but `close`, `describe` and `memory_free`.
 * Pointers to weights, vectors and buffers stay as they are, and so does what was recorded with
 * them.
 */
#ifndef INFERD_ENGINE_DEVICE_SLEEP_OPS_H
#define INFERD_ENGINE_DEVICE_SLEEP_OPS_H

#include "engine/base/error.h"

#include <stddef.h>

struct device;

typedef struct sleep_ops {
  /* Copies weights, vectors and adapters to host memory, and gives their memory on the device back,
   * with that of the KV cache, of states and of large buffers. Returns 0; or ERR_NO_MEMORY of the
   * host, and then the device is as before; or ERR_DEVICE_FAILED. */
  int (*sleep)(struct device *device, inferd_error_t *error);
  /* Undoes it: weights have the same bits, KV cache, states and buffers are zeros. Returns 0; or
   * ERR_NO_MEMORY of the device, and then it sleeps still; or ERR_DEVICE_FAILED. */
  int (*wake)(struct device *device, inferd_error_t *error);
  /* Bytes that `sleep` takes of the host, and those that it gives back. */
  void (*bytes)(const struct device *device, size_t *host, size_t *given);
} sleep_ops_t;

#endif
