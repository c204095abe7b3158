/* frames.h: the stacks of a matcher, and what happens to them between two bytes.
 *
 * A closure finds all threads that can be reached without a byte. For matcher.c and frames.c only;
 * the thread that uses the matcher. Nothing here allocates.
 */
#ifndef INFERD_ENGINE_GRAMMAR_MASK_FRAMES_H
#define INFERD_ENGINE_GRAMMAR_MASK_FRAMES_H

#include "engine/grammar/mask/matcher.h"

/* One closure: the places that are left to look at, and the level that gets the threads. A narrow
 * closure follows one way only: it has at most one place to look at, and ends at the first thread
 * that it adds. */
typedef struct closure {
  grammar_matcher_t *matcher;
  grammar_scratch_t *scratch;
  level_t *level;
  uint32_t num_seen, next;
  uint32_t first_frame; /* this frame and later ones are new: only they get links */
  uint32_t first_link;
  uint32_t num_slots, num_marks;               /* num_slots 0: the marks are a list */
  uint32_t steps;                              /* ways looked at so far */
  uint32_t num_sets;                           /* sets that were looked for */
  uint32_t threads_max, frames_end, links_end; /* bounds that depend on the walk alone */
  uint32_t sets_max;
  bool narrow;
  bool closing; /* the threads of the level before have taken their byte */
  bool done;    /* narrow: the way has ended */
  bool full;    /* a bound was passed: what was found is not complete */
} closure_t;

/* Begins a closure that adds threads to level `depth`, whose `first` is set. */
void closure_begin(closure_t *closure, grammar_matcher_t *matcher, grammar_scratch_t *scratch,
                   uint32_t depth, bool narrow);
/* Returns the mark of a key. If *found is false, the mark is new and the caller sets its value.
 * Returns NULL, and sets closure->full, after too many calls. */
mark_t *closure_mark(closure_t *closure, const uint32_t key[4], bool *found);
/* Returns the frame that this closure has for the rule at node `rule`, `depth` frames high; *made:
 * this call made it. Returns 0, and sets closure->full, if there is no room. */
uint32_t closure_frame(closure_t *closure, uint32_t rule, uint32_t depth, bool *made);
/* Adds a link to a new frame, unless the frame has it. */
void closure_link(closure_t *closure, uint32_t frame, matcher_link_t link);
/* Returns a new frame with this one link, which no other call can find; 0, and sets closure->full,
 * if there is no room. */
uint32_t closure_own_frame(closure_t *closure, uint32_t depth, matcher_link_t link);
/* Returns the number of a set that is not empty; equal sets have one number. Returns 0, and sets
 * closure->full, if there is no room. */
uint32_t closure_set(closure_t *closure, const name_set_t *set);
/* Adds a thread, or its stack to the thread that differs in nothing else. */
void closure_thread(closure_t *closure, thread_t thread);
/* Whether more than half of the frames, links or sets are in use. */
static inline bool matcher_must_collect(const grammar_matcher_t *matcher) {
  return matcher->num_frames > FRAMES_MAX / 2 || matcher->num_links > LINKS_MAX / 2 ||
         matcher->num_sets > SETS_MAX / 2;
}
/* If so, drops those that the matcher's place cannot reach. If the rest is still more than half,
 * keeps one thread and one way (matcher_keep_one). */
void matcher_collect(grammar_matcher_t *matcher, grammar_scratch_t *scratch);
/* Keeps one thread of the place, and one way below it. */
void matcher_keep_one(grammar_matcher_t *matcher);

#endif
