/* test_parity.c: every reference model of tests/vectors/models against transformers' numbers.
 *
 * The prompt is one prefill, the continuation runs token by token. Against the fp32 reference:
 * plain loops must be within rounding of it; the CPU back end within rounding for float32 models
 * and within twice transformers' own 16-bit error for the others. The next token must be the
 * reference's wherever the distance of its two best logits exceeds that error.
 */
#include "tests/engine/model/naive_ops.h"
#include "tests/engine/model/rig.h"
#include "tests/engine/model/vectors.h"
#include "tests/expect.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* fp32 sums in another order, on logits of about 1 (and 5 for the largest). */
static const double FP32_TOLERANCE = 1e-4;

static void run_case(rig_t *rig, const vector_case_t *c, float *logits) {
  inferd_error_t error = {0};
  const size_t vocab = (size_t)rig->blueprint.vocab_size;
  const int32_t total = c->num_prompt + c->num_greedy;
  int status = rig_run(rig, c->ids, c->num_prompt, 0, c->num_prompt, logits, &error);
  for (int32_t i = c->num_prompt; i < total && status == 0; i++) {
    status = rig_run(rig, c->ids + i, 1, i, 1, logits + (size_t)i * vocab, &error);
  }
  ASSERT_EQ_FOR(status, 0, "%s: %s", c->name, error.message);
}

static void check_logits(const vector_case_t *c, const float *logits, int32_t vocab,
                         double tolerance) {
  for (int32_t i = 0; i < c->num_positions; i++) {
    double found = vectors_distance(logits + (int64_t)c->positions[i] * vocab, c->logits[i], vocab);
    cr_assert(found <= tolerance, "%s: logits at %d differ by %g, allowed %g", c->name,
              c->positions[i], found, tolerance);
  }
}

static void check_greedy(const vector_case_t *c, const float *logits, int32_t vocab,
                         double tolerance) {
  int32_t certain = 0;
  for (int32_t i = 0; i < c->num_greedy; i++) {
    if (c->gap[i] <= tolerance) continue;
    int32_t at = c->num_prompt - 1 + i;
    int32_t found = vectors_largest(logits + (int64_t)at * vocab, vocab);
    ASSERT_EQ_FOR(found, c->ids[at + 1], "%s: token %d is %d, expected %d (gap %g)", c->name, i,
                  found, c->ids[at + 1], c->gap[i]);
    certain++;
  }
  cr_assert(c->num_greedy == 0 || certain >= 8, "%s: only %d steps say anything", c->name, certain);
}

/* Plain loops run GGUF files in float32, whatever their blocks ask for: the reference has the very
 * values of the blocks, so nothing is left to rounding. */
static int32_t run_type(const vector_case_t *c, const ops_t *ops) {
  return ops == &ops_naive && strncmp(c->name, "gguf-", 5) == 0 ? DTYPE_F32 : -1;
}

/* `dtype` -1 = the type of the checkpoint. */
static void check_case(const vector_case_t *c, const ops_t *ops, int32_t dtype, double tolerance) {
  rig_options_t options = {.ops = ops,
                           .dir = c->dir,
                           .dummy = !c->has_files,
                           .seed = c->seed,
                           .dtype = dtype,
                           .max_model_len = c->max_model_len,
                           .num_threads = 2,
                           .adapter = c->adapter[0] != '\0' ? c->adapter : NULL};
  inferd_error_t error = {0};
  rig_t rig;
  int status = rig_open(&options, &rig, &error);
  ASSERT_EQ_FOR(status, 0, "%s: %s", c->name, error.message);
  ASSERT_EQ_FOR(rig.blueprint.vocab_size, c->vocab, "%s: vocab", c->name);
  size_t count = (size_t)(c->num_prompt + c->num_greedy) * (size_t)c->vocab;
  float *logits = malloc(count * sizeof(float));
  cr_assert_not_null(logits);
  run_case(&rig, c, logits);
  check_logits(c, logits, c->vocab, tolerance);
  check_greedy(c, logits, c->vocab, fmax(tolerance, c->dtype == DTYPE_F32 ? 0 : c->error));
  free(logits);
  rig_close(&rig);
}

static void check_family(const char *prefix, const ops_t *ops) {
  int count = 0;
  vector_list_t list = vectors_open(prefix);
  for (int32_t i = 0; i < list.count; i++) {
    vector_case_t c;
    vectors_read(&list, i, &c);
    bool exact = ops == &ops_naive || c.dtype == DTYPE_F32;
    check_case(&c, ops, run_type(&c, ops), exact ? FP32_TOLERANCE : 2 * c.error);
    vectors_free(&c);
    count++;
  }
  vectors_close(&list);
  ASSERT_GT_FOR(count, 0, "no reference models that begin with %s", prefix);
}

#define FAMILY(name, prefix)                                                                       \
  Test(parity_naive, name) {                                                                       \
    check_family(prefix, &ops_naive);                                                              \
  }                                                                                                \
  Test(parity_cpu, name) {                                                                         \
    check_family(prefix, &ops_cpu);                                                                \
  }

FAMILY(gguf, "gguf-")
FAMILY(llama_shapes, "llama-g")
FAMILY(llama_bfloat16, "llama-bf16")
FAMILY(llama_float16, "llama-f16")
FAMILY(llama_tied, "llama-tied")
FAMILY(llama_biases, "llama-biases")
FAMILY(llama_rope, "llama-rope")
FAMILY(llama_config_v5, "llama-v5")
FAMILY(mistral, "mistral")
FAMILY(qwen2, "qwen2")
FAMILY(qwen3, "qwen3")
FAMILY(opt, "opt")
FAMILY(gpt2, "gpt2")
FAMILY(gemma2, "gemma2")
FAMILY(gemma3, "gemma3")
FAMILY(phi3, "phi3")
FAMILY(experts, "moe-")
FAMILY(gpt_oss, "gpt-oss")
FAMILY(routed, "routed-")
FAMILY(latent, "latent-")
FAMILY(olmo, "olmo")
FAMILY(granite, "granite")
FAMILY(smollm3, "smollm3")
FAMILY(seed_oss, "seed-oss")
FAMILY(starcoder2, "starcoder2")
FAMILY(decoders, "decoder-")
FAMILY(adapters, "lora-")
FAMILY(from_files, "files-")
FAMILY(packed, "packed-")
FAMILY(states, "state-")
FAMILY(gemma4, "gemma4-")
FAMILY(mixtures, "mixture-")
FAMILY(recent, "recent-")
FAMILY(wrapped, "wrapped-")

/* Quantised layers as the CPU takes them in a 16-bit run: activations of 8 bits, codes as stored.
 * The logits of these models are about 1; rounding activations to 1 / 127 moves them by less than
 * 0.1. */
Test(parity_cpu, packed_in_8_bits) {
  vector_list_t list = vectors_open("packed-");
  for (int32_t i = 0; i < list.count; i++) {
    vector_case_t c;
    vectors_read(&list, i, &c);
    check_case(&c, &ops_cpu, DTYPE_BF16, 0.1);
    vectors_free(&c);
  }
  ASSERT_GE(list.count, 20);
  vectors_close(&list);
}

/* A directory that no prefix above matches would never be looked at. */
Test(parity, every_reference_model_is_run) {
  static const char *const prefixes[] = {
      "gguf-",    "llama-g",  "llama-bf16", "llama-f16", "llama-tied", "llama-biases", "llama-rope",
      "llama-v5", "mistral",  "qwen2",      "qwen3",     "opt",        "gpt2",         "files-",
      "gemma2",   "gemma3",   "phi3",       "moe-",      "gpt-oss",    "olmo",         "granite",
      "smollm3",  "seed-oss", "starcoder2", "lora-",     "packed-",    "decoder-",     "routed-",
      "state-",   "latent-",  "gemma4-",    "mixture-",  "recent-",    "wrapped-"};
  vector_list_t all = vectors_open("");
  int32_t covered = 0;
  for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++) {
    vector_list_t some = vectors_open(prefixes[i]);
    covered += some.count;
    vectors_close(&some);
  }
  ASSERT_EQ(covered, all.count);
  ASSERT_GE(all.count, 90);
  vectors_close(&all);
}
