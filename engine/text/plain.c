/* plain.c: finds the bytes that must stay text in the normalised text.
 *
 * Runs on the tokenizing threads, with the scratch of the thread. The normaliser does not report
 * where a byte moved. So the parts between the ends of spans are normalised one by one. If their
 * concatenation is the normalised gap, which is nearly always so, their lengths give the positions.
 */
#include "engine/base/checked.h"
#include "engine/text/tokenizer_internal.h"

#include <stdlib.h>
#include <string.h>

static bool push(tokenizer_scratch_t *scratch, size_t begin, size_t end) {
  if (begin == end) return true;
  if (scratch->num_spans == scratch->spans_capacity) {
    size_t capacity = scratch->spans_capacity == 0 ? 64 : 2 * scratch->spans_capacity, bytes;
    if (!checked_mul(capacity, sizeof *scratch->spans, &bytes)) return false;
    byte_span_t *spans = realloc(scratch->spans, bytes);
    if (spans == NULL) return false;
    scratch->spans = spans;
    scratch->spans_capacity = capacity;
  }
  scratch->spans[scratch->num_spans++] = (byte_span_t){begin, end};
  return true;
}

bool plain_map(const normalizer_t *normalizer, tokenizer_scratch_t *scratch, const text_gap_t *gap,
               const byte_span_t *plain, size_t num_plain) {
  const uint8_t *text = gap->text, *normal = gap->normal;
  const size_t length = gap->length, normal_length = gap->normal_length, offset = gap->offset;
  size_t at = 0, done = 0, i = 0;
  scratch->num_spans = 0;
  while (i < num_plain && plain[i].end <= offset) i++;
  while (at < length) {
    bool inside = i < num_plain && plain[i].begin <= offset + at;
    size_t stop = length;
    if (i < num_plain) {
      size_t edge = (inside ? plain[i].end : plain[i].begin) - offset;
      if (edge < stop) stop = edge;
    }
    const uint8_t *part = text + at, *limit = text + length;
    size_t part_length = stop - at;
    if (at == 0 ? !normalizer_run(normalizer, &scratch->part, &part, &part_length, &limit)
                : !normalizer_run_inner(normalizer, &scratch->part, &part, &part_length))
      return false;
    if (part_length > normal_length - done ||
        (part_length > 0 && memcmp(part, normal + done, part_length) != 0))
      break;
    if (inside && !push(scratch, done, done + part_length)) return false;
    done += part_length;
    at = stop;
    i += inside;
  }
  if (at == length && done == normal_length) return true;
  scratch->num_spans = 0; /* a combining mark joined a letter across the end of a span */
  return push(scratch, 0, normal_length);
}
