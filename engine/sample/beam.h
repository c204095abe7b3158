/* beam.h: beam search, as a part of the commit of a step (stage 8 of 9).
 *
 * Engine thread only; allocates nothing. The work arrays belong to the engine and are used within
 * one commit. What must outlive a step is kept in the sequences of the group and in the memory that
 * its request lends (choices.h).
 */
#ifndef INFERD_ENGINE_SAMPLE_BEAM_H
#define INFERD_ENGINE_SAMPLE_BEAM_H

#include "engine/device/sample.h"
#include "engine/schedule/scheduler.h"

enum { BEAM_SEQUENCES_MAX = 64 }; /* 2 * width ids fit into one sample_result_t */

struct engine;

/* One live beam, and its row of sampled ids. */
typedef struct beam {
  sequence_t *sequence;
  const sample_row_t *row;
  int32_t head;         /* ids of the row that are ranked already */
  int32_t num_children; /* continuations of this beam among the next beams */
} beam_t;

/* A beam extended by one token. */
typedef struct continuation {
  int32_t beam;  /* index into beams */
  int32_t entry; /* index into the ids of the beam's row */
  int32_t id;
  float logprob;        /* raw logprob of id */
  double sum;           /* of raw logprobs, this token included */
  sequence_t *sequence; /* the sequence that becomes this beam */
  int32_t parent_node;  /* choices.h: node of the token before; -1 = none */
} continuation_t;

typedef struct beam_work {
  beam_t beams[BEAM_SEQUENCES_MAX]; /* beams of the group that is being committed */
  int32_t num_beams;
  continuation_t next[BEAM_SEQUENCES_MAX]; /* the next beams of the group */
} beam_work_t;

/* Adds the row of one beam of the group that is being committed. */
void beam_collect(struct engine *engine, sequence_t *seq, const sample_row_t *row);
/* Called after each entry of the plan is committed. If `entry` is the last of a group with beams,
 * extends all beams of the group by one token; may finish the group. */
void beam_commit(struct engine *engine, const plan_t *plan, int32_t entry, uint64_t now_ns);
/* What a late grammar says of a beam's last token (engine_append_late). May finish the group. */
void beam_append_late(struct engine *engine, sequence_t *seq, sequence_status_t status,
                      uint64_t now_ns);

#endif
