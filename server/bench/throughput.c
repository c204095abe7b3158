/* throughput.c: `inferd bench throughput`: the engine in this process, without HTTP.
 *
 * Prefill and decode rates of a model directory at given batch sizes; `--dummy` needs config.json
 * and a tokenizer only. The main thread plays the loop thread.
 */
#include "server/bench/bench.h"

#include "engine/base/checked.h"
#include "engine/base/clock.h"
#include "engine/engine.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct offline {
  engine_options_t engine;
  int concurrency, input_len, output_len;
} offline_t;

typedef struct throughput_progress {
  int num_done, num_failed;
  long output_tokens;
  uint64_t first_token_ns, last_first_token_ns, end_ns;
} throughput_progress_t;

static void on_event(void *context, const event_t *event) {
  throughput_progress_t *progress = context;
  if (event->kind == EVENT_TOKEN) {
    progress->output_tokens++;
    if (event->position == 0) progress->last_first_token_ns = clock_now_ns();
    if (event->position == 0 && !progress->first_token_ns)
      progress->first_token_ns = clock_now_ns();
  } else if (event->kind == EVENT_DONE) {
    progress->num_done++;
    progress->num_failed += event->finish == FINISH_ERROR;
    progress->end_ns = clock_now_ns();
  }
}

static void nap(void) {
  nanosleep(&(struct timespec){0, 500000}, NULL);
}

static void say(void *context, const char *line) {
  (void)context;
  fprintf(stderr, "  %s\n", line);
}

static const struct option long_options[] = {
    {"input-len", required_argument, NULL, 'i'},
    {"output-len", required_argument, NULL, 'o'},
    {"concurrency", required_argument, NULL, 'c'},
    {"threads", required_argument, NULL, 't'},
    {"isa", required_argument, NULL, 'a'},
    {"dummy", no_argument, NULL, 'd'},
    {"batched-tokens", required_argument, NULL, 'b'},
    {"dtype", required_argument, NULL, 'y'},
    {NULL, 0, NULL, 0},
};

static int parse(int argc, char **argv, offline_t *offline) {
  engine_options_default(&offline->engine);
  *offline =
      (offline_t){.engine = offline->engine, .concurrency = 8, .input_len = 128, .output_len = 64};
  offline->engine.seed = 1;
  offline->engine.log = say;
  for (int c; (c = getopt_long(argc, argv, "", long_options, NULL)) != -1;) {
    switch (c) {
    case 'i': offline->input_len = atoi(optarg); break;
    case 'o': offline->output_len = atoi(optarg); break;
    case 'c': offline->concurrency = atoi(optarg); break;
    case 't': offline->engine.num_threads = atoi(optarg); break;
    case 'a': offline->engine.isa = optarg; break;
    case 'b': offline->engine.max_num_batched_tokens = atoi(optarg); break;
    case 'y': offline->engine.dtype = optarg; break;
    case 'd': offline->engine.dummy_weights = true; break;
    default: return 64;
    }
  }
  if (optind != argc - 1 || offline->concurrency < 1 || offline->input_len < 1 ||
      offline->output_len < 1) {
    fprintf(stderr, "usage: inferd bench throughput MODEL_DIR [--dummy] [--concurrency N] "
                    "[--input-len N] [--output-len N] [--threads N] [--isa TIER] "
                    "[--batched-tokens N] [--dtype TYPE]\n");
    return 64;
  }
  offline->engine.model_dir = argv[optind];
  offline->engine.max_num_seqs = offline->concurrency;
  offline->engine.max_queue_requests = offline->concurrency;
  offline->engine.max_queue_time_s = 0;
  offline->engine.max_queue_tokens = INT64_MAX;
  if (offline->engine.max_num_batched_tokens < offline->concurrency) {
    offline->engine.max_num_batched_tokens = offline->concurrency;
  }
  return 0;
}

/* `ids` [input_len] must live as long as the request. */
static request_t *make_request(const offline_t *offline, int index, int vocab_size, int32_t *ids) {
  request_t *request = calloc(1, sizeof *request);
  uint64_t state = (uint64_t)index + 1;
  if (request == NULL) abort();
  for (int i = 0; i < offline->input_len; i++) {
    ids[i] = (int32_t)(bench_uniform(&state) * (vocab_size - 1));
  }
  request->prompt_ids = ids;
  request->num_prompt_tokens = offline->input_len;
  request->arrival_ns = clock_now_ns();
  request->params = (sampling_params_t){
      .top_p = 1,
      .repetition_penalty = 1,
      .max_tokens = offline->output_len,
      .ignore_eos = true,
      .num_logprobs = -1,
      .num_prompt_logprobs = -1,
  };
  return request;
}

static int run(const offline_t *offline, engine_t *engine) {
  const engine_info_t *info = engine_info(engine);
  size_t count = (size_t)offline->concurrency, length = (size_t)offline->input_len, num_ids;
  request_t **requests = calloc(count, sizeof(request_t *));
  int32_t *ids = checked_mul(count, length, &num_ids) ? calloc(num_ids, sizeof *ids) : NULL;
  throughput_progress_t progress = {0};
  inferd_error_t error = {0};
  if (requests == NULL || ids == NULL) abort();
  for (int i = 0; i < offline->concurrency; i++)
    requests[i] = make_request(offline, i, info->vocab_size, ids + (size_t)i * length);
  uint64_t start_ns = clock_now_ns();
  int code = engine_submit(engine, requests, offline->concurrency, &error);
  if (code) fprintf(stderr, "inferd-bench: %s\n", error.message);
  while (!code && progress.num_done < offline->concurrency) {
    engine_drain(engine, on_event, &progress);
    nap();
  }
  for (int i = 0; i < offline->concurrency; i++) free(requests[i]);
  free(requests);
  free(ids);
  if (code || progress.num_failed) return 1;
  engine_stats_t stats;
  engine_stats(engine, &stats);
  double prefill_s = (double)(progress.last_first_token_ns - start_ns) / 1e9;
  double decode_s = (double)(progress.end_ns - progress.last_first_token_ns) / 1e9;
  long decoded = progress.output_tokens - offline->concurrency;
  printf("throughput: %s, %s: %d x (%d + %d tokens)\n", info->architecture, info->device,
         offline->concurrency, offline->input_len, offline->output_len);
  printf("  until the last first token %.3f s: %.1f prompt tokens/s\n", prefill_s,
         (double)offline->concurrency * offline->input_len / prefill_s);
  printf("  decode after it            %.3f s: %.1f tokens/s\n", decode_s,
         decode_s > 0 ? (double)decoded / decode_s : 0);
  printf("  %.0f steps, overhead %.1f us per step\n", (double)stats.steps,
         (double)stats.overhead_ns / (double)stats.steps / 1e3);
  return 0;
}

int bench_throughput(int argc, char **argv) {
  offline_t offline;
  engine_t *engine;
  inferd_error_t error = {0};
  int code = parse(argc, argv, &offline);
  if (code) return code;
  if (engine_create(&offline.engine, &engine, &error) != 0) {
    fprintf(stderr, "inferd-bench: %s\n", error.message);
    return error_exit_code(error.code);
  }
  while (engine_state(engine) == ENGINE_LOADING) nap();
  if (engine_state(engine) == ENGINE_FAILED) {
    engine_failure(engine, &error);
    fprintf(stderr, "inferd-bench: %s\n", error.message);
    code = error_exit_code(error.code);
  } else if ((int64_t)offline.input_len + offline.output_len > engine_info(engine)->max_model_len) {
    fprintf(stderr,
            "inferd-bench: --input-len %d and --output-len %d are more than the context, %d\n",
            offline.input_len, offline.output_len, engine_info(engine)->max_model_len);
    code = 64;
  } else {
    code = run(&offline, engine);
  }
  engine_destroy(engine);
  return code;
}
