/* load_gguf_encoders.c: the WordPiece and Unigram vocabularies of a GGUF file -> a tokenizer.
 *
 * The loading thread only. A WordPiece vocabulary has U+2581 before pieces that begin a word and
 * nothing before those that go on, where tokenizer.json has nothing and "##". A Unigram vocabulary
 * comes from SentencePiece; the pipeline is that of transformers for such a model.
 */
#include "engine/base/util.h"
#include "engine/text/load/load_gguf_parts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { WORD_CHARS_MAX = 100 };

static const char mark[] = "\xE2\x96\x81", going_on[] = "##";
static const double unk_penalty = 10; /* kUnkPenalty of SentencePiece */
static const double never = -1e30;    /* score of pieces that no text is segmented into */

static const char pretokenizer_bert[] = "{\"type\":\"BertPreTokenizer\"}";
static const char decoder_bert[] = "{\"type\":\"WordPiece\",\"prefix\":\"##\",\"cleanup\":true}";
static const char pretokenizer_words[] =
    "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"WhitespaceSplit\"},{\"type\":"
    "\"Metaspace\",\"replacement\":\"\xE2\x96\x81\",\"prepend_scheme\":\"always\"}]}";
static const char pretokenizer_always[] =
    "{\"type\":\"Metaspace\",\"replacement\":\"\xE2\x96\x81\",\"prepend_scheme\":\"always\"}";
static const char pretokenizer_never[] =
    "{\"type\":\"Metaspace\",\"replacement\":\"\xE2\x96\x81\",\"prepend_scheme\":\"never\"}";
static const char decoder_words[] =
    "{\"type\":\"Metaspace\",\"replacement\":\"\xE2\x96\x81\",\"prepend_scheme\":\"always\"}";

/* ---- ends of a text ---- */

static int32_t spelled(const tokenizer_load_t *load, const char *text) {
  uint32_t id = vocab_find(&load->tokenizer->bpe.vocab, text, strlen(text));
  return id == NO_ID ? -1 : (int32_t)id;
}

int load_gguf_ends(tokenizer_load_t *load, const gguf_t *gguf, const char *first, const char *last,
                   int separators) {
  static const char *const firsts[] = {KEY("bos_token_id"), KEY("cls_token_id")};
  static const char *const lasts[] = {KEY("eos_token_id"), KEY("seperator_token_id")}; /* sic */
  tokenizer_t *tokenizer = load->tokenizer;
  int32_t begin = -1, end = -1;
  for (int i = 0; i < 2; i++) {
    if (begin < 0) begin = load_gguf_id(load, gguf, firsts[i]);
    if (end < 0) end = load_gguf_id(load, gguf, lasts[i]);
  }
  if (begin < 0) begin = spelled(load, first);
  if (end < 0) end = spelled(load, last);
  if (begin < 0 || end < 0)
    return load_fail(load, begin < 0 ? KEY("bos_token_id") : KEY("eos_token_id"),
                     "is missing, and no token is spelled %s", begin < 0 ? first : last);
  tokenizer->bos_id = begin;
  tokenizer->eos_id = end;
  tokenizer->prefix[tokenizer->num_prefix++] = begin;
  tokenizer->suffix[tokenizer->num_suffix++] = end;
  pair_template_t *pair = &tokenizer->pair;
  *pair = (pair_template_t){.ids = {{begin}, {0}, {end}}, .count = {1, 0, 1}};
  while (pair->count[1] < (unsigned)separators) pair->ids[1][pair->count[1]++] = end;
  return 0;
}

/* ---- WordPiece ---- */

static int put_piece(tokenizer_load_t *load, int64_t type, const char *text, size_t length,
                     uint32_t id) {
  char joined[VOCAB_PIECE_BYTES_MAX + sizeof going_on];
  const size_t width = sizeof mark - 1;
  if (type == TYPE_CONTROL || type == TYPE_UNKNOWN || type == TYPE_USER_DEFINED)
    return load_gguf_put(load, text, length, id);
  /* Where two tokens have one text, that of U+2581 alone, the later one goes on. */
  if (length > width && memcmp(text, mark, width) == 0 &&
      vocab_find(&load->tokenizer->bpe.vocab, text + width, length - width) == NO_ID)
    return load_gguf_put(load, text + width, length - width, id);
  memcpy(joined, going_on, sizeof going_on - 1);
  memcpy(joined + sizeof going_on - 1, text, length);
  return load_gguf_put(load, joined, length + sizeof going_on - 1, id);
}

/* Whether pieces have capitals: such a vocabulary is for texts as they are. Some pieces have them
 * in every vocabulary, such as [unused1]. */
static bool has_capitals(const tokenizer_load_t *load) {
  const vocab_t *vocab = &load->tokenizer->bpe.vocab;
  uint32_t count = 0;
  for (uint32_t id = 0; id < vocab->num_ids; id++) {
    size_t length = 0;
    const char *text = (const char *)vocab_string(vocab, id, &length);
    bool found = false;
    if (text == NULL || text[0] == '[') continue;
    for (size_t i = 0; i < length; i++) found = found || (text[i] >= 'A' && text[i] <= 'Z');
    count += found;
  }
  return count > vocab->num_ids / 100;
}

/* Older files do not say whether texts are lowered. */
static int read_normalizer(tokenizer_load_t *load, const gguf_t *gguf) {
  static const char accents[] = KEY("normalizer.strip_accents");
  char text[192];
  bool lowers = load_gguf_flag(gguf, KEY("normalizer.lowercase"), !has_capitals(load));
  bool strips = load_gguf_flag(gguf, accents, lowers);
  snprintf(text, sizeof text,
           "{\"type\":\"BertNormalizer\",\"clean_text\":true,\"handle_chinese_chars\":true,"
           "\"strip_accents\":%s,\"lowercase\":%s}",
           strips ? "true" : "false", lowers ? "true" : "false");
  return load_gguf_component(load, text, load_normalizer);
}

int load_gguf_wordpiece(tokenizer_load_t *load, const gguf_t *gguf) {
  tokenizer_t *tokenizer = load->tokenizer;
  wordpiece_t *wordpiece = &tokenizer->wordpiece;
  int code = load_gguf_component(load, pretokenizer_bert, load_pretokenizer);
  if (code == 0) code = load_gguf_tokens(load, gguf, put_piece);
  if (code == 0) code = read_normalizer(load, gguf);
  if (code != 0) return code;
  int32_t unknown = load_gguf_id(load, gguf, KEY("unknown_token_id"));
  if (unknown < 0) unknown = spelled(load, "[UNK]");
  if (unknown < 0)
    return load_fail(load, KEY("unknown_token_id"), "is missing, and no token is spelled [UNK]");
  wordpiece->unk = tokenizer->bpe.unk = (uint32_t)unknown;
  wordpiece->chars_max = WORD_CHARS_MAX;
  if (!wordpiece_finish(wordpiece, &tokenizer->bpe.vocab, going_on, sizeof going_on - 1))
    return load_no_memory(load);
  code = load_gguf_added(load, gguf, false);
  if (code == 0) code = load_gguf_component(load, decoder_bert, load_decoder);
  if (code == 0) code = load_gguf_ends(load, gguf, "[CLS]", "[SEP]", 1);
  tokenizer->pair.typed = true; /* the second text is of type 1 */
  tokenizer->pair.first_typed = tokenizer->pair.count[1];
  return code;
}

/* ---- Unigram ---- */

static int put_unigram(tokenizer_load_t *load, int64_t type, const char *text, size_t length,
                       uint32_t id) {
  (void)type;
  return load_gguf_put(load, text, length, id);
}

static int read_charsmap(tokenizer_load_t *load, const gguf_t *gguf) {
  const gguf_value_t *map = gguf_get(gguf, KEY("precompiled_charsmap"));
  char reason[CHARSMAP_REASON_MAX];
  int code = load_normalizer(load, NULL);
  if (code != 0 || map == NULL || map->length == 0) return code;
  if (map->kind != GGUF_ARRAY || (map->element != GGUF_U8 && map->element != GGUF_I8))
    return load_fail(load, KEY("precompiled_charsmap"), "is no list of bytes");
  normalizer_t *normalizer = &load->tokenizer->normalizer;
  normalizer_step_t *step = &normalizer->steps[normalizer->num_steps++];
  step->kind = NORMALIZE_CHARSMAP;
  step->charsmap = charsmap_of_bytes(map->data, map->length, reason);
  if (step->charsmap == NULL && reason[0] == '\0') return load_no_memory(load);
  return step->charsmap != NULL ? 0 : load_fail(load, KEY("precompiled_charsmap"), "%s", reason);
}

static int read_scores(tokenizer_load_t *load, const gguf_t *gguf) {
  const gguf_value_t *scores = gguf_get(gguf, KEY("scores"));
  unigram_t *unigram = &load->tokenizer->unigram;
  const uint32_t num_ids = load->tokenizer->bpe.vocab.num_ids;
  double lowest = INFINITY;
  if (scores == NULL || scores->kind != GGUF_ARRAY || scores->count != num_ids)
    return load_fail(load, KEY("scores"), "%u scores for %u tokens",
                     scores == NULL ? 0 : scores->count, num_ids);
  unigram->scores = calloc(num_ids, sizeof *unigram->scores);
  if (unigram->scores == NULL) return load_no_memory(load);
  for (uint32_t id = 0; id < num_ids; id++) {
    unigram->scores[id] = never;
    int64_t type = load_gguf_type(gguf, id);
    if (type != TYPE_NORMAL && type != TYPE_USER_DEFINED) continue;
    if (!gguf_double(scores, id, &unigram->scores[id]) || !isfinite(unigram->scores[id]))
      return load_fail(load, KEY("scores"), "the score of token %u is no number", id);
    if (unigram->scores[id] < lowest) lowest = unigram->scores[id];
  }
  unigram->unk_score = lowest - unk_penalty;
  return 0;
}

int load_gguf_unigram(tokenizer_load_t *load, const gguf_t *gguf) {
  tokenizer_t *tokenizer = load->tokenizer;
  const bool words = load_gguf_flag(gguf, KEY("remove_extra_whitespaces"), true);
  const bool spaced = load_gguf_flag(gguf, KEY("add_space_prefix"), true);
  int code = read_charsmap(load, gguf);
  if (code == 0)
    code = load_gguf_component(load,
                               !spaced ? pretokenizer_never
                               : words ? pretokenizer_words
                                       : pretokenizer_always,
                               load_pretokenizer);
  if (code == 0) code = load_gguf_tokens(load, gguf, put_unigram);
  if (code == 0) code = read_scores(load, gguf);
  if (code != 0) return code;
  int32_t unknown = load_gguf_id(load, gguf, KEY("unknown_token_id"));
  for (uint32_t id = 0; unknown < 0 && id < tokenizer->bpe.vocab.num_ids; id++) {
    if (load_gguf_type(gguf, id) == TYPE_UNKNOWN) unknown = (int32_t)id;
  }
  if (unknown < 0)
    return load_fail(load, KEY("unknown_token_id"), "is missing, and no token has the type 2");
  tokenizer->unigram.unk = tokenizer->bpe.unk = (uint32_t)unknown;
  if (!unigram_finish(&tokenizer->unigram, &tokenizer->bpe.vocab)) return load_no_memory(load);
  code = load_gguf_added(load, gguf, false);
  if (code == 0) code = load_gguf_component(load, decoder_words, load_decoder);
  return code == 0 ? load_gguf_ends(load, gguf, "<s>", "</s>", 2) : code;
}
