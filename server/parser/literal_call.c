/* literal_call.c: parses one tool call of literals byte by byte; see literal_call.h. Runs on the
 * thread that owns the choice; allocates only as values grow. */
#include "server/parser/literal_call.h"

#include "engine/base/hex.h"
#include "engine/base/json_schema.h"
#include "engine/base/utf8.h"
#include "engine/base/util.h"
#include "server/parser/argument.h"

#include <string.h>

void literal_call_start(literal_call_t *call, const literal_words_t *words, const json_t *functions,
                        bool known_only) {
  buffer_t *const buffers[] = {&call->name, &call->text, &call->keys, &call->out};
  for (size_t i = 0; i < ARRAY_LEN(buffers); i++) buffer_clear(buffers[i]);
  *call = (literal_call_t){.words = words,
                           .functions = functions,
                           .known_only = known_only,
                           .name = call->name,
                           .text = call->text,
                           .keys = call->keys,
                           .out = call->out};
}

void literal_call_free(literal_call_t *call) {
  buffer_free(&call->name);
  buffer_free(&call->text);
  buffer_free(&call->keys);
  buffer_free(&call->out);
}

bool literal_call_failed(const literal_call_t *call) {
  return call->name.failed || call->text.failed || call->keys.failed || call->out.failed;
}

static call_result_t more(literal_call_t *call, literal_state_t state) {
  call->state = state;
  return CALL_MORE;
}

/* ---- values ---- */

static void put_text_of(literal_call_t *call, size_t length) {
  buffer_quote(&call->out, length > 0 ? call->text.data : "", length);
}

static void put_text(literal_call_t *call) {
  put_text_of(call, call->text.length);
}

static call_result_t finish(literal_call_t *call, const output_sink_t *sink) {
  buffer_char(&call->out, '}');
  sink->take(sink->context, OUTPUT_CALL_BEGIN, call->name.data, call->name.length);
  sink->take(sink->context, OUTPUT_CALL_TEXT, call->out.data, call->out.length);
  sink->take(sink->context, OUTPUT_CALL_END, "", 0);
  return CALL_DONE;
}

static call_result_t open_container(literal_call_t *call, char byte) {
  if (call->depth == LITERAL_DEPTH_MAX) return CALL_BAD;
  call->closing[call->depth++] = byte == '[' ? ']' : '}';
  buffer_char(&call->out, byte);
  return more(call, LITERAL_ITEM);
}

static call_result_t close_container(literal_call_t *call) {
  buffer_char(&call->out, call->closing[--call->depth]);
  return more(call, LITERAL_AFTER);
}

/* Begins a string: between quotes, or between marks. Returns CALL_BAD if the byte begins none. */
static call_result_t begin_string(literal_call_t *call, char byte, bool is_key) {
  const char *mark = call->words->string_mark;
  buffer_clear(&call->text);
  call->is_key = is_key;
  call->escape = 0;
  call->high = 0;
  if (mark != NULL && byte == mark[0]) {
    buffer_char(&call->text, byte);
    return more(call, LITERAL_MARK);
  }
  call->quote = byte;
  bool quote = byte == '"' || (byte == '\'' && mark == NULL);
  return quote ? more(call, LITERAL_STRING) : CALL_BAD;
}

static call_result_t begin_value(literal_call_t *call, char byte) {
  if (byte == '[' || byte == '{') return open_container(call, byte);
  if (begin_string(call, byte, false) == CALL_MORE) return CALL_MORE;
  bool word = (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'z') || byte == '-' ||
              byte == 'T' || byte == 'F' || byte == 'N';
  if (!word) return CALL_BAD;
  buffer_char(&call->text, byte);
  return more(call, LITERAL_WORD);
}

static call_result_t key_done(literal_call_t *call) {
  put_text(call);
  buffer_text(&call->out, ": ");
  return more(call, LITERAL_COLON);
}

/* Ends a string. One between marks may stand for a value that is none, if the function's schema
 * allows no string there. */
static call_result_t string_done(literal_call_t *call, bool marked) {
  if (call->is_key) return key_done(call);
  if (marked && call->depth == 0 && !(call->types & TYPE_STRING)) {
    size_t length = call->text.length;
    buffer_char(&call->text, '\0');
    const char *json =
        call->text.failed ? NULL : argument_read(call->text.data, &length, call->types);
    call->text.length--;
    if (json != NULL) {
      buffer_append(&call->out, json, length);
      return more(call, LITERAL_AFTER);
    }
  }
  put_text(call);
  return more(call, LITERAL_AFTER);
}

/* ---- strings ---- */

/* A first half of a pair without the second is no character. */
static void drop_half(literal_call_t *call) {
  if (call->high != 0) buffer_text(&call->text, "\xEF\xBF\xBD");
  call->high = 0;
}

static void put_code(literal_call_t *call, uint32_t code) {
  bool low = code >= 0xDC00 && code <= 0xDFFF, high = code >= 0xD800 && code <= 0xDBFF;
  if (low && call->high != 0) {
    code = 0x10000 + ((call->high - 0xD800) << 10) + (code - 0xDC00);
    call->high = 0;
    low = false;
  }
  drop_half(call);
  if (high) {
    call->high = code;
    return;
  }
  char bytes[4];
  if (low || code > 0x10FFFF) code = 0xFFFD;
  buffer_append(&call->text, bytes, (size_t)utf8_write(bytes, code));
}

/* Takes a byte of an escape, as Python reads it. */
static call_result_t escape_byte(literal_call_t *call, char byte) {
  static const char from[] = "abfnrtv0", to[] = "\a\b\f\n\r\t\v";
  if (call->escape > 1) {
    int digit = hex_value(byte);
    if (digit < 0) return CALL_BAD;
    call->code = call->code << 4 | (uint32_t)digit;
    if (--call->escape > 1) return CALL_MORE;
    call->escape = 0;
    put_code(call, call->code);
    return CALL_MORE;
  }
  if (byte != 'u') drop_half(call);
  call->code = 0;
  call->escape = byte == 'x' ? 3 : byte == 'u' ? 5 : byte == 'U' ? 9 : 0;
  if (call->escape > 0 || byte == '\n') return CALL_MORE; /* a line that goes on */
  const char *found = strchr(from, byte);
  bool itself = byte == '\\' || byte == '\'' || byte == '"';
  if (found != NULL && byte != '\0') {
    buffer_char(&call->text, to[found - from]);
  } else {
    if (!itself) buffer_char(&call->text, '\\');
    buffer_char(&call->text, byte);
  }
  return CALL_MORE;
}

static call_result_t string_byte(literal_call_t *call, char byte) {
  if (call->escape > 0) return escape_byte(call, byte);
  if (byte == '\\') {
    call->escape = 1;
    return CALL_MORE;
  }
  drop_half(call);
  if (byte == call->quote) return string_done(call, false);
  buffer_char(&call->text, byte);
  return CALL_MORE;
}

/* Takes a byte of the mark that begins a string. */
static call_result_t mark_byte(literal_call_t *call, char byte) {
  const char *mark = call->words->string_mark;
  if (byte != mark[call->text.length]) return CALL_BAD;
  buffer_char(&call->text, byte);
  if (mark[call->text.length] != '\0' || call->text.failed) return CALL_MORE;
  buffer_clear(&call->text);
  return more(call, LITERAL_MARKED);
}

static call_result_t marked_byte(literal_call_t *call, char byte) {
  const char *mark = call->words->string_mark;
  size_t length = strlen(mark);
  buffer_char(&call->text, byte);
  if (byte != mark[length - 1] || call->text.length < length) return CALL_MORE;
  if (memcmp(call->text.data + call->text.length - length, mark, length) != 0) return CALL_MORE;
  call->text.length -= length;
  return string_done(call, true);
}

/* ---- the parts of a call ---- */

static call_result_t after_byte(literal_call_t *call, char byte, const output_sink_t *sink) {
  if (json_is_blank(byte)) return CALL_MORE;
  bool comma = byte == ',';
  if (call->depth == 0) {
    if (call->repeated > 0) call->out.length = call->repeated;
    call->repeated = 0;
    if (comma) return more(call, LITERAL_ARGUMENT);
    return byte == call->words->close ? finish(call, sink) : CALL_BAD;
  }
  if (comma) return more(call, LITERAL_ITEM);
  return byte == call->closing[call->depth - 1] ? close_container(call) : CALL_BAD;
}

/* Takes a byte of a number or constant, or the byte behind it. */
static call_result_t word_byte(literal_call_t *call, char byte, const output_sink_t *sink) {
  bool inside = (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'z') || byte == '-' ||
                byte == '+' || byte == '.' || byte == 'E';
  if (inside) {
    buffer_char(&call->text, byte);
    return CALL_MORE;
  }
  size_t length = call->text.length;
  buffer_char(&call->text, '\0');
  if (call->text.failed) return CALL_BAD;
  static const char *const odd[] = {"True", "False", "None", "true", "false", "null"};
  bool constant = false;
  for (size_t i = 0; i < ARRAY_LEN(odd); i++) constant |= strcmp(call->text.data, odd[i]) == 0;
  uint32_t types = constant ? TYPE_BOOLEAN | TYPE_NULL : TYPE_NUMBER;
  const char *json = argument_read(call->text.data, &length, types);
  if (json == NULL) return CALL_BAD;
  buffer_append(&call->out, json, length);
  call->state = LITERAL_AFTER;
  return after_byte(call, byte, sink);
}

/* Takes a byte of a name without quotes; `end` follows it. Returns CALL_DONE at `end`. */
static call_result_t bare_name(literal_call_t *call, buffer_t *name, char byte, char end,
                               size_t max) {
  if (byte == end && name->length > 0) {
    call->name_ended = false;
    return CALL_DONE;
  }
  if (json_is_blank(byte) && name->length > 0) {
    call->name_ended = true;
    return CALL_MORE;
  }
  if (!call_name_byte(byte) || call->name_ended || name->length == max) return CALL_BAD;
  buffer_char(name, byte);
  return CALL_MORE;
}

static call_result_t name_byte(literal_call_t *call, char byte) {
  call_result_t result = bare_name(call, &call->name, byte, call->words->open, CALL_NAME_BYTES_MAX);
  if (result != CALL_DONE) return result;
  const json_t *function = argument_function(call->functions, call->name.data, call->name.length);
  if (call->known_only && call->functions != NULL && function == NULL) return CALL_BAD;
  call->schema = json_get(function, "parameters");
  buffer_char(&call->out, '{');
  return more(call, LITERAL_ARGUMENT);
}

static call_result_t key_byte(literal_call_t *call, char byte) {
  call_result_t result =
      bare_name(call, &call->text, byte, call->words->assign, CALL_ARGUMENT_NAME_BYTES_MAX);
  if (result != CALL_DONE) return result;
  bool known = !argument_add_key(&call->keys, call->text.data, call->text.length);
  call->repeated = known ? call->out.length : 0;
  call->types = json_schema_member_types(call->schema, call->text.data, call->text.length);
  if (call->num_keys++ > 0) buffer_text(&call->out, ", ");
  put_text(call);
  buffer_text(&call->out, ": ");
  return more(call, LITERAL_VALUE);
}

static call_result_t argument_byte(literal_call_t *call, char byte, const output_sink_t *sink) {
  if (json_is_blank(byte)) return CALL_MORE;
  if (byte == call->words->close) return finish(call, sink);
  if (call->num_keys == CALL_ARGUMENTS_MAX) return CALL_BAD;
  buffer_clear(&call->text);
  call->state = LITERAL_KEY;
  return key_byte(call, byte);
}

static call_result_t item_key_byte(literal_call_t *call, char byte) {
  call_result_t result = bare_name(call, &call->text, byte, ':', CALL_ARGUMENT_NAME_BYTES_MAX);
  if (result != CALL_DONE) return result;
  put_text(call);
  buffer_text(&call->out, ": ");
  return more(call, LITERAL_VALUE);
}

/* Takes a byte where an item of a list or dictionary begins, or where it ends. */
static call_result_t item_byte(literal_call_t *call, char byte) {
  char closing = call->closing[call->depth - 1];
  if (json_is_blank(byte)) return CALL_MORE;
  if (byte == closing) return close_container(call);
  if (call->out.failed) return CALL_BAD;
  char last = call->out.data[call->out.length - 1];
  if (last != '[' && last != '{') buffer_text(&call->out, ", ");
  if (closing == ']') return begin_value(call, byte);
  if (begin_string(call, byte, true) == CALL_MORE) return CALL_MORE;
  if (call->words->string_mark == NULL) return CALL_BAD;
  call->state = LITERAL_ITEM_KEY;
  return item_key_byte(call, byte);
}

call_result_t literal_call_byte(literal_call_t *call, char byte, const output_sink_t *sink) {
  switch (call->state) {
  case LITERAL_NAME: return name_byte(call, byte);
  case LITERAL_ARGUMENT: return argument_byte(call, byte, sink);
  case LITERAL_KEY: return key_byte(call, byte);
  case LITERAL_VALUE: return json_is_blank(byte) ? CALL_MORE : begin_value(call, byte);
  case LITERAL_ITEM: return item_byte(call, byte);
  case LITERAL_ITEM_KEY: return item_key_byte(call, byte);
  case LITERAL_COLON:
    if (json_is_blank(byte)) return CALL_MORE;
    return byte == ':' ? more(call, LITERAL_VALUE) : CALL_BAD;
  case LITERAL_MARK: return mark_byte(call, byte);
  case LITERAL_MARKED: return marked_byte(call, byte);
  case LITERAL_STRING: return string_byte(call, byte);
  case LITERAL_WORD: return word_byte(call, byte, sink);
  case LITERAL_AFTER: break;
  }
  return after_byte(call, byte, sink);
}

/* ---- a call that is cut ---- */

/* What has come of a string of the arguments, without a piece of the mark that ends it. */
static void put_open_text(literal_call_t *call) {
  const char *mark = call->words->string_mark;
  size_t length = call->text.length, most = 0;
  for (size_t n = 1; call->state == LITERAL_MARKED && n < strlen(mark) && n <= length; n++) {
    if (memcmp(call->text.data + length - n, mark, n) == 0) most = n;
  }
  put_text_of(call, length - most);
  if (!call->out.failed) call->out.length--; /* the string is open */
}

void literal_call_cut(literal_call_t *call, const output_sink_t *sink) {
  bool text = call->state == LITERAL_STRING || call->state == LITERAL_MARKED;
  if (call->state == LITERAL_NAME) return;
  if (text && !call->is_key) put_open_text(call);
  if (call->repeated > 0) call->out.length = call->repeated;
  sink->take(sink->context, OUTPUT_CALL_BEGIN, call->name.data, call->name.length);
  if (call->out.length > 0)
    sink->take(sink->context, OUTPUT_CALL_TEXT, call->out.data, call->out.length);
  sink->take(sink->context, OUTPUT_CALL_END, "", 0);
}

bool literal_call_may_be(const literal_call_t *call) {
  const buffer_t *name = &call->name;
  if (call->state != LITERAL_NAME || name->length == 0) return true;
  JSON_EACH(tool, call->functions) {
    const json_t *its = json_get(json_get(tool, "function"), "name");
    bool fits = its != NULL && its->length >= name->length;
    if (fits && memcmp(its->text, name->data, name->length) == 0) return true;
  }
  return false;
}
