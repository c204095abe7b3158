/* trial.c: what trial.h says. */
#include "server/parser/trial.h"

#include "engine/base/buffer.h"
#include "engine/base/util.h"
#include "server/parser/json_scan.h"

#include <string.h>

typedef struct trial_reading {
  const trial_call_t *calls;
  int num_calls, num_read; /* calls that have ended */
  buffer_t arguments;
  bool to_the_end, differs;
} trial_reading_t;

static bool same(const json_t *left, const json_t *right);

static bool same_members(const json_t *left, const json_t *right) {
  JSON_EACH(member, left) {
    const json_t *other = json_member(right, member->key, member->key_length);
    if (other == NULL || !same(member, other)) return false;
  }
  return true;
}

/* Depth: that of the caller's own arguments, which `right` is. */
static bool same(const json_t *left, const json_t *right) {
  if (left->type != right->type || left->count != right->count) return false;
  if (left->type == JSON_OBJECT) return same_members(right, left);
  if (left->type == JSON_ARRAY) {
    const json_t *other = json_first(right);
    JSON_EACH(item, left) {
      if (!same(item, other)) return false;
      other = json_next(other);
    }
    return true;
  }
  bool text = left->type == JSON_STRING || left->type == JSON_NUMBER;
  if (!text) return true;
  return left->length == right->length && memcmp(left->text, right->text, left->length) == 0;
}

static bool same_json(const char *text, size_t length, const char *expected) {
  json_doc_t *left = NULL, *right = NULL;
  size_t wanted = strlen(expected);
  bool equal = json_parse(text, length, &json_limits_request, &left, NULL) == 0 &&
               json_parse(expected, wanted, &json_limits_request, &right, NULL) == 0 &&
               same(json_root(left), json_root(right));
  json_free(left);
  json_free(right);
  return equal;
}

static void take(void *context, output_kind_t kind, const char *text, size_t length) {
  trial_reading_t *reading = context;
  bool behind = reading->num_read == reading->num_calls;
  if (reading->differs || (behind && !reading->to_the_end)) return;
  switch (kind) {
  case OUTPUT_REASONING:
  case OUTPUT_CALL_ID: break;
  case OUTPUT_CONTENT:
    for (size_t i = 0; i < length; i++) reading->differs |= !json_is_blank(text[i]);
    break;
  case OUTPUT_CALL_BEGIN:
    buffer_clear(&reading->arguments);
    reading->differs = behind || strlen(reading->calls[reading->num_read].name) != length ||
                       memcmp(reading->calls[reading->num_read].name, text, length) != 0;
    break;
  case OUTPUT_CALL_TEXT: buffer_append(&reading->arguments, text, length); break;
  case OUTPUT_CALL_END:
    reading->differs = behind || reading->arguments.failed ||
                       !same_json(reading->arguments.data, reading->arguments.length,
                                  reading->calls[reading->num_read].arguments);
    reading->num_read++;
    break;
  }
}

bool trial_reads(const output_options_t *options, const char *text, size_t length,
                 const trial_call_t *calls, int num_calls, bool to_the_end) {
  trial_reading_t reading = {.calls = calls, .num_calls = num_calls, .to_the_end = to_the_end};
  output_sink_t sink = {take, &reading};
  output_parser_t *parser = output_parser_new(options);
  if (parser == NULL) return false;
  output_parser_feed(parser, text, length, &sink);
  output_parser_end(parser, false, &sink);
  bool fine = !output_parser_failed(parser) && !reading.differs && reading.num_read == num_calls;
  output_parser_free(parser);
  buffer_free(&reading.arguments);
  return fine;
}

const tool_format_t *trial_format_by_signs(const char *text, size_t length) {
  const tool_format_t *found = NULL;
  for (const tool_format_t *format = tool_formats; format->name != NULL; format++) {
    bool has = false;
    for (size_t i = 0; i < ARRAY_LEN(format->signs); i++) {
      const char *sign = format->signs[i];
      has |= sign != NULL && memmem(text, length, sign, strlen(sign)) != NULL;
    }
    if (has && found != NULL) return NULL;
    if (has) found = format;
  }
  return found;
}
