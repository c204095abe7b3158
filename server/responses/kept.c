/* kept.c: with --store: what an answer continues, and what is kept of it.
 *
 * A job of the lanes waits for the disk, never the loop thread. An answer is kept with the items of
 * its own request alone; its history is the chain of `previous_response_id`, read again, oldest
 * first, by who continues it. The prefix cache then has the tokens of the whole of it. A
 * conversation has its items itself: an answer that ends appends those of its request and of its
 * output, all at once, before the client hears of the end. Behind a parent of several models every
 * answer is written by then: who continues it may ask another process.
 */
#include "server/responses/responses.h"

#include "engine/base/util.h"
#include "engine/journal/recipe.h"
#include "server/responses/background.h"
#include "server/store/store.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

const json_limits_t responses_kept_limits = {
    .depth_max = 128, .values_max = 64000000, .key_bytes_max = 65536, .mend_text = true};

static const uint8_t *owner_of(const completion_t *completion) {
  static const uint8_t nobody[STORE_OWNER_BYTES];
  return completion->key != NULL ? completion->key->digest : nobody;
}
_Static_assert((int)STORE_OWNER_BYTES == (int)KEY_DIGEST_BYTES, "an owner is a key");

bool responses_waits(const completion_t *completion) {
  static const char *const names[] = {"previous_response_id", "\"conversation\""};
  const held_t *body = &completion->intake->body;
  for (size_t i = 0; i < ARRAY_LEN(names) && completion->server->store != NULL; i++) {
    /* an escape in a name only costs the loop a read */
    if (memmem(body->bytes, body->length, names[i], strlen(names[i])) != NULL) return true;
  }
  return false;
}

/* ---- the history ---- */

static void append_items(buffer_t *items, const char *text, size_t length) {
  if (length == 0) return;
  if (items->length > 1) buffer_char(items, ',');
  buffer_append(items, text, length);
}

/* Appends the items of an answer's output. */
static int append_output(reader_t *reader, const stored_t *stored, buffer_t *items) {
  json_doc_t *doc = NULL;
  inferd_error_t why;
  int code = json_parse(stored->body.data, stored->body.length, &responses_kept_limits, &doc, &why);
  if (code != 0)
    return error_set(reader->error, ERR_STORE_FAILED, "previous_response_id",
                     "The store of this server has a damaged answer '%.150s': %.200s", stored->id,
                     why.message);
  JSON_EACH(item, json_get(json_root(doc), "output")) {
    if (items->length > 1) buffer_char(items, ',');
    json_print(items, item);
  }
  json_free(doc);
  return 0;
}

/* Finds the answer and those before it; *first is the oldest. */
static int find_chain(const completion_t *completion, const char *id, charge_t *charge,
                      stored_t **first, inferd_error_t *error) {
  const int64_t bytes_max = completion->server->config->max_body_bytes;
  int64_t bytes = 0;
  for (int32_t count = 0; id[0] != '\0'; count++) {
    stored_t *stored = NULL;
    bool is_answer = strncmp(id, "resp_", 5) == 0;
    int code = !is_answer ? ERR_NOT_STORED
                          : store_find(completion->server->store, owner_of(completion), id, false,
                                       &stored, error);
    if (code == ERR_NOT_STORED)
      return error_set(error, ERR_PREVIOUS_NOT_FOUND, "previous_response_id",
                       "Previous response with id '%.150s' not found.", id);
    if (code != 0) return code;
    if (stored->conversation[0] != '\0') {
      error_set(error, ERR_INVALID_VALUE, "previous_response_id",
                "Invalid 'previous_response_id': '%.150s' belongs to the conversation '%.150s'; "
                "continue that by 'conversation'.",
                id, stored->conversation);
      stored_free(stored);
      return ERR_INVALID_VALUE;
    }
    if (stored->state == STORED_WAITING) {
      stored_free(stored);
      return error_set(error, ERR_INVALID_VALUE, "previous_response_id",
                       "Invalid 'previous_response_id': the response '%.150s' has not ended.", id);
    }
    stored->next = *first;
    *first = stored;
    id = stored->previous;
    bytes += (int64_t)(stored->input.length + stored->body.length);
    if (!charge_resize(charge, 2 * (size_t)bytes)) return ledger_refuse(charge, error);
    if (count < STORE_CHAIN_MAX && bytes <= bytes_max) continue;
    return error_set(error, ERR_INVALID_VALUE, "previous_response_id",
                     "Invalid 'previous_response_id': with the answers before it, it has more than "
                     "%d answers or %" PRId64 " bytes (--max-body-bytes).",
                     (int)STORE_CHAIN_MAX, bytes_max);
  }
  return 0;
}

/* The items of a conversation, while they are read. */
typedef struct taken {
  buffer_t *items;
  charge_t *charge;
  size_t bytes_max;
  bool full, refused; /* full: they have more than bytes_max; refused: by the ledger */
} taken_t;

static bool take_item(void *context, const char *id, const char *body, size_t length) {
  taken_t *taken = context;
  (void)id;
  append_items(taken->items, body, length);
  taken->full = taken->items->length > taken->bytes_max;
  taken->refused = !charge_resize(taken->charge, taken->items->capacity);
  return !taken->full && !taken->refused && !taken->items->failed;
}

static int conversation_history(const completion_t *completion, reader_t *reader,
                                const json_t *conversation, charge_t *charge, buffer_t *items) {
  char id[STORE_ID_BYTES] = "";
  inferd_error_t *error = reader->error;
  const store_page_t all = {.limit = INT64_MAX, .ascending = true};
  taken_t taken = {.items = items,
                   .charge = charge,
                   .bytes_max = (size_t)completion->server->config->max_body_bytes};
  bool is_id = conversation->length < sizeof id && conversation->length > 5 &&
               memcmp(conversation->text, "conv_", 5) == 0 &&
               memchr(conversation->text, '\0', conversation->length) == NULL;
  if (!is_id)
    return error_set(error, ERR_NO_SUCH_OBJECT, "conversation",
                     "Conversation not found: an id "
                     "begins with 'conv_' and has at most %d bytes.",
                     (int)sizeof id - 1);
  memcpy(id, conversation->text, conversation->length);
  buffer_char(items, '[');
  int code = store_items(completion->server->store, owner_of(completion), id, &all, take_item,
                         &taken, error);
  if (code == ERR_NO_SUCH_OBJECT) snprintf(error->param, sizeof error->param, "conversation");
  if (code == 0 && taken.full)
    code = error_set(error, ERR_INVALID_VALUE, "conversation",
                     "Invalid 'conversation': its items have more than %zu bytes "
                     "(--max-body-bytes).",
                     taken.bytes_max);
  if (code == 0 && taken.refused) code = ledger_refuse(charge, error);
  buffer_char(items, ']');
  return code == 0 && items->failed ? field_no_memory(reader) : code;
}

int responses_history(const completion_t *completion, reader_t *reader,
                      const responses_fields_t *fields, charge_t *charge, buffer_t *items) {
  char id[STORE_ID_BYTES];
  stored_t *first = NULL;
  const json_t *previous = fields->previous;
  if (fields->conversation != NULL)
    return conversation_history(completion, reader, fields->conversation, charge, items);
  if (previous->length >= sizeof id || memchr(previous->text, '\0', previous->length) != NULL)
    return error_set(reader->error, ERR_PREVIOUS_NOT_FOUND, "previous_response_id",
                     "Previous response not found: an id has at most %d bytes.",
                     (int)sizeof id - 1);
  snprintf(id, sizeof id, "%.*s", (int)previous->length, previous->text);
  int code = find_chain(completion, id, charge, &first, reader->error);
  buffer_char(items, '[');
  for (stored_t *next; first != NULL; first = next) {
    next = first->next;
    append_items(items, first->input.data, first->input.length);
    if (code == 0) code = append_output(reader, first, items);
    stored_free(first);
  }
  buffer_char(items, ']');
  return code == 0 && items->failed ? field_no_memory(reader) : code;
}

/* ---- what is kept ---- */

void responses_print_kept(buffer_t *out, const json_t *item, bool fresh) {
  const json_t *content = json_get(item, "content"), *role = json_get(item, "role");
  bool is_message =
      json_get(item, "type") == NULL || json_equals(json_get(item, "type"), "message");
  bool is_text = is_message && content != NULL && content->type == JSON_STRING;
  buffer_char(out, '{');
  fresh = fresh || json_get(item, "id") == NULL;
  if (fresh) {
    buffer_text(out, "\"id\":\"");
    dialect_print_id(out, is_message ? "msg_" : "item_");
    buffer_text(out, "\",");
  }
  if (json_get(item, "type") == NULL) buffer_text(out, "\"type\":\"message\",");
  if (json_get(item, "status") == NULL) buffer_text(out, "\"status\":\"completed\",");
  JSON_EACH(member, item) {
    if (fresh && json_named(member, "id")) continue;
    buffer_quote(out, member->key, member->key_length);
    buffer_char(out, ':');
    if (is_text && member == content) {
      buffer_text(out, json_equals(role, "assistant") ? "[{\"type\":\"output_text\",\"text\":"
                                                      : "[{\"type\":\"input_text\",\"text\":");
      json_print(out, content);
      buffer_text(out, "}]");
    } else {
      json_print(out, member);
    }
    buffer_char(out, ',');
  }
  if (!out->failed) out->length--; /* the last comma */
  buffer_char(out, '}');
}

static void print_input(buffer_t *out, const json_t *input, bool fresh) {
  if (input->type == JSON_STRING) {
    buffer_text(out, "{\"id\":\"");
    dialect_print_id(out, "msg_");
    buffer_text(out, "\",\"type\":\"message\",\"status\":\"completed\",\"role\":\"user\","
                     "\"content\":[{\"type\":\"input_text\",\"text\":");
    json_print(out, input);
    buffer_text(out, "}]}");
    return;
  }
  JSON_EACH(item, input) {
    if (out->length > 0) buffer_char(out, ',');
    responses_print_kept(out, item, fresh);
  }
}

bool responses_split(stored_t *stored, const json_t *items) {
  stored_item_t **link = &stored->items;
  while (*link != NULL) link = &(*link)->next;
  JSON_EACH(item, items) {
    const json_t *id = json_get(item, "id");
    stored_item_t *one = calloc(1, sizeof *one);
    if (one == NULL) return false;
    *link = one;
    link = &one->next;
    json_print(&one->body, item);
    if (id != NULL && id->type == JSON_STRING)
      snprintf(one->id, sizeof one->id, "%.*s", (int)id->length, id->text);
    if (one->body.failed) return false;
  }
  return true;
}

/* Copies an id into the arena; "" for NULL. */
static const char *copy_id(arena_t *arena, const json_t *id) {
  if (id == NULL) return "";
  char *copy = arena_calloc(arena, id->length + 1, 1);
  if (copy != NULL) memcpy(copy, id->text, id->length);
  return copy;
}

int responses_keep_input(const completion_t *completion, reader_t *reader,
                         const responses_fields_t *fields, responses_answer_t *response) {
  answer_store_t *store = completion->server->store;
  char problem[160];
  bool joins = fields->conversation != NULL;
  response->previous = copy_id(reader->arena, fields->previous);
  response->conversation = copy_id(reader->arena, fields->conversation);
  if (response->previous == NULL || response->conversation == NULL) return field_no_memory(reader);
  if (store == NULL || (!fields->store && !joins) || completion->dialect->counts) return 0;
  store_problem(store, problem, sizeof problem);
  if (problem[0] != '\0' && (fields->store_is_given || fields->background || joins))
    return error_set(reader->error, ERR_STORE_FAILED, "store",
                     "The store of this server cannot be written: %s.", problem);
  if (problem[0] != '\0') {
    field_name_ignored(reader->ignored, "store");
    return 0;
  }
  buffer_t id = {0};
  dialect_print_id(&id, "resp_");
  print_input(&response->input, fields->input, joins);
  snprintf(response->id, sizeof response->id, "%.*s", (int)id.length, id.data);
  response->is_kept = fields->store;
  bool failed = id.failed || response->input.failed;
  buffer_free(&id);
  return failed ? field_no_memory(reader) : 0;
}

/* An answer on its way into the store. */
typedef struct put {
  lane_job_t job; /* first */
  completion_t *completion;
  stored_t *stored;
  cord_t body; /* points into the completion */
  charge_t charge;
  bool failed; /* memory is short */
  bool joins;  /* items go to a conversation, and the client hears of it */
  bool waits;  /* the client hears of the end once it is written: another process may be asked */
  int code;    /* of these two */
  inferd_error_t error;
} put_t;

static put_t *put_new(completion_t *completion) {
  responses_answer_t *response = completion->dialect_state;
  put_t *put = calloc(1, sizeof *put);
  stored_t *stored = calloc(1, sizeof *stored);
  if (put == NULL || stored == NULL) {
    free(put);
    free(stored);
    return NULL;
  }
  snprintf(stored->id, sizeof stored->id, "%s", response->id);
  snprintf(stored->previous, sizeof stored->previous, "%s", response->previous);
  snprintf(stored->conversation, sizeof stored->conversation, "%s", response->conversation);
  memcpy(stored->owner, owner_of(completion), STORE_OWNER_BYTES);
  stored->created = completion->created;
  stored->input = response->input;
  response->input = (buffer_t){0};
  put->completion = completion;
  put->stored = stored;
  put->charge = charge_open(completion->server->ledger, completion->source, LEDGER_reply);
  return put;
}

void responses_drawn(choice_t *choice, const event_t *event) {
  const completion_t *completion = choice->input->completion;
  responses_answer_t *response = completion->dialect_state;
  if (response->is_kept && completion->server->engine_text.length > 0)
    recipe_add_token(&response->drawn, event);
}

static bool has_long_prompt(const completion_t *completion) {
  return completion->inputs[0].request.num_prompt_tokens > PUT_TURN_TOKENS;
}

/* Writes how to make the answer again. One for which memory is short is kept without. */
static void put_recipe(put_t *put) {
  const completion_t *completion = put->completion;
  const responses_answer_t *response = completion->dialect_state;
  const choice_t *choice = &completion->choices[0];
  const buffer_t *text = &completion->server->engine_text;
  buffer_t *recipe = &put->stored->recipe;
  if (!response->is_kept || text->length == 0 || response->drawn.failed) return;
  recipe_write(recipe, text, &completion->inputs[0].request, &response->drawn, choice->num_tokens,
               choice->finish);
  bool fits = charge_resize(&put->charge, put->stored->body.capacity + recipe->capacity);
  if (recipe->failed || !fits) buffer_free(recipe);
}

/* Prints on. Returns whether more is left. */
static bool put_print(put_t *put) {
  buffer_t *body = &put->stored->body;
  bool more = cord_print(&put->body, body, PUT_TURN_BYTES);
  put->failed = put->failed || cord_failed(&put->body) || body->failed ||
                !charge_resize(&put->charge, body->capacity);
  return more && !put->failed;
}

static void put_end(put_t *put) {
  responses_answer_t *response = put->completion->dialect_state;
  answer_store_t *store = put->completion->server->store;
  exchange_t *exchange = put->completion->exchange;
  bool is_errand = put->completion->dialect == &responses_background;
  if ((is_errand && exchange == NULL) || (!is_errand && put->joins)) {
    stored_free(put->stored); /* it was cancelled meanwhile, or written */
  } else if (put->waits && !put->failed) {
    response->is_kept = put->code == 0; /* it was written, or freed */
  } else if (is_errand && !put->failed) {
    background_put(exchange, put->stored);
  } else if (put->failed) {
    stored_free(put->stored);
    if (is_errand) {
      inferd_error_t error;
      ledger_refuse(&put->charge, &error);
      background_fail(exchange, &error);
    }
    store_lost(store);
    response->is_kept = false;
  } else {
    response->is_kept = store_put(store, put->stored);
  }
  cord_free(&put->body);
  charge_drop(&put->charge);
  free(put);
}

/* Parses JSON that the server has printed, and appends its items to those of the conversation. */
static bool split_text(put_t *put, const char *text, size_t length, const char *member) {
  json_doc_t *doc = NULL;
  inferd_error_t why;
  size_t most = json_memory_bound(text, length, &responses_kept_limits);
  size_t had = put->stored->body.capacity + put->stored->recipe.capacity;
  bool good = charge_resize(&put->charge, had + most) &&
              json_parse(text, length, &responses_kept_limits, &doc, &why) == 0;
  const json_t *root = good ? json_root(doc) : NULL;
  good = good && responses_split(put->stored, member != NULL ? json_get(root, member) : root);
  json_free(doc);
  return good;
}

/* Appends the items of the request and of the output to the conversation. What the store does not
 * take is an error of the answer: the client would take it for a part of the conversation. */
static void put_join(put_t *put) {
  stored_t *stored = put->stored;
  answer_store_t *store = put->completion->server->store;
  buffer_t input = {0};
  buffer_char(&input, '[');
  buffer_append(&input, stored->input.data, stored->input.length);
  buffer_char(&input, ']');
  put->failed = put->failed || input.failed || !split_text(put, input.data, input.length, NULL) ||
                !split_text(put, stored->body.data, stored->body.length, "output");
  buffer_free(&input);
  if (put->completion->dialect == &responses_background) return; /* put with its events */
  if (put->failed) {
    put->code = error_set(&put->error, ERR_OVERLOADED, NULL,
                          "The items of this response do not fit into memory.");
    return;
  }
  if (!((responses_answer_t *)put->completion->dialect_state)->is_kept) {
    stored->state = STORED_ITEMS;
    buffer_free(&stored->body);
    buffer_free(&stored->input);
    buffer_free(&stored->recipe);
  }
  put->stored = NULL;
  put->code = store_put_and_wait(store, stored, &put->error);
}

static void put_run(lane_job_t *job) {
  put_t *put = (put_t *)job;
  while (put_print(put)) continue;
  if (!put->failed) put_recipe(put);
  if (put->joins)
    put_join(put);
  else if (put->waits && !put->failed)
    put->code = store_put_and_wait(put->completion->server->store, put->stored, &put->error);
}

static void put_done(lane_job_t *job) {
  put_t *put = (put_t *)job;
  completion_t *completion = put->completion;
  completions_t *live = completion->server->live;
  completions_enter(live);
  completion->settling = false;
  inferd_error_t error = put->error;
  bool failed = put->joins && put->code != 0;
  if (failed) ((responses_answer_t *)completion->dialect_state)->is_kept = false;
  put_end(put);
  if (failed && completion->exchange != NULL) {
    completion_fail(completion, &error);
    completion_release(completion);
  } else {
    completion_settled(completion);
  }
  completions_leave(live);
}

bool responses_put(completion_t *completion, response_status_t status, const inferd_error_t *error,
                   bool may_wait) {
  responses_answer_t *response = completion->dialect_state;
  bool joins = response->conversation[0] != '\0' && error == NULL && may_wait;
  if ((!response->is_kept && !joins) || response->was_put) return false;
  put_t *put = put_new(completion);
  response->was_put = true;
  if (put == NULL) {
    store_lost(completion->server->store);
    response->is_kept = false;
    return false;
  }
  responses_print(&put->body, completion, status, error);
  put->joins = joins;
  put->waits = !joins && may_wait && completion->server->behind;
  bool more = put_print(put);
  if ((more || joins || put->waits || has_long_prompt(completion)) && may_wait) {
    put->job = (lane_job_t){.run = put_run, .done = put_done, .client = completion->source};
    completion->settling = true;
    lanes_submit(completion->server->lanes, &put->job);
    return true;
  }
  put->failed = put->failed || more;
  if (error == NULL && !put->failed) put_recipe(put);
  put_end(put);
  return false;
}
