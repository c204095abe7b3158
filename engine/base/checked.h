/* checked.h: arithmetic on numbers that came from a file or a request.
 *
 * A size that was read from outside must be multiplied, added and aligned by these functions only.
 * Each returns false if the exact result does not fit into the type, and then does not change *out.
 * Pure functions, any thread.
 */
#ifndef INFERD_ENGINE_BASE_CHECKED_H
#define INFERD_ENGINE_BASE_CHECKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline bool checked_add(size_t left, size_t right, size_t *out) {
  size_t sum;
  if (__builtin_add_overflow(left, right, &sum)) return false;
  *out = sum;
  return true;
}

static inline bool checked_mul(size_t left, size_t right, size_t *out) {
  size_t product;
  if (__builtin_mul_overflow(left, right, &product)) return false;
  *out = product;
  return true;
}

/* Rounds up to a multiple of `alignment`; false too if that is not a power of two. */
static inline bool checked_align(size_t value, size_t alignment, size_t *out) {
  size_t raised;
  if (alignment == 0 || (alignment & (alignment - 1)) != 0) return false;
  if (__builtin_add_overflow(value, alignment - 1, &raised)) return false;
  *out = raised & ~(alignment - 1);
  return true;
}

static inline bool checked_add_int64(int64_t left, int64_t right, int64_t *out) {
  int64_t sum;
  if (__builtin_add_overflow(left, right, &sum)) return false;
  *out = sum;
  return true;
}

static inline bool checked_mul_int64(int64_t left, int64_t right, int64_t *out) {
  int64_t product;
  if (__builtin_mul_overflow(left, right, &product)) return false;
  *out = product;
  return true;
}

#endif
