/* tokenizer.h: text -> token ids and token ids -> bytes, with the same ids as Hugging Face
 * `tokenizers` on the same files.
 *
 * A tokenizer is read once at load and never changes: any number of threads may use it, each with
 * a scratch of its own. Nothing here runs on the loop thread except the O(1) lookups.
 */
#ifndef INFERD_ENGINE_TEXT_TOKENIZER_H
#define INFERD_ENGINE_TEXT_TOKENIZER_H

#include "engine/base/byte_span.h"
#include "engine/base/error.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

typedef struct tokenizer tokenizer_t;
typedef struct tokenizer_scratch tokenizer_scratch_t; /* caches and work arrays of one thread */

/* TOKEN_WHOLE: its bytes are whole characters of UTF-8, or it has none. */
enum { TOKEN_SPECIAL = 1, TOKEN_ADDED = 2, TOKEN_BYTE_FALLBACK = 4, TOKEN_WHOLE = 8 };
enum { TOKENIZER_WORD_MAX = 1 << 20 }; /* word_max of what clients send */

/* Reads `dir`/tokenizer.json, or vocab.json + merges.txt (GPT-2 pipeline), or tokenizer.model
 * (SentencePiece), or tekken.json, plus tokenizer_config.json, special_tokens_map.json where
 * present; or the vocabulary of the GGUF file that `dir` is or holds. 0, ERR_MODEL_MISSING,
 * ERR_MODEL_MALFORMED naming file and component, ERR_IO, ERR_NO_MEMORY. */
int tokenizer_load(const char *dir, tokenizer_t **out, inferd_error_t *error);
/* Makes a tokenizer without tokens, for a server of token ids: every id has no bytes, and
 * tokenizer_encode and tokenizer_decode refuse. 0 or ERR_NO_MEMORY. */
int tokenizer_none(tokenizer_t **out, inferd_error_t *error);
/* The refusal of whatever needs text: ERR_UNSUPPORTED_PARAMETER. `param` may be NULL. */
int tokenizer_refuse(const char *param, inferd_error_t *error);
void tokenizer_free(tokenizer_t *tokenizer);

/* Makes a scratch; NULL when memory is short. */
tokenizer_scratch_t *tokenizer_scratch_new(const tokenizer_t *tokenizer);
void tokenizer_scratch_free(tokenizer_scratch_t *scratch);

typedef struct tokenize_options {
  bool add_special_tokens; /* run the post-processor (BOS and the like) */
  size_t ids_max;          /* stop after this many ids; 0 = no bound */
  bool keeps_suffix;       /* ids_max cuts the text, not the ids that the post-processor appends */
  /* Only the last `tail` ids of the text are wanted, beside those of the post-processor: words
   * before them may be left out. The ids that come are those of the whole text. 0 = all are wanted.
   */
  size_t tail;
  size_t
      word_max; /* bytes of the longest word that is merged, see tokenizer_encode; 0 = no bound */
  const atomic_bool *cancelled; /* checked every 64 KiB of input; NULL = never cancelled */
  /* Bytes of the text in which no special token is found, not even in part: what a chat message
   * says is text. They only hide special tokens, they cut nothing. */
  const byte_span_t *plain;
  size_t num_plain;
  /* Not NULL: set, on success, to an array with the bytes of the text that each id stands for: the
   * offsets of Hugging Face `tokenizers`, in bytes. Ids of the post-processor stand nowhere: their
   * span begins at 1 and ends at 0. To be freed. Not with `tail`. */
  byte_span_t **spans;
} tokenize_options_t;

/* Encodes `length` bytes of valid UTF-8. *ids is malloc'ed (free() by the caller), *count its
 * length; both are set only on success. ERR_INTERNAL without memory, ERR_REQUEST_TIMEOUT when
 * cancelled, ERR_UNSUPPORTED_PARAMETER of tokenizer_refuse, ERR_INVALID_VALUE for a word above
 * `word_max`: the time and 36 times the memory of a word are spent before its first id is known.
 * Reaching ids_max is no error: *count is then ids_max. */
int tokenizer_encode(const tokenizer_t *tokenizer, tokenizer_scratch_t *scratch, const char *text,
                     size_t length, const tokenize_options_t *options, int32_t **ids, size_t *count,
                     inferd_error_t *error);

/* Two texts that were encoded without special tokens. */
typedef struct token_pair {
  const int32_t *first, *second;
  size_t num_first, num_second;
} token_pair_t;

/* Ids that the post-processor adds to a pair of texts, or -1 if it knows no pairs: *why says so. */
int32_t tokenizer_pair_extra(const tokenizer_t *tokenizer, const char **why);
/* Writes the ids of a pair as the post-processor joins them: room for num_first + num_second +
 * tokenizer_pair_extra. Returns the place of the first token of type 1 (token_type_ids), or -1 if
 * all have type 0. */
int64_t tokenizer_join(const tokenizer_t *tokenizer, const token_pair_t *pair, int32_t *out);

/* The bytes that tokenizer_encode takes for a text while it runs: the ids, and the text as the
 * normaliser and the pre-tokenizer change it. A word of megabytes takes more. */
static inline size_t tokenizer_memory(size_t length, const tokenize_options_t *options) {
  size_t ids = length + 64; /* at least a byte each, and those of the post-processor */
  size_t most = options->tail > 0 ? 2 * options->tail + TOKENIZER_WORD_MAX : options->ids_max;
  if (most > 0 && most < ids) ids = most;
  const size_t spans = options->spans != NULL ? 24 * length + ids * sizeof(byte_span_t) : 0;
  return ids * sizeof(int32_t) + 2 * length + spans;
}

int32_t tokenizer_vocab_size(const tokenizer_t *tokenizer); /* highest id + 1 */
static inline bool tokenizer_is_none(const tokenizer_t *tokenizer) {
  return tokenizer_vocab_size(tokenizer) == 0;
}
/* Returns the raw bytes of an id, as generated text after a prompt. Length 0 for ids that are
 * unused or out of range. */
const char *tokenizer_bytes(const tokenizer_t *tokenizer, int32_t id, size_t *length);
/* The same of an id that is not special and whose bytes are whole characters; NULL for others. */
const char *tokenizer_whole(const tokenizer_t *tokenizer, int32_t id, size_t *length);
/* Returns the spelling of an id in the vocabulary ("Ġis"; contents of added tokens as they are).
 * NULL, and length 0, for ids that are unused or out of range. */
const uint8_t *tokenizer_spelling(const tokenizer_t *tokenizer, int32_t id, size_t *length);
unsigned tokenizer_flags(const tokenizer_t *tokenizer, int32_t id); /* TOKEN_ bits */
/* Id of an exact token (vocabulary spelling, e.g. "<|im_end|>"), or -1. */
int32_t tokenizer_id(const tokenizer_t *tokenizer, const char *token, size_t length);
size_t tokenizer_longest_token(const tokenizer_t *tokenizer); /* bytes */

/* Whether an id stands for text that the vocabulary lacks. */
bool tokenizer_is_unknown(const tokenizer_t *tokenizer, int32_t id);
/* Whether pieces inside a word are spelled with a mark, such as "##". */
bool tokenizer_marks_inner(const tokenizer_t *tokenizer);
int32_t tokenizer_bos_id(const tokenizer_t *tokenizer); /* -1 = none */
int32_t tokenizer_eos_id(const tokenizer_t *tokenizer); /* of tokenizer_config.json; -1 = none */
double tokenizer_model_max_length(const tokenizer_t *tokenizer); /* 0 = not given */
/* Returns true if PCRE2 interprets a pattern of the pre-tokenizer, because no scanner knows it. */
bool tokenizer_interprets_patterns(const tokenizer_t *tokenizer);

/* Decodes a whole id list from position 0 (/detokenize, echo): strips the leading space that the
 * decoder of Llama-style models strips. *text is malloc'ed valid UTF-8 (invalid bytes become
 * U+FFFD). */
int tokenizer_decode(const tokenizer_t *tokenizer, const int32_t *ids, size_t count,
                     bool skip_special_tokens, char **text, size_t *length, inferd_error_t *error);
/* Bytes that tokenizer_decode holds at most for these ids, the text that it returns among them. */
size_t tokenizer_decode_memory(const tokenizer_t *tokenizer, const int32_t *ids, size_t count);

#endif
