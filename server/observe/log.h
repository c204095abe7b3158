/* log.h: lines for the operator. Any thread; one lock.
 *
 * A line is written whole or dropped and counted: a full pipe never stops the server. Text that
 * came from a client is escaped here.
 */
#ifndef INFERD_SERVER_OBSERVE_LOG_H
#define INFERD_SERVER_OBSERVE_LOG_H

#include "config/config.h"
#include "server/observe/priority.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LOG_ACCESS_BYTES_MAX = 728, LOG_PATH_MAX = 160, LOG_MODEL_MAX = 64 };

/* Opens the log as configured. Returns 0; ERR_IO, ERR_PERMISSION or, without its directory,
 * ERR_CONFIGURATION if the file cannot be opened.
 * Until this call, lines go to standard error as text. With `log_format` auto a line is text on a
 * terminal and under systemd's journal, which keeps time and priority itself, and JSON elsewhere.
 */
int log_open(const config_t *config, inferd_error_t *error);
/* Takes over log_level and access_log, which a reload may change. */
void log_reload(const config_t *config);
/* Opens the log file again (SIGUSR1, after a rotation). On failure the old file stays open. */
void log_reopen(void);
void log_close(void); /* flushes; later lines go to standard error */

/* Whether a line of this level is written: for lines whose values cost something to find. */
bool log_wanted(log_level_t level);
bool log_is_json(void); /* whether lines are JSON */
void log_line(log_level_t level, const char *event, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Parts of the access line that the transport does not know. Handlers set those that they know. */
typedef struct exchange_log {
  const char *finish;        /* static text: "stop", "length", "abort", "error"; NULL = not known */
  char model[LOG_MODEL_MAX]; /* served name or adapter, cut; "" = none */
  bool stream;
  int32_t prompt_tokens, cached_tokens, generated_tokens; /* -1 = not known */
  double queue_ms, ttft_ms, itl_ms;                       /* negative = not known */
  /* For the line of a slow request, in nanoseconds of clock.h; 0 = did not happen. */
  uint64_t queued_ns, scheduled_ns, first_token_ns, last_token_ns;
} exchange_log_t;
#define EXCHANGE_LOG_UNKNOWN                                                                       \
  {                                                                                                \
    .prompt_tokens = -1, .cached_tokens = -1, .generated_tokens = -1, .queue_ms = -1,              \
    .ttft_ms = -1, .itl_ms = -1                                                                    \
  }

/* The access line of one request. Strings may be NULL. */
typedef struct access {
  const char *id, *trace_id, *peer, *key, *method, *route, *code, *cause;
  const char *param; /* the field at fault, quoted, at most ERROR_PARAM_MAX - 1 bytes */
  const char *path;  /* of a request without a route, quoted, at most LOG_PATH_MAX - 1 bytes */
  int status;
  uint64_t duration_ns;
  uint64_t bytes_in, bytes_out;
  const exchange_log_t *log;
  bool minor; /* a line of level debug */
} access_t;

/* Adds an access line of at most LOG_ACCESS_BYTES_MAX bytes to the buffer that log_flush writes,
 * once per loop iteration. */
void log_access(const access_t *access);
void log_flush(void);
uint64_t log_dropped(void); /* lines dropped because the sink would block */

/* Writes the line as log_access would, without a priority; `timestamp` "" = none. Returns its
 * length without NUL. For tests. */
int log_access_format(const access_t *access, bool json, const char *timestamp, char *out,
                      size_t capacity);

#endif
