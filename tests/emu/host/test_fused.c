/* test_fused.c: ops_t.fused_linear of the CUDA back end, emulated, against separate operations.
 *
 * The same model runs twice: with the fused operation, and with a table that lacks it, so that the
 * model calls norm, linear layer, activation and rope_store one by one. The logits must be equal
 * bit for bit, and the fused run must launch fewer kernels.
 */
#include "tests/emu/host/calls.h"
#include "tests/engine/model/rig.h"
#include "tests/engine/model/vectors.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 5, DECODES = 2 };

typedef struct fused_run {
  float *logits; /* [CHUNK + DECODES, vocab], owned */
  int launches;
} fused_run_t;

/* A chunk of the prompt, then single tokens; all are few enough rows to be fused. */
static fused_run_t run_model(const vector_case_t *c, const ops_t *ops) {
  rig_options_t options = {.ops = ops,
                           .dir = c->dir,
                           .dummy = !c->has_files,
                           .seed = c->seed,
                           .dtype = c->dtype == DTYPE_F32 ? DTYPE_BF16 : -1,
                           .max_model_len = c->max_model_len,
                           .adapter = c->adapter[0] != '\0' ? c->adapter : NULL};
  inferd_error_t error = {0};
  rig_t rig;
  cr_assert_eq(rig_open(&options, &rig, &error), 0, "%s: %s", c->name, error.message);
  fused_run_t run = {calloc((size_t)(CHUNK + DECODES) * (size_t)c->vocab, sizeof(float)), 0};
  cr_assert_not_null(run.logits);
  const int before = emu_count_calls("launch");
  int code = rig_run(&rig, c->ids, CHUNK, 0, CHUNK, run.logits, &error);
  for (int32_t i = CHUNK; i < CHUNK + DECODES && code == 0; i++)
    code = rig_run(&rig, c->ids + i, 1, i, 1, run.logits + (size_t)i * (size_t)c->vocab, &error);
  cr_assert_eq(code, 0, "%s: %s", c->name, error.message);
  run.launches = emu_count_calls("launch") - before;
  rig_close(&rig);
  return run;
}

/* Runs the case both ways. `saved` is the number of launches that fusing spares in a step. */
static void check_case(const char *name, int saved) {
  vector_list_t list = vectors_open(name);
  vector_case_t c;
  ops_t separate = ops_cuda;
  separate.fused_linear = NULL;
  cr_assert(list.count > 0, "no reference model begins with %s", name);
  vectors_read(&list, 0, &c);
  fused_run_t fused = run_model(&c, &ops_cuda), one_by_one = run_model(&c, &separate);
  cr_assert_eq(one_by_one.launches - fused.launches, saved * (1 + DECODES),
               "%s: %d launches one by one, %d fused, in %d steps", name, one_by_one.launches,
               fused.launches, 1 + DECODES);
  for (int32_t i = 0; i < (CHUNK + DECODES) * c.vocab; i++)
    cr_assert(memcmp(&fused.logits[i], &one_by_one.logits[i], sizeof(float)) == 0,
              "%s: logit %d of row %d is %.9g fused, %.9g one by one", name, i % c.vocab,
              i / c.vocab, (double)fused.logits[i], (double)one_by_one.logits[i]);
  free(fused.logits);
  free(one_by_one.logits);
  vectors_free(&c);
  vectors_close(&list);
}

/* Two norms, the rotation and the activation in each of two layers. */
Test(fused, norms_rotation_and_a_gated_activation_of_llama) {
  check_case("llama-bf16", 8);
}

Test(fused, norms_around_blocks_of_gemma) {
  check_case("gemma2-bf16", 8);
}

/* Every norm is added to a residual, and heads have norms. */
Test(fused, only_the_activation_of_olmo) {
  check_case("olmo2-bf16", 2);
}

/* Router and experts read the second norm too. */
Test(fused, only_the_first_norm_and_the_rotation_with_experts) {
  check_case("moe-mixtral-bf16", 4);
}

/* The activation belongs to the shared expert in two layers; the third one is dense. Heads of 24
 * are no whole tiles. */
Test(fused, a_norm_and_the_activation_of_a_shared_expert) {
  check_case("moe-qwen2-moe", 7);
}

/* LayerNorm and an activation without a gate have no fused form; K and V are stored, unrotated. */
Test(fused, only_the_store_of_gpt2) {
  check_case("gpt2-bf16", 2);
}

/* The products of adapters come between the operations. */
Test(fused, nothing_with_adapters) {
  check_case("lora-bf16", 0);
}
