/* bytes.c: growable arrays for the text room.
 *
 * Owns nothing but the memory of the arrays it is given. Any thread, one array per thread; never
 * aborts when memory is short.
 */
#include "engine/text/bytes.h"

#include "engine/base/checked.h"
#include "engine/base/util.h"

#include <stdlib.h>

bool bytes_reserve(bytes_t *bytes, size_t extra) {
  size_t need;
  if (!checked_add(bytes->length, extra, &need)) return false;
  if (need <= bytes->capacity) return true;
  size_t capacity = MAX(256, need);
  if (bytes->capacity < SIZE_MAX / 2 && capacity < bytes->capacity + bytes->capacity / 2)
    capacity = bytes->capacity + bytes->capacity / 2;
  uint8_t *data = realloc(bytes->data, capacity);
  if (data == NULL) return false;
  bytes->data = data, bytes->capacity = capacity;
  return true;
}

bool bytes_append(bytes_t *bytes, const void *data, size_t length) {
  if (!bytes_reserve(bytes, length)) return false;
  if (length > 0) memcpy(bytes->data + bytes->length, data, length);
  bytes->length += length;
  return true;
}

void bytes_free(bytes_t *bytes) {
  free(bytes->data);
  *bytes = (bytes_t){0};
}

void bytes_trim(bytes_t *bytes, size_t keep_max) {
  bytes->length = 0;
  if (bytes->capacity > keep_max) bytes_free(bytes);
}

bool ids_grow(ids_t *ids, size_t extra) {
  size_t need, size;
  if (!checked_add(ids->count, extra, &need)) return false;
  if (need <= ids->capacity) return true;
  size_t capacity = MAX(64, need);
  if (ids->capacity < SIZE_MAX / 4 && capacity < ids->capacity + ids->capacity / 2)
    capacity = ids->capacity + ids->capacity / 2;
  if (!checked_mul(capacity, sizeof *ids->data, &size)) return false;
  int32_t *data = realloc(ids->data, size);
  if (data == NULL) return false;
  ids->data = data, ids->capacity = capacity;
  return true;
}
