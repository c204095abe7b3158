/* members.c: which members of an object may come next.
 *
 * Engine thread or a worker; allocates nothing. An object knows the set of names that have come and
 * asks the conditions on which members occur together with it. One whose order is fixed knows the
 * next index, and beside it the number of members, or a state of the conditions.
 */
#include "engine/grammar/mask/members.h"

#include "engine/base/util.h"

#include <string.h>

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

/* ---- sets of names ---- */

static uint64_t bits_below(uint32_t count) {
  return count < 64 ? (UINT64_C(1) << count) - 1 : UINT64_MAX;
}

static bool has_bit(const uint64_t *bits, uint32_t i) {
  return bits[i / 64] >> i % 64 & 1;
}

static void add_bit(uint64_t *bits, uint32_t i) {
  bits[i / 64] |= UINT64_C(1) << i % 64;
}

/* Adds the bits from .. until - 1. */
static void add_bits(uint64_t *bits, uint32_t from, uint32_t until) {
  for (uint32_t i = from / 64; 64 * i < until; i++)
    bits[i] |= bits_below(until - 64 * i) & ~bits_below(from > 64 * i ? from - 64 * i : 0);
}

/* Words that hold a bit for each name, and one for the extra members. */
static uint32_t num_words(const grammar_object_t *object) {
  return object->num_names / 64 + 1;
}

/* The bits of the listed names in word i. */
static uint64_t all_names(const grammar_object_t *object, uint32_t i) {
  return object->num_names > 64 * i ? bits_below(object->num_names - 64 * i) : 0;
}

static name_set_t set_of(const grammar_matcher_t *matcher, const grammar_object_t *object,
                         uint32_t packed) {
  if (object->has_sets) return matcher->sets[packed];
  return (name_set_t){{packed & bits_below(object->num_names)}, packed >> object->num_names};
}

static uint32_t count_bits(uint64_t bits) {
  return (uint32_t)__builtin_popcountll(bits);
}

/* Listed members come in any order, extra ones when no required one is missing. An extra name may
 * come twice and is then one member of the value, so only the first is sure to count. */
static void set_free(const grammar_matcher_t *matcher, const grammar_object_t *object,
                     members_t *members, bool only_required) {
  const name_set_t set = set_of(matcher, object, members->packed);
  uint32_t num_used = 0, num_missing = 0, words = num_words(object);
  for (uint32_t i = 0; i < words; i++) {
    num_used += count_bits(set.names[i]);
    num_missing += count_bits(object->required[i] & ~set.names[i]);
  }
  uint32_t extras = (uint32_t)set.extras, sure = num_used + (extras > 0), most = num_used + extras;
  uint32_t left = object->min > sure ? object->min - sure : 0; /* must still come */
  uint32_t others = MAX(num_missing, left > 0 ? left - 1 : 0);
  uint32_t sure_extra = extras == 0 && left > 0; /* what an extra one adds to `sure` */
  members->close = num_missing == 0 && left == 0;
  members->extra = object->extra != NONE && num_missing == 0 &&
                   left - sure_extra <= object->num_names - num_used &&
                   (object->max == NONE || most + 1 + left - sure_extra <= object->max);
  bool optional = object->max == NONE || most + 1 + others <= object->max;
  if (only_required && (num_missing != 0 || members->close)) {
    optional = false;
    members->extra = 0;
  }
  for (uint32_t i = 0; i < words; i++) {
    members->allowed[i] = (optional ? all_names(object, i) : object->required[i]) & ~set.names[i];
  }
}

/* ---- conditions in a free order ---- */

/* The witnesses that have come. */
static uint32_t came(const name_set_t *set) {
  return set->extras > 0 ? (uint32_t)set->extras - 1 : 0;
}

/* Ways through the diagram of an object on which all names are present that have come. */
typedef struct ways {
  const grammar_object_t *object;
  uint64_t used[SET_WORDS];        /* bits of the names that have come; num_names: an extra one */
  uint64_t alive;                  /* states from which such a way leads to the end */
  uint32_t needs[FREE_STATES_MAX]; /* frames that the cheapest of them takes */
  uint32_t extra_need;             /* frames that extra members take which must come */
} ways_t;

static bool is_alive(const ways_t *ways, uint32_t state) {
  return state != NONE && (ways->alive >> state & 1);
}

/* Whether the state leads on without its name. */
static bool goes_without(const ways_t *ways, const presence_state_t *state) {
  return !has_bit(ways->used, state->index) && is_alive(ways, state->without);
}

static uint32_t member_need(const grammar_matcher_t *matcher, const ways_t *ways, uint32_t index) {
  const grammar_object_t *object = ways->object;
  if (has_bit(ways->used, index)) return 0;
  uint32_t entry = index < object->num_names ? object->entry[index] : object->extra;
  if (index >= object->num_names && object->witnesses != NULL) return ways->extra_need;
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
    if (state->index != NONE && goes_without(ways, state))
      need = MIN(need, ways->needs[state->without]);
    ways->needs[i] = need;
    if (need != NONE) ways->alive |= UINT64_C(1) << i;
  }
}

/* Adds the names from `first` to the one that a state asks for. */
static void add_names_until(const ways_t *ways, uint64_t *names, uint32_t first, uint32_t state) {
  uint32_t index = ways->object->presence[state].index, end = ways->object->num_names + 1;
  add_bits(names, first, MIN(index, end));
}

/* Finds the names that are present on some way; those that no state asks for are free. */
static void find_names(const ways_t *ways, uint64_t *names) {
  uint64_t reached = 1;
  add_names_until(ways, names, 0, 0);
  for (uint32_t i = 0; i < ways->object->num_presence; i++) {
    const presence_state_t *state = &ways->object->presence[i];
    if (!(reached >> i & 1) || state->index == NONE) continue;
    if (is_alive(ways, state->with)) {
      reached |= UINT64_C(1) << state->with;
      add_bit(names, state->index);
      add_names_until(ways, names, state->index + 1, state->with);
    }
    if (goes_without(ways, state)) {
      reached |= UINT64_C(1) << state->without;
      add_names_until(ways, names, state->index + 1, state->without);
    }
  }
}

/* Finds the names on the cheapest way. */
static void find_cheapest(const ways_t *ways, uint64_t *names) {
  uint32_t at = 0;
  while (ways->object->presence[at].index != NONE) {
    const presence_state_t *state = &ways->object->presence[at];
    bool with = is_alive(ways, state->with), without = goes_without(ways, state);
    if (without && (!with || ways->needs[state->without] <= ways->needs[at])) {
      at = state->without;
    } else {
      add_bit(names, state->index);
      at = state->with;
    }
  }
}

/* Returns true if the names that have come satisfy the condition. */
static bool may_end(const ways_t *ways) {
  uint32_t at = 0;
  while (at != NONE && ways->object->presence[at].index != NONE) {
    const presence_state_t *state = &ways->object->presence[at];
    at = has_bit(ways->used, state->index) ? state->with : state->without;
  }
  return at != NONE;
}

/* Before all witnesses have come, any member may come that leaves a way to the others. */
static void set_witnesses(const grammar_object_t *object, members_t *members, const name_set_t *set,
                          bool may_come, bool only_required) {
  const witnesses_t *witnesses = object->witnesses;
  uint32_t done = came(set);
  members->close = members->close && done == witnesses->all;
  members->extra = 0;
  for (uint32_t is = 0; is <= witnesses->all && may_come; is++) {
    bool leads = witnesses->node[witness_kind(witnesses->all, done, is)] != NONE &&
                 witnesses->need[done | is] != NONE;
    if (only_required) leads = leads && is == witnesses->best[done] && is != 0;
    if (object->max != NONE) leads = leads && set->extras == 0 && is == witnesses->all;
    members->extra |= (uint32_t)leads << is;
  }
}

static void set_by_ways(const grammar_matcher_t *matcher, const grammar_object_t *object,
                        members_t *members, bool only_required) {
  const name_set_t set = set_of(matcher, object, members->packed);
  uint32_t words = num_words(object), extra = object->num_names;
  uint64_t names[SET_WORDS] = {0}, missing = 0;
  ways_t ways = {.object = object};
  memcpy(ways.used, set.names, sizeof set.names);
  const witnesses_t *witnesses = object->witnesses;
  if (witnesses != NULL) ways.extra_need = witnesses->need[came(&set)];
  if (witnesses != NULL ? came(&set) == witnesses->all : set.extras > 0) add_bit(ways.used, extra);
  for (uint32_t i = 0; i < words; i++) missing |= object->required[i] & ~set.names[i];
  find_ways(matcher, &ways);
  members->close = missing == 0 && may_end(&ways);
  if (!only_required) {
    find_names(&ways, names);
  } else if (missing != 0) {
    memcpy(names, object->required, sizeof names);
  } else if (!members->close) {
    find_cheapest(&ways, names);
  }
  bool may_come = missing == 0 && has_bit(names, extra);
  members->extra = object->extra != NONE && may_come &&
                   (set.extras == 0 || (object->max == NONE && !only_required));
  if (witnesses != NULL) set_witnesses(object, members, &set, may_come, only_required);
  for (uint32_t i = 0; i < words; i++)
    members->allowed[i] = names[i] & all_names(object, i) & ~set.names[i];
}

uint32_t members_node(const grammar_matcher_t *matcher, const grammar_object_t *object,
                      uint32_t packed, uint32_t index) {
  const witnesses_t *witnesses = object->witnesses;
  if (index < object->num_names) return object->entry[index];
  if (witnesses == NULL) return object->extra;
  const name_set_t set = set_of(matcher, object, packed);
  return witnesses->node[witness_kind(witnesses->all, came(&set), index - object->num_names)];
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
      set_free(matcher, object, &members, only_required);
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
  if (object->is_free) return has_bit(members->allowed, index);
  if (index < members->low || index > members->high) return false;
  if (object->presence == NULL) return true;
  const presence_state_t *state = &object->presence[state_at(object, members->state, index)];
  return state->index != index || state->with != NONE;
}

static bool free_below(grammar_scratch_t *scratch, const grammar_object_t *object,
                       const name_node_t *node, const members_t *members) {
  const uint32_t *sorted = object->sorted + node->first;
  scratch->units += node->count / 32;
  for (uint32_t i = 0; i < node->count; i++) {
    if (has_bit(members->allowed, sorted[i])) return true;
  }
  return false;
}

bool members_below(grammar_scratch_t *scratch, const grammar_object_t *object,
                   const name_node_t *node, const members_t *members) {
  const uint32_t *sorted = object->sorted + node->first;
  uint32_t from = 0, until = node->count, state = members->state;
  if (object->is_free) return free_below(scratch, object, node, members);
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

/* The member comes to a free order. */
static bool free_after(closure_t *closure, const grammar_object_t *object, uint32_t packed,
                       uint32_t index, uint32_t *after) {
  bool counts = object->max != NONE && object->presence == NULL;
  name_set_t set = set_of(closure->matcher, object, packed);
  if (index < object->num_names) {
    add_bit(set.names, index);
  } else if (object->witnesses != NULL) {
    set.extras = 1 + (came(&set) | (index - object->num_names));
  } else if (counts || set.extras == 0) {
    set.extras++;
  } else {
    *after = packed;
    return true;
  }
  *after = object->has_sets ? closure_set(closure, &set)
                            : (uint32_t)(set.names[0] | set.extras << object->num_names);
  return *after != 0;
}

bool members_after(closure_t *closure, const grammar_object_t *object, uint32_t packed,
                   uint32_t index, uint32_t *after) {
  uint32_t next = index + 1, count = packed >> 16;
  if (object->is_free) return free_after(closure, object, packed, index, after);
  if (object->presence != NULL) {
    count = state_at(object, count, index);
    if (object->presence[count].index == index) count = object->presence[count].with;
  } else if (object->min > 0 || object->max != NONE) {
    count = MIN(count + 1, 0xFFFF);
  } else {
    count = 1;
  }
  *after = next | count << 16;
  return true;
}
