/* nodes.c: reads the NUMA nodes of this host and shares them out. Uses no library of NUMA. */
#include "engine/ranks/nodes.h"

#include <linux/mempolicy.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { NODES_MAX = 64 };

/* "0-3,8-11" */
static void read_list(FILE *file, cpu_set_t *out) {
  unsigned first, last;
  int found;
  CPU_ZERO(out);
  while ((found = fscanf(file, "%u-%u", &first, &last)) >= 1) {
    if (found == 1) last = first;
    for (unsigned cpu = first; cpu <= last && cpu < CPU_SETSIZE; cpu++) CPU_SET(cpu, out);
    if (fgetc(file) != ',') break;
  }
}

/* The nodes that have some of the processors. Returns how many. */
static int32_t read_nodes(const char *root, const cpu_set_t *all, cpu_set_t *nodes,
                          int32_t *numbers) {
  int32_t count = 0;
  for (int32_t n = 0; n < NODES_MAX; n++) {
    char path[512];
    snprintf(path, sizeof path, "%s/node%d/cpulist", root, n);
    FILE *file = fopen(path, "r");
    if (file == NULL) continue;
    read_list(file, &nodes[count]);
    fclose(file);
    CPU_AND(&nodes[count], &nodes[count], all);
    numbers[count] = n;
    count += CPU_COUNT(&nodes[count]) > 0;
  }
  return count;
}

/* Neighbours by number: share `index` of `count`, at least one. */
static void take_part(cpu_set_t *cpus, int32_t index, int32_t count) {
  const int have = CPU_COUNT(cpus);
  int first = have * index / count, end = have * (index + 1) / count, at = 0;
  if (end == first) first = index % have, end = first + 1;
  for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
    if (!CPU_ISSET(cpu, cpus)) continue;
    if (at < first || at >= end) CPU_CLR(cpu, cpus);
    at++;
  }
}

int32_t nodes_share(const char *root, int32_t rank, int32_t size, cpu_set_t *cpus) {
  cpu_set_t nodes[NODES_MAX];
  int32_t numbers[NODES_MAX];
  const int32_t count = read_nodes(root, cpus, nodes, numbers);
  if (count < 2) {
    take_part(cpus, rank, size);
    return -1;
  }
  if (size < count) {
    const int32_t first = count * rank / size, end = count * (rank + 1) / size;
    CPU_ZERO(cpus);
    for (int32_t n = first; n < end; n++) CPU_OR(cpus, cpus, &nodes[n]);
    return end - first == 1 ? numbers[first] : -1;
  }
  const int32_t node = rank * count / size;
  int32_t before = 0, same = 0; /* ranks of this node */
  for (int32_t r = 0; r < size; r++) {
    const int32_t theirs = r * count / size == node;
    same += theirs;
    before += theirs && r < rank;
  }
  *cpus = nodes[node];
  take_part(cpus, before, same);
  return numbers[node];
}

void nodes_prefer(int32_t node) {
  if (node < 0 || node >= NODES_MAX) return;
  const unsigned long mask[2] = {1UL << node, 0};
  (void)syscall(SYS_set_mempolicy, MPOL_PREFERRED, mask, sizeof mask * 8);
}
