/* chat_body.h: writes the messages of a conversation as the body of a chat request.
 *
 * What the dialects share on their way in (server/completion/dialect.h). One history gives one
 * text, whatever its spelling was, so that its prompt hits the prefix cache: texts of system
 * messages at the start are joined to one message with an empty line between, and all that the
 * assistant wrote in a row is one message. A message with one text has it as a string. One owner,
 * one thread at a time. If memory is short `out` has failed at the end.
 */
#ifndef INFERD_SERVER_DIALECT_CHAT_BODY_H
#define INFERD_SERVER_DIALECT_CHAT_BODY_H

#include "engine/base/buffer.h"
#include "engine/base/json.h"

typedef enum chat_role { CHAT_NONE, CHAT_SYSTEM, CHAT_USER, CHAT_ASSISTANT, CHAT_TOOL } chat_role_t;

typedef struct chat_body {
  buffer_t *out;
  bool late_system;  /* the template takes system messages behind others */
  bool sees;         /* chat_body_picture may be called; false at first */
  bool has_pictures; /* the message has some, so it is written as parts */
  bool is_late;      /* some message is no system message */
  chat_role_t role;  /* of the message that is being written */
  int32_t num_texts; /* of it */
  buffer_t text;     /* if it has one text, or its texts are joined: this text */
  buffer_t parts;    /* all texts, as elements of an array */
  buffer_t call_id;  /* CHAT_TOOL: the call that it answers, in quotes */
  buffer_t reasoning, calls;
  buffer_t lifted; /* pictures of tools, as parts: they stand in a message of the user behind */
  int32_t num_written;
} chat_body_t;

/* Begins a body: {"messages":[. If the template does not take a system message behind others
 * (`late_system` false, of completions_t), its text goes to the end of the user's message
 * before it, or becomes one. */
void chat_body_begin(chat_body_t *body, buffer_t *out, bool late_system);
/* Begins a message. If the message at work has this role, and the role is the assistant's or the
 * system's, that message continues instead. */
void chat_body_message(chat_body_t *body, chat_role_t role);
/* Begins the message of a tool, with the result of the call `call_id`. */
void chat_body_result(chat_body_t *body, const char *call_id, size_t length);
/* Each adds to the message. Texts of the assistant are joined by a newline. */
void chat_body_text(chat_body_t *body, const char *text, size_t length);
/* A picture of a user or a tool, with the URL that `head` and `url` are together; `detail` may be
 * NULL. Few templates have a place for pictures of tools, so the next message of the user has them;
 * if there is none, one is written. */
void chat_body_picture(chat_body_t *body, const char *head, const json_t *url,
                       const json_t *detail);
/* Tells whether the message that was begun takes pictures. */
bool chat_body_takes_pictures(const chat_body_t *body);
/* A value that is no text, as JSON. */
void chat_body_json(chat_body_t *body, const json_t *value);
void chat_body_reasoning(chat_body_t *body, const char *text, size_t length);
/* `id` and `name` are strings; `arguments` is JSON text, of `length` bytes. */
void chat_body_call(chat_body_t *body, const json_t *id, const char *name, const char *arguments,
                    size_t length);
/* Ends the array of messages and frees what the writer held; the caller appends other members and
 * the closing brace. Returns how many messages were written. */
int32_t chat_body_end(chat_body_t *body);

#endif
