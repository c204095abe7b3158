/* tokenizer.c: encoding a text, and the look-ups on a loaded tokenizer.
 *
 * Encoding runs on worker threads with the scratch of the thread: added tokens in the raw text,
 * normaliser, added tokens in the normalised text, pre-tokeniser, model, post-processor. Look-ups
 * are O(1) and may run anywhere. Nothing here changes the tokenizer.
 */
#include "engine/text/tokenizer.h"

#include "engine/text/tokenizer_internal.h"
#include "engine/text/unicode/unicode.h"

#include <stdlib.h>

enum { POLL_BYTES = 64 * 1024, SCRATCH_KEEP_BYTES = 4 << 20 };
enum { ENCODE_FULL = 1 }; /* ids_max is reached: stop, no error */

typedef struct encode {
  const tokenizer_t *tokenizer;
  tokenizer_scratch_t *scratch;
  const atomic_bool *cancelled;
  size_t ids_max;      /* without the suffix; SIZE_MAX = no bound */
  size_t polled;       /* bytes encoded since the last look at `cancelled` */
  const uint8_t *text; /* the whole of it */
  const byte_span_t *plain;
  size_t num_plain;
  ids_t out;
} encode_t;

tokenizer_scratch_t *tokenizer_scratch_new(const tokenizer_t *tokenizer) {
  (void)tokenizer;
  tokenizer_scratch_t *s = calloc(1, sizeof *s);
  if (s != NULL && (s->bpe = bpe_scratch_new()) != NULL) return s;
  free(s);
  return NULL;
}

void tokenizer_scratch_free(tokenizer_scratch_t *s) {
  if (s == NULL) return;
  bpe_scratch_free(s->bpe);
  unigram_scratch_free(&s->unigram);
  normalizer_scratch_free(&s->normalizer);
  normalizer_scratch_free(&s->part);
  free(s->spans);
  pretokenizer_scratch_free(&s->pretokenizer);
  free(s);
}

static int encode_piece(void *context, const uint8_t *piece, size_t length, const uint8_t *limit) {
  encode_t *e = context;
  const tokenizer_t *t = e->tokenizer;
  int code = t->unigram.scores == NULL
                 ? bpe_encode(&t->bpe, e->scratch->bpe, piece, length, limit, &e->out)
                 : unigram_encode(&t->unigram, &t->bpe.vocab, &e->scratch->unigram, piece, length,
                                  e->cancelled, &e->out);
  if (code != 0) return code;
  if (e->out.count >= e->ids_max) return ENCODE_FULL;
  e->polled += length;
  if (e->polled < POLL_BYTES) return 0;
  e->polled = 0;
  return e->cancelled != NULL && atomic_load(e->cancelled) ? ERR_REQUEST_TIMEOUT : 0;
}

static int encode_token(encode_t *e, uint32_t index) {
  if (!ids_push(&e->out, (int32_t)e->tokenizer->added[index].id)) return ERR_INTERNAL;
  return e->out.count >= e->ids_max ? ENCODE_FULL : 0;
}

/* Gives the walk over a normalised gap the spans in which no special token may be found. */
static bool keep_plain(encode_t *e, token_walk_t *walk, const uint8_t *raw, size_t raw_length) {
  size_t offset = (size_t)(raw - e->text);
  tokenizer_scratch_t *s = e->scratch;
  if (walk->matcher->num_nodes <= 1) return true; /* there are no normalised added tokens */
  if (walk->text == raw && walk->length == raw_length) {
    walk->plain = e->plain;
    walk->num_plain = e->num_plain;
    walk->plain_offset = offset;
    return true;
  }
  if (!plain_map(&e->tokenizer->normalizer, s, raw, raw_length, offset, e->plain, e->num_plain,
                 walk->text, walk->length))
    return false;
  walk->plain = s->spans;
  walk->num_plain = s->num_spans;
  return true;
}

/* A gap of the raw text: normalise, find the normalised added tokens, split the gaps. */
static int encode_gap(encode_t *e, const uint8_t *text, size_t length, const uint8_t *limit,
                      bool at_start, bool plain) {
  const tokenizer_t *t = e->tokenizer;
  const uint8_t *raw = text;
  size_t raw_length = length;
  if (!normalizer_run(&t->normalizer, &e->scratch->normalizer, &text, &length, &limit))
    return ERR_INTERNAL;
  token_walk_t walk = {
      .matcher = &t->normalized, .tokens = t->added, .text = text, .length = length};
  token_span_t span;
  if (plain && !keep_plain(e, &walk, raw, raw_length)) return ERR_INTERNAL;
  while (token_walk_next(&walk, &span)) {
    int code = 0;
    if (span.gap_start < span.gap_end)
      code = pretokenizer_run(&t->pretokenizer, &e->scratch->pretokenizer, text + span.gap_start,
                              span.gap_end - span.gap_start, limit, at_start && span.gap_start == 0,
                              encode_piece, e);
    if (code == 0 && span.has_token) code = encode_token(e, span.index);
    if (code != 0) return code;
  }
  return 0;
}

/* Does a span touch the gap? Gaps ascend, and so do the spans. */
static bool is_plain(encode_t *e, size_t start, size_t end) {
  while (e->num_plain > 0 && e->plain[0].end <= start) e->plain++, e->num_plain--;
  return e->num_plain > 0 && e->plain[0].begin < end;
}

static int encode_text(encode_t *e, const uint8_t *text, size_t length) {
  const tokenizer_t *t = e->tokenizer;
  token_walk_t walk = {.matcher = &t->raw,
                       .tokens = t->added,
                       .text = text,
                       .length = length,
                       .plain = e->plain,
                       .num_plain = e->num_plain};
  token_span_t span;
  while (token_walk_next(&walk, &span)) {
    int code = 0;
    if (span.gap_start < span.gap_end)
      code = encode_gap(e, text + span.gap_start, span.gap_end - span.gap_start, text + length,
                        span.gap_start == 0, is_plain(e, span.gap_start, span.gap_end));
    if (code == 0 && span.has_token) code = encode_token(e, span.index);
    if (code != 0) return code;
  }
  return 0;
}

static bool push_all(ids_t *out, const int32_t *ids, unsigned count) {
  for (unsigned i = 0; i < count; i++)
    if (!ids_push(out, ids[i])) return false;
  return true;
}

static int encode_all(encode_t *e, const char *text, size_t length, bool special) {
  const tokenizer_t *t = e->tokenizer;
  if (special && !push_all(&e->out, t->prefix, t->num_prefix)) return ERR_INTERNAL;
  int code =
      e->out.count >= e->ids_max ? ENCODE_FULL : encode_text(e, (const uint8_t *)text, length);
  if (code < 0) return code;
  if (special && code != ENCODE_FULL && !push_all(&e->out, t->suffix, t->num_suffix))
    return ERR_INTERNAL;
  if (e->out.count > e->ids_max) e->out.count = e->ids_max;
  return 0;
}

int tokenizer_encode(const tokenizer_t *tokenizer, tokenizer_scratch_t *scratch, const char *text,
                     size_t length, const tokenize_options_t *options, int32_t **ids, size_t *count,
                     error_t *error) {
  if (!utf8_valid(text, length))
    return error_set(error, ERR_INVALID_VALUE, NULL, "the text is not valid UTF-8");
  encode_t e = {.tokenizer = tokenizer,
                .scratch = scratch,
                .cancelled = options->cancelled,
                .text = (const uint8_t *)text,
                .plain = options->plain,
                .num_plain = options->num_plain,
                .ids_max = options->ids_max > 0 ? options->ids_max : SIZE_MAX};
  bpe_scratch_begin(scratch->bpe, options->cancelled);
  int code = ids_grow(&e.out, length / 4 + 16)
                 ? encode_all(&e, text, length, options->add_special_tokens)
                 : ERR_INTERNAL;
  normalizer_scratch_trim(&scratch->normalizer, SCRATCH_KEEP_BYTES);
  normalizer_scratch_trim(&scratch->part, SCRATCH_KEEP_BYTES);
  pretokenizer_scratch_trim(&scratch->pretokenizer, SCRATCH_KEEP_BYTES);
  bpe_scratch_begin(scratch->bpe, NULL);
  bytes_trim(&scratch->unigram.places, SCRATCH_KEEP_BYTES);
  bytes_trim(&scratch->unigram.ids, SCRATCH_KEEP_BYTES);
  if (code == 0) {
    *ids = e.out.data, *count = e.out.count;
    return 0;
  }
  free(e.out.data);
  if (code == ERR_REQUEST_TIMEOUT) return error_set(error, code, NULL, "tokenizing was cancelled");
  if (code == ERR_BAD_REQUEST)
    return error_set(error, code, NULL,
                     "the tokenizer's pattern needs too many steps on this text");
  return error_set(error, ERR_INTERNAL, NULL, "not enough memory to tokenize %zu bytes", length);
}

int32_t tokenizer_vocab_size(const tokenizer_t *t) {
  return (int32_t)t->num_ids;
}

const char *tokenizer_bytes(const tokenizer_t *t, int32_t id, size_t *length) {
  *length = 0;
  if (id < 0 || (uint32_t)id >= t->num_ids) return "";
  *length = t->text_offset[id + 1] - t->text_offset[id];
  return (const char *)t->text.data + t->text_offset[id];
}

unsigned tokenizer_flags(const tokenizer_t *t, int32_t id) {
  return id < 0 || (uint32_t)id >= t->num_ids ? 0 : t->flags[id];
}

const uint8_t *tokenizer_spelling(const tokenizer_t *t, uint32_t id, size_t *length) {
  const uint8_t *added = vocab_string(&t->added_vocab, id, length);
  return added != NULL ? added : vocab_string(&t->bpe.vocab, id, length);
}

int32_t tokenizer_id(const tokenizer_t *t, const char *token, size_t length) {
  uint32_t id = vocab_find(&t->added_vocab, token, length);
  if (id == NO_ID) id = vocab_find(&t->bpe.vocab, token, length);
  return id == NO_ID ? -1 : (int32_t)id;
}

size_t tokenizer_longest_token(const tokenizer_t *t) {
  return t->longest_token;
}
int32_t tokenizer_bos_id(const tokenizer_t *t) {
  return t->bos_id;
}
int32_t tokenizer_eos_id(const tokenizer_t *t) {
  return t->eos_id;
}
double tokenizer_model_max_length(const tokenizer_t *t) {
  return t->model_max_length;
}
bool tokenizer_truncates_left(const tokenizer_t *t) {
  return t->truncates_left;
}

void tokenizer_free(tokenizer_t *t) {
  if (t == NULL) return;
  bpe_free(&t->bpe);
  unigram_free(&t->unigram);
  normalizer_free(&t->normalizer);
  pretokenizer_free(&t->pretokenizer);
  free(t->added);
  free(t->added_of);
  vocab_free(&t->added_vocab);
  token_matcher_free(&t->raw);
  token_matcher_free(&t->normalized);
  bytes_free(&t->text);
  free(t->text_offset);
  free(t->flags);
  free(t);
}
