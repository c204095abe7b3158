/* matcher.h: one sequence on its way through a grammar; shared by matcher.c and mask.c.
 *
 * Where a text stands is a set of threads, each a place in a lexeme and a stack of frames that says
 * what follows. Frames are immutable and shared: equal frames are one, so a set can be copied,
 * kept and compared by numbers. One thread at a time uses a matcher; nothing here allocates.
 */
#ifndef INFERD_ENGINE_GRAMMAR_MASK_MATCHER_H
#define INFERD_ENGINE_GRAMMAR_MASK_MATCHER_H

#include "engine/grammar/mask/vocabulary.h"
#include "engine/grammar/program.h"

enum {
  THREADS_MAX = 64,  /* alive at once; more: the request ends with an error */
  FRAMES_MAX = 4096, /* of one matcher, after collecting garbage */
  FRAME_BUCKETS = 2048,
  CLOSURE_MAX = 512,  /* nodes looked at between two bytes */
  WORK_MAX = 4000000, /* thread steps for one mask, about 20 ms */
  WALK_THREADS_MAX = (TOKEN_BYTES_MAX + 2) * THREADS_MAX
};

/* A byte that comes next is tried on node's lexeme from `state`.
 * LEX: state of the automaton, counter. EXTRA: state, trie node (NONE = no listed name any more).
 * MEMBERS: trie node, frame count of the object; the stack is below the object's frame.
 * TOKEN: nothing. */
typedef struct thread {
  uint32_t node, state, count, stack;
} thread_t;

typedef struct matcher_frame {
  uint32_t node; /* CALL, REPEAT or OBJECT: where RETURN continues */
  uint32_t count;
  uint32_t parent;
  uint32_t chain; /* hash bucket */
  uint32_t depth;
} matcher_frame_t;

/* A set of threads, closed: lexemes that could end have been left, too. */
typedef struct matcher_place {
  uint32_t count;
  bool accepting; /* the text may end here */
  thread_t threads[THREADS_MAX];
} matcher_place_t;

struct grammar_matcher {
  const grammar_t *grammar;
  const grammar_vocabulary_t *vocabulary;
  uint32_t num_frames; /* frames[0] is the empty stack */
  matcher_frame_t frames[FRAMES_MAX];
  uint32_t buckets[FRAME_BUCKETS];
  matcher_place_t place; /* after the last accepted token */
};

/* One depth of a walk: threads in the scratch. */
typedef struct level {
  uint32_t first, count;
  uint32_t num_frames; /* of the matcher, with those that this level has made */
  bool accepting;
} level_t;

struct grammar_scratch {
  uint32_t lowest; /* least depth of a frame whose return was looked at since a walk began */
  level_t levels[TOKEN_BYTES_MAX + 2];
  thread_t threads[WALK_THREADS_MAX + THREADS_MAX];
  struct {
    uint32_t node, stack;
  } seen[CLOSURE_MAX];
};

/* Puts the threads of `place` at level 0. */
void matcher_load(const grammar_matcher_t *matcher, grammar_scratch_t *scratch,
                  const matcher_place_t *place);
/* mask.c, the two halves of grammar_matcher_fill. The tokens whose bytes may come next; ready =
 * false walks the whole vocabulary: the tests compare both. 0 or ERR_INTERNAL. */
int matcher_walk(grammar_matcher_t *matcher, grammar_scratch_t *scratch, bool ready, uint32_t *row);
/* Special tokens and stop ids. 0; ERR_INTERNAL when nothing is allowed. */
int matcher_finish(const grammar_matcher_t *matcher, const int32_t *stop_ids, int32_t num_stop_ids,
                   uint32_t *row);
/* Level depth + 1 = what `byte` makes of level depth. 0 = nothing is left; negative: a bound was
 * reached; else the number of threads, plus one when the text may end. */
int matcher_step(grammar_matcher_t *matcher, grammar_scratch_t *scratch, uint32_t depth,
                 uint8_t byte);
/* True when matcher_step would leave something: for the last byte of a token, after which
 * no thread is needed. */
bool matcher_survives(const grammar_matcher_t *matcher, const grammar_scratch_t *scratch,
                      uint32_t depth, uint8_t byte);
/* Forgets the frames that levels above `depth` have made. */
void matcher_unwind(grammar_matcher_t *matcher, uint32_t num_frames);

#endif
