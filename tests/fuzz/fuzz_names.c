/* fuzz_names.c: what names a model, a trace, or the parts of an encoder.
 *
 * names: what a user types for a model, a 0xFF byte, the names of files in its folder, a line each.
 * trace: a header traceparent. modules: modules.json, 1_Pooling/config.json, 2_Dense/config.json,
 * sentence_bert_config.json and config.json, a 0xFF byte between two of them.
 */
#include "engine/base/util.h"
#include "engine/model/config/embedding.h"
#include "engine/model/disk/hub_cache.h"
#include "engine/model/disk/listing.h"
#include "engine/model/disk/locate.h"
#include "server/trace/trace.h"
#include "tests/fuzz/targets.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NAMES_MAX = 64 };

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

void fuzz_names(const uint8_t *data, size_t size) {
  char *names[NAMES_MAX];
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
  for (size_t i = 0; i < ARRAY_LEN(files) && size > 0; i++) {
    size_t length;
    const uint8_t *file = fuzz_part(&data, &size, 0xFF, &length);
    if (length > 0) fuzz_write(files[i], file, length);
  }
  memset(&out, 0, sizeof out);
  int code = embedding_read(fuzz_directory(), &out, &error);
  if ((code == 0) != (error.message[0] == '\0')) abort();
  if (out.num_dense < 0 || out.num_dense > DENSE_MAX || out.info.num_sizes < 0) abort();
  for (size_t i = 0; i < ARRAY_LEN(files); i++) fuzz_remove(files[i]);
  for (size_t i = 0; i < ARRAY_LEN(folders); i++) {
    snprintf(path, sizeof path, "%s/%s", fuzz_directory(), folders[i]);
    (void)rmdir(path);
  }
}
