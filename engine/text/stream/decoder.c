/* decoder.c: the decoder chain of tokenizer.json, compiled to bytes per id.
 *
 * The loading thread compiles it; tokenizer_decode runs on worker threads. Generated text never
 * passes here: detokenizer.c copies the compiled bytes.
 */
#include "engine/base/hex.h"
#include "engine/base/utf8.h"
#include "engine/base/util.h"
#include "engine/text/tokenizer_internal.h"
#include "engine/text/unicode/unicode.h"

#include <stdlib.h>

enum { DECODED_BYTES_MAX = 1 << 30, LOSSY_BYTES = 3 }; /* LOSSY: of a U+FFFD */

/* A token spelled <0xHH> stands for that byte. */
static int fallback_byte_of(const uint8_t *text, size_t n) {
  if (n != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>') return -1;
  int high = hex_value((char)text[3]), low = hex_value((char)text[4]);
  return high < 0 || low < 0 ? -1 : high << 4 | low;
}

/* Characters of the byte-level alphabet -> bytes; a token with any other character stays as it is.
 */
static bool byte_level(const uint8_t *text, size_t n, buffer_t *out) {
  size_t start = out->length;
  if (!buffer_reserve(out, n)) return false;
  for (size_t at = 0; at < n;) {
    unsigned length;
    int byte = bpe_char_byte(utf8_read(text + at, &length));
    if (byte < 0) {
      out->length = start;
      return buffer_append(out, text, n);
    }
    out->bytes[out->length++] = (uint8_t)byte;
    at += length;
  }
  return true;
}

static bool replace(const uint8_t *text, size_t n, const char *pattern, size_t pattern_length,
                    const char *content, size_t content_length, buffer_t *out) {
  const uint8_t *end = text + n, *hit;
  while ((hit = memmem(text, (size_t)(end - text), pattern, pattern_length)) != NULL) {
    if (!buffer_append(out, text, (size_t)(hit - text)) ||
        !buffer_append(out, content, content_length))
      return false;
    text = hit + pattern_length;
  }
  return buffer_append(out, text, (size_t)(end - text));
}

static bool strip(const decoder_step_t *step, const uint8_t *text, size_t n, buffer_t *out) {
  size_t m = step->content_length;
  for (uint32_t i = 0; i < step->start && n >= m && memcmp(text, step->content, m) == 0; i++)
    text += m, n -= m;
  for (uint32_t i = 0; i < step->stop && n >= m && memcmp(text + n - m, step->content, m) == 0; i++)
    n -= m;
  return buffer_append(out, text, n);
}

/* Takes the space out of " ." and the like, in the order of the reference library. */
static bool clean_up(buffer_t *out, size_t start) {
  static const char *const pairs[][2] = {{" .", "."},     {" ?", "?"},           {" !", "!"},
                                         {" ,", ","},     {" ' ", "'"},          {" n't", "n't"},
                                         {" 'm", "'m"},   {" do not", " don't"}, {" 's", "'s"},
                                         {" 've", "'ve"}, {" 're", "'re"}};
  buffer_t work = {0};
  bool ok = true;
  for (size_t i = 0; ok && i < ARRAY_LEN(pairs); i++) {
    const uint8_t *text = out->bytes + start;
    size_t n = out->length - start, length = strlen(pairs[i][0]);
    if (memmem(text, n, pairs[i][0], length) == NULL) continue;
    work.length = 0;
    ok = replace(text, n, pairs[i][0], length, pairs[i][1], strlen(pairs[i][1]), &work);
    out->length = start;
    ok = ok && buffer_append(out, work.bytes, work.length);
  }
  buffer_free(&work);
  return ok;
}

static bool wordpiece(const decoder_step_t *step, const uint8_t *text, size_t n, bool first,
                      buffer_t *out) {
  size_t m = step->pattern_length, start = out->length;
  bool inner = n >= m && memcmp(text, step->pattern, m) == 0;
  if (!first && inner) text += m, n -= m;
  if (!first && !inner && !buffer_append(out, " ", 1)) return false;
  return buffer_append(out, text, n) && (!step->cleans_up || clean_up(out, start));
}

static bool run_step(const decoder_step_t *step, const uint8_t *text, size_t n, bool first,
                     buffer_t *out, bool *fallback) {
  int byte;
  switch (step->kind) {
  case DECODE_BYTE_LEVEL: return byte_level(text, n, out);
  case DECODE_WORDPIECE: return wordpiece(step, text, n, first, out);
  case DECODE_STRIP: return strip(step, text, n, out);
  case DECODE_BYTE_FALLBACK:
    if ((byte = fallback_byte_of(text, n)) < 0) return buffer_append(out, text, n);
    *fallback = true;
    return buffer_append(out, &(uint8_t){(uint8_t)byte}, 1);
  case DECODE_METASPACE:
    return replace(text, n, step->pattern, step->pattern_length, " ",
                   first && !step->keep_first ? 0 : 1, out);
  case DECODE_REPLACE:
    return replace(text, n, step->pattern, step->pattern_length, step->content,
                   step->content_length, out);
  }
  return false;
}

/* Appends the bytes of one token; `first`: as the first token of a text. `work` are buffers for the
 * steps between. False: no memory. */
static bool append_token(const decoder_t *decoder, const uint8_t *token, size_t length, bool first,
                         buffer_t work[2], buffer_t *out, bool *fallback) {
  bool ok = true;
  *fallback = false;
  for (unsigned i = 0; i < decoder->num_steps && ok && !*fallback; i++) {
    buffer_t *to = &work[i & 1];
    to->length = 0;
    ok = buffer_reserve(to, 1) && run_step(&decoder->steps[i], token, length, first, to, fallback);
    token = to->bytes, length = to->length;
  }
  if (ok && decoder->join_with_spaces && !first) ok = buffer_append(out, " ", 1);
  return ok && buffer_append(out, token, length);
}

/* What the decoder chain starts from: an added token that was normalised on the way in is spelled
 * in its normalised form, any other token as in the file. NULL for a hole or without memory (*ok).
 */
static const uint8_t *decoder_input(const tokenizer_t *tokenizer, uint32_t id,
                                    normalizer_scratch_t *scratch, size_t *length, bool *ok) {
  const uint8_t *token = tokenizer_spelling(tokenizer, (int32_t)id, length);
  size_t unused;
  if (token == NULL || vocab_string(&tokenizer->added_vocab, id, &unused) == NULL) return token;
  if (!tokenizer->added[tokenizer->added_of[id]].normalized) return token;
  const uint8_t *limit = token + *length;
  *ok = tokenizer->bare_added
            ? normalizer_run_inner(&tokenizer->normalizer, scratch, &token, length)
            : normalizer_run(&tokenizer->normalizer, scratch, &token, length, &limit);
  return *ok ? token : NULL;
}

static bool is_whole(const uint8_t *bytes, size_t length) {
  for (size_t at = 0; at < length;) {
    int span = utf8_span((const char *)bytes + at, length - at);
    if (span <= 0) return false;
    at += (size_t)span;
  }
  return true;
}

int decoder_compile(tokenizer_t *tokenizer) {
  tokenizer->text_offset = calloc((size_t)tokenizer->num_ids + 1, sizeof *tokenizer->text_offset);
  tokenizer->flags = calloc((size_t)tokenizer->num_ids + 1, sizeof *tokenizer->flags);
  buffer_t work[2] = {0};
  normalizer_scratch_t scratch = {0};
  bool ok = tokenizer->text_offset != NULL && tokenizer->flags != NULL &&
            buffer_reserve(&tokenizer->text, 1);
  for (uint32_t id = 0; ok && id < tokenizer->num_ids; id++) {
    size_t length = 0, before = tokenizer->text.length;
    bool fallback = false;
    const uint8_t *token = decoder_input(tokenizer, id, &scratch, &length, &ok);
    if (token != NULL)
      ok = append_token(&tokenizer->decoder, token, length, false, work, &tokenizer->text,
                        &fallback) &&
           tokenizer->text.length <= DECODED_BYTES_MAX;
    tokenizer->text_offset[id + 1] = (uint32_t)tokenizer->text.length;
    tokenizer->flags[id] = fallback ? TOKEN_BYTE_FALLBACK : 0;
    if (is_whole(tokenizer->text.bytes + before, tokenizer->text.length - before))
      tokenizer->flags[id] |= TOKEN_WHOLE;
    if (tokenizer->text.length - before > tokenizer->longest_token)
      tokenizer->longest_token = tokenizer->text.length - before;
  }
  for (uint32_t i = 0; ok && i < tokenizer->num_added; i++)
    tokenizer->flags[tokenizer->added[i].id] |=
        (uint8_t)(TOKEN_ADDED | (tokenizer->added[i].special ? TOKEN_SPECIAL : 0));
  normalizer_scratch_free(&scratch);
  buffer_free(&work[0]);
  buffer_free(&work[1]);
  return ok ? 0 : ERR_NO_MEMORY;
}

/* Bytes that append_lossy appends. */
static size_t lossy_length(const uint8_t *text, size_t n) {
  size_t length = 0;
  for (size_t at = 0; at < n;) {
    int span = utf8_span((const char *)text + at, n - at);
    length += span > 0 ? (size_t)span : LOSSY_BYTES;
    at += (size_t)(span > 0 ? span : -span);
  }
  return length;
}

/* Appends the bytes as UTF-8, one U+FFFD for each ill-formed part. */
static bool append_lossy(buffer_t *out, const uint8_t *text, size_t n) {
  for (size_t at = 0; at < n;) {
    int span = utf8_span((const char *)text + at, n - at);
    if (span > 0 ? !buffer_append(out, text + at, (size_t)span)
                 : !buffer_append(out, "\xEF\xBF\xBD", LOSSY_BYTES))
      return false;
    at += (size_t)(span > 0 ? span : -span);
  }
  return true;
}

/* All bytes of the kept ids, with the rule for the first token and for the start of the text. */
static bool join_ids(const tokenizer_t *tokenizer, const int32_t *ids, size_t count,
                     bool skip_special, buffer_t *out) {
  buffer_t work[2] = {0};
  normalizer_scratch_t scratch = {0};
  bool first = true, ok = buffer_reserve(out, 1), fallback;
  for (size_t i = 0; ok && i < count; i++) {
    size_t length = 0;
    if (skip_special && (tokenizer_flags(tokenizer, ids[i]) & TOKEN_SPECIAL)) continue;
    if (first && tokenizer->decoder.first_differs) {
      const uint8_t *token =
          ids[i] < 0 ? NULL : decoder_input(tokenizer, (uint32_t)ids[i], &scratch, &length, &ok);
      if (token == NULL) continue;
      ok = append_token(&tokenizer->decoder, token, length, true, work, out, &fallback);
    } else {
      const char *text = tokenizer_bytes(tokenizer, ids[i], &length);
      ok = buffer_append(out, text, length);
    }
    first = false;
  }
  normalizer_scratch_free(&scratch);
  buffer_free(&work[0]);
  buffer_free(&work[1]);
  return ok;
}

/* The bytes of the ids; the first token, which may differ, is no longer than the longest. */
static size_t joined_max(const tokenizer_t *tokenizer, const int32_t *ids, size_t count) {
  size_t sum = tokenizer->longest_token + 1;
  for (size_t i = 0; i < count; i++) {
    size_t length = 0;
    (void)tokenizer_bytes(tokenizer, ids[i], &length);
    sum += length;
  }
  return sum;
}

/* Of ill-formed bytes, each may become a U+FFFD. */
size_t tokenizer_decode_memory(const tokenizer_t *tokenizer, const int32_t *ids, size_t count) {
  if (tokenizer_is_none(tokenizer)) return 0;
  return (1 + LOSSY_BYTES) * joined_max(tokenizer, ids, count);
}

int tokenizer_decode(const tokenizer_t *tokenizer, const int32_t *ids, size_t count,
                     bool skip_special_tokens, char **text, size_t *length, inferd_error_t *error) {
  if (tokenizer_is_none(tokenizer)) return tokenizer_refuse(NULL, error);
  buffer_t joined = {0}, out = {0};
  bool ok = buffer_reserve(&joined, joined_max(tokenizer, ids, count)) &&
            join_ids(tokenizer, ids, count, skip_special_tokens, &joined);
  size_t at = 0, n = tokenizer->decoder.strip_length;
  for (uint32_t i = 0; ok && n > 0 && i < tokenizer->decoder.strip_start && joined.length - at >= n;
       i++) {
    if (memcmp(joined.data + at, tokenizer->decoder.strip_text, n) != 0) break;
    at += n;
  }
  ok = ok && buffer_reserve(&out, lossy_length(joined.bytes + at, joined.length - at) + 1) &&
       append_lossy(&out, joined.bytes + at, joined.length - at);
  buffer_free(&joined);
  if (!ok) {
    buffer_free(&out);
    return error_set(error, ERR_INTERNAL, NULL, "not enough memory to decode %zu tokens", count);
  }
  *text = out.data, *length = out.length;
  return 0;
}
