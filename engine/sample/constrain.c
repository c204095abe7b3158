/* constrain.c: grammars in the step: masks before sampling (stage 7), tokens after it (stage 8).
 *
 * Engine thread; constrain_new takes all memory at start: one matcher per row of the token table,
 * which only sequences with a grammar touch. The state of a matcher is a function of the output
 * tokens. So a sequence whose row has no matcher yet replays its tokens, and preemption, chunking
 * and forks need no further code. If a matcher fails, only its own request ends; a constrained row
 * is never sampled without its mask.
 *
 * The work of a step is bounded, in units. A mask that does not get ready is late: nothing is drawn
 * for its group, which is not planned until its masks are ready. They are made in slices, one group
 * after the other, so a slow grammar slows its own request alone.
 */
#include "engine/sample/constrain.h"

#include "engine/internal.h"

#include "engine/base/clock.h"
#include "engine/base/util.h"

#include <stdlib.h>
#include <string.h>

/* Work is counted in units, see grammar_units. A piece of it may go over its units by
 * GRAMMAR_UNITS_OVER, so work begins only while so many are left. Of the others the tokens that are
 * accepted get one part, the rows that are sampled all but one, and groups that wait get slices of
 * one part out of the rest. A request may cost 2,000 steps, and a step for each of its tokens. */
enum { STEP_UNITS = 200000, PARTS = 4, REQUEST_STEPS = 2000 };

/* What a row of the token table has of its grammar. */
typedef struct constrained {
  int32_t num_accepted; /* output tokens that the matcher has taken */
  bool ready;           /* the mask for the next token is complete */
  grammar_walk_t walk;  /* how far that mask has been made */
} constrained_t;

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
  int32_t wanted = engine->options.mask_units;
  constrain->units = wanted > 0 ? (uint64_t)wanted : STEP_UNITS;
  constrain->row_words = grammar_row_words(constrain->vocabulary);
  constrain->matcher_bytes = grammar_matcher_bytes();
  constrain->matchers = calloc(rows, constrain->matcher_bytes);
  constrain->scratch = calloc(1, grammar_scratch_bytes());
  constrain->rows = calloc(rows, sizeof *constrain->rows);
  constrain->row_masks = calloc(rows * (size_t)constrain->row_words, sizeof(uint32_t));
  if (constrain->matchers != NULL && constrain->scratch != NULL && constrain->rows != NULL &&
      constrain->row_masks != NULL) {
    return grammar_masks_new(constrain->vocabulary, MASKS_BYTES, &constrain->masks, error);
  }
  return error_set(error, ERR_NO_MEMORY, NULL, "no memory for the grammars of %zu sequences", rows);
}

void constrain_free(engine_t *engine) {
  grammar_vocabulary_free(engine->constrain.vocabulary);
  free(engine->constrain.matchers);
  free(engine->constrain.scratch);
  free(engine->constrain.rows);
  free(engine->constrain.row_masks);
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

static uint32_t *mask_of(const engine_t *engine, const sequence_t *seq) {
  const constrain_t *constrain = &engine->constrain;
  return constrain->row_masks + (size_t)seq->row * (size_t)constrain->row_words;
}

static uint64_t units_now(const engine_t *engine) {
  return grammar_units(engine->constrain.scratch);
}

/* Returns the count of units at which work of this step ends, less `parts` parts. */
static uint64_t end_of(const engine_t *engine, uint64_t parts) {
  const constrain_t *constrain = &engine->constrain;
  uint64_t over = MIN((uint64_t)GRAMMAR_UNITS_OVER, constrain->units / PARTS);
  return constrain->step_units + constrain->units - over - parts * (constrain->units / PARTS);
}

/* Lets the matcher follow one way only if its sequence has come to where it began to do so. */
static void narrow_here(const engine_t *engine, sequence_t *seq) {
  const constrained_t *at = &engine->constrain.rows[seq->row];
  if (at->num_accepted == 0 && seq->group->sequence.masks.narrow_from == 0)
    seq->masks.narrow_from = 0;
  if (seq->masks.narrow_from == at->num_accepted) grammar_matcher_narrow(matcher_of(engine, seq));
}

/* Makes the matcher of the sequence's row stand after `num_tokens` output tokens, if it follows
 * another sequence or none yet. Returns 0, GRAMMAR_LATER when the work reaches `end`, or the error
 * of the grammar. */
static int catch_up(const engine_t *engine, sequence_t *seq, int32_t num_tokens, uint64_t end) {
  const constrain_t *constrain = &engine->constrain;
  grammar_matcher_t *matcher = matcher_of(engine, seq);
  constrained_t *at = &constrain->rows[seq->row];
  int code = 0;
  if (seq->grammar_row != seq->row) {
    *at = (constrained_t){0};
    code = grammar_matcher_start(matcher, constrain->scratch, seq->group->request->grammar,
                                 constrain->vocabulary);
    if (!code) seq->grammar_row = seq->row;
    if (!code) narrow_here(engine, seq);
  }
  while (!code && at->num_accepted < num_tokens) {
    uint64_t now = units_now(engine);
    if (now >= end) return GRAMMAR_LATER;
    at->ready = false;
    at->walk = (grammar_walk_t){0};
    code = grammar_matcher_accept_on(matcher, constrain->scratch,
                                     seq->tokens[seq->num_prompt_tokens + at->num_accepted],
                                     end - now);
    if (code) break;
    at->num_accepted++;
    narrow_here(engine, seq);
  }
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

/* Returns true if the group, with this mask, has had its share of work. Cached masks count with the
 * work that they took when they were made, so the answer does not depend on other requests. */
static bool has_spent(const engine_t *engine, const group_t *group, const grammar_walk_t *walk) {
  uint64_t tokens = (uint64_t)group->num_output_tokens;
  for (const sequence_t *seq = &group->sequence; seq != NULL; seq = seq->next) {
    if (sequence_is_live(seq)) tokens += (uint64_t)seq->num_output_tokens;
  }
  return group->masks.units + walk->units > engine->constrain.units * (REQUEST_STEPS + tokens);
}

/* Continues the mask itself. If the group has had its share of work, the sequence follows one way
 * only from here on, and its mask begins anew. Returns as `advance`. */
static int make_mask(engine_t *engine, sequence_t *seq, uint64_t end) {
  const constrain_t *constrain = &engine->constrain;
  constrained_t *at = &constrain->rows[seq->row];
  int32_t stop_ids[SUPPRESSED_MAX + 1];
  int32_t num_stop_ids = list_stop_ids(engine, &seq->group->request->params, stop_ids);
  for (;;) {
    uint64_t now = units_now(engine), left = end > now ? end - now : 0;
    int code = grammar_masks_fill_on(constrain->masks, matcher_of(engine, seq), constrain->scratch,
                                     stop_ids, num_stop_ids, &at->walk, left, mask_of(engine, seq));
    if (seq->masks.narrow_from >= 0 || !has_spent(engine, seq->group, &at->walk)) {
      if (code != GRAMMAR_LATER) seq->group->masks.units += at->walk.units;
      return code;
    }
    seq->masks.narrow_from = at->num_accepted;
    grammar_matcher_narrow(matcher_of(engine, seq));
    at->walk = (grammar_walk_t){0};
  }
}

/* Continues the mask for the sequence's next token until the work reaches `end`. Returns 0 when
 * the mask is ready, GRAMMAR_LATER, or the error of the grammar. */
static int advance(engine_t *engine, sequence_t *seq, uint64_t end) {
  uint64_t start_ns = clock_now_ns(), before = units_now(engine);
  activity_for(&engine->activity, seq->group->request->id);
  int code = catch_up(engine, seq, seq->num_output_tokens, end);
  constrained_t *at = &engine->constrain.rows[seq->row];
  if (!code && !at->ready && !seq->masks.late) {
    code = make_mask(engine, seq, end);
    at->ready = code == 0;
    engine->stats.grammar_masks += code != GRAMMAR_LATER;
    engine->stats.grammar_mask_hits += at->walk.hit;
  }
  engine->stats.grammar_mask_ns += clock_now_ns() - start_ns;
  seq->group->masks.token_units += units_now(engine) - before;
  return code;
}

static bool is_cancelled(const group_t *group) {
  return atomic_load_explicit(&group->request->cancelled, memory_order_relaxed);
}

void constrain_row(engine_t *engine, sample_row_t *row, sequence_t *seq) {
  group_t *group = seq->group;
  uint64_t part = engine->constrain.units / PARTS, now = units_now(engine);
  int code = GRAMMAR_LATER;
  if (!seq->masks.late && !is_cancelled(group))
    code = advance(engine, seq, MIN(end_of(engine, 1), now + part));
  if (code == 0) {
    row->allowed_mask = mask_of(engine, seq);
    return;
  }
  group->masks.wait = group->masks.slow = true;
  if (code != GRAMMAR_LATER) group->masks.code = code;
}

/* ---- groups that wait ---- */

/* The group of `running` that waits for masks and comes next in turn; NULL = none waits. */
static group_t *next_waiting(const engine_t *engine) {
  group_t *first = NULL, *later = NULL;
  for (group_t *group = engine->scheduler->running.head; group != NULL; group = group->next) {
    if (!group->masks.wait || is_cancelled(group)) continue;
    if (first == NULL || group->arrival < first->arrival) first = group;
    if (group->arrival > engine->constrain.served &&
        (later == NULL || group->arrival < later->arrival)) {
      later = group;
    }
  }
  return later != NULL ? later : first;
}

/* Continues the masks of one group, and says which of its sequences have ended. Returns 0 when all
 * are ready, GRAMMAR_LATER, or an error. */
static int advance_group(engine_t *engine, group_t *group, uint64_t end, uint64_t now_ns) {
  int code = group->masks.code;
  for (sequence_t *seq = &group->sequence, *next; seq != NULL && !code; seq = next) {
    next = seq->next;
    if (!sequence_is_live(seq)) continue;
    if (seq->masks.late) {
      code = catch_up(engine, seq, seq->num_output_tokens, end);
      if (code) return code;
      seq->masks.late = false;
      engine_append_late(engine, seq, grammar_matcher_is_finished(matcher_of(engine, seq)), now_ns);
      if (group->queue == NULL) return 0;
      if (!sequence_is_live(seq)) continue;
    }
    code = advance(engine, seq, end);
  }
  return code;
}

bool constrain_go_on(engine_t *engine, uint64_t now_ns) {
  constrain_t *constrain = &engine->constrain;
  uint64_t end = end_of(engine, 0), part = constrain->units / PARTS;
  bool waited = false;
  for (group_t *group = next_waiting(engine); group != NULL && (!waited || units_now(engine) < end);
       group = next_waiting(engine)) {
    uint64_t now = units_now(engine);
    constrain->served = group->arrival;
    waited = true;
    int code = advance_group(engine, group, MAX(MIN(end, now + part), now + 1), now_ns);
    if (code == GRAMMAR_LATER || group->queue == NULL) continue;
    group->masks.wait = false;
    group->masks.slow = group->masks.token_units > part;
    if (code) engine_finish(engine, group, SEQUENCE_FINISHED_ABORTED, code, now_ns);
  }
  return waited;
}

void constrain_next_step(engine_t *engine) {
  constrain_t *constrain = &engine->constrain;
  uint64_t now = units_now(engine), spent = now - constrain->step_units;
  if (spent > constrain->step_units_max) constrain->step_units_max = spent;
  constrain->step_units = now;
}

int constrain_accept(engine_t *engine, sequence_t *seq, bool *finished) {
  group_t *group = seq->group;
  group->masks.token_units = 0;
  int code = catch_up(engine, seq, seq->num_output_tokens, end_of(engine, 2));
  seq->masks.late = code == GRAMMAR_LATER;
  group->masks.wait = group->masks.slow || seq->masks.late || group->masks.wait;
  *finished = !code && grammar_matcher_is_finished(matcher_of(engine, seq));
  return code;
}

void constrain_fork(const engine_t *engine, const sequence_t *parent, sequence_t *child) {
  child->grammar_row = -1; /* its matcher follows the tokens anew */
  child->masks.late = parent->masks.late;
  child->masks.narrow_from = parent->masks.narrow_from;
  if (parent->grammar_row < 0 || parent->grammar_row != parent->row) return;
  grammar_matcher_copy(matcher_of(engine, child), matcher_of(engine, parent));
  engine->constrain.rows[child->row] =
      (constrained_t){.num_accepted = engine->constrain.rows[parent->row].num_accepted};
  child->grammar_row = child->row;
}
