/* settings.h: what `inferd pull` was asked for, by flags and by the variables of huggingface_hub.
 *
 * Main thread, once at start. The token is never printed: no message and no log line has it.
 */
#ifndef INFERD_SERVER_PULL_SETTINGS_H
#define INFERD_SERVER_PULL_SETTINGS_H

#include "engine/base/error.h"

#include <stdbool.h>

enum {
  PULL_URL_MAX = 512,
  PULL_TOKEN_MAX = 1024,
  PULL_QUANT_MAX = 64,
  PULL_REVISION_MAX = 256,
  PULL_JOBS_MAX = 64
};

typedef struct pull_settings {
  char id[128];                     /* ORG/NAME */
  char quant[PULL_QUANT_MAX];       /* of a GGUF file; "" = none was named */
  char revision[PULL_REVISION_MAX]; /* branch, tag or commit; "main" by default */
  const char *cache_dir;            /* NULL = the first of hub_caches */
  const char *token_file;           /* NULL = the places of huggingface_hub */
  char endpoint[PULL_URL_MAX];      /* HF_ENDPOINT without a slash at the end */
  char token[PULL_TOKEN_MAX];       /* "" = none */
  int jobs;                         /* connections at once */
  int retries;                      /* of one request, after its first try */
  int timeout_s; /* a connection that is slower than 100 bytes/s so long is cut */
  bool dry_run;
  char *const *then; /* what is executed after success, ended by NULL; NULL = nothing */
} pull_settings_t;

/* Reads the arguments behind `inferd pull`. Returns 0, 1 when the help was asked for (and printed),
 * or ERR_USAGE. The strings of argv must stay. */
int settings_read(int argc, char **argv, pull_settings_t *out, inferd_error_t *error);
/* Reads HF_ENDPOINT, HF_HUB_OFFLINE, HF_HUB_DOWNLOAD_TIMEOUT and the token, in this order of
 * precedence: --token-file, HF_TOKEN, HF_TOKEN_PATH, $HF_HOME/token, ~/.cache/huggingface/token.
 * Returns 0; ERR_CONFIGURATION for a bad value and while HF_HUB_OFFLINE is set; an error of
 * error_system for --token-file. */
int settings_environment(pull_settings_t *settings, inferd_error_t *error);

#endif
