/* check.c: what `inferd serve` reads at its start beside the model, for `inferd check`.
 *
 * Main thread. Nothing is made or changed: no file is created, no port is taken. So two things are
 * left to the start: whether a port is free, and what a store holds.
 */
#include "server/completion/chat.h"
#include "server/http/auth.h"
#include "server/http/listen.h"
#include "server/serve.h"
#include "server/trace/trace.h"

#include <errno.h>
#include <libgen.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Returns 0 if the file may be written, or made. */
static int place_errno(const char *path) {
  struct stat info;
  char folder[4096];
  if (stat(path, &info) == 0 && S_ISDIR(info.st_mode)) return EISDIR;
  if (access(path, W_OK) == 0) return 0;
  if (errno != ENOENT) return errno;
  snprintf(folder, sizeof folder, "%s", path);
  return access(dirname(folder), W_OK | X_OK) == 0 ? 0 : errno;
}

/* Files that the start makes, with the codes that it then has. */
static int check_places(const config_t *config, inferd_error_t *error) {
  const struct {
    const char *option, *path;
    int missing;
  } rows[] = {{"log_file", config->log_file, ERR_CONFIGURATION},
              {"store", config->store, ERR_IO},
              {"prefix_cache_file", config->prefix_cache_file, ERR_MODEL_MISSING}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    int number = rows[i].path[0] != '\0' ? place_errno(rows[i].path) : 0;
    if (number == 0) continue;
    int code = number == ENOENT ? rows[i].missing : number == EACCES ? ERR_PERMISSION : ERR_IO;
    return error_set(error, code, rows[i].option, "%s: %.300s cannot be written: %s",
                     rows[i].option, rows[i].path, strerror(number));
  }
  return 0;
}

int serve_check(config_t *config, inferd_error_t *error) {
  auth_t *auth = NULL;
  tracer_t *tracer = NULL;
  chat_templates_t *templates = NULL;
  int code = check_places(config, error);
  if (code == 0) code = auth_new(config, &auth, error);
  if (code == 0) code = tracer_start(config, NULL, &tracer, error);
  if (code == 0 && config->chat_template[0] != '\0')
    code = chat_templates_load(config->model, config->chat_template, &templates, error);
  if (code == 0) code = listen_check(config, auth, error);
  chat_templates_free(templates);
  tracer_stop(tracer);
  auth_free(auth);
  return code;
}
