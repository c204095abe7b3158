/* number.c: numbers on the command line, read to the last character. */
#include "server/bench/bench.h"

#include <errno.h>
#include <stdlib.h>

bool bench_int(const char *text, int min, int max, int *out) {
  char *end;
  errno = 0;
  long value = strtol(text, &end, 10);
  if (errno || end == text || *end || value < min || value > max) return false;
  *out = (int)value;
  return true;
}

bool bench_number(const char *text, double min, double max, double *out) {
  char *end;
  double value = strtod(text, &end);
  if (end == text || *end || !(value >= min && value <= max)) return false;
  *out = value;
  return true;
}
