/* test_moving.c: the flags of other servers are answered with their names here. */
#include "config/config.h"
#include "config/spellings.h"
#include "engine/base/util.h"
#include "tests/expect.h"

#include <stdlib.h>
#include <string.h>

static const struct {
  const char *program, *words, *option;
} rows[] = {
#define MOVED(program, words, option, note) {#program, words, #option},
#include "config/moving.def"
#undef MOVED
};
static const char *const names[] = {
#define OPTION(kind, field, initial, min, max, group, shown, alias, ...) #field, alias,
#include "config/options.def"
#undef OPTION
};

static const char *refusal(const char *word) {
  static inferd_error_t error;
  static config_t config;
  char copy[64], *arguments[] = {(char[]){"m"}, copy, (char[]){"1"}};
  snprintf(copy, sizeof copy, "%s", word);
  error = (inferd_error_t){0};
  int code = config_load(&config, ARRAY_LEN(arguments), arguments, &error);
  config_free(&config);
  return code == ERR_USAGE ? error.message : "";
}

/* "OPTION_max_model_len" -> "--max-model-len" */
static void flag_of(const char *option, char flag[64]) {
  snprintf(flag, 64, "--%s", option + strlen("OPTION_"));
  for (char *p = flag; *p != '\0'; p++) *p = *p == '_' ? '-' : *p;
}

Test(moving, every_flag_is_named_with_its_place_here) {
  for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
    char words[1024], *rest = words, here[64] = "";
    if (rows[i].words[0] != '-') continue; /* a variable of Ollama */
    snprintf(words, sizeof words, "%s", rows[i].words);
    if (strcmp(rows[i].option, "NO_OPTION") != 0) flag_of(rows[i].option, here);
    for (char *word; (word = strsep(&rest, "|")) != NULL;) {
      word[strcspn(word, "*")] = '\0';
      const char *message = refusal(word);
      cr_expect(strstr(message, " is a flag of ") != NULL, "%s: '%s'", word, message);
      cr_expect(strstr(message, here) != NULL, "%s: no '%s' in '%s'", word, here, message);
    }
  }
}

/* A row behind an option or an alias of its name could never be reached. */
Test(moving, no_row_is_an_option) {
  for (size_t i = 0; i < ARRAY_LEN(names); i++) {
    char flag[64] = "--";
    if (names[i][0] == '\0') continue;
    snprintf(flag + 2, sizeof flag - 2, "%s", names[i]);
    for (char *p = flag; *p != '\0'; p++) *p = *p == '_' ? '-' : *p;
    cr_expect(moved_flag_find(flag) == NULL, "%s", flag);
  }
}

/* A second row would never be reached. */
Test(moving, no_word_stands_twice) {
  for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
    char words[1024], *rest = words;
    snprintf(words, sizeof words, "%s", rows[i].words);
    for (char *word; (word = strsep(&rest, "|")) != NULL;) {
      const moved_flag_t *found = moved_flag_find(word);
      cr_expect(found != NULL && strcmp(found->words, rows[i].words) == 0, "%s", word);
    }
  }
}

/* Every flag in a list that scripts/peer_flags.py has made is an option, taken, or answered. */
static void expect_all_known(const char *path, int at_least) {
  FILE *file = fopen(path, "r");
  cr_assert_not_null(file, "%s", path);
  char flag[128];
  int count = 0;
  while (fgets(flag, sizeof flag, file) != NULL) {
    flag[strcspn(flag, "\n")] = '\0';
    if (flag[0] == '#' || strcmp(flag, "--help") == 0 || strcmp(flag, "-h") == 0 ||
        strcmp(flag, "--version") == 0)
      continue; /* commands here */
    const char *message = refusal(flag);
    cr_expect(strstr(message, "is unknown") == NULL && strstr(message, "is not a flag") == NULL,
              "%s: '%s'", flag, message);
    count++;
  }
  fclose(file);
  ASSERT_LE(at_least, count);
}

Test(moving, every_flag_of_vllm_is_known) {
  expect_all_known("tests/config/flags_vllm.txt", 300);
}

Test(moving, every_flag_of_llama_server_is_known) {
  expect_all_known("tests/config/flags_llama_server.txt", 400);
}

/* Flags that were accepted without effect. Variables of the environment have notices too. */
static int ignored_flags(const config_t *config) {
  int count = 0;
  for (int i = 0; i < (int)config->notices.count; i++)
    count += strstr(config->notices.items[i], "has no meaning here") != NULL;
  return count;
}

Test(moving, a_command_line_of_vllm) {
  char words[] = "m -tp 1 -dp=1 --max-model-len -1 --generation-config vllm --spec-tokens 3 "
                 "--device-memory-utilization 0.5 --no-use-tqdm-on-load --api-key a b";
  char *arguments[32], *rest = words;
  int count = 0;
  for (char *word; (word = strsep(&rest, " ")) != NULL;) arguments[count++] = word;
  config_t config;
  inferd_error_t error = {0};
  ASSERT_EQ_FOR(config_load(&config, count, arguments, &error), 0, "%s", error.message);
  EXPECT_STR_EQ(config.model, "m");
  EXPECT_EQ(config.tensor_parallel_size, 1);
  EXPECT_STR_EQ(config.generation_config, "none");
  EXPECT_EQ(config.max_model_len, 0);
  EXPECT_EQ(config.num_speculative_tokens, 3);
  cr_expect(config.memory == 0.5);
  EXPECT_EQ(config.api_key.count, 2);
  EXPECT_EQ(config.data_parallel_size, 1);
  EXPECT_EQ(ignored_flags(&config), 1);
  config_free(&config);
}

static void expect_experts(const char *flag, const char *value, const char *expected) {
  char first[32], second[32];
  snprintf(first, sizeof first, "%s", flag);
  snprintf(second, sizeof second, "%s", value != NULL ? value : "");
  char *arguments[] = {(char[]){"m"}, first, second};
  config_t config;
  inferd_error_t error = {0};
  ASSERT_EQ_FOR(config_load(&config, value != NULL ? 3 : 2, arguments, &error), 0, "%s",
                error.message);
  EXPECT_STR_EQ(config.cpu_experts, expected);
  EXPECT_EQ(ignored_flags(&config), 0);
  config_free(&config);
}

/* The spellings of llama-server, which mean the same. */
Test(moving, experts_on_the_cpu) {
  expect_experts("--cpu-experts", "auto", "auto");
  expect_experts("--cpu-moe", NULL, "all");
  expect_experts("-cmoe", NULL, "all");
  expect_experts("--n-cpu-moe", "12", "12");
  expect_experts("-ncmoe", "0", "0");
}

Test(moving, what_users_type) {
  EXPECT_STR_EQ(refusal("--no-mmap"), "--no-mmap is a flag of llama-server; here: weights are read "
                                      "once into memory of the engine");
  EXPECT_STR_EQ(refusal("-np"), "-np is a flag of llama-server; here: --max-num-seqs");
  EXPECT_STR_EQ(refusal("--download-dir=/x"),
                "--download-dir is a flag of vLLM; here: the variable HF_HUB_CACHE");
  EXPECT_STR_EQ(refusal("-ngl"), "-ngl is a flag of llama-server; here: --device, a model runs on "
                                 "CPUs or on GPUs, but for experts: --cpu-experts");
  EXPECT_STR_EQ(refusal("--nnodes"), "--nnodes is a flag of vLLM; here: --tensor-parallel-size, "
                                     "mpirun starts the processes of several hosts "
                                     "(docs/ranks.md)");
  EXPECT_STR_EQ(refusal("-y"), "'-y' is not a flag; see --help");
  EXPECT_STR_EQ(refusal("--nonsense"), "--nonsense is unknown");
}
