/* named.c: one pass over the outermost object of a body, or over the parts of a form. Pure;
 * allocates for the name alone. */
#include "server/models/named.h"

#include "engine/base/hex.h"
#include "engine/base/json.h"
#include "engine/base/util.h"

#include <stdio.h>
#include <string.h>

/* Where in the outermost object the pass is. */
enum { AT_OBJECT, AT_KEY, IN_KEY, AT_COLON, AT_VALUE, IN_VALUE, AT_END };

static bool is_blank(char byte) {
  return byte == ' ' || byte == '\t' || byte == '\r' || byte == '\n';
}

void named_begin(named_scan_t *scan, const char *text, size_t length) {
  bool marked = length >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0;
  *scan = (named_scan_t){.text = text, .length = length, .at = marked ? 3 : 0};
}

/* The character that begins here, if it is one of ASCII, and its bytes; 0: it is none. */
static char ascii_at(const char *at, const char *end, size_t *bytes) {
  int code = 0;
  *bytes = 1;
  if (*at != '\\') return *at;
  if (end - at < 6 || at[1] != 'u') return 0;
  *bytes = 6;
  for (int i = 2; i < 6; i++) {
    int digit = hex_value(at[i]);
    if (digit < 0) return 0;
    code = code * 16 + digit;
  }
  return (char)(code < 128 ? code : 0);
}

/* Compares a string of the text, quotes and escapes and all, with a word of letters. */
static bool is_string(const char *begin, const char *end, const char *word) {
  const char *at = begin + 1, *last = end - 1;
  for (size_t bytes; *word != '\0' && at < last; word++, at += bytes) {
    if (ascii_at(at, last, &bytes) != *word) return false;
  }
  return *word == '\0' && at == last;
}

static int fail_end(inferd_error_t *error) {
  return error_set(error, ERR_INVALID_JSON, NULL, "The body is not a JSON object.");
}

static const char *type_of(char first) {
  if (first == '{') return "an object";
  if (first == '[') return "an array";
  if (first == 't' || first == 'f') return "a boolean";
  return "a number";
}

/* Nothing is parsed that cannot be a name. */
static int take_model(const char *begin, const char *end, named_t *out, inferd_error_t *error) {
  json_doc_t *doc = NULL;
  size_t length = (size_t)(end - begin);
  out->model[0] = '\0';
  if (*begin == 'n') return 0;
  if (*begin != '"')
    return error_set(error, ERR_INVALID_TYPE, "model", "'model' must be a string, but is %s.",
                     type_of(*begin));
  int code = length <= 6 * sizeof out->model
                 ? json_parse(begin, length, &json_limits_request, &doc, error)
                 : ERR_MODEL_NOT_FOUND;
  const json_t *value = code == 0 ? json_root(doc) : NULL;
  bool fits = value != NULL && value->length < sizeof out->model &&
              memchr(value->text, '\0', value->length) == NULL;
  if (fits)
    snprintf(out->model, sizeof out->model, "%.*s", (int)value->length, value->text);
  else if (code == 0 || code == ERR_MODEL_NOT_FOUND)
    code = error_set(error, ERR_MODEL_NOT_FOUND, "model", "No model has a name of %zu bytes.",
                     value != NULL ? (size_t)value->length : length - 2);
  json_free(doc);
  return code;
}

static int check_given(const named_t *named, inferd_error_t *error) {
  if (named->model[0] != '\0') return 0;
  return error_set(error, ERR_MISSING_PARAMETER, "model",
                   "'model' must be provided: this server has several; GET /v1/models lists them.");
}

/* A member is complete; the byte behind it is at scan->at. */
static int take_member(named_scan_t *scan, inferd_error_t *error) {
  const char *key = scan->text + scan->key, *key_end = scan->text + scan->key_end;
  const char *value = scan->text + scan->value, *end = scan->text + scan->value_end;
  if (is_string(key, key_end, "stream"))
    scan->named.stream = end - value == 4 && memcmp(value, "true", 4) == 0;
  return is_string(key, key_end, "model") ? take_model(value, end, &scan->named, error) : 0;
}

/* Moves on in a string. Returns true at its end, behind which scan->at then is. */
static bool pass_string(named_scan_t *scan, size_t limit) {
  const char *text = scan->text;
  size_t at = scan->at;
  for (; at < limit; at++) {
    if (scan->escaped) {
      scan->escaped = false;
    } else if (text[at] == '\\') {
      scan->escaped = true;
    } else if (text[at] == '"') {
      scan->in_string = false;
      scan->at = at + 1;
      return true;
    }
  }
  scan->at = at;
  return false;
}

/* Moves on in a value. Returns true at the comma or bracket that follows it. */
static bool pass_value(named_scan_t *scan, size_t limit) {
  while (scan->at < limit) {
    char c = scan->text[scan->at];
    if (scan->in_string) {
      pass_string(scan, limit);
      scan->value_end = scan->at;
      continue;
    }
    if (scan->depth == 0 && (c == ',' || c == '}' || c == ']')) return true;
    scan->in_string = c == '"';
    scan->depth += (c == '{' || c == '[') - (c == '}' || c == ']');
    scan->at++;
    if (!is_blank(c)) scan->value_end = scan->at;
  }
  return false;
}

/* Takes the byte at scan->at outside of strings and values. */
static int pass_mark(named_scan_t *scan, char byte, inferd_error_t *error) {
  static const char marks[] = {[AT_OBJECT] = '{', [AT_KEY] = '"', [AT_COLON] = ':'};
  static const int next[] = {[AT_OBJECT] = AT_KEY, [AT_KEY] = IN_KEY, [AT_COLON] = AT_VALUE};
  if (scan->place == AT_KEY && byte == '}') {
    scan->place = AT_END;
  } else if (byte == marks[scan->place]) {
    if (scan->place == AT_KEY) scan->key = scan->at;
    scan->place = next[scan->place];
    scan->at++;
  } else {
    return fail_end(error);
  }
  return 0;
}

/* ---- forms ---- */

int named_begin_form(named_scan_t *scan, const char *type, const char *text, size_t length,
                     inferd_error_t *error) {
  *scan = (named_scan_t){.text = text, .length = length, .is_form = true};
  return multipart_begin(type, text, length, &scan->form, error);
}

static int fail_length(size_t length, inferd_error_t *error) {
  return error_set(error, ERR_MODEL_NOT_FOUND, "model", "No model has a name of %zu bytes.",
                   length);
}

static int take_part(const multipart_part_t *part, named_t *out, inferd_error_t *error) {
  if (strcmp(part->name, "stream") == 0)
    out->stream = part->length == 4 && memcmp(part->bytes, "true", 4) == 0;
  if (strcmp(part->name, "model") != 0) return 0;
  if (part->file[0] != '\0')
    return error_set(error, ERR_INVALID_TYPE, "model", "'model' must be a string, but is a file.");
  if (part->length >= sizeof out->model || memchr(part->bytes, '\0', part->length) != NULL)
    return fail_length(part->length, error);
  snprintf(out->model, sizeof out->model, "%.*s", (int)part->length, part->bytes);
  return 0;
}

/* The headers of a part, which it may read in addition, are few bytes. */
static int step_form(named_scan_t *scan, size_t most, inferd_error_t *error) {
  const size_t end = scan->form.at + most;
  int code = MULTIPART_PART, taken = 0;
  while (code == MULTIPART_PART && taken == 0 && scan->form.at < end) {
    code = multipart_step(&scan->form, end - scan->form.at, error);
    if (code == MULTIPART_PART) taken = take_part(&scan->form.part, &scan->named, error);
  }
  scan->at = scan->form.at;
  if (taken != 0) return taken;
  if (code == 0) return check_given(&scan->named, error);
  return code < 0 ? code : NAMED_MORE;
}

/* ---- the whole ---- */

int named_step(named_scan_t *scan, size_t most, inferd_error_t *error) {
  if (scan->is_form) return step_form(scan, most, error);
  size_t limit = scan->at + MIN(most, scan->length - scan->at);
  int code = 0;
  while (code == 0 && scan->at < limit && scan->place != AT_END) {
    char c = scan->text[scan->at];
    if (scan->place == IN_KEY) {
      if (!pass_string(scan, limit)) continue;
      scan->key_end = scan->at;
      scan->place = AT_COLON;
    } else if (scan->place == IN_VALUE) {
      if (!pass_value(scan, limit)) continue;
      code = take_member(scan, error);
      scan->at += scan->text[scan->at] == ',';
      scan->place = AT_KEY;
    } else if (is_blank(c)) {
      scan->at++;
    } else if (scan->place == AT_VALUE) {
      scan->value = scan->value_end = scan->at;
      scan->place = IN_VALUE;
    } else {
      code = pass_mark(scan, c, error);
    }
  }
  if (code != 0) return code;
  if (scan->place == AT_END) return check_given(&scan->named, error);
  return scan->at < scan->length ? NAMED_MORE : fail_end(error);
}

int named_word(const char *word, named_t *out, inferd_error_t *error) {
  *out = (named_t){0};
  if (strlen(word) >= sizeof out->model) return fail_length(strlen(word), error);
  snprintf(out->model, sizeof out->model, "%s", word);
  return check_given(out, error);
}
