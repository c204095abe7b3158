/* test_hash.c: published values of FNV-1a, one that names a file, and texts that differ by a bit.
 */
#include "engine/base/hash.h"
#include "tests/expect.h"

#include <stdlib.h>

Test(hash, published_values_of_fnv) {
  ASSERT_EQ(fnv_32(FNV_32_BASIS, "", 0), 0x811c9dc5u);
  ASSERT_EQ(fnv_32(FNV_32_BASIS, "a", 1), 0xe40c292cu);
  ASSERT_EQ(fnv_32(FNV_32_BASIS, "foobar", 6), 0xbf9cf968u);
  ASSERT_EQ(fnv_64(FNV_64_BASIS, "a", 1), 0xaf63dc4c8601ec8cu);
  ASSERT_EQ(fnv_64(FNV_64_BASIS, "foobar", 6), 0x85944171f73967e8u);
  ASSERT_EQ(fnv_64(fnv_64(FNV_64_BASIS, "foo", 3), "bar", 3), 0x85944171f73967e8u);
  ASSERT_EQ(fnv_32_step(FNV_32_BASIS, 'a'), 0xe40c292cu);
}

/* Measured choices of products are found again by such names: device, then cuBLASLt's version. */
Test(hash, the_name_of_a_file_of_choices) {
  static const char device[] = "NVIDIA H100 80GB HBM3, 79.1 GiB, sm_90, driver 12.8";
  const uint64_t version = 120804;
  uint64_t key = fnv_64(FNV_64_BASIS, device, sizeof device - 1);
  ASSERT_EQ(fnv_64(key, &version, sizeof version), 0xe480b76701c4cbccu);
}

static int compare(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

/* Texts of every length up to 64 that differ in one bit, and the zeroes behind a text. */
Test(hash, near_texts_differ) {
  enum { LENGTHS = 65, TEXTS = LENGTHS * (LENGTHS - 1) / 2 * 8 + LENGTHS };
  static uint64_t hashes[TEXTS];
  size_t count = 0;
  for (size_t length = 0; length < LENGTHS; length++) {
    uint8_t text[LENGTHS] = {0};
    hashes[count++] = hash_bytes(text, length);
    for (size_t bit = 0; bit < 8 * length; bit++) {
      text[bit / 8] = (uint8_t)(1 << bit % 8);
      hashes[count++] = hash_bytes(text, length);
      text[bit / 8] = 0;
    }
  }
  ASSERT_EQ(count, TEXTS);
  qsort(hashes, count, sizeof *hashes, compare);
  for (size_t i = 1; i < count; i++) ASSERT_NE(hashes[i], hashes[i - 1]);
}
