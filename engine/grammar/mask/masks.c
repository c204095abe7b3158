/* masks.c: a cache of masks: place in a grammar -> key -> row of bits.
 *
 * One thread at a time; allocates nothing once it is made. A key has a head, by which it is looked
 * up: grammar, threads, the depths of their stacks. It also has a tail: the frames that the mask
 * depends on, which are known after the walk that computed the mask. Rows are evicted by the clock
 * algorithm.
 */
#include "engine/grammar/mask/masks.h"

#include "engine/base/siphash.h"
#include "engine/grammar/mask/matcher.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { KEY_WORDS_MAX = 128, BUCKETS = 2 * GRAMMAR_MASKS_MAX, NO_MASK = -1 };

typedef struct key {
  uint32_t words[KEY_WORDS_MAX];
  uint32_t head, count; /* words of the head, and of head and tail; a count above KEY_WORDS_MAX
                           means that they did not fit */
} place_key_t;

typedef struct mask {
  uint64_t hash;   /* of the head */
  uint32_t lowest; /* frames of this depth and above are in the tail */
  int32_t next;    /* in the bucket */
  bool used;       /* since `hand` of the clock algorithm passed */
  bool filled;
  uint64_t units; /* work for the row */
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
                      grammar_masks_t **out, inferd_error_t *error) {
  grammar_masks_t *masks = calloc(1, sizeof *masks);
  size_t row_bytes = (size_t)vocabulary->row_words * sizeof *masks->rows,
         count = bytes_max / row_bytes;
  if (count < 1) count = 1;
  if (count > GRAMMAR_MASKS_MAX) count = GRAMMAR_MASKS_MAX;
  if (masks != NULL) masks->rows = calloc(count, row_bytes);
  if (masks == NULL || masks->rows == NULL) {
    free(masks);
    return error_set(error, ERR_NO_MEMORY, NULL, "no memory for %zu masks of grammars", count);
  }
  if (getrandom(masks->hash_key, sizeof masks->hash_key, 0) != (ssize_t)sizeof masks->hash_key) {
    grammar_masks_free(masks);
    return error_set(error, ERR_INTERNAL, NULL, "no random bytes for the masks of grammars");
  }
  masks->vocabulary = vocabulary;
  masks->num_masks = (int32_t)count;
  for (int i = 0; i < BUCKETS; i++) masks->buckets[i] = NO_MASK;
  *out = masks;
  return 0;
}

void grammar_masks_free(grammar_masks_t *masks) {
  if (masks == NULL) return;
  free(masks->rows);
  free(masks);
}

/* ---- keys ---- */

static void add_word(place_key_t *key, uint32_t word) {
  if (key->count < KEY_WORDS_MAX) key->words[key->count] = word;
  key->count++;
}

/* Returns the part of a counter that can affect a token: how many characters must still come and
 * how many may come, both cut to the length of the longest token. */
static uint32_t count_as_felt(const grammar_matcher_t *matcher, const thread_t *thread) {
  const grammar_node_t *node = &matcher->grammar->nodes[thread->node];
  if (node->kind != NODE_LEX) return thread->count;
  const dfa_t *dfa = matcher->grammar->dfas[node->lexeme];
  if (dfa->rest == NULL) return 0;
  uint32_t longest = matcher->vocabulary->all.tail, room = 0;
  uint32_t need = thread->count < dfa->count_min ? dfa->count_min - thread->count : 0;
  if (dfa->count_max != NONE) room = dfa->count_max - thread->count;
  if (need > longest) need = longest + 1;
  if (room > longest + dfa->rest_max) room = longest + dfa->rest_max;
  return need << 16 | room; /* rest is at most the number of states, 10,000 */
}

/* Adds the count of a link or a thread, which may be the number of a set that only this matcher
 * has. */
static void add_count(place_key_t *key, const grammar_matcher_t *matcher, uint32_t node,
                      uint32_t count) {
  const grammar_object_t *object = matcher_set_object(matcher->grammar, node);
  if (object == NULL) {
    add_word(key, count);
    return;
  }
  const name_set_t *set = &matcher->sets[count];
  for (uint32_t i = 0; i < object->num_names; i += 32)
    add_word(key, (uint32_t)(set->names[i / 64] >> i % 64));
  add_word(key, (uint32_t)set->extras);
}

static void make_head(place_key_t *key, const grammar_matcher_t *matcher,
                      const matcher_place_t *place) {
  key->count = 0;
  add_word(key, (uint32_t)matcher->grammar->serial);
  add_word(key, (uint32_t)(matcher->grammar->serial >> 32));
  add_word(key, matcher->narrow);
  for (uint32_t i = 0; i < place->count; i++) {
    const thread_t *thread = &place->threads[i];
    add_word(key, thread->node);
    add_word(key, thread->state);
    add_count(key, matcher, thread->node, count_as_felt(matcher, thread));
    add_word(key, matcher->frames[thread->stack].depth);
  }
  key->head = key->count;
}

/* Returns the number that the key gives the frame: its place in the list. */
static uint32_t number_of(uint32_t *frames, uint32_t *count, uint32_t frame) {
  uint32_t i = 0;
  while (i < *count && frames[i] != frame) i++;
  if (i == *count && i < KEY_WORDS_MAX) frames[(*count)++] = frame;
  return i;
}

/* Writes the frames of all threads at depth `lowest` and above, each once; the head has the depths.
 * A frame is the list of its links, and a link names the frame below by its number. */
static void make_tail(place_key_t *key, const grammar_matcher_t *matcher,
                      const matcher_place_t *place, uint32_t lowest) {
  uint32_t frames[KEY_WORDS_MAX], count = 0;
  key->count = key->head;
  for (uint32_t i = 0; i < place->count; i++)
    add_word(key, number_of(frames, &count, place->threads[i].stack));
  for (uint32_t i = 0; i < count && key->count <= KEY_WORDS_MAX; i++) {
    const matcher_frame_t *frame = &matcher->frames[frames[i]];
    if (frame->depth < lowest) continue;
    for (uint32_t k = frame->links; k; k = matcher->links[k].next) {
      if (key->count > KEY_WORDS_MAX) return;
      add_word(key, matcher->links[k].node);
      add_count(key, matcher, matcher->links[k].node, matcher->links[k].count);
      add_word(key, number_of(frames, &count, matcher->links[k].parent));
    }
    add_word(key, NONE);
  }
}

static uint64_t hash_head(const grammar_masks_t *masks, const place_key_t *key) {
  siphash_t siphash = siphash_begin(masks->hash_key);
  for (uint32_t i = 0; i < key->head; i++) siphash_word(&siphash, key->words[i], 1);
  return siphash_end(&siphash, 1);
}

/* ---- masks ---- */

static int32_t find(grammar_masks_t *masks, const grammar_matcher_t *matcher, place_key_t *key,
                    uint64_t hash) {
  int32_t i = masks->buckets[hash % BUCKETS];
  for (; i != NO_MASK; i = masks->masks[i].next) {
    const mask_t *mask = &masks->masks[i];
    if (mask->hash != hash || mask->key.head != key->head ||
        memcmp(mask->key.words, key->words, key->head * sizeof *key->words) != 0) {
      continue;
    }
    make_tail(key, matcher, &matcher->place, mask->lowest);
    if (key->count == mask->key.count &&
        memcmp(mask->key.words, key->words, key->count * sizeof *key->words) == 0) {
      return i;
    }
  }
  return NO_MASK;
}

static int32_t make_room(grammar_masks_t *masks) {
  while (masks->masks[masks->hand].filled && masks->masks[masks->hand].used) {
    masks->masks[masks->hand].used = false;
    masks->hand = (masks->hand + 1) % masks->num_masks;
  }
  int32_t at = masks->hand;
  masks->hand = (masks->hand + 1) % masks->num_masks;
  if (!masks->masks[at].filled) return at;
  int32_t *link = &masks->buckets[masks->masks[at].hash % BUCKETS];
  while (*link != at) link = &masks->masks[*link].next;
  *link = masks->masks[at].next;
  masks->masks[at].filled = false;
  return at;
}

static void keep(grammar_masks_t *masks, const place_key_t *key, uint64_t hash,
                 const grammar_walk_t *walk, const uint32_t *row) {
  int32_t at = make_room(masks), *bucket = &masks->buckets[hash % BUCKETS];
  size_t words = (size_t)masks->vocabulary->row_words;
  masks->masks[at] = (mask_t){
      .hash = hash, .lowest = walk->lowest, .next = *bucket, .filled = true, .units = walk->units};
  masks->masks[at].key = *key;
  *bucket = at;
  memcpy(masks->rows + (size_t)at * words, row, words * sizeof *row);
}

/* Makes the head of the matcher's key. Returns false if a mask there cannot be kept. */
static bool begin_key(const grammar_masks_t *masks, const grammar_matcher_t *matcher,
                      place_key_t *key) {
  make_head(key, matcher, &matcher->place);
  return key->count <= KEY_WORDS_MAX && matcher->vocabulary == masks->vocabulary;
}

/* Keeps the mask of a complete walk; `key` has its head. */
static void keep_walk(grammar_masks_t *masks, const grammar_matcher_t *matcher, place_key_t *key,
                      const grammar_walk_t *walk, const uint32_t *row) {
  make_tail(key, matcher, &matcher->place, walk->lowest);
  if (key->count <= KEY_WORDS_MAX) keep(masks, key, walk->place, walk, row);
}

int grammar_masks_fill_on(grammar_masks_t *masks, grammar_matcher_t *matcher,
                          grammar_scratch_t *scratch, const int32_t *stop_ids, int32_t num_stop_ids,
                          grammar_walk_t *walk, uint64_t units, uint32_t *row) {
  size_t words = (size_t)masks->vocabulary->row_words;
  place_key_t key;
  bool fits = begin_key(masks, matcher, &key);
  walk->place = fits ? hash_head(masks, &key) : 0;
  int32_t at = fits && !walk->begun ? find(masks, matcher, &key, walk->place) : NO_MASK;
  walk->hit = at != NO_MASK;
  if (walk->hit) {
    masks->masks[at].used = true;
    walk->units = masks->masks[at].units;
    memcpy(row, masks->rows + (size_t)at * words, words * sizeof *row);
    return matcher_finish(matcher, stop_ids, num_stop_ids, row);
  }
  int code = units > 0 ? matcher_walk_on(matcher, scratch, true, walk, units, row) : GRAMMAR_LATER;
  if (code) return code;
  if (fits) keep_walk(masks, matcher, &key, walk, row);
  return matcher_finish(matcher, stop_ids, num_stop_ids, row);
}

int grammar_walk_on(grammar_matcher_t *matcher, grammar_scratch_t *scratch, grammar_walk_t *walk,
                    uint64_t units, uint32_t *row) {
  return matcher_walk_on(matcher, scratch, true, walk, units, row);
}

int grammar_masks_end(grammar_masks_t *masks, const grammar_matcher_t *matcher,
                      const int32_t *stop_ids, int32_t num_stop_ids, const grammar_walk_t *walk,
                      uint32_t *row) {
  place_key_t key;
  if (begin_key(masks, matcher, &key)) keep_walk(masks, matcher, &key, walk, row);
  return matcher_finish(matcher, stop_ids, num_stop_ids, row);
}

int grammar_masks_fill(grammar_masks_t *masks, grammar_matcher_t *matcher,
                       grammar_scratch_t *scratch, const int32_t *stop_ids, int32_t num_stop_ids,
                       uint32_t *row, bool *hit) {
  grammar_walk_t walk = {0};
  int code = grammar_masks_fill_on(masks, matcher, scratch, stop_ids, num_stop_ids, &walk,
                                   UINT64_MAX, row);
  *hit = walk.hit;
  return code;
}
