/* lexeme.c: the byte automata that a grammar keeps, and those that every JSON grammar needs.
 *
 * Part of a compilation, on its thread. Equal patterns are built once. Bounds on lengths (32
 * digits, 8 bytes of white space) prevent endless output.
 */
#include "engine/base/hex.h"
#include "engine/grammar/automaton/dfa.h"
#include "engine/grammar/automaton/regex.h"

#include <string.h>

#define SPACE "[ \\t\\n\\r]{0,8}"
#define ESCAPE                                                                                     \
  "\\\\[\"\\\\bfnrt]|\\\\u(?:[0-9A-Ca-cEFef][0-9A-Fa-f]{3}|[Dd][0-7][0-9A-Fa-f]{2}|"               \
  "[Dd][89ABab][0-9A-Fa-f]{2}\\\\u[Dd][C-Fc-f][0-9A-Fa-f]{2})"
static const char pattern_string[] = "\"(?:[^\"\\\\\\x00-\\x1F]|\\\\/|" ESCAPE ")*\"";
static const char pattern_python_string[] = "\"(?:[^\"\\\\\\x00-\\x1F]|" ESCAPE ")*\"";
const char pattern_number[] =
    "-?(?:(?:0|[1-9][0-9]{0,15})(?:\\.[0-9]{1,15})?(?:[eE][+-]?[0-9]{1,2})?|[1-9][0-9]{16,31})";
const char pattern_integer[] = "-?(?:0|[1-9][0-9]{0,31})";

typedef struct kept {
  const char *pattern;
  uint32_t count_min, count_max; /* strings */
  uint32_t lexeme;
} kept_t;

uint32_t lexeme_add(compile_t *compile, const dfa_t *raw) {
  const dfa_t *dfa = dfa_restrict(compile, raw);
  if (dfa_is_empty(dfa)) return NONE;
  compile->dfa_states += dfa->num_states;
  if (compile->dfa_states > compile->limits->dfa_states_max) {
    compile_fail(compile, ERR_BAD_REQUEST,
                 "The patterns, names and values of the constraint take more than %u automaton "
                 "states.",
                 compile->limits->dfa_states_max);
  }
  dfa_t *keep = compile_keep(compile, 1, sizeof *keep);
  size_t cells = (size_t)dfa->num_states * dfa->num_classes;
  *keep = *dfa;
  keep->next = compile_keep(compile, cells, sizeof *keep->next);
  memcpy(keep->next, dfa->next, cells * sizeof *keep->next);
  keep->flags = compile_keep(compile, dfa->num_states, 1);
  memcpy(keep->flags, dfa->flags, dfa->num_states);
  if (dfa->rest != NULL) {
    keep->rest = compile_keep(compile, dfa->num_states, sizeof *keep->rest);
    memcpy(keep->rest, dfa->rest, dfa->num_states * sizeof *keep->rest);
  }
  for (uint32_t i = 1; dfa->rest != NULL && i < dfa->num_states; i++) {
    if (dfa->rest[i] > keep->rest_max) keep->rest_max = dfa->rest[i];
    bool between = dfa->flags[i] & DFA_COUNT;
    if (between && dfa->rest[i] > keep->rest_between) keep->rest_between = dfa->rest[i];
  }
  dfa_mark(compile, keep);
  *(dfa_t **)list_add(compile, &compile->dfas, sizeof(dfa_t *)) = keep;
  return compile->dfas.count - 1;
}

dfa_t *lexeme_dfa(compile_t *compile, const char *pattern) {
  regex_options_t options = {.json = false, .search = false, .what = "built-in pattern"};
  return regex_dfa(compile, pattern, strlen(pattern), &options);
}

const uint32_t *lexeme_kept(compile_t *compile, const char *pattern, uint32_t min, uint32_t max) {
  const kept_t *kept = compile->kept.items;
  for (uint32_t i = 0; i < compile->kept.count; i++) {
    if (kept[i].count_min == min && kept[i].count_max == max &&
        strcmp(kept[i].pattern, pattern) == 0) {
      return &kept[i].lexeme;
    }
  }
  return NULL;
}

uint32_t lexeme_keep(compile_t *compile, const char *pattern, uint32_t min, uint32_t max,
                     uint32_t lexeme) {
  *(kept_t *)list_add(compile, &compile->kept, sizeof(kept_t)) =
      (kept_t){pattern, min, max, lexeme};
  return lexeme;
}

uint32_t lexeme_pattern(compile_t *compile, const char *pattern) {
  const uint32_t *old = lexeme_kept(compile, pattern, 0, NONE);
  if (old != NULL) return *old;
  return lexeme_keep(compile, pattern, 0, NONE, lexeme_add(compile, lexeme_dfa(compile, pattern)));
}

uint32_t lexeme_text(compile_t *compile, const char *text, uint32_t length) {
  return lexeme_add(compile, dfa_texts(compile, &(dfa_text_t){text, length}, 1));
}

uint32_t lexeme_any(compile_t *compile) {
  dfa_t any = {.num_states = 2, .num_classes = 1};
  uint32_t next[] = {DFA_DEAD, DFA_START};
  uint8_t flags[] = {0, DFA_ACCEPT};
  any.next = next;
  any.flags = flags;
  return lexeme_add(compile, &any);
}

/* ---- strings with a length ---- */

/* The state after the opening quote must not count a character, but the same state after a
 * character must. So the automaton gets a copy of that state. */
dfa_t *dfa_split_first(compile_t *compile, const dfa_t *string) {
  dfa_t *out = compile_scratch(compile, 1, sizeof *out);
  uint32_t first = dfa_next(string, DFA_START, '"'), extra = string->num_states,
           k = string->num_classes;
  *out = *string;
  out->num_states = extra + 1;
  out->next = compile_scratch(compile, (size_t)out->num_states * k, sizeof *out->next);
  out->flags = compile_scratch(compile, out->num_states, 1);
  out->rest = compile_scratch(compile, out->num_states, sizeof *out->rest);
  memcpy(out->next, string->next, (size_t)extra * k * sizeof *out->next);
  memcpy(out->flags, string->flags, extra);
  memcpy(out->next + (size_t)extra * k, string->next + (size_t)first * k, k * sizeof *out->next);
  out->next[(size_t)DFA_START * k + string->class_of['"']] = extra;
  return out;
}

void dfa_count(compile_t *compile, dfa_t *dfa, uint32_t min, uint32_t max) {
  if (dfa->rest == NULL) dfa->rest = compile_scratch(compile, dfa->num_states, sizeof *dfa->rest);
  for (uint32_t i = 0; i < dfa->num_states; i++)
    dfa->rest[i] = dfa->flags[i] & DFA_ACCEPT ? 0 : NONE;
  for (bool changed = true; changed;) {
    changed = false;
    compile_spend(compile, dfa->num_states);
    for (uint32_t i = dfa->num_states - 1; i >= 1; i--) {
      for (uint32_t k = 0; k < dfa->num_classes; k++) {
        uint32_t to = dfa->next[(size_t)i * dfa->num_classes + k];
        if (to == DFA_DEAD || dfa->rest[to] == NONE) continue;
        uint32_t rest = dfa->rest[to] + ((dfa->flags[to] & DFA_COUNT) != 0);
        if (rest >= dfa->rest[i]) continue;
        dfa->rest[i] = rest;
        changed = true;
      }
    }
  }
  dfa->count_min = min;
  dfa->count_max = max;
}

/* In a JSON string every state that allows the closing quote is between two characters. */
static dfa_t *count_characters(compile_t *compile, const dfa_t *string, uint32_t min,
                               uint32_t max) {
  dfa_t *dfa = dfa_split_first(compile, string);
  for (uint32_t i = 2; i < dfa->num_states - 1; i++) {
    uint32_t to = dfa_next(dfa, i, '"');
    if (to != DFA_DEAD && (dfa->flags[to] & DFA_ACCEPT)) dfa->flags[i] |= DFA_COUNT;
  }
  dfa_count(compile, dfa, min, max);
  return dfa;
}

dfa_text_t canonical_text(compile_t *compile, const char *text, uint32_t length) {
  static const char named[] = "btn?fr";
  char *out = compile_scratch(compile, (size_t)length * 6 + 1, 1);
  uint32_t at = 0;
  for (uint32_t i = 0; i < length; i++) {
    uint8_t ch = (uint8_t)text[i];
    if (ch == '"' || ch == '\\') {
      out[at++] = '\\';
      out[at++] = (char)ch;
    } else if (ch >= '\b' && ch <= '\r' && ch != '\v') {
      out[at++] = '\\';
      out[at++] = named[ch - '\b'];
    } else if (ch < 0x20) {
      out[at++] = '\\', out[at++] = 'u', out[at++] = '0', out[at++] = '0';
      out[at++] = hex_digit(ch >> 4), out[at++] = hex_digit(ch & 15);
    } else {
      out[at++] = (char)ch;
    }
  }
  return (dfa_text_t){out, at};
}

uint32_t lexeme_string(compile_t *compile, uint32_t min, uint32_t max, bool python) {
  const char *pattern = python ? pattern_python_string : pattern_string;
  const uint32_t *old = lexeme_kept(compile, pattern, min, max);
  if (old != NULL) return *old;
  if (min > max) return NONE;
  dfa_t *dfa = dfa_restrict(compile, lexeme_dfa(compile, pattern));
  if (dfa_is_empty(dfa)) return NONE;
  if (min > 0 || max != NONE) dfa = count_characters(compile, dfa, min, max);
  return lexeme_keep(compile, pattern, min, max, lexeme_add(compile, dfa));
}

/* ---- any JSON ---- */

static uint32_t any_array(compile_t *compile, uint32_t next) {
  uint32_t value = json_value_rule(compile);
  uint32_t close = build_lex(compile, lexeme_pattern(compile, SPACE "\\]"), next);
  uint32_t again = build_node(compile, NODE_CALL, value, NODE_ID_RETURN);
  again = build_lex(compile, lexeme_pattern(compile, "," SPACE), again);
  uint32_t more = build_repeat(compile, again, 0, NONE, close);
  uint32_t first = build_node(compile, NODE_CALL, value, more);
  uint32_t empty = build_lex(compile, lexeme_pattern(compile, "\\]"), next);
  return build_lex(compile, lexeme_pattern(compile, "\\[" SPACE),
                   build_alt(compile, (uint32_t[]){first, empty}, 2));
}

/* A key of canonical escapes, so that one name has one spelling. */
static uint32_t free_member(compile_t *compile, uint32_t object) {
  uint32_t value = build_node(compile, NODE_CALL, json_value_rule(compile), NODE_ID_RETURN);
  value = build_lex(compile, lexeme_pattern(compile, ":" SPACE), value);
  return build_extra(compile, object, lexeme_key(compile), value);
}

uint32_t json_object_any(compile_t *compile, uint32_t next) {
  object_draft_t *draft = compile_scratch(compile, 1, sizeof *draft);
  uint32_t object = build_object(compile, draft, next);
  draft->max = NONE;
  draft->extra = free_member(compile, build_at(compile, object)->object);
  return build_lex(compile, lexeme_pattern(compile, "\\{" SPACE), object);
}

uint32_t lexeme_key(compile_t *compile) {
  static const char pattern[] = "key";
  const uint32_t *old = lexeme_kept(compile, pattern, 0, NONE);
  if (old != NULL) return *old;
  return lexeme_keep(compile, pattern, 0, NONE,
                     lexeme_add(compile, dfa_quote(compile, canonical_string(compile))));
}

dfa_t *canonical_string(compile_t *compile) {
  static const char any[] = "[^]*";
  regex_options_t options = {.json = true, .search = false, .what = "built-in pattern"};
  return regex_dfa(compile, any, sizeof any - 1, &options);
}

uint32_t json_value_rule(compile_t *compile) {
  if (compile->value_rule) return compile->value_rule;
  uint32_t rule = compile->value_rule = build_alt(compile, NULL, 0);
  dfa_t *scalar =
      dfa_union(compile, lexeme_dfa(compile, pattern_string), lexeme_dfa(compile, pattern_number));
  scalar = dfa_union(compile, scalar, lexeme_dfa(compile, "true|false|null"));
  uint32_t branches[] = {
      build_lex(compile, lexeme_add(compile, scalar), NODE_ID_RETURN),
      any_array(compile, NODE_ID_RETURN),
      json_object_any(compile, NODE_ID_RETURN),
  };
  build_alt_fill(compile, rule, branches, 3);
  return rule;
}
