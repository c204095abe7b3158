/* words.c: ids of a segment -> its words, as WhisperTokenizer of transformers combines them
 * (_combine_tokens_into_words). Any thread; no state.
 *
 * The text of a word is a span of the text of all, one behind another, and its ids are neighbours.
 */
#include "engine/base/utf8.h"
#include "engine/base/util.h"
#include "server/audio/audio.h"

#include <stdlib.h>
#include <string.h>

static const char REPLACEMENT[] = "\xEF\xBF\xBD";
static const char PUNCTUATION[] = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~";
static const char PREPENDED[] = "\"'\xE2\x80\x9C\xC2\xA1\xC2\xBF([{-"; /* "'“¡¿([{- */
/* "'.。,，!！?？:：”)]}、 */
static const char APPENDED[] =
    "\"'.\xE3\x80\x82,\xEF\xBC\x8C!\xEF\xBC\x81?\xEF\xBC\x9F:\xEF\xBC\x9A\xE2\x80\x9D)]}"
    "\xE3\x80\x81";

/* A text that is passed character by character. */
typedef struct span_text {
  const char *data;
  size_t length;
} span_text_t;

/* Whether a text has U+FFFD at this character, or ends before it. */
static bool is_lost(const span_text_t *text, size_t character) {
  size_t at = 0, seen = 0;
  for (; at < text->length; at++)
    if (!utf8_continues((uint8_t)text->data[at]) && seen++ == character) break;
  return at >= text->length ||
         (text->length - at >= 3 && memcmp(text->data + at, REPLACEMENT, 3) == 0);
}

/* As str.strip of Python has it. */
static bool is_space(uint32_t code) {
  return (code >= 0x09 && code <= 0x0D) || (code >= 0x1C && code <= 0x20) || code == 0x85 ||
         code == 0xA0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 ||
         code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
}

static void strip(span_text_t *text) {
  unsigned length;
  while (text->length > 0) {
    const uint8_t *bytes = (const uint8_t *)text->data;
    const size_t last = utf8_previous(bytes, text->length);
    if (!is_space(utf8_read(bytes + last, &length))) break;
    text->length = last;
  }
  while (text->length > 0 && is_space(utf8_read((const uint8_t *)text->data, &length))) {
    text->data += length;
    text->length -= length;
  }
}

static bool is_within(const char *data, size_t length, const char *all) {
  return length == 0 || memmem(all, strlen(all), data, length) != NULL;
}

/* ---- pieces ---- */

/* Whether the text that some ids make is whole: a character that is cut ends with the next ids. */
static bool is_whole(const span_text_t *piece, const span_text_t *all, size_t characters) {
  const char *bad = memmem(piece->data, piece->length, REPLACEMENT, 3);
  if (bad == NULL) return true;
  return is_lost(all, characters + utf8_count(piece->data, (size_t)(bad - piece->data)));
}

/* Of languages that have no spaces between words each piece is one. */
static bool joins(const span_text_t *piece, bool spaced, int32_t num_words) {
  span_text_t bare = *piece;
  if (num_words == 0 || !spaced || (piece->length > 0 && piece->data[0] == ' ')) return false;
  strip(&bare);
  return !is_within(bare.data, bare.length, PUNCTUATION);
}

typedef struct finding {
  const tokenizer_t *tokenizer;
  bool spaced;
  buffer_t *text;
  audio_word_t *words;
  int32_t count;
} finding_t;

static void add_piece(finding_t *finding, const span_text_t *piece, int32_t first, int32_t ids) {
  const size_t at = finding->text->length;
  buffer_append(finding->text, piece->data, piece->length);
  if (joins(piece, finding->spaced, finding->count)) {
    finding->words[finding->count - 1].length += piece->length;
    finding->words[finding->count - 1].num_ids += ids;
    return;
  }
  finding->words[finding->count++] =
      (audio_word_t){.at = at, .length = piece->length, .first = first, .num_ids = ids};
}

static int find_pieces(finding_t *finding, const int32_t *ids, int32_t count) {
  span_text_t all = {0}, piece = {0};
  char *whole = NULL, *part = NULL;
  inferd_error_t error;
  size_t characters = 0;
  int32_t first = 0;
  int code =
      tokenizer_decode(finding->tokenizer, ids, (size_t)count, true, &whole, &all.length, &error);
  all.data = whole;
  for (int32_t i = 0; code == 0 && i < count; i++) {
    code = tokenizer_decode(finding->tokenizer, ids + first, (size_t)(i + 1 - first), true, &part,
                            &piece.length, &error);
    piece.data = part;
    if (code == 0 && is_whole(&piece, &all, characters)) {
      add_piece(finding, &piece, first, i + 1 - first);
      characters += utf8_count(piece.data, piece.length);
      first = i + 1;
    }
    free(part);
    part = NULL;
  }
  free(whole);
  return code != 0 || finding->text->failed ? ERR_NO_MEMORY : 0;
}

/* ---- punctuation ---- */

static void join(audio_word_t *before, audio_word_t *behind, bool into_behind) {
  audio_word_t both = {.at = before->at,
                       .length = before->length + behind->length,
                       .first = before->first,
                       .num_ids = before->num_ids + behind->num_ids};
  *(into_behind ? behind : before) = both;
  (into_behind ? before : behind)->num_ids = 0;
}

/* Marks that begin a word go to the next one, then those that end one to the one before. */
static void join_punctuation(finding_t *finding) {
  const char *text = finding->text->data;
  audio_word_t *words = finding->words;
  for (int32_t i = finding->count - 2, j = finding->count - 1; i >= 0; i--) {
    span_text_t bare = {text + words[i].at, words[i].length};
    const bool spaced = bare.length > 0 && bare.data[0] == ' ';
    strip(&bare);
    if (spaced && is_within(bare.data, bare.length, PREPENDED))
      join(&words[i], &words[j], true);
    else
      j = i;
  }
  for (int32_t i = 0, j = 1; j < finding->count; j++) {
    const audio_word_t *word = &words[i];
    const bool open = word->length == 0 || text[word->at + word->length - 1] != ' ';
    if (words[j].num_ids == 0) continue;
    if (word->num_ids > 0 && open && is_within(text + words[j].at, words[j].length, APPENDED))
      join(&words[i], &words[j], false);
    else
      i = j;
  }
}

int32_t audio_find_words(const tokenizer_t *tokenizer, const char *language, const int32_t *ids,
                         int32_t count, audio_word_t *words, buffer_t *text) {
  static const char *const unspaced[] = {"zh", "ja", "th", "lo", "my", "yue"};
  finding_t finding = {.tokenizer = tokenizer, .spaced = true, .text = text, .words = words};
  for (size_t i = 0; language != NULL && i < ARRAY_LEN(unspaced); i++)
    if (strcmp(language, unspaced[i]) == 0) finding.spaced = false;
  const int code = find_pieces(&finding, ids, count);
  if (code != 0) return code;
  join_punctuation(&finding);
  int32_t kept = 0;
  for (int32_t i = 0; i < finding.count; i++) {
    span_text_t bare = {text->data + words[i].at, words[i].length};
    strip(&bare);
    if (words[i].num_ids == 0 || bare.length == 0) continue;
    words[kept] = words[i];
    words[kept].at = (size_t)(bare.data - text->data);
    words[kept++].length = bare.length;
  }
  return kept;
}
