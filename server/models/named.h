/* named.h: what the parent of several models reads of a body: `model` and `stream`. Pure.
 *
 * The body is not checked: the process of the model does that. One fast pass, because a body may
 * have 16 MiB, and this is the loop thread; only the two values are parsed.
 */
#ifndef INFERD_SERVER_MODELS_NAMED_H
#define INFERD_SERVER_MODELS_NAMED_H

#include "engine/base/error.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct named {
  char model[257];
  bool stream; /* the body has "stream": true */
} named_t;

/* Returns 0; ERR_INVALID_JSON where the text ends before its object does; ERR_MISSING_PARAMETER,
 * ERR_INVALID_TYPE or ERR_INVALID_VALUE of `model`. Of two members of a name the last one counts;
 * the model refuses such a body. */
int named_read(const char *text, size_t length, named_t *out, inferd_error_t *error);
/* The same for a word of a query; "" = there is none. */
int named_word(const char *word, named_t *out, inferd_error_t *error);

#endif
