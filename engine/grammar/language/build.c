/* build.c: the nodes of a grammar while it is made, and the checks that make it safe to run.
 *
 * Part of a compilation, on its thread. Nodes are made from the end of the text to its start: every
 * maker takes the node that follows. build_finish drops what can never end, so that the matcher
 * always finds a way out. Objects: build_object.c.
 */
#include "engine/grammar/language/build.h"

#include <string.h>

uint32_t build_node(compile_t *c, node_kind_t kind, uint32_t a, uint32_t next) {
  compile_spend(c, 1);
  node_t *node = list_add(c, &c->nodes, sizeof *node);
  *node = (node_t){.kind = (uint32_t)kind, .a = a, .next = next, .need = NONE};
  return c->nodes.count - 1;
}

node_t *build_at(compile_t *c, uint32_t id) {
  return (node_t *)c->nodes.items + id;
}

uint32_t build_lex(compile_t *c, uint32_t lexeme, uint32_t next) {
  return lexeme == NONE ? NODE_ID_FAIL : build_node(c, NODE_LEX, lexeme, next);
}

void build_alt_fill(compile_t *c, uint32_t id, const uint32_t *branches, uint32_t count) {
  build_at(c, id)->a = c->edges.count;
  build_at(c, id)->b = count;
  for (uint32_t i = 0; i < count; i++) {
    *(uint32_t *)list_add(c, &c->edges, sizeof(uint32_t)) = branches[i];
  }
}

uint32_t build_alt(compile_t *c, const uint32_t *branches, uint32_t count) {
  uint32_t id = build_node(c, NODE_ALT, 0, 0);
  build_alt_fill(c, id, branches, count);
  return id;
}

uint32_t build_repeat(compile_t *c, uint32_t body, uint32_t min, uint32_t max, uint32_t next) {
  if (max < min) return NODE_ID_FAIL;
  if (max == 0) return next;
  uint32_t id = build_node(c, NODE_REPEAT, body, next);
  build_at(c, id)->b = min;
  build_at(c, id)->c = max;
  return id;
}

/* ---- ways out ---- */

static uint32_t larger(uint32_t a, uint32_t b) {
  return a > b ? a : b;
}

static uint32_t framed(uint32_t need) {
  return need == NONE ? NONE : need + 1;
}

static uint32_t need_of(compile_t *c, const node_t *n) {
  const node_t *nodes = c->nodes.items;
  switch ((node_kind_t)n->kind) {
  case NODE_END:
  case NODE_RETURN: return 0;
  case NODE_FAIL: return NONE;
  case NODE_LEX:
  case NODE_EXTRA:
  case NODE_TOKEN: return nodes[n->next].need;
  case NODE_CALL:
    if (n->next == NODE_ID_RETURN) return nodes[n->a].need;
    return larger(framed(nodes[n->a].need), nodes[n->next].need);
  case NODE_ALT: {
    uint32_t least = NONE;
    const uint32_t *edges = c->edges.items;
    for (uint32_t i = 0; i < n->b; i++) {
      uint32_t need = nodes[edges[n->a + i]].need;
      if (need < least) least = need;
    }
    return least;
  }
  case NODE_REPEAT:
    if (n->b == 0) return nodes[n->next].need;
    return larger(framed(nodes[n->a].need), nodes[n->next].need);
  case NODE_OBJECT: return build_object_need(c, n);
  case NODE_MEMBERS: return 0;
  }
  return NONE;
}

/* The least solution: from "no way out" down to what is true. */
static void find_needs(compile_t *c) {
  for (bool changed = true; changed;) {
    changed = false;
    for (int pass = 0; pass < 2; pass++) {
      compile_spend(c, c->nodes.count);
      for (uint32_t i = 0; i < c->nodes.count; i++) {
        uint32_t id = pass == 0 ? i : c->nodes.count - 1 - i;
        uint32_t need = need_of(c, build_at(c, id));
        if (need >= build_at(c, id)->need) continue;
        build_at(c, id)->need = need;
        changed = true;
      }
    }
  }
}

static void drop_dead_branches(compile_t *c) {
  uint32_t *edges = c->edges.items;
  for (uint32_t i = 0; i < c->nodes.count; i++) {
    node_t *n = build_at(c, i);
    if (n->kind == NODE_ALT) {
      uint32_t kept = 0;
      for (uint32_t k = 0; k < n->b; k++) {
        uint32_t branch = edges[n->a + k];
        if (build_at(c, branch)->need != NONE) edges[n->a + kept++] = branch;
      }
      n->b = kept;
    }
    if (n->kind == NODE_REPEAT && n->b == 0 && build_at(c, n->a)->need == NONE) n->c = 0;
  }
}

/* ---- rules that reach themselves ---- */

/* nullable[i]: from node i to the RETURN or END of its rule without a byte. */
static bool is_nullable(compile_t *c, const uint8_t *nullable, const node_t *n) {
  const dfa_t *const *dfas = c->dfas.items;
  const uint32_t *edges = c->edges.items;
  switch ((node_kind_t)n->kind) {
  case NODE_END:
  case NODE_RETURN: return true;
  case NODE_LEX: return (dfas[n->a]->flags[DFA_START] & DFA_ACCEPT) && nullable[n->next];
  case NODE_CALL: return nullable[n->a] && nullable[n->next];
  case NODE_REPEAT: return (n->b == 0 || nullable[n->a]) && nullable[n->next];
  case NODE_ALT:
    for (uint32_t i = 0; i < n->b; i++) {
      if (nullable[edges[n->a + i]]) return true;
    }
    return false;
  default: return false;
  }
}

static uint8_t *find_nullable(compile_t *c) {
  uint8_t *nullable = compile_scratch(c, c->nodes.count, 1);
  for (bool changed = true; changed;) {
    changed = false;
    compile_spend(c, c->nodes.count);
    for (uint32_t i = 0; i < c->nodes.count; i++) {
      if (nullable[i] || !is_nullable(c, nullable, build_at(c, i))) continue;
      nullable[i] = 1;
      changed = true;
    }
  }
  return nullable;
}

/* The k-th node that follows node id without a byte; NONE after the last. */
static uint32_t empty_step(compile_t *c, const uint8_t *nullable, uint32_t id, uint32_t k) {
  const node_t *n = build_at(c, id);
  const dfa_t *const *dfas = c->dfas.items;
  bool skips;
  switch ((node_kind_t)n->kind) {
  case NODE_ALT: return k < n->b ? ((const uint32_t *)c->edges.items)[n->a + k] : NONE;
  case NODE_LEX:
    skips = dfas[n->a]->flags[DFA_START] & DFA_ACCEPT;
    return k == 0 && skips ? n->next : NONE;
  case NODE_CALL: return k == 0 ? n->a : k == 1 && nullable[n->a] ? n->next : NONE;
  case NODE_REPEAT:
    if (k == 0) return n->c > 0 ? n->a : n->next;
    return k == 1 && (n->b == 0 || nullable[n->a]) ? n->next : NONE;
  default: return NONE;
  }
}

/* Depth first over these steps with a stack of our own; a step back to a node that is still open is
 * a rule that reaches itself. */
static void refuse_left_recursion(compile_t *c) {
  uint8_t *nullable = find_nullable(c);
  uint32_t count = c->nodes.count;
  uint8_t *color = compile_scratch(c, count, 1); /* 1 = open, 2 = done */
  uint32_t *stack = compile_scratch(c, count, sizeof *stack);
  uint32_t *at = compile_scratch(c, count, sizeof *at);
  for (uint32_t root = 0; root < count; root++) {
    uint32_t depth = 0;
    if (color[root]) continue;
    stack[depth++] = root;
    color[root] = 1;
    while (depth > 0) {
      uint32_t id = stack[depth - 1], next = empty_step(c, nullable, id, at[id]++);
      compile_spend(c, 1);
      if (next == NONE) {
        color[id] = 2;
        depth--;
      } else if (color[next] == 1) {
        compile_fail(c, ERR_INVALID_VALUE,
                     "The constraint refers to itself before anything is written.");
      } else if (color[next] == 0) {
        color[next] = 1;
        stack[depth++] = next;
      }
    }
  }
}

/* ---- into the grammar ---- */

static void *keep_list(compile_t *c, const list_t *list, size_t size) {
  void *kept = compile_keep(c, list->count, size);
  if (list->count) memcpy(kept, list->items, list->count * size);
  return kept;
}

/* A call of a rule that is one lexeme needs no frame. */
static void inline_lexemes(compile_t *c) {
  for (uint32_t i = 0; i < c->nodes.count; i++) {
    node_t *n = build_at(c, i);
    if (n->kind != NODE_CALL) continue;
    const node_t *callee = build_at(c, n->a);
    while (callee->kind == NODE_ALT && callee->b == 1) {
      callee = build_at(c, ((const uint32_t *)c->edges.items)[callee->a]);
    }
    if (callee->kind != NODE_LEX || callee->next != NODE_ID_RETURN) continue;
    n->kind = NODE_LEX;
    n->a = callee->a;
  }
}

void build_finish(compile_t *c, uint32_t start) {
  if (c->nodes.count > c->limits->rules_max * 16) {
    compile_fail(c, ERR_BAD_REQUEST, "The constraint expands to more than %u rules.",
                 c->limits->rules_max);
  }
  find_needs(c);
  if (build_at(c, start)->need == NONE) {
    compile_fail(c, ERR_INVALID_VALUE, "No text satisfies the constraint.");
  }
  if (build_at(c, start)->need >= STACK_DEPTH_MAX) {
    compile_fail(c, ERR_BAD_REQUEST, "Every text of the constraint nests deeper than %d.",
                 STACK_DEPTH_MAX);
  }
  drop_dead_branches(c);
  inline_lexemes(c);
  refuse_left_recursion(c);
  for (uint32_t i = 0; i < c->objects.count; i++) build_object_finish(c, i);
  grammar_t *g = c->grammar;
  g->num_nodes = c->nodes.count;
  g->nodes = keep_list(c, &c->nodes, sizeof(node_t));
  g->edges = keep_list(c, &c->edges, sizeof(uint32_t));
  g->num_dfas = c->dfas.count;
  g->dfas = keep_list(c, &c->dfas, sizeof(dfa_t *));
  g->num_objects = c->objects.count;
  g->objects = keep_list(c, &c->objects, sizeof(object_t *));
  g->start = start;
}
