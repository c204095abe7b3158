/* marks.c: what marks.h says. Any thread; never allocates. */
#include "server/parser/marks.h"

#include "engine/base/check.h"

#include <string.h>

void marks_add(marks_t *marks, const char *mark) {
  if (mark == NULL) return;
  CHECK(marks->count < MARKS_SEARCHED_MAX);
  marks->items[marks->count++] = mark;
}

match_t mark_match(const char *text, size_t length, const char *mark) {
  if (mark == NULL) return MATCH_NONE;
  size_t wanted = strlen(mark);
  if (length >= wanted) return memcmp(text, mark, wanted) == 0 ? MATCH_WHOLE : MATCH_NONE;
  return memcmp(text, mark, length) == 0 ? MATCH_PART : MATCH_NONE;
}

size_t marks_find(const marks_t *marks, const char *text, size_t length, const char **found) {
  for (size_t at = 0; marks->count > 0 && at < length; at++) {
    match_t best = MATCH_NONE;
    for (int i = 0; i < marks->count; i++) {
      if (marks->items[i][0] != text[at]) continue;
      match_t match = mark_match(text + at, length - at, marks->items[i]);
      if (match == MATCH_WHOLE) {
        *found = marks->items[i];
        return at;
      }
      if (match == MATCH_PART) best = MATCH_PART;
    }
    if (best == MATCH_PART) return at;
  }
  return length;
}
