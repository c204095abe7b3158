/* internal.h: the engine's own state, shared by the files of the step: engine.c, start.c,
 * flight.c, sampling.c, commit.c and their helpers.
 *
 * Everything but the atomics and the mailbox belongs to the engine thread once it runs.
 */
#ifndef INFERD_ENGINE_INTERNAL_H
#define INFERD_ENGINE_INTERNAL_H

#include "engine/commit.h"
#include "engine/device/batch.h"
#include "engine/device/ops.h"
#include "engine/engine.h"
#include "engine/flight.h"
#include "engine/grammar/grammar.h"
#include "engine/grammar/mask/masks.h"
#include "engine/mailbox.h"
#include "engine/model/adapter.h"
#include "engine/model/model.h"
#include "engine/sample/beam.h"
#include "engine/schedule/drafter.h"
#include "engine/schedule/scheduler.h"

#include <pthread.h>

enum {
  SUPPRESSED_MAX = MODEL_EOS_MAX + STOP_TOKEN_IDS_MAX,
  STATS_WORDS = sizeof(engine_stats_t) / sizeof(uint64_t)
};
_Static_assert((int)SUPPRESSED_MAX <= (int)SUPPRESSED_IDS_MAX, "back ends plan for this many");
_Static_assert(sizeof(engine_stats_t) % sizeof(uint64_t) == 0, "the seqlock copies whole words");

/* constrain.c's memory. */
typedef struct constrain {
  grammar_vocabulary_t *vocabulary;
  int32_t row_words; /* of one mask */
  char *matchers;    /* [num_rows] of matcher_bytes, by row of the token table */
  size_t matcher_bytes;
  grammar_scratch_t *scratch;
  grammar_masks_t *masks;
} constrain_t;

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
  drafter_t *drafter; /* NULL = no draft model */
  engine_info_t info;
  int32_t stop_ids[MODEL_EOS_MAX]; /* EOS ids but the primary one */
  block_pool_t *pool;
  scheduler_t *scheduler;
  int32_t logits_rows_max;
  constrain_t constrain;
  flight_t flights[FLIGHTS_MAX];
  int32_t num_flights;  /* launched and not committed */
  int32_t next_flight;  /* index of the one that is launched next */
  int32_t flights_most; /* 1 or 2: what the back end takes and the options allow */
  uint64_t landed_ns;   /* when the last step ended */
  double host_block_bytes;
  char *text; /* detokenizer_out_max bytes for one token */
  size_t text_max;
  size_t done_bytes_max, step_bytes_max; /* of the event ring */
  beam_work_t beam_work;
  /* the loop thread's, for choices that come at the end: text and held bytes of one token */
  char *replay_text;
  char replay_held[STOP_STRING_BYTES_MAX];

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
  _Atomic(adapter_t *) adapters[LORAS_MAX]; /* set by the loop, taken by the engine; NULL = none */
  atomic_uint adapter_epoch;
  unsigned adapter_epoch_seen;
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

/* engine.c: the engine without its thread. engine_create runs these on a thread of its own; the
 * simulator calls them itself, with every other thread's part in between. */
int engine_new(const engine_options_t *options, engine_t **out, error_t *error);
void engine_load(engine_t *engine); /* LOADING -> READY or FAILED */
/* One turn of the loop: at most one step. Returns for how many milliseconds the thread may sleep
 * unless it is woken; 0 = call again. */
int engine_turn(engine_t *engine);
void engine_end(engine_t *engine); /* aborts and answers what is left */

/* start.c, engine thread: loads everything; on failure frees nothing (engine_destroy does). */
int engine_start(engine_t *engine, error_t *error);
void engine_release(engine_t *engine); /* what engine_start made */
/* rehearse.c, at the end of engine_start. 0, or the device's error. */
int engine_rehearse(engine_t *engine, error_t *error);

/* constrain.c: grammars. Memory and the vocabulary's trie, at start; *build_ns is what that took.
 */
int constrain_new(engine_t *engine, uint64_t *build_ns, error_t *error);
void constrain_free(engine_t *engine);
/* Stage 7: gives `row` of the plan's entry `index` its mask. A grammar that fails gives an empty
 * mask, and the sampler then fails the row. */
void constrain_row(engine_t *engine, flight_t *flight, sample_row_t *row, sequence_t *sequence,
                   int32_t index);
/* Stage 8: the last output token, which is no stop id. *finished: the text is complete. 0 or
 * ERR_INTERNAL: the request ends. */
int constrain_accept(engine_t *engine, sequence_t *sequence, int32_t id, bool *finished);

/* sampling.c, stage 7: launches logits and sampling of the batch's selected rows. */
void engine_sample(engine_t *engine, flight_t *flight);
/* Launches logits of the model's `total` selected rows and what the rows ask for, in slices that
 * the device was prepared for. */
void engine_draw(const engine_t *engine, device_t *device, model_t *model, sample_row_t *rows,
                 int32_t total);

#endif
