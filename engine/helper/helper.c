/* helper.c: the keeper, its children, and the callers who wait for them. helper_run is for any
 * thread; the keeper and each child have one thread. */
#include "engine/helper/helper.h"

#include "engine/base/check.h"
#include "engine/base/checked.h"
#include "engine/base/clock.h"
#include "engine/base/util.h"
#include "engine/helper/rights.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

struct helper {
  const helper_trade_t *trade;
  int control; /* to the keeper; each message is an order and two descriptors */
  pid_t keeper;
};

typedef struct helper_order {
  size_t file_bytes, room;
  union {
    uint8_t bytes[HELPER_JOB_MAX];
    max_align_t align;
  } job;
} helper_order_t;

typedef struct helper_answer {
  int status;
  size_t used;
  uint64_t cpu_ns;
  char message[ERROR_MESSAGE_MAX];
} helper_answer_t;

enum { MEMORY, ANSWER, DESCRIPTORS };

/* Room for the control data of a message, aligned as the kernel wants it. */
typedef union descriptor_room {
  struct cmsghdr head;
  char bytes[CMSG_SPACE(sizeof(int) * DESCRIPTORS)];
} descriptor_room_t;

/* Shared memory: the file, then on a page of its own the result. */
static bool shared_bytes(const helper_order_t *order, size_t *result, size_t *total) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  return checked_align(order->file_bytes, page, result) && checked_add(*result, order->room, total);
}

/* ---- child ---- */

static ssize_t drop_words(void *nobody, const char *words, size_t length) {
  (void)nobody, (void)words;
  return (ssize_t)length;
}

/* What libraries say to the terminal would be a call that kills the child. */
static void be_quiet(void) {
  FILE *nowhere = fopencookie(NULL, "w", (cookie_io_functions_t){.write = drop_words});
  if (nowhere == NULL) _exit(1);
  (void)setvbuf(nowhere, NULL, _IONBF, 0); /* else its buffer is taken at the first word */
  stdout = stderr = nowhere;
}

static void run_child(const helper_trade_t *trade, const helper_order_t *order,
                      const int descriptors[]) {
  helper_answer_t answer = {.status = ERR_NO_MEMORY, .used = order->room};
  inferd_error_t error = {0};
  size_t result, total;
  if (!shared_bytes(order, &result, &total)) _exit(1);
  uint8_t *memory = mmap(NULL, total, PROT_READ | PROT_WRITE, MAP_SHARED, descriptors[MEMORY], 0);
  if (memory == MAP_FAILED) _exit(1);
  be_quiet();
  (void)alarm(trade->wait_s_max); /* of one that waits for ever, nobody waits */
  if (!rights_drop(descriptors[ANSWER], trade->cpu_seconds_max, trade->memory_mib_max)) _exit(1);
  answer.status = trade->work(order->job.bytes, memory, order->file_bytes, memory + result,
                              order->room, &answer.used, &error);
  memcpy(answer.message, error.message, sizeof answer.message);
  answer.cpu_ns = clock_thread_ns(); /* it has one */
  /* Nobody to tell of a failure: the caller sees the end of this process. */
  ssize_t written = write(descriptors[ANSWER], &answer, sizeof answer);
  _exit(written == sizeof answer ? 0 : 1);
}

/* ---- keeper ---- */

/* False at the end of the daemon. A message without its descriptors has descriptors[] of -1. */
static bool receive_order(int control, helper_order_t *order, int descriptors[]) {
  descriptor_room_t space = {0};
  struct iovec part = {order, sizeof *order};
  struct msghdr message = {
      .msg_iov = &part, .msg_iovlen = 1, .msg_control = &space, .msg_controllen = sizeof space};
  ssize_t length;
  do length = recvmsg(control, &message, MSG_CMSG_CLOEXEC);
  while (length < 0 && errno == EINTR);
  if (length <= 0) return false;
  descriptors[MEMORY] = descriptors[ANSWER] = -1;
  const struct cmsghdr *head = CMSG_FIRSTHDR(&message);
  if (length == sizeof *order && head != NULL &&
      head->cmsg_len == CMSG_LEN(sizeof(int) * DESCRIPTORS))
    memcpy(descriptors, CMSG_DATA(head), sizeof(int) * DESCRIPTORS);
  return true;
}

static void close_all_but(int kept) {
  if (kept > 3) (void)close_range(3, (unsigned)kept - 1, 0);
  (void)close_range((unsigned)kept + 1, ~0u, 0);
}

static void run_keeper(int control, const helper_trade_t *trade) {
  int descriptors[DESCRIPTORS];
  helper_order_t order;
  (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
  (void)prctl(PR_SET_NAME, trade->process);
  (void)setpriority(PRIO_PROCESS, 0, HELPER_NICE);
  close_all_but(control);
  (void)signal(SIGCHLD, SIG_IGN); /* children leave nothing behind */
  (void)signal(SIGINT, SIG_IGN);  /* of the terminal: the daemon drains first */
  (void)signal(SIGTERM, SIG_DFL);
  if (trade->ready != NULL) trade->ready();
  while (receive_order(control, &order, descriptors)) {
    if (descriptors[ANSWER] < 0) continue;
    if (fork() == 0) {
      (void)close(control);
      run_child(trade, &order, descriptors);
    }
    (void)close(descriptors[MEMORY]);
    (void)close(descriptors[ANSWER]);
  }
  _exit(0);
}

/* ---- callers ---- */

static int fail_start(const helper_trade_t *trade, inferd_error_t *error) {
  char what[64];
  snprintf(what, sizeof what, "the process for %ss", trade->name);
  return error_system(error, what, errno);
}

int helper_start(const helper_trade_t *trade, helper_t **out, inferd_error_t *error) {
  int pair[2];
  CHECK_LE(trade->job_bytes, HELPER_JOB_MAX);
  helper_t *helper = calloc(1, sizeof *helper);
  if (helper == NULL || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
    free(helper);
    return fail_start(trade, error);
  }
  helper->trade = trade;
  helper->keeper = fork();
  if (helper->keeper == 0) {
    (void)close(pair[0]);
    run_keeper(pair[1], trade);
  }
  (void)close(pair[1]);
  helper->control = pair[0];
  *out = helper;
  if (helper->keeper > 0) return 0;
  int status = fail_start(trade, error);
  helper_stop(helper);
  return status;
}

void helper_stop(helper_t *helper) {
  if (helper == NULL) return;
  (void)close(helper->control); /* the keeper reads its end */
  if (helper->keeper > 0) (void)waitpid(helper->keeper, NULL, 0);
  free(helper);
}

static bool send_order(const helper_t *helper, const helper_order_t *order,
                       const int descriptors[]) {
  descriptor_room_t space = {0};
  helper_order_t copy = *order;
  struct iovec part = {&copy, sizeof copy};
  struct msghdr message = {
      .msg_iov = &part, .msg_iovlen = 1, .msg_control = &space, .msg_controllen = sizeof space};
  struct cmsghdr *head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(sizeof(int) * DESCRIPTORS);
  memcpy(CMSG_DATA(head), descriptors, sizeof(int) * DESCRIPTORS);
  return sendmsg(helper->control, &message, MSG_NOSIGNAL) == sizeof copy;
}

/* The child's answer, or what its silence means. *used is at most what it was. */
static int await(const helper_trade_t *trade, int from, size_t *used, uint64_t *spent_ns,
                 inferd_error_t *error) {
  helper_answer_t answer;
  struct pollfd waiting = {.fd = from, .events = POLLIN};
  const uint64_t begin_ns = clock_now_ns();
  int ready;
  do ready = poll(&waiting, 1, (int)trade->wait_s_max * 1000);
  while (ready < 0 && errno == EINTR);
  if (ready == 0)
    return error_set(error, ERR_OVERLOADED, NULL,
                     "reading the %s takes too long: the machine is busy", trade->name);
  const ssize_t length = recv(from, &answer, sizeof answer, MSG_DONTWAIT);
  const uint64_t lived_ns = clock_now_ns() - begin_ns;
  *spent_ns += length == sizeof answer ? MIN(answer.cpu_ns, lived_ns) : lived_ns;
  if (length != sizeof answer)
    return error_set(error, ERR_INVALID_VALUE, NULL,
                     "the %s cannot be read: its decoder failed, or took more than %u s or %u MiB",
                     trade->name, trade->cpu_seconds_max, trade->memory_mib_max);
  if (!trade->fills) *used = MIN(answer.used, *used);
  if (answer.status == 0) return 0;
  /* From a process that may have been captured: bounded, printable, and one of two numbers. */
  char shown[ERROR_MESSAGE_MAX];
  const size_t said = strnlen(answer.message, sizeof answer.message);
  (void)error_quote(shown, sizeof shown, answer.message, said);
  const int code = answer.status == ERR_NO_MEMORY ? ERR_NO_MEMORY : ERR_INVALID_VALUE;
  if (said == 0) return error_set(error, code, NULL, "no memory for the %s", trade->name);
  return error_set(error, code, NULL, "%s", shown);
}

static int exchange(const helper_t *helper, const helper_order_t *order, int memory, size_t *used,
                    uint64_t *spent_ns, inferd_error_t *error) {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0)
    return error_set(error, ERR_OVERLOADED, NULL, "no descriptor for a %s", helper->trade->name);
  const bool sent = send_order(helper, order, (const int[DESCRIPTORS]){memory, pair[1]});
  (void)close(pair[1]);
  *used = order->room;
  int status = sent ? await(helper->trade, pair[0], used, spent_ns, error)
                    : error_set(error, ERR_OVERLOADED, NULL,
                                "the process that reads %ss is gone; the server must be started "
                                "again",
                                helper->trade->name);
  (void)close(pair[0]);
  return status;
}

/* Memory of the file and of the room for its result. Returns its descriptor, or -1. */
static int share(const helper_trade_t *trade, const helper_order_t *order, size_t *at,
                 helper_result_t *out) {
  size_t total;
  if (!shared_bytes(order, at, &total)) return -1;
  const int memory = memfd_create(trade->name, MFD_CLOEXEC);
  if (memory < 0) return -1;
  const size_t taken = trade->fills ? total : *at;
  void *mapping = MAP_FAILED;
  if (ftruncate(memory, (off_t)total) == 0 &&
      (taken == 0 || posix_fallocate(memory, 0, (off_t)taken) == 0))
    mapping = mmap(NULL, total, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
  if (mapping == MAP_FAILED) {
    (void)close(memory);
    return -1;
  }
  out->memory = mapping;
  out->mapped = total;
  return memory;
}

int helper_run(helper_t *helper, const void *job, const uint8_t *file, size_t bytes, size_t room,
               helper_result_t *out, uint64_t *spent_ns, inferd_error_t *error) {
  const helper_trade_t *trade = helper->trade;
  helper_order_t order = {.file_bytes = bytes, .room = room};
  size_t at = 0;
  *out = (helper_result_t){0};
  if (bytes > trade->file_bytes_max)
    return error_set(error, ERR_INVALID_VALUE, NULL, "the %s's file has %zu bytes; at most %zu",
                     trade->name, bytes, trade->file_bytes_max);
  memcpy(order.job.bytes, job, trade->job_bytes);
  const int memory = share(trade, &order, &at, out);
  if (memory < 0) return error_set(error, ERR_NO_MEMORY, NULL, "no memory for a %s", trade->name);
  if (bytes > 0) memcpy(out->memory, file, bytes);
  int status = exchange(helper, &order, memory, &out->length, spent_ns, error);
  /* The file goes back to the system at once; what is left stands behind it. */
  (void)fallocate(memory, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)at);
  (void)close(memory);
  out->bytes = (const uint8_t *)out->memory + at;
  if (status != 0) helper_result_free(out);
  return status;
}

void helper_result_free(helper_result_t *result) {
  if (result->memory != NULL) (void)munmap(result->memory, result->mapped);
  *result = (helper_result_t){0};
}
