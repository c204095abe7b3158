/* internal.h: the engine's own state, shared by engine.c, start.c, sampling.c and commit.c.
 *
 * Everything but the atomics and the mailbox belongs to the engine thread once it runs.
 */
#ifndef INFERD_ENGINE_INTERNAL_H
#define INFERD_ENGINE_INTERNAL_H

#include "engine/batch.h"
#include "engine/engine.h"
#include "engine/mailbox.h"
#include "engine/model/model.h"
#include "engine/ops.h"
#include "engine/scheduler.h"

#include <pthread.h>

enum {
  SUPPRESSED_MAX = MODEL_EOS_MAX + STOP_TOKEN_IDS_MAX,
  STATS_WORDS = sizeof(engine_stats_t) / sizeof(uint64_t)
};
_Static_assert(sizeof(engine_stats_t) % sizeof(uint64_t) == 0, "the seqlock copies whole words");

struct engine {
  engine_options_t options; /* strings are owned copies */
  pthread_t thread;
  bool thread_started;
  atomic_int state; /* engine_state_t */
  atomic_int progress_permille;
  atomic_bool stop;
  error_t failure; /* written before state becomes FAILED */

  /* made by start.c on the engine thread */
  const ops_t *ops;
  device_t *device;
  blueprint_t blueprint;
  tokenizer_t *tokenizer;
  model_t *model;
  engine_info_t info;
  int32_t stop_ids[MODEL_EOS_MAX]; /* EOS ids but the primary one */
  block_pool_t *pool;
  scheduler_t *scheduler;
  batch_t *batch;
  int32_t logits_rows_max;
  sample_row_t *sample_rows;       /* [max_num_batched_tokens] */
  sample_result_t *sample_results; /* the same */
  int32_t *suppressed_ids;         /* [max_num_seqs, SUPPRESSED_MAX] */
  char *text;                      /* detokenizer_out_max bytes for one token */
  size_t text_max;
  size_t done_bytes_max, step_bytes_max; /* of the event ring */

  mailbox_t
      *mailbox; /* made by engine_create: requests may wait for nothing, but state is checked */
  group_t *groups;
  int32_t num_groups;
  group_t *free_groups;
  uint64_t next_arrival;
  int32_t num_live; /* groups in use, engine thread's count */

  /* loop thread's own count: submitted and not drained */
  int32_t loop_live;
  /* never admitted: raised by the loop at submit, lowered by the engine */
  atomic_int queued_requests;
  atomic_llong queued_tokens;
  atomic_uint cancel_epoch;
  unsigned cancel_epoch_seen;
  uint64_t queue_check_ns;
  atomic_int finish_rate_milli; /* requests per 1000 seconds, smoothed; 0 = unknown */
  uint64_t rate_window_ns;
  int32_t rate_window_count;

  /* sequence lock: odd while the engine writes */
  atomic_uint stats_version;
  _Atomic uint64_t stats_shared[STATS_WORDS];
  engine_stats_t stats; /* engine thread's working copy */
};

/* start.c, engine thread: loads everything; on failure frees nothing (engine_destroy does). */
int engine_start(engine_t *engine, error_t *error);
void engine_release(engine_t *engine); /* what engine_start made */

/* sampling.c, stage 7: launches logits and sampling of the batch's selected rows. */
void engine_sample(engine_t *engine);

/* commit.c, stage 8: results -> tokens, text, events; finishes and publishes. Returns events made.
 */
int engine_commit(engine_t *engine, uint64_t now_ns);
/* Ends a group in any live state and emits its one EVENT_DONE. */
void engine_finish(engine_t *engine, group_t *group, sequence_status_t status, int error_code,
                   uint64_t now_ns);

#endif
