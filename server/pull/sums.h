/* sums.h: the sum by which the hub names a file: sha256 of its bytes, or the sha1 of a git blob.
 *
 * libcrypto, because it uses the SHA instructions of the processor and libcurl has loaded it. One
 * owner, one thread.
 */
#ifndef INFERD_SERVER_PULL_SUMS_H
#define INFERD_SERVER_PULL_SUMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct sum sum_t;

/* Begins the sum of a file of `size` bytes; `digits` are 64 of a sha256, or 40 of a git blob, which
 * is the sha1 of "blob SIZE\0" and the bytes. Returns NULL without memory. Free with sum_free. */
sum_t *sum_new(int digits, int64_t size);
/* False when libcrypto fails; so does sum_equals then. */
bool sum_add(sum_t *sum, const void *bytes, size_t length);
/* Ends the sum. True when it is `expected`, hexadecimal digits in lower case. */
bool sum_equals(sum_t *sum, const char *expected);
void sum_free(sum_t *sum); /* NULL is allowed */

#endif
