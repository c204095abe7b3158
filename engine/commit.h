/* commit.h: stage 8 of 9, the results of a step -> tokens, text, stop decisions, events.
 *
 * Engine thread only; shared by engine.c, commit.c and beam.c.
 */
#ifndef INFERD_ENGINE_COMMIT_H
#define INFERD_ENGINE_COMMIT_H

#include "engine/schedule/scheduler.h"

struct engine;
struct flight;

/* Finishes and publishes. Returns events made. */
int engine_commit(struct engine *engine, const struct flight *flight, uint64_t now_ns);

/* Appends a token to a live sequence: the stop check in its fixed order (primary EOS, stop ids,
 * stop strings, grammar, length) and its text. Returns what the sequence turns into; *error_code is
 * set when its grammar failed. */
sequence_status_t engine_append(struct engine *engine, sequence_t *seq, int32_t id,
                                detokenized_t *text, int *error_code);
/* EOS or a stop id of this request. */
bool engine_is_end(const struct engine *engine, const sampling_params_t *params, int32_t id);
/* Ends a group in any live state and emits its one EVENT_DONE. */
void engine_finish(struct engine *engine, group_t *group, sequence_status_t status, int error_code,
                   uint64_t now_ns);

#endif
