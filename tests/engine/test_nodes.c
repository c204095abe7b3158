/* test_nodes.c: processors and memory of ranks on hosts with several NUMA nodes, made of files. */
#include "engine/ranks/nodes.h"
#include "tests/expect.h"

#include <linux/mempolicy.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A folder as /sys/devices/system/node, with the lists of nodes 0, 1, ... ; NULL = there is none.
 */
static const char *make_root(const char *const *lists, int count) {
  static char root[64];
  char path[128];
  snprintf(root, sizeof root, "/tmp/inferd-nodes-XXXXXX");
  cr_assert(mkdtemp(root) != NULL);
  for (int n = 0; n < count; n++) {
    if (lists[n] == NULL) continue;
    snprintf(path, sizeof path, "%s/node%d", root, n);
    ASSERT_EQ(mkdir(path, 0700), 0);
    snprintf(path, sizeof path, "%s/node%d/cpulist", root, n);
    FILE *file = fopen(path, "w");
    cr_assert(file != NULL);
    fprintf(file, "%s\n", lists[n]);
    fclose(file);
  }
  return root;
}

static void remove_root(const char *root, int count) {
  char path[128];
  for (int n = 0; n < count; n++) {
    snprintf(path, sizeof path, "%s/node%d/cpulist", root, n);
    remove(path);
    snprintf(path, sizeof path, "%s/node%d", root, n);
    remove(path);
  }
  remove(root);
}

/* "0-1,4": the share of a rank of the processors 0 to `last`. */
static const char *share(const char *root, int last, int32_t rank, int32_t size, int32_t *node) {
  static char text[256];
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  for (int cpu = 0; cpu <= last; cpu++) CPU_SET((size_t)cpu, &cpus);
  *node = nodes_share(root, rank, size, &cpus);
  size_t used = 0;
  text[0] = '\0';
  for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
    if (!CPU_ISSET(cpu, &cpus)) continue;
    used += (size_t)snprintf(text + used, sizeof text - used, "%s%zu", used > 0 ? "," : "", cpu);
  }
  return text;
}

static void expect(const char *root, int last, int32_t rank, int32_t size, const char *cpus,
                   int32_t node) {
  int32_t found;
  const char *text = share(root, last, rank, size, &found);
  cr_assert(strcmp(text, cpus) == 0 && found == node,
            "rank %d of %d: processors %s of node %d, expected %s of node %d", rank, size, text,
            found, cpus, node);
}

Test(nodes, one_rank_a_node) {
  static const char *const lists[] = {"0-1,4-5", NULL, "2-3,6-7"}; /* threads of cores, a gap */
  const char *root = make_root(lists, 3);
  expect(root, 7, 0, 2, "0,1,4,5", 0);
  expect(root, 7, 1, 2, "2,3,6,7", 2);
  expect(root, 3, 1, 2, "2,3", 2); /* others may not be used */
  remove_root(root, 3);
}

Test(nodes, no_rank_has_parts_of_two_nodes) {
  static const char *const lists[] = {"0-3", "4-7"};
  const char *root = make_root(lists, 2);
  expect(root, 7, 0, 3, "0,1", 0);
  expect(root, 7, 1, 3, "2,3", 0);
  expect(root, 7, 2, 3, "4,5,6,7", 1);
  expect(root, 7, 0, 4, "0,1", 0);
  expect(root, 7, 3, 4, "6,7", 1);
  remove_root(root, 2);
}

Test(nodes, few_ranks_have_several_nodes_each) {
  static const char *const lists[] = {"0-1", "2-3", "4-5", "6-7"};
  const char *root = make_root(lists, 4);
  expect(root, 7, 0, 2, "0,1,2,3", -1);
  expect(root, 7, 1, 2, "4,5,6,7", -1);
  expect(root, 7, 0, 3, "0,1", 0);
  expect(root, 7, 2, 3, "4,5,6,7", -1);
  remove_root(root, 4);
}

Test(nodes, neighbours_where_there_is_one_node_or_none_is_described) {
  static const char *const lists[] = {"0-7"};
  const char *root = make_root(lists, 1);
  expect(root, 7, 0, 3, "0,1", -1);
  expect(root, 7, 2, 3, "5,6,7", -1);
  expect(root, 1, 2, 3, "1", -1); /* fewer processors than ranks */
  remove_root(root, 1);
  expect("/no/such/folder", 3, 1, 2, "2,3", -1);
}

/* The policy of this thread: its mode, and the nodes below 64. */
static int policy(unsigned long *nodes) {
  unsigned long mask[1024 / (8 * sizeof(unsigned long))] = {0};
  int mode = -1;
  if (syscall(SYS_get_mempolicy, &mode, mask, sizeof mask * 8, NULL, 0) != 0) return -1;
  *nodes = mask[0];
  return mode;
}

/* Every host has node 0. Where a container may set no policy, there is none afterwards either. */
Test(nodes, memory_of_the_node_is_preferred) {
  const unsigned long node_0 = 1;
  unsigned long nodes = 0;
  const bool allowed =
      syscall(SYS_set_mempolicy, MPOL_PREFERRED, &node_0, sizeof node_0 * 8) == 0 &&
      syscall(SYS_set_mempolicy, MPOL_DEFAULT, NULL, 0) == 0 && policy(&nodes) == MPOL_DEFAULT;
  nodes_prefer(-1);
  if (allowed) ASSERT_EQ(policy(&nodes), MPOL_DEFAULT);
  nodes_prefer(0);
  if (allowed) {
    ASSERT_EQ(policy(&nodes), MPOL_PREFERRED);
    ASSERT_EQ(nodes, node_0);
  }
  void *pages = calloc(64, 4096); /* memory is never refused */
  cr_assert(pages != NULL);
  memset(pages, 1, 64 * 4096);
  free(pages);
}
