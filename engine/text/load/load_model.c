/* load_model.c: the kind of model, and the BPE model of tokenizer.json, or vocab.json with
 * merges.txt.
 *
 * The loading thread only. Every merge must name tokens of the vocabulary, and so must its product;
 * bounds are checked before memory is taken.
 */
#include "engine/text/load/load.h"

#include <string.h>

static const char where_vocab[] = "model.vocab", where_merges[] = "model.merges";

int load_vocab(tokenizer_load_t *load, const json_t *vocab) {
  char quoted[96];
  int64_t id, highest = -1;
  if (vocab == NULL || vocab->type != JSON_OBJECT)
    return load_fail(load, where_vocab, "an object of token and id is needed");
  if (vocab->count > VOCAB_COUNT_MAX)
    return load_fail(load, where_vocab, "%u tokens, at most %d", vocab->count, VOCAB_COUNT_MAX);
  JSON_EACH(entry, vocab) {
    error_quote(quoted, sizeof quoted, entry->key, entry->key_length);
    if (!json_int64(entry, &id) || id < 0 || id >= VOCAB_ID_MAX)
      return load_fail(load, where_vocab, "the id of \"%s\" is not an integer below %d", quoted,
                       VOCAB_ID_MAX);
    if (entry->key_length > VOCAB_PIECE_BYTES_MAX)
      return load_fail(load, where_vocab, "\"%s\" is longer than %d bytes", quoted,
                       VOCAB_PIECE_BYTES_MAX);
    if (id > highest) highest = id;
  }
  vocab_t *v = &load->tokenizer->bpe.vocab;
  if (!vocab_init(v, (uint32_t)(highest + 1), vocab->count)) return load_no_memory(load);
  JSON_EACH(entry, vocab) {
    if (!json_int64(entry, &id)) continue; /* checked above */
    vocab_result_t result = vocab_put(v, entry->key, entry->key_length, (uint32_t)id);
    if (result == VOCAB_NO_MEMORY) return load_no_memory(load);
    if (result == VOCAB_DUPLICATE)
      return load_fail(load, where_vocab, "id %lld, or the token \"%s\", is there twice",
                       (long long)id,
                       error_quote(quoted, sizeof quoted, entry->key, entry->key_length));
  }
  return 0;
}

typedef struct merge_text {
  const char *data;
  size_t length;
} merge_text_t;

/* "a b" with exactly one space. */
static bool split_merge(const char *line, size_t length, merge_text_t *left, merge_text_t *right) {
  const char *space = memchr(line, ' ', length);
  if (space == NULL) return false;
  *left = (merge_text_t){line, (size_t)(space - line)};
  *right = (merge_text_t){space + 1, length - left->length - 1};
  return memchr(right->data, ' ', right->length) == NULL;
}

static int add_merge(tokenizer_load_t *load, const char *where, uint32_t rank, merge_text_t left,
                     merge_text_t right, buffer_t *joined) {
  bpe_t *bpe = &load->tokenizer->bpe;
  char quoted[96];
  joined->length = 0;
  if (!buffer_append(joined, left.data, left.length) ||
      !buffer_append(joined, right.data, right.length))
    return load_no_memory(load);
  uint32_t l = vocab_find(&bpe->vocab, left.data, left.length);
  uint32_t r = vocab_find(&bpe->vocab, right.data, right.length);
  uint32_t product = vocab_find(&bpe->vocab, joined->data, joined->length);
  if (l == NO_ID || r == NO_ID || product == NO_ID)
    return load_fail(load, where, "merge %u: \"%s\" or one of its parts is no token", rank,
                     error_quote(quoted, sizeof quoted, (char *)joined->data, joined->length));
  bpe_add_merge(bpe, rank, l, r, product);
  return 0;
}

int load_merge(tokenizer_load_t *load, const char *where, uint32_t rank, const char *line,
               size_t length, buffer_t *joined) {
  merge_text_t left, right;
  if (split_merge(line, length, &left, &right))
    return add_merge(load, where, rank, left, right, joined);
  return load_fail(load, where, "merge %u is not \"left right\"", rank);
}

static bool is_version(const char *line, size_t length) {
  return length >= 8 && memcmp(line, "#version", 8) == 0;
}

static int read_merge(tokenizer_load_t *load, const json_t *merge, uint32_t rank,
                      buffer_t *joined) {
  merge_text_t left, right;
  if (merge->type == JSON_STRING) {
    if (!split_merge(merge->text, merge->length, &left, &right))
      return load_fail(load, where_merges, "merge %u is not \"left right\"", rank);
  } else {
    const json_t *first = json_first(merge);
    if (merge->type != JSON_ARRAY || merge->count != 2 || first->type != JSON_STRING ||
        json_next(first)->type != JSON_STRING)
      return load_fail(load, where_merges, "merge %u is not [left, right]", rank);
    left = (merge_text_t){first->text, first->length};
    right = (merge_text_t){json_next(first)->text, json_next(first)->length};
  }
  return add_merge(load, where_merges, rank, left, right, joined);
}

static int read_merges(tokenizer_load_t *load, const json_t *merges) {
  buffer_t joined = {0};
  uint32_t rank = 0;
  if (merges == NULL || merges->type != JSON_ARRAY)
    return load_fail(load, where_merges, "an array is needed");
  if (merges->count > BPE_MERGES_MAX)
    return load_fail(load, where_merges, "%u merges, at most %d", merges->count, BPE_MERGES_MAX);
  int code = bpe_prepare(&load->tokenizer->bpe, merges->count);
  if (code != 0) return load_no_memory(load);
  JSON_EACH(merge, merges) {
    if (merge->type == JSON_STRING && is_version(merge->text, merge->length)) continue;
    if ((code = read_merge(load, merge, rank++, &joined)) != 0) break;
  }
  buffer_free(&joined);
  if (code == 0 && bpe_finish(&load->tokenizer->bpe) != 0) code = load_no_memory(load);
  return code;
}

/* Prefix and suffix of subwords belong to other kinds of vocabularies: refuse instead of guessing.
 */
static int check_plain(tokenizer_load_t *load, const json_t *model) {
  static const char *const keys[] = {"continuing_subword_prefix", "end_of_word_suffix"};
  double dropout = 0;
  for (int i = 0; i < 2; i++) {
    const json_t *value = load_field(model, keys[i]);
    if (value != NULL && !json_equals(value, ""))
      return load_fail(load, "model", "\"%s\" is not supported", keys[i]);
  }
  const json_t *value = load_field(model, "dropout");
  if (value != NULL && (!json_double(value, &dropout) || dropout != 0))
    return load_fail(load, "model", "\"dropout\" must be null or 0");
  return 0;
}

/* Legacy files have no type; a vocabulary that is a list tells a Unigram model. */
static bool is_unigram(const json_t *model) {
  const json_t *type = load_field(model, "type"), *vocab = load_field(model, "vocab");
  if (type != NULL) return json_equals(type, "Unigram");
  return vocab != NULL && vocab->type == JSON_ARRAY && load_field(model, "merges") == NULL;
}

/* The key tells a model of a legacy file. */
static bool is_wordpiece(const json_t *model) {
  const json_t *type = load_field(model, "type");
  if (type != NULL) return json_equals(type, "WordPiece");
  return load_field(model, "max_input_chars_per_word") != NULL;
}

int load_model(tokenizer_load_t *load, const json_t *model) {
  bpe_t *bpe = &load->tokenizer->bpe;
  char quoted[96];
  if (model == NULL || model->type != JSON_OBJECT)
    return load_fail(load, "model", "an object is needed");
  if (is_unigram(model)) return load_unigram(load, model);
  if (is_wordpiece(model)) return load_wordpiece(load, model);
  const json_t *type = load_field(model, "type");
  if (type == NULL && load_field(model, "merges") == NULL)
    return load_fail(load, "model", "neither a \"type\" nor \"merges\"");
  if (type != NULL && !json_equals(type, "BPE"))
    return load_fail(load, "model", "type \"%s\" is not supported", load_quote(quoted, type));
  if (!load_bool(load, model, "ignore_merges", "model", &bpe->ignore_merges) ||
      !load_bool(load, model, "byte_fallback", "model", &bpe->byte_fallback) ||
      !load_bool(load, model, "fuse_unk", "model", &bpe->fuse_unk))
    return ERR_MODEL_MALFORMED;
  int code = check_plain(load, model);
  if (code == 0) code = load_vocab(load, load_field(model, "vocab"));
  if (code != 0) return code;
  const json_t *unk = load_field(model, "unk_token");
  if (unk != NULL && unk->type != JSON_STRING)
    return load_fail(load, "model", "\"unk_token\" must be a string");
  bpe->unk = unk == NULL ? NO_ID : vocab_find(&bpe->vocab, unk->text, unk->length);
  return read_merges(load, load_field(model, "merges"));
}

/* merges.txt: one "left right" a line; empty lines and a #version line are skipped. Called twice,
 * the first time (joined NULL) to count. */
static int each_line(tokenizer_load_t *load, const load_doc_t *merges, buffer_t *joined,
                     uint32_t *count) {
  const char *at = merges->text, *end = merges->text + merges->length;
  *count = 0;
  while (at < end) {
    const char *line_end = memchr(at, '\n', (size_t)(end - at));
    if (line_end == NULL) line_end = end;
    size_t length = (size_t)(line_end - at);
    if (length > 0 && at[length - 1] == '\r') length--;
    if (length > 0 && !is_version(at, length)) {
      merge_text_t left, right;
      if (*count == BPE_MERGES_MAX) return load_fail(load, "merges", "too many lines");
      if (!split_merge(at, length, &left, &right))
        return load_fail(load, "merges", "merge %u is not \"left right\"", *count);
      int code = joined == NULL ? 0 : add_merge(load, where_merges, *count, left, right, joined);
      if (code != 0) return code;
      ++*count;
    }
    at = line_end < end ? line_end + 1 : end;
  }
  return 0;
}

int load_model_legacy(tokenizer_load_t *load, const json_t *vocab, const load_doc_t *merges) {
  bpe_t *bpe = &load->tokenizer->bpe;
  buffer_t joined = {0};
  uint32_t count;
  bpe->unk = NO_ID;
  int code = load_vocab(load, vocab);
  load->file = "merges.txt";
  if (code == 0) code = each_line(load, merges, NULL, &count);
  if (code != 0) return code;
  if (bpe_prepare(bpe, count) != 0) return load_no_memory(load);
  code = each_line(load, merges, &joined, &count);
  buffer_free(&joined);
  if (code == 0 && bpe_finish(bpe) != 0) code = load_no_memory(load);
  return code;
}
