/* log.h: lines for the operator. Any thread; one lock.
 *
 * A line is written whole or dropped and counted: a full pipe never stops the server. Text that
 * came from a client is escaped here.
 */
#ifndef INFERD_SERVER_OBSERVE_LOG_H
#define INFERD_SERVER_OBSERVE_LOG_H

#include "config/config.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG } log_level_t;

enum { LOG_ACCESS_BYTES_MAX = 400, LOG_MODEL_MAX = 64 };

/* 0, ERR_IO or ERR_PERMISSION when the log file cannot be opened. Before this, lines go to standard
 * error as text. */
int log_open(const config_t *config, error_t *error);
/* SIGUSR1: opens the log file again; on failure the old one stays. */
void log_reopen(void);
void log_close(void); /* flushes, goes back to standard error */

void log_line(log_level_t level, const char *event, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* What the access line says beyond the transport's own knowledge; handlers fill what they know. */
typedef struct exchange_log {
  const char *finish;        /* static text: "stop", "length", "abort", "error"; NULL = not known */
  char model[LOG_MODEL_MAX]; /* served name or adapter, cut; "" = none */
  bool stream;
  int32_t prompt_tokens, cached_tokens, generated_tokens; /* -1 = not known */
  double queue_ms, ttft_ms, itl_ms;                       /* negative = not known */
} exchange_log_t;

/* The access line of one request. Strings may be NULL. */
typedef struct access {
  const char *id, *peer, *key, *method, *route, *code, *cause;
  int status;
  uint64_t duration_ns;
  uint64_t bytes_in, bytes_out;
  const exchange_log_t *log;
} access_t;

/* Buffered until log_flush (once per loop turn). At most LOG_ACCESS_BYTES_MAX bytes with newline.
 */
void log_access(const access_t *access);
void log_flush(void);
uint64_t log_dropped(void); /* lines that nobody took */

/* Writes the line as log_access would; returns its length without NUL. For tests. */
int log_access_format(const access_t *access, bool json, const char *timestamp, char *out,
                      size_t capacity);

#endif
