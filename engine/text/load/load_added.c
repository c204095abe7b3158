/* load_added.c: added_tokens of tokenizer.json, numbered as the reference library does.
 *
 * The loading thread only; needs the model and the normaliser. The id in the file is not used: a
 * content that is in the model's vocabulary has that id, any other gets the next free one.
 */
#include "engine/text/load/load.h"

#include <stdlib.h>

static const char where[] = "added_tokens";

int load_added_begin(tokenizer_load_t *load, uint32_t count_max) {
  tokenizer_t *tokenizer = load->tokenizer;
  uint32_t ids = tokenizer->bpe.vocab.num_ids;
  if (ids < tokenizer->bpe.vocab.count) ids = tokenizer->bpe.vocab.count;
  if (count_max > LOAD_ADDED_MAX)
    return load_fail(load, where, "%u tokens, at most %d", count_max, LOAD_ADDED_MAX);
  load->added_max = count_max += LOAD_NAMED_MAX;
  tokenizer->added = calloc((size_t)count_max + 1, sizeof *tokenizer->added);
  tokenizer->added_of = calloc((size_t)ids + count_max + 1, sizeof *tokenizer->added_of);
  if (tokenizer->added == NULL || tokenizer->added_of == NULL ||
      !vocab_init(&tokenizer->added_vocab, ids + count_max, count_max))
    return load_no_memory(load);
  tokenizer->num_ids = tokenizer->bpe.vocab.num_ids;
  return 0;
}

/* Next id for a content that no vocabulary has: past the model's entries and past larger added ids.
 */
static uint32_t next_id(const tokenizer_t *tokenizer) {
  uint32_t entries = tokenizer->bpe.vocab.count;
  if (tokenizer->num_added == 0) return entries;
  return tokenizer->highest_added >= entries || entries == 0 ? tokenizer->highest_added + 1
                                                             : entries;
}

int load_added_at(tokenizer_load_t *load, const char *content, size_t length, uint32_t id,
                  added_token_t token) {
  tokenizer_t *tokenizer = load->tokenizer;
  token.id = id;
  if (token.id >= VOCAB_ID_MAX || token.id >= tokenizer->added_vocab.num_ids)
    return load_fail(load, where, "an id is not below %d", VOCAB_ID_MAX);
  vocab_result_t result = vocab_put(&tokenizer->added_vocab, content, length, token.id);
  if (result == VOCAB_NO_MEMORY) return load_no_memory(load);
  if (result == VOCAB_DUPLICATE)
    return load_fail(load, where, "two tokens get the id %u", token.id);
  tokenizer->added_of[token.id] = tokenizer->num_added;
  tokenizer->added[tokenizer->num_added++] = token;
  if (token.id > tokenizer->highest_added) tokenizer->highest_added = token.id;
  if (token.id >= tokenizer->num_ids) tokenizer->num_ids = token.id + 1;
  return 0;
}

int load_added_token(tokenizer_load_t *load, const char *content, size_t length,
                     added_token_t token) {
  tokenizer_t *tokenizer = load->tokenizer;
  if (length > VOCAB_PIECE_BYTES_MAX)
    return load_fail(load, where, "a content is longer than %d bytes", VOCAB_PIECE_BYTES_MAX);
  if (length == 0) return load_fail(load, where, "a content is empty");
  uint32_t id = vocab_find(&tokenizer->added_vocab, content, length);
  if (id != NO_ID) { /* a repeated content: the later properties are used */
    added_token_t *earlier = &tokenizer->added[tokenizer->added_of[id]];
    token.id = id, token.special |= earlier->special;
    *earlier = token;
    return 0;
  }
  if (tokenizer->num_added == load->added_max)
    return load_fail(load, where, "more than %u tokens", load->added_max);
  token.id = vocab_find(&tokenizer->bpe.vocab, content, length);
  if (token.id == NO_ID) token.id = next_id(tokenizer);
  return load_added_at(load, content, length, token.id, token);
}

int load_added_tokens(tokenizer_load_t *load, const json_t *list) {
  if (list == NULL) return load_added_begin(load, 0);
  if (list->type != JSON_ARRAY) return load_fail(load, where, "an array is needed");
  int code = load_added_begin(load, list->count);
  JSON_EACH(entry, list) {
    const json_t *content = load_field(entry, "content");
    bool special = false, normalized = true;
    added_token_t token = {0};
    int64_t id;
    if (code != 0) return code;
    if (content == NULL || content->type != JSON_STRING)
      return load_fail(load, where, "a token has no \"content\"");
    const json_t *given = load_field(entry, "id");
    if (given != NULL && (!json_int64(given, &id) || id < 0 || id >= VOCAB_ID_MAX))
      return load_fail(load, where, "an id is not an integer below %d", VOCAB_ID_MAX);
    if (!load_bool(load, entry, "special", where, &special)) return ERR_MODEL_MALFORMED;
    normalized = !special; /* the reference's default */
    if (!load_bool(load, entry, "single_word", where, &token.single_word) ||
        !load_bool(load, entry, "lstrip", where, &token.lstrip) ||
        !load_bool(load, entry, "rstrip", where, &token.rstrip) ||
        !load_bool(load, entry, "normalized", where, &normalized))
      return ERR_MODEL_MALFORMED;
    token.special = special, token.normalized = normalized;
    code = load_added_token(load, content->text, content->length, token);
  }
  return code;
}

/* Adds the contents of one matcher, special tokens first: of equal contents the first one wins. */
static int fill(tokenizer_load_t *load, token_matcher_t *matcher, bool normalized,
                normalizer_scratch_t *scratch) {
  tokenizer_t *tokenizer = load->tokenizer;
  size_t bytes = 0;
  for (int pass = 0; pass < 3; pass++) { /* sizes, special tokens, the others */
    for (uint32_t i = 0; i < tokenizer->num_added; i++) {
      const added_token_t *token = &tokenizer->added[i];
      size_t length = 0;
      if (token->normalized != normalized || (pass > 0 && token->special != (pass == 1))) continue;
      const uint8_t *text = vocab_string(&tokenizer->added_vocab, token->id, &length),
                    *limit = text + length;
      bool ok = !normalized ||
                (tokenizer->bare_added
                     ? normalizer_run_inner(&tokenizer->normalizer, scratch, &text, &length)
                     : normalizer_run(&tokenizer->normalizer, scratch, &text, &length, &limit));
      if (!ok) return load_no_memory(load);
      if (length == 0)
        return load_fail(load, where, "the normalizer leaves nothing of the token with id %u",
                         token->id);
      if (pass > 0) token_matcher_add(matcher, text, length, i);
      bytes += pass == 0 ? length : 0;
    }
    if (pass > 0) continue;
    if (bytes > ADDED_TOKENS_BYTES_MAX)
      return load_fail(load, where, "%zu bytes of contents, at most %d", bytes,
                       ADDED_TOKENS_BYTES_MAX);
    if (!token_matcher_init(matcher, bytes)) return load_no_memory(load);
  }
  token_matcher_finish(matcher);
  return 0;
}

int load_added_finish(tokenizer_load_t *load) {
  normalizer_scratch_t scratch = {0};
  int code = fill(load, &load->tokenizer->raw, false, &scratch);
  if (code == 0) code = fill(load, &load->tokenizer->normalized, true, &scratch);
  normalizer_scratch_free(&scratch);
  return code;
}
