/* build_object.c: objects: which members may come when, as tables the matcher can look up.
 *
 * Part of a compilation, on its thread. Members stand in the order of the schema, so the state of
 * an object is the next index, and a key is looked up in a trie whose nodes know which indices end
 * below them: linear in the number of names, whatever is optional.
 */
#include "engine/grammar/language/build.h"

#include <string.h>

static object_draft_t *draft_of(compile_t *c, uint32_t object) {
  return ((object_draft_t **)c->drafts.items)[object];
}

static object_t *add_object(compile_t *c, object_draft_t *draft) {
  object_t *o = compile_keep(c, 1, sizeof *o);
  *(object_t **)list_add(c, &c->objects, sizeof o) = o;
  *(object_draft_t **)list_add(c, &c->drafts, sizeof draft) = draft;
  draft->extra = NONE;
  return o;
}

uint32_t build_members(compile_t *c, object_draft_t *draft, uint32_t close) {
  uint32_t index = c->objects.count;
  object_t *o = add_object(c, draft);
  o->close_empty = o->close = close;
  o->comma = build_node(c, NODE_MEMBERS, index, close);
  return build_node(c, NODE_OBJECT, index, close);
}

uint32_t build_object(compile_t *c, object_draft_t *draft, uint32_t next) {
  uint32_t index = c->objects.count;
  object_t *o = add_object(c, draft);
  o->close_empty = build_lex(c, lexeme_pattern(c, "\\}"), next);
  o->close = build_lex(c, lexeme_pattern(c, "[ \\t\\n\\r]{0,8}\\}"), next);
  uint32_t members = build_node(c, NODE_MEMBERS, index, next);
  o->comma = build_lex(c, lexeme_pattern(c, ",[ \\t\\n\\r]{0,8}"), members);
  return build_node(c, NODE_OBJECT, index, next);
}

uint32_t build_extra(compile_t *c, uint32_t object, uint32_t lexeme, uint32_t next) {
  if (lexeme == NONE) return NODE_ID_FAIL;
  uint32_t id = build_node(c, NODE_EXTRA, lexeme, next);
  build_at(c, id)->b = object;
  return id;
}

static bool can_occur(compile_t *c, uint32_t entry) {
  return entry != NONE && build_at(c, entry)->need != NONE;
}

uint32_t build_object_need(compile_t *c, const node_t *node) {
  const object_draft_t *d = draft_of(c, node->a);
  const object_t *o = ((object_t *const *)c->objects.items)[node->a];
  uint32_t need = build_at(c, o->close)->need, possible = 0, required = 0;
  if (need == NONE) return NONE;
  for (uint32_t i = 0; i < d->num_members; i++) {
    bool can = can_occur(c, d->members[i].entry);
    possible += can;
    required += d->members[i].required;
    if (!d->members[i].required) continue;
    if (!can) return NONE;
    uint32_t inside = build_at(c, d->members[i].entry)->need + 1;
    if (inside > need) need = inside;
  }
  /* Extra members may repeat a name, so only one of them surely counts. */
  possible += can_occur(c, d->extra);
  bool never = possible < d->min || required > d->max || d->min > d->max;
  return never ? NONE : need;
}

/* ---- the trie of names ---- */

static uint32_t child_of(compile_t *c, list_t *trie, uint32_t at, uint8_t byte) {
  name_node_t *nodes = trie->items;
  for (uint32_t i = nodes[at].child; i; i = nodes[i].sibling) {
    if (nodes[i].byte == byte) return i;
  }
  name_node_t *node = list_add(c, trie, sizeof *node);
  nodes = trie->items;
  *node = (name_node_t){.sibling = nodes[at].child, .byte = byte, .index = NONE};
  nodes[at].child = trie->count - 1;
  return trie->count - 1;
}

static void add_name(compile_t *c, list_t *trie, const member_draft_t *m, uint32_t index) {
  uint32_t at = 0;
  compile_spend(c, m->length);
  if (index != NONE) ((name_node_t *)trie->items)[0].count++;
  for (uint32_t i = 0; i < m->length; i++) {
    at = child_of(c, trie, at, (uint8_t)m->name[i]);
    if (index != NONE) ((name_node_t *)trie->items)[at].count++;
  }
  name_node_t *end = (name_node_t *)trie->items + at;
  end->is_name = true;
  end->index = index;
}

/* Lists, for every trie node, the indices of the names below it; `count` says how many. */
static void sort_below(compile_t *c, object_t *o, const object_draft_t *d, uint32_t num_nodes) {
  uint32_t total = 0;
  for (uint32_t i = 0; i < num_nodes; i++) {
    o->trie[i].first = total;
    total += o->trie[i].count;
    o->trie[i].count = 0;
  }
  o->sorted = compile_keep(c, total, sizeof *o->sorted);
  uint32_t index = 0;
  for (uint32_t m = 0; m < d->num_members; m++) {
    if (!can_occur(c, d->members[m].entry)) continue;
    uint32_t at = 0;
    for (uint32_t i = 0;; i++) {
      o->sorted[o->trie[at].first + o->trie[at].count++] = index;
      if (i == d->members[m].length) break;
      uint32_t child = o->trie[at].child;
      while (o->trie[child].byte != (uint8_t)d->members[m].name[i]) child = o->trie[child].sibling;
      at = child;
    }
    index++;
  }
}

static void fill_required(compile_t *c, object_t *o, const object_draft_t *d) {
  o->entry = compile_keep(c, o->num_names, sizeof *o->entry);
  o->next_required = compile_keep(c, (size_t)o->num_names + 1, sizeof *o->next_required);
  o->required_from = compile_keep(c, (size_t)o->num_names + 1, sizeof *o->required_from);
  o->next_required[o->num_names] = o->num_names;
  uint32_t index = o->num_names;
  for (uint32_t m = d->num_members; m > 0; m--) {
    const member_draft_t *member = &d->members[m - 1];
    if (!can_occur(c, member->entry)) continue;
    index--;
    o->entry[index] = member->entry;
    o->next_required[index] = member->required ? index : o->next_required[index + 1];
    o->required_from[index] = o->required_from[index + 1] + member->required;
  }
}

void build_object_finish(compile_t *c, uint32_t object) {
  object_t *o = ((object_t **)c->objects.items)[object];
  const object_draft_t *d = draft_of(c, object);
  list_t trie = {0};
  list_add(c, &trie, sizeof(name_node_t));
  ((name_node_t *)trie.items)[0].index = NONE;
  for (uint32_t m = 0; m < d->num_members; m++) {
    bool can = can_occur(c, d->members[m].entry);
    add_name(c, &trie, &d->members[m], can ? o->num_names++ : NONE);
  }
  o->trie = compile_keep(c, trie.count, sizeof *o->trie);
  memcpy(o->trie, trie.items, trie.count * sizeof *o->trie);
  sort_below(c, o, d, trie.count);
  fill_required(c, o, d);
  o->extra = can_occur(c, d->extra) ? d->extra : NONE;
  o->min = d->min;
  o->max = d->max;
  for (uint32_t i = 0; i < o->num_names; i++) {
    uint32_t need = build_at(c, o->entry[i])->need;
    if (need > o->need) o->need = need;
  }
  if (o->extra != NONE && build_at(c, o->extra)->need > o->need) {
    o->need = build_at(c, o->extra)->need;
  }
}
