/* directory.c: the directory of --models-dir and the caches of Hugging Face, read on a thread of
 * its own.
 *
 * directory_read: any thread. The looks: loop thread, but for run_look.
 */
#include "server/models/directory.h"

#include "engine/base/hash.h"
#include "engine/base/util.h"
#include "engine/model/source/hub_cache.h"
#include "engine/model/source/listing.h"
#include "engine/model/source/locate.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { PATH_BYTES_MAX = 4096 };

static bool has_model(const char *path) {
  char file[PATH_BYTES_MAX + 16];
  struct stat info;
  snprintf(file, sizeof file, "%s/config.json", path);
  if (stat(file, &info) == 0) return true;
  DIR *directory = opendir(path);
  if (directory == NULL) return false;
  bool found = false;
  for (struct dirent *entry; !found && (entry = readdir(directory)) != NULL;)
    found = entry->d_name[0] != '.' && gguf_is_model(entry->d_name);
  closedir(directory);
  return found;
}

static bool ends_in(const char *text, const char *end) {
  size_t length = strlen(text), size = strlen(end);
  return length > size && strcmp(text + length - size, end) == 0;
}

static void fail(directory_t *out, const inferd_error_t *error) {
  if (out->code != 0) return;
  out->code = error->code;
  out->error = *error;
}

static void fail_memory(directory_t *out) {
  inferd_error_t error = {0};
  error_set(&error, ERR_NO_MEMORY, NULL, "no memory for the table of models");
  fail(out, &error);
}

static void mix(directory_t *out, const char *text) {
  out->hash = fnv_64(out->hash, text, strlen(text) + 1);
}

/* Takes `sections`, which may be NULL, over. */
static void append(directory_t *out, const char *path, config_t *sections, bool cached) {
  found_t *list = reallocarray(out->list, (size_t)out->count + 1, sizeof *list);
  char *copy = strdup(path);
  if (list != NULL) out->list = list;
  if (list != NULL && copy != NULL) {
    list[out->count++] = (found_t){copy, sections, cached};
    mix(out, path);
    return;
  }
  free(copy);
  if (sections != NULL) config_free(sections);
  free(sections);
  fail_memory(out);
}

static void read_sections(const char *path, directory_t *out) {
  inferd_error_t error = {0};
  config_t *with = calloc(1, sizeof *with);
  if (with == NULL) {
    fail_memory(out);
  } else if (config_load_sections(with, path, &error) != 0) {
    fail(out, &error);
    config_free(with);
    free(with);
  } else {
    for (int i = 0; i < with->num_sections; i++) {
      mix(out, with->sections[i].name);
      for (int l = 0; l < with->sections[i].lines.count; l++)
        mix(out, with->sections[i].lines.items[l]);
    }
    append(out, path, with, false);
  }
}

static void read_entry(const char *directory, const char *name, directory_t *out) {
  char path[PATH_BYTES_MAX];
  struct stat info;
  int n = snprintf(path, sizeof path, "%s/%s", directory, name);
  if (n >= (int)sizeof path || stat(path, &info) != 0) return;
  bool is_file = S_ISREG(info.st_mode);
  if (is_file && ends_in(name, ".conf"))
    read_sections(path, out);
  else if ((is_file && gguf_is_model(name)) || (S_ISDIR(info.st_mode) && has_model(path)))
    append(out, path, NULL, false);
}

static int is_shown(const struct dirent *entry) {
  return entry->d_name[0] != '.';
}

static int by_name(const struct dirent **left, const struct dirent **right) {
  return strcmp((*left)->d_name, (*right)->d_name);
}

/* ---- caches ---- */

static void note(directory_t *out, const char *name, const inferd_error_t *why) {
  char **notes = reallocarray(out->notes, (size_t)out->num_notes + 2, sizeof *notes), *text = NULL;
  if (notes != NULL) out->notes = notes;
  if (notes == NULL || asprintf(&text, "%s: %s", name, why->message) < 0) {
    fail_memory(out);
    return;
  }
  notes[out->num_notes++] = text;
  notes[out->num_notes] = NULL;
  mix(out, text);
}

static bool is_found(const directory_t *out, const char *name) {
  for (int i = 0; i < out->count; i++) {
    if (out->list[i].cached && strcmp(out->list[i].path, name) == 0) return true;
  }
  return false;
}

/* The quantisation of a GGUF file: the last word of its name before the number of a part. */
static bool quant_of(const char *file, char out[64]) {
  int length = gguf_stem_length(file), begin = length;
  while (begin > 0 && strchr("-./", file[begin - 1]) == NULL) begin--;
  return begin > 0 && snprintf(out, 64, "%.*s", length - begin, file + begin) < 64;
}

/* A repository of several GGUF files: each that its quantisation names alone. */
static int read_quants(const char *folder, const char *id, directory_t *out) {
  char parent[PATH_BYTES_MAX + 16], what[PATH_BYTES_MAX + 128], quant[64];
  located_t *located = malloc(sizeof *located);
  listing_t commits = {0};
  int found = 0;
  snprintf(parent, sizeof parent, "%s/snapshots", folder);
  if (located == NULL || listing_read(parent, &commits, NULL) != 0) commits.count = 0;
  for (int i = 0; i < commits.count; i++) {
    const char *name = strrchr(commits.names[i], '/');
    if (name == NULL || !gguf_is_model(commits.names[i]) || !quant_of(commits.names[i], quant))
      continue;
    snprintf(what, sizeof what, "%s:%s", folder, quant);
    if (model_locate(what, located, NULL) != 0) continue;
    snprintf(what, sizeof what, "%s:%s", id, quant);
    found++;
    if (!is_found(out, what)) append(out, what, NULL, true);
  }
  listing_free(&commits);
  free(located);
  return found;
}

static void read_cached(const char *cache, const char *name, directory_t *out) {
  char folder[PATH_BYTES_MAX], id[HUB_ID_MAX + 1];
  inferd_error_t error = {0};
  int n = snprintf(folder, sizeof folder, "%s/%s", cache, name);
  if (strncmp(name, "models--", 8) != 0 || n >= (int)sizeof folder) return;
  if (!hub_id_of_path(folder, id) || is_found(out, id)) return;
  located_t *located = malloc(sizeof *located); /* too large for the stack */
  if (located == NULL)
    fail_memory(out);
  else if (model_locate(folder, located, &error) == 0)
    append(out, id, NULL, true);
  else if (read_quants(folder, id, out) == 0)
    note(out, id, &error);
  free(located);
}

/* ---- the whole ---- */

static void read_folder(const char *path, void (*read)(const char *, const char *, directory_t *),
                        bool must_be, directory_t *out) {
  struct dirent **entries = NULL;
  int count = scandir(path, &entries, is_shown, by_name);
  inferd_error_t error = {0};
  if (count < 0 && (must_be || errno != ENOENT)) {
    error_system(&error, path, errno);
    fail(out, &error);
  }
  for (int i = 0; i < count; i++) {
    read(path, entries[i]->d_name, out);
    free(entries[i]);
  }
  free(entries);
}

void directory_read(const places_t *places, directory_t *out) {
  *out = (directory_t){.hash = FNV_64_BASIS};
  if (places->dir != NULL) read_folder(places->dir, read_entry, true, out);
  for (int i = 0; places->caches != NULL && places->caches[i] != NULL; i++)
    read_folder(places->caches[i], read_cached, false, out);
  if (out->code != 0) mix(out, out->error.message);
}

bool places_of(const config_t *config, places_t *out) {
  *out = (places_t){0};
  hub_caches_t *caches = calloc(1, sizeof *caches);
  bool good = caches != NULL;
  if (good && config->models_from_cache) hub_caches(caches);
  if (good) out->caches = calloc((size_t)caches->count + 1, sizeof *out->caches);
  good = good && out->caches != NULL;
  for (int i = 0; good && i < caches->count; i++)
    good = (out->caches[i] = strdup(caches->paths[i])) != NULL;
  if (good && config->models_dir[0] != '\0') good = (out->dir = strdup(config->models_dir)) != NULL;
  free(caches);
  if (!good) places_free(out);
  return good;
}

void places_free(places_t *places) {
  for (int i = 0; places->caches != NULL && places->caches[i] != NULL; i++) free(places->caches[i]);
  free(places->caches);
  free(places->dir);
  *places = (places_t){0};
}

void directory_free(directory_t *directory) {
  for (int i = 0; i < directory->count; i++) {
    free(directory->list[i].path);
    if (directory->list[i].sections != NULL) config_free(directory->list[i].sections);
    free(directory->list[i].sections);
  }
  for (int i = 0; i < directory->num_notes; i++) free(directory->notes[i]);
  free(directory->notes);
  free(directory->list);
  *directory = (directory_t){0};
}

/* ---- a look ---- */

struct disk_look {
  uv_async_t *bell;
  pthread_mutex_t lock; /* of the next two */
  bool left, read;      /* left: nobody wants it any more; read: `found` is there */
  directory_t found;
  places_t places;
};

static void look_free(disk_look_t *look) {
  directory_free(&look->found);
  places_free(&look->places);
  pthread_mutex_destroy(&look->lock);
  free(look);
}

static void *run_look(void *argument) {
  disk_look_t *look = argument;
  directory_read(&look->places, &look->found);
  pthread_mutex_lock(&look->lock);
  bool left = look->left;
  look->read = true;
  if (!left) uv_async_send(look->bell);
  pthread_mutex_unlock(&look->lock);
  if (left) look_free(look);
  return NULL;
}

disk_look_t *look_start(const config_t *config, uv_async_t *bell) {
  if (config->models_dir[0] == '\0' && !config->models_from_cache) return NULL;
  disk_look_t *look = calloc(1, sizeof *look);
  if (look == NULL) return NULL;
  pthread_t thread;
  look->bell = bell;
  if (!places_of(config, &look->places)) {
    free(look);
    return NULL;
  }
  pthread_mutex_init(&look->lock, NULL);
  if (pthread_create(&thread, NULL, run_look, look) != 0) {
    look_free(look);
    return NULL;
  }
  pthread_detach(thread);
  return look;
}

bool look_take(disk_look_t *look, directory_t *out) {
  pthread_mutex_lock(&look->lock);
  bool read = look->read;
  pthread_mutex_unlock(&look->lock);
  if (!read) return false;
  directory_free(out);
  *out = look->found;
  look->found = (directory_t){0};
  look_free(look);
  return true;
}

void look_leave(disk_look_t *look) {
  pthread_mutex_lock(&look->lock);
  bool read = look->read;
  look->left = true;
  pthread_mutex_unlock(&look->lock);
  if (read) look_free(look);
}
