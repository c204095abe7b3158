/* client.h: drives a real engine from a test: submits requests, drains events, keeps what came. */
#ifndef INFERD_TESTS_ENGINE_CLIENT_H
#define INFERD_TESTS_ENGINE_CLIENT_H

#include "engine/engine.h"

enum { CLIENT_REQUESTS = 512, CLIENT_OUTPUT_MAX = 512, CLIENT_TEXT_MAX = 8192 };

/* What came of one choice of a request that asked for several. */
typedef struct choice {
  int32_t output[CLIENT_OUTPUT_MAX];
  float logprob[CLIENT_OUTPUT_MAX];
  token_logprob_t top[CLIENT_OUTPUT_MAX][4]; /* the first ones */
  int32_t num_output;
  char text[CLIENT_TEXT_MAX];
  size_t text_length;
  int num_done;
  event_t done;
} choice_t;

/* What one request asked and got. The request comes first, so that events lead back here. */
typedef struct job {
  request_t request;
  int32_t prompt[2048];
  int32_t output[CLIENT_OUTPUT_MAX];
  int32_t num_output;
  float prompt_logprobs[2048]; /* [1..num_prompt) */
  int32_t num_prompt_logprobs;
  char text[CLIENT_TEXT_MAX];
  size_t text_length;
  int num_done;
  event_t done;
  choice_t *choices; /* [num_choices] with params_multiple() */
  int32_t num_choices;
} job_t;

typedef struct client {
  engine_t *engine;
  job_t *jobs;
  int count;
  int num_done;
} client_t;

/* tests/fixtures/tiny with dummy weights, small limits, a fixed seed. */
engine_options_t client_options(const struct ops *ops);
/* Starts the engine and waits until it is READY; fails the test otherwise. */
client_t *client_new(const engine_options_t *options);
/* The same without a thread: the test calls engine_iterate (internal.h). */
client_t *client_by_hand(const engine_options_t *options);
void client_free(client_t *client);

/* A greedy request; the prompt is a function of (seed, length). Not submitted yet. */
job_t *client_job(client_t *client, int32_t prompt_tokens, int32_t max_tokens, int32_t seed);
/* To be called when n, best_of or beam_width of the job are set: makes room for what comes. */
void client_several(job_t *job);
int client_submit(client_t *client, job_t *job); /* engine_submit's answer */
void client_drain(client_t *client);             /* what is there now */
void client_run(client_t *client); /* until every submitted job is done, 300 s at most */
/* Starts an engine, submits the jobs that make() prepares, and waits until all are done. */
client_t *client_run_all(const engine_options_t *options, void (*make)(client_t *client));
/* Fails unless both got the same to the last bit: tokens, logprobs, texts and ends of all jobs and
 * of all their choices. `name` says what `got` is. */
void client_expect_same(const client_t *want, const client_t *got, const char *name);
void client_wait_output(client_t *client, const job_t *job, int32_t tokens);
engine_stats_t client_stats(client_t *client);
/* Compiles an EBNF grammar for the engine's vocabulary. The caller unrefs it. */
struct grammar *client_grammar(const client_t *client, const char *text);
/* The same for a grammar whose masks are all slow: three recursive rules that agree on most texts,
 * so that many ways are followed at once. */
struct grammar *client_slow_grammar(const client_t *client);
/* Waits for the engine to be idle and checks that no block is held. */
void client_check_idle(client_t *client);

#endif
