/* test_detection.c: the formats of the families, found in their chat templates. */
#include "engine/text/tokenizer.h"
#include "server/completion/chat.h"
#include "tests/expect.h"

#include <stdio.h>
#include <string.h>

Test(detection, by_the_templates_of_the_families) {
  static const struct {
    const char *template, *tools, *reasoning; /* reasoning: as far as the template tells */
  } rows[] = {{"qwen25", "hermes", NULL},
              {"qwen3", "hermes", "think"},
              {"qwen3_coder", "qwen3_coder", NULL},
              {"smollm3", NULL, NULL},
              {"llama3", "llama3_json", NULL},
              {"mistral", "mistral", NULL},
              {"gpt_oss", "harmony", "harmony"},
              {"granite", "granite", NULL},
              {"gemma3", NULL, NULL},
              {"../calls/glm45", "glm45", NULL},
              {"../calls/kimi_k2", "kimi_k2", NULL},
              {"../calls/kimi_k3", "kimi_k3", "kimi_k3"},
              {"../calls/deepseek_v31", "deepseek_v31", NULL},
              {"../calls/minimax_m2", "minimax_m2", NULL},
              {"../calls/minimax_m3", "minimax_m3", "minimax_m3"},
              {"../calls/olmo3", "olmo3", NULL},
              {"../calls/smollm3", "hermes", NULL}, /* by its words: it prints no calls */
              {"../calls/none", NULL, NULL}};
  tokenizer_t *tokenizer;
  inferd_error_t error = {0};
  ASSERT_EQ_FOR(tokenizer_load("tests/fixtures/tiny", &tokenizer, &error), 0, "%s", error.message);
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    completions_t live = {0};
    char path[128];
    snprintf(path, sizeof path, "tests/fixtures/templates/%s.jinja", rows[i].template);
    config_t config;
    memset(&config, 0, sizeof config);
    config.model = "tests/fixtures/tiny";
    config.chat_template = path;
    config.tool_call_parser = config.reasoning_parser = "auto";
    ASSERT_EQ_FOR(chat_model_load(&live, &config, &error), 0, "%s", error.message);
    chat_model_ready(&live, &config, tokenizer);
    const char *tools = live.tool_format != NULL ? live.tool_format->name : NULL;
    const char *reasoning = live.reasoning_format != NULL ? live.reasoning_format->name : NULL;
    EXPECT_EQ_FOR((tools == NULL), (rows[i].tools == NULL), "%s: %s", rows[i].template, tools);
    if (tools != NULL && rows[i].tools != NULL)
      EXPECT_STR_EQ_FOR(tools, rows[i].tools, "%s: %s", rows[i].template, tools);
    EXPECT_EQ_FOR((reasoning == NULL), (rows[i].reasoning == NULL), "%s", rows[i].template);
    chat_model_free(&live);
  }
  tokenizer_free(tokenizer);
}
