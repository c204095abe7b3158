/* name_pattern_none.c: without PCRE2 no expression that names the targets of an adapter can be
 * read, so such an adapter is refused. Any thread, no state.
 */
#include "engine/model/adapter/name_pattern.h"

name_match_t name_regex_match(const char *pattern, const char *name) {
  (void)pattern, (void)name;
  return NAME_UNREADABLE;
}
