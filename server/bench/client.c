/* client.c: sends a load and stamps what comes back: open loop (Poisson arrivals) or closed loop (N
 * at once).
 *
 * One thread: libcurl's multi_socket interface on a libuv loop. What an answer means is answer.c's
 * business; token totals come from the server's own usage.
 */
#include "server/bench/answer.h"
#include "server/bench/bench.h"

#include <cjson/cJSON.h>
#include <curl/curl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

enum { CONNECT_TIMEOUT_S = 10, PROGRESS_MS = 5000 };

typedef struct client {
  const bench_options_t *options;
  bench_run_t *run;
  uv_loop_t loop;
  uv_timer_t curl_timer, arrival_timer, progress_timer;
  CURLM *multi;
  struct curl_slist *headers;
  char base[400], url[512]; /* base: without a trailing slash or /v1 */
  uint64_t start_ns, arrival_state;
  double next_arrival_ns; /* of the open loop, since start_ns */
  int num_arrived;        /* may be started */
  int num_started, num_done, num_live, num_failed;
  long tokens_seen;
  CURL **idle; /* finished handles: their connections are used again */
  int num_idle;
} client_t;

/* One request on the wire. */
typedef struct call {
  client_t *client;
  CURL *easy;
  bench_result_t *result;
  char *body;
  answer_t answer;
} call_t;

typedef struct watch {
  uv_poll_t poll;
  client_t *client;
  curl_socket_t socket;
} watch_t;

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

static size_t on_data(char *data, size_t one, size_t count, void *context) {
  (void)one;
  call_t *call = context;
  long status = 0;
  if (call->answer.status == 0) {
    curl_easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE, &status);
    call->answer.status = (int)status;
  }
  int before = call->answer.num_chunks;
  answer_feed(&call->answer, data, count, uv_hrtime());
  call->client->tokens_seen += call->answer.num_chunks - before;
  return count;
}

static void start_call(client_t *client) {
  const bench_options_t *options = client->options;
  int index = client->num_started++;
  call_t *call = calloc(1, sizeof *call);
  CURL *easy = client->num_idle ? client->idle[--client->num_idle] : curl_easy_init();
  if (call == NULL || easy == NULL) abort();
  call->client = client;
  call->easy = easy;
  call->result = &client->run->results[index];
  call->answer.stream = options->stream;
  call->answer.on_gap = keep_gap;
  call->answer.context = client->run;
  call->body = bench_body(options, client->run->model, index);
  curl_easy_setopt(easy, CURLOPT_URL, client->url);
  curl_easy_setopt(easy, CURLOPT_POSTFIELDS, call->body);
  curl_easy_setopt(easy, CURLOPT_HTTPHEADER, client->headers);
  curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_data);
  curl_easy_setopt(easy, CURLOPT_WRITEDATA, call);
  curl_easy_setopt(easy, CURLOPT_PRIVATE, call);
  curl_easy_setopt(easy, CURLOPT_TCP_NODELAY, 1L);
  curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_TIMEOUT_S);
  client->num_live++;
  if (options->request_rate <= 0) call->result->start_ms = ms(uv_hrtime() - client->start_ns);
  curl_multi_add_handle(client->multi, easy);
}

static void note_failure(client_t *client, const char *why) {
  client->num_failed++;
  if (client->run->first_error[0]) return;
  snprintf(client->run->first_error, sizeof client->run->first_error, "%s", why);
}

static void end_call(client_t *client, call_t *call, CURLcode code) {
  bench_result_t *result = call->result;
  answer_t *answer = &call->answer;
  uint64_t now = uv_hrtime();
  bool whole = answer_end(answer, now);
  result->ok = code == CURLE_OK && whole;
  if (!result->ok)
    note_failure(client, code == CURLE_OK ? answer->error : curl_easy_strerror(code));
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
  curl_multi_remove_handle(client->multi, call->easy);
  client->idle[client->num_idle++] = call->easy;
  answer_free(answer);
  free(call->body);
  free(call);
  client->num_live--;
  client->num_done++;
}

static void reap(client_t *client) {
  CURLMsg *message;
  int left;
  while ((message = curl_multi_info_read(client->multi, &left)) != NULL) {
    if (message->msg != CURLMSG_DONE) continue;
    call_t *call;
    curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)(void *)&call);
    end_call(client, call, message->data.result);
  }
  start_calls(client);
  if (client->num_done == client->options->num_requests) uv_stop(&client->loop);
}

/* ---- libcurl on libuv ---- */

static void on_curl_timer(uv_timer_t *timer) {
  client_t *client = timer->data;
  int running;
  curl_multi_socket_action(client->multi, CURL_SOCKET_TIMEOUT, 0, &running);
  reap(client);
}

static int set_curl_timer(CURLM *multi, long timeout_ms, void *context) {
  (void)multi;
  client_t *client = context;
  if (timeout_ms < 0) {
    uv_timer_stop(&client->curl_timer);
  } else {
    uv_timer_start(&client->curl_timer, on_curl_timer, (uint64_t)timeout_ms, 0);
  }
  return 0;
}

static void on_socket(uv_poll_t *poll, int status, int events) {
  watch_t *watch = poll->data;
  int flags = status < 0 ? CURL_CSELECT_ERR : 0, running;
  client_t *client = watch->client;
  if (events & UV_READABLE) flags |= CURL_CSELECT_IN;
  if (events & UV_WRITABLE) flags |= CURL_CSELECT_OUT;
  curl_multi_socket_action(client->multi, watch->socket, flags, &running);
  reap(client);
}

static void free_watch(uv_handle_t *handle) {
  free(handle->data);
}

static int watch_socket(CURL *easy, curl_socket_t socket, int what, void *context, void *known) {
  (void)easy;
  client_t *client = context;
  watch_t *watch = known;
  if (what == CURL_POLL_REMOVE) {
    if (watch != NULL) uv_close((uv_handle_t *)&watch->poll, free_watch);
    curl_multi_assign(client->multi, socket, NULL);
    return 0;
  }
  if (watch == NULL) {
    watch = calloc(1, sizeof *watch);
    if (watch == NULL) abort();
    watch->client = client;
    watch->socket = socket;
    uv_poll_init_socket(&client->loop, &watch->poll, socket);
    watch->poll.data = watch;
    curl_multi_assign(client->multi, socket, watch);
  }
  int events = (what & CURL_POLL_IN ? UV_READABLE : 0) | (what & CURL_POLL_OUT ? UV_WRITABLE : 0);
  uv_poll_start(&watch->poll, events, on_socket);
  return 0;
}

/* ---- arrivals ---- */

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

static size_t on_model_data(char *data, size_t one, size_t count, void *context) {
  (void)one;
  answer_feed(context, data, count, 0);
  return count;
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

/* GET /v1/models: also the proof that somebody answers, before the load begins. */
static int find_model(client_t *client) {
  answer_t answer = {.status = 200};
  char url[512], why[CURL_ERROR_SIZE] = "";
  long status = 0;
  CURL *easy = curl_easy_init();
  if (easy == NULL) abort();
  snprintf(url, sizeof url, "%s/v1/models", client->base);
  curl_easy_setopt(easy, CURLOPT_URL, url);
  curl_easy_setopt(easy, CURLOPT_HTTPHEADER, client->headers);
  curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_model_data);
  curl_easy_setopt(easy, CURLOPT_WRITEDATA, &answer);
  curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, why);
  curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_TIMEOUT_S);
  CURLcode code = curl_easy_perform(easy);
  curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
  curl_easy_cleanup(easy);
  const char *text = answer.bytes != NULL ? answer.bytes : "";
  int exit_code = 0;
  if (code != CURLE_OK) {
    fprintf(stderr, "inferd-bench: %s: %s\n", url, why[0] ? why : curl_easy_strerror(code));
    exit_code = 69;
  } else if (status != 200) {
    fprintf(stderr, "inferd-bench: %s: HTTP %ld: %.300s\n", url, status, text);
    exit_code = 69;
  } else if (!first_name(text, client->run->model, sizeof client->run->model)) {
    fprintf(stderr, "inferd-bench: %s names no model; say which with --model\n", url);
    exit_code = 76;
  }
  answer_free(&answer);
  return exit_code;
}

/* ---- the run ---- */

static void copy_base(client_t *client, const char *url) {
  snprintf(client->base, sizeof client->base, "%s", url);
  size_t length = strlen(client->base);
  while (length > 0 && client->base[length - 1] == '/') client->base[--length] = 0;
  if (length > 3 && strcmp(client->base + length - 3, "/v1") == 0) client->base[length - 3] = 0;
  snprintf(client->url, sizeof client->url, "%s/v1/completions", client->base);
}

static void set_up(client_t *client) {
  const bench_options_t *options = client->options;
  char header[600];
  curl_global_init(CURL_GLOBAL_DEFAULT);
  client->multi = curl_multi_init();
  client->idle = calloc((size_t)options->num_requests, sizeof(CURL *));
  if (client->multi == NULL || client->idle == NULL) abort();
  uv_loop_init(&client->loop);
  uv_timer_t *timers[] = {&client->curl_timer, &client->arrival_timer, &client->progress_timer};
  for (int i = 0; i < 3; i++) {
    uv_timer_init(&client->loop, timers[i]);
    timers[i]->data = client;
  }
  curl_multi_setopt(client->multi, CURLMOPT_SOCKETFUNCTION, watch_socket);
  curl_multi_setopt(client->multi, CURLMOPT_SOCKETDATA, client);
  curl_multi_setopt(client->multi, CURLMOPT_TIMERFUNCTION, set_curl_timer);
  curl_multi_setopt(client->multi, CURLMOPT_TIMERDATA, client);
  curl_multi_setopt(client->multi, CURLMOPT_MAXCONNECTS, (long)options->num_requests);
  copy_base(client, options->base_url);
  client->headers = curl_slist_append(client->headers, "Content-Type: application/json");
  client->headers = curl_slist_append(client->headers, "Expect:");
  if (options->api_key != NULL) {
    snprintf(header, sizeof header, "Authorization: Bearer %.512s", options->api_key);
    client->headers = curl_slist_append(client->headers, header);
  }
}

static void tear_down(client_t *client) {
  while (client->num_idle) curl_easy_cleanup(client->idle[--client->num_idle]);
  curl_multi_cleanup(client->multi);
  uv_timer_t *timers[] = {&client->curl_timer, &client->arrival_timer, &client->progress_timer};
  for (int i = 0; i < 3; i++) uv_close((uv_handle_t *)timers[i], NULL);
  uv_run(&client->loop, UV_RUN_DEFAULT);
  uv_loop_close(&client->loop);
  curl_slist_free_all(client->headers);
  curl_global_cleanup();
  free(client->idle);
}

int bench_client_run(const bench_options_t *options, bench_run_t *run) {
  client_t client = {.options = options, .run = run, .arrival_state = options->seed + 99};
  int code = 0;
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
    uv_run(&client.loop, UV_RUN_DEFAULT);
  }
  run->duration_s = (double)(uv_hrtime() - client.start_ns) / 1e9;
  tear_down(&client);
  return code;
}
