/* unicode.h: character properties for the tokenizer, from generated tables.
 *
 * The reference library mixes Unicode versions, so every property has a pin of its own:
 *   unicode_class   regex classes (\p{L}, \s, ...)     Unicode 16.0
 *   unicode_extra   Digits: 17.0; Punctuation: 8.0 and ASCII; word characters; NFC quick check
 *   unicode_bert    what BertNormalizer drops and lower-cases: measured
 *   NFC data        Unicode 9.0: later marks are not reordered, later compositions not applied
 * scripts/unicode_tables.py writes unicode_tables.c and checks the counts. Pure look-ups, any
 * thread.
 */
#ifndef INFERD_ENGINE_TEXT_UNICODE_UNICODE_H
#define INFERD_ENGINE_TEXT_UNICODE_UNICODE_H

#include "engine/base/utf8.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {                         /* bits of unicode_class */
       CLASS_LETTER = 1,       /* \p{L} */
       CLASS_NUMBER = 2,       /* \p{N} */
       CLASS_SPACE = 4,        /* \s: White_Space, 25 code points */
       CLASS_UPPER = 8,        /* [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}] */
       CLASS_LOWER = 16,       /* [\p{Ll}\p{Lm}\p{Lo}\p{M}] */
       CLASS_MARK = 32,        /* \p{M} */
       CLASS_PUNCTUATION = 64, /* \p{P} */
       CLASS_SYMBOL = 128      /* \p{S} */
};

enum {                  /* bits of unicode_extra */
       EXTRA_DIGIT = 1, /* what the Digits pre-tokenizer isolates */
       EXTRA_PUNCT = 2, /* what the Punctuation pre-tokenizer isolates */
       EXTRA_WORD = 4,  /* \w beside a single_word added token */
       EXTRA_NFC = 8    /* may change under NFC, or may change what stands before it */
};

typedef struct unicode_triple {
  uint32_t composed, first, second; /* second 0: a singleton, `composed` decomposes to `first` */
} unicode_triple_t;

extern const uint8_t unicode_class_index[4352], unicode_class_blocks[];
extern const uint8_t unicode_extra_index[4352], unicode_extra_blocks[];
extern const uint8_t unicode_ccc_index[4352], unicode_ccc_blocks[];
extern const uint32_t unicode_num_decompositions, unicode_num_compositions;
extern const unicode_triple_t unicode_decompositions[]; /* sorted by composed */
extern const unicode_triple_t unicode_compositions[];   /* sorted by (first, second) */

/* `codepoint` must be a code point below 0x110000. */
static inline uint8_t unicode_class(uint32_t codepoint) {
  return unicode_class_blocks[(uint32_t)unicode_class_index[codepoint >> 8] << 8 |
                              (codepoint & 255)];
}
static inline uint8_t unicode_extra(uint32_t codepoint) {
  return unicode_extra_blocks[(uint32_t)unicode_extra_index[codepoint >> 8] << 8 |
                              (codepoint & 255)];
}
static inline uint8_t unicode_ccc(uint32_t codepoint) {
  return unicode_ccc_blocks[(uint32_t)unicode_ccc_index[codepoint >> 8] << 8 | (codepoint & 255)];
}

enum {                   /* bits of unicode_bert */
       BERT_CONTROL = 1, /* clean_text drops it */
       BERT_MARK = 2     /* strip_accents drops it */
};

typedef struct bert_pair {
  uint32_t from, to;
} bert_pair_t;

extern const uint8_t unicode_bert_index[4352], unicode_bert_blocks[];
extern const uint32_t unicode_num_bert_lower;
extern const bert_pair_t unicode_bert_lowers[]; /* sorted by `from` */

static inline uint8_t unicode_bert(uint32_t codepoint) {
  return unicode_bert_blocks[(uint32_t)unicode_bert_index[codepoint >> 8] << 8 | (codepoint & 255)];
}
/* The lower case of a letter that is newer than the tables of unicode_case.h, and of the sigma,
 * which those leave out; 0 = it is none of these. */
static inline uint32_t unicode_bert_lower(uint32_t codepoint) {
  for (uint32_t i = 0; i < unicode_num_bert_lower; i++)
    if (unicode_bert_lowers[i].from == codepoint) return unicode_bert_lowers[i].to;
  return 0;
}

#endif
