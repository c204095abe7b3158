/* publish.c: --kv-events-endpoint: the engine tells what the prefix cache holds, and a publisher
 * passes it on. Loop thread, at start and at the end. */
#include "server/completion/lora_table.h"
#include "server/kv_events/kv_publisher.h"
#include "server/observe/log.h"
#include "server/server.h"

#include <string.h>

/* Events of the engine that wait for the publisher: those of a prompt of 131,072 tokens and more.
 */
enum { EVENTS_MAX = 16384, KEEP_BYTES = 64 * 1024 * 1024 };

/* The publisher's thread. */
static bool adapter_name(void *context, int32_t slot, char out[KV_ADAPTER_NAME_MAX]) {
  const server_t *server = context;
  return lora_name_at(server->live, slot, out, KV_ADAPTER_NAME_MAX);
}

int publish_start(server_t *server, engine_options_t *engine, inferd_error_t *error) {
  const config_t *config = server->config;
  kv_publisher_options_t options = {
      .endpoint = config->kv_events_endpoint,
      .replay = config->kv_events_replay,
      .topic = config->kv_events_topic,
      .stream = {.as_map = strcmp(config->kv_events_format, "map") == 0,
                 .keep = (int32_t)config->kv_events_keep,
                 .keep_bytes = KEEP_BYTES,
                 .adapter_name = adapter_name,
                 .context = server}};
  if (options.endpoint[0] == '\0') return 0;
  int code = kv_events_new(EVENTS_MAX, &server->kv_events, error);
  if (code == 0) code = kv_publisher_new(&options, server->kv_events, &server->publisher, error);
  if (code != 0) return code;
  engine->kv_events = server->kv_events;
  log_line(LOG_INFO, "start", "events of the prefix cache: %s %s",
           kv_endpoint_binds(options.endpoint) ? "bound to" : "sent to", options.endpoint);
  return 0;
}

void publish_stop(server_t *server) {
  kv_publisher_free(server->publisher);
  kv_events_free(server->kv_events);
}
