/* heap.h: how many bytes the code under test asks the heap for. The programs of the rooms `file`
 * and `model` are linked so that every call of their own code is counted. Any thread.
 */
#ifndef INFERD_TESTS_HEAP_H
#define INFERD_TESTS_HEAP_H

#include <stddef.h>

/* Begins to count at 0. */
void heap_restart(void);
/* Bytes that were asked for since, with those that were freed again: a bound of the memory, and of
 * the work that went into filling it. */
size_t heap_asked(void);

#endif
