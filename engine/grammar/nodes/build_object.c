/* build_object.c: objects: tables that tell the matcher which members may come next.
 *
 * Part of a compilation, on its thread. The state of an object is the set of names that have come
 * or, where they are very many, the next index in the order of the schema. Keys are looked up in a
 * trie whose nodes know the indices below them. The size is linear in the number of names, even if
 * all are optional.
 */
#include "engine/base/util.h"
#include "engine/grammar/nodes/build.h"

#include <string.h>

static object_draft_t *draft_of(compile_t *compile, uint32_t object) {
  return ((object_draft_t **)compile->drafts.items)[object];
}

static grammar_object_t *add_object(compile_t *compile, object_draft_t *draft) {
  grammar_object_t *object = compile_keep(compile, 1, sizeof *object);
  *(grammar_object_t **)list_add(compile, &compile->objects, sizeof object) = object;
  *(object_draft_t **)list_add(compile, &compile->drafts, sizeof draft) = draft;
  draft->extra = NONE;
  object->first = NONE;
  return object;
}

uint32_t build_members(compile_t *compile, object_draft_t *draft, uint32_t close,
                       uint32_t *members) {
  uint32_t index = compile->objects.count;
  grammar_object_t *object = add_object(compile, draft);
  object->close_empty = object->close = close;
  object->comma = *members = build_node(compile, NODE_MEMBERS, index, close);
  return build_node(compile, NODE_OBJECT, index, close);
}

void build_before_members(compile_t *compile, uint32_t node, uint32_t first, uint32_t further) {
  grammar_object_t *object =
      ((grammar_object_t **)compile->objects.items)[build_at(compile, node)->object];
  object->first = first;
  object->comma = further;
}

uint32_t build_object(compile_t *compile, object_draft_t *draft, uint32_t next) {
  uint32_t index = compile->objects.count;
  grammar_object_t *object = add_object(compile, draft);
  object->close_empty = build_lex(compile, lexeme_pattern(compile, "\\}"), next);
  object->close = build_lex(compile, lexeme_pattern(compile, "[ \\t\\n\\r]{0,8}\\}"), next);
  uint32_t members = build_node(compile, NODE_MEMBERS, index, next);
  object->comma = build_lex(compile, lexeme_pattern(compile, ",[ \\t\\n\\r]{0,8}"), members);
  return build_node(compile, NODE_OBJECT, index, next);
}

uint32_t build_extra(compile_t *compile, uint32_t object, uint32_t lexeme, uint32_t next) {
  if (lexeme == NONE) return NODE_ID_FAIL;
  uint32_t id = build_node(compile, NODE_EXTRA, lexeme, next);
  build_at(compile, id)->names = object;
  return id;
}

/* Returns true if some text leads from the node to its end: build_at()->need is then known. */
static bool can_occur(compile_t *compile, uint32_t entry) {
  return entry != NONE && build_at(compile, entry)->need != NONE;
}

uint32_t build_witness_need(compile_t *compile, const object_draft_t *draft) {
  witnesses_t *witnesses = draft->witnesses;
  uint32_t all = witnesses->all;
  for (uint32_t done = all + 1; done-- > 0;) {
    witnesses->need[done] = done == all ? 0 : NONE;
    witnesses->best[done] = 0;
    for (uint32_t is = 1; is <= all; is++) {
      uint32_t node = witnesses->node[witness_kind(all, done, is)],
               then = witnesses->need[done | is];
      bool alone = draft->max != NONE && is != all; /* then one extra member may come */
      if ((done | is) == done || alone || then == NONE || !can_occur(compile, node)) continue;
      uint32_t need = MAX(then, build_at(compile, node)->need + 1);
      if (need >= witnesses->need[done]) continue;
      witnesses->need[done] = need;
      witnesses->best[done] = is;
    }
  }
  return witnesses->need[0];
}

uint32_t build_object_need(compile_t *compile, const grammar_node_t *node) {
  object_draft_t *draft = draft_of(compile, node->object);
  const grammar_object_t *object =
      ((grammar_object_t *const *)compile->objects.items)[node->object];
  uint32_t need = build_at(compile, object->close)->need, possible = 0, required = 0;
  uint32_t conditions = build_presence_need(compile, draft);
  if (need == NONE || conditions == NONE) return NONE;
  if (conditions > need) need = conditions;
  for (uint32_t i = 0; i < draft->num_members; i++) {
    bool can = can_occur(compile, draft->members[i].entry);
    possible += can;
    required += draft->members[i].required;
    if (!draft->members[i].required) continue;
    if (!can) return NONE;
    uint32_t inside = build_at(compile, draft->members[i].entry)->need + 1;
    if (inside > need) need = inside;
  }
  if (draft->witnesses != NULL) {
    uint32_t witnesses = build_witness_need(compile, draft);
    if (witnesses == NONE) return NONE;
    need = MAX(need, witnesses);
  }
  if (draft->presence != NULL) return need;
  /* Extra members may have equal names, so only one of them is certain to count. */
  possible += can_occur(compile, draft->extra);
  bool never = possible < draft->min || required > draft->max || draft->min > draft->max;
  return never ? NONE : need;
}

/* ---- the trie of names ---- */

static uint32_t child_of(compile_t *compile, grammar_list_t *trie, uint32_t at, uint8_t byte) {
  name_node_t *nodes = trie->items;
  for (uint32_t i = nodes[at].child; i; i = nodes[i].sibling) {
    if (nodes[i].byte == byte) return i;
  }
  name_node_t *node = list_add(compile, trie, sizeof *node);
  nodes = trie->items;
  *node = (name_node_t){.sibling = nodes[at].child, .byte = byte, .index = NONE};
  nodes[at].child = trie->count - 1;
  return trie->count - 1;
}

static void add_name(compile_t *compile, grammar_list_t *trie, const member_draft_t *draft,
                     uint32_t index) {
  uint32_t at = 0;
  compile_spend(compile, draft->length);
  if (index != NONE) ((name_node_t *)trie->items)[0].count++;
  for (uint32_t i = 0; i < draft->length; i++) {
    at = child_of(compile, trie, at, (uint8_t)draft->name[i]);
    if (index != NONE) ((name_node_t *)trie->items)[at].count++;
  }
  name_node_t *end = (name_node_t *)trie->items + at;
  end->is_name = true;
  end->index = index;
}

/* Lists, for every trie node, the indices of the names below it; `count` says how many. */
static void sort_below(compile_t *compile, grammar_object_t *object, const object_draft_t *draft,
                       uint32_t num_nodes) {
  uint32_t total = 0;
  for (uint32_t i = 0; i < num_nodes; i++) {
    object->trie[i].first = total;
    total += object->trie[i].count;
    object->trie[i].count = 0;
  }
  object->sorted = compile_keep(compile, total, sizeof *object->sorted);
  uint32_t index = 0;
  for (uint32_t m = 0; m < draft->num_members; m++) {
    if (!can_occur(compile, draft->members[m].entry)) continue;
    uint32_t at = 0;
    for (uint32_t i = 0;; i++) {
      object->sorted[object->trie[at].first + object->trie[at].count++] = index;
      if (i == draft->members[m].length) break;
      uint32_t child = object->trie[at].child;
      while (object->trie[child].byte != (uint8_t)draft->members[m].name[i])
        child = object->trie[child].sibling;
      at = child;
    }
    index++;
  }
}

static void fill_required(compile_t *compile, grammar_object_t *object,
                          const object_draft_t *draft) {
  object->entry = compile_keep(compile, object->num_names, sizeof *object->entry);
  object->next_required =
      compile_keep(compile, (size_t)object->num_names + 1, sizeof *object->next_required);
  object->required_from =
      compile_keep(compile, (size_t)object->num_names + 1, sizeof *object->required_from);
  object->next_required[object->num_names] = object->num_names;
  uint32_t index = object->num_names;
  for (uint32_t m = draft->num_members; m > 0; m--) {
    const member_draft_t *member = &draft->members[m - 1];
    if (!can_occur(compile, member->entry)) continue;
    index--;
    object->entry[index] = member->entry;
    object->next_required[index] = member->required ? index : object->next_required[index + 1];
    object->required_from[index] = object->required_from[index + 1] + member->required;
  }
}

/* The set of the names that have come fits into the count of a frame, or else is kept aside. */
static void free_order(compile_t *compile, grammar_object_t *object, const object_draft_t *draft) {
  uint32_t bits = object->num_names + (object->witnesses != NULL ? WITNESSES_MAX + 1 : 0);
  bool fits = bits <= COUNT_NAMES_MAX &&
              (object->max == NONE || object->max <= UINT32_MAX >> object->num_names);
  object->is_free = object->num_names <= SET_NAMES_MAX && object->num_presence <= FREE_STATES_MAX &&
                    !draft->in_order;
  if (!object->is_free && object->witnesses != NULL) {
    compile_fail(compile, ERR_UNSUPPORTED_PARAMETER,
                 "Invalid schema at '%s': a name that must come and is not listed is not supported "
                 "beside 'strict', or beside so many names or conditions.",
                 *draft->pointer ? draft->pointer : "/");
  }
  if (!object->is_free) return;
  object->has_sets = !fits;
  for (uint32_t i = 0; i < object->num_names; i++) {
    if (object->next_required[i] == i) object->required[i / 64] |= UINT64_C(1) << i % 64;
  }
}

static void keep_witnesses(compile_t *compile, const object_draft_t *draft,
                           grammar_object_t *object) {
  if (draft->witnesses == NULL) return;
  *object->witnesses = *draft->witnesses;
  for (uint32_t i = 0; i < WITNESS_KINDS; i++) {
    uint32_t *node = &object->witnesses->node[i];
    if (!can_occur(compile, *node)) *node = NONE;
    if (*node != NONE) object->need = MAX(object->need, build_at(compile, *node)->need);
  }
}

void build_object_finish(compile_t *compile, uint32_t object) {
  grammar_object_t *built = ((grammar_object_t **)compile->objects.items)[object];
  object_draft_t *draft = draft_of(compile, object);
  uint32_t *index_of = compile_scratch(compile, draft->num_members, sizeof *index_of);
  grammar_list_t trie = {0};
  list_add(compile, &trie, sizeof(name_node_t));
  ((name_node_t *)trie.items)[0].index = NONE;
  for (uint32_t m = 0; m < draft->num_members; m++) {
    bool can = can_occur(compile, draft->members[m].entry);
    index_of[m] = can ? built->num_names++ : NONE;
    add_name(compile, &trie, &draft->members[m], index_of[m]);
  }
  built->trie = compile_keep(compile, trie.count, sizeof *built->trie);
  memcpy(built->trie, trie.items, trie.count * sizeof *built->trie);
  sort_below(compile, built, draft, trie.count);
  fill_required(compile, built, draft);
  built->extra = can_occur(compile, draft->extra) ? draft->extra : NONE;
  built->min = draft->min;
  built->max = draft->max;
  if (draft->witnesses != NULL) built->witnesses = compile_keep(compile, 1, sizeof(witnesses_t));
  build_presence_finish(compile, draft, built, index_of);
  free_order(compile, built, draft);
  for (uint32_t i = 0; i < built->num_names; i++) {
    uint32_t need = build_at(compile, built->entry[i])->need;
    if (need > built->need) built->need = need;
  }
  if (built->extra != NONE) built->need = MAX(built->need, build_at(compile, built->extra)->need);
  keep_witnesses(compile, draft, built);
}
