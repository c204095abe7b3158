/* key_line.h: one line of a key file: the key, its label, and its limits. Pure; any thread.
 *
 *   KEY [LABEL] [NAME=VALUE ...] [# comment]
 */
#ifndef INFERD_SERVER_KEYS_KEY_LINE_H
#define INFERD_SERVER_KEYS_KEY_LINE_H

#include "server/keys/api_key.h"

#include <stddef.h>

typedef struct key_line {
  const char *key; /* NULL = the line is blank or a comment */
  const char *label;
  key_limits_t limits;
  bool limited; /* some NAME=VALUE was given */
} key_line_t;

/* Where a line stands, for messages. */
typedef struct key_place {
  const char *option; /* "api_key_file" */
  char text[320];     /* "api_key_file: line 3 of /etc/keys" */
} key_place_t;

/* Splits `line` in place; *out points into it. Returns 0, or ERR_CONFIGURATION with a message that
 * has the place, the word and what is allowed, but never the key or a word that may be one. */
int key_line_parse(char *line, const key_place_t *place, key_line_t *out, inferd_error_t *error);

#endif
