/* crash.h: what the daemon says when a defect kills it.
 *
 * The handler writes to standard error, then the signal takes its default action, so that a
 * supervisor sees the signal and a core file shows the fault. docs/operations.md shows how to read
 * a report.
 */
#ifndef INFERD_SERVER_OBSERVE_CRASH_H
#define INFERD_SERVER_OBSERVE_CRASH_H

/* Main thread, before there are others: remembers what is loaded where, and installs the handler of
 * FAULT_SIGNALS. It runs on the alternate stacks of engine/base/fault.h. Does nothing in sanitizer
 * builds, whose own reports say more. */
void crash_install(void);
/* What the handler calls behind its report, at most once: only what a handler may do. NULL:
 * nothing. */
void crash_last(void (*function)(void));

#endif
