/* parse.h: text of one option value -> number. Pure functions, used by config.c and its tests. */
#ifndef INFERD_CONFIG_PARSE_H
#define INFERD_CONFIG_PARSE_H

#include <stdbool.h>
#include <stdint.h>

/* All return false unless the whole text is a finite value in range. */
bool parse_bool(const char *text, bool *out);
bool parse_count(const char *text, int64_t *out); /* 12, 32k = 32000, 32K = 32768, 25.6k, 1M, 1g */
bool parse_size(const char *text, int64_t *out);  /* bytes: 4096, 64K, 16MiB, 5GB, 1.5GiB */
bool parse_gib(const char *text, int64_t *out);   /* bytes: a bare number counts GiB; or as sizes */
bool parse_duration(const char *text, double *out); /* seconds: 90, 90s, 250ms, 5m, 2h */
bool parse_fraction(const char *text, double *out); /* 0.8, 80% */

#endif
