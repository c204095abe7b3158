/* names.c: the model that a name of Ollama's means.
 *
 * Any thread, with several models the loop thread of their parent; keeps no state. Ollama's names
 * have a tag, and `latest` is the one that nobody writes.
 */
#include "server/ollama/ollama.h"

#include "server/completion/lora_table.h"

#include <stdio.h>
#include <string.h>

static const char latest[] = ":latest";
enum { LATEST_BYTES = sizeof latest - 1 };

static bool is_served(const server_t *server, const char *name) {
  const completions_t *live = server->live;
  model_line_t line;
  if (server->models != NULL) return models_named(server, name, &line);
  return model_name_known(live, name, strlen(name)) || lora_known(live, name, strlen(name));
}

/* A name that is served, for messages; "" = there is none. */
static const char *any_name(const server_t *server) {
  model_line_t line;
  if (server->models == NULL) return model_name(server->live);
  return models_line(server, 0, &line) ? line.name : "";
}

/* A tag stands behind the last slash. */
static bool has_tag(const char *name) {
  const char *slash = strrchr(name, '/');
  return strchr(slash != NULL ? slash : name, ':') != NULL;
}

const char *ollama_listed_name(const char *name, char out[OLLAMA_NAME_MAX]) {
  snprintf(out, OLLAMA_NAME_MAX, "%.300s%s", name, has_tag(name) ? "" : latest);
  return out;
}

int ollama_find_model(const server_t *server, const json_t *name, char out[OLLAMA_NAME_MAX],
                      inferd_error_t *error) {
  char shown[140], own[OLLAMA_NAME_MAX], served[140];
  if (name == NULL) {
    return error_set(error, ERR_MISSING_PARAMETER, "model", "model is required");
  }
  size_t length = name->length;
  snprintf(out, OLLAMA_NAME_MAX, "%.*s", (int)length, name->text);
  if ((server->models == NULL && server->config->any_model) || is_served(server, out)) return 0;
  if (length > LATEST_BYTES && memcmp(out + length - LATEST_BYTES, latest, LATEST_BYTES) == 0) {
    out[length - LATEST_BYTES] = '\0';
    if (is_served(server, out)) return 0;
  } else if (!has_tag(out)) {
    memcpy(out + length, latest, sizeof latest);
    if (is_served(server, out)) return 0;
  }
  ollama_listed_name(any_name(server), own);
  return error_set(error, ERR_MODEL_NOT_FOUND, "model",
                   "model '%s' not found; this server has '%s' (GET /api/tags lists every name)",
                   error_quote(shown, sizeof shown, name->text, length),
                   error_quote(served, sizeof served, own, strlen(own)));
}

int ollama_print_model(completion_t *completion, reader_t *reader, const json_t *name,
                       buffer_t *chat) {
  ollama_state_t *state = completion->dialect_state;
  char served[OLLAMA_NAME_MAX];
  int code = ollama_find_model(completion->server, name, served, reader->error);
  if (code != 0) return code;
  state->model_length = name->length;
  state->model = arena_copy(&completion->arena, name->text, name->length);
  if (state->model == NULL) return field_no_memory(reader);
  buffer_text(chat, "\"model\":");
  buffer_quote(chat, served, strlen(served));
  return 0;
}
