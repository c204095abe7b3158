/* build.h: what build.c and build_object.c share.
 *
 * Part of a compilation, on its thread.
 */
#ifndef INFERD_ENGINE_GRAMMAR_NODES_BUILD_H
#define INFERD_ENGINE_GRAMMAR_NODES_BUILD_H

#include "engine/grammar/compile.h"

/* A question about one member of a decision diagram (presence.h); the first state is the start. */
typedef struct presence_draft {
  uint32_t name;          /* member; num_members = an extra one; NONE = all may follow */
  uint32_t without, with; /* the next state; NONE = no object goes on so */
} presence_draft_t;

/* Frames that an object takes beyond its own level: those of its required members. */
uint32_t build_object_need(compile_t *compile, const grammar_node_t *node);
/* Tries and tables of an object, once it is known which members can occur. */
void build_object_finish(compile_t *compile, uint32_t object);
/* build_presence.c: frames that the members take which the condition of an object demands; NONE =
 * no object satisfies it. */
uint32_t build_presence_need(compile_t *compile, object_draft_t *draft);
/* Copies the condition to the object, whose names are numbered. index_of: of the draft's members.
 */
void build_presence_finish(compile_t *compile, object_draft_t *draft, grammar_object_t *object,
                           const uint32_t *index_of);

#endif
