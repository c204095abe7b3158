/* access.c: what the log says at start of routes that are open. Loop thread. */
#include "engine/base/util.h"
#include "server/http/auth.h"
#include "server/observe/log.h"
#include "server/server.h"

#include <stdlib.h>
#include <string.h>

static bool has_unix_socket(const server_t *server) {
  bool found = false;
  const char *address;
  for (int i = 0; (address = http_address(server->http, i)) != NULL; i++)
    found |= strncmp(address, "unix:", 5) == 0;
  return found;
}

/* The keys of other servers protect nothing here. */
static void warn_of_foreign_keys(void) {
  static const char *const names[] = {"VLLM_API_KEY", "LLAMA_API_KEY"};
  for (size_t i = 0; i < ARRAY_LEN(names); i++) {
    const char *value = getenv(names[i]);
    if (value == NULL || value[0] == '\0') continue;
    log_line(LOG_WARN, "start",
             "%s in the environment is no key of this server; set INFERD_API_KEY", names[i]);
  }
}

void server_warn_of_access(const server_t *server) {
  const config_t *config = server->config;
  bool open = http_is_open(server->http), keys = auth_key_count(server->auth) > 0;
  bool any_origin = false;
  for (int i = 0; i < config->cors_origin.count; i++) {
    any_origin |= strcmp(config->cors_origin.items[i], "*") == 0;
  }
  if (!keys) warn_of_foreign_keys();
  if (open && !keys) {
    log_line(LOG_WARN, "start",
             "other machines can send requests without a key (--allow-unauthenticated)");
  }
  if (open && keys && strcmp(config->metrics_auth, "off") == 0) {
    log_line(LOG_WARN, "start",
             "other machines can read /metrics without a key (--metrics-auth off)");
  }
  if (any_origin && !keys) {
    log_line(LOG_WARN, "start",
             "every web page that a browser here shows can send requests (--cors-origin *, no "
             "API key)");
  }
  if (!config->allow_runtime_lora || auth_admin_count(server->auth) > 0) return;
  log_line(LOG_WARN, "start",
           has_unix_socket(server)
               ? "every user who can open the UNIX socket can load adapters from any path of this "
                 "host (--allow-runtime-lora without --admin-key)"
               : "no client can load adapters: --allow-runtime-lora needs --admin-key, or a UNIX "
                 "socket (--uds)");
}
