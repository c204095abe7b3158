/* beam.h: beam search inside the commit of a step.
 *
 * Engine thread only. The work arrays are made at start; what outlives a step lives in the group's
 * sequences and in the room of its request (choices.h).
 */
#ifndef INFERD_ENGINE_SAMPLE_BEAM_H
#define INFERD_ENGINE_SAMPLE_BEAM_H

#include "engine/device/sample.h"
#include "engine/schedule/scheduler.h"

enum { BEAM_SEQUENCES_MAX = 64 }; /* 2 * width ids fit into one sample_result_t */

struct engine;

/* One live beam and the ids that its row brought. */
typedef struct beam {
  sequence_t *sequence;
  const sample_row_t *row;
  int32_t head; /* ids of the row that are ranked already */
  int32_t num_children;
} beam_t;

/* A beam and one more token. */
typedef struct continuation {
  int32_t beam;  /* index into beams */
  int32_t entry; /* in the list of its row */
  int32_t id;
  float logprob;
  double sum;           /* of raw logprobs, with this one */
  sequence_t *sequence; /* where it goes on */
  int32_t parent_node;
} continuation_t;

typedef struct beam_work {
  beam_t beams[BEAM_SEQUENCES_MAX]; /* of the group that is being committed */
  int32_t num_beams;
  continuation_t next[BEAM_SEQUENCES_MAX];
} beam_work_t;

/* Ids that the row of one beam has to bring: all that are asked for, and enough to go on. */
int32_t beam_num_top(const struct engine *engine, const sampling_params_t *params);
/* Notes the drawn row of one beam. */
void beam_collect(struct engine *engine, sequence_t *seq, const sample_row_t *row);
/* After entry `entry` of the plan: once all beams of a group are there, moves the group one token
 * on; may end it. */
void beam_commit(struct engine *engine, const plan_t *plan, int32_t entry, uint64_t now_ns);

#endif
