/* blocks.h: the content blocks of Anthropic's wire format as messages of chat.
 *
 * Such blocks come by /v1/messages, and in histories that began there by every other route. Pure
 * functions: the loop thread or a job of the lanes calls them.
 */
#ifndef INFERD_SERVER_DIALECT_BLOCKS_H
#define INFERD_SERVER_DIALECT_BLOCKS_H

#include "server/dialect/chat_body.h"
#include "server/fields/fields.h"

#include <stdbool.h>

enum { BLOCK_ID_BYTES_MAX = 256 };

/* A path in the request, such as tools.3.name. */
typedef struct block_place {
  char text[ERROR_PARAM_MAX];
} block_place_t;
block_place_t block_at(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Returns `value`; NULL for null. */
const json_t *block_value(const json_t *value);

bool block_is(const json_t *block, const char *type);
bool block_is_result(const json_t *block); /* of a tool, of the client or of a server that ran it */
bool block_is_call(const json_t *block);
bool block_is_thought(const json_t *block);
/* The text of a block that has one that is not empty; else NULL. A reference to a tool stands for
 * the tool's name. */
const json_t *block_text(const json_t *block);
/* A text that came as a document: its source, or a result of a search, has it; else NULL. */
const json_t *block_document(const json_t *block);
/* What is missing in a block that is a picture, "source.data"; NULL = nothing. */
const char *block_picture_lacks(const json_t *block);
/* Returns true if a content has a block that becomes text, be it a text that says what was left
 * out. */
bool block_has_text(const json_t *content);

/* Names a mending, if histories are mended. */
void block_note(reader_t *reader, block_place_t place, const char *what);
void block_add_left_out(reader_t *reader, block_place_t place, const json_t *block,
                        chat_body_t *body);
/* Adds the texts of a content to the message that was begun; empty ones are as if they were not
 * there. Calls, results and thoughts are left to others. */
void block_add_texts(reader_t *reader, block_place_t place, chat_body_t *body,
                     const json_t *content);
/* Adds a result as a message of a tool. */
void block_write_result(reader_t *reader, block_place_t place, chat_body_t *body,
                        const json_t *block);
/* Adds a call to the message that was begun. */
void block_write_call(reader_t *reader, block_place_t place, chat_body_t *body,
                      const json_t *block);

#endif
