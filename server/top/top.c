/* top.c: `inferd top`: reads /metrics again and again, and shows what happened in between.
 *
 * Main thread of the command, which blocks. On a terminal each frame replaces the one before, and
 * SIGINT gives the screen back; elsewhere the frames follow each other.
 */
#include "server/top/top.h"

#include "engine/base/clock.h"
#include "engine/base/util.h"
#include "server/client.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { EXIT_USAGE = 64 };

typedef struct top {
  client_target_t target;
  const char *key; /* or NULL */
  double interval_s;
  bool once, terminal;
} top_t;

static volatile sig_atomic_t ended;

static void on_end(int number) {
  (void)number;
  ended = 1;
}

/* Takes what is this command's own out of the arguments. Returns false after a message. */
static bool read_arguments(top_t *top, int *argc, char **argv) {
  int kept = 0;
  for (int i = 0; i < *argc; i++) {
    const char *word = argv[i], *interval = NULL;
    if (strcmp(word, "--once") == 0) {
      top->once = true;
    } else if (strncmp(word, "--interval=", 11) == 0) {
      interval = word + 11;
    } else if (strcmp(word, "--interval") == 0) {
      interval = i + 1 < *argc ? argv[++i] : "";
    } else {
      argv[kept++] = argv[i];
    }
    if (interval == NULL) continue;
    char *end = NULL;
    top->interval_s = strtod(interval, &end) * (strcmp(end, "ms") == 0 ? 1e-3 : 1);
    bool unit =
        end != interval && (*end == '\0' || strcmp(end, "s") == 0 || strcmp(end, "ms") == 0);
    if (unit && top->interval_s >= 0.05 && top->interval_s <= 3600) continue;
    fprintf(stderr, "inferd: --interval is '%.40s', accepted: 50ms to 3600s\n", interval);
    return false;
  }
  *argc = kept;
  return true;
}

/* Prints why there are no figures. An answer of the server says it in its own words. */
static void print_failure(const top_t *top, int status, const char *body, const char *why) {
  const char *words = body != NULL ? strstr(body, "\"message\":\"") : NULL;
  const char *where = top->target.shown;
  if (status == 0) {
    fprintf(stderr, "inferd: no server answers at %s\n", where);
  } else if (why != NULL) {
    fprintf(stderr, "inferd: no TLS with %s: %s\n", where, why);
  } else if (status < 0) {
    fprintf(stderr, "inferd: no whole answer from %s within %d s\n", where,
            CLIENT_TIMEOUT_MS / 1000);
  } else if (status != 200) {
    int length = words != NULL ? (int)strcspn(words + 11, "\"") : 0;
    fprintf(stderr, "inferd: %s answers /metrics with %d%s%.*s\n", where, status,
            length > 0 ? ": " : "", MIN(length, 300), length > 0 ? words + 11 : "");
  } else {
    fprintf(stderr, "inferd: /metrics of %s is not that of an inference server\n", where);
  }
}

/* Reads the page. Returns false after a message. */
static bool read_page(const top_t *top, scrape_t *out) {
  char *body = NULL;
  const char *why = NULL;
  int status = client_get(&top->target, "/metrics", top->key, &body, &why);
  bool good = status == 200 && scrape_read(body, out);
  if (good) {
    out->at_ns = clock_now_ns();
  } else {
    print_failure(top, status, body, why);
  }
  free(body);
  return good;
}

static void wait_interval(const top_t *top) {
  struct timespec pause = {.tv_sec = (time_t)top->interval_s};
  pause.tv_nsec = (long)((top->interval_s - (double)pause.tv_sec) * 1e9);
  nanosleep(&pause, NULL); /* a signal ends it early */
}

static void show(const top_t *top, const scrape_t *before, const scrape_t *now) {
  static char text[FRAME_BYTES_MAX];
  top_frame(before, now, top->target.shown, (double)time(NULL), text);
  if (!top->terminal) {
    printf("%s%s", text, top->once ? "" : "\n");
  } else {
    fputs("\033[H", stdout);
    for (char *line = text, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
      printf("%.*s\033[K\n", (int)(end - line), line); /* the rest of an older line goes */
    }
    fputs("\033[J", stdout);
  }
  fflush(stdout);
}

/* Shows frames until a signal comes, or one of them. Returns the exit status. A server that goes
 * away is waited for, but at the start it must be there. */
static int watch(const top_t *top) {
  static scrape_t pages[2];
  if (!read_page(top, &pages[0])) return 1;
  int last = 0;
  bool good = true;
  if (top->terminal) fputs("\033[?1049h\033[?25l\033[H\033[2J", stdout); /* a screen of its own */
  while (ended == 0) {
    wait_interval(top);
    if (ended != 0) break;
    if (top->terminal && !good) fputs("\033[H\033[2J", stdout);
    fflush(stdout);
    good = read_page(top, &pages[1 - last]);
    if (good) {
      last = 1 - last;
      show(top, &pages[1 - last], &pages[last]);
    }
    if (top->once) break;
  }
  if (top->terminal) fputs("\033[?25h\033[?1049l", stdout);
  return good ? 0 : 1;
}

int top_command(int argc, char **argv) {
  top_t top = {.interval_s = 2};
  config_t config;
  inferd_error_t error = {0};
  if (!read_arguments(&top, &argc, argv)) return EXIT_USAGE;
  int status = 1, code = config_load(&config, argc, argv, &error);
  if (code != 0) {
    fprintf(stderr, "inferd: %s\n", error.message);
    status = error_exit_code(code);
  } else if (client_target_asked(&config, &top.target)) {
    if (config.api_key.count > 0) top.key = config.api_key.items[0];
    if (config.admin_key.count > 0) top.key = config.admin_key.items[0];
    top.terminal = !top.once && isatty(STDOUT_FILENO);
    struct sigaction action = {.sa_handler = on_end};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    status = watch(&top);
  } else {
    status = EXIT_USAGE;
  }
  config_free(&config);
  return status;
}
