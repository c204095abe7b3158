/* passage.c: a request on its way to the process of its model, and the answer on its way back.
 *
 * Loop thread of the parent. A passage waits for its model, then takes a channel to it, writes the
 * request as this server would read it, and reads the answer: whole ones are collected, streams are
 * passed on as they come. While the client takes less than comes, nothing is read, so the child
 * sees a slow client as it is. A client that leaves closes the channel, which cancels the request
 * in the child.
 *
 * With a request that may be a stream goes the client's socket. Once the stream has begun, the
 * child asks for it, and writes its chunks there itself (http_loan.c); here lies what concerns
 * HTTP: the head before, the last chunk behind, and the next request.
 */
#include "server/models/models_internal.h"

#include "engine/base/check.h"
#include "engine/base/clock.h"
#include "engine/base/hex.h"
#include "engine/base/util.h"
#include "server/http/http.h"
#include "server/keys/api_key.h"
#include "server/observe/log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ERRAND_WAIT_S: less than what makes a request wait for no idle model any more (lifecycle.h, rule
 * 5): a line of a batch comes again instead, so that no model is closed for it that answers. */
enum { HEAD_BYTES_MAX = 16 * 1024, HELD_MAX_NS = 1000000000, ERRAND_WAIT_S = 5 };
enum {
  ANSWER_HEAD,
  ANSWER_BODY, /* of a known length */
  ANSWER_SIZE, /* the line of a chunk's size */
  ANSWER_CHUNK,
  ANSWER_CHUNK_END, /* the line end behind a chunk */
  ANSWER_TRAILER,   /* lines up to an empty one */
  ANSWER_COMPLETE
};

/* Headers of requests that a model's process reads, and of its answers that clients do. */
static const char *const request_headers[] = {
    "Accept",          "Content-Type", "X-Request-Id", "X-Client-Request-Id",
    "X-Vllm-Priority", "traceparent",  "tracestate"};
static const char *const answer_headers[] = {"retry-after",
                                             "retry-after-ms",
                                             "x-should-retry",
                                             "x-inferd-mended",
                                             "x-inferd-ignored-params",
                                             "x-ratelimit-limit-requests",
                                             "x-ratelimit-remaining-requests",
                                             "x-ratelimit-reset-requests",
                                             "x-ratelimit-limit-tokens",
                                             "x-ratelimit-remaining-tokens",
                                             "x-ratelimit-reset-tokens"};

/* ---- the end ---- */

static void passage_free(passage_t *passage) {
  models_t *models = passage->model->models;
  *(passage->previous != NULL ? &passage->previous->next : &models->passages) = passage->next;
  if (passage->next != NULL) passage->next->previous = passage->previous;
  models->num_passages--;
  models->num_paused -= passage->paused;
  held_free(&passage->body);
  charge_drop(&passage->answer.charge);
  buffer_free(&passage->answer.line);
  buffer_free(&passage->answer.body);
  free(passage);
}

static void leave_early(passage_t *passage) {
  if (!passage->is_early) return;
  *passage->early_link = passage->early;
  if (passage->early != NULL) passage->early->early_link = passage->early_link;
  passage->is_early = false;
}

/* It neither waits nor runs any more. */
static void end(passage_t *passage) {
  models_t *models = passage->model->models;
  bool whole = passage->answer.state == ANSWER_COMPLETE && !passage->answer.closes;
  leave_early(passage);
  lobby_leave(models->lobby, &passage->guest);
  life_leave(models->life, &passage->life, clock_now_ns());
  if (passage->channel != NULL)
    channel_leave(passage->channel, passage->model, whole && !passage->paused);
  passage_free(passage);
  models_pump(models);
}

/* The client has left, or the server shuts down and has answered. */
static void on_gone(exchange_t *exchange, const char *cause) {
  (void)cause;
  end(exchange->user);
}

/* Writes an error into a stream in the words of its route. */
static void write_error(exchange_t *exchange, const char *body, size_t length) {
  static const struct {
    const char *begin, *end;
  } words[] = {[WIRE_OPENAI] = {"data: ", "\n\ndata: [DONE]\n\n"},
               [WIRE_ANTHROPIC] = {"event: error\ndata: ", "\n\n"},
               [WIRE_OLLAMA] = {"", "\n"}};
  exchange_write(exchange, words[exchange->wire].begin, strlen(words[exchange->wire].begin));
  exchange_write(exchange, body, length);
  exchange_write(exchange, words[exchange->wire].end, strlen(words[exchange->wire].end));
}

/* Behind a part of a chunk or of an event nothing can be said. */
static void on_abort(exchange_t *exchange, const inferd_error_t *error) {
  const passage_t *passage = exchange->user;
  size_t length = 0;
  if (passage->half) {
    exchange_break(exchange);
    return;
  }
  char *body = exchange_error_body(exchange, error, &length);
  if (body != NULL) write_error(exchange, body, length);
  free(body);
}

void passage_refuse(passage_t *passage, const inferd_error_t *error) {
  exchange_t *exchange = passage->exchange;
  if (passage->streams) {
    on_abort(exchange, error);
    exchange_end(exchange);
  } else {
    exchange_error(exchange, error);
  }
  end(passage);
}

/* The connection to the child has ended before the answer did. */
static void fail_broken(passage_t *passage) {
  inferd_error_t error = {0};
  error_set(&error, ERR_INTERNAL, NULL,
            "The process of the model `%.200s` ended, or cut its answer; the other models go on.",
            passage->model->wish.names.list[0]);
  passage_refuse(passage, &error);
}

/* ---- the answer, whole ---- */

/* The head of a stream goes out with what follows it, which has come by now. */
static void begin_stream(passage_t *passage) {
  if (!passage->answer.is_stream || passage->streams) return;
  passage->streams = true;
  exchange_stream(passage->exchange);
}

static void finish(passage_t *passage) {
  exchange_t *exchange = passage->exchange;
  buffer_t *body = &passage->answer.body;
  size_t length;
  begin_stream(passage);
  if (passage->answer.is_stream) {
    exchange_end(exchange);
    end(passage);
    return;
  }
  buffer_char(body, '\0');
  char *text = body->failed ? NULL : buffer_detach(body, &length);
  if (text == NULL) {
    inferd_error_t error;
    error_set(&error, ERR_OVERLOADED, NULL, "The server is short of memory for the answer.");
    passage_refuse(passage, &error);
    return;
  }
  length--;
  if (passage->streams) { /* it began while it waited, and the model has refused it */
    write_error(exchange, text, length);
    exchange_end(exchange);
    free(text);
  } else {
    exchange_reply(exchange, passage->answer.status, passage->answer.type, text, length);
  }
  end(passage);
}

/* ---- the answer, as it comes ---- */

static void pause_reading(passage_t *passage) {
  if (passage->paused) return;
  passage->paused = true;
  passage->model->models->num_paused++;
  channel_read(passage->channel, false);
}

static size_t pending_max(const passage_t *passage) {
  return (size_t)passage->model->models->server->config->stream_buffer_bytes / 2;
}

/* Whether the last of these bytes ends an event of the stream: an empty line, or a line of ndjson.
 * An empty line that comes in two parts is taken for a part of an event. */
static bool ends_event(const passage_t *passage, const char *bytes, size_t length) {
  if (bytes[length - 1] != '\n') return false;
  return passage->exchange->wire == WIRE_OLLAMA || (length > 1 && bytes[length - 2] == '\n');
}

/* Takes bytes of the body. Returns false if the passage has ended by it. */
static bool take(passage_t *passage, const char *bytes, size_t length) {
  exchange_t *exchange = passage->exchange;
  begin_stream(passage);
  if (passage->answer.is_stream) {
    /* What is said here comes behind all of the socket lent. */
    passage->half = !ends_event(passage, bytes, length);
    if (!exchange_write(exchange, bytes, length)) {
      pause_reading(passage); /* on_gone follows */
      return true;
    }
    if (exchange_pending(exchange) > pending_max(passage)) pause_reading(passage);
    return true;
  }
  size_t needed = passage->answer.body.length + length;
  charge_t *charge = &passage->answer.charge;
  if (needed > charge->bytes && !charge_resize(charge, MAX(needed, 2 * charge->bytes))) {
    inferd_error_t error;
    (void)ledger_refuse(charge, &error);
    passage_refuse(passage, &error);
    return false;
  }
  buffer_append(&passage->answer.body, bytes, length);
  return true;
}

static void take_header(passage_t *passage, char *line) {
  char *value = strchr(line, ':');
  if (value == NULL) return;
  *value++ = '\0';
  value += strspn(value, " ");
  if (strcasecmp(line, "Content-Length") == 0) {
    passage->answer.has_length = true;
    passage->answer.left = strtoull(value, NULL, 10);
  } else if (strcasecmp(line, "Transfer-Encoding") == 0) {
    passage->answer.chunked = strcasecmp(value, "chunked") == 0;
  } else if (strcasecmp(line, "Connection") == 0) {
    passage->answer.closes = strcasecmp(value, "close") == 0;
  } else if (strcasecmp(line, "Content-Type") == 0) {
    snprintf(passage->answer.type, sizeof passage->answer.type, "%s", value);
    passage->answer.is_stream =
        strncmp(value, "text/event-stream", 17) == 0 || strcmp(value, "application/x-ndjson") == 0;
  }
  if (strcasecmp(line, "x-request-id") == 0 && !passage->streams)
    snprintf(passage->exchange->request_id, sizeof passage->exchange->request_id, "%s", value);
  for (size_t i = 0; i < ARRAY_LEN(answer_headers) && !passage->streams; i++) {
    if (strcasecmp(line, answer_headers[i]) == 0)
      exchange_header(passage->exchange, answer_headers[i], value);
  }
}

/* Reads the head, which lies whole in answer.line with a NUL behind it. False: it is none. */
static bool take_head(passage_t *passage) {
  char *rest = passage->answer.line.data, *line = strsep(&rest, "\n");
  if (strncmp(line, "HTTP/1.1 ", 9) != 0) return false;
  passage->answer.status = atoi(line + 9);
  while ((line = strsep(&rest, "\n")) != NULL) {
    line[strcspn(line, "\r")] = '\0';
    take_header(passage, line);
  }
  buffer_clear(&passage->answer.line);
  if (passage->answer.status < 200 || passage->answer.status > 599) return false;
  if (!passage->answer.chunked && !passage->answer.has_length) return false;
  passage->answer.state = passage->answer.chunked ? ANSWER_SIZE : ANSWER_BODY;
  passage->exchange->passed_on = true;
  passage->answer.charge =
      charge_open(passage->model->models->server->ledger, passage->exchange->source, LEDGER_reply);
  return true;
}

/* Appends bytes up to a line end. Returns how many were taken; *whole: the line is complete, and a
 * NUL stands in the place of its end. */
static size_t take_line(passage_t *passage, const char *bytes, size_t length, bool *whole) {
  buffer_t *line = &passage->answer.line;
  const char *end_of_line = memchr(bytes, '\n', length);
  size_t taken = end_of_line != NULL ? (size_t)(end_of_line - bytes) + 1 : length;
  buffer_append(line, bytes, taken);
  *whole = end_of_line != NULL;
  if (!*whole || line->failed) return taken;
  line->data[line->length - 1] = '\0';
  if (line->length > 1 && line->data[line->length - 2] == '\r') line->data[line->length - 2] = '\0';
  return taken;
}

/* The head ends in an empty line. Returns the bytes that belong to it; 0: it is wrong. */
static size_t read_head(passage_t *passage, const char *bytes, size_t length) {
  buffer_t *head = &passage->answer.line;
  size_t had = head->length;
  size_t kept = MIN(length, HEAD_BYTES_MAX - had);
  buffer_append(head, bytes, kept);
  if (head->failed) return 0;
  char *found = memmem(head->data, head->length, "\r\n\r\n", 4);
  if (found == NULL) return head->length < HEAD_BYTES_MAX ? kept : 0;
  size_t size = (size_t)(found - head->data) + 4;
  found[2] = '\0'; /* the line end of the last header stays */
  return take_head(passage) ? size - had : 0;
}

/* All that came before has gone out. */
static void on_sent(exchange_t *exchange) {
  passage_t *passage = exchange->user;
  /* If it fails the channel is broken, as its reader will see. */
  (void)channel_grant(passage->channel);
}

/* Reads what the child says in the place of a chunk. False: it says nothing of a loan. */
static bool take_loan(passage_t *passage, const char *text) {
  if (!passage->answer.is_stream || text[0] == '\0' || text[1] != '\0') return false;
  begin_stream(passage);
  switch (text[0]) {
  case LOAN_ASK: exchange_when_sent(passage->exchange, on_sent); return true;
  case LOAN_HALF: passage->half = true; return true;
  default: return false;
  }
}

/* Reads a line of the framing of chunks. False: it is wrong. */
static bool read_framing(passage_t *passage, const char *bytes, size_t length, size_t *taken) {
  bool whole;
  *taken = take_line(passage, bytes, length, &whole);
  buffer_t *line = &passage->answer.line;
  if (line->failed || line->length > HEAD_BYTES_MAX) return false;
  if (!whole) return true;
  if (passage->answer.state == ANSWER_SIZE && take_loan(passage, line->data)) {
    /* the next line is a size again */
  } else if (passage->answer.state == ANSWER_SIZE) {
    char *rest;
    passage->answer.left = strtoull(line->data, &rest, 16);
    if (rest == line->data || *rest != '\0') return false;
    passage->answer.state = passage->answer.left > 0 ? ANSWER_CHUNK : ANSWER_TRAILER;
  } else if (line->data[0] == '\0') {
    passage->answer.state =
        passage->answer.state == ANSWER_CHUNK_END ? ANSWER_SIZE : ANSWER_COMPLETE;
  } else if (passage->answer.state == ANSWER_CHUNK_END) {
    return false;
  }
  buffer_clear(line);
  return true;
}

/* Reads what has come. The passage may have ended afterwards. */
static void read_answer(passage_t *passage, const char *bytes, size_t length) {
  while (passage->answer.state != ANSWER_COMPLETE) {
    int state = passage->answer.state;
    if (state == ANSWER_BODY && passage->answer.left == 0) break;
    if (length == 0) return;
    size_t taken = 0;
    if (state == ANSWER_HEAD) {
      taken = read_head(passage, bytes, length);
      if (taken == 0) {
        fail_broken(passage);
        return;
      }
    } else if (state == ANSWER_BODY || state == ANSWER_CHUNK) {
      taken = (size_t)MIN((uint64_t)length, passage->answer.left);
      passage->answer.left -= taken;
      if (!take(passage, bytes, taken)) return;
      if (state == ANSWER_CHUNK && passage->answer.left == 0)
        passage->answer.state = ANSWER_CHUNK_END;
    } else if (!read_framing(passage, bytes, length, &taken)) {
      fail_broken(passage);
      return;
    }
    bytes += taken;
    length -= taken;
  }
  passage->answer.state = ANSWER_COMPLETE;
  passage->answer.closes |= length > 0;
  finish(passage);
}

void passage_read(passage_t *passage, const char *bytes, ssize_t got) {
  if (got < 0)
    fail_broken(passage);
  else
    read_answer(passage, bytes, (size_t)got);
}

void passage_resume(passage_t *passage) {
  if (!passage->paused) return;
  if (exchange_pending(passage->exchange) > pending_max(passage) / 2) return;
  passage->paused = false;
  passage->model->models->num_paused--;
  channel_read(passage->channel, true);
}

/* ---- the request ---- */

/* Of the query of the client one field is passed on. */
static void print_query(const exchange_t *exchange, buffer_t *out) {
  const char *must = exchange_query(exchange, "fail_on_no_slot");
  if (must != NULL && must[0] != '\0') buffer_text(out, "?fail_on_no_slot=1");
}

/* The path is printed from the route, none of which that are passed on has a tail. An id that this
 * server has drawn goes beside the key: it comes behind one in the body. */
static bool print_head(passage_t *passage, buffer_t *out) {
  const exchange_t *exchange = passage->exchange;
  const api_key_t *key = exchange->key;
  char text[64];
  buffer_text(out, strcmp(exchange->method, "HEAD") == 0 ? "GET" : exchange->method);
  buffer_char(out, ' ');
  buffer_text(out, exchange->route->path);
  print_query(exchange, out);
  buffer_text(out, " HTTP/1.1\r\nHost: localhost\r\nx-inferd-request: ");
  buffer_text(out, exchange->request_id);
  snprintf(text, sizeof text, "\r\nx-inferd-client: %016llx ",
           (unsigned long long)exchange->source);
  buffer_text(out, text);
  for (int i = 0; key != NULL && i < KEY_DIGEST_BYTES; i++) {
    buffer_char(out, hex_digit(key->digest[i] >> 4));
    buffer_char(out, hex_digit(key->digest[i]));
  }
  snprintf(text, sizeof text, " %d\r\n", key != NULL ? key->place : -1);
  buffer_text(out, key != NULL ? text : "-\r\n");
  if (exchange->is_errand) {
    snprintf(text, sizeof text, "x-inferd-errand: %016llx\r\n", (unsigned long long)exchange->seed);
    buffer_text(out, text);
  }
  for (size_t i = 0; i < ARRAY_LEN(request_headers); i++) {
    const char *value = exchange_request_header(exchange, request_headers[i]);
    if (value == NULL) continue;
    buffer_text(out, request_headers[i]);
    buffer_text(out, ": ");
    buffer_text(out, value);
    buffer_text(out, "\r\n");
  }
  if (strcmp(exchange->method, "POST") == 0) {
    buffer_text(out, "Content-Length: ");
    buffer_uint(out, passage->body.length);
    buffer_text(out, "\r\n");
  }
  buffer_text(out, "\r\n");
  return !out->failed;
}

static void fail_crowded(passage_t *passage) {
  inferd_error_t error = {0};
  error_set(&error, ERR_OVERLOADED, NULL,
            "The process of the model `%.200s` takes no more connections now.",
            passage->model->wish.names.list[0]);
  passage_refuse(passage, &error);
}

/* Nothing was sent: the process has ended, and the parent hears of it in a moment. A process that
 * lives takes connections. */
static void hold(passage_t *passage) {
  models_t *models = passage->model->models;
  if (passage->channel != NULL) channel_leave(passage->channel, passage->model, false);
  passage->channel = NULL;
  passage->held_ns = clock_now_ns();
  life_leave(models->life, &passage->life, passage->held_ns);
}

void passage_again(passage_t *passage) {
  models_t *models = passage->model->models;
  if (passage->held_ns == 0) return;
  passage->held_ns = 0;
  life_ask(models->life, passage->model->life, &passage->life, clock_now_ns(), passage->until_ns,
           passage->ahead);
}

void passage_begin(passage_t *passage) {
  models_t *models = passage->model->models;
  buffer_t head = {0};
  int code = channel_take(passage, &passage->channel);
  if (code == 0 && !print_head(passage, &head)) code = -ENOMEM;
  if (code == 0)
    code =
        channel_send(passage->channel, &head, &passage->body, exchange_socket(passage->exchange));
  buffer_free(&head);
  if (code == -ECONNREFUSED || code == -ENOENT || code == -EPIPE || code == -ECONNRESET) {
    hold(passage);
    return;
  }
  passage->began = true;
  lobby_leave(models->lobby, &passage->guest);
  if (code == -EAGAIN || code == -EMFILE || code == -ENFILE || code == -ENOMEM)
    fail_crowded(passage);
  else if (code != 0)
    fail_broken(passage);
}

/* The process lives and takes no connections: it ends what it has, and is started again. */
static void give_up(passage_t *passage, uint64_t now_ns) {
  const served_t *model = passage->model;
  if (model->life->state == LIFE_READY) {
    log_line(LOG_ERROR, "models", "%.200s: its process takes no connections and is ended",
             model->wish.names.list[0]);
    life_close(model->models->life, model->life, now_ns);
  }
  fail_broken(passage);
}

void passage_tick(passage_t *passage, uint64_t now_ns) {
  const models_t *models = passage->model->models;
  double interval_s = models->server->config->sse_ping_interval;
  if (passage->held_ns > 0 && now_ns - passage->held_ns > HELD_MAX_NS) {
    give_up(passage, now_ns);
    return;
  }
  if (!passage->wants_stream || passage->began || interval_s <= 0) return;
  if (now_ns - passage->pinged_ns < (uint64_t)(interval_s * 1e9)) return;
  passage->pinged_ns = now_ns;
  if (!passage->streams) exchange_stream(passage->exchange);
  passage->streams = true;
  char text[200];
  int n = snprintf(text, sizeof text, ": the model is being loaded, about %d s\n\n",
                   models_retry_s(passage->model));
  exchange_write(passage->exchange, text, (size_t)n);
}

/* How many models the client waits for: no more than it has requests that wait, and no more than
 * somebody waits for. */
static int64_t models_ahead(const models_t *models, uint64_t source) {
  int64_t requests = lobby_count_of(models->lobby, source), count = 0;
  for (const served_t *model = models->first; model != NULL && count < requests;
       model = model->next)
    count += model->early != NULL || (model->life != NULL && model->life->first != NULL);
  return MIN(count, requests);
}

void passage_new(exchange_t *exchange, served_t *model, held_t *body, bool stream) {
  models_t *models = model->models;
  passage_t *passage = calloc(1, sizeof *passage);
  int64_t ahead = models_ahead(models, exchange->source);
  if (passage == NULL || !lobby_enter(models->lobby, &passage->guest, exchange->source)) {
    inferd_error_t error;
    free(passage);
    held_free(body);
    error_set(&error, ERR_OVERLOADED, NULL, "The server is short of memory.");
    exchange_error(exchange, &error);
    return;
  }
  uint64_t now_ns = clock_now_ns();
  double wait_s = models->server->config->models_wait;
  if (exchange->is_errand) wait_s = MIN(wait_s, ERRAND_WAIT_S);
  *passage = (passage_t){
      .model = model,
      .exchange = exchange,
      .body = *body,
      .asked_ns = now_ns,
      .pinged_ns = now_ns,
      .until_ns = now_ns + (uint64_t)(wait_s * 1e9),
      .wants_stream = stream,
      .next = models->passages,
      .guest = passage->guest,
      .ahead = ahead,
  };
  passage->guest.owner = passage;
  passage->answer.state = ANSWER_HEAD;
  passage->body.charge = charge_move(&body->charge);
  if (passage->next != NULL) passage->next->previous = passage;
  models->passages = passage;
  models->num_passages++;
  exchange->user = passage;
  exchange->on_gone = on_gone;
  exchange->on_abort = on_abort;
  snprintf(exchange->log.model, sizeof exchange->log.model, "%s", model->wish.names.list[0]);
  model->requests++;
  model->used = time(NULL);
  if (model->life != NULL) {
    life_ask(models->life, model->life, &passage->life, now_ns, passage->until_ns, ahead);
  } else {
    passage->is_early = true;
    passage->early = model->early;
    passage->early_link = &model->early;
    if (passage->early != NULL) passage->early->early_link = &passage->early;
    model->early = passage;
  }
}
