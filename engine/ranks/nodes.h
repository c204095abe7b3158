/* nodes.h: which processors of a host a rank gets, and which memory: with several NUMA nodes those
 * of its own. Any thread; what is set holds for the calling one, and for those that it starts.
 */
#ifndef INFERD_ENGINE_RANKS_NODES_H
#define INFERD_ENGINE_RANKS_NODES_H

#include <sched.h>
#include <stdint.h>

/* Where Linux describes the nodes. */
#define NODES_ROOT "/sys/devices/system/node"

/* cpus[in, out]: those that all ranks of the host may use; then the share of one of them, at least
 * one. Ranks get whole nodes, or parts of one, never parts of two; neighbours by number where there
 * is one node. Returns the node whose memory is near, -1 = there is one node, or the rank has
 * several. `root`: NODES_ROOT. */
int32_t nodes_share(const char *root, int32_t rank, int32_t size, cpu_set_t *cpus);
/* Memory that is touched from now on comes from that node as long as it has any; -1 does nothing.
 */
void nodes_prefer(int32_t node);

#endif
