/* detokenizer.c: stage 8 of 9, token ids -> text that may be sent. Next: mailbox.c.
 *
 * The engine thread feeds the ids of each sequence; a sequence's state is used by no other thread.
 * Bytes are decoded once: complete UTF-8 is passed on, an unfinished character waits (at most 3
 * bytes), bytes that can never be completed become one U+FFFD per ill-formed part. Text that may
 * turn into a stop string is held back, and nothing else is. Never allocates, never looks back.
 */
#include "engine/text/stream/detokenizer.h"

#include "engine/base/utf8.h"
#include "engine/base/util.h"
#include "engine/text/stream/stop_set.h"

#include <string.h>

static const char replacement[] = "\xEF\xBF\xBD"; /* U+FFFD */

void detokenizer_init(detokenizer_t *detokenizer, const tokenizer_t *tokenizer,
                      const stop_set_t *stops, bool skip_special_tokens, bool include_stop_string,
                      char *held) {
  *detokenizer = (detokenizer_t){.tokenizer = tokenizer,
                                 .stops = stops,
                                 .skip_special_tokens = skip_special_tokens,
                                 .include_stop_string = include_stop_string,
                                 .held = held};
}

/* One call can give: the held bytes, and each byte of pending and token as a U+FFFD of 3 bytes. */
size_t detokenizer_out_max(const tokenizer_t *tokenizer, const stop_set_t *stops) {
  return stop_set_hold_max(stops) + 3 * (tokenizer_longest_token(tokenizer) + 4);
}

typedef struct output {
  char *text;
  size_t length;
  int stop_index;
} output_t;

/* Gives up the oldest held bytes until `keep` are left. */
static void release(detokenizer_t *detokenizer, output_t *out, uint32_t keep) {
  uint32_t n = detokenizer->num_held - keep;
  if (n == 0) return;
  memcpy(out->text + out->length, detokenizer->held, n);
  out->length += n;
  memmove(detokenizer->held, detokenizer->held + n, keep);
  detokenizer->num_held = keep;
}

/* Emits one character. A stop string can end only at its last byte, because both are UTF-8, but the
 * automaton runs over bytes, so it is walked byte by byte. */
static void emit(detokenizer_t *detokenizer, output_t *out, const char *text, int length,
                 bool search) {
  const stop_set_t *stop_set = detokenizer->stops;
  if (stop_set == NULL || !search) { /* a stop string cannot begin in text that is not searched */
    release(detokenizer, out, 0);
    detokenizer->stop_state = 0;
    memcpy(out->text + out->length, text, (size_t)length);
    out->length += (size_t)length;
    return;
  }
  for (int i = 0; i < length; i++) {
    uint8_t byte = (uint8_t)text[i];
    detokenizer->stop_state =
        stop_set->next[detokenizer->stop_state * stop_set->columns + stop_set->column[byte]];
    uint32_t depth = stop_set->depth[detokenizer->stop_state];
    int stop = stop_set->accept[detokenizer->stop_state];
    uint32_t hold = stop >= 0 ? (uint32_t)stop_set->length[stop] : depth;
    if (hold == 0) {
      release(detokenizer, out, 0);
      out->text[out->length++] = text[i];
      continue;
    }
    release(detokenizer, out, MIN(hold - 1, detokenizer->num_held));
    detokenizer->held[detokenizer->num_held++] = text[i];
    if (stop < 0) continue;
    if (detokenizer->include_stop_string) release(detokenizer, out, 0);
    detokenizer->num_held = 0;
    out->stop_index = stop;
    return;
  }
}

/* True when the bytes, ill-formed as they stand, are the start of some character. */
static bool may_continue(const uint8_t *pending, int used, int count) {
  return used == count && pending[0] >= 0xC2 && pending[0] <= 0xF4;
}

/* Takes one byte; complete or hopeless sequences leave the pending buffer. */
static void take_byte(detokenizer_t *detokenizer, output_t *out, char byte, bool search) {
  detokenizer->pending[detokenizer->num_pending++] = (uint8_t)byte;
  while (detokenizer->num_pending > 0 && out->stop_index < 0) {
    const char *pending = (const char *)detokenizer->pending;
    int span = utf8_span(pending, detokenizer->num_pending);
    int used = span > 0 ? span : -span;
    if (span < 0 && may_continue(detokenizer->pending, used, detokenizer->num_pending)) return;
    if (span > 0)
      emit(detokenizer, out, pending, span, search);
    else
      emit(detokenizer, out, replacement, 3, search);
    detokenizer->num_pending = (uint8_t)(detokenizer->num_pending - used);
    if (detokenizer->num_pending == 0) return;
    memmove(detokenizer->pending, detokenizer->pending + used, detokenizer->num_pending);
  }
}

/* Emits the leading bytes that are characters by themselves, if nothing is searched in them.
 * Returns how many these are. */
static size_t take_ascii(detokenizer_t *detokenizer, output_t *out, const char *bytes,
                         size_t length, bool search) {
  size_t count = 0;
  if (detokenizer->num_pending > 0 || (search && detokenizer->stops != NULL)) return 0;
  while (count < length && (uint8_t)bytes[count] < 0x80) count++;
  if (count > 0) emit(detokenizer, out, bytes, (int)count, false);
  return count;
}

static bool is_skipped(const detokenizer_t *detokenizer, int32_t id) {
  if (!detokenizer->skip_special_tokens ||
      !(tokenizer_flags(detokenizer->tokenizer, id) & TOKEN_SPECIAL))
    return false;
  for (int32_t i = 0; i < detokenizer->num_shown_ids; i++) {
    if (detokenizer->shown_ids[i] == id) return false;
  }
  return true;
}

void detokenizer_feed_to(detokenizer_t *detokenizer, int32_t id, bool search_stops, char *out,
                         detokenized_t *text) {
  output_t output = {.text = out, .stop_index = -1};
  size_t length;
  bool skip = is_skipped(detokenizer, id);
  const char *bytes = tokenizer_bytes(detokenizer->tokenizer, id, &length);
  size_t first = skip ? length : take_ascii(detokenizer, &output, bytes, length, search_stops);
  for (size_t i = first; i < length && output.stop_index < 0; i++)
    take_byte(detokenizer, &output, bytes[i], search_stops);
  text->text = out;
  text->length = output.length;
  text->stop_index = output.stop_index;
}

detokenized_t detokenizer_finish(detokenizer_t *detokenizer, char *out) {
  output_t output = {.text = out, .stop_index = -1};
  release(detokenizer, &output, 0);
  if (detokenizer->num_pending > 0) {
    memcpy(out + output.length, replacement, 3);
    output.length += 3;
  }
  detokenizer->num_pending = 0, detokenizer->stop_state = 0;
  return (detokenized_t){.text = out, .length = output.length, .stop_index = -1};
}
