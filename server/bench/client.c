/* client.c: sends a load and stamps what comes back: open loop (Poisson arrivals), closed loop (N
 * at once), or both.
 *
 * One thread: libcurl's multi_socket interface on a libuv loop. A chunk that carries text or
 * content counts as a token for the gaps between tokens; token totals come from the server's own
 * usage.
 */
#include "server/bench/bench.h"

#include <cjson/cJSON.h>
#include <curl/curl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

typedef struct client {
  const bench_options_t *options;
  bench_run_t *run;
  uv_loop_t loop;
  uv_timer_t curl_timer, arrival_timer, progress_timer;
  CURLM *multi;
  struct curl_slist *headers;
  char url[512];
  uint64_t start_ns, arrival_state;
  int num_started, num_done, num_live, num_failed;
  CURL **idle; /* finished handles: their connections are used again */
  int num_idle;
} client_t;

/* One request on the wire. */
typedef struct call {
  client_t *client;
  bench_result_t *result;
  char *body;
  char *line; /* unfinished line of the answer */
  size_t length, capacity;
  uint64_t start_ns, first_ns, last_ns;
} call_t;

typedef struct watch {
  uv_poll_t poll;
  client_t *client;
  curl_socket_t socket;
} watch_t;

static double ms(uint64_t ns) {
  return (double)ns / 1e6;
}

static void start_calls(client_t *c);

/* -- reading an answer ------------------------------------------------------------------------ */

static void keep_gap(bench_run_t *run, double gap_ms) {
  if (run->num_itl == run->itl_capacity) {
    run->itl_capacity = run->itl_capacity * 2 + 65536;
    run->itl_ms = reallocarray(run->itl_ms, run->itl_capacity, sizeof *run->itl_ms);
    if (!run->itl_ms) abort();
  }
  run->itl_ms[run->num_itl++] = gap_ms;
}

static int number_in(const cJSON *object, const char *name) {
  const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
  return cJSON_IsNumber(item) ? item->valueint : 0;
}

static void read_usage(call_t *call, const char *text, size_t length) {
  cJSON *document = cJSON_ParseWithLength(text, length);
  const cJSON *usage = cJSON_GetObjectItemCaseSensitive(document, "usage");
  if (cJSON_IsObject(usage)) {
    call->result->prompt_tokens = number_in(usage, "prompt_tokens");
    call->result->output_tokens = number_in(usage, "completion_tokens");
    const cJSON *details = cJSON_GetObjectItemCaseSensitive(usage, "prompt_tokens_details");
    call->result->cached_tokens = number_in(details, "cached_tokens");
  }
  cJSON_Delete(document);
}

static bool contains(const char *text, size_t length, const char *part) {
  return memmem(text, length, part, strlen(part)) != NULL;
}

static void read_chunk(call_t *call, const char *text, size_t length) {
  uint64_t now = uv_hrtime();
  if (contains(text, length, "\"text\"") || contains(text, length, "\"content\"")) {
    call->result->num_chunks++;
    if (!call->first_ns) {
      call->first_ns = now;
    } else {
      keep_gap(call->client->run, ms(now - call->last_ns));
    }
    call->last_ns = now;
  }
  if (contains(text, length, "\"completion_tokens\"")) read_usage(call, text, length);
  if (contains(text, length, "\"error\"")) call->result->ok = false;
}

static void keep_bytes(call_t *call, const char *data, size_t size) {
  if (call->length + size + 1 > call->capacity) {
    call->capacity = (call->length + size + 1) * 2;
    call->line = realloc(call->line, call->capacity);
    if (!call->line) abort();
  }
  memcpy(call->line + call->length, data, size);
  call->length += size;
  call->line[call->length] = 0;
}

static size_t on_data(char *data, size_t one, size_t count, void *context) {
  (void)one;
  call_t *call = context;
  keep_bytes(call, data, count);
  if (!call->client->options->stream) return count;
  char *begin = call->line, *end = call->line + call->length, *newline;
  while ((newline = memchr(begin, '\n', (size_t)(end - begin))) != NULL) {
    size_t length = (size_t)(newline - begin);
    if (length > 6 && memcmp(begin, "data: ", 6) == 0) read_chunk(call, begin + 6, length - 6);
    begin = newline + 1;
  }
  call->length = (size_t)(end - begin);
  memmove(call->line, begin, call->length);
  return count;
}

/* -- one call --------------------------------------------------------------------------------- */

static void start_call(client_t *c) {
  const bench_options_t *o = c->options;
  int index = c->num_started++;
  call_t *call = calloc(1, sizeof *call);
  CURL *easy = c->num_idle ? c->idle[--c->num_idle] : curl_easy_init();
  if (!call || !easy) abort();
  call->client = c;
  call->result = &c->run->results[index];
  call->body = bench_body(o, index);
  curl_easy_setopt(easy, CURLOPT_URL, c->url);
  curl_easy_setopt(easy, CURLOPT_POSTFIELDS, call->body);
  curl_easy_setopt(easy, CURLOPT_HTTPHEADER, c->headers);
  curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_data);
  curl_easy_setopt(easy, CURLOPT_WRITEDATA, call);
  curl_easy_setopt(easy, CURLOPT_PRIVATE, call);
  curl_easy_setopt(easy, CURLOPT_TCP_NODELAY, 1L);
  curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
  c->num_live++;
  call->start_ns = uv_hrtime();
  call->result->ok = true;
  curl_multi_add_handle(c->multi, easy);
}

static void note_failure(client_t *c, const call_t *call, CURLcode code) {
  c->num_failed++;
  if (c->run->first_error[0]) return;
  snprintf(c->run->first_error, sizeof c->run->first_error, "%s: HTTP %d: %.180s",
           curl_easy_strerror(code), call->result->status, call->line ? call->line : "");
}

static void end_call(client_t *c, CURL *easy, CURLcode code) {
  call_t *call;
  long status = 0;
  curl_easy_getinfo(easy, CURLINFO_PRIVATE, (char **)(void *)&call);
  curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
  bench_result_t *r = call->result;
  uint64_t now = uv_hrtime();
  r->status = (int)status;
  r->ok = r->ok && code == CURLE_OK && status == 200;
  if (!c->options->stream && r->ok) read_usage(call, call->line, call->length);
  uint64_t first = call->first_ns ? call->first_ns : now;
  uint64_t last = call->last_ns ? call->last_ns : now;
  r->start_ms = ms(call->start_ns - c->start_ns);
  r->ttft_ms = ms(first - call->start_ns);
  r->e2e_ms = ms(now - call->start_ns);
  r->tpot_ms = r->output_tokens > 1 ? ms(last - first) / (r->output_tokens - 1) : 0;
  if (!r->ok) note_failure(c, call, code);
  curl_multi_remove_handle(c->multi, easy);
  c->idle[c->num_idle++] = easy;
  free(call->body);
  free(call->line);
  free(call);
  c->num_live--;
  c->num_done++;
}

static void reap(client_t *c) {
  CURLMsg *message;
  int left;
  while ((message = curl_multi_info_read(c->multi, &left)) != NULL) {
    if (message->msg == CURLMSG_DONE) end_call(c, message->easy_handle, message->data.result);
  }
  if (c->options->request_rate <= 0) start_calls(c);
  if (c->num_done == c->options->num_requests) uv_stop(&c->loop);
}

/* -- libcurl on libuv ------------------------------------------------------------------------- */

static void on_curl_timer(uv_timer_t *timer) {
  client_t *c = timer->data;
  int running;
  curl_multi_socket_action(c->multi, CURL_SOCKET_TIMEOUT, 0, &running);
  reap(c);
}

static int set_curl_timer(CURLM *multi, long timeout_ms, void *context) {
  (void)multi;
  client_t *c = context;
  if (timeout_ms < 0) {
    uv_timer_stop(&c->curl_timer);
  } else {
    uv_timer_start(&c->curl_timer, on_curl_timer, (uint64_t)timeout_ms, 0);
  }
  return 0;
}

static void on_socket(uv_poll_t *poll, int status, int events) {
  watch_t *watch = poll->data;
  int flags = status < 0 ? CURL_CSELECT_ERR : 0, running;
  client_t *c = watch->client;
  if (events & UV_READABLE) flags |= CURL_CSELECT_IN;
  if (events & UV_WRITABLE) flags |= CURL_CSELECT_OUT;
  curl_multi_socket_action(c->multi, watch->socket, flags, &running);
  reap(c);
}

static void free_watch(uv_handle_t *handle) {
  free(handle->data);
}

static int watch_socket(CURL *easy, curl_socket_t socket, int what, void *context, void *known) {
  (void)easy;
  client_t *c = context;
  watch_t *watch = known;
  if (what == CURL_POLL_REMOVE) {
    if (watch) uv_close((uv_handle_t *)&watch->poll, free_watch);
    curl_multi_assign(c->multi, socket, NULL);
    return 0;
  }
  if (!watch) {
    watch = calloc(1, sizeof *watch);
    if (!watch) abort();
    watch->client = c;
    watch->socket = socket;
    uv_poll_init_socket(&c->loop, &watch->poll, socket);
    watch->poll.data = watch;
    curl_multi_assign(c->multi, socket, watch);
  }
  int events = (what & CURL_POLL_IN ? UV_READABLE : 0) | (what & CURL_POLL_OUT ? UV_WRITABLE : 0);
  uv_poll_start(&watch->poll, events, on_socket);
  return 0;
}

/* -- arrivals --------------------------------------------------------------------------------- */

static void start_calls(client_t *c) {
  const bench_options_t *o = c->options;
  int limit = o->concurrency > 0 ? o->concurrency : o->num_requests;
  while (c->num_started < o->num_requests && c->num_live < limit) start_call(c);
}

static void on_arrival(uv_timer_t *timer) {
  client_t *c = timer->data;
  const bench_options_t *o = c->options;
  bool room = o->concurrency <= 0 || c->num_live < o->concurrency;
  if (c->num_started < o->num_requests && room) start_call(c);
  if (c->num_started == o->num_requests) return;
  double gap_s = -log(1.0 - bench_uniform(&c->arrival_state)) / o->request_rate;
  uv_timer_start(timer, on_arrival, (uint64_t)(gap_s * 1000.0), 0);
}

static void on_progress(uv_timer_t *timer) {
  const client_t *c = timer->data;
  fprintf(stderr, "  %d of %d done, %d live, %d failed, %.0f s\n", c->num_done,
          c->options->num_requests, c->num_live, c->num_failed,
          (double)(uv_hrtime() - c->start_ns) / 1e9);
}

static void set_up(client_t *c) {
  const bench_options_t *o = c->options;
  char header[600];
  curl_global_init(CURL_GLOBAL_DEFAULT);
  c->multi = curl_multi_init();
  c->idle = calloc((size_t)o->num_requests, sizeof(CURL *));
  if (!c->multi || !c->idle) abort();
  uv_loop_init(&c->loop);
  uv_timer_t *timers[] = {&c->curl_timer, &c->arrival_timer, &c->progress_timer};
  for (int i = 0; i < 3; i++) {
    uv_timer_init(&c->loop, timers[i]);
    timers[i]->data = c;
  }
  curl_multi_setopt(c->multi, CURLMOPT_SOCKETFUNCTION, watch_socket);
  curl_multi_setopt(c->multi, CURLMOPT_SOCKETDATA, c);
  curl_multi_setopt(c->multi, CURLMOPT_TIMERFUNCTION, set_curl_timer);
  curl_multi_setopt(c->multi, CURLMOPT_TIMERDATA, c);
  curl_multi_setopt(c->multi, CURLMOPT_MAXCONNECTS, (long)o->num_requests);
  snprintf(c->url, sizeof c->url, "%.400s/v1/completions", o->base_url);
  c->headers = curl_slist_append(c->headers, "Content-Type: application/json");
  c->headers = curl_slist_append(c->headers, "Expect:");
  if (o->api_key) {
    snprintf(header, sizeof header, "Authorization: Bearer %.512s", o->api_key);
    c->headers = curl_slist_append(c->headers, header);
  }
}

static void tear_down(client_t *c) {
  while (c->num_idle) curl_easy_cleanup(c->idle[--c->num_idle]);
  curl_multi_cleanup(c->multi);
  uv_timer_t *timers[] = {&c->curl_timer, &c->arrival_timer, &c->progress_timer};
  for (int i = 0; i < 3; i++) uv_close((uv_handle_t *)timers[i], NULL);
  uv_run(&c->loop, UV_RUN_DEFAULT);
  uv_loop_close(&c->loop);
  curl_slist_free_all(c->headers);
  curl_global_cleanup();
  free(c->idle);
}

int bench_client_run(const bench_options_t *options, bench_run_t *run) {
  client_t c = {.options = options, .run = run, .arrival_state = options->seed + 99};
  set_up(&c);
  c.start_ns = uv_hrtime();
  if (!options->quiet) uv_timer_start(&c.progress_timer, on_progress, 5000, 5000);
  if (options->request_rate > 0) {
    on_arrival(&c.arrival_timer);
  } else {
    start_calls(&c);
  }
  uv_run(&c.loop, UV_RUN_DEFAULT);
  run->duration_s = (double)(uv_hrtime() - c.start_ns) / 1e9;
  tear_down(&c);
  return 0;
}
