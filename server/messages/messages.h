/* messages.h: POST /v1/messages, Anthropic's wire format of a chat, as a dialect of our chat.
 *
 * request.c, conversation.c and tools.c turn the body into a body of chat. writer.c turns the
 * output into content blocks, whole or as events, or counts the tokens of a request. Functions of
 * the request are pure: the loop thread or a job of the lanes calls them.
 */
#ifndef INFERD_SERVER_MESSAGES_MESSAGES_H
#define INFERD_SERVER_MESSAGES_MESSAGES_H

#include "server/dialect/blocks.h"
#include "server/fields/fields.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum messages_block { BLOCK_NONE, BLOCK_THINKING, BLOCK_TEXT, BLOCK_CALL } messages_block_t;

/* What an answer needs of its request, and what its writer has so far. Lies in the arena of the
 * completion; the memory of the buffers is freed by the dialect. */
typedef struct messages_state {
  int64_t max_tokens; /* of the request: more than the engine got if the context ends before */
  bool omit_thinking; /* thinking blocks have no text */
  /* the writer, loop thread */
  buffer_t out;          /* stream: frames not yet sent; else: the content blocks, printed */
  buffer_t pending;      /* text of the open block that has not been printed */
  messages_block_t open; /* the block that has begun and not ended */
  int32_t num_blocks, num_calls;
  bool begun; /* stream: message_start was printed */
} messages_state_t;

/* request.c: reads `root`, the body, and appends the same request to `chat` as a body of chat.
 * `late_system`: chat_body.h. `counting`: max_tokens may be absent. Fills in the first two members
 * of *state. Returns 0, or an error that names the place, such as messages.2.content.0, in the
 * words of this format. Unknown fields go to field_unknown. */
int messages_translate(reader_t *reader, const json_t *root, bool late_system, bool counting,
                       messages_state_t *state, buffer_t *chat);

/* conversation.c: adds the messages for `system` (NULL = none) and `messages` to `body`.
 * *continues: the last message is of an assistant, and the answer continues it. */
int messages_print_conversation(reader_t *reader, const json_t *system, const json_t *messages,
                                chat_body_t *body, bool *continues);
/* tools.c: appends ,"tools":[...] and ,"tool_choice":... for those that are given (NULL = not). */
int messages_print_tools(reader_t *reader, const json_t *tools, const json_t *choice,
                         buffer_t *chat);

/* request.c: errors and checks. */
/* Sets an error whose message is "PLACE: ..." and returns its code. */
int messages_fail(reader_t *reader, int code, block_place_t place, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Refuses a value: "PLACE: expected ..., but got ...", as field_shown writes it. */
int messages_fail_value(reader_t *reader, block_place_t place, const char *expected,
                        const json_t *value);
/* Checks that a member of the object at `place` is a string of min..max bytes. */
int messages_need_string(reader_t *reader, block_place_t place, const json_t *object,
                         const char *member, size_t min, size_t max);

#endif
