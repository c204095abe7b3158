/* lexeme.c: the byte automata that a grammar keeps, and those that every JSON grammar needs.
 *
 * Part of a compilation, on its thread. An equal pattern is built once. Bounds on length (32
 * digits, 8 bytes of white space) keep a model from writing for ever.
 */
#include "engine/grammar/automaton/dfa.h"
#include "engine/grammar/automaton/regex.h"

#include <string.h>

#define SPACE "[ \\t\\n\\r]{0,8}"
#define ESCAPE                                                                                     \
  "\\\\[\"\\\\/bfnrt]|\\\\u(?:[0-9A-Ca-cEFef][0-9A-Fa-f]{3}|[Dd][0-7][0-9A-Fa-f]{2}|"              \
  "[Dd][89ABab][0-9A-Fa-f]{2}\\\\u[Dd][C-Fc-f][0-9A-Fa-f]{2})"
static const char pattern_string[] = "\"(?:[^\"\\\\\\x00-\\x1F]|" ESCAPE ")*\"";
const char pattern_number[] =
    "-?(?:(?:0|[1-9][0-9]{0,15})(?:\\.[0-9]{1,15})?(?:[eE][+-]?[0-9]{1,2})?|[1-9][0-9]{16,31})";
const char pattern_integer[] = "-?(?:0|[1-9][0-9]{0,31})";

typedef struct kept {
  const char *pattern;
  uint32_t count_min, count_max; /* strings */
  uint32_t lexeme;
} kept_t;

uint32_t lexeme_add(compile_t *c, const dfa_t *raw) {
  const dfa_t *d = dfa_restrict(c, raw);
  if (dfa_is_empty(d)) return NONE;
  c->dfa_states += d->num_states;
  if (c->dfa_states > c->limits->dfa_states_max) {
    compile_fail(c, ERR_BAD_REQUEST,
                 "The patterns, names and values of the constraint take more than %u automaton "
                 "states.",
                 c->limits->dfa_states_max);
  }
  dfa_t *keep = compile_keep(c, 1, sizeof *keep);
  size_t cells = (size_t)d->num_states * d->num_classes;
  *keep = *d;
  keep->next = compile_keep(c, cells, sizeof *keep->next);
  memcpy(keep->next, d->next, cells * sizeof *keep->next);
  keep->flags = compile_keep(c, d->num_states, 1);
  memcpy(keep->flags, d->flags, d->num_states);
  if (d->rest != NULL) {
    keep->rest = compile_keep(c, d->num_states, sizeof *keep->rest);
    memcpy(keep->rest, d->rest, d->num_states * sizeof *keep->rest);
  }
  for (uint32_t i = 1; d->rest != NULL && i < d->num_states; i++) {
    if (d->rest[i] > keep->rest_max) keep->rest_max = d->rest[i];
    bool between = d->flags[i] & DFA_COUNT;
    if (between && d->rest[i] > keep->rest_between) keep->rest_between = d->rest[i];
  }
  dfa_mark(c, keep);
  *(dfa_t **)list_add(c, &c->dfas, sizeof(dfa_t *)) = keep;
  return c->dfas.count - 1;
}

dfa_t *lexeme_dfa(compile_t *c, const char *pattern) {
  regex_options_t options = {.json = false, .search = false, .what = "built-in pattern"};
  return regex_dfa(c, pattern, strlen(pattern), &options);
}

const uint32_t *lexeme_kept(compile_t *c, const char *pattern, uint32_t min, uint32_t max) {
  const kept_t *kept = c->kept.items;
  for (uint32_t i = 0; i < c->kept.count; i++) {
    if (kept[i].count_min == min && kept[i].count_max == max &&
        strcmp(kept[i].pattern, pattern) == 0) {
      return &kept[i].lexeme;
    }
  }
  return NULL;
}

uint32_t lexeme_keep(compile_t *c, const char *pattern, uint32_t min, uint32_t max,
                     uint32_t lexeme) {
  *(kept_t *)list_add(c, &c->kept, sizeof(kept_t)) = (kept_t){pattern, min, max, lexeme};
  return lexeme;
}

uint32_t lexeme_pattern(compile_t *c, const char *pattern) {
  const uint32_t *old = lexeme_kept(c, pattern, 0, NONE);
  if (old != NULL) return *old;
  return lexeme_keep(c, pattern, 0, NONE, lexeme_add(c, lexeme_dfa(c, pattern)));
}

uint32_t lexeme_text(compile_t *c, const char *text, uint32_t length) {
  return lexeme_add(c, dfa_texts(c, &(text_t){text, length}, 1));
}

uint32_t lexeme_any(compile_t *c) {
  dfa_t any = {.num_states = 2, .num_classes = 1};
  uint32_t next[] = {DFA_DEAD, DFA_START};
  uint8_t flags[] = {0, DFA_ACCEPT};
  any.next = next;
  any.flags = flags;
  return lexeme_add(c, &any);
}

/* ---- strings with a length ---- */

/* The state after the opening quote counts nothing, the same state after a character does: a copy
 * of it, 2 states and 1 row more, tells them apart. */
dfa_t *dfa_split_first(compile_t *c, const dfa_t *d) {
  dfa_t *out = compile_scratch(c, 1, sizeof *out);
  uint32_t first = dfa_next(d, DFA_START, '"'), extra = d->num_states, k = d->num_classes;
  *out = *d;
  out->num_states = extra + 1;
  out->next = compile_scratch(c, (size_t)out->num_states * k, sizeof *out->next);
  out->flags = compile_scratch(c, out->num_states, 1);
  out->rest = compile_scratch(c, out->num_states, sizeof *out->rest);
  memcpy(out->next, d->next, (size_t)extra * k * sizeof *out->next);
  memcpy(out->flags, d->flags, extra);
  memcpy(out->next + (size_t)extra * k, d->next + (size_t)first * k, k * sizeof *out->next);
  out->next[(size_t)DFA_START * k + d->class_of['"']] = extra;
  return out;
}

void dfa_count(compile_t *c, dfa_t *d, uint32_t min, uint32_t max) {
  if (d->rest == NULL) d->rest = compile_scratch(c, d->num_states, sizeof *d->rest);
  for (uint32_t i = 0; i < d->num_states; i++) d->rest[i] = d->flags[i] & DFA_ACCEPT ? 0 : NONE;
  for (bool changed = true; changed;) {
    changed = false;
    compile_spend(c, d->num_states);
    for (uint32_t i = d->num_states - 1; i >= 1; i--) {
      for (uint32_t k = 0; k < d->num_classes; k++) {
        uint32_t to = d->next[(size_t)i * d->num_classes + k];
        if (to == DFA_DEAD || d->rest[to] == NONE) continue;
        uint32_t rest = d->rest[to] + ((d->flags[to] & DFA_COUNT) != 0);
        if (rest >= d->rest[i]) continue;
        d->rest[i] = rest;
        changed = true;
      }
    }
  }
  d->count_min = min;
  d->count_max = max;
}

/* Every state of a string with all escapes from which the closing quote may come lies between two
 * characters. */
static dfa_t *count_characters(compile_t *c, const dfa_t *string, uint32_t min, uint32_t max) {
  dfa_t *d = dfa_split_first(c, string);
  for (uint32_t i = 2; i < d->num_states - 1; i++) {
    uint32_t to = dfa_next(d, i, '"');
    if (to != DFA_DEAD && (d->flags[to] & DFA_ACCEPT)) d->flags[i] |= DFA_COUNT;
  }
  dfa_count(c, d, min, max);
  return d;
}

text_t canonical_text(compile_t *c, const char *text, uint32_t length) {
  static const char hex[] = "0123456789abcdef", named[] = "btn?fr";
  char *out = compile_scratch(c, (size_t)length * 6 + 1, 1);
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
      out[at++] = hex[ch >> 4], out[at++] = hex[ch & 15];
    } else {
      out[at++] = (char)ch;
    }
  }
  return (text_t){out, at};
}

uint32_t lexeme_string(compile_t *c, uint32_t min, uint32_t max) {
  const uint32_t *old = lexeme_kept(c, pattern_string, min, max);
  if (old != NULL) return *old;
  if (min > max) return NONE;
  dfa_t *d = dfa_restrict(c, lexeme_dfa(c, pattern_string));
  if (dfa_is_empty(d)) return NONE;
  if (min > 0 || max != NONE) d = count_characters(c, d, min, max);
  return lexeme_keep(c, pattern_string, min, max, lexeme_add(c, d));
}

/* ---- any JSON ---- */

static uint32_t any_array(compile_t *c, uint32_t next) {
  uint32_t value = json_value_rule(c);
  uint32_t close = build_lex(c, lexeme_pattern(c, SPACE "\\]"), next);
  uint32_t again = build_node(c, NODE_CALL, value, NODE_ID_RETURN);
  again = build_lex(c, lexeme_pattern(c, "," SPACE), again);
  uint32_t more = build_repeat(c, again, 0, NONE, close);
  uint32_t first = build_node(c, NODE_CALL, value, more);
  uint32_t empty = build_lex(c, lexeme_text(c, "]", 1), next);
  return build_lex(c, lexeme_pattern(c, "\\[" SPACE), build_alt(c, (uint32_t[]){first, empty}, 2));
}

/* A key of canonical escapes, so that one name has one spelling. */
static uint32_t free_member(compile_t *c, uint32_t object) {
  uint32_t value = build_node(c, NODE_CALL, json_value_rule(c), NODE_ID_RETURN);
  value = build_lex(c, lexeme_pattern(c, ":" SPACE), value);
  return build_extra(c, object, lexeme_key(c), value);
}

uint32_t json_object_any(compile_t *c, uint32_t next) {
  object_draft_t *draft = compile_scratch(c, 1, sizeof *draft);
  uint32_t object = build_object(c, draft, next);
  draft->max = NONE;
  draft->extra = free_member(c, build_at(c, object)->a);
  return build_lex(c, lexeme_pattern(c, "\\{" SPACE), object);
}

uint32_t lexeme_key(compile_t *c) {
  static const char pattern[] = "key";
  const uint32_t *old = lexeme_kept(c, pattern, 0, NONE);
  if (old != NULL) return *old;
  return lexeme_keep(c, pattern, 0, NONE, lexeme_add(c, dfa_quote(c, canonical_string(c))));
}

dfa_t *canonical_string(compile_t *c) {
  regex_options_t options = {.json = true, .search = false, .what = "built-in pattern"};
  return regex_dfa(c, "[^]*", 4, &options);
}

uint32_t json_value_rule(compile_t *c) {
  if (c->value_rule) return c->value_rule;
  uint32_t rule = c->value_rule = build_alt(c, NULL, 0);
  dfa_t *scalar = dfa_union(c, lexeme_dfa(c, pattern_string), lexeme_dfa(c, pattern_number));
  scalar = dfa_union(c, scalar, lexeme_dfa(c, "true|false|null"));
  uint32_t branches[] = {
      build_lex(c, lexeme_add(c, scalar), NODE_ID_RETURN),
      any_array(c, NODE_ID_RETURN),
      json_object_any(c, NODE_ID_RETURN),
  };
  build_alt_fill(c, rule, branches, 3);
  return rule;
}
