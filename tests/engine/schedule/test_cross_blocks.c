/* test_cross_blocks.c: K and V of sources in the scheduler: what is kept, what goes first, what the
 * prefix cache shares behind them, groups that wait for them, and whose source is next.
 */
#include "engine/base/util.h"
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

/* Keys that begin alike stand in one place of the table, whichever of them goes. */
Test(cross_blocks, keys_that_begin_alike_are_told_apart) {
  for (int gone = 0; gone < 3; gone++) {
    cross_blocks_t *cross = make_blocks();
    asking_t all[3];
    int32_t entries[3], length;
    for (int i = 0; i < 3; i++) {
      ask(&all[i], 1, 7, 3 + i);
      all[i].source.key.bytes[31] = (uint8_t)i;
      entries[i] = put(cross, &all[i]);
      ASSERT_GT(entries[i], 0);
    }
    cross_blocks_drop(cross, entries[gone]);
    for (int i = 0; i < 3; i++) {
      ASSERT_EQ_FOR(cross_blocks_has(cross, &all[i].request), i != gone, "%d of %d", i, gone);
      if (i == gone) continue;
      (void)cross_blocks_use(cross, &all[i].request, &length);
      ASSERT_EQ(length, 3 + i);
    }
    ASSERT_EQ(cross_blocks_num_entries(cross), 2);
    cross_blocks_free(cross);
  }
}

/* Three entries of two blocks fill it. The first that goes is the one of least mark; of equal marks
 * the one that was used least recently; no more of them than are needed, and none in vain. */
Test(cross_blocks, no_more_goes_than_must) {
  static const struct {
    cross_mark_t marks[3];
    int32_t used, positions; /* which is used last; of the one that comes */
    bool fits, stays[3];
  } cases[] = {
      {{CROSS_MAY_GO, CROSS_MAY_GO, CROSS_MAY_GO}, 2, 8, true, {false, true, true}},
      {{CROSS_MAY_GO, CROSS_MAY_GO, CROSS_MAY_GO}, 0, 8, true, {true, false, true}},
      {{CROSS_MAY_GO, CROSS_MAY_GO, CROSS_MAY_GO}, 0, 9, true, {true, false, false}},
      {{CROSS_IS_WANTED, CROSS_MAY_GO, CROSS_MAY_GO}, 2, 8, true, {true, false, true}},
      {{CROSS_IS_WANTED, CROSS_MAY_GO, CROSS_MAY_GO}, 1, 8, true, {true, true, false}},
      {{CROSS_IS_WANTED, CROSS_IS_WANTED, CROSS_IS_WANTED}, 1, 8, true, {false, true, true}},
      {{CROSS_MUST_STAY, CROSS_IS_WANTED, CROSS_MAY_GO}, 2, 8, true, {true, true, false}},
      {{CROSS_MUST_STAY, CROSS_IS_WANTED, CROSS_MAY_GO}, 2, 16, true, {true, false, false}},
      {{CROSS_MUST_STAY, CROSS_MUST_STAY, CROSS_MAY_GO}, 2, 9, false, {true, true, true}},
      {{CROSS_MUST_STAY, CROSS_MUST_STAY, CROSS_MUST_STAY}, 2, 1, false, {true, true, true}},
  };
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    cross_blocks_t *cross = make_blocks();
    asking_t all[3], next;
    int32_t length;
    for (int i = 0; i < 3; i++) {
      ask(&all[i], (uint8_t)(1 + i), 7, 8);
      ASSERT_GT(put(cross, &all[i]), 0);
    }
    (void)cross_blocks_use(cross, &all[cases[c].used].request, &length);
    cross_blocks_mark(cross, &all[0].request, CROSS_MUST_STAY);
    cross_blocks_unmark(cross);
    for (int i = 0; i < 3; i++) {
      cross_blocks_mark(cross, &all[i].request, cases[c].marks[i]);
      cross_blocks_mark(cross, &all[i].request, CROSS_MAY_GO); /* the highest counts */
    }
    ask(&next, 9, 7, cases[c].positions);
    cross_blocks_mark(cross, &next.request, CROSS_MUST_STAY); /* it has no entry */
    ASSERT_EQ_FOR(put(cross, &next) != 0, cases[c].fits, "case %zu", c);
    for (int i = 0; i < 3; i++)
      ASSERT_EQ_FOR(cross_blocks_has(cross, &all[i].request), cases[c].stays[i], "case %zu, %d", c,
                    i);
    cross_blocks_free(cross);
  }
}

/* As many entries as blocks, each of one. */
Test(cross_blocks, the_table_may_be_full) {
  cross_blocks_t *cross = make_blocks();
  asking_t all[COUNT + 1];
  for (int i = 0; i <= COUNT; i++) {
    ask(&all[i], (uint8_t)(1 + i), 7, 1 + i % BLOCK);
    ASSERT_GT_FOR(put(cross, &all[i]), 0, "entry %d", i);
    ASSERT_EQ(cross_blocks_num_entries(cross), MIN(i + 1, COUNT));
  }
  for (int i = 0; i <= COUNT; i++)
    ASSERT_EQ_FOR(cross_blocks_has(cross, &all[i].request), i > 0, "entry %d", i);
  cross_blocks_free(cross);
}

/* What is not filled is read by nobody, and is not there; it does not go either. */
Test(cross_blocks, what_is_begun_stays) {
  cross_blocks_t *cross = make_blocks();
  asking_t begun, next;
  const int32_t *table;
  ask(&begun, 1, 7, 12);
  ask(&next, 2, 7, 13);
  ASSERT_EQ(cross_blocks_is_begun(cross, &begun.request), false);
  const int32_t entry = cross_blocks_take(cross, &begun.request, 12, &table);
  ASSERT_EQ(put(cross, &next), 0);
  ASSERT_EQ(cross_blocks_is_begun(cross, &begun.request), true);
  cross_blocks_fill(cross, entry);
  ASSERT_EQ(cross_blocks_is_begun(cross, &begun.request), false);
  ASSERT_GT(put(cross, &next), 0);
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

/* What it asks for is there once it has been computed. */
Test(sources, who_asks_for_weights_computes_all_of_the_prompt) {
  cross_blocks_t *cross;
  rig_t *rig = make(&cross);
  encoder_source_t sources[3];
  const cross_weights_t asked = {.num_heads = 1, .count = 1, .columns = 1};
  group_t *one = add(rig, &sources[0], 1);
  fill(cross, one);
  ASSERT_EQ(run(rig, one), 0);
  group_t *asks = add(rig, &sources[1], 1);
  asks->request->cross_weights = &asked;
  ASSERT_EQ(run(rig, asks), 0);
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

/* By what their clients were served, then by arrival; but for those that have one in the encoder,
 * those that it reads already, and those that are too long. */
Test(sources, the_encoder_serves_clients_by_turns) {
  scheduler_options_t options = rig_options(4, 64, 64);
  options.fair_share = true;
  rig_t *rig = rig_new(&options, FIRST, BLOCK, true);
  cross_blocks_t *cross = rig->scheduler->cross_blocks = make_blocks();
  static const uint64_t tenants[] = {1, 1, 2, 3};
  encoder_source_t sources[4];
  group_t *groups[4];
  for (int i = 0; i < 4; i++) {
    rig->requests[rig->count].tenant = tenants[i];
    groups[i] = add(rig, &sources[i], (uint8_t)(1 + i));
  }
  rig_step(rig);
  tenant_t *all = rig->scheduler->waiting.tenants.all;
  pictures_begun_t begun = {.count = 0};
  for (int i = 0; i < 4; i++) all[groups[i]->tenant].served = 10;
  ASSERT_EQ(sources_next(rig->scheduler, &begun, 8) == groups[0], true);
  all[groups[3]->tenant].served = 9;
  ASSERT_EQ(sources_next(rig->scheduler, &begun, 8) == groups[3], true);
  sources[3].length = 9;
  ASSERT_EQ(sources_next(rig->scheduler, &begun, 8) == groups[0], true);
  begun.groups[begun.count++] = groups[1]; /* another one of its client */
  ASSERT_EQ(sources_next(rig->scheduler, &begun, 8) == groups[2], true);
  const int32_t *table;
  ASSERT_GT(cross_blocks_take(cross, groups[2]->request, 8, &table), 0);
  ASSERT_EQ(sources_next(rig->scheduler, &begun, 8) == NULL, true);
  cross_blocks_free(cross);
  rig_free(rig);
}

/* That of one that was preempted goes behind that of one that has not begun. */
Test(sources, what_may_be_computed_again_goes_last) {
  for (int preempted = 0; preempted < 2; preempted++) {
    cross_blocks_t *cross;
    rig_t *rig = make(&cross);
    encoder_source_t sources[2];
    group_t *first = add(rig, &sources[0], 1), *second = add(rig, &sources[1], 2);
    fill(cross, first);
    fill(cross, second);
    first->num_preemptions = preempted;
    sources_mark(rig->scheduler);
    asking_t next;
    ask(&next, 9, 7, 12);
    ASSERT_GT(put(cross, &next), 0);
    ASSERT_EQ(cross_blocks_has(cross, first->request), preempted == 1);
    ASSERT_EQ(cross_blocks_has(cross, second->request), preempted == 0);
    cross_blocks_free(cross);
    rig_free(rig);
  }
}

/* A long prompt whose source is not read yet keeps no budget of the shorter ones, nor does a short
 * one pass others in vain. */
Test(sources, prompts_pass_as_if_those_without_a_source_were_not_there) {
  scheduler_options_t options = rig_options(4, 8, 64);
  options.short_prompts_pass = true;
  rig_t *rig = rig_new(&options, FIRST, BLOCK, true);
  cross_blocks_t *cross = rig->scheduler->cross_blocks = make_blocks();
  static const int32_t prompts[] = {4, 30, 20};
  encoder_source_t sources[3];
  group_t *groups[3];
  for (int i = 0; i < 3; i++) {
    groups[i] = rig_add(rig, prompts[i], 1, 5 + i);
    sources[i] = (encoder_source_t){.length = 8};
    memset(sources[i].key.bytes, 1 + i, sizeof sources[i].key.bytes);
    groups[i]->request->source = &sources[i];
    groups[i]->is_plain = false;
  }
  rig_step(rig); /* all are in `running` now, and none computes */
  ASSERT_EQ(rig->scheduler->running.count, 3);
  fill(cross, groups[1]);
  fill(cross, groups[2]);
  for (int i = 0; i < 3; i++) {
    rig_step(rig);
    ASSERT_PLAN(rig, CHUNK(groups[0], 0), CHUNK(groups[1], 4), CHUNK(groups[2], 4));
    rig_commit(rig, 9);
  }
  cross_blocks_free(cross);
  rig_free(rig);
}
