/* helper.c: the keeper, its children, and the callers who wait for them. picture_helper_views is
 * for any thread; the keeper and each child have one thread. */
#include "engine/picture/helper.h"

#include "engine/base/checked.h"
#include "engine/base/clock.h"
#include "engine/base/util.h"
#include "engine/picture/rights.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

struct picture_helper {
  int control; /* to the keeper; each message is a job and two descriptors */
  pid_t keeper;
};

typedef struct picture_answer {
  int status;
  uint64_t cpu_ns;
  char message[ERROR_MESSAGE_MAX];
} picture_answer_t;

enum { MEMORY, ANSWER, DESCRIPTORS };

/* Room for the control data of a message, aligned as the kernel wants it. */
typedef union descriptor_room {
  struct cmsghdr head;
  char bytes[CMSG_SPACE(sizeof(int) * DESCRIPTORS)];
} descriptor_room_t;

/* Shared memory: the file, then on a page of its own the views. */
static bool shared_bytes(const picture_job_t *job, size_t *views, size_t *total) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  return checked_align(job->file_bytes, page, views) &&
         checked_add(*views, vision_view_bytes(&job->layout), total);
}

/* ---- child ---- */

int picture_work(const picture_job_t *job, const uint8_t *file, uint8_t *views,
                 inferd_error_t *error) {
  picture_t picture = {0};
  int status = picture_decode(file, job->file_bytes, &picture, error);
  if (status == 0 && (picture.width != job->width || picture.height != job->height))
    status = error_set(error, ERR_INVALID_VALUE, NULL, "the picture has two sizes");
  if (status == 0) status = vision_views(&job->processor, &job->layout, &picture, views);
  free(picture.rgb);
  return status;
}

static void run_child(picture_work_t work, const picture_job_t *job, const int descriptors[]) {
  picture_answer_t answer = {.status = ERR_NO_MEMORY};
  inferd_error_t error = {0};
  size_t views, total;
  if (!shared_bytes(job, &views, &total)) _exit(1);
  uint8_t *memory = mmap(NULL, total, PROT_READ | PROT_WRITE, MAP_SHARED, descriptors[MEMORY], 0);
  if (memory == MAP_FAILED) _exit(1);
  (void)alarm(PICTURE_WAIT_MS_MAX / 1000); /* of one that waits for ever, nobody waits */
  if (!rights_drop(descriptors[ANSWER], PICTURE_CPU_SECONDS_MAX, PICTURE_MEMORY_MIB_MAX)) _exit(1);
  answer.status = work(job, memory, memory + views, &error);
  memcpy(answer.message, error.message, sizeof answer.message);
  answer.cpu_ns = clock_thread_ns(); /* it has one */
  /* Nobody to tell of a failure: the caller sees the end of this process. */
  ssize_t written = write(descriptors[ANSWER], &answer, sizeof answer);
  _exit(written == sizeof answer ? 0 : 1);
}

/* ---- keeper ---- */

/* False at the end of the daemon. A message without its descriptors has descriptors[] of -1. */
static bool receive_job(int control, picture_job_t *job, int descriptors[]) {
  descriptor_room_t space = {0};
  struct iovec part = {job, sizeof *job};
  struct msghdr message = {
      .msg_iov = &part, .msg_iovlen = 1, .msg_control = &space, .msg_controllen = sizeof space};
  ssize_t length;
  do length = recvmsg(control, &message, MSG_CMSG_CLOEXEC);
  while (length < 0 && errno == EINTR);
  if (length <= 0) return false;
  descriptors[MEMORY] = descriptors[ANSWER] = -1;
  const struct cmsghdr *head = CMSG_FIRSTHDR(&message);
  if (length == sizeof *job && head != NULL &&
      head->cmsg_len == CMSG_LEN(sizeof(int) * DESCRIPTORS))
    memcpy(descriptors, CMSG_DATA(head), sizeof(int) * DESCRIPTORS);
  return true;
}

static void close_all_but(int kept) {
  if (kept > 3) (void)close_range(3, (unsigned)kept - 1, 0);
  (void)close_range((unsigned)kept + 1, ~0u, 0);
}

static void run_keeper(int control, picture_work_t work) {
  int descriptors[DESCRIPTORS];
  picture_job_t job;
  (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
  (void)prctl(PR_SET_NAME, "inferd-pictures");
  (void)setpriority(PRIO_PROCESS, 0, PICTURE_NICE);
  close_all_but(control);
  (void)signal(SIGCHLD, SIG_IGN); /* children leave nothing behind */
  (void)signal(SIGINT, SIG_IGN);  /* of the terminal: the daemon drains first */
  (void)signal(SIGTERM, SIG_DFL);
  while (receive_job(control, &job, descriptors)) {
    if (descriptors[ANSWER] < 0) continue;
    if (fork() == 0) {
      (void)close(control);
      run_child(work, &job, descriptors);
    }
    (void)close(descriptors[MEMORY]);
    (void)close(descriptors[ANSWER]);
  }
  _exit(0);
}

/* ---- callers ---- */

int picture_helper_start(picture_work_t work, picture_helper_t **out, inferd_error_t *error) {
  int pair[2];
  picture_helper_t *helper = calloc(1, sizeof *helper);
  if (helper == NULL || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
    free(helper);
    return error_system(error, "the process for pictures", errno);
  }
  helper->keeper = fork();
  if (helper->keeper == 0) {
    (void)close(pair[0]);
    run_keeper(pair[1], work);
  }
  (void)close(pair[1]);
  helper->control = pair[0];
  *out = helper;
  if (helper->keeper > 0) return 0;
  int status = error_system(error, "the process for pictures", errno);
  picture_helper_stop(helper);
  return status;
}

void picture_helper_stop(picture_helper_t *helper) {
  if (helper == NULL) return;
  (void)close(helper->control); /* the keeper reads its end */
  if (helper->keeper > 0) (void)waitpid(helper->keeper, NULL, 0);
  free(helper);
}

static bool send_job(const picture_helper_t *helper, const picture_job_t *job,
                     const int descriptors[]) {
  descriptor_room_t space = {0};
  picture_job_t copy = *job;
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

/* The child's answer, or what its silence means. */
static int await(int from, uint64_t *spent_ns, inferd_error_t *error) {
  picture_answer_t answer;
  struct pollfd waiting = {.fd = from, .events = POLLIN};
  const uint64_t begin_ns = clock_now_ns();
  int ready;
  do ready = poll(&waiting, 1, PICTURE_WAIT_MS_MAX);
  while (ready < 0 && errno == EINTR);
  if (ready == 0)
    return error_set(error, ERR_OVERLOADED, NULL,
                     "reading the picture takes too long: the machine "
                     "is busy");
  const ssize_t length = recv(from, &answer, sizeof answer, MSG_DONTWAIT);
  const uint64_t lived_ns = clock_now_ns() - begin_ns;
  *spent_ns += length == sizeof answer ? MIN(answer.cpu_ns, lived_ns) : lived_ns;
  if (length != sizeof answer)
    return error_set(error, ERR_INVALID_VALUE, NULL,
                     "the picture cannot be read: its decoder failed, or took more than %d s or "
                     "%d MiB",
                     PICTURE_CPU_SECONDS_MAX, PICTURE_MEMORY_MIB_MAX);
  if (answer.status == 0) return 0;
  /* From a process that may have been captured: bounded, printable, and one of two numbers. */
  char shown[ERROR_MESSAGE_MAX];
  const size_t said = strnlen(answer.message, sizeof answer.message);
  (void)error_quote(shown, sizeof shown, answer.message, said);
  return error_set(error, answer.status == ERR_NO_MEMORY ? ERR_NO_MEMORY : ERR_INVALID_VALUE, NULL,
                   "%s", said == 0 ? "no memory for the picture" : shown);
}

static int exchange(const picture_helper_t *helper, const picture_job_t *job, int memory,
                    uint64_t *spent_ns, inferd_error_t *error) {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0)
    return error_set(error, ERR_OVERLOADED, NULL, "no descriptor for a picture");
  const bool sent = send_job(helper, job, (const int[DESCRIPTORS]){memory, pair[1]});
  (void)close(pair[1]);
  int status = sent ? await(pair[0], spent_ns, error)
                    : error_set(error, ERR_OVERLOADED, NULL,
                                "the process that reads pictures is gone; the server must be "
                                "started again");
  (void)close(pair[0]);
  return status;
}

int picture_helper_views(picture_helper_t *helper, const picture_job_t *job, const uint8_t *file,
                         uint8_t *views, uint64_t *spent_ns, inferd_error_t *error) {
  size_t at, total;
  if (job->file_bytes > PICTURE_FILE_MAX)
    return error_set(error, ERR_INVALID_VALUE, NULL, "the picture's file has %zu bytes; at most %d",
                     job->file_bytes, PICTURE_FILE_MAX);
  const int memory = memfd_create("picture", MFD_CLOEXEC);
  uint8_t *shared = MAP_FAILED;
  if (memory >= 0 && shared_bytes(job, &at, &total) &&
      posix_fallocate(memory, 0, (off_t)total) == 0)
    shared = mmap(NULL, total, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
  if (shared == MAP_FAILED) {
    if (memory >= 0) (void)close(memory);
    return error_set(error, ERR_NO_MEMORY, NULL, "no memory for a picture");
  }
  if (job->file_bytes > 0) memcpy(shared, file, job->file_bytes);
  int status = exchange(helper, job, memory, spent_ns, error);
  if (status == 0) memcpy(views, shared + at, vision_view_bytes(&job->layout));
  (void)munmap(shared, total);
  (void)close(memory);
  return status;
}
