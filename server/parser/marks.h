/* marks.h: looks for fixed texts in text that arrives in pieces. No state, any thread.
 */
#ifndef INFERD_SERVER_PARSER_MARKS_H
#define INFERD_SERVER_PARSER_MARKS_H

#include <stddef.h>

enum { MARKS_SEARCHED_MAX = 12 };

typedef enum match { MATCH_NONE, MATCH_PART, MATCH_WHOLE } match_t;

/* The marks that one search looks for. */
typedef struct marks {
  const char *items[MARKS_SEARCHED_MAX];
  int count;
} marks_t;

void marks_add(marks_t *marks, const char *mark); /* NULL: adds nothing */
/* Compares the start of the text with a mark (NULL: none). MATCH_PART: more text is needed to
 * decide; the empty text is a part of every mark. */
match_t mark_match(const char *text, size_t length, const char *mark);
/* Returns where the first mark begins, or where its first part ends the text; `length` if nowhere.
 * *found is that mark if it is whole, one of the pointers in `marks`; else it is not changed. */
size_t marks_find(const marks_t *marks, const char *text, size_t length, const char **found);

#endif
