/* params_embedding.c: the tables of the fields of POST /v1/embeddings, /classify and /pooling, and
 * their rules.
 *
 * Stage 2 of 9, first half: JSON -> checked parameters. Runs on the loop thread or in libuv's pool;
 * keeps no state. The inputs are read as prompts. Next: server/completion/prompt.c.
 */
#include "server/fields/params_embedding.h"

#include "engine/base/util.h"
#include "server/fields/params_read.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static int read_encoding_format(reader_t *reader, const field_t *field, const json_t *value) {
  params_t *params = reader->out;
  params->embedding.base64 = json_equals(value, "base64");
  if (params->embedding.base64 || json_equals(value, "float")) return 0;
  if (value->type != JSON_STRING) return field_fail_type(reader, field->name, "a string", value);
  return field_fail_value(reader, field->name, "'float' or 'base64'", value);
}

static int read_normalize(reader_t *reader, const field_t *field, const json_t *value) {
  params_t *params = reader->out;
  params->embedding.normalises_given = true;
  if (json_bool(value, &params->embedding.normalises)) return 0;
  return field_fail_type(reader, field->name, "a boolean", value);
}

/* vLLM's words. */
static const char *const pooling_tasks[] = {
    [TASK_EMBED] = "embed", [TASK_CLASSIFY] = "classify", [TASK_TAG] = "token_classify"};

static int read_pooling_task(reader_t *reader, const field_t *field, const json_t *value) {
  params_t *params = reader->out;
  for (size_t i = 0; i < ARRAY_LEN(pooling_tasks); i++) {
    if (pooling_tasks[i] == NULL || !json_equals(value, pooling_tasks[i])) continue;
    params->embedding.task = (engine_task_t)i;
    return 0;
  }
  if (value->type != JSON_STRING) return field_fail_type(reader, field->name, "a string", value);
  return field_fail_value(reader, field->name, "'embed', 'classify' or 'token_classify'", value);
}

/* Two names of one field: the later one holds. */
static int read_aggregation(reader_t *reader, const field_t *field, const json_t *value) {
  static const char *const names[] = {"none", "simple", "first", "average", "max"};
  embedding_params_t *params = &((params_t *)reader->out)->embedding;
  for (size_t i = 0; i < ARRAY_LEN(names); i++) {
    if (!json_equals(value, names[i])) continue;
    params->aggregation = (aggregation_t)i;
    params->aggregated = field->name;
    return 0;
  }
  if (value->type != JSON_STRING) return field_fail_type(reader, field->name, "a string", value);
  return field_fail_value(reader, field->name, "'none', 'simple', 'first', 'average' or 'max'",
                          value);
}

/* Two names of one switch, of which a request may give both if they say the same. */
static int set_raw(reader_t *reader, const char *name, bool raw) {
  pair_params_t *pairs = &((params_t *)reader->out)->pairs;
  if (pairs->raw_given && pairs->raw != raw)
    return error_set(reader->error, ERR_INVALID_VALUE, name,
                     "'raw_scores' and 'use_activation' contradict each other: one asks for scores "
                     "with the activation, the other for scores without it.");
  pairs->raw = raw;
  pairs->raw_given = true;
  return 0;
}

int read_raw_scores(reader_t *reader, const field_t *field, const json_t *value) {
  bool raw;
  if (!json_bool(value, &raw)) return field_fail_type(reader, field->name, "a boolean", value);
  return set_raw(reader, field->name, raw);
}

int read_use_activation(reader_t *reader, const field_t *field, const json_t *value) {
  params_t *params = reader->out;
  bool used;
  if (!json_bool(value, &used)) return field_fail_type(reader, field->name, "a boolean", value);
  params->pairs.raw_by_activation = !used;
  return set_raw(reader, field->name, !used);
}

/* vLLM's field; the bytes are those of every machine that this server runs on. */
int read_endianness(reader_t *reader, const field_t *field, const json_t *value) {
  if (json_equals(value, "native") || json_equals(value, "little")) return 0;
  if (value->type != JSON_STRING) return field_fail_type(reader, field->name, "a string", value);
  return field_fail_value(reader, field->name, "'native' or 'little'", value);
}

int read_numbers_only(reader_t *reader, const field_t *field, const json_t *value) {
  if (json_equals(value, "float")) return 0;
  if (value->type != JSON_STRING) return field_fail_type(reader, field->name, "a string", value);
  return field_fail_value(reader, field->name, "'float', since scores are numbers", value);
}

static const field_t embedding_rows[] = {
#include "server/fields/embedding_fields.def"
};
static const field_t classify_rows[] = {
#include "server/fields/pooled/classify_fields.def"
};
static const field_t pooling_rows[] = {
#include "server/fields/pooled/pooling_fields.def"
};

const field_table_t embedding_table = {embedding_rows, ARRAY_LEN(embedding_rows), NULL};
const field_table_t classify_table = {classify_rows, ARRAY_LEN(classify_rows), NULL};
const field_table_t pooling_table = {pooling_rows, ARRAY_LEN(pooling_rows), NULL};

/* "32, 64 and 128" */
static const char *list_sizes(const embedding_info_t *info, char *out, size_t capacity) {
  size_t used = 0;
  out[0] = '\0';
  for (int32_t i = 0; i < info->num_sizes && used < capacity; i++) {
    const char *before = i == 0 ? "" : i + 1 == info->num_sizes ? " and " : ", ";
    int n = snprintf(out + used, capacity - used, "%s%" PRId32, before, info->sizes[i]);
    used += n > 0 ? (size_t)n : 0;
  }
  return out;
}

/* Vectors are cut only where the model was trained for it, as in vLLM. */
static int check_dimensions(const params_t *params, const embedding_info_t *info,
                            inferd_error_t *error) {
  int64_t asked = params->embedding.dimensions;
  char sizes[256];
  if (asked <= 0 || asked == info->size) return 0;
  if (!info->matryoshka) {
    return error_set(error, ERR_INVALID_VALUE, "dimensions",
                     "'dimensions' is %" PRId64 ", but the model was not trained for shorter "
                     "vectors: it returns %" PRId32 " values.",
                     asked, info->size);
  }
  if (asked > info->size) {
    return error_set(error, ERR_ABOVE_MAX, "dimensions",
                     "Invalid 'dimensions': integer above maximum value. Expected a value <= "
                     "%" PRId32 ", the size of the model's vectors.",
                     info->size);
  }
  for (int32_t i = 0; i < info->num_sizes; i++) {
    if (asked == info->sizes[i]) return 0;
  }
  if (info->num_sizes == 0) return 0;
  return error_set(error, ERR_INVALID_VALUE, "dimensions",
                   "'dimensions' is %" PRId64 "; the model was trained for %s.", asked,
                   list_sizes(info, sizes, sizeof sizes));
}

/* What has no meaning for what the model makes. */
static int check_product(const params_t *params, const embedding_info_t *info,
                         inferd_error_t *error) {
  const embedding_params_t *asked = &params->embedding;
  const bool embeds = info->task == TASK_EMBED;
  const char *param = NULL;
  if (asked->task != TASK_AUTO && asked->task != info->task)
    return error_set(error, ERR_UNSUPPORTED_PARAMETER, "task",
                     "'task' is %s, but the served model %s.", pooling_tasks[asked->task],
                     embeds                   ? "makes embeddings"
                     : info->task == TASK_TAG ? "classifies each token (task token_classify)"
                                              : "classifies");
  if (embeds) param = pairs_raw_field(&params->pairs);
  if (!embeds && asked->dimensions > 0) param = "dimensions";
  if (!embeds && asked->normalises_given) param = "normalize";
  if (param == NULL) return 0;
  return error_set(error, ERR_UNSUPPORTED_PARAMETER, param,
                   "The parameter '%s' is not supported for a model that %s.", param,
                   embeds ? "makes embeddings" : "classifies");
}

/* /classify of a model that classifies tokens, or texts. */
static int check_entities(params_t *params, const embedding_info_t *info, inferd_error_t *error) {
  embedding_params_t *asked = &params->embedding;
  const bool tags = info->task == TASK_TAG;
  const char *param = tags ? pairs_raw_field(&params->pairs) : asked->aggregated;
  asked->wants_places = tags;
  if (param == NULL) return 0;
  return error_set(error, ERR_UNSUPPORTED_PARAMETER, param,
                   "The parameter '%s' is not supported for a model that classifies %s.", param,
                   tags ? "tokens; /pooling returns their scores" : "texts");
}

/* The fields that a request of pairs must have. */
static int check_sides(const params_t *params, const field_table_t *table, inferd_error_t *error) {
  const bool reranks = table == &rerank_table;
  if (params->pairs.queries.count == 0)
    return params_fail_empty(reranks ? "query" : "queries", error);
  return params->pairs.documents.count == 0 ? params_fail_empty("documents", error) : 0;
}

int params_read_pooled(params_t *params, const field_table_t *table, const embedding_info_t *info,
                       reader_t *reader, const json_t *root) {
  const bool pairs = table == &rerank_table || table == &score_table;
  memset(params, 0, sizeof *params);
  fields_default(&params_table, params);
  fields_default(table, params);
  params->embedding.wanted = true;
  params->prompt_logprobs = ABSENT;
  params->max_tokens = 0;
  params->truncation_side = TRUNCATE_RIGHT; /* as sentence-transformers cuts, and vLLM */
  params->embedding.normalises = info->normalises && info->task == TASK_EMBED;
  params->embedding.aggregation = AGGREGATE_SIMPLE;
  params->pairs.wanted = pairs;
  reader->out = params;
  int code = fields_read(table, reader, root);
  if (code == 0 && pairs) code = check_sides(params, table, reader->error);
  if (code != 0) return code;
  if (pairs) return params_check_pairs(params, info, reader);
  if (params->num_prompts == 0) return params_fail_empty("input", reader->error);
  code = check_product(params, info, reader->error);
  if (code == 0 && table == &classify_table) code = check_entities(params, info, reader->error);
  return code == 0 ? check_dimensions(params, info, reader->error) : code;
}
