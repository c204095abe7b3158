/* classify.c: POST /classify: the probabilities of labels as the answer, or the entities of a text.
 *
 * Stage 9 of 9. Loop thread. Printed piece by piece, one number at a time.
 */
#include "server/embeddings/entities.h"

#include <string.h>

static void print_number(buffer_t *out, const void *list, size_t index) {
  const input_t *input = list;
  buffer_float(out, (float)input->request.pooled[index]);
}

/* The first of the most likely labels, and what comes before its probabilities. */
static void print_label(buffer_t *out, const void *list, size_t index) {
  const input_t *input = list;
  const completion_t *completion = input->completion;
  const embedding_info_t *info = completion->info->embedding;
  int32_t best = 0;
  (void)index;
  values_finish(input, 0);
  for (int32_t i = 1; i < info->size; i++) {
    if (input->request.pooled[i] > input->request.pooled[best]) best = i;
  }
  buffer_text(out, "{\"index\":");
  buffer_int(out, input - completion->inputs);
  buffer_text(out, ",\"label\":");
  buffer_quote(out, info->labels[best], strlen(info->labels[best]));
  buffer_text(out, ",\"num_classes\":");
  buffer_int(out, info->size);
  buffer_text(out, ",\"probs\":[");
}

/* An input, of a model that classifies tokens. */
static void print_tagged(buffer_t *out, const void *list, size_t index) {
  const completion_t *completion = list;
  buffer_text(out, "{\"index\":");
  buffer_uint(out, index);
  buffer_text(out, ",\"num_classes\":");
  buffer_int(out, completion->info->embedding->size);
  buffer_text(out, ",\"entities\":[");
  entities_print(out, &completion->inputs[index]);
  buffer_text(out, "]}");
}

static void print_texts(cord_t *out, const completion_t *completion) {
  for (int32_t i = 0; i < completion->num_inputs; i++) {
    if (i > 0) buffer_char(&out->own, ',');
    cord_items(out, print_label, &completion->inputs[i], 1);
    cord_items(out, print_number, &completion->inputs[i],
               (size_t)completion->info->embedding->size);
    buffer_text(&out->own, "]}");
  }
}

static bool print_response(completion_t *completion) {
  cord_t *out = &completion->reply;
  values_print_id(&out->own, completion, "classify-");
  buffer_text(&out->own, ",\"object\":\"list\",\"created\":");
  buffer_int(&out->own, completion->created);
  buffer_char(&out->own, ',');
  values_print_model(&out->own, completion);
  buffer_text(&out->own, ",\"data\":[");
  if (completion->info->embedding->task == TASK_TAG)
    cord_items(out, print_tagged, completion, (size_t)completion->num_inputs);
  else
    print_texts(out, completion);
  buffer_text(&out->own, "],");
  values_print_usage(&out->own, completion);
  buffer_char(&out->own, '}');
  return !cord_failed(out);
}

static const dialect_t classify_dialect = {.route = "/classify",
                                           .table = &classify_table,
                                           .tasks = 1U << TASK_CLASSIFY | 1U << TASK_TAG,
                                           .keep = entities_keep,
                                           .prepare = values_prepare,
                                           .response = print_response};

void api_classify(exchange_t *exchange) {
  completion_start(exchange, &classify_dialect);
}
