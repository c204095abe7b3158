/* params_pairs.c: the tables of the fields of POST /rerank and /score, and their rules.
 *
 * Stage 2 of 9, first half: JSON -> checked parameters. Runs on the loop thread or in libuv's pool;
 * keeps no state. Next: server/completion/pairs.c.
 */
#include "server/fields/params_pairs.h"

#include "engine/base/util.h"
#include "server/fields/params_read.h"

#include <inttypes.h>
#include <string.h>

static int fail_empty(reader_t *reader, const char *name, int64_t index) {
  return error_set(reader->error, ERR_INVALID_VALUE, name,
                   "Invalid '%s': '%s[%" PRId64 "]' is empty. Please leave it out.", name, name,
                   index);
}

/* A string, or an object with `text`. */
static int read_text(reader_t *reader, const char *name, const json_t *value, int64_t index,
                     prompt_t *out) {
  const json_t *text = value->type == JSON_OBJECT ? json_get(value, "text") : value;
  if (text == NULL || text->type != JSON_STRING)
    return field_fail_type(reader, name, "strings, or objects with a string 'text'", value);
  if (text->length == 0)
    return index < 0 ? params_fail_empty(name, reader->error) : fail_empty(reader, name, index);
  *out = (prompt_t){.text = text->text, .length = text->length};
  return 0;
}

static int read_side(reader_t *reader, const char *name, const json_t *value, pair_side_t *side) {
  int32_t most = MIN((int32_t)DOCUMENTS_MAX, reader->limits->inputs_max);
  bool is_list = value->type == JSON_ARRAY;
  if (side->name != NULL)
    return error_set(reader->error, ERR_INVALID_VALUE, name, "'%s' and '%s' cannot both be given.",
                     side->name, name);
  if (is_list && value->count == 0) return params_fail_empty(name, reader->error);
  if (is_list && value->count > (uint32_t)most)
    return error_set(reader->error, ERR_INVALID_VALUE, name,
                     "Invalid '%s': %" PRIu32 " texts; at most %" PRId32 " in one request.", name,
                     value->count, most);
  size_t count = is_list ? value->count : 1;
  *side = (pair_side_t){.name = name, .is_list = is_list};
  side->texts = arena_calloc(reader->arena, count, sizeof *side->texts);
  if (side->texts == NULL) return field_no_memory(reader);
  if (!is_list) return read_text(reader, name, value, -1, &side->texts[side->count++]);
  JSON_EACH(element, value) {
    int code = read_text(reader, name, element, side->count, &side->texts[side->count]);
    if (code != 0) return code;
    side->count++;
  }
  return 0;
}

static pair_params_t *pairs_of(reader_t *reader) {
  params_t *params = reader->out;
  return &params->pairs;
}

static int read_queries_side(reader_t *reader, const field_t *field, const json_t *value) {
  return read_side(reader, field->name, value, &pairs_of(reader)->queries);
}

static int read_documents_side(reader_t *reader, const field_t *field, const json_t *value) {
  return read_side(reader, field->name, value, &pairs_of(reader)->documents);
}

static int read_query(reader_t *reader, const field_t *field, const json_t *value) {
  if (value->type != JSON_STRING) return field_fail_type(reader, field->name, "a string", value);
  return read_side(reader, field->name, value, &pairs_of(reader)->queries);
}

static int read_texts(reader_t *reader, const field_t *field, const json_t *value) {
  pairs_of(reader)->bare = true;
  if (value->type != JSON_ARRAY)
    return field_fail_type(reader, field->name, "an array of strings", value);
  return read_side(reader, field->name, value, &pairs_of(reader)->documents);
}

static int read_return_documents(reader_t *reader, const field_t *field, const json_t *value) {
  pair_params_t *pairs = pairs_of(reader);
  pairs->returns_texts_given = true;
  if (json_bool(value, &pairs->returns_texts)) return 0;
  return field_fail_type(reader, field->name, "a boolean", value);
}

static int read_truncate(reader_t *reader, const field_t *field, const json_t *value) {
  params_t *params = reader->out;
  bool cut;
  if (!json_bool(value, &cut)) return field_fail_type(reader, field->name, "a boolean", value);
  if (cut && params->truncate_prompt_tokens == NOT_TRUNCATED) params->truncate_prompt_tokens = -1;
  return 0;
}

static int read_truncation_direction(reader_t *reader, const field_t *field, const json_t *value) {
  params_t *params = reader->out;
  bool left = json_equals(value, "Left") || json_equals(value, "left");
  params->truncation_side = left ? TRUNCATE_LEFT : TRUNCATE_RIGHT;
  if (left || json_equals(value, "Right") || json_equals(value, "right")) return 0;
  if (value->type != JSON_STRING) return field_fail_type(reader, field->name, "a string", value);
  return field_fail_value(reader, field->name, "'Left' or 'Right'", value);
}

static const field_t rerank_rows[] = {
#include "server/fields/pooled/rerank_fields.def"
};
static const field_t score_rows[] = {
#include "server/fields/pooled/score_fields.def"
};

const field_table_t rerank_table = {rerank_rows, ARRAY_LEN(rerank_rows), NULL};
const field_table_t score_table = {score_rows, ARRAY_LEN(score_rows), NULL};

const char *pairs_raw_field(const pair_params_t *pairs) {
  if (!pairs->raw) return NULL;
  return pairs->raw_by_activation ? "use_activation" : "raw_scores";
}

/* What has no meaning for the served model. */
static int check_model(const params_t *params, const embedding_info_t *info,
                       inferd_error_t *error) {
  const pair_params_t *pairs = &params->pairs;
  const char *param = NULL, *why = "";
  if (pairs->cosine && pairs->raw)
    param = pairs_raw_field(pairs), why = "whose scores are cosines";
  else if (!info->judges && pairs->instruction != NULL)
    param = "instruction", why = "which takes none";
  else if (info->judges && pairs->query_tokens_max > 0)
    param = "max_tokens_per_query", why = "which reads the query as a part of a question";
  if (param == NULL) return 0;
  return error_set(error, ERR_UNSUPPORTED_PARAMETER, param,
                   "The parameter '%s' is not supported for the served model, %s.", param, why);
}

/* With cosines each text is a prompt, queries first; else each document with its query. */
static int make_prompts(params_t *params, reader_t *reader) {
  const pair_params_t *pairs = &params->pairs;
  size_t queries = pairs->cosine ? (size_t)pairs->queries.count : 0;
  size_t count = queries + (size_t)pairs->documents.count;
  if (count > (size_t)reader->limits->inputs_max)
    return error_set(reader->error, ERR_INVALID_VALUE, pairs->documents.name,
                     "Invalid '%s': %zu texts in all; at most %" PRId32 " in one request.",
                     pairs->documents.name, count, reader->limits->inputs_max);
  params->prompts = arena_calloc(reader->arena, count, sizeof *params->prompts);
  if (params->prompts == NULL) return field_no_memory(reader);
  for (size_t i = 0; i < count; i++)
    params->prompts[i] =
        i < queries ? pairs->queries.texts[i] : pairs->documents.texts[i - queries];
  params->num_prompts = (int32_t)count;
  return 0;
}

int params_check_pairs(params_t *params, const embedding_info_t *info, reader_t *reader) {
  pair_params_t *pairs = &params->pairs;
  pairs->cosine = info->task == TASK_EMBED;
  int32_t queries = pairs->queries.count, documents = pairs->documents.count;
  if (queries != 1 && queries != documents)
    return error_set(reader->error, ERR_INVALID_VALUE, pairs->queries.name,
                     "'%s' has %" PRId32 " texts and '%s' %" PRId32
                     "; there must be one first text, or as many as second ones.",
                     pairs->queries.name, queries, pairs->documents.name, documents);
  int code = check_model(params, info, reader->error);
  return code == 0 ? make_prompts(params, reader) : code;
}
