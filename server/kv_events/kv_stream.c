/* kv_stream.c: blocks that follow each other become one event, events become a batch; a ring keeps
 * the last batches. One thread at a time. Without memory a batch is left out, and so is its number.
 */
#include "server/kv_events/kv_stream.h"

#include "engine/base/check.h"
#include "server/kv_events/msgpack.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
  EVENTS_MAX = 1024,            /* of the engine in a batch */
  KEEP_BYTES_TRIM = 1024 * 1024 /* a scratch buffer that grew beyond this is given back */
};

/* The event that is being put together, of blocks that follow each other. */
typedef struct block_run {
  int32_t count; /* blocks; 0 = none */
  kv_event_kind_t kind;
  int32_t adapter;
  bool has_parent;
  uint64_t parent, last; /* before the first block; of the last one */
  buffer_t hashes, token_ids;
} block_run_t;

struct kv_stream {
  kv_stream_options_t options;
  int32_t block_size;
  uint64_t next_number, next_seq;
  block_run_t run;
  buffer_t events; /* of the batch so far */
  size_t num_events;
  buffer_t batch;
  kv_batch_t *ring; /* [options.keep] by number of batches; `first` of them are gone */
  uint64_t first, count;
  size_t bytes; /* of the payloads in the ring */
};

int kv_stream_new(const kv_stream_options_t *options, kv_stream_t **out, inferd_error_t *error) {
  CHECK_GE(options->keep, 1);
  kv_stream_t *stream = calloc(1, sizeof *stream);
  if (stream != NULL) stream->ring = calloc((size_t)options->keep, sizeof *stream->ring);
  if (stream == NULL || stream->ring == NULL) {
    free(stream);
    return error_set(error, ERR_NO_MEMORY, NULL, "no memory for %d batches of events",
                     options->keep);
  }
  stream->options = *options;
  *out = stream;
  return 0;
}

static kv_batch_t *kept(const kv_stream_t *stream, uint64_t number) {
  return &stream->ring[number % (uint64_t)stream->options.keep];
}

static void forget_oldest(kv_stream_t *stream) {
  kv_batch_t *batch = kept(stream, stream->first++);
  stream->bytes -= batch->length;
  free(batch->payload);
  *batch = (kv_batch_t){0};
}

void kv_stream_free(kv_stream_t *stream) {
  if (stream == NULL) return;
  while (stream->first < stream->count) forget_oldest(stream);
  buffer_free(&stream->run.hashes);
  buffer_free(&stream->run.token_ids);
  buffer_free(&stream->events);
  buffer_free(&stream->batch);
  free(stream->ring);
  free(stream);
}

/* ---- events ---- */

/* The name of a field, where fields have names. */
static void field(const kv_stream_t *stream, buffer_t *out, const char *name) {
  if (stream->options.as_map) msgpack_text(out, name);
}

static void begin_object(const kv_stream_t *stream, buffer_t *out, unsigned count) {
  if (stream->options.as_map) {
    msgpack_map(out, count);
  } else {
    msgpack_array(out, count);
  }
}

/* lora_id, medium and lora_name: where the blocks are, and whose. The memory of the device that
 * computes is called GPU, whatever it is: routers know this word. */
static void write_place(const kv_stream_t *stream, buffer_t *out, int32_t adapter) {
  const kv_stream_options_t *options = &stream->options;
  char name[KV_ADAPTER_NAME_MAX];
  bool named = adapter > 0 && options->adapter_name != NULL &&
               options->adapter_name(options->context, adapter, name);
  field(stream, out, "lora_id");
  if (adapter > 0) {
    msgpack_uint(out, (uint64_t)adapter);
  } else {
    msgpack_nil(out);
  }
  field(stream, out, "medium");
  msgpack_text(out, "GPU");
  field(stream, out, "lora_name");
  if (named) {
    msgpack_text(out, name);
  } else {
    msgpack_nil(out);
  }
}

/* Ends the run: it becomes an event of the batch. */
static void end_run(kv_stream_t *stream) {
  block_run_t *run = &stream->run;
  buffer_t *out = &stream->events;
  if (run->count == 0) return;
  bool stored = run->kind == KV_BLOCK_STORED;
  begin_object(stream, out, stored ? 8 : 3);
  field(stream, out, "type");
  msgpack_text(out, stored ? "BlockStored" : "BlockRemoved");
  field(stream, out, "block_hashes");
  msgpack_array(out, (size_t)run->count);
  buffer_append(out, run->hashes.data, run->hashes.length);
  if (stored) {
    field(stream, out, "parent_block_hash");
    if (run->has_parent) {
      msgpack_uint(out, run->parent);
    } else {
      msgpack_nil(out);
    }
    field(stream, out, "token_ids");
    msgpack_array(out, (size_t)run->count * (size_t)stream->block_size);
    buffer_append(out, run->token_ids.data, run->token_ids.length);
    field(stream, out, "block_size");
    msgpack_uint(out, (uint64_t)stream->block_size);
    write_place(stream, out, run->adapter);
  } else {
    field(stream, out, "medium");
    msgpack_text(out, "GPU");
  }
  out->failed = out->failed || run->hashes.failed || run->token_ids.failed;
  stream->num_events++;
  run->count = 0;
  buffer_trim(&run->hashes, KEEP_BYTES_TRIM);
  buffer_trim(&run->token_ids, KEEP_BYTES_TRIM);
}

/* Whether the event goes on where the run ends. */
static bool continues(const block_run_t *run, const kv_event_t *event) {
  if (run->count == 0 || run->kind != event->kind) return false;
  if (event->kind == KV_BLOCK_REMOVED) return true;
  return event->has_parent && event->parent == run->last && event->adapter == run->adapter;
}

/* ---- batches ---- */

/* Puts the batch into the ring. Without memory it is as if it had been lost on the way. */
static void keep(kv_stream_t *stream, const kv_batch_t *batch) {
  kv_batch_t copy = *batch;
  copy.payload = malloc(batch->length);
  if (copy.payload == NULL) return;
  memcpy(copy.payload, batch->payload, batch->length);
  if (stream->count - stream->first == (uint64_t)stream->options.keep) forget_oldest(stream);
  *kept(stream, stream->count++) = copy;
  stream->bytes += copy.length;
  while (stream->bytes > stream->options.keep_bytes && stream->count - stream->first > 1)
    forget_oldest(stream);
}

/* Where the batches of a pump go. */
typedef struct pump {
  kv_stream_t *stream;
  kv_events_t *events;
  void (*send)(void *context, const kv_batch_t *batch);
  void *context;
  int num_batches;
} pump_t;

/* Ends the batch, if it has events, and sends it. */
static void end_batch(pump_t *pump) {
  kv_stream_t *stream = pump->stream;
  buffer_t *out = &stream->batch;
  struct timespec now;
  end_run(stream);
  if (stream->num_events == 0) return;
  clock_gettime(CLOCK_REALTIME, &now);
  msgpack_array(out, 3); /* also where events are maps */
  msgpack_double(out, (double)now.tv_sec + (double)now.tv_nsec * 1e-9);
  msgpack_array(out, stream->num_events);
  buffer_append(out, stream->events.data, stream->events.length);
  msgpack_uint(out, 0); /* data_parallel_rank */
  kv_batch_t batch = {.seq = stream->next_seq++, .payload = out->data, .length = out->length};
  if (!out->failed && !stream->events.failed) {
    keep(stream, &batch);
    pump->send(pump->context, &batch);
    pump->num_batches++;
  }
  stream->num_events = 0;
  buffer_trim(&stream->events, KEEP_BYTES_TRIM);
  buffer_trim(out, KEEP_BYTES_TRIM);
}

static void on_event(void *context, const kv_event_t *event) {
  pump_t *pump = context;
  kv_stream_t *stream = pump->stream;
  block_run_t *run = &stream->run;
  stream->block_size = kv_events_block_size(pump->events);
  if (event->number != stream->next_number) { /* the engine has dropped some */
    end_batch(pump);
    stream->next_seq++;
  }
  stream->next_number = event->number + 1;
  if (!continues(run, event)) {
    end_run(stream);
    run->kind = event->kind;
    run->adapter = event->adapter;
    run->has_parent = event->has_parent;
    run->parent = event->parent;
  }
  run->count++;
  run->last = event->hash;
  msgpack_uint(&run->hashes, event->hash);
  for (int32_t i = 0; event->kind == KV_BLOCK_STORED && i < stream->block_size; i++)
    msgpack_uint(&run->token_ids, (uint64_t)event->token_ids[i]);
}

int kv_stream_pump(kv_stream_t *stream, kv_events_t *events,
                   void (*send)(void *context, const kv_batch_t *batch), void *context) {
  pump_t pump = {.stream = stream, .events = events, .send = send, .context = context};
  int32_t num_read;
  do {
    num_read = kv_events_read(events, EVENTS_MAX, on_event, &pump);
    end_batch(&pump);
  } while (num_read == EVENTS_MAX);
  return pump.num_batches;
}

const kv_batch_t *kv_stream_find(const kv_stream_t *stream, uint64_t seq) {
  uint64_t low = stream->first, high = stream->count; /* the numbers grow */
  while (low < high) {
    uint64_t middle = low + (high - low) / 2;
    if (kept(stream, middle)->seq < seq) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low < stream->count ? kept(stream, low) : NULL;
}
