/* sender.h: a thread that writes to sockets, so that the loop thread need not.
 *
 * To write a token's chunk to a loopback socket takes a core longer than all else that the loop
 * thread does for the token. The loop thread puts chunks into parcels, batches of which go to the
 * thread; it writes each once, without waiting, and hands them back with what the sockets took.
 * What a full socket did not take is the owner's affair. An owner may have one parcel at a time,
 * because the next one would pass what is left of this one.
 *
 * All functions are for the loop thread. */
#ifndef INFERD_SERVER_HTTP_SENDER_H
#define INFERD_SERVER_HTTP_SENDER_H

#include "engine/base/error.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
  PARCEL_BYTES_MAX = 4096, /* more is worth a call of the loop thread */
  SENDER_BATCHES_MAX = 256 /* of 16 KiB, made when they are needed, kept to the end */
};

typedef enum parcel_state {
  PARCEL_READY,
  PARCEL_SENDING,
  PARCEL_DONE,
  PARCEL_CANCELLED
} parcel_state_t;

/* Bytes for one socket. */
typedef struct parcel {
  _Atomic parcel_state_t state;
  int fd;          /* non-blocking */
  int error;       /* done: errno of a socket that is broken, 0 also for one that is full */
  uint32_t length; /* of `bytes` */
  uint32_t sent;   /* done: how many of them the socket took */
  void *owner;
  char bytes[];
} parcel_t;

typedef struct sender sender_t;

/* Starts the thread. It calls `wake`, from itself, when parcels are done for which sender_want has
 * asked, or which a socket has not taken whole. */
int sender_start(void (*wake)(void *context), void *context, sender_t **out, inferd_error_t *error);
/* A parcel of `length` bytes, at most PARCEL_BYTES_MAX; the caller writes them before any other
 * call. NULL: all batches are with the thread, or memory is short. The parcel is valid until
 * sender_collect has given it back, or sender_cancel has ended it. */
parcel_t *sender_add(sender_t *sender, int fd, void *owner, size_t length);
void sender_flush(sender_t *sender); /* the thread gets what was added */
/* Nothing of the parcel is sent from now on, so the descriptor may be closed; sender_collect does
 * not give it back. Waits for the one call that may be writing it. */
void sender_cancel(parcel_t *parcel);
/* Calls `done` for each parcel that is done. */
void sender_collect(sender_t *sender, void (*done)(const parcel_t *parcel));
/* Asks for a wake-up as soon as some more parcels are done. */
void sender_want(sender_t *sender);
/* Writes what the thread has and ends it; collects the last parcels, then frees. NULL is allowed.
 */
void sender_stop(sender_t *sender, void (*done)(const parcel_t *parcel));

#endif
