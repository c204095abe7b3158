/* score.c: POST /score: the scores of pairs of texts, in their order.
 *
 * Stage 9 of 9. Loop thread. Printed piece by piece, one score at a time.
 */
#include "server/embeddings/pairs.h"

static void print_item(buffer_t *out, const void *list, size_t index) {
  buffer_text(out, "{\"index\":");
  buffer_uint(out, index);
  buffer_text(out, ",\"object\":\"score\",\"score\":");
  buffer_float(out, pairs_shown(list, (int32_t)index));
  buffer_char(out, '}');
}

static bool print_response(completion_t *completion) {
  cord_t *out = &completion->reply;
  values_print_id(&out->own, completion, "score-");
  buffer_text(&out->own, ",\"object\":\"list\",\"created\":");
  buffer_int(&out->own, completion->created);
  buffer_char(&out->own, ',');
  values_print_model(&out->own, completion);
  buffer_text(&out->own, ",\"data\":[");
  cord_items(out, print_item, completion, (size_t)completion->params.pairs.documents.count);
  buffer_text(&out->own, "],");
  values_print_usage(&out->own, completion);
  buffer_char(&out->own, '}');
  return !cord_failed(out);
}

static const dialect_t score_dialect = {.route = "/score",
                                        .table = &score_table,
                                        .tasks = 1U << TASK_EMBED | 1U << TASK_RERANK,
                                        .prepare = pairs_prepare,
                                        .pooled = pairs_pooled,
                                        .response = print_response};

void api_score(exchange_t *exchange) {
  completion_start(exchange, &score_dialect);
}
