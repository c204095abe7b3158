/* tag_tokens.h: texts of structural tags that are tokens of the model, such as "<tool_call>".
 *
 * Special and other added tokens are not part of free text; a model that was trained to write them
 * must be allowed to. Loop thread or libuv's pool.
 */
#ifndef INFERD_SERVER_FIELDS_TAG_TOKENS_H
#define INFERD_SERVER_FIELDS_TAG_TOKENS_H

#include "server/fields/params_read.h"

/* Sets *out to the text as a sequence in which the added tokens within it are TOKENs, and adds
 * these to *shown; returns false if there are none, or memory is short. Tokens that end an answer
 * are text. */
bool tag_in_tokens(reader_t *reader, span_t text, id_list_t *shown, grammar_source_t *out);

#endif
