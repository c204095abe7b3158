/* fuzz_api.c: a request's body and what the engine makes of it -> a whole answer.
 *
 * Byte 0 chooses the handler, byte 1 the formats of calls and reasoning; then the body, a 0xFF
 * byte, and one byte a step: a token of some choice, its end, a turn of the loop, the client's
 * departure. Covers completion_build, the tree of tools, replies and streams. Every answer must be
 * JSON, whole or event by event, and no request may stay with the engine. One server for all
 * inputs.
 */
#include "server/parser/output.h"
#include "tests/fuzz/targets.h"
#include "tests/server/api/fake.h"

#include <stdlib.h>
#include <string.h>

enum { TOPS_MAX = SAMPLE_TOP_MAX, CHOICES_MAX = 8, STEPS_MAX = 400 };

static void (*const handlers[])(exchange_t *) = {
    api_chat_completions,  api_completions, api_tokenize,  api_detokenize,
    api_load_lora,         api_unload_lora, api_responses, api_responses_input_tokens,
    api_render_completion, api_render_chat, api_messages};
static const char *const texts[] = {"a",
                                    " the",
                                    "",
                                    "<tool_call>\n",
                                    "{\"name\": \"f\", \"arguments\": {",
                                    "}}",
                                    "\n</tool_call>",
                                    "</think>\n\n",
                                    "\"",
                                    "\\",
                                    "\xC3\xA9",
                                    "\n",
                                    "<|channel|>final<|message|>",
                                    "[TOOL_CALLS]",
                                    "\x01",
                                    "\xF0\x9F\x98\x80"};

static void start_once(void) {
  static bool started;
  if (started) return;
  started = true;
  setenv("UV_THREADPOOL_SIZE", "1", 1);
  fake_start();
}

static void choose_formats(uint8_t byte) {
  size_t tools = 0, thoughts = 0;
  while (tool_formats[tools].name != NULL) tools++;
  while (reasoning_formats[thoughts].name != NULL) thoughts++;
  tools = byte % (tools + 1);
  thoughts = byte / 16 % (thoughts + 1);
  server.live->tool_format = tool_formats[tools].name != NULL ? &tool_formats[tools] : NULL;
  server.live->reasoning_format =
      reasoning_formats[thoughts].name != NULL ? &reasoning_formats[thoughts] : NULL;
}

/* ---- the engine's side ---- */

static void fill_top(token_logprob_t *top, int32_t count) {
  for (int32_t i = 0; i < count; i++) {
    top[i] = (token_logprob_t){.id = i * 7 % FAKE_VOCAB, .logprob = -0.5f * (float)i};
  }
}

static int32_t done_tokens(const request_t *request, int32_t choice) {
  return ((const input_t *)request->owner)->choices[choice].num_tokens;
}

/* One token, with the scores that the request asked for; behind the last allowed one, nothing. */
static void token(request_t *request, int32_t choice, uint8_t byte) {
  const sampling_params_t *params = &request->params;
  token_logprob_t top[TOPS_MAX];
  const input_t *input = request->owner;
  if (input->choices[choice].done || done_tokens(request, choice) >= params->max_tokens) return;
  if (params->num_logprobs < 0) {
    fake_choice_token(request, choice, byte, texts[byte % 16]);
    return;
  }
  int32_t count = params->num_logprobs + params->num_logprob_token_ids;
  fill_top(top, count);
  fake_choice_token_logprob(request, choice, byte, texts[byte % 16], -1.5f, top, count);
}

/* The scores of a prompt come before its first token. */
static void prompt_scores(request_t *request) {
  token_logprob_t top[TOPS_MAX];
  int32_t count = request->params.num_prompt_logprobs;
  if (count < 0) return;
  fill_top(top, count);
  for (int32_t i = 1; i < request->num_prompt_tokens; i++) {
    fake_prompt_logprob(request, i, -2.5f, 1, top, count);
  }
  fake_deliver();
}

/* Ends a choice, or the request if it has no more than one. */
static void end_choice(request_t *request, int32_t choice, uint8_t byte) {
  finish_reason_t finish = byte % 2 == 1 ? FINISH_STOP : FINISH_LENGTH;
  const input_t *input = request->owner;
  if (!params_multiple(&request->params)) {
    fake_done(request, finish, texts[byte / 2 % 16]);
  } else if (!input->choices[choice].done) {
    fake_choice_done(request, choice, finish, texts[byte / 2 % 16]);
  }
}

static void end_all(void) {
  fake_deliver();
  while (fake_engine.num_requests > 0) {
    request_t *request = fake_engine.requests[0];
    const input_t *input = request->owner;
    bool cancelled = atomic_load(&request->cancelled);
    for (int32_t i = 0; !cancelled && params_multiple(&request->params) && i < request->params.n;
         i++) {
      if (!input->choices[i].done) fake_choice_done(request, i, FINISH_LENGTH, "");
    }
    fake_done(request, cancelled ? FINISH_ABORT : FINISH_LENGTH, "");
    fake_deliver();
  }
}

/* Plays the steps; the client leaves at most once. */
static void play(fake_exchange_t *exchange, const uint8_t *steps, size_t count) {
  for (int i = 0; i < fake_engine.num_requests; i++) prompt_scores(fake_engine.requests[i]);
  for (size_t i = 0; i + 1 < count && i < STEPS_MAX && fake_engine.num_requests > 0; i += 2) {
    request_t *request = fake_engine.requests[steps[i] / 8 % fake_engine.num_requests];
    int32_t choices = params_num_choices(&request->params);
    int32_t choice = steps[i] / 8 % (choices < CHOICES_MAX ? choices : CHOICES_MAX);
    bool open = !exchange->answered && !exchange->ended && !exchange->gone;
    switch (steps[i] % 8) {
    case 0: fake_run(); break;
    case 1: end_choice(request, choice, steps[i + 1]); break;
    case 2:
      if (open && steps[i + 1] % 16 == 0) fake_exchange_gone(exchange, "client_disconnect");
      break;
    case 3:
      if (steps[i + 1] % 16 == 0) fake_fail(request, ERR_INTERNAL);
      break;
    default: token(request, choice, steps[i + 1]);
    }
    fake_deliver(); /* one event a turn, so that nothing follows the end of a request */
  }
  end_all();
}

/* ---- the answer ---- */

static void check_json(const char *text, size_t length) {
  json_doc_t *doc = NULL;
  if (json_parse(text, length, &json_limits_model, &doc, NULL) != 0) abort();
  json_free(doc);
}

/* Events of a stream of /v1/responses or /v1/messages: "event: TYPE\ndata: {...}\n\n" each. */
static void check_named_events(const fake_exchange_t *exchange) {
  const char *at = exchange->body, *end = at + exchange->body_length;
  while (at < end) {
    const char *blank = memmem(at, (size_t)(end - at), "\n\n", 2);
    if (blank == NULL) abort();
    const char *data = memmem(at, (size_t)(blank - at), "\ndata: ", 7);
    if (at[0] != ':') {
      if (data == NULL || strncmp(at, "event: ", 7) != 0) abort();
      check_json(data + 7, (size_t)(blank - data - 7));
    }
    at = blank + 2;
  }
}

/* Events of a stream: "data: {...}\n\n" each; a whole stream ends with [DONE]. */
static void check_events(const fake_exchange_t *exchange) {
  const char *at = exchange->body, *end = at + exchange->body_length;
  bool done = false;
  while (at < end) {
    const char *blank = memmem(at, (size_t)(end - at), "\n\n", 2);
    if (blank == NULL || done) abort();
    if (at[0] != ':') {
      if (strncmp(at, "data: ", 6) != 0) abort();
      at += 6;
      done = strncmp(at, "[DONE]", 6) == 0;
      if (!done) check_json(at, (size_t)(blank - at));
    }
    at = blank + 2;
  }
  if (exchange->ended && !done) abort();
}

static void check_answer(const fake_exchange_t *exchange) {
  if (exchange->gone) return;
  if (exchange->streaming && strncmp(exchange->body, "event:", 6) == 0) {
    check_named_events(exchange);
  } else if (exchange->streaming) {
    check_events(exchange);
  } else if (!exchange->answered || exchange->body == NULL) {
    abort();
  } else if (strncmp(exchange->content_type, "application/json", 16) == 0) {
    check_json(exchange->body, exchange->body_length);
  }
}

void fuzz_api(const uint8_t *data, size_t size) {
  size_t length;
  if (size < 3) return;
  start_once();
  void (*handle)(exchange_t *) = handlers[data[0] % (sizeof handlers / sizeof *handlers)];
  choose_formats(data[1]);
  data += 2, size -= 2;
  const uint8_t *body = fuzz_part(&data, &size, 0xFF, &length);
  fake_exchange_t *exchange = fake_exchange_new((const char *)body, length);
  handle(&exchange->public);
  fake_run();
  play(exchange, data, size);
  fake_run();
  if (fake_engine.num_requests != 0 || completions_live(&server) != 0) abort();
  check_answer(exchange);
  fake_exchange_free(exchange);
}
