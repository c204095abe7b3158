/* tally.h: what each key has used of each model, by days of UTC, and the quotas of a day and a
 * month.
 *
 * Loop thread. What is counted goes to the store in bundles, every TALLY_FLUSH_S; a kill loses at
 * most those seconds. A new tally begins with what the store has of this month, so that a restart
 * gives no key more. Times are unix seconds.
 */
#ifndef INFERD_SERVER_TALLY_TALLY_H
#define INFERD_SERVER_TALLY_TALLY_H

#include "server/keys/api_key.h"
#include "server/store/store.h"

enum {
  TALLY_FLUSH_S = 2,
  TALLY_ROWS_MAX = 65536 /* keys x models that are told apart; what comes later is "other" */
};

typedef struct tally tally_t;
typedef struct tally_row tally_row_t; /* a key and a model; lives as long as the tally */

/* Returns 0 and *out; or ERR_NO_MEMORY, or ERR_STORE_FAILED. Reads the disk. */
int tally_new(answer_store_t *store, int64_t now_s, tally_t **out, inferd_error_t *error);
/* After store_close. NULL is allowed. */
void tally_free(tally_t *tally);

/* `key` NULL: of a server without keys. Returns NULL if memory is short, or `tally` is NULL: then
 * nothing is counted. */
tally_row_t *tally_row(tally_t *tally, const api_key_t *key, const char *model);
/* Adds to what was used. `row` NULL is allowed, here and below. */
void tally_add(tally_row_t *row, int64_t now_s, int64_t requests, int64_t input, int64_t cached,
               int64_t output);
/* Counts prompt tokens that wait for the engine for the quotas; a negative number, once they are
 * added, or were not used. */
void tally_reserve(tally_row_t *row, int64_t tokens);
/* Returns 0 if so many prompt tokens more fit into the quotas of the key. Else ERR_QUOTA_USED, and
 * sets *wait_s, the seconds until the day or the month is over. */
int tally_check(tally_t *tally, const api_key_t *key, int64_t tokens, int64_t now_s, int *wait_s,
                inferd_error_t *error);
/* Hands to the store what was counted; `now`: whatever time has passed since the last time. What
 * was not written is handed to it again. */
void tally_flush(tally_t *tally, int64_t now_s, bool now);
/* The `conversation` of these rows, for store_settle; their owner there is zeros. */
extern const char tally_rows[];

#endif
