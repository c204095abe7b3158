/* compare.c: an answer that comes, token by token, beside the one that the journal has. */
#include "server/replay/replay.h"

#include "engine/journal/hash.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool compare_new(kept_answer_t *answer, comparison_t *out) {
  *out = (comparison_t){.answer = answer};
  out->num_tokens = calloc((size_t)answer->num_choices + 1, sizeof *out->num_tokens);
  return out->num_tokens != NULL;
}

void compare_free(comparison_t *comparison) {
  free(comparison->num_tokens);
}

static void differ(comparison_t *comparison, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void differ(comparison_t *comparison, const char *format, ...) {
  va_list list;
  if (comparison->differs) return; /* the first one counts */
  comparison->differs = true;
  va_start(list, format);
  vsnprintf(comparison->why, sizeof comparison->why, format, list);
  va_end(list);
}

static void on_token(comparison_t *comparison, const event_t *event) {
  const kept_choice_t *choice = &comparison->answer->choices[event->choice];
  uint32_t at = comparison->num_tokens[event->choice]++;
  if (at >= choice->num_tokens) {
    differ(comparison, "choice %d ended after %" PRIu32 " tokens, and has id %d now", event->choice,
           choice->num_tokens, event->token_id);
    return;
  }
  const kept_token_t *token = &choice->tokens[at];
  if (token->id != event->token_id) {
    differ(comparison, "token %" PRIu32 " of choice %d was id %d, and is %d", at, event->choice,
           token->id, event->token_id);
  } else if (token->has_logprob != event->has_logprob ||
             (token->has_logprob &&
              memcmp(&token->logprob, &event->logprob, sizeof event->logprob) != 0)) {
    differ(comparison,
           "the log-probability of token %" PRIu32 " (id %d) of choice %d was %.9g, "
           "and is %.9g",
           at, token->id, event->choice, (double)token->logprob, (double)event->logprob);
  } else if (token->has_logprob &&
             token->hash != journal_hash_token(event->rank, event->num_top, event->top)) {
    differ(comparison, "the alternatives of token %" PRIu32 " (id %d) of choice %d differ", at,
           token->id, event->choice);
  } else {
    comparison->num_equal++;
  }
}

static const char *name_of(finish_reason_t finish) {
  static const char *const names[] = {"nothing", "a stop", "its length", "an abort", "an error"};
  return names[finish];
}

static void on_done(comparison_t *comparison, const engine_info_t *info, const event_t *event) {
  const kept_answer_t *answer = comparison->answer;
  const request_t *request = event->request;
  comparison->done = true;
  if (event->finish == FINISH_ERROR && answer->finish != FINISH_ERROR)
    differ(comparison, "it ends with the error %s now", error_name(event->error_code));
  for (int32_t c = 0; c < answer->num_choices; c++)
    if (comparison->num_tokens[c] < answer->choices[c].num_tokens && answer->has_finish)
      differ(comparison, "choice %d had %" PRIu32 " tokens, and has %" PRIu32, c,
             answer->choices[c].num_tokens, comparison->num_tokens[c]);
  if (!answer->has_finish || answer->finish > FINISH_LENGTH) return;
  if (event->finish != answer->finish)
    differ(comparison, "it ended by %s, and ends by %s", name_of(answer->finish),
           name_of(event->finish));
  if (comparison->scores != answer->scores)
    differ(comparison, "the log-probabilities of its prompt differ");
  if (request->pooled != NULL &&
      journal_hash_vector(request->pooled,
                          embedding_values(info->embedding, request->num_prompt_tokens)) !=
          answer->vector)
    differ(comparison, "its vector differs");
}

void compare_event(comparison_t *comparison, const engine_info_t *info, const event_t *event) {
  bool known = event->choice >= 0 && event->choice < comparison->answer->num_choices;
  if (event->kind == EVENT_TOKEN && known) on_token(comparison, event);
  if (event->kind == EVENT_PROMPT_LOGPROB) comparison->scores += journal_hash_score(event);
  if (event->kind == EVENT_DONE) on_done(comparison, info, event);
}
