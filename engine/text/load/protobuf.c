/* protobuf.c: reads the wire format of Protocol Buffers (protobuf.dev, "Encoding").
 *
 * Any thread; no state. Groups, a field type that the format has deprecated, are refused.
 */
#include "engine/text/load/protobuf.h"

#include <string.h>

enum { VARINT_BYTES_MAX = 10 };

static bool read_varint(protobuf_t *message, uint64_t *out) {
  *out = 0;
  for (unsigned i = 0; i < VARINT_BYTES_MAX && message->at < message->end; i++) {
    uint8_t byte = *message->at++;
    *out |= (uint64_t)(byte & 0x7F) << 7 * i;
    if (byte < 0x80) return i < VARINT_BYTES_MAX - 1 || byte <= 1;
  }
  return false;
}

static bool read_fixed(protobuf_t *message, size_t size, uint64_t *out) {
  if ((size_t)(message->end - message->at) < size) return false;
  *out = 0;
  for (size_t i = size; i-- > 0;) *out = *out << 8 | message->at[i];
  message->at += size;
  return true;
}

static bool read_value(protobuf_t *message, protobuf_field_t *field) {
  switch (field->type) {
  case PROTOBUF_VARINT: return read_varint(message, &field->value);
  case PROTOBUF_FIXED64: return read_fixed(message, 8, &field->value);
  case PROTOBUF_FIXED32: return read_fixed(message, 4, &field->value);
  case PROTOBUF_BYTES:
    if (!read_varint(message, &field->value)) return false;
    if (field->value > (uint64_t)(message->end - message->at)) return false;
    field->data = message->at;
    field->length = (size_t)field->value;
    message->at += field->length;
    return true;
  }
  return false;
}

bool protobuf_next(protobuf_t *message, protobuf_field_t *field) {
  uint64_t key;
  if (message->failed || message->at == message->end) return false;
  *field = (protobuf_field_t){0};
  bool ok = read_varint(message, &key) && key >> 3 > 0 && key >> 3 < 1U << 29;
  if (ok) {
    static const bool known[8] = {[PROTOBUF_VARINT] = true,
                                  [PROTOBUF_FIXED64] = true,
                                  [PROTOBUF_BYTES] = true,
                                  [PROTOBUF_FIXED32] = true};
    field->number = (uint32_t)(key >> 3);
    ok = known[key & 7];
    field->type = key & 7;
  }
  message->failed = !ok || !read_value(message, field);
  return !message->failed;
}

float protobuf_float(const protobuf_field_t *field) {
  uint32_t bits = (uint32_t)field->value;
  float number;
  memcpy(&number, &bits, sizeof number);
  return number;
}
