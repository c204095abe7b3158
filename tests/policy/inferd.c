/* inferd.c: the scheduler of the product, its pool and its cache, over a trace. One thread. */
#include "tests/policy/policy.h"

#include "engine/schedule/floor/floor.h"

#include <stdlib.h>

typedef struct server {
  world_t *world;
  const policy_t *policy;
  block_pool_t *pool;
  scheduler_t *scheduler;
  uint64_t next_arrival;
} server_t;

/* A group with its request; the scheduler knows the first two. */
typedef struct served {
  group_t group;
  request_t request;
  job_t *job;
} served_t;

static uint64_t ns_of(double s) {
  return (uint64_t)(s * 1e9);
}

static served_t *served_of(group_t *group) {
  return (served_t *)(void *)group;
}

static void begin(server_t *server, world_t *world, const policy_t *policy) {
  uint64_t secret[2] = {1, 2};
  inferd_error_t error;
  *server = (server_t){.world = world, .policy = policy};
  if (block_pool_new(POOL_TOKENS / BLOCK_SIZE, BLOCK_SIZE, true, secret, &server->pool, &error) ||
      scheduler_new(&policy->options, server->pool, &server->scheduler, &error))
    exit(1);
  world->pool = server->pool;
  floor_options_t floor = {.num_places = policy->floor_times * (POOL_TOKENS / BLOCK_SIZE),
                           .block_size = BLOCK_SIZE,
                           .num_blocks = POOL_TOKENS / BLOCK_SIZE};
  if (floor.num_places > 0 && floor_new(&floor, &server->pool->floor, &error) != 0) exit(1);
}

static void end(server_t *server, group_t *group, sequence_status_t status) {
  served_t *served = served_of(group);
  scheduler_finish(server->scheduler, group, status);
  world_note_end(server->world, served->job, status == SEQUENCE_FINISHED_ABORTED);
  free(served);
}

/* What engine_retry_after_s takes from the costs, for a request that enters. */
static double forecast_s(const server_t *server, const job_t *job) {
  const group_queue_t *queue = &server->scheduler->waiting.queue;
  double tokens = job->prompt;
  for (const group_t *group = queue->head; group != NULL; group = group->next)
    tokens += group->sequence.num_prompt_tokens;
  forecast_t forecast = scheduler_forecast(server->scheduler, tokens / (queue->count + 1));
  return (forecast.base_ns + tokens * forecast.token_ns) * 1e-9;
}

static void receive(server_t *server, job_t *job) {
  const policy_t *policy = server->policy;
  if (policy->queue_max > 0 && server->scheduler->waiting.queue.count >= policy->queue_max) {
    world_note_end(server->world, job, true);
    return;
  }
  served_t *served = calloc(1, sizeof *served);
  if (served == NULL) exit(1);
  served->job = job;
  job->forecast_s = forecast_s(server, job);
  served->request = (request_t){.prompt_ids = job->ids,
                                .num_prompt_tokens = job->prompt,
                                .prompt_keys = job->keys,
                                .tenant = 1 + (uint64_t)job->tenant,
                                .arrival_ns = ns_of(job->came_s),
                                .params = {.n = 1,
                                           .top_p = 1,
                                           .repetition_penalty = 1,
                                           .max_tokens = job->output,
                                           .num_logprobs = -1,
                                           .num_prompt_logprobs = -1}};
  group_init(&served->group, &served->request, server->next_arrival++);
  scheduler_add(server->scheduler, &served->group);
}

/* As engine.c ends those that wait too long. */
static void expire(server_t *server) {
  double limit_ns = server->policy->queue_s * 1e9;
  uint64_t now_ns = ns_of(server->world->now_s);
  group_t *group;
  while (limit_ns > 0 && (group = scheduler_find_late(server->scheduler, now_ns, limit_ns)) != NULL)
    end(server, group, SEQUENCE_FINISHED_ABORTED);
}

static void commit(server_t *server, const plan_entry_t *entry) {
  sequence_t *seq = entry->sequence;
  served_t *served = served_of(seq->group);
  scheduler_complete(entry);
  scheduler_publish(server->scheduler, entry);
  if (!entry->do_sample) return;
  if (seq->num_output_tokens == 0) {
    world_note_begun(server->world, served->job, seq->num_cached_tokens);
    scheduler_note_first(server->scheduler, seq->group);
  }
  int32_t position = seq->num_prompt_tokens + seq->num_output_tokens++;
  seq->tokens[position] = served->job->ids[position];
  world_note_token(server->world, served->job);
  if (seq->num_output_tokens == served->job->output)
    end(server, seq->group, SEQUENCE_FINISHED_STOPPED);
}

/* Plans a step, and lets its time pass. Returns false if nothing can run. */
static bool step(server_t *server) {
  scheduler_t *scheduler = server->scheduler;
  int32_t count = scheduler_plan(scheduler, ns_of(server->world->now_s));
  const plan_t *plan = &scheduler->plan;
  floor_t *floor = server->pool->floor;
  double keys = 0, pairs = 0, copies_ns = 0;
  if (floor != NULL) {
    copies_ns = world_copy(server->world, floor->num_ins); /* what leaves is copied beside a step */
    scheduler->plan.copies_floor = floor->num_ins > 0;
    floor_launched(floor);
  }
  for (int32_t i = 0; i < count; i++) {
    double start = plan->entries[i].num_computed, n = plan->entries[i].num_tokens;
    if (n == 1) {
      keys += start + 1;
    } else {
      pairs += n * start + n * (n + 1) / 2;
    }
  }
  if (count == 0)
    return scheduler->slices.num_open > 0 || (floor != NULL && floor->num_leaving > 0);
  double ns = world_step(server->world, plan->num_tokens, keys, pairs);
  scheduler_note_time(scheduler, plan, ns + copies_ns);
  for (int32_t i = 0; i < count; i++) commit(server, &plan->entries[i]);
  return true;
}

static void free_queue(const group_queue_t *queue) {
  for (group_t *group = queue->head, *next; group != NULL; group = next) {
    next = group->next;
    free(served_of(group));
  }
}

void serve_inferd(world_t *world, const policy_t *policy) {
  server_t server;
  begin(&server, world, policy);
  while (!world_is_over(world)) {
    for (job_t *job; (job = world_arrival(world)) != NULL;) receive(&server, job);
    expire(&server);
    if (!step(&server) && !world_wait(world)) break;
  }
  free_queue(&server.scheduler->running);
  free_queue(&server.scheduler->waiting.queue);
  scheduler_free(server.scheduler);
  floor_free(server.pool->floor);
  block_pool_free(server.pool);
}
