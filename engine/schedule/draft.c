/* draft.c: prompt lookup and the length of drafts; the contract is in draft.h.
 *
 * Engine thread. Has no state of its own and allocates nothing.
 */
#include "engine/schedule/draft.h"

#include "engine/base/util.h"

enum { PAUSE_MAX = 64 };
/* Before anything is known a token counts as right in so many of so many cases. */
static const float RIGHT_AT_FIRST = 1.6f, TRIED_AT_FIRST = 2;
/* What a draft counts after the next one, and after a step without one. */
static const float KEPT = 0.9f, KEPT_IDLE = 0.99f;

static int32_t id_at(const draft_text_t *text, int32_t position) {
  return (position < text->num_prompt ? text->prompt : text->tokens)[position];
}

/* Length of the longest common run of tokens that ends before `end` and at the end of the text, at
 * most `most`. */
static int32_t match_length(const draft_text_t *text, int32_t end, int32_t most) {
  int32_t n = 0;
  while (n < most && n < end && id_at(text, end - 1 - n) == id_at(text, text->count - 1 - n)) n++;
  return n;
}

int32_t draft_lookup(const draft_options_t *options, const draft_text_t *text, int32_t limit,
                     int32_t *out) {
  int32_t best = 0, best_length = options->match_min - 1, count = text->count;
  if (count < 2) return 0;
  int32_t last = id_at(text, count - 1);
  for (int32_t end = count - 1; end > 0 && best_length < options->match_max; end--) {
    if (id_at(text, end - 1) != last) continue;
    int32_t n = match_length(text, end, options->match_max);
    if (n <= best_length) continue;
    best = end;
    best_length = n;
  }
  if (best == 0) return 0;
  /* The match may end less than `drafted` tokens before the end of the text. Then the text repeats
   * with this period, and the draft continues at `best`. */
  int32_t period = count - best, drafted = MIN(limit, options->tokens_max);
  for (int32_t i = 0; i < drafted; i++) out[i] = id_at(text, best + i % period);
  return drafted;
}

static void forget(draft_history_t *history, float kept) {
  history->right *= kept;
  history->tried *= kept;
}

bool draft_pauses(draft_history_t *history) {
  if (history->pause == 0) return false;
  history->pause--;
  forget(history, KEPT_IDLE);
  return true;
}

/* Token n of a draft is right if all before it are. */
int32_t draft_length(const draft_options_t *options, draft_history_t *history,
                     const draft_step_t *step) {
  double right = (history->right + RIGHT_AT_FIRST) / (history->tried + TRIED_AT_FIRST);
  double tokens = step->tokens, cost = step->cost, all_right = right;
  int32_t length = 0;
  for (; length < options->tokens_max && all_right * cost > tokens; length++) {
    tokens += all_right;
    cost += 1;
    all_right *= right;
  }
  if (length == 0) forget(history, KEPT_IDLE);
  return length;
}

void draft_learn(draft_history_t *history, int32_t drafted, int32_t accepted) {
  forget(history, KEPT);
  history->right += (float)accepted;
  history->tried += (float)(accepted + (accepted < drafted));
  if (accepted > 0) {
    history->misses = 0;
    return;
  }
  history->pause = MIN(1 << MIN(history->misses, 6), PAUSE_MAX) - 1;
  history->misses++;
}
