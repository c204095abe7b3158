/* nfc.c: Unicode normalisation form C with the data of Unicode 9.0, as the reference library has
 * it.
 *
 * Runs on the tokenizing threads. Text that cannot change is only scanned; the rest is decomposed,
 * ordered and composed segment by segment (UAX #15). A segment of any length costs linear time.
 */
#include "engine/base/utf8.h"
#include "engine/text/normalize/normalizer.h"
#include "engine/text/unicode/unicode.h"

#include <string.h>

enum {
  S_BASE = 0xAC00,
  L_BASE = 0x1100,
  V_BASE = 0x1161,
  T_BASE = 0x11A7,
  L_COUNT = 19,
  V_COUNT = 21,
  T_COUNT = 28,
  S_COUNT = L_COUNT * V_COUNT * T_COUNT,
  INSERTION_MAX = 16
};

static const unicode_triple_t *find_decomposition(uint32_t codepoint) {
  uint32_t low = 0, high = unicode_num_decompositions;
  while (low < high) {
    uint32_t middle = (low + high) / 2;
    const unicode_triple_t *triple = &unicode_decompositions[middle];
    if (triple->composed == codepoint) return triple;
    if (triple->composed < codepoint)
      low = middle + 1;
    else
      high = middle;
  }
  return NULL;
}

unsigned nfc_decompose(uint32_t codepoint, uint32_t out[4]) {
  if (codepoint >= S_BASE && codepoint < S_BASE + S_COUNT) {
    uint32_t s = codepoint - S_BASE;
    out[0] = L_BASE + s / (V_COUNT * T_COUNT);
    out[1] = V_BASE + s % (V_COUNT * T_COUNT) / T_COUNT;
    out[2] = T_BASE + s % T_COUNT;
    return out[2] == T_BASE ? 2 : 3;
  }
  /* The first part may decompose again, the second never does (UAX #15). */
  uint32_t tail[4];
  unsigned num_tail = 0, n = 0;
  const unicode_triple_t *triple;
  while (codepoint >= 0xC0 && num_tail < 3 && (triple = find_decomposition(codepoint)) != NULL) {
    if (triple->second != 0) tail[num_tail++] = triple->second;
    codepoint = triple->first;
  }
  out[n++] = codepoint;
  while (num_tail > 0) out[n++] = tail[--num_tail];
  return n;
}

static uint32_t compose(uint32_t left, uint32_t right) { /* 0: they do not compose */
  if (left >= L_BASE && left < L_BASE + L_COUNT && right >= V_BASE && right < V_BASE + V_COUNT)
    return S_BASE + ((left - L_BASE) * V_COUNT + (right - V_BASE)) * T_COUNT;
  if (left >= S_BASE && left < S_BASE + S_COUNT && (left - S_BASE) % T_COUNT == 0 &&
      right > T_BASE && right < T_BASE + T_COUNT)
    return left + (right - T_BASE);
  uint64_t key = (uint64_t)left << 32 | right;
  uint32_t low = 0, high = unicode_num_compositions;
  while (low < high) {
    uint32_t middle = (low + high) / 2;
    const unicode_triple_t *triple = &unicode_compositions[middle];
    uint64_t k = (uint64_t)triple->first << 32 | triple->second;
    if (k == key) return triple->composed;
    if (k < key)
      low = middle + 1;
    else
      high = middle;
  }
  return 0;
}

/* Stable sort of a run of marks by combining class; `spare` has room for `n`. */
static void order_marks(uint32_t *codepoints, size_t n, uint32_t *spare) {
  if (n <= INSERTION_MAX) {
    for (size_t i = 1; i < n; i++) {
      uint32_t mark = codepoints[i];
      size_t j = i;
      for (; j > 0 && unicode_ccc(codepoints[j - 1]) > unicode_ccc(mark); j--)
        codepoints[j] = codepoints[j - 1];
      codepoints[j] = mark;
    }
    return;
  }
  size_t start[257] = {0};
  for (size_t i = 0; i < n; i++) start[unicode_ccc(codepoints[i]) + 1]++;
  for (unsigned k = 1; k < 257; k++) start[k] += start[k - 1];
  for (size_t i = 0; i < n; i++) spare[start[unicode_ccc(codepoints[i])]++] = codepoints[i];
  memcpy(codepoints, spare, n * sizeof *codepoints);
}

static void order(uint32_t *codepoints, size_t n, uint32_t *spare) {
  for (size_t i = 0; i < n;) {
    size_t end = i;
    while (end < n && unicode_ccc(codepoints[end]) != 0) end++;
    if (end - i > 1) order_marks(codepoints + i, end - i, spare);
    i = end > i ? end : i + 1;
  }
}

static size_t compose_all(uint32_t *codepoints, size_t n) {
  size_t kept = 0, starter = SIZE_MAX;
  int last_class = -1; /* class of the last kept mark after the starter, -1 = none */
  for (size_t i = 0; i < n; i++) {
    int class = unicode_ccc(codepoints[i]);
    uint32_t both;
    if (starter != SIZE_MAX && last_class < class &&
        (both = compose(codepoints[starter], codepoints[i])) != 0) {
      codepoints[starter] = both;
      continue;
    }
    if (starter != SIZE_MAX && last_class == -1 && class == 0 &&
        (both = compose(codepoints[starter], codepoints[i])) != 0) {
      codepoints[starter] = both;
      continue;
    }
    if (class == 0)
      starter = kept, last_class = -1;
    else
      last_class = class;
    codepoints[kept++] = codepoints[i];
  }
  return kept;
}

static bool segment(const uint8_t *text, size_t length, buffer_t *chars, buffer_t *out) {
  chars->length = 0;
  /* At most 4 code points a character, twice (the copy of the stable sort). */
  if (!buffer_reserve(chars, length * 8 * sizeof(uint32_t))) return false;
  uint32_t *c = (uint32_t *)(void *)chars->data;
  size_t n = 0;
  for (size_t at = 0; at < length;) {
    unsigned bytes;
    n += nfc_decompose(utf8_read(text + at, &bytes), c + n);
    at += bytes;
  }
  order(c, n, c + n);
  n = compose_all(c, n);
  if (!buffer_reserve(out, n * 4)) return false;
  for (size_t i = 0; i < n; i++) out->length += (size_t)utf8_write(out->data + out->length, c[i]);
  return true;
}

/* Next character at or after `at` that NFC may touch, `length` when there is none; *before = start
 * of the character in front of it. */
static size_t next_checked(const uint8_t *text, size_t at, size_t length, size_t *before) {
  *before = at;
  while (at < length) {
    unsigned n = 1;
    uint64_t word;
    if (length - at >= 8 && (memcpy(&word, text + at, 8), !(word & 0x8080808080808080ULL))) {
      at += 8, *before = at - 1; /* eight ASCII characters */
      continue;
    }
    if (text[at] >= 0xC0 && unicode_extra(utf8_read(text + at, &n)) & EXTRA_NFC) return at;
    *before = at;
    at += n;
  }
  return length;
}

bool nfc_append(const uint8_t *text, size_t length, buffer_t *chars, buffer_t *out, bool *changed) {
  size_t done = 0, before, at = next_checked(text, 0, length, &before);
  if (at == length) return true;
  *changed = true;
  while (at < length) {
    size_t end = at; /* the segment: one stable starter and everything checked after it */
    while (end < length) {
      unsigned n;
      if (!(unicode_extra(utf8_read(text + end, &n)) & EXTRA_NFC)) break;
      end += n;
    }
    if (before < done) before = done;
    if (!buffer_append(out, text + done, before - done)) return false;
    if (!segment(text + before, end - before, chars, out)) return false;
    done = end;
    at = next_checked(text, end, length, &before);
  }
  return buffer_append(out, text + done, length - done);
}
