/* reply_job.c: a request that a job of the lanes answers, see reply_job.h.
 *
 * Loop thread, but for `work`. Never waits for the disk itself.
 */
#include "server/completion/reply_job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void no_memory(exchange_t *exchange) {
  inferd_error_t error;
  error_set(&error, ERR_INTERNAL, NULL, "Out of memory.");
  exchange_error(exchange, &error);
}

/* The parent of several models has no completions: its exchanges alone are waited for. */
static void count_job(const server_t *server, int by) {
  if (server->live != NULL) server->live->jobs += by;
}

void reply_job_free(reply_job_t *job) {
  count_job(job->server, -1);
  held_free(&job->body);
  buffer_free(&job->reply);
  charge_drop(&job->charge);
  free(job);
}

static void run_job(lane_job_t *lane_job) {
  reply_job_t *job = (reply_job_t *)lane_job;
  job->code = job->work(job);
}

static void job_done(lane_job_t *lane_job) {
  reply_job_t *job = (reply_job_t *)lane_job;
  exchange_t *exchange = job->exchange;
  if (job->settled != NULL) job->settled(job);
  if (exchange != NULL && job->code != 0) {
    exchange_error(exchange, &job->error);
  } else if (exchange != NULL && job->reply.failed) {
    no_memory(exchange);
  } else if (exchange != NULL && job->finish != NULL) {
    job->finish(job);
  } else if (exchange != NULL) {
    size_t length = 0;
    char *body = buffer_detach(&job->reply, &length);
    exchange_reply(exchange, 200, job->type != NULL ? job->type : "application/json", body, length);
  }
  reply_job_free(job);
}

static void on_gone(exchange_t *exchange, const char *cause) {
  reply_job_t *job = exchange->user;
  (void)cause;
  job->exchange = NULL;
  if (lanes_withdraw(&job->job)) reply_job_free(job);
}

reply_job_t *reply_job_new(exchange_t *exchange, size_t size, bool takes) {
  server_t *server = exchange->server;
  held_t body = {0};
  reply_job_t *job = calloc(1, size);
  if (job == NULL || (takes && !exchange_take_body(exchange, &body))) {
    free(job);
    no_memory(exchange);
    return NULL;
  }
  job->job = (lane_job_t){
      .run = run_job, .done = job_done, .client = exchange->source, .kind = LANE_LIGHT};
  job->server = server;
  job->exchange = exchange;
  job->body = body;
  job->charge = charge_open(server->ledger, exchange->source, LEDGER_values);
  if (exchange->key != NULL) memcpy(job->owner, exchange->key->digest, KEY_DIGEST_BYTES);
  count_job(server, 1);
  return job;
}

void reply_job_submit(reply_job_t *job) {
  if (job->code != 0) {
    job_done(&job->job);
    return;
  }
  job->exchange->user = job;
  job->exchange->on_gone = on_gone;
  lanes_submit(job->server->lanes, &job->job);
}

int reply_job_charge(reply_job_t *job, size_t bytes) {
  return charge_resize(&job->charge, bytes) ? 0 : ledger_refuse(&job->charge, &job->error);
}

bool reply_id_copy(char out[REPLY_ID_BYTES], const char *id, size_t length) {
  if (length == 0 || length >= REPLY_ID_BYTES) return false;
  memcpy(out, id, length);
  out[length] = '\0';
  return true;
}

void list_begin(buffer_t *out) {
  buffer_text(out, "{\"object\":\"list\",\"data\":[");
}

bool list_takes(list_page_t *page, buffer_t *out, const char *id) {
  if (page->count++ == page->limit) return false;
  if (page->count == 1) snprintf(page->first, sizeof page->first, "%s", id);
  snprintf(page->last, sizeof page->last, "%s", id);
  if (page->count > 1) buffer_char(out, ',');
  return true;
}

void list_end(const list_page_t *page, buffer_t *out) {
  const char *const names[] = {"],\"first_id\":", ",\"last_id\":"};
  const char *const ids[] = {page->first, page->last};
  for (int i = 0; i < 2; i++) {
    buffer_text(out, names[i]);
    if (ids[i][0] != '\0')
      buffer_quote(out, ids[i], strlen(ids[i]));
    else
      buffer_text(out, "null");
  }
  buffer_text(out, ",\"has_more\":");
  buffer_text(out, page->count > page->limit ? "true}" : "false}");
}

int list_page_read(const exchange_t *exchange, list_page_t *page, inferd_error_t *error) {
  const char *limit = exchange_query(exchange, "limit"), *order = exchange_query(exchange, "order"),
             *after = exchange_query(exchange, "after");
  char *end = NULL;
  page->limit = limit != NULL ? strtoll(limit, &end, 10) : LIST_DEFAULT;
  if (limit != NULL && (end == limit || *end != '\0' || page->limit < 1 || page->limit > LIST_MAX))
    return error_set(error, ERR_INVALID_VALUE, "limit",
                     "Invalid 'limit': \"%.20s\" is not a number from 1 to %d.", limit,
                     (int)LIST_MAX);
  page->ascending = order != NULL && strcmp(order, "asc") == 0;
  if (order != NULL && !page->ascending && strcmp(order, "desc") != 0)
    return error_set(error, ERR_INVALID_VALUE, "order",
                     "Invalid 'order': \"%.20s\" is not 'asc' or 'desc'.", order);
  if (after != NULL && !reply_id_copy(page->after, after, strlen(after)))
    return error_set(error, ERR_INVALID_VALUE, "after", "Invalid 'after': it is no id.");
  return 0;
}
