/* line.c: a line of a batch, see line.h. Loop thread; line_read: any. Never waits for the disk. */
#include "server/batches/line.h"

#include "engine/base/check.h"
#include "engine/base/clock.h"
#include "engine/base/hash.h"
#include "engine/base/util.h"
#include "server/keys/api_key.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static line_t *line_of(errand_t *errand) {
  return (line_t *)errand;
}

line_t *line_read(const char *id, const char *text, size_t length) {
  bulk_line_text_t read;
  inferd_error_t why;
  line_t *line = calloc(1, sizeof *line);
  if (line == NULL || bulk_line_read(text, length, &read, &why) != 0) return free(line), NULL;
  snprintf(line->id, sizeof line->id, "%s", id);
  line->endpoint = read.endpoint;
  json_print(&line->custom_id, read.custom_id);
  json_print(&line->body, read.body);
  buffer_char(&line->body, '\0');
  json_free(read.doc);
  if (line->custom_id.failed || line->body.failed) return line_free(line), NULL;
  line->body.length--;
  return line;
}

void line_free(line_t *line) {
  errand_free(&line->errand);
  api_key_release(line->errand.public.key);
  buffer_free(&line->custom_id);
  buffer_free(&line->body);
  buffer_free(&line->answer);
  charge_drop(&line->charge);
  free(line);
}

static void end(line_t *line, line_state_t state) {
  line->step = LINE_OVER;
  line->ended(line, state);
}

static void fail(line_t *line, const inferd_error_t *error) {
  size_t length = 0;
  const config_t *config = line->errand.public.server->config;
  char *body = error_body(error, strcmp(config->error_code, "status") == 0, &length);
  buffer_clear(&line->answer);
  if (body != NULL) buffer_append(&line->answer, body, length);
  free(body);
  end(line, LINE_FAILED);
}

static void queue_again(line_t *line) {
  int wait_s = MIN(line->errand.public.retry_after_s, LINE_AGAIN_S_MAX);
  errand_free(&line->errand);
  api_key_release(line->errand.public.key);
  line->errand = (errand_t){0};
  buffer_free(&line->answer);
  charge_drop(&line->charge);
  line->not_before_ns = clock_now_ns() + (uint64_t)MAX(wait_s * 1000, LINE_AGAIN_MS) * 1000000;
  line->step = LINE_QUEUED;
}

/* Of several models, whether the process that had the line has ended. It may be the cause, so it
 * comes again some times only. */
static bool was_cut(line_t *line, const inferd_error_t *error) {
  const server_t *server = line->errand.public.server;
  bool cut = error != NULL && error->code == ERR_INTERNAL && server->models != NULL;
  return cut && line->cuts++ < LINE_CUTS_MAX;
}

static void on_ended(errand_t *errand, const inferd_error_t *error) {
  line_t *line = line_of(errand);
  CHECK(line->step == LINE_RUNS);
  line->step = LINE_PRINTS;
  line->status = error == NULL ? errand->status : error_http_status(error->code);
  if (line->status == 0) line->status = 200;
  if (errand_comes_again(line->status) || was_cut(line, error))
    line->status = 0; /* again, in a turn of its own */
  else if (error != NULL)
    fail(line, error);
  line->left(line);
}

bool line_print(line_t *line) {
  pieces_t *pieces = &line->errand.pieces;
  bool more = false, failed = line->status == 0;
  CHECK(line->step == LINE_PRINTS);
  if (!failed && pieces->print != NULL) {
    more = pieces->print(pieces->owner, &line->answer, LINE_TURN_BYTES);
    failed = line->answer.failed || !charge_resize(&line->charge, line->answer.capacity);
  }
  if (failed)
    queue_again(line);
  else if (!more)
    end(line, line->status == 200 ? LINE_ANSWERED : LINE_FAILED);
  return more && !failed;
}

static bool on_wrote(errand_t *errand, const char *bytes, size_t length) {
  (void)errand, (void)bytes, (void)length;
  return false; /* no line streams */
}

static void on_prints(errand_t *errand) {
  (void)errand;
}

void line_start(line_t *line, const line_client_t *client) {
  static void (*const handlers[BATCH_PATHS])(exchange_t *) = {
      api_chat_completions, api_completions, api_responses, api_embeddings, api_score, api_score,
      api_rerank,           api_rerank,      api_rerank_v2};
  ledger_t *ledger = client->server->ledger;
  char id[REQUEST_ID_MAX + 1];
  int length = snprintf(id, sizeof id, "%.80s_%s", client->batch, line->id);
  charge_t charge = charge_open(ledger, client->source, LEDGER_body);
  line->charge = charge_open(ledger, client->source, LEDGER_reply);
  char *copy = malloc(line->body.length + 1);
  if (copy == NULL || !charge_resize(&charge, line->body.length + 1)) {
    free(copy);
    line->not_before_ns = clock_now_ns() + (uint64_t)LINE_AGAIN_MS * 1000000;
    return;
  }
  memcpy(copy, line->body.data, line->body.length + 1);
  line->errand = (errand_t){.public = {.server = client->server,
                                       .method = "POST",
                                       .path_tail = "",
                                       .body = "",
                                       .arrival_ns = clock_now_ns(),
                                       .tenant = client->key != NULL ? client->key->tenant : 0,
                                       .key = api_key_use(client->key),
                                       .source = client->source,
                                       .is_errand = true,
                                       .best_effort = true,
                                       .seed = hash_bytes((const uint8_t *)id, (size_t)length) | 1},
                            .body = {.bytes = copy, .length = line->body.length, .charge = charge},
                            .wrote = on_wrote,
                            .prints = on_prints,
                            .ended = on_ended,
                            .keeps = true};
  snprintf(line->errand.public.request_id, sizeof line->errand.public.request_id, "%s", id);
  line->step = LINE_RUNS;
  if (client->server->models != NULL)
    models_errand(&line->errand.public, bulk_endpoints[line->endpoint]);
  else
    handlers[line->endpoint](&line->errand.public);
}

void line_stop(line_t *line, const char *cause) {
  bool runs = line->step == LINE_RUNS;
  line->step = LINE_OVER;
  if (!runs) return;
  errand_stop(&line->errand, cause);
  line->left(line);
}
