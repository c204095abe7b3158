/* schema_elements.c: values as elements, as MiniMax M3 writes the arguments of a call:
 *
 *   MARK<NAME>VALUE MARK</NAME>      VALUE: a text, or such elements; items of an array are `item`
 *
 * Part of a compilation, on its thread. The parser of this text (server/parser/element.c) knows
 * only which types a place may have (json_schema.h). So a text is no string if it could be read as
 * a value of another of these types; an empty object or array stands where nothing else can be
 * empty; and where a place may be an object or an array, no object has a member `item`. The name
 * that closes an element behind a name that is not listed may be another: the parser does not care.
 */
#include "engine/base/util.h"
#include "engine/grammar/language/schema_base.h"
#include "engine/grammar/language/schema_logic.h"
#include "engine/grammar/language/schema_members.h"

#include <string.h>

enum { DEPTH_MAX = 32 }; /* of references and alternatives */

bool schema_in_elements(const schema_t *schema) {
  return schema->source->tags != NULL && schema->source->tags->mark != NULL;
}

#define TYPE(name, more)                                                                           \
  { .type = JSON_STRING, .text = name, .length = sizeof name - 1, .next = more }
#define ONE(name, more)                                                                            \
  {                                                                                                \
    .type = JSON_NUMBER, .key = name, .key_length = sizeof name - 1, .text = "1", .length = 1,     \
    .next = more                                                                                   \
  }

/* Parts that are no string. Where the text may be one, or an object an array, they are not empty
 * and have no member `item`. */
static const json_t no_string[] = {{.type = JSON_OBJECT, .count = 1},
                                   {.type = JSON_ARRAY, .key = "type", .key_length = 4, .count = 5},
                                   TYPE("null", 1),
                                   TYPE("boolean", 1),
                                   TYPE("number", 1),
                                   TYPE("array", 1),
                                   TYPE("object", 0)};
static const json_t not_empty[] = {
    {.type = JSON_OBJECT, .count = 4},
    {.type = JSON_ARRAY, .key = "type", .key_length = 4, .count = 5, .next = 6},
    TYPE("null", 1),
    TYPE("boolean", 1),
    TYPE("number", 1),
    TYPE("array", 1),
    TYPE("object", 0),
    ONE("minItems", 1),
    ONE("minProperties", 1),
    {.type = JSON_OBJECT, .key = "properties", .key_length = 10, .count = 1},
    {.type = JSON_FALSE, .key = "item", .key_length = 4}};
/* Where nothing is known of a place all texts are strings. */
static const json_t structure[] = {
    {.type = JSON_OBJECT, .count = 3},
    {.type = JSON_ARRAY, .key = "type", .key_length = 4, .count = 2, .next = 3},
    TYPE("array", 1),
    TYPE("object", 0),
    ONE("minItems", 1),
    ONE("minProperties", 0)};

/* In how many ways a value of the schema may be an object, or an array, at least: 2 = in several.
 */
static uint32_t ways_of(const schema_t *schema, const json_t *json, uint32_t type, int depth) {
  const json_t *ref = json_get(json, "$ref");
  uint32_t most = 1;
  if (!(json_schema_value_types(schema->root, json) & type)) return 0;
  if (depth > DEPTH_MAX || json->type != JSON_OBJECT) return 1;
  if (ref != NULL && ref->type == JSON_STRING) {
    const json_t *target = json_schema_resolve(schema->root, ref->text, ref->length);
    if (target != NULL) most = ways_of(schema, target, type, depth + 1);
  }
  JSON_EACH(member, json) {
    bool all = json_named(member, "allOf");
    uint32_t ways = 0;
    if (!all && !json_named(member, "anyOf") && !json_named(member, "oneOf")) continue;
    JSON_EACH(one, member) {
      uint32_t own = ways_of(schema, one, type, depth + 1);
      compile_spend(schema->compile, 8);
      ways = all ? MAX(ways, own) : ways + own;
    }
    most = MAX(most, ways);
  }
  return MIN(most, 2);
}

/* The types of the place as the parser knows them. */
static uint32_t types_of(const schema_t *schema, const grammar_list_t *parts) {
  const schema_part_t *list = parts->items;
  uint32_t types = TYPE_ALL;
  for (uint32_t i = 0; i < parts->count; i++) {
    if (schema_part_mode(&list[i]) != PART_PLAIN) {
      schema_fail(schema, ERR_UNSUPPORTED_PARAMETER, list[i].pointer,
                  "'not' is not supported in the calls of this model.");
    }
    types &= json_schema_value_types(schema->root, list[i].schema);
    for (uint32_t type = TYPE_ARRAY; type <= TYPE_OBJECT; type += TYPE_OBJECT - TYPE_ARRAY) {
      if (ways_of(schema, list[i].schema, type, 0) <= 1) continue;
      schema_fail(schema, ERR_UNSUPPORTED_PARAMETER, list[i].pointer,
                  "a value that may be one of several %s ('anyOf', 'oneOf') is not supported in "
                  "the calls of this model.",
                  type == TYPE_ARRAY ? "arrays" : "objects");
    }
  }
  return types != 0 ? types : TYPE_ALL;
}

static uint32_t put(schema_t *schema, const char *text, uint32_t next) {
  return build_words(schema->compile, schema->source, text, next);
}

/* The name behind `</` of a tag that ends calls. */
static dfa_text_t name_of_end(const schema_t *schema, const char *end) {
  const char *name = end + strlen(schema->source->tags->mark) + 2;
  return (dfa_text_t){name, (uint32_t)strcspn(name, ">")};
}

/* Any name but those that end calls. */
static uint32_t other_name(schema_t *schema) {
  const tag_words_t *words = schema->source->tags;
  const dfa_text_t ends[] = {name_of_end(schema, words->end_call),
                             name_of_end(schema, words->end_calls)};
  const dfa_t *names = lexeme_dfa(schema->compile, BARE_NAME);
  names =
      dfa_product(schema->compile, names, dfa_texts(schema->compile, ends, ARRAY_LEN(ends)), true);
  return lexeme_add(schema->compile, dfa_restrict(schema->compile, names));
}

/* The end of an element, then RETURN. */
static uint32_t closing(schema_t *schema, const char *name, uint32_t length) {
  const char *mark = schema->source->tags->mark;
  size_t begin = strlen(mark) + 2;
  char *text = compile_scratch(schema->compile, begin + length + 2, 1);
  memcpy(text, mark, begin - 2);
  memcpy(text + begin - 2, "</", 2);
  if (name == NULL) {
    uint32_t end = put(schema, ">", NODE_ID_RETURN);
    return put(schema, text, build_lex(schema->compile, other_name(schema), end));
  }
  memcpy(text + begin, name, length);
  text[begin + length] = '>';
  return put(schema, text, NODE_ID_RETURN);
}

/* Listed values are written as JSON, which cannot be empty. */
static bool is_listed(const grammar_list_t *parts) {
  const schema_part_t *list = parts->items;
  for (uint32_t i = 0; i < parts->count; i++) {
    const json_t *schema = list[i].schema;
    if (json_get(schema, "enum") != NULL || json_get(schema, "const") != NULL) return true;
  }
  return false;
}

uint32_t schema_element(schema_t *schema, grammar_list_t *parts, const char *name,
                        uint32_t length) {
  uint32_t types = types_of(schema, parts), branches[2], count = 0;
  bool both = (types & TYPE_ARRAY) && (types & TYPE_OBJECT), any = types == TYPE_ALL;
  uint32_t close = closing(schema, name, length);
  schema_part_t *last = list_add(schema->compile, parts, sizeof *last);
  if (types & TYPE_STRING) {
    *last = schema_tagged_part(schema, any ? TYPE_STRING : types);
    uint32_t rule = schema_rule(schema, parts->items, parts->count);
    branches[count++] = build_node(schema->compile, NODE_CALL, rule, close);
  }
  if (types != TYPE_STRING) {
    bool bare = (both || (types & TYPE_STRING)) && !is_listed(parts);
    *last = schema_part(any ? structure : bare ? not_empty : no_string, "");
    uint32_t rule = schema_rule(schema, parts->items, parts->count);
    branches[count++] = build_node(schema->compile, NODE_CALL, rule, close);
  }
  return put(schema, schema->source->tags->end_key, build_alt(schema->compile, branches, count));
}

uint32_t schema_element_item(schema_t *schema, grammar_list_t *parts) {
  uint32_t value = schema_element(schema, parts, "item", 4);
  return put(schema, schema->source->tags->begin_key, put(schema, "item", value));
}

uint32_t schema_element_object(schema_t *schema, const conjunction_t *conjunction) {
  static const keyword_t refused[] = {KEYWORD_PATTERN_PROPERTIES, KEYWORD_PROPERTY_NAMES};
  for (uint32_t i = 0; i < conjunction->count; i++) {
    const keywords_t *keywords = &conjunction->items[i];
    const schema_part_t *part = keywords->part;
    for (size_t w = 0; w < ARRAY_LEN(refused); w++) {
      if (keywords->values[refused[w]] == NULL) continue;
      schema_fail(schema, ERR_UNSUPPORTED_PARAMETER, part->pointer,
                  "'%s' is not supported in the calls of this model.",
                  schema_keyword_name(refused[w]));
    }
    bool split = schema_part_mode(part) != PART_PLAIN || (part->done & (DONE_IF | DONE_SPLIT));
    if (split || schema_has_unevaluated(conjunction)) {
      schema_fail(schema, ERR_UNSUPPORTED_PARAMETER, part->pointer,
                  "a condition ('not', 'if', 'dependentSchemas', 'unevaluatedProperties') is not "
                  "supported in the calls of this model.");
    }
  }
  return schema_members_in_tags(schema, conjunction, NODE_ID_RETURN);
}
