/* test_share.c: who makes room in a full queue, and that a client below its share never has to. */
#include "engine/share.h"

#include "engine/base/random.h"
#include "tests/expect.h"

#include <string.h>

enum { SLOTS = 256, MOST = 40 };

static share_t *share;
static int32_t free_slots[SLOTS], num_free;
static int32_t dropped[SLOTS], num_dropped;
static share_limits_t limits;

static void begin(int32_t requests, int64_t tokens) {
  ASSERT_EQ(share_new(SLOTS, &share, NULL), 0);
  limits = (share_limits_t){.num_requests = requests, .num_tokens = tokens};
  num_free = num_dropped = 0;
  for (int32_t i = SLOTS; i > 0; i--) free_slots[num_free++] = i - 1;
}

static void on_drop(void *context, int32_t slot) {
  cr_assert_null(context);
  dropped[num_dropped++] = slot;
}

/* Submits a bundle of `count` requests of `tokens` tokens each. Returns its first slot, or -1. The
 * others follow it. */
static int32_t submit(uint64_t client, int32_t count, int32_t tokens) {
  int32_t slots[SLOTS], lengths[SLOTS];
  share_ask_t ask = {
      .client = client, .num_requests = count, .num_tokens = (int64_t)count * tokens};
  if (!share_has_room(share, &ask, &limits)) return -1;
  cr_assert(share_make_room(share, &ask, &limits, on_drop, NULL));
  for (int32_t i = 0; i < count; i++) {
    slots[i] = free_slots[--num_free];
    lengths[i] = tokens;
  }
  share_add(share, client, slots, lengths, count);
  return slots[0];
}

static void end(int32_t slot) {
  share_left(share, slot);
  share_give_back(share, slot);
  free_slots[num_free++] = slot;
}

Test(share, a_client_alone_may_use_every_place) {
  begin(10, 1000);
  for (int i = 0; i < 10; i++) ASSERT_GE(submit(1, 1, 10), 0);
  ASSERT_EQ(submit(1, 1, 10), -1);
  ASSERT_EQ(num_dropped, 0);
  ASSERT_EQ(share_count(share).num_requests, 10);
  ASSERT_EQ(share_count(share).num_tokens, 100);
  share_free(share);
}

Test(share, the_newest_of_the_longest_makes_room) {
  begin(10, 1000);
  int32_t first[10];
  for (int i = 0; i < 8; i++) first[i] = submit(1, 1, 10);
  submit(2, 1, 10);
  submit(2, 1, 10);
  ASSERT_GE(submit(3, 1, 10), 0);
  ASSERT_EQ(num_dropped, 1);
  ASSERT_EQ(dropped[0], first[7]);
  cr_assert(share_is_dropped(share, first[7]));
  cr_assert(!share_is_dropped(share, first[6]));
  ASSERT_GE(submit(2, 1, 10), 0); /* 7 against its own 3 */
  ASSERT_EQ(num_dropped, 2);
  ASSERT_EQ(dropped[1], first[6]);
  ASSERT_EQ(submit(1, 1, 10), -1); /* it has most itself */
  ASSERT_EQ(share_count(share).num_clients, 3);
  share_free(share);
}

Test(share, equals_do_not_push_each_other_out) {
  begin(4, 1000);
  for (int i = 0; i < 4; i++) ASSERT_GE(submit((uint64_t)i % 2, 1, 10), 0);
  ASSERT_EQ(submit(0, 1, 10), -1);
  ASSERT_EQ(submit(1, 1, 10), -1);
  ASSERT_GE(submit(2, 1, 10), 0);
  ASSERT_EQ(submit(2, 1, 10), -1); /* it would have as many as the one that has most */
  ASSERT_EQ(num_dropped, 1);
  share_free(share);
}

Test(share, several_prompts_are_dropped_as_a_whole) {
  begin(100, 10000);
  int32_t many = submit(1, 98, 10);
  submit(1, 2, 10);
  ASSERT_EQ(submit(1, 1, 10), -1);
  ASSERT_GE(submit(2, 3, 10), 0); /* 2 places would not do */
  ASSERT_EQ(num_dropped, 100);
  cr_assert(share_is_dropped(share, many));
  ASSERT_EQ(share_count(share).num_requests, 3);
  share_free(share);
}

Test(share, nothing_is_dropped_for_one_that_is_refused) {
  begin(10, 100);
  submit(1, 1, 50);
  for (int i = 0; i < 5; i++) submit(2, 1, 8);
  ASSERT_EQ(submit(3, 1, 60), -1); /* more tokens than anybody else has */
  ASSERT_EQ(submit(3, 11, 1), -1); /* more requests than there are places */
  ASSERT_EQ(num_dropped, 0);
  share_free(share);
}

Test(share, tokens_are_shared_as_places_are) {
  begin(100, 1000);
  int32_t large = submit(1, 1, 900);
  submit(2, 1, 90);
  ASSERT_GE(submit(3, 1, 400), 0);
  ASSERT_EQ(num_dropped, 1);
  ASSERT_EQ(dropped[0], large);
  ASSERT_EQ(share_count(share).num_tokens, 490);
  share_free(share);
}

Test(share, any_length_enters_an_empty_queue) {
  begin(100, 1000);
  ASSERT_GE(submit(1, 1, 5000), 0);
  ASSERT_EQ(submit(1, 1, 1), -1);
  ASSERT_GE(submit(2, 1, 10), 0);
  ASSERT_EQ(num_dropped, 1);
  share_free(share);
}

Test(share, what_has_begun_is_not_dropped) {
  begin(4, 1000);
  int32_t old = submit(1, 3, 10), last = submit(1, 1, 10);
  cr_assert(share_begin(share, old));
  share_left(share, old); /* two of its prompts still wait */
  ASSERT_GE(submit(2, 1, 10), 0);
  ASSERT_EQ(num_dropped, 0);
  ASSERT_GE(submit(3, 1, 10), 0); /* 3 wait of client 1, and the last of them has not begun */
  ASSERT_EQ(num_dropped, 1);
  ASSERT_EQ(dropped[0], last);
  cr_assert(!share_begin(share, last));
  ASSERT_EQ(submit(4, 1, 10), -1);
  share_free(share);
}

/* The engine begins a bundle before the loop has heard of it. */
Test(share, a_bundle_that_begins_in_this_moment_is_not_dropped) {
  begin(4, 1000);
  int32_t first = submit(1, 1, 10), slots[3];
  for (int i = 0; i < 3; i++) slots[i] = submit(1, 1, 10);
  cr_assert(share_begin(share, slots[2]));
  ASSERT_GE(submit(2, 1, 10), 0);
  ASSERT_EQ(num_dropped, 1);
  ASSERT_EQ(dropped[0], slots[1]);
  cr_assert(share_begin(share, first));
  share_free(share);
}

/* A prompt of a bundle ends before any has begun, and another request gets its slot. */
Test(share, a_slot_that_was_given_back_is_no_longer_of_its_bundle) {
  for (int32_t gone = 0; gone < 3; gone++) {
    begin(4, 1000);
    int32_t many = submit(1, 3, 10);
    end(many + gone);
    ASSERT_EQ(submit(2, 1, 10), many + gone);
    submit(3, 1, 10);
    ASSERT_GE(submit(4, 1, 10), 0); /* client 1 has most: its other two make room */
    ASSERT_EQ_FOR(num_dropped, 2, "prompt %d had ended", (int)gone);
    for (int i = 0; i < 2; i++) ASSERT_NE_FOR(dropped[i], many + gone, "of client 2");
    ASSERT_EQ(share_count(share).num_requests, 3);
    share_free(share);
  }
}

/* ---- against a slow model of the rule ---- */

typedef struct model {
  int32_t slot;
  uint64_t client, number;
  int64_t tokens;
  bool waits;
} model_t;

static model_t models[SLOTS];

static int64_t has(uint64_t client, bool tokens) {
  int64_t sum = 0;
  for (int i = 0; i < SLOTS; i++) {
    if (models[i].waits && models[i].client == client) sum += tokens ? models[i].tokens : 1;
  }
  return sum;
}

static int64_t total(bool tokens) {
  int64_t sum = 0;
  for (uint64_t client = 0; client < 6; client++) sum += has(client, tokens);
  return sum;
}

static int64_t lacks(int64_t tokens, bool by_tokens) {
  if (!by_tokens) return total(false) + 1 - limits.num_requests;
  return total(false) > 0 ? total(true) + tokens - limits.num_tokens : 0;
}

/* Whether what the other clients have above `level` is as much as is needed. */
static bool may_enter(uint64_t client, int64_t level, int64_t needed, bool by_tokens) {
  for (uint64_t other = 0; other < 6; other++) {
    int64_t above = has(other, by_tokens) - level;
    if (other != client && above > 0) needed -= above;
  }
  return needed <= 0;
}

/* The newest of the client that has most, above `level`. */
static model_t *victim(bool tokens, int64_t level) {
  model_t *found = NULL;
  for (int i = 0; i < SLOTS; i++) {
    model_t *m = &models[i];
    if (!m->waits || has(m->client, tokens) <= level) continue;
    int64_t more = found != NULL ? has(m->client, tokens) - has(found->client, tokens) : 1;
    if (more > 0 || (more == 0 && m->number > found->number)) found = m;
  }
  return found;
}

/* A client below its share of the places is let in while another has more than its own. */
static void check_law(uint64_t client, bool refused) {
  int64_t clients = 0, most = 0;
  for (uint64_t c = 0; c < 6; c++) {
    clients += c == client || has(c, false) > 0;
    if (c != client && has(c, false) > most) most = has(c, false);
  }
  bool below = (has(client, false) + 1) * clients <= limits.num_requests;
  bool above = most * clients > limits.num_requests;
  bool tokens = total(true) + 30 <= limits.num_tokens;
  cr_assert(!(refused && below && above && tokens), "a client below its share is refused");
}

static void draw_submit(uint64_t draw, uint64_t number) {
  uint64_t client = draw % 7 < 3 ? 0 : draw % 6;
  int32_t tokens = 1 + (int32_t)((draw >> 8) % 30);
  int64_t levels[2] = {has(client, false) + 1, has(client, true) + tokens};
  num_dropped = 0;
  int32_t expected[SLOTS], num_expected = 0;
  bool fits = may_enter(client, levels[0], lacks(tokens, false), false) &&
              may_enter(client, levels[1], lacks(tokens, true), true);
  for (int m = 0; m < 2 && fits; m++) {
    while (lacks(tokens, m == 1) > 0) {
      model_t *v = victim(m == 1, levels[m]);
      cr_assert(v != NULL);
      v->waits = false;
      expected[num_expected++] = v->slot;
    }
  }
  int32_t slot = submit(client, 1, tokens);
  ASSERT_EQ_FOR(slot >= 0, fits, "request %d", (int)number);
  if (fits) {
    ASSERT_EQ(num_dropped, num_expected);
    for (int32_t i = 0; i < num_dropped; i++) ASSERT_EQ(dropped[i], expected[i]);
    models[slot] = (model_t){
        .slot = slot, .client = client, .number = number, .tokens = tokens, .waits = true};
  }
  check_law(client, !fits);
  for (int32_t i = 0; i < num_dropped; i++) end(dropped[i]);
}

Test(share, agrees_with_a_slow_model) {
  uint64_t state = 5;
  begin(MOST, 400);
  memset(models, 0, sizeof models);
  for (uint64_t number = 0; number < 20000; number++) {
    uint64_t draw = random_mix(state += RANDOM_GAMMA);
    model_t *other = &models[(draw >> 32) % SLOTS];
    if (draw >> 60 < 10) {
      draw_submit(draw >> 2, number);
    } else if (other->waits) { /* it begins, or its client leaves */
      if (draw >> 60 < 13) cr_assert(share_begin(share, other->slot));
      other->waits = false;
      end(other->slot);
    }
    ASSERT_EQ(share_count(share).num_requests, total(false));
    ASSERT_EQ(share_count(share).num_tokens, total(true));
  }
  share_free(share);
}
