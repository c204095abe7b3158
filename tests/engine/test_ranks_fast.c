/* test_ranks_fast.c: ranks that add up parts of sums: the numbers of one rank, but for rounding;
 * and the same bits for a number of ranks, whatever the batch.
 *
 * Rounding differs where a sum is cut, and an activation of 16 or 8 bits may fall to the other
 * side. So a logprob may differ by a bound, and a token where the best two of one rank are nearer
 * than that. Products of quantised weights round activations to 8 bits.
 */
#include "engine/internal.h"
#include "engine/model/weights/shard.h"
#include "tests/engine/crew.h"
#include "tests/expect.h"

#include <dirent.h>
#include <math.h>
#include <string.h>

enum { JOBS = 8, VOCAB = 64, TOP = 2 };
static const float NEAR = 0.02f, NEAR_8_BITS = 0.1f;

static void make_jobs(client_t *c) {
  const int context = engine_info(c->engine)->max_model_len,
            longest = context < 100 ? context : 100;
  for (int i = 0; i < JOBS; i++) {
    job_t *job = client_job(c, 1 + (i * 29) % (longest / 2), 1 + (i * 7) % (longest / 4), i % 6);
    for (int k = 0; k < job->request.num_prompt_tokens; k++) job->prompt[k] %= VOCAB;
    sampling_params_t *p = &job->request.params;
    if (i % 2 == 0) p->num_prompt_logprobs = 0;
    p->num_logprobs = TOP;
    p->n = 2; /* two forks, whose logprobs the client keeps */
    p->ignore_eos = true;
    client_several(job);
  }
}

/* Prompts that one rank has scored, too. Returns the largest difference. */
static float prompts_differ(const client_t *one, const client_t *many) {
  float most = 0;
  for (int i = 0; i < one->count; i++)
    for (int k = 1; k <= one->jobs[i].num_prompt_logprobs; k++)
      most = fmaxf(most, fabsf(one->jobs[i].prompt_logprobs[k] - many->jobs[i].prompt_logprobs[k]));
  return most;
}

/* Up to the first token that differs, which must be a near draw. */
static float outputs_differ(const client_t *one, const client_t *many, float bound,
                            const char *name) {
  float most = 0;
  for (int i = 0; i < one->count; i++) {
    const choice_t *a = &one->jobs[i].choices[0], *b = &many->jobs[i].choices[0];
    ASSERT_EQ_FOR(b->num_output, a->num_output, "%s: request %d", name, i);
    for (int t = 0; t < a->num_output; t++) {
      const float gap = a->top[t][0].logprob - a->top[t][1].logprob;
      if (a->output[t] != b->output[t]) {
        cr_assert(gap <= 2 * bound, "%s: request %d, token %d is another one; the gap is %g", name,
                  i, t, (double)gap);
        break;
      }
      most = fmaxf(most, fabsf(a->logprob[t] - b->logprob[t]));
    }
  }
  return most;
}

/* The numbers of one rank, but for rounding; `again`: and the same bits with other steps. */
static void check_options(engine_options_t o, const char *model, int32_t least, int32_t most,
                          bool again, float bound) {
  o.num_threads = 1;
  client_t *one = client_run_all(&o, make_jobs);
  o.add_ranks = true;
  for (int32_t size = least; size <= most; size++) {
    char name[320];
    snprintf(name, sizeof name, "%s on %d fast ranks", model, size);
    client_t *many = crew_run(o, size, make_jobs, name);
    const float error = fmaxf(prompts_differ(one, many), outputs_differ(one, many, bound, name));
    cr_assert(error <= bound, "%s: logprobs differ by %g", name, (double)error);
    engine_options_t other = o; /* other chunks, batches and blocks */
    other.max_num_batched_tokens = 13;
    other.max_num_seqs = 3;
    other.enable_prefix_caching = false;
    client_t *in_other_steps = again ? crew_run(other, size, make_jobs, name) : NULL;
    if (again) client_expect_same(many, in_other_steps, name);
    if (again) client_free(in_other_steps);
    client_free(many);
  }
  client_free(one);
}

static void check(const char *model, int32_t most, bool as_bf16) {
  check_options(crew_options(model, as_bf16), model, 2, most, true, NEAR);
}

Test(ranks_fast, dense_layers, .timeout = 600) {
  check("llama-g7-d128", 4, false); /* 7 heads on one KV head: all have the same one */
  check("llama-bf16-g3-d80", 3, false);
  check("llama-f16", 2, false);
  check("gpt2-bf16-d80", 2, false); /* transposed in the file, biases, learned positions */
  check("phi3-gqa-bf16", 3, false);
  check("gemma3", 4, false);               /* norms around both parts, windows */
  check("decoder-cohere-norms", 3, false); /* parallel parts */
  check("opt-350m-shape", 2, false);       /* norms behind the parts */
}

Test(ranks_fast, mixtures_of_experts, .timeout = 600) {
  check("moe-mixtral", 2, false);
  check("moe-qwen2-moe", 2, false);      /* a shared expert with a gate */
  check("gpt-oss-mxfp4-bf16", 4, false); /* biases of experts, blocks of 4 bits */
  check("routed-glm4-moe", 3, false);    /* shared experts without a gate, dense layers before */
}

Test(ranks_fast, quantised_weights, .timeout = 600) {
  check("packed-awq", 2, true);
  check("packed-gptq-v2-desc-act", 2, true);
  check("packed-fp8-channel", 2, true);
  check("packed-fp8-tensor", 2, true);
  check("packed-nvfp4", 2, true);
  check("packed-w8a8", 2, true);
  engine_options_t o = crew_options("llama-tied-bf16", false);
  o.quantise_q8 = true;
  check_options(o, "weights of 8 bits", 2, 2, true, NEAR);
}

/* Why `size` ranks refuse the options; "" = they do not. The text is valid until the next call. */
static const char *refusal(engine_options_t options, int32_t size) {
  static inferd_error_t error;
  error = (inferd_error_t){0};
  options.planned_ranks = size;
  options.add_ranks = true;
  (void)engine_survey(&options, NULL, &error);
  return error.message;
}

/* 160 inner values in blocks of 128: one rank would end inside of a block. */
Test(ranks_fast, a_cut_inside_of_a_block_is_refused, .timeout = 60) {
  const char *why = refusal(crew_options("packed-fp8-blocks", true), 2);
  cr_assert(strstr(why, "inside of a quantised block of 128: use exact") != NULL, "%s", why);
}

/* Every model of the vectors is near one rank, or is refused with the name of the option. */
Test(ranks_fast, every_model_is_near_or_refused_by_name, .timeout = 900) {
  DIR *models = opendir("tests/vectors/models");
  int num_near = 0;
  cr_assert(models != NULL);
  for (struct dirent *entry; (entry = readdir(models)) != NULL;) {
    if (entry->d_name[0] == '.') continue;
    const bool quantised =
        strncmp(entry->d_name, "gguf", 4) == 0 || strncmp(entry->d_name, "packed", 6) == 0;
    engine_options_t o = crew_options(entry->d_name, quantised);
    const char *why = refusal(o, 2);
    cr_assert(why[0] == '\0' || strstr(why, "tensor_parallel_") != NULL, "%s: %s", entry->d_name,
              why);
    const float bound = quantised ? NEAR_8_BITS : NEAR;
    if (why[0] == '\0') check_options(o, entry->d_name, 2, 2, false, bound);
    num_near += why[0] == '\0';
  }
  closedir(models);
  cr_assert(num_near > 120, "%d models are near", num_near);
}

/* One request of 5 tokens that gets 7: 11 tokens are computed, in 7 steps. */
static void seven_tokens(client_t *c) {
  job_t *job = client_job(c, 5, 7, 1);
  for (int k = 0; k < 5; k++) job->prompt[k] %= VOCAB;
  job->request.params.ignore_eos = true;
}

/* docs/ranks.md: two reductions a layer, in each of which a rank of two gets h numbers a token. */
Test(ranks_fast, what_is_exchanged_is_what_the_page_says, .timeout = 60) {
  enum { TOKENS = 11, STEPS = 7 };
  crew_t crew;
  engine_options_t options = crew_options("llama-f16", false);
  options.enable_prefix_caching = false;
  options.add_ranks = true;
  options = crew_start(&crew, options, 2);
  client_t *client = client_new(&options);
  const blueprint_t *bp = &client->engine->blueprint;
  shard_cuts_t cuts;
  shard_cut(bp, &cuts);
  const uint64_t calls = crew.comms[0]->num_calls, bytes = crew.comms[0]->num_bytes;
  const uint64_t layers = (uint64_t)bp->num_layers, row = (uint64_t)bp->hidden_size * sizeof(float);
  seven_tokens(client);
  ASSERT_EQ(client_submit(client, &client->jobs[0]), 0);
  client_run(client);
  engine_stop(client->engine);
  const uint64_t logits = (uint64_t)(cuts.vocab[2] - cuts.vocab[1]) * sizeof(float) * STEPS;
  const uint64_t of_layers = 2 * layers * row * TOKENS;
  const uint64_t rest = crew.comms[0]->num_bytes - bytes - logits - of_layers; /* embeddings */
  cr_assert(rest % row == 0 && rest / row <= TOKENS, "%llu bytes besides the layers",
            (unsigned long long)rest);
  const uint64_t made = crew.comms[0]->num_calls - calls, due = STEPS * (3 + 2 * layers);
  cr_assert(made >= due && made <= due + 4,
            "%llu calls, %llu expected", /* signs of life, the end */
            (unsigned long long)made, (unsigned long long)due);
  client_free(client);
  crew_end(&crew, 0, "bytes");
}
