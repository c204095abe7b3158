/* tracer.c: the ring between the loop thread and the exporter, and the exporter's thread.
 *
 * The loop thread writes at `head`, the exporter reads at `tail`; neither waits for the other. The
 * exporter sleeps while the ring is empty, then gathers for GATHER_MS and sends at most
 * BATCH_RECORDS in a POST. A collector that is away or overloaded is asked again, up to TRIES times
 * with growing pauses; meanwhile the ring fills, and then drops.
 */
#include "server/trace/post.h"
#include "server/trace/span.h"
#include "server/trace/trace.h"

#include "engine/base/clock.h"
#include "engine/base/fault.h"
#include "engine/base/util.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

enum {
  RING_RECORDS = 2048, /* about 2 MB */
  BATCH_RECORDS = 256,
  GATHER_MS = 500,
  TRIES = 5,
  ATTRIBUTES_MAX = 64
};

struct tracer {
  char url[512];
  bool parent_decides; /* OTEL_TRACES_SAMPLER */
  double ratio;        /* of the traces that begin here */
  resource_attribute_t attributes[ATTRIBUTES_MAX];
  int attribute_count;
  post_t *post;
  pthread_t thread;
  bool started, complained;
  void (*warn)(const char *text);
  int bell, stop;        /* stop: atomic; 1 = send what is left, 2 = leave at once */
  uint64_t head, tail;   /* atomic; records ever written, ever read */
  trace_counts_t counts; /* atomic */
  span_record_t ring[RING_RECORDS];
};

/* ---- configuration ---- */

static const char *variable(const char *name, const char *otherwise) {
  const char *value = getenv(name);
  return value != NULL && value[0] != '\0' ? value : otherwise;
}

/* Sets the URL of the spans: an endpoint is the root below which they have their path. Returns
 * false if there is none. */
static bool find_url(const config_t *config, tracer_t *tracer) {
  const char *whole = variable("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "");
  const char *root = config->otlp_endpoint;
  if (strcasecmp(variable("OTEL_SDK_DISABLED", ""), "true") == 0) return false;
  if (root[0] == '\0' && whole[0] != '\0') {
    snprintf(tracer->url, sizeof tracer->url, "%s", whole);
    return true;
  }
  if (root[0] == '\0') root = variable("OTEL_EXPORTER_OTLP_ENDPOINT", "");
  size_t length = strlen(root);
  if (length == 0) return false;
  while (length > 0 && root[length - 1] == '/') length--;
  snprintf(tracer->url, sizeof tracer->url, "%.*s%s", (int)length, root,
           text_ends_in(root, "/v1/traces") ? "" : "/v1/traces");
  return true;
}

static int check_url(const char *url, inferd_error_t *error) {
  const char *host = strstr(url, "://");
  bool http = strncmp(url, "http://", 7) == 0 || strncmp(url, "https://", 8) == 0;
  if (http && host[3] != '\0' && host[3] != '/') return 0;
  return error_set(error, ERR_CONFIGURATION, "otlp_endpoint",
                   "otlp_endpoint is '%.200s'; it must be http://HOST:PORT or https://: spans are "
                   "sent by OTLP over HTTP as JSON (port 4318), not by gRPC (port 4317)",
                   url);
}

static int find_sampler(tracer_t *tracer, inferd_error_t *error) {
  const char *name = variable("OTEL_TRACES_SAMPLER", "parentbased_always_on");
  const char *argument = variable("OTEL_TRACES_SAMPLER_ARG", "1");
  tracer->parent_decides = strncmp(name, "parentbased_", 12) == 0;
  const char *root = tracer->parent_decides ? name + 12 : name;
  char *end = NULL;
  tracer->ratio = strtod(argument, &end);
  bool known = strcmp(root, "always_on") == 0 || strcmp(root, "always_off") == 0 ||
               strcmp(root, "traceidratio") == 0;
  bool drawn = strcmp(root, "traceidratio") == 0;
  if (drawn && (*end != '\0' || !(tracer->ratio >= 0 && tracer->ratio <= 1))) {
    return error_set(error, ERR_CONFIGURATION, NULL,
                     "OTEL_TRACES_SAMPLER_ARG is '%.40s'; it must be a number from 0 to 1",
                     argument);
  }
  if (!drawn) tracer->ratio = strcmp(root, "always_on") == 0;
  if (known) return 0;
  return error_set(error, ERR_CONFIGURATION, NULL,
                   "OTEL_TRACES_SAMPLER is '%.60s', supported: always_on, always_off, "
                   "traceidratio, and each with parentbased_ before it",
                   name);
}

static void add_attribute(tracer_t *tracer, const char *name, const char *value) {
  if (tracer->attribute_count == ATTRIBUTES_MAX) return;
  char *own_name = strdup(name), *own_value = strdup(value);
  if (own_name == NULL || own_value == NULL) {
    free(own_name);
    free(own_value);
    return;
  }
  post_unescape(own_value);
  tracer->attributes[tracer->attribute_count++] = (resource_attribute_t){own_name, own_value};
}

/* OTEL_RESOURCE_ATTRIBUTES is NAME=VALUE,NAME=VALUE; OTEL_SERVICE_NAME comes before its name. */
static void find_attributes(tracer_t *tracer) {
  const char *service = variable("OTEL_SERVICE_NAME", "");
  char *copy = strdup(variable("OTEL_RESOURCE_ATTRIBUTES", "")), *rest = copy;
  if (service[0] != '\0') add_attribute(tracer, "service.name", service);
  for (char *item; copy != NULL && (item = strsep(&rest, ",")) != NULL;) {
    char *value = strchr(item, '=');
    if (value == NULL || value == item) continue;
    *value = '\0';
    item += strspn(item, " ");
    bool names = strcmp(item, "service.name") == 0;
    if (names && service[0] != '\0') continue;
    if (names) service = "given";
    add_attribute(tracer, item, value + 1);
  }
  free(copy);
  if (service[0] == '\0') add_attribute(tracer, "service.name", "inferd");
  add_attribute(tracer, "service.version", INFERD_VERSION);
}

/* ---- exporter thread ---- */

static int64_t unix_offset(void) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec - (int64_t)clock_now_ns();
}

static int stop_of(const tracer_t *tracer) {
  return __atomic_load_n(&tracer->stop, __ATOMIC_ACQUIRE);
}

/* Sleeps until the bell rings; `timeout_ms` -1 = for ever. */
static void sleep_until_bell(tracer_t *tracer, int timeout_ms) {
  struct pollfd bell = {.fd = tracer->bell, .events = POLLIN};
  uint64_t count;
  if (poll(&bell, 1, timeout_ms) == 1) (void)!read(tracer->bell, &count, sizeof count);
}

/* Pauses although the bell rings for new records, but not when the end has come. */
static void pause_ms(tracer_t *tracer, int ms) {
  uint64_t end_ns = clock_now_ns() + (uint64_t)ms * 1000000;
  while (stop_of(tracer) == 0 && clock_now_ns() < end_ns) {
    const struct timespec pause = {.tv_nsec = 20 * 1000 * 1000};
    nanosleep(&pause, NULL);
  }
}

/* One line when it begins to fail; the next is possible once it has worked again. */
static void complain(tracer_t *tracer, long status) {
  char text[1024], number[32];
  if (tracer->complained) return;
  tracer->complained = true;
  snprintf(number, sizeof number, "it answers with %ld", status);
  snprintf(text, sizeof text, "the collector at %s takes no spans: %s", tracer->url,
           status == 0 ? post_reason(tracer->post) : number);
  tracer->warn(text);
}

/* Returns true if the collector took the batch. */
static bool send_batch(tracer_t *tracer, const buffer_t *text) {
  for (int i = 0, wait_ms = 1000; i < TRIES && stop_of(tracer) < 2; i++, wait_ms *= 2) {
    long status = post_send(tracer->post, (const char *)text->bytes, text->length);
    if (status >= 200 && status < 300) {
      tracer->complained = false;
      return true;
    }
    complain(tracer, status);
    bool again = status == 0 || status == 429 || status == 502 || status == 503 || status == 504;
    if (!again || stop_of(tracer) != 0) return false;
    pause_ms(tracer, wait_ms);
  }
  return false;
}

static void export_batch(tracer_t *tracer) {
  buffer_t text = {0};
  uint64_t head = __atomic_load_n(&tracer->head, __ATOMIC_ACQUIRE), tail = tracer->tail;
  uint64_t count = MIN(head - tail, (uint64_t)BATCH_RECORDS);
  int64_t offset_ns = unix_offset();
  spans_begin(&text, tracer->attributes, tracer->attribute_count);
  for (uint64_t i = 0; i < count; i++) {
    spans_add(&text, &tracer->ring[(tail + i) % RING_RECORDS], offset_ns, i == 0);
  }
  spans_end(&text);
  __atomic_store_n(&tracer->tail, tail + count, __ATOMIC_RELEASE); /* the ring has room again */
  bool sent = !text.failed && send_batch(tracer, &text);
  uint64_t *counter = sent ? &tracer->counts.exported : &tracer->counts.failed;
  __atomic_add_fetch(counter, count, __ATOMIC_RELAXED);
  buffer_free(&text);
}

static void *run(void *argument) {
  tracer_t *tracer = argument;
  fault_stack_use();
  for (;;) {
    bool empty = __atomic_load_n(&tracer->head, __ATOMIC_ACQUIRE) == tracer->tail;
    int stop = stop_of(tracer);
    if (stop == 2 || (stop == 1 && empty)) return NULL;
    if (empty) {
      sleep_until_bell(tracer, -1);
      pause_ms(tracer, GATHER_MS);
    } else {
      export_batch(tracer);
    }
  }
}

/* ---- loop thread ---- */

static int start_thread(tracer_t *tracer, inferd_error_t *error) {
  sigset_t others, old; /* signals are for the loop thread, but faults */
  tracer->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  fault_block_others(&others);
  pthread_sigmask(SIG_SETMASK, &others, &old);
  int status = tracer->bell >= 0 ? pthread_create(&tracer->thread, NULL, run, tracer) : errno;
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  tracer->started = status == 0;
  if (status == 0) {
    (void)pthread_setname_np(tracer->thread, "traces");
    return 0;
  }
  return error_set(error, ERR_IO, NULL, "cannot start a thread for traces: %s", strerror(status));
}

int tracer_start(const config_t *config, void (*warn)(const char *text), tracer_t **out,
                 inferd_error_t *error) {
  *out = NULL;
  tracer_t *tracer = calloc(1, sizeof *tracer);
  if (tracer == NULL) return error_set(error, ERR_NO_MEMORY, NULL, "no memory for traces");
  tracer->bell = -1;
  tracer->warn = warn;
  if (!find_url(config, tracer)) {
    free(tracer);
    return 0;
  }
  const char *headers = variable("OTEL_EXPORTER_OTLP_HEADERS", "");
  headers = variable("OTEL_EXPORTER_OTLP_TRACES_HEADERS", headers);
  long timeout_ms = strtol(variable("OTEL_EXPORTER_OTLP_TIMEOUT", "10000"), NULL, 10);
  find_attributes(tracer);
  int code = check_url(tracer->url, error);
  if (code == 0) code = find_sampler(tracer, error);
  if (code == 0) {
    code = post_open(tracer->url, headers, MAX(timeout_ms, 1), &tracer->stop, &tracer->post, error);
  }
  if (code == 0) code = start_thread(tracer, error);
  if (code != 0) {
    tracer_stop(tracer);
  } else {
    *out = tracer;
  }
  return code;
}

const char *tracer_address(const tracer_t *tracer) {
  return tracer->url;
}

bool tracer_samples(const tracer_t *tracer, trace_context_t *context) {
  if (tracer == NULL) return false;
  if (context->trace_id[0] != '\0' && tracer->parent_decides) return context->sampled;
  if (context->trace_id[0] == '\0') span_draw_id(context->trace_id, TRACE_ID_TEXT - 1);
  /* Every service that sees the trace decides alike: by its id. */
  uint64_t low = strtoull(context->trace_id + 16, NULL, 16) >> 11;
  return (double)low < tracer->ratio * 9007199254740992.0;
}

void tracer_add(tracer_t *tracer, const span_record_t *record) {
  uint64_t tail = __atomic_load_n(&tracer->tail, __ATOMIC_ACQUIRE);
  if (tracer->head - tail >= RING_RECORDS) {
    __atomic_add_fetch(&tracer->counts.dropped, 1, __ATOMIC_RELAXED);
    return;
  }
  tracer->ring[tracer->head % RING_RECORDS] = *record;
  __atomic_store_n(&tracer->head, tracer->head + 1, __ATOMIC_RELEASE);
  uint64_t one = 1;
  (void)!write(tracer->bell, &one, sizeof one);
}

trace_counts_t tracer_counts(const tracer_t *tracer) {
  return (trace_counts_t){.exported = __atomic_load_n(&tracer->counts.exported, __ATOMIC_RELAXED),
                          .dropped = __atomic_load_n(&tracer->counts.dropped, __ATOMIC_RELAXED),
                          .failed = __atomic_load_n(&tracer->counts.failed, __ATOMIC_RELAXED)};
}

void tracer_stop(tracer_t *tracer) {
  if (tracer == NULL) return;
  if (tracer->started) {
    uint64_t one = 1;
    __atomic_store_n(&tracer->stop, 1, __ATOMIC_RELEASE);
    (void)!write(tracer->bell, &one, sizeof one);
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += TRACER_STOP_MS / 1000;
    if (pthread_timedjoin_np(tracer->thread, NULL, &end) != 0) {
      __atomic_store_n(&tracer->stop, 2, __ATOMIC_RELEASE);
      pthread_join(tracer->thread, NULL);
    }
  }
  post_close(tracer->post);
  if (tracer->bell >= 0) close(tracer->bell);
  for (int i = 0; i < tracer->attribute_count; i++) {
    free(tracer->attributes[i].name);
    free(tracer->attributes[i].value);
  }
  free(tracer);
}
