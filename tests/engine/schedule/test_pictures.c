/* test_pictures.c: prompts with pictures in the scheduler: what the prefix cache shares of them,
 * rows of pictures that are kept, chunks that wait for them, and whose picture is next.
 */
#include "engine/schedule/pictures.h"
#include "tests/engine/schedule/block_check.h"
#include "tests/engine/support.h"
#include "tests/expect.h"

#include <string.h>

enum { BLOCK = 4, PROMPT = 26, FIRST = 6, END = 15 };

/* A group whose prompt has the picture `key` at [first, end). All have the same ids. */
static group_t *add(rig_t *rig, image_t *image, uint8_t key, int32_t first, int32_t end) {
  group_t *group = rig_add(rig, PROMPT, 1, 5);
  *image = (image_t){.first = first, .end = end};
  memset(image->key.bytes, key, sizeof image->key.bytes);
  group->request->images = image;
  group->request->num_images = 1;
  return group;
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

static rig_t *make(void) {
  const scheduler_options_t options = rig_options(2, 64, 64);
  return rig_new(&options, 65, BLOCK, true);
}

Test(pictures, another_picture_in_the_same_place_is_no_hit) {
  rig_t *rig = make();
  image_t images[4];
  ASSERT_EQ(run(rig, add(rig, &images[0], 1, FIRST, END)), 0);
  ASSERT_EQ(run(rig, add(rig, &images[1], 1, FIRST, END)), PROMPT - 1);
  ASSERT_EQ(run(rig, add(rig, &images[2], 2, FIRST, END)), FIRST / BLOCK * BLOCK);
  ASSERT_EQ(run(rig, add(rig, &images[3], 2, FIRST, END)), PROMPT - 1);
  rig_free(rig);
}

/* Ids that are placeholders in one prompt are ordinary tokens of the other. */
Test(pictures, text_with_the_ids_of_a_picture_is_no_hit) {
  rig_t *rig = make();
  image_t image;
  ASSERT_EQ(run(rig, rig_add(rig, PROMPT, 1, 5)), 0);
  ASSERT_EQ(run(rig, add(rig, &image, 1, FIRST, END)), FIRST / BLOCK * BLOCK);
  ASSERT_EQ(run(rig, rig_add(rig, PROMPT, 1, 5)), PROMPT - 1);
  rig_free(rig);
}

/* One token further is another place, also where that is the next block. */
Test(pictures, the_same_picture_elsewhere_is_no_hit) {
  for (int32_t first = BLOCK - 1; first <= BLOCK + 1; first++) {
    rig_t *rig = make();
    image_t images[2];
    ASSERT_EQ(run(rig, add(rig, &images[0], 1, first, END)), 0);
    ASSERT_EQ(run(rig, add(rig, &images[1], 1, first + 1, END + 1)), first / BLOCK * BLOCK);
    rig_free(rig);
  }
}

/* The picture ends one token before a block, with it, and one behind. */
Test(pictures, blocks_behind_a_picture_are_those_of_the_prompt) {
  for (int32_t end = 2 * BLOCK - 1; end <= 2 * BLOCK + 1; end++) {
    rig_t *rig = make();
    image_t images[2];
    const int32_t before = BLOCK;
    ASSERT_EQ(run(rig, add(rig, &images[0], 1, BLOCK, end)), 0);
    ASSERT_EQ(run(rig, add(rig, &images[1], 2, BLOCK, end)), before);
    rig_free(rig);
  }
}

/* The keys that a request brings are those that the engine would make. */
Test(pictures, keys_that_a_request_brings_have_its_pictures) {
  rig_t *rig = make();
  block_key_t keys[2][PROMPT / BLOCK];
  image_t images[2];
  for (uint8_t i = 0; i < 2; i++) {
    group_t *group = add(rig, &images[i], 1 + i, FIRST, END);
    prefix_request_keys(rig->pool, group->request, PROMPT / BLOCK, keys[i]);
    group->request->prompt_keys = keys[i];
    ASSERT_EQ(run(rig, group), i == 0 ? 0 : BLOCK);
  }
  ASSERT_EQ(memcmp(keys[0], keys[1], sizeof *keys[0]), 0);
  for (int32_t i = FIRST / BLOCK; i < PROMPT / BLOCK; i++)
    ASSERT_EQ_FOR(memcmp(&keys[0][i], &keys[1][i], sizeof keys[0][i]) != 0, true, "block %d", i);
  rig_free(rig);
}

/* ---- rows that are kept ---- */

enum { VALUES = 2, PAD = 5003 /* id 3 of the prompts of `add` */ };

static image_rows_t *make_rows(int32_t num_pages) {
  image_rows_t *rows = NULL;
  const size_t bytes = (size_t)num_pages * image_rows_bytes(1, VALUES);
  ASSERT_EQ(image_rows_new(bytes, VALUES, PAD, &rows, NULL), 0);
  return rows;
}

static image_t picture(uint8_t key, uint32_t tokens) {
  image_t image = {.layout = {.tokens = tokens, .token_rows = 1, .token_columns = tokens}};
  memset(image.key.bytes, key, sizeof image.key.bytes);
  return image;
}

/* Makes the rows of a picture: row i is (key, i). Returns its entry. */
static int32_t see(image_rows_t *rows, const request_t *request, const image_t *image) {
  float *out[4 * IMAGE_PAGE_ROWS];
  const int32_t entry = image_rows_take(rows, request, image, out);
  for (uint32_t i = 0; entry != 0 && i < image->layout.tokens; i++) {
    out[i][0] = image->key.bytes[0];
    out[i][1] = (float)i;
  }
  if (entry != 0) image_rows_fill(rows, entry);
  return entry;
}

static void assert_rows(image_rows_t *rows, const request_t *request, const image_t *image) {
  for (int32_t i = (int32_t)image->layout.tokens - 1; i >= 0; i -= 5) {
    const float *row = image_rows_use(rows, request, image, i);
    ASSERT_EQ((int)row[0], image->key.bytes[0]);
    ASSERT_EQ((int)row[1], i);
  }
}

/* One row less than a page, a page, and one more, in a pool of three pages. */
Test(pictures, rows_are_found_until_their_pages_are_taken) {
  for (uint32_t tokens = IMAGE_PAGE_ROWS - 1; tokens <= IMAGE_PAGE_ROWS + 1; tokens++) {
    image_rows_t *rows = make_rows(3);
    const request_t request = {0};
    const image_t images[] = {picture(1, tokens), picture(2, tokens), picture(3, tokens)};
    const int32_t fit = tokens <= IMAGE_PAGE_ROWS ? 3 : 1;
    for (int32_t i = 0; i < 3; i++) ASSERT_NE(see(rows, &request, &images[i]), 0);
    for (int32_t i = 0; i < 3; i++)
      ASSERT_EQ_FOR(image_rows_has(rows, &request, &images[i]), i >= 3 - fit, "%u, %d", tokens, i);
    for (int32_t i = 3 - fit; i < 3; i++) assert_rows(rows, &request, &images[i]);
    image_rows_free(rows);
  }
}

/* Nobody learns by time whether another client has sent a picture. */
Test(pictures, rows_are_of_one_domain) {
  image_rows_t *rows = make_rows(3);
  const request_t one = {.base_salt = 1}, other = {.base_salt = 2};
  const request_t adapted = {.base_salt = 1, .salt = 7, .adapter = 1};
  const image_t image = picture(1, 3);
  see(rows, &one, &image);
  ASSERT_EQ(image_rows_has(rows, &other, &image), false);
  ASSERT_EQ(image_rows_has(rows, &adapted, &image), true);
  image_rows_free(rows);
}

Test(pictures, what_is_used_least_goes_and_what_must_stay_stays) {
  image_rows_t *rows = make_rows(3);
  const request_t request = {0};
  const image_t a = picture(1, 3), b = picture(2, 3), c = picture(3, 3), d = picture(4, 3);
  const image_t large = picture(5, 2 * IMAGE_PAGE_ROWS + 1);
  see(rows, &request, &a), see(rows, &request, &b), see(rows, &request, &c);
  assert_rows(rows, &request, &a);
  image_rows_unmark(rows);
  image_rows_mark(rows, &request, &b, IMAGE_IS_WANTED);
  ASSERT_NE(see(rows, &request, &d), 0); /* in the place of c: b is older, but wanted */
  ASSERT_EQ(image_rows_has(rows, &request, &c), false);
  ASSERT_EQ(image_rows_has(rows, &request, &b), true);
  image_rows_unmark(rows);
  image_rows_mark(rows, &request, &a, IMAGE_MUST_STAY);
  ASSERT_EQ(see(rows, &request, &large), 0);
  ASSERT_EQ(image_rows_has(rows, &request, &b), true); /* in vain nothing goes */
  image_rows_unmark(rows);
  ASSERT_NE(see(rows, &request, &large), 0);
  assert_rows(rows, &request, &large);
  image_rows_free(rows);
}

/* From its launch to its end, whatever is marked. */
Test(pictures, rows_that_a_step_in_flight_reads_stay) {
  image_rows_t *rows = make_rows(1);
  const request_t request = {0};
  const image_t a = picture(1, 3), b = picture(2, 3);
  see(rows, &request, &a);
  image_rows_launch(rows);
  assert_rows(rows, &request, &a);
  ASSERT_EQ(see(rows, &request, &b), 0);
  image_rows_land(rows);
  ASSERT_NE(see(rows, &request, &b), 0);
  image_rows_free(rows);
}

/* A run that is left gives its pages back. */
Test(pictures, an_entry_that_is_dropped_gives_its_pages) {
  image_rows_t *rows = make_rows(2);
  const request_t request = {0};
  const image_t a = picture(1, 2 * IMAGE_PAGE_ROWS), b = picture(2, IMAGE_PAGE_ROWS + 1);
  float *out[2 * IMAGE_PAGE_ROWS];
  const int32_t entry = image_rows_take(rows, &request, &a, out);
  ASSERT_EQ(image_rows_has(rows, &request, &a), false);
  ASSERT_EQ(see(rows, &request, &b), 0); /* what is being filled stays */
  image_rows_drop(rows, entry);
  ASSERT_NE(see(rows, &request, &b), 0);
  image_rows_free(rows);
}

/* ---- plans ---- */

static rig_t *make_seeing(const scheduler_options_t *options) {
  rig_t *rig = rig_new(options, 65, BLOCK, true);
  rig->scheduler->image_rows = make_rows(8);
  ASSERT_EQ(
      batch_see(rig->batch, options->max_num_batched_tokens, rig->scheduler->image_rows, true), 0);
  return rig;
}

/* The group whose picture begins next, beside those that are begun. */
static group_t *next_of(rig_t *rig, const pictures_begun_t *begun, const image_t **image) {
  static const pictures_begun_t none;
  return pictures_next(rig->scheduler, begun != NULL ? begun : &none, INT64_MAX, image);
}

static void free_seeing(rig_t *rig) {
  image_rows_free(rig->scheduler->image_rows);
  rig_free(rig);
}

/* A prompt of 26 tokens whose picture is those of [first, end), placeholders. */
static group_t *add_seeing(rig_t *rig, image_t *image, uint8_t key, int32_t first, int32_t end) {
  group_t *group = add(rig, image, key, first, end);
  image->layout = picture(key, (uint32_t)(end - first)).layout;
  for (int32_t i = first; i < end; i++) rig->ids[rig->count - 1][i] = PAD;
  group->is_plain = group->is_terse = false;
  return group;
}

/* The picture begins one token before a block, with it, and one behind. */
Test(pictures, a_chunk_ends_before_what_the_tower_has_not_seen) {
  const scheduler_options_t options = rig_options(2, 64, 64);
  for (int32_t first = BLOCK - 1; first <= BLOCK + 1; first++) {
    rig_t *rig = make_seeing(&options);
    image_t image;
    const image_t *next = NULL;
    group_t *group = add_seeing(rig, &image, 1, first, END);
    rig_step(rig);
    ASSERT_PLAN(rig, CHUNK(group, first));
    ASSERT_EQ(rig->batch->num_embedded, 0);
    rig_commit(rig, 9);
    ASSERT_EQ(rig_step(rig), 0);
    ASSERT_EQ(next_of(rig, NULL, &next) == group && next == &image, true);
    see(rig->scheduler->image_rows, group->request, &image);
    rig_step(rig);
    ASSERT_PLAN(rig, CHUNK(group, PROMPT - first));
    ASSERT_EQ(rig->batch->num_embedded, END - first);
    ASSERT_EQ(rig->batch->rope_positions != NULL, true);
    for (int32_t i = 0; i < END - first; i++) {
      ASSERT_EQ(rig->batch->embedded_tokens[i], i);
      ASSERT_EQ((int)rig->batch->embedded_rows[i][1], i);
    }
    ASSERT_EQ(next_of(rig, NULL, &next) == NULL, true);
    free_seeing(rig);
  }
}

/* A budget that ends in the middle of the picture, one token before its end, at it, and behind. */
Test(pictures, chunks_go_through_a_picture) {
  for (int32_t budget = END - 1; budget <= END + 1; budget++) {
    const scheduler_options_t options = rig_options(2, budget, 64);
    rig_t *rig = make_seeing(&options);
    image_t image;
    group_t *group = add_seeing(rig, &image, 1, FIRST, END);
    see(rig->scheduler->image_rows, group->request, &image);
    rig_step(rig);
    ASSERT_PLAN(rig, CHUNK(group, budget));
    const int32_t rows = MIN(budget, END) - FIRST;
    ASSERT_EQ(rig->batch->num_embedded, rows);
    rig_commit(rig, 9);
    rig_step(rig);
    ASSERT_EQ(rig->batch->num_embedded, END - FIRST - rows);
    if (budget < END) ASSERT_EQ((int)rig->batch->embedded_rows[0][1], rows);
    free_seeing(rig);
  }
}

/* What is behind a picture is counted on from its longer side, in decodes too. */
Test(pictures, a_decode_counts_on_from_the_picture) {
  const scheduler_options_t options = rig_options(2, 64, 64);
  rig_t *rig = make_seeing(&options);
  image_t image;
  group_t *group = add_seeing(rig, &image, 1, FIRST, FIRST + 9);
  image.layout.token_rows = image.layout.token_columns = 3;
  group->request->params.max_tokens = group->max_tokens = 3;
  see(rig->scheduler->image_rows, group->request, &image);
  rig_step(rig);
  rig_commit(rig, 9);
  rig_step(rig);
  ASSERT_EQ(rig->batch->num_tokens, 1);
  ASSERT_EQ(rig->batch->positions[0], PROMPT);
  for (int32_t axis = 0; axis < 3; axis++)
    ASSERT_EQ(rig->batch->rope_positions[axis * rig->batch->rope_stride], PROMPT - 6);
  free_seeing(rig);
}

/* Both prompts have the same ids up to the last token of the picture. */
Test(pictures, a_hit_that_ends_in_a_picture_needs_its_other_rows_alone) {
  const scheduler_options_t options = rig_options(2, 64, 64);
  rig_t *rig = make_seeing(&options);
  image_t images[2];
  const int32_t end = PROMPT - 2;
  group_t *group = add_seeing(rig, &images[0], 1, FIRST, end - 1);
  images[0].layout.tokens++; /* that the second prompt has */
  see(rig->scheduler->image_rows, group->request, &images[0]);
  run(rig, group);
  group = add_seeing(rig, &images[1], 1, FIRST, end);
  rig_step(rig);
  ASSERT_EQ(group->sequence.num_cached_tokens, end - 1);
  ASSERT_EQ(rig->batch->num_embedded, 1);
  ASSERT_EQ((int)rig->batch->embedded_rows[0][1], end - 1 - FIRST);
  free_seeing(rig);
}

/* Three prompts of two clients: two of the first one, then one of the second. */
typedef struct queue_rig {
  rig_t *rig;
  image_t images[3];
  group_t *groups[3];
} queue_rig_t;

static void queue(queue_rig_t *queued, bool priorities) {
  scheduler_options_t options = rig_options(4, 64, 64);
  options.fair_share = true;
  options.priority_policy = priorities;
  queued->rig = make_seeing(&options);
  for (int32_t i = 0; i < 3; i++) {
    request_t *request = &queued->rig->requests[queued->rig->count];
    request->tenant = i < 2 ? 1 : 2;
    queued->groups[i] = add_seeing(queued->rig, &queued->images[i], (uint8_t)(1 + i), 0, END);
    queued->images[i].layout.views = 1;
    queued->images[i].layout.grid_height = queued->images[i].layout.grid_width = 4;
  }
  rig_step(queued->rig);
}

/* Whoever came first where all are alike; a client has one picture in the tower. Whoever was served
 * least goes on. */
Test(pictures, the_tower_serves_clients_by_turns) {
  queue_rig_t queued;
  const image_t *next = NULL;
  float *out[END];
  queue(&queued, false);
  rig_t *rig = queued.rig;
  waiting_t *waiting = &rig->scheduler->waiting;
  pictures_begun_t begun = {.count = 0};
  ASSERT_EQ(pictures_turn(rig->scheduler, &begun), -1);
  for (int32_t i = 0; i < 3; i += 2) { /* the first one of each */
    group_t *group = next_of(rig, &begun, &next);
    ASSERT_EQ(group == queued.groups[i] && next == &queued.images[i], true);
    ASSERT_GT(image_rows_take(rig->scheduler->image_rows, group->request, next, out), 0);
    begun.groups[begun.count++] = group;
  }
  ASSERT_EQ(next_of(rig, &begun, &next) == NULL, true);
  for (int32_t turn = 0; turn < 6; turn++) {
    ASSERT_EQ_FOR(pictures_turn(rig->scheduler, &begun), turn % 2, "turn %d", turn);
    waiting_charge(waiting, begun.groups[turn % 2], 1);
  }
  image_rows_fill(rig->scheduler->image_rows, 1);
  begun = (pictures_begun_t){{queued.groups[2]}, 1};
  ASSERT_EQ(next_of(rig, &begun, &next) == queued.groups[1], true);
  free_seeing(rig);
}

/* One patch less than there is room for, as many, and one more. */
Test(pictures, a_picture_without_room_lets_others_pass) {
  queue_rig_t queued;
  const image_t *next = NULL;
  queue(&queued, false);
  for (uint32_t rows = 3; rows <= 5; rows++) {
    const pictures_begun_t none = {.count = 0};
    queued.images[0].layout.grid_height = rows;
    const group_t *group = pictures_next(queued.rig->scheduler, &none, 4 * 4, &next);
    ASSERT_EQ_FOR(group == queued.groups[rows <= 4 ? 0 : 1], true, "%u rows", rows);
  }
  free_seeing(queued.rig);
}

Test(pictures, what_is_more_urgent_goes_beside_a_picture_of_the_same_client) {
  queue_rig_t queued;
  const image_t *next = NULL;
  queue(&queued, true);
  const pictures_begun_t begun = {{queued.groups[0], queued.groups[2]}, 2};
  for (int64_t priority = 1; priority >= -1; priority--) {
    queued.groups[1]->request->priority = priority;
    ASSERT_EQ_FOR(next_of(queued.rig, &begun, &next) == (priority < 0 ? queued.groups[1] : NULL),
                  true, "%d", (int)priority);
  }
  free_seeing(queued.rig);
}

/* Two prompts with one picture: the second one waits for the rows of the first. */
Test(pictures, a_picture_that_is_begun_is_not_begun_again) {
  scheduler_options_t options = rig_options(4, 64, 64);
  rig_t *rig = make_seeing(&options);
  image_t images[2];
  group_t *groups[2];
  const image_t *next = NULL;
  float *out[END];
  for (int32_t i = 0; i < 2; i++) {
    rig->requests[rig->count].tenant = 1 + (uint64_t)i;
    groups[i] = add_seeing(rig, &images[i], 1, i, END);
  }
  rig_step(rig);
  images[1].layout = images[0].layout;
  ASSERT_GT(image_rows_take(rig->scheduler->image_rows, groups[0]->request, images, out), 0);
  const pictures_begun_t begun = {{groups[0]}, 1};
  ASSERT_EQ(next_of(rig, &begun, &next) == NULL, true);
  image_rows_drop(rig->scheduler->image_rows, 1); /* the first one has left */
  groups[0]->request->num_images = 0;
  ASSERT_EQ(next_of(rig, NULL, &next) == groups[1], true);
  free_seeing(rig);
}

/* ---- pictures whose tokens see each other ---- */

static rig_t *make_whole(const scheduler_options_t *options) {
  rig_t *rig = make_seeing(options);
  rig->scheduler->pictures_whole = true;
  return rig;
}

/* A budget that ends in the picture, one token before its end, at it, and behind. */
Test(pictures, a_picture_that_is_seen_whole_is_in_one_step) {
  for (int32_t budget = END - FIRST; budget <= END + 1; budget++) {
    const scheduler_options_t options = rig_options(2, budget, 64);
    rig_t *rig = make_whole(&options);
    image_t image;
    group_t *group = add_seeing(rig, &image, 1, FIRST, END);
    see(rig->scheduler->image_rows, group->request, &image);
    rig_step(rig);
    const bool fits = budget >= END;
    ASSERT_PLAN(rig, CHUNK(group, fits ? budget : FIRST));
    rig_commit(rig, 9);
    if (!fits) {
      rig_step(rig);
      ASSERT_PLAN(rig, CHUNK(group, MIN(budget, PROMPT - FIRST)));
    }
    ASSERT_EQ(rig->batch->num_embedded, END - FIRST);
    free_seeing(rig);
  }
}

/* Bounds of chunks do not cut it, and text before and behind it keeps them. */
Test(pictures, a_threshold_of_prompts_does_not_cut_it) {
  for (int32_t threshold = END - FIRST - 1; threshold <= END - FIRST + 1; threshold++) {
    scheduler_options_t options = rig_options(2, 64, 64);
    options.long_prefill_token_threshold = threshold;
    rig_t *rig = make_whole(&options);
    image_t image;
    group_t *group = add_seeing(rig, &image, 1, FIRST, END);
    see(rig->scheduler->image_rows, group->request, &image);
    rig_step(rig);
    ASSERT_PLAN(rig, CHUNK(group, FIRST));
    rig_commit(rig, 9);
    rig_step(rig);
    ASSERT_PLAN(rig, CHUNK(group, MAX(threshold, END - FIRST)));
    free_seeing(rig);
  }
}

/* Of two views with a line between them each is a run of its own. */
Test(pictures, tokens_see_their_view_and_not_behind_it) {
  const scheduler_options_t options = rig_options(2, 64, 64);
  rig_t *rig = make_whole(&options);
  image_t image;
  group_t *group = add_seeing(rig, &image, 1, FIRST, END);
  const int32_t line = FIRST + 3;
  rig->ids[rig->count - 1][line] = PAD + 1;
  image.layout.tokens--;
  see(rig->scheduler->image_rows, group->request, &image);
  rig_step(rig);
  for (int32_t t = 0; t < PROMPT; t++) {
    const int32_t end = t < FIRST || t >= END || t == line ? 0 : t < line ? line : END;
    ASSERT_EQ_FOR(rig->batch->seen_until[t], end, "token %d", t);
  }
  rig_commit(rig, 9);
  rig_step(rig); /* a decode sees what is before it */
  ASSERT_EQ(rig->batch->seen_until[0], 0);
  free_seeing(rig);
}

/* What the cache has of a picture was computed beside all of it. */
Test(pictures, a_hit_that_ends_in_a_picture_goes_on_to_its_end) {
  for (int32_t budget = 3; budget <= 5; budget++) {
    const scheduler_options_t options = rig_options(2, 64, 64);
    rig_t *rig = make_whole(&options);
    image_t images[2];
    group_t *group = add_seeing(rig, &images[0], 1, FIRST, END);
    images[0].layout.tokens += 4; /* that the second prompt has: they stand for what was evicted */
    see(rig->scheduler->image_rows, group->request, &images[0]);
    run(rig, group);
    group = add_seeing(rig, &images[1], 1, FIRST, END + 4);
    rig->scheduler->options.max_num_batched_tokens = budget;
    rig_step(rig);
    ASSERT_EQ(group->sequence.num_cached_tokens, END);
    ASSERT_EQ_FOR(rig_chunk(rig, group), budget < 4 ? 0 : budget, "%d", budget);
    free_seeing(rig);
  }
}

enum { STEP_NS = 12000000, TOKEN_NS = 200000, FEW_NS = 1000000, TEXT = 16 };

/* A step costs 1 ms, a row 1 ms, a token of a prompt 0.2 ms; a step that decodes may take 12. */
static rig_t *make_paced(void) {
  scheduler_options_t options = rig_options(16, 512, 1000);
  options.fair_share = true;
  options.short_prompts_pass = true;
  options.pace = (pace_options_t){.step_ns = STEP_NS};
  rig_t *rig = rig_new(&options, 2000, BLOCK, false);
  rig->scheduler->image_rows = make_rows(64);
  rig->scheduler->pictures_whole = true;
  ASSERT_EQ(batch_see(rig->batch, options.max_num_batched_tokens, rig->scheduler->image_rows, true),
            0);
  rig->scheduler->cost =
      (cost_t){.ns = {[COST_STEP] = FEW_NS, [COST_ROW] = FEW_NS, [COST_TOKEN] = TOKEN_NS},
               .num_steps = 1000};
  rig->requests[0].tenant = 1;
  rig_add(rig, 8, 500, 0);
  rig_step(rig);
  rig_commit(rig, 1);
  return rig;
}

/* A prompt of TEXT tokens and as many behind a picture, whose rows are there. */
static group_t *add_paced(rig_t *rig, image_t *image, uint64_t tenant, int32_t tokens) {
  const int32_t at = rig->count;
  rig->requests[at].tenant = tenant;
  group_t *group = rig_add(rig, 2 * TEXT + tokens, 1, at);
  *image = picture((uint8_t)at, (uint32_t)tokens);
  image->first = TEXT;
  image->end = TEXT + tokens;
  for (int32_t i = image->first; i < image->end; i++) rig->ids[at][i] = PAD;
  group->request->images = image;
  group->request->num_images = 1;
  group->is_plain = group->is_terse = false;
  see(rig->scheduler->image_rows, group->request, image);
  return group;
}

/* A decode takes 2.2 ms with its step, so 9.8 are left, of which a row takes 1: what fits goes at
 * once, what takes more when so much was left in earlier steps. */
Test(pictures, time_is_saved_for_a_picture_that_takes_longer_than_a_step) {
  static const struct {
    int32_t tokens, saves;
  } cases[] = {{43, 0}, {44, 0}, {45, 1}, {92, 1}, {94, 2}, {120, 2}};
  for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
    rig_t *rig = make_paced();
    image_t image;
    group_t *group = add_paced(rig, &image, 2, cases[i].tokens);
    rig_step(rig);
    ASSERT_EQ(rig_chunk(rig, group), TEXT);
    rig_commit(rig, 1);
    for (int32_t save = 0; save < cases[i].saves; save++) {
      ASSERT_EQ_FOR(rig_step(rig), 1, "%d tokens, step %d", cases[i].tokens, save);
      ASSERT_EQ(rig_chunk(rig, group), 0);
      rig_commit(rig, 1);
    }
    ASSERT_EQ_FOR(rig_step(rig), 2, "%d tokens", cases[i].tokens);
    ASSERT_GE(rig_chunk(rig, group), cases[i].tokens);
    ASSERT_EQ((int)group->sequence.saving.ns, 0);
    free_seeing(rig);
  }
}

/* Clients with pictures that take two steps each: a step has one of them, and all steps together
 * take no longer than chunks of text would, but for one picture and a block each. */
Test(pictures, steps_are_in_the_mean_as_long_as_they_may_be) {
  enum { CLIENTS = 6, TOKENS = 90 };
  rig_t *rig = make_paced();
  image_t images[CLIENTS];
  group_t *groups[CLIENTS];
  double took = 0;
  int32_t num_done = 0;
  for (int32_t i = 0; i < CLIENTS; i++)
    groups[i] = add_paced(rig, &images[i], 2 + (uint64_t)i / 2, TOKENS);
  for (int32_t step = 1; step <= 60 && num_done < CLIENTS; step++) {
    int32_t pictures = 0;
    rig_step(rig);
    for (int32_t i = 0; i < CLIENTS; i++) pictures += rig_chunk(rig, groups[i]) >= TOKENS;
    ASSERT_LE(pictures, 1);
    took += cost_ns(&rig->scheduler->cost, &rig->scheduler->plan.work);
    ASSERT_LE_FOR((int64_t)took,
                  (int64_t)step * (STEP_NS + 2 * BLOCK * TOKEN_NS) + TOKENS * TOKEN_NS, "step %d",
                  step);
    rig_commit(rig, 1);
    num_done += pictures;
  }
  ASSERT_EQ(num_done, CLIENTS);
  free_seeing(rig);
}

/* Without a decode nobody waits for the step. */
Test(pictures, a_picture_is_not_held_back_where_nothing_decodes) {
  rig_t *rig = make_paced();
  image_t image;
  group_t *stream = rig->scheduler->running.head;
  scheduler_finish(rig->scheduler, stream, SEQUENCE_FINISHED_STOPPED);
  group_t *group = add_paced(rig, &image, 2, 120);
  rig_step(rig);
  ASSERT_PLAN(rig, CHUNK(group, 120 + 2 * TEXT));
  free_seeing(rig);
}
