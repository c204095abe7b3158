/* draft.h: draft tokens for speculative decoding: prompt lookup, and how many a sequence drafts.
 *
 * Prompt lookup: if the last few tokens occur earlier in the text, the tokens that followed them
 * there are likely to follow again (quotes, code, JSON, edits). One forward verifies all draft
 * tokens: it samples a token after each of them. So drafts change the speed of a request and never
 * its tokens. Pure functions; engine thread.
 */
#ifndef INFERD_ENGINE_SCHEDULE_DRAFT_H
#define INFERD_ENGINE_SCHEDULE_DRAFT_H

#include <stdbool.h>
#include <stdint.h>

enum {
  DRAFT_TOKENS_MAX = 15,
  /* Most draft tokens in flight, shared by the running groups; and where each takes a state. */
  DRAFTS_IN_FLIGHT_MAX = 256,
  DRAFT_STATES_MAX = 16
};

typedef struct draft_options {
  int32_t tokens_max; /* draft tokens per step and sequence; 0 = off, <= DRAFT_TOKENS_MAX */
  int32_t match_min, match_max; /* length in tokens of a usable match; 1 <= min <= max */
  bool predicts; /* a layer of the model, or a head of EAGLE-3, drafts (predict.h): no lookup */
  bool longest;  /* always tokens_max, whatever was right and whatever it costs: for tests */
} draft_options_t;

/* Success of the drafts of one sequence; starts as all zeros. Old drafts count for less and less.
 */
typedef struct draft_history {
  float right, tried; /* draft tokens that were right; that were verified behind right ones */
  int32_t misses;     /* consecutive drafts whose first token was rejected */
  int32_t pause;      /* steps to skip before the next draft */
  int32_t followed;   /* tokens known when that layer or head ran last (predict.h) */
} draft_history_t;

/* Of a sequence. */
typedef struct draft_state {
  draft_history_t history;
  bool waits; /* no step is planned before the token in flight is known, for drafts behind it */
} draft_state_t;

struct sequence;
/* Drafts under a constraint. `count` draft tokens stand behind the known tokens of the sequence.
 * The function returns how many it leaves there, `most` at most: as many of the first `limit` as
 * the grammar allows, tokens that it would choose in their place, and those that nothing but one
 * token can be. */
typedef struct draft_filter {
  int32_t (*choose)(void *context, struct sequence *seq, int32_t count, int32_t limit,
                    int32_t most); /* NULL = constrained sequences draft nothing */
  void *context;
} draft_filter_t;

/* Of all sequences. */
typedef struct draft_sums {
  draft_filter_t filter; /* of constrained sequences */
  double model_ns;       /* in which a model makes a token for each sequence; 0 = there is none */
  int32_t num_in_flight; /* draft tokens of plans that are not settled */
  uint64_t num_paused, num_slow; /* decodes without drafts: draft_pauses; not worth the time */
} draft_sums_t;

/* A step without the draft tokens that are being chosen. */
typedef struct draft_step {
  double tokens; /* that it yields */
  double cost;   /* its time, in those that one more draft token takes */
} draft_step_t;

/* A text in two parts: prompt[0, num_prompt), then tokens[num_prompt, count). */
typedef struct draft_text {
  const int32_t *prompt, *tokens;
  int32_t num_prompt, count;
} draft_text_t;

/* Writes at most `limit` tokens that may follow the text to `out`, which the caller owns. Returns
 * how many; 0 if nothing matches. The longest match wins; among equally long matches, the latest.
 * `out` may be &tokens[count]. O(count * match_max) at worst. */
int32_t draft_lookup(const draft_options_t *options, const draft_text_t *text, int32_t limit,
                     int32_t *out);

/* Whether a sequence drafts nothing in this step because of drafts that were wrong; the pause
 * becomes one step shorter. It doubles with each draft whose first token is wrong, up to 64 steps.
 */
bool draft_pauses(draft_history_t *history);
/* Returns how many draft tokens a sequence may have: as long as one more makes the step yield more
 * tokens in its time, if so many are right as were lately. So text without repetition costs almost
 * nothing, and neither do drafts in a step that is full of rows. */
int32_t draft_length(const draft_options_t *options, draft_history_t *history,
                     const draft_step_t *step);
/* Updates the history after a step: the first `accepted` of `drafted` > 0 tokens were right. */
void draft_learn(draft_history_t *history, int32_t drafted, int32_t accepted);

#endif
