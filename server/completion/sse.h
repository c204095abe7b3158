/* sse.h: stage 9 of 9, the output of a completion -> bytes for its client.
 *
 * Loop thread. One frame is one `data:` event. The constant parts of a frame are rendered once per
 * request; a token costs a copy and an escape into a reused buffer.
 */
#ifndef INFERD_SERVER_COMPLETION_SSE_H
#define INFERD_SERVER_COMPLETION_SSE_H

#include "server/completion/completion.h"

/* Renders the part that all frames of the completion share. Returns false if memory is short. */
bool sse_prepare(completion_t *completion);
/* Sends the collected output of the choice as one chunk; `last` adds the finish_reason. Begins the
 * stream if it has not begun. Does nothing if the client disconnected. */
void sse_chunk(choice_t *choice, bool last);
/* Sends the usage chunk if the request asked for it, then [DONE]. The caller ends the exchange. */
void sse_done(completion_t *completion);
/* Sends an error event into a stream that has begun, then [DONE]. The caller ends the exchange. */
void sse_error(completion_t *completion, const inferd_error_t *error);
/* Sends a comment that keeps an idle connection open. Begins the stream if it has not begun. */
void sse_ping(completion_t *completion);

/* Makes completion->reply, the response of a request that does not stream, of what the inputs and
 * choices hold. Returns false if memory is short. */
bool completion_response(completion_t *completion);

#endif
