/* options.c: `options` and `keep_alive` of a request of Ollama's.
 *
 * Loop thread or libuv's pool; keeps no state. The table of fields checks every option; what chat
 * has is handed on as the client wrote it, under the name that chat has for it.
 */
#include "server/ollama/ollama.h"

#include "engine/base/util.h"
#include "server/dialect/rename.h"
#include "server/fields/params_read.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef struct options {
  float temperature, top_p, min_p, repeat_penalty, presence_penalty, frequency_penalty;
  int64_t top_k, seed, num_predict, num_ctx, repeat_last_n;
  bool keeps_newlines; /* penalize_newline is false */
} options_t;

static int read_penalize_newline(reader_t *reader, const field_t *field, const json_t *value) {
  bool counts;
  if (!json_bool(value, &counts)) return field_fail_type(reader, field->name, "a boolean", value);
  ((options_t *)reader->out)->keeps_newlines = !counts;
  return 0;
}

#undef FIELDS_STRUCT
#define FIELDS_STRUCT options_t
static const field_t rows[] = {
#include "server/fields/ollama/option_fields.def"
};
static const field_table_t table = {rows, ARRAY_LEN(rows), NULL};

/* An error says options.NAME. */
static int name_option(reader_t *reader, const json_t *option, int code) {
  inferd_error_t *error = reader->error;
  char name[48], quoted[52], full[64];
  if (code == 0) return 0;
  snprintf(name, sizeof name, "%.*s", (int)MIN(option->key_length, sizeof name - 1), option->key);
  snprintf(quoted, sizeof quoted, "'%s'", name);
  snprintf(full, sizeof full, "'options.%s'", name);
  rename_first(error->message, sizeof error->message, quoted, full);
  if (strcmp(error->param, name) == 0) {
    snprintf(error->param, sizeof error->param, "options.%s", name);
  }
  return code;
}

static int fail(reader_t *reader, int code, const char *name, const char *message) {
  return error_set(reader->error, code, name, "%s", message);
}

/* Penalties count all tokens here, so a window over the last ones is refused where it matters. */
static int check_penalties(reader_t *reader, const options_t *options) {
  bool any = options->repeat_penalty != 1 || options->presence_penalty != 0 ||
             options->frequency_penalty != 0;
  if (!any) return 0;
  if (options->repeat_last_n > 0) {
    return fail(reader, ERR_UNSUPPORTED_PARAMETER, "options.repeat_last_n",
                "'options.repeat_last_n' is not supported with a penalty, unless it is -1 or 0: "
                "penalties count all tokens here.");
  }
  if (!options->keeps_newlines || options->repeat_last_n == 0) return 0;
  return fail(reader, ERR_UNSUPPORTED_PARAMETER, "options.penalize_newline",
              "'options.penalize_newline' is not supported as false with a penalty: a line break "
              "counts like any token here.");
}

static int check_lengths(reader_t *reader, const options_t *options, int64_t context) {
  if (options->num_predict == 0) {
    return fail(reader, ERR_INVALID_VALUE, "options.num_predict",
                "Invalid 'options.num_predict': 0 generates nothing. Expected a value >= 1, or -1 "
                "for what fits into the context.");
  }
  if (options->num_ctx <= context) return 0;
  return error_set(reader->error, ERR_ABOVE_MAX, "options.num_ctx",
                   "Invalid 'options.num_ctx': %" PRId64 " is more than the context of this "
                   "server, %" PRId64 " tokens; the operator sets it (--max-model-len).",
                   options->num_ctx, context);
}

static int read_options(reader_t *reader, const json_t *object, int64_t context, options_t *out) {
  void *before = reader->out;
  int code = 0;
  *out = (options_t){0};
  fields_default(&table, out);
  reader->out = out;
  JSON_EACH(option, object) {
    const field_t *row = fields_find(&table, option->key, option->key_length);
    if (row == NULL) {
      code = field_unknown(reader, "options.", option->key, option->key_length);
    } else if (option->type != JSON_NULL) {
      code = name_option(reader, option, field_read(reader, row, option));
    }
    if (code != 0) break;
  }
  reader->out = before;
  if (code == 0) code = check_penalties(reader, out);
  return code == 0 ? check_lengths(reader, out, context) : code;
}

int ollama_read_context(reader_t *reader, const json_t *options, int64_t context, int64_t *most) {
  options_t values;
  int code = read_options(reader, options, context, &values);
  *most = values.num_ctx;
  return code;
}

int ollama_print_options(reader_t *reader, const json_t *options, int64_t context, buffer_t *chat) {
  static const struct {
    const char *name, *of_chat;
    bool counts; /* tokens so far */
  } same[] = {{"temperature", "temperature", false},
              {"top_k", "top_k", false},
              {"top_p", "top_p", false},
              {"min_p", "min_p", false},
              {"seed", "seed", false},
              {"stop", "stop", false},
              {"repeat_penalty", "repetition_penalty", true},
              {"presence_penalty", "presence_penalty", true},
              {"frequency_penalty", "frequency_penalty", true}};
  options_t values;
  int code = read_options(reader, options, context, &values);
  if (code != 0) return code;
  for (size_t i = 0; i < ARRAY_LEN(same); i++) {
    const json_t *value = json_get(options, same[i].name);
    if (!json_is_given(value) || (same[i].counts && values.repeat_last_n == 0)) continue;
    json_print_member(chat, same[i].of_chat, value);
  }
  buffer_text(chat, ",\"max_tokens\":");
  buffer_int(chat, MAX(values.num_predict, -1));
  return 0;
}

/* ---- keep_alive ---- */

/* A duration as Go writes it: "1h30m", "-1s", "0". *zero: all its numbers are 0. */
static bool parse_duration(const json_t *text, bool *zero) {
  static const char *const units[] = {"ns", "us", "\xc2\xb5s", "ms", "s", "m", "h"};
  const char *at = text->text, *end = at + text->length;
  *zero = true;
  if (at < end && (*at == '-' || *at == '+')) at++;
  if (end - at == 1 && *at == '0') return true;
  if (at == end) return false;
  while (at < end) {
    const char *number = at;
    size_t unit = ARRAY_LEN(units), length = 0;
    for (; at < end && ((*at >= '0' && *at <= '9') || *at == '.'); at++) {
      *zero = *zero && (*at == '0' || *at == '.');
    }
    if (at == number) return false;
    for (size_t i = 0; i < ARRAY_LEN(units); i++) {
      size_t bytes = strlen(units[i]);
      bool fits = bytes > length && bytes <= (size_t)(end - at);
      if (fits && memcmp(at, units[i], bytes) == 0) unit = i, length = bytes;
    }
    if (unit == ARRAY_LEN(units)) return false;
    at += length;
  }
  return true;
}

int ollama_read_keep_alive(reader_t *reader, const json_t *value, bool *zero) {
  double seconds;
  *zero = false;
  if (value == NULL) return 0;
  if (value->type == JSON_STRING) {
    if (parse_duration(value, zero)) return 0;
    return field_fail_value(reader, "keep_alive", "a duration such as '5m'", value);
  }
  if (!json_double(value, &seconds)) {
    return field_fail_type(reader, "keep_alive", "a duration or a number of seconds", value);
  }
  *zero = seconds == 0;
  return 0;
}
