/* test_sequence.c: the table of allowed moves between states, against the contract, queues, and
 * what makes a group plain. */
#include "engine/schedule/sequence.h"
#include "tests/expect.h"

#include <signal.h>
#include <string.h>

/* Rows from, columns to; N W R S | stopped length aborted ignored. A waiting or swapped
 * sequence may stop when it was preempted with its last token in flight; the object of a dropped
 * beam is used again. */
static const char *const contract[SEQUENCE_STATUS_COUNT] = {
    [SEQUENCE_NEW] = ".xx....x",
    [SEQUENCE_WAITING] = "..x.xxxx",
    [SEQUENCE_RUNNING] = ".x.xxxx.",
    [SEQUENCE_SWAPPED] = "..x.xxxx",
    [SEQUENCE_FINISHED_STOPPED] = "........",
    [SEQUENCE_FINISHED_LENGTH_CAPPED] = "........",
    [SEQUENCE_FINISHED_ABORTED] = "x.......",
    [SEQUENCE_FINISHED_IGNORED] = "........",
};

Test(sequence, only_the_moves_of_the_contract_are_allowed) {
  for (int from = 0; from < SEQUENCE_STATUS_COUNT; from++) {
    for (int to = 0; to < SEQUENCE_STATUS_COUNT; to++) {
      bool want = contract[from][to] == 'x';
      ASSERT_EQ_FOR(sequence_transition_allowed((sequence_status_t)from, (sequence_status_t)to),
                    want, "from %d to %d", from, to);
    }
  }
}

Test(sequence, a_forbidden_move_aborts, .signal = SIGABRT) {
  sequence_t s;
  memset(&s, 0, sizeof s);
  s.status = SEQUENCE_FINISHED_STOPPED;
  sequence_set_status(&s, SEQUENCE_RUNNING);
}

Test(sequence, queues_keep_order_under_removal_from_anywhere) {
  group_t g[4];
  memset(g, 0, sizeof g);
  group_queue_t q = {0};
  queue_push_tail(&q, &g[1]);
  queue_push_tail(&q, &g[3]);
  queue_insert_before(&q, q.head, &g[0]);
  queue_insert_before(&q, &g[3], &g[2]);
  int i = 0;
  for (group_t *p = q.head; p; p = p->next) cr_assert(p == &g[i++]);
  ASSERT_EQ(q.count, 4);
  cr_assert(q.tail == &g[3]);
  queue_remove(&q, &g[2]);
  queue_remove(&q, &g[0]);
  queue_remove(&q, &g[3]);
  cr_assert(q.head == &g[1]);
  cr_assert(q.tail == &g[1]);
  ASSERT_EQ(q.count, 1);
  queue_remove(&q, &g[1]);
  cr_assert(!q.head);
  cr_assert(!q.tail);
  ASSERT_EQ(q.count, 0);
}

static request_t plain_request(void) {
  return (request_t){.num_prompt_tokens = 4,
                     .params = {.max_tokens = 8,
                                .repetition_penalty = 1,
                                .temperature = 0.7f,
                                .top_k = 5,
                                .num_logit_bias = 1,
                                .num_allowed_ids = 1,
                                .ignore_eos = true,
                                .num_logprobs = -1,
                                .num_prompt_logprobs = -1}};
}

/* 2 = terse, 1 = plain, 0 = neither. */
static int kind_of(request_t request) {
  static group_t group;
  group_init(&group, &request, 1);
  return group.is_plain + group.is_terse;
}

/* What a step would have to read of the request makes it less. */
Test(sequence, groups_of_which_a_step_reads_little) {
  request_t r = plain_request();
  struct quota *quota = (struct quota *)(void *)&r; /* never read */
  r.quota = quota;
  r.stops = (const stop_set_t *)(const void *)quota;
  r.salt = 3;
  ASSERT_EQ(kind_of(r), 2);
#define KIND(kind, field, value)                                                                   \
  do {                                                                                             \
    request_t other = plain_request();                                                             \
    other.field = (value);                                                                         \
    EXPECT_EQ_FOR(kind_of(other), kind, #field);                                                   \
  } while (0)
  KIND(1, params.num_logprobs, 0);
  KIND(1, params.min_tokens, 1);
  KIND(1, params.num_stop_token_ids, 1);
  KIND(0, params.num_prompt_logprobs, 0);
  KIND(0, params.max_tokens, 0);
  KIND(0, params.presence_penalty, 0.5f);
  KIND(0, params.frequency_penalty, -0.5f);
  KIND(0, params.repetition_penalty, 1.1f);
  KIND(0, params.num_bad_words, 1);
  KIND(1, params.n, 2);
  KIND(1, params.best_of, 2);
  KIND(0, params.beam_width, 1);
  KIND(0, grammar, (struct grammar *)quota);
  KIND(0, adapter, 1);
  KIND(0, second_text, 2);
  KIND(0, pooling, POOLING_LAST);
#undef KIND
}
