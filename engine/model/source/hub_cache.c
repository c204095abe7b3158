/* hub_cache.c: where the Hugging Face cache is, and how it names a repository.
 *
 * Main thread, because it reads the environment. Opens no file; the layout is that of
 * huggingface_hub ("Manage your cache").
 */
#include "engine/model/source/hub_cache.h"

#include "engine/base/check.h"

#include <ctype.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool hub_is_id(const char *text) {
  size_t length = strlen(text);
  int slashes = 0;
  if (length == 0 || length > HUB_ID_MAX) return false;
  if (strstr(text, "--") != NULL || strstr(text, "..") != NULL) return false;
  for (size_t i = 0; i < length; i++) {
    bool first = i == 0 || text[i - 1] == '/', last = text[i + 1] == '/' || text[i + 1] == '\0';
    if (text[i] == '/' && (first || last || ++slashes > 1)) return false;
    if (text[i] != '/' && !isalnum((unsigned char)text[i]) && strchr("._-", text[i]) == NULL)
      return false;
    if ((first || last) && (text[i] == '.' || text[i] == '-')) return false;
  }
  return true;
}

void hub_folder(const char *id, char out[HUB_FOLDER_MAX]) {
  const char *slash = strchr(id, '/');
  int owner = slash != NULL ? (int)(slash - id) : 0;
  int length = snprintf(out, HUB_FOLDER_MAX, "models--%.*s%s%s", owner, id,
                        slash != NULL ? "--" : "", slash != NULL ? slash + 1 : id);
  CHECK_LT(length, HUB_FOLDER_MAX); /* hub_is_id: at most HUB_ID_MAX bytes */
}

static const char *home_directory(void) {
  const char *home = getenv("HOME");
  if (home != NULL && home[0] != '\0') return home;
  const struct passwd *entry = getpwuid(geteuid());
  return entry != NULL ? entry->pw_dir : "/";
}

/* Adds BASE/TAIL, unless it is there or too long; "~" at the beginning is the home directory. */
static void add_cache(hub_caches_t *caches, const char *base, const char *tail) {
  if (base == NULL || base[0] == '\0') return;
  bool home = base[0] == '~' && (base[1] == '/' || base[1] == '\0');
  char *path = caches->paths[caches->count];
  int n = snprintf(path, HUB_PATH_MAX, "%s%s%s", home ? home_directory() : "",
                   base + (home ? 1 : 0), tail);
  if (n <= 0 || n >= HUB_PATH_MAX) return;
  for (int i = 0; i < caches->count; i++) {
    if (strcmp(caches->paths[i], path) == 0) return;
  }
  caches->count++;
}

void hub_caches(hub_caches_t *out) {
  out->count = 0;
  add_cache(out, getenv("HF_HUB_CACHE"), "");
  add_cache(out, getenv("HUGGINGFACE_HUB_CACHE"), "");
  add_cache(out, getenv("HF_HOME"), "/hub");
  add_cache(out, getenv("CACHE_DIRECTORY"), "/hub");
  add_cache(out, getenv("XDG_CACHE_HOME"), "/huggingface/hub");
  add_cache(out, "~", "/.cache/huggingface/hub");
}

bool hub_id_of_path(const char *path, char out[HUB_ID_MAX + 1]) {
  static const char mark[] = "/models--";
  char *real = realpath(path, NULL), *at = real != NULL ? strstr(real, mark) : NULL;
  bool found = false;
  if (at != NULL) {
    at += sizeof mark - 1;
    at[strcspn(at, "/")] = '\0';
    char *dashes = strstr(at, "--");
    int owner = dashes != NULL ? (int)(dashes - at) : 0;
    int n = snprintf(out, HUB_ID_MAX + 1, "%.*s%s%s", owner, at, dashes != NULL ? "/" : "",
                     dashes != NULL ? dashes + 2 : at);
    found = n > 0 && n <= HUB_ID_MAX;
  }
  free(real);
  return found;
}

void hub_advise(const char *path, inferd_error_t *error) {
  char id[HUB_ID_MAX + 1];
  if (error == NULL || !hub_id_of_path(path, id)) return;
  error_set(error, error->code, error->param, "%s; finish its download by: inferd pull %s",
            error->message, id);
}
