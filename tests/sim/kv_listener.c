/* kv_listener.c: a subscriber of the events of the prefix cache, which loses one batch in a
 * hundred.
 *
 * After every iteration the events of the engine become batches (server/kv_events); those that are
 * not lost arrive, a gap in the numbers is closed by a replay. What the subscriber then believes of
 * the cache must be what the block pool holds: hashes, blocks before them, token ids. That is
 * compared when the whole pool is walked (check_pool.c). Half of the seeds use maps. One thread.
 */
#include "tests/sim/kv_listener.h"

#include "server/kv_events/kv_stream.h"
#include "tests/sim/sim.h"

#include <string.h>

enum {
  EVENTS_MAX = 8192, /* twice the blocks of the largest pool: all go and all come in an iteration */
  BATCHES_KEPT = 64,
  KNOWN_MAX = 2048,
  BUCKETS = 4096,
  BLOCK_SIZE_MAX = 64,
  LOST_IN = 100
};

/* A block as the subscriber knows it. */
typedef struct known {
  uint64_t hash, parent;
  bool is_there, has_parent;
  int32_t next, num_children; /* next of its bucket, or of the free list; 0 = none */
} known_t;

static known_t known[KNOWN_MAX + 1]; /* from 1 */
static int32_t known_ids[KNOWN_MAX + 1][BLOCK_SIZE_MAX];
static int32_t buckets[BUCKETS], free_list, num_known;
static int32_t known_as[KNOWN_MAX]; /* [block] where it was found last, or any other number */
static kv_events_t *events;
static kv_stream_t *stream;
static uint64_t expected_seq, sent_seq; /* the next to arrive, the next to be sent */
static bool has_news;                   /* since what is believed was compared */

/* ---- reading MessagePack ---- */

typedef struct reader {
  const uint8_t *at, *end;
} reader_t;

static uint64_t number_of(reader_t *reader, int size) {
  uint64_t value = 0;
  REQUIRE(reader->end - reader->at >= size, "events: a batch that is cut");
  for (int i = 0; i < size; i++) value = value << 8 | *reader->at++;
  return value;
}

static uint64_t read_uint(reader_t *reader) {
  unsigned tag = (unsigned)number_of(reader, 1);
  if (tag < 0x80) return tag;
  REQUIRE(tag >= 0xcc && tag <= 0xcf, "events: tag %#x is no unsigned integer", tag);
  return number_of(reader, 1 << (tag - 0xcc));
}

static bool read_nil(reader_t *reader) {
  REQUIRE(reader->at < reader->end, "events: a batch that is cut");
  if (*reader->at != 0xc0) return false;
  reader->at++;
  return true;
}

/* The elements of an array (fix 0x90, long 0xdc) or a map (0x80, 0xde). */
static uint64_t read_count(reader_t *reader, unsigned fix, unsigned wide) {
  unsigned tag = (unsigned)number_of(reader, 1);
  if ((tag & 0xf0) == fix) return tag & 0x0f;
  REQUIRE(tag == wide || tag == wide + 1, "events: tag %#x in the place of %#x", tag, fix);
  return number_of(reader, tag == wide ? 2 : 4);
}

static void read_text(reader_t *reader, const char *text) {
  size_t length = (size_t)number_of(reader, 1) & 0x1f;
  REQUIRE(length == strlen(text) && (size_t)(reader->end - reader->at) >= length &&
              memcmp(reader->at, text, length) == 0,
          "events: not the text %s", text);
  reader->at += length;
}

static bool as_map(void) {
  return sim.scenario->seed % 2 != 0;
}

/* An object of `count` members, by name or by place; then each of its members. */
static void read_object(reader_t *reader, uint64_t count) {
  uint64_t have = as_map() ? read_count(reader, 0x80, 0xde) : read_count(reader, 0x90, 0xdc);
  REQUIRE(have == count, "events: %d members, not %d", (int)have, (int)count);
}

static void read_name(reader_t *reader, const char *name) {
  if (as_map()) read_text(reader, name);
}

/* ---- what the subscriber knows ---- */

static int32_t find(uint64_t hash) {
  int32_t k = buckets[hash % BUCKETS];
  while (k && known[k].hash != hash) k = known[k].next;
  return k;
}

static void store(reader_t *reader, uint64_t parent, bool has_parent, uint64_t hash,
                  int32_t block_size) {
  REQUIRE(!find(hash), "events: a block is stored twice");
  int32_t k = free_list, before = has_parent ? find(parent) : 0;
  REQUIRE(k, "events: more blocks than there are");
  REQUIRE(!has_parent || before, "events: a block is stored before the one that it follows");
  if (before) known[before].num_children++;
  free_list = known[k].next;
  known[k] = (known_t){.hash = hash, .parent = parent, .is_there = true, .has_parent = has_parent};
  known[k].next = buckets[hash % BUCKETS];
  buckets[hash % BUCKETS] = k;
  for (int32_t i = 0; i < block_size; i++) known_ids[k][i] = (int32_t)read_uint(reader);
  num_known++;
}

static void forget(uint64_t hash) {
  int32_t k = find(hash), *link = &buckets[hash % BUCKETS];
  REQUIRE(k, "events: a block is removed that is not there");
  REQUIRE(known[k].num_children == 0, "events: a block is removed before one that follows it");
  if (known[k].has_parent) known[find(known[k].parent)].num_children--;
  while (*link != k) link = &known[*link].next;
  *link = known[k].next;
  known[k] = (known_t){.next = free_list};
  free_list = k;
  num_known--;
}

static void read_event(reader_t *reader) {
  static uint64_t hashes[EVENTS_MAX];
  /* BlockStored has 8 members, BlockRemoved 3: the first byte says which. */
  bool stored = (*reader->at & 0x0f) == 8;
  read_object(reader, stored ? 8 : 3);
  read_name(reader, "type");
  read_text(reader, stored ? "BlockStored" : "BlockRemoved");
  read_name(reader, "block_hashes");
  uint64_t count = read_count(reader, 0x90, 0xdc);
  REQUIRE(count > 0 && count <= EVENTS_MAX, "events: %d blocks in one event", (int)count);
  for (uint64_t i = 0; i < count; i++) hashes[i] = read_uint(reader);
  if (stored) {
    int32_t block_size = sim.engine->pool->block_size;
    read_name(reader, "parent_block_hash");
    bool has_parent = !read_nil(reader);
    uint64_t parent = has_parent ? read_uint(reader) : 0;
    read_name(reader, "token_ids");
    REQUIRE(read_count(reader, 0x90, 0xdc) == count * (uint64_t)block_size, "events: token ids");
    for (uint64_t i = 0; i < count; i++) {
      store(reader, i > 0 ? hashes[i - 1] : parent, i > 0 || has_parent, hashes[i], block_size);
    }
    read_name(reader, "block_size");
    REQUIRE(read_uint(reader) == (uint64_t)block_size, "events: the size of a block");
    read_name(reader, "lora_id");
    if (!read_nil(reader)) read_uint(reader);
  } else {
    for (uint64_t i = 0; i < count; i++) forget(hashes[i]);
  }
  read_name(reader, "medium");
  read_text(reader, "GPU");
  if (!stored) return;
  read_name(reader, "lora_name");
  REQUIRE(read_nil(reader), "events: an adapter that nobody has named");
}

static void arrive(const kv_batch_t *batch) {
  reader_t reader = {(const uint8_t *)batch->payload,
                     (const uint8_t *)batch->payload + batch->length};
  REQUIRE(read_count(&reader, 0x90, 0xdc) == 3, "events: a batch is an array of three");
  REQUIRE(number_of(&reader, 1) == 0xcb && number_of(&reader, 8) != 0, "events: the time");
  uint64_t count = read_count(&reader, 0x90, 0xdc);
  for (uint64_t i = 0; i < count; i++) read_event(&reader);
  REQUIRE(read_uint(&reader) == 0 && reader.at == reader.end, "events: more than a batch");
  expected_seq = batch->seq + 1;
}

/* Asks for what was lost, up to the batch `seq`, which has arrived or was never sent. */
static void replay(uint64_t seq) {
  while (expected_seq < seq) {
    const kv_batch_t *batch = kv_stream_find(stream, expected_seq);
    REQUIRE(batch && batch->seq == expected_seq, "events: batch %d is not sent again",
            (int)expected_seq);
    arrive(batch);
  }
}

static void on_batch(void *context, const kv_batch_t *batch) {
  (void)context;
  REQUIRE(batch->seq == sent_seq, "events: batch %d follows %d", (int)batch->seq, (int)sent_seq);
  sent_seq++;
  bool lost = ((batch->seq + 1) * 0x9e3779b97f4a7c15u + sim.scenario->seed) % LOST_IN == 0;
  bool too_many = sent_seq - expected_seq >= BATCHES_KEPT;
  if (lost && !too_many) return;
  replay(batch->seq);
  arrive(batch);
}

/* ---- the block pool ---- */

static void compare(const block_pool_t *pool) {
  int32_t count = 0;
  for (int32_t b = 1; b < pool->num_blocks; b++) {
    const block_identity_t *id = &pool->blocks[b].identity;
    if (!id->keyed || id->num_valid < pool->block_size) continue;
    int32_t k = known_as[b], parent = id->place.parent;
    if (!known[k].is_there || known[k].hash != id->key.word[0]) k = find(id->key.word[0]);
    known_as[b] = k;
    REQUIRE(k, "events: nobody was told of block %d", b);
    REQUIRE(known[k].has_parent == (parent != 0) &&
                (!parent || known[k].parent == pool->blocks[parent].identity.key.word[0]),
            "events: block %d follows another one than was told", b);
    const int32_t *ids = &pool->token_ids[(size_t)b * (size_t)pool->block_size];
    size_t bytes = (size_t)pool->block_size * sizeof *ids;
    REQUIRE(memcmp(ids, known_ids[k], bytes) == 0, "events: block %d has other tokens", b);
    count++;
  }
  REQUIRE(count == num_known, "events: %d blocks were told of, %d are there", num_known, count);
}

kv_events_t *kv_listener_begin(void) {
  kv_stream_options_t options = {
      .as_map = as_map(), .keep = BATCHES_KEPT, .keep_bytes = (size_t)1 << 30};
  REQUIRE(kv_events_new(EVENTS_MAX, &events, NULL) == 0, "no memory");
  REQUIRE(kv_stream_new(&options, &stream, NULL) == 0, "no memory");
  memset(buckets, 0, sizeof buckets);
  for (int32_t k = 1; k <= KNOWN_MAX; k++) known[k] = (known_t){.next = k < KNOWN_MAX ? k + 1 : 0};
  free_list = 1;
  num_known = 0;
  expected_seq = sent_seq = 0;
  has_news = false;
  return events;
}

void kv_listener_check(const engine_t *engine, bool last) {
  const block_pool_t *pool = engine->pool;
  if (pool->events == NULL) return;
  REQUIRE(pool->block_size <= BLOCK_SIZE_MAX, "events: blocks of %d tokens", pool->block_size);
  int sent = kv_stream_pump(stream, events, on_batch, NULL);
  REQUIRE(kv_events_dropped(events) == 0, "events: some were dropped");
  if (last) replay(sent_seq);
  has_news = has_news || sent > 0 || last;
  if (expected_seq != sent_seq || !has_news || !(last || check_walks())) return;
  compare(pool);
  has_news = false;
}

void kv_listener_end(void) {
  kv_stream_free(stream);
  kv_events_free(events);
  stream = NULL;
  events = NULL;
}
