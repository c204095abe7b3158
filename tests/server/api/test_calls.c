/* test_calls.c: for every row of the formats: random calls of random tools through the grammar of a
 * forced call and through the parser, and the same with one byte changed, dropped or the end cut.
 *
 * Each call is written by a second writer (calls.h), which the grammar must allow and the parser
 * must read exactly, cut at random bytes; and drawn byte by byte from the grammar. What the parser
 * reads from that must be one call, which written again is one that the grammar allows. Where a
 * template of the family is a fixture, it prints the call too. The draw is small and the same each
 * time; `make parity` sets CALLS to the number of calls a format, and prints the table. */
#include "engine/base/utf8.h"
#include "engine/base/util.h"
#include "engine/template/template.h"
#include "server/dialect/chat_body.h"
#include "server/parser/json_scan.h"
#include "tests/expect.h"
#include "tests/random.h"
#include "tests/server/api/calls.h"
#include "tests/server/api/fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(calls, .init = fake_start, .fini = fake_stop, .timeout = 7200);

enum { DRAW = 200, CALLS_PER_TOOLS = 20, TEXT_BYTES_MAX = 1500 };

/* What came of the calls of one row. */
typedef struct counts {
  int calls, printed, drawn, exact;   /* printed: by a template */
  int misses, content, read, foreign; /* foreign: read as a call of another name */
} counts_t;

/* Arguments may hold \u0000, which a request may not. */
static json_limits_t limits(void) {
  json_limits_t any = json_limits_request;
  any.allow_nul = true;
  return any;
}

static const json_t *parse(const char *text, size_t length, json_doc_t **doc) {
  inferd_error_t error = {0};
  json_limits_t any = limits();
  int code = json_parse(text, length, &any, doc, &error);
  ASSERT_EQ_FOR(code, 0, "%s: %.*s", error.message, (int)length, text);
  return json_root(*doc);
}

/* ---- reading ---- */

typedef struct reading {
  buffer_t content, arguments; /* of the last call */
  int calls;
  bool foreign, broken; /* a call of another name; one whose arguments are no object */
} reading_t;

static void take(void *context, output_kind_t kind, const char *text, size_t length) {
  reading_t *reading = context;
  if (kind == OUTPUT_CONTENT) buffer_append(&reading->content, text, length);
  if (kind == OUTPUT_CALL_BEGIN) {
    buffer_clear(&reading->arguments);
    reading->foreign |= length != 6 || memcmp(text, "get_it", 6) != 0;
  }
  if (kind == OUTPUT_CALL_TEXT) buffer_append(&reading->arguments, text, length);
  if (kind != OUTPUT_CALL_END) return;
  json_doc_t *doc = NULL;
  inferd_error_t error;
  reading->calls++;
  json_limits_t any = limits();
  int code = json_parse(reading->arguments.data, reading->arguments.length, &any, &doc, &error);
  reading->broken |= code != 0 || json_root(doc)->type != JSON_OBJECT;
  json_free(doc);
}

/* Feeds the text in pieces that end at random bytes. */
static reading_t read_text(const tool_format_t *format, const json_t *tools, const buffer_t *text,
                           uint64_t *state) {
  reading_t reading = {0};
  output_sink_t sink = {take, &reading};
  output_options_t options = {.tools = format, .functions = tools, .whole = true};
  if (format->payload == PAYLOAD_CHANNELS) options.reasoning = reasoning_format_find("harmony");
  const reasoning_format_t *framed = reasoning_format_find(format->name);
  if (framed != NULL && framed->text_open != NULL) { /* a template prints the frame, too */
    options.reasoning = framed;
    options.in_reasoning = text->length > strlen(framed->close) &&
                           memcmp(text->data, framed->close, strlen(framed->close)) == 0;
  }
  output_parser_t *parser = output_parser_new(&options);
  for (size_t at = 0, size; at < text->length; at += size) {
    size = 1 + next_random_64(state) % 24;
    if (size > text->length - at) size = text->length - at;
    output_parser_feed(parser, text->data + at, size, &sink);
  }
  output_parser_end(parser, false, &sink);
  cr_assert(!output_parser_failed(parser));
  output_parser_free(parser);
  return reading;
}

static void reading_free(reading_t *reading) {
  buffer_free(&reading->content);
  buffer_free(&reading->arguments);
}

static bool is_blank(const buffer_t *text) {
  for (size_t i = 0; i < text->length; i++) {
    if (!json_is_blank(text->data[i])) return false;
  }
  return true;
}

/* The parser must read one call with exactly these arguments, and no content. */
static void expect_exact(const tool_format_t *format, const json_t *tools, const buffer_t *text,
                         const json_t *arguments, uint64_t *state) {
  reading_t reading = read_text(format, tools, text, state);
  buffer_t want = {0}, got = {0};
  json_print(&want, arguments);
  cr_assert(reading.calls == 1 && !reading.foreign && !reading.broken && is_blank(&reading.content),
            "%s: %.*s: %d calls, content %.*s", format->name, (int)text->length, text->data,
            reading.calls, (int)reading.content.length,
            reading.content.length > 0 ? reading.content.data : "");
  json_doc_t *doc;
  json_print(&got, parse(reading.arguments.data, reading.arguments.length, &doc));
  cr_assert(got.length == want.length && memcmp(got.data, want.data, got.length) == 0,
            "%s: %.*s: %.*s is not %.*s", format->name, (int)text->length, text->data,
            (int)got.length, got.data, (int)want.length, want.data);
  json_free(doc);
  buffer_free(&want);
  buffer_free(&got);
  reading_free(&reading);
}

/* ---- the grammar ---- */

typedef struct walker {
  const tool_format_t *format;
  const struct grammar_vocabulary *vocabulary;
  const grammar_t *grammar;
  grammar_matcher_t *matcher;
  grammar_scratch_t *scratch;
  bool has_tokens; /* marks are tokens */
} walker_t;

static walker_t walker_new(void) {
  walker_t walker = {.vocabulary = engine_grammar_vocabulary(server.engine)};
  walker.matcher = aligned_alloc(64, grammar_matcher_bytes());
  walker.scratch = aligned_alloc(64, grammar_scratch_bytes());
  memset(walker.matcher, 0, grammar_matcher_bytes());
  memset(walker.scratch, 0, grammar_scratch_bytes());
  return walker;
}

static bool step(walker_t *walker, int32_t id) {
  return grammar_matcher_accept(walker->matcher, walker->scratch, id) == 0;
}

static void start(walker_t *walker) {
  ASSERT_EQ(
      grammar_matcher_start(walker->matcher, walker->scratch, walker->grammar, walker->vocabulary),
      0);
}

/* Returns the mark that the text begins with, -1 = none. */
static int mark_at(const walker_t *walker, const char *text, size_t length) {
  int found = -1;
  size_t best = 0;
  for (int i = 0; walker->has_tokens && walker->format->marks[i] != NULL; i++) {
    size_t size = strlen(walker->format->marks[i]);
    if (size > length || size < best || memcmp(text, walker->format->marks[i], size) != 0) continue;
    best = size;
    found = i;
  }
  return found;
}

/* Goes on from byte `at`. A mark is a token, or bytes of a text that begins like markup. */
static bool allows_rest(walker_t *walker, const buffer_t *text, size_t at) {
  for (; at < text->length; at++) {
    int mark = mark_at(walker, text->data + at, text->length - at);
    if (mark >= 0) {
      grammar_matcher_t *place = aligned_alloc(64, grammar_matcher_bytes());
      grammar_matcher_copy(place, walker->matcher);
      bool fits = step(walker, FAKE_MARKS + mark) &&
                  allows_rest(walker, text, at + strlen(walker->format->marks[mark]));
      grammar_matcher_copy(walker->matcher, place);
      free(place);
      if (fits) return true;
    }
    if (!step(walker, (uint8_t)text->data[at])) return false;
  }
  return grammar_matcher_is_accepting(walker->matcher);
}

/* Tells whether the grammar allows the text, whose marks are tokens where they are tokens. */
static bool allows(walker_t *walker, const buffer_t *text) {
  start(walker);
  return allows_rest(walker, text, 0);
}

static bool allowed(const uint32_t *row, int32_t id) {
  return row[id / 32] >> (id % 32) & 1;
}

/* Takes the bytes of a text as far as they are allowed. */
static void take_script(walker_t *walker, const char *script, buffer_t *text) {
  for (; *script != '\0' && step(walker, (uint8_t)*script); script++) buffer_char(text, *script);
}

/* Takes a random byte or mark of those that the grammar allows. */
static void take_any(walker_t *walker, const uint32_t *row, uint64_t *state, buffer_t *text) {
  int32_t chosen = -1;
  uint64_t seen = 0;
  for (int32_t id = 0; id < FAKE_MARKS + FAKE_MARKS_MAX; id++) {
    if ((id >= 256 && id < FAKE_MARKS) || !allowed(row, id)) continue;
    uint64_t weight = id >= FAKE_MARKS ? 20 : 1;
    seen += weight;
    if (next_random_64(state) % seen < weight) chosen = id;
  }
  cr_assert(chosen >= 0, "%s: only text tokens behind %.*s", walker->format->name,
            (int)text->length, text->data);
  cr_assert(step(walker, chosen));
  if (chosen >= FAKE_MARKS) buffer_text(text, walker->format->marks[chosen - FAKE_MARKS]);
  if (chosen < FAKE_MARKS) buffer_char(text, (char)chosen);
}

/* Draws a text of one call. It often takes what ends a value or a call, which chance would not hit
 * upon. Returns false if it has become too long. */
static bool draw(walker_t *walker, uint64_t *state, buffer_t *text) {
  const tool_format_t *format = walker->format;
  const tag_words_t *tags = format->tags;
  const char *const scripts[] = {tags != NULL ? tags->end_value : "\"",
                                 tags != NULL ? tags->end_call : "}",
                                 tags != NULL ? tags->begin_key : ")",
                                 tags != NULL ? tags->begin_key : "<|\"|>",
                                 "<escape>",
                                 "\n",
                                 "]",
                                 format->end_call};
  uint32_t row[(FAKE_VOCAB + 31) / 32];
  start(walker);
  while (!grammar_matcher_is_accepting(walker->matcher)) {
    if (text->length > TEXT_BYTES_MAX) return false;
    ASSERT_EQ(grammar_matcher_fill(walker->matcher, walker->scratch, NULL, 0, row), 0);
    if (next_random_64(state) % 3 == 0) {
      take_script(walker, scripts[next_random_64(state) % ARRAY_LEN(scripts)], text);
    } else {
      take_any(walker, row, state, text);
    }
  }
  return true;
}

/* ---- templates ---- */

/* A template of the family; NULL = none is a fixture. */
typedef struct printer {
  jinja_t *jinja;
} printer_t;

static printer_t printer_of(const tool_format_t *format) {
  static const char *const files[][2] = {{"deepseek_v31", "calls/deepseek_v31"},
                                         {"glm45", "calls/glm45"},
                                         {"kimi_k2", "calls/kimi_k2"},
                                         {"kimi_k3", "calls/kimi_k3"},
                                         {"minimax_m3", "calls/minimax_m3"},
                                         {"minimax_m2", "calls/minimax_m2"},
                                         {"olmo3", "calls/olmo3"},
                                         {"hermes", "templates/qwen25"},
                                         {"qwen3_coder", "templates/qwen3_coder"}};
  printer_t printer = {0};
  for (size_t i = 0; i < ARRAY_LEN(files); i++) {
    char path[128];
    static char source[1 << 16];
    inferd_error_t error = {0};
    if (strcmp(files[i][0], format->name) != 0) continue;
    snprintf(path, sizeof path, "tests/fixtures/%s.jinja", files[i][1]);
    FILE *file = fopen(path, "r");
    cr_assert_not_null(file, "%s", path);
    size_t length = fread(source, 1, sizeof source, file);
    fclose(file);
    ASSERT_EQ_FOR(jinja_compile(path, source, length, &printer.jinja, &error), 0, "%s",
                  error.message);
  }
  return printer;
}

/* Renders a user's turn and, with arguments, the answer that is a call. */
static jinja_output_t render(const printer_t *printer, const json_t *tools, const buffer_t *call) {
  buffer_t messages = {0};
  json_doc_t *doc;
  inferd_error_t error = {0};
  jinja_output_t out;
  buffer_text(&messages, "[{\"role\":\"user\",\"content\":\"hi\"}");
  if (call != NULL) {
    buffer_text(&messages, ",{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":"
                           "\"functions.get_it:0\",\"type\":\"function\",\"function\":{\"name\":"
                           "\"get_it\",\"arguments\":");
    buffer_append(&messages, call->data, call->length);
    buffer_text(&messages, "}}]}");
  }
  buffer_char(&messages, ']');
  jinja_variable_t variables[] = {
      {.name = "messages", .kind = JINJA_JSON, .json = parse(messages.data, messages.length, &doc)},
      {.name = "tools", .kind = JINJA_JSON, .json = tools},
      {.name = "add_generation_prompt", .kind = JINJA_FLAG, .flag = call == NULL}};
  jinja_input_t input = {.variables = variables,
                         .num_variables = ARRAY_LEN(variables),
                         .limits = jinja_limits_default};
  ASSERT_EQ_FOR(jinja_render(printer->jinja, &input, &out, &error), 0, "%s", error.message);
  json_free(doc);
  buffer_free(&messages);
  return out;
}

/* The call as the template prints it, behind what it prints before an answer and without the mark
 * that ends one. */
static buffer_t print_call(const printer_t *printer, const json_t *tools, const buffer_t *call) {
  static const char *const ends[] = {"<|end|>", "<|im_end|>\n", "<|im_end|>",
                                     "<|close|>message<|sep|><|end_of_msg|>", "[e~[\n"};
  jinja_output_t before = render(printer, tools, NULL), after = render(printer, tools, call);
  buffer_t text = {0};
  size_t skip = before.length;
  cr_assert(after.length > skip && memcmp(after.text, before.text, skip) == 0, "%s", after.text);
  for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
    size_t length = strlen(ends[i]);
    bool fits = after.length > length;
    if (fits && memcmp(after.text + after.length - length, ends[i], length) == 0)
      after.length -= length;
  }
  buffer_append(&text, after.text + skip, after.length - skip);
  jinja_output_free(&before);
  jinja_output_free(&after);
  return text;
}

/* ---- one call ---- */

/* Changes or drops one byte, or cuts the text, so that it stays UTF-8. */
static buffer_t spoil(const buffer_t *text, uint64_t *state) {
  static const char bytes[] = "ax1\"'{}[]()<>|/=:, \n_";
  buffer_t out = {0};
  size_t at;
  do at = next_random_64(state) % text->length;
  while ((uint8_t)text->data[at] >= 0x80);
  uint64_t how = next_random_64(state) % 3;
  buffer_append(&out, text->data, at);
  if (how == 2) return out;
  if (how == 1) {
    char byte = text->data[at];
    while (byte == text->data[at]) byte = bytes[next_random_64(state) % (sizeof bytes - 1)];
    buffer_char(&out, byte);
  }
  buffer_append(&out, text->data + at + 1, text->length - at - 1);
  return out;
}

/* A text that is nearly a call is content as a whole, or has a whole call. */
static void check_miss(const tool_format_t *format, const json_t *tools, const buffer_t *text,
                       uint64_t *state, counts_t *counts) {
  buffer_t near = spoil(text, state);
  reading_t reading = read_text(format, tools, &near, state);
  counts->misses++;
  if (reading.calls > 0) {
    counts->read++;
    counts->foreign += reading.foreign;
    cr_assert(!reading.broken, "%s: %.*s: %.*s", format->name, (int)near.length, near.data,
              (int)reading.arguments.length, reading.arguments.data);
  } else {
    counts->content++;
    bool same = reading.content.length == near.length &&
                (near.length == 0 || memcmp(reading.content.data, near.data, near.length) == 0);
    cr_assert(same || format->payload == PAYLOAD_CHANNELS, "%s: %.*s: %.*s", format->name,
              (int)near.length, near.data, (int)reading.content.length, reading.content.data);
  }
  reading_free(&reading);
  buffer_free(&near);
}

/* A text that the grammar writes is one call, of arguments that the grammar writes. */
static void check_drawn(walker_t *walker, const json_t *tools, uint64_t *state, counts_t *counts) {
  buffer_t text = {0}, again = {0};
  json_doc_t *doc;
  if (draw(walker, state, &text)) {
    reading_t reading = read_text(walker->format, tools, &text, state);
    cr_assert(
        reading.calls == 1 && !reading.foreign && !reading.broken && is_blank(&reading.content),
        "%s: %d calls: %.*s", walker->format->name, reading.calls, (int)text.length, text.data);
    const json_t *arguments = parse(reading.arguments.data, reading.arguments.length, &doc);
    calls_write(&again, walker->format, &arguments, 1);
    cr_assert(allows(walker, &again), "%s: %.*s -> %.*s", walker->format->name, (int)text.length,
              text.data, (int)again.length, again.data);
    expect_exact(walker->format, tools, &again, arguments, state);
    json_free(doc);
    reading_free(&reading);
    counts->drawn++;
    counts->exact++;
  }
  buffer_free(&text);
  buffer_free(&again);
}

static void check_call(walker_t *walker, const drawn_tools_t *drawn, const json_t *tools,
                       const printer_t *printer, uint64_t *state, counts_t *counts) {
  const tool_format_t *format = walker->format;
  buffer_t call = {0}, text = {0};
  json_doc_t *doc;
  calls_draw_arguments(state, drawn, format, &call);
  const json_t *arguments = parse(call.data, call.length, &doc);
  calls_write(&text, format, &arguments, 1);
  cr_assert(allows(walker, &text), "%s: %s: %.*s", format->name, drawn->text.data, (int)text.length,
            text.data);
  expect_exact(format, tools, &text, arguments, state);
  counts->calls++;
  counts->exact++;
  if (printer->jinja != NULL) {
    buffer_t printed = print_call(printer, tools, &call);
    expect_exact(format, tools, &printed, arguments, state);
    buffer_free(&printed);
    counts->printed++;
  }
  check_miss(format, tools, &text, state, counts);
  check_drawn(walker, tools, state, counts);
  json_free(doc);
  buffer_free(&call);
  buffer_free(&text);
}

/* ---- rows ---- */

static fake_exchange_t *force(const drawn_tools_t *drawn) {
  buffer_t body = {0};
  buffer_text(&body, "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"tool_choice\":"
                     "\"required\",\"parallel_tool_calls\":false,\"tools\":");
  buffer_append(&body, drawn->text.data, drawn->text.length);
  buffer_text(&body, "}");
  buffer_char(&body, '\0');
  fake_exchange_t *exchange = fake_call(api_chat_completions, body.data);
  cr_assert(!exchange->answered, "%s: %s", body.data, exchange->body);
  buffer_free(&body);
  return exchange;
}

static counts_t check_format(walker_t *walker, int count, uint64_t *state) {
  counts_t counts = {0};
  drawn_tools_t drawn = {0};
  printer_t printer = printer_of(walker->format);
  server.live->tool_format = walker->format;
  while (counts.calls < count) {
    json_doc_t *doc;
    calls_draw_tools(state, &drawn);
    const json_t *tools = parse(drawn.text.data, drawn.text.length, &doc);
    walker->has_tokens = walker->format->marks != NULL && next_random_64(state) % 2 == 0;
    fake_template.marks = walker->has_tokens ? walker->format->marks : NULL;
    fake_exchange_t *exchange = force(&drawn);
    walker->grammar = fake_engine.requests[0]->grammar;
    for (int i = 0; i < CALLS_PER_TOOLS; i++)
      check_call(walker, &drawn, tools, &printer, state, &counts);
    fake_finish_all();
    fake_exchange_free(exchange);
    json_free(doc);
  }
  buffer_free(&drawn.text);
  jinja_free(printer.jinja);
  return counts;
}

Test(calls, every_format_reads_what_is_forced) {
  const char *wanted = getenv("CALLS");
  int count = wanted != NULL ? atoi(wanted) : DRAW;
  const char *seed = getenv("SEED"); /* of a run that failed */
  uint64_t state = wanted != NULL ? (uint64_t)time(NULL) : 1;
  if (seed != NULL) state = strtoull(seed, NULL, 10);
  if (wanted != NULL)
    printf("seed %llu\n| format | calls written | printed by a template | drawn from the grammar | "
           "read exactly | near misses | kept as content | still a call | of another name |\n"
           "| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n",
           (unsigned long long)state);
  walker_t walker = walker_new();
  for (const tool_format_t *format = tool_formats; format->name != NULL; format++) {
    walker.format = format;
    server.live->reasoning_format = NULL;
    if (format->payload == PAYLOAD_CHANNELS)
      server.live->reasoning_format = reasoning_format_find("harmony");
    counts_t counts = check_format(&walker, count, &state);
    ASSERT_GE_FOR(counts.drawn, counts.calls / 2, "%s", format->name);
    ASSERT_EQ_FOR(counts.exact, counts.calls + counts.drawn, "%s", format->name);
    ASSERT_EQ_FOR(counts.misses, counts.calls, "%s", format->name);
    if (wanted != NULL)
      printf("| %s | %d | %d | %d | %d | %d | %d | %d | %d |\n", format->name, counts.calls,
             counts.printed, counts.drawn, counts.exact, counts.misses, counts.content, counts.read,
             counts.foreign);
    fflush(stdout);
  }
  free(walker.matcher);
  free(walker.scratch);
}
