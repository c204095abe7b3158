/* spellings.h: flags and values of other servers: those of vLLM that inferd takes without having
 * them, and the names that others have for what is called otherwise here.
 *
 * Main thread. Pure functions over tables.
 */
#ifndef INFERD_CONFIG_SPELLINGS_H
#define INFERD_CONFIG_SPELLINGS_H

#include "config/config.h"

/* A flag of vLLM that has no option here: a row of foreign.def. */
typedef enum flag_kind { FLAG_IGNORED, FLAG_ALWAYS, FLAG_ONLY_ONE, FLAG_MEANS } flag_kind_t;
typedef struct foreign_flag {
  const char *name; /* with _ */
  bool has_value;   /* the flag has an argument */
  flag_kind_t kind;
} foreign_flag_t;

/* A flag or variable of another server: a row of moving.def. */
typedef enum moved_from {
  MOVED_FROM_LLAMA_SERVER,
  MOVED_FROM_OLLAMA,
  MOVED_FROM_VLLM
} moved_from_t;
#define NO_OPTION OPTION_COUNT
typedef struct moved_flag {
  moved_from_t program;
  const char *words;         /* as that program writes it; several: "-c|--ctx-size" */
  enum config_option option; /* what does the same here; NO_OPTION = none */
  const char *note;          /* what differs, or what takes its place; "" = nothing */
} moved_flag_t;

/* Returns the name (with _) of the option or flag that a further spelling of vLLM stands for, or
 * NULL: `word` is "-tp", of `length` bytes. */
const char *spelled_flag_find(const char *word, size_t length);
/* Returns the row of a flag (`name` with _), or of one without an argument its row for --no-name;
 * else NULL. */
const foreign_flag_t *foreign_flag_find(const char *name);
/* Checks the argument of such a flag; `value` NULL = the flag has none. Returns 0, or ERR_USAGE
 * with a message that names the flag, the value and the limit. */
int foreign_flag_check(const foreign_flag_t *flag, const char *value, inferd_error_t *error);

/* Returns the row that has the word (`word` as it was typed, "--ctx-size"), or, for --no-NAME, that
 * of --NAME; else NULL. */
const moved_flag_t *moved_flag_find(const char *word);
/* Returns the name of the program whose flag it is: "llama-server". */
const char *moved_flag_program(const moved_flag_t *flag);

/* Returns the value that `text` stands for: "fp8" for "fp8_e4m3" of --kv-cache-dtype, else `text`.
 */
const char *value_spelling(enum config_option option, const char *text);
/* Of the value of --limit-mm-per-prompt, the part that is --limit-audio here; NULL = there is none.
 */
const char *value_sound_limit(const char *text);
/* Returns why a value of vLLM is refused, or NULL if nothing is known of it. */
const char *value_refusal(enum config_option option, const char *text);

#endif
