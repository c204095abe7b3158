/* normalizer.h: raw text between added tokens -> normalised text.
 *
 * A chain of NFC, Precompiled, Prepend, Replace (plain text, or runs of spaces) and Strip as in
 * tokenizer.json. Read-only after load; a normalizer_scratch_t belongs to one thread. Linear time,
 * whatever the text.
 */
#ifndef INFERD_ENGINE_TEXT_NORMALIZE_NORMALIZER_H
#define INFERD_ENGINE_TEXT_NORMALIZE_NORMALIZER_H

#include "engine/text/normalize/charsmap.h"

enum { NORMALIZER_STEPS_MAX = 16, NORMALIZER_TEXT_MAX = 256 };

typedef enum {
  NORMALIZE_NFC,
  NORMALIZE_CHARSMAP, /* Precompiled */
  NORMALIZE_PREPEND,
  NORMALIZE_REPLACE,
  NORMALIZE_SPACES, /* Replace of the regex " {2,}" */
  NORMALIZE_STRIP   /* whitespace at the ends */
} normalizer_kind_t;

typedef struct normalizer_step {
  normalizer_kind_t kind;
  unsigned pattern_length, content_length; /* bytes; pattern: Replace only */
  char pattern[NORMALIZER_TEXT_MAX], content[NORMALIZER_TEXT_MAX];
  charsmap_t *charsmap;
  bool strip_left, strip_right;
} normalizer_step_t;

typedef struct normalizer {
  normalizer_step_t *steps; /* [NORMALIZER_STEPS_MAX], NULL when empty */
  unsigned num_steps;
} normalizer_t;

typedef struct normalizer_scratch {
  buffer_t text[2];
  buffer_t chars; /* uint32_t code points of one NFC segment */
} normalizer_scratch_t;

void normalizer_free(normalizer_t *normalizer);

/* Normalises text[0..length). On return *text, *length and *limit (end of readable bytes) are the
 * result: the input itself when nothing changed, else a buffer of the scratch. False: no memory. */
bool normalizer_run(const normalizer_t *normalizer, normalizer_scratch_t *scratch,
                    const uint8_t **text, size_t *length, const uint8_t **limit);
/* The same for a part that does not begin the text: nothing is put in front of it. */
bool normalizer_run_inner(const normalizer_t *normalizer, normalizer_scratch_t *scratch,
                          const uint8_t **text, size_t *length);
void normalizer_scratch_trim(normalizer_scratch_t *scratch, size_t keep_max);
void normalizer_scratch_free(normalizer_scratch_t *scratch);

/* nfc.c: appends the NFC form to `out`. *changed false: the text is NFC already, `out` is as
 * before. */
bool nfc_append(const uint8_t *text, size_t length, buffer_t *chars, buffer_t *out, bool *changed);

#endif
