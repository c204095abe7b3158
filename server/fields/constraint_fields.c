/* constraint_fields.c: the fields that constrain the output.
 *
 * Stage 2 of 9, first half. Loop thread or libuv's pool; keeps no state. A request may have one
 * constraint: a second one is refused, whichever field has it. constraint.c compiles the constraint
 * and reports what it cannot enforce. Next: server/completion/prompt.c.
 */
#include "server/fields/structural_tag.h"

#include <stdio.h>
#include <string.h>

enum { FORMAT_NAME_BYTES_MAX = 64 };

static constraint_t *constraint_of(reader_t *reader) {
  return &((params_t *)reader->out)->constraint;
}

static int take(reader_t *reader, const char *param, grammar_kind_t kind) {
  constraint_t *constraint = constraint_of(reader);
  int code = closed_check_kind(reader->limits, kind, param, reader->error);
  if (code != 0) return code;
  if (constraint->param != NULL) {
    return error_set(reader->error, ERR_INVALID_VALUE, param,
                     "Only one constraint on the output is possible: '%s' and '%s' are both given.",
                     constraint->param, param);
  }
  constraint->param = param;
  constraint->kind = kind;
  return 0;
}

static int parse_text(reader_t *reader, const char *param, const json_t *value,
                      const json_t **out) {
  constraint_t *constraint = constraint_of(reader);
  inferd_error_t reason = {0};
  int code =
      json_parse(value->text, value->length, &json_limits_request, &constraint->doc, &reason);
  if (code != 0) {
    return error_set(reader->error, ERR_INVALID_VALUE, param, "Invalid '%s': %s", param,
                     reason.message);
  }
  *out = json_root(constraint->doc);
  return 0;
}

/* A schema is an object (or true), or the text of one. */
static int take_schema(reader_t *reader, const char *param, const json_t *value) {
  constraint_t *constraint = constraint_of(reader);
  int code = take(reader, param, GRAMMAR_JSON_SCHEMA);
  if (code != 0) return code;
  if (value->type == JSON_OBJECT || value->type == JSON_TRUE || value->type == JSON_FALSE) {
    constraint->schema = value;
    return closed_check_patterns(reader->limits, value, param, reader->error);
  }
  if (value->type != JSON_STRING) {
    return field_fail_type(reader, param, "a JSON schema", value);
  }
  code = parse_text(reader, param, value, &constraint->schema);
  if (code != 0) return code;
  if (constraint->schema->type == JSON_OBJECT) {
    return closed_check_patterns(reader->limits, constraint->schema, param, reader->error);
  }
  return field_fail_type(reader, param, "a JSON schema", constraint->schema);
}

/* A structural tag is an object, or the text of one; it counts as a schema where kinds are closed.
 */
static int take_tag(reader_t *reader, const char *param, const json_t *value) {
  int code = take(reader, param, GRAMMAR_JSON_SCHEMA);
  if (code == 0 && value->type == JSON_STRING) code = parse_text(reader, param, value, &value);
  if (code != 0) return code;
  if (value->type != JSON_OBJECT) return field_fail_type(reader, param, "a structural tag", value);
  return structural_tag_read(reader, param, value, &constraint_of(reader)->tree,
                             &constraint_of(reader)->shown);
}

static int take_text(reader_t *reader, const char *param, grammar_kind_t kind,
                     const json_t *value) {
  if (value->type != JSON_STRING) return field_fail_type(reader, param, "a string", value);
  constraint_of(reader)->text = (span_t){value->text, value->length};
  return take(reader, param, kind);
}

static int take_choice(reader_t *reader, const char *param, const json_t *value) {
  if (value->type != JSON_ARRAY) {
    return field_fail_type(reader, param, "an array of strings", value);
  }
  if (value->count == 0) {
    return error_set(reader->error, ERR_INVALID_VALUE, param,
                     "Invalid '%s': there must be something to choose from.", param);
  }
  JSON_EACH(choice, value) {
    if (choice->type != JSON_STRING) {
      return field_fail_type(reader, param, "an array of strings", choice);
    }
  }
  constraint_of(reader)->schema = value;
  return take(reader, param, GRAMMAR_CHOICE);
}

int read_schema(reader_t *reader, const field_t *field, const json_t *value) {
  return take_schema(reader, field->name, value);
}

/* Ollama's field: "json", or a schema. */
int read_format(reader_t *reader, const field_t *field, const json_t *value) {
  if (value->type == JSON_OBJECT) return take_schema(reader, field->name, value);
  if (json_equals(value, "")) return 0;
  if (json_equals(value, "json")) return take(reader, field->name, GRAMMAR_JSON_OBJECT);
  if (value->type != JSON_STRING) {
    return field_fail_type(reader, field->name, "'json' or a JSON schema", value);
  }
  return field_fail_value(reader, field->name, "'json' or a JSON schema", value);
}

int read_regex(reader_t *reader, const field_t *field, const json_t *value) {
  return take_text(reader, field->name, GRAMMAR_REGEX, value);
}

int read_choice(reader_t *reader, const field_t *field, const json_t *value) {
  return take_choice(reader, field->name, value);
}

int read_grammar(reader_t *reader, const field_t *field, const json_t *value) {
  if (value->type == JSON_STRING && value->length == 0)
    return 0; /* llama.cpp: an empty text means no constraint */
  return take_text(reader, field->name, GRAMMAR_EBNF, value);
}

/* ---- response_format ---- */

static bool format_name_valid(const json_t *name) {
  if (name->length == 0 || name->length > FORMAT_NAME_BYTES_MAX) return false;
  for (uint32_t i = 0; i < name->length; i++) {
    char c = name->text[i];
    bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (!letter && c != '_' && c != '-') return false;
  }
  return true;
}

/* {"name":..., "schema":{...}, "strict":true, "description":...} */
static int read_json_schema(reader_t *reader, const json_t *format) {
  static const char param[] = "response_format.json_schema";
  if (!json_is_given(format)) {
    return error_set(reader->error, ERR_MISSING_PARAMETER, param,
                     "Missing required parameter: '%s'.", param);
  }
  if (format->type != JSON_OBJECT) return field_fail_type(reader, param, "an object", format);
  const json_t *name = json_get(format, "name"), *schema = json_get(format, "schema");
  const json_t *strict = json_get(format, "strict");
  if (json_is_given(name)) {
    if (name->type != JSON_STRING || !format_name_valid(name)) {
      char expected[64];
      snprintf(expected, sizeof expected, "1 to %d of the characters A-Z a-z 0-9 _ -",
               FORMAT_NAME_BYTES_MAX);
      return field_fail_value(reader, "response_format.json_schema.name", expected, name);
    }
  }
  if (!json_is_given(schema)) {
    return error_set(reader->error, ERR_MISSING_PARAMETER, "response_format.json_schema.schema",
                     "Missing required parameter: 'response_format.json_schema.schema'.");
  }
  if (json_is_given(strict) && !json_bool(strict, &constraint_of(reader)->strict)) {
    return field_fail_type(reader, "response_format.json_schema.strict", "a boolean", strict);
  }
  return take_schema(reader, "response_format", schema);
}

int read_response_format(reader_t *reader, const field_t *field, const json_t *value) {
  if (value->type != JSON_OBJECT) return field_fail_type(reader, field->name, "an object", value);
  const json_t *type = json_get(value, "type");
  if (json_equals(type, "text")) return 0;
  if (json_equals(type, "json_object")) {
    const json_t *schema = json_get(value, "schema"); /* as llama.cpp and Together write it */
    if (json_is_given(schema)) {
      return take_schema(reader, field->name, schema);
    }
    return take(reader, field->name, GRAMMAR_JSON_OBJECT);
  }
  if (json_equals(type, "json_schema")) {
    return read_json_schema(reader, json_get(value, "json_schema"));
  }
  if (json_equals(type, "structural_tag")) return take_tag(reader, field->name, value);
  if (type == NULL || type->type != JSON_STRING) {
    return error_set(reader->error, ERR_MISSING_PARAMETER, "response_format.type",
                     "Missing required parameter: 'response_format.type'.");
  }
  char name[64];
  return error_set(reader->error, ERR_UNSUPPORTED_PARAMETER, "response_format",
                   "The response format '%s' is not supported: expected 'text', 'json_object', "
                   "'json_schema' or 'structural_tag'.",
                   error_quote(name, sizeof name, type->text, type->length));
}

/* ---- structured_outputs ---- */

static bool is_false(const json_t *value) {
  return value->type == JSON_FALSE;
}

int read_structured_outputs(reader_t *reader, const field_t *field, const json_t *value) {
  if (value->type != JSON_OBJECT) return field_fail_type(reader, field->name, "an object", value);
  JSON_EACH(member, value) {
    char name[ERROR_PARAM_MAX];
    int code = 0;
    if (member->type == JSON_NULL) continue;
    if (json_named(member, "json")) {
      code = take_schema(reader, "structured_outputs.json", member);
    } else if (json_named(member, "regex")) {
      code = take_text(reader, "structured_outputs.regex", GRAMMAR_REGEX, member);
    } else if (json_named(member, "choice")) {
      code = take_choice(reader, "structured_outputs.choice", member);
    } else if (json_named(member, "grammar")) {
      code = take_text(reader, "structured_outputs.grammar", GRAMMAR_EBNF, member);
    } else if (json_named(member, "structural_tag")) {
      code = take_tag(reader, "structured_outputs.structural_tag", member);
    } else if (json_named(member, "json_object")) {
      if (member->type != JSON_TRUE && !is_false(member)) {
        return field_fail_type(reader, "structured_outputs.json_object", "a boolean", member);
      }
      if (!is_false(member)) {
        code = take(reader, "structured_outputs.json_object", GRAMMAR_JSON_OBJECT);
      }
    } else if (!is_false(member)) {
      error_quote(name, sizeof name, member->key, member->key_length);
      code = error_set(reader->error, ERR_UNSUPPORTED_PARAMETER, field->name,
                       "The parameter 'structured_outputs.%s' is not supported.", name);
    }
    if (code != 0) return code;
  }
  return 0;
}
