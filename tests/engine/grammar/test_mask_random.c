/* test_mask_random.c: masks over random vocabularies, patterns and places are exactly the tokens
 * that could be accepted byte by byte.
 *
 * The vocabularies have what the ready rows and lists are made for: thousands of words under one
 * first letter, words behind a space or a mark, long runs, other scripts, parts of characters. The
 * seed is fresh; a failure names it.
 */
#include "engine/base/clock.h"
#include "engine/grammar/mask/masks.h"
#include "tests/engine/grammar/rig.h"
#include "tests/expect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS = 5000, TOKEN_MAX = 48, PLACES = 8, ROUNDS = 40, WALKS = 3, STOP = TOKENS };

typedef struct token {
  char bytes[TOKEN_MAX];
  uint8_t length;
} token_t;

typedef struct vocabulary_rig {
  token_t tokens[TOKENS];
  uint64_t seed, state;
  rig_t rig; /* of this vocabulary; its own row is too short */
  uint32_t row[TOKENS / 32 + 1], full[TOKENS / 32 + 1], slow[TOKENS / 32 + 1];
  grammar_matcher_t *copy;
  grammar_masks_t *masks[2]; /* a few rows, that drive each other out, and many */
  uint64_t hits[2];
} vocabulary_rig_t;

static uint32_t below(vocabulary_rig_t *r, uint32_t bound) {
  return (uint32_t)(rig_random(&r->state) % bound);
}

static void add_byte(token_t *t, int byte) {
  if (t->length < TOKEN_MAX) t->bytes[t->length++] = (char)byte;
}

static void make_token(vocabulary_rig_t *r, int32_t id) {
  static const char *const pieces[] = {"\xC3\xA9",
                                       "\xE2\x82\xAC",
                                       "\xF0\x9F\x98\x80",
                                       "\xE2\x82",
                                       "\xA9",
                                       "\"",
                                       "\\n",
                                       "\", \"",
                                       "1",
                                       "20",
                                       "}",
                                       "\n"};
  static const char marks[] = " .,_-@/:#=+!";
  token_t *t = &r->tokens[id];
  uint32_t kind = below(r, 20), length = 1 + below(r, below(r, 12) ? 9 : TOKEN_MAX - 1);
  t->length = 0;
  if (id < 256) {
    add_byte(t, id);
    return;
  }
  if (kind >= 8 && kind < 13) add_byte(t, 'a');
  if (kind < 8) add_byte(t, marks[below(r, kind < 4 ? 1 : sizeof marks - 1)]);
  if (kind == 13) add_byte(t, 'A' + (int)below(r, 26));
  if (kind == 14) memset(t->bytes, marks[below(r, 12)], t->length = (uint8_t)length);
  if (kind >= 14) {
    for (uint32_t i = below(r, 4) + 1; i > 0; i--) {
      const char *piece = pieces[below(r, sizeof pieces / sizeof *pieces)];
      while (*piece) add_byte(t, *piece++);
    }
  }
  for (uint32_t i = 0; i < length && kind < 17; i++) {
    int upper = kind == 7 && below(r, 3) == 0 ? 'A' : 'a';
    add_byte(t, upper + (int)below(r, 26));
  }
}

static const char *token_bytes(const void *context, int32_t id, size_t *length) {
  const vocabulary_rig_t *r = context;
  *length = r->tokens[id].length;
  return r->tokens[id].bytes;
}

static vocabulary_rig_t *vocabulary_rig_new(void) {
  vocabulary_rig_t *r = calloc(1, sizeof *r);
  cr_assert_not_null(r);
  r->seed = r->state = clock_now_ns();
  for (int32_t id = 0; id < TOKENS; id++) make_token(r, id);
  ASSERT_EQ(
      grammar_vocabulary_new(token_bytes, r, TOKENS, TOKENS + 1, &r->rig.vocabulary, &r->rig.error),
      0);
  ASSERT_GT(r->rig.vocabulary->num_large, 0); /* rows of subtrees are used as well as lists */
  r->rig.matcher = aligned_alloc(64, grammar_matcher_bytes());
  r->rig.scratch = aligned_alloc(64, grammar_scratch_bytes());
  r->copy = aligned_alloc(64, grammar_matcher_bytes());
  cr_assert(r->rig.matcher);
  cr_assert(r->rig.scratch);
  cr_assert(r->copy);
  for (int i = 0; i < 2; i++) {
    size_t bytes = i == 0 ? 5 * sizeof r->row : (size_t)16 << 20;
    ASSERT_EQ(grammar_masks_new(r->rig.vocabulary, bytes, &r->masks[i], &r->rig.error), 0);
  }
  return r;
}

static void vocabulary_rig_free(vocabulary_rig_t *r) {
  grammar_unref(r->rig.grammar);
  grammar_vocabulary_free(r->rig.vocabulary);
  free(r->rig.matcher);
  free(r->rig.scratch);
  free(r->copy);
  for (int i = 0; i < 2; i++) grammar_masks_free(r->masks[i]);
  free(r);
}

/* ---- patterns ---- */

static void add_text(char *out, size_t size, const char *text) {
  size_t used = strlen(out);
  snprintf(out + used, size - used, "%s", text);
}

/* Without backslash and quote, so that it may stand in a JSON string as it is. */
static void add_pattern(vocabulary_rig_t *r, char *out, size_t size, int depth) {
  static const char *const atoms[] = {"[a-z]",  "[A-Za-z]", "[a-z0-9_-]", ".",     "[^]",   "[^@ ]",
                                      "[ -~]",  "a",        "[aeiou]",    "[a-m]", " ",     "[0-9]",
                                      "[^a-c]", "the",      "[A-Z]",      "=",     "[a-z ]"};
  for (uint32_t i = 1 + below(r, 3); i > 0; i--) {
    char bounds[32] = "";
    uint32_t low = below(r, 4), high = low + 1 + below(r, below(r, 3) ? 12 : 40);
    if (depth > 0 && below(r, 3) == 0) {
      add_text(out, size, "(");
      add_pattern(r, out, size, depth - 1);
      if (below(r, 2)) {
        add_text(out, size, "|");
        add_pattern(r, out, size, depth - 1);
      }
      add_text(out, size, ")");
      high = low + 1 + below(r, 3);
    } else {
      add_text(out, size, atoms[below(r, sizeof atoms / sizeof *atoms)]);
    }
    switch (below(r, 5)) {
    case 0: snprintf(bounds, sizeof bounds, "{%u,%u}", low, high); break;
    case 1: strcpy(bounds, "*"); break;
    case 2: strcpy(bounds, "+"); break;
    case 3: strcpy(bounds, "?"); break;
    default: break;
    }
    add_text(out, size, bounds);
  }
}

static int compile_random(vocabulary_rig_t *r, char *text, size_t size) {
  char pattern[512] = "";
  add_pattern(r, pattern, sizeof pattern, 2);
  uint32_t low = below(r, 4), high = low + below(r, 40);
  switch (below(r, 5)) {
  case 0: snprintf(text, size, "%s", pattern); return rig_text(&r->rig, GRAMMAR_REGEX, text);
  case 1:
    snprintf(text, size, "{\"type\":\"string\",\"pattern\":\"^%s$\",\"maxLength\":%u}", pattern,
             high);
    break;
  case 2:
    snprintf(text, size, "{\"type\":\"string\",\"minLength\":%u,\"maxLength\":%u}", low, high);
    break;
  case 3: /* the same strings at many places of a stack */
    snprintf(text, size,
             "{\"type\":\"array\",\"minItems\":%u,\"maxItems\":%u,\"items\":{\"type\":"
             "\"object\",\"properties\":{\"a\":{\"type\":\"array\",\"maxItems\":2,\"items\":{"
             "\"type\":\"string\",\"maxLength\":%u}},\"the\":{\"type\":\"integer\"}}}}",
             low, low + 2, high);
    break;
  default:
    snprintf(
        text, size,
        "{\"type\":\"object\",\"properties\":{\"the\":{\"type\":\"string\",\"pattern\":\"%s\"},"
        "\"a\":{\"anyOf\":[{\"type\":\"string\",\"maxLength\":%u},{\"type\":\"integer\"}]}}}",
        pattern, high);
  }
  return rig_schema(&r->rig, text);
}

/* ---- masks ---- */

/* Feeds the bytes of every token one by one to a copy of the matcher. */
static void fill_by_bytes(vocabulary_rig_t *r) {
  memset(r->slow, 0, sizeof r->slow);
  for (int32_t id = 0; id < TOKENS; id++) {
    const token_t *t = &r->tokens[id];
    int32_t at = 0;
    grammar_matcher_copy(r->copy, r->rig.matcher);
    while (at < t->length &&
           grammar_matcher_accept(r->copy, r->rig.scratch, (uint8_t)t->bytes[at]) == 0) {
      at++;
    }
    if (at == t->length) r->slow[id / 32] |= UINT32_C(1) << (id % 32);
  }
  if (grammar_matcher_is_accepting(r->rig.matcher)) r->slow[STOP / 32] |= 1u << (STOP % 32);
}

static int32_t pick(vocabulary_rig_t *r) {
  uint32_t seen = 0;
  int32_t chosen = STOP;
  for (int32_t id = 0; id < TOKENS; id++) {
    if ((r->row[id / 32] >> (id % 32) & 1) && below(r, ++seen) == 0) chosen = id;
  }
  return chosen;
}

/* Masks that are kept are those that a walk makes, the first time and again. */
static void check_kept(vocabulary_rig_t *r, const char *text) {
  int32_t stop = STOP;
  for (int i = 0; i < 4; i++) {
    bool hit;
    ASSERT_EQ(
        grammar_masks_fill(r->masks[i % 2], r->rig.matcher, r->rig.scratch, &stop, 1, r->row, &hit),
        0);
    cr_assert_arr_eq(r->row, r->slow, sizeof r->slow, "kept masks %d of %s, seed %llu", i, text,
                     (unsigned long long)r->seed);
    if (i < 2) r->hits[i] += hit;
  }
}

static void check_places(vocabulary_rig_t *r, const char *text) {
  int32_t stop = STOP;
  rig_start(&r->rig);
  for (int place = 0; place < PLACES && !grammar_matcher_is_finished(r->rig.matcher); place++) {
    int code = grammar_matcher_fill(r->rig.matcher, r->rig.scratch, &stop, 1, r->row);
    ASSERT_EQ_FOR(code, 0, "%s, seed %llu", text, (unsigned long long)r->seed);
    matcher_walk(r->rig.matcher, r->rig.scratch, false, r->full);
    ASSERT_EQ(matcher_finish(r->rig.matcher, &stop, 1, r->full), 0);
    fill_by_bytes(r);
    cr_assert_arr_eq(r->full, r->slow, sizeof r->slow, "full walk of %s, place %d, seed %llu", text,
                     place, (unsigned long long)r->seed);
    cr_assert_arr_eq(r->row, r->slow, sizeof r->slow, "ready rows of %s, place %d, seed %llu", text,
                     place, (unsigned long long)r->seed);
    check_kept(r, text);
    int32_t id = pick(r);
    if (id == STOP) break;
    ASSERT_EQ(grammar_matcher_accept(r->rig.matcher, r->rig.scratch, id), 0);
  }
}

Test(mask_random, equal_byte_by_byte) {
  vocabulary_rig_t *r = vocabulary_rig_new();
  int checked = 0;
  for (int round = 0; round < ROUNDS; round++) {
    char text[1024];
    if (compile_random(r, text, sizeof text) != 0) continue; /* nothing matches, or too large */
    for (int walk = 0; walk < WALKS; walk++) check_places(r, text);
    checked++;
  }
  cr_assert(r->hits[0] > 0 && r->hits[1] > r->hits[0], "seed %llu", (unsigned long long)r->seed);
  ASSERT_GT_FOR(checked, ROUNDS / 4, "seed %llu", (unsigned long long)r->seed);
  vocabulary_rig_free(r);
}

/* Letters of which the schema takes an exact number more, at most 16: tokens of letters are taken
 * by their length, without a walk over thousands of them. */
Test(mask_random, letters_near_a_bound_cost_little) {
  static const char *const patterns[] = {"[a-z]{1,16}", "[A-Za-z]{1,16}", "[a-z]{16}="};
  vocabulary_rig_t *r = vocabulary_rig_new();
  for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
    char text[128];
    int places = 0;
    snprintf(text, sizeof text, "{\"type\":\"string\",\"pattern\":\"^%s$\"}", patterns[i]);
    ASSERT_EQ_FOR(rig_schema(&r->rig, text), 0, "%s", r->rig.error.message);
    rig_start(&r->rig);
    for (int32_t id = '"'; grammar_matcher_accept(r->rig.matcher, r->rig.scratch, id) == 0;
         id = 'a') {
      uint64_t before = grammar_units(r->rig.scratch);
      matcher_walk(r->rig.matcher, r->rig.scratch, true, r->row);
      uint64_t units = grammar_units(r->rig.scratch) - before;
      ASSERT_LT_FOR(units, 600, "%s, place %d, seed %llu", patterns[i], places,
                    (unsigned long long)r->seed);
      places++;
    }
    ASSERT_EQ(places, 17);
  }
  vocabulary_rig_free(r);
}
