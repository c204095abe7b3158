/* stored.c: GET and DELETE of /v1/responses/{id}, and its cancel, with --store.
 *
 * The loop thread receives the request and sends the answer; a job of the lanes waits for the disk.
 * The client may disconnect at any time; the job then ends for nobody.
 */
#include "server/responses/responses.h"

#include "server/completion/reply_job.h"
#include "server/http/reply_json.h"
#include "server/responses/background.h"
#include "server/responses/events.h"
#include "server/store/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum stored_action {
  GET_BODY,
  GET_INPUT,
  GET_EVENTS,
  CANCEL_IT,
  DELETE_IT
} stored_action_t;

typedef struct stored_job {
  reply_job_t base; /* first */
  stored_action_t action;
  char id[STORE_ID_BYTES];
  list_page_t page;
  int64_t starting_after; /* number of an event; -1 = all are wanted */
  bool runs;              /* the engine has it */
  stored_t stopped;       /* by CANCEL_IT or DELETE_IT */
} stored_job_t;

/* ---- the list of what was asked ---- */

static void print_id_of(buffer_t *out, const char *name, const json_t *item) {
  const json_t *id = json_get(item, "id");
  buffer_text(out, name);
  if (id != NULL)
    json_print(out, id);
  else
    buffer_text(out, "null");
}

/* The items in the order of the list, from behind the one called `after`; sets *count. */
static const json_t **choose_items(const stored_job_t *job, const json_t *items, size_t *count) {
  const json_t **all = calloc((size_t)items->count + 1, sizeof *all);
  size_t first = 0, total = items->count, at = 0;
  if (all == NULL) return NULL;
  JSON_EACH(item, items) {
    all[job->page.ascending ? at : total - 1 - at] = item;
    at++;
  }
  for (size_t i = 0; i < total && job->page.after[0] != '\0'; i++) {
    if (json_equals(json_get(all[i], "id"), job->page.after)) first = i + 1;
  }
  memmove(all, all + first, (total - first) * sizeof *all);
  *count = total - first;
  return all;
}

static int list_items(stored_job_t *job, const stored_t *stored) {
  buffer_t text = {0}, *out = &job->base.reply;
  json_doc_t *doc = NULL;
  buffer_char(&text, '[');
  buffer_append(&text, stored->input.data, stored->input.length);
  buffer_char(&text, ']');
  size_t count = 0, most = json_memory_bound(text.data, text.length, &responses_kept_limits);
  int code = text.failed ? ledger_refuse(&job->base.charge, &job->base.error)
                         : reply_job_charge(&job->base, job->base.charge.bytes + most);
  if (code == 0)
    code = json_parse(text.data, text.length, &responses_kept_limits, &doc, &job->base.error);
  const json_t **items = code == 0 ? choose_items(job, json_root(doc), &count) : NULL;
  size_t shown = count < (size_t)job->page.limit ? count : (size_t)job->page.limit;
  buffer_text(out, "{\"object\":\"list\",\"data\":[");
  for (size_t i = 0; i < shown && items != NULL; i++) {
    if (i > 0) buffer_char(out, ',');
    json_print(out, items[i]);
  }
  print_id_of(out, "],\"first_id\":", shown > 0 ? items[0] : NULL);
  print_id_of(out, ",\"last_id\":", shown > 0 ? items[shown - 1] : NULL);
  buffer_text(out, count > shown ? ",\"has_more\":true}" : ",\"has_more\":false}");
  out->failed = out->failed || (code == 0 && items == NULL);
  free(items);
  json_free(doc);
  buffer_free(&text);
  return code;
}

/* ---- the job ---- */

/* Ends what waits: its run has been dropped. What was cancelled before is told again. */
static int cancel(stored_job_t *job, stored_t *stored) {
  static const char cancelled[] = "\"status\":\"cancelled\",\"background\":true";
  const buffer_t *body = &stored->body;
  if (stored->state == STORED_ANSWER) {
    stored_free(stored);
    return error_set(&job->base.error, ERR_INVALID_VALUE, "response_id",
                     "Only responses with 'background' can be cancelled.");
  }
  if (stored->state == STORED_BACKGROUND) {
    /* nothing of a client stands before the status */
    bool again = memmem(body->data, body->length < 400 ? body->length : 400, cancelled,
                        sizeof cancelled - 1) != NULL;
    if (again) buffer_append(&job->base.reply, body->data, body->length);
    stored_free(stored);
    return again ? 0
                 : error_set(&job->base.error, ERR_INVALID_VALUE, "response_id",
                             "The response '%.150s' has ended and cannot be cancelled.", job->id);
  }
  background_restate(stored, "cancelled", NULL);
  stored->state = STORED_BACKGROUND;
  stored->replaces = true;
  buffer_append(&job->base.reply, body->data, body->length);
  if (!stored_failed(stored))
    return store_put_and_wait(job->base.server->store, stored, &job->base.error);
  stored_free(stored);
  return error_set(&job->base.error, ERR_INTERNAL, NULL, "Out of memory.");
}

static int take_events(stored_job_t *job, stored_t *stored) {
  if (stored->state != STORED_BACKGROUND || !stored->streams)
    return error_set(&job->base.error, ERR_UNSUPPORTED_PARAMETER, "stream",
                     "The parameter 'stream' is not supported here: the response was not made with "
                     "'background' and 'stream'.");
  job->base.reply = stored->events;
  stored->events = (buffer_t){0};
  return 0;
}

static int work(reply_job_t *base) {
  stored_job_t *job = (stored_job_t *)base;
  stored_t *stored = NULL;
  if (job->action == DELETE_IT) {
    int code = store_remove(job->base.server->store, job->base.owner, job->id, &job->base.error);
    buffer_text(&job->base.reply, "{\"id\":");
    buffer_quote(&job->base.reply, job->id, strlen(job->id));
    buffer_text(&job->base.reply, ",\"object\":\"response.deleted\",\"deleted\":true}");
    return code;
  }
  bool whole = job->action == GET_EVENTS;
  int code = store_find(job->base.server->store, job->base.owner, job->id, whole, &stored,
                        &job->base.error);
  if (code != 0) return code;
  if (job->action == CANCEL_IT) return cancel(job, stored);
  if (job->runs && stored->state == STORED_WAITING) background_restate(stored, "in_progress", NULL);
  size_t bytes = stored->input.length + stored->body.length + stored->events.length;
  code = reply_job_charge(&job->base, 2 * bytes);
  if (code == 0 && job->action == GET_INPUT)
    code = list_items(job, stored);
  else if (code == 0 && job->action == GET_EVENTS)
    code = take_events(job, stored);
  else if (code == 0)
    buffer_append(&job->base.reply, stored->body.data, stored->body.length);
  stored_free(stored);
  return code;
}

/* Sends the events of an answer that has ended. */
static void send_events(reply_job_t *base) {
  stored_job_t *job = (stored_job_t *)base;
  events_t *events = events_new(job->base.server->ledger, job->base.exchange->source);
  if (events == NULL || !events_add(events, job->base.reply.data, job->base.reply.length)) {
    reply_no_memory(job->base.exchange);
  } else {
    events_end(events);
    events_follow(events, job->base.exchange, job->starting_after);
  }
  events_release(events);
}

/* What was stopped goes on if it could not be noted. */
static void go_on(reply_job_t *base) {
  if (base->code != 0) background_again(base->server, &((stored_job_t *)base)->stopped);
}

/* ---- the request ---- */

/* Reads stream and starting_after. */
static int read_stream(stored_job_t *job) {
  const char *stream = exchange_query(job->base.exchange, "stream"),
             *after = exchange_query(job->base.exchange, "starting_after");
  bool wanted = stream != NULL && strcmp(stream, "true") == 0;
  char *end = NULL;
  job->starting_after = after != NULL ? strtoll(after, &end, 10) : -1;
  if (stream != NULL && !wanted && strcmp(stream, "false") != 0)
    return error_set(&job->base.error, ERR_INVALID_VALUE, "stream",
                     "Invalid 'stream': \"%.20s\" is not 'true' or 'false'.", stream);
  if (after != NULL && !wanted)
    return error_set(&job->base.error, ERR_INVALID_VALUE, "starting_after",
                     "'starting_after' needs 'stream=true'.");
  if (after != NULL &&
      (end == after || *end != '\0' || job->starting_after < 0 || job->starting_after > INT32_MAX))
    return error_set(&job->base.error, ERR_INVALID_VALUE, "starting_after",
                     "Invalid 'starting_after': \"%.20s\" is not a number from 0 to %d.", after,
                     INT32_MAX);
  if (wanted) job->action = GET_EVENTS;
  return 0;
}

/* Finds out what is asked for: ID, ID/input_items or ID/cancel. */
static int read_path(stored_job_t *job) {
  bool gets = job->action == GET_BODY, cancels = job->action == CANCEL_IT;
  const char *suffix = cancels ? "/cancel" : "/input_items";
  const char *tail = job->base.exchange->path_tail;
  size_t length = strlen(tail), more = strlen(suffix);
  bool ends = length > more && strcmp(tail + length - more, suffix) == 0;
  if (ends && (gets || cancels)) length -= more;
  if (ends && gets) job->action = GET_INPUT;
  if (cancels && strcmp(tail, "compact") == 0)
    return route_refuse("/v1/responses/compact", &job->base.error);
  if (cancels && !ends)
    return error_set(&job->base.error, ERR_NOT_STORED, NULL,
                     "There is nothing to post to '%.100s': only /v1/responses/{id}/cancel.", tail);
  bool is_id = reply_id_copy(job->id, tail, length) && memchr(tail, '/', length) == NULL;
  if (!is_id || strncmp(job->id, "resp_", 5) != 0)
    return error_set(&job->base.error, ERR_NOT_STORED, NULL, "Response with id '%.100s' not found.",
                     tail);
  if (job->action == GET_BODY) return read_stream(job);
  return job->action == GET_INPUT ? list_page_read(job->base.exchange, &job->page, &job->base.error)
                                  : 0;
}

static void begin(exchange_t *exchange, stored_action_t action) {
  server_t *server = exchange->server;
  stored_job_t *job = (stored_job_t *)reply_job_new(exchange, sizeof *job, false);
  if (job == NULL) return;
  reply_job_t *base = &job->base;
  base->work = work;
  job->action = action;
  base->code = read_path(job);
  if (job->action == GET_EVENTS) base->finish = send_events;
  events_t *events = base->code == 0 ? background_events(server, base->owner, job->id) : NULL;
  if (job->action == GET_EVENTS && events != NULL) {
    events_follow(events, exchange, job->starting_after);
    reply_job_free(base);
    return;
  }
  if (base->code == 0) {
    job->runs = background_state(server, base->owner, job->id) == BACKGROUND_RUNS;
    bool ends = action == CANCEL_IT || action == DELETE_IT;
    if (ends && background_drop(server, base->owner, job->id, action == DELETE_IT, &job->stopped))
      base->settled = go_on;
  }
  reply_job_submit(base);
}

void api_stored_response(exchange_t *exchange) {
  begin(exchange, GET_BODY);
}

void api_delete_response(exchange_t *exchange) {
  begin(exchange, DELETE_IT);
}

void api_cancel_response(exchange_t *exchange) {
  begin(exchange, CANCEL_IT);
}
