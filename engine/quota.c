/* quota.c: the limits of one API key on the waiting queue; the contract is in quota.h. */
#include "engine/quota.h"

#include "engine/base/check.h"

#include <stddef.h>

int quota_check(const quota_t *quota, int count, int64_t tokens, inferd_error_t *error) {
  if (quota == NULL) return 0;
  int waiting = atomic_load(&quota->waiting);
  long long tokens_waiting = atomic_load(&quota->tokens_waiting);
  if (quota->max_waiting > 0 && waiting + count > quota->max_waiting) {
    return error_set(error, ERR_RATE_LIMITED, NULL,
                     "Too many requests of this API key wait: %d, and %d would come; the limit is "
                     "max_waiting=%d.",
                     waiting, count, quota->max_waiting);
  }
  /* If no request waits, the limit of tokens does not apply: else a long prompt could never run. */
  if (quota->max_tokens_waiting > 0 && waiting > 0 &&
      tokens_waiting + tokens > quota->max_tokens_waiting) {
    return error_set(error, ERR_RATE_LIMITED, NULL,
                     "Too many prompt tokens of this API key wait: %lld, and %lld would come; the "
                     "limit is max_tokens_waiting=%lld.",
                     tokens_waiting, (long long)tokens, (long long)quota->max_tokens_waiting);
  }
  return 0;
}

uint32_t quota_weight(const quota_t *quota) {
  int weight = quota != NULL ? atomic_load_explicit(&quota->weight, memory_order_relaxed) : 1;
  return weight > 0 ? (uint32_t)weight : 1;
}

int32_t quota_max_running(const quota_t *quota) {
  return quota != NULL ? atomic_load_explicit(&quota->max_running, memory_order_relaxed) : 0;
}

void quota_wait(quota_t *quota, int64_t tokens) {
  if (quota == NULL) return;
  atomic_fetch_add(&quota->waiting, 1);
  atomic_fetch_add(&quota->tokens_waiting, tokens);
}

void quota_leave(quota_t *quota, int64_t tokens) {
  if (quota == NULL) return;
  int waiting = atomic_fetch_sub(&quota->waiting, 1);
  long long tokens_waiting = atomic_fetch_sub(&quota->tokens_waiting, tokens);
  CHECK_GT(waiting, 0);
  CHECK_GE(tokens_waiting, tokens);
}
