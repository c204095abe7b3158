/* schema_presence.c: keywords that say which members of an object occur together.
 *
 * Part of a compilation, on its thread. All of them become one condition on the presence of names
 * (presence.h). Names that are required are present in it; where such a condition stands, it also
 * holds minProperties and maxProperties, because both bound the same choice.
 */
#include "engine/base/util.h"
#include "engine/grammar/language/schema_logic.h"
#include "engine/grammar/language/schema_members.h"

#include <string.h>

enum { PRESENCE_NAMES_MAX = 512 };

/* Keywords whose members are: a name -> the names that must occur with it. */
static const keyword_t dependent[] = {KEYWORD_DEPENDENT_REQUIRED, KEYWORD_DEPENDENCIES};

static void add_name(const schema_t *schema, grammar_list_t *names, const char *text,
                     uint32_t length) {
  *(member_name_t *)list_add(schema->compile, names, sizeof(member_name_t)) =
      (member_name_t){text, length, false};
}

static void add_dependent(const schema_t *schema, grammar_list_t *names, const json_t *map) {
  JSON_EACH(json, map) {
    if (json->type != JSON_ARRAY) continue;
    add_name(schema, names, json->key, json->key_length);
    JSON_EACH(name, json) add_name(schema, names, name->text, name->length);
  }
}

static void add_of_literal(const schema_t *schema, grammar_list_t *names,
                           const keywords_t *keywords) {
  const json_t *about = keywords->about, *list;
  switch ((literal_t)keywords->literal) {
  case LITERAL_REQUIRED:
    list = json_get(about, "required");
    JSON_EACH(name, list) add_name(schema, names, name->text, name->length);
    break;
  case LITERAL_EXTRA:
    list = json_get(about, "properties");
    if (list == NULL) break;
    JSON_EACH(json, list) add_name(schema, names, json->key, json->key_length);
    break;
  case LITERAL_DEPENDENT: add_dependent(schema, names, about); break;
  case LITERAL_MEMBER:
  case LITERAL_PRESENT:
  case LITERAL_ABSENT:
    *(member_name_t *)list_add(schema->compile, names, sizeof(member_name_t)) =
        (member_name_t){about->key, about->key_length, keywords->is_present};
    break;
  default: break;
  }
}

grammar_list_t schema_presence_names(const schema_t *schema, const conjunction_t *conjunction) {
  grammar_list_t names = {0};
  for (uint32_t i = 0; i < conjunction->count; i++) {
    for (size_t w = 0; w < ARRAY_LEN(dependent); w++) {
      const json_t *map = conjunction->items[i].values[dependent[w]];
      if (map != NULL) add_dependent(schema, &names, map);
    }
    add_of_literal(schema, &names, &conjunction->items[i]);
  }
  return names;
}

/* ---- conditions ---- */

typedef struct context {
  schema_t *schema;
  presence_t *presence;
  const grammar_list_t *names; /* member_name_t: the members of the object */
} context_t;

/* The condition that the name occurs. */
static uint32_t is_present(const context_t *context, const char *text, uint32_t length) {
  const member_name_t *list = context->names->items;
  compile_spend(context->schema->compile, context->names->count / 8 + 1);
  for (uint32_t i = 0; i < context->names->count; i++) {
    if (list[i].length != length || memcmp(list[i].text, text, length) != 0) continue;
    return list[i].required ? PRESENCE_ALWAYS : presence_of(context->presence, i);
  }
  return PRESENCE_NEVER;
}

/* All names of an array occur. */
static uint32_t are_present(const context_t *context, const json_t *array) {
  uint32_t all = PRESENCE_ALWAYS;
  JSON_EACH(name, array)
  all = presence_and(context->presence, all, is_present(context, name->text, name->length));
  return all;
}

/* Each name of the map that occurs has its others with it. */
static uint32_t are_together(const context_t *context, const json_t *map) {
  uint32_t all = PRESENCE_ALWAYS;
  JSON_EACH(json, map) {
    if (json->type != JSON_ARRAY) continue;
    uint32_t trigger = is_present(context, json->key, json->key_length);
    uint32_t one =
        presence_if(context->presence, trigger, are_present(context, json), PRESENCE_ALWAYS);
    all = presence_and(context->presence, all, one);
  }
  return all;
}

/* One of the required names that have no schema is absent. */
static uint32_t one_is_absent(const context_t *context, const json_t *about) {
  const json_t *properties = json_get(about, "properties"), *required = json_get(about, "required");
  uint32_t all = PRESENCE_ALWAYS;
  JSON_EACH(name, required) {
    if (json_member(properties, name->text, name->length) != NULL) continue;
    all = presence_and(context->presence, all, is_present(context, name->text, name->length));
  }
  return presence_not(context->presence, all);
}

/* A name occurs that the schema does not list: an extra one, or one that another part lists. */
static uint32_t one_is_extra(const context_t *context, const json_t *about) {
  const member_name_t *list = context->names->items;
  const json_t *properties = json_get(about, "properties");
  uint32_t any = presence_of(context->presence, context->names->count);
  for (uint32_t i = context->names->count; i-- > 0;) {
    compile_spend(context->schema->compile, 4);
    if (json_member(properties, list[i].text, list[i].length) != NULL) continue;
    if (list[i].required) return PRESENCE_ALWAYS;
    any = presence_or(context->presence, presence_of(context->presence, i), any);
  }
  return any;
}

static uint32_t condition_of(const context_t *context, const keywords_t *keywords) {
  uint32_t all = PRESENCE_ALWAYS;
  const json_t *about = keywords->about;
  switch ((literal_t)keywords->literal) {
  case LITERAL_REQUIRED: return one_is_absent(context, about);
  case LITERAL_EXTRA: return one_is_extra(context, about);
  case LITERAL_SOME: return presence_of(context->presence, context->names->count);
  case LITERAL_DEPENDENT: return presence_not(context->presence, are_together(context, about));
  case LITERAL_ABSENT:
    return presence_not(context->presence, is_present(context, about->key, about->key_length));
  default: break;
  }
  for (size_t w = 0; w < ARRAY_LEN(dependent); w++) {
    const json_t *map = keywords->values[dependent[w]];
    if (map == NULL) continue;
    all = presence_and(context->presence, all, are_together(context, map));
  }
  return all;
}

/* At least `min` and at most `max` members. An extra one counts once, however often its name comes;
 * with a maximum the matcher lets one of them come. */
static uint32_t count_condition(const context_t *context, uint32_t min, uint32_t max) {
  const member_name_t *list = context->names->items;
  compile_t *compile = context->schema->compile;
  uint32_t count = context->names->count,
           most = MIN(MAX(min, max == NONE ? 0 : max + 1), count + 2);
  uint32_t *after = compile_scratch(compile, (size_t)most + 2, sizeof *after);
  for (uint32_t so_far = 0; so_far <= most; so_far++)
    after[so_far] = so_far >= min && so_far <= max ? PRESENCE_ALWAYS : PRESENCE_NEVER;
  for (uint32_t i = count + 1; i-- > 0;) {
    bool required = i < count && list[i].required;
    uint32_t is = required ? PRESENCE_ALWAYS : presence_of(context->presence, i);
    compile_spend(compile, most);
    for (uint32_t so_far = 0; so_far <= most; so_far++) {
      uint32_t more = after[MIN(so_far + 1, most)];
      after[so_far] = presence_if(context->presence, is, more, after[so_far]);
    }
  }
  return after[0];
}

static bool has_conditions(const conjunction_t *conjunction) {
  for (uint32_t i = 0; i < conjunction->count; i++) {
    const keywords_t *keywords = &conjunction->items[i];
    if (keywords->literal >= LITERAL_REQUIRED) return true;
    for (size_t w = 0; w < ARRAY_LEN(dependent); w++) {
      if (keywords->values[dependent[w]] != NULL) return true;
    }
  }
  return false;
}

static void check_names(const schema_t *schema, const conjunction_t *conjunction, uint32_t count) {
  if (count <= PRESENCE_NAMES_MAX) return;
  schema_fail(schema, ERR_BAD_REQUEST, conjunction->items[0].part->pointer,
              "an object has conditions on more than %d names.", PRESENCE_NAMES_MAX);
}

uint32_t schema_presence_condition(schema_t *schema, const conjunction_t *conjunction,
                                   const grammar_list_t *names) {
  uint32_t all = PRESENCE_ALWAYS;
  if (!has_conditions(conjunction)) return all;
  check_names(schema, conjunction, names->count);
  presence_begin(&schema->presence, schema->compile);
  context_t context = {schema, &schema->presence, names};
  for (uint32_t i = 0; i < conjunction->count; i++) {
    uint32_t one = condition_of(&context, &conjunction->items[i]);
    all = presence_and(&schema->presence, all, one);
  }
  return all;
}

bool schema_presence(schema_t *schema, const conjunction_t *conjunction,
                     const grammar_list_t *names, object_draft_t *draft) {
  uint32_t all = schema_presence_condition(schema, conjunction, names);
  if (all == PRESENCE_ALWAYS) return true;
  if (draft->min > 0 || draft->max != NONE) {
    context_t context = {schema, &schema->presence, names};
    uint32_t counted = count_condition(&context, draft->min, draft->max);
    all = presence_and(&schema->presence, all, counted);
  }
  presence_draft(&schema->presence, all, draft);
  return all != PRESENCE_NEVER;
}
