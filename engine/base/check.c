/* check.c: the messages of CHECKs that fail.
 *
 * Any thread. Only stdio may allocate; the functions never return.
 */
#include "engine/base/check.h"

#include <stdio.h>
#include <stdlib.h>

enum { VALUE_BYTES = 48 };

_Noreturn void check_failed(const char *condition, const char *file, int line) {
  fprintf(stderr, "inferd: CHECK failed at %s:%d: %s\n", file, line, condition);
  abort();
}

static const char *show(char out[VALUE_BYTES], intmax_t value) {
  if (value == (int32_t)value) {
    snprintf(out, VALUE_BYTES, "%jd", value);
  } else {
    snprintf(out, VALUE_BYTES, "%jd (0x%jx)", value, (uintmax_t)value);
  }
  return out;
}

_Noreturn void check_values_failed(const char *condition, const char *file, int line, intmax_t left,
                                   intmax_t right) {
  char left_text[VALUE_BYTES], right_text[VALUE_BYTES];
  fprintf(stderr, "inferd: CHECK failed at %s:%d: %s; left is %s, right is %s\n", file, line,
          condition, show(left_text, left), show(right_text, right));
  abort();
}
