/* settings.c: what `inferd pull` was asked for, by flags and by the variables of huggingface_hub.
 *
 * Main thread, once at start. Reads the environment and the file of the token, nothing else.
 */
#include "server/pull/settings.h"

#include "engine/model/source/hub_cache.h"
#include "server/pull/repo.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char usage_text[] =
    "usage: inferd pull ORG/NAME[@REVISION][:QUANT] [options]\n"
    "\n"
    "Downloads what `inferd serve ORG/NAME` reads from the Hugging Face hub into the cache that "
    "hf,\n"
    "transformers and vLLM share. A download that was cut continues where it stopped.\n"
    "\n"
    "  :QUANT             of a repository of GGUF files the file of this quantisation, as Q4_K_M\n"
    "  @REVISION          branch, tag or commit (main); --revision REV is the same\n"
    "  --cache-dir DIR    instead of HF_HUB_CACHE, $HF_HOME/hub, ~/.cache/huggingface/hub\n"
    "  --token-file FILE  instead of HF_TOKEN, HF_TOKEN_PATH, $HF_HOME/token\n"
    "  --jobs N           connections at once (8)\n"
    "  --retries N        of a request that fails, with growing pauses (5)\n"
    "  --dry-run          prints the files and their sizes, and downloads nothing\n"
    "\n"
    "HF_ENDPOINT names a mirror; https_proxy and no_proxy are followed; HF_HUB_OFFLINE=1 "
    "refuses.\n";

enum {
  OPT_REVISION = 256,
  OPT_CACHE,
  OPT_TOKEN,
  OPT_JOBS,
  OPT_RETRIES,
  OPT_DRY,
  OPT_HELP,
  OPT_EXEC
};

static const struct option long_options[] = {{"revision", required_argument, NULL, OPT_REVISION},
                                             {"cache-dir", required_argument, NULL, OPT_CACHE},
                                             {"token-file", required_argument, NULL, OPT_TOKEN},
                                             {"jobs", required_argument, NULL, OPT_JOBS},
                                             {"retries", required_argument, NULL, OPT_RETRIES},
                                             {"dry-run", no_argument, NULL, OPT_DRY},
                                             {"help", no_argument, NULL, OPT_HELP},
                                             {"exec", no_argument, NULL, OPT_EXEC},
                                             {NULL, 0, NULL, 0}};

static bool read_int(const char *text, int min, int max, int *out) {
  char *end;
  long value = strtol(text, &end, 10);
  if (!isdigit((unsigned char)text[0]) || *end != '\0' || value < min || value > max) return false;
  *out = (int)value;
  return true;
}

static int refuse(inferd_error_t *error, const char *flag, const char *value,
                  const char *accepted) {
  char shown[64];
  error_quote(shown, sizeof shown, value, strlen(value));
  return error_set(error, ERR_USAGE, NULL, "%s '%s': %s", flag, shown, accepted);
}

static int set_revision(pull_settings_t *out, const char *text, size_t length,
                        inferd_error_t *error) {
  bool good = repo_is_path(text, length) && text[0] != '-' && length < sizeof out->revision;
  if (!good) return refuse(error, "revision", text, "is not a branch, tag or commit");
  snprintf(out->revision, sizeof out->revision, "%.*s", (int)length, text);
  return 0;
}

static int set_option(pull_settings_t *out, int option, char *value, inferd_error_t *error) {
  switch (option) {
  case OPT_CACHE: out->cache_dir = value; return 0;
  case OPT_TOKEN: out->token_file = value; return 0;
  case OPT_DRY: out->dry_run = true; return 0;
  case OPT_REVISION: return set_revision(out, value, strlen(value), error);
  case OPT_JOBS:
    return read_int(value, 1, PULL_JOBS_MAX, &out->jobs)
               ? 0
               : refuse(error, "--jobs", value, "must be 1 to 64");
  case OPT_RETRIES:
    return read_int(value, 0, 100, &out->retries)
               ? 0
               : refuse(error, "--retries", value, "must be 0 to 100");
  default: return error_set(error, ERR_USAGE, NULL, "see inferd pull --help");
  }
}

/* Splits ORG/NAME@REVISION:QUANT. */
static int set_model(pull_settings_t *out, const char *what, inferd_error_t *error) {
  const char *colon = strchr(what, ':');
  size_t length = strcspn(what, "@:");
  bool fits = length < sizeof out->id;
  snprintf(out->id, sizeof out->id, "%.*s", (int)(fits ? length : 0), what);
  fits = fits && hub_is_id(out->id);
  if (colon != NULL) {
    int n = snprintf(out->quant, sizeof out->quant, "%s", colon + 1);
    size_t plain =
        strspn(colon + 1, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.");
    fits = fits && n > 0 && n < PULL_QUANT_MAX && plain == (size_t)n;
  }
  if (!fits) {
    return refuse(error, "model", what,
                  "is not ORG/NAME, ORG/NAME@REVISION or ORG/NAME:QUANT of the hub");
  }
  if (what[length] != '@') return 0;
  const char *revision = what + length + 1;
  return set_revision(out, revision, strcspn(revision, ":"), error);
}

int settings_read(int argc, char **argv, pull_settings_t *out, inferd_error_t *error) {
  const char *model = NULL;
  *out = (pull_settings_t){.revision = "main", .jobs = 8, .retries = 5};
  opterr = 0;
  for (int option; (option = getopt_long(argc, argv, "-:h", long_options, NULL)) != -1;) {
    if (option == 'h' || option == OPT_HELP) return fputs(usage_text, stdout), 1;
    if (option == OPT_EXEC) { /* the rest is a command */
      out->then = argv + optind;
      break;
    }
    if (option == ':' || option == '?') {
      return refuse(error, "argument", argv[optind - 1],
                    option == ':' ? "needs a value" : "is not a flag; see inferd pull --help");
    }
    if (option == 1 && model != NULL) return refuse(error, "argument", optarg, "is one too many");
    if (option == 1) model = optarg;
    int code = option == 1 ? 0 : set_option(out, option, optarg, error);
    if (code != 0) return code;
  }
  if (model == NULL)
    return error_set(error, ERR_USAGE, NULL, "no model given: inferd pull ORG/NAME");
  return set_model(out, model, error);
}

/* ---- the environment ---- */

static bool is_set(const char *name) {
  const char *value = getenv(name);
  static const char *const yes[] = {"1", "on", "yes", "true"};
  for (int i = 0; i < 4 && value != NULL; i++) {
    if (strcasecmp(value, yes[i]) == 0) return true;
  }
  return false;
}

/* Copies a token without the white space around it; it must be printable ASCII. */
static bool take_token(pull_settings_t *settings, const char *text) {
  while (isspace((unsigned char)*text)) text++;
  size_t length = strlen(text);
  while (length > 0 && isspace((unsigned char)text[length - 1])) length--;
  if (length >= sizeof settings->token) return false;
  for (size_t i = 0; i < length; i++) {
    if (text[i] <= ' ' || text[i] > '~') return false;
  }
  snprintf(settings->token, sizeof settings->token, "%.*s", (int)length, text);
  return true;
}

static int bad_token(inferd_error_t *error, const char *where) {
  return error_set(error, ERR_CONFIGURATION, "token",
                   "%.200s: holds no token: one line of printable ASCII, at most %d bytes", where,
                   PULL_TOKEN_MAX - 1);
}

/* Reads the token of a file. An absent file is an error only when the user named it by a flag. */
static int read_token_file(pull_settings_t *settings, const char *path, bool named,
                           inferd_error_t *error) {
  char text[PULL_TOKEN_MAX + 64];
  FILE *stream = fopen(path, "re");
  if (stream == NULL) return named ? error_system(error, path, errno) : 0;
  size_t length = fread(text, 1, sizeof text - 1, stream);
  fclose(stream);
  text[length] = '\0';
  return take_token(settings, text) ? 0 : bad_token(error, path);
}

static int read_token(pull_settings_t *settings, inferd_error_t *error) {
  static const struct {
    const char *base, *tail;
  } places[] = {{"HF_TOKEN_PATH", ""},
                {"HF_HOME", "/token"},
                {"XDG_CACHE_HOME", "/huggingface/token"},
                {"HOME", "/.cache/huggingface/token"}};
  char path[HUB_PATH_MAX];
  if (settings->token_file != NULL) {
    return read_token_file(settings, settings->token_file, true, error);
  }
  const char *value = getenv("HF_TOKEN");
  if (value != NULL && value[0] != '\0') {
    return take_token(settings, value) ? 0 : bad_token(error, "HF_TOKEN");
  }
  for (int i = 0; i < 4; i++) {
    value = getenv(places[i].base);
    if (value == NULL || value[0] == '\0') continue;
    int n = snprintf(path, sizeof path, "%s%s", value, places[i].tail);
    return n < (int)sizeof path ? read_token_file(settings, path, false, error) : 0;
  }
  return 0;
}

static int read_endpoint(pull_settings_t *settings, inferd_error_t *error) {
  const char *value = getenv("HF_ENDPOINT");
  if (value == NULL || value[0] == '\0') value = "https://huggingface.co";
  size_t length = strlen(value), plain = 0;
  while (value[plain] > ' ' && value[plain] <= '~' && strchr("?#@\\\"'", value[plain]) == NULL)
    plain++;
  bool http = strncmp(value, "http://", 7) == 0 || strncmp(value, "https://", 8) == 0;
  if (!http || plain != length || length >= sizeof settings->endpoint) {
    char shown[128];
    return error_set(error, ERR_CONFIGURATION, NULL,
                     "HF_ENDPOINT '%s' is not http://HOST or https://HOST, at most %d bytes",
                     error_quote(shown, sizeof shown, value, length), PULL_URL_MAX - 1);
  }
  while (length > 0 && value[length - 1] == '/') length--;
  snprintf(settings->endpoint, sizeof settings->endpoint, "%.*s", (int)length, value);
  return 0;
}

int settings_environment(pull_settings_t *settings, inferd_error_t *error) {
  const char *offline = is_set("HF_HUB_OFFLINE")         ? "HF_HUB_OFFLINE"
                        : is_set("TRANSFORMERS_OFFLINE") ? "TRANSFORMERS_OFFLINE"
                                                         : NULL;
  if (offline != NULL) {
    return error_set(error, ERR_CONFIGURATION, NULL,
                     "%s is set, so nothing is downloaded; unset it to pull %s", offline,
                     settings->id);
  }
  const char *timeout = getenv("HF_HUB_DOWNLOAD_TIMEOUT");
  settings->timeout_s = 30;
  if (timeout != NULL && !read_int(timeout, 1, 86400, &settings->timeout_s)) {
    return error_set(error, ERR_CONFIGURATION, NULL,
                     "HF_HUB_DOWNLOAD_TIMEOUT must be whole seconds, 1 to 86400");
  }
  int code = read_endpoint(settings, error);
  return code != 0 ? code : read_token(settings, error);
}
