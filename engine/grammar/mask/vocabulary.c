/* vocabulary.c: the bytes of a tokenizer's tokens, in order, once at load.
 *
 * Runs on the thread that loads a model; afterwards read-only. Sorting the tokens by their bytes
 * makes the preorder of the tries, which vocabulary_tries.c writes.
 */
#include "engine/grammar/mask/vocabulary_tries.h"

#include "engine/base/util.h"

#include <stdlib.h>
#include <string.h>

/* Copies the bytes of every token that may be generated. */
static bool copy_bytes(grammar_vocabulary_t *vocabulary, grammar_token_bytes_t *token_bytes,
                       const void *context) {
  size_t total = 0, length;
  for (int32_t id = 0; id < vocabulary->num_tokens; id++) {
    token_bytes(context, id, &length);
    if (length <= TOKEN_BYTES_MAX) total += length;
  }
  if (total > UINT32_MAX) return false;
  vocabulary->bytes = malloc(total + 1);
  vocabulary->offset = calloc((size_t)vocabulary->num_tokens + 1, sizeof *vocabulary->offset);
  vocabulary->same = calloc((size_t)vocabulary->num_tokens + 1, sizeof *vocabulary->same);
  if (vocabulary->bytes == NULL || vocabulary->offset == NULL || vocabulary->same == NULL)
    return false;
  uint32_t at = 0;
  for (int32_t id = 0; id < vocabulary->num_tokens; id++) {
    const char *bytes = token_bytes(context, id, &length);
    vocabulary->offset[id] = at;
    vocabulary->same[id] = -1;
    if (length > 0 && length <= TOKEN_BYTES_MAX) {
      memcpy(vocabulary->bytes + at, bytes, length);
      at += (uint32_t)length;
      if (length == 1) vocabulary->has_byte[(uint8_t)bytes[0]] = 1;
    }
  }
  vocabulary->offset[vocabulary->num_tokens] = at;
  return true;
}

/* ---- sorting ---- */

/* The first eight bytes, big-endian: most tokens differ there. */
static uint64_t key_of(const char *bytes, uint32_t length) {
  uint64_t key = 0;
  for (uint32_t i = 0; i < 8; i++) key = key << 8 | (i < length ? (uint8_t)bytes[i] : 0);
  return key;
}

static int compare_tokens(const void *left, const void *right) {
  const sorted_token_t *first = left, *second = right;
  uint32_t length = MIN(first->length, second->length);
  int order = memcmp(first->bytes, second->bytes, length);
  if (order != 0) return order;
  if (first->length != second->length) return first->length < second->length ? -1 : 1;
  return first->id < second->id ? -1 : first->id > second->id;
}

/* Stable counting sorts by 11 bits at a time, then the runs of equal keys by all of their bytes. */
static void sort_by_bytes(sorted_token_t *tokens, sorted_token_t *other, uint32_t count) {
  enum { DIGIT = 11, DIGITS = 6 };
  for (int pass = 0; pass < DIGITS; pass++) {
    uint32_t starts[(1 << DIGIT) + 1] = {0}, shift = (uint32_t)(pass * DIGIT);
    for (uint32_t i = 0; i < count; i++) {
      starts[(tokens[i].key >> shift & ((1 << DIGIT) - 1)) + 1]++;
    }
    for (uint32_t d = 1; d < 1 << DIGIT; d++) starts[d] += starts[d - 1];
    for (uint32_t i = 0; i < count; i++) {
      other[starts[tokens[i].key >> shift & ((1 << DIGIT) - 1)]++] = tokens[i];
    }
    sorted_token_t *swap = tokens;
    tokens = other;
    other = swap;
  }
  for (uint32_t first = 0, i = 1; i <= count; i++) {
    if (i < count && tokens[i].key == tokens[first].key) continue;
    if (i - first > 1) qsort(tokens + first, i - first, sizeof *tokens, compare_tokens);
    first = i;
  }
}

/* Leaves one of several tokens with the same bytes; the others follow it in `same`. */
static uint32_t join_same(grammar_vocabulary_t *vocabulary, sorted_token_t *tokens,
                          uint32_t count) {
  uint32_t kept = 0;
  int32_t tail = -1;
  for (uint32_t i = 0; i < count; i++) {
    const sorted_token_t *last = kept > 0 ? &tokens[kept - 1] : NULL;
    if (last != NULL && last->length == tokens[i].length &&
        memcmp(last->bytes, tokens[i].bytes, last->length) == 0) {
      vocabulary->same[tail] = tokens[i].id;
    } else {
      tokens[kept++] = tokens[i];
    }
    tail = tokens[i].id;
  }
  return kept;
}

static sorted_token_t *sort_tokens(grammar_vocabulary_t *vocabulary, uint32_t *count) {
  uint32_t num_tokens = 0;
  sorted_token_t *tokens = calloc((size_t)vocabulary->num_tokens + 1, sizeof *tokens);
  sorted_token_t *other = calloc((size_t)vocabulary->num_tokens + 1, sizeof *other);
  for (int32_t id = 0; tokens != NULL && other != NULL && id < vocabulary->num_tokens; id++) {
    uint32_t length;
    const char *bytes = vocabulary_token(vocabulary, id, &length);
    if (length == 0) continue;
    tokens[num_tokens++] = (sorted_token_t){key_of(bytes, length), bytes, length, id};
  }
  if (tokens != NULL && other != NULL) {
    sort_by_bytes(tokens, other, num_tokens);
    *count = join_same(vocabulary, tokens, num_tokens);
  }
  if (other == NULL) free(tokens), tokens = NULL;
  free(other);
  return tokens;
}

/* ---- entry point ---- */

int grammar_vocabulary_new(grammar_token_bytes_t *bytes, const void *context, int32_t num_tokens,
                           int32_t row_width, grammar_vocabulary_t **out, inferd_error_t *error) {
  grammar_vocabulary_t *vocabulary = calloc(1, sizeof *vocabulary);
  sorted_token_t *tokens = NULL;
  uint32_t count = 0;
  bool ok = vocabulary != NULL;
  if (ok) {
    vocabulary->row_width = row_width;
    vocabulary->num_tokens = MIN(num_tokens, row_width);
    vocabulary->row_words = (row_width + 31) / 32;
    ok = copy_bytes(vocabulary, bytes, context) &&
         (tokens = sort_tokens(vocabulary, &count)) != NULL &&
         vocabulary_build_tries(vocabulary, tokens, count) && vocabulary_build_rows(vocabulary);
  }
  free(tokens);
  if (!ok) {
    grammar_vocabulary_free(vocabulary);
    return error_set(error, ERR_NO_MEMORY, NULL, "no memory for the trie of %d tokens", num_tokens);
  }
  *out = vocabulary;
  return 0;
}

void grammar_vocabulary_free(grammar_vocabulary_t *vocabulary) {
  if (vocabulary == NULL) return;
  for (int group = 0; group < GROUP_COUNT; group++) free(vocabulary->groups[group].row);
  free(vocabulary->plain.row);
  free(vocabulary->all.row);
  free(vocabulary->up_to);
  free(vocabulary->letters_up_to[0]);
  free(vocabulary->letters_up_to[1]);
  free(vocabulary->large);
  free(vocabulary->large_rows);
  free(vocabulary->nodes);
  free(vocabulary->ids);
  free(vocabulary->first_id);
  free(vocabulary->roots);
  free(vocabulary->root_group);
  free(vocabulary->bytes);
  free(vocabulary->offset);
  free(vocabulary->same);
  free(vocabulary);
}

int32_t grammar_row_words(const grammar_vocabulary_t *vocabulary) {
  return vocabulary->row_words;
}
