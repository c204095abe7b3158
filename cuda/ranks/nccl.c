/* nccl.c: ranks exchange by NCCL, from device to device.
 *
 * Engine thread. Calls launch on the device's stream, captured or not; nothing here waits, but
 * nccl_open and nccl_close. The sums of NCCL are not used: their order depends on what the library
 * chooses, while parts that are gathered are added in the order of the ranks. An error of the
 * library makes the comm_t fail, so that all ranks hear of it; kernels that wait for a rank that
 * has failed are ended by `abort`.
 */
#include "cuda/ranks/nccl.h"
#include "cuda/operations.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <time.h>

enum { LOOK_NS = 5000000 }; /* between looks at the other ranks */
enum { END_LOOKS = 1000 };  /* at a communicator that ends: 5 s */
enum { SHARED_MIB_PLENTY = 512 };

static nccl_t *nccl_of(const device_t *device) {
  return device->exchange->nccl;
}

/* The comm_t fails with the library's words. */
static void note(device_t *device, ncclResult_t result, const char *where) {
  char why[ERROR_MESSAGE_MAX];
  if (result == ncclSuccess || device->fault != 0) return;
  snprintf(why, sizeof why, "NCCL, %s: %s", where, nccl_of(device)->api.error_string(result));
  comm_abandon(device->exchange->comm, why);
  device_note(device, cudaErrorLaunchFailure, "an exchange of ranks");
}

/* To all where every rank has as much. */
static bool are_equal(const comm_t *comm, const size_t *cuts) {
  for (int32_t r = 0; r < comm->size; r++)
    if (cuts[r + 1] - cuts[r] != cuts[1] - cuts[0]) return false;
  return true;
}

/* Each rank's part to all, as broadcasts that run together. */
static void spread_parts(device_t *device, uint8_t *data, const void *own, const size_t *cuts) {
  const nccl_t *nccl = nccl_of(device);
  const comm_t *comm = device->exchange->comm;
  note(device, nccl->api.group_start(), "a group");
  for (int32_t r = 0; r < comm->size; r++) {
    const size_t bytes = cuts[r + 1] - cuts[r];
    uint8_t *place = data + cuts[r];
    if (bytes == 0) continue;
    note(device,
         nccl->api.broadcast(r == comm->rank ? own : place, place, bytes, ncclUint8, r, nccl->comm,
                             device->stream),
         "a broadcast");
  }
  note(device, nccl->api.group_end(), "a group");
}

/* Each rank's part to one of them. */
static void send_parts(device_t *device, uint8_t *data, const void *own, const size_t *cuts,
                       int32_t root) {
  const nccl_t *nccl = nccl_of(device);
  const comm_t *comm = device->exchange->comm;
  const size_t bytes = cuts[comm->rank + 1] - cuts[comm->rank];
  if (root == comm->rank && own != data + cuts[root] && bytes > 0)
    device_note(device,
                (int)cudaMemcpyAsync(data + cuts[root], own, bytes, cudaMemcpyDeviceToDevice,
                                     device->stream),
                "an exchange of ranks");
  note(device, nccl->api.group_start(), "a group");
  for (int32_t r = 0; r < comm->size && root == comm->rank; r++) {
    if (r == root || cuts[r + 1] == cuts[r]) continue;
    note(device,
         nccl->api.receive(data + cuts[r], cuts[r + 1] - cuts[r], ncclUint8, r, nccl->comm,
                           device->stream),
         "a receive");
  }
  if (root != comm->rank && bytes > 0)
    note(device, nccl->api.send(own, bytes, ncclUint8, root, nccl->comm, device->stream), "a send");
  note(device, nccl->api.group_end(), "a group");
}

static void nccl_scatter(device_t *device, uint8_t *data, const uint8_t *own, const size_t *cuts) {
  const nccl_t *nccl = nccl_of(device);
  const comm_t *comm = device->exchange->comm;
  const size_t mine = cuts[comm->rank + 1] - cuts[comm->rank];
  uint8_t *place = data + (size_t)comm->rank * mine;
  if (mine > 0)
    device_note(device,
                (int)cudaMemcpyAsync(place, own + cuts[comm->rank], mine, cudaMemcpyDeviceToDevice,
                                     device->stream),
                "an exchange of ranks");
  note(device, nccl->api.group_start(), "a group");
  for (int32_t r = 0; r < comm->size; r++) {
    const size_t bytes = cuts[r + 1] - cuts[r];
    if (r == comm->rank) continue;
    if (bytes > 0)
      note(device, nccl->api.send(own + cuts[r], bytes, ncclUint8, r, nccl->comm, device->stream),
           "a send");
    if (mine > 0)
      note(device,
           nccl->api.receive(data + (size_t)r * mine, mine, ncclUint8, r, nccl->comm,
                             device->stream),
           "a receive");
  }
  note(device, nccl->api.group_end(), "a group");
}

static void nccl_gather(device_t *device, uint8_t *data, const void *own, const size_t *cuts,
                        int32_t root) {
  const nccl_t *nccl = nccl_of(device);
  const comm_t *comm = device->exchange->comm;
  if (root >= 0)
    send_parts(device, data, own, cuts, root);
  else if (are_equal(comm, cuts))
    note(device,
         nccl->api.all_gather(own, data, cuts[1] - cuts[0], ncclUint8, nccl->comm, device->stream),
         "a gather");
  else
    spread_parts(device, data, own, cuts);
}

static void nccl_broadcast(device_t *device, void *data, size_t bytes, int32_t root) {
  const nccl_t *nccl = nccl_of(device);
  note(device, nccl->api.broadcast(data, data, bytes, ncclUint8, root, nccl->comm, device->stream),
       "a broadcast");
}

/* An error that came up behind the launches. */
static void nccl_check(device_t *device) {
  const nccl_t *nccl = nccl_of(device);
  ncclResult_t found = ncclSuccess;
  if (nccl->comm == NULL) return;
  note(device, nccl->api.async_error(nccl->comm, &found), "its state");
  if (found != ncclInProgress) note(device, found, "its state");
}

/* A call that ends the communicator, on a thread of its own. The library returns from it when the
 * last graph is destroyed that has calls of the communicator, an abort too, and from
 * ncclCommDestroy when all ranks have made it. */
struct nccl_end {
  ncclResult_t (*call)(ncclComm_t comm);
  ncclComm_t comm;
  int device;
  pthread_t thread;
  atomic_bool is_done;
};

static void *run_end(void *context) {
  nccl_end_t *end = context;
  (void)cudaSetDevice(end->device);
  (void)end->call(end->comm);
  atomic_store(&end->is_done, true);
  return NULL;
}

/* Without memory or a thread the communicator is left to the end of the process. */
static void begin_end(device_t *device, ncclResult_t (*call)(ncclComm_t comm)) {
  nccl_t *nccl = nccl_of(device);
  nccl_end_t *end = nccl->comm != NULL ? calloc(1, sizeof *end) : NULL;
  if (end != NULL) {
    *end = (nccl_end_t){.call = call, .comm = nccl->comm, .device = device->index};
    if (pthread_create(&end->thread, NULL, run_end, end) == 0)
      nccl->end = end;
    else
      free(end);
  }
  nccl->comm = NULL;
}

/* The kernels that run end soon, and so does what waits for them. */
static void nccl_abort(device_t *device) {
  begin_end(device, nccl_of(device)->api.abort);
}

/* Waits for the end of the communicator, for some seconds: a rank that has ended without a word
 * never takes part. Then the thread is left in the library. */
static void nccl_close(device_t *device) {
  const struct timespec pause = {.tv_nsec = LOOK_NS};
  nccl_t *nccl = nccl_of(device);
  begin_end(device, nccl->api.destroy);
  nccl_end_t *end = nccl->end;
  for (int i = 0; end != NULL && i < END_LOOKS && !atomic_load(&end->is_done); i++)
    nanosleep(&pause, NULL);
  if (end != NULL && !atomic_load(&end->is_done)) {
    pthread_detach(end->thread);
  } else if (end != NULL) {
    pthread_join(end->thread, NULL);
    free(end);
  }
  nccl->end = NULL;
  nccl_library_close(&nccl->api);
}

static void nccl_describe(const device_t *device, char *out, size_t size) {
  const int version = nccl_of(device)->version;
  snprintf(out, size, "NCCL %d.%d.%d", version / 10000, version / 100 % 100, version % 100);
}

const rank_way_t exchange_nccl = {.in_graphs = true,
                                  .gather = nccl_gather,
                                  .scatter = nccl_scatter,
                                  .broadcast = nccl_broadcast,
                                  .check = nccl_check,
                                  .abort = nccl_abort,
                                  .close = nccl_close,
                                  .describe = nccl_describe};

/* The first rank that lacks the library, -1 = none; a negative number below that is an error. */
static int32_t who_lacks(comm_t *comm, bool own) {
  enum { ERROR = -2 };
  uint8_t has[RANKS_MAX] = {0};
  size_t cuts[RANKS_MAX + 1];
  for (int32_t r = 0; r <= comm->size; r++) cuts[r] = (size_t)r;
  has[comm->rank] = own;
  if (comm_gather(comm, has, cuts, -1) != 0) return ERROR;
  for (int32_t r = 0; r < comm->size; r++)
    if (!has[r]) return r;
  return -1;
}

/* A call of ncclCommInitRank, on a thread of its own: it returns when all ranks have made it. */
typedef struct start {
  nccl_api_t api;
  ncclComm_t comm;
  ncclUniqueId id;
  int size, rank, device;
  ncclResult_t result;
  atomic_bool is_done;
} start_t;

static void *run_start(void *context) {
  start_t *start = context;
  (void)cudaSetDevice(start->device);
  start->result = start->api.init(&start->comm, start->size, start->id, start->rank);
  atomic_store(&start->is_done, true);
  return NULL;
}

/* Waits for the call, or until a rank has ended. Then the thread is left in the library, with the
 * memory of `start`: the process ends soon. */
static int await_start(nccl_t *nccl, comm_t *comm, start_t *start, ncclResult_t *result) {
  const struct timespec pause = {.tv_nsec = LOOK_NS};
  pthread_t thread;
  if (pthread_create(&thread, NULL, run_start, start) != 0) {
    free(start);
    return ERR_NO_MEMORY;
  }
  while (!atomic_load(&start->is_done)) {
    if (comm_check(comm) != 0) {
      pthread_detach(thread);
      return comm->error.code;
    }
    nanosleep(&pause, NULL);
  }
  pthread_join(thread, NULL);
  nccl->comm = start->comm;
  *result = start->result;
  free(start);
  return 0;
}

/* Cards that cannot reach each other exchange through /dev/shm, of which a container has little.
 * Returns words for an error's end, or none where there is enough. */
static const char *shared_room(char *out, size_t size) {
  struct statvfs found = {0}; /* stays 0 where there is none */
  *out = '\0';
  (void)statvfs("/dev/shm", &found);
  const double mib = (double)found.f_blocks * (double)found.f_frsize / (1 << 20);
  if (mib < SHARED_MIB_PLENTY)
    snprintf(out, size,
             "; /dev/shm has %.0f MiB: a container has more by --shm-size=1g or --ipc=host", mib);
  return out;
}

/* Rank 0 names the communicator. */
static int join(device_t *device, inferd_error_t *error) {
  nccl_t *nccl = nccl_of(device);
  comm_t *comm = device->exchange->comm;
  ncclUniqueId id;
  memset(&id, 0, sizeof id);
  ncclResult_t result = nccl->api.version(&nccl->version);
  if (result == ncclSuccess && comm->rank == 0) result = nccl->api.unique_id(&id);
  if (result == ncclSuccess && comm_broadcast(comm, &id, sizeof id, 0) != 0) {
    *error = comm->error;
    return comm->error.code;
  }
  if (result == ncclSuccess) {
    start_t *start = calloc(1, sizeof *start);
    if (start == NULL) return error_set(error, ERR_NO_MEMORY, NULL, "no memory to start NCCL");
    *start = (start_t){.api = nccl->api,
                       .id = id,
                       .size = comm->size,
                       .rank = comm->rank,
                       .device = device->index};
    int code = await_start(nccl, comm, start, &result);
    if (code == ERR_NO_MEMORY) return error_set(error, code, NULL, "no thread to start NCCL");
    if (code != 0) *error = comm->error;
    if (code != 0) return code;
  }
  if (result == ncclSuccess) return 0;
  nccl->comm = NULL;
  char room[96];
  return error_set(error, ERR_DEVICE_FAILED, NULL,
                   "NCCL does not start: %s; NCCL_DEBUG=INFO says more%s",
                   nccl->api.error_string(result), shared_room(room, sizeof room));
}

bool nccl_open(device_t *device, char *why, size_t why_size, int *code, inferd_error_t *error) {
  comm_t *comm = device->exchange->comm;
  nccl_t *nccl = nccl_of(device);
  const bool own = nccl_library_open(&nccl->api, why, why_size);
  const int32_t lacks = who_lacks(comm, own);
  *code = 0;
  if (lacks == -1) {
    *code = join(device, error);
    return true;
  }
  if (own) nccl_library_close(&nccl->api);
  if (own && lacks >= 0) snprintf(why, why_size, "rank %d has no NCCL", lacks);
  if (comm->error.code == 0) return false;
  *error = comm->error;
  *code = comm->error.code;
  return true;
}
