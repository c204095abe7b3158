/* error.h: every way a request, a model directory or a start can fail.
 *
 * One table gives the enum, the HTTP status, the OpenAI error type and the OpenAI error code. An
 * error travels as a value: functions return 0 or a negative ERR_ number and, where a person will
 * read the reason, fill an error_t. Nothing here allocates; any thread may use it.
 */
#ifndef INFERD_ENGINE_BASE_ERROR_H
#define INFERD_ENGINE_BASE_ERROR_H

#include <errno.h>
#include <stdbool.h>

/* glibc has a GNU extension of the same name in errno.h: ours takes its place from here on. */
#define error_t inferd_error_t

/* X(name, number, http_status, openai_type, openai_code or NULL) */
#define ERROR_TABLE(X)                                                                             \
  X(OK, 0, 200, "", NULL)                                                                          \
  X(INVALID_JSON, -1, 400, "invalid_request_error", "invalid_json")                                \
  X(MISSING_PARAMETER, -2, 400, "invalid_request_error", "missing_required_parameter")             \
  X(INVALID_TYPE, -3, 400, "invalid_request_error", "invalid_type")                                \
  X(INVALID_VALUE, -4, 400, "invalid_request_error", "invalid_value")                              \
  X(BELOW_MIN, -5, 400, "invalid_request_error", "integer_below_min_value")                        \
  X(ABOVE_MAX, -6, 400, "invalid_request_error", "integer_above_max_value")                        \
  X(CONTEXT_LENGTH, -7, 400, "invalid_request_error", "context_length_exceeded")                   \
  X(UNSUPPORTED_PARAMETER, -8, 400, "invalid_request_error", "unsupported_parameter")              \
  X(UNKNOWN_PARAMETER, -9, 400, "invalid_request_error", "unknown_parameter")                      \
  X(UNSUPPORTED_ENDPOINT, -10, 400, "invalid_request_error", "unsupported_endpoint")               \
  X(BAD_REQUEST, -11, 400, "invalid_request_error", NULL)                                          \
  X(INVALID_API_KEY, -12, 401, "invalid_request_error", "invalid_api_key")                         \
  X(HOST_NOT_ALLOWED, -13, 403, "permission_error", "host_not_allowed")                            \
  X(ORIGIN_NOT_ALLOWED, -14, 403, "permission_error", "origin_not_allowed")                        \
  X(MODEL_NOT_FOUND, -15, 404, "invalid_request_error", "model_not_found")                         \
  X(UNKNOWN_URL, -16, 404, "invalid_request_error", "unknown_url")                                 \
  X(METHOD_NOT_ALLOWED, -17, 405, "invalid_request_error", "method_not_allowed")                   \
  X(REQUEST_TIMEOUT, -18, 408, "timeout_error", "request_timeout")                                 \
  X(BODY_TOO_LARGE, -19, 413, "invalid_request_error", "body_too_large")                           \
  X(UNSUPPORTED_MEDIA_TYPE, -20, 415, "invalid_request_error", "unsupported_media_type")           \
  X(QUEUE_FULL, -21, 429, "rate_limit_error", "queue_full")                                        \
  X(QUEUE_TIMEOUT, -22, 429, "rate_limit_error", "queue_timeout")                                  \
  X(INTERNAL, -23, 500, "server_error", "internal_error")                                          \
  X(NOT_IMPLEMENTED, -24, 501, "invalid_request_error", NULL)                                      \
  X(MODEL_LOADING, -25, 503, "service_unavailable_error", "model_loading")                         \
  X(DRAINING, -26, 503, "service_unavailable_error", "draining")                                   \
  X(DEVICE_FAILED, -27, 500, "server_error", "device_failed") /* with the request on board */      \
  X(OVERLOADED, -28, 503, "service_unavailable_error", "overloaded")                               \
  X(UNSUPPORTED_CONTENT_PART, -29, 400, "invalid_request_error", "unsupported_content_part")       \
  X(ENGINE_FAILED, -30, 503, "service_unavailable_error", "device_failed")                         \
  /* start-up errors: they end in an exit code, never in a response */                             \
  X(USAGE, -40, 500, "server_error", "exit_64")                                                    \
  X(MODEL_MALFORMED, -41, 500, "server_error", "exit_65")                                          \
  X(MODEL_MISSING, -42, 500, "server_error", "exit_66")                                            \
  X(ADDRESS_IN_USE, -43, 500, "server_error", "exit_69")                                           \
  X(IO, -44, 500, "server_error", "exit_74")                                                       \
  X(PERMISSION, -45, 500, "server_error", "exit_77")                                               \
  X(CONFIGURATION, -46, 500, "server_error", "exit_78")                                            \
  X(NO_MEMORY, -47, 500, "server_error", "exit_78")

enum error_code {
#define X(name, number, http, type, code) ERR_##name = (number),
  ERROR_TABLE(X)
#undef X
};

enum { ERROR_PARAM_MAX = 64, ERROR_MESSAGE_MAX = 512 };

typedef struct error {
  int code;                        /* ERR_OK or another ERR_ number */
  char param[ERROR_PARAM_MAX];     /* request field or config key at fault; "" = none */
  char message[ERROR_MESSAGE_MAX]; /* UTF-8, one line; inserts are bounded and escaped */
} error_t;

/* Fills *error (NULL is allowed) and returns `code`, so that `return error_set(...)` reads well.
 * `param` may be NULL. Text from a client goes through error_quote first. */
int error_set(error_t *error, int code, const char *param, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Copies at most `capacity - 1` bytes of untrusted text as printable UTF-8: control bytes, quotes
 * and backslashes become '?', invalid UTF-8 becomes '?', a cut is marked "...". Returns `out`. */
const char *error_quote(char *out, unsigned capacity, const char *text, unsigned long length);

const char *error_name(int code);        /* "QUEUE_FULL" */
int error_http_status(int code);         /* 429 */
const char *error_openai_type(int code); /* "rate_limit_error" */
const char *error_openai_code(int code); /* "queue_full" or NULL */
int error_exit_code(int code);           /* sysexits number for start-up errors, else 70 */

/* CHECK stays in release builds. For our own bugs only: nothing that a client or a model file can
 * send may reach a failing CHECK. */
#define CHECK(condition)                                                                           \
  do {                                                                                             \
    if (!(condition)) check_failed(#condition, __FILE__, __LINE__);                                \
  } while (false)
_Noreturn void check_failed(const char *condition, const char *file, int line);

#endif
