/* vocabulary_tries.h: what vocabulary.c hands to vocabulary_tries.c while a vocabulary is made. */
#ifndef INFERD_ENGINE_GRAMMAR_MASK_VOCABULARY_TRIES_H
#define INFERD_ENGINE_GRAMMAR_MASK_VOCABULARY_TRIES_H

#include "engine/grammar/mask/vocabulary.h"

typedef struct sorted_token {
  uint64_t key; /* the first eight bytes, big-endian */
  const char *bytes;
  uint32_t length; /* 1..TOKEN_BYTES_MAX */
  int32_t id;
} sorted_token_t;

/* Makes nodes, roots and ids from tokens in the order of their bytes, no two alike. Returns false
 * if memory is short. Thread that loads the model. */
bool vocabulary_build_tries(grammar_vocabulary_t *vocabulary, const sorted_token_t *tokens,
                            uint32_t count);
/* Makes the ready rows from the ids. Returns false if memory is short. */
bool vocabulary_build_rows(grammar_vocabulary_t *vocabulary);

#endif
