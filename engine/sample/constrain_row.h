/* constrain_row.h: what constrain.c and constrain_drafts.c share: the rows of constrained
 * sequences, and the work of a step. No other file of the product includes it.
 *
 * Engine thread only.
 */
#ifndef INFERD_ENGINE_SAMPLE_CONSTRAIN_ROW_H
#define INFERD_ENGINE_SAMPLE_CONSTRAIN_ROW_H

#include "engine/base/util.h"
#include "engine/internal.h"
#include "engine/sample/mask_threads.h"

/* What a row of the token table has of its grammar. */
typedef struct constrained {
  int32_t job;          /* its matcher and its mask, and how far that has been made */
  int32_t num_accepted; /* output tokens that the matcher has taken */
  bool ready;           /* the mask for the next token is complete */
  bool away;            /* the threads have the job */
  int32_t away_at;      /* then: its index in constrain->away */
  int32_t next_row;     /* then: the next one of constrain->places, -1 = none */
  uint64_t place;       /* then: hash of its place (masks.h), 0 = none is known */
  /* Of the draft tokens in the step that was planned last (constrain_drafts.c). */
  int32_t first_mask; /* the mask behind draft token i is number first_mask + i of the plan's */
  uint32_t certain;   /* bit i: the grammar allowed nothing but draft token i */
  uint64_t draft_units[DRAFT_TOKENS_MAX]; /* that the mask behind draft token i costs */
} constrained_t;

/* Work is counted in units, see grammar_units. A piece of it may go over its units by
 * GRAMMAR_UNITS_OVER, so work begins only while so many are left. Of the others the tokens that are
 * accepted get one part, drafts another, the rows that are sampled all but one, and groups that
 * wait get slices of one part out of the rest. */
enum { PARTS = 4 };

static inline uint64_t units_now(const engine_t *engine) {
  return grammar_units(engine->constrain.scratch);
}

/* Returns the count of units at which work of this step ends, less `parts` parts. */
static inline uint64_t end_of(const engine_t *engine, uint64_t parts) {
  const constrain_t *constrain = &engine->constrain;
  uint64_t over = MIN((uint64_t)GRAMMAR_UNITS_OVER, constrain->units / PARTS);
  return constrain->step_units + constrain->units - over - parts * (constrain->units / PARTS);
}

static inline constrained_t *state_of(const engine_t *engine, const sequence_t *seq) {
  return &engine->constrain.rows[seq->row];
}

static inline mask_job_t *job_of(const engine_t *engine, const sequence_t *seq) {
  return &engine->constrain.jobs[state_of(engine, seq)->job];
}

static inline bool is_cancelled(const group_t *group) {
  return atomic_load_explicit(&group->request->cancelled, memory_order_relaxed);
}

/* Lists the ids that end the text, at which commit.c stops, in ids[SUPPRESSED_MAX + 1]. Returns how
 * many. */
int32_t constrain_stop_ids(const engine_t *engine, const sampling_params_t *params, int32_t *ids);
/* Most units that the masks of a group may cost until its next token is drawn. */
uint64_t constrain_units_max(const engine_t *engine, const group_t *group);
/* Continues the mask for the sequence's next token until the work reaches `end`. Returns 0 when
 * the mask is ready, GRAMMAR_LATER, or the error of the grammar. */
int constrain_advance(engine_t *engine, sequence_t *seq, uint64_t end);

/* constrain_drafts.c: the memory for masks of draft tokens. Returns 0 or ERR_NO_MEMORY; without
 * draft tokens there is none. */
int constrain_new_drafts(engine_t *engine, inferd_error_t *error);
void constrain_free_drafts(engine_t *engine);

#endif
