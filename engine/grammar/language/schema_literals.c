/* schema_literals.c: an object whose members are the arguments of a call, as some models write it:
 *
 *   NAME=VALUE, NAME=VALUE)      values as in Python
 *   NAME:VALUE,NAME:VALUE}       strings between marks, constants as in JSON
 *
 * Part of a compilation, on its thread. The words are those that the parser reads
 * (server/parser/literal_call.c). A string in Python is a JSON string without the escape of a
 * slash. Between marks a string is written as it is, without the mark. Names in front of values
 * that are not listed may have only letters, digits and `_ . -`, which is narrower than the schema.
 */
#include "engine/grammar/language/schema_members.h"

#include <string.h>

#define SPACE "[ \\t\\n\\r]{0,8}"

/* The part that distinguishes the arguments of a call from any other object. */
static const json_t call_schema[] = {
    {.type = JSON_OBJECT, .count = 1},
    {.type = JSON_STRING, .key = "type", .key_length = 4, .text = "object", .length = 6}};

static bool is_marked(const schema_t *schema) {
  return schema->source->literals != NULL && schema->source->literals->string_mark != NULL;
}

/* ---- values ---- */

uint32_t schema_text_kind(const schema_t *schema, const conjunction_t *conjunction) {
  return is_marked(schema) ? TEXT_MARKED : schema_tagged(schema, conjunction);
}

uint32_t schema_text(schema_t *schema, uint32_t kind, uint32_t lexeme) {
  uint32_t next = NODE_ID_RETURN;
  if (kind != TEXT_MARKED) return build_lex(schema->compile, lexeme, next);
  const char *mark = schema->source->literals->string_mark;
  next = build_words(schema->compile, schema->source, mark, next);
  next = build_lex(schema->compile, lexeme, next);
  return build_words(schema->compile, schema->source, mark, next);
}

const char *schema_word(const schema_t *schema, json_type_t value) {
  bool python = schema->source->literals != NULL && !is_marked(schema);
  if (value == JSON_NULL) return python ? "None" : "null";
  if (value == JSON_TRUE) return python ? "True" : "true";
  return python ? "False" : "false";
}

const schema_part_t *schema_any(const schema_t *schema) {
  static const json_t any[] = {{.type = JSON_OBJECT, .count = 1},
                               {.type = JSON_ARRAY, .key = "type", .key_length = 4, .count = 6},
                               {.type = JSON_STRING, .text = "null", .length = 4, .next = 1},
                               {.type = JSON_STRING, .text = "boolean", .length = 7, .next = 1},
                               {.type = JSON_STRING, .text = "number", .length = 6, .next = 1},
                               {.type = JSON_STRING, .text = "string", .length = 6, .next = 1},
                               {.type = JSON_STRING, .text = "array", .length = 5, .next = 1},
                               {.type = JSON_STRING, .text = "object", .length = 6}};
  static const schema_part_t part = {any, "", 0, NULL};
  return schema->source->literals != NULL ? &part : NULL;
}

/* ---- objects ---- */

static bool is_call(const conjunction_t *conjunction) {
  for (uint32_t i = 0; i < conjunction->count; i++) {
    if (conjunction->items[i].part->schema == call_schema) return true;
  }
  return false;
}

object_words_t schema_object_words(const schema_t *schema, const conjunction_t *conjunction) {
  object_words_t words = {.assign = ":" SPACE};
  if (schema->source->literals == NULL) return words;
  words.is_call = is_call(conjunction);
  words.bare = words.is_call || is_marked(schema);
  if (words.bare) words.assign = ":";
  if (words.is_call && schema->source->literals->assign == '=') words.assign = "=";
  return words;
}

static bool is_bare(const member_name_t *name) {
  for (uint32_t i = 0; i < name->length; i++) {
    if (!call_name_byte(name->text[i])) return false;
  }
  return name->length > 0 && name->length <= CALL_ARGUMENT_NAME_BYTES_MAX;
}

dfa_text_t schema_member_text(const schema_t *schema, const object_words_t *words,
                              const member_name_t *name) {
  if (words->bare && is_bare(name)) return (dfa_text_t){name->text, name->length};
  if (words->is_call) {
    schema_fail(schema, ERR_UNSUPPORTED_PARAMETER, "/properties",
                "the name of an argument needs letters, digits and '_', '-', '.' in the calls of "
                "this model.");
  }
  dfa_text_t inside = canonical_text(schema->compile, name->text, name->length);
  char *quoted = compile_scratch(schema->compile, (size_t)inside.length + 2, 1);
  quoted[0] = quoted[inside.length + 1] = '"';
  memcpy(quoted + 1, inside.bytes, inside.length);
  return (dfa_text_t){quoted, inside.length + 2};
}

uint32_t schema_call_arguments(schema_t *schema, object_draft_t *draft) {
  compile_t *compile = schema->compile;
  uint32_t members, close = lexeme_text(compile, &schema->source->literals->close, 1);
  uint32_t object =
      build_members(compile, draft, build_lex(compile, close, NODE_ID_RETURN), &members);
  uint32_t comma = build_lex(compile, lexeme_pattern(compile, "," SPACE), members);
  build_before_members(compile, object, NONE, comma);
  return object;
}

void schema_bound_arguments(const schema_t *schema, object_draft_t *draft, uint32_t num_names) {
  if (num_names > CALL_ARGUMENTS_MAX) {
    schema_fail(schema, ERR_BAD_REQUEST, "/properties", "a call has at most %d arguments.",
                CALL_ARGUMENTS_MAX);
  }
  if (draft->presence == NULL && draft->max > CALL_ARGUMENTS_MAX) draft->max = CALL_ARGUMENTS_MAX;
}

uint32_t schema_literals(compile_t *compile, const grammar_source_t *source, uint32_t next) {
  static const json_t any = {.type = JSON_TRUE};
  schema_t schema = {.compile = compile, .root = source->schema != NULL ? source->schema : &any};
  compile->string_mark = source->literals->string_mark;
  schema_begin(&schema, source);
  schema_part_t parts[] = {schema_part(schema.root, ""), schema_part(call_schema, "")};
  uint32_t start = schema_rule(&schema, parts, 2);
  schema_finish(&schema);
  return build_node(compile, NODE_CALL, start, next);
}
