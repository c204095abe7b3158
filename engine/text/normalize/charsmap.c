/* charsmap.c: reads and applies the map of charsmap.h. The loading thread makes it; the tokenizing
 * threads read it. */
#include "engine/text/normalize/charsmap.h"

#include "engine/base/utf8.h"
#include "engine/text/base64.h"
#include "engine/text/unicode/grapheme.h"
#include "engine/text/unicode/unicode.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CLUSTER_BYTES_MAX = 5 }; /* longer grapheme clusters are not looked up as a whole */

/* The format of a unit of the trie (darts-clone). A unit is a node or a value.
 * Node: bits 0..7 are its label, the byte that leads to it. Bit 8 says that a key ends at the node.
 * Bits 10..30 are the offset to the children; if bit 9 is set, the offset is shifted left by 8.
 * The place of the children (their base) is the place of the node XOR the offset. The child for a
 * byte lies at base XOR byte, and the value of the node lies at the base itself.
 * Value: bit 31 is set (a node has it clear), the other bits are an offset in charsmap_t.text. */
static uint32_t children_of(uint32_t place, uint32_t unit) {
  return place ^ (unit >> 10) << ((unit & 1u << 9) >> 6);
}
static bool has_value(uint32_t unit) {
  return (unit >> 8 & 1) != 0;
}
static bool has_label(uint32_t unit, uint32_t label) {
  return (unit & (1u << 31 | 0xFF)) == label;
}
static uint32_t value_of(uint32_t unit) {
  return unit & ~(1u << 31);
}

/* ---- making ---- */

static uint32_t read_u32(const uint8_t *bytes) {
  return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 |
         (uint32_t)bytes[3] << 24;
}

static bool fail(char reason[CHARSMAP_REASON_MAX], const char *what) {
  snprintf(reason, CHARSMAP_REASON_MAX, "%s", what);
  return false;
}

/* Returns true if the value points into the replacements, at the first byte of a character. */
static bool value_fits(const charsmap_t *map, uint32_t value) {
  if (value >= map->text.length) return value == map->text.length;
  return !utf8_continues(map->text.bytes[value]);
}

/* Checks the value of one unit, and appends to `waiting` the children that were not seen before.
 * Returns false with the reason if a look-up from this unit could leave the trie. */
static bool check_unit(const charsmap_t *map, uint32_t place, uint8_t *seen, uint32_t *waiting,
                       uint32_t *num_waiting, char reason[CHARSMAP_REASON_MAX]) {
  uint32_t unit = map->units[place], base = children_of(place, unit);
  if (has_value(unit) && (base >= map->num_units || !value_fits(map, value_of(map->units[base]))))
    return fail(reason, "the trie has a value outside the replacements");
  for (uint32_t label = 1; label < 256; label++) {
    uint32_t child = base ^ label;
    /* find() reads the place of any child, even of one that is absent. */
    if (child >= map->num_units) return fail(reason, "the trie has a place outside itself");
    if (!has_label(map->units[child], label) || seen[child]) continue;
    seen[child] = 1;
    waiting[(*num_waiting)++] = child;
  }
  return true;
}

/* Visits every unit that a look-up can reach. False with an empty reason: memory is short. */
static bool check_trie(const charsmap_t *map, char reason[CHARSMAP_REASON_MAX]) {
  uint8_t *seen = calloc(map->num_units, 1);
  uint32_t *waiting = calloc(map->num_units, sizeof *waiting), num_waiting = 1;
  bool ok = seen != NULL && waiting != NULL;
  if (ok) seen[0] = 1; /* waiting[0] is the root */
  while (ok && num_waiting > 0) {
    uint32_t place = waiting[--num_waiting];
    ok = check_unit(map, place, seen, waiting, &num_waiting, reason);
  }
  free(seen);
  free(waiting);
  return ok;
}

/* blob: size of the trie in bytes (u32, little-endian), the trie, the replacements. False as in
 * check_trie. */
static bool read_map(charsmap_t *map, const buffer_t *blob, char reason[CHARSMAP_REASON_MAX]) {
  uint32_t size = blob->length < 4 ? 0 : read_u32(blob->bytes);
  if (size == 0 || size % 4 != 0 || size > blob->length - 4)
    return fail(reason, "the size of the trie is wrong");
  const uint8_t *text = blob->bytes + 4 + size;
  size_t text_length = blob->length - 4 - size;
  if (!utf8_valid((const char *)text, text_length))
    return fail(reason, "the replacements are not valid UTF-8");
  map->num_units = size / 4;
  map->units = calloc(map->num_units, sizeof *map->units);
  if (map->units == NULL || !buffer_reserve(&map->text, text_length + 1) ||
      !buffer_append(&map->text, text, text_length))
    return false;
  map->text.bytes[text_length] = '\0'; /* the last replacement may lack it */
  for (uint32_t i = 0; i < map->num_units; i++) map->units[i] = read_u32(blob->bytes + 4 + 4 * i);
  if (!check_trie(map, reason)) return false;
  uint32_t base = children_of(0, map->units[0]);
  for (uint32_t c = 0; c < 128; c++)
    map->ascii_stays[c] = c == 0 || !has_label(map->units[base ^ c], c);
  return true;
}

charsmap_t *charsmap_of_bytes(const void *data, size_t length, char reason[CHARSMAP_REASON_MAX]) {
  buffer_t blob = {0};
  charsmap_t *map = calloc(1, sizeof *map);
  bool ok = map != NULL;
  reason[0] = '\0';
  if (ok && length > CHARSMAP_BYTES_MAX) ok = fail(reason, "more than 4 MiB");
  ok = ok && buffer_append(&blob, data, length) && read_map(map, &blob, reason);
  buffer_free(&blob);
  if (ok) return map;
  charsmap_free(map);
  return NULL;
}

charsmap_t *charsmap_new(const char *base64, size_t length, char reason[CHARSMAP_REASON_MAX]) {
  buffer_t blob = {0};
  charsmap_t *map = NULL;
  bool ok = true;
  reason[0] = '\0';
  if (length > CHARSMAP_BYTES_MAX) ok = fail(reason, "more than 4 MiB of base64");
  ok = ok && buffer_reserve(&blob, length + 1);
  if (ok && !base64_append(&blob, base64, length)) ok = fail(reason, "not well-formed base64");
  if (ok) map = charsmap_of_bytes(blob.data, blob.length, reason);
  buffer_free(&blob);
  return map;
}

void charsmap_free(charsmap_t *map) {
  if (map == NULL) return;
  free(map->units);
  buffer_free(&map->text);
  free(map);
}

/* ---- mapping ---- */

/* Returns the replacement of the shortest prefix of the text that has one; NULL = none. */
static const char *find(const charsmap_t *map, const uint8_t *text, size_t length) {
  uint32_t place = children_of(0, map->units[0]);
  for (size_t i = 0; i < length && text[i] != 0; i++) {
    place ^= text[i];
    uint32_t unit = map->units[place];
    if (!has_label(unit, text[i])) return NULL;
    place = children_of(place, unit);
    if (has_value(unit)) return map->text.data + value_of(map->units[place]);
  }
  return NULL;
}

/* Appends text[*kept, at), which stayed as it was, and then the replacement of text[at, end).
 * Returns false if memory is short. */
static bool put(const uint8_t *text, size_t *kept, size_t at, size_t end, const char *replacement,
                buffer_t *out) {
  bool ok = buffer_append(out, text + *kept, at - *kept) &&
            buffer_append(out, replacement, strlen(replacement));
  *kept = end;
  return ok;
}

bool charsmap_append(const charsmap_t *map, const uint8_t *text, size_t length, buffer_t *out,
                     bool *changed) {
  size_t kept = 0;
  *changed = false;
  for (size_t at = 0; at < length;) {
    /* An ASCII byte in front of another is a cluster of its own, except CR in front of LF. */
    bool single = at + 1 == length || (text[at + 1] < 0x80 && text[at + 1] != '\n');
    if (text[at] < 0x80 && single && map->ascii_stays[text[at]]) {
      at++;
      continue;
    }
    size_t end = at + grapheme_length(text + at, length - at);
    bool whole = end - at <= CLUSTER_BYTES_MAX && find(map, text + at, end - at) != NULL;
    while (at < end) {
      size_t next = whole ? end : at + utf8_length(text[at]);
      const char *replacement = find(map, text + at, next - at);
      if (replacement != NULL) {
        *changed = true;
        if (!put(text, &kept, at, next, replacement, out)) return false;
      }
      at = next;
    }
  }
  return !*changed || buffer_append(out, text + kept, length - kept);
}
