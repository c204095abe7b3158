/* batch.h: the flattened inputs of one forward, stage 5 of 9.
 *
 * engine/batch.c builds it from the plan on the engine thread; the back ends read it. Symbols:
 * T = num_tokens, R = num_reqs, K = block_table_stride, S = num_selected. All arrays are in host
 * memory, sized at start and owned by the batch. A row is one plan entry: a sequence and its chunk
 * of tokens.
 */
#ifndef INFERD_ENGINE_DEVICE_BATCH_H
#define INFERD_ENGINE_DEVICE_BATCH_H

#include <stdbool.h>
#include <stdint.h>

typedef struct block_copy {
  int32_t src, dst; /* block numbers */
  int32_t rows;     /* the first `rows` slots of the block are copied: every layer, K and V */
} block_copy_t;

typedef struct state_copy {
  int32_t src, dst; /* slots of states */
} state_copy_t;

/* Saves of a row behind one token, at most: a draft token follows, and a block ends there. */
enum { STATE_SAVES_OF_TOKEN = 2 };

/* Where a row stores its state behind a token inside its chunk, or at the end of it. */
typedef struct state_save {
  int32_t row;
  int32_t behind; /* so many tokens of the chunk, at least 1 */
  int32_t slot;
} state_save_t;

struct cross_weights; /* cross_weights.h */

typedef struct batch {
  int32_t num_tokens; /* T */
  int32_t num_reqs;   /* R */
  int32_t max_query_len;
  int32_t max_seq_len;
  int32_t block_size;
  /* Per token. An id < 0 refers to the token that the previous step, still in flight, draws for its
   * selected row -1 - id (ops.h). */
  int32_t *input_ids;   /* [T] */
  int32_t *positions;   /* [T] */
  int32_t *request_row; /* [T] row 0..R-1 of the token */
  int32_t *token_types; /* [T] 1 = of the second text of a pair, else 0 */
  /* [num_groups, slots_stride] of group g, token t: block * block_size + offset; -1 = do not store
   * K and V */
  int64_t *slot_mapping;
  int32_t slots_stride; /* >= T */
  int32_t *adapters;    /* [T] slot of the low-rank adapter, 1.. ; 0 = none */
  int32_t num_adapted;  /* tokens with an adapter; 0: `adapters` is not read */
  /* Per row. */
  int32_t *query_start_loc;     /* [R+1] exclusive prefix sum of chunk lengths, last = T */
  int32_t *num_computed_tokens; /* [R] before this step */
  int32_t *seq_lens;            /* [R] num_computed + chunk */
  const int32_t **block_table;  /* [R] pointers to [num_groups, K] block numbers; 0 = unused, or
                                 * no token sees it any more (sides.h) */
  int32_t block_table_stride;   /* K */
  int32_t num_groups;           /* of layers, each with its own blocks: attention_t.group */
  uint8_t *do_sample;           /* [R] 1 = the row's last token is sampled */
  int32_t *state_slots;         /* [R] slot of the row's state (state_ops.h), 0 = none */
  /* Tokens in whose place stand rows of a picture, or of a prompt of rows: instead of the embedding
   * of the id. */
  int32_t num_embedded;
  int32_t num_deep;         /* planes of a row behind the first */
  int32_t *embedded_tokens; /* [num_embedded] indices of tokens, ascending */
  /* [num_embedded] -> (1 + num_deep) x hidden values in host memory, which stay until the step is
   * read: what takes the place of the embedding, then what is added behind layers 0, 1, .. Rows of
   * a prompt (prompt_rows.h) have the first plane alone, and stay until the launch has ended. */
  const float **embedded_rows;
  /* [3, rope_stride]: time, line and column by which a token is rotated (M-RoPE). NULL = no
   * sequence of the step has a picture: all three are `positions`. */
  int32_t *rope_positions;
  int32_t rope_stride; /* >= T */
  /* [T] a token sees the positions below this one even where they are behind it: the end of its
   * picture; 0 = none. NULL = no token does. */
  int32_t *seen_until;
  /* Of batch_see: where rows of pictures are, NULL = the model sees none, and the arrays behind
   * rope_positions and seen_until. */
  struct image_rows *image_rows;
  bool takes_rows;                /* of batch_embed */
  int32_t *rope_room, *seen_room; /* seen_room NULL = no layer sees pictures whole */
  /* Of batch_cross, where a decoder sees the rows of an encoder; else NULL: of each row the blocks
   * in which K and V of its encoder's rows lie, and how many rows these are, at least 1. */
  const int32_t **cross_table;                /* [R] -> block numbers */
  int32_t *cross_lens;                        /* [R] */
  const struct cross_weights **cross_weights; /* [R] what cross_ops_t.weigh fills; NULL = nothing */
  int32_t num_weighed;                        /* rows of which that is not NULL */
  struct cross_blocks *cross_blocks;
  /* The selected rows: tokens whose logits, or hidden states to be pooled, are needed. */
  int32_t num_selected;            /* S */
  int32_t *selected_token_indices; /* [S] ascending, each once */
  int32_t *selected_row;           /* [S] row 0..R-1 that the token belongs to, ascending */
  int32_t *selected_target;        /* [S] prompt token id to score; -1 = sample */
  bool reports_many;               /* a row may ask for more alternatives than ops_t.logprobs_max */
  /* Copies of KV blocks that run before the forward. */
  int32_t num_copies;
  block_copy_t *copies; /* [num_copies] */
  int32_t num_state_copies;
  state_copy_t *state_copies; /* [num_state_copies], in this order */
  int32_t num_state_saves;
  state_save_t *state_saves; /* [num_state_saves] by row, then by `behind` */
} batch_t;

struct plan;
struct image_rows;
struct cross_blocks;

/* Functions of engine/batch.c. batch_new allocates every array for the largest step, with
 * S <= tokens_max + reqs_max. Returns 0 and *out, which the caller frees with batch_free, or a
 * negative number without memory. */
int batch_new(int32_t tokens_max, int32_t reqs_max, int32_t block_size, int32_t block_table_stride,
              int32_t num_groups, batch_t **out);
void batch_free(batch_t *batch);
/* The model sees: takes the arrays for steps with pictures, of so many tokens. The same errors. */
int batch_see(batch_t *batch, int32_t tokens_max, struct image_rows *rows, bool whole);
/* Prompts may be rows: takes the arrays for these, behind batch_see. The same errors. */
int batch_embed(batch_t *batch, int32_t tokens_max);
/* The model is a decoder behind an encoder: takes the arrays for so many rows. The same errors. */
int batch_cross(batch_t *batch, int32_t reqs_max, struct cross_blocks *blocks);
/* Fills the batch from a plan. With r = request_row[t]:
 * positions[t] = num_computed_tokens[r] + (t - query_start_loc[r]);
 * slot_mapping[g, t] = block_table[r][g, position / block_size] * block_size + position %
 * block_size.
 */
void batch_build(batch_t *batch, const struct plan *plan);

#endif
