/* sql.c: the statements of the store and its schema; see sql.h.
 *
 * A schema has a number, PRAGMA user_version. A file is brought forward step by step, each in a
 * transaction, when it is opened for writing; one of a newer inferd is refused.
 */
#include "server/store/sql.h"

#include "engine/base/util.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
  APPLICATION_ID = 0x696e6664, /* "infd", for file(1) */
  BUSY_MS = 5000,              /* another process has the file: a restart that hands over */
  SHRINK_PAGES = 256
};

/* The steps from one schema to the next: from nothing to 1, ... */
static const char *const steps[] = {
    "CREATE TABLE response ("
    "  id TEXT NOT NULL UNIQUE, owner BLOB NOT NULL, previous TEXT NOT NULL, created INTEGER NOT "
    "NULL,"
    "  bytes INTEGER NOT NULL, input BLOB NOT NULL, body BLOB NOT NULL);"
    "CREATE INDEX response_created ON response (created);"
    "CREATE INDEX response_owner ON response (owner, created, bytes);",
    "ALTER TABLE response ADD COLUMN state INTEGER NOT NULL DEFAULT 0;" /* stored_state_t */
    "ALTER TABLE response ADD COLUMN streams INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE response ADD COLUMN request BLOB;"
    "ALTER TABLE response ADD COLUMN events BLOB;"
    "CREATE INDEX response_waiting ON response (created) WHERE state = 1;",
    "ALTER TABLE response ADD COLUMN conversation TEXT NOT NULL DEFAULT '';"
    "CREATE TABLE item (place INTEGER PRIMARY KEY, conversation TEXT NOT NULL, id TEXT NOT NULL,"
    "  body BLOB NOT NULL, UNIQUE (conversation, id));"
    "CREATE INDEX item_place ON item (conversation, place);"
    "CREATE TRIGGER response_items AFTER DELETE ON response WHEN old.state = 3 "
    "BEGIN DELETE FROM item WHERE conversation = old.id; END;",
    "ALTER TABLE item ADD COLUMN state INTEGER NOT NULL DEFAULT 0;" /* line_state_t */
    "CREATE INDEX item_state ON item (conversation, state, place);"
    "CREATE INDEX response_kind ON response (owner, state, created);"
    "CREATE TRIGGER response_lines AFTER DELETE ON response WHEN old.state = 5 "
    "BEGIN DELETE FROM item WHERE conversation = old.id; END;"
    "CREATE TRIGGER response_ended AFTER UPDATE ON response WHEN new.state = 6 "
    "BEGIN DELETE FROM item WHERE conversation = old.id; END;"
    "DROP INDEX response_waiting;"
    "CREATE INDEX response_waiting ON response (created) WHERE state IN (1, 5);",
    "CREATE TRIGGER response_file AFTER DELETE ON response WHEN old.state = 7 "
    "BEGIN DELETE FROM item WHERE conversation = old.id; END;",
    "CREATE TABLE use (day INTEGER NOT NULL, owner BLOB NOT NULL, model TEXT NOT NULL,"
    "  label TEXT NOT NULL, requests INTEGER NOT NULL, input INTEGER NOT NULL,"
    "  cached INTEGER NOT NULL, output INTEGER NOT NULL, PRIMARY KEY (day, owner, model))"
    "  WITHOUT ROWID;",
    "ALTER TABLE response ADD COLUMN recipe BLOB;"};
_Static_assert(STORED_WAITING == 1 && STORED_BACKGROUND == 2 && STORED_CONVERSATION == 3 &&
                   STORED_BATCH == 5 && STORED_BATCH_ENDED == 6 && STORED_FILE == 7,
               "as in the texts");

/* What an item counts of the bytes of its conversation. */
#define ITEM_BYTES "length(body) + 64"
/* A conversation, a batch or a file, of an owner, that has not expired. */
#define IS_THERE                                                                                   \
  "EXISTS (SELECT 1 FROM response WHERE id = ?1 AND owner = ?2 AND state IN (3, 5, 7) AND "        \
  "created >= ?3)"

typedef enum statement {
  BEGIN,
  COMMIT,
  INSERT,
  HAS_ROW,
  REMOVE,
  SELECT,
  RECIPE,
  WAITING,
  SIZES,
  REMOVE_EXPIRED,
  REMOVE_OF_LARGEST,
  HAS_CONVERSATION,
  LIST_UP,
  LIST_DOWN,
  LINES,
  COUNT_LINES,
  GROW_LINE,
  END_LINE,
  MOVE_LINES,
  GROW_FILE,
  FIND_ITEM,
  ITEMS_UP,
  ITEMS_DOWN,
  APPEND,
  GROW,
  REMOVE_ITEM,
  ADD_USE,
  USES,
  REMOVE_USES,
  CHECK_ALL,
  COPY,
  FREE_PAGES,
  SHRINK
} statement_t;

static const char *const texts[SQL_STATEMENTS] = {
    [BEGIN] = "BEGIN IMMEDIATE",
    [COMMIT] = "COMMIT",
    [INSERT] =
        "INSERT INTO response (id, owner, previous, created, bytes, input, body, state, request, "
        "events, streams, conversation, recipe) "
        "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13) ON CONFLICT (id) "
        "DO UPDATE SET bytes = excluded.bytes + CASE WHEN excluded.state IN (3, 5) THEN "
        "(SELECT coalesce(sum(" ITEM_BYTES "), 0) FROM item WHERE conversation = excluded.id) "
        "ELSE 0 END, "
        "created = max(created, excluded.created), input = excluded.input, body = excluded.body, "
        "state = excluded.state, request = excluded.request, events = excluded.events, "
        "recipe = excluded.recipe "
        "WHERE owner = excluded.owner",
    [HAS_ROW] = "SELECT count(*) FROM response WHERE id = ?1 AND owner = ?2",
    [REMOVE] = "DELETE FROM response WHERE id = ?1 AND owner = ?2",
    [SELECT] = "SELECT previous, created, state, input, body, iif(?4, request, NULL), "
               "iif(?4, events, NULL), streams, conversation FROM response WHERE id = ?1 AND owner "
               "= ?2 AND "
               "created >= ?3",
    [RECIPE] = "SELECT recipe FROM response WHERE id = ?1 AND state IN (0, 1, 2)",
    [WAITING] =
        "SELECT id, owner, created, streams, state, iif(state = 5, body, NULL) FROM response "
        "WHERE state IN (1, 5) ORDER BY created, rowid",
    [SIZES] = "SELECT count(*), coalesce(sum(bytes), 0) FROM response",
    [REMOVE_EXPIRED] = "DELETE FROM response WHERE rowid IN (SELECT rowid FROM response "
                       "WHERE created < ?1 ORDER BY created LIMIT ?2)",
    [REMOVE_OF_LARGEST] =
        "DELETE FROM response WHERE rowid IN (SELECT rowid FROM response WHERE owner = "
        "(SELECT owner FROM response GROUP BY owner ORDER BY sum(bytes) DESC LIMIT 1) "
        "ORDER BY created, rowid LIMIT ?1)",
    [LIST_UP] =
        "SELECT id, body FROM response WHERE owner = ?1 AND created >= ?2 AND state IN (?3, ?4) "
        "AND rowid > coalesce((SELECT rowid FROM response WHERE id = ?5 AND owner = ?1), -1) "
        "ORDER BY rowid LIMIT ?6",
    [LIST_DOWN] =
        "SELECT id, body FROM response WHERE owner = ?1 AND created >= ?2 AND state IN (?3, ?4) "
        "AND rowid < coalesce((SELECT rowid FROM response WHERE id = ?5 AND owner = ?1), "
        "9223372036854775807) ORDER BY rowid DESC LIMIT ?6",
    [LINES] = "SELECT id, body FROM item WHERE conversation = ?1 AND " IS_THERE
              " AND state = ?6 AND place > coalesce((SELECT place FROM item WHERE "
              "conversation = ?1 AND id = ?4), -1) ORDER BY place LIMIT ?5",
    [COUNT_LINES] = "SELECT state, count(*), sum(length(body) + 1) FROM item WHERE conversation = "
                    "?1 AND " IS_THERE " GROUP BY state",
    [GROW_LINE] =
        "UPDATE response SET bytes = bytes + ?5 - coalesce((SELECT length(body) FROM item "
        "WHERE conversation = ?1 AND id = ?4 AND state = 0), ?5) "
        "WHERE id = ?1 AND owner = ?2 AND state = 5 AND created >= ?3",
    [END_LINE] = "UPDATE item SET body = ?5, state = ?6 WHERE conversation = ?1 AND id = ?4 AND "
                 "state = 0 AND " IS_THERE,
    [MOVE_LINES] =
        "UPDATE item SET conversation = ?4 WHERE conversation = ?1 AND state = ?5 AND " IS_THERE,
    [GROW_FILE] = "UPDATE response SET bytes = bytes + (SELECT coalesce(sum(" ITEM_BYTES "), 0) "
                  "FROM item WHERE conversation = ?1) WHERE id = ?1 AND owner = ?2 AND state = 7",
    [HAS_CONVERSATION] = "SELECT " IS_THERE ", 0",
    [FIND_ITEM] = "SELECT id, body FROM item WHERE conversation = ?1 AND id = ?4 AND " IS_THERE,
    [ITEMS_UP] = "SELECT id, body FROM item WHERE conversation = ?1 AND " IS_THERE
                 " AND place > coalesce((SELECT place FROM item WHERE conversation = ?1 AND "
                 "id = ?4), -1) ORDER BY place LIMIT ?5",
    [ITEMS_DOWN] = "SELECT id, body FROM item WHERE conversation = ?1 AND " IS_THERE
                   " AND place < coalesce((SELECT place FROM item WHERE conversation = ?1 AND "
                   "id = ?4), 9223372036854775807) ORDER BY place DESC LIMIT ?5",
    [APPEND] = "INSERT INTO item (conversation, id, body) SELECT ?1, ?4, ?5 WHERE " IS_THERE
               " AND NOT EXISTS (SELECT 1 FROM response WHERE id = ?6 AND state IN (0, 2))",
    [GROW] = "UPDATE response SET bytes = bytes + ?4, created = max(created, ?5) "
             "WHERE id = ?1 AND owner = ?2 AND state IN (3, 5) AND created >= ?3",
    [REMOVE_ITEM] = "DELETE FROM item WHERE conversation = ?1 AND id = ?4 AND " IS_THERE,
    [ADD_USE] = "INSERT INTO use (day, owner, model, label, requests, input, cached, output) "
                "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT (day, owner, model) DO UPDATE "
                "SET label = excluded.label, requests = requests + excluded.requests, "
                "input = input + excluded.input, cached = cached + excluded.cached, "
                "output = output + excluded.output",
    [USES] = "SELECT day, owner, model, label, requests, input, cached, output FROM use "
             "WHERE day >= ?1 AND day < ?2 AND owner = coalesce(?3, owner) "
             "ORDER BY day, owner, model",
    [REMOVE_USES] = "DELETE FROM use WHERE day < ?1",
    [CHECK_ALL] = "PRAGMA integrity_check(1)",
    [COPY] = "VACUUM INTO ?1",
    [FREE_PAGES] = "PRAGMA freelist_count",
    [SHRINK] = "PRAGMA incremental_vacuum(256)"};
_Static_assert(SHRINK_PAGES == 256, "as in the text");

/* ---- open ---- */

static int fail(const sql_t *sql, const char *path, inferd_error_t *error) {
  return error_set(error, ERR_IO, "store", "%.300s cannot be used as a store: %.200s", path,
                   sql->db != NULL ? sqlite3_errmsg(sql->db) : "no memory");
}

static int number_of(const sql_t *sql, const char *pragma, int64_t *out) {
  sqlite3_stmt *row = NULL;
  int code = sqlite3_prepare_v2(sql->db, pragma, -1, &row, NULL);
  if (code == SQLITE_OK) code = sqlite3_step(row);
  if (code == SQLITE_ROW) *out = sqlite3_column_int64(row, 0);
  sqlite3_finalize(row);
  return code == SQLITE_ROW ? SQLITE_OK : code;
}

/* Runs one step of the schema in a transaction. */
static int step_forward(const sql_t *sql, const char *path, int64_t version,
                        inferd_error_t *error) {
  char tail[64];
  int code = sqlite3_exec(sql->db, "BEGIN IMMEDIATE", NULL, NULL, NULL);
  if (code != SQLITE_OK) return fail(sql, path, error);
  snprintf(tail, sizeof tail, "PRAGMA user_version = %d; COMMIT", (int)version + 1);
  code = sqlite3_exec(sql->db, steps[version], NULL, NULL, NULL);
  if (code == SQLITE_OK) code = sqlite3_exec(sql->db, tail, NULL, NULL, NULL);
  if (code == SQLITE_OK) return 0;
  code = fail(sql, path, error);
  sqlite3_exec(sql->db, "ROLLBACK", NULL, NULL, NULL);
  return code;
}

/* Reads the number of the schema, 0 for a new file, of a file that is a store. */
static int check_file(const sql_t *sql, const char *path, int64_t *version, inferd_error_t *error) {
  const int newest = ARRAY_LEN(steps);
  int64_t application = 0, tables = 0;
  if (number_of(sql, "PRAGMA user_version", version) != SQLITE_OK ||
      number_of(sql, "PRAGMA application_id", &application) != SQLITE_OK ||
      number_of(sql, "SELECT count(*) FROM sqlite_schema", &tables) != SQLITE_OK)
    return fail(sql, path, error);
  bool is_new = *version == 0 && tables == 0;
  if (!is_new && application != APPLICATION_ID)
    return error_set(error, ERR_CONFIGURATION, "store",
                     "%.300s is a database of another program, not a store of inferd", path);
  if (*version > newest)
    return error_set(error, ERR_CONFIGURATION, "store",
                     "%.300s has schema %d, this inferd knows schemas up to %d: a newer inferd has "
                     "written it",
                     path, (int)*version, newest);
  return 0;
}

static int migrate(const sql_t *sql, const char *path, int64_t version, inferd_error_t *error) {
  if (version == 0) { /* these stand in the first page, so they come before the first table */
    char text[128];
    snprintf(text, sizeof text, "PRAGMA auto_vacuum = INCREMENTAL; PRAGMA application_id = %d",
             (int)APPLICATION_ID);
    if (sqlite3_exec(sql->db, text, NULL, NULL, NULL) != SQLITE_OK) return fail(sql, path, error);
  }
  int code = 0;
  for (; version < (int64_t)ARRAY_LEN(steps) && code == 0; version++)
    code = step_forward(sql, path, version, error);
  return code;
}

int sql_make_private(const char *path, bool is_new, inferd_error_t *error) {
  /* SQLite makes files that all may read; a store has conversations */
  int flags = O_CREAT | O_RDWR | O_CLOEXEC | O_NOFOLLOW | (is_new ? O_EXCL : 0);
  int file = open(path, flags, 0600);
  if (file < 0)
    return error_set(error, errno == EACCES || errno == EPERM ? ERR_PERMISSION : ERR_IO, "store",
                     "%.300s cannot be used as a store: %.100s", path, strerror(errno));
  close(file);
  return 0;
}

int sql_open(sql_t *sql, const char *path, bool writes, inferd_error_t *error) {
  *sql = (sql_t){0};
  int code = writes ? sql_make_private(path, false, error) : 0;
  if (code != 0) return code;
  int flags = writes ? SQLITE_OPEN_READWRITE : SQLITE_OPEN_READONLY;
  if (sqlite3_open_v2(path, &sql->db, flags | SQLITE_OPEN_NOMUTEX, NULL) != SQLITE_OK) {
    code = fail(sql, path, error);
  } else {
    sqlite3_busy_timeout(sql->db, BUSY_MS);
    int64_t version = 0;
    code = check_file(sql, path, &version, error);
    if (code == 0 && writes) code = migrate(sql, path, version, error);
    if (code == 0 && !writes && version < (int64_t)ARRAY_LEN(steps))
      code = error_set(error, ERR_CONFIGURATION, "store",
                       "%.300s has schema %d, and %d is today's: a server that opens it brings it "
                       "there",
                       path, (int)version, (int)ARRAY_LEN(steps));
    if (code == 0 && writes &&
        sqlite3_exec(sql->db, "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL", NULL, NULL,
                     NULL) != SQLITE_OK)
      code = fail(sql, path, error);
  }
  if (code != 0) sql_close(sql);
  return code;
}

void sql_close(sql_t *sql) {
  for (int i = 0; i < SQL_STATEMENTS; i++) sqlite3_finalize(sql->statements[i]);
  sqlite3_close(sql->db);
  *sql = (sql_t){0};
}

int sql_sync(sql_t *sql) {
  return sqlite3_exec(sql->db, "PRAGMA synchronous = FULL", NULL, NULL, NULL);
}

/* ---- statements ---- */

static sqlite3_stmt *ready(sql_t *sql, statement_t which) {
  sqlite3_stmt **statement = &sql->statements[which];
  if (*statement == NULL)
    sqlite3_prepare_v3(sql->db, texts[which], -1, SQLITE_PREPARE_PERSISTENT, statement, NULL);
  return *statement;
}

/* Runs a statement that has no row of interest. */
static int finish(sql_t *sql, sqlite3_stmt *statement) {
  if (statement == NULL) return sqlite3_errcode(sql->db);
  int code = sqlite3_step(statement);
  while (code == SQLITE_ROW) code = sqlite3_step(statement);
  sqlite3_reset(statement);
  sqlite3_clear_bindings(statement);
  return code == SQLITE_DONE ? SQLITE_OK : code;
}

int sql_begin(sql_t *sql) {
  return finish(sql, ready(sql, BEGIN));
}

int sql_commit(sql_t *sql) {
  return finish(sql, ready(sql, COMMIT));
}

void sql_rollback(sql_t *sql) {
  if (sqlite3_get_autocommit(sql->db) == 0) sqlite3_exec(sql->db, "ROLLBACK", NULL, NULL, NULL);
}

static void bind_text(sqlite3_stmt *statement, int at, const char *text) {
  sqlite3_bind_text(statement, at, text, -1, SQLITE_STATIC);
}

static void bind_bytes(sqlite3_stmt *statement, int at, const buffer_t *bytes) {
  sqlite3_bind_blob64(statement, at, bytes->length > 0 ? bytes->data : "", bytes->length,
                      SQLITE_STATIC);
}

/* A statement about a conversation: its id, whose it is, and since when it has not expired. */
static sqlite3_stmt *of_conversation(sql_t *sql, statement_t which, const stored_t *stored,
                                     int64_t since) {
  sqlite3_stmt *row = ready(sql, which);
  if (row == NULL) return NULL;
  bind_text(row, 1, stored->conversation);
  sqlite3_bind_blob(row, 2, stored->owner, STORE_OWNER_BYTES, SQLITE_STATIC);
  sqlite3_bind_int64(row, 3, since);
  return row;
}

/* Adds to the bytes of a conversation, and lets it expire later. */
static int grow(sql_t *sql, const stored_t *stored, int64_t bytes) {
  sqlite3_stmt *row = of_conversation(sql, GROW, stored, INT64_MIN);
  sqlite3_bind_int64(row, 4, bytes);
  sqlite3_bind_int64(row, 5, (int64_t)time(NULL));
  return finish(sql, row);
}

/* A line that has ended already stays as it was. */
static int end_lines(sql_t *sql, const stored_t *stored) {
  int code = SQLITE_OK;
  for (const stored_item_t *item = stored->items; item != NULL && code == SQLITE_OK;
       item = item->next) {
    sqlite3_stmt *row = of_conversation(sql, GROW_LINE, stored, INT64_MIN);
    bind_text(row, 4, item->id);
    sqlite3_bind_int64(row, 5, (int64_t)item->body.length);
    if ((code = finish(sql, row)) != SQLITE_OK) return code;
    row = of_conversation(sql, END_LINE, stored, INT64_MIN);
    bind_text(row, 4, item->id);
    bind_bytes(row, 5, &item->body);
    sqlite3_bind_int(row, 6, (int)item->state);
    code = finish(sql, row);
  }
  return code;
}

/* Lines of a batch that has ended become what files have; nothing of them is copied. */
static int move_lines(sql_t *sql, const stored_t *stored) {
  int code = SQLITE_OK;
  for (const stored_item_t *item = stored->items; item != NULL && code == SQLITE_OK;
       item = item->next) {
    sqlite3_stmt *row = of_conversation(sql, MOVE_LINES, stored, INT64_MIN);
    bind_text(row, 4, item->id);
    sqlite3_bind_int(row, 5, (int)item->state);
    if ((code = finish(sql, row)) != SQLITE_OK) return code;
    row = ready(sql, GROW_FILE);
    bind_text(row, 1, item->id);
    sqlite3_bind_blob(row, 2, stored->owner, STORE_OWNER_BYTES, SQLITE_STATIC);
    code = finish(sql, row);
  }
  return code;
}

static int append_items(sql_t *sql, const stored_t *stored) {
  int64_t bytes = 0;
  int code = SQLITE_OK;
  for (const stored_item_t *item = stored->items; item != NULL; item = item->next) {
    sqlite3_stmt *row = of_conversation(sql, APPEND, stored, INT64_MIN);
    bind_text(row, 4, item->id);
    bind_bytes(row, 5, &item->body);
    bind_text(row, 6, stored->id);
    code = finish(sql, row);
    if (code != SQLITE_OK) return code;
    if (sqlite3_changes(sql->db) > 0) bytes += (int64_t)item->body.length + 64;
  }
  return bytes > 0 ? grow(sql, stored, bytes) : SQLITE_OK;
}

static int add_use(sql_t *sql, const stored_use_t *use) {
  sqlite3_stmt *row = ready(sql, ADD_USE);
  sqlite3_bind_int64(row, 1, use->day);
  sqlite3_bind_blob(row, 2, use->owner, STORE_OWNER_BYTES, SQLITE_STATIC);
  bind_text(row, 3, use->model);
  bind_text(row, 4, use->label);
  const int64_t counts[] = {use->requests, use->input, use->cached, use->output};
  for (int i = 0; i < (int)ARRAY_LEN(counts); i++) sqlite3_bind_int64(row, 5 + i, counts[i]);
  return finish(sql, row);
}

static int insert_row(sql_t *sql, const stored_t *stored, int64_t bytes) {
  sqlite3_stmt *row = ready(sql, INSERT);
  bind_text(row, 1, stored->id);
  sqlite3_bind_blob(row, 2, stored->owner, STORE_OWNER_BYTES, SQLITE_STATIC);
  bind_text(row, 3, stored->previous);
  sqlite3_bind_int64(row, 4, stored->created);
  sqlite3_bind_int64(row, 5, bytes);
  bind_bytes(row, 6, &stored->input);
  bind_bytes(row, 7, &stored->body);
  sqlite3_bind_int(row, 8, (int)stored->state);
  sqlite3_bind_int(row, 11, stored->streams);
  if (stored->request.length > 0) bind_bytes(row, 9, &stored->request);
  if (stored->events.length > 0) bind_bytes(row, 10, &stored->events);
  bind_text(row, 12, stored->conversation);
  if (stored->recipe.length > 0) bind_bytes(row, 13, &stored->recipe);
  return finish(sql, row);
}

static int is_gone(sql_t *sql, const stored_t *stored, bool *gone) {
  sqlite3_stmt *row = ready(sql, HAS_ROW);
  if (row == NULL) return sqlite3_errcode(sql->db);
  bind_text(row, 1, stored->id);
  sqlite3_bind_blob(row, 2, stored->owner, STORE_OWNER_BYTES, SQLITE_STATIC);
  int code = sqlite3_step(row);
  *gone = code == SQLITE_ROW && sqlite3_column_int(row, 0) == 0;
  sqlite3_reset(row);
  sqlite3_clear_bindings(row);
  return code == SQLITE_ROW ? SQLITE_OK : code;
}

/* Items come before the row of their answer, which says whether they were appended before, and
 * behind the row of a conversation. */
int sql_insert(sql_t *sql, const stored_t *stored, int64_t bytes) {
  bool gone = false;
  bool is_first = stored->state == STORED_CONVERSATION || stored->state == STORED_BATCH;
  if (stored->state == STORED_LINES) return end_lines(sql, stored);
  if (stored->state == STORED_USE) return add_use(sql, stored->use);
  int code = stored->replaces ? is_gone(sql, stored, &gone) : SQLITE_OK;
  if (code != SQLITE_OK || gone) return code;
  code = is_first ? insert_row(sql, stored, bytes) : SQLITE_OK;
  if (code == SQLITE_OK && stored->state == STORED_BATCH_ENDED)
    code = move_lines(sql, stored);
  else if (code == SQLITE_OK && stored->items != NULL)
    code = append_items(sql, stored);
  if (code != SQLITE_OK || is_first || stored->state == STORED_ITEMS) return code;
  return insert_row(sql, stored, bytes);
}

int sql_remove(sql_t *sql, const uint8_t owner[STORE_OWNER_BYTES], const char *id) {
  sqlite3_stmt *row = ready(sql, REMOVE);
  bind_text(row, 1, id);
  sqlite3_bind_blob(row, 2, owner, STORE_OWNER_BYTES, SQLITE_STATIC);
  int code = finish(sql, row);
  return code == SQLITE_OK && sqlite3_changes(sql->db) == 0 ? SQLITE_NOTFOUND : code;
}

static void copy_blob(sqlite3_stmt *row, int column, buffer_t *out) {
  buffer_append(out, sqlite3_column_blob(row, column), (size_t)sqlite3_column_bytes(row, column));
}

/* The row that the statement stands at; NULL: memory is short. */
static stored_t *copy_row(sqlite3_stmt *row, const stored_t *wanted) {
  stored_t *stored = calloc(1, sizeof *stored);
  if (stored == NULL) return NULL;
  memcpy(stored->id, wanted->id, sizeof stored->id);
  memcpy(stored->owner, wanted->owner, STORE_OWNER_BYTES);
  snprintf(stored->previous, sizeof stored->previous, "%s",
           (const char *)sqlite3_column_text(row, 0));
  stored->created = sqlite3_column_int64(row, 1);
  stored->state = (stored_state_t)sqlite3_column_int(row, 2);
  copy_blob(row, 3, &stored->input);
  copy_blob(row, 4, &stored->body);
  copy_blob(row, 5, &stored->request);
  copy_blob(row, 6, &stored->events);
  stored->streams = sqlite3_column_int(row, 7) != 0;
  snprintf(stored->conversation, sizeof stored->conversation, "%s",
           (const char *)sqlite3_column_text(row, 8));
  if (!stored_failed(stored)) return stored;
  stored_free(stored);
  return NULL;
}

int sql_recipe(sql_t *sql, const char *id, buffer_t *out) {
  sqlite3_stmt *row = ready(sql, RECIPE);
  if (row == NULL) return sqlite3_errcode(sql->db);
  bind_text(row, 1, id);
  int code = sqlite3_step(row);
  if (code == SQLITE_DONE) code = SQLITE_NOTFOUND;
  if (code == SQLITE_ROW) {
    copy_blob(row, 0, out);
    code = out->failed ? SQLITE_NOMEM : out->length > 0 ? SQLITE_OK : SQL_NO_ITEM;
  }
  sqlite3_reset(row);
  return code;
}

int sql_waiting(sql_t *sql, void (*visit)(void *context, const stored_t *stored), void *context) {
  sqlite3_stmt *row = ready(sql, WAITING);
  if (row == NULL) return sqlite3_errcode(sql->db);
  int code;
  while ((code = sqlite3_step(row)) == SQLITE_ROW) {
    stored_t stored = {.state = (stored_state_t)sqlite3_column_int(row, 4),
                       .created = sqlite3_column_int64(row, 2),
                       .streams = sqlite3_column_int(row, 3) != 0};
    snprintf(stored.id, sizeof stored.id, "%s", (const char *)sqlite3_column_text(row, 0));
    if (sqlite3_column_bytes(row, 1) == STORE_OWNER_BYTES)
      memcpy(stored.owner, sqlite3_column_blob(row, 1), STORE_OWNER_BYTES);
    copy_blob(row, 5, &stored.body);
    visit(context, &stored);
    buffer_free(&stored.body);
  }
  sqlite3_reset(row);
  return code == SQLITE_DONE ? SQLITE_OK : code;
}

int sql_select(sql_t *sql, const stored_t *wanted, int64_t since, bool whole, stored_t **out) {
  sqlite3_stmt *row = ready(sql, SELECT);
  if (row == NULL) return sqlite3_errcode(sql->db);
  bind_text(row, 1, wanted->id);
  sqlite3_bind_blob(row, 2, wanted->owner, STORE_OWNER_BYTES, SQLITE_STATIC);
  sqlite3_bind_int64(row, 3, since);
  sqlite3_bind_int(row, 4, whole);
  int code = sqlite3_step(row);
  if (code == SQLITE_ROW) {
    *out = copy_row(row, wanted);
    code = *out != NULL ? SQLITE_OK : SQLITE_NOMEM;
  } else if (code == SQLITE_DONE) {
    code = SQLITE_NOTFOUND;
  }
  sqlite3_reset(row);
  sqlite3_clear_bindings(row);
  return code;
}

/* Visits the rows of a statement, each an id and a text, and ends it. */
static int visit_rows(sqlite3_stmt *row,
                      bool (*visit)(void *context, const char *id, const char *body, size_t length),
                      void *context) {
  bool goes_on = true;
  int code = SQLITE_DONE;
  while (goes_on && (code = sqlite3_step(row)) == SQLITE_ROW)
    goes_on =
        visit(context, (const char *)sqlite3_column_text(row, 0),
              (const char *)sqlite3_column_blob(row, 1), (size_t)sqlite3_column_bytes(row, 1));
  sqlite3_reset(row);
  sqlite3_clear_bindings(row);
  return code == SQLITE_DONE || code == SQLITE_ROW ? SQLITE_OK : code;
}

static int has_conversation(sql_t *sql, const stored_t *conversation, int64_t since) {
  sqlite3_stmt *row = of_conversation(sql, HAS_CONVERSATION, conversation, since);
  if (row == NULL) return sqlite3_errcode(sql->db);
  int code = sqlite3_step(row);
  if (code == SQLITE_ROW) code = sqlite3_column_int(row, 0) != 0 ? SQLITE_OK : SQLITE_NOTFOUND;
  sqlite3_reset(row);
  sqlite3_clear_bindings(row);
  return code;
}

int sql_items(sql_t *sql, const stored_t *conversation, int64_t since, const store_page_t *page,
              bool (*visit)(void *context, const char *id, const char *body, size_t length),
              void *context) {
  int code = has_conversation(sql, conversation, since);
  if (code != SQLITE_OK) return code;
  statement_t which = page->ascending ? ITEMS_UP : ITEMS_DOWN;
  sqlite3_stmt *row = of_conversation(sql, which, conversation, since);
  if (row == NULL) return sqlite3_errcode(sql->db);
  bind_text(row, 4, page->after);
  sqlite3_bind_int64(row, 5, page->limit);
  return visit_rows(row, visit, context);
}

int sql_lines(sql_t *sql, const stored_t *batch, line_state_t state, const store_page_t *page,
              bool (*visit)(void *context, const char *id, const char *body, size_t length),
              void *context) {
  sqlite3_stmt *row = of_conversation(sql, LINES, batch, INT64_MIN);
  if (row == NULL) return sqlite3_errcode(sql->db);
  bind_text(row, 4, page->after);
  sqlite3_bind_int64(row, 5, page->limit);
  sqlite3_bind_int(row, 6, (int)state);
  return visit_rows(row, visit, context);
}

int sql_count_lines(sql_t *sql, const stored_t *batch, line_counts_t *counts) {
  sqlite3_stmt *row = of_conversation(sql, COUNT_LINES, batch, INT64_MIN);
  if (row == NULL) return sqlite3_errcode(sql->db);
  int code;
  while ((code = sqlite3_step(row)) == SQLITE_ROW) {
    int state = sqlite3_column_int(row, 0);
    if (state < 0 || state >= LINE_STATES) continue;
    counts->lines[state] = sqlite3_column_int64(row, 1);
    counts->bytes[state] = sqlite3_column_int64(row, 2);
  }
  sqlite3_reset(row);
  sqlite3_clear_bindings(row);
  return code == SQLITE_DONE ? SQLITE_OK : code;
}

int sql_list(sql_t *sql, const stored_t *owner, int64_t since, const store_page_t *page,
             bool (*visit)(void *context, const char *id, const char *body, size_t length),
             void *context) {
  sqlite3_stmt *row = ready(sql, page->ascending ? LIST_UP : LIST_DOWN);
  if (row == NULL) return sqlite3_errcode(sql->db);
  bool batches = owner->state == STORED_BATCH;
  sqlite3_bind_blob(row, 1, owner->owner, STORE_OWNER_BYTES, SQLITE_STATIC);
  sqlite3_bind_int64(row, 2, since);
  sqlite3_bind_int(row, 3, (int)owner->state);
  sqlite3_bind_int(row, 4, batches ? (int)STORED_BATCH_ENDED : (int)owner->state);
  bind_text(row, 5, page->after);
  sqlite3_bind_int64(row, 6, page->limit);
  return visit_rows(row, visit, context);
}

int sql_item(sql_t *sql, const stored_t *conversation, int64_t since, const char *id,
             buffer_t *out) {
  int code = has_conversation(sql, conversation, since);
  if (code != SQLITE_OK) return code;
  sqlite3_stmt *row = of_conversation(sql, FIND_ITEM, conversation, since);
  if (row == NULL) return sqlite3_errcode(sql->db);
  bind_text(row, 4, id);
  code = sqlite3_step(row);
  if (code == SQLITE_ROW) {
    copy_blob(row, 1, out);
    code = out->failed ? SQLITE_NOMEM : SQLITE_OK;
  } else if (code == SQLITE_DONE) {
    code = SQL_NO_ITEM;
  }
  sqlite3_reset(row);
  sqlite3_clear_bindings(row);
  return code;
}

int sql_remove_item(sql_t *sql, const stored_t *conversation, int64_t since, const char *id) {
  buffer_t body = {0};
  int code = sql_item(sql, conversation, since, id, &body);
  int64_t bytes = (int64_t)body.length + 64;
  buffer_free(&body);
  if (code != SQLITE_OK) return code;
  sqlite3_stmt *row = of_conversation(sql, REMOVE_ITEM, conversation, since);
  bind_text(row, 4, id);
  code = finish(sql, row);
  return code == SQLITE_OK ? grow(sql, conversation, -bytes) : code;
}

static void copy_text(sqlite3_stmt *row, int column, char *out, size_t size) {
  snprintf(out, size, "%s", (const char *)sqlite3_column_text(row, column));
}

int sql_uses(sql_t *sql, const uint8_t *owner, int64_t first, int64_t end,
             bool (*visit)(void *context, const stored_use_t *use), void *context) {
  sqlite3_stmt *row = ready(sql, USES);
  bool goes_on = true;
  int code = SQLITE_DONE;
  if (row == NULL) return sqlite3_errcode(sql->db);
  sqlite3_bind_int64(row, 1, first);
  sqlite3_bind_int64(row, 2, end);
  if (owner != NULL) sqlite3_bind_blob(row, 3, owner, STORE_OWNER_BYTES, SQLITE_STATIC);
  while (goes_on && (code = sqlite3_step(row)) == SQLITE_ROW) {
    stored_use_t use = {.day = sqlite3_column_int64(row, 0),
                        .requests = sqlite3_column_int64(row, 4),
                        .input = sqlite3_column_int64(row, 5),
                        .cached = sqlite3_column_int64(row, 6),
                        .output = sqlite3_column_int64(row, 7)};
    if (sqlite3_column_bytes(row, 1) == STORE_OWNER_BYTES)
      memcpy(use.owner, sqlite3_column_blob(row, 1), STORE_OWNER_BYTES);
    copy_text(row, 2, use.model, sizeof use.model);
    copy_text(row, 3, use.label, sizeof use.label);
    goes_on = visit(context, &use);
  }
  sqlite3_reset(row);
  sqlite3_clear_bindings(row);
  return code == SQLITE_DONE || code == SQLITE_ROW ? SQLITE_OK : code;
}

int sql_remove_uses(sql_t *sql, int64_t before) {
  sqlite3_stmt *row = ready(sql, REMOVE_USES);
  sqlite3_bind_int64(row, 1, before);
  return finish(sql, row);
}

/* The numbers of the statement's only row. */
static int numbers_of(sql_t *sql, statement_t which, int64_t *first, int64_t *second) {
  sqlite3_stmt *row = ready(sql, which);
  if (row == NULL) return sqlite3_errcode(sql->db);
  int code = sqlite3_step(row);
  if (code == SQLITE_ROW) {
    *first = sqlite3_column_int64(row, 0);
    if (second != NULL) *second = sqlite3_column_int64(row, 1);
    code = SQLITE_OK;
  }
  sqlite3_reset(row);
  return code;
}

int sql_sizes(sql_t *sql, int64_t *rows, int64_t *bytes) {
  return numbers_of(sql, SIZES, rows, bytes);
}

int sql_remove_expired(sql_t *sql, int64_t before, int32_t count, int32_t *removed) {
  sqlite3_stmt *row = ready(sql, REMOVE_EXPIRED);
  sqlite3_bind_int64(row, 1, before);
  sqlite3_bind_int(row, 2, count);
  int code = finish(sql, row);
  *removed = code == SQLITE_OK ? sqlite3_changes(sql->db) : 0;
  return code;
}

int sql_remove_of_largest(sql_t *sql, int32_t count) {
  sqlite3_stmt *row = ready(sql, REMOVE_OF_LARGEST);
  sqlite3_bind_int(row, 1, count);
  return finish(sql, row);
}

int sql_check(sql_t *sql, char *out, size_t size) {
  sqlite3_stmt *row = ready(sql, CHECK_ALL);
  if (row == NULL) return sqlite3_errcode(sql->db);
  int code = sqlite3_step(row);
  if (code == SQLITE_ROW) copy_text(row, 0, out, size);
  sqlite3_reset(row);
  return code == SQLITE_ROW ? SQLITE_OK : code;
}

int sql_copy(sql_t *sql, const char *to) {
  sqlite3_stmt *row = ready(sql, COPY);
  if (row == NULL) return sqlite3_errcode(sql->db);
  bind_text(row, 1, to);
  return finish(sql, row);
}

int sql_shrink(sql_t *sql) {
  int64_t pages = 0;
  int code = numbers_of(sql, FREE_PAGES, &pages, NULL);
  for (int64_t turns = pages / SHRINK_PAGES; code == SQLITE_OK && turns >= 0; turns--)
    code = finish(sql, ready(sql, SHRINK)); /* a transaction each */
  return code;
}
