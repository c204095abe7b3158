/* choices.h: choices that are known only at the end of a request: best_of > n, beam search.
 *
 * The choices grow in memory that the request lends (request_t.room): a tree of tokens, and a table
 * of finished candidates. The engine thread writes until EVENT_DONE; then the loop thread reads and
 * delivers the best n candidates as events. No function allocates.
 */
#ifndef INFERD_ENGINE_SAMPLE_CHOICES_H
#define INFERD_ENGINE_SAMPLE_CHOICES_H

#include "engine/schedule/sequence.h"

/* One generated token. `top` has as many entries as the request wants alternatives per token. */
typedef struct choice_node {
  int32_t parent; /* index of the node of the token before; -1 = first token */
  int32_t id;
  float logprob;
  int32_t rank, num_top;
  token_logprob_t top[];
} choice_node_t;

/* A finished candidate for one of the choices. */
typedef struct candidate {
  double score;      /* a higher score is better */
  double cumulative; /* sum of raw logprobs */
  int32_t order;     /* sample number, or order of finishing: on equal scores the lower is better */
  int32_t tail;      /* index of its last node; -1 = no token */
  int32_t num_tokens;
  finish_reason_t finish;
  int32_t stop_token_id, stop_string;
  bool by_grammar; /* the grammar stopped it: the last token is text and not a stop token */
} candidate_t;

typedef struct choices {
  int32_t num_candidates;   /* at most params_num_sequences() */
  int32_t num_finished;     /* candidates ever added, dropped ones included */
  candidate_t candidates[]; /* [num_candidates], the best first */
} choices_t;

static inline choices_t *choices_of(const request_t *request) {
  return request->room;
}

/* Returns the bytes that request_t.room needs: width * (max_tokens + 1) nodes, `width` candidates
 * and a path for reading, with width = params_num_sequences(). 0 if the request needs no such
 * memory, SIZE_MAX on overflow. */
size_t choices_bytes(const sampling_params_t *params);

/* ---- engine thread: tokens. Nodes are addressed by (output position, sequence index). ---- */
int32_t choices_index(const sequence_t *seq, int32_t position);
/* Fills node `index` from the event of a token: id, logprob, rank, alternatives. */
void choices_set_node(const request_t *request, int32_t index, int32_t parent,
                      const event_t *token);
/* The token that seq has just got, as the event that tells of it; not for beams. */
void choices_keep_token(const sequence_t *seq, const event_t *token);

/* ---- engine thread: candidates ---- */
/* Inserts a candidate at its place by score and returns it, with score and order set, for the
 * caller to fill. A full table drops its worst candidate; returns NULL if that is the new one. */
candidate_t *choices_add(const request_t *request, double score, int32_t order);
/* Returns a node outside of the tree that no candidate uses: for the end token of a candidate. */
int32_t choices_spare_node(const request_t *request);
/* Adds a complete sample as a candidate; its score is its mean raw logprob. */
void choices_add_sequence(const sequence_t *seq, finish_reason_t finish);

/* The sum of the output tokens of the best n candidates; and how the best candidate ended. */
int64_t choices_num_tokens(const request_t *request);
finish_reason_t choices_finish(const request_t *request);

/* Loop thread, at the EVENT_DONE of a request that did not fail: calls `handle` with the TOKEN and
 * CHOICE_DONE events of the best n candidates. Scratch memory of the caller: `text` has
 * detokenizer_out_max bytes, `held` has STOP_STRING_BYTES_MAX. */
void choices_replay(const event_t *done, const tokenizer_t *tokenizer, char *text, char *held,
                    void (*handle)(void *context, const event_t *event), void *context);

#endif
