/* test_chat_body.c: one history has one spelling as a chat body. */
#include "tests/expect.h"
#include "tests/server/api/fake.h"

#include "server/dialect/chat_body.h"

#include <stdlib.h>
#include <string.h>

#define TEXT(body, text) chat_body_text(body, text, strlen(text))

static void expect(buffer_t *out, const char *expected) {
  buffer_char(out, '\0');
  ASSERT_STR_EQ(out->data, expected);
  buffer_free(out);
}

Test(chat_body, values_as_they_were) {
  static const char *const values[] = {
      "null",
      "[]",
      "{}",
      "[1.50,-2e+3,true,false,\"a\\\"\\n\\u0001\xC3\xA9\"]",
      "{\"a\":{\"b\":[[],{}],\"c\":{\"d\":null}},\"e\":[{\"f\":1},2]}",
      "\"\""};
  for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
    json_doc_t *doc = NULL;
    buffer_t out = {0};
    cr_assert(json_parse(values[i], strlen(values[i]), &json_limits_request, &doc, NULL) == 0);
    json_print(&out, json_root(doc));
    json_free(doc);
    expect(&out, values[i]);
  }
}

Test(chat_body, part_of_a_document) {
  static const char text[] = "{\"a\":[1,[2,3]],\"b\":{\"c\":4},\"d\":5}";
  json_doc_t *doc = NULL;
  buffer_t out = {0};
  cr_assert(json_parse(text, sizeof text - 1, &json_limits_request, &doc, NULL) == 0);
  json_print_member(&out, "x", json_get(json_root(doc), "a"));
  json_print_member(&out, "y", json_get(json_root(doc), "b"));
  json_print_member(&out, "z", json_get(json_root(doc), "d"));
  json_free(doc);
  expect(&out, ",\"x\":[1,[2,3]],\"y\":{\"c\":4},\"z\":5");
}

Test(chat_body, deepest_document) {
  char text[256];
  json_doc_t *doc = NULL;
  buffer_t out = {0};
  memset(text, '[', 128);
  memset(text + 128, ']', 128);
  cr_assert(json_parse(text, 256, &json_limits_model, &doc, NULL) == 0);
  json_print(&out, json_root(doc));
  ASSERT_EQ(out.length, 256);
  cr_expect(!out.failed && memcmp(out.data, text, 256) == 0);
  json_free(doc);
  buffer_free(&out);
}

Test(chat_body, messages_of_one_side_in_a_row) {
  static const char call_id[] = "[\"c1\"]";
  json_doc_t *doc = NULL;
  cr_assert(json_parse(call_id, sizeof call_id - 1, &json_limits_request, &doc, NULL) == 0);
  const json_t *id = json_first(json_root(doc));
  buffer_t out = {0};
  chat_body_t body;
  chat_body_begin(&body, &out, true);
  chat_body_message(&body, CHAT_SYSTEM), TEXT(&body, "a");
  chat_body_message(&body, CHAT_SYSTEM), TEXT(&body, ""), TEXT(&body, "b");
  chat_body_message(&body, CHAT_USER), TEXT(&body, "c");
  chat_body_message(&body, CHAT_USER), TEXT(&body, "d"), TEXT(&body, "\"e");
  chat_body_message(&body, CHAT_ASSISTANT), chat_body_reasoning(&body, "so", 2);
  chat_body_message(&body, CHAT_ASSISTANT), TEXT(&body, "f"), TEXT(&body, "g");
  chat_body_message(&body, CHAT_ASSISTANT), chat_body_call(&body, id, "run", "{\"x\":1}", 7);
  chat_body_result(&body, "c1", 2), TEXT(&body, "out");
  chat_body_message(&body, CHAT_ASSISTANT), chat_body_call(&body, id, "run", "{}", 2);
  chat_body_message(&body, CHAT_SYSTEM), TEXT(&body, "h");
  chat_body_message(&body, CHAT_SYSTEM), TEXT(&body, "i");
  ASSERT_EQ(chat_body_end(&body), 7);
  json_free(doc);
  expect(&out,
         "{\"messages\":[{\"role\":\"system\",\"content\":\"a\\n\\nb\"},"
         "{\"role\":\"user\",\"content\":\"c\"},"
         "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"d\"},"
         "{\"type\":\"text\",\"text\":\"\\\"e\"}]},"
         "{\"role\":\"assistant\",\"reasoning_content\":\"so\",\"content\":\"f\\ng\","
         "\"tool_calls\":[{\"id\":\"c1\",\"type\":\"function\",\"function\":{\"name\":\"run\","
         "\"arguments\":\"{\\\"x\\\":1}\"}}]},"
         "{\"role\":\"tool\",\"tool_call_id\":\"c1\",\"content\":\"out\"},"
         "{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"c1\",\"type\":\"function\","
         "\"function\":{\"name\":\"run\",\"arguments\":\"{}\"}}]},"
         "{\"role\":\"system\",\"content\":\"h\\n\\ni\"}]");
}

Test(chat_body, late_system_text_goes_to_the_user) {
  buffer_t out = {0};
  chat_body_t body;
  chat_body_begin(&body, &out, false);
  chat_body_message(&body, CHAT_USER), TEXT(&body, "a");
  chat_body_message(&body, CHAT_SYSTEM), TEXT(&body, "b");
  chat_body_message(&body, CHAT_ASSISTANT), TEXT(&body, "c");
  chat_body_message(&body, CHAT_SYSTEM), TEXT(&body, "d");
  ASSERT_EQ(chat_body_end(&body), 3);
  expect(&out, "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},"
               "{\"type\":\"text\",\"text\":\"b\"}]},{\"role\":\"assistant\",\"content\":\"c\"},"
               "{\"role\":\"user\",\"content\":\"d\"}]");
}

Test(chat_body, thoughts_without_an_answer_are_dropped) {
  buffer_t out = {0};
  chat_body_t body;
  chat_body_begin(&body, &out, true);
  chat_body_message(&body, CHAT_ASSISTANT), chat_body_reasoning(&body, "hm", 2);
  chat_body_message(&body, CHAT_USER), TEXT(&body, "");
  chat_body_message(&body, CHAT_ASSISTANT), TEXT(&body, "");
  ASSERT_EQ(chat_body_end(&body), 2);
  expect(&out, "{\"messages\":[{\"role\":\"user\",\"content\":\"\"},"
               "{\"role\":\"assistant\",\"content\":\"\"}]");
}
