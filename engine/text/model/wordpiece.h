/* wordpiece.h: one word -> token ids by the longest piece that fits, again and again (BERT's
 * WordPiece model), as the reference library does it.
 *
 * Read-only after load; any thread. Cost: the length of the word times the longest entry of the
 * vocabulary at most.
 */
#ifndef INFERD_ENGINE_TEXT_MODEL_WORDPIECE_H
#define INFERD_ENGINE_TEXT_MODEL_WORDPIECE_H

#include "engine/base/error.h"
#include "engine/text/model/trie.h"

typedef struct wordpiece {
  trie_t trie;          /* of the whole vocabulary; edges NULL = the model is none of this kind */
  uint32_t inner;       /* node behind the prefix of pieces inside a word ("##") */
  bool has_inner;       /* some piece has that prefix */
  uint32_t unk;         /* id of a word that the pieces do not make */
  size_t prefix_length; /* of that prefix, bytes */
  uint32_t chars_max;   /* a longer word is unknown */
} wordpiece_t;

/* Builds the trie; unk and chars_max are set before. False: no memory. */
bool wordpiece_finish(wordpiece_t *wordpiece, const vocab_t *vocab, const char *prefix,
                      size_t prefix_length);
void wordpiece_free(wordpiece_t *wordpiece);

/* Appends the ids of one word of well-formed UTF-8. 0 or ERR_INTERNAL (memory). */
int wordpiece_encode(const wordpiece_t *wordpiece, const uint8_t *word, size_t length,
                     buffer_t *out);

#endif
