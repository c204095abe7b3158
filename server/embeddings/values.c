/* values.c: what was pooled of a prompt -> the numbers of an answer.
 *
 * Stage 9 of 9, for all routes that generate nothing. Loop thread.
 */
#include "server/embeddings/values.h"

#include <math.h>
#include <string.h>
#include <time.h>

bool values_prepare(completion_t *completion) {
  completion->created = (int64_t)time(NULL);
  return true;
}

int32_t values_count(const completion_t *completion) {
  int64_t asked = completion->params.embedding.dimensions;
  return asked > 0 ? (int32_t)asked : completion->info->embedding->size;
}

/* Divides the values that are returned by their length; a vector of zeros stays. */
static void normalise(double *values, int32_t count) {
  double sum = 0;
  for (int32_t i = 0; i < count; i++) sum += values[i] * values[i];
  double length = sqrt(sum);
  for (int32_t i = 0; i < count && length > 0; i++) values[i] /= length;
}

static double activate(score_activation_t activation, double score) {
  switch (activation) {
  case SCORE_SIGMOID: return 1 / (1 + exp(-score));
  case SCORE_TANH: return tanh(score);
  case SCORE_SOFTMAX: return 1; /* of one label */
  case SCORE_IDENTITY: break;
  }
  return score;
}

static void softmax(double *values, int32_t count) {
  double most = values[0], sum = 0;
  for (int32_t i = 1; i < count; i++) most = fmax(most, values[i]);
  for (int32_t i = 0; i < count; i++) sum += values[i] = exp(values[i] - most);
  for (int32_t i = 0; i < count; i++) values[i] /= sum;
}

double values_activate(const completion_t *completion, double score) {
  return completion->params.pairs.raw ? score
                                      : activate(completion->info->embedding->activation, score);
}

int32_t values_rows(const input_t *input) {
  const embedding_info_t *info = input->completion->info->embedding;
  return info->pooling == POOLING_EACH ? input->request.num_prompt_tokens : 1;
}

size_t values_total(const input_t *input) {
  return (size_t)values_rows(input) * (size_t)values_count(input->completion);
}

void values_finish(const input_t *input, int32_t row) {
  const completion_t *completion = input->completion;
  const embedding_info_t *info = completion->info->embedding;
  int32_t count = values_count(completion);
  double *values = input->request.pooled + (size_t)row * (size_t)count;
  if (info->task == TASK_EMBED) {
    if (completion->params.embedding.normalises) normalise(values, count);
    return;
  }
  if (completion->params.pairs.raw) return;
  if (info->activation == SCORE_SOFTMAX) {
    softmax(values, count);
    return;
  }
  for (int32_t i = 0; i < count; i++) values[i] = activate(info->activation, values[i]);
}

void values_print_number(buffer_t *out, const void *list, size_t index) {
  const input_t *input = list;
  const size_t count = (size_t)values_count(input->completion), at = index % count;
  const bool each = input->completion->info->embedding->pooling == POOLING_EACH;
  if (at == 0) values_finish(input, (int32_t)(index / count));
  if (at == 0 && each) buffer_char(out, '[');
  buffer_float(out, (float)input->request.pooled[index]);
  if (at + 1 == count && each) buffer_char(out, ']');
}

void values_print_id(buffer_t *out, const completion_t *completion, const char *prefix) {
  buffer_text(out, "{\"id\":\"");
  buffer_text(out, prefix);
  buffer_text(out, completion->exchange->request_id);
  buffer_char(out, '"');
}

void values_print_model(buffer_t *out, const completion_t *completion) {
  const char *model = completion_model_name(completion);
  buffer_text(out, "\"model\":");
  buffer_quote(out, model, strlen(model));
}

void values_print_usage(buffer_t *out, const completion_t *completion) {
  int64_t prompt = completion_usage(completion).prompt;
  buffer_text(out, "\"usage\":{\"prompt_tokens\":");
  buffer_int(out, prompt);
  buffer_text(out, ",\"total_tokens\":");
  buffer_int(out, prompt);
  buffer_char(out, '}');
}
