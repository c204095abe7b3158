/* argument.h: what the parsers of tool calls share: the declared functions, names that come twice,
 * values that are written outside of JSON. No state, any thread.
 */
#ifndef INFERD_SERVER_PARSER_ARGUMENT_H
#define INFERD_SERVER_PARSER_ARGUMENT_H

#include "engine/base/buffer.h"
#include "engine/base/json.h"

/* Returns the function of this name among the tools of a request; NULL if it was not declared. */
const json_t *argument_function(const json_t *functions, const char *name, size_t length);
/* Adds a name of at most 65,535 bytes to a set that begins empty. Returns false if the name was in
 * it. */
bool argument_add_key(buffer_t *keys, const char *key, size_t length);
/* Returns the text of a value, followed by a NUL and without blanks around it, as JSON of one of
 * the types (engine/base/json_schema.h), and sets *length to that of the JSON; NULL if it is none
 * of them. Templates print True, False and None as Python does, so models write these words too. */
const char *argument_read(const char *text, size_t *length, uint32_t types);

#endif
