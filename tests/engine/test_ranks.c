/* test_ranks.c: a model over several ranks: the same tokens and logprobs as one, bit for bit.
 *
 * The ranks are threads, each with its own device, its own part of the model and its own KV cache;
 * collectives are those of one host. The truth is the same engine on one rank, whose numbers are
 * compared with transformers elsewhere (make parity).
 */
#include "engine/internal.h"
#include "engine/model/weights/shard.h"
#include "engine/ranks/ranks.h"
#include "engine/ranks/shared.h"
#include "tests/engine/crew.h"
#include "tests/engine/schedule/swap_double.h"
#include "tests/engine/support.h"
#include "tests/expect.h"

#include <dirent.h>
#include <math.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

enum { JOBS = 12 };

static void make_jobs(client_t *c) {
  crew_add_jobs(c, JOBS);
}

static void check_options(engine_options_t o, const char *model, int32_t least, int32_t most) {
  o.num_threads = 1;
  client_t *alone = client_run_all(&o, make_jobs);
  for (int32_t size = least; size <= most; size++) {
    char name[320];
    snprintf(name, sizeof name, "%s on %d ranks", model, size);
    client_t *client = crew_run(o, size, make_jobs, name);
    client_expect_same(alone, client, name);
    client_free(client);
  }
  client_free(alone);
}

static void check_sizes(const char *model, int32_t least, int32_t most, bool as_bf16) {
  check_options(crew_options(model, as_bf16), model, least, most);
}

/* By 2 to `most` ranks, as far as the heads reach. */
static void check(const char *model, int32_t most, bool as_bf16) {
  check_sizes(model, 2, most, as_bf16);
}

Test(ranks, dense_layers, .timeout = 600) {
  check("llama-g7-d128", 4, false); /* 7 heads on one KV head: all have the same one */
  check("llama-bf16-g3-d80", 3, false);
  check("llama-f16", 2, false);
  check("qwen3-g8-bf16", 4, false);
  check("llama-tied-bf16", 2, false);
  check("gpt2-bf16-d80", 2, false); /* transposed in the file, LayerNorms, learned positions */
  check("phi3-gqa-bf16", 4, false); /* q, k, v and gate, up in one tensor each */
  check("gemma3", 4, false);        /* norms around both parts, windows */
  check("decoder-cohere-norms", 4, false); /* a norm of its own for each head, parallel parts */
  check("decoder-internlm2", 4, false);    /* rows of heads in groups */
  check("opt-350m-shape", 2, false);       /* projections around the embedding */
  check("seed-oss", 3, false);             /* biases */
}

Test(ranks, mixtures_of_experts, .timeout = 600) {
  check("moe-mixtral", 2, false);
  check("moe-qwen2-moe", 2, false); /* a shared expert with a gate */
  check("moe-qwen3-moe", 2, false);
  check("gpt-oss-mxfp4-bf16", 4, false); /* sinks, biases of experts, blocks of 4 bits */
  check("routed-glm4-moe", 3, false);    /* scores by groups, dense layers before */
  check("mixture-granitemoe", 4, false);
}

/* Prompts that share a beginning, so that states are stored and restored. */
static void shared_jobs(client_t *c) {
  make_jobs(c);
  for (int i = 0; i < c->count; i++)
    for (int k = 0; k < c->jobs[i].request.num_prompt_tokens; k++)
      c->jobs[i].prompt[k] = k % CREW_VOCAB;
}

Test(ranks, layers_with_a_state, .timeout = 600) {
  static const char *const models[] = {"state-lfm2", "state-qwen3-next", "state-granite-hybrid",
                                       "state-falcon-h1", "state-jamba"};
  for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
    check(models[i], 3, false);
    engine_options_t o = crew_options(models[i], false);
    o.draft = (draft_options_t){.tokens_max = 3, .match_min = 1, .match_max = 2, .longest = true};
    o.num_snapshots = 4, o.num_threads = 1;
    client_t *alone = client_run_all(&o, shared_jobs),
             *many = crew_run(o, 2, shared_jobs, "snapshots");
    client_expect_same(alone, many, models[i]);
    client_free(alone);
    client_free(many);
  }
}

Test(ranks, latent_attention, .timeout = 600) {
  check("latent-deepseek-v3", 4, false);
}

Test(ranks, quantised_weights, .timeout = 600) {
  check("gguf-qwen3", 2, true);
  check("gguf-qwen2-yarn", 2, true);
  check("packed-awq", 4, true);
  check("packed-gptq-v2-desc-act", 3, true);
  check("packed-fp8-blocks", 3, true);
  check("packed-nvfp4", 4, true);
  check("packed-w8a8", 2, true);
  check("packed-mxfp4-moe", 2, true);
}

/* What changes the steps, the weights or the cache, and is not refused. */
Test(ranks, options_of_one_rank, .timeout = 300) {
  engine_options_t o = crew_options("qwen3-g8-bf16", false);
  o.draft = (draft_options_t){.tokens_max = 5, .match_min = 1, .match_max = 3, .longest = true};
  check_options(o, "drafts", 2, 3);
  o = crew_options("qwen3-g8-bf16", false);
  o.draft_model_dir = o.model_dir, o.draft.tokens_max = 3;
  check_options(o, "a draft model", 2, 3);
  o = crew_options("qwen3-g8-bf16", false);
  o.num_blocks = 24, o.max_model_len = 128;
  check_options(o, "few blocks", 2, 3);
  o = crew_options("qwen3-g8-bf16", false);
  o.kv_int8 = true;
  check_options(o, "a cache of 8 bits", 2, 3);
  o = crew_options("qwen3-g8-bf16", false);
  o.quantise_q8 = true;
  check_options(o, "weights of 8 bits", 2, 3);
}

static char adapter_dir[300];

/* Some requests of each step have the adapter of the start, some one that is set later, some none.
 */
static void adapted_jobs(client_t *c) {
  crew_set_adapter(c, 2, adapter_dir);
  make_jobs(c);
  for (int i = 0; i < c->count; i++) c->jobs[i].request.adapter = i % 3;
}

/* `seed`: of the weights beside which PEFT saved the adapter, where it saved some of them, too. */
static void check_adapter(const char *model, uint64_t seed, int32_t size, bool fast) {
  const char *const dirs[] = {adapter_dir};
  snprintf(adapter_dir, sizeof adapter_dir, "tests/vectors/models/%s/adapter", model);
  engine_options_t o = crew_options(model, false);
  o.num_threads = 1;
  if (seed != 0) o.seed = seed;
  o.max_loras = 2, o.max_lora_rank = 8;
  o.lora_dirs = dirs, o.num_lora_dirs = 1;
  client_t *alone = client_run_all(&o, adapted_jobs), *plain = client_run_all(&o, make_jobs);
  for (int i = 4; i <= 8; i += 4)
    cr_assert(memcmp(alone->jobs[i].prompt_logprobs, plain->jobs[i].prompt_logprobs,
                     sizeof alone->jobs[i].prompt_logprobs) != 0,
              "%s: the adapter in slot %d changes nothing", model, alone->jobs[i].request.adapter);
  o.add_ranks = fast;
  client_t *many = crew_run(o, size, adapted_jobs, model);
  if (!fast) client_expect_same(alone, many, model);
  for (int i = 0; i < alone->count; i++)
    for (int k = 1; k <= alone->jobs[i].num_prompt_logprobs; k++) {
      const float a = alone->jobs[i].prompt_logprobs[k], b = many->jobs[i].prompt_logprobs[k];
      cr_assert(fabsf(a - b) < 0.02f, "%s: request %d, prompt token %d: %g, alone %g", model, i, k,
                (double)b, (double)a);
    }
  client_free(alone);
  client_free(plain);
  client_free(many);
}

Test(ranks, adapters_are_cut_as_the_layers_are, .timeout = 300) {
  static const struct {
    const char *model;
    uint64_t seed;
  } cases[] = {{"lora-llama", 0},      {"lora-phi3", 0},           {"lora-gpt2", 0},
               {"lora-mixtral", 0},    {"lora-qwen2-some", 0},     {"lora-dora", 0},
               {"lora-biases", 20829}, {"lora-dora-tables", 20828}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    check_adapter(cases[i].model, cases[i].seed, 2, false);
    check_adapter(cases[i].model, cases[i].seed, 2, true);
  }
}

/* A back end that swaps by itself, as a GPU does: each rank has blocks of its own, and only rank 0
 * would copy them. */
Test(ranks, automatic_swap_space_stays_off, .timeout = 60) {
  static ops_t ops;
  crew_t crew;
  ops = *swap_double_ops();
  ops.separate_memory = true;
  engine_options_t o = crew_options("llama-f16", false);
  o.ops = &ops;
  client_t *client = client_new(&o);
  cr_assert(engine_info(client->engine)->num_host_blocks > 0, "one rank has no swap space");
  client_free(client);
  o = crew_start(&crew, o, 2);
  client = client_new(&o);
  ASSERT_EQ(engine_info(client->engine)->num_host_blocks, 0);
  engine_stop(client->engine);
  client_free(client);
  crew_end(&crew, 0, "swap space");
}

/* Why `size` ranks refuse the options; "" = they do not. The text is valid until the next call. */
static const char *refusal(engine_options_t options, int32_t size) {
  static inferd_error_t error;
  engine_t *engine = NULL;
  crew_t crew;
  error = (inferd_error_t){0};
  options = crew_start(&crew, options, size);
  ASSERT_EQ_FOR(engine_create(&options, &engine, &error), 0, "%s", error.message);
  while (engine_state(engine) == ENGINE_LOADING) usleep(500);
  if (engine_state(engine) == ENGINE_FAILED) engine_failure(engine, &error);
  engine_destroy(engine);
  crew_end(&crew, error.code, options.model_dir);
  return error.message;
}

static void expect_refusal(engine_options_t options, const char *what) {
  const char *message = refusal(options, 2);
  cr_assert(strstr(message, what) != NULL, "%s; expected: %s", message, what);
}

Test(ranks, what_runs_on_one_rank_only_is_refused_by_name, .timeout = 60) {
  expect_refusal(crew_options("gemma4-e", false), "layers of two kinds");
  expect_refusal(crew_options("olmo2", false), "norms over all heads together");
  expect_refusal(crew_options("../encoders/mpnet-mean", false), "scores by distance");
  expect_refusal(crew_options("../encoders/deberta-mean", false), "scores by distance");
  expect_refusal(crew_options("gguf-llama-iq", true), "several quantised formats");
  engine_options_t o = crew_options("llama-f16", false);
  o.swap_space_bytes = 1 << 20;
  expect_refusal(o, "swapped requests");
  o = crew_options("llama-f16", false);
  o.prefix_cache_file = "/tmp/no_such_prefix_cache";
  expect_refusal(o, "floors of the prefix cache");
  o = crew_options("llama-f16", false);
  o.prefix_cache_bytes = 1 << 20;
  expect_refusal(o, "floors of the prefix cache");
  static ops_t without; /* as a GPU */
  without = ops_cpu;
  without.ranks = NULL;
  o = crew_options("llama-f16", false);
  o.ops = &without;
  expect_refusal(o, "cpu runs a model on one rank only");
  without = ops_cpu;
  without.separate_memory = true;
  o = crew_options("state-qwen3-next", false);
  o.ops = &without;
  expect_refusal(o, "layers with a state");
  o = crew_options("latent-deepseek-v2", false);
  o.ops = &without;
  expect_refusal(o, "layers of latent attention");
}

/* Every model of the vectors, with the weights of its files or random ones: the same bits, or a
 * refusal that names the option. */
Test(ranks, every_model_is_exact_or_refused_by_name, .timeout = 900) {
  DIR *models = opendir("tests/vectors/models");
  int num_exact = 0;
  cr_assert(models != NULL);
  for (struct dirent *entry; (entry = readdir(models)) != NULL;) {
    if (entry->d_name[0] == '.') continue;
    const bool quantised =
        strncmp(entry->d_name, "gguf", 4) == 0 || strncmp(entry->d_name, "packed", 6) == 0;
    engine_options_t o = crew_options(entry->d_name, quantised);
    int32_t size = 4;
    const char *why = refusal(o, size);
    while (why[0] != '\0' && --size > 1) {
      cr_assert(strstr(why, "tensor_parallel_size") != NULL, "%s: %s", entry->d_name, why);
      why = refusal(o, size);
    }
    if (size > 1) check_sizes(entry->d_name, size, size, quantised);
    num_exact += size > 1;
  }
  closedir(models);
  cr_assert(num_exact > 150, "%d models are exact", num_exact);
}

/* One request of 5 tokens that gets 7: 11 tokens are computed, in 7 steps. */
static void seven_tokens(client_t *c) {
  job_t *job = client_job(c, 5, 7, 1);
  for (int k = 0; k < 5; k++) job->prompt[k] %= CREW_VOCAB;
  job->request.params.ignore_eos = true;
}

/* docs/ranks.md. Rank 0 sends the packets, so it gets no bytes by them. */
Test(ranks, what_is_exchanged_is_what_the_page_says, .timeout = 60) {
  enum { TOKENS = 11, STEPS = 7 };
  crew_t crew;
  engine_options_t options = crew_options("llama-f16", false);
  options.enable_prefix_caching = false;
  options = crew_start(&crew, options, 2);
  client_t *client = client_new(&options);
  const blueprint_t *bp = &client->engine->blueprint;
  shard_cuts_t cuts;
  shard_cut(bp, &cuts); /* rank 1 has what is behind cuts[1] */
  const int64_t layers = bp->num_layers, hidden = cuts.hidden[2];
  const int64_t columns =
      cuts.heads[2] - cuts.heads[1] + 2 * (hidden - cuts.hidden[1]) + cuts.mlp[2] - cuts.mlp[1];
  const uint64_t calls = crew.comms[0]->num_calls, bytes = crew.comms[0]->num_bytes;
  seven_tokens(client);
  ASSERT_EQ(client_submit(client, &client->jobs[0]), 0);
  client_run(client);
  engine_stop(client->engine);
  const uint64_t logits = (uint64_t)(cuts.vocab[2] - cuts.vocab[1]) * sizeof(float) * STEPS;
  const uint64_t gathered = crew.comms[0]->num_bytes - bytes - logits;
  const uint64_t of_layers = (uint64_t)(layers * columns * TOKENS) * sizeof(float);
  const uint64_t of_rows = (uint64_t)hidden * sizeof(float); /* embeddings that rank 1 has */
  cr_assert(gathered >= of_layers && (gathered - of_layers) % of_rows == 0 &&
                (gathered - of_layers) / of_rows <= TOKENS,
            "%llu bytes, of which layers should have %llu", (unsigned long long)gathered,
            (unsigned long long)of_layers);
  const uint64_t made = crew.comms[0]->num_calls - calls;
  cr_assert(made >= (uint64_t)(STEPS * (3 + 4 * layers)) &&
                made <= (uint64_t)(STEPS * (3 + 4 * layers)) + 4, /* signs of life, the end */
            "%llu calls", (unsigned long long)made);
  client_free(client);
  crew_end(&crew, 0, "bytes");
}

/* ---- ranks that fail ---- */

/* A rank that joins, and fails before it has loaded anything. */
typedef struct deserter {
  pthread_t thread;
  comm_t *comm;
} deserter_t;

static void *desert(void *context) {
  deserter_t *deserter = context;
  usleep(20000);
  comm_abandon(deserter->comm, "planted failure");
  return NULL;
}

Test(ranks, a_rank_that_fails_while_the_others_load_fails_the_start, .timeout = 60) {
  engine_options_t options = crew_options("llama-f16", false);
  engine_t *engine = NULL;
  inferd_error_t error = {0};
  comm_t *comms[2] = {0};
  int fd = -1;
  ASSERT_EQ(shared_make(2, &fd, &error), 0);
  for (int32_t r = 0; r < 2; r++) ASSERT_EQ(shared_join(fd, r, &comms[r], &error), 0);
  close(fd);
  deserter_t deserter = {.comm = comms[1]};
  ASSERT_EQ(pthread_create(&deserter.thread, NULL, desert, &deserter), 0);
  options.comm = comms[0];
  ASSERT_EQ(engine_create(&options, &engine, &error), 0);
  while (engine_state(engine) == ENGINE_LOADING) usleep(1000);
  engine_failure(engine, &error);
  ASSERT_EQ_FOR(engine_state(engine), ENGINE_FAILED, "%s", error.message);
  ASSERT_EQ_FOR(error.code, ERR_DEVICE_FAILED, "%s", error.message);
  cr_assert(strstr(error.message, "rank 1 has failed") != NULL, "%s", error.message);
  pthread_join(deserter.thread, NULL);
  engine_destroy(engine);
  for (int32_t r = 0; r < 2; r++) comm_close(comms[r]);
}

static void one_job(client_t *c) {
  job_t *job = client_job(c, 5, 400, 1);
  for (int k = 0; k < 5; k++) job->prompt[k] %= CREW_VOCAB;
  job->request.params.ignore_eos = true;
}

Test(ranks, requests_fail_when_a_rank_is_lost, .timeout = 60) {
  crew_t crew;
  engine_options_t options = crew_start(&crew, crew_options("llama-f16", false), 2);
  client_t *client = client_new(&options);
  one_job(client);
  job_t *job = &client->jobs[0];
  ASSERT_EQ(client_submit(client, job), 0);
  client_wait_output(client, job, 3);
  crew.comms[1]->ops->abandon(crew.comms[1]);
  client_run(client);
  ASSERT_EQ(job->num_done, 1);
  ASSERT_EQ(job->done.error_code, ERR_DEVICE_FAILED);
  ASSERT_EQ(engine_state(client->engine), ENGINE_FAILED);
  client_free(client);
  crew_end(&crew, ERR_DEVICE_FAILED, "a lost rank");
}

/* Rank 1 is lost in one of the broadcasts by which rank 0 sends an adapter. */
static comm_ops_t losing_ops;
static comm_t *lost_comm;
static atomic_int broadcasts_left; /* of parts of an adapter, before that */

static int broadcast_until_lost(comm_t *comm, void *data, size_t bytes, int32_t root) {
  const bool of_an_adapter = bytes < 8192; /* as a packet has, at least */
  if (of_an_adapter && atomic_fetch_sub(&broadcasts_left, 1) == 0)
    lost_comm->ops->abandon(lost_comm);
  return lost_comm->ops->broadcast(comm, data, bytes, root);
}

/* The adapter is in its slot in part, so nothing may be answered with it. */
Test(ranks, requests_fail_when_a_rank_is_lost_while_it_gets_an_adapter, .timeout = 60) {
  crew_t crew;
  engine_options_t options = crew_options("lora-llama", false);
  options.max_loras = 2, options.max_lora_rank = 8;
  options = crew_start(&crew, options, 2);
  lost_comm = crew.comms[1];
  losing_ops = *lost_comm->ops;
  losing_ops.broadcast = broadcast_until_lost;
  crew.comms[0]->ops = &losing_ops;
  atomic_store(&broadcasts_left, 3); /* the ranks of a layer, two pairs */
  client_t *client = client_new(&options);
  one_job(client);
  job_t *job = &client->jobs[0];
  ASSERT_EQ(client_submit(client, job), 0);
  client_wait_output(client, job, 3);
  crew_set_adapter(client, 2, "tests/vectors/models/lora-llama/adapter");
  client_run(client);
  ASSERT_EQ(job->num_done, 1);
  ASSERT_EQ(job->done.error_code, ERR_DEVICE_FAILED);
  ASSERT_EQ(engine_state(client->engine), ENGINE_FAILED);
  ASSERT_LT(atomic_load(&broadcasts_left), 0);
  client_free(client);
  crew_end(&crew, ERR_DEVICE_FAILED, "a rank that is lost while it gets an adapter");
}

/* ---- rank 0 fails ---- */

static int end_steps_until_lost(device_t *device, inferd_error_t *error) {
  static int steps;
  int code = ops_cpu.end(device, error);
  if (code != 0 || ++steps < 5) return code;
  return error_set(error, ERR_DEVICE_FAILED, NULL, "a planted loss");
}

/* Its own device is lost, not another rank: the others hear of it at once, and why is kept. */
Test(ranks, the_others_hear_that_rank_0_has_lost_its_device, .timeout = 60) {
  crew_t crew;
  ops_t ops = ops_cpu;
  engine_options_t options = crew_start(&crew, crew_options("llama-f16", false), 2);
  ops.end = end_steps_until_lost;
  options.ops = &ops;
  client_t *client = client_new(&options);
  one_job(client);
  ASSERT_EQ(client_submit(client, &client->jobs[0]), 0);
  client_run(client);
  ASSERT_EQ(client->jobs[0].done.error_code, ERR_DEVICE_FAILED);
  cr_assert(strstr(crew.comms[0]->error.message, "a planted loss") != NULL, "%s",
            crew.comms[0]->error.message);
  client_free(client);
  crew_end(&crew, ERR_DEVICE_FAILED, "rank 0 has lost its device");
}

/* ---- ranks with other options ---- */

typedef struct asked {
  pthread_t thread;
  comm_t *comm;
  ranks_view_t view;
  inferd_error_t error;
  int code;
} asked_t;

static void *agree(void *context) {
  asked_t *own = context;
  own->code = ranks_agree(own->comm, &own->view, &own->error);
  return NULL;
}

/* What both ranks say when rank 1 differs from rank 0. */
static void expect_disagreement(ranks_view_t first, ranks_view_t second, const char *what) {
  asked_t asked[2] = {{.view = first}, {.view = second}};
  inferd_error_t error = {0};
  int fd = -1;
  ASSERT_EQ(shared_make(2, &fd, &error), 0);
  for (int32_t r = 0; r < 2; r++) ASSERT_EQ(shared_join(fd, r, &asked[r].comm, &error), 0);
  close(fd);
  for (int r = 0; r < 2; r++)
    ASSERT_EQ(pthread_create(&asked[r].thread, NULL, agree, &asked[r]), 0);
  for (int r = 0; r < 2; r++) pthread_join(asked[r].thread, NULL);
  for (int r = 0; r < 2; r++) {
    ASSERT_EQ_FOR(asked[r].code, ERR_CONFIGURATION, "%s, rank %d", what, r);
    cr_assert(strstr(asked[r].error.message, "rank 1 has other options") != NULL, "%s: %s", what,
              asked[r].error.message);
    comm_close(asked[r].comm);
  }
}

/* The tokens of a rank, or its warm-up runs, depend on them. */
Test(ranks, options_are_those_of_all_ranks, .timeout = 60) {
  const ranks_view_t view = {.backend = "cpu", .max_model_len = 64, .num_blocks = 9};
  ranks_view_t other = view;
  other.num_blocks = 8;
  expect_disagreement(view, other, "blocks");
  other = view, other.drafts_max = 3;
  expect_disagreement(view, other, "draft tokens");
  other = view, other.limits.adapters_max = 2;
  expect_disagreement(view, other, "adapters");
  other = view, other.lora_rank_max = 8;
  expect_disagreement(view, other, "ranks of adapters");
  other = view, other.batch_invariant = true;
  expect_disagreement(view, other, "kernels");
  other = view, other.quantise_q8 = true;
  expect_disagreement(view, other, "weights of 8 bits");
  other = view, other.kv_int8 = true;
  expect_disagreement(view, other, "a cache of int8");
  other = view, other.kv_fp8 = true;
  expect_disagreement(view, other, "a cache of fp8");
  other = view, other.dtype = 1;
  expect_disagreement(view, other, "dtype");
}

static void note_ranks(void *context, const char *line) {
  if (strncmp(line, "ranks ", 6) == 0) snprintf(context, 300, "%s", line);
}

static void expect_said(const char *model, const char *words) {
  char line[300] = "";
  inferd_error_t error = {0};
  engine_options_t o = crew_options(model, false);
  o.planned_ranks = 2, o.log = note_ranks, o.context = line;
  ASSERT_EQ_FOR(engine_survey(&o, NULL, &error), 0, "%s", error.message);
  cr_assert(strstr(line, words) != NULL, "%s: %s", model, line);
}

/* Latent attention is not cut. */
Test(ranks, the_log_says_which_heads_are_here) {
  expect_said("qwen3-g8-bf16", "heads 4/1 of 8/1 here; exact");
  expect_said("latent-deepseek-v2", "all heads here; exact");
}
