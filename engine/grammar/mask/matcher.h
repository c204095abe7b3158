/* matcher.h: one sequence on its way through a grammar; shared by the files of this folder.
 *
 * One thread at a time uses a matcher; nothing here allocates.
 */
#ifndef INFERD_ENGINE_GRAMMAR_MASK_MATCHER_H
#define INFERD_ENGINE_GRAMMAR_MASK_MATCHER_H

#include "engine/grammar/mask/masks.h"
#include "engine/grammar/mask/memo.h"
#include "engine/grammar/mask/place.h"
#include "engine/grammar/mask/vocabulary.h"

struct grammar_matcher {
  const grammar_t *grammar;
  const grammar_vocabulary_t *vocabulary;
  bool narrow;    /* of what may follow a lexeme, only one way is followed */
  uint32_t taken; /* bytes of the token that is being accepted */
  /* frames[0] is the empty stack, links[0] is not used, sets[0] is empty. */
  uint32_t num_frames, num_links, num_sets;
  /* Those before are not to be overwritten: of the place, and of the memo of a walk. */
  uint32_t kept_threads, kept_frames, kept_links, kept_sets;
  matcher_frame_t frames[FRAMES_MAX + MEMO_FRAMES];
  matcher_link_t links[LINKS_MAX + MEMO_LINKS];
  name_set_t sets[SETS_MAX + MEMO_SETS];
  matcher_place_t place; /* after the last accepted token */
  /* Of a walk or of a token that is being accepted; kept between their pieces. Inside one lexeme a
   * walk needs no threads, but a state and a counter for each depth. */
  level_t levels[LEVELS];
  thread_t threads[WALK_THREADS_MAX + MEMO_THREADS];
  uint32_t lane_states[LEVELS], lane_counts[LEVELS];
  memo_t memo; /* of a walk that has stopped */
};

/* An entry of the table that finds what a closure has seen already. */
typedef struct mark {
  uint32_t stamp; /* of the closure; any other value = the slot is free */
  uint32_t value;
  uint32_t key[4];
} mark_t;

/* A place that a closure looks at: a node above a stack or, with a link, what is left to do because
 * the frame `stack` has got the link after it had returned. */
typedef struct seen {
  uint32_t node, stack, link;
} seen_t;

struct grammar_scratch {
  uint64_t units; /* work so far: nodes of tries and closures, thread steps, comparisons, frames */
  uint64_t narrowed; /* steps of which a bound left one way only */
  uint32_t lowest;   /* least depth of a frame whose links were looked at since a walk began */
  uint32_t stamp;    /* of the last closure */
  seen_t seen[CLOSURE_MAX];
  mark_t listed[MARKS_LISTED];
  mark_t marks[2 * MARKS_MAX]; /* the table of n slots begins at slot n */
  /* Collecting garbage: the new numbers of frames, links and sets; frames whose links come next. */
  uint32_t moved_frames[FRAMES_MAX], moved_links[LINKS_MAX], moved_sets[SETS_MAX];
  uint32_t reached[FRAMES_MAX];
  moves_t moves; /* of the byte that is being taken */
  memo_t memo;
};

/* Returns true if the closure that begins at `node` keeps within the bounds. The matcher was
 * started; its place is lost. */
bool matcher_has_room(grammar_matcher_t *matcher, grammar_scratch_t *scratch, uint32_t node);
/* Puts the threads of the place at level 0. */
void matcher_load(grammar_matcher_t *matcher);
/* mask.c: grammar_matcher_fill is matcher_walk and then matcher_finish. matcher_walk sets `row` to
 * the tokens whose bytes may come next. ready = false uses no ready rows and visits every node; the
 * tests compare both. */
void matcher_walk(grammar_matcher_t *matcher, grammar_scratch_t *scratch, bool ready,
                  uint32_t *row);
/* Continues a walk, which begins if `at` is zeroed, for about `units`; the matcher, the row and
 * `ready` are those of the beginning. Returns 0 or GRAMMAR_LATER. */
int matcher_walk_on(grammar_matcher_t *matcher, grammar_scratch_t *scratch, bool ready,
                    grammar_walk_t *at, uint64_t units, uint32_t *row);
/* Adds special tokens and stop ids to `row`. Returns as grammar_matcher_fill. */
int matcher_finish(const grammar_matcher_t *matcher, const int32_t *stop_ids, int32_t num_stop_ids,
                   uint32_t *row);
/* Level depth + 1 = what `byte` makes of level depth. Returns the number of threads, plus one when
 * the text may end; 0 = nothing is left. */
uint32_t matcher_step(grammar_matcher_t *matcher, grammar_scratch_t *scratch, uint32_t depth,
                      uint8_t byte);
/* Its two halves: what `byte` does to each thread of level depth, as scratch->moves; and what the
 * moves make. */
void matcher_find_moves(const grammar_matcher_t *matcher, grammar_scratch_t *scratch,
                        uint32_t depth, uint8_t byte);
uint32_t matcher_move(grammar_matcher_t *matcher, grammar_scratch_t *scratch, uint32_t depth);
/* True when matcher_step would leave something: for the last byte of a token, after which
 * no thread is needed. */
bool matcher_survives(const grammar_matcher_t *matcher, grammar_scratch_t *scratch, uint32_t depth,
                      uint8_t byte);
/* Most threads of level `depth`, if the levels before have `used`: what is left when every later
 * level keeps its sure ones. */
static inline uint32_t matcher_threads_max(uint32_t used, uint32_t depth) {
  uint32_t left = WALK_THREADS_MAX - used - THREADS_SURE * (LEVELS - 1 - depth);
  return left < THREADS_MAX ? left : THREADS_MAX;
}
/* Forgets the frames that levels above this one have made; the memo's stay. */
static inline void matcher_unwind(grammar_matcher_t *matcher, const level_t *level) {
  matcher->num_frames =
      level->num_frames > matcher->kept_frames ? level->num_frames : matcher->kept_frames;
  matcher->num_links =
      level->num_links > matcher->kept_links ? level->num_links : matcher->kept_links;
  matcher->num_sets = level->num_sets > matcher->kept_sets ? level->num_sets : matcher->kept_sets;
}
/* Returns the object whose set of names the count of a link or a thread at this node numbers; NULL
 * if the count is something else. */
static inline const grammar_object_t *matcher_set_object(const grammar_t *grammar, uint32_t node) {
  const grammar_node_t *at = &grammar->nodes[node];
  if (at->kind != NODE_OBJECT && at->kind != NODE_MEMBERS) return NULL;
  const grammar_object_t *object = grammar->objects[at->object];
  return object->has_sets ? object : NULL;
}

#endif
