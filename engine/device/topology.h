/* topology.h: how many processors and how much memory this process may really use.
 *
 * Reads affinity, cgroup v1 and v2 quotas and limits, and /proc. Any thread; nothing is kept.
 */
#ifndef INFERD_ENGINE_DEVICE_TOPOLOGY_H
#define INFERD_ENGINE_DEVICE_TOPOLOGY_H

#include <stddef.h>
#include <stdint.h>

/* Processors of the affinity mask, cut to the cgroup's cpu quota rounded up. At least 1. */
int topology_num_cpus(void);
/* Limits the calling thread, and those that it starts, to share `index` of `count` of its
 * processors: neighbours as the system numbers them, at least one. */
void topology_take_share(int32_t index, int32_t count);

/* Bytes that can still be taken: MemAvailable or what the tightest memory cgroup leaves, whichever
 * is smaller. 0 when nothing can be read. */
size_t topology_memory_free(void);

/* The same two, read under another root directory than "/": for tests. */
int topology_cgroup_cpus(const char *root);      /* 0 = no quota */
size_t topology_cgroup_memory(const char *root); /* SIZE_MAX = no limit */

#endif
