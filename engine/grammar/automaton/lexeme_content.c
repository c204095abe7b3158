/* lexeme_content.c: strings whose text is restricted by a pattern, a format, a list or a length; as
 * JSON, and as text between tags or marks.
 *
 * Part of a compilation, on its thread. A length is a counter beside the automaton.
 */
#include "engine/base/json_schema.h"
#include "engine/base/util.h"
#include "engine/grammar/automaton/dfa.h"

#include <stdio.h>
#include <string.h>

/* Returns the position inside a character: 0 = between two characters; 1..3 = continuation bytes to
 * come; in a canonical string 4 = after a backslash, 5..8 = hexadecimal digits to come. */
static uint8_t inside_next(uint8_t inside, uint8_t byte, bool json) {
  if (inside >= 5) return inside == 5 ? 0 : inside - 1;
  if (inside == 4) return byte == 'u' ? 8 : 0;
  if (inside >= 1) return inside - 1;
  return json && byte == '\\' ? 4 : byte >= 0xF0 ? 3 : byte >= 0xE0 ? 2 : byte >= 0xC0 ? 1 : 0;
}

/* At least `min` characters: state = automaton's, how far inside, characters so far. */
typedef struct least {
  const dfa_t *dfa;
  uint32_t min;
  bool json;
} least_t;

static uint64_t least_step(void *context, uint64_t state, uint8_t byte) {
  const least_t *least = context;
  uint32_t to = dfa_next(least->dfa, (uint32_t)state, byte);
  uint8_t inside = inside_next((uint8_t)(state >> 32 & 0xFF), byte, least->json);
  uint64_t count = state >> 40;
  if (to == DFA_DEAD) return 0;
  if (inside == 0 && count < least->min) count++;
  return count << 40 | (uint64_t)inside << 32 | to;
}

static bool least_accepts(void *context, uint64_t state) {
  const least_t *least = context;
  return state >> 40 >= least->min && (least->dfa->flags[(uint32_t)state] & DFA_ACCEPT);
}

static dfa_t *at_least(compile_t *compile, const dfa_t *content, uint32_t min, bool json) {
  least_t least = {content, min, json};
  uint8_t class_of[256], kinds[256];
  for (int b = 0; b < 256; b++) {
    kinds[b] = b >= 0xC0   ? (uint8_t)(inside_next(0, (uint8_t)b, json) + 2)
               : b == '\\' ? 1
                           : b == 'u';
    if (b == 'u') kinds[b] = 6;
  }
  dfa_join_classes(content->class_of, kinds, class_of);
  automaton_t automaton = {&least, DFA_START, least_step, least_accepts, class_of};
  return dfa_explore(compile, &automaton);
}

/* Marks the states between two characters. It walks the automaton from `first`, where the
 * characters begin, together with inside_next. In JSON the characters end at a quote. */
static void mark_boundaries(compile_t *compile, dfa_t *dfa, uint32_t first, bool json) {
  uint16_t *seen = compile_scratch(compile, dfa->num_states, sizeof *seen); /* bit = inside */
  grammar_list_t queue = {0};
  seen[first] = 1;
  *(uint64_t *)list_add(compile, &queue, sizeof(uint64_t)) = first;
  for (uint32_t at = 0; at < queue.count; at++) {
    uint64_t entry = ((const uint64_t *)queue.items)[at];
    uint8_t inside = (uint8_t)(entry >> 32);
    compile_spend(compile, 16);
    for (int b = 0; b < 256; b++) {
      uint32_t to = dfa_next(dfa, (uint32_t)entry, (uint8_t)b);
      uint8_t then = inside_next(inside, (uint8_t)b, json);
      if (to == DFA_DEAD || (json && b == '"' && inside == 0)) continue;
      if (then == 0) dfa->flags[to] |= DFA_COUNT;
      if (seen[to] >> then & 1) continue;
      seen[to] |= (uint16_t)(1u << then);
      *(uint64_t *)list_add(compile, &queue, sizeof(uint64_t)) = (uint64_t)then << 32 | to;
    }
  }
}

static void check_min(compile_t *compile, uint32_t min) {
  if (min <= compile->limits->regex_nodes_max) return;
  compile_fail(compile, ERR_BAD_REQUEST, "minLength beside a pattern or format is at most %u.",
               compile->limits->regex_nodes_max);
}

uint32_t lexeme_content(compile_t *compile, const dfa_t *raw, uint32_t min, uint32_t max) {
  const dfa_t *content = dfa_restrict(compile, raw);
  if (min > max) return NONE;
  check_min(compile, min);
  if (min > 0 && !dfa_is_empty(content)) content = at_least(compile, content, min, true);
  if (dfa_is_empty(content)) return NONE;
  dfa_t *dfa = dfa_restrict(compile, dfa_quote(compile, content));
  if (max == NONE || dfa_is_empty(dfa)) return lexeme_add(compile, dfa);
  dfa = dfa_split_first(compile, dfa);
  mark_boundaries(compile, dfa, dfa_next(dfa, DFA_START, '"'), true);
  dfa_count(compile, dfa, 0, max);
  return dfa->rest[DFA_START] > max ? NONE : lexeme_add(compile, dfa);
}

/* ---- text between tags or marks ---- */

#define BLANKS "[ \\t\\n\\r]*"
#define NUMBER "-?(?:0|[1-9][0-9]*)(?:\\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"

/* Texts that the parser of tags (server/parser/tag_call.c) takes for a value of another type. */
static const struct {
  uint32_t types;
  const char *pattern;
} readings[] = {
    {TYPE_NULL, BLANKS "(?:[nN][uU][lL][lL]|[nN][oO][nN][eE])" BLANKS},
    {TYPE_BOOLEAN, BLANKS "(?:[tT][rR][uU][eE]|[fF][aA][lL][sS][eE])" BLANKS},
    {TYPE_NUMBER, BLANKS NUMBER BLANKS},
    {TYPE_ARRAY, BLANKS "\\[[^]*"},
    {TYPE_OBJECT, BLANKS "\\{[^]*"},
};

/* Writes a pattern of texts that have a word anywhere or, `at_line`, where a line begins. */
static void pattern_of(char *out, size_t size, const char *word, bool at_line) {
  size_t length = (size_t)snprintf(out, size, at_line ? "(?:[^]*\\n)?" : "[^]*");
  for (; *word != '\0' && length + 8 < size; word++) {
    if (strchr("^$\\.*+?()[]{}|/", *word) != NULL) out[length++] = '\\';
    out[length++] = *word;
  }
  snprintf(out + length, size - length, "[^]*");
}

static const dfa_t *take_out(compile_t *compile, const dfa_t *text, const char *pattern) {
  return dfa_product(compile, text, lexeme_dfa(compile, pattern), true);
}

static const dfa_t *take_out_word(compile_t *compile, const dfa_t *text, const char *word,
                                  bool at_line) {
  char pattern[256];
  pattern_of(pattern, sizeof pattern, word, at_line);
  return take_out(compile, text, pattern);
}

/* Takes out what ends a value. A value begins after a line break, or as if after one. One line
 * break on each side of a value is no part of it. */
static const dfa_t *between_tags(compile_t *compile, const dfa_t *text, uint32_t kind) {
  const tag_words_t *words = compile->tags;
  text = take_out_word(compile, text, words->end_value, false);
  text = take_out_word(compile, text, words->begin_key, true);
  text = take_out_word(compile, text, words->end_call, true);
  if (kind != TEXT_RAW && words->around_value[0] == '\0' && words->mark == NULL)
    text = take_out(compile, text, "\\n[^]*|[^]*\\n");
  for (size_t i = 0; i < ARRAY_LEN(readings) && kind != TEXT_RAW; i++) {
    if (kind & readings[i].types) text = take_out(compile, text, readings[i].pattern);
  }
  return text;
}

static const dfa_t *outside_text(compile_t *compile, uint32_t kind) {
  if (compile->texts[kind] != NULL) return compile->texts[kind];
  const dfa_t *text = lexeme_dfa(compile, "[^]*");
  if (kind == TEXT_MARKED) {
    text = take_out_word(compile, text, compile->string_mark, false);
  } else {
    text = between_tags(compile, text, kind);
  }
  return compile->texts[kind] = text;
}

/* Text without further rules can always continue, so its length is counted exactly. */
static uint32_t count_outside(compile_t *compile, uint32_t kind, uint32_t min, uint32_t max) {
  char name[32];
  size_t length = (size_t)snprintf(name, sizeof name, "outside %u", kind) + 1;
  const uint32_t *old = lexeme_kept(compile, name, min, max);
  if (old != NULL) return *old;
  char *key = compile_scratch(compile, length, 1);
  memcpy(key, name, length);
  dfa_t *dfa = dfa_restrict(compile, outside_text(compile, kind));
  if (min > 0 || max != NONE) {
    if (dfa_is_empty(dfa)) return NONE;
    mark_boundaries(compile, dfa, DFA_START, false);
    dfa_count(compile, dfa, min, max);
  }
  return lexeme_keep(compile, key, min, max, lexeme_add(compile, dfa));
}

uint32_t lexeme_outside(compile_t *compile, const dfa_t *content, uint32_t kind, uint32_t min,
                        uint32_t max) {
  if (min > max) return NONE;
  if (content == NULL) return count_outside(compile, kind, min, max);
  check_min(compile, min);
  dfa_t *dfa =
      dfa_restrict(compile, dfa_product(compile, outside_text(compile, kind), content, false));
  if (min > 0 && !dfa_is_empty(dfa)) dfa = at_least(compile, dfa, min, false);
  if (max == NONE || dfa_is_empty(dfa)) return lexeme_add(compile, dfa);
  mark_boundaries(compile, dfa, DFA_START, false);
  dfa_count(compile, dfa, 0, max);
  return dfa->rest[DFA_START] > max ? NONE : lexeme_add(compile, dfa);
}
