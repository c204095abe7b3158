/* lora_table.c: the table of adapters; see lora_table.h. */
#include "server/completion/lora_table.h"

#include "engine/base/check.h"
#include "engine/base/util.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct loras {
  uv_mutex_t lock;                  /* names and `ready`, for lora_known */
  lora_entry_t *entries[LORAS_MAX]; /* by slot - 1; NULL = free */
  int32_t num_slots;
  uint64_t next_unique;
  time_t changed; /* when a request began to use an adapter, or to run with it, or ended */
} loras_t;

static void entry_free(lora_entry_t *entry) {
  if (entry == NULL) return;
  free(entry->name);
  free(entry->path);
  free(entry);
}

static lora_entry_t *entry_new(const char *name, size_t length, const char *path, int32_t slot,
                               uint64_t unique) {
  lora_entry_t *entry = calloc(1, sizeof *entry);
  if (entry == NULL) return NULL;
  *entry = (lora_entry_t){
      .name = strndup(name, length), .path = strdup(path), .slot = slot, .unique = unique};
  if (entry->name != NULL && entry->path != NULL) return entry;
  entry_free(entry);
  return NULL;
}

int loras_check(const config_t *config, inferd_error_t *error) {
  const config_list_t *modules = &config->lora_modules;
  if (!config->enable_lora && modules->count > 0)
    return error_set(error, ERR_CONFIGURATION, "lora_modules",
                     "lora_modules names %d adapters, but enable_lora is false; set --enable-lora",
                     modules->count);
  if (modules->count > LORAS_MAX)
    return error_set(error, ERR_CONFIGURATION, "lora_modules",
                     "lora_modules names %d adapters, supported: 1..%d", modules->count, LORAS_MAX);
  for (int i = 0; i < modules->count; i++) {
    const char *equals = strchr(modules->items[i], '=');
    if (equals == NULL || equals == modules->items[i] || equals[1] == '\0')
      return error_set(error, ERR_CONFIGURATION, "lora_modules",
                       "lora_modules: \"%.100s\" is not NAME=DIR", modules->items[i]);
  }
  return 0;
}

int loras_new(completions_t *live, const config_t *config) {
  if (!config->enable_lora) return 0;
  loras_t *loras = calloc(1, sizeof *loras);
  if (loras == NULL) return ERR_NO_MEMORY;
  uv_mutex_init(&loras->lock);
  live->loras = loras;
  loras->changed = time(NULL);
  const config_list_t *modules = &config->lora_modules;
  int32_t count = MIN(modules->count, LORAS_MAX);
  loras->num_slots = MAX((int32_t)config->max_loras, count);
  for (int32_t i = 0; i < count; i++) {
    const char *equals = strchr(modules->items[i], '=');
    if (equals == NULL) continue; /* serve_engine_options has refused it */
    lora_entry_t *entry = entry_new(modules->items[i], (size_t)(equals - modules->items[i]),
                                    equals + 1, i + 1, ++loras->next_unique);
    if (entry == NULL) return ERR_NO_MEMORY;
    entry->ready = entry->configured = true;
    loras->entries[i] = entry;
  }
  return 0;
}

void loras_free(completions_t *live) {
  loras_t *loras = live->loras;
  if (loras == NULL) return;
  for (int i = 0; i < LORAS_MAX; i++) entry_free(loras->entries[i]);
  uv_mutex_destroy(&loras->lock);
  free(loras);
  live->loras = NULL;
}

/* Finds the entry of a name, ready or still loading, but not unloaded; NULL if there is none. */
static lora_entry_t *find(const loras_t *loras, const char *name, size_t length) {
  for (int32_t i = 0; i < loras->num_slots; i++) {
    lora_entry_t *entry = loras->entries[i];
    if (entry == NULL || entry->gone || strlen(entry->name) != length) continue;
    if (memcmp(entry->name, name, length) == 0) return entry;
  }
  return NULL;
}

/* The same for a name of a request, which may also be MODEL:ADAPTER. */
static lora_entry_t *find_asked(const completions_t *live, const char *name, size_t length) {
  lora_entry_t *entry = find(live->loras, name, length);
  const char *colon = entry == NULL ? memrchr(name, ':', length) : NULL;
  if (colon == NULL || !model_name_known(live, name, (size_t)(colon - name))) return entry;
  return find(live->loras, colon + 1, (size_t)(name + length - colon - 1));
}

bool lora_known(const completions_t *live, const char *name, size_t length) {
  loras_t *loras = live->loras;
  if (loras == NULL) return false;
  uv_mutex_lock(&loras->lock);
  const lora_entry_t *entry = find_asked(live, name, length);
  bool known = entry != NULL && entry->ready;
  uv_mutex_unlock(&loras->lock);
  return known;
}

bool lora_name_at(const completions_t *live, int32_t slot, char *out, size_t size) {
  loras_t *loras = live->loras;
  if (loras == NULL || slot < 1 || slot > loras->num_slots) return false;
  uv_mutex_lock(&loras->lock);
  const lora_entry_t *entry = loras->entries[slot - 1];
  bool known = entry != NULL && entry->ready;
  if (known) snprintf(out, size, "%s", entry->name);
  uv_mutex_unlock(&loras->lock);
  return known;
}

lora_entry_t *lora_use(completions_t *live, const char *name, size_t length) {
  if (live->loras == NULL) return NULL;
  lora_entry_t *entry = find_asked(live, name, length);
  if (entry == NULL || !entry->ready) return NULL;
  entry->users++;
  live->loras->changed = time(NULL);
  return entry;
}

void lora_begin(completions_t *live, lora_entry_t *entry) {
  entry->begun++;
  live->loras->changed = time(NULL);
}

static void free_slot(loras_t *loras, lora_entry_t *entry) {
  uv_mutex_lock(&loras->lock);
  loras->entries[entry->slot - 1] = NULL;
  uv_mutex_unlock(&loras->lock);
  entry_free(entry);
}

void lora_release(completions_t *live, lora_entry_t *entry, bool begun) {
  if (entry == NULL) return;
  CHECK_GT(entry->users, 0);
  live->loras->changed = time(NULL);
  entry->begun -= begun;
  if (--entry->users == 0 && entry->gone) free_slot(live->loras, entry);
}

int lora_reserve(completions_t *live, const char *name, const char *path, lora_entry_t **out,
                 inferd_error_t *error) {
  loras_t *loras = live->loras;
  char shown[300];
  error_quote(shown, sizeof shown, name, strlen(name));
  if (find(loras, name, strlen(name)) != NULL || model_name_known(live, name, strlen(name)))
    return error_set(error, ERR_INVALID_VALUE, "lora_name", "The name `%s` is taken already.",
                     shown);
  int32_t slot = 0;
  while (slot < loras->num_slots && loras->entries[slot] != NULL) slot++;
  if (slot == loras->num_slots)
    return error_set(error, ERR_INVALID_VALUE, "lora_name",
                     "All %d slots for adapters are in use (--max-loras); unload one first.",
                     loras->num_slots);
  lora_entry_t *entry = entry_new(name, strlen(name), path, slot + 1, ++loras->next_unique);
  if (entry == NULL) return error_set(error, ERR_INTERNAL, NULL, "Out of memory.");
  uv_mutex_lock(&loras->lock);
  loras->entries[slot] = entry;
  uv_mutex_unlock(&loras->lock);
  *out = entry;
  return 0;
}

void lora_ready(completions_t *live, lora_entry_t *entry) {
  loras_t *loras = live->loras;
  uv_mutex_lock(&loras->lock);
  entry->ready = true;
  uv_mutex_unlock(&loras->lock);
}

void lora_drop(completions_t *live, lora_entry_t *entry) {
  loras_t *loras = live->loras;
  uv_mutex_lock(&loras->lock);
  entry->gone = true;
  uv_mutex_unlock(&loras->lock);
  if (entry->users == 0) free_slot(loras, entry);
}

lora_entry_t *lora_at(const completions_t *live, int index) {
  loras_t *loras = live->loras;
  for (int32_t i = 0; loras != NULL && i < loras->num_slots; i++) {
    lora_entry_t *entry = loras->entries[i];
    if (entry != NULL && entry->ready && !entry->gone && index-- == 0) return entry;
  }
  return NULL;
}

static void add_name(buffer_t *names, const char *name) {
  if (names->length > 0) buffer_char(names, ',');
  buffer_text(names, name);
}

void lora_usage(const completions_t *live, lora_usage_t *out) {
  const loras_t *loras = live->loras;
  *out = (lora_usage_t){.changed_s = loras->changed, .num_slots = loras->num_slots};
  for (int32_t i = 0; i < loras->num_slots; i++) {
    const lora_entry_t *entry = loras->entries[i];
    if (entry == NULL) continue;
    if (entry->begun > 0) add_name(&out->running, entry->name);
    if (entry->users > entry->begun) add_name(&out->waiting, entry->name);
  }
}
