/* request_bytes.h: a request as bytes, and back: all that its answer, and its turn, depend on.
 *
 * Pictures are not kept: such a request cannot be run again (num_images). The constraint is named
 * by the serial number of its grammar; its source is a record of its own.
 */
#ifndef INFERD_ENGINE_JOURNAL_REQUEST_BYTES_H
#define INFERD_ENGINE_JOURNAL_REQUEST_BYTES_H

#include "engine/base/arena.h"
#include "engine/base/bytes.h"
#include "engine/quota.h"
#include "engine/request.h"

typedef struct kept_request {
  request_t request; /* without grammar, stops, room, scores, keys of its prompt; quota = `quota` */
  quota_t quota;     /* weight and max_running, if it had one */
  int32_t num_images;  /* that it had, and which are not here */
  bool has_source;     /* of an encoder; it is not here either */
  bool has_rows;       /* in the place of its ids; nor are these */
  uint64_t constraint; /* serial number; 0 = none. UINT64_MAX: it had one that was not kept */
  int32_t num_stops;
  const char *stops[STOP_STRINGS_MAX];
  size_t stop_lengths[STOP_STRINGS_MAX];
} kept_request_t;

/* Any thread that may read the request. Flushes the sink in between, not at the end. */
void request_write(byte_sink_t *sink, const request_t *request);
/* Texts and arrays go to the arena. Returns false if the bytes are damaged, or memory is short. */
bool request_read(const uint8_t *bytes, size_t length, arena_t *arena, kept_request_t *out);

#endif
