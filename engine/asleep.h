/* asleep.h: an engine whose device gives its memory back for a while (engine_sleep).
 *
 * Part of engine_t. Once nothing runs, the engine thread drops the prefix cache and has the device
 * sleep (device/sleep_ops.h); it wakes it for the first request or adapter, or when it is told to.
 */
#ifndef INFERD_ENGINE_ASLEEP_H
#define INFERD_ENGINE_ASLEEP_H

#include "engine/base/error.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct engine;

typedef struct asleep {
  atomic_bool wished;   /* that it sleeps: set by the loop, and by the engine when it fails */
  atomic_bool sleeps;   /* it does; written by the engine */
  atomic_uint asked;    /* raised by the loop with each wish */
  atomic_uint answered; /* the last of these that has come true, or could not */
  atomic_int code;      /* of that: 0 or an error */
  _Atomic uint64_t host_bytes, given_bytes; /* of the last sleep */
} asleep_t;

/* Before the device is opened: ERR_CONFIGURATION if options contradict sleep_space. */
int asleep_check_options(const struct engine *engine, inferd_error_t *error);
/* Once the device is open and `weights` bytes are planned: the same. */
int asleep_check(const struct engine *engine, int64_t weights, inferd_error_t *error);
/* Engine thread, in each iteration, between two steps: falls asleep, wakes up, or does nothing.
 * `needed`: something is there that needs the device. False: it sleeps now, and *code is 0, or the
 * error by which it could not be woken. */
bool asleep_turn(struct engine *engine, bool needed, int *code);

#endif
