/* msgpack.h: appends MessagePack values to a buffer. Pure functions; a reader of any language takes
 * them. An array or a map is followed by its elements, which the caller appends. */
#ifndef INFERD_SERVER_KV_EVENTS_MSGPACK_H
#define INFERD_SERVER_KV_EVENTS_MSGPACK_H

#include "engine/base/buffer.h"

void msgpack_nil(buffer_t *out);
void msgpack_uint(buffer_t *out, uint64_t value);
void msgpack_double(buffer_t *out, double value);
void msgpack_text(buffer_t *out, const char *text); /* UTF-8, of less than 64 KiB */
void msgpack_array(buffer_t *out, size_t count);    /* of less than 2^32 elements */
void msgpack_map(buffer_t *out, unsigned count); /* of at most 15 members: key, value, key, ... */

#endif
