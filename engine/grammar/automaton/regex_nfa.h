/* regex_nfa.h: the nondeterministic byte automaton of a pattern, and what look-around adds to it.
 *
 * Part of a compilation, on its thread: everything is scratch memory, everything may give up.
 */
#ifndef INFERD_ENGINE_GRAMMAR_AUTOMATON_REGEX_NFA_H
#define INFERD_ENGINE_GRAMMAR_AUTOMATON_REGEX_NFA_H

#include "engine/grammar/automaton/regex.h"

typedef enum nfa_kind {
  NFA_BYTES,  /* one byte of low..high */
  NFA_SPLIT,  /* `to` or `other` */
  NFA_BEGIN,  /* ^ */
  NFA_FINISH, /* $ */
  NFA_AHEAD,  /* continues if the text from here begins with what leads from `other` to NFA_FOUND */
  NFA_BEHIND, /* continues if the text up to here ends with the look-behind number `other` */
  NFA_FOUND,  /* the end of a look-ahead, whatever follows */
  NFA_MATCH   /* the end of the pattern, state 0, or of a look-behind */
} nfa_kind_t;

typedef struct nfa_state {
  uint8_t kind;
  uint8_t low, high; /* BYTES */
  bool negate;       /* AHEAD, BEHIND: continues if it is not so */
  uint32_t to, other;
} nfa_state_t;

/* What stands in a look-around; equal ones, such as that of every \b, are one. */
typedef struct nfa_look {
  const regex_t *body;
  bool ahead;
  uint32_t at;     /* byte of the pattern where it first stands */
  uint32_t start;  /* a look-behind begins with any text */
  uint32_t number; /* of a look-behind; those inside it have lower ones */
} nfa_look_t;

/* The last step: from the set `from` each byte low..high leads to the set `to`. */
typedef struct step_memo {
  uint64_t from, to;
  uint8_t low, high;
} step_memo_t;

typedef struct nfa {
  compile_t *compile;
  const regex_options_t *options;
  grammar_list_t states; /* nfa_state_t */
  grammar_list_t looks;  /* nfa_look_t */
  uint32_t num_behind;
  uint32_t written; /* tree nodes, counted repetition written out */
  uint32_t tail;    /* search: start of "anything may follow"; NONE */
  /* subset construction */
  grammar_list_t sets; /* set_t; [0] unused: number 0 is the dead state */
  uint32_t *table, table_size;
  uint32_t *stack, *members; /* [states] */
  uint64_t *bits;            /* one for each state, 0 between two sorts */
  uint32_t *mark, stamp;     /* [states] */
  step_memo_t memo;
} nfa_t;

static inline nfa_state_t *nfa_state(const nfa_t *nfa, uint32_t id) {
  return (nfa_state_t *)nfa->states.items + id;
}

/* Puts bytes that no range distinguishes into one class. */
void nfa_classes(const nfa_t *nfa, uint8_t class_of[256]);

/* regex_look.c: the automaton of a pattern with look-around, from the NFA state `start`. */
dfa_t *regex_build_looks(nfa_t *nfa, uint32_t start);

#endif
