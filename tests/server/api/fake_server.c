/* fake_server.c: the server_t of the tests, and exchanges that record their answers. */
#include "engine/base/util.h"
#include "tests/expect.h"
#include "tests/server/api/fake.h"

#include "server/lanes/lanes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

server_t server;
config_t config;
static uv_loop_t loop;
static int exchanges;

/* The command line so far, and what it stood for before: the server may still point into that. */
enum { FLAGS_MAX = 16, FLAG_BYTES_MAX = 512 };
static char model[] = "/models/tiny/";
static char flags[FLAGS_MAX][FLAG_BYTES_MAX];
static config_t earlier[FLAGS_MAX];
static int num_flags;

static void load_config(void) {
  char *arguments[1 + FLAGS_MAX] = {model};
  inferd_error_t error = {0};
  for (int i = 0; i < num_flags; i++) arguments[1 + i] = flags[i];
  ASSERT_EQ_FOR(config_load(&config, 1 + num_flags, arguments, &error), 0, "%s", error.message);
}

void fake_option(const char *name, const char *value) {
  cr_assert(num_flags < FLAGS_MAX);
  earlier[num_flags] = config;
  int length = snprintf(flags[num_flags], FLAG_BYTES_MAX, "--%s=%s", name, value);
  cr_assert(length < FLAG_BYTES_MAX);
  num_flags++;
  load_config();
}

void fake_start(void) {
  memset(&server, 0, sizeof server);
  num_flags = 0;
  load_config();
  uv_loop_init(&loop);
  fake_engine_reset();
  server.config = &config;
  server.loop = &loop;
  server.start_time = 1700000000;
  strcpy(server.system_fingerprint, "inferd-0-abcdef01");
  server.lanes = lanes_new(&loop);
  server.ledger = ledger_new((size_t)config.max_request_memory);
  cr_assert_not_null(server.lanes);
  cr_assert_not_null(server.ledger);
  ASSERT_EQ(completions_new(&server), 0);
  fake_template_reset();
  server.metrics = metrics_new(&server, model_name(server.live));
  cr_assert(server.metrics != NULL);
}

void fake_stop(void) {
  ASSERT_EQ(completions_live(&server), 0);
  ASSERT_EQ(fake_engine.num_requests, 0);
  metrics_free(server.metrics);
  completions_free(&server);
  uv_run(&loop, UV_RUN_DEFAULT);
  lanes_free(server.lanes);
  ledger_free(server.ledger);
  uv_loop_close(&loop);
  config_free(&config);
  while (num_flags > 0) config_free(&earlier[--num_flags]);
}

void fake_run(void) {
  uv_run(&loop, UV_RUN_DEFAULT);
}

/* ---- exchanges ---- */

static fake_exchange_t *of(exchange_t *exchange) {
  return (fake_exchange_t *)(void *)exchange;
}

fake_exchange_t *fake_exchange_new(const char *body, size_t length) {
  static const route_t route = {"POST", "/v1/completions", 0, "/v1/completions", NULL};
  fake_exchange_t *exchange = calloc(1, sizeof *exchange);
  exchange->public.server = &server;
  exchange->public.route = &route;
  exchange->public.method = "POST";
  exchange->public.path_tail = "";
  exchange->public.arrival_ns = uv_hrtime();
  exchange->public.body = memcpy(calloc(1, length + 1), body, length);
  exchange->public.body_length = length;
  snprintf(exchange->public.request_id, sizeof exchange->public.request_id, "test-%d", ++exchanges);
  return exchange;
}

fake_exchange_t *fake_call(void (*handle)(exchange_t *), const char *body) {
  fake_exchange_t *exchange = fake_exchange_new(body, strlen(body));
  handle(&exchange->public);
  fake_run();
  return exchange;
}

fake_exchange_t *fake_call_path(void (*handle)(exchange_t *), const char *path_tail) {
  fake_exchange_t *exchange = fake_exchange_new("", 0);
  exchange->public.path_tail = path_tail;
  handle(&exchange->public);
  fake_run();
  return exchange;
}

const char *fake_steady_body(fake_exchange_t *exchange) {
  char *at = exchange->body;
  while ((at = strstr(at, "\"created\":")) != NULL) {
    at += strlen("\"created\":");
    char *end = at + strspn(at, "0123456789");
    *at = '1';
    memmove(at + 1, end, strlen(end) + 1);
  }
  return exchange->body;
}

static void free_pieces(fake_exchange_t *exchange) {
  pieces_t pieces = exchange->pieces;
  exchange->pieces = (pieces_t){0};
  if (pieces.free != NULL) pieces.free(pieces.owner);
}

void fake_exchange_gone(fake_exchange_t *exchange, const char *cause) {
  cr_assert(!exchange->answered);
  cr_assert(!exchange->ended);
  cr_assert(!exchange->gone);
  exchange->gone = true;
  /* What the client sent goes with it: nobody may look at it afterwards. */
  memset((char *)(uintptr_t)exchange->public.body, 'X', exchange->public.body_length);
  if (exchange->public.on_gone != NULL) exchange->public.on_gone(&exchange->public, cause);
  free_pieces(exchange);
}

void fake_exchange_free(fake_exchange_t *exchange) {
  cr_assert(exchange->answered || exchange->ended || exchange->gone, "never answered");
  free((char *)(uintptr_t)exchange->public.body);
  free(exchange->body);
  free(exchange);
}

json_doc_t *fake_json(const fake_exchange_t *exchange) {
  json_doc_t *doc = NULL;
  inferd_error_t error = {0};
  cr_assert(exchange->body != NULL);
  json_parse(exchange->body, exchange->body_length, &json_limits_request, &doc, &error);
  cr_assert(doc != NULL, "%s in %s", error.message, exchange->body);
  return doc;
}

static void check_open(const fake_exchange_t *exchange) {
  cr_assert(!exchange->answered, "the exchange is over");
  cr_assert(!exchange->ended, "the exchange is over");
  cr_assert(!exchange->gone, "the exchange is over");
}

const char *exchange_query(const exchange_t *exchange, const char *name) {
  (void)exchange, (void)name;
  return NULL;
}

const char *exchange_request_header(const exchange_t *exchange, const char *name) {
  const fake_exchange_t *fake = (const fake_exchange_t *)(const void *)exchange;
  for (int i = 0; i < 2; i++) {
    if (strcasecmp(fake->request_headers[i][0], name) == 0) return fake->request_headers[i][1];
  }
  return NULL;
}

bool exchange_take_body(exchange_t *exchange, held_t *out) {
  *out = (held_t){.bytes = (char *)(uintptr_t)exchange->body,
                  .length = exchange->body_length,
                  .charge = charge_open(server.ledger, exchange->source, LEDGER_body)};
  cr_assert(charge_resize(&out->charge, out->length + 1));
  exchange->body = calloc(1, 1);
  exchange->body_length = 0;
  return true;
}

void exchange_header(exchange_t *exchange, const char *name, const char *value) {
  char *headers = of(exchange)->headers;
  check_open(of(exchange));
  cr_assert(!of(exchange)->streaming, "a header behind the status line");
  size_t used = strlen(headers);
  snprintf(headers + used, sizeof of(exchange)->headers - used, "%s: %s\n", name, value);
}

void exchange_reply(exchange_t *exchange, int status, const char *content_type, char *body,
                    size_t length) {
  fake_exchange_t *fake = of(exchange);
  check_open(fake);
  fake->answered = true;
  fake->status = status;
  snprintf(fake->content_type, sizeof fake->content_type, "%s", content_type);
  cr_assert(body != NULL);
  ASSERT_EQ(body[length], '\0');
  fake->body = body;
  fake->body_length = length;
}

void exchange_reply_fixed(exchange_t *exchange, int status, const char *type, const void *bytes,
                          size_t length) {
  char *body = calloc(1, length + 1);
  memcpy(body, bytes, length);
  exchange_reply(exchange, status, type, body, length);
}

bool exchange_spare(exchange_t *exchange) {
  (void)exchange;
  return true;
}

uint64_t exchange_turn(const exchange_t *exchange) {
  (void)exchange;
  return 0;
}

size_t (*fake_held)(const void *owner);
size_t fake_held_max;

/* Prints in small pieces, so that every test of a reply is one of its pieces. */
void exchange_reply_pieces(exchange_t *exchange, const char *content_type, pieces_t pieces) {
  enum { ROOM = 50 };
  buffer_t out = {0};
  size_t length = 0;
  check_open(of(exchange));
  for (bool more = true; more;) {
    size_t before = out.length, held = fake_held != NULL ? fake_held(pieces.owner) : 0;
    fake_held_max = held > fake_held_max ? held : fake_held_max;
    more = pieces.print(pieces.owner, &out, ROOM);
    if (more) ASSERT_GE(out.length - before, ROOM);
    ASSERT_LE(out.length - before, ROOM + PIECE_EXCESS_MAX);
  }
  pieces.free(pieces.owner);
  char *body = buffer_detach(&out, &length);
  exchange_reply(exchange, 200, content_type, body, length);
}

char *exchange_error_body(const exchange_t *exchange, const inferd_error_t *error, size_t *length) {
  (void)exchange;
  return error_body(error, false, length);
}

void exchange_error(exchange_t *exchange, const inferd_error_t *error) {
  fake_exchange_t *fake = of(exchange);
  size_t length;
  char *body = exchange_error_body(exchange, error, &length);
  fake->error = *error;
  exchange_reply(exchange, error_http_status(error->code), "application/json", body, length);
}

size_t exchange_pending(const exchange_t *exchange) {
  (void)exchange;
  return 0; /* clients of the tests take all at once */
}

/* Sockets are lent by the parent of several models alone, which is not here. */
int exchange_socket(const exchange_t *exchange) {
  (void)exchange;
  return -1;
}

void exchange_when_sent(exchange_t *exchange, void (*sent)(exchange_t *exchange)) {
  (void)exchange, (void)sent;
  cr_assert_fail("no socket is lent");
}

void exchange_break(exchange_t *exchange) {
  (void)exchange;
  cr_assert_fail("no socket is lent");
}

void exchange_stream(exchange_t *exchange) {
  check_open(of(exchange));
  cr_assert(!of(exchange)->streaming);
  of(exchange)->streaming = true;
  of(exchange)->status = 200;
}

static void add_body(fake_exchange_t *fake, const char *bytes, size_t length) {
  size_t need = fake->body_length + length + 1;
  if (need > fake->body_capacity) { /* by half: streams of megabytes come in pieces of 50 bytes */
    fake->body_capacity = need + need / 2;
    fake->body = realloc(fake->body, fake->body_capacity);
  }
  memcpy(fake->body + fake->body_length, bytes, length);
  fake->body_length += length;
  fake->body[fake->body_length] = '\0';
  fake->writes++;
  if (length > fake->largest_write) fake->largest_write = length;
}

void fake_pull(fake_exchange_t *fake) {
  for (bool more = fake->pieces.print != NULL; more;) {
    buffer_t out = {0};
    more = fake->pieces.print(fake->pieces.owner, &out, 50);
    if (out.length > 0) add_body(fake, out.data, out.length);
    buffer_free(&out);
  }
}

void exchange_stream_pieces(exchange_t *exchange, pieces_t pieces) {
  cr_assert(of(exchange)->pieces.print == NULL);
  of(exchange)->pieces = pieces;
  if (!of(exchange)->streaming) exchange_stream(exchange);
}

void exchange_stream_more(exchange_t *exchange) {
  check_open(of(exchange));
  cr_assert(of(exchange)->pieces.print != NULL);
}

bool exchange_write(exchange_t *exchange, const char *bytes, size_t length) {
  fake_exchange_t *fake = of(exchange);
  check_open(fake);
  cr_assert(fake->pieces.print == NULL);
  cr_assert(fake->streaming);
  if (fake->refuse_writes) {
    fake_exchange_gone(fake, "slow_reader");
    return false;
  }
  add_body(fake, bytes, length);
  return true;
}

void exchange_end(exchange_t *exchange) {
  check_open(of(exchange));
  cr_assert(of(exchange)->streaming);
  fake_pull(of(exchange));
  free_pieces(of(exchange));
  of(exchange)->ended = true;
}

void http_stats(const http_t *http, http_stats_t *out) {
  (void)http;
  *out = (http_stats_t){0};
}
