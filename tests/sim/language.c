/* language.c: see language.h. Plain sets of ways to read a text; allocates in language_load only.
 */
#include "tests/sim/language.h"

#include "engine/base/random.h"
#include "tests/sim/sim.h"

#include <stdio.h>
#include <string.h>

enum { WORDS = 3, PICKED_MAX = 12, KEPT_MASKS = 4096 };

typedef struct language {
  const char *words[WORDS];
  uint32_t min, max; /* words in a text */
} language_t;

/* Some are tokens of tests/fixtures/tiny, some are parts of others. */
static const char *const all_words[] = {"a",  "b",     "ab",  "abc", "ba",  "cab",  "cat", "at",
                                        "he", "hello", "the", "ten", "one", "nine", "day", "c"};

static grammar_t *grammars[SIM_LANGUAGES];

static language_t language_of(int index) {
  uint64_t draw = random_mix((uint64_t)index + 1);
  language_t l = {.min = 1 + (uint32_t)(draw >> 32) % 4};
  l.max = l.min + (uint32_t)(draw >> 40) % PICKED_MAX;
  for (int i = 0; i < WORDS; i++) l.words[i] = all_words[(draw >> (8 * i)) % 16];
  return l;
}

void language_begin(language_state_t *s, int index) {
  *s = (language_state_t){.index = index, .reach = {1}};
}

static uint64_t counts(uint32_t low, uint32_t high) { /* bits low .. high */
  return (UINT64_MAX >> (63 - high)) & (UINT64_MAX << low);
}

/* Whether the last `count` bytes are the first ones of `word`. */
static bool begins(const language_state_t *s, const char *word, size_t count) {
  return memcmp(s->tail + LANGUAGE_WORD_MAX - count, word, count) == 0;
}

static void add_byte(language_state_t *s, char byte) {
  language_t l = language_of(s->index);
  memmove(s->tail, s->tail + 1, LANGUAGE_WORD_MAX - 1);
  s->tail[LANGUAGE_WORD_MAX - 1] = byte;
  memmove(s->reach + 1, s->reach, LANGUAGE_WORD_MAX * sizeof *s->reach);
  s->reach[0] = 0;
  for (int i = 0; i < WORDS; i++) {
    size_t length = strlen(l.words[i]);
    if (begins(s, l.words[i], length)) s->reach[0] |= s->reach[length] << 1 & counts(1, l.max);
  }
}

/* Whether the text can be made one of the language: it ends a word, or stands within one. */
static bool is_alive(const language_state_t *s) {
  language_t l = language_of(s->index);
  if (s->reach[0]) return true;
  for (int i = 0; i < WORDS; i++) {
    size_t length = strlen(l.words[i]);
    for (size_t d = 1; d < length; d++) {
      if ((s->reach[d] & counts(0, l.max - 1)) && begins(s, l.words[i], d)) return true;
    }
  }
  return false;
}

/* next[b]: byte b may follow. */
static bool list_next(const language_state_t *s, bool next[256]) {
  language_t l = language_of(s->index);
  bool any = false;
  memset(next, 0, 256 * sizeof *next);
  for (int i = 0; i < WORDS; i++) {
    size_t length = strlen(l.words[i]);
    for (size_t d = 0; d < length; d++) {
      if (!(s->reach[d] & counts(0, l.max - 1)) || !begins(s, l.words[i], d)) continue;
      next[(uint8_t)l.words[i][d]] = any = true;
    }
  }
  return any;
}

void language_add(language_state_t *s, const tokenizer_t *tokenizer, int32_t id) {
  size_t length;
  const char *bytes = tokenizer_bytes(tokenizer, id, &length);
  for (size_t i = 0; i < length; i++) add_byte(s, bytes[i]);
}

bool language_may_end(const language_state_t *s) {
  language_t l = language_of(s->index);
  return (s->reach[0] & counts(l.min, l.max)) != 0;
}

bool language_is_finished(const language_state_t *s) {
  bool next[256];
  return s->index >= 0 && language_may_end(s) && !list_next(s, next);
}

static void make_mask(const language_state_t *s, const tokenizer_t *tokenizer, uint32_t *mask) {
  bool next[256];
  list_next(s, next);
  memset(mask, 0, LANGUAGE_MASK_WORDS * sizeof *mask);
  int32_t count = tokenizer_vocab_size(tokenizer);
  for (int32_t id = 0; id < count; id++) {
    size_t length;
    const char *bytes = tokenizer_bytes(tokenizer, id, &length);
    if (length == 0 || !next[(uint8_t)bytes[0]]) continue;
    if (tokenizer_flags(tokenizer, id) & (TOKEN_SPECIAL | TOKEN_ADDED)) continue;
    language_state_t after = *s;
    bool alive = true;
    for (size_t i = 0; i < length && alive; i++) {
      add_byte(&after, bytes[i]);
      alive = is_alive(&after);
    }
    if (alive) mask[id / 32] |= UINT32_C(1) << id % 32;
  }
}

/* The masks that were made last are kept: the same states come again and again. */
void language_mask(const language_state_t *s, const tokenizer_t *tokenizer, uint32_t *mask) {
  static struct {
    bool is_made;
    language_state_t state;
    uint32_t mask[LANGUAGE_MASK_WORDS];
  } kept[KEPT_MASKS];
  uint64_t bits = (uint64_t)s->index;
  for (int i = 0; i < LANGUAGE_WORD_MAX; i++) {
    bits = random_mix(bits * 256 + (uint8_t)s->tail[i]);
    bits ^= s->reach[i] * RANDOM_GAMMA;
  }
  size_t at = random_mix(bits ^ s->reach[LANGUAGE_WORD_MAX]) % KEPT_MASKS;
  bool same = kept[at].is_made && kept[at].state.index == s->index &&
              memcmp(kept[at].state.tail, s->tail, sizeof s->tail) == 0 &&
              memcmp(kept[at].state.reach, s->reach, sizeof s->reach) == 0;
  if (!same) {
    make_mask(s, tokenizer, kept[at].mask);
    kept[at].state = *s;
    kept[at].is_made = true;
  }
  memcpy(mask, kept[at].mask, sizeof kept[at].mask);
}

const char *language_regex(int index) {
  static char text[64];
  language_t l = language_of(index);
  snprintf(text, sizeof text, "(?:%s|%s|%s){%u,%u}", l.words[0], l.words[1], l.words[2], l.min,
           l.max);
  return text;
}

void language_load(const grammar_vocabulary_t *vocabulary) {
  for (int i = 0; i < SIM_LANGUAGES && !grammars[i]; i++) {
    inferd_error_t error;
    grammar_source_t source = {.kind = GRAMMAR_REGEX, .text = language_regex(i)};
    source.length = strlen(source.text);
    int code = grammar_compile(&source, vocabulary, NULL, NULL, &grammars[i], &error);
    REQUIRE(code == 0, "language %d: %s", i, error.message);
  }
}

grammar_t *language_grammar(int index) {
  return grammar_ref(grammars[index]);
}
