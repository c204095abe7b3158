/* main.c: the sub-commands of inferd.
 *
 * Main thread. `serve` is in serve.c; `bench` and `pull` are programs of their own; the other
 * sub-commands are short and stand here. Exit statuses are those of sysexits.h; a supervisor
 * restarts 69 to 75 only.
 */
#include "engine/base/json.h"
#include "engine/base/util.h"
#include "engine/grammar/doctor.h"
#include "engine/model/source/locate.h"
#include "engine/model/source/pickled.h"
#include "engine/text/tokenizer.h"
#include "server/batch.h"
#include "server/client.h"
#include "server/manage.h"
#include "server/models/models.h"
#include "server/observe/log.h"
#include "server/ranks.h"
#include "server/reload_answer.h"
#include "server/replay/replay.h"
#include "server/serve.h"
#include "server/store_file.h"
#include "server/top/top.h"
#include "server/usage.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { EXIT_USAGE = 64, EXIT_DATA = 65 };

static int fail(const inferd_error_t *error, int code) {
  fprintf(stderr, "%sinferd: %s\n", log_priority(LOG_ERROR), error->message);
  return error_exit_code(code);
}

/* Says what was accepted without effect, such as a misspelt variable. `serve` logs it. */
static void print_notices(const config_t *config) {
  for (int i = 0; i < config->notices.count; i++) {
    fprintf(stderr, "%sinferd: %s\n", log_priority(LOG_WARN), config->notices.items[i]);
  }
}

/* The sub-commands (config/commands.def). */
static const struct command {
  const char *name, *arguments, *help;
} commands[] = {
#define COMMAND(name, arguments, own, help) {#name, arguments, help},
#include "config/commands.def"
#undef COMMAND
};

static void print_usage(FILE *out) {
  enum { HELP_COLUMN = 34 };
  fputs("inferd: serves large language models over the OpenAI HTTP API\n\n", out);
  for (size_t i = 0; i < ARRAY_LEN(commands); i++) {
    const struct command *command = &commands[i];
    int n = fprintf(out, "  inferd %s %s", command->name, command->arguments);
    fprintf(out, "%*s  %s\n", n < HELP_COLUMN ? HELP_COLUMN - n : 0, "", command->help);
  }
  fputs(
      "\nMODEL is a directory, a GGUF file, or ORG/NAME of a model in the Hugging Face cache.\n\n",
      out);
  config_help(out, NULL);
  fputs("\n--help=all shows every flag, --help=memory a group, --help=WORD what mentions it.\n",
        out);
}

/* Prints the help if --help[=TOPIC] is among the arguments. Returns true if it was; then *status is
 * the exit status. */
static bool asked_for_help(int argc, char **argv, int *status) {
  for (int i = 0; i < argc; i++) {
    if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
      print_usage(stdout);
      *status = 0;
      return true;
    }
    if (strncmp(argv[i], "--help=", 7) == 0) {
      bool found = config_help(stdout, argv[i] + 7) > 0;
      if (!found) fprintf(stderr, "inferd: no option mentions '%s'\n", argv[i] + 7);
      *status = found ? 0 : EXIT_USAGE;
      return true;
    }
  }
  return false;
}

/* Takes `word` out of the arguments; false when it is not there. */
static bool take_word(int *argc, char **argv, const char *word) {
  int kept = 0;
  for (int i = 0; i < *argc; i++) {
    if (strcmp(argv[i], word) != 0) argv[kept++] = argv[i];
  }
  bool found = kept < *argc;
  *argc = kept;
  return found;
}

/* ---- check ---- */

static void print_line(void *context, const char *line) {
  (void)context;
  puts(line);
}

static void print_survey(const char *path, const engine_survey_t *survey) {
  char name[2 * PATH_MAX] = "";
  json_escape(name, sizeof name - 1, path, strlen(path));
  printf("{\"model\":\"%s\",\"architecture\":\"%s\",\"place\":\"%s\",\"weights\":%lld,"
         "\"workspace\":%lld,\"kv_cache\":%lld,\"states\":%lld,\"swap\":%lld,"
         "\"host_weights\":%lld,\"free\":%lld,\"host_free\":%lld,\"context\":%lld,"
         "\"contexts\":%.3f}\n",
         name, survey->architecture, survey->on_host ? "host" : "gpu", (long long)survey->weights,
         (long long)survey->workspace, (long long)survey->kv_cache, (long long)survey->states,
         (long long)survey->swap, (long long)survey->host_weights, (long long)survey->free,
         (long long)survey->host_free, (long long)survey->context, survey->contexts);
}

/* Loads the model and takes all memory, as `serve` does. */
static int check_by_loading(const engine_options_t *options, inferd_error_t *error) {
  engine_t *engine = NULL;
  int code = engine_create(options, &engine, error);
  if (code != 0) return code;
  const struct timespec pause = {.tv_nsec = 10 * 1000 * 1000};
  while (engine_state(engine) == ENGINE_LOADING) nanosleep(&pause, NULL);
  if (engine_state(engine) != ENGINE_READY) {
    engine_failure(engine, error);
    code = error->code;
  }
  engine_destroy(engine);
  return code;
}

static char *read_all(FILE *in, size_t *length);

/* Prints what POST /v1/schema/check answers. The tokens are all bytes, as in the vocabularies of
 * today; status 1: the schema is refused. */
static int check_schema(const char *path, bool strict) {
  inferd_error_t error = {0};
  json_doc_t *doc = NULL;
  buffer_t report = {0};
  grammar_account_t account = {0};
  size_t length = 0;
  bool is_stdin = strcmp(path, "-") == 0;
  FILE *file = is_stdin ? stdin : fopen(path, "rb");
  if (file == NULL) return fail(&error, error_system(&error, path, errno));
  char *text = read_all(file, &length);
  if (!is_stdin) fclose(file);
  int code = text != NULL ? json_parse(text, length, &json_limits_request, &doc, &error)
                          : error_set(&error, ERR_NO_MEMORY, NULL, "no memory for the schema");
  if (code == 0) {
    grammar_source_t source = {
        .kind = GRAMMAR_JSON_SCHEMA, .schema = json_root(doc), .strict = strict};
    code = grammar_examine(&source, NULL, &account, &report, &error);
  }
  if (code == 0 && report.failed)
    code = error_set(&error, ERR_NO_MEMORY, NULL, "no memory for the report");
  static const char good[] = "{\"object\":\"schema.check\",\"accepted\":true";
  bool accepted = code == 0 && memcmp(report.data, good, sizeof good - 1) == 0;
  if (code == 0) printf("%.*s\n", (int)report.length, report.data);
  json_free(doc);
  free(text);
  buffer_free(&report);
  if (code == ERR_INVALID_JSON) return fail(&error, code), EXIT_DATA;
  if (code != 0) return fail(&error, code);
  return accepted ? 0 : 1;
}

/* What is left of the arguments behind --schema. */
static int check_schema_command(int argc, char **argv) {
  bool strict = take_word(&argc, argv, "--strict");
  bool is_file = argc == 1 && (argv[0][0] != '-' || strcmp(argv[0], "-") == 0);
  if (is_file) return check_schema(argv[0], strict);
  fputs("usage: inferd check --schema FILE [--strict]\n", stderr);
  return EXIT_USAGE;
}

static int check_command(int argc, char **argv) {
  if (take_word(&argc, argv, "--schema")) return check_schema_command(argc, argv);
  bool load = take_word(&argc, argv, "--load"), json = take_word(&argc, argv, "--json");
  bool show = take_word(&argc, argv, "--show");
  config_t config = {0};
  inferd_error_t error = {0};
  engine_options_t options;
  int code = engine_check_room(&error); /* what lacks memory before that cannot say so */
  if (code == 0) code = config_load(&config, argc, argv, &error);
  if (code == 0) print_notices(&config);
  if (code == 0) code = serve_locate(&config, &error);
  if (code == 0 && !json) printf("model     %s\n", config.model);
  if (code == 0) code = serve_check(&config, &error);
  if (code == 0) code = serve_engine_options(&config, &options, &error);
  if (code == 0) {
    engine_survey_t survey;
    options.log = json ? NULL : print_line;
    options.planned_ranks =
        (int32_t)(options.cut_layers ? config.pipeline_parallel_size : config.tensor_parallel_size);
    code = engine_survey(&options, &survey, &error);
    if (code == 0 && json) print_survey(config.model, &survey);
    if (code == 0 && show) code = serve_describe(&config, &survey, &error);
    options.log = NULL;        /* the lines are printed */
    options.planned_ranks = 0; /* --load: all of it, in this process */
  }
  if (code == 0 && load) code = check_by_loading(&options, &error);
  if (code == 0 && !json) puts("ok");
  if (code != 0) config_explain(&config, &error);
  int status = code == 0 ? 0 : fail(&error, code);
  config_free(&config);
  return status;
}

/* ---- tokenize ---- */

static char *read_all(FILE *in, size_t *length) {
  size_t capacity = 65536;
  char *text = malloc(capacity);
  *length = 0;
  while (text != NULL) {
    *length += fread(text + *length, 1, capacity - *length, in);
    if (*length < capacity) return text;
    char *more = reallocarray(text, capacity, 2);
    if (more == NULL) free(text);
    text = more;
    capacity *= 2;
  }
  return NULL;
}

static int tokenize_command(int argc, char **argv) {
  if (argc != 1 || argv[0][0] == '-') {
    fputs("usage: inferd tokenize MODEL < TEXT\n", stderr);
    return EXIT_USAGE;
  }
  inferd_error_t error = {0};
  tokenizer_t *tokenizer = NULL;
  located_t model;
  int code = model_locate(argv[0], &model, &error);
  if (code == 0) code = tokenizer_load(model.path, &tokenizer, &error);
  if (code != 0) return fail(&error, code);
  tokenizer_scratch_t *scratch = tokenizer_scratch_new(tokenizer);
  size_t length = 0, count = 0;
  int32_t *ids = NULL;
  char *text = read_all(stdin, &length);
  tokenize_options_t options = {.add_special_tokens = true};
  if (scratch == NULL || text == NULL) {
    code = error_set(&error, ERR_NO_MEMORY, NULL, "not enough memory for the text");
  } else {
    code = tokenizer_encode(tokenizer, scratch, text, length, &options, &ids, &count, &error);
  }
  for (size_t i = 0; code == 0 && i < count; i++) {
    printf("%d%c", ids[i], i + 1 < count ? ' ' : '\n');
  }
  free(ids);
  free(text);
  tokenizer_scratch_free(scratch);
  tokenizer_free(tokenizer);
  return code == 0 ? 0 : fail(&error, code);
}

/* ---- convert ---- */

static void print_text(const char *line) {
  puts(line);
}

static int convert_command(int argc, char **argv) {
  if (argc != 1 || argv[0][0] == '-') {
    fputs("usage: inferd convert MODEL\n", stderr);
    return EXIT_USAGE;
  }
  inferd_error_t error = {0};
  located_t model;
  bool is_here = pickled_is_in(argv[0]); /* a folder with an adapter is no model */
  int code = is_here ? 0 : model_locate(argv[0], &model, &error);
  if (code == 0) code = pickled_convert(is_here ? argv[0] : model.path, print_text, &error);
  return code == 0 ? 0 : fail(&error, code);
}

/* ---- health ---- */

/* Prints the answer to GET `path`. Returns 0 if its status is 200, else 1; or EXIT_USAGE. */
static int print_answer(const config_t *config, const char *path) {
  client_target_t target;
  char *body = NULL;
  const char *why = NULL;
  if (!client_target_asked(config, &target)) return EXIT_USAGE;
  int status = client_get(&target, path, NULL, &body, &why);
  if (body != NULL) {
    printf("%s\n", body);
  } else if (why != NULL) {
    fprintf(stderr, "inferd: no TLS with %s: %s\n", target.shown, why);
  } else if (status < 0) {
    fprintf(stderr, "inferd: the server accepts connections, but sends no answer within %d s\n",
            CLIENT_TIMEOUT_MS / 1000);
  } else {
    fprintf(stderr, "inferd: no server answers at %s; --host, --port, --uds and --listen name it\n",
            target.shown);
  }
  free(body);
  return status == 200 ? 0 : 1;
}

static int health_command(int argc, char **argv) {
  const char *path = take_word(&argc, argv, "--ready") ? "/readyz" : "/livez";
  config_t config;
  inferd_error_t error = {0};
  int code = config_load(&config, argc, argv, &error);
  int status = 1;
  if (code != 0) {
    status = fail(&error, code);
  } else {
    print_notices(&config);
    status = print_answer(&config, path);
  }
  config_free(&config);
  return status;
}

/* ---- config ---- */

static int config_command(int argc, char **argv) {
  config_t config;
  inferd_error_t error = {0};
  int code;
  if (argc >= 1 && strcmp(argv[0], "dump") == 0) {
    code = config_load(&config, argc - 1, argv + 1, &error);
    if (code == 0) {
      config_dump(&config, stdout);
      print_notices(&config);
    }
  } else if (argc == 2 && strcmp(argv[0], "check") == 0) {
    code = config_load_file(&config, argv[1], &error);
    if (code == 0) puts("ok");
  } else {
    fputs("usage: inferd config dump [flags] | inferd config check FILE\n", stderr);
    return EXIT_USAGE;
  }
  int status = code == 0 ? 0 : fail(&error, code);
  config_free(&config);
  return status;
}

/* ---- programs of their own ---- */

/* Runs `name`, a program beside this one or in PATH: the daemon contains no HTTP client. argv[0] is
 * replaced. Returns only if the program cannot be started. */
static int run_program(const char *name, char **argv) {
  char self[PATH_MAX], program[PATH_MAX + 32], plain[32];
  ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
  if (n > 0) {
    self[n] = '\0';
    snprintf(program, sizeof program, "%s/%s", dirname(self), name);
    argv[0] = program;
    execv(program, argv);
  }
  snprintf(plain, sizeof plain, "%s", name);
  argv[0] = plain;
  execvp(name, argv);
  fprintf(stderr, "%sinferd: %s is neither beside inferd nor in PATH; `make all` builds it\n",
          log_priority(LOG_ERROR), name);
  return EXIT_USAGE;
}

/* Runs `inferd pull MODEL`, which then starts this program again with the arguments that it has:
 * the process stays the same for its supervisor. Returns only if that cannot be started. */
static int pull_then_serve(const config_t *config, int argc, char **argv) {
  enum { OWN = 5 };
  char self[] = "/proc/self/exe", exec[] = "--exec", once[] = "--no-pull", path[PATH_MAX];
  char **arguments = calloc((size_t)argc + OWN + 1, sizeof *arguments);
  ssize_t n = readlink(self, path, sizeof path - 1);
  if (arguments == NULL || n <= 0) return free(arguments), EXIT_USAGE;
  path[n] = '\0';
  arguments[1] = config->model;
  arguments[2] = exec;
  arguments[3] = path;
  for (int i = 1; i < argc; i++) arguments[3 + i] = argv[i];
  arguments[3 + argc] = once;
  int status = run_program("inferd-pull", arguments);
  free(arguments);
  return status;
}

/* True when --pull is set and the model is a name that no cache has, or has in part. */
static bool must_pull(const config_t *config) {
  located_t model;
  inferd_error_t error = {0};
  if (!config->pull || !model_is_hub_name(config->model)) return false;
  int code = model_locate(config->model, &model, &error);
  if (code == 0 && strcmp(config->load_format, "dummy") != 0) return model_lacks_weights(&model);
  return code == ERR_MODEL_MISSING;
}

/* Serves alone, as the first of several ranks, or as one that follows it. */
static int serve_by_ranks(config_t *config, int argc, char **argv) {
  inferd_error_t error = {0};
  comm_t *comm = NULL;
  int code = ranks_start(config, argv, &comm, &error);
  if (code != 0) {
    config_explain(config, &error);
    return fail(&error, code);
  }
  if (comm != NULL && comm->rank > 0) return ranks_follow(config, comm);
  int status = serve_run(config, argc - 2, argv + 2, comm);
  ranks_end(comm);
  return status;
}

/* `argv` is that of the process, with "serve" in argv[1]. */
static int serve_command(int argc, char **argv) {
  config_t config = {0};
  inferd_error_t error = {0};
  serve_join_parent();
  int code = engine_check_room(&error); /* as in check_command */
  if (code == 0) code = config_load(&config, argc - 2, argv + 2, &error);
  int status;
  if (code != 0) {
    status = fail(&error, code);
  } else if (models_wanted(&config)) {
    status = parent_run(&config, argc - 2, argv + 2);
  } else {
    status = must_pull(&config) ? pull_then_serve(&config, argc, argv)
                                : serve_by_ranks(&config, argc, argv);
  }
  config_free(&config);
  return status;
}

/* Opens /dev/null for descriptors 0, 1 and 2 if they are closed. Otherwise the first socket would
 * get descriptor 2, and log lines would be sent to a client. */
static void fill_standard_streams(void) {
  int fd;
  do {
    fd = open("/dev/null", O_RDWR);
  } while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd >= 0) close(fd);
}

/* Raises the limit of the stack where it is too small and may be raised: threads get theirs from
 * it. Without room the first deep call would end the process by a signal. */
static int check_stack(inferd_error_t *error) {
  enum { LEAST_KIB = 1024, USUAL_KIB = 8192 };
  struct rlimit limit;
  if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= (rlim_t)LEAST_KIB * 1024) return 0;
  const rlim_t had = limit.rlim_cur;
  limit.rlim_cur = MIN(limit.rlim_max, (rlim_t)USUAL_KIB * 1024);
  pthread_attr_t attributes;
  bool raised = limit.rlim_cur >= (rlim_t)LEAST_KIB * 1024 &&
                setrlimit(RLIMIT_STACK, &limit) == 0 && pthread_attr_init(&attributes) == 0;
  if (raised) {
    raised = pthread_attr_setstacksize(&attributes, (size_t)limit.rlim_cur) == 0 &&
             pthread_setattr_default_np(&attributes) == 0;
    pthread_attr_destroy(&attributes);
  }
  if (raised) return 0;
  return error_set(error, ERR_CONFIGURATION, NULL,
                   "the stack is limited to %llu KiB (ulimit -s), at least %d are needed: "
                   "raise it, as in ulimit -s %d",
                   (unsigned long long)had / 1024, LEAST_KIB, USUAL_KIB);
}

/* Raises the limit of open files as far as this process may. Behind a lower one the start would end
 * somewhere, at what happens to open the file that is too many. */
static int check_files(inferd_error_t *error) {
  enum { LEAST = 128 }; /* enough for a start that listens and keeps all it can */
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  limit.rlim_cur = limit.rlim_max;
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= LEAST) return 0;
  return error_set(error, ERR_CONFIGURATION, NULL,
                   "open files are limited to %llu (ulimit -n), at least %d are needed, and one "
                   "more for each connection: raise it, as in ulimit -n 4096",
                   (unsigned long long)limit.rlim_cur, LEAST);
}

/* A word that is no command is often a model, a command with a typing error, or one of another
 * program. */
static int refuse_command(const char *word) {
  char quoted[200];
  located_t model;
  inferd_error_t error;
  error_quote(quoted, sizeof quoted, word, strlen(word));
  fprintf(stderr, "%sinferd: '%s' is ", log_priority(LOG_ERROR), quoted);
  const char *program, *here = config_command_elsewhere(word, &program);
  if (here != NULL) {
    fprintf(stderr, "a command of %s; here: %s\n", program, here);
    return EXIT_USAGE;
  }
  fputs("not a command; ", stderr);
  if (word[0] == '-') {
    fputs("flags stand behind one: inferd serve MODEL [flags]\n", stderr);
    return EXIT_USAGE;
  }
  for (size_t i = 0; i < ARRAY_LEN(commands); i++) {
    if (error_distance(word, commands[i].name) > 2) continue;
    fprintf(stderr, "did you mean inferd %s?\n", commands[i].name);
    return EXIT_USAGE;
  }
  if (model_locate(word, &model, &error) == 0) {
    fprintf(stderr, "to serve the model: inferd serve %s\n", quoted);
  } else {
    fputs("see inferd --help\n", stderr);
  }
  return EXIT_USAGE;
}

int main(int argc, char **argv) {
  const char *command = argc > 1 ? argv[1] : "";
  int status = EXIT_USAGE;
  inferd_error_t error = {0};
  fill_standard_streams();
  int code = check_stack(&error);
  if (code == 0) code = check_files(&error);
  if (code != 0) return fail(&error, code);
  if (strcmp(command, "bench") == 0) return run_program("inferd-bench", argv + 1);
  if (strcmp(command, "pull") == 0) return run_program("inferd-pull", argv + 1);
  if (asked_for_help(argc - 1, argv + 1, &status)) return status;
  if (strcmp(command, "serve") == 0) return serve_command(argc, argv);
  if (strcmp(command, "check") == 0) return check_command(argc - 2, argv + 2);
  if (strcmp(command, "tokenize") == 0) return tokenize_command(argc - 2, argv + 2);
  if (strcmp(command, "convert") == 0) return convert_command(argc - 2, argv + 2);
  if (strcmp(command, "reload") == 0) return reload_command(argc - 2, argv + 2);
  if (strcmp(command, "health") == 0) return health_command(argc - 2, argv + 2);
  bool manages = strcmp(command, "ps") == 0 || strcmp(command, "load") == 0;
  if (manages || strcmp(command, "unload") == 0) return manage_command(command, argc - 2, argv + 2);
  if (strcmp(command, "top") == 0) return top_command(argc - 2, argv + 2);
  if (strcmp(command, "batch") == 0) return batch_command(argc - 2, argv + 2);
  if (strcmp(command, "usage") == 0) return usage_command(argc - 2, argv + 2);
  if (strcmp(command, "store") == 0) return store_command(argc - 2, argv + 2);
  if (strcmp(command, "replay") == 0) return replay_command(argc - 2, argv + 2);
  if (strcmp(command, "config") == 0) return config_command(argc - 2, argv + 2);
  if (strcmp(command, "version") == 0 || strcmp(command, "--version") == 0) {
    printf("inferd %s (%s)\n", INFERD_VERSION, INFERD_COMMIT);
    return 0;
  }
  if (argc == 1 || strcmp(command, "help") == 0) {
    print_usage(stdout);
    return 0;
  }
  return refuse_command(command);
}
