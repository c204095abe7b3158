/* log.c: text (logfmt) or JSON lines to standard error or a file.
 *
 * Any thread, one lock. Access lines are collected and written together once per loop iteration. If
 * the sink would block, lines are dropped and counted: the log never stops the loop.
 */
#include "server/observe/log.h"

#include "engine/base/json.h"
#include "engine/base/util.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { BUFFER_BYTES = 64 * 1024, LINE_BYTES_MAX = 2048, PIPE_ATOMIC_BYTES = 4096 };

static struct {
  pthread_mutex_t lock;
  int fd;
  bool json, access;
  bool journal;     /* systemd's journal reads: each line begins with its priority, <3> to <7> */
  atomic_int level; /* a log_level_t */
  char *path;       /* NULL = standard error */
  char buffer[BUFFER_BYTES];
  size_t used;
  uint64_t dropped;
} sink = {
    .lock = PTHREAD_MUTEX_INITIALIZER, .fd = STDERR_FILENO, .level = LOG_INFO, .access = true};

static const char *const level_names[] = {"error", "warn", "info", "debug"};

/* "2026-01-31T12:00:00.000000Z" */
static void timestamp_now(char out[32]) {
  struct timespec now;
  struct tm parts;
  clock_gettime(CLOCK_REALTIME, &now);
  gmtime_r(&now.tv_sec, &parts);
  size_t n = strftime(out, 32, "%Y-%m-%dT%H:%M:%S", &parts);
  snprintf(out + n, 32 - n, ".%06ldZ", now.tv_nsec / 1000);
}

/* Writes until the sink would block and returns the number of bytes written. A pipe that poll
 * reports as writable takes 4096 bytes without blocking. */
static size_t write_some(const char *bytes, size_t length) {
  size_t done = 0;
  while (done < length) {
    struct pollfd state = {.fd = sink.fd, .events = POLLOUT};
    if (poll(&state, 1, 0) != 1 || (state.revents & POLLOUT) == 0) break;
    size_t piece = MIN(length - done, PIPE_ATOMIC_BYTES);
    ssize_t n = write(sink.fd, bytes + done, piece);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    done += (size_t)n;
  }
  return done;
}

static void flush_locked(void) {
  if (sink.used == 0) return;
  size_t done = write_some(sink.buffer, sink.used);
  for (size_t i = done; i < sink.used; i++) sink.dropped += sink.buffer[i] == '\n';
  sink.used = 0;
}

static void append_locked(const char *line, size_t length) {
  if (sink.used + length > sizeof sink.buffer) flush_locked();
  memcpy(sink.buffer + sink.used, line, length);
  sink.used += length;
}

static int open_file(const char *path) {
  return open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0640);
}

static void set_levels_locked(const config_t *config) {
  sink.access = config->access_log;
  for (int i = 0; i <= LOG_DEBUG; i++) {
    if (strcmp(config->log_level, level_names[i]) == 0) atomic_store(&sink.level, i);
  }
}

int log_open(const config_t *config, inferd_error_t *error) {
  int fd = STDERR_FILENO;
  char *path = NULL;
  if (config->log_file[0] != '\0') {
    fd = open_file(config->log_file);
    if (fd < 0) {
      int code = errno == EACCES || errno == EPERM ? ERR_PERMISSION
                 : errno == ENOENT                 ? ERR_CONFIGURATION
                                                   : ERR_IO;
      return error_set(error, code, "log_file", "cannot open the log file %s: %s", config->log_file,
                       strerror(errno));
    }
    path = strdup(config->log_file);
  }
  pthread_mutex_lock(&sink.lock);
  sink.fd = fd;
  sink.path = path;
  set_levels_locked(config);
  sink.journal = path == NULL && log_priority(LOG_INFO)[0] != '\0';
  sink.json = strcmp(config->log_format, "json") == 0 ||
              (strcmp(config->log_format, "auto") == 0 && !isatty(fd) && !sink.journal);
  pthread_mutex_unlock(&sink.lock);
  return 0;
}

void log_reload(const config_t *config) {
  pthread_mutex_lock(&sink.lock);
  set_levels_locked(config);
  pthread_mutex_unlock(&sink.lock);
}

void log_reopen(void) {
  pthread_mutex_lock(&sink.lock);
  flush_locked();
  int fd = sink.path != NULL ? open_file(sink.path) : -1;
  if (fd >= 0) {
    close(sink.fd);
    sink.fd = fd;
  }
  pthread_mutex_unlock(&sink.lock);
}

void log_close(void) {
  pthread_mutex_lock(&sink.lock);
  flush_locked();
  if (sink.path != NULL) close(sink.fd);
  free(sink.path);
  sink.path = NULL;
  sink.fd = STDERR_FILENO;
  sink.journal = log_priority(LOG_INFO)[0] != '\0';
  pthread_mutex_unlock(&sink.lock);
}

void log_flush(void) {
  pthread_mutex_lock(&sink.lock);
  flush_locked();
  pthread_mutex_unlock(&sink.lock);
}

uint64_t log_dropped(void) {
  pthread_mutex_lock(&sink.lock);
  uint64_t dropped = sink.dropped;
  pthread_mutex_unlock(&sink.lock);
  return dropped;
}

bool log_wanted(log_level_t level) {
  return (int)level <= atomic_load(&sink.level);
}

bool log_is_json(void) {
  return sink.json;
}

void log_line(log_level_t level, const char *event, const char *format, ...) {
  char text[1024], escaped[1400], line[LINE_BYTES_MAX], timestamp[32];
  va_list arguments;
  va_start(arguments, format);
  int n = vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  size_t length = n < 0 ? 0 : (size_t)n < sizeof text ? (size_t)n : sizeof text - 1;
  timestamp_now(timestamp);
  pthread_mutex_lock(&sink.lock);
  if (log_wanted(level)) {
    const char *priority = sink.journal ? priority_of(level) : "";
    if (sink.json) {
      /* Zeroed, because json_escape writes only the whole characters that fit and no NUL. */
      memset(escaped, 0, sizeof escaped);
      json_escape(escaped, sizeof escaped - 1, text, length);
      n = snprintf(line, sizeof line,
                   "%s{\"ts\":\"%s\",\"level\":\"%s\",\"event\":\"%s\",\"msg\":\"%s\"}\n", priority,
                   timestamp, level_names[level], event, escaped);
    } else if (level <= LOG_WARN && !sink.journal) {
      n = snprintf(line, sizeof line, "%s: %s\n", level_names[level], text);
    } else {
      n = snprintf(line, sizeof line, "%s%s\n", priority, text);
    }
    append_locked(line, (size_t)n < sizeof line ? (size_t)n : sizeof line - 1);
    flush_locked();
  }
  pthread_mutex_unlock(&sink.lock);
}

/* A line in the making. A field is appended as a whole or not at all. */
typedef struct log_text {
  char *out;
  size_t used, capacity;
  bool json;
} log_text_t;

static void field(log_text_t *line, const char *name, bool quoted, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

static void field(log_text_t *line, const char *name, bool quoted, const char *format, ...) {
  char value[192], piece[256];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(value, sizeof value, format, arguments);
  va_end(arguments);
  const char *mark = quoted && line->json ? "\"" : "";
  int n = line->json ? snprintf(piece, sizeof piece, ",\"%s\":%s%s%s", name, mark, value, mark)
                     : snprintf(piece, sizeof piece, " %s=%s", name, value);
  if (n < 0 || (size_t)n >= sizeof piece || line->used + (size_t)n > line->capacity) return;
  memcpy(line->out + line->used, piece, (size_t)n);
  line->used += (size_t)n;
}

static void text_field(log_text_t *line, const char *name, const char *value) {
  if (value != NULL && value[0] != '\0') field(line, name, true, "%s", value);
}

int log_access_format(const access_t *access, bool json, const char *timestamp, char *out,
                      size_t capacity) {
  const exchange_log_t *log = access->log;
  /* Room for the closing brace, the newline and the NUL is reserved. */
  log_text_t line = {out, 0, capacity - 3, json};
  int n = json ? snprintf(out, capacity, "{\"ts\":\"%s\",\"level\":\"%s\",\"event\":\"request\"",
                          timestamp, level_names[access->minor ? LOG_DEBUG : LOG_INFO])
               : snprintf(out, capacity, "%s%srequest", timestamp, timestamp[0] != '\0' ? " " : "");
  line.used = (size_t)n;
  field(&line, "status", false, "%d", access->status);
  text_field(&line, "method", access->method);
  text_field(&line, "route", access->route);
  text_field(&line, "path", access->path);
  field(&line, "e2e_ms", false, "%.1f", (double)access->duration_ns / 1e6);
  text_field(&line, "code", access->code);
  text_field(&line, "param", access->param);
  text_field(&line, "abort", access->cause);
  text_field(&line, "finish", log->finish);
  if (log->prompt_tokens >= 0) field(&line, "prompt", false, "%d", log->prompt_tokens);
  if (log->cached_tokens >= 0) field(&line, "cached", false, "%d", log->cached_tokens);
  if (log->generated_tokens >= 0) field(&line, "generated", false, "%d", log->generated_tokens);
  if (log->queue_ms >= 0) field(&line, "queue_ms", false, "%.1f", log->queue_ms);
  if (log->ttft_ms >= 0) field(&line, "ttft_ms", false, "%.1f", log->ttft_ms);
  if (log->itl_ms >= 0) field(&line, "itl_ms", false, "%.1f", log->itl_ms);
  if (log->stream) field(&line, "stream", false, "true");
  field(&line, "bytes_in", false, "%llu", (unsigned long long)access->bytes_in);
  field(&line, "bytes_out", false, "%llu", (unsigned long long)access->bytes_out);
  text_field(&line, "id", access->id);
  text_field(&line, "trace_id", access->trace_id);
  text_field(&line, "peer", access->peer);
  text_field(&line, "key", access->key);
  if (log->model[0] != '\0') {
    char model[LOG_MODEL_MAX], escaped[128] = "";
    error_quote(model, sizeof model, log->model, strlen(log->model));
    json_escape(escaped, sizeof escaped - 1, model, strlen(model));
    text_field(&line, "model", escaped);
  }
  if (json) out[line.used++] = '}';
  out[line.used++] = '\n';
  out[line.used] = '\0';
  return (int)line.used;
}

void log_access(const access_t *access) {
  char line[LOG_ACCESS_BYTES_MAX + 1], timestamp[32];
  pthread_mutex_lock(&sink.lock);
  log_level_t level = access->minor ? LOG_DEBUG : LOG_INFO;
  if (sink.access && log_wanted(level)) {
    timestamp_now(timestamp);
    const char *time = sink.journal && !sink.json ? "" : timestamp; /* the journal has its own */
    int n = log_access_format(access, sink.json, time, line, sizeof line);
    if (sink.journal) append_locked(priority_of(level), strlen(priority_of(level)));
    append_locked(line, (size_t)n);
  }
  pthread_mutex_unlock(&sink.lock);
}
