/* answer.c: see answer.h. SSE lines and JSON bodies of the completions API.
 *
 * Any chunk with a choice stands for a token, also one with empty text (held-back bytes); only the
 * separate closing chunk that some servers send, no text and a finish_reason, does not.
 */
#include "server/bench/answer.h"

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

static void read_usage(answer_t *a, const cJSON *document) {
  const cJSON *usage = field(document, "usage");
  if (!cJSON_IsObject(usage)) return;
  a->has_usage = true;
  a->prompt_tokens = number_in(usage, "prompt_tokens");
  a->output_tokens = number_in(usage, "completion_tokens");
  a->cached_tokens = number_in(field(usage, "prompt_tokens_details"), "cached_tokens");
}

static void read_error(answer_t *a, const cJSON *document) {
  const cJSON *error = field(document, "error");
  if (error == NULL || cJSON_IsNull(error)) return;
  a->failed = true;
  const cJSON *message = cJSON_IsObject(error) ? field(error, "message") : error;
  snprintf(a->error, sizeof a->error, "%s",
           cJSON_IsString(message) ? message->valuestring : "an error object");
}

static void read_token(answer_t *a, const cJSON *document, uint64_t now_ns) {
  const cJSON *choice = cJSON_GetArrayItem(field(document, "choices"), 0);
  if (choice == NULL) return;
  const cJSON *text = field(choice, "text");
  if (text == NULL) text = field(field(choice, "delta"), "content");
  bool empty = !cJSON_IsString(text) || text->valuestring[0] == 0;
  bool closing = empty && cJSON_IsString(field(choice, "finish_reason"));
  if (!closing) {
    a->num_chunks++;
    if (!a->first_ns) {
      a->first_ns = now_ns;
    } else if (a->on_gap != NULL) {
      a->on_gap(a->context, (double)(now_ns - a->last_ns) / 1e6);
    }
  }
  if (a->first_ns) a->last_ns = now_ns;
}

static void read_document(answer_t *a, const char *text, size_t length, uint64_t now_ns) {
  cJSON *document = cJSON_ParseWithLength(text, length);
  if (document == NULL) {
    a->failed = true;
    snprintf(a->error, sizeof a->error, "not JSON: %.*s", (int)(length < 150 ? length : 150), text);
    return;
  }
  if (a->stream) read_token(a, document, now_ns);
  read_usage(a, document);
  read_error(a, document);
  cJSON_Delete(document);
}

static void read_line(answer_t *a, const char *line, size_t length, uint64_t now_ns) {
  if (length > 0 && line[length - 1] == '\r') length--;
  if (length < 5 || memcmp(line, "data:", 5) != 0) return; /* comments, blank lines, event: */
  line += 5, length -= 5;
  if (length > 0 && line[0] == ' ') line++, length--;
  if (length == 6 && memcmp(line, "[DONE]", 6) == 0) {
    a->done = true;
  } else {
    read_document(a, line, length, now_ns);
  }
}

static void keep(answer_t *a, const char *bytes, size_t count) {
  if (a->length + count + 1 > a->capacity) {
    a->capacity = (a->length + count + 1) * 2;
    a->bytes = realloc(a->bytes, a->capacity);
    if (a->bytes == NULL) abort();
  }
  memcpy(a->bytes + a->length, bytes, count);
  a->length += count;
  a->bytes[a->length] = 0;
}

void answer_feed(answer_t *a, const char *bytes, size_t count, uint64_t now_ns) {
  if (a->status != 200) {
    size_t room = ERROR_BODY_MAX - a->length;
    keep(a, bytes, count < room ? count : room);
    return;
  }
  keep(a, bytes, count);
  if (!a->stream) return;
  char *begin = a->bytes, *end = a->bytes + a->length, *newline;
  while ((newline = memchr(begin, '\n', (size_t)(end - begin))) != NULL) {
    read_line(a, begin, (size_t)(newline - begin), now_ns);
    begin = newline + 1;
  }
  a->length = (size_t)(end - begin);
  memmove(a->bytes, begin, a->length);
}

bool answer_end(answer_t *a, uint64_t now_ns) {
  const char *body = a->bytes != NULL ? a->bytes : "";
  if (a->status != 200) {
    snprintf(a->error, sizeof a->error, "HTTP %d: %.220s", a->status, body);
    return false;
  }
  if (!a->stream) read_document(a, body, a->length, now_ns);
  if (a->stream && !a->has_usage) a->output_tokens = a->num_chunks;
  if (a->failed) return false;
  if (a->stream && !a->done) {
    snprintf(a->error, sizeof a->error, "the stream ended without [DONE]");
    return false;
  }
  if (a->output_tokens < 1) {
    snprintf(a->error, sizeof a->error, "an answer without tokens");
    return false;
  }
  return true;
}

void answer_free(answer_t *a) {
  free(a->bytes);
  a->bytes = NULL;
}
