/* fuzz_server.c: what the server and its tools read besides requests.
 *
 * options: a configuration file. keys: a key file, line by line. answer: the bytes that a server
 * sends to inferd-bench. stops: stop strings of a request, and generated ids.
 */
#include "config/config.h"
#include "engine/base/buffer.h"
#include "engine/base/utf8.h"
#include "engine/text/stream/detokenizer.h"
#include "server/bench/answer.h"
#include "server/bench/response.h"
#include "server/keys/key_line.h"
#include "tests/fuzz/targets.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void fuzz_options(const uint8_t *data, size_t size) {
  config_t config = {0};
  inferd_error_t error = {0};
  char path[256];
  fuzz_write("inferd.conf", data, size);
  snprintf(path, sizeof path, "%s/inferd.conf", fuzz_directory());
  int code = config_load_file(&config, path, &error);
  if ((code == 0) != (error.message[0] == '\0')) abort();
  config_free(&config);
  fuzz_remove("inferd.conf");
}

/* The line is cut in place, so every word must stand inside it. */
static void check_word(const char *word, const char *line, size_t length) {
  if (word != NULL && word[0] != '\0' && (word < line || word + strlen(word) > line + length)) {
    abort();
  }
}

void fuzz_keys(const uint8_t *data, size_t size) {
  static const key_place_t place = {.option = "api_key_file", .text = "api_key_file: line 7"};
  while (size > 0) {
    size_t length;
    const uint8_t *bytes = fuzz_part(&data, &size, '\n', &length);
    char *line = malloc(length + 1);
    if (line == NULL) abort();
    memcpy(line, bytes, length);
    line[length] = '\0';
    key_line_t out;
    inferd_error_t error = {0};
    int code = key_line_parse(line, &place, &out, &error);
    if ((code == 0) != (error.message[0] == '\0')) abort();
    if (code == 0 && out.key != NULL) {
      check_word(out.key, line, length);
      check_word(out.label, line, length);
      if (out.key[0] == '\0' || out.limits.weight < 0 || out.limits.max_waiting < 0 ||
          out.limits.max_tokens_waiting < 0 || out.limits.requests_per_minute < 0 ||
          out.limits.tokens_per_minute < 0) {
        abort();
      }
    }
    free(line);
  }
}

/* ---- answers of a server ---- */

typedef struct heard {
  response_t response;
  answer_t answer;
  buffer_t body;
  bool good, complete;
} heard_t;

static void take_body(void *context, const char *bytes, size_t count) {
  heard_t *heard = context;
  buffer_append(&heard->body, bytes, count);
  heard->answer.status = heard->response.status;
  answer_feed(&heard->answer, bytes, count, 1000000);
}

/* Reads the bytes in pieces of 1 to `most`, or whole if `most` is 0. */
static void hear(heard_t *heard, const uint8_t *data, size_t size, bool stream, size_t most) {
  *heard = (heard_t){.good = true, .answer.stream = stream};
  response_begin(&heard->response, take_body, heard);
  for (size_t at = 0, n; at < size && heard->good; at += n) {
    n = most == 0 ? size : 1 + at % most;
    if (n > size - at) n = size - at;
    char *piece = malloc(n); /* exact: a read behind it is seen */
    if (piece == NULL) abort();
    memcpy(piece, data + at, n);
    heard->good = response_feed(&heard->response, piece, n);
    if (!heard->good && heard->response.error == NULL) abort();
    free(piece);
  }
  if (heard->good) heard->complete = response_close(&heard->response);
  if (answer_end(&heard->answer, 2000000) && heard->answer.num_chunks < 0) abort();
}

static void heard_free(heard_t *heard) {
  answer_free(&heard->answer);
  buffer_free(&heard->body);
}

void fuzz_answer(const uint8_t *data, size_t size) {
  heard_t whole, cut;
  if (size == 0) return;
  hear(&whole, data + 1, size - 1, data[0] % 2 == 1, 0);
  hear(&cut, data + 1, size - 1, data[0] % 2 == 1, 1 + data[0] / 2);
  if (whole.good != cut.good || whole.complete != cut.complete ||
      whole.response.status != cut.response.status || whole.body.length != cut.body.length ||
      (whole.body.length > 0 && memcmp(whole.body.data, cut.body.data, whole.body.length) != 0) ||
      whole.answer.num_chunks != cut.answer.num_chunks || whole.answer.done != cut.answer.done ||
      whole.answer.failed != cut.answer.failed) {
    abort();
  }
  heard_free(&whole);
  heard_free(&cut);
}

/* ---- stop strings ---- */

static tokenizer_t *bytes_tokenizer;

static void check_piece(buffer_t *text, detokenized_t piece) {
  for (size_t at = 0; at < piece.length;) {
    int span = utf8_span(piece.text + at, piece.length - at);
    if (span <= 0) abort(); /* nothing that is sent ends inside a character */
    at += (size_t)span;
  }
  buffer_append(text, piece.text, piece.length);
}

/* Stop strings, each behind its length, then a zero byte, then ids. A text that ends within a
 * character ends in U+FFFD, which is not searched. */
void fuzz_stops(const uint8_t *data, size_t size) {
  const char *strings[STOP_STRINGS_MAX + 1];
  size_t lengths[STOP_STRINGS_MAX + 1];
  int count = 0;
  inferd_error_t error = {0};
  if (bytes_tokenizer == NULL && tokenizer_load("models/demo", &bytes_tokenizer, &error) != 0) {
    abort();
  }
  while (size > 1 && data[0] > 0 && count <= STOP_STRINGS_MAX && data[0] < size) {
    strings[count] = (const char *)data + 1;
    lengths[count++] = data[0];
    size -= 1u + data[0];
    data += 1u + data[0];
  }
  stop_set_t *stops = NULL;
  if (stop_set_new(strings, lengths, count, &stops, &error) != 0) return;
  char *held = malloc(stop_set_hold_max(stops) + 1);
  char *out = malloc(detokenizer_out_max(bytes_tokenizer, stops));
  if (held == NULL || out == NULL) abort();
  detokenizer_t detokenizer;
  buffer_t text = {0};
  int stopped = -1;
  detokenizer_init(&detokenizer, bytes_tokenizer, stops, size % 2 == 1, false, held);
  for (size_t i = 0; i + 1 < size && stopped < 0; i += 2) {
    int32_t id = (data[i] << 8 | data[i + 1]) % tokenizer_vocab_size(bytes_tokenizer);
    detokenized_t piece = detokenizer_feed(&detokenizer, id, true, out);
    check_piece(&text, piece);
    stopped = piece.stop_index;
  }
  size_t behind = stopped < 0 && detokenizer.num_pending > 0 ? 3 : 0; /* the last U+FFFD */
  if (stopped < 0) check_piece(&text, detokenizer_finish(&detokenizer, out));
  for (int i = 0; i < count && text.length > behind; i++) { /* no stop string is ever sent */
    if (memmem(text.data, text.length - behind, strings[i], lengths[i]) != NULL) abort();
  }
  size_t length;
  const char *string = stop_set_string(stops, stopped, &length);
  if ((string != NULL) != (stopped >= 0)) abort();
  if (string != NULL &&
      (length != lengths[stopped] || memcmp(string, strings[stopped], length) != 0))
    abort();
  buffer_free(&text);
  stop_set_free(stops);
  free(held);
  free(out);
}
