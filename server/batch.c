/* batch.c: `inferd batch`: the arguments of the command, and the server that answers its lines.
 *
 * Main thread. The server is the one of `inferd serve`, with a UNIX socket in a folder of its own
 * for an address, which nobody else may enter.
 */
#include "server/batch.h"

#include "engine/base/util.h"
#include "server/batches/local.h"
#include "server/serve.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { EXIT_USAGE = 64, EXIT_DATA = 65 };

typedef struct asked {
  const char *input, *output;
} asked_t;

/* The value of a flag that is called `longer`, or `shorter`, at argv[*at]; NULL: it is another. */
static const char *value_of(const char *longer, const char *shorter, int argc, char **argv,
                            int *at) {
  const char *word = argv[*at];
  size_t length = strlen(longer);
  if (strncmp(word, longer, length) == 0 && word[length] == '=') return word + length + 1;
  if (strcmp(word, longer) != 0 && strcmp(word, shorter) != 0) return NULL;
  return *at + 1 < argc ? argv[++*at] : "";
}

/* Takes what is this command's own out of the arguments: IN and OUT, as the first two words or by
 * the flags of vLLM's run-batch. */
static bool read_arguments(asked_t *asked, int *argc, char **argv) {
  int kept = 0, words = 0;
  bool has_flags = false;
  for (int i = 0; i < *argc; i++)
    has_flags |= strcmp(argv[i], "-i") == 0 || strncmp(argv[i], "--input-file", 12) == 0;
  for (int i = 0; i < *argc; i++) {
    const char *value;
    bool bare = i == words && argv[i][0] != '-' && words < 2 && !has_flags;
    if (bare && words++ == 0)
      asked->input = argv[i];
    else if (bare)
      asked->output = argv[i];
    else if ((value = value_of("--input-file", "-i", *argc, argv, &i)) != NULL)
      asked->input = value;
    else if ((value = value_of("--output-file", "-o", *argc, argv, &i)) != NULL)
      asked->output = value;
    else
      argv[kept++] = argv[i];
  }
  *argc = kept;
  return asked->input != NULL && asked->input[0] != '\0' && asked->output != NULL &&
         asked->output[0] != '\0';
}

static int fail(const inferd_error_t *error, int status) {
  fprintf(stderr, "inferd: %s\n", error->message);
  return status;
}

/* Runs the lines with these arguments of config_load. */
static int run(const asked_t *asked, int argc, char **argv) {
  config_t config;
  inferd_error_t error = {0};
  local_t *local = NULL;
  int status = 0, code = config_load(&config, argc, argv, &error);
  bool several =
      code == 0 && (config.tensor_parallel_size > 1 || config.pipeline_parallel_size > 1);
  if (several)
    code = error_set(&error, ERR_USAGE, NULL,
                     "inferd batch runs the model in one process; for several ranks send the file "
                     "to a server with --store (/v1/batches)");
  if (code == 0) code = local_open(asked->input, asked->output, &local, &error);
  if (code == ERR_INVALID_VALUE)
    status = fail(&error, EXIT_DATA);
  else if (code != 0)
    status = fail(&error, error_exit_code(code));
  else
    status = serve_batch(&config, argc, argv, local);
  config_free(&config);
  return status;
}

int batch_command(int argc, char **argv) {
  enum { OWN = 4 };
  asked_t asked = {0};
  const char *base = getenv("TMPDIR");
  char folder[80], address[128];
  char level[] = "--log-level=warn";
  char step[] = "--max-step-ms=0"; /* nobody waits for a step: it takes all it can */
  if (!read_arguments(&asked, &argc, argv)) {
    fputs("inferd: inferd batch IN OUT MODEL [flags], or -i IN -o OUT --model MODEL\n", stderr);
    return EXIT_USAGE;
  }
  bool fits = base != NULL && base[0] == '/' && strlen(base) < sizeof folder - 24;
  snprintf(folder, sizeof folder, "%.50s/inferd-batch-XXXXXX", fits ? base : "/tmp");
  char **arguments = calloc((size_t)argc + OWN, sizeof *arguments);
  if (arguments == NULL || mkdtemp(folder) == NULL) {
    fprintf(stderr, "inferd: no folder can be made at %s\n", folder);
    free(arguments);
    return 1;
  }
  snprintf(address, sizeof address, "--uds=%s/socket", folder);
  int count = 0;
  arguments[count++] = level; /* of a flag that comes twice, the second holds */
  arguments[count++] = step;
  for (int i = 0; i < argc; i++) arguments[count++] = argv[i];
  arguments[count++] = address;
  int status = run(&asked, count, arguments);
  unlink(address + strlen("--uds="));
  rmdir(folder);
  free(arguments);
  return status;
}
