/* sleep.h: device memory that can be given back while its addresses stay.
 *
 * Two ranges of addresses, into which memory is mapped as they fill: what a sleeping device keeps
 * in host memory, and what it drops. Engine thread. Needs the driver's own interface, which is
 * opened by name.
 */
#ifndef INFERD_CUDA_SLEEP_H
#define INFERD_CUDA_SLEEP_H

#include "cuda/device.h"
#include "engine/device/sleep_ops.h"

typedef struct sleep_state sleep_state_t;

typedef enum sleep_kind {
  SLEEP_KEEPS, /* the same bits after a sleep */
  SLEEP_DROPS, /* zeros after a sleep */
  SLEEP_KINDS
} sleep_kind_t;

extern const sleep_ops_t cuda_sleep;
/* Makes device->sleep, without which sleep_take is device_take. Returns 0, ERR_CONFIGURATION where
 * the driver has no such memory, or another error. */
int sleep_open(device_t *device, inferd_error_t *error);
/* device_take of memory that leaves the device while it sleeps. */
int sleep_take(device_t *device, sleep_kind_t kind, void **out, size_t bytes, const char *what,
               inferd_error_t *error);
void sleep_release(device_t *device); /* at the end, awake or not */

#endif
