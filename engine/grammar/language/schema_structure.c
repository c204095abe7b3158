/* schema_structure.c: listed arrays and objects about which other keywords say something.
 *
 * Part of a compilation, on its thread. A value becomes a schema that it alone satisfies: an object
 * has these names, each with its value, an array these items. The keywords beside it then apply as
 * they do to any other schema. The same schema says which value must not be.
 */
#include "engine/grammar/language/schema_logic.h"

#include <stdio.h>
#include <string.h>

enum { NUMBER_BYTES = 12 };

typedef struct structure {
  const json_t *value, *schema;
} structure_t;

/* A document stores its values in preorder (json.h). */
typedef struct structure_writer {
  json_t *items;
  uint32_t count;
} structure_writer_t;

static uint32_t size_of(const json_t *json) {
  uint32_t size = 1;
  JSON_EACH(child, json) size += size_of(child);
  return size;
}

static json_t *add(structure_writer_t *writer, json_type_t type, const char *key, uint32_t count) {
  json_t *json = &writer->items[writer->count++];
  *json = (json_t){.type = (uint8_t)type, .count = count, .key = key};
  if (key != NULL) json->key_length = (uint32_t)strlen(key);
  return json;
}

/* The value that begins at `json`, to which something is added, has a sibling behind it. */
static void more(const structure_writer_t *writer, json_t *json) {
  json->next = (uint32_t)(&writer->items[writer->count] - json);
}

/* Adds the schema {"const": value}. */
static json_t *add_const(structure_writer_t *writer, const json_t *value) {
  json_t *json = add(writer, JSON_OBJECT, NULL, 1), *copy = &writer->items[writer->count];
  uint32_t size = size_of(value);
  memcpy(copy, value, size * sizeof *copy);
  copy->key = "const";
  copy->key_length = 5;
  copy->next = 0;
  writer->count += size;
  return json;
}

/* Adds the schemas of the members or items. */
static void add_children(structure_writer_t *writer, const json_t *value) {
  JSON_EACH(child, value) {
    json_t *json = add_const(writer, child);
    json->key = child->key;
    json->key_length = child->key_length;
    if (json_next(child) != NULL) more(writer, json);
  }
}

static void add_type(structure_writer_t *writer, const char *type) {
  json_t *json = add(writer, JSON_STRING, "type", 0);
  json->text = type;
  json->length = (uint32_t)strlen(type);
  more(writer, json);
}

static void write_object(structure_writer_t *writer, const json_t *value) {
  add(writer, JSON_OBJECT, NULL, 4);
  add_type(writer, "object");
  json_t *properties = add(writer, JSON_OBJECT, "properties", value->count);
  add_children(writer, value);
  more(writer, properties);
  json_t *required = add(writer, JSON_ARRAY, "required", value->count);
  JSON_EACH(child, value) {
    json_t *name = add(writer, JSON_STRING, NULL, 0);
    name->text = child->key;
    name->length = child->key_length;
    if (json_next(child) != NULL) more(writer, name);
  }
  more(writer, required);
  add(writer, JSON_FALSE, "additionalProperties", 0);
}

static void write_array(const schema_t *schema, structure_writer_t *writer, const json_t *value) {
  bool old = schema->old_arrays;
  add(writer, JSON_OBJECT, NULL, value->count > 0 ? 4 : 2);
  add_type(writer, "array");
  if (value->count > 0) {
    json_t *prefix = add(writer, JSON_ARRAY, old ? "items" : "prefixItems", value->count);
    add_children(writer, value);
    more(writer, prefix);
    more(writer, add(writer, JSON_FALSE, old ? "additionalItems" : "items", 0));
  }
  json_t *min = add(writer, JSON_NUMBER, value->count > 0 ? "minItems" : "maxItems", 0);
  char *text = compile_scratch(schema->compile, NUMBER_BYTES, 1);
  min->text = text;
  min->length = (uint32_t)snprintf(text, NUMBER_BYTES, "%u", value->count);
}

const json_t *schema_of_structure(schema_t *schema, const json_t *value) {
  const structure_t *known = schema->structures.items;
  for (uint32_t i = 0; i < schema->structures.count; i++) {
    if (known[i].value == value) return known[i].schema;
  }
  compile_spend(schema->compile, schema->structures.count / 8 + 1);
  /* Beside a child and its value: its schema, its name. */
  size_t most = size_of(value) + 2 * (size_t)value->count + 5;
  structure_writer_t writer = {compile_scratch(schema->compile, most, sizeof(json_t)), 0};
  compile_spend(schema->compile, (uint32_t)most);
  if (value->type == JSON_OBJECT) {
    write_object(&writer, value);
  } else {
    write_array(schema, &writer, value);
  }
  structure_t *made = list_add(schema->compile, &schema->structures, sizeof *made);
  *made = (structure_t){value, writer.items};
  return writer.items;
}

/* ---- beside other keywords ---- */

uint32_t schema_structure_types(const conjunction_t *conjunction) {
  uint32_t types = 0;
  for (uint32_t i = 0; i < conjunction->count; i++) {
    const keywords_t *keywords = &conjunction->items[i];
    if (keywords->literal >= LITERAL_REQUIRED || schema_is_undecided(keywords->part))
      types |= TYPE_OBJECT;
    if (keywords->literal == LITERAL_ITEM || keywords->literal == LITERAL_REST) types |= TYPE_ARRAY;
    for (int word = KEYWORD_PROPERTIES; word <= KEYWORD_UNIQUE_ITEMS; word++) {
      if (keywords->values[word] != NULL) types |= word < KEYWORD_ITEMS ? TYPE_OBJECT : TYPE_ARRAY;
    }
  }
  return types;
}

/* Returns the rule of the value, with all that the parts say but their lists. */
static uint32_t rule_of(schema_t *schema, const grammar_list_t *joined, const json_t *value) {
  uint32_t count = joined->count;
  schema_part_t *parts = compile_scratch(schema->compile, (size_t)count + 1, sizeof *parts);
  memcpy(parts, joined->items, count * sizeof *parts);
  compile_spend(schema->compile, count);
  for (uint32_t i = 0; i < count; i++) {
    if (schema_part_mode(&parts[i]) == PART_PLAIN) parts[i].done |= DONE_VALUES;
  }
  parts[count] = schema_part(schema_of_structure(schema, value), parts[0].pointer);
  return schema_rule(schema, parts, count + 1);
}

bool schema_fill_structures(schema_t *schema, uint32_t node, const conjunction_t *conjunction,
                            const grammar_list_t *joined, uint32_t types) {
  const json_t *values = schema_first_values(conjunction);
  uint32_t apart = types & schema_structure_types(conjunction);
  grammar_list_t branches = {0};
  if (values == NULL || apart == 0 || schema_in_elements(schema)) return false;
  bool is_enum = schema_is_enum(conjunction, values);
  for (const json_t *json = is_enum ? json_first(values) : values; json != NULL;
       json = is_enum ? json_next(json) : NULL) {
    if (!(schema_type_of(json) & apart) || !schema_is_listed(schema, conjunction, json)) continue;
    *(uint32_t *)list_add(schema->compile, &branches, sizeof(uint32_t)) =
        build_node(schema->compile, NODE_CALL, rule_of(schema, joined, json), NODE_ID_RETURN);
  }
  if (branches.count == 0) return false;
  *(uint32_t *)list_add(schema->compile, &branches, sizeof(uint32_t)) =
      schema_values(schema, conjunction, types & ~apart);
  build_alt_fill(schema->compile, node, branches.items, branches.count);
  return true;
}
