/* story.c: what story.h says. */
#include "tests/server/parser/story.h"

#include "engine/base/util.h"
#include "server/parser/literal_call.h"
#include "tests/expect.h"

#include <stdlib.h>
#include <string.h>

void story_take(void *context, output_kind_t kind, const char *text, size_t length) {
  story_t *story = context;
  static const char *const begins[] = {"C(", "R(", "", "T(", "", ""};
  bool goes_on = story->open && kind == story->last && kind <= OUTPUT_REASONING;
  cr_assert(length > 0 || kind == OUTPUT_CALL_END, "an empty part");
  if (kind == OUTPUT_CALL_TEXT) {
    cr_assert(story->last == OUTPUT_CALL_BEGIN || story->last == OUTPUT_CALL_TEXT);
  } else if (!goes_on && story->open) {
    if (kind == OUTPUT_CALL_END) ASSERT_NE(story->last, OUTPUT_CONTENT);
    buffer_char(&story->text, ')');
    story->open = false;
  }
  if (kind == OUTPUT_CALL_ID) {
    buffer_char(&story->text, '#');
    buffer_append(&story->text, text, length);
  }
  if (kind == OUTPUT_CALL_END || kind == OUTPUT_CALL_ID) {
    story->last = kind;
    return;
  }
  if (!goes_on) buffer_text(&story->text, begins[kind]);
  buffer_append(&story->text, text, length);
  if (kind == OUTPUT_CALL_BEGIN) buffer_char(&story->text, '|');
  story->open = true;
  story->last = kind;
}

char *story_tell(const output_options_t *options, const char *text, size_t length,
                 const size_t *cuts, size_t num_cuts) {
  story_t story = {.last = OUTPUT_CALL_END};
  output_sink_t sink = {story_take, &story};
  output_parser_t *parser = output_parser_new(options);
  cr_assert(parser != NULL);
  size_t at = 0;
  for (size_t i = 0; i <= num_cuts; i++) {
    size_t end = i < num_cuts ? cuts[i] : length;
    output_parser_feed(parser, text + at, end - at, &sink);
    at = end;
  }
  output_parser_end(parser, false, &sink);
  cr_assert(!output_parser_failed(parser));
  output_parser_free(parser);
  if (story.open) buffer_char(&story.text, ')');
  return buffer_detach(&story.text, &length);
}

void story_expect(const output_options_t *options, const char *text, size_t length,
                  const char *expected) {
  size_t *cuts = calloc(length + 1, sizeof *cuts);
  char *told;
  for (size_t one = 0; one <= length; one++) {
    cuts[0] = one;
    told = story_tell(options, text, length, cuts, 1);
    ASSERT_STR_EQ_FOR(told, expected, "cut at %zu of: %s: %s", one, text, told);
    free(told);
  }
  for (size_t i = 0; i < length; i++) cuts[i] = i + 1;
  told = story_tell(options, text, length, cuts, length);
  ASSERT_STR_EQ_FOR(told, expected, "byte by byte: %s", text);
  free(told);
  free(cuts);
}

size_t story_num_formats(void) {
  size_t count = 0;
  while (tool_formats[count].name != NULL) count++;
  return count;
}

static void write_arguments(buffer_t *text, const tool_format_t *format) {
  const tag_words_t *tags = format->tags;
  if (format->payload == PAYLOAD_TAGS) {
    const char *const parts[] = {tags->begin_key,
                                 "city",
                                 tags->begin_type != NULL ? tags->begin_type : "",
                                 tags->begin_type != NULL ? "string" : "",
                                 tags->end_text_key != NULL ? tags->end_text_key : tags->end_key,
                                 tags->before_value,
                                 tags->around_value,
                                 "Z\xc3\xbcrich",
                                 tags->around_value,
                                 tags->mark != NULL ? tags->mark : tags->end_value,
                                 tags->mark != NULL ? "</city>" : "",
                                 tags->behind_value,
                                 tags->end_call};
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) buffer_text(text, parts[i]);
  } else if (format->payload == PAYLOAD_LITERALS) {
    const char equals[] = {format->literals->assign, '\0'};
    const char close[] = {format->literals->close, '\0'};
    const char *const parts[] = {"city", equals, "\"Z\xc3\xbcrich\"", close};
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) buffer_text(text, parts[i]);
  } else {
    buffer_text(text, "{\"city\": \"Z\xc3\xbcrich\"}");
  }
}

void story_write_call(buffer_t *text, const tool_format_t *format, const char *name,
                      const char *number) {
  buffer_text(text, format->begin_name);
  buffer_text(text, name);
  if (format->names_are_ids) buffer_char(text, ':');
  if (format->number != NULL) buffer_text(text, format->number);
  if (format->names_are_ids || format->number != NULL) buffer_text(text, number);
  buffer_text(text, format->end_name);
  write_arguments(text, format);
  buffer_text(text, format->end_call);
}
