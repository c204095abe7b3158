/* mask_units.c: see mask_units.h. A walk for each text that the languages tell apart; allocates in
 * mask_units_load only.
 */
#include "tests/sim/mask_units.h"

#include "engine/base/random.h"
#include "engine/grammar/mask/masks.h"
#include "engine/schedule/plan.h"
#include "tests/sim/language.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { KNOWN_TEXTS = 1 << 14 };

/* What the mask behind a text costs. */
typedef struct mask_cost {
  language_state_t text;
  uint64_t units; /* 0 = none is known */
} mask_cost_t;

/* What the tokens of a request have cost. */
typedef struct sum {
  language_state_t text; /* behind num_tokens of its tokens */
  int32_t num_tokens;
  uint64_t units;
} sum_t;

static grammar_matcher_t *matcher;
static grammar_scratch_t *scratch;
static uint32_t row[LANGUAGE_MASK_WORDS];
static mask_cost_t costs[KNOWN_TEXTS];
static sum_t sums[SIM_REQUESTS_MAX][SIM_STREAMS_MAX];

void mask_units_load(void) {
  if (matcher != NULL) return;
  matcher = calloc(1, grammar_matcher_bytes());
  scratch = calloc(1, grammar_scratch_bytes());
  REQUIRE(matcher != NULL && scratch != NULL, "no memory");
}

static bool same_text(const language_state_t *one, const language_state_t *other) {
  return one->index == other->index && memcmp(one->tail, other->tail, sizeof one->tail) == 0 &&
         memcmp(one->reach, other->reach, sizeof one->reach) == 0;
}

static mask_cost_t *find(const language_state_t *text) {
  uint64_t hash = (uint64_t)text->index;
  for (size_t i = 0; i < sizeof text->tail; i++) hash = random_mix(hash ^ (uint8_t)text->tail[i]);
  for (size_t i = 0; i <= LANGUAGE_WORD_MAX; i++) hash = random_mix(hash ^ text->reach[i]);
  return &costs[hash % KNOWN_TEXTS];
}

/* The units of the mask behind `count` ids. */
static uint64_t walk(const engine_t *engine, const sequence_t *seq, int32_t count) {
  grammar_walk_t walk = {0};
  const int32_t *ids = seq->tokens + seq->num_prompt_tokens;
  int code = grammar_matcher_start(matcher, scratch, seq->group->request->grammar,
                                   engine->constrain.vocabulary);
  for (int32_t i = 0; i < count && code == 0; i++)
    code = grammar_matcher_accept(matcher, scratch, ids[i]);
  REQUIRE(code == 0 && grammar_walk_on(matcher, scratch, &walk, UINT64_MAX, row) == 0,
          "request %d has a text that its grammar does not allow", check_track(seq)->index);
  return walk.units;
}

static void check(const engine_t *engine, const sequence_t *seq) {
  const track_t *k = check_track(seq);
  sum_t *sum = &sums[k->index][seq->index];
  if (seq->num_output_tokens == 0) {
    *sum = (sum_t){0};
    language_begin(&sum->text, k->script->language);
  }
  for (; sum->num_tokens < seq->num_output_tokens; sum->num_tokens++) {
    mask_cost_t *cost = find(&sum->text);
    if (cost->units == 0 || !same_text(&cost->text, &sum->text))
      *cost = (mask_cost_t){.text = sum->text, .units = walk(engine, seq, sum->num_tokens)};
    sum->units += cost->units;
    language_add(&sum->text, engine->tokenizer,
                 seq->tokens[seq->num_prompt_tokens + sum->num_tokens]);
  }
  REQUIRE(seq->group->masks.units_before == sum->units,
          "I4: the masks of %d tokens of request %d count %" PRIu64 " units, they cost %" PRIu64,
          sum->num_tokens, k->index, seq->group->masks.units_before, sum->units);
}

void mask_units_step(const engine_t *engine) {
  const plan_t *plan = &engine->scheduler->plan;
  for (int32_t i = 0; i < plan->num_entries; i++) {
    const sequence_t *seq = plan->entries[i].sequence;
    bool is_one = seq->group->sequence.next == NULL && seq->masks.narrow_from < 0;
    if (is_one && check_track(seq)->script->language >= 0) check(engine, seq);
  }
}
