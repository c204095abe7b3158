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

/* Prints `cord` in pieces of `room`, and compares. */
static void assert_prints(cord_t *cord, size_t room, const char *expected) {
  buffer_t out = {0};
  while (cord_print(cord, &out, room)) {
  }
  ASSERT_EQ(out.length, strlen(expected));
  cr_assert(out.length == 0 || memcmp(out.data, expected, out.length) == 0, "%.*s", (int)out.length,
            out.data);
  buffer_free(&out);
}

static void print_even(buffer_t *out, const void *list, size_t index) {
  const int32_t value = ((const int32_t *)list)[index];
  if (value % 2 > 0) return;
  if (index > 0) buffer_char(out, ';');
  buffer_int(out, value);
}

Test(cord, joined_items_bring_what_stands_between_them) {
  static const int32_t values[] = {2, 3, 4, 6};
  for (size_t room = 1; room < 10; room++) {
    cord_t cord = {0};
    cord_joined(&cord, print_even, values, 4);
    buffer_text(&cord.own, "|");
    cord_items(&cord, print_id, values, 4);
    assert_prints(&cord, room, "2;4;6|2,3,4,6");
    cord_free(&cord);
  }
}

/* Own text before, between and behind the parts of both. */
Test(cord, another_cord_is_appended) {
  for (int flat = 0; flat < 2; flat++) {
    for (size_t room = 1; room < 30; room++) {
      cord_t cord = {.flat = flat == 1}, other = {0};
      buffer_text(&other.own, "<1>");
      cord_bytes(&other, "\"bytes\"", 7);
      cord_escape(&other, "\"text\"", 6);
      buffer_text(&other.own, "<2>");
      buffer_text(&cord.own, "[");
      cord_append(&cord, &other);
      buffer_text(&cord.own, "]");
      cord_append(&cord, &(cord_t){0});
      assert_prints(&cord, room, "[<1>\"bytes\"\\\"text\\\"<2>]");
      cord_free(&cord);
      cord_free(&other);
    }
  }
}

Test(cord, a_flat_one_needs_nothing_of_what_it_was_made_of) {
  cord_t cord = {.flat = true};
  char bytes[] = "some", quoted[] = "\"more\"";
  cord_bytes(&cord, bytes, 4);
  cord_escape(&cord, quoted, 6);
  memset(bytes, 'x', 4);
  memset(quoted, 'x', 6);
  assert_prints(&cord, 3, "some\\\"more\\\"");
  cord_free(&cord);
}

Test(cord, what_is_emptied_is_made_anew_in_the_same_memory) {
  cord_t cord = {0};
  size_t held = 0;
  for (int round = 0; round < 3; round++) {
    buffer_text(&cord.own, "{");
    cord_bytes(&cord, "abc", 3);
    cord_items(&cord, print_id, (const int32_t[]){1, 2}, 2);
    assert_prints(&cord, 2, "{abc1,2");
    if (round > 0) ASSERT_EQ(cord_held(&cord), held);
    held = cord_held(&cord);
    ASSERT_EQ(held, cord.own.capacity + cord.parts.capacity);
    ASSERT_GT(cord.own.capacity, 0);
    ASSERT_GT(cord.parts.capacity, 0);
    cord_clear(&cord);
    assert_prints(&cord, 2, "");
  }
  cord_free(&cord);
  ASSERT_EQ(cord_held(&cord), 0);
}

Test(cord, who_lacked_memory_says_so) {
  for (int part = 0; part < 2; part++) {
    cord_t cord = {0}, other = {0};
    *(part == 1 ? &other.parts.failed : &other.own.failed) = true;
    cr_assert(cord_failed(&other));
    cr_assert_not(cord_failed(&cord));
    cord_append(&cord, &other);
    cr_assert(cord_failed(&cord));
    cord_append(&cord, &(cord_t){0});
    cr_assert(cord_failed(&cord), "another one that is whole changes nothing");
    cord_free(&cord);
    cord_free(&other);
  }
}
