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
    char words[256], *rest = words, here[64] = "";
    if (rows[i].words[0] != '-') continue; /* a variable of Ollama */
    snprintf(words, sizeof words, "%s", rows[i].words);
    if (strcmp(rows[i].option, "NO_OPTION") != 0) flag_of(rows[i].option, here);
    for (char *word; (word = strsep(&rest, "|")) != NULL;) {
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

Test(moving, what_users_type) {
  EXPECT_STR_EQ(refusal("-np"), "-np is a flag of llama-server; here: --max-num-seqs");
  EXPECT_STR_EQ(refusal("--download-dir=/x"),
                "--download-dir is a flag of vLLM; here: the variable HF_HUB_CACHE");
  EXPECT_STR_EQ(refusal("-ngl"),
                "-ngl is a flag of llama-server; here: --device, a model runs whole on one device");
  EXPECT_STR_EQ(refusal("-q"), "'-q' is not a flag; see --help");
  EXPECT_STR_EQ(refusal("--nonsense"), "--nonsense is unknown");
}
