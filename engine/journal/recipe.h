/* recipe.h: all that one answer is made of, as bytes, so that it can be made again, alone.
 *
 * The version of the journal, the text of head.h, and records as a journal has them: the
 * constraint, the request, what was drawn, the end. journal_parse_recipe (log.h) reads it. Any
 * thread.
 */
#ifndef INFERD_ENGINE_JOURNAL_RECIPE_H
#define INFERD_ENGINE_JOURNAL_RECIPE_H

#include "engine/base/buffer.h"
#include "engine/request.h"

/* Appends a token, of an EVENT_TOKEN, to what its choice has drawn. */
void recipe_add_token(buffer_t *drawn, const event_t *event);
/* Appends the recipe of a request with one choice, which is the engine's no more. `text`: of
 * head_write. */
void recipe_write(buffer_t *out, const buffer_t *text, const request_t *request,
                  const buffer_t *drawn, int32_t num_tokens, finish_reason_t finish);

#endif
