/* repo.h: what the hub says of a repository, and which of its files a server needs.
 *
 * Pure functions on the answer of GET /api/models/ORG/NAME/revision/REV?blobs=true, whose bytes are
 * not trusted: names that would leave a folder are refused. One thread.
 */
#ifndef INFERD_SERVER_PULL_REPO_H
#define INFERD_SERVER_PULL_REPO_H

#include "engine/base/error.h"

#include <stddef.h>
#include <stdint.h>

enum {
  REPO_ANSWER_MAX = 64 << 20, /* bytes of the answer */
  REPO_NAME_MAX = 1024,       /* bytes of a file's path */
  REPO_SUM_MAX = 64           /* hexadecimal digits of a sha256; a git sha1 has 40 */
};

typedef struct repo_file {
  char *name;                 /* path in the repository, with slashes; owned */
  char sum[REPO_SUM_MAX + 1]; /* sha256 of an LFS file, git sha1 of another; "" = not told */
  int64_t size;               /* bytes; -1 = not told */
  bool chosen;
} repo_file_t;

typedef struct repo {
  char commit[REPO_SUM_MAX + 1];
  repo_file_t *files; /* sorted by name */
  int count;
} repo_t;

/* Reads the answer of the hub. Returns 0 and *out, freed with repo_free; ERR_MODEL_MALFORMED when
 * it is no such answer or a name in it is not a plain path; ERR_NO_MEMORY. */
int repo_parse(const char *text, size_t length, repo_t *out, inferd_error_t *error);
void repo_free(repo_t *repo);

/* True for 40 or 64 hexadecimal digits: a commit, or the sum of a file. */
bool repo_is_sum(const char *text);
/* True for a path that stays in its folder: no empty part, no "." and "..", no control byte, no
 * backslash, no part above 255 bytes. */
bool repo_is_path(const char *name, size_t length);

/* Sets `chosen` of the files that `inferd serve` reads: configuration, tokenizer, templates and
 * safetensors; or one GGUF file with all its parts, by the rule of model_locate, when `quant` names
 * a quantisation or there are no safetensors. `id` is ORG/NAME for messages. Returns 0, or
 * ERR_MODEL_MISSING with what the repository has. */
int repo_choose(repo_t *repo, const char *id, const char *quant, inferd_error_t *error);

#endif
