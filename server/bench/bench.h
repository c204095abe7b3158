/* bench.h: `inferd bench`: load for any OpenAI-compatible server, and what came of it.
 *
 * A program of its own (build/inferd-bench), so that the daemon does not carry an HTTP client.
 * Everything runs on one thread.
 */
#ifndef INFERD_SERVER_BENCH_BENCH_H
#define INFERD_SERVER_BENCH_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct bench_options {
  const char *base_url; /* http://127.0.0.1:8000 */
  const char *model;    /* NULL = the server's first */
  const char *api_key;
  const char *json_path; /* results as JSON; NULL = none */
  const char *label;     /* a word for the JSON and the table */
  int num_requests;
  int concurrency;     /* closed loop: so many at once; a cap in the open loop; 0 = no bound */
  double request_rate; /* open loop: Poisson arrivals per second; 0 = closed loop */
  int input_len, output_len; /* tokens */
  int prefix_len;            /* leading tokens shared by all prompts */
  int vocab_size;            /* ids are drawn from [first_id, vocab_size) */
  int first_id;
  bool text_prompts; /* words instead of token ids: for servers without id prompts */
  bool stream;
  double temperature;
  uint64_t seed;
  double ttft_slo_ms, tpot_slo_ms; /* goodput counts requests within both; 0 = no bound */
  bool quiet;                      /* no progress lines */
  const char *extra_body;          /* a JSON object of further members; NULL = none */
} bench_options_t;

/* One finished request; times in milliseconds. Waiting for the cap of an open loop counts: ttft and
 * e2e begin with the arrival. */
typedef struct bench_result {
  bool ok, has_usage;
  int status; /* of HTTP; 429 = refused for lack of room */
  double start_ms, ttft_ms, e2e_ms;
  double tpot_ms; /* last token after the first / (tokens - 1) */
  int prompt_tokens, cached_tokens, output_tokens;
} bench_result_t;

typedef struct bench_run {
  bench_result_t *results; /* [num_requests] */
  double *itl_ms;          /* gaps between chunks of one stream */
  size_t num_itl, itl_capacity;
  double duration_s;
  char model[256]; /* the name that was asked for */
  char first_error[256];
} bench_run_t;

typedef struct bench_totals {
  int ok, good;      /* answered; answered within the bounds of goodput */
  int refused;       /* 429 */
  int short_answers; /* fewer tokens than asked for */
  int without_usage; /* tokens counted by chunks */
  long prompt_tokens, cached_tokens, output_tokens;
} bench_totals_t;

/* client.c: sends the whole load; 0 or an exit code with a message on stderr. */
int bench_client_run(const bench_options_t *options, bench_run_t *run);
/* workload.c: the body of request `index`, malloc'ed. A NULL model is left out. */
char *bench_body(const bench_options_t *options, const char *model, int index);
double bench_uniform(uint64_t *state); /* [0, 1), splitmix64 */
/* report.c: returns the percentile by nearest rank: the smallest of the `count` ascending values
 * such that at least `percent` percent of them are not greater. 0 if there are no values. */
double bench_percentile(const double *values, size_t count, double percent);
void bench_sort(double *values, size_t count); /* ascending; `values` may be NULL if count is 0 */
/* Sums up the num_requests results; tokens are those of answered requests only. */
bench_totals_t bench_totals(const bench_options_t *options, const bench_run_t *run);
/* Prints the table on stdout and writes the JSON file, if there is a path. Sorts run->itl_ms in
 * place. Returns 0 or an exit code: 74 if the file cannot be written, else 1 if a request failed or
 * was refused. */
int bench_report(const bench_options_t *options, bench_run_t *run);
/* number.c: false unless all of `text` is a number within bounds. */
bool bench_int(const char *text, int min, int max, int *out);
bool bench_number(const char *text, double min, double max, double *out);
/* throughput.c: the engine in this process, without HTTP. */
int bench_throughput(int argc, char **argv);
/* streams.c: steadiness of many streams. */
int bench_streams(int argc, char **argv);

#endif
