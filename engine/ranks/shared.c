/* shared.c: collectives over shared memory: each rank writes its part, all read.
 *
 * Called by one thread of each rank. Every call is one phase or several. Each rank has two slots;
 * phase n uses slot n % 2, and a rank writes to it when all have entered phase n - 1, so no rank
 * still reads what phase n - 2 left there. A rank that waits spins, then yields, then sleeps on
 * the counter of the rank it waits for (futex(2)). While it sleeps it looks at the clock, and
 * whether the process of that rank has ended (pidfd_open(2)).
 */
#include "engine/ranks/shared.h"

#include "engine/base/clock.h"
#include "engine/base/util.h"

#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
  SLOT_BYTES = 1 << 20,
  SPINS = 2000,
  YIELDS = 200,
  SLEEP_NS = 10000000,
  SHARED_MAGIC = 0x52414e4b
};

/* What a rank tells the others; a cache line of its own. */
typedef struct shared_rank {
  _Alignas(64) _Atomic uint32_t phase; /* the last one that it has entered */
  _Atomic uint32_t sleepers;           /* that wait for it */
  _Atomic int32_t pid;                 /* 0 = it has not joined */
} shared_rank_t;

typedef struct shared_region {
  uint32_t magic;
  int32_t size;
  _Atomic int32_t failed; /* 1 + the rank that failed first; 0 = none */
  shared_rank_t ranks[RANKS_MAX];
} shared_region_t;

typedef struct shared {
  comm_t comm; /* first */
  shared_region_t *region;
  size_t mapped;
  uint32_t phase;
  int process[RANKS_MAX]; /* pidfd of a rank; -1 = not opened */
} shared_t;

static size_t region_bytes(int32_t size) {
  return ROUND_UP(sizeof(shared_region_t), 4096) + 2 * (size_t)size * SLOT_BYTES;
}

static uint8_t *slot_of(const shared_t *shared, int32_t rank) {
  const size_t index = (shared->phase % 2) * (size_t)shared->comm.size + (size_t)rank;
  return (uint8_t *)shared->region + ROUND_UP(sizeof(shared_region_t), 4096) + index * SLOT_BYTES;
}

static int fail(shared_t *shared, int32_t rank, const char *what) {
  comm_t *comm = &shared->comm;
  return error_set(&comm->error, ERR_DEVICE_FAILED, NULL, "rank %d of %d: rank %d %s", comm->rank,
                   comm->size, rank, what);
}

/* True when the process of the rank has ended. Threads of this process do not end alone. */
static bool has_ended(shared_t *shared, int32_t rank) {
  const int32_t pid = atomic_load(&shared->region->ranks[rank].pid);
  if (pid == 0 || pid == getpid()) return false;
  if (shared->process[rank] < 0) {
    shared->process[rank] = (int)syscall(SYS_pidfd_open, pid, 0);
    if (shared->process[rank] < 0) return errno == ESRCH;
  }
  struct pollfd ended = {.fd = shared->process[rank], .events = POLLIN};
  return poll(&ended, 1, 0) == 1;
}

static bool has_entered(const shared_t *shared, int32_t rank, uint32_t phase) {
  uint32_t seen = atomic_load_explicit(&shared->region->ranks[rank].phase, memory_order_acquire);
  return (int32_t)(seen - phase) >= 0;
}

/* Sleeps until the rank enters a phase, or for a while. */
static void doze(shared_t *shared, int32_t rank, uint32_t phase) {
  const struct timespec a_while = {.tv_nsec = SLEEP_NS};
  shared_rank_t *of = &shared->region->ranks[rank];
  atomic_fetch_add(&of->sleepers, 1);
  uint32_t seen = atomic_load(&of->phase);
  if ((int32_t)(seen - phase) < 0)
    syscall(SYS_futex, &of->phase, FUTEX_WAIT, seen, &a_while, NULL, 0);
  atomic_fetch_sub(&of->sleepers, 1);
}

/* Waits until the rank has entered the phase. `began_ns` is when the call began; 0 = not asked yet.
 */
static int await(shared_t *shared, int32_t rank, uint32_t phase, uint64_t *began_ns) {
  const int32_t first_failed = atomic_load(&shared->region->failed);
  if (first_failed != 0) return fail(shared, first_failed - 1, "has failed");
  for (int i = 0; i < SPINS; i++)
    if (has_entered(shared, rank, phase)) return 0;
  for (int i = 0; i < YIELDS; i++) {
    sched_yield();
    if (has_entered(shared, rank, phase)) return 0;
  }
  if (*began_ns == 0) *began_ns = clock_now_ns();
  for (;;) {
    const bool ended =
        has_ended(shared, rank); /* before the look: it may have entered, and ended */
    const int32_t failed = atomic_load(&shared->region->failed);
    if (has_entered(shared, rank, phase)) return 0;
    if (failed != 0) return fail(shared, failed - 1, "has failed");
    if (ended) return fail(shared, rank, "has ended");
    const uint64_t limit_ns = shared->comm.limit_ns;
    if (limit_ns > 0 && clock_now_ns() - *began_ns > limit_ns)
      return fail(shared, rank, "does not answer");
    doze(shared, rank, phase);
  }
}

static int await_all(shared_t *shared, uint32_t phase, uint64_t *began_ns) {
  int code = 0;
  for (int32_t r = 0; r < shared->comm.size && code == 0; r++)
    if (r != shared->comm.rank) code = await(shared, r, phase, began_ns);
  return code;
}

/* Says that this rank has entered its phase; what it wrote before is there for the others. */
static void enter(shared_t *shared) {
  shared_rank_t *own = &shared->region->ranks[shared->comm.rank];
  atomic_store(&own->phase, shared->phase);
  if (atomic_load(&own->sleepers) > 0)
    syscall(SYS_futex, &own->phase, FUTEX_WAKE, RANKS_MAX, NULL, NULL, 0);
}

static int shared_barrier(comm_t *comm) {
  shared_t *shared = (shared_t *)comm;
  uint64_t began_ns = 0;
  shared->phase++;
  enter(shared);
  return await_all(shared, shared->phase, &began_ns);
}

/* Bytes of a part that phase number `index` of a call moves. */
static size_t piece(size_t bytes, size_t index) {
  const size_t before = index * SLOT_BYTES;
  return bytes > before ? MIN(bytes - before, (size_t)SLOT_BYTES) : 0;
}

static int shared_gather(comm_t *comm, void *data, const size_t *cuts, int32_t root) {
  shared_t *shared = (shared_t *)comm;
  const int32_t own = comm->rank;
  uint8_t *bytes = data;
  uint64_t began_ns = 0;
  size_t longest = 0;
  int code = 0;
  for (int32_t r = 0; r < comm->size; r++) longest = MAX(longest, cuts[r + 1] - cuts[r]);
  for (size_t i = 0; i * SLOT_BYTES < longest && code == 0; i++) {
    const size_t at = i * SLOT_BYTES;
    code = await_all(shared, shared->phase++, &began_ns);
    if (code != 0) break;
    const size_t mine = piece(cuts[own + 1] - cuts[own], i);
    if (mine > 0) memcpy(slot_of(shared, own), bytes + cuts[own] + at, mine);
    enter(shared);
    for (int32_t r = 0; r < comm->size && code == 0 && (root < 0 || root == own); r++) {
      const size_t some = r != own ? piece(cuts[r + 1] - cuts[r], i) : 0;
      if (some == 0) continue;
      code = await(shared, r, shared->phase, &began_ns);
      if (code == 0) memcpy(bytes + cuts[r] + at, slot_of(shared, r), some);
    }
  }
  return code;
}

static int shared_broadcast(comm_t *comm, void *data, size_t bytes, int32_t root) {
  shared_t *shared = (shared_t *)comm;
  uint64_t began_ns = 0;
  int code = 0;
  for (size_t i = 0; i * SLOT_BYTES < bytes && code == 0; i++) {
    uint8_t *at = (uint8_t *)data + i * SLOT_BYTES;
    const size_t some = piece(bytes, i);
    if (comm->rank == root) {
      code = await_all(shared, shared->phase++, &began_ns);
      if (code == 0) memcpy(slot_of(shared, root), at, some);
      if (code == 0) enter(shared);
    } else {
      shared->phase++;
      enter(shared);
      code = await(shared, root, shared->phase, &began_ns);
      if (code == 0) memcpy(at, slot_of(shared, root), some);
    }
  }
  return code;
}

static void add_part(float *restrict sums, const float *restrict part, size_t count, bool first) {
  if (first)
    memcpy(sums, part, count * sizeof *sums);
  else
    for (size_t i = 0; i < count; i++) sums[i] += part[i];
}

/* Each rank adds up what all have written, in the order of the ranks. */
static int shared_reduce(comm_t *comm, float *values, size_t count) {
  enum { PIECE = SLOT_BYTES / sizeof(float) };
  shared_t *shared = (shared_t *)comm;
  uint64_t began_ns = 0;
  int code = 0;
  comm->num_bytes += (size_t)(comm->size - 1) * count * sizeof *values;
  for (size_t first = 0; first < count && code == 0; first += PIECE) {
    const size_t some = MIN(count - first, (size_t)PIECE);
    float *sums = values + first;
    code = await_all(shared, shared->phase++, &began_ns);
    if (code != 0) break;
    memcpy(slot_of(shared, comm->rank), sums, some * sizeof *sums);
    enter(shared);
    for (int32_t r = 0; r < comm->size && code == 0; r++) {
      const float *part = (const float *)(const void *)slot_of(shared, r);
      if (r != comm->rank) code = await(shared, r, shared->phase, &began_ns);
      if (code == 0) add_part(sums, part, some, r == 0);
    }
  }
  return code;
}

static int shared_check(comm_t *comm) {
  shared_t *shared = (shared_t *)comm;
  const int32_t failed = atomic_load(&shared->region->failed);
  if (failed != 0) return fail(shared, failed - 1, "has failed");
  for (int32_t r = 0; r < comm->size; r++)
    if (r != comm->rank && has_ended(shared, r)) return fail(shared, r, "has ended");
  return 0;
}

static void shared_abandon(comm_t *comm) {
  shared_t *shared = (shared_t *)comm;
  int32_t none = 0;
  atomic_compare_exchange_strong(&shared->region->failed, &none, 1 + comm->rank);
}

static void shared_close(comm_t *comm) {
  shared_t *shared = (shared_t *)comm;
  for (int32_t r = 0; r < comm->size; r++)
    if (shared->process[r] >= 0) close(shared->process[r]);
  munmap(shared->region, shared->mapped);
  free(shared);
}

static const comm_ops_t shared_ops = {.name = "shared memory",
                                      .gather = shared_gather,
                                      .broadcast = shared_broadcast,
                                      .reduce = shared_reduce,
                                      .barrier = shared_barrier,
                                      .check = shared_check,
                                      .abandon = shared_abandon,
                                      .close = shared_close};

int shared_make(int32_t size, int *out, inferd_error_t *error) {
  const size_t bytes = region_bytes(size);
  *out = memfd_create("inferd ranks", MFD_CLOEXEC);
  if (*out < 0 || ftruncate(*out, (off_t)bytes) != 0)
    return error_system(error, "the memory of the ranks", errno);
  shared_region_t *region = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, *out, 0);
  if (region == MAP_FAILED) return error_system(error, "the memory of the ranks", errno);
  region->magic = SHARED_MAGIC;
  region->size = size;
  munmap(region, bytes);
  return 0;
}

int shared_join(int fd, int32_t rank, comm_t **out, inferd_error_t *error) {
  shared_region_t *head = mmap(NULL, sizeof *head, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (head == MAP_FAILED) return error_system(error, "the memory of the ranks", errno);
  const int32_t size = head->magic == SHARED_MAGIC ? head->size : 0;
  munmap(head, sizeof *head);
  if (rank < 0 || rank >= size || size > RANKS_MAX)
    return error_set(error, ERR_USAGE, NULL, "descriptor %d is not the memory of rank %d", fd,
                     rank);
  shared_t *shared = calloc(1, sizeof *shared);
  void *region = mmap(NULL, region_bytes(size), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (shared == NULL || region == MAP_FAILED) {
    if (region != MAP_FAILED) munmap(region, region_bytes(size));
    free(shared);
    return error_set(error, ERR_NO_MEMORY, NULL, "no memory for the ranks");
  }
  shared->comm = (comm_t){.ops = &shared_ops, .rank = rank, .size = size, .local_size = size};
  shared->region = region;
  shared->mapped = region_bytes(size);
  for (int32_t r = 0; r < RANKS_MAX; r++) shared->process[r] = -1;
  atomic_store(&shared->region->ranks[rank].pid, getpid());
  *out = &shared->comm;
  return 0;
}

void shared_expect(comm_t *comm, int32_t rank, int32_t pid) {
  atomic_store(&((shared_t *)comm)->region->ranks[rank].pid, pid);
}
