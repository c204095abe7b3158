/* mask.c: which tokens may come next, as a row of bits.
 *
 * Runs on the engine thread or a worker; allocates nothing. The tries of the vocabulary are walked
 * in preorder with one set of threads per depth; a dead set skips the whole subtree, and one that
 * takes whatever lies below takes it at once.
 */
#include "engine/grammar/mask/matcher.h"

#include <string.h>

/* ---- bits ---- */

static void set_bit(uint32_t *row, int32_t id) {
  row[id / 32] |= UINT32_C(1) << (id % 32);
}

static void allow(const grammar_vocabulary_t *v, uint32_t *row, int32_t token) {
  for (int32_t id = token; id >= 0; id = v->same[id]) set_bit(row, id);
}

static void allow_row(const grammar_vocabulary_t *v, uint32_t *row, const uint32_t *ready) {
  for (int32_t i = 0; i < v->row_words; i++) row[i] |= ready[i];
}

/* ---- taking a part of the vocabulary as a whole ---- */

/* True when at most `tail` characters of the family keep the state alive, whatever they are. */
static inline bool takes(const dfa_t *d, uint32_t state, uint32_t count, uint8_t family,
                         uint8_t tail) {
  if (d->steps[(size_t)state * FAMILY_COUNT + family] < tail) return false;
  return d->rest == NULL || d->count_max == NONE || count + tail + d->rest_between <= d->count_max;
}

/* The automaton that the thread is in; NULL for those that follow names or wait for a token. */
static const dfa_t *dfa_of(const grammar_t *g, const thread_t *t) {
  const node_t *n = &g->nodes[t->node];
  return n->kind == NODE_LEX || n->kind == NODE_EXTRA ? g->dfas[n->a] : NULL;
}

/* An extra key counts nothing: its thread's count follows the listed names. */
static bool thread_takes(const grammar_t *g, const thread_t *t, uint8_t family, uint8_t tail) {
  const dfa_t *d = dfa_of(g, t);
  return d != NULL && takes(d, t->state, t->count, family, tail);
}

/* ---- walks ---- */

typedef struct walk {
  grammar_matcher_t *m;
  grammar_scratch_t *s;
  const grammar_vocabulary_t *v;
  uint32_t *row;
  uint32_t work;
  uint32_t done; /* bit = group whose tokens are all decided */
  bool ready;    /* whole parts may be taken; the tests compare with a walk without */
} walk_t;

static const uint32_t plain_groups = (1u << GROUP_OTHER) - 1, all_groups = (1u << GROUP_COUNT) - 1;

/* A string with room for a few more characters takes exactly the tokens that are no longer. */
static bool take_length(walk_t *w, const thread_t *t) {
  const node_t *n = &w->m->grammar->nodes[t->node];
  const dfa_t *d = dfa_of(w->m->grammar, t);
  if (n->kind != NODE_LEX || d->rest == NULL || d->count_max == NONE || d->rest_between > 0)
    return false;
  uint32_t room = d->count_max - t->count;
  if (room >= LENGTH_ROWS) return false;
  if (d->steps[(size_t)t->state * FAMILY_COUNT + FAMILY_PLAIN] <= room) return false;
  allow_row(w->v, w->row, w->v->up_to + (size_t)room * (size_t)w->v->row_words);
  w->done |= plain_groups;
  return true;
}

static void take_bundle(walk_t *w, const thread_t *t, const bundle_t *bundle, uint32_t groups) {
  if ((w->done & groups) == groups) return;
  if (!thread_takes(w->m->grammar, t, bundle->family, bundle->tail)) return;
  allow_row(w->v, w->row, bundle->row);
  w->done |= groups;
}

static void take_groups(walk_t *w, const place_t *place) {
  const grammar_vocabulary_t *v = w->v;
  for (uint32_t i = 0; i < place->count; i++) {
    const thread_t *t = &place->threads[i];
    if (dfa_of(w->m->grammar, t) == NULL) continue;
    if (place->count == 1 && take_length(w, t)) return;
    take_bundle(w, t, &v->all, all_groups);
    take_bundle(w, t, &v->plain, plain_groups);
    for (int group = 0; group < GROUP_COUNT; group++) {
      take_bundle(w, t, &v->groups[group], 1u << group);
    }
  }
}

/* Takes everything below `node`, which stands at level `depth`, if some thread takes that. */
static bool take_below(walk_t *w, uint32_t depth, uint32_t node) {
  const trie_node_t *t = &w->v->nodes[node];
  const level_t *level = &w->s->levels[depth];
  for (uint32_t i = 0; w->ready && i < level->count; i++) {
    const thread_t *thread = &w->s->threads[level->first + i];
    if (!thread_takes(w->m->grammar, thread, t->family, t->tail)) continue;
    vocabulary_allow_below(w->v, node, w->row);
    return true;
  }
  return false;
}

/* One thread inside one lexeme that cannot end with this byte: a look-up makes level depth + 1.
 * Returns 1 = alive, 0 = dead, -1 = it takes the general step. */
static int quick_step(const walk_t *w, uint32_t depth, uint8_t byte) {
  const level_t *from = &w->s->levels[depth];
  const thread_t *t = &w->s->threads[from->first];
  if (from->count != 1) return -1;
  const grammar_t *g = w->m->grammar;
  const node_t *n = &g->nodes[t->node];
  if (n->kind != NODE_LEX && (n->kind != NODE_EXTRA || t->count != NONE)) return -1;
  const dfa_t *d = g->dfas[n->a];
  uint32_t to = dfa_next(d, t->state, byte);
  if (to == DFA_DEAD) return 0;
  if (d->rest != NULL || (d->flags[to] & DFA_ACCEPT)) return -1;
  w->s->levels[depth + 1] =
      (level_t){.first = from->first + 1, .count = 1, .num_frames = from->num_frames};
  w->s->threads[from->first + 1] = (thread_t){t->node, to, t->count, t->stack};
  return 1;
}

/* Nodes first .. last - 1, which lie below level `depth` of the node before them. */
static int walk_nodes(walk_t *w, uint32_t first, uint32_t last) {
  for (uint32_t i = first; i < last;) {
    const trie_node_t *t = &w->v->nodes[i];
    uint32_t depth = t->depth - 1u;
    if (t->size == 1) {
      w->work += w->s->levels[depth].count;
      if (matcher_survives(w->m, w->s, depth, t->byte)) allow(w->v, w->row, t->token);
      i++;
      continue;
    }
    int alive = quick_step(w, depth, t->byte);
    if (alive < 0) alive = matcher_step(w->m, w->s, depth, t->byte);
    w->work += 1 + w->s->levels[depth].count;
    if (alive < 0 || w->work > WORK_MAX) return ERR_INTERNAL;
    if (alive == 0 || take_below(w, depth + 1, i)) {
      i += t->size;
    } else {
      allow(w->v, w->row, t->token);
      i++;
    }
  }
  return 0;
}

/* Inside one lexeme a step is a look-up: state and counter by depth, no threads. Where the lexeme
 * may end, the subtree is walked with threads. */
typedef struct lane {
  const dfa_t *dfa;
  thread_t thread;
  uint32_t state[TOKEN_BYTES_MAX + 1], count[TOKEN_BYTES_MAX + 1];
} lane_t;

/* True when depth + 1 of the lane is alive. */
static inline bool lane_step(lane_t *l, uint32_t depth, uint8_t byte) {
  const dfa_t *d = l->dfa;
  uint32_t to = dfa_next(d, l->state[depth], byte);
  l->state[depth + 1] = to;
  if (d->rest == NULL || to == DFA_DEAD) return to != DFA_DEAD;
  uint32_t count = l->count[depth] + ((d->flags[to] & DFA_COUNT) != 0);
  if (d->count_max == NONE) {
    l->count[depth + 1] = count > d->count_min ? d->count_min : count;
    return true;
  }
  l->count[depth + 1] = count;
  return count + d->rest[to] <= d->count_max;
}

/* Level `depth` as threads would have it: one thread on each. */
static void lane_leave(const walk_t *w, const lane_t *l, uint32_t depth) {
  thread_t thread = l->thread;
  thread.state = l->state[depth];
  if (l->dfa->rest != NULL) thread.count = l->count[depth];
  w->s->threads[depth] = thread;
  w->s->levels[depth] =
      (level_t){.first = depth, .count = 1, .num_frames = w->s->levels[0].num_frames};
}

/* Whether the state reached may end its lexeme here, or go on: acceptance wants the least count. */
static bool lane_survives(const lane_t *l, uint32_t depth) {
  const dfa_t *d = l->dfa;
  return d->rest == NULL || (d->flags[l->state[depth]] & DFA_LIVE) ||
         l->count[depth] >= d->count_min;
}

/* Nodes first .. last - 1. */
static int walk_lane(walk_t *w, lane_t *l, uint32_t first, uint32_t last) {
  const trie_node_t *nodes = w->v->nodes;
  for (uint32_t i = first; i < last;) {
    const trie_node_t *t = &nodes[i];
    uint32_t depth = t->depth - 1u;
    if (!lane_step(l, depth, t->byte)) {
      i += t->size;
    } else if (t->size == 1) {
      if (lane_survives(l, depth + 1)) allow(w->v, w->row, t->token);
      i++;
    } else if (w->ready &&
               takes(l->dfa, l->state[depth + 1], l->count[depth + 1], t->family, t->tail)) {
      vocabulary_allow_below(w->v, i, w->row);
      i += t->size;
    } else if (l->dfa->flags[l->state[depth + 1]] & DFA_ACCEPT) {
      lane_leave(w, l, depth);
      int code = walk_nodes(w, i, i + t->size);
      if (code) return code;
      i += t->size;
    } else {
      if (t->token >= 0) allow(w->v, w->row, t->token);
      i++;
    }
  }
  return 0;
}

/* `lane` NULL: with threads. A byte that leads nowhere is looked at once, whatever the groups. */
static int walk_roots(walk_t *w, lane_t *lane) {
  const grammar_vocabulary_t *v = w->v;
  for (int byte = 0; byte < 256; byte++) {
    if (v->root_of[byte] == v->root_of[byte + 1]) continue;
    bool alive = lane != NULL ? lane_step(lane, 0, (uint8_t)byte)
                              : matcher_survives(w->m, w->s, 0, (uint8_t)byte);
    for (uint32_t k = v->root_of[byte]; alive && k < v->root_of[byte + 1]; k++) {
      uint32_t node = v->roots[k], end = node + v->nodes[node].size;
      if (w->done >> v->root_group[k] & 1) continue;
      int code = lane != NULL ? walk_lane(w, lane, node, end) : walk_nodes(w, node, end);
      if (code) return code;
    }
  }
  return 0;
}

static int walk(walk_t *w, const place_t *place) {
  const grammar_t *g = w->m->grammar;
  const thread_t *only = &place->threads[0];
  const node_t *n = &g->nodes[only->node];
  if (w->ready) take_groups(w, place);
  /* A key that has left the listed names is a string like any other. */
  bool single = n->kind == NODE_LEX || (n->kind == NODE_EXTRA && only->count == NONE);
  if (place->count != 1 || !single) return walk_roots(w, NULL);
  lane_t lane = {.dfa = g->dfas[n->a], .thread = *only};
  lane.state[0] = only->state;
  lane.count[0] = only->count;
  return walk_roots(w, &lane);
}

static bool any_bit(const uint32_t *row, int32_t words) {
  for (int32_t i = 0; i < words; i++) {
    if (row[i]) return true;
  }
  return false;
}

int matcher_walk(grammar_matcher_t *m, grammar_scratch_t *s, bool ready, uint32_t *row) {
  const grammar_vocabulary_t *v = m->vocabulary;
  const place_t *place = matcher_place(m);
  uint32_t num_frames = m->num_frames;
  memset(row, 0, (size_t)v->row_words * sizeof *row);
  matcher_load(m, s, place);
  s->lowest = UINT32_MAX;
  walk_t w = {.m = m, .s = s, .v = v, .row = row, .ready = ready};
  int code = place->count > 0 ? walk(&w, place) : 0;
  matcher_unwind(m, num_frames);
  return code;
}

int matcher_finish(const grammar_matcher_t *m, const int32_t *stop_ids, int32_t num_stop_ids,
                   uint32_t *row) {
  const grammar_vocabulary_t *v = m->vocabulary;
  const place_t *place = matcher_place(m);
  for (uint32_t i = 0; i < place->count; i++) {
    const node_t *n = &m->grammar->nodes[place->threads[i].node];
    if (n->kind == NODE_TOKEN && n->a < (uint32_t)v->row_width) set_bit(row, (int32_t)n->a);
  }
  for (int32_t i = 0; i < num_stop_ids; i++) {
    int32_t id = stop_ids[i];
    if (id < 0 || id >= v->row_width) continue;
    row[id / 32] &= ~(UINT32_C(1) << (id % 32));
    if (place->accepting) set_bit(row, id);
  }
  return any_bit(row, v->row_words) ? 0 : ERR_INTERNAL;
}

int grammar_matcher_fill(grammar_matcher_t *m, grammar_scratch_t *s, const int32_t *stop_ids,
                         int32_t num_stop_ids, uint32_t *row) {
  int code = matcher_walk(m, s, true, row);
  return code ? code : matcher_finish(m, stop_ids, num_stop_ids, row);
}
