/* test_arena.c: pieces do not overlap, the limit holds, and want of memory is told apart from it.
 */
#include "engine/base/arena.h"
#include "tests/expect.h"

#include <stdint.h>
#include <string.h>

enum { KIB = 1 << 10, MIB = 1 << 20 };

Test(arena, pieces_are_aligned_zeroed_when_asked_and_apart) {
  arena_t arena = {0};
  enum { PIECES = 400 };
  unsigned char *pieces[PIECES];
  size_t sizes[PIECES], total = 0;
  for (size_t i = 0; i < PIECES; i++) {
    /* Small ones, and every 50th larger than any chunk there is yet. */
    sizes[i] = i % 50 == 49 ? 64 * KIB + i : 1 + 37 * i % 700;
    pieces[i] = i % 2 == 0 ? arena_calloc(&arena, sizes[i], 1) : arena_alloc(&arena, 1, sizes[i]);
    cr_assert_not_null(pieces[i]);
    ASSERT_EQ((uintptr_t)pieces[i] % 16, 0);
    for (size_t j = 0; i % 2 == 0 && j < sizes[i]; j++) ASSERT_EQ(pieces[i][j], 0);
    memset(pieces[i], (int)(i % 251) + 1, sizes[i]);
    total += sizes[i];
  }
  for (size_t i = 0; i < PIECES; i++) {
    for (size_t j = 0; j < sizes[i]; j++) ASSERT_EQ(pieces[i][j], i % 251 + 1);
  }
  ASSERT_GE(arena.taken, total);
  ASSERT_LT(arena.taken, total + 16 * PIECES);
  cr_assert(arena.held >= arena.taken && arena.held < 3 * arena.taken, "%zu bytes hold %zu",
            arena.held, arena.taken);
  arena_free(&arena);
  ASSERT_EQ(arena.chunks, NULL);
  ASSERT_EQ(arena.taken, 0);
  ASSERT_EQ(arena.held, 0);
}

/* It has a chunk of its own: the next small piece comes from the chunk before it. */
Test(arena, a_large_zeroed_piece_behind_others_is_zeroed) {
  arena_t arena = {0};
  memset(arena_alloc(&arena, 1, 16), 0xff, 16);
  unsigned char *large = arena_calloc(&arena, 3, MIB);
  for (size_t i = 0; i < 3 * MIB; i += 4093) ASSERT_EQ(large[i], 0);
  unsigned char *small = arena_calloc(&arena, 1, 16);
  cr_assert(small < large || small >= large + 3 * MIB);
  arena_free(&arena);
}

Test(arena, nothing_is_a_piece_too) {
  arena_t arena = {0};
  char *first = arena_alloc(&arena, 0, 8), *second = arena_calloc(&arena, 8, 0);
  cr_assert(first != NULL);
  cr_assert(second != NULL);
  ASSERT_NE(first, second);
  arena_free(&arena);
}

Test(arena, the_limit_counts_pieces_and_survives_the_end) {
  arena_t arena = {.limit = 64};
  cr_assert_not_null(arena_alloc(&arena, 3, 16));
  cr_assert_null(arena_alloc(&arena, 1, 17));
  cr_assert(!arena.out_of_memory);
  cr_assert_not_null(arena_alloc(&arena, 1, 16));
  cr_assert_null(arena_calloc(&arena, 1, 1));
  arena_free(&arena);
  ASSERT_EQ(arena.limit, 64);
  cr_assert_null(arena_alloc(&arena, 1, 65));
  cr_assert_not_null(arena_alloc(&arena, 1, 64));
  arena_free(&arena);
}

Test(arena, want_of_memory_is_not_the_limit) {
  arena_t arena = {0};
  cr_assert_null(arena_alloc(&arena, SIZE_MAX / 2, 3), "the product overflows");
  cr_assert_null(arena_copy(&arena, "", SIZE_MAX));
  cr_assert(!arena.out_of_memory);
  cr_assert_null(arena_alloc(&arena, SIZE_MAX / 4, 1));
  cr_assert(arena.out_of_memory);
  ASSERT_EQ(arena.taken, 0);
  cr_assert_not_null(arena_alloc(&arena, 100, 1), "smaller pieces go on");
  arena_free(&arena);
  cr_assert(!arena.out_of_memory);
}

Test(arena, copies_end_in_a_nul) {
  arena_t arena = {0};
  memset(arena_alloc(&arena, 1, 512), 0xff, 512);
  ASSERT_STR_EQ(arena_copy(&arena, "abc", 2), "ab");
  ASSERT_STR_EQ(arena_copy(&arena, NULL, 0), "");
  arena_free(&arena);
}

Test(arena, an_array_grows_twofold_and_the_old_one_stays) {
  arena_t arena = {.limit = 4096};
  uint32_t capacity = 0;
  int *first = arena_grow(&arena, NULL, 0, 3, sizeof *first, &capacity);
  ASSERT_EQ(capacity, 3);
  for (int i = 0; i < 3; i++) first[i] = i + 10;
  int *second = arena_grow(&arena, first, 3, 4, sizeof *second, &capacity);
  ASSERT_EQ(capacity, 6);
  for (int i = 0; i < 3; i++) {
    EXPECT_EQ(second[i], i + 10);
    second[i] = 0;
    EXPECT_EQ(first[i], i + 10);
  }
  second = arena_grow(&arena, second, 3, 100, sizeof *second, &capacity);
  ASSERT_EQ(capacity, 100);
  EXPECT_EQ((uintptr_t)arena_grow(&arena, second, 3, 2000, sizeof *second, &capacity), 0);
  EXPECT_EQ(capacity, 100);
  cr_expect_not(arena.out_of_memory);
  arena_free(&arena);
}
