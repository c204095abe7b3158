/* rights.h: inside engine/picture: a process gives up what decoding does not need. */
#ifndef INFERD_ENGINE_PICTURE_RIGHTS_H
#define INFERD_ENGINE_PICTURE_RIGHTS_H

#include <stdbool.h>

/* From here on the process may compute, take memory that is not executable, write to what is open,
 * and end; any other system call kills it. Its processor time and its address space are bounded.
 * Returns false if the system refuses one of these: then nothing from outside may be read.
 * Irreversible. A process with one thread. */
bool rights_drop(unsigned cpu_seconds, unsigned memory_mib);

#endif
