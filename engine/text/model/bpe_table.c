/* bpe_table.c: builds the tables of a BPE model at load.
 *
 * The loading thread runs it once per model. It never sees text of a request; bpe.c does.
 */
#include "engine/text/model/bpe.h"
#include "engine/text/model/bpe_internal.h"
#include "engine/text/unicode/unicode.h"

#include <stdlib.h>

uint32_t bpe_byte_char(uint8_t byte) {
  if ((byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE) return byte;
  if (byte <= 0x20) return 0x100U + byte;             /* 0..32 come first */
  if (byte <= 0xA0) return 0x100U + 33 + byte - 0x7F; /* then 127..160 */
  return 0x100U + 67;                                 /* and 173 */
}

int bpe_char_byte(uint32_t c) {
  if ((c >= 0x21 && c <= 0x7E) || (c >= 0xA1 && c <= 0xAC) || (c >= 0xAE && c <= 0xFF))
    return (int)c;
  if (c >= 0x100 && c <= 0x120) return (int)(c - 0x100);
  if (c >= 0x121 && c <= 0x142) return (int)(c - 0x121 + 0x7F);
  return c == 0x143 ? 0xAD : -1;
}

static unsigned write_char(uint8_t *out, uint32_t c) { /* c < 0x800 */
  if (c < 0x80) return out[0] = (uint8_t)c, 1;
  out[0] = (uint8_t)(0xC0 | c >> 6), out[1] = (uint8_t)(0x80 | (c & 0x3F));
  return 2;
}

/* Characters below U+10000 that are tokens of their own. */
static int fill_char_symbols(bpe_t *b) {
  b->char_symbol = malloc(65536 * sizeof *b->char_symbol);
  if (b->char_symbol == NULL) return ERR_NO_MEMORY;
  memset(b->char_symbol, 0xFF, 65536 * sizeof *b->char_symbol);
  for (uint32_t id = 0; id < b->vocab.num_ids; id++) {
    size_t length = 0;
    const uint8_t *text = vocab_string(&b->vocab, id, &length);
    if (text == NULL || length == 0 || length > 3 || utf8_length(text[0]) != length) continue;
    unsigned unused;
    b->char_symbol[utf8_read(text, &unused)] = id;
  }
  return 0;
}

static void fill_byte_symbols(bpe_t *b) {
  static const char hex[] = "0123456789ABCDEF";
  b->all_bytes = true;
  for (unsigned byte = 0; byte < 256; byte++) {
    uint8_t mapped[2];
    unsigned n = write_char(mapped, bpe_byte_char((uint8_t)byte));
    b->byte_symbol[byte] = vocab_find(&b->vocab, mapped, n);
    if (b->byte_symbol[byte] == NO_ID) b->all_bytes = false;
    char name[6] = {'<', '0', 'x', hex[byte >> 4], hex[byte & 15], '>'};
    b->fallback[byte] = vocab_find(&b->vocab, name, 6);
  }
}

int bpe_prepare(bpe_t *b, uint32_t num_merges) {
  uint32_t slots = 16;
  while ((uint64_t)slots * 3 < (uint64_t)num_merges * 5) slots *= 2;
  b->pairs = calloc(slots, sizeof *b->pairs);
  b->product = calloc((size_t)num_merges + 1, sizeof *b->product);
  if (b->pairs == NULL || b->product == NULL) return ERR_NO_MEMORY;
  memset(b->pairs, 0xFF, slots * sizeof *b->pairs);
  b->pair_mask = slots - 1, b->num_merges = num_merges;
  fill_byte_symbols(b);
  return b->byte_level ? 0 : fill_char_symbols(b);
}

void bpe_add_merge(bpe_t *b, uint32_t rank, uint32_t left, uint32_t right, uint32_t product) {
  uint32_t slot = bpe_pair_hash(left, right) & b->pair_mask;
  while (b->pairs[slot].left != NO_ID &&
         (b->pairs[slot].left != left || b->pairs[slot].right != right))
    slot = (slot + 1) & b->pair_mask;
  b->pairs[slot] = (bpe_pair_t){left, right, rank};
  b->product[rank] = product;
}

static int fill_byte_pairs(bpe_t *b) {
  b->byte_pair_rank = malloc(65536 * sizeof *b->byte_pair_rank);
  if (b->byte_pair_rank == NULL) return ERR_NO_MEMORY;
  for (unsigned i = 0; i < 65536; i++) {
    uint32_t left = b->byte_symbol[i >> 8], right = b->byte_symbol[i & 255];
    b->byte_pair_rank[i] =
        left == NO_ID || right == NO_ID ? BPE_NO_RANK : bpe_pair_rank(b, left, right);
  }
  return 0;
}

static bool is_fallback(const bpe_t *b, uint32_t id) {
  for (unsigned byte = 0; byte < 256; byte++)
    if (b->fallback[byte] == id) return true;
  return false;
}

/* A cut is safe only if no symbol depends on its neighbours but through merges of its own text:
 * unknown characters must become byte tokens (no fused or dropped unk), and byte tokens must not
 * merge, because their spelling is not their text. */
static bool cuts_allowed(const bpe_t *b) {
  if (b->byte_level || b->ignore_merges || !b->byte_fallback) return false;
  uint32_t low = NO_ID, high = 0;
  for (unsigned byte = 0; byte < 256; byte++) {
    if (b->fallback[byte] == NO_ID) return false;
    if (b->fallback[byte] < low) low = b->fallback[byte];
    if (b->fallback[byte] > high) high = b->fallback[byte];
  }
  for (uint32_t slot = 0; slot <= b->pair_mask; slot++) {
    const bpe_pair_t *pair = &b->pairs[slot];
    if (pair->left == NO_ID) continue;
    if (pair->left == b->unk || pair->right == b->unk) return false;
    if ((pair->left >= low && pair->left <= high && is_fallback(b, pair->left)) ||
        (pair->right >= low && pair->right <= high && is_fallback(b, pair->right)))
      return false;
  }
  return true;
}

static void note_neighbours(bpe_t *b, uint32_t id) {
  size_t length = 0;
  const uint8_t *text = vocab_string(&b->vocab, id, &length);
  uint32_t before = 0;
  for (size_t at = 0; text != NULL && at < length;) {
    unsigned n;
    uint32_t c = utf8_read(text + at, &n);
    if (at > 0) {
      uint32_t bit = bpe_pair_hash(before, c) & b->adjacent_mask;
      b->adjacent[bit >> 3] |= (uint8_t)(1U << (bit & 7));
    }
    before = c, at += n;
  }
}

static int fill_adjacent(bpe_t *b) {
  if (!cuts_allowed(b)) return 0;
  uint32_t bits = 1U << 16;
  while (bits < (1U << 24) && bits / 32 < b->num_merges) bits *= 2;
  b->adjacent = calloc(bits / 8, 1);
  if (b->adjacent == NULL) return ERR_NO_MEMORY;
  b->adjacent_mask = bits - 1;
  for (uint32_t rank = 0; rank < b->num_merges; rank++) note_neighbours(b, b->product[rank]);
  return 0;
}

int bpe_finish(bpe_t *b) {
  return b->byte_level ? fill_byte_pairs(b) : fill_adjacent(b);
}

void bpe_free(bpe_t *b) {
  vocab_free(&b->vocab);
  free(b->pairs);
  free(b->product);
  free(b->char_symbol);
  free(b->byte_pair_rank);
  free(b->adjacent);
  *b = (bpe_t){0};
}
