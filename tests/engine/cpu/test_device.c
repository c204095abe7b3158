/* test_device.c: opening a device, what it refuses, and what it reads of the machine's limits. */
#include "engine/cpu/isa/kernels.h"
#include "engine/cpu/populate.h"
#include "engine/device/topology.h"
#include "tests/engine/cpu/helper.h"
#include "tests/expect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
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
  ASSERT_EQ(topology_memory_room(root).bytes, 0);
  put(root, "proc/self/cgroup", "0::/a/b\n");
  put(root, "sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
  put(root, "sys/fs/cgroup/a/cpu.max", "250000 100000\n");
  put(root, "sys/fs/cgroup/a/b/memory.max", "max\n");
  put(root, "sys/fs/cgroup/a/memory.max", "1000000\n");
  put(root, "sys/fs/cgroup/a/memory.current", "700000\n");
  put(root, "sys/fs/cgroup/a/memory.stat", "anon 5\ninactive_file 100000\nfile 7\n");
  ASSERT_EQ_FOR(topology_cgroup_cpus(root), 3, "2.5 processors are 3 threads");
  ASSERT_EQ(topology_memory_room(root).bytes, 400000);
  put(root, "sys/fs/cgroup/a/b/cpu.max", "50000 100000\n");
  ASSERT_EQ(topology_cgroup_cpus(root), 1);
  remove_root(root);
}

/* What one view of files gives: room, and words of the limit. */
static void expect_room(const char *root, size_t bytes, const char *limit) {
  const memory_room_t room = topology_memory_room(root);
  EXPECT_EQ_FOR(room.bytes, bytes, "%s", room.limit);
  cr_expect_not_null(strstr(room.limit, limit), "%s is not in %s", limit, room.limit);
  EXPECT_EQ_FOR(room.counts_mappings, strncmp(limit, "ulimit", 6) == 0, "%s", room.limit);
}

#define V2 "sys/fs/cgroup/"
enum { MIB = 1 << 20 };

Test(device, file_cache_and_slab_are_free) {
  char root[32];
  new_root(root);
  put(root, "proc/self/cgroup", "0::/pod/box\n");
  put(root, "proc/meminfo", "MemTotal: 90 kB\nMemAvailable:   33554432 kB\n");
  expect_room(root, (size_t)32 << 30, "MemAvailable");
  put(root, V2 "pod/box/memory.max", "4294967296\n");
  put(root, V2 "pod/box/memory.current", "0\n");
  expect_room(root, (size_t)4096 * MIB, "memory.max 4.00 GiB of /sys/fs/cgroup/pod/box");
  put(root, V2 "pod/box/memory.current", "4187593113\n");
  expect_room(root, 4294967296u - 4187593113u, "memory.max");
  put(root, V2 "pod/box/memory.stat", "anon 7\nfile 4080218931\nactive_file 4080218931\n");
  expect_room(root, 4294967296u - 4187593113u + 4080218931u, "memory.max");
  put(root, V2 "pod/box/memory.stat", "inactive_file 1000\nactive_file 50\nslab_reclaimable 7\n");
  expect_room(root, 4294967296u - 4187593113u + 1057, "memory.max");
  put(root, V2 "pod/box/memory.stat", "file 9999\nshmem 9999\nslab 99\nslab_unreclaimable 99\n");
  expect_room(root, 4294967296u - 4187593113u, "memory.max");
  put(root, V2 "pod/box/memory.stat", "active_file 999999999999\n"); /* more than is used */
  expect_room(root, (size_t)4096 * MIB, "memory.max");
  remove_root(root);
}

Test(device, every_group_above_and_memory_high_count) {
  char root[32];
  new_root(root);
  put(root, "proc/self/cgroup", "0::/a/b/c\n");
  put(root, "proc/meminfo", "MemAvailable: 1048576 kB\n");
  put(root, V2 "a/b/c/memory.max", "max\n");
  put(root, V2 "a/b/c/memory.high", "max\n");
  put(root, V2 "memory.max", "943718400\n");
  expect_room(root, (size_t)900 * MIB, "memory.max 0.88 GiB of /sys/fs/cgroup");
  put(root, V2 "a/memory.max", "838860800\n");
  expect_room(root, (size_t)800 * MIB, "/sys/fs/cgroup/a");
  put(root, V2 "a/b/memory.high", "734003200\n");
  expect_room(root, (size_t)700 * MIB, "memory.high 0.68 GiB of /sys/fs/cgroup/a/b");
  put(root, V2 "a/b/memory.current", "104857600\n");
  expect_room(root, (size_t)600 * MIB, "memory.high");
  put(root, V2 "a/b/c/memory.max", "524288000\n");
  expect_room(root, (size_t)500 * MIB, "/sys/fs/cgroup/a/b/c");
  put(root, V2 "a/b/c/memory.max", "0\n");
  expect_room(root, 0, "/sys/fs/cgroup/a/b/c");
  put(root, V2 "a/b/c/memory.max", "junk\n");
  expect_room(root, (size_t)600 * MIB, "memory.high");
  put(root, "proc/self/cgroup", "0::/../../x\n"); /* of another namespace: the mount alone */
  expect_room(root, (size_t)900 * MIB, "/sys/fs/cgroup");
  remove_root(root);
}

#define LIMITS(space, data)                                                                        \
  "Limit                     Soft Limit           Hard Limit           Units     \n"               \
  "Max data size             " data "            unlimited            bytes     \n"                \
  "Max address space         " space "            unlimited            bytes     \n"

Test(device, limits_of_the_process_count) {
  char root[32];
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  new_root(root);
  put(root, "proc/meminfo", "MemAvailable: 1048576 kB\n");
  put(root, "proc/self/statm", "80000 500 100 5 0 60000 0\n");
  put(root, "proc/self/limits", LIMITS("unlimited", "unlimited"));
  expect_room(root, (size_t)1024 * MIB, "MemAvailable");
  put(root, "proc/self/limits", LIMITS("838860800", "unlimited"));
  expect_room(root, (size_t)800 * MIB - 80000 * page, "ulimit -v 819200");
  put(root, "proc/self/limits", LIMITS("838860800", "314572800"));
  expect_room(root, (size_t)300 * MIB - 60000 * page, "ulimit -d 307200");
  /* What a process that serves will take is counted before it is there. */
  put(root, "proc/self/statm", "1000 500 100 5 0 200 0\n");
  expect_room(root, (size_t)(300 - 192) * MIB, "ulimit -d 307200");
  put(root, "proc/self/limits", LIMITS("838860800", "unlimited"));
  expect_room(root, (size_t)(800 - 192) * MIB, "ulimit -v 819200");
  put(root, "proc/self/limits", LIMITS("1000", "unlimited"));
  expect_room(root, 0, "ulimit -v 0");
  put(root, "proc/self/limits", "junk");
  expect_room(root, (size_t)1024 * MIB, "MemAvailable");
  /* Around the room that -d leaves, 108 MiB, it binds or another limit does. */
  put(root, "proc/self/limits", LIMITS("838860800", "314572800"));
  put(root, "proc/meminfo", "MemAvailable: 110591 kB\n");
  expect_room(root, (size_t)108 * MIB - 1024, "MemAvailable");
  put(root, "proc/meminfo", "MemAvailable: 110592 kB\n");
  expect_room(root, (size_t)108 * MIB, "MemAvailable");
  put(root, "proc/meminfo", "MemAvailable: 110593 kB\n");
  expect_room(root, (size_t)108 * MIB, "ulimit -d 307200");
  remove_root(root);
}

Test(device, reads_pressure_of_the_group_and_of_the_machine) {
  char root[32];
  memory_pressure_t pressure;
  new_root(root);
  cr_assert_not(topology_memory_pressure(root, &pressure));
  put(root, "proc/pressure/memory",
      "some avg10=0.00 total=1500000\nfull avg10=0.00 total=250000\n");
  cr_assert(topology_memory_pressure(root, &pressure));
  ASSERT_EQ(pressure.some_s, 1.5);
  ASSERT_EQ(pressure.full_s, 0.25);
  put(root, "proc/self/cgroup", "0::/a\n");
  put(root, V2 "a/memory.pressure", "some avg10=0.00 total=2000000\nfull avg10=0.00 total=0\n");
  cr_assert(topology_memory_pressure(root, &pressure));
  ASSERT_EQ(pressure.some_s, 2);
  put(root, V2 "a/memory.pressure", "some avg10=0.00\n");
  cr_assert_not(topology_memory_pressure(root, &pressure));
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
  ASSERT_EQ(topology_memory_room(root).bytes, 0);
  put(root, "sys/fs/cgroup/cpu/pod/one/cpu.cfs_quota_us", "400000\n");
  put(root, "sys/fs/cgroup/cpu/pod/one/cpu.cfs_period_us", "100000\n");
  put(root, "sys/fs/cgroup/memory/pod/memory.limit_in_bytes", "5000\n");
  put(root, "sys/fs/cgroup/memory/pod/memory.usage_in_bytes", "6000\n");
  put(root, "sys/fs/cgroup/memory/pod/memory.stat",
      "inactive_file 1\ntotal_inactive_file 2400\ntotal_active_file 100\n");
  ASSERT_EQ(topology_cgroup_cpus(root), 4);
  ASSERT_EQ(topology_memory_room(root).bytes, 1500);
  put(root, "sys/fs/cgroup/memory/pod/memory.stat", "garbage");
  ASSERT_EQ(topology_memory_room(root).bytes, 0);
  remove_root(root);
}

/* The thread that makes the pages of the pool steps aside for steps, and still ends. */
Test(device, the_pool_is_made_while_steps_run) {
  enum { BYTES = 7 << 20, PAGE = 4096 };
  static unsigned char resident[BYTES / PAGE];
  populate_t populate = {.started = false};
  uint8_t *base =
      mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  int made = 0;
  cr_assert(base != MAP_FAILED);
  const bool supported = madvise(base, PAGE, MADV_POPULATE_WRITE) == 0;
  atomic_store(&populate.busy, true);
  populate_start(&populate, base, BYTES);
  cr_assert(populate.started);
  pthread_join(populate.thread, NULL);
  ASSERT_EQ(mincore(base, BYTES, resident), 0);
  for (size_t i = 0; i < BYTES / PAGE; i++) made += resident[i] & 1;
  ASSERT_EQ(made, supported ? BYTES / PAGE : 0);
  munmap(base, BYTES);
}

/* A pool that is given up while steps run does not keep anyone waiting. */
Test(device, a_pool_may_be_left_unmade) {
  enum { BYTES = 1 << 30 };
  populate_t populate = {.started = false};
  uint8_t *base =
      mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  cr_assert(base != MAP_FAILED);
  atomic_store(&populate.busy, true);
  populate_start(&populate, base, BYTES);
  char name[16];
  cr_assert(populate.started);
  if (pthread_getname_np(populate.thread, name, sizeof name) == 0)
    cr_assert_str_eq(name, "populate");
  populate_stop(&populate);
  cr_assert(!populate.started);
  munmap(base, BYTES);
}
