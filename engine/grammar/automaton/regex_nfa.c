/* regex_nfa.c: syntax tree -> nondeterministic byte automaton -> deterministic one.
 *
 * Part of a compilation, on its thread. Characters become their UTF-8 bytes; inside JSON strings
 * those that need it become their canonical escape. Counted repetition is written out, within a
 * bound. The subset construction is dfa_explore's: a state is the number of a set; that of patterns
 * with look-around is in regex_look.c.
 */
#include "engine/grammar/automaton/regex_nfa.h"

#include "engine/base/hash.h"
#include "engine/base/hex.h"
#include "engine/base/utf8.h"

#include <stdlib.h>
#include <string.h>

enum { NFA_STATES_MAX = 1 << 20 };

typedef struct set {
  uint32_t *members; /* ascending, BYTES, FINISH and MATCH states */
  uint32_t count, hash;
} set_t;

static uint32_t add_state(nfa_t *nfa, nfa_kind_t kind, uint32_t to, uint32_t other) {
  if (nfa->states.count >= NFA_STATES_MAX) {
    compile_fail(nfa->compile, ERR_BAD_REQUEST, "%s: too large when written out.",
                 nfa->options->what);
  }
  nfa_state_t *state = list_add(nfa->compile, &nfa->states, sizeof *state);
  *state = (nfa_state_t){.kind = (uint8_t)kind, .to = to, .other = other};
  return nfa->states.count - 1;
}

static uint32_t add_bytes(nfa_t *nfa, uint8_t low, uint8_t high, uint32_t to) {
  uint32_t id = add_state(nfa, NFA_BYTES, to, 0);
  nfa_state(nfa, id)->low = low;
  nfa_state(nfa, id)->high = high;
  return id;
}

/* ---- characters ---- */

static uint32_t either(nfa_t *nfa, uint32_t first, uint32_t second) {
  return first == NONE ? second : add_state(nfa, NFA_SPLIT, second, first);
}

/* Code points low..high, all of the same number of bytes, whose encodings differ only in a suffix
 * that covers its whole range: one sequence of byte ranges. */
static uint32_t add_sequence(nfa_t *nfa, uint32_t low, uint32_t high, uint32_t to) {
  char from[4], until[4];
  int length = utf8_write(from, low);
  utf8_write(until, high);
  for (int i = length - 1; i >= 0; i--)
    to = add_bytes(nfa, (uint8_t)from[i], (uint8_t)until[i], to);
  return to;
}

/* Splits low..high so that each part is one sequence. */
static uint32_t add_range(nfa_t *nfa, uint32_t low, uint32_t high, uint32_t to) {
  static const uint32_t lengths[] = {0x7F, 0x7FF, 0xFFFF, 0x10FFFF};
  uint32_t all = NONE;
  while (low <= high) {
    uint32_t last = high;
    if (low >= 0xD800 && low <= 0xDFFF) {
      low = 0xE000;
      continue;
    }
    if (low < 0xD800 && last > 0xD7FF) last = 0xD7FF;
    for (int i = 0; i < 4; i++) {
      if (low <= lengths[i] && last > lengths[i]) last = lengths[i];
    }
    for (uint32_t bits = 6; bits <= 18 && low > 0x7F; bits += 6) {
      uint32_t rest = (UINT32_C(1) << bits) - 1;
      if ((low & ~rest) == (last & ~rest)) break;
      if (low & rest) {
        last = low | rest;
      } else if ((last & rest) != rest) {
        last = (last & ~rest) - 1;
      }
    }
    all = either(nfa, all, add_sequence(nfa, low, last, to));
    low = last + 1;
  }
  return all;
}

static uint32_t add_text(nfa_t *nfa, const char *text, uint32_t to) {
  for (size_t i = strlen(text); i > 0; i--) {
    to = add_bytes(nfa, (uint8_t)text[i - 1], (uint8_t)text[i - 1], to);
  }
  return to;
}

/* Adds the one spelling that a character has in a canonical JSON string. */
static uint32_t add_escaped(nfa_t *nfa, uint32_t ch, uint32_t to) {
  switch (ch) {
  case '"': return add_text(nfa, "\\\"", to);
  case '\\': return add_text(nfa, "\\\\", to);
  case '\b': return add_text(nfa, "\\b", to);
  case '\f': return add_text(nfa, "\\f", to);
  case '\n': return add_text(nfa, "\\n", to);
  case '\r': return add_text(nfa, "\\r", to);
  case '\t': return add_text(nfa, "\\t", to);
  default: break;
  }
  char text[] = {'\\', 'u', '0', '0', hex_digit(ch >> 4), hex_digit(ch & 15), 0};
  return add_text(nfa, text, to);
}

static uint32_t add_set(nfa_t *nfa, const charset_t *set, uint32_t to) {
  uint32_t all = NONE;
  for (uint32_t i = 0; i < set->count; i++) {
    uint32_t low = set->ranges[i].low, high = set->ranges[i].high;
    compile_spend(nfa->compile, 4);
    while (nfa->options->json && low <= high && low <= '\\') {
      bool escape = low < 0x20 || low == '"' || low == '\\';
      uint32_t stop = low < '"' ? '"' : '\\'; /* the next one that needs an escape */
      uint32_t last = escape ? low : high < stop ? high : stop - 1;
      uint32_t part = escape ? add_escaped(nfa, low, to) : add_range(nfa, low, last, to);
      all = either(nfa, all, part);
      low = last + 1;
    }
    if (low > high) continue;
    uint32_t part = add_range(nfa, low, high, to);
    if (part != NONE) all = either(nfa, all, part);
  }
  /* The empty set: a state without transitions. */
  return all == NONE ? add_bytes(nfa, 1, 0, to) : all;
}

/* ---- trees ---- */

static uint32_t add_tree(nfa_t *nfa, const regex_t *tree, uint32_t to);

static uint32_t add_repeat(nfa_t *nfa, const regex_t *tree, uint32_t to) {
  uint32_t end = to;
  if (tree->max == NONE) {
    uint32_t loop = add_state(nfa, NFA_SPLIT, 0, end);
    uint32_t body = add_tree(nfa, tree->first, loop);
    nfa_state(nfa, loop)->to = body;
    to = loop;
  } else {
    for (uint32_t i = tree->min; i < tree->max; i++) {
      to = add_state(nfa, NFA_SPLIT, add_tree(nfa, tree->first, to), end);
    }
  }
  for (uint32_t i = 0; i < tree->min; i++) to = add_tree(nfa, tree->first, to);
  return to;
}

static uint32_t add_cat(nfa_t *nfa, const regex_t *tree, uint32_t to) {
  uint32_t count = 0;
  for (const regex_t *regex = tree->first; regex != NULL; regex = regex->sibling) count++;
  const regex_t **children = compile_scratch(nfa->compile, count, sizeof *children);
  count = 0;
  for (const regex_t *regex = tree->first; regex != NULL; regex = regex->sibling)
    children[count++] = regex;
  while (count > 0) to = add_tree(nfa, children[--count], to);
  return to;
}

/* Copies an automaton: each of its states is a chain of ways, one for each range of bytes. */
static uint32_t add_dfa(nfa_t *nfa, const dfa_t *dfa, uint32_t to) {
  uint32_t first = nfa->states.count;
  if (dfa_is_empty(dfa)) return add_bytes(nfa, 1, 0, to);
  for (uint32_t i = 0; i < dfa->num_states; i++) add_state(nfa, NFA_SPLIT, first, first);
  for (uint32_t i = 1; i < dfa->num_states; i++) {
    uint32_t all = dfa->flags[i] & DFA_ACCEPT ? to : first;
    compile_spend(nfa->compile, 32);
    for (int low = 0, high; low < 256; low = high) {
      uint32_t next = dfa_next(dfa, i, (uint8_t)low);
      for (high = low + 1; high < 256 && dfa_next(dfa, i, (uint8_t)high) == next;) high++;
      if (next == DFA_DEAD) continue;
      all = add_state(nfa, NFA_SPLIT,
                      add_bytes(nfa, (uint8_t)low, (uint8_t)(high - 1), first + next), all);
    }
    nfa_state(nfa, first + i)->to = all;
  }
  return first + DFA_START;
}

/* ---- look-around ---- */

static uint32_t add_any_loop(nfa_t *nfa, uint32_t to) {
  char_range_t all = {0, 0x10FFFF};
  charset_t any = {&all, 1};
  uint32_t loop = add_state(nfa, NFA_SPLIT, 0, to);
  uint32_t body = add_set(nfa, &any, loop);
  nfa_state(nfa, loop)->to = body;
  return loop;
}

/* Returns the look-around with the body of this one; it is added if it is new. */
static nfa_look_t body_of(nfa_t *nfa, const regex_t *tree) {
  const nfa_look_t *known = nfa->looks.items;
  compile_spend(nfa->compile, nfa->looks.count);
  for (uint32_t i = 0; i < nfa->looks.count; i++) {
    if (known[i].body == tree->first && known[i].ahead == tree->ahead) return known[i];
  }
  nfa_look_t look = {.body = tree->first, .ahead = tree->ahead, .at = tree->min};
  look.start = add_state(nfa, tree->ahead ? NFA_FOUND : NFA_MATCH, 0, 0);
  look.start = add_tree(nfa, tree->first, look.start);
  if (!tree->ahead) {
    look.start = add_any_loop(nfa, look.start);
    look.number = nfa->num_behind++;
  }
  *(nfa_look_t *)list_add(nfa->compile, &nfa->looks, sizeof look) = look;
  return look;
}

static uint32_t add_look(nfa_t *nfa, const regex_t *tree, uint32_t to) {
  const nfa_look_t look = body_of(nfa, tree);
  uint32_t id = add_state(nfa, tree->ahead ? NFA_AHEAD : NFA_BEHIND, to,
                          tree->ahead ? look.start : look.number);
  nfa_state(nfa, id)->negate = tree->negate;
  return id;
}

static uint32_t add_tree(nfa_t *nfa, const regex_t *tree, uint32_t to) {
  compile_spend(nfa->compile, 1);
  if (++nfa->written > nfa->compile->limits->regex_nodes_max) {
    compile_fail(nfa->compile, ERR_BAD_REQUEST,
                 "%s: more than %u nodes when counted repetition is written out.",
                 nfa->options->what, nfa->compile->limits->regex_nodes_max);
  }
  switch (tree->kind) {
  case REGEX_EMPTY: return to;
  case REGEX_SET: return add_set(nfa, &tree->set, to);
  case REGEX_CAT: return add_cat(nfa, tree, to);
  case REGEX_ALT: {
    uint32_t all = NONE;
    for (const regex_t *regex = tree->first; regex != NULL; regex = regex->sibling) {
      all = either(nfa, all, add_tree(nfa, regex, to));
    }
    return all == NONE ? to : all;
  }
  case REGEX_REPEAT: return add_repeat(nfa, tree, to);
  case REGEX_BEGIN: return add_state(nfa, NFA_BEGIN, to, 0);
  case REGEX_FINISH: return add_state(nfa, NFA_FINISH, to, 0);
  case REGEX_LOOK: return add_look(nfa, tree, to);
  case REGEX_DFA: return add_dfa(nfa, tree->dfa, to);
  case REGEX_RULE: break;
  }
  compile_fail(nfa->compile, ERR_INTERNAL, "A rule stands inside a pattern.");
}

/* ---- subset construction ---- */

typedef struct closure_options {
  bool at_begin, at_finish;
} closure_options_t;

/* Adds to `members` the states that are reached from `from` without a byte. */
static uint32_t close_over(nfa_t *nfa, uint32_t from, closure_options_t options, uint32_t count) {
  uint32_t depth = 0;
  nfa->stack[depth++] = from;
  while (depth > 0) {
    uint32_t id = nfa->stack[--depth];
    const nfa_state_t *state = nfa_state(nfa, id);
    if (nfa->mark[id] == nfa->stamp) continue;
    nfa->mark[id] = nfa->stamp;
    if (state->kind == NFA_SPLIT) {
      nfa->stack[depth++] = state->other;
      nfa->stack[depth++] = state->to;
    } else if (state->kind == NFA_BEGIN) {
      if (options.at_begin) nfa->stack[depth++] = state->to;
    } else {
      nfa->members[count++] = id;
      if (state->kind == NFA_FINISH && options.at_finish) nfa->stack[depth++] = state->to;
    }
  }
  return count;
}

static bool holds_match(const nfa_t *nfa, const uint32_t *members, uint32_t count) {
  for (uint32_t i = 0; i < count; i++) {
    if (nfa_state(nfa, members[i])->kind == NFA_MATCH) return true;
  }
  return false;
}

static int compare_ids(const void *left, const void *right) {
  uint32_t first = *(const uint32_t *)left, second = *(const uint32_t *)right;
  return first < second ? -1 : first > second;
}

/* Ids are distinct, so a bit for each id sorts many of them faster than comparisons. */
static void sort_by_bits(nfa_t *nfa, uint32_t count) {
  uint32_t *members = nfa->members, at = 0, words = (nfa->states.count + 63) / 64;
  for (uint32_t i = 0; i < count; i++) nfa->bits[members[i] / 64] |= 1ull << (members[i] % 64);
  for (uint32_t w = 0; w < words; w++) {
    for (uint64_t rest = nfa->bits[w]; rest; rest &= rest - 1) {
      members[at++] = w * 64 + (uint32_t)__builtin_ctzll(rest);
    }
    nfa->bits[w] = 0;
  }
}

static void sort_members(nfa_t *nfa, uint32_t count) {
  uint32_t *members = nfa->members;
  if (count > 32) {
    if (nfa->states.count / 64 <= 4 * count) {
      sort_by_bits(nfa, count);
    } else {
      qsort(members, count, sizeof *members, compare_ids);
    }
    return;
  }
  for (uint32_t i = 1; i < count; i++) {
    uint32_t value = members[i], at = i;
    for (; at > 0 && members[at - 1] > value; at--) members[at] = members[at - 1];
    members[at] = value;
  }
}

static void grow_sets(nfa_t *nfa) {
  uint32_t size = nfa->table_size ? 2 * nfa->table_size : 256;
  nfa->table = compile_scratch(nfa->compile, size, sizeof *nfa->table);
  nfa->table_size = size;
  for (uint32_t i = 1; i < nfa->sets.count; i++) {
    uint32_t slot = ((set_t *)nfa->sets.items)[i].hash & (size - 1);
    while (nfa->table[slot]) slot = (slot + 1) & (size - 1);
    nfa->table[slot] = i;
  }
}

/* Returns the number of the set in `members`; 0 for the empty set. */
static uint32_t set_number(nfa_t *nfa, uint32_t count) {
  if (count == 0) return 0;
  if (nfa->tail != NONE && holds_match(nfa, nfa->members, count)) {
    nfa->stamp++; /* a match was found: the other members have no effect */
    count = close_over(nfa, nfa->tail, (closure_options_t){0}, 0);
  }
  compile_spend(nfa->compile, count);
  sort_members(nfa, count);
  uint32_t hash = count * 0x9E3779B1u;
  for (uint32_t i = 0; i < count; i++) hash = fnv_32_step(hash, nfa->members[i]);
  hash ^= hash >> 15;
  if (2 * nfa->sets.count >= nfa->table_size) grow_sets(nfa);
  uint32_t slot = hash & (nfa->table_size - 1);
  for (; nfa->table[slot]; slot = (slot + 1) & (nfa->table_size - 1)) {
    const set_t *set = (const set_t *)nfa->sets.items + nfa->table[slot];
    if (set->count == count && memcmp(set->members, nfa->members, count * sizeof(uint32_t)) == 0) {
      return nfa->table[slot];
    }
  }
  set_t *set = list_add(nfa->compile, &nfa->sets, sizeof *set);
  *set = (set_t){compile_scratch(nfa->compile, count, sizeof(uint32_t)), count, hash};
  memcpy(set->members, nfa->members, count * sizeof(uint32_t));
  nfa->table[slot] = nfa->sets.count - 1;
  return nfa->sets.count - 1;
}

/* Sets of the first position also follow ^: number 1, and only if nothing else is equal to it. */
static bool nfa_accepts(void *context, uint64_t number) {
  nfa_t *nfa = context;
  const set_t set = ((const set_t *)nfa->sets.items)[number];
  uint32_t count = 0;
  nfa->stamp++;
  for (uint32_t i = 0; i < set.count; i++) {
    count = close_over(nfa, set.members[i], (closure_options_t){.at_finish = true}, count);
  }
  return holds_match(nfa, nfa->members, count);
}

/* Classes of bytes are asked for in order, and most sets tell few of them apart. */
static uint64_t nfa_step(void *context, uint64_t number, uint8_t byte) {
  nfa_t *nfa = context;
  step_memo_t *memo = &nfa->memo;
  const set_t set = ((const set_t *)nfa->sets.items)[number];
  uint32_t count = 0;
  if (memo->from == number && byte >= memo->low && byte <= memo->high) return memo->to;
  *memo = (step_memo_t){number, 0, 0, 255};
  if (nfa->options->lazy && nfa_accepts(nfa, number)) return 0;
  nfa->stamp++;
  compile_spend(nfa->compile, 1 + set.count / 8);
  for (uint32_t i = 0; i < set.count; i++) {
    const nfa_state_t *state = nfa_state(nfa, set.members[i]);
    if (state->kind != NFA_BYTES) continue;
    if (byte < state->low) {
      if (state->low <= memo->high) memo->high = state->low - 1;
    } else if (byte > state->high) {
      if (state->high >= memo->low) memo->low = state->high + 1;
    } else {
      if (state->low > memo->low) memo->low = state->low;
      if (state->high < memo->high) memo->high = state->high;
      count = close_over(nfa, state->to, (closure_options_t){0}, count);
    }
  }
  return memo->to = set_number(nfa, count);
}

void nfa_classes(const nfa_t *nfa, uint8_t class_of[256]) {
  bool starts[257] = {false};
  for (uint32_t i = 0; i < nfa->states.count; i++) {
    const nfa_state_t *state = nfa_state(nfa, i);
    if (state->kind != NFA_BYTES || state->low > state->high) continue;
    starts[state->low] = true;
    starts[state->high + 1] = true;
  }
  uint8_t k = 0;
  for (int b = 0; b < 256; b++) {
    if (b > 0 && starts[b]) k++;
    class_of[b] = k;
  }
}

dfa_t *regex_build(compile_t *compile, const regex_t *tree, const regex_options_t *options) {
  nfa_t nfa = {.compile = compile, .options = options, .tail = NONE};
  uint32_t start = add_state(&nfa, NFA_MATCH, 0, 0);
  if (options->search) start = nfa.tail = add_any_loop(&nfa, start);
  start = add_tree(&nfa, tree, start);
  if (options->search) start = add_any_loop(&nfa, start);
  if (nfa.looks.count > 0) return regex_build_looks(&nfa, start);
  nfa.stack = compile_scratch(compile, 2 * (size_t)nfa.states.count + 2, sizeof *nfa.stack);
  nfa.members = compile_scratch(compile, (size_t)nfa.states.count + 1, sizeof *nfa.members);
  nfa.mark = compile_scratch(compile, nfa.states.count, sizeof *nfa.mark);
  nfa.bits = compile_scratch(compile, nfa.states.count / 64 + 1, sizeof *nfa.bits);
  list_add(compile, &nfa.sets, sizeof(set_t));
  nfa.stamp++;
  uint32_t count = close_over(&nfa, start, (closure_options_t){.at_begin = true}, 0);
  uint8_t class_of[256];
  nfa_classes(&nfa, class_of);
  automaton_t automaton = {&nfa, set_number(&nfa, count), nfa_step, nfa_accepts, class_of};
  return dfa_explore(compile, &automaton);
}
