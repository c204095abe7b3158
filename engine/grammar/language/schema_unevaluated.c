/* schema_unevaluated.c: unevaluatedProperties and unevaluatedItems.
 *
 * Part of a compilation, on its thread. They apply to the members and items that no keyword of the
 * same schema, or of a schema that it applies to the same value, has looked at. Once all conditions
 * are taken apart (schema_split.c), the parts of a rule say which of these schemas hold, so both
 * become additionalProperties beside all names that are listed somewhere, and items behind the
 * longest prefix.
 */
#include "engine/base/util.h"
#include "engine/grammar/language/schema_base.h"
#include "engine/grammar/language/schema_logic.h"
#include "engine/grammar/language/schema_names.h"

#include <string.h>

/* What a schema looks at, with all that it applies to the same value. */
typedef struct evaluated {
  schema_t *schema;
  const conjunction_t *conjunction;
  const json_t *own;           /* the schema; the keywords in question are its own */
  grammar_list_t names;        /* const json_t *: members of `properties` */
  grammar_list_t patterns;     /* const json_t *: members of `patternProperties` */
  grammar_list_t seen;         /* const json_t *: schemas */
  uint32_t prefix;             /* items that have a schema of their own */
  bool all_members, all_items; /* all the others have one too */
  bool some_items;             /* those that satisfy `contains` */
} evaluated_t;

static bool restricts(const json_t *json) {
  return json != NULL && json->type != JSON_TRUE;
}

bool schema_has_unevaluated(const conjunction_t *conjunction) {
  for (uint32_t i = 0; i < conjunction->count; i++) {
    const keywords_t *keywords = &conjunction->items[i];
    if (restricts(keywords->values[KEYWORD_UNEVALUATED_PROPERTIES]) ||
        restricts(keywords->values[KEYWORD_UNEVALUATED_ITEMS]))
      return true;
  }
  return false;
}

bool schema_evaluates(const json_t *json) {
  static const char *const words[] = {"$ref",
                                      "allOf",
                                      "anyOf",
                                      "oneOf",
                                      "if",
                                      "dependentSchemas",
                                      "dependencies",
                                      "properties",
                                      "items",
                                      "patternProperties",
                                      "additionalProperties",
                                      "unevaluatedProperties",
                                      "prefixItems",
                                      "additionalItems",
                                      "unevaluatedItems",
                                      "contains"};
  for (size_t i = 0; i < ARRAY_LEN(words); i++) {
    if (json_is_given(json_get(json, words[i]))) return true;
  }
  return false;
}

static bool has_part(const evaluated_t *evaluated, const json_t *json, part_mode_t mode) {
  const conjunction_t *conjunction = evaluated->conjunction;
  compile_spend(evaluated->schema->compile, conjunction->count / 8 + 1);
  for (uint32_t i = 0; i < conjunction->count; i++) {
    const schema_part_t *part = conjunction->items[i].part;
    if (part->schema == json && schema_part_mode(part) == mode) return true;
  }
  return false;
}

static bool holds(const evaluated_t *evaluated, const json_t *json) {
  return json->type == JSON_TRUE || has_part(evaluated, json, PART_PLAIN);
}

static void note(evaluated_t *evaluated, grammar_list_t *list, const json_t *json) {
  *(const json_t **)list_add(evaluated->schema->compile, list, sizeof json) = json;
}

static bool is_seen(evaluated_t *evaluated, const json_t *json) {
  const json_t *const *seen = evaluated->seen.items;
  compile_spend(evaluated->schema->compile, evaluated->seen.count / 8 + 1);
  for (uint32_t i = 0; i < evaluated->seen.count; i++) {
    if (seen[i] == json) return true;
  }
  note(evaluated, &evaluated->seen, json);
  return false;
}

static void note_members(evaluated_t *evaluated, const keywords_t *keywords, bool is_own) {
  const json_t *const *values = keywords->values;
  const json_t *properties = values[KEYWORD_PROPERTIES],
               *patterns = values[KEYWORD_PATTERN_PROPERTIES];
  if (properties != NULL) {
    JSON_EACH(json, properties) note(evaluated, &evaluated->names, json);
  }
  if (patterns != NULL) {
    JSON_EACH(json, patterns) note(evaluated, &evaluated->patterns, json);
  }
  if (values[KEYWORD_ADDITIONAL_PROPERTIES] != NULL ||
      (!is_own && values[KEYWORD_UNEVALUATED_PROPERTIES] != NULL))
    evaluated->all_members = true;
}

static void note_items(evaluated_t *evaluated, const keywords_t *keywords, bool is_own) {
  const json_t *const *values = keywords->values;
  const json_t *items = values[KEYWORD_ITEMS], *prefix = values[KEYWORD_PREFIX_ITEMS];
  bool is_list = items != NULL && items->type == JSON_ARRAY;
  if (is_list) prefix = items;
  if (prefix != NULL) evaluated->prefix = MAX(evaluated->prefix, prefix->count);
  if ((items != NULL && !is_list) || (is_list && values[KEYWORD_ADDITIONAL_ITEMS] != NULL) ||
      (!is_own && values[KEYWORD_UNEVALUATED_ITEMS] != NULL))
    evaluated->all_items = true;
  if (json_is_given(json_get(keywords->part->schema, "contains"))) evaluated->some_items = true;
}

static void look(evaluated_t *evaluated, const json_t *json, const char *pointer);

static void look_at_each(evaluated_t *evaluated, const json_t *list, const char *pointer,
                         bool undecided) {
  if (list == NULL) return;
  JSON_EACH(json, list) {
    if (json->type == JSON_ARRAY || has_part(evaluated, json, PART_ABSENT)) continue;
    if (!undecided || holds(evaluated, json)) look(evaluated, json, pointer);
  }
}

/* Looks at a schema that holds. schema_join has refused those that reach themselves. */
static void look(evaluated_t *evaluated, const json_t *json, const char *pointer) {
  schema_part_t part = schema_part(json, pointer);
  if (json->type != JSON_OBJECT || is_seen(evaluated, json)) return;
  keywords_t keywords = schema_keywords(evaluated->schema, &part);
  const json_t *const *values = keywords.values;
  note_members(evaluated, &keywords, json == evaluated->own);
  note_items(evaluated, &keywords, json == evaluated->own);
  if (values[KEYWORD_REF] != NULL) {
    const schema_part_t *target = schema_resolve(evaluated->schema, &keywords);
    look(evaluated, target->schema, target->pointer);
  }
  look_at_each(evaluated, values[KEYWORD_ALL_OF], pointer, false);
  look_at_each(evaluated, values[KEYWORD_ANY_OF], pointer, true);
  look_at_each(evaluated, values[KEYWORD_ONE_OF], pointer, true);
  look_at_each(evaluated, values[KEYWORD_DEPENDENT_SCHEMAS], pointer, true);
  look_at_each(evaluated, values[KEYWORD_DEPENDENCIES], pointer, true);
  const json_t *condition = values[KEYWORD_IF];
  if (condition == NULL) return;
  bool is_true = holds(evaluated, condition);
  const json_t *side = values[is_true ? KEYWORD_THEN : KEYWORD_ELSE];
  if (is_true) look(evaluated, condition, pointer);
  if (side != NULL) look(evaluated, side, pointer);
}

/* Returns an object, or an array if there are no names, in which all values are true. */
static json_t *all_true(const schema_t *schema, const grammar_list_t *names, uint32_t count) {
  json_t *json = compile_scratch(schema->compile, (size_t)count + 1, sizeof *json);
  json[0] = (json_t){.type = names != NULL ? JSON_OBJECT : JSON_ARRAY, .count = count};
  for (uint32_t i = 0; i < count; i++) {
    json[i + 1] = (json_t){.type = JSON_TRUE, .next = i + 1 < count};
    if (names == NULL) continue;
    const json_t *name = ((const json_t *const *)names->items)[i];
    json[i + 1].key = name->key;
    json[i + 1].key_length = name->key_length;
  }
  return json;
}

/* Returns the keywords that say the same of a part as its two. */
static keywords_t keywords_for(schema_t *schema, const conjunction_t *conjunction,
                               const keywords_t *of) {
  evaluated_t evaluated = {.schema = schema, .conjunction = conjunction, .own = of->part->schema};
  keywords_t out = {.part = of->part};
  look(&evaluated, of->part->schema, of->part->pointer);
  if (restricts(of->values[KEYWORD_UNEVALUATED_PROPERTIES]) && !evaluated.all_members) {
    out.values[KEYWORD_PROPERTIES] = all_true(schema, &evaluated.names, evaluated.names.count);
    if (evaluated.patterns.count > 0)
      out.values[KEYWORD_PATTERN_PROPERTIES] =
          all_true(schema, &evaluated.patterns, evaluated.patterns.count);
    out.values[KEYWORD_ADDITIONAL_PROPERTIES] = of->values[KEYWORD_UNEVALUATED_PROPERTIES];
  }
  if (!restricts(of->values[KEYWORD_UNEVALUATED_ITEMS]) || evaluated.all_items) return out;
  if (evaluated.some_items) {
    schema_fail(schema, ERR_UNSUPPORTED_PARAMETER, of->part->pointer,
                "'unevaluatedItems' is not supported beside 'contains'.");
  }
  if (evaluated.prefix > 0)
    out.values[KEYWORD_PREFIX_ITEMS] = all_true(schema, NULL, evaluated.prefix);
  out.values[KEYWORD_ITEMS] = of->values[KEYWORD_UNEVALUATED_ITEMS];
  return out;
}

conjunction_t schema_evaluate(schema_t *schema, const conjunction_t *conjunction) {
  if (!schema_has_unevaluated(conjunction)) return *conjunction;
  conjunction_t out = {.never = conjunction->never};
  out.items = compile_scratch(schema->compile, 2 * (size_t)conjunction->count, sizeof *out.items);
  memcpy(out.items, conjunction->items, conjunction->count * sizeof *out.items);
  out.count = conjunction->count;
  for (uint32_t i = 0; i < conjunction->count; i++) {
    const keywords_t *keywords = &conjunction->items[i];
    if (!restricts(keywords->values[KEYWORD_UNEVALUATED_PROPERTIES]) &&
        !restricts(keywords->values[KEYWORD_UNEVALUATED_ITEMS]))
      continue;
    out.items[out.count++] = keywords_for(schema, conjunction, keywords);
  }
  return out;
}
