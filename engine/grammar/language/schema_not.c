/* schema_not.c: the ways in which a schema does not hold.
 *
 * Part of a compilation, on its thread. A schema is the conjunction of its keywords, so it fails in
 * one way for each keyword. A way is a list of parts that hold instead: literals
 * (schema_literal.c), subschemas, and subschemas that do not hold themselves.
 */
#include "engine/base/util.h"
#include "engine/grammar/language/schema_base.h"
#include "engine/grammar/language/schema_logic.h"
#include "engine/grammar/language/schema_names.h"

#include <string.h>

typedef struct negation {
  schema_t *schema;
  const schema_part_t *part;
  keywords_t plain;    /* of the schema that does not hold */
  grammar_list_t ways; /* schema_way_t */
} negation_t;

_Noreturn static void refuse(const negation_t *negation, keyword_t keyword) {
  schema_fail(negation->schema, ERR_UNSUPPORTED_PARAMETER, negation->part->pointer,
              "'%s' is not supported in a schema that must not hold ('not', 'if', or a branch of "
              "'oneOf' beside another that may hold too).",
              schema_keyword_name(keyword));
}

static schema_part_t part_of(const negation_t *negation, const json_t *json, const char *pointer,
                             part_mode_t mode) {
  return (schema_part_t){json, pointer, schema_mode(mode), negation->part};
}

static void add_way(negation_t *negation, const schema_part_t *parts, uint32_t count) {
  schema_add_way(negation->schema, &negation->ways, parts, count);
}

/* The keyword itself does not hold. */
static void add_literal(negation_t *negation, keyword_t keyword) {
  schema_part_t part =
      part_of(negation, negation->part->schema, negation->part->pointer, PART_NOT_KEYWORD);
  part.done |= (uint32_t)keyword << PART_NUMBER_SHIFT;
  add_way(negation, &part, 1);
}

static bool holds_always(const json_t *schema) {
  return schema->type == JSON_TRUE || (schema->type == JSON_OBJECT && schema->count == 0);
}

static const char *pointer_to(const negation_t *negation, const char *keyword) {
  return schema_pointer(negation->schema, negation->part->pointer, keyword, strlen(keyword));
}

/* ---- keywords ---- */

static void negate_reference(negation_t *negation) {
  const schema_part_t *target = schema_resolve(negation->schema, &negation->plain);
  schema_part_t part = part_of(negation, target->schema, target->pointer, PART_NOT);
  add_way(negation, &part, 1);
}

static void negate_list(negation_t *negation, keyword_t keyword) {
  const json_t *list = negation->plain.values[keyword];
  const schema_t *schema = negation->schema;
  schema_part_t *parts = compile_scratch(schema->compile, list->count, sizeof *parts);
  uint32_t count = 0;
  JSON_EACH(json, list) {
    const char *pointer =
        schema_pointer_index(schema, negation->part->pointer, schema_keyword_name(keyword), count);
    parts[count++] = part_of(negation, json, pointer, PART_NOT);
  }
  if (keyword == KEYWORD_ALL_OF) {
    for (uint32_t i = 0; i < count; i++) add_way(negation, &parts[i], 1);
    return;
  }
  add_way(negation, parts, count);
}

/* None holds, or two do. */
static void negate_one_of(negation_t *negation) {
  enum { BRANCHES_MAX = 8 };
  const json_t *list = negation->plain.values[KEYWORD_ONE_OF];
  schema_part_t parts[BRANCHES_MAX];
  uint32_t count = 0;
  if (list->count > BRANCHES_MAX) refuse(negation, KEYWORD_ONE_OF);
  negate_list(negation, KEYWORD_ONE_OF);
  JSON_EACH(json, list) {
    const char *pointer =
        schema_pointer_index(negation->schema, negation->part->pointer, "oneOf", count);
    parts[count++] = part_of(negation, json, pointer, PART_PLAIN);
  }
  for (uint32_t left = 0; left < count; left++) {
    for (uint32_t right = left + 1; right < count; right++)
      add_way(negation, (schema_part_t[]){parts[left], parts[right]}, 2);
  }
}

static void negate_if(negation_t *negation) {
  const json_t *const *values = negation->plain.values;
  const json_t *condition = values[KEYWORD_IF];
  static const struct {
    keyword_t keyword;
    const char *name;
    part_mode_t mode;
  } sides[] = {{KEYWORD_THEN, "then", PART_PLAIN}, {KEYWORD_ELSE, "else", PART_NOT}};
  for (int i = 0; i < 2; i++) {
    const json_t *side = values[sides[i].keyword];
    if (side == NULL) continue;
    schema_part_t parts[] = {
        part_of(negation, condition, pointer_to(negation, "if"), sides[i].mode),
        part_of(negation, side, pointer_to(negation, sides[i].name), PART_NOT)};
    add_way(negation, parts, 2);
  }
}

static bool is_listed(const json_t *array, const json_t *member) {
  if (array == NULL) return false;
  JSON_EACH(name, array) {
    if (name->length == member->key_length && memcmp(name->text, member->key, name->length) == 0)
      return true;
  }
  return false;
}

/* A member is there and has another value. Of a required one it is enough that it has no such
 * value: then its absence is a way as well. */
static void negate_properties(negation_t *negation) {
  const json_t *required = negation->plain.values[KEYWORD_REQUIRED];
  const char *base = pointer_to(negation, "properties");
  JSON_EACH(json, negation->plain.values[KEYWORD_PROPERTIES]) {
    bool needed = is_listed(required, json);
    compile_spend(negation->schema->compile, required != NULL ? required->count + 1 : 1);
    if (!needed && holds_always(json)) continue;
    const char *pointer = schema_pointer(negation->schema, base, json->key, json->key_length);
    schema_part_t part =
        part_of(negation, json, pointer, needed ? PART_NOT_MEMBER : PART_NOT_MEMBER_PRESENT);
    add_way(negation, &part, 1);
  }
}

static void negate_required(negation_t *negation) {
  const json_t *properties = negation->plain.values[KEYWORD_PROPERTIES];
  JSON_EACH(name, negation->plain.values[KEYWORD_REQUIRED]) {
    if (json_member(properties, name->text, name->length) != NULL) continue;
    add_literal(negation, KEYWORD_REQUIRED);
    return;
  }
}

/* The member is there, and the schema that depends on it does not hold. */
static void negate_dependent(negation_t *negation, keyword_t keyword) {
  const char *base = pointer_to(negation, schema_keyword_name(keyword));
  bool has_names = false;
  JSON_EACH(json, negation->plain.values[keyword]) {
    if (json->type == JSON_ARRAY) {
      has_names = true;
      continue;
    }
    const char *pointer = schema_pointer(negation->schema, base, json->key, json->key_length);
    schema_part_t parts[] = {part_of(negation, json, pointer, PART_PRESENT),
                             part_of(negation, json, pointer, PART_NOT)};
    add_way(negation, parts, 2);
  }
  if (has_names) add_literal(negation, keyword);
}

static void negate_additional(negation_t *negation) {
  const json_t *additional = negation->plain.values[KEYWORD_ADDITIONAL_PROPERTIES];
  if (holds_always(additional)) return;
  if (additional->type == JSON_FALSE &&
      negation->plain.values[KEYWORD_PATTERN_PROPERTIES] == NULL) {
    add_literal(negation, KEYWORD_ADDITIONAL_PROPERTIES);
    return;
  }
  schema_part_t part =
      part_of(negation, negation->part->schema, negation->part->pointer, PART_SOME_OTHER);
  add_way(negation, &part, 1);
}

static void negate_matching(negation_t *negation) {
  const char *base = pointer_to(negation, "patternProperties");
  JSON_EACH(json, negation->plain.values[KEYWORD_PATTERN_PROPERTIES]) {
    if (holds_always(json)) continue;
    const char *pointer = schema_pointer(negation->schema, base, json->key, json->key_length);
    schema_part_t part = part_of(negation, json, pointer, PART_SOME_MATCHING);
    add_way(negation, &part, 1);
  }
}

static void negate_names(negation_t *negation) {
  const json_t *names = negation->plain.values[KEYWORD_PROPERTY_NAMES];
  schema_part_t part =
      part_of(negation, names, pointer_to(negation, "propertyNames"), PART_SOME_NAMED);
  if (!holds_always(names)) add_way(negation, &part, 1);
}

static void negate_minimum_count(negation_t *negation, keyword_t keyword) {
  int64_t value = 0;
  json_int64(negation->plain.values[keyword], &value);
  if (value > 0) add_literal(negation, keyword);
}

/* Fewer items satisfy it than should, or more. */
static void negate_contains(negation_t *negation) {
  int64_t min = 1;
  json_int64(negation->plain.values[KEYWORD_MIN_CONTAINS], &min);
  if (min > 0) add_literal(negation, KEYWORD_CONTAINS);
  if (negation->plain.values[KEYWORD_MAX_CONTAINS] != NULL)
    add_literal(negation, KEYWORD_MAX_CONTAINS);
}

/* Another value: no listed word, number or string, and none of the arrays and objects. */
static void negate_values(negation_t *negation, keyword_t keyword) {
  const json_t *values = negation->plain.values[keyword];
  bool is_enum = keyword == KEYWORD_ENUM;
  schema_t *schema = negation->schema;
  schema_part_t *parts =
      compile_scratch(schema->compile, (is_enum ? (size_t)values->count : 1) + 1, sizeof *parts);
  uint32_t count = 1;
  parts[0] = part_of(negation, negation->part->schema, negation->part->pointer, PART_NOT_KEYWORD);
  parts[0].done |= (uint32_t)keyword << PART_NUMBER_SHIFT;
  for (const json_t *json = is_enum ? json_first(values) : values; json != NULL;
       json = is_enum ? json_next(json) : NULL) {
    if (json->type != JSON_ARRAY && json->type != JSON_OBJECT) continue;
    const json_t *structure = schema_of_structure(schema, json);
    parts[count++] = part_of(negation, structure, negation->part->pointer, PART_NOT);
  }
  add_way(negation, parts, count);
}

static void negate_item(negation_t *negation, const json_t *json, const char *pointer,
                        part_mode_t mode, uint32_t index) {
  schema_part_t part = part_of(negation, json, pointer, mode);
  if (holds_always(json)) return;
  part.done |= index << PART_NUMBER_SHIFT;
  add_way(negation, &part, 1);
}

/* There is an item that does not satisfy its schema. */
static void negate_prefix(negation_t *negation, keyword_t keyword) {
  uint32_t index = 0;
  const char *name = schema_keyword_name(keyword);
  if (negation->plain.values[keyword]->count > PART_NUMBER_MAX) refuse(negation, keyword);
  JSON_EACH(json, negation->plain.values[keyword]) {
    const char *pointer =
        schema_pointer_index(negation->schema, negation->part->pointer, name, index);
    negate_item(negation, json, pointer, PART_NOT_ITEM, index++);
  }
}

static void negate_items(negation_t *negation, keyword_t keyword) {
  const json_t *value = negation->plain.values[keyword], *prefix = schema_prefix(&negation->plain);
  uint32_t index = prefix != NULL ? prefix->count : 0;
  const json_t *items = negation->plain.values[KEYWORD_ITEMS];
  bool behind_list = items != NULL && items->type == JSON_ARRAY;
  if (value->type == JSON_ARRAY) {
    negate_prefix(negation, keyword);
    return;
  }
  if (keyword == KEYWORD_ADDITIONAL_ITEMS && !behind_list) return; /* it says nothing */
  if (index > PART_NUMBER_MAX) refuse(negation, keyword);
  negate_item(negation, value, pointer_to(negation, schema_keyword_name(keyword)),
              value->type == JSON_FALSE ? PART_NOT_ITEM : PART_NOT_REST, index);
}

static void negate(negation_t *negation, keyword_t keyword) {
  const json_t *value = negation->plain.values[keyword];
  const schema_t *schema = negation->schema;
  switch (keyword) {
  case KEYWORD_REF: negate_reference(negation); return;
  case KEYWORD_ALL_OF:
  case KEYWORD_ANY_OF: negate_list(negation, keyword); return;
  case KEYWORD_ONE_OF: negate_one_of(negation); return;
  case KEYWORD_NOT: {
    schema_part_t part = part_of(negation, value, pointer_to(negation, "not"), PART_PLAIN);
    add_way(negation, &part, 1);
    return;
  }
  case KEYWORD_IF: negate_if(negation); return;
  case KEYWORD_THEN:
  case KEYWORD_ELSE: return;
  case KEYWORD_PROPERTIES: negate_properties(negation); return;
  case KEYWORD_REQUIRED: negate_required(negation); return;
  case KEYWORD_DEPENDENT_REQUIRED:
  case KEYWORD_DEPENDENT_SCHEMAS:
  case KEYWORD_DEPENDENCIES: negate_dependent(negation, keyword); return;
  case KEYWORD_ADDITIONAL_PROPERTIES: negate_additional(negation); return;
  case KEYWORD_MIN_PROPERTIES:
  case KEYWORD_MIN_ITEMS:
  case KEYWORD_MIN_LENGTH: negate_minimum_count(negation, keyword); return;
  case KEYWORD_CONTAINS: negate_contains(negation); return;
  case KEYWORD_MIN_CONTAINS:
  case KEYWORD_MAX_CONTAINS: return;
  case KEYWORD_PREFIX_ITEMS:
  case KEYWORD_ITEMS:
  case KEYWORD_ADDITIONAL_ITEMS: negate_items(negation, keyword); return;
  case KEYWORD_ENUM:
  case KEYWORD_CONST: negate_values(negation, keyword); return;
  case KEYWORD_PATTERN_PROPERTIES: negate_matching(negation); return;
  case KEYWORD_PROPERTY_NAMES: negate_names(negation); return;
  case KEYWORD_FORMAT:
    if (format_is_known(value)) refuse(negation, keyword);
    return;
  case KEYWORD_UNIQUE_ITEMS:
    if (value->type == JSON_TRUE) refuse(negation, keyword);
    return;
  case KEYWORD_EXCLUSIVE_MINIMUM:
  case KEYWORD_EXCLUSIVE_MAXIMUM:
    if (!schema->old_exclusive) add_literal(negation, keyword);
    return;
  case KEYWORD_TYPE:
  case KEYWORD_MAX_PROPERTIES:
  case KEYWORD_MAX_ITEMS:
  case KEYWORD_MAX_LENGTH:
  case KEYWORD_PATTERN:
  case KEYWORD_MINIMUM:
  case KEYWORD_MAXIMUM:
  case KEYWORD_MULTIPLE_OF: add_literal(negation, keyword); return;
  default: refuse(negation, keyword);
  }
}

grammar_list_t schema_negations(schema_t *schema, const schema_part_t *part) {
  negation_t negation = {.schema = schema, .part = part};
  if (part->schema->type == JSON_FALSE) {
    add_way(&negation, part, 0);
    return negation.ways;
  }
  if (part->schema->type != JSON_OBJECT) return negation.ways;
  schema_part_t plain = {part->schema, part->pointer, 0, part->from};
  negation.plain = schema_keywords(schema, &plain);
  for (int i = 0; i < KEYWORD_COUNT; i++) {
    if (negation.plain.values[i] != NULL) negate(&negation, (keyword_t)i);
  }
  return negation.ways;
}
