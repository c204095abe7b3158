/* name_pattern_none.c: no expressions, where PCRE2 is not built in. Any thread, no state. */
#include "engine/model/adapter/name_pattern.h"

name_match_t name_regex_match(const char *pattern, const char *name) {
  (void)pattern, (void)name;
  return NAME_UNREADABLE;
}
