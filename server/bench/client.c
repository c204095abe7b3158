/* client.c: sends a load and stamps what comes back: open loop (Poisson arrivals) or closed loop (N
 * at once).
 *
 * One thread: connections (connection.c) on a libuv loop, kept open between requests. What an
 * answer means is answer.c's business; token totals come from the server's own usage.
 */
#include "server/bench/answer.h"
#include "server/bench/bench.h"
#include "server/bench/connection.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

enum { MODEL_TIMEOUT_MS = 60000, PROGRESS_MS = 5000 };

typedef struct client {
  const bench_options_t *options;
  bench_run_t *run;
  uv_loop_t loop;
  uv_timer_t arrival_timer, progress_timer;
  server_address_t address;
  uint64_t start_ns, arrival_state;
  double next_arrival_ns; /* of the open loop, since start_ns */
  int num_arrived;        /* may be started */
  int num_started, num_done, num_live, num_failed;
  long tokens_seen;
  struct link **idle; /* [num_requests] open connections without a request */
  int num_idle;
} client_t;

/* One connection, from its opening to its end. */
typedef struct link {
  client_connection_t connection;
  uv_poll_t poll;
  client_t *client;
  struct call *call; /* NULL = idle */
} link_t;

/* One request on the wire. */
typedef struct call {
  client_t *client;
  link_t *link;
  bench_result_t *result;
  char *request;
  size_t length;
  answer_t answer;
} call_t;

static double ms(uint64_t ns) {
  return (double)ns / 1e6;
}

static void start_calls(client_t *client);

/* ---- one call ---- */

static void keep_gap(void *context, double gap_ms) {
  bench_run_t *run = context;
  if (run->num_itl == run->itl_capacity) {
    run->itl_capacity = run->itl_capacity * 2 + 65536;
    run->itl_ms = reallocarray(run->itl_ms, run->itl_capacity, sizeof *run->itl_ms);
    if (run->itl_ms == NULL) abort();
  }
  run->itl_ms[run->num_itl++] = gap_ms;
}

static void on_body(void *context, const char *bytes, size_t count) {
  call_t *call = context;
  call->answer.status = call->link->connection.response.status;
  int before = call->answer.num_chunks;
  answer_feed(&call->answer, bytes, count, uv_hrtime());
  call->client->tokens_seen += call->answer.num_chunks - before;
}

static void note_failure(client_t *client, const char *why) {
  client->num_failed++;
  if (client->run->first_error[0]) return;
  snprintf(client->run->first_error, sizeof client->run->first_error, "%s", why);
}

/* `error` is NULL for a complete answer, whatever it says. */
static void end_call(client_t *client, call_t *call, const char *error) {
  bench_result_t *result = call->result;
  answer_t *answer = &call->answer;
  uint64_t now = uv_hrtime();
  bool whole = answer_end(answer, now);
  result->ok = error == NULL && whole;
  if (!result->ok) note_failure(client, error != NULL ? error : answer->error);
  result->status = answer->status;
  result->has_usage = answer->has_usage;
  result->prompt_tokens = answer->prompt_tokens;
  result->cached_tokens = answer->cached_tokens;
  result->output_tokens = answer->output_tokens;
  uint64_t first = answer->first_ns ? answer->first_ns : now;
  result->ttft_ms = ms(first - client->start_ns) - result->start_ms;
  result->e2e_ms = ms(now - client->start_ns) - result->start_ms;
  result->tpot_ms = result->output_tokens > 1
                        ? ms(answer->last_ns - answer->first_ns) / (result->output_tokens - 1)
                        : 0;
  answer_free(answer);
  free(call->request);
  free(call);
  client->num_live--;
  client->num_done++;
}

/* ---- connections on libuv ---- */

static void free_link(uv_handle_t *handle) {
  free(handle->data);
}

static void close_link(link_t *link) {
  uv_close((uv_handle_t *)&link->poll, free_link);
  connection_close(&link->connection);
}

static void on_socket(uv_poll_t *poll, int status, int events);

static void send_call(link_t *link, call_t *call) {
  link->call = call;
  call->link = link;
  connection_begin(&link->connection, call->request, call->length, on_body, call);
  uv_poll_start(&link->poll, UV_READABLE | UV_WRITABLE, on_socket);
}

/* A new connection; without one the call has failed. */
static void open_link(client_t *client, call_t *call) {
  link_t *link = calloc(1, sizeof *link);
  if (link == NULL) abort();
  if (!connection_open(&link->connection, &client->address)) {
    end_call(client, call, link->connection.error);
    connection_close(&link->connection);
    free(link);
    return;
  }
  link->client = client;
  uv_poll_init_socket(&client->loop, &link->poll, link->connection.fd);
  link->poll.data = link;
  send_call(link, call);
}

/* A server may close an idle connection just when it is to be used again: then a new one carries
 * the request. */
static bool is_stale(const client_connection_t *connection) {
  return connection->was_used && !connection->heard;
}

static void finish_link(link_t *link, connection_progress_t progress) {
  client_t *client = link->client;
  call_t *call = link->call;
  link->call = NULL;
  if (progress == CONNECTION_FAILED) {
    const char *error = link->connection.error;
    bool again = is_stale(&link->connection);
    close_link(link);
    if (again) {
      open_link(client, call);
      return;
    }
    end_call(client, call, error);
  } else {
    call->answer.status = link->connection.response.status;
    end_call(client, call, NULL);
    bool sent = !connection_is_sending(&link->connection);
    if (sent && link->connection.response.keeps_alive) {
      uv_poll_stop(&link->poll);
      client->idle[client->num_idle++] = link;
    } else {
      close_link(link);
    }
  }
  start_calls(client);
  if (client->num_done == client->options->num_requests) uv_stop(&client->loop);
}

static void on_socket(uv_poll_t *poll, int status, int events) {
  link_t *link = poll->data;
  client_connection_t *connection = &link->connection;
  connection_progress_t progress = CONNECTION_WAITS;
  if (status < 0) {
    connection->error = uv_strerror(status);
    progress = CONNECTION_FAILED;
  } else if (events & UV_WRITABLE) {
    progress = connection_send(connection);
    if (!connection_is_sending(connection)) uv_poll_start(poll, UV_READABLE, on_socket);
  }
  if (progress == CONNECTION_WAITS && (events & UV_READABLE)) {
    progress = connection_receive(connection);
  }
  if (progress != CONNECTION_WAITS) finish_link(link, progress);
}

/* ---- arrivals ---- */

static void start_call(client_t *client) {
  const bench_options_t *options = client->options;
  int index = client->num_started++;
  call_t *call = calloc(1, sizeof *call);
  if (call == NULL) abort();
  call->client = client;
  call->result = &client->run->results[index];
  call->answer.stream = options->stream;
  call->answer.on_gap = keep_gap;
  call->answer.context = client->run;
  char *body = bench_body(options, client->run->model, index);
  call->request = connection_request(&client->address, "POST", "/v1/completions", options->api_key,
                                     body, &call->length);
  free(body);
  client->num_live++;
  if (options->request_rate <= 0) call->result->start_ms = ms(uv_hrtime() - client->start_ns);
  if (client->num_idle > 0) {
    send_call(client->idle[--client->num_idle], call);
  } else {
    open_link(client, call);
  }
}

static void start_calls(client_t *client) {
  int limit = client->options->concurrency > 0 ? client->options->concurrency
                                               : client->options->num_requests;
  while (client->num_started < client->num_arrived && client->num_live < limit) start_call(client);
}

/* The times of arrival are drawn beforehand in effect: a slow answer delays none of them. */
static void on_arrival(uv_timer_t *timer) {
  client_t *client = timer->data;
  const bench_options_t *options = client->options;
  double now = (double)(uv_hrtime() - client->start_ns);
  while (client->num_arrived < options->num_requests && client->next_arrival_ns <= now) {
    client->run->results[client->num_arrived++].start_ms = now / 1e6;
    client->next_arrival_ns +=
        -log(1.0 - bench_uniform(&client->arrival_state)) / options->request_rate * 1e9;
  }
  start_calls(client);
  if (client->num_arrived == options->num_requests) return;
  uv_update_time(&client->loop);
  double wait_ms = (client->next_arrival_ns - now) / 1e6;
  uv_timer_start(timer, on_arrival, wait_ms > 0 ? (uint64_t)wait_ms : 0, 0);
}

static void on_progress(uv_timer_t *timer) {
  const client_t *client = timer->data;
  double seconds = (double)(uv_hrtime() - client->start_ns) / 1e9;
  fprintf(stderr, "  %.0f s: %d of %d done, %d live, %d failed", seconds, client->num_done,
          client->options->num_requests, client->num_live, client->num_failed);
  if (client->options->stream)
    fprintf(stderr, ", %.1f tokens/s", (double)client->tokens_seen / seconds);
  fputc('\n', stderr);
}

/* ---- the model's name ---- */

static void on_model_body(void *context, const char *bytes, size_t count) {
  answer_feed(context, bytes, count, 0);
}

static bool first_name(const char *text, char *name, size_t size) {
  cJSON *document = cJSON_Parse(text);
  const cJSON *data = cJSON_GetObjectItemCaseSensitive(document, "data");
  const cJSON *id = cJSON_GetObjectItemCaseSensitive(cJSON_GetArrayItem(data, 0), "id");
  bool found = cJSON_IsString(id);
  if (found) snprintf(name, size, "%s", id->valuestring);
  cJSON_Delete(document);
  return found;
}

/* GET /v1/models: also shows that the server answers, before the load begins. */
static int find_model(client_t *client) {
  answer_t answer = {.status = 200};
  const char *url = client->options->base_url;
  client_connection_t connection;
  size_t length;
  char *request = connection_request(&client->address, "GET", "/v1/models",
                                     client->options->api_key, NULL, &length);
  bool complete = connection_open(&connection, &client->address);
  if (complete) {
    connection_begin(&connection, request, length, on_model_body, &answer);
    complete = connection_wait(&connection, MODEL_TIMEOUT_MS) == CONNECTION_DONE;
  }
  const char *text = answer.bytes != NULL ? answer.bytes : "";
  int exit_code = 0, status = connection.response.status;
  if (!complete) {
    fprintf(stderr, "inferd-bench: %s/v1/models: %s\n", url, connection.error);
    exit_code = 69;
  } else if (status != 200) {
    fprintf(stderr, "inferd-bench: %s/v1/models: HTTP %d: %.300s\n", url, status, text);
    exit_code = 69;
  } else if (!first_name(text, client->run->model, sizeof client->run->model)) {
    fprintf(stderr, "inferd-bench: %s/v1/models names no model; say which with --model\n", url);
    exit_code = 76;
  }
  connection_close(&connection);
  free(request);
  answer_free(&answer);
  return exit_code;
}

/* ---- the run ---- */

static void set_up(client_t *client) {
  client->idle = calloc((size_t)client->options->num_requests, sizeof(link_t *));
  if (client->idle == NULL) abort();
  uv_loop_init(&client->loop);
  uv_timer_t *timers[] = {&client->arrival_timer, &client->progress_timer};
  for (int i = 0; i < 2; i++) {
    uv_timer_init(&client->loop, timers[i]);
    timers[i]->data = client;
  }
}

static void tear_down(client_t *client) {
  while (client->num_idle > 0) close_link(client->idle[--client->num_idle]);
  uv_close((uv_handle_t *)&client->arrival_timer, NULL);
  uv_close((uv_handle_t *)&client->progress_timer, NULL);
  uv_run(&client->loop, UV_RUN_DEFAULT);
  uv_loop_close(&client->loop);
  free(client->idle);
}

int bench_client_run(const bench_options_t *options, bench_run_t *run) {
  client_t client = {.options = options, .run = run, .arrival_state = options->seed + 99};
  int code = address_find(options->base_url, &client.address);
  if (code != 0) return code;
  set_up(&client);
  if (options->model != NULL) {
    snprintf(run->model, sizeof run->model, "%s", options->model);
  } else {
    code = find_model(&client);
  }
  client.start_ns = uv_hrtime();
  if (code == 0) {
    if (!options->quiet) {
      uv_timer_start(&client.progress_timer, on_progress, PROGRESS_MS, PROGRESS_MS);
    }
    uv_update_time(&client.loop);
    if (options->request_rate > 0) {
      on_arrival(&client.arrival_timer);
    } else {
      client.num_arrived = options->num_requests;
      start_calls(&client);
    }
    if (client.num_done < options->num_requests) uv_run(&client.loop, UV_RUN_DEFAULT);
  }
  run->duration_s = (double)(uv_hrtime() - client.start_ns) / 1e9;
  tear_down(&client);
  return code;
}
