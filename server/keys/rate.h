/* rate.h: an amount per minute, as a token bucket. Loop thread; times are those of clock_now_ns.
 *
 * The bucket holds what one minute allows and fills evenly. What is known in advance is asked for
 * before it is taken; what comes later, such as generated tokens, is taken as it comes. The level
 * may then be negative, and nothing more is allowed until the debt is paid. So the mean over a long
 * time is the rate, and no minute has more than twice of it besides the debt of one request.
 */
#ifndef INFERD_SERVER_KEYS_RATE_H
#define INFERD_SERVER_KEYS_RATE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct rate {
  int64_t per_minute; /* 0 = no bound: everything is allowed */
  double level;       /* at filled_ns; at most per_minute */
  uint64_t filled_ns;
} rate_t;

/* Sets the bound. A new bucket is full; else the level stays, but for what exceeds the bound. */
void rate_set(rate_t *rate, int64_t per_minute, uint64_t now_ns);
/* Returns true if the bucket holds `amount`; for more than a full bucket holds, if it is full. */
bool rate_allows(rate_t *rate, int64_t amount, uint64_t now_ns);
void rate_take(rate_t *rate, int64_t amount);
void rate_give(rate_t *rate, int64_t amount); /* returns what was taken in advance and not used */
/* Seconds until rate_allows is true, if nothing is taken; 0 = now. */
double rate_wait_s(rate_t *rate, int64_t amount, uint64_t now_ns);
int64_t rate_left(rate_t *rate, uint64_t now_ns); /* >= 0 */

#endif
