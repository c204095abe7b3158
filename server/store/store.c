/* store.c: the writer's thread, and what readers see of it.
 *
 * 1. store_put appends to the list of what waits, under `lock`. It rings if somebody waits for the
 * answer to be written, or if the writer sleeps, which then gathers for GATHER_NS what comes.
 * 2. The writer takes the list as it is, writes it in one transaction under `writing`, and only
 *    then takes it off: until then readers find it in the list, afterwards in the file.
 * 3. What has expired is removed once a minute, in small transactions. Beyond the bound of bytes
 * the oldest answers go of the owner that has most: whoever fills the file loses what it had
 * itself.
 * 4. If a transaction fails the list is dropped: its memory must not grow while a disk is full.
 * Every RETRY_S a probe is written, so that the store works again when the disk does.
 */
#include "server/store/store.h"

#include "engine/base/util.h"
#include "server/store/sql.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { REMOVE_ROWS = 64, TIDY_S = 60, RETRY_S = 5, PROBLEM_BYTES = 256 };
/* A transaction writes whole pages, however little is new in them. */
enum { GATHER_NS = 50000000, GATHER_BYTES = 1 << 20 };

struct answer_store {
  char *path;
  int64_t ttl_s, bytes_max;
  void (*changed)(const char *problem);
  pthread_t thread;
  /* lock: the list and what is told of the writer */
  pthread_mutex_t lock;
  pthread_cond_t bell, done; /* done: `outcome` of some answer is set */
  stored_t *first, *last;    /* what waits, the oldest first */
  int64_t waiting_bytes;
  bool stops, hurries;         /* hurries: nothing more is gathered before the next write */
  char problem[PROBLEM_BYTES]; /* "" = the last write was well */
  store_stats_t stats;
  /* writing: the connection that writes, what the file has, and answers that leave the list */
  pthread_mutex_t writing;
  sql_t writer;
  int64_t rows, bytes; /* as of the last transaction */
  int64_t tidy_s;      /* when to measure and remove again */
  /* reading: the other connection */
  pthread_mutex_t reading;
  sql_t reader;
};

void stored_free(stored_t *stored) {
  if (stored == NULL) return;
  buffer_free(&stored->input);
  buffer_free(&stored->body);
  buffer_free(&stored->request);
  buffer_free(&stored->events);
  buffer_free(&stored->recipe);
  for (stored_item_t *item = stored->items, *next; item != NULL; item = next) {
    next = item->next;
    buffer_free(&item->body);
    free(item);
  }
  free(stored);
}

bool stored_failed(const stored_t *stored) {
  for (const stored_item_t *item = stored->items; item != NULL; item = item->next) {
    if (item->body.failed) return true;
  }
  return stored->input.failed || stored->body.failed || stored->request.failed ||
         stored->events.failed || stored->recipe.failed;
}

static int64_t own_bytes(const stored_t *stored) {
  return (int64_t)(stored->input.length + stored->body.length + stored->request.length +
                   stored->events.length + stored->recipe.length + sizeof *stored);
}

/* With its items. */
static int64_t bytes_of(const stored_t *stored) {
  size_t items = 0;
  for (const stored_item_t *item = stored->items; item != NULL; item = item->next)
    items += item->body.length + sizeof *item;
  return own_bytes(stored) + (int64_t)items;
}

/* Answers from before this second have expired. */
static int64_t oldest_kept(const answer_store_t *store) {
  return store->ttl_s > 0 ? (int64_t)time(NULL) - store->ttl_s : INT64_MIN;
}

/* ---- the writer ---- */

/* Whether it is an answer, or something else with an id. */
static bool is_row(const stored_t *stored) {
  return stored->state != STORED_ITEMS && stored->state != STORED_LINES &&
         stored->state != STORED_USE;
}

/* From the first to the last, whose `next` store_put may set meanwhile. The caller rolls back. */
static int write_all(answer_store_t *store, const stored_t *first, const stored_t *last) {
  int code = sql_begin(&store->writer);
  for (const stored_t *s = first; code == SQLITE_OK; s = s->next) {
    code = sql_insert(&store->writer, s, own_bytes(s));
    store->bytes += bytes_of(s);
    store->rows += is_row(s);
    if (s == last) break;
  }
  return code == SQLITE_OK ? sql_commit(&store->writer) : code;
}

/* Removes what has expired and what is beyond the bound: once a minute, and when the file seems to
 * be too large. In between its size is an estimate from above. */
static int make_room(answer_store_t *store) {
  int64_t now_s = (int64_t)time(NULL);
  bool is_large = store->bytes_max > 0 && store->bytes > store->bytes_max;
  if (now_s < store->tidy_s && !is_large) return SQLITE_OK;
  int32_t removed;
  int code;
  store->tidy_s = now_s + TIDY_S;
  do {
    code = sql_remove_expired(&store->writer, oldest_kept(store), REMOVE_ROWS, &removed);
  } while (code == SQLITE_OK && removed == REMOVE_ROWS);
  if (code == SQLITE_OK)
    code = sql_remove_uses(&store->writer, now_s / (24 * 3600) - STORE_USE_DAYS);
  if (code == SQLITE_OK) code = sql_sizes(&store->writer, &store->rows, &store->bytes);
  while (code == SQLITE_OK && store->bytes_max > 0 && store->bytes > store->bytes_max) {
    code = sql_remove_of_largest(&store->writer,
                                 (int32_t)MIN(1 + store->rows / REMOVE_ROWS, REMOVE_ROWS));
    if (code == SQLITE_OK) code = sql_sizes(&store->writer, &store->rows, &store->bytes);
  }
  return code == SQLITE_OK ? sql_shrink(&store->writer) : code;
}

/* Whether the file can be written again: a row that is removed at once. */
static int probe(answer_store_t *store) {
  const stored_t row = {.id = "probe"};
  int code = sql_begin(&store->writer);
  if (code == SQLITE_OK) code = sql_insert(&store->writer, &row, 0);
  if (code == SQLITE_OK) code = sql_remove(&store->writer, row.owner, row.id);
  return code == SQLITE_OK ? sql_commit(&store->writer) : code;
}

/* Takes what was written, or not, off the list: up to `last`, NULL = nothing. Notes how it ended,
 * and tells of a change. `writing` is held, so nobody else takes any off. */
static void end_write(answer_store_t *store, const stored_t *last, const char *problem) {
  uint64_t count = 0;
  bool failed = problem[0] != '\0';
  pthread_mutex_lock(&store->lock);
  bool had = store->problem[0] != '\0';
  stored_t *first = store->first, *rest = last != NULL ? last->next : first;
  for (stored_t **link = &first, *s = first; s != rest; s = *link) {
    store->waiting_bytes -= bytes_of(s);
    store->stats.waiting--;
    bool is_theirs = s->outcome != NULL && failed;
    if (s->outcome != NULL) *s->outcome = failed ? -1 : 1;
    if (is_theirs) {
      *link = s->next;
    } else {
      link = &s->next;
      count += s->state != STORED_USE;
    }
  }
  pthread_cond_broadcast(&store->done);
  store->first = rest;
  if (rest == NULL) store->last = NULL;
  snprintf(store->problem, sizeof store->problem, "%s", problem);
  *(failed ? &store->stats.dropped : &store->stats.written) += count;
  store->stats.rows = store->rows;
  store->stats.bytes = store->bytes;
  pthread_mutex_unlock(&store->lock);
  for (stored_t *next; first != rest; first = next) {
    next = first->next;
    stored_free(first);
  }
  if (failed != had && store->changed != NULL) store->changed(failed ? problem : NULL);
}

/* Writes what waits now, and tidies up. */
static void write_waiting(answer_store_t *store) {
  char problem[PROBLEM_BYTES] = "";
  pthread_mutex_lock(&store->writing);
  pthread_mutex_lock(&store->lock);
  const stored_t *first = store->first, *last = store->last;
  bool failed = store->problem[0] != '\0';
  pthread_mutex_unlock(&store->lock);
  int code = SQLITE_OK;
  if (first != NULL)
    code = write_all(store, first, last);
  else if (failed)
    code = probe(store);
  if (code == SQLITE_OK) code = make_room(store);
  if (code != SQLITE_OK)
    snprintf(problem, sizeof problem, "%.200s", sqlite3_errmsg(store->writer.db));
  sql_rollback(&store->writer);
  end_write(store, last, problem);
  pthread_mutex_unlock(&store->writing);
}

/* Waits for more to write; `lock` is held. */
static void gather(answer_store_t *store) {
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_nsec += GATHER_NS;
  if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
  int code = 0;
  while (!store->hurries && !store->stops && code == 0)
    code = pthread_cond_timedwait(&store->bell, &store->lock, &until);
  store->hurries = false;
}

static void *run(void *context) {
  answer_store_t *store = context;
  pthread_mutex_lock(&store->lock);
  while (!store->stops || store->first != NULL) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += store->problem[0] != '\0' ? RETRY_S : TIDY_S;
    int code = 0;
    while (store->first == NULL && !store->stops && code == 0)
      code = pthread_cond_timedwait(&store->bell, &store->lock, &until);
    if (store->first == NULL && store->stops) break;
    if (store->first != NULL) gather(store);
    pthread_mutex_unlock(&store->lock);
    write_waiting(store);
    pthread_mutex_lock(&store->lock);
  }
  pthread_mutex_unlock(&store->lock);
  return NULL;
}

/* ---- open and close ---- */

static answer_store_t *make(const store_options_t *options) {
  answer_store_t *store = calloc(1, sizeof *store);
  if (store == NULL) return NULL;
  store->path = strdup(options->path);
  store->ttl_s = options->ttl_s;
  store->bytes_max = options->bytes_max;
  store->changed = options->changed;
  pthread_mutex_init(&store->lock, NULL);
  pthread_mutex_init(&store->writing, NULL);
  pthread_mutex_init(&store->reading, NULL);
  pthread_cond_init(&store->bell, NULL);
  pthread_cond_init(&store->done, NULL);
  return store;
}

static void destroy(answer_store_t *store) {
  sql_close(&store->reader);
  sql_close(&store->writer);
  pthread_mutex_destroy(&store->lock);
  pthread_mutex_destroy(&store->writing);
  pthread_mutex_destroy(&store->reading);
  pthread_cond_destroy(&store->bell);
  pthread_cond_destroy(&store->done);
  free(store->path);
  free(store);
}

/* The writer takes no signal: those of the process are the loop thread's. */
static int start(answer_store_t *store) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int code = pthread_create(&store->thread, NULL, run, store);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (code == 0) pthread_setname_np(store->thread, "store");
  return code;
}

int store_open(const store_options_t *options, answer_store_t **out, inferd_error_t *error) {
  answer_store_t *store = make(options);
  if (store == NULL || store->path == NULL) {
    if (store != NULL) destroy(store);
    return error_set(error, ERR_NO_MEMORY, NULL, "no memory for the store");
  }
  int code = sql_open(&store->writer, store->path, true, error);
  if (code == 0) code = sql_open(&store->reader, store->path, false, error);
  int status = code == 0 && options->is_synced ? sql_sync(&store->writer) : SQLITE_OK;
  if (code == 0 && status == SQLITE_OK) status = make_room(store);
  if (status != SQLITE_OK)
    code = error_set(error, ERR_IO, "store", "%.300s cannot be used as a store: %.200s",
                     store->path, sqlite3_errmsg(store->writer.db));
  store->stats.rows = store->rows;
  store->stats.bytes = store->bytes;
  if (code == 0 && start(store) != 0)
    code = error_set(error, ERR_NO_MEMORY, NULL, "no memory for the thread of the store");
  if (code != 0) {
    destroy(store);
    return code;
  }
  *out = store;
  return 0;
}

int store_recipe(const char *path, const char *id, buffer_t *out, inferd_error_t *error) {
  sql_t sql;
  int code = sql_open(&sql, path, false, error);
  if (code != 0) return code;
  code = sql_recipe(&sql, id, out);
  if (code == SQLITE_NOTFOUND)
    error_set(error, ERR_USAGE, NULL, "%.300s has no answer '%.150s'", path, id);
  else if (code == SQL_NO_ITEM)
    error_set(
        error, ERR_USAGE, NULL,
        "%.300s has the answer '%.150s' without a recipe: it has not ended, has failed, or an "
        "older inferd made it",
        path, id);
  else if (code != SQLITE_OK)
    error_set(error, ERR_IO, NULL, "%.300s cannot be read: %.200s", path,
              code == SQLITE_NOMEM ? "no memory" : sqlite3_errmsg(sql.db));
  sql_close(&sql);
  return code == SQLITE_OK ? 0 : error->code;
}

int store_check(const char *path, store_stats_t *out, inferd_error_t *error) {
  sql_t sql;
  char said[PROBLEM_BYTES];
  int code = sql_open(&sql, path, false, error);
  if (code != 0) return code;
  int status = sql_check(&sql, said, sizeof said);
  if (status == SQLITE_OK) status = sql_sizes(&sql, &out->rows, &out->bytes);
  if (status != SQLITE_OK)
    code = error_set(error, ERR_IO, NULL, "%.300s cannot be read: %.200s", path,
                     sqlite3_errmsg(sql.db));
  else if (strcmp(said, "ok") != 0)
    code = error_set(error, ERR_IO, NULL, "%.300s is damaged: %.200s", path, said);
  sql_close(&sql);
  return code;
}

int store_copy(const char *path, const char *to, inferd_error_t *error) {
  sql_t sql;
  int code = sql_open(&sql, path, false, error);
  if (code != 0) return code;
  code = sql_make_private(to, true, error);
  if (code == 0 && sql_copy(&sql, to) != SQLITE_OK)
    code = error_set(error, ERR_IO, NULL, "%.300s cannot be copied to %.300s: %.200s", path, to,
                     sqlite3_errmsg(sql.db));
  sql_close(&sql);
  return code;
}

void store_close(answer_store_t *store) {
  if (store == NULL) return;
  pthread_mutex_lock(&store->lock);
  store->stops = true;
  pthread_cond_signal(&store->bell);
  pthread_mutex_unlock(&store->lock);
  pthread_join(store->thread, NULL);
  destroy(store);
}

/* ---- what others call ---- */

bool store_put(answer_store_t *store, stored_t *stored) {
  stored->next = NULL;
  pthread_mutex_lock(&store->lock);
  bool fits = store->waiting_bytes + bytes_of(stored) <= STORE_WAITING_BYTES;
  if (stored->outcome != NULL) *stored->outcome = fits ? 0 : -1;
  if (fits) {
    const bool was_empty = store->first == NULL;
    *(store->last != NULL ? &store->last->next : &store->first) = stored;
    store->last = stored;
    store->waiting_bytes += bytes_of(stored);
    store->stats.waiting++;
    store->hurries =
        store->hurries || stored->outcome != NULL || store->waiting_bytes > GATHER_BYTES;
    if (was_empty || store->hurries) pthread_cond_signal(&store->bell);
  } else if (stored->outcome == NULL) {
    store->stats.dropped++;
  }
  pthread_mutex_unlock(&store->lock);
  if (!fits && stored->outcome == NULL) stored_free(stored);
  return fits;
}

int store_put_and_wait(answer_store_t *store, stored_t *stored, inferd_error_t *error) {
  int outcome = 0;
  stored->outcome = &outcome;
  bool fits = store_put(store, stored);
  pthread_mutex_lock(&store->lock);
  while (outcome == 0) pthread_cond_wait(&store->done, &store->lock);
  if (!fits)
    error_set(error, ERR_STORE_FAILED, NULL,
              "The store of this server failed: more than %d MiB wait to be written.",
              STORE_WAITING_BYTES >> 20);
  else if (outcome < 0)
    error_set(error, ERR_STORE_FAILED, NULL, "The store of this server failed: %.200s.",
              store->problem);
  if (outcome < 0) store->stats.dropped++;
  pthread_mutex_unlock(&store->lock);
  if (outcome > 0) return 0;
  stored_free(stored);
  return ERR_STORE_FAILED;
}

int store_outcome(answer_store_t *store, const int *outcome) {
  pthread_mutex_lock(&store->lock);
  int now = *outcome;
  pthread_mutex_unlock(&store->lock);
  return now;
}

static void count_one(answer_store_t *store, uint64_t *counter) {
  pthread_mutex_lock(&store->lock);
  ++*counter;
  pthread_mutex_unlock(&store->lock);
}

void store_lost(answer_store_t *store) {
  count_one(store, &store->stats.dropped);
}

void store_retried(answer_store_t *store) {
  count_one(store, &store->stats.retried);
}

static bool is_of(const stored_t *stored, const uint8_t owner[STORE_OWNER_BYTES], const char *id) {
  return is_row(stored) && strcmp(stored->id, id) == 0 &&
         memcmp(stored->owner, owner, STORE_OWNER_BYTES) == 0;
}

/* A copy of an answer that waits; NULL: memory is short. */
static stored_t *copy_of(const stored_t *stored, bool whole) {
  stored_t *copy = calloc(1, sizeof *copy);
  if (copy == NULL) return NULL;
  *copy = *stored;
  copy->next = NULL;
  copy->outcome = NULL;
  copy->input = copy->body = copy->request = copy->events = copy->recipe = (buffer_t){0};
  copy->items = NULL;
  buffer_append(&copy->input, stored->input.data, stored->input.length);
  buffer_append(&copy->body, stored->body.data, stored->body.length);
  if (whole) {
    buffer_append(&copy->request, stored->request.data, stored->request.length);
    buffer_append(&copy->events, stored->events.data, stored->events.length);
  }
  if (!stored_failed(copy)) return copy;
  stored_free(copy);
  return NULL;
}

/* The newest that waits. Returns SQLITE_OK, SQLITE_NOTFOUND or SQLITE_NOMEM. */
static int find_waiting(answer_store_t *store, const uint8_t owner[STORE_OWNER_BYTES],
                        const char *id, bool whole, stored_t **out) {
  int code = SQLITE_NOTFOUND;
  const stored_t *found = NULL;
  pthread_mutex_lock(&store->lock);
  for (const stored_t *s = store->first; s != NULL; s = s->next) {
    if (is_of(s, owner, id)) found = s;
  }
  if (found != NULL) {
    *out = copy_of(found, whole);
    code = *out != NULL ? SQLITE_OK : SQLITE_NOMEM;
  }
  pthread_mutex_unlock(&store->lock);
  return code;
}

/* Turns an SQLITE_ code into 0 or an error. */
static int answer(const sql_t *sql, int code, const char *id, inferd_error_t *error) {
  if (code == SQLITE_OK) return 0;
  static const char *const kinds[][2] = {
      {"conv_", "Conversation"}, {"file-", "File"}, {"batch_", "Batch"}};
  for (size_t i = 0; i < ARRAY_LEN(kinds) && code == SQLITE_NOTFOUND; i++) {
    if (strncmp(id, kinds[i][0], strlen(kinds[i][0])) == 0)
      return error_set(error, ERR_NO_SUCH_OBJECT, NULL, "%s with id '%.150s' not found.",
                       kinds[i][1], id);
  }
  if (code == SQLITE_NOTFOUND)
    return error_set(error, ERR_NOT_STORED, NULL, "Response with id '%.150s' not found.", id);
  if (code == SQLITE_NOMEM) return error_set(error, ERR_INTERNAL, NULL, "Out of memory.");
  return error_set(error, ERR_STORE_FAILED, NULL, "The store of this server failed: %.200s.",
                   sqlite3_errmsg(sql->db));
}

int store_find(answer_store_t *store, const uint8_t owner[STORE_OWNER_BYTES], const char *id,
               bool whole, stored_t **out, inferd_error_t *error) {
  stored_t wanted = {0};
  int code = find_waiting(store, owner, id, whole, out);
  if (code == SQLITE_OK || code == SQLITE_NOMEM) return answer(&store->reader, code, id, error);
  snprintf(wanted.id, sizeof wanted.id, "%s", id);
  memcpy(wanted.owner, owner, STORE_OWNER_BYTES);
  pthread_mutex_lock(&store->reading);
  code = sql_select(&store->reader, &wanted, oldest_kept(store), whole, out);
  code = answer(&store->reader, code, id, error);
  pthread_mutex_unlock(&store->reading);
  return code;
}

int store_waiting(answer_store_t *store, void (*visit)(void *context, const stored_t *stored),
                  void *context, inferd_error_t *error) {
  pthread_mutex_lock(&store->reading);
  int code = answer(&store->reader, sql_waiting(&store->reader, visit, context), "", error);
  pthread_mutex_unlock(&store->reading);
  return code;
}

/* Takes an answer off the list, where it may stand more than once; `writing` is held. */
static bool forget_waiting(answer_store_t *store, const uint8_t owner[STORE_OWNER_BYTES],
                           const char *id) {
  stored_t *previous = NULL, *next, *found = NULL;
  pthread_mutex_lock(&store->lock);
  for (stored_t *s = store->first; s != NULL; s = next) {
    next = s->next;
    if (!is_of(s, owner, id)) {
      previous = s;
      continue;
    }
    *(previous != NULL ? &previous->next : &store->first) = next;
    if (store->last == s) store->last = previous;
    store->waiting_bytes -= bytes_of(s);
    store->stats.waiting--;
    if (s->outcome != NULL) *s->outcome = 1;
    s->next = found;
    found = s;
  }
  pthread_cond_broadcast(&store->done);
  pthread_mutex_unlock(&store->lock);
  bool any = found != NULL;
  for (; found != NULL; found = next) {
    next = found->next;
    stored_free(found);
  }
  return any;
}

int store_remove(answer_store_t *store, const uint8_t owner[STORE_OWNER_BYTES], const char *id,
                 inferd_error_t *error) {
  pthread_mutex_lock(&store->writing);
  bool waited = forget_waiting(store, owner, id);
  int code = sql_remove(&store->writer, owner, id);
  if (waited && code == SQLITE_NOTFOUND) code = SQLITE_OK;
  code = answer(&store->writer, code, id, error);
  pthread_mutex_unlock(&store->writing);
  return code;
}

/* ---- items ---- */

/* Whether a row that waits has items of a conversation, or lines that a file is to get. */
static bool has_items_of(const stored_t *stored, const uint8_t owner[STORE_OWNER_BYTES],
                         const char *conversation) {
  if (memcmp(stored->owner, owner, STORE_OWNER_BYTES) != 0) return false;
  bool any = strcmp(stored->conversation, conversation) == 0;
  const stored_item_t *item = stored->state == STORED_BATCH_ENDED ? stored->items : NULL;
  for (; item != NULL && !any; item = item->next) any = strcmp(item->id, conversation) == 0;
  return any;
}

/* Waits until no item of this conversation is to be written. */
static stored_t wait_for(answer_store_t *store, const uint8_t owner[STORE_OWNER_BYTES],
                         const char *conversation) {
  stored_t wanted = {0};
  bool waits = true;
  snprintf(wanted.conversation, sizeof wanted.conversation, "%s", conversation);
  memcpy(wanted.owner, owner, STORE_OWNER_BYTES);
  pthread_mutex_lock(&store->lock);
  while (waits) {
    waits = false;
    for (const stored_t *s = store->first; s != NULL && !waits; s = s->next)
      waits = has_items_of(s, owner, conversation);
    if (waits) pthread_cond_wait(&store->done, &store->lock);
  }
  pthread_mutex_unlock(&store->lock);
  return wanted;
}

static int answer_item(const sql_t *sql, int code, const char *conversation, const char *id,
                       inferd_error_t *error) {
  if (code != SQL_NO_ITEM) return answer(sql, code, conversation, error);
  return error_set(error, ERR_NO_SUCH_OBJECT, NULL,
                   "Item with id '%.100s' not found in the conversation '%.100s'.", id,
                   conversation);
}

int store_items(answer_store_t *store, const uint8_t owner[STORE_OWNER_BYTES],
                const char *conversation, const store_page_t *page,
                bool (*visit)(void *context, const char *id, const char *body, size_t length),
                void *context, inferd_error_t *error) {
  stored_t wanted = wait_for(store, owner, conversation);
  pthread_mutex_lock(&store->reading);
  int code = sql_items(&store->reader, &wanted, oldest_kept(store), page, visit, context);
  code = answer(&store->reader, code, conversation, error);
  pthread_mutex_unlock(&store->reading);
  return code;
}

int store_item(answer_store_t *store, const uint8_t owner[STORE_OWNER_BYTES],
               const char *conversation, const char *id, buffer_t *out, inferd_error_t *error) {
  stored_t wanted = wait_for(store, owner, conversation);
  pthread_mutex_lock(&store->reading);
  int code = sql_item(&store->reader, &wanted, oldest_kept(store), id, out);
  code = answer_item(&store->reader, code, conversation, id, error);
  pthread_mutex_unlock(&store->reading);
  return code;
}

int store_remove_item(answer_store_t *store, const uint8_t owner[STORE_OWNER_BYTES],
                      const char *conversation, const char *id, inferd_error_t *error) {
  stored_t wanted = wait_for(store, owner, conversation);
  pthread_mutex_lock(&store->writing);
  int code = sql_begin(&store->writer);
  if (code == SQLITE_OK) code = sql_remove_item(&store->writer, &wanted, oldest_kept(store), id);
  if (code == SQLITE_OK) code = sql_commit(&store->writer);
  code = answer_item(&store->writer, code, conversation, id, error);
  sql_rollback(&store->writer);
  pthread_mutex_unlock(&store->writing);
  return code;
}

int store_lines(answer_store_t *store, const uint8_t owner[STORE_OWNER_BYTES], const char *batch,
                line_state_t state, const store_page_t *page,
                bool (*visit)(void *context, const char *id, const char *body, size_t length),
                void *context, inferd_error_t *error) {
  stored_t wanted = wait_for(store, owner, batch);
  pthread_mutex_lock(&store->reading);
  int code = sql_lines(&store->reader, &wanted, state, page, visit, context);
  code = answer(&store->reader, code, batch, error);
  pthread_mutex_unlock(&store->reading);
  return code;
}

void store_settle(answer_store_t *store, const uint8_t owner[STORE_OWNER_BYTES],
                  const char *conversation) {
  (void)wait_for(store, owner, conversation);
}

int store_count_lines(answer_store_t *store, const uint8_t owner[STORE_OWNER_BYTES],
                      const char *batch, line_counts_t *counts, inferd_error_t *error) {
  stored_t wanted = wait_for(store, owner, batch);
  *counts = (line_counts_t){0};
  pthread_mutex_lock(&store->reading);
  int code = answer(&store->reader, sql_count_lines(&store->reader, &wanted, counts), batch, error);
  pthread_mutex_unlock(&store->reading);
  return code;
}

int store_list(answer_store_t *store, const uint8_t owner[STORE_OWNER_BYTES], stored_state_t state,
               const store_page_t *page,
               bool (*visit)(void *context, const char *id, const char *body, size_t length),
               void *context, inferd_error_t *error) {
  stored_t wanted = {.state = state};
  memcpy(wanted.owner, owner, STORE_OWNER_BYTES);
  pthread_mutex_lock(&store->reading);
  int code = sql_list(&store->reader, &wanted, oldest_kept(store), page, visit, context);
  code = answer(&store->reader, code, "", error);
  pthread_mutex_unlock(&store->reading);
  return code;
}

int store_uses(answer_store_t *store, const uint8_t *owner, int64_t first, int64_t end,
               bool (*visit)(void *context, const stored_use_t *use), void *context,
               inferd_error_t *error) {
  pthread_mutex_lock(&store->reading);
  int code = sql_uses(&store->reader, owner, first, end, visit, context);
  code = answer(&store->reader, code, "", error);
  pthread_mutex_unlock(&store->reading);
  return code;
}

void store_problem(answer_store_t *store, char *out, size_t size) {
  pthread_mutex_lock(&store->lock);
  snprintf(out, size, "%s", store->problem);
  pthread_mutex_unlock(&store->lock);
}

void store_stats(answer_store_t *store, store_stats_t *out) {
  pthread_mutex_lock(&store->lock);
  *out = store->stats;
  pthread_mutex_unlock(&store->lock);
}
