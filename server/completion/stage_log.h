/* stage_log.h: with --log-level debug, a line at each border that a completion crosses.
 *
 * Loop thread. Each line names the engine's number of the request, and the first line its id too. A
 * line never holds text of a prompt or an answer. Without the level debug nothing is formatted. The
 * last line of a request, "reply written", is the transport's (server/http/http_exchange.c).
 */
#ifndef INFERD_SERVER_COMPLETION_STAGE_LOG_H
#define INFERD_SERVER_COMPLETION_STAGE_LOG_H

#include "server/completion/completion.h"

void stage_log_checked(const completion_t *completion); /* its requests have their numbers */
void stage_log_queued(const completion_t *completion);  /* the engine has taken them */
/* What the engine's trace holds: admitted, preempted, first token, finished. Call it after
 * engine_drain: then the line "finished" precedes "reply written". */
void stage_log_engine(server_t *server);

#endif
