/* tag_call.c: parses one tool call in tags byte by byte; see tag_call.h. Runs on the thread that
 * owns the choice; allocates only as values grow. */
#include "server/parser/tag_call.h"

#include "engine/base/json_schema.h"
#include "engine/base/util.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char open_function[] = "<function=", open_parameter[] = "<parameter=";
static const char close_function[] = "</function>", close_call[] = "</tool_call>";

/* The texts that end a value. A closing tag may be missing, so the next tag ends a value too, but
 * only at the start of a line, because a value may be a text about tags. The grammar of forced
 * calls has the same rule (engine/grammar/automaton/lexeme_content.c). */
static const char *const value_ends[] = {"\n</parameter>", "</parameter>", "\n<parameter=",
                                         "\n</function>",  "<parameter=",  "</function>"};
enum { NUM_VALUE_ENDS = 6, FIRST_OF_LINE = 4 };

/* Never NULL. */
static const char *bytes_of(const buffer_t *buffer) {
  return buffer->data != NULL ? buffer->data : "";
}

void tag_call_start(tag_call_t *call, const json_t *functions) {
  buffer_t *const buffers[] = {&call->name, &call->key,   &call->keys,
                               &call->held, &call->value, &call->out};
  for (size_t i = 0; i < ARRAY_LEN(buffers); i++) buffer_clear(buffers[i]);
  *call = (tag_call_t){.functions = functions,
                       .name = call->name,
                       .key = call->key,
                       .keys = call->keys,
                       .held = call->held,
                       .value = call->value,
                       .out = call->out};
}

void tag_call_free(tag_call_t *call) {
  buffer_free(&call->name);
  buffer_free(&call->key);
  buffer_free(&call->keys);
  buffer_free(&call->held);
  buffer_free(&call->value);
  buffer_free(&call->out);
}

bool tag_call_failed(const tag_call_t *call) {
  return call->name.failed || call->key.failed || call->keys.failed || call->held.failed ||
         call->value.failed || call->out.failed;
}

void tag_call_flush(tag_call_t *call, const output_sink_t *sink) {
  if (!call->streaming || call->out.length == 0) return;
  sink->take(sink->context, OUTPUT_CALL_TEXT, call->out.data, call->out.length);
  buffer_clear(&call->out);
}

static void begin(tag_call_t *call, const output_sink_t *sink) {
  if (call->streaming) return;
  call->streaming = true;
  sink->take(sink->context, OUTPUT_CALL_BEGIN, call->name.data, call->name.length);
  buffer_char(&call->out, '{');
}

static call_result_t finish(tag_call_t *call, const output_sink_t *sink) {
  begin(call, sink);
  buffer_char(&call->out, '}');
  tag_call_flush(call, sink);
  sink->take(sink->context, OUTPUT_CALL_END, "", 0);
  return CALL_DONE;
}

/* ---- values ---- */

/* Returns true if the value is passed on as it arrives. One newline after `<parameter=...>` and one
 * before the end are not part of a value: see value_byte and value_ends. */
static bool is_streamed(const tag_call_t *call) {
  return call->types == TYPE_STRING;
}

/* Appends a byte of a JSON string. A character may arrive in pieces, so its bytes are appended one
 * by one. */
static void put_byte(buffer_t *out, char byte) {
  if (byte == '"' || byte == '\\' || (unsigned char)byte < 0x20) {
    buffer_escape(out, &byte, 1);
  } else {
    buffer_char(out, byte);
  }
}

static void put_key(tag_call_t *call) {
  if (call->num_parameters++ > 0) buffer_text(&call->out, ", ");
  buffer_quote(&call->out, bytes_of(&call->key), call->key.length);
  buffer_text(&call->out, ": ");
}

static bool is_json(const char *text, size_t length) {
  json_scan_t scan = {0};
  for (size_t i = 0; i < length; i++) json_scan_byte(&scan, text[i]);
  return json_scan_byte(&scan, '\n') == SCAN_DONE; /* the newline ends a number */
}

/* A NUL follows `value`. */
static bool is_integer(const char *value, size_t length) {
  if (memchr(value, '.', length) == NULL && memchr(value, 'e', length) == NULL &&
      memchr(value, 'E', length) == NULL) {
    return true;
  }
  double number = strtod(value, NULL);
  return isfinite(number) && floor(number) == number;
}

static bool is_word(const char *text, size_t length, const char *word) {
  return length == strlen(word) && strncasecmp(text, word, length) == 0;
}

/* Returns the value as JSON of one of the types; NULL if it is none of them. Templates print True,
 * False and None as Python does, so models write these words too. */
static const char *read_value(const char *text, size_t *length, uint32_t types) {
  static const struct {
    const char *word, *json;
    uint32_t type;
  } words[] = {{"true", "true", TYPE_BOOLEAN},
               {"false", "false", TYPE_BOOLEAN},
               {"null", "null", TYPE_NULL},
               {"none", "null", TYPE_NULL}};
  for (size_t i = 0; i < ARRAY_LEN(words); i++) {
    if (!(types & words[i].type) || !is_word(text, *length, words[i].word)) continue;
    *length = strlen(words[i].json);
    return words[i].json;
  }
  uint32_t type = TYPE_NUMBER;
  if (*length == 0) return NULL;
  if (text[0] == '{') type = TYPE_OBJECT;
  if (text[0] == '[') type = TYPE_ARRAY;
  bool number = text[0] == '-' || (text[0] >= '0' && text[0] <= '9');
  if (!(types & type) || (type == TYPE_NUMBER && !number) || !is_json(text, *length)) return NULL;
  bool fine = type != TYPE_NUMBER || (types & TYPE_FRACTION) || is_integer(text, *length);
  return fine ? text : NULL;
}

/* Appends a value that was collected until its end. */
static void settle(tag_call_t *call) {
  const buffer_t *value = &call->value;
  buffer_char(&call->value, '\0');
  if (call->value.failed) return;
  const char *text = value->data;
  size_t length = value->length - 1;
  while (length > 0 && json_is_blank(text[length - 1])) length--;
  while (length > 0 && json_is_blank(text[0])) text++, length--;
  const char *json = read_value(text, &length, call->types);
  put_key(call);
  if (json != NULL) {
    buffer_append(&call->out, json, length);
  } else {
    buffer_char(&call->out, '"');
    for (size_t i = 0; i + 1 < value->length; i++) put_byte(&call->out, value->data[i]);
    buffer_char(&call->out, '"');
  }
}

static void end_value(tag_call_t *call) {
  if (call->repeated) return;
  if (is_streamed(call)) {
    buffer_char(&call->out, '"');
  } else {
    settle(call);
  }
}

static void begin_value(tag_call_t *call) {
  call->state = TAG_VALUE;
  call->first_byte = call->line_starts = true;
  call->spanning = false;
  call->json = (json_scan_t){0};
  buffer_clear(&call->value);
  call->types = json_schema_member_types(call->schema, bytes_of(&call->key), call->key.length);
  call->plain = is_streamed(call);
  if (call->repeated || !is_streamed(call)) return;
  put_key(call);
  buffer_char(&call->out, '"');
}

void tag_call_again(tag_call_t *call) {
  buffer_clear(&call->value);
  call->plain = call->line_starts = true;
  call->spanning = false;
}

/* Takes a byte of the value. Blanks before an object or array are allowed. */
static void take_byte(tag_call_t *call, char byte) {
  uint32_t opens = byte == '{' ? TYPE_OBJECT : byte == '[' ? TYPE_ARRAY : 0;
  call->line_starts = false;
  if (is_streamed(call)) {
    if (!call->repeated) put_byte(&call->out, byte);
    return;
  }
  buffer_char(&call->value, byte);
  if (call->plain || json_is_blank(byte)) return;
  call->plain = true;
  if (!(call->types & opens)) return;
  call->spanning = true;
  json_scan_byte(&call->json, byte);
}

/* Returns the end of a value that `held` contains; NULL = none. *may_be: `held` may become one. */
static const char *match_end(const tag_call_t *call, bool *may_be) {
  const buffer_t *held = &call->held;
  int count = call->line_starts ? NUM_VALUE_ENDS : FIRST_OF_LINE;
  *may_be = false;
  for (int i = 0; i < count; i++) {
    if (strncmp(value_ends[i], held->data, held->length) != 0) continue;
    if (strlen(value_ends[i]) == held->length) return value_ends[i];
    *may_be = true;
  }
  return NULL;
}

static call_result_t value_byte(tag_call_t *call, char byte, const output_sink_t *sink) {
  bool first = call->first_byte, may_be;
  call->first_byte = false;
  if (first && byte == '\n') return CALL_MORE;
  if (call->spanning) {
    buffer_char(&call->value, byte);
    json_scan_state_t state = json_scan_byte(&call->json, byte);
    if (state == SCAN_DONE) call->spanning = false;
    return state == SCAN_BAD ? CALL_AGAIN : CALL_MORE;
  }
  buffer_char(&call->held, byte);
  while (call->held.length > 0) {
    const char *end = match_end(call, &may_be);
    if (end == NULL && may_be) return CALL_MORE;
    if (end == NULL) {
      take_byte(call, call->held.data[0]);
      memmove(call->held.data, call->held.data + 1, --call->held.length);
      continue;
    }
    buffer_clear(&call->held);
    end_value(call);
    if (strstr(end, close_function) != NULL) return finish(call, sink);
    call->state = strstr(end, open_parameter) != NULL ? TAG_KEY : TAG_NEXT;
    if (call->state == TAG_KEY) buffer_text(&call->held, open_parameter);
    buffer_clear(&call->key);
    return CALL_MORE;
  }
  return CALL_MORE;
}

/* ---- tags ---- */

/* Remembers the name of a parameter. Returns false if the call had it before. */
static bool add_key(tag_call_t *call) {
  const char *at = bytes_of(&call->keys), *end = at + call->keys.length;
  uint16_t length = (uint16_t)call->key.length;
  while (at != end) {
    uint16_t other;
    memcpy(&other, at, sizeof other);
    at += sizeof other;
    if (other == length && memcmp(at, bytes_of(&call->key), length) == 0) return false;
    at += other;
  }
  buffer_append(&call->keys, (const char *)&length, sizeof length);
  buffer_append(&call->keys, bytes_of(&call->key), length);
  return true;
}

static call_result_t key_byte(tag_call_t *call, char byte) {
  if (byte == '>') {
    buffer_clear(&call->held);
    call->repeated = !add_key(call);
    begin_value(call);
    return CALL_MORE;
  }
  bool many = call->num_parameters == CALL_PARAMETERS_MAX;
  if (byte == '\n' || call->key.length == CALL_PARAMETER_NAME_BYTES_MAX || many) return CALL_BAD;
  buffer_char(&call->held, byte);
  buffer_char(&call->key, byte);
  return CALL_MORE;
}

static const json_t *find_schema(const tag_call_t *call) {
  JSON_EACH(tool, call->functions) {
    const json_t *function = json_get(tool, "function"), *name = json_get(function, "name");
    if (name == NULL || name->type != JSON_STRING || name->length != call->name.length) continue;
    if (memcmp(name->text, call->name.data, name->length) == 0) {
      return json_get(function, "parameters");
    }
  }
  return NULL;
}

static call_result_t name_byte(tag_call_t *call, char byte) {
  if (byte == '>' && call->name.length > 0) {
    call->schema = find_schema(call);
    call->state = TAG_NEXT;
    return CALL_MORE;
  }
  bool bad = byte == '>' || byte == '<' || byte == '\n' || call->name.length == CALL_NAME_BYTES_MAX;
  if (bad) return CALL_BAD;
  buffer_char(&call->name, byte);
  return CALL_MORE;
}

/* Takes a byte between values: blanks, then one of the tags. `held` is the start of the tag. */
static call_result_t tag_byte(tag_call_t *call, char byte, const output_sink_t *sink) {
  const char *tags[3] = {open_parameter, close_function, call->streaming ? close_call : NULL};
  buffer_t *held = &call->held;
  if (held->length == 0 && json_is_blank(byte)) return CALL_MORE;
  if (call->state == TAG_FUNCTION) tags[0] = open_function, tags[1] = tags[2] = NULL;
  for (int i = 0; i < 3; i++) {
    const char *tag = tags[i];
    if (tag == NULL || tag[held->length] != byte) continue;
    if (strncmp(tag, bytes_of(held), held->length) != 0) continue;
    buffer_char(held, byte);
    if (strlen(tag) > held->length) return CALL_MORE;
    if (tag == open_parameter) {
      begin(call, sink);
      call->state = TAG_KEY;
      buffer_clear(&call->key);
      return CALL_MORE;
    }
    buffer_clear(held);
    if (tag != open_function) return finish(call, sink);
    call->state = TAG_NAME;
    return CALL_MORE;
  }
  return CALL_BAD;
}

call_result_t tag_call_byte(tag_call_t *call, char byte, const output_sink_t *sink) {
  switch (call->state) {
  case TAG_FUNCTION:
  case TAG_NEXT: return tag_byte(call, byte, sink);
  case TAG_NAME: return name_byte(call, byte);
  case TAG_KEY: return key_byte(call, byte);
  case TAG_VALUE: break;
  }
  return value_byte(call, byte, sink);
}

void tag_call_close(tag_call_t *call, const output_sink_t *sink) {
  bool line_ended = call->held.length > 0 && call->held.data[0] == '\n';
  if (call->state == TAG_VALUE && (is_streamed(call) || line_ended)) end_value(call);
  finish(call, sink);
}
