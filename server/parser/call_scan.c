/* call_scan.c: parses one tool call byte by byte; see call_scan.h. Runs on the thread that owns the
 * choice; allocates only as values grow. */
#include "server/parser/call_scan.h"

#include "engine/base/json.h"
#include "engine/base/util.h"
#include "server/parser/argument.h"

#include <string.h>

static void reset(call_scan_t *scan) {
  *scan = (call_scan_t){.value = scan->value, .name = scan->name, .id = scan->id};
  buffer_clear(&scan->value);
  buffer_clear(&scan->name);
  buffer_clear(&scan->id);
}

void call_scan_start(call_scan_t *scan) {
  reset(scan);
}

void call_scan_start_named(call_scan_t *scan, const char *name, size_t length) {
  reset(scan);
  scan->only_arguments = scan->has_name = true;
  buffer_append(&scan->name, name, length);
}

void call_scan_free(call_scan_t *scan) {
  buffer_free(&scan->value);
  buffer_free(&scan->name);
  buffer_free(&scan->id);
}

bool call_scan_failed(const call_scan_t *scan) {
  return scan->value.failed || scan->name.failed || scan->id.failed;
}

static void say(const output_sink_t *sink, output_kind_t kind, const buffer_t *text) {
  sink->take(sink->context, kind, text->data, text->length);
}

void call_scan_flush(call_scan_t *scan, const output_sink_t *sink) {
  if (!scan->streaming || scan->value.length == 0) return;
  say(sink, OUTPUT_CALL_TEXT, &scan->value);
  buffer_clear(&scan->value);
}

static void begin(call_scan_t *scan, const output_sink_t *sink) {
  scan->streaming = true;
  if (scan->id.length > 0) say(sink, OUTPUT_CALL_ID, &scan->id);
  say(sink, OUTPUT_CALL_BEGIN, &scan->name);
}

/* Replaces the JSON string in `text` by its decoded text. Returns false if `text` is no JSON
 * string. */
static bool decode(buffer_t *text) {
  json_doc_t *doc = NULL;
  buffer_t plain = {0};
  if (json_parse(text->data, text->length, &json_limits_request, &doc, NULL) != 0) return false;
  const json_t *root = json_root(doc);
  bool is_string = root->type == JSON_STRING;
  if (is_string) {
    buffer_append(&plain, root->text, root->length);
    buffer_clear(text);
    buffer_append(text, plain.data, plain.length);
  }
  json_free(doc);
  buffer_free(&plain);
  return is_string;
}

static bool is_object(const buffer_t *text) {
  json_doc_t *doc = NULL;
  if (json_parse(text->data, text->length, &json_limits_request, &doc, NULL) != 0) return false;
  bool object = json_root(doc)->type == JSON_OBJECT;
  json_free(doc);
  return object;
}

/* Checks arguments that were collected as a whole: an object, a string that holds an object, or
 * null. Leaves the object in `value`. */
static bool settle_arguments(buffer_t *value) {
  if (value->length == 0) return false;
  if (value->data[0] == '{') return true;
  bool is_null = value->length == 4 && memcmp(value->data, "null", 4) == 0;
  if (!is_null && (value->data[0] != '"' || !decode(value))) return false;
  if (is_null || value->length == 0) {
    buffer_clear(value);
    buffer_text(value, "{}");
    return true;
  }
  return is_object(value);
}

static call_member_t member_of(const call_scan_t *scan) {
  static const struct {
    const char *key;
    call_member_t member;
  } keys[] = {{"name", MEMBER_NAME},
              {"tool_name", MEMBER_NAME},
              {"arguments", MEMBER_ARGUMENTS},
              {"parameters", MEMBER_ARGUMENTS}};
  for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
    if (strlen(keys[i].key) == scan->key_length &&
        memcmp(keys[i].key, scan->key, scan->key_length) == 0) {
      return keys[i].member;
    }
  }
  return MEMBER_OTHER;
}

/* Begins the value of a member. Returns false if the call had that member before, or if its name
 * should have come first. */
static bool begin_value(call_scan_t *scan) {
  scan->in_value = true;
  if (scan->name_is_key) {
    bool fine = !scan->has_name && scan->name.length > 0;
    scan->member = MEMBER_ARGUMENTS;
    scan->has_name = true;
    return fine;
  }
  scan->member = member_of(scan);
  if (scan->member == MEMBER_NAME) return !scan->has_name;
  if (scan->known_first && !scan->has_name) return false;
  return scan->member == MEMBER_OTHER || !scan->has_arguments;
}

static bool end_value(call_scan_t *scan, const output_sink_t *sink) {
  scan->in_value = false;
  switch (scan->member) {
  case MEMBER_OTHER: return true;
  case MEMBER_NAME:
    scan->has_name = true;
    if (!decode(&scan->name) || scan->name.length == 0) return false;
    if (scan->name.length > CALL_NAME_BYTES_MAX) return false;
    return !scan->known_first ||
           argument_function(scan->functions, scan->name.data, scan->name.length) != NULL;
  case MEMBER_ARGUMENTS: break;
  }
  scan->has_arguments = true;
  if (!scan->streaming) return settle_arguments(&scan->value);
  call_scan_flush(scan, sink);
  return true;
}

static void keep(call_scan_t *scan, char byte) {
  if (scan->member == MEMBER_ARGUMENTS) buffer_char(&scan->value, byte);
  /* An escaped name is at most six times as long. A longer one is refused at its end. */
  if (scan->member == MEMBER_NAME && scan->name.length <= 6 * CALL_NAME_BYTES_MAX + 2) {
    buffer_char(&scan->name, byte);
  }
}

static call_result_t finish(call_scan_t *scan, const output_sink_t *sink) {
  if (!scan->has_name || (scan->needs_arguments && !scan->has_arguments)) return CALL_BAD;
  if (!scan->streaming) {
    begin(scan, sink);
    if (!scan->has_arguments) buffer_text(&scan->value, "{}");
  }
  call_scan_flush(scan, sink);
  sink->take(sink->context, OUTPUT_CALL_END, "", 0);
  return CALL_DONE;
}

static bool in_number(json_scan_state_t state) {
  return state >= SCAN_MINUS && state <= SCAN_EXPONENT_DIGITS;
}

/* Takes one byte inside the outermost object, or the byte that follows it. */
static call_result_t member_byte(call_scan_t *scan, char byte, json_scan_t before,
                                 const output_sink_t *sink) {
  json_scan_state_t state = scan->json.state;
  bool top = before.depth == 1;
  if (top && state == SCAN_IN_KEY) {
    if (before.state != SCAN_IN_KEY) {
      scan->key_length = 0;
    } else if (scan->name_is_key && scan->has_name) {
      return CALL_BAD;
    } else if (scan->name_is_key) {
      if (byte == '\\' || scan->name.length == CALL_NAME_BYTES_MAX) return CALL_BAD;
      buffer_char(&scan->name, byte);
    } else if (scan->key_length < CALL_KEY_BYTES_MAX) {
      scan->key[scan->key_length++] = byte;
    }
  }
  if (top && before.state == SCAN_VALUE && state != SCAN_VALUE && !begin_value(scan)) {
    return CALL_BAD;
  }
  bool first_key = scan->json.depth == 2 && before.state == SCAN_FIRST_KEY && state == SCAN_IN_KEY;
  if (first_key && scan->member == MEMBER_ARGUMENTS && scan->has_name && !scan->whole) {
    begin(scan, sink);
  }
  if (scan->in_value) {
    bool behind = top && in_number(before.state) && !in_number(state);
    if (!behind) keep(scan, byte);
    bool ends = behind || (scan->json.depth == 1 && state == SCAN_AFTER);
    if (ends && !end_value(scan, sink)) return CALL_BAD;
  }
  return state == SCAN_DONE ? finish(scan, sink) : CALL_MORE;
}

call_result_t call_scan_byte(call_scan_t *scan, char byte, const output_sink_t *sink) {
  json_scan_t before = scan->json;
  json_scan_state_t state = json_scan_byte(&scan->json, byte);
  if (state == SCAN_BAD) return CALL_BAD;
  if (before.depth == 0 && byte != '{') return CALL_BAD;
  if (!scan->only_arguments) return member_byte(scan, byte, before, sink);
  if (!scan->streaming && !scan->whole && state == SCAN_IN_KEY) begin(scan, sink);
  scan->has_arguments = true;
  buffer_char(&scan->value, byte);
  return state == SCAN_DONE ? finish(scan, sink) : CALL_MORE;
}

/* ---- a call that is cut ---- */

void call_scan_cut(call_scan_t *scan, const output_sink_t *sink) {
  if (!scan->has_name) return;
  bool object = scan->value.length > 0 && scan->value.data[0] == '{';
  if (!scan->streaming && !object) buffer_clear(&scan->value); /* a part of a string or of null */
  if (!scan->streaming) begin(scan, sink);
  call_scan_flush(scan, sink);
  sink->take(sink->context, OUTPUT_CALL_END, "", 0);
}

bool call_scan_may_be(const call_scan_t *scan, const json_t *functions) {
  static const char key[] = "name";
  const buffer_t *name = &scan->name;
  if (scan->has_name) return argument_function(functions, name->data, name->length) != NULL;
  if (!scan->in_value) {
    bool first = scan->json.state != SCAN_AFTER && scan->json.state != SCAN_KEY;
    size_t length = scan->key_length;
    return first && length <= sizeof key - 1 && memcmp(scan->key, key, length) == 0;
  }
  if (scan->member != MEMBER_NAME) return false;
  JSON_EACH(tool, functions) { /* the quote that begins the name stands before it */
    const json_t *its = json_get(json_get(tool, "function"), "name");
    bool fits = its != NULL && its->length + 1 >= name->length;
    if (fits && memcmp(its->text, name->data + 1, name->length - 1) == 0) return true;
  }
  return false;
}
