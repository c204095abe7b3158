/* schema_values.c: enum and const.
 *
 * Part of a compilation, on its thread. A value is kept if every other keyword of the
 * conjunction allows it. Values are written in canonical form; one lexeme accepts all of them.
 */
#include "engine/base/utf8.h"
#include "engine/grammar/language/schema_logic.h"
#include "engine/grammar/language/schema_members.h"

#include <stdio.h>
#include <string.h>

/* ---- canonical text ---- */

typedef struct value_writer {
  compile_t *compile;
  const schema_t *schema;
  char *text;
  uint32_t length, capacity;
} value_writer_t;

static void put(value_writer_t *writer, const char *text, uint32_t length) {
  if (writer->capacity - writer->length < length)
    writer->text = compile_grow(writer->compile, writer->text, writer->length,
                                writer->length + length + 64, 1, &writer->capacity);
  memcpy(writer->text + writer->length, text, length);
  writer->length += length;
}

static void put_text(value_writer_t *writer, const char *text) {
  put(writer, text, (uint32_t)strlen(text));
}

static void put_string(value_writer_t *writer, const char *text, uint32_t length) {
  dfa_text_t inside = canonical_text(writer->compile, text, length);
  put_text(writer, "\"");
  put(writer, inside.bytes, inside.length);
  put_text(writer, "\"");
}

/* Integers as digits, 1.0 and 1e2 too; other numbers as they were written. */
static void put_number(value_writer_t *writer, const json_t *json) {
  decimal_t decimal = decimal_of(json);
  if (decimal.huge || decimal.fine || decimal.num_fraction > 0) {
    put(writer, json->text, json->length);
    return;
  }
  if (decimal.negative) put_text(writer, "-");
  if (decimal.num_integer == 0) put_text(writer, "0");
  put(writer, decimal.digits, decimal.num_integer);
}

/* The depth limit of the JSON reader bounds the recursion. */
static void put_value(value_writer_t *writer, const json_t *json, bool spaced) {
  const char *comma = "";
  compile_spend(writer->compile, 4);
  switch ((json_type_t)json->type) {
  case JSON_NULL:
  case JSON_FALSE:
  case JSON_TRUE: put_text(writer, schema_word(writer->schema, json->type)); break;
  case JSON_NUMBER: put_number(writer, json); break;
  case JSON_STRING: put_string(writer, json->text, json->length); break;
  case JSON_ARRAY:
  case JSON_OBJECT:
    put_text(writer, json->type == JSON_ARRAY ? "[" : "{");
    JSON_EACH(child, json) {
      put_text(writer, comma);
      comma = spaced ? ", " : ",";
      if (json->type == JSON_OBJECT) {
        put_string(writer, child->key, child->key_length);
        put_text(writer, spaced ? ": " : ":");
      }
      put_value(writer, child, spaced);
    }
    put_text(writer, json->type == JSON_ARRAY ? "]" : "}");
    break;
  }
}

static dfa_text_t text_of(schema_t *schema, const json_t *json, bool spaced) {
  value_writer_t writer = {.compile = schema->compile, .schema = schema};
  put_value(&writer, json, spaced);
  return (dfa_text_t){writer.text, (uint32_t)writer.length};
}

/* ---- which values are kept ---- */

const json_t *schema_first_values(const conjunction_t *conjunction) {
  for (uint32_t i = 0; i < conjunction->count; i++) {
    const keywords_t *keywords = &conjunction->items[i];
    if (keywords->values[KEYWORD_CONST] != NULL) return keywords->values[KEYWORD_CONST];
    if (keywords->values[KEYWORD_ENUM] != NULL) return keywords->values[KEYWORD_ENUM];
  }
  return NULL;
}

bool schema_is_enum(const conjunction_t *conjunction, const json_t *values) {
  for (uint32_t i = 0; i < conjunction->count; i++) {
    if (conjunction->items[i].values[KEYWORD_ENUM] == values) return true;
  }
  return false;
}

bool schema_is_listed(schema_t *schema, const conjunction_t *conjunction, const json_t *json) {
  for (uint32_t i = 0; i < conjunction->count; i++) {
    const json_t *one = conjunction->items[i].values[KEYWORD_CONST];
    const json_t *list = conjunction->items[i].values[KEYWORD_ENUM];
    if (one != NULL && !schema_equal(one, json)) return false;
    if (!schema_literal_allows(schema, &conjunction->items[i], json)) return false;
    if (list == NULL) continue;
    bool found = false;
    JSON_EACH(other, list) {
      compile_spend(schema->compile, 1);
      if (other == json || schema_equal(other, json)) {
        found = true;
        break;
      }
    }
    if (!found) return false;
  }
  return true;
}

/* Refuses further keywords beside listed arrays and objects where these do not become schemas
 * (schema_structure.c): they would not be checked. */
static void refuse_structure(const schema_t *schema, const conjunction_t *conjunction,
                             uint32_t type) {
  if (!(schema_structure_types(conjunction) & type)) return;
  schema_fail(schema, ERR_UNSUPPORTED_PARAMETER, conjunction->items[0].part->pointer,
              "an enum or const of %s together with other keywords about %s is not supported in "
              "the calls of this model.",
              type == TYPE_OBJECT ? "objects" : "arrays",
              type == TYPE_OBJECT ? "objects" : "arrays");
}

/* What the other keywords of a conjunction demand of a listed value. */
typedef struct demands {
  const dfa_t *content, *number; /* of a string, of a number; NULL = anything */
  uint32_t min, max;             /* characters of a string */
  uint32_t kind;                 /* how strings are written: TEXT_ or tags; 0 = in JSON */
  bool number_known;             /* `number` was made */
} demands_t;

static uint32_t count_characters(const char *text, uint32_t length) {
  return (uint32_t)utf8_count(text, length);
}

static bool has_bounds(const schema_t *schema, const conjunction_t *conjunction) {
  if (schema_has_number_literal(schema, conjunction)) return true;
  for (uint32_t i = 0; i < conjunction->count; i++) {
    for (int word = KEYWORD_MINIMUM; word <= KEYWORD_MULTIPLE_OF; word++) {
      if (conjunction->items[i].values[word] != NULL) return true;
    }
  }
  return false;
}

static bool admits(schema_t *schema, const conjunction_t *conjunction, demands_t *demands,
                   const json_t *json, dfa_text_t text) {
  if (json->type == JSON_STRING) {
    uint32_t count = count_characters(json->text, json->length);
    if (count < demands->min || count > demands->max) return false;
    if (demands->kind)
      return demands->content == NULL || dfa_matches(demands->content, text.bytes, text.length);
    return demands->content == NULL ||
           dfa_matches(demands->content, text.bytes + 1, text.length - 2);
  }
  if (json->type == JSON_NUMBER && has_bounds(schema, conjunction)) {
    if (!demands->number_known) demands->number = schema_number_dfa(schema, conjunction, false);
    demands->number_known = true;
    return dfa_matches(demands->number, text.bytes, text.length);
  }
  if (json->type == JSON_ARRAY || json->type == JSON_OBJECT) {
    refuse_structure(schema, conjunction, schema_type_of(json));
  }
  return true;
}

static void add_value(schema_t *schema, grammar_list_t *texts, const conjunction_t *conjunction,
                      demands_t *demands, uint32_t types, const json_t *json) {
  compile_spend(schema->compile, 4);
  if (!(schema_type_of(json) & types) || !schema_is_listed(schema, conjunction, json)) return;
  dfa_text_t text =
      demands->kind ? (dfa_text_t){json->text, json->length} : text_of(schema, json, false);
  if (!admits(schema, conjunction, demands, json, text)) return;
  *(dfa_text_t *)list_add(schema->compile, texts, sizeof text) = text;
  if (json->type == JSON_ARRAY || json->type == JSON_OBJECT) {
    *(dfa_text_t *)list_add(schema->compile, texts, sizeof text) = text_of(schema, json, true);
  }
}

/* The values of these types; kind: of their texts, 0 = JSON. */
static uint32_t values_of(schema_t *schema, const conjunction_t *conjunction, uint32_t types,
                          uint32_t kind) {
  const json_t *values = schema_first_values(conjunction);
  demands_t demands = {.kind = kind};
  grammar_list_t texts = {0};
  demands.content = schema_string_content(
      schema, conjunction, schema_text_kind(schema, conjunction) == 0, &demands.min, &demands.max);
  if (schema_is_enum(conjunction, values)) {
    JSON_EACH(json, values) add_value(schema, &texts, conjunction, &demands, types, json);
  } else {
    add_value(schema, &texts, conjunction, &demands, types, values);
  }
  if (texts.count == 0) return NODE_ID_FAIL;
  const dfa_t *listed = dfa_texts(schema->compile, texts.items, texts.count);
  uint32_t lexeme = kind ? lexeme_outside(schema->compile, listed, kind, 0, NONE)
                         : lexeme_add(schema->compile, listed);
  return schema_text(schema, kind, lexeme);
}

uint32_t schema_values(schema_t *schema, const conjunction_t *conjunction, uint32_t types) {
  uint32_t kind = schema_text_kind(schema, conjunction);
  if (schema_object_words(schema, conjunction).is_call) {
    schema_fail(schema, ERR_UNSUPPORTED_PARAMETER, "",
                "'enum' and 'const' are not supported for the arguments of a call.");
  }
  if (kind == 0) return values_of(schema, conjunction, types, 0);
  uint32_t strings = values_of(schema, conjunction, types & TYPE_STRING, kind);
  if (kind != TEXT_MARKED) return strings; /* between tags, other values have a rule of their own */
  uint32_t others = values_of(schema, conjunction, types & ~(uint32_t)TYPE_STRING, 0);
  return build_alt(schema->compile, (uint32_t[]){strings, others}, 2);
}

bool schema_any_value(schema_t *schema, const conjunction_t *conjunction, uint32_t types) {
  const json_t *values = schema_first_values(conjunction);
  if (!schema_is_enum(conjunction, values))
    return (schema_type_of(values) & types) && schema_is_listed(schema, conjunction, values);
  JSON_EACH(json, values) {
    if ((schema_type_of(json) & types) && schema_is_listed(schema, conjunction, json)) return true;
  }
  return false;
}
