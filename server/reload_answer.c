/* reload_answer.c: what came of a reload, for the command that asked for it. The daemon writes it
 * into a file of $RUNTIME_DIRECTORY; `inferd reload PID`, which the unit runs, sends SIGHUP and
 * waits for it.
 *
 * The daemon's half runs on the loop thread, the command in a process of its own.
 */
#include "server/reload_answer.h"

#include "engine/base/error.h"
#include "engine/base/util.h"
#include "server/observe/log.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
  EXIT_USAGE = 64,
  EXIT_UNAVAILABLE = 69,
  TEXT_MAX = 2048,
  NAME_BYTES = 64, /* the kernel keeps 15 of a name, and more of its own threads */
  PAUSE_MS = 20,
  PATIENCE_MS = 30 * 1000, /* a reload reads a few small files */
};

static bool path_of(const char *name, char path[PATH_MAX]) {
  const char *folder = getenv("RUNTIME_DIRECTORY");
  return folder != NULL && snprintf(path, PATH_MAX, "%s/%s", folder, name) < PATH_MAX;
}

void reload_answer_write(bool taken, const char *text) {
  char path[PATH_MAX], fresh[PATH_MAX];
  struct timespec now;
  if (!path_of("reload", path) || !path_of("reload.new", fresh)) return;
  clock_gettime(CLOCK_REALTIME, &now);
  FILE *file = fopen(fresh, "we");
  if (file == NULL) return;
  fprintf(file, "%lld.%09ld %s %s\n", (long long)now.tv_sec, now.tv_nsec, taken ? "ok" : "rejected",
          text);
  if (fclose(file) == 0) (void)rename(fresh, path);
}

/* The line of the last reload, "" if there was none. */
static void read_answer(const char *path, char text[TEXT_MAX]) {
  FILE *file = fopen(path, "re");
  text[0] = '\0';
  if (file == NULL) return;
  if (fgets(text, TEXT_MAX, file) == NULL) text[0] = '\0';
  fclose(file);
}

static int fail(int status, const char *text) {
  fprintf(stderr, "%sinferd: %s\n", log_priority(LOG_ERROR), text);
  return status;
}

/* "TIME ok TEXT" -> TEXT on standard output, or, if it was rejected, on standard error. */
static int tell(const char *answer) {
  const char *word = answer + strcspn(answer, " ");
  word += *word == ' ';
  const char *text = word + strcspn(word, " ");
  text += *text == ' ';
  bool taken = strncmp(word, "ok ", 3) == 0;
  fprintf(taken ? stdout : stderr, "%s%s", taken ? "" : log_priority(LOG_ERROR), text);
  return taken ? 0 : error_exit_code(ERR_CONFIGURATION);
}

/* The name of a process's program, "" if /proc does not tell. */
static void read_name(const char *pid, char name[NAME_BYTES]) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%s/comm", pid);
  FILE *file = fopen(path, "re");
  name[0] = '\0';
  if (file == NULL) return;
  if (fgets(name, NAME_BYTES, file) == NULL) name[0] = '\0';
  name[strcspn(name, "\n")] = '\0';
  fclose(file);
}

/* SIGHUP ends most programs, so it goes to one of the name of this one alone. */
static bool is_other_program(long pid, char *text, size_t capacity) {
  char number[24], own[NAME_BYTES], other[NAME_BYTES];
  snprintf(number, sizeof number, "%ld", pid);
  read_name("self", own);
  read_name(number, other);
  if (own[0] == '\0' || other[0] == '\0' || strcmp(own, other) == 0) return false;
  snprintf(text, capacity, "process %ld is \"%s\", not \"%s\"", pid, other, own);
  return true;
}

int reload_command(int argc, char **argv) {
  const char *word = argc == 1 ? argv[0] : "";
  char *end = NULL, path[PATH_MAX], before[TEXT_MAX], after[TEXT_MAX];
  long pid = isdigit((unsigned char)word[0]) ? strtol(word, &end, 10) : 0;
  if (pid <= 1 || pid > INT_MAX || *end != '\0')
    return fail(EXIT_USAGE, "usage: inferd reload PID, the process of inferd serve");
  if (is_other_program(pid, after, sizeof after)) return fail(EXIT_UNAVAILABLE, after);
  bool told = path_of("reload", path);
  if (told) read_answer(path, before);
  if (kill((pid_t)pid, SIGHUP) != 0) {
    snprintf(after, sizeof after, "process %ld: %s", pid, strerror(errno));
    return fail(EXIT_UNAVAILABLE, after);
  }
  if (!told) {
    puts("signalled; without RUNTIME_DIRECTORY the log alone says what came of it");
    return 0;
  }
  const struct timespec pause = {.tv_nsec = PAUSE_MS * 1000 * 1000};
  for (int ms = 0; ms < PATIENCE_MS; ms += PAUSE_MS) {
    nanosleep(&pause, NULL);
    read_answer(path, after);
    if (strcmp(before, after) != 0) return tell(after);
    if (kill((pid_t)pid, 0) != 0) return fail(EXIT_UNAVAILABLE, "the process has ended");
  }
  return fail(EXIT_UNAVAILABLE, "no answer within 30 s; the log may have the reason");
}
