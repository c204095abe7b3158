/* named.h: what the parent of several models reads of a body: `model` and `stream`. Pure.
 *
 * The body is JSON, or a form with a file. It is not checked: the process of the model does that.
 * One fast pass in steps, because a body may have many MiB, and this is the loop thread; only the
 * name is parsed.
 */
#ifndef INFERD_SERVER_MODELS_NAMED_H
#define INFERD_SERVER_MODELS_NAMED_H

#include "engine/base/error.h"
#include "server/http/multipart.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct named {
  char model[257];
  bool stream; /* the body has "stream": true */
} named_t;

/* A pass over a text, which stays where it is. Only named.c reads it, but for `named` at the end.
 */
typedef struct named_scan {
  named_t named;
  const char *text;
  size_t length, at;
  size_t key, key_end, value, value_end; /* where the member in progress has them */
  int place, depth;
  bool in_string, escaped;
  bool is_form; /* then `form` is the pass, and of those above `at` alone counts */
  multipart_pass_t form;
} named_scan_t;

enum { NAMED_MORE = 1 };

void named_begin(named_scan_t *scan, const char *text, size_t length);
/* The same for a form; `type` is the value of Content-Type, or NULL. Returns 0, or what
 * multipart_begin has against it; so does named_step then. */
int named_begin_form(named_scan_t *scan, const char *type, const char *text, size_t length,
                     inferd_error_t *error);
/* Reads on, at most so many bytes. Returns NAMED_MORE; 0, and scan->named is whole;
 * ERR_INVALID_JSON where the text ends before its object does; ERR_MISSING_PARAMETER,
 * ERR_INVALID_TYPE or ERR_MODEL_NOT_FOUND of `model`, or what its string, or the form, has against
 * it. Of two members of a name the last one counts; the model refuses such a body. */
int named_step(named_scan_t *scan, size_t most, inferd_error_t *error);
/* The same for a word of a query; "" = there is none. */
int named_word(const char *word, named_t *out, inferd_error_t *error);

#endif
