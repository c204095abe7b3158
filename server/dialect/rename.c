/* rename.c: what rename.h says. Any thread; keeps no state, never allocates. */
#include "server/dialect/rename.h"

#include <string.h>

void rename_first(char *text, size_t capacity, const char *from, const char *to) {
  char *at = strstr(text, from);
  size_t old = strlen(from), new = strlen(to);
  if (at == NULL || strlen(text) - old + new >= capacity) return;
  memmove(at + new, at + old, strlen(at + old) + 1);
  memcpy(at, to, new);
}
