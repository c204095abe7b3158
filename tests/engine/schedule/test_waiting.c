/* test_waiting.c: the order of the waiting queue, and how much work finding a place takes. */
#include "engine/schedule/waiting.h"

#include "engine/base/random.h"
#include "tests/expect.h"

#include <criterion/criterion.h>
#include <stdlib.h>

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
    cr_assert(group->next == NULL || waiting_precedes(&waiting, group, group->next));
  }
  ASSERT_EQ(seen, count);
  ASSERT_EQ(waiting.queue.count, count);
}

/* Every level must hold the groups of the level below it in their order, and nothing else. */
static void check_levels(void) {
  for (int level = 0; level < WAITING_LEVELS; level++) {
    for (const group_t *group = waiting.first[level]; group != NULL; group = group->skip[level]) {
      cr_assert(group->queue == &waiting.queue);
      const group_t *next = group->skip[level];
      cr_assert(next == NULL || waiting_precedes(&waiting, group, next));
    }
  }
}

Test(waiting, stays_sorted_while_groups_come_and_go) {
  make_groups(GROUPS);
  waiting.priority_policy = true;
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
  waiting.priority_policy = true;
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
  cr_assert(waiting.oldest == &groups[0] && waiting.newest == &groups[3]);
  waiting_admitted(&waiting, &groups[0]);
  waiting_forget(&waiting, &groups[2]);
  waiting_forget(&waiting, &groups[2]);
  cr_assert(waiting.oldest == &groups[1] && groups[1].newer == &groups[3]);
  waiting_forget(&waiting, &groups[3]);
  waiting_forget(&waiting, &groups[1]);
  cr_assert(waiting.oldest == NULL && waiting.newest == NULL);
  free_groups();
}

/* Tenants are told apart exactly, also those whose hashes are neighbours. */
Test(waiting, as_many_tenants_as_fit_have_shares_of_their_own) {
  make_groups(2 * FAIR_TENANTS_MAX + 2);
  waiting.fair_share = true;
  for (int32_t i = 0; i < 2 * FAIR_TENANTS_MAX; i++) {
    requests[i].tenant = (uint64_t)(i % FAIR_TENANTS_MAX);
    waiting_add(&waiting, &groups[i]);
    uint64_t expected = i < FAIR_TENANTS_MAX ? 0 : 10; /* a prompt of 10 tokens behind the first */
    ASSERT_EQ(groups[i].fair_start, expected);
  }
  /* One more tenant finds no place in the table: it counts as one that was away. */
  group_t *more = &groups[2 * FAIR_TENANTS_MAX], *later = more + 1;
  more->request->tenant = later->request->tenant = 1u << 20;
  waiting_add(&waiting, more);
  ASSERT_EQ(more->fair_start, 0);
  /* When all that waited was admitted, nobody has more than the share, and the table is free. */
  waiting.fair_now = 100;
  waiting_add(&waiting, later);
  ASSERT_EQ(later->fair_start, 100);
  ASSERT_EQ(waiting.num_tenants, 1);
  free_groups();
}
