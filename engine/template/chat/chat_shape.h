/* chat_shape.h: converts the messages of a request to the values that a template expects.
 *
 * The rendering thread only. For one render: set the first four fields of a zeroed chat_shape_t,
 * call chat_shape_begin, render with chat_shape_build as the builder of `messages`, and call
 * chat_shape_end. The rules of the shaping are listed at chat_template_render.
 */
#ifndef INFERD_ENGINE_TEMPLATE_CHAT_CHAT_SHAPE_H
#define INFERD_ENGINE_TEMPLATE_CHAT_CHAT_SHAPE_H

#include "engine/template/chat/chat_template.h"

/* Marks in the rendered text where the prompt ends, which is then cut there
 * (continue_final_message). Spelled as in transformers. The final blank shows whether the template
 * strips the text. */
#define CONTINUE_TAG "CONTINUE_FINAL_MESSAGE_TAG "

typedef struct chat_shape {
  const json_t *messages; /* array; borrowed, must live until the render ends */
  bool rename_developer;  /* the role developer becomes system */
  bool join_parts;        /* the text parts of a content become one string */
  const char *picture;    /* what these see of a picture, or NULL */
  bool continue_final;    /* append CONTINUE_TAG to the text of the last message */
  /* Of tool calls, parsed, in document order, [num_arguments]. NULL: {}, or a text that is no JSON.
   */
  json_doc_t **arguments;
  size_t num_arguments, used; /* used: taken by chat_shape_build so far */
  bool has_text_arguments;    /* one of them is a text that is no object of JSON */
  bool text_in_object;        /* build these as {"arguments": text} (null: {}), else as they are */
} chat_shape_t;

/* Parses the `arguments` of tool calls that are strings. Returns 0, or ERR_INTERNAL if memory is
 * short. In any case call chat_shape_end. */
int chat_shape_begin(chat_shape_t *shape, inferd_error_t *error);
/* Frees what chat_shape_begin made. The values point into it, so the render must have ended. */
void chat_shape_end(chat_shape_t *shape);
/* jinja_variable_t.build: sets *out to the list of messages. `shape` is a chat_shape_t after
 * chat_shape_begin. Failures leave by run_fail. */
void chat_shape_build(struct run *run, void *shape, struct value *out);

#endif
