/* test_floor.c: the floor of the prefix cache: what it keeps, its file, and the same tokens as ever
 * when blocks come back from it, also in another engine.
 */
#include "engine/schedule/floor/floor.h"

#include "engine/internal.h"
#include "tests/engine/client.h"
#include "tests/engine/schedule/block_check.h"
#include "tests/engine/schedule/swap_double.h"
#include "tests/engine/support.h"
#include "tests/expect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- the scheduler alone ---- */

static floor_t *add_floor(rig_t *rig, int32_t num_places) {
  inferd_error_t error;
  floor_options_t options = {.num_places = num_places,
                             .first_host = 100,
                             .block_size = rig->pool->block_size,
                             .num_blocks = rig->pool->num_blocks};
  ASSERT_EQ(floor_new(&options, &rig->pool->floor, &error), 0);
  return rig->pool->floor;
}

/* A step, whose copies are launched. */
static void step(rig_t *rig) {
  rig_step(rig);
  floor_launched(rig->pool->floor);
  rig_commit(rig, 9);
  block_pool_check(rig->pool);
}

/* Runs a request of one output token. Returns the tokens that it did not compute. */
static int32_t run(rig_t *rig, int32_t prompt, int32_t seed) {
  group_t *group = rig_add(rig, prompt, 1, seed);
  while (group->sequence.num_output_tokens == 0) step(rig);
  int32_t cached = group->sequence.num_cached_tokens;
  scheduler_finish(rig->scheduler, group, SEQUENCE_FINISHED_STOPPED);
  return cached;
}

static void free_rig(rig_t *rig) {
  floor_free(rig->pool->floor);
  rig->pool->floor = NULL;
  rig_free(rig);
}

Test(floor, blocks_leave_when_nobody_holds_them_and_come_back) {
  scheduler_options_t options = rig_options(2, 64, 64);
  rig_t *rig = rig_new(&options, 9, 4, true); /* 8 blocks */
  floor_t *floor = add_floor(rig, 32);
  ASSERT_EQ(run(rig, 29, 1), 0); /* 7 full blocks and one in part */
  ASSERT_EQ(floor->num_leaving, 7);
  ASSERT_EQ(run(rig, 30, 2), 0); /* takes all 8 blocks */
  ASSERT_EQ_FOR(floor->num_used, 7, "they left before another took them");
  ASSERT_EQ(run(rig, 29, 1), 28);
  ASSERT_EQ(floor->num_brought, 7);
  ASSERT_EQ(floor->num_used, 14);
  ASSERT_EQ(run(rig, 30, 2), 28);
  ASSERT_EQ(run(rig, 30, 2), 28);
  ASSERT_EQ_FOR(floor->num_brought, 14, "the pool has them now");
  ASSERT_EQ(floor->num_stored, 14);
  free_rig(rig);
}

Test(floor, what_was_used_least_recently_goes_from_the_end_of_its_prompt) {
  scheduler_options_t options = rig_options(2, 64, 64);
  rig_t *rig = rig_new(&options, 9, 4, true);
  floor_t *floor = add_floor(rig, 24);
  run(rig, 29, 1); /* 7 blocks */
  run(rig, 29, 2);
  ASSERT_EQ(run(rig, 29, 1), 28); /* used again */
  run(rig, 29, 3);
  run(rig, 29, 4); /* 28 blocks in 24 places: 4 of the second prompt go */
  ASSERT_EQ_FOR(run(rig, 29, 1), 28, "the first was used after the second");
  ASSERT_EQ(floor->num_used, 24);
  ASSERT_EQ_FOR(run(rig, 29, 2), 12, "its first 3 blocks are there");
  free_rig(rig);
}

Test(floor, a_block_that_is_brought_is_not_taken_by_one_that_leaves_for_it) {
  scheduler_options_t options = rig_options(2, 64, 64);
  rig_t *rig = rig_new(&options, 9, 4, true);
  floor_t *floor = add_floor(rig, 7); /* as many as the prompt has */
  run(rig, 29, 1);
  run(rig, 29, 2);
  for (int i = 0; i < 8; i++) {
    rig_add(rig, 29, 1, 1 + i % 2);
    rig_step(rig);
    for (int32_t k = 0; k < floor->num_ins; k++) {
      for (int32_t n = 0; n < floor->num_outs; n++)
        ASSERT_EQ(floor->ins[k].host == floor->outs[n].host, 0);
    }
    floor_launched(floor);
    rig_commit(rig, 9);
    scheduler_finish(rig->scheduler, rig->scheduler->running.head, SEQUENCE_FINISHED_STOPPED);
  }
  free_rig(rig);
}

/* The beginning of a prompt is scored, so it is computed anew, in blocks of its own. The prompt
 * shares them meanwhile, and the floor has what is behind them. */
Test(floor, nothing_is_brought_behind_a_block_that_is_computed) {
  static block_key_t keys[11];
  scheduler_options_t options = rig_options(4, 64, 64);
  options.slice_blocks = 2;
  options.long_prefill_token_threshold = 2;
  rig_t *rig = rig_new(&options, 25, 4, true);
  floor_t *floor = add_floor(rig, 128);
  run(rig, 45, 1);
  for (int32_t other = 2; other < 6; other++) run(rig, 45, other); /* only the floor has it now */
  ASSERT_EQ(floor->num_brought, 0);
  rig_add(rig, 17, 1, 1)->request->params.num_prompt_logprobs = 0; /* 4 blocks */
  request_t *request = &rig->requests[rig->count];
  const group_t *sharer = rig_add(rig, 45, 1, 1);
  prefix_keys(rig->pool, 0, request->prompt_ids, 11, keys);
  request->prompt_keys = keys;
  for (int i = 0; i < 40; i++) {
    step(rig);
    for (int32_t b = 1; b < rig->pool->num_blocks; b++) {
      const block_identity_t *id = &rig->pool->blocks[b].identity;
      const block_identity_t *before = &rig->pool->blocks[id->place.parent].identity;
      if (id->keyed && id->num_valid == 4 && id->place.parent != 0)
        ASSERT_EQ_FOR(before->num_valid, 4, "before block %d, step %d", (int)b, i);
    }
  }
  ASSERT_GE(sharer->sequence.num_output_tokens, 1);
  free_rig(rig);
}

/* Copies to the host run before those from the floor, so what enters has no content yet. */
Test(floor, nobody_is_swapped_out_in_a_plan_in_which_blocks_enter) {
  scheduler_options_t options = rig_options(4, 64, 64);
  options.swap = (swap_options_t){.num_blocks = 16, .mode = PREEMPT_SWAP};
  rig_t *rig = rig_new(&options, 25, 4, true);
  floor_t *floor = add_floor(rig, 128);
  run(rig, 29, 1);
  for (int32_t other = 2; other < 6; other++) run(rig, 45, other); /* only the floor has it now */
  const group_t *decodes = rig_add(rig, 9, 20, 7);
  step(rig);
  rig_add(rig, 29, 1, 1);
  rig_step(rig);
  ASSERT_EQ(floor->num_ins, 7);
  cr_assert(!swap_chosen(rig->scheduler, decodes));
  floor_launched(floor);
  rig_commit(rig, 9);
  cr_assert(swap_chosen(rig->scheduler, decodes));
  free_rig(rig);
}

/* ---- engines ---- */

enum { PROMPTS = 12 };

/* Prompts of up to 24 blocks, each twice; two domains. */
static void make_jobs(client_t *c) {
  for (int i = 0; i < 2 * PROMPTS; i++) {
    job_t *job = client_job(c, 150 + 20 * (i % PROMPTS), 6, i % PROMPTS);
    job->request.salt = (uint64_t)(i % PROMPTS % 2);
    job->request.params.num_logprobs = 1;
    job->request.params.ignore_eos = true;
  }
}

static engine_options_t small_pool(const struct ops *ops) {
  engine_options_t options = client_options(ops);
  options.max_num_seqs = 2;
  options.num_blocks = 60;
  options.max_model_len = 512;
  options.enable_prefix_caching = true;
  options.seed = 0; /* each process draws the secret of its keys */
  return options;
}

static client_t *run_plain(void) {
  engine_options_t options = small_pool(&ops_cpu);
  return client_run_all(&options, make_jobs);
}

Test(floor, the_same_tokens_by_host_memory, .timeout = 300) {
  client_t *plain = run_plain();
  int64_t bytes = 4 << 20;
  for (int i = 0; i < 2; i++) {
    engine_options_t options = small_pool(swap_double_ops());
    options.swap_space_bytes = 0;
    options.prefix_cache_bytes = bytes;
    client_t *c = client_run_all(&options, make_jobs);
    client_expect_same(plain, c, i == 0 ? "a large floor" : "a floor of 30 blocks");
    engine_stats_t stats = client_stats(c);
    cr_assert(i == 1 || stats.floor_in_blocks > 50);
    cr_assert(stats.floor_out_blocks > 50);
    client_check_idle(c);
    bytes = 30 * (bytes / engine_info(c->engine)->num_floor_blocks);
    client_free(c);
  }
  client_free(plain);
}

/* ---- the file ---- */

static char said[4096]; /* warnings of the engine that started last */

static void hear(void *context, const char *line) {
  (void)context;
  if (strstr(line, "warning") != NULL) snprintf(said, sizeof said, "%s", line);
}

static const char *file_path(void) {
  static char path[64];
  snprintf(path, sizeof path, "/tmp/inferd_floor_%d.kv", (int)getpid());
  return path;
}

static engine_options_t with_file(void) {
  engine_options_t options = small_pool(&ops_cpu);
  options.prefix_cache_file = file_path();
  options.prefix_cache_bytes = 4 << 20;
  options.log = hear;
  said[0] = '\0';
  return options;
}

/* An engine that has run, and where its file has what. */
typedef struct ran {
  engine_stats_t stats;
  int32_t num_places;
  size_t content, block_bytes, record_bytes;
} ran_t;

static ran_t run_with_file(const client_t *plain, const char *name) {
  engine_options_t options = with_file();
  client_t *c = client_run_all(&options, make_jobs);
  client_expect_same(plain, c, name);
  ran_t ran = {.stats = client_stats(c), .num_places = engine_info(c->engine)->num_floor_blocks};
  if (ran.num_places > 0) {
    const floor_t *floor = c->engine->pool->floor;
    ran.content = (size_t)(floor->options.memory.content - c->engine->floor_file.base);
    ran.block_bytes = floor->options.memory.content_bytes;
    ran.record_bytes = floor->record_bytes;
  }
  client_check_idle(c);
  client_free(c);
  return ran;
}

static void flip_bit(size_t at) {
  FILE *file = fopen(file_path(), "r+b");
  cr_assert(file != NULL);
  fseek(file, (long)at, SEEK_SET);
  int byte = fgetc(file);
  fseek(file, (long)at, SEEK_SET);
  fputc(byte ^ 0x40, file);
  fclose(file);
}

Test(floor, a_file_survives_a_restart, .timeout = 300) {
  client_t *plain = run_plain();
  unlink(file_path());
  ran_t first = run_with_file(plain, "the first process");
  struct stat status;
  ASSERT_EQ(stat(file_path(), &status), 0);
  ASSERT_EQ((int)(status.st_mode & 0777), 0600);
  ran_t second = run_with_file(plain, "the second process");
  unlink(file_path());
  ASSERT_EQ_FOR(said[0], 0, "nothing is to be warned of");
  cr_assert(second.stats.prompt_tokens_cached > first.stats.prompt_tokens_cached);
  uint64_t last_blocks = 16 * 2 * PROMPTS;
  cr_assert(second.stats.prompt_tokens_cached >= second.stats.prompt_tokens - last_blocks);
  ASSERT_EQ(second.stats.floor_damaged_blocks, 0);
  client_free(plain);
}

Test(floor, damaged_blocks_of_a_file_are_ignored, .timeout = 300) {
  client_t *plain = run_plain();
  unlink(file_path());
  ran_t ran = run_with_file(plain, "a new file");
  for (size_t place = 0; place < 40; place += 2) {
    flip_bit(ran.content + place * ran.block_bytes + place * 7 % ran.block_bytes);
    flip_bit(4096 + (place + 1) * ran.record_bytes + sizeof(floor_record_t) + place % 64);
  }
  ran = run_with_file(plain, "a damaged file");
  cr_assert(ran.stats.floor_damaged_blocks > 0);
  cr_assert(ran.stats.floor_in_blocks > 0);
  unlink(file_path());
  client_free(plain);
}

Test(floor, a_file_of_something_else_is_emptied_or_left_alone, .timeout = 300) {
  client_t *plain = run_plain();
  unlink(file_path());
  run_with_file(plain, "a new file");
  flip_bit(64); /* in the line that says what it is for, or beside it */
  ran_t ran = run_with_file(plain, "a damaged header");
  cr_assert(strstr(said, "its header is damaged") != NULL, "%s", said);
  cr_assert(ran.num_places > 0);

  engine_options_t options = with_file();
  options.max_model_len = 480;
  client_t *other = client_new(&options);
  cr_assert(strstr(said, "another model, version or setting") != NULL, "%s", said);
  ASSERT_EQ(other->engine->pool->floor->num_used, 0);
  options = with_file();
  client_t *second = client_new(&options);
  cr_assert(strstr(said, "another process uses it") != NULL, "%s", said);
  cr_assert(second->engine->pool->floor == NULL);
  client_free(second);
  client_free(other);

  FILE *file = fopen(file_path(), "w");
  fputs("a letter to nobody", file);
  fclose(file);
  ran = run_with_file(plain, "a file of the user");
  cr_assert(strstr(said, "not a file of cached blocks") != NULL, "%s", said);
  ASSERT_EQ(ran.num_places, 0);
  char letter[32] = "";
  file = fopen(file_path(), "r");
  cr_assert(fgets(letter, sizeof letter, file) != NULL);
  fclose(file);
  EXPECT_STR_EQ(letter, "a letter to nobody");
  unlink(file_path());
  client_free(plain);
}
