/* report.c: percentiles, the table and the JSON of a benchmark run. */
#include "server/bench/bench.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct series {
  double *values; /* ascending */
  size_t count;
} series_t;

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

double bench_percentile(const double *values, size_t count, double p) {
  if (count == 0) return 0;
  double rank = ceil(p / 100 * (double)count - 1e-9);
  return values[rank < 1 ? 0 : (size_t)rank > count ? count - 1 : (size_t)rank - 1];
}

static double mean(const series_t *s) {
  double sum = 0;
  for (size_t i = 0; i < s->count; i++) sum += s->values[i];
  return s->count ? sum / (double)s->count : 0;
}

bench_totals_t bench_totals(const bench_options_t *o, const bench_run_t *run) {
  bench_totals_t t = {0};
  for (int i = 0; i < o->num_requests; i++) {
    const bench_result_t *r = &run->results[i];
    t.refused += r->status == 429;
    if (!r->ok) continue;
    t.ok++;
    t.prompt_tokens += r->prompt_tokens;
    t.cached_tokens += r->cached_tokens;
    t.output_tokens += r->output_tokens;
    t.short_answers += r->output_tokens < o->output_len;
    t.without_usage += !r->has_usage;
    t.good += (o->ttft_slo_ms <= 0 || r->ttft_ms <= o->ttft_slo_ms) &&
              (o->tpot_slo_ms <= 0 || r->tpot_ms <= o->tpot_slo_ms);
  }
  return t;
}

/* Of the requests that were answered, or of those that were refused. */
static series_t collect(const bench_options_t *o, const bench_run_t *run, bool refused,
                        double (*value)(const bench_result_t *)) {
  series_t s = {.values = calloc((size_t)o->num_requests + 1, sizeof(double))};
  if (s.values == NULL) abort();
  for (int i = 0; i < o->num_requests; i++) {
    const bench_result_t *r = &run->results[i];
    if (refused ? r->status == 429 : r->ok) s.values[s.count++] = value(r);
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
  if (s->count == 0) return;
  printf("  %-5s ms   mean %9.2f", name, mean(s));
  cJSON *object = cJSON_AddObjectToObject(json, name);
  cJSON_AddNumberToObject(object, "mean", mean(s));
  for (int i = 0; i < 4; i++) {
    char key[8];
    double value = bench_percentile(s->values, s->count, points[i]);
    snprintf(key, sizeof key, "p%.0f", points[i]);
    printf("   %s %9.2f", key, value);
    cJSON_AddNumberToObject(object, key, value);
  }
  printf("   max %9.2f\n", s->values[s->count - 1]);
  cJSON_AddNumberToObject(object, "max", s->values[s->count - 1]);
}

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

static void print_totals(const bench_options_t *o, const bench_run_t *run,
                         const bench_totals_t *t) {
  double seconds = run->duration_s;
  printf("%s: %d of %d requests in %.2f s: %.2f requests/s, %.1f output tokens/s\n",
         o->label != NULL ? o->label : "bench serve", t->ok, o->num_requests, seconds,
         t->ok / seconds, (double)t->output_tokens / seconds);
  printf("  tokens: %ld prompt (%ld cached), %ld output\n", t->prompt_tokens, t->cached_tokens,
         t->output_tokens);
  if (o->ttft_slo_ms > 0 || o->tpot_slo_ms > 0) {
    printf("  goodput: %.2f requests/s (%d of %d within ttft %g ms, tpot %g ms; 0 = no bound)\n",
           t->good / seconds, t->good, t->ok, o->ttft_slo_ms, o->tpot_slo_ms);
  }
  if (t->refused) printf("  refused: %d (429)\n", t->refused);
  if (t->short_answers) {
    printf("  note: %d answers have fewer than %d tokens\n", t->short_answers, o->output_len);
  }
  if (t->without_usage) {
    printf("  note: %d answers came without usage: chunks are counted as tokens\n",
           t->without_usage);
  }
  if (run->first_error[0]) printf("  first failure: %s\n", run->first_error);
}

static cJSON *totals_json(const bench_options_t *o, const bench_run_t *run,
                          const bench_totals_t *t) {
  double seconds = run->duration_s;
  const struct {
    const char *name;
    double value;
  } rows[] = {
      {"requests", o->num_requests},
      {"succeeded", t->ok},
      {"refused", t->refused},
      {"concurrency", o->concurrency},
      {"request_rate", o->request_rate},
      {"input_len", o->input_len},
      {"output_len", o->output_len},
      {"prefix_len", o->prefix_len},
      {"seed", (double)o->seed},
      {"duration_s", seconds},
      {"requests_per_s", t->ok / seconds},
      {"prompt_tokens_per_s", (double)t->prompt_tokens / seconds},
      {"output_tokens_per_s", (double)t->output_tokens / seconds},
      {"prompt_tokens", (double)t->prompt_tokens},
      {"cached_tokens", (double)t->cached_tokens},
      {"output_tokens", (double)t->output_tokens},
      {"short_answers", t->short_answers},
      {"without_usage", t->without_usage},
      {"goodput_requests_per_s", t->good / seconds},
  };
  cJSON *json = cJSON_CreateObject();
  cJSON_AddStringToObject(json, "label", o->label != NULL ? o->label : "");
  cJSON_AddStringToObject(json, "base_url", o->base_url);
  cJSON_AddStringToObject(json, "model", run->model);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    cJSON_AddNumberToObject(json, rows[i].name, rows[i].value);
  }
  return json;
}

int bench_report(const bench_options_t *o, bench_run_t *run) {
  bench_totals_t totals = bench_totals(o, run);
  cJSON *json = totals_json(o, run, &totals);
  series_t itl = {run->itl_ms, run->num_itl};
  series_t s[] = {collect(o, run, false, ttft), collect(o, run, false, tpot),
                  collect(o, run, false, e2e), collect(o, run, true, e2e)};
  if (itl.count > 0) qsort(itl.values, itl.count, sizeof(double), compare);
  print_totals(o, run, &totals);
  if (o->stream) {
    print_series("ttft", &s[0], json);
    if (o->output_len > 1) print_series("tpot", &s[1], json);
    print_series("itl", &itl, json);
  }
  print_series("e2e", &s[2], json);
  print_series("429", &s[3], json);
  for (int i = 0; i < 4; i++) free(s[i].values);
  int code = write_json(o->json_path, json);
  cJSON_Delete(json);
  return code ? code : totals.ok == o->num_requests ? 0 : 1;
}
