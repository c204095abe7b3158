/* stats.h: what an engine tells of itself: sizes, counters and gauges, and what its thread does.
 *
 * The engine thread writes counters and gauges; other threads get copies by engine_stats. The help
 * texts of the metrics that show them are in server/observe/metrics.def.
 */
#ifndef INFERD_ENGINE_STATS_H
#define INFERD_ENGINE_STATS_H

#include "engine/embedding.h"
#include "engine/encoder_source.h"
#include "engine/prompt_rows.h"
#include "engine/vision/image.h"

#include <stdbool.h>
#include <stdint.h>

/* Known once the state is READY; constant afterwards. Sizes are those of each replica. */
typedef struct engine_info {
  int32_t max_model_len;    /* effective context, in tokens */
  int32_t vocab_size;       /* prompt ids are below it: rows of the embedding */
  int32_t block_size;       /* tokens of a KV block */
  int32_t num_blocks;       /* with the null block */
  int32_t num_host_blocks;  /* for preempted requests; 0 = no swapping */
  int32_t num_floor_blocks; /* below the prefix cache (floor.h); 0 = no floor */
  int64_t kv_tokens;    /* that the blocks hold in sequences of full context: windows keep fewer */
  int32_t max_num_seqs; /* sequences that run at once */
  int32_t max_num_batched_tokens;    /* of a step */
  int32_t num_ranks;                 /* processes that run the model together, at least 1 */
  int32_t num_replicas;              /* at least 1 */
  int32_t primary_eos, num_stop_ids; /* num_stop_ids: the model's further EOS ids */
  const int32_t *stop_ids;           /* [num_stop_ids] */
  /* Defaults of generation_config.json; NaN or -1 = not given. */
  float temperature, top_p, min_p, repetition_penalty;
  int32_t top_k, max_new_tokens;
  uint64_t weights_hash;    /* of names, shapes and a sample of the data: for system_fingerprint */
  const char *backend;      /* "cpu" or "cuda" */
  const char *device;       /* "2 threads, avx512bf16" */
  const char *dtype;        /* "bfloat16" */
  const char *architecture; /* as config.json names it */
  const embedding_info_t *embedding; /* how prompts become vectors; NULL = it generates */
  const vision_t *vision;            /* NULL = the model sees no pictures */
  const vision_t *hearing;           /* of sounds in prompts; NULL = it takes none */
  const struct speech *speech;       /* audio/speech.h; NULL = the model writes down no speech */
  const source_info_t *source;       /* NULL = no encoder stands before the model */
  const prompt_rows_info_t *rows;    /* NULL = prompts are ids alone */
} engine_info_t;

/* Upper bounds of the buckets in which the sizes of steps are counted, and the number of buckets:
 * the last one is above every bound. */
#define STEP_TOKEN_BOUNDS 1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384
enum { STEP_TOKEN_BUCKETS = 14, STATS_DRAFTS_MAX = 15, STEP_PARTS = 5 };

/* Gauges have the state after the last step, counters are sums since start. One consistent copy is
 * published per step (sequence lock in engine.c). Names say the unit: blocks, tokens, _ns; num_ are
 * requests. */
typedef struct engine_stats {
  int32_t num_running, num_waiting, num_swapped;
  int32_t num_held; /* of num_waiting: those whose client runs as many sequences as it may */
  int32_t blocks_used, blocks_cached, blocks_free; /* sum = num_blocks - 1 */
  int32_t host_blocks_used, host_blocks_free;      /* sum = num_host_blocks */
  int64_t waiting_tokens; /* prompt tokens of the requests that never ran */
  uint64_t steps;
  uint64_t steps_left; /* not among `steps`: of best effort, not ended because another one came */
  uint64_t prompt_tokens, prompt_tokens_cached, generation_tokens;
  uint64_t prefix_queries_tokens, prefix_hits_tokens;
  uint64_t sources_read, encoder_ns; /* runs of an encoder that were begun; time of all */
  uint64_t images_seen, tower_ns;    /* runs of the tower that were begun, for sounds too; time of
                                      * all */
  uint64_t preemptions, preemptions_swap, recomputed_tokens; /* preemptions: of both modes */
  uint64_t swapped_out_blocks, swapped_in_blocks;
  uint64_t floor_out_blocks, floor_in_blocks; /* to and from the floor of the prefix cache */
  uint64_t floor_damaged_blocks;              /* of its file, ignored */
  uint64_t drafts, draft_tokens, draft_tokens_accepted; /* speculative decoding */
  uint64_t drafts_paused; /* decodes without drafts, because the last ones were wrong */
  uint64_t drafts_slow;   /* decodes without drafts, because they are not worth their time */
  uint64_t draft_accepted_at[STATS_DRAFTS_MAX]; /* by the place among the drafts of a step */
  uint64_t finished_stop, finished_length, finished_abort, finished_error;
  uint64_t scheduled_tokens; /* tokens of all steps */
  /* Steps by the tokens of their batch; and by their tokens that came to an end: the computed ones
   * of prompts that are complete, and generated ones. */
  uint64_t steps_by_tokens[STEP_TOKEN_BUCKETS], steps_by_results[STEP_TOKEN_BUCKETS];
  uint64_t overhead_ns; /* time of receive, plan, building of the batch, and commit */
  uint64_t device_ns;   /* time of draft models, forward, sample, and waiting for the end */
  uint64_t grammar_masks, grammar_mask_hits, grammar_mask_ns; /* rows, rows from cache, time */
  uint64_t grammar_masks_helped; /* rows that threads made beside the engine thread */
  uint64_t grammar_masks_late; /* sequences that drew no token in a step because a mask was late */
  uint64_t overlapped_steps;   /* launched while the step before was in flight */
  uint64_t awaited_rows;       /* left out of such a step: the token that they need was in flight */
  uint64_t sat_out;      /* times that a request which decodes sat a step out for another client */
  uint64_t queue_visits; /* waiting requests met by arrivals, ends, deadlines */
  double step_cost_ns[STEP_PARTS];     /* learned, by cost_term_t (cost.h) */
  uint64_t last_step_ns;               /* end of the last step, monotonic clock; 0 = none yet */
  uint64_t exchanges, exchanged_bytes; /* between ranks: collectives, what rank 0 got by them */
  bool busy;                           /* a request is in the engine */
} engine_stats_t;

/* What the engine thread is doing. In the last two phases the device works, or the call of the back
 * end does. */
typedef enum engine_phase {
  ENGINE_SLEEPS,
  ENGINE_RECEIVES, /* requests, cancels, deadlines */
  ENGINE_PLANS,
  ENGINE_MAKES_MASKS,
  ENGINE_COMMITS,
  ENGINE_LAUNCHES, /* one launch: swaps, forward, sampling */
  ENGINE_WAITS     /* for the end of a step */
} engine_phase_t;

typedef struct engine_activity {
  engine_phase_t phase;
  uint64_t since_ns;   /* when the phase began; monotonic */
  uint64_t worked_ns;  /* when the work counter moved last */
  uint64_t work;       /* phases, requests, masks, admissions that were begun, since start */
  uint64_t request_id; /* request_t.id of the request that was worked on last; 0 = none yet */
} engine_activity_t;

struct engine;
/* Any thread: one of the engine_info_t.num_replicas, which engine_stats adds up. */
void engine_stats_of(const struct engine *engine, int32_t replica, engine_stats_t *out);
/* Any thread, and signal handlers. Of several replicas the slowest one that is busy. */
void engine_activity(const struct engine *engine, engine_activity_t *out);

#endif
