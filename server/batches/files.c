/* files.c: /v1/files, with --store: inputs and outputs of batches.
 *
 * The loop thread receives the request and sends the answer; a job of the lanes reads the form,
 * checks the lines and waits for the disk. A file lies in the store, as what it has and as its
 * object.
 */
#include "server/batches/bulk.h"
#include "server/completion/dialect.h"
#include "server/completion/reply_job.h"
#include "server/http/multipart.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef enum file_action { UPLOAD, LIST, GET_IT, GET_CONTENT, REMOVE } file_action_t;

typedef struct file_job {
  reply_job_t base; /* first */
  file_action_t action;
  char id[STORE_ID_BYTES];
  char purpose[32]; /* of a list; "" = all */
  char *type;       /* Content-Type of an upload */
  list_page_t page;
} file_job_t;

/* ---- upload ---- */

static int check_form(const multipart_t *form, inferd_error_t *error) {
  const multipart_part_t *purpose = multipart_find(form, "purpose"),
                         *file = multipart_find(form, "file");
  for (int i = 0; i < form->count; i++) {
    const multipart_part_t *part = &form->parts[i];
    if (part != purpose && part != file) {
      char name[64];
      error_quote(name, sizeof name, part->name, strlen(part->name));
      return error_set(error, ERR_UNSUPPORTED_PARAMETER, name,
                       "The parameter '%s' is not supported.", name);
    }
  }
  if (purpose == NULL)
    return error_set(error, ERR_MISSING_PARAMETER, "purpose",
                     "Missing required parameter: 'purpose'.");
  if (purpose->length != 5 || memcmp(purpose->bytes, "batch", 5) != 0)
    return error_set(error, ERR_INVALID_VALUE, "purpose",
                     "Invalid 'purpose': files are for batches, \"batch\".");
  if (file == NULL || file->file[0] == '\0')
    return error_set(error, ERR_MISSING_PARAMETER, "file",
                     "Missing required parameter: 'file', with a name.");
  return 0;
}

static int upload(file_job_t *job) {
  reply_job_t *base = &job->base;
  multipart_t form;
  bulk_endpoint_t endpoint;
  int code = multipart_read(job->type, base->body.bytes, base->body.length, &form, &base->error);
  if (code == 0) code = check_form(&form, &base->error);
  if (code != 0) return code;
  const multipart_part_t *file = multipart_find(&form, "file");
  code = reply_job_charge(base, 2 * file->length);
  if (code == 0)
    code = bulk_lines_check(file->bytes, file->length, NULL, NULL, &endpoint, &base->error);
  if (code != 0) return code;
  buffer_t id = {0};
  stored_t *row = calloc(1, sizeof *row);
  dialect_print_id(&id, "file-");
  bool good = row != NULL && !id.failed;
  if (good) {
    snprintf(row->id, sizeof row->id, "%.*s", (int)id.length, id.data);
    memcpy(row->owner, base->owner, STORE_OWNER_BYTES);
    row->created = (int64_t)time(NULL);
    row->state = STORED_FILE;
    buffer_append(&row->input, file->bytes, file->length);
    file_print(&row->body, row->id, (int64_t)file->length, row->created, file->file, "batch");
    buffer_append(&base->reply, row->body.data, row->body.length);
    good = !stored_failed(row);
  }
  buffer_free(&id);
  if (good) return store_put_and_wait(base->server->store, row, &base->error);
  stored_free(row);
  return error_set(&base->error, ERR_OVERLOADED, NULL, "Out of memory.");
}

/* ---- lists ---- */

static bool print_one(void *context, const char *id, const char *body, size_t length) {
  file_job_t *job = context;
  buffer_t *out = &job->base.reply;
  char wanted[64];
  snprintf(wanted, sizeof wanted, "\"purpose\":\"%s\"", job->purpose);
  /* nothing of a client stands behind the purpose */
  const char *at = job->purpose[0] != '\0' ? memmem(body, length, wanted, strlen(wanted)) : body;
  if (at == NULL) return true;
  if (!list_takes(&job->page, out, id)) return false;
  buffer_append(out, body, length);
  job->base.code = reply_job_charge(&job->base, out->capacity);
  return job->base.code == 0;
}

static int list(file_job_t *job) {
  reply_job_t *base = &job->base;
  store_page_t page = {.limit = INT64_MAX, .ascending = job->page.ascending};
  snprintf(page.after, sizeof page.after, "%s", job->page.after);
  list_begin(&base->reply);
  int code = store_list(base->server->store, base->owner, STORED_FILE, &page, print_one, job,
                        &base->error);
  list_end(&job->page, &base->reply);
  return code != 0 ? code : base->code;
}

/* ---- one file ---- */

static bool append_line(void *context, const char *id, const char *body, size_t length) {
  file_job_t *job = context;
  buffer_t *out = &job->base.reply;
  (void)id;
  buffer_append(out, body, length);
  buffer_char(out, '\n');
  job->base.code = reply_job_charge(&job->base, out->capacity);
  return job->base.code == 0;
}

/* What a batch has written: its lines. */
static int print_lines(file_job_t *job) {
  static const store_page_t all = {.limit = INT64_MAX, .ascending = true};
  reply_job_t *base = &job->base;
  int code =
      store_items(base->server->store, base->owner, job->id, &all, append_line, job, &base->error);
  return code != 0 ? code : base->code;
}

static int find(file_job_t *job) {
  reply_job_t *base = &job->base;
  stored_t *stored = NULL;
  int code = store_find(base->server->store, base->owner, job->id, false, &stored, &base->error);
  if (code != 0) return code;
  if (job->action == GET_CONTENT && stored->input.length == 0) {
    stored_free(stored);
    return print_lines(job);
  }
  buffer_t *wanted = job->action == GET_CONTENT ? &stored->input : &stored->body;
  code = reply_job_charge(base, wanted->capacity);
  base->reply = *wanted;
  *wanted = (buffer_t){0};
  stored_free(stored);
  return code;
}

static int remove_it(file_job_t *job) {
  reply_job_t *base = &job->base;
  int code = store_remove(base->server->store, base->owner, job->id, &base->error);
  buffer_text(&base->reply, "{\"id\":");
  buffer_quote(&base->reply, job->id, strlen(job->id));
  buffer_text(&base->reply, ",\"object\":\"file\",\"deleted\":true}");
  return code;
}

static int work(reply_job_t *base) {
  file_job_t *job = (file_job_t *)base;
  int code = 0;
  switch (job->action) {
  case UPLOAD:
    code = upload(job);
    free(job->type);
    job->type = NULL;
    return code;
  case LIST: return list(job);
  case REMOVE: return remove_it(job);
  case GET_IT:
  case GET_CONTENT: return find(job);
  }
  return code;
}

/* ---- the request ---- */

/* Finds out what is asked for: ID or ID/content. */
static int read_path(file_job_t *job) {
  static const char suffix[] = "/content";
  reply_job_t *base = &job->base;
  const char *tail = base->exchange->path_tail;
  size_t length = strlen(tail), more = sizeof suffix - 1;
  if (job->action == GET_IT && length > more && strcmp(tail + length - more, suffix) == 0) {
    job->action = GET_CONTENT;
    base->type = "application/jsonl";
    length -= more;
  }
  bool is_id = reply_id_copy(job->id, tail, length) && strncmp(job->id, "file-", 5) == 0 &&
               strchr(job->id, '/') == NULL;
  if (is_id) return 0;
  return error_set(&base->error, ERR_NO_SUCH_OBJECT, NULL, "File with id '%.100s' not found.",
                   tail);
}

static int read_list(file_job_t *job) {
  reply_job_t *base = &job->base;
  const char *purpose = exchange_query(base->exchange, "purpose");
  if (purpose != NULL && strcmp(purpose, "batch") != 0 && strcmp(purpose, "batch_output") != 0)
    return error_set(&base->error, ERR_INVALID_VALUE, "purpose",
                     "Invalid 'purpose': \"%.20s\" is not 'batch' or 'batch_output'.", purpose);
  if (purpose != NULL) snprintf(job->purpose, sizeof job->purpose, "%s", purpose);
  return list_page_read(base->exchange, &job->page, &base->error);
}

static void begin(exchange_t *exchange, file_action_t action) {
  const char *type = exchange_request_header(exchange, "Content-Type");
  file_job_t *job = (file_job_t *)reply_job_new(exchange, sizeof *job, action == UPLOAD);
  if (job == NULL) return;
  job->base.work = work;
  job->action = action;
  if (action == LIST) job->base.code = read_list(job);
  if (action == GET_IT || action == REMOVE) job->base.code = read_path(job);
  if (action == UPLOAD && type != NULL) job->type = strdup(type);
  reply_job_submit(&job->base);
}

void api_upload_file(exchange_t *exchange) {
  begin(exchange, UPLOAD);
}

void api_files(exchange_t *exchange) {
  begin(exchange, LIST);
}

void api_file(exchange_t *exchange) {
  begin(exchange, GET_IT);
}

void api_delete_file(exchange_t *exchange) {
  begin(exchange, REMOVE);
}
