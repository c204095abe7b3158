/* test_stages.c: a model whose layers are cut over ranks: the same tokens and logprobs as one, bit
 * for bit. The ranks are threads (crew.h); the truth is the same engine on one rank.
 */
#include "engine/internal.h"
#include "engine/model/forward/internal.h"
#include "tests/engine/crew.h"
#include "tests/engine/support.h"
#include "tests/expect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { JOBS = 12, SIZES_MAX = 4 };

static void make_jobs(client_t *c) {
  crew_add_jobs(c, JOBS);
}

static int32_t num_layers(const char *model) {
  engine_options_t o = crew_options(model, false);
  blueprint_t blueprint = {0};
  inferd_error_t error = {0};
  int code = blueprint_read(o.model_dir, 0, -1, &blueprint, &error);
  ASSERT_EQ_FOR(code, 0, "%s", error.message);
  int32_t count = blueprint.num_layers;
  blueprint_free(&blueprint);
  return count;
}

static void check_jobs(engine_options_t o, const char *name, int32_t most,
                       void (*make)(client_t *client)) {
  o.num_threads = 1;
  client_t *alone = client_run_all(&o, make);
  o.cut_layers = true;
  for (int32_t size = 2; size <= most; size++) {
    char what[300];
    snprintf(what, sizeof what, "%s in %d stages", name, size);
    client_t *client = crew_run(o, size, make, what);
    client_expect_same(alone, client, what);
    const model_t *model = client->engine->model;
    cr_assert(model->layers[0].o != NULL, "%s: the first layer is not here", what);
    const int32_t last = model->blueprint.num_layers - 1;
    cr_assert(model->layers[last].o == NULL && model->head == NULL, "%s: the last layer is here",
              what);
    client_free(client);
  }
  client_free(alone);
}

static void check(const char *model, bool as_bf16) {
  const int32_t layers = num_layers(model);
  check_jobs(crew_options(model, as_bf16), model, layers < SIZES_MAX ? layers : SIZES_MAX,
             make_jobs);
}

Test(stages, dense_layers, .timeout = 300) {
  check("llama-g7-d128", false);
  check("llama-tied-bf16", false);      /* the embedding is the head, too */
  check("gpt2-bf16-d80", false);        /* learned positions, LayerNorms */
  check("gemma3", false);               /* norms around both parts, windows */
  check("decoder-cohere-norms", false); /* parallel parts */
  check("opt-350m-shape", false);       /* projections around the embedding */
  check("olmo2", false);                /* norms over all heads, which no cut of matrices has */
}

Test(stages, other_layers, .timeout = 300) {
  check("moe-qwen2-moe", false);
  check("gpt-oss-mxfp4-bf16", false);
  check("latent-deepseek-v2", false);
  check("gguf-qwen3", true);
  check("packed-awq", true);
}

Test(stages, options_of_one_rank, .timeout = 200) {
  engine_options_t o = crew_options("qwen3-g8-bf16", false);
  o.max_num_batched_tokens = 256;
  check_jobs(o, "long steps", 2, make_jobs);
  o = crew_options("qwen3-g8-bf16", false);
  o.draft = (draft_options_t){.tokens_max = 5, .match_min = 1, .match_max = 3, .longest = true};
  check_jobs(o, "drafts", 2, make_jobs);
  o = crew_options("qwen3-g8-bf16", false);
  o.num_blocks = 24, o.max_model_len = 128;
  check_jobs(o, "few blocks", 2, make_jobs);
  o = crew_options("qwen3-g8-bf16", false);
  o.kv_int8 = true;
  check_jobs(o, "a cache of 8 bits", 2, make_jobs);
}

static char adapter_dir[300];

static void adapted_jobs(client_t *c) {
  crew_set_adapter(c, 2, adapter_dir);
  make_jobs(c);
  for (int i = 0; i < c->count; i++) c->jobs[i].request.adapter = i % 3;
}

/* The second one is of the first stage and of the last one, too. */
Test(stages, adapters, .timeout = 200) {
  static const char *const models[] = {"lora-llama", "lora-dora-tables"};
  for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
    const char *const dirs[] = {adapter_dir};
    snprintf(adapter_dir, sizeof adapter_dir, "tests/vectors/models/%s/adapter", models[i]);
    engine_options_t o = crew_options(models[i], false);
    if (i == 1) o.seed = 20828; /* PEFT saved some of the weights, too */
    o.max_loras = 2, o.max_lora_rank = 8;
    o.lora_dirs = dirs, o.num_lora_dirs = 1;
    check_jobs(o, models[i], 2, adapted_jobs);
  }
}

/* ---- turns ---- */

/* One step alone: a packet and a pass, then a turn without a step: a packet and the logits. Of a
 * prompt in chunks the first ones have no logits, and the next chunk is on its way behind each. */
Test(stages, exchanges_of_a_step) {
  enum { CHUNKS = 7 }; /* of 16 tokens */
  crew_t crew;
  engine_options_t o = crew_options("llama-f16", false);
  o.cut_layers = true;
  o.max_num_seqs = 8;
  o.max_num_batched_tokens = 128;
  o.enable_prefix_caching = false;
  o = crew_start(&crew, o, 2);
  client_t *client = client_new(&o);
  for (int i = 0; i < 2; i++) {
    const uint64_t before = client_stats(client).exchanges, steps = client_stats(client).steps;
    job_t *job = client_job(client, i == 0 ? 3 : 100, 1, i);
    for (int k = 0; k < job->request.num_prompt_tokens; k++) job->prompt[k] %= CREW_VOCAB;
    ASSERT_EQ(client_submit(client, job), 0);
    client_run(client);
    ASSERT_EQ(client_stats(client).steps, steps + (i == 0 ? 1 : CHUNKS));
    const uint64_t counted = client_stats(client).exchanges - before;
    const uint64_t expected = i == 0 ? 4 : 2 * CHUNKS + 2; /* and signs of life, two a second */
    cr_assert(counted >= expected && counted <= expected + 2, "%d: %llu", i,
              (unsigned long long)counted);
  }
  engine_stop(client->engine);
  client_free(client);
  crew_end(&crew, 0, "exchanges");
}

enum { STREAMS = 24, STREAM_TOKENS = 60 };

static void make_streams(client_t *c) {
  for (int i = 0; i < STREAMS; i++) {
    job_t *job = client_job(c, 3 + i % 5, STREAM_TOKENS, i);
    for (int k = 0; k < job->request.num_prompt_tokens; k++) job->prompt[k] %= CREW_VOCAB;
    job->request.params.ignore_eos = true;
  }
}

/* Many streams: nearly every step is launched while others are in flight, none has more than its
 * part of the streams, and the tokens are those of one rank. */
Test(stages, steps_of_other_streams_are_in_flight, .timeout = 200) {
  engine_options_t o = crew_options("recent-cwm", false);
  o.num_threads = 1;
  o.max_num_seqs = STREAMS;
  client_t *alone = client_run_all(&o, make_streams);
  o.cut_layers = true;
  for (int32_t size = 2; size <= 3; size++) {
    client_t *client = crew_run(o, size, make_streams, "streams");
    client_expect_same(alone, client, "streams");
    const engine_stats_t *stats = &client->engine->stats;
    cr_assert(stats->overlapped_steps * 10 > stats->steps * 8, "%llu of %llu steps overlap",
              (unsigned long long)stats->overlapped_steps, (unsigned long long)stats->steps);
    const uint64_t least = (STREAM_TOKENS - 1) * (uint64_t)size;
    cr_assert(stats->steps >= least, "%llu steps for %d tokens of all streams in %d stages",
              (unsigned long long)stats->steps, STREAM_TOKENS, size);
    client_free(client);
  }
  client_free(alone);
}

/* One of nine layers, as no model of the vectors has. The caller removes it and frees the path. */
static char *deep_model(void) {
  char *dir = strdup("/tmp/inferd-deep-XXXXXX"), path[64];
  cr_assert(mkdtemp(dir) != NULL);
  snprintf(path, sizeof path, "%s/config.json", dir);
  FILE *file = fopen(path, "w");
  cr_assert(file != NULL);
  fputs("{\"architectures\":[\"LlamaForCausalLM\"],\"hidden_size\":64,\"num_attention_heads\":2,"
        "\"num_hidden_layers\":9,\"intermediate_size\":64,\"vocab_size\":64,"
        "\"max_position_embeddings\":128,\"rms_norm_eps\":1e-5,\"dtype\":\"float32\"}",
        file);
  fclose(file);
  return dir;
}

/* With more stages than steps in flight, too, no stream waits for the ends of others. */
Test(stages, nine_stages_keep_nine_streams_going, .timeout = 200) {
  enum { STAGES = 9, TOKENS = 110 };
  int begun[STAGES];
  char *dir = deep_model(), path[64];
  crew_t crew;
  engine_options_t o = crew_options("recent-cwm", false);
  o.model_dir = dir;
  o.cut_layers = true;
  o.max_num_seqs = STAGES;
  o = crew_start(&crew, o, STAGES);
  client_t *client = client_new(&o);
  for (int i = 0; i < STAGES; i++) {
    job_t *job = client_job(client, 3, TOKENS, i);
    for (int k = 0; k < 3; k++) job->prompt[k] %= CREW_VOCAB;
    job->request.params.ignore_eos = true;
    ASSERT_EQ(client_submit(client, job), 0);
  }
  /* The first ones begin while the last ones are submitted. None has ended when the last begins. */
  client_wait_output(client, &client->jobs[STAGES - 1], 1);
  for (int i = 0; i < STAGES; i++) {
    begun[i] = client->jobs[i].num_output;
    ASSERT_LT_FOR(begun[i], TOKENS, "stream %d", i);
  }
  client_wait_output(client, &client->jobs[STAGES - 1], begun[STAGES - 1] + 40);
  for (int i = 0; i < STAGES; i++)
    ASSERT_GE_FOR(client->jobs[i].num_output, MIN(begun[i] + 20, TOKENS), "stream %d", i);
  client_run(client);
  engine_stop(client->engine);
  client_free(client);
  crew_end(&crew, 0, "nine stages");
  snprintf(path, sizeof path, "%s/config.json", dir);
  unlink(path);
  rmdir(dir);
  free(dir);
}

/* Requests of several choices and beams, which fork, and are preempted for want of blocks while
 * others are in flight. */
static void make_choices(client_t *c) {
  for (int i = 0; i < 2 * STREAMS; i++) {
    job_t *job = client_job(c, 1 + i * 7 % 40, 1 + i * 11 % 40, i % 5);
    sampling_params_t *p = &job->request.params;
    for (int k = 0; k < job->request.num_prompt_tokens; k++) job->prompt[k] %= CREW_VOCAB;
    p->seed = (uint64_t)i;
    job->request.priority = i % 3;
    if (i % 4 == 1) p->n = p->best_of = 3, p->temperature = 1;
    if (i % 4 == 2) p->n = 1, p->best_of = 2, p->temperature = 1;
    if (i % 4 == 3) p->n = p->beam_width = 3;
    if (i % 4 > 0) client_several(job);
  }
}

Test(stages, choices_and_beams_have_the_same_tokens, .timeout = 200) {
  engine_options_t o = crew_options("recent-cwm", false);
  o.num_threads = 1;
  o.block_size = 4;
  o.max_model_len = 128;
  client_t *alone = client_run_all(&o, make_choices);
  o.cut_layers = o.priority_policy = true;
  o.num_blocks = 80;
  for (int32_t size = 2; size <= 5; size++) {
    client_t *client = crew_run(o, size, make_choices, "choices");
    client_expect_same(alone, client, "choices");
    const engine_stats_t *stats = &client->engine->stats;
    cr_assert(stats->preemptions > 5 && stats->overlapped_steps > 100, "%llu preemptions, %llu",
              (unsigned long long)stats->preemptions, (unsigned long long)stats->overlapped_steps);
    client_free(client);
  }
  client_free(alone);
}

/* A token takes a turn of each stage: so a turn has a part of the time of a step, and so has each
 * client in it. */
Test(stages, bounds_of_a_step_are_shared_out_over_the_turns) {
  crew_t crew;
  engine_options_t o = crew_options("llama-f16", false);
  o.max_step_ms = 30;
  client_t *alone = client_new(&o);
  const pace_options_t step = alone->engine->scheduler->options.pace;
  o.cut_layers = true;
  o = crew_start(&crew, o, 2);
  client_t *client = client_new(&o);
  const pace_options_t turn = client->engine->scheduler->options.pace;
  cr_assert(step.step_ns == 30e6 && step.client_ns > 0);
  cr_assert(turn.step_ns == step.step_ns / 2, "%g of %g", turn.step_ns, step.step_ns);
  cr_assert(turn.client_ns == step.client_ns / 2, "%g of %g", turn.client_ns, step.client_ns);
  cr_assert(step.reads == 0, "30 ms were asked for");
  engine_stop(client->engine);
  client_free(client);
  client_free(alone);
  crew_end(&crew, 0, "bounds");
}

static pace_options_t pace_of(const ops_t *ops, bool slo, int32_t max_step_ms) {
  engine_options_t o = crew_options("llama-f16", false);
  o.ops = ops;
  o.slo_policy = slo;
  o.max_step_ms = max_step_ms;
  client_t *client = client_new(&o);
  const pace_options_t pace = client->engine->scheduler->options.pace;
  client_free(client);
  return pace;
}

/* By what one client has in a step it delays a token of another. */
Test(stages, a_client_has_ten_milliseconds_beside_others_at_most) {
  ops_t like_a_gpu = ops_cpu;
  like_a_gpu.bounds_admission = true;
  like_a_gpu.step_ms = 40;
  like_a_gpu.client_step_ms = 10;
  EXPECT_EQ(pace_of(&ops_cpu, false, -1).client_ns, 4e6);
  EXPECT_EQ(pace_of(&ops_cpu, false, -1).step_ns, 60e6);
  EXPECT_EQ(pace_of(&ops_cpu, true, -1).client_ns, 4e6);
  EXPECT_EQ(pace_of(&like_a_gpu, false, -1).client_ns, 10e6);
  EXPECT_EQ(pace_of(&like_a_gpu, false, -1).step_ns, 40e6);
  EXPECT_EQ(pace_of(&like_a_gpu, false, 200).client_ns, 10e6);
  EXPECT_EQ(pace_of(&like_a_gpu, true, -1).client_ns, 0);
  EXPECT_EQ(pace_of(&like_a_gpu, false, 0).client_ns, 0);
}

Test(stages, a_step_that_nobody_has_bounded_may_be_half_reading) {
  EXPECT_EQ(pace_of(&ops_cpu, false, -1).reads, 2);
  EXPECT_EQ(pace_of(&ops_cpu, false, 60).reads, 0);
  EXPECT_EQ(pace_of(&ops_cpu, true, -1).reads, 0);
}

/* Requests that end while a step with a row of theirs is in flight, and others in their slots. */
Test(stages, cancelled_streams_leave_the_others_as_they_are, .timeout = 200) {
  engine_options_t o = crew_options("recent-cwm", false);
  o.num_threads = 1;
  o.max_num_seqs = STREAMS / 2;
  client_t *alone = client_run_all(&o, make_streams);
  crew_t crew;
  o.cut_layers = true;
  o = crew_start(&crew, o, 3);
  client_t *client = client_new(&o);
  make_streams(client);
  for (int i = 0; i < STREAMS; i++) ASSERT_EQ(client_submit(client, &client->jobs[i]), 0);
  for (int i = 0; i < STREAMS; i += 3) {
    client_wait_output(client, &client->jobs[i], 1 + i / 3);
    engine_cancel(client->engine, &client->jobs[i].request);
  }
  client_run(client);
  for (int i = 0; i < STREAMS; i++) {
    const job_t *job = &client->jobs[i], *want = &alone->jobs[i];
    ASSERT_EQ_FOR(job->done.error_code, 0, "stream %d", i);
    if (i % 3 != 0) ASSERT_EQ_FOR(job->num_output, STREAM_TOKENS, "stream %d", i);
    ASSERT_IDS_EQ(job->output, want->output, job->num_output);
  }
  client_check_idle(client);
  engine_stop(client->engine);
  client_free(client);
  client_free(alone);
  crew_end(&crew, 0, "cancelled streams");
}

static void expect_begins(blueprint_t bp, int32_t count, const int32_t *begins) {
  bp.shard.num_stages = count;
  for (int32_t s = 0; s <= count; s++)
    EXPECT_EQ_FOR(stage_begin(&bp, s), begins[s], "stage %d of %d, tied %d", s, count, bp.tied);
}

/* The last stage has the head besides, which is as large as 2.5 or 10 layers here. */
Test(stages, layers_and_head_are_shared_out) {
  const int64_t layer = 1000000, table = 2500 * 1000;
  blueprint_t bp = {.vocab_size = 2500, .embed_size = 1000, .num_layers = 32};
  bp.num_parameters = 32 * layer + 2 * table;
  expect_begins(bp, 1, (const int32_t[]){0, 32});
  expect_begins(bp, 2, (const int32_t[]){0, 17, 32});
  expect_begins(bp, 4, (const int32_t[]){0, 8, 17, 26, 32});
  bp.tied = true, bp.num_parameters = 32 * layer + table;
  expect_begins(bp, 2, (const int32_t[]){0, 17, 32});
  bp.vocab_size = 10000, bp.num_layers = 8, bp.num_parameters = 8 * layer + 4 * table;
  expect_begins(bp, 2, (const int32_t[]){0, 7, 8}); /* the last one has a layer at least */
  expect_begins(bp, 8, (const int32_t[]){0, 1, 2, 3, 4, 5, 6, 7, 8});
}

/* A rank plans for its own layers, a part of what all need. */
static void note_memory(void *context, const char *line) {
  double *kv = context;
  const char *at = strstr(line, "kv cache ");
  if (strncmp(line, "memory", 6) == 0 && at != NULL) *kv = strtod(at + strlen("kv cache "), NULL);
}

Test(stages, a_rank_plans_for_its_own_layers) {
  engine_options_t o = crew_options("qwen3-g8-bf16", false);
  inferd_error_t error = {0};
  double whole = 0, half = 0;
  o.num_blocks = 200000;
  o.log = note_memory;
  o.context = &whole;
  ASSERT_EQ_FOR(engine_survey(&o, NULL, &error), 0, "%s", error.message);
  o.planned_ranks = 2, o.cut_layers = true;
  o.context = &half;
  ASSERT_EQ_FOR(engine_survey(&o, NULL, &error), 0, "%s", error.message);
  cr_assert(half > 0 && half < 0.6 * whole, "%g GiB of %g", half, whole); /* one of two layers */
}

static void expect_refused(const char *model, int32_t ranks, const char *word) {
  engine_options_t o = crew_options(model, false);
  inferd_error_t error = {0};
  o.planned_ranks = ranks, o.cut_layers = true;
  EXPECT_EQ_FOR(engine_survey(&o, NULL, &error), ERR_CONFIGURATION, "%s", model);
  cr_expect(strstr(error.message, word) != NULL, "%s", error.message);
  cr_expect(strstr(error.message, "pipeline_parallel_size") != NULL, "%s", error.message);
}

Test(stages, what_does_not_run_so_is_named) {
  expect_refused("state-qwen3-next", 2, "layers with a state");
  expect_refused("gemma4-e", 2, "layers of two kinds");
  expect_refused("llama-f16", 60, "at most");
}

/* With a step in each stage every request ends, those that wait included. */
Test(stages, requests_fail_when_a_rank_is_lost, .timeout = 60) {
  for (int32_t lost = 1; lost < 3; lost++) {
    crew_t crew;
    engine_options_t o = crew_options("recent-cwm", false);
    o.cut_layers = true;
    o.max_num_seqs = STREAMS / 2;
    o = crew_start(&crew, o, 3);
    client_t *client = client_new(&o);
    make_streams(client);
    for (int i = 0; i < STREAMS; i++) {
      client->jobs[i].request.params.max_tokens = 100;
      ASSERT_EQ(client_submit(client, &client->jobs[i]), 0);
    }
    client_wait_output(client, &client->jobs[0], 3);
    crew.comms[lost]->ops->abandon(crew.comms[lost]);
    client_run(client);
    for (int i = 0; i < STREAMS; i++)
      ASSERT_EQ_FOR(client->jobs[i].done.error_code, ERR_DEVICE_FAILED, "stream %d", i);
    ASSERT_EQ(engine_state(client->engine), ENGINE_FAILED);
    client_free(client);
    crew_end(&crew, ERR_DEVICE_FAILED, "a lost rank");
  }
}
