/* vocabulary_tries.c: sorted tokens -> a trie for each group, and the ready rows.
 *
 * Runs on the thread that loads a model. All tries lie in one array, their tokens in one list, so
 * that a subtree is a range of both.
 */
#include "engine/grammar/mask/vocabulary_tries.h"

#include "engine/base/utf8.h"

#include <stdlib.h>
#include <string.h>

static uint8_t family_of_byte(uint8_t byte) {
  if (byte >= 'a' && byte <= 'z') return FAMILY_LOWER;
  if (byte >= 'A' && byte <= 'Z') return FAMILY_ALPHA;
  if (byte < 0x20 || byte == '"' || byte == '\\') return FAMILY_ANY;
  return byte < 0x7F ? FAMILY_ASCII : FAMILY_PLAIN;
}

/* family[i] = of bytes[i .. length), for i of 0..length; from within a character: any. */
static void find_families(const char *bytes, uint32_t length, const uint8_t of_byte[256],
                          uint8_t *family) {
  family[length] = FAMILY_LOWER;
  for (uint32_t i = length; i-- > 0;) {
    uint8_t own = of_byte[(uint8_t)bytes[i]], rest = family[i + 1];
    if ((uint8_t)bytes[i] >= 0x80) {
      int span = utf8_span(bytes + i, length - i);
      if (span < 0) own = FAMILY_ANY;
      if (span > 0) rest = family[i + (uint32_t)span];
    }
    family[i] = own > rest ? own : rest;
  }
}

static group_t group_of(const uint8_t *family, uint8_t first_byte) {
  if (family[0] == FAMILY_ANY) return GROUP_OTHER;
  if (family[0] == FAMILY_LOWER) return GROUP_LOWER;
  if (family[0] == FAMILY_ALPHA) return GROUP_ALPHA;
  if (first_byte < 0x7F && family[1] == FAMILY_LOWER) return GROUP_LED_LOWER;
  if (first_byte < 0x7F && family[1] == FAMILY_ALPHA) return GROUP_LED_ALPHA;
  return family[0] == FAMILY_ASCII ? GROUP_ASCII : GROUP_PLAIN;
}

static uint32_t shared_prefix(const sorted_token_t *a, const sorted_token_t *b) {
  uint32_t n = 0;
  while (n < a->length && n < b->length && a->bytes[n] == b->bytes[n]) n++;
  return n;
}

/* ---- tries ---- */

typedef struct builder {
  grammar_vocabulary_t *v;
  const sorted_token_t *tokens;
  uint32_t count;
  uint8_t *families;                /* of a token: length + 1 of them from family_at(t) */
  uint8_t *group;                   /* [count] */
  uint32_t *order;                  /* [count] tokens by group */
  uint32_t starts[GROUP_COUNT + 1]; /* of each group in `order` */
  const sorted_token_t *last;       /* of the same group */
  uint32_t open[TOKEN_BYTES_MAX + 1], depth, num_ids;
} builder_t;

static uint8_t *family_at(const builder_t *b, const sorted_token_t *t) {
  return b->families + b->v->offset[t->id] + t->id;
}

static void close_nodes(builder_t *b, uint32_t depth) {
  for (; b->depth > depth; b->depth--) {
    trie_node_t *node = &b->v->nodes[b->open[b->depth]];
    node->size = b->v->num_nodes - b->open[b->depth];
  }
}

static void add_token(builder_t *b, const sorted_token_t *t) {
  grammar_vocabulary_t *v = b->v;
  const uint8_t *family = family_at(b, t);
  close_nodes(b, b->last != NULL ? shared_prefix(b->last, t) : 0);
  while (b->depth < t->length) {
    uint8_t byte = (uint8_t)t->bytes[b->depth];
    b->open[++b->depth] = v->num_nodes;
    v->first_id[v->num_nodes] = b->num_ids;
    v->nodes[v->num_nodes++] = (trie_node_t){.token = -1, .byte = byte, .depth = (uint8_t)b->depth};
  }
  for (uint32_t depth = 1; depth <= t->length; depth++) {
    trie_node_t *node = &v->nodes[b->open[depth]];
    if (family[depth] > node->family) node->family = family[depth];
    if (t->length - depth > node->tail) node->tail = (uint8_t)(t->length - depth);
  }
  v->nodes[b->open[b->depth]].token = t->id;
  for (int32_t id = t->id; id >= 0; id = v->same[id]) v->ids[b->num_ids++] = id;
  b->last = t;
}

static void extend_bundle(bundle_t *bundle, uint8_t family, uint32_t length) {
  if (family > bundle->family) bundle->family = family;
  if (length > bundle->tail) bundle->tail = (uint8_t)length;
}

static void build_group(builder_t *b, int group) {
  bundle_t *bundle = &b->v->groups[group];
  b->last = NULL;
  for (uint32_t i = b->starts[group]; i < b->starts[group + 1]; i++) {
    const sorted_token_t *t = &b->tokens[b->order[i]];
    add_token(b, t);
    extend_bundle(bundle, family_at(b, t)[0], t->length);
  }
  close_nodes(b, 0);
  extend_bundle(&b->v->all, bundle->family, bundle->tail);
  if (group < GROUP_OTHER) extend_bundle(&b->v->plain, bundle->family, bundle->tail);
}

/* The nodes of depth 1: by byte, then by group. */
static bool list_roots(grammar_vocabulary_t *v, const uint32_t *group_nodes) {
  uint32_t count = 0, at[256];
  for (uint32_t i = 0; i < v->num_nodes; i += v->nodes[i].size) {
    v->root_of[v->nodes[i].byte + 1]++;
    count++;
  }
  v->roots = calloc((size_t)count + 1, sizeof *v->roots);
  v->root_group = calloc((size_t)count + 1, 1);
  if (v->roots == NULL || v->root_group == NULL) return false;
  for (int b = 0; b < 256; b++) {
    v->root_of[b + 1] += v->root_of[b];
    at[b] = v->root_of[b];
  }
  for (uint32_t i = 0, group = 0; i < v->num_nodes; i += v->nodes[i].size) {
    while (i >= group_nodes[group]) group++;
    uint32_t root = at[v->nodes[i].byte]++;
    v->roots[root] = i;
    v->root_group[root] = (uint8_t)group;
  }
  return true;
}

/* Families and groups of all tokens, their order by group; returns how many nodes that takes. */
static uint32_t part_tokens(builder_t *b) {
  const sorted_token_t *last[GROUP_COUNT] = {NULL};
  uint32_t num_nodes = 0, at[GROUP_COUNT];
  uint8_t of_byte[256];
  for (int byte = 0; byte < 256; byte++) of_byte[byte] = family_of_byte((uint8_t)byte);
  for (uint32_t i = 0; i < b->count; i++) {
    const sorted_token_t *t = &b->tokens[i];
    find_families(t->bytes, t->length, of_byte, family_at(b, t));
    group_t group = group_of(family_at(b, t), (uint8_t)t->bytes[0]);
    b->group[i] = (uint8_t)group;
    b->starts[group + 1]++;
    num_nodes += t->length - (last[group] != NULL ? shared_prefix(last[group], t) : 0);
    last[group] = t;
  }
  for (int group = 0; group < GROUP_COUNT; group++) {
    b->starts[group + 1] += b->starts[group];
    at[group] = b->starts[group];
  }
  for (uint32_t i = 0; i < b->count; i++) b->order[at[b->group[i]]++] = i;
  return num_nodes;
}

static bool build_groups(builder_t *b) {
  grammar_vocabulary_t *v = b->v;
  uint32_t num_nodes = part_tokens(b), group_nodes[GROUP_COUNT];
  v->nodes = calloc((size_t)num_nodes + 1, sizeof *v->nodes);
  v->first_id = calloc((size_t)num_nodes + 1, sizeof *v->first_id);
  v->ids = calloc((size_t)v->num_tokens + 1, sizeof *v->ids);
  if (v->nodes == NULL || v->first_id == NULL || v->ids == NULL) return false;
  for (int group = 0; group < GROUP_COUNT; group++) {
    build_group(b, group);
    group_nodes[group] = v->num_nodes;
    v->group_ids[group + 1] = b->num_ids;
  }
  v->first_id[num_nodes] = b->num_ids;
  return list_roots(v, group_nodes);
}

bool vocabulary_build_tries(grammar_vocabulary_t *v, const sorted_token_t *tokens, uint32_t count) {
  builder_t b = {.v = v, .tokens = tokens, .count = count};
  size_t num_bytes = v->offset[v->num_tokens];
  b.families = malloc(num_bytes + (size_t)v->num_tokens + 1);
  b.group = malloc((size_t)count + 1);
  b.order = calloc((size_t)count + 1, sizeof *b.order);
  bool ok = b.families != NULL && b.group != NULL && b.order != NULL && build_groups(&b);
  free(b.families);
  free(b.group);
  free(b.order);
  return ok;
}

/* ---- ready rows ---- */

static void set_bits(const grammar_vocabulary_t *v, uint32_t first, uint32_t last, uint32_t *row) {
  for (uint32_t i = first; i < last; i++) {
    row[v->ids[i] / 32] |= UINT32_C(1) << (v->ids[i] % 32);
  }
}

/* first, last: range of ids. */
static bool fill_bundle(const grammar_vocabulary_t *v, bundle_t *bundle, uint32_t first,
                        uint32_t last) {
  bundle->row = calloc((size_t)v->row_words, sizeof *bundle->row);
  if (bundle->row == NULL) return false;
  set_bits(v, first, last, bundle->row);
  return true;
}

static bool fill_bundles(grammar_vocabulary_t *v) {
  for (int group = 0; group < GROUP_COUNT; group++) {
    uint32_t first = v->group_ids[group], last = v->group_ids[group + 1];
    if (!fill_bundle(v, &v->groups[group], first, last)) return false;
  }
  return fill_bundle(v, &v->plain, 0, v->group_ids[GROUP_OTHER]) &&
         fill_bundle(v, &v->all, 0, v->group_ids[GROUP_COUNT]);
}

static bool fill_lengths(grammar_vocabulary_t *v) {
  v->up_to = calloc((size_t)LENGTH_ROWS * (size_t)v->row_words, sizeof *v->up_to);
  if (v->up_to == NULL) return false;
  for (uint32_t i = 0; i < v->group_ids[GROUP_OTHER]; i++) {
    uint32_t length, characters = 0, id = (uint32_t)v->ids[i];
    const char *bytes = vocabulary_token(v, v->ids[i], &length);
    for (uint32_t k = 0; k < length; k++) characters += ((uint8_t)bytes[k] & 0xC0) != 0x80;
    if (characters < LENGTH_ROWS) {
      v->up_to[(size_t)characters * (size_t)v->row_words + id / 32] |= UINT32_C(1) << (id % 32);
    }
  }
  for (size_t i = (size_t)v->row_words; i < (size_t)LENGTH_ROWS * (size_t)v->row_words; i++) {
    v->up_to[i] |= v->up_to[i - (size_t)v->row_words];
  }
  return true;
}

static uint32_t num_ids_below(const grammar_vocabulary_t *v, uint32_t node) {
  return v->first_id[node + v->nodes[node].size] - v->first_id[node];
}

static bool fill_large(grammar_vocabulary_t *v) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < v->num_nodes;) {
    bool is_large = num_ids_below(v, i) >= BUNDLE_TOKENS;
    count += is_large;
    i += is_large ? 1 : v->nodes[i].size;
  }
  v->large = calloc((size_t)count + 1, sizeof *v->large);
  v->large_rows = calloc((size_t)count + 1, (size_t)v->row_words * sizeof *v->large_rows);
  if (v->large == NULL || v->large_rows == NULL) return false;
  for (uint32_t i = 0; i < v->num_nodes;) {
    if (num_ids_below(v, i) < BUNDLE_TOKENS) {
      i += v->nodes[i].size;
      continue;
    }
    set_bits(v, v->first_id[i], v->first_id[i + v->nodes[i].size],
             v->large_rows + (size_t)v->num_large * (size_t)v->row_words);
    v->large[v->num_large++] = i++;
  }
  return true;
}

bool vocabulary_build_rows(grammar_vocabulary_t *v) {
  return fill_bundles(v) && fill_lengths(v) && fill_large(v);
}

void vocabulary_allow_below(const grammar_vocabulary_t *v, uint32_t node, uint32_t *row) {
  if (num_ids_below(v, node) < BUNDLE_TOKENS) {
    set_bits(v, v->first_id[node], v->first_id[node + v->nodes[node].size], row);
    return;
  }
  uint32_t from = 0, until = v->num_large;
  while (until - from > 1) {
    uint32_t middle = (from + until) / 2;
    if (v->large[middle] <= node) {
      from = middle;
    } else {
      until = middle;
    }
  }
  const uint32_t *ready = v->large_rows + (size_t)from * (size_t)v->row_words;
  for (int32_t i = 0; i < v->row_words; i++) row[i] |= ready[i];
}
