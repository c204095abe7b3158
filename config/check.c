/* check.c: rules between options, and values that no request could match.
 *
 * Main thread, after all sources were read. Pure functions; the caller adds where a value was set.
 */
#include "config/config.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Returns true if the origin has a scheme that no web site has: its pages belong to a program on
 * the user's machine, which draws a host for each of them. */
static bool is_scheme_of_program(const char *origin) {
  static const char *const of_web[] = {"http:", "https:", "ws:", "wss:", "ftp:", "file:", "data:"};
  for (size_t i = 0; i < sizeof of_web / sizeof *of_web; i++) {
    if (strncasecmp(origin, of_web[i], strlen(of_web[i])) == 0) return false;
  }
  size_t length = strspn(origin, "abcdefghijklmnopqrstuvwxyz0123456789+-.");
  return length > 0 && origin[length] == ':';
}

/* Refuses values that no request could ever match. */
static int check_names(const config_t *config, inferd_error_t *error) {
  enum { NAME_MAX_BYTES = 256 }; /* of `model` in a request */
  const config_list_t *names = &config->served_model_name, *origins = &config->cors_origin;
  for (int i = 0; i < names->count; i++) {
    size_t length = strlen(names->items[i]);
    if (length <= NAME_MAX_BYTES) continue;
    return error_set(error, ERR_CONFIGURATION, "served_model_name",
                     "served_model_name: %.20s... has %zu bytes; %d is the most that a request "
                     "may name",
                     names->items[i], length, NAME_MAX_BYTES);
  }
  for (int i = 0; i < origins->count; i++) {
    const char *item = origins->items[i], *authority = strstr(item, "://");
    if (strcmp(item, "*") == 0 || strcmp(item, "localhost") == 0) continue;
    if (strcmp(item, "none") == 0 && origins->count == 1) continue;
    if (authority != NULL && strcmp(authority, "://*") == 0 && is_scheme_of_program(item)) continue;
    if (authority != NULL && authority[3] != '\0' && strpbrk(authority + 3, "/*") == NULL) continue;
    return error_set(error, ERR_CONFIGURATION, "cors_origin",
                     "cors_origin: '%.100s' is not localhost, *, none alone, or an origin as "
                     "browsers send it, https://app.example or http://localhost:3000, or all hosts "
                     "of a scheme that is no web site's, vscode-webview://*",
                     item);
  }
  for (int i = 0; i < config->allowed_host.count; i++) {
    const char *item = config->allowed_host.items[i];
    if (item[0] == '[' || strpbrk(item, ":/*") == NULL) continue;
    return error_set(
        error, ERR_CONFIGURATION, "allowed_host",
        "allowed_host: '%.100s' is not a host name: leave scheme, port and patterns out", item);
  }
  return 0;
}

static int check_admin(const config_t *config, inferd_error_t *error) {
  bool some = config->admin_key.count > 0 || config->admin_key_file[0] != '\0';
  if (strcmp(config->metrics_auth, "admin") != 0 || some) return 0;
  return error_set(error, ERR_CONFIGURATION, "metrics_auth",
                   "metrics_auth is admin, but there is no admin key: set --admin-key or "
                   "--admin-key-file");
}

/* HOST or HOST:PORT, an IPv6 address in brackets. */
static bool is_media_host(const char *item) {
  static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-_";
  const bool bracket = item[0] == '[';
  size_t length = bracket ? strspn(item + 1, "0123456789abcdefABCDEF:.") + 1 : strspn(item, plain);
  if (bracket && item[length++] != ']') return false;
  if (length <= (bracket ? 2 : 0) || length > 240) return false;
  if (item[length] == '\0') return true;
  const char *port = item + length + 1;
  const size_t digits = strspn(port, "0123456789");
  return item[length] == ':' && digits >= 1 && digits <= 5 && port[digits] == '\0' &&
         atoi(port) >= 1 && atoi(port) <= 65535;
}

static int check_media_hosts(const config_t *config, inferd_error_t *error) {
  for (int i = 0; i < config->allowed_media_hosts.count; i++) {
    const char *item = config->allowed_media_hosts.items[i];
    if (is_media_host(item)) continue;
    return error_set(
        error, ERR_CONFIGURATION, "allowed_media_hosts",
        "allowed_media_hosts: '%.100s' is no host or HOST:PORT: leave scheme, path and "
        "patterns out, and put an IPv6 address in brackets",
        item);
  }
  return 0;
}

static int check_disabled(const config_t *config, inferd_error_t *error) {
  for (int i = 0; i < config->disable_grammar.count; i++) {
    const char *item = config->disable_grammar.items[i];
    bool known = strcmp(item, "regex") == 0 || strcmp(item, "grammar") == 0;
    if (known || strcmp(item, "schema") == 0) continue;
    return error_set(error, ERR_CONFIGURATION, "disable_grammar",
                     "disable_grammar: '%.60s' is no kind of constraint, supported: regex, "
                     "grammar, schema",
                     item);
  }
  return 0;
}

static bool device_is_valid(const char *device) {
  if (strncmp(device, "cuda:", 5) == 0) {
    size_t digits = strspn(device + 5, "0123456789");
    return digits >= 1 && digits <= 3 && device[5 + digits] == '\0';
  }
  return strcmp(device, "auto") == 0 || strcmp(device, "cpu") == 0 || strcmp(device, "cuda") == 0;
}

static int check_speculation(const config_t *config, inferd_error_t *error) {
  if (config->prompt_lookup_min > config->prompt_lookup_max) {
    return error_set(error, ERR_CONFIGURATION, "prompt_lookup_min",
                     "prompt_lookup_min is %lld; it must be at most prompt_lookup_max, %lld",
                     (long long)config->prompt_lookup_min, (long long)config->prompt_lookup_max);
  }
  const char *method = config->speculative_method;
  bool has_model = config->speculative_model[0] != '\0',
       drafts = strcmp(method, "draft_model") == 0;
  if (strcmp(method, "auto") != 0 && drafts != has_model) {
    return error_set(error, ERR_CONFIGURATION, "speculative_method",
                     "speculative_method is %s and speculative_model is %s; it must be %s", method,
                     has_model ? "given" : "not given", has_model ? "draft_model" : "ngram or mtp");
  }
  if (strcmp(method, "mtp") == 0 && config->num_speculative_tokens == 0) {
    return error_set(
        error, ERR_CONFIGURATION, "num_speculative_tokens",
        "speculative_method is mtp and num_speculative_tokens is 0; it must be 1 to 15");
  }
  if (!has_model || config->num_speculative_tokens > 0) return 0;
  return error_set(error, ERR_CONFIGURATION, "num_speculative_tokens",
                   "speculative_model is '%.100s' and num_speculative_tokens is 0; it must be 1 "
                   "to 15",
                   config->speculative_model);
}

/* Flags of TLS that do nothing without a certificate: the port would be plain without a word. */
static int check_tls(const config_t *config, inferd_error_t *error) {
  const char *alone = config->tls_key[0] != '\0'         ? "tls_key"
                      : config->tls_client_ca[0] != '\0' ? "tls_client_ca"
                                                         : NULL;
  if (alone == NULL || config->tls_cert[0] != '\0') return 0;
  return error_set(error, ERR_CONFIGURATION, alone,
                   "%s is set, but tls_cert is not: TLS needs a certificate", alone);
}

/* --task and --runner say the same. */
static int check_task(const config_t *config, inferd_error_t *error) {
  bool embeds = strcmp(config->task, "auto") != 0 && strcmp(config->task, "generate") != 0;
  bool pools = strcmp(config->runner, "pooling") == 0;
  bool given = strcmp(config->task, "auto") != 0 && strcmp(config->runner, "auto") != 0;
  if (!given || embeds == pools) return 0;
  return error_set(error, ERR_CONFIGURATION, "runner",
                   "runner is %s, which contradicts task, which is %s", config->runner,
                   config->task);
}

static bool zeromq_address(const char *text) {
  const char *colon = strrchr(text, ':');
  if (strncmp(text, "ipc://", 6) == 0) return text[6] != '\0';
  return strncmp(text, "tcp://", 6) == 0 && colon > text + 6 && colon[1] != '\0';
}

static int check_kv_events(const config_t *config, inferd_error_t *error) {
  const char *endpoint = config->kv_events_endpoint, *replay = config->kv_events_replay;
  bool publishes = endpoint[0] != '\0', replays = replay[0] != '\0';
  if ((publishes && !zeromq_address(endpoint)) || (replays && !zeromq_address(replay)))
    return error_set(error, ERR_CONFIGURATION,
                     publishes && !zeromq_address(endpoint) ? "kv_events_endpoint"
                                                            : "kv_events_replay",
                     "kv_events_endpoint is '%.100s' and kv_events_replay is '%.100s'; each must "
                     "be tcp://HOST:PORT or ipc://PATH, or empty",
                     endpoint, replay);
  if (replays && !publishes)
    return error_set(error, ERR_CONFIGURATION, "kv_events_replay",
                     "kv_events_replay is '%.100s', but kv_events_endpoint is not set", replay);
  if (!publishes) return 0;
  if (config->data_parallel_size > 1)
    return error_set(
        error, ERR_CONFIGURATION, "kv_events_endpoint",
        "data_parallel_size is %d, but events of kv_events_endpoint tell of one prefix "
        "cache; use data_parallel_size 1",
        (int)config->data_parallel_size);
  if (config->enable_prefix_caching && strcmp(config->prefix_share, "none") != 0) return 0;
  return error_set(error, ERR_CONFIGURATION, "kv_events_endpoint",
                   "kv_events_endpoint is set, but there is no prefix cache to tell of "
                   "(enable_prefix_caching, prefix_share)");
}

/* A model is cut by layers or by matrices. */
static int check_ranks(const config_t *config, inferd_error_t *error) {
  const int stages = (int)config->pipeline_parallel_size, parts = (int)config->tensor_parallel_size;
  if (stages <= 1) return 0;
  if (parts > 1)
    return error_set(
        error, ERR_CONFIGURATION, "pipeline_parallel_size",
        "pipeline_parallel_size is %d and tensor_parallel_size is %d; one of them must "
        "be 1",
        stages, parts);
  if (strcmp(config->tensor_parallel_mode, "exact") == 0) return 0;
  return error_set(error, ERR_CONFIGURATION, "tensor_parallel_mode",
                   "tensor_parallel_mode is %.20s, but with pipeline_parallel_size %d each layer "
                   "stands in one rank; use exact",
                   config->tensor_parallel_mode, stages);
}

int config_check(const config_t *config, inferd_error_t *error) {
  if ((config->block_size & (config->block_size - 1)) != 0) {
    return error_set(error, ERR_CONFIGURATION, "block_size",
                     "block_size is %lld; it must be a power of two from 1 to 256, or 0",
                     (long long)config->block_size);
  }
  if (config->max_num_batched_tokens != 0 &&
      config->max_num_batched_tokens < config->max_num_seqs) {
    return error_set(error, ERR_CONFIGURATION, "max_num_batched_tokens",
                     "max_num_batched_tokens is %lld; it must be at least max_num_seqs, %lld",
                     (long long)config->max_num_batched_tokens, (long long)config->max_num_seqs);
  }
  if (!device_is_valid(config->device)) {
    return error_set(error, ERR_CONFIGURATION, "device",
                     "device is '%.60s'; it must be auto, cpu or cuda[:N]", config->device);
  }
  if (config_given(config, OPTION_max_audio_bytes) &&
      config->max_audio_bytes > config->max_request_memory) {
    return error_set(error, ERR_CONFIGURATION, "max_audio_bytes",
                     "max_audio_bytes is %lld; it must be at most max_request_memory, %lld",
                     (long long)config->max_audio_bytes, (long long)config->max_request_memory);
  }
  if (config->max_body_bytes > config->max_request_memory) {
    return error_set(error, ERR_CONFIGURATION, "max_body_bytes",
                     "max_body_bytes is %lld; it must be at most max_request_memory, %lld",
                     (long long)config->max_body_bytes, (long long)config->max_request_memory);
  }
  size_t root = strlen(config->root_path);
  if (root > 0 && (config->root_path[0] != '/' || config->root_path[root - 1] == '/')) {
    return error_set(error, ERR_CONFIGURATION, "root_path",
                     "root_path is '%.100s'; it must begin with / and not end with /",
                     config->root_path);
  }
  int code = check_speculation(config, error);
  if (code == 0) code = check_ranks(config, error);
  if (code == 0) code = check_task(config, error);
  if (code == 0) code = check_tls(config, error);
  if (code == 0) code = check_disabled(config, error);
  if (code == 0) code = check_media_hosts(config, error);
  if (code == 0) code = check_admin(config, error);
  if (code == 0) code = check_kv_events(config, error);
  return code == 0 ? check_names(config, error) : code;
}
