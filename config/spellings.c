/* spellings.c: the tables of flags and values of vLLM that have no row in options.def.
 *
 * Main thread; keeps no state.
 */
#include "config/spellings.h"

#include "engine/base/util.h"

#include <string.h>

static const foreign_flag_t flags[] = {
    {.name = "trust_remote_code"},
    {.name = "disable_log_requests"},
    {.name = "disable_log_stats"},
    {.name = "enable_log_requests"},
    {.name = "enforce_eager"},
    {.name = "tensor_parallel_size", .value = true, .only_one = true},
    {.name = "pipeline_parallel_size", .value = true, .only_one = true},
    {.name = "data_parallel_size", .value = true, .only_one = true},
    {.name = "tokenizer_mode", .value = true},
    {.name = "compilation_config", .value = true},
    {.name = "distributed_executor_backend", .value = true},
    {.name = "uvicorn_log_level", .value = true},
    {.name = "disable_uvicorn_access_log"},
    {.name = "max_seq_len_to_capture", .value = true},
    {.name = "no_trust_remote_code"},
    {.name = "disable_frontend_multiprocessing"},
    {.name = "enable_auto_tool_choice", .is_always = true},
    {.name = "enable_prompt_tokens_details", .is_always = true},
    {.name = "async_scheduling"},
    {.name = "no_enable_log_requests"},
};

const foreign_flag_t *foreign_flag_find(const char *name) {
  for (size_t i = 0; i < ARRAY_LEN(flags); i++) {
    if (strcmp(flags[i].name, name) == 0) return &flags[i];
  }
  return NULL;
}

int foreign_flag_check(const foreign_flag_t *flag, const char *value, inferd_error_t *error) {
  if (!flag->only_one || (value != NULL && strcmp(value, "1") == 0)) return 0;
  char spelled[64], quoted[64] = "";
  snprintf(spelled, sizeof spelled, "--%s", flag->name);
  for (char *p = spelled; *p != '\0'; p++) *p = *p == '_' ? '-' : *p;
  if (value != NULL) error_quote(quoted, sizeof quoted, value, strlen(value));
  return error_set(error, ERR_USAGE, NULL,
                   "%s is '%s'; inferd runs on one device, so only 1 is possible", spelled, quoted);
}

static const struct {
  enum config_option option;
  const char *word, *meaning, *refusal;
} values[] = {
    {OPTION_kv_cache_dtype, "fp8_e4m3", "fp8", NULL},
    {OPTION_kv_cache_dtype, "fp8_e5m2", NULL, "the 8-bit cache is E4M3 only: fp8 or fp8_e4m3"},
};

const char *value_spelling(enum config_option option, const char *text) {
  for (size_t i = 0; i < ARRAY_LEN(values); i++) {
    bool same = values[i].option == option && strcmp(values[i].word, text) == 0;
    if (same && values[i].meaning != NULL) return values[i].meaning;
  }
  return text;
}

const char *value_refusal(enum config_option option, const char *text) {
  for (size_t i = 0; i < ARRAY_LEN(values); i++) {
    if (values[i].option == option && strcmp(values[i].word, text) == 0) return values[i].refusal;
  }
  return NULL;
}
