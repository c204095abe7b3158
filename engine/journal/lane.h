/* lane.h: what the engine thread of one replica tells the journal, in the order in which it
 * happens.
 *
 * The functions do nothing with NULL, which is an engine without a journal. A lane can also play a
 * journal (play.h): then what a clock would say comes from there, and all else is compared with it.
 * Engine thread only; lane_new allocates everything.
 */
#ifndef INFERD_ENGINE_JOURNAL_LANE_H
#define INFERD_ENGINE_JOURNAL_LANE_H

#include "engine/journal/journal.h"
#include "engine/request.h"

struct engine;
struct plan;
struct sample_result;
struct scheduler;
struct sequence;
struct play;
typedef struct journal_lane journal_lane_t;

/* At start, once the sizes are known: a lane of the journal of the options, or of their play.
 * *out = NULL without either. 0 or ERR_NO_MEMORY. */
int lane_new(const struct engine *engine, journal_lane_t **out, inferd_error_t *error);
void lane_free(journal_lane_t *lane);

void lane_request(journal_lane_t *lane, const request_t *request);          /* it has come */
void lane_cancel(journal_lane_t *lane, const request_t *request, int code); /* it ends by that */
/* A plan is about to be made. Returns its time, which may be another one. Who plays makes those
 * wait for masks that waited then, and the others not. */
uint64_t lane_begin_plan(journal_lane_t *lane, struct engine *engine, uint64_t now_ns);
void lane_plan(journal_lane_t *lane, const struct scheduler *scheduler); /* it is made */
/* A time that the scheduler learns from; JOURNAL_TIME, _DRAFT_TIME or _SWAP_TIME; or JOURNAL_LEFT.
 * Returns it, or that of the journal. */
double lane_time(journal_lane_t *lane, journal_kind_t kind, double ns);

/* The commit of a step: lane_entry for each entry, behind it the tokens and scores of it. */
void lane_begin_commit(journal_lane_t *lane);
void lane_entry(journal_lane_t *lane, bool late);
void lane_token(journal_lane_t *lane, const struct sample_result *result, bool has_logprob);
void lane_score(journal_lane_t *lane, const event_t *event);
void lane_end_commit(journal_lane_t *lane);
/* Whether the journal says that the step which is launched was left; -1 = it says nothing. */
int lane_left(const journal_lane_t *lane);
/* What the journal says of the mask of an entry, in the step that is behind so many in flight: 1 =
 * it was late, 0 = not; -1 = nothing. */
int lane_late(const journal_lane_t *lane, int32_t steps, int32_t entry);
/* Whether a request may begin that, as `may` says, has not made room for another. */
bool lane_may_begin(journal_lane_t *lane, const request_t *request, bool may);
/* The request ends by this EVENT_DONE; `complete`: as it should, so its choices are there. */
void lane_finish(journal_lane_t *lane, struct engine *engine, const event_t *event, bool complete);
void lane_end(journal_lane_t *lane); /* the engine ends */

#endif
