/* directory.c: the directory of --models-dir, read on a thread of its own.
 *
 * directory_read: any thread. The looks: loop thread, but for run_look.
 */
#include "server/models/directory.h"

#include "engine/base/hash.h"
#include "engine/base/util.h"
#include "engine/model/source/listing.h"

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
static void append(directory_t *out, const char *path, config_t *sections) {
  found_t *list = reallocarray(out->list, (size_t)out->count + 1, sizeof *list);
  char *copy = strdup(path);
  if (list != NULL) out->list = list;
  if (list != NULL && copy != NULL) {
    list[out->count++] = (found_t){copy, sections};
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
    append(out, path, with);
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
    append(out, path, NULL);
}

static int is_shown(const struct dirent *entry) {
  return entry->d_name[0] != '.';
}

static int by_name(const struct dirent **left, const struct dirent **right) {
  return strcmp((*left)->d_name, (*right)->d_name);
}

void directory_read(const char *path, directory_t *out) {
  struct dirent **entries = NULL;
  *out = (directory_t){.hash = FNV_64_BASIS};
  int count = scandir(path, &entries, is_shown, by_name);
  inferd_error_t error = {0};
  if (count < 0) {
    error_system(&error, path, errno);
    fail(out, &error);
  }
  for (int i = 0; i < count; i++) {
    read_entry(path, entries[i]->d_name, out);
    free(entries[i]);
  }
  free(entries);
  if (out->code != 0) mix(out, out->error.message);
}

void directory_free(directory_t *directory) {
  for (int i = 0; i < directory->count; i++) {
    free(directory->list[i].path);
    if (directory->list[i].sections != NULL) config_free(directory->list[i].sections);
    free(directory->list[i].sections);
  }
  free(directory->list);
  *directory = (directory_t){0};
}

/* ---- a look ---- */

struct disk_look {
  uv_async_t *bell;
  pthread_mutex_t lock; /* of the next two */
  bool left, read;      /* left: nobody wants it any more; read: `found` is there */
  directory_t found;
  char path[];
};

static void look_free(disk_look_t *look) {
  directory_free(&look->found);
  pthread_mutex_destroy(&look->lock);
  free(look);
}

static void *run_look(void *argument) {
  disk_look_t *look = argument;
  directory_read(look->path, &look->found);
  pthread_mutex_lock(&look->lock);
  bool left = look->left;
  look->read = true;
  if (!left) uv_async_send(look->bell);
  pthread_mutex_unlock(&look->lock);
  if (left) look_free(look);
  return NULL;
}

disk_look_t *look_start(const char *path, uv_async_t *bell) {
  size_t bytes = strlen(path) + 1;
  disk_look_t *look = calloc(1, sizeof *look + bytes);
  if (look == NULL) return NULL;
  pthread_t thread;
  look->bell = bell;
  memcpy(look->path, path, bytes);
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
