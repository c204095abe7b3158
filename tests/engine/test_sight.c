/* test_sight.c: which pictures of a prompt the engine takes. */
#include "engine/internal.h"
#include "tests/expect.h"

#include <stdlib.h>
#include <string.h>

enum { PAD = 7, PROMPT = 20, MOST = 6 };

/* A prompt with placeholders at [2, 2 + tokens) and [11, 14), and its two pictures. */
typedef struct asked {
  engine_t *engine;
  vision_t vision;
  int32_t ids[PROMPT];
  image_t images[2];
  request_t request;
  inferd_error_t error;
} asked_t;

static void ask(asked_t *asked, int32_t tokens) {
  static const uint8_t pixels[1];
  *asked = (asked_t){.engine = calloc(1, sizeof *asked->engine),
                     .vision = {.placeholder_id = PAD, .tokens_max = MOST}};
  for (int32_t i = 2; i < 2 + tokens; i++) asked->ids[i] = PAD;
  for (int32_t i = 11; i < 14; i++) asked->ids[i] = PAD;
  asked->images[0] =
      (image_t){.layout.tokens = (uint32_t)tokens, .views = pixels, .first = 2, .end = 2 + tokens};
  asked->images[1] = (image_t){.layout.tokens = 3, .views = pixels, .first = 11, .end = 14};
  asked->engine->info.vision = &asked->vision;
  asked->request = (request_t){.prompt_ids = asked->ids,
                               .num_prompt_tokens = PROMPT,
                               .images = asked->images,
                               .num_images = 2};
}

static int check(asked_t *asked) {
  int code = sight_check(asked->engine, &asked->request, &asked->error);
  free(asked->engine);
  return code;
}

Test(sight, pictures_have_at_most_the_tokens_that_the_tower_has_memory_for) {
  for (int32_t tokens = MOST - 1; tokens <= MOST + 1; tokens++) {
    asked_t asked;
    ask(&asked, tokens);
    ASSERT_EQ_FOR(check(&asked), tokens > MOST ? ERR_BAD_REQUEST : 0, "%d: %s", tokens,
                  asked.error.message);
  }
}

/* Of tiles whose padding is left out there are more patches than tokens. */
Test(sight, pictures_have_at_most_the_patches_that_the_tower_has_memory_for) {
  for (uint32_t patches = MOST - 1; patches <= MOST + 1; patches++) {
    asked_t asked;
    ask(&asked, 2);
    asked.vision.patches_max = MOST;
    asked.images[0].layout.views = asked.images[0].layout.grid_height = 1;
    asked.images[0].layout.grid_width = patches;
    ASSERT_EQ_FOR(check(&asked), patches > MOST ? ERR_BAD_REQUEST : 0, "%u: %s", patches,
                  asked.error.message);
  }
}

Test(sight, pictures_are_cut_into_as_many_views_as_there_is_room_for) {
  for (uint32_t views = VISION_TILES_MAX; views <= VISION_TILES_MAX + 1; views++) {
    asked_t asked;
    ask(&asked, 4);
    asked.images[0].layout.views = views;
    ASSERT_EQ_FOR(check(&asked), views > VISION_TILES_MAX ? ERR_BAD_REQUEST : 0, "%u: %s", views,
                  asked.error.message);
  }
}

/* One placeholder too few and too many, a place one token to each side, and pictures that overlap,
 * turn round or end behind the prompt. */
Test(sight, pictures_stand_where_their_placeholders_are) {
  static const struct {
    int32_t first, end, second_first, second_end, tokens;
    bool fits;
  } places[] = {
      {2, 6, 11, 14, 4, true},  {2, 6, 11, 14, 3, false},  {2, 6, 11, 14, 5, false},
      {1, 6, 11, 14, 4, false}, {2, 7, 11, 14, 4, false},  {3, 6, 11, 14, 4, false},
      {2, 6, 5, 14, 4, false},  {11, 14, 2, 6, 3, false},  {2, 6, 11, 11, 4, false},
      {2, 6, 11, 10, 4, false}, {-1, 6, 11, 14, 4, false}, {2, 6, 11, PROMPT + 1, 4, false}};
  for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
    asked_t asked;
    ask(&asked, 4);
    asked.images[0].first = places[i].first, asked.images[0].end = places[i].end;
    asked.images[0].layout.tokens = (uint32_t)places[i].tokens;
    asked.images[1].first = places[i].second_first, asked.images[1].end = places[i].second_end;
    ASSERT_EQ_FOR(check(&asked), places[i].fits ? 0 : ERR_BAD_REQUEST, "place %zu: %s", i,
                  asked.error.message);
  }
}

Test(sight, a_model_that_sees_nothing_takes_text_alone) {
  asked_t asked;
  ask(&asked, 4);
  asked.engine->info.vision = NULL;
  ASSERT_EQ(check(&asked), ERR_BAD_REQUEST);
  ask(&asked, 4);
  asked.engine->info.vision = NULL;
  asked.request.num_images = 0;
  ASSERT_EQ(check(&asked), 0);
}

Test(sight, a_picture_has_pixels) {
  asked_t asked;
  ask(&asked, 4);
  asked.images[1].views = NULL;
  ASSERT_EQ(check(&asked), ERR_BAD_REQUEST);
}
