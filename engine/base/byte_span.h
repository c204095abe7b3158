/* byte_span.h: a range of bytes of some text.
 *
 * A plain type shared by modules that must not include each other. The template renderer marks by
 * spans the bytes of a prompt that come from the request; the tokenizer finds no special token in
 * them. No state, any thread.
 */
#ifndef INFERD_ENGINE_BASE_BYTE_SPAN_H
#define INFERD_ENGINE_BASE_BYTE_SPAN_H

#include <stddef.h>

/* The bytes begin .. end - 1; begin < end. In a list, spans ascend, and between two spans lies at
 * least one byte. */
typedef struct byte_span {
  size_t begin, end;
} byte_span_t;

#endif
