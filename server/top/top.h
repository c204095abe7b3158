/* top.h: `inferd top`, a view of a running server in a terminal. */
#ifndef INFERD_SERVER_TOP_TOP_H
#define INFERD_SERVER_TOP_TOP_H

#include "server/top/scrape.h"

#include <stddef.h>

enum { FRAME_BYTES_MAX = 16 * 1024 };

/* Prints what happened between two pages, as lines of text of at most 80 columns; `shown` is the
 * address. Control characters of names and labels become '?'. Returns the length. Pure. */
size_t top_frame(const scrape_t *before, const scrape_t *now, const char *shown, double unix_time,
                 char out[FRAME_BYTES_MAX]);

/* The sub-command: `inferd top [URL] [--interval TIME] [--once] [flags]`. Returns its exit status.
 */
int top_command(int argc, char **argv);

#endif
