/* step.h: in-flight steps: a step from its launch to its commit; at most two at once, or one in
 * each stage of a model, STAGE_STEPS_MAX of them.
 *
 * Engine thread only. step_new allocates everything.
 */
#ifndef INFERD_ENGINE_STEP_H
#define INFERD_ENGINE_STEP_H

#include "engine/device/ops.h"
#include "engine/schedule/scheduler.h"

struct engine;

enum { STEPS_IN_FLIGHT_MAX = 2 };

/* One step from its launch to its commit. */
typedef struct step {
  plan_t plan; /* taken from the scheduler, which makes the next plan in the meantime */
  batch_t *batch;
  bool is_drawn;             /* in stages: it has been through all, and is sampled */
  bool is_left;              /* its forward was not ended, because somebody came */
  uint64_t turns_ns;         /* in stages: of its launch, and of turns that launched nothing */
  uint64_t launched_ns;      /* when the forward was launched */
  uint64_t device_before_ns; /* engine_stats.device_ns when the step was planned */
  sample_row_t *sample_rows; /* [max_num_batched_tokens + max_num_seqs] */
  sample_result_t *sample_results; /* [max_num_batched_tokens + max_num_seqs] */
  token_logprob_t *tops;           /* [max_num_batched_tokens + max_num_seqs, SAMPLE_TOP_MAX] */
  int32_t *suppressed_ids;         /* [max_num_seqs, SUPPRESSED_MAX] */
  float *vectors; /* [max_num_seqs, room of a vector], of an engine that embeds, like those below */
  struct sequence **pooled; /* [max_num_seqs] whose prompts this step completed */
  float *hidden; /* [max_num_batched_tokens, E] selected rows on the host; NULL = it generates */
} step_t;

/* Stage 4: plans the next step and launches its swaps. Returns NULL if there is no step to launch:
 * no sequence can run, the maximum of steps is in flight, or the next step needs tokens that the
 * last one draws. The caller passes the step to engine_prepare, engine_forward and engine_sample.
 */
step_t *engine_plan(struct engine *engine, uint64_t now_ns);
/* Stage 5: the draft tokens, then the batch. */
void engine_prepare(struct engine *engine, step_t *step);
/* Stage 6: launches the forward. A step in which all run by best effort is left between two layers
 * when another request comes, where that may be: step->is_left. */
void engine_forward(struct engine *engine, step_t *step);
step_t *engine_oldest_step(struct engine *engine); /* in flight, of which there must be one */
/* Waits for the oldest in-flight step, of which there must be one. Returns it, valid until the next
 * launch; NULL, with *error set, if the device is lost. What a step that was left has planned is
 * taken back: its sequences stand where they stood before it. */
step_t *engine_complete(struct engine *engine, inferd_error_t *error);
/* At the end: copies to a floor that persists what was to leave the pool. No step is in flight. */
void engine_flush_floor(struct engine *engine);
/* Waits for all in-flight steps and drops their results. */
void engine_complete_all(struct engine *engine);
/* Allocates the arrays of a zeroed step for the engine's limits. Returns 0, or -1 without memory;
 * the caller calls step_free in both cases. */
int step_new(const struct engine *engine, step_t *step);
void step_free(step_t *step);

#endif
