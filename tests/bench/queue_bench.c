/* queue_bench.c: what waiting requests and a long prompt cost the engine thread.
 *
 * The scheduler alone, without a device: plans and ends, as the engine makes them. Each line is the
 * mean and the longest of one kind of event, in microseconds of a processor. Usage: queue_bench
 * [waiting] [tokens]
 */
#include "engine/schedule/scheduler.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { BLOCK_SIZE = 16, SEQS = 1024, STEPS = 200 };

typedef struct timing {
  double sum, longest;
  int count;
} timing_t;

static double begun_us;

static double now_us(void) {
  struct timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

static void begin(void) {
  begun_us = now_us();
}

static void end(timing_t *timing) {
  double us = now_us() - begun_us;
  timing->sum += us;
  timing->count++;
  if (us > timing->longest) timing->longest = us;
}

static void print(const char *what, const timing_t *timing) {
  printf("%-52s mean %9.2f us, longest %9.2f us\n", what, timing->sum / timing->count,
         timing->longest);
}

static void *take(size_t count, size_t size) {
  void *p = calloc(count, size);
  if (p == NULL) exit(1);
  return p;
}

static scheduler_t *make(int32_t max_model_len, int32_t num_blocks, block_pool_t **pool) {
  scheduler_options_t options = {.max_num_seqs = SEQS,
                                 .max_num_batched_tokens = 8192,
                                 .max_model_len = max_model_len,
                                 .long_prefill_token_threshold = 1024,
                                 .reserve_full = true,
                                 .slice_blocks = 512,
                                 .chunked_prefill = true,
                                 .fair_share = true,
                                 .max_skips = 4};
  uint64_t secret[2] = {1, 2};
  scheduler_t *scheduler;
  if (block_pool_new(num_blocks, BLOCK_SIZE, true, secret, pool, NULL) != 0 ||
      scheduler_new(&options, *pool, &scheduler, NULL) != 0)
    exit(1);
  return scheduler;
}

static group_t *add(scheduler_t *scheduler, const int32_t *ids, int32_t num_tokens) {
  static uint64_t arrival;
  request_t *request = take(1, sizeof *request);
  group_t *group = take(1, sizeof *group);
  request->prompt_ids = ids;
  request->num_prompt_tokens = num_tokens;
  request->params.max_tokens = 1000;
  request->params.num_prompt_logprobs = -1;
  request->params.n = 1;
  request->tenant = arrival % 100;
  group_init(group, request, arrival++);
  scheduler_add(scheduler, group);
  return group;
}

/* As the loop thread does for a long prompt. */
static void bring_keys(const block_pool_t *pool, group_t *group) {
  int32_t count = group->request->num_prompt_tokens / BLOCK_SIZE;
  block_key_t *keys = take((size_t)count, sizeof *keys);
  prefix_keys(pool, 0, group->request->prompt_ids, count, keys);
  group->request->prompt_keys = keys;
}

/* What the engine does with a plan, without a device: every row that draws gets a token. */
static void commit(scheduler_t *scheduler) {
  for (int32_t i = 0; i < scheduler->plan.num_entries; i++) {
    const plan_entry_t *entry = &scheduler->plan.entries[i];
    scheduler_complete(entry);
    scheduler_publish(scheduler, entry);
    if (entry->do_sample) {
      sequence_t *seq = entry->sequence;
      seq->tokens[seq->num_prompt_tokens + seq->num_output_tokens++] = 7;
    }
  }
}

static void step(scheduler_t *scheduler, timing_t *timing) {
  begin();
  scheduler_plan(scheduler, 1);
  end(timing);
  commit(scheduler);
}

static void bench_waiting(int waiting) {
  block_pool_t *pool;
  scheduler_t *scheduler = make(4096, SEQS * 4, &pool);
  static int32_t ids[64];
  timing_t adds = {0}, steps = {0}, ends = {0};
  group_t **groups = take((size_t)waiting, sizeof(group_t *));
  for (int i = 0; i < 64; i++) ids[i] = i;
  for (int i = 0; i < waiting; i++) {
    begin();
    groups[i] = add(scheduler, ids, 64);
    end(&adds);
  }
  for (int i = 0; i < STEPS; i++) step(scheduler, &steps);
  for (int i = waiting - 1; i > waiting / 2; i -= 7) {
    begin();
    scheduler_finish(scheduler, groups[i], SEQUENCE_FINISHED_ABORTED);
    end(&ends);
  }
  printf("%d waiting:\n", waiting);
  print("  arrival", &adds);
  print("  plan, running and waiting", &steps);
  print("  cancel of one that waits", &ends);
}

static void bench_long(int32_t tokens) {
  block_pool_t *pool;
  int32_t num_blocks = tokens / BLOCK_SIZE + tokens / BLOCK_SIZE / 2;
  scheduler_t *scheduler = make(tokens + 4096, num_blocks, &pool);
  int32_t *ids = take((size_t)tokens * 2, sizeof *ids);
  timing_t first = {0}, steps = {0}, look = {0}, ends = {0}, shared = {0}, later = {0};
  for (int32_t i = 0; i < tokens * 2; i++) ids[i] = i;
  group_t *holder = add(scheduler, ids + tokens, tokens * 3 / 4);
  bring_keys(pool, holder);
  step(scheduler, &first);
  bring_keys(pool, add(scheduler, ids, tokens));
  step(scheduler, &look);
  for (int i = 0; i < STEPS; i++) step(scheduler, &steps);
  for (int i = 0; i < SEQS - 100; i++)
    add(scheduler, ids + tokens, tokens * 3 / 4)->request->prompt_keys =
        holder->request->prompt_keys;
  printf("a prompt of %d tokens:\n", tokens);
  print("  plan that admits three quarters of it", &first);
  print("  plan that looks at it, and it does not fit", &look);
  print("  plan while it waits and does not fit", &steps);
  begin();
  scheduler_finish(scheduler, holder, SEQUENCE_FINISHED_ABORTED);
  end(&ends);
  print("  end of what was in its way", &ends);
  step(scheduler, &shared);
  print("  plan that admits it", &shared);
  for (int i = 0; i < 5; i++) step(scheduler, &later);
  print("  plan behind that", &later);
}

/* Three prompts of one length in a pool that each fills: a new one, another, and that again. */
static void bench_full_pool(int32_t tokens) {
  block_pool_t *pool;
  scheduler_t *scheduler = make(tokens + 4096, tokens / BLOCK_SIZE + 512, &pool);
  int32_t *ids = take((size_t)tokens * 2, sizeof *ids);
  timing_t timings[3] = {{0}}, ends = {0};
  for (int32_t i = 0; i < tokens * 2; i++) ids[i] = (int32_t)((uint32_t)i * 2654435761u >> 1);
  for (int i = 0; i < 3; i++) {
    group_t *group = add(scheduler, i > 0 ? ids + tokens : ids, tokens);
    bring_keys(pool, group);
    while (group->sequence.num_computed_tokens < tokens) step(scheduler, &timings[i]);
    begin();
    scheduler_finish(scheduler, group, SEQUENCE_FINISHED_STOPPED);
    end(&ends);
  }
  printf("a prompt of %d tokens in a pool that it fills, with its keys:\n", tokens);
  print("  plan, the pool is empty", &timings[0]);
  print("  plan, the pool is full of another prompt", &timings[1]);
  print("  plan, the prompt is cached", &timings[2]);
  print("  end", &ends);
}

/* The filler of a prompt leaves; the one that shares it runs behind many others. */
static void bench_shared(int32_t tokens, int others) {
  block_pool_t *pool;
  scheduler_t *scheduler = make(tokens + 4096, tokens / BLOCK_SIZE + 4 * SEQS, &pool);
  int32_t *ids = take((size_t)tokens, sizeof *ids);
  timing_t ends = {0}, steps = {0};
  for (int32_t i = 0; i < tokens; i++) ids[i] = i;
  group_t *filler = add(scheduler, ids, tokens);
  for (int i = 0; i < others; i++) add(scheduler, ids + 1 + i, 8);
  for (int i = 0; i < others / ADMISSION_SCAN_MAX + 1; i++) step(scheduler, &steps);
  add(scheduler, ids, tokens);
  step(scheduler, &steps);
  int running = scheduler->running.count;
  begin();
  scheduler_finish(scheduler, filler, SEQUENCE_FINISHED_ABORTED);
  end(&ends);
  printf("a prompt of %d tokens, shared by the last of %d that run:\n", tokens, running);
  print("  cancel of the one that fills it", &ends);
}

int main(int argc, char **argv) {
  int waiting = argc > 1 ? atoi(argv[1]) : 100000;
  int32_t tokens = argc > 2 ? atoi(argv[2]) : 1 << 20;
  for (int part = 100; part >= 1; part /= 10) bench_waiting(waiting / part);
  bench_long(tokens / 8);
  bench_long(tokens);
  bench_full_pool(tokens);
  bench_shared(131072, 1000);
  return 0;
}
