/* rate.c: an amount per minute, as a token bucket. The contract is in rate.h.
 *
 * A bucket is kept as the time at which it is full again, in one number: whatever several processes
 * do to it at once, and wherever one of them is killed, it is a bucket.
 */
#include "server/keys/rate.h"

#include "engine/base/util.h"

#include <math.h>

/* Times are counted in parts of a nanosecond, so that rounding is small beside an amount of 1. */
enum { PARTS_OF_A_NS = 16 };
static const double PARTS_OF_A_MINUTE = PARTS_OF_A_NS * 60e9;

static int64_t parts_of(uint64_t now_ns) {
  return (int64_t)(now_ns * PARTS_OF_A_NS);
}

/* What a bucket holds that is full at a time; negative: a debt. */
static double level_at(int64_t full_at, int64_t per_minute, uint64_t now_ns) {
  double missing = (double)(full_at - parts_of(now_ns)) * (double)per_minute / PARTS_OF_A_MINUTE;
  return (double)per_minute - MAX(missing, 0);
}

static double level(const rate_t *rate, uint64_t now_ns) {
  return level_at(atomic_load(&rate->full_at), atomic_load(&rate->per_minute), now_ns);
}

/* Whether so much is there for `amount`. */
static bool suffices(double there, int64_t amount, int64_t per_minute) {
  return there >= (double)MIN(amount, per_minute) - 1e-6; /* of rounding */
}

void rate_set(rate_t *rate, int64_t per_minute, uint64_t now_ns) {
  double most = (double)per_minute, had = level(rate, now_ns);
  int64_t before = atomic_exchange(&rate->per_minute, per_minute), full_at = parts_of(now_ns);
  if (per_minute == before) return;
  if (before > 0 && had < most) full_at += llround((most - had) * PARTS_OF_A_MINUTE / most);
  atomic_store(&rate->full_at, full_at);
}

bool rate_allows(const rate_t *rate, int64_t amount, uint64_t now_ns) {
  int64_t per_minute = atomic_load(&rate->per_minute);
  return per_minute == 0 || suffices(level(rate, now_ns), amount, per_minute);
}

/* Returns false, and takes nothing, if `asks` and it is not there. */
static bool take(rate_t *rate, int64_t amount, uint64_t now_ns, bool asks) {
  int64_t per_minute = atomic_load(&rate->per_minute), now = parts_of(now_ns);
  if (per_minute == 0) return true;
  int64_t more = llround((double)amount * PARTS_OF_A_MINUTE / (double)per_minute);
  int64_t full_at = atomic_load(&rate->full_at);
  do {
    bool there = suffices(level_at(full_at, per_minute, now_ns), amount, per_minute);
    if (asks && !there) return false;
  } while (!atomic_compare_exchange_weak(&rate->full_at, &full_at, MAX(full_at, now) + more));
  return true;
}

bool rate_try(rate_t *rate, int64_t amount, uint64_t now_ns) {
  return take(rate, amount, now_ns, true);
}

void rate_take(rate_t *rate, int64_t amount, uint64_t now_ns) {
  (void)take(rate, amount, now_ns, false);
}

double rate_wait_s(const rate_t *rate, int64_t amount, uint64_t now_ns) {
  double per_minute = (double)atomic_load(&rate->per_minute);
  if (rate_allows(rate, amount, now_ns)) return 0;
  return (MIN((double)amount, per_minute) - level(rate, now_ns)) * 60 / per_minute;
}

int64_t rate_left(const rate_t *rate, uint64_t now_ns) {
  double left = level(rate, now_ns);
  return left > 0 ? (int64_t)(left + 1e-6) : 0;
}
