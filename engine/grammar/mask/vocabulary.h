/* vocabulary.h: the tokens of a tokenizer as tries, and the ready rows that make masks cheap.
 *
 * A JSON string allows nearly every token, so walking all of them would cost a millisecond. Each
 * node of a trie knows the characters that occur below it and how far down they go; where a state
 * of a grammar stays alive under all of those, the tokens below are taken at once: from a ready row
 * of bits where there are many of them, else from a list. Immutable, any thread.
 */
#ifndef INFERD_ENGINE_GRAMMAR_MASK_VOCABULARY_H
#define INFERD_ENGINE_GRAMMAR_MASK_VOCABULARY_H

#include "engine/grammar/grammar.h"

enum { TOKEN_BYTES_MAX = 250 }; /* a longer token is never allowed */

/* Sets of characters, each within the next one. */
typedef enum vocabulary_family {
  FAMILY_LOWER, /* a-z */
  FAMILY_ALPHA, /* a-z A-Z */
  FAMILY_ASCII, /* 0x20..0x7E without quote and backslash */
  FAMILY_PLAIN, /* whole characters that stand for themselves in a JSON string */
  FAMILY_ANY,   /* any bytes */
  FAMILY_COUNT
} vocabulary_family_t;

/* Tokens are parted by the family of the first character and of those behind it, so that the nodes
 * near a root have families of their own. All but the last two hold plain tokens. */
typedef enum vocabulary_group {
  GROUP_LOWER,     /* only a-z */
  GROUP_ALPHA,     /* only letters */
  GROUP_LED_LOWER, /* another character of ASCII, then a-z */
  GROUP_LED_ALPHA,
  GROUP_ASCII,
  GROUP_WIDE, /* only characters of several bytes */
  GROUP_PLAIN,
  GROUP_CUT,   /* plain, but the last character is not complete */
  GROUP_OTHER, /* quotes, backslashes, control bytes, parts of characters */
  GROUP_COUNT
} vocabulary_group_t;

/* Preorder: the children of a node follow it; the next node outside its subtree is `size` ahead. */
typedef struct trie_node {
  uint32_t size; /* nodes of the subtree, itself included */
  int32_t token; /* id that ends here, -1 = none */
  uint8_t byte;
  uint8_t depth;      /* 1 = first byte */
  uint8_t family : 6; /* of everything below */
  uint8_t mixed : 1;  /* a way from here down has other bytes than whole characters of several
                         bytes and perhaps a last one that is cut */
  uint8_t twins : 1;  /* more ids end here: ids[first_id[node] ..) up to those of the next node */
  uint8_t tail;       /* bytes of the longest way down */
} trie_node_t;

/* Every token of a group, or of several: what must stay alive for all of them. */
typedef struct bundle {
  uint32_t *row;  /* [row_words] */
  uint8_t family; /* of all bytes */
  uint8_t tail;   /* bytes of the longest; 0 = the bundle is empty */
} bundle_t;

enum {
  BUNDLE_TOKENS = 1024, /* a node above this many tokens has a ready row */
  LENGTH_ROWS = 17      /* tokens of at most 0..16 characters */
};

struct grammar_vocabulary {
  int32_t num_tokens, row_width, row_words;
  bool keeps_sources;    /* grammars keep their sources (source_bytes.h) */
  char *bytes;           /* of all tokens */
  uint32_t *offset;      /* [num_tokens + 1] */
  int32_t *same;         /* [num_tokens] next id with the same bytes, -1 = none */
  uint8_t has_byte[256]; /* some token is this byte alone */
  trie_node_t *nodes;    /* the tries of all groups, one after the other */
  uint32_t num_nodes;
  int32_t *ids;                        /* of all tokens in the order of their nodes */
  uint32_t group_ids[GROUP_COUNT + 1]; /* where those of a group start */
  uint32_t *first_id;                  /* [num_nodes + 1] where those of a subtree start in ids */
  uint32_t *roots;                     /* nodes of depth 1, by byte, then by group */
  uint32_t root_of[257];               /* those of byte b: roots[root_of[b] .. root_of[b + 1]) */
  uint8_t *root_group;                 /* [number of roots] */
  uint32_t *large;                     /* nodes that have a ready row, ascending */
  uint32_t *large_rows;                /* [num_large, row_words] */
  uint32_t num_large;
  bundle_t groups[GROUP_COUNT], plain, all; /* plain: all groups but GROUP_OTHER */
  uint32_t *up_to;                          /* [LENGTH_ROWS, row_words] plain tokens */
  uint32_t *letters_up_to[2];               /* the same of GROUP_LOWER and of GROUP_ALPHA */
};

/* Returns the bytes of a token, not terminated, owned by the vocabulary. *length 0 = the token is
 * not in the tries. */
static inline const char *vocabulary_token(const grammar_vocabulary_t *vocabulary, int32_t id,
                                           uint32_t *length) {
  *length = 0;
  if (id < 0 || id >= vocabulary->num_tokens) return "";
  *length = vocabulary->offset[id + 1] - vocabulary->offset[id];
  return vocabulary->bytes + vocabulary->offset[id];
}

/* Sets the bits of every token below `node`, itself included. */
void vocabulary_allow_below(const grammar_vocabulary_t *vocabulary, uint32_t node, uint32_t *row);

#endif
