/* tokenizer_internal.h: the parts of a loaded tokenizer. Only the loader, the encoder and the
 * decoder include it.
 *
 * The loading thread fills it; afterwards it is read-only.
 */
#ifndef INFERD_ENGINE_TEXT_TOKENIZER_INTERNAL_H
#define INFERD_ENGINE_TEXT_TOKENIZER_INTERNAL_H

#include "engine/text/added_tokens.h"
#include "engine/text/model/bpe.h"
#include "engine/text/model/unigram.h"
#include "engine/text/model/wordpiece.h"
#include "engine/text/normalize/normalizer.h"
#include "engine/text/split/pretokenizer.h"
#include "engine/text/tokenizer.h"

enum { DECODER_STEPS_MAX = 16, DECODER_TEXT_MAX = 64, AFFIX_IDS_MAX = 64 };

typedef enum {
  DECODE_BYTE_LEVEL,
  DECODE_REPLACE,
  DECODE_BYTE_FALLBACK,
  DECODE_STRIP,     /* of each token */
  DECODE_METASPACE, /* replacement -> space, dropped in the first token unless prepend_scheme never
                     */
  DECODE_WORDPIECE, /* the pattern is dropped from the start of a token, else a space comes before
                     */
} decoder_kind_t;

typedef struct decoder_step {
  decoder_kind_t kind;
  bool keep_first;      /* Metaspace with prepend_scheme never */
  bool cleans_up;       /* WordPiece: no space before punctuation and endings such as 's */
  uint32_t start, stop; /* Strip: most characters to drop at each end */
  unsigned pattern_length, content_length;
  char pattern[DECODER_TEXT_MAX], content[DECODER_TEXT_MAX];
} decoder_step_t;

typedef struct decoder {
  decoder_step_t steps[DECODER_STEPS_MAX]; /* applied to each token by itself */
  unsigned num_steps;
  bool join_with_spaces;             /* no decoder in the file: tokens are joined with spaces */
  bool first_differs;                /* the first token of a text decodes differently */
  char strip_text[DECODER_TEXT_MAX]; /* after Fuse: dropped at the start of the whole text, */
  unsigned strip_length;             /* at most strip_start times */
  uint32_t strip_start;
} decoder_t;

/* How the post-processor joins two texts: ids, the first text, ids, the second text, ids. */
typedef struct pair_template {
  const char *missing; /* NULL, or why two texts cannot be joined */
  int32_t ids[3][AFFIX_IDS_MAX];
  unsigned count[3];
  bool typed;           /* tokens have the type 1 from ids[1][first_typed] on */
  unsigned first_typed; /* count[1]: from the second text on */
} pair_template_t;

struct tokenizer {
  bpe_t bpe;             /* its vocabulary serves every kind of model */
  unigram_t unigram;     /* scores NULL: the model is none */
  wordpiece_t wordpiece; /* trie.edges NULL: the model is none */
  normalizer_t normalizer;
  pretokenizer_t pretokenizer;
  added_token_t *added; /* [num_added] in order of the file */
  uint32_t num_added;
  bool bare_added;        /* nothing is put in front of their contents (SentencePiece) */
  uint32_t *added_of;     /* id -> index in `added`, for ids of added tokens */
  uint32_t highest_added; /* id */
  vocab_t added_vocab;    /* content -> id of added tokens */
  token_matcher_t raw, normalized;
  int32_t prefix[AFFIX_IDS_MAX], suffix[AFFIX_IDS_MAX]; /* the post-processor */
  unsigned num_prefix, num_suffix;
  pair_template_t pair;
  decoder_t decoder;
  uint32_t num_ids;      /* highest id + 1 */
  buffer_t text;         /* decoded bytes of all ids */
  uint32_t *text_offset; /* [num_ids + 1] */
  uint8_t *flags;        /* [num_ids] TOKEN_ bits */
  size_t longest_token;
  int32_t bos_id, eos_id; /* -1 = none */
  double model_max_length;
  bool trims_spans; /* the post-processor cuts spaces off the spans of ids, */
  bool puts_space;  /* but for one in front of the text */
};

struct tokenizer_scratch {
  bpe_scratch_t *bpe;
  unigram_scratch_t unigram;
  normalizer_scratch_t normalizer;
  pretokenizer_scratch_t pretokenizer;
  normalizer_scratch_t part; /* of a gap, between plain spans */
  byte_span_t *spans;        /* plain spans of a normalised gap */
  size_t num_spans, spans_capacity;
  /* Where spans of ids are wanted (spans.c): of each byte of a normalised gap the character of the
   * text that it comes from, and the spans so far; all byte_span_t. */
  bool finds_spans;
  buffer_t origins, found;
  size_t run_start; /* in the normalised gap, of what the pre-tokenizer splits */
};

/* A part of the input between two added tokens, as it came and normalised. */
typedef struct text_gap {
  const uint8_t *text;
  size_t length, offset; /* bytes; of `text` in the input, where plain spans count from */
  const uint8_t *normal;
  size_t normal_length;
} text_gap_t;

/* plain.c: fills scratch->spans with where the plain spans of a gap lie in its normalised form. If
 * this cannot be found out, all of it is plain. Returns false if memory is short. */
bool plain_map(const normalizer_t *normalizer, tokenizer_scratch_t *scratch, const text_gap_t *gap,
               const byte_span_t *plain, size_t num_plain);

/* spans.c. Fills scratch->origins with what the bytes of a normalised gap come from. False: no
 * memory. */
bool spans_map(const normalizer_t *normalizer, tokenizer_scratch_t *scratch, const text_gap_t *gap);
/* Appends the spans of the ids of a piece of that gap. */
bool spans_of_piece(const tokenizer_t *tokenizer, tokenizer_scratch_t *scratch,
                    const uint8_t *piece, size_t length, const int32_t *ids, size_t count);
/* Appends that of an added token: bytes of that gap's normal form, or of the text. */
bool spans_of_token(tokenizer_scratch_t *scratch, bool normalised, size_t begin, size_t end);
/* Cuts spaces off the spans of the ids of a text, if the post-processor does. */
void spans_trim(const tokenizer_t *tokenizer, const uint8_t *text, const int32_t *ids,
                byte_span_t *spans, size_t count);

/* decoder.c: fills text, text_offset and flags of every id. 0 or ERR_NO_MEMORY. */
int decoder_compile(tokenizer_t *tokenizer);

#endif
