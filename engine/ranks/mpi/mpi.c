/* mpi.c: collectives by MPI: a shared object of its own, inferd-mpi.so, beside the daemon.
 *
 * mpicc makes it, so the daemon needs no MPI: mpi_open.c opens it at run time. It uses no function
 * of the daemon. Calls are those of comm.h, from one thread at a time. Every collective is one that
 * does not block: this file tests whether it has ended, and gives up at the limit, or when a rank
 * of this host has ended: mpirun notices that, too, and takes seconds to end the others. What MPI
 * itself finds ends the process through its own handler, and mpirun ends the other ranks.
 */
#include "engine/ranks/mpi/mpi_open.h"

#include <limits.h>
#include <mpi.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
  EXIT_RANK_LOST = 71, /* as the daemon's for a lost device */
  TESTS = 2000,
  YIELDS = 2000,
  PAUSE_NS = 50000,
  LOOK_NS = 10000000,
  PIECE = 1 << 20,      /* values that are added up at a time */
  GATHER_VALUES = 16384 /* of all other ranks: fewer come whole, in one exchange instead of two */
};

typedef struct ranks_of_mpi {
  comm_t comm; /* first */
  MPI_Comm world;
  float *sums; /* [2 PIECE]: values of two ranks, or a part of those of each; owned */
  int num_others;
  struct pollfd others[RANKS_MAX]; /* the processes of the other ranks of this host */
} ranks_of_mpi_t;

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int fail(comm_t *comm, const char *what) {
  comm->error.code = ERR_DEVICE_FAILED;
  snprintf(comm->error.message, sizeof comm->error.message, "rank %d of %d: %s", comm->rank,
           comm->size, what);
  return ERR_DEVICE_FAILED;
}

/* In MPI_Finalize ranks wait for each other, so while others call none ends but by a failure. */
static bool one_has_ended(ranks_of_mpi_t *ranks) {
  return poll(ranks->others, (nfds_t)ranks->num_others, 0) > 0;
}

/* Waits for a collective: tests, then yields, then sleeps between the tests. */
static int finish(comm_t *comm, int code, MPI_Request request) {
  const struct timespec pause = {.tv_nsec = PAUSE_NS};
  int done = 0;
  if (code != MPI_SUCCESS) return fail(comm, "MPI refuses a collective");
  for (int i = 0; i < TESTS && !done; i++) MPI_Test(&request, &done, MPI_STATUS_IGNORE);
  const uint64_t began_ns = done ? 0 : now_ns();
  uint64_t looked_ns = began_ns;
  for (int i = 0; !done; i++) {
    const uint64_t at_ns = now_ns();
    if (comm->limit_ns > 0 && at_ns - began_ns > comm->limit_ns)
      return fail(comm, "a rank does not answer");
    if (at_ns - looked_ns > LOOK_NS) {
      looked_ns = at_ns;
      if (one_has_ended((ranks_of_mpi_t *)comm)) return fail(comm, "a rank has ended");
    }
    if (i < YIELDS)
      sched_yield();
    else
      nanosleep(&pause, NULL);
    MPI_Test(&request, &done, MPI_STATUS_IGNORE);
  }
  return 0;
}

static int mpi_gather(comm_t *comm, void *data, const size_t *cuts, int32_t root) {
  ranks_of_mpi_t *ranks = (ranks_of_mpi_t *)comm;
  int counts[RANKS_MAX], places[RANKS_MAX];
  char *bytes = data;
  MPI_Request request;
  if (cuts[comm->size] > INT_MAX) return fail(comm, "a part is larger than MPI counts");
  for (int32_t r = 0; r < comm->size; r++) {
    places[r] = (int)cuts[r];
    counts[r] = (int)(cuts[r + 1] - cuts[r]);
  }
  int code;
  if (root < 0)
    code = MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_BYTE, bytes, counts, places, MPI_BYTE, ranks->world,
                           &request);
  else if (root == comm->rank)
    code = MPI_Igatherv(MPI_IN_PLACE, 0, MPI_BYTE, bytes, counts, places, MPI_BYTE, root,
                        ranks->world, &request);
  else
    code = MPI_Igatherv(bytes + cuts[comm->rank], counts[comm->rank], MPI_BYTE, NULL, NULL, NULL,
                        MPI_BYTE, root, ranks->world, &request);
  return finish(comm, code, request);
}

static int mpi_broadcast(comm_t *comm, void *data, size_t bytes, int32_t root) {
  MPI_Request request;
  if (bytes > INT_MAX) return fail(comm, "a packet is larger than MPI counts");
  int code =
      MPI_Ibcast(data, (int)bytes, MPI_BYTE, root, ((ranks_of_mpi_t *)comm)->world, &request);
  return finish(comm, code, request);
}

/* sums[0, count) = the rows of sums[size, count], added in order. */
static void add_rows(float *sums, int size, int count) {
  for (int r = 1; r < size; r++)
    for (int i = 0; i < count; i++) sums[i] += sums[r * count + i];
}

/* Each rank gets the values of all, and adds them up. */
static int reduce_whole(ranks_of_mpi_t *ranks, float *values, int count) {
  comm_t *comm = &ranks->comm;
  MPI_Request request;
  int code = MPI_Iallgather(values, count, MPI_FLOAT, ranks->sums, count, MPI_FLOAT, ranks->world,
                            &request);
  code = finish(comm, code, request);
  if (code != 0) return code;
  add_rows(ranks->sums, comm->size, count);
  memcpy(values, ranks->sums, (size_t)count * sizeof *values);
  comm->num_bytes += (size_t)(comm->size - 1) * (size_t)count * sizeof *values;
  return 0;
}

/* Each rank adds up a part of the values, and gets the other parts. */
static int reduce_parts(ranks_of_mpi_t *ranks, float *values, int count) {
  comm_t *comm = &ranks->comm;
  const int size = comm->size;
  int places[RANKS_MAX + 1] = {0}, counts[RANKS_MAX] = {0};
  int own_places[RANKS_MAX] = {0}, own_counts[RANKS_MAX] = {0};
  MPI_Request request;
  for (int r = 0; r <= size; r++) places[r] = (int)((int64_t)count * r / size);
  const int own = places[comm->rank + 1] - places[comm->rank];
  for (int r = 0; r < size; r++) {
    counts[r] = places[r + 1] - places[r];
    own_places[r] = r * own;
    own_counts[r] = own;
  }
  int code = MPI_Ialltoallv(values, counts, places, MPI_FLOAT, ranks->sums, own_counts, own_places,
                            MPI_FLOAT, ranks->world, &request);
  code = finish(comm, code, request);
  if (code != 0) return code;
  add_rows(ranks->sums, size, own);
  memcpy(values + places[comm->rank], ranks->sums, (size_t)own * sizeof *values);
  code = MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_FLOAT, values, counts, places, MPI_FLOAT,
                         ranks->world, &request);
  comm->num_bytes += ((size_t)(size - 1) * (size_t)own + (size_t)(count - own)) * sizeof *values;
  return finish(comm, code, request);
}

static int mpi_reduce(comm_t *comm, float *values, size_t count) {
  ranks_of_mpi_t *ranks = (ranks_of_mpi_t *)comm;
  int code = 0;
  for (size_t first = 0; first < count && code == 0; first += PIECE) {
    const int some = count - first < PIECE ? (int)(count - first) : PIECE;
    const bool whole = comm->size == 2 || (comm->size - 1) * some <= GATHER_VALUES;
    code = whole ? reduce_whole(ranks, values + first, some)
                 : reduce_parts(ranks, values + first, some);
  }
  return code;
}

static int mpi_barrier(comm_t *comm) {
  MPI_Request request;
  int code = MPI_Ibarrier(((ranks_of_mpi_t *)comm)->world, &request);
  return finish(comm, code, request);
}

/* The others find out at their limit, or are ended by mpirun when this process ends. */
static void mpi_abandon(comm_t *comm) {
  (void)comm;
}

/* What ends the process unless MPI_Finalize returns in time. */
typedef struct deadline {
  int returned; /* eventfd */
  int limit_ms, rank;
} deadline_t;

static void *wait_for_end(void *context) {
  const deadline_t *deadline = context;
  struct pollfd returned = {.fd = deadline->returned, .events = POLLIN};
  if (poll(&returned, 1, deadline->limit_ms) != 0) return NULL;
  fprintf(stderr, "inferd: rank %d: another rank does not end; mpirun has to\n", deadline->rank);
  _exit(EXIT_RANK_LOST);
}

/* MPI_Finalize waits for all ranks, for ever, and must be called by the thread that began MPI. So
 * another thread ends rank 0 after the limit, and mpirun then ends the others. These have none:
 * rank 0 may have more to do before it comes here. */
static void finalize(ranks_of_mpi_t *ranks) {
  const uint64_t limit_ms = ranks->comm.limit_ns / 1000000;
  deadline_t deadline = {.returned = -1, .rank = ranks->comm.rank};
  sigset_t all, before;
  pthread_t thread;
  bool limited = false;
  deadline.limit_ms = limit_ms < INT_MAX ? (int)limit_ms : INT_MAX;
  if (limit_ms > 0 && ranks->comm.rank == 0) deadline.returned = eventfd(0, EFD_CLOEXEC);
  if (deadline.returned >= 0) {
    sigfillset(&all); /* a signal would end the thread's wait */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    limited = pthread_create(&thread, NULL, wait_for_end, &deadline) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
  }
  MPI_Comm_free(&ranks->world);
  MPI_Finalize();
  if (limited) {
    eventfd_write(deadline.returned, 1);
    pthread_join(thread, NULL);
  }
  if (deadline.returned >= 0) close(deadline.returned);
}

/* After a failure MPI_Finalize would wait for ranks that do not answer. */
static void mpi_close(comm_t *comm) {
  ranks_of_mpi_t *ranks = (ranks_of_mpi_t *)comm;
  if (comm->error.code == 0) finalize(ranks);
  for (int i = 0; i < ranks->num_others; i++) close(ranks->others[i].fd);
  free(ranks->sums);
  free(ranks);
}

static const comm_ops_t mpi_ops = {.name = "MPI",
                                   .gather = mpi_gather,
                                   .broadcast = mpi_broadcast,
                                   .reduce = mpi_reduce,
                                   .barrier = mpi_barrier,
                                   .abandon = mpi_abandon,
                                   .close = mpi_close};

/* The number of a process means something in its own namespace alone. */
static void find_others(ranks_of_mpi_t *ranks, MPI_Comm host, int local_size) {
  struct stat namespace = {0};
  long own[2] = {getpid(), 0}, all[RANKS_MAX][2];
  if (stat("/proc/self/ns/pid", &namespace) == 0) own[1] = (long)namespace.st_ino;
  MPI_Allgather(own, 2, MPI_LONG, all, 2, MPI_LONG, host);
  for (int r = 0; r < local_size; r++) {
    if (all[r][0] == own[0] || all[r][1] != own[1]) continue;
    const int process = (int)syscall(SYS_pidfd_open, (pid_t)all[r][0], 0);
    if (process < 0) continue;
    ranks->others[ranks->num_others++] = (struct pollfd){.fd = process, .events = POLLIN};
  }
}

int inferd_mpi_open(comm_t **out, char *why, size_t capacity) {
  int has, size, rank, local_size;
  MPI_Comm host;
  ranks_of_mpi_t *ranks = calloc(1, sizeof *ranks);
  if (ranks == NULL || MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &has) != MPI_SUCCESS ||
      has < MPI_THREAD_SERIALIZED) {
    free(ranks);
    snprintf(why, capacity, "MPI does not start, or not for programs with threads");
    return -1;
  }
  MPI_Comm_dup(MPI_COMM_WORLD, &ranks->world);
  MPI_Comm_size(ranks->world, &size);
  MPI_Comm_rank(ranks->world, &rank);
  if (size > RANKS_MAX) {
    snprintf(why, capacity, "%d ranks; at most %d", size, RANKS_MAX);
    MPI_Finalize();
    free(ranks);
    return -1;
  }
  MPI_Comm_split_type(ranks->world, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &host);
  MPI_Comm_size(host, &local_size);
  find_others(ranks, host, local_size);
  MPI_Comm_free(&host);
  ranks->sums = calloc(2, PIECE * sizeof *ranks->sums);
  if (ranks->sums == NULL) {
    snprintf(why, capacity, "no memory for the sums of %d ranks", size);
    MPI_Finalize();
    free(ranks);
    return -1;
  }
  ranks->comm = (comm_t){.ops = &mpi_ops, .rank = rank, .size = size, .local_size = local_size};
  *out = &ranks->comm;
  return 0;
}
