/* added_tokens.h: finds added tokens in a text before the rest of the pipeline processes it.
 *
 * There are two matchers. Contents with normalized=false are searched in the raw text; the others,
 * in normalised form, in the normalised text. The leftmost match wins, then the longest. Read-only
 * after load; any thread.
 */
#ifndef INFERD_ENGINE_TEXT_ADDED_TOKENS_H
#define INFERD_ENGINE_TEXT_ADDED_TOKENS_H

#include "engine/base/byte_span.h"
#include "engine/text/model/vocab.h"

enum { ADDED_TOKENS_BYTES_MAX = 1 << 23 }; /* all contents of one matcher together */

typedef struct added_token {
  uint32_t id;
  bool single_word, lstrip, rstrip, normalized, special;
} added_token_t;

/* A trie over bytes: edges in one hash table, the first bytes in a filter. */
typedef struct token_matcher {
  uint64_t *edges;  /* (node << 8 | byte) << 32 | child, 0 = empty; [edge_mask + 1] */
  uint32_t *accept; /* [num_nodes]: index of an added token + 1, 0 = none */
  uint32_t edge_mask, num_nodes, nodes_max;
  bool first[256];
  int only_first; /* the one first byte, -1 when there are several or none */
} token_matcher_t;

/* `bytes` = sum of the lengths to be added. False: no memory. */
bool token_matcher_init(token_matcher_t *matcher, size_t bytes);
/* Of equal contents the first one added wins. */
void token_matcher_add(token_matcher_t *matcher, const uint8_t *content, size_t length,
                       uint32_t index);
void token_matcher_finish(token_matcher_t *matcher);
void token_matcher_free(token_matcher_t *matcher);

typedef struct token_match {
  size_t start, end;
  uint32_t index;
} token_match_t;

/* Walks over a text: gaps and tokens in turn, with the strip and single_word rules of the tokens.
 */
typedef struct token_walk {
  const token_matcher_t *matcher;
  const added_token_t *tokens;
  const uint8_t *text;
  size_t length, from, gap_start;
  const byte_span_t *plain; /* no special token is found that touches one of these bytes */
  size_t num_plain;
  size_t plain_offset; /* the spans count from here before `text` */
  bool done;
} token_walk_t;

typedef struct token_span {
  size_t gap_start, gap_end; /* text before the token; empty when equal */
  bool has_token;            /* false: only the gap, the text ends here */
  uint32_t index;
} token_span_t;

bool token_walk_next(token_walk_t *walk, token_span_t *span); /* false: the end */

#endif
