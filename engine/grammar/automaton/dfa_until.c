/* dfa_until.c: automata of free text up to the first of some texts, as Aho and Corasick find them.
 *
 * Part of a compilation, on its thread.
 */
#include "engine/grammar/automaton/dfa.h"

enum { ROOT = 0, FOUND_OTHER = 1, FOUND_WANTED = 2 };

/* A tree of the texts; `next` becomes where a byte leads from a node, whatever the text before. */
typedef struct text_tree {
  uint32_t *next;   /* [nodes][num_classes] */
  uint8_t *found;   /* [nodes] a text ends here */
  uint32_t *suffix; /* [nodes] the longest other node that the node's text ends with */
  uint32_t num_nodes, num_classes;
  uint8_t class_of[256];
  bool has_wanted;
} text_tree_t;

/* Each byte of the texts is a class of its own, all others are one. */
static void find_classes(text_tree_t *tree, const dfa_text_t *texts, uint32_t count) {
  bool used[256] = {false};
  int rest = -1;
  for (uint32_t i = 0; i < count; i++) {
    for (uint32_t k = 0; k < texts[i].length; k++) used[(uint8_t)texts[i].bytes[k]] = true;
  }
  for (int b = 0; b < 256; b++) {
    if (!used[b] && rest < 0) rest = (int)tree->num_classes++;
    tree->class_of[b] = (uint8_t)(used[b] ? (int)tree->num_classes++ : rest);
  }
}

static void add_text(text_tree_t *tree, dfa_text_t text, uint8_t found) {
  uint32_t at = ROOT;
  for (uint32_t k = 0; k < text.length; k++) {
    uint8_t class_of = tree->class_of[(uint8_t)text.bytes[k]];
    uint32_t *next = &tree->next[(size_t)at * tree->num_classes + class_of];
    if (*next == ROOT) *next = tree->num_nodes++;
    at = *next;
  }
  if (found > tree->found[at]) tree->found[at] = found;
}

/* Fills the missing ways, nodes of short texts first. */
static void link_nodes(compile_t *compile, text_tree_t *tree) {
  uint32_t *queue = compile_scratch(compile, tree->num_nodes, sizeof *queue), count = 1;
  for (uint32_t i = 0; i < count; i++) {
    uint32_t node = queue[i], suffix = tree->suffix[node];
    if (tree->found[suffix] > tree->found[node]) tree->found[node] = tree->found[suffix];
    compile_spend(compile, tree->num_classes);
    for (uint32_t k = 0; k < tree->num_classes; k++) {
      uint32_t *next = &tree->next[(size_t)node * tree->num_classes + k];
      uint32_t other = node != ROOT ? tree->next[(size_t)suffix * tree->num_classes + k] : ROOT;
      if (*next == ROOT) {
        *next = other;
      } else {
        tree->suffix[*next] = other;
        queue[count++] = *next;
      }
    }
  }
}

/* A state is 1 + node. */
static uint64_t step(void *context, uint64_t state, uint8_t byte) {
  const text_tree_t *tree = context;
  uint32_t node = (uint32_t)state - 1;
  if (tree->found[node] == FOUND_WANTED) return 0;
  node = tree->next[(size_t)node * tree->num_classes + tree->class_of[byte]];
  return tree->found[node] == FOUND_OTHER ? 0 : 1 + (uint64_t)node;
}

static bool accepts(void *context, uint64_t state) {
  const text_tree_t *tree = context;
  return !tree->has_wanted || tree->found[state - 1] == FOUND_WANTED;
}

dfa_t *dfa_until(compile_t *compile, const dfa_text_t *texts, uint32_t count, uint32_t from,
                 uint32_t until) {
  text_tree_t tree = {.num_nodes = 1, .has_wanted = from < until};
  size_t nodes_max = 1;
  for (uint32_t i = 0; i < count; i++) nodes_max += texts[i].length;
  if (nodes_max > compile->limits->dfa_states_max)
    compile_fail(compile, ERR_BAD_REQUEST,
                 "The texts that end free text have %zu bytes; at most %u fit.", nodes_max - 1,
                 compile->limits->dfa_states_max - 1);
  find_classes(&tree, texts, count);
  tree.next = compile_scratch(compile, nodes_max * tree.num_classes, sizeof *tree.next);
  tree.found = compile_scratch(compile, nodes_max, sizeof *tree.found);
  tree.suffix = compile_scratch(compile, nodes_max, sizeof *tree.suffix);
  for (uint32_t i = 0; i < count; i++)
    add_text(&tree, texts[i], i >= from && i < until ? FOUND_WANTED : FOUND_OTHER);
  link_nodes(compile, &tree);
  automaton_t automaton = {&tree, 1 + ROOT, step, accepts, tree.class_of};
  return dfa_explore(compile, &automaton);
}
