/* chat_body.c: messages of a conversation in the one spelling, see chat_body.h.
 *
 * Any thread, the owner of the body. It checks nothing: the reader of chat requests does.
 */
#include "server/dialect/chat_body.h"

/* ---- messages ---- */

void chat_body_begin(chat_body_t *body, buffer_t *out, bool late_system) {
  *body = (chat_body_t){.out = out, .late_system = late_system};
  buffer_text(out, "{\"messages\":[");
}

static void print_content(chat_body_t *body) {
  bool joined = body->role == CHAT_ASSISTANT || body->role == CHAT_SYSTEM;
  buffer_text(body->out, ",\"content\":");
  if (!body->has_pictures && (joined || body->num_texts <= 1)) {
    buffer_quote(body->out, body->text.data, body->text.length);
  } else {
    buffer_char(body->out, '[');
    buffer_append(body->out, body->parts.data, body->parts.length);
    buffer_char(body->out, ']');
  }
}

/* Writes the message that was begun. A message of the assistant that has only reasoning is not
 * written: the answer behind that reasoning never came. */
static void flush(chat_body_t *body) {
  static const char *const roles[] = {"", "system", "user", "assistant", "tool"};
  buffer_t *out = body->out;
  bool empty = body->role == CHAT_ASSISTANT && body->num_texts == 0 && body->calls.length == 0;
  if (body->role != CHAT_NONE && !empty) {
    if (body->num_written++ > 0) buffer_char(out, ',');
    buffer_text(out, "{\"role\":\"");
    buffer_text(out, roles[body->role]);
    buffer_char(out, '"');
    if (body->role == CHAT_TOOL) {
      buffer_text(out, ",\"tool_call_id\":");
      buffer_append(out, body->call_id.data, body->call_id.length);
    }
    if (body->reasoning.length > 0) {
      buffer_text(out, ",\"reasoning_content\":");
      buffer_quote(out, body->reasoning.data, body->reasoning.length);
    }
    if (body->calls.length == 0 || body->text.length > 0) print_content(body);
    if (body->calls.length > 0) {
      buffer_text(out, ",\"tool_calls\":[");
      buffer_append(out, body->calls.data, body->calls.length);
      buffer_char(out, ']');
    }
    buffer_char(out, '}');
  }
  buffer_t *const held[] = {&body->text, &body->parts, &body->call_id, &body->reasoning,
                            &body->calls};
  for (size_t i = 0; i < sizeof held / sizeof *held; i++) {
    out->failed = out->failed || held[i]->failed;
    buffer_clear(held[i]);
  }
  body->role = CHAT_NONE;
  body->num_texts = 0;
  body->has_pictures = false;
}

/* Begins a message of the user with the pictures of tools. */
static void begin_lifted(chat_body_t *body) {
  body->role = CHAT_USER;
  body->has_pictures = true;
  body->num_texts = 1;
  buffer_append(&body->parts, body->lifted.data, body->lifted.length);
  body->out->failed = body->out->failed || body->lifted.failed;
  buffer_clear(&body->lifted);
}

void chat_body_message(chat_body_t *body, chat_role_t role) {
  bool continues = role == body->role && (role == CHAT_ASSISTANT || role == CHAT_SYSTEM);
  if (role == CHAT_SYSTEM && body->is_late && !body->late_system) {
    if (body->role == CHAT_USER) return;
    role = CHAT_USER;
  }
  if (continues) return;
  flush(body);
  if (role != CHAT_TOOL && body->lifted.length > 0) {
    begin_lifted(body);
    if (role == CHAT_USER) return;
    flush(body);
  }
  body->role = role;
  if (role != CHAT_SYSTEM) body->is_late = true;
}

void chat_body_result(chat_body_t *body, const char *call_id, size_t length) {
  chat_body_message(body, CHAT_TOOL);
  buffer_quote(&body->call_id, call_id, length);
}

void chat_body_text(chat_body_t *body, const char *text, size_t length) {
  const char *between = body->role == CHAT_SYSTEM ? "\n\n" : "\n";
  if (length == 0 && body->role == CHAT_SYSTEM) return;
  if (body->num_texts++ > 0) {
    if (body->text.length > 0 && length > 0) buffer_text(&body->text, between);
    buffer_char(&body->parts, ',');
  }
  buffer_append(&body->text, text, length);
  buffer_text(&body->parts, "{\"type\":\"text\",\"text\":");
  buffer_quote(&body->parts, text, length);
  buffer_char(&body->parts, '}');
}

bool chat_body_takes_pictures(const chat_body_t *body) {
  return body->sees && (body->role == CHAT_USER || body->role == CHAT_TOOL);
}

void chat_body_picture(chat_body_t *body, const char *head, const json_t *url,
                       const json_t *detail) {
  bool lifts = body->role == CHAT_TOOL;
  buffer_t *out = lifts ? &body->lifted : &body->parts;
  if (lifts ? out->length > 0 : body->num_texts++ > 0) buffer_char(out, ',');
  buffer_text(out, "{\"type\":\"image_url\",\"image_url\":{\"url\":\"");
  buffer_escape(out, head, strlen(head));
  buffer_escape(out, url->text, url->length);
  buffer_char(out, '"');
  if (json_is_given(detail)) {
    buffer_text(out, ",\"detail\":");
    json_print(out, detail);
  }
  buffer_text(out, "}}");
  body->has_pictures = body->has_pictures || !lifts;
}

void chat_body_json(chat_body_t *body, const json_t *value) {
  buffer_t text = {0};
  json_print(&text, value);
  body->out->failed = body->out->failed || text.failed;
  if (!text.failed) chat_body_text(body, text.data, text.length);
  buffer_free(&text);
}

void chat_body_reasoning(chat_body_t *body, const char *text, size_t length) {
  if (length > 0 && body->reasoning.length > 0) buffer_char(&body->reasoning, '\n');
  buffer_append(&body->reasoning, text, length);
}

void chat_body_call(chat_body_t *body, const json_t *id, const char *name, const char *arguments,
                    size_t length) {
  buffer_t *out = &body->calls;
  if (out->length > 0) buffer_char(out, ',');
  buffer_text(out, "{\"id\":");
  buffer_quote(out, id->text, id->length);
  buffer_text(out, ",\"type\":\"function\",\"function\":{\"name\":");
  buffer_quote(out, name, strlen(name));
  buffer_text(out, ",\"arguments\":");
  buffer_quote(out, arguments, length);
  buffer_text(out, "}}");
}

int32_t chat_body_end(chat_body_t *body) {
  flush(body);
  if (body->lifted.length > 0) {
    begin_lifted(body);
    flush(body);
  }
  buffer_char(body->out, ']');
  buffer_t *const held[] = {&body->text, &body->parts, &body->call_id, &body->reasoning,
                            &body->calls};
  for (size_t i = 0; i < sizeof held / sizeof *held; i++) buffer_free(held[i]);
  buffer_free(&body->lifted);
  return body->num_written;
}
