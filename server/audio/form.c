/* form.c: the fields of /v1/audio, which are parts of a form. Any thread; no state. */
#include "server/audio/audio.h"

#include "engine/base/utf8.h"
#include "engine/base/util.h"
#include "server/fields/params_read.h"
#include "server/http/multipart.h"

#include <stddef.h>
#include <string.h>
#include <strings.h>

/* ---- rows ---- */

static int read_audio_file(reader_t *reader, const field_t *field, const json_t *value) {
  if (value->type == JSON_TRUE) return 0;
  return error_set(reader->error, ERR_INVALID_TYPE, field->name,
                   "Invalid 'file': expected a file with a name, but got a text.");
}

static int read_audio_format(reader_t *reader, const field_t *field, const json_t *value) {
  static const char *const names[] = {[AUDIO_JSON] = "json",
                                      [AUDIO_TEXT] = "text",
                                      [AUDIO_SRT] = "srt",
                                      [AUDIO_VTT] = "vtt",
                                      [AUDIO_VERBOSE] = "verbose_json"};
  audio_fields_t *fields = reader->out;
  for (size_t i = 0; i < ARRAY_LEN(names); i++) {
    if (!json_equals(value, names[i])) continue;
    fields->shape = (audio_shape_t)i;
    return 0;
  }
  return field_fail_value(reader, field->name,
                          "\"json\", \"text\", \"srt\", \"vtt\" or \"verbose_json\"", value);
}

static int read_audio_granularities(reader_t *reader, const field_t *field, const json_t *value) {
  audio_fields_t *fields = reader->out;
  if (value->type != JSON_ARRAY) return field_fail_type(reader, field->name, "an array", value);
  fields->has_granularities = true;
  JSON_EACH(element, value) {
    const bool segment = json_equals(element, "segment"), word = json_equals(element, "word");
    if (!segment && !word)
      return field_fail_value(reader, field->name, "\"segment\" or \"word\"", element);
    fields->segments = fields->segments || segment;
    fields->words = fields->words || word;
  }
  return 0;
}

static int read_audio_chunking(reader_t *reader, const field_t *field, const json_t *value) {
  if (json_equals(value, "auto")) return 0;
  return field_fail_value(reader, field->name, "\"auto\"", value);
}

#undef FIELDS_STRUCT
#define FIELDS_STRUCT audio_fields_t
static const field_t transcription_rows[] = {
#include "server/fields/transcription_fields.def"
};
static const field_t translation_rows[] = {
#include "server/fields/translation_fields.def"
};
const field_table_t transcription_table = {transcription_rows, ARRAY_LEN(transcription_rows), NULL};
const field_table_t translation_table = {translation_rows, ARRAY_LEN(translation_rows), NULL};

/* ---- parts ---- */

/* A number as JSON writes it. */
static bool is_number(const char *text, size_t length) {
  char room[32];
  if (length == 0 || length >= sizeof room) return false;
  memcpy(room, text, length);
  room[length] = '\0';
  const size_t sign = room[0] == '-', whole = strspn(room + sign, "0123456789");
  size_t at = sign + whole;
  if (whole == 0 || (whole > 1 && room[sign] == '0')) return false;
  if (room[at] == '.') {
    const size_t part = strspn(room + at + 1, "0123456789");
    if (part == 0) return false;
    at += 1 + part;
  }
  if (room[at] == 'e' || room[at] == 'E') {
    at += room[at + 1] == '-' || room[at + 1] == '+' ? 2 : 1;
    const size_t digits = strspn(room + at, "0123456789");
    if (digits == 0) return false;
    at += digits;
  }
  return at == length;
}

static bool is_bool(const char *text, size_t length) {
  return (length == 4 && memcmp(text, "true", 4) == 0) ||
         (length == 5 && memcmp(text, "false", 5) == 0);
}

static int print_value(const multipart_part_t *part, const field_t *row, buffer_t *out,
                       inferd_error_t *error) {
  const field_kind_t kind = row != NULL ? row->kind : FIELD_STRING;
  if (part->file[0] != '\0') {
    if (row == NULL)
      return error_set(error, ERR_INVALID_VALUE, part->name,
                       "Invalid part: the file of a form is named 'file', and no other is read.");
    buffer_text(out, "true");
    return 0;
  }
  if (!utf8_valid(part->bytes, part->length))
    return error_set(error, ERR_INVALID_VALUE, part->name, "Invalid '%s': it is no UTF-8.",
                     row != NULL ? row->name : "part");
  if (memchr(part->bytes, '\0', part->length) != NULL)
    return error_set(error, ERR_INVALID_VALUE, part->name, "Invalid '%s': it has a byte of 0.",
                     row != NULL ? row->name : "part");
  const bool number =
      (kind == FIELD_NUMBER || kind == FIELD_INT) && is_number(part->bytes, part->length);
  if (number || (kind == FIELD_BOOL && is_bool(part->bytes, part->length)))
    buffer_append(out, part->bytes, part->length);
  else
    buffer_quote(out, part->bytes, part->length);
  return 0;
}

static bool is_list(const char *name) {
  const size_t length = strlen(name);
  return length > 2 && strcmp(name + length - 2, "[]") == 0;
}

/* Whether a part before `index` has its name, and was printed with it. */
static bool was_printed(const multipart_t *form, int index) {
  return multipart_find(form, form->parts[index].name) != &form->parts[index];
}

int audio_print_form(const multipart_t *form, const field_table_t *table, buffer_t *out,
                     inferd_error_t *error) {
  bool first = true;
  buffer_char(out, '{');
  for (int i = 0; i < form->count; i++) {
    const multipart_part_t *part = &form->parts[i];
    const field_t *row = fields_find(table, part->name, strlen(part->name));
    if (was_printed(form, i)) continue;
    if (!first) buffer_char(out, ',');
    first = false;
    buffer_quote(out, part->name, strlen(part->name));
    buffer_char(out, ':');
    const bool list = is_list(part->name);
    if (list) buffer_char(out, '[');
    for (int j = i; j < form->count; j++) {
      if (strcmp(form->parts[j].name, part->name) != 0) continue;
      if (j > i) buffer_char(out, ',');
      const int code = print_value(&form->parts[j], row, out, error);
      if (code != 0) return code;
    }
    if (list) buffer_char(out, ']');
  }
  buffer_char(out, '}');
  return 0;
}

/* ---- languages ---- */

static const struct {
  const char *code, *name;
} languages[] = {
#define LANGUAGE(code, name) {code, name},
#include "server/audio/languages.def"
};

static bool is_word(const char *word, const char *text, size_t length) {
  return strlen(word) == length && strncasecmp(word, text, length) == 0;
}

const char *audio_language_code(const char *text, size_t length) {
  for (size_t i = 0; i < ARRAY_LEN(languages); i++) {
    if (is_word(languages[i].code, text, length) || is_word(languages[i].name, text, length))
      return languages[i].code;
  }
  return NULL;
}

const char *audio_language_name(const char *code) {
  for (size_t i = 0; i < ARRAY_LEN(languages); i++) {
    if (strcmp(languages[i].code, code) == 0) return languages[i].name;
  }
  return NULL;
}
