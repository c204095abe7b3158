/* tokenizer.c: encoding a text, and the look-ups on a loaded tokenizer.
 *
 * Encoding runs on worker threads with the scratch of the thread: added tokens in the raw text,
 * normaliser, added tokens in the normalised text, pre-tokeniser, model, post-processor. Look-ups
 * are O(1) and may run anywhere. No function changes the tokenizer.
 */
#include "engine/text/tokenizer.h"

#include "engine/base/util.h"
#include "engine/text/tokenizer_internal.h"
#include "engine/text/unicode/unicode.h"

#include <stdlib.h>
#include <string.h>

enum { POLL_BYTES = 64 * 1024, SCRATCH_KEEP_BYTES = 4 << 20 };
enum { ENCODE_FULL = 1 }; /* ids_max is reached: stop, no error */

typedef struct encode {
  const tokenizer_t *tokenizer;
  tokenizer_scratch_t *scratch;
  const atomic_bool *cancelled;
  size_t ids_max;      /* SIZE_MAX = no bound */
  bool keeps_suffix;   /* where ids_max cuts */
  size_t polled;       /* bytes encoded since `cancelled` was last checked */
  const uint8_t *text; /* the whole of it */
  const byte_span_t *plain;
  size_t num_plain;
  buffer_t out; /* int32_t */
} encode_t;

static size_t num_ids(const encode_t *encode) {
  return encode->out.length / sizeof(int32_t);
}

tokenizer_scratch_t *tokenizer_scratch_new(const tokenizer_t *tokenizer) {
  (void)tokenizer;
  tokenizer_scratch_t *scratch = calloc(1, sizeof *scratch);
  if (scratch != NULL && (scratch->bpe = bpe_scratch_new()) != NULL) return scratch;
  free(scratch);
  return NULL;
}

void tokenizer_scratch_free(tokenizer_scratch_t *scratch) {
  if (scratch == NULL) return;
  bpe_scratch_free(scratch->bpe);
  unigram_scratch_free(&scratch->unigram);
  normalizer_scratch_free(&scratch->normalizer);
  normalizer_scratch_free(&scratch->part);
  free(scratch->spans);
  buffer_free(&scratch->origins);
  buffer_free(&scratch->found);
  pretokenizer_scratch_free(&scratch->pretokenizer);
  free(scratch);
}

/* Counts a word that the model does not merge. Returns true if it is to be left out. */
static bool skips_word(const encode_t *encode) {
  bpe_scratch_t *scratch = encode->scratch->bpe;
  return scratch->words++ < scratch->skip;
}

static int encode_unigram(encode_t *encode, const uint8_t *piece, size_t length) {
  const tokenizer_t *tokenizer = encode->tokenizer;
  if (skips_word(encode)) return 0;
  return unigram_encode(&tokenizer->unigram, &tokenizer->bpe.vocab, &encode->scratch->unigram,
                        piece, length, encode->cancelled, &encode->out);
}

static int encode_wordpiece(encode_t *encode, const uint8_t *piece, size_t length) {
  if (skips_word(encode)) return 0;
  return wordpiece_encode(&encode->tokenizer->wordpiece, piece, length, &encode->out);
}

static int encode_piece(void *context, const uint8_t *piece, size_t length, const uint8_t *limit) {
  encode_t *encode = context;
  const tokenizer_t *tokenizer = encode->tokenizer;
  const size_t before = num_ids(encode);
  int code;
  if (tokenizer->unigram.scores != NULL)
    code = encode_unigram(encode, piece, length);
  else if (tokenizer->wordpiece.trie.edges != NULL)
    code = encode_wordpiece(encode, piece, length);
  else
    code = bpe_encode(&tokenizer->bpe, encode->scratch->bpe, piece, length, limit, &encode->out);
  if (code != 0) return code;
  if (encode->scratch->finds_spans &&
      !spans_of_piece(tokenizer, encode->scratch, piece, length,
                      (const int32_t *)(const void *)encode->out.data + before,
                      num_ids(encode) - before))
    return ERR_INTERNAL;
  if (num_ids(encode) >= encode->ids_max) return ENCODE_FULL;
  encode->polled += length;
  if (encode->polled < POLL_BYTES) return 0;
  encode->polled = 0;
  return encode->cancelled != NULL && atomic_load(encode->cancelled) ? ERR_REQUEST_TIMEOUT : 0;
}

/* An added token: bytes [begin, end) of the gap's normal form, or of the text. */
static int encode_token(encode_t *encode, uint32_t index, bool normalised, size_t begin,
                        size_t end) {
  const int32_t id = (int32_t)encode->tokenizer->added[index].id;
  if (skips_word(encode)) return 0;
  if (!buffer_append(&encode->out, &id, sizeof id)) return ERR_INTERNAL;
  if (encode->scratch->finds_spans && !spans_of_token(encode->scratch, normalised, begin, end))
    return ERR_INTERNAL;
  return num_ids(encode) >= encode->ids_max ? ENCODE_FULL : 0;
}

/* Tells the walk over a normalised gap in which spans no special token may be found. */
static bool keep_plain(encode_t *encode, token_walk_t *walk, const uint8_t *raw,
                       size_t raw_length) {
  size_t offset = (size_t)(raw - encode->text);
  tokenizer_scratch_t *scratch = encode->scratch;
  if (walk->matcher->num_nodes <= 1) return true; /* there are no normalised added tokens */
  if (walk->text == raw && walk->length == raw_length) {
    walk->plain = encode->plain;
    walk->num_plain = encode->num_plain;
    walk->plain_offset = offset;
    return true;
  }
  const text_gap_t gap = {raw, raw_length, offset, walk->text, walk->length};
  if (!plain_map(&encode->tokenizer->normalizer, scratch, &gap, encode->plain, encode->num_plain))
    return false;
  walk->plain = scratch->spans;
  walk->num_plain = scratch->num_spans;
  return true;
}

/* A gap of the raw text: normalise, find the normalised added tokens, split the gaps. */
static int encode_gap(encode_t *encode, const uint8_t *text, size_t length, const uint8_t *limit,
                      bool at_start, bool plain) {
  const tokenizer_t *tokenizer = encode->tokenizer;
  const uint8_t *raw = text;
  size_t raw_length = length;
  if (!normalizer_run(&tokenizer->normalizer, &encode->scratch->normalizer, &text, &length, &limit))
    return ERR_INTERNAL;
  token_walk_t walk = {.matcher = &tokenizer->normalized,
                       .tokens = tokenizer->added,
                       .text = text,
                       .length = length};
  token_span_t span;
  if (plain && !keep_plain(encode, &walk, raw, raw_length)) return ERR_INTERNAL;
  const text_gap_t gap = {raw, raw_length, (size_t)(raw - encode->text), text, length};
  if (encode->scratch->finds_spans && !spans_map(&tokenizer->normalizer, encode->scratch, &gap))
    return ERR_INTERNAL;
  while (token_walk_next(&walk, &span)) {
    int code = 0;
    encode->scratch->run_start = span.gap_start;
    if (span.gap_start < span.gap_end)
      code = pretokenizer_run(&tokenizer->pretokenizer, &encode->scratch->pretokenizer,
                              text + span.gap_start, span.gap_end - span.gap_start, limit,
                              at_start && span.gap_start == 0, encode_piece, encode);
    if (code == 0 && span.has_token)
      code = encode_token(encode, span.index, true, span.gap_end, walk.gap_start);
    if (code != 0) return code;
  }
  return 0;
}

/* Returns true if a span touches the gap. Gaps and spans both ascend. */
static bool is_plain(encode_t *encode, size_t start, size_t end) {
  while (encode->num_plain > 0 && encode->plain[0].end <= start)
    encode->plain++, encode->num_plain--;
  return encode->num_plain > 0 && encode->plain[0].begin < end;
}

static int encode_text(encode_t *encode, const uint8_t *text, size_t length) {
  const tokenizer_t *tokenizer = encode->tokenizer;
  token_walk_t walk = {.matcher = &tokenizer->raw,
                       .tokens = tokenizer->added,
                       .text = text,
                       .length = length,
                       .plain = encode->plain,
                       .num_plain = encode->num_plain};
  token_span_t span;
  while (token_walk_next(&walk, &span)) {
    int code = 0;
    if (span.gap_start < span.gap_end)
      code = encode_gap(encode, text + span.gap_start, span.gap_end - span.gap_start, text + length,
                        span.gap_start == 0, is_plain(encode, span.gap_start, span.gap_end));
    if (code == 0 && span.has_token)
      code = encode_token(encode, span.index, false, span.gap_end, walk.gap_start);
    if (code != 0) return code;
  }
  return 0;
}

static int encode_all(encode_t *encode, const char *text, size_t length, bool special) {
  const tokenizer_t *tokenizer = encode->tokenizer;
  const size_t most = encode->ids_max;
  bool keeps = special && encode->keeps_suffix && tokenizer->num_suffix <= most;
  if (special &&
      !buffer_append(&encode->out, tokenizer->prefix, tokenizer->num_prefix * sizeof(int32_t)))
    return ERR_INTERNAL;
  const size_t text_most = keeps && most < SIZE_MAX ? most - tokenizer->num_suffix : most;
  encode->ids_max = text_most;
  int code = num_ids(encode) >= text_most ? ENCODE_FULL
                                          : encode_text(encode, (const uint8_t *)text, length);
  encode->ids_max = most;
  if (code < 0) return code;
  if (num_ids(encode) > text_most) encode->out.length = text_most * sizeof(int32_t);
  if (special && (keeps || code != ENCODE_FULL) &&
      !buffer_append(&encode->out, tokenizer->suffix, tokenizer->num_suffix * sizeof(int32_t)))
    return ERR_INTERNAL;
  if (num_ids(encode) > most) encode->out.length = most * sizeof(int32_t);
  return 0;
}

/* Encodes the words from number `skip` on; the others are counted. */
static int encode_from(encode_t *encode, const tokenize_options_t *options, size_t length,
                       size_t skip) {
  encode->scratch->bpe->words = 0;
  encode->scratch->bpe->skip = skip;
  encode->scratch->found.length = 0;
  encode->out.length = 0;
  encode->plain = options->plain;
  encode->num_plain = options->num_plain;
  return encode_all(encode, (const char *)encode->text, length, options->add_special_tokens);
}

/* Encodes the end of the text. Words are encoded each by itself, so those before the end can be
 * left out; a first run over the text counts the words. Nearly every word has an id or more; where
 * many have none, more words are taken. */
static int encode_tail(encode_t *encode, const tokenize_options_t *options, size_t length) {
  int code = encode_from(encode, options, length, SIZE_MAX);
  size_t words = encode->scratch->bpe->words, affixes = num_ids(encode);
  for (size_t taken = options->tail; code == 0; taken *= 4) {
    size_t skip = taken < words ? words - taken : 0;
    code = encode_from(encode, options, length, skip);
    if (skip == 0 || num_ids(encode) - affixes >= options->tail) break;
    if (taken > SIZE_MAX / 4) break;
  }
  return code;
}

/* The spans of all ids, those of the post-processor among them. False: no memory. */
static bool take_spans(const encode_t *encode, const tokenize_options_t *options) {
  const tokenizer_t *tokenizer = encode->tokenizer;
  const size_t count = num_ids(encode);
  const size_t ahead = options->add_special_tokens ? MIN(tokenizer->num_prefix, count) : 0;
  const size_t found = encode->scratch->found.length / sizeof(byte_span_t);
  const size_t of_text = MIN(found, count - ahead);
  byte_span_t *spans = calloc(count + 1, sizeof *spans);
  if (spans == NULL) return false;
  for (size_t i = 0; i < count; i++) spans[i].begin = 1;
  if (of_text > 0) memcpy(spans + ahead, encode->scratch->found.data, of_text * sizeof *spans);
  spans_trim(tokenizer, encode->text, (const int32_t *)(const void *)encode->out.data + ahead,
             spans + ahead, of_text);
  *options->spans = spans;
  return true;
}

int tokenizer_encode(const tokenizer_t *tokenizer, tokenizer_scratch_t *scratch, const char *text,
                     size_t length, const tokenize_options_t *options, int32_t **ids, size_t *count,
                     inferd_error_t *error) {
  if (tokenizer_is_none(tokenizer)) return tokenizer_refuse(NULL, error);
  if (!utf8_valid(text, length))
    return error_set(error, ERR_INVALID_VALUE, NULL, "the text is not valid UTF-8");
  encode_t encode = {.tokenizer = tokenizer,
                     .scratch = scratch,
                     .cancelled = options->cancelled,
                     .text = (const uint8_t *)text,
                     .plain = options->plain,
                     .num_plain = options->num_plain,
                     .ids_max = options->ids_max > 0 ? options->ids_max : SIZE_MAX,
                     .keeps_suffix = options->keeps_suffix};
  bpe_scratch_begin(scratch->bpe, options->cancelled);
  scratch->bpe->word_max = options->word_max;
  scratch->finds_spans = options->spans != NULL;
  scratch->pretokenizer.notes_origins = scratch->unigram.notes_starts = scratch->finds_spans;
  size_t most = options->tail > 0 ? options->tail : encode.ids_max;
  int code = ERR_INTERNAL;
  if (buffer_reserve(&encode.out, (MIN(length / 4, most) + 16) * sizeof(int32_t))) {
    code = options->tail > 0 ? encode_tail(&encode, options, length)
                             : encode_from(&encode, options, length, 0);
  }
  if (code == 0 && scratch->finds_spans && !take_spans(&encode, options)) code = ERR_INTERNAL;
  buffer_trim(&scratch->origins, SCRATCH_KEEP_BYTES);
  buffer_trim(&scratch->found, SCRATCH_KEEP_BYTES);
  buffer_trim(&scratch->unigram.starts, SCRATCH_KEEP_BYTES);
  normalizer_scratch_trim(&scratch->normalizer, SCRATCH_KEEP_BYTES);
  normalizer_scratch_trim(&scratch->part, SCRATCH_KEEP_BYTES);
  pretokenizer_scratch_trim(&scratch->pretokenizer, SCRATCH_KEEP_BYTES);
  bpe_scratch_begin(scratch->bpe, NULL);
  buffer_trim(&scratch->unigram.places, SCRATCH_KEEP_BYTES);
  buffer_trim(&scratch->unigram.ids, SCRATCH_KEEP_BYTES);
  if (code == 0) {
    *ids = (int32_t *)(void *)encode.out.data, *count = num_ids(&encode);
    return 0;
  }
  buffer_free(&encode.out);
  if (code == ERR_REQUEST_TIMEOUT) return error_set(error, code, NULL, "tokenizing was cancelled");
  if (code == ERR_BAD_REQUEST)
    return error_set(error, code, NULL,
                     "the tokenizer's pattern needs too many steps on this text");
  if (code == ERR_INVALID_VALUE)
    return error_set(error, code, NULL,
                     "the text has a word of more than %zu bytes, which is too long to tokenize",
                     options->word_max);
  return error_set(error, ERR_INTERNAL, NULL, "not enough memory to tokenize %zu bytes", length);
}

int tokenizer_refuse(const char *param, inferd_error_t *error) {
  return error_set(error, ERR_UNSUPPORTED_PARAMETER, param,
                   "This server has no tokenizer (--skip-tokenizer-init). Prompts must be token "
                   "ids, and nothing that needs text is possible%s%s.",
                   param != NULL ? ": " : "", param != NULL ? param : "");
}

int32_t tokenizer_pair_extra(const tokenizer_t *tokenizer, const char **why) {
  const pair_template_t *pair = &tokenizer->pair;
  *why = pair->missing;
  return *why != NULL ? -1 : (int32_t)(pair->count[0] + pair->count[1] + pair->count[2]);
}

int64_t tokenizer_join(const tokenizer_t *tokenizer, const token_pair_t *pair, int32_t *out) {
  const pair_template_t *template = &tokenizer->pair;
  const struct {
    const int32_t *ids;
    size_t count;
  } parts[] = {{template->ids[0], template->count[0]},
               {pair->first, pair->num_first},
               {template->ids[1], template->count[1]},
               {pair->second, pair->num_second},
               {template->ids[2], template->count[2]}};
  size_t at = 0;
  for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
    if (parts[i].count > 0) memcpy(out + at, parts[i].ids, parts[i].count * sizeof *out);
    at += parts[i].count;
  }
  if (!template->typed) return -1;
  return (int64_t)(template->count[0] + pair->num_first + template->first_typed);
}

int32_t tokenizer_vocab_size(const tokenizer_t *tokenizer) {
  return (int32_t)tokenizer->num_ids;
}

const char *tokenizer_bytes(const tokenizer_t *tokenizer, int32_t id, size_t *length) {
  *length = 0;
  if (id < 0 || (uint32_t)id >= tokenizer->num_ids) return "";
  *length = tokenizer->text_offset[id + 1] - tokenizer->text_offset[id];
  return tokenizer->text.data + tokenizer->text_offset[id];
}

unsigned tokenizer_flags(const tokenizer_t *tokenizer, int32_t id) {
  return id < 0 || (uint32_t)id >= tokenizer->num_ids ? 0 : tokenizer->flags[id];
}

const char *tokenizer_whole(const tokenizer_t *tokenizer, int32_t id, size_t *length) {
  if ((tokenizer_flags(tokenizer, id) & (TOKEN_SPECIAL | TOKEN_WHOLE)) != TOKEN_WHOLE) return NULL;
  return tokenizer_bytes(tokenizer, id, length);
}

const uint8_t *tokenizer_spelling(const tokenizer_t *tokenizer, int32_t id, size_t *length) {
  *length = 0;
  if (id < 0 || (uint32_t)id >= tokenizer->num_ids) return NULL;
  const uint8_t *added = vocab_string(&tokenizer->added_vocab, (uint32_t)id, length);
  return added != NULL ? added : vocab_string(&tokenizer->bpe.vocab, (uint32_t)id, length);
}

int32_t tokenizer_id(const tokenizer_t *tokenizer, const char *token, size_t length) {
  if (tokenizer_is_none(tokenizer)) return -1;
  uint32_t id = vocab_find(&tokenizer->added_vocab, token, length);
  if (id == NO_ID) id = vocab_find(&tokenizer->bpe.vocab, token, length);
  return id == NO_ID ? -1 : (int32_t)id;
}

size_t tokenizer_longest_token(const tokenizer_t *tokenizer) {
  return tokenizer->longest_token;
}
bool tokenizer_is_unknown(const tokenizer_t *tokenizer, int32_t id) {
  const bool is_unigram = tokenizer->unigram.scores != NULL;
  return (uint32_t)id == (is_unigram ? tokenizer->unigram.unk : tokenizer->bpe.unk);
}
bool tokenizer_marks_inner(const tokenizer_t *tokenizer) {
  return tokenizer->wordpiece.trie.edges != NULL && tokenizer->wordpiece.prefix_length > 0;
}
int32_t tokenizer_bos_id(const tokenizer_t *tokenizer) {
  return tokenizer->bos_id;
}
int32_t tokenizer_eos_id(const tokenizer_t *tokenizer) {
  return tokenizer->eos_id;
}
double tokenizer_model_max_length(const tokenizer_t *tokenizer) {
  return tokenizer->model_max_length;
}
bool tokenizer_interprets_patterns(const tokenizer_t *tokenizer) {
  const pretokenizer_t *pretokenizer = &tokenizer->pretokenizer;
  for (unsigned i = 0; i < pretokenizer->num_steps; i++)
    if (pretokenizer->steps[i].scanner.regex != NULL) return true;
  return false;
}

void tokenizer_free(tokenizer_t *tokenizer) {
  if (tokenizer == NULL) return;
  bpe_free(&tokenizer->bpe);
  unigram_free(&tokenizer->unigram);
  wordpiece_free(&tokenizer->wordpiece);
  normalizer_free(&tokenizer->normalizer);
  pretokenizer_free(&tokenizer->pretokenizer);
  free(tokenizer->added);
  free(tokenizer->added_of);
  vocab_free(&tokenizer->added_vocab);
  token_matcher_free(&tokenizer->raw);
  token_matcher_free(&tokenizer->normalized);
  buffer_free(&tokenizer->text);
  free(tokenizer->text_offset);
  free(tokenizer->flags);
  free(tokenizer);
}
