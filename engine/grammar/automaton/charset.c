/* charset.c: sets of code points, and nodes of syntax trees.
 *
 * Part of a compilation, on its thread; all memory is the compilation's scratch.
 */
#include "engine/grammar/automaton/regex.h"

#include <stdlib.h>

static int compare_ranges(const void *left, const void *right) {
  const char_range_t *first = left, *second = right;
  return first->low < second->low ? -1 : first->low > second->low;
}

void charset_normalize(charset_t *set) {
  if (set->count == 0) return;
  qsort(set->ranges, set->count, sizeof *set->ranges, compare_ranges);
  uint32_t kept = 0;
  for (uint32_t i = 1; i < set->count; i++) {
    char_range_t *last = &set->ranges[kept], next = set->ranges[i];
    if (next.low <= last->high || next.low == last->high + 1) {
      if (next.high > last->high) last->high = next.high;
    } else {
      set->ranges[++kept] = next;
    }
  }
  set->count = kept + 1;
}

charset_t charset_invert(compile_t *compile, const char_range_t *ranges, uint32_t count) {
  charset_t out = {compile_scratch(compile, (size_t)count + 1, sizeof(char_range_t)), 0};
  uint32_t low = 0;
  for (uint32_t i = 0; i < count; i++) {
    if (ranges[i].low > low) {
      out.ranges[out.count++] = (char_range_t){low, ranges[i].low - 1};
    }
    low = ranges[i].high + 1;
  }
  if (low <= 0x10FFFF) out.ranges[out.count++] = (char_range_t){low, 0x10FFFF};
  return out;
}

regex_t *regex_node(compile_t *compile, regex_kind_t kind) {
  compile_spend(compile, 1);
  regex_t *node = compile_scratch(compile, 1, sizeof *node);
  node->kind = kind;
  node->is_regular = kind != REGEX_RULE;
  return node;
}

void regex_append(regex_t *parent, regex_t *child) {
  if (parent->last != NULL) {
    parent->last->sibling = child;
  } else {
    parent->first = child;
  }
  parent->last = child;
  parent->is_regular = parent->is_regular && child->is_regular;
}
