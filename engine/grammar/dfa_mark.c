/* dfa_mark.c: which states of an automaton allow whole slices of the vocabulary.
 *
 * Part of a compilation, on its thread. A state is PLAIN when every sequence of plain characters
 * (vocabulary.h) keeps the automaton alive, ANY when every sequence of bytes does: the greatest set
 * of states that is closed under these steps.
 */
#include "engine/grammar/dfa.h"

/* Ranges of well-formed UTF-8: bytes of each position; Unicode table 3-7. */
typedef struct utf8_form {
  uint8_t length;
  uint8_t low[4], high[4];
} utf8_form_t;

static const utf8_form_t forms[] = {
    {1, {0x20}, {0x21}}, /* plain: no control byte, quote or backslash */
    {1, {0x23}, {0x5B}},
    {1, {0x5D}, {0x7F}},
    {2, {0xC2, 0x80}, {0xDF, 0xBF}},
    {3, {0xE0, 0xA0, 0x80}, {0xE0, 0xBF, 0xBF}},
    {3, {0xE1, 0x80, 0x80}, {0xEC, 0xBF, 0xBF}},
    {3, {0xED, 0x80, 0x80}, {0xED, 0x9F, 0xBF}},
    {3, {0xEE, 0x80, 0x80}, {0xEF, 0xBF, 0xBF}},
    {4, {0xF0, 0x90, 0x80, 0x80}, {0xF0, 0xBF, 0xBF, 0xBF}},
    {4, {0xF1, 0x80, 0x80, 0x80}, {0xF3, 0xBF, 0xBF, 0xBF}},
    {4, {0xF4, 0x80, 0x80, 0x80}, {0xF4, 0x8F, 0xBF, 0xBF}},
};
enum { NUM_FORMS = sizeof forms / sizeof *forms, TARGETS_MAX = 64 };

typedef struct targets {
  uint32_t states[TARGETS_MAX];
  uint32_t count;
} targets_t;

static bool add_target(targets_t *t, uint32_t state) {
  for (uint32_t i = 0; i < t->count; i++) {
    if (t->states[i] == state) return true;
  }
  if (t->count == TARGETS_MAX) return false;
  t->states[t->count++] = state;
  return true;
}

/* Every text of one form leads from `state` to a state with `flag`. Too many targets: no. */
static bool form_stays(const dfa_t *d, uint32_t state, const utf8_form_t *form, uint8_t flag) {
  targets_t now = {{state}, 1};
  for (uint8_t at = 0; at < form->length; at++) {
    targets_t then = {.count = 0};
    for (uint32_t i = 0; i < now.count; i++) {
      int last_class = -1;
      for (unsigned b = form->low[at]; b <= form->high[at]; b++) {
        if (d->class_of[b] == last_class) continue;
        last_class = d->class_of[b];
        uint32_t to = dfa_next(d, now.states[i], (uint8_t)b);
        bool last = at + 1 == form->length;
        if (to == DFA_DEAD || (last && !(d->flags[to] & flag))) return false;
        if (!last && !add_target(&then, to)) return false;
      }
    }
    now = then;
  }
  return true;
}

static bool plain_stays(const dfa_t *d, uint32_t state) {
  for (int f = 0; f < NUM_FORMS; f++) {
    if (!form_stays(d, state, &forms[f], DFA_PLAIN)) return false;
  }
  return true;
}

static bool any_stays(const dfa_t *d, uint32_t state) {
  for (uint32_t k = 0; k < d->num_classes; k++) {
    if (!(d->flags[d->next[(size_t)state * d->num_classes + k]] & DFA_ANY)) return false;
  }
  return true;
}

static void close_flag(compile_t *c, dfa_t *d, uint8_t flag,
                       bool (*stays)(const dfa_t *dfa, uint32_t state)) {
  for (uint32_t i = 1; i < d->num_states; i++) d->flags[i] |= flag;
  for (bool changed = true; changed;) {
    changed = false;
    compile_spend(c, d->num_states);
    /* Backwards: most states fail because of a later one. */
    for (uint32_t i = d->num_states - 1; i >= 1; i--) {
      if (!(d->flags[i] & flag) || stays(d, i)) continue;
      d->flags[i] &= (uint8_t)~flag;
      changed = true;
    }
  }
}

void dfa_mark(compile_t *c, dfa_t *d) {
  if (dfa_is_empty(d)) return;
  close_flag(c, d, DFA_PLAIN, plain_stays);
  close_flag(c, d, DFA_ANY, any_stays);
  for (uint32_t i = 1; i < d->num_states; i++) {
    for (uint32_t k = 0; k < d->num_classes; k++) {
      if (d->next[(size_t)i * d->num_classes + k] != DFA_DEAD) d->flags[i] |= DFA_LIVE;
    }
  }
}
