/* schema_some.c: a member of some names that must occur, with a value that does not satisfy a
 * schema.
 *
 * Part of a compilation, on its thread. So fail patternProperties, propertyNames and
 * additionalProperties. The member is one that the conjunction lists, each of which is a way, or it
 * is an extra one: then the object has a witness (program.h).
 */
#include "engine/grammar/language/schema_logic.h"
#include "engine/grammar/language/schema_members.h"

#include <string.h>

const json_t *schema_some_against(const schema_part_t *part) {
  switch (schema_part_mode(part)) {
  case PART_SOME_MATCHING: return part->schema;
  case PART_SOME_OTHER: return json_get(part->schema, "additionalProperties");
  default: return NULL;
  }
}

/* The names that no keyword of the schema lists or matches. */
static const dfa_t *other_names(schema_t *schema, const schema_part_t *part) {
  const json_t *properties = json_get(part->schema, "properties"),
               *patterns = json_get(part->schema, "patternProperties");
  const dfa_t *names = canonical_string(schema->compile);
  uint32_t count = properties != NULL ? properties->count : 0, i = 0;
  dfa_text_t *texts = compile_scratch(schema->compile, (size_t)count + 1, sizeof *texts);
  for (const json_t *json = json_first(properties); json != NULL; json = json_next(json))
    texts[i++] = canonical_text(schema->compile, json->key, json->key_length);
  names = dfa_product(schema->compile, names, dfa_texts(schema->compile, texts, count), true);
  for (const json_t *json = json_first(patterns); json != NULL; json = json_next(json)) {
    const dfa_t *match = schema_pattern(schema, json->key, json->key_length, true, part->pointer);
    names = dfa_product(schema->compile, names, match, true);
  }
  return names;
}

const dfa_t *schema_some_names(schema_t *schema, const schema_part_t *part) {
  static const json_t string[] = {
      {.type = JSON_OBJECT, .count = 1},
      {.type = JSON_STRING, .key = "type", .key_length = 4, .text = "string", .length = 6}};
  const dfa_t *any = canonical_string(schema->compile);
  const json_t *json = part->schema;
  part_mode_t mode = schema_part_mode(part);
  if (mode == PART_SOME_OTHER) return other_names(schema, part);
  if (mode == PART_SOME_MATCHING) {
    const dfa_t *match = schema_pattern(schema, json->key, json->key_length, true, part->pointer);
    return dfa_product(schema->compile, any, match, false);
  }
  schema_part_t parts[] = {schema_part(json, part->pointer), schema_part(string, "")};
  const dfa_t *right = schema_names_of(schema, parts, 2);
  return right != NULL ? dfa_product(schema->compile, any, right, true)
                       : dfa_texts(schema->compile, NULL, 0);
}

void schema_some_literal(const schema_t *schema, const schema_part_t *part, keywords_t *out) {
  uint32_t number = schema_part_number(part);
  if (number == SOME_UNDECIDED) return;
  if (number == SOME_EXTRA) {
    out->literal = LITERAL_SOME;
    return;
  }
  out->about = ((const json_t *const *)schema->some.items)[number - SOME_LISTED];
  out->against = schema_some_against(part);
  out->literal = out->against != NULL ? LITERAL_MEMBER : LITERAL_PRESENT;
  out->is_present = true;
}

/* Returns the number of a listed name. */
static uint32_t number_of(schema_t *schema, const schema_part_t *part, const member_name_t *name) {
  const json_t *const *known = schema->some.items;
  compile_spend(schema->compile, schema->some.count / 8 + 1);
  for (uint32_t i = 0; i < schema->some.count; i++) {
    if (known[i]->key_length == name->length &&
        memcmp(known[i]->key, name->text, name->length) == 0)
      return SOME_LISTED + i;
  }
  if (schema->some.count == PART_NUMBER_MAX - SOME_LISTED) {
    schema_fail(schema, ERR_BAD_REQUEST, part->pointer,
                "the schema lists more than %d names beside names that must come.",
                PART_NUMBER_MAX - SOME_LISTED);
  }
  json_t *json = compile_scratch(schema->compile, 1, sizeof *json);
  *json = (json_t){.type = JSON_TRUE, .key = name->text, .key_length = name->length};
  *(const json_t **)list_add(schema->compile, &schema->some, sizeof json) = json;
  return SOME_LISTED + schema->some.count - 1;
}

grammar_list_t schema_some_ways(schema_t *schema, const conjunction_t *conjunction,
                                const schema_part_t *part) {
  grammar_list_t ways = {0}, names = schema_member_names(schema, conjunction);
  const dfa_t *those = schema_some_names(schema, part);
  const member_name_t *list = names.items;
  uint32_t mode = schema_mode(schema_part_mode(part));
  for (uint32_t i = 0; i < names.count; i++) {
    dfa_text_t text = canonical_text(schema->compile, list[i].text, list[i].length);
    if (!dfa_matches(those, text.bytes, text.length)) continue;
    schema_part_t way = *part;
    way.done = mode | number_of(schema, part, &list[i]) << PART_NUMBER_SHIFT;
    schema_add_way(schema, &ways, &way, 1);
  }
  schema_part_t extra = *part;
  extra.done = mode | (uint32_t)SOME_EXTRA << PART_NUMBER_SHIFT;
  schema_add_way(schema, &ways, &extra, 1);
  return ways;
}
