/* matcher.c: follows a text through a grammar, byte by byte and token by token.
 *
 * Runs on the engine thread or a worker; works in the matcher's own memory and the caller's scratch
 * and allocates nothing. This file decides which bytes a set of threads accepts next; mask.c
 * derives the tokens.
 */
#include "engine/grammar/mask/matcher.h"

#include "engine/base/util.h"

#include <string.h>

/* ---- frames ---- */

static uint32_t bucket_of(uint32_t node, uint32_t count, uint32_t parent) {
  uint32_t h = node * 0x9E3779B1u ^ count * 0x85EBCA77u ^ parent * 0xC2B2AE3Du;
  return (h ^ h >> 15) % FRAME_BUCKETS;
}

/* Pushes the frame (node, count) on `parent` and returns its number; 0 if there is no room. */
static uint32_t push_frame(grammar_matcher_t *matcher, uint32_t node, uint32_t count,
                           uint32_t parent) {
  uint32_t *bucket = &matcher->buckets[bucket_of(node, count, parent)];
  for (uint32_t i = *bucket; i; i = matcher->frames[i].chain) {
    const matcher_frame_t *frame = &matcher->frames[i];
    if (frame->node == node && frame->count == count && frame->parent == parent) return i;
  }
  if (matcher->num_frames == FRAMES_MAX) return 0;
  matcher->frames[matcher->num_frames] =
      (matcher_frame_t){node, count, parent, *bucket, matcher->frames[parent].depth + 1};
  *bucket = matcher->num_frames++;
  return *bucket;
}

void matcher_unwind(grammar_matcher_t *matcher, uint32_t num_frames) {
  while (matcher->num_frames > num_frames) {
    const matcher_frame_t *frame = &matcher->frames[--matcher->num_frames];
    matcher->buckets[bucket_of(frame->node, frame->count, frame->parent)] = frame->chain;
  }
}

/* Keeps the frames that can still be reached. A parent is always older than its child, so one pass
 * downwards marks them and one pass upwards moves them. */
static void collect_frames(grammar_matcher_t *matcher) {
  matcher_place_t *place = &matcher->place;
  for (uint32_t i = 0; i < matcher->num_frames; i++) matcher->frames[i].chain = 0;
  for (uint32_t t = 0; t < place->count; t++) matcher->frames[place->threads[t].stack].chain = 1;
  for (uint32_t i = matcher->num_frames - 1; i >= 1; i--) {
    if (matcher->frames[i].chain) matcher->frames[matcher->frames[i].parent].chain = 1;
  }
  /* From here `chain` is the new number of a frame; 0 for frames that are removed. */
  uint32_t kept = 1;
  matcher->frames[0].chain = 0;
  for (uint32_t i = 1; i < matcher->num_frames; i++) {
    if (matcher->frames[i].chain) matcher->frames[i].chain = kept++;
  }
  for (uint32_t t = 0; t < place->count; t++) {
    place->threads[t].stack = matcher->frames[place->threads[t].stack].chain;
  }
  for (uint32_t i = 1; i < matcher->num_frames; i++) {
    if (matcher->frames[i].chain)
      matcher->frames[i].parent = matcher->frames[matcher->frames[i].parent].chain;
  }
  for (uint32_t i = 1; i < matcher->num_frames; i++) {
    uint32_t to = matcher->frames[i].chain;
    if (to) matcher->frames[to] = matcher->frames[i];
  }
  matcher->num_frames = kept;
  memset(matcher->buckets, 0, sizeof matcher->buckets);
  for (uint32_t i = 1; i < kept; i++) {
    matcher_frame_t *frame = &matcher->frames[i];
    uint32_t *bucket = &matcher->buckets[bucket_of(frame->node, frame->count, frame->parent)];
    frame->chain = *bucket;
    *bucket = i;
  }
}

/* ---- steps without a byte ---- */

/* One closure: nodes to process, and the level that gets the threads. */
typedef struct closure {
  grammar_matcher_t *m;
  grammar_scratch_t *s;
  level_t *level;
  uint32_t num_seen, next;
  bool full;
} closure_t;

static void visit(closure_t *closure, uint32_t node, uint32_t stack) {
  const grammar_node_t *at = &closure->m->grammar->nodes[node];
  if (at->need > STACK_DEPTH_MAX || closure->m->frames[stack].depth + at->need > STACK_DEPTH_MAX)
    return;
  for (uint32_t i = 0; i < closure->num_seen; i++) {
    if (closure->s->seen[i].node == node && closure->s->seen[i].stack == stack) return;
  }
  if (closure->num_seen == CLOSURE_MAX) {
    closure->full = true;
    return;
  }
  closure->s->seen[closure->num_seen].node = node;
  closure->s->seen[closure->num_seen++].stack = stack;
}

static void visit_framed(closure_t *closure, uint32_t node, uint32_t frame_node, uint32_t count,
                         uint32_t parent) {
  if (closure->m->frames[parent].depth >= STACK_DEPTH_MAX) return;
  uint32_t stack = push_frame(closure->m, frame_node, count, parent);
  if (stack == 0) {
    closure->full = true;
  } else {
    visit(closure, node, stack);
  }
}

static void add_thread(closure_t *closure, thread_t thread) {
  thread_t *threads = &closure->s->threads[closure->level->first];
  for (uint32_t i = 0; i < closure->level->count; i++) {
    if (memcmp(&threads[i], &thread, sizeof thread) == 0) return;
  }
  if (closure->level->count == THREADS_MAX) {
    closure->full = true;
    return;
  }
  threads[closure->level->count++] = thread;
}

static void visit_repeat(closure_t *closure, uint32_t node, uint32_t count, uint32_t parent) {
  const grammar_node_t *at = &closure->m->grammar->nodes[node];
  if (count >= at->min) visit(closure, at->next, parent);
  if (count >= at->max && at->max != NONE) return;
  uint32_t more = count + 1;
  if (at->max == NONE && more > at->min) more = at->min; /* counting further has no effect */
  visit_framed(closure, at->body, node, more, parent);
}

/* ---- objects ---- */

typedef struct members {
  uint32_t index, count; /* next listed index (num_names + 1: extra ones have begun), members */
  uint32_t low, high;    /* listed indices that may come now; low > high = none */
  bool extra;            /* an extra member may come now */
  bool close;            /* the object may end now */
} members_t;

static members_t members_at(const grammar_matcher_t *matcher, const grammar_object_t *object,
                            uint32_t packed, uint32_t parent) {
  uint32_t index = packed & 0xFFFF, count = packed >> 16, names = object->num_names;
  uint32_t at = MIN(index, names);
  uint32_t required = object->next_required[at];
  members_t members = {.index = index, .count = count, .low = at, .high = required};
  members.close = required == names && count >= object->min;
  members.extra = object->extra != NONE && required == names && count < object->max &&
                  (index > names || count + 1 >= object->min);
  if (index >= names) {
    members.low = 1, members.high = 0;
    return members;
  }
  if (members.high == names) members.high = names - 1;
  bool only_required = matcher->frames[parent].depth + 1 + object->need > STACK_DEPTH_MAX;
  if (only_required) members.extra = false;
  if (only_required ||
      (object->max != NONE && count + 1 + object->required_from[at] > object->max)) {
    if (required == names) {
      members.low = 1, members.high = 0;
    } else {
      members.low = members.high = required;
    }
  } else if (object->min > 0) {
    /* count + 1 + (names - 1 - j) + extra >= min */
    uint32_t reach = count + names + (object->extra != NONE);
    if (reach < object->min + members.high)
      members.high = reach >= object->min ? reach - object->min : 0;
    if (reach < object->min + members.low) members.low = 1, members.high = 0;
  }
  return members;
}

static bool any_below(const grammar_object_t *object, const name_node_t *node,
                      const members_t *members) {
  const uint32_t *sorted = object->sorted + node->first;
  uint32_t from = 0, until = node->count;
  while (from < until) {
    uint32_t middle = (from + until) / 2;
    if (sorted[middle] < members->low) {
      from = middle + 1;
    } else {
      until = middle;
    }
  }
  return from < node->count && sorted[from] <= members->high;
}

static uint32_t pack_members(const grammar_object_t *object, uint32_t index, uint32_t count) {
  bool counts = object->min > 0 || object->max != NONE;
  return index | (counts && count < 0xFFFF ? count + 1 : counts ? 0xFFFFu : 1u) << 16;
}

static void visit_members(closure_t *closure, uint32_t node, uint32_t packed, uint32_t parent) {
  const grammar_t *grammar = closure->m->grammar;
  const grammar_object_t *object = grammar->objects[grammar->nodes[node].object];
  members_t members = members_at(closure->m, object, packed, parent);
  if (members.low <= members.high && any_below(object, &object->trie[0], &members)) {
    /* The thread knows the object by its node; MEMBERS nodes share a with OBJECT nodes. */
    add_thread(closure, (thread_t){node, 0, packed, parent});
  }
  if (members.extra) {
    visit_framed(closure, object->extra, node,
                 pack_members(object, object->num_names + 1, members.count), parent);
  }
}

static void visit_object(closure_t *closure, uint32_t node, uint32_t packed, uint32_t stack,
                         uint32_t parent) {
  const grammar_t *grammar = closure->m->grammar;
  const grammar_object_t *object = grammar->objects[grammar->nodes[node].object];
  members_t members = members_at(closure->m, object, packed, parent);
  bool first = packed >> 16 == 0;
  if (members.close) visit(closure, first ? object->close_empty : object->close, parent);
  if (first) {
    visit_members(closure, node, packed, parent);
  } else if (members.low <= members.high || members.extra) {
    visit(closure, object->comma, stack);
  }
}

/* ---- closure ---- */

/* The frame that a return pops or a comma continues; masks.c wants to know how far down. */
static matcher_frame_t look_below(closure_t *closure, uint32_t stack) {
  const matcher_frame_t frame = closure->m->frames[stack];
  if (frame.depth < closure->s->lowest) closure->s->lowest = frame.depth;
  return frame;
}

static void visit_return(closure_t *closure, uint32_t stack) {
  const matcher_frame_t frame = look_below(closure, stack);
  const grammar_node_t *node = &closure->m->grammar->nodes[frame.node];
  if (node->kind == NODE_CALL) {
    visit(closure, node->next, frame.parent);
  } else if (node->kind == NODE_REPEAT) {
    visit_repeat(closure, frame.node, frame.count, frame.parent);
  } else {
    visit_object(closure, frame.node, frame.count, stack, frame.parent);
  }
}

static void visit_lex(closure_t *closure, uint32_t node, const grammar_node_t *at, uint32_t stack) {
  const dfa_t *dfa = closure->m->grammar->dfas[at->lexeme];
  if (dfa->flags[DFA_START] & DFA_LIVE) add_thread(closure, (thread_t){node, DFA_START, 0, stack});
  bool empty = (dfa->flags[DFA_START] & DFA_ACCEPT) && (dfa->rest == NULL || dfa->count_min == 0);
  if (empty && at->kind == NODE_LEX) visit(closure, at->next, stack);
}

static void look_at(closure_t *closure, uint32_t node, uint32_t stack) {
  const grammar_t *grammar = closure->m->grammar;
  const grammar_node_t *at = &grammar->nodes[node];
  switch (at->kind) {
  case NODE_END: closure->level->accepting = true; break;
  case NODE_RETURN: visit_return(closure, stack); break;
  case NODE_LEX:
  case NODE_EXTRA: visit_lex(closure, node, at, stack); break;
  case NODE_TOKEN: add_thread(closure, (thread_t){node, 0, 0, stack}); break;
  case NODE_CALL:
    if (at->next == NODE_ID_RETURN) {
      visit(closure, at->rule, stack);
    } else {
      visit_framed(closure, at->rule, node, 0, stack);
    }
    break;
  case NODE_ALT:
    for (uint32_t i = 0; i < at->num_edges; i++)
      visit(closure, grammar->edges[at->first_edge + i], stack);
    break;
  case NODE_REPEAT: visit_repeat(closure, node, 0, stack); break;
  case NODE_OBJECT: visit_object(closure, node, 0, stack, stack); break;
  case NODE_MEMBERS: {
    const matcher_frame_t frame = look_below(closure, stack);
    visit_members(closure, frame.node, frame.count, frame.parent);
    break;
  }
  case NODE_FAIL: break;
  }
}

static int finish_closure(closure_t *closure) {
  while (closure->next < closure->num_seen && !closure->full) {
    uint32_t at = closure->next++;
    look_at(closure, closure->s->seen[at].node, closure->s->seen[at].stack);
  }
  if (closure->full) return ERR_INTERNAL;
  return (int)closure->level->count + closure->level->accepting;
}

/* ---- one byte ---- */

static void step_lex(closure_t *closure, const thread_t *thread, const grammar_node_t *node,
                     uint8_t byte) {
  const dfa_t *dfa = closure->m->grammar->dfas[node->lexeme];
  thread_t to = {thread->node, dfa_next(dfa, thread->state, byte), thread->count, thread->stack};
  if (to.state == DFA_DEAD) return;
  uint8_t flags = dfa->flags[to.state];
  bool accepts = flags & DFA_ACCEPT;
  if (dfa->rest != NULL) {
    to.count += (flags & DFA_COUNT) != 0;
    if (dfa->count_max == NONE && to.count > dfa->count_min) to.count = dfa->count_min;
    if (dfa->count_max != NONE && to.count + dfa->rest[to.state] > dfa->count_max) return;
    accepts = accepts && to.count >= dfa->count_min;
  }
  if (flags & DFA_LIVE) add_thread(closure, to);
  if (accepts) visit(closure, node->next, thread->stack);
}

static uint32_t name_child(const grammar_object_t *object, uint32_t at, uint8_t byte) {
  uint32_t i = object->trie[at].child;
  while (i && object->trie[i].byte != byte) i = object->trie[i].sibling;
  return i;
}

static void step_extra(closure_t *closure, const thread_t *thread, const grammar_node_t *node,
                       uint8_t byte) {
  const dfa_t *dfa = closure->m->grammar->dfas[node->lexeme];
  const grammar_object_t *object = closure->m->grammar->objects[node->names];
  thread_t to = {thread->node, dfa_next(dfa, thread->state, byte), thread->count, thread->stack};
  if (to.state == DFA_DEAD) return;
  if (to.count != NONE) {
    uint32_t child = name_child(object, to.count, byte);
    to.count = child ? child : NONE;
  }
  bool listed = to.count != NONE && object->trie[to.count].is_name;
  if (dfa->flags[to.state] & DFA_LIVE) add_thread(closure, to);
  if ((dfa->flags[to.state] & DFA_ACCEPT) && !listed) visit(closure, node->next, thread->stack);
}

static void step_members(closure_t *closure, const thread_t *thread, const grammar_node_t *node,
                         uint8_t byte) {
  const grammar_object_t *object = closure->m->grammar->objects[node->object];
  uint32_t child = name_child(object, thread->state, byte);
  if (!child) return;
  const name_node_t *name = &object->trie[child];
  members_t members = members_at(closure->m, object, thread->count, thread->stack);
  if (!any_below(object, name, &members)) return;
  if (name->child)
    add_thread(closure, (thread_t){thread->node, child, thread->count, thread->stack});
  if (name->index == NONE || name->index < members.low || name->index > members.high) return;
  visit_framed(closure, object->entry[name->index], thread->node,
               pack_members(object, name->index + 1, members.count), thread->stack);
}

static bool survives_lex(const grammar_t *grammar, const thread_t *thread,
                         const grammar_node_t *node, uint8_t byte) {
  const dfa_t *dfa = grammar->dfas[node->lexeme];
  uint32_t to = dfa_next(dfa, thread->state, byte), count = thread->count;
  if (to == DFA_DEAD || dfa->rest == NULL) return to != DFA_DEAD;
  count += (dfa->flags[to] & DFA_COUNT) != 0;
  if (dfa->count_max != NONE && count + dfa->rest[to] > dfa->count_max) return false;
  return (dfa->flags[to] & DFA_LIVE) || count >= dfa->count_min;
}

static bool survives_extra(const grammar_t *grammar, const thread_t *thread,
                           const grammar_node_t *node, uint8_t byte) {
  const dfa_t *dfa = grammar->dfas[node->lexeme];
  const grammar_object_t *object = grammar->objects[node->names];
  uint32_t to = dfa_next(dfa, thread->state, byte);
  uint32_t child = thread->count == NONE ? 0 : name_child(object, thread->count, byte);
  bool listed = child && object->trie[child].is_name;
  return to != DFA_DEAD && ((dfa->flags[to] & DFA_LIVE) || !listed);
}

bool matcher_survives(const grammar_matcher_t *matcher, const grammar_scratch_t *scratch,
                      uint32_t depth, uint8_t byte) {
  const grammar_t *grammar = matcher->grammar;
  const level_t *from = &scratch->levels[depth];
  for (uint32_t i = 0; i < from->count; i++) {
    const thread_t *thread = &scratch->threads[from->first + i];
    const grammar_node_t *node = &grammar->nodes[thread->node];
    bool alive = false;
    if (node->kind == NODE_LEX) {
      alive = survives_lex(grammar, thread, node, byte);
    } else if (node->kind == NODE_EXTRA) {
      alive = survives_extra(grammar, thread, node, byte);
    } else if (node->kind != NODE_TOKEN) {
      const grammar_object_t *object = grammar->objects[node->object];
      uint32_t child = name_child(object, thread->state, byte);
      members_t members = members_at(matcher, object, thread->count, thread->stack);
      alive = child && any_below(object, &object->trie[child], &members);
    }
    if (alive) return true;
  }
  return false;
}

int matcher_step(grammar_matcher_t *matcher, grammar_scratch_t *scratch, uint32_t depth,
                 uint8_t byte) {
  const level_t *from = &scratch->levels[depth];
  level_t *to = &scratch->levels[depth + 1];
  matcher_unwind(matcher, from->num_frames);
  *to = (level_t){.first = from->first + from->count};
  closure_t closure = {.m = matcher, .s = scratch, .level = to};
  for (uint32_t i = 0; i < from->count; i++) {
    const thread_t *thread = &scratch->threads[from->first + i];
    const grammar_node_t *node = &matcher->grammar->nodes[thread->node];
    if (node->kind == NODE_LEX) {
      step_lex(&closure, thread, node, byte);
    } else if (node->kind == NODE_EXTRA) {
      step_extra(&closure, thread, node, byte);
    } else if (node->kind != NODE_TOKEN) {
      step_members(&closure, thread, node, byte);
    }
  }
  int alive = finish_closure(&closure);
  to->num_frames = matcher->num_frames;
  return alive;
}

/* ---- tokens ---- */

void matcher_load(const grammar_matcher_t *matcher, grammar_scratch_t *scratch,
                  const matcher_place_t *place) {
  scratch->levels[0] = (level_t){
      .count = place->count, .num_frames = matcher->num_frames, .accepting = place->accepting};
  memcpy(scratch->threads, place->threads, place->count * sizeof *scratch->threads);
}

static void store(matcher_place_t *place, const grammar_scratch_t *scratch, const level_t *level) {
  place->count = level->count;
  place->accepting = level->accepting;
  memcpy(place->threads, &scratch->threads[level->first], level->count * sizeof *scratch->threads);
}

size_t grammar_matcher_bytes(void) {
  return (sizeof(grammar_matcher_t) + 63) / 64 * 64;
}

size_t grammar_scratch_bytes(void) {
  return (sizeof(grammar_scratch_t) + 63) / 64 * 64;
}

int grammar_matcher_start(grammar_matcher_t *matcher, grammar_scratch_t *scratch,
                          const grammar_t *grammar, const grammar_vocabulary_t *vocabulary) {
  matcher->grammar = grammar;
  matcher->vocabulary = vocabulary;
  matcher->num_frames = 1;
  matcher->frames[0] = (matcher_frame_t){0};
  memset(matcher->buckets, 0, sizeof matcher->buckets);
  scratch->levels[0] = (level_t){0};
  closure_t closure = {.m = matcher, .s = scratch, .level = &scratch->levels[0]};
  visit(&closure, grammar->start, 0);
  int code = finish_closure(&closure);
  store(&matcher->place, scratch, &scratch->levels[0]);
  return MIN(code, 0);
}

/* Steps over the token's bytes; the depth reached, 0 when they lead nowhere, or an ERR_. */
static int step_bytes(grammar_matcher_t *matcher, grammar_scratch_t *scratch, int32_t id) {
  uint32_t length, depth = 0;
  const char *bytes = vocabulary_token(matcher->vocabulary, id, &length);
  for (; depth < length; depth++) {
    int alive = matcher_step(matcher, scratch, depth, (uint8_t)bytes[depth]);
    if (alive <= 0) return alive;
  }
  return (int)depth;
}

int grammar_matcher_accept(grammar_matcher_t *matcher, grammar_scratch_t *scratch, int32_t id) {
  const matcher_place_t *now = &matcher->place;
  uint32_t num_frames = matcher->num_frames;
  matcher_load(matcher, scratch, now);
  int depth = step_bytes(matcher, scratch, id), alive = 0;
  level_t *last = &scratch->levels[depth > 0 ? depth : 1];
  if (depth == 0) *last = (level_t){.first = scratch->levels[0].count};
  if (depth >= 0) {
    closure_t closure = {.m = matcher, .s = scratch, .level = last};
    for (uint32_t i = 0; i < now->count; i++) {
      const grammar_node_t *node = &matcher->grammar->nodes[now->threads[i].node];
      if (node->kind == NODE_TOKEN && node->token == (uint32_t)id)
        visit(&closure, node->next, now->threads[i].stack);
    }
    alive = finish_closure(&closure);
  }
  if (depth < 0 || alive <= 0) {
    matcher_unwind(matcher, num_frames);
    return ERR_INTERNAL;
  }
  store(&matcher->place, scratch, last);
  if (matcher->num_frames > FRAMES_MAX / 4 * 3) collect_frames(matcher);
  return 0;
}

bool grammar_matcher_is_accepting(const grammar_matcher_t *matcher) {
  return matcher->place.accepting;
}

bool grammar_matcher_is_finished(const grammar_matcher_t *matcher) {
  return matcher->place.accepting && matcher->place.count == 0;
}
