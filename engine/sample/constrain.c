/* constrain.c: grammars in the step: masks before sampling (stage 7), tokens after it (stage 8).
 *
 * Engine thread; all memory is taken at start: one matcher for each row of the token table, touched
 * only by sequences that have a grammar. A matcher is a function of the output tokens, so one that
 * has just got its row replays them: preemption, chunking and forks need nothing else. A step that
 * fails ends its own request; nothing is ever sampled without its mask.
 */
#include "engine/internal.h"

#include "engine/base/clock.h"

#include <stdlib.h>
#include <string.h>

static const size_t MASKS_BYTES = (size_t)16 << 20;

/* Special and added tokens are control markers; a grammar names those it wants by id. */
static const char *grammar_token(const void *context, int32_t id, size_t *length) {
  const tokenizer_t *tokenizer = context;
  *length = 0;
  if (tokenizer_flags(tokenizer, id) & (TOKEN_SPECIAL | TOKEN_ADDED)) return "";
  return tokenizer_bytes(tokenizer, id, length);
}

int constrain_new(engine_t *e, uint64_t *build_ns, error_t *error) {
  uint64_t start_ns = clock_now_ns();
  constrain_t *k = &e->constrain;
  int code = grammar_vocabulary_new(grammar_token, e->tokenizer, tokenizer_vocab_size(e->tokenizer),
                                    e->blueprint.vocab_size, &k->vocabulary, error);
  if (code) return code;
  *build_ns = clock_now_ns() - start_ns;
  size_t rows = (size_t)e->scheduler->num_rows;
  k->row_words = grammar_row_words(k->vocabulary);
  k->matcher_bytes = grammar_matcher_bytes();
  k->matchers = calloc(rows, k->matcher_bytes);
  k->scratch = calloc(1, grammar_scratch_bytes());
  if (k->matchers != NULL && k->scratch != NULL) {
    return grammar_masks_new(k->vocabulary, MASKS_BYTES, &k->masks, error);
  }
  return error_set(error, ERR_NO_MEMORY, NULL, "no memory for the grammars of %zu sequences", rows);
}

void constrain_free(engine_t *e) {
  grammar_vocabulary_free(e->constrain.vocabulary);
  free(e->constrain.matchers);
  free(e->constrain.scratch);
  grammar_masks_free(e->constrain.masks);
}

const grammar_vocabulary_t *engine_grammar_vocabulary(const engine_t *e) {
  return engine_state(e) == ENGINE_LOADING ? NULL : e->constrain.vocabulary;
}

static grammar_matcher_t *matcher_of(const engine_t *e, const sequence_t *q) {
  const constrain_t *k = &e->constrain;
  return (grammar_matcher_t *)(void *)(k->matchers + (size_t)q->row * k->matcher_bytes);
}

/* A matcher that stands after `num_tokens` output tokens. */
static int catch_up(const engine_t *e, sequence_t *q, int32_t num_tokens) {
  grammar_matcher_t *m = matcher_of(e, q);
  if (q->grammar_row == q->row) return 0;
  int code = grammar_matcher_start(m, e->constrain.scratch, q->group->request->grammar,
                                   e->constrain.vocabulary);
  for (int32_t i = 0; i < num_tokens && !code; i++) {
    code = grammar_matcher_accept(m, e->constrain.scratch, q->tokens[q->num_prompt_tokens + i]);
  }
  if (!code) q->grammar_row = q->row;
  return code;
}

/* Ids that end the text: those that commit.c stops at. */
static int32_t list_stop_ids(const engine_t *e, const sampling_params_t *params, int32_t *ids) {
  int32_t count = 0;
  if (!params->ignore_eos) {
    ids[count++] = e->info.primary_eos;
    for (int32_t i = 0; i < e->info.num_stop_ids; i++) ids[count++] = e->info.stop_ids[i];
  }
  for (int32_t i = 0; i < params->num_stop_token_ids && count < SUPPRESSED_MAX; i++) {
    ids[count++] = params->stop_token_ids[i];
  }
  return count;
}

void constrain_row(engine_t *e, flight_t *f, sample_row_t *row, sequence_t *q, int32_t r) {
  const constrain_t *k = &e->constrain;
  uint32_t *mask = &f->masks[(size_t)r * (size_t)k->row_words];
  int32_t stop_ids[SUPPRESSED_MAX + 1];
  uint64_t start_ns = clock_now_ns();
  int32_t num_stop_ids = list_stop_ids(e, row->params, stop_ids);
  int code = catch_up(e, q, q->num_output_tokens);
  if (!code) {
    bool hit = false;
    code = grammar_masks_fill(k->masks, matcher_of(e, q), k->scratch, stop_ids, num_stop_ids, mask,
                              &hit);
    e->stats.grammar_mask_hits += hit;
  }
  /* With nothing allowed the sampler fails the row. */
  if (code) memset(mask, 0, (size_t)k->row_words * sizeof *mask);
  row->allowed_mask = mask;
  e->stats.grammar_masks++;
  e->stats.grammar_mask_ns += clock_now_ns() - start_ns;
}

int constrain_accept(engine_t *e, sequence_t *q, int32_t id, bool *finished) {
  int code = catch_up(e, q, q->num_output_tokens - 1);
  grammar_matcher_t *m = matcher_of(e, q);
  if (!code) code = grammar_matcher_accept(m, e->constrain.scratch, id);
  *finished = !code && grammar_matcher_is_finished(m);
  return code;
}
