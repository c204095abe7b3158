/* test_described.c: the routes that describe a request: what one turn of the loop builds of it. */
#include "tests/expect.h"
#include "tests/server/api/fake.h"

TestSuite(described, .init = fake_start, .fini = fake_stop, .timeout = 60);

static size_t held_of(const void *owner) {
  return cord_held(&((const completion_t *)owner)->reply);
}

/* Each prompt repeats the stop strings, and is described when those before it are printed. */
Test(described, prompts_are_described_one_at_a_time) {
  enum { PROMPTS = 100, STOP = 256, STOPS = 4 };
  buffer_t body = {0};
  buffer_text(&body, "{\"prompt\":[");
  for (int i = 0; i < PROMPTS; i++) buffer_text(&body, i > 0 ? ",\"a\"" : "\"a\"");
  buffer_text(&body, "],\"stop\":[");
  for (int i = 0; i < STOPS; i++) {
    buffer_text(&body, i > 0 ? ",\"" : "\"");
    for (int k = 0; k < STOP; k++) buffer_char(&body, 's');
    buffer_char(&body, '"');
  }
  buffer_text(&body, "]}");
  buffer_char(&body, '\0');
  fake_held = held_of;
  fake_exchange_t *exchange = fake_call(api_render_completion, body.data);
  cr_assert(exchange->answered && exchange->status == 200, "%s", exchange->body);
  ASSERT_GT(exchange->body_length, (size_t)PROMPTS * STOP * STOPS);
  ASSERT_LT_FOR(fake_held_max, (size_t)3 * STOP * STOPS, "bytes that one turn has built");
  json_doc_t *doc = fake_json(exchange);
  ASSERT_EQ(json_root(doc)->count, PROMPTS);
  json_free(doc);
  buffer_free(&body);
  fake_exchange_free(exchange);
}
