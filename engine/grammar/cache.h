/* cache.h: keeps compiled grammars for constraints that are sent again, within a budget of bytes.
 *
 * Any thread; one lock, held for a look-up and never during a compilation. If two requests bring
 * the same new constraint at the same time, both compile it and one result is kept. Whole
 * constraints are compared, not only their hashes.
 *
 * A constraint that was refused for what it says, or for the work that it takes, is refused again
 * without being compiled; only a keyed hash of 128 bits is kept of it. Each client has room for
 * GRAMMAR_REFUSALS_EACH_MAX refusals, so that no client can push out those of others. Refusals for
 * lack of time or memory are not kept.
 */
#ifndef INFERD_ENGINE_GRAMMAR_CACHE_H
#define INFERD_ENGINE_GRAMMAR_CACHE_H

#include "engine/grammar/grammar.h"

typedef struct grammar_cache grammar_cache_t;

enum {
  GRAMMAR_CACHE_ENTRIES_MAX = 1024,
  GRAMMAR_CACHE_KEY_MAX = 256 << 10, /* bytes of a constraint; a larger one is not kept */
  GRAMMAR_REFUSALS_MAX = 1024,
  GRAMMAR_REFUSALS_EACH_MAX = 64, /* of one client */
  GRAMMAR_CACHE_MISS = 1          /* of grammar_cache_find; no ERR_ number */
};

typedef struct grammar_cache_stats {
  uint64_t hits, misses, evictions; /* hits: refusals among them */
  uint64_t bytes, entries;          /* held now */
} grammar_cache_stats_t;

/* bytes_max: limit on all grammars with their constraints; the least recently used one is evicted.
 * Returns 0 or ERR_NO_MEMORY. */
int grammar_cache_new(size_t bytes_max, grammar_cache_t **out, inferd_error_t *error);
/* NULL is allowed. Grammars that are still referenced are not freed. */
void grammar_cache_free(grammar_cache_t *cache);

/* Compiles with the default limits, or returns one more reference to the grammar of an equal
 * constraint for the same vocabulary, or the refusal of an equal one. The vocabulary must live as
 * long as the cache. account: as for grammar_compile. */
int grammar_cache_compile(grammar_cache_t *cache, const grammar_source_t *source,
                          const grammar_vocabulary_t *vocabulary, grammar_account_t *account,
                          grammar_t **out, inferd_error_t *error);
/* The same without compiling: 0 with the grammar, the code of a refusal that is kept, or
 * GRAMMAR_CACHE_MISS. */
int grammar_cache_find(grammar_cache_t *cache, const grammar_source_t *source,
                       const grammar_vocabulary_t *vocabulary, grammar_t **out,
                       inferd_error_t *error);

grammar_cache_stats_t grammar_cache_stats(grammar_cache_t *cache);

#endif
