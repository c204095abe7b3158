/* load_tekken.c: tekken.json, the tokenizer file of Mistral, where there is no tokenizer.json.
 *
 * The vocabulary is a list of byte strings in the order of their merges, as tiktoken has it. The
 * special tokens have the first ids, the vocabulary the ids after them, as in mistral_common. The
 * loading thread only.
 */
#include "engine/base/utf8.h"
#include "engine/base/util.h"
#include "engine/text/base64.h"
#include "engine/text/load/load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEKKEN_PIECE_BYTES_MAX = 1024, TEKKEN_SPECIAL_MAX = 10000 };

static const char where[] = "vocab";

typedef struct tekken {
  tokenizer_load_t *load;
  const json_t *vocab, *special;
  int64_t num_special, num_pieces; /* num_pieces: of the vocabulary, without the special ones */
  buffer_t bytes; /* scratch: the bytes of a piece, then its spelling in the byte-level alphabet */
} tekken_t;

/* Special tokens of files that do not list them (version v3). */
static const char *const old_special[] = {"<unk>",
                                          "<s>",
                                          "</s>",
                                          "[INST]",
                                          "[/INST]",
                                          "[AVAILABLE_TOOLS]",
                                          "[/AVAILABLE_TOOLS]",
                                          "[TOOL_RESULTS]",
                                          "[/TOOL_RESULTS]",
                                          "[TOOL_CALLS]",
                                          "[IMG]",
                                          "<pad>",
                                          "[IMG_BREAK]",
                                          "[IMG_END]",
                                          "[PREFIX]",
                                          "[MIDDLE]",
                                          "[SUFFIX]",
                                          "[SYSTEM_PROMPT]",
                                          "[/SYSTEM_PROMPT]",
                                          "[TOOL_CONTENT]"};

static int read_head(tekken_t *tekken, const json_t *root, const json_t **pattern) {
  tokenizer_load_t *load = tekken->load;
  const json_t *config = load_field(root, "config");
  int64_t size;
  *pattern = load_field(config, "pattern");
  tekken->vocab = load_field(root, "vocab");
  tekken->special = load_field(root, "special_tokens");
  if (*pattern == NULL || (*pattern)->type != JSON_STRING)
    return load_fail(load, "config", "a string \"pattern\" is needed");
  if (!json_int64(load_field(config, "default_vocab_size"), &size) ||
      !json_int64(load_field(config, "default_num_special_tokens"), &tekken->num_special))
    return load_fail(load, "config",
                     "\"default_vocab_size\" and \"default_num_special_tokens\" are needed");
  if (tekken->num_special < 3 || tekken->num_special > TEKKEN_SPECIAL_MAX ||
      size <= tekken->num_special || size > VOCAB_COUNT_MAX)
    return load_fail(load, "config", "the sizes %lld and %lld are out of range", (long long)size,
                     (long long)tekken->num_special);
  tekken->num_pieces = size - tekken->num_special;
  if (tekken->vocab == NULL || tekken->vocab->type != JSON_ARRAY ||
      tekken->vocab->count < tekken->num_pieces)
    return load_fail(load, where, "a list of at least %lld pieces is needed",
                     (long long)tekken->num_pieces);
  if (tekken->special != NULL && tekken->special->type != JSON_ARRAY)
    return load_fail(load, "special_tokens", "a list is needed");
  return 0;
}

/* Puts the bytes of base64 as characters of the byte-level alphabet. */
static int put_piece(tekken_t *tekken, const json_t *text, uint32_t id) {
  buffer_t *bytes = &tekken->bytes;
  bytes->length = 0;
  if (text == NULL || text->type != JSON_STRING || text->length > 2 * TEKKEN_PIECE_BYTES_MAX ||
      !buffer_reserve(bytes, text->length + 4 * TEKKEN_PIECE_BYTES_MAX) ||
      !base64_append(bytes, text->text, text->length) || bytes->length == 0 ||
      bytes->length > TEKKEN_PIECE_BYTES_MAX)
    return load_fail(tekken->load, where, "entry %u has no \"token_bytes\" of 1..%d bytes", id,
                     TEKKEN_PIECE_BYTES_MAX);
  size_t length = bytes->length;
  for (size_t i = 0; i < length; i++) {
    char spelled[4];
    int n = utf8_write(spelled, bpe_byte_char(bytes->bytes[i]));
    if (!buffer_append(bytes, spelled, (size_t)n)) return load_no_memory(tekken->load);
  }
  vocab_result_t result = vocab_put(&tekken->load->tokenizer->bpe.vocab, bytes->data + length,
                                    bytes->length - length, id);
  if (result == VOCAB_NO_MEMORY) return load_no_memory(tekken->load);
  if (result == VOCAB_ADDED) return 0;
  return load_fail(tekken->load, where, "entry %u, or its rank, is there twice", id);
}

static int read_vocab(tekken_t *tekken) {
  uint32_t first = (uint32_t)tekken->num_special, count = (uint32_t)tekken->num_pieces;
  vocab_t *vocab = &tekken->load->tokenizer->bpe.vocab;
  if (!vocab_init(vocab, first + count, count)) return load_no_memory(tekken->load);
  JSON_EACH(entry, tekken->vocab) {
    int64_t rank;
    if (!json_int64(load_field(entry, "rank"), &rank) || rank < 0)
      return load_fail(tekken->load, where, "an entry has no \"rank\"");
    if (rank >= tekken->num_pieces) continue; /* the file may hold a longer list than is used */
    int code = put_piece(tekken, load_field(entry, "token_bytes"), first + (uint32_t)rank);
    if (code != 0) return code;
  }
  if (vocab->count == count) return 0;
  return load_fail(tekken->load, where, "%u of %u pieces are there", vocab->count, count);
}

static bool all_merge(const void *context, uint32_t id) {
  (void)context, (void)id;
  return true;
}

static int read_merges(tekken_t *tekken) {
  uint32_t count = (uint32_t)tekken->num_pieces, *ids = calloc(count, sizeof *ids);
  if (ids == NULL) return load_no_memory(tekken->load);
  for (uint32_t i = 0; i < count; i++) ids[i] = (uint32_t)tekken->num_special + i;
  tekken->load->tokenizer->bpe.ignore_merges = true;
  int code = load_splits(tekken->load, &(split_order_t){ids, count, all_merge, NULL});
  free(ids);
  return code;
}

/* Returns the name of a special token: the one that the file lists; else the one of version v3;
 * else <SPECIAL_N>, written to `filler`. */
static const char *special_name(const tekken_t *tekken, int64_t rank, char filler[32],
                                size_t *length) {
  JSON_EACH(entry, tekken->special) {
    int64_t at;
    const json_t *text = load_field(entry, "token_str");
    if (!json_int64(load_field(entry, "rank"), &at) || at != rank) continue;
    if (text == NULL || text->type != JSON_STRING || text->length == 0) break;
    *length = text->length;
    return text->text;
  }
  if (tekken->special == NULL && rank < (int64_t)ARRAY_LEN(old_special)) {
    *length = strlen(old_special[rank]);
    return old_special[rank];
  }
  *length = (size_t)snprintf(filler, 32, "<SPECIAL_%lld>", (long long)rank);
  return filler;
}

/* Special tokens have the first ids; the vocabulary has no entries there. */
static int read_special(tekken_t *tekken) {
  tokenizer_load_t *load = tekken->load;
  int code = load_added_begin(load, (uint32_t)tekken->num_special);
  for (int64_t rank = 0; code == 0 && rank < tekken->num_special; rank++) {
    char filler[32];
    size_t length;
    const char *name = special_name(tekken, rank, filler, &length);
    code = load_added_at(load, name, length, (uint32_t)rank, (added_token_t){.special = true});
  }
  return code;
}

static int read_tekken(tekken_t *tekken, const json_t *root, load_ends_t *ends) {
  tokenizer_load_t *load = tekken->load;
  const json_t *pattern;
  int code = read_head(tekken, root, &pattern);
  if (code == 0) code = load_normalizer(load, NULL);
  if (code == 0) code = load_byte_pretokenizer(load, pattern->text, pattern->length);
  load->tokenizer->bpe.byte_level = true;
  if (code == 0) code = read_vocab(tekken);
  if (code == 0) code = read_merges(tekken);
  if (code == 0) code = read_special(tekken);
  load->tokenizer->decoder.steps[0].kind = DECODE_BYTE_LEVEL;
  load->tokenizer->decoder.num_steps = 1;
  *ends = (load_ends_t){1, 2}; /* <s> and </s> */
  return code;
}

int load_tekken(tokenizer_load_t *load, load_ends_t *ends, bool *found) {
  tekken_t tekken = {.load = load};
  load_doc_t file;
  int code = load_open(load, "tekken.json", &file, found);
  if (code != 0 || !*found) return code;
  code = read_tekken(&tekken, json_root(file.doc), ends);
  buffer_free(&tekken.bytes);
  load_close(&file);
  return code;
}
