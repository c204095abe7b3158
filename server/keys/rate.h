/* rate.h: an amount per minute, as a token bucket. Times are those of clock_now_ns, which is the
 * same in all processes of a machine; a rate_t in memory that they share is a bound for all of
 * them together (shared_rates.h). Any thread.
 *
 * The bucket holds what one minute allows and fills evenly. What is known in advance is asked for
 * before it is taken; what comes later, such as generated tokens, is taken as it comes. The level
 * may then be negative, and nothing more is allowed until the debt is paid. So the mean over a long
 * time is the rate, and no minute has more than twice of it besides the debt of one request.
 */
#ifndef INFERD_SERVER_KEYS_RATE_H
#define INFERD_SERVER_KEYS_RATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* {0} is a rate without a bound. */
typedef struct rate {
  _Atomic int64_t per_minute; /* 0 = no bound: everything is allowed */
  _Atomic int64_t full_at;    /* rate.c */
} rate_t;

/* Sets the bound. A new bucket is full; else the level stays, but for what exceeds the bound. */
void rate_set(rate_t *rate, int64_t per_minute, uint64_t now_ns);
/* Returns true if the bucket holds `amount`; for more than a full bucket holds, if it is full. */
bool rate_allows(const rate_t *rate, int64_t amount, uint64_t now_ns);
/* The same, and takes it then: of two that try for the last one, one gets it. */
bool rate_try(rate_t *rate, int64_t amount, uint64_t now_ns);
/* Takes it in any case; a negative amount returns what was taken in advance and not used. */
void rate_take(rate_t *rate, int64_t amount, uint64_t now_ns);
/* Seconds until rate_allows is true, if nothing is taken; 0 = now. */
double rate_wait_s(const rate_t *rate, int64_t amount, uint64_t now_ns);
int64_t rate_left(const rate_t *rate, uint64_t now_ns); /* >= 0 */

#endif
