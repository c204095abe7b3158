/* element.h: values of a tool call that are elements, as MiniMax M3 writes them.
 *
 * Each tag has a mark before it: MARK<NAME>VALUE MARK</NAME>. A value is a text, or elements: those
 * of an object have the names of its members, those of an array are named `item`. An element closes
 * the last that is open, whatever its name. An empty object or array is an empty text, a null is
 * left out. Pure functions, any thread.
 */
#ifndef INFERD_SERVER_PARSER_ELEMENT_H
#define INFERD_SERVER_PARSER_ELEMENT_H

#include "engine/base/buffer.h"
#include "engine/base/json_schema.h"

#include <stdbool.h>

typedef struct element_tag {
  const char *name;
  size_t length; /* of the name */
  size_t bytes;  /* of the tag, with its mark */
  bool closes;
} element_tag_t;

/* Whether text begins with a tag: fills in *tag and returns 1; 0 = it does not; -1 = it may, if
 * there was more. */
int element_tag(const char *mark, const char *text, size_t length, element_tag_t *tag);

/* Appends the value that stands between the tags of an element, as JSON. What it may be is told by
 * the schemas of its place: elements that may be an object or an array are an array if the first is
 * an `item`; a text is a string unless it is a value of a type that the schemas name. Members of
 * one name become an array. */
void element_read(buffer_t *out, const char *mark, const char *text, size_t length,
                  const schema_set_t *place);

#endif
