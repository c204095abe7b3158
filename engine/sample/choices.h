/* choices.h: the choices of a request that are known at its end only: best_of > n, beam search.
 *
 * They grow in memory that the request lends (request_t.room): a tree of tokens and the finished
 * candidates. The engine thread writes; after EVENT_DONE the loop thread reads and hands the best n
 * over as events. Never allocates.
 */
#ifndef INFERD_ENGINE_SAMPLE_CHOICES_H
#define INFERD_ENGINE_SAMPLE_CHOICES_H

#include "engine/schedule/sequence.h"

/* One generated token. `top` has room for what the request asks per token. */
typedef struct choice_node {
  int32_t parent; /* index of the node before it; -1 = first token */
  int32_t id;
  float logprob;
  int32_t rank, num_top;
  token_logprob_t top[];
} choice_node_t;

/* A finished candidate. */
typedef struct candidate {
  double score;      /* ranks candidates, the higher the better */
  double cumulative; /* sum of raw logprobs */
  int32_t order;     /* sample number, or order of finishing: the lower wins a tie */
  int32_t tail;      /* its last node; -1 = no token */
  int32_t num_tokens;
  finish_reason_t finish;
  int32_t stop_token_id, stop_string;
  bool by_grammar; /* STOP without a stop token: the last token is text */
} candidate_t;

typedef struct choices {
  int32_t num_candidates;   /* at most as many as sequences run at once */
  int32_t num_finished;     /* ever, also those that were dropped */
  candidate_t candidates[]; /* the best first */
} choices_t;

static inline choices_t *choices_of(const request_t *request) {
  return request->room;
}

/* Bytes of room: width * (max_tokens + 1) nodes, `width` candidates, a path for reading. 0 when the
 * request needs none, SIZE_MAX on overflow. */
size_t choices_bytes(const sampling_params_t *params);

/* ---- engine thread: tokens. Nodes are addressed by (output position, sequence index). ---- */
int32_t choices_index(const sequence_t *seq, int32_t position);
choice_node_t *choices_node(const request_t *request, int32_t index);
/* Fills a node from the event of a token: id, logprob, rank, alternatives. */
void choices_set_node(const request_t *request, int32_t index, int32_t parent,
                      const event_t *token);
/* The token that seq has just got, as the event that tells of it; not for beams. */
void choices_keep_token(const sequence_t *seq, const event_t *token);

/* ---- engine thread: candidates ---- */
/* Makes room for a candidate among the best; a full table drops the worst, perhaps this one: then
 * NULL. Only score and order are set in what comes back. */
candidate_t *choices_add(const request_t *request, double score, int32_t order);
/* A node outside of the tree that no candidate ends in. */
int32_t choices_spare_node(const request_t *request);
/* A sample that is complete: its score is its mean raw logprob. */
void choices_add_sequence(const sequence_t *seq, finish_reason_t finish);

/* Output tokens of the best n, and how the best one ended. */
int64_t choices_num_tokens(const request_t *request);
finish_reason_t choices_finish(const request_t *request);

/* Loop thread, on the EVENT_DONE of a request that did not fail: calls `handle` with the TOKEN and
 * CHOICE_DONE events of the best n. `text` has detokenizer_out_max bytes, `held`
 * STOP_STRING_BYTES_MAX. */
void choices_replay(const event_t *done, const tokenizer_t *tokenizer, char *text, char *held,
                    void (*handle)(void *context, const event_t *event), void *context);

#endif
