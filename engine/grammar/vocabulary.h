/* vocabulary.h: the tokens of a tokenizer as tries, and the slices that make masks cheap.
 *
 * A JSON string allows nearly every token, so walking the whole trie would cost a millisecond.
 * Tokens of plain characters only (no quote, no backslash, no control byte, whole UTF-8 characters)
 * are taken out in slices by length; where a grammar state allows a whole slice, its ready row is
 * copied and only the trie of the rest is walked. Immutable, any thread.
 */
#ifndef INFERD_ENGINE_GRAMMAR_VOCABULARY_H
#define INFERD_ENGINE_GRAMMAR_VOCABULARY_H

#include "engine/grammar/grammar.h"

enum { TOKEN_BYTES_MAX = 250 }; /* a longer token is never allowed */

/* Preorder: the children of a node follow it; the next node outside its subtree is `size` ahead. */
typedef struct trie_node {
  uint32_t size; /* nodes of the subtree, itself included */
  int32_t token; /* id that ends here, -1 = none; more of them: vocabulary->same */
  uint8_t byte;
  uint8_t depth; /* 1 = first byte */
} trie_node_t;

typedef struct trie {
  trie_node_t *nodes;
  uint32_t num_nodes;
} trie_t;

/* A slice holds the plain tokens of at most `characters` characters. */
typedef enum slice {
  SLICE_NONE, /* empty; its rest is everything */
  SLICE_10,
  SLICE_30,
  SLICE_PLAIN, /* any length */
  SLICE_ANY,   /* every token of the tries */
  SLICE_COUNT
} slice_t;

struct grammar_vocabulary {
  int32_t num_tokens, row_width, row_words;
  char *bytes;                 /* of all tokens */
  uint32_t *offset;            /* [num_tokens + 1] */
  int32_t *same;               /* [num_tokens] next id with the same bytes, -1 = none */
  uint32_t *rows[SLICE_COUNT]; /* [row_words] tokens of the slice */
  trie_t rest[SLICE_COUNT];    /* tokens outside the slice */
  uint8_t has_byte[256];       /* some token is this byte alone */
};

/* Bytes of an ordinary token; *length 0 = the token is not in the tries. */
static inline const char *vocabulary_token(const grammar_vocabulary_t *v, int32_t id,
                                           uint32_t *length) {
  *length = 0;
  if (id < 0 || id >= v->num_tokens) return "";
  *length = v->offset[id + 1] - v->offset[id];
  return v->bytes + v->offset[id];
}

#endif
