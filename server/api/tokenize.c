/* tokenize.c: /tokenize and /detokenize.
 *
 * The loop thread receives the request and sends the answer; a job of the lanes parses and
 * tokenises. The job owns the body, so the client may disconnect at any time; its answer is then
 * dropped.
 */
#include "server/completion/chat.h"
#include "server/dialect/unfold.h"
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
  pictures_t pictures;
  const vision_t *vision; /* NULL = the model sees no pictures and hears no sounds */
  int32_t vocab_size, max_model_len;
  const tokenizer_t *tokenizer;
  atomic_bool cancelled;
  int code;
  inferd_error_t error;
  char ignored[IGNORED_NAMES_MAX]; /* names of unknown fields; "" = none */
  int32_t *tokens;                 /* of /tokenize, malloc'ed */
  char *text;                      /* of /detokenize, malloc'ed */
  size_t held;                     /* their bytes */
  cord_t reply;                    /* points to them */
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

static void print_id(buffer_t *out, const void *list, size_t index) {
  buffer_int(out, ((const tokenize_job_t *)list)->tokens[index]);
}

static void print_string(buffer_t *out, const void *list, size_t index) {
  const tokenize_job_t *job = list;
  size_t length;
  const uint8_t *spelling = tokenizer_spelling(job->tokenizer, job->tokens[index], &length);
  buffer_quote(out, (const char *)spelling, length);
}

static void print_tokens(tokenize_job_t *job, const tokenize_fields_t *fields, size_t count) {
  cord_t *out = &job->reply;
  buffer_text(&out->own, "{\"count\":");
  buffer_uint(&out->own, count);
  buffer_text(&out->own, ",\"max_model_len\":");
  buffer_int(&out->own, job->max_model_len);
  buffer_text(&out->own, ",\"tokens\":[");
  cord_items(out, print_id, job, count);
  if (fields->return_token_strs) {
    buffer_text(&out->own, "],\"token_strs\":[");
    cord_items(out, print_string, job, count);
    buffer_text(&out->own, "]}");
  } else {
    buffer_text(&out->own, "],\"token_strs\":null}");
  }
}

static int charge(tokenize_job_t *job, charge_t *charge, size_t bytes) {
  return charge_resize(charge, bytes) ? 0 : ledger_refuse(charge, &job->error);
}

/* What is answered later: pictures are fetched, then the job runs anew. */
enum { WAITS_FOR_MEDIA = 1 };

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
  if (code == 0 && chat->num_images > 0) {
    code = pictures_ask(&job->pictures, job->server->media, chat->messages, chat->num_images,
                        &job->error);
    if (code == 0 && media_job_waits(job->pictures.remote)) return WAITS_FOR_MEDIA;
  }
  if (code == 0 && chat->num_images > 0) {
    code =
        pictures_read(&job->pictures, job->vision, chat->messages, chat->num_images, &job->error);
  }
  if (code == 0) {
    code = chat_render_input(job->server->live, chat, rendered, &job->error);
  }
  if (code == 0) code = pictures_write(&job->pictures, rendered, &job->error);
  if (code == 0 && chat_ignores_effort(job->server->live, chat)) {
    field_name_ignored(job->ignored, "reasoning_effort");
  }
  *text = rendered->text;
  *length = rendered->length;
  return code;
}

static int encode_text(tokenize_job_t *job, const tokenize_options_t *options, const char *text,
                       size_t length, size_t *count) {
  completions_t *live = job->server->live;
  int code = charge(job, &job->ids, job->ids.bytes + tokenizer_memory(length, options));
  if (code != 0) return code;
  tokenizer_scratch_t *scratch = scratch_take(live, job->tokenizer);
  if (scratch == NULL) return error_set(&job->error, ERR_INTERNAL, NULL, "Out of memory.");
  uint64_t start = clock_now_ns();
  code = tokenizer_encode(job->tokenizer, scratch, text, length, options, &job->tokens, count,
                          &job->error);
  job->duration_ns = clock_now_ns() - start;
  job->bytes = length;
  scratch_give(live, scratch);
  return code;
}

static int encode(tokenize_job_t *job, tokenize_fields_t *fields) {
  jinja_output_t rendered = {0};
  const char *text = NULL;
  size_t length = 0, count = 0;
  int code = find_text(job, fields, &text, &length, &rendered);
  if (code != 0) return code;
  tokenize_options_t options = {.add_special_tokens = fields->add_special_tokens,
                                .ids_max = TOKENIZE_IDS_MAX + 1,
                                .word_max = TOKENIZER_WORD_MAX,
                                .cancelled = &job->cancelled};
  bool has_pictures = job->pictures.count > 0;
  chat_hide_specials(job->server, &rendered, has_pictures, &options);
  code = encode_text(job, &options, text, length, &count);
  if (rendered.text != NULL) jinja_output_free(&rendered);
  if (code == 0 && has_pictures && count < options.ids_max) {
    code = pictures_expand(&job->pictures, &job->tokens, &count, &job->error);
  }
  if (code != 0) return code;
  if (count > TOKENIZE_IDS_MAX) {
    const char *param = fields->prompt != NULL ? "prompt" : "messages";
    return error_set(&job->error, ERR_INVALID_VALUE, param,
                     "The text has more than %d tokens, which is the most that one request may "
                     "tokenize.",
                     TOKENIZE_IDS_MAX);
  }
  print_tokens(job, fields, count);
  job->held = count * sizeof *job->tokens;
  return 0;
}

static int decode(tokenize_job_t *job, const tokenize_fields_t *fields) {
  if (!fields->tokens.given) {
    return error_set(&job->error, ERR_MISSING_PARAMETER, "tokens",
                     "The 'tokens' must be provided.");
  }
  const int32_t *ids = fields->tokens.ids;
  size_t count = (size_t)fields->tokens.count, length = 0;
  size_t before = job->ids.bytes;
  int code = charge(job, &job->ids, before + tokenizer_decode_memory(job->tokenizer, ids, count));
  if (code != 0) return code;
  code = tokenizer_decode(job->tokenizer, ids, count, false, &job->text, &length, &job->error);
  if (code != 0) return code;
  buffer_text(&job->reply.own, "{\"prompt\":\"");
  cord_escape(&job->reply, job->text, length);
  buffer_text(&job->reply.own, "\"}");
  job->held = length + 1;
  return charge(job, &job->ids, before + job->held);
}

/* Puts the document of *text in the place of *doc. */
static int replace(tokenize_job_t *job, json_doc_t **doc, const buffer_t *text) {
  json_free(*doc);
  *doc = NULL;
  int code =
      charge(job, &job->values,
             text->capacity + json_memory_bound(text->data, text->length, &json_limits_translated));
  if (code != 0) return code;
  return json_parse(text->data, text->length, &json_limits_translated, doc, &job->error);
}

/* Puts a document with the messages mended in the place of *doc; its text is in one of `texts`. */
static int mend(tokenize_job_t *job, reader_t *reader, json_doc_t **doc, buffer_t texts[2]) {
  bool changed = false;
  const int32_t *origin = NULL;
  int code = chat_unfold(reader, json_root(*doc), &texts[0], &origin);
  if (code == 0 && origin != NULL) code = replace(job, doc, &texts[0]);
  if (code == 0) {
    code = history_mend(reader, &job->server->live->rules, json_root(*doc), true, origin, &texts[1],
                        &changed);
  }
  return code == 0 && changed ? replace(job, doc, &texts[1]) : code;
}

static int run(tokenize_job_t *job) {
  const field_table_t *table = job->decode ? &detokenize_table : &tokenize_table;
  const config_t *config = job->server->config;
  tokenize_fields_t fields = {0};
  field_limits_t limits = {.vocab_size = job->vocab_size,
                           .sees = job->vision != NULL && !job->vision->hears,
                           .hears = job->vision != NULL && job->vision->hears,
                           .images_max = (int32_t)config->limit_images,
                           .sounds_max = (int32_t)config->limit_audio,
                           .media = job->server->media,
                           .strict = config->strict_params,
                           .lenient = config->lenient_history};
  arena_t arena = {0};
  buffer_t mended[2] = {0};
  reader_t reader = {.out = &fields, .limits = &limits, .arena = &arena, .error = &job->error};
  json_doc_t *doc = NULL;
  const held_t *body = &job->body;
  size_t most = json_memory_bound(body->bytes, body->length, &json_limits_request);
  int code = charge(job, &job->values, most);
  if (code == 0) {
    code = json_parse(body->bytes, body->length, &json_limits_request, &doc, &job->error);
  }
  if (code == 0 && !job->decode) code = mend(job, &reader, &doc, mended);
  size_t texts = mended[0].capacity + mended[1].capacity;
  if (code == 0) code = charge(job, &job->values, json_memory(doc) + texts);
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
  buffer_free(&mended[0]);
  buffer_free(&mended[1]);
  arena_free(&arena);
  return code == 0 ? charge(job, &job->ids, job->held + cord_held(&job->reply)) : code;
}

/* Frees what is not needed to print the reply. */
static void forget_input(tokenize_job_t *job) {
  pictures_free(&job->pictures);
  held_free(&job->body);
  charge_drop(&job->values);
}

static void run_job(lane_job_t *lane_job) {
  tokenize_job_t *job = (tokenize_job_t *)lane_job;
  if (atomic_load(&job->cancelled)) return; /* the client has disconnected */
  job->code = run(job);
  if (job->code != WAITS_FOR_MEDIA) forget_input(job);
}

static void destroy(tokenize_job_t *job) {
  job->server->live->jobs--;
  forget_input(job);
  cord_free(&job->reply);
  free(job->tokens);
  free(job->text);
  charge_drop(&job->ids);
  free(job);
}

static bool print_reply(void *owner, buffer_t *out, size_t room) {
  tokenize_job_t *job = owner;
  return cord_print(&job->reply, out, room);
}

static void end_reply(void *owner) {
  destroy(owner);
}

static void on_media(void *owner) {
  tokenize_job_t *job = owner;
  lanes_submit(job->server->lanes, &job->job);
}

static void job_done(lane_job_t *lane_job) {
  tokenize_job_t *job = (tokenize_job_t *)lane_job;
  exchange_t *exchange = job->exchange;
  if (exchange != NULL && job->code == WAITS_FOR_MEDIA) {
    media_job_begin(job->pictures.remote, on_media, job);
    return;
  }
  if (job->bytes > 0) metrics_tokenize(job->server->metrics, job->bytes, job->duration_ns);
  if (exchange != NULL && job->ignored[0] != '\0') {
    exchange_header(exchange, "x-inferd-ignored-params", job->ignored);
    metrics_ignored_params(job->server->metrics);
  }
  if (exchange != NULL && job->code == 0 && !cord_failed(&job->reply)) {
    exchange_reply_pieces(exchange, "application/json", (pieces_t){print_reply, end_reply, job});
    return;
  }
  if (exchange != NULL && job->code != 0) {
    exchange_error(exchange, &job->error);
  } else if (exchange != NULL) {
    reply_no_memory(exchange);
  }
  destroy(job);
}

static void on_gone(exchange_t *exchange, const char *cause) {
  tokenize_job_t *job = exchange->user;
  (void)cause;
  job->exchange = NULL;
  atomic_store(&job->cancelled, true);
  if (lanes_withdraw(&job->job) || pictures_leave(&job->pictures)) destroy(job);
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
      .vision = info->vision != NULL ? info->vision : info->hearing,
      .pictures = pictures_open(server, exchange->source),
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
