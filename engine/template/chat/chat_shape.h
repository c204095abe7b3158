/* chat_shape.h: converts the messages of a request to the values that a template expects.
 *
 * The rendering thread only.
 */
#ifndef INFERD_ENGINE_TEMPLATE_CHAT_CHAT_SHAPE_H
#define INFERD_ENGINE_TEMPLATE_CHAT_CHAT_SHAPE_H

#include "engine/template/chat/chat_template.h"

#define CONTINUE_TAG "CONTINUE_FINAL_MESSAGE_TAG " /* as transformers spells it */

typedef struct chat_shape {
  const json_t *messages;
  bool rename_developer;  /* to system */
  bool join_parts;        /* text parts of a content become one string */
  bool continue_final;    /* append CONTINUE_TAG to the text of the last message */
  json_doc_t **arguments; /* parsed arguments of tool calls, in document order; NULL: {} */
  size_t num_arguments, used;
} chat_shape_t;

/* Parses every `arguments` that is a string. ERR_INVALID_VALUE with the path of the field. */
int chat_shape_begin(chat_shape_t *shape, inferd_error_t *error);
void chat_shape_end(chat_shape_t *shape);
void chat_shape_build(struct run *run, void *shape, struct value *out);

#endif
