/* build_presence.c: the conditions on which members of an object occur, for the matcher.
 *
 * Part of a compilation, on its thread. A decision diagram (presence.h) says what must still come;
 * here it is checked against the members that can occur, and every state learns what is forced.
 */
#include "engine/base/util.h"
#include "engine/grammar/nodes/build.h"

/* Frames that the member takes; NONE = it cannot occur. */
static uint32_t member_need(compile_t *compile, const object_draft_t *draft, uint32_t name) {
  if (name >= draft->num_members && draft->witnesses != NULL)
    return build_witness_need(compile, draft);
  uint32_t entry = name < draft->num_members ? draft->members[name].entry : draft->extra;
  uint32_t need = entry != NONE ? build_at(compile, entry)->need : NONE;
  return need == NONE ? NONE : need + 1;
}

/* Fills needs[i]: frames that the cheapest way from state i to the end takes; NONE = no way. States
 * lead to later ones. */
static void find_needs(compile_t *compile, const object_draft_t *draft, uint32_t *needs) {
  compile_spend(compile, draft->num_presence);
  for (uint32_t i = draft->num_presence; i-- > 0;) {
    const presence_draft_t *state = &draft->presence[i];
    if (state->name == NONE) {
      needs[i] = 0;
      continue;
    }
    uint32_t with = state->with != NONE ? needs[state->with] : NONE;
    uint32_t member = member_need(compile, draft, state->name);
    needs[i] = state->without != NONE ? needs[state->without] : NONE;
    if (with != NONE && member != NONE) needs[i] = MIN(needs[i], MAX(with, member));
  }
}

uint32_t build_presence_need(compile_t *compile, object_draft_t *draft) {
  if (draft->presence == NULL) return 0;
  if (draft->presence_needs == NULL) {
    draft->presence_needs =
        compile_scratch(compile, draft->num_presence, sizeof *draft->presence_needs);
  }
  find_needs(compile, draft, draft->presence_needs);
  return draft->presence_needs[0];
}

/* Sets what a state forces. `next` is the state without the member; NULL = there is none. */
static void set_forced(presence_state_t *state, const presence_state_t *next,
                       bool with_is_cheaper) {
  state->forced = next != NULL ? next->forced : state->index;
  state->cheapest = next == NULL || with_is_cheaper ? state->index : next->cheapest;
}

void build_presence_finish(compile_t *compile, object_draft_t *draft, grammar_object_t *object,
                           const uint32_t *index_of) {
  uint32_t count = draft->num_presence;
  const uint32_t *needs = draft->presence_needs;
  if (draft->presence == NULL) return;
  object->num_presence = count;
  object->presence = compile_keep(compile, count, sizeof *object->presence);
  compile_spend(compile, 2 * count);
  for (uint32_t i = count; i-- > 0;) {
    const presence_draft_t *from = &draft->presence[i];
    presence_state_t *state = &object->presence[i];
    *state = (presence_state_t){NONE, NONE, NONE, NONE, NONE};
    if (from->name == NONE) continue;
    uint32_t without = from->without != NONE && needs[from->without] != NONE ? from->without : NONE;
    uint32_t member = member_need(compile, draft, from->name);
    bool can = member != NONE && from->with != NONE && needs[from->with] != NONE;
    if (member == NONE && without != NONE) {
      *state = object->presence[without]; /* the question does not arise */
      continue;
    }
    state->index = from->name < draft->num_members ? index_of[from->name] : object->num_names;
    state->without = without;
    state->with = can ? from->with : NONE;
    bool cheaper = can && without != NONE && MAX(needs[from->with], member) < needs[without];
    set_forced(state, without != NONE ? &object->presence[without] : NULL, cheaper);
  }
}
