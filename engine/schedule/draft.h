/* draft.h: guesses of the tokens that come next, for speculative decoding (lookahead slots).
 *
 * Prompt lookup: where the last few tokens have stood before, what followed them then is likely to
 * follow again (quotes, code, JSON, edits). Guesses are verified by one forward that samples behind
 * each of them, so they change the speed of a request and never its tokens. Pure; engine thread.
 */
#ifndef INFERD_ENGINE_SCHEDULE_DRAFT_H
#define INFERD_ENGINE_SCHEDULE_DRAFT_H

#include <stdint.h>

enum {
  DRAFT_TOKENS_MAX = 15,
  /* rows of a step up to which one more costs little: the weights are read once for all */
  DRAFT_STEP_TOKENS = 16
};

typedef struct draft_options {
  int32_t tokens_max;           /* guesses per step; 0 = off, <= DRAFT_TOKENS_MAX */
  int32_t match_min, match_max; /* tokens that must have stood before; 1 <= min <= max */
} draft_options_t;

/* How well the guesses of one sequence did; zero-initialised. A sequence whose guesses fail makes
 * fewer and pauses ever longer, so that text without repetition costs next to nothing. */
typedef struct draft_history {
  int32_t misses; /* steps in a row whose first guess was wrong */
  int32_t pause;  /* steps until the next guess */
  int32_t length; /* guesses per step at present; 0 = not yet chosen */
} draft_history_t;

/* Writes at most `limit` guesses that may follow tokens[0, count) to `out` and returns how many.
 * The longest match wins, among equals the latest. O(count). */
int32_t draft_lookup(const draft_options_t *options, const int32_t *tokens, int32_t count,
                     int32_t limit, int32_t *out);

/* Guesses that a sequence may make in this step; counts a pause down. */
int32_t draft_length(const draft_options_t *options, draft_history_t *history);
/* Learns from a step: of `drafted` > 0 guesses the first `accepted` were right. */
void draft_learn(const draft_options_t *options, draft_history_t *history, int32_t drafted,
                 int32_t accepted);

#endif
