/* schema_parameters.c: an object whose members stand in tags, as some models write a call:
 *
 *   <parameter=NAME>\nVALUE\n</parameter>\n  for each member,  </function>  behind the last
 *
 * Part of a compilation, on its thread. A string is written as it is, anything else as JSON. The
 * parser of this text (server/parser/tag_call.c) knows only the types that a member may have
 * (json_schema.h), so the grammar does not allow a string that the parser would read as a value of
 * another of these types. Names that are not listed may have only letters, digits and `_ . -`,
 * which is narrower than the schema.
 */
#include "engine/base/util.h"
#include "engine/grammar/language/schema_base.h"
#include "engine/grammar/language/schema_logic.h"
#include "engine/grammar/language/schema_members.h"

#include <string.h>

#define OPEN "<parameter="

/* Makes a part {"type": "string"} that distinguishes rules of text between tags, where a value may
 * have `types`, from rules of JSON. */
static schema_part_t tagged_part(schema_t *context, uint32_t types) {
  if (context->tagged == NULL)
    context->tagged =
        compile_scratch(context->compile, (TYPE_ALL + 1) * 2, sizeof *context->tagged);
  json_t *schema = context->tagged + (size_t)types * 2;
  schema[0] = (json_t){.type = JSON_OBJECT, .count = 1};
  schema[1] =
      (json_t){.type = JSON_STRING, .key = "type", .key_length = 4, .text = "string", .length = 6};
  return schema_part(schema, "");
}

uint32_t schema_tagged_types(const schema_t *schema, const conjunction_t *conjunction) {
  for (uint32_t i = 0; schema->tagged != NULL && i < conjunction->count; i++) {
    for (uint32_t types = 1; types <= TYPE_ALL; types++) {
      if (conjunction->items[i].part->schema == schema->tagged + (size_t)types * 2) return types;
    }
  }
  return 0;
}

/* Makes a part that allows all values but strings. */
static schema_part_t no_string(void) {
  static const json_t schema[] = {{.type = JSON_OBJECT, .count = 1},
                                  {.type = JSON_ARRAY, .key = "type", .key_length = 4, .count = 5},
                                  {.type = JSON_STRING, .text = "null", .length = 4, .next = 1},
                                  {.type = JSON_STRING, .text = "boolean", .length = 7, .next = 1},
                                  {.type = JSON_STRING, .text = "number", .length = 6, .next = 1},
                                  {.type = JSON_STRING, .text = "array", .length = 5, .next = 1},
                                  {.type = JSON_STRING, .text = "object", .length = 6}};
  return schema_part(schema, "");
}

/* Line break, value and closing tag, then RETURN. */
static uint32_t entry_of(schema_t *schema, grammar_list_t *parts, uint32_t types) {
  uint32_t close = build_lex(schema->compile, lexeme_pattern(schema->compile, "\\n</parameter>\\n"),
                             NODE_ID_RETURN);
  uint32_t branches[2], count = 0;
  schema_part_t *last = list_add(schema->compile, parts, sizeof *last);
  if (types & TYPE_STRING) {
    *last = tagged_part(schema, types);
    uint32_t text = schema_rule(schema, parts->items, parts->count);
    branches[count++] = build_node(schema->compile, NODE_CALL, text, close);
  }
  if (types != TYPE_STRING) {
    *last = no_string();
    uint32_t value = schema_rule(schema, parts->items, parts->count);
    branches[count++] = build_node(schema->compile, NODE_CALL, value, close);
  }
  return build_lex(schema->compile, lexeme_pattern(schema->compile, "\\n"),
                   build_alt(schema->compile, branches, count));
}

/* Returns false if no token can write the name. Refuses names that the parser would cut. */
static bool can_be_written(const schema_t *schema, const member_name_t *name) {
  for (uint32_t i = 0; i < name->length; i++) {
    uint8_t byte = (uint8_t)name->text[i];
    if (byte == '>' || byte == '\n') {
      schema_fail(schema, ERR_UNSUPPORTED_PARAMETER, "/properties",
                  "a name with '>' or a line break cannot be written in a tag.");
    }
    if (!schema->compile->vocabulary->has_byte[byte]) return false;
  }
  return true;
}

static void draft_members(schema_t *schema, const conjunction_t *conjunction,
                          const grammar_list_t *names, object_draft_t *draft) {
  const member_name_t *list = names->items;
  draft->members = compile_scratch(schema->compile, names->count, sizeof *draft->members);
  draft->num_members = names->count;
  for (uint32_t i = 0; i < names->count; i++) {
    uint32_t length = (uint32_t)sizeof OPEN - 1 + list[i].length + 1;
    char *tag = compile_scratch(schema->compile, length, 1);
    memcpy(tag, OPEN, sizeof OPEN - 1);
    memcpy(tag + sizeof OPEN - 1, list[i].text, list[i].length);
    tag[length - 1] = '>';
    uint32_t entry = NONE;
    if (can_be_written(schema, &list[i])) {
      grammar_list_t parts =
          schema_property_parts(schema, conjunction, list[i].text, list[i].length);
      entry = entry_of(schema, &parts,
                       json_schema_member_types(schema->root, list[i].text, list[i].length));
    }
    draft->members[i] = (member_draft_t){tag, length, entry, list[i].required};
  }
}

static void refuse_keywords(const schema_t *schema, const conjunction_t *conjunction) {
  static const struct {
    keyword_t keyword;
    const char *name;
  } refused[] = {{KEYWORD_ANY_OF, "anyOf"},
                 {KEYWORD_ONE_OF, "oneOf"},
                 {KEYWORD_ENUM, "enum"},
                 {KEYWORD_CONST, "const"},
                 {KEYWORD_PATTERN_PROPERTIES, "patternProperties"}};
  for (uint32_t i = 0; i < conjunction->count; i++) {
    for (size_t w = 0; w < ARRAY_LEN(refused); w++) {
      if (conjunction->items[i].values[refused[w].keyword] == NULL) continue;
      schema_fail(schema, ERR_UNSUPPORTED_PARAMETER, conjunction->items[i].part->pointer,
                  "'%s' is not supported for an object that is written in tags.", refused[w].name);
    }
  }
  if (!schema_has_split(conjunction)) return;
  schema_fail(
      schema, ERR_UNSUPPORTED_PARAMETER, "",
      "a condition ('not', 'if', 'dependentSchemas') is not supported for an object that is "
      "written in tags.");
}

static uint32_t extra_member(schema_t *schema, const conjunction_t *conjunction, uint32_t object) {
  static const char unlisted[1024] = "";
  grammar_list_t parts = schema_extra_parts(schema, conjunction);
  /* A listed name must be able to continue as another name: no bound on the length, and one byte
   * that ends a name. */
  uint32_t key = lexeme_pattern(schema->compile, OPEN "[A-Za-z0-9_.-]+>");
  uint32_t types = json_schema_member_types(schema->root, unlisted, sizeof unlisted);
  return build_extra(schema->compile, object, key, entry_of(schema, &parts, types));
}

uint32_t schema_parameters(compile_t *compile, const grammar_source_t *source, uint32_t next) {
  static const json_t any = {.type = JSON_TRUE};
  schema_t schema = {.compile = compile, .root = source->schema != NULL ? source->schema : &any};
  schema_begin(&schema, source);
  schema_refuse_bases(&schema, "an object that is written in tags");
  schema_part_t root = schema_part(schema.root, "");
  grammar_list_t joined = {0};
  conjunction_t conjunction = schema_join(&schema, &root, 1, &joined);
  uint32_t types = TYPE_ALL;
  for (uint32_t i = 0; i < conjunction.count; i++)
    types &= schema_types(&schema, &conjunction.items[i]);
  if (conjunction.never || !(types & TYPE_OBJECT)) return NODE_ID_FAIL;
  refuse_keywords(&schema, &conjunction);
  object_draft_t *draft = compile_scratch(compile, 1, sizeof *draft);
  uint32_t close = build_lex(compile, lexeme_pattern(compile, "</function>"), next);
  uint32_t object = build_members(compile, draft, close);
  grammar_list_t names = schema_member_names(&schema, &conjunction);
  schema_member_bounds(&schema, &conjunction, names.count, draft);
  if (!schema_presence(&schema, &conjunction, &names, draft)) return NODE_ID_FAIL;
  draft_members(&schema, &conjunction, &names, draft);
  draft->extra = extra_member(&schema, &conjunction, build_at(compile, object)->object);
  schema_finish(&schema);
  return object;
}
