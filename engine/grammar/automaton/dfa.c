/* dfa.c: byte automata: writing them out, combining them, marking what the masks want to know.
 *
 * Part of a compilation, on its thread. An automaton is explored once, state by state, and then
 * trimmed to what can reach acceptance, so that generation never runs into a dead end.
 */
#include "engine/grammar/automaton/dfa.h"

#include <string.h>

enum { EXPLORE_FACTOR = 4 }; /* states before trimming, per state that may remain */

/* ---- exploring ---- */

typedef struct explorer {
  compile_t *c;
  const automaton_t *automaton;
  list_t states; /* uint64_t by number; [0] is the dead one */
  list_t next;   /* uint32_t, num_classes for each state */
  uint32_t *table, table_size;
  uint32_t num_classes;
  uint8_t sample[256]; /* a byte of each class */
} explorer_t;

static uint32_t hash_state(uint64_t state) {
  state *= UINT64_C(0x9E3779B97F4A7C15);
  return (uint32_t)(state >> 32) ^ (uint32_t)state;
}

static void grow_table(explorer_t *e) {
  uint32_t size = e->table_size ? 2 * e->table_size : 256;
  const uint64_t *states = e->states.items;
  e->table = compile_scratch(e->c, size, sizeof *e->table);
  e->table_size = size;
  for (uint32_t i = 1; i < e->states.count; i++) {
    uint32_t slot = hash_state(states[i]) & (size - 1);
    while (e->table[slot]) slot = (slot + 1) & (size - 1);
    e->table[slot] = i;
  }
}

static uint32_t number_of(explorer_t *e, uint64_t state) {
  if (state == 0) return DFA_DEAD;
  if (2 * e->states.count >= e->table_size) grow_table(e);
  uint32_t slot = hash_state(state) & (e->table_size - 1);
  for (; e->table[slot]; slot = (slot + 1) & (e->table_size - 1)) {
    if (((const uint64_t *)e->states.items)[e->table[slot]] == state) return e->table[slot];
  }
  if (e->states.count > EXPLORE_FACTOR * e->c->limits->dfa_states_max) {
    compile_fail(e->c, ERR_BAD_REQUEST,
                 "A pattern of the constraint takes more than %u automaton states.",
                 EXPLORE_FACTOR * e->c->limits->dfa_states_max);
  }
  e->table[slot] = e->states.count;
  *(uint64_t *)list_add(e->c, &e->states, sizeof(uint64_t)) = state;
  return e->states.count - 1;
}

static void explore_all(explorer_t *e) {
  const automaton_t *a = e->automaton;
  *(uint64_t *)list_add(e->c, &e->states, sizeof(uint64_t)) = 0;
  number_of(e, a->start);
  for (uint32_t k = 0; k < e->num_classes; k++) list_add(e->c, &e->next, sizeof(uint32_t));
  for (uint32_t i = 1; i < e->states.count; i++) {
    uint64_t state = ((const uint64_t *)e->states.items)[i];
    compile_spend(e->c, e->num_classes);
    for (uint32_t k = 0; k < e->num_classes; k++) {
      uint32_t to = number_of(e, a->step(a->context, state, e->sample[k]));
      *(uint32_t *)list_add(e->c, &e->next, sizeof(uint32_t)) = to;
    }
  }
}

/* ---- trimming ---- */

/* live[i] = state i reaches acceptance. Iterates backwards over the edges, sorted by target. */
static uint8_t *find_live(compile_t *c, const dfa_t *d) {
  size_t edges = (size_t)d->num_states * d->num_classes;
  uint32_t *first = compile_scratch(c, (size_t)d->num_states + 2, sizeof *first);
  uint32_t *from = compile_scratch(c, edges + 1, sizeof *from);
  uint32_t *queue = compile_scratch(c, (size_t)d->num_states + 1, sizeof *queue), count = 0;
  uint8_t *live = compile_scratch(c, d->num_states, 1);
  for (size_t i = 0; i < edges; i++) first[d->next[i] + 2]++;
  for (uint32_t i = 2; i < d->num_states + 2; i++) first[i] += first[i - 1];
  for (size_t i = 0; i < edges; i++) {
    from[first[d->next[i] + 1]++] = (uint32_t)(i / d->num_classes);
  }
  for (uint32_t i = 1; i < d->num_states; i++) {
    if (!(d->flags[i] & DFA_ACCEPT)) continue;
    live[i] = 1;
    queue[count++] = i;
  }
  for (uint32_t at = 0; at < count; at++) {
    for (uint32_t k = first[queue[at]]; k < first[queue[at] + 1]; k++) {
      uint32_t s = from[k];
      if (s == DFA_DEAD || live[s]) continue;
      live[s] = 1;
      queue[count++] = s;
    }
  }
  return live;
}

/* The automaton without states that cannot be reached or cannot reach acceptance. */
static dfa_t *trim(compile_t *c, const dfa_t *d) {
  uint8_t *live = find_live(c, d);
  uint32_t *number = compile_scratch(c, d->num_states, sizeof *number);
  uint32_t *order = compile_scratch(c, (size_t)d->num_states + 1, sizeof *order), count = 1;
  if (live[DFA_START]) {
    number[DFA_START] = count;
    order[count++] = DFA_START;
  }
  for (uint32_t i = 1; i < count; i++) {
    for (uint32_t k = 0; k < d->num_classes; k++) {
      uint32_t to = d->next[(size_t)order[i] * d->num_classes + k];
      if (!live[to] || number[to]) continue;
      number[to] = count;
      order[count++] = to;
    }
  }
  dfa_t *out = compile_scratch(c, 1, sizeof *out);
  *out = *d;
  out->num_states = count;
  out->next = compile_scratch(c, (size_t)count * d->num_classes, sizeof *out->next);
  out->flags = compile_scratch(c, count, 1);
  out->rest = d->rest != NULL ? compile_scratch(c, count, sizeof *out->rest) : NULL;
  for (uint32_t i = 1; i < count; i++) {
    out->flags[i] = d->flags[order[i]];
    if (d->rest != NULL) out->rest[i] = d->rest[order[i]];
    for (uint32_t k = 0; k < d->num_classes; k++) {
      uint32_t to = d->next[(size_t)order[i] * d->num_classes + k];
      out->next[(size_t)i * d->num_classes + k] = live[to] ? number[to] : DFA_DEAD;
    }
  }
  return out;
}

dfa_t *dfa_explore(compile_t *c, const automaton_t *automaton) {
  explorer_t e = {.c = c, .automaton = automaton};
  dfa_t d = {0};
  for (int b = 255; b >= 0; b--) {
    uint8_t k = automaton->class_of[b];
    d.class_of[b] = k;
    e.sample[k] = (uint8_t)b;
    if (k >= e.num_classes) e.num_classes = k + 1u;
  }
  explore_all(&e);
  d.num_states = e.states.count;
  d.num_classes = e.num_classes;
  d.next = e.next.items;
  d.flags = compile_scratch(c, d.num_states, 1);
  const uint64_t *states = e.states.items;
  for (uint32_t i = 1; i < d.num_states; i++) {
    if (automaton->accepts(automaton->context, states[i])) d.flags[i] = DFA_ACCEPT;
  }
  if (d.num_states < 2) return compile_scratch(c, 1, sizeof d); /* dead from the start */
  return trim(c, &d);
}

/* ---- combining ---- */

void dfa_join_classes(const uint8_t a[256], const uint8_t b[256], uint8_t out[256]) {
  uint16_t seen[256];
  uint32_t count = 0;
  for (int i = 0; i < 256; i++) {
    uint16_t pair = (uint16_t)(a[i] << 8 | b[i]);
    uint32_t k = 0;
    while (k < count && seen[k] != pair) k++;
    if (k == count) seen[count++] = pair;
    out[i] = (uint8_t)k;
  }
}

typedef enum combination { BOTH, FIRST_ONLY, EITHER } combination_t;

typedef struct pair {
  const dfa_t *a, *b;
  combination_t combination;
} pair_t;

/* Bit 63 keeps a pair of two dead halves apart from the dead state. */
static uint64_t pack_pair(const pair_t *p, uint32_t a, uint32_t b) {
  bool dead = p->combination == EITHER ? !a && !b : !a || (p->combination == BOTH && !b);
  return dead ? 0 : UINT64_C(1) << 63 | (uint64_t)a << 31 | b;
}

static uint64_t pair_step(const void *context, uint64_t state, uint8_t byte) {
  const pair_t *p = context;
  uint32_t a = (uint32_t)(state >> 31), b = (uint32_t)(state & INT32_MAX);
  return pack_pair(p, a ? dfa_next(p->a, a, byte) : 0, b ? dfa_next(p->b, b, byte) : 0);
}

static bool pair_accepts(const void *context, uint64_t state) {
  const pair_t *p = context;
  bool a = p->a->flags[(uint32_t)(state >> 31)] & DFA_ACCEPT;
  bool b = p->b->flags[state & INT32_MAX] & DFA_ACCEPT;
  return p->combination == BOTH ? a && b : p->combination == EITHER ? a || b : a && !b;
}

static dfa_t *combine(compile_t *c, const dfa_t *a, const dfa_t *b, combination_t combination) {
  uint8_t class_of[256];
  pair_t p = {a, b, combination};
  dfa_join_classes(a->class_of, b->class_of, class_of);
  automaton_t automaton = {&p, pack_pair(&p, DFA_START, DFA_START), pair_step, pair_accepts,
                           class_of};
  return dfa_explore(c, &automaton);
}

dfa_t *dfa_product(compile_t *c, const dfa_t *a, const dfa_t *b, bool negate) {
  if (dfa_is_empty(a)) return compile_scratch(c, 1, sizeof *a);
  if (dfa_is_empty(b)) return negate ? trim(c, a) : compile_scratch(c, 1, sizeof *b);
  return combine(c, a, b, negate ? FIRST_ONLY : BOTH);
}

dfa_t *dfa_union(compile_t *c, const dfa_t *a, const dfa_t *b) {
  if (dfa_is_empty(a)) return trim(c, b);
  if (dfa_is_empty(b)) return trim(c, a);
  return combine(c, a, b, EITHER);
}

/* A copy in which every state is one higher and 1 is a new start; FINAL, the last, accepts. */
dfa_t *dfa_quote(compile_t *c, const dfa_t *a) {
  if (dfa_is_empty(a)) return compile_scratch(c, 1, sizeof *a);
  uint8_t quote[256] = {['"'] = 1};
  dfa_t *d = compile_scratch(c, 1, sizeof *d);
  dfa_join_classes(a->class_of, quote, d->class_of);
  uint8_t sample[256];
  for (int b = 255; b >= 0; b--) {
    sample[d->class_of[b]] = (uint8_t)b;
    if (d->class_of[b] >= d->num_classes) d->num_classes = d->class_of[b] + 1u;
  }
  uint32_t final = a->num_states + 1;
  d->num_states = final + 1;
  d->next = compile_scratch(c, (size_t)d->num_states * d->num_classes, sizeof *d->next);
  d->flags = compile_scratch(c, d->num_states, 1);
  d->flags[final] = DFA_ACCEPT;
  for (uint32_t k = 0; k < d->num_classes; k++) {
    if (sample[k] == '"') d->next[d->num_classes + k] = DFA_START + 1;
    for (uint32_t i = 1; i < a->num_states; i++) {
      uint32_t to = dfa_next(a, i, sample[k]);
      uint32_t moved = to ? to + 1 : DFA_DEAD;
      /* A quote after a backslash belongs to the inside; any other closes. */
      if (sample[k] == '"' && !to && (a->flags[i] & DFA_ACCEPT)) moved = final;
      d->next[(size_t)(i + 1) * d->num_classes + k] = moved;
    }
  }
  return d;
}

/* ---- fixed texts ---- */

dfa_t *dfa_texts(compile_t *c, const text_t *texts, uint32_t count) {
  dfa_t d = {.num_states = 2};
  bool used[256] = {false};
  size_t states_max = 2;
  for (uint32_t i = 0; i < count; i++) {
    states_max += texts[i].length;
    for (uint32_t k = 0; k < texts[i].length; k++) used[(uint8_t)texts[i].bytes[k]] = true;
  }
  if (states_max > (size_t)EXPLORE_FACTOR * c->limits->dfa_states_max) {
    compile_fail(c, ERR_BAD_REQUEST, "The texts of the constraint have %zu bytes; at most %u fit.",
                 states_max, EXPLORE_FACTOR * c->limits->dfa_states_max);
  }
  d.num_classes = 1; /* class 0: bytes that occur in no text */
  for (int b = 0; b < 256; b++) {
    if (used[b]) d.class_of[b] = (uint8_t)(d.num_classes++ & 0xFF);
  }
  if (d.num_classes > 256) compile_fail(c, ERR_BAD_REQUEST, "The texts use every byte there is.");
  d.next = compile_scratch(c, states_max * d.num_classes, sizeof *d.next);
  d.flags = compile_scratch(c, states_max, 1);
  for (uint32_t i = 0; i < count; i++) {
    uint32_t at = DFA_START;
    compile_spend(c, texts[i].length);
    for (uint32_t k = 0; k < texts[i].length; k++) {
      uint8_t class_of = d.class_of[(uint8_t)texts[i].bytes[k]];
      uint32_t *next = &d.next[(size_t)at * d.num_classes + class_of];
      if (*next == DFA_DEAD) *next = d.num_states++;
      at = *next;
    }
    d.flags[at] |= DFA_ACCEPT;
  }
  return trim(c, &d);
}

bool dfa_matches(const dfa_t *d, const char *bytes, size_t length) {
  uint32_t state = d->num_states > DFA_START ? DFA_START : DFA_DEAD;
  for (size_t i = 0; i < length && state != DFA_DEAD; i++) {
    state = dfa_next(d, state, (uint8_t)bytes[i]);
  }
  return state != DFA_DEAD && (d->flags[state] & DFA_ACCEPT);
}

dfa_t *dfa_restrict(compile_t *c, const dfa_t *d) {
  uint8_t missing[256], joined[256];
  for (int b = 0; b < 256; b++) missing[b] = !c->vocabulary->has_byte[b];
  if (dfa_is_empty(d)) return compile_scratch(c, 1, sizeof *d);
  dfa_join_classes(d->class_of, missing, joined);
  dfa_t wide = *d;
  wide.num_classes = 0;
  for (int b = 0; b < 256; b++) {
    wide.class_of[b] = joined[b];
    if (joined[b] >= wide.num_classes) wide.num_classes = joined[b] + 1u;
  }
  wide.next = compile_scratch(c, (size_t)d->num_states * wide.num_classes, sizeof *wide.next);
  for (uint32_t i = 1; i < d->num_states; i++) {
    for (int b = 0; b < 256; b++) {
      if (missing[b]) continue;
      wide.next[(size_t)i * wide.num_classes + joined[b]] = dfa_next(d, i, (uint8_t)b);
    }
  }
  return trim(c, &wide);
}
