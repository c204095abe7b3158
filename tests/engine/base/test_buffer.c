/* test_buffer.c: how a buffer grows, fails and is emptied; what it prints: test_render.c. */
#include "engine/base/buffer.h"
#include "tests/expect.h"

#include <string.h>

TestSuite(buffer, .timeout = 30);

Test(buffer, grows_and_keeps_what_it_has) {
  buffer_t buffer = {0};
  uint32_t state = 1;
  for (size_t length = 0; length < 100000;) {
    uint8_t piece[300];
    size_t size = (state = state * 1664525 + 1013904223) >> 24;
    for (size_t i = 0; i < size; i++) piece[i] = (uint8_t)((length + i) * 7);
    cr_assert(buffer_append(&buffer, piece, size));
    length += size;
    ASSERT_EQ(buffer.length, length);
    ASSERT_LE(length, buffer.capacity);
  }
  for (size_t i = 0; i < buffer.length; i++) ASSERT_EQ(buffer.bytes[i], (uint8_t)(i * 7));
  ASSERT_LE(buffer.capacity, buffer.length + buffer.length / 2 + 300);
  buffer_free(&buffer);
  EXPECT_EQ(buffer.capacity, 0);
}

Test(buffer, takes_exactly_a_large_request) {
  buffer_t buffer = {0};
  cr_assert(buffer_reserve(&buffer, 1));
  EXPECT_EQ(buffer.capacity, 64);
  cr_assert(buffer_reserve(&buffer, 5000));
  EXPECT_EQ(buffer.capacity, 5000);
  buffer_free(&buffer);
}

Test(buffer, says_that_bytes_are_missing_and_goes_on) {
  buffer_t buffer = {0};
  buffer_text(&buffer, "begin");
  for (size_t extra = SIZE_MAX; extra > SIZE_MAX / 4; extra /= 2) {
    buffer.failed = false;
    EXPECT_EQ(buffer_reserve(&buffer, extra), false);
    EXPECT_EQ(buffer.failed, true);
  }
  char more[200];
  memset(more, 'x', sizeof more);
  cr_assert(buffer_append(&buffer, more, sizeof more));
  EXPECT_EQ(buffer.length, 205);
  EXPECT_EQ(buffer.failed, true);
  size_t length = 7;
  EXPECT_EQ((uintptr_t)buffer_detach(&buffer, &length), 0);
}

Test(buffer, is_trimmed_for_the_next_user) {
  buffer_t buffer = {.failed = true};
  cr_assert(buffer_reserve(&buffer, 1000));
  buffer_text(&buffer, "old");
  buffer_trim(&buffer, 1000);
  EXPECT_EQ(buffer.length, 0);
  EXPECT_EQ(buffer.failed, false);
  EXPECT_EQ(buffer.capacity, 1000);
  buffer_trim(&buffer, 999);
  EXPECT_EQ(buffer.capacity, 0);
}
