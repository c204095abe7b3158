/* name_pattern.h: matches the names of modules with the regular expressions of PEFT, which are
 * Python's. Any thread, no state.
 */
#ifndef INFERD_ENGINE_MODEL_NAME_PATTERN_H
#define INFERD_ENGINE_MODEL_NAME_PATTERN_H

#include <stdbool.h>
#include <stddef.h>

enum { NAME_PATTERN_BYTES_MAX = 2048 };

typedef enum name_match {
  NAME_DIFFERS,
  NAME_MATCHES,
  NAME_UNREADABLE /* not an expression that Python and this reader read alike */
} name_match_t;

/* Matches the whole name; `is_tail`: or all of it behind a dot. An expression of letters, digits,
 * underscores and dots is read without PCRE2; where that is not built in, others are unreadable. */
name_match_t name_pattern_match(const char *pattern, size_t length, const char *name, bool is_tail);
/* The part with PCRE2: `pattern` is a text. */
name_match_t name_regex_match(const char *pattern, const char *name);

#endif
