/* test_defaults.c: a daemon without options runs the engine that engine_options_default describes.
 */
#include "server/serve.h"
#include "tests/expect.h"

#include <string.h>

TestSuite(defaults, .timeout = 30);

/* The options of `inferd serve MODEL`. */
static engine_options_t of_the_daemon(config_t *config) {
  inferd_error_t error = {0};
  engine_options_t options;
  memset(&options, 0, sizeof options);
  char *words[] = {"/models/tiny"};
  ASSERT_EQ_FOR(config_load(config, 1, words, &error), 0, "%s", error.message);
  ASSERT_EQ_FOR(serve_engine_options(config, &options, &error), 0, "%s", error.message);
  ASSERT_STR_EQ(options.model_dir, "/models/tiny");
  options.model_dir = NULL;
  return options;
}

Test(defaults, of_the_daemon_and_of_the_engine_are_the_same) {
  config_t config;
  engine_options_t daemon = of_the_daemon(&config), own;
  memset(&own, 0, sizeof own);
  engine_options_default(&own);
#define SAME(member) EXPECT_EQ(daemon.member, own.member)
  SAME(model_dir);
  SAME(ops);
  SAME(num_threads);
  SAME(host_experts);
  SAME(batch_invariant);
  SAME(dummy_weights);
  SAME(max_model_len);
  SAME(kv_cache_bytes);
  SAME(memory_fraction);
  SAME(kv_fp8);
  SAME(kv_int8);
  SAME(block_size);
  SAME(num_blocks);
  SAME(max_num_seqs);
  SAME(max_num_batched_tokens);
  SAME(max_step_ms);
  SAME(long_prefill_token_threshold);
  SAME(draft.tokens_max);
  SAME(draft.match_min);
  SAME(draft.match_max);
  SAME(draft_model_dir);
  SAME(max_loras);
  SAME(max_lora_rank);
  SAME(lora_dirs);
  SAME(num_lora_dirs);
  SAME(enable_chunked_prefill);
  SAME(enable_prefix_caching);
  SAME(short_prompts_pass);
  SAME(priority_policy);
  SAME(quantise_q8);
  SAME(fair_share);
  SAME(max_skips);
  SAME(max_preemptions);
  SAME(sleep_space_bytes);
  SAME(swap_space_bytes);
  SAME(prefix_cache_bytes);
  SAME(prefix_cache_file);
  SAME(preemption_mode);
  SAME(watermark);
  SAME(mask_threads);
  SAME(max_queue_requests);
  SAME(max_queue_tokens);
  SAME(max_queue_time_s);
  SAME(queue_time_tokens);
  SAME(trace);
  SAME(seed);
  SAME(wake);
  SAME(log);
  SAME(context);
  EXPECT_STR_EQ(daemon.device, own.device);
  EXPECT_STR_EQ(daemon.isa, own.isa);
  EXPECT_STR_EQ(daemon.dtype, own.dtype);
  /* A member that the list above lacks. */
  daemon.device = own.device, daemon.isa = own.isa, daemon.dtype = own.dtype;
  EXPECT_EQ(memcmp(&daemon, &own, sizeof own), 0);
  config_free(&config);
}

Test(defaults, quantization_is_q8_or_the_reason_why_not) {
  static const struct {
    char *name;
    int code;
    const char *says;
  } cases[] = {{"none", 0, NULL},
               {"q8", 0, NULL},
               {"q4", ERR_CONFIGURATION, "quantised already"},
               {"awq", ERR_CONFIGURATION, "found by itself"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    config_t config;
    inferd_error_t error = {0};
    engine_options_t options;
    char *words[] = {"/models/tiny", "--quantization", cases[i].name};
    ASSERT_EQ_FOR(config_load(&config, 3, words, &error), 0, "%s", error.message);
    ASSERT_EQ_FOR(serve_engine_options(&config, &options, &error), cases[i].code, "%s",
                  cases[i].name);
    if (cases[i].code == 0) EXPECT_EQ(options.quantise_q8, strcmp(cases[i].name, "q8") == 0);
    if (cases[i].says != NULL)
      cr_assert_not_null(strstr(error.message, cases[i].says), "%s", error.message);
    config_free(&config);
  }
}
