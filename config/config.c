/* config.c: command line, environment and file -> config_t, all from the table options.def.
 *
 * Runs on the main thread before other threads exist. It is strict: an unknown name, a duplicate
 * key or a value out of range is an error that names its place and, for names, the nearest known
 * name.
 */
#include "config/config.h"

#include "config/parse.h"
#include "config/spellings.h"
#include "engine/base/json.h"
#include "engine/base/util.h"
#include "engine/defaults.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINES_MAX = 1 << 16, LIST_ITEMS_MAX = 4096, NAME_BYTES_MAX = 64 };

static const double BYTES_OF_A_GIB = 1024.0 * 1024.0 * 1024.0;

typedef enum kind { BOOL, INT, SIZE, GIB, DURATION, FRACTION, STRING, CHOICE, LIST } kind_t;

typedef struct option {
  kind_t kind;
  const char *name; /* with _ */
  size_t offset;
  const char *initial;
  double min, max;
  const char *group;
  bool shown;
  const char *alias, *metavar, *help;
} option_t;

static const option_t options[] = {
#define OPTION(kind, field, initial, min, max, group, shown, alias, metavar, help)                 \
  {kind, #field, offsetof(config_t, field), initial, min, max, group, shown, alias, metavar, help},
#include "config/options.def"
#undef OPTION
};

/* ---- values ---- */

static void *member(config_t *config, const option_t *option) {
  return (char *)config + option->offset;
}

static bool list_add(config_list_t *list, const char *text, size_t length) {
  if (list->count == LIST_ITEMS_MAX) return false;
  char **items = reallocarray(list->items, (size_t)list->count + 1, sizeof *items);
  if (items == NULL) return false;
  list->items = items;
  items[list->count] = strndup(text, length);
  if (items[list->count] == NULL) return false;
  list->count++;
  return true;
}

static void list_free(config_list_t *list) {
  for (int i = 0; i < list->count; i++) free(list->items[i]);
  free(list->items);
  *list = (config_list_t){0};
}

static bool word_in(const char *words, const char *text) {
  size_t length = strlen(text);
  for (const char *p = words; *p != '\0';) {
    size_t n = strcspn(p, "|");
    if (n == length && strncmp(p, text, n) == 0) return true;
    p += n + (p[n] == '|');
  }
  return false;
}

static bool parse_number(const option_t *option, const char *text, double *real, int64_t *whole) {
  *real = 0;
  /* The value of "auto": where this is how the default is written, 0 is an ordinary value. */
  *whole = strcmp(option->initial, "auto") == 0 ? -1 : 0;
  bool automatic = strstr(option->metavar, "|auto") != NULL && strcmp(text, "auto") == 0;
  if (automatic) return true;
  if (option->kind == INT && option->min == -1 && strcmp(text, "-1") == 0) {
    *real = -1;
    *whole = -1; /* no count: what it stands for is in the option's help */
    return true;
  }
  bool ok = option->kind == INT        ? parse_count(text, whole)
            : option->kind == SIZE     ? parse_size(text, whole)
            : option->kind == GIB      ? parse_gib(text, whole)
            : option->kind == DURATION ? parse_duration(text, real)
                                       : parse_fraction(text, real);
  if (option->kind == INT || option->kind == SIZE) *real = (double)*whole;
  if (option->kind == GIB) *real = (double)*whole / BYTES_OF_A_GIB;
  return ok && *real >= option->min && *real <= option->max;
}

/* ["a","b"], as the flags of vLLM take lists. Returns 0, or -1 if the text is no list of strings.
 */
static int add_json_list(config_list_t *list, const char *text) {
  json_doc_t *doc = NULL;
  inferd_error_t error;
  int code = json_parse(text, strlen(text), &json_limits_request, &doc, &error);
  if (code != 0) return -1;
  JSON_EACH(item, json_root(doc)) {
    bool added = item->type == JSON_STRING && list_add(list, item->text, item->length);
    if (!added) code = -1;
  }
  json_free(doc);
  return code;
}

static int set_list(config_list_t *list, const char *text, bool append) {
  if (!append) list_free(list);
  if (strncmp(text, "[\"", 2) == 0) return add_json_list(list, text);
  for (const char *p = text; *p != '\0';) {
    size_t n = strcspn(p, ",");
    size_t lead = strspn(p, " \t");
    size_t length = n > lead ? n - lead : 0;
    while (length > 0 && isspace((unsigned char)p[lead + length - 1])) length--;
    if (length > 0 && !list_add(list, p + lead, length)) return -1;
    p += n + (p[n] == ',');
  }
  return 0;
}

/* Sets an option. Returns 0, or -1 if the text is no value of this option. */
static int set_value(config_t *config, const option_t *option, const char *text, bool append) {
  void *at = member(config, option);
  double real;
  int64_t whole;
  switch (option->kind) {
  case BOOL: return parse_bool(text, at) ? 0 : -1;
  case INT:
  case SIZE:
  case GIB:
    if (!parse_number(option, text, &real, &whole)) return -1;
    *(int64_t *)at = whole;
    return 0;
  case DURATION:
  case FRACTION:
    if (!parse_number(option, text, &real, &whole)) return -1;
    *(double *)at = real;
    return 0;
  case LIST: return set_list(at, text, append);
  case CHOICE:
    if (!word_in(option->metavar, text)) return -1;
    break;
  case STRING: break;
  }
  char *copy = strdup(text);
  if (copy == NULL) return -1;
  free(*(char **)at);
  *(char **)at = copy;
  return 0;
}

/* ---- names ---- */

/* "--max-model-len" -> "max_model_len". Returns false if the name does not fit into `out`. */
static bool plain_name(const char *text, size_t length, char out[NAME_BYTES_MAX]) {
  if (length == 0 || length >= NAME_BYTES_MAX) return false;
  for (size_t i = 0; i < length; i++) out[i] = text[i] == '-' ? '_' : text[i];
  out[length] = '\0';
  return true;
}

static const option_t *find_option(const char *name) {
  for (int i = 0; i < OPTION_COUNT; i++) {
    if (strcmp(options[i].name, name) == 0) return &options[i];
    if (options[i].alias[0] != '\0' && strcmp(options[i].alias, name) == 0) return &options[i];
  }
  return NULL;
}

/* Returns the option name nearest to `name`, or NULL if none is near. */
static const char *nearest_name(const char *name) {
  char plain[NAME_BYTES_MAX];
  if (!plain_name(name, strlen(name), plain)) return NULL;
  const char *nearest = NULL;
  int best = 1 + (int)strlen(plain) / 3;
  for (int i = 0; i < OPTION_COUNT; i++) {
    int d = error_distance(plain, options[i].name);
    if (d <= best && (nearest == NULL || d < best)) {
      best = d;
      nearest = options[i].name;
    }
  }
  return nearest;
}

/* ---- one assignment ---- */

static int config_code(config_origin_t origin) {
  return origin.source == SOURCE_FILE ? ERR_CONFIGURATION : ERR_USAGE;
}

static void spelling(const char *name, config_origin_t origin, char out[2 * NAME_BYTES_MAX]) {
  if (origin.source == SOURCE_FLAG) {
    snprintf(out, 2 * NAME_BYTES_MAX, "--%s", name);
    for (char *p = out; *p != '\0'; p++) *p = *p == '_' ? '-' : *p;
  } else if (origin.source == SOURCE_ENVIRONMENT) {
    snprintf(out, 2 * NAME_BYTES_MAX, "INFERD_%s", name);
    for (char *p = out; *p != '\0'; p++) *p = (char)toupper((unsigned char)*p);
  } else if (origin.source == SOURCE_FILE && origin.line > 0) {
    snprintf(out, 2 * NAME_BYTES_MAX, "line %d: %s", origin.line, name);
  } else {
    snprintf(out, 2 * NAME_BYTES_MAX, "%s", name);
  }
}

static int unknown_name(const char *name, config_origin_t origin, inferd_error_t *error) {
  char quoted[NAME_BYTES_MAX], spelled[2 * NAME_BYTES_MAX], near_text[2 * NAME_BYTES_MAX] = "";
  error_quote(quoted, sizeof quoted, name, strlen(name));
  spelling(quoted, origin, spelled);
  const char *near = nearest_name(name);
  if (near != NULL) spelling(near, (config_origin_t){origin.source, 0}, near_text);
  return error_set(error, config_code(origin), NULL, "%s is unknown%s%s%s", spelled,
                   near != NULL ? "; did you mean " : "", near_text, near != NULL ? "?" : "");
}

static int bad_value(const option_t *option, const char *value, config_origin_t origin,
                     inferd_error_t *error) {
  char quoted[80], spelled[2 * NAME_BYTES_MAX], bounds[80] = "";
  const char *refusal = value_refusal((enum config_option)(option - options), value);
  error_quote(quoted, sizeof quoted, value, strlen(value));
  spelling(option->name, origin, spelled);
  if (refusal != NULL)
    return error_set(error, config_code(origin), option->name, "%s: '%s' is not possible: %s",
                     spelled, quoted, refusal);
  bool number = option->kind == INT || option->kind == SIZE || option->kind == DURATION ||
                option->kind == FRACTION || option->kind == GIB;
  if (number) {
    snprintf(bounds, sizeof bounds, ", %.12g to %.12g%s", option->min, option->max,
             option->kind == DURATION ? " s" : "");
  }
  return error_set(error, config_code(origin), option->name, "%s: '%s' is not valid (%s%s)",
                   spelled, quoted, option->kind == BOOL ? "true or false" : option->metavar,
                   bounds);
}

void config_explain(const config_t *config, inferd_error_t *error) {
  const option_t *option = find_option(error->param);
  /* A key of a model's file may have the name of an option, such as dtype. */
  bool of_model = error->code == ERR_MODEL_MALFORMED && strcmp(error->param, "model") != 0;
  bool in_message = option == &options[OPTION_model]; /* the path, often given without a flag */
  if (option == NULL || of_model || in_message) return;
  config_origin_t origin = config->origin[option - options];
  char text[512], spelled[2 * NAME_BYTES_MAX], message[ERROR_MESSAGE_MAX];
  spelling(option->name, (config_origin_t){origin.source, 0}, spelled);
  switch (origin.source) {
  case SOURCE_DEFAULT: return;
  case SOURCE_FILE:
    snprintf(text, sizeof text, "line %d of %.400s", origin.line, config->config);
    break;
  case SOURCE_ENVIRONMENT:
  case SOURCE_FLAG: snprintf(text, sizeof text, "%s", spelled); break;
  }
  if (strstr(error->message, spelled) != NULL && origin.source != SOURCE_FILE) return;
  memcpy(message, error->message, sizeof message);
  error_set(error, error->code, option->name, "%s (set %s %s)", message,
            origin.source == SOURCE_FILE ? "in" : "by", text);
}

static int assign(config_t *config, const option_t *option, const char *value,
                  config_origin_t origin, inferd_error_t *error) {
  config_origin_t *old = &config->origin[option - options];
  bool append =
      option->kind == LIST && old->source == origin.source && origin.source != SOURCE_DEFAULT;
  const char *meant = value_spelling((enum config_option)(option - options), value);
  if (set_value(config, option, meant, append) != 0) {
    return bad_value(option, value, origin, error);
  }
  *old = origin;
  const bool images = option == &options[OPTION_limit_images];
  const char *sounds = images ? value_sound_limit(value) : NULL;
  if (sounds == NULL) return 0;
  return assign(config, &options[OPTION_limit_audio], sounds, origin, error);
}

/* ---- the three sources ---- */

static int load_defaults(config_t *config, inferd_error_t *error) {
  memset(config, 0, sizeof *config);
  for (int i = 0; i < OPTION_COUNT; i++) {
    config_origin_t origin = {SOURCE_DEFAULT, 0};
    int code = assign(config, &options[i], options[i].initial, origin, error);
    if (code != 0) return code;
  }
  return 0;
}

static char *trim(char *text) {
  text += strspn(text, " \t\r");
  size_t length = strlen(text);
  while (length > 0 && strchr(" \t\r", text[length - 1]) != NULL) text[--length] = '\0';
  return text;
}

static config_model_t *open_section(config_t *config, char *text, int number,
                                    inferd_error_t *error);
static int load_section_line(config_model_t *section, char *name, char *value, int number,
                             inferd_error_t *error);

/* Reads one line of a file, without its newline. A # at the start of a line or after a blank starts
 * a comment. */
static int load_line(config_t *config, char *line, int number, config_model_t **section,
                     inferd_error_t *error) {
  for (char *p = line; *p != '\0'; p++) {
    if (*p == '#' && (p == line || p[-1] == ' ' || p[-1] == '\t')) *p = '\0';
    if (*p == '\0') break;
  }
  char *text = trim(line);
  if (*text == '\0') return 0;
  config_origin_t origin = {SOURCE_FILE, number};
  char *equals = strchr(text, '=');
  if (text[0] == '[') {
    *section = open_section(config, text, number, error);
    return *section != NULL ? 0 : ERR_CONFIGURATION;
  }
  if (equals == NULL) {
    /* only the first word is shown, because a secret may follow it */
    char quoted[NAME_BYTES_MAX];
    size_t word = strcspn(text, " \t");
    error_quote(quoted, sizeof quoted, text, word);
    return error_set(error, ERR_CONFIGURATION, NULL,
                     "line %d: '%s' is not of the form key = value%s", number, quoted,
                     text[word - 1] == ':' ? "; YAML is not read" : "");
  }
  *equals = '\0';
  char *name = trim(text), *value = trim(equals + 1);
  size_t length = strlen(value);
  if (length >= 2 && value[0] == '"' && value[length - 1] == '"') {
    value[length - 1] = '\0';
    value++;
  }
  if (*section != NULL) return load_section_line(*section, name, value, number, error);
  char plain[NAME_BYTES_MAX];
  const option_t *option = plain_name(name, strlen(name), plain) ? find_option(plain) : NULL;
  if (option == NULL) return unknown_name(name, origin, error);
  if (option == &options[OPTION_config] && value[0] != '\0') {
    char quoted[NAME_BYTES_MAX];
    return error_set(error, ERR_CONFIGURATION, NULL,
                     "line %d: config is '%s', but a file cannot name another; leave it out",
                     number, error_quote(quoted, sizeof quoted, value, strlen(value)));
  }
  config_origin_t *old = &config->origin[option - options];
  if (old->source == SOURCE_FILE) {
    return error_set(error, ERR_CONFIGURATION, NULL, "line %d: %s was already set on line %d",
                     number, option->name, old->line);
  }
  return assign(config, option, value, origin, error);
}

/* ---- sections ---- */

/* Keys of a section that are no options: what many models behind one port need to know of each. */
static const char *const section_keys[] = {"aliases", "pin", "preload", "idle_unload", "priority"};

/* Returns the section that "[model NAME]" begins, or NULL with an error. */
static config_model_t *open_section(config_t *config, char *text, int number,
                                    inferd_error_t *error) {
  size_t length = strlen(text);
  char *name = text + 6;
  bool right =
      strncmp(text, "[model", 6) == 0 && (*name == ' ' || *name == '\t') && text[length - 1] == ']';
  if (right) {
    text[length - 1] = '\0';
    name = trim(name);
  }
  if (!right || *name == '\0' || strpbrk(name, " \t,\"") != NULL) {
    error_set(error, ERR_CONFIGURATION, NULL,
              "line %d: a section is [model NAME], and options of the server stand before the "
              "sections",
              number);
    return NULL;
  }
  for (int i = 0; i < config->num_sections; i++) {
    if (strcmp(config->sections[i].name, name) != 0) continue;
    error_set(error, ERR_CONFIGURATION, NULL, "line %d: a second section [model %.100s]", number,
              name);
    return NULL;
  }
  config_model_t *sections =
      reallocarray(config->sections, (size_t)config->num_sections + 1, sizeof *sections);
  char *copy = strdup(name);
  if (sections != NULL) config->sections = sections;
  if (sections == NULL || copy == NULL) {
    free(copy);
    error_set(error, ERR_NO_MEMORY, NULL, "no memory for the configuration");
    return NULL;
  }
  sections[config->num_sections] = (config_model_t){.name = copy};
  return &sections[config->num_sections++];
}

/* Checks a value of the sections' own keys. Returns false if `key` is none of them. */
static bool is_section_key(const char *key, const char *value, int *code, int number,
                           inferd_error_t *error) {
  bool flag;
  double seconds;
  char *end;
  size_t at = 0;
  while (at < ARRAY_LEN(section_keys) && strcmp(section_keys[at], key) != 0) at++;
  if (at == ARRAY_LEN(section_keys)) return false;
  const char *wanted = NULL;
  if (at == 1 || at == 2) {
    if (!parse_bool(value, &flag)) wanted = "true or false";
  } else if (at == 3) {
    if (!parse_duration(value, &seconds)) wanted = "TIME, such as 10m; 0: never";
  } else if (at == 4) {
    long priority = strtol(value, &end, 10);
    if (*value == '\0' || *end != '\0' || priority < -1000 || priority > 1000)
      wanted = "N, -1000 to 1000";
  }
  if (wanted != NULL)
    *code = error_set(error, ERR_CONFIGURATION, key, "line %d: %s: '%.60s' is not valid (%s)",
                      number, key, value, wanted);
  return true;
}

/* Which options a model of several may have: those of the server are the parent's. */
static bool may_differ(const option_t *option) {
  static const char *const groups[] = {"model", "device", "memory", "scheduler", "api"};
  static const char *const others[] = {"limit_images", "limit_audio", "max_logprobs", "journal",
                                       "journal_size"};
  const char *name = option->name;
  if (strncmp(name, "models", 6) == 0 || strcmp(name, "served_model_name") == 0) return false;
  for (size_t i = 0; i < ARRAY_LEN(groups); i++) {
    if (strcmp(option->group, groups[i]) == 0) return true;
  }
  for (size_t i = 0; i < ARRAY_LEN(others); i++) {
    if (strcmp(name, others[i]) == 0) return true;
  }
  return false;
}

/* Reads a line of a section. The value is tried on a configuration of its own. */
static int load_section_line(config_model_t *section, char *name, char *value, int number,
                             inferd_error_t *error) {
  char plain[NAME_BYTES_MAX], line[4096];
  int code = 0;
  const config_origin_t origin = {SOURCE_FILE, number};
  if (!plain_name(name, strlen(name), plain)) return unknown_name(name, origin, error);
  if (!is_section_key(plain, value, &code, number, error)) {
    const option_t *option = find_option(plain);
    config_t trial = {0};
    if (option == NULL) return unknown_name(name, origin, error);
    if (!may_differ(option))
      return error_set(error, ERR_CONFIGURATION, option->name,
                       "line %d: %s is not set for one model of several: it stands before the "
                       "sections; other names of a model are `aliases`",
                       number, option->name);
    code = load_defaults(&trial, error);
    if (code == 0) code = assign(&trial, option, value, origin, error);
    config_free(&trial);
    snprintf(plain, sizeof plain, "%s", option->name);
  }
  for (int i = 0; i < section->lines.count && code == 0; i++) {
    size_t length = strlen(plain);
    if (strncmp(section->lines.items[i], plain, length) == 0 &&
        section->lines.items[i][length] == '=')
      code =
          error_set(error, ERR_CONFIGURATION, plain,
                    "line %d: %s was already set in [model %.100s]", number, plain, section->name);
  }
  if (code != 0) return code;
  size_t length = (size_t)snprintf(line, sizeof line, "%s=%s", plain, value);
  if (length >= sizeof line || !list_add(&section->lines, line, length))
    return error_set(error, ERR_CONFIGURATION, plain, "line %d: %s is too long", number, plain);
  return 0;
}

static int load_file(config_t *config, const char *path, bool sections_only,
                     inferd_error_t *error) {
  FILE *file = fopen(path, "re");
  if (file == NULL) {
    return error_set(error, errno == EACCES ? ERR_PERMISSION : ERR_CONFIGURATION, "config",
                     "cannot open the configuration file %s: %s", path, strerror(errno));
  }
  char *line = NULL;
  size_t capacity = 0;
  ssize_t length;
  int code = 0, number = 0;
  config_model_t *section = NULL; /* that the line is in */
  while (code == 0 && (length = getline(&line, &capacity, file)) >= 0) {
    number++;
    if (strlen(line) != (size_t)length) {
      code = error_set(error, ERR_CONFIGURATION, "config", "line %d holds a NUL byte", number);
    } else {
      line[strcspn(line, "\n")] = '\0';
      char first = line[strspn(line, " \t\r")];
      bool alone = section == NULL && strchr("[#", first) == NULL; /* also the end of the text */
      code = sections_only && alone
                 ? error_set(error, ERR_CONFIGURATION, "config",
                             "line %d: a file of models begins with [model NAME]", number)
                 : load_line(config, line, number, &section, error);
    }
    if (number > LINES_MAX) {
      code = error_set(error, ERR_CONFIGURATION, "config", "the file has more than %d lines",
                       LINES_MAX);
    }
  }
  if (code == 0 && ferror(file)) {
    code = error_set(error, errno == EISDIR ? ERR_CONFIGURATION : ERR_IO, "config",
                     "cannot read the configuration file %s: %s", path, strerror(errno));
  }
  free(line);
  fclose(file);
  if (code != 0 && error != NULL && strstr(error->message, path) == NULL) {
    char message[ERROR_MESSAGE_MAX];
    memcpy(message, error->message, sizeof message);
    error_set(error, code, "config", "%.200s: %.250s", path, message);
  }
  return code;
}

/* Kubernetes gives every pod INFERD_PORT=tcp://... and the like for a Service called inferd. */
static bool is_service_link(const char *name, const char *value) {
  return strncmp(value, "tcp://", 6) == 0 || strstr(name, "_SERVICE_") != NULL ||
         strstr(name, "_PORT_") != NULL;
}

/* Warns of INFERD_* variables that are no option: otherwise a typing mistake would never be
 * noticed. */
static void notice_unknown_variables(config_t *config) {
  for (char **entry = environ; *entry != NULL; entry++) {
    const char *equals = strchr(*entry, '=');
    if (strncmp(*entry, "INFERD_", 7) != 0 || equals == NULL) continue;
    char name[NAME_BYTES_MAX], quoted[NAME_BYTES_MAX], text[256], near[2 * NAME_BYTES_MAX] = "";
    size_t length = (size_t)(equals - *entry) - 7;
    bool plain = plain_name(*entry + 7, length, name);
    for (char *p = name; plain && *p != '\0'; p++) *p = (char)tolower((unsigned char)*p);
    if (is_service_link(*entry, equals + 1) || (plain && find_option(name) != NULL)) continue;
    const char *nearest = plain ? nearest_name(name) : NULL;
    if (nearest != NULL) spelling(nearest, (config_origin_t){SOURCE_ENVIRONMENT, 0}, near);
    int n = snprintf(text, sizeof text, "%s in the environment is no option%s%s%s",
                     error_quote(quoted, sizeof quoted, *entry, length + 7),
                     nearest != NULL ? "; did you mean " : "", near, nearest != NULL ? "?" : "");
    list_add(&config->notices, text, (size_t)n);
  }
}

static int load_environment(config_t *config, inferd_error_t *error) {
  for (int i = 0; i < OPTION_COUNT; i++) {
    char name[2 * NAME_BYTES_MAX];
    config_origin_t origin = {SOURCE_ENVIRONMENT, 0};
    spelling(options[i].name, origin, name);
    const char *value = getenv(name);
    if (value == NULL && options[i].alias[0] != '\0') {
      spelling(options[i].alias, origin, name);
      value = getenv(name);
    }
    int code = value != NULL ? assign(config, &options[i], value, origin, error) : 0;
    if (code != 0 && is_service_link(name, value)) {
      return error_set(error, code, options[i].name,
                       "%s is '%.60s', as Kubernetes sets it for a Service of this name: set it "
                       "to the port, or enableServiceLinks: false in the pod",
                       name, value);
    }
    if (code != 0) return code;
  }
  notice_unknown_variables(config);
  return 0;
}

static void notice(config_t *config, const char *flag) {
  char text[160], quoted[NAME_BYTES_MAX];
  error_quote(quoted, sizeof quoted, flag, strlen(flag));
  int n = snprintf(text, sizeof text, "%s has no meaning here and is ignored", quoted);
  list_add(&config->notices, text, (size_t)n);
}

/* Says what the flag of another server is called here, or, if it is of none, that it is unknown. */
static int refuse_flag(const char *name, const char *flag, size_t length, inferd_error_t *error) {
  char word[NAME_BYTES_MAX], spelled[2 * NAME_BYTES_MAX] = "";
  snprintf(word, sizeof word, "%.*s", (int)length, flag);
  const moved_flag_t *moved = moved_flag_find(word);
  if (moved == NULL && name != NULL)
    return unknown_name(name, (config_origin_t){SOURCE_FLAG, 0}, error);
  if (moved == NULL)
    return error_set(error, ERR_USAGE, NULL, "'%.60s' is not a flag; see --help", flag);
  bool renamed = moved->option != NO_OPTION;
  if (renamed) spelling(options[moved->option].name, (config_origin_t){SOURCE_FLAG, 0}, spelled);
  return error_set(error, ERR_USAGE, NULL, "%s is a flag of %s; here: %s%s%s", word,
                   moved_flag_program(moved), spelled, renamed && *moved->note != '\0' ? ", " : "",
                   moved->note);
}

/* Reads a flag of vLLM that is no option here. */
static int load_foreign_flag(config_t *config, const foreign_flag_t *foreign, const char *flag,
                             const char *value, inferd_error_t *error) {
  int code = foreign_flag_check(foreign, value, error);
  const config_origin_t origin = {SOURCE_FLAG, 0};
  if (code == 0 && strcmp(foreign->name, "language_model_only") == 0)
    code =
        assign(config, &options[OPTION_limit_images], "{\"image\":0,\"audio\":0}", origin, error);
  if (code == 0 && foreign->kind == FLAG_MEANS)
    return assign(config, &options[OPTION_cpu_experts], "all", origin, error);
  if (code == 0 && foreign->kind != FLAG_ALWAYS) notice(config, flag);
  return code;
}

/* Reads further values of a list after the first, up to the next flag, as in vLLM. Where no model
 * was named before, the last word is the model. */
static int load_words(config_t *config, const option_t *option, int argc, char *const *argv,
                      int *at, inferd_error_t *error) {
  config_origin_t origin = {SOURCE_FLAG, 0};
  bool has_model = config->model[0] != '\0';
  for (int i = *at; i < argc && !has_model; i++) has_model = strncmp(argv[i], "--model", 7) == 0;
  int code = 0;
  while (code == 0 && *at < argc && argv[*at][0] != '-') {
    bool is_last = *at + 1 == argc || argv[*at + 1][0] == '-';
    if (is_last && !has_model) break;
    code = assign(config, option, argv[(*at)++], origin, error);
  }
  return code;
}

/* Reads the flag at argv[*at] and its value, and advances *at past both. */
static int load_flag(config_t *config, int argc, char *const *argv, int *at,
                     inferd_error_t *error) {
  const char *flag = argv[(*at)++];
  config_origin_t origin = {SOURCE_FLAG, 0};
  if (strncmp(flag, "-O", 2) == 0) return notice(config, flag), 0;
  const char *equals = strchr(flag, '=');
  size_t length = equals != NULL ? (size_t)(equals - flag) : strlen(flag);
  char name[NAME_BYTES_MAX];
  const char *meant = spelled_flag_find(flag, length);
  if (meant != NULL) {
    snprintf(name, sizeof name, "%s", meant);
  } else if (strncmp(flag, "--", 2) != 0 || !plain_name(flag + 2, length - 2, name)) {
    return refuse_flag(NULL, flag, length, error);
  }
  const option_t *option = find_option(name);
  bool negated = option == NULL && strncmp(name, "no_", 3) == 0;
  if (negated) option = find_option(name + 3);
  if (negated && option != NULL && option->kind != BOOL) option = NULL;
  const char *value = equals != NULL ? equals + 1 : NULL;
  const foreign_flag_t *foreign = option == NULL ? foreign_flag_find(name) : NULL;
  if (foreign != NULL) {
    if (foreign->has_value && value == NULL && *at < argc) value = argv[(*at)++];
    return load_foreign_flag(config, foreign, flag, value, error);
  }
  if (option == NULL) return refuse_flag(name, flag, length, error);
  if (option->kind == BOOL && value == NULL) {
    value = negated ? "false" : "true";
  } else if (negated) {
    char quoted[80];
    return error_set(error, ERR_USAGE, option->name, "%.*s takes no value, but has '%s'",
                     (int)length, flag, error_quote(quoted, sizeof quoted, value, strlen(value)));
  } else if (value == NULL) {
    if (*at == argc)
      return error_set(error, ERR_USAGE, name, "%s needs a value (%s)", flag, option->metavar);
    value = argv[(*at)++];
  }
  int code = assign(config, option, value, origin, error);
  bool words = option == &options[OPTION_served_model_name] || option == &options[OPTION_api_key] ||
               option == &options[OPTION_lora_modules];
  return code == 0 && words && equals == NULL ? load_words(config, option, argc, argv, at, error)
                                              : code;
}

static int fail_models(const char *one, const char *two, inferd_error_t *error) {
  return error_set(error, ERR_USAGE, "model", "more than one model: %.60s and %.60s", one, two);
}

static int load_flags(config_t *config, int argc, char *const *argv, inferd_error_t *error) {
  const char *model = NULL; /* the argument that is no flag */
  int code = 0;
  for (int at = 0; at < argc && code == 0;) {
    if (argv[at][0] == '-') {
      code = load_flag(config, argc, argv, &at, error);
    } else if (model != NULL) { /* of several behind one port */
      code = assign(config, &options[OPTION_models], argv[at++], (config_origin_t){SOURCE_FLAG, 0},
                    error);
    } else if (config->origin[OPTION_model].source == SOURCE_FLAG) {
      code = fail_models(config->model, argv[at], error);
    } else {
      model = argv[at++];
      code =
          assign(config, &options[OPTION_model], model, (config_origin_t){SOURCE_FLAG, 0}, error);
    }
    if (code != 0 || model == NULL || strcmp(model, config->model) == 0) continue;
    code = fail_models(model, config->model, error); /* --model has another */
  }
  return code;
}

/* [::1] is ::1: an IPv6 address stands in brackets where a port follows it. */
static void strip_brackets(config_t *config) {
  const size_t length = strlen(config->host);
  if (length < 3 || config->host[0] != '[' || config->host[length - 1] != ']') return;
  memmove(config->host, config->host + 1, length - 2);
  config->host[length - 2] = '\0';
}

int config_load(config_t *config, int argc, char *const *argv, inferd_error_t *error) {
  int code = load_defaults(config, error);
  /* The flags are read twice: --config names the file, and flags have precedence over the file. */
  if (code == 0) code = load_environment(config, error);
  if (code == 0) code = load_flags(config, argc, argv, error);
  if (code != 0) return code;
  char *path = strdup(config->config);
  if (path == NULL) {
    return error_set(error, ERR_NO_MEMORY, NULL,
                     "no memory for the path of the configuration file");
  }
  if (path[0] != '\0') {
    config_free(config);
    code = load_defaults(config, error);
    if (code == 0) code = load_file(config, path, false, error);
    if (code == 0) code = load_environment(config, error);
    if (code == 0) code = load_flags(config, argc, argv, error);
  }
  free(path);
  if (code != 0) return code;
  strip_brackets(config);
  code = config_check(config, error);
  if (code != 0 && error != NULL) config_explain(config, error);
  return code;
}

int config_load_file(config_t *config, const char *path, inferd_error_t *error) {
  int code = load_defaults(config, error);
  if (code == 0) code = load_file(config, path, false, error);
  if (code == 0) {
    code =
        assign(config, &options[OPTION_config], path, (config_origin_t){SOURCE_DEFAULT, 0}, error);
  }
  if (code != 0) return code;
  strip_brackets(config);
  code = config_check(config, error);
  if (code != 0 && error != NULL) config_explain(config, error);
  return code;
}

int config_load_sections(config_t *config, const char *path, inferd_error_t *error) {
  return load_file(config, path, true, error);
}

int config_set_models(config_t *config, const char *model, const char *name, const char *draft,
                      inferd_error_t *error) {
  char **places[] = {&config->model, &config->speculative_model};
  const char *paths[] = {model, draft};
  bool ok = true;
  for (int i = 0; i < 2; i++) {
    char *copy = strdup(paths[i]);
    ok = ok && copy != NULL;
    if (copy == NULL) continue;
    free(*places[i]);
    *places[i] = copy;
  }
  if (name[0] != '\0' && config->served_model_name.count == 0) {
    ok = ok && list_add(&config->served_model_name, name, strlen(name));
  }
  return ok ? 0 : error_set(error, ERR_NO_MEMORY, NULL, "no memory for the path of the model");
}

void config_free(config_t *config) {
  for (int i = 0; i < OPTION_COUNT; i++) {
    void *at = member(config, &options[i]);
    if (options[i].kind == LIST) list_free(at);
    if (options[i].kind == STRING || options[i].kind == CHOICE) {
      free(*(char **)at);
      *(char **)at = NULL;
    }
  }
  list_free(&config->notices);
  for (int i = 0; i < config->num_sections; i++) {
    free(config->sections[i].name);
    list_free(&config->sections[i].lines);
  }
  free(config->sections);
  config->sections = NULL;
  config->num_sections = 0;
}

bool config_given(const config_t *config, enum config_option option) {
  return config->origin[option].source != SOURCE_DEFAULT;
}

const char *config_group(enum config_option option) {
  return options[option].group;
}

/* ---- printing ---- */

static void print_value(const config_t *config, const option_t *option, FILE *out) {
  const void *at = (const char *)config + option->offset;
  const config_list_t *list = at;
  switch (option->kind) {
  case BOOL: fputs(*(const bool *)at ? "true" : "false", out); break;
  case INT:
  case SIZE:
    if (*(const int64_t *)at < 0 && strcmp(option->initial, "auto") == 0) {
      fputs("auto", out);
    } else {
      fprintf(out, "%lld", (long long)*(const int64_t *)at);
    }
    break;
  case GIB:
    if (*(const int64_t *)at < 0) {
      fputs("auto", out);
    } else {
      fprintf(out, "%.10g", (double)*(const int64_t *)at / BYTES_OF_A_GIB);
    }
    break;
  case DURATION:
  case FRACTION: fprintf(out, "%.10g", *(const double *)at); break;
  case STRING:
  case CHOICE: fputs(*(char *const *)at, out); break;
  case LIST:
    for (int i = 0; i < list->count; i++) {
      bool secret = option == &options[OPTION_api_key] || option == &options[OPTION_admin_key];
      fprintf(out, "%s%s", i > 0 ? ", " : "", secret ? "***" : list->items[i]);
    }
    break;
  }
}

/* Items of lists may have commas, so a list is printed as JSON. */
static void print_list(const config_list_t *list, FILE *out) {
  for (int i = 0; i < list->count; i++) {
    const char *item = list->items[i];
    char text[8192] = "";
    size_t length = json_escape(text, sizeof text - 1, item, strlen(item));
    text[MIN(length, sizeof text - 1)] = '\0';
    fprintf(out, "%s\"%s\"", i > 0 ? "," : "[", text);
  }
  if (list->count > 0) fputc(']', out);
}

char *config_text(const config_t *config, enum config_option option) {
  char *text = NULL;
  size_t length = 0;
  FILE *out = open_memstream(&text, &length);
  if (out == NULL) return NULL;
  if (options[option].kind == LIST) {
    print_list((const config_list_t *)((const char *)config + options[option].offset), out);
  } else {
    print_value(config, &options[option], out);
  }
  if (fclose(out) == 0) return text;
  free(text);
  return NULL;
}

void config_dump(const config_t *config, FILE *out) {
  static const char *const sources[] = {"default", "file", "environment", "flag"};
  for (int i = 0; i < OPTION_COUNT; i++) {
    fprintf(out, "%s%s = ", i == OPTION_config ? "# " : "", options[i].name);
    print_value(config, &options[i], out);
    fprintf(out, "  # %s", sources[config->origin[i].source]);
    if (config->origin[i].line > 0) fprintf(out, " line %d", config->origin[i].line);
    fputc('\n', out);
  }
}

static void print_option(const option_t *option, FILE *out) {
  char flag[160];
  int n = snprintf(flag, sizeof flag, "--%s%s", option->kind == BOOL ? "[no-]" : "", option->name);
  for (char *p = flag + 2; *p != '\0'; p++) *p = *p == '_' ? '-' : *p;
  if (option->kind != BOOL) {
    snprintf(flag + n, sizeof flag - (size_t)n, " %s", option->metavar);
  }
  bool narrow = strlen(flag) <= 32;
  fprintf(out, "  %-32s%s%*s %s", flag, narrow ? "" : "\n", narrow ? 0 : 34, "", option->help);
  if (option->initial[0] != '\0' && strcmp(option->initial, "0") != 0) {
    fprintf(out, " [%s]", option->initial);
  }
  if (option->alias[0] != '\0') {
    fputs(" (also --", out);
    for (const char *p = option->alias; *p != '\0'; p++) fputc(*p == '_' ? '-' : *p, out);
    fputc(')', out);
  }
  fputc('\n', out);
}

int config_help(FILE *out, const char *topic) {
  int printed = 0;
  const char *group = "";
  for (int i = 0; i < OPTION_COUNT; i++) {
    const option_t *option = &options[i];
    bool wanted = topic == NULL ? option->shown
                                : strcmp(topic, "all") == 0 || strcmp(topic, option->group) == 0 ||
                                      strstr(option->name, topic) != NULL ||
                                      strcasestr(option->help, topic) != NULL;
    if (!wanted) continue;
    if (topic != NULL && strcmp(group, option->group) != 0) {
      group = option->group;
      fprintf(out, "%s%s:\n", printed > 0 ? "\n" : "", group);
    }
    print_option(option, out);
    printed++;
  }
  return printed;
}
