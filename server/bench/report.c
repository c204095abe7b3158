/* report.c: turns the results of a benchmark run into totals, percentiles, a table and JSON.
 *
 * Runs on the only thread of inferd-bench, after the last request. It sends nothing. Times are in
 * milliseconds, the duration of the run in seconds. If there is no memory for a series, the program
 * aborts.
 */
#include "engine/base/util.h"
#include "server/bench/bench.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct series {
  double *values; /* [count] milliseconds, ascending when they are printed */
  size_t count;
} series_t;

static int compare(const void *left, const void *right) {
  double x = *(const double *)left, y = *(const double *)right;
  return (x > y) - (x < y);
}

void bench_sort(double *values, size_t count) {
  if (count > 0) qsort(values, count, sizeof *values, compare);
}

double bench_percentile(const double *values, size_t count, double percent) {
  if (count == 0) return 0;
  /* The epsilon undoes rounding, which could raise a whole rank by one. */
  double rank = ceil(percent / 100 * (double)count - 1e-9);
  return values[rank < 1 ? 0 : (size_t)rank > count ? count - 1 : (size_t)rank - 1];
}

static double mean(const series_t *series) {
  double sum = 0;
  for (size_t i = 0; i < series->count; i++) sum += series->values[i];
  return series->count ? sum / (double)series->count : 0;
}

bench_totals_t bench_totals(const bench_options_t *options, const bench_run_t *run) {
  bench_totals_t totals = {0};
  for (int i = 0; i < options->num_requests; i++) {
    const bench_result_t *result = &run->results[i];
    totals.refused += result->status == 429;
    if (!result->ok) continue;
    totals.ok++;
    totals.prompt_tokens += result->prompt_tokens;
    totals.cached_tokens += result->cached_tokens;
    totals.output_tokens += result->output_tokens;
    totals.short_answers += result->output_tokens < options->output_len;
    totals.without_usage += !result->has_usage;
    totals.good += (options->ttft_slo_ms <= 0 || result->ttft_ms <= options->ttft_slo_ms) &&
                   (options->tpot_slo_ms <= 0 || result->tpot_ms <= options->tpot_slo_ms);
  }
  return totals;
}

/* Returns the sorted values of the answered requests, or of the refused ones (429). The caller
 * frees series.values. */
static series_t collect(const bench_options_t *options, const bench_run_t *run, bool refused,
                        double (*value)(const bench_result_t *)) {
  series_t series = {.values = calloc((size_t)options->num_requests + 1, sizeof(double))};
  if (series.values == NULL) abort();
  for (int i = 0; i < options->num_requests; i++) {
    const bench_result_t *result = &run->results[i];
    if (refused ? result->status == 429 : result->ok) series.values[series.count++] = value(result);
  }
  bench_sort(series.values, series.count);
  return series;
}

static double ttft(const bench_result_t *result) {
  return result->ttft_ms;
}
static double tpot(const bench_result_t *result) {
  return result->tpot_ms;
}
static double e2e(const bench_result_t *result) {
  return result->e2e_ms;
}

/* Prints one row of the table and adds the same numbers to `json`. An empty series gives no row. */
static void print_series(const char *name, const series_t *series, cJSON *json) {
  static const double points[] = {50, 90, 95, 99};
  if (series->count == 0) return;
  printf("  %-5s ms   mean %9.2f", name, mean(series));
  cJSON *object = cJSON_AddObjectToObject(json, name);
  cJSON_AddNumberToObject(object, "mean", mean(series));
  for (int i = 0; i < 4; i++) {
    char key[8];
    double value = bench_percentile(series->values, series->count, points[i]);
    snprintf(key, sizeof key, "p%.0f", points[i]);
    printf("   %s %9.2f", key, value);
    cJSON_AddNumberToObject(object, key, value);
  }
  printf("   max %9.2f\n", series->values[series->count - 1]);
  cJSON_AddNumberToObject(object, "max", series->values[series->count - 1]);
}

/* Returns 0, or 74 (EX_IOERR of sysexits.h) with a message on stderr. Does nothing if the path is
 * NULL. */
static int write_json(const char *path, const cJSON *json) {
  if (path == NULL) return 0;
  char *text = cJSON_Print(json);
  FILE *file = fopen(path, "w");
  bool ok = text != NULL && file != NULL && fputs(text, file) >= 0 && fputc('\n', file) != EOF;
  if (file != NULL && fclose(file) != 0) ok = false;
  cJSON_free(text);
  if (!ok) fprintf(stderr, "inferd-bench: cannot write %s\n", path);
  return ok ? 0 : 74;
}

static void print_totals(const bench_options_t *options, const bench_run_t *run,
                         const bench_totals_t *totals) {
  double seconds = run->duration_s;
  printf("%s: %d of %d requests in %.2f s: %.2f requests/s, %.1f output tokens/s\n",
         options->label != NULL ? options->label : "bench serve", totals->ok, options->num_requests,
         seconds, totals->ok / seconds, (double)totals->output_tokens / seconds);
  printf("  tokens: %ld prompt (%ld cached), %ld output\n", totals->prompt_tokens,
         totals->cached_tokens, totals->output_tokens);
  if (options->ttft_slo_ms > 0 || options->tpot_slo_ms > 0) {
    printf("  goodput: %.2f requests/s (%d of %d within ttft %g ms, tpot %g ms; 0 = no bound)\n",
           totals->good / seconds, totals->good, totals->ok, options->ttft_slo_ms,
           options->tpot_slo_ms);
  }
  if (totals->refused) printf("  refused: %d (429)\n", totals->refused);
  if (totals->short_answers) {
    printf("  note: %d answers have fewer than %d tokens\n", totals->short_answers,
           options->output_len);
  }
  if (totals->without_usage) {
    printf("  note: %d answers came without usage: chunks are counted as tokens\n",
           totals->without_usage);
  }
  if (run->first_error[0]) printf("  first failure: %s\n", run->first_error);
  if (totals->ok > 0 || options->text_prompts || run->results[0].status != 400) return;
  printf(
      "  note: prompts are token ids from %d to %d: --vocab-size for a smaller vocabulary, --text "
      "for words\n",
      options->first_id, options->vocab_size - 1);
}

/* Returns a new object that the caller deletes. */
static cJSON *totals_json(const bench_options_t *options, const bench_run_t *run,
                          const bench_totals_t *totals) {
  double seconds = run->duration_s;
  const struct {
    const char *name;
    double value;
  } rows[] = {
      {"requests", options->num_requests},
      {"succeeded", totals->ok},
      {"refused", totals->refused},
      {"concurrency", options->concurrency},
      {"request_rate", options->request_rate},
      {"input_len", options->input_len},
      {"output_len", options->output_len},
      {"prefix_len", options->prefix_len},
      {"seed", (double)options->seed},
      {"duration_s", seconds},
      {"requests_per_s", totals->ok / seconds},
      {"prompt_tokens_per_s", (double)totals->prompt_tokens / seconds},
      {"output_tokens_per_s", (double)totals->output_tokens / seconds},
      {"prompt_tokens", (double)totals->prompt_tokens},
      {"cached_tokens", (double)totals->cached_tokens},
      {"output_tokens", (double)totals->output_tokens},
      {"short_answers", totals->short_answers},
      {"without_usage", totals->without_usage},
      {"goodput_requests_per_s", totals->good / seconds},
  };
  cJSON *json = cJSON_CreateObject();
  cJSON_AddStringToObject(json, "label", options->label != NULL ? options->label : "");
  cJSON_AddStringToObject(json, "base_url", options->base_url);
  cJSON_AddStringToObject(json, "model", run->model);
  for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
    cJSON_AddNumberToObject(json, rows[i].name, rows[i].value);
  }
  return json;
}

int bench_report(const bench_options_t *options, bench_run_t *run) {
  bench_totals_t totals = bench_totals(options, run);
  cJSON *json = totals_json(options, run, &totals);
  series_t itl = {run->itl_ms, run->num_itl};
  series_t series[] = {collect(options, run, false, ttft), collect(options, run, false, tpot),
                       collect(options, run, false, e2e), collect(options, run, true, e2e)};
  bench_sort(itl.values, itl.count);
  print_totals(options, run, &totals);
  if (options->stream) {
    print_series("ttft", &series[0], json);
    if (options->output_len > 1) print_series("tpot", &series[1], json);
    print_series("itl", &itl, json);
  }
  print_series("e2e", &series[2], json);
  print_series("429", &series[3], json);
  for (int i = 0; i < 4; i++) free(series[i].values);
  int code = write_json(options->json_path, json);
  cJSON_Delete(json);
  return code ? code : totals.ok == options->num_requests ? 0 : 1;
}
