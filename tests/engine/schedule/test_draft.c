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

/* One sequence alone, whose step takes as long as 17 draft tokens; 64 with a step of 75. */
static const draft_step_t alone = {.tokens = 1, .cost = 17}, full = {.tokens = 64, .cost = 75};

/* Drafts as long as the history wants, of which tokens are right up to place `right`. Returns the
 * draft tokens of `steps` steps. */
static int draft_steps(draft_history_t *h, const draft_step_t *step, int steps, int32_t right) {
  int drafted = 0;
  for (int i = 0; i < steps; i++) {
    int32_t n = draft_pauses(h) ? 0 : draft_length(&options, h, step);
    drafted += n;
    if (n > 0) draft_learn(h, n, right < n ? right : n);
  }
  return drafted;
}

Test(draft, failing_drafts_become_rare_and_right_ones_long) {
  draft_history_t h = {0};
  int drafted = draft_steps(&h, &alone, 1000, 0);
  cr_assert(drafted < 60, "%d tokens drafted in vain in 1000 steps", drafted);
  draft_steps(&h, &alone, 100, 4);
  ASSERT_EQ_FOR(draft_length(&options, &h, &alone), 4, "never more than the option says");
}

/* Half of the tokens are right: in a step that is nearly empty a draft of some is worth it. */
Test(draft, the_length_follows_the_share_that_is_right) {
  draft_history_t often = {.right = 9, .tried = 10}, seldom = {.right = 1, .tried = 10};
  const draft_options_t long_ones = {.tokens_max = 15, .match_min = 2, .match_max = 3};
  int32_t many = draft_length(&long_ones, &often, &alone),
          few = draft_length(&long_ones, &seldom, &alone);
  cr_assert(many >= 6 && few == 1, "%d and %d", many, few);
}

Test(draft, a_step_that_is_full_of_rows_has_none_or_few) {
  draft_history_t fresh = {0}, right = {.right = 10, .tried = 10}, wrong = {.tried = 10};
  ASSERT_EQ(draft_length(&options, &fresh, &alone), 4);
  ASSERT_EQ(draft_length(&options, &fresh, &full), 0);
  ASSERT_EQ(draft_length(&options, &right, &full), 4);
  ASSERT_EQ(draft_length(&options, &wrong, &full), 0);
  /* a token costs as much as what the step yields in its time: even certain ones bring nothing */
  const draft_step_t costly = {.tokens = 8, .cost = 8};
  ASSERT_EQ(draft_length(&options, &right, &costly), 0);
}

/* The longest draft of which each further token makes the step better, against all lengths. */
Test(draft, the_length_is_the_best_one) {
  unsigned seed = 3;
  const draft_options_t o = {.tokens_max = DRAFT_TOKENS_MAX, .match_min = 1, .match_max = 1};
  for (int round = 0; round < 2000; round++) {
    float tried = (float)(rand_r(&seed) % 100) / 10, share = (float)(rand_r(&seed) % 101) / 100;
    draft_history_t h = {.right = tried * share, .tried = tried};
    draft_step_t step = {.tokens = 1 + rand_r(&seed) % 64, .cost = 1 + rand_r(&seed) % 200};
    double p = (h.right + 1.6) / (h.tried + 2), best = 0, each = 1;
    int32_t best_length = 0;
    double tokens = step.tokens;
    for (int32_t n = 0; n <= DRAFT_TOKENS_MAX; n++) {
      if (tokens / (step.cost + n) > best * (1 + 1e-9)) {
        best = tokens / (step.cost + n);
        best_length = n;
      }
      each *= p;
      tokens += each;
    }
    ASSERT_EQ(draft_length(&o, &h, &step), best_length);
  }
}
