/* table.c: which models there are: words of the command line, sections of files, a directory,
 * the caches of Hugging Face.
 *
 * Loop thread. The table is made at start, after SIGHUP, and when something has changed in the
 * directory, which directory.c looks at. Nothing here reads a file, but for the first time. A model
 * that is not listed any more ends what it runs, and is forgotten.
 */
#include "server/models/models_internal.h"

#include "config/parse.h"
#include "engine/base/clock.h"
#include "engine/base/util.h"
#include "engine/model/source/locate.h"
#include "server/observe/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- words ---- */

bool words_add(words_t *words, const char *text) {
  char **list = reallocarray(words->list, (size_t)words->count + 2, sizeof *list);
  if (list == NULL) return false;
  words->list = list;
  list[words->count] = strdup(text);
  if (list[words->count] == NULL) return false;
  list[++words->count] = NULL;
  return true;
}

void words_remove(words_t *words, const char *text) {
  int kept = 0;
  for (int i = 0; i < words->count; i++) {
    if (strcmp(words->list[i], text) == 0)
      free(words->list[i]);
    else
      words->list[kept++] = words->list[i];
  }
  words->count = kept;
  if (words->list != NULL) words->list[kept] = NULL;
}

void words_free(words_t *words) {
  for (int i = 0; i < words->count; i++) free(words->list[i]);
  free(words->list);
  *words = (words_t){0};
}

static bool words_same(const words_t *left, const words_t *right) {
  if (left->count != right->count) return false;
  for (int i = 0; i < left->count; i++) {
    if (strcmp(left->list[i], right->list[i]) != 0) return false;
  }
  return true;
}

static void model_wish_free(model_wish_t *wish) {
  free(wish->what);
  words_free(&wish->names);
  words_free(&wish->settings);
  words_free(&wish->adapters);
  *wish = (model_wish_t){0};
}

static int no_memory(inferd_error_t *error) {
  return error_set(error, ERR_NO_MEMORY, NULL, "no memory for the table of models");
}

/* ---- one model ---- */

/* The name of a model: ORG/NAME, the name of a GGUF file without its ending, or of a directory. */
static void name_of(const char *what, char out[MODEL_NAME_MAX]) {
  const char *slash = strrchr(what, '/');
  if (model_is_hub_name(what) || slash == NULL) slash = what - 1;
  snprintf(out, MODEL_NAME_MAX, "%s", slash + 1);
  size_t length = strlen(out);
  if (length > 5 && strcmp(out + length - 5, ".gguf") == 0) out[length - 5] = '\0';
}

static bool list_into(words_t *out, const char *value, bool before_equals) {
  for (const char *p = value; *p != '\0';) {
    char item[MODEL_NAME_MAX];
    size_t length = strcspn(p, ","), lead = strspn(p, " \t"), kept;
    snprintf(item, sizeof item, "%.*s", (int)(length > lead ? length - lead : 0), p + lead);
    for (kept = strlen(item); kept > 0 && strchr(" \t", item[kept - 1]) != NULL;)
      item[--kept] = '\0';
    if (before_equals) item[strcspn(item, "=")] = '\0';
    if (item[0] != '\0' && !words_add(out, item)) return false;
    p += length + (p[length] == ',');
  }
  return true;
}

/* Options beside which a model is refused that could sleep (engine/asleep.c). */
static bool forbids_sleep(const char *key, const char *value) {
  static const char *const keys[] = {
      "journal",     "speculative_model",  "prefix_cache_file",    "prefix_cache_space",
      "cpu_experts", "data_parallel_size", "tensor_parallel_size", "pipeline_parallel_size"};
  if (strcmp(key, "sleep_space") == 0) return strtod(value, NULL) <= 0;
  for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
    if (strcmp(key, keys[i]) == 0) return true;
  }
  return false;
}

/* Takes a line "key=value" of a section, which config.c has checked. */
static bool take_line(model_wish_t *wish, const char *line) {
  const char *value = strchr(line, '=') + 1;
  size_t length = (size_t)(value - 1 - line);
  char key[64], setting[4200];
  snprintf(key, sizeof key, "%.*s", (int)length, line);
  if (strcmp(key, "aliases") == 0) return list_into(&wish->names, value, false);
  if (strcmp(key, "pin") == 0) return parse_bool(value, &wish->pin);
  if (strcmp(key, "preload") == 0) return parse_bool(value, &wish->preload);
  if (strcmp(key, "idle_unload") == 0) return parse_duration(value, &wish->idle_s);
  if (strcmp(key, "priority") == 0) return wish->priority = (int32_t)atoi(value), true;
  if (strcmp(key, "model") == 0) {
    free(wish->what);
    return (wish->what = strdup(value)) != NULL;
  }
  if (strcmp(key, "lora_modules") == 0 && !list_into(&wish->adapters, value, true)) return false;
  wish->has_kv |= strcmp(key, "kv_cache_bytes") == 0 || strcmp(key, "num_blocks") == 0 ||
                  strcmp(key, "memory") == 0;
  wish->never_sleeps |= forbids_sleep(key, value);
  snprintf(setting, sizeof setting, "INFERD_%s", line);
  for (size_t i = 7; i < 7 + length; i++) {
    if (setting[i] >= 'a' && setting[i] <= 'z') setting[i] = (char)(setting[i] - 32);
  }
  return words_add(&wish->settings, setting);
}

/* A word of the command line, or what was found in the directory. */
static int wish_of(const config_t *config, const char *name, const char *what, model_wish_t *out,
                   inferd_error_t *error) {
  *out = (model_wish_t){.what = strdup(what), .idle_s = config->models_idle};
  if (out->what != NULL && words_add(&out->names, name)) return 0;
  return no_memory(error);
}

static int wish_of_section(const config_t *config, const config_model_t *section, model_wish_t *out,
                           inferd_error_t *error) {
  int code = wish_of(config, section->name, section->name, out, error);
  for (int i = 0; i < section->lines.count && code == 0; i++) {
    if (!take_line(out, section->lines.items[i])) code = no_memory(error);
  }
  return code;
}

/* ---- the table ---- */

static bool has_name(const words_t *names, const char *name, size_t length) {
  for (int i = 0; i < names->count; i++) {
    if (strncmp(names->list[i], name, length) == 0 && names->list[i][length] == '\0') return true;
  }
  return false;
}

/* Of BASE:ADAPTER, where the name in front of the last colon is of the model: the adapter's. */
static const char *adapter_in(const served_t *model, const char *name, size_t length) {
  const char *colon = memrchr(name, ':', length);
  bool base = colon != NULL && has_name(&model->wish.names, name, (size_t)(colon - name));
  return base ? colon + 1 : NULL;
}

const words_t *served_adapters(const served_t *model) {
  const life_model_t *life = model->life;
  bool there = life != NULL && (life->state == LIFE_READY || life->state == LIFE_DRAINING ||
                                life->state == LIFE_ASLEEP || life->wakes);
  return there ? &model->child.adapters : &model->wish.adapters;
}

static bool has_adapter(const served_t *model, const words_t *adapters, const char *name,
                        size_t length) {
  if (has_name(adapters, name, length)) return true;
  const char *adapter = adapter_in(model, name, length);
  return adapter != NULL && has_name(adapters, adapter, (size_t)(name + length - adapter));
}

/* An adapter that came at run time hides no model. */
served_t *models_find(const models_t *models, const char *name, size_t length) {
  for (served_t *model = models->first; model != NULL; model = model->next) {
    if (model->listed && has_name(&model->wish.names, name, length)) return model;
  }
  for (served_t *model = models->first; model != NULL; model = model->next) {
    if (model->listed && has_adapter(model, served_adapters(model), name, length)) return model;
  }
  return NULL;
}

/* The same by what the configuration says. */
static served_t *find_configured(const models_t *models, const char *name, size_t length) {
  for (served_t *model = models->first; model != NULL; model = model->next) {
    if (!model->listed) continue;
    if (has_name(&model->wish.names, name, length) ||
        has_adapter(model, &model->wish.adapters, name, length))
      return model;
  }
  return NULL;
}

served_t *models_find_loaded(const models_t *models, const char *name, size_t length) {
  for (served_t *model = models->first; model != NULL; model = model->next) {
    const life_model_t *life = model->listed ? model->life : NULL;
    bool there = life != NULL && (life->state == LIFE_READY || life->state == LIFE_ASLEEP);
    if (there && adapter_in(model, name, length) != NULL) return model;
  }
  return NULL;
}

bool model_has_name(const served_t *model, const char *name) {
  return has_name(&model->wish.names, name, strlen(name));
}

static bool same_wish(const model_wish_t *left, const model_wish_t *right) {
  return strcmp(left->what, right->what) == 0 && words_same(&left->names, &right->names) &&
         words_same(&left->settings, &right->settings) && left->pin == right->pin &&
         left->preload == right->preload && left->idle_s == right->idle_s &&
         left->priority == right->priority;
}

/* Whether the same process serves both. */
static bool same_process(const model_wish_t *left, const model_wish_t *right) {
  return strcmp(left->what, right->what) == 0 && words_same(&left->names, &right->names) &&
         words_same(&left->settings, &right->settings);
}

static void changed(served_t *model, model_wish_t *fresh) {
  models_t *models = model->models;
  bool same = same_process(&model->wish, fresh);
  model_wish_free(&model->wish);
  model->wish = *fresh;
  *fresh = (model_wish_t){0};
  log_line(LOG_INFO, "models", "%.200s has changed%s", model->wish.names.list[0],
           same ? "" : ": it is loaded anew when it is idle");
  if (!same && model->plan_state != PLAN_RUNS) model->plan_state = PLAN_NONE;
  if (model->life == NULL) return;
  life_plan_t plan = model->life->plan;
  plan.pinned = model->wish.pin;
  plan.priority = model->wish.priority;
  plan.idle_ns = (uint64_t)(model->wish.idle_s * 1e9);
  life_replan(models->life, model->life, &plan, clock_now_ns());
  if (!same) life_close(models->life, model->life, clock_now_ns());
}

/* Lists a model; takes what is in *wish over, or frees it. */
static int list_model(models_t *models, model_wish_t *wish, inferd_error_t *error) {
  served_t *old = NULL;
  int code = 0;
  for (int i = 0; i < wish->names.count && code == 0; i++) {
    const char *name = wish->names.list[i];
    served_t *other = find_configured(models, name, strlen(name));
    if (other != NULL)
      code = error_set(error, ERR_CONFIGURATION, "model",
                       "two models are called %.200s: %.150s and %.150s", name, other->wish.what,
                       wish->what);
  }
  for (served_t *model = models->first; model != NULL && code == 0; model = model->next) {
    if (strcmp(model->wish.names.list[0], wish->names.list[0]) == 0) old = model;
  }
  if (code == 0 && old == NULL && models->count == MODELS_MAX)
    code = error_set(error, ERR_CONFIGURATION, "models", "more than %d models", MODELS_MAX);
  if (code == 0 && old == NULL) {
    old = calloc(1, sizeof *old);
    if (old == NULL) code = no_memory(error);
    if (old != NULL) {
      *old = (served_t){.models = models, .wish = *wish, .number = ++models->last_number};
      old->child.notify_fd = -1;
      *wish = (model_wish_t){0};
      served_t **end = &models->first;
      while (*end != NULL) end = &(*end)->next;
      *end = old;
      models->count++;
    }
  } else if (code == 0 && !same_wish(&old->wish, wish)) {
    changed(old, wish);
  }
  if (code == 0) old->listed = true;
  model_wish_free(wish);
  return code;
}

static int list_sections(models_t *models, const config_t *config, const config_t *with,
                         inferd_error_t *error) {
  int code = 0;
  for (int i = 0; i < with->num_sections && code == 0; i++) {
    model_wish_t wish;
    code = wish_of_section(config, &with->sections[i], &wish, error);
    if (code == 0)
      code = list_model(models, &wish, error);
    else
      model_wish_free(&wish);
  }
  return code;
}

static int list_word(models_t *models, const config_t *config, const char *what, bool preload,
                     inferd_error_t *error) {
  char name[MODEL_NAME_MAX];
  model_wish_t wish;
  name_of(what, name);
  int code = wish_of(config, name, what, &wish, error);
  wish.preload = preload;
  if (code == 0) return list_model(models, &wish, error);
  model_wish_free(&wish);
  return code;
}

/* A word that means no model is most often a slip of the hand. Only the start looks at the disk. */
static int check_word(const models_t *models, const config_t *config, const char *what,
                      inferd_error_t *error) {
  located_t found;
  if (models->words_checked) return 0;
  if (config->pull && model_is_hub_name(what)) return 0;
  return model_locate(what, &found, error);
}

/* What was found in the directory. What is wrong in a file there hides no other model. */
static int list_directory(models_t *models, const config_t *config, inferd_error_t *error) {
  const directory_t *directory = &models->directory;
  int first = directory->code;
  if (first != 0) *error = directory->error;
  for (int i = 0; i < directory->num_notes; i++)
    log_line(LOG_WARN, "models", "not served from the cache: %s", directory->notes[i]);
  for (int i = 0; i < directory->count; i++) {
    const found_t *found = &directory->list[i];
    inferd_error_t own;
    if (found->cached && find_configured(models, found->path, strlen(found->path)) != NULL)
      continue;
    int code = found->sections != NULL ? list_sections(models, config, found->sections, &own)
                                       : list_word(models, config, found->path, false, &own);
    if (code == 0 || first != 0) continue;
    first = code;
    *error = own;
  }
  return first;
}

/* ---- reading ---- */

int models_read(models_t *models, const config_t *config, inferd_error_t *error) {
  for (served_t *model = models->first; model != NULL; model = model->next) {
    model->was_listed = model->listed;
    model->listed = false;
  }
  int code = 0;
  if (config->model[0] != '\0') code = check_word(models, config, config->model, error);
  if (config->model[0] != '\0' && code == 0)
    code = list_word(models, config, config->model, true, error);
  for (int i = 0; i < config->models.count && code == 0; i++) {
    code = check_word(models, config, config->models.items[i], error);
    if (code == 0) code = list_word(models, config, config->models.items[i], true, error);
  }
  if (code == 0) code = list_sections(models, config, config, error);
  if (code == 0) code = list_directory(models, config, error);
  models->words_checked |= code == 0;
  for (served_t *model = models->first; model != NULL; model = model->next) {
    if (code != 0) model->listed |= model->was_listed; /* an error takes none away */
    if (model->listed || model->life == NULL) continue;
    life_close(models->life, model->life, clock_now_ns());
  }
  return code;
}

void model_forget(served_t *model) {
  models_t *models = model->models;
  served_t **link = &models->first;
  while (*link != model) link = &(*link)->next;
  *link = model->next;
  models->count--;
  if (model->life != NULL) life_remove(models->life, model->life);
  model_wish_free(&model->wish);
  words_free(&model->child.adapters);
  free(model->shown);
  buffer_free(&model->survey.text);
  buffer_free(&model->survey.reason);
  free(model);
}
