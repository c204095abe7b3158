/* main.c: inferd-pull, the program behind `inferd pull` and `inferd serve --pull`.
 *
 * Main thread. A program of its own, so that the daemon carries no HTTP client. Exit statuses are
 * those of engine/base/error.def; SIGINT and SIGTERM end it by the signal, with what has come kept.
 */
#include "engine/base/util.h"
#include "server/observe/priority.h"
#include "server/pull/fetch.h"
#include "server/pull/hub.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void on_signal(int number) {
  hub_interrupted = number;
}

/* The second signal ends the program at once. */
static void catch_signals(void) {
  struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, NULL);
  sigaction(SIGTERM, &action, NULL);
  signal(SIGPIPE, SIG_IGN);
}

typedef struct amounts {
  int files, missing;
  int64_t bytes, missing_bytes, partial; /* partial: of the missing ones, what is there */
} amounts_t;

static amounts_t count(const store_t *store, const repo_t *repo) {
  amounts_t amounts = {0};
  for (int i = 0; i < repo->count; i++) {
    const repo_file_t *file = &repo->files[i];
    if (!file->chosen) continue;
    amounts.files++;
    amounts.bytes += file->size;
    if (store_has(store, file)) continue;
    amounts.missing++;
    amounts.missing_bytes += file->size;
    amounts.partial += store_partial(store, file);
  }
  return amounts;
}

/* Asks for what the list does not tell of the chosen files. */
static int describe_all(const pull_settings_t *settings, repo_t *repo, inferd_error_t *error) {
  int64_t total = 0;
  for (int i = 0; i < repo->count; i++) {
    repo_file_t *file = &repo->files[i];
    if (!file->chosen) continue;
    int code = file->sum[0] == '\0' || file->size < 0
                   ? hub_describe(settings, repo->commit, file, error)
                   : 0;
    if (code != 0) return code;
    if (__builtin_add_overflow(total, file->size, &total)) {
      return error_set(error, ERR_MODEL_MALFORMED, NULL, "%s: the sizes of its files are too large",
                       settings->id);
    }
  }
  return 0;
}

static void print_plan(const pull_settings_t *settings, const store_t *store, const repo_t *repo,
                       const amounts_t *amounts) {
  char size[PROGRESS_SIZE_MAX], room[PROGRESS_SIZE_MAX];
  printf("%s, revision %s, commit %s\n", settings->id, settings->revision, repo->commit);
  for (int i = 0; i < repo->count; i++) {
    const repo_file_t *file = &repo->files[i];
    if (!file->chosen) continue;
    printf("  %10s  %s%s\n", progress_size(size, file->size), file->name,
           store_has(store, file)           ? "  (there)"
           : store_partial(store, file) > 0 ? "  (begun)"
                                            : "");
  }
  printf("%d files, %s", amounts->files, progress_size(size, amounts->bytes));
  printf("; to download: %d, %s", amounts->missing,
         progress_size(size, amounts->missing_bytes - amounts->partial));
  printf("; free in %s: %s\n", store->cache, progress_size(room, store_free_bytes(store)));
}

static int check_room(const pull_settings_t *settings, const store_t *store,
                      const amounts_t *amounts, inferd_error_t *error) {
  int64_t needed = amounts->missing_bytes - amounts->partial, room = store_free_bytes(store);
  if (room < 0 || needed <= room) return 0;
  char text[2][PROGRESS_SIZE_MAX];
  return error_set(error, ERR_IO, NULL,
                   "%s: %s (%lld bytes) are needed in %.200s, and %s (%lld bytes) are free; take "
                   "another place by --cache-dir or HF_HUB_CACHE",
                   settings->id, progress_size(text[0], needed), (long long)needed, store->cache,
                   progress_size(text[1], room), (long long)room);
}

static int download(const pull_settings_t *settings, const store_t *store, repo_t *repo,
                    const amounts_t *amounts, inferd_error_t *error) {
  progress_t progress;
  int fd = -1;
  char size[PROGRESS_SIZE_MAX], begun[PROGRESS_SIZE_MAX];
  int code = check_room(settings, store, amounts, error);
  if (code == 0) code = store_make(store, error);
  if (code == 0 && amounts->missing > 0) {
    fprintf(stderr, "inferd: %s: %d of %d files, %s to download%s%s%s\n", settings->id,
            amounts->missing, amounts->files,
            progress_size(size, amounts->missing_bytes - amounts->partial),
            amounts->partial > 0 ? ", " : "",
            amounts->partial > 0 ? progress_size(begun, amounts->partial) : "",
            amounts->partial > 0 ? " are there already" : "");
    progress_start(&progress, settings->id, amounts->missing_bytes, amounts->partial);
    code = fetch_files(settings, store, repo, &progress, error);
    progress_clear(&progress);
    if (code == 0) progress_end(&progress);
  }
  while (code == 0 && (code = store_lock(store, repo->commit, &fd, error)) > 0) {
    if (hub_interrupted) return error_set(error, ERR_IO, NULL, "interrupted");
    code = 0;
    usleep(100 * 1000);
  }
  if (code == 0) code = store_publish(store, repo, settings->revision, error);
  if (fd >= 0) close(fd);
  return code;
}

static int pull(const pull_settings_t *settings, store_t *store, repo_t *repo,
                inferd_error_t *error) {
  int code = store_name(store, settings->cache_dir, settings->id, error);
  if (code == 0) code = hub_list(settings, repo, error);
  if (code == 0) code = repo_choose(repo, settings->id, settings->quant, error);
  if (code == 0) code = describe_all(settings, repo, error);
  if (code != 0) return code;
  amounts_t amounts = count(store, repo);
  if (settings->dry_run) {
    print_plan(settings, store, repo, &amounts);
    return 0;
  }
  return download(settings, store, repo, &amounts, error);
}

/* Tells the place on standard output, for scripts, and what serves it. */
static void print_end(const pull_settings_t *settings, const store_t *store, const repo_t *repo) {
  char path[HUB_PATH_MAX];
  printf("%s\n", store_snapshot(store, repo->commit, path));
  fflush(stdout);
  bool named = settings->cache_dir == NULL, older = strcmp(settings->revision, "main") != 0;
  bool pickled = false; /* its safetensors are still to be made */
  for (int i = 0; i < repo->count; i++)
    pickled = pickled || (repo->files[i].chosen && text_ends_in(repo->files[i].name, ".bin"));
  fprintf(stderr, "inferd: done; %s it by: inferd %s %s%s%s%s%s\n", pickled ? "convert" : "serve",
          pickled ? "convert" : "serve", named ? settings->id : path, named && older ? "@" : "",
          named && older ? settings->revision : "", settings->quant[0] != '\0' ? ":" : "",
          settings->quant);
}

int main(int argc, char **argv) {
  pull_settings_t settings;
  inferd_error_t error = {0};
  store_t *store = calloc(1, sizeof *store);
  repo_t repo = {.count = 0};
  int code = store == NULL ? error_set(&error, ERR_NO_MEMORY, NULL, "no memory")
                           : settings_read(argc, argv, &settings, &error);
  if (code == 1) return free(store), 0; /* the help */
  if (code == 0) code = settings_environment(&settings, &error);
  if (code == 0 && curl_global_init(CURL_GLOBAL_DEFAULT) != 0) {
    code = error_set(&error, ERR_INTERNAL, NULL, "libcurl does not start");
  }
  if (code == 0) {
    catch_signals();
    code = pull(&settings, store, &repo, &error);
    curl_global_cleanup();
  }
  if (code == 0 && !settings.dry_run) print_end(&settings, store, &repo);
  if (code != 0) fprintf(stderr, "%sinferd: %s\n", log_priority(LOG_ERROR), error.message);
  repo_free(&repo);
  free(store);
  if (code != 0 && hub_interrupted) {
    fprintf(stderr, "inferd: what has come is kept; the same command continues the download\n");
    signal(hub_interrupted, SIG_DFL);
    raise(hub_interrupted);
  }
  if (code == 0 && settings.then != NULL && settings.then[0] != NULL) {
    execv(settings.then[0], settings.then);
    perror("inferd: exec");
    return error_exit_code(ERR_IO);
  }
  return code == 0 ? 0 : error_exit_code(code);
}
