/* reload.c: which options a running server takes over from a configuration that was read again.
 *
 * Main thread, which is the loop thread. reload.def lists the options that may change while the
 * server runs.
 */
#include "config/config.h"

#include "engine/base/util.h"

#include <string.h>

static const enum config_option changeable[] = {
#define RELOADED(field, bound) OPTION_##field,
#include "config/reload.def"
#undef RELOADED
};

/* The size of a value, and whether it is text or a list of texts. */
typedef enum value_form { FORM_PLAIN, FORM_TEXT, FORM_LIST } value_form_t;
#define FORM(type)                                                                                 \
  _Generic((type){0}, char * : FORM_TEXT, config_list_t : FORM_LIST, default : FORM_PLAIN)

static const struct {
  const char *name;
  size_t offset, size;
  value_form_t form;
} values[] = {
#define OPTION(kind, field, ...)                                                                   \
  {#field, offsetof(config_t, field), sizeof(config_##kind##_t), FORM(config_##kind##_t)},
#include "config/options.def"
#undef OPTION
};

const char *config_name(enum config_option option) {
  return values[option].name;
}

bool config_may_change(enum config_option option) {
  for (size_t i = 0; i < ARRAY_LEN(changeable); i++) {
    if (changeable[i] == option) return true;
  }
  return false;
}

bool config_same(const config_t *left, const config_t *right, enum config_option option) {
  const void *one = (const char *)left + values[option].offset;
  const void *other = (const char *)right + values[option].offset;
  if (values[option].form == FORM_PLAIN) return memcmp(one, other, values[option].size) == 0;
  if (values[option].form == FORM_TEXT) {
    return strcmp(*(char *const *)one, *(char *const *)other) == 0;
  }
  const config_list_t *list = one, *list_of_other = other;
  bool same = list->count == list_of_other->count;
  for (int i = 0; same && i < list->count; i++) {
    same = strcmp(list->items[i], list_of_other->items[i]) == 0;
  }
  return same;
}

void config_exchange(config_t *left, config_t *right, enum config_option option) {
  char bytes[sizeof(config_list_t)];
  void *one = (char *)left + values[option].offset, *other = (char *)right + values[option].offset;
  memcpy(bytes, one, values[option].size);
  memcpy(one, other, values[option].size);
  memcpy(other, bytes, values[option].size);
  config_origin_t origin = left->origin[option];
  left->origin[option] = right->origin[option];
  right->origin[option] = origin;
}

void config_exchange_sections(config_t *left, config_t *right) {
  config_model_t *sections = left->sections;
  int count = left->num_sections;
  left->sections = right->sections;
  left->num_sections = right->num_sections;
  right->sections = sections;
  right->num_sections = count;
}
