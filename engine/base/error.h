/* error.h: every way a request, a model directory or a start can fail.
 *
 * error.def is the one table: it gives the enum, the HTTP status, OpenAI's type and code, the exit
 * status and a sentence for docs/errors.md. Errors are values: functions return 0 or a negative
 * ERR_ number and, if a person will read the reason, fill an inferd_error_t. No function here but
 * error_system allocates; any thread.
 */
#ifndef INFERD_ENGINE_BASE_ERROR_H
#define INFERD_ENGINE_BASE_ERROR_H

#include <stdbool.h>

/* ERR_OK, ERR_INVALID_JSON ... */
enum error_code {
#define ERROR(name, number, ...) ERR_##name = (number),
#include "engine/base/error.def"
#undef ERROR
};

enum { ERROR_PARAM_MAX = 64, ERROR_MESSAGE_MAX = 512, ERROR_PLACE_MAX = 240 };

typedef struct error {
  int code;                        /* ERR_OK or another ERR_ number */
  char param[ERROR_PARAM_MAX];     /* request field or config key at fault; "" = none */
  char message[ERROR_MESSAGE_MAX]; /* UTF-8, one line; inserts are bounded and escaped */
} inferd_error_t;

/* Fills *error and returns `code`, for use as `return error_set(...)`. `error` and `param` may be
 * NULL. The caller must pass text from a client through error_quote first. */
int error_set(inferd_error_t *error, int code, const char *param, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Fills *error with "SHOWN: REASON" for a file that the operating system does not open, and returns
 * its code: ERR_MODEL_MISSING if the file does not exist, ERR_PERMISSION if the user may not open
 * it, else ERR_IO. `number` is the errno value. A denied access names the user of the process,
 * because that is rarely the user who owns the file. */
int error_system(inferd_error_t *error, const char *shown, int number);

/* Adds the file or directory in which an error was found: puts "PLACE: " before the message, unless
 * the message begins with PLACE or `code` is 0. Of a place longer than ERROR_PLACE_MAX bytes the
 * end is kept. Returns `code`, for use as `return error_within(...)`. `error` may be NULL. */
int error_within(inferd_error_t *error, int code, const char *place);

/* Copies at most `capacity - 1` bytes of untrusted text as printable UTF-8. Control bytes, quotes,
 * backslashes and invalid UTF-8 become '?'; text that is cut ends in "...". Returns `out`. */
const char *error_quote(char *out, unsigned capacity, const char *text, unsigned long length);

/* For "did you mean": how many characters must change to make one text of the other (Levenshtein's
 * distance). Bytes behind the first ERROR_NEAR_MAX do not count. */
enum { ERROR_NEAR_MAX = 255 };
int error_distance(const char *left, const char *right);

const char *error_name(int code);        /* "QUEUE_FULL" */
int error_http_status(int code);         /* 429 */
const char *error_openai_type(int code); /* "rate_limit_error" */
const char *error_openai_code(int code); /* "queue_full" or NULL */
int error_exit_code(int code);           /* 78, a number of sysexits.h */

#endif
