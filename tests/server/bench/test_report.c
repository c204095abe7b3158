/* test_report.c: percentiles and totals of a benchmark run, and numbers on its command line. */
#include "server/bench/number.c"
#include "server/bench/report.c"
#include "tests/expect.h"

Test(report, percentile_is_the_nearest_rank) {
  double v[100];
  for (int i = 0; i < 100; i++) v[i] = i + 1;
  ASSERT_EQ(bench_percentile(v, 100, 50), 50);
  ASSERT_EQ(bench_percentile(v, 100, 99), 99);
  ASSERT_EQ(bench_percentile(v, 100, 100), 100);
  ASSERT_EQ(bench_percentile(v, 64, 99), 64);
  ASSERT_EQ(bench_percentile(v, 10, 90), 9);
  ASSERT_EQ(bench_percentile(v, 10, 91), 10);
  ASSERT_EQ(bench_percentile(v, 3, 50), 2);
  ASSERT_EQ(bench_percentile(v, 1, 99), 1);
  ASSERT_EQ(bench_percentile(v, 5, 0), 1);
  ASSERT_EQ(bench_percentile(v, 0, 50), 0);
}

Test(report, totals_leave_failures_out_and_goodput_needs_both_bounds) {
  bench_result_t results[] = {
      {.ok = true,
       .has_usage = true,
       .ttft_ms = 10,
       .tpot_ms = 5,
       .output_tokens = 8,
       .prompt_tokens = 3,
       .cached_tokens = 2},
      {.ok = true, .has_usage = true, .ttft_ms = 101, .tpot_ms = 5, .output_tokens = 8},
      {.ok = true, .ttft_ms = 10, .tpot_ms = 21, .output_tokens = 7},
      {.ok = false, .ttft_ms = 1, .tpot_ms = 1, .output_tokens = 8, .prompt_tokens = 99},
      {.ok = false, .status = 429, .e2e_ms = 1},
  };
  bench_options_t o = {.num_requests = 5, .output_len = 8, .ttft_slo_ms = 100, .tpot_slo_ms = 20};
  bench_run_t run = {.results = results};
  bench_totals_t t = bench_totals(&o, &run);
  ASSERT_EQ(t.ok, 3);
  ASSERT_EQ(t.good, 1);
  ASSERT_EQ(t.refused, 1);
  ASSERT_EQ(t.short_answers, 1);
  ASSERT_EQ(t.without_usage, 1);
  ASSERT_EQ(t.output_tokens, 23);
  ASSERT_EQ(t.prompt_tokens, 3);
  ASSERT_EQ(t.cached_tokens, 2);
  o.ttft_slo_ms = 0;
  ASSERT_EQ(bench_totals(&o, &run).good, 2);
  o.tpot_slo_ms = 0;
  ASSERT_EQ(bench_totals(&o, &run).good, 3);
}

Test(number, only_whole_numbers_within_bounds_pass) {
  int i = -7;
  double d = -7;
  cr_assert(bench_int("12", 0, 12, &i));
  ASSERT_EQ(i, 12);
  cr_assert_not(bench_int("13", 0, 12, &i));
  cr_assert_not(bench_int("-1", 0, 12, &i));
  cr_assert_not(bench_int("1x", 0, 12, &i));
  cr_assert_not(bench_int("", 0, 12, &i));
  cr_assert_not(bench_int("99999999999999999999", 0, 12, &i));
  cr_assert(bench_number("0.5", 0, 1, &d));
  ASSERT_EQ(d, 0.5);
  cr_assert_not(bench_number("nan", 0, 1, &d));
  cr_assert_not(bench_number("inf", 0, 1, &d));
  cr_assert_not(bench_number("0.5 ", 0, 1, &d));
  ASSERT_EQ(i, 12);
}
