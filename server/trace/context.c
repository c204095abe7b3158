/* context.c: the header `traceparent` of W3C Trace Context.
 *
 * Any thread; keeps no state.
 */
#include "server/trace/trace.h"

#include <string.h>

/* Returns true if `length` characters are lower-case hex and not all zeros; copies them. */
static bool copy_id(const char *text, size_t length, char *out) {
  bool zero = true;
  for (size_t i = 0; i < length; i++) {
    bool digit = text[i] >= '0' && text[i] <= '9', letter = text[i] >= 'a' && text[i] <= 'f';
    if (!digit && !letter) return false;
    zero &= text[i] == '0';
  }
  memcpy(out, text, length);
  out[length] = '\0';
  return !zero;
}

void trace_context_read(const char *traceparent, trace_context_t *out) {
  /* 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01 */
  enum { TRACE = 3, PARENT = 36, FLAGS = 53, LENGTH = 55 };
  trace_context_t context = {0};
  char flags[3];
  *out = context;
  if (traceparent == NULL || strlen(traceparent) != LENGTH) return;
  if (strncmp(traceparent, "00-", TRACE) != 0 || traceparent[PARENT - 1] != '-' ||
      traceparent[FLAGS - 1] != '-') {
    return;
  }
  bool ids = copy_id(traceparent + TRACE, 32, context.trace_id) &&
             copy_id(traceparent + PARENT, 16, context.parent_id);
  bool none = strcmp(traceparent + FLAGS, "00") == 0;
  if (!ids || (!none && !copy_id(traceparent + FLAGS, 2, flags))) return;
  if (!none) {
    char low = flags[1];
    context.sampled = ((low >= 'a' ? low - 'a' + 10 : low - '0') & 1) != 0;
  }
  *out = context;
}
