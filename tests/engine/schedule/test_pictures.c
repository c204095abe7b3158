/* test_pictures.c: prompts with pictures in the scheduler: what the prefix cache shares of them.
 */
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
