/* cache.h: compiled grammars for constraints that come again, within a budget of bytes.
 *
 * Any thread; one lock, held for a look-up and never while something compiles: requests that bring
 * the same new constraint at the same time compile it each, and keep one result. Constraints are
 * compared whole, not by a hash of them. Refusals are not kept.
 */
#ifndef INFERD_ENGINE_GRAMMAR_CACHE_H
#define INFERD_ENGINE_GRAMMAR_CACHE_H

#include "engine/grammar/grammar.h"

typedef struct grammar_cache grammar_cache_t;

enum {
  GRAMMAR_CACHE_ENTRIES_MAX = 1024,
  GRAMMAR_CACHE_KEY_MAX = 256 << 10 /* bytes of a constraint; a larger one is not kept */
};

typedef struct grammar_cache_stats {
  uint64_t hits, misses, evictions;
  uint64_t bytes, entries; /* held now */
} grammar_cache_stats_t;

/* bytes_max: of all grammars and their constraints; the one that was not used for longest goes
 * first. 0 or ERR_NO_MEMORY. */
int grammar_cache_new(size_t bytes_max, grammar_cache_t **out, error_t *error);
/* NULL is allowed. Grammars that are in use live on. */
void grammar_cache_free(grammar_cache_t *cache);

/* grammar_compile with the default limits, or one more reference to what an equal constraint has
 * become for the same vocabulary, which lives as long as the cache. */
int grammar_cache_compile(grammar_cache_t *cache, const grammar_source_t *source,
                          const grammar_vocabulary_t *vocabulary, const atomic_bool *cancelled,
                          grammar_t **out, error_t *error);

grammar_cache_stats_t grammar_cache_stats(grammar_cache_t *cache);

#endif
