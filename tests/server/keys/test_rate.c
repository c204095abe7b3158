/* test_rate.c: token buckets against a count of what they let pass. */
#include "server/keys/api_key.h"
#include "tests/expect.h"

#include <stdlib.h>
#include <string.h>

TestSuite(rate, .timeout = 30);

#define SECONDS UINT64_C(1000000000)

Test(rate, a_minute_and_no_more) {
  rate_t rate = {0};
  uint64_t now = 5 * SECONDS;
  cr_expect(rate_allows(&rate, 1 << 30, now), "no bound");
  rate_set(&rate, 60, now);
  for (int i = 0; i < 60; i++) {
    cr_assert(rate_allows(&rate, 1, now));
    rate_take(&rate, 1, now);
  }
  cr_expect_not(rate_allows(&rate, 1, now));
  EXPECT_EQ(rate_left(&rate, now), 0);
  cr_expect_float_eq(rate_wait_s(&rate, 1, now), 1, 1e-9);
  cr_expect_float_eq(rate_wait_s(&rate, 30, now), 30, 1e-9);
  cr_expect_not(rate_allows(&rate, 1, now + SECONDS - 1000000));
  cr_expect(rate_allows(&rate, 1, now + SECONDS));
  cr_expect_not(rate_allows(&rate, 2, now + SECONDS));
  EXPECT_EQ(rate_left(&rate, now + 600 * SECONDS), 60); /* it does not save up more than a minute */
}

Test(rate, what_comes_later_is_a_debt) {
  rate_t rate = {0};
  uint64_t now = 0;
  rate_set(&rate, 100, now);
  cr_expect(rate_allows(&rate, 250, now), "more than a minute's when the bucket is full");
  rate_take(&rate, 250, now);
  cr_expect_not(rate_allows(&rate, 1, now + 89 * SECONDS));
  EXPECT_EQ(rate_left(&rate, now + 89 * SECONDS), 0);
  cr_expect(rate_allows(&rate, 1, now + 91 * SECONDS));
  rate_take(&rate, -1000, now + 91 * SECONDS);
  EXPECT_EQ(rate_left(&rate, now + 91 * SECONDS), 100);
}

Test(rate, a_new_bound_keeps_what_was_used) {
  rate_t rate = {0};
  rate_set(&rate, 100, 0);
  rate_take(&rate, 90, 0);
  rate_set(&rate, 1000, 0);
  EXPECT_EQ(rate_left(&rate, 0), 10);
  rate_set(&rate, 5, 0);
  EXPECT_EQ(rate_left(&rate, 0), 5);
  rate_set(&rate, 0, 0);
  cr_expect(rate_allows(&rate, 1 << 30, 0));
}

/* Random asks over an hour: what passes is at most the rate times the time, and a bucket. */
Test(rate, over_a_long_time_the_mean_is_the_rate) {
  rate_t rate = {0};
  unsigned state = 11;
  uint64_t now = 0, end = 3600 * SECONDS;
  int64_t passed = 0;
  rate_set(&rate, 6000, now);
  while (now < end) {
    state = state * 1664525 + 1013904223;
    now += state % 200000000;
    int64_t amount = 1 + (state >> 8) % 300;
    if (!rate_allows(&rate, amount, now)) continue;
    rate_take(&rate, amount, now);
    passed += amount;
  }
  EXPECT_LE(passed, 6000 * 60 + 6000);
  EXPECT_GE(passed, 6000 * 60 - 6000);
}

Test(rate, of_a_key) {
  uint8_t digest[KEY_DIGEST_BYTES] = {1};
  api_key_t *key = api_key_new(digest, false);
  key_limits_t limits = {.requests_per_minute = 2, .tokens_per_minute = 100};
  inferd_error_t error = {0};
  int wait_s = 0;
  api_key_set(key, "a", &limits, 0);
  ASSERT_EQ(api_key_take_request(key, 0, &wait_s, &error), 0);
  ASSERT_EQ(api_key_take_request(key, 0, &wait_s, &error), 0);
  ASSERT_EQ(api_key_take_request(key, 0, &wait_s, &error), ERR_RATE_LIMITED);
  EXPECT_EQ(wait_s, 30);
  cr_expect(strstr(error.message, "requests_per_minute=2") != NULL, "%s", error.message);
  ASSERT_EQ(api_key_take_request(key, 30 * SECONDS, &wait_s, &error), 0);
  ASSERT_EQ(api_key_check_tokens(key, 70, 30 * SECONDS, &wait_s, &error), 0);
  api_key_take_tokens(key, 70, 30 * SECONDS);
  ASSERT_EQ(api_key_check_tokens(key, 40, 30 * SECONDS, &wait_s, &error), ERR_RATE_LIMITED);
  EXPECT_EQ(wait_s, 6);
  cr_expect(strstr(error.message, "tokens_per_minute=100") != NULL, "%s", error.message);
  api_key_take_tokens(key, -70, 30 * SECONDS);
  EXPECT_EQ(rate_left(&key->rates->tokens, 30 * SECONDS), 100);
  api_key_release(key);
}
