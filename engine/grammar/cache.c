/* cache.c: constraint -> key -> the grammar that was compiled for it before.
 *
 * Any thread. The key is the whole tree of the source as bytes; JSON values are written in preorder
 * with their lengths. `param` is part of the key of a refusal only: nothing but error messages use
 * it.
 */
#include "engine/grammar/cache.h"

#include "engine/base/siphash.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

typedef struct entry {
  uint64_t hash, last_use;
  char *key;
  size_t key_bytes, bytes;
  grammar_t *grammar; /* NULL = free */
} entry_t;

typedef struct refusal {
  uint64_t key[2], client, last_use; /* last_use 0 = free */
  int code;
  inferd_error_t error;
} refusal_t;

struct grammar_cache {
  pthread_mutex_t lock;
  uint64_t hash_key[2], clock;
  size_t bytes_max;
  grammar_cache_stats_t stats;
  entry_t entries[GRAMMAR_CACHE_ENTRIES_MAX];
  refusal_t refusals[GRAMMAR_REFUSALS_MAX];
};

/* ---- keys ---- */

/* Beyond its capacity it counts bytes and writes none. */
typedef struct key_writer {
  char *out;
  size_t capacity, length;
  bool params; /* the key of a refusal */
} key_writer_t;

static void put(key_writer_t *writer, const void *bytes, size_t length) {
  if (length > 0 && length <= writer->capacity && writer->length <= writer->capacity - length) {
    memcpy(writer->out + writer->length, bytes, length);
  }
  writer->length += length;
}

static void put_text(key_writer_t *writer, const char *text, size_t length) {
  put(writer, &length, sizeof length);
  put(writer, text, length);
}

/* A document stores its values in preorder, so a subtree is a range (json.h). */
static void put_json(key_writer_t *writer, const json_t *root) {
  uint64_t left = root != NULL ? 1 : 0;
  put(writer, &left, sizeof left);
  for (const json_t *json = root; left > 0 && writer->length <= GRAMMAR_CACHE_KEY_MAX; json++) {
    bool is_text = json->type == JSON_STRING || json->type == JSON_NUMBER;
    bool is_container = json->type == JSON_ARRAY || json->type == JSON_OBJECT;
    uint32_t count = is_container ? json->count : 0;
    put(writer, &json->type, sizeof json->type);
    put(writer, &count, sizeof count);
    put_text(writer, json->key, json->key_length);
    put_text(writer, json->text, is_text ? json->length : 0);
    left += count;
    left--;
  }
}

static void put_source(key_writer_t *writer, const grammar_source_t *source, int depth) {
  enum { DEPTH_MAX = 100 }; /* of a tree that compiles */
  int32_t numbers[] = {(int32_t)source->kind, source->strict, source->known_only,
                       source->object_only,   source->token,  source->num_children};
  put(writer, numbers, sizeof numbers);
  put(writer, &source->min, sizeof source->min);
  put(writer, &source->max, sizeof source->max);
  put(writer, &source->tags, sizeof source->tags);
  put(writer, &source->literals, sizeof source->literals);
  put_text(writer, source->text, source->length);
  put_json(writer, source->schema);
  if (writer->params && source->param != NULL)
    put_text(writer, source->param, strlen(source->param));
  if (depth > DEPTH_MAX) writer->length = GRAMMAR_CACHE_KEY_MAX + 1;
  for (int32_t i = 0; i < source->num_children && writer->length <= GRAMMAR_CACHE_KEY_MAX; i++) {
    put_source(writer, &source->children[i], depth + 1);
  }
}

/* What is looked up: the key, and its hashes. */
typedef struct lookup {
  char *key; /* malloc'ed; NULL = too large or no memory, then nothing is cached */
  size_t length;
  uint64_t hash, refusal[2];
} lookup_t;

static char *make_key(const grammar_source_t *source, const grammar_vocabulary_t *vocabulary,
                      bool params, size_t *length) {
  key_writer_t count = {.params = params};
  put(&count, &vocabulary, sizeof vocabulary);
  put_source(&count, source, 0);
  if (count.length > GRAMMAR_CACHE_KEY_MAX) return NULL;
  key_writer_t writer = {.out = malloc(count.length), .capacity = count.length, .params = params};
  if (writer.out == NULL) return NULL;
  put(&writer, &vocabulary, sizeof vocabulary);
  put_source(&writer, source, 0);
  *length = writer.length;
  return writer.out;
}

static lookup_t lookup_of(const grammar_cache_t *cache, const grammar_source_t *source,
                          const grammar_vocabulary_t *vocabulary) {
  lookup_t lookup = {0};
  size_t length = 0;
  char *key = make_key(source, vocabulary, true, &length);
  if (key == NULL) return lookup;
  siphash_t siphash = siphash_begin_128(cache->hash_key);
  siphash_bytes(&siphash, key, length, 2);
  siphash_end_128(&siphash, lookup.refusal);
  free(key);
  lookup.key = make_key(source, vocabulary, false, &lookup.length);
  if (lookup.key == NULL) return lookup;
  siphash = siphash_begin(cache->hash_key);
  siphash_bytes(&siphash, lookup.key, lookup.length, 1);
  lookup.hash = siphash_end(&siphash, 1);
  return lookup;
}

/* ---- entries, under the lock ---- */

static entry_t *find(grammar_cache_t *cache, uint64_t hash, const char *key, size_t length) {
  for (entry_t *entry = cache->entries; entry < cache->entries + GRAMMAR_CACHE_ENTRIES_MAX;
       entry++) {
    if (entry->grammar != NULL && entry->hash == hash && entry->key_bytes == length &&
        memcmp(entry->key, key, length) == 0) {
      return entry;
    }
  }
  return NULL;
}

static void drop(grammar_cache_t *cache, entry_t *entry) {
  cache->stats.bytes -= entry->bytes;
  cache->stats.entries--;
  grammar_unref(entry->grammar);
  free(entry->key);
  *entry = (entry_t){0};
}

/* Returns a free entry with room for `bytes` in the budget; evicts the least recently used ones. */
static entry_t *make_room(grammar_cache_t *cache, size_t bytes) {
  for (;;) {
    entry_t *oldest = NULL, *unused = NULL;
    for (entry_t *entry = cache->entries; entry < cache->entries + GRAMMAR_CACHE_ENTRIES_MAX;
         entry++) {
      if (entry->grammar == NULL) {
        unused = entry;
      } else if (oldest == NULL || entry->last_use < oldest->last_use) {
        oldest = entry;
      }
    }
    if (unused != NULL && cache->stats.bytes + bytes <= cache->bytes_max) return unused;
    if (oldest == NULL) return NULL;
    cache->stats.evictions++;
    drop(cache, oldest);
  }
}

/* One grammar that took more of the budget than this part would drive out too many others. */
enum { LARGEST_PART = 4 };

/* Stores a grammar and owns the key. If another thread stored an equal key before, *grammar becomes
 * the grammar of that thread. */
static void keep(grammar_cache_t *cache, uint64_t hash, char *key, size_t key_bytes,
                 grammar_t **grammar) {
  size_t bytes = grammar_bytes(*grammar) + key_bytes;
  entry_t *entry = find(cache, hash, key, key_bytes);
  if (entry != NULL) {
    grammar_unref(*grammar);
    *grammar = grammar_ref(entry->grammar);
  } else if (bytes <= cache->bytes_max / LARGEST_PART &&
             (entry = make_room(cache, bytes)) != NULL) {
    *entry = (entry_t){hash, ++cache->clock, key, key_bytes, bytes, grammar_ref(*grammar)};
    cache->stats.bytes += bytes;
    cache->stats.entries++;
    return;
  }
  free(key);
}

/* ---- refusals, under the lock ---- */

static refusal_t *find_refusal(grammar_cache_t *cache, const uint64_t key[2]) {
  for (refusal_t *refusal = cache->refusals; refusal < cache->refusals + GRAMMAR_REFUSALS_MAX;
       refusal++) {
    if (refusal->last_use != 0 && memcmp(refusal->key, key, sizeof refusal->key) == 0) {
      return refusal;
    }
  }
  return NULL;
}

/* Returns the place of a new refusal: a free one, or the oldest of the client if it has its share,
 * or the oldest of all. */
static refusal_t *place_for(grammar_cache_t *cache, uint64_t client) {
  refusal_t *oldest = NULL, *own = NULL;
  int count = 0;
  for (refusal_t *refusal = cache->refusals; refusal < cache->refusals + GRAMMAR_REFUSALS_MAX;
       refusal++) {
    if (oldest == NULL || refusal->last_use < oldest->last_use) oldest = refusal;
    if (refusal->last_use == 0 || refusal->client != client) continue;
    count++;
    if (own == NULL || refusal->last_use < own->last_use) own = refusal;
  }
  return count >= GRAMMAR_REFUSALS_EACH_MAX ? own : oldest;
}

static void keep_refusal(grammar_cache_t *cache, const lookup_t *lookup, uint64_t client, int code,
                         const inferd_error_t *error) {
  refusal_t *refusal = find_refusal(cache, lookup->refusal);
  if (refusal == NULL) refusal = place_for(cache, client);
  *refusal =
      (refusal_t){{lookup->refusal[0], lookup->refusal[1]}, client, ++cache->clock, code, *error};
}

/* Returns true if another attempt would end the same way. ERR_BAD_REQUEST does so only if the
 * request had spent nothing before: its bound covers all of its constraints together. */
static bool is_final(int code, uint64_t spent_before) {
  return code == ERR_INVALID_VALUE || code == ERR_UNSUPPORTED_PARAMETER ||
         code == ERR_CONSTRAINT_TOO_EXPENSIVE || (code == ERR_BAD_REQUEST && spent_before == 0);
}

/* ---- entry point ---- */

int grammar_cache_new(size_t bytes_max, grammar_cache_t **out, inferd_error_t *error) {
  grammar_cache_t *cache = calloc(1, sizeof *cache);
  if (cache == NULL)
    return error_set(error, ERR_NO_MEMORY, NULL, "no memory for the cache of grammars");
  if (getrandom(cache->hash_key, sizeof cache->hash_key, 0) != (ssize_t)sizeof cache->hash_key) {
    free(cache);
    return error_set(error, ERR_INTERNAL, NULL, "no random bytes for the cache of grammars");
  }
  pthread_mutex_init(&cache->lock, NULL);
  cache->bytes_max = bytes_max;
  *out = cache;
  return 0;
}

void grammar_cache_free(grammar_cache_t *cache) {
  if (cache == NULL) return;
  for (entry_t *entry = cache->entries; entry < cache->entries + GRAMMAR_CACHE_ENTRIES_MAX;
       entry++) {
    if (entry->grammar != NULL) drop(cache, entry);
  }
  pthread_mutex_destroy(&cache->lock);
  free(cache);
}

/* Returns 0 with the grammar, the code of a refusal with its error, or GRAMMAR_CACHE_MISS. */
static int find_either(grammar_cache_t *cache, const lookup_t *lookup, grammar_t **out,
                       inferd_error_t *error) {
  int code = GRAMMAR_CACHE_MISS;
  if (lookup->key == NULL) return code;
  pthread_mutex_lock(&cache->lock);
  entry_t *entry = find(cache, lookup->hash, lookup->key, lookup->length);
  refusal_t *refusal = entry == NULL ? find_refusal(cache, lookup->refusal) : NULL;
  if (entry != NULL) {
    entry->last_use = ++cache->clock;
    *out = grammar_ref(entry->grammar);
    code = 0;
  } else if (refusal != NULL) {
    refusal->last_use = ++cache->clock;
    *error = refusal->error;
    code = refusal->code;
  }
  cache->stats.hits += code != GRAMMAR_CACHE_MISS;
  pthread_mutex_unlock(&cache->lock);
  return code;
}

int grammar_cache_find(grammar_cache_t *cache, const grammar_source_t *source,
                       const grammar_vocabulary_t *vocabulary, grammar_t **out,
                       inferd_error_t *error) {
  lookup_t lookup = lookup_of(cache, source, vocabulary);
  int code = find_either(cache, &lookup, out, error);
  free(lookup.key);
  return code;
}

int grammar_cache_compile(grammar_cache_t *cache, const grammar_source_t *source,
                          const grammar_vocabulary_t *vocabulary, grammar_account_t *account,
                          grammar_t **out, inferd_error_t *error) {
  grammar_account_t own = {0};
  if (account == NULL) account = &own;
  uint64_t spent_before = account->work;
  lookup_t lookup = lookup_of(cache, source, vocabulary);
  int code = find_either(cache, &lookup, out, error);
  if (code != GRAMMAR_CACHE_MISS) {
    free(lookup.key);
    return code;
  }
  code = grammar_compile(source, vocabulary, NULL, account, out, error);
  pthread_mutex_lock(&cache->lock);
  cache->stats.misses++;
  if (lookup.key != NULL && code == 0) {
    keep(cache, lookup.hash, lookup.key, lookup.length, out);
  } else {
    if (lookup.key != NULL && is_final(code, spent_before)) {
      keep_refusal(cache, &lookup, account->client, code, error);
    }
    free(lookup.key);
  }
  pthread_mutex_unlock(&cache->lock);
  return code;
}

grammar_cache_stats_t grammar_cache_stats(grammar_cache_t *cache) {
  pthread_mutex_lock(&cache->lock);
  grammar_cache_stats_t stats = cache->stats;
  pthread_mutex_unlock(&cache->lock);
  return stats;
}
