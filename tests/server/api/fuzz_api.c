/* fuzz_api.c: a request's body and what the engine makes of it -> a whole answer.
 *
 * Byte 0 chooses the handler and the circumstances, byte 1 the formats of calls and reasoning; then
 * the body, a 0xFF byte, and two bytes a step: a token of some choice, its end, a turn of the loop,
 * an hour that passes, the client's departure. The last two bytes also choose which shapes of
 * conversations are mended. Covers completion_build, the tree of tools, replies
 * and streams. Every answer must be JSON, whole or event by event, and no request may stay with the
 * engine. One server for all inputs.
 */
#include "server/parser/output.h"
#include "tests/fuzz/targets.h"
#include "tests/server/api/fake.h"

#include <stdlib.h>
#include <string.h>

enum { TOPS_MAX = 512, CHOICES_MAX = 8, STEPS_MAX = 400 };
static const uint64_t HOUR_NS = 3600000000000u;
enum { MANY_LOGPROBS = 1, FILLS_IN = 2, CLOSED = 4, FULL = 8, MARKS_ARE_TOKENS = 16 };
/* Two that exclude each other are another circumstance. */
enum {
  NO_TEMPLATE = FULL | MANY_LOGPROBS,
  BROKEN_TEMPLATE = FULL | FILLS_IN,
  NO_TOOLS = FULL | CLOSED,
  LOADING = MARKS_ARE_TOKENS | FILLS_IN,
  DRAINING = MARKS_ARE_TOKENS | CLOSED,
  KEYED = MARKS_ARE_TOKENS | FILLS_IN | MANY_LOGPROBS
};

static void (*const handlers[])(exchange_t *) = {
    api_chat_completions,  api_completions, api_tokenize,  api_detokenize,
    api_load_lora,         api_unload_lora, api_responses, api_responses_input_tokens,
    api_render_completion, api_render_chat, api_messages,  api_count_tokens};
/* The bytes that are left, without circumstances. */
enum { LAST_BYTES = 252 };
static void (*const last_handlers[])(exchange_t *) = {api_ollama_chat, api_ollama_generate,
                                                      api_ollama_chat, api_ollama_show};
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
  chat_try_shapes(server.live);
  if ((server.live->rules.refused[0] & SHAPE_LATE_SYSTEM) != 0) abort(); /* the fake shows all */
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

static api_key_t *key_without_grammars(void) {
  static api_key_t *key;
  if (key != NULL) return key;
  key = api_key_new((uint8_t[KEY_DIGEST_BYTES]){1}, false);
  if (key == NULL) abort();
  api_key_set(key, "label", &(key_limits_t){.grammar_off = true}, uv_hrtime());
  return key;
}

/* What the operator has set, and how the engine does. */
static void choose_circumstances(unsigned bits) {
  static char *closed[] = {"regex", "grammar", "schema"};
  const tool_format_t *format = server.live->tool_format;
  config.max_logprobs = bits & MANY_LOGPROBS ? FAKE_VOCAB : 20;
  fake_engine.scores_bytes = bits & MANY_LOGPROBS ? 64 : 0;
  fake_template.fim = (bits & FILLS_IN) != 0;
  fake_engine.info.max_model_len = bits & FILLS_IN ? 2048 : FAKE_CONTEXT;
  fake_engine.keys_per_token = bits & FILLS_IN ? 1 : 0;
  config.disable_grammar.items = closed;
  config.disable_grammar.count = bits & CLOSED ? 3 : 0;
  fake_engine.refuse = bits & FULL ? ERR_QUEUE_FULL : 0;
  fake_engine.state = bits == LOADING ? ENGINE_LOADING : ENGINE_READY;
  server.phase = bits == DRAINING ? SERVER_DRAINING : SERVER_SERVING;
  fake_template.none = bits == NO_TEMPLATE;
  fake_template.broken = bits == BROKEN_TEMPLATE;
  fake_template.tools = bits != NO_TOOLS;
  fake_template.marks = bits & MARKS_ARE_TOKENS && format != NULL ? format->marks : NULL;
}

/* What the template takes of conversations: the last three bytes of the input, which are steps,
 * too. The fake template takes all, so that what is mended is rendered. */
static void choose_rules(const uint8_t *data, size_t size) {
  unsigned shapes = size < 3 ? 0 : data[size - 2] * 256u + data[size - 1];
  history_rules_t *rules = &server.live->rules;
  rules->refused[0] = rules->refused[1] = shapes;
  rules->ids = (call_id_form_t)(size < 3 ? 0 : data[size - 3] % 3);
}

/* ---- the engine's side ---- */

/* The best tokens of every position. */
static const token_logprob_t *best(int32_t count) {
  static token_logprob_t top[TOPS_MAX];
  if (count > TOPS_MAX) abort();
  for (int32_t i = TOPS_MAX - 1; top[1].id == 0 && i > 0; i--) {
    top[i] = (token_logprob_t){.id = i * 7 % FAKE_VOCAB, .logprob = -0.5f * (float)i};
  }
  return top;
}

static int32_t done_tokens(const request_t *request, int32_t choice) {
  return ((const input_t *)request->owner)->choices[choice].num_tokens;
}

/* One token, with the scores that the request asked for; behind the last allowed one, nothing. */
static void token(request_t *request, int32_t choice, uint8_t byte) {
  const sampling_params_t *params = &request->params;
  const input_t *input = request->owner;
  if (input->choices[choice].done || done_tokens(request, choice) >= params->max_tokens) return;
  if (params->num_logprobs < 0) {
    fake_choice_token(request, choice, byte, texts[byte % 16]);
    return;
  }
  int32_t count = params->num_logprobs + params->num_logprob_token_ids;
  fake_choice_token_logprob(request, choice, byte, texts[byte % 16], -1.5f, best(count), count);
}

/* The scores of a prompt come before its first token. */
static void prompt_scores(request_t *request) {
  int32_t count = request->params.num_prompt_logprobs;
  if (count < 0) return;
  for (int32_t i = 1; i < request->num_prompt_tokens; i++) {
    fake_prompt_logprob(request, i, -2.5f, 1, best(count), count);
  }
  fake_deliver();
}

/* Ends a choice, or the request if it has no more than one. */
static void end_choice(request_t *request, int32_t choice, uint8_t byte) {
  finish_reason_t finish = byte % 2 == 1 ? FINISH_STOP : FINISH_LENGTH;
  const input_t *input = request->owner;
  if (!params_multiple(&request->params) && byte >= 0xE0) {
    fake_done_stop(request, byte % 2 == 1 ? 7 : -1, request->stops != NULL ? 0 : -1);
  } else if (!params_multiple(&request->params)) {
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
    case 0:
      fake_run();
      if (steps[i + 1] == 0xF) completions_tick(&server, uv_hrtime() + (i + 1) * HOUR_NS);
      break;
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

/* Lines of a stream of Ollama's. */
static void check_lines(const fake_exchange_t *exchange) {
  const char *at = exchange->body, *end = at + exchange->body_length;
  while (at < end) {
    const char *line = memchr(at, '\n', (size_t)(end - at));
    if (line == NULL) abort();
    check_json(at, (size_t)(line - at));
    at = line + 1;
  }
}

static void check_answer(const fake_exchange_t *exchange, bool has_named_events, bool has_lines) {
  if (exchange->gone) return;
  if (exchange->streaming && has_lines) {
    check_lines(exchange);
    return;
  }
  if (exchange->streaming && has_named_events) {
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
  const bool last = data[0] >= LAST_BYTES;
  if (last) handle = last_handlers[data[0] - LAST_BYTES];
  const unsigned bits = last ? 0 : data[0] / (sizeof handlers / sizeof *handlers);
  choose_circumstances(bits);
  data += 2, size -= 2;
  choose_rules(data, size);
  const uint8_t *body = fuzz_part(&data, &size, 0xFF, &length);
  fake_exchange_t *exchange = fake_exchange_new((const char *)body, length);
  if (bits & FILLS_IN)
    memcpy(exchange->request_headers[0], (char[2][64]){"X-Vllm-Priority", "7"}, 128);
  exchange->public.key = bits == KEYED ? key_without_grammars() : NULL;
  handle(&exchange->public);
  fake_run();
  play(exchange, data, size);
  fake_run();
  if (fake_engine.num_requests != 0 || completions_live(&server) != 0) abort();
  check_answer(exchange, handle == api_responses || handle == api_messages, last);
  fake_exchange_free(exchange);
}
