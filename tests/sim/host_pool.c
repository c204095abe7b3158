/* host_pool.c: swap space of the simulated device, and I1 for it.
 *
 * A host block is a piece of shadow store: swaps copy hashes. After every iteration the tables of
 * swapped requests are counted anew, and each slot that one of them relies on is compared with the
 * oracle, long before attention would read it. One thread.
 */
#include "tests/sim/sim.h"

#include <stdlib.h>
#include <string.h>

static int32_t references[SIM_HOST_BLOCKS_MAX];

/* ---- the device's part ---- */

static int sim_pool(device_t *d, int32_t num_blocks, void *memory, inferd_error_t *error) {
  (void)memory;
  sim_host_t *host = device_host(d);
  host->slots = calloc((size_t)num_blocks * (size_t)host->block_size, sizeof *host->slots);
  if (!host->slots) return error_set(error, ERR_NO_MEMORY, NULL, "no memory for the host pool");
  host->num_blocks = num_blocks;
  return 0;
}

static double sim_rate(const device_t *d) {
  (void)d;
  return sim.torture ? 1e9 : sim.scenario->swap_rate;
}

static uint64_t *host_slots(const sim_host_t *host, int32_t block) {
  REQUIRE(block >= 0 && block < host->num_blocks, "there is no host block %d", block);
  return &host->slots[(size_t)block * (size_t)host->block_size];
}

/* The destination is written once, whatever is read. */
static void check_list(const block_swap_t *swaps, int32_t count, bool out) {
  for (int32_t i = 0; i < count; i++) {
    for (int32_t j = 0; j < i; j++) {
      bool twice = out ? swaps[i].host == swaps[j].host : swaps[i].device == swaps[j].device;
      REQUIRE(!twice, "swap %d writes where swap %d wrote", i, j);
    }
  }
}

static void sim_out(device_t *d, const block_swap_t *swaps, int32_t count) {
  const sim_host_t *host = device_host(d);
  size_t bytes = (size_t)host->block_size * sizeof *host->slots;
  check_list(swaps, count, true);
  for (int32_t i = 0; i < count; i++) {
    memcpy(host_slots(host, swaps[i].host), device_slots(d, swaps[i].device), bytes);
  }
}

static void sim_in(device_t *d, const block_swap_t *swaps, int32_t count) {
  const sim_host_t *host = device_host(d);
  size_t bytes = (size_t)host->block_size * sizeof *host->slots;
  const scheduler_t *s = sim.engine->scheduler;
  check_list(swaps, count, false);
  /* Copies to the host run first: what enters behind them could have been among them. */
  REQUIRE(s->plan.num_swap_out == 0, "blocks enter in a plan in which a request is swapped out");
  for (int32_t i = 0; i < count; i++) {
    uint64_t *from = host_slots(host, swaps[i].host);
    memcpy(device_slots(d, swaps[i].device), from, bytes);
    /* nobody may come back for it, unless it is of the prefix cache's floor */
    if (swaps[i].host < s->options.swap.num_blocks) memset(from, 0, bytes);
  }
}

const swap_ops_t sim_swap_ops = {.pool = sim_pool, .rate = sim_rate, .out = sim_out, .in = sim_in};

/* ---- the check's part ---- */

static void check_swapped(const sequence_t *q) {
  const sim_host_t *host = device_host(NULL);
  int32_t block_size = host->block_size;
  const track_t *k = check_track(q);
  int32_t computed = q->num_computed_tokens;
  if (!sequence_is_live(q)) {
    REQUIRE(q->num_host_blocks == 0, "request %d has ended and holds host blocks", k->index);
    return;
  }
  REQUIRE(q->num_host_blocks == (computed + block_size - 1) / block_size,
          "request %d keeps %d host blocks for %d tokens", k->index, q->num_host_blocks, computed);
  for (int32_t i = 0; i < q->num_host_blocks; i++) {
    host_slots(host, q->host_blocks[i]);
    references[q->host_blocks[i]]++;
  }
  const stream_t *stream = check_stream(q);
  if (computed > k->num_prompt + stream->num_expected) return; /* its end is in flight */
  for (int32_t p = 0; p < computed; p++) {
    uint64_t have = host_slots(host, q->host_blocks[p / block_size])[p % block_size];
    REQUIRE(have == stream->hash[p], "I8: request %d: position %d on the host is wrong", k->index,
            p);
  }
}

/* I3: the first that is swapped out comes back when it fits, whatever the cache has of it. */
static void check_head(const scheduler_t *s) {
  const group_t *g = s->swapped.head;
  int32_t need = 0, bs = s->pool->block_size, count = 0;
  bool in_flight = false;
  if (!g || g->request->best_effort || s->plan.num_preempted > 0) return; /* what others leave */
  for (const sequence_t *q = &g->sequence; q; q = q->next) {
    if (!sequence_is_live(q)) continue;
    in_flight = in_flight || q->num_in_flight_tokens > 0;
    int32_t tokens = sequence_num_tokens(q);
    if (g->num_preemptions >= s->options.max_preemptions) {
      tokens = q->num_prompt_tokens + g->request->params.max_tokens;
    }
    need += (tokens + bs - 1) / bs; /* as if nothing were shared */
    count++;
  }
  if (count < check_width(g) && !g->forked) return;
  bool room = check_num_sequences(s) + count <= s->options.max_num_seqs &&
              s->plan.num_tokens + count <= s->options.max_num_batched_tokens;
  int32_t num_free = s->pool->num_free - s->slices.promised;
  REQUIRE(in_flight || !room || need + s->options.watermark_blocks > num_free,
          "I3: request %d stays on the host although it fits: %d blocks of %d free ones",
          check_track(&g->sequence)->index, need, num_free);
}

void host_pool_check(const engine_t *e) {
  const scheduler_t *s = e->scheduler;
  const swap_t *w = &s->swap;
  const int32_t num_blocks = s->options.swap.num_blocks;
  const group_queue_t *queues[] = {&s->running, &s->waiting.queue};
  memset(references, 0, (size_t)num_blocks * sizeof *references);
  for (const group_t *g = s->swapped.head; g; g = g->next) {
    for (const sequence_t *q = &g->sequence; q; q = q->next) check_swapped(q);
  }
  for (int i = 0; i < 2; i++) {
    for (const group_t *g = queues[i]->head; g; g = g->next) {
      for (const sequence_t *q = &g->sequence; q; q = q->next) {
        REQUIRE(q->num_host_blocks == 0, "request %d is not swapped and holds host blocks",
                check_track(q)->index);
      }
    }
  }
  int32_t held = 0;
  for (int32_t h = 0; h < num_blocks; h++) {
    const host_block_t *b = &w->blocks[h];
    REQUIRE(b->ref_count == references[h] && b->device == 0 && b->mark == 0,
            "I1: host block %d has %d holders, its count is %d", h, references[h], b->ref_count);
    held += references[h] > 0;
  }
  for (int32_t i = 0; i < w->num_free; i++) {
    REQUIRE(references[w->free[i]]++ == 0, "I1: host block %d is free and held, or free twice",
            w->free[i]);
  }
  REQUIRE(held + w->num_free == num_blocks, "I1: %d host blocks are held, %d are free, of %d", held,
          w->num_free, num_blocks);
  REQUIRE(s->ignored.count == 0, "request %d was given up", s->ignored.count);
}

/* Of the groups that the plan has preempted, those by best effort: they may leave in the part of
 * the plan that is behind the part of others. */
static int32_t count_left_by_best_effort(const scheduler_t *s) {
  const group_queue_t *away[] = {&s->waiting.queue, &s->swapped};
  int32_t count = 0;
  for (int i = 0; i < 2; i++)
    for (const group_t *g = away[i]->head; g; g = g->next)
      if (g->request->best_effort) count += g->num_preemptions - check_run(g)->num_preemptions;
  return count;
}

void host_pool_check_step(const scheduler_t *s) {
  REQUIRE(s->plan.num_swap_out == 0 || s->plan.num_swap_in == 0, "swaps in both directions");
  REQUIRE(s->plan.num_swap_in == 0 || s->plan.num_preempted == count_left_by_best_effort(s),
          "a request comes back in a step that preempts");
  check_head(s);
  /* With fair shares others begin within their shares: law.c says which. */
  for (int32_t i = 0; i < s->plan.num_entries && s->swapped.head && !s->options.fair_share; i++) {
    const sequence_t *q = s->plan.entries[i].sequence;
    if (s->swapped.head->request->best_effort && !q->group->request->best_effort) continue;
    REQUIRE(!check_run(q->group)->is_new, "I3: request %d is let in while others are on the host",
            check_track(q)->index);
  }
}
