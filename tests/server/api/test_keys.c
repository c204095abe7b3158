/* test_keys.c: long prompts are hashed before they reach the engine. */
#include "tests/expect.h"
#include "tests/server/api/fake.h"

#include <stdio.h>

TestSuite(keys, .init = fake_start, .fini = fake_stop);

/* Long prompts are hashed before they reach the engine. */
Test(keys, long_prompts_bring_their_keys) {
  static char body[8000];
  fake_engine.keys_per_token = 1;
  fake_engine.info.max_model_len = 2048;
  for (int tokens = 1000; tokens <= 1100; tokens += 100) {
    int n = snprintf(body, sizeof body, "{\"prompt\":[1");
    for (int i = 1; i < tokens; i++) n += snprintf(body + n, sizeof body - (size_t)n, ",%d", i % 7);
    n += snprintf(body + n, sizeof body - (size_t)n, "],\"max_tokens\":1}");
    fake_exchange_t *exchange = fake_exchange_new(body, (size_t)n);
    api_completions(&exchange->public);
    ASSERT_EQ_FOR(fake_engine.requests[0]->prompt_keys != NULL, tokens >= 1024, "%d tokens",
                  tokens);
    fake_done(fake_engine.requests[0], FINISH_LENGTH, "");
    fake_deliver();
    fake_exchange_free(exchange);
  }
}
