/* ranks.c: starts the other ranks of a model on this host, or joins those of an MPI launcher.
 *
 * Main thread, before any other: a process that has threads cannot fork safely. Every rank runs the
 * same command line, and gets its share of the processors. A rank that is not 0 has no HTTP and
 * hears no signals: it ends when rank 0 says so, or when rank 0 has ended.
 */
#include "server/ranks.h"

#include "engine/engine.h"
#include "engine/ranks/mpi/mpi_open.h"
#include "engine/ranks/nodes.h"
#include "engine/ranks/ranks.h"
#include "engine/ranks/shared.h"
#include "server/observe/log.h"
#include "server/serve.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { RANKS_FD = 3, END_POLLS = 300, POLL_NS = 10000000, EXIT_RANK_LOST = 71 };
static const char OWN_RANK[] = "_INFERD_RANK"; /* of a process that rank 0 has started */

static pid_t children[RANKS_MAX]; /* 0 = not started by this process */

/* Limits this process to the processors and the memory of its rank. */
static void take_share(int32_t rank, int32_t size) {
  cpu_set_t cpus;
  if (sched_getaffinity(0, sizeof cpus, &cpus) != 0) return;
  nodes_prefer(nodes_share(NODES_ROOT, rank, size, &cpus));
  (void)sched_setaffinity(0, sizeof cpus, &cpus);
}

/* Ranks that the launcher has bound to no processors share those of their host. */
static void share_host(const comm_t *comm) {
  cpu_set_t all;
  if (sched_getaffinity(0, sizeof all, &all) != 0) return;
  if (CPU_COUNT(&all) == (int)sysconf(_SC_NPROCESSORS_ONLN))
    take_share(comm->rank % comm->local_size, comm->local_size);
}

/* The started process, until it is another program. Only calls that are safe behind a fork. */
static void become_rank(int32_t rank, int fd, pid_t parent, char *const *argv) {
  char text[16];
  snprintf(text, sizeof text, "%d", rank);
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent) _exit(EXIT_RANK_LOST);
  if (fd == RANKS_FD ? fcntl(fd, F_SETFD, 0) != 0 : dup2(fd, RANKS_FD) < 0) _exit(EXIT_RANK_LOST);
  for (int other = RANKS_FD + 1; other < 1024; other++) close(other); /* sockets of a manager */
  if (setenv(OWN_RANK, text, 1) == 0) execv("/proc/self/exe", argv);
  _exit(EXIT_RANK_LOST);
}

static int start_others(int32_t size, char *const *argv, comm_t **out, inferd_error_t *error) {
  int fd = -1;
  const pid_t own = getpid();
  int code = shared_make(size, &fd, error);
  if (code == 0) code = shared_join(fd, 0, out, error);
  for (int32_t rank = 1; rank < size && code == 0; rank++) {
    children[rank] = fork();
    if (children[rank] == 0) become_rank(rank, fd, own, argv);
    if (children[rank] < 0) code = error_system(error, "fork", errno);
    if (code == 0) shared_expect(*out, rank, children[rank]);
  }
  if (fd >= 0) close(fd);
  if (code == 0) take_share(0, size);
  return code;
}

static int join_started(const char *rank, comm_t **out, inferd_error_t *error) {
  int code = shared_join(RANKS_FD, atoi(rank), out, error);
  unsetenv(OWN_RANK);
  close(RANKS_FD);
  if (code == 0) take_share((*out)->rank, (*out)->size);
  return code;
}

int ranks_start(const config_t *config, char *const *argv, comm_t **out, inferd_error_t *error) {
  const bool staged = config->pipeline_parallel_size > 1;
  const int32_t launched = mpi_world_size(),
                asked = (int32_t)(staged ? config->pipeline_parallel_size
                                         : config->tensor_parallel_size);
  const char *option = staged ? "pipeline_parallel_size" : "tensor_parallel_size";
  const char *rank = getenv(OWN_RANK);
  *out = NULL;
  if (rank != NULL) return join_started(rank, out, error);
  const char *world = getenv("WORLD_SIZE"); /* torchrun brings no transport between its processes */
  if (getenv("TORCHELASTIC_RUN_ID") != NULL && world != NULL && atoi(world) > 1)
    return error_set(error, ERR_CONFIGURATION, "tensor_parallel_size",
                     "started by torchrun with WORLD_SIZE %d; ranks are started by "
                     "--tensor-parallel-size on one host, or by mpirun",
                     atoi(world));
  if ((launched > 1 || asked > 1) && config->data_parallel_size > 1)
    return error_set(
        error, ERR_CONFIGURATION, "data_parallel_size",
        "data_parallel_size is %d, but with several ranks (%d) a model has no replicas; "
        "use data_parallel_size 1",
        (int)config->data_parallel_size, launched > 1 ? launched : asked);
  if (launched > 1 || (launched == 1 && asked > 1)) {
    if (asked != 0 && asked != launched)
      return error_set(error, ERR_CONFIGURATION, option,
                       "%s is %d, but the launcher has started %d ranks", option, asked, launched);
    int code = mpi_join(out, error);
    if (code == 0) share_host(*out);
    return code;
  }
  return asked > 1 ? start_others(asked, argv, out, error) : 0;
}

static void say(void *context, const char *line) {
  const comm_t *comm = context;
  log_line(LOG_INFO, "load", "rank %d: %s", comm->rank, line);
}

int ranks_follow(config_t *config, comm_t *comm) {
  static const int ignored[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGPIPE};
  inferd_error_t error = {0};
  engine_options_t options;
  for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++) signal(ignored[i], SIG_IGN);
  int code = log_open(config, &error);
  if (code == 0) code = serve_locate(config, &error);
  if (code == 0) code = serve_engine_options(config, &options, &error);
  if (code == 0) {
    options.comm = comm;
    options.rank_limit_ns = (uint64_t)(config->watchdog_interval * 1e9);
    options.log = say;
    options.context = comm;
    code = engine_follow(&options, &error);
  }
  if (code != 0) {
    log_line(LOG_ERROR, "ranks", "rank %d: %s", comm->rank, error.message);
    comm_abandon(comm, error.message);
  }
  int status = code == ERR_DEVICE_FAILED ? EXIT_RANK_LOST : code != 0 ? error_exit_code(code) : 0;
  comm_close(comm);
  log_close();
  return status;
}

/* True when no process that this one started is left. */
static bool all_ended(void) {
  bool all = true;
  for (int32_t r = 0; r < RANKS_MAX; r++) {
    if (children[r] > 0 && waitpid(children[r], NULL, WNOHANG) != 0) children[r] = 0;
    all = all && children[r] <= 0;
  }
  return all;
}

void ranks_end(comm_t *comm) {
  const struct timespec pause = {.tv_nsec = POLL_NS};
  comm_close(comm);
  for (int i = 0; i < END_POLLS && !all_ended(); i++) nanosleep(&pause, NULL);
  for (int32_t r = 0; r < RANKS_MAX; r++)
    if (children[r] > 0 && kill(children[r], SIGKILL) == 0) (void)waitpid(children[r], NULL, 0);
}
