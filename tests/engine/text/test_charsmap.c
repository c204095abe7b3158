/* test_charsmap.c: blobs that no trie is are refused; whatever is accepted maps without leaving it.
 *
 * What a good map does is compared in test_vectors.c (unigram_map). Here its blob is broken.
 */
#include "engine/text/normalize/charsmap.h"
#include "tests/engine/text/helpers.h"
#include "tests/expect.h"

#include <stdlib.h>
#include <string.h>

enum { BLOB_MAX = 1 << 16 };

static char *encode64(const uint8_t *data, size_t length) {
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  char *out = calloc(1, length / 3 * 4 + 5), *o = out;
  for (size_t i = 0; i < length; i += 3) {
    uint32_t word = 0;
    for (size_t k = 0; k < 3; k++) word = word << 8 | (i + k < length ? data[i + k] : 0);
    for (size_t k = 0; k < 4; k++) *o++ = i + k > length ? '=' : digits[word >> (18 - 6 * k) & 63];
  }
  return out;
}

/* {"a": "X"}: the root, the unit of `a`, its value, and the rest of the block. */
static size_t small_blob(uint8_t *blob) {
  uint32_t units[256] = {
      [0] = 1 << 10, [1 ^ 'a'] = 'a' | 1 << 8 | (1 ^ 'a' ^ 2) << 10, [2] = 1u << 31};
  size_t length = 0;
  blob[length++] = 0, blob[length++] = 4, blob[length++] = 0, blob[length++] = 0;
  for (int i = 0; i < 256; i++)
    for (int k = 0; k < 4; k++) blob[length++] = (uint8_t)(units[i] >> (8 * k));
  memcpy(blob + length, "X", 2);
  return length + 2;
}

static charsmap_t *make(const uint8_t *blob, size_t length, char reason[CHARSMAP_REASON_MAX]) {
  char *text = encode64(blob, length);
  charsmap_t *map = charsmap_new(text, strlen(text), reason);
  free(text);
  return map;
}

static void expect_mapped(const charsmap_t *map, const char *text, const char *want) {
  buffer_t out = {0};
  bool changed;
  cr_assert(charsmap_append(map, (const uint8_t *)text, strlen(text), &out, &changed));
  if (want == NULL) {
    cr_expect(!changed && out.length == 0, "%s", text);
  } else {
    cr_expect(changed && out.length == strlen(want) && memcmp(out.data, want, out.length) == 0,
              "%s: %.*s", text, (int)out.length, (const char *)out.data);
  }
  buffer_free(&out);
}

/* A short cluster is replaced as a whole, a long one character by character. */
Test(charsmap, clusters) {
  uint8_t blob[BLOB_MAX];
  char reason[CHARSMAP_REASON_MAX];
  charsmap_t *map = make(blob, small_blob(blob), reason);
  cr_assert_not_null(map, "%s", reason);
  expect_mapped(map, "", NULL);
  expect_mapped(map, "bcd\r\n", NULL);
  expect_mapped(map, "banana", "bXnXnX");
  expect_mapped(map, "a\xCC\x81", "X");
  expect_mapped(map, "a\xCC\x81\xCC\x80", "X");
  expect_mapped(map, "a\xCC\x81\xCC\x80\xCC\x80!", "X\xCC\x81\xCC\x80\xCC\x80!");
  charsmap_free(map);
}

Test(charsmap, refused_with_a_reason) {
  uint8_t blob[BLOB_MAX];
  char reason[CHARSMAP_REASON_MAX];
  size_t length = small_blob(blob);
  static const char *const texts[] = {"", "A", "AAA=AAAA", "A===", "AAAA A==", "AB==", "AAAA"};
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
    cr_expect_null(charsmap_new(texts[i], strlen(texts[i]), reason), "%s", texts[i]);
    EXPECT_NE_FOR(reason[0], '\0', "%s", texts[i]);
  }
  static const struct {
    size_t at; /* a byte of the blob */
    uint8_t value;
    const char *reason;
  } rows[] = {
      {0, 3, "size"}, /* not of whole units */
      {0, 8, "size"}, /* more than there is */
      {1, 0, "size"}, /* no trie */
      {3, 1, "size"},
      {4 + 3, 1, "place"},                 /* the children of the root */
      {4 + 4 * (1 ^ 'a') + 3, 1, "value"}, /* the value of `a` */
      {4 + 4 * 2, 3, "value"},             /* behind the replacements */
      {4 + 4 * 256, 0xFF, "UTF-8"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    uint8_t old = blob[rows[i].at];
    blob[rows[i].at] = rows[i].value;
    charsmap_t *map = make(blob, length, reason);
    cr_expect_null(map, "row %zu", i);
    cr_expect_not_null(strstr(reason, rows[i].reason), "row %zu: %s", i, reason);
    blob[rows[i].at] = old;
  }
}

/* Bytes of a real blob changed at random: refused, or never outside (AddressSanitizer looks on). */
Test(charsmap, broken_blobs_never_leave_the_trie) {
  test_doc_t doc = test_parse("tests/vectors/tokenizer/unigram_map/tokenizer.json");
  const json_t *list = json_get(json_get(json_root(doc.doc), "normalizer"), "normalizers");
  const json_t *good = json_get(json_first(list), "precompiled_charsmap");
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  static const uint8_t text[] =
      "a\r\nbe\xCC\x81 \xEF\xAC\x81\xE2\x80\xA6 \xEF\xBC\xA1\x01\xC2\xA9 x";
  char *blob = malloc(good->length), reason[CHARSMAP_REASON_MAX];
  uint64_t state = 7;
  int accepted = 0, rounds = 400;
  for (int i = 0; i < rounds; i++) {
    memcpy(blob, good->text, good->length);
    for (uint64_t n = 1 + test_random(&state) % 6; n > 0; n--)
      blob[test_random(&state) % good->length] = digits[test_random(&state) % 64];
    charsmap_t *map = charsmap_new(blob, good->length, reason);
    if (map == NULL) continue;
    buffer_t out = {0};
    bool changed;
    cr_assert(charsmap_append(map, text, sizeof text - 1, &out, &changed));
    buffer_free(&out);
    charsmap_free(map);
    accepted++;
  }
  cr_expect(accepted > 0 && accepted < rounds, "%d", accepted);
  free(blob);
  test_parse_free(&doc);
}
