/* internal.h: the engine's own state, shared by engine.c, start.c, step.c, sampling.c, commit.c and
 * their helpers. Once the engine thread runs, all fields belong to it, except the atomics, the
 * mailbox, and the fields that are marked as the loop thread's.
 */
#ifndef INFERD_ENGINE_INTERNAL_H
#define INFERD_ENGINE_INTERNAL_H

#include "engine/activity.h"
#include "engine/asleep.h"
#include "engine/backend.h"
#include "engine/commit.h"
#include "engine/device/batch.h"
#include "engine/device/ops.h"
#include "engine/encoding.h"
#include "engine/engine.h"
#include "engine/grammar/mask/masks.h"
#include "engine/hearing.h"
#include "engine/journal/lane.h"
#include "engine/mailbox.h"
#include "engine/model/adapter/adapter.h"
#include "engine/model/model.h"
#include "engine/model/sizes.h"
#include "engine/ranks/packet.h"
#include "engine/replicas/replicas.h"
#include "engine/rows.h"
#include "engine/sample/beam.h"
#include "engine/sample/constrain.h"
#include "engine/schedule/draft/drafter.h"
#include "engine/schedule/draft/predict.h"
#include "engine/schedule/floor/floor_file.h"
#include "engine/share.h"
#include "engine/sight.h"
#include "engine/step.h"

#include <pthread.h>

enum {
  SUPPRESSED_MAX = MODEL_EOS_MAX + STOP_TOKEN_IDS_MAX,
  STATS_WORDS = sizeof(engine_stats_t) / sizeof(uint64_t)
};
_Static_assert((int)SUPPRESSED_MAX <= (int)SUPPRESSED_IDS_MAX, "back ends plan for this many");
_Static_assert((int)STEP_PARTS == (int)COST_TERMS, "the parts of a step are the terms of its cost");
_Static_assert(sizeof(engine_stats_t) % sizeof(uint64_t) == 0, "the seqlock copies whole words");

struct engine {
  engine_options_t options;
  char *strings[6]; /* owned copies of the strings in `options` */
  backend_choice_t backend;
  pthread_t thread;
  bool thread_started;
  replicas_t replicas;
  atomic_int state, progress_permille; /* state: engine_state_t */
  atomic_bool stop;
  inferd_error_t failure; /* written before state becomes FAILED */

  /* Made by start.c on the engine thread. */
  const ops_t *ops; /* of `backend`, the one that opened */
  device_t *device;
  blueprint_t blueprint;
  tokenizer_t *tokenizer;
  model_t *model;
  drafter_t *drafter;        /* NULL = no draft model */
  predictor_t *predictor;    /* NULL = no layer of the model predicts */
  struct sight *sight;       /* NULL = the model sees no pictures, or none here */
  struct encoding *encoding; /* NULL = no encoder stands before the model */
  prompt_rows_info_t rows;   /* width 0 = prompts are ids alone */
  speech_t *speech;          /* NULL = the model writes down no speech */
  packets_t packets;         /* to or from other ranks; comm NULL = none */
  engine_info_t info;
  embedding_info_t embedding;     /* of `info`, if prompts become vectors */
  dense_layer_t dense[DENSE_MAX]; /* behind the pooling */
  int32_t num_dense, num_pooled;  /* num_pooled: of step->pooled, while a step is committed */
  bool embeds;
  const char **labels;             /* of `embedding`, owned */
  int32_t stop_ids[MODEL_EOS_MAX]; /* EOS ids except the primary one */
  block_pool_t *pool;
  floor_file_t floor_file; /* of pool->floor; zeroed = none */
  scheduler_t *scheduler;
  int32_t logits_rows_max;
  constrain_t constrain;
  step_t steps[STAGE_STEPS_MAX];
  int32_t num_steps, next_step; /* planned and not committed; index in `steps` of the next one */
  int32_t steps_most;           /* in-flight steps at most: engine_depth */
  int32_t awaited_one_in; /* steps overlap if at most one of so many rows must be left out for it */
  uint64_t lap_ns, completed_ns; /* when the timed part of the step began; the last step ended */
  double host_block_bytes;
  char *text; /* [text_max] text of one token, from the detokenizer */
  size_t text_max;
  size_t done_bytes_max, step_bytes_max; /* largest events of an end, and of a step, in bytes */
  beam_work_t beam_work;
  /* Loop thread only, for choices that are delivered at the end: text and held text of a token. */
  char *replay_text; /* [text_max] */
  char replay_held[STOP_STRING_BYTES_MAX];

  mailbox_t *mailbox;   /* made by start.c; NULL until then, when no request can be submitted */
  trace_t *trace;       /* NULL = off; made by engine_new */
  journal_lane_t *lane; /* NULL = off; made by engine_start */
  group_t *groups;      /* [num_groups], made by engine_new; request.slot is the index */
  uint64_t next_arrival;
  int32_t num_groups, num_live, num_reporting; /* live: in use; those of them with reports_many */
  share_t *share; /* who waits, and who makes room; made by engine_new */
  /* Loop thread only: requests submitted whose EVENT_DONE was not drained; slots without one. */
  int32_t loop_live;
  int32_t *free_slots; /* [num_groups - loop_live] */
  /* Requests of which no committed step had a row: raised by the loop, lowered by the engine. */
  atomic_int queued_requests;
  atomic_llong queued_tokens;
  _Atomic(adapter_t *) adapters[LORAS_MAX]; /* set by the loop, taken by the engine; NULL = none */
  adapter_t *kept_adapters[LORAS_MAX];      /* whose tables the device reads; NULL = none */
  /* Loop thread, from READY on: with which tokens the adapters begin. */
  invocation_t invocations[LORAS_MAX];
  atomic_uint adapter_epoch; /* raised by the loop when it sets an adapter */
  unsigned adapter_epoch_seen;
  uint64_t queue_check_ns;      /* when the deadlines of waiting requests were checked last */
  atomic_int finish_rate_milli; /* requests per 1000 seconds, smoothed; 0 = unknown */
  atomic_llong wait_token_ns, wait_base_us; /* of scheduler_forecast */
  uint64_t rate_window_ns;
  int32_t rate_window_count;

  asleep_t asleep;
  activity_t activity;
  atomic_uint stats_version; /* sequence lock: odd while the engine thread writes stats_shared */
  _Atomic uint64_t stats_shared[STATS_WORDS];
  engine_stats_t stats; /* the engine thread's working copy */
};

/* notes.c, which calls nothing of the engine. A line of at most 255 bytes for options.log, if there
 * is one. */
__attribute__((format(printf, 2, 3))) void engine_say(const engine_t *engine, const char *format,
                                                      ...);
/* Adds to a total the time since the last lap, which ends here. */
void engine_lap(engine_t *engine, uint64_t *total_ns);
/* The state of one engine; engine_state is that of all replicas. Any thread. */
engine_state_t engine_own_state(const engine_t *engine);

/* engine.c: the engine without its thread. The engine thread calls these; the simulator calls them
 * itself, and plays the other threads between the calls. */
int engine_new(const engine_options_t *options, engine_t **out, inferd_error_t *error);
/* Makes the other replicas of a new leader, by the options that it was made by; starts no thread.
 * On error those that were made are in `all`. */
int engine_make_replicas(engine_t *leader, const engine_options_t *options, inferd_error_t *error);
void engine_load(engine_t *engine); /* LOADING -> READY or FAILED */
/* One iteration: at most one step. Returns for how many milliseconds the thread may sleep unless it
 * is woken; 0 = call again at once. */
int engine_iterate(engine_t *engine);
/* Takes over an adapter that the model has in the slot, in the place of the last one. */
void engine_keep_adapter(engine_t *engine, int32_t slot, adapter_t *adapter);
void engine_end(engine_t *engine); /* aborts every live request and emits its EVENT_DONE */

/* start.c, engine thread: loads everything. Returns 0 or an error; frees nothing in either case. */
int engine_start(engine_t *engine, inferd_error_t *error);
void engine_release(engine_t *engine); /* frees what engine_start made, also in part */
/* task.c, once blueprint and device are there: what it makes. An error of options or files. */
int engine_choose_task(engine_t *engine, inferd_error_t *error);
/* task.c: an encoder sees a prompt of up to `longest` tokens in one step: no chunks, no cache. */
void engine_take_whole_prompts(engine_t *engine, int32_t longest);
/* The same: the states that the model keeps, num_layers 0 = none; turns off what does not go with
 * them. ERR_CONFIGURATION with the option. */
int engine_plan_states(engine_t *engine, state_desc_t *out, inferd_error_t *error);
/* task.c, when the bytes of the other parts are known: adds slots for snapshots of states, by
 * default one a sequence, in a quarter of what is left; 0 = no prefix cache. Returns all bytes. */
size_t engine_plan_snapshots(engine_t *engine, size_t other_bytes, size_t free_bytes,
                             state_desc_t *states, int32_t *num_snapshots);
/* warm_up.c, in engine_start: the warm-up runs. Returns 0, ERR_NO_MEMORY or the device's error. */
int engine_warm_up(engine_t *engine, inferd_error_t *error);

/* sample/sampling.c, stage 7: launches logits and sampling of the batch's selected rows; then the
 * draft model repeats the step. */
void engine_sample(engine_t *engine, step_t *step);
/* Launches logits and sampling of `total` selected rows, in slices of logits_rows_max. */
void engine_draw(const engine_t *engine, device_t *device, model_t *model, sample_row_t *rows,
                 int32_t total);

#endif
