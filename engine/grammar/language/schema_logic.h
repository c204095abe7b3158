/* schema_logic.h: keywords that combine other keywords.
 *
 * A part of a conjunction need not be a schema that holds. It may be a schema that does not, or a
 * literal: one keyword that does not hold, one member that occurs or does not. Part of a
 * compilation (compile.h), on its thread.
 */
#ifndef INFERD_ENGINE_GRAMMAR_LANGUAGE_SCHEMA_LOGIC_H
#define INFERD_ENGINE_GRAMMAR_LANGUAGE_SCHEMA_LOGIC_H

#include "engine/grammar/language/schema.h"

/* What of its schema a part is. The schema of the last ones is the member of `properties` or
 * `dependentSchemas` that has the name as its key. */
typedef enum part_mode {
  PART_PLAIN,              /* it holds */
  PART_NOT,                /* it does not hold */
  PART_NOT_KEYWORD,        /* one keyword of it does not hold */
  PART_NOT_MEMBER,         /* the member, if it occurs, does not satisfy it */
  PART_NOT_MEMBER_PRESENT, /* the member occurs and does not satisfy it */
  PART_DEPENDENT,          /* if the member occurs, the schema holds */
  PART_PRESENT,            /* the member occurs */
  PART_ABSENT,             /* the member does not occur; the value may be no object */
  PART_NOT_ITEM,           /* there is an item of this index, and it does not satisfy it */
  PART_NOT_REST,           /* some item from this index on does not satisfy it */
  PART_SOME_MATCHING,      /* a member that matches the pattern, the key, does not satisfy it */
  PART_SOME_NAMED,         /* the name of a member does not satisfy it */
  PART_SOME_OTHER /* a member of no keyword of it does not satisfy its additionalProperties */
} part_mode_t;

enum { PART_MODE_SHIFT = 8, PART_NUMBER_SHIFT = 16, PART_NUMBER_MAX = 0xFFFF };

static inline uint32_t schema_mode(part_mode_t mode) {
  return (uint32_t)mode << PART_MODE_SHIFT;
}
static inline part_mode_t schema_part_mode(const schema_part_t *part) {
  return (part_mode_t)(part->done >> PART_MODE_SHIFT & 0xFF);
}
/* Of PART_SOME_: it is not decided yet which member it is; it is an extra one; from this number on:
 * it is a listed one (schema_some.c). */
enum { SOME_UNDECIDED, SOME_EXTRA, SOME_LISTED };
static inline bool schema_is_some(const schema_part_t *part) {
  return schema_part_mode(part) >= PART_SOME_MATCHING;
}
/* The keyword, or the index. */
static inline uint32_t schema_part_number(const schema_part_t *part) {
  return part->done >> PART_NUMBER_SHIFT;
}
static inline bool schema_is_undecided(const schema_part_t *part) {
  return schema_is_some(part) && schema_part_number(part) == SOME_UNDECIDED &&
         !(part->done & DONE_SPLIT);
}

/* Of keywords_t: what does not hold, where no keyword says the opposite. */
typedef enum literal {
  LITERAL_NONE,
  LITERAL_TYPE,
  LITERAL_ENUM,
  LITERAL_CONST,
  LITERAL_PATTERN,
  LITERAL_MULTIPLE_OF,
  LITERAL_ITEM,      /* about: the schema of an item */
  LITERAL_REST,      /* about: the schema of the items from an index on */
  LITERAL_REQUIRED,  /* about: the schema; a name that has no schema in it is absent */
  LITERAL_DEPENDENT, /* about: the map of names to names */
  LITERAL_EXTRA,     /* about: the schema; a name that it does not list occurs */
  LITERAL_SOME,      /* an extra member occurs of which schema_some.c tells more */
  LITERAL_MEMBER,
  LITERAL_PRESENT,
  LITERAL_ABSENT
} literal_t;

/* schema_literal.c: the keywords of a part that is not plain. */
keywords_t schema_literal(const schema_t *schema, const schema_part_t *part);
/* Returns false if the literal takes out this value. */
bool schema_literal_allows(schema_t *schema, const keywords_t *keywords, const json_t *value);
/* The same of null, true or false, for all parts. */
bool schema_allows_word(schema_t *schema, const conjunction_t *conjunction, json_type_t type);
/* Takes out of the content of strings (NULL = any; json: inside of JSON strings) what the literal
 * takes out. */
const dfa_t *schema_literal_content(schema_t *schema, const keywords_t *keywords,
                                    const dfa_t *content, bool json);
/* The same of numbers, for all parts; and whether there is something to take out. */
dfa_t *schema_literal_number(schema_t *schema, const conjunction_t *conjunction, dfa_t *number);
bool schema_has_number_literal(const schema_t *schema, const conjunction_t *conjunction);

/* One way in which something can hold: parts that hold together. */
typedef struct schema_way {
  const schema_part_t *parts;
  uint32_t count;
} schema_way_t;

/* schema_split.c: adds the way that these parts are, of which it makes a copy. */
void schema_add_way(const schema_t *schema, grammar_list_t *ways, const schema_part_t *parts,
                    uint32_t count);

/* schema_not.c: the ways in which a part of mode PART_NOT holds: schema_way_t. Any of them
 * suffices; none = it cannot hold. `part` stays alive. */
grammar_list_t schema_negations(schema_t *schema, const schema_part_t *part);

/* schema_split.c: if something of the conjunction has several ways, adds all parts of each way to
 * `out`, schema_way_t, and returns true. */
bool schema_ways(schema_t *schema, const conjunction_t *conjunction, const grammar_list_t *joined,
                 grammar_list_t *out);
/* The same; fills the alternative `node` with a rule for each way. */
bool schema_fill_split(schema_t *schema, uint32_t node, const conjunction_t *conjunction,
                       const grammar_list_t *joined);
bool schema_has_split(const conjunction_t *conjunction); /* ... would return true */
bool schema_is_conditional(const keywords_t *keywords);  /* has an `if` that is not done */
/* Returns all parts and the branch `json` of a list of alternatives: joined->count + 1 parts. */
const schema_part_t *schema_with_branch(const schema_t *schema, const grammar_list_t *joined,
                                        const schema_part_t *holder, uint32_t flag,
                                        const json_t *json);
/* Returns true if each branch of a list of alternatives is proved to contradict the parts. */
bool schema_no_branch(schema_t *schema, const grammar_list_t *joined, const schema_part_t *holder,
                      uint32_t flag, const json_t *list, int depth);

/* schema_unevaluated.c: returns true if unevaluatedProperties or unevaluatedItems is among the
 * keywords. Then it has to be known of every schema that schema_evaluates if it holds. */
bool schema_has_unevaluated(const conjunction_t *conjunction);
bool schema_evaluates(const json_t *json); /* it may look at members or items */
/* Adds the keywords that say what these two say. Nothing is left to split. */
conjunction_t schema_evaluate(schema_t *schema, const conjunction_t *conjunction);

/* schema_some.c: a member of some names must occur, with a value that does not satisfy something.
 * The ways in which it can: schema_way_t. */
grammar_list_t schema_some_ways(schema_t *schema, const conjunction_t *conjunction,
                                const schema_part_t *part);
/* The keywords of such a part. */
void schema_some_literal(const schema_t *schema, const schema_part_t *part, keywords_t *out);
/* The automaton of these names, the text between the quotes. */
const dfa_t *schema_some_names(schema_t *schema, const schema_part_t *part);
/* The schema that the value does not satisfy; NULL = any value will do. */
const json_t *schema_some_against(const schema_part_t *part);

/* schema_structure.c: the schema that a listed array or object alone satisfies, without `const`. */
const json_t *schema_of_structure(schema_t *schema, const json_t *value);
/* The types of arrays and objects about which some part says more than their type. */
uint32_t schema_structure_types(const conjunction_t *conjunction);
/* If other keywords say something about listed arrays or objects, fills the alternative `node` with
 * a rule for each of these values, and one for the others, and returns true. */
bool schema_fill_structures(schema_t *schema, uint32_t node, const conjunction_t *conjunction,
                            const grammar_list_t *joined, uint32_t types);

/* schema_empty.c: returns true if it can prove that no value satisfies all parts. depth: 0. */
bool schema_is_empty(schema_t *schema, const schema_part_t *parts, uint32_t count, int depth);
/* schema_values.c: returns true if some value that the conjunction lists may satisfy it. */
bool schema_any_value(schema_t *schema, const conjunction_t *conjunction, uint32_t types);
/* Returns true if `values` is an enum, and no const. */
bool schema_is_enum(const conjunction_t *conjunction, const json_t *values);
/* Returns true if every enum and const of the conjunction contains the value, and no literal takes
 * it out. */
bool schema_is_listed(schema_t *schema, const conjunction_t *conjunction, const json_t *json);

/* schema.c: refuses a schema that reaches itself without an object or array in between. */
void schema_refuse_cycle(const schema_t *schema, const schema_part_t *from, const json_t *target);
const char *schema_keyword_name(keyword_t keyword); /* schema_keywords.c */

#endif
