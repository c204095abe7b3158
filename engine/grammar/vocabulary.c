/* vocabulary.c: token bytes -> tries and slices, once at load.
 *
 * Runs on the thread that loads a model; afterwards read-only. Sorting the tokens by their bytes
 * makes the preorder of the trie.
 */
#include "engine/grammar/vocabulary.h"

#include "engine/checked.h"
#include "engine/utf8.h"

#include <stdlib.h>
#include <string.h>

typedef struct sorted_token {
  uint64_t key; /* the first eight bytes, big-endian: most comparisons need no more */
  const char *bytes;
  uint32_t length;
  int32_t id;
  uint8_t slice; /* least slice that holds it, SLICE_ANY = in none of the plain ones */
} sorted_token_t;

static int compare_tokens(const void *left, const void *right) {
  const sorted_token_t *a = left, *b = right;
  if (a->key != b->key) return a->key < b->key ? -1 : 1;
  uint32_t length = a->length < b->length ? a->length : b->length;
  int order = memcmp(a->bytes, b->bytes, length);
  if (order != 0) return order;
  if (a->length != b->length) return a->length < b->length ? -1 : 1;
  return a->id < b->id ? -1 : a->id > b->id;
}

static slice_t slice_of(const char *bytes, uint32_t length) {
  uint32_t characters = 0;
  for (uint32_t i = 0; i < length; characters++) {
    unsigned char c = (unsigned char)bytes[i];
    if (c < 0x20 || c == '"' || c == '\\') return SLICE_ANY;
    int span = utf8_span(bytes + i, length - i);
    if (span < 0) return SLICE_ANY;
    i += (uint32_t)span;
  }
  return characters <= 10 ? SLICE_10 : characters <= 30 ? SLICE_30 : SLICE_PLAIN;
}

/* Copies the bytes of every token that may be generated. */
static bool copy_bytes(grammar_vocabulary_t *v, grammar_token_bytes_t *token_bytes,
                       const void *context) {
  size_t total = 0, length;
  for (int32_t id = 0; id < v->num_tokens; id++) {
    token_bytes(context, id, &length);
    if (length <= TOKEN_BYTES_MAX) total += length;
  }
  if (total > UINT32_MAX) return false;
  v->bytes = malloc(total + 1);
  v->offset = calloc((size_t)v->num_tokens + 1, sizeof *v->offset);
  v->same = calloc((size_t)v->num_tokens + 1, sizeof *v->same);
  if (!v->bytes || !v->offset || !v->same) return false;
  uint32_t at = 0;
  for (int32_t id = 0; id < v->num_tokens; id++) {
    const char *bytes = token_bytes(context, id, &length);
    v->offset[id] = at;
    v->same[id] = -1;
    if (length > 0 && length <= TOKEN_BYTES_MAX) {
      memcpy(v->bytes + at, bytes, length);
      at += (uint32_t)length;
      if (length == 1) v->has_byte[(uint8_t)bytes[0]] = 1;
    }
  }
  v->offset[v->num_tokens] = at;
  return true;
}

static sorted_token_t *sort_tokens(grammar_vocabulary_t *v, uint32_t *count) {
  sorted_token_t *tokens = calloc((size_t)v->num_tokens + 1, sizeof *tokens);
  if (!tokens) return NULL;
  for (int32_t id = 0; id < v->num_tokens; id++) {
    uint32_t length;
    const char *bytes = vocabulary_token(v, id, &length);
    if (length == 0) continue;
    uint64_t key = 0;
    for (uint32_t i = 0; i < 8; i++) key = key << 8 | (i < length ? (uint8_t)bytes[i] : 0);
    tokens[(*count)++] = (sorted_token_t){key, bytes, length, id, (uint8_t)slice_of(bytes, length)};
  }
  qsort(tokens, *count, sizeof *tokens, compare_tokens);
  uint32_t kept = 0;
  for (uint32_t i = 0; i < *count; i++) {
    const sorted_token_t *last = kept > 0 ? &tokens[kept - 1] : NULL;
    if (last && last->length == tokens[i].length &&
        memcmp(last->bytes, tokens[i].bytes, last->length) == 0) {
      int32_t tail = last->id;
      while (v->same[tail] >= 0) tail = v->same[tail];
      v->same[tail] = tokens[i].id;
    } else {
      tokens[kept++] = tokens[i];
    }
  }
  *count = kept;
  return tokens;
}

static uint32_t shared_prefix(const sorted_token_t *a, const sorted_token_t *b) {
  uint32_t n = 0;
  while (n < a->length && n < b->length && a->bytes[n] == b->bytes[n]) n++;
  return n;
}

/* The trie of the tokens outside `slice`, from the sorted list. */
static bool build_trie(trie_t *trie, const sorted_token_t *tokens, uint32_t count, slice_t slice) {
  const sorted_token_t *last = NULL;
  uint32_t num_nodes = 0, open[TOKEN_BYTES_MAX + 1], depth = 0;
  for (uint32_t i = 0; i < count; i++) {
    if (tokens[i].slice <= slice) continue;
    num_nodes += tokens[i].length - (last ? shared_prefix(last, &tokens[i]) : 0);
    last = &tokens[i];
  }
  trie->nodes = calloc((size_t)num_nodes + 1, sizeof *trie->nodes);
  if (!trie->nodes) return false;
  last = NULL;
  for (uint32_t i = 0; i < count; i++) {
    const sorted_token_t *t = &tokens[i];
    if (t->slice <= slice) continue;
    uint32_t keep = last ? shared_prefix(last, t) : 0;
    for (; depth > keep; depth--) {
      trie->nodes[open[depth]].size = trie->num_nodes - open[depth];
    }
    for (; depth < t->length;) {
      uint8_t byte = (uint8_t)t->bytes[depth];
      open[++depth] = trie->num_nodes;
      trie->nodes[trie->num_nodes++] =
          (trie_node_t){.token = -1, .byte = byte, .depth = (uint8_t)depth};
    }
    trie->nodes[open[depth]].token = t->id;
    last = t;
  }
  for (; depth > 0; depth--) trie->nodes[open[depth]].size = trie->num_nodes - open[depth];
  return true;
}

static bool build_row(grammar_vocabulary_t *v, const sorted_token_t *tokens, uint32_t count,
                      slice_t slice) {
  uint32_t *row = v->rows[slice] = calloc((size_t)v->row_words, sizeof *row);
  if (!row) return false;
  for (uint32_t i = 0; i < count; i++) {
    if (tokens[i].slice > slice) continue;
    for (int32_t id = tokens[i].id; id >= 0; id = v->same[id]) {
      row[id / 32] |= UINT32_C(1) << (id % 32);
    }
  }
  return true;
}

int grammar_vocabulary_new(grammar_token_bytes_t *bytes, const void *context, int32_t num_tokens,
                           int32_t row_width, grammar_vocabulary_t **out, error_t *error) {
  grammar_vocabulary_t *v = calloc(1, sizeof *v);
  sorted_token_t *tokens = NULL;
  uint32_t count = 0;
  bool ok = v != NULL;
  if (ok) {
    v->row_width = row_width;
    v->num_tokens = num_tokens < row_width ? num_tokens : row_width;
    v->row_words = (row_width + 31) / 32;
    ok = copy_bytes(v, bytes, context) && (tokens = sort_tokens(v, &count)) != NULL;
  }
  for (int slice = 0; slice < SLICE_COUNT && ok; slice++) {
    ok = build_row(v, tokens, count, (slice_t)slice) &&
         build_trie(&v->rest[slice], tokens, count, (slice_t)slice);
  }
  free(tokens);
  if (!ok) {
    grammar_vocabulary_free(v);
    return error_set(error, ERR_NO_MEMORY, NULL, "no memory for the trie of %d tokens", num_tokens);
  }
  *out = v;
  return 0;
}

void grammar_vocabulary_free(grammar_vocabulary_t *v) {
  if (!v) return;
  for (int slice = 0; slice < SLICE_COUNT; slice++) {
    free(v->rows[slice]);
    free(v->rest[slice].nodes);
  }
  free(v->bytes);
  free(v->offset);
  free(v->same);
  free(v);
}

int32_t grammar_row_words(const grammar_vocabulary_t *v) {
  return v->row_words;
}
