/* progress.c: how far a download is: a bar on a terminal, elsewhere a line every few seconds.
 *
 * Main thread.
 */
#include "server/pull/progress.h"

#include "engine/base/clock.h"
#include "server/observe/notify.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

const char *progress_size(char out[PROGRESS_SIZE_MAX], int64_t bytes) {
  static const char *const units[] = {"B", "kB", "MB", "GB", "TB"};
  double value = (double)bytes;
  int unit = 0;
  for (; value >= 999.5 && unit < 4; unit++) value /= 1000;
  snprintf(out, PROGRESS_SIZE_MAX, unit > 0 && value < 99.95 ? "%.1f %s" : "%.0f %s", value,
           units[unit]);
  return out;
}

void progress_start(progress_t *progress, const char *id, int64_t total, int64_t before) {
  uint64_t now_ns = clock_now_ns();
  *progress = (progress_t){.total = total,
                           .before = before,
                           .done = before,
                           .id = id,
                           .terminal = isatty(STDERR_FILENO) == 1,
                           .start_ns = now_ns,
                           .shown_ns = now_ns,
                           .mark_ns = now_ns,
                           .mark = before};
}

/* Averages over the last seconds, so that the rate follows the line and does not jump. */
static void measure(progress_t *progress, uint64_t now_ns) {
  enum { WINDOW_MS = 1000 };
  double seconds = (double)(now_ns - progress->mark_ns) * 1e-9;
  if (seconds * 1000 < WINDOW_MS) return;
  double rate = (double)(progress->done - progress->mark) / seconds;
  if (rate < 0) rate = 0; /* a file with a wrong sum begins anew */
  progress->rate = progress->rate > 0 ? 0.7 * progress->rate + 0.3 * rate : rate;
  progress->mark_ns = now_ns;
  progress->mark = progress->done;
}

static const char *remaining(const progress_t *progress, char out[32]) {
  if (progress->rate < 1) return snprintf(out, 32, "--:--"), out;
  double left = (double)(progress->total - progress->done) / progress->rate;
  long seconds = left < 359999 ? (long)left : 359999; /* 99:59:59 */
  if (seconds >= 3600) {
    snprintf(out, 32, "%ld:%02ld:%02ld", seconds / 3600, seconds / 60 % 60, seconds % 60);
  } else {
    snprintf(out, 32, "%02ld:%02ld", seconds / 60, seconds % 60);
  }
  return out;
}

/* Tells systemd that the start makes progress, while bytes arrive. */
static void tell_manager(progress_t *progress, uint64_t now_ns) {
  if (progress->done <= progress->told || now_ns - progress->told_ns < 1000000000u) return;
  char done[PROGRESS_SIZE_MAX], total[PROGRESS_SIZE_MAX];
  notify_send("STATUS=Downloading %s, %s of %s\nEXTEND_TIMEOUT_USEC=60000000", progress->id,
              progress_size(done, progress->done), progress_size(total, progress->total));
  progress->told_ns = now_ns;
  progress->told = progress->done;
}

void progress_show(progress_t *progress) {
  enum { BAR_MS = 200, LINE_MS = 5000, BAR_MAX = 24 };
  uint64_t now_ns = clock_now_ns();
  measure(progress, now_ns);
  tell_manager(progress, now_ns);
  uint64_t pause_ms = progress->terminal ? BAR_MS : LINE_MS;
  if (now_ns - progress->shown_ns < pause_ms * 1000000) return;
  progress->shown_ns = now_ns;
  char done[PROGRESS_SIZE_MAX], total[PROGRESS_SIZE_MAX], rate[PROGRESS_SIZE_MAX], left[32];
  double share = progress->total > 0 ? (double)progress->done / (double)progress->total : 1;
  progress_size(done, progress->done);
  progress_size(total, progress->total);
  progress_size(rate, (int64_t)progress->rate);
  remaining(progress, left);
  if (!progress->terminal) {
    fprintf(stderr, "inferd: %s: %.0f%%, %s of %s, %s/s, %s left\n", progress->id, 100 * share,
            done, total, rate, left);
    return;
  }
  static const char full[] = "########################", empty[] = "........................";
  int filled = (int)(share * BAR_MAX);
  fprintf(stderr, "\r%.*s%.*s %3.0f%%  %s of %s  %s/s  %s left\033[K", filled, full,
          BAR_MAX - filled, empty, 100 * share, done, total, rate, left);
  progress->bar = true;
}

void progress_clear(progress_t *progress) {
  if (progress->bar) fputs("\r\033[K", stderr);
  progress->bar = false;
}

void progress_end(progress_t *progress) {
  char came[PROGRESS_SIZE_MAX], rate[PROGRESS_SIZE_MAX];
  double seconds = (double)(clock_now_ns() - progress->start_ns) * 1e-9;
  int64_t bytes = progress->done - progress->before;
  progress_clear(progress);
  fprintf(stderr, "inferd: %s: %s in %.1f s, %s/s\n", progress->id, progress_size(came, bytes),
          seconds, progress_size(rate, (int64_t)((double)bytes / (seconds > 1e-3 ? seconds : 1))));
}
