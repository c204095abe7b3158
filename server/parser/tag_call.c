/* tag_call.c: parses one tool call in tags byte by byte; see tag_call.h. Runs on the thread that
 * owns the choice; allocates only as values grow. */
#include "server/parser/tag_call.h"

#include "engine/base/json_schema.h"
#include "engine/base/util.h"
#include "server/parser/argument.h"
#include "server/parser/element.h"

#include <string.h>

/* Never NULL. */
static const char *bytes_of(const buffer_t *buffer) {
  return buffer->data != NULL ? buffer->data : "";
}

void tag_call_start(tag_call_t *call, const tag_words_t *words, const json_t *functions) {
  buffer_t *const buffers[] = {&call->name, &call->key,   &call->keys,
                               &call->held, &call->value, &call->out};
  for (size_t i = 0; i < ARRAY_LEN(buffers); i++) buffer_clear(buffers[i]);
  *call = (tag_call_t){.words = words,
                       .functions = functions,
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

static void send_name(tag_call_t *call, const output_sink_t *sink) {
  if (call->streaming) return;
  call->streaming = true;
  sink->take(sink->context, OUTPUT_CALL_BEGIN, call->name.data, call->name.length);
}

static void begin(tag_call_t *call, const output_sink_t *sink) {
  if (!call->whole) send_name(call, sink);
  if (!call->begun) buffer_char(&call->out, '{');
  call->begun = true;
}

static call_result_t finish(tag_call_t *call, const output_sink_t *sink) {
  begin(call, sink);
  send_name(call, sink);
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

/* Appends a value that was collected until its end. */
static void settle(tag_call_t *call) {
  const buffer_t *value = &call->value;
  if (call->words->mark != NULL) {
    put_key(call);
    element_read(&call->out, call->words->mark, bytes_of(value), value->length, &call->place);
    return;
  }
  buffer_char(&call->value, '\0');
  if (call->value.failed) return;
  const char *text = value->data;
  size_t length = value->length - 1;
  while (length > 0 && json_is_blank(text[length - 1])) length--;
  while (length > 0 && json_is_blank(text[0])) text++, length--;
  const char *json = argument_read(text, &length, call->types);
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
  call->depth = 0;
  call->json = (json_scan_t){0};
  buffer_clear(&call->value);
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
  if (call->plain || json_is_blank(byte) || call->words->mark != NULL) return;
  call->plain = true;
  if (!(call->types & opens)) return;
  call->spanning = true;
  json_scan_byte(&call->json, byte);
}

/* Returns the end of a value that `held` contains; NULL = none. *may_be: `held` may become one. */
static const char *match_end(const tag_call_t *call, bool *may_be) {
  const buffer_t *held = &call->held;
  const char *const *value_ends = call->words->value_ends;
  int count = call->line_starts ? TAG_VALUE_ENDS : TAG_FIRST_OF_LINE;
  *may_be = false;
  for (int i = call->is_raw ? 1 : 0; i < count; i++) {
    if (strncmp(value_ends[i], held->data, held->length) != 0) continue;
    if (strlen(value_ends[i]) == held->length) return value_ends[i];
    *may_be = true;
  }
  return NULL;
}

/* Whether the name is that of the tag that ends a call, or all calls. */
static bool is_call_end(const tag_call_t *call, const char *name, size_t length) {
  const char *const ends[] = {call->words->end_call, call->words->end_calls};
  for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
    const char *own = ends[i] + strlen(call->words->mark) + 2;
    if (strncmp(own, name, length) == 0 && own[length] == '>') return true;
  }
  return false;
}

/* A tag within a value that is elements. Returns true if it ends the value. */
static bool element_ends(tag_call_t *call, const element_tag_t *tag) {
  bool odd = is_call_end(call, tag->name, tag->length);
  if (tag->closes && (call->depth == 0 || (odd && call->num_ends == 0))) return true;
  call->depth += tag->closes ? -1 : 1;
  if (odd) call->num_ends += tag->closes ? -1 : 1;
  return false;
}

/* The same as value_byte where tags have a mark. */
static call_result_t element_byte(tag_call_t *call, char byte, const output_sink_t *sink) {
  buffer_t *held = &call->held;
  element_tag_t tag;
  buffer_char(held, byte);
  while (held->length > 0 && !held->failed) {
    int is = element_tag(call->words->mark, held->data, held->length, &tag);
    if (is < 0) return CALL_MORE;
    if (is > 0 && element_ends(call, &tag)) {
      bool whole = call->num_ends == 0 && is_call_end(call, tag.name, tag.length);
      buffer_clear(held);
      end_value(call);
      call->state = TAG_NEXT;
      return whole ? finish(call, sink) : CALL_MORE;
    }
    size_t count = is > 0 ? held->length : 1;
    for (size_t i = 0; i < count; i++) take_byte(call, held->data[i]);
    memmove(held->data, held->data + count, held->length -= count);
  }
  return CALL_MORE;
}

static call_result_t value_byte(tag_call_t *call, char byte, const output_sink_t *sink) {
  bool first = call->first_byte, may_be;
  if (call->words->mark != NULL) return element_byte(call, byte, sink);
  call->first_byte = false;
  if (first && byte == '\n' && !call->is_raw) return CALL_MORE;
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
    if (strstr(end, call->words->end_call) != NULL) return finish(call, sink);
    call->state = strstr(end, call->words->begin_key) != NULL ? TAG_KEY : TAG_NEXT;
    if (call->state == TAG_KEY) buffer_text(&call->held, call->words->begin_key);
    buffer_clear(&call->key);
    return CALL_MORE;
  }
  return CALL_MORE;
}

/* ---- tags ---- */

static bool ends_with(const buffer_t *text, const char *end) {
  size_t length = end != NULL ? strlen(end) : 0;
  return length > 0 && text->length >= length &&
         memcmp(text->data + text->length - length, end, length) == 0;
}

/* Reads `&quot;` and `&amp;` as XML does. */
static void read_entities(buffer_t *text) {
  size_t kept = 0;
  for (size_t i = 0; i < text->length; i++, kept++) {
    size_t left = text->length - i;
    bool quote = left >= 6 && memcmp(text->data + i, "&quot;", 6) == 0;
    bool and = left >= 5 && memcmp(text->data + i, "&amp;", 5) == 0;
    text->data[kept] = quote ? '"' : text->data[i];
    i += quote ? 5 : and? 4 : 0;
  }
  text->length = kept;
}

/* The name of the parameter may be followed by the type of its value: splits the two and sets what
 * the value may be. */
static void read_type(tag_call_t *call) {
  const char *mark = call->words->begin_type;
  buffer_t *key = &call->key;
  const char *at = key->length > 0 ? memmem(key->data, key->length, mark, strlen(mark)) : NULL;
  size_t length = at != NULL ? (size_t)(at - key->data) : key->length;
  const char *type = at != NULL ? at + strlen(mark) : "";
  uint32_t types = json_schema_types(type, at != NULL ? key->length - length - strlen(mark) : 0);
  key->length = length;
  read_entities(key);
  call->is_raw = types == TYPE_STRING;
  if (types == 0)
    types = json_schema_member_types(call->schema, bytes_of(key), key->length);
  else if (!call->is_raw)
    types = TYPE_ALL & ~(uint32_t)TYPE_STRING;
  call->types = types;
}

/* Sets what the value of an element may be. */
static void find_place(tag_call_t *call) {
  uint32_t fuel = UINT16_MAX;
  schema_set_t root = {.root = call->schema, .schemas = {call->schema}, .count = 1};
  if (call->schema == NULL) root.count = 0;
  json_schema_step(&root, bytes_of(&call->key), call->key.length, 0, &call->place, &fuel);
  call->types = json_schema_set_types(&call->place, &fuel);
  call->num_ends = is_call_end(call, bytes_of(&call->key), call->key.length);
}

/* Takes a byte of the name of a parameter, or of the text behind it. */
static call_result_t key_byte(tag_call_t *call, char byte) {
  const tag_words_t *words = call->words;
  buffer_char(&call->held, byte);
  if (words->mark != NULL && byte == '/' && call->key.length == 0) {
    call->state = TAG_NEXT; /* the tag is the end of the call */
    return CALL_MORE;
  }
  buffer_char(&call->key, byte);
  const char *end = NULL;
  if (ends_with(&call->key, words->end_key)) end = words->end_key;
  if (ends_with(&call->key, words->end_text_key)) end = words->end_text_key;
  if (ends_with(&call->key, words->end_json_key)) end = words->end_json_key;
  if (end != NULL) {
    call->key.length -= strlen(end);
    buffer_clear(&call->held);
    if (words->mark != NULL) {
      find_place(call);
    } else if (words->begin_type != NULL) {
      read_type(call);
    } else {
      call->types = json_schema_member_types(call->schema, bytes_of(&call->key), call->key.length);
      call->is_raw = end == words->end_text_key;
      if (call->is_raw) call->types = TYPE_STRING;
      if (end == words->end_json_key) call->types = TYPE_ALL & ~(uint32_t)TYPE_STRING;
    }
    call->repeated = !argument_add_key(&call->keys, bytes_of(&call->key), call->key.length);
    call->state = TAG_BEFORE_VALUE;
    if (words->begin_value == NULL) begin_value(call);
    return CALL_MORE;
  }
  bool many = call->num_parameters == CALL_ARGUMENTS_MAX;
  bool bad = byte == '\n' || call->key.length > CALL_ARGUMENT_NAME_BYTES_MAX || many ||
             (words->mark != NULL && byte == '<');
  if (bad) call->held.length--; /* the byte is not taken */
  return bad ? CALL_BAD : CALL_MORE;
}

/* Takes a byte between the name of a parameter and the mark that begins its value. */
static call_result_t before_value_byte(tag_call_t *call, char byte) {
  const char *mark = call->words->begin_value;
  if (call->held.length == 0 && json_is_blank(byte)) return CALL_MORE;
  if (mark[call->held.length] != byte) return CALL_BAD;
  buffer_char(&call->held, byte);
  if (strlen(mark) > call->held.length) return CALL_MORE;
  buffer_clear(&call->held);
  begin_value(call);
  return CALL_MORE;
}

/* Takes a byte of the object that stands in place of all arguments. Its members are passed on when
 * it is whole. */
static call_result_t json_byte(tag_call_t *call, char byte) {
  buffer_t *value = &call->value;
  if (value->length == 0 && json_is_blank(byte)) return CALL_MORE;
  json_scan_state_t state = json_scan_byte(&call->json, byte);
  if (state == SCAN_BAD || (value->length == 0 && byte != '{')) {
    buffer_append(&call->held, bytes_of(value), value->length);
    return CALL_BAD;
  }
  buffer_char(value, byte);
  if (state != SCAN_DONE || value->failed) return CALL_MORE;
  buffer_append(&call->out, value->data + 1, value->length - 2);
  call->whole_json = true;
  call->state = TAG_NEXT;
  return CALL_MORE;
}

/* A tag between values is whole. */
static call_result_t take_tag(tag_call_t *call, const char *tag, const output_sink_t *sink) {
  const tag_words_t *words = call->words;
  if (tag == words->begin_key) {
    begin(call, sink);
    call->state = TAG_KEY;
    buffer_clear(&call->key);
    return CALL_MORE;
  }
  buffer_clear(&call->held);
  if (tag == words->begin_json) {
    begin(call, sink);
    call->state = TAG_JSON;
    call->json = (json_scan_t){0};
    buffer_clear(&call->value);
  }
  return tag == words->begin_json || tag == words->end_json ? CALL_MORE : finish(call, sink);
}

/* Takes a byte between values: blanks, then one of the tags. `held` is the start of the tag. */
static call_result_t tag_byte(tag_call_t *call, char byte, const output_sink_t *sink) {
  const tag_words_t *words = call->words;
  const char *tags[] = {call->whole_json ? words->end_json : words->begin_key, words->end_call,
                        call->begun ? words->end_calls : NULL,
                        call->begun ? NULL : words->begin_json};
  buffer_t *held = &call->held;
  if (held->length == 0 && json_is_blank(byte)) return CALL_MORE;
  for (size_t i = 0; i < ARRAY_LEN(tags); i++) {
    const char *tag = tags[i];
    if (tag == NULL || strncmp(tag, bytes_of(held), held->length) != 0) continue;
    if (tag[held->length] != byte) continue;
    buffer_char(held, byte);
    return strlen(tag) > held->length ? CALL_MORE : take_tag(call, tag, sink);
  }
  return CALL_BAD;
}

/* Splits the number of the call from its name. */
static void drop_number(tag_call_t *call) {
  const char *mark = call->words->number;
  const char *at = mark == NULL || call->name.length == 0
                       ? NULL
                       : memmem(call->name.data, call->name.length, mark, strlen(mark));
  if (at != NULL) call->name.length = (size_t)(at - call->name.data);
}

/* Takes a byte of the function's name, or of what follows it. */
static call_result_t name_byte(tag_call_t *call, char byte, const output_sink_t *sink) {
  const char *end = call->words->end_name;
  bool ends = end == NULL && call->name.length > 0 && (json_is_blank(byte) || byte == '<');
  if (!ends) {
    bool tag = byte == '<' && (end == NULL || strchr(end, '<') == NULL);
    bool bad = tag || byte == '\n' || call->name.length == CALL_NAME_BYTES_MAX;
    if (bad || (end == NULL && !call_name_byte(byte))) return CALL_BAD;
    buffer_char(&call->name, byte);
    if (end == NULL || !ends_with(&call->name, end)) {
      return byte == '>' ? CALL_BAD : CALL_MORE;
    }
    call->name.length -= strlen(end);
    drop_number(call);
    if (call->name.length == 0) return CALL_BAD;
  }
  const json_t *function = argument_function(call->functions, call->name.data, call->name.length);
  call->schema = json_get(function, "parameters");
  call->state = TAG_NEXT;
  return ends ? tag_byte(call, byte, sink) : CALL_MORE;
}

call_result_t tag_call_byte(tag_call_t *call, char byte, const output_sink_t *sink) {
  switch (call->state) {
  case TAG_NAME: return name_byte(call, byte, sink);
  case TAG_NEXT: return tag_byte(call, byte, sink);
  case TAG_KEY: return key_byte(call, byte);
  case TAG_BEFORE_VALUE: return before_value_byte(call, byte);
  case TAG_JSON: return json_byte(call, byte);
  case TAG_VALUE: break;
  }
  return value_byte(call, byte, sink);
}

void tag_call_close(tag_call_t *call, const output_sink_t *sink) {
  bool line_ended = call->held.length > 0 && call->held.data[0] == '\n';
  if (call->state == TAG_VALUE && (is_streamed(call) || line_ended)) end_value(call);
  finish(call, sink);
}

void tag_call_cut(tag_call_t *call, const output_sink_t *sink) {
  if (call->state == TAG_NAME) return;
  send_name(call, sink);
  tag_call_flush(call, sink);
  sink->take(sink->context, OUTPUT_CALL_END, "", 0);
}
