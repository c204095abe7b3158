/* sql.h: the statements of the store and its schema. Callers hold the lock of the connection. */
#ifndef INFERD_SERVER_STORE_SQL_H
#define INFERD_SERVER_STORE_SQL_H

#include "server/store/store.h"

#include <sqlite3.h>

enum { SQL_STATEMENTS = 33, SQL_NO_ITEM = -1 };

/* A connection with its prepared statements. */
typedef struct sql {
  sqlite3 *db;
  sqlite3_stmt *statements[SQL_STATEMENTS]; /* prepared when they are used first */
} sql_t;

/* Opens the file for writing, in WAL mode and with today's schema; or, if it has that, for reading.
 * Returns 0 or an error of store_open. */
int sql_open(sql_t *sql, const char *path, bool writes, inferd_error_t *error);
void sql_close(sql_t *sql);
/* From now on a commit ends when the disk has it. An SQLITE_ code. */
int sql_sync(sql_t *sql);
/* Makes the file, mode 0600, if it is not there; `is_new`: it must not be. 0 or an error of
 * store_open. */
int sql_make_private(const char *path, bool is_new, inferd_error_t *error);

/* The functions below return an SQLITE_ code: SQLITE_OK, SQLITE_NOTFOUND, or what failed. */
int sql_begin(sql_t *sql);
int sql_commit(sql_t *sql);
void sql_rollback(sql_t *sql); /* what sql_begin has begun and no sql_commit has ended */
/* Writes an answer and its items; one of this owner that has the id is replaced. */
int sql_insert(sql_t *sql, const stored_t *stored, int64_t bytes);
int sql_remove(sql_t *sql, const uint8_t owner[STORE_OWNER_BYTES], const char *id);
/* Answers that are older than `since` are not found. `whole`: with `request` and `events`. */
int sql_select(sql_t *sql, const stored_t *wanted, int64_t since, bool whole, stored_t **out);
/* Copies the recipe of an answer of any owner; SQL_NO_ITEM: it has none. */
int sql_recipe(sql_t *sql, const char *id, buffer_t *out);
/* Calls `visit` for each answer that waits, the oldest first; it has no texts. */
int sql_waiting(sql_t *sql, void (*visit)(void *context, const stored_t *stored), void *context);
/* Calls `visit` for each item of a page of a conversation, until it returns false. */
int sql_items(sql_t *sql, const stored_t *conversation, int64_t since, const store_page_t *page,
              bool (*visit)(void *context, const char *id, const char *body, size_t length),
              void *context);
/* The same for lines of a batch in one state, and for the files or batches of an owner. */
int sql_lines(sql_t *sql, const stored_t *batch, line_state_t state, const store_page_t *page,
              bool (*visit)(void *context, const char *id, const char *body, size_t length),
              void *context);
int sql_list(sql_t *sql, const stored_t *owner, int64_t since, const store_page_t *page,
             bool (*visit)(void *context, const char *id, const char *body, size_t length),
             void *context);
int sql_count_lines(sql_t *sql, const stored_t *batch, line_counts_t *counts);
/* The same for one item; SQL_NO_ITEM: the conversation has it not. */
int sql_item(sql_t *sql, const stored_t *conversation, int64_t since, const char *id,
             buffer_t *out);
int sql_remove_item(sql_t *sql, const stored_t *conversation, int64_t since, const char *id);
int sql_sizes(sql_t *sql, int64_t *rows, int64_t *bytes);
/* Removes up to `count` answers that are older than `before`; sets *removed. */
int sql_remove_expired(sql_t *sql, int64_t before, int32_t count, int32_t *removed);
/* Removes up to `count` of the oldest answers of the owner that has most bytes. */
int sql_remove_of_largest(sql_t *sql, int32_t count);
/* Calls `visit` for what was used in these days, of an owner (NULL: of all), until it returns
 * false; removes what was used before a day. */
int sql_uses(sql_t *sql, const uint8_t *owner, int64_t first, int64_t end,
             bool (*visit)(void *context, const stored_use_t *use), void *context);
int sql_remove_uses(sql_t *sql, int64_t before);
/* What PRAGMA integrity_check says first: "ok", or what is damaged. */
int sql_check(sql_t *sql, char *out, size_t size);
int sql_copy(sql_t *sql, const char *to); /* into an empty file */
/* Gives pages of removed rows back to the file system. */
int sql_shrink(sql_t *sql);

#endif
