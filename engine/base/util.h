/* util.h: small things that every folder needs. No state, any thread. Macros evaluate their
 * arguments more than once. */
#ifndef INFERD_ENGINE_BASE_UTIL_H
#define INFERD_ENGINE_BASE_UTIL_H

#include <stdbool.h>
#include <string.h>
#include <strings.h>

#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))

/* For integers that are not negative; a sum that overflows is the caller's fault (checked.h). */
#define DIV_UP(value, by) (((value) + (by)-1) / (by))
#define ROUND_UP(value, to) (DIV_UP(value, to) * (to))

/* Elements of an array, never of a pointer. */
#define ARRAY_LEN(array) (sizeof(array) / sizeof *(array))

/* True if the text ends in `end`; upper and lower case of ASCII are the same. */
static inline bool text_ends_in(const char *text, const char *end) {
  size_t length = strlen(text), tail = strlen(end);
  return length >= tail && strcasecmp(text + length - tail, end) == 0;
}

#endif
