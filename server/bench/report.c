/* report.c: percentiles, the table and the JSON of a benchmark run. */
#include "server/bench/bench.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct series {
  double *values;
  size_t count;
} series_t;

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Nearest rank on sorted values. */
static double percentile(const series_t *s, double p) {
  if (s->count == 0) return 0;
  size_t rank = (size_t)(p / 100.0 * (double)s->count + 0.5);
  if (rank > 0) rank--;
  return s->values[rank < s->count ? rank : s->count - 1];
}

static double mean(const series_t *s) {
  double sum = 0;
  for (size_t i = 0; i < s->count; i++) sum += s->values[i];
  return s->count ? sum / (double)s->count : 0;
}

static series_t collect(const bench_options_t *o, const bench_run_t *run,
                        double (*value)(const bench_result_t *)) {
  series_t s = {.values = calloc((size_t)o->num_requests + 1, sizeof(double))};
  if (!s.values) abort();
  for (int i = 0; i < o->num_requests; i++) {
    if (run->results[i].ok) s.values[s.count++] = value(&run->results[i]);
  }
  qsort(s.values, s.count, sizeof(double), compare);
  return s;
}

static double ttft(const bench_result_t *r) {
  return r->ttft_ms;
}
static double tpot(const bench_result_t *r) {
  return r->tpot_ms;
}
static double e2e(const bench_result_t *r) {
  return r->e2e_ms;
}

static void print_series(const char *name, const series_t *s, cJSON *json) {
  static const double points[] = {50, 90, 95, 99};
  printf("  %-5s ms   mean %9.2f", name, mean(s));
  cJSON *object = cJSON_AddObjectToObject(json, name);
  cJSON_AddNumberToObject(object, "mean", mean(s));
  for (int i = 0; i < 4; i++) {
    char key[8];
    snprintf(key, sizeof key, "p%.0f", points[i]);
    printf("   %s %9.2f", key, percentile(s, points[i]));
    cJSON_AddNumberToObject(object, key, percentile(s, points[i]));
  }
  printf("   max %9.2f\n", percentile(s, 100));
  cJSON_AddNumberToObject(object, "max", percentile(s, 100));
}

static int write_json(const char *path, const cJSON *json) {
  if (!path) return 0;
  char *text = cJSON_Print(json);
  FILE *file = fopen(path, "w");
  bool ok = text && file && fputs(text, file) >= 0 && fputc('\n', file) != EOF;
  if (file && fclose(file) != 0) ok = false;
  cJSON_free(text);
  if (!ok) fprintf(stderr, "inferd-bench: cannot write %s\n", path);
  return ok ? 0 : 74;
}

int bench_report(const bench_options_t *o, bench_run_t *run) {
  long prompt = 0, cached = 0, output = 0;
  int ok = 0, good = 0;
  for (int i = 0; i < o->num_requests; i++) {
    const bench_result_t *r = &run->results[i];
    if (!r->ok) continue;
    ok++;
    prompt += r->prompt_tokens;
    cached += r->cached_tokens;
    output += r->output_tokens;
    good += (o->ttft_slo_ms <= 0 || r->ttft_ms <= o->ttft_slo_ms) &&
            (o->tpot_slo_ms <= 0 || r->tpot_ms <= o->tpot_slo_ms);
  }
  double seconds = run->duration_s;
  cJSON *json = cJSON_CreateObject();
  cJSON_AddStringToObject(json, "label", o->label ? o->label : "");
  const struct {
    const char *name;
    double value;
  } rows[] = {
      {"requests", o->num_requests},     {"succeeded", ok},
      {"concurrency", o->concurrency},   {"request_rate", o->request_rate},
      {"input_len", o->input_len},       {"output_len", o->output_len},
      {"prefix_len", o->prefix_len},     {"duration_s", seconds},
      {"requests_per_s", ok / seconds},  {"output_tokens_per_s", (double)output / seconds},
      {"prompt_tokens", (double)prompt}, {"cached_tokens", (double)cached},
      {"output_tokens", (double)output}, {"goodput_requests_per_s", good / seconds},
  };
  printf("%s: %d of %d requests in %.2f s: %.2f requests/s, %.1f output tokens/s, goodput %.2f/s\n",
         o->label ? o->label : "bench serve", ok, o->num_requests, seconds, ok / seconds,
         (double)output / seconds, good / seconds);
  printf("  tokens: %ld prompt (%ld cached), %ld output\n", prompt, cached, output);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    cJSON_AddNumberToObject(json, rows[i].name, rows[i].value);
  }
  series_t s[] = {collect(o, run, ttft), collect(o, run, tpot), collect(o, run, e2e)};
  static const char *const names[] = {"ttft", "tpot", "e2e"};
  for (int i = 0; i < 3; i++) {
    print_series(names[i], &s[i], json);
    free(s[i].values);
  }
  series_t itl = {run->itl_ms, run->num_itl};
  qsort(itl.values, itl.count, sizeof(double), compare);
  print_series("itl", &itl, json);
  if (run->first_error[0]) printf("  first failure: %s\n", run->first_error);
  int code = write_json(o->json_path, json);
  cJSON_Delete(json);
  return code ? code : ok == o->num_requests ? 0 : 1;
}
