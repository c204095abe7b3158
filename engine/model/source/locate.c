/* locate.c: from what a user types to the files of a model on this machine.
 *
 * hub_cache.h says how the Hugging Face cache is laid out. Main thread; reads no weights, uses no
 * network.
 */
#include "engine/model/source/locate.h"

#include "engine/base/json.h"
#include "engine/base/util.h"
#include "engine/file/gguf.h"
#include "engine/model/source/hub_cache.h"
#include "engine/model/source/listing.h"
#include "engine/model/source/model_file.h"
#include "engine/model/source/safetensors.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TEXT_MAX = 280, QUANT_MAX = 64, REVISION_MAX = 128, COMMIT_MAX = 64 };

typedef struct model_search {
  located_t *out;
  const char *what;            /* as the user typed it */
  char quant[QUANT_MAX];       /* "" = none was named */
  char revision[REVISION_MAX]; /* a branch, tag or commit, a path inside refs; "" = main */
  inferd_error_t *error;
} model_search_t;

/* Joins two parts of a path. Returns false if the path is too long. */
static bool join(char out[LOCATED_PATH_MAX], const char *dir, const char *name) {
  int n = snprintf(out, LOCATED_PATH_MAX, "%s/%s", dir, name);
  return n > 0 && n < LOCATED_PATH_MAX;
}

static int too_long(const model_search_t *search) {
  return error_set(search->error, ERR_MODEL_MISSING, "model",
                   "%.100s...: the path is too long, at most %d bytes", search->what,
                   LOCATED_PATH_MAX - 1);
}

static bool is_directory(const char *path) {
  struct stat status;
  return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

/* ---- one directory ---- */

static int refuse_gguf(model_search_t *search, const char *dir, const listing_t *files, int count) {
  char names[TEXT_MAX], where[128];
  listing_text(files, gguf_is_model, names, sizeof names);
  error_quote(where, sizeof where, search->what, strlen(search->what));
  if (count == 0) {
    return error_set(search->error, ERR_MODEL_MISSING, "model", "%.120s: no GGUF file of %s; %s%s",
                     dir, search->quant, names[0] != '\0' ? "there are: " : "there is none", names);
  }
  if (search->quant[0] != '\0') {
    return error_set(search->error, ERR_MODEL_MISSING, "model",
                     "%.120s: %d GGUF files are of %s; give the path of one: %s", dir, count,
                     search->quant, names);
  }
  return error_set(search->error, ERR_MODEL_MISSING, "model",
                   "%s: has %d GGUF files; name the quantisation, as in %s:Q4_K_M: %s", where,
                   count, where, names);
}

static int take_gguf(model_search_t *search, const char *dir, const listing_t *files) {
  int count;
  const char *name = gguf_choose(files, search->quant, &count);
  if (name == NULL) return refuse_gguf(search, dir, files, count);
  return join(search->out->path, dir, name) ? 0 : too_long(search);
}

/* Refuses an adapter as PEFT saves it, because it has no model of its own to serve; names the base
 * model if the adapter does. */
static int refuse_adapter(model_search_t *search, const char *dir) {
  static const json_limits_t limits = {
      .depth_max = 32, .values_max = 100000, .key_bytes_max = 1024, .allow_nul = true};
  model_file_t file = {0};
  char base[128] = "";
  if (model_file_read(dir, "adapter_config.json", 1 << 20, &limits, &file, NULL) == 0 &&
      file.doc != NULL) {
    const json_t *name = json_get(json_root(file.doc), "base_model_name_or_path");
    if (name != NULL && name->type == JSON_STRING) {
      error_quote(base, sizeof base, name->text, name->length);
    }
  }
  model_file_free(&file);
  return error_set(search->error, ERR_MODEL_MALFORMED, "model",
                   "%.140s: is a low-rank adapter, not a model; serve its base model%s%s with "
                   "--enable-lora --lora-modules NAME=%.100s",
                   dir, base[0] != '\0' ? " " : "", base, dir);
}

/* Refuses a directory that has neither config.json nor a GGUF file, and says what it seems to hold.
 */
static int refuse_directory(model_search_t *search, const char *dir, const listing_t *files) {
  if (listing_has(files, "adapter_config.json")) return refuse_adapter(search, dir);
  if (listing_has(files, "consolidated.safetensors") || listing_has(files, "params.json")) {
    return error_set(search->error, ERR_MODEL_MALFORMED, "model",
                     "%.200s: has weights in Mistral's or Meta's own layout (consolidated.*, "
                     "params.json), which is not read; take the files for transformers: "
                     "config.json and model*.safetensors",
                     dir);
  }
  return error_set(search->error, ERR_MODEL_MISSING, "model",
                   "%.300s: no config.json; a model is a directory of Hugging Face with "
                   "config.json and *.safetensors, or a GGUF file",
                   dir);
}

static int take_directory(model_search_t *search, const char *dir) {
  listing_t files;
  int code = listing_read(dir, &files, search->error);
  if (code != 0) return code;
  bool config = listing_has(&files, "config.json");
  bool weights = listing_has(&files, "model.safetensors") ||
                 listing_has(&files, "model.safetensors.index.json");
  bool adapter = listing_has(&files, "adapter_config.json");
  if (search->quant[0] != '\0' || (!(config && weights) && listing_has_suffix(&files, ".gguf"))) {
    code = take_gguf(search, dir, &files);
  } else if (!config || (adapter && !weights)) {
    code = refuse_directory(search, dir, &files);
  } else if (snprintf(search->out->path, LOCATED_PATH_MAX, "%s", dir) >= LOCATED_PATH_MAX) {
    code = too_long(search);
  }
  listing_free(&files);
  return code;
}

/* ---- one folder of the cache ---- */

/* Reads the commit that refs/REVISION names. Returns false if there is no such file or it names
 * none. */
static bool read_reference(const char *folder, const char *revision, char commit[COMMIT_MAX]) {
  char path[LOCATED_PATH_MAX], refs[LOCATED_PATH_MAX];
  if (!join(refs, folder, "refs") || !join(path, refs, revision)) return false;
  FILE *stream = fopen(path, "re");
  if (stream == NULL) return false;
  size_t length = fread(commit, 1, COMMIT_MAX - 1, stream);
  fclose(stream);
  commit[length] = '\0';
  length = strspn(commit, "0123456789abcdefABCDEF");
  commit[length] = '\0';
  return length > 0;
}

static bool is_first_level(const char *name) {
  return strchr(name, '/') == NULL;
}

/* Writes the path of the snapshot of the revision; without one that of refs/main, else of the only
 * one. */
static int find_snapshot(model_search_t *search, const char *folder, char out[LOCATED_PATH_MAX]) {
  char snapshots[LOCATED_PATH_MAX], commit[COMMIT_MAX], names[TEXT_MAX];
  if (!join(snapshots, folder, "snapshots")) return too_long(search);
  const char *revision = search->revision[0] != '\0' ? search->revision : "main";
  bool known = read_reference(folder, revision, commit);
  if (known && join(out, snapshots, commit) && is_directory(out)) return 0;
  if (search->revision[0] != '\0') {
    if (join(out, snapshots, revision) && is_directory(out)) return 0; /* a commit */
    char shown[HUB_ID_MAX + REVISION_MAX + QUANT_MAX];
    error_quote(shown, sizeof shown, search->what, strlen(search->what));
    return error_set(search->error, ERR_MODEL_MISSING, "model",
                     "%.200s: does not have this revision; get it with: inferd pull %s", folder,
                     shown);
  }
  listing_t all;
  int count = 0, code = listing_read(snapshots, &all, search->error);
  for (int i = 0; i < all.count && code == 0; i++) {
    if (!is_first_level(all.names[i])) continue;
    if (count++ == 0 && !join(out, snapshots, all.names[i])) code = too_long(search);
  }
  if (code == 0 && count != 1) {
    listing_text(&all, is_first_level, names, sizeof names);
    code = error_set(search->error, ERR_MODEL_MISSING, "model",
                     count == 0 ? "%.200s: has no snapshot; download the model again%s"
                                : "%.200s: refs/main names no snapshot, and there are several; "
                                  "give the path of one: %s",
                     count == 0 ? folder : snapshots, names);
  }
  listing_free(&all);
  return code;
}

/* Sets the name ORG/NAME when a part of the path is models--ORG--NAME. */
static void name_after_cache(model_search_t *search, const char *path) {
  char id[HUB_ID_MAX + 1];
  if (!hub_id_of_path(path, id)) return;
  snprintf(search->out->name, sizeof search->out->name, "%s%s%s", id,
           search->quant[0] != '\0' ? ":" : "", search->quant);
}

static int take_directory_or_cache(model_search_t *search, const char *dir) {
  char path[LOCATED_PATH_MAX];
  name_after_cache(search, dir);
  if (!join(path, dir, "snapshots")) return too_long(search);
  if (!is_directory(path)) return take_directory(search, dir);
  int code = find_snapshot(search, dir, path);
  return code != 0 ? code : take_directory(search, path);
}

/* ---- a name ---- */

static int not_found(model_search_t *search, const hub_caches_t *caches, const char *id) {
  char places[TEXT_MAX] = "";
  size_t used = 0;
  for (int i = 0; i < caches->count && used < sizeof places; i++) {
    int n =
        snprintf(places + used, sizeof places - used, "%s%s", i > 0 ? ", " : "", caches->paths[i]);
    used += n > 0 ? (size_t)n : 0;
  }
  return error_set(search->error, ERR_MODEL_MISSING, "model",
                   "%.100s is neither a path nor a model in a cache of Hugging Face; looked in %s; "
                   "get it with: inferd pull %s%s%s%s%s",
                   search->what, places, id, search->revision[0] != '\0' ? "@" : "",
                   search->revision, search->quant[0] != '\0' ? ":" : "", search->quant);
}

static int take_name(model_search_t *search, const char *id) {
  hub_caches_t *caches = malloc(sizeof *caches); /* too large for the stack */
  if (caches == NULL) return error_set(search->error, ERR_NO_MEMORY, NULL, "no memory for paths");
  char folder[HUB_FOLDER_MAX], path[LOCATED_PATH_MAX];
  hub_folder(id, folder);
  hub_caches(caches);
  int code = 0;
  bool there = false;
  for (int i = 0; i < caches->count && !there && code == 0; i++) {
    struct stat status;
    if (!join(path, caches->paths[i], folder)) continue;
    there = stat(path, &status) == 0;
    if (!there && errno == EACCES) code = error_system(search->error, path, errno);
  }
  if (there) {
    code = take_directory_or_cache(search, path);
  } else if (code == 0) {
    code = not_found(search, caches, id);
  }
  free(caches);
  return code;
}

/* ---- a path or a name ---- */

/* A GGUF file is known by its name or by its first bytes: Ollama's are called blobs/sha256-.... */
static int take_file(model_search_t *search, const char *path) {
  char found[LOCATED_PATH_MAX];
  const char *dot = strrchr(path, '.');
  const bool named = dot != NULL && strcasecmp(dot, ".gguf") == 0;
  if (named || gguf_find(path, found, sizeof found, NULL) > 0) {
    name_after_cache(search, path);
    if (snprintf(search->out->path, LOCATED_PATH_MAX, "%s", path) < LOCATED_PATH_MAX) return 0;
    return too_long(search);
  }
  return error_set(search->error, ERR_MODEL_MALFORMED, "model",
                   "%.300s: is a file, but no GGUF file; give the directory of the model, with "
                   "config.json, the tokenizer and *.safetensors",
                   path);
}

/* ---- nothing there ---- */

/* Writes the name in `dir` that is nearest to `name`, "" if none is near. */
static void find_near(const char *dir, const char *name, char out[ERROR_NEAR_MAX + 1]) {
  int best = 1 + (int)strlen(name) / 3;
  DIR *stream = opendir(dir);
  out[0] = '\0';
  for (struct dirent *entry; stream != NULL && (entry = readdir(stream)) != NULL;) {
    int distance = error_distance(name, entry->d_name);
    if (entry->d_name[0] == '.' || distance > best || (distance == best && out[0] != '\0'))
      continue;
    best = distance;
    error_quote(out, ERROR_NEAR_MAX + 1, entry->d_name, strlen(entry->d_name));
  }
  if (stream != NULL) closedir(stream);
}

/* Refuses an address, such as https://huggingface.co/ORG/NAME or hf.co/ORG/NAME:QUANT, and says
 * which name it has. Returns 0 if `shown` is no address. */
static int refuse_address(const model_search_t *search, const char *shown) {
  static const char *const hosts[] = {"huggingface.co/", "hf.co/"};
  bool web = strncmp(shown, "https://", 8) == 0 || strncmp(shown, "http://", 7) == 0;
  const char *rest = web ? strstr(shown, "://") + 3 : shown, *name = NULL;
  char id[ERROR_NEAR_MAX] = "";
  for (size_t i = 0; i < ARRAY_LEN(hosts); i++) {
    if (strncmp(rest, hosts[i], strlen(hosts[i])) == 0) name = rest + strlen(hosts[i]);
  }
  if (!web && name == NULL) return 0;
  if (name != NULL) {
    size_t length = strcspn(name, "/");
    if (name[length] == '/') length += 1 + strcspn(name + length + 1, "/?#");
    snprintf(id, sizeof id, "%.*s", (int)length, name);
  }
  char *colon = strchr(id, ':');
  if (colon != NULL) *colon = '\0';
  bool valid = strchr(id, '/') != NULL && hub_is_id(id);
  if (colon != NULL) *colon = ':';
  if (!valid) snprintf(id, sizeof id, "ORG/NAME");
  return error_set(search->error, ERR_MODEL_MISSING, "model",
                   "%s: is an address, not a path; give %s, and get it with: inferd pull %s", shown,
                   id, id);
}

/* Refuses a path that cannot be looked at, for the reason `number`: names the part of it that is
 * missing, with the nearest name beside it, or the folder that lets this user not pass. */
static int refuse_path(const model_search_t *search, int number) {
  char shown[300], dir[LOCATED_PATH_MAX], near[ERROR_NEAR_MAX + 1], where[200];
  struct stat status;
  error_quote(shown, sizeof shown, search->what, strlen(search->what));
  int code = refuse_address(search, shown);
  if (code != 0) return code;
  size_t parent = 0, end = strlen(search->what); /* of the first part that cannot be looked at */
  for (size_t i = 1; i < strlen(search->what) && end == strlen(search->what); i++) {
    if (search->what[i] != '/') continue;
    snprintf(dir, sizeof dir, "%.*s", (int)i, search->what);
    if (stat(dir, &status) != 0) {
      end = i;
    } else {
      parent = i + 1;
    }
  }
  if (parent == 0 && search->what[0] == '/') parent = 1;
  snprintf(dir, sizeof dir, "%.*s", (int)parent, parent > 0 ? search->what : "");
  if (parent == 0) snprintf(dir, sizeof dir, "./");
  inferd_error_t reason = {0};
  code = error_system(search->error, shown, number);
  error_system(&reason, shown, number);
  if (number == EACCES) {
    error_quote(where, sizeof where, dir, strlen(dir));
    return error_set(search->error, code, "model", "%.700s, who may not look into %s",
                     reason.message, where);
  }
  char name[LOCATED_PATH_MAX];
  snprintf(name, sizeof name, "%.*s", (int)(end - parent), search->what + parent);
  find_near(dir, name, near);
  if (near[0] == '\0') return code;
  error_quote(where, sizeof where, dir, strlen(dir));
  return error_set(search->error, code, "model", "%.700s; did you mean %s%s?", reason.message,
                   where, near);
}

static int take_path(model_search_t *search, const char *path, const struct stat *status) {
  if (S_ISDIR(status->st_mode)) return take_directory_or_cache(search, path);
  return take_file(search, path);
}

/* Splits NAME@REVISION, if the revision has the form of one. */
static void take_revision(model_search_t *search, char *name) {
  static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-./";
  char *at = strchr(name, '@');
  if (at == NULL || strlen(at + 1) >= sizeof search->revision) return;
  bool good = at[1] != '\0' && at[1] != '/' && at[1] != '-' && strstr(at, "..") == NULL;
  if (!good || at[1 + strspn(at + 1, plain)] != '\0') return;
  snprintf(search->revision, sizeof search->revision, "%s", at + 1);
  *at = '\0';
}

static int find(const char *what, located_t *out, inferd_error_t *error) {
  model_search_t search = {.out = out, .what = what, .error = error};
  struct stat status;
  char path[LOCATED_PATH_MAX];
  out->path[0] = out->name[0] = '\0';
  if (snprintf(path, sizeof path, "%s", what) >= (int)sizeof path) return too_long(&search);
  if (stat(path, &status) == 0) return take_path(&search, path, &status);
  int number = errno;
  char *colon = strrchr(path, ':');
  if (number != EACCES && colon != NULL && strchr(colon, '/') == NULL &&
      snprintf(search.quant, sizeof search.quant, "%s", colon + 1) < QUANT_MAX) {
    *colon = '\0';
    if (stat(path, &status) == 0) return take_path(&search, path, &status);
    if (errno == EACCES) number = errno;
  }
  take_revision(&search, path);
  if (number != EACCES && hub_is_id(path)) return take_name(&search, path);
  return refuse_path(&search, number);
}

int model_locate(const char *what, located_t *out, inferd_error_t *error) {
  int code = find(what, out, error);
  const char *slash = strrchr(out->path, '/'), *base = slash != NULL ? slash + 1 : out->path;
  if (code == 0 && out->name[0] == '\0' && gguf_is_model(base)) {
    snprintf(out->name, sizeof out->name, "%.*s", gguf_stem_length(base), base);
  }
  return code;
}

bool model_is_hub_name(const char *what) {
  char id[HUB_ID_MAX + 1];
  size_t length = strcspn(what, "@:");
  if (length >= sizeof id || access(what, F_OK) == 0) return false;
  snprintf(id, sizeof id, "%.*s", (int)length, what);
  return hub_is_id(id) && access(id, F_OK) != 0;
}

bool model_lacks_weights(const located_t *model) {
  weight_files_t *files = NULL;
  inferd_error_t error = {0};
  int code = weight_files_open(model->path, &files, &error);
  if (code == 0) weight_files_close(files);
  return code == ERR_MODEL_MISSING;
}
