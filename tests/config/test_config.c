/* test_config.c: command line, environment and file -> config_t. */
#include "config/config.h"
#include "config/parse.h"
#include "tests/expect.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Whoever runs the tests may have variables of their own. */
static void clear_environment(void) {
  for (char **entry = environ; *entry != NULL;) {
    char name[256];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(*entry, "="), *entry);
    bool ours = strncmp(name, "INFERD_", 7) == 0;
    if (ours) unsetenv(name); /* what stood behind it moves here */
    entry += !ours;
  }
}

TestSuite(config, .timeout = 30, .init = clear_environment);

static config_t config;
static inferd_error_t error;

/* Loads from words separated by blanks. */
static int load(const char *line) {
  char text[512], *words[32], *rest = text;
  int count = 0;
  snprintf(text, sizeof text, "%s", line);
  for (char *word; (word = strsep(&rest, " ")) != NULL;) {
    if (*word != '\0') words[count++] = word;
  }
  error = (inferd_error_t){0};
  return config_load(&config, count, words, &error);
}

static void expect_error(const char *line, int code, const char *part) {
  int rc = load(line);
  EXPECT_EQ_FOR(rc, code, "%s: %d %s", line, rc, error.message);
  cr_expect(strstr(error.message, part) != NULL, "%s: '%s' is not in '%s'", line, part,
            error.message);
  config_free(&config);
}

static char path[64];
static int load_text(const char *text) {
  snprintf(path, sizeof path, "/tmp/inferd-conf-%d", (int)getpid());
  FILE *file = fopen(path, "w");
  fputs(text, file);
  fclose(file);
  error = (inferd_error_t){0};
  int rc = config_load_file(&config, path, &error);
  unlink(path);
  return rc;
}

static void expect_file_error(const char *text, const char *part) {
  int rc = load_text(text);
  EXPECT_EQ_FOR(rc, ERR_CONFIGURATION, "%s", text);
  cr_expect(strstr(error.message, part) != NULL, "'%s' is not in '%s'", part, error.message);
  config_free(&config);
}

Test(config, defaults) {
  ASSERT_EQ_FOR(load(""), 0, "%s", error.message);
  EXPECT_STR_EQ(config.host, "127.0.0.1");
  EXPECT_EQ(config.port, 8000);
  EXPECT_EQ(config.max_body_bytes, 16 << 20);
  cr_expect_float_eq(config.max_queue_time, 30, 1e-9);
  cr_expect(config.enable_prefix_caching);
  EXPECT_EQ(config.api_key.count, 0);
  cr_expect_not(config_given(&config, OPTION_port));
  config_free(&config);
}

Test(config, flags) {
  ASSERT_EQ_FOR(load("models/demo --port=9000 --max-model-len 32K --no-enable-prefix-caching "
                     "--served-model-name a,b --served-model-name c --gpu-memory-utilization 80% "
                     "--kv-cache-bytes 1.5GiB --drain-timeout 2m --any_model --strict-params=no"),
                0, "%s", error.message);
  EXPECT_STR_EQ(config.model, "models/demo");
  EXPECT_EQ(config.port, 9000);
  EXPECT_EQ(config.max_model_len, 32768);
  cr_expect_not(config.enable_prefix_caching);
  ASSERT_EQ(config.served_model_name.count, 3);
  EXPECT_STR_EQ(config.served_model_name.items[2], "c");
  cr_expect_float_eq(config.memory, 0.8, 1e-9);
  EXPECT_EQ(config.kv_cache_bytes, 3ll << 29);
  cr_expect_float_eq(config.drain_timeout, 120, 1e-9);
  cr_expect(config.any_model);
  cr_expect_not(config.strict_params);
  cr_expect(config_given(&config, OPTION_port));
  config_free(&config);
}

Test(config, auto_is_offered_where_the_table_says_so) {
  ASSERT_EQ(load("--max-model-len auto --threads=auto"), 0);
  EXPECT_EQ(config.max_model_len, 0);
  config_free(&config);
  expect_error("--port auto", ERR_USAGE, "--port");
}

Test(config, the_time_of_a_step_is_automatic_none_or_given) {
  const struct {
    const char *text;
    int64_t ms;
    const char *printed;
  } values[] = {{"m", -1, "max_step_ms = auto"},
                {"m --max-step-ms auto", -1, "max_step_ms = auto"},
                {"m --max-step-ms 0", 0, "max_step_ms = 0"},
                {"m --max-step-ms 25", 25, "max_step_ms = 25"}};
  for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
    ASSERT_EQ_FOR(load(values[i].text), 0, "%s", error.message);
    EXPECT_EQ_FOR(config.max_step_ms, values[i].ms, "%s", values[i].text);
    config_free(&config);
  }
  expect_error("--max-step-ms=-1", ERR_USAGE, "0 to 60000");
}

Test(config, swap_space_counts_gib) {
  const struct {
    const char *text;
    int64_t bytes;
  } values[] = {{"m", -1},
                {"m --swap-space auto", -1},
                {"m --swap-space 0", 0},
                {"m --swap-space 4", 4ll << 30},
                {"m --swap-space 0.5", 1ll << 29},
                {"m --swap-space 512MiB", 1ll << 29}};
  for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
    ASSERT_EQ_FOR(load(values[i].text), 0, "%s", error.message);
    EXPECT_EQ_FOR(config.swap_space, values[i].bytes, "%s", values[i].text);
    config_free(&config);
  }
  expect_error("--swap-space=-1", ERR_USAGE, "0 to 65536");
  expect_error("--swap-space 70000", ERR_USAGE, "0 to 65536");
  expect_error("--preemption-mode never", ERR_USAGE, "auto|recompute|swap");
}

Test(config, wrong_flags_name_what_would_be_right) {
  expect_error("--prot 1", ERR_USAGE, "did you mean --port?");
  expect_error("--max-model-length 1", ERR_USAGE, "did you mean --max-model-len?");
  expect_error("--no-enable-prefix-cashing", ERR_USAGE, "is unknown");
  expect_error("--xyzzyplugh 1", ERR_USAGE, "--xyzzyplugh is unknown");
  expect_error("--port", ERR_USAGE, "needs a value");
  expect_error("--port=-1", ERR_USAGE, "0 to 65535");
  expect_error("--port=65536", ERR_USAGE, "0 to 65535");
  expect_error("--port=80x", ERR_USAGE, "'80x' is not valid");
  expect_error("--no-port=1", ERR_USAGE, "unknown");
  expect_error("--dtype int3", ERR_USAGE, "auto|half");
  expect_error("--any-model=perhaps", ERR_USAGE, "true or false");
  expect_error("one --model two", ERR_USAGE, "more than one model: one and two");
  expect_error("--model one two", ERR_USAGE, "more than one model: one and two");
  expect_error("-p 1", ERR_USAGE, "a port is given by --port");
  expect_error("-y 1", ERR_USAGE, "not a flag");
  expect_error("--no-access-log=1", ERR_USAGE, "--no-access-log takes no value");
  expect_error(
      "--block-size 24", ERR_CONFIGURATION,
      "block_size is 24; it must be a power of two from 1 to 256, or 0 (set by --block-size)");
  expect_error("--max-num-seqs 100 --max-num-batched-tokens 50", ERR_CONFIGURATION,
               "max_num_batched_tokens is 50; it must be at least max_num_seqs, 100 "
               "(set by --max-num-batched-tokens)");
  expect_error("--prompt-lookup-min 5 --prompt-lookup-max 3", ERR_CONFIGURATION,
               "prompt_lookup_min is 5; it must be at most prompt_lookup_max, 3");
  expect_error("--speculative-model draft", ERR_CONFIGURATION,
               "speculative_model is 'draft' and num_speculative_tokens is 0; it must be 1 to 15");
  expect_error("--max-body-bytes 2MiB --max-request-memory 1MiB", ERR_CONFIGURATION,
               "max_body_bytes is 2097152; it must be at most max_request_memory, 1048576");
  expect_error("--device tpu", ERR_CONFIGURATION, "device is 'tpu'; it must be auto, cpu or");
  expect_error("--device cuda:", ERR_CONFIGURATION, "cuda[:N]");
  expect_error("--device cuda:one", ERR_CONFIGURATION, "cuda[:N]");
  expect_error("--task translate", ERR_USAGE,
               "auto|generate|embed|embedding|classify|token_classify|rerank|score");
  expect_error("--task embed --runner generate", ERR_CONFIGURATION,
               "runner is generate, which contradicts task, which is embed");
  expect_error("--max-queue-time 1x", ERR_USAGE, "0 to 86400 s");
  expect_error("--config /no/such/file", ERR_CONFIGURATION, "/no/such/file");
}

/* What would be accepted and then match nothing, for ever. */
Test(config, names_that_no_request_can_match) {
  static const char *const origins[] = {"app.example", "https://", "https://app.example/",
                                        "https://*.example"};
  for (int i = 0; i < 4; i++) {
    char line[64];
    snprintf(line, sizeof line, "--cors-origin %s", origins[i]);
    expect_error(line, ERR_CONFIGURATION, origins[i]);
  }
  expect_error("--allowed-host http://box", ERR_CONFIGURATION,
               "leave scheme, port and patterns out");
  expect_error("--allowed-host *", ERR_CONFIGURATION, "'*' is not a host name");
  expect_error("--allowed-host box:8000", ERR_CONFIGURATION, "box:8000");
  char name[300] = "--served-model-name a,";
  memset(name + strlen(name), 'n', 257);
  expect_error(name, ERR_CONFIGURATION, "257 bytes; 256");
  EXPECT_EQ_FOR(load("--cors-origin *,http://localhost:3000 --allowed-host box.local,[fe80::1]"), 0,
                "%s", error.message);
  config_free(&config);
}

Test(config, kinds_of_constraints_that_are_closed) {
  ASSERT_EQ_FOR(load("--disable-grammar regex,schema --disable-grammar grammar"), 0, "%s",
                error.message);
  EXPECT_EQ(config.disable_grammar.count, 3);
  config_free(&config);
  setenv("INFERD_DISABLE_GRAMMAR", "regex, grammar", 1);
  ASSERT_EQ_FOR(load(""), 0, "%s", error.message);
  ASSERT_EQ(config.disable_grammar.count, 2);
  EXPECT_STR_EQ(config.disable_grammar.items[1], "grammar");
  config_free(&config);
  unsetenv("INFERD_DISABLE_GRAMMAR");
  ASSERT_EQ_FOR(load_text("disable_grammar = schema\n"), 0, "%s", error.message);
  EXPECT_STR_EQ(config.disable_grammar.items[0], "schema");
  config_free(&config);
  /* A kind that is misspelt would stay open. */
  expect_error("--disable-grammar regex,json", ERR_CONFIGURATION,
               "disable_grammar: 'json' is no kind of constraint, supported: regex, grammar, "
               "schema");
  expect_error("--disable-grammar all", ERR_CONFIGURATION, "(set by --disable-grammar)");
}

Test(config, admin_keys) {
  expect_error("--metrics-auth admin --api-key k", ERR_CONFIGURATION, "there is no admin key");
  ASSERT_EQ_FOR(load("--metrics-auth admin --admin-key-file /f"), 0, "%s", error.message);
  config_free(&config);
}

Test(config, variables_that_are_no_options) {
  setenv("INFERD_MAX_NUM_SEQ", "3", 1);
  setenv("INFERD_SERVICE_HOST", "10.0.0.1", 1); /* as Kubernetes sets for a Service */
  setenv("INFERD_PORT_8000_TCP", "tcp://10.0.0.1:8000", 1);
  setenv("INFERD_GPU_MEMORY_UTILIZATION", "0.5", 1);
  ASSERT_EQ_FOR(load(""), 0, "%s", error.message);
  int seen = 0;
  for (int i = 0; i < config.notices.count; i++) {
    const char *text = config.notices.items[i];
    cr_expect(strstr(text, "SERVICE") == NULL && strstr(text, "TCP") == NULL, "%s", text);
    seen += strcmp(text, "INFERD_MAX_NUM_SEQ in the environment is no option; did you mean "
                         "INFERD_MAX_NUM_SEQS?") == 0;
    EXPECT_EQ_FOR(strstr(text, "INFERD_GPU_MEMORY_UTILIZATION"), NULL, "%s", text);
  }
  EXPECT_EQ(seen, 1);
  cr_expect_float_eq(config.memory, 0.5, 1e-9); /* other spellings hold here too */
  config_free(&config);
  setenv("INFERD_PORT", "tcp://10.0.0.1:8000", 1);
  expect_error("", ERR_USAGE, "enableServiceLinks");
  unsetenv("INFERD_PORT"), unsetenv("INFERD_MAX_NUM_SEQ"), unsetenv("INFERD_SERVICE_HOST");
  unsetenv("INFERD_PORT_8000_TCP"), unsetenv("INFERD_GPU_MEMORY_UTILIZATION");
}

Test(config, meaningless_flags_are_noticed) {
  ASSERT_EQ_FOR(load("m --trust-remote-code --tokenizer-mode slow -O3 "
                     "--prefill-context-parallel-size=1 --enable-prompt-tokens-details "
                     "--enable-auto-tool-choice"),
                0, "%s", error.message);
  ASSERT_EQ_FOR(config.notices.count, 4, "what is always so needs no notice");
  cr_expect(strstr(config.notices.items[1], "--tokenizer-mode") != NULL);
  EXPECT_STR_EQ(config.model, "m");
  config_free(&config);
}

Test(config, sizes_that_cannot_be_are_refused) {
  expect_error("m --decode-context-parallel-size=4", ERR_USAGE, "only 1 is possible");
  expect_error("m --data-parallel-size auto", ERR_USAGE, "1 to 16");
  expect_error("m --pipeline-parallel-size 65", ERR_USAGE, "1 to 64");
  expect_error("m --pipeline-parallel-size 2 --tensor-parallel-size 2", ERR_CONFIGURATION,
               "pipeline_parallel_size is 2 and tensor_parallel_size is 2");
  expect_error("m --pipeline-parallel-size 2 --tensor-parallel-mode fast", ERR_CONFIGURATION,
               "tensor_parallel_mode is fast");
}

Test(config, lists_take_words_up_to_the_next_flag) {
  static const char *const lines[] = {"m --served-model-name a b --port 9000",
                                      "--port 9000 --served-model-name a b --model m",
                                      "--served-model-name a b m --port 9000",
                                      "--served-model-name=a m --served-model-name b --port 9000"};
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
    ASSERT_EQ_FOR(load(lines[i]), 0, "%s: %s", lines[i], error.message);
    ASSERT_EQ_FOR(config.served_model_name.count, 2, "%s", lines[i]);
    EXPECT_STR_EQ(config.served_model_name.items[0], "a");
    EXPECT_STR_EQ(config.served_model_name.items[1], "b");
    EXPECT_STR_EQ(config.model, "m");
    EXPECT_EQ(config.port, 9000);
    config_free(&config);
  }
  ASSERT_EQ(load("m --lora-modules x=d/x y=d/y"), 0);
  EXPECT_EQ(config.lora_modules.count, 2);
  config_free(&config);
}

Test(config, values_of_vllm) {
  ASSERT_EQ_FOR(load("m --kv-cache-dtype fp8_e4m3 --allowed-origins [\"*\"]"), 0, "%s",
                error.message);
  EXPECT_STR_EQ(config.kv_cache_dtype, "fp8");
  ASSERT_EQ(config.cors_origin.count, 1);
  EXPECT_STR_EQ(config.cors_origin.items[0], "*");
  config_free(&config);
  ASSERT_EQ(load("m --kv-cache-dtype q8_0"), 0);
  EXPECT_STR_EQ(config.kv_cache_dtype, "int8");
  config_free(&config);
  ASSERT_EQ(load("m --allowed-origins [\"http://a\",\"http://b\"] --listen [::1]:80"), 0);
  ASSERT_EQ(config.cors_origin.count, 2);
  EXPECT_STR_EQ(config.cors_origin.items[1], "http://b");
  EXPECT_STR_EQ(config.listen.items[0], "[::1]:80");
  config_free(&config);
  static const char *const parsers[] = {
      "--reasoning-parser qwen3",         "--reasoning-parser deepseek_r1",
      "--reasoning-parser openai_gptoss", "--tool-call-parser openai",
      "--tool-call-parser qwen3_xml",     "--tool-call-parser llama4_json"};
  for (int i = 0; i < 6; i++) {
    char line[80];
    snprintf(line, sizeof line, "m %s", parsers[i]);
    ASSERT_EQ_FOR(load(line), 0, "%s", error.message);
    config_free(&config);
  }
  expect_error("m --allowed-origins [\"http://a\",3]", ERR_USAGE, "is not valid");
  expect_error("m --kv-cache-dtype fp8_e5m2", ERR_USAGE, "E4M3");
  expect_error("m --max-logprobs -2", ERR_USAGE, "-1 to 10000000");
  expect_error("m --port -1", ERR_USAGE, "is not valid");
}

Test(config, limits_of_pictures_in_the_words_of_vllm) {
  static const struct {
    const char *line;
    int64_t limit; /* -1: refused */
    int64_t sounds;
  } rows[] = {{"m", 16, 16},
              {"m --limit-images 0", 0, 16},
              {"m --language-model-only", 0, 0},
              {"m --limit-mm-per-prompt {\"image\":4}", 4, 16},
              {"m --limit-mm-per-prompt {\"image\":{\"count\":5},\"video\":0}", 5, 16},
              {"m --limit-mm-per-prompt {\"image\":256}", 256, 16},
              {"m --limit-mm-per-prompt {\"image\":257}", -1, 0},
              {"m --limit-mm-per-prompt {\"image\":\"a\"}", -1, 0},
              {"m --limit-mm-per-prompt {\"audio\":2}", 16, 2},
              {"m --limit-mm-per-prompt {\"image\":3,\"audio\":{\"count\":5}}", 3, 5},
              {"m --limit-mm-per-prompt {\"audio\":257}", -1, 0},
              {"m --limit-mm-per-prompt {\"video\":1}", -1, 0},
              {"m --limit-mm-per-prompt {", -1, 0}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    bool good = load(rows[i].line) == 0;
    ASSERT_EQ_FOR(good, rows[i].limit >= 0, "%s", rows[i].line);
    if (good) ASSERT_EQ_FOR(config.limit_images, rows[i].limit, "%s", rows[i].line);
    if (good) ASSERT_EQ_FOR(config.limit_audio, rows[i].sounds, "%s", rows[i].line);
    config_free(&config);
  }
}

Test(config, origins_and_root_path) {
  ASSERT_EQ(load("m"), 0);
  ASSERT_EQ_FOR(config.cors_origin.count, 1, "pages of this machine may call");
  EXPECT_STR_EQ(config.cors_origin.items[0], "localhost");
  config_free(&config);
  ASSERT_EQ_FOR(load("m --cors-origin none --root-path /x/y"), 0, "%s", error.message);
  config_free(&config);
  expect_error("m --cors-origin none,localhost", ERR_CONFIGURATION, "none alone");
  expect_error("m --root-path x", ERR_CONFIGURATION, "must begin with /");
  expect_error("m --root-path /x/", ERR_CONFIGURATION, "not end with /");
}

Test(config, file) {
  ASSERT_EQ_FOR(load_text("# comment\n\n  port = 9001   # why\nserved_model_name = a, b\n"
                          "api_key = \"x#y\"\nmax-queue-time = 250ms\r\n"),
                0, "%s", error.message);
  EXPECT_EQ(config.port, 9001);
  EXPECT_EQ(config.origin[OPTION_port].line, 3);
  EXPECT_EQ(config.served_model_name.count, 2);
  EXPECT_STR_EQ(config.api_key.items[0], "x#y");
  cr_expect_float_eq(config.max_queue_time, 0.25, 1e-9);
  config_free(&config);
  expect_file_error("port = 1\nport = 2\n", "line 2: port was already set on line 1");
  expect_file_error("prot = 1\n", "line 1: prot is unknown; did you mean port?");
  expect_file_error("port\n", "line 1: 'port' is not of the form key = value");
  expect_file_error("api_key k1\n", "line 1: 'api_key' is not of the form key = value");
  expect_file_error("model: m\n", "line 1: 'model:' is not of the form key = value; YAML is");
  expect_file_error("[listen]\n", "line 1: a section is [model NAME]");
  expect_file_error("port = x\n", "line 1: port: 'x' is not valid");
  expect_file_error("\n\nblock_size = 3\n", "or 0 (set in line 3 of /tmp/inferd-conf-");
  expect_file_error("config = other\n",
                    "line 1: config is 'other', but a file cannot name another");
}

/* An option at fault that the engine or the server finds later: the source is added to their words.
 */
Test(config, explain_names_the_source) {
  static const struct {
    const char *param;
    int code;
    const char *message, *wanted;
  } cases[] = {
      {"port", ERR_ADDRESS_IN_USE, "taken", "taken (set by INFERD_PORT)"},
      {"max_model_len", ERR_CONFIGURATION, "too long", "too long (set by --max-model-len)"},
      {"max_model_len", ERR_CONFIGURATION, "lower --max-model-len", "lower --max-model-len"},
      {"host", ERR_CONFIGURATION, "a default has no source", "a default has no source"},
      {"hidden_size", ERR_MODEL_MALFORMED, "no option", "no option"},
      {"dtype", ERR_MODEL_MALFORMED, "config.json: bad", "config.json: bad"},
  };
  setenv("INFERD_PORT", "81", 1);
  ASSERT_EQ_FOR(load("m --max-model-len 12 --dtype half"), 0, "%s", error.message);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    error_set(&error, cases[i].code, cases[i].param, "%s", cases[i].message);
    config_explain(&config, &error);
    EXPECT_STR_EQ(error.message, cases[i].wanted);
    EXPECT_EQ(error.code, cases[i].code);
  }
  unsetenv("INFERD_PORT");
  config_free(&config);
}

Test(config, shipped_file_is_valid) {
  const char *root = getenv("INFERD_SOURCE");
  char file[512];
  snprintf(file, sizeof file, "%s/config/inferd.conf", root != NULL ? root : ".");
  EXPECT_EQ_FOR(config_load_file(&config, file, &error), 0, "%s", error.message);
  config_free(&config);
}

Test(config, precedence) {
  snprintf(path, sizeof path, "/tmp/inferd-conf-%d", (int)getpid());
  FILE *file = fopen(path, "w");
  fputs("port = 1\nhost = file\nuds = /file\napi_key = f1, f2\n", file);
  fclose(file);
  setenv("INFERD_PORT", "2", 1);
  setenv("INFERD_HOST", "environment", 1);
  setenv("INFERD_API_KEY", "e1", 1);
  char line[128];
  snprintf(line, sizeof line, "--port 3 --config %s", path);
  ASSERT_EQ_FOR(load(line), 0, "%s", error.message);
  EXPECT_EQ(config.port, 3);
  EXPECT_STR_EQ(config.host, "environment");
  EXPECT_STR_EQ(config.uds, "/file");
  ASSERT_EQ(config.api_key.count, 1);
  EXPECT_STR_EQ(config.api_key.items[0], "e1");
  EXPECT_EQ(config.origin[OPTION_port].source, SOURCE_FLAG);
  EXPECT_EQ(config.origin[OPTION_host].source, SOURCE_ENVIRONMENT);
  EXPECT_EQ(config.origin[OPTION_uds].source, SOURCE_FILE);
  config_free(&config);
  setenv("INFERD_PORT", "x", 1);
  expect_error("", ERR_USAGE, "INFERD_PORT");
  unsetenv("INFERD_PORT"), unsetenv("INFERD_HOST"), unsetenv("INFERD_API_KEY");
  unlink(path);
}

Test(config, numbers) {
  int64_t n;
  double d;
  static const struct {
    const char *text;
    int64_t value; /* -1 = refused */
  } counts[] = {{"0", 0},           {"12", 12},
                {"32k", 32000},     {"32K", 32768},
                {"25.6k", 25600},   {"1M", 1 << 20},
                {"2g", 2000000000}, {"1.5", -1},
                {"0.0001k", -1},    {"", -1},
                {"k", -1},          {"-1", -1},
                {"+1", -1},         {"1e3", -1},
                {"0x10", -1},       {"1 k", -1},
                {"1kb", -1},        {"99999999999999999999", -1},
                {".5k", -1},        {"999999999999999999", 999999999999999999},
                {"nan", -1},        {"inf", -1},
                {"9999999999G", -1}};
  for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
    bool ok = parse_count(counts[i].text, &n);
    EXPECT_EQ_FOR(ok ? n : -1, counts[i].value, "%s -> %lld", counts[i].text, (long long)n);
  }
  cr_expect(parse_size("10GiB", &n));
  EXPECT_EQ(n, 10ll << 30);
  cr_expect(parse_size("5GB", &n));
  EXPECT_EQ(n, 5000000000);
  cr_expect(parse_size("1.5KiB", &n));
  EXPECT_EQ(n, 1536);
  cr_expect(parse_size("64K", &n));
  EXPECT_EQ(n, 65536);
  cr_expect_not(parse_size("10Gib", &n));
  cr_expect(parse_duration("90", &d));
  EXPECT_EQ(d, 90);
  cr_expect(parse_duration("250ms", &d));
  EXPECT_EQ(d, 0.25);
  cr_expect(parse_duration("1.5h", &d));
  EXPECT_EQ(d, 5400);
  cr_expect_not(parse_duration("90 s", &d));
  cr_expect(parse_fraction("80%", &d));
  EXPECT_GT(d, 0.799);
  EXPECT_LT(d, 0.801);
  cr_expect_not(parse_fraction("80 %", &d));
}

Test(config, dump_masks_keys_and_reads_back) {
  ASSERT_EQ(load("m --api-key secret --admin-key secret2 --port 77 --max-queue-time 1.5s"), 0);
  char *text = NULL;
  size_t length = 0;
  FILE *out = open_memstream(&text, &length);
  config_dump(&config, out);
  fclose(out);
  config_free(&config);
  EXPECT_EQ(strstr(text, "secret"), NULL);
  cr_expect(strstr(text, "api_key = ***  # flag\n") != NULL);
  cr_expect(strstr(text, "port = 77  # flag\n") != NULL);
  ASSERT_EQ_FOR(load_text(text), 0, "%s", error.message);
  EXPECT_EQ(config.port, 77);
  cr_expect_float_eq(config.max_queue_time, 1.5, 1e-9);
  config_free(&config);
  free(text);
}

Test(config, help_fits_a_screen) {
  char *text = NULL;
  size_t length = 0;
  FILE *out = open_memstream(&text, &length);
  int shown = config_help(out, NULL);
  int all = config_help(out, "all");
  EXPECT_LE(shown, 22);
  EXPECT_EQ(all, OPTION_COUNT);
  EXPECT_GT(config_help(out, "memory"), 3);
  EXPECT_EQ(config_help(out, "no such word"), 0);
  fclose(out);
  free(text);
}

/* Random lines may be refused but never crash, and a refusal has a reason. */
Test(config, random_files) {
  static const char *const pieces[] = {
      "port", "=",    " ",       "\n", "#",    "\"",  "1",      "k",    "[x]", ",",
      "-",    "host", "api_key", "\t", "\xff", "GiB", "listen", "true", "%",   "max_body_bytes",
      ".",    "auto"};
  unsigned state = 99;
  for (int round = 0; round < 3000; round++) {
    char text[256] = "";
    for (int i = 0; i < 14; i++) {
      state = state * 1664525u + 1013904223u;
      strcat(text, pieces[(state >> 16) % (sizeof pieces / sizeof pieces[0])]);
    }
    int rc = load_text(text);
    cr_assert(rc == 0 || error.message[0] != '\0', "%s", text);
    config_free(&config);
  }
}

Test(config, further_words_are_further_models) {
  ASSERT_EQ_FOR(load("one two --port 1 three --models four,five"), 0, "%s", error.message);
  EXPECT_STR_EQ(config.model, "one");
  ASSERT_EQ(config.models.count, 4);
  EXPECT_STR_EQ(config.models.items[0], "two");
  EXPECT_STR_EQ(config.models.items[1], "three");
  EXPECT_STR_EQ(config.models.items[3], "five");
  config_free(&config);
}

Test(config, a_section_is_a_model_with_options_of_its_own) {
  ASSERT_EQ_FOR(load_text("port = 1\n[model a]\nmodel = /m/a # where\naliases = x, y\npin = yes\n"
                          "idle-unload = 10m\npriority = -3\nmax-model-len = 4096\n"
                          "[model org/b:Q4_K_M]\npreload = true\n"),
                0, "%s", error.message);
  EXPECT_EQ(config.port, 1);
  ASSERT_EQ(config.num_sections, 2);
  const config_model_t *a = &config.sections[0];
  EXPECT_STR_EQ(a->name, "a");
  ASSERT_EQ(a->lines.count, 6);
  EXPECT_STR_EQ(a->lines.items[0], "model=/m/a");
  EXPECT_STR_EQ(a->lines.items[1], "aliases=x, y");
  EXPECT_STR_EQ(a->lines.items[3], "idle_unload=10m");
  EXPECT_STR_EQ(a->lines.items[5], "max_model_len=4096");
  EXPECT_STR_EQ(config.sections[1].name, "org/b:Q4_K_M");
  config_free(&config);
  EXPECT_EQ(config.num_sections, 0);
}

Test(config, sections_are_checked_line_by_line) {
  expect_file_error("[model]\n", "line 1: a section is [model NAME]");
  expect_file_error("[model a\n", "line 1: a section is [model NAME]");
  expect_file_error("[model a b]\n", "line 1: a section is [model NAME]");
  expect_file_error("[model a]\n[model a]\n", "line 2: a second section [model a]");
  expect_file_error("[model a]\nprot = 1\n", "line 2: prot is unknown; did you mean port?");
  expect_file_error("[model a]\nport = 1\n", "line 2: port is not set for one model of several");
  expect_file_error("[model a]\nmodels_dir = /m\n", "line 2: models_dir is not set for one model");
  expect_file_error("[model a]\nmax_num_seqs = x\n", "line 2: max_num_seqs: 'x' is not valid");
  expect_file_error("[model a]\npin = perhaps\n", "line 2: pin: 'perhaps' is not valid");
  expect_file_error("[model a]\nidle_unload = soon\n", "line 2: idle_unload: 'soon' is not valid");
  expect_file_error("[model a]\npriority = 1001\n", "line 2: priority: '1001' is not valid");
  expect_file_error("[model a]\npin = yes\npin = no\n", "line 3: pin was already set in [model a]");
  for (int limit = -1000; limit <= 1000; limit += 2000) {
    char text[64];
    snprintf(text, sizeof text, "[model a]\npriority = %d\n", limit);
    EXPECT_EQ_FOR(load_text(text), 0, "%s", error.message);
    config_free(&config);
  }
}

Test(config, a_value_as_text_is_read_as_the_same_value) {
  ASSERT_EQ_FOR(
      load("m --kv-cache-bytes 1GiB --drain-timeout 1500ms --memory 0.25 --swap-space 1.5 "
           "--served-model-name a --dtype half --no-access-log"),
      0, "%s", error.message);
  const struct {
    enum config_option option;
    const char *text;
  } rows[] = {{OPTION_kv_cache_bytes, "1073741824"},
              {OPTION_drain_timeout, "1.5"},
              {OPTION_memory, "0.25"},
              {OPTION_swap_space, "1.5"},
              {OPTION_served_model_name, "[\"a\"]"},
              {OPTION_dtype, "half"},
              {OPTION_access_log, "false"}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    char *text = config_text(&config, rows[i].option), name[80] = "INFERD_";
    EXPECT_STR_EQ(text, rows[i].text);
    for (const char *p = config_name(rows[i].option); *p != '\0'; p++)
      snprintf(name + strlen(name), 2, "%c", toupper((unsigned char)*p));
    config_t again;
    setenv(name, text, 1);
    ASSERT_EQ_FOR(config_load(&again, 0, NULL, &error), 0, "%s", error.message);
    cr_expect(config_same(&config, &again, rows[i].option), "%s", name);
    unsetenv(name);
    free(text);
    config_free(&again);
  }
  config_free(&config);
}
