/* cache.c: constraint -> bytes that say all of it -> a grammar that is already there.
 *
 * Any thread. The key is the tree of the source written out, values of JSON in preorder with their
 * lengths; `param`, which only errors name, is not part of it.
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

struct grammar_cache {
  pthread_mutex_t lock;
  uint64_t hash_key[2], clock;
  size_t bytes_max;
  grammar_cache_stats_t stats;
  entry_t entries[GRAMMAR_CACHE_ENTRIES_MAX];
};

/* ---- keys ---- */

/* Counts on beyond its capacity, without writing. */
typedef struct writer {
  char *out;
  size_t capacity, length;
} writer_t;

static void put(writer_t *w, const void *bytes, size_t length) {
  if (length > 0 && length <= w->capacity && w->length <= w->capacity - length) {
    memcpy(w->out + w->length, bytes, length);
  }
  w->length += length;
}

static void put_text(writer_t *w, const char *text, size_t length) {
  put(w, &length, sizeof length);
  put(w, text, length);
}

/* The values of a document lie in preorder, so a subtree is a range (json.h). */
static void put_json(writer_t *w, const json_t *root) {
  uint64_t left = root != NULL ? 1 : 0;
  put(w, &left, sizeof left);
  for (const json_t *v = root; left > 0 && w->length <= GRAMMAR_CACHE_KEY_MAX; v++) {
    bool is_text = v->type == JSON_STRING || v->type == JSON_NUMBER;
    bool is_container = v->type == JSON_ARRAY || v->type == JSON_OBJECT;
    uint32_t count = is_container ? v->count : 0;
    put(w, &v->type, sizeof v->type);
    put(w, &count, sizeof count);
    put_text(w, v->key, v->key_length);
    put_text(w, v->text, is_text ? v->length : 0);
    left += count;
    left--;
  }
}

static void put_source(writer_t *w, const grammar_source_t *s, int depth) {
  enum { DEPTH_MAX = 32 }; /* of a tree that compiles */
  int32_t numbers[] = {(int32_t)s->kind, s->strict, s->token, s->num_children};
  put(w, numbers, sizeof numbers);
  put(w, &s->min, sizeof s->min);
  put(w, &s->max, sizeof s->max);
  put_text(w, s->text, s->length);
  put_json(w, s->schema);
  if (depth > DEPTH_MAX) w->length = GRAMMAR_CACHE_KEY_MAX + 1;
  for (int32_t i = 0; i < s->num_children && w->length <= GRAMMAR_CACHE_KEY_MAX; i++) {
    put_source(w, &s->children[i], depth + 1);
  }
}

/* malloc'ed; NULL = too large or no memory, and then the grammar is not kept. */
static char *make_key(const grammar_source_t *source, const grammar_vocabulary_t *vocabulary,
                      size_t *length) {
  writer_t count = {0};
  put(&count, &vocabulary, sizeof vocabulary);
  put_source(&count, source, 0);
  if (count.length > GRAMMAR_CACHE_KEY_MAX) return NULL;
  writer_t w = {.out = malloc(count.length), .capacity = count.length};
  if (w.out == NULL) return NULL;
  put(&w, &vocabulary, sizeof vocabulary);
  put_source(&w, source, 0);
  *length = w.length;
  return w.out;
}

/* ---- entries, under the lock ---- */

static entry_t *find(grammar_cache_t *c, uint64_t hash, const char *key, size_t length) {
  for (entry_t *e = c->entries; e < c->entries + GRAMMAR_CACHE_ENTRIES_MAX; e++) {
    if (e->grammar != NULL && e->hash == hash && e->key_bytes == length &&
        memcmp(e->key, key, length) == 0) {
      return e;
    }
  }
  return NULL;
}

static void drop(grammar_cache_t *c, entry_t *e) {
  c->stats.bytes -= e->bytes;
  c->stats.entries--;
  grammar_unref(e->grammar);
  free(e->key);
  *e = (entry_t){0};
}

/* A free entry with `bytes` within the budget; drops the ones that were not used for longest. */
static entry_t *make_room(grammar_cache_t *c, size_t bytes) {
  for (;;) {
    entry_t *oldest = NULL, *unused = NULL;
    for (entry_t *e = c->entries; e < c->entries + GRAMMAR_CACHE_ENTRIES_MAX; e++) {
      if (e->grammar == NULL) {
        unused = e;
      } else if (oldest == NULL || e->last_use < oldest->last_use) {
        oldest = e;
      }
    }
    if (unused != NULL && c->stats.bytes + bytes <= c->bytes_max) return unused;
    if (oldest == NULL) return NULL;
    c->stats.evictions++;
    drop(c, oldest);
  }
}

/* Takes the key. Whoever came first with it wins: *grammar becomes that one. */
static void keep(grammar_cache_t *c, uint64_t hash, char *key, size_t key_bytes,
                 grammar_t **grammar) {
  size_t bytes = grammar_bytes(*grammar) + key_bytes;
  entry_t *e = find(c, hash, key, key_bytes);
  if (e != NULL) {
    grammar_unref(*grammar);
    *grammar = grammar_ref(e->grammar);
  } else if (bytes <= c->bytes_max / 4 && (e = make_room(c, bytes)) != NULL) {
    *e = (entry_t){hash, ++c->clock, key, key_bytes, bytes, grammar_ref(*grammar)};
    c->stats.bytes += bytes;
    c->stats.entries++;
    return;
  }
  free(key);
}

/* ---- the whole ---- */

int grammar_cache_new(size_t bytes_max, grammar_cache_t **out, error_t *error) {
  grammar_cache_t *c = calloc(1, sizeof *c);
  if (c == NULL)
    return error_set(error, ERR_NO_MEMORY, NULL, "no memory for the cache of grammars");
  if (getrandom(c->hash_key, sizeof c->hash_key, 0) != (ssize_t)sizeof c->hash_key) {
    free(c);
    return error_set(error, ERR_INTERNAL, NULL, "no random bytes for the cache of grammars");
  }
  pthread_mutex_init(&c->lock, NULL);
  c->bytes_max = bytes_max;
  *out = c;
  return 0;
}

void grammar_cache_free(grammar_cache_t *c) {
  if (c == NULL) return;
  for (entry_t *e = c->entries; e < c->entries + GRAMMAR_CACHE_ENTRIES_MAX; e++) {
    if (e->grammar != NULL) drop(c, e);
  }
  pthread_mutex_destroy(&c->lock);
  free(c);
}

int grammar_cache_compile(grammar_cache_t *c, const grammar_source_t *source,
                          const grammar_vocabulary_t *vocabulary, const atomic_bool *cancelled,
                          grammar_t **out, error_t *error) {
  size_t length = 0;
  uint64_t hash = 0;
  char *key = make_key(source, vocabulary, &length);
  if (key != NULL) {
    siphash_t s = siphash_begin(c->hash_key);
    siphash_bytes(&s, key, length, 1);
    hash = siphash_end(&s, 1);
  }
  pthread_mutex_lock(&c->lock);
  entry_t *e = key != NULL ? find(c, hash, key, length) : NULL;
  if (e != NULL) {
    e->last_use = ++c->clock;
    *out = grammar_ref(e->grammar);
  }
  *(e != NULL ? &c->stats.hits : &c->stats.misses) += 1;
  pthread_mutex_unlock(&c->lock);
  if (e != NULL) {
    free(key);
    return 0;
  }
  int code = grammar_compile(source, vocabulary, NULL, cancelled, out, error);
  if (code || key == NULL) {
    free(key);
    return code;
  }
  pthread_mutex_lock(&c->lock);
  keep(c, hash, key, length, out);
  pthread_mutex_unlock(&c->lock);
  return 0;
}

grammar_cache_stats_t grammar_cache_stats(grammar_cache_t *c) {
  pthread_mutex_lock(&c->lock);
  grammar_cache_stats_t stats = c->stats;
  pthread_mutex_unlock(&c->lock);
  return stats;
}
