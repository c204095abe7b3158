/* vocabulary_tries.c: sorted tokens -> a trie for each group, and the ready rows.
 *
 * Runs on the thread that loads a model. All tries lie in one array, their tokens in one list, so
 * that a subtree is a range of both.
 */
#include "engine/grammar/mask/vocabulary_tries.h"

#include "engine/base/utf8.h"
#include "engine/base/util.h"

#include <stdlib.h>
#include <string.h>

static uint8_t family_of_byte(uint8_t byte) {
  if (byte >= 'a' && byte <= 'z') return FAMILY_LOWER;
  if (byte >= 'A' && byte <= 'Z') return FAMILY_ALPHA;
  if (byte < 0x20 || byte == '"' || byte == '\\') return FAMILY_ANY;
  return byte < 0x7F ? FAMILY_ASCII : FAMILY_PLAIN;
}

/* Beside the family of the bytes of a token from some place on. */
enum {
  FAMILY_BITS = 0x3F,
  PART_CUT = 0x40, /* the last character is not complete */
  PART_WIDE = 0x80 /* only characters of several bytes */
};

/* Whether the bytes are the beginning of a character and lack its end; `span` is their utf8_span.
 */
static bool is_cut(const char *bytes, uint32_t length, int span) {
  uint8_t lead = (uint8_t)bytes[0];
  return lead >= 0xC2 && lead <= 0xF4 && -span == (int)length;
}

/* Sets family[i] to the family and the PART_ bits of bytes[i .. length), for i of 0 .. length. If
 * bytes[i] is not the first byte of a character, that is FAMILY_ANY. What keeps a state alive under
 * all characters keeps it alive under their beginnings, so a cut one counts as a plain one. */
static void find_families(const char *bytes, uint32_t length, const uint8_t of_byte[256],
                          uint8_t *family) {
  family[length] = FAMILY_LOWER | PART_WIDE;
  for (uint32_t i = length; i-- > 0;) {
    uint8_t own = of_byte[(uint8_t)bytes[i]], rest = family[i + 1];
    int span = utf8_span(bytes + i, length - i);
    if (span > 1) rest = family[i + (uint32_t)span];
    if (span < 0 && is_cut(bytes + i, length - i, span)) {
      rest = FAMILY_LOWER | PART_CUT | PART_WIDE;
    } else if (span < 0) {
      own = FAMILY_ANY;
    }
    uint8_t part = own == FAMILY_ANY || span == 1 ? rest & PART_CUT : rest & ~FAMILY_BITS & 0xFF;
    family[i] = (uint8_t)(MAX(own, rest & FAMILY_BITS) | part);
  }
}

static vocabulary_group_t group_of(const uint8_t *family, uint8_t first_byte) {
  uint8_t whole = family[0] & FAMILY_BITS, rest = family[1] & FAMILY_BITS;
  if (whole == FAMILY_ANY) return GROUP_OTHER;
  if (family[0] & PART_CUT) return GROUP_CUT;
  if (family[0] & PART_WIDE) return GROUP_WIDE;
  if (whole == FAMILY_LOWER) return GROUP_LOWER;
  if (whole == FAMILY_ALPHA) return GROUP_ALPHA;
  if (first_byte < 0x7F && rest == FAMILY_LOWER) return GROUP_LED_LOWER;
  if (first_byte < 0x7F && rest == FAMILY_ALPHA) return GROUP_LED_ALPHA;
  return whole == FAMILY_ASCII ? GROUP_ASCII : GROUP_PLAIN;
}

static uint32_t shared_prefix(const sorted_token_t *left, const sorted_token_t *right) {
  uint32_t n = 0;
  while (n < left->length && n < right->length && left->bytes[n] == right->bytes[n]) n++;
  return n;
}

/* ---- tries ---- */

typedef struct builder {
  grammar_vocabulary_t *vocabulary;
  const sorted_token_t *tokens;
  uint32_t count;
  uint8_t *families;                /* of a token: length + 1 of them from family_at(t) */
  uint8_t *group;                   /* [count] */
  uint32_t *order;                  /* [count] tokens by group */
  uint32_t starts[GROUP_COUNT + 1]; /* of each group in `order` */
  const sorted_token_t *last;       /* of the same group */
  uint32_t open[TOKEN_BYTES_MAX + 1], depth, num_ids;
} builder_t;

static uint8_t *family_at(const builder_t *builder, const sorted_token_t *token) {
  return builder->families + builder->vocabulary->offset[token->id] + token->id;
}

static void close_nodes(builder_t *builder, uint32_t depth) {
  for (; builder->depth > depth; builder->depth--) {
    trie_node_t *node = &builder->vocabulary->nodes[builder->open[builder->depth]];
    node->size = builder->vocabulary->num_nodes - builder->open[builder->depth];
  }
}

static void add_token(builder_t *builder, const sorted_token_t *token) {
  grammar_vocabulary_t *vocabulary = builder->vocabulary;
  const uint8_t *family = family_at(builder, token);
  close_nodes(builder, builder->last != NULL ? shared_prefix(builder->last, token) : 0);
  while (builder->depth < token->length) {
    uint8_t byte = (uint8_t)token->bytes[builder->depth];
    builder->open[++builder->depth] = vocabulary->num_nodes;
    vocabulary->first_id[vocabulary->num_nodes] = builder->num_ids;
    vocabulary->nodes[vocabulary->num_nodes++] =
        (trie_node_t){.token = -1, .byte = byte, .depth = (uint8_t)builder->depth};
  }
  for (uint32_t depth = 1; depth <= token->length; depth++) {
    trie_node_t *node = &vocabulary->nodes[builder->open[depth]];
    uint8_t below = family[depth] & FAMILY_BITS;
    if (below > node->family) node->family = below & 0x3Fu;
    if (!(family[depth - 1] & PART_WIDE)) node->mixed = 1;
    if (token->length - depth > node->tail) node->tail = (uint8_t)(token->length - depth);
  }
  trie_node_t *end = &vocabulary->nodes[builder->open[builder->depth]];
  end->token = token->id;
  end->twins = vocabulary->same[token->id] >= 0;
  for (int32_t id = token->id; id >= 0; id = vocabulary->same[id])
    vocabulary->ids[builder->num_ids++] = id;
  builder->last = token;
}

static void extend_bundle(bundle_t *bundle, uint8_t family, uint32_t length) {
  if (family > bundle->family) bundle->family = family;
  if (length > bundle->tail) bundle->tail = (uint8_t)length;
}

static void build_group(builder_t *builder, int group) {
  bundle_t *bundle = &builder->vocabulary->groups[group];
  builder->last = NULL;
  for (uint32_t i = builder->starts[group]; i < builder->starts[group + 1]; i++) {
    const sorted_token_t *token = &builder->tokens[builder->order[i]];
    add_token(builder, token);
    extend_bundle(bundle, family_at(builder, token)[0] & FAMILY_BITS, token->length);
  }
  close_nodes(builder, 0);
  extend_bundle(&builder->vocabulary->all, bundle->family, bundle->tail);
  if (group < GROUP_CUT) extend_bundle(&builder->vocabulary->plain, bundle->family, bundle->tail);
}

/* Lists the nodes of depth 1: by byte, then by group. Returns false if memory is short. */
static bool list_roots(grammar_vocabulary_t *vocabulary, const uint32_t *group_nodes) {
  uint32_t count = 0, at[256];
  for (uint32_t i = 0; i < vocabulary->num_nodes; i += vocabulary->nodes[i].size) {
    vocabulary->root_of[vocabulary->nodes[i].byte + 1]++;
    count++;
  }
  vocabulary->roots = calloc((size_t)count + 1, sizeof *vocabulary->roots);
  vocabulary->root_group = calloc((size_t)count + 1, 1);
  if (vocabulary->roots == NULL || vocabulary->root_group == NULL) return false;
  for (int b = 0; b < 256; b++) {
    vocabulary->root_of[b + 1] += vocabulary->root_of[b];
    at[b] = vocabulary->root_of[b];
  }
  for (uint32_t i = 0, group = 0; i < vocabulary->num_nodes; i += vocabulary->nodes[i].size) {
    while (i >= group_nodes[group]) group++;
    uint32_t root = at[vocabulary->nodes[i].byte]++;
    vocabulary->roots[root] = i;
    vocabulary->root_group[root] = (uint8_t)group;
  }
  return true;
}

/* Finds families and groups of all tokens, and their order by group. Returns how many nodes the
 * tries will have. */
static uint32_t part_tokens(builder_t *builder) {
  const sorted_token_t *last[GROUP_COUNT] = {NULL};
  uint32_t num_nodes = 0, at[GROUP_COUNT];
  uint8_t of_byte[256];
  for (int byte = 0; byte < 256; byte++) of_byte[byte] = family_of_byte((uint8_t)byte);
  for (uint32_t i = 0; i < builder->count; i++) {
    const sorted_token_t *token = &builder->tokens[i];
    find_families(token->bytes, token->length, of_byte, family_at(builder, token));
    vocabulary_group_t group = group_of(family_at(builder, token), (uint8_t)token->bytes[0]);
    builder->group[i] = (uint8_t)group;
    builder->starts[group + 1]++;
    num_nodes += token->length - (last[group] != NULL ? shared_prefix(last[group], token) : 0);
    last[group] = token;
  }
  for (int group = 0; group < GROUP_COUNT; group++) {
    builder->starts[group + 1] += builder->starts[group];
    at[group] = builder->starts[group];
  }
  for (uint32_t i = 0; i < builder->count; i++) builder->order[at[builder->group[i]]++] = i;
  return num_nodes;
}

static bool build_groups(builder_t *builder) {
  grammar_vocabulary_t *vocabulary = builder->vocabulary;
  uint32_t num_nodes = part_tokens(builder), group_nodes[GROUP_COUNT];
  vocabulary->nodes = calloc((size_t)num_nodes + 1, sizeof *vocabulary->nodes);
  vocabulary->first_id = calloc((size_t)num_nodes + 1, sizeof *vocabulary->first_id);
  vocabulary->ids = calloc((size_t)vocabulary->num_tokens + 1, sizeof *vocabulary->ids);
  if (vocabulary->nodes == NULL || vocabulary->first_id == NULL || vocabulary->ids == NULL)
    return false;
  for (int group = 0; group < GROUP_COUNT; group++) {
    build_group(builder, group);
    group_nodes[group] = vocabulary->num_nodes;
    vocabulary->group_ids[group + 1] = builder->num_ids;
  }
  vocabulary->first_id[num_nodes] = builder->num_ids;
  return list_roots(vocabulary, group_nodes);
}

bool vocabulary_build_tries(grammar_vocabulary_t *vocabulary, const sorted_token_t *tokens,
                            uint32_t count) {
  builder_t builder = {.vocabulary = vocabulary, .tokens = tokens, .count = count};
  size_t num_bytes = vocabulary->offset[vocabulary->num_tokens];
  builder.families = malloc(num_bytes + (size_t)vocabulary->num_tokens + 1);
  builder.group = malloc((size_t)count + 1);
  builder.order = calloc((size_t)count + 1, sizeof *builder.order);
  bool ok = builder.families != NULL && builder.group != NULL && builder.order != NULL &&
            build_groups(&builder);
  free(builder.families);
  free(builder.group);
  free(builder.order);
  return ok;
}

/* ---- ready rows ---- */

static void set_bits(const grammar_vocabulary_t *vocabulary, uint32_t first, uint32_t last,
                     uint32_t *row) {
  for (uint32_t i = first; i < last; i++) {
    row[vocabulary->ids[i] / 32] |= UINT32_C(1) << (vocabulary->ids[i] % 32);
  }
}

/* The bundle has the tokens first .. last - 1 of vocabulary->ids. */
static bool fill_bundle(const grammar_vocabulary_t *vocabulary, bundle_t *bundle, uint32_t first,
                        uint32_t last) {
  bundle->row = calloc((size_t)vocabulary->row_words, sizeof *bundle->row);
  if (bundle->row == NULL) return false;
  set_bits(vocabulary, first, last, bundle->row);
  return true;
}

static bool fill_bundles(grammar_vocabulary_t *vocabulary) {
  for (int group = 0; group < GROUP_COUNT; group++) {
    uint32_t first = vocabulary->group_ids[group], last = vocabulary->group_ids[group + 1];
    if (!fill_bundle(vocabulary, &vocabulary->groups[group], first, last)) return false;
  }
  return fill_bundle(vocabulary, &vocabulary->plain, 0, vocabulary->group_ids[GROUP_CUT]) &&
         fill_bundle(vocabulary, &vocabulary->all, 0, vocabulary->group_ids[GROUP_COUNT]);
}

/* Returns rows of the tokens first .. last - 1 of vocabulary->ids, by their characters; NULL if
 * memory is short. */
static uint32_t *make_lengths(const grammar_vocabulary_t *vocabulary, uint32_t first,
                              uint32_t last) {
  size_t words = (size_t)vocabulary->row_words;
  uint32_t *up_to = calloc(LENGTH_ROWS * words, sizeof *up_to);
  for (uint32_t i = first; i < last && up_to != NULL; i++) {
    uint32_t length, id = (uint32_t)vocabulary->ids[i];
    const char *bytes = vocabulary_token(vocabulary, vocabulary->ids[i], &length);
    size_t characters = utf8_count(bytes, length);
    if (characters < LENGTH_ROWS) up_to[characters * words + id / 32] |= UINT32_C(1) << (id % 32);
  }
  for (size_t i = words; i < LENGTH_ROWS * words && up_to != NULL; i++)
    up_to[i] |= up_to[i - words];
  return up_to;
}

static bool fill_lengths(grammar_vocabulary_t *vocabulary) {
  const uint32_t *ids = vocabulary->group_ids;
  vocabulary->up_to = make_lengths(vocabulary, 0, ids[GROUP_CUT]);
  for (int group = GROUP_LOWER; group <= GROUP_ALPHA; group++)
    vocabulary->letters_up_to[group] = make_lengths(vocabulary, ids[group], ids[group + 1]);
  return vocabulary->up_to != NULL && vocabulary->letters_up_to[GROUP_LOWER] != NULL &&
         vocabulary->letters_up_to[GROUP_ALPHA] != NULL;
}

static uint32_t num_ids_below(const grammar_vocabulary_t *vocabulary, uint32_t node) {
  return vocabulary->first_id[node + vocabulary->nodes[node].size] - vocabulary->first_id[node];
}

static bool fill_large(grammar_vocabulary_t *vocabulary) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < vocabulary->num_nodes;) {
    bool is_large = num_ids_below(vocabulary, i) >= BUNDLE_TOKENS;
    count += is_large;
    i += is_large ? 1 : vocabulary->nodes[i].size;
  }
  vocabulary->large = calloc((size_t)count + 1, sizeof *vocabulary->large);
  vocabulary->large_rows =
      calloc((size_t)count + 1, (size_t)vocabulary->row_words * sizeof *vocabulary->large_rows);
  if (vocabulary->large == NULL || vocabulary->large_rows == NULL) return false;
  for (uint32_t i = 0; i < vocabulary->num_nodes;) {
    if (num_ids_below(vocabulary, i) < BUNDLE_TOKENS) {
      i += vocabulary->nodes[i].size;
      continue;
    }
    set_bits(
        vocabulary, vocabulary->first_id[i], vocabulary->first_id[i + vocabulary->nodes[i].size],
        vocabulary->large_rows + (size_t)vocabulary->num_large * (size_t)vocabulary->row_words);
    vocabulary->large[vocabulary->num_large++] = i++;
  }
  return true;
}

bool vocabulary_build_rows(grammar_vocabulary_t *vocabulary) {
  return fill_bundles(vocabulary) && fill_lengths(vocabulary) && fill_large(vocabulary);
}

void vocabulary_allow_below(const grammar_vocabulary_t *vocabulary, uint32_t node, uint32_t *row) {
  if (num_ids_below(vocabulary, node) < BUNDLE_TOKENS) {
    set_bits(vocabulary, vocabulary->first_id[node],
             vocabulary->first_id[node + vocabulary->nodes[node].size], row);
    return;
  }
  uint32_t from = 0, until = vocabulary->num_large;
  while (until - from > 1) {
    uint32_t middle = (from + until) / 2;
    if (vocabulary->large[middle] <= node) {
      from = middle;
    } else {
      until = middle;
    }
  }
  const uint32_t *ready = vocabulary->large_rows + (size_t)from * (size_t)vocabulary->row_words;
  for (int32_t i = 0; i < vocabulary->row_words; i++) row[i] |= ready[i];
}
