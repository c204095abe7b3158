/* test_quota.c: the limits of one key on the waiting queue, and that every end gives a place back.
 */
#include "engine/quota.h"
#include "tests/engine/client.h"
#include "tests/sim/fake_ops.h"

#include "engine/internal.h"
#include "tests/expect.h"

TestSuite(quota, .timeout = 60);

static int waiting(const quota_t *quota) {
  return atomic_load(&quota->waiting);
}

Test(quota, counts_and_limits) {
  quota_t quota = {.max_waiting = 2, .max_tokens_waiting = 100};
  inferd_error_t error;
  EXPECT_EQ(quota_check(NULL, 1000, 1000000, &error), 0);
  EXPECT_EQ(quota_check(&quota, 2, 1000, &error), 0); /* any length may wait alone */
  EXPECT_EQ(quota_check(&quota, 3, 3, &error), ERR_RATE_LIMITED);
  quota_wait(&quota, 90);
  EXPECT_EQ(quota_check(&quota, 1, 10, &error), 0);
  EXPECT_EQ(quota_check(&quota, 1, 11, &error), ERR_RATE_LIMITED);
  EXPECT_EQ(quota_check(&quota, 2, 2, &error), ERR_RATE_LIMITED);
  quota_leave(&quota, 90);
  EXPECT_EQ(quota_check(&quota, 2, 100, &error), 0);
  quota = (quota_t){0};
  for (int i = 0; i < 1000; i++) quota_wait(&quota, 1000);
  EXPECT_EQ(quota_check(&quota, 1000, 1000000, &error), 0);
}

/* Requests that begin and end, that are cancelled while they wait, and that outwait the queue. */
Test(quota, every_end_gives_the_place_back) {
  engine_options_t options = client_options(&ops_fake);
  options.max_num_seqs = 1;
  options.max_queue_time_s = 0.05;
  client_t *c = client_by_hand(&options);
  quota_t quota = {.max_waiting = 4};
  job_t *jobs[5];
  for (int i = 0; i < 5; i++) {
    jobs[i] = client_job(c, 10, 400, i);
    jobs[i]->request.quota = &quota;
    ASSERT_EQ(client_submit(c, jobs[i]), i < 4 ? 0 : ERR_RATE_LIMITED);
    EXPECT_EQ(waiting(&quota), i < 4 ? i + 1 : 4);
  }
  engine_iterate(c->engine); /* the first one begins */
  EXPECT_EQ(waiting(&quota), 3);
  EXPECT_EQ(atomic_load(&quota.tokens_waiting), 30);
  engine_cancel(c->engine, &jobs[1]->request);
  engine_iterate(c->engine);
  EXPECT_EQ(waiting(&quota), 2);
  ASSERT_EQ(client_submit(c, jobs[4]), 0);
  for (int i = 0; i < 100000 && c->num_done < 5; i++) {
    engine_iterate(c->engine);
    client_drain(c);
  }
  EXPECT_EQ(c->num_done, 5);
  EXPECT_EQ(waiting(&quota), 0);
  EXPECT_EQ(atomic_load(&quota.tokens_waiting), 0);
  /* and what is still there at the end of the engine */
  job_t *last = client_job(c, 10, 400, 9);
  last->request.quota = &quota;
  ASSERT_EQ(client_submit(c, last), 0);
  engine_end(c->engine);
  EXPECT_EQ(waiting(&quota), 0);
  client_drain(c);
  client_free(c);
}
