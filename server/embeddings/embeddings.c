/* embeddings.c: POST /v1/embeddings: the vectors of a request as its answer.
 *
 * Stage 9 of 9. Loop thread. The request is read, admitted and ended as a completion without output
 * (server/completion); each input's request holds what was pooled. The answer is printed piece by
 * piece: one number, or one vector in base64, is the smallest.
 */
#include "server/completion/dialect.h"

#include <math.h>
#include <string.h>

static bool prepare(completion_t *completion) {
  (void)completion;
  return true;
}

static int32_t num_values(const completion_t *completion) {
  int64_t asked = completion->params.embedding.dimensions;
  return asked > 0 ? (int32_t)asked : completion->info->embedding->size;
}

/* Divides the values that are returned by their length, if that is wanted; a vector of zeros stays.
 * Called when a vector is printed: thousands of them at once would hold up the loop. */
static void normalise(const input_t *input) {
  const completion_t *completion = input->completion;
  double *values = input->request.pooled, sum = 0;
  int32_t count = num_values(completion);
  if (!completion->params.embedding.normalises) return;
  for (int32_t i = 0; i < count; i++) sum += values[i] * values[i];
  double length = sqrt(sum);
  for (int32_t i = 0; i < count && length > 0; i++) values[i] /= length;
}

static void print_number(buffer_t *out, const void *list, size_t index) {
  const input_t *input = list;
  if (index == 0) normalise(input);
  buffer_float(out, (float)input->request.pooled[index]);
}

/* Three values are 12 bytes, which are 16 letters. The bytes of a value go out lowest first. */
static void print_base64(buffer_t *out, const double *values, int32_t count) {
  static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  uint32_t bits = 0;
  int num_bits = 0, num_letters = 0;
  for (int32_t i = 0; i < count; i++) {
    float value = (float)values[i];
    uint32_t word;
    memcpy(&word, &value, sizeof word);
    for (int byte = 0; byte < 4; byte++) {
      bits = bits << 8 | (word >> 8 * byte & 0xFF);
      for (num_bits += 8; num_bits >= 6; num_letters++) {
        num_bits -= 6;
        buffer_char(out, letters[bits >> num_bits & 63]);
      }
    }
  }
  if (num_bits > 0) buffer_char(out, letters[bits << (6 - num_bits) & 63]), num_letters++;
  for (; num_letters % 4 != 0; num_letters++) buffer_char(out, '=');
}

static void print_head(buffer_t *out, size_t index) {
  buffer_text(out, "{\"object\":\"embedding\",\"index\":");
  buffer_uint(out, index);
  buffer_text(out, ",\"embedding\":");
}

static void print_encoded(buffer_t *out, const void *list, size_t index) {
  const completion_t *completion = list;
  normalise(&completion->inputs[index]);
  print_head(out, index);
  buffer_char(out, '"');
  print_base64(out, completion->inputs[index].request.pooled, num_values(completion));
  buffer_text(out, "\"}");
}

static void print_vectors(cord_t *out, const completion_t *completion) {
  if (completion->params.embedding.base64) {
    cord_items(out, print_encoded, completion, (size_t)completion->num_inputs);
    return;
  }
  for (int32_t i = 0; i < completion->num_inputs; i++) {
    if (i > 0) buffer_char(&out->own, ',');
    print_head(&out->own, (size_t)i);
    buffer_char(&out->own, '[');
    cord_items(out, print_number, &completion->inputs[i], (size_t)num_values(completion));
    buffer_text(&out->own, "]}");
  }
}

static bool print_response(completion_t *completion) {
  cord_t *out = &completion->reply;
  const char *model = completion_model_name(completion);
  int64_t prompt = completion_usage(completion).prompt;
  buffer_text(&out->own, "{\"id\":\"embd-");
  buffer_text(&out->own, completion->exchange->request_id);
  buffer_text(&out->own, "\",\"object\":\"list\",\"data\":[");
  print_vectors(out, completion);
  buffer_text(&out->own, "],\"model\":");
  buffer_quote(&out->own, model, strlen(model));
  buffer_text(&out->own, ",\"usage\":{\"prompt_tokens\":");
  buffer_int(&out->own, prompt);
  buffer_text(&out->own, ",\"total_tokens\":");
  buffer_int(&out->own, prompt);
  buffer_text(&out->own, "}}");
  return !cord_failed(out);
}

static const dialect_t embedding_dialect = {
    .route = "/v1/embeddings", .embeds = true, .prepare = prepare, .response = print_response};

void api_embeddings(exchange_t *exchange) {
  completion_start(exchange, &embedding_dialect);
}
