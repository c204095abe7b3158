/* build_unique.c: arrays of few values without equal items, for the matcher.
 *
 * Part of a compilation, on its thread. Which sets of used values lead to the end of the array is
 * found for all sets, from the largest one down: their number is bounded. So the matcher never uses
 * up a value that a later item needs.
 */
#include "engine/grammar/nodes/build.h"

#include "engine/base/util.h"

#include <string.h>

uint32_t build_unique(compile_t *compile, unique_draft_t *draft, uint32_t next) {
  const grammar_unique_t *unique = &draft->unique;
  draft->live =
      compile_scratch(compile, unique->num_rows + 2 * (size_t)draft->num_counts, sizeof(uint32_t));
  draft->unique.ways = compile_scratch(compile, (size_t)1 << unique->num_values, 1);
  *(unique_draft_t **)list_add(compile, &compile->uniques, sizeof draft) = draft;
  return build_node(compile, NODE_UNIQUE, compile->uniques.count - 1, next);
}

/* Returns a bit for each node from which the text can end. */
static uint32_t live_of(compile_t *compile, const uint32_t *nodes, uint32_t count) {
  uint32_t live = 0;
  for (uint32_t i = 0; i < count; i++)
    live |= (uint32_t)(build_at(compile, nodes[i])->need != NONE) << i;
  return live;
}

/* Sets draft->live: for each row the values that can occur, then for each count the values that are
 * surely among those counted, and those that surely are not. Returns true if it has changed. */
static bool set_live(compile_t *compile, unique_draft_t *draft) {
  const grammar_unique_t *unique = &draft->unique;
  uint32_t rows = unique->num_rows, values = unique->num_values, old = 0, sum = 0;
  for (uint32_t i = 0; i < rows + 2 * draft->num_counts; i++) {
    const uint32_t *nodes = unique->entry + (size_t)i * values;
    if (i >= rows) {
      const unique_count_t *count = &draft->counts[(i - rows) / 2];
      nodes = (i - rows) % 2 == 0 ? count->is : count->is_not;
    }
    uint32_t live = live_of(compile, nodes, values);
    old |= draft->live[i] ^ live;
    sum |= live;
    draft->live[i] = live;
  }
  compile_spend(compile, (rows + 2 * draft->num_counts) * values / 4 + 1);
  return old != 0 && sum != 0;
}

/* Whether the array may end after these values. What is not certain of a value counts against it.
 */
static bool may_end(const unique_draft_t *draft, uint32_t used) {
  uint32_t items = (uint32_t)__builtin_popcount(used);
  if (used == 0 || items < draft->min || items > draft->max) return false;
  for (uint32_t i = 0; i < draft->num_counts; i++) {
    const uint32_t *live = draft->live + draft->unique.num_rows + 2 * i;
    if ((uint32_t)__builtin_popcount(used & live[0]) < draft->counts[i].min) return false;
    if ((uint32_t)__builtin_popcount(used & ~live[1]) > draft->counts[i].max) return false;
  }
  return true;
}

static void find_ways(compile_t *compile, unique_draft_t *draft) {
  uint32_t values = draft->unique.num_values, last = draft->unique.num_rows - 1;
  uint8_t *ways = draft->unique.ways;
  for (uint32_t used = UINT32_C(1) << values; used-- > 0;) {
    uint32_t items = (uint32_t)__builtin_popcount(used);
    uint32_t free = items < draft->max ? draft->live[MIN(items, last)] & ~used : 0;
    if (used % 64 == 0) compile_spend(compile, 2 * values);
    ways[used] = may_end(draft, used) ? UNIQUE_ENDS | UNIQUE_LEADS : 0;
    for (uint32_t i = 0; i < values && !ways[used]; i++) {
      if (free >> i & 1) ways[used] = ways[used | UINT32_C(1) << i] & UNIQUE_LEADS;
    }
  }
}

/* A value is one lexeme, which takes no frame beyond that of its item. */
uint32_t build_unique_need(compile_t *compile, const grammar_node_t *node) {
  unique_draft_t *draft = ((unique_draft_t **)compile->uniques.items)[node->object];
  uint32_t next = build_at(compile, node->next)->need;
  if (set_live(compile, draft)) find_ways(compile, draft);
  return draft->unique.ways[0] && next != NONE ? MAX(next, 1) : NONE;
}

uint32_t build_unique_step(const compile_t *compile, const grammar_node_t *node, uint32_t index) {
  const unique_draft_t *draft = ((unique_draft_t *const *)compile->uniques.items)[node->object];
  return index < draft->unique.num_values ? draft->unique.entry[index] : NONE;
}

void build_unique_finish(compile_t *compile) {
  uint32_t count = compile->uniques.count;
  grammar_unique_t *uniques = compile_keep(compile, count, sizeof *uniques);
  compile->grammar->uniques = uniques;
  for (uint32_t i = 0; i < count; i++) {
    const grammar_unique_t *from = &((unique_draft_t *const *)compile->uniques.items)[i]->unique;
    size_t num_entries = (size_t)from->num_rows * from->num_values;
    size_t num_sets = (size_t)1 << from->num_values;
    uniques[i] = *from;
    uniques[i].entry = compile_keep(compile, num_entries, sizeof *from->entry);
    uniques[i].ways = compile_keep(compile, num_sets, 1);
    memcpy(uniques[i].entry, from->entry, num_entries * sizeof *from->entry);
    memcpy(uniques[i].ways, from->ways, num_sets);
  }
}
