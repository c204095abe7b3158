/* schema.h: what the files of the schema compiler share.
 *
 * A rule stands for the conjunction of several subschemas: references, allOf and siblings are
 * joined, and anyOf and oneOf are expanded. The set of subschemas identifies the rule, so a
 * recursive schema reaches the same rule again. Part of a compilation (compile.h), on its thread.
 */
#ifndef INFERD_ENGINE_GRAMMAR_LANGUAGE_SCHEMA_H
#define INFERD_ENGINE_GRAMMAR_LANGUAGE_SCHEMA_H

#include "engine/base/json_schema.h"
#include "engine/grammar/automaton/dfa.h"
#include "engine/grammar/automaton/number.h"
#include "engine/grammar/language/keywords.h"
#include "engine/grammar/nodes/presence.h"

typedef enum keyword {
#define X(name, text) KEYWORD_##name,
  KEYWORDS(X)
#undef X
      KEYWORD_COUNT
} keyword_t;

/* `done`: keywords of a part that the other parts of its rule already hold. In its upper bits
 * stands what of the schema the part is: schema_logic.h. */
enum {
  DONE_ANY_OF = 1,
  DONE_ONE_OF = 2,
  DONE_JOINED = 4,
  DONE_IF = 8,
  DONE_SPLIT = 16,
  DONE_VALUES = 32
};

/* One subschema of a conjunction. */
typedef struct schema_part {
  const json_t *schema; /* object, true or false */
  const char *pointer;  /* JSON pointer, for messages */
  uint32_t done;
  const struct schema_part *from; /* the part whose keyword added it; NULL = the place itself */
} schema_part_t;

/* A part that is an object, its keywords looked up. */
typedef struct keywords {
  const schema_part_t *part;
  const json_t *values[KEYWORD_COUNT]; /* NULL = absent */
  const json_t *about;                 /* of the literal (schema_logic.h): keyword, or member */
  const json_t *against;               /* the schema that this member does not satisfy */
  uint8_t literal;
  bool is_present; /* the member that the literal is about occurs */
} keywords_t;

typedef struct parts {
  schema_part_t *items;
  uint32_t count;
} parts_t;

typedef struct conjunction {
  keywords_t *items; /* of the parts that are objects */
  uint32_t count;
  bool never; /* `false` is among them */
} conjunction_t;

typedef struct pattern_dfa {
  const char *text;
  uint32_t length;
  bool json; /* over the inside of JSON strings, else over the text itself */
  const dfa_t *dfa;
} pattern_dfa_t;

typedef struct schema {
  compile_t *compile;
  const json_t *root;
  bool old_arrays;      /* dialects up to 2019-09: items may be an array */
  bool old_contains;    /* dialects up to draft 7: no minContains, maxContains; and $ref is alone */
  bool old_exclusive;   /* draft 4: exclusiveMinimum is a boolean */
  grammar_list_t rules; /* rule_t, see schema.c */
  uint32_t *table, table_size;
  grammar_list_t patterns; /* pattern_dfa_t */
  grammar_list_t contents; /* the lexemes of strings by their content, schema_string.c */
  const grammar_source_t *source;
  json_t *tagged;  /* [TEXT_RAW + 1, 2] schema_parameters.c; NULL = none is made yet */
  bool known_only; /* an unknown name is refused, not ignored */
  presence_t presence;
  struct schema_bases *bases; /* schema_base.c */
  grammar_list_t structures;  /* schema_structure.c */
  grammar_list_t some;        /* schema_some.c */
} schema_t;

_Noreturn void schema_fail(const schema_t *schema, int code, const char *pointer,
                           const char *format, ...) __attribute__((format(printf, 4, 5)));
const char *schema_pointer(const schema_t *schema, const char *base, const char *keyword,
                           size_t length);
#define schema_pointer_to(schema, base, literal)                                                   \
  schema_pointer(schema, base, "" literal, sizeof(literal) - 1)
const char *schema_pointer_index(const schema_t *schema, const char *base, const char *keyword,
                                 uint32_t index);

/* schema_keywords.c: looks up and checks every keyword of a part. */
keywords_t schema_keywords(const schema_t *schema, const schema_part_t *part);
/* Whether the keywords beside the `$ref` of the schema restrict nothing, as drafts 4 to 7 say. In a
 * strict schema they hold, which allows less. */
bool schema_ref_is_alone(const schema_t *schema, const json_t *json);
/* Sets the dialect that a `$schema` names; NULL = 2020-12. Returns false for another one, which
 * schema_dialect refuses. */
bool schema_find_dialect(schema_t *schema, const json_t *json);
void schema_dialect(schema_t *schema, const json_t *json, const char *pointer);
uint32_t schema_types(const schema_t *schema,
                      const keywords_t *keywords);          /* of `type`; all when absent */
uint32_t schema_type_of(const json_t *value);               /* of an instance */
bool schema_equal(const json_t *left, const json_t *right); /* as JSON values */
/* A non-negative integer keyword; `fallback` when absent. A maximum above 60000 becomes 60000, a
 * minimum above is refused. */
uint32_t schema_count(const schema_t *schema, const keywords_t *keywords, keyword_t keyword,
                      uint32_t fallback);

/* schema.c: the node that starts a value for all of the parts, and ends in RETURN. */
uint32_t schema_rule(schema_t *schema, const schema_part_t *parts, uint32_t count);
/* Joins references and allOf; looks up keywords. */
conjunction_t schema_join(schema_t *schema, const schema_part_t *parts, uint32_t count,
                          grammar_list_t *joined);
#define schema_part(schema, pointer) ((schema_part_t){(schema), (pointer), 0, NULL})

/* The types; each gives the node that starts such a value, then RETURN. */
uint32_t schema_string(schema_t *schema, const conjunction_t *conjunction);
uint32_t schema_number(schema_t *schema, const conjunction_t *conjunction, bool integer);
uint32_t schema_array(schema_t *schema, const conjunction_t *conjunction);
uint32_t schema_object(schema_t *schema, const conjunction_t *conjunction);
uint32_t schema_values(schema_t *schema, const conjunction_t *conjunction,
                       uint32_t types); /* enum and const */
const json_t *
schema_first_values(const conjunction_t *conjunction); /* enum array or const value, or NULL */

/* schema_array.c: the schemas of the first items; NULL = none. */
const json_t *schema_prefix(const keywords_t *keywords);

/* schema_string.c */
const dfa_t *schema_string_content(schema_t *schema, const conjunction_t *conjunction, bool json,
                                   uint32_t *min, uint32_t *max); /* NULL = any content */
/* `text` must stay alive; json: over the inside of JSON strings. */
const dfa_t *schema_pattern(schema_t *schema, const char *text, uint32_t length, bool json,
                            const char *pointer);
dfa_t *schema_number_dfa(schema_t *schema, const conjunction_t *conjunction, bool integer);

/* schema_parameters.c: the kind of text (compile.h) that a string between tags is; 0 = none. */
uint32_t schema_tagged(const schema_t *schema, const conjunction_t *conjunction);
schema_part_t schema_tagged_part(schema_t *schema, uint32_t kind);
/* The members of an object in tags, then `close`. */
uint32_t schema_members_in_tags(schema_t *schema, const conjunction_t *conjunction, uint32_t close);
/* schema_elements.c: whether values are written as elements (tag_words_t.mark); then: the node from
 * the end of the name of an element on, then RETURN (`name` NULL: any name), and the rules of
 * objects and of the items of arrays. */
bool schema_in_elements(const schema_t *schema);
uint32_t schema_element(schema_t *schema, grammar_list_t *parts, const char *name, uint32_t length);
uint32_t schema_element_object(schema_t *schema, const conjunction_t *conjunction);
uint32_t schema_element_item(schema_t *schema, grammar_list_t *parts);
/* schema_literals.c: how values are written that are not JSON. */
uint32_t schema_text_kind(const schema_t *schema,
                          const conjunction_t *conjunction);        /* of strings */
const char *schema_word(const schema_t *schema, json_type_t value); /* null, true or false */
const schema_part_t *schema_any(const schema_t *schema);            /* any value; NULL = any JSON */
/* The text of a kind, with the marks around it, then RETURN. */
uint32_t schema_text(schema_t *schema, uint32_t kind, uint32_t lexeme);
/* Begins the compilation of a schema: checks size, dialect and strictness. */
void schema_begin(schema_t *schema, const grammar_source_t *source);
/* Compiles all rules that were requested. */
void schema_finish(schema_t *schema);

/* schema_strict.c: checks the whole schema against OpenAI's strict subset. Returns only if the
 * schema satisfies it; otherwise schema_fail ends the compilation. */
void schema_check_strict(const schema_t *schema);

#endif
