/* fuzz_hub.c: what a hub says of a repository, and the choice of files. */
#include "server/pull/repo.h"
#include "tests/fuzz/targets.h"

#include <stdlib.h>
#include <string.h>

/* Nothing that is kept may lead out of a folder. */
static void check(const repo_t *repo) {
  for (int i = 0; i < repo->count; i++) {
    const repo_file_t *file = &repo->files[i];
    if (file->name[0] == '/' || strstr(file->name, "/../") != NULL) abort();
    if (strncmp(file->name, "../", 3) == 0 || strcmp(file->name, "..") == 0) abort();
    if (file->sum[0] != '\0' && !repo_is_sum(file->sum)) abort();
    if (file->size < -1) abort();
  }
}

void fuzz_hub(const uint8_t *data, size_t size) {
  static const char *const quants[] = {"", "Q4_K_M", "Q8_0"};
  repo_t repo;
  inferd_error_t error = {0};
  if (repo_parse((const char *)data, size, &repo, &error) != 0) return;
  check(&repo);
  for (int i = 0; i < 3; i++) (void)repo_choose(&repo, "org/name", quants[i], &error);
  repo_free(&repo);
}
