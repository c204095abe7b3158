/* client.c: see client.h. The test's own thread plays the loop thread. */
#include "tests/engine/client.h"

#include "engine/internal.h"

#include "engine/base/clock.h"
#include "engine/base/util.h"
#include "tests/engine/support.h"
#include "tests/expect.h"

#include <stdlib.h>
#include <string.h>

engine_options_t client_options(const struct ops *ops) {
  engine_options_t o;
  engine_options_default(&o);
  o.mask_threads = 0; /* what a test counts does not depend on when a thread runs */
  o.model_dir = "tests/fixtures/tiny";
  o.ops = ops;
  o.dummy_weights = true;
  o.seed = 7;
  o.num_blocks = 600;
  o.max_num_seqs = 16;
  o.max_num_batched_tokens = 128;
  o.max_queue_requests = CLIENT_REQUESTS;
  o.max_queue_tokens = 1 << 30;
  o.max_queue_time_s = 0;
  return o;
}

static void nap(void) {
  nanosleep(&(struct timespec){0, 200000}, NULL);
}

client_t *client_new(const engine_options_t *options) {
  client_t *c = calloc(1, sizeof *c);
  inferd_error_t error = {0};
  cr_assert(c != NULL);
  c->jobs = calloc(CLIENT_REQUESTS, sizeof *c->jobs);
  cr_assert(c->jobs != NULL);
  ASSERT_EQ_FOR(engine_create(options, &c->engine, &error), 0, "%s", error.message);
  while (engine_state(c->engine) == ENGINE_LOADING) nap();
  if (engine_state(c->engine) == ENGINE_FAILED) engine_failure(c->engine, &error);
  ASSERT_EQ_FOR(engine_state(c->engine), ENGINE_READY, "%s", error.message);
  return c;
}

client_t *client_by_hand(const engine_options_t *options) {
  client_t *c = calloc(1, sizeof *c);
  cr_assert(c);
  cr_assert((c->jobs = calloc(CLIENT_REQUESTS, sizeof *c->jobs)) != NULL);
  ASSERT_EQ(engine_new(options, &c->engine, NULL), 0);
  engine_load(c->engine);
  ASSERT_EQ(engine_state(c->engine), ENGINE_READY);
  return c;
}

void client_free(client_t *c) {
  engine_destroy(c->engine);
  for (int i = 0; i < c->count; i++) {
    free(c->jobs[i].choices);
    free(c->jobs[i].request.room);
  }
  free(c->jobs);
  free(c);
}

job_t *client_job(client_t *c, int32_t prompt_tokens, int32_t max_tokens, int32_t seed) {
  ASSERT_LT(c->count, CLIENT_REQUESTS);
  job_t *job = &c->jobs[c->count++];
  uint32_t state = (uint32_t)seed * 2654435761u + 1;
  for (int32_t i = 0; i < prompt_tokens; i++) {
    state = state * 1664525u + 1013904223u;
    job->prompt[i] = 2 + (int32_t)(state >> 8) % 300;
  }
  request_t *r = &job->request;
  r->id = (uint64_t)c->count;
  r->prompt_ids = job->prompt;
  r->num_prompt_tokens = prompt_tokens;
  r->skip_special_tokens = true;
  r->arrival_ns = clock_now_ns();
  r->params = (sampling_params_t){
      .top_p = 1,
      .repetition_penalty = 1,
      .seed = (uint64_t)seed,
      .max_tokens = max_tokens,
      .num_logprobs = -1,
      .num_prompt_logprobs = -1,
  };
  return job;
}

int client_submit(client_t *c, job_t *job) {
  request_t *r = &job->request;
  return engine_submit(c->engine, &r, 1, NULL);
}

void client_several(job_t *job) {
  const sampling_params_t *p = &job->request.params;
  size_t bytes = engine_room_bytes(p);
  job->num_choices = params_num_choices(p);
  job->choices = calloc((size_t)job->num_choices, sizeof *job->choices);
  job->request.room = bytes ? calloc(1, bytes) : NULL;
  cr_assert(job->choices);
  cr_assert(!bytes || job->request.room);
}

static void keep_text(char *text, size_t *length, const event_t *event) {
  ASSERT_LT(*length + event->text_length, CLIENT_TEXT_MAX);
  memcpy(text + *length, event->text, event->text_length);
  *length += event->text_length;
}

static void handle_choice(job_t *job, const event_t *event) {
  ASSERT_GE(event->choice, 0);
  ASSERT_LT(event->choice, job->num_choices);
  choice_t *c = &job->choices[event->choice];
  ASSERT_EQ_FOR(c->num_done, 0, "an event after the end of choice %d", event->choice);
  keep_text(c->text, &c->text_length, event);
  if (event->kind == EVENT_CHOICE_DONE) {
    ASSERT_EQ(event->num_output_tokens, c->num_output);
    c->done = *event;
    c->num_done++;
    return;
  }
  int32_t at = c->num_output++;
  ASSERT_EQ(event->position, at);
  ASSERT_LT(at, CLIENT_OUTPUT_MAX);
  c->output[at] = event->token_id;
  c->logprob[at] = event->logprob;
  for (int i = 0; i < 4 && i < event->num_top; i++) c->top[at][i] = event->top[i];
}

static void check_choices(const job_t *job, const event_t *done) {
  int32_t sum = 0;
  bool failed = done->finish == FINISH_ERROR || done->finish == FINISH_ABORT;
  for (int32_t i = 0; i < job->num_choices; i++) {
    cr_assert(failed || job->choices[i].num_done == 1, "choice %d has no end", i);
    sum += job->choices[i].num_output;
  }
  cr_assert(failed || done->num_output_tokens == sum);
}

static void handle(void *context, const event_t *event) {
  client_t *c = context;
  job_t *job = (job_t *)(void *)event->request;
  ASSERT_EQ_FOR(job->num_done, 0, "an event after DONE");
  if (job->choices && (event->kind == EVENT_TOKEN || event->kind == EVENT_CHOICE_DONE)) {
    handle_choice(job, event);
    return;
  }
  keep_text(job->text, &job->text_length, event);
  if (event->kind == EVENT_TOKEN) {
    ASSERT_EQ(event->position, job->num_output);
    ASSERT_LT(job->num_output, CLIENT_OUTPUT_MAX);
    job->output[job->num_output++] = event->token_id;
  } else if (event->kind == EVENT_PROMPT_LOGPROB) {
    ASSERT_EQ(event->position, job->num_prompt_logprobs + 1);
    ASSERT_EQ(event->token_id, job->prompt[event->position]);
    job->prompt_logprobs[event->position] = event->logprob;
    job->num_prompt_logprobs++;
  } else {
    cr_assert(job->choices || event->num_output_tokens == job->num_output);
    if (job->choices) check_choices(job, event);
    job->done = *event;
    job->num_done++;
    c->num_done++;
  }
}

void client_drain(client_t *c) {
  engine_drain(c->engine, handle, c);
}

void client_run(client_t *c) {
  uint64_t start = clock_now_ns();
  while (c->num_done < c->count) {
    client_drain(c);
    nap();
    ASSERT_LT_FOR(clock_now_ns() - start, 300000000000u, "%d of %d requests ended", c->num_done,
                  c->count);
  }
}

client_t *client_run_all(const engine_options_t *options, void (*make)(client_t *client)) {
  client_t *client = client_new(options);
  make(client);
  for (int i = 0; i < client->count; i++) ASSERT_EQ(client_submit(client, &client->jobs[i]), 0);
  client_run(client);
  return client;
}

static void expect_same_choice(const choice_t *want, const choice_t *got, int num_top,
                               const char *name) {
  ASSERT_EQ_FOR(got->num_output, want->num_output, "%s", name);
  ASSERT_IDS_EQ(got->output, want->output, CLIENT_OUTPUT_MAX);
  cr_assert(memcmp(got->logprob, want->logprob, sizeof want->logprob) == 0, "%s: logprobs differ",
            name);
  for (int t = 0; t < want->num_output; t++) {
    for (int k = 0; k < num_top; k++) {
      ASSERT_EQ(got->top[t][k].id, want->top[t][k].id);
      cr_assert(got->top[t][k].logprob == want->top[t][k].logprob, "%s: best logprobs differ",
                name);
    }
  }
  ASSERT_EQ(got->text_length, want->text_length);
  cr_assert(memcmp(got->text, want->text, want->text_length) == 0, "%s: texts differ", name);
  ASSERT_EQ(got->done.finish, want->done.finish);
}

void client_expect_same(const client_t *want, const client_t *got, const char *name) {
  ASSERT_EQ(got->count, want->count);
  for (int i = 0; i < want->count; i++) {
    const job_t *a = &want->jobs[i], *b = &got->jobs[i];
    ASSERT_EQ_FOR(b->num_output, a->num_output, "%s: request %d", name, i);
    ASSERT_IDS_EQ(b->output, a->output, CLIENT_OUTPUT_MAX);
    cr_assert(memcmp(a->prompt_logprobs, b->prompt_logprobs, sizeof a->prompt_logprobs) == 0,
              "%s: prompt logprobs of request %d differ", name, i);
    ASSERT_EQ(b->text_length, a->text_length);
    cr_assert(memcmp(b->text, a->text, a->text_length) == 0, "%s: texts of request %d differ", name,
              i);
    ASSERT_EQ(b->done.finish, a->done.finish);
    ASSERT_EQ(b->num_choices, a->num_choices);
    int num_top = MAX(a->request.params.num_logprobs, 0);
    for (int k = 0; k < a->num_choices; k++)
      expect_same_choice(&a->choices[k], &b->choices[k], num_top, name);
  }
}

void client_wait_output(client_t *c, const job_t *job, int32_t tokens) {
  uint64_t start = clock_now_ns();
  while (job->num_output < tokens && !job->num_done) {
    client_drain(c);
    nap();
    ASSERT_LT_FOR(clock_now_ns() - start, 300000000000u, "no output");
  }
}

engine_stats_t client_stats(client_t *c) {
  engine_stats_t stats;
  engine_stats(c->engine, &stats);
  return stats;
}

void client_check_idle(client_t *c) {
  engine_stats_t s = client_stats(c);
  for (int i = 0; i < 5000 && (s.busy || s.blocks_used); i++) {
    client_drain(c);
    nap();
    s = client_stats(c);
  }
  cr_assert(!s.busy);
  ASSERT_EQ(s.num_running, 0);
  ASSERT_EQ(s.num_waiting, 0);
  cr_assert(s.blocks_used == 0, "%d blocks are still held", s.blocks_used);
  ASSERT_EQ_FOR(s.num_swapped, 0, "the host pool is still in use");
  ASSERT_EQ_FOR(s.host_blocks_used, 0, "the host pool is still in use");
}

grammar_t *client_grammar(const client_t *client, const char *text) {
  grammar_t *grammar = NULL;
  inferd_error_t error = {0};
  grammar_source_t source = {.kind = GRAMMAR_EBNF, .text = text, .length = strlen(text)};
  int code = grammar_compile(&source, engine_grammar_vocabulary(client->engine), NULL, NULL,
                             &grammar, &error);
  ASSERT_EQ_FOR(code, 0, "%s", error.message);
  return grammar;
}

grammar_t *client_slow_grammar(const client_t *client) {
  return client_grammar(client, "root ::= (a | b | c)\na ::= [a-z] a \"1\" | [a-z]\n"
                                "b ::= [a-z] b \"2\" | [a-z]\nc ::= [a-z] c \"3\" | [a-z] d\n"
                                "d ::= [a-y] d | [b-z] c | \"4\"");
}
