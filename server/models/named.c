/* named.c: one pass over the outermost object of a body. Pure; allocates for the name alone. */
#include "server/models/named.h"

#include "engine/base/json.h"

#include <stdio.h>
#include <string.h>

typedef struct body_scan {
  const char *at, *end;
} body_scan_t;

static void skip_blank(body_scan_t *scan) {
  while (scan->at < scan->end && strchr(" \t\r\n", *scan->at) != NULL && *scan->at != '\0')
    scan->at++;
}

/* Moves behind the string that begins here. False: it does not end. */
static bool skip_string(body_scan_t *scan) {
  for (scan->at++; scan->at < scan->end; scan->at++) {
    if (*scan->at == '\\') {
      scan->at++;
    } else if (*scan->at == '"') {
      scan->at++;
      return true;
    }
  }
  return false;
}

/* Moves behind the value that begins here: to the comma or bracket that follows it. */
static bool skip_value(body_scan_t *scan) {
  int depth = 0;
  while (scan->at < scan->end) {
    char c = *scan->at;
    if (c == '"') {
      if (!skip_string(scan)) return false;
      continue;
    }
    if (depth == 0 && (c == ',' || c == '}' || c == ']')) return true;
    depth += (c == '{' || c == '[') - (c == '}' || c == ']');
    scan->at++;
  }
  return false;
}

/* Compares a string, escapes and all, with a name. */
static bool is_string(const char *begin, const char *end, const char *name) {
  json_doc_t *doc = NULL;
  inferd_error_t ignored;
  size_t length = (size_t)(end - begin);
  if (memchr(begin, '\\', length) == NULL)
    return length == strlen(name) + 2 && memcmp(begin + 1, name, length - 2) == 0;
  bool equal = json_parse(begin, length, &json_limits_request, &doc, &ignored) == 0 &&
               json_equals(json_root(doc), name);
  json_free(doc);
  return equal;
}

static int fail_end(inferd_error_t *error) {
  return error_set(error, ERR_INVALID_JSON, NULL, "The body is not a JSON object.");
}

static int take_model(const char *begin, const char *end, named_t *out, inferd_error_t *error) {
  json_doc_t *doc = NULL;
  int code = json_parse(begin, (size_t)(end - begin), &json_limits_request, &doc, error);
  const json_t *value = code == 0 ? json_root(doc) : NULL;
  if (code == 0 && value->type != JSON_STRING && value->type != JSON_NULL)
    code = error_set(error, ERR_INVALID_TYPE, "model", "'model' must be a string, but is %s.",
                     json_type_name(value));
  if (code == 0 && value->type == JSON_STRING &&
      (value->length >= sizeof out->model || memchr(value->text, '\0', value->length) != NULL))
    code = error_set(error, ERR_MODEL_NOT_FOUND, "model", "No model has a name of %u bytes.",
                     value->length);
  if (code == 0 && value->type == JSON_STRING)
    snprintf(out->model, sizeof out->model, "%.*s", (int)value->length, value->text);
  json_free(doc);
  return code;
}

static int check_given(const named_t *named, inferd_error_t *error) {
  if (named->model[0] != '\0') return 0;
  return error_set(error, ERR_MISSING_PARAMETER, "model",
                   "'model' must be provided: this server has several; GET /v1/models lists them.");
}

int named_read(const char *text, size_t length, named_t *out, inferd_error_t *error) {
  body_scan_t scan = {text, text + length};
  *out = (named_t){0};
  if (length >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) scan.at += 3;
  skip_blank(&scan);
  if (scan.at == scan.end || *scan.at++ != '{') return fail_end(error);
  skip_blank(&scan);
  while (scan.at < scan.end && *scan.at == '"') {
    const char *key = scan.at;
    if (!skip_string(&scan)) return fail_end(error);
    const char *key_end = scan.at;
    skip_blank(&scan);
    if (scan.at == scan.end || *scan.at++ != ':') return fail_end(error);
    skip_blank(&scan);
    const char *value = scan.at;
    if (!skip_value(&scan)) return fail_end(error);
    int code = 0;
    if (is_string(key, key_end, "model")) code = take_model(value, scan.at, out, error);
    if (code != 0) return code;
    if (is_string(key, key_end, "stream"))
      out->stream = (size_t)(scan.at - value) >= 4 && memcmp(value, "true", 4) == 0;
    if (*scan.at == ',') scan.at++;
    skip_blank(&scan);
  }
  if (scan.at == scan.end || *scan.at != '}') return fail_end(error);
  return check_given(out, error);
}

int named_word(const char *word, named_t *out, inferd_error_t *error) {
  *out = (named_t){0};
  if (strlen(word) >= sizeof out->model)
    return error_set(error, ERR_MODEL_NOT_FOUND, "model", "No model has a name of %zu bytes.",
                     strlen(word));
  snprintf(out->model, sizeof out->model, "%s", word);
  return check_given(out, error);
}
