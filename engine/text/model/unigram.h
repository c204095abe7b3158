/* unigram.h: one piece of text -> token ids by the most probable segmentation (SentencePiece's
 * Unigram model), as the reference library does it.
 *
 * Read-only after load; the work arrays belong to one thread. Cost: the length of the piece times
 * the longest vocabulary entry that begins at a place, whatever the text.
 */
#ifndef INFERD_ENGINE_TEXT_MODEL_UNIGRAM_H
#define INFERD_ENGINE_TEXT_MODEL_UNIGRAM_H

#include "engine/base/error.h"
#include "engine/text/model/trie.h"

#include <stdatomic.h>

typedef struct unigram {
  double *scores; /* [vocab num_ids], log probabilities; NULL = the model is none of this kind */
  double unk_score;
  uint32_t unk;           /* id of text that the vocabulary lacks */
  bool byte_fallback;     /* such characters become <0xHH> tokens where all are there */
  uint32_t fallback[256]; /* id of <0xHH>, NO_ID = absent */
  trie_t trie;            /* of the whole vocabulary */
} unigram_t;

typedef struct unigram_scratch {
  buffer_t places; /* unigram_place_t of one piece */
  buffer_t ids;    /* uint32_t, backwards */
  bool notes_starts;
  buffer_t starts; /* then: uint32_t, where in the piece each of `ids` begins */
} unigram_scratch_t;

/* Builds the trie of the whole vocabulary; scores, unk and byte_fallback are set before. False: no
 * memory. */
bool unigram_finish(unigram_t *unigram, const vocab_t *vocab);
void unigram_free(unigram_t *unigram);

/* Appends the ids of one piece of well-formed UTF-8. 0, ERR_INTERNAL (memory) or
 * ERR_REQUEST_TIMEOUT (cancelled; NULL = never). */
int unigram_encode(const unigram_t *unigram, const vocab_t *vocab, unigram_scratch_t *scratch,
                   const uint8_t *piece, size_t length, const atomic_bool *cancelled,
                   buffer_t *out);
void unigram_scratch_free(unigram_scratch_t *scratch);

#endif
