/* throughput.c: `inferd bench throughput`: the engine in this process, without HTTP.
 *
 * Prefill and decode rates of a model directory at given batch sizes; `--dummy` needs config.json
 * and a tokenizer only. The main thread plays the loop thread.
 */
#include "server/bench/bench.h"

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

typedef struct progress {
  int num_done, num_failed;
  long output_tokens;
  uint64_t first_token_ns, last_first_token_ns, end_ns;
} progress_t;

static void on_event(void *context, const event_t *event) {
  progress_t *p = context;
  if (event->kind == EVENT_TOKEN) {
    p->output_tokens++;
    if (event->position == 0) p->last_first_token_ns = clock_now_ns();
    if (event->position == 0 && !p->first_token_ns) p->first_token_ns = clock_now_ns();
  } else if (event->kind == EVENT_DONE) {
    p->num_done++;
    p->num_failed += event->finish == FINISH_ERROR;
    p->end_ns = clock_now_ns();
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

static int parse(int argc, char **argv, offline_t *o) {
  engine_options_default(&o->engine);
  *o = (offline_t){.engine = o->engine, .concurrency = 8, .input_len = 128, .output_len = 64};
  o->engine.seed = 1;
  o->engine.log = say;
  for (int c; (c = getopt_long(argc, argv, "", long_options, NULL)) != -1;) {
    switch (c) {
    case 'i': o->input_len = atoi(optarg); break;
    case 'o': o->output_len = atoi(optarg); break;
    case 'c': o->concurrency = atoi(optarg); break;
    case 't': o->engine.num_threads = atoi(optarg); break;
    case 'a': o->engine.isa = optarg; break;
    case 'b': o->engine.max_num_batched_tokens = atoi(optarg); break;
    case 'y': o->engine.dtype = optarg; break;
    case 'd': o->engine.dummy_weights = true; break;
    default: return 64;
    }
  }
  if (optind != argc - 1 || o->concurrency < 1 || o->input_len < 1 || o->output_len < 1) {
    fprintf(stderr, "usage: inferd bench throughput MODEL_DIR [--dummy] [--concurrency N] "
                    "[--input-len N] [--output-len N] [--threads N] [--isa TIER] "
                    "[--batched-tokens N] [--dtype TYPE]\n");
    return 64;
  }
  o->engine.model_dir = argv[optind];
  o->engine.max_num_seqs = o->concurrency;
  o->engine.max_queue_requests = o->concurrency;
  o->engine.max_queue_time_s = 0;
  o->engine.max_queue_tokens = INT64_MAX;
  if (o->engine.max_num_batched_tokens < o->concurrency) {
    o->engine.max_num_batched_tokens = o->concurrency;
  }
  return 0;
}

static request_t *make_request(const offline_t *o, int index, int vocab_size) {
  request_t *r = calloc(1, sizeof *r);
  int32_t *ids = calloc((size_t)o->input_len, sizeof *ids);
  uint64_t state = (uint64_t)index + 1;
  if (r == NULL || ids == NULL) abort();
  for (int i = 0; i < o->input_len; i++) {
    ids[i] = (int32_t)(bench_uniform(&state) * (vocab_size - 1));
  }
  r->prompt_ids = ids;
  r->num_prompt_tokens = o->input_len;
  r->arrival_ns = clock_now_ns();
  r->params = (sampling_params_t){
      .top_p = 1,
      .repetition_penalty = 1,
      .max_tokens = o->output_len,
      .ignore_eos = true,
      .num_logprobs = -1,
      .num_prompt_logprobs = -1,
  };
  return r;
}

static int run(const offline_t *o, engine_t *engine) {
  const engine_info_t *info = engine_info(engine);
  request_t **requests = calloc((size_t)o->concurrency, sizeof(request_t *));
  progress_t p = {0};
  error_t error = {0};
  if (requests == NULL) abort();
  for (int i = 0; i < o->concurrency; i++) requests[i] = make_request(o, i, info->vocab_size);
  uint64_t start_ns = clock_now_ns();
  int code = engine_submit(engine, requests, o->concurrency, &error);
  if (code) fprintf(stderr, "inferd-bench: %s\n", error.message);
  while (!code && p.num_done < o->concurrency) {
    engine_drain(engine, on_event, &p);
    nap();
  }
  for (int i = 0; i < o->concurrency; i++) {
    free((void *)(uintptr_t)requests[i]->prompt_ids);
    free(requests[i]);
  }
  free(requests);
  if (code || p.num_failed) return 1;
  engine_stats_t stats;
  engine_stats(engine, &stats);
  double prefill_s = (double)(p.last_first_token_ns - start_ns) / 1e9;
  double decode_s = (double)(p.end_ns - p.last_first_token_ns) / 1e9;
  long decoded = p.output_tokens - o->concurrency;
  printf("throughput: %s, %s: %d x (%d + %d tokens)\n", info->architecture, info->device,
         o->concurrency, o->input_len, o->output_len);
  printf("  until the last first token %.3f s: %.1f prompt tokens/s\n", prefill_s,
         (double)o->concurrency * o->input_len / prefill_s);
  printf("  decode after it            %.3f s: %.1f tokens/s\n", decode_s,
         decode_s > 0 ? (double)decoded / decode_s : 0);
  printf("  %.0f steps, overhead %.1f us per step\n", (double)stats.steps,
         (double)stats.overhead_ns / (double)stats.steps / 1e3);
  return 0;
}

int bench_throughput(int argc, char **argv) {
  offline_t o;
  engine_t *engine;
  error_t error = {0};
  int code = parse(argc, argv, &o);
  if (code) return code;
  if (engine_create(&o.engine, &engine, &error) != 0) {
    fprintf(stderr, "inferd-bench: %s\n", error.message);
    return error_exit_code(error.code);
  }
  while (engine_state(engine) == ENGINE_LOADING) nap();
  if (engine_state(engine) == ENGINE_FAILED) {
    engine_failure(engine, &error);
    fprintf(stderr, "inferd-bench: %s\n", error.message);
    code = error_exit_code(error.code);
  } else if ((int64_t)o.input_len + o.output_len > engine_info(engine)->max_model_len) {
    fprintf(stderr,
            "inferd-bench: --input-len %d and --output-len %d are more than the context, %d\n",
            o.input_len, o.output_len, engine_info(engine)->max_model_len);
    code = 64;
  } else {
    code = run(&o, engine);
  }
  engine_destroy(engine);
  return code;
}
