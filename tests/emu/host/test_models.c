/* test_models.c: the CUDA back end, emulated, against transformers' numbers for reference models.
 *
 * As tests/engine/model/test_parity.c does for the CPU: the prompt is one prefill, the continuation
 * runs token by token; float32 models run as bfloat16. Logits must be within twice transformers'
 * own 16-bit error of its float32 logits, and the next token must be the reference's wherever the
 * distance of its two best logits exceeds that error.
 */
#include "engine/model/sizes.h"
#include "tests/engine/model/rig.h"
#include "tests/engine/model/vectors.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The prompt at once, then in two chunks the second time: the cache holds what the first left. */
static void run_case(rig_t *rig, const vector_case_t *c, int32_t num_greedy, float *logits) {
  inferd_error_t error = {0};
  const size_t vocab = (size_t)rig->blueprint.vocab_size;
  const int32_t half = c->num_prompt / 2;
  int status = rig_run(rig, c->ids, c->num_prompt, 0, c->num_prompt, logits, &error);
  if (status == 0 && rig->blueprint.mixer.kind != MIXER_NONE) /* the state is behind the prompt */
    status = rig_run(rig, c->ids, half, 0, half, logits, &error);
  if (status == 0) {
    status = rig_run(rig, c->ids + half, c->num_prompt - half, half, c->num_prompt - half,
                     logits + (size_t)half * vocab, &error);
  }
  for (int32_t i = c->num_prompt; i < c->num_prompt + num_greedy && status == 0; i++) {
    status = rig_run(rig, c->ids + i, 1, i, 1, logits + (size_t)i * vocab, &error);
  }
  cr_assert_eq(status, 0, "%s: %s", c->name, error.message);
}

static void check_logits(const vector_case_t *c, const float *logits, int32_t num_run) {
  int32_t checked = 0;
  for (int32_t i = 0; i < c->num_positions; i++) {
    if (c->positions[i] >= num_run) continue;
    double found =
        vectors_distance(logits + (int64_t)c->positions[i] * c->vocab, c->logits[i], c->vocab);
    cr_assert(found <= 2 * c->error, "%s: logits at %d differ by %g, allowed %g", c->name,
              c->positions[i], found, 2 * c->error);
    checked++;
  }
  cr_assert_geq(checked, 2, "%s: %d positions were checked", c->name, checked);
}

/* Returns how many steps said anything. */
static int32_t check_tokens(const vector_case_t *c, const float *logits, int32_t num_greedy) {
  int32_t certain = 0;
  for (int32_t i = 0; i < num_greedy; i++) {
    if (c->gap[i] <= 2 * c->error) continue;
    int32_t at = c->num_prompt - 1 + i;
    int32_t found = vectors_largest(logits + (int64_t)at * c->vocab, c->vocab);
    cr_assert_eq(found, c->ids[at + 1], "%s: token %d is %d, expected %d (gap %g)", c->name, i,
                 found, c->ids[at + 1], c->gap[i]);
    certain++;
  }
  return certain;
}

/* Whether the model has a width that the back end refuses. */
static bool is_odd(const vector_case_t *c) {
  blueprint_t bp;
  inferd_error_t error = {0};
  cr_assert_eq(blueprint_read(c->dir, 0, -1, &bp, &error), 0, "%s", error.message);
  bool odd = bp.hidden_size % 8 != 0 || bp.intermediate_size % 8 != 0 || bp.embed_size % 8 != 0;
  blueprint_free(&bp);
  return odd;
}

/* Whether the model has latent attention, Gemma 4's layers, clipped q, k and v, scores by distance,
 * an activation with numbers of its layer, experts of a smaller vector, layers of Mamba-1, or none
 * with attention: the back end lacks them. */
static bool is_lacking(const vector_case_t *c) {
  blueprint_t bp;
  inferd_error_t error = {0};
  cr_assert_eq(blueprint_read(c->dir, 0, -1, &bp, &error), 0, "%s", error.message);
  bool lacking = bp.kv_rank > 0 || bp.layer_scalars || bp.qkv_limit > 0 || bp.alibi_max > 0 ||
                 bp.distance_buckets > 0 || bp.expert_in > 0 || bp.xielu || bp.num_streams > 0 ||
                 bp.routing == ROUTING_MIXER || bp.mixer.kind == MIXER_MAMBA ||
                 model_kv(&bp).num_layers == 0;
  blueprint_free(&bp);
  return lacking;
}

/* Whether its queries grow within its length: engine/start.c refuses that, and the rig does not ask
 * there. */
static bool is_too_long(const vector_case_t *c) {
  blueprint_t bp;
  inferd_error_t error = {0};
  cr_assert_eq(blueprint_read(c->dir, 0, -1, &bp, &error), 0, "%s", error.message);
  bool grows = bp.rope.query_growth > 0 && c->num_prompt + c->num_greedy > bp.rope.original_max;
  blueprint_free(&bp);
  return grows;
}

/* Steps that said anything; -1 when it was refused, rightly. */
static int32_t check_case(const vector_case_t *c, int32_t num_greedy, int32_t host_experts) {
  rig_options_t options = {.ops = &ops_cuda,
                           .dir = c->dir,
                           .dummy = !c->has_files,
                           .seed = c->seed,
                           .dtype = c->dtype == DTYPE_F32 ? DTYPE_BF16 : -1,
                           .max_model_len = c->max_model_len,
                           .num_threads = 2,
                           .host_experts = host_experts};
  inferd_error_t error = {0};
  rig_t rig;
  if (is_too_long(c)) return -1;
  int status = rig_open(&options, &rig, &error);
  if (status == ERR_CONFIGURATION && strstr(error.message, "multiples of 8")) {
    cr_assert(is_odd(c), "%s: %s", c->name, error.message);
    return -1;
  }
  if (status == ERR_CONFIGURATION && strstr(error.message, "device cuda cannot run the ")) {
    cr_assert(is_lacking(c), "%s: %s", c->name, error.message);
    return -1;
  }
  cr_assert_eq(status, 0, "%s: %s", c->name, error.message);
  if (num_greedy > c->num_greedy) num_greedy = c->num_greedy;
  size_t count = (size_t)(c->num_prompt + c->num_greedy) * (size_t)c->vocab;
  float *logits = malloc(count * sizeof(float));
  cr_assert_not_null(logits);
  run_case(&rig, c, num_greedy, logits);
  check_logits(c, logits, c->num_prompt + num_greedy);
  int32_t certain = check_tokens(c, logits, num_greedy);
  free(logits);
  rig_close(&rig);
  return certain;
}

/* Every model whose name begins with `prefix`, with so many steps after the prompt, and the experts
 * of so many layers in host memory. Returns how many steps said anything. */
static int32_t run_placed(const char *prefix, int32_t num_greedy, int32_t host_experts) {
  vector_list_t list = vectors_open(prefix);
  int32_t count = 0, certain = 0;
  cr_assert(list.count > 0, "no reference models that begin with %s", prefix);
  for (int32_t i = 0; i < list.count; i++) {
    vector_case_t c;
    vectors_read(&list, i, &c);
    int32_t found = check_case(&c, num_greedy, host_experts);
    certain += found > 0 ? found : 0;
    count += found >= 0;
    vectors_free(&c);
  }
  vectors_close(&list);
  cr_assert(count > 0, "every reference model of %s has widths that are refused", prefix);
  return certain;
}

static int32_t run_family(const char *prefix, int32_t num_greedy) {
  return run_placed(prefix, num_greedy, 0);
}

static void check_family(const char *prefix, int32_t num_greedy) {
  int32_t certain = run_family(prefix, num_greedy);
  cr_assert_geq(certain, 6, "%s: only %d steps say anything", prefix, certain);
}

enum { LONG = 32, MIDDLE = 16, SHORT = 8 };

#define FAMILY(name, prefix, steps)                                                                \
  Test(models, name) {                                                                             \
    check_family(prefix, steps);                                                                   \
  }

FAMILY(llama_bfloat16, "llama-bf16", MIDDLE)
FAMILY(llama_float16, "llama-f16", MIDDLE)
FAMILY(llama_groups_and_heads, "llama-g", SHORT)
FAMILY(llama_biases, "llama-biases", SHORT)
FAMILY(llama_tied, "llama-tied", SHORT)
FAMILY(llama_rope, "llama-rope", LONG)
FAMILY(mistral_windows, "mistral-window", LONG)
FAMILY(qwen2, "qwen2", SHORT)
FAMILY(qwen3_head_norms, "qwen3", SHORT)
FAMILY(opt, "opt", SHORT)
FAMILY(gpt2, "gpt2", SHORT)
FAMILY(from_files, "files-", SHORT)
FAMILY(mixtures_of_experts, "moe-", SHORT)
FAMILY(gpt_oss, "gpt-oss", SHORT)
FAMILY(packed_safetensors, "packed-", SHORT)
FAMILY(packed_gguf, "gguf-", SHORT)
FAMILY(routers_that_score, "routed-", SHORT)
FAMILY(gemma2, "gemma2", SHORT)
FAMILY(gemma3, "gemma3", SHORT)
FAMILY(olmo_norms_of_whole_tokens, "olmo", SHORT)
FAMILY(phi3, "phi3", SHORT)
FAMILY(decoders, "decoder-", SHORT)
FAMILY(recent_decoders, "recent-", SHORT)
FAMILY(wrapped_text, "wrapped-", SHORT)
FAMILY(short_convolutions, "state-lfm2", MIDDLE)
FAMILY(mamba2_of_nemotron, "state-nemotron", LONG)
FAMILY(mamba2_beside_attention, "state-falcon", MIDDLE)
FAMILY(gated_delta_nets, "state-qwen3", MIDDLE)
FAMILY(states_from_files, "state-files-", LONG)

/* Experts in host memory: of all layers, and of the first alone. */
static void check_placed(const char *prefix, int32_t num_greedy) {
  static const int32_t layers[] = {INT32_MAX, 1};
  for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
    int32_t certain = run_placed(prefix, num_greedy, layers[i]);
    cr_assert_geq(certain, 6, "%s: only %d steps say anything", prefix, certain);
  }
}

Test(models, experts_in_host_memory) {
  check_placed("moe-", SHORT);    /* with shared experts, gated and not */
  check_placed("gpt-oss", SHORT); /* biases of experts; blocks of 4 bits */
}

Test(models, experts_of_routers_that_score_in_host_memory) {
  check_placed("routed-", SHORT);
}

Test(models, packed_experts_in_host_memory) {
  int32_t certain = run_placed("packed-awq-moe", SHORT, 1) +
                    run_placed("packed-mxfp4-moe", SHORT, 1) +
                    run_placed("packed-nvfp4-moe", SHORT, 1) +
                    run_placed("gguf-qwen3-moe", SHORT, 1) + run_placed("gguf-mixtral", SHORT, 1);
  cr_assert_geq(certain, 6, "only %d steps say anything", certain);
}

Test(models, experts_beside_layers_with_a_state_in_host_memory) {
  int32_t certain = run_placed("state-qwen3-next", LONG, INT32_MAX) +
                    run_placed("state-files-qwen3-5-moe", LONG, 1);
  cr_assert_geq(certain, 6, "only %d steps say anything", certain);
}

/* Alone too few of their steps say anything. */
Test(models, mamba2) {
  int32_t certain = run_family("state-bamba", LONG) + run_family("state-granite", LONG) +
                    run_family("state-files-bamba", LONG);
  cr_assert_geq(certain, 6, "only %d steps say anything", certain);
}

/* What the back end lacks is refused by the name of the family, before a weight is read. */
static void check_refused(const char *prefix) {
  vector_list_t list = vectors_open(prefix);
  cr_assert_gt(list.count, 0, "no reference models that begin with %s", prefix);
  for (int32_t i = 0; i < list.count; i++) {
    vector_case_t c;
    vectors_read(&list, i, &c);
    rig_options_t options = {.ops = &ops_cuda, .dir = c.dir, .dummy = true, .dtype = DTYPE_BF16};
    inferd_error_t error = {0};
    rig_t rig;
    cr_expect_eq(rig_open(&options, &rig, &error), ERR_CONFIGURATION, "%s", c.name);
    cr_expect(strstr(error.message, "device cuda cannot run the ") != NULL &&
                  strstr(error.message, "For") != NULL,
              "%s: %s", c.name, error.message);
    vectors_free(&c);
  }
  vectors_close(&list);
}

Test(models, a_client_has_a_bounded_time_of_a_step) {
  cr_assert(ops_cuda.client_step_ms > 0 && ops_cuda.client_step_ms <= 10);
}

/* No file is needed: the configuration of GPT-2 may name any of them. */
Test(models, an_activation_that_no_kernel_has_is_refused_by_name) {
  static const activation_t lacking[] = {ACTIVATION_TANH, ACTIVATION_SIGMOID_MUL,
                                         ACTIVATION_GELU_MUL, ACTIVATION_SILU,
                                         ACTIVATION_QUICK_GELU};
  static const activation_t there[] = {
      ACTIVATION_RELU,     ACTIVATION_RELU2,         ACTIVATION_GELU,          ACTIVATION_GELU_TANH,
      ACTIVATION_SILU_MUL, ACTIVATION_GELU_TANH_MUL, ACTIVATION_CLAMPED_SWIGLU};
  blueprint_t bp;
  inferd_error_t error = {0};
  cr_assert_eq(blueprint_read("tests/vectors/models/gpt2", 0, -1, &bp, &error), 0, "%s",
               error.message);
  for (size_t i = 0; i < ARRAY_LEN(lacking); i++) {
    bp.activation = lacking[i];
    cr_expect_eq(model_check_device(&ops_cuda, &bp, -1, &error), ERR_CONFIGURATION);
    cr_expect_not_null(strstr(error.message, "device cuda cannot run the activation of GPT2"), "%s",
                       error.message);
  }
  for (size_t i = 0; i < ARRAY_LEN(there); i++) {
    bp.activation = there[i];
    cr_expect_eq(model_check_device(&ops_cuda, &bp, -1, &error), 0, "%s", error.message);
  }
  blueprint_free(&bp);
}

Test(models, what_the_back_end_lacks_is_refused_by_name) {
  check_refused("latent-");
  check_refused("gemma4-");
  check_refused("recent-apertus");
  check_refused("recent-gemma3n");
  check_refused("recent-phimoe");
  check_refused("state-mamba");
  check_refused("state-falcon-mamba");
  check_refused("state-jamba");
}
