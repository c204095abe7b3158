/* notify.h: tells a service manager what this process is doing (sd_notify(3) without libsystemd).
 * Loop thread. Does nothing when NOTIFY_SOCKET is not set. */
#ifndef INFERD_SERVER_OBSERVE_NOTIFY_H
#define INFERD_SERVER_OBSERVE_NOTIFY_H

#include <stdint.h>

enum { NOTIFY_BYTES_MAX = 2048 }; /* of a message, with a NUL; what is longer is cut */

/* Sends newline-separated assignments: "READY=1\nSTATUS=serving". Never blocks, never fails. */
void notify_send(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The part of the weights that is read, 0..1, and more time to start: 30 s, or 10 minutes behind
 * them for warm-up runs. Where a driver makes a GPU's code from PTX these take minutes, and nothing
 * tells how far it is. */
void notify_loading(double progress);

/* Nanoseconds between two WATCHDOG=1 that the manager expects of this process; 0 = none. */
uint64_t notify_watchdog_ns(void);

#endif
