/* test_graphs.c: the sizes of the decode steps that are captured as graphs, and of what steps with
 * draft tokens need.
 */
#include "cuda/operations.h"
#include "tests/emu/host/calls.h"
#include "tests/engine/crew.h"
#include "tests/expect.h"

#include <criterion/criterion.h>

/* Lists the rows of the warm-up runs that capture, largest first; returns their number. */
static int32_t list_sizes(step_limits_t limits, int32_t sizes[GRAPHS_MAX + 1]) {
  static device_t device;
  int32_t count = 0;
  device.limits = limits;
  for (int32_t index = 1; count <= GRAPHS_MAX; index += 2) {
    sizes[count] = cuda_warm_up_rows(&device, index);
    if (sizes[count] == 0) break;
    count++;
  }
  return count;
}

/* A step that is padded to the next size computes at most an eighth more, and beyond 8 rows less
 * than 64 rows; beyond 1,024 requests there is no graph for the largest steps. */
Test(graphs, sizes_reach_1024_rows) {
  const int32_t limits[] = {1, 7, 40, 256, 500, 700, 1024, 4096};
  for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
    int32_t sizes[GRAPHS_MAX + 1];
    const int32_t count =
        list_sizes((step_limits_t){.reqs_max = limits[i], .tokens_max = 8192}, sizes);
    ASSERT_EQ(sizes[0], limits[i] < 1024 ? limits[i] : 1024);
    ASSERT_EQ(sizes[count - 1], 1);
    for (int32_t s = 0; s + 1 < count; s++) {
      ASSERT_LT(sizes[s + 1], sizes[s]);
      if (sizes[s] > 64) ASSERT_LE(8 * (sizes[s] - sizes[s + 1]), sizes[s]);
    }
  }
}

/* With adapters each size is captured twice, and the device has a place for all of them. */
Test(graphs, all_sizes_have_a_place_with_adapters_too) {
  int32_t sizes[GRAPHS_MAX + 1];
  step_limits_t limits = {.reqs_max = 4096, .tokens_max = 8192};
  const int32_t count = list_sizes(limits, sizes);
  ASSERT_LE(2 * count, GRAPHS_MAX);
  const size_t bytes = graph_bytes(&limits);
  limits.adapter_rank_max = 8;
  ASSERT_EQ(graph_bytes(&limits), 2 * bytes);
  limits.adapter_rank_max = 0, limits.drafts_max = 3;
  ASSERT_EQ(graph_bytes(&limits), 2 * bytes);
}

/* With draft tokens a step has more tokens than sequences, and at most those that a batch has room
 * for: tokens_max counts a draw of each sequence beside them. */
Test(graphs, sizes_count_the_draft_tokens) {
  int32_t sizes[GRAPHS_MAX + 1];
  list_sizes((step_limits_t){.reqs_max = 8, .drafts_max = 4, .tokens_max = 520}, sizes);
  ASSERT_EQ(sizes[0], 40);
  list_sizes((step_limits_t){.reqs_max = 200, .drafts_max = 15, .tokens_max = 712}, sizes);
  ASSERT_EQ(sizes[0], 512);
  list_sizes((step_limits_t){.reqs_max = 256, .drafts_max = 15, .tokens_max = 8448}, sizes);
  ASSERT_EQ(sizes[0], 1024);
}

/* A draft model draws one token of each sequence at most: a step of all of them has a graph. */
Test(graphs, all_sequences_are_a_size) {
  for (int32_t reqs = 1; reqs <= 1024; reqs += reqs < 40 ? 1 : 41) {
    const step_limits_t limits = {.reqs_max = reqs, .drafts_max = 3, .tokens_max = 8192};
    int32_t sizes[GRAPHS_MAX + 1], i = 0;
    const int32_t count = list_sizes(limits, sizes);
    ASSERT_LE(2 * count, GRAPHS_MAX);
    while (i < count && sizes[i] != reqs) i++;
    ASSERT_LT(i, count);
  }
}

/* Rows of one token, and of draft tokens that are all drawn, replay the next larger graph. */
Test(graphs, steps_with_draft_tokens_are_replayed) {
  static device_t device;
  const int32_t sizes[] = {16, 8, 4};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    device.graphs[i] = (step_graph_t){.tokens = sizes[i], .draws = true};
  device.num_graphs = 3;
  batch_t batch = {.num_tokens = 6, .num_reqs = 2, .num_selected = 6, .max_query_len = 5};
  graph_choose(&device, &batch);
  ASSERT_EQ(device.mode, STEP_REPLAY);
  ASSERT_EQ(device.graph->tokens, 8);
  ASSERT_EQ(device.selected_rows, 8);
  batch.num_selected = 2; /* a chunk of a prompt */
  graph_choose(&device, &batch);
  ASSERT_EQ(device.mode, STEP_EAGER);
  batch.num_selected = 6, batch.max_query_len = GPU_DECODE_QUERIES_MAX + 1;
  graph_choose(&device, &batch);
  ASSERT_EQ(device.mode, STEP_EAGER);
  batch.max_query_len = 5, device.state.num_slots = 3; /* captured for one token a row */
  graph_choose(&device, &batch);
  ASSERT_EQ(device.mode, STEP_EAGER);
  batch.num_tokens = batch.num_selected = 2, batch.max_query_len = 1;
  graph_choose(&device, &batch);
  ASSERT_EQ(device.graph->tokens, 4);
}

/* A draft model repeats steps without a draw by graphs of their own. */
Test(graphs, steps_that_draw_nothing_are_replayed_by_graphs_of_their_own) {
  static device_t device;
  batch_t batch = {.num_tokens = 6, .num_reqs = 2, .max_query_len = 5};
  device.graphs[device.num_graphs++] = (step_graph_t){.tokens = 8, .draws = true};
  graph_choose(&device, &batch);
  ASSERT_EQ(device.mode, STEP_EAGER);
  device.graphs[device.num_graphs++] = (step_graph_t){.tokens = 8, .draws = false};
  graph_choose(&device, &batch);
  ASSERT_EQ(device.mode, STEP_REPLAY);
  ASSERT_EQ(device.graph, &device.graphs[1]);
  ASSERT_EQ(device.selected_rows, 0);
  batch.num_selected = 6;
  graph_choose(&device, &batch);
  ASSERT_EQ(device.graph, &device.graphs[0]);
}

static void make_job(client_t *c) {
  job_t *job = client_job(c, 9, 6, 0);
  for (int k = 0; k < job->request.num_prompt_tokens; k++) job->prompt[k] = 1 + k % 3;
  job->request.params.ignore_eos = true;
}

/* The warm-up runs of an engine whose steps have fewer tokens than all sequences with their drafts.
 */
Test(graphs, warm_up_runs_fit_into_a_batch, .timeout = 120) {
  engine_options_t o = crew_options("qwen3-g8-bf16", false);
  o.ops = &ops_cuda;
  o.num_blocks = 40, o.num_threads = 1;
  o.max_num_seqs = 8, o.max_num_batched_tokens = 12;
  o.draft = (draft_options_t){.tokens_max = 3, .match_min = 1, .match_max = 3};
  client_t *client = client_run_all(&o, make_job);
  ASSERT_EQ(client->jobs[0].done.error_code, 0);
  client_free(client);
}

enum { TOKENS_FEW = 6 /* of make_job */, TOKENS_MORE = 20 };

static void make_more(client_t *c) {
  make_job(c);
  c->jobs[0].request.params.max_tokens = TOKENS_FEW + TOKENS_MORE;
  c->jobs[0].request.params.num_logprobs = 2;
}

/* Calls of a run of the engine, from its start to its end. */
typedef struct run_calls {
  int graphs, copies, launches, events;
} run_calls_t;

static run_calls_t count_run(void (*make)(client_t *c)) {
  engine_options_t o = crew_options("qwen3-g8-bf16", false);
  o.ops = &ops_cuda;
  o.num_blocks = 40, o.num_threads = 1, o.max_num_seqs = 2;
  o.batch_invariant = true; /* no trials of a library, whose number depends on their times */
  const char *const names[] = {"cudaGraphLaunch", "cudaMemcpyAsync", "launch", "cudaEventRecord"};
  int counts[4];
  for (int i = 0; i < 4; i++) counts[i] = emu_count_calls(names[i]);
  client_t *client = client_run_all(&o, make);
  ASSERT_EQ(client->jobs[0].done.error_code, 0);
  client_free(client);
  for (int i = 0; i < 4; i++) counts[i] = emu_count_calls(names[i]) - counts[i];
  return (run_calls_t){counts[0], counts[1], counts[2], counts[3]};
}

/* The device fetches the inputs and writes the results, alternatives too: nothing is copied beside
 * the graph. */
Test(graphs, a_replayed_step_is_a_graph_and_an_event, .timeout = 120) {
  const run_calls_t few = count_run(make_job), more = count_run(make_more);
  ASSERT_EQ(more.graphs - few.graphs, TOKENS_MORE);
  ASSERT_EQ(more.events - few.events, TOKENS_MORE);
  ASSERT_EQ(more.launches - few.launches, 0);
  ASSERT_EQ(more.copies - few.copies, 0);
}

static const logit_bias_t *many_biases(void) {
  static logit_bias_t biases[LOGIT_BIAS_MAX];
  for (int i = 0; i < LOGIT_BIAS_MAX; i++) biases[i] = (logit_bias_t){i % 64, i % 64 == 5 ? 9 : -9};
  return biases;
}

static void make_biased_jobs(client_t *c) {
  for (int i = 0; i < 2; i++) {
    job_t *job = client_job(c, 9, 20, i);
    for (int k = 0; k < job->request.num_prompt_tokens; k++) job->prompt[k] = 5;
    job->request.params.ignore_eos = true;
    job->request.params.num_logit_bias = LOGIT_BIAS_MAX;
    job->request.params.logit_bias = many_biases();
  }
}

/* Each row of a draft has its own arrays in the packet. */
Test(graphs, packets_have_room_for_the_arrays_of_all_drafts, .timeout = 120) {
  engine_options_t o = crew_options("qwen3-g8-bf16", false);
  o.ops = &ops_cuda;
  o.num_blocks = 40, o.num_threads = 1;
  o.max_num_seqs = 2, o.max_num_batched_tokens = 20;
  o.draft = (draft_options_t){.tokens_max = 7, .match_min = 1, .match_max = 3};
  client_t *client = client_run_all(&o, make_biased_jobs);
  for (int i = 0; i < 2; i++) {
    ASSERT_EQ(client->jobs[i].done.error_code, 0);
    ASSERT_EQ_FOR(client->jobs[i].output[19], 5, "what the biases make of it");
  }
  cr_assert(client_stats(client).draft_tokens > 0, "there were no drafts");
  client_free(client);
}

static int calls_at_ready[2];

static void note_ready(void) {
  calls_at_ready[0] = emu_count_calls("load");
  calls_at_ready[1] = emu_count_calls("upload by a launch");
}

/* Prompts of some hundred tokens in chunks, two of them equal, and decodes. */
static void make_long(client_t *c) {
  note_ready();
  for (int i = 0; i < 3; i++) {
    job_t *job = client_job(c, 200, 6, i / 2);
    for (int k = 0; k < job->request.num_prompt_tokens; k++) job->prompt[k] %= 64;
    job->request.params.ignore_eos = true;
  }
}

static void expect_nothing_late(engine_options_t o) {
  o.ops = &ops_cuda;
  o.num_blocks = 40, o.num_threads = 1;
  o.max_num_seqs = 8, o.max_num_batched_tokens = 96;
  client_t *client = client_run_all(&o, make_long);
  for (int i = 0; i < client->count; i++) ASSERT_EQ(client->jobs[i].done.error_code, 0);
  client_free(client);
  ASSERT_EQ(emu_count_calls("load"), calls_at_ready[0]);
  ASSERT_EQ(emu_count_calls("upload by a launch"), calls_at_ready[1]);
}

/* No request waits for code that the driver loads, or makes from PTX, or for the upload of a graph.
 */
Test(graphs, all_is_loaded_before_ready, .timeout = 120) {
  engine_options_t o = crew_options("qwen3-g8-bf16", false);
  expect_nothing_late(o);
  o.batch_invariant = true;
  expect_nothing_late(o);
}
