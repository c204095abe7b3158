/* model_names.c: the names of the one model, and whether a request may use a name.
 *
 * The names are set at start by the main thread and constant afterwards, so any thread may look
 * them up.
 */
#include "server/completion/live.h"
#include "server/completion/lora_table.h"

#include <stdlib.h>
#include <string.h>

/* Returns the last part of a path, without slashes at its end; for "." and ".." the name of the
 * directory that they mean. */
static char *base_name(const char *path) {
  size_t end = strlen(path);
  while (end > 1 && path[end - 1] == '/') end--;
  size_t start = end;
  while (start > 0 && path[start - 1] != '/') start--;
  if (start == end) return strdup("model");
  char *name = strndup(path + start, end - start);
  if (name == NULL || (strcmp(name, ".") != 0 && strcmp(name, "..") != 0)) return name;
  char *real = realpath(path, NULL); /* has neither "." nor a slash at its end */
  free(name);
  name = real != NULL ? base_name(real) : strdup("model");
  free(real);
  return name;
}

int model_names_set(completions_t *live, const config_t *config) {
  for (int i = 0; i < config->served_model_name.count && i < MODEL_NAMES_MAX; i++) {
    live->names[live->num_names++] = config->served_model_name.items[i];
  }
  if (live->num_names > 0) return 0;
  live->default_name = base_name(config->model);
  if (live->default_name == NULL) return ERR_NO_MEMORY;
  live->names[live->num_names++] = live->default_name;
  return 0;
}

bool model_name_known(const completions_t *live, const char *name, size_t length) {
  for (int i = 0; i < live->num_names; i++) {
    if (strlen(live->names[i]) == length && memcmp(live->names[i], name, length) == 0) return true;
  }
  return false;
}

int model_fail_unknown(inferd_error_t *error, const char *name, size_t length) {
  char shown[280];
  return error_set(error, ERR_MODEL_NOT_FOUND, "model", "The model `%s` does not exist.",
                   error_quote(shown, sizeof shown, name, length));
}

int model_check(const completions_t *live, bool any, const json_t *name, inferd_error_t *error) {
  if (any || name == NULL || name->length == 0) return 0;
  if (model_name_known(live, name->text, name->length)) return 0;
  if (lora_known(live, name->text, name->length)) return 0;
  return model_fail_unknown(error, name->text, name->length);
}
