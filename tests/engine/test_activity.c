/* test_activity.c: what other threads see of the engine thread, by which the watchdog judges. */
#include "engine/internal.h"

#include "engine/base/clock.h"
#include "tests/engine/client.h"
#include "tests/expect.h"
#include "tests/sim/fake_ops.h"

#include <time.h>

static engine_activity_t look(const client_t *c) {
  engine_activity_t activity;
  engine_activity(c->engine, &activity);
  return activity;
}

static void nap(void) {
  nanosleep(&(struct timespec){0, 1000000}, NULL);
}

/* A device that hangs: the wait for its step has one beginning, and the work stands still. */
Test(activity, a_step_that_does_not_end_is_one_wait) {
  fake_settings = (fake_settings_t){.first_id = 2, .held = true};
  engine_options_t options = client_options(&ops_fake);
  client_t *c = client_new(&options);
  job_t *job = client_job(c, 8, 2, 1);
  client_submit(c, job);
  for (int i = 0; i < 60000 && look(c).phase != ENGINE_WAITS; i++) nap();
  engine_activity_t first = look(c);
  for (int i = 0; i < 50; i++) nap();
  engine_activity_t later = look(c);
  ASSERT_EQ(later.phase, ENGINE_WAITS);
  ASSERT_EQ(later.since_ns, first.since_ns);
  ASSERT_EQ(later.work, first.work);
  ASSERT_GE(clock_now_ns() - later.since_ns, 50000000u);
  fake_settings.held = false;
  client_run(c);
  client_free(c);
}

/* A device that is slow: each step is a wait of its own. */
Test(activity, every_step_is_another_wait) {
  fake_settings = (fake_settings_t){.first_id = 2};
  engine_options_t options = client_options(&ops_fake);
  client_t *c = client_by_hand(&options);
  job_t *job = client_job(c, 8, 5, 1);
  client_submit(c, job);
  uint64_t since = 0, work = 0;
  for (int i = 0; i < 20 && !job->num_done; i++) {
    engine_iterate(c->engine);
    engine_activity_t activity = look(c);
    ASSERT_EQ(activity.phase, ENGINE_COMMITS);
    ASSERT_EQ(activity.request_id, job->request.id);
    ASSERT_GT(activity.since_ns, since);
    ASSERT_GT(activity.work, work);
    since = activity.since_ns;
    work = activity.work;
    client_drain(c);
  }
  ASSERT_EQ(job->num_done, 1);
  client_free(c);
}

static atomic_bool blocked;

/* Engine thread, between steps. */
static void block(void *context) {
  (void)context;
  while (atomic_load(&blocked)) nap();
}

/* The host stands still: no device is waited for, and the work counter does not move. */
Test(activity, a_host_that_stands_still_is_in_no_launch) {
  fake_settings = (fake_settings_t){.first_id = 2, .step_ns = 1000000};
  engine_options_t options = client_options(&ops_fake);
  options.wake = block;
  client_t *c = client_new(&options);
  job_t *job = client_job(c, 8, 100, 1);
  client_submit(c, job);
  client_wait_output(c, job, 3);
  atomic_store(&blocked, true);
  for (int i = 0; i < 100; i++) nap();
  engine_activity_t first = look(c);
  for (int i = 0; i < 50; i++) nap();
  engine_activity_t later = look(c);
  ASSERT_NE(later.phase, ENGINE_LAUNCHES);
  ASSERT_NE(later.phase, ENGINE_WAITS);
  ASSERT_EQ(later.work, first.work);
  ASSERT_EQ(later.worked_ns, first.worked_ns);
  atomic_store(&blocked, false);
  client_run(c);
  client_free(c);
}

/* The host is late: a mask takes many turns of the engine, no step ends in them, and each counts as
 * work for the request. */
Test(activity, a_host_that_works_without_steps_is_seen_to_work) {
  fake_settings = (fake_settings_t){.first_id = 2};
  engine_options_t options = client_options(&ops_fake);
  options.mask_units = 400;
  client_t *c = client_by_hand(&options);
  job_t *job = client_job(c, 8, 5, 1);
  job->request.grammar = client_slow_grammar(c);
  client_submit(c, job);
  int quiet = 0;
  for (int i = 0; i < 5000 && !job->num_done; i++) {
    uint64_t steps = client_stats(c).steps, work = look(c).work;
    engine_iterate(c->engine);
    client_drain(c);
    if (client_stats(c).steps > steps || job->num_done) continue;
    ASSERT_GT(look(c).work, work);
    ASSERT_EQ(look(c).request_id, job->request.id);
    quiet++;
  }
  ASSERT_EQ(job->num_done, 1);
  ASSERT_GT(quiet, 10);
  grammar_unref(job->request.grammar);
  client_free(c);
}
