/* build.c: makes the nodes of a grammar, and checks that the grammar can be run safely.
 *
 * Part of a compilation, on its thread. Nodes are made from the end of the text to its start: every
 * function gets the node that follows. build_finish removes nodes from which no text can end, so
 * that the matcher can always continue. Objects: build_object.c.
 */
#include "engine/grammar/nodes/build.h"

#include "engine/base/util.h"

#include <string.h>

uint32_t build_node(compile_t *compile, grammar_node_kind_t kind, uint32_t operand, uint32_t next) {
  compile_spend(compile, 1);
  grammar_node_t *node = list_add(compile, &compile->nodes, sizeof *node);
  *node = (grammar_node_t){.kind = kind, .operand = operand, .next = next, .need = NONE};
  return compile->nodes.count - 1;
}

grammar_node_t *build_at(compile_t *compile, uint32_t id) {
  return (grammar_node_t *)compile->nodes.items + id;
}

uint32_t build_lex(compile_t *compile, uint32_t lexeme, uint32_t next) {
  return lexeme == NONE ? NODE_ID_FAIL : build_node(compile, NODE_LEX, lexeme, next);
}

/* Returns the mark that comes first in the text, the longer of two, and sets *at; NULL = none. */
static const grammar_source_t *first_mark(const grammar_source_t *marks, const char *text,
                                          const char **at) {
  const grammar_source_t *first = NULL;
  for (int32_t i = 0; i < marks->num_children; i++) {
    const grammar_source_t *mark = &marks->children[i];
    const char *hit = strstr(text, mark->text);
    if (hit == NULL || (first != NULL && hit > *at)) continue;
    if (first != NULL && hit == *at && mark->length < first->length) continue;
    first = mark;
    *at = hit;
  }
  return first;
}

uint32_t build_words(compile_t *compile, const grammar_source_t *marks, const char *text,
                     uint32_t next) {
  const char *end = text + strlen(text);
  const grammar_source_t *mark = first_mark(marks, text, &end);
  if (mark != NULL) {
    next = build_words(compile, marks, end + mark->length, next); /* a word has few marks */
    next = build_node(compile, NODE_TOKEN, (uint32_t)mark->token, next);
  }
  if (end == text) return next;
  return build_lex(compile, lexeme_text(compile, text, (uint32_t)(end - text)), next);
}

void build_alt_fill(compile_t *compile, uint32_t id, const uint32_t *branches, uint32_t count) {
  build_at(compile, id)->first_edge = compile->edges.count;
  build_at(compile, id)->num_edges = count;
  for (uint32_t i = 0; i < count; i++) {
    *(uint32_t *)list_add(compile, &compile->edges, sizeof(uint32_t)) = branches[i];
  }
}

uint32_t build_alt(compile_t *compile, const uint32_t *branches, uint32_t count) {
  uint32_t id = build_node(compile, NODE_ALT, 0, 0);
  build_alt_fill(compile, id, branches, count);
  return id;
}

uint32_t build_repeat(compile_t *compile, uint32_t body, uint32_t min, uint32_t max,
                      uint32_t next) {
  if (max < min) return NODE_ID_FAIL;
  if (max == 0) return next;
  uint32_t id = build_node(compile, NODE_REPEAT, body, next);
  build_at(compile, id)->min = min;
  build_at(compile, id)->max = max;
  return id;
}

/* ---- nodes from which the text can end ---- */

static uint32_t larger(uint32_t left, uint32_t right) {
  return MAX(left, right);
}

static uint32_t framed(uint32_t need) {
  return need == NONE ? NONE : need + 1;
}

static uint32_t need_of(compile_t *compile, const grammar_node_t *node) {
  const grammar_node_t *nodes = compile->nodes.items;
  switch (node->kind) {
  case NODE_END:
  case NODE_RETURN: return 0;
  case NODE_FAIL: return NONE;
  case NODE_LEX:
  case NODE_EXTRA:
  case NODE_TOKEN: return nodes[node->next].need;
  case NODE_CALL:
    if (node->next == NODE_ID_RETURN) return nodes[node->rule].need;
    return larger(framed(nodes[node->rule].need), nodes[node->next].need);
  case NODE_ALT: {
    uint32_t least = NONE;
    const uint32_t *edges = compile->edges.items;
    for (uint32_t i = 0; i < node->num_edges; i++) {
      uint32_t need = nodes[edges[node->first_edge + i]].need;
      if (need < least) least = need;
    }
    return least;
  }
  case NODE_REPEAT:
    if (node->min == 0) return nodes[node->next].need;
    return larger(framed(nodes[node->body].need), nodes[node->next].need);
  case NODE_OBJECT: return build_object_need(compile, node);
  case NODE_UNIQUE: return build_unique_need(compile, node);
  case NODE_MEMBERS: return 0;
  }
  return NONE;
}

/* Computes the least solution by iteration; every node starts as "cannot end". */
static void find_needs(compile_t *compile) {
  for (bool changed = true; changed;) {
    changed = false;
    for (int pass = 0; pass < 2; pass++) {
      compile_spend(compile, compile->nodes.count);
      for (uint32_t i = 0; i < compile->nodes.count; i++) {
        uint32_t id = pass == 0 ? i : compile->nodes.count - 1 - i;
        uint32_t need = need_of(compile, build_at(compile, id));
        if (need >= build_at(compile, id)->need) continue;
        build_at(compile, id)->need = need;
        changed = true;
      }
    }
  }
}

static void drop_dead_branches(compile_t *compile) {
  uint32_t *edges = compile->edges.items;
  for (uint32_t i = 0; i < compile->nodes.count; i++) {
    grammar_node_t *node = build_at(compile, i);
    if (node->kind == NODE_ALT) {
      uint32_t kept = 0;
      for (uint32_t k = 0; k < node->num_edges; k++) {
        uint32_t branch = edges[node->first_edge + k];
        if (build_at(compile, branch)->need != NONE) edges[node->first_edge + kept++] = branch;
      }
      node->num_edges = kept;
    }
    if (node->kind == NODE_REPEAT && node->min == 0 && build_at(compile, node->body)->need == NONE)
      node->max = 0;
  }
}

/* ---- rules that reach themselves ---- */

/* nullable[i]: the RETURN or END of the rule is reached from node i without a byte. */
static bool is_nullable(compile_t *compile, const uint8_t *nullable, const grammar_node_t *node) {
  const dfa_t *const *dfas = compile->dfas.items;
  const uint32_t *edges = compile->edges.items;
  switch (node->kind) {
  case NODE_END:
  case NODE_RETURN: return true;
  case NODE_LEX: return (dfas[node->lexeme]->flags[DFA_START] & DFA_ACCEPT) && nullable[node->next];
  case NODE_CALL: return nullable[node->rule] && nullable[node->next];
  case NODE_REPEAT: return (node->min == 0 || nullable[node->body]) && nullable[node->next];
  case NODE_ALT:
    for (uint32_t i = 0; i < node->num_edges; i++) {
      if (nullable[edges[node->first_edge + i]]) return true;
    }
    return false;
  default: return false;
  }
}

static uint8_t *find_nullable(compile_t *compile) {
  uint8_t *nullable = compile_scratch(compile, compile->nodes.count, 1);
  for (bool changed = true; changed;) {
    changed = false;
    compile_spend(compile, compile->nodes.count);
    for (uint32_t i = 0; i < compile->nodes.count; i++) {
      if (nullable[i] || !is_nullable(compile, nullable, build_at(compile, i))) continue;
      nullable[i] = 1;
      changed = true;
    }
  }
  return nullable;
}

/* Returns the k-th node that follows node `id` without a byte; NONE after the last. */
static uint32_t empty_step(compile_t *compile, const uint8_t *nullable, uint32_t id,
                           uint32_t index) {
  const grammar_node_t *node = build_at(compile, id);
  const dfa_t *const *dfas = compile->dfas.items;
  bool skips;
  switch (node->kind) {
  case NODE_ALT:
    return index < node->num_edges
               ? ((const uint32_t *)compile->edges.items)[node->first_edge + index]
               : NONE;
  case NODE_LEX:
    skips = dfas[node->lexeme]->flags[DFA_START] & DFA_ACCEPT;
    return index == 0 && skips ? node->next : NONE;
  case NODE_CALL:
    return index == 0 ? node->rule : index == 1 && nullable[node->rule] ? node->next : NONE;
  case NODE_REPEAT:
    if (index == 0) return node->max > 0 ? node->body : node->next;
    return index == 1 && (node->min == 0 || nullable[node->body]) ? node->next : NONE;
  case NODE_UNIQUE: return build_unique_step(compile, node, index);
  default: return NONE;
  }
}

/* What flattening keeps account of. */
typedef struct flat {
  uint32_t *seen; /* [nodes] 1 + the ALT node whose list has the node */
  uint32_t room;  /* edges that may still be added, so that memory stays in proportion */
} flat_t;

/* More ways than WAYS_MAX might pass a bound of the matcher. */
enum { BRANCHES_FLAT_MAX = 64, WAYS_MAX = 200, WAYS_MANY = 1 << 20 };

/* Follows calls that come last in their rule: the rule that they call returns to their own caller.
 */
static uint32_t skip_last_calls(compile_t *compile, uint32_t id) {
  const grammar_node_t *node = build_at(compile, id);
  while (node->kind == NODE_CALL && node->next == NODE_ID_RETURN) {
    id = node->rule;
    node = build_at(compile, id);
  }
  return id;
}

/* Replaces the branches of an ALT node that are alternatives themselves by their branches, which
 * are flat already, so that the matcher meets lexemes and not chains of rules. Leaves the node as
 * it is if the list would be long. */
static void flatten(compile_t *compile, flat_t *flat, uint32_t id) {
  const grammar_node_t *node = build_at(compile, id);
  uint32_t list[BRANCHES_FLAT_MAX], count = 0;
  if (node->kind != NODE_ALT) return;
  for (uint32_t i = 0; i < node->num_edges; i++) {
    const uint32_t *edges = compile->edges.items;
    uint32_t branch = skip_last_calls(compile, edges[node->first_edge + i]);
    const grammar_node_t *to = build_at(compile, branch);
    uint32_t many = to->kind == NODE_ALT ? to->num_edges : 1;
    const uint32_t *branches = to->kind == NODE_ALT ? &edges[to->first_edge] : &branch;
    compile_spend(compile, many);
    for (uint32_t k = 0; k < many; k++) {
      if (flat->seen[branches[k]] == id + 1) continue;
      if (count == BRANCHES_FLAT_MAX) return;
      flat->seen[branches[k]] = id + 1;
      list[count++] = branches[k];
    }
  }
  if (count > node->num_edges) {
    if (count > flat->room) return;
    flat->room -= count;
    build_alt_fill(compile, id, list, count);
  } else {
    uint32_t *edges = (uint32_t *)compile->edges.items + node->first_edge;
    memcpy(edges, list, count * sizeof *list);
    build_at(compile, id)->num_edges = count;
  }
}

/* Counts the ways that lead on from node `id` without a byte, those that meet again counted apart.
 */
static uint32_t count_ways(compile_t *compile, const uint8_t *nullable, const uint32_t *ways,
                           uint32_t id) {
  uint32_t total = 1;
  for (uint32_t i = 0, next; (next = empty_step(compile, nullable, id, i)) != NONE; i++)
    total += ways[next];
  return MIN(total, (uint32_t)WAYS_MANY);
}

/* A depth-first search over these steps, with an explicit stack. A step to a node that is still
 * open means that a rule reaches itself. All that a node leads to is done before the node. */
static void refuse_left_recursion(compile_t *compile) {
  uint8_t *nullable = find_nullable(compile);
  uint32_t count = compile->nodes.count;
  uint8_t *color = compile_scratch(compile, count, 1); /* 1 = open, 2 = done */
  uint32_t *stack = compile_scratch(compile, count, sizeof *stack);
  uint32_t *at = compile_scratch(compile, count, sizeof *at);
  uint32_t *ways = compile_scratch(compile, count, sizeof *ways);
  flat_t flat = {compile_scratch(compile, count, sizeof *flat.seen), 4 * count + 4096};
  for (uint32_t root = 0; root < count; root++) {
    uint32_t depth = 0;
    if (color[root]) continue;
    stack[depth++] = root;
    color[root] = 1;
    while (depth > 0) {
      uint32_t id = stack[depth - 1], next = empty_step(compile, nullable, id, at[id]++);
      compile_spend(compile, 1);
      if (next == NONE) {
        color[id] = 2;
        flatten(compile, &flat, id);
        ways[id] = count_ways(compile, nullable, ways, id);
        if (ways[id] > WAYS_MAX)
          *(uint32_t *)list_add(compile, &compile->wide, sizeof(uint32_t)) = id;
        depth--;
      } else if (color[next] == 1) {
        compile_fail(compile, ERR_INVALID_VALUE,
                     "The constraint refers to itself before anything is written.");
      } else if (color[next] == 0) {
        color[next] = 1;
        stack[depth++] = next;
      }
    }
  }
}

/* ---- copying into the grammar ---- */

static void *keep_list(compile_t *compile, const grammar_list_t *list, size_t size) {
  void *kept = compile_keep(compile, list->count, size);
  if (list->count) memcpy(kept, list->items, list->count * size);
  return kept;
}

/* Replaces calls of rules that are one lexeme by the lexeme: they need no frame. */
static void inline_lexemes(compile_t *compile) {
  for (uint32_t i = 0; i < compile->nodes.count; i++) {
    grammar_node_t *node = build_at(compile, i);
    if (node->kind != NODE_CALL) continue;
    const grammar_node_t *callee = build_at(compile, node->rule);
    while (callee->kind == NODE_ALT && callee->num_edges == 1) {
      callee = build_at(compile, ((const uint32_t *)compile->edges.items)[callee->first_edge]);
    }
    if (callee->kind != NODE_LEX || callee->next != NODE_ID_RETURN) continue;
    node->kind = NODE_LEX;
    node->lexeme = callee->lexeme;
  }
}

void build_finish(compile_t *compile, uint32_t start) {
  if (compile->nodes.count > compile->limits->rules_max * 16) {
    compile_fail(compile, ERR_BAD_REQUEST, "The constraint expands to more than %u rules.",
                 compile->limits->rules_max);
  }
  find_needs(compile);
  if (build_at(compile, start)->need == NONE) {
    compile_fail(compile, ERR_INVALID_VALUE, "No text satisfies the constraint.");
  }
  if (build_at(compile, start)->need >= STACK_DEPTH_MAX) {
    compile_fail(compile, ERR_BAD_REQUEST, "Every text of the constraint nests deeper than %d.",
                 STACK_DEPTH_MAX);
  }
  drop_dead_branches(compile);
  inline_lexemes(compile);
  refuse_left_recursion(compile);
  for (uint32_t i = 0; i < compile->objects.count; i++) build_object_finish(compile, i);
  build_unique_finish(compile);
  grammar_t *grammar = compile->grammar;
  grammar->num_nodes = compile->nodes.count;
  grammar->nodes = keep_list(compile, &compile->nodes, sizeof(grammar_node_t));
  grammar->edges = keep_list(compile, &compile->edges, sizeof(uint32_t));
  grammar->dfas = keep_list(compile, &compile->dfas, sizeof(dfa_t *));
  grammar->num_objects = compile->objects.count;
  grammar->objects = keep_list(compile, &compile->objects, sizeof(grammar_object_t *));
  grammar->start = start;
}
