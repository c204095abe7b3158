/* schema_members.h: members of the objects of a conjunction.
 *
 * Part of a compilation (compile.h), on its thread.
 */
#ifndef INFERD_ENGINE_GRAMMAR_LANGUAGE_SCHEMA_MEMBERS_H
#define INFERD_ENGINE_GRAMMAR_LANGUAGE_SCHEMA_MEMBERS_H

#include "engine/grammar/language/schema.h"

/* schema_object.c: the parts that apply to the property `name` in the conjunction. */
grammar_list_t schema_property_parts(schema_t *schema, const conjunction_t *conjunction,
                                     const char *name, size_t length);
/* The parts that apply to a name that is not listed and matches no pattern. */
grammar_list_t schema_extra_parts(schema_t *schema, const conjunction_t *conjunction);
/* Returns the automaton of the names (the text between the quotes) that the parts allow, all of one
 * spelling; NULL = any name. */
const dfa_t *schema_names_of(schema_t *schema, const schema_part_t *parts, uint32_t count);
typedef struct member_name {
  const char *text;
  uint32_t length;
  bool required;
} member_name_t;
/* Returns the listed names, then the names that are only required: member_name_t. */
grammar_list_t schema_member_names(const schema_t *schema, const conjunction_t *conjunction);
/* Sets min, max and order of an object with so many names. */
void schema_member_bounds(const schema_t *schema, const conjunction_t *conjunction,
                          uint32_t num_names, object_draft_t *draft);

/* schema_literals.c: how an object of the conjunction is written. */
typedef struct object_words {
  bool is_call;       /* the arguments of a call: no braces */
  bool bare;          /* names of BARE_NAME need no quotes */
  const char *assign; /* pattern of what stands between a name and its value */
} object_words_t;
#define BARE_NAME "[A-Za-z0-9_.-]+"
object_words_t schema_object_words(const schema_t *schema, const conjunction_t *conjunction);
/* A listed name as it is written; refuses one that cannot be. */
dfa_text_t schema_member_text(const schema_t *schema, const object_words_t *words,
                              const member_name_t *name);
/* Returns the node of the arguments of a call. */
uint32_t schema_call_arguments(schema_t *schema, object_draft_t *draft);
/* Bounds their number, which the parser does too. */
void schema_bound_arguments(const schema_t *schema, object_draft_t *draft, uint32_t num_names);

/* schema_presence.c: the names on whose presence a part sets a condition, some more than once:
 * member_name_t. */
grammar_list_t schema_presence_names(const schema_t *schema, const conjunction_t *conjunction);
/* Returns the condition (presence.h) on the members; names: of schema_member_names. */
uint32_t schema_presence_condition(schema_t *schema, const conjunction_t *conjunction,
                                   const grammar_list_t *names);
/* Gives the draft, whose bounds are set, the condition on its members. Returns false if no object
 * satisfies it. */
bool schema_presence(schema_t *schema, const conjunction_t *conjunction,
                     const grammar_list_t *names, object_draft_t *draft);

#endif
