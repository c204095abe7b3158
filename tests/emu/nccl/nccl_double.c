/* nccl_double.c: a libnccl.so.2 for emulated devices: the same calls over shared memory.
 *
 * Ranks are processes with an emulated GPU each. A call becomes transfers between pairs of ranks,
 * which a host function of the stream makes, so that it is captured and replayed as NCCL's kernels
 * are. A thread runs what the streams have: the emulator does so only while the host waits, and
 * another rank may wait first. A wait ends when the other process has ended, or after WAIT_S: then
 * the state of the communicator is an error, as NCCL's. A start waits for ever, and the end of a
 * communicator for the last graph that has calls of it, as NCCL's do (its commDestroySync).
 * NCCL_DOUBLE_FAIL=function:call makes that call fail; NCCL_DOUBLE_END=rank ends this rank at the
 * start; NCCL_DOUBLE_STUCK makes ncclCommDestroy wait for ever, as if another rank had ended.
 */
#include "tests/emu/nccl/nccl_excerpt.h"

#include "cuda/ranks/nccl.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { DOUBLE_RANKS = 8, PIECE = 64 << 10, OPS_MAX = 64, WAIT_S = 5, VERSION = 22809 };

/* From one rank to another: `sent` is written by the one, `taken` by the other. */
typedef struct channel {
  _Atomic uint32_t sent, taken;
  uint8_t bytes[PIECE];
} channel_t;

typedef struct region {
  _Atomic int32_t joined, pid[DOUBLE_RANKS];
  channel_t channels[DOUBLE_RANKS][DOUBLE_RANKS];
} region_t;

struct ncclComm {
  region_t *region;
  int rank, size, process[DOUBLE_RANKS];
  _Atomic int state;  /* ncclResult_t */
  _Atomic int graphs; /* calls of it that graphs have */
  pthread_t device;
  _Atomic bool stopped;
};

/* Of the program. */
int emu_run_one(void);
int emu_graph_hold(cudaStream_t stream, void (*release)(void *), void *context);

typedef struct op {
  uint8_t *data; /* NULL = none */
  size_t bytes;
  int peer; /* the own rank: a copy */
  const uint8_t *from;
  bool sends;
} op_t;

typedef struct job {
  struct job *next; /* of `jobs` */
  ncclComm_t comm;
  op_t ops[OPS_MAX];
  int count;
} job_t;

static _Atomic(job_t *) jobs;
static _Thread_local job_t open_job;
static _Thread_local cudaStream_t open_stream;
static _Thread_local int depth;

static bool fails(const char *function) {
  static _Atomic int calls;
  const char *wanted = getenv("NCCL_DOUBLE_FAIL");
  const size_t length = strlen(function);
  if (wanted == NULL || strncmp(wanted, function, length) != 0 || wanted[length] != ':')
    return false;
  return ++calls == atoi(wanted + length + 1);
}

/* ---- transfers ---- */

static bool has_ended(ncclComm_t comm, int rank) {
  const int pid = comm->region->pid[rank];
  if (comm->process[rank] < 0) comm->process[rank] = (int)syscall(SYS_pidfd_open, pid, 0);
  struct pollfd ended = {.fd = comm->process[rank], .events = POLLIN};
  return comm->process[rank] < 0 || poll(&ended, 1, 0) == 1;
}

/* Until *value is `wanted`. */
static void await(ncclComm_t comm, _Atomic uint32_t *value, uint32_t wanted, int peer) {
  const time_t until = time(NULL) + WAIT_S;
  for (int turn = 1; comm->state == ncclSuccess && *value != wanted; turn++) {
    sched_yield();
    if (turn % 1000 == 0 && (time(NULL) > until || has_ended(comm, peer)))
      comm->state = ncclRemoteError;
  }
}

static void transfer(ncclComm_t comm, const op_t *op, size_t at, bool sends) {
  const size_t left = op->bytes > at ? op->bytes - at : 0, some = left < PIECE ? left : PIECE;
  if (some == 0 || op->sends != sends) return;
  if (op->peer == comm->rank) {
    memmove(op->data + at, op->from + at, some);
    return;
  }
  const int from = sends ? comm->rank : op->peer, to = sends ? op->peer : comm->rank;
  channel_t *channel = &comm->region->channels[from][to];
  if (sends) {
    await(comm, &channel->taken, channel->sent, op->peer);
    if (comm->state != ncclSuccess) return;
    memcpy(channel->bytes, op->from + at, some);
    channel->sent++;
  } else {
    await(comm, &channel->sent, channel->taken + 1, op->peer);
    if (comm->state != ncclSuccess) return;
    memcpy(op->data + at, channel->bytes, some);
    channel->taken++;
  }
}

static void run(void *context) {
  const job_t *job = context;
  size_t most = 0;
  for (int i = 0; i < job->count; i++)
    if (job->ops[i].bytes > most) most = job->ops[i].bytes;
  for (size_t at = 0; at < most; at += PIECE) {
    for (int i = 0; i < job->count; i++) transfer(job->comm, &job->ops[i], at, true);
    for (int i = 0; i < job->count; i++) transfer(job->comm, &job->ops[i], at, false);
  }
}

__attribute__((destructor)) static void free_jobs(void) {
  for (job_t *job = jobs, *next; job != NULL; job = next) {
    next = job->next;
    free(job);
  }
}

static void leave_graph(void *context) {
  ncclComm_t comm = context;
  comm->graphs--;
}

/* The job lives as long as the library: graphs run it again. */
static ncclResult_t launch(void) {
  if (open_job.count == 0) return ncclSuccess;
  job_t *job = malloc(sizeof *job);
  if (job == NULL) return ncclSystemError;
  *job = open_job;
  open_job.count = 0;
  job->next = jobs;
  while (!atomic_compare_exchange_weak(&jobs, &job->next, job)) continue;
  if (emu_graph_hold(open_stream, leave_graph, job->comm)) job->comm->graphs++;
  return cudaLaunchHostFunc(open_stream, run, job) == cudaSuccess ? ncclSuccess
                                                                  : ncclUnhandledCudaError;
}

static ncclResult_t add(ncclComm_t comm, cudaStream_t stream, op_t op) {
  if (open_job.count == OPS_MAX || op.peer < 0 || op.peer >= comm->size) return ncclInvalidArgument;
  if (open_job.count > 0 && (open_job.comm != comm || open_stream != stream))
    return ncclInvalidUsage;
  open_job.comm = comm;
  open_stream = stream;
  open_job.ops[open_job.count++] = op;
  return ncclSuccess;
}

static ncclResult_t finish(ncclResult_t result) {
  return result == ncclSuccess && depth == 0 ? launch() : result;
}

static void *work(void *context) {
  ncclComm_t comm = context;
  while (!comm->stopped)
    if (!emu_run_one()) usleep(100);
  return NULL;
}

/* ---- the calls ---- */

ncclResult_t ncclGetVersion(int *version) {
  *version = VERSION;
  return fails("ncclGetVersion") ? ncclInternalError : ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *uniqueId) {
  snprintf(uniqueId->internal, sizeof uniqueId->internal, "/inferd-nccl-%d", getpid());
  const int fd = shm_open(uniqueId->internal, O_RDWR | O_CREAT | O_EXCL, 0600);
  if (fd < 0 || ftruncate(fd, sizeof(region_t)) != 0) return ncclSystemError;
  close(fd);
  return fails("ncclGetUniqueId") ? ncclSystemError : ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank) {
  *comm = NULL;
  const char *ends = getenv("NCCL_DOUBLE_END");
  if (ends != NULL && atoi(ends) == rank) kill(getpid(), SIGKILL);
  if (fails("ncclCommInitRank")) return ncclSystemError;
  if (nranks > DOUBLE_RANKS || rank < 0 || rank >= nranks) return ncclInvalidArgument;
  const int fd = shm_open(commId.internal, O_RDWR, 0);
  ncclComm_t made = calloc(1, sizeof *made);
  if (fd < 0 || made == NULL) return ncclSystemError;
  made->region = mmap(NULL, sizeof(region_t), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (made->region == MAP_FAILED) return ncclSystemError;
  made->rank = rank;
  made->size = nranks;
  for (int r = 0; r < DOUBLE_RANKS; r++) made->process[r] = -1;
  made->region->pid[rank] = getpid();
  made->region->joined++;
  while (made->region->joined < nranks) sched_yield();
  if (rank == 0) shm_unlink(commId.internal);
  if (pthread_create(&made->device, NULL, work, made) != 0) return ncclSystemError;
  *comm = made;
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  comm->state = ncclRemoteError; /* and what is queued for it does nothing */
  if (!comm->stopped) {
    comm->stopped = true;
    pthread_join(comm->device, NULL);
  }
  while (comm->graphs > 0) usleep(100);
  return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  while (getenv("NCCL_DOUBLE_STUCK") != NULL) pause();
  return ncclCommAbort(comm);
}

const char *ncclGetErrorString(ncclResult_t result) {
  static const char *const names[] = {
      "no error",         "unhandled cuda error",      "unhandled system error",
      "internal error",   "invalid argument",          "invalid usage",
      "a process exited", "NCCL operation in progress"};
  return names[result];
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *asyncError) {
  *asyncError = (ncclResult_t)comm->state;
  return ncclSuccess;
}

ncclResult_t ncclBroadcast(const void *sendbuff, void *recvbuff, size_t count,
                           ncclDataType_t datatype, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  ncclResult_t result = datatype == ncclUint8 ? ncclSuccess : ncclInvalidArgument;
  if (root != comm->rank && result == ncclSuccess)
    result = add(comm, stream, (op_t){.data = recvbuff, .bytes = count, .peer = root});
  for (int r = 0; r < comm->size && root == comm->rank && result == ncclSuccess; r++)
    result =
        add(comm, stream,
            (op_t){.data = recvbuff, .from = sendbuff, .bytes = count, .peer = r, .sends = true});
  return finish(result);
}

ncclResult_t ncclAllGather(const void *sendbuff, void *recvbuff, size_t sendcount,
                           ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream) {
  ncclResult_t result = datatype == ncclUint8 ? ncclSuccess : ncclInvalidArgument;
  if (fails("ncclAllGather")) return ncclInternalError;
  for (int r = 0; r < comm->size && result == ncclSuccess; r++) {
    uint8_t *place = (uint8_t *)recvbuff + (size_t)r * sendcount;
    result =
        add(comm, stream,
            (op_t){.data = place, .from = sendbuff, .bytes = sendcount, .peer = r, .sends = true});
    if (r != comm->rank && result == ncclSuccess)
      result = add(comm, stream, (op_t){.data = place, .bytes = sendcount, .peer = r});
  }
  return finish(result);
}

ncclResult_t ncclSend(const void *sendbuff, size_t count, ncclDataType_t datatype, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  if (datatype != ncclUint8 || peer == comm->rank) return ncclInvalidArgument;
  return finish(
      add(comm, stream, (op_t){.from = sendbuff, .bytes = count, .peer = peer, .sends = true}));
}

ncclResult_t ncclRecv(void *recvbuff, size_t count, ncclDataType_t datatype, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  if (datatype != ncclUint8 || peer == comm->rank) return ncclInvalidArgument;
  return finish(add(comm, stream, (op_t){.data = recvbuff, .bytes = count, .peer = peer}));
}

ncclResult_t ncclGroupStart(void) {
  depth++;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void) {
  depth--;
  return finish(ncclSuccess);
}

/* The product's prototypes are those of the library: this does not compile otherwise. */
_Static_assert(ncclSuccess == 0 && ncclInProgress == 7 && ncclUint8 == 1 &&
                   sizeof(ncclUniqueId) == 128,
               "the numbers that cuda/ranks/nccl.h declares");
const nccl_api_t nccl_double_api = {.version = ncclGetVersion,
                                    .unique_id = ncclGetUniqueId,
                                    .init = ncclCommInitRank,
                                    .destroy = ncclCommDestroy,
                                    .abort = ncclCommAbort,
                                    .async_error = ncclCommGetAsyncError,
                                    .error_string = ncclGetErrorString,
                                    .all_gather = ncclAllGather,
                                    .broadcast = ncclBroadcast,
                                    .send = ncclSend,
                                    .receive = ncclRecv,
                                    .group_start = ncclGroupStart,
                                    .group_end = ncclGroupEnd};
