/* main.c: inferd-pull: the files of a model on the Hugging Face hub.
 *
 * Main thread. A program of its own, so that the daemon carries no HTTP client. It prints what a
 * server needs of a repository.
 */
#include "server/pull/hub.h"

#include <stdio.h>

static int list(const pull_settings_t *settings, inferd_error_t *error) {
  repo_t repo;
  int code = hub_list(settings, &repo, error);
  if (code != 0) return code;
  code = repo_choose(&repo, settings->id, settings->quant, error);
  for (int i = 0; i < repo.count && code == 0; i++) {
    repo_file_t *file = &repo.files[i];
    if (!file->chosen) continue;
    if (file->sum[0] == '\0' || file->size < 0) {
      code = hub_describe(settings, repo.commit, file, error);
    }
    if (code == 0) printf("%12lld  %s  %s\n", (long long)file->size, file->sum, file->name);
  }
  repo_free(&repo);
  return code;
}

int main(int argc, char **argv) {
  pull_settings_t settings;
  inferd_error_t error = {0};
  int code = settings_read(argc, argv, &settings, &error);
  if (code == 1) return 0; /* the help */
  if (code == 0) code = settings_environment(&settings, &error);
  if (code == 0) code = list(&settings, &error);
  if (code != 0) fprintf(stderr, "inferd: %s\n", error.message);
  return code == 0 ? 0 : error_exit_code(code);
}
