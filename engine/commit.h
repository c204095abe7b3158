/* commit.h: stage 8 of 9, the results of a step -> tokens, text, stop decisions, events.
 *
 * Engine thread only; commit.c implements it, engine.c and sample/beam.c call it.
 */
#ifndef INFERD_ENGINE_COMMIT_H
#define INFERD_ENGINE_COMMIT_H

#include "engine/schedule/scheduler.h"

struct engine;
struct step;

/* Commits a completed step: publishes its blocks, appends its tokens, emits events, and finishes
 * the sequences and groups that end. The mailbox must have room for the events of a step. */
void engine_commit(struct engine *engine, const struct step *step, uint64_t now_ns);

/* Notes when the first token of the group was committed; later calls change nothing. */
void engine_first_token(const struct engine *engine, group_t *group, uint64_t now_ns);
/* Appends a token to a live sequence, makes its text, and checks for a stop in this order: primary
 * EOS, stop ids, stop strings, grammar, length. Returns the status that the sequence must get next
 * and does not set it. *text is valid until the next call. Sets *error_code only if the grammar
 * failed. */
sequence_status_t engine_append(struct engine *engine, sequence_t *seq, int32_t id,
                                detokenized_t *text, int *error_code);
/* What engine_append left open because the grammar had not taken the token yet (constrain_accept).
 * complete: the grammar allows no further token. Finishes what the token ends. */
void engine_append_late(struct engine *engine, sequence_t *seq, bool complete, uint64_t now_ns);
/* Returns true if `id` is an EOS id (unless ignore_eos) or a stop id of the request. */
bool engine_is_end(const struct engine *engine, const sampling_params_t *params, int32_t id);
/* Finishes a group in any live state, emits its one EVENT_DONE, and returns the request to the loop
 * thread and the group to the pool. error_code 0 = no error. */
void engine_finish(struct engine *engine, group_t *group, sequence_status_t status, int error_code,
                   uint64_t now_ns);

#endif
