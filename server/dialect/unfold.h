/* unfold.h: messages of a chat request that are of another shape than chat's.
 *
 * Pure; the loop thread or a job of the lanes.
 */
#ifndef INFERD_SERVER_DIALECT_UNFOLD_H
#define INFERD_SERVER_DIALECT_UNFOLD_H

#include "engine/base/buffer.h"
#include "server/fields/fields.h"

/* Appends `root`, a body of chat, to `out` with such messages as messages of chat: blocks of calls,
 * results and thoughts, messages without a role, texts and nulls in place of messages. Appends
 * nothing if there are none, or the history is strict. Sets *origin to the index that each message
 * had, in the arena. Returns 0 or an error. */
int chat_unfold(reader_t *reader, const json_t *root, buffer_t *out, const int32_t **origin);

#endif
