/* kept.c: with --store: what an answer continues, and what is kept of it.
 *
 * An answer is kept with the items of its own request alone; its history is the chain of
 * `previous_response_id`, read again, oldest first, by who continues it. The prefix cache then has
 * the tokens of the whole of it.
 */
#include "server/responses/responses.h"

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
  static const char name[] =
      "previous_response_id"; /* an escape in it only costs the loop a read */
  const held_t *body = &completion->intake->body;
  return completion->server->store != NULL &&
         memmem(body->bytes, body->length, name, sizeof name - 1) != NULL;
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
    int code =
        store_find(completion->server->store, owner_of(completion), id, false, &stored, error);
    if (code == ERR_NOT_STORED)
      return error_set(error, ERR_PREVIOUS_NOT_FOUND, "previous_response_id",
                       "Previous response with id '%.150s' not found.", id);
    if (code != 0) return code;
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

int responses_history(const completion_t *completion, reader_t *reader, const json_t *previous,
                      charge_t *charge, buffer_t *items) {
  char id[STORE_ID_BYTES];
  stored_t *first = NULL;
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

/* Prints an item of the request as it is listed later: with an id and a type, and a message with
 * parts. */
static void print_item(buffer_t *out, const json_t *item) {
  const json_t *content = json_get(item, "content"), *role = json_get(item, "role");
  bool is_message =
      json_get(item, "type") == NULL || json_equals(json_get(item, "type"), "message");
  bool is_text = is_message && content != NULL && content->type == JSON_STRING;
  buffer_char(out, '{');
  if (json_get(item, "id") == NULL) {
    buffer_text(out, "\"id\":\"");
    dialect_print_id(out, is_message ? "msg_" : "item_");
    buffer_text(out, "\",");
  }
  if (json_get(item, "type") == NULL) buffer_text(out, "\"type\":\"message\",");
  if (json_get(item, "status") == NULL) buffer_text(out, "\"status\":\"completed\",");
  JSON_EACH(member, item) {
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

static void print_input(buffer_t *out, const json_t *input) {
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
    print_item(out, item);
  }
}

int responses_keep_input(const completion_t *completion, reader_t *reader,
                         const responses_fields_t *fields, responses_answer_t *response) {
  answer_store_t *store = completion->server->store;
  char problem[160];
  const json_t *previous = fields->previous;
  response->previous = "";
  if (previous != NULL) {
    char *copy = arena_calloc(reader->arena, previous->length + 1, 1);
    if (copy == NULL) return field_no_memory(reader);
    memcpy(copy, previous->text, previous->length);
    response->previous = copy;
  }
  if (store == NULL || !fields->store || completion->dialect->counts) return 0;
  store_problem(store, problem, sizeof problem);
  if (problem[0] != '\0' && (fields->store_is_given || fields->background))
    return error_set(reader->error, ERR_STORE_FAILED, "store",
                     "The store of this server cannot be written: %s.", problem);
  if (problem[0] != '\0') {
    field_name_ignored(reader->ignored, "store");
    return 0;
  }
  buffer_t id = {0};
  dialect_print_id(&id, "resp_");
  print_input(&response->input, fields->input);
  snprintf(response->id, sizeof response->id, "%.*s", (int)id.length, id.data);
  response->is_kept = true;
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
  memcpy(stored->owner, owner_of(completion), STORE_OWNER_BYTES);
  stored->created = completion->created;
  stored->input = response->input;
  response->input = (buffer_t){0};
  put->completion = completion;
  put->stored = stored;
  put->charge = charge_open(completion->server->ledger, completion->source, LEDGER_reply);
  return put;
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
  if (is_errand && exchange == NULL) { /* it was cancelled meanwhile */
    stored_free(put->stored);
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

static void put_run(lane_job_t *job) {
  while (put_print((put_t *)job)) continue;
}

static void put_done(lane_job_t *job) {
  completion_t *completion = ((put_t *)job)->completion;
  completions_t *live = completion->server->live;
  completions_enter(live);
  completion->settling = false;
  put_end((put_t *)job);
  completion_settled(completion);
  completions_leave(live);
}

bool responses_put(completion_t *completion, response_status_t status, const inferd_error_t *error,
                   bool may_wait) {
  responses_answer_t *response = completion->dialect_state;
  if (!response->is_kept || response->was_put) return false;
  put_t *put = put_new(completion);
  response->was_put = true;
  if (put == NULL) {
    store_lost(completion->server->store);
    response->is_kept = false;
    return false;
  }
  responses_print(&put->body, completion, status, error);
  bool more = put_print(put);
  if (more && may_wait) {
    put->job = (lane_job_t){.run = put_run, .done = put_done, .client = completion->source};
    completion->settling = true;
    lanes_submit(completion->server->lanes, &put->job);
    return true;
  }
  put->failed = put->failed || more;
  put_end(put);
  return false;
}
