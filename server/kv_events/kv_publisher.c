/* kv_publisher.c: the thread that sends batches, and sends old ones again.
 *
 * It alone uses the sockets and the stream. One replay runs at a time, a few batches a turn,
 * between the batches that are new; who asks meanwhile waits in the socket. A client that takes
 * nothing for REPLAY_STALL_MS loses its replay, so the memory of a replay is that of the batches
 * that are kept.
 */
#include "server/kv_events/kv_publisher.h"

#include "engine/base/check.h"
#include "engine/base/clock.h"
#include "engine/base/fault.h"
#include "server/kv_events/zmq_api.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum {
  IDENTITY_MAX = 255, /* bytes, of a ZeroMQ peer */
  SEQ_BYTES = 8,
  FRAME_MAX = 512,           /* bytes of what a client of the ROUTER socket may send */
  SUBSCRIBER_BATCHES = 4096, /* that wait for one subscriber; then it loses some */
  REPLAY_QUEUE = 64,         /* messages that wait in the ROUTER socket for one client */
  REPLAY_TURN = 32,          /* batches of a replay between two looks at what is new */
  REPLAY_RETRY_MS = 1,
  REPLAY_STALL_MS = 5000,
  LINGER_MS = 200 /* for the last batches to leave at the end */
};

/* The replay that runs. */
typedef struct kv_replay {
  bool active;
  char identity[IDENTITY_MAX];
  size_t identity_length;
  uint64_t next_seq;
  uint64_t progress_ns; /* when the client took something */
} kv_replay_t;

struct kv_publisher {
  char *endpoint, *replay_endpoint, *topic; /* copies */
  zmq_api_t zmq;
  void *context, *pub, *router; /* router NULL = no replay */
  kv_events_t *events;
  kv_stream_t *stream;
  kv_replay_t replay;
  pthread_t thread;
  bool started;
  int stop_fd;
  atomic_bool stop;
  atomic_ullong batches;
};

bool kv_endpoint_binds(const char *endpoint) {
  return strchr(endpoint, '*') != NULL || strstr(endpoint, "::") != NULL ||
         strncmp(endpoint, "ipc://", 6) == 0;
}

static void write_seq(char out[SEQ_BYTES], uint64_t seq) {
  for (int i = 0; i < SEQ_BYTES; i++) out[i] = (char)(seq >> 8 * (SEQ_BYTES - 1 - i));
}

/* ---- new batches ---- */

/* A PUB socket never blocks: what does not fit for a subscriber is lost for it. */
static void publish(void *context, const kv_batch_t *batch) {
  kv_publisher_t *publisher = context;
  const zmq_api_t *zmq = &publisher->zmq;
  char seq[SEQ_BYTES];
  write_seq(seq, batch->seq);
  zmq->send(publisher->pub, publisher->topic, strlen(publisher->topic), ZMQ_SNDMORE);
  zmq->send(publisher->pub, seq, sizeof seq, ZMQ_SNDMORE);
  zmq->send(publisher->pub, batch->payload, batch->length, 0);
  atomic_fetch_add_explicit(&publisher->batches, 1, memory_order_relaxed);
}

/* ---- replay ---- */

/* Reads one request of a client: [identity, "", number]. Anything else is read and forgotten. */
static void accept_replay(kv_publisher_t *publisher) {
  const zmq_api_t *zmq = &publisher->zmq;
  kv_replay_t *replay = &publisher->replay;
  char frame[FRAME_MAX];
  uint64_t seq = 0;
  bool valid = true;
  int more = 1, count = 0;
  for (; more; count++) {
    int length = zmq->recv(publisher->router, frame, sizeof frame, ZMQ_DONTWAIT);
    if (length < 0) return;
    size_t size = sizeof more;
    if (zmq->get(publisher->router, ZMQ_RCVMORE, &more, &size) != 0) return;
    if (count == 0 && length <= IDENTITY_MAX) {
      memcpy(replay->identity, frame, (size_t)length);
      replay->identity_length = (size_t)length;
    } else {
      valid = valid && ((count == 1 && length == 0) || (count == 2 && length == SEQ_BYTES));
    }
    for (int i = 0; count == 2 && i < SEQ_BYTES && valid; i++) seq = seq << 8 | (uint8_t)frame[i];
  }
  if (!valid || count != 3) return;
  replay->active = true;
  replay->next_seq = seq;
  replay->progress_ns = clock_now_ns();
}

/* Sends [identity, "", topic, number, payload]. Returns false if nothing could be sent now. */
static bool send_replay(kv_publisher_t *publisher, const char *topic, uint64_t number,
                        const char *payload, size_t length) {
  const zmq_api_t *zmq = &publisher->zmq;
  const kv_replay_t *replay = &publisher->replay;
  char seq[SEQ_BYTES];
  write_seq(seq, number);
  int more = ZMQ_SNDMORE | ZMQ_DONTWAIT;
  /* The first part alone may fail: with ROUTER_MANDATORY it says that the queue of the client is
   * full, or that it is gone. */
  if (zmq->send(publisher->router, replay->identity, replay->identity_length, more) < 0) {
    if (zmq->number() != EAGAIN) publisher->replay.active = false;
    return false;
  }
  zmq->send(publisher->router, "", 0, more);
  zmq->send(publisher->router, topic, strlen(topic), more);
  zmq->send(publisher->router, seq, sizeof seq, more);
  zmq->send(publisher->router, payload, length, ZMQ_DONTWAIT);
  return true;
}

/* Sends the next batches of the replay. Returns false if the client takes none now. */
static bool go_on_replay(kv_publisher_t *publisher) {
  kv_replay_t *replay = &publisher->replay;
  bool sent = true;
  for (int i = 0; replay->active && i < REPLAY_TURN; i++) {
    const kv_batch_t *batch = kv_stream_find(publisher->stream, replay->next_seq);
    sent = batch != NULL
               ? send_replay(publisher, publisher->topic, batch->seq, batch->payload, batch->length)
               : send_replay(publisher, "", UINT64_MAX, "", 0);
    if (!sent) break;
    replay->progress_ns = clock_now_ns();
    if (batch == NULL) {
      replay->active = false;
    } else {
      replay->next_seq = batch->seq + 1;
    }
  }
  uint64_t stalled_ns = clock_now_ns() - replay->progress_ns;
  if (stalled_ns > (uint64_t)REPLAY_STALL_MS * 1000000u) replay->active = false;
  return sent;
}

/* ---- the thread ---- */

static void *publisher_main(void *context) {
  kv_publisher_t *publisher = context;
  zmq_pollitem_t items[] = {{.fd = kv_events_fd(publisher->events), .events = ZMQ_POLLIN},
                            {.fd = publisher->stop_fd, .events = ZMQ_POLLIN},
                            {.socket = publisher->router, .events = ZMQ_POLLIN}};
  fault_stack_use();
  bool waits = false; /* the client of the replay took nothing */
  while (!atomic_load(&publisher->stop)) {
    bool replays = publisher->replay.active;
    int count = publisher->router != NULL && !replays ? 3 : 2;
    publisher->zmq.poll(items, count, replays ? waits * REPLAY_RETRY_MS : -1);
    kv_stream_pump(publisher->stream, publisher->events, publish, publisher);
    if (replays) {
      waits = !go_on_replay(publisher);
    } else if (count == 3 && (items[2].revents & ZMQ_POLLIN)) {
      accept_replay(publisher);
    }
  }
  kv_stream_pump(publisher->stream, publisher->events, publish, publisher);
  return NULL;
}

/* ---- life ---- */

static int open_error(const kv_publisher_t *publisher, const char *option, const char *endpoint,
                      inferd_error_t *error) {
  int number = publisher->zmq.number();
  int code = number == EADDRINUSE ? ERR_ADDRESS_IN_USE
             : number == EACCES   ? ERR_PERMISSION
             : number == EINVAL || number == ENODEV || number == EPROTONOSUPPORT ? ERR_CONFIGURATION
                                                                                 : ERR_IO;
  return error_set(error, code, option, "%s: %.200s: %s", option, endpoint,
                   publisher->zmq.text(number));
}

/* Opens a socket of this type at the endpoint. `queue` messages wait for each peer. */
static void *open_socket(kv_publisher_t *publisher, int type, const char *endpoint, int queue) {
  const zmq_api_t *zmq = &publisher->zmq;
  int linger = LINGER_MS, one = 1;
  int64_t largest = FRAME_MAX;
  void *socket = zmq->socket(publisher->context, type);
  if (socket == NULL) return NULL;
  bool is_router = type == ZMQ_ROUTER;
  bool right = zmq->set(socket, ZMQ_LINGER, &linger, sizeof linger) == 0 &&
               zmq->set(socket, ZMQ_SNDHWM, &queue, sizeof queue) == 0 &&
               zmq->set(socket, ZMQ_IPV6, &one, sizeof one) == 0 &&
               zmq->set(socket, ZMQ_MAXMSGSIZE, &largest, sizeof largest) == 0 &&
               (!is_router || zmq->set(socket, ZMQ_ROUTER_MANDATORY, &one, sizeof one) == 0);
  bool binds = is_router || kv_endpoint_binds(endpoint);
  if (right) right = (binds ? zmq->bind : zmq->connect)(socket, endpoint) == 0;
  if (right) return socket;
  int number = zmq->number();
  zmq->close(socket);
  errno = number; /* what zmq_errno returns */
  return NULL;
}

static int open_sockets(kv_publisher_t *publisher, inferd_error_t *error) {
  int code = zmq_api_open(&publisher->zmq, error);
  if (code != 0) return code;
  publisher->context = publisher->zmq.ctx_new();
  if (publisher->context == NULL)
    return error_set(error, ERR_NO_MEMORY, NULL, "no memory for ZeroMQ");
  publisher->pub = open_socket(publisher, ZMQ_PUB, publisher->endpoint, SUBSCRIBER_BATCHES);
  if (publisher->pub == NULL)
    return open_error(publisher, "kv_events_endpoint", publisher->endpoint, error);
  if (publisher->replay_endpoint[0] == '\0') return 0;
  publisher->router = open_socket(publisher, ZMQ_ROUTER, publisher->replay_endpoint, REPLAY_QUEUE);
  if (publisher->router == NULL)
    return open_error(publisher, "kv_events_replay", publisher->replay_endpoint, error);
  return 0;
}

/* Signals are for the loop thread, but faults. */
static int start_thread(kv_publisher_t *publisher, inferd_error_t *error) {
  sigset_t others, before;
  fault_block_others(&others);
  pthread_sigmask(SIG_SETMASK, &others, &before);
  int number = pthread_create(&publisher->thread, NULL, publisher_main, publisher);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (number != 0)
    return error_set(error, ERR_NO_MEMORY, NULL, "the thread of the events does not start: %s",
                     strerror(number));
  pthread_setname_np(publisher->thread, "kv-events");
  publisher->started = true;
  return 0;
}

int kv_publisher_new(const kv_publisher_options_t *options, kv_events_t *events,
                     kv_publisher_t **out, inferd_error_t *error) {
  kv_publisher_t *publisher = calloc(1, sizeof *publisher);
  if (publisher == NULL) return error_set(error, ERR_NO_MEMORY, NULL, "no memory for events");
  publisher->events = events;
  publisher->endpoint = strdup(options->endpoint);
  publisher->replay_endpoint = strdup(options->replay);
  publisher->topic = strdup(options->topic);
  publisher->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  int code = kv_stream_new(&options->stream, &publisher->stream, error);
  if (code == 0 && (publisher->endpoint == NULL || publisher->replay_endpoint == NULL ||
                    publisher->topic == NULL || publisher->stop_fd < 0))
    code = error_set(error, ERR_NO_MEMORY, NULL, "no memory for events");
  if (code == 0) code = open_sockets(publisher, error);
  if (code == 0) code = start_thread(publisher, error);
  if (code != 0) {
    kv_publisher_free(publisher);
    return code;
  }
  *out = publisher;
  return 0;
}

void kv_publisher_free(kv_publisher_t *publisher) {
  if (publisher == NULL) return;
  uint64_t one = 1;
  if (publisher->started) {
    atomic_store(&publisher->stop, true);
    ssize_t written = write(publisher->stop_fd, &one, sizeof one);
    CHECK_EQ(written, (ssize_t)sizeof one);
    pthread_join(publisher->thread, NULL);
  }
  if (publisher->pub != NULL) publisher->zmq.close(publisher->pub);
  if (publisher->router != NULL) publisher->zmq.close(publisher->router);
  if (publisher->context != NULL) publisher->zmq.ctx_term(publisher->context);
  zmq_api_close(&publisher->zmq);
  if (publisher->stop_fd >= 0) close(publisher->stop_fd);
  kv_stream_free(publisher->stream);
  free(publisher->endpoint);
  free(publisher->replay_endpoint);
  free(publisher->topic);
  free(publisher);
}

kv_publisher_stats_t kv_publisher_stats(const kv_publisher_t *publisher) {
  return (kv_publisher_stats_t){.batches =
                                    atomic_load_explicit(&publisher->batches, memory_order_relaxed),
                                .dropped = kv_events_dropped(publisher->events)};
}
