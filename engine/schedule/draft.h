/* draft.h: draft tokens for speculative decoding, found by prompt lookup.
 *
 * Prompt lookup: if the last few tokens occur earlier in the text, the tokens that followed them
 * there are likely to follow again (quotes, code, JSON, edits). One forward verifies all draft
 * tokens: it samples a token after each of them. So drafts change the speed of a request and never
 * its tokens. Pure functions; engine thread.
 */
#ifndef INFERD_ENGINE_SCHEDULE_DRAFT_H
#define INFERD_ENGINE_SCHEDULE_DRAFT_H

#include <stdint.h>

enum {
  DRAFT_TOKENS_MAX = 15,
  /* Tokens that a step with drafts may have, shared by the running groups. Up to about so many, one
   * more token costs little, because a step reads the weights once for all its tokens. */
  DRAFT_STEP_TOKENS = 16
};

typedef struct draft_options {
  int32_t tokens_max; /* draft tokens per step and sequence; 0 = off, <= DRAFT_TOKENS_MAX */
  int32_t match_min, match_max; /* length in tokens of a usable match; 1 <= min <= max */
} draft_options_t;

/* Success of the drafts of one sequence; starts as all zeros. A sequence whose drafts are rejected
 * gets fewer of them and pauses for longer each time, so text without repetition costs almost
 * nothing. */
typedef struct draft_history {
  int32_t misses; /* consecutive drafts whose first token was rejected */
  int32_t pause;  /* steps to skip before the next draft */
  int32_t length; /* draft tokens per step at present; 0 = not yet chosen, i.e. tokens_max */
} draft_history_t;

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

/* Returns how many draft tokens a sequence may have in this step; during a pause 0, and the pause
 * becomes one step shorter. */
int32_t draft_length(const draft_options_t *options, draft_history_t *history);
/* Updates the history after a step: the first `accepted` of `drafted` > 0 tokens were right. */
void draft_learn(const draft_options_t *options, draft_history_t *history, int32_t drafted,
                 int32_t accepted);

#endif
