/* spellings.h: flags and values of vLLM that inferd takes without having them.
 *
 * Main thread. Pure functions over tables.
 */
#ifndef INFERD_CONFIG_SPELLINGS_H
#define INFERD_CONFIG_SPELLINGS_H

#include "config/config.h"

/* A flag of vLLM that has no option here. */
typedef struct foreign_flag {
  const char *name; /* with _ */
  bool value;       /* the flag has an argument */
  bool is_always;   /* inferd always behaves so: no notice */
  bool only_one;    /* the argument must be 1: inferd runs on one device */
} foreign_flag_t;

/* Returns the row of a flag (`name` with _), or NULL. */
const foreign_flag_t *foreign_flag_find(const char *name);
/* Checks the argument of such a flag; `value` NULL = the flag has none. Returns 0, or ERR_USAGE
 * with a message that names the flag, the value and the limit. */
int foreign_flag_check(const foreign_flag_t *flag, const char *value, inferd_error_t *error);

/* Returns the value that `text` stands for: "fp8" for "fp8_e4m3" of --kv-cache-dtype, else `text`.
 */
const char *value_spelling(enum config_option option, const char *text);
/* Returns why a value of vLLM is refused, or NULL if nothing is known of it. */
const char *value_refusal(enum config_option option, const char *text);

#endif
