/* model_names.c: the names of the one model, and whether a request may use a name.
 *
 * The main thread sets the names, at start and in a reload. Any thread may look them up.
 */
#include "server/completion/live.h"
#include "server/completion/lora_table.h"

#include "engine/base/util.h"
#include "engine/model/source/locate.h"

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

/* The name of the Hugging Face hub where the model is in its cache, else that of the directory. */
static char *default_name(const char *model) {
  located_t *located = calloc(1, sizeof *located);
  bool named =
      located != NULL && model_locate(model, located, NULL) == 0 && located->name[0] != '\0';
  char *name = named ? strdup(located->name) : base_name(model);
  free(located);
  return name;
}

int model_names_set(completions_t *live, const config_list_t *names, const char *model) {
  model_names_t *fresh = calloc(1, sizeof *fresh);
  if (fresh == NULL) return ERR_NO_MEMORY;
  bool ok = true;
  fresh->count = names->count == 0 ? 1 : MIN(names->count, MODEL_NAMES_MAX);
  for (int i = 0; i < fresh->count; i++) {
    fresh->name[i] = names->count == 0 ? default_name(model) : strdup(names->items[i]);
    ok = ok && fresh->name[i] != NULL;
  }
  if (ok) {
    fresh->older = live->names;
    live->names = fresh;
    return 0;
  }
  for (int i = 0; i < fresh->count; i++) free(fresh->name[i]);
  free(fresh);
  return ERR_NO_MEMORY;
}

void model_names_free(completions_t *live) {
  for (model_names_t *names = live->names; names != NULL; names = live->names) {
    live->names = names->older;
    for (int i = 0; i < names->count; i++) free(names->name[i]);
    free(names);
  }
}

const model_names_t *model_names(const completions_t *live) {
  return live->names;
}

const char *model_name(const completions_t *live) {
  return model_names(live)->name[0];
}

bool model_name_known(const completions_t *live, const char *name, size_t length) {
  const model_names_t *names = model_names(live);
  for (int i = 0; i < names->count; i++) {
    if (strlen(names->name[i]) == length && memcmp(names->name[i], name, length) == 0) return true;
  }
  return false;
}

int model_fail_unknown(const completions_t *live, const char *name, size_t length,
                       inferd_error_t *error) {
  char shown[280], served[140];
  const char *own = model_name(live);
  return error_set(
      error, ERR_MODEL_NOT_FOUND, "model",
      "The model `%s` does not exist. This server has `%s`; GET /v1/models lists every "
      "name.",
      error_quote(shown, sizeof shown, name, length),
      error_quote(served, sizeof served, own, strlen(own)));
}

int model_check(const completions_t *live, bool any, const json_t *name, inferd_error_t *error) {
  if (any || name == NULL || name->length == 0) return 0;
  if (model_name_known(live, name->text, name->length)) return 0;
  if (lora_known(live, name->text, name->length)) return 0;
  return model_fail_unknown(live, name->text, name->length, error);
}
