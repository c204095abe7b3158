/* load_wordpiece.c: a WordPiece model of tokenizer.json.
 *
 * The loading thread only.
 */
#include "engine/text/load/load.h"

enum { CHARS_DEFAULT = 100, CHARS_MAX = 1 << 16, PREFIX_MAX = 64 };

int load_wordpiece(tokenizer_load_t *load, const json_t *model) {
  static const char where[] = "model";
  tokenizer_t *tokenizer = load->tokenizer;
  wordpiece_t *wordpiece = &tokenizer->wordpiece;
  vocab_t *vocab = &tokenizer->bpe.vocab;
  const json_t *given = load_field(model, "continuing_subword_prefix");
  const json_t *unk = load_field(model, "unk_token");
  const json_t *most = load_field(model, "max_input_chars_per_word");
  char prefix[PREFIX_MAX] = "##";
  unsigned prefix_length = 2;
  int64_t chars = CHARS_DEFAULT;
  if (tokenizer->pretokenizer.byte_level)
    return load_fail(load, where, "a WordPiece model behind ByteLevel is not supported");
  if (given != NULL && !load_text(given, prefix, &prefix_length, PREFIX_MAX))
    return load_fail(load, where,
                     "\"continuing_subword_prefix\" must be a string of at most %d "
                     "bytes",
                     PREFIX_MAX);
  if (most != NULL && (!json_int64(most, &chars) || chars < 1 || chars > CHARS_MAX))
    return load_fail(load, where, "\"max_input_chars_per_word\" must be from 1 to %d", CHARS_MAX);
  if (unk == NULL || unk->type != JSON_STRING)
    return load_fail(load, where, "\"unk_token\" must be a string");
  int code = load_vocab(load, load_field(model, "vocab"));
  if (code != 0) return code;
  wordpiece->unk = tokenizer->bpe.unk = vocab_find(vocab, unk->text, unk->length);
  wordpiece->chars_max = (uint32_t)chars;
  if (wordpiece->unk == NO_ID)
    return load_fail(load, where, "\"unk_token\" must be in the vocabulary");
  return wordpiece_finish(wordpiece, vocab, prefix, prefix_length) ? 0 : load_no_memory(load);
}
