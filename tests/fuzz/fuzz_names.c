/* fuzz_names.c: what names a model, a trace, or the parts of an encoder.
 *
 * names: what a user types for a model, a 0xFF byte, the names of files in its folder, a line each;
 * those that a file can have are also made, empty, in the folder that the cache has for the model.
 * trace: a header traceparent. modules: modules.json, 1_Pooling/config.json, 2_Dense/config.json,
 * sentence_bert_config.json and config.json, a 0xFF byte between two of them; what begins with GGUF
 * is one such file.
 */
#include "engine/base/util.h"
#include "engine/model/config/embedding.h"
#include "engine/model/source/hub_cache.h"
#include "engine/model/source/listing.h"
#include "engine/model/source/locate.h"
#include "server/trace/trace.h"
#include "tests/fuzz/targets.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NAMES_MAX = 64, FILES_MAX = 12, PLACE_MAX = 512 };

/* A text of its own memory, so that a read behind its end is seen. */
static char *text_of(const uint8_t *data, size_t length) {
  char *text = malloc(length + 1);
  if (text == NULL) abort();
  memcpy(text, data, length);
  text[length] = '\0';
  return text;
}

static void check_id(const char *what) {
  char folder[HUB_FOLDER_MAX], id[HUB_ID_MAX + 1];
  inferd_error_t error = {0};
  (void)hub_id_of_path(what, id);
  hub_advise(what, &error);
  if (!hub_is_id(what)) return;
  if (strlen(what) > HUB_ID_MAX || what[0] == '/' || strstr(what, "..") != NULL) abort();
  hub_folder(what, folder);
  if (strncmp(folder, "models--", 8) != 0 || strchr(folder, '/') != NULL) abort();
}

/* The folder is where the cache has the model, and what it has is chosen by names alone. */
static void check_place(const char *what) {
  located_t located;
  inferd_error_t error = {0};
  if (!model_is_hub_name(what)) return;
  int code = model_locate(what, &located, &error);
  if ((code == 0) != (error.message[0] == '\0')) abort();
  if (code == 0 && strncmp(located.path, fuzz_directory(), strlen(fuzz_directory())) != 0) abort();
}

static void check_names(listing_t *listing, const char *what) {
  const char *colon = strrchr(what, ':'), *quant = colon != NULL ? colon + 1 : "";
  char text[80];
  int count = 0;
  const char *chosen = gguf_choose(listing, quant, &count);
  if ((chosen != NULL) && count < 1) abort();
  if (strlen(listing_text(listing, gguf_is_model, text, sizeof text)) >= sizeof text) abort();
  for (int i = 0; i < listing->count; i++) {
    const char *name = listing->names[i];
    bool plain;
    (void)gguf_has_quant(name, quant, &plain);
    if (!gguf_is_model(name)) continue;
    int stem = gguf_stem_length(name);
    if (stem < 0 || (size_t)stem > strlen(name) || !gguf_is_part_of(name, name)) abort();
    (void)gguf_is_part_of(listing->names[0], name);
  }
  (void)listing_has_suffix(listing, quant);
  (void)listing_has(listing, quant);
}

/* FOLDER or FOLDER/FILE in the directory of this process; "" when it is none, or too long. */
static bool place(char out[PLACE_MAX], const char *folder, const char *name) {
  const char *slash = strchr(name, '/');
  bool plain = name[0] != '\0' && name[0] != '/' && strstr(name, "..") == NULL &&
               strcmp(name, ".") != 0 && (slash == NULL || strchr(slash + 1, '/') == NULL);
  int n = snprintf(out, PLACE_MAX, "%s/%s/%s", fuzz_directory(), folder, name);
  return plain && n > 0 && n < PLACE_MAX;
}

/* Makes an empty file, and its folder. Returns false when there is no such name. */
static bool make_file(const char *folder, const char *name) {
  char path[PLACE_MAX];
  if (!place(path, folder, name)) return false;
  char *slash = strchr(name, '/') != NULL ? strrchr(path, '/') : NULL;
  if (slash != NULL) {
    *slash = '\0';
    (void)mkdir(path, 0700);
    *slash = '/';
  }
  int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return false;
  close(fd);
  return true;
}

static void remove_file(const char *folder, const char *name) {
  char path[PLACE_MAX];
  if (!place(path, folder, name)) return;
  (void)unlink(path);
  if (strchr(name, '/') == NULL) return;
  *strrchr(path, '/') = '\0';
  (void)rmdir(path);
}

/* The snapshot in the cache, or "" when nobody can have such a model. */
static void snapshot_of(const char *what, char out[PLACE_MAX]) {
  char id[HUB_ID_MAX + 1], folder[HUB_FOLDER_MAX];
  size_t length = strcspn(what, ":");
  out[0] = '\0';
  if (length >= sizeof id) return;
  memcpy(id, what, length);
  id[length] = '\0';
  if (!hub_is_id(id)) return;
  hub_folder(id, folder);
  snprintf(out, PLACE_MAX, "%s/snapshots/0123", folder);
}

/* With the files in the cache: what is read is what was made, and the folder has the model's id. */
static void check_folder(const char *what, const char *snapshot, listing_t *names) {
  char path[PLACE_MAX], id[HUB_ID_MAX + 1];
  bool made[FILES_MAX] = {0};
  listing_t found;
  inferd_error_t error = {0};
  int num_files = names->count < FILES_MAX ? names->count : FILES_MAX;
  if (!place(path, snapshot, "x")) return;
  for (char *at = path + strlen(fuzz_directory()); *at != '\0'; at++) {
    if (*at != '/') continue;
    *at = '\0';
    (void)mkdir(path, 0700);
    *at = '/';
  }
  *strrchr(path, '/') = '\0';
  for (int i = 0; i < num_files; i++) made[i] = make_file(snapshot, names->names[i]);
  if (listing_read(path, &found, &error) != 0) abort();
  for (int i = 0; i < num_files; i++) {
    const char *name = names->names[i], *slash = strchr(name, '/');
    bool hidden = name[0] == '.' || (slash != NULL && slash[1] == '.');
    if (made[i] && listing_has(&found, name) == hidden) abort();
  }
  if (found.count > 0) check_names(&found, what);
  listing_free(&found);
  if (!hub_id_of_path(path, id) || strncmp(id, what, strlen(id)) != 0) abort();
  hub_advise(path, &error);
  check_place(what);
  for (int i = 0; i < num_files; i++) remove_file(snapshot, names->names[i]);
  while (strlen(path) > strlen(fuzz_directory())) {
    (void)rmdir(path);
    *strrchr(path, '/') = '\0';
  }
}

void fuzz_names(const uint8_t *data, size_t size) {
  char *names[NAMES_MAX], snapshot[PLACE_MAX];
  listing_t listing = {.names = names};
  size_t length;
  const uint8_t *bytes = fuzz_part(&data, &size, 0xFF, &length);
  char *what = text_of(bytes, length);
  setenv("HF_HUB_CACHE", fuzz_directory(), 1);
  check_id(what);
  check_place(what);
  while (size > 0 && listing.count < NAMES_MAX) {
    bytes = fuzz_part(&data, &size, '\n', &length);
    names[listing.count++] = text_of(bytes, length);
  }
  if (listing.count > 0) check_names(&listing, what);
  snapshot_of(what, snapshot);
  if (listing.count > 0 && snapshot[0] != '\0') check_folder(what, snapshot, &listing);
  for (int i = 0; i < listing.count; i++) free(names[i]);
  free(what);
}

void fuzz_trace(const uint8_t *data, size_t size) {
  char *header = text_of(data, size);
  trace_context_t context, again;
  trace_context_read(header, &context);
  if (context.trace_id[0] != '\0') {
    char text[64];
    snprintf(text, sizeof text, "00-%s-%s-%02x", context.trace_id, context.parent_id,
             context.sampled);
    trace_context_read(text, &again);
    if (memcmp(&again, &context, sizeof again) != 0) abort();
  } else if (context.parent_id[0] != '\0' || context.sampled) {
    abort(); /* half a context */
  }
  free(header);
}

void fuzz_modules(const uint8_t *data, size_t size) {
  static const char *const files[] = {"modules.json", "1_Pooling/config.json",
                                      "2_Dense/config.json", "sentence_bert_config.json",
                                      "config.json"};
  static const char *const folders[] = {"1_Pooling", "2_Dense"};
  embedding_files_t out;
  inferd_error_t error = {0};
  char path[256];
  for (size_t i = 0; i < ARRAY_LEN(folders); i++) {
    snprintf(path, sizeof path, "%s/%s", fuzz_directory(), folders[i]);
    (void)mkdir(path, 0700);
  }
  bool is_gguf = size > 4 && memcmp(data, "GGUF", 4) == 0;
  if (is_gguf) fuzz_write("model.gguf", data, size);
  for (size_t i = 0; i < ARRAY_LEN(files) && size > 0 && !is_gguf; i++) {
    size_t length;
    const uint8_t *file = fuzz_part(&data, &size, 0xFF, &length);
    if (length > 0) fuzz_write(files[i], file, length);
  }
  memset(&out, 0, sizeof out);
  int code = embedding_read(fuzz_directory(), &out, &error);
  if ((code == 0) != (error.message[0] == '\0')) abort();
  if (out.num_dense < 0 || out.num_dense > DENSE_MAX || out.info.num_sizes < 0) abort();
  if (pooling_name(out.info.pooling)[0] == '\0') abort();
  for (size_t i = 0; i < ARRAY_LEN(files); i++) fuzz_remove(files[i]);
  fuzz_remove("model.gguf");
  for (size_t i = 0; i < ARRAY_LEN(folders); i++) {
    snprintf(path, sizeof path, "%s/%s", fuzz_directory(), folders[i]);
    (void)rmdir(path);
  }
}
