/* chat_internal.h: a loaded set of chat templates, for chat_load.c and chat_template.c.
 *
 * Constant once loaded: any thread may read it.
 */
#ifndef INFERD_ENGINE_TEMPLATE_CHAT_CHAT_INTERNAL_H
#define INFERD_ENGINE_TEMPLATE_CHAT_CHAT_INTERNAL_H

#include "engine/template/chat/chat_template.h"

enum { SPECIAL_TOKENS = 7 };
extern const char *const chat_special_tokens[SPECIAL_TOKENS]; /* "bos_token", ... */

struct chat_templates {
  jinja_t *by_default, *tool_use; /* NULL: none */
  char *source;                   /* of by_default; malloc'ed, NULL: none */
  size_t source_length;
  char *special[SPECIAL_TOKENS]; /* malloc'ed; NULL: the model has none */
  size_t special_length[SPECIAL_TOKENS];
  char problem[ERROR_MESSAGE_MAX]; /* why there is no template although the files have one */
};

/* chat_effort.c: adds the variables that say how much the model reasons; at most six. */
void chat_effort_variables(const chat_templates_t *templates, const chat_input_t *in,
                           jinja_variable_t *variables, size_t *count);

#endif
