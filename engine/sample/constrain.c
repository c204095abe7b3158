/* constrain.c: grammars in the step: masks before sampling (stage 7), tokens after it (stage 8).
 *
 * Engine thread; constrain_new takes all memory at start: one matcher per row of the token table,
 * which only sequences with a grammar touch. The state of a matcher is a function of the output
 * tokens. So a sequence whose row has no matcher yet replays its tokens, and preemption, chunking
 * and forks need no further code. If a matcher fails, only its own request ends; a constrained row
 * is never sampled without its mask.
 */
#include "engine/internal.h"

#include "engine/base/clock.h"

#include <stdlib.h>
#include <string.h>

static const size_t MASKS_BYTES = (size_t)16 << 20; /* cache of masks */

/* The text of a token for grammars. Special and added tokens are control marks and have no text: a
 * grammar that wants one names its id. */
static const char *grammar_token(const void *context, int32_t id, size_t *length) {
  const tokenizer_t *tokenizer = context;
  *length = 0;
  if (tokenizer_flags(tokenizer, id) & (TOKEN_SPECIAL | TOKEN_ADDED)) return "";
  return tokenizer_bytes(tokenizer, id, length);
}

int constrain_new(engine_t *engine, uint64_t *build_ns, inferd_error_t *error) {
  uint64_t start_ns = clock_now_ns();
  constrain_t *constrain = &engine->constrain;
  int code = grammar_vocabulary_new(grammar_token, engine->tokenizer,
                                    tokenizer_vocab_size(engine->tokenizer),
                                    engine->blueprint.vocab_size, &constrain->vocabulary, error);
  if (code) return code;
  *build_ns = clock_now_ns() - start_ns;
  size_t rows = (size_t)engine->scheduler->num_rows;
  constrain->row_words = grammar_row_words(constrain->vocabulary);
  constrain->matcher_bytes = grammar_matcher_bytes();
  constrain->matchers = calloc(rows, constrain->matcher_bytes);
  constrain->scratch = calloc(1, grammar_scratch_bytes());
  if (constrain->matchers != NULL && constrain->scratch != NULL) {
    return grammar_masks_new(constrain->vocabulary, MASKS_BYTES, &constrain->masks, error);
  }
  return error_set(error, ERR_NO_MEMORY, NULL, "no memory for the grammars of %zu sequences", rows);
}

void constrain_free(engine_t *engine) {
  grammar_vocabulary_free(engine->constrain.vocabulary);
  free(engine->constrain.matchers);
  free(engine->constrain.scratch);
  grammar_masks_free(engine->constrain.masks);
}

const grammar_vocabulary_t *engine_grammar_vocabulary(const engine_t *engine) {
  return engine_state(engine) == ENGINE_LOADING ? NULL : engine->constrain.vocabulary;
}

static grammar_matcher_t *matcher_of(const engine_t *engine, const sequence_t *seq) {
  const constrain_t *constrain = &engine->constrain;
  return (grammar_matcher_t *)(void *)(constrain->matchers +
                                       (size_t)seq->row * constrain->matcher_bytes);
}

/* Makes the matcher of the sequence's row stand after `num_tokens` output tokens, if it follows
 * another sequence or none yet. Returns 0 or the error of the grammar. */
static int catch_up(const engine_t *engine, sequence_t *seq, int32_t num_tokens) {
  grammar_matcher_t *matcher = matcher_of(engine, seq);
  if (seq->grammar_row == seq->row) return 0;
  int code = grammar_matcher_start(matcher, engine->constrain.scratch, seq->group->request->grammar,
                                   engine->constrain.vocabulary);
  for (int32_t i = 0; i < num_tokens && !code; i++) {
    code = grammar_matcher_accept(matcher, engine->constrain.scratch,
                                  seq->tokens[seq->num_prompt_tokens + i]);
  }
  if (!code) seq->grammar_row = seq->row;
  return code;
}

/* Lists the ids that end the text: those at which commit.c stops. */
static int32_t list_stop_ids(const engine_t *engine, const sampling_params_t *params,
                             int32_t *ids) {
  int32_t count = 0;
  if (!params->ignore_eos) {
    ids[count++] = engine->info.primary_eos;
    for (int32_t i = 0; i < engine->info.num_stop_ids; i++) ids[count++] = engine->info.stop_ids[i];
  }
  for (int32_t i = 0; i < params->num_stop_token_ids && count < SUPPRESSED_MAX; i++) {
    ids[count++] = params->stop_token_ids[i];
  }
  return count;
}

void constrain_row(engine_t *engine, step_t *step, sample_row_t *row, sequence_t *seq,
                   int32_t index) {
  const constrain_t *constrain = &engine->constrain;
  uint32_t *mask = &step->masks[(size_t)index * (size_t)constrain->row_words];
  int32_t stop_ids[SUPPRESSED_MAX + 1];
  uint64_t start_ns = clock_now_ns();
  int32_t num_stop_ids = list_stop_ids(engine, row->params, stop_ids);
  int code = catch_up(engine, seq, seq->num_output_tokens);
  if (!code) {
    bool hit = false;
    code = grammar_masks_fill(constrain->masks, matcher_of(engine, seq), constrain->scratch,
                              stop_ids, num_stop_ids, mask, &hit);
    engine->stats.grammar_mask_hits += hit;
  }
  /* An empty mask makes the sampler fail the row. */
  if (code) memset(mask, 0, (size_t)constrain->row_words * sizeof *mask);
  row->allowed_mask = mask;
  engine->stats.grammar_masks++;
  engine->stats.grammar_mask_ns += clock_now_ns() - start_ns;
}

int constrain_accept(engine_t *engine, sequence_t *seq, int32_t id, bool *finished) {
  int code = catch_up(engine, seq, seq->num_output_tokens - 1);
  grammar_matcher_t *matcher = matcher_of(engine, seq);
  if (!code) code = grammar_matcher_accept(matcher, engine->constrain.scratch, id);
  *finished = !code && grammar_matcher_is_finished(matcher);
  return code;
}
