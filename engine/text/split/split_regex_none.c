/* split_regex_none.c: in the place of split_regex_pcre2.c when PCRE2 is not there.
 *
 * The loading thread.
 */
#include "engine/text/split/split_regex.h"

#include <stdio.h>

bool regex_compile(const char *pattern, size_t length, scanner_t *out,
                   char reason[REGEX_REASON_MAX]) {
  (void)pattern;
  (void)length;
  (void)out;
  snprintf(reason, REGEX_REASON_MAX, "unknown, and this build has no PCRE2");
  return false;
}

void regex_free(void *regex) {
  (void)regex;
}
