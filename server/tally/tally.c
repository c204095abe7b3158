/* tally.c: what each key has used, see tally.h.
 *
 * Loop thread; the store writes. A row holds its counts as a list of deltas, one for each day and
 * each time that it was handed to the store: counts are added to one that the store does not have.
 * With several models the processes count for the quotas in memory that they share
 * (shared_rates.h); what waits in another one is not seen, so it may exceed them by so much.
 */
#include "server/tally/tally.h"

#include "engine/base/util.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BUCKETS = 1024, DAY_S = 24 * 3600 };

const char tally_rows[] = "use";

typedef struct delta {
  stored_use_t use;
  stored_t *row; /* that the store has; NULL = it has it not */
  int outcome;
  struct delta *next;
} delta_t;

typedef struct tally_owner {
  uint8_t digest[STORE_OWNER_BYTES];
  key_spent_t own, *use; /* use: what counts: its own, or that which processes share */
  int64_t reserved;      /* of prompts that wait in this process */
  char label[STORE_LABEL_BYTES];
  tally_row_t *rows;
  struct tally_owner *same_hash;
} tally_owner_t;

struct tally_row {
  tally_t *tally;
  tally_owner_t *owner;
  char model[STORE_MODEL_BYTES];
  delta_t *deltas;
  tally_row_t *same_owner, *next; /* next: of all */
};

struct tally {
  answer_store_t *store;
  tally_owner_t *owners[BUCKETS];
  tally_row_t *rows;
  int32_t num_rows;
  int64_t day, month, month_end; /* of the last look: first days of the month and of the next */
  int64_t flushed_s;
};

/* ---- days ---- */

/* The first day of a month, counted from that of `at`. */
static int64_t first_day(int64_t at_s, int months) {
  time_t seconds = (time_t)at_s;
  struct tm parts;
  gmtime_r(&seconds, &parts);
  parts = (struct tm){.tm_year = parts.tm_year, .tm_mon = parts.tm_mon + months, .tm_mday = 1};
  return (int64_t)timegm(&parts) / DAY_S;
}

static void look(tally_t *tally, int64_t now_s) {
  int64_t day = now_s / DAY_S;
  if (day == tally->day) return;
  tally->day = day;
  tally->month = first_day(now_s, 0);
  tally->month_end = first_day(now_s, 1);
}

/* Begins to count anew once `now` is behind *since. Of processes that share it one does; what
 * others add in that moment may be lost. */
static void renew(_Atomic int64_t *since, int64_t now, _Atomic int64_t *used) {
  int64_t before = atomic_load(since);
  if (now > before && atomic_compare_exchange_strong(since, &before, now)) atomic_store(used, 0);
}

/* A clock that is set back begins no day anew. */
static void roll(const tally_t *tally, tally_owner_t *owner) {
  renew(&owner->use->day, tally->day, &owner->use->used_day);
  renew(&owner->use->month, tally->month, &owner->use->used_month);
}

static void raise_to(_Atomic int64_t *used, int64_t least) {
  int64_t before = atomic_load(used);
  while (before < least && !atomic_compare_exchange_weak(used, &before, least)) continue;
}

/* Counts where the other processes do from now on. What this one has read from the store is counted
 * there, or nobody has come so far yet. */
static void share(const tally_t *tally, tally_owner_t *owner, const api_key_t *key) {
  if (key == NULL || key->rates == &key->own || owner->use == &key->rates->use) return;
  const key_spent_t *own = &owner->own;
  bool today = atomic_load(&own->day) == tally->day, now = atomic_load(&own->month) == tally->month;
  int64_t used_day = atomic_load(&own->used_day), used_month = atomic_load(&own->used_month);
  owner->use = &key->rates->use;
  roll(tally, owner);
  if (today) raise_to(&owner->use->used_day, used_day);
  if (now) raise_to(&owner->use->used_month, used_month);
}

/* ---- rows ---- */

static tally_owner_t *owner_of(tally_t *tally, const uint8_t digest[STORE_OWNER_BYTES]) {
  tally_owner_t **at = &tally->owners[(digest[0] | digest[1] << 8) % BUCKETS];
  while (*at != NULL && memcmp((*at)->digest, digest, STORE_OWNER_BYTES) != 0)
    at = &(*at)->same_hash;
  if (*at == NULL && (*at = calloc(1, sizeof **at)) != NULL) {
    memcpy((*at)->digest, digest, STORE_OWNER_BYTES);
    (*at)->use = &(*at)->own;
  }
  return *at;
}

static const uint8_t *digest_of(const api_key_t *key) {
  static const uint8_t nobody[STORE_OWNER_BYTES];
  return key != NULL ? key->digest : nobody;
}

tally_row_t *tally_row(tally_t *tally, const api_key_t *key, const char *model) {
  tally_owner_t *owner = tally != NULL ? owner_of(tally, digest_of(key)) : NULL;
  if (owner == NULL) return NULL;
  share(tally, owner, key);
  snprintf(owner->label, sizeof owner->label, "%s", key != NULL ? key->label : "");
  if (tally->num_rows >= TALLY_ROWS_MAX) model = "other";
  tally_row_t *row = owner->rows;
  while (row != NULL && strncmp(row->model, model, sizeof row->model - 1) != 0)
    row = row->same_owner;
  if (row != NULL || (row = calloc(1, sizeof *row)) == NULL) return row;
  *row =
      (tally_row_t){.tally = tally, .owner = owner, .same_owner = owner->rows, .next = tally->rows};
  snprintf(row->model, sizeof row->model, "%s", model);
  owner->rows = tally->rows = row;
  tally->num_rows++;
  return row;
}

/* The delta of today that the store does not have; NULL: memory is short. */
static delta_t *open_delta(tally_row_t *row, int64_t day) {
  delta_t *delta = row->deltas;
  while (delta != NULL && (delta->row != NULL || delta->use.day != day)) delta = delta->next;
  if (delta != NULL || (delta = calloc(1, sizeof *delta)) == NULL) return delta;
  delta->use.day = day;
  memcpy(delta->use.owner, row->owner->digest, STORE_OWNER_BYTES);
  snprintf(delta->use.model, sizeof delta->use.model, "%s", row->model);
  delta->next = row->deltas;
  row->deltas = delta;
  return delta;
}

void tally_add(tally_row_t *row, int64_t now_s, int64_t requests, int64_t input, int64_t cached,
               int64_t output) {
  if (row == NULL) return;
  tally_owner_t *owner = row->owner;
  look(row->tally, now_s);
  roll(row->tally, owner);
  atomic_fetch_add(&owner->use->used_day, input + output);
  atomic_fetch_add(&owner->use->used_month, input + output);
  delta_t *delta = open_delta(row, row->tally->day);
  if (delta == NULL) return;
  delta->use.requests += requests;
  delta->use.input += input;
  delta->use.cached += cached;
  delta->use.output += output;
}

void tally_reserve(tally_row_t *row, int64_t tokens) {
  if (row != NULL) row->owner->reserved += tokens;
}

/* ---- quotas ---- */

static int refuse(const char *name, int64_t limit, int64_t used, int64_t tokens, int64_t anew_s,
                  int64_t now_s, int *wait_s, inferd_error_t *error) {
  time_t at = (time_t)anew_s;
  struct tm parts;
  char text[32];
  strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&at, &parts));
  *wait_s = (int)MAX(anew_s - now_s, 1);
  return error_set(error, ERR_QUOTA_USED, NULL,
                   "This API key has used up its quota of %s=%" PRId64 ": %" PRId64
                   " tokens are used, this request has at least %" PRId64
                   "; it begins anew at %s, in %d s.",
                   name, limit, used, tokens, text, *wait_s);
}

int tally_check(tally_t *tally, const api_key_t *key, int64_t tokens, int64_t now_s, int *wait_s,
                inferd_error_t *error) {
  const key_limits_t *limits = key != NULL ? &key->limits : NULL;
  if (limits == NULL || tally == NULL) return 0;
  if (limits->tokens_per_day == 0 && limits->tokens_per_month == 0) return 0;
  tally_owner_t *owner = owner_of(tally, key->digest);
  if (owner == NULL) return error_set(error, ERR_OVERLOADED, NULL, "Out of memory.");
  look(tally, now_s);
  share(tally, owner, key);
  roll(tally, owner);
  int64_t month = atomic_load(&owner->use->used_month) + owner->reserved;
  int64_t day = atomic_load(&owner->use->used_day) + owner->reserved;
  if (limits->tokens_per_month > 0 && month + tokens > limits->tokens_per_month)
    return refuse("tokens_per_month", limits->tokens_per_month, month, tokens,
                  tally->month_end * DAY_S, now_s, wait_s, error);
  if (limits->tokens_per_day > 0 && day + tokens > limits->tokens_per_day)
    return refuse("tokens_per_day", limits->tokens_per_day, day, tokens, (tally->day + 1) * DAY_S,
                  now_s, wait_s, error);
  return 0;
}

/* ---- the store ---- */

/* Hands over one delta, unless memory is short: then the next time. */
static void put(tally_t *tally, tally_row_t *row, delta_t *delta) {
  stored_t *stored = calloc(1, sizeof *stored);
  if (stored == NULL) return;
  snprintf(delta->use.label, sizeof delta->use.label, "%s", row->owner->label);
  snprintf(stored->conversation, sizeof stored->conversation, "%s", tally_rows);
  stored->state = STORED_USE;
  stored->use = &delta->use;
  stored->outcome = &delta->outcome;
  delta->row = stored;
  (void)store_put(tally->store, stored); /* if it is not taken, `outcome` says so */
}

/* Frees what was written, and takes back what was not. */
static void settle(tally_t *tally, tally_row_t *row) {
  delta_t **link = &row->deltas;
  while (*link != NULL) {
    delta_t *delta = *link;
    int outcome = delta->row != NULL ? store_outcome(tally->store, &delta->outcome) : 0;
    if (outcome < 0) {
      stored_free(delta->row);
      delta->row = NULL;
    }
    if (outcome <= 0) {
      link = &delta->next;
      continue;
    }
    *link = delta->next;
    free(delta);
  }
}

void tally_flush(tally_t *tally, int64_t now_s, bool now) {
  if (tally == NULL) return;
  bool late = now_s >= tally->flushed_s + TALLY_FLUSH_S || now_s < tally->flushed_s;
  if (!late && !now) return;
  tally->flushed_s = now_s;
  for (tally_row_t *row = tally->rows; row != NULL; row = row->next) {
    settle(tally, row);
    for (delta_t *delta = row->deltas; delta != NULL; delta = delta->next) {
      if (delta->row == NULL) put(tally, row, delta);
    }
  }
}

/* ---- make and free ---- */

static bool take_use(void *context, const stored_use_t *use) {
  tally_t *tally = context;
  tally_owner_t *owner = owner_of(tally, use->owner);
  if (owner == NULL) return false;
  roll(tally, owner);
  atomic_fetch_add(&owner->use->used_month, use->input + use->output);
  if (use->day == tally->day) atomic_fetch_add(&owner->use->used_day, use->input + use->output);
  return true;
}

int tally_new(answer_store_t *store, int64_t now_s, tally_t **out, inferd_error_t *error) {
  tally_t *tally = calloc(1, sizeof *tally);
  if (tally == NULL) return error_set(error, ERR_NO_MEMORY, NULL, "no memory for the server");
  *out = tally;
  tally->store = store;
  look(tally, now_s);
  return store_uses(store, NULL, tally->month, tally->month_end, take_use, tally, error);
}

void tally_free(tally_t *tally) {
  if (tally == NULL) return;
  for (tally_row_t *row = tally->rows, *next; row != NULL; row = next) {
    next = row->next;
    for (delta_t *delta = row->deltas, *after; delta != NULL; delta = after) {
      after = delta->next;
      if (delta->row != NULL && delta->outcome < 0) stored_free(delta->row);
      free(delta);
    }
    free(row);
  }
  for (int i = 0; i < BUCKETS; i++) {
    for (tally_owner_t *owner = tally->owners[i], *next; owner != NULL; owner = next) {
      next = owner->same_hash;
      free(owner);
    }
  }
  free(tally);
}
