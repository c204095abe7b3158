/* harness.c: fake handlers, a loop thread that runs the real transport, and a raw client.
 *
 * The fakes stand in for server/api and server/completion, server/observe/metrics.c and the engine
 * under their real names, so the route table and every check under test are the real ones. The body
 * of a completion says what the fake does:
 * {"mode":"reply|nap|later|wait|stream|flood|pieces|bursts","n":5,"ms":10,"size":100}. "nap" holds
 * the loop's thread up. With "now" the answer is written before the handler returns. With "drop"
 * the body is taken and freed before the answer begins; with "keep" it is taken and kept until
 * harness_let_go, as by a job that still runs when the client has left.
 */
#include "tests/expect.h"

#include "tests/server/http/harness.h"

#include "engine/base/buffer.h"
#include "engine/base/util.h"
#include "server/http/auth.h"
#include "server/observe/log.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

seen_t seen;
atomic_int fake_engine_state = ENGINE_READY;
atomic_bool fake_starting;
atomic_bool fake_behind;

/* ---- fakes ---- */

engine_state_t engine_state(const engine_t *engine) {
  (void)engine;
  return (engine_state_t)atomic_load(&fake_engine_state);
}
int engine_retry_after_s(const engine_t *engine) {
  (void)engine;
  return 7;
}
void metrics_http(server_t *server, const char *route, const char *method, int status,
                  uint64_t duration_ns) {
  (void)server, (void)route, (void)method, (void)duration_ns;
  atomic_fetch_add(&seen.metrics, 1);
  atomic_store(&seen.last_status, status);
}

static void on_drained(server_t *server) {
  (void)server;
  atomic_fetch_add(&seen.drained, 1);
}

typedef struct job {
  uv_timer_t timer; /* first: closed by address */
  exchange_t *exchange;
  int left, size;
  int floor; /* of a stream in pieces: the lines of `left` above it may be printed */
  bool stream, flood;
} job_t;

static void on_job_closed(uv_handle_t *handle) {
  free(handle);
}
static void job_end(job_t *job) {
  atomic_fetch_sub(&seen.live, 1);
  uv_close((uv_handle_t *)&job->timer, on_job_closed);
}
static void on_gone(exchange_t *exchange, const char *cause) {
  atomic_store(&seen.gone_ns, now_ns());
  atomic_store(&seen.cause, cause);
  atomic_fetch_add(&seen.gone, 1);
  job_end(exchange->user);
}

static void reply_text(exchange_t *exchange, const char *text) {
  exchange_reply(exchange, 200, "application/json", strdup(text), strlen(text));
}

static void on_job_timer(uv_timer_t *timer) {
  job_t *job = (job_t *)timer;
  if (!job->stream) {
    reply_text(job->exchange, "{\"later\":true}");
    job_end(job);
    return;
  }
  char event[8192];
  int n = snprintf(event, sizeof event, "data: %d%*s\n\n", job->left, job->size, ".");
  do {
    if (!exchange_write(job->exchange, event, (size_t)n)) {
      atomic_fetch_add(&seen.refused_writes, 1);
      uv_timer_stop(timer); /* on_gone follows */
      return;
    }
  } while (job->flood && job->left-- > 0);
  if (!job->flood && --job->left > 0) return;
  exchange_write(job->exchange, "data: [DONE]\n\n", 14);
  exchange_end(job->exchange);
  job_end(job);
}

/* A reply of `left` lines, printed as they are asked for. */
static bool print_lines(void *owner, struct buffer *out, size_t room) {
  job_t *job = owner;
  for (size_t end = out->length + room; job->left > job->floor && out->length < end; job->left--) {
    char line[64];
    buffer_append(out, line, (size_t)snprintf(line, sizeof line, "%-30d\n", job->left));
  }
  return job->left > job->floor;
}
static void free_lines(void *owner) {
  atomic_fetch_sub(&seen.live, 1);
  free(owner);
}

/* A stream of such lines: each tick allows `size` more of them. */
static void on_burst(uv_timer_t *timer) {
  job_t *job = (job_t *)timer;
  job->floor -= MIN(job->size, job->floor);
  exchange_stream_more(job->exchange);
  if (job->floor > 0) return;
  uv_timer_stop(timer);
  exchange_end(job->exchange);
}
static void on_bursts_gone(exchange_t *exchange, const char *cause) {
  job_t *job = exchange->user;
  atomic_store(&seen.cause, cause);
  uv_timer_stop(&job->timer);
}
static void free_bursts(void *owner) {
  job_end(owner);
}
static void stream_bursts(exchange_t *exchange, job_t *job) {
  job->exchange = exchange;
  exchange->user = job;
  exchange->on_gone = on_bursts_gone;
  atomic_fetch_add(&seen.live, 1);
  uv_timer_init(exchange->server->loop, &job->timer);
  job->floor = job->left;
  exchange_stream_pieces(exchange, (pieces_t){print_lines, free_bursts, job});
  uv_timer_start(&job->timer, on_burst, 1, 1);
}

static int number_in(const char *body, const char *name, int otherwise) {
  const char *at = strstr(body, name);
  return at != NULL ? atoi(at + strlen(name)) : otherwise;
}

/* The bytes stay whole while they are the handler's, and nothing is left at the exchange. */
static void drop_body(exchange_t *exchange) {
  const char *seen_before = exchange->body;
  size_t length = exchange->body_length;
  held_t body;
  cr_assert(exchange_take_body(exchange, &body));
  ASSERT_EQ(body.bytes, seen_before);
  ASSERT_EQ(body.length, length);
  ASSERT_EQ(strlen(body.bytes), length);
  ASSERT_EQ(body.charge.bytes, length + 1);
  ASSERT_EQ(exchange->body_length, 0);
  ASSERT_EQ(exchange->body[0], '\0');
  held_free(&body);
}

static held_t kept[64];
static int num_kept;

static void keep_body(exchange_t *exchange) {
  ASSERT_LT(num_kept, (int)ARRAY_LEN(kept));
  held_t *body = &kept[num_kept++];
  cr_assert(exchange_take_body(exchange, body));
  atomic_fetch_add(&seen.kept, (long long)body->length + 1);
}

static void let_go(void) {
  while (num_kept > 0) held_free(&kept[--num_kept]);
  atomic_store(&seen.kept, 0);
}

static long long bytes_held(server_t *server) {
  ledger_stats_t stats = ledger_stats(server->ledger);
  long long bytes = 0;
  for (int kind = 0; kind < LEDGER_KINDS; kind++) bytes += (long long)stats.held[kind];
  return bytes;
}

void api_completions(exchange_t *exchange) {
  atomic_fetch_add(&seen.handled, 1);
  const char *body = exchange->body;
  ASSERT_EQ(body[exchange->body_length], '\0');
  if (strstr(body, "\"mode\":\"full\"") != NULL) {
    inferd_error_t error = {0};
    error_set(&error, ERR_QUEUE_FULL, NULL, "The queue is full.");
    exchange_error(exchange, &error);
    return;
  }
  bool stream = strstr(body, "\"mode\":\"stream\"") != NULL;
  bool flood = strstr(body, "\"mode\":\"flood\"") != NULL;
  bool wait = strstr(body, "\"mode\":\"wait\"") != NULL;
  bool later = strstr(body, "\"mode\":\"later\"") != NULL;
  if (strstr(body, "\"mode\":\"pieces\"") != NULL) {
    job_t *lines = calloc(1, sizeof *lines);
    lines->left = number_in(body, "\"n\":", 5);
    atomic_fetch_add(&seen.live, 1);
    exchange_reply_pieces(exchange, "text/plain", (pieces_t){print_lines, free_lines, lines});
    return;
  }
  if (strstr(body, "\"mode\":\"bursts\"") != NULL) {
    job_t *lines = calloc(1, sizeof *lines);
    lines->left = number_in(body, "\"n\":", 5);
    lines->size = number_in(body, "\"size\":", 20);
    stream_bursts(exchange, lines);
    return;
  }
  if (strstr(body, "\"mode\":\"nap\"") != NULL)
    usleep(1000 * (useconds_t)number_in(body, "\"ms\":", 10));
  if (!stream && !flood && !wait && !later) {
    char text[200];
    snprintf(text, sizeof text, "{\"length\":%zu,\"tenant\":%d,\"id\":\"%.64s\"}",
             exchange->body_length, exchange->tenant != 0, exchange->request_id);
    reply_text(exchange, text);
    return;
  }
  job_t *job = calloc(1, sizeof *job);
  job->exchange = exchange;
  job->stream = stream || flood;
  job->flood = flood;
  job->left = number_in(body, "\"n\":", 5);
  job->size = number_in(body, "\"size\":", 20);
  int ms = number_in(body, "\"ms\":", 10);
  if (ms < 1) ms = 1; /* a timer that repeats after 0 ms runs once */
  exchange->user = job;
  exchange->on_gone = on_gone;
  atomic_fetch_add(&seen.live, 1);
  bool keep = strstr(body, "\"keep\"") != NULL, now = strstr(body, "\"now\"") != NULL;
  if (strstr(body, "\"drop\"") != NULL) drop_body(exchange);
  if (keep) keep_body(exchange);
  uv_timer_init(exchange->server->loop, &job->timer);
  if (job->stream) exchange_stream(exchange);
  if (now) {
    on_job_timer(&job->timer);
  } else if (!wait) {
    uv_timer_start(&job->timer, on_job_timer, (uint64_t)ms, (uint64_t)ms);
  }
}

void api_models(exchange_t *exchange) {
  reply_text(exchange, "{\"object\":\"list\"}");
}
void api_model(exchange_t *exchange) {
  char text[300];
  snprintf(text, sizeof text, "{\"id\":\"%.200s\"}", exchange->path_tail);
  reply_text(exchange, text);
}
void api_tokenize(exchange_t *exchange) {
  reply_text(exchange, "{\"count\":0}");
}
void api_detokenize(exchange_t *exchange) {
  reply_text(exchange, "{\"prompt\":\"\"}");
}
void api_check_schema(exchange_t *exchange) {
  reply_text(exchange, "{\"prompt\":\"\"}");
}
void api_livez(exchange_t *exchange) {
  reply_text(exchange, "{\"status\":\"ok\"}");
}
void api_readyz(exchange_t *exchange) {
  reply_text(exchange, "{\"status\":\"ok\"}");
}
void api_version(exchange_t *exchange) {
  if (strcmp(exchange->method, "HEAD") == 0) { /* of a long body */
    job_t *lines = calloc(1, sizeof *lines);
    lines->left = 100000;
    atomic_fetch_add(&seen.live, 1);
    exchange_reply_pieces(exchange, "text/plain", (pieces_t){print_lines, free_lines, lines});
    return;
  }
  reply_text(exchange, "{\"version\":\"0\"}");
}
void api_metrics(exchange_t *exchange) {
  reply_text(exchange, "x 1\n");
}
static void not_here(exchange_t *exchange) {
  inferd_error_t error = {0};
  error_set(&error, ERR_UNSUPPORTED_ENDPOINT, NULL, "Not yet.");
  exchange_error(exchange, &error);
}
void api_chat_completions(exchange_t *exchange) {
  not_here(exchange);
}
void api_embeddings(exchange_t *exchange) {
  not_here(exchange);
}
void api_pooling(exchange_t *exchange) {
  not_here(exchange);
}
void api_classify(exchange_t *exchange) {
  not_here(exchange);
}
void api_score(exchange_t *exchange) {
  not_here(exchange);
}
void api_rerank(exchange_t *exchange) {
  not_here(exchange);
}
void api_rerank_v2(exchange_t *exchange) {
  not_here(exchange);
}
void api_messages(exchange_t *exchange) {
  not_here(exchange);
}
void api_count_tokens(exchange_t *exchange) {
  not_here(exchange);
}
void api_ollama_chat(exchange_t *exchange) {
  not_here(exchange);
}
void api_ollama_generate(exchange_t *exchange) {
  not_here(exchange);
}
void api_ollama_embed(exchange_t *exchange) {
  not_here(exchange);
}
void api_ollama_embeddings(exchange_t *exchange) {
  not_here(exchange);
}
void api_ollama_tags(exchange_t *exchange) {
  not_here(exchange);
}
void api_ollama_ps(exchange_t *exchange) {
  not_here(exchange);
}
void api_ollama_show(exchange_t *exchange) {
  not_here(exchange);
}
void api_ollama_pull(exchange_t *exchange) {
  not_here(exchange);
}
void api_ollama_version(exchange_t *exchange) {
  not_here(exchange);
}
void api_responses(exchange_t *exchange) {
  not_here(exchange);
}
void api_stored_response(exchange_t *exchange) {
  not_here(exchange);
}
void api_cancel_response(exchange_t *exchange) {
  not_here(exchange);
}
void api_delete_response(exchange_t *exchange) {
  not_here(exchange);
}
void api_conversations(exchange_t *exchange) {
  not_here(exchange);
}
void api_get_conversation(exchange_t *exchange) {
  not_here(exchange);
}
void api_post_conversation(exchange_t *exchange) {
  not_here(exchange);
}
void api_delete_conversation(exchange_t *exchange) {
  not_here(exchange);
}
void api_upload_file(exchange_t *exchange) {
  not_here(exchange);
}
void api_files(exchange_t *exchange) {
  not_here(exchange);
}
void api_file(exchange_t *exchange) {
  not_here(exchange);
}
void api_delete_file(exchange_t *exchange) {
  not_here(exchange);
}
void api_create_batch(exchange_t *exchange) {
  not_here(exchange);
}
void api_batches(exchange_t *exchange) {
  not_here(exchange);
}
void api_batch(exchange_t *exchange) {
  not_here(exchange);
}
void api_cancel_batch(exchange_t *exchange) {
  not_here(exchange);
}
void api_usage(exchange_t *exchange) {
  not_here(exchange);
}

void api_transcriptions(exchange_t *exchange) {
  not_here(exchange);
}

void api_translations(exchange_t *exchange) {
  not_here(exchange);
}
void api_responses_input_tokens(exchange_t *exchange) {
  not_here(exchange);
}
void api_render_completion(exchange_t *exchange) {
  not_here(exchange);
}
void api_render_chat(exchange_t *exchange) {
  not_here(exchange);
}
void api_apply_template(exchange_t *exchange) {
  not_here(exchange);
}
void api_props(exchange_t *exchange) {
  not_here(exchange);
}
void api_slots(exchange_t *exchange) {
  not_here(exchange);
}
void api_sleep(exchange_t *exchange) {
  not_here(exchange);
}
void api_wake_up(exchange_t *exchange) {
  not_here(exchange);
}
void api_is_sleeping(exchange_t *exchange) {
  not_here(exchange);
}
void api_llama_completion(exchange_t *exchange) {
  not_here(exchange);
}
void api_llama_infill(exchange_t *exchange) {
  not_here(exchange);
}
void api_tokenizer_info(exchange_t *exchange) {
  not_here(exchange);
}
void api_load_model(exchange_t *exchange) {
  reply_text(exchange, "{}");
}
void api_unload_model(exchange_t *exchange) {
  reply_text(exchange, "{}");
}
void models_handle(exchange_t *exchange) {
  exchange->route->handle(exchange);
}
void api_load_lora(exchange_t *exchange) {
  not_here(exchange);
}
void api_unload_lora(exchange_t *exchange) {
  not_here(exchange);
}
/* ---- the loop thread ---- */

typedef enum command {
  COMMAND_STATS = 1,
  COMMAND_DRAIN,
  COMMAND_ABORT,
  COMMAND_LET_GO,
  COMMAND_STOP
} command_t;

static struct {
  pthread_t thread;
  uv_loop_t loop;
  uv_async_t async;
  config_t config;
  server_t server;
  atomic_int command; /* 0 = done */
  bool running;
} h;

static void on_command(uv_async_t *async) {
  (void)async;
  http_stats_t stats;
  switch ((command_t)atomic_load(&h.command)) {
  case COMMAND_STATS:
    http_stats(h.server.http, &stats);
    atomic_store(&seen.connections, stats.connections_idle + stats.connections_reading +
                                        stats.connections_waiting + stats.connections_streaming);
    atomic_store(&seen.streaming, stats.connections_streaming);
    atomic_store(&seen.waiting, stats.connections_waiting);
    atomic_store(&seen.held, bytes_held(&h.server));
    atomic_store(&seen.reply_turn_max, (long long)stats.reply_turn_max);
    atomic_store(&seen.replies_turn_max, (long long)stats.replies_turn_max);
    atomic_store(&seen.requests_turn_max, (long long)stats.requests_turn_max);
    atomic_store(&seen.sends_here, (long long)stats.sends_here);
    atomic_store(&seen.sends_by_thread, (long long)stats.sends_by_thread);
    atomic_store(&seen.sends_short, (long long)stats.sends_short);
    break;
  case COMMAND_LET_GO: let_go(); break;
  case COMMAND_DRAIN:
    h.server.phase = SERVER_DRAINING;
    http_drain(h.server.http);
    break;
  case COMMAND_ABORT: http_abort(h.server.http); break;
  case COMMAND_STOP:
    uv_stop(&h.loop);
    uv_close((uv_handle_t *)&h.async, NULL);
    break;
  }
  atomic_store(&h.command, 0);
}

static void *loop_main(void *unused) {
  (void)unused;
  uv_run(&h.loop, UV_RUN_DEFAULT);
  http_stop(h.server.http);
  uv_run(&h.loop, UV_RUN_DEFAULT);
  return NULL;
}

static void command(command_t wanted) {
  atomic_store(&h.command, wanted);
  uv_async_send(&h.async);
  while (atomic_load(&h.command) != 0) usleep(200);
}

int harness_try(const char *const *flags, inferd_error_t *error) {
  char *argv[32];
  int argc = 0;
  bool listens = false;
  for (; flags != NULL && flags[argc] != NULL; argc++) {
    argv[argc] = strdup(flags[argc]);
    listens |= strncmp(flags[argc], "--listen", 8) == 0 || strncmp(flags[argc], "--uds", 5) == 0;
  }
  if (!listens) argv[argc++] = strdup("--port=0");
  argv[argc++] = strdup("--log-level=error");
  memset(&seen, 0, sizeof seen);
  signal(SIGPIPE, SIG_IGN);
  int rc = config_load(&h.config, argc, argv, error);
  for (int i = 0; i < argc; i++) free(argv[i]);
  h.server = (server_t){.config = &h.config,
                        .loop = &h.loop,
                        .engine = (engine_t *)&h,
                        .drained = on_drained,
                        .starting = atomic_load(&fake_starting),
                        .behind = atomic_load(&fake_behind)};
  if (rc == 0) rc = log_open(&h.config, error);
  if (rc == 0) rc = auth_new(&h.config, &h.server.auth, error);
  if (rc == 0) h.server.ledger = ledger_new((size_t)h.config.max_request_memory);
  uv_loop_init(&h.loop);
  if (rc == 0) rc = http_start(&h.server, &h.server.http, error);
  if (rc != 0) {
    uv_run(&h.loop, UV_RUN_DEFAULT);
    ASSERT_EQ(uv_loop_close(&h.loop), 0);
    auth_free(h.server.auth);
    ledger_free(h.server.ledger);
    config_free(&h.config);
    return rc;
  }
  uv_async_init(&h.loop, &h.async, on_command);
  h.running = true;
  return pthread_create(&h.thread, NULL, loop_main, NULL);
}

void harness_start(const char *const *flags) {
  inferd_error_t error = {0};
  int rc = harness_try(flags, &error);
  ASSERT_EQ_FOR(rc, 0, "start: %s", error.message);
}

void harness_stop(void) {
  command(COMMAND_ABORT);
  command(COMMAND_STOP);
  pthread_join(h.thread, NULL);
  ASSERT_EQ_FOR(uv_loop_close(&h.loop), 0, "a handle was left open");
  ASSERT_EQ_FOR(atomic_load(&seen.live), 0, "an exchange was lost");
  let_go();
  ASSERT_EQ(bytes_held(&h.server), 0);
  ledger_free(h.server.ledger);
  auth_free(h.server.auth);
  config_free(&h.config);
  log_close();
}

void harness_drain(void) {
  command(COMMAND_DRAIN);
}
void harness_abort(void) {
  command(COMMAND_ABORT);
}
void harness_stats(void) {
  command(COMMAND_STATS);
}
void harness_let_go(void) {
  command(COMMAND_LET_GO);
}
const char *harness_address(int listener) {
  return http_address(h.server.http, listener);
}
int harness_port(int listener) {
  const char *address = harness_address(listener);
  return atoi(strrchr(address, ':') + 1);
}

/* ---- client ---- */

uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* When a wait that begins now gives up. One of a second or more is for what must come, and has the
 * patience that a full machine needs; a shorter one looks for what may not come. */
static uint64_t end_of_wait(int timeout_ms) {
  return now_ns() + (uint64_t)timeout_ms * (timeout_ms >= 1000 ? 20 : 1) * 1000000u;
}

bool wait_for(atomic_int *value, int wanted, int timeout_ms) {
  uint64_t end = end_of_wait(timeout_ms);
  while (atomic_load(value) != wanted) {
    if (now_ns() > end) return false;
    usleep(1000);
  }
  return true;
}

int client_connect_address(const char *host, int port) {
  struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
  bool six = strchr(host, ':') != NULL;
  ASSERT_EQ(
      inet_pton(six ? AF_INET6 : AF_INET, host, six ? (void *)&v6.sin6_addr : (void *)&v4.sin_addr),
      1);
  int fd = socket(six ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  int rc = six ? connect(fd, (struct sockaddr *)&v6, sizeof v6)
               : connect(fd, (struct sockaddr *)&v4, sizeof v4);
  if (rc == 0) return fd;
  close(fd);
  return -1;
}

int client_connect(int port) {
  return client_connect_address("127.0.0.1", port);
}

int client_connect_unix(const char *path) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0) return fd;
  close(fd);
  return -1;
}

void client_send_bytes(int fd, const char *bytes, size_t length) {
  while (length > 0) {
    ssize_t n = send(fd, bytes, length, MSG_NOSIGNAL);
    if (n <= 0) return; /* the server may have closed already: the test looks at the answer */
    bytes += n;
    length -= (size_t)n;
  }
}

void client_send(int fd, const char *text) {
  client_send_bytes(fd, text, strlen(text));
}

char *client_read(int fd, const char *until, int timeout_ms) {
  size_t used = 0, capacity = 65536;
  char *text = malloc(capacity);
  text[0] = '\0';
  uint64_t end = end_of_wait(timeout_ms);
  while (until == NULL || strstr(text, until) == NULL) {
    uint64_t now = now_ns();
    if (now >= end) break;
    struct pollfd state = {.fd = fd, .events = POLLIN};
    if (poll(&state, 1, (int)((end - now) / 1000000u) + 1) <= 0) break;
    if (used + 32768 > capacity) text = realloc(text, capacity *= 2);
    ssize_t n = recv(fd, text + used, 32767, 0);
    if (n <= 0) break;
    used += (size_t)n;
    text[used] = '\0';
  }
  return text;
}

char *client_read_all(int fd, int timeout_ms) {
  return client_read(fd, NULL, timeout_ms);
}

bool client_closed(int fd, int timeout_ms) {
  uint64_t end = end_of_wait(timeout_ms);
  for (;;) {
    uint64_t now = now_ns();
    if (now >= end) return false;
    struct pollfd state = {.fd = fd, .events = POLLIN};
    if (poll(&state, 1, (int)((end - now) / 1000000u) + 1) <= 0) return false;
    char waste[65536];
    if (recv(fd, waste, sizeof waste, 0) <= 0) return true;
  }
}

void client_reset(int fd) {
  struct linger linger = {1, 0};
  setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
  close(fd);
}

char *client_request(const char *text) {
  int fd = client_connect(harness_port(0));
  ASSERT_GE(fd, 0);
  client_send(fd, text);
  char *answer = client_read_all(fd, 5000);
  close(fd);
  return answer;
}

char *client_post_text(const char *path, const char *extra_headers, const char *body) {
  char *text = NULL;
  int n = asprintf(&text,
                   "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n%s"
                   "Content-Length: %zu\r\n\r\n%s",
                   path, extra_headers, strlen(body), body);
  ASSERT_GT(n, 0);
  return text;
}

int status_of(const char *response) {
  int status = 0;
  return sscanf(response, "HTTP/1.1 %d", &status) == 1 ? status : 0;
}

size_t client_join_chunks(char *body) {
  char *at = body, *out = body;
  const char *last = body + strlen(body);
  for (;;) {
    char *end;
    size_t length = strtoul(at, &end, 16);
    ASSERT_EQ(strncmp(end, "\r\n", 2), 0);
    if (length == 0) break;
    cr_assert(length < (size_t)(last - end) - 2, "the answer ends within a chunk");
    ASSERT_EQ(strncmp(end + 2 + length, "\r\n", 2), 0);
    memmove(out, end + 2, length);
    out += length;
    at = end + 2 + length + 2;
  }
  *out = '\0';
  return (size_t)(out - body);
}
