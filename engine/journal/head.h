/* head.h: the text of the head of a journal, or of a recipe: lines of "name value" with the options
 * of the engine as it ran, sizes that it chose by itself included, and with what its answers depend
 * on beside them.
 */
#ifndef INFERD_ENGINE_JOURNAL_HEAD_H
#define INFERD_ENGINE_JOURNAL_HEAD_H

#include "engine/base/buffer.h"
#include "engine/engine.h"

/* Appends the text of an engine that has started, the leader. Any thread. */
void head_write(const struct engine *engine, buffer_t *out);
/* Sets the options that the text has; strings point into `room`, of 4 PATH_MAX bytes. Other
 * fields stay. Returns 0, or ERR_CONFIGURATION with the line that is not understood. */
int head_read(const char *text, engine_options_t *options, char *room, size_t room_bytes,
              inferd_error_t *error);
/* Copies the value of a line; false if there is none. */
bool head_value(const char *text, const char *name, char *out, size_t size);

#endif
