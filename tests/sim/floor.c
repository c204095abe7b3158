/* floor.c: I1 and I8 for the floor of the prefix cache, after every iteration.
 *
 * The order of use and the map have every place once, and pins are the copies that are planned.
 * What a place is said to hold is compared with the host's part of the shadow store when its copy
 * was launched: the row behind another has its hash and one token more, the first row that of the
 * last row of the block before it, wherever that is found. One thread.
 */
#include "tests/sim/floor.h"

#include "engine/schedule/floor/floor.h"
#include "tests/sim/oracle.h"

#include <string.h>

enum { PLACES_MAX = SIM_HOST_BLOCKS_MAX };

static bool seen[PLACES_MAX + 1], is_leaving[PLACES_MAX + 1];
static int32_t pins[PLACES_MAX + 1];
static block_key_t checked[PLACES_MAX + 1]; /* whose content was compared */

static const floor_record_t *record_of(const floor_t *floor, int32_t place) {
  const uint8_t *at = floor->records + (size_t)(place - 1) * floor->record_bytes;
  return (const floor_record_t *)(const void *)at;
}

static int32_t place_of(const floor_t *floor, const block_swap_t *swap) {
  return swap->host - floor->options.first_host + 1;
}

static const uint64_t *rows_of(const floor_t *floor, int32_t place) {
  const sim_host_t *host = device_host(NULL);
  int32_t block = floor->options.first_host + place - 1;
  REQUIRE(block >= 0 && block < host->num_blocks, "there is no host block %d", block);
  return &host->slots[(size_t)block * (size_t)host->block_size];
}

static void check_order(const floor_t *floor) {
  int32_t count = 0, num_used = 0, before = 0;
  memset(seen, 0, sizeof seen);
  for (int32_t p = floor->head; p != 0; p = floor->places[p].next, count++) {
    REQUIRE(p > 0 && p <= floor->options.num_places && !seen[p],
            "I1: place %d is in the order of use twice", p);
    REQUIRE(floor->places[p].prev == before, "I1: place %d follows another one", p);
    num_used += floor->places[p].is_used;
    seen[p] = true;
    before = p;
  }
  REQUIRE(count == floor->options.num_places && before == floor->tail,
          "I1: %d of %d places are in the order of use", count, floor->options.num_places);
  REQUIRE(num_used == floor->num_used, "I1: %d places hold a block, counted %d", floor->num_used,
          num_used);
}

static void check_pins(const floor_t *floor) {
  memset(pins, 0, sizeof pins);
  memset(is_leaving, 0, sizeof is_leaving);
  for (int32_t i = 0; i < floor->num_outs; i++) {
    pins[place_of(floor, &floor->outs[i])]++;
    is_leaving[place_of(floor, &floor->outs[i])] = true;
  }
  for (int32_t i = 0; i < floor->num_ins; i++) pins[place_of(floor, &floor->ins[i])]++;
  for (int32_t p = 1; p <= floor->options.num_places; p++)
    REQUIRE(floor->places[p].pins == pins[p], "I1: place %d has %d pins, %d copies are planned", p,
            floor->places[p].pins, pins[p]);
}

/* Who waits to leave has not changed since its last holder left. */
static void check_leaving(const block_pool_t *pool) {
  for (int32_t b = 1; b < pool->num_blocks; b++) {
    const block_identity_t *id = &pool->blocks[b].identity;
    bool is_full = id->keyed && id->num_valid == pool->block_size;
    REQUIRE(is_full || pool->floor->leave[b] != LEAVE_WANTED,
            "I1: block %d is to leave and has %d valid rows", b, id->num_valid);
  }
}

/* The hash behind the block before it; 0 = neither pool nor floor has that block. */
static uint64_t hash_before(const engine_t *e, const floor_record_t *record) {
  const floor_t *floor = e->pool->floor;
  int32_t bs = e->pool->block_size, block = prefix_find_key(e->pool, &record->parent);
  if (block > 0 && e->pool->blocks[block].identity.num_valid == bs)
    return device_rows(block)[bs - 1];
  for (int32_t p = 1; p <= floor->options.num_places; p++) {
    bool is_it = memcmp(&record_of(floor, p)->key, &record->parent, sizeof record->parent) == 0;
    if (is_it && floor->places[p].is_used && !is_leaving[p]) return rows_of(floor, p)[bs - 1];
  }
  return 0;
}

static void check_content(const engine_t *e, int32_t place) {
  static const block_key_t none;
  const floor_t *floor = e->pool->floor;
  const floor_record_t *record = record_of(floor, place);
  const int32_t *ids = (const int32_t *)(const void *)(record + 1);
  const uint64_t *rows = rows_of(floor, place);
  const int32_t last = record->domain > 0 ? SIM_ADAPTERS_MAX : 0; /* an adapter may begin here */
  bool is_first = memcmp(&record->parent, &none, sizeof none) == 0;
  uint64_t before = is_first ? 0 : hash_before(e, record);
  REQUIRE(rows[0] != 0 && (before == 0 || oracle_follows(rows[0], before, ids[0], 1, last)),
          "I8: place %d of the floor begins with something else", place);
  for (int32_t i = 1; i < e->pool->block_size; i++)
    REQUIRE(oracle_follows(rows[i], rows[i - 1], ids[i], 1, last),
            "I8: row %d of place %d of the floor is something else", i, place);
  checked[place] = record->key;
}

void floor_check_all(const engine_t *e) {
  floor_t *floor = e->pool->floor;
  if (floor == NULL) return;
  REQUIRE(floor->options.num_places <= PLACES_MAX, "the scenario is larger than the checks");
  if (floor->num_stored == 0) memset(checked, 0, sizeof checked); /* it is a new one */
  check_order(floor);
  check_pins(floor);
  check_leaving(e->pool);
  for (int32_t p = 1; p <= floor->options.num_places; p++) {
    const floor_record_t *record = record_of(floor, p);
    if (!floor->places[p].is_used || is_leaving[p]) continue;
    if (memcmp(&checked[p], &record->key, sizeof record->key) == 0) continue;
    const int32_t *ids = (const int32_t *)(const void *)(record + 1);
    REQUIRE(floor_find(floor, &record->key, &record->parent, record->domain, ids) == p,
            "I1: place %d of the floor is not found by its key, or another is", p);
    check_content(e, p);
  }
}
