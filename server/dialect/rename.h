/* rename.h: puts the words of a dialect into errors that speak of fields of chat.
 *
 * The reader of chat checks a translated body, so its errors name fields of chat. Pure function,
 * any thread.
 */
#ifndef INFERD_SERVER_DIALECT_RENAME_H
#define INFERD_SERVER_DIALECT_RENAME_H

#include <stddef.h>

/* Replaces the first `from` in a NUL-terminated text by `to`, if there is one and the result fits
 * into `capacity` bytes. Else the text stays as it is. */
void rename_first(char *text, size_t capacity, const char *from, const char *to);

#endif
