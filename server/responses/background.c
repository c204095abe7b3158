/* background.c: answers that are made later, see background.h.
 *
 * Loop thread; what waits for the disk is a job of the lanes. A deferred_t is one answer, a run,
 * from its request to its end: accepted (its row is written), waiting, loading (its row is read),
 * running (an errand of /v1/responses), ending (events are left to print), failing (its row is
 * read once more), writing (the store has its answer, or has it again in a moment), over. Nothing
 * of a run is freed where its errand ends, because its completion may still be at work: turn()
 * does, in a turn of the loop of its own.
 */
#include "server/responses/background.h"

#include "engine/base/check.h"
#include "engine/base/clock.h"
#include "engine/base/hash.h"
#include "engine/base/util.h"
#include "server/completion/live.h"
#include "server/http/auth.h"
#include "server/http/errand.h"
#include "server/observe/log.h"
#include "server/responses/events.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct background background_t;

typedef enum run_state {
  RUN_ACCEPTED,
  RUN_WAITS,
  RUN_LOADS,
  RUN_RUNS,
  RUN_ENDS,
  RUN_FAILS,
  RUN_WRITES,
  RUN_OVER
} run_state_t;

typedef struct deferred {
  errand_t errand; /* first */
  struct run_job {
    lane_job_t job; /* first */
    struct deferred *run;
  } job;
  background_t *background;
  struct deferred *next;
  run_state_t state;
  bool working; /* the job has it, or the store */
  bool dropped; /* nobody wants it any more */
  uint8_t owner[STORE_OWNER_BYTES];
  char id[STORE_ID_BYTES];
  int64_t created;
  bool streams, has_more; /* has_more: the errand has events to print */
  uint64_t not_before_ns;
  stored_t *row;    /* to be written, or as it was read */
  charge_t charge;  /* of its request, until it is written */
  stored_t *result; /* the answer, until the store has it */
  int outcome;      /* of its write; the store sets it */
  bool is_late;     /* a write has failed */
  bool unread;      /* fail_run could not read its row, or copy it */
  events_t *events; /* of a stream */
  int code;         /* of the job, and of an answer that failed */
  inferd_error_t error;
  exchange_t *client; /* while it is accepted; NULL = it left */
  buffer_t reply;
} deferred_t;

struct background {
  server_t *server;
  deferred_t *first, **last;
  int32_t count, running;
  bool stopped;
  uv_idle_t idle; /* active while a turn has work */
};

static deferred_t *run_of(errand_t *errand) {
  return (deferred_t *)errand;
}

static void turn(uv_idle_t *idle);

/* Asks for a turn of the loop. */
static void stir(background_t *background) {
  if (!background->stopped) uv_idle_start(&background->idle, turn);
}

static bool is_of(const deferred_t *run, const uint8_t owner[STORE_OWNER_BYTES], const char *id) {
  return strcmp(run->id, id) == 0 && memcmp(run->owner, owner, STORE_OWNER_BYTES) == 0;
}

static deferred_t *find(const server_t *server, const uint8_t owner[STORE_OWNER_BYTES],
                        const char *id) {
  deferred_t *run = server->background != NULL ? server->background->first : NULL;
  while (run != NULL && (run->dropped || !is_of(run, owner, id))) run = run->next;
  return run;
}

/* ---- make and free ---- */

static deferred_t *run_new(background_t *background, const stored_t *stored) {
  deferred_t *run = calloc(1, sizeof *run);
  if (run == NULL) return NULL;
  run->background = background;
  run->job.run = run;
  memcpy(run->owner, stored->owner, STORE_OWNER_BYTES);
  snprintf(run->id, sizeof run->id, "%s", stored->id);
  run->created = stored->created;
  run->streams = stored->streams;
  return run;
}

/* What an attempt has made. */
static void run_clear(deferred_t *run) {
  errand_free(&run->errand);
  api_key_release(run->errand.public.key);
  run->errand = (errand_t){0};
  stored_free(run->row);
  stored_free(run->result);
  run->row = run->result = NULL;
  run->has_more = false;
}

static void run_free(deferred_t *run) {
  run_clear(run);
  if (run->events != NULL) events_end(run->events);
  events_release(run->events);
  buffer_free(&run->reply);
  free(run);
}

static void append(background_t *background, deferred_t *run) {
  run->next = NULL;
  *background->last = run;
  background->last = &run->next;
  background->count++;
}

/* Frees the runs that are over. */
static void reap(background_t *background) {
  deferred_t **link = &background->first;
  while (*link != NULL) {
    deferred_t *run = *link;
    if (run->state != RUN_OVER || run->working) {
      link = &run->next;
      continue;
    }
    *link = run->next;
    background->count--;
    run_free(run);
  }
  background->last = link;
}

static void submit(deferred_t *run, void (*work)(lane_job_t *), void (*done)(lane_job_t *)) {
  api_key_t *key = auth_find(run->background->server->auth, run->owner);
  run->working = true;
  run->job.job = (lane_job_t){
      .run = work, .done = done, .client = key != NULL ? key->tenant : 0, .kind = LANE_LIGHT};
  lanes_submit(run->background->server->lanes, &run->job.job);
}

static deferred_t *job_run(lane_job_t *job) {
  return ((struct run_job *)(void *)job)->run;
}

/* ---- the end of a run ---- */

void background_restate(stored_t *stored, const char *status, const inferd_error_t *error) {
  static const char old[] = "\"status\":\"queued\",\"background\":true,\"error\":null";
  const buffer_t *body = &stored->body; /* nothing of a client stands before the status */
  const char *at = body->length > 0 ? memmem(body->data, body->length, old, sizeof old - 1) : NULL;
  if (at == NULL) return;
  buffer_t fresh = {0};
  size_t before = (size_t)(at - body->data), behind = before + sizeof old - 1;
  buffer_append(&fresh, body->data, before);
  buffer_text(&fresh, "\"status\":\"");
  buffer_text(&fresh, status);
  buffer_text(&fresh, "\",\"background\":true,\"error\":");
  if (error != NULL)
    responses_print_error(&fresh, error);
  else
    buffer_text(&fresh, "null");
  buffer_append(&fresh, body->data + behind, body->length - behind);
  buffer_free(&stored->body);
  stored->body = fresh;
}

static void fail_run(lane_job_t *job) {
  deferred_t *run = job_run(job);
  answer_store_t *store = run->background->server->store;
  stored_t *stored = NULL;
  inferd_error_t error;
  run->unread = store_find(store, run->owner, run->id, false, &stored, &error) == ERR_STORE_FAILED;
  if (stored == NULL) return;
  background_restate(stored, "failed", &run->error);
  stored->state = STORED_BACKGROUND;
  stored->replaces = true;
  if (run->events != NULL)
    buffer_append(&stored->events, run->events->text.data, run->events->text.length);
  run->unread = stored_failed(stored);
  if (run->unread)
    stored_free(stored);
  else
    run->result = stored;
}

/* Gives the answer to the store; judge_writes has it back if it is not written. */
static void write_result(deferred_t *run) {
  if (run->events != NULL) events_end(run->events);
  run->state = RUN_WRITES;
  run->working = true;
  run->result->outcome = &run->outcome;
  (void)store_put(run->background->server->store, run->result);
}

static void wait_to_write(deferred_t *run) {
  store_retried(run->background->server->store);
  run->is_late = true;
  run->not_before_ns = clock_now_ns() + (uint64_t)BACKGROUND_WRITE_MS * 1000000;
}

static void fail(deferred_t *run);

/* Notes what was written. What was not is written again, until the server ends: then the next one
 * makes the answer again, because its row still says that it waits. */
static void judge_writes(background_t *background) {
  answer_store_t *store = background->server->store;
  uint64_t now_ns = clock_now_ns();
  for (deferred_t *run = background->first; run != NULL; run = run->next) {
    if (run->state != RUN_WRITES) continue;
    if (run->working) {
      int outcome = store_outcome(store, &run->outcome);
      if (outcome == 0) continue;
      run->working = false;
      if (outcome > 0) run->result = NULL;
      if (outcome > 0 || run->dropped)
        run->state = RUN_OVER;
      else
        wait_to_write(run);
    } else if (run->not_before_ns <= now_ns && run->result == NULL) {
      fail(run);
    } else if (run->not_before_ns <= now_ns) {
      write_result(run);
    }
  }
}

static void restated(lane_job_t *job) {
  deferred_t *run = job_run(job);
  run->working = false;
  if (run->dropped || (run->result == NULL && !run->unread)) {
    run->state = RUN_OVER;
  } else if (run->unread) {
    run->state = RUN_WRITES;
    wait_to_write(run);
  } else {
    write_result(run);
  }
  stir(run->background);
}

static void fail(deferred_t *run) {
  run->state = RUN_FAILS;
  submit(run, fail_run, restated);
}

/* Whether an answer that failed is made again. */
static bool runs_again(const deferred_t *run) {
  return errand_comes_again(error_http_status(run->code)) &&
         (run->events == NULL || run->events->text.length == 0);
}

static void end_run(deferred_t *run) {
  if (run->dropped || run->code == ERR_DRAINING) {
    run->state = RUN_OVER; /* its row says what it is */
  } else if (run->code != 0 && runs_again(run)) {
    int wait_s = MIN(run->errand.public.retry_after_s, BACKGROUND_AGAIN_S_MAX);
    run_clear(run);
    run->code = 0;
    run->not_before_ns = clock_now_ns() + (uint64_t)BACKGROUND_AGAIN_MS * 1000000 +
                         (uint64_t)MAX(wait_s - 1, 0) * 1000000000;
    run->state = RUN_WAITS;
  } else if (run->code != 0) {
    fail(run);
  } else {
    if (run->result != NULL && run->streams)
      buffer_append(&run->result->events, run->events->text.data, run->events->text.length);
    if (run->result != NULL && !stored_failed(run->result)) {
      write_result(run);
    } else {
      stored_free(run->result);
      run->result = NULL;
      run->code = error_set(&run->error, ERR_OVERLOADED, NULL, "Out of memory.");
      fail(run);
    }
  }
}

/* ---- the errand ---- */

static void on_ended(errand_t *errand, const inferd_error_t *error) {
  deferred_t *run = run_of(errand);
  if (error != NULL) background_fail(&errand->public, error);
  CHECK(run->state == RUN_RUNS);
  run->state = RUN_ENDS;
  run->background->running--;
  stir(run->background);
}

static bool on_wrote(errand_t *errand, const char *bytes, size_t length) {
  deferred_t *run = run_of(errand);
  if (events_add(run->events, bytes, length)) return true;
  stir(run->background);
  return false;
}

static void on_prints(errand_t *errand) {
  deferred_t *run = run_of(errand);
  run->has_more = true;
  stir(run->background);
}

int64_t background_created(const exchange_t *exchange) {
  return ((const deferred_t *)(const void *)exchange)->created;
}

void background_fail(exchange_t *exchange, const inferd_error_t *error) {
  deferred_t *run = (deferred_t *)(void *)exchange;
  run->code = error->code;
  run->error = *error;
}

void background_put(exchange_t *exchange, stored_t *stored) {
  deferred_t *run = (deferred_t *)(void *)exchange;
  buffer_free(&stored->input);
  stored->input = run->row->input; /* with the ids that were listed before */
  run->row->input = (buffer_t){0};
  stored->state = STORED_BACKGROUND;
  stored->replaces = true;
  stored->streams = run->streams;
  run->result = stored;
}

/* Prints events that are left. A run for which memory is short fails. */
static void print_events(deferred_t *run) {
  errand_t *errand = &run->errand;
  buffer_t piece = {0};
  bool failed = errand->overflowed;
  if (!failed && errand->pieces.print != NULL) {
    run->has_more = errand->pieces.print(errand->pieces.owner, &piece, BACKGROUND_TURN_BYTES);
    failed = piece.failed || !events_add(run->events, piece.data, piece.length);
    buffer_free(&piece);
  } else {
    run->has_more = false;
  }
  if (!failed) return;
  run->has_more = false;
  run->code = error_set(&run->error, ERR_OVERLOADED, NULL,
                        "The events of this response do not fit into memory.");
  if (run->state != RUN_RUNS) return;
  errand_stop(errand, "no_memory");
  run->state = RUN_ENDS;
  run->background->running--;
}

/* ---- the start ---- */

static int find_key(const deferred_t *run, api_key_t **key, inferd_error_t *error) {
  static const uint8_t nobody[STORE_OWNER_BYTES];
  const auth_t *auth = run->background->server->auth;
  bool is_open = auth_key_count(auth) == 0 && memcmp(run->owner, nobody, STORE_OWNER_BYTES) == 0;
  *key = auth_find(auth, run->owner);
  if (*key != NULL || is_open) return 0;
  return error_set(error, ERR_INVALID_VALUE, NULL,
                   "The API key that asked for this response is not known any more.");
}

static void start(deferred_t *run) {
  static const char nobody[] = "background";
  background_t *background = run->background;
  errand_t *errand = &run->errand;
  exchange_t *public = &errand->public;
  api_key_t *key = NULL;
  run->code = find_key(run, &key, &run->error);
  uint64_t source =
      key != NULL ? key->tenant : hash_bytes((const uint8_t *)nobody, sizeof nobody - 1);
  buffer_t *request = &run->row->request;
  errand->body = (held_t){.bytes = request->data,
                          .length = request->length,
                          .charge = charge_open(background->server->ledger, source, LEDGER_body)};
  size_t bytes = request->capacity;
  *request = (buffer_t){0};
  if (run->code == 0 && !charge_resize(&errand->body.charge, bytes))
    run->code = ledger_refuse(&errand->body.charge, &run->error);
  if (run->code != 0) {
    end_run(run);
    stir(background);
    return;
  }
  *public = (exchange_t){.server = background->server,
                         .method = "POST",
                         .path_tail = "",
                         .body = "",
                         .arrival_ns = clock_now_ns(),
                         .tenant = key != NULL ? key->tenant : 0,
                         .key = api_key_use(key),
                         .source = source,
                         .is_errand = true,
                         .seed = hash_bytes((const uint8_t *)run->id, strlen(run->id)) | 1};
  snprintf(public->request_id, sizeof public->request_id, "%.*s", REQUEST_ID_MAX, run->id);
  errand->wrote = on_wrote;
  errand->prints = on_prints;
  errand->ended = on_ended;
  run->state = RUN_RUNS;
  background->running++;
  completion_start(public, &responses_background);
}

static void load_run(lane_job_t *job) {
  deferred_t *run = job_run(job);
  run->code =
      store_find(run->background->server->store, run->owner, run->id, true, &run->row, &run->error);
  if (run->code != 0) return;
  buffer_t *request = &run->row->request;
  buffer_char(request, '\0');
  if (request->failed)
    run->code = error_set(&run->error, ERR_OVERLOADED, NULL, "Out of memory.");
  else
    request->length--;
}

static void loaded(lane_job_t *job) {
  deferred_t *run = job_run(job);
  background_t *background = run->background;
  run->working = false;
  bool is_gone =
      run->code == ERR_NOT_STORED || (run->code == 0 && run->row->state != STORED_WAITING);
  if (run->dropped || is_gone) {
    run->state = RUN_OVER;
  } else if (background->stopped || background->server->phase >= SERVER_DRAINING) {
    run_clear(run);
    run->state = RUN_WAITS;
  } else if (run->code != 0) {
    end_run(run);
  } else {
    start(run);
  }
  stir(background);
}

/* Whether it counts as one that the engine has. Answers that cannot be written count too: while a
 * disk is full no more of them are made than fit into memory. */
static bool is_busy(const deferred_t *run) {
  return run->state == RUN_LOADS || run->state == RUN_RUNS ||
         (run->state == RUN_WRITES && run->is_late);
}

static bool has_ended(const deferred_t *run) {
  return run->state == RUN_OVER || (run->state == RUN_WRITES && !run->is_late);
}

/* Of the runs of this owner: those that the engine has. */
static int32_t running_of(const background_t *background, const deferred_t *one) {
  int32_t count = 0;
  for (const deferred_t *run = background->first; run != NULL; run = run->next) {
    count += is_busy(run) && memcmp(run->owner, one->owner, STORE_OWNER_BYTES) == 0;
  }
  return count;
}

/* Begins what may run, the oldest first. */
static void begin(background_t *background) {
  const server_t *server = background->server;
  uint64_t now_ns = clock_now_ns();
  int32_t busy = 0;
  if (background->stopped || server->phase >= SERVER_DRAINING) return;
  if (server->engine == NULL || engine_state(server->engine) != ENGINE_READY) return;
  for (const deferred_t *run = background->first; run != NULL; run = run->next)
    busy += is_busy(run);
  for (deferred_t *run = background->first; run != NULL && busy < BACKGROUND_RUNNING;
       run = run->next) {
    if (run->state != RUN_WAITS || run->not_before_ns > now_ns) continue;
    if (running_of(background, run) >= BACKGROUND_RUNNING_EACH) continue;
    run->state = RUN_LOADS;
    busy++;
    submit(run, load_run, loaded);
  }
}

static void turn(uv_idle_t *idle) {
  background_t *background = idle->data;
  completions_t *live = background->server->live;
  bool more = false;
  uv_idle_stop(idle); /* what happens below may start it again */
  completions_enter(live);
  for (deferred_t *run = background->first; run != NULL; run = run->next) {
    bool is_errand = run->state == RUN_RUNS || run->state == RUN_ENDS;
    if (is_errand && (run->has_more || run->errand.overflowed)) print_events(run);
    more = more || run->has_more;
    if (run->state == RUN_ENDS && !run->has_more) end_run(run);
  }
  judge_writes(background);
  reap(background);
  begin(background);
  completions_leave(live);
  if (more) stir(background);
}

/* ---- a request ---- */

static void write_row(lane_job_t *job) {
  deferred_t *run = job_run(job);
  stored_t *row = run->row;
  run->row = NULL;
  run->code = store_put_and_wait(run->background->server->store, row, &run->error);
}

static void accepted(lane_job_t *job) {
  deferred_t *run = job_run(job);
  exchange_t *client = run->client;
  run->working = false;
  run->client = NULL;
  charge_drop(&run->charge);
  run->state = run->code == 0 && !run->dropped ? RUN_WAITS : RUN_OVER;
  if (client != NULL && run->code != 0) {
    exchange_error(client, &run->error);
  } else if (client != NULL && run->streams) {
    events_follow(run->events, client, -1);
  } else if (client != NULL) {
    size_t length = 0;
    char *body = buffer_detach(&run->reply, &length);
    exchange_reply(client, 200, "application/json", body, length);
  }
  stir(run->background);
}

static void client_gone(exchange_t *exchange, const char *cause) {
  (void)cause;
  ((deferred_t *)exchange->user)->client = NULL;
}

static int check_room(const background_t *background, const uint8_t owner[STORE_OWNER_BYTES],
                      inferd_error_t *error) {
  int32_t count = 0;
  for (const deferred_t *run = background->first; run != NULL; run = run->next)
    count += !has_ended(run) && memcmp(run->owner, owner, STORE_OWNER_BYTES) == 0;
  if (count < BACKGROUND_EACH_MAX && background->count < BACKGROUND_MAX) return 0;
  return error_set(error, ERR_QUEUE_FULL, "background",
                   "%d responses with 'background' have not ended, of this API key %d: at most %d "
                   "may wait, %d of a key.",
                   background->count, count, BACKGROUND_MAX, BACKGROUND_EACH_MAX);
}

/* The row of a request, with its queued answer. */
static int fill_row(completion_t *completion, stored_t *row, inferd_error_t *error) {
  responses_answer_t *response = completion->dialect_state;
  held_t *body = &response->request;
  cord_t reply = {.flat = true};
  int code = check_room(completion->server->background, row->owner, error);
  if (code != 0) return code;
  if (!completion->dialect->prepare(completion))
    return error_set(error, ERR_INTERNAL, NULL, "Out of memory.");
  responses_print(&reply, completion, RESPONSE_QUEUED, NULL);
  row->body = reply.own;
  row->input = response->input;
  response->input = (buffer_t){0};
  row->request = (buffer_t){.data = body->bytes, .length = body->length, .capacity = body->length};
  body->bytes = NULL;
  row->created = completion->created;
  row->state = STORED_WAITING;
  row->streams = completion->params.stream;
  snprintf(row->id, sizeof row->id, "%s", response->id);
  snprintf(row->previous, sizeof row->previous, "%s", response->previous);
  snprintf(row->conversation, sizeof row->conversation, "%s", response->conversation);
  return stored_failed(row) ? error_set(error, ERR_INTERNAL, NULL, "Out of memory.") : 0;
}

void background_take(completion_t *completion) {
  background_t *background = completion->server->background;
  stored_t *row = calloc(1, sizeof *row);
  inferd_error_t error;
  deferred_t *run = NULL;
  int code = row != NULL ? 0 : error_set(&error, ERR_INTERNAL, NULL, "Out of memory.");
  if (row != NULL && completion->key != NULL)
    memcpy(row->owner, completion->key->digest, STORE_OWNER_BYTES);
  if (code == 0) code = fill_row(completion, row, &error);
  if (code == 0) run = run_new(background, row);
  if (run != NULL && run->streams)
    run->events = events_new(completion->server->ledger, completion->source);
  if (run != NULL) buffer_append(&run->reply, row->body.data, row->body.length);
  if (code == 0 && (run == NULL || run->reply.failed || (run->streams && run->events == NULL)))
    code = error_set(&error, ERR_INTERNAL, NULL, "Out of memory.");
  if (code != 0) {
    stored_free(row);
    if (run != NULL) run_free(run);
    completion_fail(completion, &error);
    return;
  }
  exchange_t *client = completion_take_exchange(completion);
  client->user = run;
  client->on_gone = client_gone;
  client->on_abort = NULL;
  run->client = client;
  run->row = row;
  run->charge = charge_move(&((responses_answer_t *)completion->dialect_state)->request.charge);
  append(background, run);
  submit(run, write_row, accepted);
  completion_release(completion);
}

/* ---- what others ask ---- */

background_state_t background_state(const server_t *server, const uint8_t owner[STORE_OWNER_BYTES],
                                    const char *id) {
  const deferred_t *run = find(server, owner, id);
  if (run == NULL) return BACKGROUND_NONE;
  return run->state >= RUN_RUNS && run->state < RUN_OVER ? BACKGROUND_RUNS : BACKGROUND_WAITS;
}

events_t *background_events(const server_t *server, const uint8_t owner[STORE_OWNER_BYTES],
                            const char *id) {
  deferred_t *run = find(server, owner, id);
  return run != NULL && run->state != RUN_OVER ? run->events : NULL;
}

bool background_drop(server_t *server, const uint8_t owner[STORE_OWNER_BYTES], const char *id,
                     bool removed, stored_t *row) {
  deferred_t *run = find(server, owner, id);
  if (run == NULL || (run->state == RUN_WRITES && run->working && !removed)) return false;
  *row = (stored_t){.created = run->created, .state = STORED_WAITING, .streams = run->streams};
  memcpy(row->owner, run->owner, STORE_OWNER_BYTES);
  snprintf(row->id, sizeof row->id, "%s", run->id);
  run->dropped = true;
  if (run->state == RUN_RUNS) {
    errand_stop(&run->errand, "cancelled");
    run->background->running--;
  }
  if (!run->working) run->state = RUN_OVER;
  stir(run->background);
  return true;
}

void background_counts(const server_t *server, int32_t *waiting, int32_t *running) {
  const background_t *background = server->background;
  *running = *waiting = 0;
  if (background == NULL) return;
  *running = background->running;
  *waiting = background->count - background->running;
}

/* ---- the life of the server ---- */

static void take_waiting(void *context, const stored_t *stored) {
  background_t *background = context;
  if (stored->state != STORED_WAITING) return;
  deferred_t *run = run_new(background, stored);
  const api_key_t *key = auth_find(background->server->auth, stored->owner);
  if (run != NULL && run->streams)
    run->events = events_new(background->server->ledger, key != NULL ? key->tenant : 0);
  if (run == NULL || (run->streams && run->events == NULL)) {
    if (run != NULL) run_free(run);
    return; /* the next start finds it */
  }
  run->state = RUN_WAITS;
  append(background, run);
}

void background_again(server_t *server, const stored_t *row) {
  take_waiting(server->background, row);
  stir(server->background);
}

int background_new(server_t *server, inferd_error_t *error) {
  if (server->store == NULL) return 0;
  background_t *background = calloc(1, sizeof *background);
  if (background == NULL) return error_set(error, ERR_NO_MEMORY, NULL, "no memory for the server");
  background->server = server;
  background->last = &background->first;
  uv_idle_init(server->loop, &background->idle);
  background->idle.data = background;
  server->background = background;
  int code = store_waiting(server->store, take_waiting, background, error);
  if (background->count > 0)
    log_line(LOG_INFO, "start", "%d responses with background run again", background->count);
  return code;
}

void background_start(server_t *server) {
  if (server->background != NULL) stir(server->background);
}

void background_tick(server_t *server) {
  if (server->background != NULL && server->background->count > 0) stir(server->background);
}

void background_stop(server_t *server) {
  background_t *background = server->background;
  if (background == NULL) return;
  background->stopped = true;
  completions_enter(server->live);
  for (deferred_t *run = background->first; run != NULL; run = run->next) {
    if (run->state != RUN_RUNS) continue;
    errand_stop(&run->errand, "shutdown");
    run->state = RUN_OVER;
  }
  completions_leave(server->live);
  uv_close((uv_handle_t *)&background->idle, NULL);
}

void background_free(server_t *server) {
  background_t *background = server->background;
  if (background == NULL) return;
  for (deferred_t *run = background->first, *next; run != NULL; run = next) {
    next = run->next;
    bool is_written = run->state == RUN_WRITES && run->working && run->outcome > 0;
    if (is_written) run->result = NULL; /* the store has ended, so nobody sets it */
    run_free(run);
  }
  free(background);
  server->background = NULL;
}
