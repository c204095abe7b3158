/* priority.h: the priority of a line for systemd's journal. Any thread.
 *
 * Apart from log.h, because `inferd pull` and commands write to standard error without a log.
 */
#ifndef INFERD_SERVER_OBSERVE_PRIORITY_H
#define INFERD_SERVER_OBSERVE_PRIORITY_H

typedef enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG } log_level_t;

/* "<3>" to "<7>" (sd-daemon(3)), a static text. */
const char *priority_of(log_level_t level);

/* The same if the journal reads standard error, else "". A line that begins with it gets that
 * priority, so that `journalctl -p warning` finds it. */
const char *log_priority(log_level_t level);

#endif
