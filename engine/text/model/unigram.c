/* unigram.c: Viterbi over a trie of the vocabulary.
 *
 * Loading thread, then the tokenizing threads. The rules and their order are those of the reference
 * library: the first of several equal paths is kept, neighbouring unknown characters are joined,
 * and if the vocabulary has the joined text, its id is used.
 */
#include "engine/text/model/unigram.h"

#include "engine/base/checked.h"
#include "engine/text/unicode/unicode.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { POLL_PLACES = 64 * 1024 };

typedef struct unigram_place {
  double score;   /* of the best path that ends here */
  uint32_t start; /* of its last piece */
  uint32_t id;    /* NO_ID: nothing ends here */
} unigram_place_t;

bool unigram_finish(unigram_t *unigram, const vocab_t *vocab) {
  if (!trie_build(&unigram->trie, vocab)) return false;
  for (unsigned byte = 0; byte < 256; byte++) {
    char name[8];
    snprintf(name, sizeof name, "<0x%02X>", byte);
    unigram->fallback[byte] = vocab_find(vocab, name, 6);
  }
  return true;
}

void unigram_free(unigram_t *unigram) {
  free(unigram->scores);
  trie_free(&unigram->trie);
}

void unigram_scratch_free(unigram_scratch_t *scratch) {
  buffer_free(&scratch->places);
  buffer_free(&scratch->ids);
  buffer_free(&scratch->starts);
}

/* ---- encoding ---- */

static void offer(unigram_place_t *place, double score, size_t start, uint32_t id) {
  if (place->id != NO_ID && !(score > place->score)) return;
  *place = (unigram_place_t){score, (uint32_t)start, id};
}

/* Extends the best path that ends at `at` by every vocabulary entry that begins there. */
static void extend(const unigram_t *unigram, unigram_place_t *places, const uint8_t *piece,
                   size_t length, size_t at, size_t character) {
  double here = places[at].score;
  bool single = false;
  uint32_t node = 0;
  for (size_t i = at; i < length; i++) {
    node = trie_step(&unigram->trie, node, piece[i]);
    if (node == 0) break;
    uint32_t id = trie_id(&unigram->trie, node);
    if (id == NO_ID) continue;
    offer(&places[i + 1], here + unigram->scores[id], at, id);
    single = single || i + 1 - at == character;
  }
  if (!single) offer(&places[at + character], here + unigram->unk_score, at, unigram->unk);
}

/* Writes the ids of one unknown stretch of text, backwards. */
static bool push_unknown(const unigram_t *unigram, const vocab_t *vocab, buffer_t *ids,
                         const uint8_t *text, size_t length) {
  uint32_t id = vocab_find(vocab, text, length);
  bool bytes = id == NO_ID && unigram->byte_fallback;
  for (size_t i = 0; i < length && bytes; i++) bytes = unigram->fallback[text[i]] != NO_ID;
  if (!bytes) {
    if (id == NO_ID) id = unigram->unk;
    return buffer_append(ids, &id, sizeof id);
  }
  while (length-- > 0)
    if (!buffer_append(ids, &unigram->fallback[text[length]], sizeof id)) return false;
  return true;
}

/* Notes where the ids begin that were pushed last: all at the same place. */
static bool note_starts(unigram_scratch_t *scratch, size_t start) {
  const uint32_t at = (uint32_t)start;
  while (scratch->notes_starts && scratch->starts.length < scratch->ids.length)
    if (!buffer_append(&scratch->starts, &at, sizeof at)) return false;
  return true;
}

/* Follows the best path back; neighbouring unknown pieces are joined. */
static bool walk_back(const unigram_t *unigram, const vocab_t *vocab, unigram_scratch_t *scratch,
                      const uint8_t *piece, size_t length) {
  const unigram_place_t *places = (const unigram_place_t *)(const void *)scratch->places.data;
  size_t end = length;
  scratch->ids.length = scratch->starts.length = 0;
  while (end > 0) {
    size_t start = places[end].start;
    uint32_t id = places[end].id;
    if (id != unigram->unk) {
      if (!buffer_append(&scratch->ids, &id, sizeof id)) return false;
    } else {
      while (start > 0 && places[start].id == unigram->unk) start = places[start].start;
      if (!push_unknown(unigram, vocab, &scratch->ids, piece + start, end - start)) return false;
    }
    if (!note_starts(scratch, start)) return false;
    end = start;
  }
  return true;
}

int unigram_encode(const unigram_t *unigram, const vocab_t *vocab, unigram_scratch_t *scratch,
                   const uint8_t *piece, size_t length, const atomic_bool *cancelled,
                   buffer_t *out) {
  size_t bytes;
  if (length >= UINT32_MAX || !checked_mul(length + 1, sizeof(unigram_place_t), &bytes))
    return ERR_INTERNAL;
  scratch->places.length = 0;
  if (!buffer_reserve(&scratch->places, bytes)) return ERR_INTERNAL;
  unigram_place_t *places = (unigram_place_t *)(void *)scratch->places.data;
  for (size_t i = 0; i <= length; i++) places[i] = (unigram_place_t){0, 0, NO_ID};
  for (size_t at = 0, polled = 0; at < length;) {
    size_t character = utf8_length(piece[at]);
    if (character > length - at) character = length - at;
    extend(unigram, places, piece, length, at, character);
    at += character;
    if (at - polled < POLL_PLACES) continue;
    polled = at;
    if (cancelled != NULL && atomic_load(cancelled)) return ERR_REQUEST_TIMEOUT;
  }
  if (!walk_back(unigram, vocab, scratch, piece, length)) return ERR_INTERNAL;
  const uint32_t *ids = (const uint32_t *)(const void *)scratch->ids.data;
  for (size_t i = scratch->ids.length / sizeof *ids; i-- > 0;)
    if (!buffer_append(out, &ids[i], sizeof *ids)) return ERR_INTERNAL;
  return 0;
}
