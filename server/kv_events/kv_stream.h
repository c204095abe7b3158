/* kv_stream.h: events of the KV cache -> numbered batches in the wire format of vLLM, and the last
 * batches again.
 *
 * A batch is what the engine has told since the one before. Its events are BlockStored (a chain of
 * blocks: hashes, hash of the block before them, token ids) and BlockRemoved (hashes). Where the
 * engine has dropped events, one number is left out: who reads the numbers knows that something is
 * missing, and that no replay has it. One thread at a time.
 */
#ifndef INFERD_SERVER_KV_EVENTS_KV_STREAM_H
#define INFERD_SERVER_KV_EVENTS_KV_STREAM_H

#include "engine/base/buffer.h"
#include "engine/kv_events/kv_events.h"

enum { KV_ADAPTER_NAME_MAX = 257 }; /* with its NUL */

typedef struct kv_stream kv_stream_t;

typedef struct kv_stream_options {
  bool as_map;       /* events are maps by name, as in vLLM since #42892; else arrays */
  int32_t keep;      /* batches that can be had again, at least 1 */
  size_t keep_bytes; /* most memory of these; the newest is always kept */
  /* Writes the name of the adapter in a slot. False: it is not there any more. NULL: none is. */
  bool (*adapter_name)(void *context, int32_t slot, char out[KV_ADAPTER_NAME_MAX]);
  void *context;
} kv_stream_options_t;

typedef struct kv_batch {
  uint64_t seq;
  char *payload; /* [length], MessagePack */
  size_t length;
} kv_batch_t;

/* Returns 0 or ERR_NO_MEMORY. */
int kv_stream_new(const kv_stream_options_t *options, kv_stream_t **out, inferd_error_t *error);
void kv_stream_free(kv_stream_t *stream); /* NULL is allowed */

/* Reads all that the engine has told so far. `send` gets each batch; it is valid until the next
 * call of a function of the stream. Returns the number of batches. */
int kv_stream_pump(kv_stream_t *stream, kv_events_t *events,
                   void (*send)(void *context, const kv_batch_t *batch), void *context);
/* The oldest batch that is kept and has at least this number; NULL = there is none. */
const kv_batch_t *kv_stream_find(const kv_stream_t *stream, uint64_t seq);

#endif
