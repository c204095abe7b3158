/* asserts.c: what the macros of criterion.h call, in programs that libFuzzer runs: a failed
 * assertion of a fake ends the program, and so becomes a find. Stands before libcriterion's at link
 * time. */
#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>

void criterion_send_assert(struct criterion_assert_stats *stats) {
  if (stats->passed) return;
  fprintf(stderr, "%s:%u: assertion failed: %s\n", stats->file, stats->line, stats->message);
  abort();
}

void criterion_abort_test(void) {
  abort();
}

void criterion_continue_test(void) {}
