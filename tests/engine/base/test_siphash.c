/* test_siphash.c: the published test vectors of SipHash-2-4, 64 and 128 bits. */
#include "engine/base/siphash.h"
#include "tests/expect.h"

/* Key 00 01 .. 0f, message 00 01 .. 0e: appendix A of the paper, and vectors.h of the authors. */
static const uint64_t key[2] = {0x0706050403020100u, 0x0f0e0d0c0b0a0908u};

static void message(char *out, size_t length) {
  for (size_t i = 0; i < length; i++) out[i] = (char)i;
}

Test(siphash, the_vector_of_the_paper) {
  char text[15];
  message(text, sizeof text);
  siphash_t s = siphash_begin(key);
  siphash_bytes(&s, text, sizeof text, 2);
  ASSERT_EQ(siphash_end(&s, 2), 0xa129ca6149be45e5u);
}

Test(siphash, the_empty_message_in_128_bits) {
  uint64_t out[2];
  siphash_t s = siphash_begin_128(key);
  siphash_bytes(&s, "", 0, 2);
  siphash_end_128(&s, out);
  /* a3 81 7f 04 ba 25 a8 e6 6d f6 72 14 c7 55 02 93 */
  ASSERT_EQ(out[0], 0xe6a825ba047f81a3u);
  ASSERT_EQ(out[1], 0x930255c71472f66du);
}
