/* topology.h: how many processors and how much memory this process may really use.
 *
 * Reads affinity, cgroup v1 and v2 quotas and limits, and /proc. Any thread; nothing is kept.
 */
#ifndef INFERD_ENGINE_DEVICE_TOPOLOGY_H
#define INFERD_ENGINE_DEVICE_TOPOLOGY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Processors of the affinity mask, cut to the cgroup's cpu quota rounded up. At least 1. */
int topology_num_cpus(void);
/* Limits the calling thread, and those that it starts, to share `index` of `count` of its
 * processors: neighbours as the system numbers them, at least one. */
void topology_take_share(int32_t index, int32_t count);

/* What libraries, and heaps and stacks of threads take of the address space while a model is
 * served: counted before they are there, so that `check` and `serve` plan the same. */
enum { TOPOLOGY_PROCESS_MIB = 192 };

/* How much memory can still be taken, and the limit that leaves no more, in words. */
typedef struct memory_room {
  size_t bytes;         /* 0 when nothing can be read */
  bool counts_mappings; /* the limit is of addresses (ulimit), whether they are touched or not */
  size_t addresses;     /* what ulimit -v leaves, also for files that are mapped; SIZE_MAX = all */
  char limit[192];
} memory_room_t;

/* The smallest of MemAvailable, of what every memory cgroup from the process's own up to the mount
 * leaves (memory.max, memory.high, memory.limit_in_bytes; file cache and reclaimable slab count as
 * free) and of what ulimit -v and -d leave. `root` "": this machine; else a directory for tests. */
memory_room_t topology_memory_room(const char *root);
size_t topology_memory_free(void); /* its bytes */

/* Seconds since the start in which some, or all, tasks waited for memory: of the process's own
 * cgroup, else of the machine. False when the kernel does not say. */
typedef struct memory_pressure {
  double some_s, full_s;
} memory_pressure_t;
bool topology_memory_pressure(const char *root, memory_pressure_t *out);

/* The processors, read under another root directory than "/": for tests. */
int topology_cgroup_cpus(const char *root); /* 0 = no quota */

#endif
