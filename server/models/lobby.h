/* lobby.h: requests that wait for a model, counted by client. No I/O, no clock. One thread.
 *
 * A client may ask as often as it likes while the queue is full, and each time the parent wants to
 * know how many wait, how many of them are this client's, and who has most. Nothing here walks over
 * requests or clients to tell: clients with the same number of requests are a list, and a number
 * changes by one.
 */
#ifndef INFERD_SERVER_MODELS_LOBBY_H
#define INFERD_SERVER_MODELS_LOBBY_H

#include <stdbool.h>
#include <stdint.h>

typedef struct lobby lobby_t;
typedef struct lobby_client lobby_client_t;

/* Lies in the owner's object; all but `owner` is zero at first. */
typedef struct guest {
  void *owner;
  lobby_client_t *client;      /* NULL: not inside */
  struct guest *newer, *older; /* of the same client */
} guest_t;

lobby_t *lobby_new(void);        /* NULL if memory is short */
void lobby_free(lobby_t *lobby); /* nobody is inside; NULL is allowed */

/* Returns false if memory is short: then it is not inside. */
bool lobby_enter(lobby_t *lobby, guest_t *guest, uint64_t source);
void lobby_leave(lobby_t *lobby, guest_t *guest); /* harmless if it is not inside */

int64_t lobby_count(const lobby_t *lobby);
int64_t lobby_count_of(const lobby_t *lobby, uint64_t source);
/* The newest of a client of which no other has more, and *count, how many it has; NULL: empty. */
guest_t *lobby_newest_of_most(const lobby_t *lobby, int64_t *count);

#endif
