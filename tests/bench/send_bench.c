/* send_bench.c: what one send() to a loopback socket costs: the floor under a token of a stream.
 *
 * One thread sends a chunk to each of many TCP connections, in rounds with a pause between them; a
 * second thread reads them. Prints the processor time of the sender for each send.
 * Usage: send_bench [bytes] [pause ms] [connections]
 */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>

enum { ROUNDS = 100, BYTES_MAX = 65536, EVENTS = 256 };

static int *readers, num_connections;
static atomic_bool stop;

static void must(bool holds, const char *what) {
  if (holds) return;
  perror(what);
  exit(1);
}

static void *read_all(void *context) {
  static char bytes[BYTES_MAX];
  struct epoll_event events[EVENTS];
  int epoll = epoll_create1(0);
  for (int i = 0; i < num_connections; i++) {
    struct epoll_event event = {.events = EPOLLIN, .data = {.fd = readers[i]}};
    must(epoll_ctl(epoll, EPOLL_CTL_ADD, readers[i], &event) == 0, "epoll_ctl");
  }
  while (!atomic_load(&stop)) {
    int count = epoll_wait(epoll, events, EVENTS, 100);
    for (int i = 0; i < count; i++) {
      while (recv(events[i].data.fd, bytes, sizeof bytes, MSG_DONTWAIT) > 0) {
      }
    }
  }
  return context;
}

static double thread_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* The sockets that send; those that read are in `readers`. */
static int *connect_all(void) {
  struct sockaddr_in address = {.sin_family = AF_INET,
                                .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
  struct sockaddr *any = (struct sockaddr *)(void *)&address;
  socklen_t length = sizeof address;
  int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;
  int *senders = calloc((size_t)num_connections, sizeof *senders);
  readers = calloc((size_t)num_connections, sizeof *readers);
  must(senders != NULL && readers != NULL, "calloc");
  must(bind(listener, any, length) == 0 && getsockname(listener, any, &length) == 0 &&
           listen(listener, SOMAXCONN) == 0,
       "listen");
  for (int i = 0; i < num_connections; i++) {
    readers[i] = socket(AF_INET, SOCK_STREAM, 0);
    must(connect(readers[i], any, length) == 0, "connect");
    senders[i] = accept(listener, NULL, NULL);
    must(senders[i] >= 0, "accept");
    setsockopt(senders[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  }
  return senders;
}

int main(int argc, char **argv) {
  static char chunk[BYTES_MAX];
  int bytes = argc > 1 ? atoi(argv[1]) : 230, pause_ms = argc > 2 ? atoi(argv[2]) : 20;
  num_connections = argc > 3 ? atoi(argv[3]) : 1000;
  must(bytes > 0 && bytes <= BYTES_MAX && num_connections > 0, "1 to 65536 bytes");
  const int *senders = connect_all();
  pthread_t reader;
  must(pthread_create(&reader, NULL, read_all, NULL) == 0, "pthread_create");
  double sum_us = 0;
  for (int round = 0; round < ROUNDS; round++) {
    double begun_us = thread_us();
    for (int i = 0; i < num_connections; i++)
      must(send(senders[i], chunk, (size_t)bytes, MSG_DONTWAIT | MSG_NOSIGNAL) == bytes, "send");
    sum_us += thread_us() - begun_us;
    nanosleep(&(struct timespec){pause_ms / 1000, pause_ms % 1000 * 1000000L}, NULL);
  }
  atomic_store(&stop, true);
  pthread_join(reader, NULL);
  printf("send: %d connections, %d bytes each: %.2f us of a core\n", num_connections, bytes,
         sum_us / ROUNDS / num_connections);
  return 0;
}
