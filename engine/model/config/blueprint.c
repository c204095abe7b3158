/* blueprint.c: what a model is, as its files say; the contract is in blueprint.h.
 *
 * Any thread, no state.
 */
#include "engine/model/blueprint.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void blueprint_note(blueprint_t *blueprint, const char *format, ...) {
  size_t used = strlen(blueprint->notes), capacity = sizeof(blueprint->notes);
  if (used > 0 && used + 1 < capacity) blueprint->notes[used++] = '\n';
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(blueprint->notes + used, capacity - used, format, arguments);
  va_end(arguments);
}
