/* presence.h: conditions on which members an object has, as decision diagrams.
 *
 * A diagram is the number of its first node. A node asks whether one name is present; names are
 * numbers, and a path asks about them in ascending order. Equal conditions have equal numbers
 * (reduced ordered decision diagrams; R. Bryant, 1986). Part of a compilation, on its thread.
 */
#ifndef INFERD_ENGINE_GRAMMAR_NODES_PRESENCE_H
#define INFERD_ENGINE_GRAMMAR_NODES_PRESENCE_H

#include "engine/grammar/nodes/build.h"

enum { PRESENCE_NEVER = 0, PRESENCE_ALWAYS = 1 };

typedef struct presence {
  compile_t *compile;
  grammar_list_t nodes;        /* presence_draft_t */
  uint32_t *table, num_slots;  /* nodes by their content; a slot holds the number of a node */
  struct presence_step *steps; /* results of presence_if */
} presence_t;

/* Makes the nodes NEVER and ALWAYS, unless they are made. */
void presence_begin(presence_t *presence, compile_t *compile);
/* Returns the condition that `name` is present. */
uint32_t presence_of(presence_t *presence, uint32_t name);
/* Returns the condition: `then` where `condition` holds, else `otherwise`. Gives up when there are
 * more nodes than a compilation may have. */
uint32_t presence_if(presence_t *presence, uint32_t condition, uint32_t then, uint32_t otherwise);

static inline uint32_t presence_and(presence_t *presence, uint32_t left, uint32_t right) {
  return presence_if(presence, left, right, PRESENCE_NEVER);
}
static inline uint32_t presence_or(presence_t *presence, uint32_t left, uint32_t right) {
  return presence_if(presence, left, PRESENCE_ALWAYS, right);
}
static inline uint32_t presence_not(presence_t *presence, uint32_t condition) {
  return presence_if(presence, condition, PRESENCE_NEVER, PRESENCE_ALWAYS);
}

/* Copies the diagram to the draft of an object, whose members are the names. NEVER and ALWAYS give
 * none. */
void presence_draft(presence_t *presence, uint32_t condition, object_draft_t *draft);

#endif
