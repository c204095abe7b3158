/* batches.c: /v1/batches, with --store: many requests that are answered when there is room.
 *
 * The loop thread receives the request and sends the answer; a job of the lanes waits for the disk.
 * runner.c runs them.
 */
#include "server/batches/runner.h"

#include "server/completion/dialect.h"
#include "server/completion/reply_job.h"
#include "server/fields/params_read.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef enum batch_action { CREATE, LIST, GET_IT, CANCEL_IT } batch_action_t;

typedef struct batch_fields {
  const json_t *metadata; /* first; NULL = not given, as the others */
  const json_t *input, *endpoint, *window;
} batch_fields_t;

typedef struct batch_job {
  reply_job_t base; /* first */
  batch_action_t action;
  char id[STORE_ID_BYTES];
  list_page_t page;
  bulk_t batch; /* that was made, or as the runner knows it */
  bool runs;
  field_limits_t limits;
} batch_job_t;

/* ---- fields ---- */

#undef FIELDS_STRUCT
#define FIELDS_STRUCT batch_fields_t
static const field_t rows[] = {
#include "server/fields/batch_fields.def"
};

static const field_table_t table = {rows, ARRAY_LEN(rows), NULL};

static int missing(reader_t *reader, const char *name) {
  return error_set(reader->error, ERR_MISSING_PARAMETER, name, "Missing required parameter: '%s'.",
                   name);
}

static int check_fields(const batch_fields_t *fields, reader_t *reader, bulk_t *batch) {
  int endpoint = 0;
  if (fields->input == NULL) return missing(reader, "input_file_id");
  if (fields->endpoint == NULL) return missing(reader, "endpoint");
  if (fields->window == NULL) return missing(reader, "completion_window");
  while (endpoint < BATCH_ENDPOINTS && !json_equals(fields->endpoint, bulk_endpoints[endpoint]))
    endpoint++;
  if (endpoint == BATCH_ENDPOINTS)
    return field_fail_value(reader, "endpoint",
                            "'/v1/chat/completions', '/v1/completions', '/v1/responses' or "
                            "'/v1/embeddings'",
                            fields->endpoint);
  batch->endpoint = (bulk_endpoint_t)endpoint;
  snprintf(batch->window, sizeof batch->window, "%.*s", (int)fields->window->length,
           fields->window->text);
  int64_t window_s = fields->window->length < sizeof batch->window ? bulk_window(batch->window) : 0;
  if (window_s == 0)
    return field_fail_value(reader, "completion_window",
                            "a time such as '24h', '30m' or '90s', of at most 7 days",
                            fields->window);
  batch->created = batch->times[BATCH_IN_PROGRESS] = (int64_t)time(NULL);
  batch->expires = batch->created + window_s;
  if (fields->metadata != NULL) json_print(&batch->metadata, fields->metadata);
  return batch->metadata.failed ? field_no_memory(reader) : 0;
}

/* ---- a batch is made ---- */

typedef struct taking {
  stored_item_t **link;
  int64_t count;
  bool failed;
} taking_t;

static bool take_line(void *context, int64_t number, const char *line, size_t length) {
  taking_t *taking = context;
  stored_item_t *item = calloc(1, sizeof *item);
  taking->failed = taking->failed || item == NULL;
  if (item == NULL) return false;
  snprintf(item->id, BATCH_LINE_ID_BYTES, "%07d", (int)number);
  buffer_append(&item->body, line, length);
  taking->failed = taking->failed || item->body.failed;
  *taking->link = item;
  taking->link = &item->next;
  taking->count++;
  return !taking->failed;
}

/* Reads the lines of the input again; the file may be removed from then on. */
static int take_lines(batch_job_t *job, stored_t *row) {
  reply_job_t *base = &job->base;
  stored_t *file = NULL;
  bulk_endpoint_t endpoint;
  taking_t taking = {.link = &row->items};
  int code =
      store_find(base->server->store, base->owner, job->batch.input, false, &file, &base->error);
  if (code == 0 && file->state != STORED_FILE) code = ERR_NO_SUCH_OBJECT;
  if (code == ERR_NO_SUCH_OBJECT || code == ERR_NOT_STORED)
    code = error_set(&base->error, ERR_INVALID_VALUE, "input_file_id",
                     "Invalid 'input_file_id': there is no file '%.100s'.", job->batch.input);
  if (code == 0) code = reply_job_charge(base, base->charge.bytes + 3 * file->input.length);
  if (code == 0)
    code = bulk_lines_check(file->input.data, file->input.length, take_line, &taking, &endpoint,
                            &base->error);
  if (code == 0 && endpoint != job->batch.endpoint)
    code = error_set(&base->error, ERR_INVALID_VALUE, "endpoint",
                     "Invalid 'endpoint': the lines of the file have the url '%s'.",
                     bulk_endpoints[endpoint]);
  stored_free(file);
  job->batch.total = taking.count;
  if (code == 0 && taking.failed)
    code = error_set(&base->error, ERR_OVERLOADED, NULL, "Out of memory.");
  return code;
}

static int write_batch(batch_job_t *job) {
  reply_job_t *base = &job->base;
  bulk_t *batch = &job->batch;
  buffer_t id = {0};
  stored_t *row = calloc(1, sizeof *row);
  if (row == NULL) return error_set(&base->error, ERR_OVERLOADED, NULL, "Out of memory.");
  dialect_print_id(&id, "batch_");
  snprintf(batch->id, sizeof batch->id, "%.*s", (int)id.length, id.data);
  memcpy(batch->owner, base->owner, STORE_OWNER_BYTES);
  int code = take_lines(job, row);
  bulk_print(&base->reply, batch);
  snprintf(row->id, sizeof row->id, "%s", batch->id);
  snprintf(row->conversation, sizeof row->conversation, "%s", batch->id);
  memcpy(row->owner, base->owner, STORE_OWNER_BYTES);
  row->created = batch->created;
  row->state = STORED_BATCH;
  buffer_append(&row->body, base->reply.data, base->reply.length);
  if (code == 0 && (id.failed || stored_failed(row) || base->reply.failed))
    code = error_set(&base->error, ERR_OVERLOADED, NULL, "Out of memory.");
  buffer_free(&id);
  if (code == 0) return store_put_and_wait(base->server->store, row, &base->error);
  stored_free(row);
  return code;
}

static int create(batch_job_t *job) {
  reply_job_t *base = &job->base;
  batch_fields_t fields = {0};
  arena_t arena = {0};
  reader_t reader = {
      .out = &fields, .limits = &job->limits, .arena = &arena, .error = &base->error};
  json_doc_t *doc = NULL;
  const held_t *body = &base->body;
  int code =
      reply_job_charge(base, json_memory_bound(body->bytes, body->length, &json_limits_request));
  if (code == 0)
    code = json_parse(body->bytes, body->length, &json_limits_request, &doc, &base->error);
  if (code == 0) code = fields_read(&table, &reader, json_root(doc));
  if (code == 0) code = check_fields(&fields, &reader, &job->batch);
  if (code == 0)
    snprintf(job->batch.input, sizeof job->batch.input, "%.*s", (int)fields.input->length,
             fields.input->text);
  json_free(doc);
  arena_free(&arena);
  return code == 0 ? write_batch(job) : code;
}

/* ---- what there is ---- */

/* The counts of one that runs are those of its lines. */
static bool print_batch(batch_job_t *job, const char *id, const char *body, size_t length) {
  reply_job_t *base = &job->base;
  bulk_t batch;
  if (!bulk_parse(body, length, &batch)) return false;
  bool runs = batch.status == BATCH_IN_PROGRESS || batch.status == BATCH_CANCELLING;
  if (runs && job->runs && strcmp(job->batch.id, id) == 0) {
    batch.completed = job->batch.completed;
    batch.failed = job->batch.failed;
  }
  bulk_print(&base->reply, &batch);
  bulk_free(&batch);
  return true;
}

static bool print_one(void *context, const char *id, const char *body, size_t length) {
  batch_job_t *job = context;
  buffer_t *out = &job->base.reply;
  if (!list_takes(&job->page, out, id)) return false;
  if (!print_batch(job, id, body, length)) buffer_append(out, body, length);
  job->base.code = reply_job_charge(&job->base, out->capacity);
  return job->base.code == 0;
}

static int list(batch_job_t *job) {
  reply_job_t *base = &job->base;
  store_page_t page = {.limit = job->page.limit + 1, .ascending = job->page.ascending};
  snprintf(page.after, sizeof page.after, "%s", job->page.after);
  list_begin(&base->reply);
  int code = store_list(base->server->store, base->owner, STORED_BATCH, &page, print_one, job,
                        &base->error);
  list_end(&job->page, &base->reply);
  return code != 0 ? code : base->code;
}

/* Tells of a batch that was cancelled: as the file says, so that a kill does not undo it. */
static int print_cancelled(batch_job_t *job, const stored_t *stored) {
  reply_job_t *base = &job->base;
  bulk_t written;
  bool good = bulk_parse(stored->body.data, stored->body.length, &written);
  bool cancelled = good && written.status != BATCH_IN_PROGRESS;
  if (good) bulk_free(&written);
  bulk_print(&base->reply, &job->batch);
  if (cancelled) return 0;
  return error_set(&base->error, ERR_STORE_FAILED, NULL,
                   "The store of this server failed: the batch '%.100s' was stopped, and runs on "
                   "after the next start.",
                   job->id);
}

static int find(batch_job_t *job) {
  reply_job_t *base = &job->base;
  stored_t *stored = NULL;
  if (job->action == CANCEL_IT) store_settle(base->server->store, base->owner, job->id);
  int code = store_find(base->server->store, base->owner, job->id, false, &stored, &base->error);
  if (code != 0) return code;
  bool cancelled = memmem(stored->body.data, stored->body.length, "\"status\":\"cancelled\"", 20) !=
                   NULL; /* a string of a client has its quotes escaped */
  if (job->action == CANCEL_IT && !cancelled && !job->runs)
    code = error_set(&base->error, ERR_INVALID_VALUE, "batch_id",
                     "The batch '%.100s' has ended and cannot be cancelled.", job->id);
  else if (job->action == CANCEL_IT && job->runs)
    code = print_cancelled(job, stored);
  else if (!print_batch(job, job->id, stored->body.data, stored->body.length))
    code = error_set(&base->error, ERR_STORE_FAILED, NULL,
                     "The store of this server has a damaged batch '%.100s'.", job->id);
  stored_free(stored);
  return code;
}

static int work(reply_job_t *base) {
  batch_job_t *job = (batch_job_t *)base;
  if (job->action == CREATE) return create(job);
  int code = job->action == LIST ? list(job) : find(job);
  bulk_free(&job->batch);
  return code;
}

/* ---- the request ---- */

static int read_path(batch_job_t *job) {
  static const char suffix[] = "/cancel";
  reply_job_t *base = &job->base;
  const char *tail = base->exchange->path_tail;
  size_t length = strlen(tail), more = sizeof suffix - 1;
  bool ends = length > more && strcmp(tail + length - more, suffix) == 0;
  if (ends) length -= more;
  bool is_id = reply_id_copy(job->id, tail, length) && strncmp(job->id, "batch_", 6) == 0 &&
               strchr(job->id, '/') == NULL;
  if (is_id && ends == (job->action == CANCEL_IT)) return 0;
  return error_set(&base->error, ERR_NO_SUCH_OBJECT, NULL, "Batch with id '%.100s' not found.",
                   tail);
}

/* Hands a batch that was written to the runner, whether or not the client is still there. */
static void added(reply_job_t *base) {
  batch_job_t *job = (batch_job_t *)base;
  if (base->code == 0)
    runner_add(base->server, &job->batch);
  else
    bulk_free(&job->batch);
}

static void begin(exchange_t *exchange, batch_action_t action) {
  server_t *server = exchange->server;
  batch_job_t *job = (batch_job_t *)reply_job_new(exchange, sizeof *job, action == CREATE);
  if (job == NULL) return;
  reply_job_t *base = &job->base;
  base->work = work;
  if (action == CREATE) base->settled = added;
  job->action = action;
  job->limits = (field_limits_t){.strict = server->config->strict_params, .stores = true};
  if (action == CREATE) base->code = runner_room(server, base->owner, &base->error);
  if (action == LIST) base->code = list_page_read(exchange, &job->page, &base->error);
  if (action == GET_IT || action == CANCEL_IT) base->code = read_path(job);
  if (job->id[0] != '\0' && base->code == 0)
    job->runs = runner_look(server, base->owner, job->id, action == CANCEL_IT, &job->batch);
  reply_job_submit(base);
}

void api_create_batch(exchange_t *exchange) {
  begin(exchange, CREATE);
}

void api_batches(exchange_t *exchange) {
  begin(exchange, LIST);
}

void api_batch(exchange_t *exchange) {
  begin(exchange, GET_IT);
}

void api_cancel_batch(exchange_t *exchange) {
  begin(exchange, CANCEL_IT);
}
