/* test_device.c: opening a device, what it refuses, and what it reads of the machine's limits. */
#include "engine/cpu/isa/kernels.h"
#include "engine/device/topology.h"
#include "tests/engine/cpu/helper.h"
#include "tests/expect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int open_with(const char *isa, int threads, inferd_error_t *error) {
  device_t *device = NULL;
  device_options_t options = {.num_threads = threads, .isa = isa};
  int status = ops_cpu.open(&options, &device, error);
  if (status == 0)
    ops_cpu.close(device);
  else
    cr_assert_null(device);
  return status;
}

Test(device, names_what_it_cannot_give) {
  inferd_error_t error;
  ASSERT_EQ(open_with("sse9", 1, &error), ERR_CONFIGURATION);
  cr_assert_not_null(strstr(error.message, "sse9"), "%s", error.message);
  cr_assert_not_null(strstr(error.message, "portable"), "%s", error.message);
  ASSERT_EQ(open_with("", 1, &error), ERR_CONFIGURATION);
  ASSERT_EQ(open_with("portable", -1, &error), ERR_CONFIGURATION);
  ASSERT_EQ(open_with("portable", 1 << 20, &error), ERR_CONFIGURATION);
#if defined(__x86_64__)
  ASSERT_EQ(open_with("neon", 1, &error), ERR_CONFIGURATION);
  cr_assert_not_null(strstr(error.message, "neon"), "%s", error.message);
#endif
}

Test(device, describes_itself) {
  device_t *device = device_open("portable", 3);
  ASSERT_STR_EQ(ops_cpu.describe(device), "3 threads, portable");
  ASSERT_GT(ops_cpu.memory_free(device), (size_t)1 << 20);
  ops_cpu.close(device);
  device = device_open("auto", 1);
  ASSERT_EQ(strncmp(ops_cpu.describe(device), "1 thread, ", 10), 0);
  ops_cpu.close(device);
  device = device_open(NULL, 0);
  char expected[32];
  snprintf(expected, sizeof expected, "%d thread", topology_num_cpus());
  ASSERT_EQ(strncmp(ops_cpu.describe(device), expected, strlen(expected)), 0);
  ops_cpu.close(device);
}

static const void *no_row(void *context, int64_t row, void *scratch) {
  (void)context, (void)scratch;
  static float values[8];
  return row == 70 ? NULL : values;
}

Test(device, refuses_weights_that_cannot_be) {
  device_t *device = device_open("portable", 2);
  weight_t *weight;
  vector_t *vector;
  inferd_error_t error;
  weight_source_t source = {.name = "w", .rows = 100, .cols = 8, .dtype = DTYPE_F32, .row = no_row};
  ASSERT_EQ(ops_cpu.weight(device, &source, &weight, &error), ERR_IO);
  cr_assert_not_null(strstr(error.message, "w"));
  source.rows = 0;
  ASSERT_EQ(ops_cpu.weight(device, &source, &weight, &error), ERR_MODEL_MALFORMED);
  source.rows = (int64_t)1 << 40;
  ASSERT_EQ(ops_cpu.weight(device, &source, &weight, &error), ERR_MODEL_MALFORMED);
  ASSERT_EQ(ops_cpu.vector(device, NULL, 0, &vector, &error), ERR_MODEL_MALFORMED);
  cr_assert_null(ops_cpu.buffer(device, (int64_t)1 << 40, (int64_t)1 << 40));
  ops_cpu.close(device);
}

/* A root directory with the files of a container. */
static void put(const char *root, const char *path, const char *text) {
  char full[512];
  snprintf(full, sizeof full, "%s/%s", root, path);
  for (char *slash = full + strlen(root) + 1; (slash = strchr(slash, '/')); slash++) {
    *slash = '\0';
    mkdir(full, 0700);
    *slash = '/';
  }
  FILE *file = fopen(full, "w");
  cr_assert_not_null(file, "%s", full);
  fputs(text, file);
  fclose(file);
}

static void new_root(char *root) {
  strcpy(root, "/tmp/test-topology-XXXXXX");
  cr_assert_not_null(mkdtemp(root));
}

static void remove_root(const char *root) {
  char command[64];
  snprintf(command, sizeof command, "rm -rf %s", root);
  ASSERT_EQ(system(command), 0);
}

Test(device, reads_cgroup_2) {
  char root[32];
  new_root(root);
  ASSERT_EQ(topology_cgroup_cpus(root), 0);
  ASSERT_EQ(topology_cgroup_memory(root), SIZE_MAX);
  put(root, "proc/self/cgroup", "0::/a/b\n");
  put(root, "sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
  put(root, "sys/fs/cgroup/a/cpu.max", "250000 100000\n");
  put(root, "sys/fs/cgroup/a/b/memory.max", "max\n");
  put(root, "sys/fs/cgroup/a/memory.max", "1000000\n");
  put(root, "sys/fs/cgroup/a/memory.current", "700000\n");
  put(root, "sys/fs/cgroup/a/memory.stat", "anon 5\ninactive_file 100000\nfile 7\n");
  ASSERT_EQ_FOR(topology_cgroup_cpus(root), 3, "2.5 processors are 3 threads");
  ASSERT_EQ(topology_cgroup_memory(root), 400000);
  put(root, "sys/fs/cgroup/a/b/cpu.max", "50000 100000\n");
  ASSERT_EQ(topology_cgroup_cpus(root), 1);
  remove_root(root);
}

Test(device, reads_cgroup_1) {
  char root[32];
  new_root(root);
  put(root, "proc/self/cgroup", "5:cpu,cpuacct:/pod/one\n4:memory:/pod/one\n");
  put(root, "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  put(root, "sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  put(root, "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  ASSERT_EQ(topology_cgroup_cpus(root), 0);
  ASSERT_EQ(topology_cgroup_memory(root), SIZE_MAX);
  put(root, "sys/fs/cgroup/cpu/pod/one/cpu.cfs_quota_us", "400000\n");
  put(root, "sys/fs/cgroup/cpu/pod/one/cpu.cfs_period_us", "100000\n");
  put(root, "sys/fs/cgroup/memory/pod/memory.limit_in_bytes", "5000\n");
  put(root, "sys/fs/cgroup/memory/pod/memory.usage_in_bytes", "6000\n");
  put(root, "sys/fs/cgroup/memory/pod/memory.stat", "inactive_file 1\ntotal_inactive_file 2500\n");
  ASSERT_EQ(topology_cgroup_cpus(root), 4);
  ASSERT_EQ(topology_cgroup_memory(root), 1500);
  put(root, "sys/fs/cgroup/memory/pod/memory.stat", "garbage");
  ASSERT_EQ(topology_cgroup_memory(root), 0);
  remove_root(root);
}
