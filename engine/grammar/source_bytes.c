/* source_bytes.c: a constraint -> bytes, and the grammar of such bytes: for journals (--journal).
 *
 * The bytes are the tree of the source in preorder; schemas are JSON text, words of calls their
 * strings. Any thread.
 */
#include "engine/grammar/source_bytes.h"

#include "engine/base/bytes.h"
#include "engine/base/json_schema.h"
#include "engine/grammar/mask/vocabulary.h"
#include "engine/grammar/program.h"

#include <stdlib.h>
#include <string.h>

enum { DEPTH_MAX = 100, DOCS_MAX = 4096, TAG_STRINGS = sizeof(tag_words_t) / sizeof(char *) };
enum {
  IS_STRICT = 1,
  KNOWN_ONLY = 2,
  OBJECT_ONLY = 4,
  HAS_SCHEMA = 8,
  HAS_TAGS = 16,
  HAS_LITERALS = 32,
  HAS_TEXT = 64
};
_Static_assert(sizeof(tag_words_t) % sizeof(char *) == 0, "words are strings alone");

/* ---- writing ---- */

static void put_string(byte_sink_t *sink, const char *text) {
  put_byte(sink, text != NULL);
  if (text != NULL) put_text(sink, text, strlen(text));
}

static void put_schema(byte_sink_t *sink, const json_t *schema) {
  buffer_t text = {0};
  json_print(&text, schema);
  put_text(sink, text.data, text.length);
  if (text.failed) ((buffer_t *)sink->context)->failed = true;
  buffer_free(&text);
}

static bool put_source(byte_sink_t *sink, const grammar_source_t *source, int depth) {
  if (source->place != NULL || depth > DEPTH_MAX) return false;
  unsigned flags =
      (source->strict ? IS_STRICT : 0) | (source->known_only ? KNOWN_ONLY : 0) |
      (source->object_only ? OBJECT_ONLY : 0) | (source->schema != NULL ? HAS_SCHEMA : 0) |
      (source->tags != NULL ? HAS_TAGS : 0) | (source->literals != NULL ? HAS_LITERALS : 0) |
      (source->text != NULL ? HAS_TEXT : 0);
  put_uint(sink, source->kind);
  put_uint(sink, flags);
  put_text(sink, source->text, source->text != NULL ? source->length : 0);
  put_int(sink, source->token);
  put_uint(sink, source->min);
  put_uint(sink, source->max);
  if (source->schema != NULL) put_schema(sink, source->schema);
  const char *strings[TAG_STRINGS];
  if (source->tags != NULL) memcpy(strings, source->tags, sizeof strings);
  for (int i = 0; source->tags != NULL && i < TAG_STRINGS; i++) put_string(sink, strings[i]);
  if (source->literals != NULL) {
    put_byte(sink, (uint8_t)source->literals->open);
    put_byte(sink, (uint8_t)source->literals->assign);
    put_byte(sink, (uint8_t)source->literals->close);
    put_string(sink, source->literals->string_mark);
  }
  put_uint(sink, (uint64_t)source->num_children);
  bool good = true;
  for (int32_t i = 0; i < source->num_children && good; i++)
    good = put_source(sink, &source->children[i], depth + 1);
  return good;
}

static bool write_source(const grammar_source_t *source, buffer_t *out) {
  uint8_t room[512];
  byte_sink_t sink = {.bytes = room, .room = sizeof room, .flush = bytes_to_buffer, .context = out};
  bool good = put_source(&sink, source, 0);
  sink.flush(&sink);
  return good && !out->failed;
}

/* ---- reading ---- */

typedef struct reading {
  byte_source_t bytes;
  arena_t *arena;
  json_doc_t *docs[DOCS_MAX];
  int num_docs;
  inferd_error_t *error;
} source_reading_t;

static const char *copy_text(source_reading_t *reading, size_t *length) {
  const char *text = take_text(&reading->bytes, length);
  const char *copy = arena_copy(reading->arena, text, *length);
  reading->bytes.failed = reading->bytes.failed || copy == NULL;
  return copy;
}

static const char *take_string(source_reading_t *reading) {
  size_t length;
  return take_byte(&reading->bytes) != 0 ? copy_text(reading, &length) : NULL;
}

static const json_t *take_schema(source_reading_t *reading) {
  static const json_limits_t limits = {
      .depth_max = 256, .values_max = 64000000, .key_bytes_max = 1 << 24, .allow_nul = true};
  size_t length;
  const char *text = copy_text(reading, &length);
  if (reading->bytes.failed || reading->num_docs == DOCS_MAX ||
      json_parse(text, length, &limits, &reading->docs[reading->num_docs], NULL) != 0) {
    reading->bytes.failed = true;
    return NULL;
  }
  return json_root(reading->docs[reading->num_docs++]);
}

static void take_words(source_reading_t *reading, unsigned flags, grammar_source_t *out) {
  const char *strings[TAG_STRINGS];
  tag_words_t *tags = arena_calloc(reading->arena, 1, sizeof *tags);
  literal_words_t *literals = arena_calloc(reading->arena, 1, sizeof *literals);
  if (tags == NULL || literals == NULL) {
    reading->bytes.failed = true;
    return;
  }
  if ((flags & HAS_TAGS) != 0) {
    for (int i = 0; i < TAG_STRINGS; i++) strings[i] = take_string(reading);
    memcpy(tags, strings, sizeof strings);
    out->tags = tags;
  }
  if ((flags & HAS_LITERALS) != 0) {
    literals->open = (char)take_byte(&reading->bytes);
    literals->assign = (char)take_byte(&reading->bytes);
    literals->close = (char)take_byte(&reading->bytes);
    literals->string_mark = take_string(reading);
    out->literals = literals;
  }
}

static void take_source(source_reading_t *reading, grammar_source_t *out, int depth) {
  byte_source_t *bytes = &reading->bytes;
  uint64_t kind = take_uint(bytes);
  unsigned flags = (unsigned)take_uint(bytes);
  if (kind > GRAMMAR_REPEAT || depth > DEPTH_MAX) bytes->failed = true;
  const char *text = copy_text(reading, &out->length);
  if (bytes->failed) return;
  out->kind = (grammar_kind_t)kind;
  out->text = (flags & HAS_TEXT) != 0 ? text : NULL;
  out->strict = (flags & IS_STRICT) != 0;
  out->known_only = (flags & KNOWN_ONLY) != 0;
  out->object_only = (flags & OBJECT_ONLY) != 0;
  out->token = take_int32(bytes);
  out->min = (uint32_t)take_uint(bytes);
  out->max = (uint32_t)take_uint(bytes);
  if ((flags & HAS_SCHEMA) != 0) out->schema = take_schema(reading);
  take_words(reading, flags, out);
  int32_t count = take_count(bytes);
  grammar_source_t *children = arena_calloc(reading->arena, (size_t)count, sizeof *children);
  bytes->failed = bytes->failed || children == NULL;
  for (int32_t i = 0; i < count && !bytes->failed; i++)
    take_source(reading, &children[i], depth + 1);
  out->children = children;
  out->num_children = count;
}

int grammar_of_bytes(const void *bytes, size_t length, const grammar_vocabulary_t *vocabulary,
                     arena_t *arena, grammar_t **out, inferd_error_t *error) {
  source_reading_t *reading = calloc(1, sizeof *reading);
  grammar_source_t source = {0};
  if (reading == NULL) return error_set(error, ERR_NO_MEMORY, NULL, "no memory for a constraint");
  const uint8_t *begin = bytes;
  reading->bytes = (byte_source_t){.at = begin, .end = begin + length};
  reading->arena = arena;
  take_source(reading, &source, 0);
  int code = reading->bytes.failed
                 ? error_set(error, ERR_CONFIGURATION, NULL, "a constraint is damaged")
                 : grammar_compile(&source, vocabulary, NULL, NULL, out, error);
  for (int i = 0; i < reading->num_docs; i++) json_free(reading->docs[i]);
  free(reading);
  return code;
}

/* ---- what a grammar keeps ---- */

void grammar_vocabulary_keep_sources(grammar_vocabulary_t *vocabulary) {
  vocabulary->keeps_sources = true;
}

void grammar_keep_source(grammar_t *grammar, const grammar_source_t *source) {
  buffer_t bytes = {0};
  if (write_source(source, &bytes))
    grammar->source = arena_copy(&grammar->arena, bytes.data, bytes.length);
  if (grammar->source != NULL) grammar->source_bytes = bytes.length;
  buffer_free(&bytes);
}

const void *grammar_source_of(const grammar_t *grammar, size_t *length) {
  *length = grammar->source_bytes;
  return grammar->source;
}

uint64_t grammar_serial(const grammar_t *grammar) {
  return grammar->serial;
}
