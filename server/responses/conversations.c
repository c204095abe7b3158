/* conversations.c: /v1/conversations, with --store: what several answers belong to.
 *
 * The loop thread receives the request and sends the answer; a job of the lanes waits for the disk.
 * Items are those of /v1/responses, and are checked as `input` is there. Answers append theirs
 * themselves (kept.c).
 */
#include "server/completion/reply_job.h"
#include "server/fields/params_read.h"
#include "server/responses/responses.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ITEMS_ONCE_MAX = 20 };

typedef enum conversation_action {
  CREATE,
  GET_IT,
  UPDATE,
  REMOVE,
  LIST_ITEMS,
  GET_ITEM,
  APPEND_ITEMS,
  REMOVE_ITEM
} conversation_action_t;

typedef struct conversation_fields {
  const json_t *metadata; /* first; NULL = not given, as the other */
  const json_t *items;
} conversation_fields_t;

typedef struct conversation_job {
  reply_job_t base; /* first */
  conversation_action_t action;
  char id[STORE_ID_BYTES], item[STORE_ID_BYTES];
  list_page_t page;
  field_limits_t limits;
} conversation_job_t;

/* ---- fields ---- */

static int read_items(reader_t *reader, const field_t *field, const json_t *value) {
  if (value->type != JSON_ARRAY) return field_fail_type(reader, field->name, "an array", value);
  ((conversation_fields_t *)reader->out)->items = value;
  if (value->count <= ITEMS_ONCE_MAX) return 0;
  return error_set(reader->error, ERR_INVALID_VALUE, field->name,
                   "Invalid 'items': at most %d items may come at once, these are %u.",
                   ITEMS_ONCE_MAX, (unsigned)value->count);
}

#undef FIELDS_STRUCT
#define FIELDS_STRUCT conversation_fields_t
static const field_t rows[] = {
#include "server/fields/conversation_fields.def"
};

static const field_table_t table = {rows, ARRAY_LEN(rows), NULL};

/* Items must be such that an answer can follow them. */
static int check_items(reader_t *reader, const json_t *items) {
  responses_fields_t fields = {.input = items, .alone = true};
  chat_body_t body;
  buffer_t chat = {0};
  int index = 0;
  JSON_EACH(item, items) {
    char place[32];
    snprintf(place, sizeof place, "items[%d]", index++);
    if (item->type != JSON_OBJECT) return field_fail_type(reader, place, "an object", item);
  }
  chat_body_begin(&body, &chat, true);
  int code = responses_messages(&fields, reader, &body);
  chat_body_end(&body);
  if (code == 0 && chat.failed) code = field_no_memory(reader);
  buffer_free(&chat);
  return code;
}

/* ---- what is answered ---- */

static void print_conversation(buffer_t *out, const char *id, int64_t created,
                               const json_t *metadata) {
  buffer_text(out, "{\"id\":");
  buffer_quote(out, id, strlen(id));
  buffer_text(out, ",\"object\":\"conversation\",\"created_at\":");
  buffer_int(out, created);
  buffer_text(out, ",\"metadata\":");
  if (metadata != NULL)
    json_print(out, metadata);
  else
    buffer_text(out, "{}");
  buffer_char(out, '}');
}

/* One item of a list; beyond the page it only says that there is more. */
static bool print_item(void *context, const char *id, const char *body, size_t length) {
  conversation_job_t *job = context;
  buffer_t *out = &job->base.reply;
  if (!list_takes(&job->page, out, id)) return false;
  buffer_append(out, body, length);
  job->base.code = reply_job_charge(&job->base, out->capacity);
  return job->base.code == 0;
}

static int list_items(conversation_job_t *job) {
  reply_job_t *base = &job->base;
  store_page_t page = {.limit = job->page.limit + 1, .ascending = job->page.ascending};
  snprintf(page.after, sizeof page.after, "%s", job->page.after);
  list_begin(&base->reply);
  int code =
      store_items(base->server->store, base->owner, job->id, &page, print_item, job, &base->error);
  list_end(&job->page, &base->reply);
  return code != 0 ? code : base->code;
}

static void print_deleted(conversation_job_t *job) {
  buffer_text(&job->base.reply, "{\"id\":");
  buffer_quote(&job->base.reply, job->id, strlen(job->id));
  buffer_text(&job->base.reply, ",\"object\":\"conversation.deleted\",\"deleted\":true}");
}

static int print_found(conversation_job_t *job) {
  reply_job_t *base = &job->base;
  stored_t *stored = NULL;
  int code = store_find(base->server->store, base->owner, job->id, false, &stored, &base->error);
  if (code != 0) return code;
  buffer_append(&base->reply, stored->body.data, stored->body.length);
  stored_free(stored);
  return 0;
}

/* ---- what is written ---- */

/* Prints the items of a request, each with an id, and hands them to the list that is appended. */
static bool take_items(reply_job_t *base, const json_t *items, stored_t *stored, buffer_t *text) {
  json_doc_t *doc = NULL;
  inferd_error_t why;
  buffer_char(text, '[');
  JSON_EACH(item, items) {
    if (text->length > 1) buffer_char(text, ',');
    responses_print_kept(text, item, true);
  }
  buffer_char(text, ']');
  size_t most = base->charge.bytes + text->capacity +
                json_memory_bound(text->data, text->length, &responses_kept_limits);
  bool good = !text->failed && charge_resize(&base->charge, most) &&
              json_parse(text->data, text->length, &responses_kept_limits, &doc, &why) == 0 &&
              responses_split(stored, json_root(doc));
  json_free(doc);
  return good;
}

/* A conversation, or items for one. NULL: memory is short. */
static stored_t *new_row(const conversation_job_t *job, const conversation_fields_t *fields) {
  stored_t *row = calloc(1, sizeof *row);
  if (row == NULL) return NULL;
  row->created = (int64_t)time(NULL);
  row->state = job->action == APPEND_ITEMS ? STORED_ITEMS : STORED_CONVERSATION;
  memcpy(row->owner, job->base.owner, STORE_OWNER_BYTES);
  snprintf(row->conversation, sizeof row->conversation, "%s", job->id);
  if (row->state == STORED_ITEMS) return row;
  snprintf(row->id, sizeof row->id, "%s", job->id);
  print_conversation(&row->body, job->id, row->created, fields->metadata);
  return row;
}

static int create(conversation_job_t *job, const conversation_fields_t *fields) {
  reply_job_t *base = &job->base;
  buffer_t id = {0}, text = {0};
  dialect_print_id(&id, "conv_");
  if (job->action == CREATE) snprintf(job->id, sizeof job->id, "%.*s", (int)id.length, id.data);
  stored_t *row = new_row(job, fields);
  bool good = !id.failed && row != NULL;
  good = good && (fields->items == NULL || take_items(base, fields->items, row, &text));
  good = good && !stored_failed(row);
  if (good && job->action == CREATE) buffer_append(&base->reply, row->body.data, row->body.length);
  if (good && job->action == APPEND_ITEMS) {
    job->page.limit = ITEMS_ONCE_MAX;
    list_begin(&base->reply);
    for (const stored_item_t *item = row->items; item != NULL; item = item->next) {
      if (list_takes(&job->page, &base->reply, item->id))
        buffer_append(&base->reply, item->body.data, item->body.length);
    }
    list_end(&job->page, &base->reply);
  }
  buffer_free(&id);
  buffer_free(&text);
  if (good) return store_put_and_wait(base->server->store, row, &base->error);
  stored_free(row);
  return error_set(&base->error, ERR_OVERLOADED, NULL, "Out of memory.");
}

/* Other metadata for a conversation; the rest of it stays. */
static int update(conversation_job_t *job, const json_t *metadata) {
  reply_job_t *base = &job->base;
  stored_t *row = NULL;
  json_doc_t *doc = NULL;
  int64_t created = 0;
  int code = store_find(base->server->store, base->owner, job->id, false, &row, &base->error);
  if (code == 0)
    code = json_parse(row->body.data, row->body.length, &responses_kept_limits, &doc, &base->error);
  if (code == 0) {
    (void)json_int64(json_get(json_root(doc), "created_at"), &created);
    print_conversation(&base->reply, job->id, created, metadata);
    buffer_clear(&row->body);
  }
  json_free(doc);
  if (code != 0) {
    stored_free(row);
    return code;
  }
  buffer_append(&row->body, base->reply.data, base->reply.length);
  row->replaces = true;
  if (!stored_failed(row)) return store_put_and_wait(base->server->store, row, &base->error);
  stored_free(row);
  return error_set(&base->error, ERR_OVERLOADED, NULL, "Out of memory.");
}

/* ---- the job ---- */

/* Refuses the field that the other route of a conversation takes. */
static int check_fields(const conversation_job_t *job, const conversation_fields_t *fields,
                        reader_t *reader) {
  if (job->action == UPDATE && fields->items != NULL)
    return error_set(reader->error, ERR_UNSUPPORTED_PARAMETER, "items",
                     "'items' are appended by POST /v1/conversations/{id}/items.");
  if (job->action == APPEND_ITEMS && fields->metadata != NULL)
    return error_set(reader->error, ERR_UNSUPPORTED_PARAMETER, "metadata",
                     "'metadata' is set by POST /v1/conversations/{id}.");
  return 0;
}

static int write_it(conversation_job_t *job, const conversation_fields_t *fields,
                    reader_t *reader) {
  int code = check_fields(job, fields, reader);
  if (code != 0) return code;
  if (job->action == UPDATE && fields->metadata == NULL)
    return error_set(reader->error, ERR_MISSING_PARAMETER, "metadata",
                     "Missing required parameter: 'metadata'.");
  if (job->action == UPDATE) return update(job, fields->metadata);
  bool none = fields->items == NULL || fields->items->count == 0;
  if (job->action == APPEND_ITEMS && none)
    return error_set(reader->error, ERR_MISSING_PARAMETER, "items",
                     "Missing required parameter: 'items'.");
  code = none ? 0 : check_items(reader, fields->items);
  if (code == 0 && job->action == APPEND_ITEMS) {
    code = print_found(job); /* or there is nothing to append to */
    buffer_clear(&job->base.reply);
  }
  return code == 0 ? create(job, fields) : code;
}

static int read_body(conversation_job_t *job) {
  reply_job_t *base = &job->base;
  conversation_fields_t fields = {0};
  arena_t arena = {0};
  reader_t reader = {
      .out = &fields, .limits = &job->limits, .arena = &arena, .error = &base->error};
  json_doc_t *doc = NULL;
  const held_t *body = &base->body;
  int code =
      reply_job_charge(base, json_memory_bound(body->bytes, body->length, &json_limits_request));
  if (code == 0)
    code = json_parse(body->bytes, body->length, &json_limits_request, &doc, &base->error);
  if (code == 0) code = fields_read(&table, &reader, json_root(doc));
  if (code == 0) code = write_it(job, &fields, &reader);
  json_free(doc);
  arena_free(&arena);
  return code;
}

static int work(reply_job_t *base) {
  conversation_job_t *job = (conversation_job_t *)base;
  answer_store_t *store = base->server->store;
  int code = 0;
  switch (job->action) {
  case CREATE:
  case UPDATE:
  case APPEND_ITEMS: return read_body(job);
  case GET_IT: return print_found(job);
  case REMOVE:
    code = store_remove(store, base->owner, job->id, &base->error);
    print_deleted(job);
    return code;
  case LIST_ITEMS: return list_items(job);
  case GET_ITEM:
    return store_item(store, base->owner, job->id, job->item, &base->reply, &base->error);
  case REMOVE_ITEM:
    code = store_remove_item(store, base->owner, job->id, job->item, &base->error);
    return code == 0 ? print_found(job) : code;
  }
  return code;
}

/* ---- the request ---- */

/* Finds out what is asked for: ID, ID/items or ID/items/ITEM. */
static int read_path(conversation_job_t *job) {
  static const char list[] = "/items";
  reply_job_t *base = &job->base;
  const char *tail = base->exchange->path_tail, *slash = strchr(tail, '/');
  size_t length = slash != NULL ? (size_t)(slash - tail) : strlen(tail);
  bool is_id = reply_id_copy(job->id, tail, length) && strncmp(job->id, "conv_", 5) == 0;
  bool of_items = slash != NULL && strncmp(slash, list, sizeof list - 1) == 0;
  const char *item = of_items ? slash + sizeof list - 1 : "";
  bool has_item = item[0] == '/' && strchr(item + 1, '/') == NULL &&
                  reply_id_copy(job->item, item + 1, strlen(item + 1));
  if (!is_id || (slash != NULL && !of_items) || (item[0] != '\0' && !has_item) ||
      (of_items && job->action == REMOVE && !has_item) || (has_item && job->action == UPDATE))
    return error_set(&base->error, ERR_NO_SUCH_OBJECT, NULL,
                     "Conversation with id '%.100s' not found.", tail);
  if (of_items && job->action == UPDATE) job->action = APPEND_ITEMS;
  if (has_item && job->action == REMOVE) job->action = REMOVE_ITEM;
  if (of_items && job->action == GET_IT) job->action = has_item ? GET_ITEM : LIST_ITEMS;
  return job->action == LIST_ITEMS ? list_page_read(base->exchange, &job->page, &base->error) : 0;
}

static void begin(exchange_t *exchange, conversation_action_t action) {
  server_t *server = exchange->server;
  /* With several models nobody knows yet which will read it. */
  const engine_info_t *info = server->models == NULL ? engine_info(server->engine) : NULL;
  bool takes = action == CREATE || action == UPDATE;
  conversation_job_t *job = (conversation_job_t *)reply_job_new(exchange, sizeof *job, takes);
  if (job == NULL) return;
  job->base.work = work;
  job->action = action;
  job->limits =
      (field_limits_t){.strict = server->config->strict_params,
                       .lenient = server->config->lenient_history,
                       .stores = true,
                       .sees = server->models != NULL || (info != NULL && info->vision != NULL),
                       .hears = server->models != NULL || (info != NULL && info->hearing != NULL),
                       .images_max = (int32_t)server->config->limit_images,
                       .sounds_max = (int32_t)server->config->limit_audio,
                       .media = server->media};
  if (action != CREATE) job->base.code = read_path(job);
  reply_job_submit(&job->base);
}

void api_conversations(exchange_t *exchange) {
  begin(exchange, CREATE);
}

void api_get_conversation(exchange_t *exchange) {
  begin(exchange, GET_IT);
}

void api_post_conversation(exchange_t *exchange) {
  begin(exchange, UPDATE);
}

void api_delete_conversation(exchange_t *exchange) {
  begin(exchange, REMOVE);
}
