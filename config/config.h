/* config.h: the settings of one process, read at start and again on SIGHUP.
 *
 * options.def is the one list of options. Precedence: flag > INFERD_* environment > file > default.
 * The main thread fills a config_t before other threads exist. Afterwards only the options of
 * config_may_change can change, between two runs of the loop (server/reload.c): other threads do
 * not read these.
 */
#ifndef INFERD_CONFIG_CONFIG_H
#define INFERD_CONFIG_CONFIG_H

#include "engine/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef struct config_list {
  char **items; /* malloc'ed strings, owned by the config */
  int count;
} config_list_t;

/* What each kind of option holds and accepts. */
typedef bool config_BOOL_t; /* true false yes no on off 1 0; flags --x and --no-x */
typedef int64_t
    config_INT_t; /* 12, 32k (x1000), 32K (x1024), 25.6k, m M g G; "auto" = 0 where offered */
typedef int64_t config_SIZE_t;       /* bytes: 4096, 10GiB, 16MiB, 5GB, 64K */
typedef int64_t config_GIB_t;        /* bytes: 4 = 4 GiB, 0.5, 512MiB; "auto" = -1 where offered */
typedef double config_DURATION_t;    /* seconds: 90, 90s, 250ms, 5m, 2h */
typedef double config_FRACTION_t;    /* 0.8 or 80% */
typedef char *config_STRING_t;       /* never NULL; "" = not set */
typedef char *config_CHOICE_t;       /* one of the table's words */
typedef config_list_t config_LIST_t; /* comma-separated, may be repeated */

/* Where a value came from. */
typedef enum config_source {
  SOURCE_DEFAULT,
  SOURCE_FILE,
  SOURCE_ENVIRONMENT,
  SOURCE_FLAG
} config_source_t;

typedef struct config_origin {
  config_source_t source;
  int line; /* of the file; 0 otherwise */
} config_origin_t;

/* One number per option: OPTION_model, OPTION_port ... */
enum config_option {
#define OPTION(kind, field, ...) OPTION_##field,
#include "config/options.def"
#undef OPTION
  OPTION_COUNT
};

/* A section [model NAME] of a file: one of several models behind one port (server/models). */
typedef struct config_model {
  char *name;
  config_list_t lines; /* "key=value", in the order of the file; the values have been checked */
} config_model_t;

/* One member per row of options.def, under its own name: config->port, config->api_key.items[0]. */
typedef struct config {
#define OPTION(kind, field, ...) config_##kind##_t field;
#include "config/options.def"
#undef OPTION
  config_origin_t origin[OPTION_COUNT];
  config_list_t notices; /* one line each: flags that were accepted without effect */
  config_model_t *sections;
  int num_sections;
} config_t;

/* Fills *config from defaults, file, environment and `argv[0..argc)` (after the sub-command's name;
 * one bare word is the model, further ones are `models`). Returns 0; ERR_USAGE (flags, environment)
 * or ERR_CONFIGURATION (file), with a message that has the name, the place and the nearest known
 * name. The caller must call config_free in every case. */
int config_load(config_t *config, int argc, char *const *argv, inferd_error_t *error);
/* As config_load, but reads only a file: for `inferd config check`. */
int config_load_file(config_t *config, const char *path, inferd_error_t *error);
/* Adds the sections of a file that has nothing else. Returns 0 or ERR_CONFIGURATION, ERR_IO. */
int config_load_sections(config_t *config, const char *path, inferd_error_t *error);
void config_free(config_t *config);

/* Replaces the model and the draft model by the paths where they were found. `name` is the served
 * name unless one was given; "" = the name of the path. Returns 0 or ERR_NO_MEMORY. */
int config_set_models(config_t *config, const char *model, const char *name, const char *draft,
                      inferd_error_t *error);
/* Checks the rules between options. Returns 0, or ERR_CONFIGURATION with a message that has the
 * option, its value and the limit. config_load and config_load_file have called it. */
int config_check(const config_t *config, inferd_error_t *error);
/* If `error` names an option as its parameter, adds to the message where the option was set: the
 * flag, the variable, or the line of the file. Nothing is added for a default, for the model, or if
 * the message has the flag already. For errors that the engine or the server finds after
 * config_load. */
void config_explain(const config_t *config, inferd_error_t *error);
/* Returns true if the option was set, false if it has its default. */
bool config_given(const config_t *config, enum config_option option);

/* The name of an option, as in a file: "max_body_bytes". */
const char *config_name(enum config_option option);
/* The value of an option as text that an INFERD_ variable may have; malloc'ed, NULL without memory.
 */
char *config_text(const config_t *config, enum config_option option);
/* The group of an option in the help: "memory". */
const char *config_group(enum config_option option);
/* Returns true if a running server takes another value of the option over. */
bool config_may_change(enum config_option option);
/* Returns true if both have the same value of the option, wherever it was set. */
bool config_same(const config_t *left, const config_t *right, enum config_option option);
/* Exchanges the values of one option and their origins. */
void config_exchange(config_t *left, config_t *right, enum config_option option);
/* The same for the sections [model NAME]. */
void config_exchange_sections(config_t *left, config_t *right);

/* Prints every effective value with its origin, `key = value  # origin`. API keys are masked. */
void config_dump(const config_t *config, FILE *out);
/* Returns what takes the place of a command of Ollama or vLLM here, and whose it is, or NULL if
 * `word` is none: "inferd serve MODEL; ..." of "run". */
const char *config_command_elsewhere(const char *word, const char **program);
/* Prints help. `topic`: NULL = the main options, one screen; "all"; the name of a group ("memory");
 * or a word. Returns the number of options printed. */
int config_help(FILE *out, const char *topic);

#endif
