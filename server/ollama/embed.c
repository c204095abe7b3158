/* embed.c: POST /api/embed and /api/embeddings: vectors in Ollama's words.
 *
 * Stage 2 of 9 and stage 9 of 9. A body becomes one of /v1/embeddings; loop thread or a job of the
 * lanes. The answer is printed piece by piece; loop thread.
 */
#include "server/ollama/ollama.h"

#include "engine/base/clock.h"
#include "engine/base/util.h"
#include "server/completion/dialect.h"
#include "server/embeddings/values.h"
#include "server/fields/params_read.h"

/* What the rows of both routes read. */
typedef struct embed {
  ollama_common_t common;
  const json_t *input;
  bool truncate, unloads;
} embed_t;

/* ---- the request ---- */

static int ollama_as_chat(reader_t *reader, const field_t *field, const json_t *value) {
  (void)reader, (void)field, (void)value; /* the reader of /v1/embeddings checks it */
  return 0;
}

static int ollama_object(reader_t *reader, const field_t *field, const json_t *value) {
  if (value->type != JSON_OBJECT) return field_fail_type(reader, field->name, "an object", value);
  ((embed_t *)reader->out)->common.options = value;
  return 0;
}

static int ollama_keep_alive(reader_t *reader, const field_t *field, const json_t *value) {
  (void)field;
  return ollama_read_keep_alive(reader, value, &((embed_t *)reader->out)->unloads);
}

/* Texts; /v1/embeddings takes token ids, too. */
static int ollama_input(reader_t *reader, const field_t *field, const json_t *value) {
  ((embed_t *)reader->out)->input = value;
  if (value->type == JSON_STRING) return 0;
  if (value->type != JSON_ARRAY) {
    return field_fail_type(reader, field->name, "a string or an array of strings", value);
  }
  JSON_EACH(text, value) {
    if (text->type != JSON_STRING)
      return field_fail_type(reader, field->name, "an array of strings", text);
  }
  return 0;
}

#undef FIELDS_STRUCT
#define FIELDS_STRUCT embed_t
static const field_t embed_rows[] = {
#include "server/fields/ollama/embed_fields.def"
};
static const field_t embeddings_rows[] = {
#include "server/fields/ollama/embeddings_fields.def"
};
static const field_table_t embed_rows_table = {embed_rows, ARRAY_LEN(embed_rows), NULL};
static const field_table_t embeddings_rows_table = {embeddings_rows, ARRAY_LEN(embeddings_rows),
                                                    NULL};

static const dialect_t nothing_dialect;

/* Appends ,"truncate_prompt_tokens":..: a text is cut to the context, or to the one that the client
 * needs. */
static int print_length(completion_t *completion, reader_t *reader, const embed_t *body,
                        buffer_t *out) {
  int64_t most = ABSENT;
  int code =
      ollama_read_context(reader, body->common.options, completion->info->max_model_len, &most);
  if (code != 0 || !body->truncate) return code;
  buffer_text(out, ",\"truncate_prompt_tokens\":");
  buffer_int(out, most);
  return 0;
}

static int translate(completion_t *completion, reader_t *reader, const field_table_t *table,
                     const json_t *root, buffer_t *out) {
  embed_t body = {0};
  ollama_state_t *state = arena_calloc(&completion->arena, 1, sizeof *state);
  if (state == NULL) return field_no_memory(reader);
  bool older = table == &embeddings_rows_table;
  completion->dialect_state = state;
  state->generates = older; /* one vector, not a list */
  reader->out = &body;
  int code = ollama_read_fields(reader, table, root);
  if (code != 0) return code;
  if (older) body.truncate = true;
  const json_t *dimensions = json_get(root, "dimensions"), *input = body.input;
  if (older && input != NULL && input->type != JSON_STRING)
    return field_fail_type(reader, "prompt", "a string", input);
  bool empty = input == NULL || (input->type == JSON_ARRAY ? input->count : input->length) == 0;
  if (empty) completion->dialect = &nothing_dialect;
  buffer_text(out, "{\"input\":");
  if (empty) buffer_text(out, "[0]");
  if (!empty) json_print(out, input);
  /* The newer route normalises, whatever the model says; the older one never does. */
  buffer_text(out, older ? ",\"normalize\":false," : ",\"normalize\":true,");
  code = ollama_print_model(completion, reader, body.common.model, out);
  if (code == 0) code = print_length(completion, reader, &body, out);
  if (json_is_given(dimensions)) json_print_member(out, "dimensions", dimensions);
  buffer_char(out, '}');
  return code;
}

static int translate_embed(completion_t *completion, reader_t *reader, const json_t *root,
                           buffer_t *out) {
  return translate(completion, reader, &embed_rows_table, root, out);
}

static int translate_embeddings(completion_t *completion, reader_t *reader, const json_t *root,
                                buffer_t *out) {
  return translate(completion, reader, &embeddings_rows_table, root, out);
}

/* ---- the answer ---- */

static void print_vector(cord_t *out, const completion_t *completion, int32_t index) {
  buffer_char(&out->own, '[');
  cord_items(out, values_print_number, &completion->inputs[index],
             (size_t)values_count(completion));
  buffer_char(&out->own, ']');
}

static void print_model(buffer_t *out, const ollama_state_t *state) {
  buffer_text(out, "{\"model\":");
  buffer_quote(out, state->model, state->model_length);
}

static bool print_vectors(completion_t *completion) {
  cord_t *out = &completion->reply;
  uint64_t now_ns = clock_now_ns(), begun_ns = completion->inputs[0].scheduled_ns;
  print_model(&out->own, completion->dialect_state);
  buffer_text(&out->own, ",\"embeddings\":[");
  for (int32_t i = 0; i < completion->num_inputs; i++) {
    if (i > 0) buffer_char(&out->own, ',');
    print_vector(out, completion, i);
  }
  buffer_text(&out->own, "],\"total_duration\":");
  buffer_uint(&out->own, now_ns - completion->arrival_ns);
  buffer_text(&out->own, ",\"load_duration\":");
  buffer_uint(&out->own, begun_ns > completion->arrival_ns ? begun_ns - completion->arrival_ns : 0);
  buffer_text(&out->own, ",\"prompt_eval_count\":");
  buffer_int(&out->own, completion_usage(completion).prompt);
  buffer_char(&out->own, '}');
  return !cord_failed(out);
}

static bool print_one(completion_t *completion) {
  cord_t *out = &completion->reply;
  buffer_text(&out->own, "{\"embedding\":");
  print_vector(out, completion, 0);
  buffer_char(&out->own, '}');
  return !cord_failed(out);
}

static bool print_none(completion_t *completion) {
  const ollama_state_t *state = completion->dialect_state;
  buffer_t *out = &completion->reply.own;
  if (state->generates) {
    buffer_text(out, "{\"embedding\":[]}");
  } else {
    print_model(out, state);
    buffer_text(out, ",\"embeddings\":[]}");
  }
  return true;
}

static const dialect_t embed_dialect = {.route = "/api/embed",
                                        .table = &embedding_table,
                                        .tasks = 1U << TASK_EMBED,
                                        .translate = translate_embed,
                                        .rename = ollama_rename,
                                        .prepare = values_prepare,
                                        .response = print_vectors};
static const dialect_t embeddings_dialect = {.route = "/api/embeddings",
                                             .table = &embedding_table,
                                             .tasks = 1U << TASK_EMBED,
                                             .translate = translate_embeddings,
                                             .rename = ollama_rename,
                                             .prepare = values_prepare,
                                             .response = print_one};
static const dialect_t nothing_dialect = {.table = &embedding_table,
                                          .tasks = 1U << TASK_EMBED,
                                          .rename = ollama_rename,
                                          .describe = print_none};

void api_ollama_embed(exchange_t *exchange) {
  completion_start(exchange, &embed_dialect);
}

void api_ollama_embeddings(exchange_t *exchange) {
  completion_start(exchange, &embeddings_dialect);
}
