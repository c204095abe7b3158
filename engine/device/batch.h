/* batch.h: the flattened inputs of one forward, stage 5 of 9.
 *
 * Built by engine/batch.c from the plan, read by the back ends. T = num_tokens, R = num_reqs,
 * K = block_table_stride, S = num_selected. All arrays live on the host, are sized at start and are
 * owned by the batch. Rows stand in this order: decodes first, then prefill chunks.
 */
#ifndef INFERD_ENGINE_DEVICE_BATCH_H
#define INFERD_ENGINE_DEVICE_BATCH_H

#include <stdbool.h>
#include <stdint.h>

typedef struct block_copy {
  int32_t src, dst; /* block ids */
  int32_t rows;     /* first `rows` slots of the block, in every layer, K and V */
} block_copy_t;

typedef struct batch {
  int32_t num_tokens; /* T */
  int32_t num_reqs;   /* R */
  int32_t max_query_len;
  int32_t max_seq_len;
  int32_t block_size;
  /* per token */
  int32_t *input_ids;    /* [T]; < 0: drawn by the step in flight, see ops.h */
  int32_t *positions;    /* [T] */
  int32_t *request_row;  /* [T] request_indices: row 0..R-1 of the token */
  int64_t *slot_mapping; /* [T] block * block_size + offset; -1 = write nothing */
  int32_t *adapters;     /* [T] low-rank adapter of the token, 1.. ; 0 = none */
  int32_t num_adapted;   /* tokens with an adapter; 0: `adapters` is not looked at */
  /* per row */
  int32_t *query_start_loc;     /* [R+1] exclusive prefix sum of chunk lengths, last = T */
  int32_t *num_computed_tokens; /* [R] before this step */
  int32_t *seq_lens;            /* [R] num_computed + chunk */
  const int32_t **block_table;  /* [R] -> row of K block ids, unused entries 0 */
  int32_t block_table_stride;   /* K */
  uint8_t *do_sample;           /* [R] */
  /* rows of the packed hidden state whose logits are wanted */
  int32_t num_selected;            /* S */
  int32_t *selected_token_indices; /* [S] ascending; equal ones: several draws of one row */
  int32_t *selected_row;           /* [S] row 0..R-1 that the index belongs to */
  int32_t *selected_sample;        /* [S] 0 = the row's sequence; i = i-th that forks off it */
  int32_t *selected_target;        /* [S] prompt token id to score, or -1 = sample */
  /* page copies that run before the forward */
  int32_t num_copies;
  block_copy_t *copies;
} batch_t;

struct plan;

/* engine/batch.c. Sizes every array for the largest step: S <= tokens_max + reqs_max; 0 or a
 * negative number without memory. */
int batch_new(int32_t tokens_max, int32_t reqs_max, int32_t block_size, int32_t block_table_stride,
              batch_t **out);
void batch_free(batch_t *batch);
/* Flattens a plan. Formulas: q = query_start_loc; positions[t] = num_computed + (t - q[r]);
 * slot_mapping[t] = block_table[r][position / block_size] * block_size + position % block_size. */
void batch_build(batch_t *batch, const struct plan *plan);

#endif
