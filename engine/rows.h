/* rows.h: prompts of rows in an engine: whether its model takes them, and the check of each.
 *
 * Such rows need no work before a step: they take the place of embeddings as those of pictures do
 * (batch_t.embedded_rows), from the memory of the request.
 */
#ifndef INFERD_ENGINE_ROWS_H
#define INFERD_ENGINE_ROWS_H

#include "engine/base/error.h"
#include "engine/request.h"

struct engine;
struct step;

/* Once blueprint, task and device are known: fills engine->rows where options.prompt_embeds asks
 * for it. 0, or ERR_CONFIGURATION with what speaks against it. */
int rows_plan(struct engine *engine, inferd_error_t *error);
/* Takes the arrays of a step. 0 or -1 without memory. */
int rows_join(const struct engine *engine, struct step *step);
const prompt_rows_info_t *rows_info(const struct engine *engine); /* NULL = prompts are ids */
/* ERR_BAD_REQUEST if a prompt of rows is not one that the model takes. Loop thread. */
int rows_check(const struct engine *engine, const request_t *request, inferd_error_t *error);

#endif
