/* test_bpe.c: the merge order against a plain quadratic model, and the bound on work.
 *
 * Random small vocabularies, so that ranks, ties and overlapping merges of every kind occur; pieces
 * on both sides of the limit between the short and the long algorithm.
 */
#include "engine/text/model/bpe.h"
#include "tests/engine/text/helpers.h"
#include "tests/expect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LETTERS = 4, TOKENS_MAX = 400, PIECE_MAX = 600 };

typedef struct toy {
  bpe_t bpe;
  char token[TOKENS_MAX][64];
  uint32_t num_tokens, merge[TOKENS_MAX][3], num_merges;
} toy_t;

static uint32_t put(toy_t *toy, const char *text) {
  uint32_t id = toy->num_tokens++;
  snprintf(toy->token[id], sizeof toy->token[id], "%s", text);
  ASSERT_EQ(vocab_put(&toy->bpe.vocab, text, strlen(text), id), VOCAB_ADDED);
  return id;
}

/* Letters a.. and random merges of tokens that exist. */
static toy_t *toy_new(uint64_t *random, bool byte_level, unsigned merges) {
  toy_t *toy = calloc(1, sizeof *toy);
  cr_assert(vocab_init(&toy->bpe.vocab, TOKENS_MAX, TOKENS_MAX));
  toy->bpe.byte_level = byte_level, toy->bpe.unk = NO_ID, toy->bpe.byte_fallback = !byte_level;
  for (char c = 'a'; c < 'a' + LETTERS; c++) put(toy, (char[2]){c, 0});
  for (unsigned byte = 0; byte < 256 && !byte_level; byte++) {
    char name[8];
    snprintf(name, sizeof name, "<0x%02X>", byte);
    put(toy, name);
  }
  uint32_t letters = LETTERS;
  uint32_t made[TOKENS_MAX], num_made = 0;
  for (uint32_t i = 0; i < letters; i++) made[num_made++] = i;
  for (unsigned i = 0; i < merges && toy->num_tokens < TOKENS_MAX; i++) {
    uint32_t left = made[test_random(random) % num_made],
             right = made[test_random(random) % num_made];
    char joined[128];
    snprintf(joined, sizeof joined, "%s%s", toy->token[left], toy->token[right]);
    if (strlen(joined) > 40) continue;
    bool repeated = false;
    for (uint32_t m = 0; m < toy->num_merges; m++)
      repeated |= toy->merge[m][0] == left && toy->merge[m][1] == right;
    if (repeated) continue;
    uint32_t product = vocab_find(&toy->bpe.vocab, joined, strlen(joined));
    if (product == NO_ID) product = made[num_made++] = put(toy, joined);
    uint32_t *merge = toy->merge[toy->num_merges++];
    merge[0] = left, merge[1] = right, merge[2] = product;
  }
  ASSERT_EQ(bpe_prepare(&toy->bpe, toy->num_merges), 0);
  for (uint32_t m = 0; m < toy->num_merges; m++)
    bpe_add_merge(&toy->bpe, m, toy->merge[m][0], toy->merge[m][1], toy->merge[m][2]);
  ASSERT_EQ(bpe_finish(&toy->bpe), 0);
  return toy;
}

static void toy_free(toy_t *toy) {
  bpe_free(&toy->bpe);
  free(toy);
}

/* The definition: while a pair has a rank, merge the leftmost of the lowest. */
static size_t plain_bpe(const toy_t *toy, const char *text, size_t n, int32_t *id) {
  for (size_t i = 0; i < n; i++) id[i] = text[i] - 'a';
  for (;;) {
    uint32_t best = UINT32_MAX;
    size_t at = 0;
    for (size_t i = 0; i + 1 < n; i++) {
      for (uint32_t m = 0; m < toy->num_merges && m < best; m++)
        if ((int32_t)toy->merge[m][0] == id[i] && (int32_t)toy->merge[m][1] == id[i + 1])
          best = m, at = i;
    }
    if (best == UINT32_MAX) return n;
    id[at] = (int32_t)toy->merge[best][2];
    memmove(id + at + 1, id + at + 2, (n - at - 2) * sizeof *id);
    n--;
  }
}

static void compare_with_plain(bool byte_level, uint64_t seed) {
  uint64_t random = seed;
  bpe_scratch_t *s = bpe_scratch_new();
  for (int round = 0; round < 60; round++) {
    toy_t *toy = toy_new(&random, byte_level, 4 + (unsigned)(test_random(&random) % 120));
    bpe_scratch_free(s);
    s = bpe_scratch_new(); /* the word cache belongs to one vocabulary */
    for (int i = 0; i < 60; i++) {
      char text[PIECE_MAX];
      int32_t want[PIECE_MAX];
      buffer_t got = {0};
      size_t n = 1 + test_random(&random) % (i < 50 ? 80 : PIECE_MAX - 1);
      unsigned letters = 1 + (unsigned)(test_random(&random) % LETTERS);
      for (size_t j = 0; j < n; j++) text[j] = (char)('a' + test_random(&random) % letters);
      size_t count = plain_bpe(toy, text, n, want);
      const uint8_t *piece = (const uint8_t *)text;
      ASSERT_EQ(bpe_encode(&toy->bpe, s, piece, n, piece + n, &got), 0);
      cr_assert(got.length == count * sizeof *want && memcmp(got.data, want, got.length) == 0,
                "seed %llu, round %d, %.*s", (unsigned long long)seed, round, (int)n, text);
      buffer_free(&got);
    }
    toy_free(toy);
  }
  bpe_scratch_free(s);
}

Test(bpe, bytes_merge_as_defined) {
  compare_with_plain(true, 11);
}

/* Characters with all byte tokens: here the encoder cuts pieces, and must not change any id. */
Test(bpe, characters_with_cuts_merge_as_defined) {
  uint64_t random = 5;
  toy_t *toy = toy_new(&random, false, 3);
  cr_expect_not_null(toy->bpe.adjacent, "the encoder cuts in this mode");
  toy_free(toy);
  compare_with_plain(false, 12);
}

static uint64_t work_for(const toy_t *toy, const char *text, size_t n) {
  bpe_scratch_t *s = bpe_scratch_new();
  buffer_t got = {0};
  const uint8_t *piece = (const uint8_t *)text;
  ASSERT_EQ(bpe_encode(&toy->bpe, s, piece, n, piece + n, &got), 0);
  uint64_t work = s->work;
  buffer_free(&got);
  bpe_scratch_free(s);
  return work;
}

/* Each symbol is ranked once and every merge pushes at most two entries: at most 4 steps a symbol.
 */
Test(bpe, work_grows_with_the_text_not_with_its_square) {
  enum { N = 1 << 18 };
  uint64_t random = 99;
  char *text = malloc(N);
  for (int kind = 0; kind < 4; kind++) {
    toy_t *toy = toy_new(&random, true, 120);
    for (size_t i = 0; i < N; i++)
      text[i] = (char)(kind == 0 ? 'a' : 'a' + test_random(&random) % (unsigned)(kind + 1));
    EXPECT_LE_FOR(work_for(toy, text, N), 4ULL * N, "kind %d", kind);
    EXPECT_GE_FOR(work_for(toy, text, N), N / 2, "the counter counts");
    toy_free(toy);
  }
  free(text);
}

Test(bpe, the_byte_alphabet_is_a_bijection) {
  bool seen[0x144] = {false};
  for (int byte = 0; byte < 256; byte++) {
    uint32_t c = bpe_byte_char((uint8_t)byte);
    ASSERT_LT(c, 0x144);
    cr_expect_not(seen[c]);
    seen[c] = true;
    EXPECT_EQ(bpe_char_byte(c), byte);
  }
  EXPECT_EQ(bpe_byte_char(' '), 0x120);
  EXPECT_EQ(bpe_byte_char('\n'), 0x10A);
  EXPECT_EQ(bpe_byte_char(0xAD), 0x143);
  EXPECT_EQ(bpe_char_byte(' '), -1);
  EXPECT_EQ(bpe_char_byte(0x144), -1);
}
