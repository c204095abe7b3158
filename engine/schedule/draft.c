/* draft.c: prompt lookup and the length of drafts; the contract is in draft.h.
 *
 * Engine thread. Has no state of its own and allocates nothing.
 */
#include "engine/schedule/draft.h"

#include "engine/base/util.h"

enum { PAUSE_MAX = 64 };

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

int32_t draft_length(const draft_options_t *options, draft_history_t *history) {
  if (history->pause > 0) {
    history->pause--;
    return 0;
  }
  return history->length > 0 ? history->length : options->tokens_max;
}

void draft_learn(const draft_options_t *options, draft_history_t *history, int32_t drafted,
                 int32_t accepted) {
  if (accepted == drafted) {
    history->length = MIN(2 * drafted, options->tokens_max);
  } else {
    history->length = accepted + 1;
  }
  if (accepted > 0) {
    history->misses = 0;
    return;
  }
  history->pause = MIN(1 << MIN(history->misses, 6), PAUSE_MAX) - 1;
  history->misses++;
}
