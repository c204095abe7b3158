/* keep.c: --store is opened, and the log says when it cannot be written. Loop thread, at start. */
#include "server/observe/log.h"
#include "server/server.h"
#include "server/store/store.h"

#include <string.h>

/* Thread of the store. */
static void store_changed(const char *problem) {
  if (problem != NULL)
    log_line(LOG_ERROR, "store", "answers cannot be kept: %s", problem);
  else
    log_line(LOG_INFO, "store", "answers are kept again");
}

int server_open_store(server_t *server, inferd_error_t *error) {
  const config_t *config = server->config;
  const store_options_t options = {.path = config->store,
                                   .ttl_s = (int64_t)config->store_ttl,
                                   .bytes_max = config->store_size,
                                   .is_synced = strcmp(config->store_sync, "full") == 0,
                                   .changed = store_changed};
  if (config->store[0] == '\0') return 0;
  int code = store_open(&options, &server->store, error);
  if (code == 0) log_line(LOG_INFO, "start", "answers are kept in %.300s", config->store);
  return code;
}
