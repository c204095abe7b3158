/* test_mask.c: masks are exactly the tokens that could be accepted, whatever way they are made. */
#include "tests/engine/grammar/rig.h"
#include "tests/expect.h"

#include <stdlib.h>
#include <string.h>

static const char *const schemas[] = {
    "{\"type\":\"object\"}",
    "{}",
    "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"maxLength\":25},\"age\":{"
    "\"type\":\"integer\",\"minimum\":0,\"maximum\":150},\"tags\":{\"type\":\"array\",\"items\":{"
    "\"type\":\"string\",\"minLength\":2},\"maxItems\":3}},\"required\":[\"name\"],"
    "\"additionalProperties\":false}",
    "{\"type\":\"string\",\"pattern\":\"[a-c]{4}$\",\"minLength\":3,\"maxLength\":40}",
    "{\"type\":\"array\",\"items\":{\"anyOf\":[{\"type\":\"number\",\"minimum\":-1.5},{\"enum\":["
    "\"a\","
    "\"ab\",\"the "
    "quick\"]},{\"type\":\"object\",\"patternProperties\":{\"^b\":{\"type\":\"null\"}}}]}}",
    "{\"$ref\":\"#/$defs/n\",\"$defs\":{\"n\":{\"type\":\"object\",\"properties\":{\"v\":{\"type\":"
    "\"string\",\"minLength\":1,\"maxLength\":12},\"next\":{\"anyOf\":[{\"$ref\":\"#/$defs/n\"},{"
    "\"type\":\"null\"}]}},\"required\":[\"v\",\"next\"]}}}",
};
enum { NUM_SCHEMAS = sizeof schemas / sizeof *schemas };

static const char grammar[] = "root ::= (word | \"(\" root \")\")* \"!\"\n"
                              "word ::= [a-z]+ (\" \" word)? | \"\xE2\x82\xAC\"{1,3}";

/* Several histories of every text. */
static const char ambiguous[] = "root ::= (a | b)+\na ::= [a-z]+ \" \"? | b c\n"
                                "b ::= [a-m]+ \"e\"? \" \"? | \"(\" root \")\"\nc ::= a? | \".\"";

/* Bit of every token by feeding its bytes one by one to a copy. */
static void fill_by_bytes(rig_t *rig, uint32_t *row) {
  grammar_matcher_t *copy = aligned_alloc(64, grammar_matcher_bytes());
  memset(row, 0, sizeof rig->row);
  for (int32_t id = 0; id < RIG_TOKENS; id++) {
    uint32_t length, at = 0;
    const char *bytes = vocabulary_token(rig->vocabulary, id, &length);
    grammar_matcher_copy(copy, rig->matcher);
    while (at < length && grammar_matcher_accept(copy, rig->scratch, (uint8_t)bytes[at]) == 0) {
      at++;
    }
    if (at == length) row[id / 32] |= UINT32_C(1) << (id % 32);
  }
  if (grammar_matcher_is_accepting(rig->matcher)) row[RIG_STOP / 32] |= 1u << (RIG_STOP % 32);
  free(copy);
}

/* Ways that pass the bounds of a matcher: some of them are dropped, and which ones depends on all
 * bytes of the token. */
static const char wide[] = "root ::= a\na ::= b a b | b a c | b | \"x\" a \"y\" d | [a-z] d a\n"
                           "b ::= [a-m] | [a-z] c | d d\nc ::= \"a\"? \"b\"? | [a-z] a\n"
                           "d ::= [a-z]{1,3} | \"q\" d? c? | [c-p] a";

/* Bits of some tokens by accepting each; the others as they are. */
static void fill_by_tokens(rig_t *rig, uint64_t *state, uint32_t *row) {
  grammar_matcher_t *copy = aligned_alloc(64, grammar_matcher_bytes());
  memcpy(row, rig->row, sizeof rig->row);
  for (int i = 0; i < 24; i++) {
    int32_t id = (int32_t)(rig_random(state) % RIG_TOKENS);
    uint32_t bit = 1u << (id % 32);
    grammar_matcher_copy(copy, rig->matcher);
    bool taken = grammar_matcher_accept(copy, rig->scratch, id) == 0;
    row[id / 32] = (row[id / 32] & ~bit) | (taken ? bit : 0);
  }
  free(copy);
}

/* The mask by a walk that stops again and again, in between other work with the same scratch, now
 * and then another walk, and goes on with this scratch or another. A piece costs `units_most` at
 * most; all together cost what one walk costs. */
static void fill_in_pieces(rig_t *rig, bool ready, uint64_t units_most, uint64_t *state,
                           uint32_t *row) {
  int32_t stop = RIG_STOP;
  grammar_walk_t at = {0};
  grammar_matcher_t *other = aligned_alloc(64, grammar_matcher_bytes());
  grammar_scratch_t *scratches[] = {rig->scratch, calloc(1, grammar_scratch_bytes())};
  uint32_t other_row[sizeof rig->row / sizeof(uint32_t)];
  int code = GRAMMAR_LATER, pieces = 0;
  uint64_t before = grammar_units(rig->scratch);
  matcher_walk(rig->matcher, rig->scratch, ready, row);
  uint64_t units = grammar_units(rig->scratch) - before;
  for (; code == GRAMMAR_LATER; pieces++) {
    grammar_scratch_t *scratch = scratches[rig_random(state) % 2];
    code = matcher_walk_on(rig->matcher, scratch, ready, &at, rig_random(state) % units_most, row);
    ASSERT_EQ(grammar_matcher_start(other, scratch, rig->grammar, rig->vocabulary), 0);
    if (pieces % 8 == 1) matcher_walk(other, scratch, true, other_row);
  }
  ASSERT_EQ(code, 0);
  ASSERT_LT(pieces, 10000);
  ASSERT_EQ(at.units, units);
  ASSERT_EQ(matcher_finish(rig->matcher, &stop, 1, row), 0);
  free(scratches[1]);
  free(other);
}

/* The mask by slices, by a full walk and byte by byte; at `steps` random places. */
static void check_walk(rig_t *rig, uint64_t seed, int steps) {
  int32_t stop = RIG_STOP;
  uint32_t slow[sizeof rig->row / sizeof(uint32_t)], full[sizeof rig->row / sizeof(uint32_t)];
  uint64_t state = seed;
  rig_start(rig);
  for (int i = 0; i < steps; i++) {
    if (grammar_matcher_is_finished(rig->matcher)) break;
    cr_assert(rig_fill(rig));
    matcher_walk(rig->matcher, rig->scratch, false, full);
    ASSERT_EQ(matcher_finish(rig->matcher, &stop, 1, full), 0);
    fill_by_bytes(rig, slow);
    cr_assert_arr_eq(full, slow, sizeof full, "full walk, step %d", i);
    cr_assert_arr_eq(rig->row, slow, sizeof full, "sliced walk, step %d", i);
    for (int ready = 0; ready < 2; ready++) {
      fill_in_pieces(rig, ready, 3000, &state, full);
      cr_assert_arr_eq(full, slow, sizeof full, "in pieces, step %d, ready %d", i, ready);
    }
    int32_t id = rig_pick(rig, &state);
    if (id == RIG_STOP) break;
    ASSERT_EQ(grammar_matcher_accept(rig->matcher, rig->scratch, id), 0);
  }
}

Test(mask, sliced_full_and_byte_by_byte_are_equal) {
  rig_t *rig = rig_new();
  for (int i = 0; i < NUM_SCHEMAS; i++) {
    ASSERT_EQ_FOR(rig_schema(rig, schemas[i]), 0, "%s", rig->error.message);
    for (uint64_t seed = 1; seed <= 3; seed++) check_walk(rig, seed, 12);
  }
  ASSERT_EQ_FOR(rig_text(rig, GRAMMAR_EBNF, grammar), 0, "%s", rig->error.message);
  check_walk(rig, 5, 20);
  ASSERT_EQ_FOR(rig_text(rig, GRAMMAR_EBNF, ambiguous), 0, "%s", rig->error.message);
  for (uint64_t seed = 1; seed <= 3; seed++) check_walk(rig, seed, 12);
  rig_free(rig);
}

Test(mask, is_what_would_be_accepted_where_bounds_are_passed) {
  rig_t *rig = rig_new();
  uint32_t slow[sizeof rig->row / sizeof(uint32_t)];
  uint64_t state = 1, narrowed = rig->scratch->narrowed = 0;
  ASSERT_EQ_FOR(rig_text(rig, GRAMMAR_EBNF, wide), 0, "%s", rig->error.message);
  rig_start(rig);
  for (int i = 0; i < 4 && !grammar_matcher_is_finished(rig->matcher); i++) {
    cr_assert(rig_fill(rig));
    narrowed = rig->scratch->narrowed;
    if (i % 4 == 3) {
      fill_by_tokens(rig, &state, slow);
      cr_assert_arr_eq(rig->row, slow, sizeof slow, "step %d", i);
      fill_in_pieces(rig, true, 100000, &state, slow);
      cr_assert_arr_eq(rig->row, slow, sizeof slow, "in pieces, step %d", i);
    }
    int32_t id = rig_pick(rig, &state);
    if (id == RIG_STOP) break;
    ASSERT_EQ(grammar_matcher_accept(rig->matcher, rig->scratch, id), 0);
  }
  ASSERT_GT(narrowed, (uint64_t)0);
  rig_free(rig);
}

/* Tokens of several characters of other scripts, the last one perhaps cut, where only some more
 * characters fit, or where one of them leads to another state. */
Test(mask, of_other_scripts_is_what_would_be_accepted) {
  static const char *const patterns[] = {"[^a]{0,3}b", "(?:[^a-z]b?){1,2}", "[^b-z]*c",
                                         "[\\u00E9\\u20AC]{1,4}", "[^a]\\u20AC?[^\\u00E9]*"};
  rig_t *rig = rig_new();
  for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
    ASSERT_EQ_FOR(rig_text(rig, GRAMMAR_REGEX, patterns[i]), 0, "%s", rig->error.message);
    for (uint64_t seed = 1; seed <= 3; seed++) check_walk(rig, seed, 4);
  }
  ASSERT_EQ(rig_schema(rig, "{\"type\":\"string\",\"minLength\":1,\"maxLength\":3}"), 0);
  for (uint64_t seed = 1; seed <= 6; seed++) check_walk(rig, seed, 5);
  rig_free(rig);
}

/* Random walks never reach an empty mask, also where lengths and depths run out. */
Test(mask, is_never_empty) {
  rig_t *rig = rig_new();
  uint64_t state = 11;
  for (int i = 0; i < NUM_SCHEMAS * 6; i++) {
    ASSERT_EQ(rig_schema(rig, schemas[i % NUM_SCHEMAS]), 0);
    rig_start(rig);
    for (int k = 0; k < 300 && !grammar_matcher_is_finished(rig->matcher); k++) {
      cr_assert(rig_fill(rig), "%s, step %d", schemas[i % NUM_SCHEMAS], k);
      int32_t id = rig_pick(rig, &state);
      if (id == RIG_STOP) break;
      ASSERT_EQ(grammar_matcher_accept(rig->matcher, rig->scratch, id), 0);
    }
  }
  rig_free(rig);
}

Test(mask, a_token_that_is_not_allowed_changes_nothing) {
  rig_t *rig = rig_new();
  uint32_t before[sizeof rig->row / sizeof(uint32_t)];
  ASSERT_EQ(rig_schema(rig, schemas[2]), 0);
  rig_start(rig);
  cr_assert(rig_feed(rig, "{\"name\"", 7));
  cr_assert(rig_fill(rig));
  memcpy(before, rig->row, sizeof before);
  for (int32_t id = 0; id < RIG_WIDTH; id++) {
    if (rig_allows(rig, id)) continue;
    ASSERT_EQ(grammar_matcher_accept(rig->matcher, rig->scratch, id), ERR_INTERNAL);
  }
  cr_assert(rig_fill(rig));
  cr_assert_arr_eq(before, rig->row, sizeof before);
  rig_free(rig);
}

Test(mask, stop_ids_only_where_the_text_may_end) {
  rig_t *rig = rig_new();
  int32_t stops[] = {RIG_STOP, 0x7F, -1, RIG_WIDTH + 5}; /* the second is text as well */
  ASSERT_EQ(rig_text(rig, GRAMMAR_REGEX, "a[\\x7F2]*"), 0);
  rig_start(rig);
  ASSERT_EQ(grammar_matcher_fill(rig->matcher, rig->scratch, stops, 4, rig->row), 0);
  cr_assert_not(rig_allows(rig, RIG_STOP));
  cr_assert(rig_feed(rig, "a", 1));
  ASSERT_EQ(grammar_matcher_fill(rig->matcher, rig->scratch, stops, 4, rig->row), 0);
  cr_assert(rig_allows(rig, RIG_STOP));
  cr_assert(rig_allows(rig, 0x7F));
  cr_assert(rig_allows(rig, '2'));
  cr_assert_not(grammar_matcher_is_finished(rig->matcher));
  /* A stop id that is also text never cuts a text that may not end. */
  ASSERT_EQ(rig_text(rig, GRAMMAR_REGEX, "\\x7Fb"), 0);
  rig_start(rig);
  ASSERT_EQ(grammar_matcher_fill(rig->matcher, rig->scratch, stops, 4, rig->row), ERR_NO_CHOICE);
  rig_free(rig);
}

Test(mask, finished_when_nothing_can_follow) {
  rig_t *rig = rig_new();
  ASSERT_EQ(rig_text(rig, GRAMMAR_CHOICE, "[\"no\",\"none\"]"), 0);
  rig_start(rig);
  cr_assert(rig_feed(rig, "no", 2));
  cr_assert(grammar_matcher_is_accepting(rig->matcher));
  cr_assert_not(grammar_matcher_is_finished(rig->matcher));
  cr_assert(rig_feed(rig, "ne", 2));
  cr_assert(grammar_matcher_is_finished(rig->matcher));
  cr_assert(rig_fill(rig));
  cr_assert(rig_allows(rig, RIG_STOP));
  for (int32_t id = 0; id < RIG_TOKENS; id++) cr_assert_not(rig_allows(rig, id));
  rig_free(rig);
}

/* A tool call: marker token, literal, arguments of a schema, as often as wanted. */
Test(mask, sequences_of_tokens_literals_and_schemas) {
  rig_t *rig = rig_new();
  json_doc_t *doc;
  static const char schema[] = "{\"type\":\"object\",\"properties\":{\"x\":{\"type\":\"null\"}},"
                               "\"required\":[\"x\"],\"additionalProperties\":false}";
  ASSERT_EQ(json_parse(schema, strlen(schema), &json_limits_request, &doc, &rig->error), 0);
  grammar_source_t parts[] = {
      {.kind = GRAMMAR_TOKEN, .token = RIG_SPECIAL},
      {.kind = GRAMMAR_LITERAL, .text = "{\"arguments\": ", .length = 14},
      {.kind = GRAMMAR_JSON_SCHEMA, .schema = json_root(doc)},
      {.kind = GRAMMAR_LITERAL, .text = "}", .length = 1},
  };
  grammar_source_t call[] = {{.kind = GRAMMAR_SEQUENCE, .children = parts, .num_children = 4},
                             {.kind = GRAMMAR_LITERAL, .text = "\n", .length = 1}};
  grammar_source_t calls = {
      .kind = GRAMMAR_REPEAT, .min = 1, .max = 2, .children = call, .num_children = 2};
  ASSERT_EQ_FOR(rig_compile(rig, &calls, NULL), 0, "%s", rig->error.message);
  json_free(doc);
  rig_start(rig);
  for (int i = 0; i < 2; i++) {
    cr_assert(rig_fill(rig));
    cr_assert(rig_allows(rig, RIG_SPECIAL));
    cr_assert(!rig_allows(rig, '{'));
    ASSERT_EQ(grammar_matcher_accept(rig->matcher, rig->scratch, RIG_SPECIAL), 0);
    cr_assert(rig_fill(rig));
    cr_assert(!rig_allows(rig, RIG_SPECIAL));
    cr_assert(rig_allows(rig, '{'));
    cr_assert(rig_feed(rig, "{\"arguments\": {\"x\":null}}", 25));
    cr_assert(grammar_matcher_is_accepting(rig->matcher));
    ASSERT_EQ(grammar_matcher_is_finished(rig->matcher), i == 1);
    ASSERT_EQ(rig_feed(rig, "\n", 1), i == 0);
  }
  rig_free(rig);
}

Test(mask, free_text_up_to_a_marker) {
  rig_t *rig = rig_new();
  grammar_source_t parts[] = {{.kind = GRAMMAR_TEXT, .text = "aab", .length = 3},
                              {.kind = GRAMMAR_CHOICE}};
  json_doc_t *doc;
  ASSERT_EQ(json_parse("[\"x\"]", 5, &json_limits_request, &doc, &rig->error), 0);
  parts[1].schema = json_root(doc);
  grammar_source_t all = {.kind = GRAMMAR_SEQUENCE, .children = parts, .num_children = 2};
  ASSERT_EQ(rig_compile(rig, &all, NULL), 0);
  json_free(doc);
  cr_assert(rig_accepts(rig, "aabx"));
  cr_assert(rig_accepts(rig, "so aaaabx"));
  cr_assert(rig_accepts(rig, "\xFF"
                             "aabx"));
  cr_assert_not(rig_accepts(rig, "aaby") || rig_accepts(rig, "aab") || rig_accepts(rig, "aabaabx"));
  ASSERT_EQ(rig_text(rig, GRAMMAR_TEXT, ""), 0);
  rig_start(rig);
  cr_assert(rig_fill(rig));
  cr_assert(rig_allows(rig, RIG_STOP));
  cr_assert(!rig_allows(rig, RIG_SPECIAL));
  for (int32_t id = 0; id < RIG_TOKENS; id++) cr_assert(rig_allows(rig, id));
  rig_free(rig);
}

/* Frames that nothing reaches any more are collected: a long text does not run out of them. */
Test(mask, long_texts_need_no_more_memory) {
  rig_t *rig = rig_new();
  ASSERT_EQ_FOR(
      rig_schema(rig, "{\"type\":\"array\",\"items\":{\"type\":\"object\"},\"minItems\":20000}"), 0,
      "%s", rig->error.message);
  rig_start(rig);
  cr_assert(rig_feed(rig, "[", 1));
  for (int i = 0; i < 20000; i++) {
    cr_assert(rig_feed(rig, "{\"a\":[[1,{}]]}", 14), "item %d", i);
    ASSERT_EQ_FOR(rig_feed(rig, "]", 1), i == 19999, "item %d", i);
    if (i < 19999) cr_assert(rig_feed(rig, ",", 1));
  }
  cr_assert(grammar_matcher_is_finished(rig->matcher));
  rig_free(rig);
}

/* Nesting stops where the stack ends: what stays allowed can still be finished. */
Test(mask, depth_runs_out_without_a_dead_end) {
  rig_t *rig = rig_new();
  ASSERT_EQ(rig_schema(rig, schemas[5]), 0);
  rig_start(rig);
  int depth = 0;
  static const char open[] = "{\"v\":\"a\",\"next\":";
  while (depth < 1000 && rig_feed(rig, open, sizeof open - 1)) depth++;
  cr_assert(depth > 50 && depth < 1000, "%d", depth);
  cr_assert(rig_feed(rig, "null", 4));
  for (int i = 0; i < depth; i++) cr_assert(rig_feed(rig, "}", 1));
  cr_assert(grammar_matcher_is_finished(rig->matcher));
  rig_free(rig);
}
