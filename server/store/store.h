/* store.h: what outlives its request: answers of /v1/responses and conversations, in a file of
 * SQLite (--store).
 *
 * One thread writes, in the order of store_put. A reader has a connection of its own: with a
 * write-ahead log it never waits for the writer. An answer that was put is found at once, also
 * before it is written. A row belongs to an owner; for any other it is as if it did not exist.
 *
 * store_put, store_outcome, store_lost, store_retried, store_problem and store_stats: any thread;
 * they never wait for a disk. The
 * others read the disk: jobs of the lanes, never the loop or the engine thread.
 */
#ifndef INFERD_SERVER_STORE_STORE_H
#define INFERD_SERVER_STORE_STORE_H

#include "engine/base/buffer.h"
#include "engine/base/error.h"

#include <stdbool.h>
#include <stdint.h>

enum {
  STORE_OWNER_BYTES = 32,         /* SHA-256 of an API key; zeros = a server without keys */
  STORE_ID_BYTES = 160,           /* of an id, with its NUL */
  STORE_CHAIN_MAX = 4096,         /* answers that one may stand behind */
  STORE_WAITING_BYTES = 256 << 20 /* of answers that wait to be written; more are dropped */
};

typedef struct answer_store answer_store_t;

typedef struct store_options {
  const char *path;
  int64_t ttl_s;     /* an answer is forgotten after that; 0 = never */
  int64_t bytes_max; /* of texts; beyond it the oldest go of who has most; 0 = no bound */
  bool is_synced;    /* what is written outlives a power failure, too; else the last may be lost */
  /* Called by the writer when it fails for the first time, and when it works again (NULL). */
  void (*changed)(const char *problem);
} store_options_t;

typedef enum stored_state {
  STORED_ANSWER,
  STORED_WAITING,      /* asked with `background`, and not ended */
  STORED_BACKGROUND,   /* the same, ended */
  STORED_CONVERSATION, /* no answer; `conversation` is its own id. Removed with its items */
  STORED_ITEMS,        /* no row: `items` alone are written */
  STORED_BATCH,        /* that has not ended: its items are lines, `conversation` is its own id */
  STORED_BATCH_ENDED,  /* its lines are gone, but for those that `items` gives to files */
  STORED_FILE,         /* `input` is what is in it; none: its items are, lines of a batch */
  STORED_LINES,        /* no row: `items` are lines of a batch that have ended, to be replaced */
  STORED_USE           /* no row: `use` is added to what is counted of `owner` */
} stored_state_t;

enum { STORE_LABEL_BYTES = 65, STORE_MODEL_BYTES = 129, STORE_USE_DAYS = 400 };

/* What an owner has used of a model on one day of UTC. Kept for STORE_USE_DAYS, whatever the bounds
 * of answers are. */
typedef struct stored_use {
  int64_t day; /* since 1970-01-01 */
  uint8_t owner[STORE_OWNER_BYTES];
  char label[STORE_LABEL_BYTES]; /* of the key, as it was last; "" = none */
  char model[STORE_MODEL_BYTES];
  int64_t requests, input, cached, output; /* tokens; cached: of `input` */
} stored_use_t;

/* Of a line of a batch: what is known of it. */
typedef enum line_state { LINE_WAITS, LINE_ANSWERED, LINE_FAILED, LINE_STATES } line_state_t;

typedef struct line_counts {
  int64_t lines[LINE_STATES], bytes[LINE_STATES]; /* bytes: with the ends of lines */
} line_counts_t;

/* An item of a conversation, or a line of a batch; of one that has ended: a file, and the lines
 * that it gets. */
typedef struct stored_item {
  char id[STORE_ID_BYTES];
  line_state_t state; /* of lines */
  buffer_t body;
  struct stored_item *next;
} stored_item_t;

/* One answer. Its texts are JSON, and events, that the store does not look into. */
typedef struct stored {
  char id[STORE_ID_BYTES], previous[STORE_ID_BYTES]; /* previous: the answer before it; "" = none */
  char conversation[STORE_ID_BYTES];                 /* to which it belongs; "" = none */
  uint8_t owner[STORE_OWNER_BYTES];
  int64_t created; /* unix seconds */
  stored_state_t state;
  bool streams;            /* asked with `stream` too */
  bool replaces;           /* nothing is written if it is gone meanwhile */
  buffer_t input;          /* the items of its request */
  buffer_t body;           /* the response object */
  buffer_t request;        /* of STORED_WAITING: the body of its request */
  buffer_t events;         /* of STORED_BACKGROUND that was streamed: all its events */
  buffer_t recipe;         /* of an answer that has ended: how to make it again */
  const stored_use_t *use; /* of STORED_USE; its owner frees it once `outcome` is known */
  stored_item_t *items;    /* to be appended to the conversation, unless that is gone, or the answer
                            * was written by another process already */
  struct stored *next;     /* the store's own, and: */
  /* Who waits for it: 1 = written, -1 = not, and then it is theirs again. See store_outcome. */
  int *outcome;
} stored_t;

/* Frees an answer with its texts and items. NULL is allowed. */
void stored_free(stored_t *stored);

bool stored_failed(const stored_t *stored); /* a text lacks bytes: memory was short */

/* Opens the file, makes it (mode 0600) or brings it to today's schema, and starts the writer.
 * Returns 0 and *out; or ERR_IO or ERR_CONFIGURATION with a sentence that names the file: it cannot
 * be written, is no store of inferd's, is damaged, or comes from a newer inferd. */
int store_open(const store_options_t *options, answer_store_t **out, inferd_error_t *error);
/* Reads the recipe of an answer, whoever owns it, from a file that a server may have open. Returns
 * 0 or an error that names the file: it cannot be read, is no store of today's schema, or lacks the
 * answer or its recipe. */
int store_recipe(const char *path, const char *id, buffer_t *out, inferd_error_t *error);
typedef struct store_stats {
  uint64_t written, dropped; /* since start; dropped: no disk, no memory, or too many waited */
  uint64_t retried;          /* no disk; they were put again */
  int64_t rows, bytes;       /* in the file, as of the last write */
  int64_t waiting;           /* to be written */
} store_stats_t;
/* Reads the whole of a file. Returns 0, and the rows and bytes of *out; or an error of
 * store_recipe: what is damaged. */
int store_check(const char *path, store_stats_t *out, inferd_error_t *error);
/* Copies a file, as it is at one moment, into one that is not there (mode 0600). 0 or an error. */
int store_copy(const char *path, const char *to, inferd_error_t *error);
/* Writes what waits, and closes. NULL is allowed. */
void store_close(answer_store_t *store);

/* Takes an answer, to write it; one of this owner that has its id is replaced. False: too many
 * bytes wait, and it was freed, or is the caller's still if it has an `outcome`. */
bool store_put(answer_store_t *store, stored_t *stored);
/* The same, and waits until it is written. Returns 0, or ERR_STORE_FAILED. */
int store_put_and_wait(answer_store_t *store, stored_t *stored, inferd_error_t *error);
/* Reads the `outcome` of an answer that was put; 0 = it waits. */
int store_outcome(answer_store_t *store, const int *outcome);
/* Counts an answer that could not be put, because memory was short, or was not written. */
void store_lost(answer_store_t *store);
/* Counts one that was not written, and will be put again. */
void store_retried(answer_store_t *store);
/* Finds an answer of this owner. Returns 0 and *out, which the caller frees; ERR_NOT_STORED, or
 * ERR_NO_SUCH_OBJECT for the id of a conversation; or ERR_STORE_FAILED with the reason. `whole`:
 * with `request` and `events`, else without. */
int store_find(answer_store_t *store, const uint8_t owner[STORE_OWNER_BYTES], const char *id,
               bool whole, stored_t **out, inferd_error_t *error);
/* Calls `visit` for each answer of the file that is STORED_WAITING, and each batch that is
 * STORED_BATCH, the oldest first; batches have their body, answers no texts. Returns 0 or
 * ERR_STORE_FAILED. */
int store_waiting(answer_store_t *store, void (*visit)(void *context, const stored_t *stored),
                  void *context, inferd_error_t *error);
/* Removes an answer of this owner. Returns 0 or an error of store_find. Answers that stand behind
 * it cannot be continued then. */
int store_remove(answer_store_t *store, const uint8_t owner[STORE_OWNER_BYTES], const char *id,
                 inferd_error_t *error);

/* ---- the items of a conversation or a file. Each waits for those that are to be written ---- */

typedef struct store_page {
  char after[STORE_ID_BYTES]; /* an item; "", or one that is not there: from the first on */
  int64_t limit;
  bool ascending;
} store_page_t;

/* Calls `visit` for each item of a page, until it returns false. Returns 0, ERR_NO_SUCH_OBJECT for
 * a conversation that this owner has not, or ERR_STORE_FAILED. */
int store_items(answer_store_t *store, const uint8_t owner[STORE_OWNER_BYTES],
                const char *conversation, const store_page_t *page,
                bool (*visit)(void *context, const char *id, const char *body, size_t length),
                void *context, inferd_error_t *error);
/* Appends one item to `out`. Errors as above, also for an item that is not there. */
int store_item(answer_store_t *store, const uint8_t owner[STORE_OWNER_BYTES],
               const char *conversation, const char *id, buffer_t *out, inferd_error_t *error);
int store_remove_item(answer_store_t *store, const uint8_t owner[STORE_OWNER_BYTES],
                      const char *conversation, const char *id, inferd_error_t *error);

/* Calls `visit` for each file (`state` STORED_FILE) or batch (STORED_BATCH: ended ones too) of a
 * page; `after` names one. Returns 0 or ERR_STORE_FAILED. */
int store_list(answer_store_t *store, const uint8_t owner[STORE_OWNER_BYTES], stored_state_t state,
               const store_page_t *page,
               bool (*visit)(void *context, const char *id, const char *body, size_t length),
               void *context, inferd_error_t *error);
/* Calls `visit` for the lines of a batch in this state, in their order, from behind `after` on. */
int store_lines(answer_store_t *store, const uint8_t owner[STORE_OWNER_BYTES], const char *batch,
                line_state_t state, const store_page_t *page,
                bool (*visit)(void *context, const char *id, const char *body, size_t length),
                void *context, inferd_error_t *error);
/* Counts the lines of a batch by their state. */
int store_count_lines(answer_store_t *store, const uint8_t owner[STORE_OWNER_BYTES],
                      const char *batch, line_counts_t *counts, inferd_error_t *error);
/* Waits until nothing of a conversation or a batch is to be written: it is, or it failed. */
void store_settle(answer_store_t *store, const uint8_t owner[STORE_OWNER_BYTES],
                  const char *conversation);

/* Calls `visit` for what was used in days from `first` to before `end`, by day, owner and model.
 * `owner` NULL: by all. Returns 0 or ERR_STORE_FAILED. */
int store_uses(answer_store_t *store, const uint8_t *owner, int64_t first, int64_t end,
               bool (*visit)(void *context, const stored_use_t *use), void *context,
               inferd_error_t *error);

/* Copies why answers cannot be written now; "" = they can. */
void store_problem(answer_store_t *store, char *out, size_t size);

void store_stats(answer_store_t *store, store_stats_t *out);

#endif
