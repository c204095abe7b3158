/* pretokenizer.h: normalised text -> pieces that the model encodes one by one.
 *
 * A chain as in tokenizer.json, compiled to phases: a phase may change its input (Metaspace,
 * add_prefix_space) and then splits it by up to a few steps, each seeing one piece of the step
 * before. Read-only after load; a pretokenizer_scratch_t belongs to one thread.
 */
#ifndef INFERD_ENGINE_TEXT_SPLIT_PRETOKENIZER_H
#define INFERD_ENGINE_TEXT_SPLIT_PRETOKENIZER_H

#include "engine/base/buffer.h"
#include "engine/text/split/scanner.h"

enum { PRETOKENIZER_STEPS_MAX = 24, PRETOKENIZER_PHASES_MAX = 8 };

typedef enum split_behavior {
  SPLIT_REMOVED,              /* keep what does not match */
  SPLIT_ISOLATED,             /* matches and gaps are pieces */
  SPLIT_MERGED_WITH_PREVIOUS, /* a match joins the gap before it */
  SPLIT_MERGED_WITH_NEXT,     /* a match joins the gap after it */
  SPLIT_CONTIGUOUS            /* neighbouring matches join */
} split_behavior_t;

typedef enum prefix_scheme { PREFIX_NEVER, PREFIX_FIRST, PREFIX_ALWAYS } prefix_scheme_t;

typedef struct pretokenizer_phase {
  bool replace_spaces;    /* ' ' -> prefix_text (Metaspace) */
  prefix_scheme_t prefix; /* put prefix_text before a piece that does not start with it */
  uint8_t prefix_text[4];
  uint8_t prefix_length; /* 0 = the phase changes nothing */
  unsigned first_step, num_steps;
} pretokenizer_phase_t;

typedef struct pretokenizer_step {
  scanner_t scanner;
  split_behavior_t behavior;
  bool invert; /* matches and gaps change places */
} pretokenizer_step_t;

typedef struct pretokenizer {
  pretokenizer_step_t *steps; /* [PRETOKENIZER_STEPS_MAX] */
  unsigned num_steps;
  pretokenizer_phase_t phases[PRETOKENIZER_PHASES_MAX];
  unsigned num_phases; /* >= 1 */
  bool byte_level;     /* a ByteLevel step is in the chain: the model sees bytes */
} pretokenizer_t;

typedef struct pretokenizer_scratch {
  buffer_t text[PRETOKENIZER_PHASES_MAX];
  bool notes_origins; /* the caller's wish. Then, of each byte of a phase's text: */
  buffer_t origins[PRETOKENIZER_PHASES_MAX]; /* uint32_t, the byte of the input behind it */
  const uint8_t *input;                      /* of the run */
} pretokenizer_scratch_t;

/* Takes one piece; bytes up to `limit` may be read. Non-zero stops and is returned. */
typedef int piece_sink_t(void *context, const uint8_t *piece, size_t length, const uint8_t *limit);

bool pretokenizer_init(pretokenizer_t *pretokenizer); /* one empty phase; false: no memory */
void pretokenizer_free(pretokenizer_t *pretokenizer);
/* Both return NULL when the chain is too long. The caller fills what it gets. */
pretokenizer_step_t *pretokenizer_add_step(pretokenizer_t *pretokenizer);
pretokenizer_phase_t *pretokenizer_add_phase(pretokenizer_t *pretokenizer);

/* Splits `text` and gives every piece, none empty, to the sink in order. `at_start`: the text
 * begins at offset 0 of the whole input. Returns 0, what the sink returned, or ERR_INTERNAL
 * (memory). */
int pretokenizer_run(const pretokenizer_t *pretokenizer, pretokenizer_scratch_t *scratch,
                     const uint8_t *text, size_t length, const uint8_t *limit, bool at_start,
                     piece_sink_t *sink, void *context);
/* While the sink runs, with notes_origins: which byte of the input a byte of its piece comes from;
 * what was put in front of a piece comes from its first. */
size_t pretokenizer_origin(const pretokenizer_scratch_t *scratch, const uint8_t *byte);
void pretokenizer_scratch_trim(pretokenizer_scratch_t *scratch, size_t keep_max);
void pretokenizer_scratch_free(pretokenizer_scratch_t *scratch);

#endif
