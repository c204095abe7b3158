/* fuzz_request.c: a body of /v1/completions, /v1/chat/completions, /v1/messages, and of the routes
 * that generate nothing. */
#include "engine/base/arena.h"
#include "engine/base/check.h"
#include "engine/base/util.h"
#include "engine/text/tokenizer.h"
#include "server/fields/params.h"
#include "server/messages/messages.h"
#include "tests/fuzz/targets.h"

#include <stdlib.h>
#include <string.h>

/* What a body of /v1/messages becomes is a body of chat that the strict reader takes. */
static void translate(const json_t *root, reader_t *reader, bool late_system) {
  messages_state_t state = {0};
  buffer_t chat = {0};
  json_doc_t *doc = NULL;
  int code = messages_translate(reader, root, late_system, late_system, &state, &chat);
  if (code == 0) {
    CHECK_EQ(json_parse(chat.data, chat.length, &json_limits_translated, &doc, reader->error), 0);
    static params_t params;
    static const params_defaults_t defaults = {.stream_interval = 1};
    memset(&params, 0, sizeof params);
    (void)params_read(&params, true, &defaults, reader, json_root(doc));
    json_free(params.constraint.doc);
  }
  json_free(doc);
  buffer_free(&chat);
}

static const tokenizer_t *tokenizer_once(void) {
  static tokenizer_t *tokenizer;
  inferd_error_t error = {0};
  if (tokenizer == NULL && tokenizer_load("models/demo", &tokenizer, &error) != 0) abort();
  return tokenizer;
}

/* The names of the prompts in messages: each begins with that of the field. */
static void name_prompts(const params_t *params) {
  char place[PLACE_BYTES_MAX];
  const char *name = params_prompt_name(params);
  for (int32_t i = 0; i < 2 && !params->pairs.wanted; i++)
    if (strncmp(params_place(params, i, place), name, strlen(name)) != 0) abort();
  for (int32_t i = 0; i < 2 && params->pairs.wanted; i++)
    if (params_place(params, i, place)[0] == '\0') abort();
}

static void embed(const json_t *root, reader_t *reader) {
  static const embedding_info_t infos[] = {
      {.task = TASK_EMBED, .size = 64, .pooled_size = 64},
      {.task = TASK_EMBED, .size = 64, .matryoshka = true, .num_sizes = 2, .sizes = {8, 32}},
      {.task = TASK_CLASSIFY, .size = 3, .pooled_size = 64},
      {.task = TASK_TAG, .pooling = POOLING_EACH, .size = 3, .pooled_size = 64},
      {.task = TASK_RERANK, .size = 1, .pooled_size = 64}};
  static const field_table_t *const tables[] = {&embedding_table, &classify_table, &pooling_table,
                                                &rerank_table, &score_table};
  static params_t params;
  for (size_t n = 0; n < ARRAY_LEN(infos) * ARRAY_LEN(tables); n++) {
    const size_t i = n % ARRAY_LEN(infos);
    memset(&params, 0, sizeof params);
    if (params_read_pooled(&params, tables[n / ARRAY_LEN(infos)], &infos[i], reader, root) != 0)
      continue;
    name_prompts(&params);
    (void)params_check(&params, reader->limits, reader->error);
    const embedding_params_t *embedding = &params.embedding;
    /* ABSENT where a table has the field and the body does not; 0 where the table has none */
    if (embedding->dimensions < ABSENT || embedding->dimensions > infos[i].size) abort();
  }
}

void fuzz_request(const uint8_t *data, size_t size) {
  json_doc_t *doc = NULL;
  inferd_error_t error = {0};
  static const engine_info_t model = {
      .temperature = 0.5f, .top_p = 0.9f, .min_p = 0.1f, .repetition_penalty = 1.1f, .top_k = 9};
  const bool has_model = size % 4 > 1; /* and its tokenizer: special ids are refused */
  field_limits_t limits = {.vocab_size = 1000,
                           .max_logprobs = 20,
                           .strict = size % 2 == 1,
                           .deny_special_ids = has_model,
                           .tokenizer = has_model ? tokenizer_once() : NULL};
  params_defaults_t defaults = {
      .stream_interval = 1, .model = has_model ? &model : NULL, .force_include_usage = has_model};
  if (json_parse((const char *)data, size, &json_limits_request, &doc, &error) != 0) return;
  for (int chat = 0; chat < 2; chat++) {
    arena_t arena = {0};
    static params_t params;
    reader_t reader = {.limits = &limits, .arena = &arena, .error = &error};
    memset(&params, 0, sizeof params);
    if (params_read(&params, chat == 1, &defaults, &reader, json_root(doc)) == 0) {
      (void)params_check(&params, &limits, &error);
      (void)params_echoes_scores(&params);
      name_prompts(&params);
    }
    json_free(params.constraint.doc);
    arena_free(&arena);
  }
  for (int late = 0; late < 2; late++) {
    arena_t arena = {0};
    reader_t reader = {.limits = &limits, .arena = &arena, .error = &error};
    translate(json_root(doc), &reader, late == 1);
    arena_free(&arena);
  }
  arena_t arena = {0};
  reader_t reader = {.limits = &limits, .arena = &arena, .error = &error};
  embed(json_root(doc), &reader);
  arena_free(&arena);
  json_free(doc);
}
