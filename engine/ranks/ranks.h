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
  bool sums, cut_layers; /* model_part_t.sums; the model is cut into stages */
  bool batch_invariant, quantise_q8, kv_fp8, kv_int8; /* of engine_options_t */
  int32_t dtype;                                      /* dtype_t of the model */
  int32_t drafts_max; /* draft tokens of a sequence, on which warm-up runs depend */
  int32_t lora_rank_max;
  packet_limits_t limits; /* block_table_stride of rank 0 counts */
} ranks_view_t;

/* *blocks becomes the smallest number of any rank. 0 or the error of the comm_t. comm NULL: *blocks
 * stays. */
int ranks_least(comm_t *comm, int32_t *blocks, inferd_error_t *error);
/* Waits until every rank has loaded its part. view->limits.block_table_stride becomes that of rank
 * 0. Returns 0, ERR_CONFIGURATION if ranks differ in anything else, or the error of the comm_t. */
int ranks_agree(comm_t *comm, ranks_view_t *view, inferd_error_t *error);

/* The engine of a rank that is not 0: loads its part of the model and runs what rank 0 sends, on
 * this thread, until that ends. 0, or why this rank or another one fails. follow.c. */
struct engine_options;
int engine_follow(const struct engine_options *options, inferd_error_t *error);

#endif
