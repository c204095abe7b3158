/* test_draft.c: prompt lookup and how its length adapts. */
#include "engine/schedule/draft.h"
#include "tests/engine/support.h"
#include "tests/expect.h"

#include <stdlib.h>
#include <string.h>

static const draft_options_t options = {.tokens_max = 4, .match_min = 2, .match_max = 3};

/* The same text, cut anywhere into the prompt and what follows. */
static int32_t lookup(const int32_t *tokens, int32_t count, int32_t limit, int32_t *got) {
  static unsigned seed = 5;
  int32_t cut = rand_r(&seed) % (count + 1), prompt[64], rest[64];
  for (int32_t i = 0; i < count; i++) {
    prompt[i] = i < cut ? tokens[i] : -1;
    rest[i] = i < cut ? -2 : tokens[i];
  }
  const draft_text_t text = {.prompt = prompt, .tokens = rest, .num_prompt = cut, .count = count};
  return draft_lookup(&options, &text, limit, got);
}

static void expect_draft(const int32_t *tokens, int32_t count, int32_t limit, const int32_t *want,
                         int32_t num_want) {
  int32_t got[DRAFT_TOKENS_MAX];
  int32_t n = lookup(tokens, count, limit, got);
  cr_assert(n == num_want, "%d draft tokens, expected %d", n, num_want);
  ASSERT_IDS_EQ(got, want, n);
}

Test(draft, what_followed_before_follows_again) {
  int32_t tokens[] = {1, 2, 3, 4, 5, 6, 9, 1, 2};
  expect_draft(tokens, 9, 4, (int32_t[]){3, 4, 5, 6}, 4);
  expect_draft(tokens, 9, 2, (int32_t[]){3, 4}, 2);
  expect_draft(tokens, 8, 4, NULL, 0); /* one token alone is no match */
  expect_draft(tokens, 1, 4, NULL, 0);
  expect_draft(tokens, 9, 0, NULL, 0);
}

Test(draft, the_longest_match_wins_and_then_the_latest) {
  int32_t longest[] = {7, 1, 2, 50, 8, 1, 2, 60, 7, 1, 2};
  expect_draft(longest, 11, 1, (int32_t[]){50}, 1);
  int32_t latest[] = {1, 2, 50, 1, 2, 60, 1, 2};
  expect_draft(latest, 8, 1, (int32_t[]){60}, 1);
}

Test(draft, a_loop_continues_past_its_end) {
  int32_t loop[] = {9, 5, 6, 5, 6, 5, 6};
  expect_draft(loop, 7, 4, (int32_t[]){5, 6, 5, 6}, 4);
  int32_t same[] = {5, 5, 5};
  expect_draft(same, 3, 4, (int32_t[]){5, 5, 5, 5}, 4);
}

/* Against the plain definition: try every length from the longest, every place from the latest. */
static int32_t plain_lookup(const int32_t *tokens, int32_t count) {
  for (int32_t n = options.match_max; n >= options.match_min; n--) {
    for (int32_t end = count - 1; end >= n; end--) {
      if (memcmp(&tokens[end - n], &tokens[count - n], (size_t)n * sizeof *tokens) == 0) return end;
    }
  }
  return -1;
}

Test(draft, random_sequences_agree_with_the_definition) {
  unsigned seed = 11;
  for (int round = 0; round < 20000; round++) {
    int32_t tokens[40], got[DRAFT_TOKENS_MAX];
    int32_t count = 1 + (int32_t)(rand_r(&seed) % 40);
    for (int32_t i = 0; i < count; i++) tokens[i] = (int32_t)(rand_r(&seed) % 4);
    int32_t n = lookup(tokens, count, 1, got), end = plain_lookup(tokens, count);
    ASSERT_EQ(n, (end >= 0));
    if (n) ASSERT_EQ(got[0], tokens[end]);
  }
}

Test(draft, failing_drafts_become_rare_and_right_ones_long) {
  draft_history_t h = {0};
  int drafted = 0;
  for (int step = 0; step < 1000; step++) {
    int32_t n = draft_length(&options, &h);
    if (n == 0) continue;
    drafted++;
    draft_learn(&options, &h, n, 0);
  }
  cr_assert(drafted < 30, "%d of 1000 steps drafted in vain", drafted);
  while (draft_length(&options, &h) == 0) continue;
  draft_learn(&options, &h, 1, 1);
  ASSERT_EQ(draft_length(&options, &h), 2);
  draft_learn(&options, &h, 2, 2);
  ASSERT_EQ(draft_length(&options, &h), 4);
  draft_learn(&options, &h, 4, 4);
  ASSERT_EQ_FOR(draft_length(&options, &h), 4, "never more than the option says");
  draft_learn(&options, &h, 4, 1);
  ASSERT_EQ(draft_length(&options, &h), 2);
}
