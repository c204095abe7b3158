/* constrain_drafts.c: draft tokens of constrained sequences: those that the grammar allows, and the
 * masks behind them.
 *
 * Engine thread; constrain_new_drafts takes all memory. A copy of the sequence's matcher walks over
 * the draft tokens while the step is planned, or behind the model that drafts. A draft ends before
 * the first token that the grammar forbids, at whose mask the work of a step ends, or behind which
 * the request has cost too much. So every row of a draft is sampled under the mask that it would
 * have without: the matcher itself stays where it is, and takes the tokens that were right at
 * commit.
 *
 * Where the grammar leaves one token only, that one is drafted, and is right. Where it leaves a few
 * that all begin the longest of them, the next bytes are known and not how they are cut into
 * tokens: the longest one is the guess.
 */
#include "engine/base/clock.h"
#include "engine/sample/constrain.h"
#include "engine/sample/constrain_row.h"

#include <stdlib.h>
#include <string.h>

/* Tokens that a place may leave for the next bytes to be looked for. */
enum { BEGINNINGS_MAX = 32 };
/* One mask of a draft gets such a part of what all drafts of a sequence get. */
enum { DRAFT_PARTS = 4 };

/* What a mask says of the next token. */
typedef struct outlook {
  int32_t id;   /* the only one, or the longest of those that begin it; -1 = any of many */
  bool is_only; /* no other is allowed */
} outlook_t;

static const char *bytes_of(const engine_t *engine, int32_t id, size_t *length) {
  *length = 0;
  if (tokenizer_flags(engine->tokenizer, id) & (TOKEN_SPECIAL | TOKEN_ADDED)) return "";
  return tokenizer_bytes(engine->tokenizer, id, length);
}

static outlook_t look_ahead(const engine_t *engine, const uint32_t *mask) {
  const outlook_t many = {.id = -1};
  int32_t ids[BEGINNINGS_MAX], count = 0;
  for (int32_t w = 0; w < engine->constrain.row_words; w++) {
    for (uint32_t bits = mask[w]; bits != 0; bits &= bits - 1) {
      if (count == BEGINNINGS_MAX) return many;
      ids[count++] = 32 * w + __builtin_ctz(bits);
    }
  }
  if (count == 1) return (outlook_t){.id = ids[0], .is_only = true};
  size_t longest = 0, length;
  outlook_t found = many;
  const char *text = "";
  for (int32_t i = 0; i < count; i++) {
    const char *bytes = bytes_of(engine, ids[i], &length);
    if (length == 0) return many; /* a control mark, or the text may end here */
    if (length < longest) continue;
    text = bytes;
    longest = length;
    found.id = ids[i];
  }
  for (int32_t i = 0; i < count; i++) {
    const char *bytes = bytes_of(engine, ids[i], &length);
    if (memcmp(bytes, text, length) != 0) return many;
  }
  return found;
}

static bool is_listed(const int32_t *ids, int32_t count, int32_t id) {
  for (int32_t i = 0; i < count; i++) {
    if (ids[i] == id) return true;
  }
  return false;
}

/* A walk over the draft tokens of a sequence. */
typedef struct draft_walk {
  sequence_t *seq;
  int32_t stop_ids[SUPPRESSED_MAX + 1];
  int32_t num_stop_ids;
  int32_t num_given; /* draft tokens that the sequence has, as long as none was replaced */
  uint64_t end;      /* of the work */
  uint64_t spent;    /* by the masks of the group, those of the walk included */
} draft_walk_t;

/* The draft token at `index`, under the mask of its place; -1 = none. guesses: one that may be
 * wrong is allowed. */
static int32_t choose_token(const engine_t *engine, draft_walk_t *walk, int32_t index, bool guesses,
                            const uint32_t *mask) {
  sequence_t *seq = walk->seq;
  constrained_t *at = state_of(engine, seq);
  int32_t *token = &seq->tokens[sequence_num_tokens(seq) + index], given = -1;
  if (index < walk->num_given) given = *token;
  const outlook_t outlook = look_ahead(engine, mask);
  int32_t id = outlook.is_only || guesses ? outlook.id : -1;
  if (given >= 0 && guesses && mask[given / 32] >> (given % 32) & 1) id = given;
  if (id < 0 || is_listed(walk->stop_ids, walk->num_stop_ids, id)) return -1;
  if (outlook.is_only) at->certain |= UINT32_C(1) << index;
  if (id != given) walk->num_given = 0; /* those behind continue another text */
  *token = id;
  return id;
}

/* Takes draft token `index` and makes the mask behind it, which is NULL if the draft ends before.
 */
static const uint32_t *pass_token(engine_t *engine, draft_walk_t *walk, int32_t index, int32_t id) {
  constrain_t *constrain = &engine->constrain;
  const group_t *group = walk->seq->group;
  const uint64_t part = constrain->units / PARTS / DRAFT_PARTS;
  grammar_walk_t mask = {0};
  uint32_t *row =
      constrain->draft_masks + (size_t)constrain->num_draft_masks * (size_t)constrain->row_words;
  uint64_t now = units_now(engine);
  if (now >= walk->end || constrain->num_draft_masks == DRAFTS_IN_FLIGHT_MAX) return NULL;
  if (grammar_matcher_accept_on(constrain->probe, constrain->scratch, id,
                                MIN(part, walk->end - now)) != 0)
    return NULL;
  if (grammar_matcher_is_finished(constrain->probe)) return NULL; /* nothing is drawn behind it */
  now = units_now(engine);
  if (now >= walk->end ||
      grammar_masks_fill_on(constrain->masks, constrain->probe, constrain->scratch, walk->stop_ids,
                            walk->num_stop_ids, &mask, MIN(part, walk->end - now), row) != 0)
    return NULL;
  engine->stats.grammar_masks++;
  engine->stats.grammar_mask_hits += mask.hit;
  uint64_t most = constrain_units_max(engine, group) + constrain->units * (uint64_t)(index + 1);
  if (walk->seq->masks.narrow_from < 0 && walk->spent + mask.units > most) return NULL;
  walk->spent += mask.units;
  state_of(engine, walk->seq)->draft_units[index] = mask.units;
  constrain->num_draft_masks++;
  return row;
}

/* draft_filter_t.choose. */
static int32_t choose(void *context, sequence_t *seq, int32_t count, int32_t limit, int32_t most) {
  engine_t *engine = context;
  constrain_t *constrain = &engine->constrain;
  group_t *group = seq->group;
  const uint64_t part = constrain->units / PARTS, now = units_now(engine);
  if (group->masks.code || seq->masks.late || state_of(engine, seq)->away || is_cancelled(group))
    return 0;
  draft_walk_t walk = {.seq = seq, .num_given = count, .end = MIN(end_of(engine, 2), now + part)};
  if (now >= walk.end) return 0;
  int code = constrain_advance(engine, seq, MIN(walk.end, now + part / DRAFT_PARTS));
  if (code != 0 && code != GRAMMAR_LATER) group->masks.code = code;
  if (code != 0) return 0;
  constrained_t *at = state_of(engine, seq);
  at->first_mask = constrain->num_draft_masks;
  at->certain = 0;
  walk.spent = group->masks.units;
  walk.num_stop_ids = constrain_stop_ids(engine, &group->request->params, walk.stop_ids);
  grammar_matcher_copy(constrain->probe, job_of(engine, seq)->matcher);
  const uint64_t start_ns = clock_now_ns();
  const uint32_t *mask = job_of(engine, seq)->row;
  int32_t passed = 0;
  while (passed < most) {
    int32_t id = choose_token(engine, &walk, passed, passed < limit, mask);
    mask = id < 0 ? NULL : pass_token(engine, &walk, passed, id);
    if (mask == NULL) break;
    passed++;
  }
  at->certain &= (UINT32_C(1) << passed) - 1;
  engine->stats.grammar_mask_ns += clock_now_ns() - start_ns;
  return passed;
}

int constrain_new_drafts(engine_t *engine, inferd_error_t *error) {
  constrain_t *constrain = &engine->constrain;
  if (engine->options.draft.tokens_max == 0) return 0;
  if (engine->scheduler->options.num_stages > 1) return 0; /* there are masks for one plan alone */
  constrain->probe = calloc(1, constrain->matcher_bytes);
  constrain->draft_masks =
      calloc((size_t)DRAFTS_IN_FLIGHT_MAX * (size_t)constrain->row_words, sizeof(uint32_t));
  if (constrain->probe == NULL || constrain->draft_masks == NULL)
    return error_set(error, ERR_NO_MEMORY, NULL, "no memory for the masks of draft tokens");
  engine->scheduler->drafts.filter = (draft_filter_t){.choose = choose, .context = engine};
  return 0;
}

void constrain_free_drafts(engine_t *engine) {
  free(engine->constrain.probe);
  free(engine->constrain.draft_masks);
}

void constrain_cut_drafts(engine_t *engine, plan_t *plan) {
  if (engine->constrain.num_requests == 0 || plan->num_drafts == 0) return;
  for (int32_t i = 0; i < plan->num_entries; i++) {
    plan_entry_t *entry = &plan->entries[i];
    sequence_t *seq = entry->sequence;
    const int32_t count = entry->num_drafts;
    if (count == 0 || seq->group->request->grammar == NULL) continue;
    if (entry->drafts_known) continue; /* it was done while the step was planned */
    scheduler_cut_drafts(engine->scheduler, plan, entry,
                         count - choose(engine, seq, count, count, count));
  }
}

const uint32_t *constrain_draft_mask(const engine_t *engine, const sequence_t *seq, int32_t index) {
  const constrain_t *constrain = &engine->constrain;
  size_t number = (size_t)(state_of(engine, seq)->first_mask + index);
  return constrain->draft_masks + number * (size_t)constrain->row_words;
}

int32_t constrain_certain(const engine_t *engine, const sequence_t *seq, int32_t count) {
  if (seq->group->request->grammar == NULL) return 0;
  return __builtin_popcount(state_of(engine, seq)->certain & ((UINT32_C(1) << count) - 1));
}

void constrain_note_draft(const engine_t *engine, const sequence_t *seq, int32_t index) {
  seq->group->masks.units += state_of(engine, seq)->draft_units[index];
}
