/* fields.c: the walk over a table of request fields, and the readers of the plain kinds.
 *
 * Runs on the loop thread for small bodies and in libuv's pool for large ones. Never keeps state.
 * Messages hold the field's name, the bound, and a short value as the client wrote it.
 */
#include "server/fields/fields.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

const json_limits_t json_limits_translated = {80, 3000000, 256, false, false, false};

int field_no_memory(reader_t *reader) {
  return error_set(reader->error, ERR_INTERNAL, NULL, "Out of memory while reading the request.");
}

int field_fail_type(reader_t *reader, const char *name, const char *expected, const json_t *value) {
  return error_set(reader->error, ERR_INVALID_TYPE, name,
                   "Invalid type for '%s': expected %s, but got %s instead.", name, expected,
                   json_type_name(value));
}

const char *field_shown(char out[FIELD_SHOWN_MAX], const json_t *value) {
  char text[FIELD_SHOWN_MAX - 2];
  if (value == NULL) return "nothing";
  if (value->type != JSON_NUMBER && value->type != JSON_STRING) return json_type_name(value);
  error_quote(text, sizeof text, value->text, value->length);
  const char *quote = value->type == JSON_STRING ? "'" : "";
  snprintf(out, FIELD_SHOWN_MAX, "%s%s%s", quote, text, quote);
  return out;
}

int field_fail_value(reader_t *reader, const char *name, const char *expected,
                     const json_t *value) {
  char shown[FIELD_SHOWN_MAX];
  return error_set(reader->error, ERR_INVALID_VALUE, name,
                   "Invalid '%s': expected %s, but got %s instead.", name, expected,
                   field_shown(shown, value));
}

static int fail_integer_range(reader_t *reader, const char *name, const json_t *value, bool below,
                              double bound) {
  /* No double equals the largest int64, so 2^63 stands for it. */
  int64_t limit = bound >= 0x1p63 ? INT64_MAX : (int64_t)bound;
  char shown[FIELD_SHOWN_MAX];
  if (below) {
    return error_set(reader->error, ERR_BELOW_MIN, name,
                     "Invalid '%s': integer below minimum value. Expected a value >= %" PRId64
                     ", but got %s instead.",
                     name, limit, field_shown(shown, value));
  }
  return error_set(reader->error, ERR_ABOVE_MAX, name,
                   "Invalid '%s': integer above maximum value. Expected a value <= %" PRId64
                   ", but got %s instead.",
                   name, limit, field_shown(shown, value));
}

int field_fail_limit(inferd_error_t *error, const char *name, int64_t value) {
  return error_set(error, ERR_BELOW_MIN, name,
                   "Invalid '%s': integer below minimum value. Expected a value >= 1, or -1 for no "
                   "limit, but got %" PRId64 " instead%s.",
                   name, value, value == 0 ? " (0 scores a prompt and needs 'echo')" : "");
}

/* Bounds beyond +-2^53 mean the whole int64 range. */
int field_integer(reader_t *reader, const char *name, const json_t *value, double min, double max,
                  int64_t *out) {
  if (value->type != JSON_NUMBER) return field_fail_type(reader, name, "an integer", value);
  double approximate;
  if (!json_int64(value, out)) {
    if (!json_double(value, &approximate))
      return fail_integer_range(reader, name, value, false, max);
    if (approximate != floor(approximate)) {
      return error_set(reader->error, ERR_INVALID_TYPE, name,
                       "Invalid type for '%s': expected an integer, but got a decimal number "
                       "instead.",
                       name);
    }
    return fail_integer_range(reader, name, value, approximate < 0, approximate < 0 ? min : max);
  }
  if ((double)*out < min) return fail_integer_range(reader, name, value, true, min);
  if ((double)*out > max) return fail_integer_range(reader, name, value, false, max);
  return 0;
}

int field_float(reader_t *reader, const char *name, const json_t *value, const field_t *field,
                float *out) {
  bool open = (field->flags & FIELD_OPEN_MIN) != 0;
  if (value->type != JSON_NUMBER) return field_fail_type(reader, name, "a number", value);
  double number;
  if (!json_double(value, &number) || !isfinite(number) || number > field->max ||
      (open ? number <= field->min : number < field->min)) {
    char expected[64];
    snprintf(expected, sizeof expected, "a number %s %g and <= %g", open ? ">" : ">=", field->min,
             field->max);
    return field_fail_value(reader, name, expected, value);
  }
  *out = (float)number;
  /* Rounding to float must not move a value onto an open bound. */
  if (open && (double)*out <= field->min) *out = nextafterf((float)field->min, INFINITY);
  return 0;
}

int field_string(reader_t *reader, const char *name, const json_t *value, double min, double max) {
  if (value->type != JSON_STRING) return field_fail_type(reader, name, "a string", value);
  if (value->length < min || value->length > max) {
    return error_set(reader->error, ERR_INVALID_VALUE, name,
                     "Invalid '%s': expected a string of %.0f to %.0f bytes, but got one of %u.",
                     name, min, max, value->length);
  }
  return 0;
}

int field_ids(reader_t *reader, const char *name, const json_t *value, double min, double max,
              id_list_t *out) {
  if (value->type != JSON_ARRAY) {
    return field_fail_type(reader, name, "an array of token ids", value);
  }
  if (value->count < min || value->count > max) {
    return error_set(reader->error, ERR_INVALID_VALUE, name,
                     "Invalid '%s': expected an array of %.0f to %.0f token ids, but got %u.", name,
                     min, max, value->count);
  }
  int32_t *ids = arena_calloc(reader->arena, value->count, sizeof *ids);
  if (ids == NULL) return field_no_memory(reader);
  int32_t count = 0;
  JSON_EACH(element, value) {
    int64_t id;
    if (element->type != JSON_NUMBER) {
      return field_fail_type(reader, name, "an array of token ids", element);
    }
    if (!json_int64(element, &id)) {
      return error_set(reader->error, ERR_INVALID_TYPE, name,
                       "Invalid type for '%s': a token id is not an integer.", name);
    }
    if (id < 0 || id >= reader->limits->vocab_size) {
      return error_set(reader->error, ERR_INVALID_VALUE, name,
                       "Token id %" PRId64 " is out of vocabulary. Ids in '%s' must be in the "
                       "range 0 to %" PRId32 ".",
                       id, name, reader->limits->vocab_size - 1);
    }
    ids[count++] = (int32_t)id;
  }
  *out = (id_list_t){ids, count, true};
  return 0;
}

/* Returns true for names that need no escaping in a header and in a log line. */
static bool plain_name(const char *name, size_t length) {
  if (length == 0 || length > 64) return false;
  for (size_t i = 0; i < length; i++) {
    char c = name[i];
    bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (!letter && !(c >= '0' && c <= '9') && c != '_' && c != '-' && c != '.') return false;
  }
  return true;
}

void field_name_ignored(char *ignored, const char *name) {
  size_t used = strlen(ignored), length = strlen(name);
  if (used + (used != 0) + length >= IGNORED_NAMES_MAX) return;
  if (used != 0) ignored[used++] = ',';
  memcpy(ignored + used, name, length + 1);
}

void field_name_mended(reader_t *reader, const char *place, const char *what) {
  char *list = reader->mended;
  size_t used = strlen(list), left = sizeof reader->mended - used;
  const char *comma = used != 0 ? "," : "", *colon = place[0] != '\0' ? ":" : "";
  size_t wanted = strlen(comma) + strlen(place) + strlen(colon) + strlen(what);
  if (used >= 3 && strcmp(list + used - 3, "...") == 0) return;
  bool fits = wanted + sizeof ",..." <= left;
  snprintf(list + used, left, "%s%s%s%s", comma, fits ? place : "", fits ? colon : "",
           fits ? what : "...");
}

int field_unknown(reader_t *reader, const char *prefix, const char *name, size_t length) {
  char shown[ERROR_PARAM_MAX];
  bool plain = plain_name(name, length);
  snprintf(shown, sizeof shown, "%s%.*s", prefix, plain ? (int)length : 1, plain ? name : "?");
  if (reader->limits->strict) {
    return error_set(reader->error, ERR_UNKNOWN_PARAMETER, shown, "Unknown parameter: '%s'.",
                     shown);
  }
  field_name_ignored(reader->ignored, shown);
  return 0;
}

const field_t *fields_find(const field_table_t *table, const char *name, size_t length) {
  for (size_t i = 0; i < table->count; i++) {
    const field_t *row = &table->rows[i];
    if (length == 0 || row->name[0] != name[0]) continue;
    size_t row_length = strlen(row->name);
    if (row_length > length || memcmp(row->name, name, row_length) != 0) continue;
    if (row_length == length || (row->flags & FIELD_PREFIX) != 0) return row;
  }
  return table->base != NULL ? fields_find(table->base, name, length) : NULL;
}

void fields_default(const field_table_t *table, void *out) {
  if (table->base != NULL) fields_default(table->base, out);
  for (size_t i = 0; i < table->count; i++) {
    const field_t *row = &table->rows[i];
    char *place = (char *)out + row->offset;
    if (row->kind == FIELD_BOOL) *(bool *)place = row->fallback != 0;
    if (row->kind == FIELD_INT) *(int64_t *)(void *)place = (int64_t)row->fallback;
    if (row->kind == FIELD_NUMBER) *(float *)(void *)place = (float)row->fallback;
    if (row->kind == FIELD_STRING) *(const json_t **)(void *)place = NULL;
    if (row->kind == FIELD_IDS) *(id_list_t *)(void *)place = (id_list_t){0};
  }
}

static bool changes_nothing(const field_t *row, const json_t *value) {
  double number;
  if ((row->flags & NOOP_FALSE) != 0 && value->type == JSON_FALSE) return true;
  if ((row->flags & NOOP_EMPTY) != 0) {
    if (value->type == JSON_STRING && value->length == 0) return true;
    bool container = value->type == JSON_ARRAY || value->type == JSON_OBJECT;
    if (container && value->count == 0) return true;
  }
  if ((row->flags & NOOP_NUMBERS) != 0 && value->type == JSON_NUMBER) {
    return json_double(value, &number) && (number == row->min || number == row->max);
  }
  if ((row->flags & NOOP_TEXT_FORMAT) != 0 && value->type == JSON_OBJECT) {
    return json_equals(json_get(value, "type"), "text");
  }
  return false;
}

static int refuse(reader_t *reader, const field_t *row, const json_t *value) {
  char name[ERROR_PARAM_MAX];
  snprintf(name, sizeof name, "%.*s", (int)value->key_length, value->key);
  if (changes_nothing(row, value)) return 0;
  return error_set(reader->error, ERR_UNSUPPORTED_PARAMETER, name,
                   "The parameter '%s' is not supported%s.", name,
                   row->hint != NULL ? row->hint : " yet");
}

/* A number of alternatives; -1 means the whole vocabulary. */
static int read_alternatives(reader_t *reader, const field_t *row, const json_t *value,
                             int64_t *out) {
  int32_t max = reader->limits->max_logprobs, vocab = reader->limits->vocab_size;
  int code = field_integer(reader, row->name, value, -1, max, out);
  if (code != 0) return code;
  if (*out != -1) return 0;
  *out = vocab;
  if (vocab <= max) return 0;
  return error_set(reader->error, ERR_ABOVE_MAX, row->name,
                   "Invalid '%s': the whole vocabulary (-1), %" PRId32 " tokens, is more than the "
                   "%" PRId32 " alternatives that this server allows.",
                   row->name, vocab, max);
}

int field_read(reader_t *reader, const field_t *row, const json_t *value) {
  char *place = (char *)reader->out + row->offset;
  switch (row->kind) {
  case FIELD_BOOL:
    if (!json_bool(value, (bool *)place)) {
      return field_fail_type(reader, row->name, "a boolean", value);
    }
    return 0;
  case FIELD_INT: {
    double min = row->min, max = row->max;
    if ((row->flags & FIELD_ALTERNATIVES) != 0) {
      return read_alternatives(reader, row, value, (int64_t *)(void *)place);
    }
    if ((row->flags & FIELD_WHOLE_INT64) != 0) min = -0x1p63, max = 0x1p63;
    int64_t below;
    if ((row->flags & FIELD_MAY_END) != 0 && json_int64(value, &below) && below < -1) {
      return field_fail_limit(reader->error, row->name, below);
    }
    return field_integer(reader, row->name, value, min, max, (int64_t *)(void *)place);
  }
  case FIELD_NUMBER: return field_float(reader, row->name, value, row, (float *)(void *)place);
  case FIELD_STRING:
    *(const json_t **)(void *)place = value;
    return field_string(reader, row->name, value, row->min, row->max);
  case FIELD_IDS:
    return field_ids(reader, row->name, value, row->min, row->max, (id_list_t *)(void *)place);
  case FIELD_CUSTOM: return row->read(reader, row, value);
  case FIELD_REFUSED: return refuse(reader, row, value);
  case FIELD_IGNORED:
    if ((row->flags & FIELD_NAMED) != 0) field_name_ignored(reader->ignored, row->name);
    return row->read != NULL ? row->read(reader, row, value) : 0;
  }
  return 0;
}

int fields_read(const field_table_t *table, reader_t *reader, const json_t *root) {
  if (root->type != JSON_OBJECT) {
    return error_set(reader->error, ERR_INVALID_JSON, NULL,
                     "The request body must be a JSON object.");
  }
  JSON_EACH(value, root) {
    const field_t *row = fields_find(table, value->key, value->key_length);
    int code = 0;
    if (row == NULL) {
      code = field_unknown(reader, "", value->key, value->key_length);
    } else if (value->type != JSON_NULL) {
      code = field_read(reader, row, value);
    }
    if (code != 0) return code;
  }
  return 0;
}
