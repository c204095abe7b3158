/* mask.c: computes which tokens may come next, as a row of bits.
 *
 * Runs on the engine thread or a worker; allocates nothing. The tries of the vocabulary are walked
 * in preorder with one set of threads per depth; if a set is dead, the whole subtree is skipped;
 * if a set allows every token below, the subtree is allowed at once. A walk may stop between two
 * nodes: it keeps the number of the next node, and the matcher keeps the sets of threads on the way
 * to that node.
 */
#include "engine/base/util.h"
#include "engine/grammar/mask/matcher.h"

#include <string.h>

/* ---- bits ---- */

static void set_bit(uint32_t *row, int32_t id) {
  row[id / 32] |= UINT32_C(1) << (id % 32);
}

/* Allows the tokens that end at node i. */
static inline void allow(const grammar_vocabulary_t *vocabulary, uint32_t *row, uint32_t i) {
  const trie_node_t *node = &vocabulary->nodes[i];
  if (node->token >= 0) set_bit(row, node->token);
  if (!node->twins) return;
  for (uint32_t k = vocabulary->first_id[i]; k < vocabulary->first_id[i + 1]; k++)
    set_bit(row, vocabulary->ids[k]);
}

static void allow_row(const grammar_vocabulary_t *vocabulary, uint32_t *row,
                      const uint32_t *ready) {
  for (int32_t i = 0; i < vocabulary->row_words; i++) row[i] |= ready[i];
}

/* ---- allowing a part of the vocabulary as a whole ---- */

/* Returns true if any `tail` characters of the family, or fewer, keep the state alive. */
static inline bool takes(const dfa_t *dfa, uint32_t state, uint32_t count, uint8_t family,
                         uint8_t tail) {
  if (dfa->steps[(size_t)state * FAMILY_COUNT + family] < tail) return false;
  return dfa->rest == NULL || dfa->count_max == NONE ||
         count + tail + dfa->rest_between <= dfa->count_max;
}

/* The same for characters of several bytes. */
static inline bool takes_wide(const dfa_t *dfa, uint32_t state, uint32_t count, uint32_t tail) {
  if (!(dfa->flags[state] & (DFA_LOOP | DFA_WIDE))) return false;
  return dfa->rest == NULL || dfa->count_max == NONE ||
         count + tail + dfa->rest_between <= dfa->count_max;
}

/* Returns the automaton of a thread; NULL for threads that follow names or wait for a token. */
static const dfa_t *dfa_of(const grammar_t *grammar, const thread_t *thread) {
  const grammar_node_t *node = &grammar->nodes[thread->node];
  return node->kind == NODE_LEX || node->kind == NODE_EXTRA ? grammar->dfas[node->lexeme] : NULL;
}

/* As `takes`, for a thread. The count of an EXTRA thread is a node of the trie of names, so its
 * automaton has no counter. */
static bool thread_takes(const grammar_t *grammar, const thread_t *thread, uint8_t family,
                         uint8_t tail) {
  const dfa_t *dfa = dfa_of(grammar, thread);
  return dfa != NULL && takes(dfa, thread->state, thread->count, family, tail);
}

/* ---- walks ---- */

typedef struct walk {
  grammar_matcher_t *matcher;
  grammar_scratch_t *scratch;
  const grammar_vocabulary_t *vocabulary;
  uint32_t *row;
  grammar_walk_t *at;
  uint64_t units_max; /* the walk stops when the scratch has counted more */
  bool ready;         /* ready rows may be used; the tests compare with a walk without them */
} walk_t;

static const uint32_t plain_groups = (1u << GROUP_CUT) - 1, all_groups = (1u << GROUP_COUNT) - 1;

static void allow_up_to(const walk_t *walk, const uint32_t *up_to, uint32_t characters) {
  size_t words = (size_t)walk->vocabulary->row_words;
  allow_row(walk->vocabulary, walk->row, up_to + characters * words);
}

/* A string that has room for a few more characters allows exactly the tokens that are not longer.
 */
static bool take_length(walk_t *walk, const thread_t *thread) {
  const grammar_node_t *node = &walk->matcher->grammar->nodes[thread->node];
  const dfa_t *dfa = dfa_of(walk->matcher->grammar, thread);
  if (node->kind != NODE_LEX || dfa->rest == NULL || dfa->count_max == NONE ||
      dfa->rest_between > 0)
    return false;
  uint32_t room = dfa->count_max - thread->count;
  if (room >= LENGTH_ROWS) return false;
  if (dfa->steps[(size_t)thread->state * FAMILY_COUNT + FAMILY_PLAIN] <= room) return false;
  allow_up_to(walk, walk->vocabulary->up_to, room);
  walk->at->done |= plain_groups;
  return true;
}

/* Where letters go on for an exact number of characters, a token of letters is allowed if it is not
 * longer. The lexeme ends at none of them, so nothing else can take them. */
static void take_letters(walk_t *walk, const thread_t *thread, vocabulary_group_t group) {
  static const uint8_t exact[] = {[GROUP_LOWER] = DFA_EXACT_LOWER, [GROUP_ALPHA] = DFA_EXACT_ALPHA};
  static const uint8_t family[] = {[GROUP_LOWER] = FAMILY_LOWER, [GROUP_ALPHA] = FAMILY_ALPHA};
  const grammar_node_t *node = &walk->matcher->grammar->nodes[thread->node];
  const dfa_t *dfa = dfa_of(walk->matcher->grammar, thread);
  if (node->kind != NODE_LEX || walk->at->done >> group & 1) return;
  uint32_t steps = dfa->steps[(size_t)thread->state * FAMILY_COUNT + family[group]];
  if (!(dfa->flags[thread->state] & exact[group]) || steps >= LENGTH_ROWS) return;
  allow_up_to(walk, walk->vocabulary->letters_up_to[group], steps);
  walk->at->done |= 1u << group;
}

static void take_bundle(walk_t *walk, const thread_t *thread, const bundle_t *bundle,
                        uint32_t groups) {
  if ((walk->at->done & groups) == groups) return;
  if (!thread_takes(walk->matcher->grammar, thread, bundle->family, bundle->tail)) return;
  allow_row(walk->vocabulary, walk->row, bundle->row);
  walk->at->done |= groups;
}

static void take_wide(walk_t *walk, const thread_t *thread) {
  const bundle_t *bundle = &walk->vocabulary->groups[GROUP_WIDE];
  const dfa_t *dfa = dfa_of(walk->matcher->grammar, thread);
  if (walk->at->done >> GROUP_WIDE & 1) return;
  if (!takes_wide(dfa, thread->state, thread->count, bundle->tail)) return;
  allow_row(walk->vocabulary, walk->row, bundle->row);
  walk->at->done |= 1u << GROUP_WIDE;
}

static void take_groups(walk_t *walk, const matcher_place_t *place) {
  const grammar_vocabulary_t *vocabulary = walk->vocabulary;
  for (uint32_t i = 0; i < place->count && i < THREADS_SURE; i++) {
    const thread_t *thread = &place->threads[i];
    if (dfa_of(walk->matcher->grammar, thread) == NULL) continue;
    if (place->count == 1 && take_length(walk, thread)) return;
    take_bundle(walk, thread, &vocabulary->all, all_groups);
    take_bundle(walk, thread, &vocabulary->plain, plain_groups);
    for (int group = 0; group < GROUP_COUNT; group++) {
      take_bundle(walk, thread, &vocabulary->groups[group], 1u << group);
    }
    take_wide(walk, thread);
    if (place->count > 1) continue;
    take_letters(walk, thread, GROUP_LOWER);
    take_letters(walk, thread, GROUP_ALPHA);
  }
}

/* Whether the walk stops before node `next`. */
static bool stops(const walk_t *walk, uint32_t next) {
  if (walk->scratch->units <= walk->units_max) return false;
  walk->at->node = next;
  return true;
}

/* Decides one node, and all nodes below it if that is possible. Returns how many nodes are decided.
 */
static uint32_t decide(walk_t *walk, uint32_t i) {
  const trie_node_t *node = &walk->vocabulary->nodes[i];
  uint32_t depth = node->depth - 1u;
  if (node->size == 1) {
    if (memo_survives(walk->matcher, walk->scratch, depth, node->byte))
      allow(walk->vocabulary, walk->row, i);
    return 1;
  }
  if (walk->ready && !node->mixed &&
      memo_takes(walk->matcher, walk->scratch, depth, MEMO_WIDE, node->tail + 1u)) {
    vocabulary_allow_below(walk->vocabulary, i, walk->row);
    return node->size;
  }
  if (!memo_step(walk->matcher, walk->scratch, depth, node->byte)) return node->size;
  if (walk->ready &&
      memo_takes(walk->matcher, walk->scratch, depth + 1, node->family, node->tail)) {
    vocabulary_allow_below(walk->vocabulary, i, walk->row);
    return node->size;
  }
  allow(walk->vocabulary, walk->row, i);
  return 1;
}

/* Walks the nodes first .. last - 1. */
static int walk_nodes(walk_t *walk, uint32_t first, uint32_t last) {
  for (uint32_t i = first; i < last;) {
    walk->scratch->units++;
    i += decide(walk, i);
    if (i < last && stops(walk, i)) return GRAMMAR_LATER;
  }
  return 0;
}

/* A walk inside one lexeme, where a step is a look-up: instead of threads it has a state and a
 * counter for each depth, in the matcher's memory. Where the lexeme may end, the subtree is walked
 * with threads. */
typedef struct mask_lane {
  const dfa_t *dfa;
  const thread_t *thread; /* of the place */
  uint32_t *state, *count;
} mask_lane_t;

/* Computes level depth + 1 of the lane. Returns true if it is alive. */
static inline bool lane_step(mask_lane_t *lane, uint32_t depth, uint8_t byte) {
  const dfa_t *dfa = lane->dfa;
  uint32_t to = dfa_next(dfa, lane->state[depth], byte);
  lane->state[depth + 1] = to;
  if (dfa->rest == NULL || to == DFA_DEAD) return to != DFA_DEAD;
  uint32_t count = lane->count[depth] + ((dfa->flags[to] & DFA_COUNT) != 0);
  if (dfa->count_max == NONE) {
    lane->count[depth + 1] = MIN(dfa->count_min, count);
    return true;
  }
  lane->count[depth + 1] = count;
  return count + dfa->rest[to] <= dfa->count_max;
}

/* Converts level `depth` of the lane to a set of one thread. */
static void lane_leave(const walk_t *walk, const mask_lane_t *lane, uint32_t depth) {
  thread_t thread = *lane->thread;
  thread.state = lane->state[depth];
  if (lane->dfa->rest != NULL) thread.count = lane->count[depth];
  memo_leave_lane(walk->matcher, walk->scratch, depth, &thread);
}

/* Returns true if the lexeme may end here or continue; to end it needs the least count. */
static bool lane_survives(const mask_lane_t *lane, uint32_t depth) {
  const dfa_t *dfa = lane->dfa;
  return dfa->rest == NULL || (dfa->flags[lane->state[depth]] & DFA_LIVE) ||
         lane->count[depth] >= dfa->count_min;
}

/* A node whose byte keeps the lane alive: decides it, and all nodes below it if that is possible.
 * Returns how many nodes are decided; 0 = threads are needed, the lexeme may end here. */
static uint32_t decide_lane(const walk_t *walk, const mask_lane_t *lane, uint32_t i) {
  const trie_node_t *node = &walk->vocabulary->nodes[i];
  uint32_t depth = node->depth;
  if (node->size == 1) {
    if (lane_survives(lane, depth)) allow(walk->vocabulary, walk->row, i);
    return 1;
  }
  if (walk->ready &&
      takes(lane->dfa, lane->state[depth], lane->count[depth], node->family, node->tail)) {
    vocabulary_allow_below(walk->vocabulary, i, walk->row);
    return node->size;
  }
  if (lane->dfa->flags[lane->state[depth]] & DFA_ACCEPT) return 0;
  allow(walk->vocabulary, walk->row, i);
  return 1;
}

/* Nodes first .. last - 1, of which those before at->until are walked with threads. */
static int walk_lane(walk_t *walk, mask_lane_t *lane, uint32_t first, uint32_t last) {
  for (uint32_t i = first; i < last;) {
    const trie_node_t *node = &walk->vocabulary->nodes[i];
    uint32_t depth = node->depth - 1u, count = node->size;
    walk->scratch->units += i >= walk->at->until;
    if (i >= walk->at->until && walk->ready && !node->mixed &&
        takes_wide(lane->dfa, lane->state[depth], lane->count[depth], node->tail + 1u)) {
      vocabulary_allow_below(walk->vocabulary, i, walk->row);
    } else if (i >= walk->at->until && lane_step(lane, depth, node->byte)) {
      count = decide_lane(walk, lane, i);
    }
    if (count == 0) {
      lane_leave(walk, lane, depth);
      walk->at->until = i + node->size;
    }
    if (i < walk->at->until) {
      int code = walk_nodes(walk, i, walk->at->until);
      if (code) return code;
      i = walk->at->until;
    } else {
      i += count;
    }
    if (i < last && stops(walk, i)) return GRAMMAR_LATER;
  }
  return 0;
}

/* Walks all tries, with threads if `lane` is NULL. Returns 0 or GRAMMAR_LATER. A byte that leads to
 * the dead state is tried only once for all groups; the walk may stop behind it, because many
 * threads look for it among many names. */
static int walk_roots(walk_t *walk, mask_lane_t *lane) {
  const grammar_vocabulary_t *vocabulary = walk->vocabulary;
  grammar_walk_t *at = walk->at;
  for (int byte = 0; byte < 256; byte++) {
    uint32_t k = MAX(vocabulary->root_of[byte], at->root), end = vocabulary->root_of[byte + 1];
    if (k >= end) continue;
    /* The walk goes on behind a root or a node of this byte, so it is alive and counted. */
    bool goes_on = at->node != 0 || k > vocabulary->root_of[byte];
    walk->scratch->units += !goes_on;
    bool alive =
        goes_on || (lane != NULL ? lane_step(lane, 0, (uint8_t)byte)
                                 : memo_survives(walk->matcher, walk->scratch, 0, (uint8_t)byte));
    for (; alive && k < end; k++) {
      uint32_t root = vocabulary->roots[k], last = root + vocabulary->nodes[root].size;
      if (at->done >> vocabulary->root_group[k] & 1) continue;
      uint32_t first = MAX(root, at->node);
      at->root = k;
      int code = lane != NULL ? walk_lane(walk, lane, first, last) : walk_nodes(walk, first, last);
      if (code) return code;
      at->root = k + 1;
      at->node = at->until = 0;
      if (walk->scratch->units > walk->units_max) return GRAMMAR_LATER;
    }
    if (alive) continue;
    at->root = end;
    if (walk->scratch->units > walk->units_max) return GRAMMAR_LATER;
  }
  return 0;
}

static int walk(walk_t *walk) {
  grammar_matcher_t *matcher = walk->matcher;
  const matcher_place_t *place = &matcher->place;
  const thread_t *only = &place->threads[0];
  const grammar_node_t *node = &matcher->grammar->nodes[only->node];
  if (walk->ready && !walk->at->begun) take_groups(walk, place);
  /* A key that differs from all listed names is treated like any string. */
  bool single = node->kind == NODE_LEX || (node->kind == NODE_EXTRA && only->count == NONE);
  if (place->count != 1 || !single) return walk_roots(walk, NULL);
  mask_lane_t lane = {.dfa = matcher->grammar->dfas[node->lexeme],
                      .thread = only,
                      .state = matcher->lane_states,
                      .count = matcher->lane_counts};
  lane.state[0] = only->state;
  lane.count[0] = only->count;
  return walk_roots(walk, &lane);
}

static bool any_bit(const uint32_t *row, int32_t words) {
  for (int32_t i = 0; i < words; i++) {
    if (row[i]) return true;
  }
  return false;
}

int matcher_walk_on(grammar_matcher_t *matcher, grammar_scratch_t *scratch, bool ready,
                    grammar_walk_t *at, uint64_t units, uint32_t *row) {
  const grammar_vocabulary_t *vocabulary = matcher->vocabulary;
  uint64_t before = scratch->units;
  scratch->lowest = at->begun ? at->lowest : UINT32_MAX;
  if (!at->begun) {
    memset(row, 0, (size_t)vocabulary->row_words * sizeof *row);
    matcher_load(matcher);
    at->memo = memo_begin(matcher, scratch);
  }
  memo_continue(matcher, scratch, at->memo);
  walk_t whole = {.matcher = matcher,
                  .scratch = scratch,
                  .vocabulary = vocabulary,
                  .row = row,
                  .at = at,
                  .units_max = before + MIN(units, UINT64_MAX - before),
                  .ready = ready};
  int code = matcher->place.count > 0 ? walk(&whole) : 0;
  if (code == GRAMMAR_LATER) at->memo = memo_leave(matcher, scratch);
  at->begun = true;
  at->lowest = scratch->lowest;
  at->units += scratch->units - before;
  return code;
}

void matcher_walk(grammar_matcher_t *matcher, grammar_scratch_t *scratch, bool ready,
                  uint32_t *row) {
  grammar_walk_t at = {0};
  matcher_walk_on(matcher, scratch, ready, &at, UINT64_MAX, row);
}

int matcher_finish(const grammar_matcher_t *matcher, const int32_t *stop_ids, int32_t num_stop_ids,
                   uint32_t *row) {
  const grammar_vocabulary_t *vocabulary = matcher->vocabulary;
  const matcher_place_t *place = &matcher->place;
  for (uint32_t i = 0; i < place->count; i++) {
    const grammar_node_t *node = &matcher->grammar->nodes[place->threads[i].node];
    if (node->kind == NODE_TOKEN && node->token < (uint32_t)vocabulary->row_width)
      set_bit(row, (int32_t)node->token);
  }
  for (int32_t i = 0; i < num_stop_ids; i++) {
    int32_t id = stop_ids[i];
    if (id < 0 || id >= vocabulary->row_width) continue;
    row[id / 32] &= ~(UINT32_C(1) << (id % 32));
    if (place->accepting) set_bit(row, id);
  }
  return place->accepting || any_bit(row, vocabulary->row_words) ? 0 : ERR_NO_CHOICE;
}

int grammar_matcher_fill(grammar_matcher_t *matcher, grammar_scratch_t *scratch,
                         const int32_t *stop_ids, int32_t num_stop_ids, uint32_t *row) {
  matcher_walk(matcher, scratch, true, row);
  return matcher_finish(matcher, stop_ids, num_stop_ids, row);
}
