/* regex_look.c: the deterministic automaton of a pattern with look-around.
 *
 * Part of a compilation, on its thread. A thread is a state of the nondeterministic automaton with
 * conditions on the text that follows: a set of threads that must, or must not, lead to a match.
 * Such a set is a number, and a look-ahead starts with the set at its place; when it has found its
 * text, or cannot any more, the condition goes. What a look-behind has read is the same for every
 * thread: one set for each, which moves along with the text. Sets, conditions and places are kept
 * once each, so that equal ones have equal numbers. In this file `held` is the number of the row of
 * conditions that a thread has; 0 = none.
 */
#include "engine/grammar/automaton/regex_nfa.h"

#include "engine/base/hash.h"
#include "engine/base/util.h"

#include <stdlib.h>
#include <string.h>

enum {
  SET_DEAD = 0,
  SET_FOUND = 1,       /* a look-ahead that is true, whatever follows */
  CONDITIONS_MAX = 32, /* of one thread */
  VISITS_MAX = 1 << 14 /* states with conditions met on the way to one set */
};

/* ---- rows of numbers, each once ---- */

typedef struct row {
  const uint64_t *items;
  uint32_t count, hash;
  bool looks_back; /* what follows may depend on the place */
} row_t;

typedef struct row_pool {
  grammar_list_t rows; /* row_t */
  uint32_t *table, size;
} row_pool_t;

static row_t row_at(const row_pool_t *pool, uint32_t number) {
  return ((const row_t *)pool->rows.items)[number];
}

static void grow_pool(compile_t *compile, row_pool_t *pool) {
  pool->size = pool->size ? 2 * pool->size : 64;
  pool->table = compile_scratch(compile, pool->size, sizeof *pool->table);
  for (uint32_t i = 0; i < pool->rows.count; i++) {
    uint32_t slot = row_at(pool, i).hash & (pool->size - 1);
    while (pool->table[slot]) slot = (slot + 1) & (pool->size - 1);
    pool->table[slot] = i + 1;
  }
}

/* Returns the number of a row, which is added if it is new. */
static uint32_t row_number(compile_t *compile, row_pool_t *pool, const uint64_t *items,
                           uint32_t count, bool looks_back) {
  if (2 * pool->rows.count >= pool->size) grow_pool(compile, pool);
  uint32_t hash = count * 0x9E3779B1u;
  compile_spend(compile, 1 + count);
  for (uint32_t i = 0; i < count; i++)
    hash = fnv_32_step(fnv_32_step(hash, (uint32_t)items[i]), (uint32_t)(items[i] >> 32));
  hash ^= hash >> 15;
  uint32_t slot = hash & (pool->size - 1);
  for (; pool->table[slot]; slot = (slot + 1) & (pool->size - 1)) {
    const row_t row = row_at(pool, pool->table[slot] - 1);
    if (row.count == count && (count == 0 || !memcmp(row.items, items, count * sizeof *items)))
      return pool->table[slot] - 1;
  }
  uint64_t *copy = compile_scratch(compile, MAX(count, 1), sizeof *copy);
  if (count > 0) memcpy(copy, items, count * sizeof *items);
  *(row_t *)list_add(compile, &pool->rows, sizeof(row_t)) = (row_t){copy, count, hash, looks_back};
  pool->table[slot] = pool->rows.count;
  return pool->rows.count - 1;
}

static int compare_items(const void *left, const void *right) {
  uint64_t first = *(const uint64_t *)left, second = *(const uint64_t *)right;
  return first < second ? -1 : first > second;
}

/* ---- threads ---- */

typedef struct visit {
  uint32_t state, held; /* held: number of its conditions */
  uint32_t older;       /* visit of the same state; NONE */
} visit_t;

/* Where a set leads, as far as it was asked. */
typedef struct look_moves {
  uint32_t *by_class; /* 1 + set by class of bytes, of a set that does not look back; 0 = unknown */
  uint32_t step, last; /* of one that does: the set after the byte of this step */
} look_moves_t;

typedef struct looker {
  nfa_t *nfa;
  compile_t *compile;
  uint32_t sets_max;
  row_pool_t sets;       /* threads, state << 32 | held */
  row_pool_t conditions; /* set << 1 | negate; 0 = none */
  row_pool_t places;     /* 1 at the start of the text, then the set of each look-behind; 0 = any */
  uint64_t *place;       /* the place where threads are being followed */
  grammar_list_t visits; /* visit_t, a stack: a look-ahead is followed while another is */
  grammar_list_t todo;   /* uint64_t, state << 32 | held, a stack */
  uint64_t *members;     /* of the set being ended */
  uint32_t members_max;
  uint32_t *newest;     /* [states] visit, where nfa->mark is of this set */
  uint8_t *looks_back;  /* [states] */
  grammar_list_t moves; /* look_moves_t, by set */
  uint8_t class_of[256];
  uint32_t num_classes, steps;
  uint32_t tail; /* set of what may follow a match; SET_DEAD: a match ends the text */
} looker_t;

_Noreturn static void too_large(const looker_t *looker, uint32_t max, const char *unit) {
  const nfa_look_t *looks = looker->nfa->looks.items;
  uint32_t at = NONE;
  for (uint32_t i = 0; i < looker->nfa->looks.count; i++) at = MIN(at, looks[i].at);
  compile_fail(looker->compile, ERR_BAD_REQUEST,
               "%s: the look-around or word boundary at byte %u takes more than %u %s.",
               looker->nfa->options->what, at, max, unit);
}

/* Returns the number of these conditions, which it sorts; NONE if they exclude each other. */
static uint32_t hold(looker_t *looker, uint64_t *items, uint32_t count) {
  uint32_t kept = 0;
  bool looks_back = false;
  qsort(items, count, sizeof *items, compare_items);
  for (uint32_t i = 0; i < count; i++) {
    if (kept > 0 && items[kept - 1] == items[i]) continue;
    if (kept > 0 && (items[kept - 1] ^ items[i]) == 1) return NONE;
    looks_back |= row_at(&looker->sets, (uint32_t)(items[i] >> 1)).looks_back;
    items[kept++] = items[i];
  }
  return row_number(looker->compile, &looker->conditions, items, kept, looks_back);
}

/* Returns the conditions `held` and those of a row, negated if asked; NONE if they exclude each
 * other. */
static uint32_t hold_more(looker_t *looker, uint32_t held, row_t more, bool negate) {
  uint64_t items[2 * CONDITIONS_MAX];
  const row_t row = row_at(&looker->conditions, held);
  if (row.count + more.count > CONDITIONS_MAX)
    too_large(looker, CONDITIONS_MAX, "conditions at one place");
  memcpy(items, row.items, row.count * sizeof *items);
  for (uint32_t i = 0; i < more.count; i++) items[row.count + i] = more.items[i] ^ negate;
  return hold(looker, items, row.count + more.count);
}

/* Whether every condition of `few` is one of `many`. */
static bool holds_all(const looker_t *looker, uint32_t many, uint32_t few) {
  if (many == few || few == 0) return true;
  const row_t all = row_at(&looker->conditions, many), some = row_at(&looker->conditions, few);
  uint32_t at = 0;
  compile_spend(looker->compile, 1);
  for (uint32_t i = 0; i < some.count; i++) {
    while (at < all.count && all.items[at] < some.items[i]) at++;
    if (at == all.count || all.items[at] != some.items[i]) return false;
  }
  return true;
}

/* ---- sets ---- */

/* Notes that a thread has come to a state. Returns false if it was noted before, or if a thread
 * with a part of its conditions was: then this thread adds nothing. */
static bool note_visit(looker_t *looker, uint32_t stamp, uint32_t state, uint32_t held) {
  const visit_t *visits = looker->visits.items;
  if (looker->nfa->mark[state] != stamp) looker->newest[state] = NONE;
  looker->nfa->mark[state] = stamp;
  for (uint32_t i = looker->newest[state]; i != NONE; i = visits[i].older) {
    if (holds_all(looker, held, visits[i].held)) return false;
  }
  compile_spend(looker->compile, 1);
  if (looker->visits.count > VISITS_MAX) too_large(looker, VISITS_MAX, "ways at one place");
  *(visit_t *)list_add(looker->compile, &looker->visits, sizeof(visit_t)) =
      (visit_t){state, held, looker->newest[state]};
  looker->newest[state] = looker->visits.count - 1;
  return true;
}

/* Returns true if the thread of a visit belongs into the set: its state reads a byte or ends, and
 * no other thread at that state has a part of its conditions. */
static bool is_member(const looker_t *looker, uint32_t index) {
  const visit_t *visits = looker->visits.items;
  const visit_t visit = visits[index];
  uint8_t kind = nfa_state(looker->nfa, visit.state)->kind;
  if (kind != NFA_BYTES && kind != NFA_FINISH && kind != NFA_FOUND && kind != NFA_MATCH)
    return false;
  for (uint32_t i = looker->newest[visit.state]; i != index; i = visits[i].older) {
    if (holds_all(looker, visit.held, visits[i].held)) return false;
  }
  return true;
}

/* Ends the set whose visits begin at `base`; returns its number. */
static uint32_t finish_set(looker_t *looker, uint32_t base) {
  uint32_t count = looker->visits.count - base, kept = 0, number = NONE;
  if (count > looker->members_max)
    looker->members = compile_grow(looker->compile, NULL, 0, count, sizeof *looker->members,
                                   &looker->members_max);
  uint64_t *members = looker->members;
  bool looks_back = false;
  for (uint32_t i = base; i < looker->visits.count && number == NONE; i++) {
    const visit_t visit = ((const visit_t *)looker->visits.items)[i];
    bool ends = visit.held == 0;
    if (ends && nfa_state(looker->nfa, visit.state)->kind == NFA_FOUND) number = SET_FOUND;
    if (ends && visit.state == 0 && looker->tail != SET_DEAD) number = looker->tail;
    if (!is_member(looker, i)) continue;
    looks_back |=
        looker->looks_back[visit.state] || row_at(&looker->conditions, visit.held).looks_back;
    members[kept++] = (uint64_t)visit.state << 32 | visit.held;
  }
  looker->visits.count = base;
  if (number != NONE) return number;
  qsort(members, kept, sizeof *members, compare_items);
  number = row_number(looker->compile, &looker->sets, members, kept, looks_back);
  if (number > looker->sets_max) too_large(looker, looker->sets_max, "automaton states");
  return number;
}

static void push(looker_t *looker, uint32_t state, uint32_t held) {
  if (held == NONE) return;
  *(uint64_t *)list_add(looker->compile, &looker->todo, sizeof(uint64_t)) =
      (uint64_t)state << 32 | held;
}

static void follow(looker_t *looker, uint32_t stamp, uint32_t from, uint32_t held);

/* Returns the set of the threads that start at state `from` at this place of the text. */
static uint32_t start_set(looker_t *looker, uint32_t from) {
  uint32_t base = looker->visits.count;
  follow(looker, ++looker->nfa->stamp, from, 0);
  return finish_set(looker, base);
}

/* A look-ahead that cannot fail any more adds no condition; one that has failed ends the thread. */
static void follow_ahead(looker_t *looker, nfa_state_t state, uint32_t held) {
  uint32_t set = start_set(looker, state.other);
  if (set > SET_FOUND) {
    uint64_t item = (uint64_t)set << 1;
    push(looker, state.to,
         hold_more(looker, held, (row_t){.items = &item, .count = 1}, state.negate));
  } else if ((set == SET_FOUND) != state.negate) {
    push(looker, state.to, held);
  }
}

/* A look-behind is true if a thread of its set stands at its end. That thread may have conditions
 * of its own, such as a word boundary, which then become conditions of this thread. */
static void follow_behind(looker_t *looker, nfa_state_t state, uint32_t held) {
  const row_t set = row_at(&looker->sets, (uint32_t)looker->place[1 + state.other]);
  for (uint32_t i = 0; i < set.count && held != NONE; i++) {
    if (nfa_state(looker->nfa, (uint32_t)(set.items[i] >> 32))->kind != NFA_MATCH) continue;
    const row_t row = row_at(&looker->conditions, (uint32_t)set.items[i]);
    if (!state.negate) {
      push(looker, state.to, hold_more(looker, held, row, false));
    } else if (row.count > 1) {
      too_large(looker, 1, "condition at the end of a negative look-behind");
    } else {
      held = row.count == 0 ? NONE : hold_more(looker, held, row, true);
    }
  }
  if (state.negate) push(looker, state.to, held);
}

/* Visits all states that are reached from a state without reading a byte. */
static void follow(looker_t *looker, uint32_t stamp, uint32_t from, uint32_t held) {
  uint32_t base = looker->todo.count;
  push(looker, from, held);
  while (looker->todo.count > base) {
    uint64_t thread = ((const uint64_t *)looker->todo.items)[--looker->todo.count];
    uint32_t id = (uint32_t)(thread >> 32);
    const nfa_state_t state = *nfa_state(looker->nfa, id);
    held = (uint32_t)thread;
    if (!note_visit(looker, stamp, id, held)) continue;
    if (state.kind == NFA_SPLIT) push(looker, state.other, held);
    if (state.kind == NFA_SPLIT || (state.kind == NFA_BEGIN && looker->place[0]))
      push(looker, state.to, held);
    if (state.kind == NFA_AHEAD) follow_ahead(looker, state, held);
    if (state.kind == NFA_BEHIND) follow_behind(looker, state, held);
  }
}

/* ---- a byte ---- */

static uint32_t move_known(looker_t *looker, uint32_t number, uint8_t byte);

/* Returns the conditions after a byte; NONE if one does not hold. */
static uint32_t move_held(looker_t *looker, uint32_t held, uint8_t byte) {
  if (held == 0) return 0;
  const row_t row = row_at(&looker->conditions, held);
  uint64_t items[CONDITIONS_MAX];
  uint32_t count = 0;
  for (uint32_t i = 0; i < row.count; i++) {
    uint64_t negate = row.items[i] & 1;
    uint32_t set = move_known(looker, (uint32_t)(row.items[i] >> 1), byte);
    if (set > SET_FOUND) {
      items[count++] = (uint64_t)set << 1 | negate;
    } else if ((set == SET_FOUND) == (negate != 0)) {
      return NONE;
    }
  }
  return hold(looker, items, count);
}

/* Returns the set after a byte. looker->place must already be the place behind the byte. */
static uint32_t move_set(looker_t *looker, uint32_t number, uint8_t byte) {
  const row_t row = row_at(&looker->sets, number);
  uint32_t base = looker->visits.count, stamp = ++looker->nfa->stamp;
  compile_spend(looker->compile, 1 + row.count / 8);
  for (uint32_t i = 0; i < row.count; i++) {
    uint32_t id = (uint32_t)(row.items[i] >> 32);
    const nfa_state_t *state = nfa_state(looker->nfa, id);
    bool reads = state->kind == NFA_BYTES && byte >= state->low && byte <= state->high;
    if (!reads && state->kind != NFA_FOUND) continue;
    uint32_t held = move_held(looker, (uint32_t)row.items[i], byte);
    if (held != NONE) follow(looker, stamp, reads ? state->to : id, held);
  }
  return finish_set(looker, base);
}

/* The same for the sets of conditions and look-behinds, which are asked with the same bytes again
 * and again: a result is kept by class of bytes, or, if it depends on the place, for one step. */
static uint32_t move_known(looker_t *looker, uint32_t number, uint8_t byte) {
  if (number <= SET_FOUND) return number;
  while (looker->moves.count <= number)
    list_add(looker->compile, &looker->moves, sizeof(look_moves_t));
  look_moves_t *moves = (look_moves_t *)looker->moves.items + number;
  compile_spend(looker->compile, 1);
  if (row_at(&looker->sets, number).looks_back) {
    if (moves->step == looker->steps) return moves->last;
    uint32_t set = move_set(looker, number, byte);
    moves = (look_moves_t *)looker->moves.items + number;
    moves->step = looker->steps;
    return moves->last = set;
  }
  if (moves->by_class == NULL)
    moves->by_class =
        compile_scratch(looker->compile, looker->num_classes, sizeof *moves->by_class);
  uint32_t *known = &moves->by_class[looker->class_of[byte]];
  if (*known == 0) *known = 1 + move_set(looker, number, byte);
  return *known - 1;
}

/* ---- the end of the text ---- */

static bool set_ends(looker_t *looker, uint32_t number);

/* Returns true if all these conditions are met if the text ends here. */
static bool held_ends(looker_t *looker, uint32_t held) {
  const row_t row = row_at(&looker->conditions, held);
  for (uint32_t i = 0; i < row.count; i++) {
    if (set_ends(looker, (uint32_t)(row.items[i] >> 1)) == (row.items[i] & 1)) return false;
  }
  return true;
}

/* Returns true if a look-behind is true at the end of the text. */
static bool behind_ends(looker_t *looker, uint32_t number) {
  const row_t set = row_at(&looker->sets, (uint32_t)looker->place[1 + number]);
  for (uint32_t i = 0; i < set.count; i++) {
    if (nfa_state(looker->nfa, (uint32_t)(set.items[i] >> 32))->kind == NFA_MATCH &&
        held_ends(looker, (uint32_t)set.items[i]))
      return true;
  }
  return false;
}

/* Whether a match is reached from a state if the text ends here. */
static bool state_ends(looker_t *looker, uint32_t from) {
  uint32_t base = looker->todo.count, stamp = ++looker->nfa->stamp;
  bool ends = false;
  push(looker, from, 0);
  while (!ends && looker->todo.count > base) {
    uint64_t thread = ((const uint64_t *)looker->todo.items)[--looker->todo.count];
    uint32_t id = (uint32_t)(thread >> 32);
    const nfa_state_t state = *nfa_state(looker->nfa, id);
    if (looker->nfa->mark[id] == stamp) continue;
    looker->nfa->mark[id] = stamp;
    compile_spend(looker->compile, 1);
    bool on = false;
    switch ((nfa_kind_t)state.kind) {
    case NFA_BYTES: break;
    case NFA_SPLIT: push(looker, state.other, 0); /* fall through */
    case NFA_FINISH: on = true; break;
    case NFA_BEGIN: on = looker->place[0] != 0; break;
    case NFA_AHEAD: on = state_ends(looker, state.other) != state.negate; break;
    case NFA_BEHIND: on = behind_ends(looker, state.other) != state.negate; break;
    case NFA_FOUND:
    case NFA_MATCH: ends = true; break;
    }
    if (on) push(looker, state.to, 0);
  }
  looker->todo.count = base;
  return ends;
}

static bool set_ends(looker_t *looker, uint32_t number) {
  if (number == SET_FOUND) return true;
  const row_t row = row_at(&looker->sets, number);
  for (uint32_t i = 0; i < row.count; i++) {
    if (held_ends(looker, (uint32_t)row.items[i]) &&
        state_ends(looker, (uint32_t)(row.items[i] >> 32)))
      return true;
  }
  return false;
}

/* ---- the automaton: states are place << 32 | set ---- */

/* The place is left out where it has no effect, so that states that act alike are one. */
static uint64_t pack_state(looker_t *looker, uint32_t set) {
  if (set == SET_DEAD || !row_at(&looker->sets, set).looks_back) return set;
  return set | (uint64_t)row_number(looker->compile, &looker->places, looker->place,
                                    1 + looker->nfa->num_behind, false)
                   << 32;
}

static void load_place(looker_t *looker, uint64_t state) {
  const row_t row = row_at(&looker->places, (uint32_t)(state >> 32));
  memset(looker->place, 0, (1 + (size_t)looker->nfa->num_behind) * sizeof *looker->place);
  if (row.count > 0) memcpy(looker->place, row.items, row.count * sizeof *looker->place);
}

static uint64_t look_step(void *context, uint64_t state, uint8_t byte) {
  looker_t *looker = context;
  looker->steps++;
  load_place(looker, state);
  looker->place[0] = 0;
  for (uint32_t i = 1; i <= looker->nfa->num_behind; i++)
    looker->place[i] = move_known(looker, (uint32_t)looker->place[i], byte);
  return pack_state(looker, move_set(looker, (uint32_t)state, byte));
}

static bool look_accepts(void *context, uint64_t state) {
  looker_t *looker = context;
  load_place(looker, state);
  return set_ends(looker, (uint32_t)state);
}

/* looks_back[i]: from state i a look-behind or ^ can be reached. */
static void find_looks_back(looker_t *looker) {
  const nfa_t *nfa = looker->nfa;
  for (bool changed = true; changed;) {
    changed = false;
    compile_spend(looker->compile, nfa->states.count);
    for (uint32_t i = 0; i < nfa->states.count; i++) {
      const nfa_state_t *state = nfa_state(nfa, i);
      bool forks = state->kind == NFA_SPLIT || state->kind == NFA_AHEAD;
      bool ends = state->kind == NFA_FOUND || state->kind == NFA_MATCH;
      bool back = state->kind == NFA_BEGIN || state->kind == NFA_BEHIND ||
                  (!ends && looker->looks_back[state->to]) ||
                  (forks && looker->looks_back[state->other]);
      changed |= back && !looker->looks_back[i];
      looker->looks_back[i] |= back;
    }
  }
}

dfa_t *regex_build_looks(nfa_t *nfa, uint32_t start) {
  compile_t *compile = nfa->compile;
  looker_t looker = {
      .nfa = nfa, .compile = compile, .sets_max = 4 * compile->limits->dfa_states_max};
  nfa->mark = compile_scratch(compile, nfa->states.count, sizeof *nfa->mark);
  looker.newest = compile_scratch(compile, nfa->states.count, sizeof *looker.newest);
  looker.looks_back = compile_scratch(compile, nfa->states.count, sizeof *looker.looks_back);
  looker.place = compile_scratch(compile, 1 + (size_t)nfa->num_behind, sizeof *looker.place);
  find_looks_back(&looker);
  uint64_t none = UINT64_MAX; /* no state */
  row_number(compile, &looker.sets, NULL, 0, false);
  row_number(compile, &looker.sets, &none, 1, false);
  row_number(compile, &looker.conditions, NULL, 0, false);
  row_number(compile, &looker.places, NULL, 0, false);
  if (nfa->tail != NONE) looker.tail = start_set(&looker, nfa->tail);
  looker.place[0] = 1;
  const nfa_look_t *looks = nfa->looks.items;
  for (uint32_t i = 0; i < nfa->looks.count; i++) {
    if (!looks[i].ahead) looker.place[1 + looks[i].number] = start_set(&looker, looks[i].start);
  }
  nfa_classes(nfa, looker.class_of);
  looker.num_classes = looker.class_of[255] + 1u; /* they ascend */
  uint64_t state = pack_state(&looker, start_set(&looker, start));
  automaton_t automaton = {&looker, state, look_step, look_accepts, looker.class_of};
  return dfa_explore(compile, &automaton);
}
