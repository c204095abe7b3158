/* frames.c: the stacks of a matcher: frames, the links between them, sets of names, and what a
 * closure has seen.
 *
 * Engine thread or a worker; allocates nothing. A closure is what happens between two bytes. Within
 * one closure a frame is found by (rule, depth), whichever rule calls it, and each caller is a
 * link.
 */
#include "engine/grammar/mask/frames.h"

#include "engine/base/util.h"

#include <string.h>

/* What a key stands for, in the bits above the number of a node. */
enum { KEY_FRAME = 1 << 29, KEY_LINK = 2 << 29, KEY_THREAD = 3 << 29 };

/* ---- marks ---- */

/* A walk and the acceptance of a token see the same bounds, because both begin at a place and count
 * what their bytes have made. */
void closure_begin(closure_t *closure, grammar_matcher_t *matcher, grammar_scratch_t *scratch,
                   uint32_t depth, bool narrow) {
  level_t *level = &matcher->levels[depth];
  *closure = (closure_t){.matcher = matcher,
                         .scratch = scratch,
                         .level = level,
                         .first_frame = matcher->num_frames,
                         .first_link = matcher->num_links,
                         .threads_max = matcher_threads_max(level->used_threads, depth),
                         .frames_end = matcher->num_frames + FRAMES_MAX / 2 - level->used_frames,
                         .links_end = matcher->num_links + LINKS_MAX / 2 - level->used_links,
                         .sets_max = SETS_MAX / 2 - level->used_sets - level->own_sets,
                         .narrow = narrow};
}

static inline bool is_key(const mark_t *mark, const uint32_t key[4]) {
  return memcmp(mark->key, key, sizeof mark->key) == 0;
}

/* Returns the slot of the key in the table of `num_slots`: its mark, or the free one for it. */
static inline mark_t *slot_of(const closure_t *closure, uint32_t num_slots, const uint32_t key[4]) {
  mark_t *marks = closure->scratch->marks + num_slots;
  uint32_t stamp = closure->scratch->stamp;
  uint32_t h =
      key[0] * 0x9E3779B1u ^ key[1] * 0x85EBCA77u ^ key[2] * 0xC2B2AE3Du ^ key[3] * 0x27D4EB2Fu;
  for (h ^= h >> 15;; h++) {
    mark_t *mark = &marks[h & (num_slots - 1)];
    if (mark->stamp != stamp || is_key(mark, key)) return mark;
  }
}

static void grow(closure_t *closure) {
  uint32_t from = closure->num_slots, to = 2 * from;
  for (uint32_t i = 0; i < from; i++) {
    const mark_t *mark = &closure->scratch->marks[from + i];
    if (mark->stamp == closure->scratch->stamp) *slot_of(closure, to, mark->key) = *mark;
  }
  closure->num_slots = to;
}

/* Puts the first marks of a closure, which are a list, into the smallest table. */
static void begin_table(closure_t *closure) {
  grammar_scratch_t *scratch = closure->scratch;
  if (++scratch->stamp == 0) { /* the numbers begin again: old marks would look new */
    memset(scratch->marks, 0, sizeof scratch->marks);
    scratch->stamp = 1;
  }
  closure->num_slots = MARKS_FIRST;
  for (uint32_t i = 0; i < MARKS_LISTED; i++) {
    mark_t *mark = &scratch->listed[i];
    mark->stamp = scratch->stamp;
    *slot_of(closure, MARKS_FIRST, mark->key) = *mark;
  }
}

/* Finds the key among the listed marks, or adds it; NULL = the list is full. */
static inline mark_t *list_mark(closure_t *closure, const uint32_t key[4], bool *found) {
  mark_t *listed = closure->scratch->listed;
  uint32_t count = closure->num_marks;
  for (uint32_t i = 0; i < count; i++) {
    if (!is_key(&listed[i], key)) continue;
    *found = true;
    return &listed[i];
  }
  if (count == MARKS_LISTED) return NULL;
  *found = false;
  memcpy(listed[count].key, key, sizeof listed->key);
  closure->num_marks++;
  return &listed[count];
}

mark_t *closure_mark(closure_t *closure, const uint32_t key[4], bool *found) {
  closure->scratch->units++;
  if (++closure->steps > CLOSURE_STEPS) {
    closure->full = true;
    return NULL;
  }
  if (closure->num_slots == 0) {
    mark_t *listed = list_mark(closure, key, found);
    if (listed != NULL) return listed;
    begin_table(closure);
  }
  mark_t *mark = slot_of(closure, closure->num_slots, key);
  *found = mark->stamp == closure->scratch->stamp;
  if (*found) return mark;
  if (closure->num_marks >= closure->num_slots / 4 * 3) {
    grow(closure);
    mark = slot_of(closure, closure->num_slots, key);
  }
  closure->num_marks++;
  mark->stamp = closure->scratch->stamp;
  memcpy(mark->key, key, sizeof mark->key);
  return mark;
}

/* ---- frames and links ---- */

static uint32_t new_frame(closure_t *closure, uint32_t depth, uint32_t passed) {
  grammar_matcher_t *matcher = closure->matcher;
  closure->scratch->units++;
  if (matcher->num_frames == closure->frames_end) {
    closure->full = true;
    return 0;
  }
  matcher->frames[matcher->num_frames] = (matcher_frame_t){.depth = depth, .passed = passed};
  return matcher->num_frames++;
}

uint32_t closure_frame(closure_t *closure, uint32_t rule, uint32_t depth, bool *made) {
  bool found = false;
  mark_t *mark = closure_mark(closure, (uint32_t[]){KEY_FRAME | rule, depth, 0, 0}, &found);
  *made = !found;
  if (mark == NULL) return 0;
  if (!found) mark->value = new_frame(closure, depth, 0);
  return mark->value;
}

/* A frame has got a link after the closure had looked at it: repeats for this link what was done
 * with the others. */
static void make_up(closure_t *closure, uint32_t frame, uint32_t link) {
  uint32_t passed = closure->matcher->frames[frame].passed;
  for (uint32_t bit = FRAME_RETURNED; bit <= FRAME_MEMBERS; bit *= 2) {
    if (!(passed & bit)) continue;
    if (closure->num_seen == CLOSURE_MAX) {
      closure->full = true;
      return;
    }
    closure->scratch->seen[closure->num_seen++] = (seen_t){bit, frame, link};
  }
}

/* Adds a link to a frame. Returns its number; 0, and closure->full, if there is no room. */
static uint32_t new_link(closure_t *closure, uint32_t frame, matcher_link_t link) {
  grammar_matcher_t *matcher = closure->matcher;
  if (matcher->num_links == closure->links_end) {
    closure->full = true;
    return 0;
  }
  uint32_t number = matcher->num_links++;
  link.next = matcher->frames[frame].links;
  matcher->links[number] = link;
  matcher->frames[frame].links = number;
  return number;
}

void closure_link(closure_t *closure, uint32_t frame, matcher_link_t link) {
  bool found = false;
  uint32_t key[] = {KEY_LINK | link.node, link.count, link.parent, frame};
  if (closure_mark(closure, key, &found) == NULL || found) return;
  uint32_t number = new_link(closure, frame, link);
  if (number != 0) make_up(closure, frame, number);
}

uint32_t closure_own_frame(closure_t *closure, uint32_t depth, matcher_link_t link) {
  uint32_t frame = new_frame(closure, depth, 0);
  return frame != 0 && new_link(closure, frame, link) != 0 ? frame : 0;
}

/* A set that was found counts as a new one: what a memo has kept must not change the bound. */
uint32_t closure_set(closure_t *closure, const name_set_t *set) {
  grammar_matcher_t *matcher = closure->matcher;
  uint32_t number = matcher->num_sets;
  if (closure->num_sets == closure->sets_max) {
    closure->full = true;
    return 0;
  }
  closure->num_sets++;
  while (number > 0 && memcmp(&matcher->sets[number - 1], set, sizeof *set) != 0) number--;
  closure->scratch->units += 1 + (matcher->num_sets - number) / 8;
  if (number > 0) return number - 1;
  matcher->sets[matcher->num_sets] = *set;
  return matcher->num_sets++;
}

/* ---- threads ---- */

/* Lets a joined frame stand for `stack` as well. A new frame may still get links, so the joined one
 * points to it. The links of an older frame are copied: joined frames then never form a chain,
 * which would grow with the text. */
static void join(closure_t *closure, uint32_t joined, uint32_t stack) {
  const grammar_matcher_t *matcher = closure->matcher;
  uint32_t depth = matcher->frames[stack].depth;
  if (stack >= closure->first_frame) {
    closure_link(closure, joined, (matcher_link_t){.node = NODE_ID_RETURN, .parent = stack});
    return;
  }
  if (depth < closure->scratch->lowest) closure->scratch->lowest = depth;
  for (uint32_t i = matcher->frames[stack].links; i; i = matcher->links[i].next) {
    const matcher_link_t link = matcher->links[i];
    closure->scratch->units++;
    if (link.node == NODE_ID_RETURN) {
      join(closure, joined, link.parent);
    } else {
      closure_link(closure, joined, link);
    }
  }
}

static void add_thread(closure_t *closure, const thread_t *thread) {
  level_t *level = closure->level;
  closure->done = closure->narrow && closure->closing;
  if (level->count == closure->threads_max) {
    closure->full = true;
    return;
  }
  closure->matcher->threads[level->first + level->count++] = *thread;
}

/* Lets a thread stand for another stack as well. */
static void add_stack(closure_t *closure, thread_t *thread, uint32_t stack) {
  const grammar_matcher_t *matcher = closure->matcher;
  if (thread->stack == stack) return;
  if (thread->stack < closure->first_frame ||
      !(matcher->frames[thread->stack].passed & FRAME_JOINED)) {
    uint32_t joined = new_frame(closure, matcher->frames[stack].depth, FRAME_JOINED);
    if (joined == 0) return;
    join(closure, joined, thread->stack);
    thread->stack = joined;
  }
  join(closure, thread->stack, stack);
}

void closure_thread(closure_t *closure, thread_t thread) {
  grammar_matcher_t *matcher = closure->matcher;
  bool found = false;
  if (closure->narrow) {
    add_thread(closure, &thread);
    return;
  }
  uint32_t depth = matcher->frames[thread.stack].depth;
  uint32_t key[] = {KEY_THREAD | thread.node, thread.state, thread.count, depth};
  mark_t *mark = closure_mark(closure, key, &found);
  if (mark == NULL) return;
  if (found) {
    add_stack(closure, &matcher->threads[mark->value], thread.stack);
  } else {
    mark->value = closure->level->first + closure->level->count;
    add_thread(closure, &thread);
  }
}

/* ---- garbage ---- */

/* Gives those that are marked their numbers, in their old order; number 0 stays. */
static void number_marked(uint32_t *numbers, uint32_t count) {
  for (uint32_t i = 1, kept = 1; i < count; i++) {
    if (numbers[i]) numbers[i] = kept++;
  }
}

/* Numbers what can still be reached; 0 = not reached. */
static void number_reached(const grammar_matcher_t *matcher, grammar_scratch_t *scratch) {
  uint32_t *frames = scratch->moved_frames, *links = scratch->moved_links, count = 0;
  uint32_t *sets = scratch->moved_sets;
  memset(frames, 0, matcher->num_frames * sizeof *frames);
  memset(links, 0, matcher->num_links * sizeof *links);
  memset(sets, 0, matcher->num_sets * sizeof *sets);
  for (uint32_t i = 0; i < matcher->place.count; i++) {
    const thread_t *thread = &matcher->place.threads[i];
    uint32_t frame = thread->stack;
    if (matcher_set_object(matcher->grammar, thread->node) != NULL) sets[thread->count] = 1;
    if (frame != 0 && !frames[frame]) frames[scratch->reached[count++] = frame] = 1;
  }
  while (count > 0) {
    uint32_t frame = scratch->reached[--count];
    for (uint32_t i = matcher->frames[frame].links; i; i = matcher->links[i].next) {
      const matcher_link_t *link = &matcher->links[i];
      uint32_t parent = link->parent;
      links[i] = 1;
      if (matcher_set_object(matcher->grammar, link->node) != NULL) sets[link->count] = 1;
      scratch->units++;
      if (parent != 0 && !frames[parent]) frames[scratch->reached[count++] = parent] = 1;
    }
  }
  sets[0] = 0;
  number_marked(frames, matcher->num_frames);
  number_marked(links, matcher->num_links);
  number_marked(sets, matcher->num_sets);
}

/* Moves what was numbered to its new number. */
static void move_reached(grammar_matcher_t *matcher, const grammar_scratch_t *scratch) {
  const uint32_t *frames = scratch->moved_frames, *links = scratch->moved_links;
  const uint32_t *sets = scratch->moved_sets;
  uint32_t num_frames = 1, num_links = 1, num_sets = 1;
  for (uint32_t i = 1; i < matcher->num_frames; i++) {
    if (!frames[i]) continue;
    matcher_frame_t frame = matcher->frames[i];
    frame.links = links[frame.links];
    matcher->frames[num_frames++] = frame;
  }
  for (uint32_t i = 1; i < matcher->num_links; i++) {
    if (!links[i]) continue;
    matcher_link_t link = matcher->links[i];
    link.parent = frames[link.parent];
    link.next = links[link.next];
    if (matcher_set_object(matcher->grammar, link.node) != NULL) link.count = sets[link.count];
    matcher->links[num_links++] = link;
  }
  for (uint32_t i = 1; i < matcher->num_sets; i++) {
    if (sets[i]) matcher->sets[num_sets++] = matcher->sets[i];
  }
  matcher->num_frames = num_frames;
  matcher->num_links = num_links;
  matcher->num_sets = num_sets;
  for (uint32_t i = 0; i < matcher->place.count; i++) {
    thread_t *thread = &matcher->place.threads[i];
    thread->stack = frames[thread->stack];
    if (matcher_set_object(matcher->grammar, thread->node) != NULL)
      thread->count = sets[thread->count];
  }
}

void matcher_keep_one(grammar_matcher_t *matcher) {
  matcher_place_t *place = &matcher->place;
  place->count = MIN(place->count, 1);
  for (uint32_t frame = place->count > 0 ? place->threads[0].stack : 0; frame != 0;) {
    matcher_link_t *link = &matcher->links[matcher->frames[frame].links];
    link->next = 0;
    frame = link->parent;
  }
}

void matcher_collect(grammar_matcher_t *matcher, grammar_scratch_t *scratch) {
  for (int tries = 0; matcher_must_collect(matcher); tries++) {
    if (tries > 0) matcher_keep_one(matcher);
    scratch->units += matcher->num_frames + matcher->num_links + matcher->num_sets;
    number_reached(matcher, scratch);
    move_reached(matcher, scratch);
  }
}
