/* frames.h: the stacks of a matcher, and what happens to them between two bytes. For matcher.c
 * only.
 */
#ifndef INFERD_ENGINE_GRAMMAR_MASK_FRAMES_H
#define INFERD_ENGINE_GRAMMAR_MASK_FRAMES_H

#include "engine/grammar/mask/matcher.h"

/* One closure: what is left to look at, and the level that gets the threads. A narrow one follows
 * one way only: it has at most one place to look at, and ends at the first thread that it adds. */
typedef struct closure {
  grammar_matcher_t *m;
  grammar_scratch_t *s;
  level_t *level;
  uint32_t num_seen, next;
  uint32_t first_frame;          /* this frame and later ones are new: only they get links */
  uint32_t num_slots, num_marks; /* slots 0: the marks are a list */
  uint32_t steps;                /* ways looked at so far */
  uint32_t threads_max, frames_end, links_end; /* bounds that depend on the walk alone */
  bool narrow;
  bool closing; /* the threads of the level before have taken their byte */
  bool done;    /* narrow: the way has ended */
  bool full;    /* a bound was passed: what was found is not complete */
} closure_t;

/* Begins a closure that adds threads to level `depth`, whose `first` is set. */
void closure_begin(closure_t *closure, grammar_matcher_t *matcher, grammar_scratch_t *scratch,
                   uint32_t depth, bool narrow);
/* Returns the mark of a key, which is new if *found is false: the caller then sets its value. NULL,
 * and closure->full, if there were too many. */
mark_t *closure_mark(closure_t *closure, const uint32_t key[4], bool *found);
/* Returns the new frame of the rule that begins at node `rule`, `depth` frames high; *made: it had
 * no links before. 0, and closure->full, if there is no room. */
uint32_t closure_frame(closure_t *closure, uint32_t rule, uint32_t depth, bool *made);
/* Adds a link to a new frame, unless the frame has it. */
void closure_link(closure_t *closure, uint32_t frame, matcher_link_t link);
/* A new frame with this one link, which no other call can find. 0, and closure->full, if there is
 * no room. */
uint32_t closure_own_frame(closure_t *closure, uint32_t depth, matcher_link_t link);
/* Adds a thread, or its stack to the thread that differs in nothing else. */
void closure_thread(closure_t *closure, thread_t thread);
/* Keeps the frames that the matcher's place can still reach if they are more than half of what
 * there may be; then also drops what leaves them too many. */
void matcher_collect(grammar_matcher_t *matcher, grammar_scratch_t *scratch);
/* Keeps one thread of the place, and one way below it. */
void matcher_keep_one(grammar_matcher_t *matcher);

#endif
