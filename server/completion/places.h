/* places.h: where in its text each token of a prompt stands, for answers that name parts of it. */
#ifndef INFERD_SERVER_COMPLETION_PLACES_H
#define INFERD_SERVER_COMPLETION_PLACES_H

#include "engine/text/tokenizer.h"

typedef struct token_place {
  uint32_t begin, end;           /* bytes of the text */
  uint32_t first_char, end_char; /* the same in characters */
  bool special;                  /* the post-processor's: it stands nowhere */
  bool inner;                    /* it goes on with the word of the token before */
} token_place_t;

/* The places of `count` ids of a text of `length` bytes by their spans (tokenize_options_t).
 * `inner` is what transformers' pipeline takes for it: with pieces such as "##s", that the token is
 * not spelled as long as its place is; else that no space stands before it or at its beginning;
 * never a token that stands for what the vocabulary lacks. Returns an array to be freed, or NULL
 * without memory. Any thread. */
token_place_t *places_make(const tokenizer_t *tokenizer, const char *text, size_t length,
                           const int32_t *ids, const byte_span_t *spans, size_t count);

#endif
