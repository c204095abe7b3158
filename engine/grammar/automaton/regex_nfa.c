/* regex_nfa.c: syntax tree -> nondeterministic byte automaton -> deterministic one.
 *
 * Part of a compilation, on its thread. Characters become their UTF-8 bytes; inside JSON strings
 * those that need it become their canonical escape. Counted repetition is written out, within a
 * bound. The subset construction is dfa_explore's: a state is the number of a set.
 */
#include "engine/grammar/automaton/regex.h"

#include "engine/base/utf8.h"

#include <stdlib.h>
#include <string.h>

enum { NFA_STATES_MAX = 1 << 20 };

typedef enum nfa_kind { NFA_BYTES, NFA_SPLIT, NFA_BEGIN, NFA_FINISH, NFA_MATCH } nfa_kind_t;

typedef struct nfa_state {
  uint8_t kind;
  uint8_t low, high; /* BYTES */
  uint32_t to, other;
} nfa_state_t;

typedef struct nfa {
  compile_t *c;
  const regex_options_t *options;
  list_t states;    /* nfa_state_t */
  uint32_t written; /* tree nodes, counted repetition written out */
  uint32_t tail;    /* search: start of "anything may follow"; NONE */
  /* subset construction */
  list_t sets; /* set_t; [0] unused: number 0 is the dead state */
  uint32_t *table, table_size;
  uint32_t *stack, *members; /* [states] */
  uint32_t *mark, stamp;     /* [states] */
} nfa_t;

typedef struct set {
  uint32_t *members; /* ascending, BYTES, FINISH and MATCH states */
  uint32_t count, hash;
} set_t;

static nfa_state_t *state_at(const nfa_t *n, uint32_t id) {
  return (nfa_state_t *)n->states.items + id;
}

static uint32_t add_state(nfa_t *n, nfa_kind_t kind, uint32_t to, uint32_t other) {
  if (n->states.count >= NFA_STATES_MAX) {
    compile_fail(n->c, ERR_BAD_REQUEST, "%s: too large when written out.", n->options->what);
  }
  nfa_state_t *s = list_add(n->c, &n->states, sizeof *s);
  *s = (nfa_state_t){.kind = (uint8_t)kind, .to = to, .other = other};
  return n->states.count - 1;
}

static uint32_t add_bytes(nfa_t *n, uint8_t low, uint8_t high, uint32_t to) {
  uint32_t id = add_state(n, NFA_BYTES, to, 0);
  state_at(n, id)->low = low;
  state_at(n, id)->high = high;
  return id;
}

/* ---- characters ---- */

static uint32_t either(nfa_t *n, uint32_t first, uint32_t second) {
  return first == NONE ? second : add_state(n, NFA_SPLIT, second, first);
}

/* Code points low..high, all of the same number of bytes, whose encodings differ only in a suffix
 * that covers its whole range: one sequence of byte ranges. */
static uint32_t add_sequence(nfa_t *n, uint32_t low, uint32_t high, uint32_t to) {
  char from[4], until[4];
  int length = utf8_write(from, low);
  utf8_write(until, high);
  for (int i = length - 1; i >= 0; i--) to = add_bytes(n, (uint8_t)from[i], (uint8_t)until[i], to);
  return to;
}

/* Splits low..high so that each part is one sequence. */
static uint32_t add_range(nfa_t *n, uint32_t low, uint32_t high, uint32_t to) {
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
    all = either(n, all, add_sequence(n, low, last, to));
    low = last + 1;
  }
  return all;
}

static uint32_t add_text(nfa_t *n, const char *text, uint32_t to) {
  for (size_t i = strlen(text); i > 0; i--) {
    to = add_bytes(n, (uint8_t)text[i - 1], (uint8_t)text[i - 1], to);
  }
  return to;
}

/* The one way in which a character stands in a canonical JSON string. */
static uint32_t add_escaped(nfa_t *n, uint32_t ch, uint32_t to) {
  static const char hex[] = "0123456789abcdef";
  switch (ch) {
  case '"': return add_text(n, "\\\"", to);
  case '\\': return add_text(n, "\\\\", to);
  case '\b': return add_text(n, "\\b", to);
  case '\f': return add_text(n, "\\f", to);
  case '\n': return add_text(n, "\\n", to);
  case '\r': return add_text(n, "\\r", to);
  case '\t': return add_text(n, "\\t", to);
  default: break;
  }
  char text[] = {'\\', 'u', '0', '0', hex[ch >> 4], hex[ch & 15], 0};
  return add_text(n, text, to);
}

static uint32_t add_set(nfa_t *n, const charset_t *set, uint32_t to) {
  uint32_t all = NONE;
  for (uint32_t i = 0; i < set->count; i++) {
    uint32_t low = set->ranges[i].low, high = set->ranges[i].high;
    compile_spend(n->c, 4);
    while (n->options->json && low <= high && low <= '\\') {
      bool escape = low < 0x20 || low == '"' || low == '\\';
      uint32_t stop = low < '"' ? '"' : '\\'; /* the next one that needs an escape */
      uint32_t last = escape ? low : high < stop ? high : stop - 1;
      uint32_t part = escape ? add_escaped(n, low, to) : add_range(n, low, last, to);
      all = either(n, all, part);
      low = last + 1;
    }
    if (low > high) continue;
    uint32_t part = add_range(n, low, high, to);
    if (part != NONE) all = either(n, all, part);
  }
  /* No character at all: a state that nothing leaves. */
  return all == NONE ? add_bytes(n, 1, 0, to) : all;
}

/* ---- trees ---- */

static uint32_t add_tree(nfa_t *n, const regex_t *tree, uint32_t to);

static uint32_t add_repeat(nfa_t *n, const regex_t *tree, uint32_t to) {
  uint32_t end = to;
  if (tree->max == NONE) {
    uint32_t loop = add_state(n, NFA_SPLIT, 0, end);
    uint32_t body = add_tree(n, tree->first, loop);
    state_at(n, loop)->to = body;
    to = loop;
  } else {
    for (uint32_t i = tree->min; i < tree->max; i++) {
      to = add_state(n, NFA_SPLIT, add_tree(n, tree->first, to), end);
    }
  }
  for (uint32_t i = 0; i < tree->min; i++) to = add_tree(n, tree->first, to);
  return to;
}

static uint32_t add_cat(nfa_t *n, const regex_t *tree, uint32_t to) {
  uint32_t count = 0;
  for (const regex_t *t = tree->first; t != NULL; t = t->sibling) count++;
  const regex_t **children = compile_scratch(n->c, count, sizeof *children);
  count = 0;
  for (const regex_t *t = tree->first; t != NULL; t = t->sibling) children[count++] = t;
  while (count > 0) to = add_tree(n, children[--count], to);
  return to;
}

static uint32_t add_tree(nfa_t *n, const regex_t *tree, uint32_t to) {
  compile_spend(n->c, 1);
  if (++n->written > n->c->limits->regex_nodes_max) {
    compile_fail(n->c, ERR_BAD_REQUEST,
                 "%s: more than %u nodes when counted repetition is written out.", n->options->what,
                 n->c->limits->regex_nodes_max);
  }
  switch (tree->kind) {
  case REGEX_EMPTY: return to;
  case REGEX_SET: return add_set(n, &tree->set, to);
  case REGEX_CAT: return add_cat(n, tree, to);
  case REGEX_ALT: {
    uint32_t all = NONE;
    for (const regex_t *t = tree->first; t != NULL; t = t->sibling) {
      all = either(n, all, add_tree(n, t, to));
    }
    return all == NONE ? to : all;
  }
  case REGEX_REPEAT: return add_repeat(n, tree, to);
  case REGEX_BEGIN: return add_state(n, NFA_BEGIN, to, 0);
  case REGEX_FINISH: return add_state(n, NFA_FINISH, to, 0);
  case REGEX_RULE: break;
  }
  compile_fail(n->c, ERR_INTERNAL, "A rule stands inside a pattern.");
}

/* ---- subset construction ---- */

typedef struct closure_options {
  bool at_begin, at_finish;
} closure_options_t;

/* Adds to members what is reached from `from` without a byte. */
static uint32_t close_over(nfa_t *n, uint32_t from, closure_options_t options, uint32_t count) {
  uint32_t depth = 0;
  n->stack[depth++] = from;
  while (depth > 0) {
    uint32_t id = n->stack[--depth];
    const nfa_state_t *s = state_at(n, id);
    if (n->mark[id] == n->stamp) continue;
    n->mark[id] = n->stamp;
    if (s->kind == NFA_SPLIT) {
      n->stack[depth++] = s->other;
      n->stack[depth++] = s->to;
    } else if (s->kind == NFA_BEGIN) {
      if (options.at_begin) n->stack[depth++] = s->to;
    } else {
      n->members[count++] = id;
      if (s->kind == NFA_FINISH && options.at_finish) n->stack[depth++] = s->to;
    }
  }
  return count;
}

static bool holds_match(const nfa_t *n, const uint32_t *members, uint32_t count) {
  for (uint32_t i = 0; i < count; i++) {
    if (state_at(n, members[i])->kind == NFA_MATCH) return true;
  }
  return false;
}

static int compare_ids(const void *left, const void *right) {
  uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
  return a < b ? -1 : a > b;
}

static void sort_members(uint32_t *members, uint32_t count) {
  if (count > 32) {
    qsort(members, count, sizeof *members, compare_ids);
    return;
  }
  for (uint32_t i = 1; i < count; i++) {
    uint32_t value = members[i], at = i;
    for (; at > 0 && members[at - 1] > value; at--) members[at] = members[at - 1];
    members[at] = value;
  }
}

static void grow_sets(nfa_t *n) {
  uint32_t size = n->table_size ? 2 * n->table_size : 256;
  n->table = compile_scratch(n->c, size, sizeof *n->table);
  n->table_size = size;
  for (uint32_t i = 1; i < n->sets.count; i++) {
    uint32_t slot = ((set_t *)n->sets.items)[i].hash & (size - 1);
    while (n->table[slot]) slot = (slot + 1) & (size - 1);
    n->table[slot] = i;
  }
}

/* The number of the set in `members`; 0 for the empty one. */
static uint32_t set_number(nfa_t *n, uint32_t count) {
  if (count == 0) return 0;
  if (n->tail != NONE && holds_match(n, n->members, count)) {
    n->stamp++; /* a match was found: nothing else matters any more */
    count = close_over(n, n->tail, (closure_options_t){0}, 0);
  }
  compile_spend(n->c, count);
  sort_members(n->members, count);
  uint32_t hash = count * 0x9E3779B1u;
  for (uint32_t i = 0; i < count; i++) hash = (hash ^ n->members[i]) * 0x01000193u;
  hash ^= hash >> 15;
  if (2 * n->sets.count >= n->table_size) grow_sets(n);
  uint32_t slot = hash & (n->table_size - 1);
  for (; n->table[slot]; slot = (slot + 1) & (n->table_size - 1)) {
    const set_t *s = (const set_t *)n->sets.items + n->table[slot];
    if (s->count == count && memcmp(s->members, n->members, count * sizeof(uint32_t)) == 0) {
      return n->table[slot];
    }
  }
  set_t *s = list_add(n->c, &n->sets, sizeof *s);
  *s = (set_t){compile_scratch(n->c, count, sizeof(uint32_t)), count, hash};
  memcpy(s->members, n->members, count * sizeof(uint32_t));
  n->table[slot] = n->sets.count - 1;
  return n->sets.count - 1;
}

static uint64_t nfa_step(const void *context, uint64_t number, uint8_t byte) {
  nfa_t *n = (nfa_t *)(uintptr_t)context;
  const set_t set = ((const set_t *)n->sets.items)[number];
  uint32_t count = 0;
  n->stamp++;
  compile_spend(n->c, 1 + set.count / 8);
  for (uint32_t i = 0; i < set.count; i++) {
    const nfa_state_t *s = state_at(n, set.members[i]);
    if (s->kind != NFA_BYTES || byte < s->low || byte > s->high) continue;
    count = close_over(n, s->to, (closure_options_t){0}, count);
  }
  return set_number(n, count);
}

/* Sets of the first position also follow ^: number 1, and only if nothing else is equal to it. */
static bool nfa_accepts(const void *context, uint64_t number) {
  nfa_t *n = (nfa_t *)(uintptr_t)context;
  const set_t set = ((const set_t *)n->sets.items)[number];
  uint32_t count = 0;
  n->stamp++;
  for (uint32_t i = 0; i < set.count; i++) {
    count = close_over(n, set.members[i], (closure_options_t){.at_finish = true}, count);
  }
  return holds_match(n, n->members, count);
}

/* Bytes that no range tells apart share a class. */
static void find_classes(const nfa_t *n, uint8_t class_of[256]) {
  bool starts[257] = {false};
  for (uint32_t i = 0; i < n->states.count; i++) {
    const nfa_state_t *s = state_at(n, i);
    if (s->kind != NFA_BYTES || s->low > s->high) continue;
    starts[s->low] = true;
    starts[s->high + 1] = true;
  }
  uint8_t k = 0;
  for (int b = 0; b < 256; b++) {
    if (b > 0 && starts[b]) k++;
    class_of[b] = k;
  }
}

static uint32_t add_any_loop(nfa_t *n, uint32_t to) {
  range_t all = {0, 0x10FFFF};
  charset_t any = {&all, 1};
  uint32_t loop = add_state(n, NFA_SPLIT, 0, to);
  uint32_t body = add_set(n, &any, loop);
  state_at(n, loop)->to = body;
  return loop;
}

dfa_t *regex_build(compile_t *c, const regex_t *tree, const regex_options_t *options) {
  nfa_t n = {.c = c, .options = options, .tail = NONE};
  uint32_t start = add_state(&n, NFA_MATCH, 0, 0);
  if (options->search) start = n.tail = add_any_loop(&n, start);
  start = add_tree(&n, tree, start);
  if (options->search) start = add_any_loop(&n, start);
  n.stack = compile_scratch(c, 2 * (size_t)n.states.count + 2, sizeof *n.stack);
  n.members = compile_scratch(c, (size_t)n.states.count + 1, sizeof *n.members);
  n.mark = compile_scratch(c, n.states.count, sizeof *n.mark);
  list_add(c, &n.sets, sizeof(set_t));
  n.stamp++;
  uint32_t count = close_over(&n, start, (closure_options_t){.at_begin = true}, 0);
  uint8_t class_of[256];
  find_classes(&n, class_of);
  automaton_t a = {&n, set_number(&n, count), nfa_step, nfa_accepts, class_of};
  return dfa_explore(c, &a);
}
