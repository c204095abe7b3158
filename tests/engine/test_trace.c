/* test_trace.c: what the engine tells of each request, and what it drops when nobody reads. */
#include "engine/internal.h"
#include "tests/engine/client.h"
#include "tests/expect.h"
#include "tests/sim/fake_ops.h"

#include <string.h>

enum { KEPT_MAX = 4096 };

typedef struct kept {
  trace_record_t records[KEPT_MAX];
  int count;
} kept_t;

static void keep(void *context, const trace_record_t *record) {
  kept_t *kept = context;
  ASSERT_LT(kept->count, KEPT_MAX);
  kept->records[kept->count++] = *record;
}

/* One letter for each record of a request: A P F E for admitted, preempted, first token, end. */
static const char *story(const kept_t *kept, uint64_t id) {
  static char letters[KEPT_MAX + 1];
  int used = 0;
  for (int i = 0; i < kept->count; i++) {
    if (kept->records[i].request_id == id) letters[used++] = "APFE"[kept->records[i].kind];
  }
  letters[used] = '\0';
  return letters;
}

static client_t *traced_client(int32_t num_blocks) {
  engine_options_t options = client_options(&ops_fake);
  options.trace = true;
  options.num_blocks = num_blocks;
  return client_new(&options);
}

Test(trace, a_request_is_admitted_draws_and_ends) {
  static kept_t kept;
  client_t *client = traced_client(600);
  job_t *job = client_job(client, 20, 5, 1);
  ASSERT_EQ(client_submit(client, job), 0);
  client_run(client);
  ASSERT_EQ(engine_trace(client->engine, keep, &kept), 0);
  ASSERT_STR_EQ(story(&kept, job->request.id), "AFE");
  const trace_record_t *end = &kept.records[2];
  ASSERT_EQ_FOR(kept.records[0].num_tokens, 20, "admitted with %d tokens",
                kept.records[0].num_tokens);
  ASSERT_EQ_FOR(end->num_tokens, 5, "ended with %d tokens", end->num_tokens);
  ASSERT_EQ_FOR(end->detail, FINISH_LENGTH, "ended by %d", end->detail);
  for (int i = 0; i < kept.count; i++) {
    ASSERT_EQ(kept.records[i].arrival_ns, job->request.arrival_ns);
    ASSERT_GE(kept.records[i].time_ns,
              i > 0 ? kept.records[i - 1].time_ns : job->request.arrival_ns);
  }
  client_free(client);
}

Test(trace, several_choices_make_one_line_each_way) {
  static kept_t kept;
  client_t *client = traced_client(600);
  job_t *job = client_job(client, 20, 8, 1);
  job->request.params.n = 3;
  client_several(job);
  ASSERT_EQ(client_submit(client, job), 0);
  client_run(client);
  engine_trace(client->engine, keep, &kept);
  ASSERT_STR_EQ(story(&kept, job->request.id), "AFE");
  ASSERT_EQ_FOR(kept.records[2].num_tokens, 24, "ended with %d tokens", kept.records[2].num_tokens);
  client_free(client);
}

Test(trace, a_preempted_request_is_admitted_again) {
  static kept_t kept;
  client_t *client = traced_client(20);
  for (int i = 0; i < 4; i++) ASSERT_EQ(client_submit(client, client_job(client, 40, 100, i)), 0);
  client_run(client);
  ASSERT_GT(client_stats(client).preemptions, 0);
  ASSERT_EQ(engine_trace(client->engine, keep, &kept), 0);
  int preempted = 0;
  for (int i = 0; i < 4; i++) {
    const char *letters = story(&kept, client->jobs[i].request.id);
    size_t length = strlen(letters);
    cr_assert(letters[0] == 'A' && letters[length - 1] == 'E', "%s", letters);
    ASSERT_EQ_FOR(strchr(letters, 'F'), strrchr(letters, 'F'), "%s", letters);
    for (const char *at = letters; (at = strchr(at, 'P')) != NULL; at++, preempted++) {
      ASSERT_EQ_FOR(at[1], 'A', "%s", letters); /* none is preempted twice in a row */
    }
  }
  uint64_t counted = client_stats(client).preemptions;
  ASSERT_EQ_FOR((uint64_t)preempted, counted, "%d lines for %llu preemptions", preempted,
                (unsigned long long)counted);
  client_free(client);
}

Test(trace, a_full_ring_drops_and_counts) {
  static kept_t kept;
  trace_t *trace;
  const request_t request = {.id = 7};
  ASSERT_EQ(trace_new(&trace, NULL), 0);
  for (int i = 0; i < TRACE_RECORDS + 5; i++) trace_add(trace, TRACE_FIRST_TOKEN, &request, i, 0);
  ASSERT_EQ(trace_drain(trace, keep, &kept), 5);
  ASSERT_EQ_FOR(kept.count, TRACE_RECORDS, "%d records", kept.count);
  ASSERT_EQ(kept.records[kept.count - 1].num_tokens, TRACE_RECORDS - 1); /* the oldest stay */
  trace_add(trace, TRACE_FINISHED, &request, -1, 0);
  ASSERT_EQ(trace_drain(trace, keep, &kept), 0);
  ASSERT_EQ(kept.records[TRACE_RECORDS].num_tokens, -1);
  trace_free(trace);
  trace_add(NULL, TRACE_FINISHED, &request, 0, 0); /* off */
}

Test(trace, an_engine_without_it_tells_nothing) {
  static kept_t kept;
  engine_options_t options = client_options(&ops_fake);
  client_t *client = client_new(&options);
  ASSERT_EQ(client_submit(client, client_job(client, 20, 5, 1)), 0);
  client_run(client);
  ASSERT_EQ(engine_trace(client->engine, keep, &kept), 0);
  ASSERT_EQ(kept.count, 0);
  client_free(client);
}
