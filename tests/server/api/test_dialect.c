/* test_dialect.c: another wire format for chats: its body, names in errors, writer, pings. */
#include "tests/expect.h"
#include "tests/server/api/fake.h"

#include "engine/base/error.h"
#include "server/completion/dialect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(dialect, .init = fake_start, .fini = fake_stop, .timeout = 60);

/* {"ask": "hi"} is a question; {"deep": N} asks for N nested arrays in a field of chat. */
static buffer_t parts;
static int freed;

static int translate(completion_t *completion, reader_t *reader, const json_t *root,
                     buffer_t *chat) {
  const json_t *ask = json_get(root, "ask"), *deep = json_get(root, "deep");
  int64_t depth = 0;
  if (ask == NULL) return error_set(reader->error, ERR_MISSING_PARAMETER, "ask", "No question.");
  char *kept = arena_copy(&completion->arena, ask->text, ask->length + 1);
  kept[ask->length] = '\0';
  completion->dialect_state = kept;
  JSON_EACH(member, root) {
    if (member != ask && member != deep &&
        fields_find(&chat_table, member->key, member->key_length) == NULL) {
      int code = field_unknown(reader, "", member->key, member->key_length);
      if (code != 0) return code;
    }
  }
  buffer_text(chat, "{\"messages\":[{\"role\":\"user\",\"content\":");
  buffer_quote(chat, ask->text, ask->length);
  buffer_text(chat, "}]");
  const json_t *stream = json_get(root, "stream"), *most = json_get(root, "max_tokens");
  if (stream != NULL) buffer_text(chat, ",\"stream\":true");
  if (most != NULL) buffer_text(chat, ",\"max_tokens\":1000000");
  if (json_int64(deep, &depth)) {
    buffer_text(chat, ",\"chat_template_kwargs\":{\"a\":");
    for (int i = 0; i < depth; i++) buffer_char(chat, '[');
    for (int i = 0; i < depth; i++) buffer_char(chat, ']');
    buffer_char(chat, '}');
  }
  buffer_char(chat, '}');
  return 0;
}

static void rename_param(const completion_t *completion, inferd_error_t *error) {
  cr_expect_str_eq(completion->dialect_state, "hi");
  if (strcmp(error->param, "messages") == 0) snprintf(error->param, sizeof error->param, "ask");
}

static bool prepare(completion_t *completion) {
  exchange_header(completion->exchange, "request-id", completion->exchange->request_id);
  return true;
}

static void take(choice_t *choice, output_kind_t kind, const char *text, size_t length) {
  static const char marks[] = "TRN{}";
  (void)choice;
  if (length == 0 && kind != OUTPUT_CALL_END) return;
  buffer_char(&parts, marks[kind]);
  buffer_append(&parts, text, length);
}

static void chunk(choice_t *choice, bool last) {
  sse_send_buffer(choice->input->completion, &parts);
  buffer_clear(&parts);
  if (last) sse_send(choice->input->completion, "L", 1);
}

static void done(completion_t *completion) {
  token_usage_t usage = completion_usage(completion);
  buffer_int(&parts, usage.prompt);
  buffer_char(&parts, '/');
  buffer_int(&parts, usage.generated);
  sse_send_buffer(completion, &parts);
  buffer_clear(&parts);
}

static void fail(completion_t *completion, const inferd_error_t *error) {
  sse_send(completion, error->message, strlen(error->message));
}

static void ping(completion_t *completion) {
  sse_send(completion, "P", 1);
}

static bool response(completion_t *completion) {
  buffer_append(&completion->reply.own, parts.data, parts.length);
  return !cord_failed(&completion->reply);
}

static size_t held(const completion_t *completion) {
  (void)completion;
  return parts.capacity;
}

static void forget(completion_t *completion) {
  (void)completion;
  buffer_free(&parts);
  freed++;
}

static const dialect_t letters = {.is_chat = true,
                                  .translate = translate,
                                  .rename = rename_param,
                                  .prepare = prepare,
                                  .take = take,
                                  .chunk = chunk,
                                  .done = done,
                                  .error = fail,
                                  .ping = ping,
                                  .response = response,
                                  .held = held,
                                  .free = forget};

static void handle(exchange_t *exchange) {
  completion_start(exchange, &letters);
}

static request_t *request_of(void) {
  return &server.live->first->inputs[0].request;
}

static void expect_error(const char *body, int code, const char *param) {
  fake_exchange_t *exchange = fake_call(handle, body);
  ASSERT_EQ_FOR(exchange->error.code, code, "%s", body);
  ASSERT_STR_EQ(exchange->error.param, param);
  fake_exchange_free(exchange);
}

Test(dialect, whole_answer) {
  fake_exchange_t *exchange = fake_call(handle, "{\"ask\":\"hi\",\"odd\":1,\"seed\":2}");
  request_t *request = request_of();
  ASSERT_EQ(request->num_prompt_tokens, 11); /* <user>hi<a> */
  fake_token(request, 'y', "y");
  fake_deliver();
  fake_token(request, 'o', "o");
  fake_done(request, FINISH_STOP, "!");
  fake_deliver();
  ASSERT_STR_EQ(exchange->body, "TyToT!");
  cr_expect(strstr(exchange->headers, "x-inferd-ignored-params: odd\n") != NULL, "%s",
            exchange->headers);
  cr_expect(strstr(exchange->headers, "request-id: test-1\n") != NULL, "%s", exchange->headers);
  fake_exchange_free(exchange);
  cr_expect(freed > 0);
}

Test(dialect, stream) {
  fake_exchange_t *exchange = fake_call(handle, "{\"ask\":\"hi\",\"stream\":1}");
  request_t *request = request_of();
  fake_token(request, 'a', "a");
  fake_deliver();
  completions_tick(&server, uv_hrtime() + (uint64_t)3600e9);
  fake_token(request, 'b', "b");
  fake_done(request, FINISH_LENGTH, "");
  fake_deliver();
  ASSERT_STR_EQ(exchange->body, "TaPTbL11/2");
  cr_expect(exchange->ended);
  fake_exchange_free(exchange);
}

Test(dialect, failure_of_a_stream) {
  fake_exchange_t *exchange = fake_call(handle, "{\"ask\":\"hi\",\"stream\":1}");
  fake_token(request_of(), 'a', "a");
  fake_deliver();
  fake_fail(request_of(), ERR_DEVICE_FAILED);
  fake_deliver();
  ASSERT_STR_EQ(exchange->body, "TaThe device has failed.");
  cr_expect(exchange->ended);
  fake_exchange_free(exchange);
}

Test(dialect, shutdown_of_a_stream) {
  static const inferd_error_t error = {.code = ERR_DRAINING, .message = "bye"};
  fake_exchange_t *exchange = fake_call(handle, "{\"ask\":\"hi\",\"stream\":1}");
  exchange->public.on_abort(&exchange->public, &error);
  ASSERT_STR_EQ(exchange->body != NULL ? exchange->body : "", ""); /* it has not begun */
  fake_token(request_of(), 'a', "a");
  fake_deliver();
  exchange->public.on_abort(&exchange->public, &error);
  ASSERT_STR_EQ(exchange->body, "Tabye");
  fake_exchange_gone(exchange, "shutdown");
  fake_finish_all();
  fake_exchange_free(exchange);
}

Test(dialect, errors_in_its_own_words) {
  expect_error("{}", ERR_MISSING_PARAMETER, "ask");
  expect_error("{\"ask\":\"hi\",\"max_tokens\":1}", ERR_CONTEXT_LENGTH, "ask");
  fake_option("strict_params", "true");
  expect_error("{\"ask\":\"hi\",\"odd\":1}", ERR_UNKNOWN_PARAMETER, "odd");
}

Test(dialect, may_nest_deeper_than_a_client) {
  fake_exchange_t *exchange = fake_call(handle, "{\"ask\":\"hi\",\"deep\":70}");
  ASSERT_STR_EQ(exchange->error.message, "");
  fake_finish_all();
  fake_exchange_free(exchange);
  expect_error("{\"ask\":\"hi\",\"deep\":90}", ERR_INVALID_JSON, "");
}

static bool describe(completion_t *completion) {
  buffer_int(&completion->reply.own, completion->inputs[0].request.num_prompt_tokens);
  buffer_char(&completion->reply.own, ' ');
  cord_bytes(&completion->reply, completion->intake->rendered.text,
             completion->intake->rendered.length);
  return true;
}

static const dialect_t counting = {
    .is_chat = true, .translate = translate, .counts = true, .describe = describe};

static void handle_counting(exchange_t *exchange) {
  completion_start(exchange, &counting);
}

Test(dialect, described_and_not_run) {
  fake_exchange_t *exchange = fake_call(handle_counting, "{\"ask\":\"hi\",\"max_tokens\":1}");
  ASSERT_STR_EQ(exchange->body, "11 <user>hi<a>");
  ASSERT_EQ(fake_engine.num_requests, 0);
  fake_exchange_free(exchange);
}

Test(dialect, described_beyond_the_context) {
  char body[400];
  snprintf(body, sizeof body, "{\"ask\":\"%0300d\"}", 7);
  fake_exchange_t *exchange = fake_call(handle_counting, body);
  cr_expect(strncmp(exchange->body, "309 <user>000", 13) == 0, "%s", exchange->body);
  fake_exchange_free(exchange);
}
