/* ranks.h: one engine over several processes: rank 0 decides, the others follow it.
 *
 * Rank 0 is a whole engine: it schedules, draws and talks to the server. The other ranks load their
 * part of the model and run the steps that rank 0 sends. Engine thread of rank 0, or the only
 * thread of a follower.
 */
#ifndef INFERD_ENGINE_RANKS_RANKS_H
#define INFERD_ENGINE_RANKS_RANKS_H

#include "engine/ranks/packet.h"

/* What the ranks have to agree on before the first step. */
typedef struct ranks_view {
  uint64_t weights_hash;
  char backend[8]; /* ops_t.name */
  int32_t max_model_len, num_blocks;
  bool sums, cut_layers; /* engine_options_t; what follows, too */
  bool batch_invariant, quantise_q8, kv_fp8, kv_int8;
  int32_t dtype, drafts_max; /* of the model; warm-up runs depend on the other */
  int32_t lora_rank_max;
  packet_limits_t limits; /* block_table_stride: what rank 0 says */
} ranks_view_t;

/* *blocks becomes the smallest number of any rank. 0 or the error of the comm_t. */
int ranks_least(comm_t *comm, int32_t *blocks, inferd_error_t *error);
/* Waits until every rank has loaded its part. ERR_CONFIGURATION if they have not loaded the same.
 */
int ranks_agree(comm_t *comm, ranks_view_t *view, inferd_error_t *error);

/* The engine of a rank that is not 0: loads its part of the model and runs what rank 0 sends, on
 * this thread, until that ends. 0, or why this rank or another one fails. follow.c. */
struct engine_options;
int engine_follow(const struct engine_options *options, inferd_error_t *error);

#endif
