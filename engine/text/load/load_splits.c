/* load_splits.c: the merges of a BPE vocabulary that has an order of pieces instead of a list of
 * merges, as in SentencePiece models and tekken.json.
 *
 * There every two neighbours may merge whose joined text is a piece, the best piece first. So a
 * piece has a merge for each place where it splits into two pieces, and all of them share one rank:
 * among equal ranks the leftmost merges, as in both libraries. The loading thread only.
 */
#include "engine/text/load/load.h"

#include <stdlib.h>

/* Lists the splits of a piece: calls bpe_add_merge, or only counts (`add` false). */
static uint32_t each_split(bpe_t *bpe, const split_order_t *order, uint32_t id, uint32_t rank,
                           bool add) {
  size_t length = 0;
  const uint8_t *text = vocab_string(&bpe->vocab, id, &length);
  uint32_t count = 0;
  for (size_t i = 1; text != NULL && i < length; i++) {
    if ((text[i] & 0xC0) == 0x80) continue; /* inside a character */
    uint32_t left = vocab_find(&bpe->vocab, text, i);
    uint32_t right = vocab_find(&bpe->vocab, text + i, length - i);
    if (left == NO_ID || right == NO_ID) continue;
    if (!order->merges(order->context, left) || !order->merges(order->context, right)) continue;
    count++;
    if (add) bpe_add_merge(bpe, rank, left, right, id);
  }
  return count;
}

/* A piece of n bytes costs n look-ups of n bytes: a file of long pieces would take hours. */
static int check_work(tokenizer_load_t *load, const split_order_t *order) {
  const uint64_t work_max = (uint64_t)1 << 32;
  uint64_t work = 0;
  for (uint32_t i = 0; i < order->count; i++) {
    size_t length = 0;
    vocab_string(&load->tokenizer->bpe.vocab, order->ids[i], &length);
    work += (uint64_t)length * length;
  }
  if (work <= work_max) return 0;
  return load_fail(load, "vocab", "its pieces are too long to be split: %llu steps, at most %llu",
                   (unsigned long long)work, (unsigned long long)work_max);
}

int load_splits(tokenizer_load_t *load, const split_order_t *order) {
  bpe_t *bpe = &load->tokenizer->bpe;
  uint64_t total = 0;
  int code = check_work(load, order);
  if (code != 0) return code;
  for (uint32_t i = 0; i < order->count; i++) {
    total += each_split(bpe, order, order->ids[i], 0, false);
  }
  if (total > BPE_MERGES_MAX)
    return load_fail(load, "vocab", "%llu merges, at most %d", (unsigned long long)total,
                     BPE_MERGES_MAX);
  if (bpe_prepare(bpe, (uint32_t)total) != 0) return load_no_memory(load);
  uint32_t rank = 0;
  for (uint32_t i = 0; i < order->count; i++) {
    rank += each_split(bpe, order, order->ids[i], rank, true);
  }
  return bpe_finish(bpe) == 0 ? 0 : load_no_memory(load);
}

static int by_score(const void *left, const void *right) {
  const scored_piece_t *first = left, *second = right;
  if (first->score != second->score) return first->score < second->score ? 1 : -1;
  return (first->id > second->id) - (first->id < second->id);
}

int load_splits_by_score(tokenizer_load_t *load, scored_piece_t *pieces, uint32_t count,
                         bool (*merges)(const void *context, uint32_t id), const void *context) {
  uint32_t *ids = calloc((size_t)count + 1, sizeof *ids);
  if (ids == NULL) return load_no_memory(load);
  qsort(pieces, count, sizeof *pieces, by_score);
  for (uint32_t i = 0; i < count; i++) ids[i] = pieces[i].id;
  int code = load_splits(load, &(split_order_t){ids, count, merges, context});
  free(ids);
  return code;
}
