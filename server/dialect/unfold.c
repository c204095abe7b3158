/* unfold.c: messages of a chat request that are of another shape than chat's -> messages of chat.
 *
 * Stage 2 of 9, before server/fields/history.c. Clients send a history that began on /v1/messages
 * to chat: calls, results and thoughts are blocks of a content there. They also lose roles and
 * whole messages. All of it can be told apart, so it is mended in a question, too; what is no text
 * is left to history.c. Loop thread or a job of the lanes; keeps no state.
 */
#include "server/dialect/unfold.h"

#include "server/dialect/blocks.h"
#include "server/fields/history.h"

#include <stdio.h>
#include <string.h>

typedef struct unfolded {
  reader_t *reader;
  buffer_t *out;
  int32_t index;   /* of the client's message */
  int32_t *origin; /* for each message that was printed, the index of the client's */
  int32_t count;
} unfolded_t;

static void note(const unfolded_t *to, int32_t part, const char *what) {
  char place[ERROR_PARAM_MAX];
  if (part < 0) snprintf(place, sizeof place, "messages[%d]", (int)to->index);
  if (part >= 0)
    snprintf(place, sizeof place, "messages[%d].content[%d]", (int)to->index, (int)part);
  field_name_mended(to->reader, place, what);
}

/* The role that a message without one, or with one of another API, must have had. */
static const char *role_of(const json_t *message) {
  const json_t *role = json_get(message, "role");
  const char *meant = history_other_role(role);
  if (meant != NULL) return meant;
  if (json_is_given(role)) return json_equals(role, "assistant") ? "assistant" : "other";
  if (json_is_given(json_get(message, "tool_call_id"))) return "tool";
  bool calls = json_is_given(json_get(message, "tool_calls")) ||
               json_is_given(json_get(message, "function_call"));
  return calls ? "assistant" : "user";
}

/* Whether the block becomes something else than a part of the content. */
static bool is_own(const json_t *block, bool assistant) {
  return block_is_result(block) || (assistant && (block_is_call(block) || block_is_thought(block)));
}

static bool has_own(const json_t *message) {
  const json_t *content = json_get(message, "content");
  bool assistant = strcmp(role_of(message), "assistant") == 0;
  if (content == NULL || content->type != JSON_ARRAY) return false;
  JSON_EACH(block, content) {
    if (is_own(block, assistant)) return true;
  }
  return false;
}

static bool has_role(const json_t *message) {
  const json_t *role = json_get(message, "role");
  if (message->type != JSON_OBJECT) return true;
  return json_is_given(role) && history_other_role(role) == NULL;
}

static bool is_plain(const json_t *message) {
  if (message->type == JSON_STRING || message->type == JSON_NULL) return false;
  return has_role(message) && !has_own(message);
}

static void begin(unfolded_t *to) {
  if (to->count > 0) buffer_char(to->out, ',');
  to->origin[to->count++] = to->index;
}

static void put_member(unfolded_t *to, const json_t *member) {
  buffer_char(to->out, ',');
  buffer_quote(to->out, member->key, member->key_length);
  buffer_char(to->out, ':');
  json_print(to->out, member);
}

static void put_result(unfolded_t *to, int32_t part, const json_t *block) {
  chat_body_t body;
  buffer_t text = {0};
  char place[ERROR_PARAM_MAX];
  snprintf(place, sizeof place, "messages[%d].content[%d]", (int)to->index, (int)part);
  note(to, part, "tool_message");
  begin(to);
  chat_body_begin(&body, &text, true);
  size_t start = text.length;
  block_write_result(to->reader, block_at("%s", place), &body, block);
  chat_body_end(&body); /* it ends the array */
  if (!text.failed) buffer_append(to->out, text.data + start, text.length - start - 1);
  to->out->failed = to->out->failed || text.failed;
  buffer_free(&text);
}

/* A call as a function of chat has it. What it lacks is left to history.c. */
static void put_call(unfolded_t *to, const json_t *block) {
  const json_t *id = json_get(block, "id"), *input = json_get(block, "input");
  buffer_t text = {0};
  buffer_text(to->out, "{");
  if (id != NULL) {
    buffer_text(to->out, "\"id\":");
    json_print(to->out, id);
    buffer_char(to->out, ',');
  }
  buffer_text(to->out, "\"type\":\"function\",\"function\":{\"name\":");
  if (json_get(block, "name") != NULL) json_print(to->out, json_get(block, "name"));
  if (json_get(block, "name") == NULL) buffer_text(to->out, "null");
  if (json_is_given(input)) json_print(&text, input);
  if (!json_is_given(input)) buffer_text(&text, "{}");
  buffer_text(to->out, ",\"arguments\":");
  buffer_quote(to->out, text.failed ? "" : text.data, text.length);
  buffer_text(to->out, "}}");
  to->out->failed = to->out->failed || text.failed;
  buffer_free(&text);
}

/* The thoughts among the blocks from `block` to `end`, joined. */
static void put_thoughts(unfolded_t *to, const json_t *block, const json_t *end, int32_t part) {
  bool any = false;
  for (; block != end; block = json_next(block), part++) {
    const json_t *text = json_get(block, "thinking");
    if (!block_is_thought(block)) continue;
    bool is_text = text != NULL && text->type == JSON_STRING && text->length > 0;
    note(to, part, is_text ? "reasoning_content" : "thinking_left_out");
    if (!is_text) continue;
    buffer_text(to->out, any ? "\\n" : ",\"reasoning_content\":\"");
    buffer_escape(to->out, text->text, text->length);
    any = true;
  }
  if (any) buffer_char(to->out, '"');
}

/* The calls among the blocks from `block` to `end`, behind those of the message. */
static void put_calls(unfolded_t *to, const json_t *own, const json_t *block, const json_t *end,
                      int32_t part) {
  bool any = false;
  if (own != NULL && own->type != JSON_ARRAY) own = NULL;
  JSON_EACH(call, own) {
    buffer_text(to->out, any ? "," : ",\"tool_calls\":[");
    json_print(to->out, call);
    any = true;
  }
  for (; block != end; block = json_next(block), part++) {
    if (!block_is_call(block)) continue;
    note(to, part, "tool_calls");
    buffer_text(to->out, any ? "," : ",\"tool_calls\":[");
    put_call(to, block);
    any = true;
  }
  if (any) buffer_char(to->out, ']');
}

/* A message of the blocks from `block` to `end`; the first one has the other members, too. */
static void put_message(unfolded_t *to, const json_t *message, const json_t *block,
                        const json_t *end, int32_t part, bool first) {
  static const char *const own[] = {"role", "content", "tool_calls"};
  const char *role = role_of(message);
  bool assistant = strcmp(role, "assistant") == 0, any = false;
  begin(to);
  buffer_text(to->out, "{\"role\":");
  if (has_role(message)) {
    json_print(to->out, json_get(message, "role"));
  } else {
    buffer_quote(to->out, role, strlen(role));
  }
  JSON_EACH(member, message) {
    if (first && !json_named_one_of(member, own, sizeof own / sizeof *own)) put_member(to, member);
  }
  if (!has_own(message)) {
    if (json_get(message, "content") != NULL) put_member(to, json_get(message, "content"));
    if (json_get(message, "tool_calls") != NULL) put_member(to, json_get(message, "tool_calls"));
    buffer_char(to->out, '}');
    return;
  }
  for (const json_t *at = block; at != end; at = json_next(at)) {
    if (is_own(at, assistant)) continue;
    buffer_text(to->out, any ? "," : ",\"content\":[");
    json_print(to->out, at);
    any = true;
  }
  buffer_text(to->out, any ? "]" : ",\"content\":null");
  if (assistant) {
    if (!first || !json_is_given(json_get(message, "reasoning_content")))
      put_thoughts(to, block, end, part);
    put_calls(to, first ? json_get(message, "tool_calls") : NULL, block, end, part);
  }
  buffer_char(to->out, '}');
}

/* The answers of an assistant in their order: behind the result of a tool that a server ran, the
 * assistant goes on. */
static void put_answers(unfolded_t *to, const json_t *message) {
  const json_t *block = json_first(json_get(message, "content"));
  bool first = true;
  for (int32_t part = 0; block != NULL;) {
    if (block_is_result(block)) {
      put_result(to, part++, block);
      block = json_next(block);
      continue;
    }
    const json_t *end = block;
    int32_t begins = part;
    for (; end != NULL && !block_is_result(end); end = json_next(end)) part++;
    put_message(to, message, block, end, begins, first);
    first = false;
    block = end;
  }
}

/* Results come first, each as a message of its own, then what else the content has. */
static void put_question(unfolded_t *to, const json_t *message) {
  const json_t *content = json_get(message, "content");
  int32_t part = 0;
  bool rest = false;
  JSON_EACH(block, content) {
    if (block_is_result(block)) put_result(to, part, block);
    rest = rest || !block_is_result(block);
    part++;
  }
  if (rest) put_message(to, message, json_first(content), NULL, 0, true);
}

static void put_odd(unfolded_t *to, const json_t *message) {
  if (message->type == JSON_NULL) {
    note(to, -1, "message_left_out");
    return;
  }
  if (message->type == JSON_STRING) {
    note(to, -1, "user_message");
    begin(to);
    buffer_text(to->out, "{\"role\":\"user\",\"content\":");
    json_print(to->out, message);
    buffer_char(to->out, '}');
    return;
  }
  if (!has_role(message)) note(to, -1, "role");
  if (!has_own(message)) {
    put_message(to, message, NULL, NULL, 0, true);
  } else if (strcmp(role_of(message), "assistant") == 0) {
    put_answers(to, message);
  } else {
    put_question(to, message);
  }
}

static void put_all(unfolded_t *to, const json_t *messages) {
  JSON_EACH(message, messages) {
    if (is_plain(message)) {
      begin(to);
      json_print(to->out, message);
    } else {
      put_odd(to, message);
    }
    to->index++;
  }
}

int chat_unfold(reader_t *reader, const json_t *root, buffer_t *out, const int32_t **origin) {
  const json_t *messages = json_get(root, "messages");
  size_t most = 0;
  bool odd = false, any = false;
  if (!reader->limits->lenient || messages == NULL || messages->type != JSON_ARRAY) return 0;
  JSON_EACH(message, messages) {
    const json_t *content = json_get(message, "content");
    odd = odd || !is_plain(message);
    most += 1 + (content != NULL && content->type == JSON_ARRAY ? content->count : 0);
  }
  if (!odd) return 0;
  unfolded_t to = {.reader = reader, .out = out};
  to.origin = arena_calloc(reader->arena, most + 1, sizeof *to.origin);
  if (to.origin == NULL) return field_no_memory(reader);
  JSON_EACH(member, root) {
    buffer_text(out, any ? "," : "{");
    any = true;
    buffer_quote(out, member->key, member->key_length);
    buffer_char(out, ':');
    if (member != messages) {
      json_print(out, member);
      continue;
    }
    buffer_char(out, '[');
    put_all(&to, messages);
    buffer_char(out, ']');
  }
  buffer_char(out, '}');
  *origin = to.origin;
  return out->failed ? field_no_memory(reader) : 0;
}
