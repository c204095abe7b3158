/* members.c: which members of an object may come next.
 *
 * Engine thread or a worker; allocates nothing. Members come in the order of the schema, then the
 * extra ones, so an object knows the next index. Beside it stands the number of members, or a state
 * of the conditions on which members occur together.
 */
#include "engine/grammar/mask/members.h"

#include "engine/base/util.h"

/* Returns the state after all names before `index` have proved absent. */
static uint32_t state_at(const grammar_object_t *object, uint32_t state, uint32_t index) {
  while (object->presence[state].index < index) state = object->presence[state].without;
  return state;
}

/* `required`: the next required index, num_names = none. */
static void set_by_presence(const grammar_object_t *object, members_t *members, uint32_t required,
                            bool only_required) {
  const presence_state_t *state = &object->presence[members->state];
  uint32_t names = object->num_names;
  bool ends = required == names && (state->forced == NONE || state->forced == names);
  bool fits = members->index <= names || object->max == NONE;
  members->close = required == names && state->forced == NONE;
  members->extra = object->extra != NONE && ends && fits;
  if (members->extra && members->index <= names) {
    const presence_state_t *last = &object->presence[state_at(object, members->state, names)];
    members->extra = last->index != names || last->with != NONE;
  }
  if (only_required) {
    members->extra = members->extra && state->cheapest == names;
    members->low = members->high = MIN(required, state->cheapest);
  } else {
    members->high = MIN(required, state->forced);
  }
  if (members->high >= names) members->high = names - 1;
  if (members->index >= names || members->low >= names) members->low = 1, members->high = 0;
}

/* `required`: the next required index, num_names = none; at: the next index, at most num_names. */
static void set_by_count(const grammar_object_t *object, members_t *members, uint32_t required,
                         bool only_required) {
  uint32_t names = object->num_names, at = members->low, count = members->count;
  members->close = required == names && count >= object->min;
  members->extra = object->extra != NONE && required == names && count < object->max &&
                   (members->index > names || count + 1 >= object->min);
  if (members->index >= names) {
    members->low = 1, members->high = 0;
    return;
  }
  if (members->high == names) members->high = names - 1;
  if (only_required) members->extra = false;
  if (only_required ||
      (object->max != NONE && count + 1 + object->required_from[at] > object->max)) {
    if (required == names) {
      members->low = 1, members->high = 0;
    } else {
      members->low = members->high = required;
    }
  } else if (object->min > 0) {
    /* count + 1 + (names - 1 - j) + extra >= min */
    uint32_t reach = count + names + (object->extra != NONE);
    if (reach < object->min + members->high)
      members->high = reach >= object->min ? reach - object->min : 0;
    if (reach < object->min + members->low) members->low = 1, members->high = 0;
  }
}

members_t members_at(const grammar_matcher_t *matcher, const grammar_object_t *object,
                     uint32_t packed, uint32_t parent) {
  uint32_t index = packed & 0xFFFF, count = packed >> 16, at = MIN(index, object->num_names);
  uint32_t required = object->next_required[at];
  members_t members = {.index = index, .low = at, .high = required};
  bool only_required = matcher->frames[parent].depth + 1 + object->need > STACK_DEPTH_MAX;
  if (object->presence != NULL) {
    members.state = count;
    set_by_presence(object, &members, required, only_required);
  } else {
    members.count = count;
    set_by_count(object, &members, required, only_required);
  }
  return members;
}

bool members_allow(const grammar_object_t *object, const members_t *members, uint32_t index) {
  if (index < members->low || index > members->high) return false;
  if (object->presence == NULL) return true;
  const presence_state_t *state = &object->presence[state_at(object, members->state, index)];
  return state->index != index || state->with != NONE;
}

bool members_below(grammar_scratch_t *scratch, const grammar_object_t *object,
                   const name_node_t *node, const members_t *members) {
  const uint32_t *sorted = object->sorted + node->first;
  uint32_t from = 0, until = node->count, state = members->state;
  if (members->low > members->high) return false;
  while (from < until) {
    uint32_t middle = (from + until) / 2;
    if (sorted[middle] < members->low) {
      from = middle + 1;
    } else {
      until = middle;
    }
  }
  if (object->presence == NULL) return from < node->count && sorted[from] <= members->high;
  for (; from < node->count && sorted[from] <= members->high; from++) {
    scratch->units++;
    state = state_at(object, state, sorted[from]);
    const presence_state_t *at = &object->presence[state];
    if (at->index != sorted[from] || at->with != NONE) return true;
  }
  return false;
}

uint32_t members_after(const grammar_object_t *object, const members_t *members, uint32_t index) {
  uint32_t next = index + 1, count = 1;
  if (object->presence != NULL) {
    count = state_at(object, members->state, index);
    if (object->presence[count].index == index) count = object->presence[count].with;
  } else if (object->min > 0 || object->max != NONE) {
    count = members->count < 0xFFFF ? members->count + 1 : 0xFFFF;
  }
  return next | count << 16;
}
