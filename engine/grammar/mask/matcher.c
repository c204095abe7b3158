/* matcher.c: following a text through a grammar, byte by byte and token by token.
 *
 * Runs on the engine thread or a worker; works in the matcher's own memory and the caller's scratch
 * and allocates nothing. What a set of threads may do next is decided here, which tokens that means
 * is mask.c's.
 */
#include "engine/grammar/mask/matcher.h"

#include <string.h>

/* ---- frames ---- */

static uint32_t bucket_of(uint32_t node, uint32_t count, uint32_t parent) {
  uint32_t h = node * 0x9E3779B1u ^ count * 0x85EBCA77u ^ parent * 0xC2B2AE3Du;
  return (h ^ h >> 15) % FRAME_BUCKETS;
}

/* The frame (node, count) on top of `parent`; 0 when there is no more room. */
static uint32_t push_frame(grammar_matcher_t *m, uint32_t node, uint32_t count, uint32_t parent) {
  uint32_t *bucket = &m->buckets[bucket_of(node, count, parent)];
  for (uint32_t i = *bucket; i; i = m->frames[i].chain) {
    const frame_t *f = &m->frames[i];
    if (f->node == node && f->count == count && f->parent == parent) return i;
  }
  if (m->num_frames == FRAMES_MAX) return 0;
  m->frames[m->num_frames] = (frame_t){node, count, parent, *bucket, m->frames[parent].depth + 1};
  *bucket = m->num_frames++;
  return *bucket;
}

void matcher_unwind(grammar_matcher_t *m, uint32_t num_frames) {
  while (m->num_frames > num_frames) {
    const frame_t *f = &m->frames[--m->num_frames];
    m->buckets[bucket_of(f->node, f->count, f->parent)] = f->chain;
  }
}

/* Keeps the frames that the kept places reach. A parent is always older than its child, so one pass
 * down marks and one pass up moves. */
static void collect_frames(grammar_matcher_t *m) {
  for (uint32_t i = 0; i < m->num_frames; i++) m->frames[i].chain = 0;
  for (uint32_t p = 0; p <= m->num_accepted; p++) {
    const place_t *place =
        &m->places[(m->head + GRAMMAR_ROLLBACK_MAX + 1 - p) % (GRAMMAR_ROLLBACK_MAX + 1)];
    for (uint32_t t = 0; t < place->count; t++) m->frames[place->threads[t].stack].chain = 1;
  }
  for (uint32_t i = m->num_frames - 1; i >= 1; i--) {
    if (m->frames[i].chain) m->frames[m->frames[i].parent].chain = 1;
  }
  /* From here chain is the new number; 0 for what goes away. */
  uint32_t kept = 1;
  m->frames[0].chain = 0;
  for (uint32_t i = 1; i < m->num_frames; i++) {
    if (m->frames[i].chain) m->frames[i].chain = kept++;
  }
  for (uint32_t p = 0; p <= m->num_accepted; p++) {
    place_t *place =
        &m->places[(m->head + GRAMMAR_ROLLBACK_MAX + 1 - p) % (GRAMMAR_ROLLBACK_MAX + 1)];
    for (uint32_t t = 0; t < place->count; t++) {
      place->threads[t].stack = m->frames[place->threads[t].stack].chain;
    }
  }
  for (uint32_t i = 1; i < m->num_frames; i++) {
    if (m->frames[i].chain) m->frames[i].parent = m->frames[m->frames[i].parent].chain;
  }
  for (uint32_t i = 1; i < m->num_frames; i++) {
    uint32_t to = m->frames[i].chain;
    if (to) m->frames[to] = m->frames[i];
  }
  m->num_frames = kept;
  memset(m->buckets, 0, sizeof m->buckets);
  for (uint32_t i = 1; i < kept; i++) {
    frame_t *f = &m->frames[i];
    uint32_t *bucket = &m->buckets[bucket_of(f->node, f->count, f->parent)];
    f->chain = *bucket;
    *bucket = i;
  }
}

/* ---- between two bytes ---- */

/* One closure: nodes to look at, and the level that the threads found go to. */
typedef struct closure {
  grammar_matcher_t *m;
  grammar_scratch_t *s;
  level_t *level;
  uint32_t num_seen, next;
  bool full;
} closure_t;

static void visit(closure_t *k, uint32_t node, uint32_t stack) {
  const node_t *n = &k->m->grammar->nodes[node];
  if (n->need > STACK_DEPTH_MAX || k->m->frames[stack].depth + n->need > STACK_DEPTH_MAX) return;
  for (uint32_t i = 0; i < k->num_seen; i++) {
    if (k->s->seen[i].node == node && k->s->seen[i].stack == stack) return;
  }
  if (k->num_seen == CLOSURE_MAX) {
    k->full = true;
    return;
  }
  k->s->seen[k->num_seen].node = node;
  k->s->seen[k->num_seen++].stack = stack;
}

static void visit_framed(closure_t *k, uint32_t node, uint32_t frame_node, uint32_t count,
                         uint32_t parent) {
  if (k->m->frames[parent].depth >= STACK_DEPTH_MAX) return;
  uint32_t stack = push_frame(k->m, frame_node, count, parent);
  if (stack == 0) {
    k->full = true;
  } else {
    visit(k, node, stack);
  }
}

static void add_thread(closure_t *k, thread_t thread) {
  thread_t *threads = &k->s->threads[k->level->first];
  for (uint32_t i = 0; i < k->level->count; i++) {
    if (memcmp(&threads[i], &thread, sizeof thread) == 0) return;
  }
  if (k->level->count == THREADS_MAX) {
    k->full = true;
    return;
  }
  threads[k->level->count++] = thread;
}

static void visit_repeat(closure_t *k, uint32_t node, uint32_t count, uint32_t parent) {
  const node_t *n = &k->m->grammar->nodes[node];
  if (count >= n->b) visit(k, n->next, parent);
  if (count >= n->c && n->c != NONE) return;
  uint32_t more = count + 1;
  if (n->c == NONE && more > n->b) more = n->b; /* no need to count further */
  visit_framed(k, n->a, node, more, parent);
}

/* ---- objects ---- */

typedef struct members {
  uint32_t index, count; /* next listed index (num_names + 1: extra ones have begun), members */
  uint32_t low, high;    /* listed indices that may come now; low > high = none */
  bool extra;            /* an extra member may come now */
  bool close;            /* the object may end now */
} members_t;

static members_t members_at(const grammar_matcher_t *m, const object_t *o, uint32_t packed,
                            uint32_t parent) {
  uint32_t index = packed & 0xFFFF, count = packed >> 16, names = o->num_names;
  uint32_t at = index < names ? index : names;
  uint32_t required = o->next_required[at];
  members_t r = {.index = index, .count = count, .low = at, .high = required};
  r.close = required == names && count >= o->min;
  r.extra = o->extra != NONE && required == names && count < o->max &&
            (index > names || count + 1 >= o->min);
  if (index >= names) {
    r.low = 1, r.high = 0;
    return r;
  }
  if (r.high == names) r.high = names - 1;
  bool only_required = m->frames[parent].depth + 1 + o->need > STACK_DEPTH_MAX;
  if (only_required) r.extra = false;
  if (only_required || (o->max != NONE && count + 1 + o->required_from[at] > o->max)) {
    if (required == names) {
      r.low = 1, r.high = 0;
    } else {
      r.low = r.high = required;
    }
  } else if (o->min > 0) {
    /* count + 1 + (names - 1 - j) + extra >= min */
    uint32_t reach = count + names + (o->extra != NONE);
    if (reach < o->min + r.high) r.high = reach >= o->min ? reach - o->min : 0;
    if (reach < o->min + r.low) r.low = 1, r.high = 0;
  }
  return r;
}

static bool any_below(const object_t *o, const name_node_t *n, const members_t *r) {
  const uint32_t *sorted = o->sorted + n->first;
  uint32_t from = 0, until = n->count;
  while (from < until) {
    uint32_t middle = (from + until) / 2;
    if (sorted[middle] < r->low) {
      from = middle + 1;
    } else {
      until = middle;
    }
  }
  return from < n->count && sorted[from] <= r->high;
}

static uint32_t pack_members(const object_t *o, uint32_t index, uint32_t count) {
  bool counts = o->min > 0 || o->max != NONE;
  return index | (counts && count < 0xFFFF ? count + 1 : counts ? 0xFFFFu : 1u) << 16;
}

static void visit_members(closure_t *k, uint32_t node, uint32_t packed, uint32_t parent) {
  const grammar_t *g = k->m->grammar;
  const object_t *o = g->objects[g->nodes[node].a];
  members_t r = members_at(k->m, o, packed, parent);
  if (r.low <= r.high && any_below(o, &o->trie[0], &r)) {
    /* The thread knows the object by its node; MEMBERS nodes share a with OBJECT nodes. */
    add_thread(k, (thread_t){node, 0, packed, parent});
  }
  if (r.extra) {
    visit_framed(k, o->extra, node, pack_members(o, o->num_names + 1, r.count), parent);
  }
}

static void visit_object(closure_t *k, uint32_t node, uint32_t packed, uint32_t stack,
                         uint32_t parent) {
  const grammar_t *g = k->m->grammar;
  const object_t *o = g->objects[g->nodes[node].a];
  members_t r = members_at(k->m, o, packed, parent);
  bool first = packed >> 16 == 0;
  if (r.close) visit(k, first ? o->close_empty : o->close, parent);
  if (first) {
    visit_members(k, node, packed, parent);
  } else if (r.low <= r.high || r.extra) {
    visit(k, o->comma, stack);
  }
}

/* ---- closure ---- */

/* The frame that a return pops or a comma continues; masks.c wants to know how far down. */
static frame_t look_below(closure_t *k, uint32_t stack) {
  const frame_t f = k->m->frames[stack];
  if (f.depth < k->s->lowest) k->s->lowest = f.depth;
  return f;
}

static void visit_return(closure_t *k, uint32_t stack) {
  const frame_t f = look_below(k, stack);
  const node_t *n = &k->m->grammar->nodes[f.node];
  if (n->kind == NODE_CALL) {
    visit(k, n->next, f.parent);
  } else if (n->kind == NODE_REPEAT) {
    visit_repeat(k, f.node, f.count, f.parent);
  } else {
    visit_object(k, f.node, f.count, stack, f.parent);
  }
}

static void visit_lex(closure_t *k, uint32_t node, const node_t *n, uint32_t stack) {
  const dfa_t *d = k->m->grammar->dfas[n->a];
  if (d->flags[DFA_START] & DFA_LIVE) add_thread(k, (thread_t){node, DFA_START, 0, stack});
  bool empty = (d->flags[DFA_START] & DFA_ACCEPT) && (d->rest == NULL || d->count_min == 0);
  if (empty && n->kind == NODE_LEX) visit(k, n->next, stack);
}

static void look_at(closure_t *k, uint32_t node, uint32_t stack) {
  const grammar_t *g = k->m->grammar;
  const node_t *n = &g->nodes[node];
  switch ((node_kind_t)n->kind) {
  case NODE_END: k->level->accepting = true; break;
  case NODE_RETURN: visit_return(k, stack); break;
  case NODE_LEX:
  case NODE_EXTRA: visit_lex(k, node, n, stack); break;
  case NODE_TOKEN: add_thread(k, (thread_t){node, 0, 0, stack}); break;
  case NODE_CALL:
    if (n->next == NODE_ID_RETURN) {
      visit(k, n->a, stack);
    } else {
      visit_framed(k, n->a, node, 0, stack);
    }
    break;
  case NODE_ALT:
    for (uint32_t i = 0; i < n->b; i++) visit(k, g->edges[n->a + i], stack);
    break;
  case NODE_REPEAT: visit_repeat(k, node, 0, stack); break;
  case NODE_OBJECT: visit_object(k, node, 0, stack, stack); break;
  case NODE_MEMBERS: {
    const frame_t f = look_below(k, stack);
    visit_members(k, f.node, f.count, f.parent);
    break;
  }
  case NODE_FAIL: break;
  }
}

static int finish_closure(closure_t *k) {
  while (k->next < k->num_seen && !k->full) {
    uint32_t at = k->next++;
    look_at(k, k->s->seen[at].node, k->s->seen[at].stack);
  }
  if (k->full) return ERR_INTERNAL;
  return (int)k->level->count + k->level->accepting;
}

/* ---- one byte ---- */

static void step_lex(closure_t *k, const thread_t *t, const node_t *n, uint8_t byte) {
  const dfa_t *d = k->m->grammar->dfas[n->a];
  thread_t to = {t->node, dfa_next(d, t->state, byte), t->count, t->stack};
  if (to.state == DFA_DEAD) return;
  uint8_t flags = d->flags[to.state];
  bool accepts = flags & DFA_ACCEPT;
  if (d->rest != NULL) {
    to.count += (flags & DFA_COUNT) != 0;
    if (d->count_max == NONE && to.count > d->count_min) to.count = d->count_min;
    if (d->count_max != NONE && to.count + d->rest[to.state] > d->count_max) return;
    accepts = accepts && to.count >= d->count_min;
  }
  if (flags & DFA_LIVE) add_thread(k, to);
  if (accepts) visit(k, n->next, t->stack);
}

static uint32_t name_child(const object_t *o, uint32_t at, uint8_t byte) {
  uint32_t i = o->trie[at].child;
  while (i && o->trie[i].byte != byte) i = o->trie[i].sibling;
  return i;
}

static void step_extra(closure_t *k, const thread_t *t, const node_t *n, uint8_t byte) {
  const dfa_t *d = k->m->grammar->dfas[n->a];
  const object_t *o = k->m->grammar->objects[n->b];
  thread_t to = {t->node, dfa_next(d, t->state, byte), t->count, t->stack};
  if (to.state == DFA_DEAD) return;
  if (to.count != NONE) {
    uint32_t child = name_child(o, to.count, byte);
    to.count = child ? child : NONE;
  }
  bool listed = to.count != NONE && o->trie[to.count].is_name;
  if (d->flags[to.state] & DFA_LIVE) add_thread(k, to);
  if ((d->flags[to.state] & DFA_ACCEPT) && !listed) visit(k, n->next, t->stack);
}

static void step_members(closure_t *k, const thread_t *t, const node_t *n, uint8_t byte) {
  const object_t *o = k->m->grammar->objects[n->a];
  uint32_t child = name_child(o, t->state, byte);
  if (!child) return;
  const name_node_t *name = &o->trie[child];
  members_t r = members_at(k->m, o, t->count, t->stack);
  if (!any_below(o, name, &r)) return;
  if (name->child) add_thread(k, (thread_t){t->node, child, t->count, t->stack});
  if (name->index == NONE || name->index < r.low || name->index > r.high) return;
  visit_framed(k, o->entry[name->index], t->node, pack_members(o, name->index + 1, r.count),
               t->stack);
}

static bool survives_lex(const grammar_t *g, const thread_t *t, const node_t *n, uint8_t byte) {
  const dfa_t *d = g->dfas[n->a];
  uint32_t to = dfa_next(d, t->state, byte), count = t->count;
  if (to == DFA_DEAD || d->rest == NULL) return to != DFA_DEAD;
  count += (d->flags[to] & DFA_COUNT) != 0;
  if (d->count_max != NONE && count + d->rest[to] > d->count_max) return false;
  return (d->flags[to] & DFA_LIVE) || count >= d->count_min;
}

static bool survives_extra(const grammar_t *g, const thread_t *t, const node_t *n, uint8_t byte) {
  const dfa_t *d = g->dfas[n->a];
  const object_t *o = g->objects[n->b];
  uint32_t to = dfa_next(d, t->state, byte);
  uint32_t child = t->count == NONE ? 0 : name_child(o, t->count, byte);
  bool listed = child && o->trie[child].is_name;
  return to != DFA_DEAD && ((d->flags[to] & DFA_LIVE) || !listed);
}

bool matcher_survives(const grammar_matcher_t *m, const grammar_scratch_t *s, uint32_t depth,
                      uint8_t byte) {
  const grammar_t *g = m->grammar;
  const level_t *from = &s->levels[depth];
  for (uint32_t i = 0; i < from->count; i++) {
    const thread_t *t = &s->threads[from->first + i];
    const node_t *n = &g->nodes[t->node];
    bool alive = false;
    if (n->kind == NODE_LEX) {
      alive = survives_lex(g, t, n, byte);
    } else if (n->kind == NODE_EXTRA) {
      alive = survives_extra(g, t, n, byte);
    } else if (n->kind != NODE_TOKEN) {
      const object_t *o = g->objects[n->a];
      uint32_t child = name_child(o, t->state, byte);
      members_t r = members_at(m, o, t->count, t->stack);
      alive = child && any_below(o, &o->trie[child], &r);
    }
    if (alive) return true;
  }
  return false;
}

int matcher_step(grammar_matcher_t *m, grammar_scratch_t *s, uint32_t depth, uint8_t byte) {
  const level_t *from = &s->levels[depth];
  level_t *to = &s->levels[depth + 1];
  matcher_unwind(m, from->num_frames);
  *to = (level_t){.first = from->first + from->count};
  closure_t k = {.m = m, .s = s, .level = to};
  for (uint32_t i = 0; i < from->count; i++) {
    const thread_t *t = &s->threads[from->first + i];
    const node_t *n = &m->grammar->nodes[t->node];
    if (n->kind == NODE_LEX) {
      step_lex(&k, t, n, byte);
    } else if (n->kind == NODE_EXTRA) {
      step_extra(&k, t, n, byte);
    } else if (n->kind != NODE_TOKEN) {
      step_members(&k, t, n, byte);
    }
  }
  int alive = finish_closure(&k);
  to->num_frames = m->num_frames;
  return alive;
}

/* ---- tokens ---- */

void matcher_load(const grammar_matcher_t *m, grammar_scratch_t *s, const place_t *place) {
  s->levels[0] =
      (level_t){.count = place->count, .num_frames = m->num_frames, .accepting = place->accepting};
  memcpy(s->threads, place->threads, place->count * sizeof *s->threads);
}

static void store(place_t *place, const grammar_scratch_t *s, const level_t *level) {
  place->count = level->count;
  place->accepting = level->accepting;
  memcpy(place->threads, &s->threads[level->first], level->count * sizeof *s->threads);
}

size_t grammar_matcher_bytes(void) {
  return (sizeof(grammar_matcher_t) + 63) / 64 * 64;
}

size_t grammar_scratch_bytes(void) {
  return (sizeof(grammar_scratch_t) + 63) / 64 * 64;
}

int grammar_matcher_start(grammar_matcher_t *m, grammar_scratch_t *s, const grammar_t *grammar,
                          const grammar_vocabulary_t *vocabulary) {
  m->grammar = grammar;
  m->vocabulary = vocabulary;
  m->num_frames = 1;
  m->num_accepted = m->head = 0;
  m->frames[0] = (frame_t){0};
  memset(m->buckets, 0, sizeof m->buckets);
  s->levels[0] = (level_t){0};
  closure_t k = {.m = m, .s = s, .level = &s->levels[0]};
  visit(&k, grammar->start, 0);
  int code = finish_closure(&k);
  store(matcher_place(m), s, &s->levels[0]);
  return code < 0 ? code : 0;
}

void grammar_matcher_copy(grammar_matcher_t *to, const grammar_matcher_t *from) {
  size_t head = offsetof(grammar_matcher_t, frames);
  memcpy(to, from, head);
  memcpy(to->frames, from->frames, from->num_frames * sizeof *from->frames);
  memcpy(to->buckets, from->buckets, sizeof from->buckets);
  memcpy(to->places, from->places, sizeof from->places);
}

/* Steps over the token's bytes; the depth reached, 0 when they lead nowhere, or an ERR_. */
static int step_bytes(grammar_matcher_t *m, grammar_scratch_t *s, int32_t id) {
  uint32_t length, depth = 0;
  const char *bytes = vocabulary_token(m->vocabulary, id, &length);
  for (; depth < length; depth++) {
    int alive = matcher_step(m, s, depth, (uint8_t)bytes[depth]);
    if (alive <= 0) return alive;
  }
  return (int)depth;
}

int grammar_matcher_accept(grammar_matcher_t *m, grammar_scratch_t *s, int32_t id) {
  const place_t *now = matcher_place(m);
  uint32_t num_frames = m->num_frames;
  matcher_load(m, s, now);
  int depth = step_bytes(m, s, id), alive = 0;
  level_t *last = &s->levels[depth > 0 ? depth : 1];
  if (depth == 0) *last = (level_t){.first = s->levels[0].count};
  if (depth >= 0) {
    closure_t k = {.m = m, .s = s, .level = last};
    for (uint32_t i = 0; i < now->count; i++) {
      const node_t *n = &m->grammar->nodes[now->threads[i].node];
      if (n->kind == NODE_TOKEN && n->a == (uint32_t)id) visit(&k, n->next, now->threads[i].stack);
    }
    alive = finish_closure(&k);
  }
  if (depth < 0 || alive <= 0) {
    matcher_unwind(m, num_frames);
    return ERR_INTERNAL;
  }
  m->head = (m->head + 1) % (GRAMMAR_ROLLBACK_MAX + 1);
  if (m->num_accepted < GRAMMAR_ROLLBACK_MAX) m->num_accepted++;
  store(matcher_place(m), s, last);
  if (m->num_frames > FRAMES_MAX / 4 * 3) collect_frames(m);
  return 0;
}

int grammar_matcher_rollback(grammar_matcher_t *m, int32_t count) {
  if (count < 0 || (uint32_t)count > m->num_accepted) return ERR_INTERNAL;
  m->head = (m->head + GRAMMAR_ROLLBACK_MAX + 1 - (uint32_t)count) % (GRAMMAR_ROLLBACK_MAX + 1);
  m->num_accepted -= (uint32_t)count;
  return 0;
}

bool grammar_matcher_is_accepting(const grammar_matcher_t *m) {
  return matcher_place(m)->accepting;
}

bool grammar_matcher_is_finished(const grammar_matcher_t *m) {
  const place_t *place = matcher_place(m);
  return place->accepting && place->count == 0;
}
