/* constrain.h: grammars in the step: masks before sampling (stage 7), tokens after it (stage 8).
 *
 * Engine thread only; constrain_new allocates everything and starts the threads that make masks
 * beside it. The work for grammars is counted in units (grammar_units), and what the engine thread
 * does of it is bounded in each step.
 */
#ifndef INFERD_ENGINE_SAMPLE_CONSTRAIN_H
#define INFERD_ENGINE_SAMPLE_CONSTRAIN_H

#include "engine/base/error.h"
#include "engine/device/sample.h"
#include "engine/schedule/scheduler.h"

struct constrained;
struct engine;
struct grammar_masks;
struct grammar_scratch;
struct grammar_vocabulary;
struct mask_job;
struct mask_threads;
struct step;

typedef struct constrain {
  struct grammar_vocabulary *vocabulary;
  int32_t row_words;            /* 32-bit words of one mask */
  struct mask_threads *threads; /* NULL = the engine thread makes all masks */
  /* A job is a matcher and a mask. Each row of the token table has one, and so many are spare as
   * there are threads: a thread may still hold one that was dropped. */
  struct mask_job *jobs; /* [num_rows + threads] */
  char *matchers;        /* of the jobs, matcher_bytes each */
  size_t matcher_bytes;
  uint32_t *row_masks; /* of the jobs, row_words each, touched by constrained rows only */
  int32_t *spares;     /* [num_spares] jobs of no row */
  int32_t num_spares, num_away;
  int32_t *away;            /* [num_away] rows of the token table whose masks the threads make */
  int32_t *places;          /* [num_places] the first of these rows by the hash of its place, -1 */
  uint32_t num_places;      /* a power of 2 */
  bool rests;               /* the groups that wait can only wait for the threads */
  int32_t num_requests;     /* live ones that have a grammar */
  struct constrained *rows; /* [num_rows] */
  struct grammar_scratch *scratch;
  struct grammar_masks *masks;
  uint64_t units;                /* work of a step at most */
  uint64_t step_units;           /* of the scratch, when the step began */
  uint64_t step_units_max;       /* most work of a step so far */
  uint64_t served;               /* arrival of the group whose masks got the last slice */
  struct grammar_matcher *probe; /* that walks over draft tokens; NULL = there are none */
  uint32_t *draft_masks;         /* [DRAFTS_IN_FLIGHT_MAX, row_words] of the plan made last */
  int32_t num_draft_masks;
} constrain_t;

/* Bytes that constrain_new takes for matchers and masks. Few requests touch them, so only a limit
 * of the address space counts them. */
size_t constrain_bytes(const struct engine *engine);
/* Takes the memory and builds the vocabulary's trie at start; *build_ns is the time of that.
 * Returns 0 or an error. */
int constrain_new(struct engine *engine, uint64_t *build_ns, inferd_error_t *error);
void constrain_free(struct engine *engine);
/* Gives the masks of the step's rows to the threads, before the forward if that is computed in the
 * call, else behind its launch. */
void constrain_begin(struct engine *engine, const struct step *step);
/* Before the rows are described: makes the masks that no thread has begun, and waits for the
 * others, but for 2 ms at most. */
void constrain_finish(struct engine *engine);
/* A request has come; it has ended. */
void constrain_arrives(struct engine *engine, const request_t *request);
void constrain_leaves(struct engine *engine, const request_t *request);
/* The group ends: what the threads make for it is dropped. */
void constrain_end(struct engine *engine, const group_t *group);
/* Stage 7: sets the mask of `row`, which samples for the sequence. If the mask is not ready within
 * the row's share of work, the group waits, and what the row draws must be dropped. `entry`: of the
 * plan of the step launched last. */
void constrain_row(struct engine *engine, sample_row_t *row, sequence_t *sequence, int32_t entry);
/* Between stages 7 and 8: continues the masks that groups of `running` wait for, in slices, for
 * the rest of the step's work. Ends requests whose grammar fails. Returns true if a group waited.
 */
bool constrain_continue(struct engine *engine, uint64_t now_ns);
/* Before stage 8: from here on work counts for the next step. */
void constrain_next_step(struct engine *engine);
/* Stage 8: feeds the last output token, which is not a stop id. Sets *finished if the grammar
 * allows no further token. Returns 0, the error by which the request must end, or GRAMMAR_LATER if
 * the step has no work left for it: then constrain_continue feeds it and calls engine_append_late.
 */
int constrain_accept(struct engine *engine, sequence_t *sequence, bool *finished);
/* Behind a model that drafts: cuts the draft tokens of constrained entries before the first one
 * that the grammar forbids. */
void constrain_cut_drafts(struct engine *engine, plan_t *plan);
/* Stage 7: the mask behind draft token `index` of the sequence, valid until the next plan. */
const uint32_t *constrain_draft_mask(const struct engine *engine, const sequence_t *sequence,
                                     int32_t index);
/* Stage 8: whether the sequence has a grammar that lets the text end behind its last token. */
bool constrain_may_end(const struct engine *engine, const sequence_t *sequence);
/* Stage 8: how many of the first `count` draft tokens the grammar left no choice for. */
int32_t constrain_certain(const struct engine *engine, const sequence_t *sequence, int32_t count);
/* Stage 8: the token behind draft token `index` comes next: its mask counts for the request. */
void constrain_note_draft(const struct engine *engine, const sequence_t *sequence, int32_t index);
/* Lets the matcher of a sequence stand where that of another stands, which has the same tokens. */
void constrain_fork(const struct engine *engine, const sequence_t *parent, sequence_t *child);

#endif
