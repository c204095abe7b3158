/* test_merge.c: stacks that share their tops: the same language as a recogniser that tries
 * everything, and a cost that does not grow with the number of ways to reach a place.
 *
 * The recogniser knows nothing of stacks: it computes, for each rule and place of a text, where
 * the rule can end. Every rule of a random grammar can end, so a text is a prefix of the language
 * exactly if some rule was still being read at its end.
 */
#include "engine/base/clock.h"
#include "engine/grammar/mask/masks.h"
#include "tests/engine/grammar/rig.h"
#include "tests/expect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  RULES_MAX = 5,
  BRANCHES_MAX = 3,
  ITEMS_MAX = 3,
  TEXT_MAX = 14,
  GRAMMARS = 400,
  SOURCE = 4096
};

/* A letter, or a rule; min to max times. */
typedef struct item {
  char letter; /* 0 = the rule */
  int rule, min, max;
} item_t;

typedef struct branch {
  int num_items;
  item_t items[ITEMS_MAX];
} branch_t;

typedef struct random_grammar {
  uint64_t seed, state;
  int num_rules;
  int num_branches[RULES_MAX];
  branch_t branches[RULES_MAX][BRANCHES_MAX];
  char source[SOURCE];
  char text[TEXT_MAX + 1];
  int length;
  bool known[RULES_MAX][TEXT_MAX + 1];
  uint32_t ends[RULES_MAX][TEXT_MAX + 1]; /* bit = place of the text */
  bool reached_end;
} random_grammar_t;

static int below(random_grammar_t *g, int bound) {
  return (int)(rig_random(&g->state) % (uint64_t)bound);
}

/* Without a letter before it, a rule only calls later ones, so none reaches itself first. */
static item_t make_item(random_grammar_t *g, int rule, bool first) {
  static const int bounds[][2] = {{1, 1}, {1, 1}, {1, 1}, {0, 1}, {0, 2}, {1, 3}, {2, 2}};
  int first_rule = first ? rule + 1 : 0, which = below(g, 7);
  item_t item = {.min = bounds[which][0], .max = bounds[which][1]};
  if (first_rule < g->num_rules && below(g, 3)) {
    item.rule = first_rule + below(g, g->num_rules - first_rule);
  } else {
    item.letter = "abc"[below(g, 3)];
  }
  return item;
}

static void make_grammar(random_grammar_t *g, uint64_t seed) {
  g->seed = g->state = seed;
  g->num_rules = 1 + below(g, RULES_MAX);
  size_t at = 0;
  for (int r = 0; r < g->num_rules; r++) {
    g->num_branches[r] = 1 + below(g, BRANCHES_MAX);
    at += (size_t)snprintf(g->source + at, SOURCE - at,
                           r ? "\nr%d ::= " : "root ::= r0\nr%d ::= ", r);
    for (int b = 0; b < g->num_branches[r]; b++) {
      branch_t *branch = &g->branches[r][b];
      bool first = true;
      branch->num_items = b == 0 ? 1 : below(g, ITEMS_MAX + 1);
      if (b > 0) at += (size_t)snprintf(g->source + at, SOURCE - at, " | ");
      for (int i = 0; i < branch->num_items; i++) {
        item_t item = make_item(g, r, first);
        if (b == 0) item = (item_t){.letter = "abc"[r % 3], .min = 1, .max = 1}; /* it can end */
        branch->items[i] = item;
        first = first && !(item.letter && item.min > 0);
        if (item.letter) {
          at += (size_t)snprintf(g->source + at, SOURCE - at, " \"%c\"{%d,%d}", item.letter,
                                 item.min, item.max);
        } else {
          at += (size_t)snprintf(g->source + at, SOURCE - at, " r%d{%d,%d}", item.rule, item.min,
                                 item.max);
        }
      }
      if (branch->num_items == 0) at += (size_t)snprintf(g->source + at, SOURCE - at, "\"\"");
    }
  }
}

static uint32_t rule_ends(random_grammar_t *g, int rule, int from);

/* Where one more of the item can end, for all places of the set. */
static uint32_t step_ends(random_grammar_t *g, const item_t *item, uint32_t places) {
  uint32_t to = 0;
  for (int at = 0; at <= g->length; at++) {
    if (!(places >> at & 1)) continue;
    if (at == g->length && item->letter) g->reached_end = true;
    if (item->letter) {
      if (at < g->length && g->text[at] == item->letter) to |= 2u << at;
    } else {
      to |= rule_ends(g, item->rule, at);
    }
  }
  return to;
}

static uint32_t rule_ends(random_grammar_t *g, int rule, int from) {
  if (g->known[rule][from]) return g->ends[rule][from];
  uint32_t all = 0;
  for (int b = 0; b < g->num_branches[rule]; b++) {
    const branch_t *branch = &g->branches[rule][b];
    uint32_t places = 1u << from;
    for (int i = 0; i < branch->num_items; i++) {
      uint32_t reached = branch->items[i].min == 0 ? places : 0;
      for (int k = 1; k <= branch->items[i].max; k++) {
        places = step_ends(g, &branch->items[i], places);
        if (k >= branch->items[i].min) reached |= places;
      }
      places = reached;
    }
    all |= places;
  }
  g->known[rule][from] = true;
  g->ends[rule][from] = all;
  return all;
}

/* Whether the text is one of the language; *prefix: whether it begins one. */
static bool recognise(random_grammar_t *g, bool *prefix) {
  memset(g->known, 0, sizeof g->known);
  g->reached_end = false;
  bool whole = rule_ends(g, 0, 0) >> g->length & 1;
  *prefix = whole || g->reached_end;
  return whole;
}

/* Everything that the grammar says after the text, against the recogniser; and kept masks. exact =
 * false: a bound has made the language narrower, and it must not be wider. */
static void check_place(random_grammar_t *g, rig_t *rig, grammar_masks_t *masks, bool exact) {
  static uint32_t kept[sizeof rig->row / sizeof(uint32_t)];
  int32_t stop = RIG_STOP;
  bool prefix, hit, whole = recognise(g, &prefix);
  g->text[g->length] = 0;
  bool accepting = grammar_matcher_is_accepting(rig->matcher);
  cr_assert(accepting == whole || (!exact && whole), "'%s' of %s", g->text, g->source);
  int code = grammar_matcher_fill(rig->matcher, rig->scratch, &stop, 1, rig->row);
  ASSERT_EQ_FOR(code, 0, "'%s' of %s", g->text, g->source);
  ASSERT_EQ(grammar_masks_fill(masks, rig->matcher, rig->scratch, &stop, 1, kept, &hit), 0);
  cr_assert_arr_eq(rig->row, kept, sizeof kept, "kept: '%s' of %s", g->text, g->source);
  ASSERT_EQ(rig_allows(rig, RIG_STOP), accepting);
  for (int letter = 'a'; letter <= 'd' && g->length < TEXT_MAX; letter++) {
    g->text[g->length++] = (char)letter;
    g->text[g->length] = 0;
    recognise(g, &prefix);
    bool allowed = rig_allows(rig, letter);
    cr_assert(allowed == prefix || (!exact && prefix), "'%s' of %s", g->text, g->source);
    g->length--;
  }
}

/* Returns false if a bound has made the language narrower. */
static bool walk(random_grammar_t *g, rig_t *rig, grammar_masks_t *masks) {
  uint64_t narrowed = rig->scratch->narrowed;
  rig_start(rig);
  for (g->length = 0; g->length < TEXT_MAX;) {
    check_place(g, rig, masks, rig->scratch->narrowed == narrowed);
    char letters[3];
    int count = 0;
    for (int letter = 'a'; letter <= 'c'; letter++) {
      if (rig_allows(rig, letter)) letters[count++] = (char)letter;
    }
    if (count == 0) break;
    int32_t id = letters[below(g, count)];
    g->text[g->length++] = (char)id;
    ASSERT_EQ(grammar_matcher_accept(rig->matcher, rig->scratch, id), 0);
  }
  return rig->scratch->narrowed == narrowed;
}

Test(merge, random_grammars_have_the_language_of_a_recogniser) {
  rig_t *rig = rig_new();
  random_grammar_t *g = calloc(1, sizeof *g);
  grammar_masks_t *masks;
  uint64_t seed = clock_now_ns();
  int refused = 0, narrowed = 0;
  ASSERT_EQ(grammar_masks_new(rig->vocabulary, 1 << 20, &masks, &rig->error), 0);
  for (int i = 0; i < GRAMMARS; i++) {
    make_grammar(g, seed + (uint64_t)i);
    int code = rig_text(rig, GRAMMAR_EBNF, g->source);
    /* A rule that may be empty can stand before a call of an earlier one. */
    if (code) refused++;
    if (code)
      cr_assert(strstr(rig->error.message, "itself"), "%s: %s", rig->error.message, g->source);
    for (int k = 0; k < 4 && !code; k++) narrowed += !walk(g, rig, masks);
  }
  ASSERT_LT(refused, GRAMMARS / 2);
  ASSERT_LE_FOR(narrowed, GRAMMARS / 20, "seed %llu", (unsigned long long)seed);
  grammar_masks_free(masks);
  free(g);
  rig_free(rig);
}

/* ---- cost ---- */

/* Object types that may all hold each other. */
static void compile_union(rig_t *rig, int count) {
  static char text[16384];
  char any[1024];
  size_t at = 0, length = 0;
  for (int i = 0; i < count; i++) {
    length += (size_t)snprintf(any + length, sizeof any - length, "%s{\"$ref\":\"#/$defs/T%d\"}",
                               i ? "," : "", i);
  }
  at += (size_t)snprintf(text, sizeof text, "{\"$defs\":{");
  for (int i = 0; i < count; i++) {
    at += (size_t)snprintf(text + at, sizeof text - at,
                           "%s\"T%d\":{\"type\":\"object\",\"properties\":{\"next\":{\"anyOf\":[%s,"
                           "{\"type\":\"null\"}]},\"v%d\":{\"enum\":[\"a\",\"b\"]}},\"required\":["
                           "\"next\"],\"additionalProperties\":false}",
                           i ? "," : "", i, any, i);
  }
  snprintf(text + at, sizeof text - at,
           "},\"type\":\"object\",\"properties\":{\"r\":{\"anyOf\":[%s]}},\"required\":[\"r\"],"
           "\"additionalProperties\":false}",
           any);
  ASSERT_EQ_FOR(rig_schema(rig, text), 0, "%s", rig->error.message);
}

/* Every type is possible at every depth until the text says which one it was. */
Test(merge, unions_cost_their_types_at_any_depth) {
  rig_t *rig = rig_new();
  for (int count = 2; count <= 8; count++) {
    compile_union(rig, count);
    rig_start(rig);
    cr_assert(rig_feed(rig, "{\"r\":", 5));
    for (int depth = 0; depth < 32; depth++) {
      cr_assert(rig_feed(rig, "{\"next\":", 8), "%d types, depth %d", count, depth);
      ASSERT_LE(rig->matcher->place.count, 3u * (uint32_t)count);
      cr_assert(rig_fill(rig), "%d types, depth %d", count, depth);
    }
    cr_assert(rig_feed(rig, "null", 4));
    for (int depth = 0; depth < 32; depth++) {
      char member[] = ",\"v0\":\"a\"}";
      member[3] = (char)('0' + depth % count);
      cr_assert(rig_fill(rig));
      cr_assert(rig_feed(rig, member, sizeof member - 1), "%d types, depth %d", count, depth);
    }
    cr_assert(rig_feed(rig, "}", 1));
    cr_assert(grammar_matcher_is_finished(rig->matcher));
  }
  rig_free(rig);
}

Test(merge, random_texts_of_unions_never_fail) {
  rig_t *rig = rig_new();
  for (int count = 2; count <= 4; count++) {
    compile_union(rig, count);
    for (uint64_t seed = 1; seed <= 12; seed++) {
      uint64_t state = seed;
      rig_start(rig);
      for (int i = 0; i < 400 && !grammar_matcher_is_finished(rig->matcher); i++) {
        cr_assert(rig_fill(rig), "%d types, seed %d, token %d", count, (int)seed, i);
        int32_t id = rig_pick(rig, &state);
        if (id == RIG_STOP) break;
        ASSERT_EQ(grammar_matcher_accept(rig->matcher, rig->scratch, id), 0);
      }
    }
  }
  rig_free(rig);
}

/* Every letter may be a branch of its own, so the number of ways grows with the text. */
static const char ambiguous[] = "root ::= a\n"
                                "a ::= b a b | b a c | b | \"x\" a \"y\" d | [a-z] d a\n"
                                "b ::= [a-m] | [a-z] c | d d\n"
                                "c ::= \"a\"? \"b\"? | [a-z] a\n"
                                "d ::= [a-z]{1,3} | \"q\" d? c? | [c-p] a";

/* What no bound can follow becomes narrower; no token that a mask allowed is refused, and no mask
 * is empty. The same when only one way is followed from some token on. */
Test(merge, what_passes_a_bound_goes_on) {
  rig_t *rig = rig_new();
  ASSERT_EQ_FOR(rig_text(rig, GRAMMAR_EBNF, ambiguous), 0, "%s", rig->error.message);
  uint64_t before = rig->scratch->narrowed = 0;
  for (uint64_t seed = 1; seed <= 2; seed++) {
    uint64_t state = seed;
    rig_start(rig);
    for (uint64_t i = 0; i < 24 && !grammar_matcher_is_finished(rig->matcher); i++) {
      if (i == 6 * seed) grammar_matcher_narrow(rig->matcher);
      cr_assert(rig_fill(rig), "seed %d, token %d", (int)seed, (int)i);
      int32_t id = rig_pick(rig, &state);
      if (id == RIG_STOP) break;
      uint64_t units = rig->scratch->units;
      ASSERT_EQ_FOR(grammar_matcher_accept(rig->matcher, rig->scratch, id), 0, "seed %d, token %d",
                    (int)seed, (int)i);
      ASSERT_LE(rig->scratch->units - units, (uint64_t)GRAMMAR_UNITS_OVER * 33);
    }
  }
  ASSERT_GT(rig->scratch->narrowed, before);
  rig_free(rig);
}

/* A token is taken in pieces, each of which keeps within its bound, as it is at once. */
Test(merge, tokens_are_taken_in_pieces) {
  rig_t *rig = rig_new(), *other = rig_new();
  ASSERT_EQ_FOR(rig_text(rig, GRAMMAR_EBNF, ambiguous), 0, "%s", rig->error.message);
  rig_start(rig);
  grammar_matcher_copy(other->matcher, rig->matcher);
  uint64_t state = 5;
  int pieces = 0, taken = 0;
  for (int i = 0; i < 400 && !grammar_matcher_is_finished(rig->matcher); i++) {
    int32_t id = (int32_t)(rig_random(&state) % RIG_TOKENS);
    int code = grammar_matcher_accept(rig->matcher, rig->scratch, id), other_code = GRAMMAR_LATER;
    for (; other_code == GRAMMAR_LATER; pieces++) {
      uint64_t units = other->scratch->units;
      other_code = grammar_matcher_accept_on(other->matcher, other->scratch, id, 1);
      ASSERT_LE(other->scratch->units - units, (uint64_t)GRAMMAR_UNITS_OVER);
    }
    ASSERT_EQ(other_code, code);
    ASSERT_EQ(other->matcher->place.count, rig->matcher->place.count);
    cr_assert_arr_eq(other->matcher->place.threads, rig->matcher->place.threads,
                     rig->matcher->place.count * sizeof(thread_t));
    taken += code == 0;
  }
  ASSERT_GT(taken, 10);
  ASSERT_GT(pieces, 100);
  rig_free(other);
  rig_free(rig);
}

/* One rule out of many that all lead to it. */
static void compile_chain(rig_t *rig, int count) {
  char text[8192];
  size_t at = (size_t)snprintf(text, sizeof text, "root ::= a0\n");
  for (int i = 0; i < count; i++)
    at += (size_t)snprintf(text + at, sizeof text - at, "a%d ::= a%d | b\n", i, i + 1);
  snprintf(text + at, sizeof text - at, "a%d ::= b\nb ::= [a-z ] a0 \"q\" | [a-z ]\n", count);
  ASSERT_EQ_FOR(rig_text(rig, GRAMMAR_EBNF, text), 0, "%s", rig->error.message);
}

static uint64_t mask_units(rig_t *rig) {
  uint64_t before = rig->scratch->units;
  cr_assert(rig_fill(rig));
  return rig->scratch->units - before;
}

/* A closure is a list of lexemes: the rules on the way to them cost nothing. */
Test(merge, chains_of_rules_cost_no_more_than_one_rule) {
  rig_t *rig = rig_new();
  uint64_t units[2];
  for (int i = 0; i < 2; i++) {
    compile_chain(rig, i ? 120 : 1);
    rig_start(rig);
    cr_assert(rig_feed(rig, "some text", 9));
    units[i] = mask_units(rig);
    uint64_t before = rig->scratch->units;
    cr_assert(rig_feed(rig, "more text", 9));
    ASSERT_LE(rig->scratch->units - before, 9u * 100);
  }
  ASSERT_LE(units[1], 2 * units[0]);
  ASSERT_GT(units[0], 1000u);
  rig_free(rig);
}
