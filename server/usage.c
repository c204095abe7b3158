/* usage.c: `inferd usage`: asks a running server for /v1/usage, and prints a table of it.
 *
 * Main thread of the command, which blocks.
 */
#include "server/usage.h"

#include "engine/base/json.h"
#include "engine/base/util.h"
#include "server/client.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { EXIT_USAGE = 64, DAY_S = 24 * 3600, DAYS_MAX = 31 };

typedef struct asked {
  client_target_t target;
  const char *key; /* or NULL */
  int64_t days;
  bool json;
} ask_t;

/* Takes what is this command's own out of the arguments. Returns false after a message. */
static bool read_arguments(ask_t *asked, int *argc, char **argv) {
  int kept = 0;
  for (int i = 0; i < *argc; i++) {
    const char *word = argv[i], *days = NULL;
    if (strcmp(word, "--json") == 0) {
      asked->json = true;
    } else if (strncmp(word, "--days=", 7) == 0) {
      days = word + 7;
    } else if (strcmp(word, "--days") == 0) {
      days = i + 1 < *argc ? argv[++i] : "";
    } else {
      argv[kept++] = argv[i];
    }
    if (days == NULL) continue;
    char *end = NULL;
    asked->days = strtoll(days, &end, 10);
    if (end != days && *end == '\0' && asked->days >= 1 && asked->days <= DAYS_MAX) continue;
    fprintf(stderr, "inferd: --days is '%.40s', accepted: 1 to %d\n", days, DAYS_MAX);
    return false;
  }
  *argc = kept;
  return true;
}

static void print_failure(const ask_t *asked, int status, const char *body, const char *why) {
  const char *words = body != NULL ? strstr(body, "\"message\":\"") : NULL;
  int length = words != NULL ? (int)strcspn(words + 11, "\"") : 0;
  if (status == 0)
    fprintf(stderr, "inferd: no server answers at %s\n", asked->target.shown);
  else if (status < 0)
    fprintf(stderr, "inferd: no whole answer from %s%s%s\n", asked->target.shown,
            why != NULL ? ": " : "", why != NULL ? why : "");
  else
    fprintf(stderr, "inferd: %s answers /v1/usage with %d%s%.*s\n", asked->target.shown, status,
            length > 0 ? ": " : "", MIN(length, 300), length > 0 ? words + 11 : "");
}

static int64_t count_of(const json_t *group, const char *name) {
  int64_t count = 0;
  (void)json_int64(json_get(group, name), &count);
  return count;
}

/* A name of a client, for a terminal: control characters become '?'. */
static void copy_name(char out[40], const json_t *text) {
  size_t length = text != NULL && text->type == JSON_STRING ? MIN(text->length, 39) : 0;
  for (size_t i = 0; i < length; i++)
    out[i] = (unsigned char)text->text[i] < 0x20 || text->text[i] == 0x7f ? '?' : text->text[i];
  out[length] = '\0';
}

static void print_group(int64_t start_s, const json_t *group) {
  char day[16], key[40], label[40], model[40];
  time_t seconds = (time_t)start_s;
  struct tm parts;
  strftime(day, sizeof day, "%Y-%m-%d", gmtime_r(&seconds, &parts));
  copy_name(key, json_get(group, "api_key_id"));
  copy_name(label, json_get(group, "api_key_name"));
  copy_name(model, json_get(group, "model"));
  if (strcmp(key, "00000000") == 0) snprintf(key, sizeof key, "-");
  printf("%-10s  %-16s  %-24s  %9" PRId64 "  %12" PRId64 "  %12" PRId64 "  %12" PRId64 "\n", day,
         label[0] != '\0' ? label : key, model, count_of(group, "num_model_requests"),
         count_of(group, "input_tokens"), count_of(group, "input_cached_tokens"),
         count_of(group, "output_tokens"));
}

static int print_table(const char *body) {
  json_doc_t *doc = NULL;
  inferd_error_t error;
  if (json_parse(body, strlen(body), &json_limits_model, &doc, &error) != 0) {
    fprintf(stderr, "inferd: the answer is no use: %s\n", error.message);
    return 1;
  }
  printf("%-10s  %-16s  %-24s  %9s  %12s  %12s  %12s\n", "DAY (UTC)", "KEY", "MODEL", "REQUESTS",
         "INPUT", "CACHED", "OUTPUT");
  JSON_EACH(bucket, json_get(json_root(doc), "data")) {
    JSON_EACH(group, json_get(bucket, "results"))
    print_group(count_of(bucket, "start_time"), group);
  }
  json_free(doc);
  return 0;
}

static int ask(const ask_t *asked) {
  char path[160];
  char *body = NULL;
  const char *why = NULL;
  int64_t today = (int64_t)time(NULL) / DAY_S;
  snprintf(path, sizeof path,
           "/v1/usage?group_by=model,api_key_id&limit=%d&start_time=%" PRId64 "&end_time=%" PRId64,
           DAYS_MAX, (today - asked->days + 1) * DAY_S, (today + 1) * DAY_S);
  int status = client_get(&asked->target, path, asked->key, &body, &why), result = 1;
  if (status != 200)
    print_failure(asked, status, body, why);
  else if (asked->json)
    result = puts(body) >= 0 ? 0 : 1;
  else
    result = print_table(body);
  free(body);
  return result;
}

int usage_command(int argc, char **argv) {
  ask_t asked = {.days = 7};
  config_t config;
  inferd_error_t error = {0};
  if (!read_arguments(&asked, &argc, argv)) return EXIT_USAGE;
  int status = 1, code = config_load(&config, argc, argv, &error);
  if (code != 0) {
    fprintf(stderr, "inferd: %s\n", error.message);
    status = error_exit_code(code);
  } else if (client_target_asked(&config, &asked.target)) {
    if (config.api_key.count > 0) asked.key = config.api_key.items[0];
    if (config.admin_key.count > 0) asked.key = config.admin_key.items[0];
    status = ask(&asked);
  } else {
    status = EXIT_USAGE;
  }
  config_free(&config);
  return status;
}
