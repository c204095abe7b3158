/* reload.c: which options a running server takes over from a configuration that was read again.
 *
 * Main thread, which is the loop thread. An option may change while the server runs if its value is
 * read there alone, each time that it is needed, or if server/reload.c hands it on.
 */
#include "config/config.h"

#include "engine/base/util.h"

#include <string.h>

static const enum config_option changeable[] = {OPTION_access_log,
                                                OPTION_admin_key,
                                                OPTION_admin_key_file,
                                                OPTION_allowed_host,
                                                OPTION_api_key,
                                                OPTION_api_key_file,
                                                OPTION_body_timeout,
                                                OPTION_cors_origin,
                                                OPTION_deny_special_ids,
                                                OPTION_disable_grammar,
                                                OPTION_drain_delay,
                                                OPTION_drain_timeout,
                                                OPTION_error_code,
                                                OPTION_force_include_usage,
                                                OPTION_header_timeout,
                                                OPTION_log_level,
                                                OPTION_lora_modules,
                                                OPTION_max_body_bytes,
                                                OPTION_max_connections_per_ip,
                                                OPTION_max_logprobs,
                                                OPTION_max_queue_requests,
                                                OPTION_max_queue_tokens,
                                                OPTION_max_request_memory,
                                                OPTION_metrics_auth,
                                                OPTION_return_tokens_as_token_ids,
                                                OPTION_served_model_name,
                                                OPTION_slow_reader_timeout,
                                                OPTION_slow_request,
                                                OPTION_sse_ping_interval,
                                                OPTION_stream_buffer_bytes,
                                                OPTION_stream_interval,
                                                OPTION_watchdog_interval};

/* The size of a value, and whether it is text or a list of texts. */
typedef enum form { FORM_PLAIN, FORM_TEXT, FORM_LIST } form_t;
#define FORM(type)                                                                                 \
  _Generic((type){0}, char * : FORM_TEXT, config_list_t : FORM_LIST, default : FORM_PLAIN)

static const struct {
  const char *name;
  size_t offset, size;
  form_t form;
} values[] = {
#define OPTION(kind, field, ...)                                                                   \
  {#field, offsetof(config_t, field), sizeof(config_##kind##_t), FORM(config_##kind##_t)},
#include "config/options.def"
#undef OPTION
};

const char *config_name(enum config_option option) {
  return values[option].name;
}

bool config_may_change(enum config_option option) {
  for (size_t i = 0; i < ARRAY_LEN(changeable); i++) {
    if (changeable[i] == option) return true;
  }
  return false;
}

bool config_same(const config_t *left, const config_t *right, enum config_option option) {
  const void *one = (const char *)left + values[option].offset;
  const void *other = (const char *)right + values[option].offset;
  if (values[option].form == FORM_PLAIN) return memcmp(one, other, values[option].size) == 0;
  if (values[option].form == FORM_TEXT) {
    return strcmp(*(char *const *)one, *(char *const *)other) == 0;
  }
  const config_list_t *list = one, *list_of_other = other;
  bool same = list->count == list_of_other->count;
  for (int i = 0; same && i < list->count; i++) {
    same = strcmp(list->items[i], list_of_other->items[i]) == 0;
  }
  return same;
}

void config_exchange(config_t *left, config_t *right, enum config_option option) {
  char bytes[sizeof(config_list_t)];
  void *one = (char *)left + values[option].offset, *other = (char *)right + values[option].offset;
  memcpy(bytes, one, values[option].size);
  memcpy(one, other, values[option].size);
  memcpy(other, bytes, values[option].size);
  config_origin_t origin = left->origin[option];
  left->origin[option] = right->origin[option];
  right->origin[option] = origin;
}
