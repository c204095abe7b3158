/* test_masks.c: masks that are kept are those that a walk would make, at every byte of random texts
 * whose next token depends on lengths, counts and members further down the stack. Fresh seeds.
 */
#include "engine/base/clock.h"
#include "engine/grammar/mask/masks.h"
#include "tests/engine/grammar/rig.h"
#include "tests/expect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXTS = 60, TEXT_MAX = 4096, WORDS = (RIG_WIDTH + 31) / 32 };

/* Lists of 2 to 3 lists of 1 to 2 words of 3 to 40 characters. */
static const char lists[] =
    "{\"type\":\"array\",\"minItems\":2,\"maxItems\":3,\"items\":{\"type\":\"array\",\"minItems\":"
    "1,"
    "\"maxItems\":2,\"items\":{\"type\":\"string\",\"minLength\":3,\"maxLength\":40}}}";
/* Objects of 1 to 2 members, free names, each a list of at most 2 equal words. */
static const char objects[] =
    "{\"type\":\"object\",\"additionalProperties\":{\"type\":\"array\",\"minItems\":1,\"maxItems\":"
    "2,"
    "\"items\":{\"enum\":[\"the\"]}},\"minProperties\":1,\"maxProperties\":2}";
/* One rule from several places. */
static const char recursive[] =
    "{\"$ref\":\"#/$defs/"
    "n\",\"$defs\":{\"n\":{\"type\":\"array\",\"maxItems\":2,\"items\":{\"anyOf\":"
    "[{\"$ref\":\"#/$defs/n\"},{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#/$defs/"
    "n\"}},"
    "\"additionalProperties\":false}]}}}}";

/* Objects of so many names that their sets are kept aside; "k0" must come. */
enum { NAMES = 40, NAMES_TEXT = 2048 };

static const char *named(void) {
  static char out[NAMES_TEXT];
  size_t used =
      (size_t)snprintf(out, sizeof out, "{\"type\":[\"object\",\"null\"],\"properties\":{");
  for (int i = 0; i < NAMES; i++) {
    used += (size_t)snprintf(out + used, sizeof out - used, "%s\"k%d\":{\"$ref\":\"#\"}",
                             i ? "," : "", i);
  }
  snprintf(out + used, sizeof out - used,
           "},\"required\":[\"k0\"],\"additionalProperties\":{\"type\":\"null\"}}");
  return out;
}

typedef struct writer {
  uint64_t state;
  char text[TEXT_MAX];
  size_t length;
} writer_t;

static uint32_t below(writer_t *w, uint32_t bound) {
  return (uint32_t)(rig_random(&w->state) % bound);
}

static void put(writer_t *w, const char *text) {
  w->length += (size_t)snprintf(w->text + w->length, TEXT_MAX - w->length, "%s", text);
}

static void put_word(writer_t *w, uint32_t min, uint32_t max) {
  char word[64] = "\"";
  uint32_t length = below(w, 4) ? min + below(w, max - min + 1) : max;
  for (uint32_t i = 1; i <= length; i++) word[i] = "abcdefgh ijklm"[below(w, 14)];
  word[length + 1] = '"';
  put(w, word);
}

static void write_lists(writer_t *w) {
  uint32_t count = 2 + below(w, 2);
  put(w, "[");
  for (uint32_t i = 0; i < count; i++) {
    uint32_t inner = 1 + below(w, 2);
    put(w, i ? ",[" : "[");
    for (uint32_t k = 0; k < inner; k++) {
      if (k) put(w, ", ");
      put_word(w, 3, 40);
    }
    put(w, "]");
  }
  put(w, "]");
}

static void write_objects(writer_t *w) {
  uint32_t count = 1 + below(w, 2);
  put(w, "{");
  for (uint32_t i = 0; i < count; i++) {
    if (i) put(w, ", ");
    put_word(w, 1, 8);
    put(w, below(w, 2) ? ":[\"the\"]" : ": [\"the\",\"the\"]");
  }
  put(w, "}");
}

static void write_recursive(writer_t *w, int depth) {
  uint32_t count = below(w, 3);
  put(w, "[");
  for (uint32_t i = 0; i < count && depth < 6; i++) {
    if (i) put(w, ",");
    if (below(w, 2)) {
      write_recursive(w, depth + 1);
    } else if (below(w, 2)) {
      put(w, "{\"a\":");
      write_recursive(w, depth + 1);
      put(w, "}");
    } else {
      put(w, "{}");
    }
  }
  put(w, "]");
}

static void write_named(writer_t *w, int depth) {
  uint32_t count = below(w, 4), at = below(w, count + 1), step = 1 + below(w, 9);
  if (depth == 3 || below(w, 4) == 0) {
    put(w, "null");
    return;
  }
  for (uint32_t i = 0; i <= count; i++) {
    char key[32];
    uint32_t extra = i > at && below(w, 4) == 0, number = i == at ? 0 : 1 + i * step % (NAMES - 1);
    snprintf(key, sizeof key, "%s\"%s%u\":", i ? ", " : "{", extra ? "x" : "k", number);
    put(w, key);
    if (extra) {
      put(w, "null");
    } else {
      write_named(w, depth + 1);
    }
  }
  put(w, "}");
}

/* The kept masks of two caches, a tiny one and one that forgets nothing, against a walk. */
static void check_place(rig_t *rig, grammar_masks_t *const *masks, const writer_t *w, size_t at,
                        uint64_t *hits) {
  int32_t stop = RIG_STOP;
  uint32_t full[WORDS];
  matcher_walk(rig->matcher, rig->scratch, false, full);
  ASSERT_EQ(matcher_finish(rig->matcher, &stop, 1, full), 0);
  for (int i = 0; i < 2; i++) {
    bool hit = false;
    int code = grammar_masks_fill(masks[i], rig->matcher, rig->scratch, &stop, 1, rig->row, &hit);
    ASSERT_EQ(code, 0);
    cr_assert_arr_eq(rig->row, full, sizeof full, "cache %d, hit %d, byte %zu of %s", i, hit, at,
                     w->text);
    hits[i] += hit;
  }
}

static void check_text(rig_t *rig, grammar_masks_t *const *masks, const writer_t *w,
                       uint64_t *hits) {
  rig_start(rig);
  for (size_t at = 0; at <= w->length; at++) {
    check_place(rig, masks, w, at, hits);
    if (at < w->length) cr_assert(rig_feed(rig, w->text + at, 1), "byte %zu of %s", at, w->text);
  }
  cr_assert(grammar_matcher_is_accepting(rig->matcher), "%s", w->text);
}

Test(masks, are_kept_for_equal_places_only) {
  rig_t *rig = rig_new();
  grammar_masks_t *masks[2];
  writer_t *w = calloc(1, sizeof *w);
  uint64_t hits[2] = {0}, places = 0;
  cr_assert_not_null(w);
  w->state = clock_now_ns();
  ASSERT_EQ(grammar_masks_new(rig->vocabulary, 7 * sizeof rig->row, &masks[0], &rig->error), 0);
  ASSERT_EQ(grammar_masks_new(rig->vocabulary, (size_t)8 << 20, &masks[1], &rig->error), 0);
  const char *schemas[] = {lists, objects, recursive, named()};
  for (int kind = 0; kind < 4; kind++) {
    ASSERT_EQ_FOR(rig_schema(rig, schemas[kind]), 0, "%s", rig->error.message);
    for (int i = 0; i < TEXTS; i++) {
      w->length = 0;
      w->text[0] = '\0';
      if (kind == 0) write_lists(w);
      if (kind == 1) write_objects(w);
      if (kind == 2) write_recursive(w, 0);
      if (kind == 3) write_named(w, 0);
      check_text(rig, masks, w, hits);
      places += w->length + 1;
    }
  }
  cr_assert(hits[0] > 0 && hits[1] > places / 2, "%llu hits of %llu", (unsigned long long)hits[1],
            (unsigned long long)places);
  for (int i = 0; i < 2; i++) grammar_masks_free(masks[i]);
  free(w);
  rig_free(rig);
}

/* The memory of one grammar may become that of the next. */
Test(masks, of_one_grammar_are_not_those_of_another) {
  rig_t *rig = rig_new();
  grammar_masks_t *masks;
  ASSERT_EQ(grammar_masks_new(rig->vocabulary, 1 << 20, &masks, &rig->error), 0);
  for (int i = 0; i < 50; i++) {
    char pattern[] = "[a-z]", first = (char)('a' + i % 20);
    int32_t stop = RIG_STOP;
    bool hit;
    pattern[1] = first;
    ASSERT_EQ(rig_text(rig, GRAMMAR_REGEX, pattern), 0);
    rig_start(rig);
    ASSERT_EQ(grammar_masks_fill(masks, rig->matcher, rig->scratch, &stop, 1, rig->row, &hit), 0);
    cr_assert_not(hit);
    cr_assert(rig_allows(rig, first));
    cr_assert(!rig_allows(rig, first - 1));
  }
  grammar_masks_free(masks);
  rig_free(rig);
}
