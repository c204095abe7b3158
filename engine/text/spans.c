/* spans.c: which bytes of a text an id stands for.
 *
 * Runs on the tokenizing threads, with the scratch of the thread, only where spans are asked for.
 *
 *  1. The normaliser does not report where a byte moved. So the characters of a gap are normalised
 *     one by one. As long as their normal forms, one behind the other, are the normalised gap, it
 * is known which of them comes from which.
 *  2. Where they are not (a letter and its mark become one, or spaces do), more characters are
 * taken together, until they fit: number i of the new ones comes from number i of the old ones,
 * those beyond from the last. At worst the rest of the gap is one piece.
 *  3. The pre-tokenizer notes for each byte of a text that it changes which byte it comes from.
 *  4. The ids of a piece stand side by side in it. Their lengths follow from the model.
 *  5. A span begins where its first byte comes from, and ends where its last byte comes from.
 *  6. A post-processor of byte-level models cuts spaces off the ends of spans.
 *
 * Reference: the offsets of Hugging Face `tokenizers`.
 */
#include "engine/base/util.h"
#include "engine/text/tokenizer_internal.h"
#include "engine/text/unicode/grapheme.h"
#include "engine/text/unicode/unicode.h"

#include <string.h>

enum { TOGETHER_MAX = 64 /* clusters that are tried together */ };

/* How far a gap and its normal form are mapped. */
typedef struct alignment {
  const normalizer_t *normalizer;
  tokenizer_scratch_t *scratch;
  const text_gap_t *gap;
  size_t at, done; /* bytes of the gap, of its normal form */
} alignment_t;

static byte_span_t *origins(tokenizer_scratch_t *scratch) {
  return (byte_span_t *)(void *)scratch->origins.data;
}

/* The character at `at` of the gap, as bytes of the whole text. */
static byte_span_t character_at(const text_gap_t *gap, size_t at) {
  const size_t begin = gap->offset + at;
  return (byte_span_t){begin, begin + utf8_length(gap->text[at])};
}

/* Maps `normal_length` bytes to the next `length` bytes of the gap: new character i to old
 * character i, but the first `ahead`, which were put in front, to the first. */
static void align(alignment_t *to, size_t length, size_t normal_length, size_t ahead) {
  const text_gap_t *gap = to->gap;
  const size_t old_end = to->at + length, end = to->done + normal_length;
  for (size_t old = to->at; to->done < end;) {
    const size_t bytes = utf8_length(gap->normal[to->done]);
    const byte_span_t origin = character_at(gap, old);
    for (size_t i = 0; i < bytes && to->done < end; i++) origins(to->scratch)[to->done++] = origin;
    if (ahead > 0)
      ahead--;
    else if (old + utf8_length(gap->text[old]) < old_end)
      old += utf8_length(gap->text[old]);
  }
  to->at = old_end;
}

/* The next `length` bytes of the gap, normalised by themselves. */
typedef struct normal_part {
  size_t length, ahead;
  bool fits; /* they come next in the normal form */
} normal_part_t;

static bool comes_next(const alignment_t *to, const uint8_t *text, size_t length) {
  return length <= to->gap->normal_length - to->done &&
         (length == 0 || memcmp(text, to->gap->normal + to->done, length) == 0);
}

/* Returns false if memory is short. */
static bool normalise(const alignment_t *to, size_t length, normal_part_t *out) {
  const uint8_t *raw = to->gap->text + to->at, *part = raw, *limit = raw + length;
  *out = (normal_part_t){.length = length};
  if (!normalizer_run_inner(to->normalizer, &to->scratch->part, &part, &out->length)) return false;
  if (to->at == 0) { /* here a step may put something in front */
    const size_t inner = utf8_count((const char *)part, out->length);
    part = raw, out->length = length;
    if (!normalizer_run(to->normalizer, &to->scratch->part, &part, &out->length, &limit))
      return false;
    const size_t all = utf8_count((const char *)part, out->length);
    out->ahead = all > inner ? all - inner : 0;
  }
  out->fits = comes_next(to, part, out->length);
  /* What a step cuts off at the ends of a text only: this is no end. */
  if (out->length == 0 && comes_next(to, raw, length)) out->length = length;
  return true;
}

/* Aligns the next `length` bytes if they fit: character by character if each fits by itself. */
static bool try_align(alignment_t *to, size_t length, bool *fits) {
  const alignment_t before = *to;
  const size_t end = to->at + length;
  normal_part_t whole, one = {.fits = true};
  if (!normalise(to, length, &whole)) return false;
  *fits = whole.fits;
  while (*fits && one.fits && to->at < end) {
    const size_t bytes = utf8_length(to->gap->text[to->at]);
    if (!normalise(to, bytes, &one)) return false;
    if (one.fits) align(to, bytes, one.length, one.ahead);
  }
  if (!*fits || (one.fits && to->done == before.done + whole.length)) return true;
  *to = before;
  align(to, length, whole.length, whole.ahead);
  return true;
}

/* Bytes of what is taken together at `at`: a cluster, or spaces, of which a step may make one. */
static size_t unit_length(const text_gap_t *gap, size_t at) {
  size_t length = 0;
  while (at + length < gap->length && gap->text[at + length] == ' ') length++;
  return length > 0 ? length : grapheme_length(gap->text + at, gap->length - at);
}

bool spans_map(const normalizer_t *normalizer, tokenizer_scratch_t *scratch,
               const text_gap_t *gap) {
  alignment_t to = {.normalizer = normalizer, .scratch = scratch, .gap = gap};
  scratch->origins.length = 0;
  if (!buffer_reserve(&scratch->origins, gap->normal_length * sizeof(byte_span_t))) return false;
  while (to.at < gap->length && to.done < gap->normal_length) {
    size_t length = 0;
    bool fits = false;
    for (int i = 0; !fits && i < TOGETHER_MAX && to.at + length < gap->length; i++) {
      length += unit_length(gap, to.at + length);
      if (!try_align(&to, length, &fits)) return false;
    }
    if (!fits) align(&to, gap->length - to.at, gap->normal_length - to.done, 0);
  }
  /* What is left over comes from the last character. */
  const size_t last = gap->length > 0 ? utf8_previous(gap->text, gap->length) : 0;
  while (to.done < gap->normal_length)
    origins(scratch)[to.done++] =
        gap->length > 0 ? character_at(gap, last) : (byte_span_t){gap->offset, gap->offset};
  return true;
}

/* ---- the ids of a piece ---- */

/* Of a piece that begins with characters that a BPE lacks: the bytes of one of them, or of all that
 * stand side by side. */
static size_t unknown_length(const bpe_t *bpe, const uint8_t *piece, size_t left) {
  size_t length = utf8_length(piece[0]);
  while (bpe->fuse_unk && length < left) {
    const size_t next = utf8_length(piece[length]);
    if (vocab_find(&bpe->vocab, (const char *)piece + length, next) != NO_ID) break;
    length += next;
  }
  return length;
}

/* Bytes of the piece that an id stands for, `left` bytes before the piece's end. */
static size_t id_length(const tokenizer_t *tokenizer, int32_t id, bool first, const uint8_t *piece,
                        size_t left) {
  const wordpiece_t *wordpiece = &tokenizer->wordpiece;
  size_t length = 0; /* of an id without a spelling */
  if (wordpiece->trie.edges != NULL) {
    if ((uint32_t)id == wordpiece->unk) return left;
    (void)vocab_string(&tokenizer->bpe.vocab, (uint32_t)id, &length);
    return first || length < wordpiece->prefix_length ? length : length - wordpiece->prefix_length;
  }
  if (tokenizer->pretokenizer.byte_level) {
    (void)tokenizer_bytes(tokenizer, id, &length);
    return length;
  }
  if ((uint32_t)id == tokenizer->bpe.unk) return unknown_length(&tokenizer->bpe, piece, left);
  const uint8_t *spelling = vocab_string(&tokenizer->bpe.vocab, (uint32_t)id, &length);
  const bool is_byte =
      tokenizer->bpe.byte_fallback && length == 6 && memcmp(spelling, "<0x", 3) == 0;
  return is_byte && memcmp(spelling, piece, MIN(length, left)) != 0 ? 1 : length;
}

static byte_span_t origin_of(tokenizer_scratch_t *scratch, const uint8_t *byte) {
  return origins(scratch)[scratch->run_start + pretokenizer_origin(&scratch->pretokenizer, byte)];
}

bool spans_of_piece(const tokenizer_t *tokenizer, tokenizer_scratch_t *scratch,
                    const uint8_t *piece, size_t length, const int32_t *ids, size_t count) {
  const uint32_t *starts = (const uint32_t *)(const void *)scratch->unigram.starts.data;
  const bool is_unigram = tokenizer->unigram.scores != NULL;
  size_t at = 0;
  for (size_t i = 0; i < count; i++) {
    size_t end = length;
    if (is_unigram) { /* the starts stand backwards */
      at = starts[count - 1 - i];
      for (size_t j = i + 1; j < count && end == length; j++)
        if (starts[count - 1 - j] != at) end = starts[count - 1 - j];
    } else if (at < length) {
      end = MIN(at + id_length(tokenizer, ids[i], i == 0, piece + at, length - at), length);
    }
    byte_span_t span = {0, 0};
    if (at < length) span = origin_of(scratch, piece + at);
    if (at + 1 < end) span.end = origin_of(scratch, piece + end - 1).end;
    if (!buffer_append(&scratch->found, &span, sizeof span)) return false;
    at = end;
  }
  return true;
}

bool spans_of_token(tokenizer_scratch_t *scratch, bool normalised, size_t begin, size_t end) {
  byte_span_t span = {begin, end};
  if (normalised && begin < end) {
    span = origins(scratch)[begin];
    span.end = origins(scratch)[end - 1].end;
  }
  return buffer_append(&scratch->found, &span, sizeof span);
}

/* ---- the post-processor ---- */

void spans_trim(const tokenizer_t *tokenizer, const uint8_t *text, const int32_t *ids,
                byte_span_t *spans, size_t count) {
  for (size_t i = 0; i < count && tokenizer->trims_spans; i++) {
    byte_span_t *span = &spans[i];
    const bool first = i == 0 || span->begin == 0;
    size_t length, spaces = 0;
    const char *bytes = tokenizer_bytes(tokenizer, ids[i], &length);
    while (spaces < length && bytes[spaces] == ' ') spaces++;
    /* One that was put in front of the text is no space of it. */
    if (spaces == 1 && first && tokenizer->puts_space) spaces = 0;
    for (; spaces > 0 && span->begin < span->end; spaces--)
      span->begin += utf8_length(text[span->begin]);
    for (; length > 0 && bytes[length - 1] == ' ' && span->end > span->begin; length--)
      span->end = utf8_previous(text, span->end);
  }
}
