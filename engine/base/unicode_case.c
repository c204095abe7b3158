/* unicode_case.c: look-ups in the tables of unicode_case.h.
 *
 * Pure functions, any thread.
 */
#include "engine/base/unicode_case.h"

#include <stddef.h>

unsigned char_class(uint32_t code) {
  if (code >= 'a' && code <= 'z') return CHAR_PRINTABLE | CHAR_ALPHA | CHAR_LOWER;
  uint32_t low = 0, high = unicode_classes_count;
  while (high - low > 1) {
    uint32_t middle = low + (high - low) / 2;
    if (unicode_classes[middle].first <= code)
      low = middle;
    else
      high = middle;
  }
  return unicode_classes[low].bits;
}

static const case_full_t *find_full(const case_full_t *table, uint32_t count, uint32_t code) {
  for (uint32_t low = 0, high = count; low < high;) {
    uint32_t middle = low + (high - low) / 2;
    if (table[middle].from == code) return &table[middle];
    if (table[middle].from < code)
      low = middle + 1;
    else
      high = middle;
  }
  return NULL;
}

static uint32_t find_pair(const case_pair_t *table, uint32_t count, uint32_t code) {
  for (uint32_t low = 0, high = count; low < high;) {
    uint32_t middle = low + (high - low) / 2;
    if (table[middle].from == code) return table[middle].to;
    if (table[middle].from < code)
      low = middle + 1;
    else
      high = middle;
  }
  return code;
}

unsigned char_case(uint32_t code, case_kind_t kind, uint32_t out[3]) {
  const case_full_t *full = NULL;
  if (code < 0x80) {
    bool lower = code >= 'a' && code <= 'z', upper = code >= 'A' && code <= 'Z';
    out[0] = code;
    if (kind == CASE_LOWER && upper) out[0] = code + 32;
    if (kind != CASE_LOWER && lower) out[0] = code - 32;
    return 1;
  }
  if (kind == CASE_UPPER) {
    full = find_full(unicode_upper_full, unicode_upper_full_count, code);
    out[0] = find_pair(unicode_upper, unicode_upper_count, code);
  } else if (kind == CASE_LOWER) {
    full = find_full(unicode_lower_full, unicode_lower_full_count, code);
    out[0] = find_pair(unicode_lower, unicode_lower_count, code);
  } else {
    full = find_full(unicode_title_full, unicode_title_full_count, code);
    out[0] = find_pair(unicode_title, unicode_title_count, code);
  }
  if (full == NULL) return 1;
  unsigned count = 0;
  while (count < 3 && full->to[count] != 0) {
    out[count] = full->to[count];
    count++;
  }
  return count;
}
