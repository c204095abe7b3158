/* masks.c: place -> key -> row of bits that is already there.
 *
 * One thread at a time; allocates nothing once it is made. A key has a head, by which it is looked
 * up: grammar, threads, the depths of their stacks; and a tail: the frames that the mask depends
 * on, which only the walk that made it can tell. A row that was not used since the hand of the
 * clock passed it makes room.
 */
#include "engine/grammar/mask/masks.h"

#include "engine/base/siphash.h"
#include "engine/grammar/mask/matcher.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { KEY_WORDS_MAX = 96, BUCKETS = 2 * GRAMMAR_MASKS_MAX, NO_MASK = -1 };

typedef struct key {
  uint32_t words[KEY_WORDS_MAX];
  uint32_t head, count; /* words of the head, of all; count above KEY_WORDS_MAX: too many */
} place_key_t;

typedef struct mask {
  uint64_t hash;   /* of the head */
  uint32_t lowest; /* frames of this depth and above are in the tail */
  int32_t next;    /* in the bucket */
  bool used;       /* since the hand passed */
  bool filled;
  place_key_t key;
} mask_t;

struct grammar_masks {
  const grammar_vocabulary_t *vocabulary;
  uint64_t hash_key[2];
  int32_t num_masks, hand;
  int32_t buckets[BUCKETS];
  mask_t masks[GRAMMAR_MASKS_MAX];
  uint32_t *rows; /* [num_masks, row_words] */
};

int grammar_masks_new(const grammar_vocabulary_t *vocabulary, size_t bytes_max,
                      grammar_masks_t **out, error_t *error) {
  grammar_masks_t *c = calloc(1, sizeof *c);
  size_t row_bytes = (size_t)vocabulary->row_words * sizeof *c->rows, count = bytes_max / row_bytes;
  if (count < 1) count = 1;
  if (count > GRAMMAR_MASKS_MAX) count = GRAMMAR_MASKS_MAX;
  if (c != NULL) c->rows = calloc(count, row_bytes);
  if (c == NULL || c->rows == NULL) {
    free(c);
    return error_set(error, ERR_NO_MEMORY, NULL, "no memory for %zu masks of grammars", count);
  }
  if (getrandom(c->hash_key, sizeof c->hash_key, 0) != (ssize_t)sizeof c->hash_key) {
    grammar_masks_free(c);
    return error_set(error, ERR_INTERNAL, NULL, "no random bytes for the masks of grammars");
  }
  c->vocabulary = vocabulary;
  c->num_masks = (int32_t)count;
  for (int i = 0; i < BUCKETS; i++) c->buckets[i] = NO_MASK;
  *out = c;
  return 0;
}

void grammar_masks_free(grammar_masks_t *c) {
  if (c == NULL) return;
  free(c->rows);
  free(c);
}

/* ---- keys ---- */

static void add_word(place_key_t *key, uint32_t word) {
  if (key->count < KEY_WORDS_MAX) key->words[key->count] = word;
  key->count++;
}

/* Of a counted lexeme only what a token can feel: how many characters must still come and how many
 * may, neither beyond the longest token. */
static uint32_t count_as_felt(const grammar_matcher_t *m, const thread_t *t) {
  const node_t *n = &m->grammar->nodes[t->node];
  if (n->kind != NODE_LEX) return t->count;
  const dfa_t *d = m->grammar->dfas[n->a];
  if (d->rest == NULL) return 0;
  uint32_t longest = m->vocabulary->all.tail, room = 0;
  uint32_t need = t->count < d->count_min ? d->count_min - t->count : 0;
  if (d->count_max != NONE) room = d->count_max - t->count;
  if (need > longest) need = longest + 1;
  if (room > longest + d->rest_max) room = longest + d->rest_max;
  return need << 16 | room; /* rest is at most the number of states, 10,000 */
}

static void make_head(place_key_t *key, const grammar_matcher_t *m, const place_t *place) {
  key->count = 0;
  add_word(key, (uint32_t)m->grammar->serial);
  add_word(key, (uint32_t)(m->grammar->serial >> 32));
  for (uint32_t i = 0; i < place->count; i++) {
    const thread_t *t = &place->threads[i];
    add_word(key, t->node);
    add_word(key, t->state);
    add_word(key, count_as_felt(m, t));
    add_word(key, m->frames[t->stack].depth);
  }
  key->head = key->count;
}

/* The frames of all threads of depth `lowest` and above; the depths in the head tell them apart. */
static void make_tail(place_key_t *key, const grammar_matcher_t *m, const place_t *place,
                      uint32_t lowest) {
  key->count = key->head;
  for (uint32_t i = 0; i < place->count && key->count <= KEY_WORDS_MAX; i++) {
    const frame_t *f = &m->frames[place->threads[i].stack];
    for (; f->depth > 0 && f->depth >= lowest; f = &m->frames[f->parent]) {
      add_word(key, f->node);
      add_word(key, f->count);
    }
  }
}

static uint64_t hash_head(const grammar_masks_t *c, const place_key_t *key) {
  siphash_t s = siphash_begin(c->hash_key);
  for (uint32_t i = 0; i < key->head; i++) siphash_word(&s, key->words[i], 1);
  return siphash_end(&s, 1);
}

/* ---- masks ---- */

static int32_t find(grammar_masks_t *c, const grammar_matcher_t *m, place_key_t *key,
                    uint64_t hash) {
  int32_t i = c->buckets[hash % BUCKETS];
  for (; i != NO_MASK; i = c->masks[i].next) {
    const mask_t *mask = &c->masks[i];
    if (mask->hash != hash || mask->key.head != key->head ||
        memcmp(mask->key.words, key->words, key->head * sizeof *key->words) != 0) {
      continue;
    }
    make_tail(key, m, matcher_place(m), mask->lowest);
    if (key->count == mask->key.count &&
        memcmp(mask->key.words, key->words, key->count * sizeof *key->words) == 0) {
      return i;
    }
  }
  return NO_MASK;
}

static int32_t make_room(grammar_masks_t *c) {
  while (c->masks[c->hand].filled && c->masks[c->hand].used) {
    c->masks[c->hand].used = false;
    c->hand = (c->hand + 1) % c->num_masks;
  }
  int32_t at = c->hand;
  c->hand = (c->hand + 1) % c->num_masks;
  if (!c->masks[at].filled) return at;
  int32_t *link = &c->buckets[c->masks[at].hash % BUCKETS];
  while (*link != at) link = &c->masks[*link].next;
  *link = c->masks[at].next;
  c->masks[at].filled = false;
  return at;
}

static void keep(grammar_masks_t *c, const place_key_t *key, uint64_t hash, uint32_t lowest,
                 const uint32_t *row) {
  int32_t at = make_room(c), *bucket = &c->buckets[hash % BUCKETS];
  size_t words = (size_t)c->vocabulary->row_words;
  c->masks[at] = (mask_t){.hash = hash, .lowest = lowest, .next = *bucket, .filled = true};
  c->masks[at].key = *key;
  *bucket = at;
  memcpy(c->rows + (size_t)at * words, row, words * sizeof *row);
}

int grammar_masks_fill(grammar_masks_t *c, grammar_matcher_t *m, grammar_scratch_t *s,
                       const int32_t *stop_ids, int32_t num_stop_ids, uint32_t *row, bool *hit) {
  const place_t *place = matcher_place(m);
  size_t words = (size_t)c->vocabulary->row_words;
  place_key_t key;
  make_head(&key, m, place);
  bool fits = key.count <= KEY_WORDS_MAX && m->vocabulary == c->vocabulary;
  uint64_t hash = fits ? hash_head(c, &key) : 0;
  int32_t at = fits ? find(c, m, &key, hash) : NO_MASK;
  *hit = at != NO_MASK;
  if (*hit) {
    c->masks[at].used = true;
    memcpy(row, c->rows + (size_t)at * words, words * sizeof *row);
    return matcher_finish(m, stop_ids, num_stop_ids, row);
  }
  int code = matcher_walk(m, s, true, row);
  if (code) return code;
  if (fits) make_tail(&key, m, place, s->lowest);
  if (fits && key.count <= KEY_WORDS_MAX) keep(c, &key, hash, s->lowest, row);
  return matcher_finish(m, stop_ids, num_stop_ids, row);
}
