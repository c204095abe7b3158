/* matcher.h: one sequence on its way through a grammar; shared by frames.c, matcher.c and mask.c.
 *
 * Where a text stands is a set of threads, each a place in a lexeme and a stack of frames that says
 * what follows. Stacks that differ only in what lies below share their top: a frame has a list of
 * links, one for each way in which the rule that it stands for was reached (a graph-structured
 * stack; M. Tomita, 1986). So the number of threads does not grow with the depth of a text. A frame
 * gets links only at the byte that makes it; later it never changes, so a set of threads is copied,
 * kept and dropped as numbers. One thread at a time uses a matcher; nothing here allocates.
 */
#ifndef INFERD_ENGINE_GRAMMAR_MASK_MATCHER_H
#define INFERD_ENGINE_GRAMMAR_MASK_MATCHER_H

#include "engine/grammar/mask/masks.h"
#include "engine/grammar/mask/vocabulary.h"
#include "engine/grammar/program.h"

enum {
  THREADS_MAX = 256,    /* alive at once */
  THREADS_SURE = 64,    /* so many of a level have room whatever the other levels hold */
  FRAMES_MAX = 4096,    /* of one matcher; one half for its place, one for the bytes of a token */
  LINKS_MAX = 8192,     /* of all frames of one matcher, halved alike */
  CLOSURE_MAX = 2048,   /* places looked at between two bytes */
  CLOSURE_STEPS = 4096, /* ways looked at between two bytes, most of which lead to equal places */
  MARKS_LISTED = 8,     /* so many marks are a list */
  MARKS_FIRST = 64,     /* slots of the smallest table of marks */
  MARKS_MAX = 8192,     /* slots of the largest one */
  LEVELS = TOKEN_BYTES_MAX + 2,
  WALK_THREADS_MAX = LEVELS * THREADS_SURE + 8 * THREADS_MAX /* of all levels of a walk */
};

/* A byte that comes next is tried on node's lexeme from `state`.
 * LEX: state of the automaton, counter. EXTRA: state, trie node (NONE = no listed name any more).
 * MEMBERS: trie node, frame count of the object; the stack is below the object's frame.
 * TOKEN: nothing. */
typedef struct thread {
  uint32_t node, state, count, stack;
} thread_t;

/* What happened to a frame at the byte that made it. */
enum {
  FRAME_RETURNED = 1, /* its rule has ended without a byte */
  FRAME_MEMBERS = 2,  /* its object has gone on without a comma */
  FRAME_JOINED = 4    /* it stands for several frames below one thread */
};

typedef struct matcher_frame {
  uint32_t depth;  /* frames of a stack below and with this one: equal for all its links */
  uint32_t links;  /* the first one; 0 = none, in frame 0 only */
  uint32_t passed; /* FRAME_ bits */
} matcher_frame_t;

typedef struct matcher_link {
  uint32_t node;   /* CALL, REPEAT or OBJECT: where RETURN continues; RETURN: in the parent, whose
                      depth is that of the frame */
  uint32_t count;  /* of REPEAT and OBJECT */
  uint32_t parent; /* frame below */
  uint32_t next;   /* link of the same frame; 0 = none */
} matcher_link_t;

/* A set of threads after its closure: it also has the threads behind every lexeme that may end. */
typedef struct matcher_place {
  uint32_t count;
  uint32_t num_frames, num_links; /* of the matcher, when it came here */
  bool accepting;                 /* the text may end here */
  thread_t threads[THREADS_MAX];
} matcher_place_t;

/* One depth of a walk: threads of the matcher. */
typedef struct level {
  uint32_t first, count;
  uint32_t num_frames, num_links; /* of the matcher, with those that this level has made */
  bool accepting;
} level_t;

struct grammar_matcher {
  const grammar_t *grammar;
  const grammar_vocabulary_t *vocabulary;
  bool narrow;                    /* of what may follow a lexeme, only one way is followed */
  uint32_t taken;                 /* bytes of the token that is being accepted */
  uint32_t num_frames, num_links; /* frames[0] is the empty stack, links[0] is not used */
  matcher_frame_t frames[FRAMES_MAX];
  matcher_link_t links[LINKS_MAX];
  matcher_place_t place; /* after the last accepted token */
  /* Of a walk or of a token that is being accepted; kept between their pieces. Inside one lexeme a
   * walk needs no threads, but a state and a counter for each depth. */
  level_t levels[LEVELS];
  thread_t threads[WALK_THREADS_MAX];
  uint32_t lane_states[LEVELS], lane_counts[LEVELS];
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
  /* Collecting garbage: the new numbers of frames and of links, frames whose links come next. */
  uint32_t moved_frames[FRAMES_MAX], moved_links[LINKS_MAX], reached[FRAMES_MAX];
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
/* Adds special tokens and stop ids to `row`. Returns 0, or ERR_INTERNAL if nothing is allowed. */
int matcher_finish(const grammar_matcher_t *matcher, const int32_t *stop_ids, int32_t num_stop_ids,
                   uint32_t *row);
/* Level depth + 1 = what `byte` makes of level depth. Returns the number of threads, plus one when
 * the text may end; 0 = nothing is left. */
uint32_t matcher_step(grammar_matcher_t *matcher, grammar_scratch_t *scratch, uint32_t depth,
                      uint8_t byte);
/* True when matcher_step would leave something: for the last byte of a token, after which
 * no thread is needed. */
bool matcher_survives(const grammar_matcher_t *matcher, grammar_scratch_t *scratch, uint32_t depth,
                      uint8_t byte);
/* Forgets the frames that levels above this one have made. */
static inline void matcher_unwind(grammar_matcher_t *matcher, const level_t *level) {
  matcher->num_frames = level->num_frames;
  matcher->num_links = level->num_links;
}

#endif
