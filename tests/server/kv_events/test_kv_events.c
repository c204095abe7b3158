/* test_kv_events.c: the ring of the engine, the numbers of batches, what is kept, MessagePack. The
 * simulator compares what is told with the cache; tests/api has real subscribers. */
#include "tests/expect.h"

#include "server/kv_events/kv_publisher.h"
#include "server/kv_events/msgpack.h"

#include <poll.h>
#include <string.h>

enum { BLOCK_SIZE = 4 };

static const int32_t ids[BLOCK_SIZE] = {1, 200, 70000, 5};

static kv_events_t *ring_of(int32_t capacity) {
  kv_events_t *events;
  ASSERT_EQ(kv_events_new(capacity, &events, NULL), 0);
  ASSERT_EQ(kv_events_start(events, BLOCK_SIZE, NULL), 0);
  return events;
}

static kv_stream_t *stream_of(int32_t keep, size_t keep_bytes) {
  kv_stream_options_t options = {.keep = keep, .keep_bytes = keep_bytes};
  kv_stream_t *stream;
  ASSERT_EQ(kv_stream_new(&options, &stream, NULL), 0);
  return stream;
}

/* A first block; each of them has a prefix of its own. */
static void add_block(kv_events_t *events, uint64_t hash) {
  kv_events_add(events, &(kv_event_t){.kind = KV_BLOCK_STORED, .hash = hash, .token_ids = ids});
}

static bool readable(const kv_events_t *events) {
  struct pollfd item = {.fd = kv_events_fd(events), .events = POLLIN};
  return poll(&item, 1, 0) == 1;
}

/* The numbers of the batches that were sent, as text. */
static void note_seq(void *context, const kv_batch_t *batch) {
  buffer_t *out = context;
  buffer_uint(out, batch->seq);
  buffer_char(out, ' ');
}

static void expect_pump(kv_stream_t *stream, kv_events_t *events, const char *seqs) {
  buffer_t sent = {0};
  kv_stream_pump(stream, events, note_seq, &sent);
  buffer_char(&sent, '\0');
  ASSERT_STR_EQ(sent.data, seqs);
  buffer_free(&sent);
}

static void forget_batch(void *context, const kv_batch_t *batch) {
  (void)context;
  (void)batch;
}

static void count(void *context, const kv_event_t *event) {
  uint64_t *numbers = context;
  *numbers = *numbers * 10 + event->number;
}

Test(kv_events, a_full_ring_drops_events_and_leaves_a_gap_in_their_numbers) {
  kv_events_t *events = ring_of(3);
  uint64_t numbers = 0;
  for (uint64_t i = 0; i < 5; i++) add_block(events, i);
  ASSERT_EQ(kv_events_dropped(events), 2);
  ASSERT_EQ(kv_events_read(events, 2, count, &numbers), 2);
  add_block(events, 5);
  ASSERT_EQ(kv_events_read(events, 9, count, &numbers), 2);
  ASSERT_EQ(numbers, 125); /* events 0, 1, 2 and 5 */
  kv_events_free(events);
}

Test(kv_events, the_reader_is_woken_when_there_is_something_new) {
  kv_events_t *events = ring_of(8);
  uint64_t numbers = 0;
  kv_events_wake(events);
  cr_assert(!readable(events));
  add_block(events, 7);
  cr_assert(!readable(events)); /* once a step, not once an event */
  kv_events_wake(events);
  cr_assert(readable(events));
  ASSERT_EQ(kv_events_read(events, 8, count, &numbers), 1);
  cr_assert(!readable(events));
  kv_events_wake(NULL);
  kv_events_free(events);
}

Test(kv_events, dropped_events_leave_out_one_number_of_a_batch) {
  kv_events_t *events = ring_of(2);
  kv_stream_t *stream = stream_of(10, 1 << 20);
  add_block(events, 1);
  expect_pump(stream, events, "0 ");
  expect_pump(stream, events, "");
  for (uint64_t i = 2; i < 7; i++) add_block(events, i);
  expect_pump(stream, events, "1 ");
  add_block(events, 7);
  expect_pump(stream, events, "3 ");
  kv_stream_free(stream);
  kv_events_free(events);
}

Test(kv_events, the_last_batches_can_be_had_again) {
  kv_events_t *events = ring_of(2);
  kv_stream_t *stream = stream_of(3, 1 << 20);
  cr_assert_null(kv_stream_find(stream, 0));
  for (uint64_t i = 0; i < 5; i++) {
    add_block(events, i);
    kv_stream_pump(stream, events, forget_batch, NULL);
  }
  ASSERT_EQ(kv_stream_find(stream, 0)->seq, 2); /* 0 and 1 are gone */
  ASSERT_EQ(kv_stream_find(stream, 3)->seq, 3);
  ASSERT_EQ(kv_stream_find(stream, 4)->seq, 4);
  cr_assert_null(kv_stream_find(stream, 5));
  kv_stream_free(stream);
  kv_events_free(events);
}

Test(kv_events, what_is_kept_is_bounded_in_bytes) {
  kv_events_t *events = ring_of(2);
  kv_stream_t *stream = stream_of(1000, 1);
  for (uint64_t i = 0; i < 5; i++) {
    add_block(events, i);
    kv_stream_pump(stream, events, forget_batch, NULL);
  }
  ASSERT_EQ(kv_stream_find(stream, 0)->seq, 4); /* the newest alone */
  kv_stream_free(stream);
  kv_events_free(events);
}

static void keep_payload(void *context, const kv_batch_t *batch) {
  buffer_append(context, batch->payload, batch->length);
}

/* Blocks that follow each other are one event; the bytes are those of msgspec for the same lists.
 */
Test(kv_events, a_chain_of_blocks_is_one_event) {
  kv_events_t *events = ring_of(8);
  kv_stream_t *stream = stream_of(4, 1 << 20);
  buffer_t out = {0};
  add_block(events, 9);
  kv_events_add(events, &(kv_event_t){.kind = KV_BLOCK_STORED,
                                      .hash = UINT64_MAX,
                                      .parent = 9,
                                      .has_parent = true,
                                      .token_ids = ids});
  kv_events_add(events, &(kv_event_t){.kind = KV_BLOCK_REMOVED, .hash = UINT64_MAX});
  ASSERT_EQ(kv_stream_pump(stream, events, keep_payload, &out), 1);
  static const char expected[] =
      "\x92\x98\xab"
      "BlockStored\x92\x09\xcf\xff\xff\xff\xff\xff\xff\xff\xff"
      "\xc0\x98\x01\xcc\xc8\xce\x00\x01\x11\x70\x05\x01\xcc\xc8\xce\x00\x01"
      "\x11\x70\x05\x04\xc0\xa3GPU\xc0\x93\xac"
      "BlockRemoved\x91\xcf\xff\xff"
      "\xff\xff\xff\xff\xff\xff\xa3GPU\x00";
  enum { TIME_BYTES = 10 }; /* the array of three, and a double */
  ASSERT_EQ(out.length, TIME_BYTES + sizeof expected - 1);
  cr_assert(memcmp(out.data + TIME_BYTES, expected, sizeof expected - 1) == 0);
  buffer_free(&out);
  kv_stream_free(stream);
  kv_events_free(events);
}

Test(kv_events, long_values_have_long_heads) {
  buffer_t out = {0};
  char text[300];
  memset(text, 'x', sizeof text);
  text[299] = '\0';
  msgpack_text(&out, text);
  ASSERT_EQ(memcmp(out.data, "\xda\x01\x2b", 3), 0);
  buffer_clear(&out);
  msgpack_text(&out, &text[267]);
  ASSERT_EQ(memcmp(out.data, "\xd9\x20x", 3), 0);
  buffer_clear(&out);
  msgpack_array(&out, 16);
  msgpack_array(&out, 65536);
  msgpack_uint(&out, 256);
  ASSERT_EQ(memcmp(out.data, "\xdc\x00\x10\xdd\x00\x01\x00\x00\xcd\x01\x00", 11), 0);
  buffer_free(&out);
}

Test(kv_events, an_address_is_bound_or_connected_as_in_vllm) {
  cr_assert(kv_endpoint_binds("tcp://*:5557"));
  cr_assert(kv_endpoint_binds("tcp://[::]:5557"));
  cr_assert(kv_endpoint_binds("ipc:///run/inferd/events"));
  cr_assert(!kv_endpoint_binds("tcp://router:5557"));
}
