/* byte_span.h: a range of bytes of some text.
 *
 * A plain type shared by rooms that must not know each other: the template renderer says by spans
 * which bytes of a prompt a request has brought, and the tokenizer takes them as text in which no
 * special token may be found. No state, any thread.
 */
#ifndef INFERD_ENGINE_BASE_BYTE_SPAN_H
#define INFERD_ENGINE_BASE_BYTE_SPAN_H

#include <stddef.h>

/* Bytes begin .. end - 1; begin < end. Lists of spans ascend and neither overlap nor touch. */
typedef struct byte_span {
  size_t begin, end;
} byte_span_t;

#endif
