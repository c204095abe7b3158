/* name_pattern.c: see name_pattern.h. Any thread, no state. */
#include "engine/model/adapter/name_pattern.h"

#include "engine/base/util.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* Letters, digits, underscores and dashes, and dots, each of which stands for any character. */
static bool is_plain(const char *pattern, size_t length) {
  for (size_t i = 0; i < length; i++) {
    const unsigned char c = (unsigned char)pattern[i];
    if (c >= 0x80 || (!isalnum(c) && c != '_' && c != '-' && c != '.')) return false;
  }
  return true;
}

/* True if Python's re and PCRE2 read an expression alike: of escapes, groups and classes only those
 * that both have. */
static bool is_common(const char *pattern, size_t length) {
  static const char *const groups[] = {"?:", "?=", "?!", "?<=", "?<!", "?P<", "?i:"};
  bool in_class = false;
  for (size_t i = 0; i < length; i++) {
    const char c = pattern[i], next = i + 1 < length ? pattern[i + 1] : '\0';
    if ((unsigned char)c >= 0x80 || c == '\0') return false;
    if (c == '\\') {
      if (next == '\0' || strchr("dDwWsSbBA.\\+*?()[]{}|^$/-_", next) == NULL) return false;
      i++;
    } else if (in_class) {
      if (c == '[') return false;
      in_class = c != ']';
    } else if (c == '[') {
      in_class = true;
      if (next == '^') i++;
      if (i + 1 < length && pattern[i + 1] == ']') return false;
    } else if (c == '{' && next == ',') {
      return false; /* {,3} is {0,3} in Python alone */
    } else if (c == '(' && (next == '?' || next == '*')) {
      bool known = false;
      for (size_t g = 0; g < ARRAY_LEN(groups); g++) {
        const size_t size = strlen(groups[g]);
        known |= i + 1 + size <= length && memcmp(pattern + i + 1, groups[g], size) == 0;
      }
      if (!known) return false;
    }
  }
  return !in_class;
}

static bool plain_equal(const char *pattern, size_t length, const char *name) {
  for (size_t i = 0; i < length; i++)
    if (pattern[i] != '.' && pattern[i] != name[i]) return false;
  return true;
}

name_match_t name_pattern_match(const char *pattern, size_t length, const char *name,
                                bool is_tail) {
  char whole[NAME_PATTERN_BYTES_MAX + 16];
  const size_t name_length = strlen(name);
  if (is_plain(pattern, length)) {
    if (length > name_length) return NAME_DIFFERS;
    const size_t from = name_length - length;
    const bool at_border = from == 0 || (is_tail && name[from - 1] == '.');
    return at_border && plain_equal(pattern, length, name + from) ? NAME_MATCHES : NAME_DIFFERS;
  }
  if (length > NAME_PATTERN_BYTES_MAX || !is_common(pattern, length)) return NAME_UNREADABLE;
  snprintf(whole, sizeof whole, is_tail ? "(?:.*\\.)?(?:%.*s)" : "(?:%.*s)", (int)length, pattern);
  return name_regex_match(whole, name);
}
