/* bpe.c: one piece of text -> token ids, lowest rank first.
 *
 * Runs on the worker threads that tokenise, each with its own scratch. Short pieces are merged in
 * small arrays with a linear search, long ones with a heap over linked symbols, and the results of
 * pieces up to 64 bytes are remembered. Never recurses, never quadratic in the length of a piece.
 */
#include "engine/text/model/bpe.h"

#include "engine/base/checked.h"
#include "engine/text/model/bpe_internal.h"
#include "engine/text/model/word_cache.h"
#include "engine/text/unicode/unicode.h"

#include <stdlib.h>

enum { SHORT_SYMBOLS = 48, POLL_MERGES = 1 << 16, KEEP_BYTES = 4 << 20 };

struct bpe_scratch {
  word_cache_t cache;
  bytes_t symbols; /* uint32_t ids of the piece's symbols */
  bytes_t long_work;
  uint64_t work;
  const atomic_bool *cancelled;
};

bpe_scratch_t *bpe_scratch_new(void) {
  bpe_scratch_t *s = calloc(1, sizeof *s);
  if (s == NULL) return NULL;
  if (!word_cache_init(&s->cache)) {
    free(s);
    return NULL;
  }
  return s;
}

void bpe_scratch_free(bpe_scratch_t *s) {
  if (s == NULL) return;
  word_cache_free(&s->cache);
  bytes_free(&s->symbols);
  bytes_free(&s->long_work);
  free(s);
}

void bpe_scratch_begin(bpe_scratch_t *s, const atomic_bool *cancelled) {
  s->cancelled = cancelled;
  bytes_trim(&s->symbols, KEEP_BYTES);
  bytes_trim(&s->long_work, KEEP_BYTES);
}

uint64_t bpe_scratch_work(const bpe_scratch_t *s) {
  return s->work;
}

/* Merges `n` symbols in place; `rank[i]` belongs to the pair (i, i + 1). Returns how many are left.
 */
static size_t merge_short(const bpe_t *b, bpe_scratch_t *s, uint32_t *id, uint32_t *rank,
                          size_t n) {
  for (;;) {
    size_t best = 0;
    uint32_t best_rank = BPE_NO_RANK;
    for (size_t i = 0; i + 1 < n; i++)
      if (rank[i] < best_rank) best_rank = rank[i], best = i;
    s->work += n;
    if (best_rank == BPE_NO_RANK) return n;
    id[best] = b->product[best_rank];
    for (size_t i = best + 1; i + 1 < n; i++) id[i] = id[i + 1], rank[i - 1] = rank[i];
    n--;
    rank[best] = best + 1 < n ? bpe_pair_rank(b, id[best], id[best + 1]) : BPE_NO_RANK;
    if (best > 0) rank[best - 1] = bpe_pair_rank(b, id[best - 1], id[best]);
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
    size_t end = child + 4 < count ? child + 4 : count;
    size_t least = child;
    for (size_t i = child + 1; i < end; i++)
      if (heap[i] < heap[least]) least = i;
    if (heap[least] >= value) break;
    heap[at] = heap[least], at = least;
  }
  heap[at] = value;
}

static void heap_push(long_piece_t *p, uint64_t value) {
  size_t at = p->heap_count++;
  while (at > 0) {
    size_t parent = (at - 1) / 4;
    if (p->heap[parent] <= value) break;
    p->heap[at] = p->heap[parent], at = parent;
  }
  p->heap[at] = value;
}

static uint64_t heap_pop(long_piece_t *p) {
  uint64_t top = p->heap[0];
  p->heap[0] = p->heap[--p->heap_count];
  if (p->heap_count > 0) sift_down(p->heap, p->heap_count, 0);
  return top;
}

static bool long_piece_init(const bpe_t *b, bpe_scratch_t *s, long_piece_t *p, size_t n) {
  size_t need;
  s->long_work.length = 0;
  /* Every merge pops one live entry and pushes at most two, so 2n entries are enough. */
  if (!checked_mul(n, 3 * sizeof(uint32_t) + 2 * sizeof(uint64_t), &need)) return false;
  if (!bytes_reserve(&s->long_work, need)) return false;
  p->heap = (uint64_t *)(void *)s->long_work.data;
  p->previous = (uint32_t *)(void *)(p->heap + 2 * n);
  p->next = p->previous + n;
  p->rank = p->next + n;
  p->heap_count = 0;
  for (size_t i = 0; i < n; i++) {
    p->previous[i] = i > 0 ? (uint32_t)i - 1 : NO_ID;
    p->next[i] = i + 1 < n ? (uint32_t)i + 1 : NO_ID;
    p->rank[i] = i + 1 < n ? bpe_pair_rank(b, p->id[i], p->id[i + 1]) : BPE_NO_RANK;
    if (p->rank[i] != BPE_NO_RANK) p->heap[p->heap_count++] = (uint64_t)p->rank[i] << 32 | i;
  }
  for (size_t i = p->heap_count / 4 + 1; i-- > 0;)
    if (i < p->heap_count) sift_down(p->heap, p->heap_count, i);
  return true;
}

static void rank_pair(const bpe_t *b, long_piece_t *p, uint32_t at) {
  uint32_t next = p->next[at];
  p->rank[at] = next == NO_ID ? BPE_NO_RANK : bpe_pair_rank(b, p->id[at], p->id[next]);
  if (p->rank[at] != BPE_NO_RANK) heap_push(p, (uint64_t)p->rank[at] << 32 | at);
}

static int merge_long(const bpe_t *b, bpe_scratch_t *s, uint32_t *id, size_t *count) {
  long_piece_t p = {.id = id};
  if (!long_piece_init(b, s, &p, *count)) return ERR_INTERNAL;
  s->work += *count;
  while (p.heap_count > 0) {
    if (++s->work % POLL_MERGES == 0 && s->cancelled != NULL && atomic_load(s->cancelled))
      return ERR_REQUEST_TIMEOUT;
    uint64_t top = heap_pop(&p);
    uint32_t at = (uint32_t)top, rank = (uint32_t)(top >> 32);
    if (p.rank[at] != rank) continue;
    uint32_t gone = p.next[at];
    id[at] = b->product[rank];
    p.rank[gone] = BPE_NO_RANK;
    p.next[at] = p.next[gone];
    if (p.next[at] != NO_ID) p.previous[p.next[at]] = at;
    rank_pair(b, &p, at);
    if (p.previous[at] != NO_ID) rank_pair(b, &p, p.previous[at]);
  }
  size_t n = 0;
  for (uint32_t at = 0; at != NO_ID; at = p.next[at]) id[n++] = id[at];
  *count = n;
  return 0;
}

/* A character that is no token: its bytes as <0xHH> tokens when all of them exist, else unk. The
 * pending unk (NO_ID = none) comes out before the next known character or at the end, as in the
 * reference. Returns the new symbol count. */
static size_t unknown_char(const bpe_t *b, const uint8_t *text, unsigned length, uint32_t *id,
                           size_t n, uint32_t *pending) {
  bool all = b->byte_fallback;
  for (unsigned i = 0; all && i < length; i++) all = b->fallback[text[i]] != NO_ID;
  if (all) {
    for (unsigned i = 0; i < length; i++) id[n++] = b->fallback[text[i]];
    return n;
  }
  if (b->unk == NO_ID) return n;
  if (*pending != NO_ID && !b->fuse_unk) id[n++] = *pending;
  *pending = b->unk;
  return n;
}

static uint32_t char_id(const bpe_t *b, const uint8_t *text, unsigned *length) {
  uint32_t c = utf8_read(text, length);
  return c < 0x10000 ? b->char_symbol[c] : vocab_find(&b->vocab, text, *length);
}

/* Writes the symbols of a piece; `id` has room for 2 * length + 1. Returns their number. */
static size_t split_symbols(const bpe_t *b, const uint8_t *piece, size_t length, uint32_t *id) {
  size_t n = 0;
  uint32_t pending = NO_ID;
  if (b->byte_level && b->all_bytes) {
    for (size_t i = 0; i < length; i++) id[i] = b->byte_symbol[piece[i]];
    return length;
  }
  for (size_t at = 0; at < length;) {
    unsigned char_length = 1;
    uint8_t mapped[2] = {0, 0};
    const uint8_t *text = piece + at;
    uint32_t symbol;
    if (b->byte_level) {
      uint32_t c = bpe_byte_char(piece[at]);
      symbol = b->byte_symbol[piece[at++]];
      mapped[0] = (uint8_t)(c < 0x80 ? c : 0xC0 | c >> 6), mapped[1] = (uint8_t)(0x80 | (c & 0x3F));
      text = mapped, char_length = c < 0x80 ? 1 : 2;
    } else {
      symbol = char_id(b, text, &char_length);
      at += char_length;
    }
    if (symbol == NO_ID) {
      n = unknown_char(b, text, char_length, id, n, &pending);
    } else {
      if (pending != NO_ID) id[n++] = pending, pending = NO_ID;
      id[n++] = symbol;
    }
  }
  if (pending != NO_ID) id[n++] = pending;
  return n;
}

/* The whole piece as one vocabulary entry, NO_ID when it is none. */
static int whole_piece(const bpe_t *b, bpe_scratch_t *s, const uint8_t *piece, size_t length,
                       uint32_t *id) {
  *id = NO_ID;
  if (length > b->vocab.longest) return 0;
  if (!b->byte_level) {
    *id = vocab_find(&b->vocab, piece, length);
    return 0;
  }
  s->symbols.length = 0;
  if (!bytes_reserve(&s->symbols, 2 * length)) return ERR_INTERNAL;
  uint8_t *mapped = s->symbols.data;
  size_t n = 0;
  for (size_t i = 0; i < length; i++) {
    uint32_t c = bpe_byte_char(piece[i]);
    if (c >= 0x80) mapped[n++] = (uint8_t)(0xC0 | c >> 6), c = 0x80 | (c & 0x3F);
    mapped[n++] = (uint8_t)c;
  }
  *id = vocab_find(&b->vocab, mapped, n);
  return 0;
}

/* Merges one piece without the cache. *id points at the result inside `small` or the scratch. */
static int merge_piece(const bpe_t *b, bpe_scratch_t *s, const uint8_t *piece, size_t length,
                       uint32_t *small, uint32_t **id, size_t *count) {
  *id = small;
  if (b->ignore_merges) {
    int code = whole_piece(b, s, piece, length, &small[0]);
    *count = 1;
    if (code != 0 || small[0] != NO_ID) return code;
  }
  if (length * 2 + 1 > 2 * SHORT_SYMBOLS + 1) {
    size_t need;
    s->symbols.length = 0;
    if (!checked_mul(length * 2 + 1, sizeof(uint32_t), &need) || length > INT32_MAX / 2 ||
        !bytes_reserve(&s->symbols, need))
      return ERR_INTERNAL;
    *id = (uint32_t *)(void *)s->symbols.data;
  }
  size_t n = split_symbols(b, piece, length, *id);
  *count = n;
  if (n < 2) return 0;
  if (n > SHORT_SYMBOLS) return merge_long(b, s, *id, count);
  uint32_t rank[SHORT_SYMBOLS];
  if (b->byte_level && b->all_bytes) {
    for (size_t i = 0; i + 1 < n; i++)
      rank[i] = b->byte_pair_rank[(unsigned)piece[i] << 8 | piece[i + 1]];
  } else {
    for (size_t i = 0; i + 1 < n; i++) rank[i] = bpe_pair_rank(b, (*id)[i], (*id)[i + 1]);
  }
  *count = merge_short(b, s, *id, rank, n);
  return 0;
}

static int encode_cached(const bpe_t *b, bpe_scratch_t *s, const uint8_t *piece, size_t length,
                         const uint8_t *limit, ids_t *out) {
  word_key_t key = {0};
  if (length <= WORD_CACHE_BYTES_MAX) {
    if (out->capacity - out->count < WORD_CACHE_IDS_MAX && !ids_grow(out, WORD_CACHE_IDS_MAX))
      return ERR_INTERNAL;
    word_key(&key, piece, length, limit);
    unsigned found = word_cache_get(&s->cache, &key, out->data + out->count);
    out->count += found;
    if (found > 0) return 0;
  }
  uint32_t small[2 * SHORT_SYMBOLS + 1], *id;
  size_t count;
  int code = merge_piece(b, s, piece, length, small, &id, &count);
  if (code != 0) return code;
  if (out->capacity - out->count < count && !ids_grow(out, count)) return ERR_INTERNAL;
  for (size_t i = 0; i < count; i++) out->data[out->count + i] = (int32_t)id[i];
  if (length <= WORD_CACHE_BYTES_MAX)
    word_cache_put(&s->cache, &key, out->data + out->count, count);
  out->count += count;
  return 0;
}

/* Cuts the piece where two neighbouring characters stand together in no merge product: no merge can
 * ever cross that place. */
static int encode_with_cuts(const bpe_t *b, bpe_scratch_t *s, const uint8_t *piece, size_t length,
                            const uint8_t *limit, ids_t *out) {
  size_t start = 0, at = 0, polled = 0;
  uint32_t before = 0;
  while (at < length) {
    unsigned n;
    uint32_t c = utf8_read(piece + at, &n);
    uint32_t bit = bpe_pair_hash(before, c) & b->adjacent_mask;
    if (at > start && !(b->adjacent[bit >> 3] >> (bit & 7) & 1)) {
      int code = encode_cached(b, s, piece + start, at - start, limit, out);
      if (code != 0) return code;
      start = at;
      if (at - polled >= POLL_MERGES) {
        if (s->cancelled != NULL && atomic_load(s->cancelled)) return ERR_REQUEST_TIMEOUT;
        polled = at;
      }
    }
    before = c, at += n;
  }
  return start < length ? encode_cached(b, s, piece + start, length - start, limit, out) : 0;
}

int bpe_encode(const bpe_t *b, bpe_scratch_t *s, const uint8_t *piece, size_t length,
               const uint8_t *limit, ids_t *out) {
  if (b->adjacent != NULL) return encode_with_cuts(b, s, piece, length, limit, out);
  return encode_cached(b, s, piece, length, limit, out);
}
