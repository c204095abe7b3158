/* rights.h: inside engine/helper: a process gives up what decoding does not need. */
#ifndef INFERD_ENGINE_HELPER_RIGHTS_H
#define INFERD_ENGINE_HELPER_RIGHTS_H

#include <stdbool.h>

/* From here on the process may compute, take memory that is not executable, write to the descriptor
 * `out`, which must not block, and end; opening files fails; any other system call kills it, one
 * that waits as well. Its processor time and its address space are bounded. Returns false if the
 * system refuses one of these: then nothing from outside may be read. Irreversible. A process with
 * one thread. */
bool rights_drop(int out, unsigned cpu_seconds, unsigned memory_mib);

#endif
