/* lpm.c: a plain model of SGLang's scheduler with its defaults. One thread.
 *
 * As its documentation and its paper (Zheng et al., 2024) say: while a request waits, the next step
 * has prompts only, 8,192 tokens at most, and decodes stand still; else all decode. Up to 128
 * requests that wait are ordered by the length of their cached prefix, longest first, more of them
 * by arrival. One is let in if the free memory holds its prompt, its output, and a share of what
 * those that run may still write: 0.7, less with each step that decodes, but 0.1 at least. If
 * memory ends, the last one that was let in goes back. Its cache is that of the product's pool.
 */
#include "tests/policy/policy.h"

#include "engine/base/util.h"

#include <stdlib.h>

enum { PREFILL_TOKENS = 8192, SORTED_MAX = 128, SEQS_MAX = 4096, NEW_TOKENS_MAX = 4096 };
static const double RATIO_FIRST = 0.7, RATIO_LAST = 0.1, RATIO_STEPS = 600;

typedef struct item {
  job_t *job;
  int32_t *blocks; /* [num_blocks] */
  int32_t num_blocks, num_computed, num_published, num_output;
  int32_t planned; /* tokens of the prompt in this step */
  int32_t match;   /* tokens of its cached prefix, when the queue was ordered */
  int number;      /* by arrival */
} item_t;

typedef struct list {
  item_t *items[1 << 16];
  int count;
} list_t;

typedef struct server {
  world_t *world;
  block_pool_t *pool;
  list_t waiting, running; /* running: its last one may be a prompt that is not complete */
  double ratio;
  int num_items;
} server_t;

static int32_t known(const item_t *item) {
  return item->job->prompt + item->num_output;
}

static prefix_place_t place_of(const item_t *item, int32_t index) {
  return (prefix_place_t){.parent = index > 0 ? item->blocks[index - 1] : NO_BLOCK};
}

static int32_t find(const server_t *server, const item_t *item, int32_t index,
                    prefix_place_t place) {
  return prefix_find(server->pool, &item->job->keys[index], place,
                     &item->job->ids[index * BLOCK_SIZE]);
}

/* Tokens that the cache has, the last one never. */
static int32_t match(const server_t *server, const item_t *item) {
  int32_t index = 0, block = NO_BLOCK;
  for (; (index + 1) * BLOCK_SIZE < known(item); index++) {
    block = find(server, item, index, (prefix_place_t){.parent = block});
    if (block < 0) break;
  }
  return index * BLOCK_SIZE;
}

/* Takes the cached blocks. */
static void take_match(const server_t *server, item_t *item) {
  while ((item->num_blocks + 1) * BLOCK_SIZE < known(item)) {
    int32_t block = find(server, item, item->num_blocks, place_of(item, item->num_blocks));
    if (block < 0) break;
    block_acquire(server->pool, block);
    item->blocks[item->num_blocks++] = block;
  }
  item->num_computed = item->num_blocks * BLOCK_SIZE;
  item->num_published = item->num_blocks;
}

/* Takes blocks for n more tokens. Returns false if there are too few. */
static bool grow(const server_t *server, item_t *item, int32_t n) {
  int32_t wanted = DIV_UP(item->num_computed + n, BLOCK_SIZE);
  if (wanted - item->num_blocks > server->pool->num_free) return false;
  while (item->num_blocks < wanted) {
    int32_t block = block_allocate(server->pool);
    block_written(server->pool, block);
    item->blocks[item->num_blocks++] = block;
  }
  return true;
}

/* Makes the full blocks findable; one whose content another has is given back for that one. */
static void publish(const server_t *server, item_t *item) {
  block_pool_t *pool = server->pool;
  for (; (item->num_published + 1) * BLOCK_SIZE <= item->num_computed; item->num_published++) {
    int32_t i = item->num_published, *block = &item->blocks[i];
    int32_t twin = find(server, item, i, place_of(item, i));
    if (twin >= 0) {
      block_acquire(pool, twin);
      block_release(pool, *block);
      *block = twin;
      continue;
    }
    prefix_publish(pool, *block, &item->job->keys[i], place_of(item, i),
                   &item->job->ids[i * BLOCK_SIZE]);
    pool->blocks[*block].identity.num_valid = BLOCK_SIZE;
  }
}

static void release(const server_t *server, item_t *item) {
  while (item->num_blocks > 0) block_release(server->pool, item->blocks[--item->num_blocks]);
  item->num_computed = item->num_published = 0;
}

static void free_item(item_t *item) {
  free(item->blocks);
  free(item);
}

static void remove_at(list_t *list, int at) {
  list->count--;
  for (int i = at; i < list->count; i++) list->items[i] = list->items[i + 1];
}

static void receive(server_t *server, job_t *job) {
  item_t *item = calloc(1, sizeof *item);
  if (item != NULL) item->blocks = calloc(CONTEXT / BLOCK_SIZE, sizeof *item->blocks);
  if (item == NULL || item->blocks == NULL || server->waiting.count == 1 << 16) exit(1);
  item->job = job;
  item->number = server->num_items++;
  server->waiting.items[server->waiting.count++] = item;
}

static int compare(const void *left, const void *right) {
  const item_t *a = *(item_t *const *)left, *b = *(item_t *const *)right;
  if (a->match != b->match) return a->match > b->match ? -1 : 1;
  return a->number - b->number;
}

/* By the longest match; too many of them by arrival alone. */
static void order_waiting(server_t *server) {
  list_t *waiting = &server->waiting;
  for (int i = 0; i < waiting->count; i++) {
    item_t *item = waiting->items[i];
    item->match = waiting->count <= SORTED_MAX ? match(server, item) : 0;
  }
  qsort(waiting->items, (size_t)waiting->count, sizeof(item_t *), compare);
}

/* Tokens that are free and that nobody who runs will need, as far as one can know. */
static double tokens_left(const server_t *server) {
  double left = (double)server->pool->num_free * BLOCK_SIZE;
  for (int i = 0; i < server->running.count; i++) {
    const item_t *item = server->running.items[i];
    left -= server->ratio * MIN(item->job->output - item->num_output, NEW_TOKENS_MAX);
  }
  return left;
}

static int32_t plan_chunk(const server_t *server, item_t *item, int32_t budget) {
  int32_t n = MIN(known(item) - item->num_computed, budget);
  if (!grow(server, item, n)) n = 0;
  item->planned = n;
  return n;
}

/* Lets requests in. Returns the tokens of the step; 0 = it is one of decodes. */
static int32_t plan_prompts(server_t *server) {
  list_t *waiting = &server->waiting, *running = &server->running;
  int32_t planned = 0;
  item_t *last = running->count > 0 ? running->items[running->count - 1] : NULL;
  if (last != NULL && last->num_computed < known(last) - 1)
    planned = plan_chunk(server, last, PREFILL_TOKENS);
  if (waiting->count > 0 && planned < PREFILL_TOKENS) order_waiting(server);
  while (waiting->count > 0 && planned < PREFILL_TOKENS && running->count < SEQS_MAX) {
    item_t *item = waiting->items[0];
    int32_t more = MIN(item->job->output - item->num_output, NEW_TOKENS_MAX);
    if (known(item) - match(server, item) + more >= tokens_left(server) && running->count > 0)
      break;
    take_match(server, item);
    if (item->num_output == 0) world_note_begun(server->world, item->job, item->num_computed);
    remove_at(waiting, 0);
    running->items[running->count++] = item;
    planned += plan_chunk(server, item, PREFILL_TOKENS - planned);
    if (item->num_computed + item->planned < known(item)) break;
  }
  return planned;
}

/* A token came. Returns true if it was the last one. */
static bool draw(server_t *server, item_t *item) {
  item->num_output++;
  world_note_token(server->world, item->job);
  return item->num_output == item->job->output;
}

/* Those of the step have computed `planned` tokens; whoever has all of them draws. */
static void commit(server_t *server) {
  list_t *running = &server->running;
  int kept = 0;
  for (int i = 0; i < running->count; i++) {
    item_t *item = running->items[i];
    bool draws = item->planned > 0 && item->num_computed + item->planned == known(item);
    item->num_computed += item->planned;
    item->planned = 0;
    publish(server, item);
    if (draws && draw(server, item)) {
      release(server, item);
      world_note_end(server->world, item->job, false);
      free_item(item);
    } else {
      running->items[kept++] = item;
    }
  }
  running->count = kept;
}

static void step_prompts(server_t *server, int32_t tokens) {
  double pairs = 0;
  for (int i = 0; i < server->running.count; i++) {
    const item_t *item = server->running.items[i];
    double n = item->planned;
    pairs += n * item->num_computed + n * (n + 1) / 2;
  }
  world_step(server->world, tokens, 0, pairs);
  commit(server);
}

/* Everybody decodes; who was let in last makes room. */
static void step_decodes(server_t *server) {
  list_t *running = &server->running;
  double keys = 0;
  for (int i = 0; i < running->count; i++) {
    item_t *item = running->items[i];
    while (!grow(server, item, 1) && i < running->count - 1) {
      item_t *last = running->items[--running->count];
      release(server, last);
      server->waiting.items[server->waiting.count++] = last;
      server->ratio = RATIO_FIRST;
    }
    item->planned = 1;
    keys += item->num_computed + 1;
  }
  world_step(server->world, running->count, keys, 0);
  server->ratio = MAX(server->ratio - (RATIO_FIRST - RATIO_LAST) / RATIO_STEPS, RATIO_LAST);
  commit(server);
}

void serve_lpm(world_t *world, const policy_t *policy) {
  (void)policy;
  uint64_t secret[2] = {1, 2};
  server_t *server = calloc(1, sizeof *server);
  if (server == NULL ||
      block_pool_new(POOL_TOKENS / BLOCK_SIZE, BLOCK_SIZE, true, secret, &server->pool, NULL) != 0)
    exit(1);
  server->world = world;
  server->ratio = RATIO_FIRST;
  world->pool = server->pool;
  while (!world_is_over(world)) {
    for (job_t *job; (job = world_arrival(world)) != NULL;) receive(server, job);
    int32_t tokens = plan_prompts(server);
    if (tokens > 0) {
      step_prompts(server, tokens);
    } else if (server->running.count > 0) {
      step_decodes(server);
    } else if (!world_wait(world)) {
      break;
    }
  }
  for (int i = 0; i < server->waiting.count; i++) free_item(server->waiting.items[i]);
  for (int i = 0; i < server->running.count; i++) free_item(server->running.items[i]);
  block_pool_free(server->pool);
  free(server);
}
