/* util.h: small arithmetic that every folder needs. Macros evaluate their arguments more than once.
 */
#ifndef INFERD_ENGINE_BASE_UTIL_H
#define INFERD_ENGINE_BASE_UTIL_H

#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))

/* For integers that are not negative; a sum that overflows is the caller's fault (checked.h). */
#define DIV_UP(value, by) (((value) + (by)-1) / (by))
#define ROUND_UP(value, to) (DIV_UP(value, to) * (to))

/* Elements of an array, never of a pointer. */
#define ARRAY_LEN(array) (sizeof(array) / sizeof *(array))

#endif
