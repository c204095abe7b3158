/* msgpack.c: the values of MessagePack that events need, each in its shortest form. */
#include "server/kv_events/msgpack.h"

#include "engine/base/check.h"

/* Appends a tag and the last `size` bytes of a number, the highest first. */
static void tagged(buffer_t *out, unsigned tag, uint64_t value, int size) {
  char bytes[9] = {(char)tag};
  for (int i = 0; i < size; i++) bytes[1 + i] = (char)(value >> 8 * (size - 1 - i));
  buffer_append(out, bytes, (size_t)size + 1);
}

void msgpack_nil(buffer_t *out) {
  tagged(out, 0xc0, 0, 0);
}

void msgpack_uint(buffer_t *out, uint64_t value) {
  if (value < 0x80) {
    tagged(out, (unsigned)value, 0, 0);
  } else if (value <= UINT8_MAX) {
    tagged(out, 0xcc, value, 1);
  } else if (value <= UINT16_MAX) {
    tagged(out, 0xcd, value, 2);
  } else if (value <= UINT32_MAX) {
    tagged(out, 0xce, value, 4);
  } else {
    tagged(out, 0xcf, value, 8);
  }
}

void msgpack_double(buffer_t *out, double value) {
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  tagged(out, 0xcb, bits, 8);
}

void msgpack_text(buffer_t *out, const char *text) {
  size_t length = strlen(text);
  CHECK_LE(length, UINT16_MAX);
  if (length < 32) {
    tagged(out, 0xa0 | (unsigned)length, 0, 0);
  } else if (length <= UINT8_MAX) {
    tagged(out, 0xd9, length, 1);
  } else {
    tagged(out, 0xda, length, 2);
  }
  buffer_append(out, text, length);
}

void msgpack_array(buffer_t *out, size_t count) {
  CHECK_LE(count, UINT32_MAX);
  if (count < 16) {
    tagged(out, 0x90 | (unsigned)count, 0, 0);
  } else if (count <= UINT16_MAX) {
    tagged(out, 0xdc, count, 2);
  } else {
    tagged(out, 0xdd, count, 4);
  }
}

void msgpack_map(buffer_t *out, unsigned count) {
  CHECK_LT(count, 16);
  tagged(out, 0x80 | count, 0, 0);
}
