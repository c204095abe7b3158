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

int bpe_char_byte(uint32_t character) {
  if ((character >= 0x21 && character <= 0x7E) || (character >= 0xA1 && character <= 0xAC) ||
      (character >= 0xAE && character <= 0xFF))
    return (int)character;
  if (character >= 0x100 && character <= 0x120) return (int)(character - 0x100);
  if (character >= 0x121 && character <= 0x142) return (int)(character - 0x121 + 0x7F);
  return character == 0x143 ? 0xAD : -1;
}

static unsigned write_char(uint8_t *out, uint32_t codepoint) { /* codepoint < 0x800 */
  if (codepoint < 0x80) return out[0] = (uint8_t)codepoint, 1;
  out[0] = (uint8_t)(0xC0 | codepoint >> 6), out[1] = (uint8_t)(0x80 | (codepoint & 0x3F));
  return 2;
}

/* Characters below U+10000 that are tokens of their own. */
static int fill_char_symbols(bpe_t *bpe) {
  bpe->char_symbol = malloc(65536 * sizeof *bpe->char_symbol);
  if (bpe->char_symbol == NULL) return ERR_NO_MEMORY;
  memset(bpe->char_symbol, 0xFF, 65536 * sizeof *bpe->char_symbol);
  for (uint32_t id = 0; id < bpe->vocab.num_ids; id++) {
    size_t length = 0;
    const uint8_t *text = vocab_string(&bpe->vocab, id, &length);
    if (text == NULL || length == 0 || length > 3 || utf8_length(text[0]) != length) continue;
    unsigned unused;
    bpe->char_symbol[utf8_read(text, &unused)] = id;
  }
  return 0;
}

static void fill_byte_symbols(bpe_t *bpe) {
  static const char hex[] = "0123456789ABCDEF";
  bpe->all_bytes = true;
  for (unsigned byte = 0; byte < 256; byte++) {
    uint8_t mapped[2];
    unsigned n = write_char(mapped, bpe_byte_char((uint8_t)byte));
    bpe->byte_symbol[byte] = vocab_find(&bpe->vocab, mapped, n);
    if (bpe->byte_symbol[byte] == NO_ID) bpe->all_bytes = false;
    char name[6] = {'<', '0', 'x', hex[byte >> 4], hex[byte & 15], '>'};
    bpe->fallback[byte] = vocab_find(&bpe->vocab, name, 6);
  }
}

int bpe_prepare(bpe_t *bpe, uint32_t num_merges) {
  uint32_t slots = 16;
  while ((uint64_t)slots * 3 < (uint64_t)num_merges * 5) slots *= 2;
  bpe->pairs = calloc(slots, sizeof *bpe->pairs);
  bpe->product = calloc((size_t)num_merges + 1, sizeof *bpe->product);
  if (bpe->pairs == NULL || bpe->product == NULL) return ERR_NO_MEMORY;
  memset(bpe->pairs, 0xFF, slots * sizeof *bpe->pairs);
  bpe->pair_mask = slots - 1, bpe->num_merges = num_merges;
  fill_byte_symbols(bpe);
  return bpe->byte_level ? 0 : fill_char_symbols(bpe);
}

void bpe_add_merge(bpe_t *bpe, uint32_t rank, uint32_t left, uint32_t right, uint32_t product) {
  uint32_t slot = bpe_pair_hash(left, right) & bpe->pair_mask;
  while (bpe->pairs[slot].left != NO_ID &&
         (bpe->pairs[slot].left != left || bpe->pairs[slot].right != right))
    slot = (slot + 1) & bpe->pair_mask;
  bpe->pairs[slot] = (bpe_pair_t){left, right, rank};
  bpe->product[rank] = product;
}

static int fill_byte_pairs(bpe_t *bpe) {
  bpe->byte_pair_rank = malloc(65536 * sizeof *bpe->byte_pair_rank);
  if (bpe->byte_pair_rank == NULL) return ERR_NO_MEMORY;
  for (unsigned i = 0; i < 65536; i++) {
    uint32_t left = bpe->byte_symbol[i >> 8], right = bpe->byte_symbol[i & 255];
    bpe->byte_pair_rank[i] =
        left == NO_ID || right == NO_ID ? BPE_NO_RANK : bpe_pair_rank(bpe, left, right);
  }
  return 0;
}

static bool is_fallback(const bpe_t *bpe, uint32_t id) {
  for (unsigned byte = 0; byte < 256; byte++)
    if (bpe->fallback[byte] == id) return true;
  return false;
}

/* A text may be cut between two characters that no merge joins, and its parts be encoded apart.
 * That gives the ids of the whole text only if nothing but merges lets a symbol depend on its
 * neighbours. So unknown characters must become byte tokens (they are neither fused nor dropped),
 * and no merge may use a byte token, because its spelling, <0x41>, is not its text. */
static bool cuts_allowed(const bpe_t *bpe) {
  if (bpe->byte_level || bpe->ignore_merges || !bpe->byte_fallback) return false;
  uint32_t low = NO_ID, high = 0;
  for (unsigned byte = 0; byte < 256; byte++) {
    if (bpe->fallback[byte] == NO_ID) return false;
    if (bpe->fallback[byte] < low) low = bpe->fallback[byte];
    if (bpe->fallback[byte] > high) high = bpe->fallback[byte];
  }
  for (uint32_t slot = 0; slot <= bpe->pair_mask; slot++) {
    const bpe_pair_t *pair = &bpe->pairs[slot];
    if (pair->left == NO_ID) continue;
    if (pair->left == bpe->unk || pair->right == bpe->unk) return false;
    if ((pair->left >= low && pair->left <= high && is_fallback(bpe, pair->left)) ||
        (pair->right >= low && pair->right <= high && is_fallback(bpe, pair->right)))
      return false;
  }
  return true;
}

/* Marks each pair of neighbouring characters of a token: a text must not be cut there. */
static void note_neighbours(bpe_t *bpe, uint32_t id) {
  size_t length = 0;
  const uint8_t *text = vocab_string(&bpe->vocab, id, &length);
  uint32_t before = 0;
  for (size_t at = 0; text != NULL && at < length;) {
    unsigned n;
    uint32_t c = utf8_read(text + at, &n);
    if (at > 0) {
      uint32_t bit = bpe_pair_hash(before, c) & bpe->adjacent_mask;
      bpe->adjacent[bit >> 3] |= (uint8_t)(1U << (bit & 7));
    }
    before = c, at += n;
  }
}

static int fill_adjacent(bpe_t *bpe) {
  if (!cuts_allowed(bpe)) return 0;
  uint32_t bits = 1U << 16;
  while (bits < (1U << 24) && bits / 32 < bpe->num_merges) bits *= 2;
  bpe->adjacent = calloc(bits / 8, 1);
  if (bpe->adjacent == NULL) return ERR_NO_MEMORY;
  bpe->adjacent_mask = bits - 1;
  for (uint32_t rank = 0; rank < bpe->num_merges; rank++) note_neighbours(bpe, bpe->product[rank]);
  return 0;
}

int bpe_finish(bpe_t *bpe) {
  return bpe->byte_level ? fill_byte_pairs(bpe) : fill_adjacent(bpe);
}

void bpe_free(bpe_t *bpe) {
  vocab_free(&bpe->vocab);
  free(bpe->pairs);
  free(bpe->product);
  free(bpe->char_symbol);
  free(bpe->byte_pair_rank);
  free(bpe->adjacent);
  *bpe = (bpe_t){0};
}
