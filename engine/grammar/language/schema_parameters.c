/* schema_parameters.c: an object whose members stand in tags, as some models write a call:
 *
 *   <parameter=NAME>\nVALUE\n</parameter>\n  for each member,  </function>  behind the last
 *
 * with the words of a row (json_schema.h), some of which may be tokens. Part of a compilation, on
 * its thread. A string is written as it is, anything else as JSON. The
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

/* Makes a part {"type": "string"} that distinguishes rules of text between tags, of a kind, from
 * rules of JSON. */
schema_part_t schema_tagged_part(schema_t *context, uint32_t kind) {
  if (context->tagged == NULL)
    context->tagged =
        compile_scratch(context->compile, (TEXT_RAW + 1) * 2, sizeof *context->tagged);
  json_t *schema = context->tagged + (size_t)kind * 2;
  schema[0] = (json_t){.type = JSON_OBJECT, .count = 1};
  schema[1] =
      (json_t){.type = JSON_STRING, .key = "type", .key_length = 4, .text = "string", .length = 6};
  return schema_part(schema, "");
}

uint32_t schema_tagged(const schema_t *schema, const conjunction_t *conjunction) {
  for (uint32_t i = 0; schema->tagged != NULL && i < conjunction->count; i++) {
    for (uint32_t kind = 1; kind <= TEXT_RAW; kind++) {
      if (conjunction->items[i].part->schema == schema->tagged + (size_t)kind * 2) return kind;
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

static const tag_words_t *words_of(const schema_t *schema) {
  return schema->source->tags != NULL ? schema->source->tags : &tag_words_function;
}

static uint32_t put(schema_t *schema, const char *text, uint32_t next) {
  return build_words(schema->compile, schema->source, text, next);
}

/* A value of one rule, from the end of its key to the end of its tag. type: that is written behind
 * the key; or NULL. */
static uint32_t value_of(schema_t *schema, const grammar_list_t *parts, const char *type,
                         const char *end_key) {
  const tag_words_t *words = words_of(schema);
  uint32_t rule = schema_rule(schema, parts->items, parts->count);
  uint32_t next = put(schema, words->behind_value, NODE_ID_RETURN);
  next = put(schema, words->around_value, put(schema, words->end_value, next));
  next = build_node(schema->compile, NODE_CALL, rule, next);
  next = put(schema, words->before_value, put(schema, words->around_value, next));
  next = put(schema, end_key, next);
  return type != NULL ? put(schema, words->begin_type, put(schema, type, next)) : next;
}

#define OF_TYPE(name)                                                                              \
  {                                                                                                \
    {.type = JSON_OBJECT, .count = 1}, {                                                           \
      .type = JSON_STRING, .key = "type", .key_length = 4, .text = name, .length = sizeof name - 1 \
    }                                                                                              \
  }

/* The key is followed by the type of the value. */
static uint32_t typed_entry_of(schema_t *schema, grammar_list_t *parts) {
  static const json_t types[][2] = {OF_TYPE("string"), OF_TYPE("number"), OF_TYPE("boolean"),
                                    OF_TYPE("null"),   OF_TYPE("object"), OF_TYPE("array")};
  uint32_t branches[ARRAY_LEN(types)];
  schema_part_t *last = list_add(schema->compile, parts, sizeof *last);
  for (size_t i = 0; i < ARRAY_LEN(types); i++) {
    *last = i == 0 ? schema_tagged_part(schema, TEXT_RAW) : schema_part(types[i], "");
    branches[i] = value_of(schema, parts, types[i][1].text, words_of(schema)->end_key);
  }
  return build_alt(schema->compile, branches, ARRAY_LEN(types));
}

/* From the end of the key on, then RETURN. Where the key says whether the value is text, all types
 * can be told apart. */
static uint32_t entry_of(schema_t *schema, grammar_list_t *parts, const member_name_t *name,
                         uint32_t types) {
  const tag_words_t *words = words_of(schema);
  if (words->mark != NULL) return schema_element(schema, parts, name->text, name->length);
  if (words->begin_type != NULL) return typed_entry_of(schema, parts);
  bool told = words->end_text_key != NULL;
  uint32_t branches[2], count = 0;
  schema_part_t *last = list_add(schema->compile, parts, sizeof *last);
  if (told || (types & TYPE_STRING)) {
    *last = schema_tagged_part(schema, told ? TEXT_RAW : types);
    branches[count++] = value_of(schema, parts, NULL, told ? words->end_text_key : words->end_key);
  }
  if (told || types != TYPE_STRING) {
    *last = no_string();
    branches[count++] = value_of(schema, parts, NULL, told ? words->end_json_key : words->end_key);
  }
  return build_alt(schema->compile, branches, count);
}

/* Returns false if no token can write the name. Refuses names that the parser would cut. */
static bool can_be_written(const schema_t *schema, const member_name_t *name) {
  const tag_words_t *words = words_of(schema);
  const char *const ends[] = {words->end_key, words->end_text_key, words->end_json_key, "\n",
                              words->mark != NULL ? "<" : NULL};
  bool fits = name->length > 0 && name->length < CALL_ARGUMENT_NAME_BYTES_MAX;
  if (words->mark != NULL) fits = fits && name->text[0] != '/';
  for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
    fits = fits &&
           (ends[i] == NULL || memmem(name->text, name->length, ends[i], strlen(ends[i])) == NULL);
  }
  if (!fits) {
    schema_fail(schema, ERR_UNSUPPORTED_PARAMETER, "/properties",
                "a name that is empty, very long, or has '%s' or a line break cannot be written in "
                "a tag.",
                words->end_key);
  }
  for (uint32_t i = 0; i < name->length; i++) {
    if (!schema->compile->vocabulary->has_byte[(uint8_t)name->text[i]]) return false;
  }
  return true;
}

/* A listed name as it is written. */
static dfa_text_t written(const schema_t *schema, const member_name_t *name) {
  bool typed = words_of(schema)->begin_type != NULL;
  char *text = compile_scratch(schema->compile, 6 * (size_t)name->length + 1, 1);
  uint32_t length = 0;
  if (!typed) return (dfa_text_t){name->text, name->length};
  for (uint32_t i = 0; i < name->length; i++) {
    char byte = name->text[i];
    const char *entity = byte == '"' ? "&quot;" : byte == '&' ? "&amp;" : NULL;
    size_t count = entity != NULL ? strlen(entity) : 1;
    memcpy(text + length, entity != NULL ? entity : &byte, count);
    length += (uint32_t)count;
  }
  return (dfa_text_t){text, length};
}

static void draft_members(schema_t *schema, const conjunction_t *conjunction,
                          const grammar_list_t *names, object_draft_t *draft) {
  const member_name_t *list = names->items;
  draft->members = compile_scratch(schema->compile, names->count, sizeof *draft->members);
  draft->num_members = names->count;
  for (uint32_t i = 0; i < names->count; i++) {
    uint32_t entry = NONE;
    if (can_be_written(schema, &list[i])) {
      grammar_list_t parts =
          schema_property_parts(schema, conjunction, list[i].text, list[i].length);
      entry = entry_of(schema, &parts, &list[i],
                       json_schema_member_types(schema->root, list[i].text, list[i].length));
    }
    dfa_text_t text = written(schema, &list[i]);
    draft->members[i] = (member_draft_t){text.bytes, text.length, entry, list[i].required};
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
                 {KEYWORD_PATTERN_PROPERTIES, "patternProperties"},
                 {KEYWORD_PROPERTY_NAMES, "propertyNames"}};
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
  /* A listed name must be able to continue as another name: no bound on the length. */
  uint32_t key = lexeme_pattern(schema->compile, BARE_NAME);
  uint32_t types = json_schema_member_types(schema->root, unlisted, sizeof unlisted);
  member_name_t none = {NULL, 0, false};
  return build_extra(schema->compile, object, key, entry_of(schema, &parts, &none, types));
}

uint32_t schema_members_in_tags(schema_t *schema, const conjunction_t *conjunction,
                                uint32_t close) {
  compile_t *compile = schema->compile;
  object_draft_t *draft = compile_scratch(compile, 1, sizeof *draft);
  uint32_t members, object = build_members(compile, draft, close, &members);
  uint32_t key = put(schema, words_of(schema)->begin_key, members);
  build_before_members(compile, object, key, key);
  grammar_list_t names = schema_member_names(schema, conjunction);
  schema_member_bounds(schema, conjunction, names.count, draft);
  if (!schema_presence(schema, conjunction, &names, draft)) return NODE_ID_FAIL;
  schema_bound_arguments(schema, draft, names.count);
  draft_members(schema, conjunction, &names, draft);
  draft->extra = extra_member(schema, conjunction, build_at(compile, object)->object);
  return object;
}

uint32_t schema_parameters(compile_t *compile, const grammar_source_t *source, uint32_t next) {
  static const json_t any = {.type = JSON_TRUE};
  schema_t schema = {.compile = compile, .root = source->schema != NULL ? source->schema : &any};
  schema_begin(&schema, source);
  compile->tags = words_of(&schema);
  schema_refuse_bases(&schema, "an object that is written in tags");
  schema_part_t root = schema_part(schema.root, "");
  grammar_list_t joined = {0};
  conjunction_t conjunction = schema_join(&schema, &root, 1, &joined);
  uint32_t types = TYPE_ALL;
  for (uint32_t i = 0; i < conjunction.count; i++)
    types &= schema_types(&schema, &conjunction.items[i]);
  if (conjunction.never || !(types & TYPE_OBJECT)) return NODE_ID_FAIL;
  refuse_keywords(&schema, &conjunction);
  conjunction = schema_evaluate(&schema, &conjunction);
  uint32_t close = put(&schema, words_of(&schema)->end_call, next);
  uint32_t object = schema_members_in_tags(&schema, &conjunction, close);
  schema_finish(&schema);
  return object;
}
