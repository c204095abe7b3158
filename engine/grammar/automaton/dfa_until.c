/* dfa_until.c: automata of free text up to the first of some texts, as Aho and Corasick find them.
 *
 * Part of a compilation, on its thread.
 */
#include "engine/grammar/automaton/dfa.h"

enum { ROOT = 0, FOUND_OTHER = 1, FOUND_WANTED = 2 };

/* A tree of the texts; `next` becomes where a byte leads from a node, whatever the text before. */
typedef struct finder {
  uint32_t *next;   /* [nodes][num_classes] */
  uint8_t *found;   /* [nodes] a text ends here */
  uint32_t *suffix; /* [nodes] the longest other node that the node's text ends with */
  uint32_t num_nodes, num_classes;
  uint8_t class_of[256];
  bool has_wanted;
} finder_t;

/* Each byte of the texts is a class of its own, all others are one. */
static void find_classes(finder_t *finder, const dfa_text_t *texts, uint32_t count) {
  bool used[256] = {false};
  int rest = -1;
  for (uint32_t i = 0; i < count; i++) {
    for (uint32_t k = 0; k < texts[i].length; k++) used[(uint8_t)texts[i].bytes[k]] = true;
  }
  for (int b = 0; b < 256; b++) {
    if (!used[b] && rest < 0) rest = (int)finder->num_classes++;
    finder->class_of[b] = (uint8_t)(used[b] ? (int)finder->num_classes++ : rest);
  }
}

static void add_text(finder_t *finder, dfa_text_t text, uint8_t found) {
  uint32_t at = ROOT;
  for (uint32_t k = 0; k < text.length; k++) {
    uint8_t class_of = finder->class_of[(uint8_t)text.bytes[k]];
    uint32_t *next = &finder->next[(size_t)at * finder->num_classes + class_of];
    if (*next == ROOT) *next = finder->num_nodes++;
    at = *next;
  }
  if (found > finder->found[at]) finder->found[at] = found;
}

/* Fills the missing ways, nodes of short texts first. */
static void link_nodes(compile_t *compile, finder_t *finder) {
  uint32_t *queue = compile_scratch(compile, finder->num_nodes, sizeof *queue), count = 1;
  for (uint32_t i = 0; i < count; i++) {
    uint32_t node = queue[i], suffix = finder->suffix[node];
    if (finder->found[suffix] > finder->found[node]) finder->found[node] = finder->found[suffix];
    compile_spend(compile, finder->num_classes);
    for (uint32_t k = 0; k < finder->num_classes; k++) {
      uint32_t *next = &finder->next[(size_t)node * finder->num_classes + k];
      uint32_t other = node != ROOT ? finder->next[(size_t)suffix * finder->num_classes + k] : ROOT;
      if (*next == ROOT) {
        *next = other;
      } else {
        finder->suffix[*next] = other;
        queue[count++] = *next;
      }
    }
  }
}

/* A state is 1 + node. */
static uint64_t step(void *context, uint64_t state, uint8_t byte) {
  const finder_t *finder = context;
  uint32_t node = (uint32_t)state - 1;
  if (finder->found[node] == FOUND_WANTED) return 0;
  node = finder->next[(size_t)node * finder->num_classes + finder->class_of[byte]];
  return finder->found[node] == FOUND_OTHER ? 0 : 1 + (uint64_t)node;
}

static bool accepts(void *context, uint64_t state) {
  const finder_t *finder = context;
  return !finder->has_wanted || finder->found[state - 1] == FOUND_WANTED;
}

dfa_t *dfa_until(compile_t *compile, const dfa_text_t *texts, uint32_t count, uint32_t from,
                 uint32_t until) {
  finder_t finder = {.num_nodes = 1, .has_wanted = from < until};
  size_t nodes_max = 1;
  for (uint32_t i = 0; i < count; i++) nodes_max += texts[i].length;
  if (nodes_max > compile->limits->dfa_states_max)
    compile_fail(compile, ERR_BAD_REQUEST,
                 "The texts that end free text have %zu bytes; at most %u fit.", nodes_max - 1,
                 compile->limits->dfa_states_max - 1);
  find_classes(&finder, texts, count);
  finder.next = compile_scratch(compile, nodes_max * finder.num_classes, sizeof *finder.next);
  finder.found = compile_scratch(compile, nodes_max, sizeof *finder.found);
  finder.suffix = compile_scratch(compile, nodes_max, sizeof *finder.suffix);
  for (uint32_t i = 0; i < count; i++)
    add_text(&finder, texts[i], i >= from && i < until ? FOUND_WANTED : FOUND_OTHER);
  link_nodes(compile, &finder);
  automaton_t automaton = {&finder, 1 + ROOT, step, accepts, finder.class_of};
  return dfa_explore(compile, &automaton);
}
