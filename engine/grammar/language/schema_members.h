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
typedef struct member_name {
  const char *text;
  uint32_t length;
  bool required;
} member_name_t;
/* Returns the listed names, then the names that are only required: member_name_t. */
grammar_list_t schema_member_names(const schema_t *schema, const conjunction_t *conjunction);
/* Sets min and max of an object with so many names. */
void schema_member_bounds(const schema_t *schema, const conjunction_t *conjunction,
                          uint32_t num_names, object_draft_t *draft);

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
