/* reference.c: prints a page of docs/ from the tables that the programs are built from.
 *
 * scripts/reference compiles and runs it: `reference options` prints that page, and metrics,
 * errors, api and moving print theirs. It includes the .def files and headers only, links nothing,
 * and fails on a text that it does not understand.
 */
#include "server/fields/params.h"

#include "engine/defaults.h"
#include "scripts/options.h"
#include "scripts/reference.h"
#include "scripts/request_rows.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LARGE = 1 << 30 }; /* a bound of sizes that is not worth a word */

/* ---- options ---- */

/* --max-model-len */
static void print_flag(const char *name) {
  printf("--");
  for (const char *at = name; *at != '\0'; at++) putchar(*at == '_' ? '-' : *at);
}

static void print_bounds(const option_t *option, const char *unit) {
  if (option->max >= 1e15) { /* no bound that a user meets */
    printf(", at least %g%s", option->min, unit);
  } else {
    printf(", %.15g to %.15g%s", option->min, option->max, unit);
  }
}

static void print_value(const option_t *option) {
  switch (option->kind) {
  case BOOL: printf("true or false"); return;
  case CHOICE: print_words(option->metavar, ", "); return;
  case STRING: print_words(option->metavar, ", "); return;
  case LIST: print_words(option->metavar, " or "); return;
  case INT: break;
  case SIZE: break;
  case GIB: break;
  case DURATION: break;
  case FRACTION: break;
  }
  print_words(option->metavar, " or ");
  const char *unit = option->kind == GIB ? " GiB" : option->kind == DURATION ? " s" : "";
  print_bounds(option, unit);
}

static void print_option(const option_t *option) {
  printf("| `");
  print_flag(option->name);
  printf("`");
  if (option->alias[0] != '\0') {
    printf(", `");
    print_flag(option->alias);
    printf("`");
  }
  printf(" | ");
  print_value(option);
  /* 0 and the empty text stand for auto and for none. */
  bool automatic = strstr(option->metavar, "|auto") != NULL && strcmp(option->initial, "0") == 0;
  printf(option->initial[0] != '\0' ? " | `%s` | " : " | none | ",
         automatic ? "auto" : option->initial);
  print_text(option->help);
  printf(" |\n");
}

static const struct {
  const char *name, *bound;
} reloaded[] = {
#define RELOADED(field, bound) {#field, bound},
#include "config/reload.def"
#undef RELOADED
};

static void print_reload(const char *const *groups, size_t num_groups) {
  printf("\n## Reload\n\nSIGHUP (`systemctl reload inferd`) reads the configuration and the keys "
         "again. "
         "A running\nserver takes over the new values of these options; for all others it needs a "
         "restart.\n\n| group | options |\n|---|---|\n");
  for (size_t i = 0; i < num_groups; i++) {
    const char *before = "";
    for (size_t j = 0; j < LENGTH(options); j++) {
      if (strcmp(options[j].group, groups[i]) != 0) continue;
      for (size_t k = 0; k < LENGTH(reloaded); k++) {
        if (strcmp(options[j].name, reloaded[k].name) != 0) continue;
        if (before[0] == '\0') printf("| %s | ", groups[i]);
        printf("%s`", before);
        print_flag(options[j].name);
        printf("`%s%s", reloaded[k].bound[0] != '\0' ? " " : "", reloaded[k].bound);
        before = ", ";
      }
    }
    if (before[0] != '\0') printf(" |\n");
  }
}

static void print_options(void) {
  static const char *const groups[] = {"model",    "device", "memory", "scheduler", "server",
                                       "security", "limits", "api",    "log"};
  size_t printed = 0;
  print_head("config/options.def and config/reload.def");
  printf("# Options\n\n"
         "Every option of `inferd serve` has one name in three forms: the flag `--max-model-len`,\n"
         "the line `max_model_len = 4096` of the file that `--config` names, and the environment\n"
         "variable `INFERD_MAX_MODEL_LEN`. A flag is stronger than the environment, and the\n"
         "environment is stronger than the file. A second name is the spelling of vLLM.\n\n"
         "An unknown name or a bad value ends the start with an error that proposes the nearest\n"
         "name. `inferd config check FILE` checks a file, and `inferd config dump` prints all\n"
         "values and where each comes from.\n\n"
         "| value | is written |\n|---|---|\n"
         "| true or false | `true false yes no on off 1 0`; as a flag `--name` or `--no-name` |\n"
         "| a number | `12`, `32k` (times 1000), `32K` (times 1024), also `m M g G` |\n"
         "| bytes | `4096`, `64K`, `16MiB`, `10GiB`, `5GB` |\n"
         "| GiB | `4`, `0.5`, or bytes with a unit, `512MiB` |\n"
         "| a time | `90`, `90s`, `250ms`, `5m`, `2h` |\n"
         "| a fraction | `0.8` or `80%%` |\n"
         "| a list | separated by commas; the option may also be repeated |\n");
  for (size_t i = 0; i < LENGTH(groups); i++) {
    printf("\n## %s\n\n| option | value | default | meaning |\n|---|---|---|---|\n", groups[i]);
    for (size_t j = 0; j < LENGTH(options); j++) {
      if (strcmp(options[j].group, groups[i]) != 0) continue;
      print_option(&options[j]);
      printed++;
    }
  }
  if (printed != LENGTH(options)) fail("an option is in none of these groups", "options.def");
  print_reload(groups, LENGTH(groups));
}

/* ---- moving ---- */

static const struct {
  const char *program, *words, *option, *note;
} moved[] = {
#define MOVED(program, words, option, note) {#program, words, #option, note},
#include "config/moving.def"
#undef MOVED
};
static const struct {
  const char *name, *kind;
} foreign[] = {
#define FOREIGN(name, has_value, kind) {#name, #kind},
#define SPELLED(word, name)
#include "config/foreign.def"
#undef FOREIGN
#undef SPELLED
};
static const struct {
  const char *word, *name;
} spelled[] = {
#define FOREIGN(name, has_value, kind)
#define SPELLED(word, name) {word, #name},
#include "config/foreign.def"
#undef FOREIGN
#undef SPELLED
};

/* An option as code: max_model_len as `--max-model-len`. */
static void print_name(const char *name) {
  putchar('`');
  print_flag(name);
  putchar('`');
}

/* The rows of one program: its words, the option here ("OPTION_x"), what differs. */
static void print_moved(const char *program) {
  printf("| there | here | |\n|---|---|---|\n");
  for (size_t i = 0; i < LENGTH(moved); i++) {
    if (strcmp(moved[i].program, program) != 0) continue;
    printf("| ");
    print_words(moved[i].words, ", ");
    printf(" | ");
    if (strcmp(moved[i].option, "NO_OPTION") != 0) print_name(moved[i].option + strlen("OPTION_"));
    printf(" | ");
    print_text(moved[i].note);
    printf(" |\n");
  }
}

static void print_foreign(const char *kind) {
  bool is_first = true;
  for (size_t i = 0; i < LENGTH(foreign); i++) {
    if (strcmp(foreign[i].kind, kind) != 0) continue;
    printf(is_first ? "\n" : ", ");
    print_name(foreign[i].name);
    is_first = false;
  }
  printf(".\n");
}

/* tests/api/test_ollama.py runs the commands. */
static void print_from_ollama(void) {
  printf(
      "\n## From Ollama\n\n"
      "Its API is served, too, so that programs that speak it only need the address. The first\n"
      "five minutes:\n\n"
      "```\n"
      "inferd serve models/demo --served-model-name demo --port 11434\n"
      "curl http://127.0.0.1:11434/api/tags\n"
      "curl http://127.0.0.1:11434/api/show -d '{\"model\": \"demo\"}'\n"
      "curl http://127.0.0.1:11434/api/generate -d '{\"model\": \"demo\", \"prompt\": \"What is 2 "
      "plus 3?\"}'\n"
      "curl http://127.0.0.1:11434/api/chat -d '{\"model\": \"demo\", \"stream\": false, "
      "\"messages\": [{\"role\": \"user\", \"content\": \"What is 2 plus 3?\"}], \"options\": "
      "{\"temperature\": 0}}'\n"
      "curl http://127.0.0.1:11434/api/ps\n"
      "```\n\n"
      "A model that Ollama has is a GGUF file, which `ollama show --modelfile NAME` names behind\n"
      "FROM: `inferd serve /usr/share/ollama/.ollama/models/blobs/sha256-...`. Several models\n"
      "behind the address, each loaded when a request names it and while there is room, are a\n"
      "directory of them, several arguments, or the cache of the Hugging Face tools\n"
      "(`--models-from-cache`); looking at them loads none ([many-models.md](many-models.md)):\n\n"
      "```\n"
      "inferd serve --models-dir models --port 11434\n"
      "curl http://127.0.0.1:11434/api/tags\n"
      "curl http://127.0.0.1:11434/api/ps\n"
      "curl http://127.0.0.1:11434/api/chat -d '{\"model\": \"demo\", \"stream\": false, "
      "\"messages\": [{\"role\": \"user\", \"content\": \"What is 2 plus 3?\"}], \"options\": "
      "{\"temperature\": 0}}'\n"
      "curl http://127.0.0.1:11434/api/ps\n"
      "inferd ps --port 11434\n"
      "```\n\n"
      "No client can change what there is: `/api/create`, `copy`, `delete` and `push` are refused\n"
      "by name, and `keep_alive` has no effect: `--models-idle` is the operator's, and\n"
      "`inferd load` and `inferd unload` want an admin key. What is otherwise different\n"
      "stands beside the fields in [api.md](api.md#post-apichat): the defaults of sampling are\n"
      "the model's, nothing is cut silently, and an option that would change the answer and is "
      "not\n"
      "there is refused by name. `GET /` is the web page; programs that look for Ollama there\n"
      "check its status, which is 200. The table has commands, variables of the environment,\n"
      "then words of a Modelfile and of `options`.\n\n");
}

static void print_moving(void) {
  print_head("config/moving.def, config/foreign.def and config/options.def");
  printf("# Moving from another server\n\n"
         "Clients of the OpenAI API change the base URL and nothing else. A field of a request\n"
         "that would change the answer, and that inferd cannot do, is refused by name, where\n"
         "others may ignore it: [api.md](api.md) lists each, for each route, with the values that\n"
         "are taken all the same and the field to use. What follows is about the command line:\n"
         "every flag of vLLM 0.33 and of llama-server (that of llama-cpp-python 0.3.36) was\n"
         "looked up. A flag that does not stand here and that inferd knows under the same name\n"
         "means the same: [options.md](options.md). A flag that stands in a table below\n"
         "ends the start, and the message has the name that it has here. `--spec-ngram-*` stands\n"
         "for all that begin so, and `--no-NAME` is answered as `--NAME`.\n\n"
         "## From vLLM\n\n"
         "A command line of `vllm serve` starts inferd as it is in most cases: the model comes\n"
         "first, and these names of vLLM, and two of llama-server, are second names here:\n\n"
         "| there | here |\n|---|---|\n");
  for (size_t i = 0; i < LENGTH(options); i++) {
    if (options[i].alias[0] == '\0') continue;
    printf("| ");
    print_name(options[i].alias);
    printf(" | ");
    print_name(options[i].name);
    printf(" |\n");
  }
  for (size_t i = 0; i < LENGTH(spelled); i++) {
    printf("| `%s` | ", spelled[i].word);
    print_name(spelled[i].name);
    printf(" |\n");
  }
  printf("\nTaken, because the daemon always behaves so:");
  print_foreign("ALWAYS");
  printf("\nTaken for `--cpu-experts all`, as llama-server has it:");
  print_foreign("MEANS");
  printf("\nTaken with a line in the log, because they change nothing here:");
  print_foreign("IGNORED");
  printf("\nTaken with the value 1 only, because `--tensor-parallel-size` is the one that runs:");
  print_foreign("ONLY_ONE");
  printf("\nCalled otherwise, or not there:\n\n");
  print_moved("VLLM");
  printf("\n## From llama-server\n\n");
  print_moved("LLAMA_SERVER");
  print_from_ollama();
  print_moved("OLLAMA");
}

/* ---- errors ---- */

static const struct {
  const char *name;
  int number, http_status;
  const char *type, *code;
  int exit_status;
  const char *help;
} errors[] = {
#define ERROR(name, number, http_status, type, code, exit_status, help)                            \
  {#name, number, http_status, type, code, exit_status, help},
#include "engine/base/error.def"
#undef ERROR
};

static void print_errors(void) {
  enum { FIRST_OF_START = -40 };
  print_head("engine/base/error.def");
  printf("# Errors\n\n"
         "## Responses\n\n"
         "A request that fails is answered with this body and the status of the table:\n\n"
         "```json\n"
         "{\"error\": {\"message\": \"Invalid 'top_p': expected a number > 0 and <= 1, but got 1.5"
         " instead.\",\n"
         "           \"type\": \"invalid_request_error\", \"param\": \"top_p\","
         " \"code\": \"invalid_value\"}}\n"
         "```\n\n"
         "`param` names the field or is null. With the option `--error-code status` the code is\n"
         "the status as a number. Programs should look at `code`: messages may change. The header\n"
         "`x-request-id` names the request, as the log does, whose line has `code` and `param` "
         "too.\n\n"
         "| status | code | type | what has happened, and what to do |\n|---|---|---|---|\n");
  for (size_t i = 0; i < LENGTH(errors); i++) {
    if (errors[i].number <= FIRST_OF_START || errors[i].number == 0) continue;
    printf("| %d | %s%s%s | `%s` | ", errors[i].http_status, errors[i].code != NULL ? "`" : "",
           errors[i].code != NULL ? errors[i].code : "null", errors[i].code != NULL ? "`" : "",
           errors[i].type);
    print_text(errors[i].help);
    printf(" |\n");
  }
  printf("\nA stream that fails after its first byte has the status 200 already: it ends with an\n"
         "event whose data is the same body.\n\n"
         "## Exit status of the process\n\n"
         "| status | name | what has happened, and what to do |\n|---|---|---|\n"
         "| 0 | OK | The server has stopped as asked, and every request has ended. |\n");
  for (size_t i = 0; i < LENGTH(errors); i++) {
    if (errors[i].number > FIRST_OF_START) continue;
    printf("| %d | %s | ", errors[i].exit_status, errors[i].name);
    print_text(errors[i].help);
    printf(" |\n");
  }
  printf(
      "| 70 | INTERNAL | A bug of inferd ended the start, or the engine thread stood still and did"
      " not end when the server was stopped. |\n"
      "| 71 | | The device (GPU) failed or did not answer while the server ran. A supervisor should"
      " start it again. |\n");
}

/* ---- metrics ---- */

static const struct family {
  const char *type, *name, *alias, *labels, *help;
} families[] = {
#define METRIC(id, type, name, alias, labels, help) {#type, name, alias, labels, help},
#define HISTOGRAM(id, name, bounds, alias, alias_bounds, help)                                     \
  {"histogram", name, alias, "model", help},
#include "server/observe/metrics.def"
#undef METRIC
#undef HISTOGRAM
};

/* "model state=a|b" as `model`, `state`: a, b; the label of every family is not repeated. */
static void print_labels(const char *labels) {
  bool first = true;
  for (const char *at = labels; *at != '\0';) {
    size_t length = strcspn(at, " "), name = strcspn(at, " =");
    if (name != strlen("model") || memcmp(at, "model", name) != 0) {
      printf("%s`%.*s`", first ? "" : "; ", (int)name, at);
      for (size_t i = name; i < length; i++) {
        if (at[i] == '=') {
          printf(": ");
        } else if (at[i] == '|') {
          printf(", ");
        } else {
          putchar(at[i]);
        }
      }
      first = false;
    }
    at += length + strspn(at + length, " ");
  }
}

static void print_metrics(void) {
  print_head("server/observe/metrics.def");
  printf(
      "# Metrics\n\n"
      "`GET /metrics` prints these families in the Prometheus text format, or as OpenMetrics\n"
      "where the client asks for it. `--metrics-names` chooses inferd's names, those of vLLM, or\n"
      "both. Times are in seconds. Counters begin at 0 when the process starts.\n\n"
      "A *sequence* is one choice of one prompt; a *request* is one HTTP request. A *step* is one\n"
      "batch, from its plan to its commit. Families of the engine have the label `model`, the\n"
      "served name; under vLLM's names it is `model_name`, beside `engine`. Before the model is\n"
      "loaded, only the families of the server and the process are there.\n\n"
      "## Families of inferd\n\n"
      "| name | type | further labels | name in vLLM | meaning |\n|---|---|---|---|---|\n");
  for (size_t i = 0; i < LENGTH(families); i++) {
    const struct family *row = &families[i];
    if (row->name == NULL) continue;
    printf("| `%s` | %s | ", row->name, row->type);
    print_labels(row->labels);
    printf(row->alias != NULL ? " | `%s` | " : " | | ", row->alias);
    print_text(row->help);
    printf(" |\n");
  }
  printf("\n## Families that only vLLM has\n\n| name | type | meaning |\n|---|---|---|\n");
  for (size_t i = 0; i < LENGTH(families); i++) {
    const struct family *row = &families[i];
    if (row->name != NULL) continue;
    printf("| `%s` | %s | ", row->alias, row->type);
    print_text(row->help);
    printf(" |\n");
  }
}

/* ---- fields of requests ---- */

static void print_range(const char *what, const row_t *row, const char *unit) {
  bool open = (row->flags & FIELD_OPEN_MIN) != 0;
  printf("%s", what);
  if ((row->flags & FIELD_WHOLE_INT64) != 0) return;
  if ((row->flags & FIELD_ALTERNATIVES) != 0) {
    printf(" from %g to `--max-logprobs`; -1: the whole vocabulary", row->min);
  } else if (row->max >= LARGE) {
    if (row->min != 0 || row->kind == FIELD_INT) printf(", at least %g%s", row->min, unit);
  } else if (open) {
    printf(" above %g, at most %g", row->min, row->max);
  } else {
    printf(" %s %g to %g%s", *unit != '\0' ? "of" : "from", row->min, row->max, unit);
  }
}

static void print_accepted(const row_t *row) {
  switch (row->kind) {
  case FIELD_BOOL: printf("boolean"); return;
  case FIELD_INT: print_range("integer", row, ""); return;
  case FIELD_NUMBER: print_range("number", row, ""); return;
  case FIELD_STRING: print_range("string", row, " bytes"); return;
  case FIELD_IDS:
    print_range(row->max < LARGE ? "array" : "array of token ids", row, " token ids");
    return;
  case FIELD_CUSTOM: print_text(row->accepts); return;
  case FIELD_IGNORED:
    if (row->accepts != NULL) {
      print_text(row->accepts);
    } else {
      print_range("string", row, " bytes");
    }
    return;
  case FIELD_REFUSED: break;
  }
  fail("a refused field accepts nothing", row->name);
}

static void print_fallback(const row_t *row) {
  const char *text = row->fallback;
  if (row->kind == FIELD_BOOL) {
    text = strcmp(text, "0") == 0 ? "false" : strcmp(text, "1") == 0 ? "true" : NULL;
  } else if (strcmp(text, "ABSENT") == 0 || strcmp(text, "NOT_TRUNCATED") == 0) {
    text = "";
  } else if (*text != '\0' && strspn(text, "-0123456789.") != strlen(text)) {
    text = NULL;
  }
  if (text == NULL) fail("the default is not understood", row->name);
  printf("%s", text);
}

/* The values of a refused field that change nothing. */
static void print_noop(const row_t *row) {
  printf("null");
  if ((row->flags & NOOP_FALSE) != 0) printf(", false");
  if ((row->flags & NOOP_EMPTY) != 0) printf(", \"\", [], {}");
  if ((row->flags & NOOP_TEXT_FORMAT) != 0) printf(", {\"type\": \"text\"}");
  if ((row->flags & NOOP_NUMBERS) != 0) printf(", %g", row->min);
  if ((row->flags & NOOP_NUMBERS) != 0 && row->min != row->max) printf(", %g", row->max);
}

static const row_t *find(const row_t *rows, size_t count, const char *name) {
  for (size_t i = 0; i < count; i++) {
    if (strcmp(rows[i].name, name) == 0) return &rows[i];
  }
  return NULL;
}

/* Does any row have one of the kinds first..last, so that its table has a line? */
static bool has_kind(const row_t *rows, size_t count, field_kind_t first, field_kind_t last) {
  for (size_t i = 0; i < count; i++) {
    if (rows[i].kind >= first && rows[i].kind <= last) return true;
  }
  return false;
}

static void print_rows(const char *route, const char *about, const row_t *rows, size_t count) {
  printf("\n## %s\n\n", route);
  if (*about != '\0') printf("%s\n\n", about);
  printf("| field | accepts | default | meaning |\n|---|---|---|---|\n");
  for (size_t i = 0; i < count; i++) {
    if (rows[i].kind > FIELD_CUSTOM) continue;
    printf("| `%s` | ", rows[i].name);
    print_accepted(&rows[i]);
    printf(" | ");
    print_fallback(&rows[i]);
    printf(" | ");
    print_text(rows[i].help);
    printf(" |\n");
  }
  if (has_kind(rows, count, FIELD_REFUSED, FIELD_REFUSED)) {
    printf("\n| refused field | accepted all the same | the message says |\n|---|---|---|\n");
  }
  for (size_t i = 0; i < count; i++) {
    if (rows[i].kind != FIELD_REFUSED) continue;
    printf("| `%s`%s | ", rows[i].name,
           (rows[i].flags & FIELD_PREFIX) != 0 ? " and what follows" : "");
    print_noop(&rows[i]);
    printf(" | not supported");
    print_text(rows[i].help != NULL ? rows[i].help : " yet");
    printf(" |\n");
  }
  if (has_kind(rows, count, FIELD_IGNORED, FIELD_IGNORED)) {
    printf("\n| field without effect | accepts |\n|---|---|\n");
  }
  for (size_t i = 0; i < count; i++) {
    if (rows[i].kind != FIELD_IGNORED) continue;
    printf("| `%s` | ", rows[i].name);
    print_accepted(&rows[i]);
    printf(" |\n");
  }
}

typedef struct route_row {
  const char *method, *path, *label, *help;
  bool is_prefix;
} route_row_t;

static const route_row_t route_rows[] = {
#define ROUTE_OPEN 0
#define ROUTE_PREFIX 1
#define ROUTE_JSON 0
#define ROUTE_ENGINE 0
#define ROUTE_METRICS 0
#define ROUTE_ADMIN 0
#define ROUTE_SMALL 0
#define ROUTE_KEY_ALONE 0
#define ROUTE_MESSAGES 0
#define ROUTE_PAGE 0
#define ROUTE_STORE 0
#define ROUTE_PARENT 0
#define ROUTE_QUERY 0
#define ROUTE_AUDIO 0
#define ROUTE(method, path, flags, label, handle, help) {method, path, label, help, (flags) != 0},
#include "server/http/routes.def"
#undef ROUTE
};

typedef struct unserved_row {
  const char *path, *what, *instead;
} unserved_row_t;

static const unserved_row_t unserved_rows[] = {
#define UNSERVED(path, what, instead) {path, what, instead},
#include "server/http/unserved.def"
#undef UNSERVED
};

static void print_unserved(void) {
  printf(
      "\nThese routes are refused by name, after the check of the key and before the body, with\n"
      "404 `unsupported_endpoint`; `/v1` may stand before them, and more behind a slash.\n\n"
      "| refused | part of | use |\n|---|---|---|\n");
  for (size_t i = 0; i < LENGTH(unserved_rows); i++) {
    const unserved_row_t *row = &unserved_rows[i];
    printf("| `%s` | %s | %s |\n", row->path, row->what, row->instead == NULL ? "" : row->instead);
  }
}

/* The first row of a label has its help; later spellings of it are listed beside it. */
static void print_routes(void) {
  printf("\n## Routes\n\n| route | also as | what it does |\n|---|---|---|\n");
  for (size_t i = 0; i < LENGTH(route_rows); i++) {
    const route_row_t *row = &route_rows[i];
    if (*row->help == '\0') {
      size_t first = 0;
      while (strcmp(route_rows[first].label, row->label) != 0) first++;
      if (*route_rows[first].help == '\0') fail("a route without help", row->path);
      continue;
    }
    printf("| `%s %s` | ", row->method, row->is_prefix ? row->label : row->path);
    const char *separator = "";
    for (size_t j = 0; j < LENGTH(route_rows); j++) {
      const route_row_t *other = &route_rows[j];
      if (*other->help != '\0' || strcmp(other->label, row->label) != 0) continue;
      printf("%s`%s%s`", separator, other->path, other->is_prefix ? "{id}" : "");
      separator = ", ";
    }
    printf(" | ");
    print_text(row->help);
    printf(" |\n");
  }
}

static void print_llama(void) {
  print_rows(
      "POST /completion",
      "`/completion` and `/infill` are those of llama.cpp's server. An answer has its names, but "
      "for `prompt`, which is not repeated, and `id_slot`, which is -1: no slot is a request's "
      "own.",
      llama_completion_rows, LENGTH(llama_completion_rows));
  print_rows("POST /infill", "", llama_infill_rows, LENGTH(llama_infill_rows));
}

static void print_ollama(void) {
  print_rows(
      "POST /api/chat",
      "Below `/api/` stands Ollama's API. Errors are `{\"error\": \"...\"}`, also as a line of a "
      "stream that has begun; `curl -d` needs no header. A name of a model may have the tag "
      "`:latest`. Nothing that is sent here changes the server.",
      ollama_chat_rows, LENGTH(ollama_chat_rows));
  print_rows("POST /api/generate", "", ollama_generate_rows, LENGTH(ollama_generate_rows));
  print_rows("Options of /api/chat and /api/generate",
             "The members of `options`. An error says `options.NAME`.", ollama_option_rows,
             LENGTH(ollama_option_rows));
  print_rows("POST /api/embed", "", ollama_embed_rows, LENGTH(ollama_embed_rows));
  print_rows("POST /api/embeddings", "", ollama_embeddings_rows, LENGTH(ollama_embeddings_rows));
  print_rows("POST /api/show", "", ollama_show_rows, LENGTH(ollama_show_rows));
  print_rows("POST /api/pull", "", ollama_pull_rows, LENGTH(ollama_pull_rows));
}

static void print_audio(void) {
  print_rows("POST /v1/audio/transcriptions",
             "Parts of a form. The text of a part is read as the type of its row.",
             transcription_rows, LENGTH(transcription_rows));
  print_rows("POST /v1/audio/translations", "Parts of a form.", translation_rows,
             LENGTH(translation_rows));
}

static void print_fields(void) {
  print_head("server/http/routes.def and server/fields/*.def");
  printf(
      "# Routes and fields of requests\n\n"
      "Bodies are JSON objects. null stands for the default. No value is converted: an integer\n"
      "field takes 16 and 16.0, but not \"16\". A value outside of what a field accepts is\n"
      "answered with status 400; [errors.md](errors.md) lists the codes.\n\n"
      "A *refused* field would change the output, and inferd cannot do what it asks for: it is\n"
      "answered with 400 `unsupported_parameter`, except for values that change nothing. A field\n"
      "that is in no table is ignored and named in the header `x-inferd-ignored-params`; with\n"
      "`--strict-params` it is answered with 400 `unknown_parameter`.\n\n"
      "A route for GET also answers HEAD, and takes no body. `/livez`, `/readyz`, `/health` and\n"
      "`/ping` need no key. While the engine is not ready, `/v1/models` and the routes that\n"
      "need the model answer 503.\n");
  print_routes();
  print_unserved();
  print_rows("POST /v1/completions", "", completion_rows, LENGTH(completion_rows));
  print_rows("POST /v1/chat/completions", "These fields are different from those of completions.",
             chat_rows, LENGTH(chat_rows));
  printf("\nAll other fields are as on `/v1/completions`:\n");
  bool first = true;
  for (size_t i = 0; i < LENGTH(completion_rows); i++) {
    const row_t *row = &completion_rows[i];
    if (row->kind > FIELD_CUSTOM || find(chat_rows, LENGTH(chat_rows), row->name)) continue;
    printf("%s`%s`", first ? "" : ", ", row->name);
    first = false;
  }
  printf(".\n");
  print_rows("POST /v1/responses",
             "`/v1/responses/input_tokens` takes the same fields. All fields of chat that are not "
             "in these tables are as on `/v1/chat/completions`.",
             responses_rows, LENGTH(responses_rows));
  print_rows("POST /v1/conversations",
             "Only with `--store`. `/v1/conversations/{id}` takes `metadata` and "
             "`/v1/conversations/{id}/items` takes `items`, each required there.",
             conversation_rows, LENGTH(conversation_rows));
  print_rows("POST /v1/batches", "Only with `--store`.", batch_rows, LENGTH(batch_rows));
  print_rows("POST /v1/embeddings", "", embedding_rows, LENGTH(embedding_rows));
  print_rows("POST /rerank", "`/v2/rerank` takes the same fields.", rerank_rows,
             LENGTH(rerank_rows));
  print_rows("POST /score", "", score_rows, LENGTH(score_rows));
  print_rows("POST /classify", "", classify_rows, LENGTH(classify_rows));
  print_rows("POST /pooling", "", pooling_rows, LENGTH(pooling_rows));
  print_rows("POST /v1/messages",
             "`/v1/messages/count_tokens` takes the same fields. Errors of both routes are in "
             "Anthropic's form.",
             messages_rows, LENGTH(messages_rows));
  print_llama();
  print_ollama();
  print_audio();
  print_rows("POST /tokenize", "Text or a conversation becomes token ids.", tokenize_rows,
             LENGTH(tokenize_rows));
  print_rows("POST /detokenize", "Token ids become text.", detokenize_rows,
             LENGTH(detokenize_rows));
  print_rows("POST /v1/schema/check", "The report is in [constraints.md](constraints.md).",
             schema_rows, LENGTH(schema_rows));
  print_rows("POST /v1/models/load",
             "Only with several models, and with an admin key or over a UNIX socket; "
             "`/v1/models/unload` takes the same.",
             model_name_rows, LENGTH(model_name_rows));
  print_rows("POST /v1/load_lora_adapter",
             "Only with `--enable-lora` and `--allow-runtime-lora`, and with an admin key or over "
             "a UNIX socket.",
             load_adapter_rows, LENGTH(load_adapter_rows));
  print_rows("POST /v1/unload_lora_adapter",
             "Only with `--enable-lora` and `--allow-runtime-lora`, and with an admin key or over "
             "a UNIX socket.",
             unload_adapter_rows, LENGTH(unload_adapter_rows));
}

int main(int argc, char **argv) {
  static const struct {
    const char *name;
    void (*print)(void);
  } pages[] = {{"options", print_options},
               {"metrics", print_metrics},
               {"errors", print_errors},
               {"api", print_fields},
               {"moving", print_moving}};
  for (size_t i = 0; argc == 2 && i < LENGTH(pages); i++) {
    if (strcmp(argv[1], pages[i].name) != 0) continue;
    pages[i].print();
    return fflush(stdout) == 0 ? 0 : 1;
  }
  fail("usage", "reference options|metrics|errors|api|moving");
}
