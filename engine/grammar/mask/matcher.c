/* matcher.c: follows a text through a grammar, byte by byte and token by token.
 *
 * Runs on the engine thread or a worker; works in the matcher's own memory and the caller's scratch
 * and allocates nothing. This file decides which bytes a set of threads accepts next; mask.c
 * derives the tokens.
 */
#include "engine/grammar/mask/frames.h"
#include "engine/grammar/mask/members.h"

#include "engine/base/util.h"

#include <string.h>

/* ---- steps without a byte ---- */

/* Whether the stack has room for what follows `node`, so that every text can be finished. */
static bool has_room(const closure_t *closure, uint32_t node, uint32_t depth) {
  uint32_t need = closure->matcher->grammar->nodes[node].need;
  return need <= STACK_DEPTH_MAX && depth + need <= STACK_DEPTH_MAX;
}

static void visit(closure_t *closure, uint32_t node, uint32_t stack) {
  bool found = false;
  if (!has_room(closure, node, closure->matcher->frames[stack].depth)) return;
  if (closure->narrow) {
    if (closure->num_seen > 0 || closure->done) return;
    closure->steps++;
  } else if (closure_mark(closure, (uint32_t[]){node, stack, 0, 0}, &found) == NULL || found) {
    return;
  }
  if (closure->num_seen == CLOSURE_MAX) {
    closure->full = true;
  } else {
    closure->scratch->seen[closure->num_seen++] = (seen_t){node, stack, 0};
  }
}

/* Begins the rule at node `rule`, which returns to (node, count) above `parent`. */
static void begin_rule(closure_t *closure, uint32_t rule, uint32_t node, uint32_t count,
                       uint32_t parent) {
  uint32_t depth = closure->matcher->frames[parent].depth, frame;
  matcher_link_t link = {.node = node, .count = count, .parent = parent};
  bool made = true;
  if (depth >= STACK_DEPTH_MAX || !has_room(closure, rule, depth + 1)) return;
  if (closure->narrow) {
    if (closure->num_seen > 0 || closure->done) return;
    frame = closure_own_frame(closure, depth + 1, link);
  } else {
    frame = closure_frame(closure, rule, depth + 1, &made);
    if (frame != 0) closure_link(closure, frame, link);
  }
  if (frame != 0 && made) visit(closure, rule, frame);
}

static void visit_repeat(closure_t *closure, uint32_t node, uint32_t count, uint32_t parent) {
  const grammar_node_t *at = &closure->matcher->grammar->nodes[node];
  /* A narrow way that has become long goes to the next lexeme. */
  bool late = closure->narrow && closure->steps > CLOSURE_STEPS;
  if (count >= at->min && !late) visit(closure, at->next, parent);
  if (count < at->max || at->max == NONE) {
    uint32_t more = count + 1;
    if (at->max == NONE && more > at->min) more = at->min; /* counting further has no effect */
    begin_rule(closure, at->body, node, more, parent);
  }
  if (count >= at->min && late) visit(closure, at->next, parent);
}

/* The items of an array after the values `used`; each other value may come if it leads on. */
static void visit_unique(closure_t *closure, uint32_t node, uint32_t used, uint32_t parent) {
  const grammar_t *grammar = closure->matcher->grammar;
  const grammar_unique_t *unique = &grammar->uniques[grammar->nodes[node].object];
  const uint32_t *entry = unique_row(unique, used);
  if (unique->ways[used] & UNIQUE_ENDS) visit(closure, grammar->nodes[node].next, parent);
  for (uint32_t i = 0; i < unique->num_values && !closure->full; i++) {
    uint32_t after = used | UINT32_C(1) << i;
    if (after != used && unique->ways[after]) begin_rule(closure, entry[i], node, after, parent);
  }
}

/* ---- objects ---- */

/* The member `index` (members_after) of the object at `node` begins. `packed`: the object's count
 * before. */
static void begin_member(closure_t *closure, uint32_t node, uint32_t index, uint32_t packed,
                         uint32_t parent) {
  const grammar_t *grammar = closure->matcher->grammar;
  const grammar_object_t *object = grammar->objects[grammar->nodes[node].object];
  uint32_t rule = members_node(closure->matcher, object, packed, index), after;
  if (closure->narrow && (closure->num_seen > 0 || closure->done)) return;
  if (members_after(closure, object, packed, index, &after))
    begin_rule(closure, rule, node, after, parent);
}

static void visit_members(closure_t *closure, uint32_t node, uint32_t packed, uint32_t parent) {
  const grammar_t *grammar = closure->matcher->grammar;
  const grammar_object_t *object = grammar->objects[grammar->nodes[node].object];
  members_t members = members_at(closure->matcher, object, packed, parent);
  if (members_below(closure->scratch, object, &object->trie[0], &members)) {
    /* `node` is an OBJECT or a MEMBERS node: both have the member `object`. */
    closure_thread(closure, (thread_t){node, 0, packed, parent});
  }
  for (uint32_t is = WITNESS_SETS; is-- > 0 && members.extra;) {
    if (members.extra >> is & 1)
      begin_member(closure, node, object->num_names + is, packed, parent);
  }
}

static void visit_object(closure_t *closure, uint32_t node, uint32_t packed, uint32_t parent) {
  const grammar_t *grammar = closure->matcher->grammar;
  const grammar_object_t *object = grammar->objects[grammar->nodes[node].object];
  members_t members = members_at(closure->matcher, object, packed, parent);
  bool first = members_are_none(packed);
  if (members.close) visit(closure, first ? object->close_empty : object->close, parent);
  if (first && object->first == NONE) {
    visit_members(closure, node, packed, parent);
  } else if (members.extra || members_below(closure->scratch, object, &object->trie[0], &members)) {
    begin_rule(closure, first ? object->first : object->comma, node, packed, parent);
  }
}

/* ---- closure ---- */

/* Continues where a rule returns to. If the body of a repetition has ended without a byte, so may
 * all that are still to come. */
static void go_on(closure_t *closure, const matcher_link_t *link, bool empty) {
  const grammar_node_t *node = &closure->matcher->grammar->nodes[link->node];
  switch (node->kind) {
  case NODE_RETURN: visit(closure, link->node, link->parent); break;
  case NODE_CALL: visit(closure, node->next, link->parent); break;
  case NODE_REPEAT:
    if (empty) {
      visit(closure, node->next, link->parent);
    } else {
      visit_repeat(closure, link->node, link->count, link->parent);
    }
    break;
  case NODE_UNIQUE: visit_unique(closure, link->node, link->count, link->parent); break;
  default: visit_object(closure, link->node, link->count, link->parent); break;
  }
}

/* The members of the objects on top of the stack continue; `node` is a MEMBERS node. */
static void go_on_members(closure_t *closure, const matcher_link_t *link, uint32_t node) {
  if (link->node == NODE_ID_RETURN) {
    visit(closure, node, link->parent);
  } else {
    visit_members(closure, link->node, link->count, link->parent);
  }
}

/* Returns to everything that lies below the top frame. Notes the least depth that was looked at:
 * the key of a cached mask (masks.c) covers the frames from there on. */
static void look_below(closure_t *closure, uint32_t node, uint32_t stack) {
  grammar_matcher_t *matcher = closure->matcher;
  matcher_frame_t *frame = &matcher->frames[stack];
  bool returns = node == NODE_ID_RETURN, fresh = stack >= closure->first_frame;
  if (frame->depth < closure->scratch->lowest) closure->scratch->lowest = frame->depth;
  if (fresh) frame->passed |= returns ? FRAME_RETURNED : FRAME_MEMBERS;
  for (uint32_t i = frame->links; i && !closure->full; i = matcher->links[i].next) {
    const matcher_link_t link = matcher->links[i];
    closure->scratch->units++;
    if (returns) {
      go_on(closure, &link, fresh);
    } else {
      go_on_members(closure, &link, node);
    }
  }
}

static void visit_lex(closure_t *closure, uint32_t node, const grammar_node_t *at, uint32_t stack) {
  const dfa_t *dfa = closure->matcher->grammar->dfas[at->lexeme];
  if (dfa->flags[DFA_START] & DFA_LIVE)
    closure_thread(closure, (thread_t){node, DFA_START, 0, stack});
  bool empty = (dfa->flags[DFA_START] & DFA_ACCEPT) && (dfa->rest == NULL || dfa->count_min == 0);
  if (empty && at->kind == NODE_LEX) visit(closure, at->next, stack);
}

/* Follows the branches; a narrow closure the one from which the text can end soonest. */
static void visit_branches(closure_t *closure, const grammar_node_t *at, uint32_t stack) {
  const grammar_t *grammar = closure->matcher->grammar;
  const uint32_t *edges = grammar->edges + at->first_edge;
  uint32_t best = 0;
  for (uint32_t i = 0; i < at->num_edges && !closure->narrow && !closure->full; i++)
    visit(closure, edges[i], stack);
  for (uint32_t i = 1; i < at->num_edges && closure->narrow; i++) {
    if (grammar->nodes[edges[i]].need < grammar->nodes[edges[best]].need) best = i;
  }
  if (closure->narrow && at->num_edges > 0) visit(closure, edges[best], stack);
}

static void look_at(closure_t *closure, uint32_t node, uint32_t stack) {
  const grammar_t *grammar = closure->matcher->grammar;
  const grammar_node_t *at = &grammar->nodes[node];
  switch (at->kind) {
  case NODE_END: closure->level->accepting = true; break;
  case NODE_RETURN: look_below(closure, node, stack); break;
  case NODE_LEX:
  case NODE_EXTRA: visit_lex(closure, node, at, stack); break;
  case NODE_TOKEN: closure_thread(closure, (thread_t){node, 0, 0, stack}); break;
  case NODE_CALL:
    if (at->next == NODE_ID_RETURN) {
      visit(closure, at->rule, stack);
    } else {
      begin_rule(closure, at->rule, node, 0, stack);
    }
    break;
  case NODE_ALT: visit_branches(closure, at, stack); break;
  case NODE_REPEAT: visit_repeat(closure, node, 0, stack); break;
  case NODE_OBJECT: visit_object(closure, node, 0, stack); break;
  case NODE_UNIQUE: visit_unique(closure, node, 0, stack); break;
  case NODE_MEMBERS: look_below(closure, node, stack); break;
  case NODE_FAIL: break;
  }
}

/* Looks at all places that are left. Returns false if a bound was passed: then the level is not
 * complete, or, of a narrow closure, has the threads that were found until then. */
static bool finish_closure(closure_t *closure) {
  closure->closing = true;
  while (closure->next < closure->num_seen && !closure->full && !closure->done) {
    const seen_t at = closure->scratch->seen[closure->next++];
    closure->scratch->units++;
    if (closure->narrow) closure->num_seen = closure->next = 0;
    if (at.link == 0) {
      look_at(closure, at.node, at.stack);
    } else {
      const matcher_link_t link = closure->matcher->links[at.link];
      if (at.node == FRAME_RETURNED) go_on(closure, &link, true);
      if (at.node == FRAME_MEMBERS) go_on_members(closure, &link, NONE);
    }
  }
  level_t *level = closure->level;
  const grammar_matcher_t *matcher = closure->matcher;
  level->num_threads = level->first + level->count;
  level->num_frames = matcher->num_frames;
  level->num_links = matcher->num_links;
  level->num_sets = matcher->num_sets;
  level->own_sets += closure->num_sets;
  level->used_frames += matcher->num_frames - closure->first_frame;
  level->used_links += matcher->num_links - closure->first_link;
  return !closure->full;
}

/* ---- one byte ---- */

static void add_move(moves_t *moves, uint32_t node, uint32_t state, uint32_t count,
                     uint32_t stack) {
  moves->items[moves->count++] = (move_t){node, state, count, stack};
}

static void move_lex(moves_t *moves, const grammar_t *grammar, const thread_t *thread,
                     const grammar_node_t *node, uint8_t byte) {
  const dfa_t *dfa = grammar->dfas[node->lexeme];
  uint32_t to = dfa_next(dfa, thread->state, byte), count = thread->count;
  if (to == DFA_DEAD) return;
  uint8_t flags = dfa->flags[to];
  bool accepts = flags & DFA_ACCEPT;
  if (dfa->rest != NULL) {
    count += (flags & DFA_COUNT) != 0;
    if (dfa->count_max == NONE && count > dfa->count_min) count = dfa->count_min;
    if (dfa->count_max != NONE && count + dfa->rest[to] > dfa->count_max) return;
    accepts = accepts && count >= dfa->count_min;
  }
  if (flags & DFA_LIVE) add_move(moves, thread->node, to, count, thread->stack);
  if (accepts) add_move(moves, MOVE_LEAVE | node->next, 0, 0, thread->stack);
}

static uint32_t name_child(grammar_scratch_t *scratch, const grammar_object_t *object, uint32_t at,
                           uint8_t byte) {
  uint32_t i = object->trie[at].child;
  for (; i && object->trie[i].byte != byte; i = object->trie[i].sibling) scratch->units++;
  return i;
}

static void move_extra(grammar_scratch_t *scratch, const grammar_t *grammar, const thread_t *thread,
                       const grammar_node_t *node, uint8_t byte) {
  const dfa_t *dfa = grammar->dfas[node->lexeme];
  const grammar_object_t *object = grammar->objects[node->names];
  uint32_t to = dfa_next(dfa, thread->state, byte), count = thread->count;
  if (to == DFA_DEAD) return;
  if (count != NONE) {
    uint32_t child = name_child(scratch, object, count, byte);
    count = child ? child : NONE;
  }
  bool listed = count != NONE && object->trie[count].is_name;
  if (dfa->flags[to] & DFA_LIVE) add_move(&scratch->moves, thread->node, to, count, thread->stack);
  if ((dfa->flags[to] & DFA_ACCEPT) && !listed)
    add_move(&scratch->moves, MOVE_LEAVE | node->next, 0, 0, thread->stack);
}

static void move_members(const grammar_matcher_t *matcher, grammar_scratch_t *scratch,
                         const thread_t *thread, const grammar_node_t *node, uint8_t byte) {
  const grammar_object_t *object = matcher->grammar->objects[node->object];
  uint32_t child = name_child(scratch, object, thread->state, byte);
  if (!child) return;
  const name_node_t *name = &object->trie[child];
  members_t members = members_at(matcher, object, thread->count, thread->stack);
  if (!members_below(scratch, object, name, &members)) return;
  if (name->child) add_move(&scratch->moves, thread->node, child, thread->count, thread->stack);
  if (name->index == NONE || !members_allow(object, &members, name->index)) return;
  add_move(&scratch->moves, MOVE_ENTER | thread->node, name->index, thread->count, thread->stack);
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

static bool survives_extra(const grammar_t *grammar, grammar_scratch_t *scratch,
                           const thread_t *thread, const grammar_node_t *node, uint8_t byte) {
  const dfa_t *dfa = grammar->dfas[node->lexeme];
  const grammar_object_t *object = grammar->objects[node->names];
  uint32_t to = dfa_next(dfa, thread->state, byte);
  uint32_t child = thread->count == NONE ? 0 : name_child(scratch, object, thread->count, byte);
  bool listed = child && object->trie[child].is_name;
  return to != DFA_DEAD && ((dfa->flags[to] & DFA_LIVE) || !listed);
}

bool matcher_survives(const grammar_matcher_t *matcher, grammar_scratch_t *scratch, uint32_t depth,
                      uint8_t byte) {
  const grammar_t *grammar = matcher->grammar;
  const level_t *from = &matcher->levels[depth];
  for (uint32_t i = 0; i < from->count; i++) {
    const thread_t *thread = &matcher->threads[from->first + i];
    const grammar_node_t *node = &grammar->nodes[thread->node];
    bool alive = false;
    scratch->units++;
    if (node->kind == NODE_LEX) {
      alive = survives_lex(grammar, thread, node, byte);
    } else if (node->kind == NODE_EXTRA) {
      alive = survives_extra(grammar, scratch, thread, node, byte);
    } else if (node->kind != NODE_TOKEN) {
      const grammar_object_t *object = grammar->objects[node->object];
      uint32_t child = name_child(scratch, object, thread->state, byte);
      members_t members = members_at(matcher, object, thread->count, thread->stack);
      alive = child && members_below(scratch, object, &object->trie[child], &members);
    }
    if (alive) return true;
  }
  return false;
}

void matcher_find_moves(const grammar_matcher_t *matcher, grammar_scratch_t *scratch,
                        uint32_t depth, uint8_t byte) {
  const grammar_t *grammar = matcher->grammar;
  const level_t *from = &matcher->levels[depth];
  scratch->moves.count = 0;
  scratch->units += 1 + from->count;
  for (uint32_t i = 0; i < from->count; i++) {
    const thread_t *thread = &matcher->threads[from->first + i];
    const grammar_node_t *node = &grammar->nodes[thread->node];
    if (node->kind == NODE_LEX) {
      move_lex(&scratch->moves, grammar, thread, node, byte);
    } else if (node->kind == NODE_EXTRA) {
      move_extra(scratch, grammar, thread, node, byte);
    } else if (node->kind != NODE_TOKEN) {
      move_members(matcher, scratch, thread, node, byte);
    }
  }
}

/* Begins level depth + 1, above what level `depth` and the memo keep. */
static void begin_level(grammar_matcher_t *matcher, uint32_t depth) {
  const level_t *from = &matcher->levels[depth];
  matcher_unwind(matcher, from);
  matcher->levels[depth + 1] = (level_t){.first = MAX(from->num_threads, matcher->kept_threads),
                                         .used_threads = from->used_threads + from->count,
                                         .used_sets = from->used_sets + from->own_sets,
                                         .used_frames = from->used_frames,
                                         .used_links = from->used_links};
}

/* Returns false if a bound was passed. */
static bool move_all(grammar_matcher_t *matcher, grammar_scratch_t *scratch, uint32_t depth,
                     bool narrow) {
  const moves_t *moves = &scratch->moves;
  closure_t closure;
  begin_level(matcher, depth);
  closure_begin(&closure, matcher, scratch, depth + 1, narrow);
  for (uint32_t i = 0; i < moves->count; i++) {
    const move_t *move = &moves->items[i];
    uint32_t kind = move->node & MOVE_BITS, node = move->node & ~(uint32_t)MOVE_BITS;
    if (kind == MOVE_LEAVE) {
      visit(&closure, node, move->stack);
    } else if (kind == MOVE_ENTER) {
      begin_member(&closure, node, move->state, move->count, move->stack);
    } else {
      closure_thread(&closure, (thread_t){node, move->state, move->count, move->stack});
    }
  }
  return finish_closure(&closure);
}

/* One thread continues its lexeme, as most bytes do: no lexeme ends. */
static void move_one(grammar_matcher_t *matcher, const move_t *move, uint32_t depth) {
  begin_level(matcher, depth);
  level_t *level = &matcher->levels[depth + 1];
  matcher->threads[level->first] = (thread_t){move->node, move->state, move->count, move->stack};
  level->count = 1;
  level->whole = true;
  level->num_threads = level->first + 1;
  level->num_frames = matcher->num_frames;
  level->num_links = matcher->num_links;
  level->num_sets = matcher->num_sets;
}

static uint32_t alive(const level_t *level) {
  return level->count + level->accepting;
}

/* If all ways together pass a bound, the step is repeated narrowly: it follows the ways that stay
 * inside a lexeme, and one of the ways that leave one. The language becomes smaller, and every text
 * of it can still be finished. */
uint32_t matcher_move(grammar_matcher_t *matcher, grammar_scratch_t *scratch, uint32_t depth) {
  const moves_t *moves = &scratch->moves;
  if (moves->count == 1 && (moves->items[0].node & MOVE_BITS) == 0) {
    move_one(matcher, &moves->items[0], depth);
    return 1;
  }
  bool whole = !matcher->narrow && move_all(matcher, scratch, depth, false);
  scratch->narrowed += !matcher->narrow && !whole;
  if (!whole) move_all(matcher, scratch, depth, true);
  matcher->levels[depth + 1].whole = whole;
  return alive(&matcher->levels[depth + 1]);
}

uint32_t matcher_step(grammar_matcher_t *matcher, grammar_scratch_t *scratch, uint32_t depth,
                      uint8_t byte) {
  matcher_find_moves(matcher, scratch, depth, byte);
  return matcher_move(matcher, scratch, depth);
}

/* ---- tokens ---- */

void matcher_load(grammar_matcher_t *matcher) {
  const matcher_place_t *place = &matcher->place;
  matcher->levels[0] = (level_t){.count = place->count,
                                 .num_threads = place->count,
                                 .num_frames = place->num_frames,
                                 .num_links = place->num_links,
                                 .num_sets = place->num_sets,
                                 .accepting = place->accepting};
  memcpy(matcher->threads, place->threads, place->count * sizeof *matcher->threads);
  matcher->kept_threads = place->count;
  matcher->kept_frames = place->num_frames;
  matcher->kept_links = place->num_links;
  matcher->kept_sets = place->num_sets;
  matcher_unwind(matcher, &matcher->levels[0]);
}

static void store(grammar_matcher_t *matcher, grammar_scratch_t *scratch, const level_t *level) {
  matcher_place_t *place = &matcher->place;
  place->count = level->count;
  place->accepting = level->accepting;
  memcpy(place->threads, &matcher->threads[level->first], level->count * sizeof *place->threads);
  matcher_unwind(matcher, level);
  matcher_collect(matcher, scratch);
  place->num_frames = matcher->num_frames;
  place->num_links = matcher->num_links;
  place->num_sets = matcher->num_sets;
}

size_t grammar_matcher_bytes(void) {
  return (sizeof(grammar_matcher_t) + 63) / 64 * 64;
}

size_t grammar_scratch_bytes(void) {
  return (sizeof(grammar_scratch_t) + 63) / 64 * 64;
}

void grammar_matcher_copy(grammar_matcher_t *to, const grammar_matcher_t *from) {
  const matcher_place_t *place = &from->place;
  memcpy(to, from, offsetof(grammar_matcher_t, frames));
  memcpy(to->frames, from->frames, place->num_frames * sizeof *from->frames);
  memcpy(to->links, from->links, place->num_links * sizeof *from->links);
  memcpy(to->sets, from->sets, place->num_sets * sizeof *from->sets);
  to->place = *place;
  to->num_frames = place->num_frames;
  to->num_links = place->num_links;
  to->num_sets = place->num_sets;
  to->taken = 0;
}

uint64_t grammar_units(const grammar_scratch_t *scratch) {
  return scratch->units;
}

int grammar_matcher_start(grammar_matcher_t *matcher, grammar_scratch_t *scratch,
                          const grammar_t *grammar, const grammar_vocabulary_t *vocabulary) {
  matcher->grammar = grammar;
  matcher->vocabulary = vocabulary;
  matcher->narrow = false;
  matcher->taken = 0;
  matcher->num_frames = matcher->num_links = matcher->num_sets = 1;
  matcher->kept_threads = 0;
  matcher->kept_frames = matcher->kept_links = matcher->kept_sets = 1;
  matcher->place.num_frames = matcher->place.num_links = matcher->place.num_sets = 1;
  matcher->frames[0] = (matcher_frame_t){0};
  matcher->sets[0] = (name_set_t){0};
  matcher->levels[0] = (level_t){0};
  closure_t closure;
  closure_begin(&closure, matcher, scratch, 0, false);
  visit(&closure, grammar->start, 0);
  if (!finish_closure(&closure)) return ERR_CONSTRAINT_TOO_EXPENSIVE;
  store(matcher, scratch, &matcher->levels[0]);
  return 0;
}

bool matcher_has_room(grammar_matcher_t *matcher, grammar_scratch_t *scratch, uint32_t node) {
  matcher->place.num_frames = matcher->num_frames = 2;
  matcher->place.num_links = matcher->num_links = 1;
  matcher->place.num_sets = matcher->num_sets = 1;
  matcher->frames[1] = (matcher_frame_t){.depth = 1}; /* returns to nothing */
  matcher->levels[0] = (level_t){0};
  closure_t closure;
  closure_begin(&closure, matcher, scratch, 0, false);
  visit(&closure, node, 1);
  return finish_closure(&closure);
}

void grammar_matcher_narrow(grammar_matcher_t *matcher) {
  matcher->narrow = true;
  matcher_keep_one(matcher);
}

/* Adds to level `depth` what follows the nodes that wait for exactly this token. Returns false if a
 * bound was passed. */
static bool step_token(grammar_matcher_t *matcher, grammar_scratch_t *scratch, int32_t id,
                       uint32_t depth, bool narrow) {
  const matcher_place_t *now = &matcher->place;
  level_t *level = &matcher->levels[depth];
  closure_t closure;
  closure_begin(&closure, matcher, scratch, depth, narrow);
  uint32_t count = level->count;
  level->count = 0;
  for (uint32_t i = 0; i < count; i++) closure_thread(&closure, matcher->threads[level->first + i]);
  for (uint32_t i = 0; i < now->count; i++) {
    const grammar_node_t *node = &matcher->grammar->nodes[now->threads[i].node];
    scratch->units++;
    if (node->kind == NODE_TOKEN && node->token == (uint32_t)id)
      visit(&closure, node->next, now->threads[i].stack);
  }
  return finish_closure(&closure);
}

static bool waits_for(const grammar_matcher_t *matcher, int32_t id) {
  for (uint32_t i = 0; i < matcher->place.count; i++) {
    const grammar_node_t *node = &matcher->grammar->nodes[matcher->place.threads[i].node];
    if (node->kind == NODE_TOKEN && node->token == (uint32_t)id) return true;
  }
  return false;
}

/* Completes the acceptance of a token whose bytes have led to level `depth`; 0 = they lead nowhere,
 * but a node may wait for this token. Returns ERR_INTERNAL if the token is not allowed. */
static int take_token(grammar_matcher_t *matcher, grammar_scratch_t *scratch, int32_t id,
                      uint32_t depth) {
  level_t *last = &matcher->levels[depth > 0 ? depth : 1];
  if (depth == 0) {
    matcher_unwind(matcher, &matcher->levels[0]);
    *last = matcher->levels[0];
    last->first = last->used_threads = last->count;
    last->count = 0;
    last->accepting = false;
  }
  if (waits_for(matcher, id)) {
    level_t before = *last;
    if (matcher->narrow || !step_token(matcher, scratch, id, MAX(depth, 1), false)) {
      matcher_unwind(matcher, &before);
      *last = before;
      step_token(matcher, scratch, id, MAX(depth, 1), true);
    }
  }
  if (alive(last) == 0) {
    matcher_unwind(matcher, &matcher->levels[0]);
    return ERR_INTERNAL;
  }
  store(matcher, scratch, last);
  return 0;
}

int grammar_matcher_accept_on(grammar_matcher_t *matcher, grammar_scratch_t *scratch, int32_t id,
                              uint64_t units) {
  uint32_t length, depth = matcher->taken;
  uint64_t end = scratch->units + MIN(units, UINT64_MAX - scratch->units);
  const char *bytes = vocabulary_token(matcher->vocabulary, id, &length);
  if (depth == 0) matcher_load(matcher);
  matcher->taken = 0;
  while (depth < length) {
    uint32_t left = matcher_step(matcher, scratch, depth, (uint8_t)bytes[depth]);
    depth = left > 0 ? depth + 1 : 0;
    if (left == 0) break;
    if (scratch->units >= end && (depth < length || matcher_must_collect(matcher))) {
      matcher->taken = depth;
      return GRAMMAR_LATER;
    }
  }
  return take_token(matcher, scratch, id, depth);
}

int grammar_matcher_accept(grammar_matcher_t *matcher, grammar_scratch_t *scratch, int32_t id) {
  return grammar_matcher_accept_on(matcher, scratch, id, UINT64_MAX);
}

bool grammar_matcher_is_accepting(const grammar_matcher_t *matcher) {
  return matcher->place.accepting;
}

bool grammar_matcher_is_finished(const grammar_matcher_t *matcher) {
  return matcher->place.accepting && matcher->place.count == 0;
}
