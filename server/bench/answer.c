/* answer.c: see answer.h. SSE lines and JSON bodies of the completions API.
 *
 * Any chunk with a choice stands for a token, also one with empty text (held-back bytes); only the
 * separate closing chunk that some servers send, no text and a finish_reason, does not.
 */
#include "server/bench/answer.h"

#include "engine/base/util.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ERROR_BODY_MAX = 65536 };

static const cJSON *field(const cJSON *object, const char *name) {
  return cJSON_GetObjectItemCaseSensitive(object, name);
}

static int number_in(const cJSON *object, const char *name) {
  const cJSON *item = field(object, name);
  return cJSON_IsNumber(item) ? item->valueint : 0;
}

static void read_usage(answer_t *answer, const cJSON *document) {
  const cJSON *usage = field(document, "usage");
  if (!cJSON_IsObject(usage)) return;
  answer->has_usage = true;
  answer->prompt_tokens = number_in(usage, "prompt_tokens");
  answer->output_tokens = number_in(usage, "completion_tokens");
  answer->cached_tokens = number_in(field(usage, "prompt_tokens_details"), "cached_tokens");
}

static void read_error(answer_t *answer, const cJSON *document) {
  const cJSON *error = field(document, "error");
  if (error == NULL || cJSON_IsNull(error)) return;
  answer->failed = true;
  const cJSON *message = cJSON_IsObject(error) ? field(error, "message") : error;
  snprintf(answer->error, sizeof answer->error, "%s",
           cJSON_IsString(message) ? message->valuestring : "an error object");
}

static void read_token(answer_t *answer, const cJSON *document, uint64_t now_ns) {
  const cJSON *choice = cJSON_GetArrayItem(field(document, "choices"), 0);
  if (choice == NULL) return;
  const cJSON *text = field(choice, "text");
  if (text == NULL) text = field(field(choice, "delta"), "content");
  bool empty = !cJSON_IsString(text) || text->valuestring[0] == 0;
  bool closing = empty && cJSON_IsString(field(choice, "finish_reason"));
  if (!closing) {
    answer->num_chunks++;
    if (!answer->first_ns) {
      answer->first_ns = now_ns;
    } else if (answer->on_gap != NULL) {
      answer->on_gap(answer->context, (double)(now_ns - answer->last_ns) / 1e6);
    }
  }
  if (answer->first_ns) answer->last_ns = now_ns;
}

static void read_document(answer_t *answer, const char *text, size_t length, uint64_t now_ns) {
  cJSON *document = cJSON_ParseWithLength(text, length);
  if (document == NULL) {
    answer->failed = true;
    snprintf(answer->error, sizeof answer->error, "not JSON: %.*s", (int)MIN(length, 150), text);
    return;
  }
  if (answer->stream) read_token(answer, document, now_ns);
  read_usage(answer, document);
  read_error(answer, document);
  cJSON_Delete(document);
}

static void read_line(answer_t *answer, const char *line, size_t length, uint64_t now_ns) {
  if (length > 0 && line[length - 1] == '\r') length--;
  if (length < 5 || memcmp(line, "data:", 5) != 0) return; /* comments, blank lines, event: */
  line += 5, length -= 5;
  if (length > 0 && line[0] == ' ') line++, length--;
  if (length == 6 && memcmp(line, "[DONE]", 6) == 0) {
    answer->done = true;
  } else {
    read_document(answer, line, length, now_ns);
  }
}

static void keep(answer_t *answer, const char *bytes, size_t count) {
  if (answer->length + count + 1 > answer->capacity) {
    answer->capacity = (answer->length + count + 1) * 2;
    answer->bytes = realloc(answer->bytes, answer->capacity);
    if (answer->bytes == NULL) abort();
  }
  memcpy(answer->bytes + answer->length, bytes, count);
  answer->length += count;
  answer->bytes[answer->length] = 0;
}

void answer_feed(answer_t *answer, const char *bytes, size_t count, uint64_t now_ns) {
  if (answer->status != 200) {
    size_t room = ERROR_BODY_MAX - answer->length;
    keep(answer, bytes, MIN(count, room));
    return;
  }
  keep(answer, bytes, count);
  if (!answer->stream) return;
  char *begin = answer->bytes, *end = answer->bytes + answer->length, *newline;
  while ((newline = memchr(begin, '\n', (size_t)(end - begin))) != NULL) {
    read_line(answer, begin, (size_t)(newline - begin), now_ns);
    begin = newline + 1;
  }
  answer->length = (size_t)(end - begin);
  memmove(answer->bytes, begin, answer->length);
}

bool answer_end(answer_t *answer, uint64_t now_ns) {
  const char *body = answer->bytes != NULL ? answer->bytes : "";
  if (answer->status != 200) {
    snprintf(answer->error, sizeof answer->error, "HTTP %d: %.220s", answer->status, body);
    return false;
  }
  if (!answer->stream) read_document(answer, body, answer->length, now_ns);
  if (answer->stream && !answer->has_usage) answer->output_tokens = answer->num_chunks;
  if (answer->failed) return false;
  if (answer->stream && !answer->done) {
    snprintf(answer->error, sizeof answer->error, "the stream ended without [DONE]");
    return false;
  }
  if (answer->output_tokens < 1) {
    snprintf(answer->error, sizeof answer->error, "an answer without tokens");
    return false;
  }
  return true;
}

void answer_free(answer_t *answer) {
  free(answer->bytes);
  answer->bytes = NULL;
}
