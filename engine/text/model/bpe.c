/* bpe.c: one piece of text -> token ids, lowest rank first.
 *
 * Runs on the worker threads that tokenise, each with its own scratch. Short pieces are merged in
 * small arrays with a linear search, long ones with a heap over linked symbols, and the results of
 * pieces up to 64 bytes are remembered. Never recurses, never quadratic in the length of a piece.
 */
#include "engine/text/model/bpe.h"

#include "engine/base/checked.h"
#include "engine/base/util.h"
#include "engine/text/model/bpe_internal.h"
#include "engine/text/model/word_cache.h"
#include "engine/text/unicode/unicode.h"

#include <stdlib.h>

enum { SHORT_SYMBOLS = 48, POLL_MERGES = 1 << 16, KEEP_BYTES = 4 << 20 };

bpe_scratch_t *bpe_scratch_new(void) {
  bpe_scratch_t *scratch = calloc(1, sizeof *scratch);
  if (scratch == NULL) return NULL;
  if (!word_cache_init(&scratch->cache)) {
    free(scratch);
    return NULL;
  }
  return scratch;
}

void bpe_scratch_free(bpe_scratch_t *scratch) {
  if (scratch == NULL) return;
  word_cache_free(&scratch->cache);
  buffer_free(&scratch->symbols);
  buffer_free(&scratch->long_work);
  free(scratch);
}

void bpe_scratch_begin(bpe_scratch_t *scratch, const atomic_bool *cancelled) {
  scratch->cancelled = cancelled;
  buffer_trim(&scratch->symbols, KEEP_BYTES);
  buffer_trim(&scratch->long_work, KEEP_BYTES);
}

/* Merges `n` symbols in place; `rank[i]` belongs to the pair (i, i + 1). Returns the number of
 * symbols after the merges. */
static size_t merge_short(const bpe_t *bpe, bpe_scratch_t *scratch, uint32_t *id, uint32_t *rank,
                          size_t n) {
  for (;;) {
    size_t best = 0;
    uint32_t best_rank = BPE_NO_RANK;
    for (size_t i = 0; i + 1 < n; i++)
      if (rank[i] < best_rank) best_rank = rank[i], best = i;
    scratch->work += n;
    if (best_rank == BPE_NO_RANK) return n;
    id[best] = bpe->product[best_rank];
    for (size_t i = best + 1; i + 1 < n; i++) id[i] = id[i + 1], rank[i - 1] = rank[i];
    n--;
    rank[best] = best + 1 < n ? bpe_pair_rank(bpe, id[best], id[best + 1]) : BPE_NO_RANK;
    if (best > 0) rank[best - 1] = bpe_pair_rank(bpe, id[best - 1], id[best]);
  }
}

/* Symbols of a long piece: a linked list in arrays, and a 4-ary heap of rank << 32 | position.
 * An entry is alive while rank[position] still has its rank. */
typedef struct long_piece {
  uint32_t *id, *previous, *next, *rank;
  uint64_t *heap;
  size_t heap_count;
} long_piece_t;

static void sift_down(uint64_t *heap, size_t count, size_t at) {
  uint64_t value = heap[at];
  for (;;) {
    size_t child = 4 * at + 1;
    if (child >= count) break;
    size_t end = MIN(child + 4, count);
    size_t least = child;
    for (size_t i = child + 1; i < end; i++)
      if (heap[i] < heap[least]) least = i;
    if (heap[least] >= value) break;
    heap[at] = heap[least], at = least;
  }
  heap[at] = value;
}

static void heap_push(long_piece_t *piece, uint64_t value) {
  size_t at = piece->heap_count++;
  while (at > 0) {
    size_t parent = (at - 1) / 4;
    if (piece->heap[parent] <= value) break;
    piece->heap[at] = piece->heap[parent], at = parent;
  }
  piece->heap[at] = value;
}

static uint64_t heap_pop(long_piece_t *piece) {
  uint64_t top = piece->heap[0];
  piece->heap[0] = piece->heap[--piece->heap_count];
  if (piece->heap_count > 0) sift_down(piece->heap, piece->heap_count, 0);
  return top;
}

static bool long_piece_init(const bpe_t *bpe, bpe_scratch_t *scratch, long_piece_t *piece,
                            size_t n) {
  size_t need;
  scratch->long_work.length = 0;
  /* Every merge pops one live entry and pushes at most two, so 2n entries are enough. */
  if (!checked_mul(n, 3 * sizeof(uint32_t) + 2 * sizeof(uint64_t), &need)) return false;
  if (!buffer_reserve(&scratch->long_work, need)) return false;
  piece->heap = (uint64_t *)(void *)scratch->long_work.data;
  piece->previous = (uint32_t *)(void *)(piece->heap + 2 * n);
  piece->next = piece->previous + n;
  piece->rank = piece->next + n;
  piece->heap_count = 0;
  for (size_t i = 0; i < n; i++) {
    piece->previous[i] = i > 0 ? (uint32_t)i - 1 : NO_ID;
    piece->next[i] = i + 1 < n ? (uint32_t)i + 1 : NO_ID;
    piece->rank[i] = i + 1 < n ? bpe_pair_rank(bpe, piece->id[i], piece->id[i + 1]) : BPE_NO_RANK;
    if (piece->rank[i] != BPE_NO_RANK)
      piece->heap[piece->heap_count++] = (uint64_t)piece->rank[i] << 32 | i;
  }
  for (size_t i = piece->heap_count / 4 + 1; i-- > 0;)
    if (i < piece->heap_count) sift_down(piece->heap, piece->heap_count, i);
  return true;
}

static void rank_pair(const bpe_t *bpe, long_piece_t *piece, uint32_t at) {
  uint32_t next = piece->next[at];
  piece->rank[at] =
      next == NO_ID ? BPE_NO_RANK : bpe_pair_rank(bpe, piece->id[at], piece->id[next]);
  if (piece->rank[at] != BPE_NO_RANK) heap_push(piece, (uint64_t)piece->rank[at] << 32 | at);
}

static int merge_long(const bpe_t *bpe, bpe_scratch_t *scratch, uint32_t *id, size_t *count) {
  long_piece_t piece = {.id = id};
  if (!long_piece_init(bpe, scratch, &piece, *count)) return ERR_INTERNAL;
  scratch->work += *count;
  while (piece.heap_count > 0) {
    if (++scratch->work % POLL_MERGES == 0 && scratch->cancelled != NULL &&
        atomic_load(scratch->cancelled))
      return ERR_REQUEST_TIMEOUT;
    uint64_t top = heap_pop(&piece);
    uint32_t at = (uint32_t)top, rank = (uint32_t)(top >> 32);
    if (piece.rank[at] != rank) continue;
    uint32_t gone = piece.next[at];
    id[at] = bpe->product[rank];
    piece.rank[gone] = BPE_NO_RANK;
    piece.next[at] = piece.next[gone];
    if (piece.next[at] != NO_ID) piece.previous[piece.next[at]] = at;
    rank_pair(bpe, &piece, at);
    if (piece.previous[at] != NO_ID) rank_pair(bpe, &piece, piece.previous[at]);
  }
  size_t n = 0;
  for (uint32_t at = 0; at != NO_ID; at = piece.next[at]) id[n++] = id[at];
  *count = n;
  return 0;
}

/* Adds a character that is no token: its bytes as <0xHH> tokens if all of them exist, else unk. A
 * pending unk (NO_ID = none) is written before the next known character or at the end, as in the
 * reference library. Returns the new number of symbols. */
static size_t unknown_char(const bpe_t *bpe, const uint8_t *text, unsigned length, uint32_t *id,
                           size_t n, uint32_t *pending) {
  bool all = bpe->byte_fallback;
  for (unsigned i = 0; all && i < length; i++) all = bpe->fallback[text[i]] != NO_ID;
  if (all) {
    for (unsigned i = 0; i < length; i++) id[n++] = bpe->fallback[text[i]];
    return n;
  }
  if (bpe->unk == NO_ID) return n;
  if (*pending != NO_ID && !bpe->fuse_unk) id[n++] = *pending;
  *pending = bpe->unk;
  return n;
}

static uint32_t char_id(const bpe_t *bpe, const uint8_t *text, unsigned *length) {
  uint32_t c = utf8_read(text, length);
  return c < 0x10000 ? bpe->char_symbol[c] : vocab_find(&bpe->vocab, text, *length);
}

/* Writes the symbols of a piece; `id` has room for 2 * length + 1. Returns their number. */
static size_t split_symbols(const bpe_t *bpe, const uint8_t *piece, size_t length, uint32_t *id) {
  size_t n = 0;
  uint32_t pending = NO_ID;
  if (bpe->byte_level && bpe->all_bytes) {
    for (size_t i = 0; i < length; i++) id[i] = bpe->byte_symbol[piece[i]];
    return length;
  }
  for (size_t at = 0; at < length;) {
    unsigned char_length = 1;
    uint8_t mapped[2] = {0, 0};
    const uint8_t *text = piece + at;
    uint32_t symbol;
    if (bpe->byte_level) {
      uint32_t c = bpe_byte_char(piece[at]);
      symbol = bpe->byte_symbol[piece[at++]];
      mapped[0] = (uint8_t)(c < 0x80 ? c : 0xC0 | c >> 6), mapped[1] = (uint8_t)(0x80 | (c & 0x3F));
      text = mapped, char_length = c < 0x80 ? 1 : 2;
    } else {
      symbol = char_id(bpe, text, &char_length);
      at += char_length;
    }
    if (symbol == NO_ID) {
      n = unknown_char(bpe, text, char_length, id, n, &pending);
    } else {
      if (pending != NO_ID) id[n++] = pending, pending = NO_ID;
      id[n++] = symbol;
    }
  }
  if (pending != NO_ID) id[n++] = pending;
  return n;
}

/* Returns the id of the whole piece, NO_ID if the vocabulary lacks it. */
static int whole_piece(const bpe_t *bpe, bpe_scratch_t *scratch, const uint8_t *piece,
                       size_t length, uint32_t *id) {
  *id = NO_ID;
  if (length > bpe->vocab.longest) return 0;
  if (!bpe->byte_level) {
    *id = vocab_find(&bpe->vocab, piece, length);
    return 0;
  }
  scratch->symbols.length = 0;
  if (!buffer_reserve(&scratch->symbols, 2 * length)) return ERR_INTERNAL;
  uint8_t *mapped = scratch->symbols.bytes;
  size_t n = 0;
  for (size_t i = 0; i < length; i++) {
    uint32_t c = bpe_byte_char(piece[i]);
    if (c >= 0x80) mapped[n++] = (uint8_t)(0xC0 | c >> 6), c = 0x80 | (c & 0x3F);
    mapped[n++] = (uint8_t)c;
  }
  *id = vocab_find(&bpe->vocab, mapped, n);
  return 0;
}

/* Merges one piece without the cache. *id points at the result inside `small` or the scratch. */
static int merge_piece(const bpe_t *bpe, bpe_scratch_t *scratch, const uint8_t *piece,
                       size_t length, uint32_t *small, uint32_t **id, size_t *count) {
  *id = small;
  if (bpe->ignore_merges) {
    int code = whole_piece(bpe, scratch, piece, length, &small[0]);
    *count = 1;
    if (code != 0 || small[0] != NO_ID) return code;
  }
  if (length * 2 + 1 > 2 * SHORT_SYMBOLS + 1) {
    size_t need;
    scratch->symbols.length = 0;
    if (!checked_mul(length * 2 + 1, sizeof(uint32_t), &need) || length > INT32_MAX / 2 ||
        !buffer_reserve(&scratch->symbols, need))
      return ERR_INTERNAL;
    *id = (uint32_t *)(void *)scratch->symbols.data;
  }
  size_t n = split_symbols(bpe, piece, length, *id);
  *count = n;
  if (n < 2) return 0;
  if (n > SHORT_SYMBOLS) return merge_long(bpe, scratch, *id, count);
  uint32_t rank[SHORT_SYMBOLS];
  if (bpe->byte_level && bpe->all_bytes) {
    for (size_t i = 0; i + 1 < n; i++)
      rank[i] = bpe->byte_pair_rank[(unsigned)piece[i] << 8 | piece[i + 1]];
  } else {
    for (size_t i = 0; i + 1 < n; i++) rank[i] = bpe_pair_rank(bpe, (*id)[i], (*id)[i + 1]);
  }
  *count = merge_short(bpe, scratch, *id, rank, n);
  return 0;
}

static int32_t *end_of(buffer_t *ids) {
  return (int32_t *)(void *)(ids->data + ids->length);
}

static int encode_cached(const bpe_t *bpe, bpe_scratch_t *scratch, const uint8_t *piece,
                         size_t length, const uint8_t *limit, buffer_t *out) {
  word_key_t key = {0};
  if (scratch->words++ < scratch->skip) return 0;
  if (scratch->word_max != 0 && length > scratch->word_max) return ERR_INVALID_VALUE;
  if (length <= WORD_CACHE_BYTES_MAX) {
    if (!buffer_reserve(out, WORD_CACHE_IDS_MAX * sizeof(int32_t))) return ERR_INTERNAL;
    word_key(&key, piece, length, limit);
    unsigned found = word_cache_get(&scratch->cache, &key, end_of(out));
    out->length += found * sizeof(int32_t);
    if (found > 0) return 0;
  }
  uint32_t small[2 * SHORT_SYMBOLS + 1], *id;
  size_t count;
  int code = merge_piece(bpe, scratch, piece, length, small, &id, &count);
  if (code != 0) return code;
  if (!buffer_reserve(out, count * sizeof(int32_t))) return ERR_INTERNAL;
  int32_t *end = end_of(out);
  for (size_t i = 0; i < count; i++) end[i] = (int32_t)id[i];
  if (length <= WORD_CACHE_BYTES_MAX) word_cache_put(&scratch->cache, &key, end, count);
  out->length += count * sizeof(int32_t);
  return 0;
}

/* Cuts the piece between two characters that are neighbours in no merge product, because no merge
 * can cross such a place. */
static int encode_with_cuts(const bpe_t *bpe, bpe_scratch_t *scratch, const uint8_t *piece,
                            size_t length, const uint8_t *limit, buffer_t *out) {
  size_t start = 0, at = 0, polled = 0;
  uint32_t before = 0;
  while (at < length) {
    unsigned n;
    uint32_t c = utf8_read(piece + at, &n);
    uint32_t bit = bpe_pair_hash(before, c) & bpe->adjacent_mask;
    if (at > start && !(bpe->adjacent[bit >> 3] >> (bit & 7) & 1)) {
      int code = encode_cached(bpe, scratch, piece + start, at - start, limit, out);
      if (code != 0) return code;
      start = at;
      if (at - polled >= POLL_MERGES) {
        if (scratch->cancelled != NULL && atomic_load(scratch->cancelled))
          return ERR_REQUEST_TIMEOUT;
        polled = at;
      }
    }
    before = c, at += n;
  }
  return start < length ? encode_cached(bpe, scratch, piece + start, length - start, limit, out)
                        : 0;
}

int bpe_encode(const bpe_t *bpe, bpe_scratch_t *scratch, const uint8_t *piece, size_t length,
               const uint8_t *limit, buffer_t *out) {
  if (bpe->adjacent != NULL) return encode_with_cuts(bpe, scratch, piece, length, limit, out);
  return encode_cached(bpe, scratch, piece, length, limit, out);
}
