/* fuzz_parser.c: what a model writes -> thoughts, content and tool calls.
 *
 * Two bytes choose the formats and the options, the third where the text is cut; the rest is the
 * text. Where the pieces end must change nothing, and parts must come in their order.
 */
#include "engine/base/buffer.h"
#include "server/parser/json_scan.h"
#include "server/parser/output.h"
#include "tests/fuzz/targets.h"

#include <stdlib.h>
#include <string.h>

/* What came out; pieces of one part are joined. */
typedef struct story {
  buffer_t text;
  buffer_t arguments; /* of calls in tags, which are JSON however the text breaks off */
  bool in_tags;
  output_kind_t last;
} story_t;

/* Parameters of every type. */
static const char functions_text[] =
    "[{\"function\":{\"name\":\"f\",\"parameters\":{\"properties\":{\"s\":{\"type\":\"string\"},"
    "\"i\":{\"type\":\"integer\"},\"n\":{\"type\":[\"number\",\"null\"]},\"o\":{\"type\":"
    "\"object\"},"
    "\"b\":{\"type\":[\"boolean\",\"string\"]},\"m\":{\"type\":[\"string\",\"array\"]}},"
    "\"additionalProperties\":{\"type\":[\"array\",\"object\"]}}}}]";
static json_doc_t *functions;

static void check_arguments(story_t *story) {
  json_scan_t scan = {0};
  const buffer_t *text = &story->arguments;
  if (text->length == 0 || text->data[0] != '{') abort();
  for (size_t i = 0; i < text->length; i++) json_scan_byte(&scan, text->data[i]);
  if (scan.state != SCAN_DONE) abort();
}

static void take(void *context, output_kind_t kind, const char *text, size_t length) {
  story_t *story = context;
  bool in_call = story->last == OUTPUT_CALL_BEGIN || story->last == OUTPUT_CALL_TEXT;
  if (in_call != (kind == OUTPUT_CALL_TEXT || kind == OUTPUT_CALL_END)) abort();
  if (story->last == OUTPUT_CALL_ID && kind != OUTPUT_CALL_BEGIN) abort();
  if (length == 0 && kind != OUTPUT_CALL_END) abort();
  if (kind != story->last || kind == OUTPUT_CALL_END) {
    buffer_char(&story->text, '\xFF');
    buffer_char(&story->text, (char)('0' + kind));
  }
  buffer_append(&story->text, text, length);
  if (kind == OUTPUT_CALL_TEXT) buffer_append(&story->arguments, text, length);
  if (kind == OUTPUT_CALL_END && story->in_tags) check_arguments(story);
  if (kind == OUTPUT_CALL_END) buffer_clear(&story->arguments);
  story->last = kind;
}

static uint64_t next(uint64_t *state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return *state >> 33;
}

/* pieces: 0 = whole, 1 = byte by byte, others seed the cuts. */
static void tell(const output_options_t *options, const char *text, size_t length, uint64_t pieces,
                 story_t *story) {
  output_sink_t sink = {take, story};
  output_parser_t *parser = output_parser_new(options);
  if (parser == NULL) abort();
  story->in_tags = options->tools != NULL && options->tools->payload == PAYLOAD_TAGS &&
                   (options->reasoning == NULL || options->reasoning->answer == NULL);
  for (size_t at = 0; at < length;) {
    size_t size = pieces == 0 ? length : pieces == 1 ? 1 : 1 + next(&pieces) % 16;
    if (size > length - at) size = length - at;
    output_parser_feed(parser, text + at, size, &sink);
    at += size;
  }
  output_parser_end(parser, false, &sink);
  if (output_parser_failed(parser)) abort();
  output_parser_free(parser);
  buffer_free(&story->arguments);
  if (story->last == OUTPUT_CALL_BEGIN || story->last == OUTPUT_CALL_TEXT) abort();
}

void fuzz_parser(const uint8_t *data, size_t size) {
  size_t tools = 0, thoughts = 0;
  if (size < 3) return;
  while (tool_formats[tools].name != NULL) tools++;
  while (reasoning_formats[thoughts].name != NULL) thoughts++;
  size_t length = sizeof functions_text - 1;
  if (functions == NULL &&
      json_parse(functions_text, length, &json_limits_request, &functions, NULL) != 0)
    abort();
  tools = data[0] % (tools + 1);
  thoughts = data[1] % (thoughts + 1);
  output_options_t options = {
      .tools = tool_formats[tools].name != NULL ? &tool_formats[tools] : NULL,
      .reasoning = reasoning_formats[thoughts].name != NULL ? &reasoning_formats[thoughts] : NULL,
      .functions = json_root(functions),
      .in_reasoning = (data[1] & 0x80) != 0,
      .one_call = (data[0] & 0x80) != 0};
  story_t whole = {.last = OUTPUT_CALL_END};
  tell(&options, (const char *)data + 3, size - 3, 0, &whole);
  for (uint64_t pieces = 1; pieces <= 2; pieces++) {
    story_t cut = {.last = OUTPUT_CALL_END};
    tell(&options, (const char *)data + 3, size - 3, pieces == 1 ? 1 : 2u + data[2], &cut);
    if (cut.text.length != whole.text.length ||
        (cut.text.length > 0 && memcmp(cut.text.data, whole.text.data, cut.text.length) != 0))
      abort();
    buffer_free(&cut.text);
  }
  buffer_free(&whole.text);
}
