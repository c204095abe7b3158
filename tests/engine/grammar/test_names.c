/* test_names.c: objects of many names: their keys come in any order and none comes twice, whatever
 * the number of names, and the sets of those that have come do not fill the matcher.
 */
#include "engine/base/clock.h"
#include "tests/engine/grammar/rig.h"
#include "tests/expect.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_MAX = 1 << 17, MEMBERS_MAX = 12, TEXTS = 400 };

/* What an object of `names` names n0, n1, ... demands. */
typedef struct rules {
  uint32_t names, min, max; /* max 0: no bound */
  uint32_t required;        /* so many of the names, 0 = none */
  bool extras;              /* other names may come */
  bool dependent;           /* the last name needs n1 */
} rules_t;

typedef struct writer {
  uint64_t seed, state;
  char text[TEXT_MAX];
  size_t length;
} writer_t;

static uint32_t below(writer_t *w, uint32_t bound) {
  return (uint32_t)(rig_random(&w->state) % bound);
}

static void put(writer_t *w, const char *text) {
  w->length += (size_t)snprintf(w->text + w->length, TEXT_MAX - w->length, "%s", text);
}

static void put_number(writer_t *w, const char *format, uint32_t number) {
  char text[64];
  snprintf(text, sizeof text, format, number);
  put(w, text);
}

static void begin(writer_t *w) {
  w->length = 0;
  w->text[0] = '\0';
}

static bool is_required(const rules_t *rules, uint32_t name) {
  return rules->required > 0 && name % (rules->names / rules->required) == 0;
}

static void write_schema(writer_t *w, const rules_t *rules) {
  bool first = true;
  begin(w);
  put(w, "{\"type\":\"object\",\"properties\":{");
  for (uint32_t i = 0; i < rules->names; i++) put_number(w, i ? ",\"n%u\":{}" : "\"n%u\":{}", i);
  put(w, "},\"required\":[");
  for (uint32_t i = 0; i < rules->names; i++) {
    if (!is_required(rules, i)) continue;
    put_number(w, first ? "\"n%u\"" : ",\"n%u\"", i);
    first = false;
  }
  put_number(w, "],\"minProperties\":%u", rules->min);
  if (rules->max > 0) put_number(w, ",\"maxProperties\":%u", rules->max);
  if (rules->dependent)
    put_number(w, ",\"dependentRequired\":{\"n%u\":[\"n1\"]}", rules->names - 1);
  put(w, rules->extras ? "}" : ",\"additionalProperties\":false}");
}

/* Writes an object of random members. Returns whether it has to be accepted: it is valid, no listed
 * name comes twice, and names that are not listed come behind the required ones. */
static bool write_object(writer_t *w, const rules_t *rules) {
  bool come[256] = {false}, fits = true;
  uint32_t count = below(w, MEMBERS_MAX), missing = 0, extras = 0;
  for (uint32_t i = 0; i < rules->names; i++) missing += is_required(rules, i);
  begin(w);
  put(w, "{");
  for (uint32_t i = 0; i < count; i++) {
    uint32_t name = below(w, rules->names);
    bool extra = missing == 0 ? below(w, 3) == 0 : below(w, 20) == 0;
    if (missing > 0 && below(w, 8)) {
      while (!is_required(rules, name) || come[name]) name = (name + 1) % rules->names;
    }
    if (rules->dependent && below(w, 8) == 0) name = below(w, 2) ? 1 : rules->names - 1;
    if (come[name] && below(w, 8)) continue;
    if (w->length > 1) put(w, ", ");
    put_number(w, extra ? "\"x%u\":1" : "\"n%u\":1", extra ? i : name);
    if (extra) {
      fits = fits && rules->extras && missing == 0;
      extras++;
    } else {
      fits = fits && !come[name];
      missing -= !come[name] && is_required(rules, name);
      come[name] = true;
    }
  }
  put(w, "}");
  uint32_t members = extras;
  for (uint32_t i = 0; i < rules->names; i++) members += come[i];
  if (rules->dependent && come[rules->names - 1] && !come[1]) fits = false;
  return fits && missing == 0 && members >= rules->min &&
         (rules->max == 0 || members <= rules->max);
}

Test(names, come_in_any_order_and_none_twice) {
  static const uint32_t counts[] = {31, 32, 40, 63, 64, 65, 127, 128, 255};
  static const rules_t kinds[] = {{0},
                                  {.required = 3, .extras = true},
                                  {.required = 4, .min = 5, .max = 7, .extras = true},
                                  {.min = 2, .max = 4},
                                  {.required = 2, .extras = true, .dependent = true},
                                  {.dependent = true}};
  rig_t *rig = rig_new();
  writer_t *w = calloc(1, sizeof *w);
  cr_assert_not_null(w);
  w->seed = w->state = clock_now_ns();
  for (size_t i = 0; i < sizeof counts / sizeof *counts * (sizeof kinds / sizeof *kinds); i++) {
    rules_t rules = kinds[i / (sizeof counts / sizeof *counts)];
    uint32_t accepted = 0;
    rules.names = counts[i % (sizeof counts / sizeof *counts)];
    write_schema(w, &rules);
    ASSERT_EQ_FOR(rig_schema(rig, w->text), 0, "%s", rig->error.message);
    for (int k = 0; k < TEXTS; k++) {
      bool fits = write_object(w, &rules);
      EXPECT_EQ_FOR(rig_accepts(rig, w->text), fits, "%u names, kind %zu, seed %" PRIu64 ": %s",
                    rules.names, i / (sizeof counts / sizeof *counts), w->seed, w->text);
      accepted += fits;
    }
    EXPECT_GT_FOR(accepted, 0, "%u names",
                  rules.names); /* of the rarest kind it is true one time in twenty */
    EXPECT_LT_FOR(accepted, TEXTS, "%u names", rules.names);
  }
  free(w);
  rig_free(rig);
}

/* Where there are still more names, they come in the order of the schema. */
Test(names, of_a_number_without_bound_come_in_order) {
  rig_t *rig = rig_new();
  writer_t *w = calloc(1, sizeof *w);
  cr_assert_not_null(w);
  for (uint32_t names = 255; names <= 256; names++) {
    write_schema(w, &(rules_t){.names = names, .extras = true});
    ASSERT_EQ_FOR(rig_schema(rig, w->text), 0, "%s", rig->error.message);
    cr_expect(rig_accepts(rig, "{\"n4\":1,\"n200\":1}"));
    ASSERT_EQ(rig_accepts(rig, "{\"n200\":1,\"n4\":1}"), names == 255);
  }
  free(w);
  rig_free(rig);
}

enum { NESTED_NAMES = 40, ROUNDS = 3 };

/* Objects of many names within each other, and behind each other more of them than a matcher has
 * room for: the sets of those that are over are dropped, the others stay. */
Test(names, of_a_long_text_find_room) {
  rig_t *rig = rig_new();
  writer_t *w = calloc(1, sizeof *w);
  grammar_matcher_t *copy = aligned_alloc(64, grammar_matcher_bytes());
  cr_assert_not_null(w);
  cr_assert_not_null(copy);
  begin(w);
  put(w, "{\"type\":[\"object\",\"array\",\"null\"],\"items\":{\"$ref\":\"#\"},\"properties\":{");
  for (uint32_t i = 0; i < NESTED_NAMES; i++)
    put_number(w, i ? ",\"n%u\":{\"$ref\":\"#\"}" : "\"n%u\":{\"$ref\":\"#\"}", i);
  put(w, "},\"additionalProperties\":false}");
  ASSERT_EQ_FOR(rig_schema(rig, w->text), 0, "%s", rig->error.message);
  begin(w);
  for (uint32_t i = 0; i < NESTED_NAMES; i++) put_number(w, "{\"n0\":null,\"n%u\":", 1 + i % 39);
  put(w, "[null");
  for (uint32_t i = 0; i < 2 * SETS_MAX; i++) put_number(w, ",{\"n%u\":[]}", i % NESTED_NAMES);
  for (uint32_t i = 0; i < 2 * SETS_MAX; i++) {
    put_number(w, ",{\"n%u\":[],", i % 13);
    put_number(w, "\"n%u\":{", 13 + i / 13 % 13);
    put_number(w, "\"n%u\":null}}", i / 169);
  }
  put(w, "]");
  rig_start(rig);
  cr_assert(rig_feed(rig, w->text, w->length), "%s", rig->error.message);
  for (int i = 0; i < ROUNDS; i++) {
    uint32_t last = 1 + (uint32_t)(NESTED_NAMES - 1 - i) % 39;
    char used[32], open[32];
    snprintf(used, sizeof used, ",\"n%u\":null", last);
    snprintf(open, sizeof open, ",\"n%u\":null}", last == 5 ? 6 : 5);
    const char *const refused[] = {used, ",\"n0\":null"};
    for (int k = 0; k < 2; k++) {
      grammar_matcher_t *matcher = rig->matcher;
      memset(copy, 0xFF, grammar_matcher_bytes());
      grammar_matcher_copy(copy, matcher);
      rig->matcher = copy;
      cr_expect(!rig_feed(rig, refused[k], strlen(refused[k])), "round %d: %s", i, refused[k]);
      rig->matcher = matcher;
    }
    cr_assert(rig_feed(rig, open, strlen(open)), "round %d", i);
  }
  free(copy);
  free(w);
  rig_free(rig);
}

enum { LETTERS = 7, KEYS = 4, COMBINED = LETTERS * LETTERS * LETTERS * LETTERS };

/* Tokens of several members: the letters of token 256 + i are the digits of i. */
static const char *member_token(const void *context, int32_t id, size_t *length) {
  static char text[32];
  (void)context;
  *length = 1;
  text[0] = (char)id;
  if (id < 256) return text;
  *length = 0;
  for (int32_t i = 0, rest = id - 256; i < KEYS; i++, rest /= LETTERS) {
    *length += (size_t)snprintf(text + *length, sizeof text - *length, "%s%c", i ? "\":1,\"" : "",
                                'a' + rest % LETTERS);
  }
  return text;
}

/* A mask has exactly the tokens whose bytes lead on. The names a to e are listed, f and g are not;
 * each extra member counts. */
Test(names, within_one_token) {
  static const char *const places[] = {"{\"", "{\"b\":1, \"", "{\"a\":1,\"d\":2,\"",
                                       "{\"f\":1, \""};
  uint32_t allowed = 0;
  rig_t *rig = rig_new();
  writer_t *w = calloc(1, sizeof *w);
  grammar_matcher_t *copy = aligned_alloc(64, grammar_matcher_bytes()), *matcher;
  cr_assert_not_null(w);
  cr_assert_not_null(copy);
  grammar_vocabulary_free(rig->vocabulary);
  ASSERT_EQ(grammar_vocabulary_new(member_token, NULL, 256 + COMBINED, RIG_WIDTH, &rig->vocabulary,
                                   &rig->error),
            0);
  begin(w);
  put(w, "{\"type\":\"object\",\"maxProperties\":5,\"additionalProperties\":{\"type\":\"integer\"},"
         "\"properties\":{\"a\":{},\"b\":{},\"c\":{},\"d\":{},\"e\":{}");
  for (uint32_t i = 5; i < 100; i++) put_number(w, ",\"n%u\":{}", i);
  put(w, "}}");
  ASSERT_EQ_FOR(rig_schema(rig, w->text), 0, "%s", rig->error.message);
  for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
    rig_start(rig);
    cr_assert(rig_feed(rig, places[i], strlen(places[i])), "%s", places[i]);
    cr_assert(rig_fill(rig), "%s", places[i]);
    matcher = rig->matcher;
    for (int32_t id = 256; id < 256 + COMBINED; id++) {
      size_t length;
      const char *text = member_token(NULL, id, &length);
      grammar_matcher_copy(copy, matcher);
      rig->matcher = copy;
      EXPECT_EQ_FOR(rig_allows(rig, id), rig_feed(rig, text, length), "%s%.*s", places[i],
                    (int)length, text);
      allowed += rig_allows(rig, id);
    }
    rig->matcher = matcher;
  }
  EXPECT_GT_FOR(allowed, COMBINED / 8, "of %zu places", sizeof places / sizeof *places);
  free(copy);
  free(w);
  rig_free(rig);
}

enum { TYPES = 60, TYPE_NAMES_MAX = 32 };

/* Types that list the same names, each in an order of its own, so that their sets differ. */
static void write_types(writer_t *w, uint32_t count) {
  begin(w);
  put(w, "{\"anyOf\":[");
  for (uint32_t type = 0; type < TYPES; type++) {
    uint32_t names[TYPE_NAMES_MAX];
    put(w,
        type ? ",{\"type\":\"object\",\"properties\":{" : "{\"type\":\"object\",\"properties\":{");
    for (uint32_t i = 0; i < count; i++) {
      uint32_t other = below(w, i + 1);
      names[i] = names[other];
      names[other] = i;
    }
    for (uint32_t i = 0; i < count; i++) put_number(w, i ? ",\"n%u\":{}" : "\"n%u\":{}", names[i]);
    put(w, "},\"additionalProperties\":false}");
  }
  put(w, "]}");
}

/* The most units of a piece of work on a text of all names. A piece takes one byte, or is the least
 * part of a walk. */
static uint64_t most_units(rig_t *rig, writer_t *w, uint32_t names) {
  uint64_t most = 0, before;
  begin(w);
  for (uint32_t i = 0; i < names; i++) put_number(w, i ? ",\"n%u\":1" : "{\"n%u\":1", i);
  rig_start(rig);
  for (size_t at = 0; at < w->length; at++) {
    int code = GRAMMAR_LATER;
    for (grammar_walk_t walk = {0}; code == GRAMMAR_LATER;) {
      before = rig->scratch->units;
      code = matcher_walk_on(rig->matcher, rig->scratch, true, &walk, 1, rig->row);
      if (rig->scratch->units - before > most) most = rig->scratch->units - before;
    }
    before = rig->scratch->units;
    cr_assert(rig_feed(rig, w->text + at, 1), "byte %zu of %s", at, w->text);
    if (rig->scratch->units - before > most) most = rig->scratch->units - before;
  }
  return most;
}

/* What happens between two bytes is not divided, however many sets come up there. Those of 32 names
 * lie beside the frames, and cost no way that those of 31 names do not. */
Test(names, of_many_types_cost_little) {
  rig_t *rig = rig_new();
  writer_t *w = calloc(1, sizeof *w);
  uint64_t narrowed[2];
  cr_assert_not_null(w);
  for (uint32_t i = 0; i < 2; i++) {
    w->state = 1;
    write_types(w, 31 + i);
    ASSERT_EQ_FOR(rig_schema(rig, w->text), 0, "%s", rig->error.message);
    rig->scratch->narrowed = 0;
    ASSERT_LE_FOR(most_units(rig, w, 31 + i), (uint64_t)GRAMMAR_UNITS_OVER, "%u names", 31 + i);
    narrowed[i] = rig->scratch->narrowed;
  }
  ASSERT_LE(narrowed[1], narrowed[0]);
  free(w);
  rig_free(rig);
}
