/* topology.c: processors and memory that this process may use; see topology.h.
 *
 * Keeps no state. Called while a device is opened and when memory is planned, never in a step. A
 * file that is missing or unreadable means "no limit", because containers show different files.
 */
#include "engine/device/topology.h"

#include "engine/base/util.h"

#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_MAX_BYTES = 1024, LEVELS_MAX = 32, CPU_SET_MAX = 8192 };

/* Reads a small file into `text`, always terminated. False when it cannot be read. Takes no memory,
 * of which there may be none. */
static bool read_text(const char *path, char *text, size_t capacity) {
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  size_t length = 0;
  ssize_t got = file < 0 ? 0 : 1;
  while (got > 0 && length < capacity - 1) {
    got = read(file, text + length, capacity - 1 - length);
    length += got > 0 ? (size_t)got : 0;
  }
  if (file >= 0) close(file);
  text[length] = '\0';
  return length > 0;
}

/* Path of the process inside the hierarchy of `controller` ("" = version 2), from lines such as
 * "4:memory:/a/b" and "0::/a/b". */
static bool cgroup_path(const char *root, const char *controller, char *out, size_t capacity) {
  char path[PATH_MAX_BYTES], text[4096];
  snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
  if (!read_text(path, text, sizeof text)) return false;
  char *save = NULL;
  for (char *line = strtok_r(text, "\n", &save); line != NULL; line = strtok_r(NULL, "\n", &save)) {
    char *names = strchr(line, ':');
    char *where = names != NULL ? strchr(names + 1, ':') : NULL;
    if (where == NULL) continue;
    *where = '\0';
    bool match = false;
    if (controller[0] == '\0') {
      match = names[1] == '\0';
    } else {
      char *rest = NULL;
      for (char *n = strtok_r(names + 1, ",", &rest); n != NULL; n = strtok_r(NULL, ",", &rest))
        match = match || strcmp(n, controller) == 0;
    }
    if (!match) continue;
    snprintf(out, capacity, "%s", where + 1);
    return true;
  }
  return false;
}

/* Directories from the process's own group up to the mount point. Inside a container the path of
 * /proc/self/cgroup may not exist under the mount: then only the mount point itself counts. */
typedef struct levels {
  char mount[PATH_MAX_BYTES];
  char path[PATH_MAX_BYTES]; /* "/a/b", cut by one component at each step; "" = mount point */
  bool done;
} levels_t;

static bool levels_start(levels_t *levels, const char *root, const char *controller) {
  levels->done = false;
  snprintf(levels->mount, sizeof levels->mount, "%s/sys/fs/cgroup%s%s", root,
           controller[0] ? "/" : "", controller);
  if (!cgroup_path(root, controller, levels->path, sizeof levels->path)) levels->path[0] = '\0';
  if (strstr(levels->path, "..") != NULL) levels->path[0] = '\0';
  return access(levels->mount, F_OK) == 0;
}

/* Writes the path of `file` in the current directory and moves up. False past the mount point. */
static bool levels_next(levels_t *levels, const char *file, char *out, size_t capacity) {
  if (levels->done) return false;
  size_t length = strlen(levels->path);
  while (length > 0 && levels->path[length - 1] == '/') levels->path[--length] = '\0';
  int written = snprintf(out, capacity, "%s%s/%s", levels->mount, levels->path, file);
  if (length == 0) levels->done = true;
  while (length > 0 && levels->path[length - 1] != '/') levels->path[--length] = '\0';
  return written > 0 && (size_t)written < capacity;
}

static void quota_min(int *best, double quota, double period) {
  if (quota <= 0 || period <= 0) return;
  double cpus = quota / period;
  int whole = cpus >= CPU_SET_MAX ? CPU_SET_MAX : (int)cpus;
  if (whole < cpus) whole++;
  if (*best == 0 || whole < *best) *best = whole;
}

int topology_cgroup_cpus(const char *root) {
  int best = 0;
  levels_t levels;
  char path[2 * PATH_MAX_BYTES + 64], text[128];
  if (levels_start(&levels, root, "")) {
    for (int i = 0; i < LEVELS_MAX && levels_next(&levels, "cpu.max", path, sizeof path); i++) {
      double quota = 0, period = 0;
      if (read_text(path, text, sizeof text) && sscanf(text, "%lf %lf", &quota, &period) == 2)
        quota_min(&best, quota, period);
    }
  }
  if (levels_start(&levels, root, "cpu")) {
    for (int i = 0; i < LEVELS_MAX && levels_next(&levels, "cpu.cfs_quota_us", path, sizeof path);
         i++) {
      if (!read_text(path, text, sizeof text)) continue;
      double quota = strtod(text, NULL);
      size_t stem = strlen(path) - strlen("quota_us");
      snprintf(path + stem, sizeof path - stem, "period_us");
      if (read_text(path, text, sizeof text)) quota_min(&best, quota, strtod(text, NULL));
    }
  }
  return best;
}

/* Value of `key` in a file of "key value" lines, or 0. */
static unsigned long long keyed_value(const char *text, const char *key) {
  size_t length = strlen(key);
  for (const char *line = text; line != NULL && *line; line = strchr(line, '\n')) {
    if (*line == '\n') line++;
    if (strncmp(line, key, length) == 0 && (line[length] == ' ' || line[length] == ':'))
      return strtoull(line + length + 1, NULL, 10);
  }
  return 0;
}

typedef struct memory_files {
  const char *controller, *limit, *usage, *reclaimable[3];
} memory_files_t;

/* Takes `bytes` if that is less room than is known so far, and returns true; the words say what
 * leaves so little. */
__attribute__((format(printf, 3, 4))) static bool room_bound(memory_room_t *room, size_t bytes,
                                                             const char *format, ...) {
  if (bytes >= room->bytes) return false;
  room->bytes = bytes;
  room->counts_mappings = false;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(room->limit, sizeof room->limit, format, arguments);
  va_end(arguments);
  return true;
}

/* What the group with the limit file `path` has left: limit - usage + what the kernel gives back
 * before it kills: pages of files, whether used lately or not, and reclaimable slab. Pages of
 * shared memory count as cache in `file`, but not in these. */
static void room_in_group(memory_room_t *room, char *path, size_t capacity, const char *root,
                          const memory_files_t *files) {
  char text[16384];
  if (!read_text(path, text, sizeof text)) return;
  unsigned long long limit = 0;
  if (sscanf(text, "%llu", &limit) != 1 || limit >= (1ull << 60)) return; /* "max" */
  const size_t stem = strlen(path) - strlen(files->limit);
  snprintf(path + stem, capacity - stem, "%s", files->usage);
  unsigned long long usage = 0, cache = 0;
  if (!read_text(path, text, sizeof text) || sscanf(text, "%llu", &usage) != 1) usage = 0;
  snprintf(path + stem, capacity - stem, "memory.stat");
  if (read_text(path, text, sizeof text)) {
    for (size_t i = 0; i < ARRAY_LEN(files->reclaimable) && files->reclaimable[i] != NULL; i++)
      cache += keyed_value(text, files->reclaimable[i]);
  }
  unsigned long long busy = usage > cache ? usage - cache : 0;
  room_bound(room, limit > busy ? (size_t)(limit - busy) : 0, "%s %.2f GiB of %.*s", files->limit,
             (double)limit / (1 << 30), (int)(stem - 1 - strlen(root)), path + strlen(root));
}

static void room_in_groups(memory_room_t *room, const char *root) {
  static const memory_files_t versions[] = {
      {"", "memory.max", "memory.current", {"inactive_file", "active_file", "slab_reclaimable"}},
      {"", "memory.high", "memory.current", {"inactive_file", "active_file", "slab_reclaimable"}},
      {"memory",
       "memory.limit_in_bytes",
       "memory.usage_in_bytes",
       {"total_inactive_file", "total_active_file"}},
  };
  for (size_t v = 0; v < ARRAY_LEN(versions); v++) {
    levels_t levels;
    char path[2 * PATH_MAX_BYTES + 64];
    if (!levels_start(&levels, root, versions[v].controller)) continue;
    for (int i = 0; i < LEVELS_MAX && levels_next(&levels, versions[v].limit, path, sizeof path);
         i++)
      room_in_group(room, path, sizeof path, root, &versions[v]);
  }
}

/* The soft limit of a row of /proc/self/limits; SIZE_MAX = none. */
static size_t soft_limit(const char *text, const char *row) {
  unsigned long long bytes;
  const char *at = strstr(text, row);
  return at != NULL && sscanf(at + strlen(row), "%llu", &bytes) == 1 ? (size_t)bytes : SIZE_MAX;
}

/* What ulimit -v and ulimit -d leave. */
static void room_in_process(memory_room_t *room, const char *root) {
  char path[PATH_MAX_BYTES], text[4096], sizes[256];
  unsigned long long all = 0, data = 0;
  snprintf(path, sizeof path, "%s/proc/self/limits", root);
  if (!read_text(path, text, sizeof text)) return;
  snprintf(path, sizeof path, "%s/proc/self/statm", root);
  if (!read_text(path, sizes, sizeof sizes) ||
      sscanf(sizes, "%llu %*u %*u %*u %*u %llu", &all, &data) != 2)
    return;
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  const size_t space = soft_limit(text, "Max address space"),
               own = soft_limit(text, "Max data size");
  if (space != SIZE_MAX) {
    const size_t taken = MAX((size_t)all * page, (size_t)TOPOLOGY_PROCESS_MIB << 20);
    room->addresses = space > taken ? space - taken : 0;
    if (room_bound(room, room->addresses, "ulimit -v %zu", space / 1024))
      room->counts_mappings = true;
  }
  if (own != SIZE_MAX) {
    const size_t taken = MAX((size_t)data * page, (size_t)TOPOLOGY_PROCESS_MIB << 20);
    if (room_bound(room, own > taken ? own - taken : 0, "ulimit -d %zu", own / 1024))
      room->counts_mappings = true;
  }
}

memory_room_t topology_memory_room(const char *root) {
  char path[PATH_MAX_BYTES], text[8192];
  memory_room_t room = {.bytes = SIZE_MAX, .addresses = SIZE_MAX};
  snprintf(path, sizeof path, "%s/proc/meminfo", root);
  if (read_text(path, text, sizeof text) && strstr(text, "MemAvailable:") != NULL)
    room_bound(&room, (size_t)keyed_value(text, "MemAvailable") * 1024, "MemAvailable");
  room_in_groups(&room, root);
  room_in_process(&room, root);
  if (room_bound(&room, SIZE_MAX - 1, "no known limit")) room.bytes = 0;
  return room;
}

bool topology_memory_pressure(const char *root, memory_pressure_t *out) {
  levels_t levels;
  char path[2 * PATH_MAX_BYTES + 64], text[512];
  unsigned long long some, full;
  bool read = levels_start(&levels, root, "") &&
              levels_next(&levels, "memory.pressure", path, sizeof path) &&
              read_text(path, text, sizeof text);
  if (!read) {
    snprintf(path, sizeof path, "%s/proc/pressure/memory", root);
    read = read_text(path, text, sizeof text);
  }
  const char *first = read ? strstr(text, "some ") : NULL,
             *second = read ? strstr(text, "full ") : NULL;
  if (first == NULL || second == NULL || (first = strstr(first, "total=")) == NULL ||
      (second = strstr(second, "total=")) == NULL || sscanf(first, "total=%llu", &some) != 1 ||
      sscanf(second, "total=%llu", &full) != 1)
    return false;
  *out = (memory_pressure_t){(double)some * 1e-6, (double)full * 1e-6};
  return true;
}

int topology_num_cpus(void) {
  int cpus = 1;
  cpu_set_t *set = CPU_ALLOC(CPU_SET_MAX);
  size_t size = CPU_ALLOC_SIZE(CPU_SET_MAX);
  if (set != NULL) {
    CPU_ZERO_S(size, set);
    if (sched_getaffinity(0, size, set) == 0) cpus = CPU_COUNT_S(size, set);
    CPU_FREE(set);
  }
  int quota = topology_cgroup_cpus("");
  if (quota > 0 && quota < cpus) cpus = quota;
  return MAX(1, cpus);
}

void topology_take_share(int32_t index, int32_t count) {
  cpu_set_t all, own;
  if (sched_getaffinity(0, sizeof all, &all) != 0) return;
  const int total = CPU_COUNT(&all);
  int first = total * index / count, end = total * (index + 1) / count, at = 0;
  if (end == first) first = index % total, end = first + 1;
  CPU_ZERO(&own);
  for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
    if (!CPU_ISSET(cpu, &all)) continue;
    if (at >= first && at < end) CPU_SET(cpu, &own);
    at++;
  }
  (void)sched_setaffinity(0, sizeof own, &own);
}

size_t topology_memory_free(void) {
  return topology_memory_room("").bytes;
}
