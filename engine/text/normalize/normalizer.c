/* normalizer.c: runs the normaliser chain over the text between two added tokens.
 *
 * Runs on the loading thread and the tokenizing threads, with a scratch that no other thread uses.
 * Never changes its input. The functions of the steps share one contract: they read
 * text[0, length). If the step changes the text, they append the whole result to `out` and set
 * *changed. Otherwise they leave `out` as it is. They return false if memory is short.
 */
#include "engine/text/normalize/normalizer.h"

#include "engine/base/checked.h"
#include "engine/text/unicode/unicode.h"

#include <stdlib.h>
#include <string.h>

/* Replaces every leftmost match of the pattern; matches do not overlap. */
static bool replace(const normalizer_step_t *step, const uint8_t *text, size_t length,
                    buffer_t *out, bool *changed) {
  const uint8_t *at = text, *end = text + length, *hit;
  while ((hit = memmem(at, (size_t)(end - at), step->pattern, step->pattern_length)) != NULL) {
    *changed = true;
    if (!buffer_append(out, at, (size_t)(hit - at)) ||
        !buffer_append(out, step->content, step->content_length))
      return false;
    at = hit + step->pattern_length;
  }
  return !*changed || buffer_append(out, at, (size_t)(end - at));
}

/* Does the same for a pattern of one byte, which is the common case (a space). */
static bool replace_byte(const normalizer_step_t *step, const uint8_t *text, size_t length,
                         buffer_t *out, bool *changed) {
  const uint8_t byte = (uint8_t)step->pattern[0];
  size_t count = 0, extra;
  for (size_t i = 0; i < length; i++) count += text[i] == byte;
  if (count == 0) return true;
  *changed = true;
  if (!checked_mul(count, step->content_length, &extra) || !checked_add(extra, length, &extra) ||
      !buffer_reserve(out, extra))
    return false;
  uint8_t *o = out->bytes + out->length;
  for (size_t i = 0; i < length; i++) {
    if (text[i] == byte) {
      for (unsigned j = 0; j < step->content_length; j++) *o++ = (uint8_t)step->content[j];
    } else {
      *o++ = text[i];
    }
  }
  out->length = (size_t)(o - out->bytes);
  return true;
}

/* Replaces every run of two or more spaces by one copy of the content. */
static bool replace_spaces(const normalizer_step_t *step, const uint8_t *text, size_t length,
                           buffer_t *out, bool *changed) {
  size_t kept = 0;
  for (size_t at = 0; at < length;) {
    size_t end = at;
    while (end < length && text[end] == ' ') end++;
    if (end - at >= 2) {
      *changed = true;
      if (!buffer_append(out, text + kept, at - kept) ||
          !buffer_append(out, step->content, step->content_length))
        return false;
      kept = end;
    }
    at = end + 1;
  }
  return !*changed || buffer_append(out, text + kept, length - kept);
}

/* Says whether the character at `text` is Unicode whitespace. */
static bool is_space(const uint8_t *text) {
  unsigned length;
  return (unicode_class(utf8_read(text, &length)) & CLASS_SPACE) != 0;
}

static bool strip(const normalizer_step_t *step, const uint8_t *text, size_t length, buffer_t *out,
                  bool *changed) {
  size_t begin = 0, end = length;
  while (step->strip_left && begin < end && is_space(text + begin))
    begin += utf8_length(text[begin]);
  while (step->strip_right && begin < end && is_space(text + utf8_previous(text, end)))
    end = utf8_previous(text, end);
  *changed = end - begin < length;
  return !*changed || buffer_append(out, text + begin, end - begin);
}

static bool run_step(const normalizer_step_t *step, normalizer_scratch_t *scratch,
                     const uint8_t *text, size_t length, buffer_t *out, bool *changed) {
  switch (step->kind) {
  case NORMALIZE_NFC: return nfc_append(text, length, &scratch->chars, out, changed);
  case NORMALIZE_CHARSMAP: return charsmap_append(step->charsmap, text, length, out, changed);
  case NORMALIZE_PREPEND:
    *changed = true;
    return buffer_append(out, step->content, step->content_length) &&
           buffer_append(out, text, length);
  case NORMALIZE_REPLACE:
    return step->pattern_length == 1 ? replace_byte(step, text, length, out, changed)
                                     : replace(step, text, length, out, changed);
  case NORMALIZE_SPACES: return replace_spaces(step, text, length, out, changed);
  case NORMALIZE_BERT: return bert_append(&step->bert, text, length, out, changed);
  case NORMALIZE_STRIP: return strip(step, text, length, out, changed);
  }
  return false;
}

/* The steps write the two buffers of the scratch by turns, so that a step never reads the buffer
 * that it writes. `inner` leaves out the Prepend steps. */
static bool run_steps(const normalizer_t *normalizer, normalizer_scratch_t *scratch,
                      const uint8_t **text, size_t *length, const uint8_t **limit, bool inner) {
  unsigned target = 0;
  for (unsigned i = 0; i < normalizer->num_steps; i++) {
    buffer_t *out = &scratch->text[target];
    bool changed = false;
    if (*length == 0) break;
    if (inner && normalizer->steps[i].kind == NORMALIZE_PREPEND) continue;
    out->length = 0;
    if (!run_step(&normalizer->steps[i], scratch, *text, *length, out, &changed)) return false;
    if (!changed) continue;
    *length = out->length;
    if (*length == 0) break; /* the buffer may have no bytes at all */
    *text = out->bytes, *limit = out->bytes + out->capacity;
    target = 1 - target;
  }
  return true;
}

bool normalizer_run(const normalizer_t *normalizer, normalizer_scratch_t *scratch,
                    const uint8_t **text, size_t *length, const uint8_t **limit) {
  return run_steps(normalizer, scratch, text, length, limit, false);
}

bool normalizer_run_inner(const normalizer_t *normalizer, normalizer_scratch_t *scratch,
                          const uint8_t **text, size_t *length) {
  const uint8_t *limit = NULL;
  return run_steps(normalizer, scratch, text, length, &limit, true);
}

void normalizer_free(normalizer_t *normalizer) {
  for (unsigned i = 0; i < normalizer->num_steps; i++) charsmap_free(normalizer->steps[i].charsmap);
  free(normalizer->steps);
}

void normalizer_scratch_trim(normalizer_scratch_t *scratch, size_t keep_max) {
  buffer_trim(&scratch->text[0], keep_max);
  buffer_trim(&scratch->text[1], keep_max);
  buffer_trim(&scratch->chars, keep_max);
}

void normalizer_scratch_free(normalizer_scratch_t *scratch) {
  buffer_free(&scratch->text[0]);
  buffer_free(&scratch->text[1]);
  buffer_free(&scratch->chars);
}
