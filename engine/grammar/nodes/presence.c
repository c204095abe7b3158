/* presence.c: conditions on which members an object has, as decision diagrams.
 *
 * Part of a compilation, on its thread. Nodes are never dropped before the compilation ends; their
 * number is bounded, and each step of work is counted.
 */
#include "engine/grammar/nodes/presence.h"

#include "engine/base/util.h"

#include <stdlib.h>
#include <string.h>

enum { NODES_MAX = 1 << 16, OBJECT_NODES_MAX = 4096, STEPS = 1 << 10 };

/* A result that was computed before; condition 0 = none. */
typedef struct presence_step {
  uint32_t condition, then, otherwise, result;
} presence_step_t;

static const presence_draft_t *node_at(const presence_t *presence, uint32_t id) {
  return (const presence_draft_t *)presence->nodes.items + id;
}

static uint32_t hash(uint32_t first, uint32_t second, uint32_t third) {
  uint32_t h = first * 0x9E3779B1u ^ second * 0x85EBCA77u ^ third * 0xC2B2AE3Du;
  return h ^ h >> 15;
}

static uint32_t *slot_of(const presence_t *presence, const presence_draft_t *node) {
  uint32_t at = hash(node->name, node->without, node->with);
  for (;; at++) {
    uint32_t *slot = &presence->table[at & (presence->num_slots - 1)];
    if (*slot == 0 || memcmp(node_at(presence, *slot), node, sizeof *node) == 0) return slot;
  }
}

static void grow(presence_t *presence) {
  presence->num_slots = presence->num_slots ? 2 * presence->num_slots : 256;
  presence->table =
      compile_scratch(presence->compile, presence->num_slots, sizeof *presence->table);
  for (uint32_t i = PRESENCE_ALWAYS + 1; i < presence->nodes.count; i++)
    *slot_of(presence, node_at(presence, i)) = i;
}

void presence_begin(presence_t *presence, compile_t *compile) {
  if (presence->compile != NULL) return;
  presence->compile = compile;
  presence->steps = compile_scratch(compile, STEPS, sizeof *presence->steps);
  for (uint32_t i = PRESENCE_NEVER; i <= PRESENCE_ALWAYS; i++) {
    presence_draft_t *node = list_add(compile, &presence->nodes, sizeof *node);
    *node = (presence_draft_t){NONE, i, i};
  }
}

static uint32_t find(presence_t *presence, uint32_t name, uint32_t without, uint32_t with) {
  presence_draft_t node = {name, without, with};
  if (without == with) return with;
  if (2 * presence->nodes.count >= presence->num_slots) grow(presence);
  uint32_t *slot = slot_of(presence, &node);
  if (*slot != 0) return *slot;
  if (presence->nodes.count >= NODES_MAX) {
    compile_fail(presence->compile, ERR_BAD_REQUEST,
                 "The conditions on which members occur together need more than %d states.",
                 NODES_MAX);
  }
  *slot = presence->nodes.count;
  *(presence_draft_t *)list_add(presence->compile, &presence->nodes, sizeof node) = node;
  return presence->nodes.count - 1;
}

uint32_t presence_of(presence_t *presence, uint32_t name) {
  return find(presence, name, PRESENCE_NEVER, PRESENCE_ALWAYS);
}

/* Returns what the condition becomes when it is known whether `name` is present. */
static uint32_t branch(const presence_t *presence, uint32_t id, uint32_t name, bool present) {
  const presence_draft_t *node = node_at(presence, id);
  if (node->name != name) return id;
  return present ? node->with : node->without;
}

/* Recursion goes from a name to a later one; schema_presence.c bounds the number of names. */
uint32_t presence_if(presence_t *presence, uint32_t condition, uint32_t then, uint32_t otherwise) {
  if (condition == PRESENCE_ALWAYS || then == otherwise) return then;
  if (condition == PRESENCE_NEVER) return otherwise;
  if (then == PRESENCE_ALWAYS && otherwise == PRESENCE_NEVER) return condition;
  compile_spend(presence->compile, 8);
  uint32_t at = hash(condition, then, otherwise) & (STEPS - 1);
  const presence_step_t *known = &presence->steps[at];
  if (known->condition == condition && known->then == then && known->otherwise == otherwise)
    return known->result;
  uint32_t name = MIN(node_at(presence, condition)->name,
                      MIN(node_at(presence, then)->name, node_at(presence, otherwise)->name));
  uint32_t side[2];
  for (int present = 0; present < 2; present++) {
    side[present] = presence_if(presence, branch(presence, condition, name, present),
                                branch(presence, then, name, present),
                                branch(presence, otherwise, name, present));
  }
  uint32_t result = find(presence, name, side[0], side[1]);
  presence->steps[at] = (presence_step_t){condition, then, otherwise, result};
  return result;
}

/* ---- the diagram of one object ---- */

typedef struct copy {
  presence_t *presence;
  uint32_t *state_of; /* [nodes of the compilation] 0 = not reached; later the state */
  grammar_list_t states;
} copy_t;

static void reach(copy_t *copy, uint32_t id) {
  compile_t *compile = copy->presence->compile;
  if (id == PRESENCE_NEVER || copy->state_of[id] != 0) return;
  if (copy->states.count >= OBJECT_NODES_MAX) {
    compile_fail(compile, ERR_BAD_REQUEST,
                 "The conditions on which members of one object occur together need more than %d "
                 "states.",
                 OBJECT_NODES_MAX);
  }
  compile_spend(compile, 8);
  copy->state_of[id] = 1;
  *(presence_draft_t *)list_add(compile, &copy->states, sizeof(presence_draft_t)) =
      *node_at(copy->presence, id);
}

static int compare_names(const void *left, const void *right) {
  const presence_draft_t *first = left, *second = right;
  return first->name < second->name ? -1 : first->name > second->name;
}

/* The states are sorted by name, so that each leads to later ones; the first one stays the first.
 * `without` and `with` are numbers of nodes until all states have their place. */
void presence_draft(presence_t *presence, uint32_t condition, object_draft_t *draft) {
  if (condition <= PRESENCE_ALWAYS) return;
  uint32_t count = presence->nodes.count;
  copy_t copy = {presence, compile_scratch(presence->compile, count, sizeof(uint32_t)), {0}};
  compile_spend(presence->compile, count / 8);
  reach(&copy, condition);
  for (uint32_t i = 0; i < copy.states.count; i++) {
    presence_draft_t node = ((const presence_draft_t *)copy.states.items)[i];
    reach(&copy, node.without);
    reach(&copy, node.with);
  }
  presence_draft_t *states = copy.states.items;
  qsort(states, copy.states.count, sizeof *states, compare_names);
  for (uint32_t i = 0; i < copy.states.count; i++) {
    bool end = states[i].name == NONE;
    copy.state_of[end ? PRESENCE_ALWAYS
                      : find(presence, states[i].name, states[i].without, states[i].with)] = i;
  }
  copy.state_of[PRESENCE_NEVER] = NONE;
  for (uint32_t i = 0; i < copy.states.count; i++) {
    states[i].without = copy.state_of[states[i].without];
    states[i].with = copy.state_of[states[i].with];
  }
  draft->presence = states;
  draft->num_presence = copy.states.count;
}
