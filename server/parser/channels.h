/* channels.h: output in channels, as gpt-oss writes it (OpenAI's harmony format).
 *
 * Every message has a header, then a body, between marks:
 *   <|start|>assistant<|channel|>analysis<|message|>reasoning<|end|>
 *   <|start|>assistant<|channel|>commentary to=functions.f
 * <|constrain|>json<|message|>{...}<|call|>
 *   <|start|>assistant<|channel|>final<|message|>content<|return|>
 * output.c uses it if the reasoning format has channels. One owner, one thread at a time.
 */
#ifndef INFERD_SERVER_PARSER_CHANNELS_H
#define INFERD_SERVER_PARSER_CHANNELS_H

#include "server/parser/output.h"

typedef struct channels channels_t;

channels_t *channels_new(const output_options_t *options); /* NULL: memory is short */
void channels_free(channels_t *channels);                  /* NULL is allowed */
void channels_feed(channels_t *channels, const char *text, size_t length,
                   const output_sink_t *sink);
void channels_end(channels_t *channels, bool cut, const output_sink_t *sink); /* output.h */
bool channels_is_reasoning(const channels_t *channels);
bool channels_failed(const channels_t *channels);

#endif
