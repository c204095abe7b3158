/* rate.c: an amount per minute, as a token bucket. Pure; the contract is in rate.h. */
#include "server/keys/rate.h"

#include "engine/base/util.h"

#include <stddef.h>

static const double NS_OF_A_MINUTE = 60e9;

static void fill(rate_t *rate, uint64_t now_ns) {
  double most = (double)rate->per_minute;
  if (now_ns > rate->filled_ns) {
    rate->level += most * (double)(now_ns - rate->filled_ns) / NS_OF_A_MINUTE;
    rate->filled_ns = now_ns;
  }
  if (rate->level > most) rate->level = most;
}

void rate_set(rate_t *rate, int64_t per_minute, uint64_t now_ns) {
  bool is_new = rate->per_minute == 0;
  fill(rate, now_ns);
  rate->per_minute = per_minute;
  if (is_new) rate->level = (double)per_minute;
  fill(rate, now_ns);
}

/* What must be there for `amount`. */
static double needed(const rate_t *rate, int64_t amount) {
  return (double)MIN(amount, rate->per_minute);
}

bool rate_allows(rate_t *rate, int64_t amount, uint64_t now_ns) {
  if (rate->per_minute == 0) return true;
  fill(rate, now_ns);
  return rate->level >= needed(rate, amount) - 1e-6; /* rounding of many small fills */
}

void rate_take(rate_t *rate, int64_t amount) {
  if (rate->per_minute > 0) rate->level -= (double)amount;
}

void rate_give(rate_t *rate, int64_t amount) {
  rate_take(rate, -amount);
  if (rate->level > (double)rate->per_minute) rate->level = (double)rate->per_minute;
}

double rate_wait_s(rate_t *rate, int64_t amount, uint64_t now_ns) {
  if (rate_allows(rate, amount, now_ns)) return 0;
  return (needed(rate, amount) - rate->level) * 60 / (double)rate->per_minute;
}

int64_t rate_left(rate_t *rate, uint64_t now_ns) {
  fill(rate, now_ns);
  return rate->level > 0 ? (int64_t)(rate->level + 1e-6) : 0;
}
