/* http_error.c: error bodies. One function writes every one of them.
 *
 * Loop thread, but pure: it knows neither exchanges nor libmicrohttpd.
 */
#include "engine/base/json.h"
#include "server/http/http.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char *error_body(const inferd_error_t *error, bool numeric_code, size_t *length) {
  /* Zeroed, because json_escape writes only the whole characters that fit and no NUL. */
  char message[2 * ERROR_MESSAGE_MAX] = "", param[2 * ERROR_PARAM_MAX + 4], code[64];
  json_escape(message, sizeof message - 1, error->message, strlen(error->message));
  if (error->param[0] == '\0') {
    snprintf(param, sizeof param, "null");
  } else {
    char escaped[2 * ERROR_PARAM_MAX] = "";
    json_escape(escaped, sizeof escaped - 1, error->param, strlen(error->param));
    snprintf(param, sizeof param, "\"%s\"", escaped);
  }
  const char *word = error_openai_code(error->code);
  if (numeric_code) {
    snprintf(code, sizeof code, "%d", error_http_status(error->code));
  } else if (word == NULL) {
    snprintf(code, sizeof code, "null");
  } else {
    snprintf(code, sizeof code, "\"%s\"", word);
  }
  char *body = NULL;
  int size =
      asprintf(&body, "{\"error\":{\"message\":\"%s\",\"type\":\"%s\",\"param\":%s,\"code\":%s}}",
               message, error_openai_type(error->code), param, code);
  if (size < 0) return NULL;
  *length = (size_t)size;
  return body;
}

static const char *messages_type(int status) {
  switch (status) {
  case 401: return "authentication_error";
  case 403: return "permission_error";
  case 404: return "not_found_error";
  case 408: return "timeout_error";
  case 413: return "request_too_large";
  case 429: return "rate_limit_error";
  case 503: return "overloaded_error";
  default: return status < 500 ? "invalid_request_error" : "api_error";
  }
}

char *error_body_messages(const inferd_error_t *error, const char *request_id, size_t *length) {
  char message[2 * ERROR_MESSAGE_MAX] = ""; /* zeroed as above */
  json_escape(message, sizeof message - 1, error->message, strlen(error->message));
  char *body = NULL;
  int size = asprintf(&body,
                      "{\"type\":\"error\",\"error\":{\"type\":\"%s\",\"message\":\"%s\"},"
                      "\"request_id\":\"%s\"}",
                      messages_type(error_http_status(error->code)), message, request_id);
  if (size < 0) return NULL;
  *length = (size_t)size;
  return body;
}

char *error_body_ollama(const inferd_error_t *error, size_t *length) {
  char message[2 * ERROR_MESSAGE_MAX] = ""; /* zeroed as above */
  json_escape(message, sizeof message - 1, error->message, strlen(error->message));
  char *body = NULL;
  int size = asprintf(&body, "{\"error\":\"%s\"}", message);
  if (size < 0) return NULL;
  *length = (size_t)size;
  return body;
}
