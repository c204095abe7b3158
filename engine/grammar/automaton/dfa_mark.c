/* dfa_mark.c: counts how many characters of a family, whichever they are, a state accepts.
 *
 * Part of a compilation, on its thread. Masks allow whole parts of the vocabulary at once
 * where these counts permit it (vocabulary.h). If some next character of the family leads to the
 * dead state, the count is 0. Otherwise it is one more than the least count of the following
 * states. The greatest solution is found by iteration from above.
 */
#include "engine/base/util.h"
#include "engine/grammar/automaton/dfa.h"

#include <string.h>

/* Well-formed UTF-8 of more than one byte: ranges of each position; Unicode table 3-7. */
typedef struct utf8_form {
  uint8_t length;
  uint8_t low[4], high[4];
} utf8_form_t;

static const utf8_form_t forms[] = {
    {2, {0xC2, 0x80}, {0xDF, 0xBF}},
    {3, {0xE0, 0xA0, 0x80}, {0xE0, 0xBF, 0xBF}},
    {3, {0xE1, 0x80, 0x80}, {0xEC, 0xBF, 0xBF}},
    {3, {0xED, 0x80, 0x80}, {0xED, 0x9F, 0xBF}},
    {3, {0xEE, 0x80, 0x80}, {0xEF, 0xBF, 0xBF}},
    {4, {0xF0, 0x90, 0x80, 0x80}, {0xF0, 0xBF, 0xBF, 0xBF}},
    {4, {0xF1, 0x80, 0x80, 0x80}, {0xF3, 0xBF, 0xBF, 0xBF}},
    {4, {0xF4, 0x80, 0x80, 0x80}, {0xF4, 0x8F, 0xBF, 0xBF}},
};
enum { NUM_FORMS = ARRAY_LEN(forms), TARGETS_MAX = 64 };

/* A set of byte classes, as a list. */
typedef struct classes {
  uint32_t count;
  uint8_t items[256];
} classes_t;

typedef struct dfa_marker {
  compile_t *compile;
  dfa_t *dfa;
  classes_t bytes[FAMILY_COUNT]; /* characters of one byte */
  classes_t spans[NUM_FORMS][4];
} dfa_marker_t;

static void add_range(const dfa_t *dfa, classes_t *list, unsigned low, unsigned high) {
  for (unsigned b = low; b <= high; b++) {
    uint8_t k = dfa->class_of[b];
    if (memchr(list->items, k, list->count) == NULL) list->items[list->count++] = k;
  }
}

static void find_classes(dfa_marker_t *marker) {
  static const struct {
    uint8_t family, low, high;
  } ranges[] = {
      {FAMILY_LOWER, 'a', 'z'},   {FAMILY_ALPHA, 'A', 'Z'},   {FAMILY_ASCII, 0x20, 0x21},
      {FAMILY_ASCII, 0x23, 0x40}, {FAMILY_ASCII, 0x5B, 0x5B}, {FAMILY_ASCII, 0x5D, 0x60},
      {FAMILY_ASCII, 0x7B, 0x7E}, {FAMILY_PLAIN, 0x7F, 0x7F}, {FAMILY_ANY, 0, 0xFF},
  };
  for (size_t i = 0; i < ARRAY_LEN(ranges); i++) {
    for (int family = ranges[i].family; family < FAMILY_COUNT; family++) {
      add_range(marker->dfa, &marker->bytes[family], ranges[i].low, ranges[i].high);
    }
  }
  for (int f = 0; f < NUM_FORMS; f++) {
    for (uint8_t at = 0; at < forms[f].length; at++) {
      add_range(marker->dfa, &marker->spans[f][at], forms[f].low[at], forms[f].high[at]);
    }
  }
}

/* Returns the count of a state that a character leads to, plus that character; 0 = the character is
 * not allowed. In a counted automaton every character must count one and the text must be able to
 * continue, so that masks know how many more characters fit. */
static uint32_t through(const dfa_t *dfa, uint32_t to, int family) {
  uint8_t needed = DFA_LIVE | DFA_COUNT;
  if (to == DFA_DEAD || (dfa->rest != NULL && (dfa->flags[to] & needed) != needed)) return 0;
  uint32_t steps = dfa->steps[(size_t)to * FAMILY_COUNT + (size_t)family];
  return steps < STEPS_FOREVER ? steps + 1 : STEPS_FOREVER;
}

typedef struct targets {
  uint32_t states[TARGETS_MAX];
  uint32_t count;
} targets_t;

static bool add_target(targets_t *targets, uint32_t state) {
  for (uint32_t i = 0; i < targets->count; i++) {
    if (targets->states[i] == state) return true;
  }
  if (targets->count == TARGETS_MAX) return false;
  targets->states[targets->count++] = state;
  return true;
}

/* Target i of the states that `now` reaches by the bytes of one place of a form; there are
 * now->count * span->count of them, and some may be equal. */
static uint32_t target_of(const dfa_t *dfa, const targets_t *now, const classes_t *span,
                          uint32_t i) {
  uint32_t from = now->states[i / span->count];
  return dfa->next[(size_t)from * dfa->num_classes + span->items[i % span->count]];
}

/* Sets *now to the states that the characters of one form reach before their last byte. Returns
 * false if a character is refused there, or if there are too many states. */
static bool reach_last_byte(const dfa_marker_t *marker, uint32_t state, int form, targets_t *now) {
  *now = (targets_t){{state}, 1};
  for (uint8_t at = 0; at + 1 < forms[form].length; at++) {
    const classes_t *span = &marker->spans[form][at];
    targets_t then = {.count = 0};
    for (uint32_t i = 0; i < now->count * span->count; i++) {
      uint32_t to = target_of(marker->dfa, now, span, i);
      if (to == DFA_DEAD || !add_target(&then, to)) return false;
    }
    *now = then;
  }
  return true;
}

/* The same as `through` for all characters of one form; 0 if they lead to too many states. */
static uint32_t steps_of_form(const dfa_marker_t *marker, uint32_t state, int form) {
  const classes_t *span = &marker->spans[form][forms[form].length - 1];
  targets_t now;
  uint32_t least = STEPS_FOREVER;
  if (!reach_last_byte(marker, state, form, &now)) return 0;
  for (uint32_t i = 0; i < now.count * span->count; i++) {
    uint32_t steps = through(marker->dfa, target_of(marker->dfa, &now, span, i), FAMILY_PLAIN);
    if (steps < least) least = steps;
  }
  return least;
}

static uint32_t steps_of(const dfa_marker_t *marker, uint32_t state, int family) {
  const dfa_t *dfa = marker->dfa;
  const classes_t *bytes = &marker->bytes[family];
  uint32_t least = STEPS_FOREVER;
  for (uint32_t i = 0; i < bytes->count && least > 0; i++) {
    uint32_t to = dfa->next[(size_t)state * dfa->num_classes + bytes->items[i]];
    uint32_t steps = through(dfa, to, family);
    if (steps < least) least = steps;
  }
  for (int f = 0; f < NUM_FORMS && family == FAMILY_PLAIN && least > 0; f++) {
    uint32_t steps = steps_of_form(marker, state, f);
    if (steps < least) least = steps;
  }
  return least;
}

/* Starts from the counts of the next smaller family. */
static void mark_family(dfa_marker_t *marker, int family) {
  dfa_t *dfa = marker->dfa;
  for (bool changed = true; changed;) {
    changed = false;
    compile_spend(marker->compile, dfa->num_states);
    /* Backwards, because most states depend on later ones. */
    for (uint32_t i = dfa->num_states - 1; i >= 1; i--) {
      uint8_t *steps = &dfa->steps[(size_t)i * FAMILY_COUNT + (size_t)family];
      if (*steps == 0) continue;
      uint32_t least = steps_of(marker, i, family);
      if (least >= *steps) continue;
      *steps = (uint8_t)least;
      changed = true;
    }
  }
}

/* Whether all characters of one form lead back to `state`, for DFA_LOOP, or to states that have
 * DFA_LOOP, for DFA_WIDE. In a counted automaton each of them must count one. */
static bool form_leads(const dfa_marker_t *marker, uint32_t state, int form, uint8_t flag) {
  const dfa_t *dfa = marker->dfa;
  const classes_t *span = &marker->spans[form][forms[form].length - 1];
  uint8_t needed = dfa->rest != NULL ? DFA_LIVE | DFA_COUNT : 0;
  targets_t now;
  if (!reach_last_byte(marker, state, form, &now)) return false;
  for (uint32_t i = 0; i < now.count * span->count; i++) {
    uint32_t to = target_of(dfa, &now, span, i);
    if (to == DFA_DEAD || (dfa->flags[to] & needed) != needed) return false;
    if (flag == DFA_LOOP ? to != state : !(dfa->flags[to] & DFA_LOOP)) return false;
  }
  return true;
}

static void mark_wide(dfa_marker_t *marker, uint8_t flag) {
  dfa_t *dfa = marker->dfa;
  compile_spend(marker->compile, dfa->num_states);
  for (uint32_t i = 1; i < dfa->num_states; i++) {
    int form = 0;
    while (form < NUM_FORMS && form_leads(marker, i, form, flag)) form++;
    if (form == NUM_FORMS) dfa->flags[i] |= flag;
  }
}

/* Whether each letter of the family leads to a state that is exact with one step less, or each to
 * the dead one. */
static bool letters_are_exact(const dfa_marker_t *marker, uint32_t state, int family,
                              uint8_t flag) {
  const dfa_t *dfa = marker->dfa;
  const classes_t *letters = &marker->bytes[family];
  uint32_t steps = dfa->steps[(size_t)state * FAMILY_COUNT + (size_t)family];
  for (uint32_t i = 0; i < letters->count; i++) {
    uint32_t to = dfa->next[(size_t)state * dfa->num_classes + letters->items[i]];
    if (steps == 0 && to == DFA_DEAD) continue;
    if (steps == 0 || !(dfa->flags[to] & flag) || dfa->flags[to] & DFA_ACCEPT) return false;
    if (dfa->steps[(size_t)to * FAMILY_COUNT + (size_t)family] != steps - 1) return false;
  }
  return true;
}

/* A counted automaton says by its counter how many characters it takes. */
static void mark_exact(dfa_marker_t *marker, int family, uint8_t flag) {
  dfa_t *dfa = marker->dfa;
  for (bool changed = dfa->rest == NULL; changed;) {
    changed = false;
    compile_spend(marker->compile, dfa->num_states);
    for (uint32_t i = dfa->num_states - 1; i >= 1; i--) {
      if (dfa->flags[i] & flag || dfa->steps[(size_t)i * FAMILY_COUNT] == STEPS_FOREVER) continue;
      if (!letters_are_exact(marker, i, family, flag)) continue;
      dfa->flags[i] |= flag;
      changed = true;
    }
  }
}

void dfa_mark(compile_t *compile, dfa_t *dfa) {
  if (dfa_is_empty(dfa)) return;
  for (uint32_t i = 1; i < dfa->num_states; i++) {
    for (uint32_t k = 0; k < dfa->num_classes; k++) {
      if (dfa->next[(size_t)i * dfa->num_classes + k] != DFA_DEAD) dfa->flags[i] |= DFA_LIVE;
    }
  }
  dfa_marker_t *marker = compile_scratch(compile, 1, sizeof *marker);
  marker->compile = compile;
  marker->dfa = dfa;
  dfa->steps = compile_keep(compile, dfa->num_states, FAMILY_COUNT);
  find_classes(marker);
  for (uint32_t i = 1; i < dfa->num_states; i++)
    dfa->steps[(size_t)i * FAMILY_COUNT] = STEPS_FOREVER;
  for (int family = 0; family < FAMILY_COUNT; family++) {
    mark_family(marker, family);
    for (uint32_t i = 1; i < dfa->num_states && family + 1 < FAMILY_COUNT; i++) {
      uint8_t *steps = &dfa->steps[(size_t)i * FAMILY_COUNT + (size_t)family];
      steps[1] = steps[0];
    }
  }
  mark_wide(marker, DFA_LOOP);
  mark_wide(marker, DFA_WIDE);
  mark_exact(marker, FAMILY_LOWER, DFA_EXACT_LOWER);
  mark_exact(marker, FAMILY_ALPHA, DFA_EXACT_ALPHA);
}
