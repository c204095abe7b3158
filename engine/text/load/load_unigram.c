/* load_unigram.c: the Unigram model of tokenizer.json.
 *
 * The loading thread only. Its vocabulary is a list of [piece, score]; an id is a place in it.
 */
#include "engine/text/load/load.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const char where[] = "model.vocab";
static const double unk_penalty = 10; /* kUnkPenalty of SentencePiece */

enum { POWERS = 309, EXPONENT_MAX = 100000 };

static bool is_digit(char digit) {
  return digit >= '0' && digit <= '9';
}

/* Appends a digit unless the number would outgrow 64 bits. */
static bool push_digit(uint64_t *number, char digit) {
  uint64_t next;
  if (__builtin_mul_overflow(*number, 10u, &next) ||
      __builtin_add_overflow(next, (uint64_t)(digit - '0'), &next))
    return false;
  *number = next;
  return true;
}

/* digits * 10^exponent, with one rounding for the digits and one for each factor. */
static double scale(uint64_t digits, int exponent, const double powers[POWERS]) {
  double value = (double)digits;
  for (; exponent <= -POWERS && value != 0; exponent += POWERS - 1) value /= powers[POWERS - 1];
  if (value == 0) return 0;
  if (exponent >= POWERS) return INFINITY;
  return exponent < 0 ? value / powers[-exponent] : value * powers[exponent];
}

/* A number as the reference library reads it (serde_json without exact floats): the digits that fit
 * 64 bits, times a power of ten. The last bit may be wrong, and must be wrong in the same way: it
 * decides between segmentations of equal probability. */
static double read_score(const json_t *number, const double powers[POWERS]) {
  const char *at = number->text, *end = at + number->length;
  bool negative = *at == '-', full = false;
  uint64_t digits = 0;
  int exponent = 0, written = 0;
  for (at += negative; at < end && is_digit(*at); at++) {
    full = full || !push_digit(&digits, *at);
    exponent += full;
  }
  if (at < end && *at == '.')
    for (at++; at < end && is_digit(*at) && push_digit(&digits, *at); at++) exponent--;
  while (at < end && is_digit(*at)) at++;
  if (at < end) { /* e */
    bool minus = at[1] == '-';
    for (at += minus || at[1] == '+' ? 2 : 1; at < end && written < EXPONENT_MAX; at++)
      written = 10 * written + (*at - '0');
    exponent += minus ? -written : written;
  }
  double value = scale(digits, exponent, powers);
  return negative ? -value : value;
}

/* One [piece, score]. */
static int read_entry(tokenizer_load_t *load, const json_t *entry, uint32_t id,
                      const double powers[POWERS], double *lowest) {
  tokenizer_t *tokenizer = load->tokenizer;
  char quoted[96];
  const json_t *piece = entry->type == JSON_ARRAY ? json_first(entry) : NULL;
  const json_t *score = piece == NULL ? NULL : json_next(piece);
  if (entry->type != JSON_ARRAY || entry->count != 2 || piece->type != JSON_STRING ||
      score->type != JSON_NUMBER)
    return load_fail(load, where, "entry %u is not [piece, score]", id);
  tokenizer->unigram.scores[id] = read_score(score, powers);
  if (isinf(tokenizer->unigram.scores[id]))
    return load_fail(load, where, "the score of entry %u is out of range", id);
  if (piece->length > VOCAB_PIECE_BYTES_MAX)
    return load_fail(load, where, "entry %u is longer than %d bytes", id, VOCAB_PIECE_BYTES_MAX);
  vocab_result_t result = vocab_put(&tokenizer->bpe.vocab, piece->text, piece->length, id);
  if (result == VOCAB_NO_MEMORY) return load_no_memory(load);
  if (result == VOCAB_DUPLICATE)
    return load_fail(load, where, "the piece \"%s\" is there twice", load_quote(quoted, piece));
  if (tokenizer->unigram.scores[id] < *lowest) *lowest = tokenizer->unigram.scores[id];
  return 0;
}

static int read_entries(tokenizer_load_t *load, const json_t *vocab) {
  tokenizer_t *tokenizer = load->tokenizer;
  double lowest = INFINITY;
  uint32_t id = 0;
  double powers[POWERS];
  for (int i = 0; i < POWERS; i++) {
    char power[16];
    snprintf(power, sizeof power, "1e%d", i);
    powers[i] = strtod(power, NULL);
  }
  if (vocab == NULL || vocab->type != JSON_ARRAY || vocab->count == 0)
    return load_fail(load, where, "an array of [piece, score] is needed");
  if (vocab->count > VOCAB_COUNT_MAX)
    return load_fail(load, where, "%u pieces, at most %d", vocab->count, VOCAB_COUNT_MAX);
  tokenizer->unigram.scores = calloc(vocab->count, sizeof *tokenizer->unigram.scores);
  if (tokenizer->unigram.scores == NULL ||
      !vocab_init(&tokenizer->bpe.vocab, vocab->count, vocab->count))
    return load_no_memory(load);
  JSON_EACH(entry, vocab) {
    int code = read_entry(load, entry, id++, powers, &lowest);
    if (code != 0) return code;
  }
  tokenizer->unigram.unk_score = lowest - unk_penalty;
  return 0;
}

int load_unigram(tokenizer_load_t *load, const json_t *model) {
  tokenizer_t *tokenizer = load->tokenizer;
  int64_t unk;
  if (tokenizer->pretokenizer.byte_level)
    return load_fail(load, "model", "a Unigram model behind ByteLevel is not supported");
  if (!load_bool(load, model, "byte_fallback", "model", &tokenizer->unigram.byte_fallback))
    return ERR_MODEL_MALFORMED;
  int code = read_entries(load, load_field(model, "vocab"));
  if (code != 0) return code;
  if (!json_int64(load_field(model, "unk_id"), &unk) || unk < 0 ||
      unk >= tokenizer->bpe.vocab.num_ids)
    return load_fail(load, "model", "\"unk_id\" must be a place in the vocabulary");
  tokenizer->unigram.unk = (uint32_t)unk;
  tokenizer->bpe.unk = (uint32_t)unk;
  return unigram_finish(&tokenizer->unigram, &tokenizer->bpe.vocab) ? 0 : load_no_memory(load);
}
