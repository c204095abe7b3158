/* json_schema.h: simple questions about a JSON schema: where a reference points, and which types a
 * member may have; and the words of tool calls whose arguments are not JSON.
 *
 * Shared by the compiler of grammars, which writes such calls, and the parser that reads them. Both
 * must agree on the type of a value that is written outside of JSON, and on the texts that end it.
 * No state, any thread; bounded work for any schema.
 */
#ifndef INFERD_ENGINE_BASE_JSON_SCHEMA_H
#define INFERD_ENGINE_BASE_JSON_SCHEMA_H

#include "engine/base/json.h"

/* Sets of types. */
enum {
  TYPE_NULL = 1,
  TYPE_BOOLEAN = 2,
  TYPE_STRING = 4,
  TYPE_INTEGER = 8,
  TYPE_FRACTION = 16, /* numbers that are not integers */
  TYPE_ARRAY = 32,
  TYPE_OBJECT = 64,
  TYPE_NUMBER = TYPE_INTEGER | TYPE_FRACTION,
  TYPE_ALL = 127
};

/* Returns the TYPE_ bits of a type name of JSON Schema; 0 = no such type. */
uint32_t json_schema_types(const char *type, size_t length);
/* Returns the value that a reference, "#" or "#/...", points at; NULL if there is none. */
const json_t *json_schema_resolve(const json_t *root, const char *reference, size_t length);
/* Returns the types that member `name` of an object may have by `schema` (NULL = no schema): all
 * types that the schema allows, and perhaps more. Returns TYPE_STRING alone if the schema does not
 * restrict the types, allows none, or is too large to evaluate. */
uint32_t json_schema_member_types(const json_t *schema, const char *name, size_t length);

/* The schemas that apply to one place of a value. None = it may be anything. */
enum { SCHEMA_SET_MAX = 16 };
typedef struct schema_set {
  const json_t *root;
  const json_t *schemas[SCHEMA_SET_MAX];
  uint32_t count;
} schema_set_t;

/* Returns the types that all of them allow, TYPE_ALL if they allow none or if `*fuel`, which bounds
 * the work of many calls, is used up. The same of one schema. */
uint32_t json_schema_set_types(const schema_set_t *set, uint32_t *fuel);
uint32_t json_schema_value_types(const json_t *root, const json_t *schema);
/* Sets *out to the schemas of a member, by properties or else additionalProperties, or of item
 * `index` of an array (`name` NULL); of $ref and allOf, too. Of anyOf and oneOf it is the branch
 * that is an object, or array; among several the first that lists the name. */
void json_schema_step(const schema_set_t *set, const char *name, size_t length, uint32_t index,
                      schema_set_t *out, uint32_t *fuel);

enum { CALL_ARGUMENTS_MAX = 1000, CALL_ARGUMENT_NAME_BYTES_MAX = 4096 };

/* Returns true for a byte of a name that stands in a call without quotes: a letter or digit of any
 * script, `_`, `-` or `.`. */
static inline bool call_name_byte(char byte) {
  return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
         (byte >= '0' && byte <= '9') || byte == '_' || byte == '-' || byte == '.' ||
         (unsigned char)byte >= 0x80;
}

/* The words of a call in tags, as <parameter=KEY>\nVALUE\n</parameter>. Constant data. */
enum { TAG_VALUE_ENDS = 6, TAG_FIRST_OF_LINE = 4 };

typedef struct tag_words {
  const char *end_name;    /* behind the name of the function; NULL: a blank or `<` ends it */
  const char *number;      /* between the name and the number of the call; or NULL */
  const char *begin_key;   /* before the name of an argument */
  const char *end_key;     /* behind it */
  const char *begin_value; /* behind end_key and blanks; or NULL */
  /* In place of end_key, behind the name of an argument whose value is text, or is JSON; or NULL.
   */
  const char *end_text_key, *end_json_key;
  /* Between the name of an argument and the type of its value, a word of JSON Schema, which end_key
   * follows. Then `"` and `&` of the name are written as in XML. Or NULL. */
  const char *begin_type;
  const char *begin_json, *end_json; /* around one JSON object in place of all arguments; or NULL */
  /* NULL, or the mark before each tag of elements: an argument is an element with its name, and an
   * object or array is elements in it: server/parser/element.h. begin_key is the mark and `<`. */
  const char *mark;
  const char *end_value, *end_call;
  const char *end_calls; /* also ends a call whose own end is missing; or NULL */
  /* The texts that end a value. A closing tag may be missing, so the next tag ends a value too, but
   * only at the start of a line, because a value may be a text about tags: those from
   * TAG_FIRST_OF_LINE on count only while the value has no byte. Filled by TAG_ENDS. */
  const char *value_ends[TAG_VALUE_ENDS];
  /* Writing only: behind the end of the key (with begin_value), on both sides of a value, and
   * behind end_value. */
  const char *before_value, *around_value, *behind_value;
} tag_words_t;

/* The words of a call whose arguments are literals, as f(KEY=VALUE, ...). With a string_mark it is
 * around raw strings, keys inside values need no quotes, and constants are those of JSON; without
 * one they are those of Python. Constant data. */
typedef struct literal_words {
  char open, assign, close; /* around the arguments, and between a key and its value */
  const char *string_mark;  /* or NULL */
} literal_words_t;

extern const tag_words_t tag_words_function; /* those of the example */

#define TAG_ENDS(begin_key, end_value, end_call)                                                   \
  { "\n" end_value, end_value, "\n" begin_key, "\n" end_call, begin_key, end_call }

#endif
