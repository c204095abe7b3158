/* cost.h: what a step costs, learned from the steps that ran.
 *
 * The time of a step is taken as a sum: a part that every step has, and parts that grow with its
 * rows of logits, its tokens, the keys that its decodes read, and the pairs of a query and a key in
 * its chunks of prompts. The cost of each is the least-squares fit of relative errors, none below
 * 0. Steps are kept apart by kind, which is with or without chunks and the size as a power of two,
 * and each kind counts the same: a thousand equal decodes do not make the fit forget a prompt.
 *
 * One step moves the fit little: it counts as a fraction of its kind, and as no more than a
 * multiple of what was expected. So neither a pause of the machine nor a client can spoil the fit,
 * and what changes for good is learned within some tens of steps. Engine thread only; allocates
 * nothing. All zero bytes are a fit that knows nothing.
 */
#ifndef INFERD_ENGINE_COST_H
#define INFERD_ENGINE_COST_H

#include <stdbool.h>
#include <stdint.h>

typedef enum cost_term {
  COST_STEP,  /* once in a step */
  COST_ROW,   /* selected rows: logits and sampling */
  COST_TOKEN, /* everything but attention and logits */
  COST_KEY,   /* keys that entries of one token read */
  COST_PAIR,  /* queries times keys of longer entries */
  COST_TERMS
} cost_term_t;

enum { COST_KINDS = 40 };

/* How much there is of each term, in an entry of a plan or in a whole step. */
typedef struct cost_work {
  double of[COST_TERMS];
} cost_work_t;

typedef struct cost {
  double ns[COST_TERMS]; /* of one unit of each term, >= 0 */
  uint64_t num_steps;    /* that were learned from */
  struct cost_evidence {
    double weight;                                              /* steps, older ones for less */
    double products[COST_TERMS][COST_TERMS], times[COST_TERMS]; /* the normal equations */
  } kinds[COST_KINDS];
} cost_t;

/* The work of `tokens` tokens behind `start` others, without rows. */
static inline cost_work_t cost_of_tokens(int32_t start, int32_t tokens) {
  double n = tokens, keys = n * start + n * (n + 1) / 2;
  return (cost_work_t){.of = {[COST_TOKEN] = n,
                              [COST_KEY] = tokens > 1 ? 0 : keys,
                              [COST_PAIR] = tokens > 1 ? keys : 0}};
}
/* Adds `times` times the work; -1 takes it back. */
static inline void cost_add(cost_work_t *sum, const cost_work_t *work, int times) {
  for (int t = 0; t < COST_TERMS; t++) sum->of[t] += times * work->of[t];
}

/* A step of this work, COST_STEP included, took `ns`. */
void cost_learn(cost_t *cost, const cost_work_t *work, double ns);
/* Whether enough steps were learned from for the two functions below to mean anything. */
bool cost_is_known(const cost_t *cost);
/* The time that this work takes. */
static inline double cost_ns(const cost_t *cost, const cost_work_t *work) {
  double ns = 0;
  for (int t = 0; t < COST_TERMS; t++) ns += cost->ns[t] * work->of[t];
  return ns;
}
/* The time of the next token of a sequence behind `start` others, its row included. */
static inline double cost_next_ns(const cost_t *cost, int32_t start) {
  return cost->ns[COST_ROW] + cost->ns[COST_TOKEN] + cost->ns[COST_KEY] * (start + 1.0);
}
/* Adds that work `times` times. */
static inline void cost_add_next(cost_work_t *sum, int32_t start, int times) {
  sum->of[COST_ROW] += times;
  sum->of[COST_TOKEN] += times;
  sum->of[COST_KEY] += times * (start + 1.0);
}
/* Most tokens behind `start` others that take at most `ns`, if each is a selected row (or none but
 * the last is); 0 if ns <= 0. */
int32_t cost_tokens(const cost_t *cost, int32_t start, bool rows, double ns);

#endif
