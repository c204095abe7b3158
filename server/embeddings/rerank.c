/* rerank.c: POST /rerank and its other spellings: documents in the order of their scores.
 *
 * Stage 9 of 9. Loop thread. The shapes are those of Jina, Cohere and vLLM; with `texts` that of
 * text-embeddings-inference, a bare list. The texts of documents are copied before the body is
 * freed, and printed piece by piece.
 */
#include "server/embeddings/pairs.h"

#include "engine/base/util.h"

#include <stdlib.h>
#include <string.h>

typedef struct result {
  double score;
  int32_t index;
} result_t;

static const dialect_t rerank_dialect, rerank_v2_dialect;

static bool returns_texts(const completion_t *completion) {
  const pair_params_t *pairs = &completion->params.pairs;
  if (pairs->returns_texts_given) return pairs->returns_texts;
  return !pairs->bare && completion->dialect == &rerank_dialect;
}

/* Copies the texts of documents into the arena: they lie in the body, which is freed. */
static bool keep_texts(completion_t *completion) {
  const pair_side_t *documents = &completion->params.pairs.documents;
  size_t bytes = 0;
  if (!returns_texts(completion)) return true;
  for (int32_t i = 0; i < documents->count; i++) bytes += documents->texts[i].length;
  char *copy = arena_calloc(&completion->arena, bytes, 1);
  if (copy == NULL) return false;
  for (int32_t i = 0; i < documents->count; i++) {
    prompt_t *text = &documents->texts[i];
    memcpy(copy, text->text, text->length);
    text->text = copy;
    copy += text->length;
  }
  return true;
}

static int compare_results(const void *left, const void *right) {
  const result_t *a = left, *b = right;
  if (a->score != b->score) return a->score < b->score ? 1 : -1;
  return a->index < b->index ? -1 : 1;
}

static result_t *sort_results(completion_t *completion) {
  int32_t count = completion->params.pairs.documents.count;
  result_t *results = arena_calloc(&completion->arena, (size_t)count, sizeof *results);
  if (results == NULL) return NULL;
  for (int32_t i = 0; i < count; i++) results[i] = (result_t){pairs_score(completion, i), i};
  qsort(results, (size_t)count, sizeof *results, compare_results);
  return results;
}

static void print_result(cord_t *out, const completion_t *completion, int32_t index) {
  const pair_params_t *pairs = &completion->params.pairs;
  const prompt_t *text = &pairs->documents.texts[index];
  const bool texts = returns_texts(completion);
  buffer_text(&out->own, "{\"index\":");
  buffer_int(&out->own, index);
  buffer_text(&out->own, pairs->bare ? ",\"score\":" : ",\"relevance_score\":");
  buffer_float(&out->own, pairs_shown(completion, index));
  if (texts) {
    buffer_text(&out->own, pairs->bare ? ",\"text\":\"" : ",\"document\":{\"text\":\"");
    cord_escape(out, text->text, text->length);
    buffer_text(&out->own, pairs->bare ? "\"" : "\"}");
  }
  buffer_char(&out->own, '}');
}

static bool print_response(completion_t *completion) {
  const pair_params_t *pairs = &completion->params.pairs;
  cord_t *out = &completion->reply;
  int64_t count = pairs->documents.count;
  const result_t *results = sort_results(completion);
  if (results == NULL) return false;
  if (pairs->top_n > 0) count = MIN(count, pairs->top_n);
  if (!pairs->bare) {
    values_print_id(&out->own, completion, "rerank-");
    buffer_char(&out->own, ',');
    values_print_model(&out->own, completion);
    buffer_text(&out->own, ",\"results\":");
  }
  buffer_char(&out->own, '[');
  for (int64_t i = 0; i < count; i++) {
    if (i > 0) buffer_char(&out->own, ',');
    print_result(out, completion, results[i].index);
  }
  buffer_char(&out->own, ']');
  if (pairs->bare) return !cord_failed(out);
  buffer_char(&out->own, ',');
  if (completion->dialect == &rerank_v2_dialect)
    buffer_text(&out->own, "\"meta\":{\"api_version\":{\"version\":\"2\"},\"billed_units\":"
                           "{\"search_units\":1}},");
  values_print_usage(&out->own, completion);
  buffer_char(&out->own, '}');
  return !cord_failed(out);
}

static const dialect_t rerank_dialect = {.route = "/rerank",
                                         .table = &rerank_table,
                                         .tasks = 1U << TASK_EMBED | 1U << TASK_RERANK,
                                         .keep = keep_texts,
                                         .prepare = pairs_prepare,
                                         .pooled = pairs_pooled,
                                         .response = print_response};
static const dialect_t rerank_v2_dialect = {.route = "/v2/rerank",
                                            .table = &rerank_table,
                                            .tasks = 1U << TASK_EMBED | 1U << TASK_RERANK,
                                            .keep = keep_texts,
                                            .prepare = pairs_prepare,
                                            .pooled = pairs_pooled,
                                            .response = print_response};

void api_rerank(exchange_t *exchange) {
  completion_start(exchange, &rerank_dialect);
}

void api_rerank_v2(exchange_t *exchange) {
  completion_start(exchange, &rerank_v2_dialect);
}
