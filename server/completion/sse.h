/* sse.h: stage 9 of 9, what a completion produced -> bytes for its client.
 *
 * Loop thread. One frame is one `data:` event. The constant parts of a frame are rendered once per
 * request; a token costs a copy and an escape into a reused buffer.
 */
#ifndef INFERD_SERVER_COMPLETION_SSE_H
#define INFERD_SERVER_COMPLETION_SSE_H

#include "server/completion/completion.h"

/* Renders what all frames of the completion share; false when memory is short. */
bool sse_prepare(completion_t *completion);
/* Sends what the choice has collected as one chunk; `last` puts finish_reason on it. Begins the
 * stream if it has not begun. Does nothing when the client has gone. */
void sse_chunk(choice_t *choice, bool last);
/* The usage chunk if it was asked for, then [DONE]. The caller ends the exchange. */
void sse_done(completion_t *completion);
/* An error after the first byte, then [DONE]. The caller ends the exchange. */
void sse_error(completion_t *completion, const error_t *error);
/* A comment that keeps a silent connection open; begins the stream if it has not begun. */
void sse_ping(completion_t *completion);

/* The whole response of a request that does not stream; malloc'ed, NULL when memory is short. */
char *completion_response(completion_t *completion, size_t *length);

#endif
