/* stored.c: GET and DELETE of /v1/responses/{id}, with --store.
 *
 * The loop thread receives the request and sends the answer; a job of the lanes waits for the disk.
 * The client may disconnect at any time; the job then ends for nobody.
 */
#include "server/responses/responses.h"

#include "server/completion/live.h"
#include "server/http/reply_json.h"
#include "server/store/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LIST_DEFAULT = 20, LIST_MAX = 100 };

typedef enum stored_action { GET_BODY, GET_INPUT, DELETE_IT } stored_action_t;

typedef struct stored_job {
  lane_job_t job; /* first */
  server_t *server;
  exchange_t *exchange; /* NULL = the client disconnected */
  stored_action_t action;
  uint8_t owner[STORE_OWNER_BYTES];
  char id[STORE_ID_BYTES], after[STORE_ID_BYTES];
  int64_t limit;
  bool ascending;
  charge_t charge; /* of what is read */
  int code;
  inferd_error_t error;
  buffer_t reply;
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
    all[job->ascending ? at : total - 1 - at] = item;
    at++;
  }
  for (size_t i = 0; i < total && job->after[0] != '\0'; i++) {
    if (json_equals(json_get(all[i], "id"), job->after)) first = i + 1;
  }
  memmove(all, all + first, (total - first) * sizeof *all);
  *count = total - first;
  return all;
}

static int list_items(stored_job_t *job, const stored_t *stored) {
  buffer_t text = {0}, *out = &job->reply;
  json_doc_t *doc = NULL;
  buffer_char(&text, '[');
  buffer_append(&text, stored->input.data, stored->input.length);
  buffer_char(&text, ']');
  size_t count = 0, most = json_memory_bound(text.data, text.length, &responses_kept_limits);
  int code = text.failed || !charge_resize(&job->charge, job->charge.bytes + most)
                 ? ledger_refuse(&job->charge, &job->error)
                 : json_parse(text.data, text.length, &responses_kept_limits, &doc, &job->error);
  const json_t **items = code == 0 ? choose_items(job, json_root(doc), &count) : NULL;
  size_t shown = count < (size_t)job->limit ? count : (size_t)job->limit;
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

static int run(stored_job_t *job) {
  stored_t *stored = NULL;
  if (job->action == DELETE_IT) {
    int code = store_remove(job->server->store, job->owner, job->id, &job->error);
    buffer_text(&job->reply, "{\"id\":");
    buffer_quote(&job->reply, job->id, strlen(job->id));
    buffer_text(&job->reply, ",\"object\":\"response.deleted\",\"deleted\":true}");
    return code;
  }
  int code = store_find(job->server->store, job->owner, job->id, &stored, &job->error);
  if (code != 0) return code;
  size_t bytes = stored->input.length + stored->body.length;
  if (!charge_resize(&job->charge, 2 * bytes))
    code = ledger_refuse(&job->charge, &job->error);
  else if (job->action == GET_INPUT)
    code = list_items(job, stored);
  else
    buffer_append(&job->reply, stored->body.data, stored->body.length);
  stored_free(stored);
  return code;
}

static void run_job(lane_job_t *lane_job) {
  stored_job_t *job = (stored_job_t *)lane_job;
  job->code = run(job);
}

static void destroy(stored_job_t *job) {
  job->server->live->jobs--;
  buffer_free(&job->reply);
  charge_drop(&job->charge);
  free(job);
}

static void job_done(lane_job_t *lane_job) {
  stored_job_t *job = (stored_job_t *)lane_job;
  exchange_t *exchange = job->exchange;
  if (exchange != NULL && job->code != 0) {
    exchange_error(exchange, &job->error);
  } else if (exchange != NULL && job->reply.failed) {
    reply_no_memory(exchange);
  } else if (exchange != NULL) {
    size_t length = 0;
    char *body = buffer_detach(&job->reply, &length);
    exchange_reply(exchange, 200, "application/json", body, length);
  }
  destroy(job);
}

static void on_gone(exchange_t *exchange, const char *cause) {
  stored_job_t *job = exchange->user;
  (void)cause;
  job->exchange = NULL;
  if (lanes_withdraw(&job->job)) destroy(job);
}

/* ---- the request ---- */

/* Copies an id; one that is too long is nobody's. */
static bool take_id(char out[STORE_ID_BYTES], const char *id, size_t length) {
  if (length == 0 || length >= STORE_ID_BYTES) return false;
  memcpy(out, id, length);
  out[length] = '\0';
  return true;
}

/* Reads limit, order and after. */
static int read_query(stored_job_t *job) {
  const char *limit = exchange_query(job->exchange, "limit"),
             *order = exchange_query(job->exchange, "order"),
             *after = exchange_query(job->exchange, "after");
  char *end = NULL;
  job->limit = limit != NULL ? strtoll(limit, &end, 10) : LIST_DEFAULT;
  if (limit != NULL && (end == limit || *end != '\0' || job->limit < 1 || job->limit > LIST_MAX))
    return error_set(&job->error, ERR_INVALID_VALUE, "limit",
                     "Invalid 'limit': \"%.20s\" is not a number from 1 to %d.", limit,
                     (int)LIST_MAX);
  job->ascending = order != NULL && strcmp(order, "asc") == 0;
  if (order != NULL && !job->ascending && strcmp(order, "desc") != 0)
    return error_set(&job->error, ERR_INVALID_VALUE, "order",
                     "Invalid 'order': \"%.20s\" is not 'asc' or 'desc'.", order);
  if (after != NULL && !take_id(job->after, after, strlen(after)))
    return error_set(&job->error, ERR_INVALID_VALUE, "after", "Invalid 'after': it is no id.");
  return 0;
}

/* Finds out what is asked for: ID, or ID/input_items. */
static int read_path(stored_job_t *job) {
  static const char suffix[] = "/input_items";
  const char *tail = job->exchange->path_tail;
  const char *stream = exchange_query(job->exchange, "stream");
  size_t length = strlen(tail), more = sizeof suffix - 1;
  if (job->action == GET_BODY && length > more && strcmp(tail + length - more, suffix) == 0) {
    job->action = GET_INPUT;
    length -= more;
  }
  if (!take_id(job->id, tail, length) || memchr(tail, '/', length) != NULL)
    return error_set(&job->error, ERR_NOT_STORED, NULL, "Response with id '%.100s' not found.",
                     tail);
  if (stream != NULL && strcmp(stream, "false") != 0)
    return error_set(&job->error, ERR_UNSUPPORTED_PARAMETER, "stream",
                     "The parameter 'stream' is not supported here: an answer that is kept has "
                     "ended.");
  return job->action == GET_INPUT ? read_query(job) : 0;
}

static void begin(exchange_t *exchange, stored_action_t action) {
  server_t *server = exchange->server;
  stored_job_t *job = calloc(1, sizeof *job);
  if (job == NULL) {
    reply_no_memory(exchange);
    return;
  }
  job->job = (lane_job_t){
      .run = run_job, .done = job_done, .client = exchange->source, .kind = LANE_LIGHT};
  job->server = server;
  job->exchange = exchange;
  job->action = action;
  job->charge = charge_open(server->ledger, exchange->source, LEDGER_values);
  if (exchange->key != NULL) memcpy(job->owner, exchange->key->digest, STORE_OWNER_BYTES);
  server->live->jobs++;
  job->code = read_path(job);
  if (job->code != 0) {
    job_done(&job->job);
    return;
  }
  exchange->user = job;
  exchange->on_gone = on_gone;
  lanes_submit(server->lanes, &job->job);
}

void api_stored_response(exchange_t *exchange) {
  begin(exchange, GET_BODY);
}

void api_delete_response(exchange_t *exchange) {
  begin(exchange, DELETE_IT);
}
