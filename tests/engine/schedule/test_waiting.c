/* test_waiting.c: the order of the waiting queue, and how much work finding a place takes. */
#include "engine/schedule/waiting.h"

#include "engine/base/random.h"
#include "engine/base/util.h"
#include "engine/quota.h"
#include "tests/expect.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GROUPS = 2000, MANY = 100000 };

static waiting_t waiting;
static group_t *groups;
static request_t *requests;

static void make_groups(int32_t count) {
  waiting = (waiting_t){0};
  groups = calloc((size_t)count, sizeof *groups);
  requests = calloc((size_t)count, sizeof *requests);
  for (int32_t i = 0; i < count; i++) {
    requests[i].num_prompt_tokens = 10;
    group_init(&groups[i], &requests[i], (uint64_t)i);
  }
}

static void free_groups(void) {
  free(groups);
  free(requests);
}

static void check_sorted(int32_t count) {
  int32_t seen = 0;
  for (const group_t *group = waiting.queue.head; group != NULL; group = group->next, seen++) {
    cr_assert(group->next == NULL || tenants_precedes(&waiting.tenants, group, group->next));
  }
  ASSERT_EQ(seen, count);
  ASSERT_EQ(waiting.queue.count, count);
}

/* Of several tenants: the groups of one stand together. */
static void check_sorted_tenants(int32_t count) {
  int32_t seen = 0;
  for (const group_t *group = waiting.queue.head; group != NULL; group = group->next, seen++) {
    const group_t *next = group->next;
    cr_assert(next == NULL || group->tenant < next->tenant ||
              (group->tenant == next->tenant && tenants_precedes(&waiting.tenants, group, next)));
  }
  ASSERT_EQ(seen, count);
}

/* Every level must hold the groups of the level below it in their order, and nothing else. */
static void check_levels(void) {
  for (int level = 0; level < WAITING_LEVELS; level++) {
    for (const group_t *group = waiting.first[level]; group != NULL; group = group->skip[level]) {
      cr_assert(group->queue == &waiting.queue);
      const group_t *next = group->skip[level];
      cr_assert(next == NULL || tenants_precedes(&waiting.tenants, group, next));
    }
  }
}

Test(waiting, stays_sorted_while_groups_come_and_go) {
  make_groups(GROUPS);
  waiting.tenants.priority_policy = true;
  int32_t count = 0;
  srand(7);
  for (int32_t i = 0; i < GROUPS; i++) {
    requests[i].priority = rand() % 5;
    waiting_add(&waiting, &groups[i]);
    count++;
    group_t *other = &groups[rand() % (i + 1)];
    if (other->queue != NULL) {
      waiting_remove(&waiting, other);
      count--;
    } else {
      waiting_insert(&waiting, other); /* as after a preemption: it gets its old place */
      count++;
    }
  }
  check_sorted(count);
  check_levels();
  for (int32_t i = 0; i < GROUPS; i++) {
    if (groups[i].queue != NULL) waiting_remove(&waiting, &groups[i]);
  }
  check_sorted(0);
  for (int level = 0; level < WAITING_LEVELS; level++) cr_assert_null(waiting.first[level]);
  free_groups();
}

/* A linear search would look at about MANY / 4 groups for each. */
Test(waiting, a_place_is_found_in_logarithmic_work) {
  make_groups(MANY);
  waiting.tenants.priority_policy = true;
  for (int32_t i = 0; i < MANY; i++) {
    requests[i].priority = (int64_t)(random_mix((uint64_t)i + MANY) % 1000);
    waiting_add(&waiting, &groups[i]);
  }
  ASSERT_LT(waiting.num_visited / MANY, 60);
  waiting.num_visited = 0;
  for (int32_t i = 0; i < MANY; i++) waiting_remove(&waiting, &groups[(i * 7919LL) % MANY]);
  ASSERT_LT(waiting.num_visited / MANY, 60);
  check_sorted(0);
  free_groups();
}

Test(waiting, arrivals_are_listed_until_the_first_admission) {
  make_groups(4);
  for (int32_t i = 0; i < 4; i++) waiting_add(&waiting, &groups[i]);
  cr_assert(waiting.oldest == &groups[0]);
  cr_assert(waiting.newest == &groups[3]);
  waiting_begun(&waiting, &groups[0]);
  waiting_begun(&waiting, &groups[2]);
  waiting_begun(&waiting, &groups[2]);
  cr_assert(waiting.oldest == &groups[1]);
  cr_assert(groups[1].newer == &groups[3]);
  waiting_begun(&waiting, &groups[3]);
  waiting_begun(&waiting, &groups[1]);
  cr_assert_null(waiting.oldest);
  cr_assert_null(waiting.newest);
  free_groups();
}

/* Tenants are told apart exactly, also those whose hashes are neighbours. */
Test(waiting, as_many_tenants_as_fit_are_told_apart) {
  make_groups(2 * TENANTS_MAX + 2);
  waiting.fair_share = true;
  for (int32_t i = 0; i < 2 * TENANTS_MAX; i++) {
    requests[i].tenant = (uint64_t)(i % TENANTS_MAX);
    waiting_add(&waiting, &groups[i]);
    ASSERT_EQ(groups[i].tenant, 1 + i % TENANTS_MAX);
  }
  group_t *more = &groups[2 * TENANTS_MAX], *later = more + 1;
  more->request->tenant = later->request->tenant = 1u << 20;
  waiting_add(&waiting, more);
  ASSERT_EQ_FOR(more->tenant, 0, "no place is left: it shares the one of all others");
  /* The tenant of groups 5 and 5 + TENANTS_MAX has none left, so its place is free. */
  for (int32_t i = 5; i < 2 * TENANTS_MAX; i += TENANTS_MAX) {
    waiting_remove(&waiting, &groups[i]);
    waiting_end(&waiting, &groups[i]);
  }
  waiting_add(&waiting, later);
  ASSERT_EQ(later->tenant, 6);
  ASSERT_EQ(waiting.tenants.all[6].name, 1u << 20);
  check_sorted_tenants(2 * TENANTS_MAX);
  free_groups();
}

/* The groups of a walk, by index, as text: "0 3 1". Each one in `leaves` leaves the queue. */
static const char *walk(const char *leaves) {
  static char text[256];
  size_t used = 0;
  text[0] = '\0';
  for (group_t *group = waiting_first(&waiting); group != NULL; group = waiting_next(&waiting)) {
    int index = (int)(group - groups);
    used += (size_t)snprintf(text + used, sizeof text - used, used == 0 ? "%d" : " %d", index);
    if (strchr(leaves, '0' + index) == NULL) continue;
    waiting_remove(&waiting, group);
    waiting_charge(&waiting, group, 10);
  }
  waiting_stop(&waiting);
  return text;
}

Test(waiting, a_walk_takes_turns_by_what_was_served) {
  make_groups(7);
  waiting.fair_share = true;
  for (int32_t i = 0; i < 7; i++) {
    requests[i].tenant = i < 4 ? 1 : 2;
    waiting_add(&waiting, &groups[i]);
  }
  cr_assert_str_eq(walk(""), "0 1 2 3 4 5 6", "nobody was served: by arrival");
  cr_assert_str_eq(walk("04"), "0 4 1 2 3 5 6", "each that leaves is charged");
  waiting_charge(&waiting, &groups[1], 1);
  cr_assert_str_eq(walk(""), "5 6 1 2 3");
  waiting_charge(&waiting, &groups[1], -1);
  cr_assert_str_eq(walk("1"), "1 5 6 2 3");
  cr_assert_str_eq(walk("5623"), "5 2 6 3");
  ASSERT_EQ(waiting.weights, 0);
  free_groups();
}

/* The second tenant was served 10 tokens more, and its group has the smaller key. */
Test(waiting, within_a_span_tenants_have_their_turns_by_key) {
  make_groups(3);
  waiting.fair_share = true;
  for (int32_t i = 0; i < 2; i++) {
    requests[i].tenant = 1 + (uint64_t)i;
    groups[i].key = i == 0 ? 50 : 8;
    waiting_add(&waiting, &groups[i]);
  }
  waiting_charge(&waiting, &groups[1], 10);
  cr_assert_str_eq(walk(""), "0 1");
  const struct {
    uint64_t span;
    const char *turns;
  } cases[] = {{10, "0 1"}, {11, "1 0"}};
  for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
    waiting.tenants.span = cases[i].span * SERVED_TOKEN;
    tenants_update(&waiting.tenants, waiting_tenant(&waiting, &groups[0]));
    cr_assert_str_eq(walk(""), cases[i].turns, "case %zu", i);
  }
  requests[2].tenant = 3; /* it came back: as if it had been served where their span begins */
  waiting_add(&waiting, &groups[2]);
  EXPECT_EQ(waiting_tenant(&waiting, &groups[2])->served, 0u);
  free_groups();
}

Test(waiting, priorities_come_before_shares) {
  make_groups(4);
  waiting.fair_share = waiting.tenants.priority_policy = true;
  for (int32_t i = 0; i < 4; i++) {
    requests[i].tenant = 1 + (uint64_t)(i % 2);
    requests[i].priority = i / 2 == 0 ? 5 : -5;
    waiting_add(&waiting, &groups[i]);
  }
  waiting_charge(&waiting, &groups[0], 100);
  cr_assert_str_eq(walk(""), "3 2 1 0");
  free_groups();
}

Test(waiting, a_held_tenant_is_met_again_when_it_runs_less) {
  make_groups(3);
  for (int32_t i = 0; i < 3; i++) {
    requests[i].tenant = i < 2 ? 1 : 2;
    waiting_add(&waiting, &groups[i]);
  }
  waiting_hold(&waiting, &groups[0]);
  cr_assert_str_eq(walk(""), "2");
  waiting_release(&waiting, &groups[0]);
  cr_assert_str_eq(walk(""), "0 1 2");
  free_groups();
}

/* Who asked for nothing is not owed for that time, and what was served while nobody waited is
 * forgiven. */
Test(waiting, who_comes_back_is_lifted_to_the_one_whose_turn_is_next) {
  make_groups(5);
  waiting.fair_share = true;
  for (int32_t i = 0; i < 5; i++) requests[i].tenant = 1 + (uint64_t)i;
  quota_t heavy = {.weight = 4};
  requests[1].quota = &heavy;
  waiting_add(&waiting, &groups[0]);
  waiting_charge(&waiting, &groups[0], 100);
  waiting_add(&waiting, &groups[1]);
  tenant_t *second = waiting_tenant(&waiting, &groups[1]);
  EXPECT_EQ(second->served, 100u * SERVED_TOKEN);
  waiting_charge(&waiting, &groups[1], 8);
  EXPECT_EQ(second->served, 102u * SERVED_TOKEN);
  waiting_add(&waiting, &groups[2]);
  EXPECT_EQ(waiting_tenant(&waiting, &groups[2])->served, 100u * SERVED_TOKEN);
  for (int32_t i = 0; i < 3; i++) waiting_note_served(&waiting, &groups[i]);
  for (int32_t i = 0; i < 3; i++) waiting_remove(&waiting, &groups[i]);
  waiting_add(&waiting, &groups[3]);
  EXPECT_EQ(waiting_tenant(&waiting, &groups[3])->served, 102u * SERVED_TOKEN);
  free_groups();
}
