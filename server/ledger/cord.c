/* cord.c: parts of a long text, and the place where the next piece begins.
 *
 * Any thread, one owner at a time.
 */
#include "server/ledger/cord.h"

#include "engine/base/util.h"

static void add(cord_t *cord, cord_part_t part) {
  if (part.length > 0) buffer_append(&cord->parts, &part, sizeof part);
}

/* Makes a part of what was appended to `own` since the last one. */
static void cover_own(cord_t *cord) {
  add(cord, (cord_part_t){.offset = cord->own_used, .length = cord->own.length - cord->own_used});
  cord->own_used = cord->own.length;
}

void cord_bytes(cord_t *cord, const char *bytes, size_t length) {
  if (cord->flat) {
    buffer_append(&cord->own, bytes, length);
    return;
  }
  cover_own(cord);
  add(cord, (cord_part_t){.bytes = bytes, .length = length});
}

void cord_escape(cord_t *cord, const char *text, size_t length) {
  if (cord->flat) {
    buffer_escape(&cord->own, text, length);
    return;
  }
  cover_own(cord);
  add(cord, (cord_part_t){.bytes = text, .length = length, .escaped = true});
}

void cord_items(cord_t *cord, cord_item_t *item, const void *list, size_t count) {
  cover_own(cord);
  add(cord, (cord_part_t){.length = count, .item = item, .list = list});
}

void cord_joined(cord_t *cord, cord_item_t *item, const void *list, size_t count) {
  cover_own(cord);
  add(cord, (cord_part_t){.length = count, .item = item, .list = list, .joined = true});
}

void cord_append(cord_t *cord, cord_t *other) {
  cover_own(other);
  const cord_part_t *parts = (const cord_part_t *)(const void *)other->parts.data;
  for (size_t i = 0; i < other->parts.length / sizeof *parts; i++) {
    const cord_part_t *part = &parts[i];
    const char *bytes = part->bytes != NULL ? part->bytes : other->own.data + part->offset;
    if (part->escaped) {
      cord_escape(cord, bytes, part->length);
    } else {
      cord_bytes(cord, bytes, part->length);
    }
  }
  cord->own.failed = cord->own.failed || cord_failed(other);
}

bool cord_failed(const cord_t *cord) {
  return cord->own.failed || cord->parts.failed;
}

size_t cord_held(const cord_t *cord) {
  return cord->own.capacity + cord->parts.capacity;
}

void cord_clear(cord_t *cord) {
  buffer_clear(&cord->own);
  buffer_clear(&cord->parts);
  cord->own_used = cord->part = cord->place = 0;
}

void cord_free(cord_t *cord) {
  buffer_free(&cord->own);
  buffer_free(&cord->parts);
  *cord = (cord_t){0};
}

/* Shortens a step of `length` bytes so that it does not end inside a UTF-8 sequence, which begins
 * at most 3 bytes before. A longer run of continuation bytes is no sequence and may be cut. */
static size_t whole_characters(const char *text, size_t length) {
  size_t end = length;
  while (end > length - 3 && ((unsigned char)text[end] & 0xC0) == 0x80) end--;
  return ((unsigned char)text[end] & 0xC0) == 0x80 ? length : end;
}

/* Prints a part from cord->place on. Returns true if all of the part is printed. */
static bool print_part(cord_t *cord, const cord_part_t *part, buffer_t *out, size_t end) {
  if (part->item != NULL) {
    for (; cord->place < part->length && out->length < end && !out->failed; cord->place++) {
      if (cord->place > 0 && !part->joined) buffer_char(out, ',');
      part->item(out, part->list, cord->place);
    }
    return cord->place == part->length;
  }
  const char *bytes = part->bytes != NULL ? part->bytes : cord->own.data + part->offset;
  while (cord->place < part->length && out->length < end && !out->failed) {
    const char *at = bytes + cord->place;
    size_t left = part->length - cord->place;
    size_t step = MIN(left, part->escaped ? CORD_STEP_BYTES : end - out->length);
    if (part->escaped && step < left) step = whole_characters(at, step);
    if (part->escaped) {
      buffer_escape(out, at, step);
    } else {
      buffer_append(out, at, step);
    }
    cord->place += step;
  }
  return cord->place == part->length;
}

bool cord_print(cord_t *cord, buffer_t *out, size_t room) {
  size_t end = out->length + room;
  cover_own(cord);
  const cord_part_t *parts = (const cord_part_t *)(const void *)cord->parts.data;
  size_t count = cord->parts.length / sizeof *parts;
  while (cord->part < count && out->length < end && !out->failed) {
    if (!print_part(cord, &parts[cord->part], out, end)) continue;
    cord->part++;
    cord->place = 0;
  }
  return cord->part < count;
}
