/* load.c: one engine under very many requests: a soak with cancels, and an overload.
 *
 * Nothing is compared with the oracle here; what counts is what is left: blocks, heap blocks and
 * resident memory after the soak, and how much work gets done while five times too much is offered.
 * The device takes one virtual millisecond a step. One thread.
 */
#include "tests/sim/sim.h"

#include "engine/base/random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SLOTS = 256, PROMPT_MAX = 96, RSS_GROWTH_MAX = 1 << 20, OVERLOAD_MS = 60000 };

typedef struct slot {
  request_t request;
  int32_t prompt[PROMPT_MAX];
  bool busy, cancelled;
} slot_t;

static slot_t slots[SLOTS];
static uint64_t state;                               /* of the random numbers */
static uint64_t num_done, num_cancelled, num_tokens; /* ends, of them asked for, tokens */
static uint64_t longest_wait_ns;                     /* from arrival to the first step */

static uint64_t draw(uint64_t below) {
  return random_mix(state += RANDOM_GAMMA) % below;
}

static void on_event(void *context, const event_t *event) {
  (void)context;
  slot_t *slot = (slot_t *)(void *)event->request;
  REQUIRE(slot->busy, "an event for a request that has ended");
  if (event->kind == EVENT_TOKEN && !slot->cancelled) num_tokens++;
  if (event->kind != EVENT_DONE) return;
  bool natural = event->finish == FINISH_STOP || event->finish == FINISH_LENGTH;
  REQUIRE(natural || (slot->cancelled && event->finish == FINISH_ABORT),
          "a request ends by %d, error %d", (int)event->finish, event->error_code);
  uint64_t wait_ns = event->first_scheduled_ns - slot->request.arrival_ns;
  if (event->first_scheduled_ns && wait_ns > longest_wait_ns) longest_wait_ns = wait_ns;
  slot->busy = false;
  num_done++;
  num_cancelled += slot->cancelled;
}

static void make_request(slot_t *slot, uint64_t id) {
  int32_t length = 1 + (int32_t)draw(PROMPT_MAX), shared = (int32_t)draw(PROMPT_MAX);
  uint64_t document = draw(8);
  for (int32_t i = 0; i < length; i++) {
    uint64_t source = i < shared ? document * 1000 + (uint64_t)i : draw(1u << 30);
    slot->prompt[i] = 66 + (int32_t)(random_mix(source) % 26);
  }
  slot->cancelled = false;
  slot->request = (request_t){.id = id,
                              .prompt_ids = slot->prompt,
                              .num_prompt_tokens = length,
                              .skip_special_tokens = true,
                              .salt = 1,
                              .arrival_ns = sim.now_ns,
                              .params = {.top_p = 1,
                                         .repetition_penalty = 1,
                                         .max_tokens = 1 + (int32_t)draw(32),
                                         .num_logprobs = -1,
                                         .num_prompt_logprobs = -1}};
}

static void start(int32_t max_queue) {
  engine_options_t o;
  inferd_error_t error = {0};
  engine_options_default(&o);
  o.mask_threads = 0; /* a run is a function of its seed */
  o.model_dir = "tests/fixtures/tiny";
  o.ops = &ops_sim;
  o.dummy_weights = true;
  o.seed = 7;
  o.num_blocks = 120;
  o.max_num_seqs = 16;
  o.max_num_batched_tokens = 128;
  o.max_model_len = 256;
  o.max_queue_requests = max_queue;
  o.max_queue_time_s = 30;
  memset(&sim, 0, sizeof sim);
  memset(slots, 0, sizeof slots);
  state = num_done = num_cancelled = num_tokens = longest_wait_ns = 0;
  sim.torture = true;
  sim.now_ns = 1000000000u;
  ops_sim.pipeline_depth = 2;
  REQUIRE(engine_new(&o, &sim.engine, &error) == 0, "%s", error.message);
  engine_load(sim.engine);
  REQUIRE(engine_state(sim.engine) == ENGINE_READY, "the engine does not start");
}

static void iterate(void) {
  sim.iteration++;
  int idle_ms = engine_iterate(sim.engine);
  engine_drain(sim.engine, on_event, NULL);
  if (idle_ms > 0) sim.now_ns += (uint64_t)idle_ms * 1000000u;
}

static void finish(void) {
  while (sim.engine->num_live > 0 || sim.engine->loop_live > 0) iterate();
  const block_pool_t *pool = sim.engine->pool;
  REQUIRE(pool->num_free == pool->num_blocks - 1, "%d blocks are held at the end",
          pool->num_blocks - 1 - pool->num_free);
}

static long resident_bytes(void) {
  long pages = 0, resident = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  if (file && fscanf(file, "%ld %ld", &pages, &resident) != 2) resident = 0;
  if (file) fclose(file);
  return resident * sysconf(_SC_PAGESIZE);
}

void load_soak(uint64_t requests) {
  start(SLOTS);
  uint64_t submitted = 0;
  int64_t heap = 0;
  long resident = 0;
  while (num_done < requests) {
    for (int i = 0; i < SLOTS / 8; i++) {
      slot_t *slot = &slots[draw(SLOTS)];
      if (slot->busy && !slot->cancelled && draw(1000) < 19) {
        slot->cancelled = true;
        engine_cancel(sim.engine, &slot->request);
      } else if (!slot->busy && draw(4) == 0) {
        request_t *request = &slot->request;
        make_request(slot, ++submitted);
        slot->busy = engine_submit(sim.engine, &request, 1, NULL) == 0;
      }
    }
    iterate();
    if (!resident && num_done >= requests / 10) {
      resident = resident_bytes();
      heap = alloc_live();
    }
  }
  finish();
  long growth = resident_bytes() - resident;
  printf(
      "soak: %llu requests, %llu cancelled (%llu %%), %llu steps, 0 blocks held, resident memory "
      "%+ld KiB\n",
      (unsigned long long)num_done, (unsigned long long)num_cancelled,
      (unsigned long long)(100 * num_cancelled / num_done), (unsigned long long)sim.steps,
      growth / 1024);
  REQUIRE(alloc_live() == heap, "%lld heap blocks are left", (long long)(alloc_live() - heap));
  REQUIRE(growth <= RSS_GROWTH_MAX, "resident memory has grown by %ld bytes", growth);
  REQUIRE(5 * num_cancelled >= num_done, "only %llu of %llu were cancelled",
          (unsigned long long)num_cancelled, (unsigned long long)num_done);
  engine_destroy(sim.engine);
}

/* Offers `rate` requests a second for a minute; returns tokens that were made in it. */
static double offer(double rate, uint64_t *refused, uint64_t *offered) {
  start(32);
  uint64_t begin = sim.now_ns, end = begin + (uint64_t)OVERLOAD_MS * 1000000u;
  *refused = *offered = 0;
  while (sim.now_ns < end) {
    double due = (double)(sim.now_ns - begin) * 1e-9 * rate;
    while ((double)*offered < due) {
      slot_t *slot = NULL;
      for (int i = 0; i < SLOTS && !slot; i++) slot = slots[i].busy ? NULL : &slots[i];
      REQUIRE(slot, "more requests live than the limits allow");
      request_t *request = &slot->request;
      make_request(slot, ++*offered);
      int code = engine_submit(sim.engine, &request, 1, NULL);
      REQUIRE(code == 0 || code == ERR_QUEUE_FULL, "a refusal by %d", code);
      slot->busy = code == 0;
      *refused += code != 0;
    }
    iterate();
  }
  uint64_t made = num_tokens;
  finish(); /* whoever was let in comes to an end */
  REQUIRE(num_done == *offered - *refused, "%llu of %llu requests have ended",
          (unsigned long long)num_done, (unsigned long long)(*offered - *refused));
  engine_destroy(sim.engine);
  return (double)made * 1000.0 / OVERLOAD_MS;
}

void load_overload(void) {
  uint64_t refused, offered;
  double rate = 50, capacity = 0;
  for (;; rate *= 1.3) { /* until more brings no more */
    double made = offer(rate, &refused, &offered);
    if (made < 1.02 * capacity) break;
    capacity = made;
  }
  double capacity_rate = rate / 1.3;
  double goodput = offer(5 * capacity_rate, &refused, &offered);
  printf("overload: capacity %.0f tokens/s; at 5 times the load %.0f tokens/s (%.1f %%), %llu of "
         "%llu refused at the door, longest wait %.2f s\n",
         capacity, goodput, 100 * goodput / capacity, (unsigned long long)refused,
         (unsigned long long)offered, (double)longest_wait_ns * 1e-9);
  REQUIRE(goodput >= 0.9 * capacity, "goodput falls to %.1f %%", 100 * goodput / capacity);
  REQUIRE(longest_wait_ns <= 30000000000u, "somebody waited longer than the queue allows");
}
