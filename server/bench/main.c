/* main.c: inferd-bench, what `inferd bench serve` and `inferd bench throughput` run. */
#include "server/bench/bench.h"

#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage_text[] =
    "usage: inferd bench serve [options]       load for any OpenAI-compatible server\n"
    "       inferd bench throughput MODEL_DIR  the engine alone, without HTTP\n"
    "\n"
    "serve options (default):\n"
    "  --base-url URL      (http://127.0.0.1:8000)      --model NAME   --api-key KEY\n"
    "  --num-requests N    (100)                        --label WORD   --json FILE   --quiet\n"
    "  --concurrency N     closed loop: N at once (8)   --request-rate R  open loop: Poisson, R/s\n"
    "  --input-len N       prompt tokens (128)          --output-len N    (64)\n"
    "  --prefix-len N      leading tokens shared by all prompts (0)\n"
    "  --vocab-size N      prompt ids are drawn below N (32000)   --first-id N  (100)\n"
    "  --text              prompts of words instead of token ids\n"
    "  --no-stream         whole answers instead of SSE   --temperature T (0)   --seed N (1)\n"
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
    {"ttft-slo", required_argument, NULL, OPT_TTFT},
    {"tpot-slo", required_argument, NULL, OPT_TPOT},
    {NULL, 0, NULL, 0},
};

static bool set_option(bench_options_t *o, int option, const char *value) {
  switch (option) {
  case OPT_URL: o->base_url = value; break;
  case OPT_MODEL: o->model = value; break;
  case OPT_KEY: o->api_key = value; break;
  case OPT_N: o->num_requests = atoi(value); break;
  case OPT_LABEL: o->label = value; break;
  case OPT_JSON: o->json_path = value; break;
  case OPT_QUIET: o->quiet = true; break;
  case OPT_CONCURRENCY: o->concurrency = atoi(value); break;
  case OPT_RATE: o->request_rate = atof(value); break;
  case OPT_INPUT: o->input_len = atoi(value); break;
  case OPT_OUTPUT: o->output_len = atoi(value); break;
  case OPT_PREFIX: o->prefix_len = atoi(value); break;
  case OPT_VOCAB: o->vocab_size = atoi(value); break;
  case OPT_FIRST: o->first_id = atoi(value); break;
  case OPT_TEXT: o->text_prompts = true; break;
  case OPT_NO_STREAM: o->stream = false; break;
  case OPT_TEMPERATURE: o->temperature = atof(value); break;
  case OPT_SEED: o->seed = strtoull(value, NULL, 10); break;
  case OPT_TTFT: o->ttft_slo_ms = atof(value); break;
  case OPT_TPOT: o->tpot_slo_ms = atof(value); break;
  default: return false;
  }
  return true;
}

static bool sensible(const bench_options_t *o) {
  return o->num_requests > 0 && o->concurrency >= 0 && o->request_rate >= 0 && o->input_len > 0 &&
         o->output_len > 0 && o->prefix_len >= 0 && o->prefix_len <= o->input_len &&
         o->first_id >= 0 && o->vocab_size > o->first_id;
}

static int serve(int argc, char **argv) {
  bench_options_t o = {
      .base_url = "http://127.0.0.1:8000",
      .num_requests = 100,
      .concurrency = 8,
      .input_len = 128,
      .output_len = 64,
      .vocab_size = 32000,
      .first_id = 100,
      .stream = true,
      .seed = 1,
  };
  bool valid = true;
  for (int c; valid && (c = getopt_long(argc, argv, "", long_options, NULL)) != -1;) {
    valid = set_option(&o, c, optarg);
  }
  if (!valid || optind != argc || !sensible(&o)) {
    fputs(usage_text, stderr);
    return 64;
  }
  bench_run_t run = {.results = calloc((size_t)o.num_requests, sizeof(bench_result_t))};
  if (!run.results) abort();
  int code = bench_client_run(&o, &run);
  if (!code) code = bench_report(&o, &run);
  free(run.results);
  free(run.itl_ms);
  return code;
}

int main(int argc, char **argv) {
  signal(SIGPIPE, SIG_IGN);
  const char *command = argc > 1 ? argv[1] : "";
  if (strcmp(command, "serve") == 0) return serve(argc - 1, argv + 1);
  if (strcmp(command, "throughput") == 0) return bench_throughput(argc - 1, argv + 1);
  bool asked = strcmp(command, "--help") == 0 || strcmp(command, "help") == 0;
  fputs(usage_text, asked ? stdout : stderr);
  return asked ? 0 : 64;
}
