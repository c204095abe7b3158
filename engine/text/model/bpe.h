/* bpe.h: one piece of text -> token ids by byte-pair encoding, as the reference library does it.
 *
 * Two alphabets: byte-level (GPT-2: a symbol is a byte, spelled in the vocabulary as one of 256
 * printable characters) and characters (SentencePiece style, unknown characters as <0xHH> tokens).
 * The lowest rank merges first, ties leftmost. The model is read-only after load; a bpe_scratch_t
 * belongs to one thread. Cost: O(n log n) per piece, whatever the text.
 */
#ifndef INFERD_ENGINE_TEXT_MODEL_BPE_H
#define INFERD_ENGINE_TEXT_MODEL_BPE_H

#include "engine/base/error.h"
#include "engine/text/model/vocab.h"
#include "engine/text/model/word_cache.h"

#include <stdatomic.h>

enum { BPE_MERGES_MAX = 8000000 };
#define BPE_NO_RANK UINT32_MAX

typedef struct bpe_pair {
  uint32_t left, right, rank; /* left NO_ID = empty slot */
} bpe_pair_t;

typedef struct bpe {
  vocab_t vocab;
  bool byte_level, ignore_merges, byte_fallback, fuse_unk;
  uint32_t unk;              /* id for unknown characters; NO_ID = drop them */
  uint32_t fallback[256];    /* id of <0xHH> */
  uint32_t byte_symbol[256]; /* byte-level: id of the byte's character */
  bool all_bytes;            /* every byte_symbol is there */
  uint32_t *char_symbol;     /* characters below U+10000 -> id; NULL when byte_level */
  bpe_pair_t *pairs;         /* open addressing, [pair_mask + 1] */
  uint32_t pair_mask;
  uint32_t *byte_pair_rank; /* byte-level: rank of a pair of bytes, [65536] */
  uint32_t *product;        /* rank -> id, [num_merges] */
  uint32_t num_merges;
  uint8_t *adjacent; /* Bloom filter of neighbours inside merge products; NULL = no cuts */
  uint32_t adjacent_mask;
} bpe_t;

/* Character that the byte-level alphabet writes for a byte, and back (-1 = not in the alphabet). */
uint32_t bpe_byte_char(uint8_t byte);
int bpe_char_byte(uint32_t character);

/* Two steps of loading: the caller fills vocab, byte_level and the flags, then bpe_prepare makes
 * the tables, then each merge in order of rank, then bpe_finish. 0 or ERR_NO_MEMORY. */
int bpe_prepare(bpe_t *bpe, uint32_t num_merges);
/* Ids must be in the vocabulary. A repeated pair takes the later rank. */
void bpe_add_merge(bpe_t *bpe, uint32_t rank, uint32_t left, uint32_t right, uint32_t product);
int bpe_finish(bpe_t *bpe);
void bpe_free(bpe_t *bpe);

/* The memory of one thread. */
typedef struct bpe_scratch {
  word_cache_t cache;
  buffer_t symbols; /* uint32_t ids of the piece's symbols */
  buffer_t long_work;
  uint64_t work;   /* merge steps so far, a measure of cost */
  size_t words;    /* words so far: parts of the text that are encoded each by itself */
  size_t skip;     /* the first of them are only counted */
  size_t word_max; /* bytes of a word; 0 = no bound */
  const atomic_bool *cancelled;
} bpe_scratch_t;
bpe_scratch_t *bpe_scratch_new(void); /* NULL: no memory */
void bpe_scratch_free(bpe_scratch_t *scratch);
void bpe_scratch_begin(bpe_scratch_t *scratch, const atomic_bool *cancelled);

/* Appends the ids (int32_t) of one piece, 1 <= length < 2^31, well-formed UTF-8 unless byte_level.
 * Reads at most up to `limit`, the end of the buffer that holds the piece. 0, ERR_INTERNAL
 * (memory), ERR_REQUEST_TIMEOUT (cancelled) or ERR_INVALID_VALUE (a word above word_max). */
int bpe_encode(const bpe_t *bpe, bpe_scratch_t *scratch, const uint8_t *piece, size_t length,
               const uint8_t *limit, buffer_t *out);

#endif
