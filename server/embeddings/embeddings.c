/* embeddings.c: POST /v1/embeddings and /pooling: the vectors of a request as its answer.
 *
 * Stage 9 of 9. Loop thread. The request is read, admitted and ended as a completion without output
 * (server/completion); each input's request holds what was pooled. The answer is printed piece by
 * piece: one number, or three in base64, are the smallest.
 */
#include "engine/base/util.h"
#include "server/embeddings/values.h"

#include <string.h>

enum { GROUP = 3 }; /* values: 12 bytes, which are 16 letters */

/* The bytes of a value go out lowest first. */
static void print_base64(buffer_t *out, const double *values, size_t count) {
  static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  uint32_t bits = 0;
  int num_bits = 0, num_letters = 0;
  for (size_t i = 0; i < count; i++) {
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

static const dialect_t embedding_dialect, pooling_dialect;

static void print_head(buffer_t *out, const completion_t *completion, size_t index) {
  bool pools = completion->dialect == &pooling_dialect;
  buffer_text(out, pools ? "{\"object\":\"pooling\",\"index\":"
                         : "{\"object\":\"embedding\",\"index\":");
  buffer_uint(out, index);
  buffer_text(out, pools ? ",\"data\":" : ",\"embedding\":");
}

static void print_group(buffer_t *out, const void *list, size_t index) {
  const input_t *input = list;
  const size_t total = values_total(input), count = (size_t)values_count(input->completion);
  const size_t begin = index * GROUP, end = MIN(begin + GROUP, total);
  for (size_t i = begin; i < end; i++)
    if (i % count == 0) values_finish(input, (int32_t)(i / count));
  print_base64(out, input->request.pooled + begin, end - begin);
}

static void print_vectors(cord_t *out, const completion_t *completion) {
  const bool base64 = completion->params.embedding.base64;
  for (int32_t i = 0; i < completion->num_inputs; i++) {
    const input_t *input = &completion->inputs[i];
    const size_t total = values_total(input);
    if (i > 0) buffer_char(&out->own, ',');
    print_head(&out->own, completion, (size_t)i);
    buffer_char(&out->own, base64 ? '"' : '[');
    if (base64)
      cord_joined(out, print_group, input, (total + GROUP - 1) / GROUP);
    else
      cord_items(out, values_print_number, input, total);
    buffer_text(&out->own, base64 ? "\"}" : "]}");
  }
}

static bool print_response(completion_t *completion) {
  cord_t *out = &completion->reply;
  bool pools = completion->dialect == &pooling_dialect;
  values_print_id(&out->own, completion, pools ? "pool-" : "embd-");
  buffer_text(&out->own, ",\"object\":\"list\",");
  if (pools) {
    buffer_text(&out->own, "\"created\":");
    buffer_int(&out->own, completion->created);
    buffer_char(&out->own, ',');
  }
  buffer_text(&out->own, "\"data\":[");
  print_vectors(out, completion);
  buffer_text(&out->own, "],");
  values_print_model(&out->own, completion);
  buffer_char(&out->own, ',');
  values_print_usage(&out->own, completion);
  buffer_char(&out->own, '}');
  return !cord_failed(out);
}

static const dialect_t embedding_dialect = {.route = "/v1/embeddings",
                                            .table = &embedding_table,
                                            .tasks = 1U << TASK_EMBED,
                                            .prepare = values_prepare,
                                            .response = print_response};
static const dialect_t pooling_dialect = {.route = "/pooling",
                                          .table = &pooling_table,
                                          .tasks = 1U << TASK_EMBED | 1U << TASK_CLASSIFY |
                                                   1U << TASK_TAG,
                                          .prepare = values_prepare,
                                          .response = print_response};

void api_embeddings(exchange_t *exchange) {
  completion_start(exchange, &embedding_dialect);
}

void api_pooling(exchange_t *exchange) {
  completion_start(exchange, &pooling_dialect);
}
