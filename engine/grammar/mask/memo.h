/* memo.h: what bytes make of sets of threads, kept while one walk over the vocabulary lasts.
 *
 * A walk comes to the same set of threads at many nodes of the tries: behind every word that ends a
 * string stands the same quote. Here such sets are the states of an automaton that is made as far
 * as the walk needs it (a lazy DFA). Two sets are known to be equal if the same moves made them. A
 * memo has a fixed size; what finds no room in it is made again each time. It changes no mask. A
 * walk that stops leaves its memo with the matcher, so it costs the same in pieces, and on several
 * threads.
 */
#ifndef INFERD_ENGINE_GRAMMAR_MASK_MEMO_H
#define INFERD_ENGINE_GRAMMAR_MASK_MEMO_H

#include "engine/grammar/mask/place.h"

/* A family more: characters of several bytes. */
enum { MEMO_WIDE = FAMILY_COUNT, MEMO_FAMILIES };

enum {
  MEMO_STATES = 256, /* the first ones are not sets of threads */
  MEMO_SLOTS = 1024, /* of the table that finds a state by its moves */
  MEMO_MOVES = 4096, /* of all states */
  MEMO_THREADS = 2048,
  MEMO_FRAMES = 1024,
  MEMO_LINKS = 2048,
  MEMO_SETS = 128
};

/* What a byte does to one thread. The moves of a set of threads decide all that follows. */
typedef struct move {
  uint32_t node, state, count, stack; /* node: with a MOVE_ bit */
} move_t;

enum {
  MOVE_LEAVE = 1 << 29,       /* the lexeme has ended: `node` comes next above the stack */
  MOVE_ENTER = 2 << 29,       /* the listed name `state` has come to the object at (node, count) */
  MOVE_BITS = 3 << 29,        /* none of them: the thread continues its lexeme */
  MOVES_MAX = 2 * THREADS_MAX /* a thread continues, leaves, or both */
};

typedef struct moves {
  uint32_t count;
  move_t items[MOVES_MAX];
} moves_t;

/* A set of threads of the matcher, and what its closure has made. */
typedef struct memo_state {
  uint32_t first, count;
  uint32_t num_frames, num_links, num_sets; /* made by the closure; sets: looked for */
  uint32_t hash, first_move, num_moves;
  bool accepting;
  uint8_t takes[MEMO_FAMILIES]; /* so many characters of a family keep the set alive */
  uint16_t next[256];           /* a state, or one of the fixed ones */
} memo_state_t;

enum { STATE_UNKNOWN, STATE_DEAD, STATE_ALIVE, STATES_FIXED };

typedef struct memo {
  uint64_t serial;
  uint32_t num_states, num_moves;
  memo_state_t states[MEMO_STATES];
  move_t moves[MEMO_MOVES];
  uint16_t slots[MEMO_SLOTS]; /* STATE_UNKNOWN = free */
} memo_t;

/* Begins a walk at level 0 of a loaded matcher. Returns the number of its memo, which no other memo
 * of this process has had; never 0. */
uint64_t memo_begin(grammar_matcher_t *matcher, grammar_scratch_t *scratch);
/* The walk stops: its memo is copied into the matcher. Returns the number that it has now. */
uint64_t memo_leave(grammar_matcher_t *matcher, grammar_scratch_t *scratch);
/* The walk of this matcher whose memo is number `serial` continues, with any scratch. */
void memo_continue(const grammar_matcher_t *matcher, grammar_scratch_t *scratch, uint64_t serial);
/* Level depth + 1 = what `byte` makes of level depth. Returns false if nothing is left. */
bool memo_step(grammar_matcher_t *matcher, grammar_scratch_t *scratch, uint32_t depth,
               uint8_t byte);
/* Whether memo_step would leave something: for the last byte of a token. */
bool memo_survives(grammar_matcher_t *matcher, grammar_scratch_t *scratch, uint32_t depth,
                   uint8_t byte);
/* Level depth = this thread alone, which has taken one byte for each level. */
void memo_leave_lane(grammar_matcher_t *matcher, grammar_scratch_t *scratch, uint32_t depth,
                     const thread_t *thread);
/* Whether any `tail` characters of the family, or fewer, keep level `depth` alive. */
bool memo_takes(const grammar_matcher_t *matcher, const grammar_scratch_t *scratch, uint32_t depth,
                uint8_t family, uint32_t tail);

#endif
