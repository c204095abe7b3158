/* members.c: which members of an object may come next.
 *
 * Engine thread or a worker; allocates nothing. An object knows the next index, and beside it the
 * number of members, or a state of the conditions on which members occur together. One with few
 * names knows the set of those that have come, and asks the conditions with it.
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

static uint32_t count_bits(uint32_t bits) {
  return (uint32_t)__builtin_popcount(bits);
}

/* Listed members come in any order, extra ones when no required one is missing. An extra name may
 * come twice and is then one member of the value, so only the first is sure to count. */
static void set_free(const grammar_object_t *object, members_t *members, bool only_required) {
  uint32_t names = object->num_names, all = (UINT32_C(1) << names) - 1;
  uint32_t used = members->packed & all, extras = members->packed >> names;
  uint32_t open = all & ~used, missing = object->required & open;
  uint32_t sure = count_bits(used) + (extras > 0), most = count_bits(used) + extras;
  uint32_t left = object->min > sure ? object->min - sure : 0; /* must still come */
  uint32_t others = MAX(count_bits(missing), left > 0 ? left - 1 : 0);
  uint32_t sure_extra = extras == 0 && left > 0; /* what an extra one adds to `sure` */
  members->close = missing == 0 && left == 0;
  members->allowed = missing;
  if (object->max == NONE || most + 1 + others <= object->max) members->allowed |= open & ~missing;
  members->extra = object->extra != NONE && missing == 0 && left - sure_extra <= count_bits(open) &&
                   (object->max == NONE || most + 1 + left - sure_extra <= object->max);
  if (only_required && (missing != 0 || members->close)) {
    members->allowed &= missing;
    members->extra = false;
  }
  members->low = members->allowed == 0, members->high = members->allowed != 0 ? names - 1 : 0;
}

/* ---- conditions in a free order ---- */

/* Ways through the diagram of an object on which all names are present that have come. */
typedef struct ways {
  const grammar_object_t *object;
  uint64_t used;                   /* bits of the names that have come; num_names: an extra one */
  uint64_t alive;                  /* states from which such a way leads to the end */
  uint32_t needs[FREE_STATES_MAX]; /* frames that the cheapest of them takes */
} ways_t;

static bool is_alive(const ways_t *ways, uint32_t state) {
  return state != NONE && (ways->alive >> state & 1);
}

static uint32_t member_need(const grammar_matcher_t *matcher, const ways_t *ways, uint32_t index) {
  const grammar_object_t *object = ways->object;
  if (ways->used >> index & 1) return 0;
  uint32_t entry = index < object->num_names ? object->entry[index] : object->extra;
  return entry != NONE ? matcher->grammar->nodes[entry].need + 1 : 0;
}

/* States lead to later ones. */
static void find_ways(const grammar_matcher_t *matcher, ways_t *ways) {
  const presence_state_t *states = ways->object->presence;
  for (uint32_t i = ways->object->num_presence; i-- > 0;) {
    const presence_state_t *state = &states[i];
    uint32_t need = NONE;
    if (state->index == NONE) need = 0;
    if (state->index != NONE && is_alive(ways, state->with))
      need = MAX(ways->needs[state->with], member_need(matcher, ways, state->index));
    if (state->index != NONE && !(ways->used >> state->index & 1) && is_alive(ways, state->without))
      need = MIN(need, ways->needs[state->without]);
    ways->needs[i] = need;
    if (need != NONE) ways->alive |= UINT64_C(1) << i;
  }
}

/* Bits of the names from `first` to the one that a state asks for. */
static uint64_t names_until(const ways_t *ways, uint32_t first, uint32_t state) {
  uint32_t index = ways->object->presence[state].index, end = ways->object->num_names + 1;
  return ((UINT64_C(1) << MIN(index, end)) - 1) & ~((UINT64_C(1) << first) - 1);
}

/* Returns the names that are present on some way. */
static uint64_t names_of_ways(const ways_t *ways) {
  uint64_t reached = 1, names = names_until(ways, 0, 0); /* those that no state asks for are free */
  for (uint32_t i = 0; i < ways->object->num_presence; i++) {
    const presence_state_t *state = &ways->object->presence[i];
    if (!(reached >> i & 1) || state->index == NONE) continue;
    if (is_alive(ways, state->with)) {
      reached |= UINT64_C(1) << state->with;
      names |= UINT64_C(1) << state->index | names_until(ways, state->index + 1, state->with);
    }
    if (!(ways->used >> state->index & 1) && is_alive(ways, state->without)) {
      reached |= UINT64_C(1) << state->without;
      names |= names_until(ways, state->index + 1, state->without);
    }
  }
  return names;
}

/* Returns the names on the cheapest way; none if no other name has to come. */
static uint64_t names_of_cheapest(const ways_t *ways) {
  uint64_t names = 0;
  uint32_t at = 0;
  while (ways->object->presence[at].index != NONE) {
    const presence_state_t *state = &ways->object->presence[at];
    bool used = ways->used >> state->index & 1, with = is_alive(ways, state->with);
    bool without = !used && is_alive(ways, state->without);
    if (without && (!with || ways->needs[state->without] <= ways->needs[at])) {
      at = state->without;
    } else {
      names |= UINT64_C(1) << state->index;
      at = state->with;
    }
  }
  return names & ~ways->used;
}

/* Returns true if the names that have come satisfy the condition. */
static bool may_end(const ways_t *ways) {
  uint32_t at = 0;
  while (at != NONE && ways->object->presence[at].index != NONE) {
    const presence_state_t *state = &ways->object->presence[at];
    at = ways->used >> state->index & 1 ? state->with : state->without;
  }
  return at != NONE;
}

static void set_by_ways(const grammar_matcher_t *matcher, const grammar_object_t *object,
                        members_t *members, bool only_required) {
  ways_t ways = {.object = object, .used = members->packed};
  uint64_t all = (UINT64_C(1) << object->num_names) - 1;
  uint32_t missing = object->required & ~members->packed;
  find_ways(matcher, &ways);
  uint64_t names = names_of_ways(&ways);
  members->close = missing == 0 && may_end(&ways);
  if (only_required) names = members->close ? 0 : names_of_cheapest(&ways) | missing;
  if (only_required && missing != 0) names = missing;
  bool again = !(ways.used & ~all) || object->max == NONE;
  members->allowed = (uint32_t)(names & all & ~ways.used);
  members->extra = object->extra != NONE && missing == 0 && again && (names & ~all) != 0;
  members->low = members->allowed == 0;
  members->high = members->allowed != 0 ? object->num_names - 1 : 0;
}

members_t members_at(const grammar_matcher_t *matcher, const grammar_object_t *object,
                     uint32_t packed, uint32_t parent) {
  uint32_t index = packed & 0xFFFF, count = packed >> 16, at = MIN(index, object->num_names);
  bool only_required = matcher->frames[parent].depth + 1 + object->need > STACK_DEPTH_MAX;
  if (object->is_free) {
    members_t members = {.packed = packed};
    if (object->presence != NULL) {
      set_by_ways(matcher, object, &members, only_required);
    } else {
      set_free(object, &members, only_required);
    }
    return members;
  }
  uint32_t required = object->next_required[at];
  members_t members = {.index = index, .packed = packed, .low = at, .high = required};
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
  if (object->is_free) return members->allowed >> index & 1;
  if (object->presence == NULL) return true;
  const presence_state_t *state = &object->presence[state_at(object, members->state, index)];
  return state->index != index || state->with != NONE;
}

bool members_below(grammar_scratch_t *scratch, const grammar_object_t *object,
                   const name_node_t *node, const members_t *members) {
  const uint32_t *sorted = object->sorted + node->first;
  uint32_t from = 0, until = node->count, state = members->state;
  if (members->low > members->high) return false;
  for (; object->is_free && from < until; from++) {
    if (members->allowed >> sorted[from] & 1) return true;
  }
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
  if (object->is_free) {
    uint32_t extra = UINT32_C(1) << object->num_names;
    if (index < object->num_names) return members->packed | UINT32_C(1) << index;
    bool counts = object->max != NONE && object->presence == NULL;
    return counts ? members->packed + extra : members->packed | extra;
  }
  if (object->presence != NULL) {
    count = state_at(object, members->state, index);
    if (object->presence[count].index == index) count = object->presence[count].with;
  } else if (object->min > 0 || object->max != NONE) {
    count = members->count < 0xFFFF ? members->count + 1 : 0xFFFF;
  }
  return next | count << 16;
}
