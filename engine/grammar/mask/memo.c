/* memo.c: a lazy DFA over the sets of threads of one walk.
 *
 * Runs on the thread of the walk; allocates nothing. The threads, frames and links of a state lie
 * in the matcher below those of the levels that are in no memo, and stay there until the walk ends.
 * The bounds of matcher.h hold for each path by itself: a state is entered only where making it
 * anew would keep within them, so a mask is the same with and without a memo.
 */
#include "engine/grammar/mask/memo.h"

#include "engine/base/check.h"
#include "engine/base/util.h"
#include "engine/grammar/mask/matcher.h"

#include <stdatomic.h>
#include <string.h>

/* ---- states ---- */

/* How many characters of a family, whichever they are, keep the thread alive. An extra key counts
 * nothing: its thread's count follows the listed names. */
static uint32_t takes_of(const grammar_t *grammar, const thread_t *thread, int family) {
  const grammar_node_t *node = &grammar->nodes[thread->node];
  if (node->kind != NODE_LEX && node->kind != NODE_EXTRA) return 0;
  const dfa_t *dfa = grammar->dfas[node->lexeme];
  uint32_t steps = 0;
  if (family < FAMILY_COUNT) {
    steps = dfa->steps[(size_t)thread->state * FAMILY_COUNT + (size_t)family];
  } else if (dfa->flags[thread->state] & (DFA_LOOP | DFA_WIDE)) {
    steps = STEPS_FOREVER;
  }
  if (dfa->rest == NULL || dfa->count_max == NONE) return steps;
  uint32_t taken = thread->count + dfa->rest_between;
  return taken < dfa->count_max ? MIN(steps, dfa->count_max - taken) : 0;
}

/* The same for a set: a thread moves towards the first of its level and stays there while its
 * lexeme lasts, so one of the sure ones is not dropped below. */
static uint32_t level_takes(const grammar_matcher_t *matcher, const level_t *level, int family) {
  uint32_t most = 0;
  for (uint32_t i = 0; i < level->count && i < THREADS_SURE && most < STEPS_FOREVER; i++) {
    uint32_t steps = takes_of(matcher->grammar, &matcher->threads[level->first + i], family);
    most = MAX(most, steps);
  }
  return most;
}

/* Makes a state of level `depth` and keeps what the level has made. Returns its number; 0 = no room
 * is left. */
static uint32_t add_state(grammar_matcher_t *matcher, memo_t *memo, uint32_t depth) {
  level_t *level = &matcher->levels[depth];
  uint32_t number = memo->num_states;
  if (number == MEMO_STATES || level->num_threads > matcher->place.count + MEMO_THREADS ||
      level->num_frames > matcher->place.num_frames + MEMO_FRAMES ||
      level->num_links > matcher->place.num_links + MEMO_LINKS ||
      level->num_sets > matcher->place.num_sets + MEMO_SETS)
    return 0;
  memo_state_t *state = &memo->states[memo->num_states++];
  state->first = level->first;
  state->count = level->count;
  state->num_frames = level->num_frames - matcher->kept_frames;
  state->num_links = level->num_links - matcher->kept_links;
  state->num_sets = level->own_sets;
  state->accepting = level->accepting;
  state->num_moves = 0;
  for (int family = 0; family < MEMO_FAMILIES; family++)
    state->takes[family] = (uint8_t)level_takes(matcher, level, family);
  memset(state->next, STATE_UNKNOWN, sizeof state->next);
  matcher->kept_threads = level->num_threads;
  matcher->kept_frames = level->num_frames;
  matcher->kept_links = level->num_links;
  matcher->kept_sets = level->num_sets;
  level->num_threads = level->num_frames = level->num_links = level->num_sets = 0;
  level->state = number;
  return number;
}

/* Makes level `depth` stand at the state, unless a bound is passed on the way that leads here. */
static bool enter(grammar_matcher_t *matcher, const memo_t *memo, uint32_t depth, uint32_t number) {
  const level_t *from = &matcher->levels[depth - 1];
  const memo_state_t *state = &memo->states[number];
  level_t level = {.first = state->first,
                   .count = state->count,
                   .used_threads = from->used_threads + from->count,
                   .used_frames = from->used_frames + state->num_frames,
                   .used_links = from->used_links + state->num_links,
                   .used_sets = from->used_sets + from->own_sets,
                   .own_sets = state->num_sets,
                   .state = number,
                   .accepting = state->accepting};
  if (level.used_frames > FRAMES_MAX / 2 || level.used_links > LINKS_MAX / 2 ||
      level.used_sets + level.own_sets > SETS_MAX / 2 ||
      level.count > matcher_threads_max(level.used_threads, depth))
    return false;
  matcher->levels[depth] = level;
  return true;
}

/* ---- moves -> state ---- */

static uint32_t hash_moves(const moves_t *moves) {
  uint32_t hash = moves->count;
  for (uint32_t i = 0; i < moves->count; i++) {
    const move_t *move = &moves->items[i];
    hash = (hash ^ move->node) * 0x9E3779B1u;
    hash = (hash ^ move->state) * 0x85EBCA77u;
    hash = (hash ^ move->count) * 0xC2B2AE3Du;
    hash = (hash ^ move->stack ^ hash >> 15) * 0x27D4EB2Fu;
  }
  return hash ^ hash >> 15;
}

/* Returns the slot of the state that these moves made, or a free one. */
static uint16_t *slot_of(memo_t *memo, const moves_t *moves, uint32_t hash) {
  for (uint32_t at = hash;; at++) {
    uint16_t *slot = &memo->slots[at % MEMO_SLOTS];
    const memo_state_t *state = &memo->states[*slot];
    if (*slot == STATE_UNKNOWN) return slot;
    if (state->hash == hash && state->num_moves == moves->count &&
        memcmp(&memo->moves[state->first_move], moves->items,
               moves->count * sizeof *moves->items) == 0)
      return slot;
  }
}

/* Lets the state of level `depth` be found by the moves that have made it. */
static void remember(memo_t *memo, uint32_t number, const moves_t *moves, uint32_t hash) {
  if (memo->num_moves + moves->count > MEMO_MOVES) return;
  memo_state_t *state = &memo->states[number];
  *slot_of(memo, moves, hash) = (uint16_t)number;
  state->hash = hash;
  state->first_move = memo->num_moves;
  state->num_moves = moves->count;
  memcpy(&memo->moves[memo->num_moves], moves->items, moves->count * sizeof *moves->items);
  memo->num_moves += moves->count;
}

/* ---- steps ---- */

/* The byte is new to the state of level `depth`. Returns false if nothing is left. */
static bool learn(grammar_matcher_t *matcher, grammar_scratch_t *scratch, uint32_t depth,
                  uint8_t byte) {
  memo_t *memo = &scratch->memo;
  const moves_t *moves = &scratch->moves;
  memo_state_t *from = &memo->states[matcher->levels[depth].state];
  matcher_find_moves(matcher, scratch, depth, byte);
  if (moves->count == 0) {
    from->next[byte] = STATE_DEAD;
    return false;
  }
  scratch->units += moves->count;
  uint32_t hash = hash_moves(moves), number = *slot_of(memo, moves, hash);
  if (number != STATE_UNKNOWN && enter(matcher, memo, depth + 1, number)) {
    from->next[byte] = (uint16_t)number;
    return true;
  }
  if (matcher_move(matcher, scratch, depth) == 0) return false;
  if (number != STATE_UNKNOWN || !matcher->levels[depth + 1].whole) return true;
  number = add_state(matcher, memo, depth + 1);
  if (number == 0) return true;
  from->next[byte] = (uint16_t)number;
  remember(memo, number, moves, hash);
  return true;
}

bool memo_step(grammar_matcher_t *matcher, grammar_scratch_t *scratch, uint32_t depth,
               uint8_t byte) {
  const memo_t *memo = &scratch->memo;
  uint32_t state = matcher->levels[depth].state;
  if (state == 0) return matcher_step(matcher, scratch, depth, byte) > 0;
  uint32_t next = memo->states[state].next[byte];
  if (next == STATE_DEAD) return false;
  if (next >= STATES_FIXED && enter(matcher, memo, depth + 1, next)) return true;
  if (next >= STATES_FIXED) return matcher_step(matcher, scratch, depth, byte) > 0;
  return learn(matcher, scratch, depth, byte);
}

bool memo_survives(grammar_matcher_t *matcher, grammar_scratch_t *scratch, uint32_t depth,
                   uint8_t byte) {
  uint32_t number = matcher->levels[depth].state;
  if (number == 0) return matcher_survives(matcher, scratch, depth, byte);
  memo_state_t *state = &scratch->memo.states[number];
  if (state->next[byte] == STATE_UNKNOWN) {
    bool alive = matcher_survives(matcher, scratch, depth, byte);
    state->next[byte] = alive ? STATE_ALIVE : STATE_DEAD;
  }
  return state->next[byte] != STATE_DEAD;
}

bool memo_takes(const grammar_matcher_t *matcher, const grammar_scratch_t *scratch, uint32_t depth,
                uint8_t family, uint32_t tail) {
  const level_t *level = &matcher->levels[depth];
  if (level->state != 0) return scratch->memo.states[level->state].takes[family] >= tail;
  return level_takes(matcher, level, family) >= tail;
}

/* ---- walks ---- */

void memo_leave_lane(grammar_matcher_t *matcher, grammar_scratch_t *scratch, uint32_t depth,
                     const thread_t *thread) {
  memo_t *memo = &scratch->memo;
  level_t *level = &matcher->levels[depth];
  moves_t *moves = &scratch->moves;
  moves->count = 1;
  moves->items[0] = (move_t){thread->node, thread->state, thread->count, thread->stack};
  uint32_t hash = hash_moves(moves), number = *slot_of(memo, moves, hash);
  *level = (level_t){.first = matcher->kept_threads, .count = 1, .used_threads = depth};
  if (number != STATE_UNKNOWN) {
    level->first = memo->states[number].first;
    level->state = number;
    return;
  }
  matcher->threads[level->first] = *thread;
  level->num_threads = level->first + 1;
  level->num_frames = matcher->kept_frames;
  level->num_links = matcher->kept_links;
  level->num_sets = matcher->kept_sets;
  number = add_state(matcher, memo, depth);
  if (number != 0) remember(memo, number, moves, hash);
}

static uint64_t new_serial(void) {
  static atomic_uint_fast64_t last;
  return atomic_fetch_add_explicit(&last, 1, memory_order_relaxed) + 1;
}

static void clear(grammar_matcher_t *matcher, memo_t *memo) {
  memo->serial = new_serial();
  memo->num_states = STATES_FIXED;
  memo->num_moves = 0;
  memset(memo->slots, STATE_UNKNOWN, sizeof memo->slots);
  for (uint32_t depth = 0; depth < LEVELS; depth++) matcher->levels[depth].state = 0;
}

uint64_t memo_begin(grammar_matcher_t *matcher, grammar_scratch_t *scratch) {
  clear(matcher, &scratch->memo);
  add_state(matcher, &scratch->memo, 0);
  return scratch->memo.serial;
}

/* Copies the part of a memo that is in use. */
static void copy(memo_t *to, const memo_t *from) {
  to->serial = from->serial;
  to->num_states = from->num_states;
  to->num_moves = from->num_moves;
  memcpy(to->states, from->states, from->num_states * sizeof *from->states);
  memcpy(to->moves, from->moves, from->num_moves * sizeof *from->moves);
  memcpy(to->slots, from->slots, sizeof from->slots);
}

/* The new number keeps a scratch from going on with what it had before the walk was elsewhere. */
uint64_t memo_leave(grammar_matcher_t *matcher, grammar_scratch_t *scratch) {
  scratch->memo.serial = new_serial();
  copy(&matcher->memo, &scratch->memo);
  return scratch->memo.serial;
}

void memo_continue(const grammar_matcher_t *matcher, grammar_scratch_t *scratch, uint64_t serial) {
  if (scratch->memo.serial == serial) return;
  CHECK_EQ(matcher->memo.serial, serial);
  copy(&scratch->memo, &matcher->memo);
}
