/* stats.h: what the engine counts.
 *
 * Written by the engine thread; everybody else has copies (engine_stats). Units and exact meaning
 * of what /metrics shows of it: server/observe/metrics_page.c.
 */
#ifndef INFERD_ENGINE_STATS_H
#define INFERD_ENGINE_STATS_H

#include <stdbool.h>
#include <stdint.h>

/* Counters and gauges, one consistent copy per step (sequence lock). Units: metrics.md. */
typedef struct engine_stats {
  int32_t num_running, num_waiting, num_swapped;
  int32_t blocks_used, blocks_cached, blocks_free; /* sum = num_blocks - 1 */
  int32_t host_blocks_used, host_blocks_free;      /* sum = num_host_blocks */
  int64_t waiting_tokens;
  uint64_t steps;
  uint64_t prompt_tokens, prompt_tokens_cached, generation_tokens;
  uint64_t prefix_queries_tokens, prefix_hits_tokens;
  uint64_t preemptions, preemptions_swap, recomputed_tokens; /* preemptions: of both modes */
  uint64_t swapped_out_blocks, swapped_in_blocks;
  uint64_t drafts, draft_tokens, draft_tokens_accepted; /* speculative decoding */
  uint64_t finished_stop, finished_length, finished_abort, finished_error;
  uint64_t scheduled_tokens; /* sum over steps */
  uint64_t overhead_ns;      /* receive + plan + prepare + commit, sum */
  uint64_t device_ns;        /* forward + sample, sum */
  uint64_t grammar_masks, grammar_mask_hits, grammar_mask_ns; /* rows, known ones, time for all */
  uint64_t last_step_ns; /* monotonic end of the last step; 0 = none yet */
  bool busy;             /* work exists */
} engine_stats_t;

#endif
