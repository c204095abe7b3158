/* place.h: where a text stands in a grammar.
 *
 * It stands at a set of threads, each a place in a lexeme and a stack of frames that says what
 * follows. Stacks that differ only in what lies below share their top: a frame has a list of links,
 * one for each way in which the rule that it stands for was reached (a graph-structured stack; M.
 * Tomita, 1986). So the number of threads does not grow with the depth of a text. A frame gets
 * links only at the byte that makes it; later it never changes, so a set of threads is copied, kept
 * and dropped as numbers.
 */
#ifndef INFERD_ENGINE_GRAMMAR_MASK_PLACE_H
#define INFERD_ENGINE_GRAMMAR_MASK_PLACE_H

#include "engine/grammar/mask/vocabulary.h"
#include "engine/grammar/program.h"

enum {
  THREADS_MAX = 256,    /* alive at once */
  THREADS_SURE = 64,    /* so many of a level have room whatever the other levels hold */
  FRAMES_MAX = 4096,    /* of one matcher; one half for its place, one for the bytes of a token */
  LINKS_MAX = 8192,     /* of all frames of one matcher, halved alike */
  SETS_MAX = 640,       /* of names, likewise */
  CLOSURE_MAX = 2048,   /* places looked at between two bytes */
  CLOSURE_STEPS = 4096, /* ways looked at between two bytes, most of which lead to equal places */
  MARKS_LISTED = 8,     /* so many marks are a list */
  MARKS_FIRST = 64,     /* slots of the smallest table of marks */
  MARKS_MAX = 8192,     /* slots of the largest one */
  LEVELS = TOKEN_BYTES_MAX + 2,
  WALK_THREADS_MAX = LEVELS * THREADS_SURE + 8 * THREADS_MAX /* of all levels of a path */
};

/* A byte that comes next is tried on node's lexeme from `state`.
 * LEX: state of the automaton, counter. EXTRA: state, trie node (NONE = no listed name any more).
 * MEMBERS: trie node, frame count of the object; the stack is below the object's frame.
 * TOKEN: nothing. */
typedef struct thread {
  uint32_t node, state, count, stack;
} thread_t;

/* The members of an object that have come, where they are too many for a count. Equal sets of a
 * matcher have equal numbers; number 0 is the empty set. */
typedef struct name_set {
  uint64_t names[SET_WORDS]; /* a bit for each listed name */
  uint64_t extras;           /* extra members (saturated at 1 unless the number matters) */
} name_set_t;

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
  uint32_t num_frames, num_links, num_sets; /* of the matcher, when it came here */
  bool accepting;                           /* the text may end here */
  thread_t threads[THREADS_MAX];
} matcher_place_t;

/* One depth of a walk: threads of the matcher. The bounds hold for the bytes of one token: `used`
 * counts what they have made, wherever it lies. */
typedef struct level {
  uint32_t first, count;
  uint32_t num_threads; /* of the matcher, with those of this level; 0 = a memo has them */
  uint32_t num_frames, num_links, num_sets; /* likewise */
  uint32_t used_threads, used_sets;         /* of the levels before; sets: looked for */
  uint32_t own_sets;                        /* of this level */
  uint32_t used_frames, used_links; /* of this level and those before; the place does not count */
  uint32_t state;                   /* of the memo; 0 = none */
  bool accepting;
  bool whole; /* no bound was passed */
} level_t;

#endif
