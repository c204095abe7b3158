/* test_cross_blocks.c: K and V of sources in the scheduler: what is kept, what goes first, what the
 * prefix cache shares behind them, groups that wait for them, and whose source is next.
 */
#include "engine/schedule/cross_blocks.h"
#include "engine/schedule/sources.h"
#include "tests/engine/schedule/block_check.h"
#include "tests/engine/support.h"
#include "tests/expect.h"

#include <string.h>

enum { BLOCK = 4, FIRST = 65, COUNT = 6, LONGEST = 16, PROMPT = 10 };

/* ---- the blocks ---- */

typedef struct asking {
  request_t request;
  encoder_source_t source;
} asking_t;

static void ask(asking_t *asking, uint8_t key, uint64_t domain, int32_t length) {
  *asking = (asking_t){.request.base_salt = domain, .source.length = length};
  memset(asking->source.key.bytes, key, sizeof asking->source.key.bytes);
  asking->request.source = &asking->source;
}

static cross_blocks_t *make_blocks(void) {
  inferd_error_t error;
  cross_blocks_t *cross = NULL;
  ASSERT_EQ(cross_blocks_new(FIRST, COUNT, BLOCK, LONGEST, &cross, &error), 0);
  return cross;
}

/* Takes and fills. Returns the entry. */
static int32_t put(cross_blocks_t *cross, const asking_t *asking) {
  const int32_t *table;
  const int32_t entry = cross_blocks_take(cross, &asking->request, asking->source.length, &table);
  if (entry != 0) cross_blocks_fill(cross, entry);
  return entry;
}

Test(cross_blocks, tables_name_each_block_once_and_none_of_a_sequence) {
  cross_blocks_t *cross = make_blocks();
  asking_t one, two;
  const int32_t *first, *second;
  int32_t length;
  bool used[COUNT] = {false};
  ask(&one, 1, 7, 9);
  ask(&two, 2, 7, 12);
  ASSERT_GT(cross_blocks_take(cross, &one.request, 9, &first), 0);
  ASSERT_EQ(cross_blocks_has(cross, &one.request), false);
  ASSERT_EQ(cross_blocks_is_begun(cross, &one.request), true);
  ASSERT_GT(put(cross, &two), 0);
  ASSERT_EQ(cross_blocks_num_free(cross), 0);
  second = cross_blocks_use(cross, &two.request, &length);
  ASSERT_EQ(length, 12);
  for (int i = 0; i < 6; i++) {
    const int32_t block = i < 3 ? first[i] : second[i - 3];
    ASSERT_GE(block, FIRST);
    ASSERT_LT(block, FIRST + COUNT);
    ASSERT_EQ(used[block - FIRST], false);
    used[block - FIRST] = true;
  }
  cross_blocks_free(cross);
}

Test(cross_blocks, another_domain_or_key_is_another_entry) {
  cross_blocks_t *cross = make_blocks();
  asking_t mine, theirs, other;
  ask(&mine, 1, 7, 4);
  ask(&theirs, 1, 8, 4);
  ask(&other, 2, 7, 4);
  ASSERT_GT(put(cross, &mine), 0);
  ASSERT_EQ(cross_blocks_has(cross, &mine.request), true);
  ASSERT_EQ(cross_blocks_has(cross, &theirs.request), false);
  ASSERT_EQ(cross_blocks_has(cross, &other.request), false);
  ASSERT_GT(put(cross, &theirs), 0);
  ASSERT_EQ(cross_blocks_num_entries(cross), 2);
  cross_blocks_free(cross);
}

Test(cross_blocks, what_was_used_least_recently_goes_first_and_marks_go_before_that) {
  cross_blocks_t *cross = make_blocks();
  asking_t a, b, c;
  int32_t length;
  ask(&a, 1, 7, 12);
  ask(&b, 2, 7, 12);
  ask(&c, 3, 7, 4);
  ASSERT_GT(put(cross, &a), 0);
  ASSERT_GT(put(cross, &b), 0);
  cross_blocks_launch(cross);
  (void)cross_blocks_use(cross, &a.request, &length);
  cross_blocks_unmark(cross);
  cross_blocks_mark(cross, &b.request, CROSS_MUST_STAY);
  ASSERT_EQ(put(cross, &c), 0); /* a step that is being built reads a, b must stay */
  cross_blocks_land(cross);
  ASSERT_GT(put(cross, &c), 0);
  ASSERT_EQ(cross_blocks_has(cross, &a.request), false);
  ASSERT_EQ(cross_blocks_has(cross, &b.request), true);
  cross_blocks_free(cross);
}

Test(cross_blocks, what_is_dropped_leaves_its_blocks) {
  cross_blocks_t *cross = make_blocks();
  asking_t a;
  const int32_t *table;
  ask(&a, 1, 7, LONGEST);
  const int32_t entry = cross_blocks_take(cross, &a.request, LONGEST, &table);
  ASSERT_EQ(cross_blocks_num_free(cross), COUNT - LONGEST / BLOCK);
  cross_blocks_drop(cross, entry);
  ASSERT_EQ(cross_blocks_num_free(cross), COUNT);
  ASSERT_EQ(cross_blocks_is_begun(cross, &a.request), false);
  cross_blocks_free(cross);
}

/* ---- the scheduler ---- */

static group_t *add(rig_t *rig, encoder_source_t *source, uint8_t key) {
  group_t *group = rig_add(rig, PROMPT, 1, 5);
  *source = (encoder_source_t){.length = 8};
  memset(source->key.bytes, key, sizeof source->key.bytes);
  group->request->source = source;
  group->is_plain = false;
  return group;
}

static rig_t *make(cross_blocks_t **cross) {
  const scheduler_options_t options = rig_options(3, 64, 64);
  rig_t *rig = rig_new(&options, FIRST, BLOCK, true);
  *cross = make_blocks();
  rig->scheduler->cross_blocks = *cross;
  return rig;
}

static void fill(cross_blocks_t *cross, const group_t *group) {
  const int32_t *table;
  const int32_t entry =
      cross_blocks_take(cross, group->request, group->request->source->length, &table);
  ASSERT_GT(entry, 0);
  cross_blocks_fill(cross, entry);
}

/* Tokens that it takes from the cache. */
static int32_t run(rig_t *rig, group_t *group) {
  while (group->sequence.num_output_tokens == 0) {
    rig_step(rig);
    rig_commit(rig, 9);
    block_pool_check(rig->pool);
  }
  const int32_t cached = group->sequence.num_cached_tokens;
  scheduler_finish(rig->scheduler, group, SEQUENCE_FINISHED_STOPPED);
  return cached;
}

Test(sources, a_group_computes_nothing_before_its_source_is_read) {
  cross_blocks_t *cross;
  rig_t *rig = make(&cross);
  encoder_source_t source;
  const pictures_begun_t none = {.count = 0};
  group_t *group = add(rig, &source, 1);
  rig_step(rig);
  ASSERT_EQ(rig->scheduler->plan.num_entries, 0);
  ASSERT_EQ(group->sequence.status, SEQUENCE_RUNNING);
  ASSERT_EQ(sources_next(rig->scheduler, &none, 8) == group, true);
  ASSERT_EQ(sources_next(rig->scheduler, &none, 7) == NULL, true);
  fill(cross, group);
  ASSERT_EQ(sources_next(rig->scheduler, &none, 8) == NULL, true);
  ASSERT_EQ(run(rig, group), 0);
  cross_blocks_free(cross);
  rig_free(rig);
}

Test(sources, equal_decoder_prompts_behind_two_sources_share_no_block) {
  cross_blocks_t *cross;
  rig_t *rig = make(&cross);
  encoder_source_t sources[3];
  group_t *one = add(rig, &sources[0], 1);
  fill(cross, one);
  ASSERT_EQ(run(rig, one), 0);
  group_t *two = add(rig, &sources[1], 2);
  fill(cross, two);
  ASSERT_EQ(run(rig, two), 0);
  ASSERT_EQ(run(rig, add(rig, &sources[2], 1)), PROMPT - 1);
  cross_blocks_free(cross);
  rig_free(rig);
}

Test(sources, what_a_running_group_reads_stays) {
  cross_blocks_t *cross;
  rig_t *rig = make(&cross);
  encoder_source_t sources[2];
  group_t *runs = add(rig, &sources[0], 1);
  rig_step(rig);
  fill(cross, runs);
  asking_t other;
  ask(&other, 9, 7, LONGEST);
  ASSERT_GT(put(cross, &other), 0); /* all blocks are taken now */
  group_t *next = add(rig, &sources[1], 2);
  const int32_t *table;
  sources_mark(rig->scheduler);
  ASSERT_GT(cross_blocks_take(cross, next->request, 8, &table), 0);
  ASSERT_EQ(cross_blocks_has(cross, runs->request), true);
  ASSERT_EQ(cross_blocks_has(cross, &other.request), false);
  cross_blocks_free(cross);
  rig_free(rig);
}
