/* schema_check.c: POST /v1/schema/check, the doctor of schemas.
 *
 * The loop thread receives the request and sends the answer; a job of the lanes parses and
 * compiles. The job owns the body, so the client may disconnect at any time; the compilation then
 * ends early.
 */
#include "engine/base/util.h"
#include "engine/grammar/doctor.h"
#include "server/completion/chat.h"
#include "server/fields/params_read.h"
#include "server/http/reply_json.h"
#include "server/observe/metrics.h"

#include <stdlib.h>
#include <string.h>

typedef struct schema_fields {
  params_t params; /* first member: the reader of schemas writes its constraint */
  const json_t *model;
  bool strict;
} schema_fields_t;

#undef FIELDS_STRUCT
#define FIELDS_STRUCT schema_fields_t
static const field_t schema_rows[] = {
#include "server/fields/schema_fields.def"
};

const field_table_t schema_table = {schema_rows, ARRAY_LEN(schema_rows), NULL};

typedef struct schema_job {
  lane_job_t job; /* first */
  server_t *server;
  exchange_t *exchange; /* NULL = the client disconnected */
  held_t body;
  charge_t values; /* of the document, then of the report */
  field_limits_t limits;
  grammar_account_t account;
  atomic_bool cancelled;
  int code;
  inferd_error_t error;
  char ignored[IGNORED_NAMES_MAX]; /* names of unknown fields; "" = none */
  buffer_t report;
} schema_job_t;

static int charge(schema_job_t *job, size_t bytes) {
  return charge_resize(&job->values, bytes) ? 0 : ledger_refuse(&job->values, &job->error);
}

static int examine(schema_job_t *job, const schema_fields_t *fields) {
  server_t *server = job->server;
  const constraint_t *constraint = &fields->params.constraint;
  int code = model_check(server->live, server->config->any_model, fields->model, &job->error);
  if (code != 0) return code;
  if (constraint->param == NULL) {
    return error_set(&job->error, ERR_MISSING_PARAMETER, "schema",
                     "The 'schema' must be provided.");
  }
  if (tokenizer_is_none(engine_tokenizer(server->engine))) {
    return tokenizer_refuse("schema", &job->error);
  }
  grammar_source_t source = {.kind = GRAMMAR_JSON_SCHEMA,
                             .param = constraint->param,
                             .schema = constraint->schema,
                             .strict = fields->strict,
                             .known_only = job->limits.strict};
  code = grammar_examine(&source, engine_grammar_vocabulary(server->engine), &job->account,
                         &job->report, &job->error);
  return code == 0 ? charge(job, job->values.bytes + job->report.capacity) : code;
}

static int run(schema_job_t *job) {
  schema_fields_t fields = {0};
  arena_t arena = {0};
  reader_t reader = {.out = &fields, .limits = &job->limits, .arena = &arena, .error = &job->error};
  json_doc_t *doc = NULL;
  const held_t *body = &job->body;
  int code = charge(job, json_memory_bound(body->bytes, body->length, &json_limits_request));
  if (code == 0) {
    code = json_parse(body->bytes, body->length, &json_limits_request, &doc, &job->error);
  }
  if (code == 0) {
    fields_default(&schema_table, &fields);
    code = fields_read(&schema_table, &reader, json_root(doc));
    memcpy(job->ignored, reader.ignored, sizeof job->ignored);
  }
  if (code == 0) code = examine(job, &fields);
  json_free(fields.params.constraint.doc);
  json_free(doc);
  arena_free(&arena);
  held_free(&job->body);
  return code == 0 ? charge(job, job->report.capacity) : code;
}

static void run_job(lane_job_t *lane_job) {
  schema_job_t *job = (schema_job_t *)lane_job;
  if (atomic_load(&job->cancelled)) return; /* the client has disconnected */
  job->code = run(job);
}

static void destroy(schema_job_t *job) {
  job->server->live->jobs--;
  held_free(&job->body);
  buffer_free(&job->report);
  charge_drop(&job->values);
  free(job);
}

static void job_done(lane_job_t *lane_job) {
  schema_job_t *job = (schema_job_t *)lane_job;
  exchange_t *exchange = job->exchange;
  if (exchange != NULL && job->ignored[0] != '\0') {
    exchange_header(exchange, "x-inferd-ignored-params", job->ignored);
    metrics_ignored_params(job->server->metrics);
  }
  if (exchange != NULL && job->code != 0) {
    exchange_error(exchange, &job->error);
  } else if (exchange != NULL && job->report.failed) {
    reply_no_memory(exchange);
  } else if (exchange != NULL) {
    size_t length = 0;
    char *body = buffer_detach(&job->report, &length);
    exchange_reply(exchange, 200, "application/json", body, length);
  }
  destroy(job);
}

static void on_gone(exchange_t *exchange, const char *cause) {
  schema_job_t *job = exchange->user;
  (void)cause;
  job->exchange = NULL;
  atomic_store(&job->cancelled, true);
  if (lanes_withdraw(&job->job)) destroy(job);
}

/* What the operator has closed is closed here too: a check costs what a request would. */
static field_limits_t limits_of(const exchange_t *exchange) {
  const config_t *config = exchange->server->config;
  bool by_key = exchange->key != NULL && exchange->key->limits.grammar_off;
  unsigned closed = closed_kinds(config->disable_grammar.items, config->disable_grammar.count);
  return (field_limits_t){.strict = config->strict_params,
                          .closed = by_key ? CLOSED_ALL : closed,
                          .closed_by_key = by_key};
}

void api_check_schema(exchange_t *exchange) {
  server_t *server = exchange->server;
  if (engine_info(server->engine) == NULL) {
    inferd_error_t error;
    error_set(&error, ERR_MODEL_LOADING, NULL, "The model is still loading.");
    exchange_error(exchange, &error);
    return;
  }
  schema_job_t *job = calloc(1, sizeof *job);
  held_t body;
  if (job == NULL || !exchange_take_body(exchange, &body)) {
    free(job);
    reply_no_memory(exchange);
    return;
  }
  *job = (schema_job_t){
      .job = {.run = run_job, .done = job_done, .client = exchange->source, .kind = LANE_HEAVY},
      .server = server,
      .exchange = exchange,
      .body = body,
      .limits = limits_of(exchange),
      .values = charge_open(server->ledger, exchange->source, LEDGER_values)};
  job->account.cancelled = &job->cancelled;
  job->account.client = exchange->source;
  server->live->jobs++;
  exchange->user = job;
  exchange->on_gone = on_gone;
  lanes_submit(server->lanes, &job->job);
}
