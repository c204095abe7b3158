/* rig.c: one vocabulary and one matcher for the tests of grammars. */
#include "tests/engine/grammar/rig.h"

#include "engine/base/util.h"
#include "server/parser/output.h"
#include "tests/expect.h"
#include "tests/random.h"

#include <stdlib.h>
#include <string.h>

typedef struct tokens {
  char bytes[RIG_TOKENS][32];
  uint8_t length[RIG_TOKENS];
} tokens_t;

static tokens_t tokens;

uint64_t rig_random(uint64_t *state) {
  return next_random_64(state);
}

static void make_tokens(void) {
  static const char *const pieces[] = {"{\"",
                                       "\"}",
                                       "\": ",
                                       "\":\"",
                                       "\", \"",
                                       "}}",
                                       "]]",
                                       "\"]",
                                       "],",
                                       "},",
                                       "[[",
                                       "{}",
                                       "[]",
                                       "true",
                                       "false",
                                       "null",
                                       "name",
                                       "\"name\"",
                                       "\"name\": \"",
                                       "\\u",
                                       "\\n",
                                       "\\\"",
                                       "  ",
                                       "\n  ",
                                       "000",
                                       "\xC3",
                                       "\xE2\x82",
                                       "\xE2\x82\xAC",
                                       "\xF0\x9F\x98\x80",
                                       "abcdefghijklmnop",
                                       "a b c d e f g h i",
                                       "the quick brown fox jumps over"};
  /* The last ids: several characters of other scripts, the last one whole or cut. */
  static const char *const wide[] = {"\xC3\xA9\xE2\x82\xAC", "\xE2\x82\xAC\xE2\x82\xAC\xC3\xA9",
                                     "\xE2\x82\xAC\xC3\xA9\xE2\x82"};
  static const char alphabet[] = "abcdefghijklmnopqrstuvwxyz ABCDEF0123456789.-_{}[]\":,\\\n";
  uint64_t state = 3;
  for (int id = 0; id < RIG_TOKENS; id++) {
    size_t num_pieces = sizeof pieces / sizeof *pieces, length = 1 + rig_random(&state) % 7;
    if (id < 256) {
      tokens.bytes[id][0] = (char)id;
      length = 1;
    } else if ((size_t)id < 256 + num_pieces) {
      length = strlen(pieces[id - 256]);
      memcpy(tokens.bytes[id], pieces[id - 256], length);
    } else {
      /* two of three are plain words */
      size_t range = id % 3 ? 27 : sizeof alphabet - 1;
      for (size_t i = 0; i < length; i++) {
        tokens.bytes[id][i] = alphabet[rig_random(&state) % range];
      }
    }
    if (id >= RIG_TOKENS - 3) {
      const char *bytes = wide[id - (RIG_TOKENS - 3)];
      length = strlen(bytes);
      memcpy(tokens.bytes[id], bytes, length);
    }
    tokens.length[id] = (uint8_t)length;
  }
}

static const char *token_bytes(const void *context, int32_t id, size_t *length) {
  (void)context;
  *length = id < RIG_TOKENS ? tokens.length[id] : 0;
  return id < RIG_TOKENS ? tokens.bytes[id] : "";
}

rig_t *rig_new(void) {
  rig_t *rig = calloc(1, sizeof *rig);
  make_tokens();
  cr_assert_not_null(rig);
  ASSERT_EQ(grammar_vocabulary_new(token_bytes, NULL, RIG_WIDTH, RIG_WIDTH, &rig->vocabulary,
                                   &rig->error),
            0);
  rig->matcher = aligned_alloc(64, grammar_matcher_bytes());
  rig->scratch = aligned_alloc(64, grammar_scratch_bytes());
  cr_assert(rig->matcher);
  cr_assert(rig->scratch);
  memset(rig->matcher, 0xC7, grammar_matcher_bytes());
  memset(rig->scratch, 0xC7, grammar_scratch_bytes());
  return rig;
}

void rig_free(rig_t *rig) {
  grammar_unref(rig->grammar);
  grammar_vocabulary_free(rig->vocabulary);
  free(rig->matcher);
  free(rig->scratch);
  free(rig);
}

int rig_compile(rig_t *rig, const grammar_source_t *source, const grammar_limits_t *limits) {
  grammar_unref(rig->grammar);
  rig->grammar = NULL;
  rig->error = (inferd_error_t){0};
  int code = grammar_compile(source, rig->vocabulary, limits, NULL, &rig->grammar, &rig->error);
  ASSERT_EQ(code, rig->error.code);
  if (code) {
    cr_assert(rig->error.message[0]);
    ASSERT_EQ(rig->grammar, NULL);
  }
  return code;
}

static int compile_json(rig_t *rig, grammar_kind_t kind, const char *text, bool strict) {
  json_doc_t *doc;
  json_limits_t limits = {.depth_max = 128, .values_max = 1000000, .key_bytes_max = 65536};
  ASSERT_EQ_FOR(json_parse(text, strlen(text), &limits, &doc, &rig->error), 0, "%s: %s", text,
                rig->error.message);
  grammar_source_t source = {
      .kind = kind, .param = "response_format", .schema = json_root(doc), .strict = strict};
  int code = rig_compile(rig, &source, NULL);
  json_free(doc);
  return code;
}

int rig_schema(rig_t *rig, const char *schema) {
  return compile_json(rig, GRAMMAR_JSON_SCHEMA, schema, false);
}

int rig_strict(rig_t *rig, const char *schema) {
  return compile_json(rig, GRAMMAR_JSON_SCHEMA, schema, true);
}

int rig_text(rig_t *rig, grammar_kind_t kind, const char *text) {
  if (kind == GRAMMAR_CHOICE) return compile_json(rig, kind, text, false);
  grammar_source_t source = {
      .kind = kind, .param = "grammar", .text = text, .length = strlen(text)};
  return rig_compile(rig, &source, NULL);
}

void rig_start(rig_t *rig) {
  cr_assert_not_null(rig->grammar);
  ASSERT_EQ(grammar_matcher_start(rig->matcher, rig->scratch, rig->grammar, rig->vocabulary), 0);
}

bool rig_feed(rig_t *rig, const char *text, size_t length) {
  for (size_t i = 0; i < length; i++) {
    if (grammar_matcher_accept(rig->matcher, rig->scratch, (uint8_t)text[i]) != 0) return false;
  }
  return true;
}

bool rig_accepts(rig_t *rig, const char *text) {
  rig_start(rig);
  return rig_feed(rig, text, strlen(text)) && grammar_matcher_is_accepting(rig->matcher);
}

bool rig_fill(rig_t *rig) {
  int32_t stop = RIG_STOP;
  return grammar_matcher_fill(rig->matcher, rig->scratch, &stop, 1, rig->row) == 0;
}

int32_t rig_pick(const rig_t *rig, uint64_t *state) {
  uint64_t seen = 0;
  int32_t chosen = -1;
  for (int32_t id = 0; id < RIG_WIDTH; id++) {
    if (rig_allows(rig, id) && rig_random(state) % ++seen == 0) chosen = id;
  }
  return chosen;
}

void rig_check(grammar_kind_t kind, const row_t *rows, size_t count) {
  rig_t *rig = rig_new();
  for (const row_t *row = rows; row < rows + count; row++) {
    int code =
        kind == GRAMMAR_JSON_SCHEMA ? rig_schema(rig, row->text) : rig_text(rig, kind, row->text);
    ASSERT_EQ_FOR(code, 0, "%s: %s", row->text, rig->error.message);
    for (size_t k = 0; k < ARRAY_LEN(row->accepted) && row->accepted[k] != NULL; k++) {
      cr_expect(rig_accepts(rig, row->accepted[k]), "%s should accept '%s'", row->text,
                row->accepted[k]);
    }
    for (size_t k = 0; k < ARRAY_LEN(row->refused) && row->refused[k] != NULL; k++) {
      cr_expect_not(rig_accepts(rig, row->refused[k]), "%s should refuse '%s'", row->text,
                    row->refused[k]);
    }
  }
  rig_free(rig);
}

static void take(void *context, output_kind_t kind, const char *text, size_t length) {
  rig_reading_t *reading = context;
  reading->calls += kind == OUTPUT_CALL_END;
  reading->others += kind == OUTPUT_CONTENT;
  if (kind == OUTPUT_CALL_TEXT) buffer_append(&reading->arguments, text, length);
}

rig_reading_t rig_read_back(const tool_format_t *format, const char *schema, const buffer_t *text) {
  buffer_t tools = {0};
  json_doc_t *doc;
  inferd_error_t error;
  rig_reading_t reading = {0};
  output_sink_t sink = {take, &reading};
  buffer_text(&tools, "[{\"function\":{\"name\":\"f\",\"parameters\":");
  buffer_text(&tools, schema);
  buffer_text(&tools, "}}]");
  ASSERT_EQ(json_parse(tools.data, tools.length, &json_limits_request, &doc, &error), 0);
  output_options_t options = {.tools = format, .functions = json_root(doc)};
  output_parser_t *parser = output_parser_new(&options);
  output_parser_feed(parser, text->data, text->length, &sink);
  output_parser_end(parser, false, &sink);
  output_parser_free(parser);
  json_free(doc);
  buffer_free(&tools);
  return reading;
}
