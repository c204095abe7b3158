/* ledger.h: the memory that requests hold, counted by client and by kind, under one limit.
 *
 * Every buffer whose size a client decides has a charge beside it. Code that makes the buffer
 * larger resizes the charge first, and refuses the request (ledger_refuse, 503) if the charge does
 * not fit. The function that frees the buffer gives the charge back. So memory counts as long as it
 * is held, whether or not the connection that sent the request still exists.
 *
 * A client (exchange_t.source) may hold the whole limit while no other client lacks memory. When a
 * client below its share was refused, the clients above their share get nothing more until LACK_S
 * seconds later. The share is the limit divided by the clients that hold or lack memory.
 *
 * Any thread: one lock, held for a few instructions.
 */
#ifndef INFERD_SERVER_LEDGER_LEDGER_H
#define INFERD_SERVER_LEDGER_LEDGER_H

#include "engine/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
  LEDGER_LACK_S = 5,    /* a refused client counts as lacking memory for this long */
  LEDGER_LACKS_MAX = 64 /* refused clients that are remembered; the oldest is forgotten first */
};

/* What the memory is for. The names are those of the metric. */
#define LEDGER_EACH(X) X(body) X(values) X(ids) X(pictures) X(sounds) X(output) X(reply)
#define X(name) LEDGER_##name,
typedef enum ledger_kind { LEDGER_EACH(X) LEDGER_KINDS } ledger_kind_t;
#undef X
extern const char *const ledger_kind_names[LEDGER_KINDS];

typedef struct ledger ledger_t;

/* Returns NULL if memory is short; the caller calls ledger_free. `limit` is in bytes. */
ledger_t *ledger_new(size_t limit);
/* All charges must have been given back. NULL is allowed. */
void ledger_free(ledger_t *ledger);

/* The bytes of one buffer. `(charge_t){0}` counts nothing and always fits. */
typedef struct charge {
  ledger_t *ledger;
  uint64_t client;
  ledger_kind_t kind;
  size_t bytes;
} charge_t;

/* Returns an empty charge. `ledger` NULL: a charge that counts nothing. */
charge_t charge_open(ledger_t *ledger, uint64_t client, ledger_kind_t kind);
/* Sets the bytes of a charge. Returns false, and changes nothing, if they do not fit; fewer bytes
 * than before always fit. */
bool charge_resize(charge_t *charge, size_t bytes);
/* Gives all bytes back; the charge can be used again. */
void charge_drop(charge_t *charge);
/* Hands the bytes of `from`, which is empty afterwards, to the caller's charge. */
charge_t charge_move(charge_t *from);

/* A block from malloc with its charge. `(held_t){0}` is an empty one. */
typedef struct held {
  char *bytes; /* owned; NULL = none */
  size_t length;
  charge_t charge; /* of the whole block, which may be larger than `length` */
} held_t;
void held_free(held_t *held); /* frees the block, gives the charge back, leaves an empty one */

/* Fills `error` with ERR_OVERLOADED and its message. Returns ERR_OVERLOADED. */
int ledger_refuse(const charge_t *charge, inferd_error_t *error);

typedef struct ledger_stats {
  size_t held[LEDGER_KINDS], limit;
  int32_t clients;  /* that hold memory */
  uint64_t refused; /* charges that did not fit */
} ledger_stats_t;
/* Also checks that the sums by kind and by client agree. NULL: all 0. */
ledger_stats_t ledger_stats(ledger_t *ledger);

#endif
