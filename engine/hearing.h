/* hearing.h: whether the model of an engine writes down speech, and by which rules. */
#ifndef INFERD_ENGINE_HEARING_H
#define INFERD_ENGINE_HEARING_H

#include "engine/audio/speech.h"

struct engine;

/* Reads what the files say, behind the blueprint: engine->speech stays NULL for other models.
 * Returns 0, ERR_MODEL_MALFORMED, ERR_MODEL_MISSING or ERR_NO_MEMORY. */
int hearing_read(struct engine *engine, inferd_error_t *error);
void hearing_free(struct engine *engine);

#endif
