/* nfc.c: Unicode normalisation form C with the data of Unicode 9.0, as the reference library has
 * it.
 *
 * Runs on the tokenizing threads. Text that cannot change is only scanned; the rest is decomposed,
 * ordered and composed segment by segment (UAX #15). A segment of any length costs linear time.
 */
#include "engine/base/utf8.h"
#include "engine/text/normalize/normalizer.h"
#include "engine/text/unicode/unicode.h"

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

static const unicode_triple_t *find_decomposition(uint32_t c) {
  uint32_t low = 0, high = unicode_num_decompositions;
  while (low < high) {
    uint32_t middle = (low + high) / 2;
    const unicode_triple_t *t = &unicode_decompositions[middle];
    if (t->composed == c) return t;
    if (t->composed < c)
      low = middle + 1;
    else
      high = middle;
  }
  return NULL;
}

/* Writes the canonical decomposition of `c`, at most 4 code points. */
static unsigned decompose(uint32_t c, uint32_t *out) {
  if (c >= S_BASE && c < S_BASE + S_COUNT) {
    uint32_t s = c - S_BASE;
    out[0] = L_BASE + s / (V_COUNT * T_COUNT);
    out[1] = V_BASE + s % (V_COUNT * T_COUNT) / T_COUNT;
    out[2] = T_BASE + s % T_COUNT;
    return out[2] == T_BASE ? 2 : 3;
  }
  /* The first part may decompose again, the second never does (UAX #15). */
  uint32_t tail[4];
  unsigned num_tail = 0, n = 0;
  const unicode_triple_t *t;
  while (c >= 0xC0 && num_tail < 3 && (t = find_decomposition(c)) != NULL) {
    if (t->second != 0) tail[num_tail++] = t->second;
    c = t->first;
  }
  out[n++] = c;
  while (num_tail > 0) out[n++] = tail[--num_tail];
  return n;
}

static uint32_t compose(uint32_t a, uint32_t b) { /* 0: they do not compose */
  if (a >= L_BASE && a < L_BASE + L_COUNT && b >= V_BASE && b < V_BASE + V_COUNT)
    return S_BASE + ((a - L_BASE) * V_COUNT + (b - V_BASE)) * T_COUNT;
  if (a >= S_BASE && a < S_BASE + S_COUNT && (a - S_BASE) % T_COUNT == 0 && b > T_BASE &&
      b < T_BASE + T_COUNT)
    return a + (b - T_BASE);
  uint64_t key = (uint64_t)a << 32 | b;
  uint32_t low = 0, high = unicode_num_compositions;
  while (low < high) {
    uint32_t middle = (low + high) / 2;
    const unicode_triple_t *t = &unicode_compositions[middle];
    uint64_t k = (uint64_t)t->first << 32 | t->second;
    if (k == key) return t->composed;
    if (k < key)
      low = middle + 1;
    else
      high = middle;
  }
  return 0;
}

/* Stable sort of a run of marks by combining class; `spare` has room for `n`. */
static void order_marks(uint32_t *c, size_t n, uint32_t *spare) {
  if (n <= INSERTION_MAX) {
    for (size_t i = 1; i < n; i++) {
      uint32_t mark = c[i];
      size_t j = i;
      for (; j > 0 && unicode_ccc(c[j - 1]) > unicode_ccc(mark); j--) c[j] = c[j - 1];
      c[j] = mark;
    }
    return;
  }
  size_t start[257] = {0};
  for (size_t i = 0; i < n; i++) start[unicode_ccc(c[i]) + 1]++;
  for (unsigned k = 1; k < 257; k++) start[k] += start[k - 1];
  for (size_t i = 0; i < n; i++) spare[start[unicode_ccc(c[i])]++] = c[i];
  memcpy(c, spare, n * sizeof *c);
}

static void order(uint32_t *c, size_t n, uint32_t *spare) {
  for (size_t i = 0; i < n;) {
    size_t end = i;
    while (end < n && unicode_ccc(c[end]) != 0) end++;
    if (end - i > 1) order_marks(c + i, end - i, spare);
    i = end > i ? end : i + 1;
  }
}

static size_t compose_all(uint32_t *c, size_t n) {
  size_t kept = 0, starter = SIZE_MAX;
  int last_class = -1; /* class of the last kept mark after the starter, -1 = none */
  for (size_t i = 0; i < n; i++) {
    int class = unicode_ccc(c[i]);
    uint32_t both;
    if (starter != SIZE_MAX && last_class < class && (both = compose(c[starter], c[i])) != 0) {
      c[starter] = both;
      continue;
    }
    if (starter != SIZE_MAX && last_class == -1 && class == 0 &&
        (both = compose(c[starter], c[i])) != 0) {
      c[starter] = both;
      continue;
    }
    if (class == 0)
      starter = kept, last_class = -1;
    else
      last_class = class;
    c[kept++] = c[i];
  }
  return kept;
}

static bool segment(const uint8_t *text, size_t length, bytes_t *chars, bytes_t *out) {
  chars->length = 0;
  /* At most 4 code points a character, twice (the copy of the stable sort). */
  if (!bytes_reserve(chars, length * 8 * sizeof(uint32_t))) return false;
  uint32_t *c = (uint32_t *)(void *)chars->data;
  size_t n = 0;
  for (size_t at = 0; at < length;) {
    unsigned bytes;
    n += decompose(utf8_read(text + at, &bytes), c + n);
    at += bytes;
  }
  order(c, n, c + n);
  n = compose_all(c, n);
  if (!bytes_reserve(out, n * 4)) return false;
  for (size_t i = 0; i < n; i++)
    out->length += (size_t)utf8_write((char *)out->data + out->length, c[i]);
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

bool nfc_append(const uint8_t *text, size_t length, bytes_t *chars, bytes_t *out, bool *changed) {
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
    if (!bytes_append(out, text + done, before - done)) return false;
    if (!segment(text + before, end - before, chars, out)) return false;
    done = end;
    at = next_checked(text, end, length, &before);
  }
  return bytes_append(out, text + done, length - done);
}
