/* web.h: requests as JSON bodies and answers as bytes, through the real code of server/.
 *
 * Used by run.c when the scenario has SIM_API. One thread.
 */
#ifndef INFERD_TESTS_SIM_WEB_H
#define INFERD_TESTS_SIM_WEB_H

#include "server/http/http.h"
#include "tests/sim/sim.h"

/* What a request of torture.c asks for. */
typedef struct web_route {
  const char *path, *tail;
  void (*handle)(exchange_t *exchange);
} web_route_t;

/* web.c: clients, and what stands in for libuv and the transport. */
void web_start(void); /* after the engine */
void web_stop(void);  /* before the engine; I2 and I5 of the server's side */
void web_send(int index);
bool web_hang_up(int index); /* false: it was answered already */
void web_iterate(void); /* one iteration of the loop thread: pool, events, slow clients, pings */
/* For torture.c: any request of any route, and what came of it (0 = no status yet). */
void web_request(int index, const web_route_t *route, const char *body);
int web_status(int index, bool *over, const char **body, size_t *length);
bool web_busy(void);  /* a completion lives */
void web_drain(void); /* the drain signal */
bool web_draining(void);
int web_index(const request_t *request); /* whose request the server submits */
void web_check_salt(const script_t *script, const request_t *request);

/* run.c */
void web_cancelled(int index); /* the client is about to go: from now on I6 holds */

/* answer.c: I10. A whole answer, as a strict client reads it. */
void web_check_answer(int index, int status, bool streamed, const char *body, size_t length);

#endif
