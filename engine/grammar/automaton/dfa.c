/* dfa.c: byte automata: writing them out, combining them, marking what the masks want to know.
 *
 * Part of a compilation, on its thread. An automaton is explored once, state by state, and then
 * trimmed to what can reach acceptance, so that generation never runs into a dead end.
 */
#include "engine/grammar/automaton/dfa.h"

#include "engine/base/util.h"

#include <string.h>

enum { EXPLORE_FACTOR = 4 }; /* states before trimming, per state that may remain */

/* ---- exploring ---- */

typedef struct explorer {
  compile_t *compile;
  const automaton_t *automaton;
  grammar_list_t states; /* uint64_t by number; [0] is the dead one */
  grammar_list_t next;   /* uint32_t, num_classes for each state */
  uint32_t *table, table_size;
  uint32_t num_classes;
  uint8_t sample[256]; /* a byte of each class */
} explorer_t;

static uint32_t hash_state(uint64_t state) {
  state *= UINT64_C(0x9E3779B97F4A7C15);
  return (uint32_t)(state >> 32) ^ (uint32_t)state;
}

static void grow_table(explorer_t *explorer) {
  uint32_t size = explorer->table_size ? 2 * explorer->table_size : 256;
  const uint64_t *states = explorer->states.items;
  explorer->table = compile_scratch(explorer->compile, size, sizeof *explorer->table);
  explorer->table_size = size;
  for (uint32_t i = 1; i < explorer->states.count; i++) {
    uint32_t slot = hash_state(states[i]) & (size - 1);
    while (explorer->table[slot]) slot = (slot + 1) & (size - 1);
    explorer->table[slot] = i;
  }
}

static uint32_t number_of(explorer_t *explorer, uint64_t state) {
  if (state == 0) return DFA_DEAD;
  if (2 * explorer->states.count >= explorer->table_size) grow_table(explorer);
  uint32_t slot = hash_state(state) & (explorer->table_size - 1);
  for (; explorer->table[slot]; slot = (slot + 1) & (explorer->table_size - 1)) {
    if (((const uint64_t *)explorer->states.items)[explorer->table[slot]] == state)
      return explorer->table[slot];
  }
  if (explorer->states.count > EXPLORE_FACTOR * explorer->compile->limits->dfa_states_max) {
    compile_fail(explorer->compile, ERR_BAD_REQUEST,
                 "A pattern of the constraint takes more than %u automaton states.",
                 EXPLORE_FACTOR * explorer->compile->limits->dfa_states_max);
  }
  explorer->table[slot] = explorer->states.count;
  *(uint64_t *)list_add(explorer->compile, &explorer->states, sizeof(uint64_t)) = state;
  return explorer->states.count - 1;
}

/* Returns room for the targets of one more state. */
static uint32_t *add_row(explorer_t *explorer) {
  grammar_list_t *next = &explorer->next;
  uint32_t need = next->count + explorer->num_classes;
  if (need > next->capacity) {
    next->items =
        compile_grow(explorer->compile, next->items, next->count,
                     MAX(need, 16 * explorer->num_classes), sizeof(uint32_t), &next->capacity);
  }
  uint32_t *row = (uint32_t *)next->items + next->count;
  next->count = need;
  return row;
}

static void explore_all(explorer_t *explorer) {
  const automaton_t *automaton = explorer->automaton;
  *(uint64_t *)list_add(explorer->compile, &explorer->states, sizeof(uint64_t)) = 0;
  number_of(explorer, automaton->start);
  memset(add_row(explorer), 0, explorer->num_classes * sizeof(uint32_t));
  for (uint32_t i = 1; i < explorer->states.count; i++) {
    uint64_t state = ((const uint64_t *)explorer->states.items)[i], last = 0;
    uint32_t *row = add_row(explorer), number = DFA_DEAD;
    compile_spend(explorer->compile, explorer->num_classes);
    for (uint32_t k = 0; k < explorer->num_classes; k++) {
      uint64_t to = automaton->step(automaton->context, state, explorer->sample[k]);
      if (to != last) number = number_of(explorer, to);
      row[k] = number;
      last = to;
    }
  }
}

/* ---- trimming ---- */

/* live[i] = state i reaches acceptance. Passes over all states, backwards because most states lead
 * to later ones; returns false if the last pass still found some. */
static bool find_live_fast(const dfa_t *dfa, uint8_t *live) {
  enum { PASSES = 4 };
  bool changed = true;
  for (int pass = 0; pass < PASSES && changed; pass++) {
    changed = false;
    for (uint32_t i = dfa->num_states - 1; i >= 1; i--) {
      const uint32_t *next = dfa->next + (size_t)i * dfa->num_classes;
      if (live[i]) continue;
      bool found = dfa->flags[i] & DFA_ACCEPT;
      for (uint32_t k = 0; k < dfa->num_classes && !found; k++) found = live[next[k]];
      live[i] = found;
      changed = changed || found;
    }
  }
  return !changed;
}

/* The same by the edges, sorted by target: as many steps as there are edges, in any order. */
static void find_live_by_edges(compile_t *compile, const dfa_t *dfa, uint8_t *live) {
  size_t edges = (size_t)dfa->num_states * dfa->num_classes;
  uint32_t *first = compile_scratch(compile, (size_t)dfa->num_states + 2, sizeof *first);
  uint32_t *from = compile_scratch(compile, edges + 1, sizeof *from);
  uint32_t *queue = compile_scratch(compile, (size_t)dfa->num_states + 1, sizeof *queue), count = 0;
  for (size_t i = 0; i < edges; i++) first[dfa->next[i] + 2]++;
  for (uint32_t i = 2; i < dfa->num_states + 2; i++) first[i] += first[i - 1];
  for (size_t i = 0; i < edges; i++) {
    from[first[dfa->next[i] + 1]++] = (uint32_t)(i / dfa->num_classes);
  }
  for (uint32_t i = 1; i < dfa->num_states; i++) {
    if (live[i]) queue[count++] = i;
  }
  for (uint32_t at = 0; at < count; at++) {
    for (uint32_t k = first[queue[at]]; k < first[queue[at] + 1]; k++) {
      uint32_t s = from[k];
      if (s == DFA_DEAD || live[s]) continue;
      live[s] = 1;
      queue[count++] = s;
    }
  }
}

static uint8_t *find_live(compile_t *compile, const dfa_t *dfa) {
  uint8_t *live = compile_scratch(compile, dfa->num_states, 1);
  if (!find_live_fast(dfa, live)) find_live_by_edges(compile, dfa, live);
  return live;
}

/* The automaton without states that cannot be reached or cannot reach acceptance. */
static dfa_t *trim(compile_t *compile, const dfa_t *dfa) {
  if (dfa_is_empty(dfa)) return compile_scratch(compile, 1, sizeof *dfa);
  uint8_t *live = find_live(compile, dfa);
  uint32_t *number = compile_scratch(compile, dfa->num_states, sizeof *number);
  uint32_t *order = compile_scratch(compile, (size_t)dfa->num_states + 1, sizeof *order), count = 1;
  if (live[DFA_START]) {
    number[DFA_START] = count;
    order[count++] = DFA_START;
  }
  for (uint32_t i = 1; i < count; i++) {
    for (uint32_t k = 0; k < dfa->num_classes; k++) {
      uint32_t to = dfa->next[(size_t)order[i] * dfa->num_classes + k];
      if (!live[to] || number[to]) continue;
      number[to] = count;
      order[count++] = to;
    }
  }
  dfa_t *out = compile_scratch(compile, 1, sizeof *out);
  *out = *dfa;
  out->num_states = count;
  out->next = compile_scratch(compile, (size_t)count * dfa->num_classes, sizeof *out->next);
  out->flags = compile_scratch(compile, count, 1);
  out->rest = dfa->rest != NULL ? compile_scratch(compile, count, sizeof *out->rest) : NULL;
  for (uint32_t i = 1; i < count; i++) {
    out->flags[i] = dfa->flags[order[i]];
    if (dfa->rest != NULL) out->rest[i] = dfa->rest[order[i]];
    for (uint32_t k = 0; k < dfa->num_classes; k++) {
      uint32_t to = dfa->next[(size_t)order[i] * dfa->num_classes + k];
      out->next[(size_t)i * dfa->num_classes + k] = live[to] ? number[to] : DFA_DEAD;
    }
  }
  return out;
}

/* What explore_all wrote: its states are reached, in the order that trim gives them. */
static dfa_t *trim_explored(compile_t *compile, const dfa_t *dfa) {
  const uint8_t *live = find_live(compile, dfa);
  if (memchr(live + 1, 0, dfa->num_states - 1) != NULL) return trim(compile, dfa);
  dfa_t *out = compile_scratch(compile, 1, sizeof *out);
  *out = *dfa;
  return out;
}

dfa_t *dfa_explore(compile_t *compile, const automaton_t *automaton) {
  explorer_t explorer = {.compile = compile, .automaton = automaton};
  dfa_t dfa = {0};
  for (int b = 255; b >= 0; b--) {
    uint8_t k = automaton->class_of[b];
    dfa.class_of[b] = k;
    explorer.sample[k] = (uint8_t)b;
    if (k >= explorer.num_classes) explorer.num_classes = k + 1u;
  }
  explore_all(&explorer);
  dfa.num_states = explorer.states.count;
  dfa.num_classes = explorer.num_classes;
  dfa.next = explorer.next.items;
  dfa.flags = compile_scratch(compile, dfa.num_states, 1);
  const uint64_t *states = explorer.states.items;
  for (uint32_t i = 1; i < dfa.num_states; i++) {
    if (automaton->accepts(automaton->context, states[i])) dfa.flags[i] = DFA_ACCEPT;
  }
  if (dfa.num_states < 2) return compile_scratch(compile, 1, sizeof dfa); /* dead from the start */
  return trim_explored(compile, &dfa);
}

/* ---- combining ---- */

void dfa_join_classes(const uint8_t left[256], const uint8_t right[256], uint8_t out[256]) {
  uint16_t seen[256];
  uint32_t count = 0;
  for (int i = 0; i < 256; i++) {
    uint16_t pair = (uint16_t)(left[i] << 8 | right[i]);
    uint32_t k = 0;
    while (k < count && seen[k] != pair) k++;
    if (k == count) seen[count++] = pair;
    out[i] = (uint8_t)k;
  }
}

typedef enum combination { BOTH, FIRST_ONLY, EITHER } combination_t;

typedef struct dfa_pair {
  const dfa_t *left, *right;
  combination_t combination;
} dfa_pair_t;

/* Bit 63 keeps a pair of two dead halves apart from the dead state. */
static uint64_t pack_pair(const dfa_pair_t *pair, uint32_t left, uint32_t right) {
  bool dead = pair->combination == EITHER ? !left && !right
                                          : !left || (pair->combination == BOTH && !right);
  return dead ? 0 : UINT64_C(1) << 63 | (uint64_t)left << 31 | right;
}

static uint64_t pair_step(void *context, uint64_t state, uint8_t byte) {
  const dfa_pair_t *pair = context;
  uint32_t left = (uint32_t)(state >> 31), right = (uint32_t)(state & INT32_MAX);
  return pack_pair(pair, left ? dfa_next(pair->left, left, byte) : 0,
                   right ? dfa_next(pair->right, right, byte) : 0);
}

static bool pair_accepts(void *context, uint64_t state) {
  const dfa_pair_t *pair = context;
  bool left = pair->left->flags[(uint32_t)(state >> 31)] & DFA_ACCEPT;
  bool right = pair->right->flags[state & INT32_MAX] & DFA_ACCEPT;
  return pair->combination == BOTH     ? left && right
         : pair->combination == EITHER ? left || right
                                       : left && !right;
}

static dfa_t *combine(compile_t *compile, const dfa_t *left, const dfa_t *right,
                      combination_t combination) {
  uint8_t class_of[256];
  dfa_pair_t pair = {left, right, combination};
  dfa_join_classes(left->class_of, right->class_of, class_of);
  automaton_t automaton = {&pair, pack_pair(&pair, DFA_START, DFA_START), pair_step, pair_accepts,
                           class_of};
  return dfa_explore(compile, &automaton);
}

dfa_t *dfa_product(compile_t *compile, const dfa_t *left, const dfa_t *right, bool negate) {
  if (dfa_is_empty(left)) return compile_scratch(compile, 1, sizeof *left);
  if (dfa_is_empty(right))
    return negate ? trim(compile, left) : compile_scratch(compile, 1, sizeof *right);
  return combine(compile, left, right, negate ? FIRST_ONLY : BOTH);
}

dfa_t *dfa_union(compile_t *compile, const dfa_t *left, const dfa_t *right) {
  if (dfa_is_empty(left)) return trim(compile, right);
  if (dfa_is_empty(right)) return trim(compile, left);
  return combine(compile, left, right, EITHER);
}

/* A copy in which every state is one higher and 1 is a new start; FINAL, the last, accepts. */
dfa_t *dfa_quote(compile_t *compile, const dfa_t *dfa) {
  if (dfa_is_empty(dfa)) return compile_scratch(compile, 1, sizeof *dfa);
  uint8_t quote[256] = {['"'] = 1};
  dfa_t *quoted = compile_scratch(compile, 1, sizeof *quoted);
  dfa_join_classes(dfa->class_of, quote, quoted->class_of);
  uint8_t sample[256];
  for (int b = 255; b >= 0; b--) {
    sample[quoted->class_of[b]] = (uint8_t)b;
    if (quoted->class_of[b] >= quoted->num_classes) quoted->num_classes = quoted->class_of[b] + 1u;
  }
  uint32_t final = dfa->num_states + 1;
  quoted->num_states = final + 1;
  quoted->next = compile_scratch(compile, (size_t)quoted->num_states * quoted->num_classes,
                                 sizeof *quoted->next);
  quoted->flags = compile_scratch(compile, quoted->num_states, 1);
  quoted->flags[final] = DFA_ACCEPT;
  for (uint32_t k = 0; k < quoted->num_classes; k++) {
    if (sample[k] == '"') quoted->next[quoted->num_classes + k] = DFA_START + 1;
    for (uint32_t i = 1; i < dfa->num_states; i++) {
      uint32_t to = dfa_next(dfa, i, sample[k]);
      uint32_t moved = to ? to + 1 : DFA_DEAD;
      /* A quote after a backslash belongs to the inside; any other closes. */
      if (sample[k] == '"' && !to && (dfa->flags[i] & DFA_ACCEPT)) moved = final;
      quoted->next[(size_t)(i + 1) * quoted->num_classes + k] = moved;
    }
  }
  return quoted;
}

/* ---- fixed texts ---- */

dfa_t *dfa_texts(compile_t *compile, const dfa_text_t *texts, uint32_t count) {
  dfa_t dfa = {.num_states = 2};
  bool used[256] = {false};
  size_t states_max = 2;
  for (uint32_t i = 0; i < count; i++) {
    states_max += texts[i].length;
    for (uint32_t k = 0; k < texts[i].length; k++) used[(uint8_t)texts[i].bytes[k]] = true;
  }
  if (states_max > (size_t)EXPLORE_FACTOR * compile->limits->dfa_states_max) {
    compile_fail(compile, ERR_BAD_REQUEST,
                 "The texts of the constraint have %zu bytes; at most %u fit.", states_max,
                 EXPLORE_FACTOR * compile->limits->dfa_states_max);
  }
  dfa.num_classes = 1; /* class 0: bytes that occur in no text */
  for (int b = 0; b < 256; b++) {
    if (used[b]) dfa.class_of[b] = (uint8_t)(dfa.num_classes++ & 0xFF);
  }
  if (dfa.num_classes > 256)
    compile_fail(compile, ERR_BAD_REQUEST, "The texts use every byte there is.");
  dfa.next = compile_scratch(compile, states_max * dfa.num_classes, sizeof *dfa.next);
  dfa.flags = compile_scratch(compile, states_max, 1);
  for (uint32_t i = 0; i < count; i++) {
    uint32_t at = DFA_START;
    compile_spend(compile, texts[i].length);
    for (uint32_t k = 0; k < texts[i].length; k++) {
      uint8_t class_of = dfa.class_of[(uint8_t)texts[i].bytes[k]];
      uint32_t *next = &dfa.next[(size_t)at * dfa.num_classes + class_of];
      if (*next == DFA_DEAD) *next = dfa.num_states++;
      at = *next;
    }
    dfa.flags[at] |= DFA_ACCEPT;
  }
  return trim(compile, &dfa);
}

bool dfa_matches(const dfa_t *dfa, const char *bytes, size_t length) {
  uint32_t state = dfa->num_states > DFA_START ? DFA_START : DFA_DEAD;
  for (size_t i = 0; i < length && state != DFA_DEAD; i++) {
    state = dfa_next(dfa, state, (uint8_t)bytes[i]);
  }
  return state != DFA_DEAD && (dfa->flags[state] & DFA_ACCEPT);
}

/* Whether a byte that no token consists of leads anywhere. */
static bool needs_missing(const dfa_t *dfa, const uint8_t missing[256]) {
  bool needed[256] = {false};
  for (int b = 0; b < 256; b++) needed[dfa->class_of[b]] |= missing[b];
  for (uint32_t k = 0; k < dfa->num_classes; k++) {
    for (uint32_t i = 1; needed[k] && i < dfa->num_states; i++) {
      if (dfa->next[(size_t)i * dfa->num_classes + k] != DFA_DEAD) return true;
    }
  }
  return false;
}

dfa_t *dfa_restrict(compile_t *compile, const dfa_t *dfa) {
  uint8_t missing[256], joined[256];
  for (int b = 0; b < 256; b++) missing[b] = !compile->vocabulary->has_byte[b];
  if (dfa_is_empty(dfa)) return compile_scratch(compile, 1, sizeof *dfa);
  if (!needs_missing(dfa, missing)) {
    dfa_t *out = compile_scratch(compile, 1, sizeof *out);
    *out = *dfa;
    out->flags = compile_scratch(compile, dfa->num_states, 1); /* callers mark states */
    memcpy(out->flags, dfa->flags, dfa->num_states);
    return out;
  }
  dfa_join_classes(dfa->class_of, missing, joined);
  dfa_t wide = *dfa;
  wide.num_classes = 0;
  for (int b = 0; b < 256; b++) {
    wide.class_of[b] = joined[b];
    if (joined[b] >= wide.num_classes) wide.num_classes = joined[b] + 1u;
  }
  wide.next =
      compile_scratch(compile, (size_t)dfa->num_states * wide.num_classes, sizeof *wide.next);
  for (uint32_t i = 1; i < dfa->num_states; i++) {
    for (int b = 0; b < 256; b++) {
      if (missing[b]) continue;
      wide.next[(size_t)i * wide.num_classes + joined[b]] = dfa_next(dfa, i, (uint8_t)b);
    }
  }
  return trim(compile, &wide);
}
