/* protobuf.h: reads the wire format of Protocol Buffers, as far as SentencePiece models use it.
 *
 * A message is a list of fields: a number, a wire type, a value. The reader never leaves the bytes
 * that it was given, and never recurses. Any thread; no state.
 */
#ifndef INFERD_ENGINE_TEXT_LOAD_PROTOBUF_H
#define INFERD_ENGINE_TEXT_LOAD_PROTOBUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct protobuf {
  const uint8_t *at, *end;
  bool failed; /* the bytes are no message; nothing more is read */
} protobuf_t;

typedef struct protobuf_field {
  uint32_t number;
  enum { PROTOBUF_VARINT = 0, PROTOBUF_FIXED64 = 1, PROTOBUF_BYTES = 2, PROTOBUF_FIXED32 = 5 } type;
  uint64_t value;      /* of VARINT, FIXED32 and FIXED64 */
  const uint8_t *data; /* of BYTES: strings and inner messages */
  size_t length;
} protobuf_field_t;

static inline protobuf_t protobuf_of(const void *data, size_t length) {
  const uint8_t *at = data;
  return (protobuf_t){at, at == NULL ? at : at + length, false};
}

/* Reads the next field. False at the end of the message, or when it is malformed (`failed`). */
bool protobuf_next(protobuf_t *message, protobuf_field_t *field);
/* The bits of a FIXED32 as a number. */
float protobuf_float(const protobuf_field_t *field);

#endif
