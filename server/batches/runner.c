/* runner.c: runs the lines of batches, see runner.h.
 *
 * Loop thread; what waits for the disk is a job of the lanes. A run is a batch that has not ended.
 * Its lines are read some at a time; each becomes an errand, and its answer a row in the place of
 * the line, which the store writes once. So after a kill those that were in flight run again, and
 * none is twice in the output.
 */
#include "server/batches/runner.h"
#include "server/batches/line.h"

#include "engine/base/check.h"
#include "engine/base/clock.h"
#include "engine/base/hash.h"
#include "engine/base/util.h"
#include "server/completion/live.h"
#include "server/http/auth.h"
#include "server/http/errand.h"
#include "server/keys/api_key.h"
#include "server/lanes/lanes.h"
#include "server/observe/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct batch_run {
  struct run_job {
    lane_job_t job; /* first */
    struct batch_run *run;
  } job;
  struct runner *runner;
  struct batch_run *next;
  bulk_t batch;
  line_t *first, **last;                /* in flight, or read and queued */
  int32_t count;                        /* of these */
  bool active, has_more, working, over; /* has_more: lines are left to read */
  bool ends;                            /* the job ends it */
  bool rereads;                         /* from the first line that waits */
  uint64_t not_before_ns;
  /* of the job */
  char read[STORE_ID_BYTES]; /* the last line that was read */
  size_t read_bytes;
  line_t *fetched, **fetched_last;
  bool knows; /* the counts */
  line_counts_t counts;
  bulk_t done; /* the batch as it ends; what it holds is that of `batch` */
  int code;
} batch_run_t;

typedef struct runner {
  server_t *server;
  batch_run_t *first, **last;
  int32_t in_flight;
  bool stopped;
  runner_counts_t counts; /* those since start */
  uv_idle_t idle;         /* active while a turn has work */
} runner_t;

static void turn(uv_idle_t *idle);

static void stir(runner_t *runner) {
  if (!runner->stopped) uv_idle_start(&runner->idle, turn);
}

static uint64_t later_ns(void) {
  return clock_now_ns() + (uint64_t)RUNNER_AGAIN_MS * 1000000;
}

static api_key_t *key_of(const batch_run_t *run) {
  return auth_find(run->runner->server->auth, run->batch.owner);
}

/* Whose turns its lines use: not those of the key's own requests. */
static uint64_t source_of(const batch_run_t *run) {
  uint8_t text[STORE_OWNER_BYTES + 1];
  memcpy(text, run->batch.owner, STORE_OWNER_BYTES);
  text[STORE_OWNER_BYTES] = 'b';
  return hash_bytes(text, sizeof text) | 1;
}

static void submit(batch_run_t *run, void (*work)(lane_job_t *), void (*done)(lane_job_t *)) {
  run->working = true;
  run->job.job =
      (lane_job_t){.run = work, .done = done, .client = source_of(run), .kind = LANE_LIGHT};
  lanes_submit(run->runner->server->lanes, &run->job.job);
}

static batch_run_t *run_of(lane_job_t *job) {
  return ((struct run_job *)(void *)job)->run;
}

/* ---- make and free ---- */

static void free_lines(line_t **first) {
  for (line_t *line = *first, *next; line != NULL; line = next) {
    next = line->next;
    line_free(line);
  }
  *first = NULL;
}

static void run_free(batch_run_t *run) {
  free_lines(&run->first);
  free_lines(&run->fetched);
  bulk_free(&run->batch);
  free(run);
}

static void reap_lines(batch_run_t *run) {
  line_t **link = &run->first;
  while (*link != NULL) {
    line_t *line = *link;
    if (line->step != LINE_OVER) {
      link = &line->next;
      continue;
    }
    *link = line->next;
    run->count--;
    line_free(line);
  }
  run->last = link;
}

static void reap(runner_t *runner) {
  batch_run_t **link = &runner->first;
  while (*link != NULL) {
    batch_run_t *run = *link;
    reap_lines(run);
    if (!run->over || run->working || run->count > 0) {
      link = &run->next;
      continue;
    }
    *link = run->next;
    run_free(run);
  }
  runner->last = link;
}

/* ---- lines are read ---- */

static void on_left(line_t *line);
static void on_over(line_t *line, line_state_t state);

static bool take_line(void *context, const char *id, const char *body, size_t length) {
  batch_run_t *run = context;
  line_t *line = line_read(id, body, length);
  if (line == NULL) { /* lines were checked before */
    run->code = ERR_OVERLOADED;
    return false;
  }
  line->owner = run;
  line->left = on_left;
  line->ended = on_over;
  *run->fetched_last = line;
  run->fetched_last = &line->next;
  snprintf(run->read, sizeof run->read, "%s", id);
  run->read_bytes += length;
  return run->read_bytes < RUNNER_FETCH_BYTES;
}

static void read_lines(lane_job_t *job) {
  batch_run_t *run = run_of(job);
  answer_store_t *store = run->runner->server->store;
  const bulk_t *batch = &run->batch; /* its owner and id, which nobody changes */
  store_page_t page = {.limit = RUNNER_FETCH_LINES};
  inferd_error_t why;
  run->code = 0;
  run->read_bytes = 0;
  run->fetched_last = &run->fetched;
  snprintf(page.after, sizeof page.after, "%s", run->read);
  if (!run->knows) {
    run->code = store_count_lines(store, batch->owner, batch->id, &run->counts, &why);
    if (run->code != 0) return;
  }
  int code = store_lines(store, batch->owner, batch->id, LINE_WAITS, &page, take_line, run, &why);
  if (run->code == 0) run->code = code;
}

static void lines_read(lane_job_t *job) {
  batch_run_t *run = run_of(job);
  run->working = false;
  if (run->code != 0) run->not_before_ns = later_ns();
  if (run->code == 0 && !run->knows) {
    run->batch.completed = run->counts.lines[LINE_ANSWERED];
    run->batch.failed = run->counts.lines[LINE_FAILED];
    run->knows = true;
  }
  if (run->batch.status != BATCH_IN_PROGRESS) {
    free_lines(&run->fetched);
  } else {
    run->has_more = run->code != 0 || run->fetched != NULL;
    *run->last = run->fetched;
    run->fetched = NULL;
    for (; *run->last != NULL; run->last = &(*run->last)->next) run->count++;
  }
  stir(run->runner);
}

/* ---- a line ---- */

/* A row without a body, of what belongs to a batch. */
static stored_t *part_of(const bulk_t *batch, stored_state_t state) {
  stored_t *row = calloc(1, sizeof *row);
  if (row == NULL) return NULL;
  memcpy(row->owner, batch->owner, STORE_OWNER_BYTES);
  snprintf(row->conversation, sizeof row->conversation, "%s", batch->id);
  row->state = state;
  return row;
}

/* Puts what became of a line in its place. */
static void on_over(line_t *line, line_state_t state) {
  batch_run_t *run = line->owner;
  stored_t *row = part_of(&run->batch, STORED_LINES);
  stored_item_t *item = calloc(1, sizeof *item);
  stir(run->runner);
  if (row == NULL || item == NULL) {
    free(row);
    free(item);
    return; /* the end of the batch finds it */
  }
  row->items = item;
  snprintf(item->id, sizeof item->id, "%s", line->id);
  item->state = state;
  bulk_print_result(&item->body, run->batch.id, line->id, &line->custom_id, line->status,
                    &line->answer, NULL, NULL);
  bool good = !stored_failed(row);
  if (good)
    good = store_put(run->runner->server->store, row);
  else
    stored_free(row);
  if (!good) return;
  bool answered = state == LINE_ANSWERED;
  *(answered ? &run->batch.completed : &run->batch.failed) += 1;
  *(answered ? &run->runner->counts.answered : &run->runner->counts.failed) += 1;
}

static void on_left(line_t *line) {
  runner_t *runner = ((batch_run_t *)line->owner)->runner;
  runner->in_flight--;
  stir(runner);
}

static void start(line_t *line) {
  batch_run_t *run = line->owner;
  runner_t *runner = run->runner;
  const line_client_t client = {.server = runner->server,
                                .batch = run->batch.id,
                                .key = key_of(run),
                                .source = source_of(run)};
  runner->in_flight++;
  line_start(line, &client);
  if (line->step == LINE_QUEUED) runner->in_flight--; /* later */
}

static void stop_lines(batch_run_t *run, const char *cause) {
  for (line_t *line = run->first; line != NULL; line = line->next) line_stop(line, cause);
}

/* ---- the end of a batch ---- */

typedef struct expiring {
  const bulk_t *batch;
  stored_item_t **link;
  size_t bytes;
  bool failed;
} expiring_t;

/* A line that was not run, as what is told of it. */
static bool expire_line(void *context, const char *id, const char *body, size_t length) {
  expiring_t *expiring = context;
  bulk_line_text_t text;
  inferd_error_t why;
  buffer_t custom_id = {0};
  stored_item_t *item = calloc(1, sizeof *item);
  expiring->failed = item == NULL;
  if (item == NULL) return false;
  *expiring->link = item;
  expiring->link = &item->next;
  snprintf(item->id, sizeof item->id, "%s", id);
  item->state = LINE_FAILED;
  bool good = bulk_line_read(body, length, &text, &why) == 0; /* it was when it came */
  if (good) json_print(&custom_id, text.custom_id);
  if (good) json_free(text.doc);
  if (!good) buffer_text(&custom_id, "null");
  bulk_print_result(&item->body, expiring->batch->id, id, &custom_id, 0, NULL, "batch_expired",
                    "The batch expired before this line was run.");
  expiring->failed = custom_id.failed;
  buffer_free(&custom_id);
  expiring->bytes += length;
  return !expiring->failed && expiring->bytes < RUNNER_FETCH_BYTES;
}

/* Writes a row, which it takes. */
static int write_row(const batch_run_t *run, stored_t *row) {
  inferd_error_t why;
  if (row != NULL && !stored_failed(row))
    return store_put_and_wait(run->runner->server->store, row, &why);
  stored_free(row);
  return ERR_OVERLOADED;
}

/* Makes errors of the lines that wait, some at a time. */
static int expire_lines(const batch_run_t *run) {
  const bulk_t *batch = &run->done;
  const store_page_t page = {.limit = RUNNER_FETCH_LINES};
  int code = 0;
  bool any = true;
  while (code == 0 && any) {
    stored_t *row = part_of(batch, STORED_LINES);
    if (row == NULL) return ERR_OVERLOADED;
    expiring_t expiring = {.batch = batch, .link = &row->items};
    inferd_error_t why;
    code = store_lines(run->runner->server->store, batch->owner, batch->id, LINE_WAITS, &page,
                       expire_line, &expiring, &why);
    any = row->items != NULL;
    if (code == 0 && expiring.failed) code = ERR_OVERLOADED;
    if (code == 0 && any)
      code = write_row(run, row);
    else
      stored_free(row);
  }
  return code;
}

/* Writes the row of an output, which gets its lines when the batch ends. A batch that ends twice,
 * because of a kill in between, writes the same. */
static int write_file(const batch_run_t *run, bool errors, int64_t bytes) {
  char name[STORE_ID_BYTES + 32];
  stored_t *row = part_of(&run->done, STORED_FILE);
  if (row == NULL) return ERR_OVERLOADED;
  row->conversation[0] = '\0';
  bulk_file_id(&run->done, errors, row->id);
  row->created = (int64_t)time(NULL);
  snprintf(name, sizeof name, "%s_%s.jsonl", run->done.id, errors ? "error" : "output");
  file_print(&row->body, row->id, bytes, row->created, name, "batch_output");
  return write_row(run, row);
}

static stored_t *row_of(const bulk_t *batch, stored_state_t state) {
  stored_t *row = part_of(batch, state);
  if (row == NULL) return NULL;
  snprintf(row->id, sizeof row->id, "%s", batch->id);
  row->created = batch->created;
  row->replaces = true;
  bulk_print(&row->body, batch);
  return row;
}

/* Hands the lines in this state to a file, once the row of the batch is written. */
static int give_lines(stored_t *row, const bulk_t *batch, bool errors) {
  stored_item_t *item = calloc(1, sizeof *item);
  if (item == NULL) return ERR_OVERLOADED;
  bulk_file_id(batch, errors, item->id);
  item->state = errors ? LINE_FAILED : LINE_ANSWERED;
  item->next = row->items;
  row->items = item;
  return 0;
}

static int write_end(batch_run_t *run) {
  bulk_t *batch = &run->done;
  if (batch->status == BATCH_IN_PROGRESS) batch->status = BATCH_COMPLETED;
  if (batch->status == BATCH_CANCELLING) batch->status = BATCH_CANCELLED;
  batch->times[batch->status] = (int64_t)time(NULL);
  stored_t *row = row_of(batch, STORED_BATCH_ENDED);
  int code = row == NULL ? ERR_OVERLOADED : 0;
  if (code == 0 && batch->has_output) code = give_lines(row, batch, false);
  if (code == 0 && batch->has_errors) code = give_lines(row, batch, true);
  if (code == 0) return write_row(run, row);
  stored_free(row);
  return code;
}

static void end_batch(lane_job_t *job) {
  batch_run_t *run = run_of(job);
  bulk_t *batch = &run->done;
  answer_store_t *store = run->runner->server->store;
  line_counts_t counts;
  inferd_error_t why;
  stored_t *found = NULL;
  run->code = store_find(store, batch->owner, batch->id, false, &found, &why);
  bool ended = found != NULL && found->state != STORED_BATCH; /* by another process */
  stored_free(found);
  if (run->code != 0 || ended) return;
  if (batch->status == BATCH_EXPIRED) run->code = expire_lines(run);
  if (run->code == 0) run->code = store_count_lines(store, batch->owner, batch->id, &counts, &why);
  if (run->code != 0) return;
  if (counts.lines[LINE_WAITS] > 0 && batch->status == BATCH_IN_PROGRESS) {
    run->rereads = true; /* some answer was not written */
    run->code = ERR_OVERLOADED;
    return;
  }
  batch->completed = counts.lines[LINE_ANSWERED];
  batch->failed = counts.lines[LINE_FAILED];
  batch->has_output = batch->completed > 0;
  batch->has_errors = batch->failed > 0;
  if (batch->has_output) run->code = write_file(run, false, counts.bytes[LINE_ANSWERED]);
  if (run->code == 0 && batch->has_errors)
    run->code = write_file(run, true, counts.bytes[LINE_FAILED]);
  if (run->code == 0) run->code = write_end(run);
}

static void batch_ended(lane_job_t *job) {
  batch_run_t *run = run_of(job);
  run->working = run->ends = false;
  run->over = run->code == 0 || run->code == ERR_NO_SUCH_OBJECT;
  if (!run->over) run->not_before_ns = later_ns();
  if (run->rereads) {
    run->rereads = run->knows = false;
    run->has_more = true;
    run->read[0] = '\0';
  }
  stir(run->runner);
}

/* Ends what is in flight of a batch that is not to go on. */
static void leave(batch_run_t *run, bulk_status_t status) {
  run->batch.status = status;
  run->batch.times[status] = (int64_t)time(NULL);
  run->has_more = false;
  stop_lines(run, status == BATCH_EXPIRED ? "expired" : "cancelled");
}

/* ---- the turns ---- */

static line_t *next_line(batch_run_t *run, uint64_t now_ns) {
  line_t *line = run->first;
  while (line != NULL && (line->step != LINE_QUEUED || line->not_before_ns > now_ns))
    line = line->next;
  return line;
}

/* Starts lines, one of each batch in turn, as many as the engine runs at once. */
static void start_lines(runner_t *runner) {
  const server_t *server = runner->server;
  const int32_t most =
      server->models != NULL ? RUNNER_LINES_SEVERAL : engine_info(server->engine)->max_num_seqs;
  uint64_t now_ns = clock_now_ns();
  bool any = true;
  while (any && runner->in_flight < most) {
    any = false;
    for (batch_run_t *run = runner->first; run != NULL && runner->in_flight < most;
         run = run->next) {
      line_t *line = next_line(run, now_ns);
      if (line == NULL || run->batch.status != BATCH_IN_PROGRESS) continue;
      start(line);
      any = true;
    }
  }
}

/* Takes a run further: reads lines, notes that it expires, ends it. */
static void advance(batch_run_t *run) {
  static const uint8_t nobody[STORE_OWNER_BYTES];
  const server_t *server = run->runner->server;
  bulk_t *batch = &run->batch;
  if (run->working || run->over || run->not_before_ns > clock_now_ns()) return;
  bool is_open =
      auth_key_count(server->auth) == 0 && memcmp(batch->owner, nobody, sizeof nobody) == 0;
  if (batch->status == BATCH_IN_PROGRESS && !is_open && key_of(run) == NULL) {
    snprintf(batch->problem, sizeof batch->problem, "%s",
             "The API key that made this batch is not known any more.");
    leave(run, BATCH_FAILED);
  } else if (batch->status == BATCH_IN_PROGRESS && (int64_t)time(NULL) >= batch->expires) {
    leave(run, BATCH_EXPIRED);
  }
  int32_t queued = 0;
  for (const line_t *line = run->first; line != NULL; line = line->next)
    queued += line->step == LINE_QUEUED;
  if (run->has_more && queued < RUNNER_FETCH_LINES / 2) {
    submit(run, read_lines, lines_read);
  } else if (!run->has_more && run->count == 0) {
    run->done = run->batch;
    run->ends = true;
    submit(run, end_batch, batch_ended);
  }
}

/* Takes the oldest batches of each key further, some of all keys: those have lines in memory. */
static void advance_runs(runner_t *runner) {
  int32_t active = 0;
  for (const batch_run_t *run = runner->first; run != NULL; run = run->next) active += run->active;
  for (batch_run_t *run = runner->first; run != NULL; run = run->next) {
    int32_t same = 0;
    if (!run->active && active >= RUNNER_BATCHES) continue;
    for (const batch_run_t *other = runner->first; other != run && !run->active;
         other = other->next)
      same += other->active && memcmp(other->batch.owner, run->batch.owner, STORE_OWNER_BYTES) == 0;
    if (same >= RUNNER_BATCHES_EACH) continue;
    active += !run->active;
    run->active = true;
    advance(run);
  }
}

static bool print_answers(batch_run_t *run) {
  bool more = false;
  for (line_t *line = run->first; line != NULL; line = line->next) {
    if (line->step != LINE_PRINTS) continue;
    more = line_print(line) || more;
    run->runner->counts.again += line->step == LINE_QUEUED;
  }
  return more;
}

/* With several models a line waits for its own. */
static bool can_answer(const server_t *server) {
  return server->models != NULL ||
         (server->engine != NULL && engine_state(server->engine) == ENGINE_READY);
}

static void turn(uv_idle_t *idle) {
  runner_t *runner = idle->data;
  const server_t *server = runner->server;
  bool more = false;
  uv_idle_stop(idle); /* what happens below may start it again */
  completions_enter(server->live);
  for (batch_run_t *run = runner->first; run != NULL; run = run->next) {
    more = print_answers(run) || more;
  }
  reap(runner);
  if (!runner->stopped && server->phase < SERVER_DRAINING && can_answer(server)) {
    advance_runs(runner);
    start_lines(runner);
  }
  completions_leave(server->live);
  if (more) stir(runner);
}

/* ---- what others ask ---- */

static void add(runner_t *runner, bulk_t *batch) {
  batch_run_t *run = calloc(1, sizeof *run);
  if (run == NULL) { /* the next start finds it */
    bulk_free(batch);
    return;
  }
  run->job.run = run;
  run->runner = runner;
  run->batch = *batch;
  *batch = (bulk_t){0};
  run->last = &run->first;
  run->has_more = run->batch.status == BATCH_IN_PROGRESS;
  *runner->last = run;
  runner->last = &run->next;
  stir(runner);
}

int runner_room(const server_t *server, const uint8_t owner[STORE_OWNER_BYTES],
                inferd_error_t *error) {
  int32_t all = 0, own = 0;
  for (const batch_run_t *run = server->runner->first; run != NULL; run = run->next) {
    all += !run->over;
    own += !run->over && memcmp(run->batch.owner, owner, STORE_OWNER_BYTES) == 0;
  }
  if (own < RUNNER_OPEN_EACH_MAX && all < RUNNER_OPEN_MAX) return 0;
  return error_set(error, ERR_QUEUE_FULL, NULL,
                   "%d batches have not ended, of this API key %d: at most %d may wait, %d of a "
                   "key.",
                   all, own, RUNNER_OPEN_MAX, RUNNER_OPEN_EACH_MAX);
}

void runner_add(server_t *server, bulk_t *batch) {
  add(server->runner, batch);
}

bool runner_look(server_t *server, const uint8_t owner[STORE_OWNER_BYTES], const char *id,
                 bool cancel, bulk_t *batch) {
  runner_t *runner = server->runner;
  batch_run_t *run = runner->first;
  while (run != NULL && (strcmp(run->batch.id, id) != 0 ||
                         memcmp(run->batch.owner, owner, STORE_OWNER_BYTES) != 0))
    run = run->next;
  if (run == NULL || run->over) return false;
  if (cancel && run->ends) return false;
  if (cancel && run->batch.status == BATCH_IN_PROGRESS) leave(run, BATCH_CANCELLING);
  if (cancel && run->batch.status == BATCH_CANCELLING) {
    /* here, so that it is written before the end of the batch */
    stored_t *row = row_of(&run->batch, STORED_BATCH);
    if (row != NULL && !stored_failed(row))
      store_put(server->store, row);
    else
      stored_free(row);
    stir(runner);
  }
  buffer_t *metadata = &run->batch.metadata;
  *batch = run->batch;
  batch->metadata = (buffer_t){0};
  buffer_append(&batch->metadata, metadata->data, metadata->length);
  return true;
}

/* ---- the life of the server ---- */

static void take_waiting(void *context, const stored_t *stored) {
  runner_t *runner = context;
  bulk_t batch;
  if (stored->state != STORED_BATCH) return;
  if (!bulk_parse(stored->body.data, stored->body.length, &batch)) return;
  memcpy(batch.owner, stored->owner, STORE_OWNER_BYTES);
  add(runner, &batch);
}

int runner_new(server_t *server, inferd_error_t *error) {
  if (server->store == NULL) return 0;
  runner_t *runner = calloc(1, sizeof *runner);
  if (runner == NULL) return error_set(error, ERR_NO_MEMORY, NULL, "no memory for the server");
  runner->server = server;
  runner->last = &runner->first;
  uv_idle_init(server->loop, &runner->idle);
  runner->idle.data = runner;
  server->runner = runner;
  int code = store_waiting(server->store, take_waiting, runner, error);
  if (runner->first != NULL) log_line(LOG_INFO, "start", "batches go on");
  return code;
}

void runner_tick(server_t *server) {
  if (server->runner != NULL && server->runner->first != NULL) stir(server->runner);
}

runner_counts_t runner_counts(const server_t *server) {
  const runner_t *runner = server->runner;
  if (runner == NULL) return (runner_counts_t){0};
  runner_counts_t counts = runner->counts;
  counts.in_flight = runner->in_flight;
  for (const batch_run_t *run = runner->first; run != NULL; run = run->next) {
    if (!run->over) *(run->active ? &counts.running : &counts.waiting) += 1;
  }
  return counts;
}

void runner_stop(server_t *server) {
  runner_t *runner = server->runner;
  if (runner == NULL) return;
  runner->stopped = true;
  completions_enter(server->live);
  for (batch_run_t *run = runner->first; run != NULL; run = run->next) {
    stop_lines(run, "shutdown");
  }
  completions_leave(server->live);
  uv_close((uv_handle_t *)&runner->idle, NULL);
}

void runner_free(server_t *server) {
  runner_t *runner = server->runner;
  if (runner == NULL) return;
  for (batch_run_t *run = runner->first, *next; run != NULL; run = next) {
    next = run->next;
    run_free(run);
  }
  free(runner);
  server->runner = NULL;
}
