/* tls.c: the threads of TLS: one makes handshakes, one relays the bytes of sessions.
 *
 * Each thread has an epoll set of its own, level-triggered, and does a turn's work for a session at
 * a time, so none of its sessions waits for another for long. The loop thread gives sessions to the
 * first thread, that to the second; what has ended comes back to the loop thread by `done`. The
 * mutex guards these lists and the table of sessions by descriptor, and is never held during a
 * system call that could wait.
 */
#include "server/tls/tls.h"
#include "server/tls/session.h"

#include "engine/base/clock.h"
#include "engine/base/fault.h"

#include <errno.h>
#include <linux/tcp.h> /* its tcp_info knows the acknowledged bytes */
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { EVENTS_MAX = 64, TICK_MS = 250, PAIR_BYTES = 16 * 1024 };

typedef struct worker {
  struct tls *tls;
  pthread_t thread;
  bool started, shakes; /* shakes: makes handshakes, else relays */
  int epoll, bell;
  session_t *inbox;    /* by the mutex */
  uint64_t stop_ms;    /* by the mutex; 0 = runs on, else ends at that time at the latest */
  session_t *sessions; /* its own */
  session_t *freed;    /* its own: events of the same batch may still name them */
  char scratch[RECORD_BYTES];
} tls_thread_t;

typedef struct done {
  tls_client_t client;
  struct done *next;
} done_t;

struct tls {
  tls_thread_t shaker, relayer;
  tls_identity_t *identity; /* loop thread */
  void (*wake)(void *);
  void *context;
  pthread_mutex_t mutex;
  done_t *done, **last_done;
  session_t **by_fd; /* by the transport's descriptor; NULL = none */
  int by_fd_size;
};

static uint64_t now_ms(void) {
  return clock_now_ns() / 1000000;
}

static void ring(tls_thread_t *worker) {
  uint64_t one = 1;
  (void)!write(worker->bell, &one, sizeof one);
}

/* ---- lists ---- */

static void link_session(tls_thread_t *worker, session_t *session) {
  session->previous = NULL;
  session->next = worker->sessions;
  if (worker->sessions != NULL) worker->sessions->previous = session;
  worker->sessions = session;
}

static void unlink_session(tls_thread_t *worker, session_t *session) {
  if (session->previous != NULL) {
    session->previous->next = session->next;
  } else {
    worker->sessions = session->next;
  }
  if (session->next != NULL) session->next->previous = session->previous;
}

static void give(tls_thread_t *worker, session_t *session) {
  pthread_mutex_lock(&worker->tls->mutex);
  session->next = worker->inbox;
  worker->inbox = session;
  pthread_mutex_unlock(&worker->tls->mutex);
  ring(worker);
}

/* Lets the transport find the session by its end of the pair. */
static bool name_session(tls_t *tls, session_t *session) {
  int fd = session->transport_fd;
  pthread_mutex_lock(&tls->mutex);
  if (fd >= tls->by_fd_size) {
    int size = tls->by_fd_size > 0 ? tls->by_fd_size : 64;
    while (size <= fd) size *= 2;
    session_t **by_fd = reallocarray(tls->by_fd, (size_t)size, sizeof *by_fd);
    if (by_fd != NULL) {
      memset(by_fd + tls->by_fd_size, 0, (size_t)(size - tls->by_fd_size) * sizeof *by_fd);
      tls->by_fd = by_fd;
      tls->by_fd_size = size;
    }
  }
  bool named = fd < tls->by_fd_size;
  if (named) tls->by_fd[fd] = session;
  pthread_mutex_unlock(&tls->mutex);
  return named;
}

/* Tells the loop thread how a handshake ended. */
static void report(tls_t *tls, session_t *session, int fd, const char *why, bool late) {
  done_t *done = session->done;
  session->done = NULL;
  done->client = (tls_client_t){.fd = fd,
                                .address = session->address,
                                .address_length = session->address_length,
                                .why = why,
                                .late = late};
  pthread_mutex_lock(&tls->mutex);
  *tls->last_done = done;
  tls->last_done = &done->next;
  pthread_mutex_unlock(&tls->mutex);
  tls->wake(tls->context);
}

/* ---- a session in its thread ---- */

/* A session that cannot be watched ends at the next look at the deadlines. */
static void watch(const tls_thread_t *worker, session_end_t *end, uint32_t events) {
  if (end->fd < 0 || end->watched == events) return;
  struct epoll_event event = {.events = events, .data.ptr = end};
  bool known = end->watched != UINT32_MAX;
  if (epoll_ctl(worker->epoll, known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, end->fd, &event) == 0) {
    end->watched = events;
  } else {
    end->session->deadline_ms = 1;
  }
}

static void unwatch(const tls_thread_t *worker, session_end_t *end) {
  if (end->fd >= 0 && end->watched != UINT32_MAX) {
    (void)epoll_ctl(worker->epoll, EPOLL_CTL_DEL, end->fd, NULL);
  }
  end->watched = UINT32_MAX;
}

/* The struct lives until the end of the batch of events. */
static void end_session(tls_thread_t *worker, session_t *session) {
  tls_t *tls = worker->tls;
  unlink_session(worker, session);
  pthread_mutex_lock(&tls->mutex);
  int fd = session->transport_fd;
  if (fd >= 0 && fd < tls->by_fd_size && tls->by_fd[fd] == session) tls->by_fd[fd] = NULL;
  session_close(session); /* tls_acknowledged must not meet a closed descriptor */
  pthread_mutex_unlock(&tls->mutex);
  session->freed = true;
  session->next = worker->freed;
  worker->freed = session;
}

static void fail(tls_thread_t *worker, session_t *session, const char *why, bool late) {
  report(worker->tls, session, -1, why, late);
  end_session(worker, session);
}

/* The handshake is done: the session gets its pair and moves to the thread of relays. */
static void promote(tls_thread_t *worker, session_t *session) {
  int pair[2], size = PAIR_BYTES;
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) != 0) {
    fail(worker, session, strerror(errno), false);
    return;
  }
  /* Small, so that a client that reads slowly holds little. */
  (void)setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
  (void)setsockopt(pair[1], SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
  session->inner.fd = pair[0];
  session->transport_fd = pair[1];
  if (!name_session(worker->tls, session)) {
    close(pair[1]);
    fail(worker, session, "no memory", false);
    return;
  }
  unwatch(worker, &session->outer);
  unlink_session(worker, session);
  session->deadline_ms = 0;
  report(worker->tls, session, pair[1], NULL, false);
  give(&worker->tls->relayer, session);
}

static void shake(tls_thread_t *worker, session_t *session) {
  const char *why = NULL;
  session_step_t step = session_shake(session, &why);
  if (step == SESSION_FAILED) {
    fail(worker, session, why, false);
  } else if (step == SESSION_DONE) {
    promote(worker, session);
  } else {
    watch(worker, &session->outer, session_wants_outer(session));
  }
}

static void relay(tls_thread_t *worker, session_t *session) {
  if (session_relay(session, worker->scratch, now_ms()) != SESSION_WAITS) {
    end_session(worker, session);
    return;
  }
  watch(worker, &session->outer, session_wants_outer(session));
  if (!session->server_gone) watch(worker, &session->inner, session_wants_inner(session));
}

static void take_event(tls_thread_t *worker, const struct epoll_event *event) {
  session_end_t *end = event->data.ptr;
  session_t *session = end->session;
  if (session->freed) return;
  bool outer = end == &session->outer;
  if (outer && worker->shakes) {
    shake(worker, session);
  } else if (outer && (event->events & (EPOLLERR | EPOLLHUP)) != 0) {
    end_session(worker, session); /* the client can receive nothing more */
  } else {
    if (!outer && (event->events & (EPOLLERR | EPOLLHUP)) != 0) {
      session->server_gone = true;
      unwatch(worker, end); /* it would be reported without end */
    }
    relay(worker, session);
  }
}

/* ---- threads ---- */

static void take_inbox(tls_thread_t *worker) {
  uint64_t count;
  (void)!read(worker->bell, &count, sizeof count);
  pthread_mutex_lock(&worker->tls->mutex);
  session_t *session = worker->inbox;
  worker->inbox = NULL;
  pthread_mutex_unlock(&worker->tls->mutex);
  for (session_t *next; session != NULL; session = next) {
    next = session->next;
    link_session(worker, session);
    if (!worker->shakes) {
      relay(worker, session);
    } else if (session_begin(session)) {
      watch(worker, &session->outer, EPOLLIN);
    } else {
      fail(worker, session, "no memory", false);
    }
  }
}

static void check_deadlines(tls_thread_t *worker, uint64_t now) {
  for (session_t *session = worker->sessions, *next; session != NULL; session = next) {
    next = session->next;
    if (session->deadline_ms == 0 || now < session->deadline_ms) continue;
    if (worker->shakes) {
      fail(worker, session, "the client did not end it in time", true);
    } else {
      end_session(worker, session);
    }
  }
}

static void free_ended(tls_thread_t *worker) {
  for (session_t *session = worker->freed, *next; session != NULL; session = next) {
    next = session->next;
    free(session->done);
    free(session);
  }
  worker->freed = NULL;
}

static uint64_t stop_of(tls_thread_t *worker) {
  pthread_mutex_lock(&worker->tls->mutex);
  uint64_t stop_ms = worker->stop_ms;
  pthread_mutex_unlock(&worker->tls->mutex);
  return stop_ms;
}

static void *run(void *argument) {
  tls_thread_t *worker = argument;
  fault_stack_use();
  struct epoll_event events[EVENTS_MAX];
  uint64_t looked_ms = 0, stop_ms = 0;
  while (stop_ms == 0 || (worker->sessions != NULL && now_ms() < stop_ms)) {
    /* Idle, it sleeps without a clock. */
    int wait_ms = worker->sessions == NULL ? -1 : stop_ms != 0 ? 10 : TICK_MS;
    int n = epoll_wait(worker->epoll, events, EVENTS_MAX, wait_ms);
    for (int i = 0; i < n; i++) {
      if (events[i].data.ptr == worker) {
        take_inbox(worker);
      } else {
        take_event(worker, &events[i]);
      }
    }
    uint64_t now = now_ms();
    if (now - looked_ms >= TICK_MS) {
      check_deadlines(worker, now);
      looked_ms = now;
    }
    free_ended(worker);
    stop_ms = stop_of(worker);
  }
  take_inbox(worker);
  while (worker->sessions != NULL) end_session(worker, worker->sessions);
  free_ended(worker);
  return NULL;
}

static int start_worker(tls_t *tls, tls_thread_t *worker, bool shakes, inferd_error_t *error) {
  worker->tls = tls;
  worker->shakes = shakes;
  worker->epoll = epoll_create1(EPOLL_CLOEXEC);
  worker->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  struct epoll_event event = {.events = EPOLLIN, .data.ptr = worker};
  bool ready = worker->epoll >= 0 && worker->bell >= 0 &&
               epoll_ctl(worker->epoll, EPOLL_CTL_ADD, worker->bell, &event) == 0;
  sigset_t others, old; /* signals are for the loop thread, but faults */
  fault_block_others(&others);
  pthread_sigmask(SIG_SETMASK, &others, &old);
  int status = ready ? pthread_create(&worker->thread, NULL, run, worker) : errno;
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  worker->started = status == 0;
  if (status == 0) {
    (void)pthread_setname_np(worker->thread, shakes ? "tls-handshakes" : "tls-relay");
    return 0;
  }
  return error_set(error, ERR_IO, NULL, "cannot start a thread for TLS: %s", strerror(status));
}

static void stop_worker(tls_thread_t *worker, uint64_t stop_ms) {
  if (worker->started) {
    pthread_mutex_lock(&worker->tls->mutex);
    worker->stop_ms = stop_ms;
    pthread_mutex_unlock(&worker->tls->mutex);
    ring(worker);
    pthread_join(worker->thread, NULL);
  }
  if (worker->epoll >= 0) close(worker->epoll);
  if (worker->bell >= 0) close(worker->bell);
}

/* ---- for the loop thread ---- */

int tls_start(tls_identity_t *identity, void (*wake)(void *), void *context, tls_t **out,
              inferd_error_t *error) {
  tls_t *tls = calloc(1, sizeof *tls);
  if (tls == NULL) return error_set(error, ERR_NO_MEMORY, NULL, "no memory for TLS");
  tls->wake = wake;
  tls->context = context;
  tls->last_done = &tls->done;
  tls->shaker.epoll = tls->shaker.bell = tls->relayer.epoll = tls->relayer.bell = -1;
  pthread_mutex_init(&tls->mutex, NULL);
  int code = start_worker(tls, &tls->relayer, false, error);
  if (code == 0) code = start_worker(tls, &tls->shaker, true, error);
  if (code != 0) {
    tls_stop(tls);
    return code;
  }
  tls->identity = identity;
  *out = tls;
  return 0;
}

void tls_replace(tls_t *tls, tls_identity_t *identity) {
  tls_identity_free(tls->identity);
  tls->identity = identity;
}

const tls_identity_t *tls_present(const tls_t *tls) {
  return tls->identity;
}

bool tls_accept(tls_t *tls, int fd, const struct sockaddr *address, socklen_t length,
                uint64_t timeout_ms) {
  session_t *session = calloc(1, sizeof *session);
  done_t *done = calloc(1, sizeof *done); /* so that the end is told even without memory */
  if (session == NULL || done == NULL || length > sizeof session->address) {
    free(session);
    free(done);
    return false;
  }
  session->done = done;
  session->outer = (session_end_t){session, fd, UINT32_MAX};
  session->inner = (session_end_t){session, -1, UINT32_MAX};
  session->transport_fd = -1;
  session->identity = tls_identity_share(tls->identity);
  session->deadline_ms = now_ms() + timeout_ms;
  session->address_length = length;
  memcpy(&session->address, address, length);
  give(&tls->shaker, session);
  return true;
}

bool tls_next(tls_t *tls, tls_client_t *out) {
  pthread_mutex_lock(&tls->mutex);
  done_t *done = tls->done;
  if (done != NULL) tls->done = done->next;
  if (tls->done == NULL) tls->last_done = &tls->done;
  pthread_mutex_unlock(&tls->mutex);
  if (done == NULL) return false;
  *out = done->client;
  free(done);
  return true;
}

uint64_t tls_acknowledged(tls_t *tls, int fd) {
  struct tcp_info info = {0};
  socklen_t size = sizeof info;
  pthread_mutex_lock(&tls->mutex);
  const session_t *session = fd >= 0 && fd < tls->by_fd_size ? tls->by_fd[fd] : NULL;
  if (session == NULL || getsockopt(session->outer.fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) {
    info = (struct tcp_info){0};
  }
  pthread_mutex_unlock(&tls->mutex);
  return info.tcpi_bytes_acked;
}

void tls_stop(tls_t *tls) {
  if (tls == NULL) return;
  tls_client_t client;
  stop_worker(&tls->shaker, 1); /* what it has ready, it gives to the other */
  while (tls_next(tls, &client)) {
    if (client.fd >= 0) close(client.fd);
  }
  stop_worker(&tls->relayer, now_ms() + TLS_STOP_MS);
  tls_identity_free(tls->identity);
  pthread_mutex_destroy(&tls->mutex);
  free(tls->by_fd);
  free(tls);
}
