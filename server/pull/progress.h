/* progress.h: how far a download is: a bar on a terminal, elsewhere a line every few seconds.
 *
 * Main thread; writes to standard error. Tells a service manager that bytes arrive, so that it
 * waits for a start that downloads first.
 */
#ifndef INFERD_SERVER_PULL_PROGRESS_H
#define INFERD_SERVER_PULL_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

enum { PROGRESS_SIZE_MAX = 32 };

typedef struct progress {
  int64_t total;  /* bytes of all files that were not there */
  int64_t before; /* of these, what earlier downloads had left */
  int64_t done;   /* of these, what is here now */
  const char *id;
  bool terminal, bar; /* bar: one stands on the terminal */
  uint64_t start_ns, shown_ns, told_ns;
  int64_t told;
  uint64_t mark_ns; /* for the rate of the last seconds */
  int64_t mark;
  double rate; /* bytes a second */
} progress_t;

void progress_start(progress_t *progress, const char *id, int64_t total, int64_t before);
/* Shows the state when it is time. */
void progress_show(progress_t *progress);
/* Takes the bar away, so that a line can follow. */
void progress_clear(progress_t *progress);
/* Says how much came in which time. */
void progress_end(progress_t *progress);
/* Writes "12.3 GB", as the hub shows sizes. Returns `out`. */
const char *progress_size(char out[PROGRESS_SIZE_MAX], int64_t bytes);

#endif
