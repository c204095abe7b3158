/* mask.c: which tokens may come next, as a row of bits.
 *
 * Runs on the engine thread or a worker; allocates nothing. The trie of the vocabulary is walked in
 * preorder with one set of threads per depth; a dead set skips the whole subtree. Where a string
 * allows every plain token, their ready row is copied and only the rest is walked.
 */
#include "engine/grammar/matcher.h"

#include <string.h>

/* -- bits and slices --------------------------------------------------------------------------- */

static void set_bit(uint32_t *row, int32_t id) {
  row[id / 32] |= UINT32_C(1) << (id % 32);
}

/* The largest slice that the thread allows as a whole. */
static slice_t slice_of(const grammar_t *g, const thread_t *t) {
  const node_t *n = &g->nodes[t->node];
  if (n->kind != NODE_LEX && n->kind != NODE_EXTRA) return SLICE_NONE;
  const dfa_t *d = g->dfas[n->a];
  uint8_t flags = d->flags[t->state];
  if (d->rest && d->count_max != NONE) {
    /* Wherever the slice leads, what must still follow has to fit as well. */
    uint32_t used = t->count + d->rest_max;
    uint32_t room = used < d->count_max ? d->count_max - used : 0;
    if (!(flags & DFA_PLAIN) || room < 10) return SLICE_NONE;
    return room >= 30 ? SLICE_30 : SLICE_10;
  }
  return flags & DFA_ANY ? SLICE_ANY : flags & DFA_PLAIN ? SLICE_PLAIN : SLICE_NONE;
}

static void allow(const grammar_vocabulary_t *v, uint32_t *row, int32_t token) {
  for (int32_t id = token; id >= 0; id = v->same[id]) set_bit(row, id);
}

/* -- walks ------------------------------------------------------------------------------------- */

typedef struct walk {
  grammar_matcher_t *m;
  grammar_scratch_t *s;
  const trie_t *trie;
  uint32_t *row;
  uint32_t work;
} walk_t;

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
  if (d->rest || (d->flags[to] & DFA_ACCEPT)) return -1;
  w->s->levels[depth + 1] =
      (level_t){.first = from->first + 1, .count = 1, .num_frames = from->num_frames};
  w->s->threads[from->first + 1] = (thread_t){t->node, to, t->count, t->stack};
  return 1;
}

/* Nodes first .. last - 1, which lie below level `depth` of the node before them. */
static int walk_nodes(walk_t *w, uint32_t first, uint32_t last) {
  for (uint32_t i = first; i < last;) {
    const trie_node_t *t = &w->trie->nodes[i];
    uint32_t depth = t->depth - 1u;
    if (t->size == 1) {
      w->work += w->s->levels[depth].count;
      if (matcher_survives(w->m, w->s, depth, t->byte)) allow(w->m->vocabulary, w->row, t->token);
      i++;
      continue;
    }
    int alive = quick_step(w, depth, t->byte);
    if (alive < 0) alive = matcher_step(w->m, w->s, depth, t->byte);
    w->work += 1 + w->s->levels[depth].count;
    if (alive < 0 || w->work > WORK_MAX) return ERR_INTERNAL;
    if (alive > 0) {
      allow(w->m->vocabulary, w->row, t->token);
      i++;
    } else {
      i += t->size;
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
  if (!d->rest || to == DFA_DEAD) return to != DFA_DEAD;
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
  if (l->dfa->rest) thread.count = l->count[depth];
  w->s->threads[depth] = thread;
  w->s->levels[depth] =
      (level_t){.first = depth, .count = 1, .num_frames = w->s->levels[0].num_frames};
}

/* Whether the state reached may end its lexeme here, or go on: acceptance wants the least count. */
static bool lane_survives(const lane_t *l, uint32_t depth) {
  const dfa_t *d = l->dfa;
  return !d->rest || (d->flags[l->state[depth]] & DFA_LIVE) || l->count[depth] >= d->count_min;
}

static int walk_lane(walk_t *w, lane_t *l) {
  const trie_node_t *nodes = w->trie->nodes;
  for (uint32_t i = 0; i < w->trie->num_nodes;) {
    const trie_node_t *t = &nodes[i];
    uint32_t depth = t->depth - 1u;
    if (!lane_step(l, depth, t->byte)) {
      i += t->size;
    } else if (t->size == 1) {
      if (lane_survives(l, depth + 1)) allow(w->m->vocabulary, w->row, t->token);
      i++;
    } else if (l->dfa->flags[l->state[depth + 1]] & DFA_ACCEPT) {
      lane_leave(w, l, depth);
      int code = walk_nodes(w, i, i + t->size);
      if (code) return code;
      i += t->size;
    } else {
      if (t->token >= 0) allow(w->m->vocabulary, w->row, t->token);
      i++;
    }
  }
  return 0;
}

static int walk(walk_t *w, const place_t *place) {
  const grammar_t *g = w->m->grammar;
  const thread_t *only = &place->threads[0];
  const node_t *n = &g->nodes[only->node];
  /* A key that has left the listed names is a string like any other. */
  bool single = n->kind == NODE_LEX || (n->kind == NODE_EXTRA && only->count == NONE);
  if (place->count != 1 || !single) return walk_nodes(w, 0, w->trie->num_nodes);
  lane_t lane = {.dfa = g->dfas[n->a], .thread = *only};
  lane.state[0] = only->state;
  lane.count[0] = only->count;
  return walk_lane(w, &lane);
}

static bool any_bit(const uint32_t *row, int32_t words) {
  for (int32_t i = 0; i < words; i++) {
    if (row[i]) return true;
  }
  return false;
}

/* The slice to copy: the largest that some thread allows. */
static slice_t choose_slice(const grammar_matcher_t *m, const place_t *place) {
  slice_t best = SLICE_NONE;
  for (uint32_t i = 0; i < place->count; i++) {
    slice_t slice = slice_of(m->grammar, &place->threads[i]);
    if (slice > best) best = slice;
  }
  return best;
}

int matcher_fill(grammar_matcher_t *m, grammar_scratch_t *s, const int32_t *stop_ids,
                 int32_t num_stop_ids, slice_t slice, uint32_t *row) {
  const grammar_vocabulary_t *v = m->vocabulary;
  const place_t *place = matcher_place(m);
  uint32_t num_frames = m->num_frames;
  memcpy(row, v->rows[slice], (size_t)v->row_words * sizeof *row);
  matcher_load(m, s, place);
  walk_t w = {.m = m, .s = s, .trie = &v->rest[slice], .row = row};
  int code = place->count > 0 ? walk(&w, place) : 0;
  matcher_unwind(m, num_frames);
  if (code) return code;
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
  slice_t slice = choose_slice(m, matcher_place(m));
  return matcher_fill(m, s, stop_ids, num_stop_ids, slice, row);
}
