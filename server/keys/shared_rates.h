/* shared_rates.h: the rates of all keys, in memory that a parent shares with its children. Loop
 * thread only.
 *
 * With several models a key has its bounds per minute, day and month for all of them together. The
 * parent has a place for each of its keys and names it with each request; its children count there.
 * Only the parent sets bounds.
 */
#ifndef INFERD_SERVER_KEYS_SHARED_RATES_H
#define INFERD_SERVER_KEYS_SHARED_RATES_H

#include "engine/base/error.h"
#include "server/keys/rate.h"

enum { SHARED_RATES_FD = 3 }; /* of a child */

/* Tokens of a day and of a month of UTC; server/tally counts them. */
typedef struct key_spent {
  _Atomic int64_t day, month; /* of which they are, by days since 1970; month: its first day */
  _Atomic int64_t used_day, used_month;
} key_spent_t;

typedef struct key_rates {
  rate_t requests, tokens; /* tokens: of prompts and generated ones */
  key_spent_t use;
} key_rates_t;

/* Makes the memory, for keys that are made from now on. Returns 0 or ERR_NO_MEMORY. */
int shared_rates_make(inferd_error_t *error);
int shared_rates_fd(void); /* for a child; -1 = there are none */
/* Takes what the parent has made. The descriptor is closed. Returns 0 or ERR_IO. */
int shared_rates_join(int fd, inferd_error_t *error);

/* A place for a key of the parent; -1: none was made, or all are taken. */
int shared_rates_take(void);
void shared_rates_give(int place);       /* its key is gone; -1 is allowed */
key_rates_t *shared_rates_at(int place); /* NULL: there is no such place */

#endif
