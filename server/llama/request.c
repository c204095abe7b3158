/* request.c: a body of /completion or /infill -> the body of the same request on completions.
 *
 * Stage 2 of 9, before params.c. Loop thread or libuv's pool; keeps no state. The tables of fields
 * check what is of this format alone; the reader of completions then checks the result like any
 * body. Next: server/completion/prompt.c.
 */
#include "server/llama/llama.h"

#include "engine/base/util.h"
#include "server/completion/dialect.h"
#include "server/dialect/rename.h"
#include "server/fields/params_read.h"

#include <stdio.h>
#include <string.h>

/* What the rows of both routes read. */
typedef struct llama_body {
  const json_t *prefix, *suffix, *logit_bias;
  float temperature, top_p, min_p, repeat_penalty, presence_penalty, frequency_penalty;
  int64_t n_predict, top_k, repeat_last_n, seed, n_cmpl;
  bool ignore_eos, stream, return_tokens;
} llama_body_t;

/* ---- the readers of rows ---- */

static int llama_same(reader_t *reader, const field_t *field, const json_t *value) {
  (void)reader, (void)field, (void)value; /* the reader of completions checks it */
  return 0;
}

static int fail_pair(reader_t *reader) {
  return error_set(reader->error, ERR_INVALID_VALUE, "logit_bias",
                   "Invalid 'logit_bias': each element of the array must be [id, number] or [id, "
                   "false]; texts are not taken, /tokenize has their ids.");
}

static int llama_bias(reader_t *reader, const field_t *field, const json_t *value) {
  ((llama_body_t *)reader->out)->logit_bias = value;
  if (value->type == JSON_OBJECT) return 0;
  if (value->type != JSON_ARRAY)
    return field_fail_type(reader, field->name, "an object or an array", value);
  JSON_EACH(pair, value) {
    const json_t *first = json_first(pair), *second = first != NULL ? json_next(first) : NULL;
    int64_t id;
    double bias;
    bool on = true, whole = pair->type == JSON_ARRAY && pair->count == 2 && json_int64(first, &id);
    bool banned = whole && json_bool(second, &on) && !on;
    if (!whole || !(banned || json_double(second, &bias))) return fail_pair(reader);
  }
  return 0;
}

#undef FIELDS_STRUCT
#define FIELDS_STRUCT llama_body_t
static const field_t completion_rows[] = {
#include "server/fields/llama/completion_fields.def"
};
static const field_t infill_rows[] = {
#include "server/fields/llama/infill_fields.def"
};
static const field_table_t completion_table = {completion_rows, ARRAY_LEN(completion_rows), NULL};
static const field_table_t infill_table = {infill_rows, ARRAY_LEN(infill_rows), NULL};

static int read_asked(completion_t *completion, reader_t *reader, const field_table_t *table,
                      const json_t *root, llama_body_t *asked) {
  llama_state_t *state = arena_calloc(&completion->arena, 1, sizeof *state);
  if (state == NULL) return field_no_memory(reader);
  completion->dialect_state = state;
  state->fills_in = table == &infill_table;
  *asked = (llama_body_t){0};
  reader->out = asked;
  fields_default(table, asked);
  return fields_read(table, reader, root);
}

/* ---- the body of completions ---- */

/* Penalties count all tokens here, so a window over the last ones is refused where it matters. */
static int check_penalties(reader_t *reader, const llama_body_t *asked) {
  bool any =
      asked->repeat_penalty != 1 || asked->presence_penalty != 0 || asked->frequency_penalty != 0;
  if (!any || asked->repeat_last_n <= 0) return 0;
  return error_set(reader->error, ERR_UNSUPPORTED_PARAMETER, "repeat_last_n",
                   "'repeat_last_n' is not supported with a penalty, unless it is -1 or 0: "
                   "penalties count all tokens here.");
}

static void print_bias(const json_t *bias, buffer_t *body) {
  if (bias == NULL) return;
  if (bias->type == JSON_OBJECT) {
    json_print_member(body, "logit_bias", bias);
    return;
  }
  buffer_text(body, ",\"logit_bias\":{");
  bool any = false;
  JSON_EACH(pair, bias) {
    const json_t *id = json_first(pair), *value = json_next(id);
    int64_t number = 0;
    (void)json_int64(id, &number);
    buffer_text(body, any ? ",\"" : "\"");
    buffer_int(body, number);
    buffer_text(body, "\":");
    if (value->type == JSON_NUMBER)
      json_print(body, value);
    else
      buffer_text(body, "-100");
    any = true;
  }
  buffer_char(body, '}');
}

static void print_flag(buffer_t *body, const char *name, bool on) {
  buffer_text(body, name);
  buffer_text(body, on ? "true" : "false");
}

/* What both routes have, behind the prompt. */
static void print_rest(const llama_body_t *asked, const json_t *root, buffer_t *body) {
  static const struct {
    const char *name, *of_completions;
    bool counts; /* tokens so far */
  } same[] = {{"model", "model", false},
              {"temperature", "temperature", false},
              {"top_k", "top_k", false},
              {"top_p", "top_p", false},
              {"min_p", "min_p", false},
              {"stop", "stop", false},
              {"grammar", "grammar", false},
              {"json_schema", "json_schema", false},
              {"cache_salt", "cache_salt", false},
              {"priority", "priority", false},
              {"repeat_penalty", "repetition_penalty", true},
              {"presence_penalty", "presence_penalty", true},
              {"frequency_penalty", "frequency_penalty", true}};
  for (size_t i = 0; i < ARRAY_LEN(same); i++) {
    const json_t *value = json_get(root, same[i].name);
    if (!json_is_given(value) || (same[i].counts && asked->repeat_last_n == 0)) continue;
    json_print_member(body, same[i].of_completions, value);
  }
  print_bias(asked->logit_bias, body);
  if (asked->seed != -1 && asked->seed != UINT32_MAX) {
    buffer_text(body, ",\"seed\":");
    buffer_int(body, asked->seed);
  }
  buffer_text(body, ",\"n\":");
  buffer_int(body, asked->n_cmpl);
  buffer_text(body, ",\"max_tokens\":");
  buffer_int(body, asked->n_predict);
  print_flag(body, ",\"echo\":", asked->n_predict == 0); /* which the writer leaves out */
  print_flag(body, ",\"ignore_eos\":", asked->ignore_eos);
  print_flag(body, ",\"stream\":", asked->stream);
  print_flag(body, ",\"return_token_ids\":", asked->stream || asked->return_tokens);
  buffer_char(body, '}');
}

int llama_translate_completion(completion_t *completion, reader_t *reader, const json_t *root,
                               buffer_t *body) {
  llama_body_t asked;
  int code = read_asked(completion, reader, &completion_table, root, &asked);
  const json_t *prompt = json_get(root, "prompt");
  if (code == 0) code = check_penalties(reader, &asked);
  if (code == 0 && !json_is_given(prompt))
    code =
        error_set(reader->error, ERR_MISSING_PARAMETER, "prompt", "The 'prompt' must be provided.");
  if (code != 0) return code;
  buffer_text(body, "{\"prompt\":");
  json_print(body, prompt);
  print_rest(&asked, root, body);
  return 0;
}

int llama_translate_infill(completion_t *completion, reader_t *reader, const json_t *root,
                           buffer_t *body) {
  llama_body_t asked;
  int code = read_asked(completion, reader, &infill_table, root, &asked);
  if (code == 0) code = check_penalties(reader, &asked);
  if (code == 0 && asked.suffix == NULL)
    code = error_set(reader->error, ERR_MISSING_PARAMETER, "input_suffix",
                     "The 'input_suffix' must be provided; without one use /completion.");
  if (code == 0 && asked.n_predict == 0)
    code = error_set(reader->error, ERR_INVALID_VALUE, "n_predict",
                     "Invalid 'n_predict': 0 fills nothing in. Expected a value >= 1, or -1 for "
                     "what fits into the context.");
  if (code != 0) return code;
  buffer_text(body, "{\"prompt\":");
  if (asked.prefix != NULL)
    json_print(body, asked.prefix);
  else
    buffer_text(body, "\"\"");
  json_print_member(body, "suffix", asked.suffix);
  print_rest(&asked, root, body);
  return 0;
}

/* ---- errors ---- */

void llama_rename(const completion_t *completion, inferd_error_t *error) {
  static const struct {
    const char *of_completions, *name;
    bool of_infill;
  } names[] = {{"max_tokens", "n_predict", false},
               {"repetition_penalty", "repeat_penalty", false},
               {"n", "n_cmpl", false},
               {"prompt", "input_prefix", true},
               {"suffix", "input_suffix", true}};
  const llama_state_t *state = completion->dialect_state;
  for (size_t i = 0; i < ARRAY_LEN(names); i++) {
    char from[40], to[40];
    if (names[i].of_infill && (state == NULL || !state->fills_in)) continue;
    snprintf(from, sizeof from, "'%s'", names[i].of_completions);
    snprintf(to, sizeof to, "'%s'", names[i].name);
    rename_first(error->message, sizeof error->message, from, to);
    if (strcmp(error->param, names[i].of_completions) == 0)
      snprintf(error->param, sizeof error->param, "%s", names[i].name);
  }
}
