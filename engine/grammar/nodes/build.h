/* build.h: what the files of this folder share, and drafts that need more than compile.h has.
 *
 * Part of a compilation, on its thread. A "need" is how many frames of the stack of texts in
 * progress (program.h) the cheapest end of something takes; NONE = it cannot end.
 */
#ifndef INFERD_ENGINE_GRAMMAR_NODES_BUILD_H
#define INFERD_ENGINE_GRAMMAR_NODES_BUILD_H

#include "engine/grammar/compile.h"

/* A question about one member of a decision diagram (presence.h); the first state is the start. */
typedef struct presence_draft {
  uint32_t name;          /* member; num_members = an extra one; NONE = all may follow */
  uint32_t without, with; /* the next state; NONE = no object continues this way */
} presence_draft_t;

/* The need of an object beyond its own level: that of the members which it must have. */
uint32_t build_object_need(compile_t *compile, const grammar_node_t *node);
/* The need of the extra members that must come. */
uint32_t build_witness_need(compile_t *compile, const object_draft_t *draft);
/* Tries and tables of an object, once it is known which members can occur. */
void build_object_finish(compile_t *compile, uint32_t object);
/* The need of the members that the condition of an object demands; NONE = no object satisfies it.
 * In build_presence.c, as the next one. */
uint32_t build_presence_need(compile_t *compile, object_draft_t *draft);
/* Copies the condition to the object, whose names are numbered. index_of: of the draft's members.
 */
void build_presence_finish(compile_t *compile, object_draft_t *draft, grammar_object_t *object,
                           const uint32_t *index_of);

/* How many of the items have to be of some values. */
typedef struct unique_count {
  const uint32_t *is, *is_not; /* [num_values] node from which a text can end if the value is one
                                  of them; ... if it is none of them */
  uint32_t min, max;
} unique_count_t;

/* An array without equal items (unique.h), before it is known which values can occur. */
typedef struct unique_draft {
  grammar_unique_t unique; /* `ways` is made by build_unique_need */
  uint32_t min, max;       /* items; max NONE = no bound */
  unique_count_t *counts;
  uint32_t num_counts;
  uint32_t *live; /* build_unique.c */
} unique_draft_t;

/* Returns the node that starts one or more items; `next` follows the last one. */
uint32_t build_unique(compile_t *compile, unique_draft_t *draft, uint32_t next);
uint32_t build_unique_need(compile_t *compile, const grammar_node_t *node);
/* Returns the value `index` of the first item; NONE after the last one. */
uint32_t build_unique_step(const compile_t *compile, const grammar_node_t *node, uint32_t index);
void build_unique_finish(compile_t *compile); /* copies all of them to the grammar */

#endif
