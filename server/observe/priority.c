/* priority.c: whether systemd's journal reads standard error, and how it is told priorities.
 *
 * Any thread; it keeps no state and never writes.
 */
#include "server/observe/priority.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

const char *priority_of(log_level_t level) {
  static const char *const priorities[] = {"<3>", "<4>", "<6>", "<7>"};
  return priorities[level];
}

const char *log_priority(log_level_t level) {
  unsigned long long device, inode;
  struct stat status;
  const char *stream = getenv("JOURNAL_STREAM"); /* systemd.exec(5): DEVICE:INODE */
  bool journal = stream != NULL && sscanf(stream, "%llu:%llu", &device, &inode) == 2 &&
                 fstat(STDERR_FILENO, &status) == 0 && status.st_dev == device &&
                 status.st_ino == inode;
  return journal ? priority_of(level) : "";
}
