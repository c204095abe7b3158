/* load_gguf.c: the vocabulary of a GGUF file -> a tokenizer.
 *
 * The loading thread only. The file has tokens, merges or scores, and the name of a pre-tokenizer,
 * whose pattern it does not have: the table here gives the components that tokenizer.json has for
 * it. A name that is not in the table is refused, because another pattern gives other ids silently.
 */
#include "engine/base/util.h"
#include "engine/file/gguf.h"
#include "engine/text/load/load_gguf_parts.h"
#include "engine/text/load/load_gguf_pre.h"

#include <math.h>
#include <stdlib.h>

static const char normalizer_spaced[] =
    "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":\"\xE2\x96\x81\"},"
    "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"\xE2\x96\x81\"}]}";
static const char normalizer_plain[] =
    "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"\xE2\x96\x81\"}";
static const char decoder_spaced[] =
    "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":"
    "\"\xE2\x96\x81\"},\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},"
    "{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]}";
static const char decoder_plain[] =
    "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":"
    "\"\xE2\x96\x81\"},\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}]}";
static const char decoder_bytes[] = "{\"type\":\"ByteLevel\"}";

/* Gives a component of tokenizer.json to its reader; the text is one of ours. */
int load_gguf_component(tokenizer_load_t *load, const char *text,
                        int (*reader)(tokenizer_load_t *load, const json_t *value)) {
  json_doc_t *doc = NULL;
  inferd_error_t reason = {0};
  if (text == NULL) return reader(load, NULL);
  int code = json_parse(text, strlen(text), &json_limits_model, &doc, &reason);
  if (code != 0) return load_fail(load, "pipeline", "%s", reason.message);
  code = reader(load, json_root(doc));
  json_free(doc);
  return code;
}

bool load_gguf_flag(const gguf_t *gguf, const char *key, bool absent) {
  gguf_bool(gguf_get(gguf, key), 0, &absent);
  return absent;
}

/* An id of the vocabulary, or -1. */
int32_t load_gguf_id(const tokenizer_load_t *load, const gguf_t *gguf, const char *key) {
  int64_t id;
  if (!gguf_int(gguf_get(gguf, key), 0, &id) || id < 0 || id >= load->tokenizer->bpe.vocab.num_ids)
    return -1;
  return (int32_t)id;
}

int64_t load_gguf_type(const gguf_t *gguf, uint32_t id) {
  int64_t type = TYPE_NORMAL;
  gguf_int(gguf_get(gguf, KEY("token_type")), id, &type);
  return type;
}

int load_gguf_put(tokenizer_load_t *load, const char *text, size_t length, uint32_t id) {
  char quoted[96];
  vocab_result_t result = vocab_put(&load->tokenizer->bpe.vocab, text, length, id);
  if (result == VOCAB_NO_MEMORY) return load_no_memory(load);
  if (result == VOCAB_DUPLICATE)
    return load_fail(load, KEY("tokens"), "token %u, \"%s\", is there twice", id,
                     error_quote(quoted, sizeof quoted, text, length));
  return 0;
}

/* As it stands in the file. */
static int put_token(tokenizer_load_t *load, int64_t type, const char *text, size_t length,
                     uint32_t id) {
  (void)type;
  return load_gguf_put(load, text, length, id);
}

int load_gguf_tokens(tokenizer_load_t *load, const gguf_t *gguf,
                     int (*put)(tokenizer_load_t *load, int64_t type, const char *text,
                                size_t length, uint32_t id)) {
  const gguf_value_t *tokens = gguf_get(gguf, KEY("tokens"));
  const gguf_value_t *types = gguf_get(gguf, KEY("token_type"));
  vocab_t *vocab = &load->tokenizer->bpe.vocab;
  const char *text;
  size_t at = 0, length;
  if (tokens == NULL || tokens->kind != GGUF_ARRAY || tokens->element != GGUF_STRING)
    return load_fail(load, KEY("tokens"), "a list of texts is needed");
  if (tokens->count == 0 || tokens->count > VOCAB_COUNT_MAX)
    return load_fail(load, KEY("tokens"), "%u tokens, supported: 1..%d", tokens->count,
                     VOCAB_COUNT_MAX);
  if (types != NULL && types->count != tokens->count)
    return load_fail(load, KEY("token_type"), "%u types for %u tokens", types->count,
                     tokens->count);
  if (!vocab_init(vocab, tokens->count, tokens->count)) return load_no_memory(load);
  for (uint32_t id = 0; gguf_next_string(tokens, &at, &text, &length); id++) {
    if (length > VOCAB_PIECE_BYTES_MAX)
      return load_fail(load, KEY("tokens"), "token %u is longer than %d bytes", id,
                       VOCAB_PIECE_BYTES_MAX);
    /* Ids that only fill up the embedding stay holes. */
    if (length == 0 || load_gguf_type(gguf, id) == TYPE_UNUSED) continue;
    int code = put(load, load_gguf_type(gguf, id), text, length, id);
    if (code != 0) return code;
  }
  return 0;
}

static int read_merges(tokenizer_load_t *load, const gguf_t *gguf) {
  const gguf_value_t *merges = gguf_get(gguf, KEY("merges"));
  buffer_t joined = {0};
  const char *text;
  size_t at = 0, length;
  int code = 0;
  if (merges == NULL || merges->kind != GGUF_ARRAY || merges->element != GGUF_STRING)
    return load_fail(load, KEY("merges"), "a list of texts is needed");
  if (bpe_prepare(&load->tokenizer->bpe, merges->count) != 0) return load_no_memory(load);
  for (uint32_t rank = 0; code == 0 && gguf_next_string(merges, &at, &text, &length); rank++)
    code = load_merge(load, KEY("merges"), rank, text, length, &joined);
  buffer_free(&joined);
  if (code == 0 && bpe_finish(&load->tokenizer->bpe) != 0) code = load_no_memory(load);
  return code;
}

static bool any_token(const void *context, uint32_t id) {
  (void)context, (void)id;
  return true;
}

/* Reads the scores of the normal tokens and makes the merges of them. */
static int read_scores(tokenizer_load_t *load, const gguf_t *gguf) {
  const gguf_value_t *scores = gguf_get(gguf, KEY("scores"));
  uint32_t num_ids = load->tokenizer->bpe.vocab.num_ids, count = 0;
  if (scores == NULL || scores->kind != GGUF_ARRAY || scores->count != num_ids)
    return load_fail(load, KEY("scores"), "%u scores for %u tokens",
                     scores == NULL ? 0 : scores->count, num_ids);
  scored_piece_t *order = calloc(num_ids, sizeof *order);
  int code = order == NULL ? load_no_memory(load) : 0;
  for (uint32_t id = 0; code == 0 && id < num_ids; id++) {
    if (load_gguf_type(gguf, id) != TYPE_NORMAL) continue;
    scored_piece_t *entry = &order[count++];
    *entry = (scored_piece_t){.id = id};
    if (!gguf_double(scores, id, &entry->score) || isnan(entry->score))
      code = load_fail(load, KEY("scores"), "the score of token %u is no number", id);
  }
  if (code == 0) code = load_splits_by_score(load, order, count, any_token, NULL);
  free(order);
  return code;
}

/* Reads the added tokens: those that are matched in a text before it is split. In Phi-3 an added
 * token also removes the spaces after it, with three exceptions. The file has no key for this, so
 * the caller sets `strips` by the architecture. */
int load_gguf_added(tokenizer_load_t *load, const gguf_t *gguf, bool strips) {
  static const char *const keep[] = {"<unk>", "<s>", "<|endoftext|>"};
  vocab_t *vocab = &load->tokenizer->bpe.vocab;
  uint32_t count = 0;
  for (uint32_t id = 0; id < vocab->num_ids; id++) {
    int64_t type = load_gguf_type(gguf, id);
    count += type == TYPE_CONTROL || type == TYPE_USER_DEFINED || type == TYPE_UNKNOWN;
  }
  int code = load_added_begin(load, count);
  for (uint32_t id = 0; code == 0 && id < vocab->num_ids; id++) {
    int64_t type = load_gguf_type(gguf, id);
    size_t length = 0;
    const char *text = (const char *)vocab_string(vocab, id, &length);
    if (text == NULL || (type != TYPE_CONTROL && type != TYPE_USER_DEFINED && type != TYPE_UNKNOWN))
      continue;
    added_token_t token = {.special = type != TYPE_USER_DEFINED, .rstrip = strips};
    for (size_t i = 0; i < ARRAY_LEN(keep); i++) {
      if (strlen(keep[i]) == length && memcmp(keep[i], text, length) == 0) token.rstrip = false;
    }
    code = load_added_token(load, text, length, token);
  }
  return code;
}

static void read_affixes(tokenizer_load_t *load, const gguf_t *gguf, bool bos_absent) {
  tokenizer_t *tokenizer = load->tokenizer;
  tokenizer->bos_id = load_gguf_id(load, gguf, KEY("bos_token_id"));
  tokenizer->eos_id = load_gguf_id(load, gguf, KEY("eos_token_id"));
  if (tokenizer->bos_id >= 0 && load_gguf_flag(gguf, KEY("add_bos_token"), bos_absent))
    tokenizer->prefix[tokenizer->num_prefix++] = tokenizer->bos_id;
  if (tokenizer->eos_id >= 0 && load_gguf_flag(gguf, KEY("add_eos_token"), false))
    tokenizer->suffix[tokenizer->num_suffix++] = tokenizer->eos_id;
}

static bool text_is(const gguf_t *gguf, const char *key, const char *wanted) {
  const char *text;
  size_t at = 0, length;
  return gguf_next_string(gguf_get(gguf, key), &at, &text, &length) && strlen(wanted) == length &&
         memcmp(text, wanted, length) == 0;
}

/* Byte-level BPE. */
static int read_gpt2(tokenizer_load_t *load, const gguf_t *gguf) {
  const char *text = "", *key = KEY("pre");
  size_t at = 0, length = 0;
  char quoted[64];
  if (!gguf_next_string(gguf_get(gguf, key), &at, &text, &length))
    return load_fail(load, key,
                     "is missing: the file is older than May 2024 and does not say how "
                     "text is split; take a newer one");
  const gguf_pre_t *pre = gguf_pre_find(text, length);
  if (pre == NULL)
    return load_fail(load, key,
                     "\"%s\" is not known, so its ids would be wrong; take the model as "
                     "safetensors with its tokenizer.json",
                     error_quote(quoted, sizeof quoted, text, length));
  int code = load_gguf_component(load, pre->normalizer, load_normalizer);
  if (code == 0) code = load_gguf_component(load, pre->pre_tokenizer, load_pretokenizer);
  load->tokenizer->bpe.byte_level = true;
  load->tokenizer->bpe.ignore_merges = pre->ignore_merges;
  if (code == 0) code = load_gguf_tokens(load, gguf, put_token);
  if (code == 0) code = read_merges(load, gguf);
  if (code == 0) code = load_gguf_added(load, gguf, false);
  if (code == 0) code = load_gguf_component(load, decoder_bytes, load_decoder);
  if (code == 0 && pre->separators > 0)
    return load_gguf_ends(load, gguf, "<s>", "</s>", pre->separators);
  if (code == 0) read_affixes(load, gguf, pre->adds_bos);
  return code;
}

/* BPE with merges over texts whose spaces are U+2581, and bytes for what is left: Gemma 4. */
static int read_gemma(tokenizer_load_t *load, const gguf_t *gguf) {
  bpe_t *bpe = &load->tokenizer->bpe;
  int code = load_gguf_component(load, normalizer_plain, load_normalizer);
  if (code == 0) code = load_gguf_component(load, NULL, load_pretokenizer);
  if (code == 0) code = load_gguf_tokens(load, gguf, put_token);
  bpe->byte_fallback = bpe->fuse_unk = true;
  int32_t unknown = load_gguf_id(load, gguf, KEY("unknown_token_id"));
  bpe->unk = unknown < 0 ? NO_ID : (uint32_t)unknown;
  if (code == 0) code = read_merges(load, gguf);
  if (code == 0) code = load_gguf_added(load, gguf, false);
  if (code == 0) code = load_gguf_component(load, decoder_plain, load_decoder);
  if (code == 0) read_affixes(load, gguf, true);
  return code;
}

/* SentencePiece's BPE. */
static int read_llama(tokenizer_load_t *load, const gguf_t *gguf) {
  bool spaced = load_gguf_flag(gguf, KEY("add_space_prefix"), true);
  bool strips = text_is(gguf, "general.architecture", "phi3");
  int code =
      load_gguf_component(load, spaced ? normalizer_spaced : normalizer_plain, load_normalizer);
  if (code == 0) code = load_gguf_component(load, NULL, load_pretokenizer);
  if (code == 0) code = load_gguf_tokens(load, gguf, put_token);
  load->tokenizer->bpe.byte_fallback = load->tokenizer->bpe.fuse_unk = true;
  int32_t unknown = load_gguf_id(load, gguf, KEY("unknown_token_id"));
  for (uint32_t id = 0; unknown < 0 && id < load->tokenizer->bpe.vocab.num_ids; id++) {
    if (load_gguf_type(gguf, id) == TYPE_UNKNOWN) unknown = (int32_t)id;
  }
  load->tokenizer->bpe.unk = unknown < 0 ? NO_ID : (uint32_t)unknown;
  if (code == 0) code = read_scores(load, gguf);
  if (code == 0) code = load_gguf_added(load, gguf, strips);
  if (code == 0)
    code = load_gguf_component(load, spaced ? decoder_spaced : decoder_plain, load_decoder);
  if (code == 0) read_affixes(load, gguf, true);
  return code;
}

int load_gguf(tokenizer_load_t *load, const char *path) {
  gguf_t *gguf;
  char quoted[64];
  const char *text = "", *slash = strrchr(path, '/');
  size_t at = 0, length = 0;
  load->file = slash != NULL ? slash + 1 : path;
  int code = gguf_open(path, false, &gguf, load->error);
  if (code != 0) return code;
  if (text_is(gguf, KEY("model"), "gpt2")) {
    code = read_gpt2(load, gguf);
  } else if (text_is(gguf, KEY("model"), "llama")) {
    code = read_llama(load, gguf);
  } else if (text_is(gguf, KEY("model"), "gemma4")) {
    code = read_gemma(load, gguf);
  } else if (text_is(gguf, KEY("model"), "bert")) {
    code = load_gguf_wordpiece(load, gguf);
  } else if (text_is(gguf, KEY("model"), "t5")) {
    code = load_gguf_unigram(load, gguf);
  } else if (gguf_get(gguf, KEY("model")) == NULL) {
    code = load_fail(load, KEY("model"),
                     "is missing; --skip-tokenizer-init serves token ids without a tokenizer");
  } else {
    gguf_next_string(gguf_get(gguf, KEY("model")), &at, &text, &length);
    code = load_fail(load, KEY("model"), "is \"%s\", supported: gpt2, llama, gemma4, bert, t5",
                     error_quote(quoted, sizeof quoted, text, length));
  }
  gguf_close(gguf);
  return code;
}
