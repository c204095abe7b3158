/* tokenize.c: /tokenize and /detokenize.
 *
 * The loop thread receives the request and sends the answer; a job of the lanes parses and
 * tokenises. The job owns the body, so the client may disconnect at any time; its answer is then
 * dropped.
 */
#include "server/completion/chat.h"
#include "server/fields/params_read.h"
#include "server/http/reply_json.h"

#include "engine/base/clock.h"
#include "engine/base/util.h"
#include "server/observe/metrics.h"

#include <stdlib.h>
#include <string.h>

/* The fields of both routes. */
typedef struct tokenize_fields {
  params_t chat; /* first member: the readers of chat fields write here */
  const json_t *model, *prompt;
  const char *of_messages; /* a field of the request that only `messages` may have; NULL = none */
  bool add_special_tokens, add_special_tokens_given, return_token_strs;
  id_list_t tokens;
} tokenize_fields_t;

/* Reads a field that chat requests have too, by the row of the chat table. */
static int read_chat_field(reader_t *reader, const field_t *field, const json_t *value) {
  tokenize_fields_t *fields = reader->out;
  if (strcmp(field->name, "messages") != 0) fields->of_messages = field->name;
  return field_read(reader, fields_find(&chat_table, field->name, strlen(field->name)), value);
}

static int read_add_special_tokens(reader_t *reader, const field_t *field, const json_t *value) {
  tokenize_fields_t *fields = reader->out;
  fields->add_special_tokens_given = true;
  if (json_bool(value, &fields->add_special_tokens)) return 0;
  return field_fail_type(reader, field->name, "a boolean", value);
}

typedef struct tokenize_job {
  lane_job_t job; /* first */
  server_t *server;
  exchange_t *exchange; /* NULL = the client disconnected */
  bool decode;          /* /detokenize */
  held_t body;
  charge_t values, ids; /* of the document, the rendered text; of the ids and the reader's arena */
  int32_t vocab_size, max_model_len;
  const tokenizer_t *tokenizer;
  atomic_bool cancelled;
  int code;
  inferd_error_t error;
  char ignored[IGNORED_NAMES_MAX]; /* names of unknown fields; "" = none */
  buffer_t reply;
  uint64_t duration_ns, bytes;
} tokenize_job_t;

#undef FIELDS_STRUCT
#define FIELDS_STRUCT tokenize_fields_t
static const field_t tokenize_rows[] = {
#include "server/fields/tokenize_fields.def"
};
static const field_t detokenize_rows[] = {
#include "server/fields/detokenize_fields.def"
};

const field_table_t tokenize_table = {tokenize_rows, ARRAY_LEN(tokenize_rows), NULL};
const field_table_t detokenize_table = {detokenize_rows, ARRAY_LEN(detokenize_rows), NULL};

static void print_tokens(tokenize_job_t *job, const tokenize_fields_t *fields, const int32_t *ids,
                         size_t count) {
  buffer_t *out = &job->reply;
  buffer_text(out, "{\"count\":");
  buffer_uint(out, count);
  buffer_text(out, ",\"max_model_len\":");
  buffer_int(out, job->max_model_len);
  buffer_text(out, ",\"tokens\":");
  buffer_ids(out, ids, count);
  buffer_text(out, ",\"token_strs\":");
  if (fields->return_token_strs) {
    buffer_char(out, '[');
    for (size_t i = 0; i < count; i++) {
      size_t length;
      const char *bytes = tokenizer_bytes(job->tokenizer, ids[i], &length);
      if (i != 0) buffer_char(out, ',');
      buffer_quote(out, bytes, length);
    }
    buffer_char(out, ']');
  } else {
    buffer_text(out, "null");
  }
  buffer_char(out, '}');
}

static int charge(tokenize_job_t *job, charge_t *charge, size_t bytes) {
  return charge_resize(charge, bytes) ? 0 : ledger_refuse(charge, &job->error);
}

/* Finds the text of a prompt, or renders the messages with the template. */
static int find_text(tokenize_job_t *job, tokenize_fields_t *fields, const char **text,
                     size_t *length, jinja_output_t *rendered) {
  chat_params_t *chat = &fields->chat.chat;
  if (chat->messages != NULL && fields->prompt != NULL) {
    return error_set(&job->error, ERR_INVALID_VALUE, "prompt",
                     "Only one of 'prompt' and 'messages' is possible.");
  }
  if (chat->messages == NULL && fields->prompt == NULL) {
    return error_set(&job->error, ERR_MISSING_PARAMETER, "prompt",
                     "The 'prompt' or the 'messages' must be provided.");
  }
  if (fields->prompt != NULL && fields->of_messages != NULL) {
    return error_set(&job->error, ERR_UNSUPPORTED_PARAMETER, fields->of_messages,
                     "The parameter '%s' is not supported for a 'prompt'; use 'messages'.",
                     fields->of_messages);
  }
  if (fields->prompt != NULL) {
    *text = fields->prompt->text;
    *length = fields->prompt->length;
    if (!fields->add_special_tokens_given) fields->add_special_tokens = true;
    return 0;
  }
  int code = params_read_chat(&fields->chat, &job->error);
  if (code == 0) code = params_check_chat(&fields->chat, &job->error);
  if (code == 0) code = chat_render_input(job->server->live, chat, rendered, &job->error);
  *text = rendered->text;
  *length = rendered->length;
  return code;
}

static int encode(tokenize_job_t *job, tokenize_fields_t *fields) {
  completions_t *live = job->server->live;
  jinja_output_t rendered = {0};
  const char *text = NULL;
  size_t length = 0, count = 0;
  int code = find_text(job, fields, &text, &length, &rendered);
  if (code != 0) return code;
  tokenize_options_t options = {.add_special_tokens = fields->add_special_tokens,
                                .cancelled = &job->cancelled};
  chat_hide_specials(job->server, &rendered, &options);
  tokenizer_scratch_t *scratch = scratch_take(live, job->tokenizer);
  int32_t *ids = NULL;
  uint64_t start = clock_now_ns();
  if (scratch == NULL) {
    code = error_set(&job->error, ERR_INTERNAL, NULL, "Out of memory.");
  } else {
    code = tokenizer_encode(job->tokenizer, scratch, text, length, &options, &ids, &count,
                            &job->error);
  }
  job->duration_ns = clock_now_ns() - start;
  job->bytes = length;
  scratch_give(live, scratch);
  if (code == 0) print_tokens(job, fields, ids, count);
  free(ids);
  if (rendered.text != NULL) jinja_output_free(&rendered);
  return code;
}

static int decode(tokenize_job_t *job, const tokenize_fields_t *fields) {
  if (!fields->tokens.given) {
    return error_set(&job->error, ERR_MISSING_PARAMETER, "tokens",
                     "The 'tokens' must be provided.");
  }
  char *text = NULL;
  size_t length = 0;
  int code = tokenizer_decode(job->tokenizer, fields->tokens.ids, (size_t)fields->tokens.count,
                              false, &text, &length, &job->error);
  if (code != 0) return code;
  buffer_text(&job->reply, "{\"prompt\":");
  buffer_quote(&job->reply, text, length);
  buffer_char(&job->reply, '}');
  free(text);
  return 0;
}

static int run(tokenize_job_t *job) {
  const field_table_t *table = job->decode ? &detokenize_table : &tokenize_table;
  const config_t *config = job->server->config;
  tokenize_fields_t fields = {0};
  field_limits_t limits = {.vocab_size = job->vocab_size, .strict = config->strict_params};
  arena_t arena = {0};
  reader_t reader = {.out = &fields, .limits = &limits, .arena = &arena, .error = &job->error};
  json_doc_t *doc = NULL;
  const held_t *body = &job->body;
  size_t most = json_memory_bound(body->bytes, body->length, &json_limits_request);
  int code = charge(job, &job->values, most);
  if (code == 0) {
    code = json_parse(body->bytes, body->length, &json_limits_request, &doc, &job->error);
  }
  if (code == 0) code = charge(job, &job->values, json_memory(doc));
  if (code == 0) {
    fields_default(&chat_table, &fields);
    fields_default(table, &fields);
    code = fields_read(table, &reader, json_root(doc));
    memcpy(job->ignored, reader.ignored, sizeof job->ignored);
  }
  if (code == 0) code = charge(job, &job->ids, arena.held);
  if (code == 0) {
    code = model_check(job->server->live, config->any_model, fields.model, &job->error);
  }
  if (code == 0) code = job->decode ? decode(job, &fields) : encode(job, &fields);
  json_free(doc);
  arena_free(&arena);
  return code;
}

static void run_job(lane_job_t *lane_job) {
  tokenize_job_t *job = (tokenize_job_t *)lane_job;
  if (atomic_load(&job->cancelled)) return; /* nobody is left who wants the answer */
  job->code = run(job);
}

static void destroy(tokenize_job_t *job) {
  job->server->live->jobs--;
  buffer_free(&job->reply);
  held_free(&job->body);
  charge_drop(&job->values);
  charge_drop(&job->ids);
  free(job);
}

static void job_done(lane_job_t *lane_job) {
  tokenize_job_t *job = (tokenize_job_t *)lane_job;
  exchange_t *exchange = job->exchange;
  if (job->bytes > 0) metrics_tokenize(job->server->metrics, job->bytes, job->duration_ns);
  if (exchange != NULL && job->ignored[0] != '\0') {
    exchange_header(exchange, "x-inferd-ignored-params", job->ignored);
    metrics_ignored_params(job->server->metrics);
  }
  if (exchange != NULL && job->code != 0) {
    exchange_error(exchange, &job->error);
  } else if (exchange != NULL) {
    size_t length;
    char *body = buffer_detach(&job->reply, &length);
    if (body != NULL) {
      exchange_reply(exchange, 200, "application/json", body, length);
    } else {
      reply_no_memory(exchange);
    }
  }
  destroy(job);
}

static void on_gone(exchange_t *exchange, const char *cause) {
  tokenize_job_t *job = exchange->user;
  (void)cause;
  job->exchange = NULL;
  atomic_store(&job->cancelled, true);
  if (lanes_withdraw(&job->job)) destroy(job);
}

static void start(exchange_t *exchange, bool decode_ids) {
  server_t *server = exchange->server;
  const engine_info_t *info = engine_info(server->engine);
  if (info == NULL) {
    inferd_error_t error;
    error_set(&error, ERR_MODEL_LOADING, NULL, "The model is still loading.");
    exchange_error(exchange, &error);
    return;
  }
  chat_model_ready(server->live, server->config, engine_tokenizer(server->engine));
  tokenize_job_t *job = calloc(1, sizeof *job);
  held_t body;
  if (job == NULL || !exchange_take_body(exchange, &body)) {
    free(job);
    reply_no_memory(exchange);
    return;
  }
  lane_kind_t kind = body.length <= POOL_BODY_BYTES ? LANE_LIGHT : LANE_HEAVY;
  *job = (tokenize_job_t){
      .job = {.run = run_job, .done = job_done, .client = exchange->source, .kind = kind},
      .server = server,
      .exchange = exchange,
      .decode = decode_ids,
      .body = body,
      .vocab_size = info->vocab_size,
      .max_model_len = info->max_model_len,
      .tokenizer = engine_tokenizer(server->engine),
      .values = charge_open(server->ledger, exchange->source, LEDGER_values),
      .ids = charge_open(server->ledger, exchange->source, LEDGER_ids)};
  server->live->jobs++;
  exchange->user = job;
  exchange->on_gone = on_gone;
  lanes_submit(server->lanes, &job->job);
}

void api_tokenize(exchange_t *exchange) {
  start(exchange, false);
}

void api_detokenize(exchange_t *exchange) {
  start(exchange, true);
}
