/* repo.c: reads what the hub says of a repository.
 *
 * One thread; no state. Never uses the network; choose.c says which files are needed.
 */
#include "server/pull/repo.h"

#include "engine/base/hex.h"
#include "engine/base/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const json_limits_t answer_limits = {
    .depth_max = 64, .values_max = 4000000, .key_bytes_max = 65536, .allow_nul = true};

bool repo_is_sum(const char *text) {
  size_t length = strlen(text);
  for (size_t i = 0; i < length; i++) {
    if (hex_value(text[i]) < 0) return false;
  }
  return length == 40 || length == 64;
}

bool repo_is_path(const char *name, size_t length) {
  enum { PART_MAX = 255 };
  if (length == 0 || length > REPO_NAME_MAX) return false;
  for (size_t i = 0; i <= length; i++) {
    const char *part = name + i;
    size_t bytes = 0;
    for (; i < length && name[i] != '/'; i++, bytes++) {
      unsigned char byte = (unsigned char)name[i];
      if (byte < 0x20 || byte == 0x7F || byte == '\\') return false;
    }
    if (bytes == 0 || bytes > PART_MAX) return false;
    if (part[0] == '.' && (bytes == 1 || (bytes == 2 && part[1] == '.'))) return false;
  }
  return true;
}

/* Copies a sum in lower case; leaves "" when `value` is none. */
static void read_sum(const json_t *value, char out[REPO_SUM_MAX + 1]) {
  if (value == NULL || value->type != JSON_STRING || value->length > REPO_SUM_MAX) return;
  memcpy(out, value->text, value->length);
  out[value->length] = '\0';
  if (strlen(out) != value->length || !repo_is_sum(out)) out[0] = '\0';
  for (char *digit = out; *digit != '\0'; digit++) *digit = hex_digit((uint32_t)hex_value(*digit));
}

static int read_file(const json_t *sibling, repo_t *repo, inferd_error_t *error) {
  const json_t *name = json_get(sibling, "rfilename"), *lfs = json_get(sibling, "lfs");
  if (name == NULL || name->type != JSON_STRING) {
    return error_set(error, ERR_MODEL_MALFORMED, NULL, "a file of the answer has no rfilename");
  }
  if (!repo_is_path(name->text, name->length)) {
    char shown[128];
    error_quote(shown, sizeof shown, name->text, name->length);
    return error_set(error, ERR_MODEL_MALFORMED, NULL,
                     "the hub names a file '%s', which is not a path inside a repository; nothing "
                     "was downloaded",
                     shown);
  }
  repo_file_t *file = &repo->files[repo->count];
  *file = (repo_file_t){.name = strndup(name->text, name->length), .size = -1};
  if (file->name == NULL) return error_set(error, ERR_NO_MEMORY, NULL, "no memory for names");
  repo->count++;
  const bool large = lfs != NULL && lfs->type == JSON_OBJECT;
  if (!json_int64(json_get(sibling, "size"), &file->size) && large) {
    (void)json_int64(json_get(lfs, "size"), &file->size);
  }
  read_sum(large ? json_get(lfs, "sha256") : json_get(sibling, "blobId"), file->sum);
  if (file->size < 0) file->size = -1;
  return 0;
}

static int by_name(const void *left, const void *right) {
  return strcmp(((const repo_file_t *)left)->name, ((const repo_file_t *)right)->name);
}

static int read_answer(const json_t *root, repo_t *repo, inferd_error_t *error) {
  const json_t *siblings = json_get(root, "siblings");
  read_sum(json_get(root, "sha"), repo->commit);
  if (repo->commit[0] == '\0' || siblings == NULL || siblings->type != JSON_ARRAY) {
    return error_set(
        error, ERR_MODEL_MALFORMED, NULL,
        "the answer has no commit (sha) or no list of files (siblings): is HF_ENDPOINT "
        "a hub of Hugging Face?");
  }
  repo->files = calloc((size_t)siblings->count + 1, sizeof *repo->files);
  if (repo->files == NULL) return error_set(error, ERR_NO_MEMORY, NULL, "no memory for names");
  JSON_EACH(sibling, siblings) {
    int code = read_file(sibling, repo, error);
    if (code != 0) return code;
  }
  qsort(repo->files, (size_t)repo->count, sizeof *repo->files, by_name);
  for (int i = 1; i < repo->count; i++) {
    if (strcmp(repo->files[i - 1].name, repo->files[i].name) != 0) continue;
    return error_set(error, ERR_MODEL_MALFORMED, NULL, "the hub names the file %.100s twice",
                     repo->files[i].name);
  }
  return 0;
}

int repo_parse(const char *text, size_t length, repo_t *out, inferd_error_t *error) {
  json_doc_t *doc = NULL;
  *out = (repo_t){.count = 0};
  inferd_error_t why = {0};
  int code = json_parse(text, length, &answer_limits, &doc, &why);
  if (code != 0) {
    return error_set(error, ERR_MODEL_MALFORMED, NULL, "the answer is not JSON (%.200s)",
                     why.message);
  }
  code = read_answer(json_root(doc), out, error);
  json_free(doc);
  if (code != 0) repo_free(out);
  return code;
}

void repo_free(repo_t *repo) {
  for (int i = 0; i < repo->count; i++) free(repo->files[i].name);
  free(repo->files);
  *repo = (repo_t){.count = 0};
}
