/* parse.c: parses numbers with units: 32k, 10GiB, 90s, 80%.
 *
 * Pure functions, any thread. The process never sets a locale, so the decimal point is a dot.
 */
#include "config/parse.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

typedef struct unit {
  const char *name;
  double factor;
} unit_t;

/* Parses digits with at most one point: no sign, exponent or hex. *rest is the text that follows.
 */
static bool parse_decimal(const char *text, double *out, const char **rest) {
  size_t length = strspn(text, "0123456789");
  if (length == 0 || length > 19) return false;
  if (text[length] == '.') {
    size_t decimals = strspn(text + length + 1, "0123456789");
    if (decimals == 0 || decimals > 19) return false;
    length += 1 + decimals;
  }
  char digits[48];
  memcpy(digits, text, length);
  digits[length] = '\0';
  *out = strtod(digits, NULL);
  *rest = text + length;
  return true;
}

static bool parse_with_units(const char *text, const unit_t *units, double *out) {
  const char *rest;
  if (!parse_decimal(text, out, &rest)) return false;
  for (; units->name != NULL; units++) {
    if (strcmp(units->name, rest) != 0) continue;
    *out *= units->factor;
    return isfinite(*out) != 0;
  }
  return false;
}

/* Parses a number with a unit whose product is an integer, up to the rounding error of a double. */
static bool parse_rounded(const char *text, const unit_t *units, int64_t *out) {
  double value;
  if (!parse_with_units(text, units, &value)) return false;
  double rounded = nearbyint(value);
  if (fabs(value - rounded) > 1e-6 * (1 + value) || rounded >= 9.2e18) return false;
  *out = (int64_t)rounded;
  return true;
}

/* Parses an integer exactly. Only a number with a suffix or a point is computed as a double. */
static bool parse_whole(const char *text, const unit_t *units, int64_t *out) {
  size_t length = strspn(text, "0123456789");
  if (length > 0 && length <= 18 && text[length] == '\0') {
    *out = strtoll(text, NULL, 10);
    return true;
  }
  return parse_rounded(text, units, out);
}

bool parse_bool(const char *text, bool *out) {
  static const char *const yes[] = {"true", "yes", "on", "1"};
  static const char *const no[] = {"false", "no", "off", "0"};
  for (int i = 0; i < 4; i++) {
    if (strcasecmp(text, yes[i]) == 0) return *out = true, true;
    if (strcasecmp(text, no[i]) == 0) return *out = false, true;
  }
  return false;
}

bool parse_count(const char *text, int64_t *out) {
  static const unit_t units[] = {{"", 1},        {"k", 1e3}, {"K", 1024},       {"m", 1e6},
                                 {"M", 1048576}, {"g", 1e9}, {"G", 1073741824}, {NULL, 0}};
  return parse_whole(text, units, out);
}

bool parse_size(const char *text, int64_t *out) {
  static const unit_t units[] = {
      {"", 1},          {"B", 1},          {"K", 1024},         {"KiB", 1024}, {"M", 1048576},
      {"MiB", 1048576}, {"G", 1073741824}, {"GiB", 1073741824}, {"T", 0x1p40}, {"TiB", 0x1p40},
      {"k", 1e3},       {"kB", 1e3},       {"KB", 1e3},         {"m", 1e6},    {"MB", 1e6},
      {"g", 1e9},       {"GB", 1e9},       {"TB", 1e12},        {NULL, 0}};
  return parse_whole(text, units, out);
}

bool parse_gib(const char *text, int64_t *out) {
  static const unit_t units[] = {{"", 1073741824}, {NULL, 0}};
  return parse_rounded(text, units, out) || parse_size(text, out);
}

bool parse_duration(const char *text, double *out) {
  static const unit_t units[] = {{"", 1},     {"s", 1},    {"ms", 1e-3}, {"m", 60},
                                 {"min", 60}, {"h", 3600}, {"d", 86400}, {NULL, 0}};
  return parse_with_units(text, units, out);
}

bool parse_fraction(const char *text, double *out) {
  static const unit_t units[] = {{"", 1}, {"%", 0.01}, {NULL, 0}};
  return parse_with_units(text, units, out);
}
