/* web.c: the simulator's HTTP side: the real API code, and clients that read every byte strictly.
 *
 * The handlers, the parameter tables, the renderers and the life of a completion are those of
 * server/; the transport is replaced by exchanges that keep what they are told, and libuv's pool by
 * a list that is worked off some iterations later. A client sends one JSON body, may hang up or
 * stop reading, and otherwise checks its whole answer against the oracle: I10, and I12 while
 * draining.
 */
#include "tests/sim/web.h"
#include "tests/sim/faults.h"
#include "tests/sim/language.h"

#include "engine/base/buffer.h"
#include "engine/base/json.h"
#include "server/completion/completion.h"
#include "server/lanes/lanes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct client {
  exchange_t public; /* first */
  int index;
  bool live, over, streaming, doomed;
  int status;
  buffer_t body;
} client_t;

static server_t server;
static config_t config;
static client_t *clients; /* [SIM_REQUESTS_MAX] */
static uv_work_t *pool[SIM_REQUESTS_MAX];
static int pool_count;
static bool domain_seen[SIM_DOMAINS_MAX];
static uint64_t salts[SIM_DOMAINS_MAX]; /* what the server made of each cache domain */

/* ---- what stands in for libuv and for the transport ---- */

int uv_queue_work(uv_loop_t *loop, uv_work_t *work, uv_work_cb run, uv_after_work_cb after) {
  (void)loop;
  REQUIRE(pool_count < SIM_REQUESTS_MAX, "too many jobs in the pool");
  if (faults_named("uv_queue_work")) return UV_ENOMEM;
  work->work_cb = run;
  work->after_work_cb = after;
  pool[pool_count++] = work;
  return 0;
}

static client_t *client_of(exchange_t *exchange) {
  return (client_t *)(void *)exchange;
}

const char *exchange_query(const exchange_t *exchange, const char *name) {
  (void)exchange, (void)name;
  return NULL;
}

const char *exchange_request_header(const exchange_t *exchange, const char *name) {
  (void)exchange, (void)name;
  return NULL;
}

bool exchange_take_body(exchange_t *exchange, held_t *out) {
  size_t length = exchange->body_length;
  *out = (held_t){.bytes = malloc(length + 1),
                  .length = length,
                  .charge = charge_open(server.ledger, exchange->source, LEDGER_body)};
  if (!out->bytes || !charge_resize(&out->charge, length + 1)) {
    held_free(out);
    return false;
  }
  memcpy(out->bytes, exchange->body, length + 1);
  return true;
}

void exchange_header(exchange_t *exchange, const char *name, const char *value) {
  (void)name, (void)value;
  REQUIRE(!client_of(exchange)->over && !client_of(exchange)->streaming,
          "I10: a header behind the status line");
}

void http_stats(const http_t *http, http_stats_t *out) {
  (void)http;
  *out = (http_stats_t){0};
}

static void finish(client_t *c, int status) {
  REQUIRE(!c->over, "I10: client %d is answered twice", c->index);
  c->over = true;
  c->status = status;
  if (sim.torture) return;
  web_check_answer(c->index, status, c->streaming, c->body.data ? c->body.data : "",
                   c->body.length);
}

void exchange_reply(exchange_t *exchange, int status, const char *content_type, char *body,
                    size_t length) {
  client_t *c = client_of(exchange);
  bool json = strcmp(content_type, "application/json") == 0;
  REQUIRE(!c->streaming && body && (json || sim.torture), "I10: a reply of type %s", content_type);
  faults_hold();
  buffer_append(&c->body, body, length);
  free(body);
  finish(c, status);
  faults_release();
}

void exchange_reply_fixed(exchange_t *exchange, int status, const char *type, const void *bytes,
                          size_t length) {
  faults_hold(); /* the transport copies nothing */
  char *body = calloc(1, length + 1);
  memcpy(body, bytes, length);
  faults_release();
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

void exchange_reply_pieces(exchange_t *exchange, const char *content_type, pieces_t pieces) {
  buffer_t out = {0};
  size_t length = 0;
  faults_hold(); /* http_pieces.c cuts the connection then */
  while (pieces.print(pieces.owner, &out, 100)) continue;
  char *body = buffer_detach(&out, &length);
  faults_release();
  pieces.free(pieces.owner);
  exchange_reply(exchange, 200, content_type, body, length);
}

char *exchange_error_body(const exchange_t *exchange, const inferd_error_t *error, size_t *length) {
  (void)exchange;
  return error_body(error, false, length);
}

void exchange_error(exchange_t *exchange, const inferd_error_t *error) {
  size_t length;
  faults_hold(); /* the transport has an answer for this case too: http_exchange.c */
  char *body = exchange_error_body(exchange, error, &length);
  faults_release();
  REQUIRE(body, "no memory for an error body");
  exchange_reply(exchange, error_http_status(error->code), "application/json", body, length);
}

size_t exchange_pending(const exchange_t *exchange) {
  (void)exchange;
  return 0; /* a client of the simulator takes all at once, or leaves */
}

/* Sockets are lent by the parent of several models alone, which is not here. */
int exchange_socket(const exchange_t *exchange) {
  (void)exchange;
  return -1;
}

void exchange_when_sent(exchange_t *exchange, void (*sent)(exchange_t *exchange)) {
  (void)sent;
  REQUIRE(false, "a socket is lent for client %d", client_of(exchange)->index);
}

void exchange_break(exchange_t *exchange) {
  REQUIRE(false, "a socket is lent for client %d", client_of(exchange)->index);
}

void exchange_stream(exchange_t *exchange) {
  client_t *c = client_of(exchange);
  REQUIRE(!c->over && !c->streaming, "I10: a second status line for client %d", c->index);
  c->streaming = true;
}

bool exchange_write(exchange_t *exchange, const char *bytes, size_t length) {
  client_t *c = client_of(exchange);
  REQUIRE(!c->over && c->streaming, "I10: bytes outside the stream of client %d", c->index);
  faults_hold();
  buffer_append(&c->body, bytes, length);
  faults_release();
  int32_t limit = sim.torture ? 0 : sim.scenario->scripts[c->index].slow_after;
  c->doomed = c->doomed || (limit > 0 && c->body.length > (size_t)limit);
  return !c->doomed;
}

void exchange_stream_pieces(exchange_t *exchange, pieces_t pieces) {
  (void)exchange, (void)pieces;
  REQUIRE(false, "no script asks for so many alternatives");
}

void exchange_stream_more(exchange_t *exchange) {
  (void)exchange;
}

void exchange_end(exchange_t *exchange) {
  client_t *c = client_of(exchange);
  REQUIRE(c->streaming, "I10: client %d: the end of no stream", c->index);
  faults_hold();
  finish(c, 200);
  faults_release();
}

/* ---- clients ---- */

static void print_prompt(buffer_t *b, const scenario_t *s, int index) {
  static int32_t ids[SIM_CONTEXT_MAX];
  const script_t *r = &s->scripts[index];
  scenario_prompt(s, index, ids);
  if (!r->as_text) {
    buffer_ids(b, ids, (size_t)r->num_prompt);
    return;
  }
  buffer_char(b, '"');
  for (int32_t i = 0; i < r->num_prompt; i++) buffer_char(b, (char)('a' + ids[i] % 26));
  buffer_char(b, '"');
}

static void print_stops(buffer_t *b, const script_t *r) {
  buffer_text(b, ",\"stop_token_ids\":");
  buffer_ids(b, r->stop_ids, (size_t)r->params.num_stop_token_ids);
  buffer_text(b, ",\"stop\":[");
  for (int i = 0; i < r->num_stops; i++) {
    if (i) buffer_char(b, ',');
    buffer_quote(b, r->stops[i], strlen(r->stops[i]));
  }
  buffer_char(b, ']');
}

static void print_int(buffer_t *b, const char *name, int64_t value) {
  buffer_text(b, ",\"");
  buffer_text(b, name);
  buffer_text(b, "\":");
  buffer_int(b, value);
}

static void print_text(buffer_t *b, const char *name, const char *value) {
  buffer_text(b, ",\"");
  buffer_text(b, name);
  buffer_text(b, "\":");
  buffer_quote(b, value, strlen(value));
}

static void print_bool(buffer_t *b, const char *name, bool value) {
  buffer_text(b, ",\"");
  buffer_text(b, name);
  buffer_text(b, value ? "\":true" : "\":false");
}

static void print_beams(buffer_t *b, const sampling_params_t *p) {
  static const char *const stopping[] = {"false", "true", "\"never\""};
  char penalty[32];
  snprintf(penalty, sizeof penalty, "%g", (double)p->length_penalty);
  print_bool(b, "use_beam_search", true);
  print_int(b, "best_of", p->beam_width);
  buffer_text(b, ",\"length_penalty\":");
  buffer_text(b, penalty);
  buffer_text(b, ",\"early_stopping\":");
  buffer_text(b, stopping[p->early_stopping]);
}

static void print_body(buffer_t *b, const scenario_t *s, int index) {
  const script_t *r = &s->scripts[index];
  const sampling_params_t *p = &r->params;
  buffer_text(b, "{\"prompt\":");
  print_prompt(b, s, index);
  print_int(b, "max_tokens", p->max_tokens);
  print_int(b, "min_tokens", p->min_tokens);
  if (p->n > 0) print_int(b, "n", p->n);
  if (p->best_of > 0) print_int(b, "best_of", p->best_of);
  if (p->beam_width > 0) print_beams(b, p);
  if (r->language >= 0) print_text(b, "guided_regex", language_regex(r->language));
  if (r->adapter > 0) print_text(b, "model", r->adapter == 1 ? "first" : "second");
  print_int(b, "temperature", p->temperature > 0);
  print_int(b, "seed", (int64_t)p->seed);
  print_int(b, "priority", r->priority);
  if (p->num_logprobs >= 0) print_int(b, "logprobs", p->num_logprobs);
  if (p->num_prompt_logprobs >= 0) print_int(b, "prompt_logprobs", p->num_prompt_logprobs);
  print_bool(b, "ignore_eos", p->ignore_eos);
  print_bool(b, "skip_special_tokens", r->skip_special);
  print_bool(b, "include_stop_str_in_output", r->include_stop);
  print_bool(b, "stream", r->stream);
  print_bool(b, "return_token_ids", r->return_ids);
  print_stops(b, r);
  if (r->stream && r->usage) buffer_text(b, ",\"stream_options\":{\"include_usage\":true}");
  buffer_text(b, ",\"cache_salt\":\"domain ");
  buffer_int(b, (int64_t)r->salt);
  buffer_text(b, "\"}");
}

void web_send(int index) {
  static const route_t route = {"POST", "/v1/completions", 0, "/v1/completions", NULL};
  client_t *c = &clients[index];
  buffer_t body = {0};
  *c = (client_t){.index = index, .live = true};
  print_body(&body, sim.scenario, index);
  size_t length = body.length;
  char *text = buffer_detach(&body, &length);
  REQUIRE(text, "no memory");
  c->public = (exchange_t){.server = &server,
                           .route = &route,
                           .method = "POST",
                           .path_tail = "",
                           .body = text,
                           .body_length = length,
                           .tenant = sim.scenario->scripts[index].tenant,
                           .source = sim.scenario->scripts[index].tenant,
                           .arrival_ns = sim.now_ns};
  snprintf(c->public.request_id, sizeof c->public.request_id, "client-%d", index);
  api_completions(&c->public);
  free(text); /* the handler has taken its copy */
}

void web_request(int index, const web_route_t *route, const char *body) {
  static route_t row;
  client_t *c = &clients[index];
  buffer_free(&c->body);
  *c = (client_t){.index = index, .live = true};
  row = (route_t){"POST", route->path, 0, route->path, route->handle};
  c->public = (exchange_t){.server = &server,
                           .route = &row,
                           .method = "POST",
                           .path_tail = route->tail,
                           .body = body,
                           .body_length = strlen(body),
                           .arrival_ns = sim.now_ns};
  snprintf(c->public.request_id, sizeof c->public.request_id, "client-%d", index);
  route->handle(&c->public);
}

int web_status(int index, bool *over, const char **body, size_t *length) {
  const client_t *c = &clients[index];
  *over = c->over;
  *body = c->body.data ? c->body.data : "";
  *length = c->body.length;
  return c->status;
}

static void gone(client_t *c, const char *cause) {
  c->over = true;
  if (c->public.on_gone) c->public.on_gone(&c->public, cause);
}

bool web_hang_up(int index) {
  client_t *c = &clients[index];
  if (!c->live || c->over) return false;
  gone(c, "client_closed");
  return true;
}

/* ---- the loop ---- */

int web_index(const request_t *request) {
  const input_t *input = request->owner;
  return client_of(input->completion->exchange)->index;
}

void web_check_salt(const script_t *script, const request_t *request) {
  size_t domain = (size_t)script->domain;
  if (!domain_seen[domain]) salts[domain] = request->salt;
  domain_seen[domain] = true;
  for (size_t i = 0; i < SIM_DOMAINS_MAX; i++) {
    REQUIRE(!domain_seen[i] || (salts[i] == request->salt) == (i == domain),
            "I8: cache domains %zu and %zu", i, domain);
  }
}

void web_iterate(void) {
  int count = pool_count; /* what these queue waits for the next iteration */
  for (int i = 0; i < count; i++) {
    uv_work_t *work = pool[i];
    work->work_cb(work);
    work->after_work_cb(work, 0);
  }
  memmove(pool, pool + count, (size_t)(pool_count - count) * sizeof *pool);
  pool_count -= count;
  completions_drain_events(&server);
  for (int i = 0; !sim.torture && i < sim.scenario->count; i++) {
    if (clients[i].live && clients[i].doomed && !clients[i].over) {
      web_cancelled(i);
      gone(&clients[i], "slow_reader");
    }
  }
  completions_tick(&server, sim.now_ns);
}

bool web_busy(void) {
  return completions_live(&server) > 0;
}

void web_drain(void) {
  server.phase = SERVER_DRAINING;
}

bool web_draining(void) {
  return server.phase >= SERVER_DRAINING;
}

void web_start(void) {
  faults_hold();
  static char model[] = "/models/tiny/", lora[] = "--enable-lora", modules[] = "--lora-modules",
              adapters[] = "first=/1,second=/2";
  char *arguments[] = {model, lora, modules, adapters};
  inferd_error_t error = {0};
  memset(&server, 0, sizeof server);
  memset(domain_seen, 0, sizeof domain_seen);
  pool_count = 0;
  if (!clients) clients = calloc(SIM_REQUESTS_MAX, sizeof *clients);
  REQUIRE(clients && config_load(&config, 4, arguments, &error) == 0, "%s", error.message);
  memset(clients, 0, SIM_REQUESTS_MAX * sizeof *clients);
  server.config = &config;
  server.engine = sim.engine;
  server.start_time = 1700000000;
  snprintf(server.system_fingerprint, sizeof server.system_fingerprint, "inferd-0-abcdef01");
  server.lanes = lanes_new(NULL);
  server.ledger = ledger_new((size_t)config.max_request_memory);
  REQUIRE(server.lanes && server.ledger && completions_new(&server) == 0,
          "no memory for the server");
  server.metrics = metrics_new(&server, model_name(server.live));
  REQUIRE(server.metrics, "no memory for the metrics");
  faults_release();
}

void web_stop(void) {
  REQUIRE(completions_live(&server) == 0, "I2: %d completions are alive",
          completions_live(&server));
  for (int i = 0; i < SIM_REQUESTS_MAX; i++) {
    REQUIRE(!clients[i].live || clients[i].over, "I5: client %d was never answered", i);
    buffer_free(&clients[i].body);
  }
  metrics_free(server.metrics);
  completions_free(&server);
  lanes_free(server.lanes);
  REQUIRE(ledger_stats(server.ledger).clients == 0, "I2: requests that are over hold memory");
  ledger_free(server.ledger);
  config_free(&config);
}
