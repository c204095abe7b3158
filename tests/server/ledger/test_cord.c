/* test_cord.c: a text printed in pieces is the text printed at once. */
#include "tests/expect.h"

#include "server/ledger/cord.h"

#include <stdlib.h>
#include <string.h>

enum { ITEMS = 300, TEXT_BYTES = 20000 };

static int32_t ids[ITEMS];
static char text[TEXT_BYTES];

static void print_id(buffer_t *out, const void *list, size_t index) {
  buffer_int(out, ((const int32_t *)list)[index]);
}

/* Characters of one to four bytes, quotes, control characters, and bytes that are no UTF-8. */
static void fill(unsigned seed) {
  static const char *const some[] = {
      "a",    "\"",       "\n",   "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80",
      "\x80", "\xe2\x82", "\x01", "zz"};
  size_t at = 0;
  srand(seed);
  while (at < TEXT_BYTES) {
    const char *next = some[(size_t)rand() % (sizeof some / sizeof *some)];
    size_t length = strlen(next);
    if (at + length > TEXT_BYTES) next = " ", length = 1;
    memcpy(text + at, next, length);
    at += length;
  }
  for (int i = 0; i < ITEMS; i++) ids[i] = rand();
}

static void make(cord_t *cord, buffer_t *whole) {
  buffer_text(&cord->own, "{\"a\":\"");
  cord_escape(cord, text, TEXT_BYTES);
  buffer_text(&cord->own, "\",\"b\":[");
  cord_items(cord, print_id, ids, ITEMS);
  cord_items(cord, print_id, ids, 0); /* an empty part is none */
  buffer_text(&cord->own, "],");
  buffer_int(&cord->own, 17);
  cord_bytes(cord, text, 100);
  cord_bytes(cord, text, TEXT_BYTES);
  buffer_text(&cord->own, "}");

  buffer_text(whole, "{\"a\":");
  buffer_quote(whole, text, TEXT_BYTES);
  buffer_text(whole, ",\"b\":");
  buffer_ids(whole, ids, ITEMS);
  buffer_text(whole, ",17");
  buffer_append(whole, text, 100);
  buffer_append(whole, text, TEXT_BYTES);
  buffer_text(whole, "}");
}

Test(cord, pieces_are_the_whole) {
  static const size_t rooms[] = {1, 7, 100, 4096, 65536, 1000000};
  for (unsigned seed = 1; seed <= 20; seed++) {
    fill(seed);
    for (size_t i = 0; i < sizeof rooms / sizeof *rooms; i++) {
      cord_t cord = {0};
      buffer_t whole = {0}, out = {0};
      make(&cord, &whole);
      cr_assert_not(cord_failed(&cord));
      for (bool more = true; more;) {
        size_t before = out.length;
        more = cord_print(&cord, &out, rooms[i]);
        if (more) ASSERT_GE(out.length - before, rooms[i]);
        ASSERT_LE(out.length - before, rooms[i] + 6 * CORD_STEP_BYTES);
      }
      ASSERT_EQ(out.length, whole.length);
      cr_assert(memcmp(out.data, whole.data, whole.length) == 0, "room %zu, seed %u", rooms[i],
                seed);
      cr_assert_not(cord_print(&cord, &out, 10));
      ASSERT_EQ(out.length, whole.length);
      cord_free(&cord);
      buffer_free(&whole);
      buffer_free(&out);
    }
  }
}

Test(cord, an_empty_one) {
  cord_t cord = {0};
  buffer_t out = {0};
  cr_assert_not(cord_print(&cord, &out, 10));
  ASSERT_EQ(out.length, 0);
  ASSERT_EQ(cord_held(&cord), 0);
  cord_free(&cord);
}
