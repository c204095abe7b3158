/* normalizer.h: raw text between added tokens -> normalised text.
 *
 * A normalizer_t is the chain of `normalizer` in tokenizer.json: steps of NFC, Precompiled,
 * Prepend, Replace (plain text, or runs of spaces), BertNormalizer and Strip. The loading thread
 * makes it; it never changes afterwards, so any thread may read it. A normalizer_scratch_t belongs
 * to one thread. All texts are well-formed UTF-8, and lengths are in bytes. Every step takes linear
 * time.
 */
#ifndef INFERD_ENGINE_TEXT_NORMALIZE_NORMALIZER_H
#define INFERD_ENGINE_TEXT_NORMALIZE_NORMALIZER_H

#include "engine/text/normalize/charsmap.h"

enum { NORMALIZER_STEPS_MAX = 16, NORMALIZER_TEXT_MAX = 256 /* bytes */ };

typedef enum {
  NORMALIZE_NFC,      /* Unicode normalization form C */
  NORMALIZE_CHARSMAP, /* Precompiled */
  NORMALIZE_PREPEND,  /* `content` in front of the text */
  NORMALIZE_REPLACE,  /* `pattern` by `content` */
  NORMALIZE_SPACES,   /* the regex " {2,}" by `content` */
  NORMALIZE_BERT,     /* BertNormalizer */
  NORMALIZE_STRIP     /* removes whitespace at the ends */
} normalizer_kind_t;

/* What a BertNormalizer does, in this order. */
typedef struct bert_rules {
  bool cleans;     /* drops control characters, and makes every whitespace a space */
  bool splits_han; /* puts spaces around Chinese characters */
  bool strips;     /* decomposes, and drops the marks */
  bool lowers;
} bert_rules_t;

typedef struct normalizer_step {
  normalizer_kind_t kind;
  unsigned pattern_length, content_length; /* bytes */
  /* pattern: Replace only; content: Prepend, Replace and runs of spaces. */
  char pattern[NORMALIZER_TEXT_MAX], content[NORMALIZER_TEXT_MAX];
  charsmap_t *charsmap;         /* Precompiled only, else NULL; owned */
  bool strip_left, strip_right; /* Strip only */
  bert_rules_t bert;            /* BertNormalizer only */
} normalizer_step_t;

typedef struct normalizer {
  normalizer_step_t *steps; /* [NORMALIZER_STEPS_MAX], owned; NULL when there are none */
  unsigned num_steps;
} normalizer_t;

/* Work memory of the runs. It starts as zeros. */
typedef struct normalizer_scratch {
  buffer_t text[2]; /* results of the steps, by turns */
  buffer_t chars;   /* uint32_t code points of one NFC segment */
} normalizer_scratch_t;

/* Frees the steps and their maps, but not the struct itself. */
void normalizer_free(normalizer_t *normalizer);

/* Normalises (*text)[0, *length). On entry *limit is the end of the bytes that may be read, at or
 * behind the end of the text. On return all three describe the result: the input itself if nothing
 * changed, otherwise a buffer of the scratch, valid until the scratch is used, trimmed or freed.
 * The input must not lie in the scratch. An empty text stays empty. Returns false if memory is
 * short. */
bool normalizer_run(const normalizer_t *normalizer, normalizer_scratch_t *scratch,
                    const uint8_t **text, size_t *length, const uint8_t **limit);
/* Does the same for a part that is not the beginning of the text: Prepend steps are left out. */
bool normalizer_run_inner(const normalizer_t *normalizer, normalizer_scratch_t *scratch,
                          const uint8_t **text, size_t *length);
/* Empties the scratch, and frees each of its buffers that is larger than keep_max bytes. */
void normalizer_scratch_trim(normalizer_scratch_t *scratch, size_t keep_max);
void normalizer_scratch_free(normalizer_scratch_t *scratch);

/* nfc.c: appends the NFC form of the text to `out` and sets *changed to true. If the text is in NFC
 * already, it leaves both as they are; the caller sets *changed to false before. `chars` is work
 * memory. Returns false if memory is short. */
bool nfc_append(const uint8_t *text, size_t length, buffer_t *chars, buffer_t *out, bool *changed);
/* Writes the canonical decomposition of a code point, at most 4 code points; returns how many. */
unsigned nfc_decompose(uint32_t codepoint, uint32_t out[4]);
/* bert.c, with the contract of the steps in normalizer.c. */
bool bert_append(const bert_rules_t *rules, const uint8_t *text, size_t length, buffer_t *out,
                 bool *changed);

#endif
