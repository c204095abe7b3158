/* main.c: inferd-bench, the program behind `inferd bench serve|streams|throughput`. */
#include "server/bench/bench.h"

#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage_text[] =
    "usage: inferd bench serve [options]       load for any OpenAI-compatible server\n"
    "       inferd bench streams [options]     steadiness of many slow streams\n"
    "       inferd bench throughput MODEL_DIR  the engine alone, without HTTP\n"
    "\n"
    "serve options (default):\n"
    "  --base-url URL      (http://127.0.0.1:8000)      --model NAME   --api-key KEY\n"
    "  --num-requests N    (100)                        --label WORD   --json FILE   --quiet\n"
    "  --concurrency N     N at once (8)                --request-rate R  open loop: Poisson, "
    "R/s,\n"
    "                                                   then --concurrency is a cap (0 = none)\n"
    "  --input-len N       prompt tokens (128)          --output-len N    (64)\n"
    "  --prefix-len N      leading tokens shared by all prompts (0)\n"
    "  --vocab-size N      prompt ids are drawn below N (32000)   --first-id N  (100)\n"
    "  --text              prompts of words instead of token ids\n"
    "  --no-stream         whole answers instead of SSE   --temperature T (0)   --seed N (1)\n"
    "  --extra-body JSON   an object whose members every request carries as well\n"
    "  --ttft-slo MS --tpot-slo MS   goodput counts requests within both (0 = no bound)\n";

enum {
  OPT_URL = 256,
  OPT_MODEL,
  OPT_KEY,
  OPT_N,
  OPT_LABEL,
  OPT_JSON,
  OPT_QUIET,
  OPT_CONCURRENCY,
  OPT_RATE,
  OPT_INPUT,
  OPT_OUTPUT,
  OPT_PREFIX,
  OPT_VOCAB,
  OPT_FIRST,
  OPT_TEXT,
  OPT_NO_STREAM,
  OPT_TEMPERATURE,
  OPT_SEED,
  OPT_EXTRA,
  OPT_TTFT,
  OPT_TPOT
};

static const struct option long_options[] = {
    {"base-url", required_argument, NULL, OPT_URL},
    {"model", required_argument, NULL, OPT_MODEL},
    {"api-key", required_argument, NULL, OPT_KEY},
    {"num-requests", required_argument, NULL, OPT_N},
    {"label", required_argument, NULL, OPT_LABEL},
    {"json", required_argument, NULL, OPT_JSON},
    {"quiet", no_argument, NULL, OPT_QUIET},
    {"concurrency", required_argument, NULL, OPT_CONCURRENCY},
    {"request-rate", required_argument, NULL, OPT_RATE},
    {"input-len", required_argument, NULL, OPT_INPUT},
    {"output-len", required_argument, NULL, OPT_OUTPUT},
    {"prefix-len", required_argument, NULL, OPT_PREFIX},
    {"vocab-size", required_argument, NULL, OPT_VOCAB},
    {"first-id", required_argument, NULL, OPT_FIRST},
    {"text", no_argument, NULL, OPT_TEXT},
    {"no-stream", no_argument, NULL, OPT_NO_STREAM},
    {"temperature", required_argument, NULL, OPT_TEMPERATURE},
    {"seed", required_argument, NULL, OPT_SEED},
    {"extra-body", required_argument, NULL, OPT_EXTRA},
    {"ttft-slo", required_argument, NULL, OPT_TTFT},
    {"tpot-slo", required_argument, NULL, OPT_TPOT},
    {NULL, 0, NULL, 0},
};

/* The server says what is wrong with the members. */
static bool is_object(const char *text) {
  size_t length = strlen(text);
  return length > 2 && text[0] == '{' && text[length - 1] == '}';
}

static bool set_option(bench_options_t *options, int option, const char *value) {
  enum { MANY = 1 << 30 };
  int seed;
  switch (option) {
  case OPT_URL: options->base_url = value; return true;
  case OPT_MODEL: options->model = value; return true;
  case OPT_KEY: options->api_key = value; return true;
  case OPT_LABEL: options->label = value; return true;
  case OPT_JSON: options->json_path = value; return true;
  case OPT_QUIET: options->quiet = true; return true;
  case OPT_EXTRA: options->extra_body = value; return is_object(value);
  case OPT_TEXT: options->text_prompts = true; return true;
  case OPT_NO_STREAM: options->stream = false; return true;
  case OPT_N: return bench_int(value, 1, 10000000, &options->num_requests);
  case OPT_CONCURRENCY: return bench_int(value, 0, 1000000, &options->concurrency);
  case OPT_RATE: return bench_number(value, 0, 1e6, &options->request_rate);
  case OPT_INPUT: return bench_int(value, 1, 1 << 24, &options->input_len);
  case OPT_OUTPUT: return bench_int(value, 1, 1 << 24, &options->output_len);
  case OPT_PREFIX: return bench_int(value, 0, 1 << 24, &options->prefix_len);
  case OPT_VOCAB: return bench_int(value, 1, MANY, &options->vocab_size);
  case OPT_FIRST: return bench_int(value, 0, MANY, &options->first_id);
  case OPT_TEMPERATURE: return bench_number(value, 0, 100, &options->temperature);
  case OPT_TTFT: return bench_number(value, 0, 1e9, &options->ttft_slo_ms);
  case OPT_TPOT: return bench_number(value, 0, 1e9, &options->tpot_slo_ms);
  case OPT_SEED:
    if (!bench_int(value, 0, MANY, &seed)) return false;
    options->seed = (uint64_t)seed;
    return true;
  default: return false;
  }
}

static const char *why_not(const bench_options_t *options) {
  if (options->prefix_len > options->input_len) return "--prefix-len is more than --input-len";
  if (options->first_id >= options->vocab_size) return "--first-id is not below --vocab-size";
  if (options->concurrency == 0 && options->request_rate <= 0)
    return "--concurrency 0 needs a --request-rate";
  if (!options->stream && (options->ttft_slo_ms > 0 || options->tpot_slo_ms > 0)) {
    return "the bounds of goodput need streams";
  }
  return NULL;
}

static int serve(int argc, char **argv) {
  enum { NOT_GIVEN = -1 };
  bench_options_t options = {
      .base_url = "http://127.0.0.1:8000",
      .num_requests = 100,
      .concurrency = NOT_GIVEN,
      .input_len = 128,
      .output_len = 64,
      .vocab_size = 32000,
      .first_id = 100,
      .stream = true,
      .seed = 1,
  };
  for (int c, index = 0; (c = getopt_long(argc, argv, "", long_options, &index)) != -1;) {
    if (set_option(&options, c, optarg)) continue;
    if (c != '?') {
      fprintf(stderr, "inferd-bench: --%s: '%s' is not valid\n", long_options[index].name, optarg);
    }
    fputs("see inferd bench --help\n", stderr);
    return 64;
  }
  if (options.concurrency == NOT_GIVEN) options.concurrency = options.request_rate > 0 ? 0 : 8;
  const char *wrong = optind < argc ? argv[optind] : why_not(&options);
  if (wrong != NULL) {
    fprintf(stderr, "inferd-bench: %s\n%s", wrong, usage_text);
    return 64;
  }
  bench_run_t run = {.results = calloc((size_t)options.num_requests, sizeof(bench_result_t))};
  if (run.results == NULL) abort();
  int code = bench_client_run(&options, &run);
  if (!code) code = bench_report(&options, &run);
  free(run.results);
  free(run.itl_ms);
  return code;
}

int main(int argc, char **argv) {
  signal(SIGPIPE, SIG_IGN);
  const char *command = argc > 1 ? argv[1] : "";
  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], "--help") != 0 && strcmp(argv[i], "-h") != 0) continue;
    fputs(usage_text, stdout);
    return 0;
  }
  if (strcmp(command, "serve") == 0) return serve(argc - 1, argv + 1);
  if (strcmp(command, "throughput") == 0) return bench_throughput(argc - 1, argv + 1);
  if (strcmp(command, "streams") == 0) return bench_streams(argc - 1, argv + 1);
  fputs(usage_text, stderr);
  return 64;
}
