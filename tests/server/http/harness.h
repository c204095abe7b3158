/* harness.h: the real transport and route table with fake handlers, on a thread of its own, and a
 * client that speaks raw bytes. */
#ifndef INFERD_TESTS_SERVER_HTTP_HARNESS_H
#define INFERD_TESTS_SERVER_HTTP_HARNESS_H

#include "server/server.h"

#include <stdatomic.h>

/* What the fake handlers saw; any thread may read it. */
typedef struct seen {
  atomic_int handled; /* calls of api_completions */
  atomic_int live;    /* exchanges it has not answered */
  atomic_int gone;    /* calls of on_gone */
  atomic_int refused_writes;
  atomic_int drained; /* calls of `drained` */
  atomic_int metrics; /* calls of metrics_http */
  atomic_int last_status;
  _Atomic(const char *) cause;                   /* of the last on_gone */
  atomic_ullong gone_ns;                         /* when */
  atomic_int connections, streaming, waiting;    /* transport's gauges, after harness_stats */
  atomic_llong held;                             /* bytes of the ledger, after harness_stats */
  atomic_llong reply_turn_max, replies_turn_max; /* of http_stats_t, after harness_stats */
  atomic_llong requests_turn_max;                /* likewise */
  atomic_llong sends_here, sends_by_thread, sends_short; /* likewise */
  atomic_llong kept; /* bytes of the bodies that "keep" has kept */
} seen_t;
extern seen_t seen;
extern atomic_int fake_engine_state; /* engine_state_t */
extern atomic_bool fake_starting;    /* before harness_start */
extern atomic_bool fake_behind;      /* a parent of several models sends the requests; likewise */

/* Starts the transport with these flags (NULL ends the list) on --port 0 of 127.0.0.1 unless
 * --listen or --uds is given. */
void harness_start(const char *const *flags);
/* As harness_start, but hands back http_start's error. */
int harness_try(const char *const *flags, inferd_error_t *error);
void harness_stop(void); /* aborts what is left, stops, checks that nothing is left */
void harness_drain(void);
void harness_abort(void);
void harness_stats(void);
void harness_let_go(void);      /* frees the bodies that were kept */
int harness_port(int listener); /* of http_address(listener) */
const char *harness_address(int listener);

/* Client side. All waits end after `timeout_ms`, those of a second or more after 20 times that:
 * they are for what must come, also where other programs have the processors. */
int client_connect(int port);
int client_connect_address(const char *host, int port); /* numeric; IPv6 too */
int client_connect_unix(const char *path);
void client_send(int fd, const char *text);
void client_send_bytes(int fd, const char *bytes, size_t length);
/* Reads until the text contains `until`, the end of file, or the timeout. Returns malloc'ed text.
 */
char *client_read(int fd, const char *until, int timeout_ms);
char *client_read_all(int fd, int timeout_ms); /* to the end of file */
/* Takes the chunks of a body apart, in place, up to the last one. Returns the length. */
size_t client_join_chunks(char *body);
bool client_closed(int fd, int timeout_ms); /* does the server close within the time? */
void client_reset(int fd);                  /* close with RST */
/* One request on a new connection with Connection: close; whole answer as text. */
char *client_request(const char *text);
/* "POST /v1/completions" with the body; keep-alive. malloc'ed. */
char *client_post_text(const char *path, const char *extra_headers, const char *body);
int status_of(const char *response);
uint64_t now_ns(void);
/* Waits until *value == wanted. */
bool wait_for(atomic_int *value, int wanted, int timeout_ms);

#endif
